;;; pyagentd-report.el --- Pages that the daemon makes -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;; This program is free software; you can redistribute it and/or modify
;; it under the terms of the GNU General Public License as published by
;; the Free Software Foundation, either version 3 of the License, or
;; (at your option) any later version.

;; This program is distributed in the hope that it will be useful,
;; but WITHOUT ANY WARRANTY; without even the implied warranty of
;; MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
;; GNU General Public License for more details.

;; You should have received a copy of the GNU General Public License
;; along with this program.  If not, see <https://www.gnu.org/licenses/>.

;;; Commentary:

;; The daemon's operation `report' returns lines with headings, faces and
;; buttons; here they are shown, folded by the headings and fetched again.

;;; Code:

(require 'outline)
(require 'seq)
(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-list)

(defvar-local pyagentd-report--name nil
  "The name of the page in this buffer.")
(defvar-local pyagentd-report--arguments nil
  "The arguments of the page in this buffer, a plist.")
(defvar-local pyagentd-report--latest 0
  "How many times the daemon was asked; only the latest answer counts.")

;;;; Text

(defun pyagentd-report--insert (line)
  "Insert LINE, a plist as the daemon tells it."
  (let ((level (or (plist-get line :level) 0)) (start (point)))
    (when (> level 0)
      (insert (make-string level ?*) " "))
    (mapc #'pyagentd-report--insert-part (plist-get line :parts))
    (insert "\n")
    (when (> level 0)
      (add-face-text-property start (point)
                              (intern (format "outline-%d" (min level 8)))))))

(defun pyagentd-report--insert-part (part)
  "Insert PART of a line, a string or a plist."
  (let ((start (point)) (visit (and (consp part) (plist-get part :visit))))
    (insert (pyagentd-list-text part))
    (when visit
      (make-text-button start (point)
                        'pyagentd-place visit
                        'action #'pyagentd-report--push
                        'follow-link t
                        'face (get-text-property start 'face)
                        'help-echo "RET: open"))))

(defun pyagentd-report--push (button)
  "Open the place of BUTTON."
  (pyagentd-list-visit-place (button-get button 'pyagentd-place)))

(defun pyagentd-report--headings (function)
  "Call FUNCTION at the end of each heading, with its line."
  (save-excursion
    (goto-char (point-min))
    (while (re-search-forward (concat "^\\(?:" outline-regexp "\\).*") nil t)
      (funcall function (match-string-no-properties 0)))))

(defun pyagentd-report--folded ()
  "Return the headings that are folded."
  (let (found)
    (pyagentd-report--headings
     (lambda (heading)
       (when (invisible-p (point)) (push heading found))))
    found))

(defun pyagentd-report--print (report)
  "Show REPORT in this buffer; point stays on its line, folds stay."
  (let* ((inhibit-read-only t)
         (first (zerop (buffer-size)))
         (lines (plist-get report :lines))
         (folded (if first
                     (mapcar (lambda (line)
                               (concat (make-string (plist-get line :level) ?*)
                                       " "
                                       (mapconcat #'pyagentd-list-text
                                                  (plist-get line :parts) "")))
                             (seq-filter (lambda (line)
                                           (plist-get line :folded))
                                         lines))
                   (pyagentd-report--folded)))
         (number (line-number-at-pos)))
    (setq mode-name (plist-get report :title))
    (erase-buffer)
    (mapc #'pyagentd-report--insert lines)
    (pyagentd-report--headings
     (lambda (heading)
       (when (member heading folded)
         (outline-hide-subtree))))
    (goto-char (point-min))
    (forward-line (1- number))))

;;;; Fetching

(defun pyagentd-report--revert (&rest _)
  "Fetch the page of this buffer again."
  (let ((number (setq pyagentd-report--latest (1+ pyagentd-report--latest))))
    (pyagentd-later-here
     'report (list :name pyagentd-report--name
                   :arguments pyagentd-report--arguments)
     (lambda (report)
       (when (= number pyagentd-report--latest)
         (pyagentd-report--print report)))
     (* 6 pyagentd-call-timeout))))

(defun pyagentd-report-visit ()
  "Open what the button at point, or that of the heading above, names."
  (interactive nil pyagentd-report-mode)
  (let ((button
         (or (button-at (point))
             (pyagentd-report--button-of-line)
             (save-excursion
               (end-of-line)
               (and (ignore-errors (outline-back-to-heading t) t)
                    (pyagentd-report--button-of-line))))))
    (if button (push-button button)
      (user-error "Nothing to open here"))))

(defun pyagentd-report--button-of-line ()
  "Return the first button of this line, or nil."
  (save-excursion
    (beginning-of-line)
    (let ((button (or (button-at (point)) (next-button (point)))))
      (and button (<= (button-start button) (line-end-position)) button))))

;;;; The mode

(defvar pyagentd-report-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-report-visit)
    (define-key map (kbd "TAB") #'outline-cycle)
    (define-key map (kbd "<backtab>") #'outline-cycle-buffer)
    (define-key map "n" #'outline-next-visible-heading)
    (define-key map "p" #'outline-previous-visible-heading)
    map)
  "Keymap of `pyagentd-report-mode'.")

(define-derived-mode pyagentd-report-mode special-mode "Report"
  "Major mode for pages that the daemon makes.

\\{pyagentd-report-mode-map}"
  :interactive nil
  (setq buffer-undo-list t)
  (setq-local outline-regexp "\\*+ ")
  (outline-minor-mode)
  (setq-local revert-buffer-function #'pyagentd-report--revert))

(defun pyagentd-report-buffer (name arguments)
  "Return a buffer in which the page NAME with ARGUMENTS, a plist, is shown."
  (with-current-buffer (get-buffer-create (format "*pyagentd %s*" name))
    (unless (equal (list name arguments)
                   (list pyagentd-report--name pyagentd-report--arguments))
      (let ((inhibit-read-only t)) (erase-buffer))
      (pyagentd-report-mode)
      (setq pyagentd-report--name name
            pyagentd-report--arguments arguments))
    (revert-buffer)
    (current-buffer)))

(defun pyagentd-report-visit-place (place _other-window)
  "Display the page that PLACE names."
  (display-buffer (pyagentd-report-buffer (plist-get place :name)
                                          (plist-get place :arguments))))

;;;###autoload
(defun pyagentd-inspect ()
  "Show what happened in the session here: requests, tokens, tools, decisions.
RET on a request shows it as it was sent."
  (interactive)
  (pop-to-buffer
   (pyagentd-report-buffer
    "inspect" (list :branch (plist-get (pyagentd-here) :branch)))))

(provide 'pyagentd-report)
;;; pyagentd-report.el ends here

;;; pyagentd-rows.el --- The lines in a list of sessions -*- lexical-binding: t; -*-

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

;; How sessions look in their list, and which line point is on.  The lines
;; and their order come from pyagentd-tree.el; `tabulated-list-mode' prints
;; them, as many as the limit says.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'tabulated-list)
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-numbers)
(require 'pyagentd-table)
(require 'pyagentd-tree)

(defface pyagentd-agent-title '((t :inherit font-lock-type-face))
  "Face of the title of an agent."
  :group 'pyagentd)

(defvar-local pyagentd-rows-all nil
  "All rows the daemon told, see the file pyagentd-tree.el.")
(defvar-local pyagentd-rows-limit nil
  "How many lines are shown at most.")
(defvar-local pyagentd-rows-filter nil
  "Words that a line must have, or nil.")
(defvar-local pyagentd-rows-folded nil
  "The branch directories that are folded.")
(defvar-local pyagentd-rows-loading nil
  "Non-nil while the rows are being fetched.")
(defvar-local pyagentd-rows-marks nil
  "Hash table: the mark of each branch that has one, a character.")
;;;; Columns

(defconst pyagentd-rows--columns
  [("Age" 5 pyagentd-rows--before :right-align t)
   ("State" 8 pyagentd-rows--before)
   ("Tokens" 6 pyagentd-rows--before :right-align t)
   ("Cost" 8 pyagentd-rows--before :right-align t)
   ("Preset" 21 pyagentd-rows--before)
   ("Id" 0 nil)]
  "Columns after the title.")

(defun pyagentd-rows-format ()
  "Return the columns, the title as wide as the window allows."
  (let ((width (- (window-width (get-buffer-window)) 2 6 9 7 9 22)))
    (vconcat
     (list (list "Title" (max 24 (min 64 (max (- width 24) (min width 30))))
                 'pyagentd-rows--before))
     pyagentd-rows--columns)))

(declare-function pyagentd-list-more "pyagentd-list")

(defun pyagentd-rows--before (a b)
  "Return non-nil if entry A stands before entry B.
The lines are in order already; sorting here would tear trees apart."
  (let ((before (< (aref (cadr a) 8) (aref (cadr b) 8))))
    (if (cdr tabulated-list-sort-key) (not before) before)))

(defconst pyagentd-rows--state-faces
  '(("busy" . success) ("retrying" . warning) ("waiting" . warning)
    ("error" . error))
  "Face of each state that is worth one.")

(defun pyagentd-rows--state (row)
  "Return the state of ROW as shown."
  (let ((state (format "%s" (or (plist-get row :state) ""))))
    (cond ((alist-get state pyagentd-rows--state-faces nil nil #'equal)
           (propertize state 'face
                       (alist-get state pyagentd-rows--state-faces
                                  nil nil #'equal)))
          ((plist-get row :archived-at) (propertize "archived" 'face 'shadow))
          (t (propertize state 'face 'shadow)))))

(defun pyagentd-rows--name (line)
  "Return what LINE, see the file pyagentd-tree.el, is called.
A session is followed by its current branch if that is not the first one."
  (pcase-let* ((`(,row ,stem ,what ,hidden) line)
               (branch (plist-get row :branch-name))
               (shadow (lambda (text) (propertize text 'face 'shadow))))
    (concat
     (funcall shadow stem)
     (if (eq what 'branch) (pyagentd-branch-label branch)
       (propertize (pyagentd-title-listed row)
                   'face (cond ((plist-get row :archived-at) 'shadow)
                               ((eq what 'agent) 'pyagentd-agent-title)
                               (t 'pyagentd-session-title))))
     (unless (or (not (eq what 'session)) (equal branch "main"))
       (funcall shadow (concat "  " branch)))
     (when (> hidden 0) (funcall shadow (format "  +%d" hidden))))))

(defun pyagentd-rows--tokens (row)
  "Return the tokens that ROW took, with the agents below it."
  (let ((tokens (nth 0 (pyagentd-tree-spent row))))
    (if (zerop tokens) "" (pyagentd-numbers-short tokens))))

(defun pyagentd-rows--cost (row)
  "Return what ROW cost with the agents below it."
  (pcase-let ((`(,tokens ,usd ,unpriced) (pyagentd-tree-spent row)))
    (cond ((zerop tokens) "")
          ((or unpriced (> usd 0)) (pyagentd-numbers-cost usd unpriced))
          (t (propertize (pyagentd-numbers-dollars 0) 'face 'shadow)))))

(defun pyagentd-rows--entry (line rank)
  "Return LINE, the one in place RANK, as an entry of the list.
After its columns an entry has LINE and RANK, which are not shown."
  (let* ((row (car line))
         (shadow (lambda (text)
                   (propertize (format "%s" (or text "")) 'face 'shadow))))
    (list (plist-get row :branch)
          (vector (pyagentd-rows--name line)
                  (pyagentd-age (or (plist-get row :updated)
                                    (plist-get row :created)))
                  (pyagentd-rows--state row)
                  (pyagentd-rows--tokens row)
                  (pyagentd-rows--cost row)
                  (funcall shadow (plist-get row :preset))
                  (funcall shadow (if (eq (nth 2 line) 'branch) ""
                                    (plist-get row :session-id)))
                  line rank))))

;;;; Printing

(defun pyagentd-rows-entries ()
  "Return the entries to show; a last one offers more."
  (let* ((lines (pyagentd-tree-lines
                 pyagentd-rows-all
                 (or (car tabulated-list-sort-key) "Age")
                 (cdr tabulated-list-sort-key)
                 pyagentd-rows-filter pyagentd-rows-folded))
         (left (- (length lines) pyagentd-rows-limit)))
    (append (seq-map-indexed #'pyagentd-rows--entry
                             (seq-take lines pyagentd-rows-limit))
            (when (> left 0)
              (list (list 'more (pyagentd-rows--more left)))))))

(defun pyagentd-rows--more (number)
  "Return the columns of the line that offers NUMBER more lines."
  (vector (list (format "%d more" number)
                'action (lambda (_) (pyagentd-list-more)))
          "" "" "" "" "" "" nil most-positive-fixnum))

(defun pyagentd-rows-print-entry (id columns)
  "Insert the entry ID with COLUMNS and its mark."
  (let ((start (point)) (mark (gethash id pyagentd-rows-marks)))
    (tabulated-list-print-entry id columns)
    (when mark
      (save-excursion
        (goto-char start)
        (pyagentd-rows-put-mark mark)))))

(defun pyagentd-rows-put-mark (mark)
  "Show MARK, a character or nil, at the start of this line."
  (tabulated-list-put-tag
   (if mark
       (propertize (string mark) 'face (pcase mark
                                         (?D 'pyagentd-removed)
                                         (_ 'warning)))
     " ")))

(defun pyagentd-rows-update (rows)
  "Show ROWS in the lines that they have, which stay where they are."
  (let ((inhibit-read-only t))
    (save-excursion
      (goto-char (point-min))
      (while (and rows (not (eobp)))
        (let* ((id (tabulated-list-get-id))
               (row (and (stringp id)
                         (seq-find (lambda (row)
                                     (equal id (plist-get row :branch)))
                                   rows))))
          (if (null row) (forward-line)
            (setq rows (remq row rows))
            (pyagentd-rows--replace row)))))))

(defun pyagentd-rows--replace (row)
  "Print the line at point anew, with ROW; point is behind it then."
  (let* ((old (tabulated-list-delete-entry))
         (columns (cadr old)))
    (apply #'pyagentd-rows-print-entry
           (pyagentd-rows--entry (cons row (cdr (aref columns 7)))
                                 (aref columns 8)))))

(defun pyagentd-rows--say-nothing ()
  "Say in a list without lines why it has none."
  (when (and (zerop (buffer-size)) (not pyagentd-rows-loading))
    (let ((inhibit-read-only t))
      (save-excursion
        (insert (if pyagentd-rows-all
                    "No matches; / with no words shows all sessions\n"
                  (substitute-command-keys
                   "No sessions; \\[pyagentd-session] makes one\n")))))))

(defun pyagentd-rows-print ()
  "Show the lines there are; point stays with its line, or near it."
  (let ((number (line-number-at-pos))
        (id (tabulated-list-get-id))
        ;; Thousands of rows make much garbage at once.
        (gc-cons-threshold (max gc-cons-threshold (* 64 1024 1024))))
    (setq tabulated-list-format (pyagentd-rows-format))
    (tabulated-list-init-header)
    (tabulated-list-print t)
    (pyagentd-rows--say-nothing)
    (pyagentd-table-show-keys)
    (unless (or (null id) (equal id (tabulated-list-get-id)))
      (goto-char (point-min))
      (forward-line (1- number)))))

(defun pyagentd-rows-line ()
  "Return the line at point, see the file pyagentd-tree.el, or nil."
  (when-let ((entry (tabulated-list-get-entry)))
    (aref entry 7)))

(provide 'pyagentd-rows)
;;; pyagentd-rows.el ends here

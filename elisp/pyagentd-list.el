;;; pyagentd-list.el --- List sessions -*- lexical-binding: t; -*-

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

;; The sessions the daemon knows, with their branches and agents, newest
;; first.  Thousands of them are fetched without waiting, and as many lines
;; are shown as fit a few screens, with more on request; so the list is
;; there at once however many there are.

;;; Code:

(require 'tabulated-list)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-later)
(require 'pyagentd-here)
(require 'pyagentd-manage)
(require 'pyagentd-rows)
(require 'pyagentd-list-rows)
(require 'pyagentd-marks)

(autoload 'pyagentd-branches "pyagentd-branches" nil t)
(autoload 'pyagentd-export "pyagentd-exchange" nil t)
(autoload 'pyagentd-search "pyagentd-search" nil t)

(defcustom pyagentd-list-lines 500
  "How many lines the list of sessions shows at first and adds on request."
  :type 'natnum
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

;;;; Point

(defun pyagentd-list--here ()
  "Return the session at point as `pyagentd-here' documents."
  (pcase (pyagentd-rows-line)
    (`(,row ,_depth ,what . ,_)
     (if (eq what 'session) row (append (list :what what) row)))))

(defun pyagentd-list-visit ()
  "Visit the session at point, or show more lines where there are more."
  (interactive nil pyagentd-list-mode)
  (if (eq (tabulated-list-get-id) 'more)
      (pyagentd-list-more)
    (pyagentd-here-visit (pyagentd-here))))

(defun pyagentd-list-visit-other-window ()
  "Visit the session at point in another window."
  (interactive nil pyagentd-list-mode)
  (pyagentd-here-visit (pyagentd-here) t))

(defun pyagentd-list-abort ()
  "Abort the run of the session at point."
  (interactive nil pyagentd-list-mode)
  (pyagentd-later-here
   'abort (list :branch (plist-get (pyagentd-here) :branch))
   (lambda (answer)
     (message (if (plist-get answer :aborted) "Aborted" "Nothing to abort"))
     (revert-buffer))))

;;;; What is shown

(defun pyagentd-list-more ()
  "Show more lines."
  (interactive nil pyagentd-list-mode)
  (setq pyagentd-rows-limit (+ pyagentd-rows-limit pyagentd-list-lines))
  (pyagentd-list--print))

(defun pyagentd-list-filter (filter)
  "Show only sessions in which all words of FILTER occur; nothing shows all.
Looked at are title, id, branch, preset and state."
  (interactive
   (list (read-string "Filter (words, empty for all): " pyagentd-rows-filter))
   pyagentd-list-mode)
  (setq pyagentd-rows-filter (unless (string-blank-p filter) filter)
        pyagentd-rows-limit pyagentd-list-lines)
  (pyagentd-list--print))

(defun pyagentd-list-toggle-archived ()
  "Include archived sessions, or leave them out again."
  (interactive nil pyagentd-list-mode)
  (setq pyagentd-list--archived (not pyagentd-list--archived))
  (revert-buffer))

(defun pyagentd-list-toggle-fold ()
  "Fold away what stands below the line at point, or unfold it."
  (interactive nil pyagentd-list-mode)
  (let ((directory (plist-get (pyagentd-here) :branch-dir)))
    (setq pyagentd-rows-folded
          (if (member directory pyagentd-rows-folded)
              (remove directory pyagentd-rows-folded)
            (cons directory pyagentd-rows-folded))))
  (pyagentd-list--print))

;;;; The mode

(defvar pyagentd-list-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-list-visit)
    (define-key map (kbd "o") #'pyagentd-list-visit-other-window)
    (define-key map (kbd "k") #'pyagentd-list-abort)
    (define-key map (kbd "TAB") #'pyagentd-list-toggle-fold)
    (define-key map (kbd "m") #'pyagentd-list-mark)
    (define-key map (kbd "u") #'pyagentd-list-unmark)
    (define-key map (kbd "DEL") #'pyagentd-list-unmark-backward)
    (define-key map (kbd "U") #'pyagentd-list-unmark-all)
    (define-key map (kbd "d") #'pyagentd-list-flag-deletion)
    (define-key map (kbd "a") #'pyagentd-list-flag-archive)
    (define-key map (kbd "x") #'pyagentd-list-execute)
    (define-key map (kbd "r") #'pyagentd-rename)
    (define-key map (kbd "D") #'pyagentd-duplicate)
    (define-key map (kbd "e") #'pyagentd-export)
    (define-key map (kbd "b") #'pyagentd-branches)
    (define-key map (kbd "s") #'pyagentd-search)
    (define-key map (kbd "/") #'pyagentd-list-filter)
    (define-key map (kbd "A") #'pyagentd-list-toggle-archived)
    (define-key map (kbd "+") #'pyagentd-list-more)
    map)
  "Keymap of `pyagentd-list-mode'.")

(define-derived-mode pyagentd-list-mode tabulated-list-mode "Sessions"
  "Major mode for the list of sessions, their branches and their agents.
A line without indentation is a session and its current branch; below it
stand its other branches and the agents.

\\{pyagentd-list-mode-map}"
  (setq tabulated-list-padding 2
        tabulated-list-sort-key '("Age" . nil)
        tabulated-list-format (pyagentd-rows-format)
        tabulated-list-entries #'pyagentd-rows-entries
        tabulated-list-printer #'pyagentd-rows-print-entry
        pyagentd-rows-limit pyagentd-list-lines
        pyagentd-table-help '(("RET" "open") ("m" "mark") ("d" "delete")
                              ("a" "archive") ("x" "execute") ("r" "rename")
                              ("k" "abort") ("/" "filter") ("?" "all keys"))
        pyagentd-rows-marks (make-hash-table :test #'equal)
        pyagentd-here-function #'pyagentd-list--here
        pyagentd-live t)
  (setq-local revert-buffer-function #'pyagentd-list--revert)
  (add-hook 'window-buffer-change-functions #'pyagentd-list--refresh nil t)
  (pyagentd-live-listing)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-list-sessions ()
  "List the sessions with their branches and agents."
  (interactive)
  (pop-to-buffer-same-window (get-buffer-create "*pyagentd sessions*"))
  (unless (derived-mode-p 'pyagentd-list-mode)
    (pyagentd-list-mode))
  (revert-buffer))

(provide 'pyagentd-list)
;;; pyagentd-list.el ends here

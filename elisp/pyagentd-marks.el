;;; pyagentd-marks.el --- Marks in a list of sessions -*- lexical-binding: t; -*-

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

;; Marks and flags as in Dired: `m' marks, `d' and `a' flag for deletion
;; and for the archive, `x' does it.  A flag is for all that is marked,
;; else for the line at point or the region.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'tabulated-list)
(require 'pyagentd-core)
(require 'pyagentd-later)
(require 'pyagentd-here)
(require 'pyagentd-manage)
(require 'pyagentd-rows)

;;;; Marks

(defun pyagentd-marks--set (mark)
  "Give the session at point MARK, a character or nil for none."
  (when-let ((line (pyagentd-rows-line)))
    (let ((branch (plist-get (car line) :branch)))
      (if mark
          (puthash branch mark pyagentd-rows-marks)
        (remhash branch pyagentd-rows-marks)))
    (pyagentd-rows-put-mark mark)))

(defun pyagentd-marks--each (mark)
  "Give MARK to the lines of the region or the one at point, and move on."
  (let ((end (if (use-region-p) (copy-marker (region-end)) nil)))
    (when end
      (goto-char (region-beginning))
      (deactivate-mark))
    (pyagentd-marks--set mark)
    (forward-line)
    (while (and end (< (point) end))
      (pyagentd-marks--set mark)
      (forward-line))))

(defun pyagentd-marks--flag (mark)
  "Give MARK to all lines with the mark *, or else as `pyagentd-marks--each'."
  (if (member ?* (hash-table-values pyagentd-rows-marks))
      (save-excursion
        (goto-char (point-min))
        (while (not (eobp))
          (when (eql ?* (gethash (tabulated-list-get-id) pyagentd-rows-marks))
            (pyagentd-marks--set mark))
          (forward-line)))
    (pyagentd-marks--each mark)))

(defun pyagentd-list-mark ()
  "Mark the session at point, or those in the region.
The next flag is then for all that are marked."
  (interactive nil pyagentd-list-mode)
  (pyagentd-marks--each ?*))

(defun pyagentd-list-unmark ()
  "Take mark or flag from the session at point, or those in the region."
  (interactive nil pyagentd-list-mode)
  (pyagentd-marks--each nil))

(defun pyagentd-list-unmark-backward ()
  "Go up a line and take mark or flag from the session there."
  (interactive nil pyagentd-list-mode)
  (forward-line -1)
  (pyagentd-marks--set nil))

(defun pyagentd-list-unmark-all ()
  "Take all marks and flags away."
  (interactive nil pyagentd-list-mode)
  (clrhash pyagentd-rows-marks)
  (pyagentd-rows-print))

(defun pyagentd-list-flag-deletion ()
  "Flag for deletion what is marked, else the line at point or the region.
\\[pyagentd-list-execute] moves it to the trash."
  (interactive nil pyagentd-list-mode)
  (pyagentd-marks--flag ?D))

(defun pyagentd-list-flag-archive ()
  "Flag for the archive what is marked, else the line at point or the region.
\\[pyagentd-list-execute] archives it, and lists \
again what is archived."
  (interactive nil pyagentd-list-mode)
  (pyagentd-marks--flag ?A))

(defun pyagentd-marks--flagged (mark)
  "Return the lines with MARK in their order, without those below others."
  (let (lines directories)
    (save-excursion
      (goto-char (point-min))
      (while (not (eobp))
        (when (eql mark (gethash (tabulated-list-get-id) pyagentd-rows-marks))
          (push (pyagentd-rows-line) lines))
        (forward-line)))
    (seq-filter
     (lambda (line)
       (let ((directory (plist-get (car line)
                                   (if (eq (nth 2 line) 'session) :session-dir
                                     :branch-dir))))
         (unless (seq-some (lambda (above)
                             (string-prefix-p (file-name-as-directory above)
                                              directory))
                           directories)
           (push directory directories))))
     (nreverse lines))))

(defun pyagentd-marks--words (lines)
  "Return in words how many sessions, branches and agents LINES are."
  (string-join
   (delq nil (mapcar (lambda (what)
                       (let ((number (seq-count (lambda (line)
                                                  (eq (nth 2 line) what))
                                                lines)))
                         (when (> number 0)
                           (pyagentd-count number (symbol-name what)))))
                     '(session branch agent)))
   ", "))

(defun pyagentd-list-execute ()
  "Delete and archive what is flagged for it, after asking."
  (interactive nil pyagentd-list-mode)
  (let ((delete (pyagentd-marks--flagged ?D))
        (archive (pyagentd-marks--flagged ?A)))
    (unless (or delete archive)
      (user-error "Nothing flagged: d flags for deletion, a for archiving"))
    (when (yes-or-no-p
           (concat (and delete (format "Move %s to the trash"
                                       (pyagentd-marks--words delete)))
                   (and delete archive " and ")
                   (and archive (format "%s %s" (if delete "archive" "Archive")
                                        (pyagentd-marks--words archive)))
                   "? "))
      (pyagentd-marks--execute delete archive))))

(defun pyagentd-marks--delete (line then failure)
  "Move LINE to the trash and call THEN, or FAILURE with why not."
  (pyagentd-manage-trash (car line) (nth 2 line) then failure))

(defun pyagentd-marks--archive (line then failure)
  "Archive LINE, or list it again, and call THEN, or FAILURE with why not."
  (pyagentd-later
   'archive (list :branch (plist-get (car line) :branch)
                  :undo (and (plist-get (car line) :archived-at) t))
   then nil failure))

(defun pyagentd-marks--execute (delete archive)
  "Move the lines DELETE to the trash and archive the lines ARCHIVE.
A flag goes when its line is done.  After one that fails nothing is done."
  (let* ((marks pyagentd-rows-marks)
         (marked (hash-table-keys marks))
         (failure (lambda (err)
                    (run-hooks 'pyagentd-changed-hook)
                    (pyagentd-later-tell err))))
    (pyagentd-marks--do
     "Deleting..." #'pyagentd-marks--delete delete marks
     (lambda ()
       (pyagentd-marks--do
        "Archiving..." #'pyagentd-marks--archive archive marks
        (lambda ()
          (dolist (branch marked)       ; of what went with something else
            (remhash branch marks))
          (run-hooks 'pyagentd-changed-hook))
        failure))
     failure)))

(defun pyagentd-marks--do (words function lines marks then failure)
  "Do FUNCTION with LINES, one after the other, and call THEN.
FUNCTION is called with a line, what to call when it is done, and
FAILURE.  WORDS say how far it is; the flag of what is done goes from
MARKS."
  (let* ((number (length lines))
         (reporter (and lines (make-progress-reporter words 0 number))))
    (named-let next ((left lines))
      (if (null left)
          (progn (when reporter (progress-reporter-done reporter))
                 (funcall then))
        (progress-reporter-update reporter (- number (length left)))
        (funcall function (car left)
                 (lambda (_)
                   (remhash (plist-get (caar left) :branch) marks)
                   (next (cdr left)))
                 failure)))))

(provide 'pyagentd-marks)
;;; pyagentd-marks.el ends here

;;; pyagentd-branches.el --- The tree of a session's branches -*- lexical-binding: t; -*-

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

;; The branches of one session, each below the one it comes from.

;;; Code:

(require 'diff)
(require 'diff-mode)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-daemon)
(require 'pyagentd-list)
(require 'pyagentd-manage)
(require 'pyagentd-history)

(autoload 'pyagentd-export "pyagentd-exchange" nil t)

(defun pyagentd-branches--at-point ()
  "Return what is known of the branch at point, or signal a `user-error'.
That is a plist with :branch, :name, :parent and :file."
  (plist-get (pyagentd-table-row) :facts))

(defun pyagentd-branches-branch ()
  "Make a branch of the branch at point."
  (interactive)
  (with-current-buffer (find-file-noselect
                        (plist-get (pyagentd-branches--at-point) :file))
    (goto-char (point-max))
    (pyagentd-branch)))

(defun pyagentd-branches--text (branch)
  "Return the name of a new file with the text of BRANCH, without its block."
  (let ((file (make-temp-file "branch-")))
    (with-temp-buffer
      (let ((coding-system-for-read 'utf-8-unix)
            (coding-system-for-write 'utf-8-unix))
        (insert-file-contents (plist-get branch :file))
        (pyagentd-block-strip)
        (write-region nil nil file nil 'quiet)))
    file))

(defun pyagentd-branches--diff (old new)
  "Show in the current buffer how the branch NEW differs from OLD."
  (let ((inhibit-read-only t)
        (files (list (pyagentd-branches--text old)
                     (pyagentd-branches--text new))))
    (erase-buffer)
    (make-process
     :name "pyagentd-branches-diff" :buffer (current-buffer) :noquery t
     :connection-type 'pipe :filter #'pyagentd-branches--insert
     :command (append (list diff-command "-u"
                            "--label" (plist-get old :name)
                            "--label" (plist-get new :name))
                      files)
     :sentinel (lambda (process _)
                 (mapc #'delete-file files)
                 (when (zerop (process-exit-status process))
                   (pyagentd-branches--insert
                    process (format "%s and %s are identical\n"
                                    (plist-get old :name)
                                    (plist-get new :name))))))))

(defun pyagentd-branches--insert (process text)
  "Insert TEXT, which PROCESS has printed, at the end of its buffer."
  (pyagentd-later-in (process-buffer process)
    (let ((inhibit-read-only t))
      (save-excursion
        (goto-char (point-max))
        (insert text)))))

(defun pyagentd-branches--all ()
  "Return what is known of all branches listed here."
  (mapcar (lambda (row) (plist-get row :facts)) pyagentd-table-rows))

(defun pyagentd-branches-diff (&optional other)
  "Show how the branch at point differs from the one it comes from.
With a prefix argument ask for the OTHER branch, a plist."
  (interactive
   (list (when current-prefix-arg
           (pyagentd-branch--read-branch "Compare with"
                                         (pyagentd-branches--all) nil))))
  (let* ((branch (pyagentd-branches--at-point))
         (other (or other
                    (seq-find (lambda (candidate)
                                (equal (plist-get candidate :name)
                                       (plist-get branch :parent)))
                              (pyagentd-branches--all))
                    (user-error "%s was not branched from another; \
C-u = chooses one" (plist-get branch :name)))))
    (with-current-buffer (get-buffer-create "*Branch diff*")
      (diff-mode)
      (pyagentd-branches--diff other branch)
      (setq buffer-read-only t)
      (setq-local revert-buffer-function
                  (lambda (&rest _) (pyagentd-branches--diff other branch)))
      (display-buffer (current-buffer)))))

(pyagentd-list-add-keys "branches"
  '("b" pyagentd-branches-branch "branch")
  '("=" pyagentd-branches-diff "compare")
  '("e" pyagentd-export "export")
  '("d" pyagentd-delete "delete"))

(defun pyagentd-branches ()
  "Show the branches of the session here as a tree."
  (interactive)
  (let ((here (pyagentd-here)))
    (when (plist-get here :agent)
      (user-error "An agent has no branches"))
    ;; Not of its branch, which may be deleted here.
    (pyagentd-list-show "branches" (list :branch (plist-get here :session-dir)
                                         :at (plist-get here :branch)))))

(provide 'pyagentd-branches)
;;; pyagentd-branches.el ends here

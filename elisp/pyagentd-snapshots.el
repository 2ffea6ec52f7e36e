;;; pyagentd-snapshots.el --- Files that agents changed -*- lexical-binding: t; -*-

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

;; The files that the agents of a session have changed, since a prompt or
;; in all, each with how it would change if it went back; and restoring
;; them.  What somebody else changed since is kept unless you say otherwise.

;;; Code:

(require 'diff-mode)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-here)
(require 'pyagentd-list)
(require 'pyagentd-buffers)

(defconst pyagentd-snapshots--patience 60
  "Seconds to wait for the daemon: it compares all the files there are.")

(defvar-local pyagentd-snapshots--undo nil
  "Id of the restoring that was done here last, or nil.")

;;;; The list

(defun pyagentd-snapshots--file ()
  "Return what is known of the file at point.
That is a plist with :path, :change, :reason and :diff."
  (plist-get (pyagentd-table-row) :facts))

(defun pyagentd-snapshots--arguments (&rest more)
  "Return what names the changes listed here, and MORE, a plist."
  (append (list :branch (plist-get pyagentd-list-arguments :branch))
          (when-let ((message (plist-get pyagentd-list-arguments :message)))
            (list :message message))
          more))

(defun pyagentd-snapshots-diff ()
  "Show how the file at point would change if it went back."
  (interactive nil pyagentd-list-mode)
  (let* ((file (pyagentd-snapshots--file))
         (diff (plist-get file :diff)))
    (with-current-buffer (get-buffer-create "*pyagentd diff*")
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert (cond ((member diff '(nil ""))
                       (format "%s\n" (or (plist-get file :reason) "")))
                      (t (concat diff "\n")))))
      (diff-mode)
      (setq buffer-read-only t)
      (goto-char (point-min))
      (display-buffer (current-buffer)))))

(defun pyagentd-snapshots-visit ()
  "Visit the file at point."
  (interactive nil pyagentd-list-mode)
  (let ((path (plist-get (pyagentd-snapshots--file) :path)))
    (unless (file-exists-p path) (user-error "%s is gone" path))
    (find-file-other-window path)))

(defun pyagentd-snapshots-since ()
  "Choose the prompt since which changes are listed."
  (interactive nil pyagentd-list-mode)
  (pyagentd-later-asking
   'history (list :branch (plist-get pyagentd-list-arguments :branch))
   (lambda (answer)
     (pyagentd-list-again-with
      (list :message
            (pyagentd-snapshots--read (plist-get answer :prompts)))))))

(defun pyagentd-snapshots--read (prompts)
  "Read one of PROMPTS, as the daemon tells them; return its id, nil for none."
  (let* ((number (1+ (length prompts)))
         (labels (mapcar
                  (lambda (each)
                    (setq number (1- number))
                    (cons (format "%d  %s" number
                                  (truncate-string-to-width
                                   (string-join (split-string
                                                 (plist-get each :text))
                                                " ")
                                   70 nil nil "…"))
                          (plist-get each :message-id)))
                  (reverse prompts))))
    (cdr (assoc (completing-read "Changes since (empty for all): " labels nil t)
                labels))))

;;;; Restoring

(defun pyagentd-snapshots--unsaved (paths)
  "Signal an error if a buffer of PATHS has changes that are not saved."
  (dolist (path paths)
    (when-let ((buffer (get-file-buffer path)))
      (when (buffer-modified-p buffer)
        (user-error "%s has changes that are not saved" buffer)))))

(defun pyagentd-snapshots--restored (answer)
  "Say what ANSWER tells about a restoring, and fetch the list again."
  (when-let ((id (plist-get answer :id)))
    (unless (string-empty-p id)
      (setq pyagentd-snapshots--undo id)))
  (let ((kept (plist-get answer :kept)))
    (message "%d restored%s%s" (length (plist-get answer :restored))
             (if kept (format ", %d kept (%s)" (length kept)
                              (plist-get (car kept) :reason))
               "")
             (if-let ((copies (plist-get answer :copies)))
                 (format "; the old version is in %s"
                         (mapconcat #'abbreviate-file-name copies ", "))
               "")))
  (revert-buffer))

(defun pyagentd-snapshots--restore (paths conflicts)
  "Put PATHS back; CONFLICTS says what becomes of those somebody else changed."
  (pyagentd-snapshots--unsaved paths)
  (pyagentd-later-here
   'restore (pyagentd-snapshots--arguments :paths paths :conflicts conflicts)
   #'pyagentd-snapshots--restored pyagentd-snapshots--patience))

(defun pyagentd-snapshots-restore ()
  "Put the file at point back as it was.
Of one that somebody else changed, too, the old version is put beside it,
or it is overwritten."
  (interactive nil pyagentd-list-mode)
  (let* ((row (pyagentd-snapshots--file))
         (path (plist-get row :path))
         (name (abbreviate-file-name path)))
    (pcase (pyagentd-symbol (plist-get row :change))
      ('unkept (user-error "%s" (plist-get row :reason)))
      ('conflict
       (pcase (car (read-multiple-choice
                    (format "%s: %s" name (plist-get row :reason))
                    '((?k "keep it") (?c "copy of the old version beside it")
                      (?o "overwrite it"))))
         (?c (pyagentd-snapshots--restore (list path) "copy"))
         (?o (pyagentd-snapshots--restore (list path) "overwrite"))))
      (_ (when (y-or-n-p (format "Put %s back? " name))
           (pyagentd-snapshots--restore (list path) "keep"))))))

(defun pyagentd-snapshots-restore-all ()
  "Put all files listed here back, but those that somebody else changed, too."
  (interactive nil pyagentd-list-mode)
  (let ((paths (mapcar
                (lambda (file) (plist-get file :path))
                (seq-filter (lambda (file)
                              (memq (pyagentd-symbol (plist-get file :change))
                                    '(restore create delete)))
                            (mapcar (lambda (row) (plist-get row :facts))
                                    pyagentd-table-rows)))))
    (unless paths (user-error "Nothing can be put back"))
    (when (yes-or-no-p (format "Put %s back as it was (what was new is deleted)? "
                               (pyagentd-count (length paths) "file")))
      (pyagentd-snapshots--restore paths "keep"))))

(defun pyagentd-snapshots-undo ()
  "Take back the restoring that was done here last."
  (interactive nil pyagentd-list-mode)
  (pyagentd-later-here
   'undo-restore
   (list :branch (plist-get pyagentd-list-arguments :branch)
         :id (or pyagentd-snapshots--undo
                 (user-error "Nothing to take back")))
   #'pyagentd-snapshots--restored pyagentd-snapshots--patience))

(pyagentd-list-add-keys "changes"
  '("RET" pyagentd-snapshots-diff "difference")
  '("=" pyagentd-snapshots-diff "difference")
  '("o" pyagentd-snapshots-visit "visit")
  '("r" pyagentd-snapshots-restore "restore")
  '("R" pyagentd-snapshots-restore-all "restore all")
  '("s" pyagentd-snapshots-since "since")
  '("u" pyagentd-snapshots-undo "undo"))

(defun pyagentd-changes (&optional last)
  "List the files that the agents of the session here have changed.
With a prefix argument (LAST from Lisp) only those since the last prompt."
  (interactive "P")
  (pyagentd-list-show "changes"
                      (append (list :branch (plist-get (pyagentd-here) :branch))
                              (when last '(:message "last")))))

(provide 'pyagentd-snapshots)
;;; pyagentd-snapshots.el ends here

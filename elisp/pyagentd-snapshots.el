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
(require 'pyagentd-table)
(require 'pyagentd-buffers)

(defconst pyagentd-snapshots--patience 60
  "Seconds to wait for the daemon: it compares all the files there are.")

(defvar-local pyagentd-snapshots--branch nil
  "The branch whose changes are listed.")
(defvar-local pyagentd-snapshots--message nil
  "Since which message they are listed: its id, or nil for all.")
(defvar-local pyagentd-snapshots--undo nil
  "Id of the restoring that was done here last, or nil.")

;;;; The list

(defun pyagentd-snapshots--word (row)
  "Return what became of the file in ROW, with its face."
  (pcase (pyagentd-symbol (plist-get row :change))
    ('restore "changed")
    ('create (propertize "deleted" 'face 'warning))
    ('delete (propertize "created" 'face 'success))
    ('conflict (propertize "conflict" 'face 'error))
    ('unkept (propertize "not kept" 'face 'shadow))
    (other (format "%s" other))))

(defun pyagentd-snapshots--entry (row)
  "Return the line of ROW."
  (list (plist-get row :path)
        (vector (pyagentd-snapshots--word row)
                (abbreviate-file-name (plist-get row :path))
                (propertize (or (plist-get row :reason) "") 'face 'shadow))))

(defun pyagentd-snapshots--show (answer)
  "List the files in ANSWER."
  (setq pyagentd-table-rows (plist-get answer :files))
  (pyagentd-table-print (mapcar #'pyagentd-snapshots--entry pyagentd-table-rows))
  (pyagentd-table-say (cond ((equal pyagentd-snapshots--message "last")
                             "since the last prompt")
                            (pyagentd-snapshots--message "since a prompt")
                            (t "whole session"))))

(defun pyagentd-snapshots--arguments (&rest more)
  "Return what names the changes listed here, and MORE, a plist."
  (append (list :branch pyagentd-snapshots--branch)
          (and pyagentd-snapshots--message
               (list :message pyagentd-snapshots--message))
          more))

(defun pyagentd-snapshots--revert (&rest _)
  "Fetch the list again."
  (pyagentd-table-ask #'pyagentd-snapshots--fetch))

(defun pyagentd-snapshots--fetch ()
  "Fetch the list; it is shown when it comes."
  (pyagentd-table-fetch 'changes (pyagentd-snapshots--arguments)
                        #'pyagentd-snapshots--show))

(defun pyagentd-snapshots--path ()
  "Return the file at point."
  (plist-get (pyagentd-table-row :path) :path))

(defun pyagentd-snapshots-diff ()
  "Show how the file at point would change if it went back."
  (interactive nil pyagentd-snapshots-mode)
  (let* ((row (pyagentd-table-row :path))
         (diff (plist-get row :diff)))
    (with-current-buffer (get-buffer-create "*pyagentd diff*")
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert (cond ((member diff '(nil ""))
                       (format "%s\n" (or (plist-get row :reason) "")))
                      (t (concat diff "\n")))))
      (diff-mode)
      (setq buffer-read-only t)
      (goto-char (point-min))
      (display-buffer (current-buffer)))))

(defun pyagentd-snapshots-visit ()
  "Visit the file at point."
  (interactive nil pyagentd-snapshots-mode)
  (let ((path (pyagentd-snapshots--path)))
    (unless (file-exists-p path) (user-error "%s is gone" path))
    (find-file-other-window path)))

(defun pyagentd-snapshots-since ()
  "Choose the prompt since which changes are listed."
  (interactive nil pyagentd-snapshots-mode)
  (pyagentd-later-asking
   'history (list :branch pyagentd-snapshots--branch)
   (lambda (answer)
     (setq pyagentd-snapshots--message
           (pyagentd-snapshots--read (plist-get answer :prompts)))
     (revert-buffer))))

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
  (interactive nil pyagentd-snapshots-mode)
  (let* ((row (pyagentd-table-row :path))
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
  (interactive nil pyagentd-snapshots-mode)
  (let ((paths (mapcar (lambda (row) (plist-get row :path))
                       (seq-filter (lambda (row)
                                     (memq (pyagentd-symbol
                                            (plist-get row :change))
                                           '(restore create delete)))
                                   pyagentd-table-rows))))
    (unless paths (user-error "Nothing can be put back"))
    (when (yes-or-no-p (format "Put %s back as it was (what was new is deleted)? "
                               (pyagentd-count (length paths) "file")))
      (pyagentd-snapshots--restore paths "keep"))))

(defun pyagentd-snapshots-undo ()
  "Take back the restoring that was done here last."
  (interactive nil pyagentd-snapshots-mode)
  (pyagentd-later-here
   'undo-restore
   (list :branch pyagentd-snapshots--branch
         :id (or pyagentd-snapshots--undo
                 (user-error "Nothing to take back")))
   #'pyagentd-snapshots--restored pyagentd-snapshots--patience))

;;;; The mode

(defvar pyagentd-snapshots-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-snapshots-diff)
    (define-key map "=" #'pyagentd-snapshots-diff)
    (define-key map "o" #'pyagentd-snapshots-visit)
    (define-key map "r" #'pyagentd-snapshots-restore)
    (define-key map "R" #'pyagentd-snapshots-restore-all)
    (define-key map "s" #'pyagentd-snapshots-since)
    (define-key map "u" #'pyagentd-snapshots-undo)
    map)
  "Keymap of `pyagentd-snapshots-mode'.")

(define-derived-mode pyagentd-snapshots-mode pyagentd-table-mode "Changes"
  "Major mode for the list of files that agents changed.

\\{pyagentd-snapshots-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("" 9 t) ("File" 60 t) ("" 0 nil)]
        pyagentd-table-help '(("RET" "difference") ("o" "visit") ("r" "restore")
                              ("R" "restore all") ("s" "since") ("u" "undo")
                              ("g" "refresh") ("q" "close"))
        pyagentd-table-empty "No file is another than it was.")
  (setq-local revert-buffer-function #'pyagentd-snapshots--revert)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-changes (&optional last)
  "List the files that the agents of the session here have changed.
With a prefix argument (LAST from Lisp) only those since the last prompt."
  (interactive "P")
  (let* ((here (pyagentd-here))
         (buffer (get-buffer-create
                  (format "*pyagentd changes %s*" (plist-get here :session-id)))))
    (with-current-buffer buffer
      (pyagentd-snapshots-mode)
      (setq pyagentd-snapshots--branch (plist-get here :branch)
            pyagentd-snapshots--message (and last "last"))
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-snapshots)
;;; pyagentd-snapshots.el ends here

;;; pyagentd-here.el --- The session here, and commands on a whole session -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Finds the session that a command acts on; renames, archives, copies and
;; deletes it; and makes buffers follow a session whose directory moves.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)

;;;; The session that a command acts on

(defface pyagentd-session-title '((t :inherit bold))
  "Face of the title of a session."
  :group 'pyagentd)

(defvar pyagentd-changed-hook nil
  "Hook run after a command has created, changed or deleted a session.
A change of a name or a branch counts, too.")

(defvar-local pyagentd-here-function nil
  "Function that returns the session at point, nil if there is none.
Its value is a plist with the keys that `pyagentd-here' documents.")

(defun pyagentd-here ()
  "Return the session that a command acts on here, as a plist.
It is the one at point in a list of sessions, else that of the buffer.
Keys: :branch (its name on the wire), :session-id, :session-dir,
:branch-name, :branch-dir, :file, :agent (t for an agent) and :title (nil
if unknown).  Signal a `user-error' if there is none."
  (or (if pyagentd-here-function
          (funcall pyagentd-here-function)
        (with-current-buffer (or (buffer-base-buffer) (current-buffer))
          (pyagentd-here--of-buffer)))
      (user-error "No session here")))

(defun pyagentd-here--of-buffer ()
  "Return the session of the current buffer as a plist, or nil."
  (when pyagentd--branch-dir
    (list :branch pyagentd--branch-dir
          :session-id pyagentd--session-id :session-dir pyagentd--session-dir
          :branch-name pyagentd--branch-name :branch-dir pyagentd--branch-dir
          :file buffer-file-name
          :agent (pyagentd-place-agent-p)
          :title pyagentd-status-title)))

(defun pyagentd-here-buffers (directory)
  "Return the session buffers whose branch is DIRECTORY or below it."
  (let ((prefix (file-name-as-directory directory)))
    (seq-filter (lambda (buffer)
                  (let ((branch (buffer-local-value 'pyagentd--branch-dir
                                                    buffer)))
                    (and branch (string-prefix-p
                                 prefix (file-name-as-directory branch)))))
                (pyagentd-place-buffers))))

(defun pyagentd-here-save (session)
  "Save the buffers of SESSION, a plist, since the daemon works on its files."
  (dolist (buffer (pyagentd-here-buffers (plist-get session :session-dir)))
    (with-current-buffer buffer
      (pyagentd-session-save))))

(defun pyagentd-here-visit (session &optional other-window)
  "Visit the conversation of SESSION, a plist, and return its buffer.
Use another window if OTHER-WINDOW is non-nil.  Move point to the prompt,
unless the buffer existed already with point elsewhere than at its
beginning."
  (let* ((file (plist-get session :file))
         (known (find-buffer-visiting file)))
    (unless (or known (file-exists-p file))
      (user-error "%s is gone; `g' lists the sessions again" file))
    (prog1 (if other-window (find-file-other-window file) (find-file file))
      (when (or (not known) (bobp))
        (goto-char (point-max))))))

;;;; Words

(defun pyagentd-title (session)
  "Return the title of SESSION, a plist, or its id if it has none."
  (let ((title (plist-get session :title)))
    (format "%s" (if (member title '(nil "")) (plist-get session :session-id)
                   title))))

;;;; Sessions whose directory moved

;; Renaming an agent moves its files to another directory.  Windows that
;; show them switch to the new file, also when another client renamed it;
;; unsaved text stays in a separate buffer.

(defun pyagentd-moved--show (old file position)
  "Make the windows of the buffer OLD show FILE at POSITION.
OLD is killed, unless it has unsaved text."
  (when (file-exists-p file)
    (let ((new (find-file-noselect file)))
      (with-current-buffer new
        (goto-char (min position (point-max))))
      (when (and (buffer-live-p old) (not (eq old new)))
        (dolist (window (get-buffer-window-list old nil t))
          (set-window-buffer window new)
          (set-window-point window (with-current-buffer new (point))))
        (with-current-buffer old
          (cond ((and (buffer-modified-p) (not buffer-file-name))
                 (rename-buffer (format "*Renamed: %s*" (buffer-name)) t)
                 (message "%s has moved; what you typed is in buffer %s"
                          (buffer-name new) (buffer-name)))
                (t (set-buffer-modified-p nil)
                   (kill-buffer))))))))

;;;; Renaming and archiving

(defun pyagentd-rename (title)
  "Change the title of the session here to TITLE.
Its id and its directory do not change."
  (interactive
   (let ((here (pyagentd-here)))
     (list (read-string (format "Title of %s: " (plist-get here :session-id))
                        (plist-get here :title)))))
  (pyagentd-later
   'rename (list :branch (plist-get (pyagentd-here) :branch)
                 :title (string-trim title))
   (lambda (renamed)
     (when-let* ((note (plist-get renamed :note)))
       (message "%s" note))
     (run-hooks 'pyagentd-changed-hook))))

(defun pyagentd-archive (&optional undo)
  "Archive the session here: lists and searches leave it out.
With a prefix argument, or UNDO from Lisp, they show it again."
  (interactive "P")
  (let ((here (pyagentd-here)))
    (pyagentd-later
     'archive (list :branch (plist-get here :branch) :undo (and undo t))
     (lambda (_)
       (message "%s %s" (pyagentd-title here)
                (if undo "is no longer archived"
                  "is archived; C-u M-x pyagentd-archive lists it again"))
       (run-hooks 'pyagentd-changed-hook)))))

;;;; Copies

(defun pyagentd-duplicate (name)
  "Copy the session here as NAME and visit the copy.
The copy has all branches and agents, and is independent of the original."
  (interactive
   (list (read-string "Name of the copy: "
                      (concat (pyagentd-title (pyagentd-here)) " copy"))))
  (let ((here (pyagentd-here)))
    (pyagentd-here-save here)
    (pyagentd-later-asking
     'duplicate (list :branch (plist-get here :branch) :name name)
     #'pyagentd-manage-visit nil nil #'pyagentd-manage-late)))

(defun pyagentd-manage-visit (made)
  "Visit MADE, a new session or branch, and return its buffer."
  (run-hooks 'pyagentd-changed-hook)
  (pyagentd-here-visit made))

(defun pyagentd-manage-late (made)
  "Report that MADE, a session, was created after the call had timed out."
  (run-hooks 'pyagentd-changed-hook)
  (message "%s was created after all; M-x pyagentd-sessions lists it"
           (plist-get made :session-id)))

;;;; Deletion

(defun pyagentd-delete (&optional what)
  "Move the session here to the trash, or its branch or agent.
WHAT is `session', `branch' or `agent'; without it, ask if several of them
are possible.  The deletion must be confirmed."
  (interactive)
  (let ((here (pyagentd-here)))
    (pyagentd-later-asking
     'deletions
     (append (list :branch (plist-get here :branch))
             (when-let ((what (or what (plist-get here :what))))
               (list :what (symbol-name what))))
     (lambda (answer)
       (let* ((rows (mapcar (lambda (row)
                              (let ((what (plist-get row :what)))
                                (list (aref what 0) what (plist-get row :words))))
                            (plist-get answer :deletions)))
              (row (if (cdr rows) (read-multiple-choice "Delete" rows)
                     (car rows))))
         (when (yes-or-no-p (format "Move %s to the trash? " (nth 2 row)))
           (pyagentd-manage-trash
            here (intern (nth 1 row))
            (lambda (trashed)
              (message "In the trash: %s" (string-join trashed ", "))
              (run-hooks 'pyagentd-changed-hook)))))))))

(defun pyagentd-manage-trash (session what &optional then failure)
  "Move WHAT of SESSION, a plist, to the trash without asking.
WHAT is `session', `branch' or `agent'.  THEN is called with a list of the
original directories, FAILURE with an error."
  (pyagentd-here-save session)
  (pyagentd-later
   'delete (list :branch (plist-get session :branch) :what (symbol-name what))
   (lambda (answer)
     (dolist (buffer (pyagentd-here-buffers
                      (plist-get session (if (eq what 'session) :session-dir
                                           :branch-dir))))
       (with-current-buffer buffer
         (pyagentd-manage-leave)))
     (when then
       (funcall then (ensure-list (plist-get answer :trashed)))))
   nil failure))

(defun pyagentd-manage-leave ()
  "Make the current buffer an ordinary one, since its session is deleted.
Its text stays, even if unsaved."
  (when pyagentd-mode
    (let ((name (pyagentd-title (pyagentd-here--of-buffer))))
      (pyagentd-mode -1)
      (set-visited-file-name nil t)
      (set-buffer-modified-p nil)
      (rename-buffer (format "*Deleted: %s*" name) t)
      (message "%s was moved to the trash; its text is in %s"
               name (buffer-name)))))

;;;; Events

(pyagentd-define-event session `(,session)
  "Show the title of the session."
  :always
  (pyagentd-status-set-title (plist-get session :title)))

(pyagentd-define-event deleted `(,deleted)
  "Leave the buffer of a branch that was moved to the trash.
If it was moved instead, visit its new file."
  :always
  (if-let ((file (plist-get deleted :to)))
      (let ((modified (buffer-modified-p))
            (position (point)))
        (pyagentd-mode -1)
        (set-visited-file-name nil t)
        (set-buffer-modified-p modified)
        ;; Visiting a file takes too long for an event handler.
        (run-at-time 0 nil #'pyagentd-moved--show (current-buffer) file position))
    (pyagentd-manage-leave)))

(provide 'pyagentd-here)
;;; pyagentd-here.el ends here

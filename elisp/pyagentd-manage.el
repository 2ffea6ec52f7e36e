;;; pyagentd-manage.el --- Rename, archive, copy and delete sessions -*- lexical-binding: t; -*-

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

;; Commands on a session as a whole; each acts on the session that
;; `pyagentd-here' names.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-status)
(require 'pyagentd-here)

;;;; Title

(defun pyagentd-rename (title)
  "Change the title of the session here to TITLE.
Its id and its directory stay as they are."
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
  "Copy the session here under the NAME and visit the copy.
The copy has all branches and agents, and nothing in common afterwards."
  (interactive
   (list (read-string "Name of the copy: "
                      (concat (pyagentd-title (pyagentd-here)) " copy"))))
  (let ((here (pyagentd-here)))
    (pyagentd-here-save here)
    (pyagentd-later-asking
     'duplicate (list :branch (plist-get here :branch) :name name)
     #'pyagentd-manage-visit nil nil #'pyagentd-manage-late)))

(defun pyagentd-manage-visit (made)
  "Visit MADE, a session or branch that there is now, and return its buffer."
  (run-hooks 'pyagentd-changed-hook)
  (pyagentd-here-visit made))

(defun pyagentd-manage-late (made)
  "Say that MADE, a session that was given up already, was made after all."
  (run-hooks 'pyagentd-changed-hook)
  (message "%s was created after all; M-x pyagentd-sessions lists it"
           (plist-get made :session-id)))

;;;; Deletion

(defun pyagentd-manage--with (&rest counts)
  "Return \" with …\" naming COUNTS, nouns after their numbers, or nothing."
  (let (parts)
    (while counts
      (let ((number (pop counts)) (noun (pop counts)))
        (when (> number 0)
          (push (pyagentd-count number noun) parts))))
    (if parts (concat " with " (string-join (nreverse parts) " and ")) "")))

(defun pyagentd-manage--read-what (session branches)
  "Ask what of SESSION, which has BRANCHES, shall be deleted.
Return `agent', `branch' or `session'."
  (cond ((plist-get session :agent) 'agent)
        ((null (cdr branches)) 'session)
        ((eq ?b (car (read-multiple-choice
                      "Delete"
                      `((?b "branch"
                            ,(format "Only the branch %s."
                                     (plist-get session :branch-name)))
                        (?s "session"
                            ,(format "All %d branches." (length branches)))))))
         'branch)
        (t 'session)))

(defun pyagentd-manage--deletion (session what branches)
  "Return in words what deleting WHAT of SESSION, with BRANCHES, takes away."
  (let ((agents (lambda (branch) (or (plist-get branch :agents) 0))))
    (pcase-exhaustive what
      ('agent (format "agent %s" (plist-get session :session-id)))
      ('branch
       (let ((branch (seq-find (lambda (branch)
                                 (equal (plist-get branch :name)
                                        (plist-get session :branch-name)))
                               branches)))
         (format "branch %s of “%s”%s" (plist-get session :branch-name)
                 (pyagentd-title session)
                 (pyagentd-manage--with (funcall agents branch) "agent"))))
      ('session
       (format "session “%s”%s" (pyagentd-title session)
               (pyagentd-manage--with
                (if (cdr branches) (length branches) 0) "branch"
                (apply #'+ (mapcar agents branches)) "agent"))))))

(defun pyagentd-delete (&optional what)
  "Move the session here to the trash, or its branch or agent.
WHAT is `session', `branch' or `agent'; interactively it is asked for
where both a session and a branch may be meant.  What goes is named and
must be confirmed."
  (interactive)
  (let ((here (pyagentd-here)))
    (if (plist-get here :agent)
        (pyagentd-manage--delete here what nil)
      (pyagentd-manage-with-branches
       here (lambda (branches)
              (pyagentd-manage--delete here what branches))))))

(defun pyagentd-manage--delete (session what branches)
  "Move SESSION, which has BRANCHES, or WHAT of it to the trash after asking."
  (let ((what (or what (plist-get session :what)
                  (pyagentd-manage--read-what session branches))))
    (when (yes-or-no-p (format "Move %s to the trash? "
                               (pyagentd-manage--deletion session what
                                                          branches)))
      (pyagentd-manage-trash
       session what
       (lambda (trashed)
         (message "In the trash: %s" (string-join trashed ", "))
         (run-hooks 'pyagentd-changed-hook))))))

(defun pyagentd-manage-with-branches (session then)
  "Call THEN with the branches of SESSION, a plist, in the order of the tree.
They are plists with the keys :name, :branch, :branch-dir, :file, :parent,
:created, :position, :current, :depth and :agents, the number of agents.
THEN may ask something; it is called later, in this buffer."
  (pyagentd-later-asking
   'branches
   ;; Not of its branch, which may be gone.
   (list :branch (plist-get session :session-dir))
   (lambda (answer) (funcall then (plist-get answer :branches)))))

(defun pyagentd-manage-trash (session what &optional then failure)
  "Move WHAT of SESSION, a plist, to the trash without a question.
WHAT is `session', `branch' or `agent'.  THEN is called with the places
where it was, FAILURE with the error that kept it there."
  (pyagentd-here-save session)
  (pyagentd-later
   'delete (list :branch (plist-get session :branch) :what (symbol-name what))
   (lambda (answer)
     (dolist (buffer (pyagentd-here-buffers
                      (plist-get session (if (eq what 'session) :session-dir
                                           :branch-dir))))
       (with-current-buffer buffer
         (pyagentd-manage--leave)))
     (when then
       (funcall then (ensure-list (plist-get answer :trashed)))))
   nil failure))

(defun pyagentd-manage--leave ()
  "Make the current buffer an ordinary one, since its session is deleted.
Its text stays, also what was typed and not saved."
  (when pyagentd-mode
    (let ((name (pyagentd-title (pyagentd-here--of-buffer))))
      (pyagentd-mode -1)
      (set-visited-file-name nil t)
      (set-buffer-modified-p nil)
      (rename-buffer (format "*Deleted: %s*" name) t)
      (message "%s was moved to the trash; its text is in %s"
               name (buffer-name)))))

;;;; Events

(defun pyagentd-manage--on-session (branch _seq args)
  "Show the facts of the session of BRANCH in ARGS, its title above all."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (pyagentd-status-set-title (plist-get (car args) :title)))))

(defun pyagentd-manage--on-deleted (branch _seq args)
  "Leave the buffer of BRANCH, which was moved to the trash.
Where ARGS say that it has another name now, follow it."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (if-let ((file (plist-get (car args) :to)))
        (pyagentd-moved-follow buffer file)
      (with-current-buffer buffer
        (pyagentd-manage--leave)))))

(pyagentd-events-register 'session #'pyagentd-manage--on-session)
(pyagentd-events-register 'deleted #'pyagentd-manage--on-deleted)

(provide 'pyagentd-manage)
;;; pyagentd-manage.el ends here

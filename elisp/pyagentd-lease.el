;;; pyagentd-lease.el --- Several Emacsen, one of which writes -*- lexical-binding: t; -*-

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

;; One Emacs writes a session, the others follow it.  When the one that
;; writes leaves, another one writes without anybody doing anything; and
;; `pyagentd-take-over' has it give way.  Text that was never saved, since
;; its Emacs did not answer when it was asked to give way, is kept.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-rpc)
(require 'pyagentd-events)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-viewing)
(require 'pyagentd-later)
(require 'pyagentd-attach)
(require 'pyagentd-attached)
(require 'pyagentd-reread)
(require 'pyagentd-status)

(defconst pyagentd-lease--longest 15
  "Seconds to wait until the other Emacs gave way, or lost its right to write.")

(defconst pyagentd-lease--modesty 2.0
  "Seconds after which a buffer that viewed before a restart asks to edit.")

(defmacro pyagentd-lease--define-event (kind arglist docstring &rest body)
  "Define what happens at an event of KIND in the buffer of its branch.
ARGLIST is a `pcase' pattern for its arguments.  BODY is evaluated there,
attached or not.  DOCSTRING says what it does."
  (declare (indent 2) (doc-string 3) (debug t))
  (let ((name (intern (format "pyagentd-lease--on-%s" kind))))
    `(progn
       (defun ,name (branch _seq args)
         ,(concat docstring "\nBRANCH and ARGS are those of the event.")
         (when-let ((buffer (pyagentd-place-buffer branch)))
           (with-current-buffer buffer
             (pcase-let ((,arglist args))
               ,@body))))
       (pyagentd-events-register ',kind #',name))))

;;;; Following

(pyagentd-lease--define-event changed `(,file)
  "Take over what another client has saved."
  (pyagentd-attach-follow (plist-get file :sha256)))

(pyagentd-lease--define-event persisted `(,file)
  "Note that the daemon wrote the file."
  (let ((sha256 (plist-get file :sha256)))
    (when (and pyagentd-session-viewing
               ;; While text streams, some of it is on its way.
               (or (not (pyagentd-status-busy-p))
                   (equal sha256 (pyagentd-session-body-sha256))))
      (pyagentd-attach-follow sha256))))

(pyagentd-lease--define-event roles `(,given)
  "Give the text roles that the daemon has recovered, or that changed.
With a :marker the next answer goes there.  A text that is not the
daemon's gets them when it is saved and attached anew."
  (cond ((equal (plist-get given :sha256) (pyagentd-session-body-sha256))
         (if (plist-get given :spans)
             (pyagentd-attach-set-roles (plist-get given :spans))
           (pyagentd-attach-set-roles '((1 1 nil)))) ; none at all
         (when-let ((marker (plist-get given :marker)))
           (pyagentd-insert-start marker))
         (run-hooks 'pyagentd-attach-roles-hook))
        ((not pyagentd-session-viewing)
         (pyagentd-events-enqueue
          (pyagentd-lease--later
           (lambda ()
             (setq pyagentd-attach-state nil)
             (pyagentd-attach)))))))

(pyagentd-lease--define-event notice `(,notice)
  "Show a line about the session."
  (message "%s: %s" (buffer-name) (plist-get notice :text)))

;;;; Giving way

(pyagentd-lease--define-event lease `(,lease)
  "Give the right to write away, or take it."
  (let ((by (or (plist-get lease :by) "another client")))
    (pcase (pyagentd-symbol (plist-get lease :state))
      ;; What came after this event may say that it is too late.
      ('wanted (pyagentd-events-enqueue
                (pyagentd-lease--later #'pyagentd-lease--give by)))
      ('lost (pyagentd-lease--lose by))
      ('free (pyagentd-lease--ask)))))

(defun pyagentd-lease--later (function &rest args)
  "Return a producer of events that calls FUNCTION with ARGS in this buffer."
  (let ((buffer (current-buffer)))
    (lambda ()
      (when (buffer-live-p buffer)
        (with-current-buffer buffer
          (apply function args)))
      nil)))

(defun pyagentd-lease--give (by)
  "Save the buffer and let BY, another client, write from now on."
  (cond (pyagentd-session-viewing)
        ;; What is missing is about to arrive.
        ((or pyagentd-attach-partial (eq pyagentd-attach-state 'pending))
         (run-at-time 0.05 nil
                      (pyagentd-lease--later #'pyagentd-lease--give by)))
        (t
         (pyagentd-session-save)
         (pyagentd-rpc-call-async 'release
                                  (list :branch pyagentd--branch-dir))
         (pyagentd-lease--lose by))))

(defun pyagentd-lease--lose (by)
  "Follow from now on: BY, another client, writes."
  (unless pyagentd-session-viewing
    (pyagentd-viewing-set t)
    (if (buffer-modified-p)
        (pyagentd-attach-diverge)
      (pyagentd-log 'warn "%s: another Emacs (%s) took over; \
this buffer follows it" (buffer-name) by))))

;;;; Taking

(defun pyagentd-lease--ask ()
  "Ask to write, since nobody does."
  (when (and pyagentd-mode pyagentd-session-viewing
             (not pyagentd-viewing-diverged)
             (not pyagentd-viewing-refusal))
    (setq pyagentd-attach-wants-lease t)
    (if (eq pyagentd-attach-state 'pending)
        (setq pyagentd-attach--behind t)
      (setq pyagentd-attach-state nil)
      (pyagentd-attach))))

(defun pyagentd-lease--after-attach ()
  "Ask to write in a while if nobody does then, as after a restart."
  (when (and pyagentd-session-viewing pyagentd-attach-free)
    (run-at-time pyagentd-lease--modesty nil
                 (pyagentd-lease--later #'pyagentd-lease--ask))))


(add-hook 'pyagentd-attached-hook #'pyagentd-lease--after-attach)

;;;###autoload
(defun pyagentd-take-over (&optional how)
  "Take over writing this session; its present editor is asked to stop.
If the text of this buffer could not be saved, since another Emacs took
over while this one did not answer, ask what to do with it.  From Lisp,
HOW says it: `draft' puts what is only here below the conversation,
`ediff' compares both, and `leave' keeps it in a buffer of its own, as
the others do, too."
  (interactive)
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (unless pyagentd-mode (user-error "Not a session"))
    (if pyagentd-viewing-diverged
        (pyagentd-lease--rescue (or how (pyagentd-lease--read-how)))
      (pyagentd-lease--take))))

(defun pyagentd-lease--take (&optional then)
  "Become the one that writes the session in this buffer, then call THEN.
It is called here, later if need be."
  (setq pyagentd-attach-wants-lease t)
  (let ((done (lambda ()
                (message "You now write %s" (buffer-name))
                (when then (funcall then)))))
    (pyagentd-attached-then
     (lambda ()
       (cond (pyagentd-viewing-refusal
              (user-error "%s" pyagentd-viewing-refusal))
             (pyagentd-session-viewing
              (pyagentd-lease--take-from-other done))
             (t (funcall done)))))))

(defun pyagentd-lease--take-from-other (then)
  "Have the daemon ask the editor to give way, and read what it left.
Then call THEN here."
  (message "Asking the other Emacs to release the session…")
  (let ((buffer (current-buffer))
        (place (list :branch pyagentd--branch-dir)))
    (pyagentd-later
     'lease (append place '(:take t))
     (lambda (answer)
       (if (buffer-live-p buffer)
           (with-current-buffer buffer
             (pyagentd-lease--given answer then))
         (pyagentd-lease--renounce place)))
     pyagentd-lease--longest
     (lambda (err)
       (pyagentd-lease--renounce place)
       (pyagentd-later-tell err)))))

(defun pyagentd-lease--given (answer then)
  "Read what the editor left if it gave way, as ANSWER says; call THEN here."
  (unless (plist-get answer :editor)
    (pyagentd-lease--renounce)
    (user-error "The other editor is still active"))
  (pyagentd-attach-show-file)
  (pyagentd-attached-then
   (lambda ()
     (when pyagentd-session-viewing
       (pyagentd-lease--renounce)
       (user-error "Another Emacs took over at the same time"))
     (funcall then))
   (lambda (err)
     (when pyagentd-session-viewing
       (pyagentd-lease--renounce))
     (pyagentd-later-tell err))))

(defun pyagentd-lease--renounce (&optional place)
  "Tell the daemon that we do not want to write any more.
PLACE is a plist with the :branch, by default that of this buffer."
  (pyagentd-rpc-call-async
   'release (or place (list :branch pyagentd--branch-dir)) :error #'ignore))

;;;; Text that was never saved

(defun pyagentd-lease--read-how ()
  "Ask what to do with text that is only in this buffer."
  (pcase (car (read-multiple-choice
               "This text was never saved, and the file was changed elsewhere:"
               '((?d "draft" "Put the unsaved text below the conversation")
                 (?e "ediff" "Compare it with the conversation in the file")
                 (?l "leave" "Keep it in a buffer of its own"))))
    (?d 'draft)
    (?e 'ediff)
    (?l 'leave)))

(defun pyagentd-lease--rescue (how)
  "Become the one that writes, and keep the text that is only here; see HOW.
It stays in a buffer of its own in any case."
  (let ((kept (pyagentd-lease--keep)))
    (set-buffer-modified-p nil)
    (setq pyagentd-viewing-diverged nil)
    (pyagentd-viewing-set t)
    (pyagentd-attach-show-file)
    (pyagentd-lease--take
     (lambda ()
       (pcase how
         ('draft (pyagentd-lease--insert-draft kept))
         ('ediff (ediff-buffers kept (current-buffer))))
       (message "The unsaved text is in %s" (buffer-name kept))))))

(defun pyagentd-lease--keep ()
  "Return a new buffer with the text of this one."
  (let ((buffer (generate-new-buffer
                 (format "*%s: not saved*" pyagentd--session-id)))
        (text (save-restriction
                (widen)
                (buffer-substring-no-properties (point-min) (point-max)))))
    (with-current-buffer buffer
      (insert text)
      (goto-char (point-min)))
    buffer))

(defun pyagentd-lease--insert-draft (kept)
  "Put the text that is in KEPT and not here at the end, as a draft."
  (pcase-let* ((`(,beg ,_ ,kept-end) (pyagentd-reread-difference kept))
               (text (string-trim
                      (with-current-buffer kept
                        (buffer-substring beg kept-end)))))
    (unless (string-empty-p text)
      (save-restriction
        (widen)
        (goto-char (point-max))
        (insert text)))))

;;;; Recovered roles

;;;###autoload
(defun pyagentd-show-recovery ()
  "Show what the last recovery of roles changed in this session."
  (interactive)
  (unless pyagentd-mode (user-error "Not a session"))
  (pyagentd-later-here
   'recovery (list :branch pyagentd--branch-dir)
   (lambda (answer)
     (when (member (plist-get answer :diff) '(nil ""))
       (user-error "No roles were recovered since this session was opened"))
     (pyagentd-lease--show-diff (plist-get answer :diff)))))

(defun pyagentd-lease--show-diff (diff)
  "Show DIFF, what a recovery of roles changed in this session."
  (pop-to-buffer (format "*recovery: %s*" pyagentd--session-id))
  (let ((inhibit-read-only t))
    (erase-buffer)
    (insert diff "\n"))
  (goto-char (point-min))
  (diff-mode)
  (setq buffer-read-only t))

(provide 'pyagentd-lease)
;;; pyagentd-lease.el ends here

;;; pyagentd-chat.el --- Converse with an agent -*- lexical-binding: t; -*-

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

;; Sending a prompt, following the answer, stopping it.  The prompt is not
;; sent: the file is saved and the daemon told where in it the prompt ends.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-env)
(require 'pyagentd-gc)
(require 'pyagentd-place)
(require 'pyagentd-rpc)
(require 'pyagentd-later)
(require 'pyagentd-events)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-queued)
(require 'pyagentd-slash)
(require 'pyagentd-overlay)
(require 'pyagentd-ask)
(require 'pyagentd-answer)
(require 'pyagentd-notify)
(require 'pyagentd-status)
(require 'pyagentd-cause)
(require 'pyagentd-silent)
(require 'pyagentd-settings)
(require 'pyagentd-viewing)
(require 'pyagentd-attach)
(require 'pyagentd-attached)
(require 'pyagentd-connect)
(require 'pyagentd-lease)

(declare-function pyagentd-menu "pyagentd-menu" nil t)
(autoload 'pyagentd-queue "pyagentd-queue" nil t)
(autoload 'pyagentd-steer "pyagentd-queue" nil t)
(autoload 'pyagentd-queue-resume "pyagentd-queue" nil t)
(autoload 'pyagentd-retry-now "pyagentd-queue" nil t)

(defvar pyagentd-run-finished-functions nil
  "Functions called in a session buffer when a run has finished.
They get the plist of the run: :id, :reason (`done', `error' or
`aborted') and :message.")

(defvar pyagentd-chat-sent-functions nil
  "Functions called in a session buffer with a prompt that is being sent.
They get its text.")

;;;; Sending

(defun pyagentd-chat--prompt-end ()
  "Return where the prompt ends: region, word at point, or end of text."
  (cond ((use-region-p) (region-end))
        ((save-restriction (widen)
                           (save-excursion (skip-chars-forward " \t\n") (eobp)))
         (pyagentd-chat--size))
        (t (save-excursion (skip-syntax-forward "w_") (point)))))

(defun pyagentd-chat--check-writer ()
  "Signal a `user-error' unless this buffer writes a session."
  (unless pyagentd-mode
    (user-error "Not a session; make one with M-x pyagentd-session"))
  (cond (pyagentd-viewing-refusal
         (user-error "Cannot send: %s" pyagentd-viewing-refusal))
        (pyagentd-viewing-diverged
         (user-error "This text is not saved; use M-x pyagentd-take-over"))
        (pyagentd-session-viewing
         (user-error
          "Another client writes this session; use M-x pyagentd-take-over"))))

(defun pyagentd-chat--check ()
  "Signal a `user-error' unless a prompt can be sent from this buffer."
  (pyagentd-chat--check-writer)
  (when (or (eq (plist-get pyagentd-status :state) 'sending)
            (pyagentd-chat--waits-p))
    (user-error "The prompt is already being sent")))

(defun pyagentd-send (&optional menu)
  "Send the conversation up to point, or up to the end of the region.
The answer is inserted right there while it arrives; go on editing.
With a prefix argument show the MENU instead."
  (interactive "P")
  (if menu
      (call-interactively #'pyagentd-menu)
    (pyagentd-gc-postpone)              ; saving makes megabytes of garbage
    (with-current-buffer (or (buffer-base-buffer) (current-buffer))
      (when pyagentd-viewing-refusal   ; the disk may work again
        (setq pyagentd-attach-state nil
              pyagentd-viewing-refusal nil)
        (pyagentd-viewing-set nil))
      (pyagentd-chat--check))
    (let ((end (pyagentd-chat--prompt-end)))
      (when (= end (pyagentd-chat--size))
        (goto-char end))
      (deactivate-mark)
      (with-current-buffer (or (buffer-base-buffer) (current-buffer))
        (pyagentd-chat--send-attached end)))))

(defvar-local pyagentd-chat--known nil
  "The status of the session while that here says that a prompt waits.")

(pyagentd-permanent-local 'pyagentd-chat--known)

(defun pyagentd-chat--waits-p ()
  "Return non-nil if a prompt waits until this session is attached."
  (and pyagentd-chat--known pyagentd-attach-awaited))

(defun pyagentd-chat--send-attached (end)
  "Send what ends at END, once this session is attached.
Until then the status says that it is on its way, and who types below it
writes the next prompt."
  (let ((here (copy-marker end))
        (last (= end (pyagentd-chat--size)))
        (waits t))
    (pyagentd-attached-then
     (lambda ()
       (setq waits nil)
       (pyagentd-chat--stop-waiting)
       (pyagentd-chat--check)
       (pyagentd-chat--save)
       (save-restriction                ; the user may have narrowed it since
         (widen)
         (pyagentd-chat--send (pyagentd-chat--sent-end here last))))
     (lambda (err)
       (setq waits nil)
       (pyagentd-chat--stop-waiting)
       (message "Not sent: %s"
                (pyagentd-cause-with-hint (pyagentd-error-text err)))))
    (when waits
      (pyagentd-chat--wait))))

(defun pyagentd-chat--wait ()
  "Show that a prompt is on its way."
  (setq pyagentd-chat--known (or pyagentd-status '(:state nil)))
  (pyagentd-status-set '(:state sending))
  (pyagentd-silent-watch))

(defun pyagentd-chat--stop-waiting ()
  "Show the status again that the session had while a prompt waited."
  (pyagentd-silent-over)
  (when pyagentd-chat--known
    (when (eq (plist-get pyagentd-status :state) 'sending)
      (pyagentd-status-set pyagentd-chat--known))
    (setq pyagentd-chat--known nil)))

(defun pyagentd-chat--attached ()
  "Show that a prompt waits still: it is sent in a moment."
  (when pyagentd-chat--known
    (pyagentd-chat--wait)))

(defun pyagentd-chat--disconnected ()
  "Show where prompts wait still, for a daemon that is looked for."
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (when (pyagentd-chat--waits-p)
        (pyagentd-chat--wait)))))

(add-hook 'pyagentd-attached-hook #'pyagentd-chat--attached)
(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-chat--disconnected t)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-chat--stop-waiting)

(defun pyagentd-chat--sent-end (here last)
  "Return where the prompt ends that ended at the marker HERE.
LAST means that the text ended there, too: what the daemon had to add to
the file came before it.  The buffer is not narrowed."
  (prog1 (if (and last (text-property-not-all here (point-max) 'gptel nil))
             (point-max)
           (marker-position here))
    (set-marker here nil)))

(defun pyagentd-chat--size ()
  "Return the end of the whole text."
  (save-restriction (widen) (point-max)))

(defun pyagentd-chat--save ()
  "Save the buffer, since the prompt is taken from the file."
  (when (or (buffer-modified-p) (not (file-exists-p buffer-file-name))
            (pyagentd-settings-unsaved-p))
    (set-buffer-modified-p t)
    (let ((save-silently t))
      (save-buffer)))
  (when (buffer-modified-p)
    (user-error "Not saved, so nothing to send")))

(defun pyagentd-chat-when-ready (then &optional idle)
  "Attach the session here and save it, then call THEN in this buffer.
That is at once if it is attached, else later.  Signal a `user-error' if
nothing can be written from here, or, with IDLE, if a run is in progress."
  (let ((check (lambda ()
                 (if (not idle) (pyagentd-chat--check-writer)
                   (pyagentd-chat--check)
                   (when (pyagentd-status-busy-p)
                     (user-error
                      "A run is in progress; %s stops it"
                      (substitute-command-keys
                       "\\<pyagentd-mode-map>\\[pyagentd-abort]")))))))
    (funcall check)
    (pyagentd-attached-then
     (lambda ()
       (funcall check)
       (pyagentd-chat--save)
       (funcall then)))))

(defun pyagentd-chat--send (end)
  "Ask the daemon to answer the saved text up to END.
While a run is in progress it waits for its turn, and stays where it is."
  (let* ((buffer (current-buffer))
         (busy (pyagentd-status-busy-p))
         (id (pyagentd-queued-new-id))
         (marker (and (not busy) pyagentd-insert--marker
                      (copy-marker pyagentd-insert--marker)))
         (here (copy-marker end)))
    (pyagentd-queued-note id (pyagentd-queued-start end) end)
    (run-hook-with-args 'pyagentd-chat-sent-functions
                        (buffer-substring-no-properties
                         (pyagentd-queued-start end) end))
    (unless busy
      (pyagentd-insert-start end)
      (pyagentd-status-set '(:state sending))
      (pyagentd-silent-watch end))
    (pyagentd-chat--ask
     id here
     (lambda (answer)
       (pyagentd-later-in buffer
         (pyagentd-silent-over)
         (unless (plist-get answer :queued)
           (pyagentd-later-soon #'pyagentd-silent-taken))
         (cond ((plist-get answer :command)
                (pyagentd-chat--commanded answer id busy))
               ((plist-get answer :queued)
                ;; What waited before it may have fired meanwhile.
                (pyagentd-chat--queued
                 id (and (= (pyagentd-insert-position) here) marker))))))
     (lambda (err)
       (pyagentd-later-in buffer
         (pyagentd-silent-over)
         (pyagentd-later-soon #'pyagentd-silent-refused)
         (pyagentd-queued-forget id)
         (unless busy
           (pyagentd-status-set
            (list :state 'error
                  :message (pyagentd-error-text err)))))
       (message "%s" (pyagentd-error-text err))))))

(defconst pyagentd-chat--max-tries 5
  "How often a prompt is sent whose text was changed while it was.")

(defun pyagentd-chat--ask (id end success failure &optional tries)
  "Ask the daemon to answer the saved text up to the marker END, message ID.
SUCCESS is called with its answer, FAILURE with an error.  Where the text
was saved again before the daemon read it, it is asked again: TRIES is
how often that was done before."
  (let ((buffer (current-buffer))
        (sha256 pyagentd-session-sha256)
        (success (pyagentd-chat--using-settings success))
        (tries (or tries 0)))
    (pyagentd-rpc-call-async
     'send (append (list :branch pyagentd--branch-dir
                         :sha256 sha256 :end (marker-position end) :id id
                         :env (pyagentd-env-variables) :key (pyagentd-env-key)
                         :allow nil)
                   (pyagentd-chat--agent)
                   (pyagentd-chat--settings))
     :success success
     :error (lambda (err)
              (if (and (eq (pyagentd-symbol (nth 1 err)) 'stale)
                       (< tries pyagentd-chat--max-tries)
                       (buffer-live-p buffer))
                  (with-current-buffer buffer
                    (pyagentd-later-soon ; files are not written here
                     (lambda ()
                       (if (and (pyagentd-session-save)
                                (not (equal sha256 pyagentd-session-sha256)))
                           (pyagentd-chat--ask id end success failure
                                               (1+ tries))
                         (funcall failure err)))))
                (funcall failure err))))))

(defun pyagentd-chat--commanded (answer id busy)
  "Note the ANSWER to the message ID, which was a slash command.
BUSY says that a run was in progress; else nothing else is."
  (pyagentd-slash-answered (plist-get answer :command) id)
  (unless (or busy (plist-get answer :run))
    (pyagentd-status-set '(:state idle))))

(defun pyagentd-chat--agent ()
  "Return :agent and the preset chosen for the next turn, or nil."
  (when-let ((agent (and (boundp 'pyagentd-plan-next)
                         (symbol-value 'pyagentd-plan-next))))
    (list :agent agent)))

(defun pyagentd-chat--settings ()
  "Return :settings and those of the next message, or nil."
  (and pyagentd-settings-next (list :settings pyagentd-settings-next)))

(defun pyagentd-chat--using-settings (then)
  "Return THEN, for the answer to a message, forgetting the message's settings.
They stay when it was a slash command, which no model answers."
  (let ((used pyagentd-settings-next)
        (buffer (current-buffer)))
    (lambda (answer)
      (unless (plist-get answer :command)
        (pyagentd-later-in buffer
          (when (and used (eq used pyagentd-settings-next))
            (setq pyagentd-settings-next nil
                  pyagentd-settings-next-only nil)
            (pyagentd-status-refresh))))
      (when then (funcall then answer)))))

(defun pyagentd-chat--queued (id marker)
  "Note that the message ID waits; the run in progress goes on at MARKER.
The next prompt can be written below."
  (when marker
    (pyagentd-insert-move marker))
  (when-let ((overlay (pyagentd-queued-overlay id)))
    (save-excursion
      (goto-char (overlay-end overlay))
      (when (looking-at-p "[ \t\n]*\\'")
        (delete-region (point) (point-max))
        (insert "\n\n" pyagentd-prompt-prefix)))
    (when (= (point) (overlay-end overlay))
      (goto-char (point-max))))
  (message "Queued; %s lists queued messages"
           (substitute-command-keys "\\[pyagentd-queue]")))

(defvar-local pyagentd-chat--edits nil
  "Queued messages whose text was changed, an alist (ID . TEXT).")

(defun pyagentd-chat--edited (id text)
  "Note that the queued message ID says TEXT now; the daemon is told soon."
  (unless pyagentd-session-viewing
    (unless pyagentd-chat--edits
      (run-at-time 0.5 nil #'pyagentd-chat--tell-edits (current-buffer)))
    (setf (alist-get id pyagentd-chat--edits nil nil #'equal) text)))

(defun pyagentd-chat--tell-edits (buffer)
  "Tell the daemon which queued texts were changed in BUFFER.
One that was removed is taken back."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (pcase-dolist (`(,id . ,text) pyagentd-chat--edits)
        (pyagentd-rpc-call-async
         (if (string-blank-p text) 'queue-cancel 'queue-edit)
         (append (list :branch pyagentd--branch-dir :id id)
                 (unless (string-blank-p text) (list :text text)))
         :error #'ignore))               ; it has been sent meanwhile
      (setq pyagentd-chat--edits nil))))

(setq pyagentd-queued-edited-function #'pyagentd-chat--edited)

(defun pyagentd-chat-submit (text unsent &rest plist)
  "Send TEXT to the session of this buffer, which is put into it by the daemon.
If that fails UNSENT, a function or nil, is called here with TEXT; a string
that it returns is said, too.  PLIST has further arguments of the
operation, such as :steer or :agent."
  (let ((back (pyagentd-later-back (or unsent #'ignore))))
    (pyagentd-rpc-call-async
     'prompt (append (list :branch pyagentd--branch-dir :text text
                           :id (pyagentd-queued-new-id)
                           :env (pyagentd-env-variables) :key (pyagentd-env-key)
                           :allow nil)
                     plist
                     (unless (plist-get plist :steer)
                       (pyagentd-chat--settings)))
     :success (unless (plist-get plist :steer)
                (pyagentd-chat--using-settings nil))
     :error (lambda (err)
              (let ((also (funcall back text)))
                (message "%s%s" (pyagentd-error-text err)
                         (if (stringp also) (concat "; " also) "")))))))

(defun pyagentd-abort (&optional whole)
  "Stop the run of this buffer; its text stays, marked as stopped.
Messages that are queued wait until you go on.
If something is asked here, only the agent that asks is stopped; with a
prefix argument, or WHOLE from Lisp, the run of this buffer with all its
agents.  A prompt that waits until the daemon knows the session is not
sent."
  (interactive "P")
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (cond (pyagentd-attach-awaited
           (pyagentd-attached-cancel))
          ((and (pyagentd-ask-here) (not whole))
           (if (plist-get (pyagentd-ask-here) :agent)
               (pyagentd-ask-abort)
             (pyagentd-chat--pausing #'pyagentd-ask-abort)))
          (t (pyagentd-chat--pausing #'pyagentd-chat--abort)))))

(defun pyagentd-chat--pausing (stop)
  "Call STOP, which stops the run here; what waits then goes on waiting."
  (if (null pyagentd-queued-items) (funcall stop)
    (pyagentd-later-here
     'queue-pause (list :branch pyagentd--branch-dir)
     (lambda (_)
       (funcall stop)
       (message "%s queued, paused; %s, then ! goes on"
                (pyagentd-count (length pyagentd-queued-items) "message")
                (substitute-command-keys "\\[pyagentd-queue]"))))))

(defun pyagentd-chat--abort ()
  "Stop the run of this buffer with all its agents."
  (pyagentd-rpc-call-async
   'abort (list :branch pyagentd--branch-dir)
   :timeout pyagentd-call-timeout
   :success (lambda (answer)
              (unless (plist-get answer :aborted)
                (message "Nothing to abort")))
   :error #'pyagentd-later-tell))

;;;; Events

(defmacro pyagentd-chat--define-event (kind arglist docstring &rest body)
  "Define what happens at an event of KIND in the buffer of its branch.
ARGLIST is a `pcase' pattern for its arguments.  BODY is evaluated there,
unless the event is in the text already.  DOCSTRING says what it does."
  (declare (indent 2) (doc-string 3) (debug t))
  (let ((name (intern (format "pyagentd-chat--on-%s" kind))))
    `(progn
       (defun ,name (branch seq args)
         ,(concat docstring "\nBRANCH, SEQ and ARGS are those of the event.")
         (when-let ((buffer (pyagentd-place-buffer branch)))
           (with-current-buffer buffer
             (when (pyagentd-attach-new-p seq)
               (pcase-let ((,arglist args))
                 ,@body)))))
       (pyagentd-events-register ',kind #',name))))

(pyagentd-chat--define-event insert `(,text ,role)
  "Insert text of the run."
  (setq pyagentd-attach-partial (eql seq 0))
  (pyagentd-insert text (pyagentd-attach-role role)))

(pyagentd-chat--define-event prompt `(,text . ,rest)
  "Insert the prompt of another client where its answer follows."
  (let* ((position (pyagentd-queued-place (car rest)))
         (body (save-restriction
                 (widen)
                 (buffer-substring-no-properties
                  (max (point-min) (- position
                                      (length pyagentd-prompt-prefix)))
                  position))))
    (pyagentd-insert-start position)
    (pyagentd-insert (pyagentd-chat--join body text) nil)))

(pyagentd-chat--define-event fired `(,fired)
  "Let the run go on behind a prompt that stands in the text."
  (unless (pyagentd-queued-fired fired)
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)))

(pyagentd-chat--define-event queue `(,queue)
  "Show what waits."
  (pyagentd-queued-receive (plist-get queue :items)))

(defun pyagentd-chat--join (body prompt)
  "Return what to insert after BODY for PROMPT, a message of another client."
  (cond ((string-suffix-p pyagentd-prompt-prefix body) prompt)
        ((string-empty-p body)
         (if (pyagentd-place-agent-p) prompt
           (concat pyagentd-prompt-prefix prompt)))
        (t (concat "\n\n" pyagentd-prompt-prefix prompt))))

(pyagentd-chat--define-event run `(,run)
  "Show that a run started or finished."
  (pcase (pyagentd-symbol (plist-get run :phase))
    ('started (pyagentd-status-set '(:state busy)))
    ('finished (pyagentd-chat--finished run))))

(defun pyagentd-chat--finished (run)
  "Note that RUN has finished."
  (pyagentd-insert-flush)
  (pyagentd-overlay-clear)
  (unless pyagentd-session-viewing
    (pyagentd-autosave-touch))
  (pyagentd-status-set
   (if (eq (pyagentd-symbol (plist-get run :reason)) 'error)
       (list :state 'error :message (plist-get run :message))
     '(:state idle)))
  (run-hook-with-args 'pyagentd-run-finished-functions run))

(pyagentd-chat--define-event status `(,status)
  "Show the status of the branch."
  (pyagentd-status-set status))

(defun pyagentd-chat--on-resync (branch _seq _args)
  "Attach BRANCH anew from the last event seen: later ones were dropped."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (setq pyagentd-attach-state nil)
      (pyagentd-attach))))

(pyagentd-events-register 'resync #'pyagentd-chat--on-resync)

;;;; Keys

(define-key pyagentd-mode-map (kbd "C-c RET") #'pyagentd-send)
(define-key pyagentd-mode-map (kbd "C-c C-k") #'pyagentd-abort)
(define-key pyagentd-mode-map (kbd "C-c C-q") #'pyagentd-queue)
(define-key pyagentd-mode-map (kbd "C-c C-w") #'pyagentd-steer)

(provide 'pyagentd-chat)
;;; pyagentd-chat.el ends here

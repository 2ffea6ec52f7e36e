;;; pyagentd-chat.el --- Send prompts, stop runs, queue messages -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The commands of a conversation.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-edit)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-large)
(require 'pyagentd-display)
(require 'pyagentd-ask)
(require 'pyagentd-notify)
(require 'pyagentd-sync)

;;;; Answers to slash commands

;; The daemon answers a prompt such as /status.  If no run is in progress,
;; it inserts the answer into the text like any other.  Otherwise only the
;; reply to the request has the answer: it is shown in another buffer, or in
;; the echo area if short, and the command is removed from the text.

(defun pyagentd-slash-answered (command id)
  "Show the answer to the slash COMMAND, a plist, sent as the message ID.
If it is :recorded, it comes into the text like any other answer instead.
Its keys are :name, :text, :code and :recorded."
  (unless (plist-get command :recorded)
    (when-let ((overlay (pyagentd-queued-overlay id)))
      (let ((beg (overlay-start overlay))
            (end (overlay-end overlay)))
        (pyagentd-queued-forget id)
        (save-restriction
          (widen)
          (delete-region beg end))))
    (let ((text (or (plist-get command :text) "")))
      (if (not (string-search "\n" text))
          (message "%s" text)
        (let ((inhibit-read-only t))
          (with-current-buffer (get-buffer-create "*pyagentd command*")
            (erase-buffer)
            (insert text "\n")
            (goto-char (point-min))
            (special-mode)
            (display-buffer (current-buffer))))))))

;;;; A daemon that does not answer

;; The daemon acknowledges a prompt within moments.  If it does not, because
;; it is stopped or the machine is busy, the header line says so, and what
;; the user types next is a new prompt.

(defconst pyagentd-silent--after 0.7
  "Seconds after sending until the daemon is probed; also the probe's timeout.")

(pyagentd-deflocal pyagentd-silent--timer nil
  "Timer that probes a silent daemon, nil while no prompt is being sent.
After it has run, the probe may still be unanswered.")

(defun pyagentd-silent-watch ()
  "Show in this session buffer when the daemon does not answer for a while."
  (pyagentd-silent-over)
  (setq pyagentd-silent--timer
        (run-at-time pyagentd-silent--after nil
                     (pyagentd-later-back #'pyagentd-silent--ask))))

(defun pyagentd-silent--ask ()
  "Probe the daemon: a slow prompt alone, say for a hook, is not silence."
  (let ((timer pyagentd-silent--timer))
    (pyagentd-rpc-call-async
     'status nil :timeout pyagentd-silent--after :success #'ignore
     :error (pyagentd-later-back
             (lambda (err)
               (when (and (eq (car err) 'pyagentd-timeout)
                          (eq timer pyagentd-silent--timer)
                          (eq (plist-get pyagentd-status :state) 'sending))
                 (setq pyagentd-status-silent t)
                 (pyagentd-status-refresh)))))))

(defun pyagentd-silent-over ()
  "Stop watching for a silent daemon, and remove the notice of it."
  (when pyagentd-silent--timer
    (cancel-timer pyagentd-silent--timer)
    (setq pyagentd-silent--timer nil))
  (when pyagentd-status-silent
    (setq pyagentd-status-silent nil)
    (pyagentd-status-refresh)))

(declare-function pyagentd-menu "pyagentd-menu" nil t)
(declare-function pyagentd-recall-note "pyagentd-add")
(declare-function bookmark-default-handler "bookmark")
(declare-function bookmark-get-bookmark-record "bookmark")
(declare-function bookmark-get-filename "bookmark")
(declare-function bookmark-make-record-default "bookmark")
(declare-function bookmark-prop-get "bookmark")

(defvar pyagentd-run-finished-functions nil
  "Functions called in a session buffer when a run has finished.
They get the plist of the run: :id, :reason (`done', `error' or
`aborted') and :message.")

;;;; Sending

(defun pyagentd-chat--check-writer ()
  "Signal a `user-error' unless this buffer is a writable session."
  (unless pyagentd-mode
    (user-error "Not a session; make one with M-x pyagentd-session"))
  (when pyagentd-viewing-refusal
    (user-error "Cannot send: %s" pyagentd-viewing-refusal)))

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
  (interactive "P"
               pyagentd-mode)
  (if menu
      (call-interactively #'pyagentd-menu)
    (pyagentd-gc-postpone)              ; saving makes megabytes of garbage
    (with-current-buffer (or (buffer-base-buffer) (current-buffer))
      (when pyagentd-viewing-refusal   ; the disk may work again
        (setq pyagentd-attach-state nil)
        (pyagentd-viewing-set nil))
      (pyagentd-chat--check))
    (let ((end (cond ((use-region-p) (region-end))
                     ((save-restriction
                        (widen)
                        (save-excursion (skip-chars-forward " \t\n") (eobp)))
                      (1+ (buffer-size)))
                     ;; Behind the word at point.
                     (t (save-excursion (skip-syntax-forward "w_") (point))))))
      (when (= end (1+ (buffer-size)))
        (goto-char end))
      (deactivate-mark)
      (with-current-buffer (or (buffer-base-buffer) (current-buffer))
        (pyagentd-chat--send-attached end)))))

(pyagentd-deflocal pyagentd-chat--known nil
  "The status to restore after `sending', or nil if no prompt waits.")

(defun pyagentd-chat--waits-p ()
  "Return non-nil if a prompt waits until this session is attached."
  (and pyagentd-chat--known pyagentd-attach-awaited))

(defun pyagentd-chat--send-attached (end)
  "Send the prompt that ends at END, once this session is attached."
  (let ((here (copy-marker end))
        (last (= end (1+ (buffer-size))))
        (waits t))
    (pyagentd-attached-then
     (lambda ()
       (setq waits nil)
       (pyagentd-chat--stop-waiting)
       (pyagentd-chat--check)
       (save-restriction                ; the user may have narrowed it since
         (widen)
         ;; The daemon may have inserted text behind END while attaching.
         (pyagentd-chat--send
          (if (and last (text-property-not-all here (point-max) 'gptel nil))
              (point-max)
            (marker-position here)))
         (set-marker here nil)))
     (lambda (err)
       (setq waits nil)
       (pyagentd-chat--stop-waiting)
       (let ((text (pyagentd-error-text err)))
         (message "Not sent: %s%s" text
                  (if (pyagentd-cause text) "; M-x pyagentd-visit-cause opens it"
                    "")))))
    (when waits
      (pyagentd-chat--wait))))

(defun pyagentd-chat--wait ()
  "Show that a prompt is being sent."
  (setq pyagentd-chat--known (or pyagentd-status '(:state nil)))
  (pyagentd-status-set '(:state sending))
  (pyagentd-silent-watch))

(defun pyagentd-chat--stop-waiting ()
  "Restore the status from before the prompt waited."
  (pyagentd-silent-over)
  (when pyagentd-chat--known
    (when (eq (plist-get pyagentd-status :state) 'sending)
      (pyagentd-status-set pyagentd-chat--known))
    (setq pyagentd-chat--known nil)))

(defun pyagentd-chat--attached ()
  "Clean up after a run that ended unseen, and show a prompt that still waits."
  (unless (pyagentd-status-busy-p)
    (pyagentd-insert-join))
  (pyagentd-chat--tell-edits (current-buffer))
  (when pyagentd-chat--known
    (pyagentd-chat--wait)))

(defun pyagentd-chat--disconnected ()
  "Show in all session buffers which prompts still wait for a daemon."
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (when (pyagentd-chat--waits-p)
        (pyagentd-chat--wait)))))

(add-hook 'pyagentd-attached-hook #'pyagentd-chat--attached)
(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-chat--disconnected t)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-chat--stop-waiting)

(defun pyagentd-chat-when-ready (then &optional busy)
  "Attach the session here, then call THEN in this buffer.
Call it at once if it is attached already.  Signal a `user-error' if the
session is not writable from here or, without BUSY, if a run is in progress."
  (let ((check (lambda ()
                 (if busy (pyagentd-chat--check-writer)
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
       (funcall then)))))

(pyagentd-deflocal pyagentd-plan-next nil
  "Name of the agent chosen for the next message, or nil.")

(pyagentd-deflocal pyagentd-chat--earlier nil
  "The previous run's status, received while a prompt was being sent.")

(defun pyagentd-chat--send (end)
  "Ask the daemon to answer the text up to END.
While a run is in progress the text is queued, and stays where it is."
  (let* ((buffer (current-buffer))
         (busy (pyagentd-status-busy-p))
         (id (pyagentd-edit-new-id "msg"))
         (marker (and (not busy) pyagentd-insert--marker
                      (copy-marker pyagentd-insert--marker)))
         (here (copy-marker end)))
    (pyagentd-queued-note id (pyagentd-queued-start end) end)
    (pyagentd-recall-note (buffer-substring-no-properties
                           (pyagentd-queued-start end) end))
    (unless busy
      (pyagentd-insert-start end)
      (pyagentd-status-set '(:state sending))
      (setq pyagentd-chat--earlier nil)
      (pyagentd-silent-watch))
    (pyagentd-rpc-call-async
     'send
     (append (list :branch pyagentd--branch-dir
                   :revision pyagentd-edit-revision
                   :after (car pyagentd-edit--sent)
                   :end (marker-position here) :id id :allow nil)
             (pyagentd-env)
             (when pyagentd-plan-next (list :agent pyagentd-plan-next))
             (pyagentd-chat--settings))
     :success
     (pyagentd-chat--using-settings
      (lambda (answer)
        (pyagentd-with-live-buffer buffer
          (pyagentd-silent-over)
          (unless (plist-get answer :queued)
            (pyagentd-later-soon #'pyagentd-insert-begun))
          (cond ((plist-get answer :command)
                 (pyagentd-slash-answered (plist-get answer :command) id)
                 (unless (or busy (plist-get answer :run))
                   (pyagentd-status-set '(:state idle))))
                ((plist-get answer :queued)
                 (when (eq (plist-get pyagentd-status :state) 'sending)
                   (pyagentd-status-set (or pyagentd-chat--earlier
                                            '(:state busy))))
                 ;; An earlier queued message may have been sent meanwhile.
                 (pyagentd-chat--queued
                  id (and (= (pyagentd-insert-position) here) marker)))))))
     :error
     (lambda (err)
       (pyagentd-with-live-buffer buffer
         (pyagentd-silent-over)
         (pyagentd-later-soon #'pyagentd-insert-begun)
         (pyagentd-queued-forget id)
         (unless busy
           (pyagentd-status-set
            (list :state 'error
                  :message (pyagentd-error-text err)))))
       (message "%s" (pyagentd-error-text err))))
    (unless busy
      (pyagentd-insert-part))))

(defun pyagentd-chat--settings ()
  "Return a plist with the :settings of the next message, or nil."
  (and pyagentd-settings-next (list :settings pyagentd-settings-next)))

(defun pyagentd-chat--using-settings (then)
  "Return a callback that resets the next message's settings, then calls THEN.
It keeps the settings if the message was a slash command."
  (let ((used pyagentd-settings-next)
        (buffer (current-buffer)))
    (lambda (answer)
      (unless (plist-get answer :command)
        (pyagentd-with-live-buffer buffer
          (when (and used (eq used pyagentd-settings-next))
            (setq pyagentd-settings-next nil
                  pyagentd-settings-next-only nil)
            (pyagentd-status-refresh))))
      (when then (funcall then answer)))))

(defun pyagentd-chat--queued (id marker)
  "Start a new prompt below the queued message ID.
The run in progress goes on at MARKER, unless that is nil."
  (when marker
    (pyagentd-insert-move marker))
  (when-let ((overlay (pyagentd-queued-overlay id)))
    (save-excursion
      (save-restriction
        (widen)
        (goto-char (overlay-end overlay))
        (when (looking-at-p "[ \t\n]*\\'")
          (delete-region (point) (point-max))
          (insert "\n\n" pyagentd-prompt-prefix))))
    (when (= (point) (overlay-end overlay))
      (goto-char (point-max))))
  (message "Queued; %s lists queued messages"
           (substitute-command-keys "\\[pyagentd-queue]")))

(pyagentd-deflocal pyagentd-chat--edits nil
  "Queued messages whose text was changed, an alist (ID . TEXT).")

(defun pyagentd-chat--on-change (overlay after &rest _)
  "Record a change of the queued text under OVERLAY, if AFTER is non-nil."
  (when-let ((id (and after (not pyagentd-edit--applying)
                      (car (rassq overlay pyagentd-queued--overlays)))))
    (unless pyagentd-chat--edits
      (run-at-time 0.5 nil #'pyagentd-chat--tell-edits (current-buffer)))
    (setf (alist-get id pyagentd-chat--edits nil nil #'equal)
          (if (overlay-start overlay)
              (buffer-substring-no-properties (overlay-start overlay)
                                              (overlay-end overlay))
            ""))))

(defun pyagentd-chat--tell-edits (buffer)
  "Send the changed queued messages of BUFFER to the daemon, if attached.
A message whose text was removed is cancelled."
  (pyagentd-with-live-buffer buffer
    (when (pyagentd-attached-p)
      (pcase-dolist (`(,id . ,text) pyagentd-chat--edits)
        (pyagentd-rpc-call-async
         (if (string-blank-p text) 'queue-cancel 'queue-edit)
         (append (list :branch pyagentd--branch-dir :id id)
                 (unless (string-blank-p text) (list :text text)))
         :error #'ignore))             ; it has been sent meanwhile
      (setq pyagentd-chat--edits nil))))

(defun pyagentd-chat-submit (text unsent &rest plist)
  "Send TEXT to the session of this buffer; the daemon inserts it there.
If that fails, call UNSENT, a function or nil, here with TEXT; a string that
it returns is added to the error message.  PLIST has further arguments of
the operation, such as :steer or :agent."
  (let ((back (pyagentd-later-back (or unsent #'ignore))))
    (pyagentd-rpc-call-async
     'prompt (append (list :branch pyagentd--branch-dir :text text
                           :id (pyagentd-edit-new-id "msg") :allow nil)
                     (pyagentd-env)
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
Queued messages are paused until you continue.
If a question is open here, stop only the agent that asks; with a prefix
argument, or WHOLE from Lisp, stop the run of this buffer with all its
agents.  A prompt that still waits for the session to be attached is not
sent."
  (interactive "P")
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (cond (pyagentd-attach-awaited
           (pyagentd-attached--fail (list 'user-error "You stopped it")))
          ((and (pyagentd-ask-here) (not whole))
           (if (plist-get (pyagentd-ask-here) :agent)
               (pyagentd-ask--abort)
             (pyagentd-chat--pausing #'pyagentd-ask--abort)))
          (t
           (pyagentd-chat--pausing
            (lambda ()
              (pyagentd-rpc-call-async
               'abort (list :branch pyagentd--branch-dir)
               :timeout pyagentd-call-timeout
               :success (lambda (answer)
                          (when-let ((note (plist-get answer :note)))
                            (message "%s" note)))
               :error #'pyagentd-later-tell)))))))

(defun pyagentd-chat--pausing (stop)
  "Pause the queued messages, if any, and call STOP, which stops the run here."
  (if (null pyagentd-queued-items) (funcall stop)
    (pyagentd-later-here
     'queue-pause (list :branch pyagentd--branch-dir)
     (lambda (_)
       (funcall stop)
       (message "%s queued, paused; %s, then ! goes on"
                (pyagentd-count (length pyagentd-queued-items) "message")
                (substitute-command-keys "\\[pyagentd-queue]"))))))

;;;; Events

(pyagentd-define-event insert `(,text ,role)
  "Insert text of the run."
  (pyagentd-sync-insert text (pyagentd-edit-role role)))

(pyagentd-define-event prompt `(,text . ,rest)
  "Insert a prompt that another client sent; its answer follows there."
  (when-let ((position (plist-get (car rest) :position)))
    (pyagentd-sync-begin position))
  (pyagentd-sync-insert (or (plist-get (car rest) :insert) text) nil)
  (pyagentd-insert-part))

(pyagentd-define-event fired `(,fired)
  "Continue the run behind a queued prompt that is in the text already."
  (let* ((overlay (pyagentd-queued-overlay (plist-get fired :id)))
         (waited (and overlay (overlay-get overlay 'face))))
    (pyagentd-queued-forget (plist-get fired :id))
    (pyagentd-sync-begin (plist-get fired :position))
    (when waited
      (pyagentd-insert-begun))))

(pyagentd-define-event queue `(,queue)
  "Show the queued messages."
  (pyagentd-queued-receive (plist-get queue :items)))

(pyagentd-define-event run `(,run)
  "Show that a run started or finished."
  (pcase (pyagentd-symbol (plist-get run :phase))
    ('started (pyagentd-status-set '(:state busy)))
    ('finished
     (pyagentd-insert-flush)
     (pyagentd-insert-join)
     (pyagentd-overlay-clear)
     (pyagentd-chat--show-status
      (if (eq (pyagentd-symbol (plist-get run :reason)) 'error)
          (list :state 'error :message (plist-get run :message))
        '(:state idle)))
     (pyagentd-run-functions 'pyagentd-run-finished-functions run))))

(pyagentd-define-event status `(,status)
  "Show the status of the branch."
  (pyagentd-chat--show-status status))

(defun pyagentd-chat--show-status (status)
  "Show STATUS, unless it belongs to the run before a prompt being sent.
The run of that prompt reports `busy' before any other status."
  (if (and (eq (plist-get pyagentd-status :state) 'sending)
           (eq (pyagentd-symbol (plist-get status :state)) 'idle))
      (setq pyagentd-chat--earlier status)
    (pyagentd-status-set status)))

(pyagentd-define-event resync _
  "Attach again from the last event seen: the daemon dropped later ones."
  :always
  (setq pyagentd-attach-state nil)
  (pyagentd-attach))

;;;; A session that is being created

;; The user can type at once.  The first prompt is typed into a buffer
;; without a file, and that same buffer visits the conversation when the
;; daemon has created it: no window changes, and point, undo and text stay.
;; A prompt sent meanwhile is sent then.  If creating the session fails, the
;; header line says why, and sending tries again.

(pyagentd-deflocal pyagentd-pending--request nil
  "Arguments of `create-session' for the session that is being created.")
(pyagentd-deflocal pyagentd-pending--then nil
  "Function to call in this buffer once the session exists, or nil.")
(pyagentd-deflocal pyagentd-pending--end nil
  "Marker at the end of the prompt to send once the session exists, or nil.")
(pyagentd-deflocal pyagentd-pending--trouble nil
  "Why the session could not be created, a sentence, or nil.")

(defvar pyagentd-pending-mode-map
  (pyagentd-keymap
   "C-c RET" #'pyagentd-pending--send
   "C-c C-k" #'pyagentd-pending--abort)
  "Keymap of buffers whose session is being created.")

(define-minor-mode pyagentd-pending-mode
  "Minor mode of buffers whose session is being created.
What you type is its first prompt.

\\{pyagentd-pending-mode-map}"
  :lighter " Agent…"
  :interactive nil
  (when pyagentd-pending-mode
    (setq-local header-line-format '(:eval (pyagentd-pending--line))
                buffer-offer-save t
                word-wrap t)))

(put 'pyagentd-pending-mode 'permanent-local t)

(defun pyagentd-pending--line ()
  "Return the header line."
  (string-replace
   "%" "%%"
   (concat " " (plist-get pyagentd-pending--request :name) "  "
           (cond (pyagentd-pending--trouble
                  (propertize (substitute-command-keys
                               (format "Session not created: %s  \
\\<pyagentd-pending-mode-map>\\[pyagentd-pending--send] tries again"
                                       pyagentd-pending--trouble))
                              'face 'error))
                 (pyagentd-pending--end
                  (propertize "Waiting..." 'face 'warning))
                 (t (propertize "Creating session…" 'face 'warning))))))

;;;; Creating it

(defun pyagentd-pending-make (request &optional then)
  "Create a session from REQUEST, and show its conversation at once.
REQUEST has the arguments of `create-session'.  Call THEN in the buffer once
the session exists.  If an equal REQUEST is in progress, show its buffer
instead of creating another session.  Return the buffer."
  (let* ((known (seq-find
                 (lambda (buffer)
                   (and (buffer-local-value 'pyagentd-pending-mode buffer)
                        (equal request
                               (buffer-local-value 'pyagentd-pending--request
                                                   buffer))))
                 (buffer-list)))
         (buffer (or known (pyagentd-pending--new request))))
    (pop-to-buffer-same-window buffer)
    (when then
      (setq pyagentd-pending--then then))
    (when (or (not known) pyagentd-pending--trouble)
      (pyagentd-pending--ask))
    buffer))

(defun pyagentd-pending--new (request)
  "Return a new buffer for the session that REQUEST creates."
  (let* ((name (plist-get request :name))
         (buffer (generate-new-buffer
                  (if (string-blank-p name) "session" name))))
    (with-current-buffer buffer
      (let ((buffer-file-name
             (expand-file-name "new/branches/main/session.md"
                               pyagentd-sessions-directory)))
        (pyagentd-visit-major-mode))
      (setq pyagentd-pending--request request)
      (pyagentd-pending-mode)
      (insert pyagentd-prompt-prefix)
      (set-buffer-modified-p nil)
      (setq buffer-undo-list nil))
    buffer))

(defun pyagentd-pending--ask ()
  "Ask the daemon to create the session of this buffer."
  (setq pyagentd-pending--trouble nil)
  (force-mode-line-update)
  (let* ((buffer (current-buffer))
         (made (lambda (answer) (pyagentd-pending--made buffer answer))))
    (condition-case err
        (pyagentd-later 'create-session pyagentd-pending--request made nil
                        (pyagentd-later-back #'pyagentd-pending--failed)
                        ;; Also after the time limit: the session exists now.
                        made)
      ((error quit) (pyagentd-pending--failed err)))))

(defun pyagentd-pending--failed (err)
  "Show that creating the session failed with ERR, a list (SYMBOL . DATA)."
  (when pyagentd-pending-mode
    (setq pyagentd-pending--trouble
          (string-trim (pyagentd-error-text err)))
    (force-mode-line-update)
    (message "Session not created: %s" pyagentd-pending--trouble)))

(defun pyagentd-pending--made (buffer session)
  "Make BUFFER visit the conversation of SESSION, the daemon's answer.
Then send the prompt that waits in it."
  (if (and (buffer-live-p buffer)
           (buffer-local-value 'pyagentd-pending-mode buffer))
      (with-current-buffer buffer
        (pyagentd-pending--visit session)
        (when pyagentd-pending--then
          (funcall pyagentd-pending--then))
        (when pyagentd-pending--end
          (let ((end (marker-position pyagentd-pending--end)))
            (setq pyagentd-pending--end nil)
            (pyagentd-chat--send-attached end))))
    (message "The session is in %s"
             (abbreviate-file-name (plist-get session :file)))))

(defun pyagentd-pending--visit (session)
  "Make this buffer visit the conversation of SESSION, and keep its text."
  (let ((typed (buffer-modified-p))
        (undo buffer-undo-list)
        (change-major-mode-with-file-name nil))
    (pyagentd-pending-mode -1)
    (kill-local-variable 'buffer-offer-save)
    (setq pyagentd-status-title (plist-get session :title))
    (set-visited-file-name (plist-get session :file) t t)
    (set-visited-file-modtime)
    ;; The file is empty.
    (unless typed
      (with-silent-modifications (erase-buffer)))
    (run-hooks 'find-file-hook)
    (if (not typed) (goto-char (point-max))
      (setq buffer-undo-list undo)
      (pyagentd-edit-began pyagentd-prompt-prefix)
      (set-buffer-modified-p t)
      (pyagentd-autosave-touch))))

;;;; Sending

(defun pyagentd-pending--send ()
  "Send the prompt as soon as the session is created."
  (interactive nil pyagentd-pending-mode)
  (unless pyagentd-pending--end
    (goto-char (point-max))
    (skip-chars-backward " \t\n")
    (when (<= (point) (length pyagentd-prompt-prefix))
      (goto-char (point-max))
      (user-error "Nothing to send"))
    (delete-region (point) (point-max))
    (setq pyagentd-pending--end (point-marker))
    (insert pyagentd-insert-sign))
  (if pyagentd-pending--trouble
      (pyagentd-pending--ask)
    (force-mode-line-update)
    (message "Will be sent once the session is created")))

(defun pyagentd-pending--abort ()
  "Do not send the prompt once the session is created."
  (interactive nil pyagentd-pending-mode)
  (unless pyagentd-pending--end
    (user-error "Nothing is waiting to be sent"))
  (setq pyagentd-pending--end nil)
  (force-mode-line-update))

;;;; Plan first, then build

(defface pyagentd-plan
  '((t :inherit warning))
  "Face of the answering agent's name in the header line."
  :group 'pyagentd)

(pyagentd-deflocal pyagentd-plan--agent nil
  "Name of the answering agent, as last reported by the daemon.")

(defun pyagentd-plan--agent-words ()
  "Return the header line's text for the answering agent.
Return nil if it is the session's own and stays so."
  (when-let ((agent (plist-get pyagentd-status :agent)))
    (setq pyagentd-plan--agent agent)
    (when (equal agent pyagentd-plan-next) ; the message was sent
      (setq pyagentd-plan-next nil)))
  (let ((now pyagentd-plan--agent)
        (next pyagentd-plan-next))
    (cond ((and next (not (equal next now)))
           (propertize (format "[%s → %s]" (or now pyagentd-status-preset "")
                               next)
                       'face 'pyagentd-plan))
          ((and now (not (equal now pyagentd-status-preset)))
           (propertize (format "[%s]" now) 'face 'pyagentd-plan)))))

;;;; Choosing

(defun pyagentd-plan--read (then)
  "Read the name of an agent for this session; call THEN with it there."
  (pyagentd-in-session
    (pyagentd-later-asking
     'agents-available (list :branch pyagentd--branch-dir)
     (lambda (answer)
       (let ((agents (plist-get answer :agents))
             (now (plist-get answer :agent)))
         (unless agents
           (user-error
            "An agent uses its own preset only"))
         (funcall
          then
          (or
           (plist-get
            (pyagentd-choose
             (format-prompt "Agent for the next messages" now)
             (mapcar (lambda (agent) (cons (plist-get agent :name) agent))
                     agents)
             :default now :category 'pyagentd-agent
             :annotate (lambda (agent)
                         (concat "  "
                                 (and (plist-get agent :read-only)
                                      "[read-only] ")
                                 (plist-get agent :description))))
            :name)
           "")))))))

(defun pyagentd-choose-agent (&optional name)
  "Choose the agent NAME for your next messages here.
An agent is a preset: its instructions, tools, model and permissions
are used, with the session's paths.  Nothing is sent yet; the header line
shows the choice.  Without NAME, ask for it."
  (interactive nil pyagentd-mode)
  (if (null name) (pyagentd-plan--read #'pyagentd-choose-agent)
    (pyagentd-in-session
      (setq pyagentd-plan-next
            (unless (or (string-empty-p name)
                        (equal name pyagentd-plan--agent))
              name))
      (pyagentd-status-refresh))))

;;;; Approving

(defun pyagentd-approve (&optional agent)
  "Go to the open question here, else approve the plan in this buffer.
To approve, send \"Approved, continue.\" as your message, with what you
have written below the plan.  The agent build answers it and carries out the
plan, or with a prefix argument the AGENT you choose.  While a run is in
progress the message is queued.  Interactively, ask for confirmation."
  (interactive "P"
               pyagentd-mode)
  (cond ((called-interactively-p 'any)
         (if (pyagentd-ask-notice-current) (pyagentd-ask--go)
           (pyagentd-in-session (pyagentd-plan--confirm agent))))
        ((and agent (not (stringp agent)))
         (pyagentd-plan--read #'pyagentd-approve))
        (t
         (pyagentd-in-session
           (pyagentd-chat-when-ready
            (lambda ()
              (pyagentd-later-here
               'approve (append (list :branch pyagentd--branch-dir)
                                (pyagentd-env)
                                (unless (member agent '(nil ""))
                                  (list :agent agent)))
               (lambda (answer)
                 (setq pyagentd-plan-next nil)
                 (pyagentd-status-refresh)
                 (when (plist-get answer :queued)
                   (message "Approved; it starts when the current run \
has ended")))))
            t)))))

(defun pyagentd-plan--confirm (agent)
  "Approve the plan here with AGENT, if a plan exists and the user confirms."
  (pyagentd-attached-then
   (lambda ()
     (pyagentd-later-asking
      'agents-available (list :branch pyagentd--branch-dir)
      (lambda (answer)
        (cond ((pyagentd-ask-notice-current)
               (user-error "A question is open here; %s goes to it"
                           (substitute-command-keys
                            "\\<pyagentd-mode-map>\\[pyagentd-approve]")))
              ((plist-get answer :plan))
              ((pyagentd-status-busy-p)
               (user-error "There is no question here yet"))
              (t (user-error
                  "There is no question here, and no plan to approve")))
        (unless (eq ?y (read-char-choice "Approve the plan and have it carried \
out?  y or n: " '(?y ?n)))
          (user-error "Not approved"))
        (pyagentd-approve agent))))))

;;;; Summarise a conversation that became long

(pyagentd-define-event compacting `(,place)
  "Insert the text of the compaction behind the last message."
  (pyagentd-sync-begin (plist-get place :position)))

(defun pyagentd-compact (&optional keep)
  "Replace the conversation so far with a summary, for the model.
The text stays; the model no longer sees it.  A rewind to a prompt
before the summary, or deleting the summary's block, lets the model see
it again.  With a prefix argument ask what the summary should KEEP."
  (interactive (list (and current-prefix-arg
                          (read-string "What the summary should keep: ")))
               pyagentd-mode)
  (pyagentd-in-session
    (pyagentd-chat-when-ready
     (lambda ()
       (pyagentd-later
        'compact (append (list :branch pyagentd--branch-dir
                               :instructions (or keep ""))
                         (pyagentd-env))
        (lambda (_) (message "Compacting…"))
        pyagentd-later-patience)))))

;;;; Keys where a prompt is typed

;; A prompt begins with `### ', a heading in Markdown.  The user types there
;; nevertheless: TAB does not fold it, and C-a goes to its first word before
;; it goes to the beginning of the line, so that C-a C-k keeps the `### '.

(defun pyagentd-prompt--words ()
  "Return where the text of the prompt in this line begins.
Return nil if this is not the first line of a prompt."
  (save-excursion
    (forward-line 0)
    (and (looking-at (regexp-quote pyagentd-prompt-prefix))
         (not (get-text-property (point) 'gptel))
         (match-end 0))))

(defun pyagentd-chat--prompt-nothing ()
  "Say that there is nothing to complete here."
  (interactive nil pyagentd-mode)
  (message "Nothing to complete here; / starts a command, @ a file name"))

(defun pyagentd-prompt--tab (command)
  "Return the command that TAB runs here: COMMAND if it can complete something.
Otherwise return a command that only shows a message in the first line of
the prompt being typed, and elsewhere nil, for the major mode's command."
  (cond ((run-hook-with-args-until-success 'pyagentd-completing-functions)
         command)
        ((or (pyagentd-insert-arriving-p)
             (and (pyagentd-prompt--words)
                  (save-restriction
                    (widen)
                    (not (text-property-not-all (line-beginning-position)
                                                (point-max) 'gptel nil)))))
         #'pyagentd-chat--prompt-nothing)))

(defun pyagentd-chat--prompt-beginning (&optional n)
  "Go to the first word of the prompt in this line, or to its beginning.
If point is at the first word or before it, go to the beginning of the line.
Elsewhere, and with N, do what the key does without `pyagentd-mode'.  Do not
move where an answer is arriving and nothing is typed below it yet."
  (interactive "^p"
               pyagentd-mode)
  (let ((origin (point))
        (words (and (eql (or n 1) 1) (pyagentd-prompt--words))))
    (setq this-command
          (or (let ((pyagentd-mode nil))
                (command-remapping 'move-beginning-of-line))
              #'move-beginning-of-line))
    (unless (and (eql (or n 1) 1) (pyagentd-insert-arriving-p))
      (funcall this-command (or n 1))
      (when (and words (> origin words) (< (point) words))
        (goto-char words)))))

(define-key pyagentd-mode-map (kbd "TAB")
  '(menu-item "" completion-at-point :filter pyagentd-prompt--tab))
(define-key pyagentd-mode-map [remap move-beginning-of-line]
  #'pyagentd-chat--prompt-beginning)

;;;; Prompts and answers

(defun pyagentd-turns--trim (beg end)
  "Return the prompt's bounds (BEG . END) between BEG and END, or nil if blank."
  (save-excursion
    (goto-char beg)
    (skip-chars-forward " \t\n" end)
    (when (looking-at (regexp-quote (string-trim pyagentd-prompt-prefix)))
      (goto-char (min end (match-end 0)))
      (skip-chars-forward " \t\n" end))
    (let ((start (point)))
      (goto-char end)
      (skip-chars-backward " \t\n" start)
      (and (> (point) start) (cons start (point))))))

(defun pyagentd-turns-prompts (&optional beg end)
  "Return the bounds of the prompts between BEG and END, by default of all.
The value is a list of (BEG . END) in the order of the text."
  (save-restriction
    (widen)
    (let ((pos (or beg (point-min)))
          (last (or end (point-max)))
          prompts)
      (while (< pos last)
        (let ((next (next-single-property-change pos 'gptel nil last)))
          (unless (get-text-property pos 'gptel)
            (when-let ((prompt (pyagentd-turns--trim pos next)))
              (push prompt prompts)))
          (setq pos next)))
      (nreverse prompts))))

(defun pyagentd-turns--answer (prompt)
  "Return where the answer to PROMPT, (BEG . END), begins, or nil without one."
  (save-restriction
    (widen)
    (let ((pos (next-single-property-change (car prompt) 'gptel)))
      (when pos
        (save-excursion
          (goto-char pos)
          (skip-chars-forward "\n")
          (point))))))

;;;; Motion

(defun pyagentd-turns--nth (positions count)
  "Return the COUNTth of POSITIONS after point, before it if COUNT is negative."
  (let ((here (point)))
    (nth (1- (abs count))
         (if (> count 0) (seq-filter (lambda (pos) (> pos here)) positions)
           (nreverse (seq-filter (lambda (pos) (< pos here)) positions))))))

(defun pyagentd-chat--next-answer (&optional count)
  "Go to the beginning of the next answer, or of the COUNTth after point."
  (interactive "p"
               pyagentd-mode)
  (unless (bound-and-true-p pyagentd-mode) (user-error "Not a session"))
  (let* ((count (or count 1))
         (to (pyagentd-turns--nth
              (delq nil (mapcar #'pyagentd-turns--answer (pyagentd-turns-prompts)))
              count)))
    (unless to
      (user-error (if (> count 0) "No answer below" "No answer above")))
    (unless (memq last-command '(pyagentd-chat--next-answer
                                 pyagentd-chat--previous-answer))
      (push-mark nil t))
    (goto-char to)
    (when (eq (window-buffer) (current-buffer))
      (recenter (min 2 (/ (window-height) 4))))))

(defun pyagentd-chat--previous-answer (&optional count)
  "Go to the beginning of the answer at point or before it, COUNT times."
  (interactive "p"
               pyagentd-mode)
  (pyagentd-chat--next-answer (- (or count 1))))

(defvar pyagentd-turns-repeat-map
  (pyagentd-keymap
   "]" #'pyagentd-chat--next-answer
   "[" #'pyagentd-chat--previous-answer)
  "Keymap that repeats its commands in `repeat-mode'.")

(put 'pyagentd-chat--next-answer 'repeat-map 'pyagentd-turns-repeat-map)
(put 'pyagentd-chat--previous-answer 'repeat-map 'pyagentd-turns-repeat-map)

;;;; Turns as defuns

(defun pyagentd-turns--beginning (&optional count)
  "Go COUNT turns back; for `beginning-of-defun-function'."
  (let* ((count (or count 1))
         (to (pyagentd-turns--nth
              (mapcar (lambda (prompt)
                        (save-excursion (goto-char (car prompt))
                                        (line-beginning-position)))
                      (pyagentd-turns-prompts))
              (- count))))
    (goto-char (or to (if (> count 0) (point-min) (point-max))))
    (and to t)))

(defun pyagentd-turns--end ()
  "Go to the end of the turn that begins at point; for `end-of-defun-function'."
  (let ((next (seq-find (lambda (prompt) (> (car prompt) (line-end-position)))
                        (pyagentd-turns-prompts (point)))))
    (goto-char (if next (car next) (point-max)))
    (when next
      (forward-line 0))))

;;;; Imenu

(defun pyagentd-turns-index ()
  "Return an Imenu index of the prompts and of the headings in answers."
  (save-restriction
    (widen)
    (let* ((number 0)
           (prompts (pyagentd-turns-prompts))
           headings)
      (save-excursion
        (goto-char (point-min))
        (while (and prompts (re-search-forward "^#+ +\\(.+\\)$" nil t))
          (when (eq (get-text-property (match-beginning 0) 'gptel) 'response)
            (push (cons (match-string-no-properties 1)
                        (copy-marker (match-beginning 0)))
                  headings))))
      (append
       (mapcar (lambda (prompt)
                 (cons (format "%d  %s" (cl-incf number)
                               (save-excursion ; its first line
                                 (goto-char (car prompt))
                                 (truncate-string-to-width
                                  (buffer-substring-no-properties
                                   (car prompt)
                                   (min (cdr prompt) (line-end-position)))
                                  70 nil nil "…")))
                       (copy-marker (car prompt))))
               prompts)
       (and headings (list (cons "Headings" (nreverse headings))))))))

;;;; Settings of session buffers

(dolist (setting '((beginning-of-defun-function . pyagentd-turns--beginning)
                   (end-of-defun-function . pyagentd-turns--end)
                   (imenu-create-index-function . pyagentd-turns-index)
                   (imenu-auto-rescan . t)))
  (add-to-list 'pyagentd-session-settings setting))

;;;; Come back to a session

;; Bookmarks of sessions, and sessions and lists in a saved desktop
;; (`desktop-save-mode').  A bookmark records the session's id and the prompt
;; at point, so it still works after the directory has moved.

;;;; Bookmarks

(defun pyagentd-return--prompt ()
  "Return the text of the prompt at or before point, or nil."
  (when-let ((prompt (car (last (seq-take-while
                                 (lambda (prompt) (<= (car prompt) (point)))
                                 (pyagentd-turns-prompts))))))
    (save-restriction
      (widen)
      (buffer-substring-no-properties
       (car prompt) (min (cdr prompt) (+ (car prompt) 200))))))

(defun pyagentd-return-record ()
  "Return a bookmark of this place; for `bookmark-make-record-function'."
  (require 'bookmark)
  (let ((prompt (pyagentd-return--prompt)))
    `(,(concat (or pyagentd-status-title pyagentd--session-id)
               (if prompt
                   (concat ": " (car (split-string prompt "\n")))
                 ""))
      ,@(bookmark-make-record-default)
      (session-id . ,pyagentd--session-id)
      (branch-name . ,pyagentd--branch-name)
      (prompt . ,prompt)
      (handler . pyagentd-return-jump))))

;;;###autoload
(defun pyagentd-return-jump (bookmark)
  "Go to the place of BOOKMARK, even if its session or text has moved."
  (let* ((prompt (bookmark-prop-get bookmark 'prompt))
         (id (bookmark-prop-get bookmark 'session-id))
         (moved (expand-file-name
                 (format "%s/branches/%s/session.md" id
                         (bookmark-prop-get bookmark 'branch-name))
                 pyagentd-sessions-directory)))
    (bookmark-default-handler
     `("" (filename . ,(or (seq-find #'file-exists-p
                                     (list (bookmark-get-filename bookmark) moved))
                           (user-error "%s is gone" id)))
       ,@(seq-filter (lambda (pair)
                       (memq (car-safe pair) '(front-context-string
                                               rear-context-string position)))
                     (bookmark-get-bookmark-record bookmark))))
    (when (and prompt (not (equal prompt (pyagentd-return--prompt))))
      (goto-char (point-min))
      (when (search-forward prompt nil t)
        (goto-char (match-beginning 0))))))

(add-to-list 'pyagentd-session-settings
             '(bookmark-make-record-function . pyagentd-return-record))

;;;; Desktop

(defvar desktop-buffer-major-mode)
(defvar pyagentd-list-name)

;;;###autoload
(defun pyagentd-return-list (_file name _misc)
  "Restore the list of the buffer NAME from a saved desktop.
Fill it if a daemon runs; otherwise it is filled when reverted."
  (when (autoloadp (symbol-function desktop-buffer-major-mode))
    (autoload-do-load (symbol-function desktop-buffer-major-mode)))
  (with-current-buffer (get-buffer-create name)
    (funcall desktop-buffer-major-mode)
    (when (string-match "\\`\\*pyagentd \\(.*\\)\\*\\'" name)
      (setq pyagentd-list-name (match-string 1 name)))
    (when (pyagentd-rpc-connect)
      (revert-buffer))
    (current-buffer)))

(defun pyagentd-return--writable ()
  "Make sessions writable that the previous Emacs had opened read-only."
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (when (and buffer-read-only (not pyagentd-viewing-refusal)
                 (file-writable-p buffer-file-name))
        (setq buffer-read-only nil)))))

(add-hook 'desktop-after-read-hook #'pyagentd-return--writable)

;; Visiting the file turns the mode on already.
(add-to-list 'desktop-minor-mode-handlers '(pyagentd-mode . ignore))

;;;###autoload
(progn
  (add-to-list 'desktop-buffer-mode-handlers
               '(pyagentd-list-mode . pyagentd-return-list)))

(provide 'pyagentd-chat)
;;; pyagentd-chat.el ends here

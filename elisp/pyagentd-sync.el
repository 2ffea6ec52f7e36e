;;; pyagentd-sync.el --- Keep buffer, file and daemon in step -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Attaches session buffers to the daemon, exchanges edits with it, and has
;; it write the files.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-daemon)
(require 'pyagentd-rpc)
(require 'pyagentd-edit)
(require 'pyagentd-display)
(require 'pyagentd-ask)

(declare-function pyagentd-hidden-refresh "pyagentd-history")
(declare-function pyagentd-host-of "pyagentd-host")

;;;; Read-only sessions

(pyagentd-deflocal pyagentd-viewing-refusal nil
  "Why the daemon cannot write this session, a line; nil if it can.")

(pyagentd-deflocal pyagentd-viewing--timer nil
  "Timer that asks the daemon whether the session can be written, or nil.")

(defun pyagentd-viewing-set (refusal)
  "Make the buffer read-only because of REFUSAL, writable if that is nil.
After some seconds, attach again to ask the daemon."
  (cond (refusal
         (setq buffer-read-only t)
         (unless pyagentd-viewing--timer ; the disk may work by then
           (setq pyagentd-viewing--timer
                 (run-at-time
                  5 nil
                  (pyagentd-later-back
                   (lambda ()
                     (setq pyagentd-viewing--timer nil)
                     (when (and pyagentd-viewing-refusal
                                (eq pyagentd-attach-state t))
                       (pyagentd-attach))))))))
        (pyagentd-viewing-refusal
         (setq buffer-read-only nil)
         (when (buffer-modified-p)
           (pyagentd-autosave-touch))))
  (setq pyagentd-viewing-refusal refusal
        pyagentd-status-hindrance (and refusal (concat "read only: " refusal)))
  (pyagentd-status-refresh))

(defun pyagentd-viewing-check (&optional otherwise)
  "Signal a `user-error' with advice if this buffer is read-only.
OTHERWISE is an alternative to suggest, or nil."
  (when buffer-read-only
    (user-error
     "%s cannot be written: %s%s"
     (or pyagentd-status-title pyagentd--session-id (buffer-name))
     (or pyagentd-viewing-refusal
         (substitute-command-keys
          "its buffer is read-only; \\[read-only-mode] there changes that"))
     (if otherwise (concat "; " otherwise) ""))))

;;;; Model, tools and temperature of one session

;; preset.md holds the settings of a session.  The Local Variables of the
;; conversation repeat them under gptel's names; changing one of them, with
;; gptel's menu for example, and saving overrides the preset for that
;; session.  The header line shows an override with a star.

(pyagentd-deflocal pyagentd-settings--own nil
  "Alist of `pyagentd-block-settings' and their values in preset.md.")
(pyagentd-deflocal pyagentd-settings--saved nil
  "Alist of `pyagentd-block-settings' and their values last saved or received.")

(pyagentd-deflocal pyagentd-settings-thinking nil
  "Thinking level of the model here, a string; nil for none.")
(pyagentd-deflocal pyagentd-settings-next nil
  "Plist of settings for the next message only, as on the wire.
Keys are :model, :temperature, :max-tokens, :thinking, :system and
:tools, one string of names.")

(pyagentd-deflocal pyagentd-settings-next-only nil
  "Non-nil if settings are being chosen for the next message only.")

(defconst pyagentd-settings--keys
  '((gptel-model . :model) (gptel--backend-name . :backend)
    (gptel--tool-names . :tools) (gptel-temperature . :temperature)
    (gptel-max-tokens . :max-tokens))
  "Alist from each variable to its key on the wire.")

(defun pyagentd-settings--alist (settings)
  "Return SETTINGS, a plist from the daemon, as an alist of variables."
  (mapcar (pcase-lambda (`(,variable . ,key))
            (let ((value (plist-get settings key)))
              (cons variable
                    (if (and value (eq variable 'gptel-model))
                        (intern (format "%s" value))
                      value))))
          pyagentd-settings--keys))

(defun pyagentd-settings--current ()
  "Return an alist of `pyagentd-block-settings' and their values here."
  (mapcar (lambda (variable)
            (cons variable (pyagentd-block-get variable)))
          pyagentd-block-settings))

(defun pyagentd-settings-overridden ()
  "Return the variables with a value that differs from preset.md."
  (seq-filter (lambda (variable)
                (let ((value (pyagentd-block-get variable)))
                  (and value
                       (not (equal value
                                   (alist-get variable
                                              pyagentd-settings--own))))))
              pyagentd-block-settings))

(defun pyagentd-settings--changed-p (variable)
  "Return non-nil if VARIABLE was changed since the file was written."
  (not (equal (alist-get variable pyagentd-settings--saved)
              (pyagentd-block-get variable))))

(defun pyagentd-settings-unsaved-p ()
  "Return non-nil if a setting was changed since the file was written."
  (and pyagentd-settings--saved
       (seq-some #'pyagentd-settings--changed-p pyagentd-block-settings)))

(defun pyagentd-settings-receive (answer)
  "Apply the settings in ANSWER, from the daemon.
Settings that the user has changed and not saved yet stay."
  (let* ((settings (plist-get answer :settings))
         (unsaved (seq-filter #'pyagentd-settings--changed-p
                              (and pyagentd-settings--saved
                                   pyagentd-block-settings)))
         (before pyagentd-settings--saved))
    (pcase-dolist (`(,variable . ,value) (pyagentd-settings--alist settings))
      (when (and (not (memq variable unsaved))
                 (or value (and (eq variable 'gptel--tool-names)
                                (plist-member settings :tools))))
        (pyagentd-block-set variable value)))
    (setq pyagentd-settings--own
          (pyagentd-settings--alist (or (plist-get answer :own-settings)
                                        settings)))
    (when (plist-member answer :gptel-tools)
      (setq pyagentd-block-tools
            (cons (alist-get 'gptel--tool-names pyagentd-settings--own)
                  (plist-get answer :gptel-tools))))
    (setq pyagentd-settings--saved (pyagentd-settings--current))
    (dolist (variable unsaved)
      (setf (alist-get variable pyagentd-settings--saved)
            (alist-get variable before))))
  (setq pyagentd-settings-thinking (plist-get answer :thinking))
  (pyagentd-settings-show (plist-get answer :model)))

(defun pyagentd-settings--read ()
  "Show the settings in the session's files until the daemon answers.
The Local Variables come before preset.md; the metadata names the preset."
  (unless pyagentd-settings--own
    (condition-case err
        (progn
          (when-let ((text (pyagentd-yaml-text
                            (pyagentd-place-scope-plan pyagentd--branch-dir))))
            (setq pyagentd-status-preset
                  (plist-get (pyagentd-yaml-read text t) :preset)))
          (when-let ((text (and (not pyagentd--named-agent) ; its settings are in agent.json
                                (pyagentd-yaml-text
                                 (pyagentd-place-preset pyagentd--branch-dir)))))
            (setq pyagentd-settings--own
                  (pyagentd-settings--alist (pyagentd-yaml-preset text)))
            (unless (assq 'gptel--tool-names pyagentd-block--settings)
              (setq pyagentd-block-tools
                    (list (alist-get 'gptel--tool-names
                                     pyagentd-settings--own))))
            (pcase-dolist (`(,variable . ,value) pyagentd-settings--own)
              (unless (assq variable pyagentd-block--settings)
                (pyagentd-block-set variable value)))
            (setq pyagentd-settings--saved (pyagentd-settings--current))))
      ((pyagentd-yaml-unknown file-error)
       (pyagentd-log 'debug "%s: the daemon will read its settings: %s"
                     (buffer-name) (error-message-string err))))
    (pyagentd-settings-show)))

(add-hook 'pyagentd-session-read-hook #'pyagentd-settings--read)

(defun pyagentd-settings-show (&optional model)
  "Show in the header line which MODEL runs here, with a star for an override."
  (setq pyagentd-status-model
        (if (string-match-p "\\`offline\\(?:/\\|\\'\\)" ; without a model
                            (format "%s" (or (getenv "PYAGENTD_BACKEND")
                                             (pyagentd-block-get
                                              'gptel--backend-name)
                                             "")))
            "offline stand-in"
          (concat (format "%s" (or (pyagentd-block-get 'gptel-model) model ""))
                  (and (pyagentd-settings-overridden) "*"))))
  (pyagentd-status-refresh))

(defun pyagentd-settings--segment ()
  "Return a header line segment with the settings for the next message only."
  (when pyagentd-settings-next
    (pyagentd-status-button
     (propertize
      (format "[next: %s]"
              (mapconcat (lambda (key) (substring (symbol-name key) 1))
                         (cl-loop for key in pyagentd-settings-next by #'cddr
                                  collect key) ", "))
      'face 'warning)
     'pyagentd-menu--in-model "Settings of the next message")))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-settings--segment)

(defun pyagentd-settings--after-save ()
  "Record the current settings as saved."
  (when pyagentd-settings--own
    (setq pyagentd-settings--saved (pyagentd-settings--current))
    (pyagentd-settings-show)))

(add-hook 'pyagentd-session-written-hook #'pyagentd-settings--after-save)

(defun pyagentd-settings--have (operation words)
  "Call the daemon's OPERATION on the settings changed here.
WORDS is the format of the message about the result."
  (pyagentd-in-session
    (pyagentd-attached-then
     (lambda ()
       (pyagentd-later-here
        operation (list :branch pyagentd--branch-dir)
        (lambda (answer)
          (when (plist-member answer :dropped)
            (setq pyagentd-settings--saved nil)
            (dolist (variable pyagentd-block-settings)
              (pyagentd-block-set variable nil)))
          (pyagentd-settings-receive answer)
          (if-let ((names (or (plist-get answer :kept)
                              (plist-get answer :dropped))))
              (message words (mapconcat (apply-partially #'format "%s")
                                        names ", "))
            (message "No settings differ from preset.md"))))))))

(defun pyagentd-sync--keep-settings ()
  "Write the settings that were changed in this session to its preset.md."
  (interactive)
  (pyagentd-settings--have 'keep-settings "Saved to preset.md: %s"))

(defun pyagentd-sync--drop-settings ()
  "Go back to the settings in the preset.md of this session."
  (interactive)
  (pyagentd-settings--have 'drop-settings "Reset to preset.md: %s"))

;;;; Connect session buffers with the daemon

;; After its file was read, a buffer attaches to its branch: it tells the
;; daemon which text it has, and the reply holds the edits that lead to the
;; daemon's text, the running agents and any notes.  If the daemon does not
;; know the buffer's text, Emacs sends it.  Edits typed meanwhile are
;; rebased on the daemon's text and sent.
;;
;; From then on the daemon alone writes the file.  Emacs sends edits after
;; a pause; a buffer is unmodified when the file holds all of its text.

(pyagentd-deflocal pyagentd-attach-mtime nil
  "Time at which the daemon last wrote the file; nil if unknown.")
(pyagentd-deflocal pyagentd-attach-viewer nil
  "The symbol `hidden' in a buffer that attaches only when displayed, or nil.")
(pyagentd-deflocal pyagentd-attach-root nil
  "Directory of the project of this session, nil if it is not known.")
(pyagentd-deflocal pyagentd-attach--latest 0
  "Number of the latest request to attach; older replies are dropped.
When Emacs writes the file the number grows too: a reply that comes later
is about another text.")
(pyagentd-deflocal pyagentd-attach--looked nil
  "Modification time for which the daemon was last asked to check the file.")
(pyagentd-deflocal pyagentd-attach--checkpoints nil
  "Non-nil while a save is to be confirmed to the user.
The symbol `again' if the daemon rejected an edit since.")
(pyagentd-deflocal pyagentd-attach--said nil
  "Notes about this session that were already shown.")
(pyagentd-deflocal pyagentd-attach-awaited nil
  "Callbacks that wait until this buffer is attached, in order.
They are pairs (THEN . FAILED), see `pyagentd-attached-then'.")

(defvar pyagentd-attached-hook nil
  "Hook run in a session buffer after it was attached.")

(defvar pyagentd-attach-failed-functions nil
  "Functions called in a session buffer that could not be attached.
They get the error, a list (SYMBOL . DATA).")

(defun pyagentd-attach (&optional text)
  "Attach the current buffer if there is a daemon; return at once.
TEXT is the buffer's text without pending edits, if the daemon does not
know it."
  (when (and pyagentd-mode (pyagentd-connect-here-p) (pyagentd-rpc-connect))
    (when (and (null text) (null pyagentd-attach-state)
               (null pyagentd-edit-revision) (buffer-modified-p) (pyagentd-session-in-step-p)
               (not (pyagentd-session-copy-p)))
      (pyagentd-session-save))          ; Emacs still writes the file
    (setq pyagentd-attach-state 'pending
          pyagentd-attach--latest (1+ pyagentd-attach--latest))
    (let ((number pyagentd-attach--latest))
      (pyagentd-rpc-call-async
       'attach (append (list :branch pyagentd--branch-dir)
                       ;; Identifies the text of the buffer.
                       (cond (text (list :text text))
                             (pyagentd-edit-revision
                              (list :revision pyagentd-edit-revision))
                             (t (list :sha256
                                      (secure-hash 'sha256
                                                   (encode-coding-string
                                                    (pyagentd-edit-base)
                                                    'utf-8-emacs-unix))))))
       :success (pyagentd-sync--in-turn
                 (lambda (answer)
                   (cond ((= number pyagentd-attach--latest)
                          (pyagentd-attach--answered answer text))
                         ;; Emacs has written the file since it gave up.
                         ((null pyagentd-attach-state) (pyagentd-attach)))))
       :error (pyagentd-later-back
               (lambda (err)
                 (pyagentd-log 'warn "%s: %s" (buffer-name)
                               (pyagentd-error-text err))
                 (when (= number pyagentd-attach--latest)
                   (setq pyagentd-attach-state nil)
                   (run-hook-with-args 'pyagentd-attach-failed-functions
                                       err))))))))

(add-hook 'pyagentd-session-written-hook
          (lambda () (cl-incf pyagentd-attach--latest)))

(defun pyagentd-sync--in-turn (function)
  "Return a function that calls FUNCTION here with a reply, in order with events."
  (pyagentd-events-in-turn (pyagentd-later-back function)))

(defun pyagentd-attach--answered (answer text)
  "Process ANSWER to the latest request, which sent TEXT or nil."
  (let ((number pyagentd-attach--latest))
    (unwind-protect
        (if (plist-get answer :unknown)
            (pyagentd-attach (pyagentd-edit-base))
          (pyagentd-attach--apply answer text))
      ;; An error: the next event tries again.
      (when (and (= number pyagentd-attach--latest)
                 (eq pyagentd-attach-state 'pending))
        (setq pyagentd-attach-state nil)))))

(defun pyagentd-attach--apply (answer &optional text)
  "Bring the buffer to the state in ANSWER; the request sent TEXT, or nil."
  (setq pyagentd-attach-state t
        pyagentd-attach--start (or (plist-get answer :seq) 0)
        pyagentd-attach-root (plist-get answer :root)
        pyagentd-status-preset (plist-get answer :preset)
        pyagentd-status-unconfined (plist-get answer :unconfined))
  (let ((pyagentd-status-held t))
    (when-let ((id (plist-get answer :session-id)))
      ;; The metadata counts if the directory has another name.
      (unless (equal id pyagentd--session-id)
        (setq pyagentd--session-id id)
        (pyagentd-place-register pyagentd--session-dir (current-buffer) id
                                 pyagentd--branch-name pyagentd--branch-dir)))
    (pyagentd-viewing-set (plist-get answer :read-only))
    (pyagentd-settings-receive answer)
    (pyagentd-status-set-title (plist-get answer :title))
    (pyagentd-context-set (plist-get answer :context))
    (pyagentd-attach--take-edits answer text)
    (pyagentd-queued-receive (plist-get answer :queue))
    (pyagentd-overlay-forget)
    (mapc #'pyagentd-overlay-note (plist-get answer :agents))
    (dolist (ask (plist-get answer :asks))
      (pyagentd-ask-add ask pyagentd--branch-dir))
    (pyagentd-ask-notice-refresh)
    (pyagentd-todo-receive (plist-get answer :todo))
    (pyagentd-failed-receive (plist-get answer :failed)
                             (plist-get answer :summaries))
    (pyagentd-reply-options-receive (plist-get answer :reply-options))
    (pyagentd-status-set (or (plist-get answer :status) '(:state idle))))
  (pyagentd-status-refresh)
  (pyagentd-attach--say (plist-get answer :notes))
  (run-hooks 'pyagentd-attached-hook))

(defun pyagentd-attach--take-edits (answer text)
  "Apply the daemon's edits in ANSWER; the request sent TEXT, or nil."
  (let ((revision (or (plist-get answer :revision) 0))
        (edits (plist-get answer :edits)))
    ;; The daemon has read the file: Emacs need not warn of changes on disk.
    (when (or text edits (plist-get answer :mtime))
      (clear-visited-file-modtime))
    (when text
      (pyagentd-edit-merge (cadr (car edits)) revision)
      (setq edits (cdr edits)))
    (pcase-dolist (`(,id ,hunks) edits)
      (unless (and id (pyagentd-edit-acknowledged id revision))
        (pyagentd-edit-receive hunks revision)))
    (pyagentd-edit-refused)             ; the daemon never received it
    (setq pyagentd-edit-revision revision
          pyagentd-edit--place (plist-get answer :marker))
    (when (plist-get answer :roles)
      (pyagentd-attach-set-roles (plist-get answer :roles)))
    (when pyagentd-edit--place
      (pyagentd-insert-start (pyagentd-edit-position pyagentd-edit--place t)))
    (pyagentd-sync--written (and (plist-get answer :saved) revision)
                            (plist-get answer :mtime))
    (when (plist-get answer :unsaved)
      (pyagentd-sync--refused-by-disk (plist-get answer :unsaved)))
    (when (pyagentd-edit-pending-p)
      (set-buffer-modified-p t)
      (pyagentd-autosave-touch))))

(defun pyagentd-attach--say (notes)
  "Show the NOTES, a list of lines, that were not shown yet."
  (when-let ((new (seq-difference notes pyagentd-attach--said)))
    (setq pyagentd-attach--said (append new pyagentd-attach--said))
    (message "%s" (mapconcat (lambda (note) (format "%s: %s" (buffer-name) note))
                             new "\n"))))

(defun pyagentd-attach-set-roles (roles)
  "Set the roles of the text to ROLES, a list of (BEG END ROLE).
The positions are those of the daemon's document."
  (save-restriction
    (widen)
    (with-silent-modifications
      (remove-text-properties (point-min) (point-max) '(gptel nil))
      (pcase-dolist (`(,beg ,end ,role) roles)
        (put-text-property (min (pyagentd-edit-position beg) (point-max))
                           (min (pyagentd-edit-position end t) (point-max))
                           'gptel (pyagentd-edit-role role))))))

;;;; Sending edits, and saving

(defun pyagentd-sync-attached-p ()
  "Return non-nil if the daemon writes the file of this buffer, or will soon."
  (and pyagentd-attach-state (pyagentd-rpc-connected-p)))

(defun pyagentd-sync-flush ()
  "Send pending edits, unless one is unacknowledged.
Return non-nil if all edits are sent."
  (when (and (pyagentd-attached-p) (not pyagentd-viewing-refusal))
    (let ((settings
           (when (pyagentd-settings-unsaved-p)
             (cl-loop for (variable . key) in pyagentd-settings--keys
                      for value = (car (pyagentd-block--written variable))
                      append (list key (if (and value (eq variable 'gptel-model))
                                           (format "%s" value)
                                         value)))))
          (taken (pyagentd-edit-take)))
      (when (or settings taken)
        (pyagentd-sync--send
         (append taken (and settings (list :settings settings)))
         (plist-get taken :id))
        (when settings (pyagentd-settings--after-save)))
      (and (not (pyagentd-edit-pending-p))
           (or taken (null pyagentd-edit--sent))))))

(defvar pyagentd-sync--lost nil
  "Ids of edits from killed buffers that the daemon rejected.")

(defvar pyagentd-sync--unwritten nil
  "Lists of ids of edits whose text is kept until the daemon has written them.")

(defun pyagentd-sync--send (what id)
  "Send WHAT, a plist of :id, :hunks and :settings, as the edit ID."
  (let ((back (pyagentd-later-back #'pyagentd-sync--refused))
        (buffer (current-buffer))
        (settings (and (plist-get what :settings)
                       (list pyagentd-settings--saved))))
    (pyagentd-rpc-call-async
     'edit-document (append (list :branch pyagentd--branch-dir
                                  :revision pyagentd-edit-revision)
                            what)
     :success (pyagentd-later-back
               (lambda (answer)         ; others edited the same text
                 (when (plist-get answer :met)
                   (pyagentd-edit-keep (plist-get answer :met)))))
     :error (lambda (err)
              (cond ((buffer-live-p buffer) (funcall back id settings what err))
                    ((plist-get what :id)
                     (push (plist-get what :id) pyagentd-sync--lost)))))))

(defun pyagentd-sync--refused (id settings what err)
  "Attach again, since the daemon rejected the edit ID with ERR.
SETTINGS is a list of the previously saved settings if the edit had some.
WHAT was sent is kept in another buffer if this one was reverted since."
  (when settings
    (pyagentd-log 'warn "%s: settings not saved: %s" (buffer-name)
                  (pyagentd-error-text err))
    (setq pyagentd-settings--saved (car settings)))
  (cond ((not (equal (plist-get what :id) (car pyagentd-edit--sent)))
         (when (and pyagentd-mode (plist-get what :hunks))
           (pyagentd-edit-keep (mapcar (lambda (hunk) (nth 2 hunk))
                                       (plist-get what :hunks))
                               (pyagentd-error-text err))))
        ((and id (pyagentd-rpc-connected-p))
         (pyagentd-log 'warn "%s: %s" (buffer-name) (pyagentd-error-text err))
         (setq pyagentd-attach-state nil)
         (when pyagentd-attach--checkpoints
           (setq pyagentd-attach--checkpoints 'again))
         (if (eq (pyagentd-symbol (nth 1 err)) 'stale)
             (pyagentd-attach (pyagentd-edit-base))
           (pyagentd-attach)))))

(defun pyagentd-sync--written (revision mtime)
  "Record that the daemon wrote REVISION to the file at MTIME, in ns.
REVISION is nil if the file does not hold all of the text."
  (when (and mtime (> mtime 0))
    (setq pyagentd-attach-mtime (cons mtime 1000000000))
    ;; The daemon writes it: Emacs need not warn of changes on disk.
    (clear-visited-file-modtime))
  (when revision
    (pyagentd-edit-persisted revision)
    (when (and (pyagentd-edit-saved-p)
               (or (buffer-modified-p) (eql revision pyagentd-edit-revision)))
      (when (buffer-modified-p)
        (set-buffer-modified-p nil)
        (pyagentd-autosave-settle))
      (pyagentd-session-saved-again)
      (run-hooks 'pyagentd-session-saved-hook))))

(defconst pyagentd-connect--last-wait 1.0
  "Maximum seconds that Emacs waits on exit for the daemon to write everything.")

(defun pyagentd-sync-save ()
  "Ask the daemon to write all of this text; return at once.
The buffer becomes unmodified once the file holds it.  Commands that would
otherwise ask about the modified buffer wait for that, up to a second."
  (setq pyagentd-attach--checkpoints t)
  (unless (assq #'pyagentd-sync--checkpoint pyagentd-attach-awaited)
    (pyagentd-attached-then #'pyagentd-sync--checkpoint))
  (pyagentd-sync-watch)
  (when (memq this-command '(save-buffers-kill-terminal save-buffers-kill-emacs
                             save-some-buffers))
    (pyagentd-rpc-wait (lambda () (not (buffer-modified-p)))
                       pyagentd-connect--last-wait)))

(pyagentd-deflocal pyagentd-sync--watch nil
  "Timer that checks whether the daemon accepted the edits, or nil.")

(defun pyagentd-sync-watch (&optional waiting)
  "Keep the text beside the file if the daemon does not accept the edits soon.
WAITING is a list of the id of the edit unacknowledged at the last check."
  (unless pyagentd-sync--watch
    (setq pyagentd-sync--watch
          (run-at-time 1.5 nil
                       (pyagentd-later-back #'pyagentd-sync--watched)
                       waiting))))

(defun pyagentd-sync--watched (waiting)
  "Report an error if the daemon did not accept the edits of this buffer.
WAITING is as for `pyagentd-sync-watch': only an edit that waits at two
checks is late, since a reply may have arrived while Emacs was busy."
  (setq pyagentd-sync--watch nil)
  (cond ((not (pyagentd-sync-attached-p))
         (when (buffer-modified-p)
           (pyagentd-autosave-touch)))  ; Emacs writes it
        ((and (or pyagentd-edit--sent (pyagentd-edit-pending-p))
              (not pyagentd-viewing-refusal))
         (when (equal waiting (list (car pyagentd-edit--sent)))
           (let ((kept (pyagentd-session-keep)))
             (pyagentd-session--set-trouble
              (format "Not saved yet: the daemon does not answer; %s"
                      (if kept (concat "kept in " (abbreviate-file-name kept))
                        "only in this buffer")))))
         (pyagentd-sync-flush)
         (pyagentd-sync-watch (list (car pyagentd-edit--sent))))
        ;; Changes that cancelled each other out were not sent.
        ((and (buffer-modified-p) (pyagentd-edit-saved-p)
              (not pyagentd-viewing-refusal))
         (pyagentd-sync--checkpoint))))

(defun pyagentd-sync--refused-by-disk (cause)
  "Report that the daemon cannot write the file because of CAUSE, a string."
  (pyagentd-session--set-trouble
   (format "Not saved: %s, %s" cause (abbreviate-file-name buffer-file-name))))

(defun pyagentd-sync--checkpoint ()
  "Ask the daemon to write the file."
  (pyagentd-rpc-call-async
   'checkpoint (list :branch pyagentd--branch-dir)
   :success (pyagentd-sync--in-turn #'pyagentd-sync--checked)
   :error (pyagentd-later-back
           (lambda (err)
             (setq pyagentd-attach--checkpoints nil)
             (pyagentd-log 'error "Not saved: %s" (pyagentd-error-text err))))))

(defun pyagentd-sync--checked (answer)
  "Process ANSWER to `checkpoint': the revision and time of the file."
  (pyagentd-sync--written (plist-get answer :revision) (plist-get answer :mtime))
  (if (eq pyagentd-attach--checkpoints 'again)
      (progn
        (setq pyagentd-attach--checkpoints t)
        (pyagentd-attached-then #'pyagentd-sync--checkpoint))
    (when (and pyagentd-attach--checkpoints (not save-silently))
      (message "Wrote %s" buffer-file-name))
    (setq pyagentd-attach--checkpoints nil)))

(defun pyagentd-sync-finish ()
  "Send all pending edits, even while another is unacknowledged.
The daemon writes them even if this buffer is killed."
  (when (and (not (pyagentd-sync-flush)) (pyagentd-attached-p)
             (pyagentd-edit-pending-p))
    (let ((before (car pyagentd-edit--sent)))
      (setq pyagentd-edit--sent nil)
      (pyagentd-sync--send (append (pyagentd-edit-take t) (list :after before))
                           nil))))

(defun pyagentd-sync-leave ()
  "Send all pending edits before Emacs exits or this buffer is killed.
The buffer is attached.  The text is kept beside the file until the
daemon has written it."
  (if (not (eq pyagentd-attach-state t))
      (progn (setq pyagentd-attach-state nil) ; the daemon reads the file
             (unless (pyagentd-session-save)
               (pyagentd-log 'error "%s was not saved; its text is in %s"
                             (buffer-name) (pyagentd-session-keep))
               (setq buffer-auto-save-file-name nil)))
    (let ((before (car pyagentd-edit--sent)))
      (pyagentd-sync-finish)
      (unless (pyagentd-edit-saved-p)
        (pyagentd-sync--kept-until-written
         (pyagentd-session-keep) (list before (car pyagentd-edit--sent))))
      (setq buffer-auto-save-file-name nil)
      (set-buffer-modified-p nil))))

(defun pyagentd-sync--revert (ignore-auto noconfirm)
  "Read the file again; IGNORE-AUTO and NOCONFIRM are as for `revert-buffer'.
If the daemon has all edits, no confirmation is needed: they come back
from it."
  (funcall (default-value 'revert-buffer-function) ignore-auto
           (or noconfirm
               (and (pyagentd-attached-p)
                    (progn (pyagentd-sync-finish)
                           (not (pyagentd-edit-pending-p)))))))

(add-to-list 'pyagentd-session-settings
             '(revert-buffer-function . pyagentd-sync--revert))

(defun pyagentd-sync--kept-until-written (kept ids)
  "Delete KEPT, a file or nil, once the daemon has written the edits IDS."
  (push ids pyagentd-sync--unwritten)
  (let* ((name (buffer-name))
         (over (lambda ()
                 (setq pyagentd-sync--unwritten
                       (delq ids pyagentd-sync--unwritten))))
         (failed (lambda (why)
                   (funcall over)
                   (pyagentd-log 'error "%s: %s; what was typed last is %s"
                                 name why
                                 (if kept (concat "in " (abbreviate-file-name kept))
                                   "lost")))))
    (pyagentd-rpc-call-async
     'checkpoint (list :branch pyagentd--branch-dir)
     :success (lambda (_)
                (funcall over)
                (cond ((seq-intersection ids pyagentd-sync--lost)
                       (funcall failed "the daemon did not take it"))
                      (kept (delete-file kept))))
     :error (lambda (err) (funcall failed (pyagentd-error-text err))))))

(defun pyagentd-sync--detach ()
  "Make Emacs write the file again, as of the daemon's last write."
  (when pyagentd-attach-mtime
    (set-visited-file-modtime pyagentd-attach-mtime)
    (setq pyagentd-attach-mtime nil)))

(defun pyagentd-sync--look ()
  "Ask the daemon to check the file if another program has changed it."
  (when (and pyagentd-attach-mtime (pyagentd-attached-p))
    (let ((found (file-attribute-modification-time
                  (file-attributes buffer-file-name))))
      (when (and found (not (time-equal-p found pyagentd-attach-mtime))
                 (not (equal found pyagentd-attach--looked)))
        (setq pyagentd-attach--looked found)
        (pyagentd-sync--checkpoint)))))

(add-to-list 'pyagentd-session-hooks '(pre-command-hook . pyagentd-sync--look))

;;;; Edits and notices from the daemon

(pyagentd-define-event edit `(,edit)
  "Apply an edit, or note that one of this buffer was accepted."
  (let ((revision (plist-get edit :revision)))
    (if (not (plist-get edit :own))
        (pyagentd-edit-receive (plist-get edit :hunks) revision)
      (pyagentd-edit-acknowledged (plist-get edit :id) revision)
      (when (pyagentd-edit-pending-p)
        (if pyagentd-attach-awaited (pyagentd-sync-flush)
          (pyagentd-autosave-touch)))
      (pyagentd-attached--soon))))

(pyagentd-define-event persisted `(,file)
  "Record that the daemon wrote the file."
  (pyagentd-sync--written (plist-get file :revision) (plist-get file :mtime)))

(pyagentd-define-event unsaved `(,refusal)
  "Report that the daemon cannot write the file."
  (pyagentd-sync--refused-by-disk (plist-get refusal :cause)))

(pyagentd-define-event roles `(,given)
  "Set the roles of the text.  With a :marker the next answer goes there."
  (pyagentd-attach-set-roles (plist-get given :spans))
  (when (plist-get given :revision)
    (setq pyagentd-edit-revision (plist-get given :revision)))
  (when-let ((marker (plist-get given :marker)))
    (pyagentd-sync-begin marker))
  (pyagentd-hidden-refresh))

(pyagentd-define-event notice `(,notice)
  "Show a line about the session."
  (message "%s: %s" (buffer-name) (plist-get notice :text)))

(defun pyagentd-sync-begin (position)
  "Make the next text of a run go to POSITION of the document."
  (setq pyagentd-edit--place position)
  (pyagentd-insert-start (pyagentd-edit-position position t)))

(defun pyagentd-sync-insert (text role)
  "Insert TEXT of the run, with ROLE, at the daemon's position."
  (let ((place (or pyagentd-edit--place (pyagentd-insert-position))))
    (pcase-let ((`((,beg . ,_)) (pyagentd-edit-around
                                 (list (list place place text "")))))
      (setq pyagentd-edit--place (+ place (length text)))
      (when pyagentd-edit-revision
        (cl-incf pyagentd-edit-revision (length text)))
      (pyagentd-insert-move beg)
      (pyagentd-insert text role))))

;;;; When session buffers attach and leave

(defcustom pyagentd-start-when-visiting t
  "Non-nil means start the daemon when you visit a session.
It starts in the background; you can read and edit the text meanwhile,
and settings are read from the session's files.  In batch mode, or where
no server is installed, no daemon is started."
  :type 'boolean
  :group 'pyagentd)

(defun pyagentd-connect--after-read ()
  "Schedule attaching the current buffer, whose file was just read."
  (setq pyagentd-attach-state nil
        pyagentd-attach-mtime nil)
  (pyagentd-status-set nil)
  (pyagentd-status-refresh)
  (run-at-time 0 nil #'pyagentd-connect--visited (current-buffer)))

(defun pyagentd-connect--later (buffer)
  "Attach BUFFER unless it is attached, or hidden."
  (pyagentd-with-live-buffer buffer
    (unless (or pyagentd-attach-state
                (eq pyagentd-attach-viewer 'hidden))
      (pyagentd-guarded "Attach" (pyagentd-attach)))))

(defun pyagentd-connect--visited (buffer)
  "Attach BUFFER, whose file was just read, and start a daemon if needed."
  (pyagentd-connect--later buffer)
  (pyagentd-with-live-buffer buffer
    (when (and pyagentd-start-when-visiting (not noninteractive)
               (not (eq pyagentd-attach-viewer 'hidden))
               (not (pyagentd-rpc-connected-p))
               (or pyagentd-host (pyagentd-server-found)))
      ;; All sessions attach when there is a connection.
      (pyagentd-guarded "Starting the daemon" (pyagentd-start #'ignore)))))

(defun pyagentd-connect--leave ()
  "Detach the current buffer."
  (pyagentd-sync-finish)
  (when (and (> pyagentd-attach--latest 0) (pyagentd-rpc-connected-p))
    (pyagentd-rpc-call-async 'detach (list :branch pyagentd--branch-dir)
                             :error #'ignore))
  (setq pyagentd-attach-state nil)
  (pyagentd-sync--detach)
  (pyagentd-viewing-set nil)
  (pyagentd-insert-flush)
  (pyagentd-overlay-forget))

;;;; Connection

(defun pyagentd-connect ()
  "Connect this session to the daemon, starting it if necessary."
  (interactive)
  (unless (bound-and-true-p pyagentd-mode) (user-error "Not a session"))
  (let ((buffer (or (buffer-base-buffer) (current-buffer))))
    (pyagentd-start (lambda () (pyagentd-connect--later buffer)))))

(defvar pyagentd-connect--retry nil
  "Timer that tries to reconnect to a daemon, or nil.")

(defvar pyagentd-connect-wanted-functions nil
  "Functions that return non-nil if Emacs should reconnect to a daemon.
They are called without arguments after a connection has ended, if no
buffer visits a session.")

(defun pyagentd-connect--all ()
  "Attach all session buffers that are not attached."
  (dolist (buffer (pyagentd-place-buffers))
    (pyagentd-connect--later buffer)))

(defun pyagentd-connect--disconnected ()
  "Detach all session buffers, and try to reconnect."
  (pyagentd-ask-clear)
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (setq pyagentd-attach-state nil)
      (pyagentd-sync--detach)
      (when (buffer-modified-p)
        (pyagentd-autosave-touch))      ; Emacs writes it now
      (pyagentd-overlay-forget)
      (pyagentd-insert-flush)
      (pyagentd-status-set nil)))
  (pyagentd-connect--retry 1))

(defun pyagentd-connect--retry (delay)
  "Try to reconnect after DELAY seconds, and less often after that.
On this machine that reads a small file; a host is queried over SSH."
  (when pyagentd-connect--retry (cancel-timer pyagentd-connect--retry))
  (setq pyagentd-connect--retry
        (run-at-time
         delay nil
         (lambda ()
           (setq pyagentd-connect--retry nil)
           (pyagentd-guarded "Reconnect"
             (unless (or (not (or (pyagentd-place-buffers)
                                  (run-hook-with-args-until-success
                                   'pyagentd-connect-wanted-functions)))
                         (pyagentd-rpc-connect))
               (pyagentd-connect--retry (min (if pyagentd-host 60 4)
                                             (* 2 delay)))))))))

(add-hook 'pyagentd-session-read-hook #'pyagentd-connect--after-read)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-connect--leave)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-connect--all)
(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-connect--disconnected)

(defun pyagentd-connect--before-exit ()
  "Send the edits of all sessions, and keep those the daemon does not write."
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (pyagentd-guarded "Save"
        (when (pyagentd-sync-attached-p)
          (pyagentd-sync-leave)))))
  (pyagentd-rpc-wait (lambda () (null pyagentd-sync--unwritten))
                     pyagentd-connect--last-wait))

(add-hook 'kill-emacs-hook #'pyagentd-connect--before-exit)

;;;; Callbacks that wait until a session is attached

;; A prompt can be sent once the daemon knows the text of its session.
;; Until then callbacks wait here.

(pyagentd-deflocal pyagentd-attached--timer nil
  "Timer that fails the waiting callbacks, or nil.")

(defun pyagentd-attached-p ()
  "Return non-nil if buffer and daemon agree on the text of this session."
  (and (eq pyagentd-attach-state t) (pyagentd-rpc-connected-p)))

(defun pyagentd-connect-here-p ()
  "Return non-nil if this session is on the machine of the current daemon."
  (equal pyagentd-host
         (and (or pyagentd-host (featurep 'pyagentd-host)
                  (string-search "/pyagentd/hosts/" buffer-file-name))
              (progn (require 'pyagentd-host)
                     (pyagentd-host-of buffer-file-name)))))

(defun pyagentd-attached-then (then &optional failed)
  "Call THEN without arguments in this session buffer once it is attached.
By then all edits are sent.  If that is so already, call it at once;
otherwise start a daemon if there is none, attach the buffer, and return
meanwhile.  On failure FAILED is called here with the error, a list
\(SYMBOL . DATA); by default the echo area shows it."
  (unless (pyagentd-connect-here-p)
    (user-error "This session is on another machine than the daemon that is \
used; M-x pyagentd-use-host changes that"))
  (if (and (pyagentd-attached-p)
           (or pyagentd-viewing-refusal (pyagentd-sync-flush)))
      (funcall then)
    (let ((entry (cons then (or failed #'pyagentd-later-tell))))
      (setq pyagentd-attach-awaited (append pyagentd-attach-awaited
                                            (list entry)))
      (condition-case err
          (pyagentd-start
           (pyagentd-later-back
            (lambda ()
              (unless pyagentd-attached--timer
                (setq pyagentd-attached--timer
                      (run-at-time pyagentd-call-timeout nil
                                   (pyagentd-later-back
                                    #'pyagentd-attached--give-up))))
              (unless (pyagentd-attached-p)
                ;; Even if a reply is due: it may be about an older text.
                (pyagentd-attach))))
           (pyagentd-later-back #'pyagentd-attached--fail))
        ;; The user may quit the question whether to install the server.
        ((error quit)
         (setq pyagentd-attach-awaited (delq entry pyagentd-attach-awaited))
         (signal (car err) (cdr err)))))
    nil))

(defun pyagentd-attached--give-up ()
  "Fail the callbacks that wait for the attachment, after a timeout."
  (let ((silent (eq pyagentd-attach-state 'pending)))
    (unless (eq pyagentd-attach-state t)
      (setq pyagentd-attach-state nil))
    (pyagentd-attached--fail
     (cond (silent (list 'pyagentd-timeout 'attach))
           ((not (pyagentd-rpc-connected-p))
            (list 'pyagentd-disconnected "try again"))
           (t (list 'pyagentd-timeout 'edit-document))))))

(defun pyagentd-attached--take ()
  "Remove and return the waiting callbacks, pairs (THEN . FAILED)."
  (when pyagentd-attached--timer
    (cancel-timer pyagentd-attached--timer))
  (prog1 pyagentd-attach-awaited
    (setq pyagentd-attached--timer nil
          pyagentd-attach-awaited nil)))

(defun pyagentd-attached--fail (err)
  "Fail the waiting callbacks with ERR, (SYMBOL . DATA)."
  (pcase-dolist (`(,_ . ,failed) (pyagentd-attached--take))
    (pyagentd-guarded "Attach" (funcall failed err))))

(defun pyagentd-attached--go ()
  "Call the first waiting callback, if all edits are sent now.
The user cannot type in between, so positions that the callback sends are
valid in the daemon's text.  The other callbacks follow."
  (when (and pyagentd-attach-awaited (pyagentd-attached-p)
             (or pyagentd-viewing-refusal (pyagentd-sync-flush)))
    (let ((then (car (pop pyagentd-attach-awaited))))
      (if pyagentd-attach-awaited (pyagentd-attached--soon)
        (pyagentd-attached--take))
      (funcall then))))

(defun pyagentd-attached--soon ()
  "Schedule the waiting callbacks, outside the process filter."
  (when pyagentd-attach-awaited
    (pyagentd-later-soon #'pyagentd-attached--go)))

(add-hook 'pyagentd-attached-hook #'pyagentd-attached--soon)
(add-hook 'pyagentd-attach-failed-functions #'pyagentd-attached--fail)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-attached--take)

;;;; Recovered roles

(defun pyagentd-sync--show-recovery ()
  "Show what the last recovery of roles changed in this session."
  (interactive)
  (pyagentd-in-session
    (pyagentd-later-here
     'recovery (list :branch pyagentd--branch-dir)
     (lambda (diff)
       (when (member diff '(nil ""))
         (user-error "No roles were recovered since this session was opened"))
       (pyagentd-show-diff (format "*recovery: %s*" pyagentd--session-id)
                           diff #'pop-to-buffer)))))

;;;; Buffers of agents that were spawned

;; An agent that a session in Emacs spawns gets a buffer, so that the user
;; can watch it work.  Two hundred agents must not cost two hundred buffers:
;; a few get one, which is attached when it is displayed, and killed when
;; its agent ends if it never was.  The others are opened by visiting their
;; files.

(defconst pyagentd-spawned--most 10
  "Maximum number of agent buffers made without a request of the user.")

(defvar pyagentd-spawned--hidden nil
  "Alist from agent buffers not displayed yet to (PARENT-BUFFER . ID).")

(defun pyagentd-spawned--begun (agent)
  "Make a buffer for AGENT, a plist, which the current buffer's session spawned."
  (let ((file (pyagentd-place-conversation (plist-get agent :branch-dir))))
    (when (and (< (length pyagentd-spawned--hidden) pyagentd-spawned--most)
               (file-exists-p file)
               (not (find-buffer-visiting file)))
      (let ((buffer (find-file-noselect file t)))
        (push (cons buffer (cons (current-buffer) (plist-get agent :id)))
              pyagentd-spawned--hidden)
        (with-current-buffer buffer
          (setq pyagentd-attach-viewer 'hidden)
          ;; Otherwise visiting it asks whether to read the file again.
          (clear-visited-file-modtime)
          (add-hook 'window-buffer-change-functions
                    #'pyagentd-spawned--displayed nil t)
          (add-hook 'kill-buffer-hook #'pyagentd-spawned--forget nil t))))))

(defun pyagentd-spawned--displayed (window)
  "Attach the agent's buffer that WINDOW now displays."
  (with-current-buffer (window-buffer window)
    (when (eq pyagentd-attach-viewer 'hidden)
      (setq pyagentd-attach-viewer nil)
      (remove-hook 'window-buffer-change-functions #'pyagentd-spawned--displayed
                   t)
      (pyagentd-spawned--forget)
      (pyagentd-connect--later (current-buffer)))))

(defun pyagentd-spawned--forget ()
  "Stop tracking the current buffer as hidden; it is not killed anymore."
  (setq pyagentd-spawned--hidden
        (assq-delete-all (current-buffer) pyagentd-spawned--hidden)))

(defun pyagentd-spawned--tidy ()
  "Kill the buffers of ended agents that were never displayed."
  (pcase-dolist (`(,buffer . (,parent . ,id)) pyagentd-spawned--hidden)
    (unless (and (buffer-live-p parent)
                 (with-current-buffer parent
                   (or (assoc id pyagentd-overlay--table)
                       (assoc id pyagentd-overlay--background))))
      (setq pyagentd-spawned--hidden
            (assq-delete-all buffer pyagentd-spawned--hidden))
      (when (buffer-live-p buffer)
        (kill-buffer buffer)))))

(provide 'pyagentd-sync)
;;; pyagentd-sync.el ends here

;;; pyagentd-sync.el --- Buffer and daemon agree on a text -*- lexical-binding: t; -*-

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

;; Attaches buffers to the daemon, and keeps buffer, file and daemon in step.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-daemon)
(require 'pyagentd-rpc)
(require 'pyagentd-edit)
(require 'pyagentd-insert)
(require 'pyagentd-display)
(require 'pyagentd-ask)

(declare-function file-notify-add-watch "filenotify")
(declare-function file-notify-rm-watch "filenotify")


;;;; Who may not write here, and why

;; A session that another client writes is read-only here, and so is one
;; that the disk lets nobody write.  Neither is ever written, whatever the
;; user or a timer asks for.

(defvar-local pyagentd-viewing-refusal nil
  "Why nobody can write this session, a line; nil if somebody can.")
(defvar-local pyagentd-viewing--locked nil
  "Non-nil if we made the buffer read-only.")

(pyagentd-permanent-local 'pyagentd-viewing-refusal 'pyagentd-viewing--locked)

(defun pyagentd-viewing-set (viewing)
  "Make the buffer read-only if VIEWING, that is if another client writes."
  (setq pyagentd-session-viewing viewing)
  (cond ((and viewing (or pyagentd-viewing-refusal (not buffer-read-only)))
         (setq buffer-read-only t
               pyagentd-viewing--locked t))
        ((and pyagentd-viewing--locked (not viewing))
         (setq buffer-read-only nil
               pyagentd-viewing--locked nil)))
  (setq pyagentd-status-hindrance
        (cond (pyagentd-viewing-refusal
               (concat "read only: " pyagentd-viewing-refusal))
              (viewing "read only")))
  (pyagentd-status-refresh))

(defun pyagentd-viewing--before-write ()
  "Refuse to write the file of a session that another client writes."
  (when pyagentd-session-viewing
    (user-error "%s" (or pyagentd-viewing-refusal
                         "Another client writes this session; \
M-x pyagentd-take-over"))))

(defun pyagentd-viewing-check (&optional otherwise)
  "Signal a `user-error' that helps if nothing can be written in this buffer.
OTHERWISE says what else can be done, besides taking over."
  (when buffer-read-only
    (user-error
     "%s cannot be written: %s"
     (or pyagentd-status-title pyagentd--session-id (buffer-name))
     (cond (pyagentd-viewing-refusal)
           (pyagentd-session-viewing
            (concat "another client writes it; M-x pyagentd-take-over there \
writes here" (if otherwise (concat ", " otherwise) "")))
           (t (substitute-command-keys
               "its buffer is read-only; \\[read-only-mode] there changes \
that"))))))

(defun pyagentd-viewing--command-error (show data context caller)
  "Say why a session is read-only, and what to do; other errors as SHOW does.
DATA, CONTEXT and CALLER are those of `command-error-function'."
  (funcall show
           (if (and (eq (car-safe data) 'buffer-read-only)
                    pyagentd-session-viewing pyagentd-viewing--locked)
               (list 'user-error
                     (or pyagentd-viewing-refusal
                         "Another client writes this session; \
M-x pyagentd-take-over writes here"))
             data)
           context caller))

(add-function :around command-error-function #'pyagentd-viewing--command-error)

(add-hook 'pyagentd-session-before-write-hook
          #'pyagentd-viewing--before-write)

;;;; Take the text of a file that another one wrote

;; What another Emacs wrote into the file of a buffer is taken over without
;; anybody noticing but by the new text: only what differs is replaced, and
;; point, mark and windows stay where they are, or at the end if they were
;; there.  The file is read into a buffer of its own first, since the daemon
;; has to agree to its text before it is shown.

(defvar-local pyagentd-reread-sha256 nil
  "In a buffer made by `pyagentd-reread-load', the SHA-256 of its text.")
(defvar-local pyagentd-reread--modtime nil
  "In such a buffer, the modification time of the file it was read from.")

;;;; Reading

(defun pyagentd-reread-load (file)
  "Return a new buffer with the conversation in FILE, nil if it cannot be read."
  (let ((agent (pyagentd-place-agent-p))
        (buffer (generate-new-buffer (format " *%s on disk*" (buffer-name)) t)))
    (condition-case err
        (with-current-buffer buffer
          (setq pyagentd-reread--modtime
                (file-attribute-modification-time (file-attributes file)))
          (let ((coding-system-for-read 'utf-8))
            (insert-file-contents file))
          (pyagentd-block-strip)
          (setq pyagentd-reread-sha256 (pyagentd-session-body-sha256))
          (when (and (= (buffer-size) 0) (not agent))
            (insert pyagentd-prompt-prefix))
          buffer)
      (file-error
       (kill-buffer buffer)
       (pyagentd-log 'warn "%s" (error-message-string err))
       nil))))

;;;; Replacing

(defun pyagentd-reread--places (beg end)
  "Return functions that put point and windows back after a replacement.
It replaces the text between BEG and END.  Who was at the end of the
text stays there, and who was within keeps its distance to BEG."
  (let* ((size (1+ (buffer-size)))
         (back (lambda (pos go)
                 (cond ((= pos size)
                        (lambda (_) (funcall go (1+ (buffer-size)))))
                       ((< beg pos end)
                        (lambda (new-end) (funcall go (min pos new-end))))))))
    (delq nil
          (cons (funcall back (point) #'goto-char)
                (mapcar (lambda (window)
                          (funcall back (window-point window)
                                   (lambda (pos)
                                     (set-window-point window pos))))
                        (get-buffer-window-list nil nil t))))))

(defun pyagentd-reread-apply (other)
  "Make text and roles of this buffer those of OTHER, and kill OTHER.
OTHER was made by `pyagentd-reread-load'.  The buffer is unmodified then."
  (pcase-let* ((`(,beg ,end ,other-end) (pyagentd-edit-difference other))
               (text (with-current-buffer other
                       (buffer-substring-no-properties beg other-end))))
    (unless (and (= beg end) (string-empty-p text))
      (let ((places (pyagentd-reread--places beg end))
            (inhibit-read-only t)
            (buffer-undo-list t)
            (buffer-file-name nil))     ; else Emacs asks: the file changed
        (save-restriction
          (widen)
          (save-excursion
            (goto-char end)
            ;; First the new text, so that what stood at the end of the old
            ;; one is behind both.
            (insert-before-markers text)
            (delete-region beg end)))
        (mapc (lambda (place) (funcall place other-end)) places))
      (unless (eq buffer-undo-list t)
        (setq buffer-undo-list nil)))
    (pyagentd-block-copy other)
    (setq pyagentd-session-sha256
          (buffer-local-value 'pyagentd-reread-sha256 other))
    (set-visited-file-modtime
     (buffer-local-value 'pyagentd-reread--modtime other))
    (set-buffer-modified-p nil)
    (pyagentd-edit-forget)
    (kill-buffer other)))

;;;; Model, tools and temperature of one session

;; What runs with which settings is written in preset.md.  The Local
;; Variables of a conversation say the same in gptel's words; who changes
;; one of them, with gptel's menu for example, and saves, overrides the
;; preset for that session.  The header line shows that with a star.

(defvar-local pyagentd-settings--own nil
  "Alist of `pyagentd-block-settings' and what preset.md says about them.")
(defvar-local pyagentd-settings--saved nil
  "The same with the values the file has as far as we know.")

(defvar-local pyagentd-settings-thinking nil
  "How much the model thinks here, a string; nil for not at all.")
(defvar-local pyagentd-settings-next nil
  "Plist of settings for the next message only, as on the wire.
Keys are :model, :temperature, :max-tokens, :thinking, :system and
:tools, one string of names.")

(defvar-local pyagentd-settings-next-only nil
  "Non-nil if settings are being chosen for the next message only.")

(pyagentd-permanent-local 'pyagentd-settings--own 'pyagentd-settings--saved
                          'pyagentd-settings-thinking 'pyagentd-settings-next
                          'pyagentd-settings-next-only)

(defconst pyagentd-settings--keys
  '((gptel-model . :model) (gptel--backend-name . :backend)
    (gptel--tool-names . :tools) (gptel-temperature . :temperature)
    (gptel-max-tokens . :max-tokens))
  "What each variable is called on the wire.")

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
  "Return an alist of the variables and their values here."
  (mapcar (lambda (variable)
            (cons variable (pyagentd-block-get variable)))
          pyagentd-block-settings))

(defun pyagentd-settings-overridden ()
  "Return the variables that have a value other than preset.md says."
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
  "Take the settings in ANSWER of the daemon over.
What the user has changed here and not saved yet stays."
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
  "Show the settings that the files have; the daemon has not answered yet.
They are those in the Local Variables, and of what these do not say those
in preset.md."
  (unless pyagentd-settings--own
    (condition-case err
        (pyagentd-settings--from-files)
      ((pyagentd-yaml-unknown file-error)
       (pyagentd-log 'debug "%s: the daemon will read its settings: %s"
                     (buffer-name) (error-message-string err))))
    (pyagentd-settings-show)))

(defun pyagentd-settings--from-files ()
  "Take over the name of the preset, and the settings that the block lacks."
  (when-let ((text (pyagentd-yaml-text
                    (pyagentd-place-scope-plan pyagentd--branch-dir))))
    (setq pyagentd-status-preset
          (plist-get (pyagentd-yaml-read text t) :preset)))
  (when-let ((text (and (not (file-exists-p     ; which owns a named agent's
                              (expand-file-name "agent.json"
                                                pyagentd--session-dir)))
                        (pyagentd-yaml-text
                         (pyagentd-place-preset pyagentd--branch-dir)))))
    (setq pyagentd-settings--own
          (pyagentd-settings--alist (pyagentd-yaml-preset text)))
    (unless (assq 'gptel--tool-names pyagentd-block--settings)
      (setq pyagentd-block-tools
            (list (alist-get 'gptel--tool-names pyagentd-settings--own))))
    (pcase-dolist (`(,variable . ,value) pyagentd-settings--own)
      (unless (assq variable pyagentd-block--settings)
        (pyagentd-block-set variable value)))
    (setq pyagentd-settings--saved (pyagentd-settings--current))))

(add-hook 'pyagentd-session-read-hook #'pyagentd-settings--read)

;; All of them are set, those without a value too, so that nothing is
;; inherited from elsewhere.
(defun pyagentd-settings-apply (settings)
  "Let this session use SETTINGS, a plist as on the wire, and nothing else."
  (pcase-dolist (`(,variable . ,value) (pyagentd-settings--alist settings))
    (pyagentd-block-set variable value))
  (pyagentd-settings-show (plist-get settings :model)))

(defun pyagentd-settings--stand-in-p ()
  "Return non-nil if no model answers here, but what stands in for one."
  (string-match-p "\\`offline\\(?:/\\|\\'\\)"
                  (format "%s" (or (getenv "PYAGENTD_BACKEND")
                                   (pyagentd-block-get 'gptel--backend-name)
                                   ""))))

(defun pyagentd-settings-show (&optional model)
  "Show in the header line which MODEL runs here, with a star for an override."
  (setq pyagentd-status-model
        (if (pyagentd-settings--stand-in-p) "offline stand-in"
          (concat (format "%s" (or (pyagentd-block-get 'gptel-model) model ""))
                  (and (pyagentd-settings-overridden) "*"))))
  (pyagentd-status-refresh))

(defun pyagentd-settings--segment ()
  "Return for the header line what is set for the next message only."
  (when pyagentd-settings-next
    (pyagentd-status-button
     (propertize
      (format "[next: %s]"
              (mapconcat (lambda (key) (substring (symbol-name key) 1))
                         (cl-loop for key in pyagentd-settings-next by #'cddr
                                  collect key) ", "))
      'face 'warning)
     'pyagentd-menu-model "Settings of the next message")))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-settings--segment)

(defun pyagentd-settings--after-save ()
  "Note what the file says now."
  (when pyagentd-settings--own
    (setq pyagentd-settings--saved (pyagentd-settings--current))
    (pyagentd-settings-show)))

(add-hook 'pyagentd-session-saved-hook #'pyagentd-settings--after-save)

;;;; Commands

(defun pyagentd-settings--save ()
  "Save the buffer, so that the daemon knows its settings."
  (unless pyagentd-mode (user-error "Not a session"))
  (when (pyagentd-settings-unsaved-p)
    (set-buffer-modified-p t))
  (pyagentd-session-save))

(defun pyagentd-settings--named (names)
  "Return NAMES of settings as a phrase."
  (mapconcat (lambda (name) (format "%s" name)) names ", "))

(defun pyagentd-keep-settings ()
  "Write the settings that were changed in this session to its preset.md."
  (interactive)
  (pyagentd-settings--save)
  (pyagentd-later-here 'keep-settings (list :branch pyagentd--branch-dir)
                       #'pyagentd-settings--kept))

(defun pyagentd-settings--kept (answer)
  "Take over and say what was written to preset.md, as ANSWER tells."
  (pyagentd-settings-receive answer)
  (message (if (plist-get answer :kept) "Saved to preset.md: %s"
             "No settings differ from preset.md")
           (pyagentd-settings--named (plist-get answer :kept))))

(defun pyagentd-drop-settings ()
  "Go back to the settings in the preset.md of this session."
  (interactive)
  (pyagentd-settings--save)
  (pyagentd-later-here 'drop-settings (list :branch pyagentd--branch-dir)
                       #'pyagentd-settings--dropped))

(defun pyagentd-settings--dropped (answer)
  "Go back to the settings of preset.md, which ANSWER tells."
  (setq pyagentd-settings--saved nil)
  (dolist (variable pyagentd-block-settings)
    (pyagentd-block-set variable nil))
  (pyagentd-settings-receive answer)
  (unless pyagentd-session-viewing
    (set-buffer-modified-p t)
    (pyagentd-session-save))
  (message (if (plist-get answer :dropped) "Reset to preset.md: %s"
             "No settings differ from preset.md")
           (pyagentd-settings--named (plist-get answer :dropped))))

;;;; Connect session buffers with the daemon

;; A buffer attaches to its branch when it was read: it says which text it
;; has and which event it saw last, and is told what is missing, where it
;; goes, who writes the file, and what was wrong with it.  Reading a file
;; never waits for a daemon.
;;
;; Where the text is not what the file holds, the file is read beside it
;; and shown once the daemon agrees to it (`pyagentd-reread').

(defvar-local pyagentd-attach-state nil
  "Whether this buffer is attached: nil, `pending' or t.")
(defvar-local pyagentd-attach-seq nil
  "Number of the last event that is in the text, nil if unknown.")
(defvar-local pyagentd-attach-partial nil
  "Non-nil if the text ends within an event: it came in pieces.")
(defvar-local pyagentd-attach-wants-lease nil
  "Non-nil if a buffer that only viewed is to ask whether it may edit.")
(defvar-local pyagentd-attach-free nil
  "Non-nil if nobody wrote this session when it was attached.")
(defvar-local pyagentd-attach-viewer nil
  "Non-nil in a buffer that was made to be looked at, not to write.
The symbol `hidden' until it is displayed, and attached, for the first
time.")
(defvar-local pyagentd-attach-root nil
  "Directory of the project of this session, nil if it is not known.")
(defvar-local pyagentd-attach--fresh nil
  "Buffer with the text of the file that is to be shown when attached.")
(defvar-local pyagentd-attach--start 0
  "Number of the last event that was in the answer to attach.")
(defvar-local pyagentd-attach--latest 0
  "How many requests were made; only the latest counts.")
(defvar-local pyagentd-attach--behind nil
  "Non-nil if the file was changed while an answer was awaited.")
(defvar-local pyagentd-attach--said nil
  "Notes about this session that were shown.")
(defvar-local pyagentd-attach-awaited nil
  "What waits until this buffer is attached, see `pyagentd-attached-then'.
That is a list of pairs of functions, (THEN . FAILED), first one first.")

(pyagentd-permanent-local 'pyagentd-attach-state 'pyagentd-attach-seq
                          'pyagentd-attach-partial
                          'pyagentd-attach-wants-lease 'pyagentd-attach-free
                          'pyagentd-attach-viewer 'pyagentd-attach-root
                          'pyagentd-attach--fresh
                          'pyagentd-attach--start 'pyagentd-attach--latest
                          'pyagentd-attach--behind 'pyagentd-attach--said
                          'pyagentd-attach-awaited)

(defvar pyagentd-attach--tries 0
  "How often the attach in progress was tried before.")

(defconst pyagentd-attach--max-tries 3
  "How often to attach anew at once because the text changed meanwhile.")

(defvar pyagentd-attached-hook nil
  "Hook run in a session buffer after it was attached.")

(defvar pyagentd-attach-failed-functions nil
  "Functions called in a session buffer that could not be attached.
They get the error, a list (SYMBOL . DATA).")

(defvar pyagentd-attach-roles-hook nil
  "Hook run in a session buffer after the daemon gave its text other roles.")

;;;; Requests

(defun pyagentd-attach--request ()
  "Return what to tell the daemon when attaching the current buffer."
  (when (pyagentd-session-in-step-p)
    (pyagentd-session-save))
  (setq pyagentd-attach-state 'pending
        pyagentd-attach--behind nil
        pyagentd-attach--latest (1+ pyagentd-attach--latest))
  (list :branch pyagentd--branch-dir
        :sha256 (cond (pyagentd-attach--fresh
                       (buffer-local-value 'pyagentd-reread-sha256
                                           pyagentd-attach--fresh))
                      ((or pyagentd-session-viewing (buffer-modified-p))
                       (pyagentd-session-body-sha256))
                      (t pyagentd-session-sha256))
        ;; Who wants to write must have what others have typed; the number
        ;; says nothing about that.
        :seq (unless (or pyagentd-attach--fresh pyagentd-attach-wants-lease)
               pyagentd-attach-seq)
        ;; After a restart of the daemon its editor comes back, too.
        :mode (if (and pyagentd-session-viewing
                       (or pyagentd-attach-seq pyagentd-attach-viewer)
                       (not pyagentd-attach-wants-lease))
                  'view
                'edit)))

(defun pyagentd-attach (&optional tries)
  "Attach the current buffer if there is a daemon; return at once.
TRIES is how often that was tried before."
  (when (and pyagentd-mode (pyagentd-rpc-connect))
    (let* ((buffer (current-buffer))
           (request (pyagentd-attach--request))
           (number pyagentd-attach--latest)
           (tick (buffer-chars-modified-tick))
           (with-latest
            (lambda (function)
              (when (buffer-live-p buffer)
                (with-current-buffer buffer
                  (when (= number pyagentd-attach--latest)
                    (funcall function)))))))
      (pyagentd-rpc-call-async
       'attach request
       :success
       (lambda (answer)
         ;; In its turn among the events; nothing is shown where it is read.
         (pyagentd-events-enqueue
          (lambda ()
            (funcall with-latest
                     (lambda ()
                       (pyagentd-attach--answered answer tick tries)))
            nil)))
       :error (lambda (err)
                (when (buffer-live-p buffer)
                  (pyagentd-log 'warn "%s: %s" (buffer-name buffer)
                                (pyagentd-error-text err)))
                (funcall with-latest
                         (lambda ()
                           (setq pyagentd-attach-state nil)
                           (pyagentd-attach-forget-fresh)
                           (run-hook-with-args
                            'pyagentd-attach-failed-functions err))))))))

(defun pyagentd-attach--answered (answer tick tries)
  "Act on ANSWER to the latest request, made when the text was at TICK.
TRIES is how often that was tried before."
  (let ((number pyagentd-attach--latest)
        (pyagentd-attach--tries (or tries 0)))
    (unwind-protect
        (pyagentd-attach--accept answer tick)
      ;; An error: the next event tries again.
      (when (= number pyagentd-attach--latest)
        (pyagentd-attach--settle)))))

(defun pyagentd-attach--settle ()
  "Note that no answer is awaited any more."
  (when (eq pyagentd-attach-state 'pending)
    (setq pyagentd-attach-state nil)))

;;;; Answers

(defun pyagentd-attach--accept (answer tick)
  "Act on ANSWER to a request made when the text was at TICK."
  ;; What arrived before the answer is in it, so it is skipped now, while
  ;; the buffer is not attached.
  (pyagentd-events-drain)
  (cond ((and (plist-get answer :reread)
              (< pyagentd-attach--tries pyagentd-attach--max-tries))
         (pyagentd-attach-reread pyagentd-attach--tries))
        ((plist-get answer :reread)
         (pyagentd-attach--try-later))
        ((and (or (plist-get answer :inserts) (plist-get answer :roles))
              (not pyagentd-attach--fresh)
              (/= tick (buffer-chars-modified-tick)))
         ;; Its positions are of a text that is no more.
         (pyagentd-attach--again))
        (t (pyagentd-attach--apply answer))))

(defun pyagentd-attach--again ()
  "Attach anew, at once or after a while, since the text has changed."
  (pyagentd-attach-forget-fresh)
  (setq pyagentd-attach-state nil)
  (if (< pyagentd-attach--tries pyagentd-attach--max-tries)
      (pyagentd-attach (1+ pyagentd-attach--tries))
    (pyagentd-attach--try-later)))

(defun pyagentd-attach-forget-fresh ()
  "Forget the text of the file that was to be shown."
  (when (buffer-live-p pyagentd-attach--fresh)
    (kill-buffer pyagentd-attach--fresh)
    (when (and (eql 0 (visited-file-modtime)) (not pyagentd-session-viewing))
      (set-visited-file-modtime '(0 1)))) ; changed, so Emacs asks as ever
  (setq pyagentd-attach--fresh nil))

(defun pyagentd-attach-reread (&optional tries)
  "Take over the text of the file once the daemon agrees to it.
TRIES is how often that was tried before.  Edits that were never saved
are made again in that text."
  (setq pyagentd-attach-state nil)
  (pyagentd-attach-forget-fresh)
  (when (pyagentd-session-in-step-p)
    (pyagentd-session-save))            ; what the file can have it gets first
  (let ((pyagentd-attach--tries (or tries 0)))
    (when (setq pyagentd-attach--fresh
                (pyagentd-reread-load buffer-file-name))
      (pyagentd-attach (1+ pyagentd-attach--tries)))))

(defun pyagentd-attach--file-changed ()
  "Take over the file, which another program has changed; return t if we can.
Without a daemon nobody says where in it the text of a run goes on."
  (when (and pyagentd-mode (not pyagentd-session-viewing)
             (pyagentd-rpc-connected-p) (file-exists-p buffer-file-name))
    (when (eq pyagentd-attach-state t)
      (pyagentd-attach-reread))
    (eq pyagentd-attach-state 'pending)))

(add-hook 'pyagentd-session-file-changed-functions
          #'pyagentd-attach--file-changed)

(defun pyagentd-attach--before-command ()
  "Take over a file that another program has changed.
Else Emacs asks about it when the text is changed or saved."
  (when (and pyagentd-attach-state
             (not (verify-visited-file-modtime))
             (pyagentd-attach--file-changed))
    (clear-visited-file-modtime)))

(defun pyagentd-attach--before-write ()
  "Refuse to overwrite a file whose text is about to be shown."
  (when (and pyagentd-attach--fresh (not (pyagentd-session-in-step-p)))
    (user-error "The file was changed elsewhere; its text comes in just now, \
and all is saved then")))

(add-hook 'pyagentd-session-before-write-hook #'pyagentd-attach--before-write)

(add-to-list 'pyagentd-session-hooks
             '(pre-command-hook . pyagentd-attach--before-command))
(put 'pyagentd-attach--before-command 'permanent-local-hook t)

(defun pyagentd-attach-show-file ()
  "Arrange that the next attach to the daemon shows the text of the file.
It asks for the right to write."
  (pyagentd-attach-forget-fresh)
  (setq pyagentd-attach-state nil
        pyagentd-attach-wants-lease t
        pyagentd-attach--fresh (pyagentd-reread-load buffer-file-name)))

(defun pyagentd-attach--try-later ()
  "Try again in a while, and ever less often after that.
Its editor has saved the file just now and the daemon does not know it yet."
  (pyagentd-log 'info "%s: cannot agree with the daemon on its text yet"
                (buffer-name))
  (setq pyagentd-attach-state nil)
  (pyagentd-attach-forget-fresh)
  (let ((tries (1+ pyagentd-attach--tries)))
    (run-at-time (pyagentd-attach--delay)
                 nil #'pyagentd-attach--on-later (current-buffer) tries)))

(defun pyagentd-attach--delay ()
  "Return the seconds after which to try again; less if something waits."
  (let ((times (expt 2 (max 0 (- pyagentd-attach--tries
                                 pyagentd-attach--max-tries)))))
    (if pyagentd-attach-awaited (min 0.5 (* 0.02 times))
      (min 60 times))))

(defun pyagentd-attach--on-later (buffer tries)
  "Attach BUFFER, for which TRIES were made, unless it is attached."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when (and pyagentd-mode (null pyagentd-attach-state)
                 (pyagentd-rpc-connected-p))
        (pyagentd-guarded "Read again"
          (pyagentd-attach-reread tries))))))

(defun pyagentd-attach--show-fresh (editor)
  "Show the text of the file, and set aside what was edited here.
Where we are the EDITOR, settings that were changed here stay."
  (let ((settings (and editor pyagentd-settings--saved
                       (mapcar (lambda (variable)
                                 (cons variable (pyagentd-block-get variable)))
                               (seq-filter #'pyagentd-settings--changed-p
                                           pyagentd-block-settings)))))
    (pyagentd-edit-set-aside (not editor))
    (pyagentd-reread-apply pyagentd-attach--fresh)
    (setq pyagentd-attach--fresh nil)
    (pcase-dolist (`(,variable . ,value) settings)
      (pyagentd-block-set variable value)
      (set-buffer-modified-p t)
      (pyagentd-autosave-touch))))

(defun pyagentd-attach--apply (answer)
  "Bring the buffer to the state described by ANSWER."
  (when pyagentd-attach--fresh
    (pyagentd-attach--show-fresh (plist-get answer :editor)))
  (setq pyagentd-attach-state t
        pyagentd-attach-seq (plist-get answer :seq)
        pyagentd-attach--start (or pyagentd-attach-seq 0)
        pyagentd-attach-partial nil
        pyagentd-attach-wants-lease nil
        pyagentd-attach-free (plist-get answer :free)
        pyagentd-attach-root (plist-get answer :root)
        pyagentd-viewing-refusal (plist-get answer :read-only)
        pyagentd-status-preset (plist-get answer :preset)
        pyagentd-status-unconfined (plist-get answer :unconfined))
  (when-let ((id (plist-get answer :session-id)))
    (pyagentd-place-set-id id))
  (pyagentd-viewing-set (not (plist-get answer :editor)))
  (pyagentd-settings-receive answer)
  (pyagentd-status-set-title (plist-get answer :title))
  (pyagentd-context-set (plist-get answer :context))
  (pyagentd-attach-set-roles (plist-get answer :roles))
  (when-let ((position (plist-get answer :marker)))
    (pyagentd-insert-start (min position (1+ (buffer-size)))))
  (pcase-dolist (`(,_seq ,text ,role) (plist-get answer :inserts))
    (pyagentd-insert text (pyagentd-attach-role role)))
  (pyagentd-queued-receive (plist-get answer :queue))
  (pyagentd-overlay-rebuild (plist-get answer :agents))
  (pyagentd-ask-receive (plist-get answer :asks) pyagentd--branch-dir)
  (pyagentd-todo-receive (plist-get answer :todo))
  (pyagentd-failed-receive (plist-get answer :failed)
                           (plist-get answer :summaries))
  (pyagentd-reply-options-receive (plist-get answer :reply-options))
  (pyagentd-attach--agree (plist-get answer :written))
  (unless pyagentd-session-viewing
    (pyagentd-edit-put-back pyagentd-insert--marker))
  (pyagentd-status-set (or (plist-get answer :status) '(:state idle)))
  (pyagentd-status-refresh)
  (pyagentd-attach--say (plist-get answer :notes))
  (run-hooks 'pyagentd-attached-hook)
  (when pyagentd-attach--behind
    (pyagentd-attach-reread)))

(defun pyagentd-attach--say (notes)
  "Show those of NOTES, a list of lines, that were not shown yet."
  (when-let ((new (seq-difference notes pyagentd-attach--said)))
    (setq pyagentd-attach--said (append new pyagentd-attach--said))
    (message "%s" (mapconcat (lambda (note) (format "%s: %s" (buffer-name) note))
                             new "\n"))))

(defun pyagentd-attach-set-roles (roles)
  "Give the text ROLES, a list of (BEG END ROLE), unless it is nil.
The file gets them with the next save, if we write it."
  (when roles
    (save-restriction
      (widen)
      (with-silent-modifications
        (remove-text-properties (point-min) (point-max) '(gptel nil))
        (pcase-dolist (`(,beg ,end ,role) roles)
          (put-text-property beg (min end (point-max)) 'gptel
                             (pyagentd-attach-role role)))))
    (unless pyagentd-session-viewing
      (set-buffer-modified-p t)
      (pyagentd-autosave-touch))))

(defun pyagentd-attach--file-sha256 (file)
  "Return the SHA-256 of the text of FILE without its block, nil without FILE."
  (with-temp-buffer
    (let ((coding-system-for-read 'utf-8-unix))
      (when (ignore-errors (insert-file-contents file))
        (pyagentd-block-strip)
        (pyagentd-session-body-sha256)))))

(defun pyagentd-attach--agree (written)
  "Note that nothing is in the file that the buffer lacks, if that is so.
Else Emacs would ask about a changed file at the next change.  The file
may hold what the buffer shows, or a text with the hash WRITTEN, which
the daemon wrote and of which the buffer was told the rest."
  (unless (and (not (eql 0 (visited-file-modtime))) ; 0: nothing is known
               (verify-visited-file-modtime))
    (let ((sha256 (pyagentd-attach--file-sha256 buffer-file-name)))
      (when (and sha256 (or (equal sha256 written)
                            (equal sha256 (pyagentd-session-body-sha256))))
        (set-visited-file-modtime)))))

(defun pyagentd-attach-role (role)
  "Return ROLE, as on the wire, as a value of the property `gptel'."
  (pcase role
    (`(,_ ,id) (cons 'tool id))
    (_ (pyagentd-symbol role))))

(defun pyagentd-attach-new-p (seq)
  "Return non-nil if event SEQ is not in the text yet, and note it.
Of several events that belong together only the last has a number, the
others have 0; so have those that are only true now."
  (cond ((not (eq pyagentd-attach-state t)) nil)
        ((eql seq 0) t)
        ((> seq pyagentd-attach--start)
         (setq pyagentd-attach-partial nil
               pyagentd-attach-seq (max seq (or pyagentd-attach-seq 0))))))

;;;; When the file was written elsewhere

(defun pyagentd-attach-follow (sha256)
  "Show what the file holds, a text with SHA256, that another one wrote."
  (cond ((equal sha256 (pyagentd-session-body-sha256))
         (setq pyagentd-session-sha256 sha256)
         (set-visited-file-modtime)
         (when pyagentd-session-viewing
           (set-buffer-modified-p nil)))
        ((eq pyagentd-attach-state 'pending)
         (setq pyagentd-attach--behind t))
        ((eq pyagentd-attach-state t)
         (pyagentd-attach-reread))))

;;;; When session buffers attach and leave

;; A buffer attaches soon after its file was read, tells what it saved, and
;; leaves with its buffer.  When the connection ends all of them wait for a
;; daemon, and attach to it.

(defcustom pyagentd-start-when-visiting t
  "Non-nil means start the daemon when you visit a session.
It starts in the background; you can read and edit the text meanwhile,
and settings are read from the session's files.  In batch mode, or where
no server is installed, no daemon is started."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

;;;; Buffers

(defun pyagentd-connect--after-read ()
  "Attach the current buffer soon; its file was read just now."
  (pyagentd-attach-forget-fresh)
  (setq pyagentd-attach-state nil
        pyagentd-attach-seq nil)
  (pyagentd-status-set nil)
  (pyagentd-status-refresh)
  (run-at-time 0 nil #'pyagentd-connect--visited (current-buffer)))

(defun pyagentd-connect--later (buffer)
  "Attach BUFFER unless that was done meanwhile."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (unless (or pyagentd-attach-state
                  (eq pyagentd-attach-viewer 'hidden))
        (pyagentd-guarded "Attach" (pyagentd-attach))))))

(defun pyagentd-connect--visited (buffer)
  "Attach BUFFER, whose file was read just now, and start a daemon for it.
`pyagentd-start-when-visiting' says whether."
  (pyagentd-connect--later buffer)
  (when (and pyagentd-start-when-visiting (not noninteractive)
             (buffer-live-p buffer)
             (not (eq (buffer-local-value 'pyagentd-attach-viewer buffer)
                      'hidden))
             (not (pyagentd-rpc-connected-p))
             (pyagentd-server-found))
    ;; All sessions attach when there is a connection.
    (pyagentd-guarded "Starting the daemon" (pyagentd-start #'ignore))))

(defun pyagentd-connect--saved ()
  "Tell the daemon what was saved."
  (when (and (eq pyagentd-attach-state t) (not pyagentd-session-viewing)
             ;; No number says what a partial text has; the next save will.
             (not pyagentd-attach-partial))
    (pyagentd-rpc-call-async
     'saved (list :branch pyagentd--branch-dir
                  :sha256 pyagentd-session-sha256
                  :seq pyagentd-attach-seq
                  ;; Where no run is known to end is no place for another.
                  :marker (and pyagentd-insert--marker
                               (pyagentd-insert-position))))))

(defun pyagentd-connect--leave ()
  "Detach the current buffer.
The daemon may hold it for the one that writes although they do not
agree on its text just now."
  (when (and (> pyagentd-attach--latest 0) (pyagentd-rpc-connected-p))
    (pyagentd-rpc-call-async 'detach (list :branch pyagentd--branch-dir)
                             :error #'ignore))
  (pyagentd-attach-forget-fresh)
  (setq pyagentd-attach-state nil
        pyagentd-viewing-refusal nil)
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
  "Timer that looks for a daemon after the connection ended.")

(defvar pyagentd-connect-wanted-functions nil
  "Functions that return non-nil where a daemon is to be looked for.
They are called without arguments after a connection has ended, where no
session is in any buffer.")

(defun pyagentd-connect--wanted-p ()
  "Return non-nil if there is something here that a daemon is needed for."
  (or (pyagentd-place-buffers)
      (run-hook-with-args-until-success 'pyagentd-connect-wanted-functions)))

(defun pyagentd-connect--all ()
  "Attach all session buffers that are not."
  (dolist (buffer (pyagentd-place-buffers))
    (pyagentd-connect--later buffer)))

(defun pyagentd-connect--disconnected ()
  "Show in all session buffers that there is no daemon, and look for one."
  (pyagentd-ask-clear)
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (setq pyagentd-attach-state nil)
      (pyagentd-attach-forget-fresh)
      (pyagentd-overlay-forget)
      (pyagentd-insert-flush)
      (pyagentd-status-set nil)))
  (when (pyagentd-connect--wanted-p)
    (pyagentd-connect--watch))
  (pyagentd-connect--retry 1))

(defvar pyagentd-connect--watch nil
  "What watches for the next daemon after the connection ended, or nil.")

(defun pyagentd-connect--watch ()
  "Connect as soon as a daemon listens, where a directory can be watched.
Whoever wrote a session is to come back before those that only followed
it ask whether they may write (`pyagentd-lease--modesty')."
  (pyagentd-connect--unwatch)
  (setq pyagentd-connect--watch
        (ignore-errors
          (require 'filenotify)
          (file-notify-add-watch
           (file-name-directory (pyagentd-rpc-runtime-file))
           '(change) #'pyagentd-connect--on-file))))

(defun pyagentd-connect--unwatch ()
  "Watch for a daemon no more."
  (when pyagentd-connect--watch
    (ignore-errors (file-notify-rm-watch pyagentd-connect--watch))
    (setq pyagentd-connect--watch nil)))

(defun pyagentd-connect--on-file (event)
  "Look for a daemon if EVENT is about the file that says where it listens."
  (when (and (not (memq (nth 1 event) '(deleted stopped)))
             (member (pyagentd-rpc-runtime-file) (nthcdr 2 event)))
    (pyagentd-connect--retry 0.01)))

(defun pyagentd-connect--retry (delay)
  "Look for a daemon after DELAY seconds, and ever less often after that."
  (when pyagentd-connect--retry (cancel-timer pyagentd-connect--retry))
  (setq pyagentd-connect--retry
        (run-at-time
         delay nil
         (lambda ()
           (setq pyagentd-connect--retry nil)
           (pyagentd-guarded "Reconnect"
             (unless (or (not (pyagentd-connect--wanted-p))
                         (pyagentd-rpc-connect))
               (pyagentd-connect--retry (min 60 (* 2 delay)))))))))

(add-hook 'pyagentd-session-read-hook #'pyagentd-connect--after-read)
(add-hook 'pyagentd-session-saved-hook #'pyagentd-connect--saved)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-connect--leave)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-connect--all)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-connect--unwatch)
(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-connect--disconnected)

;;;; What waits until a session is attached

;; A prompt can be sent as soon as the daemon knows the text of its
;; session.  Until then what is to be done with the session waits here, and
;; Emacs goes on: the buffer is attached (`pyagentd-attach'), where there
;; is no daemon after it was started.

(defvar-local pyagentd-attached--timer nil
  "Timer that gives up waiting, or nil.")

(pyagentd-permanent-local 'pyagentd-attached--timer)

(defun pyagentd-attached-p ()
  "Return non-nil if buffer and daemon agree on the text of this session."
  (and (eq pyagentd-attach-state t) (pyagentd-rpc-connected-p)))

(defun pyagentd-attached-then (then &optional failed)
  "Call THEN without arguments in this session buffer once it is attached.
At once if it is.  Otherwise return, attach it, and start a daemon if
there is none.  If that fails FAILED is called here with the error, a
list (SYMBOL . DATA); by default it is told in the echo area."
  (when (and (pyagentd-attached-p) (not (verify-visited-file-modtime)))
    (pyagentd-attach--file-changed))
  (if (pyagentd-attached-p)
      (funcall then)
    (let ((entry (cons then (or failed #'pyagentd-later-tell))))
      (setq pyagentd-attach-awaited (append pyagentd-attach-awaited
                                            (list entry)))
      (condition-case err
          (pyagentd-start (pyagentd-later-back #'pyagentd-attached--begin)
                          (pyagentd-later-back #'pyagentd-attached--fail))
        ;; The user may quit when asked whether to install the server.
        ((error quit)
         (setq pyagentd-attach-awaited (delq entry pyagentd-attach-awaited))
         (signal (car err) (cdr err)))))
    nil))

(defun pyagentd-attached--begin ()
  "Attach this buffer, and give up after a while."
  (unless pyagentd-attached--timer
    (setq pyagentd-attached--timer
          (run-at-time pyagentd-call-timeout nil
                       (pyagentd-later-back #'pyagentd-attached--give-up))))
  (unless (pyagentd-attached-p)
    ;; Also where an answer is awaited: it may be about an older text.
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)))

(defun pyagentd-attached--give-up ()
  "Let nothing wait any longer."
  (let ((silent (eq pyagentd-attach-state 'pending)))
    (unless (eq pyagentd-attach-state t)
      (setq pyagentd-attach-state nil))
    (pyagentd-attached--fail
     (cond (silent (list 'pyagentd-timeout 'attach))
           ((not (pyagentd-rpc-connected-p))
            (list 'pyagentd-disconnected "try again"))
           (t (list 'user-error
                    (substitute-command-keys
                     "Buffer and file differ, or the file keeps changing; \
\\[revert-buffer] reads it, then send again")))))))

(defun pyagentd-attached-cancel ()
  "Let nothing wait any longer, since the user does not want it."
  (pyagentd-attached--fail (list 'user-error "You stopped it")))

(defun pyagentd-attached--take ()
  "Return what waits here, pairs (THEN . FAILED), which waits no longer."
  (when pyagentd-attached--timer
    (cancel-timer pyagentd-attached--timer))
  (prog1 pyagentd-attach-awaited
    (setq pyagentd-attached--timer nil
          pyagentd-attach-awaited nil)))

(defun pyagentd-attached--fail (err)
  "Tell what waits here that ERR, (SYMBOL . DATA), kept it from going on."
  (pcase-dolist (`(,_ . ,failed) (pyagentd-attached--take))
    (pyagentd-guarded "Attach" (funcall failed err))))

(defun pyagentd-attached--go ()
  "Go on with what waited, if the buffer is still attached."
  (when (pyagentd-attached-p)
    (pcase-dolist (`(,then . ,_) (pyagentd-attached--take))
      (pyagentd-later-soon then))))

(defun pyagentd-attached--soon ()
  "Go on soon with what waited: not where the answer was read."
  (when pyagentd-attach-awaited
    (pyagentd-later-soon #'pyagentd-attached--go)))

(add-hook 'pyagentd-attached-hook #'pyagentd-attached--soon)
(add-hook 'pyagentd-attach-failed-functions #'pyagentd-attached--fail)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-attached--take)

;;;; Several Emacsen, one of which writes

;; One Emacs writes a session, the others follow it.  When the one that
;; writes leaves, another one writes without anybody doing anything; and
;; `pyagentd-take-over' has it give way.  Edits that were never saved, since
;; their Emacs did not answer when it was asked to give way, are set aside,
;; and made again when it writes again.

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
    (let ((unsaved (buffer-modified-p)))
      (pyagentd-log 'warn "%s: another Emacs (%s) took over; \
this buffer follows it%s" (buffer-name) by
                    (if unsaved ", and what you wrote comes back when you \
write here again: M-x pyagentd-take-over" ""))
      (when unsaved
        (pyagentd-attach-reread)))))

;;;; Taking

(defun pyagentd-lease--ask ()
  "Ask to write, since nobody does."
  (when (and pyagentd-mode pyagentd-session-viewing
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

(defun pyagentd-take-over ()
  "Take over writing this session; its present editor is asked to stop.
What was written here and never saved, since another Emacs took over
while this one did not answer, comes back."
  (interactive)
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (unless pyagentd-mode (user-error "Not a session"))
    (pyagentd-lease--take)))

(defun pyagentd-lease--take ()
  "Become the one that writes the session in this buffer, later if need be."
  (setq pyagentd-attach-wants-lease t)
  (let ((done (lambda () (message "You now write %s" (buffer-name)))))
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

;;;; Recovered roles

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

;;;; Buffers of agents that were spawned

;; An agent that a session in Emacs spawns gets a buffer, so that it can be
;; looked at while it works.  Two hundred agents must not cost Emacs two
;; hundred buffers: a few get one, it is attached when it is displayed, and
;; it goes with its agent if nobody has looked at it.  Everything else is
;; opened by visiting the file.

(defconst pyagentd-spawned--most 10
  "How many agents have a buffer that nobody asked for.")

(defvar pyagentd-spawned--hidden nil
  "Alist of the buffers that were not displayed yet: buffer and (PARENT . ID).
PARENT is the buffer of the session that waits for the agent ID.")

(defun pyagentd-spawned--begun (agent)
  "Make a buffer for AGENT, a plist, which the current buffer's session spawned."
  (let ((file (pyagentd-place-conversation (plist-get agent :branch-dir))))
    (when (and (< (length pyagentd-spawned--hidden) pyagentd-spawned--most)
               (file-exists-p file)
               (not (find-buffer-visiting file)))
      (push (cons (pyagentd-spawned--open file)
                  (cons (current-buffer) (plist-get agent :id)))
            pyagentd-spawned--hidden))))

(defun pyagentd-spawned--open (file)
  "Return a new buffer that views FILE once it is displayed."
  (let ((buffer (find-file-noselect file t)))
    (with-current-buffer buffer
      (setq pyagentd-attach-viewer 'hidden)
      ;; Else visiting it asks whether to read the file again.
      (clear-visited-file-modtime)
      (pyagentd-viewing-set t)
      (add-hook 'window-buffer-change-functions #'pyagentd-spawned--displayed
                nil t)
      (add-hook 'kill-buffer-hook #'pyagentd-spawned--forget nil t))
    buffer))

(defun pyagentd-spawned--displayed (window)
  "Follow the agent in the buffer of WINDOW from now on."
  (with-current-buffer (window-buffer window)
    (when (eq pyagentd-attach-viewer 'hidden)
      (setq pyagentd-attach-viewer t)
      (remove-hook 'window-buffer-change-functions #'pyagentd-spawned--displayed
                   t)
      (pyagentd-spawned--forget)
      (pyagentd-connect--later (current-buffer)))))

(defun pyagentd-spawned--forget ()
  "Let the user have the current buffer for good."
  (setq pyagentd-spawned--hidden
        (assq-delete-all (current-buffer) pyagentd-spawned--hidden)))

(defun pyagentd-spawned--tidy ()
  "Kill the buffers of agents that have ended and that nobody looked at."
  (pcase-dolist (`(,buffer . (,parent . ,id)) pyagentd-spawned--hidden)
    (unless (and (buffer-live-p parent)
                 (with-current-buffer parent
                   (or (assoc id pyagentd-overlay--table)
                       (assoc id pyagentd-overlay--background))))
      (setq pyagentd-spawned--hidden
            (assq-delete-all buffer pyagentd-spawned--hidden))
      (when (buffer-live-p buffer)
        (kill-buffer buffer)))))

(add-hook 'pyagentd-overlay-begun-functions #'pyagentd-spawned--begun)
(add-hook 'pyagentd-overlay-changed-hook #'pyagentd-spawned--tidy)

(provide 'pyagentd-sync)
;;; pyagentd-sync.el ends here

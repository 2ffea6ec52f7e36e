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
(require 'pyagentd-events)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-overlay)
(require 'pyagentd-ask)
(require 'pyagentd-answer)
(require 'pyagentd-notify)
(require 'pyagentd-status)
(require 'pyagentd-settings)
(require 'pyagentd-viewing)
(require 'pyagentd-attach)
(require 'pyagentd-connect)
(require 'pyagentd-lease)

(declare-function pyagentd-menu "pyagentd-menu" nil t)

(defvar pyagentd-run-finished-functions nil
  "Functions called in a session buffer when a run has finished.
They get the plist of the run: :id, :reason (`done', `error' or
`aborted') and :message.")

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
    (user-error "Not a session; M-x pyagentd-session makes one"))
  (cond (pyagentd-viewing-refusal
         (user-error "Cannot send: %s" pyagentd-viewing-refusal))
        (pyagentd-viewing-diverged
         (user-error "This text is not saved; M-x pyagentd-take-over"))
        (pyagentd-session-viewing
         (user-error
          "Another client writes this session; M-x pyagentd-take-over"))))

(defun pyagentd-chat--check ()
  "Signal a `user-error' unless a prompt can be sent from this buffer."
  (pyagentd-chat--check-writer)
  (when (pyagentd-status-busy-p)
    (user-error "A run is in progress; %s stops it"
                (substitute-command-keys "\\[pyagentd-abort]"))))

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
    (pyagentd-chat--connect)
    (let ((end (pyagentd-chat--prompt-end)))
      (with-current-buffer (or (buffer-base-buffer) (current-buffer))
        (pyagentd-chat--check)
        (pyagentd-chat--save)
        (deactivate-mark)
        (pyagentd-chat--send end)))))

(defun pyagentd-chat--connect ()
  "Attach the session; what the daemon had to add to the file is read.
A prompt that ended the text still does afterwards."
  (let ((from-end (- (pyagentd-chat--size) (pyagentd-chat--prompt-end))))
    (with-current-buffer (or (buffer-base-buffer) (current-buffer))
      (pyagentd-attach-now))
    (when (zerop from-end)
      (goto-char (pyagentd-chat--size)))))

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

(defun pyagentd-chat-ready ()
  "Attach the session here and save it, before something is sent for it.
Signal a `user-error' if nothing can be written from this buffer."
  (pyagentd-chat--check-writer)
  (pyagentd-attach-now)
  (pyagentd-chat--check-writer)
  (pyagentd-chat--save))

(defun pyagentd-chat--send (end)
  "Ask the daemon to answer the saved text up to END."
  (let ((buffer (current-buffer)))
    (pyagentd-insert-start end)
    (pyagentd-status-set '(:state sending))
    (pyagentd-rpc-call-async
     'send (list :branch pyagentd--branch-dir
                 :sha256 pyagentd-session-sha256 :end end
                 :env (pyagentd-env-variables) :key (pyagentd-env-key)
                 :allow nil)
     :error (lambda (err)
              (when (buffer-live-p buffer)
                (with-current-buffer buffer
                  (pyagentd-status-set
                   (list :state 'error :message (pyagentd-error-text err)))))
              (message "%s" (pyagentd-error-text err))))))

(defun pyagentd-abort (&optional whole)
  "Stop the run of this buffer; what it has said stays.
If something is asked here, only the agent that asks is stopped; with a
prefix argument, or WHOLE from Lisp, the run of this buffer with all its
agents."
  (interactive "P")
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (if (and (pyagentd-ask-here) (not whole))
        (pyagentd-ask-abort)
      (pyagentd-rpc-call-async
       'abort (list :branch pyagentd--branch-dir)
       :timeout pyagentd-call-timeout
       :success (lambda (answer)
                  (unless (plist-get answer :aborted)
                    (message "Nothing to abort")))
       :error (lambda (err) (message "%s" (pyagentd-error-text err)))))))

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

(pyagentd-chat--define-event prompt `(,text)
  "Insert the prompt of another client at the end, where its answer follows."
  (let ((body (save-restriction
                (widen)
                (buffer-substring-no-properties
                 (max (point-min) (- (point-max)
                                     (length pyagentd-prompt-prefix)))
                 (point-max)))))
    (pyagentd-insert-start (1+ (buffer-size)))
    (pyagentd-insert (pyagentd-chat--join body text) nil)))

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

(provide 'pyagentd-chat)
;;; pyagentd-chat.el ends here

;;; pyagentd-attach.el --- Connect session buffers with the daemon -*- lexical-binding: t; -*-

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

;; A buffer attaches to its branch when it was read: it says which text it
;; has and which event it saw last, and is told what is missing, where it
;; goes, who writes the file, and what was wrong with it.  Reading a file
;; never waits for a daemon.
;;
;; Where the text is not what the file holds, the file is read beside it
;; and shown once the daemon agrees to it (`pyagentd-reread').

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-block)
(require 'pyagentd-events)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-queued)
(require 'pyagentd-overlay)
(require 'pyagentd-ask)
(require 'pyagentd-chips)
(require 'pyagentd-todo)
(require 'pyagentd-failed)
(require 'pyagentd-context)
(require 'pyagentd-status)
(require 'pyagentd-settings)
(require 'pyagentd-viewing)
(require 'pyagentd-reread)

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
  (pyagentd-session-save)
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
        ((and (or (plist-get answer :inserts) (plist-get answer :roles)
                  pyagentd-attach--fresh)
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
    (kill-buffer pyagentd-attach--fresh))
  (setq pyagentd-attach--fresh nil))

(defun pyagentd-attach-diverge ()
  "Keep the text of this buffer, which the file does not have, and say so."
  (setq pyagentd-attach-state nil)
  (pyagentd-attach-forget-fresh)
  (unless pyagentd-viewing-diverged
    (setq pyagentd-viewing-diverged t)
    ;; Leaving Emacs asks then.
    (setq-local buffer-save-without-query nil)
    (pyagentd-viewing-set pyagentd-session-viewing)
    (pyagentd-log 'warn "%s: %s" (buffer-name) pyagentd-viewing-diverged-text))
  (run-hook-with-args 'pyagentd-attach-failed-functions
                      (list 'user-error pyagentd-viewing-diverged-text)))

(defun pyagentd-attach-reread (&optional tries)
  "Take over the text of the file once the daemon agrees to it.
TRIES is how often that was tried before.  Text that was never saved is
kept instead."
  (setq pyagentd-attach-state nil)
  (pyagentd-attach-forget-fresh)
  (let ((pyagentd-attach--tries (or tries 0)))
    (cond ((buffer-modified-p) (pyagentd-attach-diverge))
          ((not (setq pyagentd-attach--fresh
                      (pyagentd-reread-load buffer-file-name))))
          (t (pyagentd-attach (1+ pyagentd-attach--tries))))))

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
                 (not pyagentd-viewing-diverged)
                 (pyagentd-rpc-connected-p))
        (pyagentd-guarded "Read again"
          (if (buffer-modified-p)
              (pyagentd-attach tries)
            (pyagentd-attach-reread tries)))))))

(defun pyagentd-attach--apply (answer)
  "Bring the buffer to the state described by ANSWER."
  (when pyagentd-attach--fresh
    (pyagentd-reread-apply pyagentd-attach--fresh)
    (setq pyagentd-attach--fresh nil))
  (setq pyagentd-attach-state t
        pyagentd-attach-seq (plist-get answer :seq)
        pyagentd-attach--start (or pyagentd-attach-seq 0)
        pyagentd-attach-partial nil
        pyagentd-viewing-diverged nil
        pyagentd-attach-wants-lease nil
        pyagentd-attach-free (plist-get answer :free)
        pyagentd-attach-root (plist-get answer :root)
        pyagentd-viewing-refusal (plist-get answer :read-only)
        pyagentd-status-preset (plist-get answer :preset)
        pyagentd-status-unconfined (plist-get answer :unconfined))
  (kill-local-variable 'buffer-save-without-query)
  (setq-local buffer-save-without-query t)
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
  (pyagentd-chips-receive (plist-get answer :chips))
  (pyagentd-attach--agree (plist-get answer :written))
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
        (pyagentd-viewing-diverged)
        ((eq pyagentd-attach-state 'pending)
         (setq pyagentd-attach--behind t))
        ((eq pyagentd-attach-state t)
         (pyagentd-attach-reread))))

(provide 'pyagentd-attach)
;;; pyagentd-attach.el ends here

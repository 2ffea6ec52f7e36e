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
;; goes, and who writes the file.  Reading a file neither starts a daemon
;; nor waits for one.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-block)
(require 'pyagentd-events)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-overlay)
(require 'pyagentd-ask)
(require 'pyagentd-status)

(defvar-local pyagentd-attach-state nil
  "Whether this buffer is attached: nil, `pending' or t.")
(defvar-local pyagentd-attach-seq nil
  "Number of the last event that is in the text, nil if unknown.")
(defvar-local pyagentd-attach-partial nil
  "Non-nil if the text ends within an event: it came in pieces.")
(defvar-local pyagentd-attach--start 0
  "Number of the last event that was in the answer to attach.")
(defvar-local pyagentd-attach--latest 0
  "How many requests were made; only the latest counts.")
(defvar-local pyagentd-attach--locked nil
  "Non-nil if we made the buffer read-only.")

(dolist (variable '(pyagentd-attach-state pyagentd-attach-seq
                    pyagentd-attach-partial
                    pyagentd-attach--start pyagentd-attach--latest
                    pyagentd-attach--locked))
  (put variable 'permanent-local t))

(defvar pyagentd-attach--tries 0
  "How often the attach in progress was tried before.")

(defconst pyagentd-attach--max-tries 3
  "How often to attach anew because the text changed meanwhile.")

;;;; Requests

(defun pyagentd-attach--request ()
  "Return what to tell the daemon when attaching the current buffer."
  (pyagentd-session-save)
  (setq pyagentd-attach-state 'pending
        pyagentd-attach--latest (1+ pyagentd-attach--latest))
  (list :branch pyagentd--branch-dir :sha256 pyagentd-session-sha256
        :seq pyagentd-attach-seq
        ;; Who only viewed so far may not have what the editor typed; it
        ;; can edit once it has read the file anew.
        :mode (if (and pyagentd-session-viewing pyagentd-attach-seq) 'view
                'edit)))

(defun pyagentd-attach (&optional tries)
  "Attach the current buffer if there is a daemon; return at once.
TRIES is how often that was tried before."
  (when (and pyagentd-mode (pyagentd-rpc-connect))
    (let* ((buffer (current-buffer))
           (request (pyagentd-attach--request))
           (number pyagentd-attach--latest)
           (tick (buffer-chars-modified-tick)))
      (pyagentd-rpc-call-async
       'attach request
       :success (lambda (answer)
                  (when (buffer-live-p buffer)
                    (with-current-buffer buffer
                      (when (= number pyagentd-attach--latest)
                        (let ((pyagentd-attach--tries (or tries 0)))
                          (pyagentd-attach--accept answer tick))))))
       :error (lambda (err)
                (when (buffer-live-p buffer)
                  (with-current-buffer buffer
                    (when (= number pyagentd-attach--latest)
                      (setq pyagentd-attach-state nil))
                    (pyagentd-log 'warn "%s: %s" (buffer-name)
                                  (pyagentd-error-text err)))))))))

(defun pyagentd-attach-now ()
  "Attach the current buffer, waiting for it; start a daemon if needed.
A file that the daemon completed meanwhile is read anew."
  (pyagentd-rpc-connect t)
  (let ((pyagentd-attach--tries 0))
    (while (and (not (eq pyagentd-attach-state t))
                (< pyagentd-attach--tries pyagentd-attach--max-tries))
      (let ((request (pyagentd-attach--request))
            (tick (buffer-chars-modified-tick))
            (tries pyagentd-attach--tries))
        (pyagentd-attach--accept (pyagentd-rpc-call 'attach request) tick)
        (setq pyagentd-attach--tries (1+ tries)))))
  (unless (eq pyagentd-attach-state t)
    (user-error "The file changed on disk; look at it and send again")))

;;;; Answers

(defun pyagentd-attach--accept (answer tick)
  "Act on ANSWER to a request made when the text was at TICK."
  ;; What arrived before the answer is in it, so it is skipped now, while
  ;; the buffer is not attached.
  (pyagentd-events-drain)
  (cond ((plist-get answer :reread)
         (pyagentd-attach--reread))
        ((and (plist-get answer :inserts)
              (/= tick (buffer-chars-modified-tick))
              (< pyagentd-attach--tries pyagentd-attach--max-tries))
         ;; Its positions are of a text that is no more.
         (pyagentd-attach (1+ pyagentd-attach--tries)))
        (t (pyagentd-attach--apply answer))))

(defun pyagentd-attach--reread ()
  "Read the file anew, since it is not what the buffer had read."
  (setq pyagentd-attach-state nil)
  (cond ((and (buffer-modified-p) (not pyagentd-session-viewing))
         (pyagentd-log 'warn "%s changed on disk; M-x revert-buffer to read it"
                       (buffer-name)))
        ((< pyagentd-attach--tries pyagentd-attach--max-tries)
         (pyagentd-attach-read-file (1+ pyagentd-attach--tries)))
        (t (pyagentd-attach--reread-later))))

(defun pyagentd-attach-read-file (tries)
  "Read the file and attach the buffer, for which TRIES were made before."
  (let ((pyagentd-attach--tries tries)
        (pos (point)))
    (revert-buffer t t t)
    (goto-char (min pos (point-max)))))

(defun pyagentd-attach--reread-later ()
  "Read the file again in a while, and ever less often after that.
Its editor has saved it just now and the daemon does not know it yet."
  (pyagentd-log 'info "%s: cannot agree with the daemon on its text yet"
                (buffer-name))
  (let ((tries (1+ pyagentd-attach--tries)))
    (run-at-time (min 60 (expt 2 (- pyagentd-attach--tries
                                    pyagentd-attach--max-tries)))
                 nil #'pyagentd-attach--on-reread (current-buffer) tries)))

(defun pyagentd-attach--on-reread (buffer tries)
  "Read the file of BUFFER, for which TRIES were made, unless it is attached."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when (and pyagentd-mode (null pyagentd-attach-state)
                 (pyagentd-rpc-connected-p)
                 (or pyagentd-session-viewing (not (buffer-modified-p))))
        (pyagentd-guarded "Read again"
          (pyagentd-attach-read-file tries))))))

(defun pyagentd-attach--apply (answer)
  "Bring the buffer to the state described by ANSWER."
  (setq pyagentd-attach-state t
        pyagentd-attach-seq (plist-get answer :seq)
        pyagentd-attach--start (or pyagentd-attach-seq 0)
        pyagentd-attach-partial nil
        pyagentd-status-preset (plist-get answer :preset)
        pyagentd-status-model (plist-get answer :model))
  (pyagentd-attach-set-viewing (not (plist-get answer :editor)))
  (pyagentd-attach--set-variables (plist-get answer :settings))
  (when-let ((position (plist-get answer :marker)))
    (pyagentd-insert-start (min position (1+ (buffer-size)))))
  (pcase-dolist (`(,_seq ,text ,role) (plist-get answer :inserts))
    (pyagentd-insert text (pyagentd-attach-role role)))
  (pyagentd-overlay-rebuild (plist-get answer :agents))
  (dolist (ask (plist-get answer :asks))
    (pyagentd-ask-add ask pyagentd--branch-dir))
  (pyagentd-attach--agree)
  (pyagentd-status-set (or (plist-get answer :status) '(:state idle)))
  (pyagentd-status-refresh))

(defun pyagentd-attach--file-sha256 (file)
  "Return the SHA-256 of the text of FILE without its block, nil without FILE."
  (with-temp-buffer
    (let ((coding-system-for-read 'utf-8-unix))
      (when (ignore-errors (insert-file-contents file))
        (pyagentd-block-strip)
        (pyagentd-session-body-sha256)))))

(defun pyagentd-attach--agree ()
  "Note that the file holds what the buffer shows, if somebody wrote just that.
Else Emacs would ask about a changed file at the next change."
  (when (and (not (verify-visited-file-modtime))
             (equal (pyagentd-attach--file-sha256 buffer-file-name)
                    (pyagentd-session-body-sha256)))
    (set-visited-file-modtime)))

(defun pyagentd-attach-role (role)
  "Return ROLE, as on the wire, as a value of the property `gptel'."
  (pcase role
    (`(,_ ,id) (cons 'tool id))
    (_ (pyagentd-symbol role))))

(defun pyagentd-attach--set-variables (settings)
  "Set gptel's variables from SETTINGS, a plist."
  (when-let ((model (plist-get settings :model)))
    (pyagentd-block-set 'gptel-model (intern (format "%s" model))))
  (when-let ((backend (plist-get settings :backend)))
    (pyagentd-block-set 'gptel--backend-name backend))
  (when (plist-member settings :tools)
    (pyagentd-block-set 'gptel--tool-names (plist-get settings :tools)))
  (when-let ((temperature (plist-get settings :temperature)))
    (pyagentd-block-set 'gptel-temperature temperature)))

(defun pyagentd-attach-set-viewing (viewing)
  "Make the buffer read-only if VIEWING, that is if another client writes."
  (setq pyagentd-session-viewing viewing)
  (cond ((and viewing (not buffer-read-only))
         (setq buffer-read-only t
               pyagentd-attach--locked t))
        ((and pyagentd-attach--locked (not viewing))
         (setq buffer-read-only nil
               pyagentd-attach--locked nil)))
  (pyagentd-status-refresh))

(defun pyagentd-attach-new-p (seq)
  "Return non-nil if event SEQ is not in the text yet, and note it.
Of several events that belong together only the last has a number, the
others have 0; so have those that are only true now."
  (cond ((not (eq pyagentd-attach-state t)) nil)
        ((eql seq 0) t)
        ((> seq pyagentd-attach--start)
         (setq pyagentd-attach-partial nil
               pyagentd-attach-seq (max seq (or pyagentd-attach-seq 0))))))

;;;; When

(defun pyagentd-attach--after-read ()
  "Attach the current buffer soon; its file was read just now."
  (setq pyagentd-attach-state nil
        pyagentd-attach-seq nil)
  (pyagentd-status-set nil)
  (pyagentd-status-refresh)
  (run-at-time 0 nil #'pyagentd-attach--later (current-buffer)
               pyagentd-attach--tries))

(defun pyagentd-attach--later (buffer tries)
  "Attach BUFFER unless that was done meanwhile.
TRIES is that of `pyagentd-attach'."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (unless pyagentd-attach-state
        (pyagentd-guarded "Attach" (pyagentd-attach tries))))))

(defun pyagentd-attach--saved ()
  "Tell the daemon what was saved."
  (when (and (eq pyagentd-attach-state t) (not pyagentd-session-viewing)
             ;; No number says what a partial text has; the next save will.
             (not pyagentd-attach-partial))
    (pyagentd-rpc-call-async
     'saved (list :branch pyagentd--branch-dir
                  :sha256 pyagentd-session-sha256
                  :seq pyagentd-attach-seq
                  :marker (pyagentd-insert-position)))))

(defun pyagentd-attach--leave ()
  "Detach the current buffer."
  (when (and pyagentd-attach-state (pyagentd-rpc-connected-p))
    (pyagentd-rpc-call-async 'detach (list :branch pyagentd--branch-dir)
                             :error #'ignore))
  (setq pyagentd-attach-state nil)
  (pyagentd-attach-set-viewing nil)
  (pyagentd-insert-flush)
  (pyagentd-overlay-clear))

;;;; Connection

(defvar pyagentd-attach--retry nil
  "Timer that looks for a daemon after the connection ended.")

(defun pyagentd-attach--all ()
  "Attach all session buffers that are not."
  (dolist (buffer (pyagentd-place-buffers))
    (pyagentd-attach--later buffer 0)))

(defun pyagentd-attach--disconnected ()
  "Show in all session buffers that there is no daemon, and look for one."
  (pyagentd-ask-clear)
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (setq pyagentd-attach-state nil)
      (pyagentd-overlay-clear)
      (pyagentd-insert-flush)
      (pyagentd-status-set nil)))
  (pyagentd-attach--retry 1))

(defun pyagentd-attach--retry (delay)
  "Look for a daemon after DELAY seconds, and ever less often after that."
  (when pyagentd-attach--retry (cancel-timer pyagentd-attach--retry))
  (setq pyagentd-attach--retry
        (run-at-time
         delay nil
         (lambda ()
           (setq pyagentd-attach--retry nil)
           (pyagentd-guarded "Reconnect"
             (unless (or (null (pyagentd-place-buffers))
                         (pyagentd-rpc-connect))
               (pyagentd-attach--retry (min 60 (* 2 delay)))))))))

(add-hook 'pyagentd-session-read-hook #'pyagentd-attach--after-read)
(add-hook 'pyagentd-session-saved-hook #'pyagentd-attach--saved)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-attach--leave)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-attach--all)
(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-attach--disconnected)

(provide 'pyagentd-attach)
;;; pyagentd-attach.el ends here

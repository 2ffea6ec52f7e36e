;;; pyagentd-later.el --- Commands that do not wait -*- lexical-binding: t; -*-

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

;; A command asks the daemon and returns; what it does with the answer it
;; does later, as a timer would.
;;
;;   `pyagentd-later'        the answer matters wherever the user is then
;;   `pyagentd-later-here'   it is for the buffer of the command
;;   `pyagentd-later-asking' and something is read from the user with it
;;
;; A user is told when it takes a while, and is not asked anything while
;; something else is asked.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-start)

(defconst pyagentd-later--soon 0.5
  "Seconds after which the user is told that an answer is awaited.
So long is also waited for a pause in typing before something is asked.")

(defconst pyagentd-later--notice "Asking the daemon…"
  "What the user is told while an answer is awaited.")

;;;; Asking the daemon

(defmacro pyagentd-later-in (buffer &rest body)
  "Evaluate BODY in BUFFER if that is still alive."
  (declare (indent 1) (debug t))
  (let ((live (make-symbol "buffer")))
    `(let ((,live ,buffer))
       (when (buffer-live-p ,live)
         (with-current-buffer ,live ,@body)))))

(defun pyagentd-later (method plist &optional success timeout failure late)
  "Call METHOD of the daemon with PLIST; start the daemon if there is none.
SUCCESS is called with the answer, in whatever buffer is shown then.
TIMEOUT is in seconds and by default `pyagentd-call-timeout'.  A refusal
is told in the echo area, or given to FAILURE as (SYMBOL . DATA); so is
that no daemon can be started.  An answer that comes after TIMEOUT is
given to LATE.  Return nil, at once."
  (pyagentd-start
   (lambda ()
     (pyagentd-later--call method plist success timeout failure late))
   failure))

(defun pyagentd-later--call (method plist success timeout failure late)
  "Call METHOD of the daemon, which runs, with PLIST.
SUCCESS, TIMEOUT, FAILURE and LATE are those of `pyagentd-later'."
  (let* ((notice (pyagentd-later--notify))
         (give (lambda (function)
                 (lambda (value)
                   (pyagentd-later--notified notice)
                   (when function
                     ;; Not here, where the answer was read: who waits for
                     ;; the process would wait for what visits files.
                     (run-at-time 0 nil #'pyagentd-later--give
                                  function value))))))
    (pyagentd-rpc-call-async
     method plist
     :timeout (or timeout pyagentd-call-timeout)
     :success (funcall give success)
     :error (funcall give (or failure #'pyagentd-later-tell))
     :late (and late (funcall give late)))))

(defun pyagentd-later-here (method plist
                                   &optional success timeout failure late)
  "Call METHOD of the daemon with PLIST, as `pyagentd-later' does.
SUCCESS, FAILURE and LATE are called in the buffer that is current now,
and not at all if that is dead.  TIMEOUT is in seconds."
  (pyagentd-later method plist
                  (and success (pyagentd-later-back success))
                  timeout
                  (and failure (pyagentd-later-back failure))
                  (and late (pyagentd-later-back late))))

(defun pyagentd-later-asking (method plist success
                                     &optional timeout failure late)
  "Call METHOD of the daemon with PLIST, as `pyagentd-later-here' does.
SUCCESS may read something from the user: it is called once nothing else
is being asked and nothing typed.  TIMEOUT is in seconds, FAILURE and
LATE are called as there."
  (let ((success (pyagentd-later-back success))
        (keys num-input-keys))
    (pyagentd-later method plist
                    (lambda (answer)
                      (pyagentd-later-when-free success keys answer))
                    timeout
                    (and failure (pyagentd-later-back failure))
                    (and late (pyagentd-later-back late)))))

(defun pyagentd-later-back (function)
  "Return a function that calls FUNCTION in the buffer that is current now.
It does nothing once that buffer is dead."
  (let ((buffer (current-buffer)))
    (lambda (&rest args)
      (pyagentd-later-in buffer
        (apply function args)))))

(defun pyagentd-later-soon (function)
  "Call FUNCTION soon, in the buffer that is current now, as a timer would."
  (run-at-time 0 nil #'pyagentd-later--give
               (let ((back (pyagentd-later-back function)))
                 (lambda (_) (funcall back)))
               nil))

(defun pyagentd-later-tell (err)
  "Say ERR, a list (SYMBOL . DATA), in the echo area."
  (message "%s" (pyagentd-error-text err)))

(defun pyagentd-later--give (function answer)
  "Call FUNCTION with ANSWER where the user is.
What it says with `user-error' is said in the echo area."
  (with-current-buffer (window-buffer)
    ;; No key or click has led here, which would ask in a dialog.
    (let ((last-nonmenu-event t))
      (condition-case nil
          (pyagentd-guarded "Answer"
            (condition-case err
                ;; A timer cannot be quit; what asks something can.
                (let ((inhibit-quit nil))
                  (funcall function answer))
              (user-error (pyagentd-later-tell err))))
        (quit (message "Quit"))))))

;;;; Telling that it takes a while

(defun pyagentd-later--notify ()
  "Return a timer that soon tells the user that an answer is awaited."
  (run-at-time pyagentd-later--soon nil
               (lambda ()
                 (unless (active-minibuffer-window)
                   (let ((message-log-max nil))
                     (message "%s" pyagentd-later--notice))))))

(defun pyagentd-later--notified (notice)
  "Take back what the timer NOTICE tells, or was to tell."
  (cancel-timer notice)
  (when (equal (current-message) pyagentd-later--notice)
    (message nil)))

;;;; Asking the user

(defvar isearch-mode)

(defun pyagentd-later--asked-p ()
  "Return non-nil if something is being read from the user."
  (or (active-minibuffer-window) (bound-and-true-p isearch-mode)))

(defun pyagentd-later-when-free (function &optional keys &rest args)
  "Call FUNCTION with ARGS, now if nothing is being read from the user.
Else once that is over.  With KEYS, a former value of `num-input-keys',
also wait for a pause if something was typed since."
  (cond ((pyagentd-later--asked-p)
         (pyagentd-later--once
          (lambda ()
            (apply #'pyagentd-later-when-free function nil args))))
        ((member keys (list nil num-input-keys))
         (apply function args))
        (t (run-with-idle-timer
            pyagentd-later--soon nil #'pyagentd-later--give
            (lambda (args)
              (apply #'pyagentd-later-when-free function nil args))
            args))))

(defun pyagentd-later--once (function)
  "Call FUNCTION once what is being read from the user was read."
  (let (once)
    (setq once (lambda ()
                 (remove-hook 'minibuffer-exit-hook once)
                 (remove-hook 'isearch-mode-end-hook once)
                 ;; It is over only after the hook.
                 (run-at-time 0 nil #'pyagentd-later--give
                              (lambda (_) (funcall function)) nil)))
    (add-hook 'minibuffer-exit-hook once t)
    (add-hook 'isearch-mode-end-hook once t)))

(defun pyagentd-later-ask (prompt)
  "Ask the yes-or-no question PROMPT, unless something is asked already.
For what is done with an answer: its command has returned long ago."
  (if (active-minibuffer-window)
      (progn (message "%sAnswer the open prompt first, then try again" prompt) nil)
    ;; No key or click has led here, which would ask in a dialog.
    (let ((last-nonmenu-event t))
      (yes-or-no-p prompt))))

(provide 'pyagentd-later)
;;; pyagentd-later.el ends here

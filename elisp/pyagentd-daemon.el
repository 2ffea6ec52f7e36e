;;; pyagentd-daemon.el --- Starting the daemon, and going on later -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Starts the daemon where none runs, and calls commands back when it has
;; answered.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)

;;;; Starting the daemon

;; The one place that starts a daemon.  What a command does with it is a
;; function that is called at once when there is a connection, else after
;; the daemon was started, or even the server installed: nobody waits.
;; Functions that must return a value wait (`pyagentd-start-and-wait').
;; However many ask for it, one daemon is started, and all of them wait as
;; long as `pyagentd-start-timeout' says.

(declare-function pyagentd-install-offer "pyagentd-install")
(declare-function pyagentd-host-serve "pyagentd-host")
(declare-function pyagentd-host-cut "pyagentd-host")
(declare-function pyagentd-host-runtime "pyagentd-host")
(declare-function pyagentd-host-reason "pyagentd-host")

(defvar pyagentd-start--waiting nil
  "What waits for a connection, newest first: pairs (THEN . FAILED).")

(defvar pyagentd-start--process nil
  "The process that starts the daemon, or nil.")

(defun pyagentd-start (then &optional failed)
  "Call THEN without arguments once there is a connection to the daemon.
At once, if there is one.  Otherwise return, start the daemon, after
asking install its server, and call THEN later.  What goes wrong is
said to the user; if a daemon was started in vain, or the installation
failed, FAILED is called with that error, a list (SYMBOL . DATA)."
  (cond ((pyagentd-rpc-connect) (funcall then))
        ((or pyagentd-host (pyagentd-server-found))
         (pyagentd-start--launch then failed))
        (t (require 'pyagentd-install)
           (pyagentd-install-offer
            (lambda ()
              (condition-case err (pyagentd-start then failed)
                (error (pyagentd-start--failed
                        err (list (cons then failed))))))
            failed)))
  nil)

(defun pyagentd-start-and-wait ()
  "Return once there is a connection to the daemon; start one if need be.
Signal an error if there is none after `pyagentd-start-timeout' seconds,
or no server that could be started.  Can be quit; the daemon starts all
the same.  Emacs waits: for functions that return values."
  (unless (pyagentd-rpc-connect)
    (let ((call (list 'start)))
      (pyagentd-start--launch (lambda () (setcdr call '(t nil)))
                              (lambda (err) (setcdr call (list nil err))))
      (pyagentd-rpc-outcome call (1+ pyagentd-start-timeout)))))

(defun pyagentd-start--launch (then failed)
  "Start the daemon unless that is under way; call THEN, or FAILED with the error."
  (unless (process-live-p pyagentd-start--process)
    ;; What waits for one whose end was not told yet waits for this one.
    (setq pyagentd-start--process
          (if pyagentd-host (progn (require 'pyagentd-host)
                                   (pyagentd-host-serve))
            (let* ((default-directory (expand-file-name "~/"))
                   (process-connection-type nil)
                   (process (apply #'start-process "pyagentd-serve"
                                   (generate-new-buffer " *pyagentd-serve*")
                                   (append (pyagentd-server-command)
                                           '("serve" "--detach")))))
              (set-process-query-on-exit-flag process nil)
              (set-process-sentinel process #'pyagentd-start--ended)
              process)))
    (run-at-time 0.01 nil #'pyagentd-start--look
                 pyagentd-start--process (float-time) -1))
  (push (cons then failed) pyagentd-start--waiting))

(defconst pyagentd-start--notice "pyagentd: starting the daemon…"
  "What the user is told while it starts.")

(defun pyagentd-start--told-p ()
  "Return non-nil if the user sees just now that the daemon is starting."
  (string-prefix-p pyagentd-start--notice (or (current-message) "")))

(defun pyagentd-start--look (process begun told)
  "Connect as soon as the daemon that PROCESS starts listens, and go on.
It greets before it is ready: what it is asked meanwhile waits in the
daemon, and if it does not start, the connection ends.  PROCESS, which
started at the time BEGUN, is ended when it takes too long.  TOLD is the
second for which the user was told last that it is starting."
  (when (and (eq process pyagentd-start--process) (process-live-p process))
    (let ((seconds (- (float-time) begun)))
      (cond
       ((> seconds pyagentd-start-timeout)
        (process-put process 'pyagentd-late t)
        (delete-process process))
       ((and pyagentd-host (pyagentd-host-runtime))
        ;; The link stays; the daemon there is ready, or unfit.
        (setq pyagentd-start--process nil)
        (pyagentd-start--go-on process ""))
       (t
        (when (and (not pyagentd-host)
                   (not (process-get process 'pyagentd-greeted))
                   (file-exists-p (pyagentd-rpc-runtime-file))
                   (ignore-errors (pyagentd-rpc-connect)))
          (process-put process 'pyagentd-greeted t)
          (pyagentd-start--go-on process ""))
        (when (and (/= told (floor seconds))
                   ;; Other messages and questions are left alone.
                   (or (null (current-message)) (pyagentd-start--told-p))
                   (not (active-minibuffer-window)))
          (let ((message-log-max (and (= told -1) message-log-max)))
            (message "%s%s" pyagentd-start--notice
                     (if (< seconds 1) ""
                       (format " %d s (at most %s)" seconds
                               pyagentd-start-timeout)))))
        (run-at-time 0.01 nil #'pyagentd-start--look
                     process begun (floor seconds)))))))

(defun pyagentd-start--ended (process _change)
  "Connect to the daemon that PROCESS has started, and go on."
  (unless (process-live-p process)
    (let* ((buffer (process-buffer process))
           (output (if (not (buffer-live-p buffer)) ""
                     (prog1 (with-current-buffer buffer
                              (string-trim (buffer-string)))
                       (kill-buffer buffer)))))
      (when (eq process pyagentd-start--process)
        (setq pyagentd-start--process nil)
        (pyagentd-start--go-on process output)))))

(defun pyagentd-start--go-on (process output)
  "Connect, and go on with what waits for PROCESS, which printed OUTPUT."
  (let ((waiting (reverse pyagentd-start--waiting)))
    (setq pyagentd-start--waiting nil)
    (condition-case err
        (unless (pyagentd-rpc-connect)
          (if (process-get process 'pyagentd-late)
              (signal 'pyagentd-timeout
                      (list (format "`%s' has started no daemon in %s seconds; \
`pyagentd-start-timeout' says how many"
                                    (string-join (process-command process) " ")
                                    pyagentd-start-timeout)))
            (signal 'pyagentd-connection-error
                    (if pyagentd-host (pyagentd-host-reason output)
                      (list (if (string-empty-p output)
                                (format "`%s' did not start it"
                                        (string-join (process-command process)
                                                     " "))
                              output)
                            "M-x pyagentd-doctor")))))
      (error (when pyagentd-host (pyagentd-host-cut))
             (pyagentd-start--failed
              ;; Who waited when it greeted has gone on; the user is told.
              err (if (process-get process 'pyagentd-greeted)
                      (cons '(ignore) waiting)
                    waiting)))
      (:success
       (when (pyagentd-start--told-p)
         (message nil))
       (pcase-dolist (`(,then . ,_) waiting)
         (pyagentd-guarded "After starting the daemon" (funcall then)))))))

(defun pyagentd-start--failed (err waiting)
  "Tell ERR to those in WAITING, pairs (THEN . FAILED), or to the user."
  (when (rassq nil waiting)
    (pyagentd-log 'error "Starting the daemon: %s" (pyagentd-error-text err)))
  (pcase-dolist (`(,_ . ,failed) waiting)
    (when failed
      (pyagentd-guarded "After starting the daemon" (funcall failed err)))))

;;;; Commands that do not wait

;; A command asks the daemon and returns; what it does with the answer it
;; does later, as a timer would.
;;
;;   `pyagentd-later'        the answer matters wherever the user is then
;;   `pyagentd-later-here'   it is for the buffer of the command
;;   `pyagentd-later-asking' and something is read from the user with it
;;
;; A user is told when it takes a while, and is not asked anything while
;; something else is asked.

(defconst pyagentd-later--soon 0.5
  "Seconds after which the user is told that an answer is awaited.
So long is also waited for a pause in typing before something is asked.")

(defconst pyagentd-later--look 0.2
  "Seconds between two looks at whether something is still being asked.")

(defconst pyagentd-later--notice "Asking the daemon…"
  "What the user is told while an answer is awaited.")

(defvar pyagentd-later-patience 60
  "Seconds to wait for what takes long: much text is read, or files compared.")

(defun pyagentd-later (method plist &optional success timeout failure late)
  "Call METHOD of the daemon with PLIST; start the daemon if there is none.
SUCCESS is called with the answer, in whatever buffer is shown then.
TIMEOUT is in seconds and by default `pyagentd-call-timeout'.  A refusal
is told in the echo area, or given to FAILURE as (SYMBOL . DATA); so is
that no daemon can be started.  An answer that comes after TIMEOUT is
given to LATE.  Return nil, at once."
  (pyagentd-start
   (lambda ()
     (let* ((notice (run-at-time
                     pyagentd-later--soon nil
                     (lambda ()
                       (unless (active-minibuffer-window)
                         (let ((message-log-max nil))
                           (message "%s" pyagentd-later--notice))))))
            (give (lambda (function)
                    (lambda (value)
                      (cancel-timer notice)
                      (when (equal (current-message) pyagentd-later--notice)
                        (message nil))
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
   failure))

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

(defun pyagentd-later-quietly (method plist success)
  "Call METHOD of the daemon with PLIST, if there is a daemon.
SUCCESS is called with the answer in the buffer that is current now; where
it is refused or late nothing is said."
  (pyagentd-rpc-call-async method plist
                           :timeout pyagentd-call-timeout
                           :success (pyagentd-later-back success)
                           :error #'ignore))

(defun pyagentd-later-asking (method plist success
                                     &optional timeout failure late)
  "Call METHOD of the daemon with PLIST, as `pyagentd-later-here' does.
SUCCESS may read something from the user, also what was typed right behind
the command: it is called once nothing else is being asked and nothing
typed.  TIMEOUT is in seconds, FAILURE and LATE are called as there."
  (let ((back (pyagentd-later-back success))
        (keys num-input-keys)
        (release #'ignore)
        (answered nil))
    (pyagentd-later-here method plist
                         (lambda (answer)
                           (setq answered t)
                           (pyagentd-later-when-free
                            back (unless (funcall release) keys) answer))
                         timeout failure late)
    (when (and this-command (not answered) (not (pyagentd-later--asked-p)))
      (setq release (pyagentd-later--hold)))
    nil))

(defun pyagentd-later--hold ()
  "Hold back what is typed, until it is told that an answer is awaited.
Return a function that gives it back before; it returns nil if it is late."
  (let* ((map (make-sparse-keymap))
         (end (set-transient-map map #'always))
         (held nil)
         (release (lambda ()
                    (when end
                      (funcall (prog1 end (setq end nil)))
                      (setq unread-command-events
                            (append held unread-command-events))
                      t))))
    (define-key map [t] (lambda ()
                          (interactive)
                          (setq held (append held (listify-key-sequence
                                                   (this-single-command-keys))))))
    (define-key map (kbd "C-g") (lambda ()
                                  (interactive)
                                  (setq held nil)
                                  (funcall release)
                                  (keyboard-quit)))
    (run-at-time pyagentd-later--soon nil release)
    release))

(defun pyagentd-later-back (function)
  "Return a function that calls FUNCTION in the buffer that is current now.
It does nothing once that buffer is dead."
  (let ((buffer (current-buffer)))
    (lambda (&rest args)
      (pyagentd-with-live-buffer buffer
        (apply function args)))))

(defun pyagentd-later-soon (function)
  "Call FUNCTION soon, in the buffer that is current now, as a timer would."
  (run-at-time 0 nil #'pyagentd-later--give
               (pyagentd-later-back (lambda (_) (funcall function))) nil))

(defun pyagentd-later-tell (err)
  "Say ERR, a list (SYMBOL . DATA), in the echo area."
  (message "%s" (pyagentd-error-text err)))

(defun pyagentd-later--give (function answer)
  "Call FUNCTION with ANSWER where the user is, and say its `user-error'."
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

;;;; Asking the user

(defvar isearch-mode)

(defun pyagentd-later--asked-p ()
  "Return non-nil if something is being read from the user."
  (or (active-minibuffer-window) (bound-and-true-p isearch-mode)))

(defun pyagentd-later-when-free (function &optional keys &rest args)
  "Call FUNCTION with ARGS, now if nothing is being read from the user.
Else once that is over.  With KEYS, a former value of `num-input-keys',
also wait for a pause if something was typed since."
  (let ((again (lambda (args)
                 (apply #'pyagentd-later-when-free function nil args))))
    (cond ((pyagentd-later--asked-p)
           (run-at-time pyagentd-later--look nil #'pyagentd-later--give
                        again args))
          ((member keys (list nil num-input-keys))
           (apply function args))
          (t (run-with-idle-timer pyagentd-later--soon nil
                                  #'pyagentd-later--give again args)))))

(defun pyagentd-later-ask (prompt)
  "Ask the yes-or-no question PROMPT, unless something is asked already.
For what is done with an answer: its command has returned long ago."
  (if (active-minibuffer-window)
      (progn (message "%sAnswer the open prompt first, then try again" prompt) nil)
    ;; No key or click has led here, which would ask in a dialog.
    (let ((last-nonmenu-event t))
      (yes-or-no-p prompt))))

(provide 'pyagentd-daemon)
;;; pyagentd-daemon.el ends here

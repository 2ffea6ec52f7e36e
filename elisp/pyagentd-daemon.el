;;; pyagentd-daemon.el --- Starting the daemon, and asynchronous calls -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Starts the daemon if none runs, and makes asynchronous calls to it for
;; commands.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)

;;;; Starting the daemon

;; Only this code starts a daemon.  A command passes a callback, which runs
;; at once if there is a connection, else after the daemon was started, or
;; even the server installed: Emacs is never blocked.  Functions that must
;; return a value block (`pyagentd-start-and-wait').  Several requests start
;; one daemon; they fail together after `pyagentd-start-timeout' seconds.

(declare-function pyagentd-install-offer "pyagentd-install")
(declare-function pyagentd-host-serve "pyagentd-host")
(declare-function pyagentd-host-cut "pyagentd-host")
(declare-function pyagentd-host-runtime "pyagentd-host")
(declare-function pyagentd-host-reason "pyagentd-host")

(defvar pyagentd-start--waiting nil
  "Callbacks that wait for a connection, newest first: pairs (THEN . FAILED).")

(defvar pyagentd-start--process nil
  "The process that starts the daemon, or nil.")

(defun pyagentd-start (then &optional failed)
  "Call THEN without arguments once there is a connection to the daemon.
If there is one, call it at once.  Otherwise start the daemon (without a
server, offer to install it), return meanwhile and call THEN later.  If the
daemon does not start, or the installation fails, FAILED is called with the
error, a list (SYMBOL . DATA); if it is nil, the user is told."
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
  "Return once there is a connection to the daemon; start one if necessary.
Signal an error if there is none after `pyagentd-start-timeout' seconds,
or if no server is installed.  The user can quit; the daemon starts
anyway.  Emacs is blocked meanwhile: only for functions that return values."
  (unless (pyagentd-rpc-connect)
    (let ((call (list 'start)))
      (pyagentd-start--launch (lambda () (setcdr call '(t nil)))
                              (lambda (err) (setcdr call (list nil err))))
      (pyagentd-rpc-outcome call (1+ pyagentd-start-timeout)))))

(defun pyagentd-start--launch (then failed)
  "Start the daemon unless it is starting; call THEN, or FAILED with the error."
  (unless (process-live-p pyagentd-start--process)
    ;; Callbacks of a process whose sentinel has not run yet wait for this one.
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
  "Message that the user sees while the daemon starts.")

(defun pyagentd-start--told-p ()
  "Return non-nil if the echo area shows that the daemon is starting."
  (string-prefix-p pyagentd-start--notice (or (current-message) "")))

(defun pyagentd-start--look (process begun told)
  "Connect once the daemon that PROCESS starts listens, and run the callbacks.
The daemon greets before it is ready: calls wait in it until then, and if
it does not start, the connection ends.  PROCESS, started at BEGUN, is
killed after `pyagentd-start-timeout'.  TOLD is the second that the last
message showed."
  (when (and (eq process pyagentd-start--process) (process-live-p process))
    (let ((seconds (- (float-time) begun)))
      (cond
       ((> seconds pyagentd-start-timeout)
        (process-put process 'pyagentd-late t)
        (delete-process process))
       ((and pyagentd-host (pyagentd-host-runtime))
        ;; The link stays; the daemon there is ready, or does not fit.
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
                   ;; Do not overwrite other messages or prompts.
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
  "Connect to the daemon that PROCESS has started, and run the callbacks."
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
  "Connect, and run the callbacks that wait for PROCESS, which printed OUTPUT."
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
              ;; Earlier callbacks ran when it greeted; tell the user.
              err (if (process-get process 'pyagentd-greeted)
                      (cons '(ignore) waiting)
                    waiting)))
      (:success
       (when (pyagentd-start--told-p)
         (message nil))
       (pcase-dolist (`(,then . ,_) waiting)
         (pyagentd-guarded "After starting the daemon" (funcall then)))))))

(defun pyagentd-start--failed (err waiting)
  "Call FAILED of WAITING, pairs (THEN . FAILED), with ERR.
Log ERR, which shows it to the user, if FAILED of any is nil."
  (when (rassq nil waiting)
    (pyagentd-log 'error "Starting the daemon: %s" (pyagentd-error-text err)))
  (pcase-dolist (`(,_ . ,failed) waiting)
    (when failed
      (pyagentd-guarded "After starting the daemon" (funcall failed err)))))

;;;; Commands that do not wait

;; A command calls the daemon and returns; a callback handles the reply
;; later, in a timer.
;;
;;   `pyagentd-later'        runs it in the buffer the user is in then
;;   `pyagentd-later-here'   runs it in the buffer of the command
;;   `pyagentd-later-asking' the same, for a callback that prompts the user
;;
;; The user is told when a call takes a while, and gets no prompt while
;; another one is open.

(defconst pyagentd-later--soon 0.5
  "Seconds after which the user is told that a call is pending.
Also the pause in typing to wait for before a prompt.")

(defconst pyagentd-later--look 0.2
  "Seconds between two checks whether a prompt is still open.")

(defconst pyagentd-later--notice "Asking the daemon…"
  "Message that the user sees while a call is pending.")

(defvar pyagentd-later-patience 60
  "Timeout in seconds of slow calls, which read much text or compare files.")

(defun pyagentd-later (method plist &optional success timeout failure late)
  "Call METHOD of the daemon with PLIST; start the daemon if there is none.
SUCCESS is called with the reply, in the buffer of the selected window.
TIMEOUT is in seconds and by default `pyagentd-call-timeout'.  An error,
also in starting the daemon, is passed to FAILURE as (SYMBOL . DATA); by
default the echo area shows it.  A reply after TIMEOUT is passed to LATE.
Return nil, at once."
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
                        ;; Not in the process filter: code that waits for
                        ;; the process would wait for the callback too.
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
unless it was killed.  TIMEOUT is in seconds."
  (pyagentd-later method plist
                  (and success (pyagentd-later-back success))
                  timeout
                  (and failure (pyagentd-later-back failure))
                  (and late (pyagentd-later-back late))))

(defun pyagentd-later-quietly (method plist success)
  "Call METHOD of the daemon with PLIST, if there is a daemon.
SUCCESS is called with the reply in the buffer that is current now; errors
and timeouts are ignored."
  (pyagentd-rpc-call-async method plist
                           :timeout pyagentd-call-timeout
                           :success (pyagentd-later-back success)
                           :error #'ignore))

(defun pyagentd-later-asking (method plist success
                                     &optional timeout failure late)
  "Call METHOD of the daemon with PLIST, as `pyagentd-later-here' does.
SUCCESS may prompt the user, and keys typed right after the command answer
the prompt: it is called once no other prompt is open and the user pauses.
TIMEOUT is in seconds; FAILURE and LATE are called as there."
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
  "Hold back typed keys until the user is told that a call is pending.
Return a function that releases them earlier; it returns nil if they have
been released already."
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
It does nothing if that buffer was killed."
  (let ((buffer (current-buffer)))
    (lambda (&rest args)
      (pyagentd-with-live-buffer buffer
        (apply function args)))))

(defun pyagentd-later-soon (function)
  "Call FUNCTION from a timer, soon, in the buffer that is current now."
  (run-at-time 0 nil #'pyagentd-later--give
               (pyagentd-later-back (lambda (_) (funcall function))) nil))

(defun pyagentd-later-tell (err)
  "Show ERR, a list (SYMBOL . DATA), in the echo area."
  (message "%s" (pyagentd-error-text err)))

(defun pyagentd-later--give (function answer)
  "Call FUNCTION with ANSWER in the selected window's buffer; report errors."
  (with-current-buffer (window-buffer)
    ;; Not called by a click, after which Emacs would prompt in a dialog.
    (let ((last-nonmenu-event t))
      (condition-case nil
          (pyagentd-guarded "Answer"
            (condition-case err
                ;; A timer cannot be quit; a prompt can.
                (let ((inhibit-quit nil))
                  (funcall function answer))
              (user-error (pyagentd-later-tell err))))
        (quit (message "Quit"))))))

;;;; Asking the user

(defvar isearch-mode)

(defun pyagentd-later--asked-p ()
  "Return non-nil if a minibuffer prompt or an Isearch is active."
  (or (active-minibuffer-window) (bound-and-true-p isearch-mode)))

(defun pyagentd-later-when-free (function &optional keys &rest args)
  "Call FUNCTION with ARGS once no prompt is open; at once if none is.
With KEYS, a former value of `num-input-keys', also wait for a pause if
the user has typed since."
  (let ((again (lambda (args)
                 (apply #'pyagentd-later-when-free function nil args))))
    (cond ((pyagentd-later--asked-p)
           (run-at-time pyagentd-later--look nil #'pyagentd-later--give
                        again args))
          ((member keys (list nil num-input-keys))
           (apply function args))
          (t (run-with-idle-timer pyagentd-later--soon nil
                                  #'pyagentd-later--give again args)))))

(provide 'pyagentd-daemon)
;;; pyagentd-daemon.el ends here

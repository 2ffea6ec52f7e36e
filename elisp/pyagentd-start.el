;;; pyagentd-start.el --- Starting the daemon -*- lexical-binding: t; -*-

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

;;; Commentary:

;; The one place that starts a daemon.  What a command does with it is a
;; function that is called at once when there is a connection, else after
;; the daemon was started, or even the server installed: nobody waits.
;; Functions that must return a value wait (`pyagentd-start-and-wait').
;; However many ask for it, one daemon is started, and all of them wait as
;; long as `pyagentd-start-timeout' says.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-server)

(declare-function pyagentd-install-offer "pyagentd-install")

(defvar pyagentd-start--waiting nil
  "What waits for a connection, newest first: pairs (THEN . FAILED).
They are those of `pyagentd-start'.")

(defvar pyagentd-start--process nil
  "The process that starts the daemon, or nil.")

(defun pyagentd-start (then &optional failed)
  "Call THEN without arguments once there is a connection to the daemon.
At once, if there is one.  Otherwise return, start the daemon, after
asking install its server, and call THEN later.  What goes wrong is
said to the user; if a daemon was started in vain, or the installation
failed, FAILED is called with that error, a list (SYMBOL . DATA)."
  (cond ((pyagentd-rpc-connect) (funcall then))
        ((pyagentd-server-found) (pyagentd-start--launch then failed))
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
    (let ((deadline (+ (float-time) pyagentd-start-timeout 1))
          outcome)
      (pyagentd-start--launch (lambda () (setq outcome '(t)))
                              (lambda (err) (setq outcome (list nil err))))
      ;; Its end, or `pyagentd-start--give-up', tells the outcome.
      (while (not (or outcome (> (float-time) deadline)))
        (accept-process-output nil 0.05))
      (pcase outcome
        ('nil (signal 'pyagentd-timeout '(start)))
        (`(nil ,err) (signal (car err) (cdr err)))))))

(defun pyagentd-start--launch (then failed)
  "Start the daemon unless that is under way, and call THEN after it.
FAILED is called with the error if it does not start."
  (unless (process-live-p pyagentd-start--process)
    ;; What waits for one whose end was not told yet waits for this one.
    (setq pyagentd-start--process (pyagentd-start--serve))
    (run-at-time pyagentd-start-timeout nil #'pyagentd-start--give-up
                 pyagentd-start--process)
    (run-at-time 0.02 nil #'pyagentd-start--look pyagentd-start--process)
    (pyagentd-start--progress pyagentd-start--process (float-time)))
  (push (cons then failed) pyagentd-start--waiting))

(defun pyagentd-start--serve ()
  "Start a daemon that survives Emacs; return the process that does so."
  (let* ((default-directory (expand-file-name "~/"))
         (process-connection-type nil)
         (process (apply #'start-process "pyagentd-serve"
                         (generate-new-buffer " *pyagentd-serve*")
                         (append (pyagentd-server-command)
                                 '("serve" "--detach")))))
    (set-process-query-on-exit-flag process nil)
    (set-process-sentinel process #'pyagentd-start--ended)
    process))

(defun pyagentd-start--look (process)
  "Connect as soon as the daemon that PROCESS starts listens, and go on.
It greets before it is ready: what it is asked meanwhile waits in the
daemon, and if it does not start, the connection ends."
  (when (and (eq process pyagentd-start--process) (process-live-p process))
    (if (and (file-exists-p (pyagentd-rpc-runtime-file))
             (ignore-errors (pyagentd-rpc-connect)))
        (progn (process-put process 'pyagentd-greeted t)
               (pyagentd-start--go-on process ""))
      (run-at-time 0.02 nil #'pyagentd-start--look process))))

(defun pyagentd-start--give-up (process)
  "End PROCESS, which should have started a daemon by now."
  (when (process-live-p process)
    (process-put process 'pyagentd-late pyagentd-start-timeout)
    (delete-process process)))

(defconst pyagentd-start--notice "pyagentd: starting the daemon…"
  "What the user is told while it starts.")

(defun pyagentd-start--progress (process begun)
  "Tell each second how long PROCESS has been starting a daemon since BEGUN.
Other messages and questions are left alone."
  (when (process-live-p process)
    (let ((seconds (round (- (float-time) begun)))
          (message-log-max (and (< (- (float-time) begun) 1) message-log-max)))
      (when (and (or (null (current-message)) (pyagentd-start--told-p))
                 (not (active-minibuffer-window)))
        (message "%s%s" pyagentd-start--notice
                 (if (< seconds 1) ""
                   (format " %d s (at most %s)" seconds pyagentd-start-timeout)))))
    (run-at-time 1 nil #'pyagentd-start--progress process begun)))

(defun pyagentd-start--told-p ()
  "Return non-nil if the user sees just now that the daemon is starting."
  (string-prefix-p pyagentd-start--notice (or (current-message) "")))

(defun pyagentd-start--ended (process _change)
  "Connect to the daemon that PROCESS has started, and go on."
  (unless (process-live-p process)
    (let ((output (pyagentd-start--output process)))
      (when (eq process pyagentd-start--process)
        (setq pyagentd-start--process nil)
        (pyagentd-start--go-on process output)))))

(defun pyagentd-start--go-on (process output)
  "Connect, and go on with what waits for PROCESS, which printed OUTPUT."
  (let ((waiting (reverse pyagentd-start--waiting)))
    (setq pyagentd-start--waiting nil)
    (condition-case err
        (unless (pyagentd-rpc-connect)
          (if-let ((late (process-get process 'pyagentd-late)))
              (signal 'pyagentd-timeout
                      (list (format "`%s' has started no daemon in %s seconds; \
`pyagentd-start-timeout' says how many"
                                    (string-join (process-command process) " ")
                                    late)))
            (signal 'pyagentd-connection-error
                    (pyagentd-start--reason process output))))
      (error (pyagentd-start--failed
              ;; Who waited went on when it greeted; the user is told.
              err (if (process-get process 'pyagentd-greeted) '((ignore))
                    waiting)))
      (:success
       (when (pyagentd-start--told-p)
         (message nil))
       (pcase-dolist (`(,then . ,_) waiting)
         (pyagentd-guarded "After starting the daemon" (funcall then)))))))

(defun pyagentd-start--reason (process output)
  "Return why PROCESS, which printed OUTPUT, has started no daemon."
  (list (if (string-empty-p output)
            (format "`%s' did not start it"
                    (string-join (process-command process) " "))
          output)
        "M-x pyagentd-doctor"))

(defun pyagentd-start--failed (err waiting)
  "Tell ERR to those in WAITING, pairs (THEN . FAILED), or to the user."
  (when (rassq nil waiting)
    (pyagentd-log 'error "Starting the daemon: %s" (pyagentd-error-text err)))
  (pcase-dolist (`(,_ . ,failed) waiting)
    (when failed
      (pyagentd-guarded "After starting the daemon" (funcall failed err)))))

(defun pyagentd-start--output (process)
  "Return what PROCESS printed, and forget it."
  (let ((buffer (process-buffer process)))
    (if (not (buffer-live-p buffer)) ""
      (prog1 (with-current-buffer buffer (string-trim (buffer-string)))
        (kill-buffer buffer)))))

(provide 'pyagentd-start)
;;; pyagentd-start.el ends here

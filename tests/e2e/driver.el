;;; driver.el --- lets a test evaluate forms in a running Emacs  -*- lexical-binding: t; -*-

;; Loaded into a batch or terminal Emacs.  Listens on the socket named by $DRIVER_SOCKET; a client sends one form a
;; line (base64 of UTF-8) and gets one line back (base64 of "(ok VALUE)" or "(error MESSAGE)").

;;; Code:

(require 'cl-lib)
(require 'seq)

(defvar pyagentd-attach-awaited)
(defvar pyagentd-rpc--pending)
(defvar pyagentd-start--process)

(defun driver--filter (process chunk)
  "Queue the lines of CHUNK that PROCESS completes; they run from a timer, as commands would."
  (let ((text (concat (process-get process 'rest) chunk)))
    (while (string-match "\n" text)
      (let ((line (substring text 0 (match-beginning 0))))
        (setq text (substring text (match-end 0)))
        (run-at-time 0 nil #'driver--eval process line)))
    (process-put process 'rest text)))

(defun driver--eval (process line)
  "Evaluate the form in LINE, as a command in the selected window would, and answer PROCESS."
  (let* ((form (car (read-from-string (decode-coding-string (base64-decode-string line) 'utf-8))))
         (print-escape-newlines t)
         (answer (condition-case err
                     (list 'ok (with-current-buffer (window-buffer) (eval form t)))
                   ((error quit) (list 'error (error-message-string err))))))
    (when (process-live-p process)
      (process-send-string
       process
       (concat (base64-encode-string (encode-coding-string (prin1-to-string answer) 'utf-8) t) "\n")))))

;;;; What commands do later

(defvar driver-pause 0.01
  "Seconds between two looks at what is waited for; timers that run meanwhile end none.")

(defun driver-wait (condition)
  "Wait until the function CONDITION returns non-nil, at most half a minute."
  (let ((deadline (+ (float-time) 30)) value)
    (while (not (or (setq value (funcall condition)) (> (float-time) deadline)))
      (accept-process-output nil driver-pause))
    (or value (error "Not within half a minute"))))

(defun driver-attach ()
  "Attach the session in this buffer and wait for that; signal what hinders it."
  (let (done hindered)
    (pyagentd-attached-then (lambda () (setq done t)) (lambda (err) (setq hindered err)))
    (driver-wait (lambda () (or done hindered)))
    (when hindered (signal (car hindered) (cdr hindered)))))

(defun driver-call (command &rest arguments)
  "Call COMMAND with ARGUMENTS, wait until it is done, and return the last thing that it said.
What it asks the daemon, and goes on to ask, is answered then."
  (let ((known (driver--asked)) said)
    (cl-letf* ((message (symbol-function 'message))
               ((symbol-function 'message)
                (lambda (format &rest values)
                  (when format (setq said (apply #'format-message format values)))
                  (apply message format values))))
      (apply command arguments)
      (driver-wait (lambda ()
                     (not (or pyagentd-attach-awaited
                              (seq-difference (driver--asked) known)
                              (process-live-p pyagentd-start--process)
                              (seq-some (lambda (timer) (eq (timer--function timer) #'pyagentd-later--give))
                                        timer-list))))))
    said))

(defun driver--asked ()
  "Return the numbers of the calls that the daemon has not answered."
  (mapcar #'car pyagentd-rpc--pending))

(make-network-process :name "driver" :server t :family 'local :service (getenv "DRIVER_SOCKET")
                      :filter #'driver--filter :noquery t)

(when noninteractive
  (while t (accept-process-output nil 1)))

;;; driver.el ends here

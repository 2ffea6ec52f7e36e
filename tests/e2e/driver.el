;;; driver.el --- lets a test evaluate forms in a running Emacs  -*- lexical-binding: t; -*-

;; Loaded into a batch or terminal Emacs.  Listens on the socket named by $DRIVER_SOCKET; a client sends one form a
;; line (base64 of UTF-8) and gets one line back (base64 of "(ok VALUE)" or "(error MESSAGE)").

;;; Code:

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

(make-network-process :name "driver" :server t :family 'local :service (getenv "DRIVER_SOCKET")
                      :filter #'driver--filter :noquery t)

(when noninteractive
  (while t (accept-process-output nil 1)))

;;; driver.el ends here

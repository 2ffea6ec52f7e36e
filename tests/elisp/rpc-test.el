;;; rpc-test.el --- Tests of the connection -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(ert-deftest pyagentd-rpc-call-returns-the-answer ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-answer "(:runs 3 :name \"Grüße 👩‍👩‍👧\")" 'status)
    (should (equal (pyagentd-rpc-call 'status)
                   '(:runs 3 :name "Grüße 👩‍👩‍👧")))))

(ert-deftest pyagentd-rpc-hello-comes-first-and-says-who-we-are ()
  (pyagentd-test-with-daemon
    (let ((pyagentd-human t))
      (pyagentd-rpc-call 'status))
    (let ((calls (pyagentd-rpc-call 'fake-calls)))
      (should (eq (caar calls) 'hello))
      (let ((hello (car (pyagentd-test-calls 'hello))))
        (should (eql (plist-get hello :proto) 1))
        (should (eq (plist-get hello :human) t))))))

(ert-deftest pyagentd-rpc-call-signals-what-the-daemon-refused ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-error "(busy \"A run is going on\" :hint \"abort it\")"
                        'send)
    (let ((err (should-error (pyagentd-rpc-call 'send)
                             :type 'pyagentd-remote-error)))
      (should (equal (pyagentd-error-text err) "A run is going on (abort it)"))
      (should (eq (nth 1 err) 'busy)))))

(ert-deftest pyagentd-rpc-call-times-out-and-forgets-the-call ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-silent "" 'status)
    (should-error (pyagentd-rpc-call 'status nil 0.1) :type 'pyagentd-timeout)
    (should-not pyagentd-rpc--pending)
    (should-not (pyagentd-rpc-call 'asks))))

(ert-deftest pyagentd-rpc-async-call-times-out ()
  (pyagentd-test-with-daemon
    (let (failure)
      (pyagentd-test-tell 'fake-silent "" 'status)
      (pyagentd-rpc-call-async 'status nil :timeout 0.05
                               :error (lambda (err) (setq failure err)))
      (should (eq (car (pyagentd-test-await failure)) 'pyagentd-timeout)))))

(ert-deftest pyagentd-rpc-a-call-that-was-quit-is-not-sent-later ()
  (pyagentd-test-with-daemon
    (pyagentd-rpc-call 'asks)
    (signal-process daemon 'SIGSTOP)
    (unwind-protect
        (let ((pyagentd-outbox--most 0)
              (inhibit-quit t))
          (pyagentd-rpc-call-async 'asks nil)
          (should-not (with-local-quit
                        (run-at-time 0.1 nil (lambda () (setq quit-flag t)))
                        (pyagentd-rpc-call 'spawn)))
          (setq quit-flag nil))
      (signal-process daemon 'SIGCONT))
    (pyagentd-rpc-call 'asks)
    (should-not (pyagentd-test-calls 'spawn))))

;; A full socket would stop Emacs.
(ert-deftest pyagentd-rpc-calls-of-a-daemon-that-does-not-read-are-held-back ()
  (pyagentd-test-with-daemon
    (pyagentd-rpc-call 'asks)
    (signal-process daemon 'SIGSTOP)
    (let ((text (make-string 100 ?x)) answers)
      (unwind-protect
          (dotimes (n 2000)
            (pyagentd-rpc-call-async 'asks (list :n n :text text)
                                     :success (lambda (_) (push n answers))))
        (signal-process daemon 'SIGCONT))
      (should pyagentd-outbox--held)
      (pyagentd-test-await (= 2000 (length answers)))
      (should (equal (number-sequence 0 1999) (nreverse answers)))
      (should-not pyagentd-outbox--held)
      ;; Others may have called meanwhile.
      (pyagentd-test-await (not pyagentd-outbox--written)))))

(ert-deftest pyagentd-outbox-goes-on-behind-calls-that-take-long ()
  (let ((uid 1000) pyagentd-outbox--held pyagentd-outbox--written
        pyagentd-outbox--fence written)
    (cl-letf (((symbol-function 'pyagentd-rpc--write)
               (lambda (frame) (push frame written)))
              ((symbol-function 'pyagentd-rpc--fence)
               (lambda () (cons (cl-incf uid) "fence"))))
      (pyagentd-outbox-put 1 "a")
      (pyagentd-outbox-put 2 (make-string 100000 ?x)) ; too long in any case
      (pyagentd-outbox-put 3 "c")
      (should (equal '("a" "fence") (reverse written)))
      (pyagentd-outbox-answered 1001)
      (should (equal '(5 100000) (mapcar #'length (seq-take written 2))))
      ;; The long one is not answered for hours.
      (pyagentd-outbox-answered 1002)
      (should (equal "c" (car written)))
      (should-not pyagentd-outbox--held)
      (pyagentd-outbox-answered 3)
      (should-not pyagentd-outbox--written)
      (pyagentd-outbox-answered 2))))

;; Emacs runs timers and filters where it waits for a socket that is full.
(ert-deftest pyagentd-outbox-keeps-what-is-put-while-it-writes ()
  (let ((uid 1000) pyagentd-outbox--held pyagentd-outbox--written
        pyagentd-outbox--fence written meanwhile)
    (cl-letf (((symbol-function 'pyagentd-rpc--write)
               (lambda (frame)
                 (push frame written)
                 (when-let ((function (alist-get frame meanwhile nil t #'equal)))
                   (funcall function))))
              ((symbol-function 'pyagentd-rpc--fence)
               (lambda () (cons (cl-incf uid) "fence"))))
      (setq meanwhile
            (list (cons "a" (lambda () (pyagentd-outbox-put 4 "d")))
                  (cons "b" (lambda ()
                              (pyagentd-outbox-put
                               5 (make-string pyagentd-outbox--most ?x))
                              (pyagentd-outbox-put 6 "f")))))
      (setq pyagentd-outbox--held
            (list (cons 1 "a") (cons 2 "b") (cons 3 "c")))
      (pyagentd-outbox--flush)
      (should (equal '("a" "b" "c" "d" "fence") (reverse written)))
      (pyagentd-outbox-answered 1001)
      (should (equal (list pyagentd-outbox--most 5)
                     (reverse (mapcar #'length (seq-take written 2)))))
      ;; The fence is answered before it is known to be written.
      (setq pyagentd-outbox--fence nil
            written nil
            meanwhile (list (cons "fence"
                                  (lambda () (pyagentd-outbox-answered uid)))))
      (pyagentd-outbox--flush)
      (should (equal '("fence" "f") (reverse written)))
      (should-not pyagentd-outbox--held)
      ;; The connection ends.
      (pyagentd-outbox-reset)
      (setq written nil
            meanwhile (list (cons "a" #'pyagentd-outbox-reset)))
      (setq pyagentd-outbox--held (list (cons 1 "a") (cons 2 "b")))
      (pyagentd-outbox--flush)
      (should (equal '("a") written)))))

(ert-deftest pyagentd-rpc-what-timed-out-is-not-sent-any-more ()
  (pyagentd-test-with-daemon
    (pyagentd-rpc-call 'asks)
    (signal-process daemon 'SIGSTOP)
    (let (failure late)
      (unwind-protect
          (progn
            (pyagentd-rpc-call-async
             'asks (list :text (make-string pyagentd-outbox--most ?x)))
            (pyagentd-rpc-call-async
             'abort '(:n 1) :timeout 0.02
             :error (lambda (err) (setq failure err)))
            (pyagentd-rpc-call-async
             'abort '(:n 2) :timeout 0.01 :error #'ignore
             :late (lambda (_) (setq late t)))
            (should (cdr pyagentd-outbox--held))
            (should (eq (car (pyagentd-test-await failure))
                        'pyagentd-timeout))
            (should-error (pyagentd-rpc-call 'abort '(:n 3) 0.01)
                          :type 'pyagentd-timeout))
        (signal-process daemon 'SIGCONT))
      ;; Only what somebody still waits for.
      (pyagentd-test-await late)
      (should (equal '((:n 2)) (pyagentd-test-calls 'abort))))))

(ert-deftest pyagentd-rpc-connection-that-has-ended-is-not-announced ()
  (pyagentd-test-with-daemon
    (let* ((said 0)
           (pyagentd-rpc-connected-hook
            (list (lambda () (setq said (1+ said))))))
      (pyagentd-rpc-call 'status)
      (pyagentd-events-drain)
      (should (= said 1))
      (pyagentd-rpc-disconnect)
      (pyagentd-events-drain)
      (pyagentd-rpc--announce 'pyagentd-rpc-connected-hook daemon)
      (pyagentd-events-drain)
      (should (= said 1)))))

(ert-deftest pyagentd-rpc-disconnect-fails-every-pending-call ()
  (pyagentd-test-with-daemon
    (let (failures)
      (pyagentd-test-tell 'fake-silent "" 'status)
      (dotimes (_ 3)
        (pyagentd-rpc-call-async 'status nil
                                 :error (lambda (err) (push err failures))))
      (should-error (pyagentd-rpc-call 'fake-close)
                    :type 'pyagentd-disconnected)
      (should (equal (mapcar #'car failures)
                     '(pyagentd-disconnected pyagentd-disconnected
                       pyagentd-disconnected)))
      (should-not (pyagentd-rpc-connected-p)))))

(ert-deftest pyagentd-rpc-async-call-without-daemon-fails-and-starts-none ()
  (pyagentd-test-with-place
    (let ((pyagentd-command '("/nonexistent/pyagentd"))
          failure)
      (pyagentd-rpc-call-async 'status nil :error (lambda (err) (setq failure err)))
      (should (eq (car failure) 'pyagentd-disconnected)))))

(ert-deftest pyagentd-rpc-call-without-program-says-what-to-do ()
  (pyagentd-test-with-place
    (let ((pyagentd-command '("/nonexistent/pyagentd")))
      (should (string-match-p
               "pyagentd-command"
               (cadr (should-error (pyagentd-rpc-call 'status)
                                   :type 'user-error)))))))

(ert-deftest pyagentd-rpc-daemon-that-does-not-start-says-why ()
  (pyagentd-test-with-place
    (let* ((pyagentd-command '("sh" "-c" "echo No room >&2; exit 1"))
           (err (should-error (pyagentd-rpc-call 'status)
                              :type 'pyagentd-connection-error)))
      (should (equal (cadr err) "No room")))))

(ert-deftest pyagentd-rpc-a-daemon-that-is-slow-to-start-is-waited-for ()
  "As long as the option says, with the time told, and only one is started."
  (pyagentd-test-with-place
    (let* ((began (expand-file-name "began" root))
           (pyagentd-command
            (list "sh" "-c"
                  (format "echo x >>%s; until [ -e %s/go ]; do sleep 0.05; done
exec python3 %s serve --detach" began root
                          (expand-file-name "fake-daemon.py"
                                            pyagentd-test-directory))))
           (pyagentd-start-timeout 60)
           (inhibit-message nil)
           said others)
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args)
                   (when (car args) (push (apply #'format args) said)))))
        (pyagentd-start (lambda () (push 'command others)))
        (run-at-time 1.5 nil (lambda ()
                               (pyagentd-start (lambda () (push 'key others)))
                               (write-region "" nil (expand-file-name "go" root)
                                             nil 'quiet)))
        (should-not (pyagentd-rpc-call 'status)))
      (should (equal (sort others #'string<) '(command key)))
      (should (equal (pyagentd-test-content began) "x\n"))
      (should (seq-find (lambda (line)
                          (string-match-p
                           "starting the daemon… [1-9][0-9]* s (at most 60)" line))
                        said)))))

(ert-deftest pyagentd-rpc-a-daemon-that-does-not-start-in-time-names-the-option ()
  (pyagentd-test-with-place
    (let* ((pyagentd-command '("sh" "-c" "sleep 60"))
           (pyagentd-start-timeout 0.2)
           (err (should-error (pyagentd-rpc-call 'status) :type 'pyagentd-timeout)))
      (should (string-match-p "`sh -c sleep 60 .*0.2 seconds.*pyagentd-start-timeout"
                              (cadr err))))))

(ert-deftest pyagentd-rpc-call-starts-a-detached-daemon ()
  (pyagentd-test-with-place
    (let ((pyagentd-command
           (list "python3" (expand-file-name "fake-daemon.py"
                                             pyagentd-test-directory))))
      (should-not (pyagentd-rpc-call 'status))
      (should (equal 1 (length (pyagentd-test-calls 'status)))))))

(ert-deftest pyagentd-rpc-stale-runtime-file-is-no-daemon ()
  (pyagentd-test-with-place
    (write-region "(:proto 1 :socket \"/nonexistent/daemon.sock\")" nil
                  (pyagentd-rpc-runtime-file) nil 'quiet)
    (should-not (pyagentd-rpc-connect))))

(ert-deftest pyagentd-rpc-other-protocol-is-an-error-with-a-hint ()
  (pyagentd-test-with-place
    (write-region "(:proto 2 :socket \"/nonexistent/daemon.sock\")" nil
                  (pyagentd-rpc-runtime-file) nil 'quiet)
    (should (string-match-p
             "pyagentd stop"
             (cadr (should-error (pyagentd-rpc-connect)
                                 :type 'pyagentd-protocol-error))))))

(ert-deftest pyagentd-rpc-frames-carry-text-without-properties ()
  (let ((frame (pyagentd-rpc--frame
                (list 'call 7 'echo (list (list :text (propertize "ä\"\\" 'face 'bold)))))))
    (should (equal (substring frame 6)
                   (encode-coding-string "(call 7 echo ((:text \"ä\\\"\\\\\")))\n"
                                         'utf-8)))
    (should (= (string-to-number (substring frame 0 6) 16)
               (- (length frame) 6)))
    (should-error (pyagentd-rpc--frame (list (current-buffer))))))

(ert-deftest pyagentd-rpc-frames-cut-anywhere-arrive-whole ()
  (pyagentd-test-with-daemon
    (pyagentd-rpc-connect)
    (pyagentd-rpc-call 'status)
    (let* (seen
           (frame (pyagentd-rpc--frame '(call 0 events (((cut "b" 1 "ä€𝄞"))))))
           (process pyagentd-rpc--process))
      (pyagentd-events-register 'cut (lambda (_b _s args) (push (car args) seen)))
      (dotimes (cut (length frame))
        (pyagentd-rpc--filter process (substring frame 0 cut))
        (pyagentd-rpc--filter process (substring frame cut)))
      (pyagentd-events-drain)
      (should (= (length seen) (length frame)))
      (should (seq-every-p (lambda (text) (equal text "ä€𝄞")) seen)))))

(ert-deftest pyagentd-rpc-events-come-in-order-after-the-answer ()
  (pyagentd-test-with-daemon
    (let (seen)
      (pyagentd-events-register 'count (lambda (_b seq _a) (push seq seen)))
      (apply #'pyagentd-test-push
             (mapcar (lambda (n) `(count "b" ,n)) (number-sequence 1 100)))
      (apply #'pyagentd-test-push
             (mapcar (lambda (n) `(count "b" ,n)) (number-sequence 101 200)))
      (pyagentd-test-await (= (length seen) 200))
      (should (equal (nreverse seen) (number-sequence 1 200))))))

(ert-deftest pyagentd-rpc-failing-handler-does-not-stop-later-events ()
  (let (seen)
    (pyagentd-events-register 'fails (lambda (&rest _) (error "No")))
    (pyagentd-events-register 'works (lambda (_b seq _a) (push seq seen)))
    (pyagentd-events-enqueue
     (lambda () (list '(fails "b" 1) '(works "b" 2) '(unknown "b" 3) '(works "b" 4))))
    (let ((inhibit-message t) (debug-on-error nil))
      (pyagentd-events-drain))
    (should (equal seen '(4 2)))))

(ert-deftest pyagentd-rpc-drain-gives-way-after-its-budget ()
  (let ((seen 0))
    (pyagentd-events-register 'slow (lambda (&rest _)
                                      (cl-incf seen)
                                      (let ((until (+ (float-time) 0.004)))
                                        (while (< (float-time) until)))))
    (pyagentd-events-enqueue (lambda () (make-list 20 '(slow "b" 1))))
    (pyagentd-events--on-timer)
    (should (< 0 seen 10))
    (pyagentd-test-await (= seen 20))))

(ert-deftest pyagentd-rpc-other-calls-of-the-daemon-are-refused ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-raw "(call 5 evil (1))")
    (should-not (pyagentd-rpc-call 'status))))

(ert-deftest pyagentd-rpc-call-is-fast ()
  (pyagentd-test-with-daemon
    (pyagentd-rpc-call 'status)
    (let ((times (sort (cl-loop repeat 300 collect
                                (let ((start (float-time)))
                                  (pyagentd-rpc-call 'status)
                                  (- (float-time) start)))
                       #'<)))
      (pyagentd-test-report "call p50 %.3f ms, p99 %.3f ms"
               (* 1000 (nth 150 times)) (* 1000 (nth 297 times)))
      (should (< (nth 150 times) 0.005)))))

(ert-deftest pyagentd-rpc-burst-of-events-arrives ()
  (pyagentd-test-with-daemon
    (let ((seen 0) (start nil) (count 50000))
      (pyagentd-events-register 'burst (lambda (&rest _) (cl-incf seen)))
      (pyagentd-rpc-call 'status)
      (setq start (float-time))
      (pyagentd-rpc-call-async
       'fake-burst
       (list :count count
             :text (base64-encode-string
                    "(call 0 events (((burst \"branch\" 1 \"some text\"))))" t)))
      (pyagentd-test-await (= seen count))
      (pyagentd-test-report "%d events/s" (/ count (- (float-time) start))))))

(ert-deftest pyagentd-rpc-an-address-that-cannot-be-read-is-none ()
  "A runtime file that vanishes or is none tells no address."
  (let* ((pyagentd-runtime-directory (make-temp-file "pyagentd" t))
         (file (pyagentd-rpc-runtime-file)))
    (unwind-protect
        (progn
          (should-not (pyagentd-rpc-runtime))
          (make-directory file)
          (should-not (pyagentd-rpc-runtime))
          (delete-directory file)
          (write-region "" nil file nil 'quiet)
          (should-not (pyagentd-rpc-runtime)))
      (delete-directory pyagentd-runtime-directory t))))

;;; rpc-test.el ends here

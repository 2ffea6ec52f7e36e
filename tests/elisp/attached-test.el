;;; attached-test.el --- Tests of what waits for the daemon -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defconst attached-test--answer
  "(:seq 0 :revision 10 :status (:state \"idle\"))"
  "Answer to attach.")

(defmacro attached-test--with-session (text &rest body)
  "Evaluate BODY in a session with TEXT that is attached to a daemon."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-tell 'fake-answer attached-test--answer 'attach)
     (pyagentd-test-tell 'fake-answer "(:run \"r1\" :seq 1)" 'send)
     (let ((file (pyagentd-test-file root ,text)))
       (with-current-buffer (find-file-noselect file)
         (pyagentd-test-await (pyagentd-attached-p))
         (goto-char (point-max))
         ,@body))))

(defun attached-test--detach ()
  "Let this buffer be one that was not attached yet."
  (setq pyagentd-attach-state nil)
  (pyagentd-status-set nil))

(ert-deftest pyagentd-attached-then-is-at-once-where-it-can-be ()
  (attached-test--with-session "### Hi"
    (let (done)
      (pyagentd-attached-then (lambda () (setq done t)))
      (should done)
      (attached-test--detach)
      (setq done nil)
      (pyagentd-attached-then (lambda () (setq done (current-buffer))))
      (should-not done)
      (let ((here (current-buffer)))
        (with-temp-buffer
          (should (eq here (pyagentd-test-await done))))))))

(ert-deftest pyagentd-attached-then-comes-after-all-that-was-typed ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (let (typed)
      (pyagentd-attached-then (lambda () (insert " you")))
      (pyagentd-attached-then
       (lambda () (setq typed (list (pyagentd-edit-pending-p)))))
      (should (equal '(nil) (pyagentd-test-await typed)))
      (should (pyagentd-test-calls 'edit-document))
      (should-not pyagentd-attached--timer))))

(ert-deftest pyagentd-attached-send-does-not-wait-and-keeps-the-text ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (insert " there")
    (pyagentd-send)
    (should (eq (plist-get pyagentd-status :state) 'sending))
    (should-error (pyagentd-send) :type 'user-error) ; it is on its way
    ;; What is typed below belongs to the next prompt.
    (insert "\n\n### And then")
    (narrow-to-region 1 3)
    (should-not (pyagentd-test-calls 'send))
    (pyagentd-test-tell 'fake-answer attached-test--answer 'attach)
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)
    (pyagentd-test-await (pyagentd-test-calls 'send))
    (should (equal (buffer-string) "##"))
    (let ((sent (pyagentd-test-calls 'send)))
      (should (= 1 (length sent)))
      (should (= (plist-get (car sent) :end) (1+ (length "### Hi there")))))))

(ert-deftest pyagentd-attached-send-that-fails-leaves-a-draft ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (let ((pyagentd-call-timeout 0.05) said)
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args) (push (apply #'format args) said))))
        (pyagentd-send)
        (pyagentd-test-await (seq-find (lambda (line)
                                         (string-prefix-p "Not sent: " line))
                                       said))
        (should (equal (buffer-string) "### Hi"))
        (should-not (plist-get pyagentd-status :state))
        (should-not pyagentd-attach-awaited)))
    ;; The same can be sent again.
    (pyagentd-test-tell 'fake-answer attached-test--answer 'attach)
    (pyagentd-send)
    (pyagentd-test-await (pyagentd-test-calls 'send))
    (should (= 1 (length (pyagentd-test-calls 'send))))))

(ert-deftest pyagentd-attached-send-ends-behind-what-the-daemon-has-added ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (pyagentd-test-tell
     'fake-answer "(:seq 7 :marker 17 :edits ((nil ((7 7 \"\\n\\nYes\" ((1 6 response))))) (nil ((12 12 \"\\n\\n### \" nil)))))"
     'attach)
    (pyagentd-send)
    (pyagentd-test-await (pyagentd-test-calls 'send))
    (should (= (point) (point-max)))
    (should (= (plist-get (car (pyagentd-test-calls 'send)) :end)
               (point-max)))))

(ert-deftest pyagentd-attached-send-starts-a-daemon-and-says-when-none-starts ()
  (pyagentd-test-with-session "### Hi"
    (goto-char (point-max))
    (let ((pyagentd-command '("false")) said)
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args) (push (apply #'format args) said))))
        (pyagentd-send)
        (should (eq (plist-get pyagentd-status :state) 'sending))
        (pyagentd-test-await
         (seq-some (lambda (text) (string-prefix-p "Not sent: No connection" text)) said))
        (should-not (plist-get pyagentd-status :state))
        (should (equal (buffer-string) "### Hi"))))
    ;; Where no server is found it is said at once, and nothing waits.
    (let ((pyagentd-command '("/nonexistent/pyagentd")))
      (should-error (pyagentd-send) :type 'user-error)
      (should-not pyagentd-attach-awaited)
      (should-not (plist-get pyagentd-status :state)))))

(ert-deftest pyagentd-attached-send-goes-with-what-was-typed ()
  (attached-test--with-session "### Hi"
    (let ((pyagentd-autosave-enabled nil))
      (goto-char (point-max))
      (insert " there")
      (pyagentd-send)
      (pyagentd-test-await (pyagentd-test-calls 'send))
      (let ((edit (car (pyagentd-test-calls 'edit-document)))
            (sent (car (pyagentd-test-calls 'send))))
        (should (equal (plist-get edit :hunks) '((7 7 " there" nil))))
        (should (equal (plist-get sent :after) (plist-get edit :id)))
        (should (eql (plist-get sent :revision) (plist-get edit :revision)))
        (should (= (plist-get sent :end) (point-max)))))))

(ert-deftest pyagentd-attached-send-that-waits-can-be-stopped ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (pyagentd-send)
    (let (said)
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args) (push (apply #'format args) said))))
        (pyagentd-abort))
      (should (equal said '("Not sent: You stopped it"))))
    (should-not (plist-get pyagentd-status :state))
    (should (equal (buffer-string) "### Hi"))
    (pyagentd-test-tell 'fake-answer attached-test--answer 'attach)
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)
    (pyagentd-test-await (pyagentd-attached-p))
    (pyagentd-rpc-call 'status)
    (should-not (pyagentd-test-calls 'send))
    (should-not (pyagentd-test-calls 'abort))))

(ert-deftest pyagentd-attached-send-that-waits-outlives-the-connection ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (pyagentd-send)
    ;; The file changed meanwhile: it is tried again in a moment.
    (cl-incf pyagentd-attach--latest)
    (setq pyagentd-attach-state nil
          pyagentd-connect--retry nil)
    (pyagentd-rpc-disconnect)
    (pyagentd-test-await pyagentd-connect--retry)
    (should (eq (plist-get pyagentd-status :state) 'sending))
    (should (= 1 (length pyagentd-attach-awaited)))
    (should-error (pyagentd-send) :type 'user-error)
    (pyagentd-status-set nil)           ; as after reading the file
    (should-error (pyagentd-send) :type 'user-error)
    (pyagentd-test-tell 'fake-answer attached-test--answer 'attach)
    (pyagentd-test-await (pyagentd-test-calls 'send))
    (should (= 1 (length (pyagentd-test-calls 'send))))
    (should-not pyagentd-attach-awaited)
    (should-not pyagentd-chat--known)))

(ert-deftest pyagentd-attached-send-without-a-connection-says-so ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (let (said)
      (pyagentd-send)
      (cl-incf pyagentd-attach--latest)
      (setq pyagentd-attach-state nil)
      (pyagentd-rpc-disconnect)
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args) (push (apply #'format args) said))))
        (pyagentd-attached--give-up))
      (should (string-prefix-p "Not sent: The connection to the daemon ended"
                               (car said)))
      (should-not (plist-get pyagentd-status :state)))))

(ert-deftest pyagentd-attached-session-that-is-left-waits-for-nothing ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (pyagentd-send)
    (pyagentd-mode -1)
    (pyagentd-mode 1)
    (pyagentd-test-tell 'fake-answer attached-test--answer 'attach)
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)
    (pyagentd-test-await (pyagentd-attached-p))
    (should (eq (plist-get pyagentd-status :state) 'idle))
    (should-not (pyagentd-test-calls 'send))))

(ert-deftest pyagentd-attached-killed-buffers-wait-for-nothing ()
  (attached-test--with-session "### Hi"
    (attached-test--detach)
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (pyagentd-send)
    (let ((timer pyagentd-attached--timer))
      (should (memq timer timer-list))
      (kill-buffer)
      (should-not (memq timer timer-list)))
    (should-not (pyagentd-test-calls 'send))))

;;; attached-test.el ends here

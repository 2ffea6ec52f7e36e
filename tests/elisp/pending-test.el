;;; pending-test.el --- Tests of sessions that are being made -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defmacro pending-test--with-session (&rest body)
  "Evaluate BODY in the buffer of a session that a silent daemon makes.
`answer' is what the daemon would answer, `file' the conversation."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-tell 'fake-answer "(:seq 0 :revision 10)" 'attach)
     (pyagentd-test-tell 'fake-answer "(:run \"r1\" :seq 1)" 'send)
     (pyagentd-test-tell 'fake-silent "" 'create-session)
     (let* ((file (pyagentd-test-file root "" "sessions/two-cups-20260205143052/branches/main/session.md"))
            (answer (list :file file :title "Two cups")))
       (save-window-excursion
         (pyagentd-session "Two cups")
         (with-current-buffer (window-buffer)
           (unwind-protect (progn ,@body)
             (set-buffer-modified-p nil)
             (kill-buffer)))))))

(defun pending-test--line ()
  "Return what the header line says."
  (substring-no-properties (pyagentd-pending--line)))

(ert-deftest pyagentd-pending-the-same-command-again-makes-no-second-session ()
  (pending-test--with-session
    (let ((shown (current-buffer)))
      (insert "Hi there")
      (should (eq shown (pyagentd-session "Two cups")))
      (should (equal (buffer-string) "### Hi there"))
      (should (= 1 (length (pyagentd-test-calls 'create-session)))))))

(ert-deftest pyagentd-pending-a-buffer-of-the-same-name-is-left-alone ()
  (with-temp-buffer
    (rename-buffer "Two cups" t)
    (insert "Mine")
    (let ((mine (current-buffer)))
      (pending-test--with-session
        (should-not (eq mine (current-buffer)))
        (should (equal (buffer-string) "### ")))
      (should (equal (buffer-string) "Mine")))))

(ert-deftest pyagentd-pending-text-is-typed-at-once-and-stays ()
  (pending-test--with-session
    (let ((shown (current-buffer)) then)
      (should (equal (buffer-name) "Two cups"))
      (should (equal (buffer-string) "### "))
      (should (string-search "Creating session" (pending-test--line)))
      (setq pyagentd-pending--then (lambda () (setq then (current-buffer))))
      (insert "Hi there")
      (goto-char 7)
      (pyagentd-pending--made shown answer)
      (should (eq then shown))
      (should (eq (window-buffer) shown))
      (should (equal (list buffer-file-name (buffer-name) (point)
                           pyagentd-mode pyagentd-pending-mode)
                     (list file "Two cups" 7 t nil)))
      (should (consp buffer-undo-list))
      (pyagentd-test-await (pyagentd-attached-p))
      (should (equal (pyagentd-test-content file) "### Hi there"))
      (should-not (pyagentd-test-calls 'send)))))

(ert-deftest pyagentd-pending-session-need-not-have-a-name ()
  (pending-test--with-session
    (let ((read nil) (named (current-buffer)))
      (cl-letf (((symbol-function 'read-string)
                 (lambda (prompt &rest _) (setq read prompt) "")))
        (call-interactively #'pyagentd-session))
      (should (string-search "empty: titled" read))
      (should-not (eq (window-buffer) named))
      (kill-buffer (window-buffer)))
    (should (equal (mapcar (lambda (call)
                             (list (plist-get call :name)
                                   (plist-get call :titled)))
                           (pyagentd-test-calls 'create-session))
                   '(("Two cups" t) ("session" nil))))))

(ert-deftest pyagentd-pending-session-without-text-is-as-if-visited ()
  (pending-test--with-session
    (pyagentd-pending--made (current-buffer) answer)
    (should (equal (buffer-string) "### "))
    (should (eobp))
    (should-not (buffer-modified-p))
    (pyagentd-test-await (pyagentd-attached-p))))

(ert-deftest pyagentd-pending-prompt-is-sent-when-there-is-a-session ()
  (pending-test--with-session
    (should-error (pyagentd-pending--send) :type 'user-error) ; no words
    (insert "Hi there")
    (execute-kbd-macro (kbd "C-c RET"))
    (insert "And then")
    (should (string-search "Waiting" (pending-test--line)))
    (pyagentd-pending--made (current-buffer) answer)
    (pyagentd-test-await (pyagentd-test-calls 'send))
    (should (= (plist-get (car (pyagentd-test-calls 'send)) :end)
               (1+ (length "### Hi there"))))
    (should (equal (substring-no-properties (buffer-string))
                   "### Hi there\n\n\n### And then"))))

(ert-deftest pyagentd-pending-prompt-that-is-stopped-is-not-sent ()
  (pending-test--with-session
    (insert "Hi there")
    (execute-kbd-macro (kbd "C-c RET"))
    (execute-kbd-macro (kbd "C-c C-k"))
    (pyagentd-pending--made (current-buffer) answer)
    (pyagentd-test-await (pyagentd-attached-p))
    (pyagentd-test-await (null pyagentd-attach-awaited))
    (should-not (pyagentd-test-calls 'send))))

(ert-deftest pyagentd-pending-refusal-keeps-the-text-and-is-tried-again ()
  (pending-test--with-session
    (insert "Hi there")
    (pyagentd-pending--failed '(user-error "The disk is full"))
    (should (string-search "Session not created: The disk is full" (pending-test--line)))
    (should (string-search "C-c RET tries again" (pending-test--line)))
    (pyagentd-test-tell 'fake-answer (prin1-to-string answer) 'create-session)
    (execute-kbd-macro (kbd "C-c RET"))
    (pyagentd-test-await (pyagentd-test-calls 'send))
    (should (equal buffer-file-name file))
    (should (string-prefix-p "### Hi there" (buffer-string)))))

(ert-deftest pyagentd-pending-session-whose-buffer-is-gone-is-told ()
  (pending-test--with-session
    (let ((gone (generate-new-buffer "gone")) said)
      (kill-buffer gone)
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args) (setq said (apply #'format args)))))
        (pyagentd-pending--made gone answer))
      (should (string-search "session.md" said)))))

;;; pending-test.el ends here

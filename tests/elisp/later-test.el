;;; later-test.el --- Tests of commands that do not wait -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'pyagentd-daemon)

(ert-deftest pyagentd-later-here-keeps-the-buffer-of-the-command ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-answer "3" 'status)
    (let (seen)
      (with-temp-buffer
        (let ((here (current-buffer)))
          (pyagentd-later-here 'status nil
                               (lambda (answer)
                                 (push (cons answer (current-buffer)) seen)))
          (should-not seen)
          (with-temp-buffer
            (pyagentd-test-await seen))
          (should (equal seen `((3 . ,here))))))
      ;; Nothing happens for a buffer that is dead.
      (setq seen nil)
      (with-temp-buffer
        (pyagentd-later-here 'status nil (lambda (_) (push 'dead seen))))
      (pyagentd-later 'status nil (lambda (_) (push 'last seen)))
      (pyagentd-test-await seen)
      (should (equal seen '(last))))))

(ert-deftest pyagentd-later-gives-refusals-to-who-wants-them ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-error "(busy \"A run is going on\")" 'send)
    (pyagentd-test-tell 'fake-silent "" 'status)
    (let (errors said)
      (pyagentd-later 'send nil #'ignore nil (lambda (err) (push err errors)))
      (pyagentd-later 'status nil #'ignore 0.05
                      (lambda (err) (push err errors)))
      (pyagentd-test-await (= (length errors) 2))
      (should (equal (mapcar #'car (reverse errors))
                     '(pyagentd-remote-error pyagentd-timeout)))
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args) (push (apply #'format args) said))))
        (pyagentd-later 'send nil)
        (pyagentd-test-await said)
        (should (equal said '("A run is going on")))
        ;; What is wrong with the answer is said in the same way.
        (setq said nil)
        (pyagentd-later 'fake-calls nil (lambda (_) (user-error "Nothing there")))
        (pyagentd-test-await said)
        (should (equal said '("Nothing there")))))))

(ert-deftest pyagentd-later-says-when-no-daemon-starts ()
  (pyagentd-test-with-place
    (let ((pyagentd-command '("false")) failure)
      (pyagentd-later 'status nil #'ignore nil (lambda (err) (setq failure err)))
      (should-not failure)
      (should (eq (car (pyagentd-test-await failure))
                  'pyagentd-connection-error)))))

(ert-deftest pyagentd-later-asks-nothing-while-something-is-asked ()
  (pyagentd-test-with-daemon
    (let ((asked t) (pyagentd-later--look 0.01) seen)
      (cl-letf (((symbol-function 'pyagentd-later--asked-p)
                 (lambda () asked)))
        (pyagentd-later-asking 'status nil (lambda (_) (push 'asked seen)))
        (pyagentd-later 'status nil (lambda (_) (push 'told seen)))
        (pyagentd-test-await seen)
        (should (equal seen '(told)))
        (sleep-for 0.05)
        (should (equal seen '(told)))
        (setq asked nil)
        (pyagentd-test-await (equal seen '(asked told)))))))

(ert-deftest pyagentd-later-asking-reads-what-is-typed-right-behind-it ()
  (pyagentd-test-with-daemon
    (let* ((seen nil)
           (asks (lambda ()
                   (interactive)
                   (pyagentd-later-asking
                    'status nil
                    (lambda (_) (push (list (read-event) (read-event)) seen))))))
      (with-temp-buffer
        (switch-to-buffer (current-buffer))
        (use-local-map (let ((map (make-sparse-keymap)))
                         (define-key map (kbd "C-c a") asks)
                         map))
        (let ((pyagentd-later--soon 60))
          (execute-kbd-macro (kbd "C-c a x y"))
          (pyagentd-test-await seen))
        (should (equal seen '((?x ?y))))
        (should (equal "" (buffer-string)))
        ;; An answer that is awaited for long keeps nobody from typing.
        (pyagentd-test-tell 'fake-silent "" 'status)
        (let ((pyagentd-later--soon 0.01))
          (execute-kbd-macro (kbd "C-c a x y"))
          (pyagentd-test-await unread-command-events)
          (should (equal unread-command-events '(?x ?y)))
          (setq unread-command-events nil)
          (execute-kbd-macro "z")
          (should (equal "z" (buffer-string))))))))

(ert-deftest pyagentd-later-tells-that-an-answer-is-awaited ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-silent "" 'status)
    (let ((pyagentd-later--soon 0.01) said done)
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args) (push (apply #'format args) said))))
        (pyagentd-later 'status nil #'ignore 0.1 (lambda (_) (setq done t)))
        (pyagentd-test-await done)
        (should (member "Asking the daemon…" said))))))

;;; later-test.el ends here

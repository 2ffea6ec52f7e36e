;;; notify-test.el --- Tests of notifications -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)

(defmacro notify-test--with (desktop focus &rest body)
  "Evaluate BODY with `pyagentd-notify-desktop' at DESKTOP and FOCUS or not.
The variable `told' is what was said on the desktop, `said' in Emacs."
  (declare (indent 2) (debug t))
  `(let ((pyagentd-notify-desktop ,desktop) told said)
     (cl-letf (((symbol-function 'pyagentd-notify--desktop)
                (lambda (ask) (push (pyagentd-ask-title ask) told)))
               ((symbol-function 'frame-focus-state) (lambda (&rest _) ,focus))
               ((symbol-function 'message)
                (lambda (format &rest args)
                  (push (apply #'format format args) said))))
       ,@body)))

(defun notify-test--ask ()
  "Return an ask of a session that nobody has open."
  '(:id "q1" :branch "/s/branches/main" :tool "Bash" :detail "ls"))

(ert-deftest pyagentd-notify-says-what-nobody-sees ()
  (notify-test--with nil t
    (pyagentd-notify (notify-test--ask))
    (should (string-prefix-p "May it? Bash ls  (" (car said)))
    (accept-process-output nil 0.01)
    (should-not told)))

(ert-deftest pyagentd-notify-says-nothing-of-what-is-in-a-window ()
  (pyagentd-test-with-ask
    (goto-char (point-max))
    (switch-to-buffer (current-buffer))
    (notify-test--with nil t
      (pyagentd-notify (car (pyagentd-ask-open)))
      (should-not said))))

(ert-deftest pyagentd-notify-says-what-is-scrolled-away ()
  (pyagentd-test-with-ask
    (switch-to-buffer (current-buffer))
    (goto-char (point-min))
    (cl-letf (((symbol-function 'pos-visible-in-window-p) #'ignore))
      (notify-test--with nil t
        (pyagentd-notify (car (pyagentd-ask-open)))
        (should said)))))

(ert-deftest pyagentd-notify-tells-the-desktop-when-told-to ()
  (pcase-dolist (`(,desktop ,focus ,expected)
                 '((nil nil nil) (background t nil) (background unknown nil)
                   (background nil ("Bash ls")) (t t ("Bash ls"))))
    (notify-test--with desktop focus
      (pyagentd-notify (notify-test--ask))
      (if expected (pyagentd-test-await told) (accept-process-output nil 0.01))
      (should (equal told expected)))))

(ert-deftest pyagentd-notify-says-who-else-has-answered ()
  (pcase-dolist (`(,decision ,by ,expected)
                 '(("allow" "emacs 28.2" "Allowed by emacs 28.2: Bash rm -rf build")
                   ("deny" "cli" "Denied by cli: Bash rm -rf build")
                   ("abort" "" nil)))
    (pyagentd-test-with-ask
      (goto-char (point-max))
      (switch-to-buffer (current-buffer))
      (notify-test--with nil t
        (pyagentd-test-events
         `(answered 2 (:id "q1" :decision ,decision :by ,by)))
        (should (equal (car said) expected))))))

(ert-deftest pyagentd-notify-says-nothing-of-ones-own-answer ()
  (pyagentd-test-with-ask
    (pyagentd-test-tell 'fake-silent "" 'answer)
    (notify-test--with nil t
      (pyagentd-allow-once)
      (pyagentd-test-events '(answered 2 (:id "q1" :decision "allow" :by "me")))
      (should-not said))
    (should-not (pyagentd-ask-open))))

(ert-deftest pyagentd-notify-escapes-markup ()
  (should (equal "a &lt;b> &amp;&amp; c" (pyagentd-notify--escape "a <b> && c"))))

;;; notify-test.el ends here

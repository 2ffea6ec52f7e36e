;;; notify-test.el --- Tests of notifications -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'keys)

(defmacro notify-test--with (desktop focus &rest body)
  "Evaluate BODY with `pyagentd-notify-desktop' at DESKTOP and FOCUS or not.
The variable `told' is what was said on the desktop, a list (TITLE TEXT),
and `said' what was in Emacs, both latest first."
  (declare (indent 2) (debug t))
  `(let ((pyagentd-notify-desktop ,desktop) (told nil) (said nil)
         (pyagentd-notify--asked nil) (pyagentd-notify--finished nil)
         (pyagentd-notify--timer t))    ; it is told when the test says so
     (cl-letf (((symbol-function 'pyagentd-desktop-show)
                (lambda (_name title text _then) (push (list title text) told)))
               ((symbol-function 'frame-focus-state) (lambda (&rest _) ,focus))
               ((symbol-function 'terminal-name) (lambda (&rest _) "tty"))
               ((symbol-function 'message)
                (lambda (format &rest args)
                  (push (apply #'format format args) said))))
       (ignore told said)
       ,@body)))

(defun notify-test--ask ()
  "Return an ask of a session that nobody has open."
  '(:id "q1" :branch "/s/branches/main" :tool "Bash" :what "Bash ls"))

(ert-deftest pyagentd-notify-says-what-nobody-sees ()
  (notify-test--with nil t
    (pyagentd-notify (notify-test--ask))
    (should (string-prefix-p "Allow Bash ls?  (" (car said)))
    (pyagentd-notify--tell)
    (should-not told)))

(ert-deftest pyagentd-notify-says-no-longer-what-does-not-wait ()
  (let ((pyagentd-ask--pending nil) (pyagentd-notify--asked nil)
        (pyagentd-notify--timer t) shown)
    (cl-letf (((symbol-function 'message)
               (lambda (format &rest args)
                 (setq shown (and format (apply #'format format args)))))
              ((symbol-function 'current-message) (lambda () shown)))
      (pyagentd-ask-add (notify-test--ask))
      (should (string-prefix-p "Allow Bash ls?  (" shown))
      (pyagentd-ask-remove "q1")
      (should-not shown)
      (pyagentd-ask-add (notify-test--ask))
      (message "Another")
      (pyagentd-ask-remove "q1")
      (should (equal shown "Another")))))

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
                   (background nil t) (t t t)))
    (notify-test--with desktop focus
      (let ((pyagentd-ask--pending nil))
        (pyagentd-ask-add (notify-test--ask))
        (pyagentd-notify--tell)
        (should (equal told (and expected '(("The agent asks" "Bash ls")))))
        (pyagentd-notify--tell)         ; and only once
        (should (equal (length told) (if expected 1 0)))))))

(ert-deftest pyagentd-notify-tells-at-once-what-comes-within-a-moment ()
  (notify-test--with 'background nil
    (let ((pyagentd-ask--pending nil))
      (dolist (id '("q1" "q2" "q3"))
        (pyagentd-ask-add (append (list :id id) (notify-test--ask))))
      (pyagentd-ask-remove "q2")
      (pyagentd-notify--tell)
      (should (equal told '(("2 questions wait" "Bash ls\nBash ls")))))))

(ert-deftest pyagentd-notify-tells-nothing-of-what-is-answered-by-then ()
  (notify-test--with 'background nil
    (let ((pyagentd-ask--pending nil))
      (pyagentd-ask-add (notify-test--ask))
      (pyagentd-ask-remove "q1")
      (pyagentd-notify--tell)
      (should-not told))))

(ert-deftest pyagentd-notify-tells-of-runs-that-finish-if-wanted ()
  (pcase-dolist (`(,wanted ,run ,expected)
                 '((nil (:reason "done") nil)
                   (t (:reason "done") ("The run has finished" "Try"))
                   (t (:reason error :message "no key")
                      ("The run has failed" "Try: no key"))
                   (t (:reason "aborted") nil)))
    (pyagentd-test-with-session "### Hi"
      (setq pyagentd-status-title "Try")
      (notify-test--with 'background nil
        (let ((pyagentd-notify-finished wanted) also)
          (let ((pyagentd-notify-functions
                 (list (lambda (&rest args) (setq also args)))))
            (run-hook-with-args 'pyagentd-run-finished-functions run)
            (pyagentd-notify--tell))
          (should (equal (car told) expected))
          (should (equal also expected)))))))

(ert-deftest pyagentd-notify-goes-on-after-an-error-in-a-function-of-the-users ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (let* ((debug-on-error nil)
           (calls 0)
           (broken (lambda (&rest _) (cl-incf calls) (error "Broken")))
           (pyagentd-notify-finished t)
           (pyagentd-run-finished-functions
            (cons broken pyagentd-run-finished-functions)))
      (add-hook 'gptel-post-response-functions broken nil t)
      (notify-test--with 'background nil
        (pyagentd-test-events '(run 3 (:id "r" :phase "finished" :reason "done")))
        (should (= calls 2))
        (let ((pyagentd-notify-functions (list broken broken)))
          (pyagentd-notify--tell))
        (should (= calls 4))
        (should (equal (caar told) "The run has finished"))))))

;; The desktop tells the number of a notification later than it is shown.
(ert-deftest pyagentd-desktop-changes-and-closes-what-it-shows ()
  (let (calls handler clicked (pyagentd-desktop--shown nil)
              (pyagentd-desktop--listening t))
    (cl-letf (((symbol-function 'pyagentd-desktop-p) #'always)
              ((symbol-function 'dbus-call-method-asynchronously)
               (lambda (_bus _service _path _interface method function &rest args)
                 (setq handler (or function handler))
                 (push (cons method (seq-take (seq-drop args 2) 2)) calls))))
      (pyagentd-desktop-show 'asks "A" "a < b & c" (lambda () (setq clicked t)))
      (should (equal (pop calls) '("Notify" :uint32 0)))
      (pyagentd-desktop-hide 'asks)
      (should-not calls)                ; it has no number yet
      (funcall handler 7)
      (should (equal (car (pop calls)) "CloseNotification"))
      (pyagentd-desktop-show 'asks "A" "a" (lambda () (setq clicked t)))
      (funcall handler 8)
      (pyagentd-desktop-show 'asks "B" "b" (lambda () (setq clicked t)))
      (should (equal (car calls) '("Notify" :uint32 8)))
      (pyagentd-desktop--clicked 7)
      (should-not clicked)
      (pyagentd-desktop--clicked 8)
      (should clicked)
      (pyagentd-desktop-hide 'asks))))

(ert-deftest pyagentd-desktop-that-is-not-there-is-in-nobodys-way ()
  (let ((process-environment '("DBUS_SESSION_BUS_ADDRESS" "XDG_RUNTIME_DIR"))
        (pyagentd-desktop--shown nil))
    (pyagentd-desktop-show 'asks "A" "a" #'ignore)
    (should-not pyagentd-desktop--shown)))

(defun notify-test--mode-line ()
  "Return what all mode lines say."
  (mapconcat (lambda (each) (if (symbolp each) (symbol-value each) each))
             (ensure-list global-mode-string) ""))

(ert-deftest pyagentd-lighter-counts-what-waits-anywhere ()
  (let ((pyagentd-ask--pending nil) (global-mode-string nil))
    (notify-test--with nil t
      (pyagentd-ask-add (notify-test--ask))
      (should (equal (notify-test--mode-line) "1 ask "))
      (pyagentd-ask-add '(:id "q2" :branch "/t/branches/main" :tool "Read"))
      (should (equal (notify-test--mode-line) "2 asks "))
      (pyagentd-ask-clear)
      (should (equal (notify-test--mode-line) "")))))

;; A conversation that is not open here asks; a daemon tells of all.
(ert-deftest pyagentd-notify-knows-what-waits-where-nobody-looks ()
  (pyagentd-test-with-daemon
    (pyagentd-test-answer
     'asks '(:asks ((:id "q9" :branch "/s/branches/main" :tool "Bash"))))
    (pyagentd-notify--watch)
    (unwind-protect
        (progn
          (pyagentd-test-await (pyagentd-ask-find "q9"))
          (should (equal '(:watch t) (car (last (pyagentd-test-calls 'asks)))))
          (should (string-search "1 ask" pyagentd-lighter--text)))
      (pyagentd-ask-clear))))

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
  (should (equal "a &lt;b> &amp;&amp; c" (pyagentd-desktop--text "a <b> && c"))))

;;; notify-test.el ends here

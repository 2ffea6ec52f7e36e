;;; ask-test.el --- Tests of asks -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defconst ask-test--ask
  '(:id "q1" :tool "Bash" :detail "rm -rf\nbuild" :reason "not in scope"
    :action "tool:Bash:rm" :preview "-old\n+new")
  "An ask.")

(defmacro ask-test--with-ask (&rest body)
  "Evaluate BODY in a session in which `ask-test--ask' is open."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
       (pyagentd-test-tell 'fake-answer "(:seq 0 :editor t)" 'attach)
       (pyagentd-test-tell 'fake-answer "(:accepted t)" 'answer)
       (pyagentd-attach-now)
       (unwind-protect
           (progn (pyagentd-test-events (list 'ask 1 ask-test--ask))
                  ,@body)
         (pyagentd-ask-clear)))))

(defun ask-test--overlay ()
  "Return the overlay of the notice in this buffer, or nil."
  pyagentd-ask-notice--overlay)

(defun ask-test--text ()
  "Return what the notice in this buffer says."
  (substring-no-properties (overlay-get (ask-test--overlay) 'before-string)))

(ert-deftest pyagentd-ask-shows-what-is-asked-and-the-keys ()
  (ask-test--with-ask
    (let ((text (overlay-get (ask-test--overlay) 'before-string)))
      (dolist (part '("Bash rm -rf build" "not in scope" "-old" "+new"
                      "C-c C-y" "C-c C-n" "C-c C-k"))
        (should (string-match-p (regexp-quote part) text))))
    (should (= (overlay-start (ask-test--overlay)) (point-max)))
    (should-not (buffer-modified-p))))

(ert-deftest pyagentd-ask-keys-answer ()
  (pcase-dolist (`(,keys ,decision) '(("C-c C-y" allow) ("C-c C-n" deny)
                                      ("C-c C-k" abort)))
    (ask-test--with-ask
      (let ((command (lookup-key pyagentd-mode-map (kbd keys))))
        (call-interactively command)
        (pyagentd-test-await (null pyagentd-ask--pending))
        (should (equal (pyagentd-test-calls 'answer)
                       `((:ask "q1" :decision ,decision :reason ""))))
        (should-not (ask-test--overlay))))))

(ert-deftest pyagentd-ask-deny-with-prefix-reads-a-reason ()
  (ask-test--with-ask
    (cl-letf (((symbol-function 'read-string) (lambda (&rest _) "use make clean")))
      (let ((current-prefix-arg '(4)))
        (call-interactively #'pyagentd-deny)))
    (pyagentd-test-await (null pyagentd-ask--pending))
    (should (equal (plist-get (car (pyagentd-test-calls 'answer)) :reason)
                   "use make clean"))))

(ert-deftest pyagentd-ask-answered-elsewhere-disappears ()
  (ask-test--with-ask
    (pyagentd-test-events '(answered 2 (:id "q1" :decision "allow")))
    (should-not (ask-test--overlay))
    (should-error (pyagentd-allow-once) :type 'user-error)))

(ert-deftest pyagentd-ask-of-an-agent-shows-in-the-uppermost-open-buffer ()
  (ask-test--with-ask
    (let ((branch (expand-file-name "agents/x/agents/y" pyagentd--branch-dir)))
      (should (equal (pyagentd-ask-buffers (list :branch branch))
                     (list (current-buffer))))
      (should (equal (pyagentd-ask-root branch) pyagentd--branch-dir)))
    (should-not (pyagentd-ask-buffers '(:branch "/elsewhere/branches/main")))))

(ert-deftest pyagentd-ask-twice-is-shown-once ()
  (ask-test--with-ask
    (pyagentd-test-events (list 'ask 1 ask-test--ask))
    (should (= 1 (length pyagentd-ask--pending)))
    (should (= 1 (length (overlays-in 1 (1+ (buffer-size))))))))

(ert-deftest pyagentd-ask-preview-is-bounded ()
  (let ((text (pyagentd-ask-text-preview (mapconcat #'number-to-string
                                                (number-sequence 1 1000) "\n"))))
    (should (< (length (split-string text "\n")) 30))
    (should (string-match-p "976 more lines" text))))

;;; ask-test.el ends here

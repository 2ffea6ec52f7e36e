;;; plan-test.el --- Tests of pyagentd-plan -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-chat)

(defconst plan-test--available
  "(:agent \"build\" :opened-with \"build\" :plan t :agents
    ((:name \"build\" :description \"Works.\")
     (:name \"plan\" :description \"Looks.\" :read-only t)))")

(defmacro plan-test--with-session (text &rest body)
  "Evaluate BODY in a session with TEXT that is attached to a daemon."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-tell
      'fake-answer "(:seq 0 :revision 10 :preset \"build\" :model \"m\" :status (:state \"idle\" :agent \"build\"))"
      'attach)
     (pyagentd-test-tell 'fake-answer plan-test--available 'agents-available)
     (pyagentd-test-tell 'fake-answer "(:run \"r1\" :seq 1)" 'send)
     (pyagentd-test-tell 'fake-answer "(:run \"r2\" :seq 2)" 'approve)
     (let ((file (pyagentd-test-file root ,text)))
       (with-current-buffer (find-file-noselect file)
         (pyagentd-test-await (eq pyagentd-attach-state t))
         (goto-char (point-max))
         ,@body))))

(ert-deftest pyagentd-plan-the-chosen-agent-answers-the-next-message ()
  (plan-test--with-session "### Hi"
    (should-not (pyagentd-plan--agent-words))
    (pyagentd-choose-agent "plan")
    (should (string-match-p "\\[build → plan\\]" pyagentd-status--line))
    (pyagentd-send)
    (pyagentd-test-await (pyagentd-test-calls 'send))
    (should (equal (plist-get (car (pyagentd-test-calls 'send)) :agent) "plan"))
    (pyagentd-status-set '(:state busy :agent "plan"))
    (should-not pyagentd-plan-next)))

(ert-deftest pyagentd-plan-choosing-who-answers-anyway-chooses-nobody ()
  (plan-test--with-session "### Hi"
    (pyagentd-choose-agent "plan")
    (pyagentd-choose-agent "build")
    (should-not pyagentd-plan-next)
    (should-not (plist-get (list :agent pyagentd-plan-next) :agent))))

(ert-deftest pyagentd-plan-the-header-names-an-agent-that-is-not-the-sessions ()
  (plan-test--with-session "### Hi"
    (pyagentd-status-set '(:state idle :agent "plan"))
    (should (string-match-p "\\[plan\\]" pyagentd-status--line))
    (pyagentd-status-set '(:state sending))
    (should (string-match-p "\\[plan\\]" pyagentd-status--line))
    (pyagentd-status-set '(:state idle :agent "build"))
    (should-not (string-match-p "\\[" pyagentd-status--line))))

(ert-deftest pyagentd-plan-agents-are-annotated ()
  (plan-test--with-session "### Hi"
    (pyagentd-test-tell
     'fake-answer
     "(:agent \"build\" :agents ((:name \"build\" :description \"Works.\") (:name \"plan\" :description \"Looks.\" :read-only t)))"
     'agents-available)
    (let (seen)
      (pyagentd-test-with-options seen
        (pyagentd-test-type "M-x pyagentd-choose-agent RET plan RET")
        (pyagentd-test-await pyagentd-plan-next))
      (should (equal pyagentd-plan-next "plan"))
      (should (equal seen '(("build" "  Works.") ("plan" "  [read-only] Looks.")))))))

(ert-deftest pyagentd-plan-approving-saves-and-says-so-with-one-key ()
  (plan-test--with-session "### Plan"
    (insert "\n\nThe plan.\n\n### but briefly")
    (setq pyagentd-plan-next "plan")
    (should (eq (key-binding (kbd "C-c C-c")) #'pyagentd-approve))
    (should (eq (key-binding (kbd "C-c M-l")) #'pyagentd-choose-agent))
    (pyagentd-approve)
    (pyagentd-test-await (pyagentd-test-calls 'approve))
    (should (pyagentd-test-sent-p "but briefly"))
    (let ((request (car (pyagentd-test-calls 'approve))))
      (should (equal (plist-get request :branch) pyagentd--branch-dir))
      (should-not (plist-member request :agent)))
    (pyagentd-test-await (null pyagentd-plan-next))))

(ert-deftest pyagentd-plan-outside-of-a-session-nothing-is-approved ()
  (with-temp-buffer
    (should-error (pyagentd-approve) :type 'user-error)
    (should-error (pyagentd-choose-agent "plan") :type 'user-error)))

(ert-deftest pyagentd-plan-the-agent-is-asked-for-once-the-daemon-named-them ()
  (plan-test--with-session "### Hi"
    (pyagentd-test-type "C-c M-l plan RET")
    (should (equal pyagentd-plan-next "plan"))
    (should (equal (pyagentd-test-said (pyagentd-test-type "C-c C-c n"))
                   "Not approved"))
    (should-not (pyagentd-test-calls 'approve))
    (pyagentd-test-type "C-u C-c C-c y plan RET")
    (pyagentd-test-settle)
    (should (equal (plist-get (car (pyagentd-test-calls 'approve)) :agent)
                   "plan"))))

(ert-deftest pyagentd-plan-where-there-is-none-nothing-is-approved ()
  (plan-test--with-session "### Hi"
    (pyagentd-test-answer 'agents-available '(:agent "build" :plan nil :agents nil))
    (should (equal (pyagentd-test-said (pyagentd-test-type "C-c C-c"))
                   "There is no question here, and no plan to approve"))
    (should-not (pyagentd-test-calls 'approve))))

(ert-deftest pyagentd-plan-the-key-connects-and-says-what-is-asked ()
  (plan-test--with-session "### Hi"
    (pyagentd-test-answer
     'attach '(:seq 0 :revision 10
                    :asks ((:id "q1" :type "tool-approval" :tool-name "Bash"))))
    (setq pyagentd-attach-state nil)
    (should (equal (pyagentd-test-said (pyagentd-test-type "C-c C-c")
                     (pyagentd-test-await (pyagentd-ask-notice-current)))
                   "A question is open here; C-c C-c goes to it"))
    (should-not (pyagentd-test-calls 'approve))))

(ert-deftest pyagentd-plan-without-a-choice-nothing-is-asked ()
  (plan-test--with-session "### Hi"
    (pyagentd-test-answer 'agents-available '(:agent "x" :agents nil))
    (should (string-match-p "its own preset"
                            (pyagentd-test-said
                              (call-interactively #'pyagentd-choose-agent))))
    (should-not pyagentd-plan-next)))

(provide 'plan-test)
;;; plan-test.el ends here

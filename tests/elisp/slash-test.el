;;; slash-test.el --- Tests of slash commands -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defun slash-test--answer (recorded text)
  "Let the daemon answer `send' with a command that says TEXT, maybe RECORDED."
  (pyagentd-test-tell
   'fake-answer
   (format "(:run nil :seq 1 :command (:name \"tasks\" :text %S :recorded %s))"
           text recorded)
   'send))

(defmacro slash-test--with-session (text &rest body)
  "Evaluate BODY at the end of an attached session with TEXT."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-tell
      'fake-answer "(:seq 0 :revision 10 :status (:state \"idle\"))" 'attach)
     (with-current-buffer (find-file-noselect (pyagentd-test-file root ,text))
       (pyagentd-test-await (eq pyagentd-attach-state t))
       (goto-char (point-max))
       ,@body)))

(ert-deftest pyagentd-slash-an-answer-in-the-text-is-left-there ()
  (slash-test--with-session "### /tasks"
    (slash-test--answer 't "No running tasks")
    (pyagentd-send)
    (pyagentd-test-await (eq (plist-get pyagentd-status :state) 'idle))
    (should (equal (buffer-string) "### /tasks"))))

(ert-deftest pyagentd-slash-an-answer-to-this-client-alone-is-shown ()
  (slash-test--with-session "### /tasks"
    (slash-test--answer 'nil "Running tasks:\n  [task_001] make")
    (pyagentd-send)
    (pyagentd-test-await (get-buffer "*pyagentd command*"))
    (should (equal (buffer-string) "### "))
    (should (eq (plist-get pyagentd-status :state) 'idle))
    (with-current-buffer "*pyagentd command*"
      (should (equal (buffer-string) "Running tasks:\n  [task_001] make\n"))
      (kill-buffer))))

(provide 'slash-test)
;;; slash-test.el ends here

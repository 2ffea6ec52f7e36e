;;; jf-test.el --- Tests of the specifications' names -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(ert-deftest pyagentd-jf-functions-exist ()
  (dolist (name '(jf/gptel-persistent-session jf/gptel-session-create-persistent
                  jf/gptel--maybe-initialize-session-buffer
                  jf/gptel--auto-save-session-buffer jf/gptel--register-session
                  jf/gptel--branches-dir-path jf/gptel--branch-dir-path
                  jf/gptel--agents-dir-path jf/gptel--context-file-path
                  jf/gptel--scope-plan-file-path jf/gptel--preset-file-path
                  jf/gptel--list-session-directories jf/gptel--list-branches
                  jf/gptel--find-all-branches-with-agents jf/gptel--log
                  jf/gptel-persistent-agent--indicate-wait
                  jf/gptel-persistent-agent--indicate-tool-call))
    (should (functionp name))))

(ert-deftest pyagentd-jf-variables-are-ours ()
  "SPEC 001 Buffer initialization sets all variables."
  (pyagentd-test-with-session "### Hi"
    (should (equal jf/gptel--session-id pyagentd--session-id))
    (should (equal jf/gptel--session-dir pyagentd--session-dir))
    (should (equal jf/gptel--branch-name "main"))
    (should (equal jf/gptel--branch-dir pyagentd--branch-dir))
    (should (eq jf/gptel-autosave-enabled t))
    (should (= jf/gptel-autosave-idle-time 0.5))))

(ert-deftest pyagentd-jf-auto-save-saves-sessions-only ()
  (with-temp-buffer
    (should-not (jf/gptel--auto-save-session-buffer)))
  (pyagentd-test-with-session "### Hi"
    (goto-char (point-max))
    (insert "!")
    (jf/gptel--auto-save-session-buffer 1 2)
    (should (equal (pyagentd-test-content file) "### Hi!"))))

;;; jf-test.el ends here

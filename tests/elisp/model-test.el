;;; model-test.el --- Tests of choosing the model -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-model)

(ert-deftest pyagentd-model-is-chosen-for-the-session-and-saved ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :settings '(:model "opus"))
    (pyagentd-choose-model "haiku")
    (should (string-match-p "haiku\\*" pyagentd-status--line))
    (should (string-search "gptel-model: haiku" (pyagentd-test-content file)))
    (pyagentd-choose-model "")
    (should (string-match-p "opus\\'" (string-trim pyagentd-status--line)))))

(ert-deftest pyagentd-model-what-the-daemon-has-is-offered ()
  (pyagentd-test-with-daemon
    (let ((pyagentd-model--known nil) (pyagentd-model-history nil))
      (pyagentd-test-answer
       'models '(:providers ((:name "a" :valid t :models ("opus" "haiku"))
                             (:name "b" :valid nil :models ("gone")))))
      (pyagentd-model--fetch)
      (pyagentd-test-await pyagentd-model--known)
      (should (equal (all-completions "" #'pyagentd-model--table)
                     '("opus" "haiku"))))))

(provide 'model-test)
;;; model-test.el ends here

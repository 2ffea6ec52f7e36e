;;; usage-test.el --- Tests of what runs and what it costs -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'keys)
(require 'pyagentd-list)
(require 'pyagentd-core)

;;;; What was spent

(ert-deftest pyagentd-usage-is-counted-and-shown-otherwise ()
  (pyagentd-test-with-daemon
    (pyagentd-test-answer
     'view (pyagentd-test-view
            '("Day" "Cost" "")
            '(("2026-11-22" nil (:kind "view" :name "usage"
                                 :arguments (:by "session" :days 7))
               "2026-11-22 Sun" "$4.00" (:text "█▌" :face "good")))
            '((:key "m" :label "by model" :arguments (:by "model"))
              (:key "t" :label "how long"
               :reads (:argument "days" :prompt "Days: " :number t)))))
    (save-window-excursion (pyagentd-list-show "usage"))
    (with-current-buffer "*pyagentd usage*"
      (unwind-protect
          (progn
            (pyagentd-test-await pyagentd-list--view)
            (revert-buffer)
            (pyagentd-test-settle)
            (should (string-match-p "\\$4.00 +█▌$"
                                    (car (pyagentd-test-lines))))
            (pyagentd-test-type "m")
            (pyagentd-test-type "t 0 RET")
            (goto-char (point-min))
            (pyagentd-test-type "RET")
            (should (equal (mapcar (lambda (call) (plist-get call :arguments))
                                   (cdr (pyagentd-test-calls 'view)))
                           '(nil (:by "model") (:by "model" :days 0)
                             (:by "session" :days 7)))))
        (kill-buffer "*pyagentd usage*")))))

(ert-deftest pyagentd-usage-page-is-shown-though-a-list-has-its-name ()
  (pyagentd-test-with-daemon
    (pyagentd-test-answer
     'view (pyagentd-test-view
            '("Day")
            '(("today" (:charts (:kind "report" :name "usage"
                                 :arguments (:days 7) :called ""))
               nil "today"))
            '((:key "c" :label "charts" :place "charts"))))
    (pyagentd-test-answer 'report '(:title "Usage"
                                    :lines ((:level 0 :parts ("drawn")))))
    (save-window-excursion
      (pyagentd-list-show "usage")
      (pyagentd-test-await pyagentd-list--view)
      (goto-char (point-min))
      (pyagentd-test-type "c"))
    (with-current-buffer "*pyagentd usage*"
      (should (equal (buffer-string) "drawn\n"))
      (should-error (pyagentd-report--back) :type 'user-error)
      (kill-buffer))))

;;; usage-test.el ends here

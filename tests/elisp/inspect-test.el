;;; inspect-test.el --- Tests of the inspector and of schedules -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-inspect)
(require 'pyagentd-schedules)

(defconst inspect-test--report
  "{\"session\": {\"session_id\": \"demo\", \"branch_name\": \"main\", \"title\": \"Demo\",
     \"model\": \"m\", \"backend\": \"Claude\", \"temperature\": 0.5, \"workspace_root\": \"/w\"},
    \"usage\": {\"own\": {\"tokens\": {\"input\": 12, \"output\": 3}, \"cost_usd\": null}},
    \"system\": \"Be kind.\\n* Be brief.\", \"tools\": [{\"name\": \"Read\", \"description\": \"Reads.\"}],
    \"permissions\": {\"profile\": null, \"read_only\": false, \"paths\": {\"read\": [\"/w/**\"], \"write\": [], \"deny\": []},
     \"shell_commands\": {\"allow\": [], \"deny\": []}, \"denied_above\": [],
     \"grants\": [{\"kind\": \"session\", \"action\": \"tool:Bash:ls\"}]},
    \"runs\": [{\"id\": \"run_1\", \"message_id\": \"msg_1\", \"prompt\": \"What is it?\", \"reason\": \"done\", \"trigger\": null,
     \"error\": null, \"decisions\": [{\"decision\": \"allow\", \"action\": \"tool:Read:/w/a\", \"rule\": \"scope\", \"by\": null}],
     \"steps\": [{\"number\": 1, \"step\": 1, \"purpose\": \"step\", \"at\": 1772600000000, \"model\": \"m\", \"messages\": 1,
      \"new_messages\": 1, \"duration_ms\": 20, \"first_token_ms\": 5, \"parameters\": {\"temperature\": 0.5},
      \"usage\": {\"input\": 12, \"output\": 3, \"reasoning\": 0, \"cache_read\": 0, \"cache_write\": 0}, \"cost_usd\": 0.01,
      \"stop_reason\": \"tool_use\", \"error\": null, \"retries\": [{\"attempt\": 1, \"message\": \"Overloaded\", \"delay_s\": 0}],
      \"calls\": [{\"id\": \"t1\", \"name\": \"Read\", \"state\": \"output-available\", \"duration_ms\": 2, \"error\": null}]}]}]}"
  "What the daemon tells of a small session.")

(defmacro inspect-test--with (&rest body)
  "Evaluate BODY in the buffer of the inspector."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-ask
     (pyagentd-test-answer 'trace (list :json inspect-test--report))
     (let ((buffer (save-window-excursion (pyagentd-inspect) (current-buffer))))
       (with-current-buffer buffer
         (unwind-protect
             (progn (pyagentd-test-await (> (buffer-size) 0))
                    ,@body)
           (kill-buffer buffer))))))

(ert-deftest pyagentd-inspect-shows-the-timeline ()
  (inspect-test--with
    (dolist (text '("demo/main  Demo" "done  What is it?" "1 message, 1 new; 20 ms"
                    "12 in, 0 cached, 0 to cache, 0 thought, 3 out; $0.0100"
                    "attempt 1 failed: Overloaded" "• Read: output-available, 2 ms"
                    "allow: tool:Read:/w/a (scope)" "reads: /w/**"
                    "granted (session): tool:Bash:ls" "price unknown"))
      (should (string-search text (buffer-string))))))

(ert-deftest pyagentd-inspect-folds-by-headings-of-its-own-only ()
  (inspect-test--with
    (goto-char (point-min))
    (search-forward "* Be brief.")
    (should (invisible-p (1- (point))))
    (goto-char (point-min))
    (let ((headings 0))
      (while (re-search-forward outline-regexp nil t)
        (when (= (match-beginning 0) (line-beginning-position))
          (setq headings (1+ headings))))
      (should (= 8 headings)))))

(ert-deftest pyagentd-inspect-shows-a-request-as-it-was-sent ()
  (inspect-test--with
    (pyagentd-test-answer 'traced-request '(:json "{\n  \"model\": \"m\",\n  \"messages\": []\n}"))
    (goto-char (point-min))
    (search-forward "#1")
    (save-window-excursion
      (call-interactively (key-binding (kbd "RET")))
      (pyagentd-test-await (get-buffer "*pyagentd request*")))
    (should (equal '(:pretty t :run "run_1" :step 1 :purpose "step")
                   (cddr (car (pyagentd-test-calls 'traced-request)))))
    (with-current-buffer "*pyagentd request*"
      (should (string-match-p "\"model\": \"m\"" (buffer-string)))
      (kill-buffer))))

(ert-deftest pyagentd-inspect-away-from-a-request-says-so ()
  (inspect-test--with
    (goto-char (point-min))
    (should-error (pyagentd-inspect-request) :type 'user-error)))

;;;; Schedules

(ert-deftest pyagentd-schedule-elsewhere-says-when-it-comes ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer 'schedule-add '(:id "sch_3" :when "at 14:30"))
    (should (equal "Scheduled: at 14:30"
                   (pyagentd-test-said
                     (pyagentd-schedule :at "14:30" "Go on."))))))

(provide 'inspect-test)
;;; inspect-test.el ends here

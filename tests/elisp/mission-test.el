;;; mission-test.el --- Tests of missions and their trace -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-mission)

(defconst mission-test--running
  "{\"session\": {\"file\": \"/s/session.md\"},
    \"asks\": [{\"id\": \"q1\", \"tool\": \"Bash\", \"detail\": \"make\", \"reason\": \"Why not\"}],
    \"missions\": [
    {\"run\": \"run_1\", \"state\": \"running\", \"prompt\": \"Count the files.\",
     \"signature\": \"() -> {count :int}\", \"tools\": [\"Read\", \"Glob\"],
     \"inputs\": [\"rows\"], \"ok\": null, \"value\": null, \"text\": null,
     \"fail\": null, \"can_resume\": false, \"turns\": [
      {\"number\": 1, \"said\": \"* I look.\", \"program\": \"(let [x 1]\\n  (call \\\"Glob\\\" {:pattern x}))\",
       \"state\": \"failed\", \"result\": \"Error (tool_error)\\nNo.\", \"duration_ms\": 1200,
       \"usage\": {\"input\": 10, \"output\": 5, \"reasoning\": 1, \"cache_read\": 2, \"cache_write\": 0},
       \"calls\": [{\"id\": \"c1\", \"name\": \"Glob\", \"input\": {\"pattern\": \"*.md\"}, \"state\": \"failed\",
                    \"result\": \"* not a heading\", \"duration_ms\": 3, \"branch\": null},
                   {\"id\": \"c2\", \"name\": \"PersistentAgent\", \"input\": {\"preset\": \"explorer\"},
                    \"state\": \"done\", \"result\": \"ok\", \"duration_ms\": 40, \"branch\": \"/s/agents/explorer-1\"}]}]}]}"
  "What the daemon tells of a mission that runs.")

(defconst mission-test--done
  (string-replace
   "\"state\": \"running\"" "\"state\": \"done\""
   (string-replace
    "\"ok\": null, \"value\": null, \"text\": null"
    "\"ok\": true, \"value\": {\"count\": 3}, \"text\": \"{\\n  \\\"count\\\": 3\\n}\""
    mission-test--running))
  "What it tells of the same mission when that is over.")

(defmacro mission-test--with (report &rest body)
  "Evaluate BODY in the buffer of a trace that shows REPORT."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-ask
     (pyagentd-test-answer 'mission-trace (list :json ,report))
     (let ((buffer (save-window-excursion (pyagentd-mission-trace)
                                          (current-buffer))))
       (with-current-buffer buffer
         (unwind-protect
             (progn (pyagentd-test-await (> (buffer-size) 0))
                    ,@body)
           (kill-buffer buffer))))))

(defun mission-test--visible ()
  "Return the text that is not folded."
  (let ((text "") (start (point-min)))
    (while (< start (point-max))
      (let ((end (next-single-char-property-change start 'invisible)))
        (unless (invisible-p start)
          (setq text (concat text (buffer-substring-no-properties start end))))
        (setq start end)))
    text))

(ert-deftest pyagentd-mission-shows-turns-programs-calls-and-results ()
  (mission-test--with mission-test--running
    (dolist (text '("* running  Count the files." "() -> {count :int}"
                    "tools: Read, Glob" "ctx: rows"
                    "** Turn 1  12 in, 6 out  1.2 s  failed"
                    "    * I look." "    (let [x 1]\n      (call \"Glob\""
                    "*** → Glob *.md  failed  3 ms"
                    "*** → PersistentAgent explorer  40 ms"
                    "*** = Error (tool_error) No."
                    "** Waiting for your approval: Bash make"))
      (should (string-search text (buffer-string))))
    (should-not (buffer-modified-p))))

(ert-deftest pyagentd-mission-folds-what-is-long-and-by-its-own-headings ()
  (mission-test--with mission-test--running
    (should (string-search "(let [x 1]" (mission-test--visible)))
    (should-not (string-search "not a heading" (mission-test--visible)))
    (let ((headings 0))
      (goto-char (point-min))
      (while (re-search-forward (concat "^" outline-regexp) nil t)
        (setq headings (1+ headings)))
      (should (= 6 headings)))))

(ert-deftest pyagentd-mission-fontifies-programs ()
  (mission-test--with mission-test--running
    (goto-char (point-min))
    (search-forward ":pattern x")
    (should (eq 'font-lock-constant-face
                (get-text-property (match-beginning 0) 'face)))
    (search-backward "\"Glob\"")
    (should (memq 'font-lock-string-face
                  (ensure-list (get-text-property (point) 'face))))))

(defun mission-test--moves (buffer)
  "Have the status of the session change whose missions BUFFER shows."
  (with-current-buffer
      (pyagentd-place-buffer
       (buffer-local-value 'pyagentd-mission-trace--branch buffer))
    (pyagentd-status-set '(:state busy :phase "calling"))))

(ert-deftest pyagentd-mission-follows-and-keeps-point-and-folds ()
  (mission-test--with mission-test--running
    (goto-char (point-min))
    (search-forward "→ Glob")
    (outline-show-subtree)
    (pyagentd-test-answer 'mission-trace (list :json mission-test--done))
    (let ((asked (length (pyagentd-test-calls 'mission-trace)))
          (pyagentd-mission-trace--pause 0))
      (mission-test--moves buffer)
      (should-not pyagentd-mission-trace--timer) ; nobody sees it
      (save-window-excursion
        (switch-to-buffer buffer)
        (pyagentd-mission-trace--on-window (selected-window))
        (pyagentd-test-await (string-search "** Value" (buffer-string))))
      (should (= (1+ asked) (length (pyagentd-test-calls 'mission-trace)))))
    (should (looking-at-p " \\*\\.md"))
    (should (string-search "not a heading" (mission-test--visible)))
    (should (string-search "\"count\": 3" (mission-test--visible)))
    (should-not pyagentd-mission-trace--timer)
    (pyagentd-mission-copy)
    (should (equal "{\n  \"count\": 3\n}" (current-kill 0)))))

(ert-deftest pyagentd-mission-looks-again-when-the-session-moves ()
  (mission-test--with mission-test--running
    (pyagentd-test-answer 'mission-trace (list :json mission-test--done))
    (let ((pyagentd-mission-trace--pause 0))
      (save-window-excursion
        (switch-to-buffer buffer)
        (mission-test--moves buffer)
        (pyagentd-test-await (string-search "** Value" (buffer-string)))))))

(ert-deftest pyagentd-mission-visits-what-a-call-started-and-runs-nothing ()
  (mission-test--with mission-test--running
    (goto-char (point-min))
    (search-forward "(let [x")
    (save-window-excursion
      (pyagentd-mission-visit)
      (should (equal "/s/session.md" buffer-file-name))
      (kill-buffer))
    (search-forward "→ PersistentAgent")
    (save-window-excursion
      (pyagentd-mission-visit)
      (should (equal "/s/agents/explorer-1" pyagentd-mission-trace--branch))
      (should (string-search "explorer-1" (buffer-name)))
      (kill-buffer))
    (should-not (pyagentd-test-calls 'mission))))

(ert-deftest pyagentd-mission-stops-and-goes-on-with-one ()
  (mission-test--with mission-test--running
    (pyagentd-test-answer 'abort '(:aborted t))
    (pyagentd-test-answer 'mission-resume '(:run "run_2"))
    (pyagentd-mission-stop)
    (should (= 1 (length (pyagentd-test-calls 'abort))))
    (pyagentd-mission-resume)
    (should (equal pyagentd-mission-trace--branch
                   (plist-get (car (pyagentd-test-calls 'mission-resume))
                              :branch)))))

(ert-deftest pyagentd-mission-asks-for-a-task-and-a-signature ()
  (pyagentd-test-with-ask
    (let ((file (pyagentd-test-file
                 root "" "sessions/m-20260205143053/branches/main/session.md")))
      (pyagentd-test-answer 'mission-check '(:signature "() -> :int"))
      (pyagentd-test-answer
       'mission (list :branch (directory-file-name (file-name-directory file))
                      :file file :session-id "m-20260205143053"))
      (pyagentd-test-answer 'mission-trace (list :json mission-test--done))
      (save-window-excursion
        (cl-letf (((symbol-function 'read-string)
                   (lambda (prompt &rest _)
                     (if (string-prefix-p "Mission" prompt) "Count" ":int"))))
          (call-interactively #'pyagentd-mission)
          (pyagentd-test-settle))
        (with-current-buffer (window-buffer)
          (should (derived-mode-p 'pyagentd-mission-mode))
          (should (> (buffer-size) 0))
          (kill-buffer)))
      (let ((sent (car (pyagentd-test-calls 'mission))))
        (should (equal "Count" (plist-get sent :prompt)))
        (should (equal ":int" (plist-get sent :signature)))
        (should (plist-get sent :root))
        (should-not (plist-get sent :tools))))))

(ert-deftest pyagentd-mission-asks-again-for-what-is-no-signature ()
  (pyagentd-test-with-ask
    (pyagentd-test-refuse 'mission-check "No type :in" "Write :int")
    (pyagentd-test-answer 'mission-tools '(:tools ("Glob" "Read")))
    (pyagentd-test-tell 'fake-silent "" 'mission)
    (let (asked)
      (cl-letf (((symbol-function 'read-string)
                 (lambda (prompt &optional initial &rest _)
                   (push (list prompt initial) asked)
                   (cond ((string-prefix-p "Mission" prompt) "Count")
                         (initial (pyagentd-test-answer 'mission-check nil)
                                  ":int")
                         (t ":in"))))
                ((symbol-function 'completing-read-multiple)
                 (lambda (_prompt names &rest _) (last names))))
        (let ((current-prefix-arg '(4)))
          (call-interactively #'pyagentd-mission))
        (pyagentd-test-await (pyagentd-test-calls 'mission)))
      (should (string-match-p "No type :in" (caar asked)))
      (should (equal ":in" (cadar asked)))
      (should (= 3 (length asked))))
    (let ((sent (car (pyagentd-test-calls 'mission))))
      (should (equal ":int" (plist-get sent :signature)))
      (should (equal '("Read") (plist-get sent :tools))))))

(ert-deftest pyagentd-mission-that-begins-late-is-shown ()
  (pyagentd-test-with-ask
    (let ((begun (list :branch "/s" :file "/s/session.md" :session-id "s"))
          said shown uid)
      (pyagentd-test-tell 'fake-silent "" 'mission)
      (cl-letf (((symbol-function 'message)
                 (lambda (format &rest args)
                   (when format (push (apply #'format format args) said))))
                ((symbol-function 'pyagentd-mission--begun)
                 (lambda (begun) (push begun shown))))
        (let ((pyagentd-call-timeout 0.02))
          (pyagentd-mission "Count"))
        (setq uid (caar pyagentd-rpc--pending))
        (pyagentd-test-await (seq-find (lambda (line)
                                         (string-match-p "in time" line))
                                       said))
        (pyagentd-test-tell 'fake-raw (format "(return %d %S)" uid begun))
        (pyagentd-test-await shown)
        (should (equal shown (list begun)))))))

(ert-deftest pyagentd-mission-without-a-task-is-none ()
  (should-error (pyagentd-mission " ") :type 'user-error))

(provide 'mission-test)
;;; mission-test.el ends here

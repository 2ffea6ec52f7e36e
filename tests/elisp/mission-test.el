;;; mission-test.el --- Tests of missions and their trace -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-views)

(defun mission-test--report (state &rest more)
  "Return the page of a mission in STATE, with MORE lines."
  (list :title "Mission"
        :follows '("sessions")
        :lines `((:level 1 :id "run_1" :parts (,state "  Count the files."))
                 (:level 2 :id "run_1/1" :parts ("Turn 1"))
                 (:level 0 :parts ((:face "lisp" :text
                                    "    (call \"Glob\"\n      {:pattern x})")))
                 (:level 3 :id "run_1/1/0" :folded t
                  :parts ("→ " (:text "Glob" :visit
                                (:kind "report" :name "mission"
                                 :arguments (:branch "/s/agents/explorer-1")))))
                 (:level 0 :parts ("    * not a heading"))
                 ,@more)
        :actions (if (equal state "running")
                     '((:key "k" :label "stop" :operation "abort"
                        :arguments (:branch "/s")))
                   '((:key "w" :label "copy the value" :copies "{\"count\": 3}")))))

(defmacro mission-test--with (state &rest body)
  "Evaluate BODY in the buffer of a mission in STATE."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-ask
     (pyagentd-test-answer 'report (mission-test--report ,state))
     (let ((buffer (save-window-excursion (pyagentd-mission--trace)
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

(ert-deftest pyagentd-mission-fontifies-programs ()
  (mission-test--with "running"
    (goto-char (point-min))
    (search-forward ":pattern x")
    (should (eq 'font-lock-constant-face
                (get-text-property (match-beginning 0) 'face)))
    (search-backward "\"Glob\"")
    (should (memq 'font-lock-string-face
                  (ensure-list (get-text-property (point) 'face))))))

(ert-deftest pyagentd-mission-follows-and-keeps-point-and-folds ()
  (mission-test--with "running"
    (should-not (string-search "not a heading" (mission-test--visible)))
    (goto-char (point-min))
    (search-forward "→ Glob")
    (outline-show-subtree)
    (pyagentd-test-answer
     'report (mission-test--report "done" '(:level 2 :parts ("Value"))))
    (let ((pyagentd-live-pause 0) (asked (length (pyagentd-test-calls 'report))))
      (pyagentd-list-changed "sessions")
      (pyagentd-test-settle)
      (should (= asked (length (pyagentd-test-calls 'report)))) ; nobody sees it
      (save-window-excursion
        (switch-to-buffer buffer)
        (pyagentd-list-changed "sessions")
        (pyagentd-test-await (string-search "** Value" (buffer-string)))))
    (should (string-suffix-p "→ Glob" (buffer-substring (line-beginning-position)
                                                        (point))))
    (should (string-search "not a heading" (mission-test--visible)))
    (should (string-search "* done" (buffer-string)))
    (call-interactively (key-binding "w"))
    (should (equal "{\"count\": 3}" (current-kill 0)))))

(ert-deftest pyagentd-mission-visits-what-a-call-started-and-comes-back ()
  (mission-test--with "running"
    (let ((branch (plist-get pyagentd-list-arguments :branch)))
      (goto-char (point-min))
      (search-forward "→ Glob")
      (save-window-excursion (call-interactively (key-binding (kbd "RET"))))
      (should (equal "/s/agents/explorer-1"
                     (plist-get pyagentd-list-arguments :branch)))
      (call-interactively (key-binding "l"))
      (should (equal branch (plist-get pyagentd-list-arguments :branch)))
      (should-error (call-interactively (key-binding "l")) :type 'user-error)
      (should-not (pyagentd-test-calls 'mission)))))

(ert-deftest pyagentd-mission-is-stopped-by-its-key ()
  (mission-test--with "running"
    (pyagentd-test-answer 'abort '(:aborted t))
    (call-interactively (key-binding "k"))
    (pyagentd-test-await (equal '((:branch "/s")) (pyagentd-test-calls 'abort)))))

(ert-deftest pyagentd-mission-asks-for-a-task-and-a-signature ()
  (pyagentd-test-with-ask
    (let ((file (pyagentd-test-file
                 root "" "sessions/m-20260205143053/branches/main/session.md")))
      (pyagentd-test-answer
       'mission (list :branch (directory-file-name (file-name-directory file))
                      :file file :session-id "m-20260205143053"))
      (pyagentd-test-answer 'report (mission-test--report "done"))
      (save-window-excursion
        (cl-letf (((symbol-function 'read-string)
                   (lambda (prompt &rest _)
                     (if (string-prefix-p "Mission" prompt) "Count" ":int"))))
          (call-interactively #'pyagentd-mission)
          (pyagentd-test-settle))
        (with-current-buffer (window-buffer)
          (should (derived-mode-p 'pyagentd-report-mode))
          (should (string-search "Turn 1" (buffer-string)))
          (kill-buffer)))
      (let ((sent (car (pyagentd-test-calls 'mission))))
        (should (equal "Count" (plist-get sent :prompt)))
        (should (equal ":int" (plist-get sent :signature)))
        (should (plist-get sent :root))
        (should-not (plist-get sent :tools))))))

(ert-deftest pyagentd-mission-asks-again-for-what-is-no-signature ()
  (pyagentd-test-with-ask
    (pyagentd-test-tell 'fake-error "(signature-error \"No type :in\")" 'mission)
    (pyagentd-test-answer 'mission-tools '("Glob" "Read"))
    (let (asked)
      (cl-letf (((symbol-function 'read-string)
                 (lambda (prompt &optional initial &rest _)
                   (push (list prompt initial) asked)
                   (cond ((string-prefix-p "Mission" prompt) "Count")
                         (initial (pyagentd-test-tell 'fake-silent "" 'mission)
                                  ":int")
                         (t ":in"))))
                ((symbol-function 'completing-read-multiple)
                 (lambda (_prompt names &rest _) (last names))))
        (let ((current-prefix-arg '(4)))
          (call-interactively #'pyagentd-mission))
        (pyagentd-test-await (cdr (pyagentd-test-calls 'mission))))
      (should (string-match-p "No type :in" (caar asked)))
      (should (equal ":in" (cadar asked)))
      (should (= 3 (length asked))))
    (let ((sent (cadr (pyagentd-test-calls 'mission))))
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

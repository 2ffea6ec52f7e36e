;;; list-test.el --- Tests of lists that the daemon makes -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'keys)
(require 'pyagentd-keys)
(require 'pyagentd-list)
(require 'pyagentd-views)

(defconst list-test--stop
  '(:key "k" :label "stop" :operation "abort" :takes ("branch") :several t
    :question "Stop %s?" :noun "run" :asks "several" :done "Stopped %s")
  "An action that is confirmed only for several rows.")

(defun list-test--view (&rest more)
  "Return a list of three rows that can be stopped, with MORE keys."
  (apply #'pyagentd-test-view '("Who" "Tokens" "Does")
         '(("tea" (:branch "/tea" :cold t) (:kind "session" :branch "/tea")
            (:text "coder" :face "strong") (:text "12k" :sort 12000) "Bash make")
           ("deep" (:branch "/deep") nil
            (:text "└ explorer" :face "agent") (:text "950" :sort 950) "waits")
           ("cup" (:branch "/cup") nil
            "writer" (:text "1.2M" :sort 1200000) "answers"))
         (list list-test--stop) more))

(defmacro list-test--with (view &rest body)
  "Evaluate BODY in the list of VIEW."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (let ((pyagentd-live-pause 0))
       (pyagentd-test-answer 'view ,view)
       (save-window-excursion (pyagentd-list-show "running"))
       (with-current-buffer "*pyagentd running*"
         (unwind-protect
             (progn (pyagentd-test-await pyagentd-list--view)
                    (goto-char (point-min))
                    ,@body)
           (kill-buffer))))))

(defun list-test--first-words ()
  "Return the first word of each line of the list."
  (mapcar (lambda (line) (car (split-string line)))
          (seq-take-while (lambda (line) (not (string-search "stop" line)))
                          (pyagentd-test-lines))))

(ert-deftest pyagentd-list-shows-what-the-daemon-says-with-its-keys ()
  (list-test--with (list-test--view :note "3 running")
    (should (equal (pyagentd-test-calls 'view)
                   '((:name "running" :watch t))))
    (should (string-match-p "^ coder +12k +Bash make" (buffer-string)))
    (should (eq 'bold (get-text-property (1+ (point-min)) 'face)))
    (should (equal mode-line-process " 3 running"))
    (should (equal mode-name "Things"))
    (should (string-match-p "k stop  m mark" (buffer-string)))
    (should (equal (cadr (assoc "k" pyagentd-table-help)) "stop"))
    (let ((help (substitute-command-keys (documentation 'pyagentd-list-mode))))
      (should (string-match-p "^k[ \t]+pyagentd-list--[a-z]+-stop$" help))
      (should (string-match-p "^RET[ \t]+pyagentd-list--visit$" help)))))

(ert-deftest pyagentd-list-says-why-it-is-empty ()
  (list-test--with (pyagentd-test-view '("Who") nil nil
                                       :empty "Nothing is running.")
    (should (string-prefix-p "Nothing is running." (buffer-string)))))

(ert-deftest pyagentd-list-has-no-keys-of-what-cannot-be-done-any-more ()
  (list-test--with (list-test--view :more t)
    (should (eq (key-binding "+") #'pyagentd-list--more))
    (pyagentd-test-answer
     'view (pyagentd-test-view '("Who") '(("cup" nil nil "writer"))))
    (revert-buffer)
    (pyagentd-test-settle)
    (dolist (key '("k" "m" "+"))
      (should-not (commandp (lookup-key (current-local-map) key))))
    (should (eq (key-binding "/") #'pyagentd-table--filter))))

(ert-deftest pyagentd-list-is-sorted-by-values-not-words ()
  (list-test--with (list-test--view)
    (tabulated-list-sort 1)
    (should (equal (list-test--first-words) '("└" "coder" "writer")))
    (tabulated-list-sort 1)
    (should (equal (list-test--first-words) '("writer" "coder" "└")))
    (tabulated-list-sort 2)
    (should (equal (list-test--first-words) '("writer" "coder" "└")))
    (goto-char (point-min))
    (move-to-column 15)
    (pyagentd-test-type "S")
    (should (equal (list-test--first-words) '("└" "coder" "writer")))
    (should (string-match-p "k stop  m mark" (buffer-string)))
    (pyagentd-test-type "}")
    (should (string-match-p "k stop  m mark" (buffer-string)))
    (pyagentd-test-type "U")
    (should (equal (list-test--first-words) '("└" "coder" "writer")))))

(ert-deftest pyagentd-list-stops-one-or-all-that-are-marked ()
  (list-test--with (list-test--view)
    (pyagentd-test-answer 'abort '(:aborted t))
    (should (equal "Stopped tea" (pyagentd-test-said
                                   (call-interactively (key-binding "k")))))
    (should (equal (pyagentd-test-calls 'abort) '((:branch "/tea"))))
    (goto-char (point-min))
    (pyagentd-test-type "m m")
    (should (string-prefix-p "*" (car (pyagentd-test-lines))))
    (cl-letf (((symbol-function 'y-or-n-p) #'ignore))
      (call-interactively (key-binding "k")))
    (should pyagentd-table-marks)
    (cl-letf (((symbol-function 'y-or-n-p)
               (lambda (prompt) (equal prompt "Stop 2 runs? "))))
      (call-interactively (key-binding "k")))
    (pyagentd-test-await (= 3 (length (pyagentd-test-calls 'abort))))
    (should-not pyagentd-table-marks)
    (pyagentd-test-settle)
    ;; When it was shown first, and after each of the two commands.
    (should (= 3 (length (pyagentd-test-calls 'view))))
    (pyagentd-test-answer 'abort '(:aborted nil :note "Not running"))
    (goto-char (point-min))
    (should (equal "Not running: tea"
                   (pyagentd-test-said
                     (call-interactively (key-binding "k")))))))

(ert-deftest pyagentd-list-marks-that-a-filter-hides-do-not-count ()
  (list-test--with (list-test--view)
    (pyagentd-test-answer 'abort '(:aborted t))
    (pyagentd-test-type "m / WAIT SPC expl RET")
    (should (equal (list-test--first-words) '("└")))
    (should (equal mode-line-process " /WAIT expl"))
    (goto-char (point-min))
    (call-interactively (key-binding "k"))
    (pyagentd-test-await (pyagentd-test-calls 'abort))
    (should (equal (pyagentd-test-calls 'abort) '((:branch "/deep"))))
    (pyagentd-test-settle)
    (pyagentd-test-type "/ C-a C-k nothing RET")
    (should (string-prefix-p "No matches" (car (pyagentd-test-lines))))
    (pyagentd-test-type "/ C-a C-k RET")
    (should (string-prefix-p "*coder" (car (pyagentd-test-lines))))
    (pyagentd-test-type "U")
    (should (string-prefix-p " coder" (car (pyagentd-test-lines))))))

(ert-deftest pyagentd-list-marks-thousands-of-rows-at-once ()
  (list-test--with
      (pyagentd-test-view '("Who") (mapcar (lambda (number)
                                             (let ((id (format "session-%d" number)))
                                               (list id nil nil id)))
                                           (number-sequence 1 5000)))
    (let ((time (car (benchmark-run 1
                       (dolist (command '(pyagentd-table--mark
                                          pyagentd-table--unmark))
                         (goto-char (point-min))
                         (set-mark (save-excursion (forward-line 5000) (point)))
                         (let ((transient-mark-mode t)) (funcall command))
                         (should (= (length pyagentd-table-marks)
                                    (if (eq command 'pyagentd-table--mark) 5000
                                      0))))))))
      (pyagentd-test-report "5000 rows marked and unmarked: %.0f ms"
                            (* 1000 time))
      (should (< time 5)))))

(ert-deftest pyagentd-list-confirms-one-and-passes-over-what-it-is-not-for ()
  (list-test--with
      (list-test--view
       :actions '((:key "k" :label "warm up" :operation "warm" :several t
                   :takes ("branch") :arguments (:by "you") :needs "cold"
                   :question "Warm %s?" :noun "cup" :asks "always")))
    (let (asked)
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (prompt) (push prompt asked) t)))
        (pyagentd-test-type "m m")
        (call-interactively (key-binding "k"))
        (pyagentd-test-settle)
        (goto-char (point-min))
        (forward-line)
        (should-error (call-interactively (key-binding "k"))
                      :type 'user-error))
      (should (equal asked '("Warm tea? ")))
      (should (equal (pyagentd-test-calls 'warm)
                     '((:branch "/tea" :by "you")))))))

(ert-deftest pyagentd-list-visits-what-is-at-point ()
  (list-test--with (list-test--view)
    (let (visited)
      (cl-letf (((symbol-function 'pyagentd-here-visit)
                 (lambda (session &optional other)
                   (setq visited (list (plist-get session :file) other)))))
        (call-interactively (key-binding (kbd "RET")))
        (should (equal visited '("/tea/session.md" nil)))
        (call-interactively (key-binding "o"))
        (should (equal visited '("/tea/session.md" t)))))
    (should (equal (plist-get (pyagentd-here) :branch) "/tea"))
    (forward-line)
    (should-error (call-interactively (key-binding (kbd "RET")))
                  :type 'user-error)))

(ert-deftest pyagentd-list-shows-itself-with-other-arguments-and-more-rows ()
  (list-test--with
      (list-test--view :more t
                       :actions '((:key "a" :label "all" :arguments (:all t))))
    (call-interactively (key-binding "a"))
    (pyagentd-test-settle)
    (call-interactively (key-binding "+"))
    (pyagentd-test-settle)
    (should (equal (cdr (pyagentd-test-calls 'view))
                   '((:name "running" :arguments (:all t) :watch t)
                     (:name "running" :arguments (:all t) :limit 6
                      :watch t))))))

(ert-deftest pyagentd-list-follows-what-it-says-it-follows ()
  (list-test--with (list-test--view :follows '("sessions"))
    (save-window-excursion
      (switch-to-buffer (current-buffer))
      (pyagentd-test-answer
       'view (pyagentd-test-view '("Who") '(("cup" nil nil "writer"))
                                 (list list-test--stop) :follows '("sessions")))
      (pyagentd-test-push '(task "/b" 0 (:id "task_001" :status "failed")))
      (pyagentd-test-settle)
      (should (= 3 (length (list-test--first-words))))
      (pyagentd-list-changed "sessions")
      (pyagentd-test-await (equal (list-test--first-words) '("writer")))
      (pyagentd-rpc-disconnect)
      (pyagentd-test-await (equal mode-line-process " no daemon")))))

(ert-deftest pyagentd-list-stays-at-its-line-when-fetched-again ()
  (list-test--with (list-test--view)
    (forward-line)
    (revert-buffer)
    (pyagentd-test-settle)
    (should (equal (tabulated-list-get-id) "deep"))))

(ert-deftest pyagentd-list-stays-where-its-row-was-when-that-is-gone ()
  (list-test--with (list-test--view)
    (goto-char (point-min))
    (forward-line)
    (pyagentd-test-answer
     'view (pyagentd-test-view '("Who") '(("tea" nil nil "coder")
                                          ("cup" nil nil "writer"))))
    (revert-buffer)
    (pyagentd-test-settle)
    (should (equal (tabulated-list-get-id) "cup"))
    (pyagentd-test-answer
     'view (pyagentd-test-view '("Who") '(("tea" nil nil "coder"))))
    (revert-buffer)
    (pyagentd-test-settle)
    (should (equal (tabulated-list-get-id) "tea"))))

(ert-deftest pyagentd-list-in-another-window-stays-as-it-is-shown ()
  (list-test--with
      (pyagentd-test-view '("Who") (mapcar (lambda (number)
                                             (let ((id (format "n%d" number)))
                                               (list id nil nil id)))
                                           (number-sequence 1 200)))
    (save-window-excursion
      (delete-other-windows)
      (let ((list (current-buffer)) (window (split-window)))
        (set-window-buffer window list)
        (goto-char (point-min))
        (search-forward "n150")
        (set-window-point window (point))
        (set-window-start window (line-beginning-position -2))
        (goto-char (point-min))
        (revert-buffer)
        (pyagentd-test-settle)
        (should (equal (tabulated-list-get-id) "n1"))
        (should (equal "n150" (tabulated-list-get-id (window-point window))))
        (should (equal "n147" (tabulated-list-get-id (window-start window))))
        (pyagentd-table--filter "n1")
        (set-window-point window (point))
        (set-window-start window (point-min))
        (pyagentd-table--filter "")
        (should (= (point-min) (window-start window)))))))

(ert-deftest pyagentd-list-shows-what-was-asked-for-last ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-silent "" 'view)
    (save-window-excursion
      (pyagentd-list-show "usage" '(:days 0))
      (let ((uid pyagentd-rpc--uid))
        (pyagentd-test-answer
         'view (pyagentd-test-view '("Who") '(("last" nil nil "last"))))
        (pyagentd-list-show "usage" '(:days 1))
        (pyagentd-test-await (pyagentd-test-calls 'view))
        (pyagentd-test-tell
         'fake-raw (format "(return %d %S)" uid
                           (pyagentd-test-view '("Who")
                                               '(("first" nil nil "first")))))
        (pyagentd-test-settle)
        (with-current-buffer "*pyagentd usage*"
          (should (equal (list-test--first-words) '("last" "/")))
          (kill-buffer))))))

(ert-deftest pyagentd-list-that-fails-keeps-what-it-has ()
  (list-test--with (list-test--view)
    (pyagentd-test-refuse 'view "No index" "Wait")
    (should (equal "No index (Wait)" (pyagentd-test-said (revert-buffer))))
    (should (= 3 (length (list-test--first-words))))
    (should (equal mode-line-process " failed"))))

(ert-deftest pyagentd-list-offers-all-there-are ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer
     'views '(:views ((:name "running" :summary "what runs")
                      (:name "tasks" :summary "commands behind"
                       :session "optional"))))
    (pyagentd-test-answer 'view (list-test--view))
    (let ((branch pyagentd--branch-dir) seen)
      (save-window-excursion
        (pyagentd-test-with-options seen
          (pyagentd-test-type "M-x pyagentd-list RET tas TAB RET"))
        (pyagentd-test-await (get-buffer "*pyagentd tasks*")))
      (should (equal (seq-take seen 2) '(("running" "  what runs")
                                         ("tasks" "  commands behind"))))
      (should (assoc "hooks" seen))
      (pcase-dolist (`(,_ ,what) seen)  ; nouns
        (should (string-match-p "\\`  [a-z].*[^.]\\'" what)))
      (pyagentd-test-await (pyagentd-test-calls 'view))
      (should (equal (pyagentd-test-calls 'view)
                     `((:name "tasks" :arguments (:branch ,branch) :watch t))))
      (kill-buffer "*pyagentd tasks*"))))

;;;; Those with something of their own

(ert-deftest pyagentd-list-of-a-session-needs-one ()
  (pyagentd-test-with-ask
    (let ((branch pyagentd--branch-dir))
      (pyagentd-test-answer 'view (list-test--view))
      (save-window-excursion
        (pyagentd-list-of-session "grants" 'required)
        (kill-buffer "*pyagentd grants*"))
      (pyagentd-test-await (pyagentd-test-calls 'view))
      (should (equal (pyagentd-test-calls 'view)
                     `((:name "grants" :arguments (:branch ,branch)
                        :watch t))))
      (with-temp-buffer
        (should-error (pyagentd-list-of-session "grants" 'required) :type 'user-error)))))

(ert-deftest pyagentd-audit-is-that-of-the-session-of-a-decision-or-of-all ()
  (pyagentd-test-with-ask
    (let ((branch pyagentd--branch-dir))
      (pyagentd-test-answer
       'view (pyagentd-test-view
              '("Action")
              '(("7" (:session "demo") (:kind "report" :name "decision"
                                        :arguments (:id 7))
                 "Read:/etc/passwd"))
              '((:key "s" :label "its session" :takes ("session")
                 :arguments (:branch nil))
                (:key "a" :label "all" :arguments (:branch nil :session nil)))))
      (pyagentd-test-answer 'report '(:title "Decision"
                                      :lines ((:level 0 :parts ("denied")))))
      (save-window-excursion
        (pyagentd-list-of-session "audit" 'optional)
        (with-current-buffer "*pyagentd audit*"
          (pyagentd-test-await pyagentd-list--view)
          (goto-char (point-min))
          (pyagentd-test-type "s")
          (pyagentd-test-type "a")
          (goto-char (point-min))
          (pyagentd-test-type "RET"))
        (with-current-buffer "*pyagentd decision*"
          (should (equal (buffer-string) "denied\n"))
          (kill-buffer))
        (kill-buffer "*pyagentd audit*"))
      (should (equal (mapcar (lambda (call) (plist-get call :arguments))
                             (pyagentd-test-calls 'view))
                     `((:branch ,branch) (:branch nil :session "demo")
                       (:branch nil :session nil))))
      (should (equal (pyagentd-test-calls 'report)
                     '((:name "decision" :arguments (:id 7) :watch t)))))))

(ert-deftest pyagentd-schedules-are-those-of-the-session-and-added-here ()
  (pyagentd-test-with-ask
    (let ((branch pyagentd--branch-dir))
      (pyagentd-test-answer 'view (list-test--view))
      (pyagentd-test-answer 'schedule-add '(:id "sch_3" :when "every 1h"))
      (save-window-excursion
        (pyagentd-list-of-session "schedules" 'optional)
        (with-current-buffer "*pyagentd schedules*"
          (pyagentd-test-await pyagentd-list--view)
          (should (eq (key-binding "+") #'pyagentd-schedules--add))
          (should (equal "Scheduled: every 1h"
                         (pyagentd-test-said
                           (pyagentd-schedules--add :every "1h" "Go on."))))
          (kill-buffer)))
      (should (equal (plist-get (car (pyagentd-test-calls 'view)) :arguments)
                     (list :branch branch)))
      (should (equal (list :branch branch :text "Go on." :every "1h")
                     (seq-take (car (pyagentd-test-calls 'schedule-add))
                               6))))))

(provide 'list-test)
;;; list-test.el ends here

;;; lists-test.el --- Tests of lists of agents, grants and decisions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-agents)
(require 'pyagentd-asks)
(require 'pyagentd-audit)
(require 'pyagentd-grants)
(require 'pyagentd-trust)

(defmacro lists-test--with (command method answer &rest body)
  "Evaluate BODY in the list that COMMAND shows of ANSWER to METHOD.
The variable `branch' is that of the session it is about."
  (declare (indent 3) (debug t))
  `(pyagentd-test-with-ask
     (let ((branch pyagentd--branch-dir) buffer)
       (pyagentd-test-answer ,method ,answer)
       (setq buffer (save-window-excursion (,command) (window-buffer)))
       (with-current-buffer buffer
         (unwind-protect
             (progn (pyagentd-test-await pyagentd-table-rows)
                    (goto-char (point-min))
                    ,@body)
           (kill-buffer buffer))))))

(defun lists-test--to (text)
  "Go to the line with TEXT."
  (goto-char (point-min))
  (search-forward text)
  (beginning-of-line))

;;;; Agents

(defun lists-test--agents (branch)
  "Return an answer about agents of BRANCH."
  `(:agents ((:id "a1" :branch-dir ,(concat branch "/agents/a1") :preset "explorer"
              :description "look around" :state "running" :tokens 12345
              :agents ((:id "a2" :branch-dir ,(concat branch "/agents/a1/agents/a2")
                        :preset "planner" :description "plan it" :state "waiting"
                        :tokens (:input 950 :output 2000000))))
             (:id "a3" :branch-dir ,(concat branch "/agents/a3") :preset "executor"
              :description "do it" :state "finished" :background t
              :result "It is\ndone."))))

(ert-deftest pyagentd-agents-are-a-tree ()
  (lists-test--with pyagentd-agents 'agents (lists-test--agents branch)
    (should (equal (seq-take (pyagentd-test-lines) 3)
                   '(" ├ explorer  look around                          running      12k"
                     " │ └ planner  plan it                             waiting      950↑ 2.0M↓"
                     " └ executor  do it                                finished bg               It is done.")))
    (should (string-search "k stop" (buffer-string)))))

(ert-deftest pyagentd-agents-in-numbers-come-by-file ()
  (pyagentd-test-with-ask
    (let ((file (expand-file-name "agents.sexp" root)))
      (with-temp-file file
        (prin1 (lists-test--agents "/b") (current-buffer)))
      (pyagentd-test-answer 'agents (list :path file))
      (save-window-excursion (pyagentd-agents))
      (with-current-buffer "*pyagentd agents*"
        (pyagentd-test-await (= 3 (length pyagentd-table-rows)))
        (kill-buffer)))))

(ert-deftest pyagentd-agents-are-stopped-one-or-all ()
  (lists-test--with pyagentd-agents 'agents (lists-test--agents branch)
    (pyagentd-test-answer 'abort '(:aborted t))
    (lists-test--to "planner")
    (call-interactively (key-binding "k"))
    (pyagentd-test-await (equal (pyagentd-test-calls 'abort)
                                `((:branch ,(concat branch "/agents/a1/agents/a2")))))
    (cl-letf (((symbol-function 'y-or-n-p) #'always))
      (call-interactively (key-binding "K")))
    (pyagentd-test-await (equal (car (last (pyagentd-test-calls 'abort)))
                                `(:branch ,branch)))))

(ert-deftest pyagentd-agents-list-of-an-agent-is-that-of-its-root ()
  (pyagentd-test-with-ask
    (let ((root pyagentd--branch-dir))
      (with-temp-buffer
        (setq pyagentd-here-function
              (lambda () (list :branch (concat root "/agents/a1/agents/a2"))))
        (save-window-excursion (pyagentd-agents)))
      (should (equal root (buffer-local-value 'pyagentd-agents--branch
                                              (get-buffer "*pyagentd agents*"))))
      (kill-buffer "*pyagentd agents*"))))

;;;; What is asked

(defun lists-test--ask (id detail)
  "Return an ask ID about DETAIL."
  (append (list :id id :detail detail) pyagentd-test-ask))

(defmacro lists-test--with-asks (asks &rest body)
  "Evaluate BODY in the list of ASKS."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-ask
     (let ((asks ,asks))
       (pyagentd-test-answer 'asks (list :asks asks))
       (save-window-excursion (pyagentd-asks))
       (with-current-buffer "*pyagentd asks*"
         (unwind-protect
             (progn (pyagentd-test-await (= (length asks)
                                            (length pyagentd-table-rows)))
                    (pyagentd-test-settle)
                    ,@body)
           (kill-buffer))))))

(ert-deftest pyagentd-asks-that-are-marked-are-answered-together ()
  (pyagentd-test-with-ask
    (let ((ask (lambda (id) (plist-put (copy-sequence pyagentd-test-ask) :id id))))
      (pyagentd-test-answer 'asks (list :asks (list pyagentd-test-ask
                                                    (funcall ask "q2")
                                                    (funcall ask "q3"))))
      (save-window-excursion (pyagentd-asks))
      (with-current-buffer "*pyagentd asks*"
        (unwind-protect
            (let (question)
              (pyagentd-test-await (= 3 (length pyagentd-table-rows)))
              (setq pyagentd-table-marks '("q2" "q3"))
              (cl-letf (((symbol-function 'y-or-n-p)
                         (lambda (prompt) (setq question prompt) t)))
                (call-interactively (key-binding "y")))
              (should (equal question
                             (format "Allow 2 actions once (%s; %1$s)? "
                                     "Bash rm -rf build")))
              (pyagentd-test-await (cdr (pyagentd-test-calls 'answer)))
              (should (equal (sort (mapcar (lambda (call) (plist-get call :ask))
                                           (pyagentd-test-calls 'answer))
                                   #'string<)
                             '("q2" "q3")))
              (pyagentd-test-await (= 1 (length pyagentd-table-rows)))
              (goto-char (point-min))
              (cl-letf (((symbol-function 'y-or-n-p) #'ignore))
                (call-interactively (key-binding "d")))
              (cl-letf (((symbol-function 'y-or-n-p) #'always))
                (call-interactively (key-binding "d")))
              (pyagentd-test-await (nthcdr 2 (pyagentd-test-calls 'answer)))
              (should (equal (plist-get (car (last (pyagentd-test-calls 'answer)))
                                        :decision)
                             'deny)))
          (kill-buffer))))))

(ert-deftest pyagentd-asks-that-are-marked-and-hidden-are-not-answered ()
  (lists-test--with-asks (list (lists-test--ask "q1" "make clean")
                               (lists-test--ask "q2" "ls")
                               (lists-test--ask "q3" "pwd"))
    (setq pyagentd-table-marks '("q1" "q2" "q3"))
    (pyagentd-table-filter "s")
    (pyagentd-table-filter "ls")
    (let (question)
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (prompt) (setq question prompt) t)))
        (call-interactively (key-binding "d")))
      (should (equal question "Deny 1 action (Bash ls)? ")))
    (pyagentd-test-await (pyagentd-test-calls 'answer))
    (should (equal (mapcar (lambda (call) (plist-get call :ask))
                           (pyagentd-test-calls 'answer))
                   '("q2")))
    (pyagentd-table-filter "pwd")
    (should (equal pyagentd-table-marks '("q1" "q3")))))

(ert-deftest pyagentd-asks-with-marks-never-answer-what-is-at-point ()
  "Neither where only questions are marked nor where all are answered."
  (lists-test--with-asks
      (list pyagentd-test-ask
            (append (list :id "q2" :kind "question") pyagentd-test-ask))
    (cl-letf (((symbol-function 'y-or-n-p) #'always))
      (lists-test--to "Bash")
      (should (equal "q1" (tabulated-list-get-id)))
      (setq pyagentd-table-marks '("q2"))
      (should (string-prefix-p
               "Questions are marked"
               (cadr (should-error (call-interactively (key-binding "y"))
                                   :type 'user-error))))
      (setq pyagentd-table-marks '("q2"))
      (pyagentd-ask-note-answered (pyagentd-ask-find "q2") t)
      (should-error (call-interactively (key-binding "d")) :type 'user-error)
      (should-not (pyagentd-test-calls 'answer)))))

;;;; Grants

(ert-deftest pyagentd-grants-are-listed-and-revoked ()
  (lists-test--with pyagentd-grants 'grants
      '(:grants ((:action "tool:Bash:git log(?: .*)?" :at 1770000000000
                  :ask "q1" :by "emacs" :kind session)
                 (:action "tool:Edit:/x/[^/]+" :at 1770000000000 :kind "project"))
        :root "/x")
    (should (string-match-p "^ session +tool:Bash:git log(\\?: \\.\\*)\\? " (buffer-string)))
    (lists-test--to "tool:Edit")
    (let (question)
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (prompt) (setq question prompt) t)))
        (pyagentd-test-answer 'revoke '(:revoked 1))
        (call-interactively (key-binding "r")))
      (should (string-search "tool:Edit:/x/[^/]+ in all sessions of /x" question)))
    (pyagentd-test-await (pyagentd-test-calls 'revoke))
    (should (equal (pyagentd-test-calls 'revoke)
                   `((:branch ,branch :action "tool:Edit:/x/[^/]+" :kind "project"))))))

(ert-deftest pyagentd-grants-that-are-marked-are-revoked-together ()
  (lists-test--with pyagentd-grants 'grants
      '(:grants ((:action "tool:Read:a" :at 1770000000000 :kind session)
                 (:action "tool:Read:b" :at 1770000000000 :kind session)
                 (:action "tool:Read:c" :at 1770000000000 :kind session)))
    (pyagentd-test-answer 'revoke '(:revoked 1))
    (lists-test--to "tool:Read:b")
    (call-interactively (key-binding "m"))
    (call-interactively (key-binding "m"))
    (goto-char (point-min))
    (let (question)
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (prompt) (setq question prompt) t)))
        (call-interactively (key-binding "r")))
      (should (equal question "Revoke 2 actions? ")))
    (pyagentd-test-await (cdr (pyagentd-test-calls 'revoke)))
    (should (equal (mapcar (lambda (call) (plist-get call :action))
                           (pyagentd-test-calls 'revoke))
                   '("tool:Read:b" "tool:Read:c")))))

;;;; Decisions

(defconst lists-test--decisions
  '(:decisions ((:id 7 :at 1770000000000 :session "demo-20260205143052"
                 :agent "explorer-20260205143052-look" :tool "Read"
                 :action "tool:Read:/etc/passwd" :decision "deny" :rule "scope"
                 :reason "Outside.")
                (:id 6 :at 1769999999000 :session "demo-20260205143052" :tool "Bash"
                 :action "tool:Bash:ls\n-l" :decision "ask_approved" :by "emacs 28.2"))
    :more t)
  "Two decisions.")

(ert-deftest pyagentd-audit-lists-decisions-of-the-session ()
  (lists-test--with pyagentd-audit 'audit lists-test--decisions
    (should (equal (car (pyagentd-test-calls 'audit))
                   '(:limit 200 :session "demo-20260205143052")))
    (should (string-match-p "denied +Read:/etc/passwd +scope +explorer (look)" (buffer-string)))
    (should (string-match-p "approved +Bash:ls -l +emacs 28.2" (buffer-string)))))

(ert-deftest pyagentd-audit-shows-older-and-all-of-one ()
  (lists-test--with pyagentd-audit 'audit lists-test--decisions
    (call-interactively (key-binding "+"))
    (pyagentd-test-await (= 4 (length pyagentd-table-rows)))
    (should (equal 6 (plist-get (car (last (pyagentd-test-calls 'audit))) :before)))
    (lists-test--to "denied")
    (save-window-excursion (call-interactively (key-binding (kbd "RET"))))
    (with-current-buffer "*pyagentd decision*"
      (should (string-match-p "^Action +tool:Read:/etc/passwd\n" (buffer-string)))
      (should (string-match-p "^Reason +Outside\\.\n" (buffer-string))))))

(ert-deftest pyagentd-audit-of-all-sessions ()
  (lists-test--with pyagentd-audit 'audit lists-test--decisions
    (cl-letf (((symbol-function 'completing-read) (lambda (&rest _) "")))
      (call-interactively (key-binding "s")))
    (pyagentd-test-await (equal '(:limit 200) (car (last (pyagentd-test-calls 'audit)))))))

;;;; Trust

(defun lists-test--preset (root name text)
  "Make the preset NAME with TEXT under ROOT; return what the daemon tells of it."
  (let ((file (expand-file-name (concat name ".md") root)))
    (write-region text nil file nil 'quiet)
    (list :name name :source file :origin "project"
          :hash (secure-hash 'sha256 (concat name "\0" text)))))

(ert-deftest pyagentd-trust-shows-the-texts-before-it-asks ()
  (pyagentd-test-with-ask
    (let ((good (lists-test--preset root "theirs" "---\ntools: [Bash]\n---\nRun it."))
          (bad (lists-test--preset root "broken" "---\n"))
          shown)
      (pyagentd-test-answer 'presets `(:presets ((:name "ours"))
                                       :untrusted (,good (,@bad :error "line 1"))))
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (_) (setq shown (with-current-buffer (window-buffer)
                                           (buffer-string)))
                   t)))
        (pyagentd-trust-presets)
        (pyagentd-test-settle))
      (dolist (part '("theirs.md" "tools: [Bash]" "Cannot be used: line 1"))
        (should (string-search part shown)))
      (should-not (string-search "ours" shown))
      (should (equal (list (plist-get good :hash))
                     (plist-get (car (pyagentd-test-calls 'trust-presets))
                                :hashes))))))

(ert-deftest pyagentd-trust-is-not-asked-for-another-text ()
  (pyagentd-test-with-ask
    (let ((preset (lists-test--preset root "theirs" "harmless")))
      (lists-test--preset root "theirs" "harmful")
      (pyagentd-test-answer 'presets `(:untrusted (,preset)))
      (should (string-match-p "has changed just now"
                              (pyagentd-test-said (pyagentd-trust-presets))))
      (should-not (pyagentd-test-calls 'trust-presets)))))

(ert-deftest pyagentd-trust-refused-trusts-nothing ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer 'presets
                          `(:untrusted (,(lists-test--preset root "theirs" "x"))))
    (let (asked)
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (_) (setq asked t) nil)))
        (pyagentd-trust-presets)
        (pyagentd-test-await asked)
        (pyagentd-test-settle)))
    (should-not (pyagentd-test-calls 'trust-presets))
    (pyagentd-test-answer 'presets '(:presets ((:name "ours"))))
    (should (string-match-p "No preset of .* needs to be trusted"
                            (pyagentd-test-said (pyagentd-trust-presets))))))

(ert-deftest pyagentd-trust-that-is-missing-is-said-where-a-preset-is-chosen ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer 'presets '(:presets ((:name "ours" :description "For us")
                                               (:name "broken" :error "line 1"))
                                     :untrusted ((:name "theirs"))))
    (pyagentd-test-tell 'fake-silent "" 'create-session)
    (let (prompt annotated)
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (said names &rest _)
                   (setq prompt said
                         annotated (mapcar (plist-get completion-extra-properties
                                                      :annotation-function)
                                           names))
                   "ours")))
        (pyagentd-session "mine" t)
        (pyagentd-test-await (pyagentd-test-calls 'create-session)))
      (should (equal "ours" (plist-get (car (pyagentd-test-calls
                                             'create-session))
                                       :preset)))
      (should (string-search "theirs of the project" prompt))
      (should (equal annotated '("  For us" "  line 1"))))))

(ert-deftest pyagentd-trust-session-trusts-the-text-that-was-shown ()
  (pyagentd-test-with-ask
    (let* ((branch (expand-file-name "evil/branches/main" root))
           (text "---\nprofile: open\n---\n")
           (pyagentd-here-function
            (lambda () (list :branch-dir (concat branch "/agents/explorer-1"))))
           shown)
      (make-directory branch t)
      (write-region text nil (expand-file-name "preset.md" branch) nil 'quiet)
      (pyagentd-test-answer 'trust-session '(:foreign nil))
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (_) (setq shown (with-current-buffer (window-buffer)
                                           (buffer-string)))
                   nil)))
        (pyagentd-trust-session)
        (should (equal shown text))
        (should-not (pyagentd-test-calls 'trust-session)))
      (cl-letf (((symbol-function 'y-or-n-p) #'always))
        (pyagentd-trust-session))
      (pyagentd-test-await
       (equal (list :branch branch :sha256 (secure-hash 'sha256 text))
              (car (pyagentd-test-calls 'trust-session)))))))

;;; lists-test.el ends here

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

;;;; The pieces of an agent

(defmacro jf-test--with-answers (answers &rest body)
  "Evaluate BODY with a daemon that gives ANSWERS, an alist by method."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (pcase-dolist (`(,method . ,answer) ,answers)
       (pyagentd-test-tell 'fake-answer (format "%S" answer) method))
     ,@body))

(ert-deftest pyagentd-jf-names-of-spec-000-exist ()
  (dolist (name '(jf/gptel--create-agent-directory
                  jf/gptel--copy-preset-template
                  jf/gptel--load-preset-from-file
                  jf/gptel--apply-session-preset
                  jf/gptel-scope--parse-preset-config
                  jf/gptel-scope--update-preset-paths
                  jf/gptel-persistent-agent--task
                  jf/gptel--read-session-metadata))
    (should (functionp name)))
  (should (boundp 'jf/gptel-persistent-agent--fsm-handlers)))

(ert-deftest pyagentd-jf-paths-of-an-agent-come-from-one-place ()
  "SPEC 000 Path resolution via constants."
  (let ((dir "/s/branches/main/agents/a1"))
    (should (equal (list (jf/gptel--context-file-path dir)
                         (jf/gptel--preset-file-path dir)
                         (jf/gptel--scope-plan-file-path dir)
                         (jf/gptel--agents-dir-path "/s/branches/main"))
                   '("/s/branches/main/agents/a1/session.md"
                     "/s/branches/main/agents/a1/preset.md"
                     "/s/branches/main/agents/a1/scope-plan.yml"
                     "/s/branches/main/agents")))))

(ert-deftest pyagentd-jf-registers-an-agent ()
  "SPEC 000 Session registered via registry module."
  (with-temp-buffer
    (unwind-protect
        (progn
          (jf/gptel--register-session "/s/agents/a1" (current-buffer) "a1"
                                      "main" "/s/agents/a1")
          (should (equal (gethash "/s/agents/a1" pyagentd-place--registry)
                         (list :session-id "a1" :session-dir "/s/agents/a1"
                               :branch-name "main" :branch-dir "/s/agents/a1"
                               :buffer (current-buffer)))))
      (remhash "/s/agents/a1" pyagentd-place--registry))))

(ert-deftest pyagentd-jf-pieces-are-asked-for-with-absolute-names ()
  (jf-test--with-answers
      '((create-agent-directory . "/b/agents/x")
        (copy-preset-template . "/b/agents/x/preset.md")
        (update-preset-paths . "/b/agents/x/preset.md"))
    (let ((default-directory "/b/"))
      (should (equal (jf/gptel--create-agent-directory "." "explorer" "find it")
                     "/b/agents/x"))
      (should (equal (jf/gptel--copy-preset-template "explorer" "agents/x")
                     "/b/agents/x/preset.md"))
      (jf/gptel-scope--update-preset-paths "preset.md" ["/p/**" "/q"] '("/r")))
    (should (equal (pyagentd-test-calls 'create-agent-directory)
                   '((:directory "/b" :preset "explorer" :description "find it"))))
    (should (equal (pyagentd-test-calls 'copy-preset-template)
                   '((:preset "explorer" :directory "/b/agents/x"))))
    (should (equal (pyagentd-test-calls 'update-preset-paths)
                   '((:file "/b/preset.md" :allowed ("/p/**" "/q")
                      :denied ("/r")))))))

;;;; Metadata

(defun jf-test--write (root name &rest lines)
  "Write LINES to the file NAME in ROOT."
  (let ((coding-system-for-write 'utf-8-unix))
    (write-region (concat (string-join lines "\n") "\n") nil
                  (expand-file-name name root) nil 'quiet)))

(ert-deftest pyagentd-jf-metadata-and-presets-are-read-without-a-daemon ()
  "SPEC 001 Reading session metadata, Backward compatibility with agent_type."
  (pyagentd-test-with-place
    (let ((pyagentd-command '("/nonexistent/pyagentd")))
      (should-not (jf/gptel--read-session-metadata root))
      (should-not (jf/gptel--read-preset-metadata root))
      (should-not (jf/gptel--read-branch-metadata root))
      (jf-test--write root "scope-plan.yml" "version: \"3.0\"" "session_id: a-1"
                      "created: 2026-02-05T14:30:52Z # UTC" "type: 'agent'"
                      "agent_type: explorer" "parent_session_id:" "list: [a]")
      (should (equal (jf/gptel--read-session-metadata root)
                     '(:version "3.0" :session-id "a-1"
                       :created "2026-02-05T14:30:52Z" :type "agent"
                       :agent-type "explorer" :parent-session-id ""
                       :preset "explorer")))
      (should (eq t (jf/gptel--is-agent-session-p root)))
      (jf-test--write root "branch-metadata.yml" "parent_branch: \"main\""
                      "branch_point_position: 120")
      (should (equal (jf/gptel--read-branch-metadata root)
                     '(:parent-branch "main" :branch-point-position 120)))
      (jf-test--write root "preset.md" "---" "backend: Claude  # the first"
                      "model: claude-sonnet-4-5" "temperature: 0.3"
                      "include-tool-results: true" "tools:" "  - Read"
                      "  - emacs:code  # what Emacs knows" "paths:"
                      "  read:" "  - \"/p: #/**\"" "  write: []"
                      "shell_commands: # none" "  allow: [\"*\", 'a b', c]"
                      "  network: false" "---" "You are kind." "---" "Very.")
      (let ((scope '(:paths (:read ("/p: #/**") :write nil)
                     :shell-commands (:allow ("*" "a b" "c") :network nil))))
        (should (equal (jf/gptel--load-preset-from-file root)
                       `(:backend "Claude" :model "claude-sonnet-4-5"
                         :temperature 0.3 :include-tool-results t
                         :tools ("Read" "emacs:code") ,@scope
                         :system "You are kind.\n---\nVery.")))
        (should (equal (plist-get (jf/gptel--read-preset-metadata root) :tools)
                       '("Read" "emacs:code")))
        (should (equal (jf/gptel-scope--parse-preset-config root) scope))))))

(ert-deftest pyagentd-jf-other-yaml-is-read-by-the-daemon ()
  (jf-test--with-answers '((preset-metadata :backend "B" :model "m")
                           (session-metadata :session-id "s"))
    (dolist (front '("model: >-\n  m" "model: *m" "model: {a: b}" "a: b: c"
                     "model: m\nmodel: n" "model: \"\\x6d\"" "n: 0x10"
                     "tools:\n  Read:\n    allowed: true" "\tmodel: m" "- m"
                     "when: 2026-02-05" "list:\n  - a: b" "a: [[b]]" "model: m\r"))
      (jf-test--write root "preset.md" "---" front "---" "You are kind.")
      (should (equal (jf/gptel--read-preset-metadata root) '(:backend "B" :model "m"))))
    (jf-test--write root "scope-plan.yml" "session_id: [")
    (should (equal (jf/gptel--read-session-metadata root) '(:session-id "s")))))

;;;; Sessions and branches

(defun jf-test--late (answer)
  "Let the daemon give ANSWER to the call that waits."
  (pyagentd-test-tell 'fake-raw (format "(return %d %S)"
                                        (caar pyagentd-rpc--pending) answer)))

(ert-deftest pyagentd-jf-a-session-that-was-too-late-is-not-made-twice ()
  (jf-test--with-answers '((attach :seq 0 :revision 10))
    (let ((file (pyagentd-test-file root))
          (pyagentd-start-timeout 0.1)
          (pyagentd-call-timeout 0.1))
      (pyagentd-test-tell 'fake-silent "" 'create-session)
      (should-error (jf/gptel-persistent-session "Demo") :type 'pyagentd-timeout)
      (should-error (jf/gptel-persistent-session "Demo") :type 'pyagentd-timeout)
      (setq pyagentd-call-timeout 60)
      (jf-test--late (list :file file))
      (should (eq (jf/gptel-persistent-session "Demo") (get-file-buffer file)))
      (should (= 1 (length (pyagentd-test-calls 'create-session))))
      ;; The next one is another.
      (pyagentd-test-tell 'fake-answer (format "%S" (list :file file))
                          'create-session)
      (jf/gptel-persistent-session "Demo")
      (should (= 2 (length (pyagentd-test-calls 'create-session)))))))

(ert-deftest pyagentd-jf-a-branch-is-returned-when-it-is-made ()
  (jf-test--with-answers '((attach :seq 0 :revision 10))
    (let* ((file (pyagentd-test-file root "### One\n\nYes.\n\n### Two"))
           (other (pyagentd-test-file
                   root "### One"
                   "sessions/demo-20260205143052/branches/20260205143100-x/session.md"))
           (branch (directory-file-name (file-name-directory file))))
      (pyagentd-test-tell
       'fake-answer
       (format "%S" (list :points '((:number 1 :start 5 :end 8 :text "One")
                                    (:number 2 :start 16 :end 24 :text "Two"))))
       'branch-points)
      (pyagentd-test-tell
       'fake-answer
       (format "%S" (list :file other :branch-name "20260205143100-x" :parent "main"))
       'branch)
      (dolist (case '((("x") 16 nil "x") (("x" 1 include) 5 nil "x")
                      ((nil 2 exclude) 16 t "branch")))
        (with-current-buffer (find-file-noselect file)
          (goto-char (point-max))
          (should (eq (apply #'jf/gptel-branch-session (car case))
                      (get-file-buffer other)))
          (should (equal (car (last (pyagentd-test-calls 'branch)))
                         (list :branch branch :position (nth 1 case)
                               :exclude (nth 2 case) :name (nth 3 case))))))
      (with-current-buffer (find-file-noselect file)
        (should-error (jf/gptel-branch-session "x" 7) :type 'user-error)))
    (with-temp-buffer
      (should (equal (should-error (jf/gptel-branch-session "x"))
                     '(user-error "Not a gptel session buffer"))))))

(ert-deftest pyagentd-jf-a-preset-sets-all-settings-of-the-buffer ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :settings '(:model "old" :tools ("Bash") :temperature 1.0))
    (jf/gptel--apply-session-preset
     '(:backend "Claude" :model "claude-3-7-sonnet-20250219" :temperature 0.3))
    (should (equal (list gptel-model gptel--backend-name gptel-temperature
                         gptel--tool-names)
                   '(claude-3-7-sonnet-20250219 "Claude" 0.3 nil)))
    (should (string-match-p "claude-3-7-sonnet" pyagentd-status--line)))
  (should-error (with-temp-buffer (jf/gptel--apply-session-preset nil))
                :type 'user-error))

(ert-deftest pyagentd-jf-a-session-without-a-preset-is-an-error ()
  "SPEC 000 Missing preset.md reports clear error."
  (jf-test--with-answers '((attach :seq 0 :revision 10))
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (should (equal (cadr (should-error (jf/gptel--apply-session-preset)))
                       (concat "Failed to load preset from "
                               pyagentd--branch-dir)))))))

;;;; The buffer of an agent

(defconst jf-test--agent
  "sessions/s-20260101000000/branches/main/agents/explorer-20260101000001-find/session.md"
  "Where the agent of a test is.")

(ert-deftest pyagentd-jf-names-are-set-before-settings ()
  "SPEC 000 Buffer-local session variables set before preset, Buffer-local vars set before preset scope."
  (jf-test--with-answers
      '((attach :seq 0 :revision 10 :settings (:model "m" :backend "Claude" :tools nil)))
    (let* ((file (pyagentd-test-file root "Find it." jf-test--agent))
           (variables '(pyagentd--session-id pyagentd--session-dir
                        pyagentd--branch-name pyagentd--branch-dir gptel-model))
           set-to
           (note (lambda (variable value operation where)
                   (when (and (eq operation 'set) where value
                              (not (assq variable set-to)))
                     (push (cons variable value) set-to)))))
      (dolist (variable variables)
        (add-variable-watcher variable note))
      (unwind-protect
          (with-current-buffer (find-file-noselect file)
            (pyagentd-test-await (eq pyagentd-attach-state t))
            (setq set-to (reverse set-to))
            (should (equal (mapcar #'car set-to) variables))
            (let ((dir (directory-file-name (file-name-directory file))))
              (should (equal (mapcar #'cdr set-to)
                             (list "explorer-20260101000001-find" dir "main" dir
                                   'm))))
            (funcall major-mode)        ; kills the other local variables
            (should (equal jf/gptel--session-id "explorer-20260101000001-find")))
        (dolist (variable variables)
          (remove-variable-watcher variable note))))))

(ert-deftest pyagentd-jf-agents-are-saved-by-a-local-hook ()
  "SPEC 000 Auto-save hook registered at creation, gptel-post-response-functions hook used."
  (pyagentd-test-with-place
    (let ((file (pyagentd-test-file root "Find it." jf-test--agent))
          (pyagentd-autosave-idle-time 0))
      (with-current-buffer (find-file-noselect file)
        (should (local-variable-p 'gptel-post-response-functions))
        (should (memq 'jf/gptel--auto-save-session-buffer
                      gptel-post-response-functions))
        (should-not (memq 'jf/gptel--auto-save-session-buffer
                          (default-value 'gptel-post-response-functions)))
        (pyagentd-test-attach)
        (pyagentd-test-stream "\n\nfound")
        (insert "!")
        (pyagentd-test-events '(run 3 (:id "r" :phase "finished" :reason "done")))
        (should-not (buffer-modified-p))
        (should (string-match-p "found"
                                 (pyagentd-test-content file)))))))

;;;; Agents spawned from Lisp

(defmacro jf-test--with-task (answers &rest body)
  "Evaluate BODY in a session whose daemon gives ANSWERS.
The variable `results' has what `callback' was called with, latest first."
  (declare (indent 1) (debug t))
  `(jf-test--with-answers
       (append ,answers
               '((attach :seq 0 :revision 10)
                 (spawn :branch "/s/agents/a1" :session-id "a1")
                 (agent-result :ok t :text "found")))
     (let* ((file (pyagentd-test-file root "### Hi"))
            (results nil)
            (callback (lambda (result) (push result results))))
       (with-current-buffer (find-file-noselect file)
         (pyagentd-test-await (eq pyagentd-attach-state t))
         ,@body))))

(ert-deftest pyagentd-jf-task-needs-a-session ()
  "SPEC 000 Parent session requirement enforced, Parent session required."
  (jf-test--with-answers '((spawn :branch "/s/agents/a1"))
    (with-temp-buffer
      (let* (called
             (err (should-error
                   (jf/gptel-persistent-agent--task
                    (lambda (_) (setq called t)) "explorer" "find it" "Find it.")
                   :type 'user-error)))
        (should (equal (cadr err)
                       "PersistentAgent requires parent persistent session"))
        (should-not called)
        (should-not (pyagentd-test-calls 'spawn))))))

(ert-deftest pyagentd-jf-task-gives-the-answer-once ()
  "SPEC 000 Parent callback receives string result, gptel-request executes async."
  (jf-test--with-task nil
    (should (equal (jf/gptel-persistent-agent--task
                    callback "explorer" "find it" "Find it." ["/p/**"] ["/q"])
                   "/s/agents/a1"))
    (should-not results)
    (pyagentd-test-await results)
    (pyagentd-rpc-call 'fake-calls)
    (should (equal results '("found")))
    (let ((request (car (pyagentd-test-calls 'spawn))))
      (should (equal (plist-get request :branch) pyagentd--branch-dir))
      (should (equal (plist-get request :preset) "explorer"))
      (should (equal (plist-get request :description) "find it"))
      (should (equal (plist-get request :prompt) "Find it."))
      (should (equal (plist-get request :allowed-paths) '("/p/**")))
      (should (equal (plist-get request :denied-paths) '("/q")))
      (should-not (plist-get request :unrestricted)))
    (should (equal (pyagentd-test-calls 'agent-result)
                   '((:branch "/s/agents/a1"))))))

(ert-deftest pyagentd-jf-task-removes-the-overlay-before-the-callback ()
  "SPEC 000 Completion deletes overlay and invokes callback."
  (jf-test--with-task nil
    (let ((parent (current-buffer)) shown)
      (jf/gptel-persistent-agent--task
       (lambda (text)
         (push (cons text (length (buffer-local-value
                                   'pyagentd-overlay--table parent)))
               shown))
       "explorer" "d" "p")
      (pyagentd-overlay-update
       '(:id "a1" :preset "explorer" :description "d" :state wait :count 0))
      (should pyagentd-overlay--table)
      (pyagentd-test-await shown)
      (should (equal shown '(("found" . 0)))))))

(ert-deftest pyagentd-jf-branches-without-a-conversation-are-none ()
  "SPEC 001 Discovering branches within a session."
  (pyagentd-test-with-place
    (let* ((file (pyagentd-test-file root "### Hi"))
           (branch (directory-file-name (file-name-directory file)))
           (session (file-name-directory
                     (directory-file-name (file-name-directory branch)))))
      (make-directory (expand-file-name "branches/half" session) t)
      (make-directory (expand-file-name "agents/half" branch) t)
      (should (equal (jf/gptel--list-branches session)
                     (list (file-name-nondirectory branch))))
      (should (equal (mapcar (lambda (each) (plist-get each :agent-dirs))
                             (jf/gptel--find-all-branches-with-agents))
                     '(nil))))))

(ert-deftest pyagentd-jf-task-tells-nil-from-an-empty-vector ()
  (jf-test--with-task nil
    (jf/gptel-persistent-agent--task callback "explorer" "d" "p")
    (jf/gptel-persistent-agent--task callback "explorer" "d" "p" [])
    (should (equal (mapcar (lambda (request)
                             (list (plist-get request :allowed-paths)
                                   (plist-get request :unrestricted)))
                           (pyagentd-test-calls 'spawn))
                   '((nil nil) (nil t))))))

(ert-deftest pyagentd-jf-patterns-that-are-no-list-are-refused-here ()
  (jf-test--with-task nil
    (dolist (wrong '("/p/**" (?/ ?p) [nil] ("/p" . "/q") :null))
      (dolist (call (list (lambda () (jf/gptel-persistent-agent--task
                                      callback "explorer" "d" "p" wrong))
                          (lambda () (jf/gptel-persistent-agent--task
                                      callback "explorer" "d" "p" nil wrong))
                          (lambda () (jf/gptel-scope--update-preset-paths
                                      "/p/preset.md" wrong))))
        (should (string-match-p "\\(allowed\\|denied\\).* must be a list"
                                (cadr (should-error (funcall call)
                                                    :type 'user-error))))))
    (should-not (pyagentd-test-calls 'spawn))
    (should-not (pyagentd-test-calls 'update-preset-paths))))

(ert-deftest pyagentd-jf-task-that-cannot-begin-is-an-error-here ()
  "SPEC 000 Parent validation failure prevents creation."
  (jf-test--with-task nil
    (pyagentd-test-tell 'fake-error "(user-error \"No preset nobody\")" 'spawn)
    (should-error (jf/gptel-persistent-agent--task callback "nobody" "d" "p")
                  :type 'pyagentd-remote-error)
    (should-not (pyagentd-test-calls 'agent-result))
    (should-not results)
    (should-not pyagentd-overlay--table)))

(ert-deftest pyagentd-jf-task-whose-daemon-goes-gives-one-error ()
  "SPEC 000 Network/API error cleanup."
  (jf-test--with-task nil
    (pyagentd-test-tell 'fake-silent "" 'agent-result)
    (jf/gptel-persistent-agent--task callback "explorer" "d" "p")
    (pyagentd-test-events
     '(agent 0 (:id "a1" :preset "explorer" :description "d" :state wait :count 0)))
    (should pyagentd-overlay--table)
    (ignore-errors (pyagentd-rpc-call 'fake-close))
    (pyagentd-test-await results)
    (pyagentd-test-await (not pyagentd-overlay--table))
    (should (= (length results) 1))
    (should (string-prefix-p "Error: Network failure\n(:error "
                             (car results)))))

(ert-deftest pyagentd-jf-task-survives-its-callback-and-its-buffer ()
  "SPEC 000 Exception handling in callback."
  (jf-test--with-task nil
    (let ((calls 0) (debug-on-error nil))
      (pyagentd-test-tell 'fake-silent "" 'agent-result)
      (jf/gptel-persistent-agent--task
       (lambda (_) (cl-incf calls) (error "No such luck"))
       "explorer" "d" "p")
      (set-buffer-modified-p nil)
      (kill-buffer)
      (ignore-errors (pyagentd-rpc-call 'fake-close))
      (pyagentd-test-await (> calls 0))
      (should (= calls 1)))))

;;;; The tool in gptel itself

(ert-deftest pyagentd-jf-gptel-gets-the-tool ()
  "SPEC 000 Tool registered via gptel-make-tool, Tool parameters validated."
  (require 'pyagentd-gptel)
  (jf-test--with-answers
      '((presets :presets ((:name "explorer" :description "looks" :mode "all")
                           (:name "plan" :description "p" :mode "primary"))))
    (let (made)
      (cl-letf (((symbol-function 'gptel-make-tool)
                 (lambda (&rest arguments) (setq made arguments))))
        (pyagentd-gptel-register)
        (should (equal (plist-get made :name) "PersistentAgent"))
        (pyagentd-test-await (plist-get (car (plist-get made :args)) :enum)))
      (remove-hook 'pyagentd-rpc-connected-hook #'pyagentd-gptel--refresh)
      (should (equal (plist-get made :name) "PersistentAgent"))
      (should (eq (plist-get made :function) 'jf/gptel-persistent-agent--task))
      (should (equal (plist-get made :category) "gptel-persistent"))
      (should (equal (list (plist-get made :async) (plist-get made :confirm)
                           (plist-get made :include))
                     '(t t t)))
      (should (string-suffix-p "- explorer: looks" (plist-get made :description)))
      (should (equal (mapcar (lambda (arg) (list (plist-get arg :name)
                                                 (plist-get arg :optional)))
                             (plist-get made :args))
                     '(("preset" nil) ("description" nil) ("prompt" nil)
                       ("allowed_paths" t) ("denied_paths" t))))
      (should (equal (plist-get (car (plist-get made :args)) :enum)
                     ["explorer"])))))

;;; jf-test.el ends here

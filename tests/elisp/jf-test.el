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
          (should (equal (gethash "a1/main" pyagentd-place--registry)
                         (list :session-id "a1" :session-dir "/s/agents/a1"
                               :branch-name "main" :branch-dir "/s/agents/a1"
                               :buffer (current-buffer)))))
      (remhash "a1/main" pyagentd-place--registry)
      (remhash "/s/agents/a1" pyagentd-place--buffers))))

(ert-deftest pyagentd-jf-pieces-are-asked-for-with-absolute-names ()
  (jf-test--with-answers
      '((create-agent-directory :directory "/b/agents/x")
        (copy-preset-template :file "/b/agents/x/preset.md")
        (load-preset :backend "Claude" :model "m" :tools ("Read") :system "Hi")
        (preset-scope :paths (:read ("/p/**")))
        (update-preset-paths :file "/b/agents/x/preset.md"))
    (let ((default-directory "/b/"))
      (should (equal (jf/gptel--create-agent-directory "." "explorer" "find it")
                     "/b/agents/x"))
      (should (equal (jf/gptel--copy-preset-template "explorer" "agents/x")
                     "/b/agents/x/preset.md"))
      (should (equal (plist-get (jf/gptel--load-preset-from-file "agents/x") :tools)
                     '("Read")))
      (should (equal (jf/gptel-scope--parse-preset-config "preset.md")
                     '(:paths (:read ("/p/**")))))
      (jf/gptel-scope--update-preset-paths "preset.md" ["/p/**" "/q"] '("/r")))
    (should (equal (pyagentd-test-calls 'create-agent-directory)
                   '((:directory "/b" :preset "explorer" :description "find it"))))
    (should (equal (pyagentd-test-calls 'copy-preset-template)
                   '((:preset "explorer" :directory "/b/agents/x"))))
    (should (equal (pyagentd-test-calls 'preset-scope)
                   '((:file "/b/preset.md"))))
    (should (equal (pyagentd-test-calls 'update-preset-paths)
                   '((:file "/b/preset.md" :allowed ("/p/**" "/q")
                      :denied ("/r")))))))

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
  (jf-test--with-answers '((load-preset . nil) (attach :seq 0 :editor t))
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
      '((attach :seq 0 :editor t :settings (:model "m" :backend "Claude" :tools nil)))
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
        (should (buffer-modified-p))
        (pyagentd-test-events '(run 3 (:id "r" :phase "finished" :reason "done")))
        (should-not (buffer-modified-p))
        (should (string-prefix-p "Find it.\n\nfound"
                                 (pyagentd-test-content file)))))))

;;;; Agents spawned from Lisp

(defmacro jf-test--with-task (answers &rest body)
  "Evaluate BODY in a session whose daemon gives ANSWERS.
The variable `results' has what `callback' was called with, latest first."
  (declare (indent 1) (debug t))
  `(jf-test--with-answers
       (append ,answers
               '((attach :seq 0 :editor t)
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

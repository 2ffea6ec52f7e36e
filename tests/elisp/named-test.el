;;; named-test.el --- Tests of named agents, contexts and tasks -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-agents)
(require 'pyagentd-views)

(defun named-test--agent (root name &rest more)
  "Make the files of the agent NAME under ROOT; return its row, MORE keys first."
  (let* ((dir (expand-file-name (concat "agents/" name) root))
         (file (pyagentd-test-file
                root "### Hi\n"
                (concat "agents/" name "/branches/main/session.md"))))
    (write-region "{}" nil (expand-file-name "agent.json" dir) nil 'quiet)
    (append more
            (list :name name :dir dir :session-id name :status "idle"
                  :state "idle" :permissions "standard" :file file
                  :created-at "2026-03-04T10:00:00Z"
                  :branch (directory-file-name (file-name-directory file))))))

(defmacro named-test--with (bindings method answer &rest body)
  "Evaluate BODY with a daemon that answers METHOD with ANSWER.
BINDINGS are those of `let*'; `root' is bound to the place of files."
  (declare (indent 3) (debug t))
  `(pyagentd-test-with-daemon
     (let* (,@bindings (pyagentd-named-known nil))
       (pyagentd-test-answer ,method ,answer)
       (pyagentd-test-answer 'attach '(:seq 0))
       (unwind-protect (progn ,@body)
         (dolist (buffer (buffer-list))
           (when (string-match-p "\\`\\*\\(pyagentd\\|edit:\\)"
                                 (buffer-name buffer))
             (kill-buffer buffer)))))))

(defmacro named-test--in (command &rest body)
  "Evaluate BODY in the list that COMMAND, a form, shows, once it has rows."
  (declare (indent 1) (debug t))
  `(save-window-excursion
     ,command
     (with-current-buffer (window-buffer)
       (pyagentd-test-await pyagentd-table-rows)
       (goto-char (point-min))
       ,@body)))

(defun named-test--to (text)
  "Go to the line with TEXT."
  (goto-char (point-min))
  (search-forward text)
  (beginning-of-line))

;;;; Agents

(ert-deftest pyagentd-agent-init-opens-the-conversation ()
  "SPEC 003 Creation flow 6: its conversation is opened"
  (named-test--with ((row (named-test--agent root "web")))
      'agent-init (append row '(:welcome "This is the agent web."))
    (save-window-excursion
      (with-temp-buffer
        (pyagentd-test-type
         "M-x pyagentd-agents--init RET web RET Look SPC after SPC it. RET"))
      (pyagentd-test-await (equal (plist-get row :file)
                                  (buffer-file-name (window-buffer))))
      (should (equal (seq-take (car (pyagentd-test-calls 'agent-init)) 8)
                     '(:name "web" :system-prompt "Look after it." :model nil
                       :permissions nil))))))

(ert-deftest pyagentd-agent-opens-the-conversation-of-one-that-is-there ()
  (named-test--with ((row (named-test--agent root "web")))
      'agent-list (list :agents (list row))
    (save-window-excursion
      (pyagentd-agent "web")
      (pyagentd-test-await (buffer-file-name (window-buffer)))
      (should (equal (buffer-file-name (window-buffer))
                     (pyagentd-place-conversation (plist-get row :branch))))
      (should-not (pyagentd-test-calls 'agent-init)))))

(ert-deftest pyagentd-agent-makes-one-that-is-not-there ()
  (named-test--with ((row (named-test--agent root "web")))
      'agent-list (list :agents nil)
    (pyagentd-test-answer 'agent-init (append row '(:welcome "This is web.")))
    (save-window-excursion
      (cl-letf (((symbol-function 'read-string) (lambda (&rest _) "Look after it.")))
        (pyagentd-agent "web")
        (pyagentd-test-await (pyagentd-test-calls 'agent-init)))
      (should (equal (seq-take (car (pyagentd-test-calls 'agent-init)) 4)
                     '(:name "web" :system-prompt "Look after it."))))))

(defun named-test--list (&rest agents)
  "Return the list of AGENTS, lists (ROW STATUS), as the daemon tells it."
  (pyagentd-test-view
   '("Name" "Status")
   (mapcar (pcase-lambda (`(,row ,status))
             `(,(plist-get row :name) (:name ,(plist-get row :name))
               (:kind "session" :branch ,(plist-get row :branch))
               ,(plist-get row :name) ,status))
           agents)
   '((:key "c" :label "configure" :place "config"))
   :follows '("agents")))

(ert-deftest pyagentd-agent-list-follows-what-each-does-and-visits-it ()
  (named-test--with ((pyagentd-live-pause 0)
                     (web (named-test--agent root "web"))
                     (api (named-test--agent root "api")))
      'view (named-test--list (list api "busy") (list web "idle"))
    (named-test--in (pyagentd-list-show "named")
      (should (string-match-p "^ web +idle" (buffer-string)))
      (pyagentd-test-answer
       'view (named-test--list (list api "busy") (list web "waiting")))
      (pyagentd-test-push '(agents "" 0))
      (pyagentd-test-await (string-match-p "^ web +waiting" (buffer-string)))
      (named-test--to "web")
      (should (equal "web" (pyagentd-named-here)))
      (call-interactively (key-binding (kbd "RET")))
      (should (equal (plist-get web :file)
                     (buffer-file-name (window-buffer)))))))

(ert-deftest pyagentd-agent-names-complete-when-the-daemon-has-told-them ()
  (named-test--with ((row (named-test--agent root "web" :model "haiku")))
      'agent-list (list :agents (list row))
    (let (seen)
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (_prompt table &rest _)
                   (should-not (all-completions "" table))
                   (pyagentd-test-await (all-completions "" table))
                   (setq seen (all-completions "w" table))
                   (car seen))))
        (with-temp-buffer
          (should (equal "web" (pyagentd-named-read "Agent")))))
      (should (equal seen '("web")))
      (should (equal '(("web" . "idle  haiku")) (pyagentd-named--rows))))))

(ert-deftest pyagentd-agent-rename-sends-what-was-typed-and-keeps-its-windows ()
  (named-test--with ((row (named-test--agent root "web"))
                     (new (expand-file-name "agents/site" root)))
      'agent-rename (list :name "site" :dir new)
    (save-window-excursion
      (switch-to-buffer (find-file-noselect (plist-get row :file)))
      (goto-char (point-max))
      (insert "typed")
      (goto-char 4)
      (pyagentd-agents--rename "web" "site")
      (should (string-search "typed" (pyagentd-test-content
                                      (plist-get row :file))))
      (pyagentd-test-await (pyagentd-test-calls 'agent-rename))
      (rename-file (plist-get row :dir) new)
      (let ((file (expand-file-name "branches/main/session.md" new)))
        (pyagentd-test-events `(deleted 0 (:to ,file)))
        (pyagentd-test-await (equal file (buffer-file-name (window-buffer))))
        (should (= 4 (window-point)))))))

(ert-deftest pyagentd-agent-renamed-elsewhere-is-followed ()
  (dolist (typed '("" "typed"))
    (named-test--with ((row (named-test--agent root "web"))
                       (new (expand-file-name "agents/site" root)))
        nil
      (save-window-excursion
        (switch-to-buffer (find-file-noselect (plist-get row :file)))
        (goto-char (point-max))
        (insert typed)
        (let ((old (current-buffer))
              (file (expand-file-name "branches/main/session.md" new)))
          (rename-file (plist-get row :dir) new)
          (pyagentd-test-events `(deleted 0 (:to ,file)))
          (pyagentd-test-await (equal file (buffer-file-name (window-buffer))))
          (should (buffer-local-value 'pyagentd-mode (window-buffer)))
          (if (equal typed "")
              (should-not (buffer-live-p old))
            (with-current-buffer old
              (should-not buffer-file-name)
              (should (string-prefix-p "*Renamed: " (buffer-name)))
              (should (string-search typed (buffer-string)))
              (set-buffer-modified-p nil)
              (kill-buffer))))))))

;;;; Destruction

(defmacro named-test--answering (answer &rest body)
  "Evaluate BODY, in which yes-or-no questions get ANSWER.
The variable `asked' is bound to them, last one first."
  (declare (indent 1) (debug t))
  `(let (asked)
     (cl-letf (((symbol-function 'yes-or-no-p)
                (lambda (prompt) (push prompt asked) ,answer)))
       ,@body)))

(ert-deftest pyagentd-agent-destroy-says-what-is-lost-first ()
  (named-test--with ()
      'destroy-warnings '(:name "web" :dir "/nowhere" :lines ("12 files go" "a task"))
    (pyagentd-test-answer 'agent-destroy '(:text "Destroyed."))
    (named-test--answering nil
      (pyagentd-destroy "web" nil)
      (pyagentd-test-await asked)
      (should (equal (car asked)
                     "- 12 files go\n- a task\nDestroy the agent web? ")))
    (should-not (pyagentd-test-calls 'agent-destroy))
    (named-test--answering t
      (pyagentd-destroy "web" t)
      (pyagentd-test-await (pyagentd-test-calls 'agent-destroy))
      (should (string-suffix-p "Destroy the agent web, but not its files? "
                               (car asked))))
    (should (equal (pyagentd-test-calls 'agent-destroy)
                   '((:name "web" :keep-files t :confirmed t))))))

(ert-deftest pyagentd-agent-list-destroys-what-is-marked-one-by-one ()
  (named-test--with ((rows (mapcar (lambda (name)
                                     (list (named-test--agent root name) "idle"))
                                   '("a" "b" "c"))))
      'view (apply #'named-test--list rows)
    (pyagentd-test-answer 'destroy-warnings '(:name "x" :dir "/nowhere"))
    (pyagentd-test-answer 'agent-destroy '(:text "Destroyed."))
    (named-test--in (pyagentd-list-show "named")
      (call-interactively (key-binding "m"))
      (call-interactively (key-binding "m"))
      (named-test--answering t
        (call-interactively (key-binding "d"))
        (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'agent-destroy)))))
      (should (equal (pyagentd-test-calls 'agent-destroy)
                     '((:name "a" :keep-files nil :confirmed t)
                       (:name "b" :keep-files nil :confirmed t))))
      (named-test--to "c")
      (call-interactively (key-binding "U"))
      (named-test--answering t
        (let ((current-prefix-arg '(4)))
          (call-interactively (key-binding "d")))
        (pyagentd-test-await (nthcdr 2 (pyagentd-test-calls 'agent-destroy))))
      (should (plist-get (nth 2 (pyagentd-test-calls 'agent-destroy))
                         :keep-files)))))

;;;; Configuration

(defun named-test--config (&optional permissions custom)
  "Return what the agent web is, as the daemon lists it.
PERMISSIONS are JSON if CUSTOM is non-nil."
  (pyagentd-test-view
   '("Key" "Value")
   (mapcar (pcase-lambda (`(,key ,value . ,more))
             `(,key (:name "web" :key ,key :value ,value ,@more) nil ,key
               ,(or value "(default)")))
           `(("name" "web") ("system_prompt" "You look\nafter it.")
             ("model" nil :default t)
             ("permissions" ,(or permissions "standard") :default t :custom ,custom
              :choices ("open" "locked" "mine"))))
   '((:key "D" :label "default" :operation "agent-config" :takes ("name" "key")
      :arguments (:reset t) :needs "default" :done "%s: the default again"))
   :follows '("agents")))

(ert-deftest pyagentd-agent-config-sets-and-resets ()
  (named-test--with () 'view (named-test--config)
    (pyagentd-test-answer 'agent-config '(:name "web"))
    (named-test--in (pyagentd-agent-config "web")
      (should (equal (plist-get (car (pyagentd-test-calls 'view)) :arguments)
                     '(:agent "web")))
      (named-test--to "model")
      (switch-to-buffer (current-buffer))
      (pyagentd-test-type "RET haiku RET")
      (pyagentd-test-await (pyagentd-test-calls 'agent-config))
      (pyagentd-test-await (cdr (pyagentd-test-calls 'view)))
      (pyagentd-test-settle)
      (named-test--to "model")
      (call-interactively (key-binding "D"))
      (pyagentd-test-await
       (equal (mapcar (lambda (call) (seq-take call 6))
                      (pyagentd-test-calls 'agent-config))
              '((:name "web" :key "model" :value "haiku")
                (:name "web" :key "model" :reset t))))
      (named-test--to "name")
      (should-error (call-interactively (key-binding "D")) :type 'user-error))))

(ert-deftest pyagentd-agent-config-edits-the-prompt-in-a-buffer ()
  (named-test--with () 'view (named-test--config)
    (named-test--in (pyagentd-agent-config "web")
      (named-test--to "system_prompt")
      (call-interactively (key-binding (kbd "RET")))
      (with-current-buffer "*edit: system_prompt of web*"
        (should (equal (buffer-string) "You look\nafter it."))
        (goto-char (point-max))
        (insert " Well.")
        (pyagentd-test-refuse 'agent-config "The system prompt is bad")
        (call-interactively (key-binding (kbd "C-c C-c")))
        (pyagentd-test-await (pyagentd-test-calls 'agent-config))
        (pyagentd-test-settle)
        (should (buffer-live-p (current-buffer)))
        (pyagentd-test-answer 'agent-config '(:name "web"))
        (call-interactively (key-binding (kbd "C-c C-c"))))
      (pyagentd-test-await
       (not (get-buffer "*edit: system_prompt of web*")))
      (should (equal (car (last (pyagentd-test-calls 'agent-config)))
                     '(:name "web" :key "system_prompt"
                       :value "You look\nafter it. Well."))))))

(ert-deftest pyagentd-agent-config-writes-permissions-of-ones-own-as-json ()
  (named-test--with ((json "{\"allow\": [\"tool:.*\"], \"ask\": []}"))
      'view (named-test--config json t)
    (named-test--in (pyagentd-agent-config "web")
      (named-test--to "permissions")
      (switch-to-buffer (current-buffer))
      (pyagentd-test-type "RET RET")
      (with-current-buffer "*edit: permissions of web*"
        (should (equal (buffer-string) (concat json "\n")))))))

(ert-deftest pyagentd-agent-config-completes-the-profiles-that-there-are ()
  (named-test--with () 'view (named-test--config)
    (pyagentd-test-answer 'agent-config '(:name "web"))
    (named-test--in (pyagentd-agent-config "web")
      (named-test--to "permissions")
      (switch-to-buffer (current-buffer))
      (pyagentd-test-type "RET mi TAB RET")
      (pyagentd-test-await (pyagentd-test-calls 'agent-config))
      (should (equal "mine" (plist-get (car (pyagentd-test-calls 'agent-config))
                                       :value))))))

;;;; Settings

(ert-deftest pyagentd-settings-of-all-agents-are-set-and-reset ()
  "SPEC 003 Persistence: Server defaults"
  (named-test--with ()
      'view (pyagentd-test-view
             '("Setting" "Value")
             '(("default_permissions" (:key "default_permissions" :value "open") nil
                "default_permissions" "open")
               ("idle_timeout" (:key "idle_timeout" :value "90min"
                                :choices ("30min" "2h" "never")) nil
                "idle_timeout" "90min"))
             '((:key "D" :label "default" :operation "settings" :takes ("key")
                :arguments (:reset t) :done "%s: the default again"))
             :follows '("agents"))
    (pyagentd-test-answer 'settings '(:settings nil))
    (named-test--in (pyagentd-list-show "settings")
      (named-test--to "idle_timeout")
      (switch-to-buffer (current-buffer))
      (pyagentd-test-type "RET 2h RET")
      (pyagentd-test-await (pyagentd-test-calls 'settings))
      (named-test--to "default_permissions")
      (call-interactively (key-binding "D"))
      (pyagentd-test-await
       (equal (pyagentd-test-calls 'settings)
              '((:key "idle_timeout" :value "2h")
                (:key "default_permissions" :reset t)))))))

;;;; Contexts

(defconst named-test--saved
  '(:id "abc123de-f" :agent-name "web" :description "Made tea"
    :saved-at "2026-03-04T10:00:00Z" :trigger "idle_timeout"
    :message-count 42 :file "/nowhere.json")
  "A conversation that was saved.")

(ert-deftest pyagentd-nothing-is-asked-about-a-session-where-there-is-none ()
  (with-temp-buffer
    (cl-letf (((symbol-function 'read-from-minibuffer)
               (lambda (&rest _) (ert-fail "Asked")))
              ((symbol-function 'completing-read)
               (lambda (&rest _) (ert-fail "Asked"))))
      (dolist (command '(pyagentd-schedules--add pyagentd-context-save))
        (should-error (call-interactively command) :type 'user-error)))))

(ert-deftest pyagentd-context-save-acts-on-the-session-here ()
  "SPEC 003 Manual Save: with a description"
  (named-test--with ((row (named-test--agent root "web")))
      'context-save named-test--saved
    (with-current-buffer (find-file-noselect (plist-get row :file))
      (pyagentd-test-attach-now)
      (goto-char (point-max))
      (insert "typed")
      (pyagentd-context-save "Tea")
      (should (pyagentd-test-sent-p "typed"))
      (let ((call (car (pyagentd-test-calls 'context-save))))
        (should (equal (plist-get row :branch) (plist-get call :branch)))
        (should (equal "Tea" (plist-get call :description)))))))

(defun named-test--contexts (branch)
  "Return the list of a conversation saved of BRANCH, as the daemon tells it."
  (pyagentd-test-view
   '("Id" "Description")
   `(("abc123de-f" (:branch ,branch :id "abc123de-f") nil "abc123de" "Made tea"))
   `((:key "RET" :label "restore" :operation "context-restore"
      :takes ("branch" "id") :needs "branch" :saves t
      :question "Restore %s?" :asks "always")
     (:key "C" :label "clear" :operation "context-clear"
      :arguments (:branch ,branch) :saves t
      :question "Clear it?" :asks "always"))))

(ert-deftest pyagentd-context-history-restores-what-is-at-point ()
  "SPEC 003 Context History"
  (named-test--with ((row (named-test--agent root "web")))
      'context-restore named-test--saved
    (pyagentd-test-answer 'view (named-test--contexts (plist-get row :branch)))
    (with-current-buffer (find-file-noselect (plist-get row :file))
      (pyagentd-test-attach-now)
      (goto-char (point-max))
      (insert "typed")
      (named-test--in (pyagentd-context--history)
        (should (eq (key-binding "s") #'pyagentd-context-save))
        (should (equal (plist-get (pyagentd-here) :branch)
                       (plist-get row :branch)))
        (cl-letf (((symbol-function 'y-or-n-p) #'always))
          (call-interactively (key-binding (kbd "RET"))))
        (should (pyagentd-test-sent-p "typed"))
        (pyagentd-test-await
         (equal (pyagentd-test-calls 'context-restore)
                `((:branch ,(plist-get row :branch) :id "abc123de-f"))))))))

(ert-deftest pyagentd-context-history-clears-the-present-conversation ()
  (named-test--with ((row (named-test--agent root "web")))
      'context-clear '(:messages 2 :note "Nothing is deleted.")
    (pyagentd-test-answer 'view (named-test--contexts (plist-get row :branch)))
    (with-current-buffer (find-file-noselect (plist-get row :file))
      (pyagentd-test-attach-now)
      (goto-char (point-max))
      (insert "typed")
      (named-test--in (pyagentd-context--history)
        (goto-char (point-max))         ; there need be no row
        (cl-letf (((symbol-function 'y-or-n-p) #'always))
          (call-interactively (key-binding "C")))
        (should (pyagentd-test-sent-p "typed"))
        (pyagentd-test-await
         (equal (pyagentd-test-calls 'context-clear)
                `((:branch ,(plist-get row :branch)))))))))

(ert-deftest pyagentd-context-history-of-an-agent-that-is-gone ()
  (named-test--with () 'view (named-test--contexts nil)
    (with-temp-buffer
      (named-test--in (pyagentd-context--history "web")
        (should (equal (plist-get (car (pyagentd-test-calls 'view)) :arguments)
                       '(:agent "web")))
        (should-error (call-interactively (key-binding (kbd "RET")))
                      :type 'user-error)))))

;;;; Tasks

(defun named-test--task (branch &rest more)
  "Return a task of BRANCH, with MORE keys."
  (append more
          (list :id "task_001" :agent "web" :branch branch :command "npm run\nbuild"
                :status "running" :pid 4711 :exit-code nil
                :started-at "2026-03-04T10:00:00Z")))

(defun named-test--tasks (task)
  "Return the list of tasks with TASK as the daemon tells it."
  (pyagentd-test-view '("Id" "Status")
                      `(("web/task_001" (:branch "/b" :id "task_001")
                         (:kind "report" :name "task" :called "task_001 of web"
                                :arguments (:branch "/b" :id "task_001"))
                         "task_001" ,(plist-get task :status)))
                      nil :follows '("tasks")))

(defun named-test--output (text)
  "Have TEXT be what the task printed, as the daemon tells it."
  (pyagentd-test-answer
   'report `(:title "Output" :end t :follows ("tasks" "output")
                    :lines ((:parts ((:text "running" :face "good")))
                            (:parts ((:text ,text :face "output"))))
                    :actions ((:key "k" :label "end it" :operation "task-kill"
                                    :arguments (:branch "/b" :id "task_001")
                                    :question "End task_001 (npm run build)?")))))

(ert-deftest pyagentd-tasks-are-live ()
  "SPEC 003 Viewing Tasks: /tasks"
  (named-test--with ((pyagentd-live-pause 0))
      'view (named-test--tasks (named-test--task "/b"))
    (named-test--in (pyagentd-list-of-session "tasks" 'optional t)
      (pyagentd-test-answer
       'view (named-test--tasks (named-test--task "/b" :status "failed")))
      (pyagentd-test-push '(task "/b" 0 (:id "task_001" :agent "web"
                                         :status "failed")))
      (pyagentd-test-await (string-search "failed" (buffer-string))))))

(ert-deftest pyagentd-task-output-is-followed-at-its-end ()
  (named-test--with ((pyagentd-live-pause 0) (task (named-test--task "/b")))
      'view (named-test--tasks task)
    (named-test--output "one\ntwo")
    (named-test--in (pyagentd-list-of-session "tasks" 'optional t)
      (call-interactively (key-binding (kbd "RET")))
      (let* ((buffer (get-buffer "*pyagentd task_001 of web*"))
             (window (get-buffer-window buffer))
             (print (lambda (text)
                      (named-test--output text)
                      (pyagentd-test-push
                       `(task "/b" 0 (:id "task_001" :agent "web"
                                      :status "running" :output ,text)))))
             (shows (lambda (text)
                      (equal (concat "running\n" text "\n")
                             (with-current-buffer buffer (buffer-string))))))
        (pyagentd-test-await (funcall shows "one\ntwo"))
        (funcall print "one\ntwo\nthree")
        (pyagentd-test-await (funcall shows "one\ntwo\nthree"))
        (should (= (window-point window)
                   (with-current-buffer buffer (point-max))))
        (should (= 1 (length (pyagentd-test-calls 'view))))
        (set-window-point window 2)
        (funcall print "one\ntwo\nthree\n\e[31mfour\e[0m")
        (pyagentd-test-await (funcall shows "one\ntwo\nthree\nfour"))
        (with-current-buffer buffer
          (goto-char (- (point-max) 2))
          (should (get-char-property (point) 'font-lock-face)))
        (should (= 2 (window-point window)))))))

(ert-deftest pyagentd-task-is-ended-from-its-output-after-a-question ()
  (named-test--with ((task (named-test--task "/b")))
      'view (named-test--tasks task)
    (named-test--output "one")
    (pyagentd-test-answer 'task-kill (named-test--task "/b" :status "killed"))
    (named-test--in (pyagentd-list-of-session "tasks" 'optional t)
      (call-interactively (key-binding (kbd "RET")))
      (with-current-buffer "*pyagentd task_001 of web*"
        (pyagentd-test-await (> (buffer-size) 0))
        (cl-letf (((symbol-function 'y-or-n-p)
                   (lambda (prompt)
                     (should (equal prompt "End task_001 (npm run build)? ")))))
          (call-interactively (key-binding "k"))))
      (pyagentd-test-await
       (equal (pyagentd-test-calls 'task-kill)
              '((:branch "/b" :id "task_001")))))))

;;; named-test.el ends here

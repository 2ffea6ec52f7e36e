;;; answer-test.el --- Tests of answers -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-views)
(require 'pyagentd-form)
(require 'pyagentd-menu)

(defun answer-test--open (&rest more)
  "Open an ask with MORE keys and let the keys answer it."
  (pyagentd-test-events
   (list 'ask 2 (pyagentd-test-asked
                 (append more
                         '(:id "q2" :tool "Bash" :kind tool :detail "ls -l"
                           :choices (allow session always deny)
                           :remember ("tool:Bash:ls(?: .*)?")
                           :input "{\"command\":\"ls -l\",\"timeout\":5}")))))
  (pyagentd-ask-notice-select (pyagentd-ask-find "q2")))

(defun answer-test--sent ()
  "Wait until one ask was answered and return what was sent."
  (pyagentd-test-await (pyagentd-test-calls 'answer))
  (car (last (pyagentd-test-calls 'answer))))

(defmacro answer-test--confirming (answer &rest body)
  "Evaluate BODY; what has to be confirmed gets ANSWER, a character.
The variable `asked' is bound to the question, or nil."
  (declare (indent 1) (debug t))
  `(let (asked)
     (cl-letf (((symbol-function 'read-char-choice)
                (lambda (prompt &rest _) (setq asked prompt) ,answer)))
       ,@body)))

(ert-deftest pyagentd-answer-keys-on-the-question-answer ()
  (pcase-dolist (`(,key ,decision) '(("y" allow) ("n" deny) ("k" abort)
                                     ("s" session) ("p" always)))
    (pyagentd-test-with-ask
      (answer-test--open)
      (answer-test--confirming ?y
        (call-interactively (key-binding (kbd "C-c C-c")))
        (call-interactively (key-binding key))
        (should (eq (and asked t) (and (memq decision '(session always)) t))))
      (pyagentd-test-await (null (pyagentd-ask-find "q2")))
      (let ((sent (answer-test--sent)))
        (should (equal (plist-get sent :ask) "q2"))
        (should (eq (plist-get sent :decision) decision)))
      (should (equal (pyagentd-ask-id (pyagentd-ask-here)) "q1")))))

(ert-deftest pyagentd-answer-nothing-that-is-typed-into-the-text-answers ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (goto-char (point-max))
    (pyagentd-test-type "y SPC n SPC s SPC p SPC d SPC k")
    (should (string-suffix-p "y n s p d k" (buffer-string)))
    (should-not (pyagentd-test-calls 'answer))
    (should (pyagentd-ask-find "q2"))))

(ert-deftest pyagentd-answer-keys-are-those-of-the-text-after-another-buffer ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (let ((session (current-buffer)))
      (pyagentd-test-type "C-c C-c")
      (should (eq (key-binding "y") #'pyagentd-allow-once))
      (with-temp-buffer
        (pyagentd-test-type "a"))       ; in the same window
      (with-current-buffer session
        (pyagentd-test-type "y e s"))
      (should-not (pyagentd-test-calls 'answer))
      (should-not (memq #'pyagentd-ask-notice--look
                        (default-value 'post-command-hook)))
      (should (string-suffix-p "yes" (buffer-string))))))

(ert-deftest pyagentd-answer-no-other-host-is-asked-about-a-path ()
  (let (opened)
    (cl-letf (((symbol-function 'tramp-file-name-handler)
               (lambda (&rest args) (setq opened args) nil)))
      (should-not (pyagentd-ask-diff--before "/ssh:host.example:/tmp/x"))
      (kill-buffer (pyagentd-ask-diff--buffer
                    " *now*" "/ssh:host.example:/tmp/x.el" "text")))
    (should-not opened)))

(ert-deftest pyagentd-answer-keys-are-those-of-the-question-point-is-on ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (goto-char (point-min))
    (pyagentd-test-type "C-c C-c")
    (should (string-search "Press a key" (pyagentd-test-notice)))
    (should (eq (key-binding "y") #'pyagentd-allow-once))
    (pyagentd-test-type "h DEL")        ; no keys of the question
    (should (equal (buffer-string) "### Hi"))
    (pyagentd-test-type "q")
    (should (= (point) (point-min)))
    (pyagentd-test-type "C-c C-c C-b")  ; moving leaves it
    (should (eq (key-binding "y") #'self-insert-command))
    (pyagentd-test-type "C-c C-c . ,")  ; the keys go along
    (should (eq (key-binding "y") #'pyagentd-allow-once))
    (pyagentd-test-events '(answered 4 (:id "q2" :decision "deny")))
    (should (equal "q1" (pyagentd-ask-id (pyagentd-ask-here))))
    (should (eq (key-binding "y") #'self-insert-command))
    (should-not (pyagentd-test-calls 'answer))))

(ert-deftest pyagentd-answer-for-longer-has-to-be-confirmed ()
  (dolist (command '(pyagentd-allow-session pyagentd-allow-always))
    (pyagentd-test-with-ask
      (answer-test--open :allows '(:session "From now on, here: ls."
                                    :always "From now on, in /src: ls."))
      (answer-test--confirming ?n
        (call-interactively command)
        (should (string-prefix-p (if (eq command 'pyagentd-allow-session)
                                     "From now on, here: ls.\n"
                                   "From now on, in /src: ls.\n")
                                 asked)))
      (should (pyagentd-ask-find "q2"))
      (should-not (pyagentd-test-calls 'answer)))))

(ert-deftest pyagentd-answer-reads-a-reason-for-the-model ()
  (pyagentd-test-with-ask
    (pyagentd-test-type "C-c C-c r make SPC clean RET")
    (pyagentd-test-await (null (pyagentd-ask-open)))
    (should (equal (plist-get (answer-test--sent) :reason) "make clean"))))

(ert-deftest pyagentd-answer-in-any-order ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (answer-test--open :id "q3" :detail "third")
    (should (equal "q2" (pyagentd-ask-id (pyagentd-ask-here))))
    (pyagentd-ask--next)                 ; q3
    (pyagentd-ask--next)
    (should (equal "q1" (pyagentd-ask-id (pyagentd-ask-here))))
    (pyagentd-ask--previous)
    (pyagentd-test-type "C-c C-c y")
    (pyagentd-test-await (null (pyagentd-ask-find "q3")))
    (should (equal '("q1" "q2") (mapcar #'pyagentd-ask-id (pyagentd-ask-open))))))

(ert-deftest pyagentd-answer-twice-in-a-row-answers-once ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (pyagentd-test-tell 'fake-silent "" 'answer)
    (pyagentd-allow-once)
    (should (string-search "Answered" (pyagentd-test-notice)))
    (should-error (pyagentd-allow-once) :type 'user-error)))

(ert-deftest pyagentd-answer-comes-in-its-turn-among-older-news ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (let ((asks (pyagentd-ask-open)) (branch pyagentd--branch-dir) answered)
      (cl-letf (((symbol-function 'pyagentd-rpc-call-async)
                 (lambda (_method _args &rest more)
                   (setq answered (plist-get more :success)))))
        (pyagentd-allow-once))
      (ert-with-message-capture said
        ;; All of this comes at once: an older list of what is open, ...
        (pyagentd-events-enqueue (lambda () (pyagentd-ask-receive-all asks) nil))
        (pyagentd-events-enqueue
         (lambda () `((answered ,branch 4 (:id "q2" :decision "allow" :by "emacs")))))
        (funcall answered '(:accepted t)) ; ... and this one
        (pyagentd-events-drain)
        (should-not (pyagentd-ask-find "q2"))
        (should-not (string-search "Allow" said))))))

(ert-deftest pyagentd-answer-refused-leaves-the-ask-open ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (pyagentd-test-refuse 'answer "deny has it" "Ask for less")
    (pyagentd-allow-once)
    (pyagentd-test-await (not (pyagentd-ask-answered-p (pyagentd-ask-find "q2"))))
    (should (string-search "y once" (pyagentd-test-notice)))))

(ert-deftest pyagentd-answer-to-what-is-settled-removes-it ()
  (pyagentd-test-with-ask
    (pyagentd-test-tell 'fake-error "(not-found \"No question q1 is open\")" 'answer)
    (pyagentd-allow-once)
    (pyagentd-test-await (null (pyagentd-ask-open)))))

(ert-deftest pyagentd-answer-not-offered-is-not-sent ()
  (pyagentd-test-with-ask                 ; q1 offers only allow and deny
    (should-error (pyagentd-allow-session) :type 'user-error)
    (should-error (pyagentd-allow-always) :type 'user-error)
    (should-not (pyagentd-test-calls 'answer))))

(ert-deftest pyagentd-answer-more-scope-for-good ()
  (pyagentd-test-with-ask
    (answer-test--open :kind 'scope :patterns '("/a/**")
                       :allows '(:always "From now on it may: Read /a/**.")
                       :choices '(allow always deny) :remember nil)
    (answer-test--confirming ?n
      (pyagentd-allow-always)
      (should (string-search "Read /a/**" asked)))
    (should-not (pyagentd-test-calls 'answer))
    (answer-test--confirming ?y (pyagentd-allow-always))
    (should (eq 'always (plist-get (answer-test--sent) :decision)))))

;;;; Editing

(ert-deftest pyagentd-answer-edits-a-command-as-text ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (pyagentd-ask--edit)
    (with-current-buffer (window-buffer)
      (should (equal (buffer-string) "ls -l"))
      (should (derived-mode-p 'sh-mode))
      (should (string-search "C-c C-c" header-line-format))
      (insert "cd / && ")
      (call-interactively (key-binding (kbd "C-c C-c"))))
    (let ((sent (answer-test--sent)))
      (should (eq 'allow (plist-get sent :decision)))
      (should (equal '(("command" . "cd / && ls -l") ("timeout" . 5))
                     (let ((json-key-type 'string))
                       (json-read-from-string (plist-get sent :input))))))
    (pyagentd-test-await (not (get-buffer "*edit: Bash ls -l*")))))

(ert-deftest pyagentd-answer-edits-all-arguments-as-json ()
  (pyagentd-test-with-ask
    (answer-test--open :tool "Grep" :input "{\"pattern\":\"é\",\"globs\":[\"*.py\",\"*.el\"],\"deep\":{},\"all\":false,\"max\":null}")
    (pyagentd-ask--edit)
    (with-current-buffer (window-buffer)
      (should (equal (buffer-string)
                     (concat "{\n  \"pattern\": \"é\",\n  \"globs\": [\n    \"*.py\",\n"
                             "    \"*.el\"\n  ],\n  \"deep\": {},\n  \"all\": false,\n"
                             "  \"max\": null\n}\n")))
      (pyagentd-edit--finish))
    (should (string-search "\"é\"" (plist-get (answer-test--sent) :input)))))

(ert-deftest pyagentd-answer-cancelled-edit-answers-nothing ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (pyagentd-ask--edit)
    (with-current-buffer (window-buffer)
      (call-interactively (key-binding (kbd "C-c C-k"))))
    (should (pyagentd-ask-find "q2"))
    (should-not (pyagentd-test-calls 'answer))))

(ert-deftest pyagentd-answer-elsewhere-is-said-where-one-is-looked-at ()
  (pyagentd-test-with-ask
    (answer-test--open :preview "--- /x\n+++ /x\n@@ -1 +1 @@\n-a\n+b")
    (let ((session (current-buffer)) shown)
      (dolist (look '(pyagentd-ask--show pyagentd-ask--diff pyagentd-ask--edit))
        (with-current-buffer session
          (funcall look)))
      (setq shown (list "*pyagentd ask*" "*pyagentd diff*" "*edit: Bash ls -l*"))
      (dolist (name shown)
        (with-current-buffer name
          (should-not (string-search "(answered)" (or header-line-format "")))))
      (with-current-buffer session
        (pyagentd-test-events '(answered 4 (:id "q2" :decision "deny"))))
      (dolist (name shown)
        (with-current-buffer name
          (should (string-search "(answered)" header-line-format))
          (should-not (string-search "C-c C-c" header-line-format))))
      (with-current-buffer "*edit: Bash ls -l*"
        (should (equal '(user-error "Already answered")
                       (should-error (pyagentd-edit--finish))))
        (pyagentd-edit--cancel))
      (should-not (pyagentd-test-calls 'answer)))))

(ert-deftest pyagentd-answer-edited-twice-in-a-row-answers-once ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (pyagentd-ask--edit)
    (with-current-buffer "*edit: Bash ls -l*"
      (pyagentd-edit--finish)
      (should-error (pyagentd-edit--finish) :type 'user-error))
    (pyagentd-test-await (null (pyagentd-ask-find "q2")))
    (should (= 1 (length (pyagentd-test-calls 'answer))))))

(ert-deftest pyagentd-answer-refused-edit-stays ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (pyagentd-test-refuse 'answer "not even so")
    (pyagentd-ask--edit)
    (let ((buffer (window-buffer)))
      (with-current-buffer buffer (pyagentd-edit--finish))
      (pyagentd-test-await (not (pyagentd-ask-answered-p
                                 (pyagentd-ask-find "q2"))))
      (should (buffer-live-p buffer))
      (with-current-buffer buffer (pyagentd-edit--cancel)))))

;;;; Diffs

(ert-deftest pyagentd-answer-shows-a-diff-whole ()
  (pyagentd-test-with-ask
    (let ((diff (concat "--- /x\n+++ /x\n@@ -1,100 +1 @@\n"
                        (mapconcat (lambda (n) (format "-%d" n))
                                   (number-sequence 1 100) "\n"))))
      (answer-test--open :tool "Edit" :path "/x" :preview diff)
      (should (string-search "more lines" (pyagentd-test-notice)))
      (pyagentd-ask--diff)
      (with-current-buffer "*pyagentd diff*"
        (should (derived-mode-p 'diff-mode))
        (should (string-search "-100" (buffer-string)))
        (should (equal "q2" (pyagentd-ask-id (pyagentd-ask-here))))
        (call-interactively (key-binding "y")))
      (should (eq 'allow (plist-get (answer-test--sent) :decision))))))

(defun answer-test--letters ()
  "Return `pyagentd-ask-keys' as an alist of letters and commands."
  (mapcar (lambda (entry) (cons (string (car entry)) (nth 1 entry)))
          pyagentd-ask-keys))

(defun answer-test--menu (key)
  "Return the command of `pyagentd-menu' with KEY."
  (plist-get (nth 2 (transient-get-suffix 'pyagentd-menu key)) :command))

(ert-deftest pyagentd-answer-letters-are-the-same-wherever-asks-are-answered ()
  (dolist (pair (answer-test--letters))
    (pcase-let ((`(,letter . ,command) pair))
      (dolist (map (list pyagentd-ask-notice-map pyagentd-ask-diff-mode-map))
        (should (memq (lookup-key map letter) (list command nil))))
      (should (memq (cadr (assoc letter (cdr (assoc "asks"
                                                    pyagentd-list--defined))))
                    (list command 'pyagentd-asks--allow 'pyagentd-asks--deny)))
      (should (eq (if (equal letter "k") 'pyagentd-abort command)
                  (answer-test--menu letter)))))
  (with-temp-buffer
    (insert "--- /x\n+++ /x\n@@ -1 +1 @@\n-a\n+b\n")
    (pyagentd-ask-diff-mode)
    (dolist (pair (answer-test--letters))
      (unless (equal (car pair) "d")
        (should (eq (cdr pair) (key-binding (car pair))))))
    (should (eq 'diff-hunk-next (key-binding (kbd "M-n"))))
    (should (eq 'pyagentd-ask--here-quit (key-binding "q")))))

(ert-deftest pyagentd-answer-windows-of-one-ask-are-selected-and-left ()
  (dolist (look '((pyagentd-ask--diff . "*pyagentd diff*")
                  (pyagentd-ask--show . "*pyagentd ask*")))
    (pyagentd-test-with-ask
      (answer-test--open :tool "Edit" :path "/x"
                         :preview "--- /x\n+++ /x\n@@ -1 +1 @@\n-a\n+b\n")
      (save-window-excursion
        (switch-to-buffer (current-buffer))
        (delete-other-windows)
        (let ((chat (selected-window)))
          (funcall (car look))
          (should (equal (cdr look) (buffer-name (window-buffer))))
          (with-current-buffer (window-buffer)
            (call-interactively (key-binding "n")))
          (pyagentd-test-await (null (get-buffer-window (cdr look))))
          (should (eq chat (selected-window))))))))

(ert-deftest pyagentd-answer-windows-of-one-ask-go-back-to-the-question ()
  (dolist (look '("d" "o"))
    (pyagentd-test-with-ask
      (answer-test--open :tool "Edit" :path "/x"
                         :preview "--- /x\n+++ /x\n@@ -1 +1 @@\n-a\n+b\n")
      (save-window-excursion
        (switch-to-buffer (current-buffer))
        (delete-other-windows)
        (goto-char (point-max))
        (insert " a draft")
        (pyagentd-test-type (format "C-c C-c %s q n" look))
        (should (eq 'deny (plist-get (answer-test--sent) :decision)))
        (should (string-suffix-p " a draft" (buffer-string)))
        (pyagentd-test-await (null (pyagentd-ask-find "q2")))
        (should (eobp))))))

(ert-deftest pyagentd-answer-from-elsewhere-leaves-the-diff-and-says-so ()
  (pyagentd-test-with-ask
    (answer-test--open :tool "Edit" :path "/x"
                       :preview "--- /x\n+++ /x\n@@ -1 +1 @@\n-a\n+b\n")
    (save-window-excursion
      (switch-to-buffer (current-buffer))
      (delete-other-windows)
      (pyagentd-ask--diff)
      (pyagentd-test-events '(answered 3 (:id "q2" :decision "allow")))
      (should (get-buffer-window "*pyagentd diff*"))
      (with-current-buffer "*pyagentd diff*"
        (should (string-search "(answered)" header-line-format))))))

(ert-deftest pyagentd-answer-leaves-the-diff-of-a-changed-file-alone ()
  (pyagentd-test-with-ask
    (answer-test--open :tool "Edit" :path "/x"
                       :preview "--- /x\n+++ /x\n@@ -1 +1 @@\n-1\n+2")
    (save-window-excursion
      (pyagentd-ask--diff)
      (cl-letf (((symbol-function 'pyagentd-table-facts)
                 (lambda () '(:path "/y" :diff "-one\n+two"))))
        (call-interactively #'pyagentd-snapshots--diff))
      (pyagentd-answer-with (pyagentd-ask-find "q2") 'allow)
      (pyagentd-test-await (null (pyagentd-ask-find "q2")))
      (let ((shown (seq-some (lambda (window)
                               (with-current-buffer (window-buffer window)
                                 (and (string-search "+two" (buffer-string))
                                      (current-buffer))))
                             (window-list))))
        (should shown)
        (should-not (buffer-local-value 'header-line-format shown))
        (kill-buffer shown)))))

(ert-deftest pyagentd-answer-knows-the-text-after-a-change ()
  (pcase-dolist (`(,input ,before ,after)
                 '(("{\"content\":\"new\"}" "old" "new")
                   ("{\"content\":\"new\"}" nil "new")
                   ("{\"old_string\":\"a\",\"new_string\":\"b\"}" "aa" "ba")
                   ("{\"old_string\":\"a\",\"new_string\":\"b\",\"replace_all\":true}"
                    "aa" "bb")
                   ("{\"old_string\":\"x\",\"new_string\":\"b\"}" "aa" nil)))
    (should (equal after (pyagentd-ask-diff--after (list :input input) before)))))

;;;; All asks

(ert-deftest pyagentd-answer-goes-to-the-question-here-else-lists-all ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (switch-to-buffer (current-buffer))
    (pyagentd-test-type "C-c C-r y")
    (should (equal "q2" (plist-get (answer-test--sent) :ask)))
    (pyagentd-test-answer 'view (pyagentd-test-view '("Agent" "What") nil))
    (with-temp-buffer
      (save-window-excursion
        (call-interactively #'pyagentd-answer)
        (should (equal "*pyagentd asks*" (buffer-name)))
        (kill-buffer)))))

(ert-deftest pyagentd-answer-lists-what-the-daemon-asks ()
  (pyagentd-test-with-ask
    (let ((view (lambda (&rest rows)
                  (pyagentd-test-answer
                   'view (pyagentd-test-view '("Agent" "What") rows nil
                                             :empty "No pending approvals."
                                             :follows '("asks"))))))
      (funcall view (list "q7" '(:ask (:id "q7" :branch "/s/branches/main"
                                       :tool "Read" :detail "/etc/hosts"
                                       :choices ("allow" "deny")))
                          nil "planner (plan)" "Read /etc/hosts"))
      (pyagentd-asks)
      (pyagentd-test-await (pyagentd-ask-find "q7"))
      (with-current-buffer "*pyagentd asks*"
        (should (string-search "y once" (buffer-string)))
        (goto-char (point-min))
        (funcall view)
        (cl-letf (((symbol-function 'y-or-n-p) #'always))
          (call-interactively (key-binding "n")))
        (should (equal "q7" (plist-get (answer-test--sent) :ask)))
        (pyagentd-test-await (null (pyagentd-ask-find "q7")))
        (revert-buffer)
        (pyagentd-test-await (string-search "No pending approvals."
                                            (buffer-string))))
      (kill-buffer "*pyagentd asks*"))))

(ert-deftest pyagentd-answer-shows-all-of-one-ask ()
  (pyagentd-test-with-ask
    (answer-test--open)
    (pyagentd-test-answer 'report '(:title "Question"
                                    :lines ((:level 1 :parts ("Arguments")))))
    (pyagentd-ask--show)
    (with-current-buffer "*pyagentd ask*"
      (pyagentd-test-await (string-search "Arguments" (buffer-string)))
      (should (equal '((:name "ask" :arguments (:id "q2") :watch t))
                     (pyagentd-test-calls 'report)))
      (should (string-search "y once" (substring-no-properties header-line-format)))
      (should (equal "q2" (pyagentd-ask-id (pyagentd-ask-here)))))))

(ert-deftest pyagentd-answer-whole-run-can-be-stopped-while-something-is-asked ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer 'abort '(:aborted t))
    (pyagentd-test-type "C-u C-c C-k")
    (pyagentd-test-await (pyagentd-test-calls 'abort))
    (should-not (pyagentd-test-calls 'answer))))

;;; answer-test.el ends here

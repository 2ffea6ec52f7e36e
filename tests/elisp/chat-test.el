;;; chat-test.el --- Tests of conversations -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defmacro chat-test--with-session (text &rest body)
  "Evaluate BODY in a session with TEXT that is attached to a daemon."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-tell
      'fake-answer "(:seq 0 :revision 10 :preset \"coder\" :model \"claude-opus-5\" :status (:state \"idle\"))"
      'attach)
     (pyagentd-test-tell 'fake-answer "(:run \"r1\" :seq 1)" 'send)
     (let ((file (pyagentd-test-file root ,text)))
       (with-current-buffer (find-file-noselect file)
         (pyagentd-test-await (eq pyagentd-attach-state t))
         (goto-char (point-max))
         ,@body))))

(defun chat-test--push (&rest events)
  "Let the daemon send EVENTS, lists (KIND SEQ . ARGS), for this branch."
  (apply #'pyagentd-test-push
         (mapcar (pcase-lambda (`(,kind . ,rest))
                   `(,kind ,pyagentd--branch-dir . ,rest))
                 events)))

(ert-deftest pyagentd-chat-opening-attaches-by-itself ()
  (chat-test--with-session "### Hi"
    (let ((request (car (pyagentd-test-calls 'attach))))
      (should (equal (plist-get request :branch) pyagentd--branch-dir))
      (should (equal (plist-get request :sha256) (secure-hash 'sha256 "### Hi")))
      (should-not (plist-get request :seq)))
    (should (string-match-p "Ready" pyagentd-status--line))
    (should (string-match-p "coder  claude-opus-5" pyagentd-status--line))))

(ert-deftest pyagentd-chat-opening-starts-no-daemon ()
  (pyagentd-test-with-session "### Hi"
    (let ((pyagentd-command '("/nonexistent/pyagentd")))
      (pyagentd-connect--later (current-buffer))
      (should-not pyagentd-attach-state)
      (should (string-match-p "Not connected" pyagentd-status--line)))))

(ert-deftest pyagentd-chat-send-says-where-the-prompt-ends ()
  (chat-test--with-session "### Hi 👋"
    (insert " there")
    (let ((process-environment
           (append '("PYAGENTD_BACKEND=offline") process-environment)))
      (pyagentd-send))
    (let ((request (car (pyagentd-test-calls 'send)))
          (edit (car (pyagentd-test-calls 'edit-document))))
      (should (equal (plist-get edit :hunks) '((9 9 " there" nil))))
      (should (eql (plist-get request :end) (point-max)))
      (should (eql (plist-get request :revision) 10))
      (should (equal (plist-get request :after) (plist-get edit :id)))
      (should (equal (plist-get (plist-get request :env) :PYAGENTD_BACKEND)
                     "offline"))
      (should-not (plist-get request :text)))))

(ert-deftest pyagentd-chat-answer-arrives-and-is-nothing-to-save ()
  "SPEC 000 Prompt inserted to buffer before request."
  (chat-test--with-session "### Hi"
    (let ((pyagentd-autosave-idle-time 0.05) finished)
      (add-hook 'pyagentd-run-finished-functions
                (lambda (run) (setq finished run)) nil t)
      (pyagentd-send)
      (should (string-match-p "Waiting" pyagentd-status--line))
      (chat-test--push '(run 1 (:id "r1" :phase "started"))
                       '(insert 1 "\n\n" nil)
                       '(status 0 (:state "busy" :phase "TYPE"))
                       '(insert 2 "Hello" response))
      (pyagentd-test-await (string-match-p "Typing" pyagentd-status--line))
      (chat-test--push '(insert 3 " you" response)
                       '(insert 4 "\n\n### " nil)
                       '(run 4 (:id "r1" :phase "finished" :reason "done")))
      (pyagentd-test-await finished)
      (should (equal (buffer-string) "### Hi\n\nHello you\n\n### "))
      (should (eobp))
      (should (string-match-p "Ready" pyagentd-status--line))
      (should-not (buffer-modified-p)))))

(ert-deftest pyagentd-chat-send-from-the-middle-answers-there ()
  (chat-test--with-session "### One\n\n### Two"
    (goto-char 8)
    (pyagentd-send)
    (should (eql (plist-get (car (pyagentd-test-calls 'send)) :end) 8))
    (chat-test--push '(insert 1 "\n\nyes" response))
    (pyagentd-test-await (string-match-p "yes" (buffer-string)))
    (should (equal (buffer-string) "### One\n\nyes\n\n\n### Two"))
    (should (= (point) 8))
    (chat-test--push '(insert 2 "\n\n### " nil)
                     '(run 2 (:phase finished :reason done)))
    (pyagentd-test-await (equal (buffer-string) "### One\n\nyes\n\n### Two"))))

(ert-deftest pyagentd-chat-send-refused-shows-why ()
  (chat-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-error "(no-key \"No API key\" :hint \"see the manual\")"
                        'send)
    (pyagentd-send)
    (pyagentd-test-await (string-match-p "Error: No API key (see the manual)"
                                         pyagentd-status--line))
    (should (equal (buffer-string) "### Hi"))))

(ert-deftest pyagentd-chat-send-during-a-run-is-refused-here ()
  (chat-test--with-session "### Hi"
    (pyagentd-send)
    (should-error (pyagentd-send) :type 'user-error)))

(ert-deftest pyagentd-chat-attach-replays-what-is-missing ()
  (chat-test--with-session "### Hi\n\n### draft"
    (pyagentd-test-tell
     'fake-answer "(:seq 7 :marker 12 :revision 10 :edits ((nil ((7 7 \"\\n\\nYes\" ((3 6 response)))))) :status (:state busy))"
     'attach)
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)
    (pyagentd-test-await (string-search "Yes" (buffer-string)))
    (should (equal (buffer-string) "### Hi\n\nYes\n\n### draft"))
    (chat-test--push '(insert 6 "old" response) '(insert 7 "old" response)
                     '(insert 8 " new" response) '(insert 8 "!" response))
    (pyagentd-test-await (string-search "new!" (buffer-string)))
    (should (equal (buffer-string) "### Hi\n\nYes new!\n\n### draft"))))

(ert-deftest pyagentd-chat-events-before-the-answer-to-attach-are-in-it ()
  (chat-test--with-session "### Hi"
    (setq pyagentd-attach-state 'pending)
    (let ((events `((insert ,pyagentd--branch-dir 0 "Y" response)
                    (insert ,pyagentd--branch-dir 7 "es" response))))
      (pyagentd-events-enqueue (lambda () events)))
    (pyagentd-events-drain)
    (pyagentd-attach--answered
     '(:seq 7 :revision 10 :marker 10 :edits ((nil ((7 7 "Yes" ((1 4 response)))))))
     nil)
    (pyagentd-events-drain)
    (should (equal (buffer-string) "### HiYes"))))

(ert-deftest pyagentd-chat-only-the-latest-attach-counts ()
  (chat-test--with-session "### Hi"
    (pyagentd-test-tell
     'fake-answer "(:seq 7 :revision 10 :marker 10 :edits ((nil ((7 7 \"Yes\" nil)))))"
     'attach)
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)
    (setq pyagentd-attach-state nil)
    (pyagentd-test-attach-now)
    (pyagentd-rpc-call 'status)
    (should (equal (buffer-string) "### HiYes"))))

(ert-deftest pyagentd-chat-send-right-after-opening-attaches-once ()
  (chat-test--with-session "### Hi"
    (revert-buffer t t)
    (goto-char (point-max))
    (pyagentd-send)
    (pyagentd-test-await (= 1 (length (pyagentd-test-calls 'send))))
    (should (= 2 (length (pyagentd-test-calls 'attach))))
    (should (eq (plist-get pyagentd-status :state) 'sending))))

(ert-deftest pyagentd-chat-end-of-the-run-before-does-not-end-the-sending ()
  (chat-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-silent "" 'send)
    (pyagentd-send)
    (chat-test--push '(run 1 (:id "r1" :phase finished :reason end_turn))
                     '(status 0 (:state idle)) '(insert 2 "Yes" response))
    (pyagentd-test-await (string-search "Yes" (buffer-string)))
    (should (eq (plist-get pyagentd-status :state) 'sending))
    (chat-test--push '(status 0 (:state busy)) '(status 0 (:state idle)) '(insert 3 "!" response))
    (pyagentd-test-await (string-search "Yes!" (buffer-string)))
    (should (eq (plist-get pyagentd-status :state) 'idle))))

(ert-deftest pyagentd-chat-queued-prompt-of-an-idle-branch-shows-what-the-daemon-said ()
  (chat-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-answer "(:queued t)" 'send)
    (pyagentd-send)
    (chat-test--push '(status 0 (:state idle :queued 1)))
    (pyagentd-test-await (memq (plist-get pyagentd-status :state) '(idle busy)))
    (chat-test--push '(status 0 (:state idle :queued 1)))
    (pyagentd-test-await (eq (plist-get pyagentd-status :state) 'idle))))

(ert-deftest pyagentd-chat-resync-attaches-from-what-was-seen ()
  (chat-test--with-session "### Hi"
    (chat-test--push '(insert 3 "abc" response))
    (chat-test--push '(resync 3))
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'attach))))
    (should (eql (plist-get (cadr (pyagentd-test-calls 'attach)) :revision)
                 13))))

(ert-deftest pyagentd-chat-prompt-of-another-client-is-inserted ()
  (chat-test--with-session "### Hi\n\nYo\n\n### "
    (chat-test--push '(prompt 4 "From afar" (:position 17 :insert "From afar")) '(insert 5 "\n\n" nil)
                     '(insert 6 "Yes" response))
    (pyagentd-test-await (string-search "\n\nYes" (buffer-string)))
    (should (equal (buffer-string) "### Hi\n\nYo\n\n### From afar\n\nYes"))))

(ert-deftest pyagentd-chat-abort-stops-the-run ()
  (chat-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-answer "(:aborted t)" 'abort)
    (pyagentd-abort)
    (should (equal (pyagentd-test-calls 'abort)
                   `((:branch ,pyagentd--branch-dir))))))

(ert-deftest pyagentd-chat-kill-buffer-during-a-run-detaches-silently ()
  (chat-test--with-session "### Hi"
    (pyagentd-send)
    (let ((branch pyagentd--branch-dir))
      (chat-test--push '(insert 1 "\n\nhalf" response))
      (pyagentd-test-await (string-suffix-p "half" (buffer-string)))
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (&rest _) (ert-fail "Asked"))))
        (kill-buffer))
      (should (equal (pyagentd-test-calls 'detach) `((:branch ,branch))))
      (chat-test--push '(insert 2 "late" response))
      (pyagentd-rpc-call 'status))))

(ert-deftest pyagentd-chat-silent-daemon-is-shown-and-typing-goes-below ()
  (chat-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-silent "" 'send)
    (pyagentd-test-tell 'fake-silent "" 'status)
    (let ((pyagentd-silent--after 0.01))
      (pyagentd-send))
    (save-excursion (insert " there"))
    (pyagentd-test-await pyagentd-status-silent)
    (should (string-match-p "does not answer" (pyagentd-status--shown)))
    (should (equal (buffer-string) "### Hi\n\n\n###  there"))
    (chat-test--push '(insert 1 "\n\nYes" response) '(insert 2 "\n\n### " nil)
                     '(run 2 (:phase finished :reason done)))
    (pyagentd-test-await (string-match-p "Yes" (buffer-string)))
    (pyagentd-silent-over)
    (should-not (string-match-p "does not answer" (pyagentd-status--shown)))
    (should (equal (buffer-string) "### Hi\n\nYes\n\n###  there"))))

(ert-deftest pyagentd-chat-silent-daemon-changes-no-text ()
  (chat-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-silent "" 'send)
    (pyagentd-test-tell 'fake-silent "" 'status)
    (let ((pyagentd-silent--after 0.01))
      (pyagentd-send))
    (pyagentd-test-await pyagentd-status-silent)
    (should (equal (buffer-string) "### Hi"))))

(ert-deftest pyagentd-chat-disconnect-shows-and-comes-back ()
  (chat-test--with-session "### Hi"
    (pyagentd-rpc-disconnect)
    (pyagentd-test-await (string-match-p "Not connected" pyagentd-status--line))
    (pyagentd-connect--retry 0)
    (pyagentd-test-await (eq pyagentd-attach-state t))
    (should (string-match-p "Ready" pyagentd-status--line))))

(ert-deftest pyagentd-chat-status-in-words ()
  (pcase-dolist (`(,status ,text)
                 '((nil "Not connected") ((:state idle) "Ready")
                   ((:state busy) "Waiting...")
                   ((:state busy :phase "TYPE") "Typing...")
                   ((:state busy :phase "TOOL" :tools ("Bash")) "Calling tool (Bash)")
                   ((:state busy :phase "TOOL" :tools ("Bash" "Read")) "Calling tools (Bash, Read)")
                   ((:state retrying :attempt 2 :message "overloaded")
                    "Retrying (2 failed)…: overloaded")
                   ((:state error :message "No key") "Error: No key")))
    (should (equal (substring-no-properties (pyagentd-status--text status)) text))))

(ert-deftest pyagentd-chat-settings-go-into-the-block ()
  (chat-test--with-session "### Hi"
    (pyagentd-settings-receive
     '(:settings (:model "claude-opus-5" :backend "Claude" :tools ("Read")
                  :temperature 0.2)))
    (should (equal (pyagentd-block-text)
                   "<!-- Local Variables: -->
<!-- gptel-model: claude-opus-5 -->
<!-- gptel--backend-name: \"Claude\" -->
<!-- gptel--tool-names: (\"Read\") -->
<!-- gptel-temperature: 0.2 -->
<!-- End: -->\n"))))

(ert-deftest pyagentd-chat-new-session-opens-with-a-prompt ()
  "SPEC 001 Standalone session creation."
  (pyagentd-test-with-daemon
    (let* ((file (pyagentd-test-file root ""))
           (default-directory root))
      (pyagentd-test-tell 'fake-answer (format "(:file %S :session-dir \"x\")" file)
                          'create-session)
      (save-window-excursion
        (with-current-buffer (jf/gptel-persistent-session "API Integration" "coder")
          (should (equal (buffer-string) "### "))
          (should (eobp))
          (should-not (buffer-modified-p))))
      (let ((request (car (pyagentd-test-calls 'create-session))))
        (should (equal (plist-get request :name) "API Integration"))
        (should (equal (plist-get request :titled) t))
        (should (equal (plist-get request :preset) "coder"))
        (should (equal (plist-get request :root) root))))))

;;; chat-test.el ends here

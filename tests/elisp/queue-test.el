;;; queue-test.el --- Tests of messages that wait -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'pyagentd-views)

(defmacro queue-test--with-session (text &rest body)
  "Evaluate BODY in an attached session with TEXT, in which a run goes on."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-tell
      'fake-answer "(:seq 0 :revision 10 :status (:state \"busy\" :queued 0))"
      'attach)
     (pyagentd-test-tell
      'fake-answer "(:run nil :message \"m\" :queued t :seq 1)" 'send)
     (let ((file (pyagentd-test-file root ,text)))
       (with-current-buffer (find-file-noselect file)
         (pyagentd-test-await (eq pyagentd-attach-state t))
         (goto-char (point-max))
         ,@body))))

(defun queue-test--push (kind &rest args)
  "Let the daemon send an event of KIND with ARGS for this branch."
  (pyagentd-test-push `(,kind ,pyagentd--branch-dir 0 . ,args)))

(defun queue-test--send (text)
  "Type TEXT, send it, and return its id."
  (insert text)
  (pyagentd-send)
  (pyagentd-test-await
   (string-suffix-p "\n\n### " (buffer-string)))
  (caar pyagentd-queued--overlays))

(ert-deftest pyagentd-queue-text-stays-where-it-was-typed ()
  "Text that is queued stays, is marked, and the run goes on above it."
  (queue-test--with-session "### One\n\n"
    (pyagentd-insert-start (point-max))
    (pyagentd-insert "Hello" 'response)
    (let ((id (queue-test--send "Two")))
      (queue-test--push 'queue
                        `(:items ((:id ,id :text "Two" :queued-at 1000
                                       :origin "document"))))
      (pyagentd-test-await pyagentd-queued-items)
      (should (overlay-get (pyagentd-queued-overlay id) 'after-string))
      (pyagentd-insert ", you" 'response)
      (should (equal (buffer-string) "### One\n\nHello, you\n\n\n### Two\n\n### "))
      (pyagentd-insert "\n\n### " nil)
      (pyagentd-insert-join)
      (pyagentd-edit-forget)
      (queue-test--push 'fired
                        `(:id ,id :position ,(overlay-end (pyagentd-queued-overlay id))))
      (pyagentd-test-await (null (pyagentd-queued-overlay id)))
      (pyagentd-insert "\n\nAgain" 'response)
      (should (equal (buffer-string)
                     "### One\n\nHello, you\n\n### Two\n\nAgain")))))

(ert-deftest pyagentd-queue-text-changed-without-a-daemon-is-told-later ()
  (queue-test--with-session "### One\n\n"
    (pyagentd-insert-start (point-max))
    (let* ((id (queue-test--send "Two"))
           (items `(:items ((:id ,id :text "Two" :queued-at 1000
                                 :origin "document")))))
      (queue-test--push 'queue items)
      (pyagentd-test-await pyagentd-queued-items)
      (setq pyagentd-attach-state nil)
      (goto-char (overlay-end (pyagentd-queued-overlay id)))
      (forward-char -1)
      (insert "w")
      (pyagentd-test-await             ; the attempt to tell it is over
       (not (seq-some (lambda (timer)
                        (eq #'pyagentd-chat--tell-edits (timer--function timer)))
                      timer-list)))
      (should-not (pyagentd-test-calls 'queue-edit))
      (setq pyagentd-attach-state t)
      (run-hooks 'pyagentd-attached-hook)
      (pyagentd-test-await (pyagentd-test-calls 'queue-edit))
      (should (equal (plist-get (car (pyagentd-test-calls 'queue-edit)) :text)
                     "Twwo")))))

(ert-deftest pyagentd-queue-text-above-an-answer-is-marked-there ()
  (queue-test--with-session "### One\n\n"
    (pyagentd-insert-start (point-max))
    (pyagentd-insert "Hello\n\n" 'response)
    (pyagentd-insert "### " nil)
    (pyagentd-insert "\n\nTwo" 'response)
    (goto-char (point-min))
    (search-forward "### " nil nil 2)
    (insert "More")
    (pyagentd-send)
    (pyagentd-test-await (pyagentd-test-calls 'send))
    (let ((id (caar pyagentd-queued--overlays)))
      (queue-test--push 'queue
                        `(:items ((:id ,id :text "More" :queued-at 1000
                                       :origin "document"))))
      (pyagentd-test-await pyagentd-queued-items)
      (pyagentd-test-await (pyagentd-queued-overlay id))
      (let ((overlay (pyagentd-queued-overlay id)))
        (should (equal "More" (buffer-substring-no-properties
                               (overlay-start overlay) (overlay-end overlay))))
        (should (overlay-get overlay 'after-string))))))

(ert-deftest pyagentd-queue-what-waited-before-may-fire-while-more-is-sent ()
  "The answer to what waited goes on below it, not where the last run ended."
  (queue-test--with-session "### One\n\nHello\n\n### Two\n\n### "
    (pyagentd-insert-start 17)          ; behind "Hello"
    (pyagentd-queued-note "m2" 21 24)
    (pyagentd-status-set '(:state idle))
    (insert "Three")
    (pyagentd-send)
    (pyagentd-event--fired pyagentd--branch-dir 0
                             '((:id "m2" :position 24)))
    (pyagentd-test-await (string-suffix-p "Three\n\n### " (buffer-string)))
    (pyagentd-insert "\n\nAgain" 'response)
    (should (equal (buffer-string)
                   "### One\n\nHello\n\n### Two\n\nAgain\n\n### Three\n\n### "))))

(ert-deftest pyagentd-queue-what-a-run-could-not-be-told-is-a-draft ()
  "The text of a message to a run is not lost where the daemon refuses it."
  (queue-test--with-session "### One\n\n"
    (pyagentd-insert-start (point-max))
    (pyagentd-insert "Hello" 'response)
    (insert "\n\n### Hurry")
    (pyagentd-test-tell 'fake-error "(not-running \"No run\")" 'prompt)
    (call-interactively #'pyagentd-steer)
    (should (equal (buffer-string) "### One\n\nHello\n\n### "))
    (pyagentd-test-await
     (equal (buffer-string) "### One\n\nHello\n\n### Hurry"))))

(ert-deftest pyagentd-queue-an-empty-heading-is-no-message ()
  (queue-test--with-session "### One\n\n"
    (pyagentd-insert-start (point-max))
    (pyagentd-insert "Hello" 'response)
    (insert "\n\n### ")
    (let (asked)
      (cl-letf (((symbol-function 'read-string)
                 (lambda (&rest _) (setq asked t) "")))
        (should-error (call-interactively #'pyagentd-steer) :type 'user-error))
      (should asked)
      (should (equal (buffer-string) "### One\n\nHello\n\n### "))
      (should-not (pyagentd-test-calls 'prompt)))))

(ert-deftest pyagentd-queue-what-was-said-in-vain-can-be-yanked ()
  "What was said to a run is not lost where nothing can be written by then."
  (queue-test--with-session "### One\n\n"
    (pyagentd-insert-start (point-max))
    (pyagentd-insert "Hello" 'response)
    (insert "\n\n### Hurry")
    (pyagentd-test-tell 'fake-error "(lease-lost \"Taken over\")" 'prompt)
    (let (kill-ring said)
      (cl-letf (((symbol-function 'message)
                 (lambda (format &rest args)
                   (push (apply #'format (or format "") args) said))))
        (call-interactively #'pyagentd-steer)
        (setq buffer-read-only t)
        (pyagentd-test-await
         (member "Taken over; the text is in the kill ring, C-y inserts it"
                 said)))
      (should (equal (current-kill 0) "Hurry"))
      (should (equal (buffer-string) "### One\n\nHello\n\n### ")))))

(ert-deftest pyagentd-queue-what-does-not-wait-any-more-is-a-draft ()
  "A message that is taken back is text like any other."
  (queue-test--with-session "### One\n\n"
    (let ((id (queue-test--send "Two")))
      (queue-test--push 'queue
                        `(:items ((:id ,id :text "Two" :queued-at 1000
                                       :origin "document"))))
      (pyagentd-test-await pyagentd-queued-items)
      (queue-test--push 'queue '(:items nil))
      (pyagentd-test-await (null pyagentd-queued-items))
      (should-not (pyagentd-queued-overlay id))
      (should (string-search "Two" (buffer-string))))))

(ert-deftest pyagentd-queue-a-message-of-another-client-goes-behind-the-run ()
  "What another client had queued goes behind the last answer, above drafts."
  (queue-test--with-session "### One\n\n"
    (pyagentd-insert-start (point-max))
    (pyagentd-insert "Hello" 'response)
    (pyagentd-insert "\n\n### " nil)
    (save-excursion (goto-char (point-max)) (insert "A draft"))
    (queue-test--push 'prompt "Two" (list :position (pyagentd-insert-position)
                                          :insert "Two"))
    (pyagentd-test-await (string-search "Two" (buffer-string)))
    (should (equal (buffer-string)
                   "### One\n\nHello\n\n### Two\n\n\n### A draft"))
    (pyagentd-insert "\n\nAgain" 'response)
    (pyagentd-insert "\n\n### " nil)
    (pyagentd-insert-join)
    (should (string-suffix-p "Again\n\n### A draft" (buffer-string)))))

(ert-deftest pyagentd-queue-counts-down ()
  "The header line says which attempt failed, and when the next one is."
  (let ((status `(:state retrying :attempt 2 :max-attempts 5 :message "Overloaded"
                         :retry-at ,(round (* 1000 (+ 3.5 (float-time)))))))
    (should (string-match-p "(2 of 5 failed) in [34] s: Overloaded"
                            (pyagentd-status--text status)))))

(ert-deftest pyagentd-queue-a-message-stands-on-its-own-line ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :status '(:state busy))
    (pyagentd-insert-start (point-max))
    (pyagentd-test-stream "\n\nAn answer")
    (goto-char (point-max))
    (insert "Next")
    (let ((end (point-max)))
      (pyagentd-queued-note "m1" (- end 4) end)
      (pyagentd-test-events '(queue 2 (:items ((:id "m1" :text "Next"
                                                :origin "document")))))
      (pyagentd-test-stream " so far.")
      (should (string-suffix-p "so far.\n\n\n### Next" (buffer-string)))
      (pyagentd-test-events '(insert 3 "\n\n### " nil)
                            '(run 3 (:phase finished :reason done)))
      (should (string-suffix-p "so far.\n\n### Next" (buffer-string))))))

(ert-deftest pyagentd-queue-is-paused-when-the-run-is-stopped ()
  (pyagentd-test-with-daemon
    (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
      (pyagentd-test-answer 'attach '(:seq 0 :revision 10))
      (pyagentd-test-answer 'queue-pause nil)
      (pyagentd-test-answer 'abort '(:aborted t))
      (pyagentd-test-attach-now)
      (pyagentd-abort)
      (pyagentd-test-await (pyagentd-test-calls 'abort))
      (should-not (pyagentd-test-calls 'queue-pause)) ; nothing waits
      (pyagentd-test-events '(queue 2 (:items ((:id "m1" :text "x")))))
      (pyagentd-abort)
      (pyagentd-test-await (nthcdr 1 (pyagentd-test-calls 'abort)))
      (should (pyagentd-test-calls 'queue-pause))
      (pyagentd-status-set '(:state idle :queued 1 :paused t))
      (should (string-search "1 queued, paused" pyagentd-status--line)))))

(provide 'queue-test)
;;; queue-test.el ends here

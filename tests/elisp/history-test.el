;;; history-test.el --- Tests of turns taken back and asked again -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-history)

(defmacro history-test-with-session (&rest body)
  "Evaluate BODY in the buffer of a session with two prompts, with a daemon.
The variable `branch' is bound to its directory."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let* ((file (pyagentd-test-file root "### One?\n\nYes.\n\n### Two?\n\nNo.\n\n### "))
            (branch (directory-file-name (file-name-directory file))))
       (pyagentd-test-answer 'attach '(:seq 0))
       (pyagentd-test-answer
        'branch-points '(:points ((:number 1 :message-id "m1" :start 1 :end 9)
                                  (:number 2 :message-id "m3" :start 17 :end 25)
                                  (:number 3 :start 31 :end 35))))
       (pyagentd-test-answer
        'history '(:prompts ((:message-id "m1" :text "One?")
                             (:message-id "m3" :text "Two?"))))
       (pyagentd-test-answer 'rewind '(:hidden ("m2" "m3" "m4") :turns 2))
       (with-current-buffer (find-file-noselect file)
         ,@body))))

(ert-deftest pyagentd-rewind-goes-to-the-prompt-at-point ()
  (history-test-with-session
    (goto-char 3)
    (should (string-prefix-p "2 turns rewound; "
                             (pyagentd-test-said
                               (pyagentd-test-type "M-x pyagentd-rewind RET"))))
    (should (equal (pyagentd-test-calls 'rewind)
                   `((:branch ,branch :message "m1" :files nil))))))

(ert-deftest pyagentd-rewind-elsewhere-asks-and-can-be-quit ()
  (history-test-with-session
    (goto-char (point-max))
    (let (seen)
      (pyagentd-test-with-options seen
        (pyagentd-test-type "C-u C-u M-x pyagentd-rewind RET 1 TAB RET"))
      (should (equal (mapcar #'car seen) '("2  Two?" "1  One?"))))
    (cl-letf (((symbol-function 'completing-read)
               (lambda (&rest _) (signal 'quit nil))))
      (should (equal "Quit" (pyagentd-test-said (pyagentd-rewind)))))
    (should (equal (pyagentd-test-calls 'rewind)
                   `((:branch ,branch :message "m1" :files t))))))

;; The positions in the answer are those of the text that the daemon has.
(ert-deftest pyagentd-edit-prompt-is-the-same-where-something-is-typed-meanwhile ()
  (history-test-with-session
    (pyagentd-test-answer 'prompt-text "Two?")
    (pyagentd-test-tell 'fake-silent "" 'branch-points)
    (pyagentd-test-attach-now)
    (goto-char 20)
    (pyagentd-edit-prompt)
    (let ((uid (caar pyagentd-rpc--pending)))
      (save-excursion (goto-char 10) (insert "Well, "))
      (pyagentd-test-tell
       'fake-raw (format "(return %d (:points ((:message-id \"m3\" :start 17 :end 25))))"
                         uid)))
    (pyagentd-test-await (get-buffer (format "*edit: prompt of %s*"
                                             pyagentd--session-id)))
    (should-not (pyagentd-test-calls 'edit))
    (with-current-buffer (format "*edit: prompt of %s*" pyagentd--session-id)
      (should (equal (buffer-string) "Two?"))
      (kill-buffer))))

(ert-deftest pyagentd-edit-prompt-stays-open-when-it-is-refused ()
  (history-test-with-session
    (pyagentd-test-answer 'prompt-text "One?")
    (pyagentd-test-refuse 'edit "A run is in flight")
    (goto-char 3)
    (pyagentd-test-type "M-x pyagentd-edit-prompt RET")
    (with-current-buffer (window-buffer)
      (should (equal (buffer-string) "One?"))
      (insert "Or ")
      (should (equal (pyagentd-test-said (pyagentd-edit--finish))
                     "A run is in flight"))
      (should pyagentd-edit-mode)
      (pyagentd-test-answer 'edit nil)
      (let ((edited (current-buffer)))
        (pyagentd-test-type "C-c C-c")
        (should-not (get-buffer-window edited))))
    (should (equal (mapcar (lambda (call) (plist-get call :text))
                           (pyagentd-test-calls 'edit))
                   '("Or One?" "Or One?")))))

(ert-deftest pyagentd-edit-prompt-keeps-what-was-typed-while-it-was-sent ()
  (history-test-with-session
    (pyagentd-test-answer 'prompt-text "One?")
    (pyagentd-test-answer 'edit nil)
    (goto-char 3)
    (pyagentd-test-type "M-x pyagentd-edit-prompt RET")
    (let ((buffer (window-buffer)))
      (with-current-buffer buffer
        (should (string-prefix-p "Done; what you typed after that"
                                 (pyagentd-test-said
                                   (pyagentd-edit--finish)
                                   (insert "And two? ")))))
      (should (buffer-live-p buffer))
      (with-current-buffer buffer
        (should (equal (buffer-string) "And two? One?"))
        (cl-letf (((symbol-function 'y-or-n-p) #'always))
          (pyagentd-edit--cancel))))))

(ert-deftest pyagentd-edit-prompt-again-shows-what-was-begun ()
  (history-test-with-session
    (let ((edit (lambda (position text)
                  (pyagentd-test-answer 'prompt-text text)
                  (with-current-buffer (find-file-noselect file)
                    (goto-char position)
                    (pyagentd-test-type "M-x pyagentd-edit-prompt RET"))
                  (window-buffer))))
      (let* ((one (funcall edit 3 "One?"))
             (two (progn
                    (with-current-buffer one (insert "Or "))
                    (should (eq one (funcall edit 3 "One?")))
                    (funcall edit 19 "Two?"))))
        (unwind-protect
            (should (equal '("Or One?" "Two?")
                           (mapcar (lambda (buffer)
                                     (with-current-buffer buffer
                                       (buffer-string)))
                                   (list one two))))
          (mapc #'kill-buffer (list one two)))))))

(ert-deftest pyagentd-edit-prompt-in-place-stays-when-it-is-refused ()
  (history-test-with-session
    (pyagentd-test-answer 'prompt-text "Uno?")
    (pyagentd-test-refuse 'edit "A run is in flight")
    (goto-char 3)
    (let ((text (buffer-string)))
      (should (equal (pyagentd-test-said (pyagentd-edit-prompt))
                     "A run is in flight"))
      (should (equal (plist-get (car (pyagentd-test-calls 'edit)) :text)
                     "One?"))
      (should (equal (buffer-string) text)))))

(ert-deftest pyagentd-history-variant-is-that-at-or-before-point ()
  (history-test-with-session
    (pyagentd-test-answer
     'history '(:revision 0 :variants ((26 29 "m4" 1 2) (10 14 "m2" 3 3))))
    (pyagentd-test-answer 'choose-variant nil)
    (pcase-dolist (`(,position ,command ,message ,n)
                   '((40 pyagentd-history--next-variant "m4" 2)
                     (17 pyagentd-history--next-variant "m2" 1)
                     (17 pyagentd-history--previous-variant "m2" 2)
                     (1 pyagentd-history--next-variant "m4" 2)))
      (goto-char position)
      (should (string-prefix-p "Variant " (pyagentd-test-said
                                            (funcall command))))
      (should (equal (car (last (pyagentd-test-calls 'choose-variant)))
                     (list :branch branch :message message :n n))))))

(ert-deftest pyagentd-fork-that-comes-too-late-is-told ()
  (history-test-with-session
    (pyagentd-test-tell 'fake-silent "" 'fork)
    (let ((pyagentd-later-patience 0.1) said)
      (cl-letf (((symbol-function 'message)
                 (lambda (format &rest args)
                   (push (apply #'format (or format "") args) said))))
        (goto-char 3)
        (pyagentd-fork)
        (pyagentd-test-await
         (seq-some (apply-partially #'string-prefix-p
                                   "The daemon did not answer in time;")
                  said))
        (pyagentd-test-tell
         'fake-raw (format "(return %d (:session-id \"talk-copy\"))"
                           (caar pyagentd-rpc--pending)))
        (pyagentd-test-await
         (seq-some (lambda (text) (string-prefix-p "talk-copy was created" text))
                   said))))
    (should (equal buffer-file-name file))))

;;; history-test.el ends here

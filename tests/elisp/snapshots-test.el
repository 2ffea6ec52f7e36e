;;; snapshots-test.el --- Tests of the list of changed files -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-views)

(defmacro snapshots-test-with-list (&rest body)
  "Evaluate BODY in the list of two files that agents have changed."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let ((pyagentd-here-function
            (lambda () (list :branch "/s/b" :session-id "s"))))
       (pyagentd-test-answer
        'view (pyagentd-test-view
               '("What" "File")
               '(("/p/a" (:path "/p/a" :change "restore" :diff "-two\n+one") nil
                  "changed" "/p/a")
                 ("/p/b" (:path "/p/b" :change "unkept" :reason "Too large") nil
                  "not kept" "/p/b"))))
       (save-window-excursion (pyagentd-changes)
                              (pyagentd-test-settle))
       (with-current-buffer "*pyagentd changes*"
         (goto-char (point-min))
         (unwind-protect (progn ,@body)
           (kill-buffer "*pyagentd changes*"))))))

(ert-deftest pyagentd-snapshots-restore-and-undo ()
  (snapshots-test-with-list
    (pyagentd-test-answer 'restore '(:id "r1" :restored ("/p/a")
                                    :note "1 restored"))
    (pyagentd-test-answer 'undo-restore '(:id "" :restored ("/p/a")
                                         :note "1 restored"))
    (should-error (pyagentd-snapshots--undo) :type 'user-error)
    (should (equal "1 restored"
                   (pyagentd-test-said
                     (cl-letf (((symbol-function 'y-or-n-p) #'always))
                       (pyagentd-test-type "r")))))
    (pyagentd-test-type "u")
    (should (equal (pyagentd-test-calls 'restore)
                   '((:branch "/s/b" :paths ("/p/a") :conflicts "keep"))))
    (should (equal (pyagentd-test-calls 'undo-restore)
                   '((:branch "/s/b" :id "r1"))))))

(ert-deftest pyagentd-snapshots-since-a-prompt ()
  (snapshots-test-with-list
    (pyagentd-test-answer 'history '(:prompts ((:message-id "m1" :text "One?")
                                               (:message-id "m3" :text "Two?"))))
    (pyagentd-test-type "s 1 TAB RET")
    (pyagentd-test-type "s RET")
    (should (equal (mapcar (lambda (call) (plist-get call :arguments))
                           (pyagentd-test-calls 'view))
                   '((:branch "/s/b") (:branch "/s/b" :message "m1")
                     (:branch "/s/b" :message nil))))))

(ert-deftest pyagentd-snapshots-say-why-they-cannot-be-had ()
  (snapshots-test-with-list
    (pyagentd-test-refuse 'view "The disk is gone")
    (should (equal "The disk is gone" (pyagentd-test-said (revert-buffer))))
    (should (equal " failed" mode-line-process))
    (should (pyagentd-table-row))))

;;; snapshots-test.el ends here

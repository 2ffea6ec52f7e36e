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
               '(("/p/a" (:paths ("/p/a") :restorable t :diff "-two\n+one") nil
                  "changed" "/p/a")
                 ("/p/b" (:paths ("/p/b") :reason "Too large") nil
                  "not kept" "/p/b"))
               '((:key "r" :label "restore" :operation "restore"
                  :takes ("paths") :arguments (:branch "/s/b")
                  :question "Restore %s?" :needs "restorable"))))
       (save-window-excursion (pyagentd-changes)
                              (pyagentd-test-settle))
       (with-current-buffer "*pyagentd changes*"
         (goto-char (point-min))
         (unwind-protect (progn ,@body)
           (kill-buffer "*pyagentd changes*"))))))

(ert-deftest pyagentd-snapshots-restore-leaves-what-is-not-saved ()
  (snapshots-test-with-list
    (pyagentd-test-answer 'restore '(:id "r1" :restored ("/p/a")
                                    :note "1 restored"))
    (cl-letf (((symbol-function 'y-or-n-p) #'always))
      (with-temp-buffer
        (insert "typed")
        (setq buffer-file-name "/p/a")
        (with-current-buffer "*pyagentd changes*"
          (should-error (pyagentd-test-type "r") :type 'user-error))
        (set-buffer-modified-p nil)
        (setq buffer-file-name nil))
      (should (equal "1 restored: /p/a"
                     (pyagentd-test-said (pyagentd-test-type "r")))))
    (should-error (pyagentd-test-type "n r") :type 'user-error)
    (should (equal (pyagentd-test-calls 'restore)
                   '((:paths ("/p/a") :branch "/s/b"))))))

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

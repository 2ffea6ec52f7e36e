;;; sessions-test.el --- Tests of the list of sessions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;; Which sessions there are, in which order and words, is tested with the daemon (tests/api/test_views.py).

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-sessions)
(require 'pyagentd-views)

(defconst sessions-test--agent
  "tea-20260101000000/branches/main/agents/explorer-20260101000001-look"
  "Path of an agent.")

(defun sessions-test--view (root &rest more)
  "Return the list of three sessions under ROOT as the daemon tells it, with MORE."
  (let ((view (apply #'pyagentd-test-view '("Title" "Age" "State") nil
                     '((:key "k" :label "stop" :operation "abort" :takes ("branch")
                        :several t :question "Stop %s?" :noun "run" :asks "several"
                        :done "Stopped %s")
                       (:key "a" :label "archive" :operation "archive"
                        :takes ("branch" "undo") :several t :question "Archive %s?"
                        :noun "session" :asks "several" :done "Archived: %s")
                       (:key "A" :label "archived" :arguments (:archived t)))
                     :filters t :follows '("sessions") more)))
    (plist-put
     view :rows
     (mapcar
      (pcase-lambda (`(,path ,level ,what ,name ,age ,title))
        (let ((row (pyagentd-test-row root path)))
          (list :id (plist-get row :branch) :label name :level level
                :facts (list :branch (plist-get row :branch) :what what :undo nil)
                :visit (list :kind "session" :branch (plist-get row :branch) :title title)
                :cells (list (list :text name) (list :text (format "%dd" age) :sort age)
                             (list :text "idle" :sort 9)))))
      `(("bag-20260101000000/branches/main" 0 "session" "bag" 1 nil)
        ("tea-20260101000000/branches/20260102000000-x" 0 "session" "Making tea" 2
         "Making tea")
        ("tea-20260101000000/branches/main" 1 "branch" "└ main" 9 "Making tea")
        (,sessions-test--agent 2 "agent" "  └ Looks around" 8 nil)
        (,(concat sessions-test--agent "/agents/x-20260101000002-deep") 3 "agent"
         "    └ deep" 7 nil)
        ("cup-20260101000000/branches/main" 0 "session" "A cup" 3 "A cup"))))))

(defmacro sessions-test-with-list (&rest body)
  "Evaluate BODY in the list of the sessions of `sessions-test--view'."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let ((pyagentd-live-pause 0))
       (pyagentd-test-answer 'view (sessions-test--view root))
       (unwind-protect
           (progn (pyagentd-sessions)
                  (pyagentd-test-await pyagentd-list--view)
                  (goto-char (point-min))
                  ,@body)
         (kill-buffer "*pyagentd sessions*")))))

(defun sessions-test--names ()
  "Return the first column of each line without its stem."
  (mapcar (lambda (line) (string-trim (substring line 1 13) "[ └]+" " +[0-9]*"))
          (seq-take-while (lambda (line) (string-match-p "idle" line))
                          (pyagentd-test-lines))))

(defun sessions-test--goto (text)
  "Move to the line with TEXT."
  (goto-char (point-min))
  (search-forward text)
  (beginning-of-line))

(defun sessions-test--branch (path)
  "Return the name on the wire of the branch at PATH below the sessions."
  (expand-file-name path pyagentd-sessions-directory))

(ert-deftest pyagentd-sessions-sorting-keeps-trees-together ()
  (sessions-test-with-list
    (let ((tree '("Making tea" "main" "Looks ar" "deep")))
      (should (equal (sessions-test--names) `("bag" ,@tree "A cup")))
      (tabulated-list-sort 0)
      (should (equal (sessions-test--names) `("A cup" "bag" ,@tree)))
      (tabulated-list-sort 0)
      (should (equal (sessions-test--names) `(,@tree "bag" "A cup")))
      (tabulated-list-sort 1)
      (should (equal (sessions-test--names) `("bag" ,@tree "A cup")))
      (tabulated-list-sort 1)
      (should (equal (sessions-test--names) `("A cup" ,@tree "bag"))))))

(ert-deftest pyagentd-sessions-are-filtered-by-the-daemon ()
  (sessions-test-with-list
    (pyagentd-test-type "/ LOOKS SPC explorer RET")
    (pyagentd-test-await (cdr (pyagentd-test-calls 'view)))
    (should (equal (cadr (pyagentd-test-calls 'view))
                   '(:name "sessions" :arguments (:words "LOOKS explorer") :watch t)))
    (pyagentd-test-settle)
    (should (string-prefix-p " /LOOKS explorer" mode-line-process))
    (should (= 6 (length (sessions-test--names))))
    (pyagentd-test-type "/ C-a C-k RET")
    (pyagentd-test-await (nthcdr 2 (pyagentd-test-calls 'view)))
    (should (equal (plist-get (nth 2 (pyagentd-test-calls 'view)) :arguments)
                   '(:words "")))))

(ert-deftest pyagentd-sessions-folds-what-is-below ()
  (sessions-test-with-list
    (sessions-test--goto "Making tea")
    (pyagentd-test-type "TAB")
    (should (equal (sessions-test--names) '("bag" "Making tea" "A cup")))
    (should (looking-at " Making tea  \\+3"))
    (revert-buffer)
    (pyagentd-test-settle)
    (should (equal (sessions-test--names) '("bag" "Making tea" "A cup")))
    (pyagentd-test-type "TAB")
    (should (= 6 (length (sessions-test--names))))
    (sessions-test--goto "Looks")
    (pyagentd-test-type "TAB")
    (should (= 5 (length (sessions-test--names))))))

(ert-deftest pyagentd-sessions-visits-sessions-and-agents ()
  (sessions-test-with-list
    (sessions-test--goto "Looks around")
    (pyagentd-test-type "RET")
    (should (equal pyagentd--session-id "explorer-20260101000001-look"))
    (with-current-buffer "*pyagentd sessions*"
      (sessions-test--goto "A cup")
      (pyagentd-test-type "o"))
    (with-current-buffer (window-buffer)
      (should (equal pyagentd--session-id "cup-20260101000000")))))

(ert-deftest pyagentd-sessions-opens-a-session-at-its-prompt-and-leaves-point-later ()
  (sessions-test-with-list
    (sessions-test--goto "A cup")
    (let ((file (plist-get (pyagentd-here) :file)))
      (with-temp-file file (insert "### Hi\n\nHello.\n\n### "))
      (pyagentd-test-type "RET")
      (should (equal buffer-file-name (file-truename file)))
      (should (and (eobp) (looking-back "^### " (line-beginning-position))))
      (goto-char 3)
      (with-current-buffer "*pyagentd sessions*"
        (sessions-test--goto "A cup")
        (pyagentd-test-type "RET"))
      (should (= (point) 3))
      (goto-char (point-min))           ; as `find-file' leaves it
      (with-current-buffer "*pyagentd sessions*"
        (sessions-test--goto "A cup")
        (pyagentd-test-type "RET"))
      (should (eobp)))))

(ert-deftest pyagentd-sessions-asks-for-archived-ones-only-on-request ()
  (sessions-test-with-list
    (call-interactively (key-binding "A"))
    (pyagentd-test-await (cdr (pyagentd-test-calls 'view)))
    (should (equal (mapcar (lambda (call) (plist-get call :arguments))
                           (pyagentd-test-calls 'view))
                   '(nil (:archived t))))))

(ert-deftest pyagentd-sessions-says-that-it-failed-and-keeps-what-it-has ()
  (sessions-test-with-list
    (pyagentd-test-refuse 'view "The disk is gone")
    (pyagentd-test-type "g")
    (pyagentd-test-await (equal mode-line-process " failed"))
    (should (= 6 (length (sessions-test--names))))))

(ert-deftest pyagentd-sessions-stays-at-its-line-when-fetched-again ()
  (sessions-test-with-list
    (sessions-test--goto "A cup")
    (let ((view (sessions-test--view root)))
      (pyagentd-test-answer
       'view (plist-put view :rows (reverse (plist-get view :rows)))))
    (pyagentd-test-type "g")
    (pyagentd-test-await (equal (car (sessions-test--names)) "A cup"))
    (should (looking-at " A cup"))))

(ert-deftest pyagentd-sessions-follows-what-happens-and-keeps-marks-and-folds ()
  (sessions-test-with-list
    (sessions-test--goto "Making tea")
    (pyagentd-test-type "TAB m")
    (sessions-test--goto "A cup")
    (let ((view (sessions-test--view root)))
      (pyagentd-test-answer 'view (plist-put view :rows
                                             (butlast (plist-get view :rows)))))
    (pyagentd-list-changed "sessions")
    (pyagentd-test-await (equal (sessions-test--names) '("bag" "Making tea")))
    (should (string-prefix-p "*Making tea  +3" (nth 1 (pyagentd-test-lines))))))

(ert-deftest pyagentd-sessions-that-is-the-last-one-killed-has-nobody-told ()
  (sessions-test-with-list
    (pyagentd-test-answer 'unwatch nil)
    (dolist (buffer (buffer-list))      ; lists of other tests
      (when (and (buffer-local-value 'pyagentd-table--fetch buffer)
                 (not (equal (buffer-name buffer) "*pyagentd sessions*")))
        (kill-buffer buffer)))
    (pyagentd-list-show "running")
    (pyagentd-test-await (cdr (pyagentd-test-calls 'view)))
    (kill-buffer "*pyagentd sessions*")
    (pyagentd-test-push '(sessions "" 0))
    (pyagentd-test-settle)
    (should-not (pyagentd-test-calls 'unwatch))
    (kill-buffer "*pyagentd running*")
    (pyagentd-test-push '(sessions "" 0))
    (pyagentd-test-await (pyagentd-test-calls 'unwatch))
    (let ((views (length (pyagentd-test-calls 'view))))
      (pyagentd-sessions)
      (pyagentd-test-await (> (length (pyagentd-test-calls 'view)) views)))))

(ert-deftest pyagentd-sessions-says-that-no-daemon-tells-and-fetches-from-the-next ()
  (sessions-test-with-list
    (run-hooks 'pyagentd-rpc-disconnected-hook)
    (should (equal mode-line-process " no daemon"))
    (should (= 6 (length (sessions-test--names))))
    (should (pyagentd-live--wanted-p))
    (run-hooks 'pyagentd-rpc-connected-hook)
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'view))))
    (pyagentd-test-await (null mode-line-process))))

(ert-deftest pyagentd-sessions-the-title-is-as-wide-as-the-window-allows ()
  (sessions-test-with-list
    (pcase-dolist (`(,width . ,wanted) '((34 . 24) (40 . 30) (70 . 36) (160 . 64)))
      (cl-letf (((symbol-function 'window-width) (lambda (&rest _) width)))
        (should (= wanted
                   (nth 1 (aref (pyagentd-list--format
                                 '(:columns ((:title "Title" :width 24 :most 64)
                                             (:title "Age" :width 5)
                                             (:title "Id" :width 0))))
                                0))))))))

(ert-deftest pyagentd-sessions-the-last-column-is-left-out-without-room ()
  (let ((view '(:columns ((:title "Title" :width 24 :most 64)
                          (:title "Age" :width 5)
                          (:title "Id" :width 0 :least 30)))))
    (pcase-dolist (`(,width ,title ,columns) '((60 51 2) (64 30 3)))
      (cl-letf (((symbol-function 'window-width) (lambda (&rest _) width)))
        (setq tabulated-list-format (pyagentd-list--format view))
        (should (= columns (length tabulated-list-format)))
        (should (= title (nth 1 (aref tabulated-list-format 0))))
        (should (= columns
                   (length (cadr (pyagentd-list--entry
                                  '(:id "a" :cells ("Tea" "1 d" "tea-1")))))))))))

;;;; What is marked

(ert-deftest pyagentd-sessions-deletes-what-is-marked-after-yes ()
  (sessions-test-with-list
    (pyagentd-test-answer 'delete '(:trashed ("/t")))
    (sessions-test--goto "Making tea")
    (pyagentd-test-type "m m")          ; the branch goes with its session
    (sessions-test--goto "A cup")
    (pyagentd-test-type "m")
    (let (asked)
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (prompt) (setq asked prompt) nil)))
        (call-interactively (key-binding "d")))
      (should (equal asked "Move 2 sessions to the trash? ")))
    (should-not (pyagentd-test-calls 'delete))
    (cl-letf (((symbol-function 'yes-or-no-p) #'always))
      (call-interactively (key-binding "d")))
    (pyagentd-test-await (cdr (pyagentd-test-calls 'delete)))
    (should (equal (pyagentd-test-calls 'delete)
                   `((:branch ,(sessions-test--branch
                                "tea-20260101000000/branches/20260102000000-x")
                      :what "session")
                     (:branch ,(sessions-test--branch
                                "cup-20260101000000/branches/main")
                      :what "session"))))))

(ert-deftest pyagentd-sessions-keeps-the-rest-of-what-could-not-be-deleted ()
  (sessions-test-with-list
    (pyagentd-test-refuse 'delete "A run is in flight")
    (pyagentd-test-type "m")
    (sessions-test--goto "A cup")
    (pyagentd-test-type "m")
    (goto-char (point-min))
    (should (equal (pyagentd-test-said
                     (cl-letf (((symbol-function 'yes-or-no-p) #'always))
                       (call-interactively (key-binding "d"))))
                   "A run is in flight"))
    (should (= 2 (length pyagentd-table-marks)))
    (should (= 1 (length (pyagentd-test-calls 'delete))))))

(ert-deftest pyagentd-sessions-an-agent-is-deleted-as-one ()
  (sessions-test-with-list
    (sessions-test--goto "Looks around")
    (pyagentd-test-answer 'deletions
                          '(:deletions ((:what "agent" :words "agent explorer-1"))))
    (pyagentd-test-answer 'delete '(:trashed ("/t")))
    (cl-letf (((symbol-function 'yes-or-no-p)
               (lambda (prompt) (equal prompt "Move agent explorer-1 to the trash? "))))
      (call-interactively (key-binding "d"))
      (pyagentd-test-await (pyagentd-test-calls 'delete)))
    (should (equal (plist-get (car (pyagentd-test-calls 'delete)) :what) "agent"))))

(ert-deftest pyagentd-sessions-archives-what-is-marked ()
  (sessions-test-with-list
    (pyagentd-test-answer 'archive '(:archived-at 1))
    (pyagentd-test-type "m")
    (sessions-test--goto "A cup")
    (pyagentd-test-type "m")
    (cl-letf (((symbol-function 'y-or-n-p)
               (lambda (prompt) (equal prompt "Archive 2 sessions? "))))
      (call-interactively (key-binding "a")))
    (pyagentd-test-await (cdr (pyagentd-test-calls 'archive)))
    (should (equal (mapcar (lambda (call) (plist-get call :undo))
                           (pyagentd-test-calls 'archive))
                   '(nil nil)))))

(ert-deftest pyagentd-sessions-marks-the-region ()
  (sessions-test-with-list
    (let ((transient-mark-mode t))
      (goto-char (point-min))
      (push-mark (point) t t)
      (forward-line 2)
      (pyagentd-table--mark)
      (should (equal (mapcar (lambda (line) (substring line 0 1))
                             (seq-take (pyagentd-test-lines) 4))
                     '("*" "*" " " " "))))))

;;;; Commands on the line at point

(ert-deftest pyagentd-sessions-renames-the-session-at-point ()
  (sessions-test-with-list
    (sessions-test--goto "A cup")
    (pyagentd-test-type "r C-a C-k Two SPC cups RET")
    (pyagentd-test-await (pyagentd-test-calls 'rename))
    (should (equal (pyagentd-test-calls 'rename)
                   `((:branch ,(sessions-test--branch
                                "cup-20260101000000/branches/main")
                      :title "Two cups"))))
    (pyagentd-test-await (cdr (pyagentd-test-calls 'view)))))

(ert-deftest pyagentd-sessions-stops-the-run-at-point ()
  (sessions-test-with-list
    (sessions-test--goto "A cup")
    (pyagentd-test-answer 'abort '(:aborted t))
    (call-interactively (key-binding "k"))
    (pyagentd-test-await (pyagentd-test-calls 'abort))
    (should (equal (pyagentd-test-calls 'abort)
                   `((:branch ,(sessions-test--branch
                                "cup-20260101000000/branches/main")))))))

;;; sessions-test.el ends here

;;; sessions-test.el --- Tests of the list of sessions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-sessions)
(require 'pyagentd-views)

(defconst sessions-test--agent
  "tea-20260101000000/branches/main/agents/explorer-20260101000001-look"
  "Path of an agent.")

(defun sessions-test--rows (root)
  "Return rows of three sessions under ROOT as the daemon tells them."
  (let ((row (lambda (path day &rest more)
               (apply #'pyagentd-test-row root path
                      :updated (format "2026-01-%02dT10:00:00Z" day) more))))
    (list
     (funcall row "cup-20260101000000/branches/main" 2
              :title "A cup" :current t :preset "explorer")
     (funcall row "tea-20260101000000/branches/20260102000000-x" 5
              :title "Making tea" :current t)
     (funcall row "tea-20260101000000/branches/main" 4 :title "Making tea")
     (funcall row sessions-test--agent 3 :title "Looks around"
              :parent (expand-file-name
                       "sessions/tea-20260101000000/branches/main" root))
     (funcall row (concat sessions-test--agent "/agents/x-20260101000002-deep") 3
              :parent (expand-file-name (concat "sessions/" sessions-test--agent)
                                        root))
     (funcall row "bag-20260101000000/branches/main" 9
              :current t :archived-at 1767261600000 :state "waiting"))))

(defmacro sessions-test-with-list (&rest body)
  "Evaluate BODY in the list of the sessions of `sessions-test--rows'.
The variable `rows' is bound to them."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let ((rows (sessions-test--rows root))
           (pyagentd-sessions--patience 60)) ; a busy machine prints slowly
       (pyagentd-test-answer 'sessions (list :sessions rows))
       (unwind-protect
           (progn (pyagentd-sessions)
                  (pyagentd-test-await pyagentd-sessions-rows-all)
                  ,@body)
         (kill-buffer "*pyagentd sessions*")))))

(defun sessions-test--names ()
  "Return mark and first column of each line."
  (save-excursion
    (goto-char (point-min))
    (cl-loop until (eobp)
             for name = (aref (tabulated-list-get-entry) 0)
             collect (concat (buffer-substring-no-properties (point) (+ 2 (point)))
                             (substring-no-properties (if (consp name) (car name)
                                                        name)))
             do (forward-line))))

(defun sessions-test--goto (text)
  "Move to the line with TEXT."
  (goto-char (point-min))
  (search-forward text)
  (beginning-of-line))

(ert-deftest pyagentd-sessions-shows-trees-newest-session-first ()
  (sessions-test-with-list
    (should (equal (sessions-test--names)
                   '("  bag-20260101000000"
                     "  Making tea  20260102000000-x"
                     "  └ main"
                     "    └ Looks around"
                     "      └ x: deep"
                     "  A cup")))
    (sessions-test--goto "bag")
    (should (string-match-p "waiting" (buffer-substring (point) (line-end-position))))))

(ert-deftest pyagentd-sessions-sorting-keeps-trees-together ()
  (sessions-test-with-list
    (let ((tree '("  Making tea  20260102000000-x" "  └ main" "    └ Looks around"
                  "      └ x: deep")))
      (tabulated-list-sort 0)
      (should (equal (sessions-test--names)
                     `("  A cup" "  bag-20260101000000" ,@tree)))
      (tabulated-list-sort 0)
      (should (equal (sessions-test--names)
                     `(,@tree "  bag-20260101000000" "  A cup")))
      (tabulated-list-sort 1)
      (should (equal (sessions-test--names)
                     `("  bag-20260101000000" ,@tree "  A cup")))
      (tabulated-list-sort 1)
      (should (equal (sessions-test--names)
                     `("  A cup" ,@tree "  bag-20260101000000"))))))

(ert-deftest pyagentd-sessions-filters-by-words-with-what-is-above ()
  (sessions-test-with-list
    (pyagentd-test-type "/ LOOKS SPC explorer RET")
    (should (equal (sessions-test--names)
                   '("  Making tea  20260102000000-x" "  └ main" "    └ Looks around")))
    (should (equal mode-line-process " /LOOKS explorer"))
    (pyagentd-test-type "/ C-a C-k RET")
    (should (= 6 (length (sessions-test--names))))))

(ert-deftest pyagentd-sessions-folds-what-is-below ()
  (sessions-test-with-list
    (sessions-test--goto "Making tea")
    (pyagentd-test-type "TAB")
    (should (equal (sessions-test--names)
                   '("  bag-20260101000000" "  Making tea  20260102000000-x  +3" "  A cup")))
    (should (looking-at "  Making tea"))
    (pyagentd-test-type "TAB")
    (should (= 6 (length (sessions-test--names))))))

(ert-deftest pyagentd-sessions-shows-so-many-and-more-on-request ()
  (sessions-test-with-list
    (setq-local pyagentd-sessions-lines 2)
    (setq pyagentd-sessions-rows-limit 2)
    (pyagentd-sessions--print)
    (should (equal (sessions-test--names)
                   '("  bag-20260101000000" "  Making tea  20260102000000-x" "  4 more")))
    (goto-char (point-max))
    (forward-line -1)
    (pyagentd-test-type "RET")
    (should (equal (nthcdr 3 (sessions-test--names))
                   '("    └ Looks around" "  2 more")))
    (should-error (pyagentd-here) :type 'user-error)))

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
    (let ((file (plist-get (pyagentd-sessions--here) :file)))
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
    (pyagentd-test-type "A")
    (pyagentd-test-await (null pyagentd-sessions--note))
    (should (equal mode-line-process " archived"))
    (should (equal (mapcar (lambda (call) (plist-get call :archived))
                           (pyagentd-test-calls 'sessions))
                   '(nil t)))))

(ert-deftest pyagentd-sessions-says-that-it-failed-and-keeps-what-it-has ()
  (sessions-test-with-list
    (pyagentd-test-refuse 'sessions "The disk is gone")
    (pyagentd-test-type "g")
    (pyagentd-test-await (equal pyagentd-sessions--note "failed"))
    (should (= 6 (length (sessions-test--names))))))

(ert-deftest pyagentd-sessions-stays-at-its-line-when-fetched-again ()
  (sessions-test-with-list
    (sessions-test--goto "A cup")
    (pyagentd-test-answer 'sessions (list :sessions (reverse rows)))
    (pyagentd-test-type "g")
    (pyagentd-test-await (null pyagentd-sessions--note))
    (should (looking-at "  A cup"))
    (pyagentd-test-answer 'sessions (list :sessions (cdr rows)))
    (pyagentd-test-type "g")
    (pyagentd-test-await (null pyagentd-sessions--note))
    (should (= 6 (line-number-at-pos)))))

;;;; What they cost, and what happens to them

(defun sessions-test--columns (text &rest columns)
  "Return COLUMNS, numbers, of the line with TEXT."
  (sessions-test--goto text)
  (mapcar (lambda (column)
            (substring-no-properties (aref (tabulated-list-get-entry) column)))
          columns))

(defun sessions-test--told (&rest row)
  "Tell the list of ROW as the daemon would."
  (run-hook-with-args 'pyagentd-live-functions (list row) nil))

(ert-deftest pyagentd-sessions-says-what-branches-cost-with-their-agents ()
  (sessions-test-with-list
    (pcase-let ((`(,cup ,branch ,main ,agent ,deep ,_) rows))
      (pcase-dolist (`(,row . ,spent)
                     `((,cup :tokens 950 :usd 0.0)
                       (,branch :tokens 2000 :usd 1.0)
                       (,main :tokens 12000 :usd 0.5)
                       (,agent :tokens 8000 :usd 0.25)
                       (,deep :tokens 500000 :usd 0.0 :unpriced t)))
        (apply #'sessions-test--told :branch (plist-get row :branch) spent)))
    (pyagentd-sessions--print)
    (should (equal (sessions-test--columns "A cup" 3 4) '("950" "$0.00")))
    (should (equal (sessions-test--columns "Making tea" 3 4) '("2.0k" "$1.00")))
    (should (equal (sessions-test--columns "└ main" 3 4) '("520k" "$0.75+?")))
    (should (equal (sessions-test--columns "deep" 3 4) '("500k" "$?")))
    (tabulated-list-sort 3)
    (should (equal (car (sessions-test--names)) "  Making tea  20260102000000-x"))
    (tabulated-list-sort 4)
    (should (equal (car (sessions-test--names)) "  Making tea  20260102000000-x"))))

(ert-deftest pyagentd-sessions-follows-what-happens-without-asking-again ()
  (sessions-test-with-list
    (let ((pyagentd-live-pause 0) (cup (car rows)))
      (sessions-test--goto "Making tea")
      (pyagentd-test-type "TAB m")
      (sessions-test--goto "A cup")
      (sessions-test--told :branch (plist-get cup :branch) :state "busy"
                       :updated "2026-02-01T10:00:00Z")
      (pyagentd-test-await (string-prefix-p "  A cup" (car (sessions-test--names))))
      (should (looking-at "  A cup"))
      (should (equal (sessions-test--columns "A cup" 2) '("busy")))
      (should (equal (nth 2 (sessions-test--names))
                     "* Making tea  20260102000000-x  +3"))
      (apply #'sessions-test--told
             (pyagentd-test-row root "new-20260301000000/branches/main"
                                :title "Fresh" :current t
                                :updated "2026-03-01T10:00:00Z"))
      (pyagentd-test-await (equal (car (sessions-test--names)) "  Fresh"))
      (sessions-test--told :branch (plist-get cup :branch) :archived-at 1)
      (pyagentd-test-await (= 3 (length (sessions-test--names))))
      (run-hook-with-args 'pyagentd-live-functions nil
                          (list (expand-file-name
                                 "sessions/new-20260301000000/branches/main"
                                 root)))
      (pyagentd-test-await (= 2 (length (sessions-test--names)))))
    (should (equal (pyagentd-test-calls 'sessions)
                   '((:archived nil :watch t))))))

(ert-deftest pyagentd-sessions-that-is-long-changes-where-it-stands ()
  (sessions-test-with-list
    (let ((pyagentd-sessions--patience 0)   ; as if printing took long
          (names (sessions-test--names))
          (deep (nth 4 rows)) (cup (car rows)))
      (sessions-test--goto "Looks around")
      (pyagentd-test-type "m p")
      (sessions-test--told :branch (plist-get deep :branch) :tokens 5000 :usd 0.5
                       :state "busy" :updated "2027-01-01T10:00:00Z")
      (should (equal (sessions-test--columns "deep" 2 3 4) '("busy" "5.0k" "$0.50")))
      (should (equal (sessions-test--columns "Looks" 3 4) '("5.0k" "$0.50")))
      (should (equal (sessions-test--columns "└ main" 3 4) '("5.0k" "$0.50")))
      (should (equal (sessions-test--columns "Making" 3 4) '("" "")))
      (sessions-test--told :branch (plist-get deep :branch) :tokens 6000 :usd 0.5)
      (should (equal (sessions-test--columns "└ main" 3 4) '("6.0k" "$0.50")))
      (should (equal (mapcar (lambda (name) (substring name 2)) names)
                     (mapcar (lambda (name) (substring name 2))
                             (sessions-test--names))))
      (should (string-prefix-p "*" (nth 3 (pyagentd-test-lines))))
      (sessions-test--told :branch (plist-get cup :branch) :archived-at 1)
      (should (equal mode-line-process " changed; g refreshes"))
      (should (= 6 (length (sessions-test--names))))
      (should (= 5 (length pyagentd-sessions-rows-all))))))

(ert-deftest pyagentd-sessions-that-is-the-last-one-killed-has-nobody-told ()
  (sessions-test-with-list
    (pyagentd-test-answer 'view (pyagentd-test-view '("Who") nil nil
                                                    :follows '("sessions")))
    (pyagentd-test-answer 'unwatch nil)
    (dolist (buffer (buffer-list))      ; lists of other tests
      (unless (equal (buffer-name buffer) "*pyagentd sessions*")
        (with-current-buffer buffer (setq pyagentd-live--listing nil))))
    (pyagentd-running)
    (pyagentd-test-await (pyagentd-test-calls 'view))
    (kill-buffer "*pyagentd sessions*")
    (pyagentd-live--unwatch)
    (should-not (pyagentd-test-calls 'unwatch))
    (kill-buffer "*pyagentd running*")
    (pyagentd-test-await (pyagentd-test-calls 'unwatch))
    (should-not pyagentd-live--watching)
    (pyagentd-sessions)
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'sessions))))))

(ert-deftest pyagentd-sessions-says-that-no-daemon-tells-and-fetches-from-the-next ()
  (sessions-test-with-list
    (run-hooks 'pyagentd-rpc-disconnected-hook)
    (should (equal mode-line-process " no daemon"))
    (should (= 6 (length (sessions-test--names))))
    (should (pyagentd-connect--wanted-p))
    (run-hooks 'pyagentd-rpc-connected-hook)
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'sessions))))
    (pyagentd-test-await (null pyagentd-sessions--note))))

(ert-deftest pyagentd-sessions-says-why-it-is-empty ()
  (sessions-test-with-list
    (pyagentd-test-type "/ nowhere RET")
    (should (string-prefix-p "No matches" (buffer-string)))
    (pyagentd-test-type "/ C-a C-k RET")
    (should (= 6 (length (sessions-test--names))))
    (pyagentd-test-answer 'sessions '(:sessions nil))
    (pyagentd-test-type "g")
    (pyagentd-test-await (null pyagentd-sessions--note))
    (should (string-prefix-p "No sessions;" (buffer-string)))))

;;;; Thousands

(ert-deftest pyagentd-sessions-reads-thousands-of-rows-from-a-file ()
  (pyagentd-test-with-daemon
    (let ((path (expand-file-name "rows.sexp" root)))
      (with-temp-file path
        (insert "(:sessions (")
        (dotimes (number 6000)
          (let ((dir (format "/s/n-%05d/branches/main" number)))
            (prin1 (list :branch dir :branch-dir dir :session-id (format "n-%05d" number)
                         :session-dir (format "/s/n-%05d" number)
                         :branch-name "main" :file (concat dir "/session.md")
                         :title (format "Größe %d" number) :current t
                         :updated (format "2026-01-01T%02d:%02d:%02d"
                                          (/ number 3600) (mod (/ number 60) 60)
                                          (mod number 60)))
                   (current-buffer))))
        (insert "))\n"))
      (pyagentd-test-answer 'sessions (list :path path))
      (unwind-protect
          (let ((pyagentd-sessions--slice 0.005) (start (float-time)))
            (pyagentd-sessions)
            (should (null pyagentd-sessions-rows-all)) ; it did not wait
            (pyagentd-test-await (null pyagentd-sessions--note))
            (pyagentd-test-report "6000 sessions are listed after %.0f ms"
                                  (* 1000 (- (float-time) start)))
            (should (= 6000 (length pyagentd-sessions-rows-all)))
            (should (equal (car (sessions-test--names)) "  Größe 5999"))
            (should (equal (car (last (sessions-test--names))) "  5500 more"))
            (should-not (get-buffer " *pyagentd rows*")))
        (kill-buffer "*pyagentd sessions*")))))

;;;; Marks

(ert-deftest pyagentd-sessions-marks-as-dired ()
  (sessions-test-with-list
    (goto-char (point-min))
    (pyagentd-test-type "m d d u")
    (should (equal (mapcar (lambda (line) (substring line 0 1))
                           (pyagentd-test-lines))
                   '("D" "D" " " " " " " " ")))
    (pyagentd-test-type "U a d DEL")
    (should (equal (mapcar (lambda (line) (substring line 0 1))
                           (pyagentd-test-lines))
                   '(" " " " " " "A" " " " ")))))

(ert-deftest pyagentd-sessions-executes-flags-after-yes ()
  (sessions-test-with-list
    (pyagentd-test-answer 'delete '(:trashed ("/t")))
    (sessions-test--goto "Making tea")
    (pyagentd-test-type "d d")          ; the branch goes with its session
    (sessions-test--goto "A cup")
    (pyagentd-test-type "a")
    (let (asked)
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (prompt) (setq asked prompt) nil)))
        (pyagentd-sessions-execute))
      (should (equal asked "Move 1 session to the trash and archive 1 session? ")))
    (should-not (pyagentd-test-calls 'delete))
    (pyagentd-test-type "x yes RET")
    (should (equal (pyagentd-test-calls 'delete)
                   `((:branch ,(plist-get (nth 1 rows) :branch) :what "session"))))
    (should (equal (pyagentd-test-calls 'archive)
                   `((:branch ,(plist-get (nth 0 rows) :branch) :undo nil))))
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'sessions))))
    (should-error (pyagentd-sessions-execute) :type 'user-error)))

(ert-deftest pyagentd-sessions-keeps-the-flags-of-what-could-not-be-done ()
  (sessions-test-with-list
    (pyagentd-test-refuse 'delete "A run is in flight")
    (sessions-test--goto "A cup")
    (pyagentd-sessions-flag-deletion)
    (sessions-test--goto "bag")
    (pyagentd-sessions-flag-archive)
    (should (equal (pyagentd-test-said
                     (cl-letf (((symbol-function 'yes-or-no-p) #'always))
                       (pyagentd-sessions-execute)))
                   "A run is in flight"))
    (should (equal (sort (hash-table-values pyagentd-sessions-rows-marks) #'<)
                   '(?A ?D)))
    (should-not (pyagentd-test-calls 'archive))))

(ert-deftest pyagentd-sessions-flags-the-region ()
  (sessions-test-with-list
    (let ((transient-mark-mode t))
      (goto-char (point-min))
      (push-mark (point) t t)
      (forward-line 2)
      (pyagentd-sessions-mark)
      (should (equal (mapcar (lambda (line) (substring line 0 1))
                             (pyagentd-test-lines))
                     '("*" "*" " " " " " " " "))))))

;;;; Commands on the line at point

(ert-deftest pyagentd-sessions-renames-the-session-at-point ()
  (sessions-test-with-list
    (sessions-test--goto "A cup")
    (pyagentd-test-type "r C-a C-k Two SPC cups RET")
    (should (equal (pyagentd-test-calls 'rename)
                   `((:branch ,(plist-get (car rows) :branch) :title "Two cups"))))
    (pyagentd-test-await (cdr (pyagentd-test-calls 'sessions)))))

(ert-deftest pyagentd-sessions-aborts-the-run-at-point ()
  (sessions-test-with-list
    (sessions-test--goto "A cup")
    (pyagentd-test-answer 'abort '(:aborted t))
    (pyagentd-test-type "k")
    (should (equal (pyagentd-test-calls 'abort)
                   `((:branch ,(plist-get (car rows) :branch)))))))

;;; sessions-test.el ends here

;;; list-test.el --- Tests of the list of sessions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-list)
(require 'pyagentd-branches)
(require 'pyagentd-exchange)

(defconst list-test--agent
  "tea-20260101000000/branches/main/agents/explorer-20260101000001-look"
  "Path of an agent.")

(defun list-test--rows (root)
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
     (funcall row list-test--agent 3 :title "Looks around"
              :parent (expand-file-name
                       "sessions/tea-20260101000000/branches/main" root))
     (funcall row (concat list-test--agent "/agents/x-20260101000002-deep") 3
              :parent (expand-file-name (concat "sessions/" list-test--agent)
                                        root))
     (funcall row "bag-20260101000000/branches/main" 9
              :current t :archived-at 1767261600000 :state "waiting"))))

(defmacro list-test-with-list (&rest body)
  "Evaluate BODY in the list of the sessions of `list-test--rows'.
The variable `rows' is bound to them."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let ((rows (list-test--rows root))
           (pyagentd-list--patience 60)) ; a busy machine prints slowly
       (pyagentd-test-answer 'sessions (list :sessions rows))
       (unwind-protect
           (progn (pyagentd-list-sessions)
                  (pyagentd-test-await pyagentd-rows-all)
                  ,@body)
         (kill-buffer "*pyagentd sessions*")))))

(defun list-test--names ()
  "Return mark and first column of each line."
  (save-excursion
    (goto-char (point-min))
    (cl-loop until (eobp)
             for name = (aref (tabulated-list-get-entry) 0)
             collect (concat (buffer-substring-no-properties (point) (+ 2 (point)))
                             (substring-no-properties (if (consp name) (car name)
                                                        name)))
             do (forward-line))))

(defun list-test--goto (text)
  "Move to the line with TEXT."
  (goto-char (point-min))
  (search-forward text)
  (beginning-of-line))

(ert-deftest pyagentd-list-shows-trees-newest-session-first ()
  (list-test-with-list
    (should (equal (list-test--names)
                   '("  bag-20260101000000"
                     "  Making tea  20260102000000-x"
                     "  └ main"
                     "    └ Looks around"
                     "      └ x: deep"
                     "  A cup")))
    (list-test--goto "bag")
    (should (string-match-p "waiting" (buffer-substring (point) (line-end-position))))))

(ert-deftest pyagentd-list-sorting-keeps-trees-together ()
  (list-test-with-list
    (let ((tree '("  Making tea  20260102000000-x" "  └ main" "    └ Looks around"
                  "      └ x: deep")))
      (tabulated-list-sort 0)
      (should (equal (list-test--names)
                     `("  A cup" "  bag-20260101000000" ,@tree)))
      (tabulated-list-sort 0)
      (should (equal (list-test--names)
                     `(,@tree "  bag-20260101000000" "  A cup")))
      (tabulated-list-sort 1)
      (should (equal (list-test--names)
                     `("  bag-20260101000000" ,@tree "  A cup")))
      (tabulated-list-sort 1)
      (should (equal (list-test--names)
                     `("  A cup" ,@tree "  bag-20260101000000"))))))

(ert-deftest pyagentd-list-filters-by-words-with-what-is-above ()
  (list-test-with-list
    (pyagentd-test-type "/ LOOKS SPC explorer RET")
    (should (equal (list-test--names)
                   '("  Making tea  20260102000000-x" "  └ main" "    └ Looks around")))
    (should (equal mode-line-process " /LOOKS explorer"))
    (pyagentd-test-type "/ C-a C-k RET")
    (should (= 6 (length (list-test--names))))))

(ert-deftest pyagentd-list-folds-what-is-below ()
  (list-test-with-list
    (list-test--goto "Making tea")
    (pyagentd-test-type "TAB")
    (should (equal (list-test--names)
                   '("  bag-20260101000000" "  Making tea  20260102000000-x  +3" "  A cup")))
    (should (looking-at "  Making tea"))
    (pyagentd-test-type "TAB")
    (should (= 6 (length (list-test--names))))))

(ert-deftest pyagentd-list-shows-so-many-and-more-on-request ()
  (list-test-with-list
    (setq-local pyagentd-list-lines 2)
    (setq pyagentd-rows-limit 2)
    (pyagentd-list--print)
    (should (equal (list-test--names)
                   '("  bag-20260101000000" "  Making tea  20260102000000-x" "  4 more")))
    (goto-char (point-max))
    (forward-line -1)
    (pyagentd-test-type "RET")
    (should (equal (nthcdr 3 (list-test--names))
                   '("    └ Looks around" "  2 more")))
    (should-error (pyagentd-here) :type 'user-error)))

(ert-deftest pyagentd-list-visits-sessions-and-agents ()
  (list-test-with-list
    (list-test--goto "Looks around")
    (pyagentd-test-type "RET")
    (should (equal pyagentd--session-id "explorer-20260101000001-look"))
    (with-current-buffer "*pyagentd sessions*"
      (list-test--goto "A cup")
      (pyagentd-test-type "o"))
    (with-current-buffer (window-buffer)
      (should (equal pyagentd--session-id "cup-20260101000000")))))

(ert-deftest pyagentd-list-opens-a-session-at-its-prompt-and-leaves-point-later ()
  (list-test-with-list
    (list-test--goto "A cup")
    (let ((file (plist-get (pyagentd-list--here) :file)))
      (with-temp-file file (insert "### Hi\n\nHello.\n\n### "))
      (pyagentd-test-type "RET")
      (should (equal buffer-file-name (file-truename file)))
      (should (and (eobp) (looking-back "^### " (line-beginning-position))))
      (goto-char 3)
      (with-current-buffer "*pyagentd sessions*"
        (list-test--goto "A cup")
        (pyagentd-test-type "RET"))
      (should (= (point) 3))
      (goto-char (point-min))           ; as `find-file' leaves it
      (with-current-buffer "*pyagentd sessions*"
        (list-test--goto "A cup")
        (pyagentd-test-type "RET"))
      (should (eobp)))))

(ert-deftest pyagentd-list-asks-for-archived-ones-only-on-request ()
  (list-test-with-list
    (pyagentd-test-type "A")
    (pyagentd-test-await (null pyagentd-list--note))
    (should (equal mode-line-process " archived"))
    (should (equal (mapcar (lambda (call) (plist-get call :archived))
                           (pyagentd-test-calls 'sessions))
                   '(nil t)))))

(ert-deftest pyagentd-list-says-that-it-failed-and-keeps-what-it-has ()
  (list-test-with-list
    (pyagentd-test-refuse 'sessions "The disk is gone")
    (pyagentd-test-type "g")
    (pyagentd-test-await (equal pyagentd-list--note "failed"))
    (should (= 6 (length (list-test--names))))))

(ert-deftest pyagentd-list-stays-at-its-line-when-fetched-again ()
  (list-test-with-list
    (list-test--goto "A cup")
    (pyagentd-test-answer 'sessions (list :sessions (reverse rows)))
    (pyagentd-test-type "g")
    (pyagentd-test-await (null pyagentd-list--note))
    (should (looking-at "  A cup"))
    (pyagentd-test-answer 'sessions (list :sessions (cdr rows)))
    (pyagentd-test-type "g")
    (pyagentd-test-await (null pyagentd-list--note))
    (should (= 6 (line-number-at-pos)))))

;;;; What they cost, and what happens to them

(defun list-test--columns (text &rest columns)
  "Return COLUMNS, numbers, of the line with TEXT."
  (list-test--goto text)
  (mapcar (lambda (column)
            (substring-no-properties (aref (tabulated-list-get-entry) column)))
          columns))

(defun list-test--told (&rest row)
  "Tell the list of ROW as the daemon would."
  (run-hook-with-args 'pyagentd-live-functions (list row) nil))

(ert-deftest pyagentd-list-says-what-branches-cost-with-their-agents ()
  (list-test-with-list
    (pcase-let ((`(,cup ,branch ,main ,agent ,deep ,_) rows))
      (pcase-dolist (`(,row . ,spent)
                     `((,cup :tokens 950 :usd 0.0)
                       (,branch :tokens 2000 :usd 1.0)
                       (,main :tokens 12000 :usd 0.5)
                       (,agent :tokens 8000 :usd 0.25)
                       (,deep :tokens 500000 :usd 0.0 :unpriced t)))
        (apply #'list-test--told :branch (plist-get row :branch) spent)))
    (pyagentd-list--print)
    (should (equal (list-test--columns "A cup" 3 4) '("950" "$0.00")))
    (should (equal (list-test--columns "Making tea" 3 4) '("2.0k" "$1.00")))
    (should (equal (list-test--columns "└ main" 3 4) '("520k" "$0.75+?")))
    (should (equal (list-test--columns "deep" 3 4) '("500k" "$?")))
    (tabulated-list-sort 3)
    (should (equal (car (list-test--names)) "  Making tea  20260102000000-x"))
    (tabulated-list-sort 4)
    (should (equal (car (list-test--names)) "  Making tea  20260102000000-x"))))

(ert-deftest pyagentd-list-follows-what-happens-without-asking-again ()
  (list-test-with-list
    (let ((pyagentd-live-pause 0) (cup (car rows)))
      (list-test--goto "Making tea")
      (pyagentd-test-type "TAB m")
      (list-test--goto "A cup")
      (list-test--told :branch (plist-get cup :branch) :state "busy"
                       :updated "2026-02-01T10:00:00Z")
      (pyagentd-test-await (string-prefix-p "  A cup" (car (list-test--names))))
      (should (looking-at "  A cup"))
      (should (equal (list-test--columns "A cup" 2) '("busy")))
      (should (equal (nth 2 (list-test--names))
                     "* Making tea  20260102000000-x  +3"))
      (apply #'list-test--told
             (pyagentd-test-row root "new-20260301000000/branches/main"
                                :title "Fresh" :current t
                                :updated "2026-03-01T10:00:00Z"))
      (pyagentd-test-await (equal (car (list-test--names)) "  Fresh"))
      (list-test--told :branch (plist-get cup :branch) :archived-at 1)
      (pyagentd-test-await (= 3 (length (list-test--names))))
      (run-hook-with-args 'pyagentd-live-functions nil
                          (list (expand-file-name
                                 "sessions/new-20260301000000/branches/main"
                                 root)))
      (pyagentd-test-await (= 2 (length (list-test--names)))))
    (should (equal (pyagentd-test-calls 'sessions)
                   '((:archived nil :watch t))))))

(ert-deftest pyagentd-list-that-is-long-changes-where-it-stands ()
  (list-test-with-list
    (let ((pyagentd-list--patience 0)   ; as if printing took long
          (names (list-test--names))
          (deep (nth 4 rows)) (cup (car rows)))
      (list-test--goto "Looks around")
      (pyagentd-test-type "m p")
      (list-test--told :branch (plist-get deep :branch) :tokens 5000 :usd 0.5
                       :state "busy" :updated "2027-01-01T10:00:00Z")
      (should (equal (list-test--columns "deep" 2 3 4) '("busy" "5.0k" "$0.50")))
      (should (equal (list-test--columns "Looks" 3 4) '("5.0k" "$0.50")))
      (should (equal (list-test--columns "└ main" 3 4) '("5.0k" "$0.50")))
      (should (equal (list-test--columns "Making" 3 4) '("" "")))
      (list-test--told :branch (plist-get deep :branch) :tokens 6000 :usd 0.5)
      (should (equal (list-test--columns "└ main" 3 4) '("6.0k" "$0.50")))
      (should (equal (mapcar (lambda (name) (substring name 2)) names)
                     (mapcar (lambda (name) (substring name 2))
                             (list-test--names))))
      (should (string-prefix-p "*" (nth 3 (pyagentd-test-lines))))
      (list-test--told :branch (plist-get cup :branch) :archived-at 1)
      (should (equal mode-line-process " changed; g refreshes"))
      (should (= 6 (length (list-test--names))))
      (should (= 5 (length pyagentd-rows-all))))))

(ert-deftest pyagentd-list-that-is-the-last-one-killed-has-nobody-told ()
  (list-test-with-list
    (pyagentd-test-answer 'running '(:running nil))
    (pyagentd-test-answer 'unwatch nil)
    (dolist (buffer (buffer-list))      ; lists of other tests
      (unless (equal (buffer-name buffer) "*pyagentd sessions*")
        (with-current-buffer buffer (setq pyagentd-live--listing nil))))
    (pyagentd-running)
    (pyagentd-test-await (pyagentd-test-calls 'running))
    (kill-buffer "*pyagentd sessions*")
    (pyagentd-live--unwatch)
    (should-not (pyagentd-test-calls 'unwatch))
    (kill-buffer "*pyagentd running*")
    (pyagentd-test-await (pyagentd-test-calls 'unwatch))
    (should-not pyagentd-live--watching)
    (pyagentd-list-sessions)
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'sessions))))))

(ert-deftest pyagentd-list-says-that-no-daemon-tells-and-fetches-from-the-next ()
  (list-test-with-list
    (run-hooks 'pyagentd-rpc-disconnected-hook)
    (should (equal mode-line-process " no daemon"))
    (should (= 6 (length (list-test--names))))
    (should (pyagentd-connect--wanted-p))
    (run-hooks 'pyagentd-rpc-connected-hook)
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'sessions))))
    (pyagentd-test-await (null pyagentd-list--note))))

(ert-deftest pyagentd-list-says-why-it-is-empty ()
  (list-test-with-list
    (pyagentd-test-type "/ nowhere RET")
    (should (string-prefix-p "No matches" (buffer-string)))
    (pyagentd-test-type "/ C-a C-k RET")
    (should (= 6 (length (list-test--names))))
    (pyagentd-test-answer 'sessions '(:sessions nil))
    (pyagentd-test-type "g")
    (pyagentd-test-await (null pyagentd-list--note))
    (should (string-prefix-p "No sessions;" (buffer-string)))))

;;;; Thousands

(ert-deftest pyagentd-list-reads-thousands-of-rows-from-a-file ()
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
          (let ((pyagentd-list--slice 0.005) (start (float-time)))
            (pyagentd-list-sessions)
            (should (null pyagentd-rows-all)) ; it did not wait
            (pyagentd-test-await (null pyagentd-list--note))
            (pyagentd-test-report "6000 sessions are listed after %.0f ms"
                                  (* 1000 (- (float-time) start)))
            (should (= 6000 (length pyagentd-rows-all)))
            (should (equal (car (list-test--names)) "  Größe 5999"))
            (should (equal (car (last (list-test--names))) "  5500 more"))
            (should-not (get-buffer " *pyagentd rows*")))
        (kill-buffer "*pyagentd sessions*")))))

;;;; Marks

(ert-deftest pyagentd-list-marks-as-dired ()
  (list-test-with-list
    (goto-char (point-min))
    (pyagentd-test-type "m d d u")
    (should (equal (mapcar (lambda (line) (substring line 0 1))
                           (pyagentd-test-lines))
                   '("D" "D" " " " " " " " ")))
    (pyagentd-test-type "U a d DEL")
    (should (equal (mapcar (lambda (line) (substring line 0 1))
                           (pyagentd-test-lines))
                   '(" " " " " " "A" " " " ")))))

(ert-deftest pyagentd-list-executes-flags-after-yes ()
  (list-test-with-list
    (pyagentd-test-answer 'delete '(:trashed ("/t")))
    (list-test--goto "Making tea")
    (pyagentd-test-type "d d")          ; the branch goes with its session
    (list-test--goto "A cup")
    (pyagentd-test-type "a")
    (let (asked)
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (prompt) (setq asked prompt) nil)))
        (pyagentd-list-execute))
      (should (equal asked "Move 1 session to the trash and archive 1 session? ")))
    (should-not (pyagentd-test-calls 'delete))
    (pyagentd-test-type "x yes RET")
    (should (equal (pyagentd-test-calls 'delete)
                   `((:branch ,(plist-get (nth 1 rows) :branch) :what "session"))))
    (should (equal (pyagentd-test-calls 'archive)
                   `((:branch ,(plist-get (nth 0 rows) :branch) :undo nil))))
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'sessions))))
    (should-error (pyagentd-list-execute) :type 'user-error)))

(ert-deftest pyagentd-list-keeps-the-flags-of-what-could-not-be-done ()
  (list-test-with-list
    (pyagentd-test-refuse 'delete "A run is in flight")
    (list-test--goto "A cup")
    (pyagentd-list-flag-deletion)
    (list-test--goto "bag")
    (pyagentd-list-flag-archive)
    (should (equal (pyagentd-test-said
                     (cl-letf (((symbol-function 'yes-or-no-p) #'always))
                       (pyagentd-list-execute)))
                   "A run is in flight"))
    (should (equal (sort (hash-table-values pyagentd-rows-marks) #'<)
                   '(?A ?D)))
    (should-not (pyagentd-test-calls 'archive))))

(ert-deftest pyagentd-list-flags-the-region ()
  (list-test-with-list
    (let ((transient-mark-mode t))
      (goto-char (point-min))
      (push-mark (point) t t)
      (forward-line 2)
      (pyagentd-list-mark)
      (should (equal (mapcar (lambda (line) (substring line 0 1))
                             (pyagentd-test-lines))
                     '("*" "*" " " " " " " " "))))))

;;;; Commands on the line at point

(ert-deftest pyagentd-list-renames-the-session-at-point ()
  (list-test-with-list
    (list-test--goto "A cup")
    (pyagentd-test-type "r C-a C-k Two SPC cups RET")
    (should (equal (pyagentd-test-calls 'rename)
                   `((:branch ,(plist-get (car rows) :branch) :title "Two cups"))))
    (pyagentd-test-await (cdr (pyagentd-test-calls 'sessions)))))

(ert-deftest pyagentd-list-aborts-the-run-at-point ()
  (list-test-with-list
    (list-test--goto "A cup")
    (pyagentd-test-answer 'abort '(:aborted t))
    (pyagentd-test-type "k")
    (should (equal (pyagentd-test-calls 'abort)
                   `((:branch ,(plist-get (car rows) :branch)))))))

;;; list-test.el ends here

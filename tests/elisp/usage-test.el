;;; usage-test.el --- Tests of what runs and what it costs -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'keys)
(require 'pyagentd-grants)
(require 'pyagentd-usage)

;;;; Numbers

(ert-deftest pyagentd-numbers-are-short-and-unknown-prices-no-numbers ()
  (should (equal (mapcar #'pyagentd-numbers-short '(0 950 1200 12345 2500000))
                 '("0" "950" "1.2k" "12k" "2.5M")))
  (should (equal (pyagentd-numbers-cost 1.5 nil) "$1.50"))
  (should (equal (pyagentd-numbers-cost 1.5 '("m")) "$1.50+?"))
  (should (equal (pyagentd-numbers-cost 0 t) "$?")))

(ert-deftest pyagentd-bars-show-shares-in-any-terminal ()
  (cl-letf (((symbol-function 'char-displayable-p) #'always))
    (should (equal (mapcar (lambda (value) (pyagentd-numbers-bar value 8 4))
                           '(0 0.01 1 5 8))
                   '("" "▏" "▌" "██▌" "████")))
    (should (equal (pyagentd-numbers-bar 0 0 4) "")))
  (cl-letf (((symbol-function 'char-displayable-p) #'ignore))
    (should (equal (pyagentd-numbers-bar 5 8 4) "##"))))

;;;; Rows that follow what happens

(defun usage-test--row (root path &rest more)
  "Return a row of the branch at PATH below ROOT with MORE keys."
  (apply #'pyagentd-test-row root path more))

(ert-deftest pyagentd-live-rows-change-come-and-go-in-their-place ()
  (let* ((tea "tea-20260101000000/branches/main")
         (cup "cup-20260101000000/branches/main")
         (agent (concat tea "/agents/x-20260101000002-deep"))
         (row (lambda (path &rest more)
                (apply #'usage-test--row "/r/" path more)))
         (name (lambda (row) (plist-get row :branch)))
         (rows (list (funcall row cup) (funcall row tea :title "Tea")
                     (funcall row "tea-20260101000000/branches/b")))
         (parent (funcall name (nth 1 rows)))
         (new (append (funcall row agent :parent parent) '(:agent t)))
         (merged (pyagentd-live-merge
                  rows (list new (list :branch parent :state "busy")) nil)))
    (should (equal (mapcar name merged)
                   (mapcar name (list (nth 0 rows) (nth 1 rows) new
                                      (nth 2 rows)))))
    (should (equal (plist-get (nth 1 merged) :title) "Tea"))
    (should (equal (plist-get (nth 1 merged) :state) "busy"))
    (should (eq (nth 0 rows) (nth 0 merged)))
    (should (equal (mapcar name (pyagentd-live-merge merged nil (list parent)))
                   (mapcar name (list (nth 0 rows) (nth 2 rows)))))
    (should (equal rows (pyagentd-live-merge
                         rows (list (list :branch "/nowhere" :state "idle"))
                         nil)))))

;;;; What was spent

(defun usage-test--line (key usd &rest more)
  "Return a line of the report called KEY that cost USD, with MORE keys."
  (append (list :key key :requests 1200 :known-usd (or usd 0) :total 9000
                :cost-usd usd :unpriced (unless usd '("m"))
                :tokens '(:input 1000 :output 40 :reasoning 2 :cache-read 7000
                          :cache-write 500))
          more))

(defun usage-test--report (by &rest lines)
  "Return a report BY something with LINES."
  (list :by by :days 30 :lines lines
        :rest (append (usage-test--line "others" 0.5) '(:number 3))
        :together (usage-test--line "together" nil)))

(defmacro usage-test--with-report (&rest body)
  "Evaluate BODY in the table of a report by day."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let ((pyagentd-live-pause 0) (pyagentd-follow-rest 0))
       (pyagentd-test-answer 'usage-report
                             (usage-test--report
                              "day" (usage-test--line "2026-11-22" 4.0)
                              (usage-test--line "2026-11-21" 1.0)))
       (save-window-excursion (pyagentd-usage))
       (with-current-buffer pyagentd-usage--buffer
         (unwind-protect
             (cl-letf (((symbol-function 'char-displayable-p) #'ignore))
               (pyagentd-test-await pyagentd-table-rows)
               (pyagentd-table-print-again)
               (goto-char (point-min))
               ,@body)
           (kill-buffer))))))

(ert-deftest pyagentd-usage-is-a-table-with-bars ()
  (usage-test--with-report
    (should (equal (pyagentd-test-calls 'usage-report)
                   '((:by "day" :days 30))))
    (let ((lines (pyagentd-test-lines)))
      (should (string-match-p
               "^ 2026-11-22 Sun +1,200 +8.5k +7.0k +42 +\\$4.00 [█#]+$"
               (nth 0 lines)))
      (should (string-match-p "^ 3 others .*\\$0.50 *$" (nth 2 lines)))
      (should (string-match-p "^ Together .*\\$\\? *$" (nth 3 lines))))
    (should (equal mode-line-process " by day, last 30 days"))))

(ert-deftest pyagentd-usage-is-shown-by-session-and-visits-it ()
  (usage-test--with-report
    (let ((file (expand-file-name "session.md" root)))
      (pyagentd-test-answer
       'usage-report
       (usage-test--report "session"
                           (usage-test--line "/s/tea" 1.0 :session-id "tea"
                                             :title "Making tea" :file file)
                           (usage-test--line "/s/cup" 1.0)))
      (pyagentd-test-type "s")
      (pyagentd-test-await (string-prefix-p " Making tea"
                                            (car (pyagentd-test-lines))))
      (should (string-prefix-p " cup " (cadr (pyagentd-test-lines))))
      (goto-char (point-min))
      (let (visited)
        (cl-letf (((symbol-function 'pyagentd-here-visit)
                   (lambda (session &rest _)
                     (setq visited (plist-get session :file)))))
          (pyagentd-usage-visit))
        (should (equal visited file)))
      (forward-line)
      (should-error (pyagentd-usage-visit) :type 'user-error))))

(ert-deftest pyagentd-usage-is-counted-again-when-something-was-spent ()
  (usage-test--with-report
    (save-window-excursion
      (switch-to-buffer (current-buffer))
      (run-hook-with-args 'pyagentd-live-functions nil nil)
      (run-hook-with-args 'pyagentd-live-functions nil nil)
      (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'usage-report))))
      (should-not pyagentd-table--behind)
      (should (equal (pyagentd-test-calls 'running) '((:watch t)))))))

(ert-deftest pyagentd-usage-of-other-days ()
  (usage-test--with-report
    (pyagentd-test-type "t 0 RET")
    (pyagentd-test-await (cdr (pyagentd-test-calls 'usage-report)))
    (should (equal (plist-get (cadr (pyagentd-test-calls 'usage-report)) :days)
                   0))
    (pyagentd-test-await (equal mode-line-process " by day, always"))
    (should-error (pyagentd-usage-set-days -1) :type 'user-error)))

;;; usage-test.el ends here

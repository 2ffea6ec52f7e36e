;;; usage-test.el --- Tests of what runs and what it costs -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'keys)
(require 'pyagentd-list)
(require 'pyagentd-core)

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

(ert-deftest pyagentd-usage-counts-as-long-as-is-set-and-is-shown-otherwise ()
  (pyagentd-test-with-daemon
    (pyagentd-test-answer
     'view (pyagentd-test-view
            '("Day" "Cost" "")
            '(("2026-11-22" nil (:kind "view" :name "usage"
                                 :arguments (:by "session" :days 7))
               "2026-11-22 Sun" "$4.00" (:text "█▌" :face "good")))
            '((:key "m" :label "by model" :arguments (:by "model"))
              (:key "t" :label "how long"
               :reads (:argument "days" :prompt "Days: " :number t)))))
    (let ((pyagentd-usage-days 7))
      (save-window-excursion (pyagentd-usage)))
    (with-current-buffer "*pyagentd usage*"
      (unwind-protect
          (cl-letf (((symbol-function 'char-displayable-p) #'ignore))
            (pyagentd-test-await pyagentd-list--view)
            (revert-buffer)
            (pyagentd-test-settle)
            (should (string-match-p "\\$4.00 +##$"
                                    (car (pyagentd-test-lines))))
            (pyagentd-test-type "m")
            (pyagentd-test-type "t 0 RET")
            (goto-char (point-min))
            (pyagentd-test-type "RET")
            (should (equal (mapcar (lambda (call) (plist-get call :arguments))
                                   (cdr (pyagentd-test-calls 'view)))
                           '((:days 7) (:days 7 :by "model")
                             (:days 0 :by "model") (:by "session" :days 7)))))
        (kill-buffer "*pyagentd usage*")))))

;;; usage-test.el ends here

;;; inspect-test.el --- Tests of the inspector and of schedules -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'keys)
(require 'pyagentd-list)
(require 'pyagentd-views)

(defconst inspect-test--report
  '(:title "Inspect"
    :lines ((:level 1 :parts ("demo/main  Demo"))
            (:level 0 :parts ("  spent 12 in; " (:text "$0.01" :face "bad")))
            (:level 2 :folded t :parts ((:text "System prompt" :face "heading")))
            (:level 0 :parts ("  Be kind."))
            (:level 0 :parts ("  * Be brief."))
            (:level 1 :parts ("done  What is it?"))
            (:level 2 :parts ((:text "#1  m" :face "heading"
                               :visit (:kind "report" :name "request"
                                       :arguments (:run "run_1" :step 1)))))
            (:level 0 :parts ("  1 message"))))
  "What the daemon tells of a small session.")

(defmacro inspect-test--with (&rest body)
  "Evaluate BODY in the buffer of the inspector."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-ask
     (pyagentd-test-answer 'report inspect-test--report)
     (let ((branch pyagentd--branch-dir)
           (buffer (save-window-excursion (pyagentd-inspect) (current-buffer))))
       (ignore branch)
       (with-current-buffer buffer
         (unwind-protect
             (progn (pyagentd-test-await (> (buffer-size) 0))
                    ,@body)
           (kill-buffer buffer))))))

(ert-deftest pyagentd-report-shows-lines-with-faces ()
  (inspect-test--with
    (should (equal (pyagentd-test-calls 'report)
                   `((:name "inspect" :arguments (:branch ,branch) :watch t))))
    (should (equal mode-name "Inspect"))
    (should (string-prefix-p "* demo/main  Demo\n  spent 12 in; $0.01\n"
                             (buffer-string)))
    (goto-char (point-min))
    (search-forward "$0.0")
    (should (eq 'error (get-text-property (point) 'face)))))

(ert-deftest pyagentd-report-folds-by-headings-of-its-own-only ()
  (inspect-test--with
    (goto-char (point-min))
    (search-forward "* Be brief.")
    (should (invisible-p (1- (point))))
    (let ((headings 0))
      (pyagentd-report--headings (lambda (_) (setq headings (1+ headings))))
      (should (= 4 headings)))))

(ert-deftest pyagentd-report-keeps-point-and-folds-when-fetched-again ()
  (inspect-test--with
    (goto-char (point-min))
    (search-forward "System prompt")
    (outline-show-subtree)
    (search-forward "What is it?")
    (outline-hide-subtree)
    (revert-buffer)
    (pyagentd-test-settle)
    (beginning-of-line)
    (should (looking-at-p "^\\* done"))
    (should (invisible-p (line-end-position)))
    (goto-char (point-min))
    (search-forward "* Be brief.")
    (should-not (invisible-p (1- (point))))))

(ert-deftest pyagentd-report-stays-in-each-window-as-it-is-shown ()
  (inspect-test--with
    (save-window-excursion
      (delete-other-windows)
      (switch-to-buffer buffer)
      (let ((window (split-window)))
        (goto-char (point-min))
        (search-forward "What is it?")
        (set-window-point window (point))
        (set-window-start window (line-beginning-position 0))
        (goto-char (point-min))
        (revert-buffer)
        (pyagentd-test-settle)
        (should (bobp))
        (goto-char (window-point window))
        (should (looking-back "What is it\\?" nil))
        (should (= (window-start window) (line-beginning-position 0)))))))

(ert-deftest pyagentd-report-that-takes-long-is-fetched-less-often ()
  (inspect-test--with
    (let ((print (symbol-function 'pyagentd-report-print))
          (pyagentd-live-pause 0.1)
          waits)
      (cl-letf (((symbol-function 'pyagentd-report-print)
                 (lambda (report) (sleep-for 0.3) (funcall print report))))
        (revert-buffer)
        (pyagentd-test-settle))
      (cl-letf (((symbol-function 'run-at-time)
                 (lambda (seconds &rest _) (push seconds waits))))
        (pyagentd-live--soon))
      (should (>= (car waits) 1.5)))))

(ert-deftest pyagentd-report-says-no-longer-than-it-is-so-that-no-daemon-runs ()
  (inspect-test--with
    (setq pyagentd-list--follows '("sessions"))
    (pyagentd-rpc-disconnect)
    (pyagentd-test-await (equal mode-line-process " no daemon"))
    (pyagentd-rpc-connect)
    (revert-buffer)
    (pyagentd-test-await (null mode-line-process))))

(ert-deftest pyagentd-report-opens-what-a-heading-names ()
  (inspect-test--with
    (goto-char (point-min))
    (should-error (pyagentd-report--visit) :type 'user-error)
    (search-forward "1 message")
    (pyagentd-test-answer 'report '(:title "Request"
                                    :lines ((:level 0 :parts ("{}")))))
    (save-window-excursion
      (call-interactively (key-binding (kbd "RET")))
      (pyagentd-test-settle))
    (should (equal (car (last (pyagentd-test-calls 'report)))
                   '(:name "request" :arguments (:run "run_1" :step 1) :watch t)))
    (with-current-buffer "*pyagentd request*"
      (should (equal (buffer-string) "{}\n"))
      (kill-buffer))))

(defun inspect-test--output (id &optional running)
  "Return the buffer of the output of the task ID, which can be ended if RUNNING."
  (pyagentd-test-answer
   'report (list :title "Output" :lines `((:level 0 :parts (,id)))
                 :actions (and running
                               `((:key "k" :label "end it"
                                  :operation "task-kill" :arguments (:id ,id))))))
  (let ((buffer (pyagentd-report-buffer "task" (list :id id) id)))
    (pyagentd-test-settle)
    buffer))

(ert-deftest pyagentd-report-has-keys-of-its-own-as-long-as-it-says-so ()
  (pyagentd-test-with-daemon
    (let ((first (inspect-test--output "task_1" t))
          (second (inspect-test--output "task_2" t)))
      (with-current-buffer first
        (call-interactively (key-binding "k"))
        (pyagentd-test-await (pyagentd-test-calls 'task-kill))
        (should (equal (pyagentd-test-calls 'task-kill) '((:id "task_1"))))
        (inspect-test--output "task_1")
        (should (eq (key-binding "k") #'undefined))
        (should (eq (key-binding "l") #'pyagentd-report--back)))
      (mapc #'kill-buffer (list first second)))))

;;;; Schedules

(ert-deftest pyagentd-schedule-elsewhere-says-when-it-comes ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer 'schedule-add '(:id "sch_3" :when "at 14:30"))
    (should (equal "Scheduled: at 14:30"
                   (pyagentd-test-said
                     (pyagentd-schedules--add :at "14:30" "Go on."))))))

(ert-deftest pyagentd-report-stays-where-lines-only-look-like-headings ()
  (with-temp-buffer
    (pyagentd-report-mode)
    (let ((report '(:title "Output"
                    :lines ((:level 0 :parts ("* ok\n* ok\n* ok\nlast"))))))
      (pyagentd-report-print report)
      (goto-char (point-min))
      (pyagentd-report-print report)
      (should (bobp)))))

(provide 'inspect-test)
;;; inspect-test.el ends here

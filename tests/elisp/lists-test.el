;;; lists-test.el --- Tests of lists of agents, grants and decisions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-views)

(defun lists-test--to (text)
  "Go to the line with TEXT."
  (goto-char (point-min))
  (search-forward text)
  (beginning-of-line))

;;;; What is asked

(defun lists-test--ask (id detail)
  "Return an ask ID about DETAIL."
  (append (list :id id :detail detail :what (concat "Bash " detail))
          pyagentd-test-ask))

(defun lists-test--answer (asks)
  "Have the daemon list ASKS."
  (pyagentd-test-answer
   'view (pyagentd-test-view '("What")
                             (mapcar (lambda (ask)
                                       (list (plist-get ask :id) (list :ask ask)
                                             nil (pyagentd-ask-title ask)))
                                     asks)
                             nil :follows '("asks"))))

(defmacro lists-test--with-asks (asks &rest body)
  "Evaluate BODY in the list of ASKS."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-ask
     (let ((asks ,asks))
       (lists-test--answer asks)
       (save-window-excursion (pyagentd-asks))
       (with-current-buffer "*pyagentd asks*"
         (unwind-protect
             (progn (pyagentd-test-await (= (length asks)
                                            (length pyagentd-table-rows)))
                    (pyagentd-test-settle)
                    ,@body)
           (kill-buffer))))))

(ert-deftest pyagentd-asks-that-are-marked-are-answered-together ()
  (lists-test--with-asks (list pyagentd-test-ask (lists-test--ask "q2" "ls")
                               (lists-test--ask "q3" "pwd"))
    (let (question)
      (setq pyagentd-table-marks '("q2" "q3"))
      (lists-test--answer (list pyagentd-test-ask))
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (prompt) (setq question prompt) t)))
        (call-interactively (key-binding "y")))
      (should (equal question "Allow 2 actions once (Bash ls; Bash pwd)? "))
      (pyagentd-test-await (cdr (pyagentd-test-calls 'answer)))
      (should (equal (sort (mapcar (lambda (call) (plist-get call :ask))
                                   (pyagentd-test-calls 'answer))
                           #'string<)
                     '("q2" "q3")))
      (revert-buffer)
      (pyagentd-test-await (= 1 (length pyagentd-table-rows)))
      (goto-char (point-min))
      (cl-letf (((symbol-function 'y-or-n-p) #'ignore))
        (call-interactively (key-binding "n")))
      (cl-letf (((symbol-function 'y-or-n-p) #'always))
        (call-interactively (key-binding "n")))
      (pyagentd-test-await (nthcdr 2 (pyagentd-test-calls 'answer)))
      (should (equal (plist-get (car (last (pyagentd-test-calls 'answer)))
                                :decision)
                     'deny)))))

(ert-deftest pyagentd-asks-that-are-marked-and-hidden-are-not-answered ()
  (lists-test--with-asks (list (lists-test--ask "q1" "make clean")
                               (lists-test--ask "q2" "ls")
                               (lists-test--ask "q3" "pwd"))
    (setq pyagentd-table-marks '("q1" "q2" "q3"))
    (pyagentd-table--filter "s")
    (pyagentd-table--filter "ls")
    (let (question)
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (prompt) (setq question prompt) t)))
        (call-interactively (key-binding "n")))
      (should (equal question "Deny 1 action (Bash ls)? ")))
    (pyagentd-test-await (pyagentd-test-calls 'answer))
    (should (equal (mapcar (lambda (call) (plist-get call :ask))
                           (pyagentd-test-calls 'answer))
                   '("q2")))
    (pyagentd-table--filter "pwd")
    (should (equal pyagentd-table-marks '("q1" "q3")))))

(ert-deftest pyagentd-asks-that-come-to-point-by-themselves-are-not-answered ()
  (lists-test--with-asks (list pyagentd-test-ask (lists-test--ask "q2" "ls")
                               (lists-test--ask "q3" "pwd"))
    (goto-char (point-min))
    (pyagentd-test-type "C-a")
    (should (equal "q1" (tabulated-list-get-id)))
    (lists-test--answer (list (lists-test--ask "q2" "ls")
                              (lists-test--ask "q3" "pwd")))
    (revert-buffer)
    (pyagentd-test-settle)
    (should (equal "q2" (tabulated-list-get-id)))
    (should-error (call-interactively (key-binding "y")) :type 'user-error)
    (should-not (pyagentd-test-calls 'answer))
    (pyagentd-test-type "y")            ; after one's own answer at once
    (lists-test--answer (list (lists-test--ask "q3" "pwd")))
    (revert-buffer)
    (pyagentd-test-settle)
    (call-interactively (key-binding "y"))
    (pyagentd-test-await (cdr (pyagentd-test-calls 'answer)))
    (should (equal (mapcar (lambda (call) (plist-get call :ask))
                           (pyagentd-test-calls 'answer))
                   '("q2" "q3")))))

(ert-deftest pyagentd-asks-with-marks-never-answer-what-is-at-point ()
  "Neither where only questions are marked nor where all are answered."
  (lists-test--with-asks
      (list pyagentd-test-ask
            (append (list :id "q2" :kind "question") pyagentd-test-ask))
    (cl-letf (((symbol-function 'y-or-n-p) #'always))
      (lists-test--to "Bash")
      (should (equal "q1" (tabulated-list-get-id)))
      (setq pyagentd-table-marks '("q2"))
      (should (string-prefix-p
               "Questions are answered one by one"
               (cadr (should-error (call-interactively (key-binding "y"))
                                   :type 'user-error))))
      (setq pyagentd-table-marks '("q2"))
      (pyagentd-ask-note-answered (pyagentd-ask-find "q2") t)
      (should-error (call-interactively (key-binding "n")) :type 'user-error)
      (setq pyagentd-table-marks (list "q2"))
      (cl-letf (((symbol-function 'pyagentd-live--soon) #'ignore))
        (pyagentd-ask-remove "q2"))     ; somebody else has answered it
      (lists-test--to "Bash")
      (should (equal "q1" (tabulated-list-get-id)))
      (dolist (key '("y" "n"))
        (should-error (call-interactively (key-binding key)) :type 'user-error))
      (should-not (pyagentd-test-calls 'answer)))))

;;;; Trust

(defun lists-test--preset (root name text)
  "Make the preset NAME with TEXT under ROOT; return what the daemon tells of it."
  (let ((file (expand-file-name (concat name ".md") root)))
    (write-region text nil file nil 'quiet)
    (list :name name :source file :origin "project"
          :hash (secure-hash 'sha256 (concat name "\0" text)))))

(ert-deftest pyagentd-trust-that-is-missing-is-said-where-a-preset-is-chosen ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer 'presets '(:presets ((:name "ours" :description "For us")
                                               (:name "broken" :error "line 1"))
                                     :untrusted ((:name "theirs"))))
    (pyagentd-test-tell 'fake-silent "" 'create-session)
    (let (prompt annotated)
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (said names &rest _)
                   (setq prompt said
                         annotated (mapcar (completion-metadata-get
                                            (completion-metadata "" names nil)
                                            'annotation-function)
                                           (all-completions "" names)))
                   "ours")))
        (pyagentd-session "mine" t)
        (pyagentd-test-await (pyagentd-test-calls 'create-session)))
      (should (equal "ours" (plist-get (car (pyagentd-test-calls
                                             'create-session))
                                       :preset)))
      (should (string-search "theirs of the project" prompt))
      (should (equal annotated '("  For us" "  line 1"))))))

(ert-deftest pyagentd-trust-shows-the-texts-and-trusts-what-was-shown ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer
     'report '(:title "Presets"
               :lines ((:level 1 :parts ("theirs"))
                       (:level 0 :parts ("  tools: [Bash]")))
               :actions ((:key "T" :label "trust what is shown"
                          :operation "trust-presets" :done "Trusted"
                          :question "Allow agents to be made from theirs?"
                          :arguments (:root "/x" :hashes ("abc"))))))
    (pyagentd-test-answer 'trust-presets '(:trusted ("theirs")))
    (save-window-excursion (pyagentd-report-show "presets"))
    (with-current-buffer "*pyagentd presets*"
      (pyagentd-test-await (> (buffer-size) 0))
      (should (string-search "tools: [Bash]" (buffer-string)))
      (should (string-search "T trust what is shown" header-line-format))
      (let (asked)
        (cl-letf (((symbol-function 'y-or-n-p)
                   (lambda (prompt) (setq asked prompt) nil)))
          (call-interactively (key-binding "T")))
        (should (string-search "made from theirs?" asked))
        (should-not (pyagentd-test-calls 'trust-presets)))
      (cl-letf (((symbol-function 'y-or-n-p) #'always))
        (call-interactively (key-binding "T")))
      (pyagentd-test-await
       (equal '((:root "/x" :hashes ("abc")))
              (pyagentd-test-calls 'trust-presets)))
      (kill-buffer))))

;;; lists-test.el ends here

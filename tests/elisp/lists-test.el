;;; lists-test.el --- Tests of lists of agents, grants and decisions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-views)
(require 'pyagentd-trust)

(defun lists-test--to (text)
  "Go to the line with TEXT."
  (goto-char (point-min))
  (search-forward text)
  (beginning-of-line))

;;;; What is asked

(defun lists-test--ask (id detail)
  "Return an ask ID about DETAIL."
  (append (list :id id :detail detail) pyagentd-test-ask))

(defmacro lists-test--with-asks (asks &rest body)
  "Evaluate BODY in the list of ASKS."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-ask
     (let ((asks ,asks))
       (pyagentd-test-answer 'asks (list :asks asks))
       (save-window-excursion (pyagentd-asks))
       (with-current-buffer "*pyagentd asks*"
         (unwind-protect
             (progn (pyagentd-test-await (= (length asks)
                                            (length pyagentd-table-rows)))
                    (pyagentd-test-settle)
                    ,@body)
           (kill-buffer))))))

(ert-deftest pyagentd-asks-that-are-marked-are-answered-together ()
  (pyagentd-test-with-ask
    (let ((ask (lambda (id) (plist-put (copy-sequence pyagentd-test-ask) :id id))))
      (pyagentd-test-answer 'asks (list :asks (list pyagentd-test-ask
                                                    (funcall ask "q2")
                                                    (funcall ask "q3"))))
      (save-window-excursion (pyagentd-asks))
      (with-current-buffer "*pyagentd asks*"
        (unwind-protect
            (let (question)
              (pyagentd-test-await (= 3 (length pyagentd-table-rows)))
              (setq pyagentd-table-marks '("q2" "q3"))
              (cl-letf (((symbol-function 'y-or-n-p)
                         (lambda (prompt) (setq question prompt) t)))
                (call-interactively (key-binding "y")))
              (should (equal question
                             (format "Allow 2 actions once (%s; %1$s)? "
                                     "Bash rm -rf build")))
              (pyagentd-test-await (cdr (pyagentd-test-calls 'answer)))
              (should (equal (sort (mapcar (lambda (call) (plist-get call :ask))
                                           (pyagentd-test-calls 'answer))
                                   #'string<)
                             '("q2" "q3")))
              (pyagentd-test-await (= 1 (length pyagentd-table-rows)))
              (goto-char (point-min))
              (cl-letf (((symbol-function 'y-or-n-p) #'ignore))
                (call-interactively (key-binding "d")))
              (cl-letf (((symbol-function 'y-or-n-p) #'always))
                (call-interactively (key-binding "d")))
              (pyagentd-test-await (nthcdr 2 (pyagentd-test-calls 'answer)))
              (should (equal (plist-get (car (last (pyagentd-test-calls 'answer)))
                                        :decision)
                             'deny)))
          (kill-buffer))))))

(ert-deftest pyagentd-asks-that-are-marked-and-hidden-are-not-answered ()
  (lists-test--with-asks (list (lists-test--ask "q1" "make clean")
                               (lists-test--ask "q2" "ls")
                               (lists-test--ask "q3" "pwd"))
    (setq pyagentd-table-marks '("q1" "q2" "q3"))
    (pyagentd-table-filter "s")
    (pyagentd-table-filter "ls")
    (let (question)
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (prompt) (setq question prompt) t)))
        (call-interactively (key-binding "d")))
      (should (equal question "Deny 1 action (Bash ls)? ")))
    (pyagentd-test-await (pyagentd-test-calls 'answer))
    (should (equal (mapcar (lambda (call) (plist-get call :ask))
                           (pyagentd-test-calls 'answer))
                   '("q2")))
    (pyagentd-table-filter "pwd")
    (should (equal pyagentd-table-marks '("q1" "q3")))))

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
               "Questions are marked"
               (cadr (should-error (call-interactively (key-binding "y"))
                                   :type 'user-error))))
      (setq pyagentd-table-marks '("q2"))
      (pyagentd-ask-note-answered (pyagentd-ask-find "q2") t)
      (should-error (call-interactively (key-binding "d")) :type 'user-error)
      (should-not (pyagentd-test-calls 'answer)))))

;;;; Trust

(defun lists-test--preset (root name text)
  "Make the preset NAME with TEXT under ROOT; return what the daemon tells of it."
  (let ((file (expand-file-name (concat name ".md") root)))
    (write-region text nil file nil 'quiet)
    (list :name name :source file :origin "project"
          :hash (secure-hash 'sha256 (concat name "\0" text)))))

(ert-deftest pyagentd-trust-shows-the-texts-before-it-asks ()
  (pyagentd-test-with-ask
    (let ((good (lists-test--preset root "theirs" "---\ntools: [Bash]\n---\nRun it."))
          (bad (lists-test--preset root "broken" "---\n"))
          shown)
      (pyagentd-test-answer 'presets `(:presets ((:name "ours"))
                                       :untrusted (,good (,@bad :error "line 1"))))
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (_) (setq shown (with-current-buffer (window-buffer)
                                           (buffer-string)))
                   t)))
        (pyagentd-trust-presets)
        (pyagentd-test-settle))
      (dolist (part '("theirs.md" "tools: [Bash]" "Cannot be used: line 1"))
        (should (string-search part shown)))
      (should-not (string-search "ours" shown))
      (should (equal (list (plist-get good :hash))
                     (plist-get (car (pyagentd-test-calls 'trust-presets))
                                :hashes))))))

(ert-deftest pyagentd-trust-is-not-asked-for-another-text ()
  (pyagentd-test-with-ask
    (let ((preset (lists-test--preset root "theirs" "harmless")))
      (lists-test--preset root "theirs" "harmful")
      (pyagentd-test-answer 'presets `(:untrusted (,preset)))
      (should (string-match-p "has changed just now"
                              (pyagentd-test-said (pyagentd-trust-presets))))
      (should-not (pyagentd-test-calls 'trust-presets)))))

(ert-deftest pyagentd-trust-refused-trusts-nothing ()
  (pyagentd-test-with-ask
    (pyagentd-test-answer 'presets
                          `(:untrusted (,(lists-test--preset root "theirs" "x"))))
    (let (asked)
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (_) (setq asked t) nil)))
        (pyagentd-trust-presets)
        (pyagentd-test-await asked)
        (pyagentd-test-settle)))
    (should-not (pyagentd-test-calls 'trust-presets))
    (pyagentd-test-answer 'presets '(:presets ((:name "ours"))))
    (should (string-match-p "No preset of .* needs to be trusted"
                            (pyagentd-test-said (pyagentd-trust-presets))))))

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
                         annotated (mapcar (plist-get completion-extra-properties
                                                      :annotation-function)
                                           names))
                   "ours")))
        (pyagentd-session "mine" t)
        (pyagentd-test-await (pyagentd-test-calls 'create-session)))
      (should (equal "ours" (plist-get (car (pyagentd-test-calls
                                             'create-session))
                                       :preset)))
      (should (string-search "theirs of the project" prompt))
      (should (equal annotated '("  For us" "  line 1"))))))

(ert-deftest pyagentd-trust-session-trusts-the-text-that-was-shown ()
  (pyagentd-test-with-ask
    (let* ((branch (expand-file-name "evil/branches/main" root))
           (text "---\nprofile: open\n---\n")
           (pyagentd-here-function
            (lambda () (list :branch-dir (concat branch "/agents/explorer-1"))))
           shown)
      (make-directory branch t)
      (write-region text nil (expand-file-name "preset.md" branch) nil 'quiet)
      (pyagentd-test-answer 'trust-session '(:foreign nil))
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (_) (setq shown (with-current-buffer (window-buffer)
                                           (buffer-string)))
                   nil)))
        (pyagentd-trust-session)
        (should (equal shown text))
        (should-not (pyagentd-test-calls 'trust-session)))
      (cl-letf (((symbol-function 'y-or-n-p) #'always))
        (pyagentd-trust-session))
      (pyagentd-test-await
       (equal (list :branch branch :sha256 (secure-hash 'sha256 text))
              (car (pyagentd-test-calls 'trust-session)))))))

;;; lists-test.el ends here

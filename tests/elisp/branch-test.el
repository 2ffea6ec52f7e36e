;;; branch-test.el --- Tests of branches -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-history)
(require 'pyagentd-views)

(defconst branch-test--text
  "### How do I\nmake tea?\n\nBoil water.\n\n### And coffee?\n\nGrind.\n\n### "
  "A conversation of two prompts.")

(defmacro branch-test-with-session (&rest body)
  "Evaluate BODY in the buffer of `branch-test--text', with a daemon.
The variable `new' is bound to the file of the branch that it makes."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let* ((file (pyagentd-test-file root branch-test--text))
            (new (pyagentd-test-file
                  root "### How do I\nmake tea?\n"
                  "sessions/demo-20260205143052/branches/20260301000000-x/session.md"))
            (dir (directory-file-name (file-name-directory new))))
       (pyagentd-test-answer 'attach '(:seq 0))
       (pyagentd-test-answer
        'branch-points
        '(:points ((:number 1 :message-id "m1" :start 1 :end 24
                            :text "How do I\nmake tea?")
                   (:number 2 :message-id "m3" :start 38 :end 54
                            :text "And coffee?"))))
       (pyagentd-test-answer
        'branch (list :branch dir :branch-dir dir :file new :parent "main"
                      :session-id "demo-20260205143052"
                      :branch-name "20260301000000-x" :position 1))
       (with-current-buffer (find-file-noselect file)
         ,@body))))

(ert-deftest pyagentd-branch-by-keys-visits-the-new-branch ()
  (branch-test-with-session
    (let (seen)
      (goto-char (point-min))
      (pyagentd-test-with-options seen
        (pyagentd-test-type "M-x pyagentd-branch RET RET e other SPC way RET"))
      (should (equal (mapcar #'car seen)
                     '("1  How do I make tea?" "2  And coffee?")))
      (should (equal (mapcar #'cadr seen) '("  line 1, 1%" "  line 6, 56%"))))
    (pcase-let ((`((:branch ,branch :position ,position :exclude ,exclude
                            :name ,name))
                 (pyagentd-test-calls 'branch)))
      (should (equal branch (directory-file-name (file-name-directory file))))
      (should (= position 1))
      (should exclude)
      (should (equal name "other way")))
    (should (equal buffer-file-name new))
    (should pyagentd-mode)
    (should (equal pyagentd--branch-name "20260301000000-x"))))

(ert-deftest pyagentd-branch-default-is-the-prompt-at-point ()
  (branch-test-with-session
    (goto-char 40)
    (pyagentd-test-type "M-x pyagentd-branch RET RET i RET")
    (pcase-let ((`(,call) (pyagentd-test-calls 'branch)))
      (should (= (plist-get call :position) 38))
      (should-not (plist-get call :exclude))
      (should (equal (plist-get call :name) "branch")))))

(ert-deftest pyagentd-branch-chooses-by-a-typed-number ()
  (branch-test-with-session
    (goto-char (point-max))
    (pyagentd-test-type "M-x pyagentd-branch RET 1 TAB RET i RET")
    (should (= (plist-get (car (pyagentd-test-calls 'branch)) :position) 1))))

(ert-deftest pyagentd-branch-from-lisp-asks-nothing ()
  (branch-test-with-session
    (pyagentd-branch "x" 'include 2)
    (pyagentd-test-settle)
    (should (equal (buffer-file-name (window-buffer)) new))
    (pcase-let ((`(,call) (pyagentd-test-calls 'branch)))
      (should (= (plist-get call :position) 38))
      (should (equal (plist-get call :name) "x")))
    (with-current-buffer (find-buffer-visiting file)
      (should (equal (pyagentd-test-said (pyagentd-branch "x" 'include 3))
                     "There is no prompt 3")))))

(ert-deftest pyagentd-branch-saves-first ()
  (branch-test-with-session
    (pyagentd-test-attach-now)
    (goto-char (point-max))
    (insert "Typed")
    (pyagentd-branch "x" 'include 1)
    (pyagentd-test-settle)
    (should (pyagentd-test-sent-p "Typed"))))

(ert-deftest pyagentd-branch-quit-anywhere-makes-nothing ()
  (branch-test-with-session
    (let ((quit (lambda (&rest _) (signal 'quit nil)))
          (quits 0))
      (cl-flet ((count-quit (&rest arguments)
                  (when (equal "Quit" (pyagentd-test-said
                                        (apply #'pyagentd-branch arguments)))
                    (setq quits (1+ quits)))))
        (cl-letf (((symbol-function 'completing-read) quit))
          (count-quit))
        (cl-letf (((symbol-function 'read-multiple-choice) quit))
          (count-quit nil nil 1))
        (cl-letf (((symbol-function 'read-string) quit))
          (count-quit nil 'include 1)))
      (should (= quits 3)))
    (should (equal buffer-file-name file))
    (should-not (pyagentd-test-calls 'branch))))

(ert-deftest pyagentd-branch-without-prompts-makes-nothing ()
  (branch-test-with-session
    (pyagentd-test-answer 'branch-points '(:points nil))
    (should (equal (pyagentd-test-said (pyagentd-branch))
                   "No prompt to branch at yet"))
    (should-not (pyagentd-test-calls 'branch))))

(ert-deftest pyagentd-branch-needs-a-session-buffer ()
  (with-temp-buffer
    (should (equal (cadr (should-error (pyagentd-branch) :type 'user-error))
                   "Not a gptel session buffer"))))

(ert-deftest pyagentd-branch-passes-on-why-not ()
  (branch-test-with-session
    (pyagentd-test-refuse 'branch "preset.md is missing" "put it back")
    (should (equal (pyagentd-test-said (pyagentd-branch "x" 'include 1))
                   "preset.md is missing (put it back)"))
    (should (equal buffer-file-name file))))

(ert-deftest pyagentd-branch-that-comes-too-late-goes-to-the-trash ()
  (branch-test-with-session
    (pyagentd-test-tell 'fake-silent "" 'branch)
    (let ((pyagentd-call-timeout 0.1) said)
      (cl-letf (((symbol-function 'pyagentd-later-tell)
                 (lambda (err) (setq said err))))
        (pyagentd-branch "x" 'include 1)
        (pyagentd-test-await (eq (car said) 'pyagentd-timeout))))
    (let* ((uid (caar pyagentd-rpc--pending)))
      (pyagentd-test-tell 'fake-raw
                          (format "(return %d (:branch %S :file %S))" uid dir new)))
    (pyagentd-test-await (pyagentd-test-calls 'delete))
    (should (equal (pyagentd-test-calls 'delete)
                   `((:branch ,dir :what "branch"))))))

;;;; Others

(defun branch-test--branches (root)
  "Return three branches under ROOT as the daemon tells them."
  (cl-loop for (name parent depth current) in
           '(("main" nil 0 nil) ("20260301000000-x" "main" 1 t)
             ("20260302000000-y" "20260301000000-x" 2 nil))
           for row = (pyagentd-test-row
                      root (concat "demo-20260205143052/branches/" name))
           collect (append (list :name name :parent parent :depth depth :last t
                                 :current current :agents depth
                                 :position (and parent 38)
                                 :created "2026-03-01T10:00:00Z")
                           row)))

(ert-deftest pyagentd-switch-branch-by-keys ()
  (branch-test-with-session
    (let ((branches (branch-test--branches root)) seen)
      (pyagentd-test-answer 'branches (list :branches branches))
      (pyagentd-test-answer 'switch (nth 2 branches))
      (pyagentd-test-with-options seen
        (pyagentd-test-type "M-x pyagentd-switch-branch RET 20260302 TAB RET"))
      (should (equal (mapcar #'car seen)
                     '("20260301000000-x" "20260302000000-y")))
      (should (string-match-p "current  from main" (cadr (car seen))))
      (should (equal (pyagentd-test-calls 'switch)
                     `((:branch ,(plist-get (nth 2 branches) :branch)))))
      (should (equal pyagentd--branch-name "20260302000000-y")))))

(defun branch-test--view (branches)
  "Return the list of BRANCHES as the daemon tells it."
  (pyagentd-test-view
   '("Branch")
   (mapcar (lambda (branch)
             (list (plist-get branch :branch) branch
                   (list :kind "session" :branch (plist-get branch :branch))
                   (concat (if (plist-get branch :current) "* " "  ")
                           (plist-get branch :name))))
           branches)
   '((:key "s" :label "make it current" :operation "switch"
      :takes ("branch") :done "Current branch: %s"))
   :current (plist-get (car branches) :branch)))

(defmacro branch-test-with-tree (&rest body)
  "Evaluate BODY in the tree of the branches of a session."
  (declare (indent 0) (debug t))
  `(branch-test-with-session
     (let ((branches (branch-test--branches root)))
       (pyagentd-test-answer 'branches (list :branches branches))
       (pyagentd-test-answer 'view (branch-test--view branches))
       (pyagentd-branches)
       (pyagentd-test-settle)
       (with-current-buffer "*pyagentd branches*"
         (unwind-protect (progn ,@body)
           (kill-buffer "*pyagentd branches*"))))))

(ert-deftest pyagentd-branches-begins-at-the-branch-of-the-buffer ()
  (branch-test-with-tree
    (should (equal (mapcar #'string-trim (seq-take (pyagentd-test-lines) 3))
                   '("main" "* 20260301000000-x" "20260302000000-y")))
    (should (equal (tabulated-list-get-id)
                   (plist-get (car branches) :branch)))))

(ert-deftest pyagentd-branches-switches-and-shows-it ()
  (branch-test-with-tree
    (setf (plist-get (nth 0 branches) :current) t
          (plist-get (nth 1 branches) :current) nil)
    (pyagentd-test-answer 'view (branch-test--view branches))
    (pyagentd-test-type "s")
    (should (equal (pyagentd-test-calls 'switch)
                   `((:branch ,(plist-get (nth 0 branches) :branch)))))
    (should (string-prefix-p " * main" (car (pyagentd-test-lines))))))

(ert-deftest pyagentd-branches-deletes-what-is-named-only-after-yes ()
  (branch-test-with-tree
    (pyagentd-test-answer 'delete '(:trashed ("/trash/x")))
    (forward-line 2)
    (pyagentd-test-answer 'deletions '(:deletions ((:what "branch" :words "branch y")
                                                   (:what "session" :words "all"))))
    (pyagentd-test-type "d b no RET")
    (should-not (pyagentd-test-calls 'delete))
    (pyagentd-test-type "d b yes RET")
    (should (equal (pyagentd-test-calls 'delete)
                   `((:branch ,(plist-get (nth 2 branches) :branch)
                              :what "branch"))))))

(ert-deftest pyagentd-branches-visit-and-branch ()
  (branch-test-with-tree
    (forward-line)
    (pyagentd-test-type "RET")
    (should (equal pyagentd--branch-name "20260301000000-x"))
    (with-current-buffer "*pyagentd branches*"
      (pyagentd-test-type "b 1 TAB RET i z RET"))
    (should (equal (plist-get (car (pyagentd-test-calls 'branch)) :branch)
                   (plist-get (nth 1 branches) :branch)))))

(ert-deftest pyagentd-branches-diff-is-shown ()
  (branch-test-with-tree
    (pyagentd-test-answer 'branch-diff "--- x\n+++ y\n-old\n+new")
    (should-error (pyagentd-branches--diff) :type 'user-error)
    (forward-line 2)
    (pyagentd-branches--diff)
    (pyagentd-test-settle)
    (should (equal (pyagentd-test-calls 'branch-diff)
                   `((:branch ,(plist-get (nth 2 branches) :branch)
                              :other ,(plist-get (nth 1 branches) :branch)))))
    (with-current-buffer "*Branch diff*"
      (should (derived-mode-p 'diff-mode))
      (should (string-match-p "^\\+new" (buffer-string))))
    (kill-buffer "*Branch diff*")))

;;; branch-test.el ends here

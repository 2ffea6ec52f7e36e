;;; mention-test.el --- Tests of @file and @agent -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)

(defmacro mention-test--with (&rest body)
  "Evaluate BODY in a session whose project has files and an agent."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-session "### Hi"
     (let ((project (expand-file-name "project" root)))
       (make-directory (expand-file-name "src" project) t)
       (dolist (name '("src/tea.py" "README.md"))
         (write-region "" nil (expand-file-name name project) nil 'quiet))
       (puthash (list 'files project) (list (float-time))
                pyagentd-complete--known)
       (puthash (list 'agents project)
                (list (float-time)
                      (pyagentd-mention--agent '(:name "reviewer" :mode all
                                                 :description "Reads\ncode")))
                pyagentd-complete--known)
       (pyagentd-test-attach :root project)
       (goto-char (point-max))
       ,@body)))

(defun mention-test--offered ()
  "Return what is offered at point."
  (pcase (pyagentd-mention-at-point)
    (`(,beg ,end ,table . ,_)
     (sort (all-completions (buffer-substring beg end) table) #'string<))))

(ert-deftest pyagentd-mention-files-and-agents-are-offered-after-an-at ()
  (mention-test--with
    (should-not (mention-test--offered))
    (insert " see @")
    (should (equal (mention-test--offered) '("README.md" "reviewer" "src/")))
    (insert "src/t")
    (should (equal (mention-test--offered) '("tea.py")))
    (insert " and me@")
    (should-not (mention-test--offered))))

(ert-deftest pyagentd-mention-what-git-knows-is-offered-by-any-part ()
  (mention-test--with
    (puthash (list 'files project)
             (cons (float-time) '("src/" "src/tea.py" "README.md"))
             pyagentd-complete--known)
    (insert " @tea")
    (pyagentd-test-type "TAB")
    (should (string-suffix-p "@src/tea.py " (buffer-string)))
    (insert "@revi")
    (pyagentd-test-type "TAB")
    (should (string-suffix-p "@reviewer " (buffer-string)))))

(ert-deftest pyagentd-mention-what-servers-offer-is-offered ()
  (mention-test--with
    (puthash (list 'resources pyagentd--branch-dir)
             (list (float-time)
                   (pyagentd-mention--resource
                    '(:mention "@docs:file:///a/b" :name "B"
                      :description "All of it")))
             pyagentd-complete--known)
    (insert " @do")
    (should (equal (mention-test--offered) '("docs:file:///a/b")))
    (should (string-search
             "All of it"
             (funcall (plist-get (nthcdr 3 (pyagentd-mention-at-point))
                                 :annotation-function)
                      "docs:file:///a/b")))
    (insert "cs:file:///a")
    (should (equal (mention-test--offered) '("docs:file:///a/b")))))

(ert-deftest pyagentd-mention-what-is-there-looks-so ()
  (mention-test--with
    (insert " see @src/tea.py, @reviewer. And me@README.md, @nobody\n@README.md")
    (goto-char (point-min))
    (let (found)
      (while (pyagentd-mention-look--match (point-max))
        (push (match-string-no-properties 1) found))
      (should (equal (nreverse found)
                     '("@src/tea.py" "@reviewer" "@README.md"))))))

(ert-deftest pyagentd-mention-that-is-shown-reaches-no-other-machine ()
  (mention-test--with
    (let* ((reached nil)
           (file-name-handler-alist
            (cons (cons "\\`/ssh:" (lambda (&rest call)
                                     (push call reached) nil))
                  file-name-handler-alist)))
      (insert " @/ssh:nowhere:/x @"
              (apply #'concat (make-list 20 "../")) "ssh:nowhere:/x"
              " @/etc @~ @../project/README.md")
      (goto-char (point-min))
      (should-not (pyagentd-mention-look--match (point-max)))
      (should-not reached))))

(ert-deftest pyagentd-mention-nothing-is-run-before-somebody-completes ()
  (mention-test--with
    (clrhash pyagentd-complete--known)
    (insert " @src")
    (let (asked)
      (cl-letf (((symbol-function 'pyagentd-rpc-call-async)
                 (lambda (method &rest _) (push method asked))))
        (pyagentd-complete--at-attach)
        (pyagentd-mention-look--match (point-max))
        (should (equal asked '(presets commands)))
        (pyagentd-mention-at-point)
        (should (equal asked '(mcp-resources project-files presets commands)))))))

(ert-deftest pyagentd-mention-there-is-none-in-an-answer ()
  (mention-test--with
    (insert (propertize " @re" 'gptel 'response))
    (should-not (mention-test--offered))))

(ert-deftest pyagentd-mention-tab-is-the-major-modes-elsewhere ()
  (mention-test--with
    (should-not (eq (key-binding (kbd "TAB")) #'completion-at-point))
    (insert " @x")
    (should (eq (key-binding (kbd "TAB")) #'completion-at-point))))

(provide 'mention-test)
;;; mention-test.el ends here

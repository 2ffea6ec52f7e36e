;;; turns-test.el --- Tests of going through turns -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)

(defun turns-test--here ()
  "Return what follows point on its line."
  (buffer-substring-no-properties (point) (line-end-position)))

(ert-deftest pyagentd-turns-keys-go-from-answer-to-answer ()
  (blocks-with
    (pyagentd-test-type "C-c ]")
    (should (equal (turns-test--here) "``` reasoning"))
    (pyagentd-test-type "C-c ]")
    (should (equal (turns-test--here) "Yes."))
    (should-error (pyagentd-chat--next-answer) :type 'user-error)
    (pyagentd-test-type "C-c [")
    (should (equal (turns-test--here) "``` reasoning"))))

(ert-deftest pyagentd-turns-are-like-functions-of-a-program ()
  (blocks-with
    (goto-char (point-max))
    (beginning-of-defun)
    (should (equal (turns-test--here) "### Second"))
    (beginning-of-defun)
    (should (equal (turns-test--here) "### First thing"))
    (end-of-defun)
    (should (equal (turns-test--here) "### Second"))))

(ert-deftest pyagentd-turns-of-imenu-are-prompts-and-headings ()
  (blocks-with
    (let ((index (pyagentd-turns-index)))
      (should (equal (mapcar #'car index)
                     '("1  First thing" "2  Second" "Headings")))
      (goto-char (cdr (nth 1 index)))
      (should (equal (turns-test--here) "Second"))
      (should (equal (caadr (nth 2 index)) "Found")))))

(ert-deftest pyagentd-turns-a-hidden-turn-is-none ()
  (blocks-with
    (with-silent-modifications
      (put-text-property (blocks-find "Second") (point-max) 'gptel 'ignore))
    (should (= (length (pyagentd-turns-prompts)) 1))))

(provide 'turns-test)
;;; turns-test.el ends here

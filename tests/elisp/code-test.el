;;; code-test.el --- Tests of copying code -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)

(defun code-test--copied (where keys)
  "Return what is copied when KEYS are typed at the text WHERE."
  (blocks-find where)
  (pyagentd-test-type keys)
  (current-kill 0))

(ert-deftest pyagentd-code-at-point-or-above-is-copied ()
  (blocks-with
    (should (equal (code-test--copied "print" "C-c M-w") "print(1)"))
    (should (equal (code-test--copied "``` python" "C-c M-w") "print(1)"))
    (should (equal (code-test--copied "two" "C-c M-w") "print(1)"))
    (should (equal (code-test--copied "That is" "C-c M-w")
                   "x = 1\n```\ny = 2"))
    (should (equal (code-test--copied "Second" "C-c M-w")
                   "x = 1\n```\ny = 2"))
    (goto-char (point-min))
    (should-error (pyagentd-copy-code) :type 'user-error)))

(ert-deftest pyagentd-code-an-answer-is-copied-without-its-blocks ()
  (blocks-with
    (should (equal (code-test--copied "That is" "C-u C-c M-w")
                   "Looking.\n\n``` python\nprint(1)\n```\n\n## Found\n
~~~~\nx = 1\n```\ny = 2\n~~~~\n\nThat is all."))
    (goto-char (point-max))
    (pyagentd-copy-answer)
    (should (equal (current-kill 0) "Yes."))))

(provide 'code-test)
;;; code-test.el ends here

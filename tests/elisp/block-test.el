;;; block-test.el --- Tests of the Local Variables block -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defconst block-test--body
  "### How many files?\n\nChecking 👩‍👩‍👧 e\u0301.\n\n``` tool (Bash :command \"ls\")\n(:name \"Bash\" :args (:command \"ls\"))\n\n7\n\n```\nSeven.\n\n### "
  "A conversation with a tool call.")

(defconst block-test--block
  "<!-- Local Variables: -->
<!-- gptel-model: claude-sonnet-4-6 -->
<!-- gptel--backend-name: \"Claude\" -->
<!-- gptel--tool-names: (\"Bash\") -->
<!-- gptel-temperature: 0.3 -->
<!-- gptel--bounds: ((tool (65 110 \"toolu_01A\")) (ignore (36 65) (110 115)) (response (22 34) (115 121))) -->
<!-- End: -->
"
  "The block of `block-test--body'.")

(defun block-test--strip (text)
  "Insert TEXT in the current buffer and strip its block."
  (insert text)
  (pyagentd-block-strip))

(defun block-test--restore (bounds)
  "Put the roles in BOUNDS, in gptel's form, on the text."
  (pyagentd-block-restore (pyagentd-block--spans bounds)))

(ert-deftest pyagentd-block-strip-leaves-the-body-with-its-roles ()
  (with-temp-buffer
    (should (= 1 (block-test--strip (concat block-test--body "\n\n"
                                            block-test--block))))
    (should (equal (buffer-string) block-test--body))
    (should (eq (get-text-property 22 'gptel) 'response))
    (should-not (get-text-property 21 'gptel))
    (should-not (get-text-property 34 'gptel))
    (should (equal (get-text-property 65 'gptel) '(tool . "toolu_01A")))
    (should (eq gptel-model 'claude-sonnet-4-6))
    (should (equal gptel--tool-names '("Bash")))))

(ert-deftest pyagentd-block-text-gives-the-same-block-back ()
  (with-temp-buffer
    (block-test--strip (concat block-test--body "\n\n" block-test--block))
    (should (equal (pyagentd-block-text) block-test--block))))

(ert-deftest pyagentd-block-strip-takes-one-newline-too ()
  (with-temp-buffer
    (block-test--strip (concat "text\n" block-test--block))
    (should (equal (buffer-string) "text")))
  (with-temp-buffer
    (block-test--strip (concat "text\n\n\n" block-test--block))
    (should (equal (buffer-string) "text\n"))))

(ert-deftest pyagentd-block-strip-of-an-empty-body ()
  (with-temp-buffer
    (block-test--strip (concat "\n\n" block-test--block))
    (should (equal (buffer-string) ""))))

(ert-deftest pyagentd-block-text-is-empty-when-there-is-nothing-to-say ()
  (with-temp-buffer
    (insert "### draft")
    (should (equal (pyagentd-block-text) ""))))

(ert-deftest pyagentd-block-strip-leaves-text-without-block-alone ()
  (dolist (text '("" "### a\n" "Local Variables:\nno end" "a\nEnd:\n"
                  "Local Variables:\nx: 1\nEnd:\n\nmore text"))
    (with-temp-buffer
      (should (= 0 (block-test--strip text)))
      (should (equal (buffer-string) text)))))

(ert-deftest pyagentd-block-of-other-comment-syntax-is-read ()
  (with-temp-buffer
    (block-test--strip
     "ab\n\n;; Local Variables:\n;; gptel--bounds: ((response (1 2)))\n;; End:\n")
    (should (equal (buffer-string) "ab"))
    (should (eq (get-text-property 1 'gptel) 'response))))

(ert-deftest pyagentd-block-longer-than-emacs-reads-is-read ()
  (with-temp-buffer
    (insert (make-string 4000 ?x))
    (cl-loop for pos from 1 below 4000 by 10 do
             (put-text-property pos (+ pos 5) 'gptel 'response))
    (let ((bounds (pyagentd-block-bounds))
          (block (pyagentd-block-text)))
      (should (> (length block) 3000))
      (goto-char (point-max))
      (block-test--strip (concat "\n\n" block))
      (should (= (buffer-size) 4000))
      (should (equal (pyagentd-block-bounds) bounds)))))

(ert-deftest pyagentd-block-old-bounds-are-responses ()
  (with-temp-buffer
    (insert "0123456789")
    (block-test--restore '((2 . 4) (6 . 8)))
    (should (equal (pyagentd-block-bounds) '((response (2 4) (6 8)))))))

(ert-deftest pyagentd-block-bounds-outside-the-text-are-ignored ()
  (with-temp-buffer
    (insert "0123456789")
    (let ((inhibit-message t))
      (block-test--restore
       '((response (0 3) (2 4) (5 99) (7 6) (x 3)) (tool (5 6 "id")))))
    (should (equal (pyagentd-block-bounds)
                   '((tool (5 6 "id")) (response (2 4)))))))

(ert-deftest pyagentd-block-nonsense-bounds-do-no-harm ()
  (with-temp-buffer
    (insert "0123456789")
    (let ((inhibit-message t))
      (dolist (bounds '(3 (1 2) ((response . 3)) "x" ((response 3))))
        (block-test--restore bounds)))
    (should-not (pyagentd-block-bounds))))

;; What is shared may go round: whoever looks at all of that never ends.
(ert-deftest pyagentd-block-values-that-go-round-are-not-read ()
  (with-temp-buffer
    (block-test--strip
     (concat "0123456789\n\n<!-- Local Variables: -->\n"
             "<!-- gptel--tool-names: (#1=\"Read\" #1#) -->\n"
             "<!-- gptel--bounds: ((response #1=(2 4)) (ignore #1#)) -->\n"
             "<!-- End: -->\n"))
    (should-not (pyagentd-block-get 'gptel--tool-names))
    (should-not (pyagentd-block-bounds))))

(ert-deftest pyagentd-block-tool-without-id-gets-one ()
  (with-temp-buffer
    (insert "0123456789")
    (block-test--restore '((tool (2 4) (6 8))))
    (should (equal (pyagentd-block-bounds)
                   '((tool (2 4 "call-2") (6 8 "call-6")))))))

(ert-deftest pyagentd-block-chunks-of-one-tool-are-one-span ()
  (with-temp-buffer
    (insert (propertize "ab" 'gptel (cons 'tool (copy-sequence "id")))
            (propertize "cd" 'gptel (cons 'tool (copy-sequence "id")) 'face 'bold)
            (propertize "ef" 'gptel (cons 'tool "other")))
    (should (equal (pyagentd-block-bounds) '((tool (1 5 "id") (5 7 "other")))))))

(ert-deftest pyagentd-block-duplicates-count-as-one ()
  "SPEC 001 Duplicate Local Variables cleanup."
  (with-temp-buffer
    (should (= 2 (block-test--strip
                  (concat block-test--body "\n\n" block-test--block "\n"
                          "<!-- Local Variables: -->\n<!-- gptel-model: other -->\n"
                          "<!-- gptel--bounds: nil -->\n<!-- End: -->\n"))))
    (should (equal (buffer-string) block-test--body))
    (should (eq gptel-model 'other))
    (should (eq (get-text-property 22 'gptel) 'response))))

(ert-deftest pyagentd-block-clean-keeps-the-last-valid-one ()
  "SPEC 001 Duplicate Local Variables cleanup."
  (let ((empty "<!-- Local Variables: -->\n<!-- gptel--bounds: nil -->\n<!-- End: -->\n")
        (inhibit-message t))
    (with-temp-buffer
      (insert block-test--body "\n\n"
              (replace-regexp-in-string "sonnet" "old" block-test--block) "\n"
              block-test--block "\n" empty)
      (pyagentd-session--clean-local-variables)
      (should (equal (buffer-string)
                     (concat block-test--body "\n\n" block-test--block))))
    (with-temp-buffer
      (insert "a\n\n" empty "\n" empty)
      (pyagentd-session--clean-local-variables)
      (should (equal (buffer-string) (concat "a\n\n" empty)))
      (pyagentd-session--clean-local-variables)
      (should (equal (buffer-string) (concat "a\n\n" empty))))))

(ert-deftest pyagentd-block-clean-leaves-other-blocks-alone ()
  (let ((text (concat "Local Variables:\nfill-column: 72\nEnd:\n\n"
                      "Local Variables:\nno end\n" block-test--block))
        (inhibit-message t))
    (with-temp-buffer
      (insert text)
      (pyagentd-session--clean-local-variables)
      (should (equal (buffer-string) text)))))

(ert-deftest pyagentd-block-in-a-code-block-is-a-quotation ()
  (let ((body (concat "### What is this?\n\n```\n" block-test--block "```\n\n### ")))
    (pyagentd-test-with-session body
      (should (equal (buffer-string) body))
      (goto-char (point-max))
      (insert "So?")
      (save-buffer)
      (revert-buffer t t)
      (should (equal (buffer-string) (concat body "So?"))))))

(ert-deftest pyagentd-block-is-not-sent-to-a-program-with-the-text ()
  (pyagentd-test-with-session "### Hi\n\nHello.\n\n### \n
<!-- Local Variables: -->\n<!-- gptel-model: m -->
<!-- gptel--bounds: ((response (9 15))) -->\n<!-- End: -->\n"
    (let ((text (buffer-substring-no-properties (point-min) (point-max))))
      (shell-command-on-region (point-min) (point-max) "cat" nil t)
      (should (equal (buffer-substring-no-properties (point-min) (point-max))
                     text)))))

(ert-deftest pyagentd-block-that-a-user-typed-stays ()
  (pyagentd-test-with-session "### Hi\n\nHello.\n\n### \n
<!-- Local Variables: -->\n<!-- gptel-model: m -->
<!-- gptel--bounds: ((response (9 15))) -->\n<!-- End: -->\n"
    (goto-char (point-max))
    (insert "Look:\n\n" block-test--block "\nWhat is it?")
    (let ((text (buffer-string)))
      (save-buffer)
      (revert-buffer t t)
      (should-not (buffer-modified-p))
      (should (equal (buffer-string) (substring-no-properties text)))
      (should (equal (pyagentd-block-bounds) '((response (9 15))))))))

(ert-deftest pyagentd-block-clean-leaves-what-a-model-said ()
  (pyagentd-test-with-session ""
    (goto-char (point-max))
    (insert (propertize block-test--block 'gptel 'response))
    (let ((text (buffer-string)) (inhibit-message t))
      (pyagentd-session--clean-local-variables)
      (should (equal (buffer-string) text)))))

(ert-deftest pyagentd-block-in-the-text-does-not-hide-our-own ()
  (pyagentd-test-with-session ""
    (goto-char (point-max))
    (insert "Look:\n\n" (string-trim-right block-test--block))
    (put-text-property 5 10 'gptel 'response)
    (let ((text (buffer-string)))
      (save-buffer)
      (revert-buffer t t)
      (should-not (buffer-modified-p))
      (should (equal (pyagentd-block-bounds) '((response (5 10)))))
      (should (equal (buffer-string) (substring-no-properties text))))))

(ert-deftest pyagentd-block-never-has-the-system-message ()
  "SPEC 001 System message isolation."
  (with-temp-buffer
    (block-test--strip
     (concat "ab\n\n<!-- Local Variables: -->\n<!-- fill-column: 72 -->\n"
             "<!-- gptel-system-prompt: \"Be terse.\" -->\n"
             "<!-- gptel--system-message: \"Be terse.\" -->\n"
             "<!-- gptel-model: m -->\n<!-- End: -->\n"))
    (should (equal (pyagentd-block-text)
                   (concat "<!-- Local Variables: -->\n<!-- gptel-model: m -->\n"
                           "<!-- fill-column: 72 -->\n<!-- End: -->\n")))))

(ert-deftest pyagentd-block-bounds-of-a-large-text-are-quick ()
  (with-temp-buffer
    (dotimes (i 2300)
      (insert (make-string 220 ?u)
              (propertize (make-string 220 ?r) 'gptel
                          (if (= 0 (% i 3)) (cons 'tool (format "toolu_%d" i))
                            'response))))
    (let ((time (car (benchmark-run 5 (pyagentd-block-text)))))
      (pyagentd-test-report "block of 2300 spans in 1 MB: %.1f ms" (* 200 time))
      (should (< time 5)))))

;;; block-test.el ends here

;;; fold-test.el --- Tests of folding blocks -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)

(defun fold-test--shown ()
  "Return what of the buffer is seen."
  (let ((pos (point-min)) (shown ""))
    (while (< pos (point-max))
      (let* ((next (next-char-property-change pos (point-max)))
             (display (get-char-property pos 'display)))
        (setq shown (concat shown
                            (cond ((invisible-p pos) "")
                                  ((stringp display) display)
                                  (t (buffer-substring-no-properties pos
                                                                     next))))
              pos next)))
    (substring-no-properties shown)))

(ert-deftest pyagentd-fold-blocks-are-lines ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (should (equal (substring (fold-test--shown) 0 (length (concat "\
### First thing\n\n▸ thought  3 lines\n\nLooking.\n\n``` python\nprint(1)\n```\
\n\n▸ Read :file_path \"a.py\"  2 lines\n## Found")))
                   "\
### First thing\n\n▸ thought  3 lines\n\nLooking.\n\n``` python\nprint(1)\n```\
\n\n▸ Read :file_path \"a.py\"  2 lines\n## Found"))
    (should-not (buffer-modified-p))))

(ert-deftest pyagentd-fold-tab-and-a-key-unfold-and-fold ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (blocks-find "``` tool")
    (pyagentd-test-type "TAB")
    (should (string-search "\none\ntwo\n```\n" (fold-test--shown)))
    (should (string-search "▸ thought" (fold-test--shown)))
    (blocks-find "two")
    (pyagentd-test-type "C-c M-f")
    (should-not (string-search "two" (fold-test--shown)))
    (should (looking-at-p "``` tool"))
    (pyagentd-test-type "C-u C-c M-f")
    (should (equal (fold-test--shown) (buffer-string)))
    (pyagentd-test-type "C-u C-c M-f")
    (should-not (string-search "two" (fold-test--shown)))
    (blocks-find "Looking")
    (should-error (pyagentd-fold-toggle) :type 'user-error)))

(ert-deftest pyagentd-fold-which-is-an-option ()
  (let ((pyagentd-fold '(reasoning)))
    (blocks-with
      (pyagentd-fold--find (point-min) (point-max))
      (should (string-search "▸ thought" (fold-test--shown)))
      (should (string-search "two" (fold-test--shown))))))

(ert-deftest pyagentd-fold-a-block-folds-when-it-is-complete ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     '(insert 1 "\n\n" nil)
     '(insert 1 "``` reasoning\n" ignore) '(insert 1 "Hm.\nSo." ignore))
    (should (string-search "So." (fold-test--shown)))
    (pyagentd-test-events '(insert 1 "\n```" ignore))
    (should (string-suffix-p "▸ thought  2 lines" (fold-test--shown)))
    (pyagentd-test-events
     '(insert 1 "\n\n" nil) '(insert 1 "``` tool (Bash :command \"ls\")" ignore)
     '(insert 1 "\n(:name \"Bash\" :args (:command \"ls\"))\n\na" (tool "id_2"))
     '(insert 1 "\n```\n" ignore))
    (should (string-suffix-p "▸ Bash :command \"ls\"  1 line\n"
                             (fold-test--shown)))))

(ert-deftest pyagentd-fold-blocks-that-come-together-fold-each ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     '(insert 1 "\n\n" nil) '(insert 1 "``` tool (Bash :command \"a\")" ignore)
     '(insert 1 "\n(:name \"Bash\" :args (:command \"a\"))\n\na" (tool "id_1"))
     '(insert 1 "\n```\n``` tool (Bash :command \"b\")" ignore)
     '(insert 1 "\n(:name \"Bash\" :args (:command \"b\"))\n\nb" (tool "id_2"))
     '(insert 1 "\n```\n``` tool (Bash :command \"c\")" ignore)
     '(insert 1 "\n(:name \"Bash\" :args (:command \"c\"))\n\nc" (tool "id_3"))
     '(insert 1 "\n```\n" ignore))
    (should (string-suffix-p
             (mapconcat (lambda (name)
                          (format "▸ Bash :command %S  1 line\n" name))
                        '("a" "b" "c") "")
             (fold-test--shown)))))

;; A call that is about to come, one that was there, and what a command says.
(ert-deftest pyagentd-fold-a-line-says-that-a-call-has-failed ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (should-not (string-search "✗" (fold-test--shown)))
    (pyagentd-failed-receive '("id_1"))
    (should (string-search "▸ Read :file_path \"a.py\"  ✗ one  2 lines\n"
                           (fold-test--shown)))
    (pyagentd-failed-receive nil)
    (should (string-search "✗ one" (fold-test--shown))))
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     '(failed 0 (:id "id_2"))
     '(insert 1 "\n\n" nil) '(insert 1 "``` tool (Edit :path \"a\")" ignore)
     '(insert 1 "\n(:name \"Edit\" :args (:path \"a\"))\n\nDenied." (tool "id_2"))
     '(insert 1 "\n```\n" ignore))
    (should (string-suffix-p "▸ Edit :path \"a\"  ✗ Denied.  1 line\n"
                             (fold-test--shown)))
    (pyagentd-test-events
     '(insert 2 "``` tool (Bash :command \"ls\")" ignore)
     '(insert 2 "\n(:name \"Bash\" :args (:command \"ls\"))\n\nno\n[exit code 2]"
              (tool "id_3"))
     '(insert 2 "\n```\n" ignore))
    (should (string-suffix-p "▸ Bash :command \"ls\"  ✗ exit code 2  2 lines\n"
                             (fold-test--shown)))
    (pyagentd-test-events
     '(failed 2 (:id "id_4"))
     '(insert 3 "``` tool (Write :content \"y = 2 \")" ignore)
     '(insert 3 "\n(:name \"Write\" :args (:content \"y = (2\n# \\\"\n\"))\n\nDenied."
              (tool "id_4"))
     '(insert 3 "\n```\n" ignore))
    (should (string-suffix-p "▸ Write :content \"y = 2 \"  ✗ Denied.  1 line\n"
                             (fold-test--shown)))))

(ert-deftest pyagentd-fold-few-of-many-blocks-have-overlays ()
  (blocks-with
    (let ((pyagentd-fold--most 10)
          (block (buffer-substring (blocks-find "``` tool")
                                   (progn (search-forward "two\n```\n") (point)))))
      (with-silent-modifications
        (goto-char (point-max))
        (dotimes (_ 30) (insert block)))
      (pyagentd-fold--find (point-min) (point-max))
      (should (<= (length pyagentd-fold--lines) 10))
      (let ((gone (text-property-any (point-min) (point-max) 'fontified nil)))
        (should gone)
        (pyagentd-fold--find gone (+ gone 100))
        (should (string-search "▸ Read" (fold-test--shown)))))))

(provide 'fold-test)
;;; fold-test.el ends here

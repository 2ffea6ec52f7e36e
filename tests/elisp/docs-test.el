;;; docs-test.el --- What the pages name is there -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; README.md, docs/*.md and the manual name commands, options and keys.

;;; Code:

(require 'test-helper)

(defconst docs-test--root
  (expand-file-name "../.." (file-name-directory
                             (or load-file-name buffer-file-name)))
  "The repository.")

(defun docs-test--pages ()
  "Return the pages for users."
  (append (list (expand-file-name "README.md" docs-test--root))
          (directory-files (expand-file-name "docs" docs-test--root)
                           t "\\.md\\'")
          (directory-files (expand-file-name "docs/manual" docs-test--root)
                           t "\\.org\\'")))

(defun docs-test--keymaps ()
  "Return our keymaps."
  (let (maps)
    (mapatoms (lambda (symbol)
                (when (and (string-prefix-p "pyagentd-" (symbol-name symbol))
                           (boundp symbol) (keymapp (symbol-value symbol)))
                  (push (symbol-value symbol) maps))))
    maps))

(defun docs-test--missing (function)
  "Return \"FILE:LINE: TEXT\" for what FUNCTION finds missing in the pages.
It is called in a buffer of each page, at its beginning, moves to what
the page names and returns its text where that is missing, t where it
is there, nil at the end."
  (pyagentd-test-load-all)
  (let (missing)
    (dolist (file (docs-test--pages))
      (with-temp-buffer
        (insert-file-contents file)
        (let (found)
          (while (setq found (funcall function))
            (unless (eq found t)
              (push (format "%s:%d: %s" (file-relative-name
                                         file docs-test--root)
                            (line-number-at-pos) found)
                    missing))))))
    (nreverse missing)))

;; A name is what stands behind a mark of code, a quote, a parenthesis or a
;; blank; not a file (pyagentd-0.1.0.tar).
(ert-deftest pyagentd-docs-name-what-lisp-has ()
  (should-not
   (docs-test--missing
    (lambda ()
      (when (re-search-forward
             "\\(?:^\\|[ `~('|#]\\)\\(M-x \\)?\\(pyagentd-[a-z][a-z-]*[a-z]\\)\\(?:[^a-z*./_-]\\|\\.?$\\|[.,] \\)"
             nil t)
        (let* ((command (match-string 1))
               (name (match-string 2))
               (symbol (intern-soft name)))
          (if (or (and command (commandp symbol))
                  (and (not command) symbol
                       (or (fboundp symbol) (boundp symbol) (facep symbol)
                           (featurep symbol)
                           (get symbol 'error-conditions)))
                  (locate-library name))
              t
            (concat command name))))))))

;; `M-x pyagentd-rename`, `-archive`: the second is pyagentd-archive.
(ert-deftest pyagentd-docs-name-short-what-lisp-has ()
  (should-not
   (docs-test--missing
    (lambda ()
      (when (re-search-forward
             "`M-x pyagentd-[a-z-]+`\\(\\(?:, `-[a-z-]+`\\)+\\)"
             nil t)
        (let ((lacking (seq-remove
                        (lambda (name)
                          (commandp (intern-soft (concat "pyagentd" name))))
                        (split-string (match-string 1) "[`, ]+" t))))
          (or (null lacking) (format "%S" lacking))))))))

;; Keys that begin with C-c are those of one of our keymaps.
(ert-deftest pyagentd-docs-name-keys-that-are-bound ()
  (let ((pyagentd-reply-options t) maps)
    (should-not
     (docs-test--missing
      (lambda ()
        (setq maps (or maps (docs-test--keymaps))) ; all files are loaded
        (when (re-search-forward
               "[`~]\\(?:C-u \\)*\\(C-c \\(?:RET\\|[CM]-[]a-zA-Z[]\\|[][0-9]\\)\\)[^`~\n]*[`~]"
               nil t)
          (let ((key (match-string 1)))
            (or (and (seq-some (lambda (map)
                                 (commandp (lookup-key map (kbd key))))
                               maps)
                     t)
                key))))))))

(provide 'docs-test)
;;; docs-test.el ends here

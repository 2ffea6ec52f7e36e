;;; lint.el --- Lint the Emacs Lisp files named on the command line  -*- lexical-binding: t; -*-

;; Run as: emacs --batch -l scripts/lint.el FILE...
;; Byte-compiles (warnings are errors) into a directory that is thrown away, then checkdoc, check-declare and, where it
;; is installed, package-lint.  Exits 1 when anything was found.

;;; Code:

(require 'package)
(require 'bytecomp)
(require 'checkdoc)
(require 'check-declare)
(package-initialize)

(defvar lint-found 0 "Number of findings so far.")

(defun lint-report (file line text)
  "Print a finding TEXT at LINE of FILE and count it."
  (setq lint-found (1+ lint-found))
  (message "%s:%s: %s" file (or line 1) text))

(defun lint-compile (file directory)
  "Byte-compile FILE into DIRECTORY with warnings as errors."
  (let ((byte-compile-error-on-warn t)
        (byte-compile-dest-file-function
         (lambda (source) (expand-file-name (concat (file-name-base source) ".elc") directory))))
    (unless (byte-compile-file file)
      (lint-report file nil "does not compile cleanly"))))

(defun lint-checkdoc (file)
  "Run checkdoc over FILE."
  (let ((checkdoc-verb-check-experimental-flag nil) ; it takes verbs of subordinate clauses for the main one
        (checkdoc-create-error-function
         (lambda (text start _end &optional _unfixable)
           (lint-report file (and start (line-number-at-pos start)) text)
           nil)))
    (with-current-buffer (find-file-noselect file)
      (checkdoc-current-buffer t))))

(defun lint-declarations (file)
  "Check that what FILE declares is defined where it says."
  (when (get-buffer check-declare-warning-buffer)
    (kill-buffer check-declare-warning-buffer))
  (check-declare-file file)
  (when-let* ((buffer (get-buffer check-declare-warning-buffer))
              (text (with-current-buffer buffer (string-trim (buffer-string))))
              ((string-search "Warning" text)))
    (lint-report file nil text)))

(defun lint-package (file)
  "Run package-lint over FILE where it is installed."
  (when (require 'package-lint nil t)
    (with-current-buffer (find-file-noselect file)
      (dolist (finding (with-no-warnings (package-lint-buffer)))
        (pcase-let ((`(,line ,_column ,_kind ,text) finding))
          (lint-report file line text))))))

(let ((directory (make-temp-file "lint" t))
      (files (mapcar #'expand-file-name command-line-args-left)))
  (setq command-line-args-left nil)
  (dolist (file files)
    (add-to-list 'load-path (file-name-directory file)))
  (unwind-protect
      (dolist (file files)
        (lint-compile file directory)
        (lint-checkdoc file)
        (lint-declarations file)
        (lint-package file))
    (delete-directory directory t))
  (message "%d files, %d findings" (length files) lint-found)
  (kill-emacs (if (zerop lint-found) 0 1)))

;;; lint.el ends here

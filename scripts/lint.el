;;; lint.el --- Lint the Emacs Lisp files named on the command line  -*- lexical-binding: t; -*-

;; Run as: emacs --batch -l scripts/lint.el FILE...
;; Byte-compiles (warnings are errors) into a directory that is thrown away, then checkdoc, check-declare and, where it
;; is installed, package-lint.  Exits 1 when anything was found.  Packages are looked for where Debian keeps their
;; sources too, so that an Emacs that is not Debian's finds them.

;;; Code:

(require 'package)
(require 'bytecomp)
(require 'checkdoc)
(require 'check-declare)
(require 'seq)
(package-initialize)
(setq vc-handled-backends nil) ; which nothing here needs
;; Without an archive at hand, what is installed or comes with Emacs can be installed.
(require 'finder-inf nil t)
(unless package-archive-contents
  (setq package-archive-contents
        (append package-alist
                (mapcar (lambda (builtin) (list (car builtin) (package--from-builtin builtin))) package--builtins))))

;; What an Emacs elsewhere has not in its `load-path'.
(dolist (directory (file-expand-wildcards "/usr/share/emacs/site-lisp/elpa-src/*/"))
  (unless (locate-library (replace-regexp-in-string "-[0-9.]+/?\\'" "" (file-name-nondirectory
                                                                        (directory-file-name directory))))
    (add-to-list 'load-path directory t)))

(defvar package-lint-main-file)
(defconst lint-main (expand-file-name "../elisp/pyagentd.el" (file-name-directory load-file-name))
  "The file with the headers of the package.")

(defvar lint-found 0 "Number of findings so far.")

(defun lint-report (file line text)
  "Print a finding TEXT at LINE of FILE and count it."
  (setq lint-found (1+ lint-found))
  (message "%s:%s: %s" file (or line 1) text))

(defun lint-compile (file directory)
  "Byte-compile FILE into DIRECTORY with warnings as errors.
An Emacs of its own does that, where nothing is loaded but what FILE requires.  The native compiler does the same when
the package is first used, and shows its warnings to the user."
  (with-temp-buffer
    (unless (eql 0 (call-process
                    (expand-file-name invocation-name invocation-directory) nil t nil "-Q" "--batch" "--eval"
                    (prin1-to-string
                     `(progn
                        (setq load-path ',load-path
                              byte-compile-error-on-warn t
                              byte-compile-dest-file-function
                              (lambda (source)
                                (expand-file-name (concat (file-name-base source) ".elc") ,directory)))
                        (kill-emacs (if (byte-compile-file ,file) 0 1))))))
      (lint-report file nil (concat "does not compile cleanly: " (string-trim (buffer-string)))))))

(defun lint-first-line (file)
  "Check that FILE is lexically bound, which only its first line can say."
  (with-temp-buffer
    (insert-file-contents file nil 0 200)
    (unless (looking-at ";;; .*-\\*- lexical-binding: t; -\\*-$")
      (lint-report file 1 "does not say lexical-binding on its first line"))))

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

(defconst lint-accepted
  '(("" . "should have a Homepage or URL header")       ; nothing is published yet
    ;; The one in Emacs 28 names no version, so asking for one would need an archive to install from.
    ("" . "Use a properly versioned dependency on \"transient\"")
    ("" . "uninstallable in all released Emacs versions") ; says a package-lint older than Emacs 28
    ;; Its names are those that other people's code calls.
    ("pyagentd-jf\\.el" . "start with \\(the \\)?package's prefix\\|non-standard separator `/'"))
  "What package-lint says and is not followed: (FILE . TEXT), regular expressions.")

(defun lint-accepted-p (file text)
  "Return non-nil if it is right that package-lint says TEXT of FILE."
  (seq-some (lambda (accepted)
              (and (string-match-p (car accepted) file) (string-match-p (cdr accepted) text)))
            lint-accepted))

(defun lint-package (file)
  "Run package-lint over FILE where it is installed."
  (when (require 'package-lint nil t)
    (with-current-buffer (find-file-noselect file)
      (dolist (finding (let ((package-lint-main-file lint-main))
                         (with-no-warnings (package-lint-buffer))))
        (pcase-let ((`(,line ,_column ,_kind ,text) finding))
          (unless (lint-accepted-p file text)
            (lint-report file line text)))))))

(let ((directory (make-temp-file "lint" t))
      (files (mapcar #'expand-file-name command-line-args-left)))
  (setq command-line-args-left nil)
  (dolist (file files)
    (add-to-list 'load-path (file-name-directory file)))
  (unwind-protect
      (dolist (file files)
        (lint-first-line file)
        (lint-compile file directory)
        (lint-checkdoc file)
        (lint-declarations file)
        (lint-package file))
    (delete-directory directory t))
  (message "%d files, %d findings" (length files) lint-found)
  (kill-emacs (if (zerop lint-found) 0 1)))

;;; lint.el ends here

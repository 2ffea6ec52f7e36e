;;; run.el --- Run all Emacs tests -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; emacs -Q --batch -l tests/elisp/run.el [REGEXP]
;;
;; Runs the tests whose names match REGEXP, by default all.  The exit
;; status is 0 if all passed; the last line says how many did.

;;; Code:

(defvar run-directory (file-name-directory load-file-name)
  "Directory of this file.")

(setq load-prefer-newer t)

;; Whatever the locale, there are the characters that the tests name.
(set-language-environment "UTF-8")
(set-terminal-coding-system 'utf-8-unix)

(dolist (site '("/usr/share/emacs/site-lisp/elpa"
                "/usr/share/emacs/site-lisp/elpa-src"
                "~/.emacs.d/elpa"))
  (dolist (package (and (file-directory-p site)
                        (directory-files site t "\\`[a-z].*-[0-9]")))
    (add-to-list 'load-path package t)))

(load (expand-file-name "test-helper.el" run-directory) nil t t)
(dolist (file (directory-files run-directory t "-test\\.el\\'"))
  (unless (featurep (intern (file-name-base file))) ; required by another
    (load file nil t t)))

(let* ((selector (or (pop command-line-args-left) t))
       (stats (ert-run-tests-batch selector))
       (failed (ert-stats-completed-unexpected stats)))
  (message "Emacs tests: %d passed, %d failed, %d skipped"
           (ert-stats-completed-expected stats) failed
           (ert-stats-skipped stats))
  (kill-emacs (if (zerop failed) 0 1)))

;;; run.el ends here

;;; pyagentd-visit.el --- Which files are sessions, and how they are visited -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;; This program is free software; you can redistribute it and/or modify
;; it under the terms of the GNU General Public License as published by
;; the Free Software Foundation, either version 3 of the License, or
;; (at your option) any later version.

;; This program is distributed in the hope that it will be useful,
;; but WITHOUT ANY WARRANTY; without even the implied warranty of
;; MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
;; GNU General Public License for more details.

;; You should have received a copy of the GNU General Public License
;; along with this program.  If not, see <https://www.gnu.org/licenses/>.

;;; Commentary:

;; A session is known by its name alone: .../branches/NAME/session.md or
;; .../agents/NAME/session.md.  What Emacs does with such a file before
;; any hook runs is decided here, by what it offers for that:
;;
;; - The text is of the user and of models.  Whatever looks like local
;;   variables in it is text: nothing in it is evaluated, chooses a mode or
;;   a coding system, or makes Emacs ask.
;; - `markdown-mode' looks at the whole text when it is turned on, which
;;   takes seconds for a long one.  It is shown none of it; the syntax is
;;   found where somebody looks (see `pyagentd-syntax').
;;
;; All other files pay for one match against their names.

;;; Code:

(require 'pyagentd-gc)

(declare-function pyagentd-session-maybe-initialize "pyagentd-session")

;;;###autoload
(progn
  (defconst pyagentd-visit-regexp
    ;; The first component of a remote name has a colon.
    (concat "\\`\\(?:~[^/]*\\|[A-Za-z]:\\|/[^/:]*\\)\\(?:/.*\\)?"
            "/\\(?:branches\\|agents\\)/[^/]+/session\\.md\\'")
    "Matches the names of session files on this machine.")

  (defconst pyagentd-visit-link-regexp "/current/session\\.md\\'"
    "Matches the names of session files behind the link to a branch.")

  (defun pyagentd-visiting-p ()
    "Return non-nil if the current buffer visits a session, by its name.
Neither the disk is looked at nor anything loaded."
    (when buffer-file-name
      (let ((case-fold-search nil))
        (string-match-p pyagentd-visit-regexp
                        (or buffer-file-truename buffer-file-name)))))

  (defun pyagentd-maybe-enable ()
    "Turn on `pyagentd-mode' if the current buffer visits a session.
On `find-file-hook'; does nothing, at once, for any other file."
    (when (pyagentd-visiting-p)
      (require 'pyagentd)
      (pyagentd-session-maybe-initialize)))

  (add-hook 'find-file-hook #'pyagentd-maybe-enable)
  (add-to-list 'magic-mode-alist
               '(pyagentd-visiting-p . pyagentd-visit-major-mode))
  (dolist (regexp (list pyagentd-visit-regexp pyagentd-visit-link-regexp))
    (add-to-list 'inhibit-local-variables-regexps regexp)
    (add-to-list 'auto-coding-alist (cons regexp 'utf-8))))

(defconst pyagentd-visit--glance 50000
  "Characters of text that a major mode may look at when it is turned on.
`markdown-mode' needs two microseconds for each.")

;;;###autoload
(defun pyagentd-visit-major-mode ()
  "Turn on the major mode that the name of the visited session asks for.
That is `text-mode' where no mode for Markdown is known, with prompts
in bold."
  (pyagentd-gc-postpone)
  (save-restriction
    (when (> (buffer-size) pyagentd-visit--glance)
      (narrow-to-region (point-min) (point-min)))
    (delay-mode-hooks
      (let ((magic-mode-alist
             (assq-delete-all #'pyagentd-visiting-p
                              (copy-sequence magic-mode-alist))))
        (set-auto-mode))
      (when (eq major-mode 'fundamental-mode)
        (text-mode)
        (font-lock-add-keywords nil '(("^#\\{1,6\\} .*" 0 'bold))))))
  (let ((inhibit-local-variables-regexps
         (cons (regexp-quote buffer-file-name) inhibit-local-variables-regexps))
        (enable-local-variables (pyagentd-visit--local-variables)))
    (run-mode-hooks)))

(defun pyagentd-visit--local-variables ()
  "Return a value of `enable-local-variables' with which Emacs asks nothing.
It is about variables of the directory only, those of the file are text."
  (if (memq enable-local-variables '(nil :all :safe)) enable-local-variables
    :safe))

(provide 'pyagentd-visit)
;;; pyagentd-visit.el ends here

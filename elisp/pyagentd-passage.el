;;; pyagentd-passage.el --- A text and where it is from -*- lexical-binding: t; -*-

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

;; How a prompt names a file, and how it has a part of a buffer: as a
;; block of code, under a line that says which part of what it is.

;;; Code:

(require 'subr-x)

(defun pyagentd-passage-name (file root)
  "Return the name of FILE for a prompt of a session whose project is in ROOT."
  (if (and root (file-in-directory-p file root))
      (file-relative-name file root)
    (abbreviate-file-name file)))

(defun pyagentd-passage--fenced (text language)
  "Return TEXT as a block of code in LANGUAGE, \"\" for none."
  (let ((fence "```"))
    (while (string-search fence text)
      (setq fence (concat fence "`")))
    (concat fence (if (string-empty-p language) "" (concat " " language)) "\n"
            (string-trim-right text "\n+") "\n" fence)))

(defun pyagentd-passage--language ()
  "Return the language of this buffer as a block of code names it."
  (let ((name (replace-regexp-in-string
               "\\(?:-ts\\)?-mode\\'" "" (symbol-name major-mode))))
    (pcase name
      ((or "fundamental" "text" "special") "")
      ((or "c++" "c-or-c++") "cpp")
      ((or "js" "js2" "javascript") "javascript")
      (_ name))))

(defun pyagentd-passage-origin (root)
  "Return what to call this buffer in a prompt; the project is in ROOT."
  (if buffer-file-name
      (format "`%s`" (pyagentd-passage-name buffer-file-name root))
    (format "the buffer `%s`" (buffer-name))))

(defun pyagentd-passage (beg end root)
  "Return the text between BEG and END with where it is from, for ROOT."
  (let ((first (line-number-at-pos beg t))
        (last (line-number-at-pos (max beg (1- end)) t)))
    (format "From %s, %s:\n\n%s"
            (pyagentd-passage-origin root)
            (if (= first last) (format "line %d" first)
              (format "lines %d–%d" first last))
            (pyagentd-passage--fenced (buffer-substring-no-properties beg end)
                                  (pyagentd-passage--language)))))

(provide 'pyagentd-passage)
;;; pyagentd-passage.el ends here

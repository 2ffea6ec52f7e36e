;;; pyagentd-tools-lisp.el --- Emacs Lisp for agents -*- lexical-binding: t; -*-

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

;; Tools of the category "lisp" that are there without being defined: the
;; documentation of symbols, and evaluation, which is always asked about.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-tools)

;;;; Documentation

(defun pyagentd-tools-lisp-describe (name)
  "Return the documentation of the Emacs Lisp symbol called NAME.
The values of variables are not told; they may be secret."
  (let ((symbol (intern-soft name)))
    (or (and symbol
             (string-join
              (delq nil (list (pyagentd-tools-lisp--function symbol)
                              (pyagentd-tools-lisp--variable symbol)
                              (pyagentd-tools-lisp--face symbol)))
              "\n\n"))
        "")))

(defun pyagentd-tools-lisp--function (symbol)
  "Return what there is to say of SYMBOL as a function, or nil."
  (when (fboundp symbol)
    (format "%s %S\n%s"
            (cond ((macrop symbol) "Macro")
                  ((commandp symbol) "Command")
                  (t "Function"))
            (cons symbol (help-function-arglist symbol t))
            (or (ignore-errors (documentation symbol)) "Not documented."))))

(defun pyagentd-tools-lisp--variable (symbol)
  "Return what there is to say of SYMBOL as a variable, or nil."
  (when-let ((text (or (documentation-property symbol 'variable-documentation)
                       (and (boundp symbol) (not (keywordp symbol))
                            "Not documented."))))
    (format "%s %s\n%s" (if (custom-variable-p symbol) "User option" "Variable")
            symbol text)))

(defun pyagentd-tools-lisp--face (symbol)
  "Return what there is to say of SYMBOL as a face, or nil."
  (when (facep symbol)
    (format "Face %s\n%s" symbol
            (or (documentation-property symbol 'face-documentation)
                "Not documented."))))

(defun pyagentd-tools-lisp--describe (name)
  "Return the documentation of the symbol called NAME, or of similar ones."
  (let ((text (pyagentd-tools-lisp-describe name)))
    (if (not (string-empty-p text)) text
      (let ((near (seq-take (sort (apropos-internal (regexp-quote name))
                                  #'string-lessp)
                            40)))
        (if near
            (format "There is no %s here. Symbols with it in their names: %s"
                    name (mapconcat #'symbol-name near ", "))
          (format "There is no %s here." name))))))

;;;; Evaluation

(defun pyagentd-tools-lisp--eval (expression)
  "Return the value of EXPRESSION, one form, and what it printed."
  (let* ((read (read-from-string expression))
         (rest (string-trim (substring expression (cdr read))))
         (value nil)
         (printed (with-output-to-string
                    (unless (string-empty-p rest)
                      (error "One form at a time; wrap them in progn"))
                    (setq value (eval (car read) t)))))
    (let ((print-length 1000) (print-level 20))
      (concat (unless (string-empty-p printed)
                (concat "Printed:\n" printed "\n"))
              "Value: " (prin1-to-string value)))))

;;;; The tools

(pyagentd-make-tool
 :name "emacs_describe" :category "lisp"
 :function #'pyagentd-tools-lisp--describe
 :description "Documentation of an Emacs Lisp function, variable or face \
in the user's Emacs, or symbols with a part of a name."
 :args '((:name "name" :type string :description "The symbol's name")))

(pyagentd-make-tool
 :name "emacs_eval" :category "lisp" :confirm 'always
 :function #'pyagentd-tools-lisp--eval
 :description "Evaluate one Emacs Lisp form in the user's Emacs; the user \
sees it first. Returns its value and what it printed."
 :args '((:name "expression" :type string
                :description "The form")))

(provide 'pyagentd-tools-lisp)
;;; pyagentd-tools-lisp.el ends here

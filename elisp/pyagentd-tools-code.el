;;; pyagentd-tools-code.el --- What Emacs knows about code, for agents -*- lexical-binding: t; -*-

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

;; Tools of the category "code" that are there without being defined:
;; definitions and references, outlines, diagnostics.  They work with what
;; the user has set up: a language server, a TAGS table, a checker.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-diagnostics)
(require 'pyagentd-tools)
(require 'pyagentd-tools-file)

(declare-function xref-find-backend "xref")
(declare-function xref-backend-definitions "xref")
(declare-function xref-backend-references "xref")
(declare-function xref-item-summary "xref" t t)
(declare-function xref-item-location "xref" t t)
(declare-function xref-location-marker "xref")
(declare-function xref-location-line "xref")
(declare-function xref-location-group "xref")
(declare-function imenu--make-index-alist "imenu")
(defvar project-find-functions)
(defvar project-vc-external-roots-function)

;;;; Definitions and references

(defun pyagentd-tools-code--xrefs (find identifier file)
  "Return the places that FIND has for IDENTIFIER, as seen from FILE."
  (require 'xref)
  (require 'project)
  (let* ((root default-directory)
         ;; Where there is no project the workspace is one.
         (project-find-functions
          (append project-find-functions
                  (list (lambda (_directory) (cons 'transient root))))))
    (pyagentd-tools-file-in
     file
     (lambda ()
       (goto-char (point-min))
       (when (search-forward identifier nil t)
         (goto-char (match-beginning 0)))
       (let ((backend (xref-find-backend))
             (project-vc-external-roots-function #'ignore)
             (inhibit-message t))
         (unless backend
           (error "Nothing here knows definitions in %s" file))
         (pyagentd-tools-file-places
          (delq nil (mapcar #'pyagentd-tools-code--xref
                            (seq-take
                             ;; The user has not visited the project.
                             (cl-letf (((symbol-function
                                         'project-remember-project)
                                        #'ignore))
                               (funcall find backend identifier))
                             (1+ pyagentd-tools-file-most))))
          (format "%s knows nothing of %s; use Grep" backend identifier)))))))

(defun pyagentd-tools-code--xref (xref)
  "Return XREF as a place, or nil."
  (let* ((location (xref-item-location xref))
         (line (ignore-errors (xref-location-line location)))
         (group (ignore-errors (xref-location-group location))))
    (if (and line group (file-name-absolute-p group))
        (list :file group :line line
              :text (string-trim (substring-no-properties
                                  (xref-item-summary xref))))
      (when-let ((marker (ignore-errors (xref-location-marker location))))
        (with-current-buffer (marker-buffer marker)
          (and buffer-file-name (pyagentd-tools-file-line marker)))))))

(defun pyagentd-tools-code--definitions (identifier file)
  "Return where IDENTIFIER, as it occurs in FILE, is defined."
  (pyagentd-tools-code--xrefs #'xref-backend-definitions identifier file))

(defun pyagentd-tools-code--references (identifier file)
  "Return where IDENTIFIER, as it occurs in FILE, is used."
  (pyagentd-tools-code--xrefs #'xref-backend-references identifier file))

;;;; Outline

(defun pyagentd-tools-code--outline (file)
  "Return what FILE defines, by imenu."
  (require 'imenu)
  (pyagentd-tools-file-in
   file
   (lambda ()
     (let ((places (pyagentd-tools-code--index
                    (imenu--make-index-alist t) "")))
       (pyagentd-tools-file-places
        (sort places (lambda (a b) (< (plist-get a :line) (plist-get b :line))))
        (format "%s has no outline in %s" file major-mode))))))

(defun pyagentd-tools-code--index (index prefix)
  "Return the entries of INDEX, an imenu alist, as places; names after PREFIX."
  (cl-loop for (name . rest) in index
           unless (equal name "*Rescan*")
           append (cond
                   ((consp rest)
                    (pyagentd-tools-code--index
                     (if (functionp (car rest)) nil rest)
                     (concat prefix name " / ")))
                   ((or (markerp rest) (natnump rest))
                    (list (list :file buffer-file-name
                                :line (line-number-at-pos rest t)
                                :text (concat prefix
                                              (substring-no-properties
                                               name))))))))

;;;; Diagnostics

(defun pyagentd-tools-code--diagnostics (file)
  "Return what checkers say about FILE, or about open files in the project.
FILE is nil for these, or a directory."
  (let* ((file-name-handler-alist nil)
         (root (expand-file-name (or file default-directory)))
         (found (seq-mapcat #'pyagentd-tools-code--checked
                            (pyagentd-tools-code--open root))))
    (pyagentd-tools-file-places
     found
     (if (pyagentd-tools-code--open root)
         "No diagnostics."
       "No file there is open with flymake or flycheck on; nothing is known."))))

(defun pyagentd-tools-code--open (root)
  "Return the buffers with a checker whose file is ROOT or below it."
  (let ((below (file-name-as-directory root)))
    (seq-filter
     (lambda (buffer)
       (with-current-buffer buffer
         (and buffer-file-name
              (pyagentd-diagnostics-on-p)
              (let ((name (expand-file-name (or buffer-file-truename
                                                buffer-file-name))))
                (or (equal name root) (string-prefix-p below name))))))
     (buffer-list))))

(defun pyagentd-tools-code--checked (buffer)
  "Return what checkers say about BUFFER, as places."
  (with-current-buffer buffer
    (mapcar (lambda (found)
              (list :file buffer-file-name
                    :line (plist-get found :line)
                    :text (format "%s: %s" (plist-get found :level)
                                  (plist-get found :text))))
            (pyagentd-diagnostics))))

;;;; The tools

(defconst pyagentd-tools-code--args
  '((:name "identifier" :type string
     :description "The name, as it is written there")
    (:name "file" :type string :path "read"
     :description "A file in which it occurs"))
  "Arguments of tools about a name.")

(pyagentd-make-tool
 :name "emacs_definitions" :category "code"
 :function #'pyagentd-tools-code--definitions
 :description "Where a name is defined, by what the user's Emacs has for \
the language (a language server, tags)."
 :args pyagentd-tools-code--args)

(pyagentd-make-tool
 :name "emacs_references" :category "code"
 :function #'pyagentd-tools-code--references
 :description "Where a name is used, by what the user's Emacs has for the \
language."
 :args pyagentd-tools-code--args)

(pyagentd-make-tool
 :name "emacs_outline" :category "code"
 :function #'pyagentd-tools-code--outline
 :description "What a file defines, with lines."
 :args '((:name "file" :type string :path "read"
                :description "The file")))

(pyagentd-make-tool
 :name "emacs_diagnostics" :category "code"
 :function #'pyagentd-tools-code--diagnostics
 :description "Errors and warnings that flymake or flycheck shows for a \
file or for all open files below a directory (default: the workspace)."
 :args '((:name "file" :type string :optional t :path "read"
                :description "A file or directory")))

(provide 'pyagentd-tools-code)
;;; pyagentd-tools-code.el ends here

;;; pyagentd-tools-emacs.el --- What Emacs knows about code, for agents -*- lexical-binding: t; -*-

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

;; Tools that are there without being defined: documentation, definitions
;; and references, outlines, diagnostics, compilation and evaluation.  They
;; work with what the user has set up: a language server, a TAGS table, a
;; checker.  Their categories are "code", "lisp" and "build".
;;
;; A file that is not open is visited for the moment, without its local
;; variables, without hooks, and nobody is asked anything.  It is one of
;; this machine, regular, and not large.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-tools)

(declare-function xref-find-backend "xref")
(declare-function xref-backend-definitions "xref")
(declare-function xref-backend-references "xref")
(declare-function xref-item-summary "xref" t t)
(declare-function xref-item-location "xref" t t)
(declare-function xref-location-marker "xref")
(declare-function xref-location-line "xref")
(declare-function xref-location-group "xref")
(declare-function imenu--make-index-alist "imenu")
(declare-function flymake-diagnostics "flymake")
(declare-function flymake-diagnostic-beg "flymake" t t)
(declare-function flymake-diagnostic-text "flymake" t t)
(declare-function flymake-diagnostic-type "flymake" t t)
(declare-function flycheck-error-line "ext:flycheck")
(declare-function flycheck-error-level "ext:flycheck")
(declare-function flycheck-error-message "ext:flycheck")
(declare-function compilation-start "compile")
(defvar compilation-finish-functions)
(defvar compilation-auto-jump-to-first-error)
(defvar project-find-functions)
(defvar project-vc-external-roots-function)
(defvar flycheck-current-errors)
(defvar tramp-mode)

(defconst pyagentd-tools-emacs--most 60
  "How many places a tool tells.")

(defconst pyagentd-tools-emacs--tail 12000
  "How many characters of a compilation's end a tool tells.")

(defconst pyagentd-tools-emacs--largest (* 5 1024 1024)
  "Bytes of the largest file that is visited for a tool.")

(defconst pyagentd-tools-emacs--modes
  '(doc-view-mode doc-view-mode-maybe pdf-view-mode archive-mode tar-mode
    image-mode)
  "Major modes that have programs or libraries decode a file; not for tools.")

;;;; Files

(defun pyagentd-tools-emacs--in-file (file function)
  "Return the value of FUNCTION, called in a buffer with FILE.
Buffers that were not there before are gone afterwards."
  (let ((before (buffer-list))
        (inhibit-interaction t)
        (find-file-hook nil))
    (unwind-protect
        (condition-case nil
            (with-current-buffer (pyagentd-tools-emacs--buffer file)
              (let ((tramp-mode (and (bound-and-true-p tramp-mode)
                                     (file-remote-p default-directory))))
                (save-excursion
                  (save-restriction
                    (widen)
                    (funcall function)))))
          (inhibited-interaction
           (error "Emacs would have to ask the user something for this, such \
as for a TAGS file; use Grep")))
      (dolist (buffer (buffer-list))
        (unless (or (memq buffer before) (not (buffer-file-name buffer))
                    (buffer-modified-p buffer))
          (kill-buffer buffer))))))

(defun pyagentd-tools-emacs--buffer (file)
  "Return the buffer that has FILE open, or one that visits it.
A file of another machine is not visited, nor one that may block Emacs."
  (or (let ((file-name-handler-alist nil))
        (find-buffer-visiting file))
      (and (file-remote-p file)
           (error "%s is on another machine and not open; ask the user to \
open it" file))
      (let ((file-name-handler-alist nil))
        (cond ((not (file-exists-p file)) (error "There is no file %s" file))
              ((not (file-regular-p file)) (error "%s is no file" file))
              ((not (file-readable-p file)) (error "%s is unreadable" file))
              ((> (file-attribute-size (file-attributes file))
                  pyagentd-tools-emacs--largest)
               (error "%s is larger than %s; use Grep" file
                      (file-size-human-readable
                       pyagentd-tools-emacs--largest))))
        (pyagentd-tools-emacs--visit file))))

(defun pyagentd-tools-emacs--visit (file)
  "Return a new buffer that visits FILE; nothing the user has set up runs."
  ;; Where the variables below are not local, all buffers have their values.
  (with-temp-buffer
    (let ((delay-mode-hooks t)
          (find-file-hook nil)
          (enable-local-variables nil)
          (enable-dir-local-variables nil)
          (inhibit-message t)
          (magic-mode-alist nil)
          (magic-fallback-mode-alist nil)
          (auto-mode-alist
           (seq-remove (pcase-lambda (`(,_ . ,mode))
                         (memq (if (consp mode) (car mode) mode)
                               pyagentd-tools-emacs--modes))
                       auto-mode-alist)))
      (find-file-noselect file t))))

(defun pyagentd-tools-emacs--line (position)
  "Return the place at POSITION of this buffer, with the text of its line."
  (save-excursion
    (goto-char position)
    (list :file buffer-file-name
          :line (line-number-at-pos nil t)
          :text (string-trim (buffer-substring-no-properties
                              (line-beginning-position) (line-end-position))))))

(defun pyagentd-tools-emacs--places (places none)
  "Return PLACES as the result of a tool, or the text NONE."
  (if (null places) none
    (list :places (vconcat (seq-take places pyagentd-tools-emacs--most))
          :text (if (> (length places) pyagentd-tools-emacs--most)
                    (format "%d places, of these the first %d:"
                            (length places) pyagentd-tools-emacs--most)
                  ""))))

;;;; Documentation

(defun pyagentd-tools-emacs-describe (name)
  "Return the documentation of the Emacs Lisp symbol called NAME.
The values of variables are not told; they may be secret."
  (let ((symbol (intern-soft name)))
    (or (and symbol
             (string-join
              (delq nil (list (pyagentd-tools-emacs--function symbol)
                              (pyagentd-tools-emacs--variable symbol)
                              (pyagentd-tools-emacs--face symbol)))
              "\n\n"))
        "")))

(defun pyagentd-tools-emacs--function (symbol)
  "Return what there is to say of SYMBOL as a function, or nil."
  (when (fboundp symbol)
    (format "%s %S\n%s"
            (cond ((macrop symbol) "Macro")
                  ((commandp symbol) "Command")
                  (t "Function"))
            (cons symbol (help-function-arglist symbol t))
            (or (ignore-errors (documentation symbol)) "Not documented."))))

(defun pyagentd-tools-emacs--variable (symbol)
  "Return what there is to say of SYMBOL as a variable, or nil."
  (when-let ((text (or (documentation-property symbol 'variable-documentation)
                       (and (boundp symbol) (not (keywordp symbol))
                            "Not documented."))))
    (format "%s %s\n%s" (if (custom-variable-p symbol) "User option" "Variable")
            symbol text)))

(defun pyagentd-tools-emacs--face (symbol)
  "Return what there is to say of SYMBOL as a face, or nil."
  (when (facep symbol)
    (format "Face %s\n%s" symbol
            (or (documentation-property symbol 'face-documentation)
                "Not documented."))))

(defun pyagentd-tools-emacs--describe (name)
  "Return the documentation of the symbol called NAME, or of similar ones."
  (let ((text (pyagentd-tools-emacs-describe name)))
    (if (not (string-empty-p text)) text
      (let ((near (seq-take (sort (apropos-internal (regexp-quote name))
                                  #'string-lessp)
                            40)))
        (if near
            (format "There is no %s here. Symbols with it in their names: %s"
                    name (mapconcat #'symbol-name near ", "))
          (format "There is no %s here." name))))))

;;;; Definitions and references

(defun pyagentd-tools-emacs--xrefs (find identifier file)
  "Return the places that FIND has for IDENTIFIER, as seen from FILE."
  (require 'xref)
  (require 'project)
  (let* ((root default-directory)
         ;; Where there is no project the workspace is one.
         (project-find-functions
          (append project-find-functions
                  (list (lambda (_directory) (cons 'transient root))))))
    (pyagentd-tools-emacs--in-file
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
         (pyagentd-tools-emacs--places
          (delq nil (mapcar #'pyagentd-tools-emacs--xref
                            (seq-take
                             ;; The user has not visited the project.
                             (cl-letf (((symbol-function
                                         'project-remember-project)
                                        #'ignore))
                               (funcall find backend identifier))
                             (1+ pyagentd-tools-emacs--most))))
          (format "%s knows nothing of %s; use Grep" backend identifier)))))))

(defun pyagentd-tools-emacs--xref (xref)
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
          (and buffer-file-name (pyagentd-tools-emacs--line marker)))))))

(defun pyagentd-tools-emacs--definitions (identifier file)
  "Return where IDENTIFIER, as it occurs in FILE, is defined."
  (pyagentd-tools-emacs--xrefs #'xref-backend-definitions identifier file))

(defun pyagentd-tools-emacs--references (identifier file)
  "Return where IDENTIFIER, as it occurs in FILE, is used."
  (pyagentd-tools-emacs--xrefs #'xref-backend-references identifier file))

;;;; Outline

(defun pyagentd-tools-emacs--outline (file)
  "Return what FILE defines, by imenu."
  (require 'imenu)
  (pyagentd-tools-emacs--in-file
   file
   (lambda ()
     (let ((places (pyagentd-tools-emacs--index
                    (imenu--make-index-alist t) "")))
       (pyagentd-tools-emacs--places
        (sort places (lambda (a b) (< (plist-get a :line) (plist-get b :line))))
        (format "%s has no outline in %s" file major-mode))))))

(defun pyagentd-tools-emacs--index (index prefix)
  "Return the entries of INDEX, an imenu alist, as places; names after PREFIX."
  (cl-loop for (name . rest) in index
           unless (equal name "*Rescan*")
           append (cond
                   ((consp rest)
                    (pyagentd-tools-emacs--index
                     (if (functionp (car rest)) nil rest)
                     (concat prefix name " / ")))
                   ((or (markerp rest) (natnump rest))
                    (list (list :file buffer-file-name
                                :line (line-number-at-pos rest t)
                                :text (concat prefix
                                              (substring-no-properties
                                               name))))))))

;;;; Diagnostics

(defun pyagentd-tools-emacs--diagnostics (file)
  "Return what checkers say about FILE, or about open files in the project.
FILE is nil for these, or a directory."
  (let* ((file-name-handler-alist nil)
         (root (expand-file-name (or file default-directory)))
         (found (seq-mapcat #'pyagentd-tools-emacs--checked
                            (pyagentd-tools-emacs--open root))))
    (pyagentd-tools-emacs--places
     found
     (if (pyagentd-tools-emacs--open root)
         "No diagnostics."
       "No file there is open with flymake or flycheck on; nothing is known."))))

(defun pyagentd-tools-emacs--open (root)
  "Return the buffers with a checker whose file is ROOT or below it."
  (let ((below (file-name-as-directory root)))
    (seq-filter
     (lambda (buffer)
       (with-current-buffer buffer
         (and buffer-file-name
              (or (bound-and-true-p flymake-mode)
                  (bound-and-true-p flycheck-mode))
              (let ((name (expand-file-name (or buffer-file-truename
                                                buffer-file-name))))
                (or (equal name root) (string-prefix-p below name))))))
     (buffer-list))))

(defun pyagentd-tools-emacs--checked (buffer)
  "Return what checkers say about BUFFER, as places."
  (with-current-buffer buffer
    (append
     (when (bound-and-true-p flymake-mode)
       (mapcar (lambda (found)
                 (list :file buffer-file-name
                       :line (line-number-at-pos
                              (flymake-diagnostic-beg found) t)
                       :text (format "%s: %s"
                                     (string-remove-prefix
                                      ":" (format "%s" (flymake-diagnostic-type
                                                        found)))
                                     (flymake-diagnostic-text found))))
               (flymake-diagnostics)))
     (when (bound-and-true-p flycheck-mode)
       (mapcar (lambda (found)
                 (list :file buffer-file-name
                       :line (or (flycheck-error-line found) 1)
                       :text (format "%s: %s" (flycheck-error-level found)
                                     (flycheck-error-message found))))
               flycheck-current-errors)))))

;;;; Compilation

(defun pyagentd-tools-emacs--compile (callback command)
  "Run COMMAND as a compilation and give its end and errors to CALLBACK.
Return a function that stops it."
  (require 'compile)
  (let* ((name (pyagentd-tools-emacs--compilation-name))
         (buffer (let (;; It was decided about as bash reads it, here.
                       (shell-file-name (pyagentd-tools-emacs--shell))
                       (shell-command-switch "-c")
                       (file-name-handler-alist nil))
                   (compilation-start command nil (lambda (_mode) name))))
         (process (get-buffer-process buffer)))
    (with-current-buffer buffer
      (setq-local compilation-auto-jump-to-first-error nil)
      (add-hook 'compilation-finish-functions
                (lambda (_buffer how)
                  (funcall callback
                           (pyagentd-tools-emacs--compiled buffer how)))
                nil t))
    (lambda () (when (process-live-p process) (interrupt-process process)))))

(defun pyagentd-tools-emacs--shell ()
  "Return the shell that Bash of the daemon has, or one like it."
  (let ((default-directory "/"))
    (or (seq-find #'file-executable-p '("/bin/bash" "/usr/bin/bash"))
        (executable-find "bash")
        "/bin/sh")))

(defun pyagentd-tools-emacs--compilation-name ()
  "Return the name of a buffer for a compilation of the session here.
None runs in it: to begin one would end the other."
  (let ((name (if pyagentd-tools-branch
                  (format "*pyagentd compilation: %s*"
                          (pyagentd-tools-emacs--session
                           pyagentd-tools-branch))
                "*pyagentd compilation*")))
    (if (get-buffer-process name) (generate-new-buffer-name name) name)))

(defun pyagentd-tools-emacs--session (branch)
  "Return what BRANCH, a directory, is called beside others."
  (replace-regexp-in-string
   "\\(?:\\`\\|/\\)branches/" "/"
   (string-remove-prefix
    (expand-file-name (file-name-as-directory pyagentd-sessions-directory))
    (directory-file-name (expand-file-name branch)))))

(defun pyagentd-tools-emacs--compiled (buffer how)
  "Return what happened in BUFFER, a compilation that ended as HOW says."
  (with-current-buffer buffer
    (let ((from (max (point-min)
                     (- (point-max) pyagentd-tools-emacs--tail))))
      (list :error (if (string-prefix-p "finished" how) :json-false t)
            :text (format "%s%s\n[%s]"
                          (if (> from (point-min)) "[Only the end is shown.]\n"
                            "")
                          (buffer-substring-no-properties from (point-max))
                          (string-trim how))))))

;;;; Evaluation

(defun pyagentd-tools-emacs--eval (expression)
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

(defun pyagentd-tools-emacs--define ()
  "Define the tools."
  (let ((file '(:name "file" :type string :path "read"
                      :description "A file in which it occurs"))
        (identifier '(:name "identifier" :type string
			    :description "The name, as it is written there")))
    (pyagentd-make-tool
     :name "emacs_describe" :category "lisp"
     :function #'pyagentd-tools-emacs--describe
     :description "Documentation of an Emacs Lisp function, variable or face \
in the user's Emacs, or symbols with a part of a name."
     :args '((:name "name" :type string :description "The symbol's name")))
    (pyagentd-make-tool
     :name "emacs_definitions" :category "code"
     :function #'pyagentd-tools-emacs--definitions
     :description "Where a name is defined, by what the user's Emacs has for \
the language (a language server, tags)."
     :args (list identifier file))
    (pyagentd-make-tool
     :name "emacs_references" :category "code"
     :function #'pyagentd-tools-emacs--references
     :description "Where a name is used, by what the user's Emacs has for the \
language."
     :args (list identifier file))
    (pyagentd-make-tool
     :name "emacs_outline" :category "code"
     :function #'pyagentd-tools-emacs--outline
     :description "What a file defines, with lines."
     :args '((:name "file" :type string :path "read"
		    :description "The file")))
    (pyagentd-make-tool
     :name "emacs_diagnostics" :category "code"
     :function #'pyagentd-tools-emacs--diagnostics
     :description "Errors and warnings that flymake or flycheck shows for a \
file or for all open files below a directory (default: the workspace)."
     :args '((:name "file" :type string :optional t :path "read"
		    :description "A file or directory")))
    (pyagentd-make-tool
     :name "emacs_compile" :category "build" :async t :confirm t :timeout 900
     :function #'pyagentd-tools-emacs--compile
     :description "Run a command for building or testing in the user's Emacs \
(M-x compile), with its environment and unconfined; the user can follow the \
errors there. Returns its output. For anything else use Bash."
     :args '((:name "command" :type string :command t
		    :description "The command line, such as: make test")))
    (pyagentd-make-tool
     :name "emacs_eval" :category "lisp" :confirm 'always
     :function #'pyagentd-tools-emacs--eval
     :description "Evaluate one Emacs Lisp form in the user's Emacs; the user \
sees it first. Returns its value and what it printed."
     :args '((:name "expression" :type string
		    :description "The form")))))

(pyagentd-tools-emacs--define)

(provide 'pyagentd-tools-emacs)
;;; pyagentd-tools-emacs.el ends here

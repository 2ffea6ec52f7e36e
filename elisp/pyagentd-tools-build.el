;;; pyagentd-tools-build.el --- Compilations for agents -*- lexical-binding: t; -*-

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

;; The tool of the category "build" that is there without being defined: a
;; command runs as a compilation, where the user can follow it.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-tools)

(declare-function compilation-start "compile")
(defvar compilation-finish-functions)
(defvar compilation-auto-jump-to-first-error)

(defconst pyagentd-tools-build--tail 12000
  "How many characters of a compilation's end a tool tells.")

;;;; Compilation

(defun pyagentd-tools-build--compile (callback command)
  "Run COMMAND as a compilation and give its end and errors to CALLBACK.
Return a function that stops it."
  (require 'compile)
  (let* ((name (pyagentd-tools-build--compilation-name))
         (buffer (let (;; It was decided about as bash reads it, here.
                       (shell-file-name (pyagentd-tools-build--shell))
                       (shell-command-switch "-c")
                       (file-name-handler-alist nil))
                   (compilation-start command nil (lambda (_mode) name))))
         (process (get-buffer-process buffer)))
    (with-current-buffer buffer
      (setq-local compilation-auto-jump-to-first-error nil)
      (add-hook 'compilation-finish-functions
                (lambda (_buffer how)
                  (funcall callback
                           (pyagentd-tools-build--compiled buffer how)))
                nil t))
    (lambda () (when (process-live-p process) (interrupt-process process)))))

(defun pyagentd-tools-build--shell ()
  "Return the shell that Bash of the daemon has, or one like it."
  (let ((default-directory "/"))
    (or (seq-find #'file-executable-p '("/bin/bash" "/usr/bin/bash"))
        (executable-find "bash")
        "/bin/sh")))

(defun pyagentd-tools-build--compilation-name ()
  "Return the name of a buffer for a compilation of the session here.
None runs in it: to begin one would end the other."
  (let ((name (if pyagentd-tools-branch
                  (format "*pyagentd compilation: %s*"
                          (pyagentd-tools-build--session
                           pyagentd-tools-branch))
                "*pyagentd compilation*")))
    (if (get-buffer-process name) (generate-new-buffer-name name) name)))

(defun pyagentd-tools-build--session (branch)
  "Return what BRANCH, a directory, is called beside others."
  (replace-regexp-in-string
   "\\(?:\\`\\|/\\)branches/" "/"
   (string-remove-prefix
    (expand-file-name (file-name-as-directory pyagentd-sessions-directory))
    (directory-file-name (expand-file-name branch)))))

(defun pyagentd-tools-build--compiled (buffer how)
  "Return what happened in BUFFER, a compilation that ended as HOW says."
  (with-current-buffer buffer
    (let ((from (max (point-min)
                     (- (point-max) pyagentd-tools-build--tail))))
      (list :error (if (string-prefix-p "finished" how) :json-false t)
            :text (format "%s%s\n[%s]"
                          (if (> from (point-min)) "[Only the end is shown.]\n"
                            "")
                          (buffer-substring-no-properties from (point-max))
                          (string-trim how))))))

;;;; The tool

(pyagentd-make-tool
 :name "emacs_compile" :category "build" :async t :confirm t :timeout 900
 :function #'pyagentd-tools-build--compile
 :description "Run a command for building or testing in the user's Emacs \
(M-x compile), with its environment and unconfined; the user can follow the \
errors there. Returns its output. For anything else use Bash."
 :args '((:name "command" :type string :command t
                :description "The command line, such as: make test")))

(provide 'pyagentd-tools-build)
;;; pyagentd-tools-build.el ends here

;;; pyagentd-ask-edit.el --- Edit what a tool is to do before allowing it -*- lexical-binding: t; -*-

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

;; An ask can be answered with other arguments than the model gave.  They
;; are edited in a buffer of their own: the text itself where one text is
;; what matters, such as a shell command or the content of a file, else
;; all of them as JSON.

;;; Code:

(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-ask)
(require 'pyagentd-ask-words)
(require 'pyagentd-ask-here)
(require 'pyagentd-answer)

(defvar pyagentd-ask-edit-fields
  '(("Bash" . "command") ("Write" . "content") ("Edit" . "new_string")
    ("PersistentAgent" . "prompt") ("task" . "prompt") ("WebFetch" . "url")
    ("WebSearch" . "query"))
  "The argument of each tool that is edited as a text of its own.")

(defvar-local pyagentd-ask-edit--ask nil
  "The ask whose arguments are in this buffer.")
(defvar-local pyagentd-ask-edit--field nil
  "Name of the argument in this buffer; nil if it holds all of them.")

(pyagentd-permanent-local 'pyagentd-ask-edit--ask 'pyagentd-ask-edit--field)

;;;; Arguments

(defun pyagentd-ask-edit--parse (text)
  "Return TEXT, the JSON of arguments, parsed; signal what is wrong with it."
  (let ((value (condition-case err
                   (pyagentd-json-table text)
                 (json-error
                  (user-error "Not JSON: %s" (error-message-string err))))))
    (unless (hash-table-p value)
      (user-error "Arguments are an object: {\"name\": value}"))
    value))

;;;; The buffer

(defvar pyagentd-ask-edit-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'pyagentd-ask-edit-finish)
    (define-key map (kbd "C-c C-k") #'pyagentd-ask-edit-cancel)
    map)
  "Keymap of `pyagentd-ask-edit-mode'.")

(define-minor-mode pyagentd-ask-edit-mode
  "Minor mode of buffers with the arguments of a call that is asked for.

\\{pyagentd-ask-edit-mode-map}"
  :lighter " Edited"
  :interactive nil
  (when pyagentd-ask-edit-mode
    (let ((what (pyagentd-ask-edit--what)))
      (pyagentd-ask-here-set
       pyagentd-ask-edit--ask
       (concat " " what (substitute-command-keys
                         "   \\<pyagentd-ask-edit-mode-map>\
\\[pyagentd-ask-edit-finish] allow with changes   \\[pyagentd-ask-edit-cancel] cancel"))
       (concat " (answered) " what (substitute-command-keys
                                    "   \\<pyagentd-ask-edit-mode-map>\
\\[pyagentd-ask-edit-cancel] close"))))))

(pyagentd-permanent-local 'pyagentd-ask-edit-mode)

(defun pyagentd-ask-edit--what ()
  "Return what this buffer holds, in words that are no mode line format."
  (string-replace
   "%" "%%"
   (let ((path (plist-get pyagentd-ask-edit--ask :path)))
     (format "%s: %s%s" (plist-get pyagentd-ask-edit--ask :tool)
             (or pyagentd-ask-edit--field "arguments")
             (if path (format " (%s)" (abbreviate-file-name path)) "")))))

(defun pyagentd-ask-edit--major-mode (tool field path)
  "Turn on a mode for FIELD, nil for all, of the arguments of TOOL.
PATH is the file they are about, or nil."
  (delay-mode-hooks
    (cond ((null field) (js-mode))
          ((equal tool "Bash") (sh-mode))
          (path (let ((buffer-file-name path) (enable-local-variables nil))
                  (set-auto-mode)))
          (t (text-mode)))))

(defun pyagentd-ask-edit--field (ask)
  "Return the argument of ASK that is edited as a text, or nil."
  (let ((field (cdr (assoc (plist-get ask :tool) pyagentd-ask-edit-fields))))
    (when (and field
               (stringp (gethash field (pyagentd-ask-arguments ask))))
      field)))

(defun pyagentd-ask-edit-buffer (ask field text)
  "Return a buffer for TEXT, which is FIELD of the arguments of ASK.
FIELD is nil if it is all of them."
  (with-current-buffer (get-buffer-create
                        (format "*edit: %s*" (truncate-string-to-width
                                              (pyagentd-ask-title ask)
                                              40 nil nil "…")))
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert text))
    (goto-char (point-min))
    (pyagentd-ask-edit--major-mode (plist-get ask :tool) field
                                   (plist-get ask :path))
    (font-lock-mode)
    (setq pyagentd-ask-edit--ask ask
          pyagentd-ask-edit--field field
          buffer-undo-list nil)
    (set-buffer-modified-p nil)
    (pyagentd-ask-edit-mode)
    (current-buffer)))

;;;###autoload
(defun pyagentd-ask-edit (&optional all)
  "Edit the arguments of the proposed call, and allow it with them.
The text itself where one matters, such as a shell command; with a prefix
argument, or ALL from Lisp, all of them as JSON."
  (interactive "P")
  (let* ((ask (pyagentd-answer-current))
         (arguments (or (pyagentd-ask-arguments ask)
                        (user-error "Nothing to edit")))
         (field (and (not all) (pyagentd-ask-edit--field ask))))
    (pop-to-buffer
     (pyagentd-ask-edit-buffer
      ask field (if field (gethash field arguments)
                  (concat (pyagentd-ask-text-json (plist-get ask :input)) "\n"))))))

(defun pyagentd-ask-edit--input ()
  "Return the arguments that the current buffer stands for, as JSON."
  (let ((text (buffer-substring-no-properties (point-min) (point-max))))
    (if (null pyagentd-ask-edit--field)
        (progn (pyagentd-ask-edit--parse text) text)
      (let ((arguments (pyagentd-ask-arguments pyagentd-ask-edit--ask)))
        (puthash pyagentd-ask-edit--field text arguments)
        (pyagentd-json-of-table arguments)))))

(defun pyagentd-ask-edit-finish ()
  "Allow the call with the arguments as they are here."
  (interactive nil pyagentd-ask-edit-mode)
  (let ((ask (pyagentd-answer-current)) (buffer (current-buffer))
        (input (pyagentd-ask-edit--input)))
    (pyagentd-answer-with
     ask 'allow :input input
     :then (lambda ()
             (when (buffer-live-p buffer)
               (pyagentd-ask-edit--quit buffer))))))

(defun pyagentd-ask-edit-cancel ()
  "Forget what was edited here; the question stays open."
  (interactive nil pyagentd-ask-edit-mode)
  (pyagentd-ask-edit--quit (current-buffer)))

(defun pyagentd-ask-edit--quit (buffer)
  "Kill BUFFER and put its window back."
  (if-let ((window (get-buffer-window buffer t)))
      (quit-window t window)
    (kill-buffer buffer)))

(provide 'pyagentd-ask-edit)
;;; pyagentd-ask-edit.el ends here

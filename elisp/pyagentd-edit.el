;;; pyagentd-edit.el --- Edit a text in a buffer -*- lexical-binding: t; -*-

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

;; Long values, such as a system prompt, are edited in a buffer and handed
;; over when they are finished.  A text that is refused stays there.

;;; Code:

(require 'pyagentd-core)

(defvar-local pyagentd-edit--finish nil
  "Function that is called with the text, and with what closes this buffer.")
(defvar-local pyagentd-edit--title nil
  "What is edited here, in words.")

(pyagentd-permanent-local 'pyagentd-edit--finish 'pyagentd-edit--title
                          'pyagentd-edit-mode)

(defvar pyagentd-edit-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'pyagentd-edit-finish)
    (define-key map (kbd "C-c C-k") #'pyagentd-edit-cancel)
    map)
  "Keymap of `pyagentd-edit-mode'.")

(define-minor-mode pyagentd-edit-mode
  "Minor mode of buffers in which a value is edited.

\\{pyagentd-edit-mode-map}"
  :lighter " Edit"
  :interactive nil
  (when pyagentd-edit-mode
    (setq header-line-format
          (string-replace
           "%" "%%"
           (concat " " pyagentd-edit--title
                   (substitute-command-keys "   \\<pyagentd-edit-mode-map>\
\\[pyagentd-edit-finish] save   \\[pyagentd-edit-cancel] cancel"))))))

(defun pyagentd-edit (title text mode finish)
  "Edit TEXT, which is called TITLE, in a buffer in MODE, a function.
FINISH is called with the text when it is finished, and with a function
that closes the buffer; it may call that later."
  (let ((buffer (get-buffer-create (format "*edit: %s*" title))))
    ;; What is being edited stays.
    (unless (buffer-local-value 'pyagentd-edit--finish buffer)
      (with-current-buffer buffer
        (insert text)
        (goto-char (point-min))
        (funcall mode)
        (setq pyagentd-edit--title title
              pyagentd-edit--finish finish
              buffer-undo-list nil)
        (set-buffer-modified-p nil)
        (pyagentd-edit-mode)))
    (pop-to-buffer buffer)))

(defun pyagentd-edit-finish ()
  "Save the text in this buffer as the value."
  (interactive nil pyagentd-edit-mode)
  (let ((buffer (current-buffer)))
    (funcall pyagentd-edit--finish
             (buffer-substring-no-properties (point-min) (point-max))
             (lambda () (pyagentd-edit--close buffer)))))

(defun pyagentd-edit-cancel ()
  "Discard the edit."
  (interactive nil pyagentd-edit-mode)
  (when (or (not (buffer-modified-p)) (y-or-n-p "Discard the changes? "))
    (pyagentd-edit--close (current-buffer))))

(defun pyagentd-edit--close (buffer)
  "Kill BUFFER and put its window back."
  (when (buffer-live-p buffer)
    (if-let ((window (get-buffer-window buffer t)))
        (quit-window t window)
      (kill-buffer buffer))))

(provide 'pyagentd-edit)
;;; pyagentd-edit.el ends here

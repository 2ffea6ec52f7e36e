;;; pyagentd-prompt.el --- Keys where a prompt is typed -*- lexical-binding: t; -*-

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

;; A prompt begins with `### ', which makes it a heading for Markdown.  It
;; is a place to type all the same: TAB does not fold it, and C-a goes to
;; its first word before it goes to the beginning of the line, so that
;; C-a C-k leaves a prompt.

;;; Code:

(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-session)

(defun pyagentd-prompt--words ()
  "Return where the words begin in the first line of a prompt, or nil.
That is nil unless point is in such a line."
  (save-excursion
    (forward-line 0)
    (and (looking-at (regexp-quote pyagentd-prompt-prefix))
         (not (get-text-property (point) 'gptel))
         (match-end 0))))

(defun pyagentd-prompt--typed-p ()
  "Return non-nil in the first line of the prompt that is being typed."
  (and (pyagentd-prompt--words)
       (save-restriction
         (widen)
         (not (text-property-not-all (line-beginning-position) (point-max)
                                     'gptel nil)))))

(defun pyagentd-prompt-nothing ()
  "Say that there is nothing to complete here."
  (interactive)
  (message "Nothing to complete here; / starts a command, @ a file name"))

(defun pyagentd-prompt--tab (command)
  "Return what TAB does here, COMMAND where something can be completed.
That is nil where it does what it does in the major mode."
  (or (pyagentd-session-completing command)
      (and (pyagentd-prompt--typed-p) #'pyagentd-prompt-nothing)))

(defun pyagentd-prompt-beginning (&optional n)
  "Go to the first word of the prompt in this line, or to its beginning.
In a prompt that is the first word at first and the line's beginning when
point is there already; elsewhere, and with N, it is what the key does
without `pyagentd-mode'."
  (interactive "^p")
  (let ((origin (point))
        (words (and (eql (or n 1) 1) (pyagentd-prompt--words))))
    (setq this-command
          (or (let ((pyagentd-mode nil))
                (command-remapping 'move-beginning-of-line))
              #'move-beginning-of-line))
    (funcall this-command (or n 1))
    (when (and words (> origin words) (< (point) words))
      (goto-char words))))

(define-key pyagentd-mode-map (kbd "TAB")
  '(menu-item "" completion-at-point :filter pyagentd-prompt--tab))
(define-key pyagentd-mode-map [remap move-beginning-of-line]
  #'pyagentd-prompt-beginning)

(provide 'pyagentd-prompt)
;;; pyagentd-prompt.el ends here

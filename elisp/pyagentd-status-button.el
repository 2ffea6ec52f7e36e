;;; pyagentd-status-button.el --- Parts of a header line to click -*- lexical-binding: t; -*-

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

;; Every part of a header line can be clicked, and says what that does.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)

(defvar pyagentd-status-button-map
  (let ((map (make-sparse-keymap)))
    (define-key map [header-line mouse-1] #'pyagentd-status-click)
    (define-key map [header-line mouse-2] #'pyagentd-status-click)
    map)
  "Keymap of the parts of a header line.")

(defun pyagentd-status-button (text command help)
  "Return TEXT as a part of the header line, a click on which runs COMMAND.
HELP says in a few words what that does."
  (let ((text (copy-sequence text)))
    (add-text-properties 0 (length text)
                         (list 'pyagentd-command command
                               'mouse-face 'highlight
                               'help-echo (concat help "\nmouse-1: "
                                                  (pyagentd-status--doing
                                                   command))
                               'local-map pyagentd-status-button-map)
                         text)
    text))

(defun pyagentd-status--doing (command)
  "Return how COMMAND is called, with its key."
  (let ((key (where-is-internal command pyagentd-mode-map t)))
    (concat (format "M-x %s" command)
            (and key (format " (%s)" (key-description key))))))

(defun pyagentd-status-click (event)
  "Run the command of the part of a header line that was clicked in EVENT."
  (interactive "e")
  (let* ((place (event-start event))
         (string (posn-string place))
         (command (and string (get-text-property (cdr string) 'pyagentd-command
                                                 (car string)))))
    (when command
      (select-window (posn-window place))
      (call-interactively command))))

(provide 'pyagentd-status-button)
;;; pyagentd-status-button.el ends here

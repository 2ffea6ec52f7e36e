;;; pyagentd-menubar.el --- Menu bar, right click -*- lexical-binding: t; -*-

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

;; For those who look for commands with the mouse: the menu "Agent" of
;; session buffers, and what a right click offers there
;; (`context-menu-mode').

;;; Code:

(require 'easymenu)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-ask)
(require 'pyagentd-chat)
(require 'pyagentd-display)

(autoload 'pyagentd-code-at "pyagentd-display")

(easy-menu-define pyagentd-menubar pyagentd-mode-map
  "Menu of session buffers."
  '("Agent"
    ["Send" pyagentd-send :active (not pyagentd-session-viewing)]
    ["Steer This Run" pyagentd-steer :active (pyagentd-status-busy-p)]
    ["Stop" pyagentd-abort :active (pyagentd-status-busy-p)]
    ["Allow Once" pyagentd-allow-once :active (pyagentd-ask-here)]
    ["Deny" pyagentd-deny :active (pyagentd-ask-here)]
    "---"
    ["Attach File…" pyagentd-attach-file]
    ["Yank Picture" pyagentd-yank-picture]
    ["Earlier Prompt…" pyagentd-recall-prompt]
    "---"
    ["Rewind to Prompt" pyagentd-rewind]
    ["Undo Rewind" pyagentd-unrewind]
    ["Edit Prompt and Send Again" pyagentd-edit-prompt]
    ["Regenerate" pyagentd-regenerate]
    ["Fork" pyagentd-fork]
    ["Branch Here" pyagentd-branch]
    "---"
    ["Copy Code" pyagentd-copy-code]
    ["Copy Answer" pyagentd-copy-answer]
    ["Fold All" pyagentd-fold-toggle-all]
    "---"
    ["Agent…" pyagentd-choose-agent]
    ["Model…" pyagentd-choose-model]
    ["Approvals" pyagentd-asks]
    ["Agents" pyagentd-agents]
    ["Changed Files" pyagentd-changes]
    ["Context and Cost" pyagentd-context]
    ["Inspect" pyagentd-inspect]
    "---"
    ["Sessions" pyagentd-sessions]
    ["Running Now" pyagentd-running]
    ["Usage of All Sessions" pyagentd-usage]
    ["Keys" pyagentd-keys]
    ["More…" pyagentd-menu]))

(defun pyagentd-menubar--there (position command)
  "Return a command that runs COMMAND with point at POSITION."
  (lambda ()
    (interactive)
    (goto-char position)
    (call-interactively command)))

(defun pyagentd-menubar--items (position)
  "Return what can be done with the text at POSITION, a list (WORDS . COMMAND)."
  (let ((role (get-text-property position 'gptel)))
    (append
     (and (pyagentd-fenced-start position)
          '(("Fold or Unfold" . pyagentd-fold-toggle)))
     (and (eq role 'response)
          (append (and (pyagentd-code-at position)
                       '(("Copy Code" . pyagentd-copy-code)))
                  '(("Copy Answer" . pyagentd-copy-answer)
                    ("Regenerate" . pyagentd-regenerate))))
     (and (null role)
          (seq-some (lambda (prompt)
                      (<= (car prompt) position (cdr prompt)))
                    (pyagentd-turns-prompts))
          '(("Rewind to This Prompt" . pyagentd-rewind)
            ("Edit and Send Again" . pyagentd-edit-prompt)
            ("Branch Here" . pyagentd-branch))))))

(defun pyagentd-menubar-context (menu click)
  "Add to MENU what can be done with the text at CLICK.
For `context-menu-functions'."
  (let* ((position (posn-point (event-start click)))
         (items (and position (pyagentd-menubar--items position))))
    (when items
      (define-key-after menu [pyagentd-separator] menu-bar-separator)
      (dolist (item items)
        (define-key-after menu (vector (cdr item))
          (list 'menu-item (car item)
                (pyagentd-menubar--there position (cdr item)))))))
  menu)

(add-to-list 'pyagentd-session-hooks
             '(context-menu-functions . pyagentd-menubar-context))
(put 'pyagentd-menubar-context 'permanent-local-hook t)

(provide 'pyagentd-menubar)
;;; pyagentd-menubar.el ends here

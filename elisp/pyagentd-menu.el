;;; pyagentd-menu.el --- Menu of session commands -*- lexical-binding: t; -*-

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

;; One transient with the commands of the package.

;;; Code:

(require 'transient)
(require 'pyagentd-chat)
(require 'pyagentd-queue)
(require 'pyagentd-history)
(require 'pyagentd-compact)
(require 'pyagentd-branch)
(require 'pyagentd-branches)
(require 'pyagentd-search)
(require 'pyagentd-index)
(require 'pyagentd-manage)
(require 'pyagentd-exchange)
(require 'pyagentd-list)
(require 'pyagentd-plan)
(require 'pyagentd-asks)
(require 'pyagentd-agents)
(require 'pyagentd-grants)
(require 'pyagentd-audit)
(require 'pyagentd-inspect)
(require 'pyagentd-mission)
(require 'pyagentd-schedules)
(require 'pyagentd-trust)
(require 'pyagentd-hooks)
(require 'pyagentd-snapshots)

(declare-function pyagentd-session "pyagentd")
(declare-function pyagentd-visit-preset "pyagentd")

(defun pyagentd-menu--somewhere-p ()
  "Return non-nil if there is a session that a command could act on."
  (ignore-errors (pyagentd-here)))

;;;###autoload (autoload 'pyagentd-menu "pyagentd-menu" nil t)
(transient-define-prefix pyagentd-menu ()
  "Commands of pyagentd.
Those on a session are for the one in this buffer, or at point where
sessions are listed."
  [["Conversation"
    ("RET" "Send" pyagentd-send)
    ("W" "Say to the run" pyagentd-steer)
    ("Q" "Queue" pyagentd-queue)
    ("k" "Abort" pyagentd-abort)
    ("L" "Agent" pyagentd-choose-agent)
    ("!" "Approve plan" pyagentd-approve)
    ("t" "Take over" pyagentd-take-over)]
   ["What is asked"
    ("y" "Allow once" pyagentd-allow-once)
    ("Y" "For this session" pyagentd-allow-session)
    ("P" "Always in project" pyagentd-allow-always)
    ("n" "Deny" pyagentd-deny)
    ("N" "Deny with a reason" pyagentd-deny-with-reason)
    ("=" "Diff" pyagentd-ask-diff)
    ("E" "Edit arguments" pyagentd-ask-edit)
    ("a" "Answer any" pyagentd-answer)
    ("o" "Pick an option" pyagentd-chips-pick)
    ("O" "Fold the steps" pyagentd-todo)
    ("q" "List" pyagentd-asks)]
   ["Agents and rights"
    ("g" "Agents" pyagentd-agents)
    ("G" "Grants" pyagentd-grants)
    ("u" "Audit" pyagentd-audit)
    ("M-i" "Inspect" pyagentd-inspect)
    ("m" "Mission" pyagentd-mission)
    ("M" "Its trace" pyagentd-mission-trace)
    ("M-s" "Schedules" pyagentd-schedules)
    ("T" "Trust presets" pyagentd-trust-presets)
    ("S" "Trust session" pyagentd-trust-session)
    ("H" "Hooks" pyagentd-hooks)
    ("C" "Changed files" pyagentd-changes)]
   ["Turns"
    ("U" "Rewind" pyagentd-rewind)
    ("z" "Reverse rewind" pyagentd-unrewind)
    ("X" "Edit prompt" pyagentd-edit-prompt)
    ("M-g" "Answer again" pyagentd-regenerate)
    ("M-n" "Next variant" pyagentd-next-variant)
    ("M-p" "Previous variant" pyagentd-previous-variant)
    ("h" "Show hidden" pyagentd-show-hidden)
    ("F" "Fork" pyagentd-fork)
    ("M-c" "Compact" pyagentd-compact)]
   ["Branches"
    :if pyagentd-menu--somewhere-p
    ("b" "Branch here" pyagentd-branch)
    ("w" "Switch to" pyagentd-switch-branch)
    ("v" "Tree" pyagentd-branches)]]
  [["Settings"
    ("p" "Preset" pyagentd-visit-preset)
    ("+" "Keep settings" pyagentd-keep-settings)
    ("-" "Drop settings" pyagentd-drop-settings)
    ("R" "What was recovered" pyagentd-show-recovery)
    ("$" "Context and cost" pyagentd-context)]
   ["This session"
    :if pyagentd-menu--somewhere-p
    ("r" "Rename" pyagentd-rename)
    ("D" "Duplicate" pyagentd-duplicate)
    ("e" "Export" pyagentd-export)
    ("A" "Archive" pyagentd-archive)
    ("x" "Delete" pyagentd-delete)]
   ["Sessions"
    ("s" "New session" pyagentd-session)
    ("l" "List" pyagentd-list-sessions)
    ("f" "Search" pyagentd-search)
    ("i" "Import chat" pyagentd-import)
    ("I" "Index anew" pyagentd-reindex)
    ("d" "Disconnect" pyagentd-rpc-disconnect)]])

(provide 'pyagentd-menu)
;;; pyagentd-menu.el ends here

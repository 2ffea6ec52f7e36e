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

;; Menus (transients) of all commands, with the present values: one for a
;; conversation, and from there others.

;;; Code:

(require 'transient)
(require 'pyagentd)
(require 'pyagentd-chat)
(require 'pyagentd-views)
(require 'pyagentd-history)
(require 'pyagentd-search)
(require 'pyagentd-here)
(require 'pyagentd-sessions)
(require 'pyagentd-list)
(require 'pyagentd-report)
(require 'pyagentd-mission)
(require 'pyagentd-trust)
(require 'pyagentd-ask)
(require 'pyagentd-add)
(require 'pyagentd-display)
(require 'pyagentd-model)
(require 'pyagentd-keys)

(declare-function pyagentd-session "pyagentd")
(declare-function pyagentd-visit-preset "pyagentd")
(declare-function pyagentd-doctor "pyagentd-install")
(declare-function pyagentd-agent-init "pyagentd-agents")
(declare-function pyagentd-agent-rename "pyagentd-agents")
(declare-function pyagentd-agent-config "pyagentd-agents")
(declare-function pyagentd-agent-destroy "pyagentd-agents")
(declare-function pyagentd-context-save "pyagentd-views")
(declare-function pyagentd-context-clear "pyagentd-views")
(declare-function pyagentd-context-restore "pyagentd-views")
(declare-function pyagentd-context-history "pyagentd-views")

;;;; Present values

(defun pyagentd-menu--value (name value)
  "Return NAME with VALUE, its present one; nil or \"\" for none."
  (if (member value '(nil ""))
      name
    (concat name " " (propertize (format "%s" value) 'face 'transient-value))))

(defun pyagentd-menu--session-p ()
  "Return non-nil if this buffer is a session."
  (bound-and-true-p pyagentd-mode))

(defun pyagentd-menu--somewhere-p ()
  "Return non-nil if there is a session that a command could act on."
  (ignore-errors (pyagentd-here)))

(defun pyagentd-menu--title ()
  "Return what the menu is about: the session here and what it does."
  (if (not (pyagentd-menu--session-p))
      "Conversation"
    (concat (propertize (truncate-string-to-width
                         (or pyagentd-status-title pyagentd--session-id "")
                         40 nil nil "…")
                        'face 'transient-heading)
            "  " (pyagentd-status--text pyagentd-status))))

(defun pyagentd-menu--queue ()
  "Return the queue with how many messages wait."
  (let ((number (or (plist-get pyagentd-status :queued) 0)))
    (pyagentd-menu--value "Queue" (and (> number 0) number))))

(defun pyagentd-menu--agent ()
  "Return the agent that answers next."
  (pyagentd-menu--value "Agent" (or pyagentd-plan-next pyagentd-plan--agent
                                    pyagentd-status-preset)))

(defun pyagentd-menu--setting (words key)
  "Return WORDS, which name the setting KEY, with the value it has."
  (concat
   (pyagentd-menu--value
    words
    (and (pyagentd-menu--session-p)
         (let ((value (pyagentd-model-value key)))
           (pcase key
             (:model (if (plist-member pyagentd-settings-next key) value
                       pyagentd-status-model))
             (:thinking (or value "off"))
             (:system (if value "edited" "preset.md"))
             (:tools (length (split-string (or value ""))))
             (_ (or value "default"))))))
   (and (plist-member pyagentd-settings-next key) " (next message)")))

(defun pyagentd-menu--model ()
  "Return the model that answers."
  (pyagentd-menu--setting "Model" :model))

(defun pyagentd-menu--temperature ()
  "Return the temperature."
  (pyagentd-menu--setting "Temperature" :temperature))

(defun pyagentd-menu--max-tokens ()
  "Return the maximum tokens of an answer."
  (pyagentd-menu--setting "Maximum tokens" :max-tokens))

(defun pyagentd-menu--thinking ()
  "Return the thinking effort."
  (pyagentd-menu--setting "Thinking" :thinking))

(defun pyagentd-menu--system ()
  "Return the system prompt, if it is another one for the next message."
  (pyagentd-menu--setting "System prompt" :system))

(defun pyagentd-menu--tools ()
  "Return how many tools there are."
  (pyagentd-menu--setting "Tools" :tools))

(defun pyagentd-menu--scope ()
  "Return what settings are chosen for."
  (pyagentd-menu--value "Set for" (if pyagentd-settings-next-only
                                      "next message only" "this session")))

(defun pyagentd-menu--next-p ()
  "Return non-nil if something is set for the next message only."
  pyagentd-settings-next)

(defun pyagentd-menu--asks ()
  "Return the list of approvals with how many wait in all sessions."
  (let ((number (length (pyagentd-ask-open))))
    (pyagentd-menu--value "List all" (and (> number 0) number))))

(defun pyagentd-menu--agents ()
  "Return the list of agents with how many work here."
  (let ((number (pyagentd-overlay--count)))
    (pyagentd-menu--value "Agents" (and (> number 0) number))))

(defun pyagentd-menu--context ()
  "Return the context with how full the window is."
  (pyagentd-menu--value
   "Context"
   (when-let ((used (plist-get pyagentd-context :used)))
     (format "%d%% %s" (round (* 100.0 used)
                              (max 1 (plist-get pyagentd-context :window)))
             (pyagentd-context--cost pyagentd-context)))))

(defun pyagentd-menu--steps ()
  "Return the list of steps with how far the agent is."
  (pyagentd-menu--value
   "Steps" (and pyagentd-todo (format "%d/%d" (pyagentd-todo--done)
                                      (length pyagentd-todo)))))

(defun pyagentd-menu--hidden ()
  "Return the hidden turns with whether they are shown."
  (pyagentd-menu--value
   "Hidden turns" (and pyagentd-hidden--overlays
                       (if pyagentd-hidden--shown "shown" "folded"))))

(defun pyagentd-menu--overridden ()
  "Return the settings that differ from preset.md."
  (pyagentd-menu--value
   "Save to preset.md"
   (and (pyagentd-menu--session-p)
        (mapconcat (lambda (variable)
                     (string-remove-prefix
                      "gptel-" (string-remove-prefix
                                "gptel--" (symbol-name variable))))
                   (pyagentd-settings-overridden) ", "))))

(defun pyagentd-menu--branch ()
  "Return the tree of branches with the name of the one here."
  (pyagentd-menu--value "Tree" pyagentd--branch-name))

(defun pyagentd-menu--daemon ()
  "Return how to connect to the daemon, or that this is connected."
  (pyagentd-menu--value "Connect" (and (pyagentd-rpc-connected-p) "(connected)")))

;;;; Options

(defmacro pyagentd-menu--define-option (name words variable values)
  "Define the command NAME, which lets VARIABLE have the next of VALUES.
WORDS says what the option is; VALUES is a list of (WORD . VALUE)."
  (declare (indent 2) (debug (symbolp stringp symbolp sexp)))
  `(progn
     (transient-define-suffix ,name ()
       ,(format "Switch `%s' to its next value, for this Emacs." variable)
       :transient t
       :description
       (lambda ()
         (pyagentd-menu--value ,words (or (car (rassoc ,variable ',values))
                                          (format "%S" ,variable))))
       (interactive)
       (setq ,variable (pyagentd-menu--next ,variable ',values)))))

(defun pyagentd-menu--next (value values)
  "Return the value that follows VALUE in VALUES, a list of (WORD . VALUE)."
  (cdar (or (cdr (member (rassoc value values) values)) values)))

(pyagentd-menu--define-option pyagentd-menu--in-fold
    "Fold" pyagentd-fold
  (("thoughts and tools" . (reasoning tool)) ("tools" . (tool))
   ("thoughts" . (reasoning)) ("nothing" . nil)))

(pyagentd-menu--define-option pyagentd-menu--in-pictures
    "Pictures" pyagentd-media-show
  (("shown" . t) ("links" . nil)))

(pyagentd-menu--define-option pyagentd-menu--in-revert
    "Buffers of changed files" pyagentd-revert-visited
  (("revert" . t) ("leave alone" . nil)))

(pyagentd-menu--define-option pyagentd-menu--in-notify
    "Desktop notifications" pyagentd-notify-desktop
  (("never" . nil) ("in the background" . background) ("always" . t)))

(pyagentd-menu--define-option pyagentd-menu--in-finished
    "Notify of finished runs" pyagentd-notify-finished
  (("no" . nil) ("on the desktop" . t)))

(pyagentd-menu--define-option pyagentd-menu--in-log
    "Log" pyagentd-log-level
  (("all" . debug) ("info" . info) ("warnings" . warn) ("errors" . error)))

;;;; Menus

;;;###autoload (autoload 'pyagentd-menu "pyagentd-menu" nil t)
(transient-define-prefix pyagentd-menu ()
  "Commands of pyagentd.
Those on a session are for the one in this buffer, or at point where
sessions are listed."
  [:description
   pyagentd-menu--title
   ["Send"
    ("RET" "Send" pyagentd-send)
    ("W" "Steer this run" pyagentd-steer)
    ("Q" pyagentd-queue :description pyagentd-menu--queue)
    ("k" "Abort" pyagentd-abort)
    ("L" pyagentd-choose-agent :description pyagentd-menu--agent)
    ("!" "Approve plan" pyagentd-approve)
    ("#" "Pick an option" pyagentd-reply-options-pick)
    ("t" "Take over" pyagentd-take-over)]
   ["Approvals"
    ("y" "Allow once" pyagentd-allow-once)
    ("s" "Allow in session" pyagentd-allow-session)
    ("a" "Allow in project" pyagentd-allow-always)
    ("d" "Deny" pyagentd-deny)
    ("r" "Deny with reason" pyagentd-deny-with-reason)
    ("e" "Edit arguments" pyagentd-ask-edit)
    ("=" "Diff" pyagentd-ask-diff)
    ("E" "Ediff" pyagentd-ask-ediff)
    ("o" "Details" pyagentd-ask-show)
    ("w" "Answer next" pyagentd-answer)
    ("l" pyagentd-asks :description pyagentd-menu--asks)]
   ["Turns"
    ("U" "Rewind" pyagentd-rewind)
    ("z" "Undo rewind" pyagentd-unrewind)
    ("X" "Edit prompt" pyagentd-edit-prompt)
    ("M-g" "Regenerate" pyagentd-regenerate)
    ("M-n" "Next variant" pyagentd-next-variant)
    ("M-p" "Previous variant" pyagentd-previous-variant)
    ("F" "Fork" pyagentd-fork)
    ("M-c" "Compact" pyagentd-compact)
    ("C" "Changed files" pyagentd-changes)]]
  [["Model and tools"
    :if pyagentd-menu--session-p
    ("-=" pyagentd-model-switch-scope :description pyagentd-menu--scope
     :transient t)
    ("*" pyagentd-choose-model :description pyagentd-menu--model :transient t)
    ("-t" pyagentd-choose-temperature
     :description pyagentd-menu--temperature :transient t)
    ("-c" pyagentd-choose-max-tokens
     :description pyagentd-menu--max-tokens :transient t)
    ("-e" pyagentd-choose-thinking
     :description pyagentd-menu--thinking :transient t)
    ("-s" pyagentd-edit-system-prompt :description pyagentd-menu--system)
    ("-T" pyagentd-choose-tools :description pyagentd-menu--tools)
    ("-0" "Forget for next message" pyagentd-model-forget-next
     :if pyagentd-menu--next-p :transient t)]
   ["Add to prompt"
    ("i" "File" pyagentd-add-files)
    ("I" "Copied picture" pyagentd-yank-picture)
    ("H" "Earlier prompt" pyagentd-recall-prompt)
    ""
    "View"
    ("$" pyagentd-context :description pyagentd-menu--context)
    ("g" pyagentd-agents :description pyagentd-menu--agents)
    ("M-i" "Inspect" pyagentd-inspect)]
   ["Text"
    ("c" "Copy code" pyagentd-copy-code)
    ("TAB" "Fold all" pyagentd-fold-toggle-all)
    ("h" pyagentd-show-hidden :description pyagentd-menu--hidden)
    ("O" pyagentd-todo :description pyagentd-menu--steps)]
   ["More"
    ("S" "Sessions…" pyagentd-menu--in-sessions)
    ("A" "Agents…" pyagentd-menu--in-agents)
    ("R" "Permissions…" pyagentd-menu--in-rights)
    ("P" "Settings…" pyagentd-menu--in-settings)
    ("?" "Keys" pyagentd-keys)
    ("q" "Quit" transient-quit-one)]])

(transient-define-prefix pyagentd-menu-model ()
  "Model, temperature, tools and system prompt.
They are set for this session, or for the next message only."
  [:description
   pyagentd-menu--title
   ["Model and tools"
    ("-=" pyagentd-model-switch-scope :description pyagentd-menu--scope
     :transient t)
    ("*" pyagentd-choose-model :description pyagentd-menu--model :transient t)
    ("-t" pyagentd-choose-temperature
     :description pyagentd-menu--temperature :transient t)
    ("-c" pyagentd-choose-max-tokens
     :description pyagentd-menu--max-tokens :transient t)
    ("-e" pyagentd-choose-thinking
     :description pyagentd-menu--thinking :transient t)
    ("-s" pyagentd-edit-system-prompt :description pyagentd-menu--system)
    ("-T" pyagentd-choose-tools :description pyagentd-menu--tools)
    ("-0" "Forget for next message" pyagentd-model-forget-next
     :if pyagentd-menu--next-p :transient t)
    ("q" "Quit" transient-quit-one)]])

(transient-define-prefix pyagentd-menu--in-sessions ()
  "Commands on sessions and their branches."
  [["Sessions"
    ("s" "New session" pyagentd-session)
    ("l" "List" pyagentd-sessions)
    ("n" "Running now"
     (lambda () (interactive) (pyagentd-list "running")))
    ("$" "Usage and cost"
     (lambda () (interactive) (pyagentd-list "usage")))
    ("f" "Search" pyagentd-search)
    ("i" "Import chat" pyagentd-import)
    ("g" "Import a gptel buffer" pyagentd-import-gptel)
    ("I" "Rebuild the index"
     (lambda () (interactive) (pyagentd-reindex)))]
   ["This session"
    :if pyagentd-menu--somewhere-p
    ("r" "Rename" pyagentd-rename)
    ("D" "Duplicate" pyagentd-duplicate)
    ("e" "Export" pyagentd-export)
    ("A" "Archive" pyagentd-archive)
    ("x" "Delete" pyagentd-delete)]
   ["Branches"
    :if pyagentd-menu--somewhere-p
    ("b" "Branch here" pyagentd-branch)
    ("w" "Switch to" pyagentd-switch-branch)
    ("v" pyagentd-branches :description pyagentd-menu--branch)]
   ["Daemon"
    ("c" pyagentd-connect :description pyagentd-menu--daemon)
    ("d" "Disconnect"
     (lambda () (interactive) (pyagentd-rpc-disconnect)))
    ("?" "Check the installation" pyagentd-doctor)
    ("q" "Quit" transient-quit-one)]])

(transient-define-prefix pyagentd-menu--in-agents ()
  "Commands on agents, their tasks and their conversations."
  [["Running"
    ("a" "Running now"
     (lambda () (interactive) (pyagentd-list "running")))
    ("g" pyagentd-agents :description pyagentd-menu--agents)
    ("t" "Tasks"
     (lambda () (interactive) (pyagentd-list "tasks")))
    ("s" "Schedules"
     (lambda () (interactive) (pyagentd-list "schedules")))
    ("m" "Mission" pyagentd-mission)
    ("M" "Mission trace" pyagentd-mission-trace)]
   ["Named agents"
    ("n" "New" pyagentd-agent-init)
    ("l" "List"
     (lambda () (interactive) (pyagentd-list "named")))
    ("c" "Configure" pyagentd-agent-config)
    ("r" "Rename" pyagentd-agent-rename)
    ("x" "Destroy" pyagentd-agent-destroy)
    ("d" "Defaults"
     (lambda () (interactive) (pyagentd-list "settings")))]
   ["Saved contexts"
    ("S" "Save" pyagentd-context-save)
    ("C" "Clear" pyagentd-context-clear)
    ("R" "Restore" pyagentd-context-restore)
    ("h" "History" pyagentd-context-history)
    ("q" "Quit" transient-quit-one)]])

(transient-define-prefix pyagentd-menu--in-rights ()
  "Permissions of agents: grants, decisions, trust."
  [["Permissions"
    ("g" "Grants"
     (lambda () (interactive) (pyagentd-list "grants")))
    ("u" "Decisions"
     (lambda () (interactive) (pyagentd-list "audit")))
    ("p" "This session's preset.md" pyagentd-visit-preset)
    ("h" "Hooks" pyagentd-hooks)
    ("m" "MCP servers"
     (lambda () (interactive) (pyagentd-list "mcp")))]
   ["Trust"
    ("T" "Presets of the project" pyagentd-trust-presets)
    ("S" "This session" pyagentd-trust-session)
    ("q" "Quit" transient-quit-one)]])

(transient-define-prefix pyagentd-menu--in-settings ()
  "Settings of this session and of this Emacs."
  [["This session"
    :if pyagentd-menu--session-p
    ("L" pyagentd-choose-agent :description pyagentd-menu--agent)
    ("m" "Model and tools…" pyagentd-menu-model)
    ("+" pyagentd-keep-settings :description pyagentd-menu--overridden)
    ("-" "Back to preset.md" pyagentd-drop-settings)
    ("p" "preset.md" pyagentd-visit-preset)
    ("R" "Show recovered roles" pyagentd-show-recovery)]
   ["This Emacs"
    ("f" pyagentd-menu--in-fold)
    ("i" pyagentd-menu--in-pictures)
    ("v" pyagentd-menu--in-revert)
    ("n" pyagentd-menu--in-notify)
    ("N" pyagentd-menu--in-finished)
    ("l" pyagentd-menu--in-log)
    ("c" "All options"
     (lambda () (interactive) (customize-group 'pyagentd)))
    ("q" "Quit" transient-quit-one)]])

(provide 'pyagentd-menu)
;;; pyagentd-menu.el ends here

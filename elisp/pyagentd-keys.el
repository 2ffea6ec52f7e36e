;;; pyagentd-keys.el --- Table of menus and keys -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; One table of the commands in menus, with their keys.  The keymap of
;; sessions, its which-key descriptions, the menu bar and the menus
;; (pyagentd-menu.el) are made from it.

;;; Code:

(require 'easymenu)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-ask)
(require 'pyagentd-chat)
(require 'pyagentd-display)
(require 'pyagentd-add)
(declare-function pyagentd-list "pyagentd-list")
(declare-function pyagentd-menu-switch "pyagentd-menu")
(declare-function pyagentd-model--choose-number "pyagentd-menu")
(declare-function pyagentd-reindex "pyagentd-sessions")

(defconst pyagentd-menus
  '((pyagentd-menu
     "Commands of pyagentd.
Commands on a session act on the one in this buffer, or on the one at point
in the list of sessions."
     (pyagentd-menu--title
      ("Send" nil
       ("RET" "Send" pyagentd-send :key "C-c RET")
       ("W" "Steer this run" pyagentd-steer :key "C-c C-w")
       ("Q" "Queue" pyagentd-queue :key "C-c C-q" :value (plist-get pyagentd-status :queued))
       ("k" "Abort" pyagentd-abort :key "C-c C-k")
       ("L" "Agent" pyagentd-choose-agent :key "C-c M-l"
        :value (pyagentd-menu--agent))
       ("!" "Approve plan" pyagentd-approve :key "C-c C-c")
       ("#" "Pick an option" pyagentd-reply-options--pick))
      ("Approvals" nil
       ("y" "Allow once" pyagentd-allow-once)
       ("s" "Allow in session" pyagentd-allow-session)
       ("p" "Allow in project" pyagentd-allow-always)
       ("n" "Deny" pyagentd-deny)
       ("r" "Deny with a reason" pyagentd-deny-with-reason)
       ("e" "Edit arguments" pyagentd-ask--edit)
       ("d" "Diff" pyagentd-ask--diff)
       ("E" "Ediff" pyagentd-ask--ediff)
       ("o" "Details" pyagentd-ask--show)
       ("w" "Answer" pyagentd-answer :key "C-c C-r")
       ("l" "List all" pyagentd-asks :value (length (pyagentd-ask-open))))
      ("Turns" nil
       ("U" "Rewind" pyagentd-rewind :key "C-c M-u")
       ("z" "Undo rewind" pyagentd-history--unrewind)
       ("X" "Edit prompt" pyagentd-edit-prompt :key "C-c M-e")
       ("M-g" "Regenerate" pyagentd-regenerate :key "C-c M-g")
       ("M-n" "Next variant" pyagentd-history--next-variant :key "C-c M-n")
       ("M-p" "Previous variant" pyagentd-history--previous-variant :key "C-c M-p")
       ("F" "Fork" pyagentd-fork)
       ("B" "Branch here" pyagentd-branch :key "C-c M-b")
       ("M-c" "Compact" pyagentd-compact)
       ("C" "Changed files" pyagentd-changes)))
     (nil
      ("Model and tools" pyagentd-menu--session-p
       ("-=" "Set for" pyagentd-model--switch-scope
        :value (if pyagentd-settings-next-only "next message" "this session") :stay t)
       ("*" "Model" pyagentd-choose-model :value (pyagentd-menu--setting "Model" :model) :stay t)
       ("-t" "Temperature" (pyagentd-model--choose-number
                            "Temperature" :temperature (lambda (number) (<= 0 number 2)))
        :value (pyagentd-menu--setting "Temperature" :temperature) :stay t)
       ("-c" "Maximum tokens" (pyagentd-model--choose-number
                               "Maximum tokens" :max-tokens
                               (lambda (number) (and (integerp number) (> number 0))))
        :value (pyagentd-menu--setting "Maximum tokens" :max-tokens) :stay t)
       ("-e" "Thinking" pyagentd-model--choose-thinking
        :value (pyagentd-menu--setting "Thinking" :thinking) :stay t)
       ("-s" "System prompt" pyagentd-edit-system-prompt
        :value (pyagentd-menu--setting "System prompt" :system))
       ("-T" "Tools" pyagentd-model--choose-tools :value (pyagentd-menu--setting "Tools" :tools))
       ("-0" "Forget for next message" pyagentd-model--forget-next
        :if pyagentd-menu--next-p :stay t))
      ("Add to prompt" nil
       ("i" "File, directory" pyagentd-add--files)
       ("M-a" "Copy of a file" pyagentd-add--attach-file :key "C-c M-a")
       ("M-r" "Rewrite region" pyagentd-rewrite)
       ("I" "Copied picture" pyagentd-add--picture :key "C-c M-y")
       ("H" "Earlier prompt" pyagentd-recall-prompt :key "C-c M-r")
       "More"
       ("S" "Sessions..." pyagentd-menu--in-sessions)
       ("A" "Agents..." pyagentd-menu--in-agents)
       ("R" "Permissions..." pyagentd-menu--in-rights)
       ("P" "Settings..." pyagentd-menu--in-settings)
       ("q" "Quit" transient-quit-one))
      ("Text" nil
       ("]" "Next answer" pyagentd-chat--next-answer :key "C-c ]")
       ("[" "Previous answer" pyagentd-chat--previous-answer :key "C-c [")
       ("c" "Copy code" pyagentd-copy-code :key "C-c M-w")
       ("f" "Fold block" pyagentd-fold-toggle :key "C-c M-f")
       ("TAB" "Fold all" pyagentd-display--fold-toggle-all)
       ("h" "Hidden turns" pyagentd-history--show-hidden :value (and pyagentd-hidden--overlays
                    (if pyagentd-hidden--shown "shown" "folded")))
       ("O" "Steps" pyagentd-todo :value (pyagentd-todo-count))
       "View"
       ("$" "Context" pyagentd-context :value (pyagentd-menu--context))
       ("g" "Agents" pyagentd-agents :value (pyagentd-overlay--count))
       ("M-i" "Inspect" pyagentd-inspect :key "C-c M-i"))))
    (pyagentd-menu--in-model
     "Model, temperature, tools and system prompt.
They are set for this session, or for the next message only."
     (pyagentd-menu--title "Model and tools"
      (nil nil ("q" "Quit" transient-quit-one))))
    (pyagentd-menu--in-sessions
     "Commands on sessions and their branches."
     (nil
      ("Sessions" nil
       ("s" "New session" pyagentd-session)
       ("l" "List" pyagentd-sessions)
       ("n" "Running now" (pyagentd-list "running"))
       ("$" "Usage and cost" (pyagentd-list "usage"))
       ("C" "Usage as charts" pyagentd-report--usage-charts)
       ("f" "Search" pyagentd-search :key "C-c M-s")
       ("i" "Import a chat" pyagentd-import)
       ("g" "Import this gptel buffer" pyagentd-import-gptel)
       ("G" "Import gptel's backends" pyagentd-gptel--import-backends)
       ("I" "Rebuild the index" (pyagentd-reindex)))
      ("This session" pyagentd-menu--somewhere-p
       ("r" "Rename" pyagentd-rename)
       ("D" "Duplicate" pyagentd-duplicate)
       ("e" "Export" pyagentd-export)
       ("A" "Archive" pyagentd-archive)
       ("x" "Delete" pyagentd-delete)
       "Its branches"
       ("b" "Branch here" pyagentd-branch)
       ("w" "Switch to" pyagentd-switch-branch)
       ("v" "Tree" pyagentd-branches :key "C-c C-v"
        :value pyagentd--branch-name))
      ("Daemon" nil
       ("c" "Connect" pyagentd-connect :value (and (pyagentd-rpc-connected-p) "(connected)"))
       ("d" "Disconnect" (pyagentd-rpc-disconnect))
       ("?" "Check the installation" pyagentd-doctor)
       ("q" "Quit" transient-quit-one))))
    (pyagentd-menu--in-agents
     "Commands on agents, their tasks and their conversations."
     (nil
      ("Running" nil
       ("a" "Running now" (pyagentd-list "running"))
       ("g" "Agents" pyagentd-agents :value (pyagentd-overlay--count))
       ("t" "Tasks" (pyagentd-list "tasks"))
       ("s" "Schedules" (pyagentd-list "schedules"))
       ("m" "Mission" pyagentd-mission)
       ("M" "Mission trace" pyagentd-mission--trace))
      ("Named agents" nil
       ("n" "Open or make" pyagentd-agent)
       ("l" "List" (pyagentd-list "named"))
       ("c" "Configure" pyagentd-agent-config)
       ("d" "Defaults" (pyagentd-list "settings")))
      ("Saved contexts" nil
       ("S" "Save" pyagentd-context-save)
       ("h" "List" pyagentd-context--history)
       ("q" "Quit" transient-quit-one))))
    (pyagentd-menu--in-rights
     "Permissions of agents: grants, decisions, trust."
     (nil
      ("Permissions" nil
       ("g" "Grants" (pyagentd-list "grants"))
       ("u" "Decisions" (pyagentd-list "audit"))
       ("p" "This session's preset.md" pyagentd-visit-preset)
       ("h" "Hooks" (pyagentd-list "hooks"))
       ("m" "MCP servers" (pyagentd-list "mcp")))
      ("Trust" nil
       ("T" "Presets of the project" (pyagentd-list "presets"))
       ("S" "This session" (pyagentd-list "trust"))
       ("q" "Quit" transient-quit-one))))
    (pyagentd-menu--in-settings
     "Settings of this session and of this Emacs."
     (nil
      ("Settings of this session" pyagentd-menu--session-p
       ("L" "Agent" pyagentd-choose-agent :value (pyagentd-menu--agent))
       ("m" "Model and tools…" pyagentd-menu--in-model)
       ("+" "Save to preset.md" pyagentd-sync--keep-settings
        :value (pyagentd-menu--overridden))
       ("-" "Back to preset.md" pyagentd-sync--drop-settings)
       ("p" "preset.md" pyagentd-visit-preset)
       ("R" "Show recovered roles" pyagentd-sync--show-recovery)
       ("C" "Clean Local Variables" pyagentd-session--clean-local-variables))
      ("This Emacs" nil
       ("f" "Fold" (pyagentd-menu-switch 'pyagentd-fold)
        :value (pyagentd-menu--option 'pyagentd-fold) :stay t)
       ("i" "Show pictures" (pyagentd-menu-switch 'pyagentd-media-show)
        :value (pyagentd-menu--option 'pyagentd-media-show) :stay t)
       ("v" "Revert changed files" (pyagentd-menu-switch 'pyagentd-revert-visited)
        :value (pyagentd-menu--option 'pyagentd-revert-visited) :stay t)
       ("n" "Desktop notifications" (pyagentd-menu-switch 'pyagentd-notify-desktop)
        :value (pyagentd-menu--option 'pyagentd-notify-desktop) :stay t)
       ("N" "Notify of finished runs" (pyagentd-menu-switch 'pyagentd-notify-finished)
        :value (pyagentd-menu--option 'pyagentd-notify-finished) :stay t)
       ("l" "Log" (pyagentd-menu-switch 'pyagentd-log-level)
        :value (pyagentd-menu--option 'pyagentd-log-level) :stay t)
       ("c" "All options" (customize-group 'pyagentd))
       ("q" "Quit" transient-quit-one)))))
  "The menus: lists (NAME DOCUMENTATION ROW...).
A row is (DESCRIPTION GROUP...); DESCRIPTION is a function or nil.  A group
is (TITLE PREDICATE ENTRY...), or the title of another group; PREDICATE is
nil if the group is always shown.
An entry is (LETTER WORDS COMMAND PLIST...), a heading or nil; COMMAND is a
command or a form.  PLIST may have :key, the command's key in a session,
:value, a form for the present value, which is shown behind WORDS unless it
is nil, \"\" or 0, :if, a predicate, and :stay, non-nil if the menu stays.")

(defun pyagentd-menus-group (group)
  "Return GROUP, a group of a menu or the title of one, as a group."
  (if (stringp group) (assoc group (pyagentd-menus-groups)) group))

(defun pyagentd-menus-groups ()
  "Return the groups of all menus."
  (seq-filter #'consp (seq-mapcat #'cdr (seq-mapcat #'cddr pyagentd-menus))))

;;;; Keys of sessions

(dolist (group (pyagentd-menus-groups))
  (dolist (entry (cddr group))
    (when-let ((key (and (consp entry) (plist-get (nthcdr 3 entry) :key))))
      ;; The conses are menu items: which-key shows their strings.
      (define-key pyagentd-mode-map (kbd key)
        (cons (nth 1 entry) (nth 2 entry))))))

(define-key pyagentd-mode-map (kbd "C-c C-t") '("Menu" . pyagentd-menu))

;;;; Menu bar

(defun pyagentd-menubar--item (entry)
  "Return the menu bar's item for ENTRY of a menu, or nil to leave it out."
  (pcase entry
    ((pred stringp) "---")
    (`(,_ ,words ,command . ,_)
     (unless (or (eq command 'transient-quit-one)
                 (and (symbolp command)
                      (string-prefix-p "pyagentd-menu-" (symbol-name command))))
       (vector words command)))))

(easy-menu-define pyagentd-menubar--menu pyagentd-mode-map
  "Menu of session buffers."
  `("Agent"
    ,@(delq nil
            (mapcar (pcase-lambda (`(,title ,_ . ,entries))
                      (when-let ((items (delq nil (mapcar #'pyagentd-menubar--item
                                                          entries))))
                        (setq items (if (equal (car (last items)) "---")
                                        (butlast items)
                                      items))
                        (append (list title)
                                (and (equal title "Approvals")
                                     '(:active (pyagentd-ask-here)))
                                items)))
                    (pyagentd-menus-groups)))
    "---"
    ["Menu of Keys" pyagentd-menu]))

;;;; Right click

(defun pyagentd-menubar--items (position)
  "Return an alist (WORDS . COMMAND) of commands for the text at POSITION."
  (let ((role (get-text-property position 'gptel)))
    (append
     (and (pyagentd-fenced-start position)
          '(("Fold or Unfold" . pyagentd-fold-toggle)))
     (and (eq role 'response)
          (append (and (pyagentd-code-at position)
                       '(("Copy Code" . pyagentd-copy-code)))
                  '(("Copy Answer" . pyagentd-display--copy-answer)
                    ("Regenerate" . pyagentd-regenerate))))
     (and (null role)
          (seq-some (lambda (prompt)
                      (<= (car prompt) position (cdr prompt)))
                    (pyagentd-turns-prompts))
          '(("Rewind to This Prompt" . pyagentd-rewind)
            ("Edit and Send Again" . pyagentd-edit-prompt)
            ("Branch Here" . pyagentd-branch))))))

(defun pyagentd-menubar-context (menu click)
  "Add commands for the text at CLICK to MENU.
For `context-menu-functions'."
  (let* ((position (posn-point (event-start click)))
         (items (and position (pyagentd-menubar--items position))))
    (when items
      (define-key-after menu [pyagentd-separator] menu-bar-separator)
      (pcase-dolist (`(,words . ,command) items)
        (define-key-after menu (vector command)
          (list 'menu-item words
                (lambda ()
                  (interactive)
                  (goto-char position)
                  (call-interactively command)))))))
  menu)

(add-to-list 'pyagentd-session-hooks
             '(context-menu-functions . pyagentd-menubar-context))

(provide 'pyagentd-keys)
;;; pyagentd-keys.el ends here

;;; pyagentd-agents.el --- Named agents -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Create, configure, rename and destroy named agents, and edit their defaults.

;;; Code:

(require 'pyagentd-menu)
(require 'pyagentd-list)

;;;; Reading the name of an agent

(defvar pyagentd-named-known nil
  "The named agents as last reported by the daemon, a list of plists.
Keys: :name, :dir, :session-id, :status (\"created\", \"idle\" or
\"active\"), :state of its run, :model, :permissions, :created-at, :branch
\(nil if its files are gone) and :error (the error in its file).")

(defvar pyagentd-named-history nil
  "History of agent names.")

(defun pyagentd-named-here ()
  "Return the name of the agent at point, or of this buffer; nil without one."
  (when-let ((here (ignore-errors (pyagentd-here))))
    (pyagentd-place-named-agent (plist-get here :session-dir))))

(defun pyagentd-named-row (name)
  "Return the plist of the agent NAME in `pyagentd-named-known', or nil."
  (seq-find (lambda (agent) (equal name (plist-get agent :name)))
            pyagentd-named-known))

(defun pyagentd-named--rows ()
  "Return an alist of the known agents' names and their annotations."
  (mapcar (lambda (agent)
            (cons (plist-get agent :name)
                  (format "%s  %s" (plist-get agent :status)
                          (or (plist-get agent :model) ""))))
          pyagentd-named-known))

(defun pyagentd-named-read (prompt)
  "Read the name of an agent with PROMPT; the one here is the default."
  (pyagentd-start
   (lambda ()
     (pyagentd-later-quietly
      'agent-list nil
      (lambda (answer)
        (setq pyagentd-named-known (plist-get answer :agents))))))
  (let* ((here (pyagentd-named-here))
         (name (completing-read (format-prompt prompt here)
                                (pyagentd-told-table 'pyagentd-named-agent
                                                     #'pyagentd-named--rows)
                                nil nil nil
                                'pyagentd-named-history here)))
    (if (string-empty-p name) (user-error "Name an agent") name)))

;;;; Creating and renaming

;;;###autoload
(defun pyagentd-agent (name)
  "Open the conversation of the agent called NAME.
If it does not exist, create it, after asking for its system prompt."
  (interactive (list (pyagentd-named-read "Agent")))
  (pyagentd-later-asking
   'agent-list nil
   (lambda (answer)
     (setq pyagentd-named-known (plist-get answer :agents))
     (if-let ((row (pyagentd-named-row name)))
         (pyagentd-here-visit
          (list :file (pyagentd-place-conversation (plist-get row :branch))))
       (pyagentd-agents--init
        name (read-string (format "%s is new.  System prompt (empty: a \
general agent): " name)))))))

(defun pyagentd-agents--init (name &optional prompt model permissions)
  "Create an agent called NAME and open its conversation.
PROMPT is its system prompt.  With a prefix argument ask also for its MODEL
and PERMISSIONS; nil or an empty string means the default."
  (interactive
   (list (string-trim (read-string "Name of the agent: "))
         (read-string "System prompt (empty: a general agent): ")
         (and current-prefix-arg
              (pyagentd-model-read "Model (empty: the default): "))
         (and current-prefix-arg
              (pyagentd-agents--read-permissions))))
  (let ((given (lambda (text) (unless (member text '(nil "")) text))))
    (message "Creating %s..." name)
    (pyagentd-later
     'agent-init (append (list :name name :system-prompt (funcall given prompt)
                               :model (funcall given model)
                               :permissions (funcall given permissions))
                         (pyagentd-env))
     (lambda (made)
       (run-hooks 'pyagentd-changed-hook)
       (pyagentd-here-visit made)
       (message "%s%s" (plist-get made :welcome)
                (if-let ((note (plist-get made :note))) (concat "\n" note) "")))
     pyagentd-later-patience)))

(defun pyagentd-agents--read-permissions ()
  "Read the name of a permission profile; it may be empty."
  (pyagentd-complete--refresh "permissions" nil)
  (completing-read
   "Permissions (empty: the default): "
   (pyagentd-told-table 'pyagentd-profile
                        (lambda () (pyagentd-complete--get "permissions" nil)))))

(defun pyagentd-agents--rename (name new-name)
  "Rename the agent NAME, and everything named after it, to NEW-NAME."
  (interactive
   (let ((name (pyagentd-named-read "Rename agent")))
     (list name (string-trim (read-string (format "New name of %s: " name)
                                          name)))))
  (when (equal name new-name)
    (user-error "Its name is already %s" name))
  (when-let ((directory
              (or (plist-get (pyagentd-named-row name) :dir)
                  (seq-some (lambda (buffer)
                              (with-current-buffer buffer
                                (and (equal name (pyagentd-named-here))
                                     pyagentd--session-dir)))
                            (pyagentd-place-buffers)))))
    (pyagentd-here-save (list :session-dir directory)))
  ;; Its buffers and lists follow on the daemon's event.
  (pyagentd-later
   'agent-rename (list :name name :new-name new-name)
   (lambda (_)
     (run-hooks 'pyagentd-changed-hook)
     (message "%s is now called %s" name new-name))
   pyagentd-later-patience))

;;;; Destroying a named agent

;; The user is first shown what would be lost.  The conversation is saved;
;; the files go to the trash, or stay for a new agent of the same name.

(defun pyagentd-destroy (name keep &optional then)
  "Destroy the agent NAME, after showing what would be lost and asking.
If KEEP is non-nil its files stay.  Call THEN when it is destroyed, or when
the user declines."
  (pyagentd-later-asking
   'destroy-warnings (list :name name :keep-files keep)
   (lambda (losses)
     (pyagentd-here-save (list :session-dir (plist-get losses :dir)))
     (if (not (let ((max-mini-window-height 0.9))
                (yes-or-no-p
                 (concat
                  (mapconcat (lambda (line) (format "- %s\n" line))
                             (or (plist-get losses :lines)
                                 '("Nothing would be lost."))
                             "")
                  (if keep "- Its files stay; an agent of the same name will \
use them.\n"
                    "")
                  (format "Destroy the agent %s%s? " name
                          (if keep ", but not its files" ""))))))
         (when then (funcall then))
       (message "Destroying %s..." name)
       (pyagentd-later
        'agent-destroy (list :name name :keep-files keep :confirmed t)
        (lambda (done)
          ;; Buffers that are not attached now do not get the event.
          (dolist (buffer (pyagentd-here-buffers (plist-get losses :dir)))
            (with-current-buffer buffer (pyagentd-manage-leave)))
          (message "%s" (plist-get done :text))
          (run-hooks 'pyagentd-changed-hook)
          (when then (funcall then)))
        pyagentd-later-patience)))))

;;;; The named agents

(pyagentd-events-register 'agents (lambda (&rest _)
                                    (pyagentd-list-changed "agents")))
(add-hook 'pyagentd-changed-hook (lambda () (pyagentd-list-changed "agents")))

(defun pyagentd-agents--destroy (&optional keep)
  "Destroy the marked agents, or else the one at point.
With a prefix argument, or KEEP from Lisp, keep their files."
  (interactive "P" pyagentd-list-mode)
  (named-let next ((names (mapcar (lambda (row) (plist-get row :id))
                                  (pyagentd-table-targets))))
    (when names
      (pyagentd-destroy (car names) (and keep t)
                        (lambda () (next (cdr names)))))))

(pyagentd-list-add-keys "named"
  '("+" pyagentd-agents--init "new")
  '("r" pyagentd-agents--rename "rename")
  '("s" pyagentd-context-save "save")
  '("d" pyagentd-agents--destroy "destroy" t))

;;;; Configuration of an agent

(defconst pyagentd-named--custom "custom (written as JSON)"
  "The choice for custom permissions.")

(defun pyagentd-named--set (name key value &optional then)
  "Set KEY of the agent NAME, or the default if that is nil, to VALUE.
Then call THEN if that is non-nil."
  (let ((buffer (current-buffer)))
    (pyagentd-later
     (if name 'agent-config 'settings)
     (append (and name (list :name name)) (list :key key :value value)
             (when (and name (equal key "model")) ; to check it with our keys
               (pyagentd-env)))
     (lambda (answer)
       (when then (funcall then))
       (pyagentd-with-live-buffer buffer
         (when (derived-mode-p 'pyagentd-list-mode) (revert-buffer)))
       (run-hooks 'pyagentd-changed-hook)
       (when name
         (message "%s of %s: %s" key name (or (plist-get answer :note) "set"))))
     pyagentd-later-patience)))

(defun pyagentd-named--change ()
  "Change the value at point, of an agent or of the defaults."
  (interactive nil pyagentd-list-mode)
  (let* ((row (pyagentd-table-row))
         (key (plist-get row :id))
         (name (pyagentd-list-fact row "name"))
         (value (pyagentd-list-fact row "value"))
         (custom (pyagentd-list-fact row "custom"))
         (choices (pyagentd-list-fact row "choices"))
         (prompt (lambda (now)
                   (format-prompt (if name (concat key " of " name) key) now)))
         (edit (lambda (text mode)
                 (pyagentd-edit (format "%s of %s" key name) text mode
                                (pyagentd-later-back
                                 (lambda (new close)
                                   (pyagentd-named--set name key new close))))))
         (new (pcase key
                ("name" (pyagentd-agents--rename
                         name (string-trim (read-string (funcall prompt name) name)))
                 nil)
                ("system_prompt"
                 (funcall edit (or value "") (if (fboundp 'markdown-mode)
                                                 'markdown-mode
                                               #'text-mode))
                 nil)
                ((guard choices)
                 (let ((now (if custom pyagentd-named--custom value)))
                   (completing-read
                    (funcall prompt now)
                    (append choices (and name (list pyagentd-named--custom)))
                    nil nil nil nil now)))
                (_ (pyagentd-model-read (funcall prompt value))))))
    (cond ((equal new pyagentd-named--custom)
           (funcall edit (if custom (concat value "\n")
                           "{\"allow\": [], \"ask\": [\"tool:.*\"]}\n")
                    #'js-mode))
          ((not (member new '(nil "")))
           (pyagentd-named--set name key new)))))

(dolist (list '("agent" "settings"))
  (pyagentd-list-add-keys list '("RET" pyagentd-named--change "change")))

(defun pyagentd-agent-config (name)
  "Show the configuration of the agent NAME in a list, to edit it."
  (interactive (list (pyagentd-named-read "Configure agent")))
  (pyagentd-list-show "agent" (list :agent name)))

(provide 'pyagentd-agents)
;;; pyagentd-agents.el ends here

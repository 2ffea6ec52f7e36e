;;; pyagentd-agents.el --- Named agents -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The named agents, what each of them is, their defaults, and destroying one.

;;; Code:

(require 'pyagentd-menu)
(require 'pyagentd-list)

;;;; Which named agent

;; Named agents are sessions that are known by a name, with a
;; configuration, documents and a workspace of their own.  This file makes
;; them, names them, and says which one a command is about.

(defvar pyagentd-named-known nil
  "What the daemon said last about the named agents, a list of plists.
Keys: :name, :dir, :session-id, :status (\"created\", \"idle\" or
\"active\"), :state of its run, :model, :permissions, :created-at, :branch
\(nil if its files are gone) and :error (what is wrong with its file).")

(defvar pyagentd-named-history nil
  "History of names of agents that were read.")

;;;; Which agent

(defun pyagentd-named-here ()
  "Return the name of the agent at point, or of this buffer; nil without one."
  (when-let ((here (ignore-errors (pyagentd-here))))
    (pyagentd-place-named-agent (plist-get here :session-dir))))

(defun pyagentd-named-row (name)
  "Return what is known of the agent NAME, see `pyagentd-named-known', or nil."
  (seq-find (lambda (agent) (equal name (plist-get agent :name)))
            pyagentd-named-known))

(defun pyagentd-named--rows ()
  "Return the names of the agents that are known, with what to say beside them."
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

;;;; Making

;;;###autoload
(defun pyagentd-agent (name)
  "Open the conversation of the agent called NAME.
Where there is none, create it, after asking for its system prompt."
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
The name has letters, digits, hyphens and underscores, at most 64.  PROMPT
is its system prompt, MODEL its model and PERMISSIONS the name of a
profile; nil or an empty string means the default.  With a prefix argument
ask for all of them, else for the name and what the agent is to be.  If an
agent of that name was destroyed and its files were kept, it is taken up
again."
  (interactive
   (list (string-trim (read-string "Name of the agent: "))
         (read-string "System prompt (empty: a general agent): ")
         (and current-prefix-arg
              (pyagentd-model-read "Model (empty: the default): "))
         (and current-prefix-arg
              (completing-read "Permissions (empty: the default): "
                               pyagentd-named-profiles))))
  (let ((given (lambda (text) (unless (member text '(nil "")) text))))
    (message "Creating %s..." name)
    (pyagentd-later
     'agent-init (list :name name :system-prompt (funcall given prompt)
                       :model (funcall given model)
                       :permissions (funcall given permissions)
                       :env (pyagentd-env-variables) :key (pyagentd-env-key))
     (lambda (made)
       (run-hooks 'pyagentd-changed-hook)
       (let ((buffer (find-file-noselect (plist-get made :file))))
         (with-current-buffer buffer
           (goto-char (point-max)))
         (pop-to-buffer-same-window buffer))
       (message "%s%s" (plist-get made :welcome)
                (if-let ((note (plist-get made :note))) (concat "\n" note) "")))
     pyagentd-later-patience)))

;;;; Another name

(defun pyagentd-agents--rename (name new-name)
  "Rename the agent NAME to NEW-NAME.
Its directory, its session's id and its records follow."
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
  ;; What shows it follows, as if somebody else had renamed it.
  (pyagentd-later
   'agent-rename (list :name name :new-name new-name)
   (lambda (_)
     (run-hooks 'pyagentd-changed-hook)
     (message "%s is now called %s" name new-name))
   pyagentd-later-patience))

;;;; Defaults of named agents

;; What holds for named agents where nobody says otherwise: the model and
;; the permissions of new ones, and when a conversation is put away.

(defun pyagentd-settings--edit ()
  "Change the value at point."
  (interactive nil pyagentd-list-mode)
  (let* ((row (pyagentd-table-row))
         (id (plist-get row :id))
         (now (pyagentd-list-fact row "value"))
         (prompt (format-prompt id now))
         (value (pcase id
                  ("default_permissions"
                   (completing-read prompt pyagentd-named-profiles
                                    nil nil nil nil now))
                  ("idle_timeout"
                   (completing-read prompt '("10min" "30min" "2h" "never")
                                    nil nil nil nil now))
                  (_ (pyagentd-model-read prompt)))))
    (unless (member value '(nil ""))
      (pyagentd-later 'settings (list :key id :value value)
                      (lambda (_) (pyagentd-list-changed "agents"))))))

(pyagentd-list-add-keys "settings"
  '("RET" pyagentd-settings--edit "change"))

;;;; Destroying a named agent

;; What would be lost is shown before anything is done.  The conversation
;; is saved first; files go to the trash, or stay for an agent of the same
;; name to take up.

(defun pyagentd-destroy (name keep &optional then)
  "Destroy the agent NAME when its user has seen what is lost.
KEEP says that its files stay.  THEN is called when it is done, or when
the user does not want it."
  (pyagentd-later
   'destroy-warnings (list :name name :keep-files keep)
   (lambda (losses)
     (pyagentd-here-save (list :session-dir (plist-get losses :dir)))
     (if (not (let ((max-mini-window-height 0.9))
                (pyagentd-later-ask
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
          ;; A buffer that is not attached just now is not told of it.
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
  "Destroy the agents that are marked, else the one at point, one by one.
What would be lost with each is named first.  With a prefix argument, or
KEEP from Lisp, their files stay."
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
  '("C" pyagentd-contexts--clear "clear")
  '("d" pyagentd-agents--destroy "destroy" t))

;;;; What an agent is

;; The keys of an agent with their values, each of which can be changed.
;; What is changed counts from the agent's next request on.

(defconst pyagentd-named-config--custom "custom (written as JSON)"
  "The choice of permissions of one's own.")

;;;; Changing

(defun pyagentd-named-config--set (name key value &optional then)
  "Set KEY of the agent NAME to VALUE, nil for its default; then call THEN."
  (let ((buffer (current-buffer)))
    (pyagentd-later
     'agent-config (if value (append (list :name name :key key :value value)
                                     (when (equal key "model")
                                       ;; It is checked with ours.
                                       (list :env (pyagentd-env-variables)
                                             :api-key (pyagentd-env-key))))
                     (list :name name :key key :reset t))
     (lambda (answer)
       (when then (funcall then))
       (pyagentd-with-live-buffer buffer
         (when (derived-mode-p 'pyagentd-list-mode) (revert-buffer)))
       (run-hooks 'pyagentd-changed-hook)
       (message "%s of %s: %s" key name
                (or (plist-get answer :note)
                    (if value "set" "the default again"))))
     pyagentd-later-patience)))

(defun pyagentd-named-config--edit (name key text mode)
  "Edit TEXT, which KEY of the agent NAME is, in a buffer in MODE."
  (let ((buffer (current-buffer)))
    (pyagentd-edit (format "%s of %s" key name) text mode
                   (lambda (new close)
                     (pyagentd-with-live-buffer buffer
                       (pyagentd-named-config--set name key new close))))))

(defun pyagentd-named-config--permissions (name value custom)
  "Read other permissions for the agent NAME, which has VALUE.
CUSTOM says that VALUE is JSON, not the name of a profile."
  (let* ((now (if custom pyagentd-named-config--custom value))
         (chosen (completing-read
                  (format-prompt "Permissions of %s" now name)
                  (append pyagentd-named-profiles
                          (list pyagentd-named-config--custom))
                  nil nil nil nil now)))
    (if (equal chosen pyagentd-named-config--custom)
        (pyagentd-named-config--edit
         name "permissions"
         (if custom (concat value "\n")
           "{\"allow\": [], \"ask\": [\"tool:.*\"]}\n")
         #'js-mode)
      (pyagentd-named-config--set name "permissions" chosen))))

(defun pyagentd-named--config-edit ()
  "Change the value at point."
  (interactive nil pyagentd-list-mode)
  (let* ((row (pyagentd-table-row))
         (name (pyagentd-list-fact row "name"))
         (value (pyagentd-list-fact row "value")))
    (pcase-exhaustive (plist-get row :id)
      ("name" (pyagentd-agents--rename
               name (string-trim (read-string (format "New name of %s: " name)
                                              name))))
      ("system_prompt" (pyagentd-named-config--edit
                        name "system_prompt" (or value "")
                        (if (fboundp 'markdown-mode) 'markdown-mode
                          #'text-mode)))
      ("model" (pyagentd-named-config--set
                name "model"
                (let ((model (pyagentd-model-read
                              (format-prompt "Model of %s" value name))))
                  (if (equal model "") value model))))
      ("permissions" (pyagentd-named-config--permissions
                      name value (pyagentd-list-fact row "custom"))))))

(pyagentd-list-add-keys "agent"
  '("RET" pyagentd-named--config-edit "change"))

(defun pyagentd-agent-config (name)
  "Edit the configuration of the agent NAME in a list."
  (interactive (list (pyagentd-named-read "Configure agent")))
  (pyagentd-list-show "agent" (list :agent name)))

(provide 'pyagentd-agents)
;;; pyagentd-agents.el ends here

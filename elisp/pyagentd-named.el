;;; pyagentd-named.el --- Agents that have names -*- lexical-binding: t; -*-

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

;; Named agents are sessions that are known by a name, with a
;; configuration, documents and a workspace of their own.  This file makes
;; them, names them, and says which one a command is about.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-daemon)
(require 'pyagentd-here)
(require 'pyagentd-model)

(defvar pyagentd-named-known nil
  "What the daemon said last about the named agents, a list of plists.
Keys: :name, :dir, :session-id, :status (\"created\", \"idle\" or
\"active\"), :state of its run, :model, :permissions, :created-at, :branch
\(nil if its files are gone) and :error (what is wrong with its file).")

(defvar pyagentd-named-history nil
  "History of names of agents that were read.")

(defconst pyagentd-named-profiles '("open" "standard" "locked")
  "Names of the permissions that come with the daemon.")

(defconst pyagentd-named--patience 60
  "Seconds to wait until an agent is made, renamed or destroyed.")

(defun pyagentd-named-json (permissions)
  "Return PERMISSIONS, a profile as on the wire or its name, as JSON or name."
  (if (stringp permissions) permissions
    (json-serialize
     (list :allow (vconcat (plist-get permissions :allow))
           :ask (vconcat (plist-get permissions :ask))))))

;;;; Which agent

(defun pyagentd-named-here ()
  "Return the name of the agent at point, or of this buffer; nil without one."
  (when-let* ((here (ignore-errors (pyagentd-here)))
              (directory (plist-get here :session-dir)))
    (when (file-exists-p (expand-file-name "agent.json" directory))
      (file-name-nondirectory (directory-file-name directory)))))

(defun pyagentd-named-learn ()
  "Ask the daemon, if there is one, which named agents there are."
  (pyagentd-rpc-call-async
   'agent-list nil
   :timeout pyagentd-call-timeout
   :success (lambda (answer)
              (setq pyagentd-named-known (plist-get answer :agents)))
   :error #'ignore))

(defun pyagentd-named-row (name)
  "Return what is known of the agent NAME, see `pyagentd-named-known', or nil."
  (seq-find (lambda (agent) (equal name (plist-get agent :name)))
            pyagentd-named-known))

(defun pyagentd-named--annotation (name)
  "Return what to say beside NAME, that of an agent."
  (when-let ((agent (pyagentd-named-row name)))
    (format "  %s  %s" (plist-get agent :status)
            (or (plist-get agent :model) ""))))

(defun pyagentd-named--complete (string predicate action)
  "Complete STRING as the name of an agent; PREDICATE, ACTION: as always.
What the daemon says while a name is read counts at once."
  (if (eq action 'metadata)
      '(metadata (category . pyagentd-named-agent)
                 (annotation-function . pyagentd-named--annotation))
    (complete-with-action action
                          (mapcar (lambda (agent) (plist-get agent :name))
                                  pyagentd-named-known)
                          string predicate)))

(defun pyagentd-named-read (prompt)
  "Read the name of an agent with PROMPT; the one here is the default."
  (pyagentd-start #'pyagentd-named-learn)
  (let* ((here (pyagentd-named-here))
         (name (completing-read (format-prompt prompt here)
                                #'pyagentd-named--complete nil nil nil
                                'pyagentd-named-history here)))
    (if (string-empty-p name) (user-error "Name an agent") name)))

;;;; Making

(defun pyagentd-named-visit (told)
  "Show the conversation of the agent that TOLD, an answer, describes."
  (let ((buffer (find-file-noselect (plist-get told :file))))
    (with-current-buffer buffer
      (goto-char (point-max)))
    (pop-to-buffer-same-window buffer)))

;;;###autoload
(defun pyagentd-agent (name)
  "Open the conversation of the agent called NAME.
Where there is none, create it, after asking what it is to be."
  (interactive (list (pyagentd-named-read "Agent")))
  (pyagentd-later-asking
   'agent-list nil
   (lambda (answer)
     (setq pyagentd-named-known (plist-get answer :agents))
     (if-let ((row (pyagentd-named-row name)))
         (pyagentd-here-visit
          (list :file (pyagentd-place-conversation (plist-get row :branch))))
       (pyagentd-agent-init
        name (read-string (format "%s is new.  System prompt (empty: a \
general agent): " name)))))))

(defun pyagentd-agent-init (name &optional prompt model permissions)
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
       (pyagentd-named-visit made)
       (message "%s%s" (plist-get made :welcome)
                (if-let ((note (plist-get made :note))) (concat "\n" note) "")))
     pyagentd-named--patience)))

;;;; Another name

(defun pyagentd-named--directory (name)
  "Return the directory of the agent NAME if it is known, or shown here."
  (or (plist-get (pyagentd-named-row name) :dir)
      (seq-some (lambda (buffer)
                  (with-current-buffer buffer
                    (and (equal name (pyagentd-named-here))
                         pyagentd--session-dir)))
                (pyagentd-place-buffers))))

(defun pyagentd-agent-rename (name new-name)
  "Rename the agent NAME to NEW-NAME.
Its directory, its session's id and its records follow."
  (interactive
   (let ((name (pyagentd-named-read "Rename agent")))
     (list name (string-trim (read-string (format "New name of %s: " name)
                                          name)))))
  (when (equal name new-name)
    (user-error "Its name is already %s" name))
  (let* ((old (pyagentd-named--directory name))
         (shown (and old (pyagentd-moved-shown old))))
    (when old
      (pyagentd-here-save (list :session-dir old)))
    (pyagentd-later
     'agent-rename (list :name name :new-name new-name)
     (lambda (told)
       (pyagentd-moved-show-in (plist-get told :dir) shown)
       (run-hooks 'pyagentd-changed-hook)
       (message "%s is now called %s" name new-name))
     pyagentd-named--patience)))

(provide 'pyagentd-named)
;;; pyagentd-named.el ends here

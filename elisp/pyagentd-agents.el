;;; pyagentd-agents.el --- Named agents -*- lexical-binding: t; -*-

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

;; The named agents, what each of them is, their defaults, and destroying one.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-model)
(require 'pyagentd-list)
(require 'pyagentd-here)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(autoload 'pyagentd-context-save "pyagentd-views" nil t)
(autoload 'pyagentd-context-clear "pyagentd-views" nil t)
(autoload 'pyagentd-context-history "pyagentd-views" nil t)
(autoload 'pyagentd-tasks "pyagentd-views" nil t)

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

;;;; Defaults of named agents

;; What holds for named agents where nobody says otherwise: the model and
;; the permissions of new ones, and when a conversation is put away.

(defconst pyagentd-defaults--keys
  '(("default_model" :default-model "model of new agents")
    ("default_permissions" :default-permissions "permissions of new agents")
    ("idle_timeout" :idle-timeout "when a conversation is saved and cleared"))
  "What can be set: key, keyword on the wire, what it is.")

(defun pyagentd-defaults--span (seconds)
  "Return SECONDS as people write them, in a form that can be set."
  (cond ((not (numberp seconds)) (format "%s" seconds))
        ((zerop seconds) "never")
        ((zerop (mod seconds 3600)) (format "%dh" (/ seconds 3600)))
        ((zerop (mod seconds 60)) (format "%dmin" (/ seconds 60)))
        (t (format "%ds" seconds))))

(defun pyagentd-defaults--text (key value)
  "Return VALUE of KEY, a keyword, as text; nil if it has none."
  (cond ((null value) nil)
        ((eq key :idle-timeout) (pyagentd-defaults--span value))
        (t (pyagentd-named-json value))))

(defun pyagentd-defaults--entry (row)
  "Return the line of ROW."
  (let ((own (not (equal (plist-get row :value) (plist-get row :default)))))
    (list (plist-get row :id)
          (vector (propertize (plist-get row :id) 'face 'bold)
                  (propertize (or (plist-get row :text) "the preset's")
                              'face (if own 'default 'shadow))
                  (propertize (plist-get row :about) 'face 'shadow)))))

(defun pyagentd-defaults--show (answer)
  "Show the settings in ANSWER."
  (setq pyagentd-table-rows
        (mapcar (pcase-lambda (`(,id ,key ,about))
                  (let ((value (plist-get (plist-get answer :settings) key)))
                    (list :id id :about about :value value
                          :text (pyagentd-defaults--text key value)
                          :default (plist-get (plist-get answer :defaults)
                                              key))))
                pyagentd-defaults--keys))
  (pyagentd-table-print (mapcar #'pyagentd-defaults--entry
                                pyagentd-table-rows)))

(defun pyagentd-defaults--revert (&rest _)
  "Fetch the settings again."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'settings nil #'pyagentd-defaults--show))))

(defun pyagentd-defaults--set (plist)
  "Tell the daemon PLIST, which sets something, and show what holds then."
  (let ((buffer (current-buffer)))
    (pyagentd-later 'settings plist
                    (lambda (answer)
                      (pyagentd-later-in buffer
                        (pyagentd-defaults--show answer))))))

(defun pyagentd-defaults-edit ()
  "Change the value at point."
  (interactive nil pyagentd-defaults-mode)
  (let* ((row (pyagentd-table-row))
         (id (plist-get row :id))
         (prompt (format-prompt id (plist-get row :text)))
         (value (pcase id
                  ("default_permissions"
                   (completing-read prompt pyagentd-named-profiles
                                    nil nil nil nil (plist-get row :text)))
                  ("idle_timeout"
                   (completing-read prompt '("10min" "30min" "2h" "never")
                                    nil nil nil nil (plist-get row :text)))
                  (_ (pyagentd-model-read prompt)))))
    (unless (member value '(nil ""))
      (pyagentd-defaults--set (list :key id :value value)))))

(defun pyagentd-defaults-reset ()
  "Reset the value at point to its default."
  (interactive nil pyagentd-defaults-mode)
  (pyagentd-defaults--set (list :key (plist-get (pyagentd-table-row) :id)
                                :reset t)))

(defvar pyagentd-defaults-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-defaults-edit)
    (define-key map "e" #'pyagentd-defaults-edit)
    (define-key map "D" #'pyagentd-defaults-reset)
    map)
  "Keymap of `pyagentd-defaults-mode'.")

(define-derived-mode pyagentd-defaults-mode pyagentd-table-mode
  "Settings of agents"
  "Major mode for the defaults of named agents.

\\{pyagentd-defaults-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Setting" 20 nil) ("Value" 30 nil)
                               ("What it is" 0 nil)]
        pyagentd-table-help '(("RET" "change") ("D" "default")
                              ("g" "refresh") ("q" "close")))
  (setq-local revert-buffer-function #'pyagentd-defaults--revert)
  (tabulated-list-init-header))

(defun pyagentd-settings ()
  "Edit the defaults of named agents."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd settings*")))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-defaults-mode)
        (pyagentd-defaults-mode))
      (revert-buffer))
    (pop-to-buffer buffer)))

;;;; Destroying a named agent

;; What would be lost is shown before anything is done.  The conversation
;; is saved first; files go to the trash, or stay for an agent of the same
;; name to take up.

(defun pyagentd-destroy--insert (name lines keep)
  "Insert what is lost with the agent NAME: LINES; KEEP says files stay."
  (insert (propertize (format "The agent %s\n" name) 'face 'pyagentd-heading)
          (if lines
              (mapconcat (lambda (line) (format "  - %s\n" line)) lines "")
            "  Nothing would be lost.\n"))
  (when keep
    (insert (propertize "  Its files stay; an agent of the same name will \
use them.\n"
                        'face 'shadow))))

(defun pyagentd-destroy--buffer (name lines keep)
  "Return a buffer that says what is lost with NAME: LINES; KEEP: files stay."
  (with-current-buffer (get-buffer-create "*pyagentd losses*")
    (special-mode)
    (setq-local truncate-lines nil
                word-wrap t)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (pyagentd-destroy--insert name lines keep))
    (goto-char (point-min))
    (current-buffer)))

(defun pyagentd-destroy--confirm (name losses keep)
  "Ask whether to destroy NAME, with which LOSSES go; KEEP: files stay."
  (save-window-excursion
    (let ((shown (pyagentd-destroy--buffer name (plist-get losses :lines)
                                           keep)))
      (display-buffer shown '(display-buffer-at-bottom
                              (window-height . fit-window-to-buffer)))
      (unwind-protect
          (pyagentd-later-ask
           (format "Destroy the agent %s%s? " name
                   (if keep ", but not its files" "")))
        (kill-buffer shown)))))

(defun pyagentd-destroy (name keep &optional then)
  "Destroy the agent NAME when its user has seen what is lost.
KEEP says that its files stay.  THEN is called when it is done, or when
the user does not want it."
  (pyagentd-later
   'agent-losses (list :name name :keep-files keep)
   (lambda (losses)
     (dolist (buffer (pyagentd-here-buffers (plist-get losses :dir)))
       (with-current-buffer buffer (pyagentd-session-save)))
     (if (not (pyagentd-destroy--confirm name losses keep))
         (when then (funcall then))
       (message "Destroying %s..." name)
       (pyagentd-later
        'agent-destroy (list :name name :keep-files keep :confirmed t)
        (lambda (done)
          (message "%s" (plist-get done :text))
          (run-hooks 'pyagentd-changed-hook)
          (when then (funcall then)))
        60)))))

(defun pyagentd-agent-destroy (name &optional keep)
  "Destroy the agent NAME and stop all it does.
What would be lost is named first.  Its conversation is saved and its files
go to the trash; with a prefix argument, or KEEP from Lisp, they stay, and
`pyagentd-agent-init' with the same name uses them again."
  (interactive (list (pyagentd-named-read (if current-prefix-arg
                                              "Destroy agent, not its files"
                                            "Destroy agent"))
                     (and current-prefix-arg t)))
  (pyagentd-destroy name keep))

;;;; The named agents

;; The named agents: what each does, with which model and permissions.
;; They can be visited, configured, given another name, talked with anew
;; and destroyed, one by one or all that are marked.

(defvar-local pyagentd-named-list--destroyed nil
  "Non-nil if agents that were destroyed are shown too.")

(defvar-local pyagentd-named-list--flags nil
  "Flags of agents, an alist (NAME . CHARACTER).
D destroys an agent, K does so and keeps its files.")

;;;; Lines

(defun pyagentd-named-list--status (agent)
  "Return what AGENT does, with its face."
  (let* ((state (format "%s" (or (plist-get agent :state) "idle")))
         (text (if (equal state "idle")
                   (format "%s" (plist-get agent :status))
                 state)))
    (propertize text 'face (pcase text
                             ("busy" 'success)
                             ((or "waiting" "retrying") 'warning)
                             ("error" 'error)
                             ("active" 'default)
                             (_ 'shadow)))))

(defun pyagentd-named-permissions (permissions)
  "Return PERMISSIONS, of an agent, in a word."
  (cond ((null permissions) "")
        ((or (consp permissions) (string-prefix-p "{" permissions)) "custom")
        (t permissions)))

(defun pyagentd-named-list--entry (agent)
  "Return the line of AGENT."
  (let ((wrong (plist-get agent :error)))
    (list (plist-get agent :name)
          (vector (propertize (plist-get agent :name) 'face 'bold)
                  (pyagentd-named-list--status agent)
                  (or (plist-get agent :model) "")
                  (pyagentd-named-permissions (plist-get agent :permissions))
                  (pyagentd-time (plist-get agent :created-at))
                  (if wrong (propertize (concat "! " wrong) 'face 'error)
                    (propertize (abbreviate-file-name (plist-get agent :dir))
                                'face 'shadow))))))

;;;; Fetching

(defun pyagentd-named-list--show (answer)
  "List the agents in ANSWER."
  (setq pyagentd-table-rows (plist-get answer :agents))
  (setq pyagentd-named-known
        (seq-remove (lambda (agent)
                      (equal "destroyed" (plist-get agent :status)))
                    pyagentd-table-rows))
  (pyagentd-table-print (mapcar #'pyagentd-named-list--entry
                                pyagentd-table-rows))
  (pyagentd-named-list--print-flags))

(defun pyagentd-named-list--fetch ()
  "Fetch the agents; they are shown when they come."
  (pyagentd-table-fetch 'agent-list
                        (list :destroyed pyagentd-named-list--destroyed
                              :watch t)
                        #'pyagentd-named-list--show))

(defun pyagentd-named-list--revert (&rest _)
  "Fetch the agents again."
  (pyagentd-table-ask #'pyagentd-named-list--fetch))

(defun pyagentd-named-list--on-change (&rest _)
  "Fetch the agents again in a moment, if their list is shown.
A new daemon is also told so that it is."
  (pyagentd-table-changed "*pyagentd named agents*" 'pyagentd-named-list-mode
                          #'pyagentd-named-list--fetch))

(pyagentd-events-register 'agents #'pyagentd-named-list--on-change)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-named-list--on-change)
(add-hook 'pyagentd-changed-hook #'pyagentd-named-list--on-change)

;;;; Point

(defun pyagentd-named-list--here ()
  "Return the agent at point as `pyagentd-here' documents."
  (let* ((agent (pyagentd-table-row :name))
         (branch (or (plist-get agent :branch)
                     (user-error "%s has no files" (plist-get agent :name)))))
    (list :branch branch :branch-dir branch
          :session-id (plist-get agent :session-id)
          :session-dir (plist-get agent :dir)
          :branch-name (file-name-nondirectory branch)
          :file (pyagentd-place-conversation branch)
          :title (plist-get agent :name))))

(defun pyagentd-named-list-visit ()
  "Visit the conversation of the agent at point."
  (interactive nil pyagentd-named-list-mode)
  (pyagentd-here-visit (pyagentd-here)))

(defun pyagentd-named-list-visit-other-window ()
  "Visit the conversation of the agent at point in another window."
  (interactive nil pyagentd-named-list-mode)
  (pyagentd-here-visit (pyagentd-here) t))

(defun pyagentd-named-list-workspace ()
  "Visit the workspace of the agent at point."
  (interactive nil pyagentd-named-list-mode)
  (dired-other-window
   (expand-file-name "workspace" (plist-get (pyagentd-here) :session-dir))))

(defun pyagentd-named-list-documents ()
  "Visit the documents of the agent at point, which are in its prompt."
  (interactive nil pyagentd-named-list-mode)
  (dired-other-window
   (expand-file-name "docs" (plist-get (pyagentd-here) :session-dir))))

(defun pyagentd-named-list-toggle-destroyed ()
  "Show agents that were destroyed too, or no longer."
  (interactive nil pyagentd-named-list-mode)
  (setq pyagentd-named-list--destroyed (not pyagentd-named-list--destroyed))
  (revert-buffer))

;;;; Flags

(defun pyagentd-named-list--print-flags ()
  "Show the flags, and forget those of agents that are not listed."
  (let (flags)
    (save-excursion
      (goto-char (point-min))
      (while (not (eobp))
        (when-let ((flag (assoc (tabulated-list-get-id)
                                pyagentd-named-list--flags)))
          (push flag flags)
          (tabulated-list-put-tag (propertize (string (cdr flag))
                                              'face 'error)))
        (forward-line)))
    (setq pyagentd-named-list--flags (nreverse flags))))

(defun pyagentd-named-list--flag (flag)
  "Give the agents of the region, or the one at point, FLAG and move on.
FLAG is a character, or nil for none."
  (let ((end (if (use-region-p) (region-end) (1+ (point)))))
    (when (use-region-p)
      (goto-char (region-beginning))
      (deactivate-mark))
    (while (< (point) end)
      (when-let ((name (tabulated-list-get-id)))
        (setf (alist-get name pyagentd-named-list--flags nil t #'equal) flag)
        (tabulated-list-put-tag (propertize (if flag (string flag) " ")
                                            'face 'error)))
      (forward-line)
      (when (eobp) (setq end (point))))))

(defun pyagentd-named-list-flag ()
  "Flag the agent at point, or those in the region, to be destroyed.
\\<pyagentd-named-list-mode-map>\\[pyagentd-named-list-execute] does it; \
their files go to the trash."
  (interactive nil pyagentd-named-list-mode)
  (pyagentd-named-list--flag ?D))

(defun pyagentd-named-list-flag-keep ()
  "Flag the agent at point, or those in the region, to be destroyed.
Their files stay."
  (interactive nil pyagentd-named-list-mode)
  (pyagentd-named-list--flag ?K))

(defun pyagentd-named-list-unflag ()
  "Take the flag from the agent at point, or those in the region."
  (interactive nil pyagentd-named-list-mode)
  (pyagentd-named-list--flag nil))

(defun pyagentd-named-list-unflag-all ()
  "Take all flags away."
  (interactive nil pyagentd-named-list-mode)
  (setq pyagentd-named-list--flags nil)
  (tabulated-list-clear-all-tags))

(defun pyagentd-named-list-execute ()
  "Destroy the agents that are flagged, one after the other.
What would be lost with each is named before it is done."
  (interactive nil pyagentd-named-list-mode)
  (pyagentd-named-list--print-flags)    ; in the order of the lines
  (pcase-let ((`((,name . ,flag) . ,more) pyagentd-named-list--flags)
              (buffer (current-buffer)))
    (unless name
      (user-error "Nothing flagged: d flags an agent, K keeps its files"))
    (pyagentd-destroy
     name (eql flag ?K)
     (lambda ()
       (pyagentd-later-in buffer
         (setq pyagentd-named-list--flags more)
         (pyagentd-named-list--on-change)
         (when more (pyagentd-named-list-execute)))))))

;;;; The mode

(defvar pyagentd-named-list-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-named-list-visit)
    (define-key map "o" #'pyagentd-named-list-visit-other-window)
    (define-key map "+" #'pyagentd-agent-init)
    (define-key map "c" #'pyagentd-agent-config)
    (define-key map "r" #'pyagentd-agent-rename)
    (define-key map "w" #'pyagentd-named-list-workspace)
    (define-key map "W" #'pyagentd-named-list-documents)
    (define-key map "t" #'pyagentd-tasks)
    (define-key map "s" #'pyagentd-context-save)
    (define-key map "C" #'pyagentd-context-clear)
    (define-key map "H" #'pyagentd-context-history)
    (define-key map "A" #'pyagentd-named-list-toggle-destroyed)
    (define-key map "d" #'pyagentd-named-list-flag)
    (define-key map "K" #'pyagentd-named-list-flag-keep)
    (define-key map "u" #'pyagentd-named-list-unflag)
    (define-key map "U" #'pyagentd-named-list-unflag-all)
    (define-key map "x" #'pyagentd-named-list-execute)
    map)
  "Keymap of `pyagentd-named-list-mode'.")

(define-derived-mode pyagentd-named-list-mode pyagentd-table-mode "Named agents"
  "Major mode for the list of named agents.

\\{pyagentd-named-list-mode-map}"
  (setq tabulated-list-padding 2
        tabulated-list-sort-key '("Name" . nil)
        tabulated-list-format [("Name" 22 t) ("Status" 10 t) ("Model" 22 t)
                               ("Permissions" 12 t) ("Made" 17 t)
                               ("Directory" 0 nil)]
        pyagentd-table-help '(("RET" "open") ("+" "new") ("c" "configure")
                              ("r" "rename") ("t" "tasks") ("H" "history")
                              ("d" "flag") ("x" "destroy flagged")
                              ("?" "all keys"))
        pyagentd-table-empty "No named agents; + makes one."
        pyagentd-here-function #'pyagentd-named-list--here)
  (setq-local revert-buffer-function #'pyagentd-named-list--revert)
  (tabulated-list-init-header))

(defun pyagentd-agent-list ()
  "List the named agents."
  (interactive)
  (pop-to-buffer (get-buffer-create "*pyagentd named agents*"))
  (unless (derived-mode-p 'pyagentd-named-list-mode)
    (pyagentd-named-list-mode))
  (revert-buffer))

;;;; What an agent is

;; The keys of an agent with their values, each of which can be changed.
;; What is changed counts from the agent's next request on.

(declare-function markdown-mode "ext:markdown-mode" ())

(defvar-local pyagentd-named-config--name nil
  "Name of the agent whose configuration is in this buffer.")

(defconst pyagentd-named-config--keys
  '(("name" :name "its name and that of its directory")
    ("system_prompt" :system-prompt "its system prompt")
    ("model" :model "its model")
    ("permissions" :permissions "which actions need no approval"))
  "What can be set: key, keyword on the wire, what it is.")

(defconst pyagentd-named-config--custom "custom (written as JSON)"
  "The choice of permissions of one's own.")

;;;; Words

(defun pyagentd-named-config--value (key value)
  "Return VALUE of KEY, a keyword, on one line."
  (cond ((null value) (propertize "(default)" 'face 'shadow))
        ((eq key :permissions) (pyagentd-named-json value))
        (t (string-replace "\n" " " (string-trim (format "%s" value))))))

(defun pyagentd-named-config--show (answer)
  "Show the configuration in ANSWER."
  (let ((config (plist-get answer :config)))
    (setq pyagentd-named-config--name (plist-get answer :name)
          mode-name (list "Agent " pyagentd-named-config--name)
          default-directory (file-name-as-directory (plist-get answer :dir))
          pyagentd-table-rows
          (mapcar (pcase-lambda (`(,id ,key ,about))
                    (list :id id :key key :about about
                          :value (plist-get config key)))
                  pyagentd-named-config--keys))
    (pyagentd-table-print
     (mapcar (lambda (row)
               (list (plist-get row :id)
                     (vector (propertize (plist-get row :id) 'face 'bold)
                             (pyagentd-named-config--value
                              (plist-get row :key) (plist-get row :value))
                             (propertize (plist-get row :about)
                                         'face 'shadow))))
             pyagentd-table-rows))))

(defun pyagentd-named-config--revert (&rest _)
  "Fetch the configuration again."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'agent-config (list :name pyagentd-named-config--name)
                           #'pyagentd-named-config--show))))

;;;; Changing

(defun pyagentd-named-config--set (name key value &optional then)
  "Set KEY of the agent NAME to VALUE, nil for its default; then call THEN."
  (let ((buffer (current-buffer)))
    (pyagentd-later
     'agent-config (if value (append (list :name name :key key :value value)
                                     (pyagentd-named-config--means key))
                     (list :name name :key key :reset t))
     (lambda (answer)
       (when then (funcall then))
       (pyagentd-later-in buffer
         (when (derived-mode-p 'pyagentd-named-config-mode)
           (pyagentd-named-config--show answer)))
       (run-hooks 'pyagentd-changed-hook)
       (message "%s of %s: %s" key name
                (or (plist-get answer :note)
                    (if value "set" "the default again"))))
     60)))

(defun pyagentd-named-config--means (key)
  "Return what the daemon needs to check a value of KEY: for models, ours."
  (when (equal key "model")
    (list :env (pyagentd-env-variables) :api-key (pyagentd-env-key))))

(defun pyagentd-named-config--edit (name key text mode)
  "Edit TEXT, which KEY of the agent NAME is, in a buffer in MODE."
  (let ((buffer (current-buffer)))
    (pyagentd-edit (format "%s of %s" key name) text mode
                   (lambda (new close)
                     (pyagentd-later-in buffer
                       (pyagentd-named-config--set name key new close))))))

(defun pyagentd-named-config--permissions (name value)
  "Read other permissions for the agent NAME, which has VALUE."
  (let* ((now (if (stringp value) value pyagentd-named-config--custom))
         (chosen (completing-read
                  (format-prompt "Permissions of %s" now name)
                  (append pyagentd-named-profiles
                          (list pyagentd-named-config--custom))
                  nil nil nil nil now)))
    (if (equal chosen pyagentd-named-config--custom)
        (pyagentd-named-config--edit
         name "permissions"
         (if (stringp value) "{\"allow\": [], \"ask\": [\"tool:.*\"]}\n"
           (concat (pyagentd-named-json value) "\n"))
         #'js-mode)
      (pyagentd-named-config--set name "permissions" chosen))))

(defun pyagentd-named-config--text-mode ()
  "Turn on a mode for a system prompt."
  (if (fboundp 'markdown-mode) (markdown-mode) (text-mode)))

(defun pyagentd-named-config-edit ()
  "Change the value at point."
  (interactive nil pyagentd-named-config-mode)
  (let* ((row (pyagentd-table-row))
         (name pyagentd-named-config--name)
         (value (plist-get row :value)))
    (pcase-exhaustive (plist-get row :key)
      (:name (pyagentd-agent-rename
              name (string-trim (read-string (format "New name of %s: " name)
                                             name))))
      (:system-prompt (pyagentd-named-config--edit
                       name "system_prompt" (or value "")
                       #'pyagentd-named-config--text-mode))
      (:model (pyagentd-named-config--set
               name "model"
               (let ((model (pyagentd-model-read
                             (format-prompt "Model of %s" value name))))
                 (if (equal model "") value model))))
      (:permissions (pyagentd-named-config--permissions name value)))))

(defun pyagentd-named-config-reset ()
  "Reset the value at point to its default."
  (interactive nil pyagentd-named-config-mode)
  (let ((row (pyagentd-table-row)))
    (unless (memq (plist-get row :key) '(:model :permissions))
      (user-error "`%s' has no default" (plist-get row :id)))
    (pyagentd-named-config--set pyagentd-named-config--name
                                (plist-get row :id) nil)))

(defun pyagentd-named-config-documents ()
  "Visit the documents of this agent, which are in its prompt."
  (interactive nil pyagentd-named-config-mode)
  (dired-other-window (expand-file-name "docs")))

;;;; The mode

(defvar pyagentd-named-config-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-named-config-edit)
    (define-key map "e" #'pyagentd-named-config-edit)
    (define-key map "D" #'pyagentd-named-config-reset)
    (define-key map "W" #'pyagentd-named-config-documents)
    map)
  "Keymap of `pyagentd-named-config-mode'.")

(define-derived-mode pyagentd-named-config-mode pyagentd-table-mode
  "Agent"
  "Major mode for the configuration of a named agent.

\\{pyagentd-named-config-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Key" 14 nil) ("Value" 44 nil)
                               ("What it is" 0 nil)]
        pyagentd-table-help '(("RET" "change") ("D" "default")
                              ("W" "its documents") ("g" "refresh")
                              ("q" "close")))
  (setq-local revert-buffer-function #'pyagentd-named-config--revert)
  (tabulated-list-init-header))

(defun pyagentd-agent-config (name)
  "Show and edit the configuration of the agent NAME."
  (interactive (list (or (pyagentd-named-here)
                         (pyagentd-named-read "Configure agent"))))
  (let ((buffer (get-buffer-create (format "*pyagentd agent %s*" name))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-named-config-mode)
        (pyagentd-named-config-mode))
      (setq pyagentd-named-config--name name)
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-agents)
;;; pyagentd-agents.el ends here

;;; pyagentd-menu.el --- Menus, and the settings chosen there -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Menus (transients) of all commands, with the current values: one for a
;; conversation, which leads to the others.

;;; Code:

(require 'transient)
(require 'pyagentd)

;;;; Current values

(defun pyagentd-menu--value (name value)
  "Return NAME followed by VALUE, its current value; nil, \"\" or 0 for none."
  (if (member value '(nil "" 0))
      name
    (concat name " " (propertize (format "%s" value) 'face 'transient-value))))

(defun pyagentd-menu--session-p ()
  "Return non-nil if this buffer is a session."
  (bound-and-true-p pyagentd-mode))

(defun pyagentd-menu--somewhere-p ()
  "Return non-nil if there is a session here, see `pyagentd-here'."
  (ignore-errors (pyagentd-here)))

(defun pyagentd-menu--title ()
  "Return the title of the menu: the session here and its status."
  (if (not (pyagentd-menu--session-p))
      "Conversation"
    (concat (propertize (truncate-string-to-width
                         (or pyagentd-status-title pyagentd--session-id "")
                         40 nil nil t)
                        'face 'transient-heading)
            "  " (pyagentd-status--text pyagentd-status))))

(defun pyagentd-menu--agent ()
  "Return the agent that answers next."
  (or pyagentd-plan-next pyagentd-plan--agent pyagentd-status-preset))

(defun pyagentd-menu--setting (words key)
  "Return the value of the setting KEY, truncated to fit after WORDS."
  (when (pyagentd-menu--session-p)
    (let* ((value (pyagentd-model-value key))
           (next (if (plist-member pyagentd-settings-next key) " (next)" ""))
           (shown (pcase key
                    (:model (if (string-empty-p next) pyagentd-status-model value))
                    (:thinking (or value "off"))
                    (:system (if value "edited" "preset.md"))
                    (:tools (length (split-string (or value ""))))
                    (_ (or value "default")))))
      (concat (truncate-string-to-width
               (format "%s" (or shown ""))
               (- 25 (length words) (length next)) nil nil t)
              next))))

(defun pyagentd-menu--next-p ()
  "Return non-nil if something is set for the next message only."
  pyagentd-settings-next)

(defun pyagentd-menu--context ()
  "Return the usage of the context window and the cost of the session."
  (when-let ((used (plist-get pyagentd-context :used)))
    (format "%d%% %s" (round (* 100.0 used)
                             (max 1 (plist-get pyagentd-context :window)))
            (car (last (split-string (plist-get pyagentd-context :short)))))))

(defun pyagentd-menu--overridden ()
  "Return the settings that differ from preset.md."
  (when (pyagentd-menu--session-p)
    (mapconcat (lambda (variable)
                 (replace-regexp-in-string "\\`gptel--?" ""
                                           (symbol-name variable)))
               (pyagentd-settings-overridden) ", ")))

;;;; Options

(defun pyagentd-menu--choices (option)
  "Return an alist (WORD . VALUE) of the values that the type of OPTION allows."
  (pcase (get option 'custom-type)
    ('boolean '(("no" . nil) ("yes" . t)))
    (`(choice . ,types)
     (mapcar (lambda (type)
               (let ((value (car (last type))))
                 (cons (downcase (format "%s" (or (plist-get (cdr type) :tag)
                                                  value)))
                       value)))
             types))))

(defun pyagentd-menu--option (option)
  "Return the value of OPTION in words."
  (or (car (rassoc (symbol-value option) (pyagentd-menu--choices option)))
      (format "%S" (symbol-value option))))

(defun pyagentd-menu-switch (option)
  "Set OPTION to the next of its possible values, in this Emacs."
  (let ((choices (pyagentd-menu--choices option)))
    (set option (cdar (or (cdr (member (rassoc (symbol-value option) choices)
                                       choices))
                          choices)))
    (message "%s: %s" option (pyagentd-menu--option option))))

;;;; Menus

(eval-and-compile
  (defun pyagentd-menu--command (menu entry)
    "Return the command of ENTRY, an entry of MENU in `pyagentd-menus'."
    (let ((command (nth 2 entry)))
      (if (symbolp command) command
        (intern (format "%s--%s" menu (car entry))))))

  (defun pyagentd-menu--entry (menu entry)
    "Return a transient suffix for ENTRY of MENU, of `pyagentd-menus'."
    (pcase entry
      ((pred stringp) (list "" entry))
      (`(,key ,words ,_ . ,plist)
       (list
        (append (list key)
                (unless (plist-get plist :value) (list words))
                (list (pyagentd-menu--command menu entry))
                (when-let ((value (plist-get plist :value)))
                  `(:description
                    (lambda () (pyagentd-menu--value ,words ,value))))
                (when-let ((predicate (plist-get plist :if)))
                  (list :if predicate))
                (when (plist-get plist :stay) '(:transient t)))))))

  (defun pyagentd-menu--column (menu group)
    "Return a transient group for GROUP of MENU, of `pyagentd-menus'."
    (pcase-let ((`(,title ,predicate . ,entries) (pyagentd-menus-group group)))
      (vconcat (and title (list title))
               (and predicate (list :if predicate))
               (seq-mapcat (lambda (entry) (pyagentd-menu--entry menu entry))
                           entries))))

  (defun pyagentd-menu--commands (menu rows)
    "Return definitions of the commands in ROWS of MENU that are given as forms.
The transient of Emacs 29 quotes an anonymous function."
    (let (forms)
      (dolist (row rows)
        (dolist (group (cdr row))
          (dolist (entry (cddr (pyagentd-menus-group group)))
            (unless (or (stringp entry) (symbolp (nth 2 entry)))
              (push `(defun ,(pyagentd-menu--command menu entry) ()
                       ,(format "%s." (nth 1 entry))
                       (interactive)
                       ,(nth 2 entry))
                    forms)))))
      (nreverse forms))))

(defmacro pyagentd-menu--define-all ()
  "Define the menus that `pyagentd-menus' describes."
  `(progn
     ,@(seq-mapcat
        (pcase-lambda (`(,name ,documentation . ,rows))
          `(,@(pyagentd-menu--commands name rows)
            (transient-define-prefix ,name ()
              ,documentation
              ,@(mapcar (pcase-lambda (`(,description . ,groups))
                          (vconcat (and description
                                        (list :description description))
                                   (mapcar (lambda (group)
                                             (pyagentd-menu--column name group))
                                           groups)))
                        rows))))
        pyagentd-menus)))

;;;###autoload (autoload 'pyagentd-menu "pyagentd-menu" nil t)
(pyagentd-menu--define-all)

;;;; Model, temperature, tools and system prompt

;; The model and settings of a session.  As with gptel, the user chooses
;; them in the buffer, for the session or for the next message only.  The
;; Local Variables of the session's document hold model, temperature and
;; maximum tokens; its preset.md holds thinking effort, system prompt and
;; tools.

(defvar pyagentd-model-history nil
  "Minibuffer history of model names.")

(defvar pyagentd-model--known nil
  "Models from the daemon, for completion.
Each is a plist of :text, the candidate, :backend, :name and :words.")

(defvar pyagentd-model--backend nil
  "Name of the backend of the session here, according to the daemon.")

(defun pyagentd-model--fetch ()
  "Fetch the available models from the daemon."
  (pyagentd-rpc-call-async
   'models (and (bound-and-true-p pyagentd--branch-dir)
                (list :branch pyagentd--branch-dir))
   :timeout (* 3 pyagentd-call-timeout)
   :success (lambda (answer)
              (setq pyagentd-model--known (plist-get answer :offered)
                    pyagentd-model--backend (plist-get answer :backend)))
   :error #'ignore))

(defun pyagentd-model--rows ()
  "Return the known models and those chosen before, as (NAME . WORDS)."
  (let ((known (mapcar (lambda (model)
                         (cons (plist-get model :text) (plist-get model :words)))
                       pyagentd-model--known)))
    (append known (mapcar #'list (seq-difference pyagentd-model-history
                                                 (mapcar #'car known))))))

(defun pyagentd-model-read (prompt)
  "Read the name of a model with PROMPT; it may be empty."
  (pyagentd-model--fetch)
  (completing-read prompt
                   (pyagentd-told-table 'pyagentd-model #'pyagentd-model--rows)
                   nil nil nil 'pyagentd-model-history))

;;;; For the session, or for the next message only

(defun pyagentd-model-value (key)
  "Return the value of the setting KEY for the next message, nil for the default.
KEY is :model, :temperature, :max-tokens, :thinking, :system or :tools."
  (pyagentd-in-session
    (or (plist-get pyagentd-settings-next key)
        (pcase-exhaustive key
          (:thinking pyagentd-settings-thinking)
          (:system nil)
          (:tools (string-join (pyagentd-block-get 'gptel--tool-names) " "))
          (_ (pyagentd-block-get (car (rassq key pyagentd-settings--keys))))))))

(defun pyagentd-model--next (key value)
  "Set KEY to VALUE for the next message only; nil removes that setting."
  (setq pyagentd-settings-next
        (append (and value (list key value))
                (cl-loop for (other held) on pyagentd-settings-next by #'cddr
                         unless (eq other key) append (list other held))))
  (pyagentd-status-refresh)
  (message "%s" (if value "Set for the next message only"
                  "The next message uses the settings of this session")))

(defun pyagentd-model--set (key value &optional backend)
  "Set KEY to VALUE for this session, or for the next message only.
BACKEND is the backend of a model.  For both, nil means the value in
preset.md."
  (pyagentd-in-session
    (if pyagentd-settings-next-only
        (pyagentd-model--next key (if (symbolp value)
                                      (and value (symbol-name value))
                                    value))
      (let ((variable (car (rassq key pyagentd-settings--keys))))
        (pyagentd-block-set
         variable (or value (alist-get variable pyagentd-settings--own))))
      (when (eq key :model)
        (pyagentd-block-set 'gptel--backend-name
                            (or backend (alist-get 'gptel--backend-name
                                                   pyagentd-settings--own))))
      (pyagentd-model--save)
      (message "Set for this session"))))

(defun pyagentd-model--save ()
  "Write the settings of this session to its file."
  (pyagentd-settings-show)
  (unless buffer-read-only
    (set-buffer-modified-p t)
    (pyagentd-session-save)))

(defun pyagentd-model--configure (key value &optional then failure)
  "Write VALUE of KEY to preset.md; call THEN, or FAILURE with an error."
  (pyagentd-later-here
   'configure (list :branch pyagentd--branch-dir key value)
   (lambda (answer)
     (when (eq key :tools)
       (pyagentd-block-set 'gptel--tool-names
                           (plist-get (plist-get answer :own-settings) :tools)))
     (pyagentd-settings-receive answer)
     (when (eq key :tools)
       (pyagentd-model--save))
     (when then (funcall then))
     (message "Saved in this session's preset.md"))
   nil failure))

(defun pyagentd-model--scoped (words)
  "Return WORDS with the scope of the choice: next message or session."
  (format "%s of %s" words (if pyagentd-settings-next-only "the next message"
                             "this session")))

(defun pyagentd-model--prompt (words key)
  "Return a prompt for the setting KEY, named WORDS."
  (format-prompt "%s, empty for the preset's" (pyagentd-model-value key)
                 (pyagentd-model--scoped words)))

;;;; Commands

(defun pyagentd-choose-model (name)
  "Choose the model NAME for your next messages in this session.
NAME may be BACKEND/MODEL; the empty string means the model in preset.md."
  (interactive
   (list (pyagentd-in-session
           (pyagentd-model-read (pyagentd-model--prompt "Model" :model))))
   pyagentd-mode)
  (let* ((model (seq-find (lambda (model) (equal name (plist-get model :text)))
                          pyagentd-model--known))
         (backend (and (not (equal (plist-get model :backend)
                                   pyagentd-model--backend))
                       (plist-get model :backend)))
         (model (or (plist-get model :name) name)))
    (pyagentd-in-session
      (pyagentd-model--set :model
                           (cond ((string-empty-p model) nil)
                                 ((and backend pyagentd-settings-next-only)
                                  (intern (concat backend "/" model)))
                                 (t (intern model)))
                           backend))))

(defun pyagentd-model--choose-number (words key valid)
  "Read the setting KEY, a number named WORDS; VALID is a predicate for it."
  (pyagentd-in-session
    (let* ((text (string-trim (read-string (pyagentd-model--prompt words key))))
           (number (and (string-match-p "\\`[0-9]+\\(?:\\.[0-9]+\\)?\\'" text)
                        (string-to-number text))))
      (unless (or (string-empty-p text)
                  (and number (funcall valid number)))
        (user-error "%s is no %s" text words))
      (pyagentd-model--set key number))))

(defun pyagentd-model--choose-thinking (effort)
  "Set the thinking effort of this session's model to EFFORT."
  (interactive
   (list (pyagentd-in-session
           (let ((now (or (pyagentd-model-value :thinking) "off")))
             (pyagentd-choose
              (format-prompt (pyagentd-model--scoped "Thinking effort") now)
              '("off" "low" "medium" "high") :default now))))
   pyagentd-mode)
  (pyagentd-in-session
    (if pyagentd-settings-next-only (pyagentd-model--next :thinking effort)
      (let ((before pyagentd-settings-thinking))
        (setq pyagentd-settings-thinking effort) ; the menu shows it at once
        (pyagentd-model--configure
         :thinking effort nil
         (lambda (err)
           (setq pyagentd-settings-thinking before)
           (pyagentd-later-tell err)))))))

(defun pyagentd-model--change (operation key read)
  "Change the setting KEY, for this session or for the next message only.
READ is called with three arguments: the daemon's reply to OPERATION, the
current value for the next message or nil, and a function to set the new
value, which takes that and optionally a callback for when it is set."
  (pyagentd-in-session
    (let* ((next pyagentd-settings-next-only)
           (session (current-buffer))
           (set (lambda (value &optional then)
                  (unless (buffer-live-p session)
                    (user-error "The session's buffer was killed; visit it \
and give the command there again"))
                  (with-current-buffer session
                    (if (not next) (pyagentd-model--configure key value then)
                      (pyagentd-model--next key value)
                      (when then (funcall then)))))))
      (pyagentd-later-asking
       operation (list :branch pyagentd--branch-dir)
       (lambda (answer)
         (funcall read answer
                  (and next (plist-get pyagentd-settings-next key)) set))))))

(defun pyagentd-edit-system-prompt ()
  "Edit the system prompt of this session, or of the next message only."
  (interactive nil pyagentd-mode)
  (pyagentd-model--change
   'system-prompt :system
   (lambda (answer next set)
     (pyagentd-edit (format "system prompt of %s%s" (buffer-name)
                            (if pyagentd-settings-next-only
                                ", next message only" ""))
                    (or next answer "")
                    (if (fboundp 'markdown-mode) 'markdown-mode #'text-mode)
                    set :key pyagentd--branch-dir))))

(defun pyagentd-model--choose-tools ()
  "Turn tools on and off, for this session or for the next message only."
  (interactive nil pyagentd-mode)
  (pyagentd-model--change
   'tools-available :tools
   (lambda (answer next set)
     (let ((names (plist-get answer :tools))
           (on (if next (split-string next) (plist-get answer :on)))
           name)
       (while (setq name
                    (pyagentd-choose
                     (format "Switch tool (%d of %d on; RET alone when done): "
                             (length on) (length names))
                     names
                     :annotate (lambda (tool)
                                 (if (member tool on) "  on" "  off"))))
         (setq on (if (member name on) (remove name on)
                    (append on (list name)))))
       (funcall set (string-join on " "))))))

(defun pyagentd-model--switch-scope ()
  "Choose settings for the next message only, or for this session again."
  (interactive nil pyagentd-mode)
  (pyagentd-in-session
    (setq pyagentd-settings-next-only (not pyagentd-settings-next-only))))

(defun pyagentd-model--forget-next ()
  "Send the next message with the settings of this session."
  (interactive nil pyagentd-mode)
  (pyagentd-in-session
    (setq pyagentd-settings-next nil)
    (pyagentd-status-refresh)))

(provide 'pyagentd-menu)
;;; pyagentd-menu.el ends here

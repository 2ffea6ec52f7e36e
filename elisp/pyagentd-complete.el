;;; pyagentd-complete.el --- Completing mentions and slash commands -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Completion of `@file' and `/command' in a prompt.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-sync)
(require 'pyagentd-edit)
(require 'pyagentd-daemon)

;;;; Complete @file, @agent

;; In a prompt, @PATH names a file or a directory of the project, @NAME an
;; agent and @SERVER:URI what a server of tools (MCP) offers.  All are
;; completed at point, by whatever completes elsewhere:
;; `completion-at-point' on its key or TAB, Corfu, Company.
;;
;; Files are what the daemon says that git has, where the project is a
;; repository; until it has answered, and elsewhere, they are completed
;; directory by directory.

;; Names are completed by any part of them.
(add-to-list 'completion-category-defaults
             '(pyagentd-mention (styles basic substring flex)))

;;;; What there is

(defconst pyagentd-complete--kinds
  '((files project-files :root :files identity)
    (agents presets :root :presets pyagentd-mention--agent)
    (resources mcp-resources :branch :resources pyagentd-mention--resource)
    (commands commands :branch :commands identity)
    ("agents" agent-list nil :agents (:name . :status))
    ("contexts" context-history :branch :contexts (:id . :description))
    ("tasks" tasks :branch :tasks (:id . :command))
    ("models" models :branch :offered (:text . :words)))
  "What the daemon is asked for: lists (KIND OPERATION ARGUMENT KEY ROW).
ARGUMENT is that of the place, the root of a project or a branch, and KEY
that of the rows in the answer.  ROW makes what completes of each: a
function, or the keys of a text and of words about it.  A KIND that is a
string is what the daemon calls the :values of a command's argument.")

(defconst pyagentd-complete--fresh 10
  "Seconds for which what was found is not looked for again.")

(defvar pyagentd-complete--known (make-hash-table :test #'equal)
  "What was found, (TIME . ROWS), by (KIND PLACE).
Rows are names of files (none where git has none), commands (plists as the
daemon tells them), and of all other kinds pairs (TEXT . WORDS).")

(defun pyagentd-complete--get (kind place)
  "Return what was found of KIND in PLACE, see `pyagentd-complete--known'."
  (cdr (gethash (list kind place) pyagentd-complete--known)))

(defun pyagentd-complete--refresh (kind place)
  "Ask the daemon again for what is of KIND in PLACE, if that is due."
  (pcase-let ((`(,time . ,known) (gethash (list kind place)
                                          pyagentd-complete--known))
              (`(,_ ,operation ,argument ,key ,row)
               (assoc kind pyagentd-complete--kinds))
              (keep (lambda (found)
                      (puthash (list kind place) (cons (float-time) found)
                               pyagentd-complete--known))))
    (when (and operation
               (> (- (float-time) (or time 0)) pyagentd-complete--fresh))
      (funcall keep known)
      (pyagentd-later-quietly
       operation (and argument (list argument place))
       (lambda (answer)
         (funcall keep
                  (delq nil
                        (mapcar (pcase row
                                  (`(,text . ,words)
                                   (lambda (each)
                                     (cons (plist-get each text)
                                           (plist-get each words))))
                                  (_ row))
                                (plist-get answer key)))))))))

(defun pyagentd-mention--agent (preset)
  "Return the name of PRESET and words about it; nil if no agent is made of it."
  (and (not (plist-get preset :error))
       (memq (pyagentd-symbol (plist-get preset :mode)) '(subagent all))
       (cons (plist-get preset :name)
             (concat "agent: " (plist-get preset :description)))))

(defun pyagentd-mention--resource (resource)
  "Return how RESOURCE, which a server of tools offers, is mentioned, and words."
  (cons (string-remove-prefix "@" (plist-get resource :mention))
        (or (plist-get resource :description) (plist-get resource :name) "")))

(defun pyagentd-mention--names (root branch)
  "Return the agents of ROOT and what BRANCH is offered, as far as it is known."
  (append (pyagentd-complete--get 'agents root)
          (pyagentd-complete--get 'resources branch)))

;;;; Completion

(defun pyagentd-mention-there-p (name)
  "Return non-nil if NAME is that of a file or an agent of this project.
Text that is only shown is asked about: nothing but the project itself is
looked at, and never another machine."
  (or (assoc name (pyagentd-mention--names pyagentd-attach-root
                                           pyagentd--branch-dir))
      (let ((file-name-handler-alist nil))
        (and (not (file-name-absolute-p name))
             (not (member ".." (split-string name "/")))
             (file-exists-p (expand-file-name name pyagentd-attach-root))))))

(defun pyagentd-mention--table (root branch)
  "Return a completion table of what can be mentioned in BRANCH, about ROOT."
  (lambda (string predicate action)
    (let ((names (mapcar #'car (pyagentd-mention--names root branch)))
          (files (pyagentd-complete--get 'files root)))
      (cond
       ((eq action 'metadata)
        '(metadata (category . pyagentd-mention)))
       (files
        (complete-with-action action (append names files) string predicate))
       ((and (string-search "/" string) (not (string-search ":" string)))
        (let ((default-directory (file-name-as-directory root))
              (file-name-handler-alist nil))
          (complete-with-action action #'completion-file-name-table
                                string predicate)))
       (t
        (complete-with-action
         action
         (append names
                 (ignore-errors
                   (seq-difference
                    (file-name-all-completions "" (file-name-as-directory root))
                    '("./" "../"))))
         string predicate))))))

(defun pyagentd-mention-bounds ()
  "Return where the mention at point is without its @, (BEG . END), or nil.
It is in text of the user, after white space or an opening bracket."
  (save-excursion
    (let ((here (point)))
      (skip-chars-backward "^ \t\n@" (max (point-min) (- here 300)))
      (when (and (eq (char-before) ?@)
                 (not (get-text-property (1- (point)) 'gptel))
                 (or (= (1- (point)) (point-min))
                     (memq (char-before (1- (point)))
                           '(?\s ?\t ?\n ?\( ?\[ ?\{ ?\" ?'))))
        (cons (point)
              (save-excursion
                (goto-char here)
                (skip-chars-forward "^ \t\n@`'\"(){}[]," (+ here 300))
                (point)))))))

(defun pyagentd-complete--exit (goes-on)
  "Return what adds a space behind a whole candidate for which GOES-ON is true."
  (lambda (text status)
    (when (and (eq status 'finished) (not (looking-at-p "[ \t]"))
               (funcall goes-on text))
      (insert " "))))

(defun pyagentd-mention-at-point ()
  "Complete the @file or @agent at point; for `completion-at-point-functions'."
  (when-let* (((bound-and-true-p pyagentd-mode))
              (root pyagentd-attach-root)
              (bounds (pyagentd-mention-bounds)))
    (let ((branch pyagentd--branch-dir))
      (pyagentd-complete--refresh 'files root)
      (pyagentd-complete--refresh 'agents root)
      (pyagentd-complete--refresh 'resources branch)
      (list (car bounds) (cdr bounds) (pyagentd-mention--table root branch)
            :annotation-function
            (lambda (name)
              (when-let ((words (cdr (assoc name (pyagentd-mention--names
                                                  root branch)))))
                (concat "  " (pyagentd-one-line words 60))))
            :company-kind (lambda (name)
                            (cond ((assoc name (pyagentd-complete--get 'agents root))
                                   'event)
                                  ((string-suffix-p "/" name) 'folder)
                                  (t 'file)))
            :exit-function (pyagentd-complete--exit
                            (lambda (name)
                              (not (string-suffix-p "/" name))))))))

(defun pyagentd-complete--at-attach ()
  "Ask for commands and agents, for which no program is run, ahead of time."
  (pyagentd-complete--refresh 'commands pyagentd--branch-dir)
  (when pyagentd-attach-root
    (pyagentd-complete--refresh 'agents pyagentd-attach-root)))

(add-to-list 'pyagentd-session-hooks
             '(completion-at-point-functions . pyagentd-mention-at-point))
(add-hook 'pyagentd-attached-hook #'pyagentd-complete--at-attach)

(add-hook 'pyagentd-completing-functions #'pyagentd-mention-bounds)

;;;; Show mentions

(defface pyagentd-mention '((t :inherit link))
  "Face of existing files and agents that a prompt mentions."
  :group 'pyagentd)

(defconst pyagentd-mention-look--regexp
  (concat "\\(?:^\\|[ \t([{\"']\\)"
          "\\(@\\([^][ \t\n@\"'(){}]*[^][ \t\n@\"'(){}.,;:!?]\\)\\)")
  "A mention; without the punctuation behind it.")

(defun pyagentd-mention-look--match (limit)
  "Find a mention of something that is there before LIMIT; for Font Lock."
  (let (found)
    (while (and pyagentd-attach-root (not found)
                (re-search-forward
                 pyagentd-mention-look--regexp limit t))
      (setq found (and (null (get-text-property (match-beginning 1) 'gptel))
                       (save-match-data
                         (pyagentd-mention-there-p
                          (match-string-no-properties 2))))))
    found))

(defun pyagentd-mention-look--show ()
  "Have mentions shown in this buffer, or no longer without the mode."
  (let ((keywords '((pyagentd-mention-look--match 1 'pyagentd-mention prepend))))
    (font-lock-remove-keywords nil keywords)
    (when (bound-and-true-p pyagentd-mode)
      (font-lock-add-keywords nil keywords t))))

(add-hook 'pyagentd-session-look-hook #'pyagentd-mention-look--show)

;;;; Completion of commands

;; A prompt that begins with a slash is a command to the daemon.  Its name
;; and its arguments complete from what the daemon has told; while one is
;; completed, nothing is waited for.

(defun pyagentd-commands ()
  "Return the commands of this session, a list of plists as the daemon tells them.
Keys: :name (words without the slash), :summary, :synopsis and :arguments,
plists with :name, :hint, :summary, :takes (\"word\", \"rest\" or
\"flag\"), :values (what completes it) and :choices."
  (pyagentd-complete--get 'commands pyagentd--branch-dir))

(defun pyagentd-commands--candidates (argument)
  "Return what completes ARGUMENT, a plist, as a list of (TEXT . SUMMARY)."
  (let ((kind (or (plist-get argument :values) "")))
    (cond ((plist-get argument :choices)
           (mapcar #'list (plist-get argument :choices)))
          ((equal kind "permissions") (mapcar #'list pyagentd-named-profiles))
          ((equal kind "commands")
           (mapcar (lambda (command) (list (plist-get command :name)))
                   (pyagentd-commands)))
          (t (pyagentd-complete--get kind pyagentd--branch-dir)))))

(defun pyagentd-commands--start ()
  "Return where the slash of the command in which point is stands, or nil."
  (let ((start (pyagentd-queued-start (point))))
    (when (and (< start (point))
               (eq ?/ (char-after start))
               (<= (line-beginning-position) start))
      start)))

(defun pyagentd-commands--words (text)
  "Return TEXT in words, a quoted text as one; the last is being typed."
  (let ((start 0) words)
    (while (string-match "\"[^\"]*\"?\\|'[^']*'?\\|[^ \t]+" text start)
      (push (match-string 0 text) words)
      (setq start (match-end 0)))
    (when (or (null words)
              (string-match-p "\\`[ \t]+\\'" (substring text start)))
      (push "" words))
    (nreverse words)))

(defun pyagentd-commands--command (text)
  "Return the command whose arguments TEXT goes into; nil while its name is typed."
  (car (sort (seq-filter (lambda (command)
                           (string-prefix-p (concat (plist-get command :name)
                                                    " ")
                                            text))
                         (pyagentd-commands))
             (lambda (a b) (> (length (plist-get a :name))
                              (length (plist-get b :name)))))))

(defun pyagentd-commands--flags (command)
  "Return the flags of COMMAND as a list of (TEXT . SUMMARY)."
  (mapcar (lambda (argument)
            (cons (concat "--" (string-replace "_" "-"
                                               (plist-get argument :name)))
                  (plist-get argument :summary)))
          (seq-filter (lambda (argument)
                        (equal "flag" (plist-get argument :takes)))
                      (plist-get command :arguments))))

(defun pyagentd-commands--complete (command text)
  "Return how to complete the last word of TEXT, arguments of COMMAND."
  (let* ((words (pyagentd-commands--words text))
         (word (car (last words)))
         (number (1- (seq-count (lambda (word) (not (string-prefix-p "--" word)))
                                words)))
         (argument (nth (max 0 number)
                        (seq-remove (lambda (argument)
                                      (equal "flag" (plist-get argument :takes)))
                                    (plist-get command :arguments)))))
    (pyagentd-complete--refresh (plist-get argument :values)
                                pyagentd--branch-dir)
    (when (or argument (pyagentd-commands--flags command))
      (list (- (point) (length word)) (point)
            (pyagentd-told-table
             'pyagentd-slash
             (if (string-prefix-p "-" word)
                 (lambda () (pyagentd-commands--flags command))
               (lambda () (pyagentd-commands--candidates argument))))
            :exit-function
            (pyagentd-complete--exit
             (lambda (_)
               (not (equal argument
                           (car (last (plist-get command :arguments)))))))
            :exclusive 'no))))

(defun pyagentd-commands-at-point ()
  "Complete the command at point, for `completion-at-point-functions'."
  (when-let* ((start (pyagentd-commands--start))
              (text (buffer-substring-no-properties (1+ start) (point))))
    (pyagentd-complete--refresh 'commands pyagentd--branch-dir)
    (if-let ((command (pyagentd-commands--command text)))
        (pyagentd-commands--complete
         command (string-remove-prefix
                  (concat (plist-get command :name) " ") text))
      (let ((rows (lambda (&optional key)
                    (mapcar (lambda (command)
                              (cons (concat "/" (plist-get command :name))
                                    (plist-get command (or key :summary))))
                            (pyagentd-commands)))))
        (list start (point) (pyagentd-told-table 'pyagentd-slash rows)
              :exit-function (pyagentd-complete--exit
                              (lambda (text)
                                (cdr (assoc text (funcall rows :arguments)))))
              :exclusive 'no)))))

(add-to-list 'pyagentd-session-hooks
             '(completion-at-point-functions . pyagentd-commands-at-point))
(add-hook 'pyagentd-completing-functions #'pyagentd-commands--start)

(provide 'pyagentd-complete)
;;; pyagentd-complete.el ends here

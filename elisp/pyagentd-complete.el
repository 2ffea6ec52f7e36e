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
;; agent and @SERVER:URI a resource of an MCP server.  The usual completion
;; at point completes them: `completion-at-point' on its key or TAB, Corfu,
;; Company.
;;
;; In a git repository the daemon lists the files that git does not ignore;
;; until it has answered, and elsewhere, files complete directory by
;; directory.

;; Names are completed by any part of them.
(add-to-list 'completion-category-defaults
             '(pyagentd-mention (styles basic substring flex)))

;;;; Candidates from the daemon

(defconst pyagentd-complete--kinds
  '((files project-files :root :files identity)
    (agents presets :root :presets pyagentd-mention--agent)
    (resources mcp-resources :branch :resources pyagentd-mention--resource)
    (commands commands :branch :commands identity)
    ("agents" agent-list nil :agents (:name . :status))
    ("contexts" context-history :branch :contexts (:id . :description))
    ("tasks" tasks :branch :tasks (:id . :command))
    ("models" models :branch :offered (:text . :words))
    ("permissions" settings nil :profiles list))
  "Kinds of candidates: lists (KIND OPERATION ARGUMENT KEY ROW).
OPERATION of the daemon takes the place, a project root or a branch, as
ARGUMENT; its reply has the rows under KEY.  ROW converts each: a function,
or a pair of the keys of text and annotation.  A KIND that is a string is a
value of :values in the arguments of commands.")

(defconst pyagentd-complete--fresh 10
  "Seconds before candidates are fetched again.")

(defvar pyagentd-complete--known (make-hash-table :test #'equal)
  "Hash table from (KIND PLACE) to fetched candidates, (TIME . ROWS).
Rows are file names (none outside of git), commands (plists from the
daemon), and for all other kinds pairs (TEXT . WORDS).")

(defun pyagentd-complete--get (kind place)
  "Return the known rows of KIND in PLACE, see `pyagentd-complete--known'."
  (cdr (gethash (list kind place) pyagentd-complete--known)))

(defun pyagentd-complete--refresh (kind place)
  "Fetch the rows of KIND in PLACE from the daemon, if they are outdated."
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
  "Return (NAME . WORDS) for PRESET; nil if it is not for agents."
  (and (not (plist-get preset :error))
       (memq (pyagentd-symbol (plist-get preset :mode)) '(subagent all))
       (cons (plist-get preset :name)
             (concat "agent: " (plist-get preset :description)))))

(defun pyagentd-mention--resource (resource)
  "Return (MENTION . WORDS) for RESOURCE, of an MCP server."
  (cons (string-remove-prefix "@" (plist-get resource :mention))
        (or (plist-get resource :description) (plist-get resource :name) "")))

(defun pyagentd-mention--names (root branch)
  "Return the known agents of ROOT and MCP resources of BRANCH."
  (append (pyagentd-complete--get 'agents root)
          (pyagentd-complete--get 'resources branch)))

;;;; Completion

(defun pyagentd-mention-there-p (name)
  "Return non-nil if NAME is a file, an agent or an MCP resource of this project.
It is called for any displayed text, so it only accesses files below the
project's root, and never another machine."
  (or (assoc name (pyagentd-mention--names pyagentd-attach-root
                                           pyagentd--branch-dir))
      (let ((file-name-handler-alist nil))
        (and (not (file-name-absolute-p name))
             (not (member ".." (split-string name "/")))
             (file-exists-p (expand-file-name name pyagentd-attach-root))))))

(defun pyagentd-mention--table (root branch)
  "Return a completion table of mentions in BRANCH, with files below ROOT."
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
  "Return the bounds of the mention at point without its @, (BEG . END), or nil.
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
  "Return an exit function that inserts a space after a finished candidate.
It does so if the function GOES-ON returns non-nil for the candidate."
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
  "Fetch commands and agents ahead of time, which runs no program."
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
  "Regexp for a mention without the punctuation after it.")

(defun pyagentd-mention-look--match (limit)
  "Find the next mention before LIMIT that exists; for Font Lock."
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
  "Fontify mentions in this buffer; stop if `pyagentd-mode' is off."
  (let ((keywords '((pyagentd-mention-look--match 1 'pyagentd-mention prepend))))
    (font-lock-remove-keywords nil keywords)
    (when (bound-and-true-p pyagentd-mode)
      (font-lock-add-keywords nil keywords t))))

(add-hook 'pyagentd-session-look-hook #'pyagentd-mention-look--show)

;;;; Completion of commands

;; A prompt that begins with a slash is a command to the daemon.  Its name
;; and arguments complete from data that the daemon has sent before;
;; completion never waits.

(defun pyagentd-commands ()
  "Return the commands of this session, a list of plists from the daemon.
Keys: :name (words without the slash), :summary, :synopsis and :arguments,
plists with :name, :hint, :summary, :takes (\"word\", \"rest\" or
\"flag\"), :values (the kind of its candidates) and :choices."
  (pyagentd-complete--get 'commands pyagentd--branch-dir))

(defun pyagentd-commands--candidates (argument)
  "Return the candidates for ARGUMENT, a plist, as a list of (TEXT . SUMMARY)."
  (let ((kind (or (plist-get argument :values) "")))
    (cond ((plist-get argument :choices)
           (mapcar #'list (plist-get argument :choices)))
          ((equal kind "commands")
           (mapcar (lambda (command) (list (plist-get command :name)))
                   (pyagentd-commands)))
          (t (pyagentd-complete--get kind pyagentd--branch-dir)))))

(defun pyagentd-commands--start ()
  "Return the position of the slash of the command at point, or nil."
  (let ((start (pyagentd-queued-start (point))))
    (when (and (< start (point))
               (eq ?/ (char-after start))
               (<= (line-beginning-position) start))
      start)))

(defun pyagentd-commands--words (text)
  "Split TEXT into words, the last of which is being typed.
A quoted text counts as one word."
  (let ((start 0) words)
    (while (string-match "\"[^\"]*\"?\\|'[^']*'?\\|[^ \t]+" text start)
      (push (match-string 0 text) words)
      (setq start (match-end 0)))
    (when (or (null words)
              (string-match-p "\\`[ \t]+\\'" (substring text start)))
      (push "" words))
    (nreverse words)))

(defun pyagentd-commands--command (text)
  "Return the command that TEXT begins with; nil while its name is being typed."
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
  "Return completion data for the last word of TEXT, the arguments of COMMAND.
It is as for `completion-at-point-functions'."
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

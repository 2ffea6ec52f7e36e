;;; pyagentd-mention.el --- Complete @file, @agent -*- lexical-binding: t; -*-

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

;; In a prompt, @PATH names a file or a directory of the project, @NAME an
;; agent and @SERVER:URI what a server of tools (MCP) offers.  All are
;; completed at point, by whatever completes elsewhere:
;; `completion-at-point' on its key or TAB, Corfu, Company.
;;
;; Files come from git where the project is a repository, asked in the
;; background; until it has answered, and elsewhere, they are completed
;; directory by directory.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-attach)

(defconst pyagentd-mention--fresh 10
  "Seconds for which what was found is not looked for again.")

(defvar pyagentd-mention--files (make-hash-table :test #'equal)
  "Names of files by the root of their project: (TIME . NAMES).
NAMES is the symbol `none' where git has none.")

(defvar pyagentd-mention--agents (make-hash-table :test #'equal)
  "Agents by the root of their project: (TIME . PLISTS).")

(defvar-local pyagentd-mention--resources nil
  "What servers of tools offer in this session: (TIME . PLISTS), or nil.
Each has :mention, :name and :description.")

(pyagentd-permanent-local 'pyagentd-mention--resources)

;; Names are completed by any part of them.
(add-to-list 'completion-category-defaults
             '(pyagentd-mention (styles basic substring flex)))

;;;; What there is

(defun pyagentd-mention--due-p (known)
  "Return non-nil if KNOWN, (TIME . WHAT) or nil, is to be found again."
  (or (null known)
      (> (- (float-time) (car known)) pyagentd-mention--fresh)))

(defun pyagentd-mention--refresh (root)
  "Find what can be mentioned in the project ROOT again if that is due.
This runs git, and the daemon may start servers of tools."
  (when (pyagentd-mention--due-p (gethash root pyagentd-mention--files))
    (puthash root (cons (float-time)
                        (cdr (gethash root pyagentd-mention--files)))
             pyagentd-mention--files)
    (pyagentd-mention--list root))
  (pyagentd-mention--refresh-agents root)
  (when (pyagentd-mention--due-p pyagentd-mention--resources)
    (setq pyagentd-mention--resources
          (cons (float-time) (cdr pyagentd-mention--resources)))
    (pyagentd-mention--ask-servers)))

(defun pyagentd-mention--refresh-agents (root)
  "Find the agents of the project ROOT again if that is due."
  (when (pyagentd-mention--due-p (gethash root pyagentd-mention--agents))
    (puthash root (cons (float-time)
                        (cdr (gethash root pyagentd-mention--agents)))
             pyagentd-mention--agents)
    (pyagentd-mention--ask root)))

(defun pyagentd-mention--ask-servers ()
  "Ask the daemon what servers of tools offer in this session."
  (let ((buffer (current-buffer)))
    (pyagentd-rpc-call-async
     'mcp-resources (list :branch pyagentd--branch-dir)
     :timeout pyagentd-call-timeout
     :success (lambda (answer)
                (when (buffer-live-p buffer)
                  (with-current-buffer buffer
                    (setq pyagentd-mention--resources
                          (cons (float-time) (plist-get answer :resources))))))
     :error #'ignore)))

(defconst pyagentd-mention--git
  '("git" "-c" "core.fsmonitor=false" "-c" "core.hooksPath=/dev/null"
    "-c" "core.pager=cat"
    "ls-files" "-z" "--cached" "--others" "--exclude-standard")
  "What lists the files of a project, and runs nothing the project names.")

(defun pyagentd-mention--environment ()
  "Return the environment of git: nothing of the user's directs it."
  (append '("GIT_CONFIG_GLOBAL=/dev/null" "GIT_CONFIG_NOSYSTEM=1"
            "GIT_OPTIONAL_LOCKS=0" "GIT_TERMINAL_PROMPT=0"
            "GIT_NO_LAZY_FETCH=1" "GIT_ALLOW_PROTOCOL=none" "LC_ALL=C")
          (seq-remove (lambda (variable) (string-prefix-p "GIT_" variable))
                      process-environment)))

(defun pyagentd-mention--list (root)
  "Have git list the files of the project ROOT."
  (let* ((file-name-handler-alist nil)
         (git (let ((default-directory "/")) (executable-find "git")))
         (default-directory (file-name-as-directory root))
         (process-environment (pyagentd-mention--environment))
         (process-connection-type nil))
    (when (and git (file-directory-p root))
      (let ((output (generate-new-buffer " *pyagentd files*")))
        (with-current-buffer output (buffer-disable-undo))
        (make-process
         :name "pyagentd-files" :buffer output :noquery t
         :stderr (make-pipe-process :name "pyagentd-files-errors" :noquery t
                                    :buffer nil :filter #'ignore
                                    :sentinel #'ignore)
         :coding 'utf-8-unix
         :command (cons git (cdr pyagentd-mention--git))
         :sentinel (lambda (process _)
                     (unless (process-live-p process)
                       (pyagentd-guarded "List files"
                         (pyagentd-mention--listed process root)))))))))

(defun pyagentd-mention--listed (process root)
  "Take the files of the project ROOT from PROCESS, which has ended."
  (let ((output (process-buffer process)))
    (when (buffer-live-p output)
      (puthash root
               (cons (float-time)
                     (if (zerop (process-exit-status process))
                         (pyagentd-mention--with-directories
                          (split-string (with-current-buffer output
                                          (buffer-string))
                                        "\0" t))
                       'none))
               pyagentd-mention--files)
      (kill-buffer output))))

(defun pyagentd-mention--with-directories (files)
  "Return FILES with the directories they are in."
  (let ((seen (make-hash-table :test #'equal)) directories)
    (dolist (file files)
      (let ((directory (file-name-directory file)))
        (while (and directory (not (gethash directory seen)))
          (puthash directory t seen)
          (push directory directories)
          (setq directory (file-name-directory
                           (directory-file-name directory))))))
    (append (nreverse directories) files)))

(defun pyagentd-mention--ask (root)
  "Ask the daemon which agents there are for the project ROOT."
  (pyagentd-rpc-call-async
   'presets (list :root root)
   :timeout pyagentd-call-timeout
   :success (lambda (answer)
              (puthash root
                       (cons (float-time)
                             (seq-filter #'pyagentd-mention--usable-p
                                         (plist-get answer :presets)))
                       pyagentd-mention--agents))
   :error #'ignore))

(defun pyagentd-mention--usable-p (preset)
  "Return non-nil if an agent can be made from PRESET, a plist."
  (and (not (plist-get preset :error))
       (memq (pyagentd-symbol (plist-get preset :mode)) '(subagent all))))

;;;; Completion

(defun pyagentd-mention--agent (root name)
  "Return the agent of the project ROOT that is called NAME, or nil."
  (seq-find (lambda (agent) (equal name (plist-get agent :name)))
            (cdr (gethash root pyagentd-mention--agents))))

(defun pyagentd-mention--resource (name)
  "Return what a server of tools offers as NAME in this session, or nil."
  (seq-find (lambda (resource)
              (equal (concat "@" name) (plist-get resource :mention)))
            (cdr pyagentd-mention--resources)))

(defun pyagentd-mention-there-p (name)
  "Return non-nil if NAME is that of a file or an agent of this project.
Text that is only shown is asked about: nothing but the project itself is
looked at, and never another machine."
  (or (pyagentd-mention--agent pyagentd-attach-root name)
      (pyagentd-mention--resource name)
      (let ((file-name-handler-alist nil))
        (and (not (file-name-absolute-p name))
             (not (member ".." (split-string name "/")))
             (file-exists-p (expand-file-name name pyagentd-attach-root))))))

(defun pyagentd-mention--annotation (root)
  "Return a function that says what a candidate of the project ROOT is."
  (let ((buffer (current-buffer)))
    (lambda (name)
      (let* ((agent (pyagentd-mention--agent root name))
             (known (or agent
                        (with-current-buffer buffer
                          (pyagentd-mention--resource name)))))
        (when known
          (concat (if agent "  agent: " "  ")
                  (truncate-string-to-width
                   (car (split-string (or (plist-get known :description)
                                          (plist-get known :name) "")
                                      "\n"))
                   60 nil nil "…")))))))

(defun pyagentd-mention--names (root)
  "Return the names of the agents of the project ROOT, and what servers offer."
  (append (mapcar (lambda (agent) (plist-get agent :name))
                  (cdr (gethash root pyagentd-mention--agents)))
          (mapcar (lambda (resource)
                    (string-remove-prefix "@" (plist-get resource :mention)))
                  (cdr (buffer-local-value
                        'pyagentd-mention--resources
                        (if (minibufferp) (window-buffer
                                           (minibuffer-selected-window))
                          (current-buffer)))))))

(defun pyagentd-mention--table (root)
  "Return a completion table of what can be mentioned in the project ROOT."
  (lambda (string predicate action)
    (let ((agents (pyagentd-mention--names root))
          (files (cdr (gethash root pyagentd-mention--files))))
      (cond
       ((eq action 'metadata)
        '(metadata (category . pyagentd-mention)))
       ((consp files)
        (complete-with-action action (append agents files) string predicate))
       ((and (string-search "/" string) (not (string-search ":" string)))
        (let ((default-directory (file-name-as-directory root))
              (file-name-handler-alist nil))
          (complete-with-action action #'completion-file-name-table
                                string predicate)))
       (t
        (complete-with-action
         action
         (append agents
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

(defun pyagentd-mention--exit (string status)
  "Add a space after STRING if it is FINISHED by STATUS and no directory."
  (when (and (eq status 'finished)
             (not (string-suffix-p "/" string))
             (not (looking-at-p "[ \t]")))
    (insert " ")))

(defun pyagentd-mention-at-point ()
  "Complete the @file or @agent at point; for `completion-at-point-functions'."
  (when-let* (((bound-and-true-p pyagentd-mode))
              (root pyagentd-attach-root)
              (bounds (pyagentd-mention-bounds)))
    (pyagentd-mention--refresh root)
    (list (car bounds) (cdr bounds) (pyagentd-mention--table root)
          :annotation-function (pyagentd-mention--annotation root)
          :company-kind (lambda (name)
                          (cond ((pyagentd-mention--agent root name) 'event)
                                ((string-suffix-p "/" name) 'folder)
                                (t 'file)))
          :exit-function #'pyagentd-mention--exit)))

(defun pyagentd-mention--at-attach ()
  "Find agents before somebody needs them; no program is run for that."
  (when pyagentd-attach-root
    (pyagentd-mention--refresh-agents pyagentd-attach-root)))

(add-to-list 'pyagentd-session-hooks
             '(completion-at-point-functions . pyagentd-mention-at-point))
(put 'pyagentd-mention-at-point 'permanent-local-hook t)
(add-hook 'pyagentd-attached-hook #'pyagentd-mention--at-attach)

(add-hook 'pyagentd-completing-functions #'pyagentd-mention-bounds)

(provide 'pyagentd-mention)
;;; pyagentd-mention.el ends here

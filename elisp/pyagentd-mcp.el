;;; pyagentd-mcp.el --- Servers that lend agents tools -*- lexical-binding: t; -*-

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

;; The servers of the Model Context Protocol that sessions here have, how
;; they stand, and what each offers; those that a project brings along are
;; started once their user has read them and said so.  See Info
;; node `(pyagentd) MCP servers the Model Context Protocol'.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-here)
(require 'pyagentd-table)
(require 'pyagentd-follow)

(declare-function pyagentd--project-root "pyagentd")

(defconst pyagentd-mcp--start-timeout 120
  "Seconds that a server may take to start: it may be fetched first.")

(defvar-local pyagentd-mcp--about nil
  "What the daemon is asked about: a plist with :branch or :root.")
(defvar-local pyagentd-mcp--answer nil
  "What the daemon said last.")

;;;; The list

(defun pyagentd-mcp--state (row)
  "Return how the server of ROW stands."
  (cond ((not (plist-get row :trusted))
         (propertize "not trusted" 'face 'warning))
        ((not (plist-get row :enabled)) (propertize "disabled" 'face 'shadow))
        ((equal (plist-get row :state) "failed")
         (propertize "failed" 'face 'error))
        (t (plist-get row :state))))

(defun pyagentd-mcp--reached (row)
  "Return on a line how the server of ROW is reached, or what is wrong."
  (let ((problem (plist-get row :problem)))
    (if (member problem '(nil ""))
        (if (member (plist-get row :url) '(nil ""))
            (string-join (plist-get row :command) " ")
          (plist-get row :url))
      (propertize (concat "! " (string-replace "\n" " " problem))
                  'face 'error))))

(defun pyagentd-mcp--row (server)
  "Return the row of SERVER: two may have one name, yours and the project's."
  (append (list :id (cons (plist-get server :origin) (plist-get server :name)))
          server))

(defun pyagentd-mcp--entry (row)
  "Return the line of ROW."
  (list (plist-get row :id)
        (vector (plist-get row :name)
                (pyagentd-mcp--state row)
                (if-let ((tools (plist-get row :tools)))
                    (number-to-string tools)
                  "")
                (if (equal (plist-get row :origin) "user") "you" "the project")
                (pyagentd-mcp--reached row))))

(defun pyagentd-mcp--show (answer)
  "List the servers in ANSWER."
  (setq pyagentd-mcp--answer answer
        pyagentd-table-rows (mapcar #'pyagentd-mcp--row
                                    (plist-get answer :servers)))
  (pyagentd-table-print (mapcar #'pyagentd-mcp--entry pyagentd-table-rows))
  (unless (member (plist-get answer :error) '(nil ""))
    (message "Of the project's servers cannot be used: %s"
             (plist-get answer :error))))

(defun pyagentd-mcp--revert (&rest _)
  "Fetch the servers again."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'mcp
                           (append pyagentd-mcp--about
                                   (list :env (pyagentd-env-variables)))
                           #'pyagentd-mcp--show))))

;;;; What one offers

(defun pyagentd-mcp--insert-offer (told)
  "Insert what a server offers, as TOLD by the daemon."
  (let ((name (plist-get told :name)))
    (insert (propertize (format "%s\n" (or (plist-get told :title) name))
                        'face 'pyagentd-heading)
            (propertize (format "protocol %s, %s ms\n"
                                (plist-get told :protocol)
                                (plist-get told :duration-ms))
                        'face 'shadow))
    (dolist (tool (plist-get told :tools))
      (insert "\n" (propertize (plist-get tool :rule) 'face 'pyagentd-key)
              (if (plist-get tool :looks)
                  (propertize "  says that it only looks" 'face 'shadow)
                "")
              "\n" (plist-get tool :description) "\n"))
    (dolist (resource (plist-get told :resources))
      (insert (format "\n@%s:%s  %s" name (plist-get resource :uri)
                      (plist-get resource :name))))
    (dolist (prompt (plist-get told :prompts))
      (insert (format "\n/%s:%s %s" name (plist-get prompt :name)
                      (mapconcat (lambda (one)
                                   (format (if (plist-get one :required)
                                               "<%s>" "[%s]")
                                           (plist-get one :name)))
                                 (plist-get prompt :arguments) " "))))
    (insert "\n")))

(defun pyagentd-mcp--display-offer (told)
  "Show what a server offers, as TOLD by the daemon, or why it does not."
  (if (not (plist-get told :ok))
      (message "%s" (plist-get told :error))
    (with-current-buffer (get-buffer-create "*pyagentd MCP server*")
      (special-mode)
      (let ((inhibit-read-only t))
        (erase-buffer)
        (pyagentd-mcp--insert-offer told))
      (goto-char (point-min))
      (display-buffer (current-buffer)))))

(defun pyagentd-mcp-test ()
  "Start the server at point if necessary, and show what it offers."
  (interactive nil pyagentd-mcp-mode)
  (let ((row (pyagentd-table-row)) (buffer (current-buffer)))
    (unless (plist-get row :trusted)
      (user-error "Review and trust the project's servers first (T)"))
    (pyagentd-table-say (format "starting %s…" (plist-get row :name)))
    (pyagentd-rpc-call-async
     'mcp-test
     (list :name (plist-get row :name)
           :root (plist-get pyagentd-mcp--answer :root)
           :env (pyagentd-env-variables))
     :timeout pyagentd-mcp--start-timeout
     :success (lambda (told)
                (pyagentd-mcp--display-offer told)
                (pyagentd-mcp--again buffer))
     :error (lambda (err)
              (message "%s" (pyagentd-error-text err))
              (pyagentd-mcp--again buffer)))))

(defun pyagentd-mcp--again (buffer)
  "Fetch the servers of BUFFER again, if it still lists them."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-mcp-mode)
        (revert-buffer)))))

;;;; Trust

(defun pyagentd-mcp--texts (answer)
  "Return a buffer with what ANSWER says would be started."
  (with-current-buffer (get-buffer-create "*pyagentd MCP project*")
    (special-mode)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert "What these programs load besides is not looked at: "
              "it may change\nwithout a question.\n\n")
      (dolist (file (append (plist-get answer :files)
                            (plist-get answer :scripts)))
        (insert (propertize (abbreviate-file-name (plist-get file :path))
                            'face 'pyagentd-heading)
                "\n" (plist-get file :text) "\n\n")))
    (goto-char (point-min))
    (current-buffer)))

(defun pyagentd-mcp-trust ()
  "Show what this project's servers run, and ask whether to start them.
What is trusted is what was shown, until anything of it changes."
  (interactive nil pyagentd-mcp-mode)
  (let* ((answer pyagentd-mcp--answer) (buffer (current-buffer))
         (waiting (seq-remove (lambda (row) (plist-get row :trusted))
                              (plist-get answer :servers))))
    (unless waiting
      (user-error "No server of this project needs to be trusted"))
    (save-window-excursion
      (pop-to-buffer (pyagentd-mcp--texts answer))
      (when (yes-or-no-p
             (format "Allow %s to run with your rights here? "
                     (mapconcat (lambda (row) (plist-get row :name))
                                waiting ", ")))
        (pyagentd-rpc-call-async
         'trust-mcp
         (list :root (plist-get answer :root) :hash (plist-get answer :hash))
         :timeout pyagentd-call-timeout
         :success (lambda (_)
                    (message "Trusted")
                    (pyagentd-mcp--again buffer))
         :error (lambda (err) (message "%s" (pyagentd-error-text err))))))))

;;;; The mode

(defvar pyagentd-mcp-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-mcp-test)
    (define-key map "t" #'pyagentd-mcp-test)
    (define-key map "T" #'pyagentd-mcp-trust)
    map)
  "Keymap of `pyagentd-mcp-mode'.")

(define-derived-mode pyagentd-mcp-mode pyagentd-table-mode "MCP"
  "Major mode for the list of MCP servers.

\\{pyagentd-mcp-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Server" 18 t) ("State" 12 t) ("Tools" 6 t)
                               ("From" 12 t) ("Reached by" 0 nil)]
        pyagentd-table-help '(("RET" "start and show") ("T" "trust the project")
                              ("g" "refresh") ("q" "close"))
        pyagentd-table-empty
        "No MCP servers: add [mcp.NAME] to config.toml, see Info node\n`(pyagentd) MCP servers the Model Context Protocol'.")
  (setq-local revert-buffer-function #'pyagentd-mcp--revert)
  (pyagentd-follow #'pyagentd-mcp--revert)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-mcp ()
  "List the MCP servers of the session or the project here."
  (interactive)
  (let* ((here (ignore-errors (pyagentd-here)))
         (about (if here (list :branch (plist-get here :branch))
                  (list :root (pyagentd--project-root))))
         (buffer (get-buffer-create "*pyagentd MCP*")))
    (with-current-buffer buffer
      (pyagentd-mcp-mode)
      (setq pyagentd-mcp--about about)
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-mcp)
;;; pyagentd-mcp.el ends here

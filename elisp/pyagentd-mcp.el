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
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-list)
(require 'pyagentd-report)

(declare-function pyagentd--project-root "pyagentd")

(defun pyagentd-mcp-test ()
  "Start the server at point if necessary, and show what it offers."
  (interactive nil pyagentd-list-mode)
  (let ((server (plist-get (pyagentd-table-row) :facts)))
    (unless (plist-get server :trusted)
      (user-error "Review and trust the project's servers first (T)"))
    (display-buffer
     (pyagentd-report-buffer "server"
                             (list :name (plist-get server :name)
                                   :root (plist-get server :root)
                                   :env (pyagentd-env-variables))))))

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
  (interactive nil pyagentd-list-mode)
  (pyagentd-later-asking 'mcp pyagentd-list-arguments #'pyagentd-mcp--ask))

(defun pyagentd-mcp--ask (answer)
  "Show what servers of a project run, as ANSWER says, and ask about them."
  (let ((waiting (seq-remove (lambda (server) (plist-get server :trusted))
                             (plist-get answer :servers))))
    (unless waiting
      (user-error "No server of this project needs to be trusted"))
    (save-window-excursion
      (pop-to-buffer (pyagentd-mcp--texts answer))
      (when (yes-or-no-p
             (format "Allow %s to run with your rights here? "
                     (mapconcat (lambda (server) (plist-get server :name))
                                waiting ", ")))
        (pyagentd-later
         'trust-mcp
         (list :root (plist-get answer :root) :hash (plist-get answer :hash))
         (lambda (_)
           (message "Trusted")
           (pyagentd-list-changed "sessions")))))))

(pyagentd-list-add-keys "mcp"
  '("RET" pyagentd-mcp-test "start and show")
  '("T" pyagentd-mcp-trust "trust the project"))

(defun pyagentd-mcp ()
  "List the MCP servers of the session or the project here."
  (interactive)
  (let ((here (ignore-errors (pyagentd-here))))
    (pyagentd-list-show
     "mcp" (append (if here (list :branch (plist-get here :branch))
                     (list :root (pyagentd--project-root)))
                   (list :env (pyagentd-env-variables))))))

(provide 'pyagentd-mcp)
;;; pyagentd-mcp.el ends here

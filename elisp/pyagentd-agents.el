;;; pyagentd-agents.el --- The agents of a session as a tree -*- lexical-binding: t; -*-

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

;; The session here with all agents below it: what each does, how many
;; tokens that took, and what came out.  Each can be visited and stopped,
;; alone or with all below it.

;;; Code:

(require 'cl-lib)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-rpc)
(require 'pyagentd-here)
(require 'pyagentd-tree)
(require 'pyagentd-ask)
(require 'pyagentd-ask-words)
(require 'pyagentd-overlay)
(require 'pyagentd-table)
(require 'pyagentd-follow)

(defvar-local pyagentd-agents--branch nil
  "The branch whose agents are listed, as on the wire.")

;;;; Lines

(defun pyagentd-agents-lines (agents &optional above)
  "Return the rows of AGENTS, a list of plists with :agents, as a flat list.
ABOVE is the stem of the row above them.  Each row is (STEM . AGENT)."
  (cl-loop for (agent . more) on agents
           for stem = (pyagentd-tree-stem (or above "") (null more))
           append (cons (cons stem agent)
                        (pyagentd-agents-lines (plist-get agent :agents) stem))))

(defun pyagentd-agents--state (agent)
  "Return the state of AGENT with its face."
  (let ((state (format "%s" (or (plist-get agent :state) ""))))
    (propertize (concat state (and (plist-get agent :background) " bg"))
                'face (pcase state
                        ("running" 'success)
                        ("waiting" 'warning)
                        ("error" 'error)
                        (_ 'shadow)))))

(defun pyagentd-agents--number (number)
  "Return NUMBER as people write it in a column: 950, 12k, 1.2M."
  (cond ((not (numberp number)) "")
        ((< number 1000) (number-to-string number))
        ((< number 1000000) (format "%dk" (/ number 1000)))
        (t (format "%.1fM" (/ number 1e6)))))

(defun pyagentd-agents--tokens (tokens)
  "Return TOKENS, a number or a plist with :input and :output, for a column."
  (if (consp tokens)
      (format "%s↑ %s↓" (pyagentd-agents--number (plist-get tokens :input))
              (pyagentd-agents--number (plist-get tokens :output)))
    (pyagentd-agents--number tokens)))

(defun pyagentd-agents--entry (line)
  "Return LINE, (STEM . AGENT), for `tabulated-list-entries'."
  (pcase-let ((`(,stem . ,agent) line))
    (list (plist-get agent :id)
          (vector (concat (propertize stem 'face 'shadow)
                          (propertize (format "%s" (or (plist-get agent :preset)
                                                       "agent"))
                                      'face 'bold)
                          "  " (or (plist-get agent :description) ""))
                  (pyagentd-agents--state agent)
                  (pyagentd-agents--tokens (plist-get agent :tokens))
                  (propertize (truncate-string-to-width
                               (pyagentd-ask-one-line
                                (or (plist-get agent :result) ""))
                               200 nil nil "…")
                              'face 'pyagentd-detail)))))

;;;; Fetching

(defun pyagentd-agents--show (answer)
  "List the agents in ANSWER, or in the file that it names."
  (let ((lines (pyagentd-agents-lines
                (plist-get (if-let ((path (plist-get answer :path)))
                               (pyagentd-agents--read path)
                             answer)
                           :agents))))
    (setq pyagentd-table-rows (mapcar #'cdr lines))
    (pyagentd-table-print (mapcar #'pyagentd-agents--entry lines))))

(defun pyagentd-agents--read (path)
  "Return what the file PATH holds, an answer that was too large."
  (with-temp-buffer
    (let ((coding-system-for-read 'utf-8-unix))
      (insert-file-contents path))
    (read (current-buffer))))

(defun pyagentd-agents--fetch ()
  "Fetch the agents; they are shown when they come."
  (pyagentd-table-fetch 'agents (list :branch pyagentd-agents--branch)
                        #'pyagentd-agents--show))

(defun pyagentd-agents--revert (&rest _)
  "Fetch the agents again."
  (pyagentd-table-ask #'pyagentd-agents--fetch))

(defun pyagentd-agents--on-change ()
  "Fetch the agents again in a moment, if their list is shown."
  (pyagentd-table-changed "*pyagentd agents*" 'pyagentd-agents-mode
                          #'pyagentd-agents--fetch))

;;;; Commands

(defun pyagentd-agents--file ()
  "Return the conversation of the agent at point."
  (pyagentd-place-conversation (plist-get (pyagentd-table-row) :branch-dir)))

(defun pyagentd-agents-visit ()
  "Visit the conversation of the agent at point."
  (interactive nil pyagentd-agents-mode)
  (pyagentd-here-visit (list :file (pyagentd-agents--file))))

(defun pyagentd-agents-visit-other-window ()
  "Visit the conversation of the agent at point in another window."
  (interactive nil pyagentd-agents-mode)
  (pyagentd-here-visit (list :file (pyagentd-agents--file)) t))

(defun pyagentd-agents--abort (branch what)
  "Stop the run of BRANCH, which is called WHAT."
  (pyagentd-rpc-call-async
   'abort (list :branch branch)
   :timeout pyagentd-call-timeout
   :success (lambda (answer)
              (message (if (plist-get answer :aborted) "Stopped %s"
                         "Not running: %s")
                       what)
              (pyagentd-agents--on-change))
   :error (lambda (err) (message "%s" (pyagentd-error-text err)))))

(defun pyagentd-agents-abort ()
  "Stop the marked agents, else the one at point, and all below them.
The parent of each is told and continues."
  (interactive nil pyagentd-agents-mode)
  (let ((agents (pyagentd-table-targets)))
    (when (or (null (cdr agents))
              (y-or-n-p (format "Stop %s? "
                                (pyagentd-count (length agents) "agent"))))
      (pyagentd-table-forget-marks)
      (dolist (agent agents)
        (pyagentd-agents--abort (plist-get agent :branch-dir)
                                (plist-get agent :id))))))

(defun pyagentd-agents-abort-all ()
  "Stop the run of the session and all its agents."
  (interactive nil pyagentd-agents-mode)
  (when (y-or-n-p "Stop this session with all its agents? ")
    (pyagentd-agents--abort pyagentd-agents--branch "the session")
    (dolist (agent pyagentd-table-rows)
      (when (and (plist-get agent :background)
                 (member (format "%s" (plist-get agent :state))
                         '("running" "waiting")))
        (pyagentd-agents--abort (plist-get agent :branch-dir)
                                (plist-get agent :id))))))

;;;; The mode

(defvar pyagentd-agents-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-agents-visit)
    (define-key map "o" #'pyagentd-agents-visit-other-window)
    (define-key map "k" #'pyagentd-agents-abort)
    (define-key map "K" #'pyagentd-agents-abort-all)
    (pyagentd-table-define-marks map))
  "Keymap of `pyagentd-agents-mode'.")

(define-derived-mode pyagentd-agents-mode pyagentd-table-mode "Agents"
  "Major mode for the agents of a session.

\\{pyagentd-agents-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Agent" 48 nil) ("State" 12 nil)
                               ("Tokens" 12 nil) ("Result" 0 nil)]
        pyagentd-table-help '(("RET" "open") ("o" "in another window")
                              ("k" "stop") ("m" "mark") ("K" "stop all")
                              ("g" "refresh") ("q" "close"))
        pyagentd-table-empty "This session has no agents.")
  (setq-local revert-buffer-function #'pyagentd-agents--revert)
  (pyagentd-follow #'pyagentd-agents--fetch)
  (add-hook 'pyagentd-overlay-changed-hook #'pyagentd-agents--on-change)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-agents ()
  "List the agents of the session here as a tree."
  (interactive)
  (let* ((here (pyagentd-here))
         (buffer (get-buffer-create "*pyagentd agents*")))
    (with-current-buffer buffer
      (pyagentd-agents-mode)
      (setq pyagentd-agents--branch
            (pyagentd-ask-root (plist-get here :branch)))
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-agents)
;;; pyagentd-agents.el ends here

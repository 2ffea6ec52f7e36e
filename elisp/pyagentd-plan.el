;;; pyagentd-plan.el --- Plan first, then build -*- lexical-binding: t; -*-

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

;; Who answers: `pyagentd-choose-agent' chooses the agent of the next
;; message and of those after it, `pyagentd-approve' agrees to a plan, which
;; another agent then carries out.  The header line names the agent where it
;; is not the one that the session was made with.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-env)
(require 'pyagentd-later)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-chat)

(defface pyagentd-plan
  '((t :inherit warning))
  "Face of the answering agent's name in the header line."
  :group 'pyagentd)

(defvar-local pyagentd-plan--agent nil
  "Name of the agent of the next message, as the daemon said last.")

(defvar-local pyagentd-plan-next nil
  "Name of the agent that was chosen for the next message, nil for none.")

(pyagentd-permanent-local 'pyagentd-plan--agent 'pyagentd-plan-next)

(defun pyagentd-plan--agent-words ()
  "Return which agent answers here, nil if it is the session's own."
  (when-let ((agent (plist-get pyagentd-status :agent)))
    (setq pyagentd-plan--agent agent)
    (when (equal agent pyagentd-plan-next) ; the message is there
      (setq pyagentd-plan-next nil)))
  (let ((now pyagentd-plan--agent)
        (next pyagentd-plan-next))
    (cond ((and next (not (equal next now)))
           (propertize (format "[%s → %s]" (or now pyagentd-status-preset "")
                               next)
                       'face 'pyagentd-plan))
          ((and now (not (equal now pyagentd-status-preset)))
           (propertize (format "[%s]" now) 'face 'pyagentd-plan)))))

(setq pyagentd-status-agent-function #'pyagentd-plan--agent-words)

(defun pyagentd-plan--buffer ()
  "Return the session buffer here; signal a `user-error' if there is none."
  (let ((buffer (or (buffer-base-buffer) (current-buffer))))
    (unless (buffer-local-value 'pyagentd-mode buffer)
      (user-error "Not a session; make one with M-x pyagentd-session"))
    buffer))

;;;; Choosing

(defun pyagentd-plan--annotation (agents)
  "Return a function that says what a name in AGENTS, plists, stands for."
  (lambda (name)
    (when-let ((agent (seq-find (lambda (agent)
                                  (equal (plist-get agent :name) name))
                                agents)))
      (concat "  " (and (plist-get agent :read-only) "[read-only] ")
              (plist-get agent :description)))))

(defun pyagentd-plan--table (agents)
  "Return a completion table of AGENTS, plists, in their order."
  (let ((names (mapcar (lambda (agent) (plist-get agent :name)) agents))
        (metadata `(metadata
                    (category . pyagentd-agent)
                    (annotation-function . ,(pyagentd-plan--annotation agents))
                    (display-sort-function . identity))))
    (lambda (string predicate action)
      (if (eq action 'metadata) metadata
        (complete-with-action action names string predicate)))))

(defun pyagentd-plan--read (then)
  "Read the name of an agent for this session; call THEN with it.
That is in the session's buffer, and once the daemon has said which there
are."
  (with-current-buffer (pyagentd-plan--buffer)
    (pyagentd-later-asking
     'agents-available (list :branch pyagentd--branch-dir)
     (lambda (answer)
       (let ((agents (plist-get answer :agents))
             (now (plist-get answer :agent)))
         (unless agents
           (user-error
            "An agent uses its own preset only"))
         (funcall then (completing-read
                        (format-prompt "Agent for the next messages" now)
                        (pyagentd-plan--table agents) nil t nil nil now)))))))

(defun pyagentd-choose-agent (&optional name)
  "Choose the agent NAME for your next messages here.
An agent is a preset: its instructions, tools, model and permissions
are used; the paths stay those of the session.  Nothing is sent, and
the header line shows the choice.  Without a NAME it is asked for."
  (interactive)
  (if (null name) (pyagentd-plan--read #'pyagentd-choose-agent)
    (with-current-buffer (pyagentd-plan--buffer)
      (setq pyagentd-plan-next
            (unless (or (string-empty-p name)
                        (equal name pyagentd-plan--agent))
              name))
      (pyagentd-status-refresh))))

;;;; Approving

(defun pyagentd-approve (&optional agent)
  "Approve the plan in this buffer: it is carried out from here on.
\"Approved, continue.\" is sent as a message of yours, answered by the
agent build, or with a prefix argument by the AGENT you choose.  What you
have written below the plan goes along.  While a run is in flight the
message waits for its turn.  Its key has to be confirmed."
  (interactive "P")
  (when (called-interactively-p 'any)
    (pyagentd-plan--buffer)
    (unless (eq ?y (read-char-choice "Approve the plan and have it carried out?\
  y or n: " '(?y ?n)))
      (user-error "Not approved")))
  (if (and agent (not (stringp agent)))
      (pyagentd-plan--read #'pyagentd-approve)
    (with-current-buffer (pyagentd-plan--buffer)
      (pyagentd-chat-when-ready
       (lambda ()
         (pyagentd-later-here
          'approve (append (list :branch pyagentd--branch-dir
                                 :env (pyagentd-env-variables)
                                 :key (pyagentd-env-key))
                           (unless (member agent '(nil ""))
                             (list :agent agent)))
          #'pyagentd-plan--approved))))))

(defun pyagentd-plan--approved (answer)
  "Note that the plan in this buffer was approved; ANSWER tells how."
  (setq pyagentd-plan-next nil)
  (pyagentd-status-refresh)
  (when (plist-get answer :queued)
    (message "Approved; it waits for the run in flight")))

(define-key pyagentd-mode-map (kbd "C-c M-l") #'pyagentd-choose-agent)
(define-key pyagentd-mode-map (kbd "C-c C-c") #'pyagentd-approve)

(provide 'pyagentd-plan)
;;; pyagentd-plan.el ends here

;;; pyagentd-named-list.el --- The named agents -*- lexical-binding: t; -*-

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

;; The named agents: what each does, with which model and permissions.
;; They can be visited, configured, given another name, talked with anew
;; and destroyed, one by one or all that are marked.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-here)
(require 'pyagentd-list)
(require 'pyagentd-named)
(require 'pyagentd-destroy)

(autoload 'pyagentd-agent-config "pyagentd-named-config" nil t)
(autoload 'pyagentd-context-save "pyagentd-contexts" nil t)
(autoload 'pyagentd-context-clear "pyagentd-contexts" nil t)
(autoload 'pyagentd-context-history "pyagentd-contexts" nil t)
(autoload 'pyagentd-tasks "pyagentd-tasks" nil t)

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

(provide 'pyagentd-named-list)
;;; pyagentd-named-list.el ends here

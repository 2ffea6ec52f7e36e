;;; pyagentd-tasks.el --- Commands in the background -*- lexical-binding: t; -*-

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

;; What agents run behind their conversations: listed with how it stands,
;; looked at while it prints, and ended.  A list shows what the daemon
;; tells of tasks; what a task prints is followed like the end of a log.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-events)
(require 'pyagentd-place)
(require 'pyagentd-here)
(require 'pyagentd-table)
(require 'pyagentd-task-output)

(defvar-local pyagentd-tasks--branch nil
  "The branch whose session's tasks are listed, nil for all.")

;;;; Words

(defun pyagentd-tasks--key (task)
  "Return what TASK is known by among those of all agents."
  (format "%s/%s" (plist-get task :agent) (plist-get task :id)))

(defun pyagentd-tasks--entry (task)
  "Return the line of TASK."
  (list (pyagentd-tasks--key task)
        (vector (plist-get task :id)
                (format "%s" (plist-get task :agent))
                (pyagentd-task-status task)
                (pyagentd-age (or (plist-get task :ended-at)
                                  (plist-get task :started-at)))
                (if (pyagentd-task-running-p task)
                    (format "%s" (plist-get task :pid)) "")
                (string-replace "\n" " " (plist-get task :command)))))

;;;; Fetching

(defun pyagentd-tasks--show (answer)
  "List the tasks in ANSWER, the last one that began first."
  (setq pyagentd-table-rows
        (mapcar (lambda (task)
                  (append (list :key (pyagentd-tasks--key task)) task))
                (reverse (plist-get answer :tasks))))
  (pyagentd-table-print (mapcar #'pyagentd-tasks--entry pyagentd-table-rows)))

(defun pyagentd-tasks--fetch ()
  "Fetch the tasks; they are shown when they come."
  (pyagentd-table-fetch 'tasks (list :branch pyagentd-tasks--branch :watch t)
                        #'pyagentd-tasks--show))

(defun pyagentd-tasks--revert (&rest _)
  "Fetch the tasks again."
  (pyagentd-table-ask #'pyagentd-tasks--fetch))

(defun pyagentd-tasks--on-change ()
  "Fetch the tasks again in a moment, if their list is shown."
  (pyagentd-table-changed "*pyagentd tasks*" 'pyagentd-tasks-mode
                          #'pyagentd-tasks--fetch))

(defun pyagentd-tasks--on-event (_branch _seq args)
  "Show what ARGS tell of a task, where it is shown."
  (let ((task (car args)))
    (if (and (plist-get task :output) (pyagentd-task-running-p task))
        (pyagentd-task-output-add task)
      (pyagentd-tasks--on-change)
      (when-let ((buffer (pyagentd-task-output-buffer task)))
        (with-current-buffer buffer (pyagentd-task-output-fetch))))))

(pyagentd-events-register 'task #'pyagentd-tasks--on-event)

(defun pyagentd-tasks--on-connected ()
  "Have a new daemon tell of tasks that are shown here, and look at them."
  (pyagentd-tasks--on-change)
  (when-let ((buffers (seq-filter (lambda (buffer)
                                    (buffer-local-value 'pyagentd-task-output-of
                                                        buffer))
                                  (buffer-list))))
    (pyagentd-rpc-call-async 'tasks '(:watch t) :error #'ignore)
    (dolist (buffer buffers)
      (with-current-buffer buffer (pyagentd-task-output-fetch)))))

(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-tasks--on-connected)

;;;; Commands

(defun pyagentd-tasks-visit ()
  "Visit the conversation of the task at point."
  (interactive nil pyagentd-tasks-mode)
  (pyagentd-here-visit
   (list :file (pyagentd-place-conversation
                (plist-get (pyagentd-table-row :key) :branch)))))

;;;; The mode

(defvar pyagentd-tasks-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-task-output)
    (define-key map "o" #'pyagentd-tasks-visit)
    (define-key map "k" #'pyagentd-task-kill)
    (pyagentd-table-define-marks map))
  "Keymap of `pyagentd-tasks-mode'.")

(define-derived-mode pyagentd-tasks-mode pyagentd-table-mode "Tasks"
  "Major mode for the list of commands in the background.

\\{pyagentd-tasks-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Id" 9 t) ("Agent" 20 t) ("Status" 14 t)
                               ("Since" 6 nil) ("PID" 8 nil)
                               ("Command" 0 nil)]
        pyagentd-table-help '(("RET" "output") ("k" "end it") ("m" "mark")
                              ("o" "conversation") ("g" "refresh")
                              ("q" "close"))
        pyagentd-table-empty "Nothing runs in the background, and nothing did.")
  (setq-local revert-buffer-function #'pyagentd-tasks--revert)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-tasks (&optional all)
  "List the commands that the agent here runs in the background.
Where there is none, or with a prefix argument (ALL from Lisp), list those
of all agents."
  (interactive "P")
  (let ((branch (unless all (plist-get (ignore-errors (pyagentd-here))
                                       :branch)))
        (buffer (get-buffer-create "*pyagentd tasks*")))
    (with-current-buffer buffer
      (pyagentd-tasks-mode)
      (setq pyagentd-tasks--branch branch)
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-tasks)
;;; pyagentd-tasks.el ends here

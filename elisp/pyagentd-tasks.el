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

(require 'ansi-color)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-events)
(require 'pyagentd-place)
(require 'pyagentd-here)
(require 'pyagentd-later)
(require 'pyagentd-table)

(defvar-local pyagentd-tasks--branch nil
  "The branch whose session's tasks are listed, nil for all.")
(defvar-local pyagentd-tasks--task nil
  "The task whose output is in this buffer, a plist as the daemon tells it.")
(defvar-local pyagentd-tasks--seen ""
  "What is shown in this buffer, as the task printed it.")
(defvar-local pyagentd-tasks--timer nil
  "Timer that fetches the tasks again, nil if nothing has changed.")

(defconst pyagentd-tasks--pause 0.3
  "Seconds after a change until the tasks are fetched again.")

;;;; Words

(defun pyagentd-tasks--running-p (task)
  "Return non-nil if TASK runs."
  (equal "running" (format "%s" (plist-get task :status))))

(defun pyagentd-tasks--status (task)
  "Return how TASK stands, with its face."
  (let ((code (plist-get task :exit-code))
        (status (format "%s" (plist-get task :status))))
    (propertize (if (or (null code) (equal code 0)) status
                  (format "%s (%s)" status code))
                'face (pcase status
                        ("running" 'success)
                        ("completed" 'shadow)
                        (_ 'error)))))

(defun pyagentd-tasks--key (task)
  "Return what TASK is known by among those of all agents."
  (format "%s/%s" (plist-get task :agent) (plist-get task :id)))

(defun pyagentd-tasks--entry (task)
  "Return the line of TASK."
  (list (pyagentd-tasks--key task)
        (vector (plist-get task :id)
                (format "%s" (plist-get task :agent))
                (pyagentd-tasks--status task)
                (pyagentd-age (or (plist-get task :ended-at)
                                  (plist-get task :started-at)))
                (if (pyagentd-tasks--running-p task)
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
  (pyagentd-rpc-connect t)
  (pyagentd-tasks--fetch))

(defun pyagentd-tasks--on-change ()
  "Fetch the tasks again in a moment, if their list is shown."
  (when-let ((buffer (get-buffer "*pyagentd tasks*")))
    (with-current-buffer buffer
      (when (and (derived-mode-p 'pyagentd-tasks-mode)
                 (null pyagentd-tasks--timer)
                 (get-buffer-window nil t))
        (setq pyagentd-tasks--timer
              (run-at-time pyagentd-tasks--pause nil
                           #'pyagentd-tasks--on-timer buffer))))))

(defun pyagentd-tasks--on-timer (buffer)
  "Fetch the tasks in BUFFER again."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (setq pyagentd-tasks--timer nil)
      (pyagentd-tasks--fetch))))

(defun pyagentd-tasks--on-event (_branch _seq args)
  "Show what ARGS tell of a task, where it is shown."
  (let ((task (car args)))
    (if (and (plist-get task :output) (pyagentd-tasks--running-p task))
        (pyagentd-tasks--printed task)
      (pyagentd-tasks--on-change)
      (when-let ((buffer (pyagentd-tasks--output-buffer task)))
        (with-current-buffer buffer (pyagentd-tasks--output-fetch))))))

(pyagentd-events-register 'task #'pyagentd-tasks--on-event)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-tasks--on-change)

;;;; Output

(defun pyagentd-tasks--output-name (task)
  "Return the name of the buffer with what TASK prints."
  (format "*pyagentd %s of %s*" (plist-get task :id) (plist-get task :agent)))

(defun pyagentd-tasks--output-buffer (task)
  "Return the buffer with what TASK prints, or nil."
  (get-buffer (pyagentd-tasks--output-name task)))

(defun pyagentd-tasks--printed (task)
  "Show what TASK, as an event tells it, has printed."
  (when-let ((buffer (pyagentd-tasks--output-buffer task)))
    (with-current-buffer buffer
      (pyagentd-tasks--output-set (plist-get task :output)))))

(defun pyagentd-tasks--joined (old new)
  "Return what to add to OLD, which ends a log, so that it ends in NEW.
NEW is what the log ends with now.  Return nil if they do not meet."
  (if (string-prefix-p old new)
      (substring new (length old))
    ;; The beginning of what was seen has gone out of what is told.
    (when-let* ((line (and (string-match "\\`.*\n" new) (match-string 0 new)))
                (start (string-search line old))
                (rest (substring old start))
                ((string-prefix-p rest new)))
      (substring new (length rest)))))

(defun pyagentd-tasks--output-set (text)
  "Show TEXT, the end of what the task here printed.
Windows that show the end follow it."
  (let* ((inhibit-read-only t)
         (text (or text ""))
         (at-end (= (point) (point-max)))
         (windows (seq-filter (lambda (window)
                                (= (window-point window) (point-max)))
                              (get-buffer-window-list nil nil t)))
         (more (pyagentd-tasks--joined pyagentd-tasks--seen text)))
    (save-excursion
      (unless more
        (erase-buffer)
        (setq ansi-color-context nil))
      (goto-char (point-max))
      (insert (ansi-color-apply (or more text))))
    (setq pyagentd-tasks--seen text)
    (when at-end (goto-char (point-max)))
    (dolist (window windows)
      (set-window-point window (point-max)))))

(defun pyagentd-tasks--output-header ()
  "Return the header line of a buffer with the output of a task."
  (let ((task pyagentd-tasks--task))
    (string-replace
     "%" "%%"
     (format " %s  %s" (pyagentd-tasks--status task)
             (string-replace "\n" " " (plist-get task :command))))))

(defun pyagentd-tasks--output-fetch (&rest _)
  "Fetch what the task here has printed."
  (let ((buffer (current-buffer)))
    (pyagentd-later
     'task-output (list :branch (plist-get pyagentd-tasks--task :branch)
                        :id (plist-get pyagentd-tasks--task :id))
     (lambda (task)
       (pyagentd-later-in buffer
         (setq pyagentd-tasks--task task)
         (pyagentd-tasks--output-set (plist-get task :output))
         (setq header-line-format (pyagentd-tasks--output-header)))))))

(defvar pyagentd-task-output-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map "k" #'pyagentd-tasks-kill)
    map)
  "Keymap of `pyagentd-task-output-mode'.")

(define-derived-mode pyagentd-task-output-mode special-mode "Output"
  "Major mode for what a command in the background prints.
At the end of the buffer, point follows what is printed.

\\{pyagentd-task-output-mode-map}"
  :interactive nil
  (setq buffer-undo-list t)
  (setq-local revert-buffer-function #'pyagentd-tasks--output-fetch))

;;;; Commands

(defun pyagentd-tasks--at-point ()
  "Return the task at point, or whose output is in this buffer."
  (or pyagentd-tasks--task (pyagentd-table-row :key)))

(defun pyagentd-tasks-output ()
  "Show what the task at point prints, and follow it."
  (interactive nil pyagentd-tasks-mode)
  (let* ((task (pyagentd-table-row :key))
         (buffer (get-buffer-create (pyagentd-tasks--output-name task))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-task-output-mode)
        (pyagentd-task-output-mode)
        (goto-char (point-max)))
      (setq pyagentd-tasks--task task
            header-line-format (pyagentd-tasks--output-header))
      (pyagentd-tasks--output-fetch))
    (display-buffer buffer)))

(defun pyagentd-tasks-kill ()
  "End the task at point, or here, with all that it started."
  (interactive nil pyagentd-tasks-mode pyagentd-task-output-mode)
  (let ((task (pyagentd-tasks--at-point)))
    (unless (pyagentd-tasks--running-p task)
      (user-error "%s has ended" (plist-get task :id)))
    (when (y-or-n-p (format "End %s (%s)? " (plist-get task :id)
                            (truncate-string-to-width
                             (plist-get task :command) 40 nil nil "…")))
      (pyagentd-later
       'task-kill (list :branch (plist-get task :branch)
                        :id (plist-get task :id))
       (lambda (ended)
         (pyagentd-tasks--on-change)
         (when-let ((buffer (pyagentd-tasks--output-buffer ended)))
           (with-current-buffer buffer (pyagentd-tasks--output-fetch)))
         (message "%s: %s" (plist-get ended :id)
                  (pyagentd-tasks--status ended)))))))

(defun pyagentd-tasks-visit ()
  "Visit the conversation of the task at point."
  (interactive nil pyagentd-tasks-mode)
  (find-file (pyagentd-place-conversation
              (plist-get (pyagentd-table-row :key) :branch))))

;;;; The mode

(defvar pyagentd-tasks-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-tasks-output)
    (define-key map "o" #'pyagentd-tasks-visit)
    (define-key map "k" #'pyagentd-tasks-kill)
    map)
  "Keymap of `pyagentd-tasks-mode'.")

(define-derived-mode pyagentd-tasks-mode tabulated-list-mode "Tasks"
  "Major mode for the list of commands in the background.

\\{pyagentd-tasks-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Id" 9 t) ("Agent" 20 t) ("Status" 14 t)
                               ("Since" 6 nil) ("PID" 8 nil)
                               ("Command" 0 nil)]
        pyagentd-table-help '(("RET" "output") ("k" "end it")
                              ("o" "conversation") ("g" "fetch again")
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

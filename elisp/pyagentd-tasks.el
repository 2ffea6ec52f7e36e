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
;; looked at while it prints, and ended.  What a task prints is followed
;; like the end of a log.

;;; Code:

(require 'ansi-color)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-list)
(require 'pyagentd-here)
(require 'pyagentd-rpc)

(defvar-local pyagentd-task-output-of nil
  "The task whose output is in this buffer, a plist as the daemon tells it.")
(defvar-local pyagentd-task-output--seen ""
  "What is shown in this buffer, as the task printed it.")

;;;; Words

(defun pyagentd-task-running-p (task)
  "Return non-nil if TASK runs."
  (equal "running" (format "%s" (plist-get task :status))))

(defun pyagentd-task-status (task)
  "Return how TASK stands, with its face."
  (let ((code (plist-get task :exit-code))
        (status (format "%s" (plist-get task :status))))
    (propertize (if (or (null code) (equal code 0)) status
                  (format "%s (%s)" status code))
                'face (pcase status
                        ("running" 'success)
                        ("completed" 'shadow)
                        (_ 'error)))))

(defun pyagentd-task-line (task most)
  "Return the command of TASK on a line of at most MOST characters."
  (truncate-string-to-width
   (string-replace "\n" " " (plist-get task :command)) most nil nil "…"))

;;;; The buffer

(defun pyagentd-task-output--name (task)
  "Return the name of the buffer with what TASK prints."
  (format "*pyagentd %s of %s*" (plist-get task :id) (plist-get task :agent)))

(defun pyagentd-task-output-buffer (task)
  "Return the buffer with what TASK prints, or nil."
  (get-buffer (pyagentd-task-output--name task)))

(defun pyagentd-task-output-add (task)
  "Show what TASK, as an event tells it, has printed."
  (when-let ((buffer (pyagentd-task-output-buffer task)))
    (with-current-buffer buffer
      (pyagentd-task-output--set (plist-get task :output)))))

(defun pyagentd-task-output--joined (old new)
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

(defun pyagentd-task-output--set (text)
  "Show TEXT, the end of what the task here printed.
Windows that show the end follow it."
  (let* ((inhibit-read-only t)
         (text (or text ""))
         (at-end (= (point) (point-max)))
         (windows (seq-filter (lambda (window)
                                (= (window-point window) (point-max)))
                              (get-buffer-window-list nil nil t)))
         (more (pyagentd-task-output--joined pyagentd-task-output--seen text)))
    (save-excursion
      (unless more
        (erase-buffer)
        (setq ansi-color-context nil))
      (goto-char (point-max))
      (insert (ansi-color-apply (or more text))))
    (setq pyagentd-task-output--seen text)
    (when at-end (goto-char (point-max)))
    (dolist (window windows)
      (set-window-point window (point-max)))))

(defun pyagentd-task-output--header ()
  "Return the header line of a buffer with the output of a task."
  (let ((task pyagentd-task-output-of))
    (string-replace
     "%" "%%"
     (format " %s  %s" (pyagentd-task-status task)
             (string-replace "\n" " " (plist-get task :command))))))

(defun pyagentd-task-output-fetch (&rest _)
  "Fetch what the task here has printed."
  (let ((buffer (current-buffer)))
    (pyagentd-later
     'task-output (list :branch (plist-get pyagentd-task-output-of :branch)
                        :id (plist-get pyagentd-task-output-of :id))
     (lambda (task)
       (pyagentd-later-in buffer
         (setq pyagentd-task-output-of task)
         (pyagentd-task-output--set (plist-get task :output))
         (setq header-line-format (pyagentd-task-output--header)))))))

(defvar pyagentd-task-output-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map "k" #'pyagentd-task-kill)
    map)
  "Keymap of `pyagentd-task-output-mode'.")

(define-derived-mode pyagentd-task-output-mode special-mode "Output"
  "Major mode for what a command in the background prints.
At the end of the buffer, point follows what is printed.

\\{pyagentd-task-output-mode-map}"
  :interactive nil
  (setq buffer-undo-list t)
  (pyagentd-live-listing)
  (setq-local revert-buffer-function #'pyagentd-task-output-fetch))

;;;; Commands

(defun pyagentd-tasks--visit (place _other-window)
  "Show what the task in PLACE prints, and follow it."
  (let* ((task (plist-get place :task))
         (buffer (get-buffer-create (pyagentd-task-output--name task))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-task-output-mode)
        (pyagentd-task-output-mode)
        (goto-char (point-max)))
      (setq pyagentd-task-output-of task
            header-line-format (pyagentd-task-output--header))
      (pyagentd-task-output-fetch))
    (display-buffer buffer)))

(setf (alist-get "task" pyagentd-list-places nil nil #'equal)
      #'pyagentd-tasks--visit)

(defun pyagentd-task-kill ()
  "End the task whose output is here, with all it started."
  (interactive nil pyagentd-task-output-mode)
  (let ((task pyagentd-task-output-of))
    (unless (pyagentd-task-running-p task)
      (user-error "%s has ended" (plist-get task :id)))
    (when (y-or-n-p (format "End %s (%s)? " (plist-get task :id)
                            (pyagentd-task-line task 40)))
      (pyagentd-later-here
       'task-kill (list :branch (plist-get task :branch)
                        :id (plist-get task :id))
       (lambda (ended)
         (pyagentd-task-output-fetch)
         (message "%s: %s" (plist-get ended :id)
                  (pyagentd-task-status ended)))))))

;;;; Events

(defun pyagentd-tasks--on-event (_branch _seq args)
  "Show what ARGS tell of a task, where it is shown."
  (let ((task (car args)))
    (if (and (plist-get task :output) (pyagentd-task-running-p task))
        (pyagentd-task-output-add task)
      (pyagentd-list-changed "tasks")
      (when-let ((buffer (pyagentd-task-output-buffer task)))
        (with-current-buffer buffer (pyagentd-task-output-fetch))))))

(pyagentd-events-register 'task #'pyagentd-tasks--on-event)

(defun pyagentd-tasks--on-connected ()
  "Have a new daemon tell of tasks whose output is shown, and look at them."
  (when-let ((buffers (seq-filter (lambda (buffer)
                                    (buffer-local-value 'pyagentd-task-output-of
                                                        buffer))
                                  (buffer-list))))
    (pyagentd-rpc-call-async 'tasks '(:watch t) :error #'ignore)
    (dolist (buffer buffers)
      (with-current-buffer buffer (pyagentd-task-output-fetch)))))

(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-tasks--on-connected)

(pyagentd-list-define tasks
  "List the commands that the agent here runs in the background.
Where there is none, or with a prefix argument (ALL from Lisp), list those
of all agents."
  :session optional)

(provide 'pyagentd-tasks)
;;; pyagentd-tasks.el ends here

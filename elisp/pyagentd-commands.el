;;; pyagentd-commands.el --- Completion of commands -*- lexical-binding: t; -*-

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

;; A prompt that begins with a slash is a command to the daemon.  Its name
;; and its arguments complete from what the daemon has told; while one is
;; completed, nothing is waited for.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-queued)
(require 'pyagentd-attach)
(require 'pyagentd-named)

(defvar-local pyagentd-commands nil
  "The commands of this session, a list of plists as the daemon tells them.
Keys: :name (words without the slash), :summary, :synopsis and :arguments,
plists with :name, :hint, :summary, :takes (\"word\", \"rest\" or
\"flag\"), :values (what completes it) and :choices.")

(defvar-local pyagentd-commands--values nil
  "What completes arguments here, an alist (KIND . ((TEXT . SUMMARY) ...)).
It is what the daemon said last.")

(pyagentd-permanent-local 'pyagentd-commands 'pyagentd-commands--values)

;;;; What the daemon tells

(defun pyagentd-commands--ask (method plist success)
  "Call METHOD with PLIST, then SUCCESS with the answer in this buffer.
A daemon that does not know or is not there says nothing."
  (let ((buffer (current-buffer)))
    (pyagentd-rpc-call-async
     method plist
     :timeout pyagentd-call-timeout
     :success (lambda (answer)
                (when (buffer-live-p buffer)
                  (with-current-buffer buffer (funcall success answer))))
     :error #'ignore)))

(defun pyagentd-commands-fetch ()
  "Ask which commands there are here."
  (pyagentd-commands--ask
   'commands (list :branch pyagentd--branch-dir)
   (lambda (answer)
     (setq pyagentd-commands (plist-get answer :commands)))))

(defun pyagentd-commands--keep (kind rows)
  "Keep ROWS, a list of (TEXT . SUMMARY), as what completes KIND."
  (setf (alist-get kind pyagentd-commands--values nil nil #'equal) rows))

(defun pyagentd-commands--fetch-values (kind)
  "Ask for what completes KIND, see :values of `pyagentd-commands'."
  (let* ((branch (list :branch pyagentd--branch-dir))
         (taken (lambda (key text summary)
                  (lambda (answer)
                    (pyagentd-commands--keep
                     kind (mapcar (lambda (row)
                                    (cons (funcall text row)
                                          (funcall summary row)))
                                  (plist-get answer key)))))))
    (pcase kind
      ("agents"
       (pyagentd-commands--ask
        'agent-list nil
        (funcall taken :agents (lambda (row) (plist-get row :name))
                 (lambda (row) (plist-get row :status)))))
      ("contexts"
       (pyagentd-commands--ask
        'context-history branch
        (funcall taken :contexts
                 (lambda (row) (substring (plist-get row :id) 0 8))
                 (lambda (row) (plist-get row :description)))))
      ("models"
       (pyagentd-commands--ask
        'models nil
        (lambda (answer)
          (pyagentd-commands--keep
           kind (seq-mapcat (lambda (provider)
                              (mapcar (lambda (model)
                                        (cons model (plist-get provider :name)))
                                      (plist-get provider :models)))
                            (plist-get answer :providers))))))
      ("tasks"
       (pyagentd-commands--ask
        'tasks branch
        (funcall taken :tasks (lambda (row) (plist-get row :id))
                 (lambda (row) (plist-get row :command))))))))

(defun pyagentd-commands--candidates (argument)
  "Return what completes ARGUMENT, a plist, as a list of (TEXT . SUMMARY)."
  (let ((kind (or (plist-get argument :values) "")))
    (cond ((plist-get argument :choices)
           (mapcar #'list (plist-get argument :choices)))
          ((equal kind "permissions") (mapcar #'list pyagentd-named-profiles))
          ((equal kind "commands")
           (mapcar (lambda (command) (list (plist-get command :name)))
                   pyagentd-commands))
          (t (alist-get kind pyagentd-commands--values nil nil #'equal)))))

;;;; What is typed

(defun pyagentd-commands--start ()
  "Return where the command begins in which point is, nil if in none.
That is where its slash is."
  (let ((start (pyagentd-queued-start (point))))
    (when (and (< start (point))
               (eq ?/ (char-after start))
               (<= (line-beginning-position) start))
      start)))

(defun pyagentd-commands--words (text)
  "Return TEXT in words, a quoted text as one.
The last is that which is being typed, and may be empty."
  (let ((start 0) words)
    (while (string-match "\"[^\"]*\"?\\|'[^']*'?\\|[^ \t]+" text start)
      (push (match-string 0 text) words)
      (setq start (match-end 0)))
    (when (or (null words)
              (string-match-p "\\`[ \t]+\\'" (substring text start)))
      (push "" words))
    (nreverse words)))

(defun pyagentd-commands--command (text)
  "Return the command whose arguments TEXT, behind the slash, goes into.
That is nil as long as its name is typed."
  (car (sort (seq-filter (lambda (command)
                           (string-prefix-p (concat (plist-get command :name)
                                                    " ")
                                            text))
                         pyagentd-commands)
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

(defun pyagentd-commands--argument (command words)
  "Return the argument of COMMAND that the last of WORDS stands for."
  (let* ((arguments (seq-remove (lambda (argument)
                                  (equal "flag" (plist-get argument :takes)))
                                (plist-get command :arguments)))
         (number (1- (length (seq-remove (lambda (word)
                                           (string-prefix-p "--" word))
                                         words)))))
    (nth (max 0 number) arguments)))

;;;; Completion

(defun pyagentd-commands--table (rows)
  "Return a completion table of what ROWS, a function, returns.
That is a list of (TEXT . SUMMARY)."
  (lambda (string predicate action)
    (if (eq action 'metadata)
        `(metadata
          (category . pyagentd-slash)
          (annotation-function
           . ,(lambda (text)
                (when-let ((summary (cdr (assoc text (funcall rows)))))
                  (concat "  " (truncate-string-to-width
                                (string-replace "\n" " " summary)
                                60 nil nil "…"))))))
      (complete-with-action action (mapcar #'car (funcall rows))
                            string predicate))))

(defun pyagentd-commands--names ()
  "Return the names of the commands here as a list of (TEXT . SUMMARY)."
  (mapcar (lambda (command)
            (cons (concat "/" (plist-get command :name))
                  (plist-get command :summary)))
          pyagentd-commands))

(defun pyagentd-commands--exit (text status)
  "Go on behind TEXT, the name of a command, when STATUS says that it is whole."
  (when (and (eq status 'finished)
             (not (eq ?\s (char-after)))
             (plist-get (seq-find
                         (lambda (command)
                           (equal text (concat "/" (plist-get command :name))))
                         pyagentd-commands)
                        :arguments))
    (insert " ")))

(defun pyagentd-commands--exit-argument (command argument)
  "Return what goes on behind ARGUMENT of COMMAND when it is whole."
  (let ((last (equal argument (car (last (plist-get command :arguments))))))
    (lambda (_text status)
      (when (and (eq status 'finished) (not last) (not (eq ?\s (char-after))))
        (insert " ")))))

(defun pyagentd-commands--complete (command text)
  "Return how to complete the last word of TEXT, arguments of COMMAND."
  (let* ((words (pyagentd-commands--words text))
         (word (car (last words)))
         (argument (pyagentd-commands--argument command words))
         (kind (plist-get argument :values)))
    (unless (member kind '(nil ""))
      (pyagentd-commands--fetch-values kind))
    (when (or argument (pyagentd-commands--flags command))
      (list (- (point) (length word)) (point)
            (pyagentd-commands--table
             (if (string-prefix-p "-" word)
                 (lambda () (pyagentd-commands--flags command))
               (lambda () (pyagentd-commands--candidates argument))))
            :exit-function (pyagentd-commands--exit-argument command argument)
            :exclusive 'no))))

(defun pyagentd-commands-at-point ()
  "Complete the command at point, for `completion-at-point-functions'."
  (when-let* ((start (pyagentd-commands--start))
              (text (buffer-substring-no-properties (1+ start) (point))))
    (unless pyagentd-commands (pyagentd-commands-fetch))
    (if-let ((command (pyagentd-commands--command text)))
        (pyagentd-commands--complete
         command (string-remove-prefix
                  (concat (plist-get command :name) " ") text))
      (list start (point)
            (pyagentd-commands--table #'pyagentd-commands--names)
            :exit-function #'pyagentd-commands--exit
            :exclusive 'no))))

(put 'pyagentd-commands-at-point 'permanent-local-hook t)
(add-to-list 'pyagentd-session-hooks
             '(completion-at-point-functions . pyagentd-commands-at-point))
(add-hook 'pyagentd-attached-hook #'pyagentd-commands-fetch)
(add-hook 'pyagentd-completing-functions #'pyagentd-commands--start)

(provide 'pyagentd-commands)
;;; pyagentd-commands.el ends here

;;; pyagentd-hooks.el --- Functions that agents are subject to -*- lexical-binding: t; -*-

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

;; A function added by `pyagentd-add-hook' is asked before an agent acts,
;; or told afterwards, about sessions that this Emacs shows and their
;; agents.  It is called with a plist of facts and returns nil or a plist
;; of what it wants otherwise; docs/hooks.md says what both may hold.
;;
;; Hooks that a project brings along are programs; they run once their
;; user has read them and said so.

;;; Code:

(require 'json)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-trust)

(defconst pyagentd-hooks--events
  '(message.user model.resolve tool.before tool.after run.finished)
  "What there are hooks for.")

(defvar pyagentd-hook-functions nil
  "Alist of events and the functions that are hooks for them.
See `pyagentd-add-hook', which tells the daemon, too.")

;;;; Functions

;;;###autoload
(defun pyagentd-add-hook (event function)
  "Have FUNCTION asked at EVENT about sessions that are shown here.
EVENT is one of the symbols `message.user', `model.resolve', `tool.before',
`tool.after' and `run.finished'.  FUNCTION gets a plist of facts; nil lets
things be, (:block REASON) forbids, other keys are what it wants changed.
It must be quick: the agent waits some seconds at most."
  (unless (memq event pyagentd-hooks--events)
    (user-error "There is no event %s for hooks" event))
  (unless (memq function (alist-get event pyagentd-hook-functions))
    (setf (alist-get event pyagentd-hook-functions)
          (append (alist-get event pyagentd-hook-functions) (list function))))
  (pyagentd-hooks--offer))

(defun pyagentd-remove-hook (event function)
  "Do not have FUNCTION asked at EVENT any more.
See `pyagentd-add-hook'."
  (setf (alist-get event pyagentd-hook-functions)
        (remq function (alist-get event pyagentd-hook-functions)))
  (pyagentd-hooks--offer))

(defun pyagentd-hooks--offer ()
  "Tell the daemon, if there is one, for which events there are functions."
  (when (pyagentd-rpc-connected-p)
    (pyagentd-rpc-call-async
     'hook-functions
     (list :events (mapcar (lambda (entry) (symbol-name (car entry)))
                           (seq-filter #'cdr pyagentd-hook-functions))))))

(defun pyagentd-hooks--connected ()
  "Tell a daemon that was just connected what there is."
  (when (seq-some #'cdr pyagentd-hook-functions)
    (pyagentd-hooks--offer)))

(defun pyagentd-hooks--on-hook (_branch _seq args)
  "Ask the functions for the event in ARGS and send what they say."
  (pcase-let* ((`(,asked) args)
               (event (intern (format "%s" (plist-get asked :event)))))
    (pyagentd-rpc-call-async
     'hook-answer
     (list :id (plist-get asked :id)
           :answer (json-encode
                    (or (pyagentd-hooks--asked event (plist-get asked :facts))
                        (make-hash-table)))))))

(defun pyagentd-hooks--asked (event text)
  "Return what the functions for EVENT say about the facts in TEXT, JSON."
  (condition-case-unless-debug err
      (let ((facts (let ((json-object-type 'plist) (json-array-type 'vector)
                         (json-key-type 'keyword))
                     (json-read-from-string text)))
            (said nil))
        (seq-some (lambda (function)
                    (pyagentd-hooks--merge (funcall function facts)
                                           (lambda (key value)
                                             (setq facts (plist-put facts key value)
                                                   said (plist-put said key value)))))
                  (alist-get event pyagentd-hook-functions))
        said)
    (error (list :error (error-message-string err)))))

(defun pyagentd-hooks--merge (changes put)
  "Call PUT with each key and value of CHANGES; return non-nil if they forbid."
  (let ((rest changes))
    (while rest
      (funcall put (car rest) (cadr rest))
      (setq rest (cddr rest))))
  (or (plist-get changes :block) (plist-get changes :deny)))

(pyagentd-events-register 'hook #'pyagentd-hooks--on-hook)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-hooks--connected)

;;;; Programs of a project

(defun pyagentd-hooks--insert (told)
  "Insert what TOLD, the daemon's answer, says about hooks."
  (dolist (hook (plist-get told :hooks))
    (insert (propertize (format "%-14s " (plist-get hook :event))
                        'face 'pyagentd-heading)
            (string-join (plist-get hook :command) " ")
            (propertize (format "  %s%s\n" (plist-get hook :source)
                                (if (plist-get hook :trusted) ""
                                  "  does not run: not trusted"))
                        'face 'shadow)))
  (unless (plist-get told :hooks) (insert "No hooks.\n"))
  (when-let ((file (plist-get told :file)))
    (unless (string-empty-p file)
      (insert "\n" pyagentd-rule)
      (pyagentd-hooks--insert-file
       file (plist-get told :text))))
  (dolist (script (plist-get told :scripts))
    (pyagentd-hooks--insert-file (plist-get script :path)
                                 (plist-get script :text))))

(defun pyagentd-hooks--insert-file (name text)
  "Insert TEXT under NAME, that of a file."
  (insert "\n" (propertize (abbreviate-file-name name) 'face 'pyagentd-heading)
          "\n" text "\n"))

(defun pyagentd-hooks ()
  "Show the hooks, yours and this project's, and ask whether to trust those.
What is trusted is what was shown, until anything of it changes."
  (interactive)
  (pyagentd-trust-with-root
   (lambda (root)
     (pyagentd-later-asking
      'hooks (list :root root)
      (lambda (told) (pyagentd-hooks--ask root told))))))

(defun pyagentd-hooks--ask (root told)
  "Show what TOLD says, the daemon's answer, and ask about hooks of ROOT."
  (let ((waiting (seq-remove (lambda (hook) (plist-get hook :trusted))
                             (plist-get told :hooks)))
        (buffer (get-buffer-create "*pyagentd hooks*")))
    (with-current-buffer buffer
      (special-mode)
      (let ((inhibit-read-only t))
        (erase-buffer)
        (pyagentd-hooks--insert told))
      (goto-char (point-min)))
    (pop-to-buffer buffer)
    (cond ((not (member (plist-get told :error) '(nil "")))
           (message "The project's hooks cannot be used: %s"
                    (plist-get told :error)))
          ((and waiting
                (yes-or-no-p (format "Allow these %d programs to run with your \
rights at every turn here? " (length waiting))))
           (pyagentd-later 'trust-hooks
                           (list :root root :hash (plist-get told :hash))
                           (lambda (_) (message "Trusted")))))))

(provide 'pyagentd-hooks)
;;; pyagentd-hooks.el ends here

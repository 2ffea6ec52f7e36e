;;; pyagentd-trust.el --- Trust in what a project brings along, and hooks -*- lexical-binding: t; -*-

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

;; A preset says what an agent may do.  One that comes with a project, or
;; with a session in a checkout, does not count before its user has read it
;; and said so; that holds for the text that was shown, and is asked again
;; for another one.

;;; Code:

(require 'json)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-here)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(declare-function pyagentd--project-root "pyagentd")

(defun pyagentd-trust-with-root (function)
  "Call FUNCTION with the directory of the project here.
That is the project of the session, if in one, which the daemon is asked;
FUNCTION is called in this buffer then."
  (if-let ((here (ignore-errors (pyagentd-here))))
      (pyagentd-later-here
       'grants (list :branch (plist-get here :branch))
       (lambda (answer)
         (funcall function (or (plist-get answer :root)
                               (pyagentd--project-root)))))
    (funcall function (pyagentd--project-root))))

(defun pyagentd-trust--untrusted (answer)
  "Return the presets in ANSWER that await trust, plists with :text.
Their other keys are :name, :source, :hash and, of a broken one, :error."
  (mapcar #'pyagentd-trust--read (plist-get answer :untrusted)))

(defun pyagentd-trust--read (preset)
  "Return PRESET, a plist, with its :text.
Signal an error unless it is the text that its :hash is of."
  (let ((name (plist-get preset :name))
        (file (plist-get preset :source)))
    (with-temp-buffer
      (set-buffer-multibyte nil)
      (insert-file-contents-literally file)
      (unless (equal (plist-get preset :hash)
                     (secure-hash 'sha256 (concat (encode-coding-string name 'utf-8)
                                                  "\0" (buffer-string))))
        (user-error "%s has changed just now; look again" file))
      (append preset (list :text (decode-coding-string (buffer-string)
                                                       'utf-8 t))))))

(defun pyagentd-trust--insert (preset)
  "Insert the text of PRESET, a plist, under its name."
  (insert (propertize (plist-get preset :name) 'face 'pyagentd-heading)
          (propertize (format "  %s\n" (abbreviate-file-name
                                        (plist-get preset :source)))
                      'face 'shadow))
  (when-let ((error (plist-get preset :error)))
    (insert (propertize (format "Cannot be used: %s\n" error) 'face 'error)))
  (insert (plist-get preset :text) "\n" pyagentd-rule "\n"))

(defun pyagentd-trust--buffer (root presets)
  "Return a buffer with the texts of PRESETS of the project ROOT."
  (with-current-buffer (get-buffer-create "*pyagentd presets*")
    (special-mode)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert (format "Presets of %s that you have not trusted yet.\n\
They say which tools an agent has, and what it may read, write and run.\n\n"
                      (abbreviate-file-name root)))
      (mapc #'pyagentd-trust--insert presets))
    (goto-char (point-min))
    (current-buffer)))

(defun pyagentd-trust-presets ()
  "Show the presets of this project, and ask whether to trust them.
Only the texts that were shown are trusted."
  (interactive)
  (pyagentd-trust-with-root
   (lambda (root)
     (pyagentd-later-asking
      'presets (list :root root)
      (lambda (answer)
        (pyagentd-trust--ask
         root
         (or (pyagentd-trust--untrusted answer)
             (user-error "No preset of %s needs to be trusted"
                         (abbreviate-file-name root)))))))))

(defun pyagentd-trust--ask (root presets)
  "Show PRESETS of the project ROOT, and ask whether to use them."
  (let* ((usable (seq-remove (lambda (preset) (plist-get preset :error))
                             presets))
         (names (mapconcat (lambda (preset) (plist-get preset :name))
                           usable ", ")))
    (save-window-excursion
      (pop-to-buffer (pyagentd-trust--buffer root presets))
      (cond ((null usable)
             (read-char "None of them can be used; press any key"))
            ((yes-or-no-p (format "Allow agents to be made from %s? " names))
             (pyagentd-later
              'trust-presets
              (list :root root
                    :hashes (mapcar (lambda (preset) (plist-get preset :hash))
                                    usable))
              (lambda (_) (message "Trusted: %s" names))))))))

;;;; Sessions

(defun pyagentd-trust--session-root (directory)
  "Return the branch at the root of the tree that DIRECTORY belongs to."
  (if (string-match "\\`\\(.*/branches/[^/]+\\)/agents/" directory)
      (match-string 1 directory)
    directory))

(defun pyagentd-trust-session ()
  "Show the preset.md of this session, and ask whether to trust it.
That is for a session that came from elsewhere, as with a checkout.
Only the text that was shown is trusted."
  (interactive)
  (let* ((branch (pyagentd-trust--session-root
                  (plist-get (pyagentd-here) :branch-dir)))
         (file (pyagentd-place-preset branch))
         sha256)
    (save-window-excursion
      (with-current-buffer (get-buffer-create "*pyagentd preset*")
        (special-mode)
        (let ((inhibit-read-only t))
          (erase-buffer)
          (insert (with-temp-buffer
                    (set-buffer-multibyte nil)
                    (insert-file-contents-literally file)
                    (setq sha256 (secure-hash 'sha256 (current-buffer)))
                    (decode-coding-string (buffer-string) 'utf-8 t))))
        (goto-char (point-min))
        (pop-to-buffer (current-buffer)))
      (when (y-or-n-p "You have read it; may this session do what it says? ")
        (pyagentd-later
         'trust-session (list :branch branch :sha256 sha256)
         (lambda (_) (message "Trusted: %s" (abbreviate-file-name file))))))))

;;;; Hooks

;; A function added by `pyagentd-add-hook' is asked before an agent acts,
;; or told afterwards, about sessions that this Emacs shows and their
;; agents.  It is called with a plist of facts and returns nil or a plist
;; of what it wants otherwise; docs/hooks.md says what both may hold.
;;
;; Hooks that a project brings along are programs; they run once their
;; user has read them and said so.

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

(provide 'pyagentd-trust)
;;; pyagentd-trust.el ends here

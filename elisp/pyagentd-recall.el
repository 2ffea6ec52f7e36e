;;; pyagentd-recall.el --- Prompts of before -*- lexical-binding: t; -*-

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

;; What you have said before, in any session, can be said again: it is
;; completed, and put into the prompt.  With `savehist-mode' it is known
;; in the next Emacs as well.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-chat)
(require 'pyagentd-turns)
(require 'pyagentd-add)

(defvar savehist-additional-variables)

(defvar pyagentd-prompt-history nil
  "Prompts that were sent, latest first; as many as `history-length' says.")

(defconst pyagentd-recall--longest 2000
  "Characters of the longest prompt that is remembered.")

(defun pyagentd-recall--note (text)
  "Remember TEXT, a prompt that was sent."
  (let ((text (string-trim text)))
    (unless (or (string-empty-p text)
                (> (length text) pyagentd-recall--longest))
      (let ((history-delete-duplicates t))
        (add-to-history 'pyagentd-prompt-history text)))))

(defun pyagentd-recall--save ()
  "Have prompts saved with the histories of minibuffers."
  (add-to-list 'savehist-additional-variables 'pyagentd-prompt-history))

(add-hook 'pyagentd-chat-sent-functions #'pyagentd-recall--note)
(add-hook 'savehist-save-hook #'pyagentd-recall--save)

(defun pyagentd-recall--prompts ()
  "Return the prompts to choose from, those of this buffer first, latest first."
  (delete-dups
   (append (nreverse (mapcar (lambda (prompt)
                               (buffer-substring-no-properties
                                (car prompt) (cdr prompt)))
                             (butlast (pyagentd-turns-prompts)
                                      (if (pyagentd-recall--draft-p) 1 0))))
           (copy-sequence pyagentd-prompt-history))))

(defun pyagentd-recall--draft-p ()
  "Return non-nil if the last prompt here is being written."
  (when-let ((last (car (last (pyagentd-turns-prompts)))))
    (null (next-single-property-change (car last) 'gptel))))

(defun pyagentd-recall--table (prompts)
  "Return a completion table of PROMPTS in their order."
  (lambda (string predicate action)
    (if (eq action 'metadata)
        '(metadata (category . pyagentd-prompt)
                   (display-sort-function . identity)
                   (cycle-sort-function . identity))
      (complete-with-action action prompts string predicate))))

(defun pyagentd-recall--line (prompt)
  "Return PROMPT in one line."
  (replace-regexp-in-string "[ \t]*\n[ \t\n]*" " ⏎ " prompt))

;;;###autoload
(defun pyagentd-recall-prompt ()
  "Insert an earlier prompt, from this or any other session."
  (interactive)
  (unless (bound-and-true-p pyagentd-mode) (user-error "Not a session"))
  (pyagentd-viewing-check)
  (let ((prompts (mapcar (lambda (prompt)
                           (cons (pyagentd-recall--line prompt) prompt))
                         (pyagentd-recall--prompts))))
    (unless prompts (user-error "No earlier prompts"))
    (pyagentd-add-text
     (cdr (assoc (completing-read "Earlier prompt: "
                                  (pyagentd-recall--table
                                   (mapcar #'car prompts))
                                  nil t)
                 prompts)))
    (skip-chars-backward "\n")))

(define-key pyagentd-mode-map (kbd "C-c M-r") #'pyagentd-recall-prompt)

(provide 'pyagentd-recall)
;;; pyagentd-recall.el ends here

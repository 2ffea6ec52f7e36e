;;; pyagentd-contexts.el --- Saved conversations -*- lexical-binding: t; -*-

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

;; A conversation can be saved, put behind and restored; the daemon does so
;; by itself when nobody talks with a named agent for long.  Clearing
;; deletes nothing: the text stays where it is.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-list)
(require 'pyagentd-named)

(defconst pyagentd-contexts--patience 300
  "Seconds to wait while a conversation is summarised.")

(defun pyagentd-contexts--here ()
  "Return the session here, saved, as a plist."
  (let ((here (pyagentd-here)))
    (pyagentd-here-save here)
    here))

(defun pyagentd-contexts--short (saved)
  "Return the first characters of the id of SAVED."
  (substring (plist-get saved :id) 0 8))

;;;; Commands

(defun pyagentd-context-save (description)
  "Save the conversation here under DESCRIPTION; it continues.
Without a DESCRIPTION a model writes one."
  (interactive (list (read-string "Description (empty: a model writes it): ")))
  (let ((here (pyagentd-contexts--here)))
    (message "Saving the conversation...")
    (pyagentd-later
     'context-save (list :branch (plist-get here :branch)
                         :description (string-trim description)
                         :env (pyagentd-env-variables)
                         :key (pyagentd-env-key))
     (lambda (saved)
       (run-hooks 'pyagentd-changed-hook)
       (message "Saved [%s] %s (%s)" (pyagentd-contexts--short saved)
                (plist-get saved :description)
                (pyagentd-count (plist-get saved :message-count) "message")))
     pyagentd-contexts--patience)))

(defun pyagentd-context-clear ()
  "Clear the conversation here without saving it.
Its text stays; the model no longer sees it."
  (interactive)
  (let ((here (pyagentd-contexts--here)))
    (when (y-or-n-p (format "Clear the conversation in %s without saving it? "
                            (pyagentd-title here)))
      (pyagentd-later
       'context-clear (list :branch (plist-get here :branch))
       (lambda (answer)
         (run-hooks 'pyagentd-changed-hook)
         (message "Context cleared.  %s" (plist-get answer :note)))))))

(defun pyagentd-contexts--restore (branch id)
  "Let the saved conversation ID go on in BRANCH."
  (pyagentd-later
   'context-restore (list :branch branch :id id)
   (lambda (saved)
     (run-hooks 'pyagentd-changed-hook)
     (message "Restored [%s] %s" (pyagentd-contexts--short saved)
              (plist-get saved :description)))
   pyagentd-contexts--patience))

(defun pyagentd-context-restore (&optional id)
  "Restore a saved conversation here, in place of the present one.
ID is that of the conversation, or how it begins; without one, choose in
the list of those that were saved."
  (interactive)
  (if id
      (pyagentd-contexts--restore
       (plist-get (pyagentd-contexts--here) :branch) id)
    (pyagentd-context-history)
    (message "RET restores the conversation at point")))

;;;; The list

(defun pyagentd-context-history (&optional agent)
  "List the saved conversations of the session here.
Where there is none, or with a prefix argument, ask for an AGENT, which
may be gone: its conversations are still known."
  (interactive
   (list (when (or current-prefix-arg (null (ignore-errors (pyagentd-here))))
           (pyagentd-named-read "Conversations of agent"))))
  (let ((branch (plist-get (if agent (pyagentd-named-row agent)
                             (pyagentd-here))
                           :branch)))
    (pyagentd-list-show "contexts" (if branch (list :branch branch)
                                     (list :agent agent)))))

(pyagentd-list-add-keys "contexts"
  '("s" pyagentd-context-save "save the present one")
  '("C" pyagentd-context-clear "clear"))

(provide 'pyagentd-contexts)
;;; pyagentd-contexts.el ends here

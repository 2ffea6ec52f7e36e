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
(require 'pyagentd-env)
(require 'pyagentd-here)
(require 'pyagentd-later)
(require 'pyagentd-table)
(require 'pyagentd-follow)
(require 'pyagentd-named)

(defvar-local pyagentd-contexts--branch nil
  "The branch whose conversations are listed; nil of an agent that is gone.")
(defvar-local pyagentd-contexts--agent nil
  "The name of the agent whose conversations are listed, nil with a branch.")

(defconst pyagentd-contexts--patience 300
  "Seconds to wait while a conversation is summarised.")

(defun pyagentd-contexts--changed ()
  "Show what there is now, where conversations are listed."
  (dolist (buffer (buffer-list))
    (with-current-buffer buffer
      (when (and (derived-mode-p 'pyagentd-contexts-mode)
                 (get-buffer-window nil t))
        (revert-buffer))))
  (run-hooks 'pyagentd-changed-hook))

(defun pyagentd-contexts--here ()
  "Return the session here, saved, as a plist."
  (let ((here (pyagentd-here)))
    (pyagentd-here-save here)
    here))

;;;; Commands

;;;###autoload
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
       (pyagentd-contexts--changed)
       (message "Saved [%s] %s (%s)" (pyagentd-contexts--short saved)
                (plist-get saved :description)
                (pyagentd-count (plist-get saved :message-count) "message")))
     pyagentd-contexts--patience)))

;;;###autoload
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
         (pyagentd-contexts--changed)
         (message "Context cleared.  %s" (plist-get answer :note)))))))

(defun pyagentd-contexts--restore (branch id)
  "Let the saved conversation ID go on in BRANCH."
  (pyagentd-later
   'context-restore (list :branch branch :id id)
   (lambda (saved)
     (pyagentd-contexts--changed)
     (message "Restored [%s] %s" (pyagentd-contexts--short saved)
              (plist-get saved :description)))
   pyagentd-contexts--patience))

;;;###autoload
(defun pyagentd-context-restore (&optional id)
  "Restore a saved conversation here, in place of the present one.
ID is that of the conversation, or how it begins; without one, choose in
the list of those that were saved."
  (interactive)
  (if id
      (pyagentd-contexts--restore
       (plist-get (pyagentd-contexts--here) :branch) id)
    (pyagentd-context-history)
    (message "%s" (substitute-command-keys "\\<pyagentd-contexts-mode-map>\
\\[pyagentd-contexts-restore] restores the conversation at point"))))

;;;; Lines

(defun pyagentd-contexts--short (saved)
  "Return the first characters of the id of SAVED."
  (substring (plist-get saved :id) 0 8))

(defun pyagentd-contexts--trigger (saved)
  "Return why SAVED was saved, in words."
  (let ((trigger (format "%s" (plist-get saved :trigger))))
    (pcase trigger
      ("manual_save" "by hand")
      ("idle_timeout" "idle")
      ("context_clear" "clear")
      (_ trigger))))

(defun pyagentd-contexts--entry (saved)
  "Return the line of SAVED."
  (list (plist-get saved :id)
        (vector (propertize (pyagentd-contexts--short saved) 'face 'shadow)
                (pyagentd-time (plist-get saved :saved-at))
                (pyagentd-contexts--trigger saved)
                (number-to-string (plist-get saved :message-count))
                (string-replace "\n" " " (plist-get saved :description)))))

(defun pyagentd-contexts--show (answer)
  "List the saved conversations in ANSWER."
  (setq pyagentd-table-rows (plist-get answer :contexts))
  (pyagentd-table-print (mapcar #'pyagentd-contexts--entry
                                pyagentd-table-rows)))

(defun pyagentd-contexts--revert (&rest _)
  "Fetch the saved conversations again."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'context-history
                           (if pyagentd-contexts--branch
                               (list :branch pyagentd-contexts--branch)
                             (list :agent pyagentd-contexts--agent))
                           #'pyagentd-contexts--show))))

;;;; In the list

(defun pyagentd-contexts-restore ()
  "Restore the conversation at point in place of the present one."
  (interactive nil pyagentd-contexts-mode)
  (let ((saved (pyagentd-table-row)))
    (unless pyagentd-contexts--branch
      (user-error "%s no longer exists; M-x pyagentd-agent-init makes it again"
                  pyagentd-contexts--agent))
    (when (y-or-n-p (format "Restore \"%s\" without saving the present conversation? "
                            (truncate-string-to-width
                             (plist-get saved :description) 50 nil nil "…")))
      (dolist (buffer (pyagentd-here-buffers pyagentd-contexts--branch))
        (with-current-buffer buffer (pyagentd-session-save)))
      (pyagentd-contexts--restore pyagentd-contexts--branch
                                  (plist-get saved :id)))))

(defun pyagentd-contexts-visit ()
  "View the file of the conversation at point."
  (interactive nil pyagentd-contexts-mode)
  (let ((file (plist-get (pyagentd-table-row) :file)))
    (unless (file-exists-p file)
      (user-error "%s is gone" (abbreviate-file-name file)))
    (find-file-read-only-other-window file)))

(defun pyagentd-contexts--here-of-list ()
  "Return the session whose conversations are listed, for `pyagentd-here'."
  (when pyagentd-contexts--branch
    (let ((place (pyagentd-place-of
                  (pyagentd-place-conversation pyagentd-contexts--branch))))
      (append (list :branch pyagentd-contexts--branch) place))))

;;;; The mode

(defvar pyagentd-contexts-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-contexts-restore)
    (define-key map "r" #'pyagentd-contexts-restore)
    (define-key map "o" #'pyagentd-contexts-visit)
    (define-key map "s" #'pyagentd-context-save)
    (define-key map "C" #'pyagentd-context-clear)
    map)
  "Keymap of `pyagentd-contexts-mode'.")

(define-derived-mode pyagentd-contexts-mode pyagentd-table-mode "Contexts"
  "Major mode for the list of saved conversations.

\\{pyagentd-contexts-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Id" 9 nil) ("Saved" 17 t) ("Why" 9 t)
                               ("Messages" 9 t :right-align t)
                               ("Description" 0 nil)]
        pyagentd-table-help '(("RET" "restore") ("o" "view")
                              ("s" "save the present one") ("C" "clear")
                              ("g" "refresh") ("q" "close"))
        pyagentd-table-empty "No saved conversations; s saves the present one."
        pyagentd-here-function #'pyagentd-contexts--here-of-list)
  (setq-local revert-buffer-function #'pyagentd-contexts--revert)
  (pyagentd-follow #'pyagentd-contexts--revert)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-context-history (&optional agent)
  "List the saved conversations of the session here.
Where there is none, or with a prefix argument, ask for an AGENT, which
may be gone: its conversations are still known."
  (interactive
   (list (when (or current-prefix-arg (null (ignore-errors (pyagentd-here))))
           (pyagentd-named-read "Conversations of agent"))))
  (let ((here (unless agent (pyagentd-here)))
        (buffer (get-buffer-create "*pyagentd contexts*")))
    (with-current-buffer buffer
      (pyagentd-contexts-mode)
      (setq pyagentd-contexts--agent agent
            pyagentd-contexts--branch
            (plist-get (or here (pyagentd-named-row agent)) :branch)
            mode-name (list "Contexts of "
                            (or agent (plist-get here :session-id))))
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-contexts)
;;; pyagentd-contexts.el ends here

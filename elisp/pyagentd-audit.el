;;; pyagentd-audit.el --- What was decided about actions -*- lexical-binding: t; -*-

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

;; Every decision about what an agent was to do, newest first: of one
;; session or of all.  A line shows what was decided and by which rule, or
;; by whom; a key shows all that is known of it.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-here)
(require 'pyagentd-ask)
(require 'pyagentd-ask-words)
(require 'pyagentd-table)
(require 'pyagentd-follow)

(defvar pyagentd-audit--page 200
  "How many decisions are fetched at a time.")

(defvar-local pyagentd-audit--session nil
  "Id of the session whose decisions are listed, nil for all.")
(defvar-local pyagentd-audit--more nil
  "Non-nil if there are older decisions.")

;;;; Words

(defun pyagentd-audit--decision (row)
  "Return what was decided in ROW, with its face."
  (pcase (pyagentd-symbol (plist-get row :decision))
    ('allow (propertize "allowed" 'face 'success))
    ('ask_approved (propertize "approved" 'face 'success))
    ('ask_denied (propertize "refused" 'face 'warning))
    ('deny (propertize "denied" 'face 'error))
    (other (format "%s" other))))

(defun pyagentd-audit--agent (row)
  "Return which agent ROW is about, in words; empty for none."
  (if-let ((agent (plist-get row :agent)))
      (pyagentd-ask-agent-words agent)
    ""))

(defun pyagentd-audit--action (row)
  "Return on a line what ROW is about."
  (let ((action (format "%s" (or (plist-get row :action)
                                 (plist-get row :tool)))))
    (pyagentd-ask-one-line (string-remove-prefix "tool:" action))))

(defun pyagentd-audit--by (row)
  "Return who or what decided ROW."
  (let ((by (plist-get row :by)))
    (if (member by '(nil ""))
        (format "%s" (or (plist-get row :rule) ""))
      (format "%s" by))))

(defun pyagentd-audit--entry (row)
  "Return the line of ROW."
  (list (plist-get row :id)
        (vector (if-let ((time (pyagentd-here-time (plist-get row :at))))
                    (format-time-string "%m-%d %T" time) "")
                (pyagentd-audit--decision row)
                (truncate-string-to-width (pyagentd-audit--action row)
                                          200 nil nil "…")
                (pyagentd-audit--by row)
                (propertize (pyagentd-audit--agent row) 'face 'shadow))))

;;;; Fetching

(defun pyagentd-audit--show (answer older)
  "List the decisions in ANSWER, after those there are if they are OLDER."
  (setq pyagentd-table-rows
        (append (and older pyagentd-table-rows) (plist-get answer :decisions))
        pyagentd-audit--more (plist-get answer :more))
  (pyagentd-table-print (mapcar #'pyagentd-audit--entry pyagentd-table-rows))
  (pyagentd-table-say (concat (or pyagentd-audit--session "all sessions")
                              (and pyagentd-audit--more ", + shows more"))))

(defun pyagentd-audit--fetch (&optional before)
  "Fetch decisions, the newest or those before the one with the id BEFORE."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'audit
                           (append (list :limit pyagentd-audit--page)
                                   (and pyagentd-audit--session
                                        (list :session pyagentd-audit--session))
                                   (and before (list :before before)))
                           (lambda (answer)
                             (pyagentd-audit--show answer before))))))

(defun pyagentd-audit--revert (&rest _)
  "Fetch the newest decisions again."
  (pyagentd-audit--fetch))

(defun pyagentd-audit--again ()
  "Fetch as many of the newest decisions as there are here, or more."
  (let ((pyagentd-audit--page (max pyagentd-audit--page
                                   (length pyagentd-table-rows))))
    (pyagentd-audit--fetch)))

(defun pyagentd-audit-more ()
  "Show older decisions too."
  (interactive nil pyagentd-audit-mode)
  (unless pyagentd-audit--more (user-error "No more decisions"))
  (pyagentd-audit--fetch (plist-get (car (last pyagentd-table-rows)) :id)))

(defun pyagentd-audit-filter (session)
  "Show only decisions of SESSION, an id; those of all if it is empty."
  (interactive
   (list (completing-read
          "Session (empty for all): "
          (delete-dups (delq nil (mapcar (lambda (row) (plist-get row :session))
                                         pyagentd-table-rows)))))
   pyagentd-audit-mode)
  (setq pyagentd-audit--session (unless (string-blank-p session) session))
  (revert-buffer))

;;;; One decision

(defconst pyagentd-audit--fields
  '(("Action" . :action) ("Tool" . :tool) ("Rule" . :rule)
    ("Reason" . :reason) ("By" . :by) ("Session" . :session)
    ("Branch" . :branch) ("Agent" . :agent) ("Run" . :run-id))
  "Names of the fields of a decision that are shown whole.")

(defun pyagentd-audit-visit ()
  "Show the details of the decision at point."
  (interactive nil pyagentd-audit-mode)
  (let ((row (pyagentd-table-row)))
    (with-current-buffer (get-buffer-create "*pyagentd decision*")
      (special-mode)
      (visual-line-mode)
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert (pyagentd-audit--decision row) "  "
                (if-let ((time (pyagentd-here-time (plist-get row :at))))
                    (format-time-string "%F %T" time) "")
                "\n\n")
        (pcase-dolist (`(,name . ,key) pyagentd-audit--fields)
          (let ((value (plist-get row key)))
            (unless (member value '(nil ""))
              (insert (propertize (format "%-8s " name)
                                  'face 'pyagentd-heading)
                      (format "%s\n" value))))))
      (goto-char (point-min))
      (display-buffer (current-buffer)))))

;;;; The mode

(defvar pyagentd-audit-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-audit-visit)
    (define-key map "s" #'pyagentd-audit-filter)
    (define-key map "+" #'pyagentd-audit-more)
    map)
  "Keymap of `pyagentd-audit-mode'.")

(define-derived-mode pyagentd-audit-mode pyagentd-table-mode "Decisions"
  "Major mode for the list of decisions about actions of agents.

\\{pyagentd-audit-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("When" 15 nil) ("Decision" 9 t)
                               ("Action" 56 t) ("By" 24 t) ("Agent" 0 t)]
        pyagentd-table-help '(("RET" "details") ("s" "session") ("+" "more")
                              ("g" "refresh") ("q" "close"))
        pyagentd-table-empty "No decisions yet.")
  (setq-local revert-buffer-function #'pyagentd-audit--revert)
  (pyagentd-follow #'pyagentd-audit--again)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-audit (&optional all)
  "List the decisions about actions of the session here.
Where there is no session, or with a prefix argument (ALL from Lisp), list
the decisions of all sessions."
  (interactive "P")
  (let ((session (unless all
                   (plist-get (ignore-errors (pyagentd-here)) :session-id)))
        (buffer (get-buffer-create "*pyagentd audit*")))
    (with-current-buffer buffer
      (pyagentd-audit-mode)
      (setq pyagentd-audit--session session)
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-audit)
;;; pyagentd-audit.el ends here

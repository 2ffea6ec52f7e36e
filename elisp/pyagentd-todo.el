;;; pyagentd-todo.el --- What an agent is about -*- lexical-binding: t; -*-

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

;; An agent may keep a list of steps.  The header line says how far it is,
;; and a list stands at the end of its answer, which a click or a command
;; folds.  It is no text of the conversation.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-events)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-insert)

(defcustom pyagentd-todo-folded nil
  "Whether an agent's todo list is folded at first.
The header line always shows its progress."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defvar-local pyagentd-todo nil
  "The steps of the agent in this buffer, as the daemon sent them.
Each is a plist: :content, :status (\"pending\", \"in_progress\" or
\"completed\") and :active-form, what it is called while it is done.")
(defvar-local pyagentd-todo--overlay nil
  "Overlay of the list in this buffer, nil if there is none.")
(defvar-local pyagentd-todo--folded 'unset
  "Whether the list is folded here.")

(pyagentd-permanent-local 'pyagentd-todo 'pyagentd-todo--overlay
                          'pyagentd-todo--folded)
(put 'pyagentd-todo--move 'permanent-local-hook t)

(defvar pyagentd-todo-map
  (let ((map (make-sparse-keymap)))
    (define-key map [mouse-1] #'pyagentd-todo)
    map)
  "Keymap of the list and of what the header line says of it.")

;;;; Words

(defun pyagentd-todo--is (step status)
  "Return non-nil if STEP has STATUS, a string."
  (equal status (format "%s" (plist-get step :status))))

(defun pyagentd-todo--done ()
  "Return how many steps are completed."
  (seq-count (lambda (step) (pyagentd-todo--is step "completed"))
             pyagentd-todo))

(defun pyagentd-todo-line ()
  "Return in a line how far the agent here is, nil if it has no list."
  (when pyagentd-todo
    (let ((doing (seq-find (lambda (step) (pyagentd-todo--is step "in_progress"))
                           pyagentd-todo)))
      (format "todo %d/%d%s" (pyagentd-todo--done) (length pyagentd-todo)
              (if doing (concat ": " (plist-get doing :active-form)) "")))))

(defun pyagentd-todo--segment ()
  "Return what the header line says of the list here, or nil."
  (when-let ((line (pyagentd-todo-line)))
    (pyagentd-status-button
     (propertize (truncate-string-to-width line 50 nil nil "…")
                 'face (if (= (pyagentd-todo--done) (length pyagentd-todo))
                           'success 'shadow))
     'pyagentd-todo "The agent's list of steps")))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-todo--segment)

(defun pyagentd-todo--step (step)
  "Return the line of STEP."
  (cond ((pyagentd-todo--is step "completed")
         (propertize (concat "  [x] " (plist-get step :content)) 'face 'shadow))
        ((pyagentd-todo--is step "in_progress")
         (propertize (concat "  [>] " (plist-get step :active-form))
                     'face 'warning))
        (t (concat "  [ ] " (plist-get step :content)))))

(defun pyagentd-todo--folded-p ()
  "Return non-nil if the list here is folded."
  (if (eq pyagentd-todo--folded 'unset) pyagentd-todo-folded
    pyagentd-todo--folded))

(defun pyagentd-todo--text ()
  "Return the list as it stands in the conversation."
  (let ((head (concat (if (pyagentd-todo--folded-p) "▸ " "▾ ")
                      (pyagentd-todo-line))))
    (propertize
     (concat "\n" (propertize head 'face 'pyagentd-detail) "\n"
             (unless (pyagentd-todo--folded-p)
               (concat (mapconcat #'pyagentd-todo--step pyagentd-todo "\n")
                       "\n")))
     'keymap pyagentd-todo-map 'mouse-face 'highlight
     'help-echo "mouse-1: fold or unfold")))

;;;; The overlay

(defun pyagentd-todo--move ()
  "Put the list at the end of the run's text, above the prompt typed next."
  (when pyagentd-todo--overlay
    (let ((position (pyagentd-insert-end)))
      (move-overlay pyagentd-todo--overlay position position))))

(defun pyagentd-todo--delete ()
  "Remove the list from this buffer."
  (when pyagentd-todo--overlay
    (delete-overlay pyagentd-todo--overlay)
    (setq pyagentd-todo--overlay nil)
    (remove-hook 'pyagentd-insert-hook #'pyagentd-todo--move t)))

(defun pyagentd-todo--refresh ()
  "Show the steps in this buffer, if there are any that are not completed."
  (if (= (pyagentd-todo--done) (length pyagentd-todo))
      (pyagentd-todo--delete)
    (unless pyagentd-todo--overlay
      (setq pyagentd-todo--overlay (make-overlay (point-min) (point-min) nil t))
      (overlay-put pyagentd-todo--overlay 'priority -10)
      (add-hook 'pyagentd-insert-hook #'pyagentd-todo--move nil t))
    (overlay-put pyagentd-todo--overlay 'before-string (pyagentd-todo--text))
    (pyagentd-todo--move))
  (pyagentd-status-refresh))

(defun pyagentd-todo-receive (steps)
  "Show STEPS, all that the agent in this buffer has."
  (unless (equal steps pyagentd-todo)
    (setq pyagentd-todo steps)
    (pyagentd-todo--refresh)))

(defun pyagentd-todo--on-event (branch _seq args)
  "Show the steps in ARGS in the buffer of BRANCH."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (pyagentd-todo-receive (plist-get (car args) :items)))))

(pyagentd-events-register 'todo #'pyagentd-todo--on-event)

(defun pyagentd-todo--on-leave ()
  "Forget the steps in this buffer."
  (setq pyagentd-todo nil)
  (pyagentd-todo--delete))

(add-hook 'pyagentd-session-leave-hook #'pyagentd-todo--on-leave)

(defun pyagentd-todo ()
  "Fold or unfold the list of steps of the agent in this buffer."
  (interactive)
  (when (mouse-event-p last-input-event)
    (mouse-set-point last-input-event))
  (unless pyagentd-todo
    (user-error "The agent here has no list of steps"))
  (if (not pyagentd-todo--overlay)
      (message "%s: %s" (pyagentd-todo-line)
               (mapconcat (lambda (step) (plist-get step :content))
                          pyagentd-todo ", "))
    (setq pyagentd-todo--folded (not (pyagentd-todo--folded-p)))
    (pyagentd-todo--refresh)))

(provide 'pyagentd-todo)
;;; pyagentd-todo.el ends here

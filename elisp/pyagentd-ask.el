;;; pyagentd-ask.el --- What the daemon asks -*- lexical-binding: t; -*-

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

;; An ask is a question of a run to a human, most often whether a tool may
;; do what it is about to do.  This file knows which asks are open and
;; where each is shown: in the conversation that asks and in the one at
;; the root of its tree, so that no agent's question stays unseen.
;;
;; An ask is a plist as the daemon sent it.  Its keys are :id, :branch,
;; :agent (id of the agent that asks, nil for none), :kind (`tool', `scope'
;; for more rights, `question' for a model's, with :questions), :tool, :detail, :action, :reason, :preview (a
;; diff or another text), :choices, :remember (what an answer that is to
;; last would remember), :commands (those of a shell command), :patterns
;; (those asked for), :input (the arguments, JSON) and :path.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-json)
(require 'pyagentd-place)
(require 'pyagentd-events)

(defvar pyagentd-ask--pending nil
  "Open asks, oldest first.")

(defvar pyagentd-ask--answered nil
  "Ids of asks that we have answered and the daemon has not settled yet.")

(defvar pyagentd-ask-changed-hook nil
  "Hook run after it has changed which asks are open, or what is known of one.")

(defvar pyagentd-ask-new-functions nil
  "Functions called with an ask that is new.")

;;;; Which are open

(defun pyagentd-ask-id (ask)
  "Return the id of ASK."
  (plist-get ask :id))

(defun pyagentd-ask-open ()
  "Return the open asks that we know, oldest first."
  pyagentd-ask--pending)

(defun pyagentd-ask-find (id)
  "Return the open ask with ID, or nil."
  (seq-find (lambda (ask) (equal id (pyagentd-ask-id ask)))
            pyagentd-ask--pending))

(defun pyagentd-ask-answered-p (ask)
  "Return non-nil if ASK was answered here and the daemon says nothing yet."
  (member (pyagentd-ask-id ask) pyagentd-ask--answered))

(defun pyagentd-ask-note-answered (ask answered)
  "Note whether ASK is ANSWERED here."
  (setq pyagentd-ask--answered
        (delete (pyagentd-ask-id ask) pyagentd-ask--answered))
  (when answered
    (push (pyagentd-ask-id ask) pyagentd-ask--answered))
  (run-hooks 'pyagentd-ask-changed-hook))

(defun pyagentd-ask-add (ask &optional branch)
  "Note that ASK, told about BRANCH, waits for an answer."
  (unless (pyagentd-ask-find (pyagentd-ask-id ask))
    (let ((branch (or (plist-get ask :branch) branch)))
      (setq ask (append (list :branch branch
                              :above (and branch (pyagentd-ask--chain branch)))
                        ask)))
    (setq pyagentd-ask--pending (append pyagentd-ask--pending (list ask)))
    (run-hooks 'pyagentd-ask-changed-hook)
    (run-hook-with-args 'pyagentd-ask-new-functions ask)))

(defun pyagentd-ask-remove (id)
  "Note that the ask ID is settled."
  (when-let ((ask (pyagentd-ask-find id)))
    (setq pyagentd-ask--pending (remq ask pyagentd-ask--pending)
          pyagentd-ask--answered (delete id pyagentd-ask--answered))
    (run-hooks 'pyagentd-ask-changed-hook)))

(defun pyagentd-ask-receive (asks branch)
  "Note that ASKS, and no others, are those shown on BRANCH."
  (dolist (known pyagentd-ask--pending)
    (when (and (member branch (pyagentd-ask-branches known))
               (not (seq-some (lambda (ask) (equal (pyagentd-ask-id ask)
                                                   (pyagentd-ask-id known)))
                              asks)))
      (pyagentd-ask-remove (pyagentd-ask-id known))))
  (dolist (ask asks)
    (pyagentd-ask-add ask branch))
  (when asks                            ; one known before is new to a buffer
    (run-hooks 'pyagentd-ask-changed-hook)))

(defun pyagentd-ask-receive-all (asks)
  "Note that ASKS, and no others, are open anywhere."
  (let ((pyagentd-ask-new-functions nil))
    (dolist (known pyagentd-ask--pending)
      (unless (seq-some (lambda (ask) (equal (pyagentd-ask-id ask)
                                             (pyagentd-ask-id known)))
                        asks)
        (pyagentd-ask-remove (pyagentd-ask-id known))))
    (mapc #'pyagentd-ask-add asks)))

(defun pyagentd-ask-clear ()
  "Forget all asks; the daemon has them still."
  (setq pyagentd-ask--pending nil
        pyagentd-ask--answered nil)
  (run-hooks 'pyagentd-ask-changed-hook))

;;;; Where they are shown

(defun pyagentd-ask--chain (branch)
  "Return BRANCH and those above it up to the root, directories in a list."
  (let ((chain (list branch)))
    (while (equal "agents" (file-name-nondirectory
                            (directory-file-name
                             (file-name-directory (car chain)))))
      (push (directory-file-name
             (file-name-directory
              (directory-file-name (file-name-directory (car chain)))))
            chain))
    (nreverse chain)))

(defun pyagentd-ask-root (branch)
  "Return the branch at the root of the tree of BRANCH, both directories."
  (car (last (pyagentd-ask--chain branch))))

(defun pyagentd-ask--above (ask)
  "Return the branch of ASK and those above it, the root last."
  (or (plist-get ask :above)
      (when-let ((branch (plist-get ask :branch)))
        (pyagentd-ask--chain branch))))

(defun pyagentd-ask-branches (ask)
  "Return the branches on which ASK is shown: its own and that of its root."
  (when-let ((above (pyagentd-ask--above ask)))
    (delete-dups (list (car above) (car (last above))))))

(defun pyagentd-ask-buffers (ask)
  "Return the buffers that show ASK: its own, and the uppermost one above."
  (pcase-let* ((`(,branch . ,above) (pyagentd-ask--above ask))
               (own (and branch (pyagentd-place-buffer branch)))
               (upper nil))
    (dolist (branch above)
      (setq upper (or (pyagentd-place-buffer branch) upper)))
    (delq nil (list own upper))))

(defun pyagentd-ask-in (buffer)
  "Return the asks that BUFFER shows, oldest first."
  (seq-filter (lambda (ask) (memq buffer (pyagentd-ask-buffers ask)))
              pyagentd-ask--pending))

;;;; What one is about

(defun pyagentd-ask-scope-p (ask)
  "Return non-nil if ASK is about more rights."
  (eq 'scope (pyagentd-symbol (plist-get ask :kind))))

(defun pyagentd-ask-question-p (ask)
  "Return non-nil if ASK, which may be nil, is a model's questions."
  (eq 'question (pyagentd-symbol (plist-get ask :kind))))

(defun pyagentd-ask-choices (ask)
  "Return the decisions that ASK offers, a list of symbols."
  (or (mapcar #'pyagentd-symbol (plist-get ask :choices))
      '(allow deny)))

(defun pyagentd-ask-arguments (ask)
  "Return the arguments in ASK as a hash table; nil if it has none."
  (when-let ((input (plist-get ask :input)))
    (pyagentd-json-table input)))

;;;; Events

(pyagentd-events-register
 'ask (lambda (branch _seq args) (pyagentd-ask-add (car args) branch)))
(defvar pyagentd-ask-settled-functions nil
  "Functions called when an ask was answered elsewhere.
They get the ask and the plist of the event: :decision and :by.")

(defun pyagentd-ask--on-answered (_branch _seq args)
  "Note that the ask in ARGS is settled."
  (let* ((answer (car args))
         (ask (pyagentd-ask-find (plist-get answer :id))))
    (when ask
      (unless (pyagentd-ask-answered-p ask)
        (run-hook-with-args 'pyagentd-ask-settled-functions ask answer))
      (pyagentd-ask-remove (pyagentd-ask-id ask)))))

(pyagentd-events-register 'answered #'pyagentd-ask--on-answered)

(provide 'pyagentd-ask)
;;; pyagentd-ask.el ends here

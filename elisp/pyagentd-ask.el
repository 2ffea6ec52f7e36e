;;; pyagentd-ask.el --- Answer what the daemon asks -*- lexical-binding: t; -*-

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
;; do what it is about to do.  Asks of an agent show up in the nearest
;; open buffer up the tree, so that no question stays unseen.  Nothing
;; here ever prompts by itself: a notice appears, keys answer it.

;;; Code:

(require 'cl-lib)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-events)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-insert)

(defconst pyagentd-ask--preview-lines 24
  "How many lines of a preview are shown.")

(defvar pyagentd-ask--pending nil
  "Open asks, oldest first: plists as the daemon sent them.
The keys are :id, :branch, :agent, :action, :tool, :detail, :reason and
:preview.")

(defvar pyagentd-ask--overlays nil
  "Alist of ask ids and the overlays that show them.")

;;;; Notice

(defun pyagentd-ask--preview (text)
  "Return TEXT, a preview such as a diff, bounded and coloured."
  (let* ((lines (split-string text "\n"))
         (more (- (length lines) pyagentd-ask--preview-lines)))
    (concat
     (mapconcat (lambda (line)
                  (propertize (truncate-string-to-width line 160 nil nil "…")
                              'face (pcase (and (> (length line) 0) (aref line 0))
                                      (?+ 'pyagentd-added)
                                      (?- 'pyagentd-removed)
                                      (_ 'pyagentd-detail))))
                (seq-take lines pyagentd-ask--preview-lines) "\n")
     (and (> more 0) (format "\n… %d more lines" more))
     "\n")))

(defun pyagentd-ask--title (ask)
  "Return one line about ASK."
  (concat (and (plist-get ask :agent)
               (format "%s: " (plist-get ask :agent)))
          (or (plist-get ask :tool) "Question") " "
          (replace-regexp-in-string
           "[\n\t ]+" " "
           (format "%s" (or (plist-get ask :detail)
                            (plist-get ask :action) "")))))

(defun pyagentd-ask--keys ()
  "Return the line that names the keys."
  (mapconcat (lambda (pair)
               (concat (propertize (car pair) 'face 'pyagentd-key) " " (cdr pair)))
             '(("C-c C-y" . "allow once") ("C-c C-n" . "deny")
               ("C-u C-c C-n" . "deny with a reason") ("C-c C-k" . "abort"))
             "  "))

(defun pyagentd-ask--text (ask)
  "Return the notice about ASK."
  (concat "\n" pyagentd-rule
          (propertize "May it? " 'face 'warning)
          (propertize (truncate-string-to-width (pyagentd-ask--title ask)
                                                400 nil nil "…")
                      'face 'pyagentd-heading)
          "\n"
          (when-let ((reason (plist-get ask :reason)))
            (concat (propertize (format "%s" reason) 'face 'pyagentd-detail) "\n"))
          (when-let ((preview (plist-get ask :preview)))
            (unless (equal preview "")
              (pyagentd-ask--preview (format "%s" preview))))
          (pyagentd-ask--keys) "\n" pyagentd-rule))

(defun pyagentd-ask--buffer (&rest branches)
  "Return the open buffer of the first of BRANCHES or its nearest parent."
  (cl-loop for branch in branches thereis
           (cl-loop for dir = branch then (file-name-directory
                                           (directory-file-name dir))
                    while (and dir (not (equal dir "/")))
                    thereis (pyagentd-place-buffer (directory-file-name dir)))))

(defun pyagentd-ask--show (ask buffer)
  "Show a notice about ASK in BUFFER, at the marker of the run."
  (with-current-buffer buffer
    (save-restriction
      (widen)
      (let* ((pos (pyagentd-insert-position))
             (overlay (make-overlay pos pos nil t)))
        (overlay-put overlay 'pyagentd-ask (plist-get ask :id))
        (overlay-put overlay 'before-string (pyagentd-ask--text ask))
        (push (cons (plist-get ask :id) overlay) pyagentd-ask--overlays)))))

(defun pyagentd-ask-add (ask branch)
  "Note that ASK, of BRANCH, waits for an answer, and show it."
  (unless (pyagentd-ask--find (plist-get ask :id))
    (setq pyagentd-ask--pending (append pyagentd-ask--pending (list ask)))
    (let ((buffer (pyagentd-ask--buffer branch (plist-get ask :branch))))
      (when buffer
        (pyagentd-ask--show ask buffer))
      (unless (and buffer (get-buffer-window buffer 'visible))
        (message "%s may answer: %s"
                 (substitute-command-keys "\\[pyagentd-answer]")
                 (pyagentd-ask--title ask))))))

(defun pyagentd-ask-remove (id)
  "Note that the ask ID is settled."
  (setq pyagentd-ask--pending
        (cl-remove id pyagentd-ask--pending :test #'equal
                   :key (lambda (ask) (plist-get ask :id))))
  (when-let ((pair (assoc id pyagentd-ask--overlays)))
    (delete-overlay (cdr pair))
    (setq pyagentd-ask--overlays (delq pair pyagentd-ask--overlays))))

(defun pyagentd-ask-clear ()
  "Forget all asks; the daemon has them still."
  (dolist (ask pyagentd-ask--pending)
    (pyagentd-ask-remove (plist-get ask :id))))

(defun pyagentd-ask--find (id)
  "Return the open ask with ID, or nil."
  (cl-find id pyagentd-ask--pending :test #'equal
           :key (lambda (ask) (plist-get ask :id))))

(defun pyagentd-ask-here ()
  "Return the oldest ask that is shown in the current buffer, or nil."
  (let ((buffer (or (buffer-base-buffer) (current-buffer))))
    (cl-loop for ask in pyagentd-ask--pending
             for overlay = (cdr (assoc (plist-get ask :id)
                                       pyagentd-ask--overlays))
             when (and overlay (eq (overlay-buffer overlay) buffer))
             return ask)))

;;;; Answers

(defun pyagentd-ask--answer (ask decision &optional reason)
  "Answer ASK with DECISION, a symbol, because of REASON."
  (pyagentd-rpc-call-async
   'answer
   (list :ask (plist-get ask :id) :decision decision :reason (or reason ""))
   :timeout pyagentd-call-timeout
   :success (lambda (answer)
              (pyagentd-ask-remove (plist-get ask :id))
              (unless (plist-get answer :accepted)
                (message "Somebody else answered first")))
   :error (lambda (err) (message "%s" (pyagentd-error-text err)))))

(defun pyagentd-ask--current ()
  "Return the ask a key in this buffer answers; signal if there is none."
  (or (pyagentd-ask-here) (user-error "Nothing to answer here")))

(defun pyagentd-allow-once ()
  "Allow what is asked for in this buffer, this one time."
  (interactive)
  (pyagentd-ask--answer (pyagentd-ask--current) 'allow))

(defun pyagentd-deny (reason)
  "Deny what is asked for in this buffer, not the run as a whole.
With a prefix argument read a REASON, which the model is told."
  (interactive
   (progn (pyagentd-ask--current)
          (list (and current-prefix-arg (read-string "Reason: ")))))
  (pyagentd-ask--answer (pyagentd-ask--current) 'deny reason))

(defun pyagentd-ask-abort ()
  "Abort the run that asks in this buffer."
  (interactive)
  (pyagentd-ask--answer (pyagentd-ask--current) 'abort))

(defun pyagentd-ask--read ()
  "Let the user choose among the open asks."
  (let ((table (mapcar (lambda (ask) (cons (pyagentd-ask--title ask) ask))
                       pyagentd-ask--pending)))
    (cond ((null table) (user-error "Nothing to answer"))
          ((null (cdr table)) (cdar table))
          (t (cdr (assoc (completing-read "Answer: " table nil t) table))))))

(defun pyagentd-answer (ask decision &optional reason)
  "Answer ASK, wherever it comes from, with DECISION and REASON.
Interactively choose among all open asks."
  (interactive
   (let* ((ask (pyagentd-ask--read))
          (choice (read-multiple-choice
                   (truncate-string-to-width (pyagentd-ask--title ask) 200)
                   '((?y "allow once") (?n "deny") (?k "abort the run"))))
          (decision (pcase-exhaustive (car choice)
                      (?y 'allow) (?n 'deny) (?k 'abort))))
     (list ask decision
           (and (eq decision 'deny) (read-string "Reason (optional): ")))))
  (pyagentd-ask--answer ask decision reason))

(define-key pyagentd-mode-map (kbd "C-c C-y") #'pyagentd-allow-once)
(define-key pyagentd-mode-map (kbd "C-c C-n") #'pyagentd-deny)

(pyagentd-events-register
 'ask (lambda (branch _seq args) (pyagentd-ask-add (car args) branch)))
(pyagentd-events-register
 'answered (lambda (_branch _seq args)
             (pyagentd-ask-remove (plist-get (car args) :id))))

(provide 'pyagentd-ask)
;;; pyagentd-ask.el ends here

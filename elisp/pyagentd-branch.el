;;; pyagentd-branch.el --- Branches of a session -*- lexical-binding: t; -*-

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

;; A branch tries another way from a prompt on: `pyagentd-branch' copies
;; the conversation up to it into a session.md of its own and visits that.
;; What the session was before stays as it is.  `pyagentd-switch-branch'
;; goes to another.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-later)
(require 'pyagentd-session)
(require 'pyagentd-here)
(require 'pyagentd-manage)

(defconst pyagentd-branch-default-name "branch"
  "Name of a branch that was given none.")

;;;; Where a branch begins

(defun pyagentd-branch--check ()
  "Signal a `user-error' unless a branch can begin in this buffer."
  (unless pyagentd--branch-dir
    (user-error "Not a gptel session buffer"))
  (when (pyagentd-place-agent-p)
    (user-error "An agent has no branches; branch the session it works for")))

(defun pyagentd-branch--save ()
  "Save the buffer, since the daemon copies what is on disk."
  (pyagentd-session-save)
  (when (and (buffer-modified-p) (not pyagentd-session-viewing))
    (user-error "Save the session before branching")))

(defun pyagentd-branch-here ()
  "Return the buffer of the session here, saved, and point: (BUFFER POSITION).
Signal a `user-error' unless a branch can begin there."
  (let ((position (point))
        (buffer (or (buffer-base-buffer) (current-buffer))))
    (with-current-buffer buffer
      (pyagentd-branch--check)
      (pyagentd-branch--save))
    (list buffer position)))

(defun pyagentd-branch-point (points number position)
  "Return the one of POINTS that is called NUMBER, or the one at POSITION.
The latter if NUMBER is nil."
  (cond ((null points) (user-error "No prompt to branch at yet"))
        (number (pyagentd-branch--numbered (format "%s" number) points))
        (t (pyagentd-branch--nearest points position))))

(defun pyagentd-branch-with-points (then)
  "Call THEN with the prompts at which a branch can begin, first one first.
Each is a plist with :number, :message-id (or nil), :start, :end and
:text.  THEN may ask something; it is called later, in this buffer."
  (pyagentd-later-asking
   'branch-points (list :branch pyagentd--branch-dir)
   (lambda (answer) (funcall then (plist-get answer :points)))))

(defun pyagentd-branch--label (point)
  "Return the candidate for POINT, a prompt as a plist."
  (format "%d  %s" (plist-get point :number)
          (truncate-string-to-width
           (replace-regexp-in-string
            "[ \t\n]+" " " (string-trim (or (plist-get point :text) "")))
           70 nil nil "…")))

(defun pyagentd-branch--annotation (point)
  "Return what to say beside POINT: its place in the text."
  (let ((start (plist-get point :start)))
    (format "  line %d, %d%%"
            (save-restriction
              (widen)
              (line-number-at-pos (min start (point-max))))
            (/ (* 100 start) (max 1 (1+ (buffer-size)))))))

(defun pyagentd-branch--nearest (points position)
  "Return the one of POINTS in which POSITION is, or the last before it."
  (or (seq-find (lambda (point) (<= (plist-get point :start) position))
                (reverse points))
      (car points)))

(defun pyagentd-branch--table (candidates category annotate)
  "Return a completion table of CANDIDATES in their order.
They are of CATEGORY and ANNOTATE, a function, annotates them."
  (lambda (string predicate action)
    (if (eq action 'metadata)
        `(metadata (category . ,category)
                   (display-sort-function . identity)
                   (cycle-sort-function . identity)
                   (annotation-function . ,annotate))
      (complete-with-action action candidates string predicate))))

(defun pyagentd-branch--read-point (points position)
  "Let the user choose one of POINTS; the one at POSITION is the default."
  (let* ((alist (mapcar (lambda (point)
                          (cons (pyagentd-branch--label point) point))
                        points))
         (notes (mapcar (lambda (pair)
                          (cons (car pair)
                                (pyagentd-branch--annotation (cdr pair))))
                        alist))
         (default (car (rassq (pyagentd-branch--nearest points position) alist))))
    (pyagentd-branch--numbered
     (car (split-string
           (completing-read (format-prompt "Branch at prompt"
                                           (truncate-string-to-width
                                            default 40 nil nil "…"))
                            (pyagentd-branch--table
                             (mapcar #'car alist) 'pyagentd-prompt
                             (lambda (label) (cdr (assoc label notes))))
                            nil t nil nil default)))
     points)))

(defun pyagentd-branch--numbered (number points)
  "Return the one of POINTS whose number is written NUMBER."
  (or (seq-find (lambda (point)
                  (equal number (number-to-string (plist-get point :number))))
                points)
      (user-error "There is no prompt %s" number)))

(defun pyagentd-branch--read-side ()
  "Ask whether the chosen prompt goes into the branch."
  (pcase (car (read-multiple-choice
               "The prompt"
               '((?i "include" "The branch ends with this prompt.")
                 (?e "exclude" "The branch ends before it; write another prompt."))))
    (?i 'include)
    (?e 'exclude)))

(defun pyagentd-branch--read-name ()
  "Read the name of a branch."
  (read-string (format-prompt "Branch name" pyagentd-branch-default-name)
               nil nil pyagentd-branch-default-name))

;;;; Making one

(defun pyagentd-branch--create (request then)
  "Have the daemon make a branch as REQUEST says; call THEN with its plist.
If that comes too late, what was made goes to the trash."
  (pyagentd-later-asking
   'branch request then nil nil
   (lambda (made)
     (pyagentd-later 'delete (list :branch (plist-get made :branch)
                                   :what "branch")))))

;;;###autoload
(defun pyagentd-branch (&optional name side number)
  "Create a branch of this session at one of its prompts, and visit it.
It gets all of the conversation before that prompt, and the prompt itself
if you choose to include it, the configuration and the agents.  It
becomes the current branch; the one it comes from stays as it is.

From Lisp, NAME is its name, SIDE is `include' or `exclude', and NUMBER
counts the prompts from 1; what is nil is asked for.  Return at once; the
branch is visited when it is made."
  (interactive)
  (pcase-let ((`(,buffer ,position) (pyagentd-branch-here)))
    (with-current-buffer buffer
      (pyagentd-branch-with-points
       (lambda (points)
         (if points
             (pyagentd-branch--at
              (if number (pyagentd-branch-point points number position)
                (pyagentd-branch--read-point points position))
              (or side (pyagentd-branch--read-side))
              (or name (pyagentd-branch--read-name)))
           (message "No prompt to branch at yet")))))))

(defun pyagentd-branch--at (point side name)
  "Begin a branch called NAME at POINT, a prompt, which SIDE in- or excludes."
  (pyagentd-branch--create (pyagentd-branch-request point side name)
                           (lambda (made) (pyagentd-branch-visit made side))))

(defun pyagentd-branch-request (point side name)
  "Return the arguments for a branch called NAME at POINT of this session.
POINT is a prompt, which SIDE in- or excludes."
  (list :branch pyagentd--branch-dir
        :position (plist-get point :start)
        :exclude (eq side 'exclude)
        :name name))

(defun pyagentd-branch-visit (made side)
  "Visit the branch MADE, an answer of the daemon; return its buffer.
SIDE is how it was made."
  (let ((buffer (pyagentd-manage-visit made)))
    (with-current-buffer buffer
      (when (eq side 'exclude)
        (pyagentd-branch--offer-prompt))
      (goto-char (point-max))
      (message "Branch %s of %s" (plist-get made :branch-name)
               (plist-get made :parent)))
    buffer))

(defun pyagentd-branch--offer-prompt ()
  "Show where to type the next prompt; the file gets it with the first change."
  (save-excursion
    (goto-char (point-max))
    (unless (or buffer-read-only (bobp)
                (looking-back (regexp-quote pyagentd-prompt-prefix)
                              (line-beginning-position)))
      (let ((buffer-undo-list t))
        (with-silent-modifications
          (insert (if (bolp) "" "\n\n") pyagentd-prompt-prefix))))))

;;;; Going to another

(defun pyagentd-branch-lineage (branch)
  "Return in words where BRANCH, a plist, comes from."
  (if-let ((parent (plist-get branch :parent)))
      (concat parent (when-let ((position (plist-get branch :position)))
                       (format ", character %d" position)))
    ""))

(defun pyagentd-branch--read-branch (prompt branches default)
  "Read one of BRANCHES with PROMPT; DEFAULT is the name of one."
  (let* ((find (lambda (name)
                 (seq-find (lambda (branch)
                             (equal (plist-get branch :name) name))
                           branches)))
         (annotate (lambda (name)
                     (let ((branch (funcall find name)))
                       (concat
                        (and (plist-get branch :current) "  current")
                        (when (plist-get branch :parent)
                          (concat "  from " (pyagentd-branch-lineage branch)))
                        "  " (pyagentd-time (plist-get branch :created)))))))
    (funcall find (completing-read
                   (format-prompt prompt default)
                   (pyagentd-branch--table
                    (mapcar (lambda (branch) (plist-get branch :name)) branches)
                    'pyagentd-branch annotate)
                   nil t nil nil default))))

(defun pyagentd-branch--others (branches)
  "Return BRANCHES without the one of this buffer."
  (seq-remove (lambda (branch)
                (equal (plist-get branch :name) pyagentd--branch-name))
              branches))

;;;###autoload
(defun pyagentd-switch-branch (&optional branch)
  "Visit BRANCH of this session, a plist, and make it the current one.
The current one is what the session's id alone stands for.  Without
BRANCH it is asked for."
  (interactive)
  (if branch
      (pyagentd-later-asking 'switch (list :branch (plist-get branch :branch))
                             #'pyagentd-manage-visit)
    (pyagentd-manage-with-branches
     (pyagentd-here)
     (lambda (branches)
       (pyagentd-switch-branch
        (pyagentd-branch--read-other (pyagentd-branch--others branches)))))))

(defun pyagentd-branch--read-other (others)
  "Read one of OTHERS, the other branches of this session."
  (unless others
    (user-error "This session has only one branch; %s makes another"
                (substitute-command-keys "\\[pyagentd-branch]")))
  (pyagentd-branch--read-branch "Switch to branch" others
                                (plist-get (car others) :name)))

(provide 'pyagentd-branch)
;;; pyagentd-branch.el ends here

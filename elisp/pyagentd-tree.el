;;; pyagentd-tree.el --- Sessions, branches and agents in order -*- lexical-binding: t; -*-

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

;; Which lines a list of sessions has: pure functions from the rows that
;; the daemon tells to lines in their order.  A session is one line, that
;; of its current branch; below it stand its other branches and the agents
;; of each.  Sorting and filtering keep what belongs together together.
;;
;; A row is a plist with the keys of `pyagentd-here' and :preset, :state,
;; :created, :updated, :archived-at, :current, and what it cost itself:
;; :tokens, :usd as far as that is known and :unpriced where it is not.
;; `pyagentd-tree-spent' is that with the agents below.  A line is a list
;; (ROW STEM WHAT HIDDEN): STEM is what a tree draws before it, WHAT is
;; `session', `branch' or `agent', and HIDDEN counts the lines folded away
;; below it.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-here)
(require 'pyagentd-live)

;;;; Order

(defun pyagentd-tree--stamp (row)
  "Return when ROW was last changed, as a string that sorts."
  (let ((time (or (plist-get row :updated) (plist-get row :created) "")))
    (if (numberp time)
        (format-time-string "%FT%T" (seconds-to-time (/ time 1000.0)) t)
      (format "%s" time))))

(defun pyagentd-tree--state (row)
  "Return where the state of ROW sorts: first what waits for somebody."
  (or (seq-position '("waiting" "error" "busy" "retrying")
                    (format "%s" (plist-get row :state)))
      9))

(defun pyagentd-tree--key (column)
  "Return the function that says by what a row is sorted in COLUMN."
  (pcase-exhaustive column
    ("Title" (lambda (row) (downcase (pyagentd-title row))))
    ("State" #'pyagentd-tree--state)
    ("Preset" (lambda (row) (format "%s" (plist-get row :preset))))
    ("Tokens" (lambda (row) (- (nth 0 (pyagentd-tree-spent row)))))
    ("Cost" (lambda (row) (- (nth 1 (pyagentd-tree-spent row)))))
    ("Age" #'pyagentd-tree--stamp)))

(defun pyagentd-tree--sort (nodes column flip)
  "Return NODES sorted by COLUMN, backwards if FLIP; of equal ones newest first.
A node is a cons (ROW . NODES)."
  (let* ((sorted (lambda (nodes key less)
                   (mapcar #'cdr
                           (sort (mapcar (lambda (node)
                                           (cons (funcall key (car node)) node))
                                         nodes)
                                 (lambda (a b)
                                   (funcall less (car a) (car b)))))))
         (newest (funcall sorted nodes #'pyagentd-tree--stamp
                          (if (and flip (equal column "Age")) #'string<
                            #'string>)))
         (less (if (member column '("State" "Tokens" "Cost")) #'<
                 #'string<)))
    (if (equal column "Age")
        newest
      (funcall sorted newest (pyagentd-tree--key column)
               (if flip (lambda (a b) (funcall less b a)) less)))))

;;;; What belongs below what

;; A node is a cons (ROW . NODES), the nodes being those below it.  Rows
;; come in the daemon's order, which keeps a session together; names are
;; compared with the row before only, since hash tables of thousands of long
;; paths that are much alike take seconds.

(defun pyagentd-tree--session (nodes)
  "Return NODES, the branches of a session, as the one node that stands for it.
That is the current branch; the others come below it."
  (let ((head (or (seq-find (lambda (node) (plist-get (car node) :current))
                            nodes)
                  (seq-find (lambda (node)
                              (equal (plist-get (car node) :branch-name)
                                     "main"))
                            nodes)
                  (car nodes))))
    (setcdr head (append (cdr head) (remq head nodes)))
    head))

(defun pyagentd-tree--above (row open)
  "Return the part of OPEN whose first node is the one that ROW is below.
OPEN are the nodes from the latest one upwards; ROW is an agent's."
  (let ((parent (plist-get row :parent)))
    (while (and open (not (equal (plist-get (caar open) :branch-dir) parent)))
      (setq open (cdr open)))
    open))

(defun pyagentd-tree--forest (rows)
  "Return the nodes of the sessions in ROWS."
  (let (heads group open directory)
    (cl-flet ((close-group ()
                (when group
                  (push (pyagentd-tree--session (nreverse group)) heads)
                  (setq group nil))))
      (dolist (row rows)
        (let ((node (list row)))
          (cond ((not (plist-get row :agent))
                 (unless (equal (plist-get row :session-dir) directory)
                   (close-group)
                   (setq directory (plist-get row :session-dir)))
                 (push node group)
                 (setq open (list node)))
                ((setq open (pyagentd-tree--above row open))
                 (push node (cdar open))
                 (push node open))
                (t (push node heads)
                   (setq open (list node))))))
      (close-group))
    heads))

;;;; What it cost

(defun pyagentd-tree-spent (row)
  "Return what ROW cost with the agents below it: (TOKENS USD UNPRICED)."
  (or (plist-get row :spent)
      (list (or (plist-get row :tokens) 0) (or (plist-get row :usd) 0)
            (plist-get row :unpriced))))

(defun pyagentd-tree--add-up (node)
  "Note in the rows of NODE what each cost with the agents below it.
What other branches cost is theirs.  Return it for NODE."
  (let* ((row (car node))
         (tokens (or (plist-get row :tokens) 0))
         (usd (or (plist-get row :usd) 0))
         (unpriced (plist-get row :unpriced)))
    (dolist (child (cdr node))
      (let ((spent (pyagentd-tree--add-up child)))
        (when (plist-get (car child) :agent)
          (setq tokens (+ tokens (nth 0 spent))
                usd (+ usd (nth 1 spent))
                unpriced (or unpriced (nth 2 spent))))))
    (let ((spent (list tokens usd unpriced)))
      (plist-put row :spent spent)
      spent)))

(defun pyagentd-tree-add (rows row tokens usd)
  "Note that ROW, one of ROWS, cost TOKENS and USD more than was noted.
Return the rows that this concerns: ROW and those above it."
  (let (above)
    (while row
      (pcase-let ((`(,known-tokens ,known-usd ,unpriced)
                   (pyagentd-tree-spent row)))
        (plist-put row :spent (list (+ known-tokens tokens) (+ known-usd usd)
                                    (or unpriced (plist-get row :unpriced)))))
      (push row above)
      (setq row (and (plist-get row :agent)
                     (pyagentd-live-of (plist-get row :parent) rows))))
    above))

;;;; Lines

(defun pyagentd-tree--words (row)
  "Return the text of ROW that a filter looks at."
  (downcase (mapconcat (lambda (key)
                         (let ((value (plist-get row key)))
                           (if (stringp value) value (format "%s" (or value "")))))
                       '(:title :session-id :branch-name :preset :state)
                       " ")))

(defun pyagentd-tree--match-p (row words)
  "Return non-nil if ROW contains all WORDS, which are in lower case."
  (or (null words)
      (let ((text (pyagentd-tree--words row)))
        (seq-every-p (lambda (word) (string-search word text)) words))))

(defun pyagentd-tree-stem (above last)
  "Return the stem of a line below one with the stem ABOVE.
LAST says whether it is the last one there."
  (concat (string-replace "├" "│" (string-replace "└" " " above))
          (if last "└ " "├ ")))

(defun pyagentd-tree--nodes (node words)
  "Return NODE without those below it that do not match WORDS.
They are in the order in which they were made.  Return nil if nothing of
it matches."
  (let ((below (delq nil (mapcar (lambda (child)
                                   (pyagentd-tree--nodes child words))
                                 (and (cdr node)
                                      (pyagentd-tree--sort (cdr node)
                                                           "Age" t))))))
    (when (or below (pyagentd-tree--match-p (car node) words))
      (cons (car node) below))))

(defun pyagentd-tree--count (nodes)
  "Return how many nodes NODES are with those below them."
  (apply #'+ (length nodes)
         (mapcar (lambda (node) (pyagentd-tree--count (cdr node))) nodes)))

(defun pyagentd-tree--flatten (node stem folded)
  "Return the lines of NODE with STEM before it, and of those below it.
FOLDED is a list of branch directories that are folded."
  (pcase-let* ((`(,row . ,nodes) node)
               (hide (and nodes folded
                          (member (plist-get row :branch-dir) folded))))
    (cons (list row stem
                (cond ((plist-get row :agent) 'agent)
                      ((equal stem "") 'session)
                      (t 'branch))
                (if hide (pyagentd-tree--count nodes) 0))
          (unless hide
            (cl-loop for (child . more) on nodes
                     nconc (pyagentd-tree--flatten
                            child (pyagentd-tree-stem stem (null more))
                            folded))))))

(defun pyagentd-tree-lines (rows column flip filter folded)
  "Return the lines of a list of ROWS.
Sessions are sorted by COLUMN, backwards if FLIP.  FILTER is a string
whose words must all be in a line or below it; FOLDED is a list of branch
directories whose lines below are left out."
  (let ((words (split-string (downcase (or filter "")) nil t))
        (forest (pyagentd-tree--forest rows)))
    (mapc #'pyagentd-tree--add-up forest)
    (cl-loop for node in (pyagentd-tree--sort forest column flip)
             for shown = (pyagentd-tree--nodes node words)
             when shown nconc (pyagentd-tree--flatten shown "" folded))))

(provide 'pyagentd-tree)
;;; pyagentd-tree.el ends here

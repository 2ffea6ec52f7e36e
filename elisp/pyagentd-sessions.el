;;; pyagentd-sessions.el --- List, export and import sessions -*- lexical-binding: t; -*-

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

;; The sessions the daemon knows, with their branches and agents, newest
;; first.  Thousands of them are fetched without waiting, and as many lines
;; are shown as fit a few screens, with more on request; so the list is
;; there at once however many there are.

;; A row is a plist with the keys of `pyagentd-here' and :preset, :state,
;; :created, :updated, :archived-at, :current, and what it cost itself:
;; :tokens, :usd as far as that is known and :unpriced where it is not.  A
;; line is a list (ROW STEM WHAT HIDDEN): STEM is what a tree draws before
;; it, WHAT is `session', `branch' or `agent', and HIDDEN counts the lines
;; folded away below it.

;;; Code:

(require 'browse-url)
(require 'cl-lib)
(require 'seq)
(require 'subr-x)
(require 'tabulated-list)
(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-list)
(require 'pyagentd-session)
(autoload 'pyagentd-branches "pyagentd-views" nil t)
(autoload 'pyagentd-search "pyagentd-search" nil t)
(declare-function pyagentd--project-root "pyagentd")

;;;; Order

(defun pyagentd-sessions--tree-stamp (row)
  "Return when ROW was last changed, as a string that sorts."
  (let ((time (or (plist-get row :updated) (plist-get row :created) "")))
    (if (numberp time)
        (format-time-string "%FT%T" (seconds-to-time (/ time 1000.0)) t)
      (format "%s" time))))

(defun pyagentd-sessions--tree-state (row)
  "Return where the state of ROW sorts: first what waits for somebody."
  (or (seq-position '("waiting" "error" "busy" "retrying")
                    (format "%s" (plist-get row :state)))
      9))

(defun pyagentd-sessions--tree-key (column)
  "Return the function that says by what a row is sorted in COLUMN."
  (pcase-exhaustive column
    ("Title" (lambda (row) (downcase (pyagentd-title row))))
    ("State" #'pyagentd-sessions--tree-state)
    ("Preset" (lambda (row) (format "%s" (plist-get row :preset))))
    ("Tokens" (lambda (row) (- (nth 0 (pyagentd-sessions--tree-spent row)))))
    ("Cost" (lambda (row) (- (nth 1 (pyagentd-sessions--tree-spent row)))))
    ("Age" #'pyagentd-sessions--tree-stamp)))

(defun pyagentd-sessions--tree-sort (nodes column flip)
  "Return NODES sorted by COLUMN, backwards if FLIP; of equal ones newest first.
A node is a cons (ROW . NODES)."
  (let* ((sorted (lambda (nodes key less)
                   (mapcar #'cdr
                           (sort (mapcar (lambda (node)
                                           (cons (funcall key (car node)) node))
                                         nodes)
                                 (lambda (a b)
                                   (funcall less (car a) (car b)))))))
         (newest (funcall sorted nodes #'pyagentd-sessions--tree-stamp
                          (if (and flip (equal column "Age")) #'string<
                            #'string>)))
         (less (if (member column '("State" "Tokens" "Cost")) #'<
                 #'string<)))
    (if (equal column "Age")
        newest
      (funcall sorted newest (pyagentd-sessions--tree-key column)
               (if flip (lambda (a b) (funcall less b a)) less)))))

;;;; What belongs below what

;; A node is a cons (ROW . NODES), the nodes being those below it.  Rows
;; come in the daemon's order, which keeps a session together; names are
;; compared with the row before only, since hash tables of thousands of long
;; paths that are much alike take seconds.

(defun pyagentd-sessions--tree-session (nodes)
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

(defun pyagentd-sessions--tree-above (row open)
  "Return the part of OPEN whose first node is the one that ROW is below.
OPEN are the nodes from the latest one upwards; ROW is an agent's."
  (let ((parent (plist-get row :parent)))
    (while (and open (not (equal (plist-get (caar open) :branch-dir) parent)))
      (setq open (cdr open)))
    open))

(defun pyagentd-sessions--tree-forest (rows)
  "Return the nodes of the sessions in ROWS."
  (let (heads group open directory)
    (cl-flet ((close-group ()
                (when group
                  (push (pyagentd-sessions--tree-session (nreverse group)) heads)
                  (setq group nil))))
      (dolist (row rows)
        (let ((node (list row)))
          (cond ((not (plist-get row :agent))
                 (unless (equal (plist-get row :session-dir) directory)
                   (close-group)
                   (setq directory (plist-get row :session-dir)))
                 (push node group)
                 (setq open (list node)))
                ((setq open (pyagentd-sessions--tree-above row open))
                 (push node (cdar open))
                 (push node open))
                (t (push node heads)
                   (setq open (list node))))))
      (close-group))
    heads))

;;;; What it cost

(defun pyagentd-sessions--tree-spent (row)
  "Return what ROW cost with the agents below it: (TOKENS USD UNPRICED)."
  (or (plist-get row :spent)
      (list (or (plist-get row :tokens) 0) (or (plist-get row :usd) 0)
            (plist-get row :unpriced))))

(defun pyagentd-sessions--tree-add-up (node)
  "Note in the rows of NODE what each cost with the agents below it.
What other branches cost is theirs.  Return it for NODE."
  (let* ((row (car node))
         (tokens (or (plist-get row :tokens) 0))
         (usd (or (plist-get row :usd) 0))
         (unpriced (plist-get row :unpriced)))
    (dolist (child (cdr node))
      (let ((spent (pyagentd-sessions--tree-add-up child)))
        (when (plist-get (car child) :agent)
          (setq tokens (+ tokens (nth 0 spent))
                usd (+ usd (nth 1 spent))
                unpriced (or unpriced (nth 2 spent))))))
    (let ((spent (list tokens usd unpriced)))
      (plist-put row :spent spent)
      spent)))

(defun pyagentd-sessions--tree-add (rows row tokens usd)
  "Note that ROW, one of ROWS, cost TOKENS and USD more than was noted.
Return the rows that this concerns: ROW and those above it."
  (let (above)
    (while row
      (pcase-let ((`(,known-tokens ,known-usd ,unpriced)
                   (pyagentd-sessions--tree-spent row)))
        (plist-put row :spent (list (+ known-tokens tokens) (+ known-usd usd)
                                    (or unpriced (plist-get row :unpriced)))))
      (push row above)
      (setq row (and (plist-get row :agent)
                     (pyagentd-live-of (plist-get row :parent) rows))))
    above))

;;;; Lines

(defun pyagentd-sessions--tree-words (row)
  "Return the text of ROW that a filter looks at."
  (downcase (mapconcat (lambda (key)
                         (let ((value (plist-get row key)))
                           (if (stringp value) value (format "%s" (or value "")))))
                       '(:title :session-id :branch-name :preset :state)
                       " ")))

(defun pyagentd-sessions--tree-match-p (row words)
  "Return non-nil if ROW contains all WORDS, which are in lower case."
  (or (null words)
      (let ((text (pyagentd-sessions--tree-words row)))
        (seq-every-p (lambda (word) (string-search word text)) words))))

(defun pyagentd-sessions--tree-stem (above last)
  "Return the stem of a line below one with the stem ABOVE.
LAST says whether it is the last one there."
  (concat (string-replace "├" "│" (string-replace "└" " " above))
          (if last "└ " "├ ")))

(defun pyagentd-sessions--tree-nodes (node words)
  "Return NODE without those below it that do not match WORDS.
They are in the order in which they were made.  Return nil if nothing of
it matches."
  (let ((below (delq nil (mapcar (lambda (child)
                                   (pyagentd-sessions--tree-nodes child words))
                                 (and (cdr node)
                                      (pyagentd-sessions--tree-sort (cdr node)
                                                           "Age" t))))))
    (when (or below (pyagentd-sessions--tree-match-p (car node) words))
      (cons (car node) below))))

(defun pyagentd-sessions--tree-count (nodes)
  "Return how many nodes NODES are with those below them."
  (apply #'+ (length nodes)
         (mapcar (lambda (node) (pyagentd-sessions--tree-count (cdr node))) nodes)))

(defun pyagentd-sessions--tree-flatten (node stem folded)
  "Return the lines of NODE with STEM before it, and of those below it.
FOLDED is a list of branch directories that are folded."
  (pcase-let* ((`(,row . ,nodes) node)
               (hide (and nodes folded
                          (member (plist-get row :branch-dir) folded))))
    (cons (list row stem
                (cond ((plist-get row :agent) 'agent)
                      ((equal stem "") 'session)
                      (t 'branch))
                (if hide (pyagentd-sessions--tree-count nodes) 0))
          (unless hide
            (cl-loop for (child . more) on nodes
                     nconc (pyagentd-sessions--tree-flatten
                            child (pyagentd-sessions--tree-stem stem (null more))
                            folded))))))

(defun pyagentd-sessions--tree-lines (rows column flip filter folded)
  "Return the lines of a list of ROWS.
Sessions are sorted by COLUMN, backwards if FLIP.  FILTER is a string
whose words must all be in a line or below it; FOLDED is a list of branch
directories whose lines below are left out."
  (let ((words (split-string (downcase (or filter "")) nil t))
        (forest (pyagentd-sessions--tree-forest rows)))
    (mapc #'pyagentd-sessions--tree-add-up forest)
    (cl-loop for node in (pyagentd-sessions--tree-sort forest column flip)
             for shown = (pyagentd-sessions--tree-nodes node words)
             when shown nconc (pyagentd-sessions--tree-flatten shown "" folded))))

(defface pyagentd-agent-title '((t :inherit font-lock-type-face))
  "Face of the title of an agent."
  :group 'pyagentd)

(defvar-local pyagentd-sessions-rows-all nil
  "All rows the daemon told, see `pyagentd-sessions--tree-lines'.")
(defvar-local pyagentd-sessions-rows-limit nil
  "How many lines are shown at most.")
(defvar-local pyagentd-sessions-rows-filter nil
  "Words that a line must have, or nil.")
(defvar-local pyagentd-sessions-rows-folded nil
  "The branch directories that are folded.")
(defvar-local pyagentd-sessions-rows-loading nil
  "Non-nil while the rows are being fetched.")
(defvar-local pyagentd-sessions-rows-marks nil
  "Hash table: the mark of each branch that has one, a character.")
;;;; Columns

(defconst pyagentd-sessions-rows--columns
  [("Age" 5 pyagentd-sessions-rows--before :right-align t)
   ("State" 8 pyagentd-sessions-rows--before)
   ("Tokens" 6 pyagentd-sessions-rows--before :right-align t)
   ("Cost" 8 pyagentd-sessions-rows--before :right-align t)
   ("Preset" 21 pyagentd-sessions-rows--before)
   ("Id" 0 nil)]
  "Columns after the title.")

(defun pyagentd-sessions-rows-format ()
  "Return the columns, the title as wide as the window allows."
  (let ((width (- (window-width (get-buffer-window)) 2 6 9 7 9 22)))
    (vconcat
     (list (list "Title" (max 24 (min 64 (max (- width 24) (min width 30))))
                 'pyagentd-sessions-rows--before))
     pyagentd-sessions-rows--columns)))

(defun pyagentd-sessions-rows--before (a b)
  "Return non-nil if entry A stands before entry B.
The lines are in order already; sorting here would tear trees apart."
  (let ((before (< (aref (cadr a) 8) (aref (cadr b) 8))))
    (if (cdr tabulated-list-sort-key) (not before) before)))

(defconst pyagentd-sessions-rows--state-faces
  '(("busy" . success) ("retrying" . warning) ("waiting" . warning)
    ("error" . error))
  "Face of each state that is worth one.")

(defun pyagentd-sessions-rows--state (row)
  "Return the state of ROW as shown."
  (let ((state (format "%s" (or (plist-get row :state) ""))))
    (cond ((alist-get state pyagentd-sessions-rows--state-faces nil nil #'equal)
           (propertize state 'face
                       (alist-get state pyagentd-sessions-rows--state-faces
                                  nil nil #'equal)))
          ((plist-get row :archived-at) (propertize "archived" 'face 'shadow))
          (t (propertize state 'face 'shadow)))))

(defun pyagentd-sessions-rows--name (line)
  "Return what LINE, see `pyagentd-sessions--tree-lines', is called.
A session is followed by its current branch if that is not the first one."
  (pcase-let* ((`(,row ,stem ,what ,hidden) line)
               (branch (plist-get row :branch-name))
               (shadow (lambda (text) (propertize text 'face 'shadow))))
    (concat
     (funcall shadow stem)
     (if (eq what 'branch) (pyagentd-branch-label branch)
       (propertize (pyagentd-title-listed row)
                   'face (cond ((plist-get row :archived-at) 'shadow)
                               ((eq what 'agent) 'pyagentd-agent-title)
                               (t 'pyagentd-session-title))))
     (unless (or (not (eq what 'session)) (equal branch "main"))
       (funcall shadow (concat "  " branch)))
     (when (> hidden 0) (funcall shadow (format "  +%d" hidden))))))

(defun pyagentd-sessions-rows--tokens (row)
  "Return the tokens that ROW took, with the agents below it."
  (let ((tokens (nth 0 (pyagentd-sessions--tree-spent row))))
    (if (zerop tokens) "" (pyagentd-numbers-short tokens))))

(defun pyagentd-sessions-rows--cost (row)
  "Return what ROW cost with the agents below it."
  (pcase-let ((`(,tokens ,usd ,unpriced) (pyagentd-sessions--tree-spent row)))
    (cond ((zerop tokens) "")
          ((or unpriced (> usd 0)) (pyagentd-numbers-cost usd unpriced))
          (t (propertize (pyagentd-numbers-dollars 0) 'face 'shadow)))))

(defun pyagentd-sessions-rows--entry (line rank)
  "Return LINE, the one in place RANK, as an entry of the list.
After its columns an entry has LINE and RANK, which are not shown."
  (let* ((row (car line))
         (shadow (lambda (text)
                   (propertize (format "%s" (or text "")) 'face 'shadow))))
    (list (plist-get row :branch)
          (vector (pyagentd-sessions-rows--name line)
                  (pyagentd-age (or (plist-get row :updated)
                                    (plist-get row :created)))
                  (pyagentd-sessions-rows--state row)
                  (pyagentd-sessions-rows--tokens row)
                  (pyagentd-sessions-rows--cost row)
                  (funcall shadow (plist-get row :preset))
                  (funcall shadow (if (eq (nth 2 line) 'branch) ""
                                    (plist-get row :session-id)))
                  line rank))))

;;;; Printing

(defun pyagentd-sessions-rows-entries ()
  "Return the entries to show; a last one offers more."
  (let* ((lines (pyagentd-sessions--tree-lines
                 pyagentd-sessions-rows-all
                 (or (car tabulated-list-sort-key) "Age")
                 (cdr tabulated-list-sort-key)
                 pyagentd-sessions-rows-filter pyagentd-sessions-rows-folded))
         (left (- (length lines) pyagentd-sessions-rows-limit)))
    (append (seq-map-indexed #'pyagentd-sessions-rows--entry
                             (seq-take lines pyagentd-sessions-rows-limit))
            (when (> left 0)
              (list (list 'more (pyagentd-sessions-rows--more left)))))))

(defun pyagentd-sessions-rows--more (number)
  "Return the columns of the line that offers NUMBER more lines."
  (vector (list (format "%d more" number)
                'action (lambda (_) (pyagentd-sessions-more)))
          "" "" "" "" "" "" nil most-positive-fixnum))

(defun pyagentd-sessions-rows-print-entry (id columns)
  "Insert the entry ID with COLUMNS and its mark."
  (let ((start (point)) (mark (gethash id pyagentd-sessions-rows-marks)))
    (tabulated-list-print-entry id columns)
    (when mark
      (save-excursion
        (goto-char start)
        (pyagentd-sessions-rows-put-mark mark)))))

(defun pyagentd-sessions-rows-put-mark (mark)
  "Show MARK, a character or nil, at the start of this line."
  (tabulated-list-put-tag
   (if mark
       (propertize (string mark) 'face (pcase mark
                                         (?D 'pyagentd-removed)
                                         (_ 'warning)))
     " ")))

(defun pyagentd-sessions-rows-update (rows)
  "Show ROWS in the lines that they have, which stay where they are."
  (let ((inhibit-read-only t))
    (save-excursion
      (goto-char (point-min))
      (while (and rows (not (eobp)))
        (let* ((id (tabulated-list-get-id))
               (row (and (stringp id)
                         (seq-find (lambda (row)
                                     (equal id (plist-get row :branch)))
                                   rows))))
          (if (null row) (forward-line)
            (setq rows (remq row rows))
            (pyagentd-sessions-rows--replace row)))))))

(defun pyagentd-sessions-rows--replace (row)
  "Print the line at point anew, with ROW; point is behind it then."
  (let* ((old (tabulated-list-delete-entry))
         (columns (cadr old)))
    (apply #'pyagentd-sessions-rows-print-entry
           (pyagentd-sessions-rows--entry (cons row (cdr (aref columns 7)))
                                 (aref columns 8)))))

(defun pyagentd-sessions-rows--say-nothing ()
  "Say in a list without lines why it has none."
  (when (and (zerop (buffer-size)) (not pyagentd-sessions-rows-loading))
    (let ((inhibit-read-only t))
      (save-excursion
        (insert (if pyagentd-sessions-rows-all
                    "No matches; / with no words shows all sessions\n"
                  (substitute-command-keys
                   "No sessions; \\[pyagentd-session] makes one\n")))))))

(defun pyagentd-sessions-rows-print ()
  "Show the lines there are; point stays with its line, or near it."
  (let ((number (line-number-at-pos))
        (id (tabulated-list-get-id))
        ;; Thousands of rows make much garbage at once.
        (gc-cons-threshold (max gc-cons-threshold (* 64 1024 1024))))
    (setq tabulated-list-format (pyagentd-sessions-rows-format))
    (tabulated-list-init-header)
    (tabulated-list-print t)
    (pyagentd-sessions-rows--say-nothing)
    (pyagentd-table-show-keys)
    (unless (or (null id) (equal id (tabulated-list-get-id)))
      (goto-char (point-min))
      (forward-line (1- number)))))

(defun pyagentd-sessions-rows-line ()
  "Return the line at point, see `pyagentd-sessions--tree-lines', or nil."
  (when-let ((entry (tabulated-list-get-entry)))
    (aref entry 7)))

(defvar-local pyagentd-sessions--archived nil
  "Non-nil if archived sessions are shown too.")
(defvar-local pyagentd-sessions--latest 0
  "How many times the daemon was asked; only the latest answer counts.")
(defvar-local pyagentd-sessions--stale nil
  "Non-nil if sessions have changed since the list was printed.
`unknown' if nobody has told which.")
(defvar-local pyagentd-sessions--note nil
  "What the mode line says about the list, nil for nothing.")

;;;; Printing

(defun pyagentd-sessions--print ()
  "Show the rows there are and leave point where it was."
  (setq pyagentd-sessions--stale nil)
  (let ((start (float-time)))
    (if-let ((window (get-buffer-window)))
        (with-selected-window window (pyagentd-sessions-rows-print))
      (pyagentd-sessions-rows-print))
    (setq pyagentd-live-took (- (float-time) start)))
  (pyagentd-sessions--show-note))

(defun pyagentd-sessions--show-note ()
  "Show in the mode line what there is to say about the list."
  (setq mode-line-process
        (string-replace
         "%" "%%"
         (concat (and pyagentd-sessions--archived " archived")
                 (and pyagentd-sessions-rows-filter
                      (format " /%s" pyagentd-sessions-rows-filter))
                 (and pyagentd-sessions--note (concat " " pyagentd-sessions--note)))))
  (force-mode-line-update))

(defun pyagentd-sessions--say (note)
  "Show NOTE, or nil, in the mode line and print."
  (setq pyagentd-sessions--note note
        pyagentd-sessions-rows-loading (and note t))
  (pyagentd-sessions--print))

;;;; Fetching

(defconst pyagentd-sessions--slice 0.02
  "Seconds for which rows are read from a file before Emacs redisplays.")

(defun pyagentd-sessions--fetch ()
  "Ask the daemon for the sessions; they are shown when they come."
  (let ((buffer (current-buffer))
        (number (setq pyagentd-sessions--latest (1+ pyagentd-sessions--latest))))
    (pyagentd-later-here
     'sessions (list :archived pyagentd-sessions--archived :watch t)
     (lambda (answer)
       (if-let ((path (plist-get answer :path)))
           (pyagentd-sessions--read-file buffer number path)
         (pyagentd-sessions--show buffer number (plist-get answer :sessions))))
     (* 6 pyagentd-call-timeout)
     (lambda (err)
       (when (pyagentd-sessions--latest-p buffer number)
         (pyagentd-sessions--failed err))))))

(defun pyagentd-sessions--failed (err)
  "Say that ERR kept the sessions from this buffer; those there are stay."
  (pyagentd-sessions--say "failed")
  (pyagentd-later-tell err))

(defun pyagentd-sessions--latest-p (buffer number)
  "Return non-nil if BUFFER still waits for the answer to question NUMBER."
  (and (buffer-live-p buffer)
       (= number (buffer-local-value 'pyagentd-sessions--latest buffer))))

(defun pyagentd-sessions--show (buffer number rows)
  "Show ROWS in BUFFER, the answer to question NUMBER."
  (when (pyagentd-sessions--latest-p buffer number)
    (with-current-buffer buffer
      (setq pyagentd-sessions-rows-all rows)
      (pyagentd-sessions--say nil))))

(defun pyagentd-sessions--read-file (buffer number path)
  "Show the rows in the file PATH in BUFFER, the answer to question NUMBER.
It has the form (:sessions (ROW...)) and is read a slice at a time."
  (let ((text (generate-new-buffer " *pyagentd rows*")))
    (with-current-buffer text
      (buffer-disable-undo)
      (let ((coding-system-for-read 'utf-8-unix))
        (insert-file-contents path))
      (re-search-forward "(:sessions (" nil t))
    (pyagentd-sessions--read-slice buffer number text nil)))

(defun pyagentd-sessions--read-slice (buffer number text rows)
  "Read more rows from the buffer TEXT; show all in BUFFER when it is read.
ROWS are those read so far, latest first; NUMBER is that of the question."
  (let ((deadline (+ (float-time) pyagentd-sessions--slice))
        (gc-cons-threshold (max gc-cons-threshold (* 64 1024 1024)))
        done)
    (with-current-buffer text
      (while (not (or (setq done (progn (skip-chars-forward " \t\n")
                                        (memq (char-after) '(?\) nil))))
                      (> (float-time) deadline)))
        (push (read text) rows)))
    (if (not (or done (not (pyagentd-sessions--latest-p buffer number))))
        (run-at-time 0.001 nil #'pyagentd-sessions--read-slice
                     buffer number text rows)
      (kill-buffer text)
      (pyagentd-sessions--show buffer number (nreverse rows)))))

(defun pyagentd-sessions--revert (&rest _)
  "Fetch the sessions again."
  (pyagentd-sessions--say "loading…")
  (pyagentd-sessions--fetch))

(defconst pyagentd-sessions--patience 0.1
  "Seconds that printing may take where nobody has asked for it.")

(defun pyagentd-sessions--on-told (rows gone)
  "Take what ROWS and GONE say of branches into the list.
A long list is not printed for that: its lines change where they are."
  (when-let ((buffer (get-buffer "*pyagentd sessions*")))
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-sessions-mode)
        (cond ((< pyagentd-live-took pyagentd-sessions--patience)
               (pyagentd-sessions--take rows gone))
              ((not (pyagentd-sessions--change rows gone))
               (pyagentd-sessions--take rows gone)
               (setq pyagentd-sessions--note "changed; g refreshes")
               (pyagentd-sessions--show-note)))))))

(defun pyagentd-sessions--take (rows gone)
  "Take what ROWS and GONE say into a list that is printed soon.
A list that takes long to print is not: that is for the user to say."
  (setq pyagentd-sessions-rows-all
        (pyagentd-live-merge pyagentd-sessions-rows-all rows
                             (append gone (pyagentd-sessions--archived-in rows)))
        pyagentd-sessions--stale (or pyagentd-sessions--stale t))
  (when (and (< pyagentd-live-took pyagentd-sessions--patience)
             (pyagentd-live-shown-p (current-buffer)))
    (pyagentd-live-print-soon #'pyagentd-sessions--refresh)))

(defun pyagentd-sessions--change (rows gone)
  "Show what ROWS say in the lines there are.
Return nil if lines would have to come or go, as GONE may say."
  (unless (or gone (pyagentd-sessions--archived-in rows))
    (let ((before (mapcar
                   (lambda (new)
                     (let ((branch (plist-get new :branch)))
                       (cons branch (pyagentd-sessions--cost
                                     (pyagentd-live-of branch
                                                       pyagentd-sessions-rows-all)))))
                   rows))
          above)
      (dolist (row (pyagentd-live-change pyagentd-sessions-rows-all rows))
        (let ((more (seq-mapn #'- (pyagentd-sessions--cost row)
                              (cdr (assoc (plist-get row :branch) before)))))
          (push (apply #'pyagentd-sessions--tree-add pyagentd-sessions-rows-all row more) above)))
      (when above
        (pyagentd-sessions-rows-update (seq-uniq (apply #'append above) #'eq))
        t))))

(defun pyagentd-sessions--cost (row)
  "Return what ROW itself cost, tokens and dollars."
  (list (or (plist-get row :tokens) 0) (or (plist-get row :usd) 0)))

(defun pyagentd-sessions--archived-in (rows)
  "Return the branches of ROWS that are archived and not shown."
  (unless pyagentd-sessions--archived
    (mapcar (lambda (row) (plist-get row :branch))
            (seq-filter (lambda (row) (plist-get row :archived-at)) rows))))

(defun pyagentd-sessions--refresh (&rest _)
  "Print the list if it has changed since it was printed."
  (when (derived-mode-p 'pyagentd-sessions-mode)
    (pcase pyagentd-sessions--stale
      ('nil)
      ('unknown (pyagentd-sessions--fetch))
      (_ (pyagentd-sessions--print)))))

(add-hook 'pyagentd-live-functions #'pyagentd-sessions--on-told)

(defun pyagentd-sessions--on-change ()
  "Fetch the sessions again if their list is shown."
  (when-let ((buffer (get-buffer "*pyagentd sessions*")))
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-sessions-mode)
        (setq pyagentd-sessions--stale 'unknown)
        (when (get-buffer-window nil t)
          (pyagentd-sessions--fetch))))))

(defun pyagentd-sessions--on-disconnected ()
  "Say that nobody tells what happens."
  (when-let ((buffer (get-buffer "*pyagentd sessions*")))
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-sessions-mode)
        (pyagentd-sessions--say pyagentd-live-no-daemon)))))

(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-sessions--on-disconnected)

(add-hook 'pyagentd-changed-hook #'pyagentd-sessions--on-change)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-sessions--on-change)

;;;; Marks

(defun pyagentd-sessions-marks--set (mark)
  "Give the session at point MARK, a character or nil for none."
  (when-let ((line (pyagentd-sessions-rows-line)))
    (let ((branch (plist-get (car line) :branch)))
      (if mark
          (puthash branch mark pyagentd-sessions-rows-marks)
        (remhash branch pyagentd-sessions-rows-marks)))
    (pyagentd-sessions-rows-put-mark mark)))

(defun pyagentd-sessions-marks--each (mark)
  "Give MARK to the lines of the region or the one at point, and move on."
  (let ((end (if (use-region-p) (copy-marker (region-end)) nil)))
    (when end
      (goto-char (region-beginning))
      (deactivate-mark))
    (pyagentd-sessions-marks--set mark)
    (forward-line)
    (while (and end (< (point) end))
      (pyagentd-sessions-marks--set mark)
      (forward-line))))

(defun pyagentd-sessions-marks--flag (mark)
  "Give MARK to all lines with the mark *, else to those of the region."
  (if (member ?* (hash-table-values pyagentd-sessions-rows-marks))
      (save-excursion
        (goto-char (point-min))
        (while (not (eobp))
          (when (eql ?* (gethash (tabulated-list-get-id) pyagentd-sessions-rows-marks))
            (pyagentd-sessions-marks--set mark))
          (forward-line)))
    (pyagentd-sessions-marks--each mark)))

(defun pyagentd-sessions-mark ()
  "Mark the session at point, or those in the region.
The next flag is then for all that are marked."
  (interactive nil pyagentd-sessions-mode)
  (pyagentd-sessions-marks--each ?*))

(defun pyagentd-sessions-unmark ()
  "Take mark or flag from the session at point, or those in the region."
  (interactive nil pyagentd-sessions-mode)
  (pyagentd-sessions-marks--each nil))

(defun pyagentd-sessions-unmark-backward ()
  "Go up a line and take mark or flag from the session there."
  (interactive nil pyagentd-sessions-mode)
  (forward-line -1)
  (pyagentd-sessions-marks--set nil))

(defun pyagentd-sessions-unmark-all ()
  "Take all marks and flags away."
  (interactive nil pyagentd-sessions-mode)
  (clrhash pyagentd-sessions-rows-marks)
  (pyagentd-sessions-rows-print))

(defun pyagentd-sessions-flag-deletion ()
  "Flag for deletion what is marked, else the line at point or the region.
\\[pyagentd-sessions-execute] moves it to the trash."
  (interactive nil pyagentd-sessions-mode)
  (pyagentd-sessions-marks--flag ?D))

(defun pyagentd-sessions-flag-archive ()
  "Flag for the archive what is marked, else the line at point or the region.
\\[pyagentd-sessions-execute] archives it, and lists \
again what is archived."
  (interactive nil pyagentd-sessions-mode)
  (pyagentd-sessions-marks--flag ?A))

(defun pyagentd-sessions-marks--flagged (mark)
  "Return the lines with MARK in their order, without those below others."
  (let (lines directories)
    (save-excursion
      (goto-char (point-min))
      (while (not (eobp))
        (when (eql mark (gethash (tabulated-list-get-id) pyagentd-sessions-rows-marks))
          (push (pyagentd-sessions-rows-line) lines))
        (forward-line)))
    (seq-filter
     (lambda (line)
       (let ((directory (plist-get (car line)
                                   (if (eq (nth 2 line) 'session) :session-dir
                                     :branch-dir))))
         (unless (seq-some (lambda (above)
                             (string-prefix-p (file-name-as-directory above)
                                              directory))
                           directories)
           (push directory directories))))
     (nreverse lines))))

(defun pyagentd-sessions-marks--words (lines)
  "Return in words how many sessions, branches and agents LINES are."
  (string-join
   (delq nil (mapcar (lambda (what)
                       (let ((number (seq-count (lambda (line)
                                                  (eq (nth 2 line) what))
                                                lines)))
                         (when (> number 0)
                           (pyagentd-count number (symbol-name what)))))
                     '(session branch agent)))
   ", "))

(defun pyagentd-sessions-execute ()
  "Delete and archive what is flagged for it, after asking."
  (interactive nil pyagentd-sessions-mode)
  (let ((delete (pyagentd-sessions-marks--flagged ?D))
        (archive (pyagentd-sessions-marks--flagged ?A)))
    (unless (or delete archive)
      (user-error "Nothing flagged: d flags for deletion, a for archiving"))
    (when (yes-or-no-p
           (concat (and delete (format "Move %s to the trash"
                                       (pyagentd-sessions-marks--words delete)))
                   (and delete archive " and ")
                   (and archive (format "%s %s" (if delete "archive" "Archive")
                                        (pyagentd-sessions-marks--words archive)))
                   "? "))
      (pyagentd-sessions-marks--execute delete archive))))

(defun pyagentd-sessions-marks--delete (line then failure)
  "Move LINE to the trash and call THEN, or FAILURE with why not."
  (pyagentd-manage-trash (car line) (nth 2 line) then failure))

(defun pyagentd-sessions-marks--archive (line then failure)
  "Archive LINE, or list it again, and call THEN, or FAILURE with why not."
  (pyagentd-later
   'archive (list :branch (plist-get (car line) :branch)
                  :undo (and (plist-get (car line) :archived-at) t))
   then nil failure))

(defun pyagentd-sessions-marks--execute (delete archive)
  "Move the lines DELETE to the trash and archive the lines ARCHIVE.
A flag goes when its line is done.  After one that fails nothing is done."
  (let* ((marks pyagentd-sessions-rows-marks)
         (marked (hash-table-keys marks))
         (failure (lambda (err)
                    (run-hooks 'pyagentd-changed-hook)
                    (pyagentd-later-tell err))))
    (pyagentd-sessions-marks--do
     "Deleting..." #'pyagentd-sessions-marks--delete delete marks
     (lambda ()
       (pyagentd-sessions-marks--do
        "Archiving..." #'pyagentd-sessions-marks--archive archive marks
        (lambda ()
          (dolist (branch marked)       ; of what went with something else
            (remhash branch marks))
          (run-hooks 'pyagentd-changed-hook))
        failure))
     failure)))

(defun pyagentd-sessions-marks--do (words function lines marks then failure)
  "Do FUNCTION with LINES, one after the other, and call THEN.
FUNCTION is called with a line, what to call when it is done, and
FAILURE.  WORDS say how far it is; the flag of what is done goes from
MARKS."
  (let* ((number (length lines))
         (reporter (and lines (make-progress-reporter words 0 number))))
    (named-let next ((left lines))
      (if (null left)
          (progn (when reporter (progress-reporter-done reporter))
                 (funcall then))
        (progress-reporter-update reporter (- number (length left)))
        (funcall function (car left)
                 (lambda (_)
                   (remhash (plist-get (caar left) :branch) marks)
                   (next (cdr left)))
                 failure)))))

(defcustom pyagentd-sessions-lines 500
  "How many lines the list of sessions shows at first and adds on request."
  :type 'natnum
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

;;;; Point

(defun pyagentd-sessions--here ()
  "Return the session at point as `pyagentd-here' documents."
  (pcase (pyagentd-sessions-rows-line)
    (`(,row ,_depth ,what . ,_)
     (if (eq what 'session) row (append (list :what what) row)))))

(defun pyagentd-sessions-visit ()
  "Visit the session at point, or show more lines where there are more."
  (interactive nil pyagentd-sessions-mode)
  (if (eq (tabulated-list-get-id) 'more)
      (pyagentd-sessions-more)
    (pyagentd-here-visit (pyagentd-here))))

(defun pyagentd-sessions-visit-other-window ()
  "Visit the session at point in another window."
  (interactive nil pyagentd-sessions-mode)
  (pyagentd-here-visit (pyagentd-here) t))

(defun pyagentd-sessions-abort ()
  "Abort the run of the session at point."
  (interactive nil pyagentd-sessions-mode)
  (pyagentd-later-here
   'abort (list :branch (plist-get (pyagentd-here) :branch))
   (lambda (answer)
     (message (if (plist-get answer :aborted) "Aborted" "Nothing to abort"))
     (revert-buffer))))

;;;; What is shown

(defun pyagentd-sessions-more ()
  "Show more lines."
  (interactive nil pyagentd-sessions-mode)
  (setq pyagentd-sessions-rows-limit (+ pyagentd-sessions-rows-limit pyagentd-sessions-lines))
  (pyagentd-sessions--print))

(defun pyagentd-sessions-filter (filter)
  "Show only sessions in which all words of FILTER occur; nothing shows all.
Looked at are title, id, branch, preset and state."
  (interactive
   (list (read-string "Filter (words, empty for all): " pyagentd-sessions-rows-filter))
   pyagentd-sessions-mode)
  (setq pyagentd-sessions-rows-filter (unless (string-blank-p filter) filter)
        pyagentd-sessions-rows-limit pyagentd-sessions-lines)
  (pyagentd-sessions--print))

(defun pyagentd-sessions-toggle-archived ()
  "Include archived sessions, or leave them out again."
  (interactive nil pyagentd-sessions-mode)
  (setq pyagentd-sessions--archived (not pyagentd-sessions--archived))
  (revert-buffer))

(defun pyagentd-sessions-toggle-fold ()
  "Fold away what stands below the line at point, or unfold it."
  (interactive nil pyagentd-sessions-mode)
  (let ((directory (plist-get (pyagentd-here) :branch-dir)))
    (setq pyagentd-sessions-rows-folded
          (if (member directory pyagentd-sessions-rows-folded)
              (remove directory pyagentd-sessions-rows-folded)
            (cons directory pyagentd-sessions-rows-folded))))
  (pyagentd-sessions--print))

;;;; The mode

(defvar pyagentd-sessions-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-sessions-visit)
    (define-key map (kbd "o") #'pyagentd-sessions-visit-other-window)
    (define-key map (kbd "k") #'pyagentd-sessions-abort)
    (define-key map (kbd "TAB") #'pyagentd-sessions-toggle-fold)
    (define-key map (kbd "m") #'pyagentd-sessions-mark)
    (define-key map (kbd "u") #'pyagentd-sessions-unmark)
    (define-key map (kbd "DEL") #'pyagentd-sessions-unmark-backward)
    (define-key map (kbd "U") #'pyagentd-sessions-unmark-all)
    (define-key map (kbd "d") #'pyagentd-sessions-flag-deletion)
    (define-key map (kbd "a") #'pyagentd-sessions-flag-archive)
    (define-key map (kbd "x") #'pyagentd-sessions-execute)
    (define-key map (kbd "r") #'pyagentd-rename)
    (define-key map (kbd "D") #'pyagentd-duplicate)
    (define-key map (kbd "e") #'pyagentd-export)
    (define-key map (kbd "b") #'pyagentd-branches)
    (define-key map (kbd "s") #'pyagentd-search)
    (define-key map (kbd "/") #'pyagentd-sessions-filter)
    (define-key map (kbd "A") #'pyagentd-sessions-toggle-archived)
    (define-key map (kbd "+") #'pyagentd-sessions-more)
    map)
  "Keymap of `pyagentd-sessions-mode'.")

(define-derived-mode pyagentd-sessions-mode tabulated-list-mode "Sessions"
  "Major mode for the list of sessions, their branches and their agents.
A line without indentation is a session and its current branch; below it
stand its other branches and the agents.

\\{pyagentd-sessions-mode-map}"
  (setq tabulated-list-padding 2
        tabulated-list-sort-key '("Age" . nil)
        tabulated-list-format (pyagentd-sessions-rows-format)
        tabulated-list-entries #'pyagentd-sessions-rows-entries
        tabulated-list-printer #'pyagentd-sessions-rows-print-entry
        pyagentd-sessions-rows-limit pyagentd-sessions-lines
        pyagentd-table-help '(("RET" "open") ("m" "mark") ("d" "delete")
                              ("a" "archive") ("x" "execute") ("r" "rename")
                              ("k" "abort") ("/" "filter") ("?" "all keys"))
        pyagentd-sessions-rows-marks (make-hash-table :test #'equal)
        pyagentd-here-function #'pyagentd-sessions--here
        pyagentd-live t)
  (setq-local revert-buffer-function #'pyagentd-sessions--revert)
  (add-hook 'window-buffer-change-functions #'pyagentd-sessions--refresh nil t)
  (pyagentd-live-listing)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-sessions ()
  "List the sessions with their branches and agents."
  (interactive)
  (pop-to-buffer-same-window (get-buffer-create "*pyagentd sessions*"))
  (unless (derived-mode-p 'pyagentd-sessions-mode)
    (pyagentd-sessions-mode))
  (revert-buffer))

;;;; Export and import

;; A conversation can leave as a file, and a saved gptel chat can come in.

(defconst pyagentd-exchange--formats
  '(("md" . "Markdown, as in the buffer")
    ("html" . "a page for the browser, in one file")
    ("json" . "all messages with their parts")
    ("jsonl" . "the same, one row a line"))
  "Formats of export with their descriptions.")

(defvar pyagentd-exchange--export-directory "~/"
  "Directory of the latest export.")

(defun pyagentd-exchange--read-format ()
  "Read the format of an export."
  (let ((completion-extra-properties
         (list :annotation-function
               (lambda (name)
                 (concat "  " (cdr (assoc name pyagentd-exchange--formats)))))))
    (completing-read (format-prompt "Format" "md")
                     (mapcar #'car pyagentd-exchange--formats)
                     nil t nil nil "md")))

(defun pyagentd-exchange--export-name (session format)
  "Return the name proposed for the export of SESSION in FORMAT."
  (let ((branch (plist-get session :branch-name)))
    (concat (plist-get session :session-id)
            (unless (member branch '(nil "main")) (concat "-" branch))
            "." format)))

(defun pyagentd-exchange--read-export ()
  "Read the arguments of an export of the session here."
  (let* ((here (pyagentd-here))
         (format (pyagentd-exchange--read-format))
         (name (pyagentd-exchange--export-name here format))
         (file (read-file-name "Export to: " pyagentd-exchange--export-directory
                               nil nil name)))
    (when (file-directory-p file)
      (setq file (expand-file-name name file)))
    (when (and (file-exists-p file)
               (not (y-or-n-p (format "%s exists; overwrite? " file))))
      (user-error "Not exported"))
    (list format file)))

(defun pyagentd-export (format file)
  "Write the conversation here to FILE in FORMAT and return the file's name.
FORMAT is \"md\", \"html\", \"json\" or \"jsonl\".  It is written
when this has returned; a page is shown in the browser then if you wish."
  (interactive (pyagentd-exchange--read-export))
  (when (file-remote-p file)
    (user-error "Only local files can be written"))
  (let ((here (pyagentd-here))
        (file (expand-file-name file))
        (show (and (called-interactively-p 'any) (equal format "html"))))
    (pyagentd-here-save here)
    (pyagentd-later-asking
     'export (list :branch (plist-get here :branch) :format format :file file)
     (lambda (answer)
       (pyagentd-exchange--exported file (plist-get answer :notes) show))
     (* 3 pyagentd-call-timeout))
    file))

(defun pyagentd-exchange--exported (file notes show)
  "Say that FILE is written, with NOTES; ask whether to show it if SHOW."
  (setq pyagentd-exchange--export-directory (file-name-directory file))
  (if (and show
           (y-or-n-p (format "Wrote %s; open it in the browser? " file)))
      (browse-url-of-file file)
    (message "%s" (pyagentd-exchange--told (concat "Wrote " file) notes))))

(defun pyagentd-exchange--told (what notes)
  "Return the sentence WHAT with NOTES, strings, on lines of their own."
  (string-join (cons what notes) "\n"))

(defun pyagentd-exchange--read-import ()
  "Read the arguments of an import."
  (let* ((file (read-file-name (format-prompt "Import chat" buffer-file-name)
                               nil buffer-file-name t nil))
         (buffer (find-buffer-visiting file)))
    (when (file-directory-p file)
      (user-error "%s is a directory" file))
    (when (and buffer (buffer-modified-p buffer)
               (y-or-n-p (format "Save %s first? " file)))
      (with-current-buffer buffer (save-buffer)))
    (list file (read-string "Session name: " (file-name-base file)))))

;;;###autoload
(defun pyagentd-import (file &optional name)
  "Create a session called NAME from FILE, a saved gptel chat; visit it.
FILE itself is not changed.  What could not be imported is reported.  The
agent of the session may read and write the project around
`default-directory', as with `pyagentd-session'."
  (interactive (pyagentd-exchange--read-import))
  (when (file-remote-p file)
    (user-error "Only local files can be imported"))
  (pyagentd-later-asking
   'import (list :file (expand-file-name file) :name name
                 :root (pyagentd--project-root))
   #'pyagentd-exchange--imported (* 3 pyagentd-call-timeout) nil
   #'pyagentd-manage-late))

(defun pyagentd-exchange--imported (session)
  "Visit SESSION, which was made of a chat, and say what it lacks."
  (pyagentd-manage-visit session)
  (goto-char (point-max))
  (message "%s" (pyagentd-exchange--told
                 (concat "Imported as " (plist-get session :session-id))
                 (plist-get session :notes))))

(provide 'pyagentd-sessions)
;;; pyagentd-sessions.el ends here

;;; pyagentd-search.el --- Search in all conversations -*- lexical-binding: t; -*-

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

;; Searches the index of all sessions, and shows what was found.

;;; Code:

(require 'seq)
(require 'pulse)
(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-here)
(require 'pyagentd-session)
(require 'pyagentd-list)


;;;; The index of search

;; The daemon keeps the index up to date by itself; it is made anew only
;; when something seems to be missing.

(defvar pyagentd-index--reporter nil
  "Progress reporter of the `reindex' in progress, nil if there is none.")

(defun pyagentd-reindex ()
  "Rebuild the search index of all sessions.
Emacs stays usable; the echo area shows the progress."
  (pyagentd-start #'pyagentd-index--begin))

(defun pyagentd-index--begin ()
  "Have the daemon, which runs, read all sessions anew."
  (setq pyagentd-index--reporter
        (make-progress-reporter "Indexing sessions..." 0 100))
  (pyagentd-rpc-call-async
   'reindex nil
   :success (lambda (answer)
              (setq pyagentd-index--reporter nil)
              (message "Indexed %s in %s, %.1f s"
                       (pyagentd-count (plist-get answer :messages)
                                               "message")
                       (pyagentd-count (plist-get answer :branches)
                                               "branch")
                       (plist-get answer :seconds)))
   :error (lambda (err)
            (setq pyagentd-index--reporter nil)
            (message "%s" (pyagentd-error-text err)))))

(defun pyagentd-index--on-progress (_branch _seq args)
  "Show how far a long operation is, as ARGS say."
  (pcase-let ((`(,progress) args))
    (let ((total (or (plist-get progress :total) 0)))
      (when (and pyagentd-index--reporter (> total 0))
        (progress-reporter-update
         pyagentd-index--reporter
         (min 100 (/ (* 100 (plist-get progress :done)) total)))))))

(pyagentd-events-register 'progress #'pyagentd-index--on-progress)

;;;; Show a message that was found

;; From what a search found to the place in the conversation: the daemon
;; says where the message stands in the saved document.  If that has moved
;; on since, the text of the preview is looked for.
;;
;; A hit is a plist as the daemon's search returns it; used here are
;; :branch, :file, :message-id and :part-id (nil for text that only the
;; document has), :preview, and :matches, a list of (BEG END) that counts
;; from 0 within the preview.  :query is what was searched for.

;;;; Where

(defconst pyagentd-found--patience 1
  "Seconds the daemon has to say where a message is.
After that only its text is looked for.")

(defun pyagentd-found--regexp (text)
  "Return a regular expression for TEXT in which all whitespace is equal."
  (mapconcat #'regexp-quote (split-string text "[ \t\n]+" t) "[ \t\n]+"))

(defun pyagentd-found--fragment (hit)
  "Return (TEXT . MATCH) of HIT: what to look for and what matched in it.
TEXT is the part of the preview between two ellipses where the first match
is; MATCH is nil if nothing is marked."
  (let* ((preview (plist-get hit :preview))
         (span (car (plist-get hit :matches)))
         (at (or (car span) 0))
         (start (let ((before (seq-position (reverse (substring preview 0 at))
                                            ?…)))
                  (if before (- at before) 0)))
         (end (or (string-search "…" preview at) (length preview))))
    (cons (substring preview start end)
          (and span (substring preview at (min (cadr span) (length preview)))))))

(defun pyagentd-found--search (hit beg end)
  "Return (BEG . END) of what HIT matched between BEG and END, or nil."
  (pcase-let ((`(,text . ,match) (pyagentd-found--fragment hit))
              (case-fold-search t))
    (goto-char beg)
    (cond ((and (not (string-blank-p text))
                (re-search-forward (pyagentd-found--regexp text) end t))
           (let ((whole (cons (match-beginning 0) (match-end 0))))
             (goto-char (car whole))
             (if (and match (search-forward match (cdr whole) t))
                 (cons (match-beginning 0) (match-end 0))
               whole)))
          ((and match (search-forward match end t))
           (cons (match-beginning 0) (match-end 0))))))

(defun pyagentd-found--question (hit)
  "Return what to tell the daemon to learn where the message of HIT is."
  (append (list :branch (plist-get hit :branch))
          (if-let ((message (plist-get hit :message-id)))
              (list :message message :part (plist-get hit :part-id))
            (list :query (plist-get hit :query)))))

(defun pyagentd-found--locate (hit then)
  "Call THEN with (BEG END) of the message of HIT in its saved document.
That is nil if it is not there, or if the daemon does not say so soon.
THEN is called later, in this buffer."
  (if (not (pyagentd-rpc-connect))
      (pyagentd-later-soon (lambda () (funcall then nil)))
    (pyagentd-later-here
     'locate (pyagentd-found--question hit)
     (lambda (place)
       (let ((position (plist-get place :position)))
         (funcall then (and position
                            (list position
                                  (or (plist-get place :end) position))))))
     pyagentd-found--patience
     (lambda (_) (funcall then nil)))))

(defun pyagentd-found--place (hit range)
  "Return (BEG . END) of what HIT matched in the current buffer, or nil.
RANGE is (BEG END) of its message in the saved document, or nil."
  (save-excursion
    (pcase-let ((`(,beg ,end) range))
      (or (and beg (<= beg (point-max))
               (pyagentd-found--search hit beg (min end (point-max))))
          (pyagentd-found--search hit (point-min) (point-max))
          (and beg (let ((start (min beg (point-max))))
                     (cons start (save-excursion (goto-char start)
                                                 (line-end-position)))))))))

;;;; Showing

(defun pyagentd-found--show (place)
  "Move to PLACE, a cons (BEG . END), in the selected window."
  (goto-char (car place))
  (recenter (/ (window-height) 3)))

(defun pyagentd-found-goto (hit buffer)
  "Move to the message of HIT in BUFFER, which the selected window shows.
That is done when the daemon has said where it is, unless the user has
moved in the meantime.  Return BUFFER."
  (with-current-buffer buffer
    (widen)
    (let ((window (selected-window))
          (start (copy-marker (point)))
          (keys num-input-keys))
      (pyagentd-found--locate
       hit
       (lambda (range)
         (when (and (eq (window-buffer window) (current-buffer))
                    (or (= keys num-input-keys)
                        (= start (window-point window))))
           (with-selected-window window
             (pyagentd-found--arrive (pyagentd-found--place hit range))))))))
  buffer)

(defun pyagentd-found--arrive (place)
  "Move to PLACE, a cons (BEG . END) or nil, and show what is there."
  (if (not place)
      (message "The message is no longer in the text")
    (push-mark nil t)
    (pyagentd-found--show place)
    (unless noninteractive
      (pulse-momentary-highlight-region (car place) (cdr place)))))

(defconst pyagentd-found--glance 50000
  "Characters of text up to which a preview is shown as Markdown.
A mode for Markdown takes seconds to be turned on in a long text.")

(defvar-local pyagentd-found--previewed nil
  "The file shown in this buffer and its modification time.")

(defun pyagentd-found--preview-buffer (file)
  "Return a buffer with the text of FILE that is no session buffer."
  (let ((stamp (list file (file-attribute-modification-time
                           (or (file-attributes file)
                               (user-error "%s is gone" file))))))
    (with-current-buffer (get-buffer-create "*pyagentd preview*")
      (unless (equal stamp pyagentd-found--previewed)
        (let ((inhibit-read-only t) (coding-system-for-read 'utf-8-unix))
          (erase-buffer)
          (insert-file-contents file)
          (pyagentd-block-strip)
          (delay-mode-hooks
            (funcall (or (and (< (buffer-size) pyagentd-found--glance)
                              (assoc-default "a.md" auto-mode-alist
                                             #'string-match))
                         #'text-mode)))
          (font-lock-mode)
          (visual-line-mode))
        (setq buffer-read-only t
              pyagentd-found--previewed stamp))
      (current-buffer))))

(defvar pyagentd-found--overlay nil
  "Overlay on what matched in the message shown last.")

(defun pyagentd-found--highlight (place)
  "Highlight PLACE, a cons (BEG . END), in the current buffer until the next."
  (unless pyagentd-found--overlay
    (setq pyagentd-found--overlay (make-overlay 1 1))
    (overlay-put pyagentd-found--overlay 'face 'next-error))
  (move-overlay pyagentd-found--overlay (car place) (cdr place)
                (current-buffer)))

(defvar pyagentd-found--wanted nil
  "The hit that was to be shown last.")

(defun pyagentd-found-preview (hit)
  "Show the message of HIT in another window without opening its session.
If the session is open, its buffer is shown.  That is done when the daemon
has said where the message is, unless the user has moved on by then."
  (let ((window (selected-window)))
    (setq pyagentd-found--wanted hit)
    (with-current-buffer
        (or (find-buffer-visiting (plist-get hit :file))
            (pyagentd-found--preview-buffer (plist-get hit :file)))
      (pyagentd-found--locate
       hit
       (lambda (range)
         (when (and (eq hit pyagentd-found--wanted)
                    (eq window (selected-window)))
           (pyagentd-found--display
            (save-restriction (widen) (pyagentd-found--place hit range)))))))))

(defun pyagentd-found--display (place)
  "Show PLACE, a cons (BEG . END) or nil, of this buffer in another window."
  (let ((window (display-buffer (current-buffer)
                                '(nil (inhibit-same-window . t)))))
    (if (not place)
        (message "The message is no longer in the text")
      (with-selected-window window
        (unless (<= (point-min) (car place) (cdr place) (point-max)) (widen))
        (pyagentd-found--highlight place)
        (pyagentd-found--show place)))))

(defun pyagentd-found-forget ()
  "Highlight nothing any more."
  (when pyagentd-found--overlay
    (delete-overlay pyagentd-found--overlay)))

;;;; Search in all conversations

;; `pyagentd-search' asks the daemon, which has an index of every message
;; of every session and agent, and lists what it finds by session.  From
;; there a key leads to the message in its conversation.  Moving along the
;; list previews the messages without opening their sessions.

(autoload 'pyagentd-branches "pyagentd-views" nil t)

(defcustom pyagentd-search-limit 50
  "How many results a search shows at first and adds on request."
  :type 'natnum
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-search-follow t
  "Non-nil means show the message at point in another window."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defface pyagentd-match '((t :inherit match))
  "Face of matches in search results."
  :group 'pyagentd)

(defvar pyagentd-search-history nil
  "What was searched for.")

(defvar-local pyagentd-search--query nil
  "What this buffer shows the matches of.")
(defvar-local pyagentd-search--archived nil
  "Non-nil if archived sessions are searched too.")
(defvar-local pyagentd-search--limit nil
  "How many messages this buffer shows at most.")
(defvar-local pyagentd-search--hits nil
  "What was found, a list of plists, best first.")
(defvar-local pyagentd-search--problem nil
  "Why not everything may have been found, nil if it was.")
(defvar-local pyagentd-search--more nil
  "Non-nil if there are more messages than are shown.")
(defvar-local pyagentd-search--latest 0
  "How many times the daemon was asked; only the latest answer counts.")

;;;; The list

(defun pyagentd-search--who (hit)
  "Return in a word who said the message of HIT."
  (let ((kind (format "%s" (or (plist-get hit :kind) ""))))
    (cond ((equal kind "tool") "Tool")
          ((member kind '("reasoning" "title")) (capitalize kind))
          ((equal (format "%s" (plist-get hit :role)) "user") "You")
          (t "Model"))))

(defun pyagentd-search--preview (hit)
  "Return the preview of HIT on one line, what matched highlighted."
  (let ((text (replace-regexp-in-string "[\t\n]" " " (plist-get hit :preview))))
    (pcase-dolist (`(,beg ,end) (plist-get hit :matches))
      (when (<= 0 beg end (length text))
        (put-text-property beg end 'face 'pyagentd-match text)))
    text))

(defun pyagentd-search--insert-hit (hit)
  "Insert HIT as a line."
  (let ((start (point)) (copies (or (plist-get hit :copies) 0)))
    (insert "  " (propertize (format "%-10s" (truncate-string-to-width
                                              (pyagentd-search--who hit)
                                              10 nil nil "…"))
                             'face 'shadow)
            " " (pyagentd-search--preview hit))
    (when (> copies 0)
      (insert (propertize (format "  (also in %s)"
                                  (pyagentd-count copies "branch"))
                          'face 'shadow)))
    (insert "\n")
    (add-text-properties start (point)
                         (list 'pyagentd-hit hit
                               'wrap-prefix (make-string 13 ?\s)
                               'mouse-face 'highlight
                               'help-echo "mouse-2: visit this message"))))

(defun pyagentd-search--groups (hits)
  "Return HITS as a list of lists, one for each branch, in their order."
  (let (groups)
    (dolist (hit hits)
      (if-let ((group (assoc (plist-get hit :branch) groups)))
          (push hit (cdr group))
        (push (list (plist-get hit :branch) hit) groups)))
    (mapcar (lambda (group) (reverse (cdr group))) (nreverse groups))))

(defun pyagentd-search--without-titles (hits)
  "Return HITS without titles of branches of which there are other hits."
  (let ((title-p (lambda (hit)
                   (equal (format "%s" (plist-get hit :kind)) "title"))))
    (seq-remove
     (lambda (hit)
       (and (funcall title-p hit)
            (seq-some (lambda (other)
                        (and (not (funcall title-p other))
                             (equal (plist-get other :branch)
                                    (plist-get hit :branch))))
                      hits)))
     hits)))

(defun pyagentd-search--insert-group (hits)
  "Insert HITS, all of one branch, below a line that names it."
  (let* ((first (car hits))
         (branch (plist-get first :branch-name)))
    (insert (propertize (pyagentd-title first) 'face 'pyagentd-session-title)
            (propertize
             (concat (cond ((plist-get first :agent) "  agent")
                           ((member branch '(nil "main")) "")
                           (t (concat "  " branch)))
                     "  " (pyagentd-time (plist-get first :created-at)))
             'face 'shadow)
            "\n")
    (mapc #'pyagentd-search--insert-hit hits)
    (insert "\n")))

(defun pyagentd-search--print ()
  "Show what was found."
  (let ((inhibit-read-only t))
    (erase-buffer)
    (mapc #'pyagentd-search--insert-group
          (pyagentd-search--groups pyagentd-search--hits))
    (cond ((null pyagentd-search--hits)
           (insert "No matches."
                   (if pyagentd-search--archived ""
                     (substitute-command-keys "  \\<pyagentd-search-mode-map>\
\\[pyagentd-search-toggle-archived] includes archived sessions."))
                   "\n"))
          (pyagentd-search--more
           (insert-text-button "More messages" 'follow-link t
                               'action (lambda (_) (pyagentd-search-more)))
           (insert "\n")))
    (pyagentd-table-show-keys)
    (goto-char (point-min))))

(defun pyagentd-search--header (&optional note)
  "Return the header line, with NOTE in place of what was found."
  (concat " " (propertize (or pyagentd-search--query "") 'face 'bold)
          (propertize
           (concat "  "
                   (or note
                       (concat (and pyagentd-search--more "first ")
                               (pyagentd-count (length pyagentd-search--hits)
                                               "message")))
                   (and pyagentd-search--archived "  archived too"))
           'face 'shadow)
          (if (and pyagentd-search--problem (not note))
              (propertize (concat "  " pyagentd-search--problem)
                          'face 'warning)
            "")))

(defun pyagentd-search--say (&optional note)
  "Show what was found, or NOTE, in the header line."
  (setq header-line-format
        (string-replace "%" "%%" (pyagentd-search--header note))))

;;;; Searching

(defun pyagentd-search--run (then)
  "Ask the daemon; show its answer when it comes, and call THEN."
  (let ((number (setq pyagentd-search--latest (1+ pyagentd-search--latest))))
    (pyagentd-search--say "searching…")
    (pyagentd-later-here
     'search (list :query pyagentd-search--query
                   :limit pyagentd-search--limit
                   :archived pyagentd-search--archived)
     (lambda (answer)
       (when (= number pyagentd-search--latest)
         (pyagentd-search--receive answer)
         (pyagentd-search--in-window then)))
     nil
     (lambda (err)
       (when (= number pyagentd-search--latest)
         (pyagentd-search--failed err))))))

(defun pyagentd-search--failed (err)
  "Say that ERR kept the messages from this buffer; those there are stay."
  (pyagentd-search--say "failed")
  (when (= (buffer-size) 0)
    (let ((inhibit-read-only t))
      (insert (pyagentd-error-text err) "\n")))
  (pyagentd-later-tell err))

(defun pyagentd-search--receive (answer)
  "Note what the daemon has found, its ANSWER."
  (setq pyagentd-search--hits
        (mapcar (lambda (hit) (append (list :query pyagentd-search--query) hit))
                (pyagentd-search--without-titles (plist-get answer :hits)))
        pyagentd-search--more (plist-get answer :more)
        pyagentd-search--problem
        (or (plist-get answer :problem)
            (and (plist-get answer :indexing)
                 "indexing is not finished; g searches again")))
  (pyagentd-search--say))

(defun pyagentd-search--in-window (function)
  "Call FUNCTION, which moves point, in the window of this buffer, if any."
  (if-let ((window (get-buffer-window nil t)))
      (with-selected-window window (funcall function))
    (funcall function)))

(defun pyagentd-search--read ()
  "Read what to search for."
  (let ((default (if (use-region-p)
                     (buffer-substring-no-properties (region-beginning)
                                                     (region-end))
                   (thing-at-point 'word t))))
    (read-string (format-prompt "Search sessions" default)
                 nil 'pyagentd-search-history default t)))

;;;###autoload
(defun pyagentd-search (query)
  "Search all sessions and agents for QUERY and list the matches.
All words are wanted, the last one may be the beginning of one; \"…\" is
a phrase, and a word with - before it must not occur.  The keys of the
list are those of `pyagentd-search-mode'."
  (interactive (list (pyagentd-search--read)))
  (when (string-blank-p query)
    (user-error "The query is empty"))
  (let ((buffer (get-buffer-create "*pyagentd search*")))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-search-mode)
        (pyagentd-search-mode))
      (setq pyagentd-search--query query
            pyagentd-search--limit pyagentd-search-limit)
      (let ((inhibit-read-only t)) (erase-buffer))
      (pyagentd-search--run (lambda ()
                              (pyagentd-search--print)
                              (pyagentd-search--step 1))))
    (setq next-error-last-buffer buffer)
    (pop-to-buffer buffer)))

(defun pyagentd-search--revert (&rest _)
  "Search again, and stay at the same place."
  (pyagentd-search--run (lambda ()
                          (let ((line (line-number-at-pos)))
                            (pyagentd-search--print)
                            (forward-line (1- line))))))

(defun pyagentd-search-more ()
  "Show more results."
  (interactive nil pyagentd-search-mode)
  (unless pyagentd-search--more
    (user-error "No more results"))
  (setq pyagentd-search--limit (+ pyagentd-search--limit pyagentd-search-limit))
  (revert-buffer))

(defun pyagentd-search-toggle-archived ()
  "Include archived sessions, or leave them out again."
  (interactive nil pyagentd-search-mode)
  (setq pyagentd-search--archived (not pyagentd-search--archived))
  (revert-buffer)
  (message (if pyagentd-search--archived "Archived sessions included"
             "Archived sessions left out")))

;;;; Moving

(defun pyagentd-search--hit ()
  "Return the hit at point, or nil."
  (get-text-property (line-beginning-position) 'pyagentd-hit))

(defun pyagentd-search--here ()
  "Return the hit at point as a session, see `pyagentd-here'.
On the line that names a session it is that one's first."
  (or (pyagentd-search--hit)
      (save-excursion (forward-line) (pyagentd-search--hit))))

(defun pyagentd-search--step (count)
  "Move COUNT hits forward, or back if it is negative; nil if there is none."
  (let ((start (point)) (step (if (< count 0) -1 1)) (left (abs count)))
    (beginning-of-line)
    (while (and (> left 0) (zerop (forward-line step))
                (or (not (eobp)) (< step 0)))
      (when (pyagentd-search--hit)
        (setq left (1- left))))
    (or (and (zerop left) (pyagentd-search--hit))
        (progn (goto-char start) nil))))

(defun pyagentd-search-next (count)
  "Move COUNT messages forward and show that one, see `pyagentd-search-follow'."
  (interactive "p" pyagentd-search-mode)
  (let ((hit (or (pyagentd-search--step count)
                 (user-error "No more messages"))))
    (when pyagentd-search-follow
      (pyagentd-found-preview hit))))

(defun pyagentd-search-previous (count)
  "Move COUNT messages back and show that one, see `pyagentd-search-follow'."
  (interactive "p" pyagentd-search-mode)
  (pyagentd-search-next (- count)))

(defun pyagentd-search-toggle-follow ()
  "Show each message while moving along the list, or no longer."
  (interactive nil pyagentd-search-mode)
  (setq-local pyagentd-search-follow (not pyagentd-search-follow))
  (message (if pyagentd-search-follow "Messages are shown as you move"
             "Messages are not shown as you move")))

(defun pyagentd-search--at-point ()
  "Return the hit at point or signal a `user-error'."
  (or (pyagentd-search--here) (user-error "No message here")))

(defun pyagentd-search-visit (&optional event)
  "Visit the message at point, or where the mouse EVENT is."
  (interactive (list last-nonmenu-event) pyagentd-search-mode)
  (when (and event (listp event)) (mouse-set-point event))
  (let ((hit (pyagentd-search--at-point)))
    (pyagentd-found-goto hit (pyagentd-here-visit hit))))

(defun pyagentd-search-visit-other-window ()
  "Visit the message at point in another window."
  (interactive nil pyagentd-search-mode)
  (let ((hit (pyagentd-search--at-point)))
    (pyagentd-found-goto hit (pyagentd-here-visit hit t))))

(defun pyagentd-search--next-error (count reset)
  "Visit the message COUNT further on, from the first one if RESET.
For `next-error-function'."
  (when reset (goto-char (point-min)))
  (let ((hit (if (zerop count) (pyagentd-search--at-point)
               (or (pyagentd-search--step count)
                   (user-error "No more messages")))))
    (when-let ((window (get-buffer-window)))
      (set-window-point window (point)))
    (pyagentd-found-goto hit (pyagentd-here-visit hit t))))

;;;; The mode

(defvar pyagentd-search-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-search-visit)
    (define-key map [mouse-2] #'pyagentd-search-visit)
    (define-key map [follow-link] 'mouse-face)
    (define-key map (kbd "o") #'pyagentd-search-visit-other-window)
    (define-key map (kbd "n") #'pyagentd-search-next)
    (define-key map (kbd "p") #'pyagentd-search-previous)
    (define-key map (kbd "f") #'pyagentd-search-toggle-follow)
    (define-key map (kbd "s") #'pyagentd-search)
    (define-key map (kbd "a") #'pyagentd-search-toggle-archived)
    (define-key map (kbd "+") #'pyagentd-search-more)
    (define-key map (kbd "b") #'pyagentd-branches)
    map)
  "Keymap of `pyagentd-search-mode'.")

(define-derived-mode pyagentd-search-mode special-mode "Search"
  "Major mode for the results of a search in all sessions.

\\{pyagentd-search-mode-map}"
  (setq-local pyagentd-table-help '(("RET" "open") ("n" "next") ("p" "previous")
                                    ("f" "follow") ("s" "search") ("+" "more")
                                    ("a" "archived too") ("?" "all keys"))
              revert-buffer-function #'pyagentd-search--revert
              next-error-function #'pyagentd-search--next-error
              pyagentd-here-function #'pyagentd-search--here
              word-wrap t
              truncate-lines nil
              fringe-indicator-alist '((continuation nil nil)))
  (add-hook 'kill-buffer-hook #'pyagentd-found-forget nil t)
  (buffer-disable-undo))

(provide 'pyagentd-search)
;;; pyagentd-search.el ends here

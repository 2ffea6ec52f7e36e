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

;; `pyagentd-search' asks the daemon, which has an index of every message
;; of every session and agent, and lists what it finds by session.  From
;; there a key leads to the message in its conversation.  Moving along the
;; list previews the messages without opening their sessions.

;;; Code:

(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-here)
(require 'pyagentd-list)
(require 'pyagentd-found)

(autoload 'pyagentd-branches "pyagentd-branches" nil t)

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

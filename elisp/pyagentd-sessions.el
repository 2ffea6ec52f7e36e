;;; pyagentd-sessions.el --- List, search, export and import sessions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Commands of the list of sessions, export, import, and full-text search.

;;; Code:

(require 'browse-url)
(require 'pulse)
(require 'pyagentd-list)

;;;; The list

(defun pyagentd-sessions--delete ()
  "Move the marked sessions, branches and agents to the trash.
If none is marked, use the one at point.  Ask for confirmation."
  (interactive nil pyagentd-list-mode)
  (let* ((directories nil)
         (sessions                      ; without those below another of them
          (seq-filter
           (lambda (session)
             (let ((directory (plist-get session
                                         (if (plist-get session :what)
                                             :branch-dir :session-dir))))
               (unless (seq-some (lambda (above)
                                   (string-prefix-p
                                    (file-name-as-directory above)
                                    (file-name-as-directory directory)))
                                 directories)
                 (push directory directories))))
           (mapcar #'pyagentd-list-session (pyagentd-table-marked)))))
    (cond ((null sessions) (call-interactively #'pyagentd-delete))
          ((yes-or-no-p
            (format "Move %s to the trash? "
                    (mapconcat (pcase-lambda (`(,what . ,these))
                                 (pyagentd-count (length these)
                                                 (symbol-name (or what 'session))))
                               (seq-group-by (lambda (session)
                                               (plist-get session :what))
                                             sessions)
                               ", ")))
           ;; One after the other: if one fails the rest stays marked.
           (named-let next ((left sessions))
             (if (null left) (run-hooks 'pyagentd-changed-hook)
               (pyagentd-manage-trash
                (car left) (or (plist-get (car left) :what) 'session)
                (lambda (_) (next (cdr left)))
                (lambda (err)
                  (run-hooks 'pyagentd-changed-hook)
                  (pyagentd-later-tell err)))))))))

(pyagentd-list-add-keys "sessions"
  '("d" pyagentd-sessions--delete "delete" t)
  '("r" pyagentd-rename "rename")
  '("D" pyagentd-duplicate "duplicate")
  '("e" pyagentd-export "export")
  '("b" pyagentd-branches "branches")
  '("s" pyagentd-search "search"))

;;;###autoload
(defun pyagentd-sessions ()
  "List the sessions with their branches and agents."
  (interactive)
  (let ((display-buffer-overriding-action '(display-buffer-same-window)))
    (pyagentd-list-show "sessions")))

;;;; Export and import

(defconst pyagentd-exchange--formats
  '(("md" . "Markdown, as in the buffer")
    ("html" . "a page for the browser, in one file")
    ("json" . "all messages with their parts")
    ("jsonl" . "the same, one row a line")
    ("acp" . "lines of the Agent Client Protocol"))
  "Formats of export with their descriptions.")

(defvar pyagentd-exchange--export-directory "~/"
  "Directory of the latest export.")

(defun pyagentd-export (format file)
  "Write the conversation here to FILE in FORMAT and return the file's name.
FORMAT is \"md\", \"html\", \"json\", \"jsonl\" or \"acp\".  The file is
written after this returns; then an HTML page can be opened in the browser."
  (interactive
   (let* ((here (pyagentd-here))
          (branch (plist-get here :branch-name))
          (format (car (pyagentd-choose
                        (format-prompt "Format" "md")
                        (mapcar (lambda (format) (cons (car format) format))
                                pyagentd-exchange--formats)
                        :default "md"
                        :annotate (lambda (format) (concat "  " (cdr format))))))
          (name (concat (plist-get here :session-id)
                        (unless (member branch '(nil "main"))
                          (concat "-" branch))
                        "." format))
          (file (read-file-name "Export to: " pyagentd-exchange--export-directory
                                nil nil name)))
     (when (file-directory-p file)
       (setq file (expand-file-name name file)))
     (when (and (file-exists-p file)
                (not (y-or-n-p (format "%s exists; overwrite? " file))))
       (user-error "Not exported"))
     (list format file)))
  (when (file-remote-p file)
    (user-error "Only local files can be written"))
  (let ((here (pyagentd-here))
        (file (expand-file-name file))
        (show (and (called-interactively-p 'any) (equal format "html"))))
    (pyagentd-here-save here)
    (pyagentd-later-asking
     'export (list :branch (plist-get here :branch) :format format :file file)
     (lambda (answer)
       (setq pyagentd-exchange--export-directory (file-name-directory file))
       (if (and show
                (y-or-n-p (format "Wrote %s; open it in the browser? " file)))
           (browse-url-of-file file)
         (message "%s" (string-join (cons (concat "Wrote " file)
                                          (plist-get answer :notes))
                                    "\n"))))
     pyagentd-later-patience)
    file))

;;;###autoload
(defun pyagentd-import (file &optional name)
  "Create a session called NAME from FILE, a saved chat; visit it.
FILE is a chat of gptel, a session of Claude Code or opencode, or a
transcript of agent-shell; it is not changed.  A message lists the parts that
could not be imported.  The agent of the session may read and write the
project around `default-directory', as with `pyagentd-session'."
  (interactive
   (let* ((file (read-file-name (format-prompt "Import chat" buffer-file-name)
                                nil buffer-file-name t nil))
          (buffer (find-buffer-visiting file)))
     (when (file-directory-p file)
       (user-error "%s is a directory" file))
     (when (and buffer (buffer-modified-p buffer)
                (y-or-n-p (format "Save %s first? " file)))
       (with-current-buffer buffer (save-buffer)))
     (list file (read-string "Session name: " (file-name-base file)))))
  (when (file-remote-p file)
    (user-error "Only local files can be imported"))
  (pyagentd-later-asking
   'import (list :file (expand-file-name file) :name name
                 :root (pyagentd--project-root))
   #'pyagentd-exchange--imported pyagentd-later-patience nil
   #'pyagentd-manage-late))

(defun pyagentd-exchange--imported (session)
  "Visit SESSION, an imported chat, and show notes on what it lacks."
  (pyagentd-manage-visit session)
  (goto-char (point-max))
  (message "%s" (string-join
                 (cons (concat "Imported as " (plist-get session :session-id))
                       (plist-get session :notes))
                 "\n")))

;;;; The search index

;; The daemon keeps the index up to date; rebuild it only if matches seem to
;; be missing.

(defun pyagentd-reindex ()
  "Rebuild the search index of all sessions.
Emacs stays usable; the echo area shows the progress."
  (pyagentd-later
   'reindex nil
   (lambda (answer)
     (message "Indexed %s in %s, %.1f s"
              (pyagentd-count (plist-get answer :messages) "message")
              (pyagentd-count (plist-get answer :branches) "branch")
              (plist-get answer :seconds)))
   3600))

(pyagentd-events-register
 'progress
 (lambda (_branch _seq args)
   (let ((message-log-max nil))
     (message "Indexing sessions...%d%%"
              (/ (* 100 (plist-get (car args) :done))
                 (max 1 (plist-get (car args) :total)))))))

;;;; Show a search hit

;; To find a hit in its conversation, ask the daemon for the message's
;; position in the saved document.  If the text there has changed since,
;; search for the text of the preview.
;;
;; A hit is a plist from the daemon's search.  Its keys used here are :branch,
;; :file, :message-id and :part-id (nil for text that only the document has),
;; :preview, :matches, a list of (BEG END) in the preview, from 0, and :query.

;;;; Finding the position

(defconst pyagentd-found--patience 1
  "Seconds to wait for the daemon's position of a message.")

(defun pyagentd-found--search (hit beg end)
  "Return the bounds (BEG . END) of HIT's match between BEG and END, or nil.
Prefer a match with the preview's text around it.  All whitespace is equal."
  (pcase-let*
      ((preview (plist-get hit :preview))
       (`(,from ,to) (or (car (plist-get hit :matches)) '(0 0)))
       (to (min to (length preview)))
       (`(,before ,match ,after)
        (mapcar (lambda (text)
                  (mapconcat #'regexp-quote (split-string text) "[ \t\n]+"))
                (list (car (last (split-string (substring preview 0 from) "…")))
                      (substring preview from to)
                      (car (split-string (substring preview to) "…")))))
       (whole (concat before "[ \t\n]*\\(" match "\\)[ \t\n]*" after))
       (case-fold-search t))
    (goto-char beg)
    (cond ((string-empty-p (concat before match after)) nil)
          ((re-search-forward whole end t)
           (let ((group (if (string-empty-p match) 0 1)))
             (cons (match-beginning group) (match-end group))))
          ((and (not (string-empty-p match)) (re-search-forward match end t))
           (cons (match-beginning 0) (match-end 0))))))

(defun pyagentd-found--locate (hit then)
  "Ask for the bounds of HIT's message, and call THEN here with them.
The argument is (BEG END) in the saved document, or nil if unknown."
  (if (not (pyagentd-rpc-connect))
      (pyagentd-later-soon (lambda () (funcall then nil)))
    (pyagentd-later-here
     'locate (append (list :branch (plist-get hit :branch))
                     (if-let ((message (plist-get hit :message-id)))
                         (list :message message :part (plist-get hit :part-id))
                       (list :query (plist-get hit :query))))
     (lambda (place)
       (let ((position (plist-get place :position)))
         (funcall then (and position
                            (list position
                                  (or (plist-get place :end) position))))))
     pyagentd-found--patience
     (lambda (_) (funcall then nil)))))

(defun pyagentd-found--place (hit range)
  "Return the bounds (BEG . END) of HIT's match in this buffer, or nil.
RANGE is (BEG END) of its message as saved, or nil."
  (save-excursion
    (pcase-let ((`(,beg ,end) range))
      (or (and beg (<= beg (point-max))
               (pyagentd-found--search hit beg (min end (point-max))))
          (pyagentd-found--search hit (point-min) (point-max))
          (and beg (let ((start (min beg (point-max))))
                     (cons start (save-excursion (goto-char start)
                                                 (line-end-position)))))))))

;;;; Showing

(defun pyagentd-found--show (hit range window)
  "Show the match of HIT in WINDOW.
RANGE is (BEG END) of its message as saved, or nil."
  (with-selected-window window
    (let ((place (save-restriction
                   (widen)
                   (pyagentd-found--place hit range))))
      (if (not place)
          (message "The message is no longer in the text")
        (unless (<= (point-min) (car place) (cdr place) (point-max))
          (widen))
        (push-mark nil t)
        (goto-char (car place))
        (recenter (/ (window-height) 3))
        (unless noninteractive
          (pulse-momentary-highlight-region (car place) (cdr place)))))))

(defun pyagentd-search-visit (hit other-window)
  "Visit the message of HIT, in another window if OTHER-WINDOW is non-nil.
Move point there when the daemon has returned its position, unless the user
has moved meanwhile.  Return its buffer."
  (with-current-buffer (pyagentd-here-visit hit other-window)
    (let ((window (selected-window))
          (start (copy-marker (point)))
          (keys num-input-keys))
      (pyagentd-found--locate
       hit
       (lambda (range)
         (when (and (eq (window-buffer window) (current-buffer))
                    (or (= keys num-input-keys)
                        (= start (window-point window))))
           (pyagentd-found--show hit range window)))))
    (current-buffer)))

(defvar-local pyagentd-found--previewed nil
  "List of the file shown in this buffer and its modification time.")

(defun pyagentd-found--preview-buffer (file)
  "Return the preview buffer with the text of FILE, not a session buffer."
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
            (funcall (or (and (< (buffer-size) pyagentd-visit-glance)
                              (assoc-default "a.md" auto-mode-alist
                                             #'string-match))
                         #'text-mode)))
          (font-lock-mode)
          (visual-line-mode))
        (setq buffer-read-only t
              pyagentd-found--previewed stamp))
      (current-buffer))))

(defvar pyagentd-found--wanted nil
  "The hit whose preview was requested last.")

(defun pyagentd-found-preview (hit)
  "Show the message of HIT in another window without opening its session.
If the session is open, show its buffer.  Show it when the daemon has
returned the position, unless the user has moved on by then."
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
           (pyagentd-found--show
            hit range
            (display-buffer (current-buffer)
                            '(nil (inhibit-same-window . t))))))))))

;;;; Search in all conversations

(defvar pyagentd-search-history nil
  "History of search queries.")

(defconst pyagentd-search--most 50
  "Number of messages that a search shows at first.")

;;;###autoload
(defun pyagentd-search (query)
  "Search all sessions and agents for QUERY and list the matches.
All words must occur, the last one also as the beginning of a word;
\"…\" is a phrase, and a word after - must not occur."
  (interactive
   (let ((default (if (use-region-p)
                      (buffer-substring-no-properties (region-beginning)
                                                      (region-end))
                    (thing-at-point 'word t))))
     (list (read-string (format-prompt "Search sessions" default)
                        nil 'pyagentd-search-history default t))))
  (when (string-blank-p query)
    (user-error "The query is empty"))
  (setq next-error-last-buffer
        (pyagentd-list-show "search" (list :query query) pyagentd-search--most)))

;;;; Motion in search results

(defun pyagentd-search--hit ()
  "Return the hit at point, or nil; on a session's line, its first hit."
  (plist-get (pyagentd-list--row (tabulated-list-get-id)) :visit))

(defun pyagentd-search--step (count)
  "Move COUNT hits forward, or back if it is negative, and return that hit.
If there are not as many, do not move and return nil."
  (let ((start (point)) (step (if (< count 0) -1 1)) (left (abs count)))
    (beginning-of-line)
    (while (and (> left 0) (zerop (forward-line step))
                (or (not (eobp)) (< step 0)))
      (when (eql 1 (plist-get (pyagentd-list--row (tabulated-list-get-id))
                              :level))
        (setq left (1- left))))
    (or (and (zerop left) (pyagentd-search--hit))
        (progn (goto-char start) nil))))

(defun pyagentd-search--next (count)
  "Move COUNT messages forward and show that one in another window."
  (interactive "p" pyagentd-list-mode)
  (pyagentd-found-preview (or (pyagentd-search--step count)
                              (user-error "No more messages"))))

(defun pyagentd-search--previous (count)
  "Move COUNT messages back and show that one in another window."
  (interactive "p" pyagentd-list-mode)
  (pyagentd-search--next (- count)))

(defun pyagentd-search--next-error (count reset)
  "Visit the COUNTth next hit, from the beginning of the list if RESET."
  (when reset (goto-char (point-min)))
  (let ((hit (or (if (zerop count) (pyagentd-search--hit)
                   (pyagentd-search--step count))
                 (user-error "No more messages"))))
    (when-let ((window (get-buffer-window)))
      (set-window-point window (point)))
    (pyagentd-search-visit hit t)))

(defun pyagentd-search--on-shown ()
  "Make `next-error' visit search results, when those are shown."
  (when (equal pyagentd-list-name "search")
    (setq next-error-function #'pyagentd-search--next-error)))

(add-hook 'pyagentd-list-after-show-hook #'pyagentd-search--on-shown)

(pyagentd-list-add-keys "search"
  '("n" pyagentd-search--next "next")
  '("p" pyagentd-search--previous "previous")
  '("b" pyagentd-branches "branches"))

(provide 'pyagentd-sessions)
;;; pyagentd-sessions.el ends here

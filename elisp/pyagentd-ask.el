;;; pyagentd-ask.el --- Approvals in a conversation -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What the daemon asks: shown at the prompt, answered by keys on the question;
;; and the replies that an answer offers.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-status)
(require 'pyagentd-here)
(require 'pyagentd-edit)
(require 'pyagentd-daemon)

(declare-function pyagentd-notify-settled "pyagentd-notify")
(declare-function pyagentd-ask--show "pyagentd-views")
(declare-function pyagentd-asks "pyagentd-views")
(declare-function pyagentd-question-open "pyagentd-form")

;;;; What the daemon asks

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
;; (those asked for), :input (the arguments, JSON), :path, and what it looks like:
;; :who, :what, :lines and :keys.

(defvar pyagentd-ask--pending nil
  "Open asks, oldest first.")

(defvar pyagentd-ask--answered nil
  "Ids of asks that we have answered and the daemon has not settled yet.")

(defvar pyagentd-ask-changed-hook nil
  "Hook run after it has changed which asks are open, or what is known of one.")

(defvar pyagentd-ask-new-functions nil
  "Functions called with an ask that is new.")

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
                              ;; Itself and those above it, the root last.
                              :above (and branch (pyagentd-ask--chain branch)))
                        ask)))
    (setq pyagentd-ask--pending (append pyagentd-ask--pending (list ask)))
    (run-hooks 'pyagentd-ask-changed-hook)
    (pyagentd-run-functions 'pyagentd-ask-new-functions ask)))

(defun pyagentd-ask-remove (id)
  "Note that the ask ID is settled."
  (when-let ((ask (pyagentd-ask-find id)))
    (setq pyagentd-ask--pending (remq ask pyagentd-ask--pending)
          pyagentd-ask--answered (delete id pyagentd-ask--answered))
    (run-hooks 'pyagentd-ask-changed-hook)))

(defun pyagentd-ask-receive-all (asks)
  "Note that ASKS, and no others, are open anywhere."
  (let ((pyagentd-ask-new-functions nil)
        (ids (mapcar #'pyagentd-ask-id asks)))
    (dolist (ask pyagentd-ask--pending)
      (unless (member (pyagentd-ask-id ask) ids)
        (pyagentd-ask-remove (pyagentd-ask-id ask))))
    (mapc #'pyagentd-ask-add asks)))

(defun pyagentd-ask-clear ()
  "Forget all asks; the daemon has them still."
  (setq pyagentd-ask--pending nil
        pyagentd-ask--answered nil)
  (run-hooks 'pyagentd-ask-changed-hook))

;;;; Where they are shown

(defun pyagentd-ask--chain (branch)
  "Return BRANCH and those above it up to the root, directories in a list."
  (cons branch (when (string-match "/agents/[^/]+\\'" branch)
                 (pyagentd-ask--chain (substring branch 0 (match-beginning 0))))))

(defun pyagentd-ask-buffers (ask)
  "Return the buffers that show ASK: its own, and the uppermost one above."
  (pcase-let* ((`(,branch . ,above) (plist-get ask :above))
               (own (and branch (pyagentd-place-buffer branch)))
               (upper nil))
    (dolist (branch above)
      (setq upper (or (pyagentd-place-buffer branch) upper)))
    (delq nil (list own upper))))

(defun pyagentd-ask-in (buffer)
  "Return the asks that BUFFER shows, oldest first."
  (seq-filter (lambda (ask) (memq buffer (pyagentd-ask-buffers ask)))
              pyagentd-ask--pending))

(defun pyagentd-ask-question-p (ask)
  "Return non-nil if ASK, which may be nil, is a model's questions."
  (eq 'question (pyagentd-symbol (plist-get ask :kind))))

;;;; Events

(pyagentd-events-register
 'ask (lambda (branch _seq args) (pyagentd-ask-add (car args) branch)))
(pyagentd-events-register
 'answered (lambda (_branch _seq args)
             (let ((answer (car args)))
               (when-let ((ask (pyagentd-ask-find (plist-get answer :id))))
                 (unless (pyagentd-ask-answered-p ask)
                   (pyagentd-notify-settled ask answer))
                 (pyagentd-ask-remove (pyagentd-ask-id ask))))))

;;;; A change in the colours of its file

;; A diff has the faces of `diff-mode', which gives what a hunk has of a file
;; those of the file's mode: a comment that begins above it is not known.

(defconst pyagentd-ask-look--most 40000
  "How many characters are given the colours of a mode.")

(defvar diff-font-lock-syntax)
(defvar diff-refine)

(defun pyagentd-ask-look (text)
  "Return the lines of TEXT, a diff, coloured, each with its newline.
Neither the text nor the mode of its file may do more than colour it."
  (require 'diff-mode)
  (with-temp-buffer
    (insert text "\n")
    (let ((diff-font-lock-syntax (and (< (length text) pyagentd-ask-look--most)
                                      'hunk-only))
          (diff-refine nil)
          (delay-mode-hooks t)
          (inhibit-local-variables-regexps '(""))
          (magic-mode-alist nil)
          (inhibit-message t)
          (log message-log-max)
          (message-log-max nil)) ; what the modes say helps nobody
      (diff-mode)
      (condition-case-unless-debug err
          (font-lock-ensure)
        (error (let ((message-log-max log))
                 (pyagentd-log 'debug "No colours: %s"
                               (error-message-string err))))))
    (dolist (overlay (overlays-in (point-min) (point-max)))
      (when-let ((face (overlay-get overlay 'face)))
        (add-face-text-property (overlay-start overlay) (overlay-end overlay)
                                face)))
    (remove-list-of-text-properties (point-min) (point-max) '(fontified))
    (goto-char (point-min))
    (let (lines)
      (while (not (eobp))
        (push (buffer-substring (point) (progn (forward-line) (point))) lines))
      (nreverse lines))))

(defun pyagentd-ask-who (ask)
  "Return which agent ASK comes from, in words; nil for none."
  (let ((who (plist-get ask :who)))
    (unless (member who '(nil "")) who)))

(defun pyagentd-ask-title (ask)
  "Return one line about ASK."
  (let ((who (pyagentd-ask-who ask)))
    (concat (and who (concat who ": ")) (or (plist-get ask :what) ""))))

(defun pyagentd-ask--segment ()
  "Return how many asks this buffer shows, and whose the first are, or nil."
  (when-let ((asks (pyagentd-ask-in (current-buffer))))
    (let ((names (delete-dups
                  (mapcar (lambda (ask)
                            (cond ((plist-get ask :agent)
                                   (car (split-string (pyagentd-ask-who ask) " (")))
                                  ((eq 'scope (pyagentd-symbol
                                               (plist-get ask :kind)))
                                   "scope")
                                  (t (or (plist-get ask :tool) "question"))))
                          asks))))
      (pyagentd-status-button
       (propertize
        (format "%s: %s%s" (pyagentd-count (length asks) "ask")
                (string-join (seq-take names 3) ", ")
                (if (nthcdr 3 names) (format " +%d" (- (length names) 3)) ""))
        'face 'warning)
       'pyagentd-asks "What is asked"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-ask--segment)

;;;; What an ask looks like

;; The daemon says which lines decide, and how they look.  Here a change gets
;; the colours of its file, and is as short as its window is high: a notice
;; that does not fit there cannot be scrolled.

(defun pyagentd-ask-text (ask &optional room place)
  "Return the lines about ASK; PLACE, a text, ends the first.
A preview has at most ROOM lines, nil for all that the daemon shows."
  (mapconcat (lambda (line)
               (concat (mapconcat (lambda (part)
                                    (pyagentd-ask-text-part part room))
                                  (plist-get line :parts) "")
                       (prog1 place (setq place nil))
                       "\n"))
             (plist-get ask :lines) ""))

(defun pyagentd-ask-text-part (part &optional room)
  "Return PART of a line as text; a preview has at most ROOM lines, nil for all."
  (pcase (and (consp part) (plist-get part :face))
    ((or "diff" "preview") (pyagentd-ask-text--preview part room))
    (_ (pyagentd-text part))))

(defun pyagentd-ask-text--preview (part room)
  "Return PART, a change of a file or another preview.
It has at most ROOM lines, nil for all; of a change the first changed one."
  (let* ((text (plist-get part :text))
         (diff (equal "diff" (plist-get part :face)))
         (lines (if diff (pyagentd-ask-look text)
                  (mapcar (lambda (line)
                            (propertize (concat "  " line "\n")
                                        'face 'pyagentd-detail
                                        'wrap-prefix "  "))
                          (split-string text "\n"))))
         (first (and diff room      ; what was changed, behind the two file names
                     (seq-position (nthcdr 2 lines) nil
                                   (lambda (line _)
                                     (string-match-p "\\`[-+]" line)))))
         (skipped (if first (max 2 (1+ first)) 0))
         (shown (seq-take (nthcdr skipped lines) (or room (length lines))))
         (more (+ (or (plist-get part :more) 0)
                  (- (length lines) skipped (length shown)))))
    (if (= more 0) (substring (string-join shown) 0 -1)
      ;; With its newline: the colour of the line reaches to the edge.
      (concat (string-join shown)
              (propertize (format "  … %s" (pyagentd-count more "more line"))
                          'face 'shadow)))))

;;;; One letter for each decision

;; Each decision about an ask, and each look at it, has one letter wherever
;; asks are answered: on the question itself, in lists, beside a diff and in
;; menus.  In a conversation they are keys of the question alone, not of the
;; text: `C-c C-c' goes to the question first.

(defconst pyagentd-ask-keys
  '((?y pyagentd-allow-once "once")
    (?s pyagentd-allow-session "session")
    (?p pyagentd-allow-always "project")
    (?n pyagentd-deny "deny")
    (?r pyagentd-deny-with-reason "deny with a reason")
    (?e pyagentd-ask--edit "edit")
    (?d pyagentd-ask--diff "diff")
    (?E pyagentd-ask--ediff "Ediff")
    (?o pyagentd-ask--show "details")
    (?k pyagentd-ask--abort "abort"))
  "Letters with their commands and a word for them.
Which of them an ask offers the daemon says.")

(defun pyagentd-ask-offered (ask)
  "Return the letters that ASK offers, a list of (LETTER LABEL)."
  (mapcar (lambda (key) (list (string-to-char (plist-get key :key))
                              (plist-get key :label)))
          (seq-mapcat (lambda (row) (plist-get row :keys))
                      (plist-get ask :keys))))

(defun pyagentd-ask-keys-define (map)
  "Let letters run their commands in MAP, and return it."
  (pcase-dolist (`(,letter ,command . ,_) pyagentd-ask-keys map)
    (define-key map (vector letter) command)))

(defun pyagentd-ask-keys-header (ask without)
  "Return a header line with the keys for ASK but that of the command WITHOUT."
  (let ((offered (pyagentd-ask-offered ask)))
    (concat
     (mapconcat (pcase-lambda (`(,letter ,command ,word))
                  (if (or (eq command without) (not (assq letter offered))) ""
                    (concat " " (propertize (string letter) 'face 'pyagentd-key)
                            " " word " ")))
                pyagentd-ask-keys "")
     " " (propertize "q" 'face 'pyagentd-key) " close")))

;;;; Show in a conversation what is asked

;; Where something is asked a notice stands at the marker of the run.  It
;; shows one ask, which the keys answer, and the others in a line each.  It
;; changes no text, and goes when nothing is asked any more.
;;
;; What is typed into the conversation never answers: `C-c C-c' moves point to
;; the question, and only there do letters decide.  Any other command leaves
;; the question, and so does another question in its place.

(pyagentd-deflocal pyagentd-ask-notice--overlay nil
  "Overlay of the notice in this buffer, nil if there is none.")
(pyagentd-deflocal pyagentd-ask-notice--current nil
  "Id of the ask that the keys answer, nil for none.")

(pyagentd-deflocal pyagentd-ask-notice--focus nil
  "Where point is on the question, an overlay; nil while it is not.
Its property `pyagentd-ask-back' is a marker at where point was before.")

(defvar pyagentd-ask-notice-map
  (let ((map (pyagentd-ask-keys-define (make-sparse-keymap))))
    (define-key map "." #'pyagentd-ask--next)
    (define-key map "," #'pyagentd-ask--previous)
    (define-key map (kbd "RET") #'pyagentd-ask--show)
    (define-key map "q" #'pyagentd-ask--leave)
    (define-key map (kbd "C-g") #'pyagentd-ask--leave)
    (define-key map (kbd "DEL") #'pyagentd-ask--no-key)
    (define-key map (kbd "C-d") #'pyagentd-ask--no-key)
    (define-key map [remap self-insert-command] #'pyagentd-ask--no-key)
    map)
  "Keymap at point on a question in a conversation.")

(defun pyagentd-ask-notice--button (key command label)
  "Return KEY with LABEL; a click on it runs COMMAND."
  (pyagentd-status-button
   (string-trim-right
    (concat (propertize key 'face 'pyagentd-key) " " label))
   command))

(defun pyagentd-ask-notice-keys (ask several)
  "Return the lines that name the keys for ASK, one of SEVERAL or not."
  (if (pyagentd-ask-question-p ask)
      (concat (propertize "Answer" 'face 'shadow) "  "
              (pyagentd-ask-notice--button "C-c C-c" 'pyagentd-answer "in a form")
              "  "
              (pyagentd-ask-notice--button "C-c C-k" 'pyagentd-abort "abort the run")
              "\n")
    (concat
     (mapconcat
      (lambda (row)
        (concat (propertize (format "%-5s" (plist-get row :title)) 'face 'shadow)
                "  "
                (mapconcat (lambda (key)
                             (let ((letter (plist-get key :key)))
                               (pyagentd-ask-notice--button
                                letter
                                (nth 1 (assq (string-to-char letter)
                                             pyagentd-ask-keys))
                                (plist-get key :label))))
                           (plist-get row :keys) "  ")))
      (plist-get ask :keys) "\n")
     (when several
       (concat "  " (pyagentd-ask-notice--button "." 'pyagentd-ask--next "next")))
     "\n")))

;;;; Point on the question

(defun pyagentd-ask--go ()
  "Go to the open question here, where keys answer it, or to its form."
  (interactive nil pyagentd-mode)
  (let ((ask (or (pyagentd-ask-notice-current)
                 (user-error "No question is open here"))))
    (if (pyagentd-ask-question-p ask)
        (pyagentd-question-open ask)
      (pyagentd-ask-notice--enter ask))))

(defun pyagentd-ask-notice--enter (ask)
  "Put point on the question ASK, and let the keys there answer it."
  (let ((base (or (buffer-base-buffer) (current-buffer))))
    (unless (eq base (current-buffer))
      (pop-to-buffer base)))
  (pyagentd-ask-notice-select ask)
  (let ((back (if pyagentd-ask-notice--focus
                  (overlay-get pyagentd-ask-notice--focus 'pyagentd-ask-back)
                (point-marker)))
        (position (overlay-start pyagentd-ask-notice--overlay)))
    (pyagentd-ask-notice--unfocus)
    (unless (<= (point-min) position (point-max)) (widen))
    (goto-char position)
    ;; An empty one whose end advances has its keymap at its position.
    (let ((focus (make-overlay position position nil nil t)))
      (overlay-put focus 'keymap pyagentd-ask-notice-map)
      (overlay-put focus 'pyagentd-ask-id (pyagentd-ask-id ask))
      (overlay-put focus 'pyagentd-ask-back back)
      (setq pyagentd-ask-notice--focus focus))
    (add-hook 'post-command-hook #'pyagentd-ask-notice--look)
    (add-hook 'window-selection-change-functions #'pyagentd-ask-notice--look)
    (pyagentd-ask-notice-refresh)))

(defun pyagentd-ask-notice--unfocus ()
  "Let keys be those of the text again."
  (when pyagentd-ask-notice--focus
    (delete-overlay pyagentd-ask-notice--focus)
    (setq pyagentd-ask-notice--focus nil)))

(defun pyagentd-ask-notice--look (&rest _)
  "Let keys be those of the text again wherever point has left a question.
That is also where another buffer is shown in its window: no hook of the
question's own buffer runs then."
  (unless (minibufferp (window-buffer)) ; where more is asked
    (let ((focused nil))
      (dolist (buffer (pyagentd-place-buffers))
        (with-current-buffer buffer
          (cond ((null pyagentd-ask-notice--focus))
                ((not (eq buffer (window-buffer)))
                 (pyagentd-ask--leave))
                ((eql (point) (overlay-start pyagentd-ask-notice--focus))
                 (setq focused t))
                (t (pyagentd-ask-notice--unfocus)
                   (pyagentd-ask-notice-refresh)))))
      (unless focused
        (remove-hook 'post-command-hook #'pyagentd-ask-notice--look)
        (remove-hook 'window-selection-change-functions
                     #'pyagentd-ask-notice--look)))))

(defun pyagentd-ask--leave ()
  "Leave the question open and go back to where point was."
  (interactive nil pyagentd-mode)
  (when-let ((focus pyagentd-ask-notice--focus))
    (let ((here (overlay-start focus))
          (back (overlay-get focus 'pyagentd-ask-back)))
      (pyagentd-ask-notice--unfocus)
      (dolist (window (get-buffer-window-list nil nil t))
        (when (= here (window-point window))
          (set-window-point window back)))
      (when (= here (point))
        (goto-char back))
      (set-marker back nil)))
  (pyagentd-ask-notice-refresh))

(defun pyagentd-ask-notice-aside ()
  "Leave the question that point is on, to look at something else.
Return a function that goes back to it if it is still open, or nil if point
is on no question."
  (with-current-buffer (window-buffer)
    (when pyagentd-ask-notice--focus
      (let ((buffer (current-buffer))
            (id (overlay-get pyagentd-ask-notice--focus 'pyagentd-ask-id)))
        (pyagentd-ask--leave)
        (lambda ()
          (when-let ((ask (and (eq buffer (window-buffer))
                               (pyagentd-ask-find id))))
            (with-current-buffer buffer
              (pyagentd-ask-notice--enter ask))))))))

(defun pyagentd-ask--no-key ()
  "Say that the key just typed does nothing on a question."
  (interactive nil pyagentd-mode)
  (message "%s does nothing on a question; q leaves it"
           (key-description (this-command-keys))))

;;;; The notice

(defun pyagentd-ask-notice--text (current asks &optional room)
  "Return the notice about ASKS and CURRENT, whose preview has at most ROOM lines."
  (concat "\n" pyagentd-rule
          (pyagentd-ask-text
           current room
           (when (cdr asks)
             (propertize (format "   %d of %d" (1+ (seq-position asks current))
                                 (length asks))
                         'face 'shadow)))
          (mapconcat (lambda (ask)
                       (concat (propertize "  also  " 'face 'shadow)
                               (truncate-string-to-width
                                (pyagentd-ask-title ask) 160 nil nil "…")
                               "\n"))
                     (seq-take (remq current asks) 5) "")
          (when (nthcdr 6 asks)
            (propertize (format "  … and %d more\n" (- (length asks) 6))
                        'face 'shadow))
          (if (pyagentd-ask-answered-p current)
              (propertize "Answered; waiting for the daemon\n"
                          'face 'shadow)
            (concat (cond ((pyagentd-ask-question-p current) "")
                          (pyagentd-ask-notice--focus
                           (propertize
                            "Press a key, or q to leave the question:\n"
                            'face 'pyagentd-heading))
                          (t (concat (propertize "C-c C-c" 'face 'pyagentd-key)
                                     (propertize " goes to the question; there:\n"
                                                 'face 'shadow))))
                    (pyagentd-ask-notice-keys current (cdr asks))))
          pyagentd-rule))

(defun pyagentd-ask-notice--rows (text width)
  "Return how many rows TEXT takes in a window that is WIDTH columns wide."
  (apply #'+ (mapcar (lambda (line)
                       (max 1 (ceiling (string-width line) (max 1 width))))
                     (split-string (string-trim-right text "\n") "\n"))))

(defun pyagentd-ask-notice--fitted (current asks)
  "Return the notice about ASKS and CURRENT, short enough for its window."
  (let ((text (pyagentd-ask-notice--text current asks))
        (window (get-buffer-window nil 'visible)))
    (if (not window) text
      (let* ((width (window-body-width window))
             (left (lambda (text)
                     (- (window-body-height window) 2
                        (pyagentd-ask-notice--rows text width)))))
        (when (< (funcall left text) 0)
          (let ((least (pyagentd-ask-notice--text current asks 3)))
            (setq text (pyagentd-ask-notice--text
                        current asks (max 3 (+ 3 (funcall left least)))))))
        (pyagentd-ask-notice--wrap text (1- width))))))

(defun pyagentd-ask-notice--wrap (text width)
  "Return TEXT in lines of at most WIDTH columns, broken at spaces if possible.
Emacs would draw the cursor in a line that it has to continue itself."
  (with-temp-buffer
    (insert text)
    (goto-char (point-min))
    (while (not (eobp))
      (when (> (move-to-column width) (1- width))
        (unless (eolp)
          (let ((end (point)))
            (skip-chars-backward "^ \n")
            (when (save-excursion (skip-chars-backward " ") (bolp))
              (goto-char end))
            (insert (propertize "\n" 'face (get-text-property (1- (point))
                                                              'face)))
            (forward-line -1))))
      (forward-line 1))
    (buffer-string)))

(defun pyagentd-ask-notice--reveal ()
  "Scroll the windows whose point is at the notice so that they show it."
  (let ((position (pyagentd-insert-end)))
    (dolist (window (get-buffer-window-list nil nil 'visible))
      (when (= position (window-point window))
        (with-selected-window window
          (let ((room (- (window-body-height)
                         (pyagentd-ask-notice--rows
                          (overlay-get pyagentd-ask-notice--overlay
                                       'before-string)
                          (window-body-width))
                         1)))
            (when (> (count-screen-lines (window-start) position) room)
              (recenter (max 0 room)))))))))

(defun pyagentd-ask-notice-current ()
  "Return the ask that keys in this buffer answer, or nil."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (let ((asks (pyagentd-ask-in (current-buffer))))
      (or (seq-find (lambda (ask)
                      (equal (pyagentd-ask-id ask) pyagentd-ask-notice--current))
                    asks)
          (car asks)))))

(defun pyagentd-ask-notice-select (ask)
  "Let the keys in this buffer answer ASK."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (setq pyagentd-ask-notice--current (pyagentd-ask-id ask))
    (when pyagentd-ask-notice--focus
      (overlay-put pyagentd-ask-notice--focus 'pyagentd-ask-id
                   pyagentd-ask-notice--current))
    (pyagentd-ask-notice-refresh)))

(defun pyagentd-ask-notice--move (&rest _)
  "Put the notice of this buffer below the text of the run."
  (when pyagentd-ask-notice--overlay
    (let ((position (pyagentd-insert-end)))
      (move-overlay pyagentd-ask-notice--overlay position position)
      (when pyagentd-ask-notice--focus
        (let ((here (= (point) (overlay-start pyagentd-ask-notice--focus))))
          (move-overlay pyagentd-ask-notice--focus position position)
          (when here (goto-char position)))))))

(add-hook 'pyagentd-insert-functions #'pyagentd-ask-notice--move)

(defun pyagentd-ask-notice--delete ()
  "Remove the notice from this buffer."
  (when pyagentd-ask-notice--focus
    (pyagentd-ask--leave))
  (when pyagentd-ask-notice--overlay
    (delete-overlay pyagentd-ask-notice--overlay)
    (setq pyagentd-ask-notice--overlay nil
          pyagentd-ask-notice--current nil)))

(defun pyagentd-ask-notice-refresh ()
  "Show in this buffer what is asked, if anything is."
  (if-let ((current (pyagentd-ask-notice-current)))
      (progn
        (setq pyagentd-ask-notice--current (pyagentd-ask-id current))
        (when (and pyagentd-ask-notice--focus ; on another question
                   (not (equal (overlay-get pyagentd-ask-notice--focus
                                            'pyagentd-ask-id)
                               pyagentd-ask-notice--current)))
          (pyagentd-ask--leave))
        (unless pyagentd-ask-notice--overlay
          (setq pyagentd-ask-notice--overlay
                (make-overlay (point-min) (point-min) nil t)))
        (overlay-put pyagentd-ask-notice--overlay 'pyagentd-ask
                     pyagentd-ask-notice--current)
        (overlay-put pyagentd-ask-notice--overlay 'before-string
                     (pyagentd-ask-notice--fitted
                      current (pyagentd-ask-in (current-buffer))))
        (pyagentd-ask-notice--move)
        (pyagentd-ask-notice--reveal))
    (pyagentd-ask-notice--delete)))

(defun pyagentd-ask-notice--resized (window)
  "Make the notice fit WINDOW, whose size has changed, after redisplay."
  (with-current-buffer (window-buffer window)
    (when pyagentd-ask-notice--overlay
      (pyagentd-later-soon #'pyagentd-ask-notice-refresh))))

(add-to-list 'pyagentd-session-hooks
             '(window-size-change-functions . pyagentd-ask-notice--resized))

(defun pyagentd-ask-notice--refresh-all ()
  "Show in the session buffers what is asked."
  (let ((asking (seq-mapcat #'pyagentd-ask-buffers (pyagentd-ask-open))))
    (dolist (buffer (pyagentd-place-buffers))
      (when (or (memq buffer asking)
                (buffer-local-value 'pyagentd-ask-notice--overlay buffer))
        (with-current-buffer buffer
          (pyagentd-ask-notice-refresh)
          (pyagentd-status-refresh))))))

(defun pyagentd-ask-notice-visible-p (buffer)
  "Return non-nil if a window shows the notice in BUFFER.
A window whose point is there will, once it is displayed."
  (when-let* ((overlay (buffer-local-value 'pyagentd-ask-notice--overlay buffer))
              (position (overlay-start overlay)))
    (seq-some (lambda (window)
                (or (= position (window-point window))
                    (pos-visible-in-window-p position window)))
              (get-buffer-window-list buffer nil 'visible))))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-ask-notice--refresh-all)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-ask-notice--delete)

;;;; Which question commands in a buffer answer

;; Commands answer the ask of the notice, the one at point in a list, or
;; the one that a buffer is about: its arguments, its diff, all of it.  Such
;; a buffer stays when the ask is answered elsewhere, and says so.

(defvar-local pyagentd-ask-function nil
  "Function that returns the ask which commands in this buffer answer.
It returns nil if there is none; nil here means the one of the notice.")

(pyagentd-deflocal pyagentd-ask-here-about nil
  "The ask that this buffer is about and stays about, nil for none.
A list (ID OPEN ANSWERED PASSING), the header lines while it is open and
after; PASSING says that the buffer is left once we have answered.")

(defun pyagentd-ask-here-set (ask open answered &optional passing)
  "Let commands in this buffer answer ASK, and no other.
OPEN and ANSWERED are header lines, the latter for when it is settled.
PASSING says that there is nothing to see any more once we have answered."
  (let ((id (pyagentd-ask-id ask)))
    (setq pyagentd-ask-function (lambda () (pyagentd-ask-find id))
          pyagentd-ask-here-about (list id open answered passing)
          header-line-format open)))

(defun pyagentd-ask-here--on-change ()
  "Say in the buffers about one ask whether it is answered."
  (dolist (buffer (buffer-list))
    (when-let ((about (buffer-local-value 'pyagentd-ask-here-about buffer)))
      (with-current-buffer buffer
        (cond ((pyagentd-ask-find (car about))
               (setq header-line-format (nth 1 about)))
              ((pyagentd-rpc-connected-p) ; else we only cannot know
               (setq header-line-format (nth 2 about))))
        (force-mode-line-update)))))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-ask-here--on-change)

(pyagentd-deflocal pyagentd-ask-here--back nil
  "Function that goes back to the question that this was shown from, or nil.")

(defun pyagentd-ask-here-display ()
  "Show this buffer in the selected window: its keys are letters."
  (setq pyagentd-ask-here--back (pyagentd-ask-notice-aside))
  (pop-to-buffer (current-buffer)))

(defun pyagentd-ask--here-quit ()
  "Close this window, and go back to the question that it was shown from."
  (interactive)
  (let ((back pyagentd-ask-here--back))
    (quit-window)
    (when back (funcall back))))

(defun pyagentd-ask-here ()
  "Return the ask that commands in this buffer answer, or nil."
  (if pyagentd-ask-function
      (funcall pyagentd-ask-function)
    (pyagentd-ask-notice-current)))

;;;; Pick what an answer offers

(declare-function pyagentd-add-above "pyagentd-add")
(declare-function pyagentd-send "pyagentd-chat")

(pyagentd-deflocal pyagentd-reply-options nil
  "What the last answer here offers, a plist: :options and :several.
Each option is a plist with :label and :text, what picking it says.")
(pyagentd-deflocal pyagentd-reply-options--overlay nil
  "Overlay of the buttons in this buffer, nil if there are none.")

(dotimes (index 9)
  (define-key pyagentd-mode-map (kbd (format "C-c %d" (1+ index)))
    `(menu-item "" pyagentd-reply-options--pick
                :filter ,(lambda (command)
                           (and pyagentd-reply-options command)))))

(defun pyagentd-reply-options--button (option index)
  "Return OPTION, that with INDEX, as text; a click picks it."
  (let ((pick (lambda ()
                (interactive)
                (pyagentd-reply-options--pick (1+ index)))))
    (concat (propertize (format "%d" (1+ index)) 'face 'pyagentd-key) " "
            (propertize (plist-get option :label)
                        'face 'link 'mouse-face 'highlight
                        'keymap (pyagentd-keymap [mouse-1] pick [mouse-2] pick)
                        'help-echo (plist-get option :text)))))

(defun pyagentd-reply-options-clear (&rest _)
  "Remove the buttons from this buffer."
  (when pyagentd-reply-options--overlay
    (delete-overlay pyagentd-reply-options--overlay)
    (setq pyagentd-reply-options--overlay nil))
  (setq pyagentd-reply-options nil))

(defun pyagentd-reply-options-receive (options)
  "Show OPTIONS, what the last answer in this buffer offers, or nothing for nil."
  (pyagentd-reply-options-clear)
  (when (plist-get options :options)
    (let ((end (pyagentd-answered-end)))
      (setq pyagentd-reply-options options
            pyagentd-reply-options--overlay (make-overlay end end nil t))
      (overlay-put
       pyagentd-reply-options--overlay 'before-string
       (concat "\n\n"
               (string-join (seq-map-indexed #'pyagentd-reply-options--button
                                             (plist-get options :options))
                            "   ")
               (propertize (if (plist-get options :several)
                               "   (C-c 1… inserts one into your prompt)"
                             "   (C-c 1… sends it; C-u C-c 1… inserts it)")
                           'face 'shadow))))))

(add-hook 'pyagentd-insert-functions #'pyagentd-reply-options-clear)

(pyagentd-define-event reply-options `(,options)
  "Show the options."
  (pyagentd-reply-options-receive options))
(add-hook 'pyagentd-session-leave-hook #'pyagentd-reply-options-clear)

(defun pyagentd-reply-options--pick (number &optional only-put)
  "Send option NUMBER, whose digit was typed, of those the last answer offers.
What is typed below the answer already is said after it.  With a prefix
argument, or ONLY-PUT from Lisp, put it into the prompt and do not send
it; so it is with answers of which several options may be picked."
  (interactive
   (progn (unless pyagentd-reply-options (user-error "No options are offered here"))
          (let ((labels (mapcar (lambda (option) (plist-get option :text))
                                (plist-get pyagentd-reply-options :options))))
            (list (1+ (or (seq-position "123456789" last-command-event)
                          (seq-position labels (pyagentd-choose "Option: " labels))))
                  current-prefix-arg)))
   pyagentd-mode)
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (let ((option (nth (1- number) (plist-get pyagentd-reply-options :options)))
          (several (plist-get pyagentd-reply-options :several)))
      (unless option
        (user-error "There is no option %d" number))
      (save-restriction
        (widen)
        (pyagentd-add-above (plist-get option :text) several)
        (goto-char (point-max))
        (unless (or only-put several)
          (pyagentd-reply-options-clear)
          (pyagentd-send))))))

;;;; Answer what the daemon asks

;; Commands that answer an ask: the one the notice in a conversation
;; shows, or the one at point where asks are listed.  Nothing here prompts
;; by itself, and no answer waits for the daemon.

(declare-function pyagentd-abort "pyagentd-chat")

(defun pyagentd-answer-current ()
  "Return the ask that commands here answer; signal if there is none."
  (let ((ask (or (pyagentd-ask-here)
                 (user-error (if pyagentd-ask-here-about
                                 "Already answered"
                               "No question is open here; \
M-x pyagentd-asks lists those of all sessions")))))
    (when (pyagentd-ask-answered-p ask)
      (user-error "Already answered; waiting for the daemon"))
    ask))

(cl-defun pyagentd-answer-with (ask decision &key reason input answers then)
  "Answer ASK with DECISION, a symbol, and return at once.
REASON is told to the model.  INPUT, JSON, replaces the arguments;
ANSWERS, JSON, are to its questions.  THEN is called once the daemon has
the answer.

Who answers also says with which environment and key the run may go on: a
daemon that was started anew has none."
  (pyagentd-ask-note-answered ask t)
  (pyagentd-rpc-call-async
   'answer
   (append (list :ask (pyagentd-ask-id ask) :decision decision
                 :reason (or reason ""))
           (and input (list :input input))
           (and answers (list :answers answers))
           (unless (eq decision 'abort) (pyagentd-env)))
   :timeout pyagentd-call-timeout
   :success (pyagentd-events-in-turn
             (lambda (answer)
               (pyagentd-ask-note-answered ask nil)
               (pyagentd-ask-remove (pyagentd-ask-id ask))
               ;; Windows that were there only for it.
               (dolist (buffer (buffer-list))
                 (pcase (buffer-local-value 'pyagentd-ask-here-about buffer)
                   (`(,(pred (equal (pyagentd-ask-id ask))) ,_ ,_ t)
                    (dolist (window (get-buffer-window-list buffer nil t))
                      (quit-window nil window)))))
               (unless (plist-get answer :accepted)
                 (message "Somebody else answered first"))
               (when then (funcall then))))
   :error (pyagentd-events-in-turn
           (lambda (err)
             (pyagentd-ask-note-answered ask nil)
             (when (eq 'not-found (pyagentd-symbol (car-safe (cdr-safe err))))
               (pyagentd-ask-remove (pyagentd-ask-id ask)))
             (message "%s" (pyagentd-error-text err))))))

(defun pyagentd-allow-once ()
  "Allow what is asked for here, this one time.
Questions of the model's are answered in a form."
  (interactive)
  (let ((ask (pyagentd-answer-current)))
    (if (pyagentd-ask-question-p ask)
        (pyagentd-question-open ask)
      (pyagentd-answer-with ask 'allow))))

(defun pyagentd-answer--lasting (ask decision)
  "Allow ASK with DECISION, which outlives this once, after confirmation.
The daemon says in a sentence what that allows from now on and where; only
the letter y grants it."
  (unless (memq decision (or (mapcar #'pyagentd-symbol (plist-get ask :choices))
                             '(allow deny)))
    (user-error "This can be allowed once or denied"))
  (when (eq ?y (read-char-choice
                (concat
                 (or (plist-get (plist-get ask :allows)
                                (intern (format ":%s" decision)))
                     (concat "From now on this is allowed without asking: "
                             (string-join (plist-get ask :covers) "; ") "."))
                 "\ny allows that, n goes back: ")
                '(?y ?n)))
    (pyagentd-answer-with ask decision)))

(defun pyagentd-allow-session ()
  "Allow what is asked for here as long as the session lives.
That is the session with all its agents.  What is granted is named and
has to be confirmed; the list of grants shows and revokes it."
  (interactive)
  (pyagentd-answer--lasting (pyagentd-answer-current) 'session))

(defun pyagentd-allow-always ()
  "Allow what is asked for here always, in all sessions of the project.
What is granted is named and has to be confirmed; the list of grants
shows and revokes it.  Where more rights are asked for, they are added to
the scope in preset.md."
  (interactive)
  (pyagentd-answer--lasting (pyagentd-answer-current) 'always))

(defvar pyagentd-deny-reasons nil
  "Reasons for which something was denied, latest first.")

(defun pyagentd-answer--read-reason ()
  "Read why something is denied; earlier reasons are its history."
  (read-string "Reason for denying (sent to the model): "
               nil 'pyagentd-deny-reasons))

(defun pyagentd-deny (reason)
  "Deny what is asked for here, not the run as a whole.
With a prefix argument read a REASON, which the model is told."
  (interactive
   (progn (pyagentd-answer-current)
          (list (and current-prefix-arg (pyagentd-answer--read-reason)))))
  (pyagentd-answer-with (pyagentd-answer-current) 'deny :reason reason))

(defun pyagentd-deny-with-reason (reason)
  "Deny what is asked for here because of REASON, which the model is told."
  (interactive
   (progn (pyagentd-answer-current)
          (list (pyagentd-answer--read-reason))))
  (pyagentd-deny reason))

(defun pyagentd-ask--abort ()
  "Abort the run that asks here."
  (interactive nil pyagentd-mode)
  (pyagentd-answer-with (pyagentd-answer-current) 'abort))

(defun pyagentd-ask--next (&optional count)
  "Let the keys answer the next of several asks, or COUNT further on."
  (interactive "p" pyagentd-mode)
  (let* ((current (or (pyagentd-ask-notice-current)
                      (user-error "No question is open here")))
         (asks (with-current-buffer (or (buffer-base-buffer) (current-buffer))
                 (pyagentd-ask-in (current-buffer))))
         (place (mod (+ (seq-position asks current) (or count 1))
                     (length asks))))
    (pyagentd-ask-notice-select (nth place asks))
    (when (cdr asks)
      (message "%d of %d: %s" (1+ place) (length asks)
               (pyagentd-ask-title (nth place asks))))))

(defun pyagentd-ask--previous (&optional count)
  "Let the keys answer the previous of several asks, or COUNT further back."
  (interactive "p" pyagentd-mode)
  (pyagentd-ask--next (- (or count 1))))

(defun pyagentd-answer ()
  "Go to the open question here, or list those of all sessions.
Where nothing is asked and the last answer offers options, pick one of them."
  (interactive)
  (cond ((pyagentd-ask-notice-current) (pyagentd-ask--go))
        ((or (pyagentd-ask-open) (null pyagentd-reply-options)) (pyagentd-asks))
        (t (call-interactively #'pyagentd-reply-options--pick))))

(provide 'pyagentd-ask)
;;; pyagentd-ask.el ends here

;;; pyagentd-ask.el --- Approvals and questions in a conversation -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Show the daemon's asks (approvals and questions) in a notice at the prompt,
;; answer them by keys there, and pick replies that an answer offers.

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

;;;; Open asks

;; An ask is a question of a run to a human, most often whether a tool call
;; is allowed.  This file knows which asks are open and where each is shown:
;; in the conversation of the run and in the uppermost open one above it, so
;; that no agent's question stays unseen.
;;
;; An ask is a plist as the daemon sent it.  Its keys are :id, :branch,
;; :agent (id of the agent that asks, or nil), :kind (`tool', `scope' to
;; request more rights, `question' for a model's, with :questions), :tool,
;; :detail, :action, :reason, :preview (a diff or another text), :choices,
;; :remember (patterns of the actions that a lasting answer allows), :commands
;; (the commands of a shell command line), :patterns (the requested ones),
;; :input (the arguments, JSON), :path, and for display :who, :what, :lines
;; and :keys.

(defvar pyagentd-ask--pending nil
  "Open asks, oldest first.")

(defvar pyagentd-ask--answered nil
  "Ids of asks that were answered here and not settled by the daemon yet.")

(defvar pyagentd-ask-changed-hook nil
  "Hook run after the list of open asks, or the state of one, has changed.")

(defvar pyagentd-ask-new-functions nil
  "Functions called with each new ask.")

(defun pyagentd-ask-id (ask)
  "Return the id of ASK."
  (plist-get ask :id))

(defun pyagentd-ask-open ()
  "Return the open asks, oldest first."
  pyagentd-ask--pending)

(defun pyagentd-ask-find (id)
  "Return the open ask with ID, or nil."
  (seq-find (lambda (ask) (equal id (pyagentd-ask-id ask)))
            pyagentd-ask--pending))

(defun pyagentd-ask-answered-p (ask)
  "Return non-nil if ASK was answered here and the daemon has not replied yet."
  (member (pyagentd-ask-id ask) pyagentd-ask--answered))

(defun pyagentd-ask-note-answered (ask answered)
  "Record whether ASK was ANSWERED here."
  (setq pyagentd-ask--answered
        (delete (pyagentd-ask-id ask) pyagentd-ask--answered))
  (when answered
    (push (pyagentd-ask-id ask) pyagentd-ask--answered))
  (run-hooks 'pyagentd-ask-changed-hook))

(defun pyagentd-ask-add (ask &optional branch)
  "Add ASK, an event about BRANCH, to the open asks."
  (unless (pyagentd-ask-find (pyagentd-ask-id ask))
    (let ((branch (or (plist-get ask :branch) branch)))
      (setq ask (append (list :branch branch
                              ;; The branch and its parents, the root last.
                              :above (and branch (pyagentd-ask--chain branch)))
                        ask)))
    (setq pyagentd-ask--pending (append pyagentd-ask--pending (list ask)))
    (run-hooks 'pyagentd-ask-changed-hook)
    (pyagentd-run-functions 'pyagentd-ask-new-functions ask)))

(defun pyagentd-ask-remove (id)
  "Remove the ask ID from the open asks."
  (when-let ((ask (pyagentd-ask-find id)))
    (setq pyagentd-ask--pending (remq ask pyagentd-ask--pending)
          pyagentd-ask--answered (delete id pyagentd-ask--answered))
    (run-hooks 'pyagentd-ask-changed-hook)))

(defun pyagentd-ask-receive-all (asks)
  "Make ASKS the open asks of all sessions."
  (let ((pyagentd-ask-new-functions nil)
        (ids (mapcar #'pyagentd-ask-id asks)))
    (dolist (ask pyagentd-ask--pending)
      (unless (member (pyagentd-ask-id ask) ids)
        (pyagentd-ask-remove (pyagentd-ask-id ask))))
    (mapc #'pyagentd-ask-add asks)))

(defun pyagentd-ask-clear ()
  "Forget all asks here; they stay open in the daemon."
  (setq pyagentd-ask--pending nil
        pyagentd-ask--answered nil)
  (run-hooks 'pyagentd-ask-changed-hook))

;;;; Buffers that show an ask

(defun pyagentd-ask--chain (branch)
  "Return a list of the directories of BRANCH and its parents up to the root."
  (cons branch (when (string-match "/agents/[^/]+\\'" branch)
                 (pyagentd-ask--chain (substring branch 0 (match-beginning 0))))))

(defun pyagentd-ask-buffers (ask)
  "Return the buffers that show ASK: its branch's, and the uppermost parent's."
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
  "Return non-nil if ASK, which may be nil, contains questions of a model."
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

;;;; Fontified diffs

;; A diff has the faces of `diff-mode', and within hunks those of the file's
;; mode.  That mode sees the hunk only, not a comment that begins above it.

(defconst pyagentd-ask-look--most 40000
  "Length from which on a diff is not fontified by its file's mode.")

(defvar diff-font-lock-syntax)
(defvar diff-refine)

(defun pyagentd-ask-look (text)
  "Return the fontified lines of TEXT, a diff, each with its newline.
The text's file variables and the mode's hooks and messages are ignored."
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
          (message-log-max nil)) ; drops the modes' messages
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
  "Return the description of the agent that asks in ASK, or nil."
  (let ((who (plist-get ask :who)))
    (unless (member who '(nil "")) who)))

(defun pyagentd-ask-title (ask)
  "Return a one-line summary of ASK."
  (let ((who (pyagentd-ask-who ask)))
    (concat (and who (concat who ": ")) (or (plist-get ask :what) ""))))

(defun pyagentd-ask--segment ()
  "Return the header line's count of asks here, with who asks, or nil."
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
       'pyagentd-asks "List approvals and questions"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-ask--segment)

;;;; Text of an ask

;; The daemon decides which lines are shown, and their faces.  Here a diff is
;; fontified and shortened to fit its window: a notice that does not fit
;; cannot be scrolled.

(defun pyagentd-ask-text (ask &optional room place)
  "Return the text of ASK, with the string PLACE at the end of its first line.
A preview has at most ROOM lines, or all lines from the daemon if nil."
  (mapconcat (lambda (line)
               (concat (mapconcat (lambda (part)
                                    (pyagentd-ask-text-part part room))
                                  (plist-get line :parts) "")
                       (prog1 place (setq place nil))
                       "\n"))
             (plist-get ask :lines) ""))

(defun pyagentd-ask-text-part (part &optional room)
  "Return the text of PART, a part of a line.
A preview has at most ROOM lines, or all if nil."
  (pcase (and (consp part) (plist-get part :face))
    ((or "diff" "preview") (pyagentd-ask-text--preview part room))
    (_ (pyagentd-text part))))

(defun pyagentd-ask-text--preview (part room)
  "Return the text of PART, a diff or another preview.
It has at most ROOM lines, or all if nil; a shortened diff begins with its
first changed line."
  (let* ((text (plist-get part :text))
         (diff (equal "diff" (plist-get part :face)))
         (lines (if diff (pyagentd-ask-look text)
                  (mapcar (lambda (line)
                            (propertize (concat "  " line "\n")
                                        'face 'pyagentd-detail
                                        'wrap-prefix "  "))
                          (split-string text "\n"))))
         (first (and diff room      ; first changed line behind the file names
                     (seq-position (nthcdr 2 lines) nil
                                   (lambda (line _)
                                     (string-match-p "\\`[-+]" line)))))
         (skipped (if first (max 2 (1+ first)) 0))
         (shown (seq-take (nthcdr skipped lines) (or room (length lines))))
         (more (+ (or (plist-get part :more) 0)
                  (- (length lines) skipped (length shown)))))
    (if (= more 0) (substring (string-join shown) 0 -1)
      ;; Keep the newline: the background then extends to the window's edge.
      (concat (string-join shown)
              (propertize (format "  … %s" (pyagentd-count more "more line"))
                          'face 'shadow)))))

;;;; One letter for each decision

;; Each decision about an ask, and each way to view it, has the same letter
;; wherever asks are answered: on the question itself, in lists, beside a diff
;; and in menus.  In a conversation the letters work on the question only, not
;; in the text: `C-c C-c' goes to the question first.

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
  "List of (LETTER COMMAND WORD).
The daemon decides which of them an ask offers.")

(defun pyagentd-ask-offered (ask)
  "Return the letters that ASK offers, a list of (LETTER LABEL)."
  (mapcar (lambda (key) (list (string-to-char (plist-get key :key))
                              (plist-get key :label)))
          (seq-mapcat (lambda (row) (plist-get row :keys))
                      (plist-get ask :keys))))

(defun pyagentd-ask-keys-define (map)
  "Bind the letters to their commands in MAP, and return MAP."
  (pcase-dolist (`(,letter ,command . ,_) pyagentd-ask-keys map)
    (define-key map (vector letter) command)))

(defun pyagentd-ask-keys-header (ask without)
  "Return a header line with the keys for ASK, except for the command WITHOUT."
  (let ((offered (pyagentd-ask-offered ask)))
    (concat
     (mapconcat (pcase-lambda (`(,letter ,command ,word))
                  (if (or (eq command without) (not (assq letter offered))) ""
                    (concat " " (propertize (string letter) 'face 'pyagentd-key)
                            " " word " ")))
                pyagentd-ask-keys "")
     " " (propertize "q" 'face 'pyagentd-key) " close")))

;;;; Show asks in a conversation

;; While asks are open a notice is shown at the marker of the run.  It shows
;; the current ask, which the keys answer, and the others in a line each.  It
;; is an overlay, and goes when no ask is open any more.
;;
;; Text typed into the conversation never answers: `C-c C-c' moves point to
;; the question, and letters decide only there.  Any other command leaves the
;; question, and so does a change of the current ask.

(pyagentd-deflocal pyagentd-ask-notice--overlay nil
  "Overlay of the notice in this buffer, or nil.")
(pyagentd-deflocal pyagentd-ask-notice--current nil
  "Id of the current ask, which the keys answer, or nil.")

(pyagentd-deflocal pyagentd-ask-notice--focus nil
  "Overlay at point while point is on the question, else nil.
Its property `pyagentd-ask-back' is a marker at the previous point.")

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
  "Return the lines that name the keys for ASK.
SEVERAL is non-nil if other asks are open here, too."
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
  "Move point to the question ASK, where letters answer it."
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
    ;; The keymap of an empty overlay works only if the overlay's end advances.
    (let ((focus (make-overlay position position nil nil t)))
      (overlay-put focus 'keymap pyagentd-ask-notice-map)
      (overlay-put focus 'pyagentd-ask-id (pyagentd-ask-id ask))
      (overlay-put focus 'pyagentd-ask-back back)
      (setq pyagentd-ask-notice--focus focus))
    (add-hook 'post-command-hook #'pyagentd-ask-notice--look)
    (add-hook 'window-selection-change-functions #'pyagentd-ask-notice--look)
    (pyagentd-ask-notice-refresh)))

(defun pyagentd-ask-notice--unfocus ()
  "Turn off the keys of the question."
  (when pyagentd-ask-notice--focus
    (delete-overlay pyagentd-ask-notice--focus)
    (setq pyagentd-ask-notice--focus nil)))

(defun pyagentd-ask-notice--look (&rest _)
  "Turn off the keys of each question that point has left.
This is a global hook: when the window shows another buffer, no hook of the
question's own buffer runs."
  (unless (minibufferp (window-buffer)) ; a command of the question reads there
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
  "Leave the question at point, to show another buffer.
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
  "Return the notice for ASKS; CURRENT's preview has at most ROOM lines."
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
  "Return the number of screen lines of TEXT in a window of WIDTH columns."
  (apply #'+ (mapcar (lambda (line)
                       (max 1 (ceiling (string-width line) (max 1 width))))
                     (split-string (string-trim-right text "\n") "\n"))))

(defun pyagentd-ask-notice--fitted (current asks)
  "Return the notice for ASKS with the CURRENT one, fitted to its window."
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
  "Return TEXT filled to at most WIDTH columns, broken at spaces if possible.
If Emacs had to continue a line itself, it would draw the cursor there."
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
  "Scroll windows whose point is at the notice until all of it is visible."
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
  "Make ASK the current ask of this buffer, which keys answer."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (setq pyagentd-ask-notice--current (pyagentd-ask-id ask))
    (when pyagentd-ask-notice--focus
      (overlay-put pyagentd-ask-notice--focus 'pyagentd-ask-id
                   pyagentd-ask-notice--current))
    (pyagentd-ask-notice-refresh)))

(defun pyagentd-ask-notice--move (&rest _)
  "Move the notice of this buffer below the text of the run."
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
  "Show, update or remove the notice of this buffer."
  (if-let ((current (pyagentd-ask-notice-current)))
      (progn
        (setq pyagentd-ask-notice--current (pyagentd-ask-id current))
        (when (and pyagentd-ask-notice--focus ; point is on another question
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
  "Schedule a refresh of the notice in WINDOW, whose size has changed."
  (with-current-buffer (window-buffer window)
    (when pyagentd-ask-notice--overlay
      (pyagentd-later-soon #'pyagentd-ask-notice-refresh))))

(add-to-list 'pyagentd-session-hooks
             '(window-size-change-functions . pyagentd-ask-notice--resized))

(defun pyagentd-ask-notice--refresh-all ()
  "Refresh the notices of all session buffers."
  (let ((asking (seq-mapcat #'pyagentd-ask-buffers (pyagentd-ask-open))))
    (dolist (buffer (pyagentd-place-buffers))
      (when (or (memq buffer asking)
                (buffer-local-value 'pyagentd-ask-notice--overlay buffer))
        (with-current-buffer buffer
          (pyagentd-ask-notice-refresh)
          (pyagentd-status-refresh))))))

(defun pyagentd-ask-notice-visible-p (buffer)
  "Return non-nil if a window shows the notice in BUFFER.
A window with point at the notice counts: redisplay will show it."
  (when-let* ((overlay (buffer-local-value 'pyagentd-ask-notice--overlay buffer))
              (position (overlay-start overlay)))
    (seq-some (lambda (window)
                (or (= position (window-point window))
                    (pos-visible-in-window-p position window)))
              (get-buffer-window-list buffer nil 'visible))))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-ask-notice--refresh-all)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-ask-notice--delete)

;;;; The ask that a buffer's commands answer

;; Commands answer the current ask of the notice, the one at point in a list,
;; or the one whose arguments, diff or details a buffer shows.  Such a buffer
;; stays when the ask is answered elsewhere, and says so.

(defvar-local pyagentd-ask-function nil
  "Function that returns the ask which commands in this buffer answer, or nil.
If the variable is nil they answer the current ask of the notice.")

(pyagentd-deflocal pyagentd-ask-here-about nil
  "The ask that this buffer shows, or nil.
It is a list (ID OPEN ANSWERED PASSING).  OPEN and ANSWERED are the header
lines while it is open and after; if PASSING is non-nil, the buffer's windows
quit once it was answered here.")

(defun pyagentd-ask-here-set (ask open answered &optional passing)
  "Make ASK the ask that commands in this buffer answer.
OPEN and ANSWERED are the header lines while it is open and after.
If PASSING is non-nil, the buffer's windows quit once it was answered here."
  (let ((id (pyagentd-ask-id ask)))
    (setq pyagentd-ask-function (lambda () (pyagentd-ask-find id))
          pyagentd-ask-here-about (list id open answered passing)
          header-line-format open)))

(defun pyagentd-ask-here--on-change ()
  "Update the header lines of buffers that show one ask."
  (dolist (buffer (buffer-list))
    (when-let ((about (buffer-local-value 'pyagentd-ask-here-about buffer)))
      (with-current-buffer buffer
        (cond ((pyagentd-ask-find (car about))
               (setq header-line-format (nth 1 about)))
              ((pyagentd-rpc-connected-p) ; without the daemon it is unknown
               (setq header-line-format (nth 2 about))))
        (force-mode-line-update)))))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-ask-here--on-change)

(pyagentd-deflocal pyagentd-ask-here--back nil
  "Function that goes back to the question that opened this buffer, or nil.")

(defun pyagentd-ask-here-display ()
  "Show this buffer and select its window: its keys are letters."
  (setq pyagentd-ask-here--back (pyagentd-ask-notice-aside))
  (pop-to-buffer (current-buffer)))

(defun pyagentd-ask--here-quit ()
  "Close this window, and go back to the question that opened it."
  (interactive)
  (let ((back pyagentd-ask-here--back))
    (quit-window)
    (when back (funcall back))))

(defun pyagentd-ask-here ()
  "Return the ask that commands in this buffer answer, or nil."
  (if pyagentd-ask-function
      (funcall pyagentd-ask-function)
    (pyagentd-ask-notice-current)))

;;;; Pick a reply that an answer offers

(declare-function pyagentd-add-above "pyagentd-add")
(declare-function pyagentd-send "pyagentd-chat")

(pyagentd-deflocal pyagentd-reply-options nil
  "Replies that the last answer here offers, a plist (:options :several).
Each option is a plist of :label and :text, the reply.")
(pyagentd-deflocal pyagentd-reply-options--overlay nil
  "Overlay of the buttons in this buffer, or nil.")

(dotimes (index 9)
  (define-key pyagentd-mode-map (kbd (format "C-c %d" (1+ index)))
    `(menu-item "" pyagentd-reply-options--pick
                :filter ,(lambda (command)
                           (and pyagentd-reply-options command)))))

(defun pyagentd-reply-options--button (option index)
  "Return a button for OPTION, the one with INDEX."
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
  "Show OPTIONS, a plist like `pyagentd-reply-options', in this buffer.
If OPTIONS is nil, only remove the previous buttons."
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
  "Send option NUMBER of the last answer; interactively the digit typed.
A draft below the answer is kept.  With a prefix argument, or ONLY-PUT from
Lisp, only insert the option into the prompt; if several options may be
picked, that is the default."
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

;;;; Answer an ask

;; These commands answer an ask: the current one of the notice in a
;; conversation, or the one at point in a list.  Answers are sent without
;; waiting for the daemon.

(declare-function pyagentd-abort "pyagentd-chat")

(defun pyagentd-answer-current ()
  "Return the ask that commands here answer, or signal a `user-error'."
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
REASON is sent to the model.  INPUT, JSON, replaces the tool's arguments;
ANSWERS, JSON, answer its questions.  Call THEN once the daemon has the
answer.

The request also has the environment and API key with which the run
continues: a restarted daemon has none."
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
               ;; Windows that only served to answer it.
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
  "Allow the open ask here, this one time.
Answer a model's questions in a form."
  (interactive)
  (let ((ask (pyagentd-answer-current)))
    (if (pyagentd-ask-question-p ask)
        (pyagentd-question-open ask)
      (pyagentd-answer-with ask 'allow))))

(defun pyagentd-answer--lasting (ask decision)
  "Allow ASK with DECISION, `session' or `always', after confirmation.
The prompt has the daemon's sentence about what that allows from now on, and
where; only the letter y grants it."
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
  "Allow the open ask here as long as the session lives.
The grant is for the session with all its agents.  It is described and has
to be confirmed; the list of grants shows and revokes it."
  (interactive)
  (pyagentd-answer--lasting (pyagentd-answer-current) 'session))

(defun pyagentd-allow-always ()
  "Allow the open ask here always, in all sessions of the project.
The grant is described and has to be confirmed; the list of grants shows and
revokes it.  If the agent requests more rights, they are added to the scope
in preset.md."
  (interactive)
  (pyagentd-answer--lasting (pyagentd-answer-current) 'always))

(defvar pyagentd-deny-reasons nil
  "History of reasons for denying, latest first.")

(defun pyagentd-answer--read-reason ()
  "Read a reason for denying, with earlier reasons as history."
  (read-string "Reason for denying (sent to the model): "
               nil 'pyagentd-deny-reasons))

(defun pyagentd-deny (reason)
  "Deny the open ask here; the run continues.
With a prefix argument read a REASON, which is sent to the model."
  (interactive
   (progn (pyagentd-answer-current)
          (list (and current-prefix-arg (pyagentd-answer--read-reason)))))
  (pyagentd-answer-with (pyagentd-answer-current) 'deny :reason reason))

(defun pyagentd-deny-with-reason (reason)
  "Deny the open ask here with a REASON, which is sent to the model."
  (interactive
   (progn (pyagentd-answer-current)
          (list (pyagentd-answer--read-reason))))
  (pyagentd-deny reason))

(defun pyagentd-ask--abort ()
  "Abort the run that asks here."
  (interactive nil pyagentd-mode)
  (pyagentd-answer-with (pyagentd-answer-current) 'abort))

(defun pyagentd-ask--next (&optional count)
  "Make the next ask, or the COUNTth, the current one, which the keys answer."
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
  "Make the previous ask, or the COUNTth before, the current one."
  (interactive "p" pyagentd-mode)
  (pyagentd-ask--next (- (or count 1))))

(defun pyagentd-answer ()
  "Go to the open question here, or list those of all sessions.
If no question is open and the last answer offers options, pick one of them."
  (interactive)
  (cond ((pyagentd-ask-notice-current) (pyagentd-ask--go))
        ((or (pyagentd-ask-open) (null pyagentd-reply-options)) (pyagentd-asks))
        (t (call-interactively #'pyagentd-reply-options--pick))))

(provide 'pyagentd-ask)
;;; pyagentd-ask.el ends here

;;; pyagentd-status.el --- The header line -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What a session is doing, its context and cost, todos, and its name.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-edit)

(declare-function pyagentd-plan--agent-words "pyagentd-chat")

;;;; What an error says, in few words

(defun pyagentd-status-words-reason (message)
  "Return MESSAGE, of an error, as short as a header line needs it.
Of a file only its own name is left, and what is said of one of its lines
stands first."
  (let ((text (string-replace "\n" " " (string-trim (or message "")))))
    (when (string-match "/\\([^/ :]+:[0-9]+: .*\\)" text)
      (setq text (match-string 1 text)))
    (replace-regexp-in-string
     "\\(\\`\\|[ (\"'`]\\)~?/\\(?:[^/ :]+/\\)+\\([^/ :]\\)" "\\1\\2" text)))

;;;; Parts of a header line to click

(defvar pyagentd-status-button-map
  (pyagentd-keymap
   [header-line mouse-1] #'pyagentd-status--click
   [header-line mouse-2] #'pyagentd-status--click
   [mouse-1] #'pyagentd-status--click
   [mouse-2] #'pyagentd-status--click
   [down-mouse-1] #'ignore)             ; else it sets point first
  "Keymap of parts of a header line, and of a notice in the text.")

(defun pyagentd-status-button (text command &optional help)
  "Return TEXT as a part of what is shown, a click on which runs COMMAND.
HELP says in a few words what that does."
  (let ((text (copy-sequence text))
        (key (and help (where-is-internal command pyagentd-mode-map t))))
    (add-text-properties
     0 (length text)
     (list 'pyagentd-command command
           'mouse-face 'highlight
           'help-echo (concat (and help (concat help "\n"))
                              (format "mouse-1: M-x %s" command)
                              (and key (format " (%s)" (key-description key))))
           'keymap pyagentd-status-button-map)
     text)
    text))

(defun pyagentd-status--click (event)
  "Run the command of the part of a header line that was clicked in EVENT."
  (interactive "e"
               pyagentd-mode)
  (let* ((place (event-start event))
         (string (posn-string place))
         (command (and string (get-text-property (cdr string) 'pyagentd-command
                                                 (car string)))))
    (when command
      (select-window (posn-window place))
      (call-interactively command))))

;;;; What a session is doing

(pyagentd-deflocal pyagentd-status nil
  "What the daemon said last about this branch, a plist with :state.
The state is one of the symbols `idle', `busy', `retrying', `waiting' and
`error', and here also `sending'; nil without a daemon.  The :phase of a
busy one is that of gptel's machine: WAIT, TYPE or TOOL, with :tools.")
(pyagentd-deflocal pyagentd-status-preset nil
  "Name of the preset of this branch.")
(pyagentd-deflocal pyagentd-status-unconfined nil
  "Why commands of this session are not confined; nil or \"\" if they are.")
(pyagentd-deflocal pyagentd-status-model nil
  "Name of the model of this branch.")
(pyagentd-deflocal pyagentd-status-hindrance nil
  "Why nothing can be written here, a few words; nil if it can.")
(pyagentd-deflocal pyagentd-status-refusal nil
  "Why the daemon does not take part in this session, a line, or nil.")
(pyagentd-deflocal pyagentd-status-silent nil
  "Non-nil while the daemon does not say that it has a prompt.")
(pyagentd-deflocal pyagentd-status-title nil
  "Title of the session in this buffer, nil if it has none.")
(pyagentd-deflocal pyagentd-status--line nil
  "The header line, computed when something changes.")

(pyagentd-deflocal pyagentd-status--narrow nil
  "Header lines for windows with less room, an alist (WIDTH . LINE).")

(defvar pyagentd-status-segment-functions nil
  "Functions that return more to say in the header line, a string or nil.
They are called in the session buffer.")

;;;; What a run does

(defvar pyagentd-status--countdown nil
  "Timer that counts down to the next attempt, in all session buffers.")

(defun pyagentd-status--count-down ()
  "Show how long it is to the next attempt where one is awaited."
  (let ((waiting nil))
    (dolist (buffer (buffer-list))
      (when (eq (plist-get (buffer-local-value 'pyagentd-status buffer) :state)
                'retrying)
        (setq waiting t)
        (with-current-buffer buffer (pyagentd-status-refresh))))
    (unless waiting
      (cancel-timer pyagentd-status--countdown)
      (setq pyagentd-status--countdown nil))))

(defun pyagentd-status--queued ()
  "Return how many messages wait, in words, or nil."
  (let ((number (or (plist-get pyagentd-status :queued) 0)))
    (when (> number 0)
      (pyagentd-status-button
       (if (plist-get pyagentd-status :paused)
           (propertize (format "%d queued, paused" number) 'face 'warning)
         (propertize (format "%d queued" number) 'face 'shadow))
       'pyagentd-queue "Messages that wait for their turn"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-status--queued)

(defun pyagentd-status--words (status)
  "Return what there is to say of STATUS, see variable `pyagentd-status'.
That is (TEXT FACE COMMAND HELP), of what a click runs nil for the inspector."
  (pcase (plist-get status :state)
    ((and 'nil (guard pyagentd-status-refusal))
     (list (concat "Not connected: "
                   (pyagentd-status-words-reason pyagentd-status-refusal))
           'error 'pyagentd-visit-cause pyagentd-status-refusal))
    ('nil '("Not connected" shadow
            pyagentd-connect "No daemon is running; your text is kept"))
    ('idle '("Ready" success))
    ((and 'sending (guard pyagentd-status-silent))
     '("The daemon does not answer" error
       pyagentd-doctor "Your message waits for the daemon"))
    ('sending '("Waiting..." warning))
    ('busy                              ; in gptel's words
     (let ((tools (mapcar (lambda (call)
                            (truncate-string-to-width call 40 nil nil t))
                          (plist-get status :tools))))
       (pcase (pyagentd-symbol (plist-get status :phase))
         ('TYPE '("Typing..." success))
         ('COMPACT '("Compacting..." warning))
         ((guard (null tools)) '("Waiting..." warning))
         (_ (list (format (if (cdr tools) "Calling tools (%s)"
                            "Calling tool (%s)")
                          (string-join tools ", "))
                  'warning)))))
    ('waiting '("Waiting for your answer" warning
                pyagentd-answer "An approval or question is pending"))
    ('retrying
     (list
      (concat "Retrying"
              (when-let ((attempt (plist-get status :attempt)))
                (format " (%s%s failed)" attempt
                        (if-let ((most (plist-get status :max-attempts)))
                            (format " of %s" most)
                          "")))
              (if-let ((time (plist-get status :retry-at)))
                  (format " in %d s" (max 0 (ceiling (- (/ time 1000.0)
                                                        (float-time)))))
                "…")
              (when-let ((message (plist-get status :message)))
                (concat ": " message)))
      'warning))
    ('error (let ((message (plist-get status :message)))
              (list (concat "Error: " (pyagentd-status-words-reason message))
                    'error 'pyagentd-inspect (or message "The run failed"))))
    (state (list (format "%s" state)))))

(defun pyagentd-status--text (status)
  "Return STATUS, see variable `pyagentd-status', in words."
  (pcase-let ((`(,text ,face) (pyagentd-status--words status)))
    (propertize text 'face face)))

(defun pyagentd-status-busy-p ()
  "Return non-nil if a run is going on in this buffer."
  (memq (plist-get pyagentd-status :state)
        '(sending busy retrying waiting)))

(defun pyagentd-status-set (status)
  "Show STATUS, a plist as the daemon sends it, in the header line."
  (setq status (plist-put (copy-sequence status) :state
                          (pyagentd-symbol (plist-get status :state))))
  (unless (equal status pyagentd-status)
    (setq pyagentd-status status)
    (when (and (eq (plist-get status :state) 'retrying)
               (null pyagentd-status--countdown))
      (setq pyagentd-status--countdown
            (run-at-time 1 1 #'pyagentd-status--count-down)))
    (pyagentd-status-refresh)))

(defun pyagentd-status-set-title (title)
  "Show TITLE, a string or nil, in the header line."
  (setq title (and title (not (equal title "")) title))
  (unless (equal title pyagentd-status-title)
    (setq pyagentd-status-title title)
    (pyagentd-status-refresh)
    (pyagentd-name-buffer title)))

(defvar-local pyagentd-status--agent nil
  "Whether a named agent is in this buffer, as (DIRECTORY . VALUE), or nil.")

(defconst pyagentd-status--rooms
  '((:name 1000 :state 1000 :preset 1000 :segments 1000)
    (:name 40 :state 100 :preset 1000 :segments 1000)
    (:name 24 :state 60 :preset 1000 :segments 1000)
    (:name 24 :state 40 :preset 14 :segments 1000)
    (:name 16 :state 30 :preset 14 :segments 1000)
    (:name 16 :state 30 :segments 1000)
    (:name 12 :state 16 :segments 24))
  "How many columns parts of the header line have at most, widest first.
A part without any is left out; the model is always whole.")

(defun pyagentd-status--cut (text width)
  "Return TEXT in at most WIDTH columns."
  (truncate-string-to-width text width nil nil t))

(defun pyagentd-status--name (room)
  "Return what the session is called, and a branch that is not the first, for ROOM."
  (unless (equal (car pyagentd-status--agent) pyagentd--branch-dir)
    (setq pyagentd-status--agent
          (cons pyagentd--branch-dir
                (pyagentd-place-named-agent pyagentd--session-dir))))
  (let* ((agent (cdr pyagentd-status--agent))
         (width (plist-get room :name))
         (id (pyagentd-status--cut (or pyagentd--session-id "") width))
         (title (pyagentd-status--cut (or pyagentd-status-title "") width)))
    (concat (pyagentd-status-button
             (cond ((not agent) (if (string-empty-p title) id title))
                   ((member title (list "" id)) (propertize id 'face 'bold))
                   (t (concat (propertize id 'face 'bold) ": " title)))
             (if agent 'pyagentd-agent-config 'pyagentd-rename)
             (format "%s\n%s" (or pyagentd--session-id "")
                     (abbreviate-file-name (or pyagentd--branch-dir ""))))
            (unless (member pyagentd--branch-name '(nil "main"))
              (concat "  "
                      (pyagentd-status-button
                       (propertize pyagentd--branch-name 'face 'shadow)
                       'pyagentd-branches "Branch"))))))

(defun pyagentd-status--state (room)
  "Return what the run does, as ROOM allows; a click shows more of it."
  (pcase-let ((`(,text ,face ,command ,help)
               (pyagentd-status--words pyagentd-status))
              (width (plist-get room :state)))
    (when (and (eq command 'pyagentd-answer) (< width 60))
      (setq text "Asks you"))
    (pyagentd-status-button
     (pyagentd-status--cut (propertize text 'face face) width)
     (or command 'pyagentd-inspect)
     (or help "Inspect the requests of this run"))))

(defun pyagentd-status--right (room)
  "Return what stands at the right: who writes, preset and model, as ROOM allows."
  (string-join
   (delq nil
         (list (and pyagentd-status-hindrance
                    (propertize pyagentd-status-hindrance 'face 'warning))
               (unless (member pyagentd-status-unconfined '(nil ""))
                 (pyagentd-status-button (propertize "not confined"
                                                     'face 'warning)
                                         'pyagentd-doctor
                                         pyagentd-status-unconfined))
               (when-let ((room (plist-get room :preset))
                          (agent (or (pyagentd-plan--agent-words)
                                     pyagentd-status-preset)))
                 (pyagentd-status-button
                  (pyagentd-status--cut agent room) 'pyagentd-choose-agent
                  "Agent: instructions, tools and permissions"))
               (and pyagentd-status-model
                    (pyagentd-status-button pyagentd-status-model
                                            'pyagentd-choose-model
                                            "Model"))))
   "  "))

(defface pyagentd-header '((((type tty)) :inherit default :underline t)
                           (t nil))
  "Base face of the header line of a session.
Terminals draw header lines in inverse colours, in which other faces
could not be read."
  :group 'pyagentd)

(defun pyagentd-status--make (room)
  "Return the header line; ROOM is one of `pyagentd-status--rooms'."
  (let* ((right (pyagentd-status--right room))
         (segments (mapconcat (lambda (function)
                                (if-let ((segment (funcall function)))
                                    (concat segment "  ")
                                  ""))
                              pyagentd-status-segment-functions ""))
         (line (concat
                " " (pyagentd-status--name room) "  "
                (pyagentd-status--state room) "  "
                (pyagentd-status--cut segments (plist-get room :segments))
                (and pyagentd-session-trouble
                     (pyagentd-status-button
                      (propertize pyagentd-session-trouble 'face 'error)
                      'save-buffer "The file lacks your text: save it"))
                (propertize " " 'display
                            `(space :align-to
                                    (- right ,(1+ (string-width right)))))
                (progn (add-face-text-property 0 (length right) 'shadow t right)
                       right))))
    ;; What it says is no format of a mode line.
    (setq line (replace-regexp-in-string
                "%" (lambda (sign) (concat sign sign)) line t t))
    (add-face-text-property 0 (length line) 'pyagentd-header t line)
    line))

(defvar pyagentd-status-held nil
  "Non-nil while several things change, after which the header line is computed.")

(defun pyagentd-status-refresh ()
  "Compute the header line again."
  (unless pyagentd-status-held
    (setq pyagentd-status--line (pyagentd-status--make
                                 (car pyagentd-status--rooms))
          pyagentd-status--narrow nil)
    (force-mode-line-update)))

(defun pyagentd-status--shown ()
  "Return the header line as far as there is room for it in this window."
  (let ((width (window-width)))
    (if (<= (string-width (or pyagentd-status--line "")) width)
        pyagentd-status--line
      (or (alist-get width pyagentd-status--narrow)
          (setf (alist-get width pyagentd-status--narrow)
                (let ((rooms (cdr pyagentd-status--rooms)) line)
                  (while (and rooms
                              (> (string-width (setq line (pyagentd-status--make
                                                           (pop rooms))))
                                 width)))
                  line))))))

(add-hook 'pyagentd-session-trouble-hook #'pyagentd-status-refresh)

(add-to-list 'pyagentd-session-settings
             '(header-line-format . (:eval (pyagentd-status--shown))))

;;;; How full the window is and what it cost

(pyagentd-deflocal pyagentd-context nil
  "What the daemon said last about the context of this branch, or nil.
A plist; used of it are :used of :window tokens, :usable of them before it
is compacted, :estimated, :known-usd, :short, tokens and cost in a few
characters, and :words, all of it in lines.")

(defconst pyagentd-context--cells 5
  "How many characters the bar has.")

(defun pyagentd-context--segment ()
  "Return the meter of this buffer, nil before there is anything to say."
  (when-let* ((context pyagentd-context)
              (used (plist-get context :used))
              ((or (> used 0) (> (or (plist-get context :known-usd) 0) 0))))
    (let* ((share (/ (float used) (max 1 (plist-get context :window))))
           (usable (max 1 (or (plist-get context :usable) 0)))
           ;; A header line has no display table of its buffer.
           (blocks (and (char-displayable-p ?█) (char-displayable-p ?▁)))
           (full (min pyagentd-context--cells
                      (ceiling (* share pyagentd-context--cells)))))
      (pyagentd-status-button
       (format "[%s %s%d%% %s]"
               (propertize (concat (make-string full (if blocks ?█ ?#))
                                   (make-string (- pyagentd-context--cells full)
                                                (if blocks ?▁ ?.)))
                           'face (cond ((>= used (* 0.9 usable)) 'error)
                                       ((>= used (* 0.66 usable)) 'warning)
                                       (t 'success)))
               (if (plist-get context :estimated) "~" "")
               (round (* 100 share))
               (plist-get context :short))
       'pyagentd-context (string-join (plist-get context :words) "\n")))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-context--segment 90)

(defun pyagentd-context-set (context)
  "Show CONTEXT, a plist as the daemon sends it, in the header line."
  (when (and context (not (equal context pyagentd-context)))
    (setq pyagentd-context context)
    (pyagentd-status-refresh)))

(pyagentd-define-event context `(,context)
  "Show the context."
  (pyagentd-context-set context))

(defun pyagentd-context ()
  "Show how full the context window is and what the session cost."
  (interactive nil pyagentd-mode)
  (if pyagentd-context
      (message "%s" (string-join (plist-get pyagentd-context :words) "\n"))
    (user-error "No context usage known yet")))

;;;; What an agent is about

(defcustom pyagentd-todo-folded nil
  "Whether an agent's todo list is folded at first.
The header line always shows its progress."
  :type 'boolean
  :group 'pyagentd)

(pyagentd-deflocal pyagentd-todo nil
  "The steps of the agent in this buffer, as the daemon sent them.
Each is a plist: :content, :status (\"pending\", \"in_progress\" or
\"completed\") and :active-form, what it is called while it is done.")
(pyagentd-deflocal pyagentd-todo--overlay nil
  "Overlay of the list in this buffer, nil if there is none.")
(pyagentd-deflocal pyagentd-todo--turned nil
  "Non-nil if the list is folded here, unlike `pyagentd-todo-folded' says.")

(defvar pyagentd-todo-map
  (pyagentd-keymap
   [mouse-1] #'pyagentd-todo)
  "Keymap of the list and of what the header line says of it.")

;;;; Words

(defun pyagentd-todo--is (step status)
  "Return non-nil if STEP has STATUS, a string."
  (equal status (format "%s" (plist-get step :status))))

(defun pyagentd-todo--done ()
  "Return how many steps are completed."
  (seq-count (lambda (step) (pyagentd-todo--is step "completed"))
             pyagentd-todo))

(defun pyagentd-todo-count ()
  "Return how many of the steps here are completed, nil if there is no list."
  (and pyagentd-todo
       (format "%d/%d" (pyagentd-todo--done) (length pyagentd-todo))))

(defun pyagentd-todo-line ()
  "Return in a line how far the agent here is, nil if it has no list."
  (when pyagentd-todo
    (let ((doing (seq-find (lambda (step) (pyagentd-todo--is step "in_progress"))
                           pyagentd-todo)))
      (format "todo %s%s" (pyagentd-todo-count)
              (if doing (concat ": " (plist-get doing :active-form)) "")))))

(defun pyagentd-todo--segment ()
  "Return what the header line says of the list here, or nil."
  (when-let ((line (pyagentd-todo-line)))
    (pyagentd-status-button
     (propertize (truncate-string-to-width line 50 nil nil t)
                 'face (if (= (pyagentd-todo--done) (length pyagentd-todo))
                           'success 'shadow))
     'pyagentd-todo "The agent's list of steps")))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-todo--segment)

(defun pyagentd-todo--text ()
  "Return the list as it stands in the conversation."
  (let ((folded (xor pyagentd-todo-folded pyagentd-todo--turned)))
    (propertize
     (concat "\n" (propertize (concat (if folded "▸ " "▾ ") (pyagentd-todo-line))
                              'face 'pyagentd-detail)
             "\n"
             (unless folded
               (mapconcat
                (lambda (step)
                  (cond ((pyagentd-todo--is step "completed")
                         (propertize (concat "  [x] " (plist-get step :content) "\n")
                                     'face 'shadow))
                        ((pyagentd-todo--is step "in_progress")
                         (propertize (concat "  [>] " (plist-get step :active-form)
                                             "\n")
                                     'face 'warning))
                        (t (concat "  [ ] " (plist-get step :content) "\n"))))
                pyagentd-todo "")))
     'keymap pyagentd-todo-map 'mouse-face 'highlight
     'help-echo "mouse-1: fold or unfold")))

;;;; The overlay

(defun pyagentd-todo--move (&rest _)
  "Put the list at the end of the run's text, above the prompt typed next."
  (when pyagentd-todo--overlay
    (let ((position (pyagentd-insert-end)))
      (move-overlay pyagentd-todo--overlay position position))))

(add-hook 'pyagentd-insert-functions #'pyagentd-todo--move)

(defun pyagentd-todo--delete ()
  "Remove the list from this buffer."
  (when pyagentd-todo--overlay
    (delete-overlay pyagentd-todo--overlay)
    (setq pyagentd-todo--overlay nil)))

(defun pyagentd-todo--refresh ()
  "Show the steps in this buffer, if there are any that are not completed."
  (if (= (pyagentd-todo--done) (length pyagentd-todo))
      (pyagentd-todo--delete)
    (unless pyagentd-todo--overlay
      (setq pyagentd-todo--overlay (make-overlay (point-min) (point-min) nil t))
      (overlay-put pyagentd-todo--overlay 'priority -10))
    (overlay-put pyagentd-todo--overlay 'before-string (pyagentd-todo--text))
    (pyagentd-todo--move))
  (pyagentd-status-refresh))

(defun pyagentd-todo-receive (steps)
  "Show STEPS, all that the agent in this buffer has."
  (unless (equal steps pyagentd-todo)
    (setq pyagentd-todo steps)
    (pyagentd-todo--refresh)))

(pyagentd-define-event todo `(,todo)
  "Show the steps."
  (pyagentd-todo-receive (plist-get todo :items)))

(add-hook 'pyagentd-session-leave-hook
          (lambda ()
            (setq pyagentd-todo nil)
            (pyagentd-todo--delete)))

(defun pyagentd-todo ()
  "Fold or unfold the list of steps of the agent in this buffer."
  (interactive nil pyagentd-mode)
  (when (mouse-event-p last-input-event)
    (mouse-set-point last-input-event))
  (unless pyagentd-todo
    (user-error "The agent here has no list of steps"))
  (if (not pyagentd-todo--overlay)
      (message "%s: %s" (pyagentd-todo-line)
               (mapconcat (lambda (step) (plist-get step :content))
                          pyagentd-todo ", "))
    (setq pyagentd-todo--turned (not pyagentd-todo--turned))
    (pyagentd-todo--refresh)))

;;;; What session buffers are called

;; Every conversation is in a file called session.md.  Its buffer is called
;; what the session is called: from the beginning after the name that is
;; in its id, and after its title as soon as that is known.  An agent's has
;; the name of its preset before that, a branch follows in parentheses.
;;
;; Another buffer never changes its name because of that, and one that the
;; user has renamed keeps its name.

(pyagentd-deflocal pyagentd-buffer-name--given nil
  "The name that this buffer was given here, nil if it was given none.")

(defun pyagentd-buffer-name--wanted (title)
  "Return what the buffer of a session with TITLE, or nil, is to be called."
  (let* ((id pyagentd--session-id)
         (agent (pyagentd-place-named-agent pyagentd--session-dir))
         (words (cond ((not (pyagentd-place-agent-p))
                       (or title (replace-regexp-in-string
                                  "-[0-9]\\{14\\}\\(?:-[0-9]+\\)?\\'" "" id)))
                      ((string-match "\\`\\(.+?\\)-[0-9]\\{14\\}-\\(.+\\)\\'" id)
                       (format "%s: %s" (match-string 1 id)
                               (or title (match-string 2 id))))
                      (t (or title id))))
         (name (if agent (format "agent %s" agent)
                 (truncate-string-to-width words 60 nil nil "…"))))
    (if (equal pyagentd--branch-name "main") name
      (format "%s (%s)" name
              (string-trim-left pyagentd--branch-name "[0-9]\\{14\\}-")))))

(defun pyagentd-name-buffer (&optional title)
  "Name the current session buffer after its TITLE, or else after its id.
It keeps a name that the user gave it."
  (when (and pyagentd-mode
             (equal (buffer-name) pyagentd-buffer-name--given))
    (let ((name (generate-new-buffer-name (pyagentd-buffer-name--wanted title)
                                          (buffer-name))))
      ;; Not with a second argument: then `uniquify' names others anew.
      (unless (equal name (buffer-name))
        (rename-buffer name))
      (setq pyagentd-buffer-name--given name))))

(defun pyagentd-buffer-name--begin ()
  "Name the buffer of a session that was visited just now."
  (unless pyagentd-buffer-name--given
    (setq pyagentd-buffer-name--given (buffer-name)))
  (pyagentd-name-buffer pyagentd-status-title))

(add-hook 'pyagentd-mode-on-hook #'pyagentd-buffer-name--begin)

;;;; The file that is the cause of an error

(defun pyagentd-cause (text)
  "Return the file that TEXT, of an error, is about as (FILE . LINE), or nil.
LINE is nil if it names none.  A file with a line goes before others;
that of this buffer does not count."
  (let ((start 0) found)
    (while (and (not (cdr found))
                (string-match
                 "\\(/[^ \n:]+\\.\\(?:toml\\|md\\|json\\|yml\\)\\)\\(?::\\([0-9]+\\)\\)?"
                 text start))
      (setq start (match-end 0))
      (let ((file (match-string 1 text))
            (line (match-string 2 text)))
        (when (and (file-exists-p file) (or line (not found))
                   (not (equal file buffer-file-name)))
          (setq found (cons file (and line (string-to-number line)))))))
    found))

(defun pyagentd-cause-visit (cause)
  "Visit the file of CAUSE, see `pyagentd-cause', at its line."
  (find-file-other-window (car cause))
  (when (cdr cause)
    (goto-char (point-min))
    (forward-line (1- (cdr cause)))))

;;;; What keeps the daemon from a session

(defun pyagentd-cause--refused (&optional err)
  "Show that the daemon refuses this session, for ERR; without one, no longer."
  (unless (and err (not (eq (car err) 'pyagentd-remote-error)))
    (let ((refusal (and err (pyagentd-error-text err))))
      (unless (equal refusal pyagentd-status-refusal)
        (setq pyagentd-status-refusal refusal)
        (pyagentd-status-refresh)))))

(defun pyagentd-visit-cause ()
  "Visit the file whose error keeps this session from continuing.
Correct and save it, then send again."
  (interactive nil pyagentd-mode)
  (pyagentd-cause-visit
   (with-current-buffer (or (buffer-base-buffer) (current-buffer))
     (or (pyagentd-cause (or pyagentd-status-refusal
                             (plist-get pyagentd-status :message)
                             ""))
         (user-error "No error here names a file to correct")))))

(add-hook 'pyagentd-attach-failed-functions #'pyagentd-cause--refused)
(add-hook 'pyagentd-attached-hook #'pyagentd-cause--refused)
(add-hook 'pyagentd-session-read-hook #'pyagentd-cause--refused)

(provide 'pyagentd-status)
;;; pyagentd-status.el ends here

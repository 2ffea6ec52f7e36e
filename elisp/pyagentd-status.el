;;; pyagentd-status.el --- The header line -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The header line of a session: its name, state, context usage, cost and
;; todo list.  Also names of session buffers, and files that cause errors.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-edit)

(declare-function pyagentd-plan--agent-words "pyagentd-chat")

;;;; Short error messages

(defun pyagentd-status-words-reason (message)
  "Return the error MESSAGE, shortened for the header line.
Drop the directories of file names, and the text before a FILE:LINE."
  (let ((text (string-replace "\n" " " (string-trim (or message "")))))
    (when (string-match "/\\([^/ :]+:[0-9]+: .*\\)" text)
      (setq text (match-string 1 text)))
    (replace-regexp-in-string
     "\\(\\`\\|[ (\"'`]\\)~?/\\(?:[^/ :]+/\\)+\\([^/ :]\\)" "\\1\\2" text)))

;;;; Buttons in a header line

(defvar pyagentd-status-button-map
  (pyagentd-keymap
   [header-line mouse-1] #'pyagentd-status--click
   [header-line mouse-2] #'pyagentd-status--click
   [mouse-1] #'pyagentd-status--click
   [mouse-2] #'pyagentd-status--click
   [down-mouse-1] #'ignore)             ; it would move point first
  "Keymap of buttons in a header line or in a notice in the text.")

(defun pyagentd-status-button (text command &optional help)
  "Return TEXT as a button that runs COMMAND when clicked.
HELP is a short description of that for the tooltip."
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
  "Run the command of the button that was clicked in EVENT."
  (interactive "e"
               pyagentd-mode)
  (let* ((place (event-start event))
         (string (posn-string place))
         (command (and string (get-text-property (cdr string) 'pyagentd-command
                                                 (car string)))))
    (when command
      (select-window (posn-window place))
      (call-interactively command))))

;;;; State of a session

(pyagentd-deflocal pyagentd-status nil
  "The branch's last status from the daemon, a plist with :state.
The state is one of the symbols `idle', `busy', `retrying', `waiting' and
`error', and in Emacs also `sending'; nil without a daemon.  While busy,
:phase is a state of gptel's state machine: WAIT, TYPE or TOOL, with :tools.")
(pyagentd-deflocal pyagentd-status-preset nil
  "Name of the preset of this branch.")
(pyagentd-deflocal pyagentd-status-unconfined nil
  "Why this session's commands run unconfined; nil or \"\" if they do not.")
(pyagentd-deflocal pyagentd-status-model nil
  "Name of the model of this branch.")
(pyagentd-deflocal pyagentd-status-hindrance nil
  "Why this session is read-only, a few words, or nil.")
(pyagentd-deflocal pyagentd-status-refusal nil
  "Why the daemon refuses this session, a line, or nil.")
(pyagentd-deflocal pyagentd-status-silent nil
  "Non-nil while the daemon does not acknowledge a prompt.")
(pyagentd-deflocal pyagentd-status-title nil
  "Title of the session in this buffer, or nil.")
(pyagentd-deflocal pyagentd-status--line nil
  "The header line, computed when something changes.")

(pyagentd-deflocal pyagentd-status--narrow nil
  "Header lines for narrow windows, an alist (WIDTH . LINE).")

(defvar pyagentd-status-segment-functions nil
  "Functions that return a further part of the header line, a string or nil.
They are called in the session buffer.")

;;;; State of a run

(defvar pyagentd-status--countdown nil
  "Timer that counts down to the next retry, in all session buffers.")

(defun pyagentd-status--count-down ()
  "Update the seconds to the next retry in sessions that wait for one."
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
  "Return the header line's count of queued messages, or nil."
  (let ((number (or (plist-get pyagentd-status :queued) 0)))
    (when (> number 0)
      (pyagentd-status-button
       (if (plist-get pyagentd-status :paused)
           (propertize (format "%d queued, paused" number) 'face 'warning)
         (propertize (format "%d queued" number) 'face 'shadow))
       'pyagentd-queue "Messages that wait for their turn"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-status--queued)

(defun pyagentd-status--words (status)
  "Return how to show STATUS, see variable `pyagentd-status'.
The value is (TEXT FACE COMMAND HELP); a click runs COMMAND, or
`pyagentd-inspect' if that is nil."
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
  "Return the text that describes STATUS, see variable `pyagentd-status'."
  (pcase-let ((`(,text ,face) (pyagentd-status--words status)))
    (propertize text 'face face)))

(defun pyagentd-status-busy-p ()
  "Return non-nil if a run is in progress in this buffer."
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

(defconst pyagentd-status--rooms
  '((:name 1000 :state 1000 :preset 1000 :segments 1000)
    (:name 40 :state 100 :preset 1000 :segments 1000)
    (:name 24 :state 60 :preset 1000 :segments 1000)
    (:name 24 :state 40 :preset 14 :segments 1000)
    (:name 16 :state 30 :preset 14 :segments 1000)
    (:name 16 :state 30 :segments 1000)
    (:name 12 :state 16 :segments 24))
  "Maximal columns of the parts of the header line, widest first.
A part without a number is left out; the model is never truncated.")

(defun pyagentd-status--cut (text width)
  "Return TEXT truncated to WIDTH columns."
  (truncate-string-to-width text width nil nil t))

(defun pyagentd-status--name (room)
  "Return the session's name, and its branch unless it is main, to fit ROOM."
  (let* ((agent pyagentd--named-agent)
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
  "Return the state of the run, to fit ROOM; a click shows more."
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
  "Return the right end of the header line, to fit ROOM.
That is: why the session is read-only, not confined, the agent and the model."
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
Terminals show header lines in inverse video, in which other faces would be
unreadable."
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
    ;; Its % are no mode line constructs.
    (setq line (replace-regexp-in-string
                "%" (lambda (sign) (concat sign sign)) line t t))
    (add-face-text-property 0 (length line) 'pyagentd-header t line)
    line))

(defvar pyagentd-status-held nil
  "Non-nil delays computing the header line, while several changes are made.")

(defun pyagentd-status-refresh ()
  "Recompute the header line, unless `pyagentd-status-held' is non-nil."
  (unless pyagentd-status-held
    (setq pyagentd-status--line (pyagentd-status--make
                                 (car pyagentd-status--rooms))
          pyagentd-status--narrow nil)
    (force-mode-line-update)))

(defun pyagentd-status--shown ()
  "Return the header line that fits the width of this window."
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

;;;; Context usage and cost

(pyagentd-deflocal pyagentd-context nil
  "The branch's context usage as last reported by the daemon, or nil.
It is a plist with :used and :window, in tokens, :usable, the tokens before
the context is compacted, :estimated, :known-usd, :short, a string with
tokens and cost, and :words, a list of lines with all of it.")

(defconst pyagentd-context--cells 5
  "Length of the context bar in characters.")

(defun pyagentd-context--segment ()
  "Return the header line's context meter, or nil before the first request."
  (when-let* ((context pyagentd-context)
              (used (plist-get context :used))
              ((or (> used 0) (> (or (plist-get context :known-usd) 0) 0))))
    (let* ((share (/ (float used) (max 1 (plist-get context :window))))
           (usable (max 1 (or (plist-get context :usable) 0)))
           ;; Header lines do not use their buffer's display table.
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
  "Show the context usage and the cost of the session."
  (interactive nil pyagentd-mode)
  (if pyagentd-context
      (message "%s" (string-join (plist-get pyagentd-context :words) "\n"))
    (user-error "No context usage known yet")))

;;;; Todo list of an agent

(defcustom pyagentd-todo-folded nil
  "Whether an agent's todo list is folded at first.
The header line always shows its progress."
  :type 'boolean
  :group 'pyagentd)

(pyagentd-deflocal pyagentd-todo nil
  "The todo list of the agent in this buffer, steps as the daemon sent them.
Each is a plist: :content, :status (\"pending\", \"in_progress\" or
\"completed\") and :active-form, its name while it is in progress.")
(pyagentd-deflocal pyagentd-todo--overlay nil
  "Overlay of the todo list in this buffer, or nil.")
(pyagentd-deflocal pyagentd-todo--turned nil
  "Non-nil inverts `pyagentd-todo-folded' in this buffer.")

(defvar pyagentd-todo-map
  (pyagentd-keymap
   [mouse-1] #'pyagentd-todo)
  "Keymap of the todo list.")

;;;; Text of the todo list

(defun pyagentd-todo--is (step status)
  "Return non-nil if STEP has STATUS, a string."
  (equal status (format "%s" (plist-get step :status))))

(defun pyagentd-todo--done ()
  "Return the number of completed steps."
  (seq-count (lambda (step) (pyagentd-todo--is step "completed"))
             pyagentd-todo))

(defun pyagentd-todo-count ()
  "Return the completed and total number of steps here, as \"2/5\", or nil."
  (and pyagentd-todo
       (format "%d/%d" (pyagentd-todo--done) (length pyagentd-todo))))

(defun pyagentd-todo-line ()
  "Return a line with the progress of the todo list here, or nil without one."
  (when pyagentd-todo
    (let ((doing (seq-find (lambda (step) (pyagentd-todo--is step "in_progress"))
                           pyagentd-todo)))
      (format "todo %s%s" (pyagentd-todo-count)
              (if doing (concat ": " (plist-get doing :active-form)) "")))))

(defun pyagentd-todo--segment ()
  "Return the header line's part about the todo list, or nil."
  (when-let ((line (pyagentd-todo-line)))
    (pyagentd-status-button
     (propertize (truncate-string-to-width line 50 nil nil t)
                 'face (if (= (pyagentd-todo--done) (length pyagentd-todo))
                           'success 'shadow))
     'pyagentd-todo "The agent's list of steps")))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-todo--segment)

(defun pyagentd-todo--text ()
  "Return the todo list as shown in the conversation."
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
  "Move the list to the end of the run's text, above the next prompt."
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
  "Show the todo list in this buffer, unless all its steps are completed."
  (if (= (pyagentd-todo--done) (length pyagentd-todo))
      (pyagentd-todo--delete)
    (unless pyagentd-todo--overlay
      (setq pyagentd-todo--overlay (make-overlay (point-min) (point-min) nil t))
      (overlay-put pyagentd-todo--overlay 'priority -10))
    (overlay-put pyagentd-todo--overlay 'before-string (pyagentd-todo--text))
    (pyagentd-todo--move))
  (pyagentd-status-refresh))

(defun pyagentd-todo-receive (steps)
  "Show STEPS as the todo list of the agent in this buffer."
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
  "Fold or unfold the todo list of the agent in this buffer."
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

;;;; Names of session buffers

;; Every conversation is in a file called session.md.  Its buffer is named
;; after the session: first after the name in its id, then after its title
;; once it has one.  An agent's buffer begins with the name of its preset, and
;; a branch follows in parentheses.
;;
;; Naming one buffer never renames another, and a buffer that the user has
;; renamed keeps its name.

(pyagentd-deflocal pyagentd-buffer-name--given nil
  "The last name given to this buffer automatically, or nil.")

(defun pyagentd-buffer-name--wanted (title)
  "Return the name for the buffer of a session with TITLE, which may be nil."
  (let* ((id pyagentd--session-id)
         (agent pyagentd--named-agent)
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
Keep a name that the user gave it."
  (when (and pyagentd-mode
             (equal (buffer-name) pyagentd-buffer-name--given))
    (let ((name (generate-new-buffer-name (pyagentd-buffer-name--wanted title)
                                          (buffer-name))))
      ;; With a second argument `uniquify' would rename other buffers.
      (unless (equal name (buffer-name))
        (rename-buffer name))
      (setq pyagentd-buffer-name--given name))))

(defun pyagentd-buffer-name--begin ()
  "Name a session buffer that was just visited."
  (unless pyagentd-buffer-name--given
    (setq pyagentd-buffer-name--given (buffer-name)))
  (pyagentd-name-buffer pyagentd-status-title))

(add-hook 'pyagentd-mode-on-hook #'pyagentd-buffer-name--begin)

;;;; The file that causes an error

(defun pyagentd-cause (text)
  "Return the file named in the error message TEXT, as (FILE . LINE), or nil.
LINE is nil if TEXT names none.  Prefer a file with a line, and ignore the
file of this buffer."
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

;;;; Errors that make the daemon refuse a session

(defun pyagentd-cause--refused (&optional err)
  "Show that the daemon refuses this session because of ERR.
If ERR is nil it does not, or no longer."
  (unless (and err (not (eq (car err) 'pyagentd-remote-error)))
    (let ((refusal (and err (pyagentd-error-text err))))
      (unless (equal refusal pyagentd-status-refusal)
        (setq pyagentd-status-refusal refusal)
        (pyagentd-status-refresh)))))

(defun pyagentd-visit-cause ()
  "Visit the file with the error that stops this session.
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

;;; pyagentd-history.el --- Rewinding, variants, branches -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Rewinding turns, regenerating answers, editing prompts, branching, forking.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-sync)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-chat)

;;;; Hidden turns in the text

;; Hidden turns and notes about variants are shown by overlays, so that undo
;; and saving ignore them; folded text is not fontified.  The daemon sends
;; the regions.

(defface pyagentd-hidden '((t :inherit shadow))
  "Face of rewound turns and their notices."
  :group 'pyagentd)

(pyagentd-deflocal pyagentd-hidden--overlays nil
  "Overlays on hidden turns and on messages that have variants.")
(pyagentd-deflocal pyagentd-hidden--shown nil
  "Non-nil if hidden turns are unfolded.")
(pyagentd-deflocal pyagentd-hidden--due nil
  "Non-nil if the hidden regions must be fetched again after the next save.")

(defun pyagentd-hidden--clear ()
  "Remove all overlays."
  (mapc #'delete-overlay pyagentd-hidden--overlays)
  (setq pyagentd-hidden--overlays nil))

(defun pyagentd-hidden--fold (overlay)
  "Fold or unfold the text of OVERLAY."
  (overlay-put overlay 'invisible
               (unless pyagentd-hidden--shown 'pyagentd-hidden))
  (overlay-put overlay 'before-string (overlay-get overlay 'pyagentd-line))
  (overlay-put overlay 'face 'pyagentd-hidden))

(defun pyagentd-hidden--add (beg end &rest properties)
  "Return a new overlay from BEG to END with PROPERTIES, a plist."
  (car (push (apply #'pyagentd-draw beg (min end (1+ (buffer-size))) properties)
             pyagentd-hidden--overlays)))

(defun pyagentd-hidden--set (hidden variants)
  "Fold the regions HIDDEN, and label the messages VARIANTS.
HIDDEN is a list of (BEG END COUNT BY), VARIANTS one of (BEG END MESSAGE
NUMBER OF), where NUMBER is 0 if no variant is shown."
  (pyagentd-hidden--clear)
  (save-restriction
    (widen)
    (pcase-dolist (`(,beg ,end ,count ,by) hidden)
      (pyagentd-hidden--fold
       (pyagentd-hidden--add
        beg end 'isearch-open-invisible
        (lambda (overlay) (overlay-put overlay 'invisible nil))
        'priority 1                     ; above those of blocks inside it
        'pyagentd-line
        (concat (if (= beg 1) "" "\n\n")
                (propertize (format
                             "… %s %s" (pyagentd-count count "turn")
                             (pcase (pyagentd-symbol by)
                               ('rewind (substitute-command-keys
                                         (format "rewound, \\<pyagentd-mode-map>\
C-u \\[pyagentd-rewind] brings %s back" (if (= count 1) "it" "them"))))
                               ('edit "of the prompt before it was edited")
                               ('context "of a conversation that was cleared")
                               (_ "of another variant")))
                            'face 'pyagentd-hidden 'mouse-face 'highlight
                            'keymap (pyagentd-keymap
                                     [mouse-1] #'pyagentd-history--show-hidden)
                            'help-echo "mouse-1: show or hide the text")))))
    (pcase-dolist (`(,beg ,end ,_ ,number ,of) variants)
      (when (> number 0)
        (save-excursion
          (goto-char beg)
          ;; Above the line, which may begin with the prefix of a prompt.
          (pyagentd-hidden--add (line-beginning-position) (if (bolp) end beg)
                                'before-string
                                (propertize (format "variant %d/%d\n" number of)
                                            'face 'pyagentd-hidden)))))))

;;;; Asking the daemon

(defun pyagentd-hidden-refresh ()
  "Fetch the hidden regions and variants of this session, and show them."
  (when pyagentd-mode
    (pyagentd-later-quietly 'history (list :branch pyagentd--branch-dir)
                            #'pyagentd-hidden--receive)))

(defun pyagentd-hidden--receive (answer)
  "Show the regions in ANSWER if it is about this buffer's revision of the text."
  (let ((revision (plist-get answer :revision))
        (here (lambda (each)
                (append (list (pyagentd-edit-position (nth 0 each))
                              (pyagentd-edit-position (nth 1 each) t))
                        (nthcdr 2 each)))))
    (setq pyagentd-hidden--due nil)
    (cond ((null revision) (pyagentd-hidden--clear))
          ((equal revision pyagentd-edit-revision)
           (pyagentd-hidden--set (mapcar here (plist-get answer :hidden))
                                 (mapcar here (plist-get answer :variants))))
          (t (setq pyagentd-hidden--due t)))))

(defun pyagentd-hidden--after-save ()
  "Fetch the hidden regions again if they are outdated."
  (when pyagentd-hidden--due
    (pyagentd-hidden-refresh)))

(defun pyagentd-hidden--after-run (_run)
  "Fetch again after a run if there are overlays: it may have added a variant."
  (when pyagentd-hidden--overlays
    (setq pyagentd-hidden--due t)
    (pyagentd-later-soon #'pyagentd-hidden--after-save)))

(defun pyagentd-history--show-hidden ()
  "Show rewound turns, or fold them again."
  (interactive nil pyagentd-mode)
  (setq pyagentd-hidden--shown (not pyagentd-hidden--shown))
  (dolist (overlay pyagentd-hidden--overlays)
    (when (overlay-get overlay 'pyagentd-line)
      (pyagentd-hidden--fold overlay))))

(add-hook 'pyagentd-session-read-hook #'pyagentd-hidden--clear)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-hidden--clear)
(add-hook 'pyagentd-session-saved-hook #'pyagentd-hidden--after-save)
(add-hook 'pyagentd-attached-hook #'pyagentd-hidden-refresh)
(add-hook 'pyagentd-run-finished-functions #'pyagentd-hidden--after-run)

;;;; Branches of a session

(defconst pyagentd-branch-default-name "branch"
  "Default name of a branch.")

(defun pyagentd-branch-here ()
  "Return the buffer of the session here, and point: (BUFFER POSITION).
Signal a `user-error' if the session cannot have branches."
  (let ((position (point))
        (buffer (or (buffer-base-buffer) (current-buffer))))
    (with-current-buffer buffer
      (unless pyagentd--branch-dir
        (user-error "Not a gptel session buffer"))
      (when (pyagentd-place-agent-p)
        (user-error "An agent has no branches; branch the session it works for")))
    (list buffer position)))

(defun pyagentd-branch-point (points number position)
  "Return the one of POINTS with NUMBER, or if that is nil the one at POSITION."
  (cond ((null points) (user-error "No prompt to branch at yet"))
        ((null number) (pyagentd-branch--nearest points position))
        ((seq-find (lambda (point)
                     (equal (format "%s" number)
                            (number-to-string (plist-get point :number))))
                   points))
        (t (user-error "There is no prompt %s" number))))

(defun pyagentd-branch-with-points (then)
  "Call THEN with the prompts at which a branch can begin, in order.
Each is a plist with :number, :message-id (or nil), :start, :end and
:text.  THEN is called later, in this buffer, once the daemon has all
edits; it may prompt the user."
  (pyagentd-attached-then
   (lambda ()
     (pyagentd-later-asking
      'branch-points (list :branch pyagentd--branch-dir)
      (lambda (answer) (funcall then (plist-get answer :points)))))))

(defun pyagentd-prompt-choices (prompts)
  "Return PROMPTS, from the daemon, as pairs (LABEL . PROMPT), last first."
  (let ((number 0))
    (nreverse
     (mapcar (lambda (each)
               (cons (format "%d  %s"
                             (setq number (or (plist-get each :number) (1+ number)))
                             (pyagentd-one-line (or (plist-get each :text) "") 70))
                     each))
             prompts))))

(defun pyagentd-branch--nearest (points position)
  "Return the one of POINTS that contains POSITION, or the last before it."
  (or (seq-find (lambda (point) (<= (plist-get point :start) position))
                (reverse points))
      (car points)))

(defun pyagentd-branch--read-point (points position)
  "Ask the user for one of POINTS; the one at POSITION is the default."
  (let* ((alist (nreverse (pyagentd-prompt-choices points)))
         (default (car (rassq (pyagentd-branch--nearest points position) alist))))
    (pyagentd-choose
     (format-prompt "Branch at prompt" (pyagentd-one-line default 40)) alist
     :default default :category 'pyagentd-prompt
     :annotate (lambda (point)          ; its place in the text
                 (let ((start (plist-get point :start)))
                   (format "  line %d, %d%%"
                           (save-restriction
                             (widen)
                             (line-number-at-pos (min start (point-max))))
                           (/ (* 100 start) (max 1 (1+ (buffer-size))))))))))

(defun pyagentd-branch (&optional name side number)
  "Create a branch of this session at one of its prompts, and visit it.
It gets all of the conversation before that prompt, and the prompt itself
if you choose to include it, the configuration and the agents.  It
becomes the current branch; the original branch does not change.

From Lisp, NAME is its name, SIDE is `include' or `exclude', and NUMBER
counts the prompts from 1; the command asks for those that are nil.  It
returns at once, and visits the branch when it is made."
  (interactive nil pyagentd-mode)
  (pcase-let ((`(,buffer ,position) (pyagentd-branch-here)))
    (with-current-buffer buffer
      (pyagentd-branch-with-points
       (lambda (points)
         (unless points (user-error "No prompt to branch at yet"))
         (let* ((point (if number
                           (pyagentd-branch-point points number position)
                         (pyagentd-branch--read-point points position)))
                (side
                 (or side
                     (pcase (car (read-multiple-choice
                                  "Shall the prompt be in the branch?"
                                  '((?i "include" "The branch ends with this prompt.")
                                    (?e "exclude" "The branch ends before it; \
write another prompt."))))
                       (?i 'include)
                       (?e 'exclude))))
                (name
                 (or name
                     (read-string (format-prompt "Branch name"
                                                 pyagentd-branch-default-name)
                                  nil nil pyagentd-branch-default-name))))
           (pyagentd-later-asking
            'branch (pyagentd-branch-request point side name)
            (lambda (made) (pyagentd-branch-visit made side))
            nil nil
            (lambda (made)              ; after a timeout: trash it
              (pyagentd-later 'delete (list :branch (plist-get made :branch)
                                            :what "branch"))))))))))

(defun pyagentd-branch-request (point side name)
  "Return the arguments to make a branch NAME at the prompt POINT with SIDE."
  (list :branch pyagentd--branch-dir
        :position (plist-get point :start)
        :exclude (eq side 'exclude)
        :name name))

(defun pyagentd-branch--insert-heading ()
  "Insert the heading of a prompt at the end, without an undo record."
  (let ((at-end (eobp)))
    (save-excursion
      (goto-char (point-max))
      (unless (or buffer-read-only (bobp) (pyagentd-prompt-empty-p))
        (let ((buffer-undo-list t))
          (insert (if (bolp) "" "\n\n") pyagentd-prompt-prefix))))
    (when at-end
      (goto-char (point-max)))))

(defun pyagentd-branch-visit (made side)
  "Visit the branch MADE, a reply of the daemon; return its buffer.
SIDE is `include' or `exclude'."
  (let ((buffer (pyagentd-manage-visit made)))
    (with-current-buffer buffer
      (when (eq side 'exclude)
        (pyagentd-attached-then #'pyagentd-branch--insert-heading))
      (goto-char (point-max))
      (message "Branch %s of %s" (plist-get made :branch-name)
               (plist-get made :parent)))
    buffer))

(defun pyagentd-branch--read-branch (prompt branches default)
  "Read one of BRANCHES with PROMPT; DEFAULT is the name of one."
  (pyagentd-choose
   (format-prompt prompt default)
   (mapcar (lambda (branch) (cons (plist-get branch :name) branch)) branches)
   :default default :category 'pyagentd-branch
   :annotate (lambda (branch)
               (concat (and (plist-get branch :current) "  current")
                       (when-let ((parent (plist-get branch :parent)))
                         (concat "  from " parent))
                       (ignore-errors
                         (format-time-string
                          "  %F %R" (date-to-time (plist-get branch :created))))))))

(defun pyagentd-switch-branch (&optional branch)
  "Visit BRANCH of this session, a plist, and make it the current one.
The session's id alone denotes the current branch.  Without BRANCH, ask
for it."
  (interactive)
  (if branch
      (pyagentd-later-asking 'switch (list :branch (plist-get branch :branch))
                             #'pyagentd-manage-visit)
    (pyagentd-later-asking
     ;; Of the session, since the branch may be gone.
     'branches (list :branch (plist-get (pyagentd-here) :session-dir))
     (lambda (answer)
       (let ((others (seq-remove (lambda (branch)
                                   (equal (plist-get branch :name)
                                          pyagentd--branch-name))
                                 (plist-get answer :branches))))
         (unless others
           (user-error "This session has only one branch; %s makes another"
                       (substitute-command-keys "\\[pyagentd-branch]")))
         (pyagentd-switch-branch
          (pyagentd-branch--read-branch "Switch to branch" others
                                        (plist-get (car others) :name))))))))

;;;; Take turns back, ask again

(defun pyagentd-history--call (operation arguments then &optional late)
  "Call the daemon's OPERATION with ARGUMENTS, a plist, on this branch.
THEN is called with the reply, in this buffer, and may prompt the user;
LATE is called instead after a timeout."
  (pyagentd-later-asking operation
                         (append (list :branch pyagentd--branch-dir) arguments)
                         then pyagentd-later-patience nil late))

(defun pyagentd-history--run (operation arguments &optional then)
  "Call the daemon's OPERATION with ARGUMENTS; call THEN once its run has begun."
  (pyagentd-history--call operation
                          (append arguments (pyagentd-env) '(:allow nil))
                          (lambda (_) (when then (funcall then)))))

(defmacro pyagentd-history--when (ready position &rest body)
  "Evaluate BODY in the session buffer when READY, with POSITION bound to point.
READY is a function that calls its argument at that time.  POSITION is a
marker, since point may follow a streamed answer while BODY prompts the
user."
  (declare (indent 2) (debug (symbolp symbolp body)))
  `(let ((,position (point)))
     (pyagentd-in-session
       (let ((,position (copy-marker ,position)))
         (,ready (lambda () ,@body))))))

(defun pyagentd-history--with-points (then)
  "Call THEN with the prompts in the text that were sent, in order."
  (pyagentd-branch-with-points
   (lambda (points)
     (funcall then
              (cl-loop
               for point in points
               when (plist-get point :message-id)
               ;; Positions in this buffer, which may have changed since.
               collect (append (cl-loop for key in '(:start :end)
                                        append (list key (pyagentd-edit-position
                                                          (plist-get point key))))
                               point))))))

(defun pyagentd-history--at (points position)
  "Return the one of POINTS, prompts, that contains POSITION, or nil."
  (seq-find (lambda (point)
              (<= (plist-get point :start) position (plist-get point :end)))
            points))

(defun pyagentd-history--choose (prompt then)
  "Read a prompt of this conversation with PROMPT; call THEN with its message id."
  (pyagentd-history--call
   'history nil
   (lambda (answer)
     (let ((prompts (pyagentd-prompt-choices (plist-get answer :prompts))))
       (unless prompts (user-error "No prompt was sent yet"))
       (funcall then (plist-get
                      (pyagentd-choose
                       (format-prompt prompt (caar prompts)) prompts
                       :default (caar prompts) :category 'pyagentd-prompt)
                      :message-id))))))

;;;; Rewinding

(defun pyagentd-rewind (&optional arg)
  "Rewind to the prompt at point, or to one that you choose.
What follows it stays in the text, folded; the model no longer sees it.
With a prefix argument ARG undo the last rewind; with two, also restore
the files that those turns changed."
  (interactive "P"
               pyagentd-mode)
  (if (and arg (not (equal arg '(16))))
      (pyagentd-history--unrewind)
    (pyagentd-history--when pyagentd-chat-when-ready position
      (pyagentd-history--with-points
       (lambda (points)
         (let ((rewind (lambda (message)
                         (pyagentd-history--call
                          'rewind (list :message message :files (and arg t))
                          #'pyagentd-history--rewound))))
           (if-let ((here (pyagentd-history--at points position)))
               (funcall rewind (plist-get here :message-id))
             (pyagentd-history--choose "Rewind to prompt" rewind))))))))

(defun pyagentd-history--rewound (answer)
  "Report the result of a rewind, ANSWER."
  (let ((restored (plist-get (plist-get answer :files) :restored)))
    (message "%s; %s"
             (if (plist-get answer :hidden)
                 (format "%s rewound%s"
                         (pyagentd-count (plist-get answer :turns) "turn")
                         (if restored
                             (format ", %s restored"
                                     (pyagentd-count (length restored) "file"))
                           ""))
               "Nothing to rewind after this prompt")
             (substitute-command-keys
              "\\<pyagentd-mode-map>C-u \\[pyagentd-rewind] undoes it"))))

(defun pyagentd-history--unrewind ()
  "Undo the last rewind, unless a prompt was sent since."
  (interactive nil pyagentd-mode)
  (pyagentd-in-session
    (pyagentd-chat-when-ready
     (lambda ()
       (pyagentd-history--call
        'unrewind nil
        (lambda (answer)
          (message "%s back"
                   (pyagentd-count (plist-get answer :turns) "turn"))))))))

;;;; Asking again

(defun pyagentd-regenerate (&optional choose)
  "Regenerate the last answer; the old one is kept as a variant.
With a prefix argument, or CHOOSE from Lisp, choose the prompt; the text
that followed it belongs to the old variant.
See `pyagentd-history--next-variant'."
  (interactive "P"
               pyagentd-mode)
  (pyagentd-in-session
    (pyagentd-chat-when-ready
     (lambda ()
       (let ((answer (lambda (message)
                       (pyagentd-history--run 'regenerate
                                              (list :message message)))))
         (if choose (pyagentd-history--choose "Answer again" answer)
           (funcall answer nil)))))))

(defun pyagentd-history--turn (step)
  "Show the variant STEP after the current one of the message at or before point."
  (pyagentd-history--when pyagentd-chat-when-ready position
    (pyagentd-history--call
     'history nil
     (lambda (answer)
       (pcase-let*
           ((variants (sort (plist-get answer :variants)
                            (lambda (a b) (> (car a) (car b)))))
            (`(,_ ,_ ,message ,number ,of)
             (or (seq-find (lambda (variant)
                             (<= (pyagentd-edit-position (car variant))
                                 position))
                           variants)
                 (car variants)
                 (user-error "There are no variants; %s makes one"
                             (substitute-command-keys
                              "\\<pyagentd-mode-map>\\[pyagentd-regenerate]"))))
            (next (1+ (mod (+ number step -1) of))))
         (pyagentd-history--call
          'choose-variant (list :message message :n next)
          (lambda (_) (message "Variant %d/%d" next of))))))))

(defun pyagentd-history--next-variant ()
  "Show the next variant of the message at or before point, and its turns."
  (interactive nil pyagentd-mode)
  (pyagentd-history--turn 1))

(defun pyagentd-history--previous-variant ()
  "Show the variant before this one of the message at or before point."
  (interactive nil pyagentd-mode)
  (pyagentd-history--turn -1))

;;;; Editing a prompt

(defun pyagentd-edit-prompt ()
  "Edit the prompt at or before point and send it again.
A prompt that was edited in place is sent with these edits; another one is
shown in a buffer for editing.  The old prompt and all that followed it are
kept as a variant: see `pyagentd-history--next-variant'."
  (interactive nil pyagentd-mode)
  (pyagentd-history--when pyagentd-chat-when-ready position
    (pyagentd-history--with-points
     (lambda (points)
       (unless points (user-error "No prompt was sent yet"))
       (let* ((point (or (pyagentd-history--at points position)
                         (pyagentd-branch--nearest points position)))
              (message (plist-get point :message-id))
              ;; With edits in place.
              (text (save-restriction
                      (widen)
                      (string-trim
                       (string-remove-prefix
                        pyagentd-prompt-prefix
                        (buffer-substring-no-properties
                         (plist-get point :start)
                         (plist-get point :end)))))))
         (pyagentd-history--call
          'prompt-text (list :message message)
          (lambda (recorded)
            ;; The daemon restores the original of a prompt edited in place.
            (if (equal text (string-trim recorded))
                (pyagentd-history--edit message text)
              (pyagentd-history--run
               'edit (list :message message :text text))))))))))

(defun pyagentd-history--edit (message text)
  "Show TEXT, of the prompt MESSAGE, in a buffer for editing."
  (let ((session (current-buffer)))
    (pyagentd-edit
     (format "prompt of %s" pyagentd--session-id) text #'text-mode
     (lambda (new close)
       (when (string-blank-p new)
         (user-error "The prompt is empty"))
       (unless (buffer-live-p session)
         (user-error "The session's buffer was killed"))
       (with-current-buffer session
         (pyagentd-chat-when-ready
          (lambda ()
            (pyagentd-history--run
             'edit (list :message message :text (string-trim new)) close)))))
     :about "Prompt" :key message :word "send it instead")))

(defun pyagentd-fork (&optional choose)
  "Create a session from this one up to the prompt at point, and visit it.
Outside a prompt it gets the whole conversation; with a prefix argument,
or CHOOSE from Lisp, choose the prompt."
  (interactive "P"
               pyagentd-mode)
  (pyagentd-history--when pyagentd-attached-then position
    (pyagentd-session-save)
    (if choose
        (pyagentd-history--choose "Fork at prompt" #'pyagentd-history--fork)
      (pyagentd-history--with-points
       (lambda (points)
         (pyagentd-history--fork
          (plist-get (pyagentd-history--at points position)
                     :message-id)))))))

(defun pyagentd-history--fork (message)
  "Fork this session at MESSAGE, nil for all of it, and visit the new one."
  (pyagentd-history--call 'fork (list :message message)
                          #'pyagentd-manage-visit #'pyagentd-manage-late))

(provide 'pyagentd-history)
;;; pyagentd-history.el ends here

;;; pyagentd-history.el --- Rewinding, variants, branches -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Turns that are taken back, asked again, or gone on with elsewhere.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-sync)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-chat)

;;;; Hidden turns in the text

;; All of this are overlays: neither undo nor saving knows of them, and
;; text that is folded is not fontified.  Which text it is the daemon says.

(defface pyagentd-hidden '((t :inherit shadow))
  "Face of rewound turns and their notices."
  :group 'pyagentd)

(pyagentd-deflocal pyagentd-hidden--overlays nil
  "Overlays on hidden turns and on messages that have variants.")
(pyagentd-deflocal pyagentd-hidden--shown nil
  "Non-nil if hidden turns are unfolded.")
(pyagentd-deflocal pyagentd-hidden--due nil
  "Non-nil if what is hidden is to be asked for after the next save.")

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
  "Show which regions are HIDDEN and which messages are VARIANTS of others.
HIDDEN is a list of (BEG END COUNT BY), VARIANTS one of (BEG END MESSAGE
NUMBER OF), where NUMBER is 0 if none of them is shown."
  (pyagentd-hidden--clear)
  (save-restriction
    (widen)
    (pcase-dolist (`(,beg ,end ,count ,by) hidden)
      (pyagentd-hidden--fold
       (pyagentd-hidden--add
        beg end 'isearch-open-invisible
        (lambda (overlay) (overlay-put overlay 'invisible nil))
        'priority 1                     ; above the blocks that it folds away
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
          ;; Above the line, which the sign of a prompt may begin.
          (pyagentd-hidden--add (line-beginning-position) (if (bolp) end beg)
                                'before-string
                                (propertize (format "variant %d/%d\n" number of)
                                            'face 'pyagentd-hidden)))))))

;;;; Asking the daemon

(defun pyagentd-hidden-refresh ()
  "Ask which text of this buffer is hidden, and show that."
  (when pyagentd-mode
    (pyagentd-later-quietly 'history (list :branch pyagentd--branch-dir)
                            #'pyagentd-hidden--receive)))

(defun pyagentd-hidden--receive (answer)
  "Show what ANSWER says, if it is about the text in this buffer."
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
  "Ask again where the text was another one than the file's."
  (when pyagentd-hidden--due
    (pyagentd-hidden-refresh)))

(defun pyagentd-hidden--after-run (_run)
  "Ask again where something is hidden: there may be one more variant."
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
  "Name of a branch that was given none.")

(defun pyagentd-branch-here ()
  "Return the buffer of the session here, and point: (BUFFER POSITION).
Signal a `user-error' unless it can have branches."
  (let ((position (point))
        (buffer (or (buffer-base-buffer) (current-buffer))))
    (with-current-buffer buffer
      (unless pyagentd--branch-dir
        (user-error "Not a gptel session buffer"))
      (when (pyagentd-place-agent-p)
        (user-error "An agent has no branches; branch the session it works for")))
    (list buffer position)))

(defun pyagentd-branch-point (points number position)
  "Return the one of POINTS that is called NUMBER, or the one at POSITION.
The latter if NUMBER is nil."
  (cond ((null points) (user-error "No prompt to branch at yet"))
        ((null number) (pyagentd-branch--nearest points position))
        ((seq-find (lambda (point)
                     (equal (format "%s" number)
                            (number-to-string (plist-get point :number))))
                   points))
        (t (user-error "There is no prompt %s" number))))

(defun pyagentd-branch-with-points (then)
  "Call THEN with the prompts at which a branch can begin, first one first.
Each is a plist with :number, :message-id (or nil), :start, :end and
:text.  THEN may ask something; it is called later, in this buffer, when
the daemon has all that was typed."
  (pyagentd-attached-then
   (lambda ()
     (pyagentd-later-asking
      'branch-points (list :branch pyagentd--branch-dir)
      (lambda (answer) (funcall then (plist-get answer :points)))))))

(defun pyagentd-prompt-choices (prompts)
  "Return PROMPTS, as the daemon tells them, as pairs (LABEL . PROMPT), last first."
  (let ((number 0))
    (nreverse
     (mapcar (lambda (each)
               (cons (format "%d  %s"
                             (setq number (or (plist-get each :number) (1+ number)))
                             (pyagentd-one-line (or (plist-get each :text) "") 70))
                     each))
             prompts))))

(defun pyagentd-branch--nearest (points position)
  "Return the one of POINTS in which POSITION is, or the last before it."
  (or (seq-find (lambda (point) (<= (plist-get point :start) position))
                (reverse points))
      (car points)))

(defun pyagentd-branch--read-point (points position)
  "Let the user choose one of POINTS; the one at POSITION is the default."
  (let* ((alist (nreverse (pyagentd-prompt-choices points)))
         (default (car (rassq (pyagentd-branch--nearest points position) alist))))
    (pyagentd-choose
     (format-prompt "Branch at prompt" (pyagentd-one-line default 40)) alist
     :default default :category 'pyagentd-prompt
     :annotate (lambda (point)          ; where it stands in the text
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
becomes the current branch; the one it comes from stays as it is.

From Lisp, NAME is its name, SIDE is `include' or `exclude', and NUMBER
counts the prompts from 1; what is nil is asked for.  Return at once; the
branch is visited when it is made."
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
            (lambda (made)              ; too late: it goes to the trash
              (pyagentd-later 'delete (list :branch (plist-get made :branch)
                                            :what "branch"))))))))))

(defun pyagentd-branch-request (point side name)
  "Return the arguments for a branch NAME at the prompt POINT with SIDE."
  (list :branch pyagentd--branch-dir
        :position (plist-get point :start)
        :exclude (eq side 'exclude)
        :name name))

(defun pyagentd-branch--insert-heading ()
  "Put the heading of a prompt at the end, but as no step of undo."
  (let ((at-end (eobp)))
    (save-excursion
      (goto-char (point-max))
      (unless (or buffer-read-only (bobp) (pyagentd-prompt-empty-p))
        (let ((buffer-undo-list t))
          (insert (if (bolp) "" "\n\n") pyagentd-prompt-prefix))))
    (when at-end
      (goto-char (point-max)))))

(defun pyagentd-branch-visit (made side)
  "Visit the branch MADE, an answer of the daemon; return its buffer.
SIDE is how it was made."
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
The current one is what the session's id alone stands for.  Without
BRANCH it is asked for."
  (interactive)
  (if branch
      (pyagentd-later-asking 'switch (list :branch (plist-get branch :branch))
                             #'pyagentd-manage-visit)
    (pyagentd-later-asking
     ;; Not of its branch, which may be gone.
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
  "Have the daemon do OPERATION with ARGUMENTS, a plist, on this branch.
THEN is called with its answer, in this buffer, and may ask something;
LATE, if it comes too late."
  (pyagentd-later-asking operation
                         (append (list :branch pyagentd--branch-dir) arguments)
                         then pyagentd-later-patience nil late))

(defun pyagentd-history--run (operation arguments &optional then)
  "Have the daemon do OPERATION with ARGUMENTS; call THEN when its run has begun."
  (pyagentd-history--call operation
                          (append arguments (pyagentd-env) '(:allow nil))
                          (lambda (_) (when then (funcall then)))))

(defmacro pyagentd-history--when (ready position &rest body)
  "Evaluate BODY in the session buffer when READY, with point there as POSITION.
READY is a function that calls another one then.  POSITION is a marker:
while BODY asks, point may follow an answer."
  (declare (indent 2) (debug (symbolp symbolp body)))
  `(let ((,position (point)))
     (pyagentd-in-session
       (let ((,position (copy-marker ,position)))
         (,ready (lambda () ,@body))))))

(defun pyagentd-history--with-points (then)
  "Call THEN with the prompts in the text that were sent, first one first."
  (pyagentd-branch-with-points
   (lambda (points)
     (funcall then
              (cl-loop
               for point in points
               when (plist-get point :message-id)
               ;; Where it is here: something may have been typed since.
               collect (append (cl-loop for key in '(:start :end)
                                        append (list key (pyagentd-edit-position
                                                          (plist-get point key))))
                               point))))))

(defun pyagentd-history--at (points position)
  "Return the one of POINTS, prompts, that POSITION is in, or nil."
  (seq-find (lambda (point)
              (<= (plist-get point :start) position (plist-get point :end)))
            points))

(defun pyagentd-history--choose (prompt then)
  "Read one of the prompts of this conversation with PROMPT; call THEN with its id."
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
  "Say what ANSWER tells about a rewind."
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
  "Regenerate the last answer; the one so far is kept as a variant.
With a prefix argument, or CHOOSE from Lisp, choose the prompt; what
followed it belongs to that variant.  See `pyagentd-history--next-variant'."
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
  "Show the variant STEP further on of the last message at or before point."
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
A prompt that was edited in place is sent as it stands now; else it is
shown to be edited.  It and all that came after it are kept as a
variant: see `pyagentd-history--next-variant'."
  (interactive nil pyagentd-mode)
  (pyagentd-history--when pyagentd-chat-when-ready position
    (pyagentd-history--with-points
     (lambda (points)
       (unless points (user-error "No prompt was sent yet"))
       (let* ((point (or (pyagentd-history--at points position)
                         (pyagentd-branch--nearest points position)))
              (message (plist-get point :message-id))
              ;; As it stands here.
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
            ;; The daemon puts back what was edited in place.
            (if (equal text (string-trim recorded))
                (pyagentd-history--edit message text)
              (pyagentd-history--run
               'edit (list :message message :text text))))))))))

(defun pyagentd-history--edit (message text)
  "Show TEXT, the prompt MESSAGE, to be edited."
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
  "Make a session of this one up to MESSAGE, nil for all of it, and visit it."
  (pyagentd-history--call 'fork (list :message message)
                          #'pyagentd-manage-visit #'pyagentd-manage-late))

(provide 'pyagentd-history)
;;; pyagentd-history.el ends here

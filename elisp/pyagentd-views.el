;;; pyagentd-views.el --- Commands and keys of each list -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The daemon makes the contents of lists (pyagentd-list.el).  This file adds
;; commands for their rows that need Emacs, in one section for each list.

;;; Code:

(require 'pyagentd-list)
(require 'pyagentd-agents)

;;;; Queued messages

(defun pyagentd-steer (text)
  "Send TEXT to the run in progress; the model reads it at its next step.
Interactively, TEXT is the region or the draft below the answer, which moves
to where the model reads it; without either, ask for it."
  (interactive
   (list (or (nth 2 (pyagentd-in-session (pyagentd-queue--draft)))
             (read-string "Message to this run: ")))
   pyagentd-mode)
  (when (string-blank-p text)
    (user-error "The message is empty"))
  (pyagentd-in-session
    (pcase (pyagentd-queue--draft)
      (`(,beg ,end ,(pred (equal text))) (delete-region beg end)))
    (pyagentd-chat-submit text #'pyagentd-queue--return :steer t)))

(defun pyagentd-queue--draft ()
  "Return the region or the draft, as (BEG END TEXT), or nil without either."
  (save-restriction
    (pcase-let ((`(,beg . ,end)
                 (if (use-region-p) (cons (region-beginning) (region-end))
                   (widen)
                   (save-excursion
                     (let ((start (pyagentd-queued-start (goto-char (point-max)))))
                       ;; The space of an empty heading is no draft.
                       (skip-chars-backward " \t\n" start)
                       (when (< start (point)) (cons start (point))))))))
      (when beg
        (list beg end (buffer-substring-no-properties beg end))))))

(add-hook 'pyagentd-queued-hook (lambda () (pyagentd-list-changed "queue")))

(defun pyagentd-queue--buffer ()
  "Return the buffer of the session whose queue this list shows."
  (let ((branch (plist-get pyagentd-list-arguments :branch)))
    (or (pyagentd-place-buffer branch)
        (find-file-noselect (pyagentd-place-conversation branch)))))

(defun pyagentd-queue--cancel ()
  "Remove the message at point from the queue; its text is a draft again."
  (interactive nil pyagentd-list-mode)
  (cl-destructuring-bind (&key branch id origin &allow-other-keys)
      (pyagentd-table-facts)
    (with-current-buffer (pyagentd-queue--buffer)
      (pyagentd-later-here
       'queue-cancel (list :branch branch :id id)
       (lambda (text)
         (pyagentd-list-changed "queue")
         (message "Removed from the queue; %s"
                  (if (equal origin "document") "its text is a draft"
                    (pyagentd-queue--return text))))))))

(defun pyagentd-queue--return (text)
  "Insert TEXT, which was never in this buffer, as a draft at its end.
If the buffer is read-only, put TEXT into the kill ring instead.  Return a
string that says where it is."
  (cond ((not buffer-read-only)
         (save-excursion
           (save-restriction
             (widen)
             (goto-char (point-max))
             (unless (pyagentd-prompt-empty-p)
               (insert "\n\n" pyagentd-prompt-prefix))
             (insert text)))
         "its text is a draft")
        (t (kill-new text)
           (substitute-command-keys
            "the text is in the kill ring, \\[yank] inserts it"))))

(defun pyagentd-queue--edit ()
  "Edit the queued message at point; it keeps its place."
  (interactive nil pyagentd-list-mode)
  (cl-destructuring-bind (&key branch id text &allow-other-keys)
      (pyagentd-table-facts)
    (if-let ((overlay (with-current-buffer (pyagentd-queue--buffer)
                        (pyagentd-queued-overlay id))))
        (progn (pop-to-buffer (overlay-buffer overlay))
               (goto-char (overlay-end overlay)))
      (pyagentd-later-here
       'queue-edit
       (list :branch branch :id id :text (read-string "Message: " text))
       (lambda (_) (pyagentd-list-changed "queue"))))))

(pyagentd-list-add-keys "queue"
  '("k" pyagentd-queue--cancel "remove")
  '("e" pyagentd-queue--edit "edit"))

(defun pyagentd-queue ()
  "List the queued messages of the session here."
  (interactive)
  (pyagentd-list-of-session "queue" 'required))

;;;; Pending approvals

(defun pyagentd-ask--show ()
  "Show the details of the question here."
  (interactive)
  (let ((ask (pyagentd-answer-current)))
    (with-current-buffer
        (pyagentd-report-buffer "ask" (list :id (pyagentd-ask-id ask)))
      (use-local-map
       (let ((map (pyagentd-ask-keys-define (make-sparse-keymap))))
         (define-key map "o" nil)
         (define-key map "q" #'pyagentd-ask--here-quit)
         (set-keymap-parent map pyagentd-report-mode-map)
         map))
      (pyagentd-ask-here-set
       ask (pyagentd-ask-keys-header ask 'pyagentd-ask--show)
       " (answered)   q close" t)
      (pyagentd-ask-here-display))))

(defvar-local pyagentd-asks--seen nil
  "Id of the ask that was at point after the last command here.
Nil if there was none, or one that was answered here.")

(defun pyagentd-asks--note-seen ()
  "Record which ask is at point."
  (let ((ask (pyagentd-ask-find (tabulated-list-get-id))))
    (setq pyagentd-asks--seen (and ask (not (pyagentd-ask-answered-p ask))
                                   (pyagentd-ask-id ask)))))

(defun pyagentd-asks--at-point ()
  "Return the ask at point, or nil.
If another client has answered the ask at point, the list moves another one
there: return nil, as the next key was not meant for that one."
  (let ((id (tabulated-list-get-id)))
    (when (member pyagentd-asks--seen (list nil id))
      (pyagentd-ask-find id))))

(defun pyagentd-asks--marked ()
  "Return the open asks among the marked lines, or nil if none is marked."
  (when-let ((rows (pyagentd-table-marked)))
    (or (delq nil (mapcar (lambda (row) (pyagentd-ask-find (plist-get row :id)))
                          rows))
        (user-error "The marked asks were answered already; \
U removes the marks"))))

(defun pyagentd-asks--each (asks decision question)
  "Answer all ASKS with DECISION if the user confirms QUESTION.
QUESTION is a format string for the number and the titles of the asks."
  (let* ((asks (or (seq-remove #'pyagentd-ask-answered-p asks)
                   (user-error
                    "Already answered; waiting for the daemon")))
         (more (- (length asks) 3))
         (names (mapconcat (lambda (ask)
                             (truncate-string-to-width
                              (pyagentd-ask-title ask) 40 nil nil "…"))
                           (seq-take asks 3) "; ")))
    (when (y-or-n-p (format question (pyagentd-count (length asks) "action")
                            (if (> more 0) (format "%s; and %d more" names more)
                              names)))
      (pyagentd-table-forget-marks)
      (dolist (ask asks)
        (pyagentd-answer-with ask decision)))))

(defun pyagentd-asks--allow ()
  "Allow the marked asks once, or else the one at point."
  (interactive nil pyagentd-list-mode)
  (if-let ((marked (pyagentd-asks--marked)))
      (pyagentd-asks--each
       (or (seq-remove #'pyagentd-ask-question-p marked)
           (user-error "Questions are answered one by one; \
U removes the marks"))
       'allow "Allow %s once (%s)? ")
    (call-interactively #'pyagentd-allow-once)))

(defun pyagentd-asks--deny ()
  "Deny the marked asks, or else the one at point, after confirmation."
  (interactive nil pyagentd-list-mode)
  (pyagentd-asks--each (or (pyagentd-asks--marked)
                           (list (pyagentd-answer-current)))
                       'deny "Deny %s (%s)? "))

(defun pyagentd-asks--on-shown ()
  "Update the known open asks from the list of asks, when that is shown."
  (when (equal pyagentd-list-name "asks")
    (setq pyagentd-ask-function #'pyagentd-asks--at-point)
    (add-hook 'post-command-hook #'pyagentd-asks--note-seen nil t)
    (pyagentd-ask-receive-all
     (mapcar (lambda (row) (pyagentd-list-fact row "ask"))
             pyagentd-table-rows))))

(add-hook 'pyagentd-list-after-show-hook #'pyagentd-asks--on-shown)
(add-hook 'pyagentd-ask-changed-hook (lambda () (pyagentd-list-changed "asks")))

(defun pyagentd-asks ()
  "List pending approvals and questions of all sessions."
  (interactive)
  (pyagentd-list-show "asks"))

(apply #'pyagentd-list-add-keys "asks"
       '("RET" pyagentd-ask--show "details")
       '("v" pyagentd-list--visit "conversation")
       (mapcar (pcase-lambda (`(,letter ,command ,word))
                 (pcase command
                   ('pyagentd-allow-once
                    (list (string letter) #'pyagentd-asks--allow word t))
                   ('pyagentd-deny
                    (list (string letter) #'pyagentd-asks--deny word t))
                   (_ (list (string letter) command word))))
               pyagentd-ask-keys))

;;;; Branches

(defun pyagentd-branches--branch ()
  "Create a branch of the branch at point."
  (interactive nil pyagentd-list-mode)
  (with-current-buffer (find-file-noselect
                        (plist-get (pyagentd-table-facts) :file))
    (goto-char (point-max))
    (pyagentd-branch)))

(defun pyagentd-branches--diff (&optional other)
  "Show how the branch at point differs from its parent, or from the OTHER."
  (interactive
   (list (when current-prefix-arg
           (pyagentd-branch--read-branch "Compare with"
                                         (pyagentd-list-facts) nil)))
   pyagentd-list-mode)
  (let* ((branch (pyagentd-table-facts))
         (other (or other
                    (seq-find (lambda (candidate)
                                (equal (plist-get candidate :name)
                                       (plist-get branch :parent)))
                              (pyagentd-list-facts))
                    (user-error "%s was not branched from another; \
C-u = chooses one" (plist-get branch :name)))))
    (pyagentd-later
     'branch-diff (list :branch (plist-get branch :branch)
                        :other (plist-get other :branch))
     (lambda (diff)
       (pyagentd-show-diff "*Branch diff*" diff)))))

(pyagentd-list-add-keys "branches"
  '("b" pyagentd-branches--branch "branch")
  '("=" pyagentd-branches--diff "compare")
  '("e" pyagentd-export "export")
  '("d" pyagentd-delete "delete"))

(defun pyagentd-branches ()
  "Show the branches of the session here as a tree."
  (interactive)
  (let ((here (pyagentd-here)))
    (when (plist-get here :agent)
      (user-error "An agent has no branches"))
    ;; The list is for the session: its branch may be deleted here.
    (pyagentd-list-show "branches" (list :branch (plist-get here :session-dir)
                                         :at (plist-get here :branch)))))

;;;; Saved conversations

(defun pyagentd-context-save (description)
  "Save a copy of the conversation here with DESCRIPTION; it continues.
If DESCRIPTION is empty, a model writes one."
  (interactive
   (progn (pyagentd-here)               ; signals before something is typed
          (list (read-string "Description (empty: a model writes it): "))))
  (let ((here (pyagentd-here)))
    (pyagentd-here-save here)
    (message "Saving the conversation...")
    (pyagentd-later
     'context-save (append (list :branch (plist-get here :branch)
                                 :description (string-trim description))
                           (pyagentd-env))
     (lambda (saved)
       (run-hooks 'pyagentd-changed-hook)
       (message "Saved [%s] %s (%s)" (substring (plist-get saved :id) 0 8)
                (plist-get saved :description)
                (pyagentd-count (plist-get saved :message-count) "message")))
     (* 5 pyagentd-later-patience))))   ; a model may summarise it

(defun pyagentd-context--history (&optional agent)
  "List the saved conversations of the session here.
Without a session here, or with a prefix argument, ask for an AGENT; also a
destroyed agent's conversations can be listed."
  (interactive
   (list (when (or current-prefix-arg (null (ignore-errors (pyagentd-here))))
           (pyagentd-named-read "Conversations of agent"))))
  (let ((branch (plist-get (if agent (pyagentd-named-row agent)
                             (pyagentd-here))
                           :branch)))
    (pyagentd-list-show "contexts" (if branch (list :branch branch)
                                     (list :agent agent)))))

(pyagentd-list-add-keys "contexts"
  '("s" pyagentd-context-save "save the present one"))

;;;; Commands in the background

(pyagentd-events-register
 'task (lambda (_branch _seq args)
         (pyagentd-list-changed
          (if (and (plist-get (car args) :output)
                   (eq 'running (pyagentd-symbol (plist-get (car args) :status))))
              "output"
            "tasks"))))

;;;; Schedules

(defconst pyagentd-schedules--kinds
  '(("at a time (14:30 or 2026-03-04T14:30)" . :at)
    ("after a while (10m, 2h)" . :delay)
    ("again and again (1h, 1d)" . :every)
    ("by a cron expression (0 9 * * 1-5)" . :cron))
  "Alist of kinds of times and the daemon's keywords for them.")

(defun pyagentd-schedules--add (kind time text)
  "Schedule TEXT to be sent to the session here at TIME.
KIND is the kind of TIME: `:at', `:delay', `:every' or `:cron'.  In a
scheduled run, every action that needs approval is denied."
  (interactive
   (let ((kind (progn
                 (or (plist-get pyagentd-list-arguments :branch) (pyagentd-here))
                 (pyagentd-choose "When: " pyagentd-schedules--kinds))))
     (list kind
           (read-string (format "Time, %s: "
                                (car (rassq kind pyagentd-schedules--kinds))))
           (read-string "Message: "))))
  (pyagentd-later-here
   'schedule-add (list :branch (or (plist-get pyagentd-list-arguments :branch)
                                   (plist-get (pyagentd-here) :branch))
                       :text text kind time :env (pyagentd-env-variables))
   (lambda (schedule)
     (pyagentd-list-changed "sessions")
     (message "Scheduled: %s" (plist-get schedule :when)))))

(pyagentd-list-add-keys "schedules"
  '("+" pyagentd-schedules--add "add"))

;;;; MCP servers

(defun pyagentd-mcp ()
  "List the MCP servers of the session or the project here."
  (let ((here (ignore-errors (pyagentd-here))))
    (pyagentd-list-show
     "mcp" (append (if here (list :branch (plist-get here :branch))
                     (list :root (pyagentd--project-root)))
                   (list :env (pyagentd-env-variables))))))

;;;; Changed files

(defun pyagentd-snapshots--diff ()
  "Show what restoring the file at point would change."
  (interactive nil pyagentd-list-mode)
  (let* ((file (pyagentd-table-facts))
         (diff (plist-get file :diff)))
    (pyagentd-show-diff "*File diff*"
                        (if (member diff '(nil "")) (or (plist-get file :reason) "")
                          diff))))

(defun pyagentd-snapshots--since ()
  "Choose a prompt, and list only changes since then."
  (interactive nil pyagentd-list-mode)
  (pyagentd-later-asking
   'history (list :branch (plist-get pyagentd-list-arguments :branch))
   (lambda (answer)
     (pyagentd-list-again-with
      (list :message (plist-get
                      (pyagentd-choose
                       "Changes since (empty for all): "
                       (pyagentd-prompt-choices (plist-get answer :prompts)))
                      :message-id))))))

(pyagentd-list-add-keys "changes"
  '("RET" pyagentd-snapshots--diff "difference")
  '("=" pyagentd-snapshots--diff "difference")
  '("s" pyagentd-snapshots--since "since"))

(defun pyagentd-changes (&optional last)
  "List the files that the agents of the session here have changed.
With a prefix argument (LAST from Lisp) list only changes since the last
prompt."
  (interactive "P")
  (pyagentd-list-show "changes"
                      (append (list :branch (plist-get (pyagentd-here) :branch))
                              (when last '(:message "last")))))

;;;; Missions

(defvar pyagentd-mission-history nil
  "History of tasks of missions.")
(defvar pyagentd-mission-signature-history nil
  "History of signatures of missions.")

(defun pyagentd-mission--read-signature (prompt &optional initial)
  "Read a signature with PROMPT and INITIAL input; return nil if it is empty."
  (let ((given (string-trim (read-string prompt initial
                                         'pyagentd-mission-signature-history))))
    (unless (string-empty-p given) given)))

(defun pyagentd-mission--read (tools)
  "Read a mission, with its tools if TOOLS is non-nil, and start it."
  (let ((prompt (read-string "Mission (the task): " nil 'pyagentd-mission-history)))
    (when (string-blank-p prompt)
      (user-error "The task is empty"))
    (let ((signature (pyagentd-mission--read-signature
                      "Returns (signature, empty for anything): ")))
      (if (not tools) (pyagentd-mission prompt signature)
        (pyagentd-later-asking
         'mission-tools nil
         (lambda (tools)
           (pyagentd-mission
            prompt signature
            (completing-read-multiple
             "Tools (comma between them, empty for the usual ones): "
             tools nil t))))))))

;;;###autoload
(defun pyagentd-mission (&optional prompt signature tools)
  "Have a model carry out PROMPT with programs, and show its trace.
SIGNATURE, a string, is the type of the result, such as \"{count :int}\";
nil means any.  If it is not valid, ask again.  TOOLS are the names of the
tools that its programs may call, nil for the usual ones.  Without a PROMPT,
read it and the signature, and with a prefix argument the tools.  The mission
is a session of the project here."
  (interactive)
  (require 'pyagentd)
  (cond ((null prompt) (pyagentd-mission--read current-prefix-arg))
        ((string-blank-p prompt) (user-error "The task is empty"))
        (t (let* ((keys num-input-keys)
                  (begun (lambda (begun)
                           (pyagentd-later-when-free #'pyagentd-mission--begun
                                                     keys begun)))
                  (again (pyagentd-later-back
                          (lambda (text)
                            (pyagentd-mission
                             prompt (pyagentd-mission--read-signature
                                     (concat text "\nReturns (signature): ")
                                     signature)
                             tools)))))
             (pyagentd-later
              'mission
              (append (list :prompt prompt :signature signature :tools tools
                            :root (pyagentd--project-root))
                      (pyagentd-env))
              ;; Show it also when it starts late: it costs money.
              begun nil
              (lambda (err)
                (if (eq 'signature-error (pyagentd-symbol (nth 1 err)))
                    (pyagentd-later-when-free again keys (pyagentd-error-text err))
                  (pyagentd-later-tell err)))
              begun)))))

(defun pyagentd-mission--begun (begun)
  "Show the mission of BEGUN, the daemon's answer."
  ;; The mission's questions are shown in this buffer.
  (find-file-noselect (plist-get begun :file))
  (pop-to-buffer
   (pyagentd-report-buffer "mission" (list :branch (plist-get begun :branch)))))

(defun pyagentd-mission--trace ()
  "Show the missions of the session here, turn by turn, as they progress."
  (interactive)
  (pyagentd-report-show "mission" t))

(provide 'pyagentd-views)
;;; pyagentd-views.el ends here

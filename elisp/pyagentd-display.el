;;; pyagentd-display.el --- How a conversation looks -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Agents, failed runs, folds, code blocks: shown over the text, never in it.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-status)
(require 'pyagentd-edit)
(require 'pyagentd-daemon)

(declare-function pyagentd-spawned--begun "pyagentd-sync")
(declare-function pyagentd-spawned--tidy "pyagentd-sync")

;;;; What is drawn where text is displayed

;; Folds, rules above prompts, buttons, dividers and pictures are overlays
;; that appear when their text is displayed.  Some go when they are far from
;; what is seen: thousands of overlays make every key slow.

(defvar pyagentd-display--all nil
  "What is drawn in sessions: pairs of functions (DRAW . CLEAR).")

(defun pyagentd-display-add (draw clear)
  "Have DRAW called with the bounds of text of a session that is displayed.
CLEAR removes all that was drawn from the buffer."
  (push (cons draw clear) pyagentd-display--all))

(defun pyagentd-display--draw (beg end &rest _)
  "Draw what there is between BEG and END; for `jit-lock-functions'."
  (pcase-dolist (`(,draw . ,_) pyagentd-display--all)
    (funcall draw beg end)))

(defun pyagentd-display--set-up ()
  "Have things drawn in this buffer, or clear it without the mode."
  (if (bound-and-true-p pyagentd-mode)
      (jit-lock-register #'pyagentd-display--draw)
    (jit-lock-unregister #'pyagentd-display--draw)
    (save-restriction
      (widen)
      (pcase-dolist (`(,_ . ,clear) pyagentd-display--all)
        (funcall clear)))))

(add-hook 'pyagentd-session-look-hook #'pyagentd-display--set-up)

(defun pyagentd-display--thinned (overlays most remove)
  "Return OVERLAYS, latest first, but for those far from what is seen.
If there are no more than MOST all stay, and the latest half of MOST does
always.  REMOVE is called with one that is far, and returns non-nil if it
is gone."
  (if (<= (length overlays) most) overlays
    (append (seq-take overlays (/ most 2))
            (seq-remove
             (lambda (overlay)
               (and (not (seq-some (lambda (window)
                                     (<= (- (window-start window) 10000)
                                         (or (overlay-start overlay) -1)
                                         (+ (window-start window) 20000)))
                                   (get-buffer-window-list nil nil t)))
                    (funcall remove overlay)))
             (nthcdr (/ most 2) overlays)))))

(defun pyagentd-display--remove (overlay)
  "Remove OVERLAY; it is made again when its text is displayed."
  (when-let ((beg (overlay-start overlay)))
    (with-silent-modifications
      (put-text-property beg (overlay-end overlay) 'fontified nil)))
  (delete-overlay overlay)
  t)

;;;; Progress of agents in their parent

;; While an agent works, its parent's buffer shows at the run's marker
;; what it is doing.  The overlay changes no text.  It goes away on every
;; way an agent can end, and when the connection does.

(defconst pyagentd-overlay--max-calls 8
  "How many calls of a batch are listed.")

(defconst pyagentd-overlay-wait-delay 1.5
  "Seconds after its last call until an agent is shown as waiting.")

(defvar pyagentd-overlay-handlers
  '((WAIT pyagentd-overlay-indicate-wait pyagentd-overlay--keep)
    (TOOL pyagentd-overlay-indicate-tool-call pyagentd-overlay--keep)
    (DONE ignore pyagentd-overlay-delete))
  "What happens in each state of an agent, as (STATE UI-HANDLER CORE-HANDLER).
Both are called with the overlay and the event's plist, in this order.
The states have the names of gptel's state machine.")

(defvar pyagentd-overlay-map
  (pyagentd-keymap
   "RET" #'pyagentd-overlay--visit
   [mouse-1] #'pyagentd-overlay--visit
   [mouse-2] #'pyagentd-overlay--visit)
  "Keymap of the progress of an agent.")

(pyagentd-deflocal pyagentd-overlay--table nil
  "Alist of the running agents of this buffer: id and overlay.")

(pyagentd-deflocal pyagentd-overlay--background nil
  "Alist of the agents that nobody waits for: id and plist.")

(defun pyagentd-overlay--show (overlay status)
  "Show STATUS below the header of OVERLAY, if its buffer still lives."
  (when (overlay-buffer overlay)
    (overlay-put overlay 'after-string
                 (propertize (concat (overlay-get overlay 'msg) status "\n"
                                     pyagentd-rule)
                             'keymap pyagentd-overlay-map
                             'mouse-face 'highlight
                             'help-echo "RET, mouse-1: visit the agent"))))

(defconst pyagentd-overlay--wait-text
  (propertize "Waiting..." 'face 'warning)
  "The text of an agent that waits for the model.")

(defun pyagentd-overlay-indicate-wait (overlay _agent)
  "Let OVERLAY say that the agent waits, in a moment if it called tools."
  (let ((count (overlay-get overlay 'count)))
    (if (= count 0)
        (pyagentd-overlay--show overlay pyagentd-overlay--wait-text)
      (run-at-time pyagentd-overlay-wait-delay nil
                   #'pyagentd-overlay--settle overlay
                   (overlay-get overlay 'version)))))

(defun pyagentd-overlay--settle (overlay version)
  "Let OVERLAY say that the agent waits, if it is at VERSION still."
  (when (and (overlay-buffer overlay)
             (eql version (overlay-get overlay 'version)))
    (pyagentd-overlay--show overlay pyagentd-overlay--wait-text)))

(defun pyagentd-overlay-indicate-tool-call (overlay agent)
  "Let OVERLAY list what AGENT does and count what it did so far."
  (overlay-put overlay 'count (or (plist-get agent :count) 0))
  (let* ((calls (plist-get agent :calls))
         (more (- (length calls) pyagentd-overlay--max-calls)))
    (pyagentd-overlay--show
     overlay
     (concat
      (propertize "Calling Tools..." 'face 'mode-line-emphasis)
      (format " (+%d)" (overlay-get overlay 'count))
      (propertize
       (concat (mapconcat
                (lambda (call) (concat "\n  " (pyagentd-one-line call 70)))
                (seq-take calls pyagentd-overlay--max-calls) "")
               (and (> more 0) (format "\n  … %d more" more)))
       'face 'pyagentd-detail)))))

(defun pyagentd-overlay--keep (overlay agent)
  "Keep OVERLAY at the marker of the run and note the state of AGENT."
  (when-let ((buffer (overlay-buffer overlay)))
    (with-current-buffer buffer
      (overlay-put overlay 'pyagentd-agent-dir (plist-get agent :branch-dir))
      (pyagentd-overlay--place overlay))))

(defun pyagentd-overlay-delete (overlay &optional _agent)
  "Remove OVERLAY for good."
  (when-let ((buffer (overlay-buffer overlay)))
    (with-current-buffer buffer
      (setq pyagentd-overlay--table
            (rassq-delete-all overlay pyagentd-overlay--table))))
  (delete-overlay overlay))

(defun pyagentd-overlay--place (overlay)
  "Move OVERLAY to the line of the run's marker."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-insert-position))
      (move-overlay overlay (line-beginning-position) (point)))))

(defun pyagentd-overlay--make (agent)
  "Return a new overlay for AGENT, a plist, in the current buffer."
  (let ((overlay (make-overlay 1 1))
        (preset (or (plist-get agent :preset) "agent")))
    (overlay-put overlay 'pyagentd-agent t)
    (overlay-put overlay 'gptel-persistent-agent t)
    (overlay-put overlay 'count 0)
    (overlay-put overlay 'version 0)
    (overlay-put overlay 'keymap pyagentd-overlay-map)
    (overlay-put overlay 'msg
                 (concat "\n" pyagentd-rule
                         (propertize (concat (capitalize preset) " Task: ")
                                     'face 'pyagentd-heading)
                         (propertize (or (plist-get agent :description) "")
                                     'face 'pyagentd-detail)
                         "\n"))
    (pyagentd-overlay--place overlay)
    (pyagentd-overlay--show overlay pyagentd-overlay--wait-text)
    (push (cons (plist-get agent :id) overlay) pyagentd-overlay--table)
    overlay))

(defun pyagentd-overlay-update (agent)
  "Show the state of AGENT in the current buffer, its parent's.
AGENT is a plist with :id, :branch-dir, :preset, :description, :state
\(`wait', `tool' or `finished'), :count of all calls so far, and :calls of
this batch."
  (let* ((state (pyagentd-symbol (plist-get agent :state)))
         (handlers (alist-get (pcase state
                                ('wait 'WAIT) ('tool 'TOOL) ('finished 'DONE))
                              pyagentd-overlay-handlers))
         (known (alist-get (plist-get agent :id) pyagentd-overlay--table
                           nil nil #'equal))
         (overlay (or known
                      (unless (eq state 'finished)
                        (pyagentd-overlay--make agent)))))
    (when overlay
      (overlay-put overlay 'version (1+ (overlay-get overlay 'version)))
      (dolist (handler handlers)
        (funcall handler overlay agent)))))

(defun pyagentd-overlay-clear ()
  "Remove all overlays from the current buffer.
What is known of agents in the background stays."
  (mapc (lambda (pair) (delete-overlay (cdr pair))) pyagentd-overlay--table)
  (setq pyagentd-overlay--table nil))

(defun pyagentd-overlay-forget ()
  "Remove all progress from the current buffer."
  (pyagentd-overlay-clear)
  (setq pyagentd-overlay--background nil))

(defun pyagentd-overlay-note (agent)
  "Show the state of AGENT, a plist, in the current buffer, its parent's.
One in the background is named in the header line and has no overlay."
  (let ((here (length pyagentd-overlay--table)))
    (if (not (plist-get agent :background))
        (pyagentd-overlay-update agent)
      (setf (alist-get (plist-get agent :id) pyagentd-overlay--background
                       nil t #'equal)
            (unless (eq 'finished (pyagentd-symbol (plist-get agent :state)))
              agent)))
    (unless (and (not (plist-get agent :background))
                 (= here (length pyagentd-overlay--table)))
      (pyagentd-status-refresh))))

(defun pyagentd-overlay--segment ()
  "Return which agents work here, those in the background by name, or nil."
  (let ((here (length pyagentd-overlay--table))
        (more (- (length pyagentd-overlay--background) 3)))
    (when (> (pyagentd-overlay--count) 0)
      (pyagentd-status-button
       (propertize
        (concat
         (and (> here 0) (pyagentd-count here "agent"))
         (and pyagentd-overlay--background
              (concat
               (and (> here 0) ", ") "background: "
               (mapconcat
                (pcase-lambda (`(,_ . ,agent))
                  (let ((count (or (plist-get agent :count) 0)))
                    (concat (or (plist-get agent :preset) "agent")
                            (and (> count 0) (format " (+%d)" count)))))
                (reverse (seq-take pyagentd-overlay--background 3)) ", ")
               (and (> more 0) (format " and %d more" more)))))
        'face 'font-lock-type-face)
       'pyagentd-agents "Running agents"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-overlay--segment)

(defun pyagentd-overlay--visit (&optional event)
  "Visit the conversation of the agent at point, or at mouse EVENT."
  (interactive (list last-nonmenu-event)
               pyagentd-mode)
  (when (mouse-event-p event)
    (mouse-set-point event))
  (let ((dir (seq-some (lambda (overlay)
                         (overlay-get overlay 'pyagentd-agent-dir))
                       (append (overlays-in (point) (point))
                               (overlays-in (max 1 (1- (point)))
                                            (1+ (point)))))))
    (unless dir (user-error "No agent here"))
    (find-file-other-window (pyagentd-place-conversation dir))))

(defun pyagentd-overlay--count ()
  "Return how many agents of this buffer work."
  (+ (length pyagentd-overlay--table) (length pyagentd-overlay--background)))

(pyagentd-define-event agent `(,agent)
  "Show what an agent does that was spawned here."
  (let ((known (pyagentd-overlay--count)))
    (pyagentd-overlay-note agent)
    (when (> (pyagentd-overlay--count) known)
      (pyagentd-spawned--begun agent))
    (pyagentd-spawned--tidy)))

;;;; Which calls of tools have failed

;; The text of a call does not say whether the model got it as an error, nor
;; in a few words what it was and how it came out.  The daemon does: of those
;; there are when a buffer attaches, of others before their text comes.

(pyagentd-deflocal pyagentd-fold--lines nil
  "The overlays of the first lines of blocks, latest first.")

(pyagentd-deflocal pyagentd-failed--calls nil
  "Hash table of calls here: from their ids to (FAILED . LINE-OR-NIL), or nil.")

(defun pyagentd-failed--call (id)
  "Return what is known of the call ID of this buffer, (FAILED . LINE)."
  (unless pyagentd-failed--calls
    (setq pyagentd-failed--calls (make-hash-table :test #'equal)))
  (or (gethash id pyagentd-failed--calls)
      (puthash id (list nil) pyagentd-failed--calls)))

(defun pyagentd-failed-receive (ids lines)
  "Note that the calls IDS of this buffer, and others known, have failed.
LINES are lists (ID LINE), with what says what a call was."
  (when (or ids lines)
    (dolist (id ids)
      (setcar (pyagentd-failed--call id) t))
    (pcase-dolist (`(,id ,line) lines)
      (setcdr (pyagentd-failed--call id) line))
    (dolist (line pyagentd-fold--lines) ; which say what is known now
      (when (and (overlay-buffer line)
                 (overlay-get line 'pyagentd-folded)
                 (eq 'tool (overlay-get line 'pyagentd-fold-kind)))
        (pyagentd-fold--set line t)))))

(pyagentd-define-event tool `(,call)
  "Note what a call was, and whether it has failed."
  (let ((known (pyagentd-failed--call (plist-get call :id))))
    (setcar known (eq 'failed (pyagentd-symbol (plist-get call :state))))
    (setcdr known (plist-get call :summary))))

;;;; Blocks of tools, thoughts

;; What the model thought, and what its tools were asked and answered,
;; stands in the text in fences.  Where they begin and end their roles say.

(defconst pyagentd-fenced-open
  "^``` \\(?:\\(tool\\|compaction\\) (\\|\\(reasoning\\)$\\)"
  "How the first line of a block begins.")

(defun pyagentd-fenced-block (pos)
  "Return the block whose first line begins at POS, (KIND BEG EOL END), or nil.
One that is still being written is none."
  (save-excursion
    (goto-char pos)
    (save-match-data
      (when (and (eq (get-text-property pos 'gptel) 'ignore)
                 (looking-at pyagentd-fenced-open))
        (let* ((kind (intern (or (match-string-no-properties 1)
                                 (match-string-no-properties 2))))
               (end (pyagentd-role-end pos)))
          (when (eq kind 'tool)         ; its result follows
            (setq end (and (consp (get-text-property end 'gptel))
                           (+ 4 (pyagentd-role-end end)))))
          (when (and end (< (line-end-position) end) (<= end (point-max))
                     (equal "\n```" (buffer-substring-no-properties
                                     (max pos (- end 4)) end)))
            (list kind pos (line-end-position) end)))))))

(defun pyagentd-fenced--line (beg eol end)
  "Return what the call from BEG to END was; its first line ends at EOL."
  (pcase-let* ((id (cdr-safe (get-text-property eol 'gptel)))
               (`(,failed . ,said) (and id (pyagentd-failed--call id)))
               (code (save-excursion
                       (goto-char end)
                       (and (looking-back "\\[exit code \\([0-9]+\\)\\]\n```"
                                          (max eol (- end 30)))
                            (match-string-no-properties 1))))
               (line (or said
                         (concat (string-remove-suffix
                                  ")" (buffer-substring-no-properties
                                       (+ beg (length "``` tool (")) eol))
                                 (cond (code (concat " → exit " code))
                                       (failed " → failed"))))))
    (if (or failed code) (propertize line 'face '(error pyagentd-fold)) line)))

(defun pyagentd-fenced-words (kind beg eol end folded)
  "Return the line for a block of KIND from BEG to END; its first ends at EOL.
FOLDED says whether the rest is; only a compaction has a line else."
  (concat
   (if folded "▸ " "▾ ")
   (pcase-exhaustive kind
     ('reasoning (concat "thought · " (pyagentd-count
                                       (count-lines (1+ eol) (- end 4)) "line")))
     ('compaction
      (format "%s compacted, %s %s" (make-string 8 ?─)
              (string-remove-suffix ")" (buffer-substring-no-properties
                                         (+ beg (length "``` compaction (")) eol))
              (make-string 24 ?─)))
     ('tool (pyagentd-fenced--line beg eol end)))))

(defun pyagentd-fenced-agents-call (start)
  "Return the id of the call at START if it is one that makes an agent."
  (when-let ((block (pyagentd-fenced-block start)))
    (save-excursion
      (goto-char start)
      (and (looking-at-p "``` tool (\\(?:PersistentAgent\\|task\\|mission\\)\\_>")
           (cdr-safe (get-text-property (nth 2 block) 'gptel))))))

(defun pyagentd-fenced-start (pos)
  "Return where the block begins that has POS in it or in its last line."
  (save-excursion
    (goto-char pos)
    (end-of-line)
    (let (start)
      (while (and (not start)
                  (re-search-backward pyagentd-fenced-open nil t)
                  (get-text-property (point) 'gptel))
        (if-let ((block (pyagentd-fenced-block (point))))
            (setq start (if (<= pos (nth 3 block)) (point) -1))
          (when (bobp) (setq start -1))))
      (and start (> start 0) start))))

;;;; Fold blocks

;; Each block is folded into one line, which TAB or a click unfolds.  A
;; compaction is such a block, too: the model is shown the summary in it in
;; place of what stands above.  The summary can be edited; who deletes the
;; block lets the model see again what it stood for.
;;
;; The lines are overlays: neither undo nor saving knows of them, and text
;; that is folded is not fontified.

(defcustom pyagentd-fold '(reasoning tool)
  "Which blocks of a conversation are folded when they appear.
A list of symbols: `reasoning' for what the model thought, `tool' for
tool calls with their results.  Nil folds none.
\\<pyagentd-mode-map>\\[pyagentd-fold-toggle] folds and unfolds."
  :type '(choice (const :tag "Thoughts and tools" (reasoning tool))
                 (const :tag "Tools" (tool))
                 (const :tag "Thoughts" (reasoning))
                 (const :tag "Nothing" nil))
  :group 'pyagentd)

(defface pyagentd-fold '((t :inherit shadow))
  "Face of folded blocks."
  :group 'pyagentd)

(defconst pyagentd-fold--most 300
  "Greatest number of blocks that have overlays.")

(pyagentd-deflocal pyagentd-fold--kinds 'default
  "Which blocks are folded in this buffer; `default' is `pyagentd-fold'.")
(defvar pyagentd-fold-map
  (pyagentd-keymap
   "TAB" #'pyagentd-fold-toggle
   "<tab>" #'pyagentd-fold-toggle
   "RET" #'pyagentd-fold--return
   "<return>" #'pyagentd-fold--return
   [mouse-1] #'pyagentd-fold-toggle
   [mouse-2] #'pyagentd-fold-toggle)
  "Keymap of the first line of a block.")

(defun pyagentd-fold--set (overlay fold)
  "Fold the block with the first line OVERLAY, or unfold it unless FOLD."
  (let* ((body (overlay-get overlay 'pyagentd-fold-body))
         (kind (overlay-get overlay 'pyagentd-fold-kind))
         (drawn (or fold (eq kind 'compaction))))
    (overlay-put overlay 'pyagentd-folded fold)
    (overlay-put overlay 'display
                 (and drawn (pyagentd-fenced-words
                             kind (overlay-start overlay) (overlay-end overlay)
                             (overlay-end body) fold)))
    (overlay-put overlay 'face (and drawn 'pyagentd-fold))
    (overlay-put body 'invisible (and fold 'pyagentd-fold))
    ;; Its end is at the end of the line that is seen, too.
    (overlay-put body 'keymap (and fold pyagentd-fold-map))
    (overlay-put (overlay-get overlay 'pyagentd-fold-after) 'keymap
                 (and fold pyagentd-fold-map))))

(defun pyagentd-fold--draw (kind beg eol end)
  "Make the block of KIND from BEG to END foldable; its first line ends at EOL."
  (let* ((body (pyagentd-draw eol end 'pyagentd-fold t))
         ;; What follows stands a little apart; a terminal has no room for that.
         (after (pyagentd-draw end (min (1+ end) (point-max)) 'pyagentd-fold t
                               'line-spacing 0.25
                               'invisible 'pyagentd-shown))
         (line (pyagentd-draw
                beg eol 'pyagentd-fold t 'invisible 'pyagentd-shown
                'pyagentd-fold-body body 'pyagentd-fold-after after
                'pyagentd-fold-kind kind
                'mouse-face 'highlight 'keymap pyagentd-fold-map
                'help-echo "RET, TAB, mouse-1: show or hide the rest"
                ;; Whoever deletes the line sees what else there is of the block.
                'modification-hooks
                (list (lambda (line changed from to &rest _)
                        (unless (or changed (< (overlay-start line) from)
                                    (< to (overlay-end line)))
                          (mapc #'delete-overlay (list body after))))))))
    (overlay-put body 'isearch-open-invisible
                 (lambda (_) (pyagentd-fold--set line nil)))
    (pyagentd-fold--set line (pyagentd-fold--folds-p kind))
    (push line pyagentd-fold--lines)
    line))

(defun pyagentd-fold--folds-p (kind)
  "Return t if blocks of KIND are folded here when they appear."
  (and (memq kind (cons 'compaction
                        (if (eq pyagentd-fold--kinds 'default) pyagentd-fold
                          pyagentd-fold--kinds)))
       t))

(defun pyagentd-fold--forget (line)
  "Remove the overlays of the block with the first line LINE until it is displayed."
  (delete-overlay (overlay-get line 'pyagentd-fold-body))
  (delete-overlay (overlay-get line 'pyagentd-fold-after))
  (pyagentd-display--remove line))

(defun pyagentd-fold--line-at (pos)
  "Return the overlay of the first line of a block that begins at POS, or nil."
  (seq-find (lambda (overlay)
              (and (overlay-get overlay 'pyagentd-fold-kind)
                   (= (overlay-start overlay) pos)))
            (overlays-in pos (1+ pos))))

(defun pyagentd-fold--find (beg end &rest _)
  "Make the blocks foldable that begin between BEG and END."
  (save-excursion
    (save-match-data
      (goto-char beg)
      (forward-line 0)
      (while (re-search-forward pyagentd-fenced-open end t)
        (let ((start (match-beginning 0)))
          (unless (pyagentd-fold--line-at start)
            (when-let ((block (pyagentd-fenced-block start)))
              (apply #'pyagentd-fold--draw block))))))
    (setq pyagentd-fold--lines
          (pyagentd-display--thinned
           pyagentd-fold--lines pyagentd-fold--most
           (lambda (line)
             ;; Nobody misses one that is as it was made.
             (and (or (null (overlay-start line))
                      (eq (overlay-get line 'pyagentd-folded)
                          (pyagentd-fold--folds-p
                           (overlay-get line 'pyagentd-fold-kind))))
                  (pyagentd-fold--forget line)))))))

(defun pyagentd-fold--on-insert (beg end)
  "Make the blocks foldable that what is now from BEG to END has completed.
The text counts as fontified, so that nobody may look at it again.  What
was inserted may end one block and begin the next."
  (save-excursion
    (save-restriction
      (save-match-data
        (widen)
        (goto-char (max 1 (- beg 4)))
        (while (search-forward "\n```" end t)
          (when (eq (get-text-property (1- (point)) 'gptel) 'ignore)
            (when-let ((start (pyagentd-fenced-start (1- (point)))))
              (pyagentd-fold--find start
                                   (min (point-max) (+ start 200))))))))))

(defun pyagentd-fold-toggle (&optional event)
  "Fold or unfold the block at point, or the one that was clicked in EVENT.
With a prefix argument do so with all blocks of the buffer."
  (interactive (list last-nonmenu-event)
               pyagentd-mode)
  (if current-prefix-arg
      (pyagentd-display--fold-toggle-all)
    (when (and (mouse-event-p event)    ; in this window, another or a menu
               (windowp (posn-window (event-end event))))
      (mouse-set-point event))
    (let* ((start (or (pyagentd-fenced-start (point))
                      (user-error "No tool call, reasoning or summary here")))
           (line (or (pyagentd-fold--line-at start)
                     (apply #'pyagentd-fold--draw
                            (pyagentd-fenced-block start))))
           (fold (not (overlay-get line 'pyagentd-folded))))
      (when fold (goto-char start))
      (pyagentd-fold--set line fold))))

(defun pyagentd-fold--return ()
  "Visit the agent whose call is at point, else unfold or fold the block."
  (interactive nil pyagentd-mode)
  (let* ((start (pyagentd-fenced-start (point)))
         (call (and start (pyagentd-fenced-agents-call start))))
    (if (null call) (pyagentd-fold-toggle)
      (pyagentd-later-here
       'agents (list :branch pyagentd--branch-dir :call call)
       (lambda (answer)
         (find-file-other-window
          (pyagentd-place-conversation
           (plist-get
            (or (car (plist-get answer :agents))
                (user-error "This call started no agent; TAB shows the call"))
            :branch-dir))))))))

(defun pyagentd-display--fold-toggle-all ()
  "Unfold all blocks of tools and of thoughts, or fold them if none is folded."
  (interactive nil pyagentd-mode)
  (setq pyagentd-fold--kinds
        (unless (seq-some (lambda (line)
                            (and (overlay-buffer line)
                                 (overlay-get line 'pyagentd-folded)))
                          pyagentd-fold--lines)
          '(reasoning tool)))
  (save-restriction
    (widen)
    (pyagentd-fold--clear)
    (with-silent-modifications
      (put-text-property (point-min) (point-max) 'fontified nil))
    ;; The rest when it is displayed.
    (pyagentd-fold--find (max (point-min) (- (point) 10000))
                         (min (point-max) (+ (point) 10000))))
  (message (if pyagentd-fold--kinds "Folded" "Unfolded")))

(defun pyagentd-fold--clear ()
  "Unfold all blocks and forget them."
  (mapc #'pyagentd-fold--forget pyagentd-fold--lines)
  (setq pyagentd-fold--lines nil))

(pyagentd-display-add #'pyagentd-fold--find #'pyagentd-fold--clear)
(add-hook 'pyagentd-insert-functions #'pyagentd-fold--on-insert)

;;;; Prompts

;; A rule above each prompt, so that a long conversation reads in turns.
;; It is drawn when the text is displayed, and no part of the text.  The
;; one that is being typed, which ends at the end of the buffer, has none; its
;; sign is shown also where the major mode hides markup.

(defface pyagentd-prompt '((((type tty)) :inherit bold)
                           (t :inherit bold :overline t :extend t))
  "Face of the line that a prompt begins with."
  :group 'pyagentd)

(defun pyagentd-prompt--find (beg end &rest _)
  "Mark the prompts that begin between BEG and END."
  (save-excursion
    (save-match-data
      (goto-char beg)
      (forward-line 0)
      (remove-overlays (point) end 'pyagentd-prompt t)
      (while (re-search-forward "^\\(### \\).*\\(?:\\(\n\\)\\|\\'\\)"
                                (min (point-max) (1+ end)) t)
        (cond ((get-text-property (match-beginning 0) 'gptel))
              ((match-beginning 2)
               (pyagentd-draw (match-beginning 0) (match-end 0)
                              'pyagentd-prompt t 'face 'pyagentd-prompt))
              ((bound-and-true-p markdown-hide-markup)
               (pyagentd-draw (match-beginning 1) (match-end 1)
                              'pyagentd-prompt t
                              'display pyagentd-prompt-prefix)))))))

(pyagentd-display-add #'pyagentd-prompt--find
                      (lambda () (remove-overlays nil nil 'pyagentd-prompt t)))

;;;; Copy code, answers

(defconst pyagentd-code--fence
  "^[ \t]*\\(`\\{3,\\}\\|~\\{3,\\}\\)[ \t]*\\([^`\n]*?\\)[ \t]*$"
  "A line that begins or ends a block of code.")

(defun pyagentd-code-blocks (beg end)
  "Return the blocks of code in answers between BEG and END.
That is a list of (BEG END LANGUAGE), without the fences, first one first."
  (save-excursion
    (goto-char beg)
    (let (blocks open)
      (while (re-search-forward pyagentd-code--fence end t)
        (when (eq (get-text-property (match-beginning 0) 'gptel) 'response)
          (cond ((null open)
                 (setq open (list (match-string-no-properties 1)
                                  (min end (1+ (match-end 0)))
                                  (match-string-no-properties 2))))
                ((and (string-empty-p (match-string 2)) ; it closes that one
                      (eq (aref (car open) 0) (char-after (match-beginning 1)))
                      (>= (- (match-end 1) (match-beginning 1))
                          (length (car open))))
                 (push (list (nth 1 open)
                             (max (nth 1 open) (1- (match-beginning 0)))
                             (car (split-string (nth 2 open) "[ {]")))
                       blocks)
                 (setq open nil)))))
      (nreverse blocks))))

(defun pyagentd-code--answer (end &optional same)
  "Return the last text of an answer that begins before END, (BEG . END).
Return nil if there is none or, with SAME, if a prompt comes after it."
  (save-restriction
    (widen)
    (setq end (min end (point-max)))
    (while (and (> end (point-min))
                (not (eq (get-text-property (1- end) 'gptel) 'response)))
      (let ((beg (previous-single-property-change end 'gptel nil (point-min))))
        (setq end (if (or (not same) (get-text-property (1- end) 'gptel)
                          (string-blank-p (buffer-substring-no-properties
                                           beg end)))
                      beg
                    (point-min)))))
    (when (> end (point-min))
      (cons (previous-single-property-change end 'gptel nil (point-min))
            (next-single-property-change (1- end) 'gptel nil (point-max))))))

(defun pyagentd-code-at (pos)
  "Return the block of code with POS or before it, (BEG END LANGUAGE), or nil."
  (save-restriction
    (widen)
    (let ((answer (cons (1+ pos) nil)) found)
      (while (and (not found)
                  (setq answer (pyagentd-code--answer (car answer))))
        (setq found (car (last (seq-filter
                                (lambda (block)
                                  (<= (save-excursion
                                        (goto-char (car block))
                                        (line-beginning-position 0))
                                      pos))
                                (pyagentd-code-blocks (car answer)
                                                      (cdr answer)))))))
      found)))

(defun pyagentd-code--say (beg end what)
  "Say that WHAT, the text between BEG and END, was copied, and show it."
  (pulse-momentary-highlight-region beg end)
  (message "Copied %s, %s" what
           (pyagentd-count (count-lines beg end) "line")))

(defun pyagentd-copy-code (&optional whole)
  "Copy the block of code at point, or the last one above it.
With a prefix argument, or WHOLE from Lisp, copy what the answer at point
says, without what it thought and what its tools said."
  (interactive "P"
               pyagentd-mode)
  (if whole
      (pyagentd-display--copy-answer)
    (pcase (pyagentd-code-at (point))
      (`(,beg ,end ,language)
       (save-restriction
         (widen)
         (kill-new (buffer-substring-no-properties beg end))
         (pyagentd-code--say beg end (if (string-empty-p language) "code"
                                       language))))
      (_ (user-error "No block of code above")))))

(defun pyagentd-display--copy-answer ()
  "Copy the text of the answer at point, or of the last one above it.
What was thought, and what tools said, is left out."
  (interactive nil pyagentd-mode)
  (save-restriction
    (widen)
    (let ((parts (list (or (pyagentd-code--answer (1+ (point)))
                           (user-error "No answer above"))))
          before)
      (while (setq before (pyagentd-code--answer (caar parts) t))
        (push before parts))
      (kill-new (mapconcat (lambda (part)
                             (string-trim (buffer-substring-no-properties
                                           (car part) (cdr part))))
                           parts "\n\n"))
      (pyagentd-code--say (caar parts) (cdar (last parts)) "the answer"))))

;;;; A button that copies a block of code

;; A block has its button once it is complete: what is still being written
;; costs nothing.

(defcustom pyagentd-code-buttons t
  "Whether to show a button that copies each block of code in answers.
\\<pyagentd-mode-map>\\[pyagentd-copy-code] copies them without one."
  :type 'boolean
  :group 'pyagentd)

(defconst pyagentd-code-button--most 200
  "Greatest number of buttons in a buffer.")

(defconst pyagentd-code-button--reach 10000
  "How far from what is displayed the fences of a block are looked for.")

(pyagentd-deflocal pyagentd-code-button--all nil
  "The overlays of buttons in this buffer, latest first.")

(defvar pyagentd-code-button-map
  (pyagentd-keymap
   [mouse-1] #'pyagentd-code--push
   [mouse-2] #'pyagentd-code--push
   [down-mouse-1] #'ignore) ; else it sets point first
  "Keymap of a button.")

(defun pyagentd-code--push (event)
  "Copy the block of code whose button was clicked in EVENT."
  (interactive "e")
  (with-selected-window (posn-window (event-start event))
    (save-excursion
      (goto-char (posn-point (event-start event)))
      (pyagentd-copy-code))))

(defun pyagentd-code-button--make (block)
  "Give BLOCK, (BEG END LANGUAGE), a button, unless it has one."
  (save-excursion
    (goto-char (car block))
    (forward-line -1)
    (unless (or (eolp)
                (seq-some (lambda (overlay)
                            (overlay-get overlay 'pyagentd-code-button))
                          (overlays-at (point))))
      (push (pyagentd-draw
             (point) (line-end-position) 'pyagentd-code-button t
             'after-string
             (concat "  " (propertize "copy" 'face 'pyagentd-key
                                      'mouse-face 'highlight
                                      'help-echo "mouse-1: copy this block"
                                      'keymap pyagentd-code-button-map)))
            pyagentd-code-button--all))))

(defun pyagentd-code-button--start (pos answer)
  "Return where to look from for the block with POS in ANSWER, (BEG . END).
In a long answer that is a fence not far above which begins a block, as
one that names a language does."
  (let ((start (- pos pyagentd-code-button--reach)))
    (if (<= start (car answer)) (car answer)
      (save-excursion
        (goto-char start)
        (forward-line 0)
        (if (re-search-forward "^[ \t]*\\(?:```\\|~~~\\)[`~]* ?[[:alnum:]]" pos t)
            (line-beginning-position)
          (point))))))

(defun pyagentd-code-button--find (beg end &rest _)
  "Give complete blocks of code with a fence between BEG and END their buttons."
  (when pyagentd-code-buttons
    (save-excursion
      (save-match-data
        (goto-char end)
        (setq end (line-end-position))
        (goto-char beg)
        (forward-line 0)
        (setq beg (point))
        (while (re-search-forward pyagentd-code--fence end t)
          (when (eq (get-text-property (match-beginning 0) 'gptel) 'response)
            (let* ((pos (match-beginning 0))
                   (answer (pyagentd-code--answer (1+ pos))))
              (dolist (block (pyagentd-code-blocks
                              (pyagentd-code-button--start pos answer)
                              (min (cdr answer)
                                   (+ end pyagentd-code-button--reach))))
                (when (and (<= (- (car block) 200) end)
                           (<= beg (+ (nth 1 block) 200)))
                  (pyagentd-code-button--make block)))
              (goto-char (min end (cdr answer))))))))
    (setq pyagentd-code-button--all
          (pyagentd-display--thinned pyagentd-code-button--all
                                     pyagentd-code-button--most
                                     #'pyagentd-display--remove))))

(pyagentd-display-add #'pyagentd-code-button--find
                      (lambda ()
                        (mapc #'delete-overlay pyagentd-code-button--all)
                        (setq pyagentd-code-button--all nil)))

(provide 'pyagentd-display)
;;; pyagentd-display.el ends here

;;; pyagentd-display.el --- How a conversation looks -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Progress of agents, failed calls, folds, prompts and code buttons: all are
;; overlays, never part of the text.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-status)
(require 'pyagentd-edit)
(require 'pyagentd-daemon)

(declare-function pyagentd-spawned--begun "pyagentd-sync")
(declare-function pyagentd-spawned--tidy "pyagentd-sync")

;;;; Drawing overlays on displayed text

;; Folds, rules above prompts, buttons, dividers and pictures are overlays
;; that are made when their text is displayed.  Some are removed far from the
;; windows: thousands of overlays make every key slow.

(defvar pyagentd-display--all nil
  "Pairs of functions (DRAW . CLEAR) that draw overlays in sessions.")

(defun pyagentd-display-add (draw clear)
  "Register DRAW, which is called with the bounds of displayed session text.
CLEAR removes from the buffer all overlays that DRAW made."
  (push (cons draw clear) pyagentd-display--all))

(defun pyagentd-display--draw (beg end &rest _)
  "Draw the overlays between BEG and END; for `jit-lock-functions'."
  (pcase-dolist (`(,draw . ,_) pyagentd-display--all)
    (funcall draw beg end)))

(defun pyagentd-display--set-up ()
  "Turn on drawing in this buffer; without `pyagentd-mode', remove all overlays."
  (if (bound-and-true-p pyagentd-mode)
      (jit-lock-register #'pyagentd-display--draw)
    (jit-lock-unregister #'pyagentd-display--draw)
    (save-restriction
      (widen)
      (pcase-dolist (`(,_ . ,clear) pyagentd-display--all)
        (funcall clear)))))

(add-hook 'pyagentd-session-look-hook #'pyagentd-display--set-up)

(defun pyagentd-display--thinned (overlays most remove)
  "Return OVERLAYS, latest first, without those far from any window.
Up to MOST overlays all stay, and the latest MOST / 2 always do.  REMOVE is
called with each distant overlay, and returns non-nil if it removed it."
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
  "Remove OVERLAY until its text is displayed again; return t."
  (when-let ((beg (overlay-start overlay)))
    (with-silent-modifications
      (put-text-property beg (overlay-end overlay) 'fontified nil)))
  (delete-overlay overlay)
  t)

;;;; Progress of agents in their parent

;; While an agent works, an overlay at the run's marker in its parent's
;; buffer shows its progress.  The overlay is removed however the agent
;; ends, and when the connection ends.

(defconst pyagentd-overlay--max-calls 8
  "Maximum number of calls of a batch to list.")

(defconst pyagentd-overlay-wait-delay 1.5
  "Seconds after its last call until an agent is shown as waiting.")

(defvar pyagentd-overlay-handlers
  '((WAIT pyagentd-overlay-indicate-wait pyagentd-overlay--keep)
    (TOOL pyagentd-overlay-indicate-tool-call pyagentd-overlay--keep)
    (DONE ignore pyagentd-overlay-delete))
  "Handlers for each state of an agent, as (STATE UI-HANDLER CORE-HANDLER).
Both are called with the overlay and the event's plist, in this order.
The states have the names of gptel's state machine.")

(defvar pyagentd-overlay-map
  (pyagentd-keymap
   "RET" #'pyagentd-overlay--visit
   [mouse-1] #'pyagentd-overlay--visit
   [mouse-2] #'pyagentd-overlay--visit)
  "Keymap of the progress of an agent.")

(pyagentd-deflocal pyagentd-overlay--table nil
  "Alist of the running foreground agents of this buffer: (ID . OVERLAY).")

(pyagentd-deflocal pyagentd-overlay--background nil
  "Alist of the running background agents of this buffer: (ID . PLIST).")

(defun pyagentd-overlay--show (overlay status)
  "Show STATUS below the header of OVERLAY, unless that was deleted."
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
  "Show in OVERLAY that the agent waits, after a delay if it called tools."
  (let ((count (overlay-get overlay 'count)))
    (if (= count 0)
        (pyagentd-overlay--show overlay pyagentd-overlay--wait-text)
      (run-at-time pyagentd-overlay-wait-delay nil
                   #'pyagentd-overlay--settle overlay
                   (overlay-get overlay 'version)))))

(defun pyagentd-overlay--settle (overlay version)
  "Show in OVERLAY that the agent waits, if it is still at VERSION."
  (when (and (overlay-buffer overlay)
             (eql version (overlay-get overlay 'version)))
    (pyagentd-overlay--show overlay pyagentd-overlay--wait-text)))

(defun pyagentd-overlay-indicate-tool-call (overlay agent)
  "Show in OVERLAY the current calls of AGENT and the number of all calls."
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
  "Keep OVERLAY at the run's marker, and record the directory of AGENT."
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
  "Remove all overlays of agents from the current buffer.
The list of background agents stays."
  (mapc (lambda (pair) (delete-overlay (cdr pair))) pyagentd-overlay--table)
  (setq pyagentd-overlay--table nil))

(defun pyagentd-overlay-forget ()
  "Remove all agents and their overlays from the current buffer."
  (pyagentd-overlay-clear)
  (setq pyagentd-overlay--background nil))

(defun pyagentd-overlay-note (agent)
  "Show the state of AGENT, a plist, in the current buffer, its parent's.
A background agent has no overlay; the header line names it."
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
  "Return a header line segment with the running agents, or nil.
It counts those in the foreground and names those in the background."
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
  "Return the number of running agents of this buffer."
  (+ (length pyagentd-overlay--table) (length pyagentd-overlay--background)))

(pyagentd-define-event agent `(,agent)
  "Show the progress of an agent that this session spawned."
  (let ((known (pyagentd-overlay--count)))
    (pyagentd-overlay-note agent)
    (when (> (pyagentd-overlay--count) known)
      (pyagentd-spawned--begun agent))
    (pyagentd-spawned--tidy)))

;;;; Summaries of tool calls, and failed calls

;; The text of a call tells neither whether the model got an error, nor a
;; short summary.  The daemon sends both: for existing calls when a buffer
;; attaches, for others before their text.

(pyagentd-deflocal pyagentd-fold--lines nil
  "Overlays of the first lines of blocks, latest first.")

(pyagentd-deflocal pyagentd-failed--calls nil
  "Hash table from the id of each call to (FAILED . SUMMARY-OR-NIL), or nil.")

(defun pyagentd-failed--call (id)
  "Return the pair (FAILED . SUMMARY) for the call ID of this buffer."
  (unless pyagentd-failed--calls
    (setq pyagentd-failed--calls (make-hash-table :test #'equal)))
  (or (gethash id pyagentd-failed--calls)
      (puthash id (list nil) pyagentd-failed--calls)))

(defun pyagentd-failed-receive (ids lines)
  "Record that the calls IDS of this buffer have failed.
LINES are lists (ID SUMMARY) for any calls."
  (when (or ids lines)
    (dolist (id ids)
      (setcar (pyagentd-failed--call id) t))
    (pcase-dolist (`(,id ,line) lines)
      (setcdr (pyagentd-failed--call id) line))
    (dolist (line pyagentd-fold--lines) ; show the new summaries
      (when (and (overlay-buffer line)
                 (overlay-get line 'pyagentd-folded)
                 (eq 'tool (overlay-get line 'pyagentd-fold-kind)))
        (pyagentd-fold--set line t)))))

(pyagentd-define-event tool `(,call)
  "Record the summary of a call, and whether it has failed."
  (let ((known (pyagentd-failed--call (plist-get call :id))))
    (setcar known (eq 'failed (pyagentd-symbol (plist-get call :state))))
    (setcdr known (plist-get call :summary))))

;;;; Blocks of tool calls and thinking

;; Thinking, and tool calls with their results, are in fences in the text.
;; The text property `gptel' delimits each block.

(defconst pyagentd-fenced-open
  "^``` \\(?:\\(tool\\|compaction\\) (\\|\\(reasoning\\)$\\)"
  "Regexp for the beginning of a block's first line.")

(defun pyagentd-fenced-block (pos)
  "Return the block whose first line begins at POS, (KIND BEG EOL END), or nil.
A block that is still being written does not count."
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
  "Return a summary of the call from BEG to END; its first line ends at EOL."
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
FOLDED is non-nil if the rest is hidden; if it is not, only a compaction
shows this line."
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
  "Return the id of the call at START if it spawns an agent, else nil."
  (when-let ((block (pyagentd-fenced-block start)))
    (save-excursion
      (goto-char start)
      (and (looking-at-p "``` tool (\\(?:PersistentAgent\\|task\\|mission\\)\\_>")
           (cdr-safe (get-text-property (nth 2 block) 'gptel))))))

(defun pyagentd-fenced-start (pos)
  "Return the start of the block that contains POS, or nil."
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
;; compaction is a block too: the model sees its summary instead of the text
;; above.  The summary can be edited; deleting the block shows the model the
;; original text again.
;;
;; The lines are overlays, so that undo and saving ignore them; folded text
;; is not fontified.

(defcustom pyagentd-fold '(reasoning tool)
  "Which blocks of a conversation are folded when they appear.
A list of symbols: `reasoning' for thinking, `tool' for tool calls with
their results.  Nil folds none.
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
  "Number of blocks with overlays above which distant ones are removed.")

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
    ;; Point at the end of the visible line may be at the end of the body.
    (overlay-put body 'keymap (and fold pyagentd-fold-map))
    (overlay-put (overlay-get overlay 'pyagentd-fold-after) 'keymap
                 (and fold pyagentd-fold-map))))

(defun pyagentd-fold--draw (kind beg eol end)
  "Make the block of KIND from BEG to END foldable; its first line ends at EOL."
  (let* ((body (pyagentd-draw eol end 'pyagentd-fold t))
         ;; Some space below the block, except on a terminal.
         (after (pyagentd-draw end (min (1+ end) (point-max)) 'pyagentd-fold t
                               'line-spacing 0.25
                               'invisible 'pyagentd-shown))
         (line (pyagentd-draw
                beg eol 'pyagentd-fold t 'invisible 'pyagentd-shown
                'pyagentd-fold-body body 'pyagentd-fold-after after
                'pyagentd-fold-kind kind
                'mouse-face 'highlight 'keymap pyagentd-fold-map
                'help-echo "RET, TAB, mouse-1: show or hide the rest"
                ;; Deleting the line reveals the rest of the block.
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
  "Return t if new blocks of KIND are folded in this buffer."
  (and (memq kind (cons 'compaction
                        (if (eq pyagentd-fold--kinds 'default) pyagentd-fold
                          pyagentd-fold--kinds)))
       t))

(defun pyagentd-fold--forget (line)
  "Remove the overlays of the block with the first line LINE.
They are made again when it is displayed."
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
             ;; Only those in their initial state, which is restored.
             (and (or (null (overlay-start line))
                      (eq (overlay-get line 'pyagentd-folded)
                          (pyagentd-fold--folds-p
                           (overlay-get line 'pyagentd-fold-kind))))
                  (pyagentd-fold--forget line)))))))

(defun pyagentd-fold--on-insert (beg end)
  "Make the blocks foldable that the text inserted from BEG to END completed.
The text counts as fontified, so jit-lock may not call `pyagentd-fold--find'
on it.  The inserted text may end one block and begin the next."
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
    (when (and (mouse-event-p event)    ; not from a menu
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
  "Unfold all tool calls and thinking, or fold them if none is folded."
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
    ;; The others follow when they are displayed.
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

;; A rule above each prompt separates the turns of a long conversation.  It
;; is an overlay, made when the text is displayed.  The prompt being typed,
;; at the end of the buffer, has none; its prefix is shown even if the major
;; mode hides markup.

(defface pyagentd-prompt '((((type tty)) :inherit bold)
                           (t :inherit bold :overline t :extend t))
  "Face of the first line of a prompt."
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

;;;; Copy code and answers

(defconst pyagentd-code--fence
  "^[ \t]*\\(`\\{3,\\}\\|~\\{3,\\}\\)[ \t]*\\([^`\n]*?\\)[ \t]*$"
  "Regexp for a line that begins or ends a block of code.")

(defun pyagentd-code-blocks (beg end)
  "Return the blocks of code in answers between BEG and END.
The value is a list of (BEG END LANGUAGE) in buffer order, without fences."
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
  "Return the block of code at or before POS, (BEG END LANGUAGE), or nil."
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
  "Report that WHAT, the text between BEG and END, was copied; highlight it."
  (pulse-momentary-highlight-region beg end)
  (message "Copied %s, %s" what
           (pyagentd-count (count-lines beg end) "line")))

(defun pyagentd-copy-code (&optional whole)
  "Copy the block of code at point, or the last one above it.
With a prefix argument, or WHOLE from Lisp, copy the answer at point
without thinking and tool calls."
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
Thinking and tool calls are left out."
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

;; A block gets its button once it is complete: one that is still being
;; written costs nothing.

(defcustom pyagentd-code-buttons t
  "Whether each block of code in answers has a button that copies it.
\\<pyagentd-mode-map>\\[pyagentd-copy-code] copies code without a button."
  :type 'boolean
  :group 'pyagentd)

(defconst pyagentd-code-button--most 200
  "Number of buttons in a buffer above which distant ones are removed.")

(defconst pyagentd-code-button--reach 10000
  "Maximum distance from displayed text, in characters, to search for fences.")

(pyagentd-deflocal pyagentd-code-button--all nil
  "Overlays of the buttons in this buffer, latest first.")

(defvar pyagentd-code-button-map
  (pyagentd-keymap
   [mouse-1] #'pyagentd-code--push
   [mouse-2] #'pyagentd-code--push
   [down-mouse-1] #'ignore) ; its default sets point
  "Keymap of a button.")

(defun pyagentd-code--push (event)
  "Copy the block of code whose button was clicked in EVENT."
  (interactive "e")
  (with-selected-window (posn-window (event-start event))
    (save-excursion
      (goto-char (posn-point (event-start event)))
      (pyagentd-copy-code))))

(defun pyagentd-code-button--make (block)
  "Add a button to BLOCK, (BEG END LANGUAGE), unless it has one."
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
  "Return where to start parsing for the block at POS in ANSWER, (BEG . END).
In a long answer that is a nearby fence above POS that certainly begins a
block, since it names a language."
  (let ((start (- pos pyagentd-code-button--reach)))
    (if (<= start (car answer)) (car answer)
      (save-excursion
        (goto-char start)
        (forward-line 0)
        (if (re-search-forward "^[ \t]*\\(?:```\\|~~~\\)[`~]* ?[[:alnum:]]" pos t)
            (line-beginning-position)
          (point))))))

(defun pyagentd-code-button--find (beg end &rest _)
  "Add buttons to the complete blocks of code with a fence from BEG to END."
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

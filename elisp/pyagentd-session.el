;;; pyagentd-session.el --- Session buffers: the mode, paths, reading and saving -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Recognises the document of a session, reads the block of Local Variables,
;; and saves it: `pyagentd-mode'.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-large)
(require 'pyagentd-rpc)

;;;; Which files are sessions, and how they are visited

;; A session file is recognised by its name: .../branches/NAME/session.md or
;; .../agents/NAME/session.md.  This section controls what Emacs does with
;; such a file before any hook runs:
;;
;; - The user and models write the text.  Anything in it that looks like
;;   local variables is plain text: Emacs does not evaluate it, take a mode
;;   or a coding system from it, or ask about it.
;; - `markdown-mode' scans the whole text when it is turned on, which takes
;;   seconds for a long one.  A long text is hidden from it by narrowing;
;;   syntax is found where text is displayed (see `pyagentd-syntax').
;;
;; All other files cost one match against their names.

;;;###autoload
(progn
  (defconst pyagentd-visit-regexp
    ;; The first component of a remote name has a colon.
    (concat "\\`\\(?:~[^/]*\\|[A-Za-z]:\\|/[^/:]*\\)\\(?:/.*\\)?"
            "/\\(?:branches\\|agents\\)/[^/]+/session\\.md\\'")
    "Matches the names of session files on this machine.")

  (defconst pyagentd-visit-link-regexp "/current/session\\.md\\'"
    "Matches the names of session files behind the link to a branch.")

  (defun pyagentd-visiting-p ()
    "Return non-nil if the current buffer visits a session, by its name.
This neither reads the disk nor loads a library."
    (when buffer-file-name
      (let ((case-fold-search nil))
        (string-match-p pyagentd-visit-regexp
                        (or buffer-file-truename buffer-file-name)))))

  (defun pyagentd-maybe-enable ()
    "Turn on `pyagentd-mode' if the current buffer visits a session.
On `find-file-hook'; cheap for any other file."
    (when (pyagentd-visiting-p)
      (require 'pyagentd)
      (pyagentd-session-maybe-initialize)))

  (add-hook 'find-file-hook #'pyagentd-maybe-enable)
  (add-to-list 'magic-mode-alist
               '(pyagentd-visiting-p . pyagentd-visit-major-mode))
  (dolist (regexp (list pyagentd-visit-regexp pyagentd-visit-link-regexp))
    (add-to-list 'inhibit-local-variables-regexps regexp)
    (add-to-list 'auto-coding-alist (cons regexp 'utf-8))))

(defconst pyagentd-visit-glance 50000
  "Maximum number of characters that a major mode scans when turned on.
A longer text is hidden from it: `markdown-mode' needs two microseconds
for each character.")

;;;###autoload
(defun pyagentd-visit-major-mode ()
  "Turn on the major mode for the visited session, by its file name.
Without a mode for Markdown that is `text-mode', with prompts in bold."
  (pyagentd-gc-postpone)
  (save-restriction
    (when (> (buffer-size) pyagentd-visit-glance)
      (narrow-to-region (point-min) (point-min)))
    (delay-mode-hooks
      (let ((magic-mode-alist
             (assq-delete-all #'pyagentd-visiting-p
                              (copy-sequence magic-mode-alist))))
        (set-auto-mode))
      (when (eq major-mode 'fundamental-mode)
        (text-mode)
        (font-lock-add-keywords nil '(("^#\\{1,6\\} .*" 0 'bold))))))
  (let ((inhibit-local-variables-regexps
         (cons (regexp-quote buffer-file-name) inhibit-local-variables-regexps))
        ;; Directory-local variables apply without questions; those of the
        ;; file are text.
        (enable-local-variables (if (memq enable-local-variables
                                          '(nil :all :safe))
                                    enable-local-variables
                                  :safe)))
    (run-mode-hooks)))

;;;; Paths of sessions, and their buffers

;; The path of a session.md tells its session and branch; no file is read.
;; On the wire a branch is named by its directory, in the user interface
;; by "SESSION-ID/BRANCH".

(pyagentd-deflocal pyagentd--session-id nil
  "Unique identifier of the session this buffer belongs to.")
(pyagentd-deflocal pyagentd--session-dir nil
  "Absolute directory of the session.")
(pyagentd-deflocal pyagentd--branch-name nil
  "Name of the branch in this buffer; \"main\" for agents.")
(pyagentd-deflocal pyagentd--branch-dir nil
  "Absolute directory of the branch; of the agent itself for agents.
It is the name of the branch on the wire.")
(pyagentd-deflocal pyagentd--named-agent nil
  "Name of the named agent whose conversation is in this buffer, or nil.")

(defun pyagentd-place-of (file)
  "Return the session of FILE, a session.md, as told by its path.
The value is a plist with :session-id, :session-dir, :branch-name,
:branch-dir and :agent (t or nil).  It is nil if FILE is neither
SESSION/branches/BRANCH/session.md nor BRANCH/agents/AGENT/session.md."
  (let* ((branch-dir (directory-file-name
                      (file-name-directory (file-truename file))))
         (parent (directory-file-name (file-name-directory branch-dir)))
         (name (file-name-nondirectory branch-dir))
         (session-dir (directory-file-name (file-name-directory parent))))
    (pcase (file-name-nondirectory parent)
      ("branches" (list :session-id (file-name-nondirectory session-dir)
                        :session-dir session-dir
                        :branch-name name :branch-dir branch-dir :agent nil))
      ("agents" (list :session-id name :session-dir branch-dir
                      :branch-name "main" :branch-dir branch-dir :agent t)))))

(defun pyagentd-place-named-agent (session-dir)
  "Return the name of the named agent whose session is SESSION-DIR, or nil."
  (and session-dir (file-exists-p (expand-file-name "agent.json" session-dir))
       (file-name-nondirectory (directory-file-name session-dir))))

(defun pyagentd-place-agent-p ()
  "Return non-nil if the session of this buffer is an agent."
  (and pyagentd--branch-dir (equal pyagentd--branch-dir pyagentd--session-dir)))

;;;; File names

(defun pyagentd-place-branches (session-dir)
  "Return the directory of the branches of SESSION-DIR."
  (expand-file-name "branches" session-dir))

(defun pyagentd-place-branch (session-dir branch-name)
  "Return the directory of the branch BRANCH-NAME of SESSION-DIR."
  (expand-file-name branch-name (pyagentd-place-branches session-dir)))

(defun pyagentd-place-agents (branch-dir)
  "Return the directory of the agents of BRANCH-DIR."
  (expand-file-name "agents" branch-dir))

(defun pyagentd-place-conversation (branch-dir)
  "Return the file of the conversation in BRANCH-DIR."
  (expand-file-name "session.md" branch-dir))

(defun pyagentd-place-scope-plan (branch-dir)
  "Return the file of the metadata in BRANCH-DIR."
  (expand-file-name "scope-plan.yml" branch-dir))

(defun pyagentd-place-preset (branch-dir)
  "Return the file of the configuration in BRANCH-DIR."
  (expand-file-name "preset.md" branch-dir))

;;;; Sessions and branches on disk

(defun pyagentd-place--directories (parent)
  "Return the absolute names of the visible directories in PARENT, sorted."
  (when (file-directory-p parent)
    (seq-filter #'file-directory-p
                (directory-files parent t "\\`[^.]"))))

(defun pyagentd-place-sessions ()
  "Return the directories of all sessions in `pyagentd-sessions-directory'."
  (seq-filter (lambda (directory)
                (file-directory-p (pyagentd-place-branches directory)))
              (pyagentd-place--directories
               (expand-file-name pyagentd-sessions-directory))))

(defun pyagentd-place-list-branches (session-dir)
  "Return the names of the branches of SESSION-DIR."
  (mapcar #'file-name-nondirectory
          (pyagentd-place--conversations
           (pyagentd-place-branches session-dir))))

(defun pyagentd-place--conversations (parent)
  "Return the directories in PARENT that have a conversation."
  (seq-filter (lambda (directory)
                (file-exists-p (pyagentd-place-conversation directory)))
              (pyagentd-place--directories parent)))

(defun pyagentd-place-all-branches ()
  "Return a plist for every branch on disk.
The keys are :session-dir, :session-id, :branch-dir, :branch-name and
:agent-dirs."
  (seq-mapcat
   (lambda (session-dir)
     (mapcar (lambda (name)
               (let ((branch-dir (pyagentd-place-branch session-dir name)))
                 (list :session-dir session-dir
                       :session-id (file-name-nondirectory session-dir)
                       :branch-dir branch-dir :branch-name name
                       :agent-dirs (pyagentd-place--conversations
                                    (pyagentd-place-agents branch-dir)))))
             (pyagentd-place-list-branches session-dir)))
   (pyagentd-place-sessions)))

;;;; Open buffers

(defvar pyagentd-place--registry (make-hash-table :test #'equal)
  "Hash table from the directory of each open branch to a plist.
It is as for `pyagentd-place-of', with :buffer in place of :agent.")

(defun pyagentd-place-register (session-dir buffer session-id
                                            branch-name branch-dir)
  "Register BUFFER as the one that shows the branch BRANCH-NAME.
SESSION-ID, SESSION-DIR and BRANCH-DIR describe the branch."
  (puthash branch-dir
           (list :session-id session-id :session-dir session-dir
                 :branch-name branch-name :branch-dir branch-dir
                 :buffer buffer)
           pyagentd-place--registry)
  (pyagentd-log 'info "Registered %s/%s" session-id branch-name))

(defun pyagentd-place-buffer (branch-dir)
  "Return the live buffer that shows the branch BRANCH-DIR, or nil."
  (when-let ((buffer (plist-get (gethash branch-dir pyagentd-place--registry)
                                :buffer)))
    (and (buffer-live-p buffer) buffer)))

(defun pyagentd-place-buffers ()
  "Return all live session buffers."
  (seq-filter #'buffer-live-p
              (mapcar (lambda (open) (plist-get open :buffer))
                      (hash-table-values pyagentd-place--registry))))

(pyagentd-deflocal pyagentd-attach-state nil
  "Whether this buffer is attached: nil, `pending' or t.")
(pyagentd-deflocal pyagentd-attach--start 0
  "Number of the last event that the reply to attach included.")

(defun pyagentd-attach-new-p (seq)
  "Return non-nil if event SEQ was not included in the reply to attach.
In a group of events only the last has a number, the others have 0; so
have transient events."
  (and (eq pyagentd-attach-state t)
       (or (eql seq 0) (> seq pyagentd-attach--start))))

(defmacro pyagentd-define-event (kind arglist docstring &rest body)
  "Define a handler for events of KIND, run in the buffer of their branch.
ARGLIST is a `pcase' pattern for the event's arguments.  BODY is evaluated
in that buffer, if there is one; unless it begins with :always, only for
events that the reply to attach did not include.  DOCSTRING describes the
handler."
  (declare (indent 2) (doc-string 3) (debug t))
  (let ((name (intern (format "pyagentd-event--%s" kind)))
        (always (eq :always (car body))))
    `(progn
       (defun ,name (branch seq args)
         ,(concat docstring "\nBRANCH, SEQ and ARGS are those of the event.")
         (ignore seq args)
         (when-let ((buffer (pyagentd-place-buffer branch)))
           (with-current-buffer buffer
             (when ,(or always '(pyagentd-attach-new-p seq))
               (pcase-let ((,arglist args))
                 ,@(if always (cdr body) body))))))
       (pyagentd-events-register ',kind #',name))))

;;;; Parsing the block of Local Variables

;; A session file is BODY, an empty line and a block of Local Variables
;; from which gptel restores the roles of the text.  The buffer holds only
;; BODY, with the roles in the text property `gptel': the symbols
;; `response' and `ignore', a cons (tool . ID), or nothing for text of
;; the user.
;;
;; Emacs itself finds Local Variables only in the last 3000 characters of a
;; file; after some 25 tool calls the block is longer.  So it is searched
;; for in the whole text.  A damaged block, or one that a program left in
;; the text, counts as text: the daemon repairs that on attach.

;; In two parts, so that Emacs does not take it for a block of this file.
(defconst pyagentd-locals--heading (concat "Local " "Variables:")
  "First line of a block.")

(defun pyagentd-locals--content (line affixes)
  "Return the text of LINE between AFFIXES, a pair, or nil if it lacks them."
  ;; No regexps on the line: that of the bounds is easily 200 kB long.
  (pcase-let ((`(,prefix . ,suffix) affixes)
              (line (string-trim line)))
    (and (>= (length line) (+ (length prefix) (length suffix)))
         (string-prefix-p prefix line) (string-suffix-p suffix line)
         (string-trim (substring line (length prefix)
                                 (- (length line) (length suffix)))))))

(defun pyagentd-locals--read (start end)
  "Parse the lines START to END; return (t . ALIST), or nil if they are no block."
  (pcase-let* ((`(,heading . ,lines)
                (split-string (buffer-substring-no-properties start end) "\n"))
               (at (string-search pyagentd-locals--heading heading))
               (affixes               ; what surrounds it
                (cons (string-trim (substring heading 0 at))
                      (string-trim
                       (substring heading
                                  (+ at (length pyagentd-locals--heading))))))
               (entries
                (mapcar (lambda (line)
                          (let ((content (pyagentd-locals--content line affixes)))
                            (when (and content
                                       (string-match "\\`\\([^[:space:]:][^[:space:]]*?\\):[ \t]*"
                                                     content))
                              (cons (match-string 1 content)
                                    (substring content (match-end 0))))))
                        (butlast lines))))
    (and lines (not (memq nil entries))
         (equal (pyagentd-locals--content (car (last lines)) affixes) "End:")
         (cons t (pyagentd-locals--unique entries)))))

(defun pyagentd-locals--unique (entries)
  "Return ENTRIES without duplicate names: first position, last value."
  (let (result)
    (dolist (entry entries (nreverse result))
      (if-let ((known (assoc (car entry) result)))
          (setcdr known (cdr entry))
        (push (cons (car entry) (cdr entry)) result)))))

(defun pyagentd-locals-ours-p (entries)
  "Return non-nil if a variable in ENTRIES is one of gptel's."
  (cl-some (lambda (entry) (string-prefix-p "gptel" (car entry))) entries))

;;;; Finding a block

(defun pyagentd-locals--last (end)
  "Return (START . ALIST) of the block before END, with only blanks between."
  (save-excursion
    (goto-char end)
    (skip-chars-backward " \t\r\n\f\v")
    (let ((stop (point)) (case-fold-search nil))
      (when (string-search "End:" (buffer-substring-no-properties
                                   (line-beginning-position) (line-end-position)))
        (cl-loop repeat 8               ; a value may contain the words
                 while (search-backward pyagentd-locals--heading nil t)
                 thereis (let* ((start (line-beginning-position))
                                (block (pyagentd-locals--read start stop)))
                           (and block (cons start (cdr block)))))))))

(defun pyagentd-locals--bounds-of (entries)
  "Return the printed bounds in ENTRIES, nil if there are none."
  (alist-get "gptel--bounds" entries nil nil #'equal))

(defun pyagentd-locals--row ()
  "Return the consecutive blocks at the end of the buffer, as (START . ALIST).
They are in buffer order.  There are several if Emacs missed a block and
wrote another one behind it.  An empty block is the first of them: the
text before it itself ends like a block."
  (let* ((last (pyagentd-locals--last (point-max)))
         (row (and last (list last)))
         earlier)
    (while (and (cdar row)
                (setq earlier (pyagentd-locals--last (caar row)))
                (or (null (cdr earlier))
                    (pyagentd-locals-ours-p (cdr earlier))))
      (push earlier row))
    row))

(defun pyagentd-locals-find ()
  "Return the block at the end of the buffer, or nil.
The value is a plist: :start, :end, :entries (an alist of strings), :bounds
\(a list of the printed bounds of each block, last block first; nil where a
block has none) and :count, the number of blocks that are not empty, at
least 1.  Consecutive blocks count as one; later settings win."
  (when-let ((row (pyagentd-locals--row)))
    (let ((told (mapcar #'cdr (seq-filter #'cdr row))))
      (list :start (caar row) :end (point-max) :count (max 1 (length told))
            :entries (pyagentd-locals--unique (apply #'append told))
            :bounds (nreverse (mapcar #'pyagentd-locals--bounds-of told))))))

(defun pyagentd-locals-printed (lines)
  "Return the text of a block with LINES."
  (mapconcat (lambda (line) (concat "<!-- " line " -->\n"))
             `(,pyagentd-locals--heading ,@lines "End:") ""))

;;;; Settings and roles

;;;###autoload
(progn
  (put 'gptel-model 'safe-local-variable #'symbolp)
  (put 'gptel--backend-name 'safe-local-variable #'stringp)
  (put 'gptel--tool-names 'safe-local-variable #'listp)
  (put 'gptel-temperature 'safe-local-variable
       (lambda (value) (or (null value) (numberp value))))
  (dolist (variable '(gptel-max-tokens gptel--num-messages-to-send))
    (put variable 'safe-local-variable
         (lambda (value) (or (null value) (natnump value)))))
  (dolist (variable '(gptel-system-prompt gptel--system-message))
    (put variable 'safe-local-variable
         (lambda (value) (or (stringp value) (listp value)))))
  (put 'gptel--preset 'safe-local-variable #'symbolp)
  (put 'gptel--bounds 'safe-local-variable #'listp))

(defconst pyagentd-block-settings
  '(gptel-model gptel--backend-name gptel--tool-names gptel-temperature
                gptel-max-tokens)
  "Variables of the block other than `gptel--bounds', in their order.")

(defconst pyagentd-block--system '("gptel-system-prompt" "gptel--system-message")
  "Variables that a session file never has; preset.md has the system message.")

(pyagentd-deflocal pyagentd-block--foreign nil
  "Lines \"NAME: VALUE\" of the block that are not ours, as read.")

(pyagentd-deflocal pyagentd-block--settings nil
  "Alist of settings as last set; a new major mode kills the variables themselves.")

(pyagentd-deflocal pyagentd-block-tools nil
  "A pair (TOOLS . WRITTEN): the tools of preset.md, and those in the block.
WRITTEN are those of TOOLS that gptel can have, according to the daemon.")

(defun pyagentd-block-set (variable value)
  "Set VARIABLE, one of `pyagentd-block-settings', to VALUE in this buffer."
  (set (make-local-variable variable) value)
  (setf (alist-get variable pyagentd-block--settings) value))

(defun pyagentd-block-get (variable)
  "Return the value of VARIABLE, one of `pyagentd-block-settings', here."
  (if (local-variable-p variable)
      (symbol-value variable)
    (alist-get variable pyagentd-block--settings)))

;;;; Reading

(defun pyagentd-block-strip ()
  "Move the block at the end of the buffer into properties and variables.
Several blocks in a row count as one.  Return the number of blocks removed.
Works on the whole buffer, silently."
  (save-restriction
    (widen)
    (with-silent-modifications
      (remove-text-properties (point-min) (point-max) '(gptel nil))
      (kill-local-variable 'gptel--bounds)
      (let* ((block (pyagentd-locals-find))
             (start (plist-get block :start))
             (count (or (plist-get block :count) 0)))
        (when block
          (pyagentd-block--set-variables (plist-get block :entries))
          (pyagentd-block--cut start)
          (pyagentd-block-restore
           (seq-mapcat (lambda (printed)
                         (and printed
                              (pyagentd-block--spans
                               (ignore-errors
                                 (pyagentd-block--read printed)))))
                       (plist-get block :bounds))))
        count))))

(defun pyagentd-block--read (text)
  "Read the value printed in TEXT; signal an error if it has none."
  (let ((read-circle nil))    ; walking a circular value never ends
    (car (read-from-string text))))

(defun pyagentd-block--cut (start)
  "Delete the block that begins at START, and the empty line before it."
  (save-excursion
    (goto-char start)
    (skip-chars-backward "\n" (max (point-min) (- start 2)))
    (delete-region (point) (point-max))))

(defun pyagentd-block--end ()
  "Return where the block at the end of the text itself begins, or nil."
  (save-restriction
    (widen)
    (car (pyagentd-locals--last (point-max)))))

(defun pyagentd-block--set-variables (entries)
  "Set the settings in ENTRIES buffer-locally and keep the other lines."
  (setq pyagentd-block--foreign nil)
  (pcase-dolist (`(,name . ,text) entries)
    (let ((variable (intern-soft name)))
      (cond ((or (equal name "gptel--bounds")
                 (member name pyagentd-block--system)))
            ((and (memq variable pyagentd-block-settings)
                  (pyagentd-block--set-text variable text)))
            (t (push (concat name ": " text) pyagentd-block--foreign)))))
  (setq pyagentd-block--foreign (nreverse pyagentd-block--foreign)))

(defun pyagentd-block--set-text (variable text)
  "Set VARIABLE to the value printed in TEXT; return nil if it is invalid."
  (condition-case nil
      (let ((value (pyagentd-block--read text)))
        (when (pcase variable
                ((or 'gptel-model 'gptel--backend-name)
                 (or (symbolp value) (stringp value)))
                ('gptel--tool-names
                 (and (listp value)
                      (cl-every (lambda (item) (or (symbolp item) (stringp item)))
                                value)))
                ('gptel-temperature (or (null value) (numberp value)))
                ('gptel-max-tokens (or (null value)
                                       (and (integerp value) (> value 0)))))
          (pyagentd-block-set variable value)
          t))
    (error nil)))

(defun pyagentd-block--spans (bounds)
  "Return BOUNDS, in gptel's form, as a list of (BEG END PROPERTY).
The form before gptel 0.9.8 is a list of (BEG . END), all responses."
  (ignore-errors
    (if (integerp (car-safe (car-safe bounds)))
        (cl-loop for (beg . end) in bounds collect (list beg end 'response))
      (cl-loop
       for (kind . spans) in bounds nconc
       (cl-loop for (beg end id) in spans
                collect (list beg end
                              (if (eq kind 'tool)
                                  ;; gptel drops a tool span without an id.
                                  (cons 'tool (or id (format "call-%d" beg)))
                                kind)))))))

(defun pyagentd-block-restore (spans)
  "Give the text the roles in SPANS, lists (BEG END PROPERTY).
Spans outside the text, or that overlap an earlier one, are ignored with
a warning in the log."
  (let* ((limit (point-max))
         (found (seq-filter (pcase-lambda (`(,beg ,end . ,_))
                              (and (integerp beg) (integerp end)))
                            spans))
         (position (point-min))
         (ignored (- (length spans) (length found))))
    (pcase-dolist (`(,beg ,end ,role) (seq-sort-by #'car #'< found))
      (if (not (and (<= position beg) (< beg end) (<= end limit)))
          (cl-incf ignored)
        (put-text-property beg end 'gptel role)
        (setq position end)))
    (when (> ignored 0)
      (pyagentd-log 'warn "%s: ignored %d role%s outside the text" (buffer-name)
                    ignored (if (= ignored 1) "" "s")))))

;;;; Writing

(defun pyagentd-role-end (pos)
  "Return where the role of the text at POS ends.
Roles are compared with `equal': each streamed chunk has its own cons."
  (let ((role (get-text-property pos 'gptel)))
    (while (and (< (setq pos (next-single-property-change pos 'gptel nil
                                                          (point-max)))
                   (point-max))
                (equal role (get-text-property pos 'gptel))))
    pos))

(defun pyagentd-block-bounds ()
  "Return the roles of the text of the buffer in gptel's form.
That is an alist with the keys `tool', `ignore' and `response'; positions
count characters from 1, the end is exclusive."
  (save-restriction
    (widen)
    (let ((pos (point-min)) tool ignore response)
      (while (< pos (point-max))
        (let ((beg pos))
          (setq pos (pyagentd-role-end pos))
          (pcase (get-text-property beg 'gptel)
            ('response (push (list beg pos) response))
            ('ignore (push (list beg pos) ignore))
            (`(tool . ,id) (push (list beg pos id) tool)))))
      (cl-loop for (kind . spans) in `((tool . ,tool) (ignore . ,ignore)
                                       (response . ,response))
               when spans collect (cons kind (nreverse spans))))))

(defun pyagentd-block--written (variable)
  "Return a list of the value of VARIABLE to write into the block, or nil.
An empty list of tools is written unless that of preset.md is empty too;
any other variable without a value is left out."
  (let ((value (pyagentd-block-get variable)))
    (cond ((and (eq variable 'gptel--tool-names) pyagentd-block-tools
                (equal value (car pyagentd-block-tools)))
           (and (cdr pyagentd-block-tools) (list (cdr pyagentd-block-tools))))
          ((or value (and (eq variable 'gptel--tool-names)
                          (assq variable pyagentd-block--settings)))
           (list value)))))

(defun pyagentd-block--print (variable value)
  "Return the line of the block that sets VARIABLE to VALUE."
  (let ((print-escape-newlines t) (print-length nil) (print-level nil)
        (print-circle nil) (print-quoted t))
    (format "%s: %S" variable value)))

(defun pyagentd-block-text ()
  "Return the block for the buffer, \"\" if it would be empty.
If the text itself ends with a block, an empty one is put between, so that
the end of the text is not taken for an older block."
  (let* ((bounds (pyagentd-block-bounds))
         (lines
          (append
           (cl-loop for variable in pyagentd-block-settings
                    for written = (pyagentd-block--written variable)
                    when written
                    collect (pyagentd-block--print variable (car written)))
           pyagentd-block--foreign
           (and bounds (list (pyagentd-block--print 'gptel--bounds bounds)))))
         (block (if lines (pyagentd-locals-printed lines) "")))
    (if (pyagentd-block--end)
        (concat (pyagentd-locals-printed nil)
                (and lines (concat "\n" block)))
      block)))

;;;; Cleaning

(defun pyagentd-session--clean-local-variables ()
  "Remove superfluous blocks of Local Variables from the end of this buffer.
Emacs misses a long block and writes another one behind it.  In a session
all are removed, since saving writes a new one; elsewhere the last one
with roles stays.  Blocks in the text of models and tools stay."
  (interactive "*")
  (let ((count 0))
    (save-restriction
      (widen)
      (let* ((row (pyagentd-locals--row))
             (end (point-max))
             (kept (if (bound-and-true-p pyagentd-mode)
                       (seq-remove (lambda (block) ; of no model or tool
                                     (memq (get-text-property (car block) 'gptel)
                                           '(nil ignore)))
                                   row)
                     (last (or (seq-remove
                                (lambda (block)
                                  (member (pyagentd-locals--bounds-of (cdr block))
                                          '(nil "nil")))
                                row)
                               row)))))
        (dolist (block (reverse row))
          (unless (or (memq block kept)
                      (not (pyagentd-locals-ours-p (cdr block))))
            (cl-incf count)
            (delete-region (car block) end)
            (when (= (car block) (point-max)) ; leave one newline
              (goto-char (point-max))
              (delete-region (point)
                             (progn (skip-chars-backward "\n")
                                    (min (1+ (point)) (point-max))))))
          (setq end (car block)))))
    (message (if (= count 1) "Removed 1 block of Local Variables"
               "Removed %d blocks of Local Variables")
             count)))

;;;; Writing the file

;; A save writes the text and its block to a temporary file and renames it,
;; as the daemon does: if the disk fails, the old file is intact.

(defconst pyagentd-write-coding 'utf-8-unix
  "Coding system of session files.")

(defun pyagentd-write-text (text)
  "Return TEXT with U+FFFD for each character that changes when read from a file.
These are surrogates, characters outside Unicode, and raw bytes that
together are valid UTF-8: the daemon would count them differently, which
would shift all positions behind them."
  (let ((case-fold-search nil)          ; else each character of a range is folded
        (alien "[\x110000-\x3fff7f]")
        (same-p (lambda (text)
                  (string= text (decode-coding-string
                                 (encode-coding-string text 'utf-8-emacs-unix)
                                 'utf-8-unix)))))
    (if (or (and (multibyte-string-p text) ; all ASCII
                 (= (string-bytes text) (length text)))
            (and (not (string-match-p alien text)) (funcall same-p text)))
        text
      (replace-regexp-in-string
       "[\xd800-\xdfff\x110000-\x3fff7f\x3fff80-\x3fffff]+"
       (lambda (part)
         (if (and (not (string-match-p alien part)) (funcall same-p part)) part
           (make-string (length part) #xfffd)))
       text t t))))

(defun pyagentd-write--bytes ()
  "Return the whole text of the buffer in UTF-8."
  (save-restriction
    (widen)
    (encode-coding-string (pyagentd-write-text
                           (buffer-substring-no-properties (point-min) (point-max)))
                          'utf-8-emacs-unix)))

(defun pyagentd-write (file)
  "Write text and block of the current buffer to FILE.
On failure signal a `file-error' with the data (\"Not saved\" CAUSE FILE);
FILE is untouched then.  A symbolic link is replaced, a read-only file is
not."
  (pyagentd-gc-postpone)                ; it makes megabytes of garbage
  (condition-case err
      (let* ((bytes (pyagentd-write--bytes))
             (block (pyagentd-block-text))
             (directory (file-name-directory file))
             (mode (file-modes file))
             (coding-system-for-write 'no-conversion)
             (write-region-inhibit-fsync t)
             (write-region-annotate-functions nil)
             (write-region-post-annotation-function nil)
             temporary)
        (when (and mode (not (file-writable-p file))
                   ;; Otherwise the directory's own error is clearer.
                   (file-writable-p directory))
          (signal 'file-error (list "Writing" "Permission denied" file)))
        (setq temporary (make-temp-file
                         (expand-file-name
                          (concat "." (file-name-nondirectory file) ".")
                          directory)
                         nil ".tmp"))
        (unwind-protect
            (progn
              (when mode (set-file-modes temporary mode))
              (write-region
               (if (string-empty-p block) bytes
                 (concat bytes (encode-coding-string (concat "\n\n" block)
                                                     pyagentd-write-coding)))
               nil temporary nil 'quiet)
              (rename-file temporary file t)
              (setq temporary nil))
          (when temporary (ignore-errors (delete-file temporary)))))
    (file-error
     (let ((texts (seq-filter #'stringp (cdr err))))
       (signal 'file-error
               (list "Not saved"        ; and what the operating system said
                     (or (nth 1 texts) (car texts) (error-message-string err))
                     file))))))

;;;; Automatic saving

;; A session buffer is saved after a pause in its changes, and after some
;; seconds anyway.  A failed save is tried again.

(defconst pyagentd-autosave--longest-delay 5.0
  "Seconds after the first change, or the last attempt, until a text is saved.")

(pyagentd-deflocal pyagentd-autosave-enabled nil
  "Non-nil means this buffer is saved after a pause.
See `pyagentd-autosave-idle-time'.")
(pyagentd-deflocal pyagentd-autosave--timer nil
  "Timer of the next automatic save.")
(pyagentd-deflocal pyagentd-autosave--deadline nil
  "Time (`float-time') by which the buffer must be saved; nil if no save is due.")

(defun pyagentd-autosave-settle ()
  "Cancel the automatic save."
  (when pyagentd-autosave--timer
    (cancel-timer pyagentd-autosave--timer))
  (setq pyagentd-autosave--timer nil
        pyagentd-autosave--deadline nil))

(defun pyagentd-autosave-touch (&optional delay)
  "Schedule a save after a pause, or after DELAY seconds.
While changes go on, the buffer is saved after five seconds."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (when (and pyagentd-autosave-enabled (> pyagentd-autosave-idle-time 0))
      (let ((now (float-time)))
        (setq pyagentd-autosave--deadline
              (or pyagentd-autosave--deadline
                  (+ now pyagentd-autosave--longest-delay)))
        (when pyagentd-autosave--timer
          (cancel-timer pyagentd-autosave--timer))
        (setq pyagentd-autosave--timer
              (run-at-time (or delay
                               (max 0 (min pyagentd-autosave-idle-time
                                           (- pyagentd-autosave--deadline now))))
                           nil #'pyagentd-autosave--on-timer
                           (current-buffer)))))))

(defun pyagentd-autosave--on-timer (buffer)
  "Save BUFFER, or try again later if that is not possible."
  (pyagentd-with-live-buffer buffer
    (setq pyagentd-autosave--timer nil)
    (when (and pyagentd-autosave--deadline pyagentd-autosave-enabled)
      ;; Timers run before the key just typed is displayed.
      (redisplay)
      (pyagentd-guarded "Autosave"
        (pyagentd-session-save))
      (if (or (not (buffer-modified-p)) (pyagentd-sync-attached-p))
          (pyagentd-autosave-settle)
        (setq pyagentd-autosave--deadline nil)
        (pyagentd-autosave-touch pyagentd-autosave--longest-delay)))))

;;;; Session buffers: recognise, read, save

;; A session buffer has five buffer-local variables, set from the file's
;; name alone (no daemon needed), and `pyagentd-mode', which keeps the
;; Local Variables block out of the buffer, writes it back with each save,
;; and saves automatically.
;;
;; Everything the mode sets survives a change of the major mode: were it
;; lost, the next save would write the text without its roles.

(defvar pyagentd-mode)

(defconst pyagentd-prompt-prefix "### "
  "Prefix of a prompt in a conversation, a heading.")

(defun pyagentd-prompt-empty-p ()
  "Return non-nil if the line before point is the heading of an empty prompt.
A run ends with such a heading."
  (and (looking-back (concat "^" (regexp-quote pyagentd-prompt-prefix))
                     (line-beginning-position))
       (not (get-text-property (line-beginning-position) 'gptel))))

(pyagentd-deflocal pyagentd-session-trouble nil
  "Why the last save failed, a line with the file's name; nil if it succeeded.")

(defvar pyagentd-session-read-hook nil
  "Hook run in a session buffer after its file was read or reverted.")
(defvar pyagentd-session-saved-hook nil
  "Hook run in a session buffer when its file holds all of its text.")
(defvar pyagentd-session-before-write-hook nil
  "Hook run in a session buffer before Emacs writes its file.
A function may signal an error; then nothing is written.")
(defvar pyagentd-session-written-hook nil
  "Hook run in a session buffer after Emacs wrote its file.
While a daemon is attached, that writes it instead.")
(defvar pyagentd-session-trouble-hook nil
  "Hook run in a session buffer when `pyagentd-session-trouble' has changed.")
(defvar pyagentd-session-leave-hook nil
  "Hook run in a session buffer when it is killed or its mode is turned off.")
(defvar pyagentd-session-look-hook nil
  "Hook run in a buffer after `pyagentd-mode' or its major mode has changed.")
(defvar pyagentd-edit--applying)
(declare-function pyagentd-insert--keep "pyagentd-edit")
(declare-function pyagentd-sync-attached-p "pyagentd-sync")
(declare-function pyagentd-sync-leave "pyagentd-sync")
(declare-function pyagentd-sync-flush "pyagentd-sync")
(declare-function pyagentd-sync-save "pyagentd-sync")
(declare-function pyagentd-sync-watch "pyagentd-sync")

;;;; Reading

(defun pyagentd-session--after-read ()
  "Set up the buffer after its file was read: roles, settings, protection."
  (let ((inhibit-read-only t)
        (blocks (pyagentd-block-strip)))
    (setq-local buffer-file-coding-system pyagentd-write-coding)
    (pyagentd-autosave-settle)
    (pyagentd-session--set-trouble nil)
    (pyagentd-session--set-guard)
    (when (and (= (buffer-size) 0) (not (pyagentd-place-agent-p)))
      (with-silent-modifications (insert pyagentd-prompt-prefix)))
    (unless (eq buffer-undo-list t)
      (setq buffer-undo-list nil))
    (when (> blocks 1)
      (pyagentd-log 'warn "%s: %d Local Variables blocks, kept one"
                    (buffer-name) blocks)
      (set-buffer-modified-p t)
      (pyagentd-autosave-touch)))
  (run-hooks 'pyagentd-session-read-hook))

(defun pyagentd-session--after-revert ()
  "Set up the buffer again after a revert."
  (when pyagentd-mode
    (pyagentd-session--ensure-text-mode)
    (pyagentd-session--after-read)))

(defun pyagentd-session--ensure-text-mode ()
  "Turn on `text-mode' where no major mode for Markdown is known."
  (when (eq major-mode 'fundamental-mode)
    (pyagentd-visit-major-mode)))

;;;; Roles of typed text

(pyagentd-deflocal pyagentd-session--replaced nil
  "A pair (ROLE . TICK): the role of the text about to change, the tick before.")

(pyagentd-deflocal pyagentd-session--deleted nil
  "Where a part of an answer was deleted: a list (POSITION ROLE TICK-AFTER).")

(defun pyagentd-session--before-change (beg end)
  "Record the role of the text between BEG and END, or of text deleted there."
  (setq pyagentd-session--replaced
        (pcase-let ((tick (buffer-chars-modified-tick))
                    (`(,place ,role ,then) pyagentd-session--deleted))
          (cond ((= beg end)
                 (and (eql beg place) (eql tick then) (cons role tick)))
                ((= end (next-single-property-change beg 'gptel nil end))
                 (cons (get-text-property beg 'gptel) tick))))))

(defun pyagentd-session--after-change (beg end length)
  "Give new text between BEG and END its role, and schedule a save.
Text inserted within an answer becomes part of it, and so does text that
replaces LENGTH characters of it, even its first or last word."
  (let* ((tick (buffer-chars-modified-tick))
         (replaced (and pyagentd-session--replaced
                        (/= (cdr pyagentd-session--replaced) tick) ; not its properties alone
                        (car pyagentd-session--replaced)))
         (before (and (< (point-min) beg) (<= beg (point-max))
                      (get-text-property (1- beg) 'gptel)))
         (behind (and (< end (point-max)) (get-text-property end 'gptel))))
    (when (and (< beg end) (not (or undo-in-progress pyagentd-edit--applying)))
      (when-let ((role (or replaced (and (equal before behind) behind))))
        (with-silent-modifications
          (put-text-property beg end 'gptel role))))
    (when replaced
      (setq pyagentd-session--deleted
            (and (or (= beg end) (= length 0)) ; some of it is there still
                 (< end (point-max))
                 (or (equal replaced before) (equal replaced behind))
                 (list end replaced tick)))))
  (pyagentd-syntax-forget beg end)
  (pyagentd-gc-postpone)
  (pyagentd-autosave-touch))

;;;; Recorded text

(pyagentd-deflocal pyagentd-session--guard nil
  "Overlay on the whole text that keeps recorded text from being changed.")
(pyagentd-deflocal pyagentd-session-unlocked nil
  "Non-nil if recorded text may be changed here.
\\[pyagentd-edit-recorded] changes it.")

(defvar-local pyagentd-session--saving nil
  "Non-nil during a save, or until the next command if the save fails.
It is a list of the start of the block at the end of the text itself when
the save began, nil without one.  Meanwhile save hooks that clean up white
space may change recorded text, since an error would make the save fail.")

(defun pyagentd-session--save-ends ()
  "Protect recorded text again."
  (setq pyagentd-session--saving nil)
  (remove-hook 'pre-command-hook #'pyagentd-session--save-ends t))

(defun pyagentd-session--recorded-p (pos)
  "Return non-nil if the character at POS is of a tool, thinking or hidden."
  (let ((role (and (<= (point-min) pos) (< pos (point-max))
                   (get-text-property pos 'gptel))))
    (or (consp role) (eq role 'ignore))))

(defun pyagentd-session--tears-p (beg end)
  "Return non-nil if changing BEG to END damages recorded text or its fence."
  (let ((inserts (= beg end)))
    (or (if inserts
            (and (pyagentd-session--recorded-p (1- beg))
                 (pyagentd-session--recorded-p beg))
          (cl-loop for pos = beg then (next-single-property-change
                                       pos 'gptel nil end)
                   while (< pos end)
                   thereis (pyagentd-session--recorded-p pos)))
        (and (pyagentd-session--recorded-p end)
             (equal "```" (buffer-substring-no-properties
                           end (min (point-max) (+ end 3))))
             (or inserts (not (memq (char-before beg) '(nil ?\n)))))
        (and (pyagentd-session--recorded-p (1- beg))
             (equal "\n```" (buffer-substring-no-properties
                             (max (point-min) (- beg 4)) beg))
             (not (memq (char-after end) (if inserts '(nil) '(nil ?\n))))))))

(defun pyagentd-session--protect (_guard after beg end &rest _)
  "Signal `text-read-only' if BEG to END is recorded text.
Undo, the daemon and code that binds `inhibit-read-only' may change it.
AFTER is non-nil after the change.  A function for overlay hooks."
  (when (and undo-in-progress (not after))
    (pyagentd-insert--keep beg end))
  (unless (or after undo-in-progress inhibit-read-only
              pyagentd-session-unlocked pyagentd-session--saving
              (bound-and-true-p revert-buffer-in-progress-p))
    (save-restriction
      (widen)
      (when (pyagentd-session--tears-p beg end)
        (signal 'text-read-only
                (list "recorded; M-x pyagentd-edit-recorded permits changes"))))))

(defun pyagentd-session--set-guard ()
  "Protect recorded text in this buffer."
  (unless (overlayp pyagentd-session--guard)
    (setq pyagentd-session--guard (make-overlay 1 1 nil nil t))
    (dolist (hook '(modification-hooks insert-in-front-hooks
                                       insert-behind-hooks))
      (overlay-put pyagentd-session--guard hook
                   '(pyagentd-session--protect))))
  (move-overlay pyagentd-session--guard 1 (1+ (buffer-size))))

(defun pyagentd-edit-recorded ()
  "Allow changes of recorded text in this session, or protect it again.
Recorded text is tool calls and results, thinking, and turns that were
taken back.  Changes are saved, and the model sees them."
  (interactive)
  (unless pyagentd-mode (user-error "Not a session"))
  (setq pyagentd-session-unlocked (not pyagentd-session-unlocked))
  (force-mode-line-update)
  (message (if pyagentd-session-unlocked
               "Recorded text can be changed; the same command protects it"
             "Recorded text is protected")))

;;;; Saving

(defun pyagentd-session--annotate (start _end)
  "Return the block as an annotation if the whole buffer is written.
START is non-nil for a region, such as that of \\[shell-command-on-region]."
  (when (and pyagentd-mode (null start))
    (let ((block (pyagentd-block-text)))
      (unless (string-empty-p block)
        (list (cons (1+ (buffer-size)) (concat "\n\n" block)))))))

(defun pyagentd-session--before-save ()
  "Apply the pending events first, so that no frame is saved in part."
  (when pyagentd-mode
    (pyagentd-events-drain)
    ;; Save hooks may change recorded text.
    (setq pyagentd-session--saving (list (pyagentd-block--end)))
    (add-hook 'pre-command-hook #'pyagentd-session--save-ends nil t)
    (pyagentd-session--drop-gptel-hook)))

(put 'pyagentd-session--before-save 'pyagentd-session-depth -100) ; before gptel's

(defun pyagentd-session--write ()
  "Write the session file, or ask the daemon to; return t.
Outside `pyagentd-mode' do nothing and return nil."
  (when pyagentd-mode
    (when-let ((start (and (equal '(nil) pyagentd-session--saving)
                           (pyagentd-block--end))))
      ;; A hook called the function that writes gptel's block.
      (save-restriction
        (widen)
        (pyagentd-block--cut start)))
    (if (pyagentd-sync-attached-p)
        (pyagentd-sync-save)
      (run-hooks 'pyagentd-session-before-write-hook)
      (condition-case err
          (pyagentd-write (pyagentd-place-conversation pyagentd--branch-dir))
        (file-error
         (pcase-let ((`(,_ ,what ,cause ,file) err))
           (pyagentd-session--set-trouble
            (format "%s: %s, %s" what cause (abbreviate-file-name file))))
         (signal (car err) (cdr err))))
      (set-visited-file-modtime)
      (set-buffer-modified-p nil)
      (run-hooks 'pyagentd-session-written-hook)
      (unless save-silently
        (message "Wrote %s" buffer-file-name)))
    (setq last-coding-system-used pyagentd-write-coding)
    t))

(defun pyagentd-session--after-save ()
  "Finish a save: protect recorded text and cancel the automatic save."
  (when pyagentd-mode
    (pyagentd-session--save-ends)
    (pyagentd-autosave-settle)
    (unless (buffer-modified-p)         ; else the daemon was asked to write it
      (pyagentd-session-saved-again)
      (run-hooks 'pyagentd-session-saved-hook))))

(defun pyagentd-session-saved-again ()
  "Clear the error of an earlier save, and tell the user that the text is saved."
  (when pyagentd-session-trouble
    (pyagentd-session--set-trouble nil)
    (pyagentd-session--drop-kept)
    (message "%s is saved again" (buffer-name))))

(defun pyagentd-session-keep ()
  "Write the text to Emacs' auto-save file; return its name, or nil on failure.
It is for a text that is not in its own file yet."
  (unless buffer-auto-save-file-name
    (with-suppressed-warnings ((obsolete auto-save-visited-file-name))
      (let ((auto-save-visited-file-name nil))
        (auto-save-mode 1))))
  ;; Not `do-auto-save': it reports no failure, and does not try again for
  ;; twenty minutes.
  (condition-case nil
      (with-file-modes #o600
        (write-region nil nil buffer-auto-save-file-name nil 'quiet)
        (set-buffer-auto-saved)
        buffer-auto-save-file-name)
    (file-error nil)))

(defun pyagentd-session--drop-kept ()
  "Delete the file that `pyagentd-session-keep' wrote."
  (when buffer-auto-save-file-name
    (delete-auto-save-file-if-necessary t)
    (auto-save-mode -1)))

(defun pyagentd-session--set-trouble (trouble)
  "Set and report TROUBLE, why the text cannot be saved, or nil if it can."
  (unless (equal trouble pyagentd-session-trouble)
    (setq pyagentd-session-trouble trouble)
    ;; Then Emacs asks before it exits, and the user can exit anyway.
    (setq-local buffer-save-without-query (null trouble))
    (when trouble
      (pyagentd-log 'error "%s" trouble))
    (run-hooks 'pyagentd-session-trouble-hook)))

(defun pyagentd-session--drop-gptel-hook ()
  "Remove gptel's save hook here, which would write a block with system message."
  (when (and pyagentd-mode (local-variable-p 'before-save-hook))
    (let ((count (seq-count (lambda (function) (eq function 'gptel--save-state))
                            before-save-hook)))
      (when (> count 1)
        (pyagentd-log 'warn "%s: %d duplicate save hooks" (buffer-name) count))
      ;; In place: the hook may be running.
      (when (> count 0)
        (setq before-save-hook (delq 'gptel--save-state before-save-hook))))))

(defun pyagentd-session-copy-p ()
  "Return non-nil if the file is a copy of one on another machine."
  (string-search "/pyagentd/hosts/" buffer-file-name))

(defun pyagentd-session-in-step-p ()
  "Return non-nil if no other program changed the file, or if it is gone."
  (or (not (file-exists-p buffer-file-name))
      (pyagentd-session-copy-p)
      (and (not (eql 0 (visited-file-modtime))) ; 0: nothing is known
           (verify-visited-file-modtime))))

(defun pyagentd-session-save ()
  "Save the session in this buffer if it is modified, without asking.
If the daemon writes the file, send it what was typed.  Return non-nil if
file and buffer agree.  A file that another program changed is left alone."
  (cond ((null buffer-file-name) nil)
        ((pyagentd-sync-attached-p)
         (pyagentd-sync-flush)
         (pyagentd-sync-watch)
         (not (buffer-modified-p)))
        ((not (buffer-modified-p)) (file-exists-p buffer-file-name))
        ((not (pyagentd-session-in-step-p))
         (pyagentd-session--set-trouble
          (format "Not saved: changed on disk, %s; \
M-x pyagentd-connect merges both, M-x revert-buffer reads it, C-x C-s overwrites it"
                  (abbreviate-file-name buffer-file-name)))
         nil)
        (t (let ((save-silently t)
                 ;; A cleanup meant for files edited by hand would move
                 ;; text under the user's fingers.
                 (before-save-hook nil))
             (pyagentd-session--before-save)
             (condition-case nil
                 (progn (save-buffer 0) t)
               (file-error nil))))))

;;;; Leaving

(defun pyagentd-session--before-kill ()
  "Save the buffer, so that killing it needs no question."
  (when (and pyagentd-mode pyagentd-autosave-enabled (buffer-modified-p)
             (not (buffer-base-buffer)))
    (pyagentd-guarded "Save"
      (if (pyagentd-sync-attached-p) (pyagentd-sync-leave)
        (pyagentd-session-save))))
  t)

(defun pyagentd-session--leave ()
  "Unregister the branch of this buffer."
  (when (and pyagentd-mode (not (buffer-base-buffer)))
    (pyagentd-autosave-settle)
    (pyagentd-run-functions 'pyagentd-session-leave-hook)
    (when (eq (pyagentd-place-buffer pyagentd--branch-dir) (current-buffer))
      (remhash pyagentd--branch-dir pyagentd-place--registry))))

(defun pyagentd-session--after-rename ()
  "Turn the mode off if the buffer now visits a file elsewhere."
  (when (and pyagentd-mode
             (not (and buffer-file-name
                       (equal pyagentd--branch-dir
                              (plist-get (pyagentd-place-of
                                          buffer-file-name)
                                         :branch-dir)))))
    (pyagentd-mode -1)))

;;;; The mode

(defvar pyagentd-mode-map (make-sparse-keymap)
  "Keymap of `pyagentd-mode'.")

(defvar pyagentd-session-hooks
  '((before-change-functions . pyagentd-session--before-change)
    (after-change-functions . pyagentd-session--after-change)
    (write-region-annotate-functions . pyagentd-session--annotate)
    (write-contents-functions . pyagentd-session--write)
    (before-save-hook . pyagentd-session--before-save)
    (after-save-hook . pyagentd-session--after-save)
    (after-revert-hook . pyagentd-session--after-revert)
    (after-set-visited-file-name-hook . pyagentd-session--after-rename)
    (kill-buffer-query-functions . pyagentd-session--before-kill)
    (kill-buffer-hook . pyagentd-session--leave)
    (gptel-mode-hook . pyagentd-session--drop-gptel-hook))
  "Buffer-local hooks of a session buffer, pairs (HOOK . FUNCTION).
The property `pyagentd-session-depth' of FUNCTION is as for `add-hook'.")

(defvar pyagentd-session-settings
  '((require-final-newline . nil)
    (mode-require-final-newline . nil)
    (backup-inhibited . t)
    (create-lockfiles . nil)
    (word-wrap . t)                     ; prose, not code
    (buffer-save-without-query . t)
    (buffer-auto-save-file-name . nil))
  "Buffer-local settings of a session buffer.")

(defconst pyagentd-session-invisible '(pyagentd-fold pyagentd-hidden)
  "Values of `invisible' that hide text in a session buffer.
`pyagentd-shown' is not among them: it shows text that the major mode hides.")

(put 'pyagentd-mode 'permanent-local t)

(defvar pyagentd-completing-functions nil
  "Functions that return non-nil where TAB completes in a session buffer.
Elsewhere TAB runs its command in the major mode.")

(define-minor-mode pyagentd-mode
  "Minor mode of buffers that show the conversation of a session.
The text is the conversation; send it with \\[pyagentd-send].  It is
saved by itself after a pause.

\\{pyagentd-mode-map}"
  :lighter (:eval (if pyagentd-session-unlocked " Agent[unlocked]" " Agent"))
  (if pyagentd-mode
      (pyagentd-session--set-up)
    (setq pyagentd-mode t)              ; leaving needs it
    (pyagentd-session--tear-down)
    (setq pyagentd-mode nil)))

(defun pyagentd-session--set-up ()
  "Make the current buffer a session buffer."
  (let ((place (and buffer-file-name
                    (pyagentd-place-of buffer-file-name))))
    (unless place
      (setq pyagentd-mode nil)
      (user-error "Not a session: %s" (or buffer-file-name (buffer-name))))
    ;; The link `current' may soon point to another branch.
    (unless (string-match-p pyagentd-visit-regexp buffer-file-name)
      (setq buffer-file-name (file-truename buffer-file-name)
            default-directory (file-name-directory buffer-file-name)))
    (setq pyagentd--session-id (plist-get place :session-id)
          pyagentd--session-dir (plist-get place :session-dir)
          pyagentd--branch-name (plist-get place :branch-name)
          pyagentd--branch-dir (plist-get place :branch-dir)
          pyagentd--named-agent (pyagentd-place-named-agent
                                 pyagentd--session-dir)
          pyagentd-autosave-enabled t)
    (pyagentd-session--apply-settings)
    (setq-local yank-excluded-properties
                (if (listp yank-excluded-properties)
                    (append '(gptel fontified pyagentd-syntax) yank-excluded-properties)
                  yank-excluded-properties))
    (pyagentd-place-register pyagentd--session-dir (current-buffer)
                             pyagentd--session-id pyagentd--branch-name
                             pyagentd--branch-dir)
    (pyagentd-session--drop-gptel-hook)
    (pyagentd-session--after-read)))

(defun pyagentd-session--apply-settings ()
  "Install the buffer-local hooks and settings of a session buffer."
  (pcase-dolist (`(,hook . ,function) pyagentd-session-hooks)
    (put function 'permanent-local-hook t)
    (add-hook hook function (or (get function 'pyagentd-session-depth) 0) t))
  (pcase-dolist (`(,variable . ,value) pyagentd-session-settings)
    (set (make-local-variable variable) value))
  (mapc #'add-to-invisibility-spec pyagentd-session-invisible)
  (pyagentd-plain-characters)
  ;; The file names tools of the daemon, which gptel may not know.
  (setq-local warning-suppress-log-types
              (cons '(gptel org tools)
                    (and (default-boundp 'warning-suppress-log-types)
                         (default-value 'warning-suppress-log-types))))
  (pyagentd-syntax-install))

(defun pyagentd-session--after-major-mode ()
  "Restore hooks and settings after a change of the major mode."
  (when (bound-and-true-p pyagentd-mode)
    (pyagentd-session--apply-settings)
    (run-hooks 'pyagentd-session-look-hook)))

(add-hook 'after-change-major-mode-hook #'pyagentd-session--after-major-mode)
(add-hook 'pyagentd-mode-hook
          (lambda () (run-hooks 'pyagentd-session-look-hook)))

(defun pyagentd-session--tear-down ()
  "Make the current buffer an ordinary one that holds the whole file."
  (pyagentd-session--leave)
  (pcase-dolist (`(,hook . ,function) pyagentd-session-hooks)
    (remove-hook hook function t))
  (pcase-dolist (`(,variable . ,_) pyagentd-session-settings)
    (kill-local-variable variable))
  (mapc #'remove-from-invisibility-spec pyagentd-session-invisible)
  (kill-local-variable 'yank-excluded-properties)
  (when pyagentd-session--guard
    (delete-overlay pyagentd-session--guard))
  (pyagentd-syntax-remove)
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (point-max))
      (with-silent-modifications
        (let ((block (pyagentd-block-text)))
          (unless (string-empty-p block)
            (insert "\n\n" block))))))
  (mapc #'kill-local-variable
        '(pyagentd--session-id pyagentd--session-dir pyagentd--branch-name
                               pyagentd--branch-dir pyagentd--named-agent
                               pyagentd-autosave-enabled
                               pyagentd-session--guard pyagentd-session-unlocked)))

(defun pyagentd-session-maybe-initialize ()
  "Turn on `pyagentd-mode' if this buffer's file is that of a session.
Do nothing if it is already on, in an indirect buffer, or if the file is
visited literally or its directory is missing."
  (unless (or (bound-and-true-p pyagentd-mode)
              find-file-literally
              (buffer-base-buffer)
              (not (file-directory-p default-directory)))
    (pyagentd-guarded "Open session"
      (when (pyagentd-place-of buffer-file-name)
        (pyagentd-session--ensure-text-mode)
        (pyagentd-mode)))))

(provide 'pyagentd-session)
;;; pyagentd-session.el ends here

;;; pyagentd-core.el --- Options, faces, errors and helpers of all files -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What every other file uses: the customization group, faces, errors, JSON,
;; YAML, numbers for people, and the environment that the daemon is given.

;;; Code:

(require 'subr-x)
(require 'cl-lib)
(require 'seq)

(declare-function auth-source-search "auth-source")
(declare-function ansi-color-apply "ansi-color")
(defvar ansi-color-context)
(declare-function gptel--get-api-key "ext:gptel-request")
(declare-function gptel-backend-host "ext:gptel-request")
(declare-function gptel-backend-key "ext:gptel-request")

;;;; JSON

(defun pyagentd-json-plist (text)
  "Return what the JSON in TEXT says, as plists with keywords and vectors.
False is `:json-false', null is nil; so functions of tools expect it."
  (json-parse-string text :object-type 'plist :array-type 'array
                     :null-object nil :false-object :json-false))

(defun pyagentd-json-of (plist)
  "Return PLIST as a JSON object.
Its values are strings, numbers, t, nil (null), `:json-false', plists and
vectors of these."
  (if (null plist) "{}"
    (json-serialize plist :null-object nil :false-object :json-false)))

;;;; Read the metadata of a session

;; scope-plan.yml, branch-metadata.yml and the front matter of preset.md,
;; read without the daemon.  This is the YAML that the daemon itself and
;; its presets write: keys with texts, numbers, lists and further keys.
;; Whatever else stands there is an error of the kind
;; `pyagentd-yaml-unknown'; then the daemon, which knows all of YAML, is
;; to be asked.

(define-error 'pyagentd-yaml-unknown "YAML that only the daemon reads")

(defun pyagentd-yaml--unknown (line)
  "Signal that only the daemon understands LINE."
  (signal 'pyagentd-yaml-unknown (list line)))

(defun pyagentd-yaml-text (file)
  "Return the text of FILE, nil if there is none."
  (when (file-exists-p file)
    (unless (and (file-regular-p file) (file-readable-p file)
                 (< (file-attribute-size (file-attributes (file-truename file)))
                    262144))
      (pyagentd-yaml--unknown file))
    (with-temp-buffer
      (let ((coding-system-for-read 'utf-8-unix))
        (insert-file-contents file))
      (when (re-search-forward "[\t\r\ufeff]\\|[^[:print:]\n]" nil t)
        (goto-char (match-beginning 0))
        (pyagentd-yaml--unknown (buffer-substring (line-beginning-position)
                                                  (line-end-position))))
      (buffer-string))))

(defun pyagentd-yaml-front (text)
  "Return TEXT, that of a preset, as (FRONT-MATTER . BODY)."
  (if (string-match "\\`---\n\\(\\(?:.*\n\\)*?\\)---\\(?:\n\\|\\'\\)" text)
      (cons (match-string 1 text) (substring text (match-end 0)))
    (pyagentd-yaml--unknown (car (split-string text "\n")))))

(defun pyagentd-yaml-preset (text)
  "Return the front matter of TEXT, that of a preset, as a plist.
Its :tools are a list of names."
  (let* ((front (pyagentd-yaml-read (car (pyagentd-yaml-front text))))
         (tools (plist-get front :tools)))
    (cond ((stringp tools)
           (plist-put front :tools (split-string tools "[ ,]+" t)))
          ((seq-every-p #'stringp (ensure-list tools)) front)
          (t (pyagentd-yaml--unknown "tools:")))))

(defun pyagentd-yaml-read (text &optional plain)
  "Return the keys of TEXT as a plist with keywords in kebab-case.
Values are texts, numbers, t, nil, lists and plists.  PLAIN means that
every value is the text as it is written, and that what is no text is
left out."
  (let ((lines (cl-loop for line in (split-string text "\n")
                        for start = (string-match "[^ ]" line)
                        unless (or (null start) (eq (aref line start) ?#))
                        collect (cons start (substring line start)))))
    (when (or (null lines) (/= 0 (caar lines)))
      (pyagentd-yaml--unknown (or (cdar lines) "no keys")))
    (pcase-let ((`(,keys . ,rest) (pyagentd-yaml--keys lines 0 plain)))
      (when rest (pyagentd-yaml--unknown (cdar rest)))
      keys)))

(defun pyagentd-yaml--keys (lines indent plain)
  "Return (PLIST . REST) of LINES, which begin with keys at INDENT; PLAIN as above."
  (let (keys)
    (while (and lines (= indent (caar lines)))
      (let ((line (cdr (pop lines))) key value said)
        (unless (string-match "\\`\\([A-Za-z_][A-Za-z0-9_-]*\\):\\(?: +\\|\\'\\)" line)
          (pyagentd-yaml--unknown line))
        (setq key (intern (concat ":" (string-replace
                                       "_" "-" (match-string 1 line))))
              said (substring line (match-end 0)))
        (when (plist-member keys key)
          (pyagentd-yaml--unknown line))
        (if (not (string-match-p "\\`\\(?:#.*\\)?\\'" said))
            (setq value (pyagentd-yaml--value said plain))
          (pcase-setq `(,value . ,lines)
                      (pyagentd-yaml--below lines indent plain)))
        (unless (and plain (not (stringp value)))
          (setq keys (plist-put keys key value)))))
    (when (and lines (> (caar lines) indent))
      (pyagentd-yaml--unknown (cdar lines)))
    (cons keys lines)))

(defun pyagentd-yaml--below (lines indent plain)
  "Return (VALUE . REST) of LINES, below a key with INDENT; PLAIN is as above."
  (let ((below (caar lines)))
    (cond ((and lines (>= below indent)
                (string-match-p "\\`-\\(?: \\|\\'\\)" (cdar lines)))
           (cons (cl-loop while (and lines (= below (caar lines))
                                     (string-prefix-p "- " (cdar lines)))
                          collect (pyagentd-yaml--value
                                   (string-trim-left (substring (cdr (pop lines)) 2))
                                   plain))
                 lines))
          ((and lines (> below indent))
           (pyagentd-yaml--keys lines below plain))
          (t (cons (and plain "") lines)))))

(defun pyagentd-yaml--value (text plain)
  "Return the value of TEXT, behind a key or in a list; PLAIN as above."
  (cond ((string-match "\\`\\(?:\"\\([^\"\\]*\\)\"\\|'\\([^']*\\)'\\) *\\(?: #.*\\)?\\'"
                       text)
         (or (match-string 1 text) (match-string 2 text)))
        ((string-match "\\`\\[\\(.*\\)\\] *\\(?: #.*\\)?\\'" text)
         (let ((inside (string-trim (match-string 1 text))) items)
           (while (not (string-empty-p inside))
             (unless (string-match
                      "\\`\\(\"[^\"]*\"\\|'[^']*'\\|[^][{},\"'#]+\\) *\\(?:, *\\|\\'\\)"
                      inside)
               (pyagentd-yaml--unknown text))
             (let ((item (match-string 1 inside)))
               (setq inside (substring inside (match-end 0)))
               (push (pyagentd-yaml--value (string-trim item) plain) items)))
           (nreverse items)))
        (t
         (setq text (string-trim-right
                     (replace-regexp-in-string " #.*\\'" "" text)))
         (cond ((and (string-match-p "\\`[]&*!|>%@`{}\"'?,[-]\\|: \\|:\\'" text)
                     (not (string-match-p "\\`-[0-9.]+\\'" text)))
                (pyagentd-yaml--unknown text))
               (plain text)
               ((member text '("true" "True" "TRUE")) t)
               ((member text '("false" "False" "FALSE" "null" "Null" "NULL" "~"))
                nil)
               ((string-match-p
                 "\\`-?\\(?:0\\|[1-9][0-9]*\\)\\(?:\\.[0-9]+\\)?\\'" text)
                (string-to-number text))
               ;; Dates, and the many other ways to write a number.
               ((string-match-p
                 "\\`[-+.]?[0-9]\\|\\`[-+]?\\.\\(?:inf\\|nan\\)\\'" (downcase text))
                (pyagentd-yaml--unknown text))
               (t text)))))

;;;; Options, faces, errors and log of pyagentd

;; The tree of errors:
;;
;;   pyagentd-error
;;   ├── pyagentd-remote-error        the daemon refused a call; data (CODE MESSAGE . PLIST)
;;   └── pyagentd-connection-error    nothing can be said to the daemon
;;       ├── pyagentd-disconnected    the connection ended before the answer came
;;       ├── pyagentd-timeout         no answer in time; the call may still take effect
;;       └── pyagentd-protocol-error  the daemon speaks another protocol

(defgroup pyagentd nil
  "Agents that outlive Emacs."
  :group 'tools
  :prefix "pyagentd-")

;;;; Options

(defcustom pyagentd-sessions-directory
  (or (getenv "PYAGENTD_SESSIONS_DIR") "~/.gptel/sessions")
  "Directory that holds one directory per session."
  :type 'directory)

(defconst pyagentd-version "0.1.0"
  "Version of this package; the server of the same version fits it.")

(defcustom pyagentd-command nil
  "Program and first arguments of the server; nil means search for it.
It is searched for on the path, then in `pyagentd-server-directory',
where \\[pyagentd-install-server] installs it.  To start the daemon
the words \"serve\" and \"--detach\" are appended."
  :type '(choice (const :tag "Search for it" nil) (repeat string))
  :risky t)

(defcustom pyagentd-host nil
  "Machine whose daemon this Emacs uses, as ssh calls it; nil means this one.
Sessions, files, tools and keys are those of that machine then.  See the
command `pyagentd-use-host', which changes it while Emacs runs."
  :type '(choice (const :tag "This machine" nil) string)
  :risky t)

(defcustom pyagentd-runtime-directory nil
  "Directory of the daemon's runtime file and socket.
nil means the daemon's own default: $PYAGENTD_RUNTIME_DIR, else
pyagentd/ in $XDG_RUNTIME_DIR, else pyagentd/run/ in $XDG_STATE_HOME
or ~/.local/state."
  :type '(choice (const :tag "As the daemon decides" nil) directory))

(defcustom pyagentd-human 'auto
  "Whether a human can answer approvals and questions.
`auto' means yes unless Emacs runs in batch mode; t means yes and nil
no.  Without a human, every action that needs approval is denied."
  :type '(choice (const :tag "Unless in batch mode" auto)
                 (const :tag "Yes" t)
                 (const :tag "No" nil)))

(defcustom pyagentd-call-timeout 10
  "Seconds to wait for an answer of the daemon."
  :type 'number)

(defcustom pyagentd-start-timeout 15
  "Seconds until the start of the daemon counts as failed."
  :type 'number)

(defcustom pyagentd-autosave-idle-time 0.5
  "Seconds without a change after which a session buffer is saved.
0 means never; \\[save-buffer] still saves."
  :type 'number)

(defcustom pyagentd-log-level 'debug
  "Minimum severity of messages that are logged to *Messages*.
One of `debug', `info', `warn' and `error'; only the latter two also
show in the echo area."
  :type '(choice (const debug) (const info) (const warn) (const error)))

(defcustom pyagentd-log-to-file nil
  "Non-nil means also log messages about a session to its session.log."
  :type 'boolean)

;;;; Faces

(defface pyagentd-heading '((t :inherit font-lock-keyword-face))
  "Face of the subject of a notice.")

(defface pyagentd-detail '((t :inherit font-lock-doc-face))
  "Face of details in a notice.")

(defface pyagentd-rule '((t :inherit shadow :underline t :extend t))
  "Face of horizontal rules around a notice.")

(defface pyagentd-key '((t :inherit help-key-binding))
  "Face of keys named in a notice.")

(defface pyagentd-added '((t :inherit success))
  "Face of added lines in a preview.")

(defface pyagentd-removed '((t :inherit error))
  "Face of removed lines in a preview.")

(defconst pyagentd-rule (propertize "\n" 'face 'pyagentd-rule)
  "A horizontal rule as wide as the window.")

;;;; Terminals

(defconst pyagentd-plain-characters
  '((?… . ?.) (?→ . ?>) (?· . ?-) (?− . ?-) (?– . ?-) (?— . ?-) (?› . ?>)
    (?└ . ?`) (?├ . ?|) (?─ . ?-) (?⏎ . ?/) (?“ . ?\") (?” . ?\") (?’ . ?')
    (?▸ . ?>) (?▾ . ?v) (?✓ . ?+) (?✗ . ?X)
    (?█ . ?#) (?▓ . ?=) (?▒ . ?%) (?░ . ?.) (?▁ . ?.)
    (?▏ . ?|) (?▎ . ?|) (?▍ . ?|) (?▌ . ?|) (?▋ . ?|) (?▊ . ?|) (?▉ . ?|))
  "What stands for a character on a terminal that has none of it.
One column each, so that what is aligned stays so.")

(defun pyagentd-plain-characters ()
  "Show characters that this terminal does not have as others, in this buffer."
  (unless (display-graphic-p)
    (pcase-dolist (`(,char . ,plain) pyagentd-plain-characters)
      (unless (char-displayable-p char)
        (unless buffer-display-table
          (setq buffer-display-table (make-display-table)))
        (aset buffer-display-table char (vector plain))))))

;;;; Errors

(define-error 'pyagentd-error "Error of pyagentd" 'user-error)
(define-error 'pyagentd-remote-error "The daemon refused" 'pyagentd-error)
(define-error 'pyagentd-connection-error "No connection to the daemon"
  'pyagentd-error)
(define-error 'pyagentd-disconnected "The connection to the daemon ended"
  'pyagentd-connection-error)
(define-error 'pyagentd-timeout "The daemon did not answer in time"
  'pyagentd-connection-error)
(define-error 'pyagentd-protocol-error "The daemon speaks another protocol"
  'pyagentd-connection-error)

(defun pyagentd-error-text (err)
  "Return ERR, a list (SYMBOL . DATA), as a sentence for a person."
  (pcase err
    (`(pyagentd-remote-error ,_code ,message . ,plist)
     (if-let ((hint (plist-get plist :hint)))
         (format "%s (%s)" message hint)
       (format "%s" message)))
    ;; What was called is a name of the protocol's; a text says more.
    (`(pyagentd-timeout . ,data)
     (concat (get 'pyagentd-timeout 'error-message)
             (if (stringp (car data)) (concat ": " (car data)) "")
             "; wait and try again, or see M-x pyagentd-doctor"))
    ((and `(,symbol . ,(and data (pred consp)))
          (guard (memq 'pyagentd-error (get symbol 'error-conditions))))
     (format "%s: %s" (get symbol 'error-message)
             (mapconcat (lambda (value) (format "%s" value)) data ", ")))
    (_ (error-message-string err))))

(defun pyagentd-core--command-error (show data context caller)
  "Say an error of ours in a sentence; other errors as SHOW does.
DATA, CONTEXT and CALLER are those of `command-error-function'.  The
*Messages* buffer names this package, not the function, of what a command
of ours tells the user."
  (let ((ours (memq 'pyagentd-error (get (car-safe data) 'error-conditions))))
    (funcall show
             (if ours (list 'user-error (pyagentd-error-text data)) data)
             context
             (if (or ours (and (eq (car-safe data) 'user-error)
                               (symbolp this-command)
                               (string-prefix-p "pyagentd-"
                                                (symbol-name this-command))))
                 'pyagentd
               caller))))

(add-function :around command-error-function #'pyagentd-core--command-error)

;;;; Log

;; Lines in *Messages* begin with the package's name, those in the file
;; with [GPTEL-LEVEL].

(defconst pyagentd-core--levels '(debug info warn error)
  "Log levels, least severe first.")

(defun pyagentd-log (level format-string &rest args)
  "Log FORMAT-STRING with ARGS at LEVEL, see `pyagentd-log-level'.
In a buffer of a session it also goes to the session's own log if
`pyagentd-log-to-file' is non-nil."
  (pyagentd-log-record level (apply #'format format-string args)
                       (bound-and-true-p pyagentd--session-dir)))

(defun pyagentd-log-record (level text session-dir)
  "Log TEXT at LEVEL about the session in SESSION-DIR, nil for no session."
  (when (memq level (memq pyagentd-log-level pyagentd-core--levels))
    (let ((line (format "pyagentd %s: %s"
                        (if (eq level 'warn) "warning" level)
                        text)))
      (if (memq level '(debug info))
          ;; What the echo area shows stays there: Emacs clears it for a
          ;; message that is inhibited, and with it what a command asks.
          (let ((shown (current-message)))
            (let ((inhibit-message t))
              (message "%s" line))
            (when shown
              (let ((message-log-max nil))
                (message "%s" shown))))
        (message "%s" line)))
    (when (and pyagentd-log-to-file session-dir)
      (let ((coding-system-for-write 'utf-8-unix))
        (ignore-errors ; a session that is gone has no log
          (write-region (format "%s[GPTEL-%s] %s\n"
                                (format-time-string "[%F %T] ")
                                (upcase (symbol-name level)) text)
                        nil (expand-file-name "session.log" session-dir)
                        'append 'quiet)))))
  nil)

(defmacro pyagentd-guarded (what &rest body)
  "Run BODY; an error in it is logged as a failure of WHAT, not signaled.
For the edges only: hooks, timers, filters and event handlers."
  (declare (indent 1) (debug t))
  (let ((err (make-symbol "err")))
    `(condition-case-unless-debug ,err
         (progn ,@body)
       (error (pyagentd-log 'error "%s: %s" ,what (pyagentd-error-text ,err))))))

(defun pyagentd-run-functions (hook &rest args)
  "Call the functions of HOOK, to which users add some, with ARGS.
An error in one of them is logged, and keeps nothing else from being done."
  (run-hook-wrapped hook
                    (lambda (function)
                      (pyagentd-guarded hook (apply function args))
                      nil)))

(defmacro pyagentd-with-live-buffer (buffer &rest body)
  "Evaluate BODY in BUFFER if that is still alive."
  (declare (indent 1) (debug t))
  (let ((live (make-symbol "buffer")))
    `(let ((,live ,buffer))
       (when (buffer-live-p ,live)
         (with-current-buffer ,live ,@body)))))

(defmacro pyagentd-in-session (&rest body)
  "Evaluate BODY in the buffer of the session here; signal if there is none."
  (declare (indent 0) (debug t))
  `(with-current-buffer (or (buffer-base-buffer) (current-buffer))
     (unless (bound-and-true-p pyagentd-mode)
       (user-error "Not a session; make one with M-x pyagentd-session"))
     ,@body))

;;;; Variables

(defmacro pyagentd-deflocal (name value docstring)
  "Define the buffer-local variable NAME, which outlives a new major mode.
VALUE and DOCSTRING are as for `defvar-local'."
  (declare (indent defun) (doc-string 3) (debug defvar-local))
  `(progn (defvar-local ,name ,value ,docstring)
          (put ',name 'permanent-local t)))

;;;; Keys

(defun pyagentd-keymap (&rest keys)
  "Return a keymap with KEYS: each key, as for `kbd' or a vector, and its command."
  (let ((map (make-sparse-keymap)))
    (while keys
      (let ((key (pop keys)))
        (define-key map (if (stringp key) (kbd key) key) (pop keys))))
    map))

;;;; Choosing

(cl-defun pyagentd-choose (prompt candidates
                                  &key default category annotate loose)
  "Read one of CANDIDATES with PROMPT, in their order; return its value.
They are strings or pairs (STRING . VALUE).  DEFAULT is one of the strings,
CATEGORY a symbol; ANNOTATE is called with a value and returns what to say
beside it.  What is none of them is returned if LOOSE is non-nil."
  (let* ((pairs (mapcar (lambda (each) (if (consp each) each (cons each each)))
                        candidates))
         (buffer (current-buffer))
         (metadata
          `(metadata
            (category . ,category)
            (display-sort-function . identity)
            (cycle-sort-function . identity)
            ,@(and annotate
                   `((annotation-function
                      . ,(lambda (text)
                           (when-let ((pair (assoc text pairs)))
                             (with-current-buffer buffer
                               (funcall annotate (cdr pair))))))))))
         (chosen (completing-read
                  prompt
                  (lambda (string predicate action)
                    (if (eq action 'metadata) metadata
                      (complete-with-action action pairs string predicate)))
                  nil (not loose) nil nil default)))
    (if-let ((pair (assoc chosen pairs))) (cdr pair)
      (and loose chosen))))

(defun pyagentd-told-table (category rows)
  "Return a completion table of what ROWS, a function, returns at the time.
That is a list of (TEXT . SUMMARY), SUMMARY being what stands beside it, or
nil: what the daemon says while something is completed counts, too.
CATEGORY is a symbol."
  (lambda (string predicate action)
    (if (eq action 'metadata)
        `(metadata
          (category . ,category)
          (annotation-function
           . ,(lambda (text)
                (when-let ((summary (cdr (assoc text (funcall rows)))))
                  (concat "  " (pyagentd-one-line summary 60))))))
      (complete-with-action action (mapcar #'car (funcall rows))
                            string predicate))))

(defun pyagentd-one-line (text &optional most)
  "Return TEXT, whatever it is, on one line of at most MOST columns."
  (let ((line (replace-regexp-in-string "[\n\t ]+" " "
                                        (string-trim (format "%s" text)))))
    (if most (truncate-string-to-width line most nil nil "…") line)))

(defun pyagentd-count (number noun)
  "Return NUMBER with NOUN as a person writes it."
  (cond ((= number 1) (concat "1 " noun))
        ((string-suffix-p "ch" noun) (format "%d %ses" number noun))
        (t (format "%d %ss" number noun))))

;;;; Edit a text in a buffer

;; Long values, such as a system prompt, are edited in a buffer and handed
;; over when they are finished.  A text that is refused stays there.

(pyagentd-deflocal pyagentd-edit--of nil
  "What is edited here: a plist of :key, :header and :finish.")

(defvar pyagentd-edit-mode-map
  (pyagentd-keymap
   "C-c C-c" #'pyagentd-edit--finish
   "C-c C-k" #'pyagentd-edit--cancel)
  "Keymap of `pyagentd-edit-mode'.")

(define-minor-mode pyagentd-edit-mode
  "Minor mode of buffers in which a value is edited.

\\{pyagentd-edit-mode-map}"
  :lighter " Edit"
  :interactive nil
  (when pyagentd-edit-mode
    (setq header-line-format (plist-get pyagentd-edit--of :header))))

(put 'pyagentd-edit-mode 'permanent-local t)

(cl-defun pyagentd-edit (name text mode finish &key about key (word "save"))
  "Edit TEXT in a buffer called after NAME in MODE, a function; show and return it.
FINISH is called there with the text when it is finished, and with a
function that closes the buffer; it may call that later.  The header line
says what it is ABOUT, by default NAME, and in a WORD what finishing does.
What was begun with an equal KEY is shown as it is, and finished as now."
  (let* ((name (format "*edit: %s*" name))
         (buffer (get-buffer-create name))
         (begun (buffer-modified-p buffer))
         (about (string-replace "%" "%%" (or about (substring name 7 -1)))))
    (if (and begun (equal key (plist-get (buffer-local-value
                                          'pyagentd-edit--of buffer)
                                         :key)))
        (progn (pop-to-buffer buffer)
               (setq pyagentd-edit--of
                     (plist-put pyagentd-edit--of :finish finish)))
      (pop-to-buffer (if begun (generate-new-buffer name) buffer))
      (erase-buffer)
      (insert text)
      (goto-char (point-min))
      (funcall mode)
      (font-lock-mode)
      (setq buffer-undo-list nil
            pyagentd-edit--of
            (list :key key :finish finish :header
                  (format (substitute-command-keys
                           " %s   \\<pyagentd-edit-mode-map>\\[pyagentd-edit--finish] \
%s   \\[pyagentd-edit--cancel] cancel")
                          about word)))
      (set-buffer-modified-p nil)
      (pyagentd-edit-mode))
    (current-buffer)))

(defun pyagentd-edit--finish ()
  "Use the text in this buffer."
  (interactive nil pyagentd-edit-mode)
  (let ((buffer (current-buffer))
        (tick (buffer-chars-modified-tick)))
    (funcall (plist-get pyagentd-edit--of :finish)
             (buffer-substring-no-properties (point-min) (point-max))
             (lambda ()
               (when (buffer-live-p buffer)
                 (if (= tick (buffer-chars-modified-tick buffer))
                     (pyagentd-close buffer)
                   (message "Done; what you typed after that is still in %s"
                            (buffer-name buffer))))))))

(defun pyagentd-edit--cancel ()
  "Discard the edit."
  (interactive nil pyagentd-edit-mode)
  (when (or (not (buffer-modified-p)) (y-or-n-p "Discard the changes? "))
    (pyagentd-close (current-buffer))))

(defun pyagentd-close (buffer)
  "Kill BUFFER, if it is alive, and put its window back."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer (set-buffer-modified-p nil))
    (if-let ((window (get-buffer-window buffer t)))
        (quit-window t window)
      (kill-buffer buffer))))

;;;; What is shown over a text

(defun pyagentd-draw (beg end &rest properties)
  "Return a new overlay from BEG to END with PROPERTIES, a plist.
It goes with its text, and what is inserted at either end is not in it."
  (let ((overlay (make-overlay beg end nil t nil)))
    (overlay-put overlay 'evaporate t)
    (while properties
      (overlay-put overlay (pop properties) (pop properties)))
    overlay))

;;;; Programs

(defun pyagentd-run (name command then &optional coding timeout)
  "Run COMMAND, a list, in the background as a process NAME; return that.
THEN is called with its exit status and what it printed.  With CODING that
is decoded so (`binary' leaves bytes), and errors are not part of it.  After
TIMEOUT seconds it is ended; THEN gets nil and a text that says so."
  (unless (executable-find (car command))
    (signal 'file-missing (list "Searching for program" "No such file or directory"
                                (car command))))
  (let ((output (generate-new-buffer (format " *%s*" name)))
        (errors (and coding (generate-new-buffer (format " *%s errors*" name))))
        (late nil)
        process)
    (with-current-buffer output
      (buffer-disable-undo)
      (set-buffer-multibyte (not (eq coding 'binary))))
    (setq process
          (make-process
           :name name :command command :buffer output :coding coding
           :noquery t :connection-type 'pipe :stderr errors
           :sentinel
           (lambda (process _change)
             (unless (process-live-p process)
               (let ((text (with-current-buffer output (buffer-string))))
                 (kill-buffer output)
                 (when errors (kill-buffer errors))
                 (pyagentd-guarded name
                   (if late
                       (funcall then nil (format "no answer within %s s" timeout))
                     (funcall then (process-exit-status process) text))))))))
    (when timeout
      (run-at-time timeout nil (lambda ()
                                 (when (process-live-p process)
                                   (setq late t)
                                   (delete-process process)))))
    process))

;;;; Show a difference

(defun pyagentd-show-diff (name diff &optional display)
  "Show DIFF, a text, in a buffer called NAME, or that buffer, and return it.
It is displayed with DISPLAY, a function, by default `display-buffer'."
  (with-current-buffer (get-buffer-create name)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert diff "\n"))
    (diff-mode)
    (goto-char (point-min))
    (set-buffer-modified-p nil)
    (setq buffer-read-only t)
    (funcall (or display #'display-buffer) (current-buffer))
    (current-buffer)))

;;;; Values from the wire

(defun pyagentd-symbol (value)
  "Return VALUE, a symbol or a string, as a symbol; nil stays nil."
  (if (stringp value) (intern value) value))

;;;; Environment and key of a run

;; A run uses the environment and the key of whoever started it, not those
;; of the daemon.  They go over the socket with the request and are held
;; in memory only.

(defcustom pyagentd-environment
  '("PYAGENTD_BACKEND" "ANTHROPIC_BASE_URL" "ANTHROPIC_API_KEY" "OPENAI_API_KEY"
    "DEEPSEEK_API_KEY" "OPENROUTER_API_KEY" "GROQ_API_KEY" "MISTRAL_API_KEY"
    "XAI_API_KEY" "GEMINI_API_KEY" "AWS_BEARER_TOKEN_BEDROCK" "PATH")
  "Environment variables to pass to runs that you start in this buffer.
A key is sent only to the provider whose variable it is in."
  :type '(repeat string)
  :group 'pyagentd)

(defcustom pyagentd-api-key-host "api.anthropic.com"
  "Host under which auth-source finds Anthropic's API key, with user \"apikey\".
nil means do not look there."
  :type '(choice string (const :tag "Do not look" nil))
  :group 'pyagentd)

(defcustom pyagentd-keys nil
  "Where API keys are that no environment variable holds.
An alist of the variable that a backend's `key_env' names and a host: the
key is what gptel has for that host, where gptel is loaded, or else what
auth-source has for it and the user \"apikey\".  It is sent as if the
variable had it.  The entry of the menu for gptel's backends fills this."
  :type '(alist :key-type (string :tag "Variable")
                :value-type (string :tag "Host"))
  :group 'pyagentd)

(defcustom pyagentd-host-environment nil
  "Environment variables to pass to runs on `pyagentd-host'.
nil, the default, means that the environment and the keys there hold."
  :type '(repeat string)
  :group 'pyagentd)

(defun pyagentd-env-variables ()
  "Return the plist of environment variables to send."
  (let (plist)
    (dolist (name (if pyagentd-host pyagentd-host-environment
                    pyagentd-environment))
      (when-let ((value (getenv name)))
        (setq plist (plist-put plist (intern (concat ":" name)) value))))
    (unless pyagentd-host
      (pcase-dolist (`(,name . ,host) pyagentd-keys)
        (when-let ((value (or (getenv name) (pyagentd-env--gptel host)
                              (pyagentd-env--secret host))))
          (setq plist (plist-put plist (intern (concat ":" name)) value))))
      (unless (or (null pyagentd-api-key-host)
                  (equal (getenv "PYAGENTD_BACKEND") "offline")
                  (plist-get plist :ANTHROPIC_API_KEY))
        (when-let ((value (pyagentd-env--secret pyagentd-api-key-host)))
          (setq plist (plist-put plist :ANTHROPIC_API_KEY value)))))
    plist))

(defun pyagentd-env--gptel (host)
  "Return the key that gptel has for HOST, or nil."
  (when-let* (((fboundp 'gptel--get-api-key))
              (backend (seq-find (lambda (backend)
                                   (and (equal (gptel-backend-host backend)
                                               host)
                                        (gptel-backend-key backend)))
                                 (mapcar #'cdr (bound-and-true-p
                                                gptel--known-backends)))))
    ;; A function that finds it looks at the backend in use.
    (defvar gptel-backend)
    (let* ((gptel-backend backend)
           (key (ignore-errors
                  (gptel--get-api-key (gptel-backend-key backend)))))
      (and (stringp key) (not (string-empty-p key)) key))))

(defun pyagentd-env--secret (host)
  "Return what auth-source has for HOST and the user \"apikey\", or nil."
  (require 'auth-source)
  (when-let* ((entry (car (auth-source-search :host host :user "apikey"
                                              :max 1)))
              (secret (plist-get entry :secret)))
    (if (functionp secret) (funcall secret) secret)))

(defun pyagentd-env ()
  "Return the argument that says with which environment and keys a run goes on."
  (list :env (pyagentd-env-variables)))

(defconst pyagentd-named-profiles '("open" "standard" "locked")
  "Names of the permissions that come with the daemon.")

;;;; Text that the daemon makes

(defconst pyagentd-text-faces
  '(("strong" . bold) ("title" . pyagentd-session-title)
    ("agent" . font-lock-type-face) ("dim" . shadow)
    ("detail" . pyagentd-detail) ("good" . success) ("warn" . warning)
    ("bad" . error) ("heading" . pyagentd-heading)
    ("code" . font-lock-string-face) ("added" . pyagentd-added)
    ("removed" . pyagentd-removed))
  "The face of each kind of text that the daemon names.")

(defface pyagentd-match '((t :inherit match))
  "Face of what was searched for in results."
  :group 'pyagentd)

(defun pyagentd-text (part)
  "Return PART, a string or a plist with :text and :face, as text."
  (if (stringp part) part
    (let ((face (cdr (assoc (plist-get part :face) pyagentd-text-faces)))
          (text (or (plist-get part :text) "")))
      (when-let ((matches (plist-get part :matches)))
        (setq text (copy-sequence text))
        (pcase-dolist (`(,beg ,end) matches)
          (when (<= 0 beg end (length text))
            (put-text-property beg end 'face 'pyagentd-match text))))
      (cond ((equal (plist-get part :face) "lisp")
             (pyagentd-text--program text))
            ((equal (plist-get part :face) "output")
             (require 'ansi-color)
             (let ((ansi-color-context nil)) (ansi-color-apply text)))
            (face (propertize text 'face face))
            (t text)))))

(declare-function clojure-mode "ext:clojure-mode")

(defun pyagentd-text--program (text)
  "Return TEXT, a program, with the faces of a Lisp."
  (with-temp-buffer
    (insert text)
    (delay-mode-hooks
      (if (fboundp 'clojure-mode)
          (clojure-mode)
        (lisp-data-mode)))
    (font-lock-add-keywords
     nil
     '((":[[:alpha:]][-[:alnum:]_?!*+/.]*" . font-lock-constant-face)
       ("\\_<\\(?:ctx\\|memory\\)/[^][ \t\n(){},]+"
        . font-lock-variable-name-face)
       ("(\\([[:alpha:]][-[:alnum:]/?!*]*\\|->>?\\)"
        1 font-lock-keyword-face)))
    (font-lock-ensure)
    (buffer-string)))

(provide 'pyagentd-core)
;;; pyagentd-core.el ends here

;;; pyagentd-core.el --- Options, faces, errors and helpers of all files -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Shared by all other files: the customization group, faces, errors, log,
;; JSON, YAML, helpers, and the environment that is sent to the daemon.

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
  "Parse the JSON in TEXT; objects are plists with keywords, arrays vectors.
False is `:json-false', null is nil, as functions of tools expect."
  (json-parse-string text :object-type 'plist :array-type 'array
                     :null-object nil :false-object :json-false))

(defun pyagentd-json-of (plist)
  "Return PLIST as a JSON object.
Its values are strings, numbers, t, nil (null), `:json-false', plists and
vectors of these."
  (if (null plist) "{}"
    (json-serialize plist :null-object nil :false-object :json-false)))

;;;; Read the metadata of a session

;; Reads scope-plan.yml, branch-metadata.yml and the front matter of
;; preset.md without the daemon.  It supports the subset of YAML that the
;; daemon and its presets write: keys with strings, numbers, lists and
;; nested keys.  Anything else signals `pyagentd-yaml-unknown'; then the
;; caller should ask the daemon, which supports all of YAML.

(define-error 'pyagentd-yaml-unknown "YAML that only the daemon reads")

(defun pyagentd-yaml--unknown (line)
  "Signal `pyagentd-yaml-unknown' for LINE, which only the daemon can parse."
  (signal 'pyagentd-yaml-unknown (list line)))

(defun pyagentd-yaml-text (file)
  "Return the text of FILE, nil if it does not exist.
Signal `pyagentd-yaml-unknown' if it is no YAML that this file can parse."
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
  "Split TEXT, of a preset, into (FRONT-MATTER . BODY)."
  (if (string-match "\\`---\n\\(\\(?:.*\n\\)*?\\)---\\(?:\n\\|\\'\\)" text)
      (cons (match-string 1 text) (substring text (match-end 0)))
    (pyagentd-yaml--unknown (car (split-string text "\n")))))

(defun pyagentd-yaml-preset (text)
  "Return the front matter of TEXT, of a preset, as a plist.
The value of :tools is a list of names."
  (let* ((front (pyagentd-yaml-read (car (pyagentd-yaml-front text))))
         (tools (plist-get front :tools)))
    (cond ((stringp tools)
           (plist-put front :tools (split-string tools "[ ,]+" t)))
          ((seq-every-p #'stringp (ensure-list tools)) front)
          (t (pyagentd-yaml--unknown "tools:")))))

(defun pyagentd-yaml-read (text &optional plain)
  "Return the keys of TEXT as a plist with keywords in kebab-case.
Values are strings, numbers, t, nil, lists and plists.  With PLAIN, scalars
stay strings as written, and keys with lists or nested keys are left out."
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
  "Parse the keys at INDENT from LINES; return (PLIST . REST).
PLAIN is as for `pyagentd-yaml-read'."
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
  "Parse the value below a key at INDENT from LINES; return (VALUE . REST).
PLAIN is as for `pyagentd-yaml-read'."
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
  "Return the value of TEXT, the rest of a line after a key or a dash.
PLAIN is as for `pyagentd-yaml-read'."
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

;; Error conditions:
;;
;;   pyagentd-error
;;   ├── pyagentd-remote-error        the daemon refused a call; data (CODE MESSAGE . PLIST)
;;   └── pyagentd-connection-error    a call got no reply
;;       ├── pyagentd-disconnected    the connection ended before the reply
;;       ├── pyagentd-timeout         no reply in time; the call may still take effect
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
  "Version of this package, and of the server that fits it.")

(defcustom pyagentd-command nil
  "Program and first arguments of the server; nil means search for it.
It is searched for on the path, then in `pyagentd-server-directory',
where \\[pyagentd-install-server] installs it.  To start the daemon
the words \"serve\" and \"--detach\" are appended."
  :type '(choice (const :tag "Search for it" nil) (repeat string))
  :risky t)

(defcustom pyagentd-host nil
  "Name for ssh of the machine whose daemon this Emacs uses; nil means this one.
Sessions, files, tools and keys are those of that machine.  The command
`pyagentd-use-host' changes it while Emacs runs."
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
  "Alist of replacements for characters that a terminal cannot display.
Each is one column wide, so that columns stay aligned.")

(defun pyagentd-plain-characters ()
  "Replace in this buffer's display the characters that this terminal lacks."
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
  "Return a message for the user about ERR, a list (SYMBOL . DATA)."
  (pcase err
    (`(pyagentd-remote-error ,_code ,message . ,plist)
     (if-let ((hint (plist-get plist :hint)))
         (format "%s (%s)" message hint)
       (format "%s" message)))
    ;; The data may be an operation's name, which tells the user nothing.
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
  "Call SHOW with the text of `pyagentd-error-text' if the error is ours.
DATA, CONTEXT and CALLER are as for `command-error-function'.  For errors of
this package's commands, *Messages* names the package, not the function."
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
          ;; Restore the echo area, such as the prompt of a command: Emacs
          ;; clears it even for an inhibited message.
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
  "Evaluate BODY; log an error in it as a failure of WHAT.
Only for entry points: hooks, timers, filters and event handlers."
  (declare (indent 1) (debug t))
  (let ((err (make-symbol "err")))
    `(condition-case-unless-debug ,err
         (progn ,@body)
       (error (pyagentd-log 'error "%s: %s" ,what (pyagentd-error-text ,err))))))

(defun pyagentd-run-functions (hook &rest args)
  "Call the functions of HOOK, including those of users, with ARGS.
An error in one of them is logged and does not stop the others."
  (run-hook-wrapped hook
                    (lambda (function)
                      (pyagentd-guarded hook (apply function args))
                      nil)))

(defmacro pyagentd-with-live-buffer (buffer &rest body)
  "Evaluate BODY in BUFFER if it is still alive."
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
  "Define the permanently buffer-local variable NAME.
VALUE and DOCSTRING are as for `defvar-local'."
  (declare (indent defun) (doc-string 3) (debug defvar-local))
  `(progn (defvar-local ,name ,value ,docstring)
          (put ',name 'permanent-local t)))

;;;; Keys

(defun pyagentd-keymap (&rest keys)
  "Return a keymap with KEYS, alternating keys and commands.
A key is a string as for `kbd', or a vector."
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
CATEGORY a symbol; ANNOTATE is called with a value and returns its
annotation.  With LOOSE, other input is allowed and returned."
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
  "Return a completion table that calls the function ROWS for its candidates.
ROWS returns a list of (TEXT . SUMMARY), SUMMARY being the annotation or
nil.  It is called each time, so a reply of the daemon that arrives during
completion counts.  CATEGORY is a symbol."
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
  "Return TEXT, any object, as one line of at most MOST columns."
  (let ((line (replace-regexp-in-string "[\n\t ]+" " "
                                        (string-trim (format "%s" text)))))
    (if most (truncate-string-to-width line most nil nil "…") line)))

(defun pyagentd-count (number noun)
  "Return NUMBER and NOUN as text, with the plural where needed."
  (cond ((= number 1) (concat "1 " noun))
        ((string-suffix-p "ch" noun) (format "%d %ses" number noun))
        (t (format "%d %ss" number noun))))

;;;; Edit a text in a buffer

;; The user edits long values, such as a system prompt, in a buffer.  If the
;; value is rejected, its text stays there.

(pyagentd-deflocal pyagentd-edit--of nil
  "The edit in this buffer, a plist of :key, :header and :finish.")

(defvar pyagentd-edit-mode-map
  (pyagentd-keymap
   "C-c C-c" #'pyagentd-edit--finish
   "C-c C-k" #'pyagentd-edit--cancel)
  "Keymap of `pyagentd-edit-mode'.")

(define-minor-mode pyagentd-edit-mode
  "Minor mode for editing a value in a buffer.

\\{pyagentd-edit-mode-map}"
  :lighter " Edit"
  :interactive nil
  (when pyagentd-edit-mode
    (setq header-line-format (plist-get pyagentd-edit--of :header))))

(put 'pyagentd-edit-mode 'permanent-local t)

(cl-defun pyagentd-edit (name text mode finish &key about key (word "save"))
  "Edit TEXT in a buffer named after NAME, in MODE, a function; return the buffer.
On finishing, FINISH is called there with the text and a function that
closes the buffer, which it may call later.  The header line shows ABOUT,
by default NAME, and WORD, the verb for finishing.  An unfinished edit with
an equal KEY is resumed, with the new FINISH."
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
  "Finish the edit, with the text in this buffer."
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
  "Kill BUFFER, if it is alive, and restore what its window showed before."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer (set-buffer-modified-p nil))
    (if-let ((window (get-buffer-window buffer t)))
        (quit-window t window)
      (kill-buffer buffer))))

;;;; Overlays

(defun pyagentd-draw (beg end &rest properties)
  "Return a new overlay from BEG to END with PROPERTIES, a plist.
It is deleted with its text; text inserted at either end stays outside."
  (let ((overlay (make-overlay beg end nil t nil)))
    (overlay-put overlay 'evaporate t)
    (while properties
      (overlay-put overlay (pop properties) (pop properties)))
    overlay))

;;;; Programs

(defun pyagentd-run (name command then &optional coding timeout)
  "Run COMMAND, a list, as a background process NAME; return the process.
THEN is called with its exit status and output.  With CODING the output is
decoded with that (`binary' leaves bytes) and excludes stderr.  After
TIMEOUT seconds the process is killed; THEN gets nil and an error message."
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
  "Show DIFF, a text, in the buffer NAME, a buffer or its name; return the buffer.
DISPLAY, a function, shows the buffer; the default is `display-buffer'."
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

;; A run uses the environment and key of the Emacs that started it, not
;; those of the daemon.  The request sends them over the socket, and the
;; daemon holds them in memory only.

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
  "Hosts whose API keys are not in environment variables.
An alist of the variable that a backend's `key_env' names and a host.  The
key is gptel's for that host, if gptel is loaded, or else auth-source's for
that host and the user \"apikey\".  It is sent as if the variable had it.
The menu's entry for gptel's backends fills this."
  :type '(alist :key-type (string :tag "Variable")
                :value-type (string :tag "Host"))
  :group 'pyagentd)

(defcustom pyagentd-host-environment nil
  "Environment variables to pass to runs on `pyagentd-host'.
nil, the default, means to use the environment and keys of that host."
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
    ;; The key may be a function that uses `gptel-backend'.
    (defvar gptel-backend)
    (let* ((gptel-backend backend)
           (key (ignore-errors
                  (gptel--get-api-key (gptel-backend-key backend)))))
      (and (stringp key) (not (string-empty-p key)) key))))

(defun pyagentd-env--secret (host)
  "Return the secret of HOST and user \"apikey\" in auth-source, or nil."
  (require 'auth-source)
  (when-let* ((entry (car (auth-source-search :host host :user "apikey"
                                              :max 1)))
              (secret (plist-get entry :secret)))
    (if (functionp secret) (funcall secret) secret)))

(defun pyagentd-env ()
  "Return the argument :env with the environment and keys for a run."
  (list :env (pyagentd-env-variables)))

;;;; Text from the daemon

(defconst pyagentd-text-faces
  '(("strong" . bold) ("title" . pyagentd-session-title)
    ("agent" . font-lock-type-face) ("dim" . shadow)
    ("detail" . pyagentd-detail) ("good" . success) ("warn" . warning)
    ("bad" . error) ("heading" . pyagentd-heading)
    ("code" . font-lock-string-face) ("added" . pyagentd-added)
    ("removed" . pyagentd-removed))
  "Alist from the daemon's names of faces to faces.")

(defface pyagentd-match '((t :inherit match))
  "Face of matches in search results."
  :group 'pyagentd)

(defun pyagentd-text (part)
  "Return PART, a string or a plist with :text and :face, as a propertized string."
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
  "Return TEXT, a program, fontified as Lisp."
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

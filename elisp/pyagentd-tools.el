;;; pyagentd-tools.el --- Tools that run in Emacs -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Tools that models call in this Emacs: code navigation, Lisp, compiling; and
;; hooks that are Emacs Lisp functions.

;;; Code:

(require 'json)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-buffers)
(require 'pyagentd-add)

;;;; Files and places for tools

;; A tool uses the buffer that visits a file.  If there is none, the file is
;; visited temporarily, without local variables, hooks and questions.  Such
;; a file must be local, regular and not too large.

(defvar tramp-mode)

(defconst pyagentd-tools-file-most 60
  "Maximum number of places in the result of a tool.")

(defconst pyagentd-tools-file-largest (* 5 1024 1024)
  "Bytes of the largest file that is visited for a tool.")

(defun pyagentd-tools-file-in (file function)
  "Return the value of FUNCTION, called in a buffer that visits FILE.
File buffers that this creates are killed afterwards."
  (let ((before (buffer-list))
        (inhibit-interaction t)
        (find-file-hook nil))
    (unwind-protect
        (condition-case nil
            (with-current-buffer (pyagentd-tools-file--buffer file)
              (let ((tramp-mode (and (bound-and-true-p tramp-mode)
                                     (file-remote-p default-directory))))
                (save-excursion
                  (save-restriction
                    (widen)
                    (funcall function)))))
          (inhibited-interaction
           (error "Emacs would have to ask the user something for this, such \
as for a TAGS file; use Grep")))
      (dolist (buffer (buffer-list))
        (unless (or (memq buffer before) (not (buffer-file-name buffer))
                    (buffer-modified-p buffer))
          (kill-buffer buffer))))))

(defun pyagentd-tools-file--buffer (file)
  "Return the buffer that visits FILE; visit it if there is none.
Do not visit a remote file, or one that may block Emacs."
  (or (let ((file-name-handler-alist nil))
        (find-buffer-visiting file))
      (and (file-remote-p file)
           (error "%s is on another machine and not open; ask the user to \
open it" file))
      (let ((file-name-handler-alist nil))
        (cond ((not (file-exists-p file)) (error "There is no file %s" file))
              ((not (file-regular-p file)) (error "%s is not a file" file))
              ((not (file-readable-p file)) (error "%s is unreadable" file))
              ((> (file-attribute-size (file-attributes file))
                  pyagentd-tools-file-largest)
               (error "%s is larger than %s; use Grep" file
                      (file-size-human-readable
                       pyagentd-tools-file-largest))))
        ;; Run none of the user's code.  In a temporary buffer these
        ;; bindings are global, unlike in one with local values.
        (with-temp-buffer
          (let ((delay-mode-hooks t)
                (find-file-hook nil)
                (enable-local-variables nil)
                (enable-dir-local-variables nil)
                (inhibit-message t)
                (magic-mode-alist nil)
                (magic-fallback-mode-alist nil)
                (auto-mode-alist
                 ;; These run programs or libraries to decode a file.
                 (seq-remove (pcase-lambda (`(,_ . ,mode))
                               (memq (if (consp mode) (car mode) mode)
                                     '(doc-view-mode doc-view-mode-maybe
                                       pdf-view-mode archive-mode tar-mode
                                       image-mode)))
                             auto-mode-alist)))
            (find-file-noselect file t))))))

(defun pyagentd-tools-file-places (places none)
  "Return PLACES as the result of a tool, or the text NONE if there are none."
  (if (null places) none
    (list :places (vconcat (seq-take places pyagentd-tools-file-most))
          :text (if (> (length places) pyagentd-tools-file-most)
                    (format "%d places, of these the first %d:"
                            (length places) pyagentd-tools-file-most)
                  ""))))

;;;; Emacs Lisp functions as tools

;; `pyagentd-make-tool' takes the arguments of `gptel-make-tool', so that
;; definitions written for gptel work unchanged.  A preset lists them among
;; its tools: "emacs" for all, "emacs:NAME" for one or for a category.
;;
;; The daemon validates a call against the definition, checks permissions,
;; asks the user if necessary and audits the call before Emacs runs the
;; function.

(cl-defstruct (pyagentd-tool
               (:constructor nil)
               (:constructor pyagentd-tool--make
                             (&key function name description args async
                                   (category "misc") confirm (include t)
                                   timeout &allow-other-keys))
               (:copier nil))
  "A function that agents may call; see `pyagentd-make-tool'."
  function name description args async category confirm include timeout)

(defvar pyagentd-tools nil
  "Alist of (NAME . TOOL), the latest first.")

(defvar pyagentd-tools--running nil
  "Alist from ids of calls to handles that stop them.
A handle is a process, a timer or a function.")

(defvar pyagentd-tools-branch nil
  "Directory of the branch whose tool runs, while its function is called.")

;;;###autoload
(defun pyagentd-make-tool (&rest slots)
  "Offer a function to the agents of sessions that this Emacs shows.
SLOTS are those of `gptel-make-tool':

:name         its name for the model, in snake_case
:function     the function; a nested or sequence argument comes as a plist
              or vector, false as `:json-false', an omitted argument as nil
:description  what it does and returns, for the model
:args         a list of plists, one for each argument in their order, with
              :name, :type (a symbol of JSON Schema) and :description, and
              maybe :optional, :enum (a vector), :items, :properties,
              :required and other keys of JSON Schema
:async        non-nil means that the function gets a callback for the result
              as its first argument.  If it returns a process, a timer or a
              function, that is killed, canceled or called when the call is
              stopped
:category     a name for several tools, \"misc\" by default
:confirm      non-nil asks a human each time unless a rule allows the call;
              a function is called with the arguments and returns whether to
              ask; the symbol `always' asks whatever rules say
:include      accepted; results are always part of the conversation

Further keys, which gptel does not have: :timeout is a number of seconds.
An argument with :path, \"read\" or \"write\", is the name of a file; the
daemon checks whether the agent may access it, and the function gets its
true name.  One with :command is a command line, checked like those of
Bash, but not confined.

A tool of the same name is replaced.  Return the tool."
  (let* ((tool (apply #'pyagentd-tool--make slots))
         (name (pyagentd-tool-name tool)))
    (unless (and (stringp name) (functionp (pyagentd-tool-function tool)))
      (error "A tool needs a :name and a :function"))
    (setq pyagentd-tools (cons (cons name tool)
                               (assoc-delete-all name pyagentd-tools)))
    (pyagentd-offer)
    tool))

(defun pyagentd-remove-tool (name)
  "Stop offering the tool NAME."
  (setq pyagentd-tools (assoc-delete-all name pyagentd-tools))
  (pyagentd-offer))

(defun pyagentd-tools--definitions ()
  "Return all tools for the daemon, as JSON."
  (let ((json-false :json-false))
    (json-encode
     (vconcat
      (mapcar
       (pcase-lambda (`(,name . ,tool))
         (let ((confirm (pyagentd-tool-confirm tool)))
           (pyagentd-tools--json
            (list :name name
                  :description (pyagentd-tool-description tool)
                  :category (format "%s" (or (pyagentd-tool-category tool) "misc"))
                  :args (vconcat (pyagentd-tool-args tool))
                  :confirm (cond ((memq confirm '(nil t always)) confirm)
                                 ((functionp confirm) 'function)
                                 (t t))
                  :timeout (pyagentd-tool-timeout tool)))))
       (reverse pyagentd-tools))))))

(defun pyagentd-tools--json (value &optional key)
  "Convert VALUE, part of a definition at KEY, for `json-encode'."
  (cond ((and (null value) (eq key :properties)) (make-hash-table))
        ((and (null value) (memq key '(:required :enum))) [])
        ((null value) :json-false)
        ((memq value '(t :json-false :json-null :null)) value)
        ((symbolp value) (symbol-name value))
        ((vectorp value) (vconcat (mapcar #'pyagentd-tools--json value)))
        ((and (consp value) (keywordp (car value)))
         (cl-loop for (name item) on value by #'cddr
                  collect (cons (substring (symbol-name name) 1)
                                (pyagentd-tools--json item name))))
        ((consp value) (vconcat (mapcar #'pyagentd-tools--json value)))
        (t value)))

;;;; Calls

(defun pyagentd-tools--where (facts function)
  "Call FUNCTION with the tool and the argument values of the call in FACTS.
It runs in the buffer of the branch, if any, and in the root of its
project.  The values are in the order of the tool's arguments."
  (let* ((name (plist-get facts :tool))
         (tool (or (cdr (assoc name pyagentd-tools))
                   (error "There is no tool %s here any more" name)))
         (values (mapcar (lambda (arg)
                           (plist-get (plist-get facts :args)
                                      (intern (concat ":" (plist-get arg :name)))))
                         (pyagentd-tool-args tool)))
         (branch (plist-get facts :branch))
         (buffer (pyagentd-place-buffer branch)))
    (with-temp-buffer
      (with-current-buffer (or buffer (current-buffer))
        (let ((default-directory (file-name-as-directory
                                  (plist-get facts :root)))
              (pyagentd-tools-branch branch))
          (funcall function tool values))))))

(defun pyagentd-tools--on-call (facts id reply)
  "Run the tool call in FACTS, request ID, and pass the result to REPLY."
  (let* ((replied nil)
         (reply (lambda (value)
                  (setq replied t)
                  (setf (alist-get id pyagentd-tools--running
                                   nil t #'equal)
                        nil)
                  (funcall reply (pyagentd-tools--result value)))))
    (pyagentd-tools--where
     facts
     (lambda (tool values)
       (condition-case-unless-debug err
           (let* ((inhibit-quit nil)
                  (value (apply (pyagentd-tool-function tool)
                                (if (pyagentd-tool-async tool)
                                    (cons reply values)
                                  values))))
             (cond ((not (pyagentd-tool-async tool)) (funcall reply value))
                   ;; A handle that stops the call.
                   ((and (not replied)
                         (or (processp value) (timerp value)
                             (and (functionp value) (not (symbolp value)))))
                    (push (cons id value) pyagentd-tools--running))))
         (quit (funcall reply '(:error t :text "The user quit it.")))
         (error (funcall reply (list :error t
                                     :text (error-message-string err)))))))))

(defun pyagentd-tools--result (value)
  "Convert VALUE, the result of a tool, to a reply, a plist."
  (cond ((and (consp value) (memq (car value) '(:text :places :error))) value)
        ((stringp value)
         (list :text (replace-regexp-in-string
                      "[\x3fff80-\x3fffff]" "�"
                      (substring-no-properties value))))
        (t (list :text (prin1-to-string value)))))

(defun pyagentd-tools--on-stop (_facts id _reply)
  "Stop the running call with request ID."
  (when-let ((handle (cdr (assoc id pyagentd-tools--running))))
    (setf (alist-get id pyagentd-tools--running nil t #'equal) nil)
    (cond ((processp handle) (delete-process handle))
          ((timerp handle) (cancel-timer handle))
          (t (funcall handle)))))

(pyagentd-offer-register "call" #'pyagentd-tools--on-call)
(pyagentd-offer-register
 "confirm"                              ; whether to ask a human
 (lambda (facts _id reply)
   (pyagentd-tools--where
    facts
    (lambda (tool values)
      (funcall reply (list :confirm
                           (if (apply (pyagentd-tool-confirm tool) values)
                               t :json-false)))))))
(pyagentd-offer-register "stop" #'pyagentd-tools--on-stop)

;;;; Code navigation for agents

(declare-function xref-find-backend "xref")
(declare-function xref-backend-definitions "xref")
(declare-function xref-backend-references "xref")
(declare-function xref-item-summary "xref" t t)
(declare-function xref-item-location "xref" t t)
(declare-function xref-location-marker "xref")
(declare-function xref-location-line "xref")
(declare-function xref-location-group "xref")
(declare-function imenu--make-index-alist "imenu")
(defvar project-find-functions)
(defvar project-vc-external-roots-function)

(defun pyagentd-tools-code--xrefs (find identifier file)
  "Return the places that FIND, an xref function, returns for IDENTIFIER in FILE."
  (require 'xref)
  (require 'project)
  (let* ((root default-directory)
         ;; Without a project, the workspace counts as one.
         (project-find-functions
          (append project-find-functions
                  (list (lambda (_directory) (cons 'transient root))))))
    (pyagentd-tools-file-in
     file
     (lambda ()
       (goto-char (point-min))
       (let ((case-fold-search nil))    ; a language server uses point
         (when (re-search-forward
                (concat
                 (if (string-match-p "\\`\\(?:\\sw\\|\\s_\\)" identifier)
                     "\\_<" "")
                 (regexp-quote identifier)
                 (if (string-match-p "\\(?:\\sw\\|\\s_\\)\\'" identifier)
                     "\\_>" ""))
                nil t)
           (goto-char (match-beginning 0))))
       (let ((backend (xref-find-backend))
             (project-vc-external-roots-function #'ignore)
             (inhibit-message t))
         (unless backend
           (error "Emacs finds no definitions in %s (no tags, LSP or other backend)" file))
         (pyagentd-tools-file-places
          (delq nil (mapcar #'pyagentd-tools-code--xref
                            (seq-take
                             ;; The project should not enter the user's list.
                             (cl-letf (((symbol-function
                                         'project-remember-project)
                                        #'ignore))
                               (funcall find backend identifier))
                             (1+ pyagentd-tools-file-most))))
          (format "%s knows nothing of %s; use Grep" backend identifier)))))))

(defun pyagentd-tools-code--xref (xref)
  "Return XREF as a place, or nil."
  (let* ((location (xref-item-location xref))
         (line (ignore-errors (xref-location-line location)))
         (group (ignore-errors (xref-location-group location))))
    (if (and line group (file-name-absolute-p group))
        (list :file group :line line
              :text (string-trim (substring-no-properties
                                  (xref-item-summary xref))))
      (when-let ((marker (ignore-errors (xref-location-marker location))))
        (with-current-buffer (marker-buffer marker)
          (when buffer-file-name
            (save-excursion
              (goto-char marker)
              (list :file buffer-file-name :line (line-number-at-pos nil t)
                    :text (string-trim (buffer-substring-no-properties
                                        (line-beginning-position)
                                        (line-end-position)))))))))))

(defun pyagentd-tools-code--outline (file)
  "Return the definitions in FILE, by imenu."
  (require 'imenu)
  (pyagentd-tools-file-in
   file
   (lambda ()
     (let ((places (pyagentd-tools-code--index
                    (imenu--make-index-alist t) "")))
       (pyagentd-tools-file-places
        (sort places (lambda (a b) (< (plist-get a :line) (plist-get b :line))))
        (format "%s has no outline in %s" file major-mode))))))

(defun pyagentd-tools-code--index (index prefix)
  "Return the entries of INDEX, an imenu alist, as places named with PREFIX."
  (cl-loop for (name . rest) in index
           unless (equal name "*Rescan*")
           for place = (if (consp rest) (car rest) rest) ; a function may follow
           append (cond
                   ((or (markerp place) (natnump place))
                    (list (list :file buffer-file-name
                                :line (line-number-at-pos place t)
                                :text (concat prefix
                                              (substring-no-properties
                                               name)))))
                   ((consp place)
                    (pyagentd-tools-code--index
                     rest (concat prefix name " / "))))))

(defun pyagentd-tools-code--diagnostics (file)
  "Return the diagnostics of FILE, or of open files below a directory.
FILE is a file or directory; nil means the project."
  (let* ((file-name-handler-alist nil)
         (root (expand-file-name (or file default-directory)))
         (none "No file there is open with flymake or flycheck on; nothing is known.")
         places)
    (dolist (buffer (buffer-list))
      (with-current-buffer buffer
        (when (and buffer-file-name
                   (pyagentd-diagnostics-on-p)
                   (let ((name (expand-file-name (or buffer-file-truename
                                                     buffer-file-name))))
                     (or (equal name root)
                         (string-prefix-p (file-name-as-directory root) name))))
          (setq none "No diagnostics.")
          (dolist (found (pyagentd-diagnostics))
            (push (list :file buffer-file-name
                        :line (plist-get found :line)
                        :text (format "%s: %s" (plist-get found :level)
                                      (plist-get found :text)))
                  places)))))
    (pyagentd-tools-file-places (nreverse places) none)))

(defconst pyagentd-tools-code--args
  '((:name "identifier" :type string
           :description "The name, as it is written there")
    (:name "file" :type string :path "read"
           :description "A file in which it occurs"))
  "Arguments of tools that look up a name.")

(pyagentd-make-tool
 :name "emacs_definitions" :category "code"
 :function (lambda (identifier file)
             (pyagentd-tools-code--xrefs #'xref-backend-definitions
                                         identifier file))
 :description "Where a name is defined, by what the user's Emacs has for \
the language (a language server, tags)."
 :args pyagentd-tools-code--args)

(pyagentd-make-tool
 :name "emacs_references" :category "code"
 :function (lambda (identifier file)
             (pyagentd-tools-code--xrefs #'xref-backend-references
                                         identifier file))
 :description "Where a name is used, by what the user's Emacs has for the \
language."
 :args pyagentd-tools-code--args)

(pyagentd-make-tool
 :name "emacs_outline" :category "code"
 :function #'pyagentd-tools-code--outline
 :description "What a file defines, with lines."
 :args '((:name "file" :type string :path "read"
                :description "The file")))

(pyagentd-make-tool
 :name "emacs_diagnostics" :category "code"
 :function #'pyagentd-tools-code--diagnostics
 :description "Errors and warnings that flymake or flycheck shows for a \
file or for all open files below a directory (default: the workspace)."
 :args '((:name "file" :type string :optional t :path "read"
                :description "A file or directory")))

;;;; Emacs Lisp for agents

(defun pyagentd-tools-lisp--describe (name)
  "Return the documentation of the symbol NAME, or the names of similar ones.
The values of variables are left out; they may be secret."
  (let* ((symbol (intern-soft name))
         (variable (documentation-property symbol 'variable-documentation))
         (told (lambda (kind what documentation)
                 (format "%s %S\n%s" kind what
                         (or documentation "Not documented."))))
         (found
          (delq nil
                (list
                 (and symbol (fboundp symbol)
                      (funcall told (cond ((macrop symbol) "Macro")
                                          ((commandp symbol) "Command")
                                          (t "Function"))
                               (cons symbol (help-function-arglist symbol t))
                               (ignore-errors (documentation symbol))))
                 (and (or variable (boundp symbol))
                      symbol (not (keywordp symbol))
                      (funcall told (if (custom-variable-p symbol) "User option"
                                      "Variable")
                               symbol variable))
                 (and symbol (facep symbol)
                      (funcall told "Face" symbol
                               (documentation-property
                                symbol 'face-documentation))))))
         (near (seq-take (sort (apropos-internal (regexp-quote name))
                               #'string-lessp)
                         40)))
    (cond (found (string-join found "\n\n"))
          (near (format "There is no %s here. Symbols with it in their names: %s"
                        name (mapconcat #'symbol-name near ", ")))
          (t (format "There is no %s here." name)))))

(defun pyagentd-tools-lisp--eval (expression)
  "Evaluate EXPRESSION, one form; return its printed output and its value."
  (let* ((read (read-from-string expression))
         (rest (string-trim (substring expression (cdr read))))
         (value nil)
         (printed (with-output-to-string
                    (unless (string-empty-p rest)
                      (error "One form at a time; wrap them in progn"))
                    (setq value (eval (car read) t)))))
    (let ((print-length 1000) (print-level 20))
      (concat (unless (string-empty-p printed)
                (concat "Printed:\n" printed "\n"))
              "Value: " (prin1-to-string value)))))

(pyagentd-make-tool
 :name "emacs_describe" :category "lisp"
 :function #'pyagentd-tools-lisp--describe
 :description "Documentation of an Emacs Lisp function, variable or face \
in the user's Emacs, or symbols with a part of a name."
 :args '((:name "name" :type string :description "The symbol's name")))

(pyagentd-make-tool
 :name "emacs_eval" :category "lisp" :confirm 'always
 :function #'pyagentd-tools-lisp--eval
 :description "Evaluate one Emacs Lisp form in the user's Emacs; the user \
sees it first. Returns its value and what it printed."
 :args '((:name "expression" :type string
                :description "The form")))

;;;; Compilations for agents

(declare-function compilation-start "compile")
(defvar compilation-finish-functions)
(defvar compilation-auto-jump-to-first-error)

(defconst pyagentd-tools-build--tail 12000
  "Maximum number of characters of a compilation's end in the result.")

(defun pyagentd-tools-build--compile (callback command)
  "Run COMMAND as a compilation and pass the end of its output to CALLBACK.
Return a function that stops it."
  (require 'compile)
  (let* ((place (and pyagentd-tools-branch
                     (pyagentd-place-of (pyagentd-place-conversation
                                         pyagentd-tools-branch))))
         (name (if place (format "*pyagentd compilation: %s/%s*"
                                 (plist-get place :session-id)
                                 (plist-get place :branch-name))
                 "*pyagentd compilation*"))
         ;; Starting one in the buffer of another would kill that.
         (name (if (get-buffer-process name) (generate-new-buffer-name name)
                 name))
         (buffer (let (;; Permission was checked for bash on this machine.
                       (shell-file-name
                        (let ((default-directory "/"))
                          (or (seq-find #'file-executable-p
                                        '("/bin/bash" "/usr/bin/bash"))
                              (executable-find "bash")
                              "/bin/sh")))
                       (shell-command-switch "-c")
                       (file-name-handler-alist nil))
                   (compilation-start command nil (lambda (_mode) name))))
         (process (get-buffer-process buffer)))
    (with-current-buffer buffer
      (setq-local compilation-auto-jump-to-first-error nil)
      (add-hook 'compilation-finish-functions
                (lambda (_buffer how)
                  (let ((from (max (point-min)
                                   (- (point-max) pyagentd-tools-build--tail))))
                    (funcall
                     callback
                     (list :error (if (string-prefix-p "finished" how)
                                      :json-false t)
                           :text (format
                                  "%s%s\n[%s]"
                                  (if (> from (point-min))
                                      "[Only the end is shown.]\n" "")
                                  (buffer-substring-no-properties from (point-max))
                                  (string-trim how))))))
                nil t))
    (lambda () (when (process-live-p process) (interrupt-process process)))))

(pyagentd-make-tool
 :name "emacs_compile" :category "build" :async t :confirm t :timeout 900
 :function #'pyagentd-tools-build--compile
 :description "Run a command for building or testing in the user's Emacs \
(M-x compile), with its environment and unconfined; the user can follow the \
errors there. Returns its output. For anything else use Bash."
 :args '((:name "command" :type string :command t
                :description "The command line, such as: make test")))

;;;; Emacs Lisp functions as hooks

(defconst pyagentd-hooks--events
  '(message.user model.resolve tool.before tool.after run.finished)
  "Events that have hooks.")

(defvar pyagentd-hook-functions nil
  "Alist from events to lists of their hook functions.
Use `pyagentd-add-hook', which also informs the daemon.")

;;;###autoload
(defun pyagentd-add-hook (event function)
  "Call FUNCTION at EVENT of sessions that this Emacs shows.
EVENT is one of the symbols `message.user', `model.resolve', `tool.before',
`tool.after' and `run.finished'.  FUNCTION gets a plist of facts.  It returns
nil to change nothing, (:block REASON) to forbid, or a plist of changed facts.
It must be quick: the agent waits some seconds at most."
  (unless (memq event pyagentd-hooks--events)
    (user-error "There is no event %s for hooks" event))
  (unless (memq function (alist-get event pyagentd-hook-functions))
    (setf (alist-get event pyagentd-hook-functions)
          (append (alist-get event pyagentd-hook-functions) (list function))))
  (pyagentd-offer))

(defun pyagentd-remove-hook (event function)
  "Stop calling FUNCTION at EVENT.
See `pyagentd-add-hook'."
  (setf (alist-get event pyagentd-hook-functions)
        (remq function (alist-get event pyagentd-hook-functions)))
  (pyagentd-offer))

(pyagentd-offer-register
 "hook"
 (lambda (facts _id reply)
   (let (said)
     (seq-some (lambda (function)       ; stops at one that forbids
                 (let ((changes (funcall function facts)))
                   (cl-loop for (key value) on changes by #'cddr
                            do (setq facts (plist-put facts key value)
                                     said (plist-put said key value)))
                   (or (plist-get changes :block)
                       (plist-get changes :deny))))
               (alist-get (intern (plist-get facts :event))
                          pyagentd-hook-functions))
     (funcall reply (json-encode (or said (make-hash-table)))))))

(provide 'pyagentd-tools)
;;; pyagentd-tools.el ends here

;;; pyagentd-form.el --- Questions with options, edited input, diffs -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Buffers for answering asks that need more than one key.

;;; Code:

(require 'json)
(require 'wid-edit)
(require 'diff-mode)
(require 'ediff)
(require 'pyagentd-core)
(require 'pyagentd-ask)

;;;; Answer a model's questions in a form

;; A model may ask several questions at once.  One form shows them all: each
;; with its options as buttons, to choose one or several, and a line for
;; free text.  The form stays valid when the daemon restarts, and shows when
;; another client has answered first.

(defvar-local pyagentd-question--ask nil
  "The ask whose questions are in this buffer.")
(defvar-local pyagentd-question--parts nil
  "For each question (OPTIONS . OTHER): a widget or nil, and a text field.")

(defun pyagentd-question--keymap (parent)
  "Return a keymap with the keys of a form, and those of the keymap PARENT."
  (let ((map (pyagentd-keymap
              "C-c C-c" #'pyagentd-question--send
              "C-c C-n" #'pyagentd-question--decline
              "C-c C-k" #'pyagentd-question--cancel)))
    (set-keymap-parent map parent)
    map))

(defvar pyagentd-question-field-map
  (let ((map (pyagentd-question--keymap widget-field-keymap)))
    (define-key map (kbd "RET") #'pyagentd-question--next-or-send)
    map)
  "Keymap of the text fields.")

(defvar pyagentd-question-mode-map (pyagentd-question--keymap widget-keymap)
  "Keymap of `pyagentd-question-mode'.")

(define-derived-mode pyagentd-question-mode nil "Questions"
  "Major mode of forms with a model's questions.
\\<pyagentd-question-mode-map>
TAB moves between options and lines, RET picks one, \
\\[pyagentd-question--send] sends the answers.

\\{pyagentd-question-mode-map}"
  :interactive nil
  (setq-local truncate-lines nil
              word-wrap t))

;;;; The form

(defun pyagentd-question--insert (question number count)
  "Insert QUESTION, the NUMBERth of COUNT; return its widgets."
  (let ((header (plist-get question :header))
        (options (plist-get question :options)))
    (widget-insert
     "\n"
     (propertize (concat (and (> count 1) (format "%d. " number))
                         (and (not (member header '(nil "")))
                              (concat header ": ")))
                 'face 'shadow)
     (propertize (string-trim (plist-get question :question))
                 'face 'pyagentd-heading)
     (if (plist-get question :multi-select)
         (propertize "  (several)" 'face 'shadow) "")
     "\n")
    (cons (and options
               (apply
                #'widget-create
                (if (plist-get question :multi-select) 'checklist
                  'radio-button-choice)
                :indent 2
                (mapcar (lambda (option)
                          (let ((about (plist-get option :description)))
                            (list 'item
                                  :value (plist-get option :label)
                                  :format
                                  (if (member about '(nil "")) "%v\n"
                                    (concat "%v  "
                                            (propertize
                                             (string-replace
                                              "%" "%%" (pyagentd-one-line about))
                                             'face 'pyagentd-detail)
                                            "\n")))))
                        options)))
          (widget-create 'editable-field
                         :format (if options "  Other: %v" "  %v")
                         :keymap pyagentd-question-field-map
                         :size 40 ""))))

(defun pyagentd-question--fill (ask)
  "Make the current buffer the form of ASK."
  (pyagentd-question-mode)
  (setq pyagentd-question--ask ask)
  (let* ((questions (plist-get ask :questions))
         (count (length questions)))
    (setq pyagentd-question--parts
          (seq-map-indexed (lambda (question index)
                             (pyagentd-question--insert question (1+ index)
                                                        count))
                           questions)))
  (widget-insert "\n")
  (widget-create 'push-button
                 :notify (lambda (&rest _) (pyagentd-question--send))
                 "Send")
  (widget-insert "  ")
  (widget-create 'push-button
                 :notify (lambda (&rest _)
                           (call-interactively #'pyagentd-question--decline))
                 "Decline")
  (widget-insert "\n")
  (widget-setup)
  (goto-char (point-min))
  (widget-forward 1)
  (set-buffer-modified-p nil)
  (let ((who (string-replace
              "%" "%%" (or (pyagentd-ask-who ask)
                           (if (equal "" (plist-get ask :run-id))
                               "pyagentd" ; no run waits
                             "The model")))))
    (pyagentd-ask-here-set
     ask
     (concat " " who (substitute-command-keys
                      " asks   \\<pyagentd-question-mode-map>\
\\[pyagentd-question--send] send   \\[pyagentd-question--decline] decline   \
\\[pyagentd-question--cancel] later"))
     (concat " (answered) " who
             (substitute-command-keys
              " asked   \\<pyagentd-question-mode-map>\
\\[pyagentd-question--cancel] close")))))

(defun pyagentd-question-buffer (ask)
  "Return the buffer with the form of ASK; reuse one that exists."
  (or (seq-find (lambda (buffer)
                  (equal (pyagentd-ask-id ask)
                         (pyagentd-ask-id
                          (buffer-local-value 'pyagentd-question--ask buffer))))
                (buffer-list))
      (with-current-buffer
          (generate-new-buffer
           (format "*question: %s*"
                   (pyagentd-one-line (or (plist-get ask :detail) "") 40)))
        (pyagentd-question--fill ask)
        (current-buffer))))

;;;###autoload
(defun pyagentd-question-open (ask)
  "Answer the questions of ASK in a form."
  (pop-to-buffer (pyagentd-question-buffer ask)))

;;;; Answers

(defun pyagentd-question-answers ()
  "Return the answers in this form: a list of strings for each question."
  (mapcar (pcase-lambda (`(,options . ,other))
            (append (and options (ensure-list (widget-value options)))
                    (let ((words (string-trim (widget-value other))))
                      (unless (string-empty-p words) (list words)))))
          pyagentd-question--parts))

(defun pyagentd-question--send ()
  "Send the answers of this form.
Questions may be left open, but not all of them."
  (interactive nil pyagentd-question-mode)
  (let ((answers (pyagentd-question-answers))
        (ask (pyagentd-answer-current)))
    (unless (seq-some #'identity answers)
      (user-error "No question is answered yet; %s declines them"
                  (substitute-command-keys "\\[pyagentd-question--decline]")))
    (pyagentd-answer-with ask 'answer
                          :answers (json-serialize
                                    (vconcat (mapcar #'vconcat answers)))
                          :then (apply-partially #'pyagentd-close (current-buffer)))))

(defun pyagentd-question--next-or-send ()
  "Send the answers if each question has one; else move to the next widget."
  (interactive nil pyagentd-question-mode)
  (if (seq-every-p #'identity (pyagentd-question-answers))
      (pyagentd-question--send)
    (widget-forward 1)))

(defun pyagentd-question--decline (reason)
  "Decline the questions here; the model gets REASON."
  (interactive (progn (pyagentd-answer-current)
                      (list (read-string "Decline because (may be empty): ")))
               pyagentd-question-mode)
  (pyagentd-answer-with (pyagentd-answer-current) 'deny :reason reason
                        :then (apply-partially #'pyagentd-close (current-buffer))))

(defun pyagentd-question--cancel ()
  "Close this form; the questions stay open."
  (interactive nil pyagentd-question-mode)
  (pyagentd-close (current-buffer)))

;;;; Edit the arguments of a call before allowing it

(defvar pyagentd-ask-edit-fields
  '(("Bash" . "command") ("Write" . "content") ("Edit" . "new_string")
    ("PersistentAgent" . "prompt") ("task" . "prompt") ("WebFetch" . "url")
    ("WebSearch" . "query"))
  "Alist from tools to the argument that is edited as plain text.")

(defun pyagentd-ask-json (function value)
  "Call FUNCTION, of json.el, with VALUE, arguments or their JSON.
Objects are alists.  The parser in C rejects some valid JSON, such as a NUL
in a string."
  (let ((json-object-type 'alist) (json-key-type 'string) (json-array-type 'vector)
        (json-null :null) (json-false :false))
    (funcall function value)))

(defun pyagentd-ask-arguments (ask)
  "Return the arguments in ASK, an alist; nil if it has none."
  (when-let ((input (plist-get ask :input)))
    (pyagentd-ask-json #'json-read-from-string input)))

(defun pyagentd-ask--edit (&optional all)
  "Edit the arguments of the proposed call, and allow it with them.
Edit the main argument as text, such as a shell command; with a prefix
argument, or ALL from Lisp, edit all arguments as JSON."
  (interactive "P")
  (let* ((ask (pyagentd-answer-current))
         (arguments (or (pyagentd-ask-arguments ask)
                        (user-error "Nothing to edit")))
         (tool (plist-get ask :tool))
         (field (and (not all)
                     (cdr (assoc tool pyagentd-ask-edit-fields))))
         (argument (assoc field arguments))
         (field (and (stringp (cdr argument)) field))
         (path (plist-get ask :path))
         (about (format "%s: %s%s" tool (or field "arguments")
                        (if path (format " (%s)" (abbreviate-file-name path))
                          ""))))
    (with-current-buffer
        (pyagentd-edit
         (pyagentd-one-line (pyagentd-ask-title ask) 40)
         (if field (cdr argument)
           (let ((json-encoding-pretty-print t))
             (concat (pyagentd-ask-json #'json-encode arguments) "\n")))
         (lambda ()
           (delay-mode-hooks
             (cond ((null field) (js-mode))
                   ((equal tool "Bash") (sh-mode))
                   (path (let ((buffer-file-name path)
                               (enable-local-variables nil))
                           (set-auto-mode)))
                   (t (text-mode)))))
         (lambda (text close)
           (pyagentd-answer-with
            (pyagentd-answer-current) 'allow :then close
            :input
            (if (not field) text
              (setcdr argument text)
              (pyagentd-ask-json #'json-encode arguments))))
         :about about :key (list (pyagentd-ask-id ask) field)
         :word "allow with changes")
      (pyagentd-ask-here-set
       ask header-line-format
       (concat " (answered) " (string-replace "%" "%%" about)
               (substitute-command-keys
                "   \\<pyagentd-edit-mode-map>\\[pyagentd-edit--cancel] close"))))))

;;;; Show a proposed change as a diff

(defvar pyagentd-ask-diff-mode-map
  (let ((map (pyagentd-ask-keys-define (make-sparse-keymap))))
    (define-key map "d" nil)
    (define-key map "q" #'pyagentd-ask--here-quit)
    (define-key map (kbd "SPC") #'scroll-up-command)
    (define-key map (kbd "DEL") #'scroll-down-command)
    map)
  "Keymap of `pyagentd-ask-diff-mode'.")

(define-derived-mode pyagentd-ask-diff-mode diff-mode "Asked"
  "Major mode for a proposed change.

\\{pyagentd-ask-diff-mode-map}"
  :interactive nil
  ;; The file does not have the change yet, so fontify by hunk only.
  (setq-local diff-font-lock-syntax 'hunk-only)
  (setq buffer-read-only t)
  ;; `diff-mode' binds letters in read-only buffers.
  (push (cons 'buffer-read-only pyagentd-ask-diff-mode-map)
        minor-mode-overriding-map-alist))

(defun pyagentd-ask--diff ()
  "Show the change that the ask here proposes as a diff."
  (interactive)
  (let* ((ask (pyagentd-answer-current))
         (preview (plist-get ask :preview)))
    (unless (assq ?d (pyagentd-ask-offered ask))
      (user-error "This changes no file"))
    (pyagentd-show-diff
     "*pyagentd diff*" preview
     (lambda (_)
       (pyagentd-ask-diff-mode)
       (pyagentd-ask-here-set
        ask (pyagentd-ask-keys-header ask 'pyagentd-ask--diff)
        " (answered)   q close" t)
       (pyagentd-ask-here-display)))))

;;;; Ediff

(defun pyagentd-ask-diff--before (path)
  "Return the text of the file PATH, nil if it does not exist.
If a buffer visits it, return the buffer's text, which the change is
applied to.  PATH is from the model, so file name handlers such as TRAMP's
are off unless the daemon is on another host."
  (let ((file-name-handler-alist
         (and pyagentd-host file-name-handler-alist)))
    (if-let ((buffer (find-buffer-visiting path)))
        (with-current-buffer buffer
          (save-restriction
            (widen)
            (buffer-substring-no-properties (point-min) (point-max))))
      (when (file-exists-p path)
        (with-temp-buffer
          (insert-file-contents path)
          (buffer-string))))))

(defun pyagentd-ask-diff--after (ask before)
  "Return the text BEFORE of a file with the change of ASK applied, or nil."
  (let* ((arguments (pyagentd-ask-arguments ask))
         (content (cdr (assoc "content" arguments)))
         (old (cdr (assoc "old_string" arguments)))
         (new (cdr (assoc "new_string" arguments))))
    (cond ((stringp content) content)
          ((not (and before (stringp old) (stringp new)
                     (not (string-empty-p old))
                     (string-search old before)))
           nil)
          ((eq t (cdr (assoc "replace_all" arguments)))
           (string-replace old new before))
          (t (let ((place (string-search old before)))
               (concat (substring before 0 place) new
                       (substring before (+ place (length old)))))))))

(defun pyagentd-ask-diff--buffer (name path text)
  "Return a buffer named NAME with TEXT, in the mode of the file PATH."
  (with-current-buffer (generate-new-buffer name)
    (insert text)
    (delay-mode-hooks
      (let ((buffer-file-name path) (enable-local-variables nil)
            (file-name-handler-alist nil))
        (set-auto-mode)))
    (set-buffer-modified-p nil)
    (setq buffer-read-only t)
    (current-buffer)))

(defun pyagentd-ask--ediff ()
  "Compare the file with the proposed change in Ediff.
Quitting changes nothing; the question is still to be answered."
  (interactive)
  (let* ((ask (pyagentd-answer-current))
         (path (or (plist-get ask :path)
                   (user-error "This changes no file")))
         (before (pyagentd-ask-diff--before path))
         (after (or (pyagentd-ask-diff--after ask before)
                    (user-error "Cannot show %s after the change; see the diff"
                                path)))
         (name (file-name-nondirectory path))
         (back (or (pyagentd-ask-notice-aside) #'ignore))
         (windows (current-window-configuration))
         (buffers (list (pyagentd-ask-diff--buffer (format "*%s now*" name)
                                                   path (or before ""))
                        (pyagentd-ask-diff--buffer (format "*%s then*" name)
                                                   path after))))
    (apply #'ediff-buffers
           (append buffers
                   (list (list (lambda ()
                                 (add-hook 'ediff-quit-hook
                                           (lambda ()
                                             (mapc #'kill-buffer buffers)
                                             (set-window-configuration windows)
                                             (funcall back))
                                           t t))))))))

(provide 'pyagentd-form)
;;; pyagentd-form.el ends here

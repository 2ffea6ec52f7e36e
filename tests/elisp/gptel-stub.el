;;; gptel-stub.el --- The public functions of gptel that we meet -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Written from gptel's documentation: tools with their registry, and the
;; mode that restores and saves the roles of a chat.  With GPTEL_DIR set to
;; a checkout of the real package the tests use that instead.

;;; Code:

(require 'cl-lib)
(require 'seq)

(if-let ((directory (getenv "GPTEL_DIR")))
    (progn (add-to-list 'load-path directory)
           (require 'gptel))
  (eval
   '(progn
      (cl-defstruct (gptel-tool (:constructor gptel-stub--tool))
        function name description args async category confirm include)
      (cl-defstruct gptel-backend name host protocol endpoint key models)
      (cl-defstruct (gptel-openai (:include gptel-backend)))
      (defvar gptel--known-backends nil)
      (defvar gptel--known-tools nil)

      (defun gptel--get-api-key (key)
        "Return the API key that KEY is, names or finds."
        (cond ((functionp key) (funcall key))
              ((symbolp key) (symbol-value key))
              (t key)))

      (defvar gptel-tools nil)
      (defvar gptel-backend nil)
      (defvar gptel-model nil)
      (defvar gptel-temperature nil)
      (defvar gptel--system-message nil)
      (defvar gptel-mode-hook nil)
      (defvar-local gptel--bounds nil)
      (defvar gptel-stub--header nil)

      (defun gptel-stub--spell (spec)
        "Write the types in SPEC, a plist or a list of them, as strings."
        (when (listp spec)
          (when (symbolp (plist-get spec :type))
            (plist-put spec :type (symbol-name (plist-get spec :type))))
          (mapc #'gptel-stub--spell spec)))

      (defun gptel-make-tool (&rest slots)
        "Make a tool of SLOTS and remember it by category and name."
        (mapc #'gptel-stub--spell (plist-get slots :args))
        (let* ((tool (apply #'gptel-stub--tool slots))
               (name (gptel-tool-name tool))
               (category (or (gptel-tool-category tool) "misc")))
          (setf (alist-get name (alist-get category gptel--known-tools
                                           nil nil #'equal)
                           nil nil #'equal)
                tool)
          tool))

      (defun gptel-get-tool (path)
        "Return the tool at PATH, a category and a name."
        (cdr (assoc (cadr path) (cdr (assoc (car path) gptel--known-tools)))))

      (defun gptel--save-state ()
        "Write what a chat is configured with to the end of its file."
        (add-file-local-variable 'gptel--system-message gptel--system-message)
        (add-file-local-variable 'gptel-model gptel-model)
        (add-file-local-variable
         'gptel--bounds
         (let ((pos (point-min)) end spans)
           (while (< pos (point-max))
             (setq end (next-single-property-change pos 'gptel nil (point-max)))
             (when (eq (get-text-property pos 'gptel) 'response)
               (push (list pos end) spans))
             (setq pos end))
           (and spans `((response ,@(nreverse spans)))))))

      (define-minor-mode gptel-mode
        "Mode of chats: restores what was saved, and saves it."
        :lighter " GPTel"
        (if gptel-mode
            (progn
              (pcase-dolist (`(response . ,spans) gptel--bounds)
                (pcase-dolist (`(,beg ,end) spans)
                  (add-text-properties beg end '(gptel response))))
              (dolist (name (bound-and-true-p gptel--tool-names))
                (unless (assoc name (seq-mapcat #'cdr gptel--known-tools))
                  (display-warning '(gptel org tools)
                                   (format "Tool %s not found" name))))
              (setq-local gptel-stub--header header-line-format
                          header-line-format '("Chat" " Ready"))
              (add-hook 'before-save-hook #'gptel--save-state nil t))
          (setq header-line-format gptel-stub--header)
          (remove-hook 'before-save-hook #'gptel--save-state t)))
      (provide 'gptel))
   t))

(provide 'gptel-stub)
;;; gptel-stub.el ends here

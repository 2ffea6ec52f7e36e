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
      (defvar gptel--known-tools nil)
      (defvar gptel-tools nil)
      (defvar gptel-backend nil)
      (defvar gptel-model nil)
      (defvar gptel-temperature nil)
      (defvar gptel--system-message nil)
      (defvar gptel-mode-hook nil)
      (defvar-local gptel--bounds nil)

      (defun gptel-make-tool (&rest slots)
        "Make a tool of SLOTS and remember it by category and name."
        (let* ((tool (apply #'gptel-stub--tool
                            (append slots '(:category "misc"))))
               (name (gptel-tool-name tool))
               (category (gptel-tool-category tool)))
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
        (add-file-local-variable 'gptel--bounds nil))

      (define-minor-mode gptel-mode
        "Mode of chats: restores what was saved, and saves it."
        :lighter " GPTel"
        (if gptel-mode
            (progn
              (pcase-dolist (`(response . ,spans) gptel--bounds)
                (pcase-dolist (`(,beg ,end) spans)
                  (add-text-properties beg end '(gptel response))))
              (add-hook 'before-save-hook #'gptel--save-state nil t))
          (remove-hook 'before-save-hook #'gptel--save-state t)))
      (provide 'gptel))
   t))

(provide 'gptel-stub)
;;; gptel-stub.el ends here

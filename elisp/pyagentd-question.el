;;; pyagentd-question.el --- Answer a model's questions in a form -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;; This program is free software; you can redistribute it and/or modify
;; it under the terms of the GNU General Public License as published by
;; the Free Software Foundation, either version 3 of the License, or
;; (at your option) any later version.

;; This program is distributed in the hope that it will be useful,
;; but WITHOUT ANY WARRANTY; without even the implied warranty of
;; MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
;; GNU General Public License for more details.

;; You should have received a copy of the GNU General Public License
;; along with this program.  If not, see <https://www.gnu.org/licenses/>.

;;; Commentary:

;; A model may ask several questions at once.  They are answered in one
;; buffer: options as buttons, one or several of them, and a line for other
;; words after each question.  The form stays about its questions when
;; Emacs or the daemon is started anew, and when somebody else answers
;; first it says so.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'subr-x)
(require 'wid-edit)
(require 'pyagentd-core)
(require 'pyagentd-ask)
(require 'pyagentd-ask-words)
(require 'pyagentd-ask-here)
(require 'pyagentd-answer)

(defvar-local pyagentd-question--ask nil
  "The ask whose questions are in this buffer.")
(defvar-local pyagentd-question--parts nil
  "For each question (OPTIONS . OTHER): a widget or nil, and one for words.")

(defvar pyagentd-question-field-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map widget-field-keymap)
    (define-key map (kbd "RET") #'pyagentd-question-next-or-send)
    (define-key map (kbd "C-c C-c") #'pyagentd-question-send)
    (define-key map (kbd "C-c C-n") #'pyagentd-question-decline)
    (define-key map (kbd "C-c C-k") #'pyagentd-question-cancel)
    map)
  "Keymap of the lines for words of one's own.")

(defvar pyagentd-question-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map widget-keymap)
    (define-key map (kbd "C-c C-c") #'pyagentd-question-send)
    (define-key map (kbd "C-c C-n") #'pyagentd-question-decline)
    (define-key map (kbd "C-c C-k") #'pyagentd-question-cancel)
    map)
  "Keymap of `pyagentd-question-mode'.")

(define-derived-mode pyagentd-question-mode nil "Questions"
  "Major mode of forms with a model's questions.
\\<pyagentd-question-mode-map>
TAB moves between options and lines, RET picks one, \
\\[pyagentd-question-send] sends the answers.

\\{pyagentd-question-mode-map}"
  :interactive nil
  (setq-local truncate-lines nil
              word-wrap t))

;;;; The form

(defun pyagentd-question--insert-options (options several)
  "Insert OPTIONS, plists with :label and :description, and return the widget.
SEVERAL says whether more than one may be picked."
  (apply #'widget-create
         (if several 'checklist 'radio-button-choice)
         :indent 2
         (mapcar (lambda (option)
                   (let ((about (plist-get option :description)))
                     (list 'item
                           :value (plist-get option :label)
                           :format (if (member about '(nil ""))
                                       "%v\n"
                                     (concat "%v  "
                                             (propertize
                                              (pyagentd-question--quoted about)
                                              'face 'pyagentd-detail)
                                             "\n")))))
                 options)))

(defun pyagentd-question--quoted (text)
  "Return TEXT on one line, as a part of a widget's format."
  (string-replace "%" "%%" (pyagentd-ask-one-line text)))

(defun pyagentd-question--insert (question number count)
  "Insert QUESTION, which is NUMBER of COUNT; return its widgets."
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
               (pyagentd-question--insert-options
                options (plist-get question :multi-select)))
          (widget-create 'editable-field
                         :format (if options "  Other: %v" "  %v")
                         :keymap pyagentd-question-field-map
                         :size 40 ""))))

(defun pyagentd-question--fill (ask)
  "Make the current buffer the form of ASK."
  (let ((inhibit-read-only t))
    (erase-buffer)
    (remove-overlays)
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
                   :notify (lambda (&rest _) (pyagentd-question-send))
                   "Send")
    (widget-insert "  ")
    (widget-create 'push-button
                   :notify (lambda (&rest _)
                             (call-interactively #'pyagentd-question-decline))
                   "Decline")
    (widget-insert "\n")
    (widget-setup)
    (goto-char (point-min))
    (widget-forward 1)
    (set-buffer-modified-p nil)
    (pyagentd-question--header ask)))

(defun pyagentd-question--header (ask)
  "Say in the header line whose questions those of ASK are, and the keys."
  (let ((who (string-replace "%" "%%" (or (pyagentd-ask-who ask)
                                             (if (equal "" (plist-get ask :run-id))
                                                 "pyagentd" ; no run waits
                                               "The model")))))
    (pyagentd-ask-here-set
     ask
     (concat " " who (substitute-command-keys
                      " asks   \\<pyagentd-question-mode-map>\
\\[pyagentd-question-send] send   \\[pyagentd-question-decline] decline   \
\\[pyagentd-question-cancel] later"))
     (concat " (answered) " who
             (substitute-command-keys " asked   \\<pyagentd-question-mode-map>\
\\[pyagentd-question-cancel] close")))))

(defun pyagentd-question-buffer (ask)
  "Return the buffer with the form of ASK; one that was begun stays as it is."
  (or (seq-find (lambda (buffer)
                  (equal (pyagentd-ask-id ask)
                         (pyagentd-ask-id
                          (buffer-local-value 'pyagentd-question--ask buffer))))
                (buffer-list))
      (with-current-buffer
          (generate-new-buffer
           (format "*question: %s*"
                   (truncate-string-to-width
                    (pyagentd-ask-one-line (or (plist-get ask :detail) ""))
                    40 nil nil "…")))
        (pyagentd-question--fill ask)
        (current-buffer))))

;;;###autoload
(defun pyagentd-question-open (ask)
  "Answer the questions of ASK in a form."
  (pop-to-buffer (pyagentd-question-buffer ask)))

;;;; Answers

(defun pyagentd-question--picked (options)
  "Return the labels that are picked in OPTIONS, a widget or nil."
  (when options
    (let ((value (widget-value options)))
      (cond ((listp value) value)
            ((member value '(nil "")) nil)
            (t (list value))))))

(defun pyagentd-question-answers ()
  "Return the answers of this form: for each question a list of texts."
  (mapcar (pcase-lambda (`(,options . ,other))
            (append (pyagentd-question--picked options)
                    (let ((words (string-trim (widget-value other))))
                      (unless (string-empty-p words) (list words)))))
          pyagentd-question--parts))

(defun pyagentd-question--json (answers)
  "Return ANSWERS, lists of texts, as JSON."
  (json-serialize (vconcat (mapcar #'vconcat answers))))

(defun pyagentd-question--done ()
  "Return a function that closes this form."
  (let ((buffer (current-buffer)))
    (lambda ()
      (when (buffer-live-p buffer)
        (if-let ((window (get-buffer-window buffer t)))
            (quit-window t window)
          (kill-buffer buffer))))))

(defun pyagentd-question-send ()
  "Send the answers of this form.
A question may be left open, if not all of them are."
  (interactive nil pyagentd-question-mode)
  (let ((answers (pyagentd-question-answers))
        (ask (pyagentd-answer-current)))
    (unless (seq-some #'identity answers)
      (user-error "Nothing is answered; %s declines"
                  (substitute-command-keys "\\[pyagentd-question-decline]")))
    (pyagentd-answer-with ask 'answer
                          :answers (pyagentd-question--json answers)
                          :then (pyagentd-question--done))))

(defun pyagentd-question-next-or-send ()
  "Send the answers once each question has one; move on before."
  (interactive nil pyagentd-question-mode)
  (if (seq-every-p #'identity (pyagentd-question-answers))
      (pyagentd-question-send)
    (widget-forward 1)))

(defun pyagentd-question-decline (reason)
  "Answer none of the questions here because of REASON, which the model is told."
  (interactive (progn (pyagentd-answer-current)
                      (list (read-string "Decline because (may be empty): ")))
               pyagentd-question-mode)
  (pyagentd-answer-with (pyagentd-answer-current) 'deny :reason reason
                        :then (pyagentd-question--done)))

(defun pyagentd-question-cancel ()
  "Close this form; the questions stay open."
  (interactive nil pyagentd-question-mode)
  (funcall (pyagentd-question--done)))

(provide 'pyagentd-question)
;;; pyagentd-question.el ends here

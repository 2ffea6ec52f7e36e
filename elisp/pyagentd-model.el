;;; pyagentd-model.el --- Choosing a model -*- lexical-binding: t; -*-

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

;; Chooses the model of a session, and edits texts in buffers of their own.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-sync)


;;;; Edit a text in a buffer

;; Long values, such as a system prompt, are edited in a buffer and handed
;; over when they are finished.  A text that is refused stays there.

(defvar-local pyagentd-edit--finish nil
  "Function that is called with the text, and with what closes this buffer.")
(defvar-local pyagentd-edit--title nil
  "What is edited here, in words.")

(pyagentd-permanent-local 'pyagentd-edit--finish 'pyagentd-edit--title
                          'pyagentd-edit-mode)

(defvar pyagentd-edit-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'pyagentd-edit-finish)
    (define-key map (kbd "C-c C-k") #'pyagentd-edit-cancel)
    map)
  "Keymap of `pyagentd-edit-mode'.")

(define-minor-mode pyagentd-edit-mode
  "Minor mode of buffers in which a value is edited.

\\{pyagentd-edit-mode-map}"
  :lighter " Edit"
  :interactive nil
  (when pyagentd-edit-mode
    (setq header-line-format
          (string-replace
           "%" "%%"
           (concat " " pyagentd-edit--title
                   (substitute-command-keys "   \\<pyagentd-edit-mode-map>\
\\[pyagentd-edit-finish] save   \\[pyagentd-edit-cancel] cancel"))))))

(defun pyagentd-edit (title text mode finish)
  "Edit TEXT, which is called TITLE, in a buffer in MODE, a function.
FINISH is called with the text when it is finished, and with a function
that closes the buffer; it may call that later."
  (let ((buffer (get-buffer-create (format "*edit: %s*" title))))
    ;; What is being edited stays.
    (unless (buffer-local-value 'pyagentd-edit--finish buffer)
      (with-current-buffer buffer
        (insert text)
        (goto-char (point-min))
        (funcall mode)
        (setq pyagentd-edit--title title
              pyagentd-edit--finish finish
              buffer-undo-list nil)
        (set-buffer-modified-p nil)
        (pyagentd-edit-mode)))
    (pop-to-buffer buffer)))

(defun pyagentd-edit-finish ()
  "Save the text in this buffer as the value."
  (interactive nil pyagentd-edit-mode)
  (let ((buffer (current-buffer)))
    (funcall pyagentd-edit--finish
             (buffer-substring-no-properties (point-min) (point-max))
             (lambda () (pyagentd-edit--close buffer)))))

(defun pyagentd-edit-cancel ()
  "Discard the edit."
  (interactive nil pyagentd-edit-mode)
  (when (or (not (buffer-modified-p)) (y-or-n-p "Discard the changes? "))
    (pyagentd-edit--close (current-buffer))))

(defun pyagentd-edit--close (buffer)
  "Kill BUFFER and put its window back."
  (when (buffer-live-p buffer)
    (if-let ((window (get-buffer-window buffer t)))
        (quit-window t window)
      (kill-buffer buffer))))

;;;; Model, temperature, tools and system prompt

;; Which model answers in a session, and with which settings.  As with
;; gptel they are chosen in the buffer, for the session or for the next
;; message only.  The model, the temperature and the maximum tokens of the
;; session are in the Local Variables of its document; how much the model
;; thinks, the system prompt and the tools are in its preset.md.

(defvar pyagentd-model-history nil
  "Names of models that were chosen.")

(defvar pyagentd-model--known nil
  "Names of the models that the daemon said there are.")

(defun pyagentd-model--names (answer)
  "Return the names of the models in ANSWER, one of the daemon.
Those of a provider without a key cannot be had."
  (delete-dups
   (seq-mapcat (lambda (provider)
                 (and (plist-get provider :valid)
                      (copy-sequence (plist-get provider :models))))
               (plist-get answer :providers))))

(defun pyagentd-model--fetch ()
  "Ask the daemon which models there are; it may take its time."
  (pyagentd-rpc-call-async
   'models nil
   :timeout (* 3 pyagentd-call-timeout)
   :success (lambda (answer)
              (setq pyagentd-model--known (pyagentd-model--names answer)))
   :error #'ignore))

(defun pyagentd-model--table (string predicate action)
  "Complete STRING, a name of a model; PREDICATE and ACTION as usual.
What the daemon says meanwhile is offered too."
  (if (eq action 'metadata)
      '(metadata (category . pyagentd-model))
    (complete-with-action
     action (delete-dups (append (copy-sequence pyagentd-model--known)
                                 (copy-sequence pyagentd-model-history)))
     string predicate)))

(defun pyagentd-model-read (prompt)
  "Read the name of a model with PROMPT; it may be empty."
  (pyagentd-model--fetch)
  (completing-read prompt #'pyagentd-model--table nil nil nil
                   'pyagentd-model-history))

;;;; For the session, or for the next message only

(defmacro pyagentd-model--in-session (&rest body)
  "Evaluate BODY in the buffer of the session here."
  (declare (indent 0) (debug t))
  `(with-current-buffer (or (buffer-base-buffer) (current-buffer))
     (unless (bound-and-true-p pyagentd-mode) (user-error "Not a session"))
     ,@body))

(defun pyagentd-model-value (key)
  "Return what the setting KEY is for the next message, nil for the default.
KEY is :model, :temperature, :max-tokens, :thinking, :system or :tools."
  (pyagentd-model--in-session
    (or (plist-get pyagentd-settings-next key)
        (pcase-exhaustive key
          (:thinking pyagentd-settings-thinking)
          (:system nil)
          (:tools (string-join (pyagentd-block-get 'gptel--tool-names) " "))
          (_ (pyagentd-block-get (car (rassq key pyagentd-settings--keys))))))))

(defun pyagentd-model--next (key value)
  "Let the setting KEY be VALUE for the next message only; nil for no other."
  (setq pyagentd-settings-next
        (append (and value (list key value))
                (map-into (map-filter (lambda (other _) (not (eq other key)))
                                      pyagentd-settings-next)
                          'plist)))
  (pyagentd-status-refresh)
  (message "%s" (if value "Set for the next message only"
                  "The next message is as the session")))

(defun pyagentd-model--set (key value)
  "Let the setting KEY be VALUE, nil for that of preset.md.
That is for this session, or for the next message only."
  (pyagentd-model--in-session
    (if pyagentd-settings-next-only
        (pyagentd-model--next key (if (symbolp value)
                                      (and value (symbol-name value))
                                    value))
      (let ((variable (car (rassq key pyagentd-settings--keys))))
        (pyagentd-block-set
         variable (or value (alist-get variable pyagentd-settings--own))))
      (pyagentd-model--save)
      (message "Set for this session"))))

(defun pyagentd-model--save ()
  "Write the settings of this session into its file."
  (pyagentd-settings-show)
  (unless pyagentd-session-viewing
    (set-buffer-modified-p t)
    (pyagentd-session-save)))

(defun pyagentd-model--configure (key value &optional then failure)
  "Write VALUE of KEY into the session's preset.md, then call THEN.
FAILURE is called with an error, which is told by default."
  (pyagentd-later-here
   'configure (list :branch pyagentd--branch-dir key value)
   (lambda (answer)
     (when (eq key :tools)
       (pyagentd-block-set 'gptel--tool-names
                           (plist-get (plist-get answer :own-settings) :tools)))
     (pyagentd-settings-receive answer)
     (when (eq key :tools)
       (pyagentd-model--save))
     (when then (funcall then))
     (message "Saved in this session's preset.md"))
   nil failure))

(defun pyagentd-model--scoped (words)
  "Return WORDS with what they are chosen for."
  (format "%s of %s" words (if pyagentd-settings-next-only "the next message"
                             "this session")))

(defun pyagentd-model--prompt (words key)
  "Return a prompt for the setting KEY, which is called WORDS."
  (format-prompt "%s, empty for the preset's" (pyagentd-model-value key)
                 (pyagentd-model--scoped words)))

(defun pyagentd-model--read-number (words key valid)
  "Read the setting KEY, a number, which is called WORDS; VALID checks it.
Return nil if nothing was typed."
  (pyagentd-model--in-session
    (let ((text (string-trim (read-string (pyagentd-model--prompt words key)))))
      (unless (string-empty-p text)
        (let ((number (and (string-match-p "\\`[0-9]+\\(?:\\.[0-9]+\\)?\\'" text)
                           (string-to-number text))))
          (if (and number (funcall valid number)) number
            (user-error "%s is no %s" text words)))))))

;;;; Commands

(defun pyagentd-choose-model (name)
  "Choose the model NAME for your next messages in this session.
The empty string stands for the model of the session's preset.md.
\\[pyagentd-keep-settings] writes the choice to preset.md."
  (interactive
   (list (pyagentd-model--in-session
           (pyagentd-model-read (pyagentd-model--prompt "Model" :model))))
   pyagentd-mode)
  (pyagentd-model--set :model (unless (string-empty-p name) (intern name))))

(defun pyagentd-choose-temperature (temperature)
  "Set the temperature of this session to TEMPERATURE, from 0 to 2.
nil stands for the temperature of the session's preset.md."
  (interactive (list (pyagentd-model--read-number
                      "Temperature" :temperature (lambda (n) (<= 0 n 2))))
   pyagentd-mode)
  (pyagentd-model--set :temperature temperature))

(defun pyagentd-choose-max-tokens (tokens)
  "Set the maximum length of answers in this session to TOKENS tokens.
nil stands for the maximum in the session's preset.md."
  (interactive (list (pyagentd-model--read-number
                      "Maximum tokens" :max-tokens
                      (lambda (n) (and (integerp n) (> n 0)))))
   pyagentd-mode)
  (pyagentd-model--set :max-tokens tokens))

(defun pyagentd-choose-thinking (effort)
  "Set the thinking effort of this session's model to EFFORT.
That is \"off\", \"low\", \"medium\" or \"high\"."
  (interactive
   (list (pyagentd-model--in-session
           (let ((now (or (pyagentd-model-value :thinking) "off")))
             (completing-read
              (format-prompt (pyagentd-model--scoped "Thinking effort") now)
              '("off" "low" "medium" "high") nil t nil nil now))))
   pyagentd-mode)
  (pyagentd-model--in-session
    (if pyagentd-settings-next-only (pyagentd-model--next :thinking effort)
      (let ((before pyagentd-settings-thinking))
        (setq pyagentd-settings-thinking effort) ; the menu shows it at once
        (pyagentd-model--configure
         :thinking effort nil
         (lambda (err)
           (setq pyagentd-settings-thinking before)
           (pyagentd-later-tell err)))))))

(defun pyagentd-edit-system-prompt ()
  "Edit the system prompt of this session, or of the next message only."
  (interactive nil pyagentd-mode)
  (pyagentd-model--in-session
    (let ((next pyagentd-settings-next-only))
      (pyagentd-later-asking
       'system-prompt (list :branch pyagentd--branch-dir)
       (lambda (answer)
         (pyagentd-model--edit-system
          (or (and next (plist-get pyagentd-settings-next :system))
              (plist-get answer :system) "")
          next))))))

(defun pyagentd-model--edit-system (text next)
  "Edit TEXT as the system prompt; NEXT means of the next message only."
  (let ((session (current-buffer)))
    (pyagentd-edit
     (format "system prompt of %s%s" (buffer-name)
             (if next ", next message only" ""))
     text (if (fboundp 'markdown-mode) 'markdown-mode #'text-mode)
     (lambda (new close)
       (pyagentd-later-in session
         (if (not next) (pyagentd-model--configure :system new close)
           (pyagentd-model--next :system new)
           (funcall close)))))))

(defun pyagentd-choose-tools ()
  "Switch tools on and off, for this session or for the next message only."
  (interactive nil pyagentd-mode)
  (pyagentd-model--in-session
    (let ((next pyagentd-settings-next-only))
      (pyagentd-later-asking
       'tools-available (list :branch pyagentd--branch-dir)
       (lambda (answer)
         (let* ((chosen (plist-get pyagentd-settings-next :tools))
                (on (pyagentd-model--read-tools
                     (plist-get answer :tools)
                     (if (and next chosen) (split-string chosen)
                       (plist-get answer :on))))
                (names (string-join on " ")))
           (if next (pyagentd-model--next :tools names)
             (pyagentd-model--configure :tools names))))))))

(defun pyagentd-model--read-tools (names on)
  "Let the user switch the tools NAMES, of which ON are on; return those on."
  (let ((name t))
    (while (not (equal name ""))
      (setq name
            (let ((completion-extra-properties
                   (list :annotation-function
                         (lambda (tool)
                           (if (member tool on) "  on" "  off")))))
              (completing-read
               (format "Switch tool (%d of %d on; RET alone when done): "
                       (length on) (length names))
               (lambda (string predicate action)
                 (if (eq action 'metadata)
                     '(metadata (display-sort-function . identity)
                                (cycle-sort-function . identity))
                   (complete-with-action action names string predicate)))
               nil t)))
      (unless (equal name "")
        (setq on (if (member name on) (remove name on)
                   (append on (list name))))))
    on))

(defun pyagentd-model-switch-scope ()
  "Choose settings for the next message only, or for this session again."
  (interactive nil pyagentd-mode)
  (pyagentd-model--in-session
    (setq pyagentd-settings-next-only (not pyagentd-settings-next-only))))

(defun pyagentd-model-forget-next ()
  "Send the next message with the settings of this session."
  (interactive nil pyagentd-mode)
  (pyagentd-model--in-session
    (setq pyagentd-settings-next nil)
    (pyagentd-status-refresh)))

(provide 'pyagentd-model)
;;; pyagentd-model.el ends here

;;; pyagentd-chips.el --- Pick what an answer offers -*- lexical-binding: t; -*-

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

;; Where an answer ends with options, they stand below it as buttons.  To
;; pick one is to say it: it becomes the next message, with what is typed
;; below already as a follow-up.  Which options there are the daemon says;
;; the buttons are no text of the conversation.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-events)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-insert)

(declare-function pyagentd-send "pyagentd-chat")

(defvar-local pyagentd-chips nil
  "What the last answer here offers, a plist: :options and :several.
Each option is a plist with :label and :text, what picking it says.")
(defvar-local pyagentd-chips--overlay nil
  "Overlay of the buttons in this buffer, nil if there are none.")

(pyagentd-permanent-local 'pyagentd-chips 'pyagentd-chips--overlay)
(put 'pyagentd-chips-clear 'permanent-local-hook t)

(defvar pyagentd-chips-mode-map
  (let ((map (make-sparse-keymap)))
    (dotimes (index 9)
      (define-key map (kbd (format "C-c %d" (1+ index)))
        #'pyagentd-chips-pick-by-key))
    map)
  "Keymap that is active where an answer offers options.")

(define-minor-mode pyagentd-chips-mode
  "Minor mode of session buffers whose last answer offers options.
It turns itself on and off.

\\{pyagentd-chips-mode-map}"
  :lighter nil
  :interactive nil)

(pyagentd-permanent-local 'pyagentd-chips-mode)

;;;; The buttons

(defun pyagentd-chips--end ()
  "Return the end of the last answer in the text."
  (save-restriction
    (widen)
    (let ((position (point-max)))
      (while (and (> position (point-min))
                  (not (get-text-property (1- position) 'gptel)))
        (setq position (previous-single-property-change position 'gptel nil
                                                        (point-min))))
      position)))

(defun pyagentd-chips--button (option index)
  "Return the button of OPTION, which is the one at INDEX."
  (let ((map (make-sparse-keymap))
        (pick (lambda () (interactive) (pyagentd-chips-pick (1+ index)))))
    (define-key map [mouse-1] pick)
    (define-key map [mouse-2] pick)
    (concat (propertize (format "%d" (1+ index)) 'face 'pyagentd-key)
            " "
            (propertize (plist-get option :label)
                        'face 'link 'mouse-face 'highlight 'keymap map
                        'help-echo (plist-get option :text)))))

(defun pyagentd-chips--text ()
  "Return the buttons of this buffer."
  (concat "\n\n"
          (mapconcat #'identity
                     (seq-map-indexed #'pyagentd-chips--button
                                      (plist-get pyagentd-chips :options))
                     "   ")
          (propertize (if (plist-get pyagentd-chips :several)
                          "   (C-c 1… inserts one into your prompt)"
                        "   (C-c 1… sends it; C-u C-c 1… inserts it)")
                      'face 'shadow)))

(defun pyagentd-chips-clear ()
  "Remove the buttons from this buffer."
  (when pyagentd-chips--overlay
    (delete-overlay pyagentd-chips--overlay)
    (setq pyagentd-chips--overlay nil)
    (remove-hook 'pyagentd-insert-hook #'pyagentd-chips-clear t)
    (pyagentd-chips-mode -1))
  (setq pyagentd-chips nil))

(defun pyagentd-chips-receive (chips)
  "Show CHIPS, what the last answer in this buffer offers, or nothing for nil."
  (pyagentd-chips-clear)
  (when (plist-get chips :options)
    (let ((end (pyagentd-chips--end)))
      (setq pyagentd-chips chips
            pyagentd-chips--overlay (make-overlay end end nil t))
      (overlay-put pyagentd-chips--overlay 'before-string
                   (pyagentd-chips--text))
      (add-hook 'pyagentd-insert-hook #'pyagentd-chips-clear nil t)
      (pyagentd-chips-mode))))

(defun pyagentd-chips--on-event (branch _seq args)
  "Show the options in ARGS in the buffer of BRANCH."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (pyagentd-chips-receive (car args)))))

(pyagentd-events-register 'chips #'pyagentd-chips--on-event)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-chips-clear)

;;;; Picking

(defun pyagentd-chips--draft ()
  "Return where the user's next message begins; make room for it if need be."
  (widen)
  (goto-char (pyagentd-chips--end))
  (skip-chars-forward "\n")
  (cond ((looking-at (regexp-quote pyagentd-prompt-prefix))
         (goto-char (match-end 0)))
        ((eobp)
         (unless (bolp) (insert "\n"))
         (insert "\n" (if (pyagentd-place-agent-p) "" pyagentd-prompt-prefix)))
        (t (goto-char (pyagentd-chips--end))
           (skip-chars-forward "\n")))
  (point))

(defun pyagentd-chips--put (text several)
  "Put TEXT at the beginning of the user's next message.
What is there already follows it; another option, if SEVERAL, goes after."
  (pyagentd-chips--draft)
  (let ((draft (string-trim (buffer-substring-no-properties
                             (point) (point-max)))))
    (delete-region (point) (point-max))
    (insert (if (and several (not (string-empty-p draft)))
                (concat draft "\n" text)
              (concat text (if (string-empty-p draft) ""
                             (concat "\n\n" draft)))))))

(defun pyagentd-chips--read ()
  "Let the user choose an option; return its number."
  (let* ((options (plist-get pyagentd-chips :options))
         (labels (mapcar (lambda (option) (plist-get option :text)) options))
         (picked (completing-read "Option: " labels nil t)))
    (1+ (seq-position labels picked))))

;;;###autoload
(defun pyagentd-chips-pick (number &optional only-put)
  "Send option NUMBER of those that the last answer offers.
What is typed below the answer already is said after it.  With a prefix
argument, or ONLY-PUT from Lisp, put it into the prompt and do not send
it; so it is with answers of which several options may be picked."
  (interactive
   (progn (unless pyagentd-chips (user-error "No options are offered here"))
          (list (pyagentd-chips--read) current-prefix-arg)))
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (let ((option (nth (1- number) (plist-get pyagentd-chips :options)))
          (several (plist-get pyagentd-chips :several)))
      (unless option
        (user-error "There is no option %d" number))
      (pyagentd-chips--put (plist-get option :text) several)
      (goto-char (point-max))
      (unless (or only-put several)
        (pyagentd-chips-clear)
        (pyagentd-send)))))

(defun pyagentd-chips-pick-by-key (&optional only-put)
  "Send the option whose digit was typed; see `pyagentd-chips-pick'.
ONLY-PUT, the prefix argument, puts it into the prompt."
  (interactive "P")
  (pyagentd-chips-pick (- last-command-event ?0) only-put))

(provide 'pyagentd-chips)
;;; pyagentd-chips.el ends here

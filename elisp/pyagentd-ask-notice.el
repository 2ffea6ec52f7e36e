;;; pyagentd-ask-notice.el --- Show in a conversation what is asked -*- lexical-binding: t; -*-

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

;; Where something is asked a notice stands at the marker of the run.  It
;; shows one ask, which the keys answer, and the others in a line each.  It
;; changes no text, and goes when nothing is asked any more.
;;
;; What is typed into the conversation never answers: `C-c C-c' moves point to
;; the question, and only there do letters decide.  Any other command leaves
;; the question, and so does another question in its place.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-insert)
(require 'pyagentd-ask)
(require 'pyagentd-ask-text)
(require 'pyagentd-ask-keys)

(defvar-local pyagentd-ask-notice--overlay nil
  "Overlay of the notice in this buffer, nil if there is none.")
(defvar-local pyagentd-ask-notice--current nil
  "Id of the ask that the keys answer, nil for none.")

(defvar-local pyagentd-ask-notice--focus nil
  "Where point is on the question, an overlay; nil while it is not.
Its property `pyagentd-ask-back' is a marker at where point was before.")

(pyagentd-permanent-local 'pyagentd-ask-notice--overlay
                          'pyagentd-ask-notice--current
                          'pyagentd-ask-notice--focus)
(put 'pyagentd-ask-notice--stay 'permanent-local-hook t)

(declare-function pyagentd-question-open "pyagentd-question")
(declare-function pyagentd-ask-show "pyagentd-asks")
(declare-function pyagentd-ask-next "pyagentd-answer")
(declare-function pyagentd-ask-previous "pyagentd-answer")
(declare-function pyagentd-deny "pyagentd-answer")

(defvar pyagentd-ask-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'pyagentd-ask-go)
    map)
  "Keymap that is active where something is asked.")

(define-minor-mode pyagentd-ask-mode
  "Minor mode of session buffers in which something is asked.
It turns itself on and off.

\\{pyagentd-ask-mode-map}"
  :lighter nil
  :interactive nil)

(pyagentd-permanent-local 'pyagentd-ask-mode)
(put 'pyagentd-ask-notice--move 'permanent-local-hook t)

;;;; Keys

(defconst pyagentd-ask-notice--keys
  '(("Answer" (answer pyagentd-answer "in a form")
     (answer pyagentd-abort "abort the run"))
    ("Allow" (allow pyagentd-allow-once "once")
     (session pyagentd-allow-session "this session")
     (always pyagentd-allow-always "this project")
     (edit pyagentd-ask-edit "with changes"))
    ("Deny " (deny pyagentd-deny "")
     (deny pyagentd-deny-with-reason "with a reason")
     (own pyagentd-ask-abort "abort the run")
     (agent pyagentd-ask-abort "abort this agent"))
    ("Look " (diff pyagentd-ask-diff "diff")
     (t pyagentd-ask-show "details")
     (several pyagentd-ask-next "next")))
  "Lines of keys: a word and (CONDITION COMMAND WORDS) for each command.")

(defvar pyagentd-ask-notice-map
  (let ((map (pyagentd-ask-keys-define (make-sparse-keymap))))
    (define-key map "n" #'pyagentd-deny)
    (define-key map "." #'pyagentd-ask-next)
    (define-key map "," #'pyagentd-ask-previous)
    (define-key map (kbd "RET") #'pyagentd-ask-show)
    (define-key map "q" #'pyagentd-ask-leave)
    (define-key map (kbd "C-g") #'pyagentd-ask-leave)
    (define-key map (kbd "DEL") #'pyagentd-ask-notice-no-key)
    (define-key map (kbd "C-d") #'pyagentd-ask-notice-no-key)
    (define-key map [remap self-insert-command] #'pyagentd-ask-notice-no-key)
    map)
  "Keymap at point on a question in a conversation.")

(defun pyagentd-ask-notice--offered (ask several)
  "Return the conditions of keys that hold for ASK, one of SEVERAL or not."
  (if (pyagentd-ask-question-p ask) (list 'answer)
    (append (pyagentd-ask-keys-offered ask)
            (and several '(several))
            (list (if (plist-get ask :agent) 'agent 'own)))))

(defun pyagentd-ask-notice--key (command)
  "Return the key of COMMAND on a question, or in the conversation."
  (propertize (pcase command
                ('pyagentd-answer "C-c C-c")
                ('pyagentd-abort "C-c C-k")
                ('pyagentd-ask-next ".")
                (_ (string (car (seq-find (lambda (entry)
                                            (eq command (nth 1 entry)))
                                          pyagentd-ask-keys)))))
              'face 'pyagentd-key))

(defvar pyagentd-ask-notice-button-map
  (let ((map (make-sparse-keymap)))
    (define-key map [mouse-1] #'pyagentd-status-click)
    (define-key map [mouse-2] #'pyagentd-status-click)
    (define-key map [down-mouse-1] #'ignore) ; else it sets point first
    map)
  "Keymap of the keys in a notice, which can be clicked.")

(defun pyagentd-ask-notice--button (command words)
  "Return the key of COMMAND with WORDS; a click on it runs COMMAND."
  (let ((text (string-trim-right
               (concat (pyagentd-ask-notice--key command) " " words))))
    (add-text-properties
     0 (length text)
     (list 'pyagentd-command command 'mouse-face 'highlight
           'help-echo (format "mouse-1: M-x %s" command)
           'keymap pyagentd-ask-notice-button-map)
     text)
    text))

(defun pyagentd-ask-notice--how (ask)
  "Return the line that says where the keys for ASK work."
  (cond ((pyagentd-ask-question-p ask) "")
        (pyagentd-ask-notice--focus
         (propertize "Press a key, or q to leave the question:\n"
                     'face 'pyagentd-heading))
        (t (concat (propertize "C-c C-c" 'face 'pyagentd-key)
                   (propertize " goes to the question; there:\n"
                               'face 'shadow)))))

(defun pyagentd-ask-notice-keys (ask several)
  "Return the lines that name the keys for ASK, one of SEVERAL or not."
  (let ((offered (pyagentd-ask-notice--offered ask several)))
    (mapconcat
     (pcase-lambda (`(,word . ,entries))
       (when-let ((entries (seq-filter (lambda (entry)
                                         (memq (car entry) offered))
                                       entries)))
         (concat (propertize word 'face 'shadow) "  "
                 (mapconcat
                  (pcase-lambda (`(,condition ,command ,words))
                    (pyagentd-ask-notice--button
                     command (if (and (eq condition 'always)
                                      (pyagentd-ask-scope-p ask))
                                 "add to the scope"
                               words)))
                  entries "  ")
                 "\n")))
     pyagentd-ask-notice--keys "")))

;;;; Point on the question

(defun pyagentd-ask-go ()
  "Go to the open question here; there, its keys answer it.
A model's own questions are shown in a form."
  (interactive)
  (let ((ask (or (pyagentd-ask-notice-current)
                 (user-error "No question is open here"))))
    (if (pyagentd-ask-question-p ask)
        (pyagentd-question-open ask)
      (pyagentd-ask-notice--enter ask))))

(defun pyagentd-ask-notice--enter (ask)
  "Put point on the question ASK, and let the keys there answer it."
  (let ((base (or (buffer-base-buffer) (current-buffer))))
    (unless (eq base (current-buffer))
      (pop-to-buffer base)))
  (pyagentd-ask-notice-select ask)
  (let ((back (if pyagentd-ask-notice--focus
                  (overlay-get pyagentd-ask-notice--focus 'pyagentd-ask-back)
                (point-marker)))
        (position (overlay-start pyagentd-ask-notice--overlay)))
    (pyagentd-ask-notice--unfocus)
    (unless (<= (point-min) position (point-max)) (widen))
    (goto-char position)
    ;; An empty one whose end advances has its keymap at its position.
    (let ((focus (make-overlay position position nil nil t)))
      (overlay-put focus 'keymap pyagentd-ask-notice-map)
      (overlay-put focus 'pyagentd-ask-id (pyagentd-ask-id ask))
      (overlay-put focus 'pyagentd-ask-back back)
      (setq pyagentd-ask-notice--focus focus))
    (add-hook 'post-command-hook #'pyagentd-ask-notice--stay nil t)
    (add-hook 'window-selection-change-functions
              #'pyagentd-ask-notice--stay nil t)
    (pyagentd-ask-notice-refresh)))

(defun pyagentd-ask-notice--unfocus ()
  "Let keys be those of the text again."
  (when pyagentd-ask-notice--focus
    (delete-overlay pyagentd-ask-notice--focus)
    (setq pyagentd-ask-notice--focus nil)
    (remove-hook 'post-command-hook #'pyagentd-ask-notice--stay t)
    (remove-hook 'window-selection-change-functions
                 #'pyagentd-ask-notice--stay t)))

(defun pyagentd-ask-notice--stay (&rest _)
  "Let keys be those of the text again unless point is on the question."
  (when (and pyagentd-ask-notice--focus
             (not (minibufferp (window-buffer))) ; where more is asked
             (not (and (eq (current-buffer) (window-buffer))
                       (eql (point)
                            (overlay-start pyagentd-ask-notice--focus)))))
    (pyagentd-ask-notice--unfocus)
    (pyagentd-ask-notice-refresh)))

(defun pyagentd-ask-leave ()
  "Leave the question open and go back to where point was."
  (interactive)
  (when-let ((focus pyagentd-ask-notice--focus))
    (let ((here (overlay-start focus))
          (back (overlay-get focus 'pyagentd-ask-back)))
      (pyagentd-ask-notice--unfocus)
      (dolist (window (get-buffer-window-list nil nil t))
        (when (= here (window-point window))
          (set-window-point window back)))
      (when (= here (point))
        (goto-char back))
      (set-marker back nil)))
  (pyagentd-ask-notice-refresh))

(defun pyagentd-ask-notice-no-key ()
  "Say that the key just typed does nothing on a question."
  (interactive)
  (message "%s does nothing on a question; q leaves it"
           (key-description (this-command-keys))))

(defun pyagentd-ask-notice--focus-lost-p ()
  "Return non-nil if point is on a question that is not the one shown."
  (and pyagentd-ask-notice--focus
       (not (equal (overlay-get pyagentd-ask-notice--focus 'pyagentd-ask-id)
                   pyagentd-ask-notice--current))))

;;;; The notice

(defun pyagentd-ask-notice--text (current asks)
  "Return the notice about ASKS, of which the keys answer CURRENT."
  (concat "\n" pyagentd-rule
          (pyagentd-ask-text-head current (seq-position asks current)
                                     (length asks))
          (pyagentd-ask-text current)
          (pyagentd-ask-text-others asks current)
          (if (pyagentd-ask-answered-p current)
              (propertize "Answered; the daemon has yet to say so\n"
                          'face 'shadow)
            (concat (pyagentd-ask-notice--how current)
                    (pyagentd-ask-notice-keys current (cdr asks))))
          pyagentd-rule))

(defun pyagentd-ask-notice--rows (text width)
  "Return how many rows TEXT takes in a window that is WIDTH columns wide."
  (apply #'+ (mapcar (lambda (line)
                       (max 1 (ceiling (string-width line) (max 1 width))))
                     (split-string (string-trim-right text "\n") "\n"))))

(defun pyagentd-ask-notice--fitted (current asks)
  "Return the notice about ASKS and CURRENT, short enough for its window.
What does not fit below the top of a window cannot be scrolled to."
  (let* ((text (pyagentd-ask-notice--text current asks))
         (window (get-buffer-window nil 'visible))
         (excess (pyagentd-ask-notice--excess text window))
         (fitted (if (<= excess 0) text
                   (pyagentd-ask-text-shorter (plist-get current :preview)
                       excess
                     (pyagentd-ask-notice--text current asks)))))
    (if window
        (pyagentd-ask-notice--wrap fitted (1- (window-body-width window)))
      fitted)))

(defun pyagentd-ask-notice--wrap (text width)
  "Return TEXT in lines of at most WIDTH columns, broken at spaces if possible.
Emacs would draw the cursor in a line that it has to continue itself."
  (with-temp-buffer
    (insert text)
    (goto-char (point-min))
    (while (not (eobp))
      (when (> (move-to-column width) (1- width))
        (unless (eolp)
          (let ((end (point)))
            (skip-chars-backward "^ \n")
            (when (save-excursion (skip-chars-backward " ") (bolp))
              (goto-char end))
            (insert (propertize "\n" 'face (get-text-property (1- (point))
                                                              'face)))
            (forward-line -1))))
      (forward-line 1))
    (buffer-string)))

(defun pyagentd-ask-notice--excess (text window)
  "Return how many rows TEXT has more than WINDOW, which may be nil."
  (if window
      (- (pyagentd-ask-notice--rows text (window-body-width window))
         (- (window-body-height window) 2))
    0))

(defun pyagentd-ask-notice--reveal (position)
  "Scroll the windows whose point is at POSITION so that they show the notice."
  (dolist (window (get-buffer-window-list nil nil 'visible))
    (when (= position (window-point window))
      (with-selected-window window
        (let ((room (- (window-body-height)
                       (pyagentd-ask-notice--rows
                        (overlay-get pyagentd-ask-notice--overlay 'before-string)
                        (window-body-width))
                       1)))
          (when (> (count-screen-lines (window-start) position) room)
            (recenter (max 0 room))))))))

(defun pyagentd-ask-notice-current ()
  "Return the ask that keys in this buffer answer, or nil."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (let ((asks (pyagentd-ask-in (current-buffer))))
      (or (seq-find (lambda (ask)
                      (equal (pyagentd-ask-id ask) pyagentd-ask-notice--current))
                    asks)
          (car asks)))))

(defun pyagentd-ask-notice-select (ask)
  "Let the keys in this buffer answer ASK."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (setq pyagentd-ask-notice--current (pyagentd-ask-id ask))
    (when pyagentd-ask-notice--focus
      (overlay-put pyagentd-ask-notice--focus 'pyagentd-ask-id
                   pyagentd-ask-notice--current))
    (pyagentd-ask-notice-refresh)))

(defun pyagentd-ask-notice--move ()
  "Put the notice of this buffer below the text of the run."
  (when pyagentd-ask-notice--overlay
    (let ((position (pyagentd-insert-end)))
      (move-overlay pyagentd-ask-notice--overlay position position)
      (when pyagentd-ask-notice--focus
        (let ((here (= (point) (overlay-start pyagentd-ask-notice--focus))))
          (move-overlay pyagentd-ask-notice--focus position position)
          (when here (goto-char position)))))))

(defun pyagentd-ask-notice--delete ()
  "Remove the notice from this buffer."
  (when pyagentd-ask-notice--focus
    (pyagentd-ask-leave))
  (when pyagentd-ask-notice--overlay
    (delete-overlay pyagentd-ask-notice--overlay)
    (setq pyagentd-ask-notice--overlay nil
          pyagentd-ask-notice--current nil)
    (remove-hook 'pyagentd-insert-hook #'pyagentd-ask-notice--move t)
    (remove-hook 'window-size-change-functions
                 #'pyagentd-ask-notice--resized t)
    (pyagentd-ask-mode -1)))

(defun pyagentd-ask-notice-refresh ()
  "Show in this buffer what is asked, if anything is."
  (if-let ((current (pyagentd-ask-notice-current)))
      (progn
        (setq pyagentd-ask-notice--current (pyagentd-ask-id current))
        (when (pyagentd-ask-notice--focus-lost-p)
          (pyagentd-ask-leave))
        (unless pyagentd-ask-notice--overlay
          (setq pyagentd-ask-notice--overlay
                (make-overlay (point-min) (point-min) nil t))
          (add-hook 'pyagentd-insert-hook #'pyagentd-ask-notice--move nil t)
          (add-hook 'window-size-change-functions
                    #'pyagentd-ask-notice--resized nil t)
          (pyagentd-ask-mode))
        (overlay-put pyagentd-ask-notice--overlay 'pyagentd-ask
                     pyagentd-ask-notice--current)
        (overlay-put pyagentd-ask-notice--overlay 'before-string
                     (pyagentd-ask-notice--fitted
                      current (pyagentd-ask-in (current-buffer))))
        (pyagentd-ask-notice--move)
        (pyagentd-ask-notice--reveal (pyagentd-insert-end)))
    (pyagentd-ask-notice--delete)))

(defun pyagentd-ask-notice--resized (window)
  "Make the notice fit WINDOW, whose size has changed, after redisplay."
  (run-at-time 0 nil #'pyagentd-ask-notice--fit (window-buffer window)))

(defun pyagentd-ask-notice--fit (buffer)
  "Make the notice in BUFFER fit its window."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when pyagentd-ask-notice--overlay
        (pyagentd-ask-notice-refresh)))))

(put 'pyagentd-ask-notice--resized 'permanent-local-hook t)

(defun pyagentd-ask-notice--refresh-all ()
  "Show in the session buffers what is asked; in others nothing has changed."
  (let ((asking (seq-mapcat #'pyagentd-ask-buffers (pyagentd-ask-open))))
    (dolist (buffer (pyagentd-place-buffers))
      (when (or (memq buffer asking)
                (buffer-local-value 'pyagentd-ask-notice--overlay buffer))
        (with-current-buffer buffer
          (pyagentd-ask-notice-refresh)
          (pyagentd-status-refresh))))))

(defun pyagentd-ask-notice-visible-p (buffer)
  "Return non-nil if a window shows the notice in BUFFER.
A window whose point is there will, once it is displayed."
  (when-let* ((overlay (buffer-local-value 'pyagentd-ask-notice--overlay buffer))
              (position (overlay-start overlay)))
    (seq-some (lambda (window)
                (or (= position (window-point window))
                    (pos-visible-in-window-p position window)))
              (get-buffer-window-list buffer nil 'visible))))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-ask-notice--refresh-all)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-ask-notice--delete)

(provide 'pyagentd-ask-notice)
;;; pyagentd-ask-notice.el ends here

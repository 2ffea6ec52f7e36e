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
;; shows one ask in full, which the keys answer, and the others in a line
;; each; a key moves on to the next.  It changes no text, and goes when
;; nothing is asked any more.

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

(pyagentd-permanent-local 'pyagentd-ask-notice--overlay
                          'pyagentd-ask-notice--current)

(defvar pyagentd-ask-mode-map (make-sparse-keymap)
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
  '(("Answer" (answer pyagentd-answer "in a form"))
    ("Allow" (allow pyagentd-allow-once "once")
     (session pyagentd-allow-session "this session")
     (always pyagentd-allow-always "this project")
     (edit pyagentd-ask-edit "edited"))
    ("Deny " (deny pyagentd-deny "")
     (deny pyagentd-deny-with-reason "with a reason")
     (own pyagentd-abort "abort the run")
     (agent pyagentd-abort "abort this agent"))
    ("Look " (diff pyagentd-ask-diff "diff")
     (t pyagentd-ask-show "all of it")
     (several pyagentd-ask-next "next")))
  "Lines of keys: a word and (CONDITION COMMAND WORDS) for each command.")

(defun pyagentd-ask-notice--offered (ask several)
  "Return the conditions of keys that hold for ASK, one of SEVERAL or not."
  (append (pyagentd-ask-keys-offered ask)
          (and several '(several))
          (list (if (plist-get ask :agent) 'agent 'own))))

(defun pyagentd-ask-notice--key (command)
  "Return the key of COMMAND in a session buffer."
  (propertize (if-let ((keys (where-is-internal
                              command (list pyagentd-ask-mode-map
                                            pyagentd-mode-map)
                              t)))
                  (key-description keys)
                (format "M-x %s" command))
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
            (pyagentd-ask-notice-keys current (cdr asks)))
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
         (brief (if (<= (pyagentd-ask-notice--excess text window) 0) text
                  (pyagentd-ask-text-brief
                    (pyagentd-ask-notice--text current asks))))
         (excess (pyagentd-ask-notice--excess brief window))
         (fitted (if (<= excess 0) brief
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

(defun pyagentd-ask-notice-shown ()
  "Return the notice of this buffer as it is shown, nil if there is none."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (and pyagentd-ask-notice--overlay
         (overlay-get pyagentd-ask-notice--overlay 'before-string))))

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
    (pyagentd-ask-notice-refresh)))

(defun pyagentd-ask-notice--move ()
  "Put the notice of this buffer at the marker of the run."
  (when pyagentd-ask-notice--overlay
    (let ((position (pyagentd-insert-position)))
      (move-overlay pyagentd-ask-notice--overlay position position))))

(defun pyagentd-ask-notice--delete ()
  "Remove the notice from this buffer."
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
        (pyagentd-ask-notice--reveal (pyagentd-insert-position)))
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

;;; pyagentd-turns.el --- Prompts and answers -*- lexical-binding: t; -*-

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

;; Where the prompts and the answers of a conversation stand, and how to
;; go from one to the other: by keys, like functions of a program, or with
;; Imenu.  The roles of the text say which is which.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-session)

;;;; Where they are

(defun pyagentd-turns--trim (beg end)
  "Return where the prompt is in the user's text from BEG to END, or nil.
That is without the white space and the prefix around it."
  (save-excursion
    (goto-char beg)
    (skip-chars-forward " \t\n" end)
    (when (looking-at (regexp-quote (string-trim pyagentd-prompt-prefix)))
      (goto-char (min end (match-end 0)))
      (skip-chars-forward " \t\n" end))
    (let ((start (point)))
      (goto-char end)
      (skip-chars-backward " \t\n" start)
      (and (> (point) start) (cons start (point))))))

(defun pyagentd-turns-prompts (&optional beg end)
  "Return where the prompts are between BEG and END, by default everywhere.
The value is a list of (BEG . END), first one first."
  (save-restriction
    (widen)
    (let ((pos (or beg (point-min)))
          (last (or end (point-max)))
          prompts)
      (while (< pos last)
        (let ((next (next-single-property-change pos 'gptel nil last)))
          (unless (get-text-property pos 'gptel)
            (when-let ((prompt (pyagentd-turns--trim pos next)))
              (push prompt prompts)))
          (setq pos next)))
      (nreverse prompts))))

(defun pyagentd-turns--answer (prompt)
  "Return where the answer to PROMPT, (BEG . END), begins, or nil."
  (save-restriction
    (widen)
    (let ((pos (next-single-property-change (car prompt) 'gptel)))
      (when pos
        (save-excursion
          (goto-char pos)
          (skip-chars-forward "\n")
          (point))))))

(defun pyagentd-turns-answers ()
  "Return where the answers begin, a list of positions, first one first."
  (delq nil (mapcar #'pyagentd-turns--answer (pyagentd-turns-prompts))))

(defun pyagentd-turns-answered ()
  "Return where the last answer ends, the beginning of the text without one."
  (save-restriction
    (widen)
    (let ((pos (point-max)))
      (while (and (> pos (point-min))
                  (null (get-text-property (1- pos) 'gptel)))
        (setq pos (previous-single-property-change pos 'gptel nil
                                                   (point-min))))
      pos)))

(defun pyagentd-turns-draft ()
  "Return where the prompt is that is being written, (BEG . END), or nil."
  (save-restriction
    (widen)
    (pyagentd-turns--trim (pyagentd-turns-answered) (point-max))))

(defun pyagentd-turns-words (prompt)
  "Return the first line of PROMPT, (BEG . END)."
  (save-excursion
    (goto-char (car prompt))
    (truncate-string-to-width
     (buffer-substring-no-properties
      (car prompt) (min (cdr prompt) (line-end-position)))
     70 nil nil "…")))

;;;; Going there

(defun pyagentd-turns--require ()
  "Signal a `user-error' unless this is a session."
  (unless (bound-and-true-p pyagentd-mode)
    (user-error "Not a session")))

(defun pyagentd-turns--go (positions count what)
  "Go to the COUNTth of POSITIONS after point, before it if COUNT is negative.
WHAT is what they are called."
  (let* ((here (point))
         (ahead (if (> count 0)
                    (seq-filter (lambda (pos) (> pos here)) positions)
                  (nreverse (seq-filter (lambda (pos) (< pos here))
                                        positions))))
         (to (nth (1- (abs count)) ahead)))
    (unless to
      (user-error (if (> count 0) "No %s below" "No %s above") what))
    (unless (memq last-command '(pyagentd-next-answer pyagentd-previous-answer
                                 pyagentd-next-prompt pyagentd-previous-prompt))
      (push-mark nil t))
    (goto-char to)
    (when (eq (window-buffer) (current-buffer))
      (recenter (min 2 (/ (window-height) 4))))))

(defun pyagentd-next-answer (&optional count)
  "Go to the beginning of the next answer, or of the COUNTth."
  (interactive "p")
  (pyagentd-turns--require)
  (pyagentd-turns--go (pyagentd-turns-answers) (or count 1) "answer"))

(defun pyagentd-previous-answer (&optional count)
  "Go to the beginning of the answer at point or before it, COUNT times."
  (interactive "p")
  (pyagentd-next-answer (- (or count 1))))

(defun pyagentd-next-prompt (&optional count)
  "Go to the next prompt of yours, or to the COUNTth."
  (interactive "p")
  (pyagentd-turns--require)
  (pyagentd-turns--go (mapcar #'car (pyagentd-turns-prompts)) (or count 1)
                      "prompt"))

(defun pyagentd-previous-prompt (&optional count)
  "Go to the prompt of yours at point or before it, COUNT times."
  (interactive "p")
  (pyagentd-next-prompt (- (or count 1))))

(defvar pyagentd-turns-repeat-map
  (let ((map (make-sparse-keymap)))
    (define-key map "]" #'pyagentd-next-answer)
    (define-key map "[" #'pyagentd-previous-answer)
    map)
  "Keymap to go on with after one of its commands, in `repeat-mode'.")

(put 'pyagentd-next-answer 'repeat-map 'pyagentd-turns-repeat-map)
(put 'pyagentd-previous-answer 'repeat-map 'pyagentd-turns-repeat-map)

;;;; As functions of a program

(defun pyagentd-turns--beginning (&optional count)
  "Go COUNT turns back; for `beginning-of-defun-function'."
  (let* ((count (or count 1))
         (starts (mapcar (lambda (prompt)
                           (save-excursion (goto-char (car prompt))
                                           (line-beginning-position)))
                         (pyagentd-turns-prompts)))
         (ahead (if (> count 0)
                    (nreverse (seq-filter (lambda (pos) (< pos (point)))
                                          starts))
                  (seq-filter (lambda (pos) (> pos (point))) starts)))
         (to (nth (1- (abs count)) ahead)))
    (goto-char (or to (if (> count 0) (point-min) (point-max))))
    (and to t)))

(defun pyagentd-turns--end ()
  "Go to the end of the turn that begins at point; for `end-of-defun-function'."
  (let ((next (seq-find (lambda (prompt) (> (car prompt) (line-end-position)))
                        (pyagentd-turns-prompts (point)))))
    (goto-char (if next (car next) (point-max)))
    (when next
      (forward-line 0))))

;;;; Imenu

(defun pyagentd-turns--headings (prompts)
  "Return the headings of the answers between PROMPTS for Imenu."
  (save-excursion
    (let (found)
      (goto-char (point-min))
      (while (re-search-forward "^#+ +\\(.+\\)$" nil t)
        (when (eq (get-text-property (match-beginning 0) 'gptel) 'response)
          (push (cons (match-string-no-properties 1)
                      (pyagentd-turns--place (match-beginning 0)))
                found)))
      (and prompts (nreverse found)))))

(defun pyagentd-turns--place (pos)
  "Return POS as Imenu wants it."
  (if (bound-and-true-p imenu-use-markers) (copy-marker pos) pos))

(defun pyagentd-turns-index ()
  "Return the prompts, and the headings of answers, for Imenu."
  (save-restriction
    (widen)
    (let* ((number 0)
           (prompts (pyagentd-turns-prompts))
           (headings (pyagentd-turns--headings prompts)))
      (append
       (mapcar (lambda (prompt)
                 (cons (format "%d  %s" (setq number (1+ number))
                               (pyagentd-turns-words prompt))
                       (pyagentd-turns--place (car prompt))))
               prompts)
       (and headings (list (cons "Headings" headings)))))))

;;;; Where they are used

(dolist (setting '((beginning-of-defun-function . pyagentd-turns--beginning)
                   (end-of-defun-function . pyagentd-turns--end)
                   (imenu-create-index-function . pyagentd-turns-index)
                   (imenu-auto-rescan . t)))
  (add-to-list 'pyagentd-session-settings setting))

(define-key pyagentd-mode-map (kbd "C-c ]") #'pyagentd-next-answer)
(define-key pyagentd-mode-map (kbd "C-c [") #'pyagentd-previous-answer)

(provide 'pyagentd-turns)
;;; pyagentd-turns.el ends here

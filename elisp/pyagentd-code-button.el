;;; pyagentd-code-button.el --- A button that copies a block of code -*- lexical-binding: t; -*-

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

;; The first line of a block of code in an answer has a button at its end.
;; It appears when the text is displayed and the block is complete; what
;; is still being written costs nothing.  There are only so many: those
;; far from what is seen go, and come again.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-code)

(defcustom pyagentd-code-buttons t
  "Whether to show a button that copies each block of code in answers.
\\<pyagentd-mode-map>\\[pyagentd-copy-code] copies them without one."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defconst pyagentd-code-button--most 200
  "Greatest number of buttons in a buffer.")

(defconst pyagentd-code-button--reach 10000
  "How far from what is displayed the fences of a block are looked for.")

(defvar-local pyagentd-code-button--all nil
  "The overlays of buttons in this buffer, latest first.")

(pyagentd-permanent-local 'pyagentd-code-button--all)

(defvar pyagentd-code-button-map
  (let ((map (make-sparse-keymap)))
    (define-key map [mouse-1] #'pyagentd-code-button-push)
    (define-key map [mouse-2] #'pyagentd-code-button-push)
    (define-key map [down-mouse-1] #'ignore) ; else it sets point first
    map)
  "Keymap of a button.")

(defun pyagentd-code-button-push (event)
  "Copy the block of code whose button was clicked in EVENT."
  (interactive "e")
  (with-selected-window (posn-window (event-start event))
    (save-excursion
      (goto-char (posn-point (event-start event)))
      (pyagentd-copy-code))))

(defun pyagentd-code-button--text ()
  "Return the button."
  (concat "  " (propertize "copy" 'face 'pyagentd-key
                           'mouse-face 'highlight
                           'help-echo "mouse-1: copy this block"
                           'keymap pyagentd-code-button-map)))

;;;; Where they are

(defun pyagentd-code-button--there-p (pos)
  "Return non-nil if the line with POS has a button."
  (seq-some (lambda (overlay) (overlay-get overlay 'pyagentd-code-button))
            (overlays-at pos)))

(defun pyagentd-code-button--make (block)
  "Give BLOCK, (BEG END LANGUAGE), a button, unless it has one."
  (save-excursion
    (goto-char (car block))
    (forward-line -1)
    (unless (or (eolp) (pyagentd-code-button--there-p (point)))
      (let ((overlay (make-overlay (point) (line-end-position) nil t nil)))
        (overlay-put overlay 'evaporate t)
        (overlay-put overlay 'pyagentd-code-button t)
        (overlay-put overlay 'after-string (pyagentd-code-button--text))
        (push overlay pyagentd-code-button--all)))))

(defun pyagentd-code-button--start (pos answer)
  "Return where to look from for the block with POS in ANSWER, (BEG . END).
In a long answer that is a fence not far above which begins a block, as
one that names a language does."
  (let ((start (- pos pyagentd-code-button--reach)))
    (if (<= start (car answer)) (car answer)
      (save-excursion
        (goto-char start)
        (forward-line 0)
        (if (re-search-forward "^[ \t]*\\(?:```\\|~~~\\)[`~]* ?[[:alnum:]]" pos t)
            (line-beginning-position)
          (point))))))

(defun pyagentd-code-button--near (pos end)
  "Return the blocks of the answer with POS around it, and up to END."
  (let ((answer (pyagentd-code--answer pos)))
    (pyagentd-code-blocks (pyagentd-code-button--start pos answer)
                          (min (cdr answer)
                               (+ end pyagentd-code-button--reach)))))

(defun pyagentd-code-button--blocks (beg end)
  "Return the complete blocks of code with a fence between BEG and END."
  (goto-char beg)
  (let (blocks)
    (while (re-search-forward pyagentd-code--fence end t)
      (when (eq (get-text-property (match-beginning 0) 'gptel) 'response)
        (let ((pos (match-beginning 0)))
          (setq blocks (append (seq-filter
                                (lambda (block)
                                  (and (<= (- (car block) 200) end)
                                       (<= beg (+ (nth 1 block) 200))))
                                (pyagentd-code-button--near pos end))
                               blocks))
          (goto-char (min end (cdr (pyagentd-code--answer pos)))))))
    blocks))

(defun pyagentd-code-button--find (beg end &rest _)
  "Give blocks of code with a fence between BEG and END their buttons."
  (when pyagentd-code-buttons
    (save-excursion
      (save-match-data
        (goto-char end)
        (let ((end (line-end-position)))
          (goto-char beg)
          (forward-line 0)
          (mapc #'pyagentd-code-button--make
                (pyagentd-code-button--blocks (point) end)))))
    (pyagentd-code-button--trim)))

;;;; Not too many

(defun pyagentd-code-button--seen-p (overlay)
  "Return non-nil if OVERLAY is near to what a window shows."
  (when-let ((pos (overlay-start overlay)))
    (seq-some (lambda (window)
                (<= (- (window-start window) 10000) pos
                    (+ (window-start window) 20000)))
              (get-buffer-window-list nil nil t))))

(defun pyagentd-code-button--forget (overlay)
  "Remove OVERLAY; it is made again when its text is displayed."
  (when-let ((beg (overlay-start overlay)))
    (with-silent-modifications
      (put-text-property beg (overlay-end overlay) 'fontified nil)))
  (delete-overlay overlay))

(defun pyagentd-code-button--trim ()
  "Remove buttons if there are too many."
  (when (> (length pyagentd-code-button--all) pyagentd-code-button--most)
    (let (kept)
      (dolist (overlay pyagentd-code-button--all)
        (if (pyagentd-code-button--seen-p overlay)
            (push overlay kept)
          (pyagentd-code-button--forget overlay)))
      (setq pyagentd-code-button--all (nreverse kept)))))

;;;; Where it is used

(defun pyagentd-code-button--set-up ()
  "Have blocks of code found in this buffer, or forget them with the mode."
  (if (bound-and-true-p pyagentd-mode)
      (jit-lock-register #'pyagentd-code-button--find)
    (jit-lock-unregister #'pyagentd-code-button--find)
    (mapc #'delete-overlay pyagentd-code-button--all)
    (setq pyagentd-code-button--all nil)))

(defun pyagentd-code-button--after-major-mode ()
  "Have blocks found again in a session whose major mode has changed."
  (when (bound-and-true-p pyagentd-mode)
    (pyagentd-code-button--set-up)))

(add-hook 'pyagentd-mode-hook #'pyagentd-code-button--set-up)
(add-hook 'after-change-major-mode-hook
          #'pyagentd-code-button--after-major-mode)

(provide 'pyagentd-code-button)
;;; pyagentd-code-button.el ends here

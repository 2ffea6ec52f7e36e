;;; pyagentd-fold.el --- Fold blocks -*- lexical-binding: t; -*-

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

;; What the model thought, and what its tools were asked and answered,
;; stands in the text in fences.  Here each of them is folded into one
;; line, which TAB or a click unfolds.
;;
;; The lines are overlays that appear when the text is displayed: neither
;; undo nor saving knows of them, and text that is folded is not fontified.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-insert)

(defcustom pyagentd-fold '(reasoning tool)
  "Which blocks of a conversation are folded into a line when they appear.
The symbol `reasoning' stands for what a model thought, `tool' for what a
tool was asked and answered.  Nil folds nothing by itself.
\\<pyagentd-mode-map>\\[pyagentd-fold-toggle] folds and unfolds."
  :type '(set (const :tag "What the model thought" reasoning)
              (const :tag "Calls of tools" tool))
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defface pyagentd-fold '((t :inherit shadow))
  "Face of the line that stands for a folded block."
  :group 'pyagentd)

(defvar pyagentd-fold-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'pyagentd-fold-toggle)
    (define-key map (kbd "<tab>") #'pyagentd-fold-toggle)
    (define-key map [mouse-1] #'pyagentd-fold-toggle)
    (define-key map [mouse-2] #'pyagentd-fold-toggle)
    map)
  "Keymap of the first line of a block.")

;;;; Blocks

(defconst pyagentd-fold--open "^``` \\(?:\\(tool\\) (\\|\\(reasoning\\)$\\)"
  "How the first line of a block begins.")

(defun pyagentd-fold--change (pos)
  "Return where the role of the text at POS ends."
  (let ((role (get-text-property pos 'gptel)))
    (while (and (setq pos (next-single-property-change pos 'gptel nil
                                                       (point-max)))
                (< pos (point-max))
                (equal role (get-text-property pos 'gptel))))
    pos))

(defun pyagentd-fold--end (pos kind)
  "Return where the block of KIND that begins at POS ends, nil if it is open."
  (let ((end (pyagentd-fold--change pos)))
    (when (eq kind 'tool)
      (setq end (and (consp (get-text-property end 'gptel))
                     (+ 4 (pyagentd-fold--change end)))))
    (and end (<= end (point-max))
         (equal (buffer-substring-no-properties (max pos (- end 4)) end)
                "\n```")
         end)))

(defun pyagentd-fold--block (pos)
  "Return the block whose first line begins at POS, (KIND BEG EOL END), or nil.
One that is still being written is none."
  (save-excursion
    (goto-char pos)
    (save-match-data
      (when (and (eq (get-text-property pos 'gptel) 'ignore)
                 (looking-at pyagentd-fold--open))
        (let* ((kind (if (match-beginning 1) 'tool 'reasoning))
               (end (pyagentd-fold--end pos kind)))
          (when (and end (< (line-end-position) end))
            (list kind pos (line-end-position) end)))))))

(defun pyagentd-fold--output (eol end)
  "Return how to say how much text is in a block between EOL and END."
  (save-excursion
    (goto-char (1+ eol))
    (when (looking-at "(:name ")
      (forward-line 1)
      (skip-chars-forward "\n" end))
    (let ((lines (count-lines (min (point) (- end 4)) (max eol (- end 4)))))
      (if (= lines 1) "1 line" (format "%d lines" lines)))))

(defun pyagentd-fold--words (kind beg eol end)
  "Return the line for a block of KIND from BEG to END; its first ends at EOL."
  (concat
   "▸ "
   (pcase kind
     ('reasoning "thought")
     (_ (replace-regexp-in-string
         "\\`(\\|)\\'" ""
         (buffer-substring-no-properties (+ beg (length "``` tool ")) eol))))
   (propertize (concat "  " (pyagentd-fold--output eol end))
               'face 'italic)))

;;;; Overlays

(defun pyagentd-fold--set (overlay fold)
  "Fold the block with the first line OVERLAY, or unfold it unless FOLD."
  (let ((body (overlay-get overlay 'pyagentd-fold-body)))
    (overlay-put overlay 'pyagentd-folded fold)
    (overlay-put overlay 'display
                 (and fold (pyagentd-fold--words
                            (overlay-get overlay 'pyagentd-fold-kind)
                            (overlay-start overlay) (overlay-end overlay)
                            (overlay-end body))))
    (overlay-put overlay 'face (and fold 'pyagentd-fold))
    (overlay-put body 'invisible (and fold 'pyagentd-fold))))

(defun pyagentd-fold--draw (kind beg eol end)
  "Make the block of KIND from BEG to END foldable; its first line ends at EOL."
  (let ((line (make-overlay beg eol nil t nil))
        (body (make-overlay eol end nil t nil)))
    (add-to-invisibility-spec 'pyagentd-fold)
    (dolist (overlay (list line body))
      (overlay-put overlay 'evaporate t)
      (overlay-put overlay 'pyagentd-fold t))
    (overlay-put line 'pyagentd-fold-body body)
    (overlay-put line 'pyagentd-fold-kind kind)
    (overlay-put line 'mouse-face 'highlight)
    (overlay-put line 'keymap pyagentd-fold-map)
    (overlay-put line 'help-echo "TAB, mouse-1: show or hide the rest")
    (overlay-put body 'isearch-open-invisible
                 (lambda (_) (pyagentd-fold--set line nil)))
    (pyagentd-fold--set line (and (memq kind pyagentd-fold) t))
    line))

(defun pyagentd-fold--line-at (pos)
  "Return the overlay of the first line of a block that begins at POS, or nil."
  (seq-find (lambda (overlay)
              (and (overlay-get overlay 'pyagentd-fold-kind)
                   (= (overlay-start overlay) pos)))
            (overlays-in pos (1+ pos))))

(defun pyagentd-fold--find (beg end &rest _)
  "Make the blocks foldable that begin between BEG and END."
  (save-excursion
    (save-match-data
      (goto-char beg)
      (forward-line 0)
      (while (re-search-forward pyagentd-fold--open end t)
        (let ((start (match-beginning 0)))
          (unless (pyagentd-fold--line-at start)
            (when-let ((block (pyagentd-fold--block start)))
              (apply #'pyagentd-fold--draw block))))))))

(defun pyagentd-fold--on-insert ()
  "Make the block foldable that was just completed, if one was.
The text counts as fontified, so that nobody may look at it again."
  (save-restriction
    (widen)
    (let ((pos (pyagentd-insert-position)))
      (when (eq (char-before pos) ?\n)
        (setq pos (1- pos)))
      (when (and (> pos 4) (eq (get-text-property (1- pos) 'gptel) 'ignore)
                 (equal (buffer-substring-no-properties (- pos 4) pos)
                        "\n```"))
        (when-let ((start (pyagentd-fold--start (1- pos))))
          (pyagentd-fold--find start (min (point-max) (+ start 200))))))))

(defun pyagentd-fold--start (pos)
  "Return where the block begins that has POS in it or in its last line."
  (save-excursion
    (goto-char pos)
    (end-of-line)
    (let (start)
      (while (and (not start)
                  (re-search-backward pyagentd-fold--open nil t)
                  (get-text-property (point) 'gptel))
        (if-let ((block (pyagentd-fold--block (point))))
            (setq start (if (<= pos (nth 3 block)) (point) -1))
          (when (bobp) (setq start -1))))
      (and start (> start 0) start))))

;;;; Commands

(defun pyagentd-fold-toggle (&optional event)
  "Fold or unfold the block at point, or the one that was clicked in EVENT.
With a prefix argument do so with all blocks of the buffer."
  (interactive (list last-nonmenu-event))
  (if current-prefix-arg
      (pyagentd-fold-toggle-all)
    (let* ((pos (if (mouse-event-p event) (posn-point (event-end event))
                  (point)))
           (start (or (pyagentd-fold--start pos)
                      (user-error "No block of a tool or of thoughts here")))
           (line (or (pyagentd-fold--line-at start)
                     (apply #'pyagentd-fold--draw
                            (pyagentd-fold--block start))))
           (fold (not (overlay-get line 'pyagentd-folded))))
      (when fold (goto-char start))
      (pyagentd-fold--set line fold))))

(defun pyagentd-fold-toggle-all ()
  "Unfold all blocks of tools and of thoughts, or fold them if none is folded."
  (interactive)
  (save-restriction
    (widen)
    (pyagentd-fold--find (point-min) (point-max))
    (let* ((lines (seq-filter (lambda (overlay)
                                (overlay-get overlay 'pyagentd-fold-kind))
                              (overlays-in (point-min) (point-max))))
           (fold (not (seq-some (lambda (overlay)
                                  (overlay-get overlay 'pyagentd-folded))
                                lines))))
      (dolist (line lines)
        (pyagentd-fold--set line fold)))))

;;;; Where it is used

(defun pyagentd-fold--set-up ()
  "Have blocks found in this buffer, or forget them with the mode."
  (if (bound-and-true-p pyagentd-mode)
      (jit-lock-register #'pyagentd-fold--find)
    (jit-lock-unregister #'pyagentd-fold--find)
    (save-restriction
      (widen)
      (remove-overlays nil nil 'pyagentd-fold t))))

(defun pyagentd-fold--after-major-mode ()
  "Have blocks found again in a session whose major mode has changed."
  (when (bound-and-true-p pyagentd-mode)
    (pyagentd-fold--set-up)))

(add-hook 'pyagentd-insert-hook #'pyagentd-fold--on-insert)
(add-hook 'pyagentd-mode-hook #'pyagentd-fold--set-up)
;; A change of the major mode takes the registration away.
(add-hook 'after-change-major-mode-hook #'pyagentd-fold--after-major-mode)

(define-key pyagentd-mode-map (kbd "C-c TAB") #'pyagentd-fold-toggle)

(provide 'pyagentd-fold)
;;; pyagentd-fold.el ends here

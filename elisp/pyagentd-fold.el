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
;; There are only so many: thousands of overlays make every key slow, so
;; those far from what is seen go, and come again.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-later)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-fenced)

(defcustom pyagentd-fold '(reasoning tool)
  "Which blocks of a conversation are folded when they appear.
A list of symbols: `reasoning' for what the model thought, `tool' for
tool calls with their results.  Nil folds none.
\\<pyagentd-mode-map>\\[pyagentd-fold-toggle] folds and unfolds."
  :type '(set (const :tag "What the model thought" reasoning)
              (const :tag "Calls of tools" tool))
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defface pyagentd-fold '((t :inherit shadow))
  "Face of folded blocks."
  :group 'pyagentd)

(defconst pyagentd-fold--most 300
  "Greatest number of blocks that have overlays.")

(defvar-local pyagentd-fold--looked nil
  "Marker up to which the text of runs was looked through for blocks.")

(defvar-local pyagentd-fold--kinds 'default
  "Which blocks are folded in this buffer; `default' is `pyagentd-fold'.")
(defvar-local pyagentd-fold--lines nil
  "The overlays of the first lines of blocks, latest first.")

(pyagentd-permanent-local 'pyagentd-fold--kinds 'pyagentd-fold--lines)

(defvar pyagentd-fold-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'pyagentd-fold-toggle)
    (define-key map (kbd "<tab>") #'pyagentd-fold-toggle)
    (define-key map (kbd "RET") #'pyagentd-fold-return)
    (define-key map (kbd "<return>") #'pyagentd-fold-return)
    (define-key map [mouse-1] #'pyagentd-fold-toggle)
    (define-key map [mouse-2] #'pyagentd-fold-toggle)
    map)
  "Keymap of the first line of a block.")

;;;; Overlays

(defun pyagentd-fold--set (overlay fold)
  "Fold the block with the first line OVERLAY, or unfold it unless FOLD."
  (let ((body (overlay-get overlay 'pyagentd-fold-body)))
    (overlay-put overlay 'pyagentd-folded fold)
    (overlay-put overlay 'display
                 (and fold (pyagentd-fenced-words
                            (overlay-get overlay 'pyagentd-fold-kind)
                            (overlay-start overlay) (overlay-end overlay)
                            (overlay-end body))))
    (overlay-put overlay 'face (and fold 'pyagentd-fold))
    (overlay-put body 'invisible (and fold 'pyagentd-fold))
    ;; Its end is at the end of the line that is seen, too.
    (overlay-put body 'keymap (and fold pyagentd-fold-map))
    (overlay-put (overlay-get overlay 'pyagentd-fold-after) 'keymap
                 (and fold pyagentd-fold-map))))

(defun pyagentd-fold--draw (kind beg eol end)
  "Make the block of KIND from BEG to END foldable; its first line ends at EOL."
  (let ((line (make-overlay beg eol nil t nil))
        (body (make-overlay eol end nil t nil))
        (after (make-overlay end (min (1+ end) (point-max)) nil t nil)))
    (add-to-invisibility-spec 'pyagentd-fold)
    (dolist (overlay (list line body after))
      (overlay-put overlay 'evaporate t)
      (overlay-put overlay 'pyagentd-fold t))
    (overlay-put line 'pyagentd-fold-body body)
    (overlay-put line 'pyagentd-fold-after after)
    (overlay-put line 'pyagentd-fold-kind kind)
    (overlay-put line 'mouse-face 'highlight)
    (overlay-put line 'keymap pyagentd-fold-map)
    (overlay-put line 'help-echo "RET, TAB, mouse-1: show or hide the rest")
    (overlay-put body 'isearch-open-invisible
                 (lambda (_) (pyagentd-fold--set line nil)))
    (pyagentd-fold--set line (pyagentd-fold--folds-p kind))
    (push line pyagentd-fold--lines)
    line))

(defun pyagentd-fold--folds-p (kind)
  "Return t if blocks of KIND are folded here when they appear."
  (and (memq kind (if (eq pyagentd-fold--kinds 'default) pyagentd-fold
                    pyagentd-fold--kinds))
       t))

(defun pyagentd-fold--forget (line)
  "Remove the overlays of the block with the first line LINE.
They are made again when the text is displayed."
  (when-let ((beg (overlay-start line)))
    (with-silent-modifications
      (put-text-property beg (overlay-end line) 'fontified nil)))
  (delete-overlay (overlay-get line 'pyagentd-fold-body))
  (delete-overlay (overlay-get line 'pyagentd-fold-after))
  (delete-overlay line))

(defun pyagentd-fold--far-p (line ranges)
  "Return non-nil if nobody misses the overlay LINE.
It is in none of RANGES, which are seen, and as it was when it was made."
  (let ((pos (overlay-start line)))
    (or (null pos)
        (and (eq (overlay-get line 'pyagentd-folded)
                 (pyagentd-fold--folds-p
                  (overlay-get line 'pyagentd-fold-kind)))
             (not (seq-some (lambda (range) (<= (car range) pos (cdr range)))
                            ranges))))))

(defun pyagentd-fold--ranges ()
  "Return what is seen of this buffer, and of the text around it."
  (mapcar (lambda (window)
            (cons (- (window-start window) 10000)
                  (+ (window-end window) 10000)))
          (get-buffer-window-list nil nil t)))

(defun pyagentd-fold--trim ()
  "Remove overlays if there are too many."
  (when (> (length pyagentd-fold--lines) pyagentd-fold--most)
    (let ((ranges (pyagentd-fold--ranges))
          (kept (seq-take pyagentd-fold--lines (/ pyagentd-fold--most 2))))
      (dolist (line (nthcdr (length kept) pyagentd-fold--lines))
        (if (pyagentd-fold--far-p line ranges)
            (pyagentd-fold--forget line)
          (push line kept)))
      (setq pyagentd-fold--lines kept))))

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
      (while (re-search-forward pyagentd-fenced-open end t)
        (let ((start (match-beginning 0)))
          (unless (pyagentd-fold--line-at start)
            (when-let ((block (pyagentd-fenced-block start)))
              (apply #'pyagentd-fold--draw block))))))
    (pyagentd-fold--trim)))

(defun pyagentd-fold--say-failed ()
  "Have the lines of folded calls say which have failed, as is known now."
  (dolist (line pyagentd-fold--lines)
    (when (and (overlay-buffer line)
               (overlay-get line 'pyagentd-folded)
               (eq 'tool (overlay-get line 'pyagentd-fold-kind)))
      (pyagentd-fold--set line t))))

(defun pyagentd-fold--on-insert ()
  "Make the blocks foldable that were just completed.
The text counts as fontified, so that nobody may look at it again.  What
was inserted may end one block and begin the next."
  (save-excursion
    (save-restriction
      (save-match-data
        (widen)
        (let* ((pos (pyagentd-insert-position))
               (from (and pyagentd-fold--looked
                          (marker-position pyagentd-fold--looked)))
               (looked (copy-marker pos)))
          (goto-char (if (and from (<= from pos)) from (max 1 (- pos 200))))
          (forward-line -1)
          (while (search-forward "\n```" pos t)
            (when (eq (get-text-property (1- (point)) 'gptel) 'ignore)
              (when-let ((start (pyagentd-fenced-start (1- (point)))))
                (pyagentd-fold--find start (min (point-max) (+ start 200))))))
          (when pyagentd-fold--looked (set-marker pyagentd-fold--looked nil))
          (setq pyagentd-fold--looked looked))))))

;;;; Commands

(defun pyagentd-fold-toggle (&optional event)
  "Fold or unfold the block at point, or the one that was clicked in EVENT.
With a prefix argument do so with all blocks of the buffer."
  (interactive (list last-nonmenu-event))
  (if current-prefix-arg
      (pyagentd-fold-toggle-all)
    (let* ((pos (if (mouse-event-p event) (posn-point (event-end event))
                  (point)))
           (start (or (pyagentd-fenced-start pos)
                      (user-error "No tool call or reasoning here")))
           (line (or (pyagentd-fold--line-at start)
                     (apply #'pyagentd-fold--draw
                            (pyagentd-fenced-block start))))
           (fold (not (overlay-get line 'pyagentd-folded))))
      (when fold (goto-char start))
      (pyagentd-fold--set line fold))))

(defun pyagentd-fold-return ()
  "Visit the agent whose call is at point, else unfold or fold the block."
  (interactive)
  (let* ((start (pyagentd-fenced-start (point)))
         (call (and start (pyagentd-fenced-agents-call start))))
    (if call (pyagentd-fold--visit-agent call)
      (pyagentd-fold-toggle))))

(defun pyagentd-fold--visit-agent (call)
  "Visit the conversation of the agent that was made by CALL, an id."
  (pyagentd-later-here
   'agents (list :branch pyagentd--branch-dir)
   (lambda (answer)
     (let ((agent (seq-find (lambda (agent)
                              (equal call (plist-get agent :call-id)))
                            (plist-get answer :agents))))
       (if agent
           (find-file-other-window
            (pyagentd-place-conversation (plist-get agent :branch-dir)))
         (user-error "This call made no agent; TAB shows it"))))))

(defun pyagentd-fold-toggle-all ()
  "Unfold all blocks of tools and of thoughts, or fold them if none is folded."
  (interactive)
  (setq pyagentd-fold--kinds
        (unless (seq-some (lambda (line)
                            (and (overlay-buffer line)
                                 (overlay-get line 'pyagentd-folded)))
                          pyagentd-fold--lines)
          '(reasoning tool)))
  (save-restriction
    (widen)
    (mapc #'pyagentd-fold--forget pyagentd-fold--lines)
    (setq pyagentd-fold--lines nil)
    (with-silent-modifications
      (put-text-property (point-min) (point-max) 'fontified nil))
    ;; The rest when it is displayed.
    (pyagentd-fold--find (max (point-min) (- (point) 10000))
                         (min (point-max) (+ (point) 10000))))
  (message (if pyagentd-fold--kinds "Folded" "Unfolded")))

;;;; Where it is used

(defun pyagentd-fold--set-up ()
  "Have blocks found in this buffer, or forget them with the mode."
  (if (bound-and-true-p pyagentd-mode)
      (jit-lock-register #'pyagentd-fold--find)
    (jit-lock-unregister #'pyagentd-fold--find)
    (mapc #'pyagentd-fold--forget pyagentd-fold--lines)
    (setq pyagentd-fold--lines nil)))

(defun pyagentd-fold--after-major-mode ()
  "Have blocks found again in a session whose major mode has changed."
  (when (bound-and-true-p pyagentd-mode)
    (pyagentd-fold--set-up)))

(add-hook 'pyagentd-insert-hook #'pyagentd-fold--on-insert)
(add-hook 'pyagentd-failed-hook #'pyagentd-fold--say-failed)
(add-hook 'pyagentd-mode-hook #'pyagentd-fold--set-up)
;; A change of the major mode takes the registration away.
(add-hook 'after-change-major-mode-hook #'pyagentd-fold--after-major-mode)

(define-key pyagentd-mode-map (kbd "C-c M-f") #'pyagentd-fold-toggle)

(provide 'pyagentd-fold)
;;; pyagentd-fold.el ends here

;;; pyagentd-compact.el --- Summarise a conversation that became long -*- lexical-binding: t; -*-

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

;; A compaction is a block of the text: the model is shown the summary in
;; it in place of what stands above.  Here it is drawn as a divider, which
;; TAB, RET or a click unfolds.  The summary can be edited; who deletes
;; the block lets the model see again what it stood for.
;;
;; The dividers are overlays that appear when the text is displayed:
;; neither undo nor saving knows of them.

;;; Code:

(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-env)
(require 'pyagentd-later)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-status)
(require 'pyagentd-attach)
(require 'pyagentd-chat)

(defface pyagentd-compaction '((t :inherit shadow))
  "Face of the divider where a conversation was compacted."
  :group 'pyagentd)

;;;; Dividers

(defconst pyagentd-compact--open "``` compaction ("
  "How the block of a compaction begins.")

(defvar pyagentd-compact-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'pyagentd-compact-toggle)
    (define-key map (kbd "<tab>") #'pyagentd-compact-toggle)
    (define-key map (kbd "RET") #'pyagentd-compact-toggle)
    (define-key map [mouse-1] #'pyagentd-compact-toggle)
    (define-key map [mouse-2] #'pyagentd-compact-toggle)
    map)
  "Keymap of a divider.")

(defun pyagentd-compact--words (beg end)
  "Return what the first line between BEG and END says of the compaction."
  (let ((line (buffer-substring-no-properties
               (+ beg (length pyagentd-compact--open)) end)))
    (concat "compacted, " (string-remove-suffix ")" line))))

(defun pyagentd-compact--line (words folded)
  "Return the divider with WORDS; FOLDED says whether the summary is."
  (format "%s %s %s %s" (if folded "▸" "▾") (make-string 8 ?─) words
          (make-string 24 ?─)))

(defun pyagentd-compact--fold (overlay fold)
  "Hide the summary behind the divider OVERLAY, or show it unless FOLD."
  (let ((body (overlay-get overlay 'pyagentd-compact-body)))
    (overlay-put overlay 'pyagentd-compact-folded fold)
    (overlay-put overlay 'display
                 (pyagentd-compact--line
                  (overlay-get overlay 'pyagentd-compact-words) fold))
    (overlay-put body 'invisible (and fold 'pyagentd-compact))))

(defun pyagentd-compact--draw (beg eol end)
  "Draw the divider of the block from BEG to END; its first line ends at EOL."
  (let ((line (make-overlay beg eol nil t nil))
        (body (make-overlay eol end nil t nil)))
    (add-to-invisibility-spec 'pyagentd-compact)
    (dolist (overlay (list line body))
      (overlay-put overlay 'evaporate t)
      (overlay-put overlay 'pyagentd-compact t))
    (overlay-put line 'pyagentd-compact-body body)
    (overlay-put line 'pyagentd-compact-words
                 (pyagentd-compact--words beg eol))
    (overlay-put line 'face 'pyagentd-compaction)
    (overlay-put line 'mouse-face 'highlight)
    (overlay-put line 'keymap pyagentd-compact-map)
    (overlay-put line 'help-echo "TAB, mouse-1: show or hide the summary")
    (overlay-put body 'isearch-open-invisible
                 (lambda (_) (pyagentd-compact--fold line nil)))
    (pyagentd-compact--fold line t)))

(defun pyagentd-compact--block (pos)
  "Return the block that begins at POS as (BEG EOL END), or nil."
  (save-excursion
    (goto-char pos)
    (when (and (looking-at-p (regexp-quote pyagentd-compact--open))
               (eq (get-text-property pos 'gptel) 'ignore))
      (let ((end (next-single-property-change pos 'gptel nil (point-max))))
        (when (and (< (line-end-position) end)
                   (equal (buffer-substring-no-properties
                           (max pos (- end 4)) end)
                          "\n```"))
          (list pos (line-end-position) end))))))

(defun pyagentd-compact--drawn-p (pos)
  "Return non-nil if there is a divider at POS."
  (seq-some (lambda (overlay) (overlay-get overlay 'pyagentd-compact-words))
            (overlays-at pos)))

(defun pyagentd-compact--find (beg end &rest _)
  "Draw the dividers that begin between BEG and END and are not drawn yet."
  (save-excursion
    (save-match-data
      (goto-char beg)
      (forward-line 0)
      (while (search-forward pyagentd-compact--open end t)
        (let ((start (match-beginning 0)))
          (when-let ((block (and (not (pyagentd-compact--drawn-p start))
                                 (pyagentd-compact--block start))))
            (apply #'pyagentd-compact--draw block)))))))

(defun pyagentd-compact--on-insert ()
  "Draw the divider of a block that was just inserted.
The text counts as fontified, so that nobody may look at it again."
  (let ((pos (pyagentd-insert-position)))
    (when (and (eq (char-before pos) ?`)
               (eq (get-text-property (1- pos) 'gptel) 'ignore))
      (let ((start (previous-single-property-change
                    pos 'gptel nil (point-min))))
        (pyagentd-compact--find start pos)))))

(add-hook 'pyagentd-insert-hook #'pyagentd-compact--on-insert)

(defun pyagentd-compact--at (pos)
  "Return the divider at POS or above it in the same block, or nil."
  (let ((found (overlays-in (max (point-min) (1- pos)) (1+ pos))))
    (or (seq-find (lambda (overlay)
                    (overlay-get overlay 'pyagentd-compact-words))
                  found)
        (when-let ((body (seq-find (lambda (overlay)
                                     (overlay-get overlay 'pyagentd-compact))
                                   found)))
          (seq-find (lambda (overlay)
                      (eq (overlay-get overlay 'pyagentd-compact-body) body))
                    (overlays-in (max (point-min) (1- (overlay-start body)))
                                 (1+ (overlay-start body))))))))

(defun pyagentd-compact-toggle (&optional event)
  "Show or hide the summary of the compaction at point, or clicked in EVENT."
  (interactive (list last-nonmenu-event))
  (let ((pos (if (mouse-event-p event) (posn-point (event-end event))
               (point))))
    (if-let ((divider (pyagentd-compact--at pos)))
        (pyagentd-compact--fold
         divider (not (overlay-get divider 'pyagentd-compact-folded)))
      (user-error "No compaction here"))))

(defun pyagentd-compact--set-up ()
  "Have dividers drawn in this buffer, or remove them with the mode."
  (if (bound-and-true-p pyagentd-mode)
      (jit-lock-register #'pyagentd-compact--find)
    (jit-lock-unregister #'pyagentd-compact--find)
    (save-restriction
      (widen)
      (remove-overlays nil nil 'pyagentd-compact t))))

(add-hook 'pyagentd-mode-hook #'pyagentd-compact--set-up)
;; A change of the major mode takes the registration away.
(add-hook 'after-change-major-mode-hook #'pyagentd-compact--after-major-mode)

(defun pyagentd-compact--after-major-mode ()
  "Have dividers drawn again in a session whose major mode has changed."
  (when (bound-and-true-p pyagentd-mode)
    (pyagentd-compact--set-up)))

;;;; Compacting

(defconst pyagentd-compact--patience 60
  "Seconds until a compaction has begun: a long text is compared with its log.")

(defun pyagentd-compact--place (position behind)
  "Return where the block of a compaction goes: where the text BEHIND ends.
That was at POSITION in the file; the text here may have changed since.
If it is not found, behind the last answer."
  (save-restriction
    (widen)
    (save-excursion
      (let ((beg (- position (length behind))))
        (cond ((and (>= beg (point-min)) (<= position (point-max))
                    (equal (buffer-substring-no-properties beg position)
                           behind))
               position)
              ((and (goto-char (point-max))
                    (> (length behind) 0)
                    (let ((case-fold-search nil))
                      (search-backward behind nil t)))
               (match-end 0))
              (t (pyagentd-compact--answered)))))))

(defun pyagentd-compact--answered ()
  "Return where the last answer ends."
  (save-restriction
    (widen)
    (let ((pos (point-max)))
      (while (and (> pos (point-min))
                  (null (get-text-property (1- pos) 'gptel)))
        (setq pos (previous-single-property-change
                   pos 'gptel nil (point-min))))
      pos)))

(pyagentd-chat--define-event compacting `(,place)
  "Let what the compaction inserts go behind what was said last."
  (pyagentd-insert-start
   (pyagentd-compact--place (plist-get place :position)
                            (or (plist-get place :behind) ""))))

;;;###autoload
(defun pyagentd-compact (&optional keep)
  "Replace the conversation so far with a summary, for the model.
The text stays; the model no longer sees it.  A rewind to a prompt
before the summary, or deleting the summary's block, lets the model see
it again.  With a prefix argument ask what the summary should KEEP."
  (interactive (list (and current-prefix-arg
                          (read-string "What the summary should keep: "))))
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (pyagentd-chat-when-ready
     (lambda ()
       (pyagentd-later
        'compact (list :branch pyagentd--branch-dir
                       :instructions (or keep "")
                       :env (pyagentd-env-variables) :key (pyagentd-env-key))
        (lambda (_) (message "Compacting…"))
        pyagentd-compact--patience))
     t)))

(provide 'pyagentd-compact)
;;; pyagentd-compact.el ends here

;;; pyagentd-hidden.el --- Hidden turns in the text -*- lexical-binding: t; -*-

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

;; The text of turns that were taken back stays in the file, with the role
;; `ignore'.  Here it is folded into one line, which a click or
;; `pyagentd-show-hidden' unfolds, and dimmed where it is unfolded.  An
;; answer that has variants says which of them it is.
;;
;; All of this are overlays: neither undo nor saving knows of them, and
;; text that is folded is not fontified.  Which text it is the daemon says.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-attach)
(require 'pyagentd-here)

(defface pyagentd-hidden '((t :inherit shadow))
  "Face of rewound turns and their notices."
  :group 'pyagentd)

(defvar-local pyagentd-hidden--overlays nil
  "Overlays on hidden turns and on messages that have variants.")
(defvar-local pyagentd-hidden--shown nil
  "Non-nil if hidden turns are unfolded.")
(defvar-local pyagentd-hidden--due nil
  "Non-nil if what is hidden is to be asked for after the next save.")

(pyagentd-permanent-local 'pyagentd-hidden--overlays 'pyagentd-hidden--shown
                          'pyagentd-hidden--due)

(defvar pyagentd-hidden-map
  (let ((map (make-sparse-keymap)))
    (define-key map [mouse-1] #'pyagentd-show-hidden)
    map)
  "Keymap of the line that stands for hidden turns.")

;;;; What is said

(defun pyagentd-hidden--words (count by)
  "Return how to say that COUNT turns were hidden BY something, a symbol."
  (format "… %s %s" (pyagentd-count count "turn")
          (pcase by
            ('rewind (substitute-command-keys
                      (format "rewound, \\<pyagentd-mode-map>\
C-u \\[pyagentd-rewind] brings %s back" (if (= count 1) "it" "them"))))
            ('edit "as it was before it was edited")
            ('context "of a conversation that was cleared")
            (_ "of another variant"))))

(defun pyagentd-hidden--line (words beg)
  "Return the line with WORDS that stands for the text from BEG on."
  (concat (if (= beg 1) "" "\n\n")
          (propertize words 'face 'pyagentd-hidden 'mouse-face 'highlight
                      'keymap pyagentd-hidden-map
                      'help-echo "mouse-1: show or hide the text")))

;;;; Overlays

(defun pyagentd-hidden--clear ()
  "Remove all overlays."
  (mapc #'delete-overlay pyagentd-hidden--overlays)
  (setq pyagentd-hidden--overlays nil))

(defun pyagentd-hidden--fold (overlay)
  "Fold or unfold the text of OVERLAY."
  (let ((line (overlay-get overlay 'pyagentd-line)))
    (overlay-put overlay 'invisible
                 (unless pyagentd-hidden--shown 'pyagentd-hidden))
    (overlay-put overlay 'before-string line)
    (overlay-put overlay 'face 'pyagentd-hidden)))

(defun pyagentd-hidden--add (beg end)
  "Return a new overlay between BEG and END."
  (let ((overlay (make-overlay beg (min end (1+ (buffer-size))) nil t nil)))
    (overlay-put overlay 'evaporate t)
    (push overlay pyagentd-hidden--overlays)
    overlay))

(defun pyagentd-hidden--set (hidden variants)
  "Show which regions are HIDDEN and which messages are VARIANTS of others.
HIDDEN is a list of (BEG END COUNT BY), VARIANTS one of (BEG END MESSAGE
NUMBER OF), where NUMBER is 0 if none of them is shown."
  (pyagentd-hidden--clear)
  (add-to-invisibility-spec 'pyagentd-hidden)
  (save-restriction
    (widen)
    (pcase-dolist (`(,beg ,end ,count ,by) hidden)
      (let ((overlay (pyagentd-hidden--add beg end)))
        (overlay-put overlay 'pyagentd-line
                     (pyagentd-hidden--line
                      (pyagentd-hidden--words count (pyagentd-symbol by))
                      beg))
        (overlay-put overlay 'isearch-open-invisible
                     (lambda (overlay) (overlay-put overlay 'invisible nil)))
        (pyagentd-hidden--fold overlay)))
    (pcase-dolist (`(,beg ,end ,message ,number ,of) variants)
      (let ((overlay (pyagentd-hidden--add beg end)))
        (overlay-put overlay 'pyagentd-variant (list message number of))
        (when (> number 0)
          (overlay-put (pyagentd-hidden--whole-line overlay) 'before-string
                       (propertize (format "variant %d/%d\n" number of)
                                   'face 'pyagentd-hidden)))))))

(defun pyagentd-hidden--whole-line (overlay)
  "Return OVERLAY, or a new one on what is before it in its line.
That is the sign of a prompt, above which its variant is told."
  (save-excursion
    (goto-char (overlay-start overlay))
    (if (bolp) overlay
      (pyagentd-hidden--add (line-beginning-position) (point)))))

(defun pyagentd-hidden-variant ()
  "Return the variant at or before point, or else the last: (MESSAGE N OF)."
  (let* ((all (seq-filter (lambda (overlay)
                            (overlay-get overlay 'pyagentd-variant))
                          pyagentd-hidden--overlays))
         (sorted (sort all (lambda (a b)
                             (> (overlay-start a) (overlay-start b)))))
         (here (or (seq-find (lambda (overlay)
                               (<= (overlay-start overlay) (point)))
                             sorted)
                   (car sorted))))
    (and here (overlay-get here 'pyagentd-variant))))

;;;; Asking the daemon

(defun pyagentd-hidden-refresh ()
  "Ask which text of this buffer is hidden, and show that."
  (let ((buffer (current-buffer)))
    (when pyagentd-mode
      (pyagentd-rpc-call-async
       'history (list :branch pyagentd--branch-dir)
       :success (lambda (answer)
                  (when (buffer-live-p buffer)
                    (with-current-buffer buffer
                      (pyagentd-hidden--receive answer))))
       :error #'ignore))))

(defun pyagentd-hidden--receive (answer)
  "Show what ANSWER says, if it is about the text in this buffer."
  (let ((sha256 (plist-get answer :sha256)))
    (setq pyagentd-hidden--due nil)
    (cond ((null sha256) (pyagentd-hidden--clear))
          ((equal sha256 (if (buffer-modified-p)
                             (pyagentd-session-body-sha256)
                           pyagentd-session-sha256))
           (pyagentd-hidden--set (plist-get answer :hidden)
                                 (plist-get answer :variants)))
          (t (setq pyagentd-hidden--due t)))))

(defun pyagentd-hidden--after-save ()
  "Ask again where the text was another one than the file's."
  (when pyagentd-hidden--due
    (pyagentd-hidden-refresh)))

(defun pyagentd-hidden--after-run (_run)
  "Ask again where something is hidden: there may be one more variant."
  (when pyagentd-hidden--overlays
    (setq pyagentd-hidden--due t)))

;;;###autoload
(defun pyagentd-show-hidden ()
  "Show rewound turns, or fold them again."
  (interactive)
  (setq pyagentd-hidden--shown (not pyagentd-hidden--shown))
  (dolist (overlay pyagentd-hidden--overlays)
    (when (overlay-get overlay 'pyagentd-line)
      (pyagentd-hidden--fold overlay))))

(add-hook 'pyagentd-session-read-hook #'pyagentd-hidden--clear)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-hidden--clear)
(add-hook 'pyagentd-session-saved-hook #'pyagentd-hidden--after-save)
(add-hook 'pyagentd-attached-hook #'pyagentd-hidden-refresh)
(add-hook 'pyagentd-attach-roles-hook #'pyagentd-hidden-refresh)
(add-hook 'pyagentd-run-finished-functions #'pyagentd-hidden--after-run)

(provide 'pyagentd-hidden)
;;; pyagentd-hidden.el ends here

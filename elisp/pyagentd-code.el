;;; pyagentd-code.el --- Copy code, answers -*- lexical-binding: t; -*-

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

;; Copying what an answer has: a block of code, or all that it says.

;;; Code:

(require 'pulse)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-session)

(defconst pyagentd-code--fence
  "^[ \t]*\\(`\\{3,\\}\\|~\\{3,\\}\\)[ \t]*\\([^`\n]*?\\)[ \t]*$"
  "A line that begins or ends a block of code.")

(defun pyagentd-code--closes-p (fence)
  "Return non-nil if the fence matched last closes one that began with FENCE."
  (and (string-empty-p (match-string 2))
       (eq (aref fence 0) (char-after (match-beginning 1)))
       (>= (- (match-end 1) (match-beginning 1)) (length fence))))

(defun pyagentd-code-blocks (beg end)
  "Return the blocks of code in answers between BEG and END.
That is a list of (BEG END LANGUAGE), without the fences, first one first."
  (save-excursion
    (goto-char beg)
    (let (blocks open)
      (while (re-search-forward pyagentd-code--fence end t)
        (when (eq (get-text-property (match-beginning 0) 'gptel) 'response)
          (cond ((null open)
                 (setq open (list (match-string-no-properties 1)
                                  (min end (1+ (match-end 0)))
                                  (match-string-no-properties 2))))
                ((pyagentd-code--closes-p (car open))
                 (push (list (nth 1 open)
                             (max (nth 1 open) (1- (match-beginning 0)))
                             (car (split-string (nth 2 open) "[ {]")))
                       blocks)
                 (setq open nil)))))
      (nreverse blocks))))

(defun pyagentd-code--answer (pos)
  "Return the text of an answer with POS or before it, (BEG . END), or nil."
  (save-restriction
    (widen)
    (let ((end (min (point-max) (1+ pos))))
      (while (and (> end (point-min))
                  (not (eq (get-text-property (1- end) 'gptel) 'response)))
        (setq end (previous-single-property-change end 'gptel nil
                                                   (point-min))))
      (when (> end (point-min))
        (cons (previous-single-property-change end 'gptel nil (point-min))
              (next-single-property-change (1- end) 'gptel nil (point-max)))))))

(defun pyagentd-code-at (pos)
  "Return the block of code with POS or before it, (BEG END LANGUAGE), or nil."
  (let (found)
    (while (and pos (not found))
      (let ((answer (pyagentd-code--answer pos)))
        (setq found (and answer
                         (car (last (seq-filter
                                     (lambda (block)
                                       (<= (save-excursion
                                             (goto-char (car block))
                                             (line-beginning-position 0))
                                           pos))
                                     (pyagentd-code-blocks
                                      (car answer) (cdr answer))))))
              pos (and answer (> (car answer) (point-min))
                       (1- (car answer))))))
    found))

(defun pyagentd-code--say (beg end what)
  "Say that WHAT, the text between BEG and END, was copied, and show it."
  (pulse-momentary-highlight-region beg end)
  (let ((lines (count-lines beg end)))
    (message "Copied %s, %d line%s" what lines (if (= lines 1) "" "s"))))

;;;###autoload
(defun pyagentd-copy-code (&optional whole)
  "Copy the block of code at point, or the last one above it.
With a prefix argument, or WHOLE from Lisp, copy what the answer at point
says, without what it thought and what its tools said."
  (interactive "P")
  (if whole
      (pyagentd-copy-answer)
    (pcase (pyagentd-code-at (point))
      (`(,beg ,end ,language)
       (kill-new (buffer-substring-no-properties beg end))
       (pyagentd-code--say beg end (if (string-empty-p language) "code"
                                     language)))
      (_ (user-error "No block of code above")))))

(defun pyagentd-code--parts (pos)
  "Return the texts of the answer at POS or before it, a list of (BEG . END).
What is thought, and what tools said, is left out."
  (let* ((part (pyagentd-code--answer pos))
         (parts (list part))
         (before (and part (pyagentd-code--before (car part)))))
    (while before
      (push before parts)
      (setq before (pyagentd-code--before (car before))))
    (and part parts)))

(defun pyagentd-code--before (pos)
  "Return the text before POS of the same answer, (BEG . END), or nil."
  (let ((end pos) (same t))
    (while (and same (> end (point-min))
                (not (eq (get-text-property (1- end) 'gptel) 'response)))
      (let ((beg (previous-single-property-change end 'gptel nil
                                                  (point-min))))
        (setq same (or (get-text-property (1- end) 'gptel)
                       (string-blank-p
                        (buffer-substring-no-properties beg end)))
              end beg)))
    (when (and same (> end (point-min)))
      (cons (previous-single-property-change end 'gptel nil (point-min)) end))))

;;;###autoload
(defun pyagentd-copy-answer ()
  "Copy the text of the answer at point, or of the last one above it.
What was thought, and what tools said, is left out."
  (interactive)
  (save-restriction
    (widen)
    (let ((parts (or (pyagentd-code--parts (point))
                     (user-error "No answer above"))))
      (kill-new (mapconcat (lambda (part)
                             (string-trim (buffer-substring-no-properties
                                           (car part) (cdr part))))
                           parts "\n\n"))
      (pyagentd-code--say (caar parts) (cdar (last parts)) "the answer"))))

(provide 'pyagentd-code)
;;; pyagentd-code.el ends here

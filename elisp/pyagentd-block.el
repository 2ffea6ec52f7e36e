;;; pyagentd-block.el --- Local Variables block of session files -*- lexical-binding: t; -*-

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

;; A session file is BODY, an empty line and a block of Local Variables
;; from which gptel restores the roles of the text.  In the buffer there
;; is only BODY, with the roles in the text property `gptel': the symbols
;; `response' and `ignore', a cons (tool . ID), or nothing for text of
;; the user.  This file knows how to get from one to the other.
;;
;; Emacs itself reads Local Variables only within the last 3000
;; characters of a file.  A conversation passes that after some 25 tool
;; calls, so the block is searched for in the whole file here.

;;; Code:

(require 'cl-lib)
(require 'pyagentd-core)

;;;###autoload
(progn
  (put 'gptel-model 'safe-local-variable #'symbolp)
  (put 'gptel--backend-name 'safe-local-variable #'stringp)
  (put 'gptel--tool-names 'safe-local-variable #'listp)
  (put 'gptel-temperature 'safe-local-variable
       (lambda (value) (or (null value) (numberp value))))
  (put 'gptel--bounds 'safe-local-variable #'listp))

;; Spelled in two parts, lest Emacs takes it for a block of this file.
(defconst pyagentd-block--heading (concat "Local " "Variables:")
  "First line of a block.")

(defconst pyagentd-block-settings
  '(gptel-model gptel--backend-name gptel--tool-names gptel-temperature)
  "Variables of the block other than `gptel--bounds', in their order.")

(defvar-local pyagentd-block--foreign nil
  "Lines \"NAME: VALUE\" of the block that are none of gptel's, as read.")

(defvar-local pyagentd-block--settings nil
  "Alist of `pyagentd-block-settings' and their values as last set.
It outlives a change of the major mode, which the variables do not.")

(put 'pyagentd-block--foreign 'permanent-local t)
(put 'pyagentd-block--settings 'permanent-local t)

(defun pyagentd-block-set (variable value)
  "Let VARIABLE, one of `pyagentd-block-settings', have VALUE here."
  (set (make-local-variable variable) value)
  (setf (alist-get variable pyagentd-block--settings) value))

(defun pyagentd-block--get (variable)
  "Return the value of VARIABLE, one of `pyagentd-block-settings', here."
  (if (local-variable-p variable)
      (symbol-value variable)
    (alist-get variable pyagentd-block--settings)))

;;;; Reading

(defun pyagentd-block--line-at-point ()
  "Return the text of the line at point."
  (buffer-substring-no-properties (line-beginning-position)
                                  (line-end-position)))

(defun pyagentd-block--lines (prefix suffix)
  "Return the lines from point to \"End:\" and move behind it.
Each is between PREFIX and SUFFIX, which are cut off.  Return nil if
there is no such end."
  ;; No regexps on the line: a line of bounds is easily 100 kB long.
  (let (lines line)
    (while (and (not (eobp)) (not (equal line "End:"))
                (setq line (pyagentd-block--line-at-point))
                (string-prefix-p prefix line) (string-suffix-p suffix line)
                (>= (length line) (+ (length prefix) (length suffix))))
      (setq line (string-trim (substring line (length prefix)
                                         (- (length line) (length suffix)))))
      (push line lines)
      (forward-line))
    (and (equal line "End:") (nreverse lines))))

(defun pyagentd-block--find ()
  "Return (BODY-END . LINES) of the block that ends the buffer, or nil.
BODY-END is where the text before the block and its empty line ends.
LINES are the lines of the block without comment characters."
  (save-excursion
    (goto-char (point-max))
    (let ((case-fold-search nil))
      (when (search-backward pyagentd-block--heading nil t)
        (let* ((beg (line-beginning-position))
               (prefix (buffer-substring-no-properties beg (point)))
               (suffix (buffer-substring-no-properties
                        (match-end 0) (line-end-position)))
               (lines (progn (forward-line)
                             (pyagentd-block--lines prefix suffix))))
          (skip-chars-forward " \t\r\n")
          (when (and lines (eobp))
            (goto-char beg)
            (cons (- beg (cond ((looking-back "\n\n" (- beg 2)) 2)
                               ((looking-back "\n" (1- beg)) 1)
                               (t 0)))
                  (butlast lines))))))))

(defun pyagentd-block--parse (lines)
  "Return LINES of a block as an alist of (NAME . VALUE), both strings."
  (cl-loop for line in lines
           when (string-match "\\`\\([^ \t:]+\\)[ \t]*:[ \t]*" line)
           collect (cons (match-string 1 line) (substring line (match-end 0)))))

(defun pyagentd-block--value (alist variable)
  "Return the Lisp value of VARIABLE in ALIST of strings, nil if unreadable."
  (when-let ((text (alist-get (symbol-name variable) alist nil nil #'equal)))
    (condition-case nil
        (car (read-from-string text))
      (error (pyagentd-log 'warn "%s: unreadable %s" (buffer-name) variable)
             nil))))

(defun pyagentd-block-strip ()
  "Move the block at the end of the buffer into properties and variables.
Several blocks in a row count as one; the last that has bounds holds.
Return the number of blocks.  Works on the whole buffer, silently."
  (save-restriction
    (widen)
    (let ((count 0) bounds block)
      (with-silent-modifications
        (remove-text-properties (point-min) (point-max) '(gptel nil))
        (while (setq block (pyagentd-block--find))
          (let ((alist (pyagentd-block--parse (cdr block))))
            (setq bounds (or bounds (pyagentd-block--value alist 'gptel--bounds)))
            (when (= (cl-incf count) 1)
              (pyagentd-block--set-variables alist)))
          (delete-region (car block) (point-max)))
        (kill-local-variable 'gptel--bounds)
        (pyagentd-block-restore bounds))
      count)))

(defun pyagentd-block--set-variables (alist)
  "Set the settings in ALIST buffer-locally and keep foreign lines."
  (dolist (variable pyagentd-block-settings)
    (when (assoc (symbol-name variable) alist)
      (pyagentd-block-set variable (pyagentd-block--value alist variable))))
  (setq pyagentd-block--foreign
        (cl-loop for (name . value) in alist
                 ;; gptel's other variables, among them the system prompt,
                 ;; belong to preset.md (SPEC 001 System message isolation).
                 unless (string-prefix-p "gptel" name)
                 collect (concat name ": " value))))

(defun pyagentd-block--spans (bounds)
  "Return BOUNDS, in gptel's form, as a list of (BEG END PROPERTY).
The form before gptel 0.9.8 is a list of (BEG . END), all responses."
  (if (integerp (car-safe (car-safe bounds)))
      (cl-loop for (beg . end) in bounds collect (list beg end 'response))
    (cl-loop
     for (kind . spans) in bounds nconc
     (cl-loop for (beg end id) in spans
              collect (list beg end
                            (if (eq kind 'tool)
                                ;; gptel drops a tool span without an id.
                                (cons 'tool (or id (format "call-%d" beg)))
                              kind))))))

(defun pyagentd-block-restore (bounds)
  "Put the roles in BOUNDS, in gptel's form, on the text of the buffer.
Spans outside the text are ignored with a message."
  (let ((ignored 0))
    (dolist (span (ignore-errors (pyagentd-block--spans bounds)))
      (pcase span
        ((and `(,(and beg (pred integerp)) ,(and end (pred integerp)) ,value)
              (guard (and (<= (point-min) beg) (< beg end)
                          (<= end (point-max)))))
         (put-text-property beg end 'gptel value))
        (_ (cl-incf ignored))))
    (when (> ignored 0)
      (pyagentd-log 'warn "%s: ignored %d role%s outside the text" (buffer-name)
                    ignored (if (= ignored 1) "" "s")))))

;;;; Writing

(defun pyagentd-block-bounds ()
  "Return the roles of the text of the buffer in gptel's form.
That is an alist with the keys `tool', `ignore' and `response'; positions
count characters from 1, the end is exclusive."
  (save-restriction
    (widen)
    (let ((pos (point-min)) (max (point-max)) tool ignore response
          beg value)
      (while (< pos max)
        (setq value (get-text-property pos 'gptel)
              beg pos)
        ;; Equal neighbours are one span: streamed chunks of a tool's text
        ;; carry conses that are equal but not the same.
        (while (and (< (setq pos (next-single-property-change
                                  pos 'gptel nil max))
                       max)
                    (equal (get-text-property pos 'gptel) value)))
        (pcase value
          ('nil nil)
          ('response (push (list beg pos) response))
          ('ignore (push (list beg pos) ignore))
          (`(tool . ,id) (push (list beg pos id) tool))))
      (cl-loop for (kind . spans) in `((tool . ,tool) (ignore . ,ignore)
                                       (response . ,response))
               when spans collect (cons kind (nreverse spans))))))

(defun pyagentd-block--line (variable value)
  "Return the line of the block that gives VARIABLE its VALUE."
  (let ((print-escape-newlines t) (print-length nil) (print-level nil)
        (print-circle nil) (print-quoted t))
    (format "%s: %S" variable value)))

(defun pyagentd-block-text ()
  "Return the block for the buffer, \"\" if there is nothing to say."
  (let* ((bounds (pyagentd-block-bounds))
         (lines
          (append
           pyagentd-block--foreign
           (cl-loop for variable in pyagentd-block-settings
                    for value = (pyagentd-block--get variable)
                    when value collect (pyagentd-block--line variable value))
           (and bounds (list (pyagentd-block--line 'gptel--bounds bounds))))))
    (if lines
        (mapconcat (lambda (line) (concat "<!-- " line " -->\n"))
                   `(,pyagentd-block--heading ,@lines "End:") "")
      "")))

(provide 'pyagentd-block)
;;; pyagentd-block.el ends here

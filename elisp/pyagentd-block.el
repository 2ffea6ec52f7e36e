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
;;
;; What is read, and what stays in the text, is exactly what the daemon
;; makes of the same file.

;;; Code:

(require 'cl-lib)
(require 'pyagentd-core)
(require 'pyagentd-locals)

;;;###autoload
(progn
  (put 'gptel-model 'safe-local-variable #'symbolp)
  (put 'gptel--backend-name 'safe-local-variable #'stringp)
  (put 'gptel--tool-names 'safe-local-variable #'listp)
  (put 'gptel-temperature 'safe-local-variable
       (lambda (value) (or (null value) (numberp value))))
  (put 'gptel-max-tokens 'safe-local-variable
       (lambda (value) (or (null value) (natnump value))))
  (put 'gptel-system-prompt 'safe-local-variable
       (lambda (value) (or (stringp value) (listp value))))
  (put 'gptel--system-message 'safe-local-variable
       (lambda (value) (or (stringp value) (listp value))))
  (put 'gptel--num-messages-to-send 'safe-local-variable
       (lambda (value) (or (null value) (natnump value))))
  (put 'gptel--preset 'safe-local-variable #'symbolp)
  (put 'gptel--bounds 'safe-local-variable #'listp))

(defconst pyagentd-block-settings
  '(gptel-model gptel--backend-name gptel--tool-names gptel-temperature
    gptel-max-tokens)
  "Variables of the block other than `gptel--bounds', in their order.")

(defconst pyagentd-block--system '("gptel-system-prompt" "gptel--system-message")
  "Variables that a session file never has; preset.md has the system message.")

(defvar-local pyagentd-block--foreign nil
  "Lines \"NAME: VALUE\" of the block that are not ours, as read.")

(defvar-local pyagentd-block--settings nil
  "Alist of `pyagentd-block-settings' and their values as last set.
It outlives a change of the major mode, which the variables do not.")

(defvar-local pyagentd-block-tools nil
  "What is written for the tools of preset.md, a pair (TOOLS . WRITTEN).
WRITTEN are those of TOOLS that gptel can have, as the daemon says.")

(pyagentd-permanent-local 'pyagentd-block--foreign 'pyagentd-block--settings
                          'pyagentd-block-tools)

(defun pyagentd-block-set (variable value)
  "Let VARIABLE, one of `pyagentd-block-settings', have VALUE here."
  (set (make-local-variable variable) value)
  (setf (alist-get variable pyagentd-block--settings) value))

(defun pyagentd-block-get (variable)
  "Return the value of VARIABLE, one of `pyagentd-block-settings', here."
  (if (local-variable-p variable)
      (symbol-value variable)
    (alist-get variable pyagentd-block--settings)))

;;;; Reading

(defun pyagentd-block-strip ()
  "Move the block at the end of the buffer into properties and variables.
Several blocks in a row count as one, and those that a program left in
the text go with it.  One that was cut off is read as far as it goes and
stays in the text, which has the role `ignore' there.
Return the number of blocks removed.  Works on the whole buffer,
silently."
  (save-restriction
    (widen)
    (with-silent-modifications
      (remove-text-properties (point-min) (point-max) '(gptel nil))
      (kill-local-variable 'gptel--bounds)
      (let* ((block (pyagentd-locals-find))
             (start (plist-get block :start))
             (count (plist-get block :count)))
        (if (null block) 0
          (pyagentd-block--set-variables (plist-get block :entries))
          (when count
            (pyagentd-block--cut start))
          (pyagentd-block--restore-all (plist-get block :bounds)
                                       (if count (point-max) start))
          (when (plist-get block :torn)
            (put-text-property start (plist-get block :end) 'gptel 'ignore))
          (+ (or count 0)
             (pyagentd-block-heal (plist-get block :guarded))))))))

(defun pyagentd-block-heal (guarded)
  "Delete the blocks that a program left in the text; return how many.
gptel's own save hook and an Emacs that does not see our block write
another one; text that was merged, or added by another editor, leaves
one behind.  GUARDED means that a person may have typed what is there."
  (let ((strays (and (pyagentd-locals-mentioned-p)
                     (pyagentd-block--strays guarded)))
        (inhibit-read-only t))
    (save-restriction
      (widen)
      (save-excursion
        (pcase-dolist (`(,start ,end . ,_) (reverse strays))
          (goto-char end)
          (skip-chars-forward "\n")
          (if (eobp) (pyagentd-block--cut start)
            (delete-region start (point))))))
    (length strays)))

(defun pyagentd-block--strays (guarded)
  "Return the blocks in the text that a program left there, first one first.
Each is as `pyagentd-locals-all' gives it.  What has a role, or stands
in a code block, is a quotation.  GUARDED means that a person may have
typed the others: then a block counts only if it says of this very text
what is known of it."
  (let ((spans (and guarded (mapcar #'pyagentd-block--range
                                    (pyagentd-block--spans
                                     (pyagentd-block-bounds))))))
    (save-restriction
      (widen)
      (seq-filter
       (pcase-lambda (`(,start ,_ ,bounds ,entries))
         (let ((before (and (> start (point-min))
                            (get-text-property (1- start) 'gptel))))
           (and (pcase (get-text-property start 'gptel)
                  ('nil t)
                  ('ignore (not (eq before 'ignore))))
                (not (pyagentd-locals-fenced-p
                      (if (or before (get-text-property start 'gptel)) start
                        (or (previous-single-property-change start 'gptel)
                            (point-min)))
                      start))
                (or (not guarded)
                    (pyagentd-block--repeats-p bounds entries spans)))))
       (pyagentd-locals-all)))))

(defun pyagentd-block--range (span)
  "Return where SPAN begins and ends."
  (list (nth 0 span) (nth 1 span)))

(defun pyagentd-block--repeats-p (bounds entries spans)
  "Return non-nil if a block says of this text what is known of it.
BOUNDS are printed, ENTRIES are what else it says, and SPANS the ranges
of the text that have a role."
  (let ((ranges (mapcar #'pyagentd-block--range
                        (and bounds (pyagentd-block--spans
                                     (pyagentd-locals-read-bounds bounds)))))
        (model (pyagentd-block-get 'gptel-model)))
    (if ranges (cl-every (lambda (range) (member range spans)) ranges)
      (and model (equal (alist-get "gptel-model" entries nil nil #'equal)
                        (format "%S" model))))))

(defun pyagentd-block--cut (start)
  "Delete the block that begins at START, and the empty line before it."
  (let ((newlines (cond ((equal (char-before start) ?\n)
                         (if (equal (char-before (1- start)) ?\n) 2 1))
                        (t 0))))
    (delete-region (- start newlines) (point-max))))

(defun pyagentd-block--restore-all (bounds end)
  "Put the roles in BOUNDS, a list of printed ones, on the text before END."
  (pyagentd-block-restore
   (seq-mapcat (lambda (printed)
                 (and printed (pyagentd-block--spans
                               (pyagentd-locals-read-bounds printed))))
               bounds)
   end))

(defun pyagentd-block--set-variables (entries)
  "Set the settings in ENTRIES buffer-locally and keep the other lines."
  (setq pyagentd-block--foreign nil)
  (pcase-dolist (`(,name . ,text) entries)
    (let ((variable (intern-soft name)))
      (cond ((or (equal name "gptel--bounds")
                 (member name pyagentd-block--system)))
            ((and (memq variable pyagentd-block-settings)
                  (pyagentd-block--set-text variable text)))
            (t (push (concat name ": " text) pyagentd-block--foreign)))))
  (setq pyagentd-block--foreign (nreverse pyagentd-block--foreign)))

(defun pyagentd-block--set-text (variable text)
  "Let VARIABLE have the value printed in TEXT; return nil if it has none."
  (condition-case nil
      (let ((value (car (read-from-string text))))
        (when (pcase variable
                ((or 'gptel-model 'gptel--backend-name)
                 (or (symbolp value) (stringp value)))
                ('gptel--tool-names
                 (and (listp value)
                      (cl-every (lambda (item) (or (symbolp item) (stringp item)))
                                value)))
                ('gptel-temperature (or (null value) (numberp value)))
                ('gptel-max-tokens (or (null value)
                                       (and (integerp value) (> value 0)))))
          (pyagentd-block-set variable value)
          t))
    (error nil)))

(defun pyagentd-block--spans (bounds)
  "Return BOUNDS, in gptel's form, as a list of (BEG END PROPERTY).
The form before gptel 0.9.8 is a list of (BEG . END), all responses."
  (ignore-errors
    (if (integerp (car-safe (car-safe bounds)))
        (cl-loop for (beg . end) in bounds collect (list beg end 'response))
      (cl-loop
       for (kind . spans) in bounds nconc
       (cl-loop for (beg end id) in spans
                collect (list beg end
                              (if (eq kind 'tool)
                                  ;; gptel drops a tool span without an id.
                                  (cons 'tool (or id (format "call-%d" beg)))
                                kind)))))))

(defun pyagentd-block-restore (spans &optional end)
  "Put roles on the text before END, by default all text.
SPANS are lists (BEG END PROPERTY).  Those outside the text, or that
overlap an earlier one, are ignored with a message."
  (let* ((limit (or end (point-max)))
         (found (cl-remove-if-not (pcase-lambda (`(,beg ,end . ,_))
                                    (and (integerp beg) (integerp end)))
                                  spans))
         (position (point-min))
         (ignored (- (length spans) (length found))))
    (pcase-dolist (`(,beg ,end ,role)
                   (sort found (lambda (a b)
                                 (or (< (car a) (car b))
                                     (and (= (car a) (car b))
                                          (< (cadr a) (cadr b)))))))
      (if (not (and (<= position beg) (< beg end) (<= end limit)))
          (cl-incf ignored)
        (put-text-property beg end 'gptel role)
        (setq position end)))
    (when (> ignored 0)
      (pyagentd-log 'warn "%s: ignored %d role%s outside the text" (buffer-name)
                    ignored (if (= ignored 1) "" "s")))))

(defun pyagentd-block-copy (other)
  "Give the text its roles, and the buffer its settings, from the buffer OTHER.
The text is the same there."
  (let ((spans (with-current-buffer other
                 (pyagentd-block--spans (pyagentd-block-bounds))))
        (settings (buffer-local-value 'pyagentd-block--settings other))
        (foreign (buffer-local-value 'pyagentd-block--foreign other)))
    (save-restriction
      (widen)
      (with-silent-modifications
        (remove-text-properties (point-min) (point-max) '(gptel nil))
        (pyagentd-block-restore spans)))
    (pcase-dolist (`(,variable . ,value) settings)
      (pyagentd-block-set variable value))
    (setq pyagentd-block--foreign foreign)))

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

(defun pyagentd-block--written (variable)
  "Return the value of VARIABLE as the block has it."
  (let ((value (pyagentd-block-get variable)))
    (if (and (eq variable 'gptel--tool-names) pyagentd-block-tools
             (equal value (car pyagentd-block-tools)))
        (cdr pyagentd-block-tools)
      value)))

(defun pyagentd-block--print (variable value)
  "Return the line of the block that gives VARIABLE its VALUE."
  (let ((print-escape-newlines t) (print-length nil) (print-level nil)
        (print-circle nil) (print-quoted t))
    (format "%s: %S" variable value)))

(defun pyagentd-block--says-p (variable)
  "Return non-nil if the block says something about VARIABLE.
No tools at all are something unless it is so in preset.md, no value of
another one is nothing."
  (or (pyagentd-block--written variable)
      (and (eq variable 'gptel--tool-names)
           (assq variable pyagentd-block--settings)
           (not (and pyagentd-block-tools
                     (equal (pyagentd-block-get variable)
                            (car pyagentd-block-tools)))))))

(defun pyagentd-block-text ()
  "Return the block for the buffer, \"\" if there is nothing to say.
Where the text itself has a block an empty one comes before it, lest the
end of the text is taken for an older block."
  (let* ((bounds (pyagentd-block-bounds))
         (lines
          (append
           (cl-loop for variable in pyagentd-block-settings
                    when (pyagentd-block--says-p variable)
                    collect (pyagentd-block--print
                             variable (pyagentd-block--written variable)))
           pyagentd-block--foreign
           (and bounds (list (pyagentd-block--print 'gptel--bounds bounds)))))
         (block (if lines (pyagentd-locals-printed lines) "")))
    (if (and (pyagentd-locals-mentioned-p)
             (save-restriction
               (widen)
               (or (pyagentd-locals-find) (pyagentd-block--strays nil))))
        (concat (pyagentd-locals-printed nil)
                (and lines (concat "\n" block)))
      block)))

;;;; Cleaning

(defun pyagentd-block--said (blocks)
  "Return those of BLOCKS that are part of an answer or of a tool's result."
  (cl-remove-if (lambda (block)
                  (memq (get-text-property (car block) 'gptel) '(nil ignore)))
                blocks))

;;;###autoload
(defun pyagentd-clean-local-variables ()
  "Remove gptel's superfluous blocks of Local Variables from this buffer.
An Emacs that does not see a long block writes another one behind it.
In a session all are removed that are in the text, since saving writes
the one there is; elsewhere the last one with roles stays.
What a model or a tool said about such blocks is left alone."
  (interactive "*")
  (let ((count (pyagentd-locals-clean
                (if (bound-and-true-p pyagentd-mode) #'pyagentd-block--said
                  #'pyagentd-locals-last-valid))))
    (message (if (= count 1) "Removed 1 block of Local Variables"
               "Removed %d blocks of Local Variables")
             count)))

(provide 'pyagentd-block)
;;; pyagentd-block.el ends here

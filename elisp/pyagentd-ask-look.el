;;; pyagentd-ask-look.el --- A change in the colours of its file -*- lexical-binding: t; -*-

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

;; The lines of a diff have the colours of what was added and removed, and
;; those that the mode of the file gives its text.  What a hunk has of a
;; file, before and after, is fontified on its own: a comment that begins
;; above it is not known.

;;; Code:

(require 'diff-mode)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)

(defconst pyagentd-ask-look--most 40000
  "How many characters are given the colours of a mode.")

(defvar pyagentd-ask-look--known nil
  "What was computed last, a list of ((PATH . LINES) . RESULT).
A notice is made anew whenever one of several questions is settled.")

;;;; Colours of a mode

(defun pyagentd-ask-look--mode (path)
  "Turn on the mode of the file PATH, without what hooks do for files.
Neither the text here nor its mode may do more than colour it."
  (delay-mode-hooks
    (let ((buffer-file-name path) (enable-local-variables nil)
          (magic-mode-alist nil) (inhibit-message t))
      (set-auto-mode))))

(defun pyagentd-ask-look--coloured (path lines)
  "Return LINES, strings, in the colours of the mode of the file PATH."
  (with-temp-buffer
    (insert (string-join lines "\n"))
    (pyagentd-ask-look--mode path)
    (font-lock-ensure)
    (split-string (pyagentd-ask-look--faces) "\n")))

(defun pyagentd-ask-look--faces ()
  "Return the text of this buffer with its faces and no other properties."
  (let ((text (buffer-substring-no-properties (point-min) (point-max)))
        (pos (point-min)))
    (while (< pos (point-max))
      (let ((next (next-single-property-change pos 'face nil (point-max)))
            (face (get-text-property pos 'face)))
        (when face
          (put-text-property (- pos (point-min)) (- next (point-min))
                             'face face text))
        (setq pos next)))
    text))

;;;; Hunks

(defun pyagentd-ask-look--sides (lines)
  "Return which of LINES, those of a hunk, are before and which after.
That is (BEFORE . AFTER), lists of places in LINES; context is in both."
  (let (before after)
    (seq-do-indexed
     (lambda (line place)
       (pcase (and (not (string-empty-p line)) (aref line 0))
         (?- (push place before))
         (?+ (push place after))
         (?\\ nil)
         (_ (push place before) (push place after))))
     lines)
    (cons (nreverse before) (nreverse after))))

(defun pyagentd-ask-look--hunk (path lines)
  "Return LINES, the body of a hunk, in the colours of the file PATH."
  (let ((result (vconcat lines))
        (sides (pyagentd-ask-look--sides lines)))
    (dolist (side (list (car sides) (cdr sides)))
      (seq-mapn
       (lambda (place text)
         (let ((line (aref result place)))
           (unless (string-empty-p line)
             (aset result place (concat (substring line 0 1) text)))))
       side
       (pyagentd-ask-look--coloured
        path (mapcar (lambda (place)
                       (let ((line (aref result place)))
                         (if (string-empty-p line) "" (substring line 1))))
                     side))))
    (append result nil)))

(defun pyagentd-ask-look--header-p (line)
  "Return non-nil if LINE of a diff is none of a file."
  (string-match-p "\\`\\(?:--- \\|\\+\\+\\+ \\|@@\\)" line))

(defun pyagentd-ask-look--hunks (path lines)
  "Return LINES of a diff of the file PATH in the colours of its mode."
  (let (result)
    (while lines
      (let ((body (seq-take-while
                   (lambda (line) (not (pyagentd-ask-look--header-p line)))
                   lines)))
        (setq result (if body
                         (append (reverse (pyagentd-ask-look--hunk path body))
                                 result)
                       (cons (car lines) result))
              lines (nthcdr (max 1 (length body)) lines))))
    (nreverse result)))

;;;; Colours of a diff

(defun pyagentd-ask-look-face (line)
  "Return the face that the end of LINE has, nil unless it is of a diff."
  (when-let ((face (and (not (string-empty-p line))
                        (get-text-property 0 'face line))))
    (car (memq face '(diff-added diff-removed)))))

(defun pyagentd-ask-look--face (line)
  "Return the face of LINE of a diff."
  (cond ((string-match-p "\\`\\(?:--- \\|\\+\\+\\+ \\)" line)
         'diff-file-header)
        ((string-prefix-p "@@" line) 'diff-hunk-header)
        ((string-prefix-p "+" line) 'diff-added)
        ((string-prefix-p "-" line) 'diff-removed)
        (t 'diff-context)))

(defun pyagentd-ask-look--lined (line)
  "Return LINE of a diff with its face behind those it has."
  (let ((line (copy-sequence line)))
    (add-face-text-property 0 (length line) (pyagentd-ask-look--face line)
                            t line)
    line))

(defun pyagentd-ask-look--compute (path lines)
  "Return LINES of a diff of the file PATH, which may be nil, coloured."
  (mapcar #'pyagentd-ask-look--lined
          (if (and path (< (apply #'+ (mapcar #'length lines))
                           pyagentd-ask-look--most))
              (condition-case-unless-debug err
                  (pyagentd-ask-look--hunks path lines)
                (error (pyagentd-log 'debug "No colours for %s: %s" path
                                     (error-message-string err))
                       lines))
            lines)))

(defun pyagentd-ask-look (path lines)
  "Return LINES of a diff, coloured; PATH is the file, nil if unknown."
  (let ((key (cons path lines)))
    (or (cdr (assoc key pyagentd-ask-look--known))
        (let ((result (pyagentd-ask-look--compute path lines)))
          (setq pyagentd-ask-look--known
                (cons (cons key result)
                      (seq-take pyagentd-ask-look--known 5)))
          result))))

(provide 'pyagentd-ask-look)
;;; pyagentd-ask-look.el ends here

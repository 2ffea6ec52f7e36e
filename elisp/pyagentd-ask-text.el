;;; pyagentd-ask-text.el --- What an ask looks like -*- lexical-binding: t; -*-

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

;; What a person is shown about an ask: pure functions from an ask to
;; text.  Each part is bounded, since a notice that does not fit its window
;; cannot be scrolled.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-ask)
(require 'pyagentd-ask-words)
(require 'pyagentd-ask-lasting)
(require 'pyagentd-ask-look)

(defvar pyagentd-ask-text--lines
  '((preview . 24) (commands . 12) (remember . 8) (others . 5) (reason . 6))
  "How many lines of each part are shown; nil means all.")

(defvar pyagentd-ask-text--width 160
  "How many columns of a line are shown; nil means all.")

(defvar pyagentd-ask-text--brief nil
  "Non-nil where there is little room.
Then what comes before the first changed line of a diff is left out.")

;;;; Lines

(defun pyagentd-ask-text--cut (text)
  "Return TEXT without what is too wide."
  (if pyagentd-ask-text--width
      (truncate-string-to-width text pyagentd-ask-text--width nil nil "…")
    text))

(defun pyagentd-ask-text--line (line)
  "Return LINE with a newline, in the face with which one of a diff begins."
  (concat line (if (pyagentd-ask-look-face line)
                   (propertize "\n" 'face (pyagentd-ask-look-face line))
                 "\n")))

(defun pyagentd-ask-text--bounded (part lines)
  "Return as many of LINES as PART has, and how many there are more."
  (let ((more (- (length lines) (alist-get part pyagentd-ask-text--lines
                                           (length lines)))))
    (concat
     (mapconcat #'pyagentd-ask-text--line
                (if (> more 0) (butlast lines more) lines) "")
     (when (> more 0)
       (propertize (format "  … %d more %s\n" more (if (= more 1) "line" "lines"))
                   'face 'shadow)))))

(defun pyagentd-ask-text--label (label lines)
  "Return LINES, each with LABEL or as much space before it."
  (let ((space (make-string (length label) ?\s)))
    (cons (concat (propertize label 'face 'shadow) (car lines))
          (mapcar (lambda (line) (concat space line)) (cdr lines)))))

(defun pyagentd-ask-diff-p (text)
  "Return non-nil if TEXT is a diff."
  (string-prefix-p "--- " text))

(defun pyagentd-ask-text--shown (part lines)
  "Return as many of LINES as PART has, each cut."
  (mapcar #'pyagentd-ask-text--cut
          (if-let ((most (alist-get part pyagentd-ask-text--lines)))
              (seq-take lines most)
            lines)))

(defun pyagentd-ask-text--unchanged (lines)
  "Return how many LINES of a diff come before its first change but one."
  (let ((first (seq-position (nthcdr 2 lines) nil
                             (lambda (line _)
                               (string-match-p "\\`[-+]" line)))))
    (if first (max 2 (1+ first)) 0)))

(defun pyagentd-ask-text-preview (text &optional path)
  "Return TEXT, a preview such as a diff, bounded and coloured.
PATH is the file that it is about, if it is about one."
  (let* ((lines (split-string (string-trim-right text) "\n"))
         (skipped (if (and pyagentd-ask-text--brief
                           (pyagentd-ask-diff-p text))
                      (pyagentd-ask-text--unchanged lines)
                    0))
         (shown (append (seq-take lines skipped)
                        (pyagentd-ask-text--shown 'preview
                                                  (nthcdr skipped lines)))))
    (pyagentd-ask-text--bounded
     'preview
     (if (pyagentd-ask-diff-p text)
         (nthcdr skipped (append (pyagentd-ask-look path shown)
                                 (nthcdr (length shown) lines)))
       (mapcar (lambda (line)
                 (propertize (concat "  " (pyagentd-ask-text--cut line))
                             'face 'pyagentd-detail))
               lines)))))

(defun pyagentd-ask-text-head (ask number count)
  "Return the first line about ASK, which is NUMBER (from 0) of COUNT."
  (let ((who (pyagentd-ask-who ask))
        (question (pyagentd-ask-question-p ask)))
    (concat (and who (concat (propertize who 'face 'bold) " › "))
            (propertize (if question "Question " "Allow ") 'face 'warning)
            (propertize (pyagentd-ask-text--cut (pyagentd-ask-what ask))
                        'face 'pyagentd-heading)
            (unless question (propertize "?" 'face 'warning))
            (when (> count 1)
              (propertize (format "   %d of %d" (1+ number) count)
                          'face 'shadow))
            "\n")))

(defun pyagentd-ask-text--commands (ask)
  "Return each command in ASK on a line of its own, unless it shows them so."
  (when-let ((commands (plist-get ask :commands)))
    (unless (equal (mapcar #'string-trim commands)
                   (mapcar (lambda (shown) (string-trim (format "%s" shown)))
                           (if (pyagentd-ask-scope-p ask)
                               (plist-get ask :patterns)
                             (list (plist-get ask :detail)))))
      (pyagentd-ask-text--bounded
       'commands
       (pyagentd-ask-text--label
        "  runs  " (mapcar (lambda (command)
                             (propertize (pyagentd-ask-text--cut
                                          (pyagentd-ask-one-line command))
                                         'face 'font-lock-constant-face))
                           commands))))))

(defun pyagentd-ask-text--why (ask)
  "Return why ASK wants more rights, nil if it is not about that."
  (when-let ((arguments (and (pyagentd-ask-scope-p ask)
                             (pyagentd-ask-arguments ask))))
    (gethash "justification" arguments)))

(defun pyagentd-ask-text--scope (ask)
  "Return what rights ASK wants and why, if it is about that."
  (when (pyagentd-ask-scope-p ask)
    (let* ((arguments (pyagentd-ask-arguments ask))
           (tool (and arguments (gethash "tool_name" arguments)))
           (why (pyagentd-ask-text--why ask)))
      (concat
       (pyagentd-ask-text--bounded
        'commands
        (pyagentd-ask-text--label
         (format "  %s  " (or tool "wants"))
         (mapcar (lambda (pattern)
                   (propertize (format "%s" pattern)
                               'face 'font-lock-constant-face))
                 (plist-get ask :patterns))))
       (when why
         (pyagentd-ask-text--bounded
          'reason (pyagentd-ask-text--label
                   "  why  " (split-string (format "%s" why) "\n"))))))))

(defun pyagentd-ask-text--warning (ask)
  "Return what a person should know before ASK is allowed, if anything."
  (when-let ((warning (plist-get ask :warning)))
    (unless (equal warning "")
      (pyagentd-ask-text--bounded
       'reason
       (mapcar (lambda (line) (propertize line 'face 'warning))
               (split-string (format "%s" warning) "\n"))))))

(defun pyagentd-ask-text--reason (ask)
  "Return why ASK is asked, unless it is why more rights are wanted."
  (when-let ((reason (plist-get ask :reason)))
    (unless (member reason (list "" (plist-get ask :warning)
                                 (pyagentd-ask-text--why ask)))
      (pyagentd-ask-text--bounded
       'reason
       (mapcar (lambda (line) (propertize line 'face 'pyagentd-detail))
               (split-string (format "Asked because %s" reason) "\n"))))))

(defun pyagentd-ask-text--remember (ask)
  "Return what an answer to ASK that is to last would remember, if it can be."
  (when-let ((decisions (pyagentd-ask-lasting ask)))
    (pyagentd-ask-text--remember-all ask decisions)))

(defun pyagentd-ask-text--remember-all (ask decisions)
  "Return exactly what each of DECISIONS about ASK would remember."
  (concat
   (propertize "  Allowed for longer than once, exactly this would be remembered:\n"
               'face 'shadow)
   (pyagentd-ask-text--bounded
    'remember
    (mapcar (pcase-lambda (`(,expression . ,words))
              (concat (and words (concat "    " words "\n"))
                      "    " (propertize expression 'face
                                         'font-lock-string-face)))
            (pyagentd-ask-lasting-rules ask)))
   (mapconcat (lambda (decision)
                (propertize
                 (format "    %s\n" (pyagentd-ask-lasting-words
                                     ask decision pyagentd-ask-text--width))
                 'face 'shadow))
              decisions "")))

(defun pyagentd-ask-text-others (asks current)
  "Return a line for each of the first ASKS but CURRENT."
  (let* ((others (remq current asks))
         (shown (seq-take others (alist-get 'others pyagentd-ask-text--lines)))
         (more (- (length others) (length shown))))
    (concat
     (mapconcat (lambda (ask)
                  (concat (propertize "  also  " 'face 'shadow)
                          (pyagentd-ask-text--cut (pyagentd-ask-title ask))
                          "\n"))
                shown "")
     (when (> more 0)
       (propertize (format "  … and %d more\n" more) 'face 'shadow)))))

;;;; Arguments

(defun pyagentd-ask-text--json (value indent)
  "Return VALUE, parsed JSON, as readable JSON.
Lines after the first have INDENT before them."
  (let ((deeper (concat indent "  ")))
    (cond ((and (hash-table-p value) (> (hash-table-count value) 0))
           (let (lines)
             (maphash (lambda (key entry)
                        (push (concat deeper
                                      (pyagentd-json-of-table key) ": "
                                      (pyagentd-ask-text--json entry deeper))
                              lines))
                      value)
             (concat "{\n" (string-join (nreverse lines) ",\n")
                     "\n" indent "}")))
          ((and (vectorp value) (> (length value) 0))
           (concat "[\n"
                   (mapconcat (lambda (entry)
                                (concat deeper
                                        (pyagentd-ask-text--json entry deeper)))
                              value ",\n")
                   "\n" indent "]"))
          (t (pyagentd-json-of-table value)))))

(defun pyagentd-ask-text-json (text)
  "Return TEXT, JSON, as readable JSON; as it is where it is none."
  (condition-case nil
      (pyagentd-ask-text--json
       (pyagentd-json-table text) "")
    (json-error text)))

;;;; Together

(defmacro pyagentd-ask-text-unbounded (&rest body)
  "Evaluate BODY, in which parts of an ask are shown whole."
  (declare (indent 0) (debug t))
  `(let ((pyagentd-ask-text--lines nil) (pyagentd-ask-text--width nil))
     ,@body))

(defmacro pyagentd-ask-text-shorter (preview rows &rest body)
  "Evaluate BODY, in which PREVIEW, a text or nil, has ROWS rows less.
A few lines of it are shown all the same, from the first changed one on."
  (declare (indent 2) (debug t))
  `(let* ((shown (min (alist-get 'preview pyagentd-ask-text--lines)
                      (length (split-string (or ,preview "") "\n"))))
          (pyagentd-ask-text--brief t)
          (pyagentd-ask-text--lines
           (cons (cons 'preview (max 3 (- shown ,rows 1)))
                 pyagentd-ask-text--lines)))
     ,@body))

(defun pyagentd-ask-text--question (question)
  "Return the lines of QUESTION, one of a model's."
  (cons (propertize (pyagentd-ask-text--cut
                     (pyagentd-ask-one-line (plist-get question :question)))
                    'face 'pyagentd-heading)
        (mapcar (lambda (option)
                  (let ((about (plist-get option :description)))
                    (pyagentd-ask-text--cut
                     (concat (if (plist-get question :multi-select)
                                 "    [ ] " "    ( ) ")
                             (pyagentd-ask-one-line (plist-get option :label))
                             (unless (member about '(nil ""))
                               (concat "  " (pyagentd-ask-one-line about)))))))
                (plist-get question :options))))

(defun pyagentd-ask-text--questions (ask)
  "Return the questions of ASK, if it is a model's."
  (when (pyagentd-ask-question-p ask)
    (let ((questions (plist-get ask :questions)))
      (pyagentd-ask-text--bounded
       'preview
       (if (cdr questions)
           (mapcan #'pyagentd-ask-text--question questions)
         (cdr (pyagentd-ask-text--question (car questions))))))))

(defun pyagentd-ask-text (ask)
  "Return what decides about ASK, without its first line and its keys."
  (concat (pyagentd-ask-text--questions ask)
          (pyagentd-ask-text--scope ask)
          (pyagentd-ask-text--commands ask)
          (pyagentd-ask-text--warning ask)
          (when-let ((preview (plist-get ask :preview)))
            (unless (equal preview "")
              (pyagentd-ask-text-preview (format "%s" preview)
                                         (plist-get ask :path))))))

(defun pyagentd-ask-text-details (ask)
  "Return why ASK is asked, and what an answer that is to last would remember."
  (concat (pyagentd-ask-text--reason ask)
          (pyagentd-ask-text--remember ask)))

(provide 'pyagentd-ask-text)
;;; pyagentd-ask-text.el ends here

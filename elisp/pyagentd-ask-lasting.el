;;; pyagentd-ask-lasting.el --- What a lasting answer allows -*- lexical-binding: t; -*-

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

;; An answer for longer than once is remembered as regular expressions, and
;; nothing else.  Before one is given it says which, what they let happen,
;; where that holds and in which file it stands.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-ask)

(defun pyagentd-ask-lasting (ask)
  "Return those of the decisions that ASK offers which are remembered."
  (and (plist-get ask :remember)
       (not (pyagentd-ask-scope-p ask))
       (seq-intersection '(session always) (pyagentd-ask-choices ask))))

(defun pyagentd-ask-lasting-rules (ask)
  "Return what an answer to ASK that is to last would remember.
That is a list of (EXPRESSION . WORDS), each on one line; WORDS say what
it lets happen, nil if the daemon does not tell."
  (seq-map-indexed
   (lambda (expression place)
     (cons (string-replace "\n" "\\n" expression)
           (when-let ((words (nth place (plist-get ask :covers))))
             (unless (equal words expression)
               (string-replace "\n" "\\n" words)))))
   (plist-get ask :remember)))

(defun pyagentd-ask-lasting-where (ask decision)
  "Return where DECISION, `session' or `always', about ASK would hold."
  (if (eq decision 'session)
      "this conversation and its agents"
    (if-let ((root (plist-get ask :project)))
        (format "every conversation in %s"
                (abbreviate-file-name (directory-file-name root)))
      "every conversation in this project")))

(defun pyagentd-ask-lasting-kept (ask decision)
  "Return the file in which DECISION about ASK would be kept."
  (abbreviate-file-name
   (if (eq decision 'session)
       (expand-file-name "messages.jsonl"
                         (pyagentd-ask-root (or (plist-get ask :branch) "/")))
     (expand-file-name "state.db" pyagentd-sessions-directory))))

(defun pyagentd-ask-lasting-words (ask decision short)
  "Return in a line where DECISION about ASK holds and is kept.
SHORT means to say only the name of the file."
  (let ((file (pyagentd-ask-lasting-kept ask decision)))
    (format "this %s: %s; kept in %s"
            (if (eq decision 'session) "session" "project")
            (pyagentd-ask-lasting-where ask decision)
            (if short (file-name-nondirectory file) file))))

(defun pyagentd-ask-lasting--names (ask)
  "Return what an answer to ASK that is to last would grant, a line each."
  (if (pyagentd-ask-scope-p ask)
      (mapcar (lambda (pattern)
                (format "%s %s" (or (plist-get ask :for-tool) "use of") pattern))
              (plist-get ask :patterns))
    (mapcar (pcase-lambda (`(,expression . ,words)) (or words expression))
            (pyagentd-ask-lasting-rules ask))))

(defun pyagentd-ask-lasting-question (ask decision)
  "Return the question whether to answer ASK with DECISION for longer.
It names what is granted, where, and the file that keeps it."
  (format "%s\n%s\n(kept in %s)  Grant this?  y or n: "
          (cond ((pyagentd-ask-scope-p ask)
                 "Add to what this session may do, from now on:")
                ((eq decision 'session)
                 "Allow without asking, in this session and its agents:")
                (t (format "Allow without asking, from now on, in %s:"
                           (pyagentd-ask-lasting-where ask decision))))
          (mapconcat (lambda (name) (concat "  " name))
                     (pyagentd-ask-lasting--names ask) "\n")
          (if (pyagentd-ask-scope-p ask) "preset.md"
            (file-name-nondirectory
             (pyagentd-ask-lasting-kept ask decision)))))

(provide 'pyagentd-ask-lasting)
;;; pyagentd-ask-lasting.el ends here

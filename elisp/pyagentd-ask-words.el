;;; pyagentd-ask-words.el --- An ask in a few words -*- lexical-binding: t; -*-

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

;; What to call an ask, an agent that asks, and how many there are.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-status)
(require 'pyagentd-ask)

;;;; Words

(defun pyagentd-ask-who (ask)
  "Return which agent ASK comes from, in words; nil for none."
  (when-let ((agent (plist-get ask :agent)))
    (pyagentd-ask-agent-words agent)))

(defun pyagentd-ask-agent-words (id)
  "Return what to call the agent ID, PRESET-TIMESTAMP-SLUG: \"PRESET (SLUG)\"."
  (if (string-match "\\`\\(.+?\\)-[0-9]\\{14\\}\\(?:-\\(.+\\)\\)?\\'" id)
      (concat (match-string 1 id)
              (when-let ((slug (match-string 2 id)))
                (format " (%s)" slug)))
    id))

(defun pyagentd-ask-one-line (text)
  "Return TEXT, whatever it is, on one line."
  (replace-regexp-in-string "[\n\t ]+" " " (string-trim (format "%s" text))))

(defun pyagentd-ask--scope-words (ask)
  "Return in a line which rights ASK wants."
  (concat "more scope: "
          (pyagentd-ask-one-line
           (string-join (mapcar (lambda (pattern) (format "%s" pattern))
                                (plist-get ask :patterns))
                        "  "))))

(defun pyagentd-ask--task (ask)
  "Return what the agent that ASK would make is to do, in a few words, or nil."
  (when (member (plist-get ask :tool) '("PersistentAgent" "task"))
    (when-let* ((arguments (pyagentd-ask-arguments ask))
                (task (or (gethash "description" arguments)
                          (gethash "prompt" arguments))))
      (format ": %s" (truncate-string-to-width
                      (pyagentd-ask-one-line task) 160 nil nil "…")))))

(defun pyagentd-ask--short (detail ask)
  "Return DETAIL of ASK, a file of the project as it is called there."
  (let ((root (plist-get ask :project)))
    (if (and root (plist-get ask :path))
        (string-remove-prefix (file-name-as-directory root) detail)
      detail)))

(defun pyagentd-ask-what (ask)
  "Return in a line what ASK is about, without who asks."
  (cond
   ((pyagentd-ask-scope-p ask) (pyagentd-ask--scope-words ask))
   ((pyagentd-ask-question-p ask)
    (pyagentd-ask-one-line (or (plist-get ask :detail) "")))
   (t
    (pyagentd-ask-one-line
     (concat (or (plist-get ask :tool) "Question") " "
             (pyagentd-ask--short (format "%s" (or (plist-get ask :detail)
                                                   (plist-get ask :action) ""))
                                  ask)
             (pyagentd-ask--task ask))))))

(defun pyagentd-ask-title (ask)
  "Return one line about ASK."
  (let ((who (pyagentd-ask-who ask)))
    (concat (and who (concat who ": ")) (pyagentd-ask-what ask))))

;;;; Header line

(defconst pyagentd-ask--named 3
  "How many asks the header line names.")

(defun pyagentd-ask--name (ask)
  "Return in a word where ASK comes from: an agent's preset, else its tool."
  (cond ((plist-get ask :agent)
         (car (split-string (pyagentd-ask-who ask) " (")))
        ((pyagentd-ask-scope-p ask) "scope")
        (t (or (plist-get ask :tool) "question"))))

(defun pyagentd-ask--segment ()
  "Return how many asks this buffer shows, and whose they are, or nil."
  (when-let ((asks (pyagentd-ask-in (current-buffer))))
    (let* ((names (delete-dups (mapcar #'pyagentd-ask--name asks)))
           (more (- (length names) pyagentd-ask--named)))
      (pyagentd-status-button
       (propertize
        (format "%d %s: %s%s" (length asks) (if (cdr asks) "asks" "ask")
                (string-join (seq-take names pyagentd-ask--named) ", ")
                (if (> more 0) (format " +%d" more) ""))
        'face 'warning)
       'pyagentd-asks "What is asked"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-ask--segment)

(provide 'pyagentd-ask-words)
;;; pyagentd-ask-words.el ends here

;;; pyagentd-yaml.el --- Read the metadata of a session -*- lexical-binding: t; -*-

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

;; scope-plan.yml, branch-metadata.yml and the front matter of preset.md,
;; read without the daemon.  This is the YAML that the daemon itself and
;; its presets write: keys with texts, numbers, lists and further keys.
;; Whatever else stands there is an error of the kind
;; `pyagentd-yaml-unknown'; then the daemon, which knows all of YAML, is
;; to be asked.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'subr-x)

(define-error 'pyagentd-yaml-unknown "YAML that only the daemon reads")

(defconst pyagentd-yaml--largest 262144
  "Bytes of the largest file that is read here.")

(defun pyagentd-yaml--unknown (line)
  "Signal that only the daemon understands LINE."
  (signal 'pyagentd-yaml-unknown (list line)))

(defun pyagentd-yaml-text (file)
  "Return the text of FILE, nil if there is none."
  (when (file-exists-p file)
    (unless (and (file-regular-p file) (file-readable-p file)
                 (< (file-attribute-size (file-attributes (file-truename file)))
                    pyagentd-yaml--largest))
      (pyagentd-yaml--unknown file))
    (with-temp-buffer
      (let ((coding-system-for-read 'utf-8-unix))
        (insert-file-contents file))
      (when (re-search-forward "[\t\r\ufeff]\\|[^[:print:]\n]" nil t)
        (goto-char (match-beginning 0))
        (pyagentd-yaml--unknown (buffer-substring (line-beginning-position)
                                                  (line-end-position))))
      (buffer-string))))

(defun pyagentd-yaml-front (text)
  "Return TEXT, that of a preset, as (FRONT-MATTER . BODY)."
  (if (string-match "\\`---\n\\(\\(?:.*\n\\)*?\\)---\\(?:\n\\|\\'\\)" text)
      (cons (match-string 1 text) (substring text (match-end 0)))
    (pyagentd-yaml--unknown (car (split-string text "\n")))))

(defun pyagentd-yaml-preset (text)
  "Return the front matter of TEXT, that of a preset, as a plist.
Its :tools are a list of names."
  (let* ((front (pyagentd-yaml-read (car (pyagentd-yaml-front text))))
         (tools (plist-get front :tools)))
    (cond ((stringp tools)
           (plist-put front :tools (split-string tools "[ ,]+" t)))
          ((seq-every-p #'stringp (ensure-list tools)) front)
          (t (pyagentd-yaml--unknown "tools:")))))

;;;; Lines

(defun pyagentd-yaml-read (text &optional plain)
  "Return the keys of TEXT as a plist with keywords in kebab-case.
Values are texts, numbers, t, nil, lists and plists.  PLAIN means that
every value is the text as it is written, and that what is no text is
left out."
  (let ((lines (cl-loop for line in (split-string text "\n")
                        for start = (string-match "[^ ]" line)
                        unless (or (null start) (eq (aref line start) ?#))
                        collect (cons start (substring line start)))))
    (when (or (null lines) (/= 0 (caar lines)))
      (pyagentd-yaml--unknown (or (cdar lines) "no keys")))
    (pcase-let ((`(,keys . ,rest) (pyagentd-yaml--keys lines 0 plain)))
      (when rest (pyagentd-yaml--unknown (cdar rest)))
      keys)))

(defun pyagentd-yaml--keys (lines indent plain)
  "Read the keys at the beginning of LINES, pairs (INDENT . TEXT).
INDENT is theirs, PLAIN as in `pyagentd-yaml-read'.  Return (PLIST . REST)
with the LINES that follow."
  (let (keys)
    (while (and lines (= indent (caar lines)))
      (let ((line (cdr (pop lines))) key value said)
        (unless (string-match "\\`\\([A-Za-z_][A-Za-z0-9_-]*\\):\\(?: +\\|\\'\\)" line)
          (pyagentd-yaml--unknown line))
        (setq key (intern (concat ":" (string-replace
                                       "_" "-" (match-string 1 line))))
              said (substring line (match-end 0)))
        (when (plist-member keys key)
          (pyagentd-yaml--unknown line))
        (if (not (string-match-p "\\`\\(?:#.*\\)?\\'" said))
            (setq value (pyagentd-yaml--value said plain))
          (pcase-setq `(,value . ,lines)
                      (pyagentd-yaml--below lines indent plain)))
        (unless (and plain (not (stringp value)))
          (setq keys (plist-put keys key value)))))
    (when (and lines (> (caar lines) indent))
      (pyagentd-yaml--unknown (cdar lines)))
    (cons keys lines)))

(defun pyagentd-yaml--below (lines indent plain)
  "Read what LINES have below a key with INDENT; PLAIN as above.
Return (VALUE . REST)."
  (let ((below (caar lines)))
    (cond ((and lines (>= below indent)
                (string-match-p "\\`-\\(?: \\|\\'\\)" (cdar lines)))
           (cons (cl-loop while (and lines (= below (caar lines))
                                     (string-prefix-p "- " (cdar lines)))
                          collect (pyagentd-yaml--item
                                   (string-trim-left (substring (cdr (pop lines)) 2))
                                   plain))
                 lines))
          ((and lines (> below indent))
           (pyagentd-yaml--keys lines below plain))
          (t (cons (and plain "") lines)))))

;;;; Values

(defun pyagentd-yaml--item (text plain)
  "Return the value of TEXT, that of an item of a list; PLAIN as above."
  (if (string-match-p "\\`[^]\"'#[]*:\\(?: \\|\\'\\)"
                      (replace-regexp-in-string " #.*\\'" "" text))
      (pyagentd-yaml--unknown text)
    (pyagentd-yaml--value text plain)))

(defun pyagentd-yaml--value (text plain)
  "Return the value of TEXT, which stands behind a key; PLAIN as above."
  (if (not (string-prefix-p "[" text))
      (pyagentd-yaml--scalar text plain)
    (unless (string-match "\\`\\[\\(.*\\)\\] *\\(?: #.*\\)?\\'" text)
      (pyagentd-yaml--unknown text))
    (let ((inside (string-trim (match-string 1 text))) items)
      (while (not (string-empty-p inside))
        (unless (string-match
                 "\\`\\(\"[^\"]*\"\\|'[^']*'\\|[^][{},\"'#]+\\) *\\(?:, *\\|\\'\\)"
                 inside)
          (pyagentd-yaml--unknown text))
        (let ((item (match-string 1 inside)))
          (setq inside (substring inside (match-end 0)))
          (push (pyagentd-yaml--item (string-trim item) plain) items)))
      (nreverse items))))

(defun pyagentd-yaml--scalar (text plain)
  "Return the value of TEXT, a text or number; PLAIN as above."
  (cond ((string-match "\\`\"\\([^\"\\]*\\)\" *\\(?: #.*\\)?\\'" text)
         (match-string 1 text))
        ((string-match "\\`'\\([^']*\\)' *\\(?: #.*\\)?\\'" text)
         (match-string 1 text))
        ((string-match-p "\\`[]&*!|>%@`{}\"'?,[-]\\|: \\|:\\'"
                         (replace-regexp-in-string " #.*\\'" "" text))
         (if (string-match-p "\\`-[0-9.]+\\'" text)
             (pyagentd-yaml--plain text plain)
           (pyagentd-yaml--unknown text)))
        (t (pyagentd-yaml--plain
            (string-trim-right (replace-regexp-in-string " #.*\\'" "" text))
            plain))))

(defun pyagentd-yaml--plain (text plain)
  "Return the value of TEXT without quotation marks; PLAIN as above."
  (cond (plain text)
        ((member text '("true" "True" "TRUE")) t)
        ((member text '("false" "False" "FALSE" "null" "Null" "NULL" "~")) nil)
        ((string-match-p "\\`-?\\(?:0\\|[1-9][0-9]*\\)\\(?:\\.[0-9]+\\)?\\'" text)
         (string-to-number text))
        ;; Dates, and the many other ways to write a number.
        ((string-match-p "\\`[-+.]?[0-9]" text) (pyagentd-yaml--unknown text))
        ((string-match-p "\\`[-+]?\\.\\(?:inf\\|nan\\)\\'" (downcase text))
         (pyagentd-yaml--unknown text))
        (t text)))

(provide 'pyagentd-yaml)
;;; pyagentd-yaml.el ends here

;;; pyagentd-fenced.el --- Blocks of tools, thoughts -*- lexical-binding: t; -*-

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

;; What the model thought, and what its tools were asked and answered,
;; stands in the text in fences.  Where they begin and end their roles say.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-failed)

(defconst pyagentd-fenced-open "^``` \\(?:\\(tool\\) (\\|\\(reasoning\\)$\\)"
  "How the first line of a block begins.")

(defun pyagentd-fenced--change (pos)
  "Return where the role of the text at POS ends."
  (let ((role (get-text-property pos 'gptel)))
    (while (and (setq pos (next-single-property-change pos 'gptel nil
                                                       (point-max)))
                (< pos (point-max))
                (equal role (get-text-property pos 'gptel))))
    pos))

(defun pyagentd-fenced--end (pos kind)
  "Return where the block of KIND that begins at POS ends, nil if it is open."
  (let ((end (pyagentd-fenced--change pos)))
    (when (eq kind 'tool)
      (setq end (and (consp (get-text-property end 'gptel))
                     (+ 4 (pyagentd-fenced--change end)))))
    (and end (<= end (point-max))
         (equal (buffer-substring-no-properties (max pos (- end 4)) end)
                "\n```")
         end)))

(defun pyagentd-fenced-block (pos)
  "Return the block whose first line begins at POS, (KIND BEG EOL END), or nil.
One that is still being written is none."
  (save-excursion
    (goto-char pos)
    (save-match-data
      (when (and (eq (get-text-property pos 'gptel) 'ignore)
                 (looking-at pyagentd-fenced-open))
        (let* ((kind (if (match-beginning 1) 'tool 'reasoning))
               (end (pyagentd-fenced--end pos kind)))
          (when (and end (< (line-end-position) end))
            (list kind pos (line-end-position) end)))))))

(defun pyagentd-fenced--call-end (beg end)
  "Return where the call ends that is written at BEG, before END.
Texts in it may have lines; where it is none it is taken for one line."
  (save-restriction
    (narrow-to-region beg end)
    (with-syntax-table emacs-lisp-mode-syntax-table
      (let ((parse-sexp-lookup-properties nil)
            (parse-sexp-ignore-comments nil))
        (or (ignore-errors (scan-sexps beg 1))
            (save-excursion (goto-char beg) (forward-line 1) (point)))))))

(defun pyagentd-fenced--result (eol end)
  "Return the result in a block between EOL and END, as (BEG . END)."
  (save-excursion
    (goto-char (1+ eol))
    (when (looking-at "(:name ")
      (goto-char (pyagentd-fenced--call-end (point) end))
      (skip-chars-forward "\n" end))
    (let ((end (max eol (- end 4))))
      (cons (min (point) end) end))))

(defun pyagentd-fenced--output (eol end)
  "Return how to say how much text is in a block between EOL and END."
  (pcase-let ((`(,beg . ,end) (pyagentd-fenced--result eol end)))
    (let ((lines (count-lines beg end)))
      (if (= lines 1) "1 line" (format "%d lines" lines)))))

(defun pyagentd-fenced--failure (eol end)
  "Return in words how the call between EOL and END failed, nil if it did not."
  (pcase-let* ((`(,beg . ,end) (pyagentd-fenced--result eol end))
               (last (buffer-substring-no-properties (max beg (- end 24)) end))
               (id (cdr-safe (get-text-property eol 'gptel))))
    (cond ((string-match "\\[\\(exit\\) code \\([0-9]+\\)\\]\\'" last)
           (concat (match-string 1 last) " " (match-string 2 last)))
          ((and id (pyagentd-failed-p id))
           (truncate-string-to-width
            (save-excursion
              (goto-char beg)
              (buffer-substring-no-properties
               beg (min end (line-end-position))))
            60 nil nil "…")))))

(defconst pyagentd-fenced--longest 20000
  "How many characters of a call are read to say what it was.")

(defun pyagentd-fenced--call (eol end)
  "Return the call between EOL and END, (NAME . ARGUMENTS), or nil."
  (save-excursion
    (goto-char (1+ eol))
    (when (looking-at-p "(:name ")
      (let* ((last (min (pyagentd-fenced--call-end (point) end)
                        (+ (point) pyagentd-fenced--longest)))
             (call (ignore-errors
                     (car (read-from-string
                           (buffer-substring-no-properties (point) last))))))
        (and (stringp (plist-get call :name))
             (cons (plist-get call :name) (plist-get call :args)))))))

(defun pyagentd-fenced--about (arguments)
  "Return in a few words what a call with ARGUMENTS, a plist, is about."
  (let ((value (and (proper-list-p arguments)
                    (seq-find (lambda (value) (or (stringp value)
                                                  (numberp value)))
                              arguments))))
    (truncate-string-to-width
     (replace-regexp-in-string "[ \t\n]+" " "
                               (string-trim (format "%s" (or value ""))))
     80 nil nil "…")))

(defun pyagentd-fenced--line (beg eol end)
  "Return what the call from BEG to END was; its first line ends at EOL.
What the daemon says of it, else its tool and its first argument."
  (or (when-let ((id (cdr-safe (get-text-property eol 'gptel))))
        (pyagentd-failed-line id))
      (pcase-let ((`(,name . ,arguments)
                   (or (pyagentd-fenced--call eol end)
                       (list (buffer-substring-no-properties
                              (+ beg (length "``` tool ("))
                              (save-excursion
                                (goto-char (+ beg (length "``` tool (")))
                                (skip-chars-forward "^ )\n" eol)
                                (point)))))))
        (concat (string-trim-right
                 (concat name " " (pyagentd-fenced--about arguments)))
                (if-let ((failure (pyagentd-fenced--failure eol end)))
                    (concat " → " failure)
                  (concat " · " (pyagentd-fenced--output eol end)))))))

(defun pyagentd-fenced-words (kind beg eol end)
  "Return the line for a block of KIND from BEG to END; its first ends at EOL."
  (concat
   "▸ "
   (if (eq kind 'reasoning)
       (concat "thought · " (pyagentd-fenced--output eol end))
     (let ((line (pyagentd-fenced--line beg eol end)))
       (if (pyagentd-fenced--failure eol end)
           (propertize line 'face '(error pyagentd-fold))
         line)))))

(defun pyagentd-fenced-agents-call (start)
  "Return the id of the call at START if it is one that makes an agent."
  (when-let ((block (pyagentd-fenced-block start)))
    (save-excursion
      (goto-char start)
      (and (looking-at-p "``` tool (\\(?:PersistentAgent\\|task\\|mission\\)\\_>")
           (cdr-safe (get-text-property (nth 2 block) 'gptel))))))

(defun pyagentd-fenced-start (pos)
  "Return where the block begins that has POS in it or in its last line."
  (save-excursion
    (goto-char pos)
    (end-of-line)
    (let (start)
      (while (and (not start)
                  (re-search-backward pyagentd-fenced-open nil t)
                  (get-text-property (point) 'gptel))
        (if-let ((block (pyagentd-fenced-block (point))))
            (setq start (if (<= pos (nth 3 block)) (point) -1))
          (when (bobp) (setq start -1))))
      (and start (> start 0) start))))

(provide 'pyagentd-fenced)
;;; pyagentd-fenced.el ends here

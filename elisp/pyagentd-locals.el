;;; pyagentd-locals.el --- Where Local Variables stand, and what they say -*- lexical-binding: t; -*-

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

;; A block of Local Variables as text: where it begins and ends, whatever
;; happened to it, and what it says.  What counts as a block is exactly
;; what the daemon takes for one.
;;
;; Emacs itself reads Local Variables only within the last 3000 characters
;; of a file; here they are looked for in the whole text.

;;; Code:

(require 'cl-lib)
(require 'subr-x)

;; Spelled in two parts, lest Emacs takes it for a block of this file.
(defconst pyagentd-locals--heading (concat "Local " "Variables:")
  "First line of a block.")

(defconst pyagentd-locals--tries 8
  "How many headings are looked at: the words may also stand in a value.")

;;;; Lines

(defun pyagentd-locals--line (pos)
  "Return the text of the line with POS."
  (save-excursion
    (goto-char pos)
    (buffer-substring-no-properties (line-beginning-position)
                                    (line-end-position))))

(defun pyagentd-locals--affixes (line)
  "Return (PREFIX . SUFFIX), what surrounds the heading in LINE."
  (let ((at (string-search pyagentd-locals--heading line)))
    (cons (string-trim (substring line 0 at))
          (string-trim (substring line (+ at (length pyagentd-locals--heading)))))))

(defun pyagentd-locals--content (line affixes)
  "Return what stands in LINE between AFFIXES, nil if they are not there."
  ;; No regexps on the line: one of bounds is easily 200 kB long.
  (pcase-let ((`(,prefix . ,suffix) affixes)
              (line (string-trim line)))
    (and (>= (length line) (+ (length prefix) (length suffix)))
         (string-prefix-p prefix line) (string-suffix-p suffix line)
         (string-trim (substring line (length prefix)
                                 (- (length line) (length suffix)))))))

(defun pyagentd-locals--entry (content)
  "Return CONTENT of a line as (NAME . VALUE), both strings, or nil."
  (when (and content (string-match "\\`\\([^[:space:]:][^[:space:]]*?\\):[ \t]*"
                                   content))
    (cons (match-string 1 content) (substring content (match-end 0)))))

(defun pyagentd-locals--lines (start end)
  "Return the lines of the text from START to END."
  (split-string (buffer-substring-no-properties start end) "\n"))

(defun pyagentd-locals--read (start end)
  "Read the text from START to END, both of a line, as a block.
Return (t . ALIST) with names and values as strings, or nil if it is
none."
  (pcase-let* ((`(,heading . ,lines) (pyagentd-locals--lines start end))
               (affixes (pyagentd-locals--affixes heading))
               (entries (mapcar (lambda (line)
                                  (pyagentd-locals--entry
                                   (pyagentd-locals--content line affixes)))
                                (butlast lines))))
    (and lines (not (memq nil entries))
         (equal (pyagentd-locals--content (car (last lines)) affixes) "End:")
         (cons t (pyagentd-locals--unique entries)))))

(defun pyagentd-locals--unique (entries)
  "Return ENTRIES with the last value of each name, in the place of the first."
  (let (result)
    (dolist (entry entries (nreverse result))
      (if-let ((known (assoc (car entry) result)))
          (setcdr known (cdr entry))
        (push (cons (car entry) (cdr entry)) result)))))

(defun pyagentd-locals-ours-p (entries)
  "Return non-nil if a variable in ENTRIES is one of gptel's."
  (cl-some (lambda (entry) (string-prefix-p "gptel" (car entry))) entries))

;;;; Finding a block

(defun pyagentd-locals--stop (end)
  "Return where the text before END ends that is not blank."
  (save-excursion
    (goto-char end)
    (skip-chars-backward " \t\r\n\f\v")
    (point)))

(defun pyagentd-locals--openings (stop)
  "Return the beginnings of lines before STOP with the heading, last first."
  (save-excursion
    (goto-char stop)
    (let ((case-fold-search nil))
      (cl-loop repeat pyagentd-locals--tries
               while (search-backward pyagentd-locals--heading nil t)
               collect (line-beginning-position)))))

(defun pyagentd-locals--last (end)
  "Return (START . ALIST) of the block before END, with only blanks between."
  (let ((stop (pyagentd-locals--stop end)))
    (when (string-search "End:" (pyagentd-locals--line stop))
      (cl-loop for start in (pyagentd-locals--openings stop)
               for block = (pyagentd-locals--read start stop)
               when block return (cons start (cdr block))))))

(defun pyagentd-locals--torn ()
  "Return the block that ends the text but has lost some of it, or nil.
The value is as of `pyagentd-locals-find'."
  (let ((stop (pyagentd-locals--stop (point-max))))
    (cl-loop
     for start in (pyagentd-locals--openings stop)
     for lines = (pyagentd-locals--lines start stop)
     for affixes = (pyagentd-locals--affixes (car lines))
     for read = (mapcar (lambda (line)
                          (or (pyagentd-locals--entry
                               (pyagentd-locals--content line affixes))
                              (pyagentd-locals--cut-entry line (car affixes))))
                        (cdr lines))
     for entries = (pyagentd-locals--unique (delq nil (copy-sequence read)))
     when (and (pyagentd-locals-ours-p entries)
               (cl-every (lambda (line) (string-prefix-p (car affixes) line)) lines)
               (>= (* 2 (length (delq nil (copy-sequence read)))) (length read)))
     return (list :start start :end stop :entries entries :torn t
                  :bounds (list (pyagentd-locals--bounds-of entries))))))

(defun pyagentd-locals--cut-entry (line prefix)
  "Return what LINE, which begins with PREFIX but lost its end, says."
  (let ((entry (pyagentd-locals--entry
                (string-trim (string-remove-prefix prefix (string-trim line))))))
    (and entry (string-prefix-p "gptel" (car entry)) entry)))

(defun pyagentd-locals--passed ()
  "Return the last block below which somebody wrote, or nil.
Only one with roles for the text above is believed.  The value is as of
`pyagentd-locals-find'."
  (cl-loop
   for start in (pyagentd-locals--openings (point-max))
   for end = (pyagentd-locals--passed-end start)
   for block = (and end (pyagentd-locals--read start end))
   for bounds = (and block (pyagentd-locals--bounds-of (cdr block)))
   when (and bounds (not (equal bounds "nil"))
             (not (pyagentd-locals-fenced-p (point-min) start)))
   return (list :start start :end end :entries (cdr block)
                :bounds (list bounds))))

(defun pyagentd-locals--passed-end (start)
  "Return where the last line ends of the block that begins at START, or nil."
  (save-excursion
    (goto-char start)
    (let ((affixes (pyagentd-locals--affixes (pyagentd-locals--line start)))
          content)
      (while (and (zerop (forward-line)) (not (eobp))
                  (setq content (pyagentd-locals--content
                                 (pyagentd-locals--line (point)) affixes))
                  (not (equal content "End:"))))
      (and (equal content "End:") (line-end-position)))))

(defun pyagentd-locals--bounds-of (entries)
  "Return the printed bounds in ENTRIES, nil if there are none."
  (alist-get "gptel--bounds" entries nil nil #'equal))

(defun pyagentd-locals-find ()
  "Return the block of the whole buffer, or nil.
That is a plist with :start and :end, :entries (an alist of strings),
:bounds (printed ones, of several blocks in a row those of the last
first; nil where a block has none), for one that is whole and ends the
text :count, the number of blocks that say something, and :guarded,
non-nil if an empty block stands before it; for one that ends the text
but has lost some of it :torn.

An Emacs that does not see a block writes another one behind it: blocks
in a row count as one, the later settings hold.  An empty block ends the
row: the text before it ends like a block."
  (if-let ((last (pyagentd-locals--last (point-max))))
      (let* ((start (car last)) (entries (cdr last)) (all (cdr last))
             (bounds (list (pyagentd-locals--bounds-of entries)))
             (count 1)
             earlier)
        (while (and entries (setq earlier (pyagentd-locals--last start))
                    (or (null (cdr earlier))
                        (pyagentd-locals-ours-p (cdr earlier))))
          (setq start (car earlier)
                entries (and (cdr earlier)
                             (pyagentd-locals--unique
                              (append (cdr earlier) entries)))
                all (pyagentd-locals--unique (append (cdr earlier) all)))
          (when (cdr earlier) (cl-incf count))
          (push (pyagentd-locals--bounds-of (cdr earlier)) bounds))
        (list :start start :end (point-max) :entries all
              :guarded (null entries) :count count :bounds (nreverse bounds)))
    (or (pyagentd-locals--torn) (pyagentd-locals--passed))))

(defun pyagentd-locals-mentioned-p ()
  "Return non-nil if the words that open a block stand in the text itself."
  (save-restriction
    (widen)
    (save-excursion
      (goto-char (point-max))
      (let ((case-fold-search nil))
        (search-backward pyagentd-locals--heading nil t)))))

(defun pyagentd-locals-fenced-p (start end)
  "Return non-nil if a code block of Markdown is open at END.
It begins after START."
  (save-excursion
    (goto-char start)
    (cl-oddp (cl-loop while (re-search-forward "^ \\{0,3\\}\\(?:```\\|~~~\\)" end t)
                      count t))))

;;;; Cleaning

(defun pyagentd-locals-all ()
  "Return the whole blocks of gptel's in the text.
Each is a list (START END BOUNDS ENTRIES).  BOUNDS are the printed ones,
nil if there are none; ENTRIES is an alist of strings."
  (let (case-fold-search found)
    (save-excursion
      (goto-char (point-min))
      (while (search-forward pyagentd-locals--heading nil t)
        (let* ((start (line-beginning-position))
               (end (pyagentd-locals--passed-end start))
               (block (and end (pyagentd-locals--read start end))))
          (when (and block (pyagentd-locals-ours-p (cdr block)))
            (push (list start end (pyagentd-locals--bounds-of (cdr block))
                        (cdr block))
                  found)
            (goto-char end)))))
    (nreverse found)))

(defun pyagentd-locals-clean (keep)
  "Delete blocks of gptel's from the text and return how many.
KEEP is a function that gets all of them, as `pyagentd-locals-all'
gives them, and returns those that stay."
  (save-restriction
    (widen)
    (let* ((all (pyagentd-locals-all))
           (kept (funcall keep all))
           (count 0))
      (pcase-dolist ((and block `(,start ,end . ,_)) (reverse all))
        (unless (memq block kept)
          (cl-incf count)
          (goto-char end)
          (skip-chars-forward "\n")
          (delete-region start (point))
          (when (eobp)                  ; of the empty line before it
            (delete-region (point) (progn (skip-chars-backward "\n")
                                          (min (1+ (point)) (point-max)))))))
      count)))

(defun pyagentd-locals-last-valid (blocks)
  "Return a list of the last of BLOCKS with roles, or else of the last one."
  (last (or (cl-remove-if (lambda (block) (member (nth 2 block) '(nil "nil")))
                          blocks)
            blocks)))

;;;; Values

(defun pyagentd-locals-read-bounds (printed)
  "Return the bounds that are PRINTED; of a torn line what is whole."
  (condition-case nil
      (car (read-from-string printed))
    (error
     (let ((pos 0) sections)
       (while (string-match "(\\(?:tool\\|ignore\\|response\\) " printed pos)
         (setq pos (match-end 0))
         (when-let ((section (ignore-errors
                               (read-from-string printed (match-beginning 0)))))
           (push (car section) sections)))
       (nreverse sections)))))

(defun pyagentd-locals-printed (lines)
  "Return a block of LINES."
  (mapconcat (lambda (line) (concat "<!-- " line " -->\n"))
             `(,pyagentd-locals--heading ,@lines "End:") ""))

(provide 'pyagentd-locals)
;;; pyagentd-locals.el ends here

;;; pyagentd-edit.el --- What was typed since the file was written -*- lexical-binding: t; -*-

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

;; Knows the edits of a session buffer that its file does not have.  When
;; another program has written the file they are set aside, the text of the
;; file is shown, and they are made again where they belong in it.
;;
;; Text that the daemon inserts is no edit.  An edit of text that the other
;; program changed as well is a conflict: nothing is removed then, what was
;; typed goes behind what the other one wrote, and the whole text as it was
;; here stays in a buffer of its own.

;;; Code:

(require 'cl-lib)
(require 'pyagentd-core)
(require 'pyagentd-session)


;;;; Recording edits

(defconst pyagentd-edit--most 200
  "How many edits are told apart; more of them become one.")

(defvar-local pyagentd-edit--edits nil
  "Edits that the file does not have, in any order: (BEG END OLD).
The text between the markers BEG and END is in place of the string OLD.
No two of them touch.")
(defvar-local pyagentd-edit--aside nil
  "Edits that are to be made again, the newest first: (BASE EDITS KEPT).
BASE is a buffer with the text that they are of, KEPT one with the text
with them that the user can see, or nil.  EDITS is a list, in order, of
\(POSITION LENGTH TEXT): TEXT goes in place of so many characters.")

(pyagentd-permanent-local 'pyagentd-edit--edits 'pyagentd-edit--aside)

(defun pyagentd-edit--before-change (beg end)
  "Note that the text between BEG and END is about to be changed."
  (save-restriction
    (widen)
    (let* ((all (length> pyagentd-edit--edits pyagentd-edit--most))
           (touched (sort (seq-filter (pcase-lambda (`(,first ,last ,_))
                                        (or all (and (<= first end)
                                                     (<= beg last))))
                                      pyagentd-edit--edits)
                          (lambda (one other) (< (car one) (car other)))))
           (old nil)
           (start (if touched (min beg (caar touched)) beg))
           (position start))
      (pcase-dolist (`(,first ,last ,text) touched)
        (push (buffer-substring-no-properties position first) old)
        (push text old)
        (setq position (marker-position last)))
      (when (< position end)
        (push (buffer-substring-no-properties position end) old)
        (setq position end))
      (setq pyagentd-edit--edits
            (cons (list (copy-marker start) (copy-marker position t)
                        (apply #'concat (nreverse old)))
                  (seq-difference pyagentd-edit--edits touched #'eq)))
      (mapc #'pyagentd-edit--free touched))))

(defun pyagentd-edit--free (edit)
  "Let go of the markers of EDIT."
  (set-marker (nth 0 edit) nil)
  (set-marker (nth 1 edit) nil))

(add-to-list 'pyagentd-session-hooks
             '(before-change-functions . pyagentd-edit--before-change))
(put 'pyagentd-edit--before-change 'permanent-local-hook t)

(defun pyagentd-edit-except (beg end)
  "Note that the text between BEG and END, inserted just now, is no edit."
  (dolist (edit pyagentd-edit--edits)
    (pcase-let ((`(,first ,last ,_) edit))
      (cond ((or (<= end first) (<= last beg)))
            ((= first beg) (set-marker first end))
            ((= last end) (set-marker last beg))
            (t (push (list (copy-marker end) (copy-marker last t) "")
                     pyagentd-edit--edits)
               (set-marker last beg))))))

(defun pyagentd-edit-forget ()
  "Forget the edits: the file has them."
  (mapc #'pyagentd-edit--free pyagentd-edit--edits)
  (setq pyagentd-edit--edits nil))

(add-hook 'pyagentd-session-saved-hook #'pyagentd-edit-forget)
(add-hook 'pyagentd-session-read-hook #'pyagentd-edit-forget)

;;;; Comparing two texts

(defconst pyagentd-edit--step 65536
  "How many characters are compared at once from the end.")

(defun pyagentd-edit--head (other)
  "Return with how many equal characters this buffer and OTHER begin."
  (let* ((case-fold-search nil)
         (order (compare-buffer-substrings nil nil nil other nil nil)))
    (if (= order 0) (buffer-size) (1- (abs order)))))

(defun pyagentd-edit--tail (other most)
  "Return with how many equal characters this buffer and OTHER end, at most MOST."
  (let ((case-fold-search nil)
        (step pyagentd-edit--step)
        (end (point-max))
        (other-end (with-current-buffer other (point-max)))
        (length 0))
    (while (> step 0)
      (while (and (<= (+ length step) most)
                  (= 0 (compare-buffer-substrings
                        nil (- end length step) (- end length)
                        other (- other-end length step) (- other-end length))))
        (setq length (+ length step)))
      (setq step (/ step 2)))
    length))

(defun pyagentd-edit-difference (other)
  "Return where this buffer and OTHER differ: (BEG END OTHER-END).
What is between BEG and END here is between BEG and OTHER-END there.
Both are compared whole."
  (save-restriction
    (widen)
    (let* ((other-size (buffer-size other))
           (head (pyagentd-edit--head other))
           (tail (pyagentd-edit--tail
                  other (- (min (buffer-size) other-size) head))))
      (list (1+ head) (- (1+ (buffer-size)) tail)
            (- (1+ other-size) tail)))))

(defun pyagentd-edit--differences (other)
  "Return where this buffer and OTHER differ, as a list of differences.
Each is (BEG END OTHER-BEG OTHER-END).
They are in order, parted by lines that either text has once."
  (pcase-let* ((`(,beg ,end ,other-end) (pyagentd-edit-difference other))
               (lines (pyagentd-edit--lines beg end))
               (position beg) (other-position beg) (found nil))
    (with-current-buffer other
      (pcase-dolist (`(,line . ,start)
                     (pyagentd-edit--once (pyagentd-edit--lines beg other-end)))
        (push (cons line start) found)))
    (let ((here (make-hash-table :test #'equal)) (differences nil))
      (pcase-dolist (`(,line . ,start) (pyagentd-edit--once lines))
        (puthash line start here))
      (pcase-dolist (`(,line . ,other-start) (nreverse found))
        (when-let ((start (gethash line here)))
          (when (and (>= start position) (>= other-start other-position))
            (push (list position start other-position other-start) differences)
            (setq position (+ start (length line))
                  other-position (+ other-start (length line))))))
      (push (list position end other-position other-end) differences)
      (delq nil (mapcar (lambda (difference)
                          (pyagentd-edit--trimmed difference other))
                        (nreverse differences))))))

(defun pyagentd-edit--lines (beg end)
  "Return the whole lines between BEG and END, a list of (LINE . POSITION)."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char beg)
      (unless (bolp) (forward-line 1))
      (let (lines start)
        (while (and (setq start (point)) (= 0 (forward-line 1)) (bolp)
                    (<= (point) end) (> (point) start))
          (push (cons (buffer-substring-no-properties start (point)) start)
                lines))
        (nreverse lines)))))

(defun pyagentd-edit--once (lines)
  "Return those of LINES that are there once."
  (let ((counts (make-hash-table :test #'equal)))
    (pcase-dolist (`(,line . ,_) lines)
      (puthash line (1+ (gethash line counts 0)) counts))
    (seq-filter (lambda (line) (= 1 (gethash (car line) counts))) lines)))

(defun pyagentd-edit--trimmed (difference other)
  "Return DIFFERENCE from OTHER without what is equal at its ends, or nil."
  (pcase-let* ((`(,beg ,end ,other-beg ,other-end) difference)
               (text (buffer-substring-no-properties beg end))
               (old (with-current-buffer other
                      (buffer-substring-no-properties other-beg other-end)))
               (most (min (length text) (length old)))
               (head (pyagentd-edit--common text old most))
               (tail (pyagentd-edit--common (reverse text) (reverse old)
                                            (- most head))))
    (unless (equal text old)
      (list (+ beg head) (- end tail) (+ other-beg head) (- other-end tail)))))

;;;; Setting edits aside

(defun pyagentd-edit-set-aside (keep)
  "Set the edits of this buffer aside, before the text of the file is shown.
With KEEP the text as it is now stays in a buffer that the user can see."
  (save-restriction
    (widen)
    (let ((edits (pyagentd-edit--taken))
          (base (generate-new-buffer " *pyagentd before edits*" t))
          (text (current-buffer)))
      (pyagentd-edit-forget)
      (if (null edits)
          (kill-buffer base)
        (with-current-buffer base
          (setq buffer-undo-list t)
          (insert-buffer-substring-no-properties text)
          (pcase-dolist (`(,position ,_ ,new ,old) edits)
            (goto-char position)
            (delete-char (length new))
            (insert old)))
        (push (list base (mapcar (lambda (edit) (seq-take edit 3)) edits)
                    (and keep (pyagentd-edit--keep)))
              pyagentd-edit--aside)))))

(defun pyagentd-edit--taken ()
  "Return the edits of this buffer, in order: (POSITION LENGTH TEXT OLD).
POSITION is one of the text before them, LENGTH that of OLD there.  What
was changed back is none."
  (let ((shift 0) edits)
    (pcase-dolist (`(,first ,last ,old)
                   (sort (copy-sequence pyagentd-edit--edits)
                         (lambda (one other) (< (car one) (car other)))))
      (let* ((new (buffer-substring first last))
             (most (min (length new) (length old)))
             (head (pyagentd-edit--common new old most))
             (tail (pyagentd-edit--common (reverse new) (reverse old)
                                          (- most head)))
             (position (+ (- first shift) head)))
        (cl-incf shift (- (length new) (length old)))
        (setq new (substring new head (- (length new) tail))
              old (substring old head (- (length old) tail)))
        (unless (and (string-empty-p new) (string-empty-p old))
          (push (list position (length old) new old) edits))))
    (nreverse edits)))

(defun pyagentd-edit--common (one other most)
  "Return with how many equal characters ONE and OTHER begin, at most MOST."
  (let ((order (compare-strings one 0 most other 0 most)))
    (if (eq order t) most (1- (abs order)))))

(defun pyagentd-edit--keep ()
  "Return a new buffer with the text of this one, which no file has.
Leaving Emacs asks about it."
  (let ((text (buffer-substring-no-properties (point-min) (point-max)))
        (buffer (generate-new-buffer
                 (format "*%s: not saved*" pyagentd--session-id))))
    (with-current-buffer buffer
      (insert text)
      (goto-char (point-min))
      (setq-local buffer-offer-save t))
    buffer))

;;;; Making them again

(defun pyagentd-edit-put-back (run)
  "Make the edits that were set aside again, in the text of this buffer.
RUN is a marker where the next text of a run goes, or nil."
  (dolist (aside (nreverse pyagentd-edit--aside))
    (pcase-let ((`(,base ,edits ,kept) aside))
      (when (buffer-live-p base)
        (unwind-protect
            (pyagentd-edit--again base edits kept run)
          (kill-buffer base)))))
  (setq pyagentd-edit--aside nil))

(defun pyagentd-edit--again (base edits kept run)
  "Make EDITS of the text in the buffer BASE here.
KEPT is a buffer with that text and them, or nil; RUN is a marker or nil."
  (save-restriction
    (widen)
    (pcase-let* ((inhibit-read-only t)
                 (differences (pyagentd-edit--differences base))
                 (places (mapcar (lambda (edit)
                                   (pyagentd-edit--place edit differences))
                                 edits))
                 (conflict (memq nil (mapcar #'cadr places))))
      (when (and conflict (not (buffer-live-p kept)))
        (setq kept (pyagentd-edit--kept-of base edits)))
      (pyagentd-edit--make places run)
      (if conflict
          (pyagentd-log 'warn "%s: changed here and elsewhere at once; \
what you wrote stands behind it, and your text is in %s"
                        (buffer-name) (buffer-name kept))
        (when (buffer-live-p kept)
          (with-current-buffer kept (set-buffer-modified-p nil))
          (kill-buffer kept))
        (message "%s: changed elsewhere; what you wrote is in the new text"
                 (buffer-name))))))

(defun pyagentd-edit--make (places run)
  "Make edits at PLACES, as `pyagentd-edit--place' has them.
Point, windows and what is being sent stay behind what was typed.  RUN,
the marker of a run or nil, stays above it, as it does when it is typed."
  (let ((marked (mapcar (pcase-lambda (`(,position ,length ,text))
                          (list (copy-marker position)
                                (copy-marker (+ position (or length 0))) text))
                        places)))
    (save-excursion
      (pcase-dolist (`(,beg ,end ,_) marked)
        (delete-region beg end))
      (pcase-dolist (`(,beg ,end ,text) marked)
        (goto-char beg)
        (let ((at-run (and run (= run beg))))
          (set-marker beg nil)
          (set-marker end nil)
          (insert-before-markers text)
          (when at-run
            (set-marker run (- (point) (length text)))))))))

(defun pyagentd-edit--place (edit differences)
  "Return where EDIT goes here: (POSITION LENGTH TEXT).
DIFFERENCES are those of this buffer and the text that EDIT is of.
LENGTH is nil if what EDIT replaces was changed here."
  (pcase-let* ((`(,start ,length ,text) edit)
               (last (+ start length))
               ;; What ends above it, and what has text in common with it.
               (above (seq-filter (lambda (each) (<= (nth 3 each) start))
                                  differences))
               (within (seq-filter (pcase-lambda (`(,_ ,_ ,beg ,end))
                                     (and (< start end) (< beg last)))
                                   differences))
               (place (pcase (car (last above))
                        (`(,_ ,end ,_ ,old-end) (+ start (- end old-end)))
                        (_ start))))
    (pcase (car (last (or within above)))
      ((and `(,beg ,end ,old-beg ,old-end)
            (guard (and (< beg end) (<= old-beg start last old-end)
                        (equal (substring-no-properties text)
                               (buffer-substring-no-properties beg end)))))
       (list end 0 ""))                 ; the same was written there
      ((and `(,beg ,end . ,_) (guard within))
       (pyagentd-edit--behind beg end text))
      (_ (list place length text)))))

(defun pyagentd-edit--behind (beg end text)
  "Return where TEXT goes that has no place but behind what is BEG to END.
Where lines are concerned it goes on lines of its own."
  (save-excursion
    (goto-char end)
    (unless (and (not (string-search "\n" text)) (<= (line-beginning-position) beg))
      (unless (bolp)
        (forward-line 1)
        (unless (bolp) (setq text (concat "\n" text))))
      (unless (or (eobp) (string-empty-p text) (string-suffix-p "\n" text))
        (setq text (concat text "\n"))))
    (list (point) nil text)))

(defun pyagentd-edit--kept-of (base edits)
  "Return a new buffer, as `pyagentd-edit--keep', with BASE and EDITS in it."
  (let ((id pyagentd--session-id))
    (with-temp-buffer
      (insert-buffer-substring-no-properties base)
      (pcase-dolist (`(,position ,length ,text) (reverse edits))
        (goto-char position)
        (delete-char length)
        (insert text))
      (let ((pyagentd--session-id id))
        (pyagentd-edit--keep)))))

(defun pyagentd-edit--leave ()
  "Forget all edits; those that were set aside stay where the user sees them."
  (pyagentd-edit-forget)
  (pcase-dolist (`(,base ,edits ,kept) pyagentd-edit--aside)
    (when (buffer-live-p base)
      (unless kept (pyagentd-edit--kept-of base edits))
      (kill-buffer base)))
  (setq pyagentd-edit--aside nil))

(add-hook 'pyagentd-session-leave-hook #'pyagentd-edit--leave)

(provide 'pyagentd-edit)
;;; pyagentd-edit.el ends here

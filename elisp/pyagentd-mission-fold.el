;;; pyagentd-mission-fold.el --- Point and folds of a trace that grows -*- lexical-binding: t; -*-

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

;; A trace of missions is written anew when more has happened.  This file
;; knows which headings were folded and where point was, by the names that
;; the headings have.

;;; Code:

(require 'outline)

(defun pyagentd-mission-fold--headings (function)
  "Call FUNCTION with the name of each heading, point at its beginning."
  (save-excursion
    (goto-char (point-min))
    (while (not (eobp))
      (when-let ((name (get-text-property (point) 'pyagentd-mission-name)))
        (save-excursion (funcall function name)))
      (goto-char (or (next-single-property-change
                      (point) 'pyagentd-mission-name)
                     (point-max))))))

(defun pyagentd-mission-fold-state ()
  "Return the headings by name, each with whether it is folded."
  (let (found)
    (pyagentd-mission-fold--headings
     (lambda (name)
       (push (cons name (and (save-excursion
                               (end-of-line)
                               (not (eobp)) (invisible-p (point)))
                             t))
             found)))
    found))

(defun pyagentd-mission-fold (known)
  "Fold the headings that KNOWN says are folded, and new ones that are long."
  (pyagentd-mission-fold--headings
   (lambda (name)
     (let ((before (assoc name known)))
       (when (if before (cdr before)
               (get-text-property (point) 'pyagentd-mission-long))
         (outline-hide-subtree))))))

(defun pyagentd-mission-fold-place ()
  "Return where point is: (NAME LINES COLUMN), or nil at the end.
The end of a buffer that is shown moves on with what comes."
  (unless (and (eobp) (not (bobp)))
    (save-excursion
      (let ((line (line-number-at-pos)) (column (current-column)) name)
        (beginning-of-line)
        (while (not (or (setq name (get-text-property
                                    (point) 'pyagentd-mission-name))
                        (bobp)))
          (forward-line -1))
        (list name (- line (line-number-at-pos)) column)))))

(defun pyagentd-mission-fold-go-to (place)
  "Go to PLACE, see `pyagentd-mission-fold-place'."
  (goto-char (if place (point-min) (point-max)))
  (pcase place
    (`(,(and name (guard name)) ,lines ,column)
     (pyagentd-mission-fold--headings
      (lambda (other)
        (when (equal name other)
          (setq place (point)))))
     (when (integerp place)
       (goto-char place)
       (forward-line lines)
       (move-to-column column))))
  (dolist (window (get-buffer-window-list nil nil t))
    (set-window-point window (point))))

(provide 'pyagentd-mission-fold)
;;; pyagentd-mission-fold.el ends here

;;; pyagentd-numbers.el --- Tokens and dollars in words -*- lexical-binding: t; -*-

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

;; How numbers of tokens and amounts of money are written, and drawn as
;; bars, wherever they are shown.

;;; Code:

(require 'subr-x)

(defun pyagentd-numbers-short (tokens)
  "Return the number of TOKENS in a few characters: 950, 1.2k, 12k, 1.2M."
  (cond ((< tokens 1000) (number-to-string tokens))
        ((< tokens 9950) (format "%.1fk" (/ tokens 1000.0)))
        ((< tokens 999500) (format "%dk" (round tokens 1000)))
        (t (format "%.1fM" (/ tokens 1000000.0)))))

(defun pyagentd-numbers-long (tokens)
  "Return the number of TOKENS with its thousands apart."
  (let ((digits (number-to-string tokens)))
    (while (string-match "\\`\\([0-9]+\\)\\([0-9]\\{3\\}\\)" digits)
      (setq digits (replace-match "\\1,\\2" t nil digits)))
    digits))

(defun pyagentd-numbers-dollars (amount)
  "Return AMOUNT of US dollars as text; small ones with more places."
  (format (if (or (>= amount 0.01) (zerop amount)) "$%.2f" "$%.4f") amount))

(defun pyagentd-numbers-cost (known unpriced)
  "Return a cost of which KNOWN, in US dollars, is the known part.
UNPRICED is non-nil where that is not all: an unknown price is a question
mark, never nothing."
  (cond ((not unpriced) (pyagentd-numbers-dollars known))
        ((> known 0) (concat (pyagentd-numbers-dollars known) "+?"))
        (t "$?")))

(defun pyagentd-numbers-bar (value most width)
  "Return a bar for VALUE, of at most WIDTH characters for MOST.
What is more than nothing is seen.  Where blocks cannot be displayed it is
made of number signs."
  (let* ((blocks (and (char-displayable-p ?█) (char-displayable-p ?▏)))
         (parts (if blocks 8 1))
         (length (if (and (> value 0) (> most 0))
                     (max 1 (round (* parts width value) most))
                   0))
         (rest (% length parts)))
    (concat (make-string (/ length parts) (if blocks ?█ ?#))
            (if (zerop rest) "" (string (aref " ▏▎▍▌▋▊▉" rest))))))

(provide 'pyagentd-numbers)
;;; pyagentd-numbers.el ends here

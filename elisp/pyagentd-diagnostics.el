;;; pyagentd-diagnostics.el --- What checkers say about a buffer -*- lexical-binding: t; -*-

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

;; What Flymake and Flycheck have found, in the same words.

;;; Code:

(require 'seq)
(require 'subr-x)

(declare-function flymake-diagnostics "flymake")
(declare-function flymake-diagnostic-beg "flymake" t t)
(declare-function flymake-diagnostic-text "flymake" t t)
(declare-function flymake-diagnostic-type "flymake" t t)
(declare-function flycheck-error-line "ext:flycheck")
(declare-function flycheck-error-level "ext:flycheck")
(declare-function flycheck-error-message "ext:flycheck")

(defvar flycheck-current-errors)

(defun pyagentd-diagnostics-on-p ()
  "Return non-nil if a checker is on in this buffer."
  (or (bound-and-true-p flymake-mode) (bound-and-true-p flycheck-mode)))

(defun pyagentd-diagnostics (&optional beg end)
  "Return what checkers have found between BEG and END, in the order of lines.
By default that is in the whole buffer.  Each is a plist (:line :level
:text)."
  (sort (append (pyagentd-diagnostics--flymake beg end)
                (pyagentd-diagnostics--flycheck beg end))
        (lambda (a b) (< (plist-get a :line) (plist-get b :line)))))

(defun pyagentd-diagnostics--flymake (beg end)
  "Return what Flymake has found between BEG and END, which may be nil."
  (when (bound-and-true-p flymake-mode)
    (mapcar (lambda (found)
              (list :line (line-number-at-pos (flymake-diagnostic-beg found) t)
                    :level (string-remove-prefix
                            ":" (format "%s" (flymake-diagnostic-type found)))
                    :text (flymake-diagnostic-text found)))
            (flymake-diagnostics beg end))))

(defun pyagentd-diagnostics--flycheck (beg end)
  "Return what Flycheck has found between BEG and END, which may be nil."
  (when (bound-and-true-p flycheck-mode)
    (let ((first (line-number-at-pos (or beg (point-min)) t))
          (last (line-number-at-pos (or end (point-max)) t)))
      (mapcar (lambda (found)
                (list :line (or (flycheck-error-line found) 1)
                      :level (format "%s" (flycheck-error-level found))
                      :text (flycheck-error-message found)))
              (seq-filter (lambda (found)
                            (<= first (or (flycheck-error-line found) 1) last))
                          flycheck-current-errors)))))

(provide 'pyagentd-diagnostics)
;;; pyagentd-diagnostics.el ends here

;;; pyagentd-status-words.el --- What a run does, in words -*- lexical-binding: t; -*-

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

;; What the header line says of a run, from what the daemon says of it.

;;; Code:

(require 'subr-x)
(require 'pyagentd-core)

(defun pyagentd-status-words-busy (status)
  "Return what a run with STATUS does, in gptel's words."
  (let ((tools (mapcar (lambda (call) (truncate-string-to-width call 40 nil nil "…"))
                       (plist-get status :tools))))
    (pcase (pyagentd-symbol (plist-get status :phase))
      ('TYPE (propertize "Typing..." 'face 'success))
      ('COMPACT (propertize "Compacting..." 'face 'warning))
      ((guard (null tools)) (propertize "Waiting..." 'face 'warning))
      (_ (propertize (format (if (cdr tools) "Calling tools (%s)" "Calling tool (%s)")
                             (string-join tools ", "))
                     'face 'warning)))))

(defun pyagentd-status-words-retrying (status)
  "Return which attempt of a request failed, as STATUS says, and what follows."
  (concat "Retrying"
          (when-let ((attempt (plist-get status :attempt)))
            (format " (%s%s failed)" attempt
                    (if-let ((most (plist-get status :max-attempts)))
                        (format " of %s" most)
                      "")))
          (if-let ((time (plist-get status :retry-at)))
              (format " in %d s" (max 0 (ceiling (- (/ time 1000.0)
                                                    (float-time)))))
            "…")
          (when-let ((message (plist-get status :message)))
            (concat ": " message))))

(defun pyagentd-status-words-reason (message)
  "Return MESSAGE, of an error, as short as a header line needs it.
Of a file only its own name is left, and what is said of one of its lines
stands first."
  (let ((text (string-replace "\n" " " (string-trim (or message "")))))
    (when (string-match "/\\([^/ :]+:[0-9]+: .*\\)" text)
      (setq text (match-string 1 text)))
    (replace-regexp-in-string
     "\\(\\`\\|[ (\"'`]\\)~?/\\(?:[^/ :]+/\\)+\\([^/ :]\\)" "\\1\\2" text)))

(provide 'pyagentd-status-words)
;;; pyagentd-status-words.el ends here

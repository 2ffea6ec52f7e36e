;;; pyagentd-index.el --- The index of search -*- lexical-binding: t; -*-

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

;; The daemon keeps the index up to date by itself; it is made anew only
;; when something seems to be missing.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-here)

(defvar pyagentd-index--reporter nil
  "Progress reporter of the `reindex' in progress, nil if there is none.")

(defun pyagentd-reindex ()
  "Rebuild the search index of all sessions.
Emacs stays usable; the echo area shows the progress."
  (interactive)
  (pyagentd-start #'pyagentd-index--begin))

(defun pyagentd-index--begin ()
  "Have the daemon, which runs, read all sessions anew."
  (setq pyagentd-index--reporter
        (make-progress-reporter "Indexing sessions..." 0 100))
  (pyagentd-rpc-call-async
   'reindex nil
   :success (lambda (answer)
              (setq pyagentd-index--reporter nil)
              (message "Indexed %s in %s, %.1f s"
                       (pyagentd-count (plist-get answer :messages)
                                               "message")
                       (pyagentd-count (plist-get answer :branches)
                                               "branch")
                       (plist-get answer :seconds)))
   :error (lambda (err)
            (setq pyagentd-index--reporter nil)
            (message "%s" (pyagentd-error-text err)))))

(defun pyagentd-index--on-progress (_branch _seq args)
  "Show how far a long operation is, as ARGS say."
  (pcase-let ((`(,progress) args))
    (let ((total (or (plist-get progress :total) 0)))
      (when (and pyagentd-index--reporter (> total 0))
        (progress-reporter-update
         pyagentd-index--reporter
         (min 100 (/ (* 100 (plist-get progress :done)) total)))))))

(pyagentd-events-register 'progress #'pyagentd-index--on-progress)

(provide 'pyagentd-index)
;;; pyagentd-index.el ends here

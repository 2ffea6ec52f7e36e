;;; pyagentd-failed.el --- Which calls of tools have failed -*- lexical-binding: t; -*-

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

;; The text of a call does not say whether the model got it as an error.
;; The daemon does: of those there are when a buffer attaches, of others
;; before their text comes.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-events)

(defvar-local pyagentd-failed--ids nil
  "Hash table with the ids of calls in this buffer that failed, or nil.")

(pyagentd-permanent-local 'pyagentd-failed--ids)

(defvar pyagentd-failed-hook nil
  "Hook run in a session buffer when it was told which calls have failed.")

(defun pyagentd-failed-p (id)
  "Return non-nil if the call ID in this buffer has failed."
  (and pyagentd-failed--ids (gethash id pyagentd-failed--ids)))

(defun pyagentd-failed--note (id)
  "Note that the call ID of this buffer has failed."
  (unless pyagentd-failed--ids
    (setq pyagentd-failed--ids (make-hash-table :test #'equal)))
  (puthash id t pyagentd-failed--ids))

(defun pyagentd-failed-receive (ids)
  "Note that the calls IDS of this buffer, and others known, have failed."
  (when ids
    (mapc #'pyagentd-failed--note ids)
    (run-hooks 'pyagentd-failed-hook)))

(defun pyagentd-failed--on-event (branch _seq args)
  "Note that a call on BRANCH, named in ARGS, has failed."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (pyagentd-failed--note (plist-get (car args) :id)))))

(pyagentd-events-register 'failed #'pyagentd-failed--on-event)

(provide 'pyagentd-failed)
;;; pyagentd-failed.el ends here

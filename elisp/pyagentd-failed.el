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

;; The text of a call does not say whether the model got it as an error, nor
;; in a few words what it was and how it came out.  The daemon does: of those
;; there are when a buffer attaches, of others before their text comes.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-events)

(defvar-local pyagentd-failed--ids nil
  "Hash table with the ids of calls in this buffer that failed, or nil.")
(defvar-local pyagentd-failed--lines nil
  "Hash table of calls in this buffer: their ids and the lines for them.")

(pyagentd-permanent-local 'pyagentd-failed--ids 'pyagentd-failed--lines)

(defvar pyagentd-failed-hook nil
  "Hook run in a session buffer when it was told how calls came out.")

(defun pyagentd-failed-p (id)
  "Return non-nil if the call ID in this buffer has failed."
  (and pyagentd-failed--ids (gethash id pyagentd-failed--ids)))

(defun pyagentd-failed-line (id)
  "Return the line that says what the call ID here was, nil if not known."
  (and pyagentd-failed--lines (gethash id pyagentd-failed--lines)))

(defun pyagentd-failed--note (id)
  "Note that the call ID of this buffer has failed."
  (unless pyagentd-failed--ids
    (setq pyagentd-failed--ids (make-hash-table :test #'equal)))
  (puthash id t pyagentd-failed--ids))

(defun pyagentd-failed--note-line (id line)
  "Note that LINE says what the call ID of this buffer was."
  (unless pyagentd-failed--lines
    (setq pyagentd-failed--lines (make-hash-table :test #'equal)))
  (puthash id line pyagentd-failed--lines))

(defun pyagentd-failed-receive (ids lines)
  "Note that the calls IDS of this buffer, and others known, have failed.
LINES are lists (ID LINE), with what says what a call was."
  (when (or ids lines)
    (mapc #'pyagentd-failed--note ids)
    (pcase-dolist (`(,id ,line) lines)
      (pyagentd-failed--note-line id line))
    (run-hooks 'pyagentd-failed-hook)))

(defun pyagentd-failed--on-event (branch _seq args)
  "Note that a call on BRANCH, named in ARGS, has failed."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (pyagentd-failed--note (plist-get (car args) :id)))))

(defun pyagentd-failed--on-tool (branch _seq args)
  "Note what the call on BRANCH was that ARGS tell of."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (pyagentd-failed--note-line (plist-get (car args) :id)
                                  (plist-get (car args) :summary)))))

(pyagentd-events-register 'failed #'pyagentd-failed--on-event)
(pyagentd-events-register 'tool #'pyagentd-failed--on-tool)

(provide 'pyagentd-failed)
;;; pyagentd-failed.el ends here

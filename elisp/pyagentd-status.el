;;; pyagentd-status.el --- What a session is doing -*- lexical-binding: t; -*-

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

;; The header line of a session buffer: what its run is doing, preset and
;; model.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-session)

(defvar-local pyagentd-status nil
  "What the daemon said last about this branch, a plist with :state.
The state is one of the symbols `idle', `busy', `retrying', `waiting' and
`error', and here also `sending'; nil without a daemon.  The :phase of a
busy one is that of gptel's machine: WAIT, TYPE or TOOL, with :tools.")
(defvar-local pyagentd-status-preset nil
  "Name of the preset of this branch.")
(defvar-local pyagentd-status-model nil
  "Name of the model of this branch.")
(defvar-local pyagentd-status--line nil
  "The header line, computed when something changes.")

(dolist (variable '(pyagentd-status pyagentd-status-preset
                    pyagentd-status-model pyagentd-status--line))
  (put variable 'permanent-local t))

(defun pyagentd-status--busy (status)
  "Return what a run with STATUS does, in gptel's words."
  (let ((tools (mapcar (lambda (call) (truncate-string-to-width call 40 nil nil "…"))
                       (plist-get status :tools))))
    (pcase (pyagentd-symbol (plist-get status :phase))
      ('TYPE (propertize "Typing..." 'face 'success))
      ((guard (null tools)) (propertize "Waiting..." 'face 'warning))
      (_ (propertize (format (if (cdr tools) "Calling tools (%s)" "Calling tool (%s)")
                             (string-join tools ", "))
                     'face 'warning)))))

(defun pyagentd-status--text (status)
  "Return STATUS, see variable `pyagentd-status', in words."
  (pcase (plist-get status :state)
    ('nil (propertize "Not connected" 'face 'shadow))
    ('idle (propertize "Ready" 'face 'success))
    ('sending (propertize "Waiting..." 'face 'warning))
    ('busy (pyagentd-status--busy status))
    ('waiting (propertize "Waiting for your answer" 'face 'warning))
    ('retrying
     (propertize (concat "Retrying…"
                         (when-let ((attempt (plist-get status :attempt)))
                           (format " (%s)" attempt))
                         (when-let ((message (plist-get status :message)))
                           (concat " " message)))
                 'face 'warning))
    ('error (propertize (format "Error: %s" (or (plist-get status :message) ""))
                        'face 'error))
    (state (format "%s" state))))

(defun pyagentd-status-busy-p ()
  "Return non-nil if a run is going on in this buffer."
  (memq (plist-get pyagentd-status :state)
        '(sending busy retrying waiting)))

(defun pyagentd-status-set (status)
  "Show STATUS, a plist as the daemon sends it, in the header line."
  (setq status (plist-put (copy-sequence status) :state
                          (pyagentd-symbol (plist-get status :state))))
  (unless (equal status pyagentd-status)
    (setq pyagentd-status status)
    (pyagentd-status-refresh)))

(defun pyagentd-status-refresh ()
  "Compute the header line again."
  (let ((right (string-join
                (delq nil (list (and pyagentd-session-viewing "read only")
                                pyagentd-status-preset
                                pyagentd-status-model))
                "  ")))
    (setq pyagentd-status--line
          (concat " " (or pyagentd--session-id "") "  "
                  (pyagentd-status--text pyagentd-status)
                  "  "
                  (propertize " " 'display
                              `(space :align-to (- right ,(1+ (string-width right)))))
                  (propertize right 'face 'shadow)))
    (force-mode-line-update)))

(defconst pyagentd-status--format '(:eval pyagentd-status--line)
  "The `header-line-format' of session buffers.")

(add-to-list 'pyagentd-session-settings
             (cons 'header-line-format pyagentd-status--format))

(provide 'pyagentd-status)
;;; pyagentd-status.el ends here

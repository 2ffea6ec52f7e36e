;;; pyagentd-slash.el --- Answers to slash commands -*- lexical-binding: t; -*-

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

;; A prompt such as /status is answered by the daemon.  Where nothing else
;; goes on, the answer comes into the text like any other.  While a run is
;; in progress it comes with the reply alone: it is shown in a buffer of
;; its own, and the command is taken out of the text.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-queued)

(defun pyagentd-slash-answered (command id)
  "Note that the message ID was the slash COMMAND, a plist.
Its keys are :name, :text, :code and :recorded; nil means that it was
none, and nothing is done.  Return COMMAND."
  (when (and command (not (plist-get command :recorded)))
    (pyagentd-slash--remove id)
    (pyagentd-slash--show command))
  command)

(defun pyagentd-slash--remove (id)
  "Take the text of the message ID out of this buffer."
  (when-let ((overlay (pyagentd-queued-overlay id)))
    (let ((beg (overlay-start overlay))
          (end (overlay-end overlay)))
      (pyagentd-queued-forget id)
      (save-restriction
        (widen)
        (delete-region beg end)))))

(defun pyagentd-slash--show (command)
  "Show what COMMAND answered."
  (let ((text (or (plist-get command :text) "")))
    (if (not (string-search "\n" text))
        (message "%s" text)
      (let ((inhibit-read-only t))
        (with-current-buffer (get-buffer-create "*pyagentd command*")
          (erase-buffer)
          (insert text "\n")
          (goto-char (point-min))
          (special-mode)
          (display-buffer (current-buffer)))))))

(provide 'pyagentd-slash)
;;; pyagentd-slash.el ends here

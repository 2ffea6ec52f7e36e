;;; pyagentd-moved.el --- Sessions whose files are elsewhere now -*- lexical-binding: t; -*-

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

;; An agent that gets another name has its files in another directory.
;; What shows them follows, whoever renamed it, and what was typed and not
;; saved meanwhile stays in a buffer of its own.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-session)

(defun pyagentd-moved-shown (directory)
  "Return what shows the session in DIRECTORY, a list (BUFFER FILE POSITION).
FILE is relative to DIRECTORY."
  (mapcar (lambda (buffer)
            (with-current-buffer buffer
              (list buffer (file-relative-name buffer-file-name directory)
                    (point))))
          (pyagentd-here-buffers directory)))

(defun pyagentd-moved-show-in (directory shown)
  "Have the windows of SHOWN show the same files of DIRECTORY.
For SHOWN see `pyagentd-moved-shown'."
  (pcase-dolist (`(,old ,file ,position) shown)
    (pyagentd-moved--show old (expand-file-name file directory) position)))

(defun pyagentd-moved-follow (buffer file)
  "Have what shows BUFFER show FILE, which is where its session is now."
  (with-current-buffer buffer
    (let ((modified (buffer-modified-p))
          (position (point)))
      (pyagentd-mode -1)
      (set-visited-file-name nil t)
      (set-buffer-modified-p modified)
      ;; Opening a file is no work for who dispatches events.
      (run-at-time 0 nil #'pyagentd-moved--show buffer file position))))

(defun pyagentd-moved--show (old file position)
  "Have the windows of the buffer OLD show FILE at POSITION.
OLD is killed, unless it has text that is nowhere else."
  (when (file-exists-p file)
    (let ((new (find-file-noselect file)))
      (with-current-buffer new
        (goto-char (min position (point-max))))
      (when (and (buffer-live-p old) (not (eq old new)))
        (dolist (window (get-buffer-window-list old nil t))
          (set-window-buffer window new)
          (set-window-point window (with-current-buffer new (point))))
        (with-current-buffer old
          (cond ((and (buffer-modified-p) (not buffer-file-name))
                 (rename-buffer (format "*Renamed: %s*" (buffer-name)) t)
                 (message "%s is elsewhere now; what was typed is in %s"
                          (buffer-name new) (buffer-name)))
                (t (set-buffer-modified-p nil)
                   (kill-buffer))))))))

(provide 'pyagentd-moved)
;;; pyagentd-moved.el ends here

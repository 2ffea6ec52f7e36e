;;; pyagentd-follow.el --- Lists that are fetched again when sessions change -*- lexical-binding: t; -*-

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

;; What a session does changes what is asked, decided, granted, scheduled and
;; spent.  Lists of that are fetched again, a moment after the daemon has told
;; that any session changed: the one that is shown now, another when it is.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-live)
(require 'pyagentd-rpc)
(require 'pyagentd-table)

(defvar pyagentd-follow-rest 1
  "How long a list waits for more sessions to change, in seconds.
One that takes the daemon long waits longer.")

(defun pyagentd-follow (fetch)
  "Call FETCH in this buffer a moment after sessions have changed.
Where the buffer is not shown, call it when it is."
  (setq pyagentd-table--follow fetch
        pyagentd-live t)
  (add-hook 'window-buffer-change-functions #'pyagentd-follow--catch-up nil t))

(defun pyagentd-follow--on-told (&rest _)
  "Have the lists that follow sessions fetched again."
  (dolist (buffer (buffer-list))
    (when (buffer-local-value 'pyagentd-table--follow buffer)
      (with-current-buffer buffer
        (setq pyagentd-table--behind t)
        (when (pyagentd-live-shown-p buffer)
          (let ((pyagentd-live-pause (max pyagentd-follow-rest
                                          (* 5 pyagentd-table--took))))
            (pyagentd-live-print-soon #'pyagentd-follow--catch-up)))))))

(defun pyagentd-follow--catch-up (&rest _)
  "Fetch the rows of this list again if sessions have changed since."
  (when (and pyagentd-table--follow pyagentd-table--behind)
    (let ((pyagentd-table--quietly t))
      (funcall pyagentd-table--follow))))

(defun pyagentd-follow--on-disconnected ()
  "Say in the lists that follow sessions that nobody tells of them."
  (dolist (buffer (buffer-list))
    (when (buffer-local-value 'pyagentd-table--follow buffer)
      (with-current-buffer buffer
        (pyagentd-table-say pyagentd-live-no-daemon)))))

(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-follow--on-disconnected)
(add-hook 'pyagentd-live-functions #'pyagentd-follow--on-told)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-follow--on-told)

(provide 'pyagentd-follow)
;;; pyagentd-follow.el ends here

;;; pyagentd-cause.el --- The file that is the cause of an error -*- lexical-binding: t; -*-

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

;; An error that names a file, and the line in it, is mended there: the file
;; is visited from where the error is told.  What keeps the daemon from a
;; session is told in the session's header line until it is mended.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-status)

(defun pyagentd-cause (text)
  "Return the file that TEXT, of an error, is about as (FILE . LINE), or nil.
LINE is nil if it names none.  A file with a line goes before others;
that of this buffer does not count."
  (let ((start 0) found)
    (while (and (not (cdr found))
                (string-match
                 "\\(/[^ \n:]+\\.\\(?:toml\\|md\\|json\\|yml\\)\\)\\(?::\\([0-9]+\\)\\)?"
                 text start))
      (setq start (match-end 0))
      (let ((file (match-string 1 text))
            (line (match-string 2 text)))
        (when (and (file-exists-p file) (or line (not found))
                   (not (equal file buffer-file-name)))
          (setq found (cons file (and line (string-to-number line)))))))
    found))

(defun pyagentd-cause-visit (cause)
  "Visit the file of CAUSE, see `pyagentd-cause', at its line."
  (find-file-other-window (car cause))
  (when (cdr cause)
    (goto-char (point-min))
    (forward-line (1- (cdr cause)))))

(defun pyagentd-cause-with-hint (text)
  "Return TEXT, of an error in this buffer, with how to get to its file."
  (if (pyagentd-cause text)
      (concat text "; M-x pyagentd-visit-cause opens it")
    text))

;;;; What keeps the daemon from a session

(defun pyagentd-cause--refused (err)
  "Show in this session buffer that the daemon does not take it, for ERR."
  (when (eq (car err) 'pyagentd-remote-error)
    (pyagentd-cause--set (pyagentd-error-text err))))

(defun pyagentd-cause--forget ()
  "Show no longer in this buffer that the daemon does not take the session."
  (pyagentd-cause--set nil))

(defun pyagentd-cause--set (refusal)
  "Show REFUSAL, a line or nil, as that which keeps the daemon away."
  (unless (equal refusal pyagentd-status-refusal)
    (setq pyagentd-status-refusal refusal)
    (pyagentd-status-refresh)))

;;;###autoload
(defun pyagentd-visit-cause ()
  "Visit the file whose error keeps this session from continuing.
Once it is saved the session is as usual: send again."
  (interactive)
  (pyagentd-cause-visit
   (with-current-buffer (or (buffer-base-buffer) (current-buffer))
     (or (pyagentd-cause (or pyagentd-status-refusal
                             (plist-get pyagentd-status :message)
                             ""))
         (user-error "No file keeps this session from continuing")))))

(add-hook 'pyagentd-attach-failed-functions #'pyagentd-cause--refused)
(add-hook 'pyagentd-attached-hook #'pyagentd-cause--forget)
(add-hook 'pyagentd-session-read-hook #'pyagentd-cause--forget)

(provide 'pyagentd-cause)
;;; pyagentd-cause.el ends here

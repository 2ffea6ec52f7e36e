;;; pyagentd-table.el --- Lists of what the daemon tells -*- lexical-binding: t; -*-

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

;; What lists of grants, decisions and agents have in common: rows are
;; fetched without waiting, only the latest answer counts, point stays
;; where it is, and the last line names the keys.

;;; Code:

(require 'tabulated-list)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-start)
(require 'pyagentd-later)

(defvar-local pyagentd-table-rows nil
  "The rows of this list, plists as the daemon sent them.")
(defvar-local pyagentd-table-help nil
  "Keys that the last line names, a list of (KEY WORD).")
(defvar-local pyagentd-table-empty "Nothing."
  "What to say where there are no rows.")
(defvar pyagentd-table-pause 0.3
  "How long a live list waits for more to change, in seconds.")
(defvar-local pyagentd-table--timer nil
  "Timer that looks again, or nil.")
(defvar-local pyagentd-table--latest 0
  "How many times the daemon was asked; only the latest answer counts.")

(defun pyagentd-table-keys (keys)
  "Return lines that name KEYS, a list of (KEY WORD), as wide as the window."
  (let ((width (max 80 (window-width (get-buffer-window nil t))))
        (column 0))
    (mapconcat
     (pcase-lambda (`(,key ,word))
       (let* ((text (concat (propertize key 'face 'pyagentd-key) " " word))
              (wide (+ column 2 (string-width text)))
              (fits (or (zerop column) (< wide width))))
         (prog1 (concat (cond ((zerop column) "") (fits "  ") (t "\n")) text)
           (setq column (if fits wide (string-width text))))))
     keys "")))

(defun pyagentd-table-print (entries &optional note)
  "Show ENTRIES, as `tabulated-list-entries' has them, and name the keys.
Where there are none say NOTE, by default that there is nothing."
  (setq tabulated-list-entries entries)
  (tabulated-list-print t)
  (save-excursion
    (goto-char (point-max))
    (let ((inhibit-read-only t))
      (insert (if entries "\n" (concat (or note pyagentd-table-empty) "\n\n"))
              (pyagentd-table-keys
               (if (assoc "?" pyagentd-table-help) pyagentd-table-help
                 (append pyagentd-table-help '(("?" "all keys")))))
              "\n"))))

(defun pyagentd-table-say (note)
  "Show NOTE, or nil, in the mode line."
  (setq mode-line-process (and note (concat " " (string-replace "%" "%%" note))))
  (force-mode-line-update))

(defun pyagentd-table-fetch (method plist show)
  "Call METHOD with PLIST and SHOW its answer in this buffer when it comes.
SHOW is a function; it is called here with the answer."
  (let ((buffer (current-buffer))
        (number (setq pyagentd-table--latest (1+ pyagentd-table--latest))))
    (pyagentd-table-say "loading…")
    (pyagentd-rpc-call-async
     method plist
     :timeout pyagentd-call-timeout
     :success (lambda (answer)
                (pyagentd-table--with-latest
                 buffer number
                 (lambda () (pyagentd-table-say nil) (funcall show answer))))
     :error (lambda (err)
              (pyagentd-table--with-latest
               buffer number (lambda () (pyagentd-table--failed err)))))))

(defun pyagentd-table-ask (fetch)
  "Call FETCH in this buffer once there is a daemon, which is not waited for."
  (pyagentd-start (pyagentd-later-back fetch)
                  (pyagentd-later-back #'pyagentd-table--failed)))

(defun pyagentd-table-changed (name mode fetch)
  "Call FETCH in the buffer NAME in a moment, if it is in MODE and shown.
Much that changes at once is fetched once, from the daemon there is."
  (when-let ((buffer (get-buffer name)))
    (with-current-buffer buffer
      (when (and (derived-mode-p mode)
                 (null pyagentd-table--timer)
                 (get-buffer-window nil t))
        (setq pyagentd-table--timer
              (run-at-time pyagentd-table-pause nil
                           #'pyagentd-table--on-timer buffer fetch))))))

(defun pyagentd-table--on-timer (buffer fetch)
  "Call FETCH in BUFFER."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (setq pyagentd-table--timer nil)
      (funcall fetch))))

(defun pyagentd-table--failed (err)
  "Say that ERR kept the rows from this buffer; those there are stay."
  (pyagentd-table-say "failed")
  (unless pyagentd-table-rows
    (pyagentd-table-print nil (pyagentd-error-text err)))
  (message "%s" (pyagentd-error-text err)))

(defun pyagentd-table--with-latest (buffer number function)
  "Call FUNCTION in BUFFER if it waits for the answer to question NUMBER."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when (= number pyagentd-table--latest)
        (funcall function)))))

(defun pyagentd-table-row (&optional key)
  "Return the row at point, whose KEY (default :id) is the id of the line."
  (let ((id (tabulated-list-get-id)))
    (or (seq-find (lambda (row) (equal id (plist-get row (or key :id))))
                  pyagentd-table-rows)
        (user-error "Nothing at point"))))

(provide 'pyagentd-table)
;;; pyagentd-table.el ends here

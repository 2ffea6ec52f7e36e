;;; pyagentd-list-rows.el --- How a list of sessions gets its rows -*- lexical-binding: t; -*-

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

;; Thousands of sessions are fetched without waiting, read a slice at a time
;; where they come by file, and kept up with what the daemon tells; the list
;; is printed when there is something else to see.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-later)
(require 'pyagentd-live)
(require 'pyagentd-here)
(require 'pyagentd-rows)

(defvar-local pyagentd-list--archived nil
  "Non-nil if archived sessions are shown too.")
(defvar-local pyagentd-list--latest 0
  "How many times the daemon was asked; only the latest answer counts.")
(defvar-local pyagentd-list--stale nil
  "Non-nil if sessions have changed since the list was printed.
`unknown' if nobody has told which.")
(defvar-local pyagentd-list--note nil
  "What the mode line says about the list, nil for nothing.")

;;;; Printing

(defun pyagentd-list--print ()
  "Show the rows there are and leave point where it was."
  (setq pyagentd-list--stale nil)
  (let ((start (float-time)))
    (if-let ((window (get-buffer-window)))
        (with-selected-window window (pyagentd-rows-print))
      (pyagentd-rows-print))
    (setq pyagentd-live-took (- (float-time) start)))
  (pyagentd-list--show-note))

(defun pyagentd-list--show-note ()
  "Show in the mode line what there is to say about the list."
  (setq mode-line-process
        (string-replace
         "%" "%%"
         (concat (and pyagentd-list--archived " archived")
                 (and pyagentd-rows-filter
                      (format " /%s" pyagentd-rows-filter))
                 (and pyagentd-list--note (concat " " pyagentd-list--note)))))
  (force-mode-line-update))

(defun pyagentd-list--say (note)
  "Show NOTE, or nil, in the mode line and print."
  (setq pyagentd-list--note note
        pyagentd-rows-loading (and note t))
  (pyagentd-list--print))

;;;; Fetching

(defconst pyagentd-list--slice 0.02
  "Seconds for which rows are read from a file before Emacs redisplays.")

(defun pyagentd-list--fetch ()
  "Ask the daemon for the sessions; they are shown when they come."
  (let ((buffer (current-buffer))
        (number (setq pyagentd-list--latest (1+ pyagentd-list--latest))))
    (pyagentd-later-here
     'sessions (list :archived pyagentd-list--archived :watch t)
     (lambda (answer)
       (if-let ((path (plist-get answer :path)))
           (pyagentd-list--read-file buffer number path)
         (pyagentd-list--show buffer number (plist-get answer :sessions))))
     (* 6 pyagentd-call-timeout)
     (lambda (err)
       (when (pyagentd-list--latest-p buffer number)
         (pyagentd-list--failed err))))))

(defun pyagentd-list--failed (err)
  "Say that ERR kept the sessions from this buffer; those there are stay."
  (pyagentd-list--say "failed")
  (pyagentd-later-tell err))

(defun pyagentd-list--latest-p (buffer number)
  "Return non-nil if BUFFER still waits for the answer to question NUMBER."
  (and (buffer-live-p buffer)
       (= number (buffer-local-value 'pyagentd-list--latest buffer))))

(defun pyagentd-list--show (buffer number rows)
  "Show ROWS in BUFFER, the answer to question NUMBER."
  (when (pyagentd-list--latest-p buffer number)
    (with-current-buffer buffer
      (setq pyagentd-rows-all rows)
      (pyagentd-list--say nil))))

(defun pyagentd-list--read-file (buffer number path)
  "Show the rows in the file PATH in BUFFER, the answer to question NUMBER.
It has the form (:sessions (ROW...)) and is read a slice at a time."
  (let ((text (generate-new-buffer " *pyagentd rows*")))
    (with-current-buffer text
      (buffer-disable-undo)
      (let ((coding-system-for-read 'utf-8-unix))
        (insert-file-contents path))
      (re-search-forward "(:sessions (" nil t))
    (pyagentd-list--read-slice buffer number text nil)))

(defun pyagentd-list--read-slice (buffer number text rows)
  "Read more rows from the buffer TEXT; show all in BUFFER when it is read.
ROWS are those read so far, latest first; NUMBER is that of the question."
  (let ((deadline (+ (float-time) pyagentd-list--slice))
        (gc-cons-threshold (max gc-cons-threshold (* 64 1024 1024)))
        done)
    (with-current-buffer text
      (while (not (or (setq done (progn (skip-chars-forward " \t\n")
                                        (memq (char-after) '(?\) nil))))
                      (> (float-time) deadline)))
        (push (read text) rows)))
    (if (not (or done (not (pyagentd-list--latest-p buffer number))))
        (run-at-time 0.001 nil #'pyagentd-list--read-slice
                     buffer number text rows)
      (kill-buffer text)
      (pyagentd-list--show buffer number (nreverse rows)))))

(defun pyagentd-list--revert (&rest _)
  "Fetch the sessions again."
  (pyagentd-list--say "loading…")
  (pyagentd-list--fetch))

(defconst pyagentd-list--patience 0.1
  "Seconds that printing may take where nobody has asked for it.")

(defun pyagentd-list--on-told (rows gone)
  "Take what ROWS and GONE say of branches into the list.
A long list is not printed for that: its lines change where they are."
  (when-let ((buffer (get-buffer "*pyagentd sessions*")))
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-list-mode)
        (cond ((< pyagentd-live-took pyagentd-list--patience)
               (pyagentd-list--take rows gone))
              ((not (pyagentd-list--change rows gone))
               (pyagentd-list--take rows gone)
               (setq pyagentd-list--note "changed; g refreshes")
               (pyagentd-list--show-note)))))))

(defun pyagentd-list--take (rows gone)
  "Take what ROWS and GONE say into a list that is printed soon.
A list that takes long to print is not: that is for the user to say."
  (setq pyagentd-rows-all
        (pyagentd-live-merge pyagentd-rows-all rows
                             (append gone (pyagentd-list--archived-in rows)))
        pyagentd-list--stale (or pyagentd-list--stale t))
  (when (and (< pyagentd-live-took pyagentd-list--patience)
             (pyagentd-live-shown-p (current-buffer)))
    (pyagentd-live-print-soon #'pyagentd-list--refresh)))

(defun pyagentd-list--change (rows gone)
  "Show what ROWS say in the lines there are.
Return nil if lines would have to come or go, as GONE may say."
  (unless (or gone (pyagentd-list--archived-in rows))
    (let ((before (mapcar
                   (lambda (new)
                     (let ((branch (plist-get new :branch)))
                       (cons branch (pyagentd-list--cost
                                     (pyagentd-live-of branch
                                                       pyagentd-rows-all)))))
                   rows))
          above)
      (dolist (row (pyagentd-live-change pyagentd-rows-all rows))
        (let ((more (seq-mapn #'- (pyagentd-list--cost row)
                              (cdr (assoc (plist-get row :branch) before)))))
          (push (apply #'pyagentd-tree-add pyagentd-rows-all row more) above)))
      (when above
        (pyagentd-rows-update (seq-uniq (apply #'append above) #'eq))
        t))))

(defun pyagentd-list--cost (row)
  "Return what ROW itself cost, tokens and dollars."
  (list (or (plist-get row :tokens) 0) (or (plist-get row :usd) 0)))

(defun pyagentd-list--archived-in (rows)
  "Return the branches of ROWS that are archived and not shown."
  (unless pyagentd-list--archived
    (mapcar (lambda (row) (plist-get row :branch))
            (seq-filter (lambda (row) (plist-get row :archived-at)) rows))))

(defun pyagentd-list--refresh (&rest _)
  "Print the list if it has changed since it was printed."
  (when (derived-mode-p 'pyagentd-list-mode)
    (pcase pyagentd-list--stale
      ('nil)
      ('unknown (pyagentd-list--fetch))
      (_ (pyagentd-list--print)))))

(add-hook 'pyagentd-live-functions #'pyagentd-list--on-told)

(defun pyagentd-list--on-change ()
  "Fetch the sessions again if their list is shown."
  (when-let ((buffer (get-buffer "*pyagentd sessions*")))
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-list-mode)
        (setq pyagentd-list--stale 'unknown)
        (when (get-buffer-window nil t)
          (pyagentd-list--fetch))))))

(defun pyagentd-list--on-disconnected ()
  "Say that nobody tells what happens."
  (when-let ((buffer (get-buffer "*pyagentd sessions*")))
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-list-mode)
        (pyagentd-list--say pyagentd-live-no-daemon)))))

(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-list--on-disconnected)

(add-hook 'pyagentd-changed-hook #'pyagentd-list--on-change)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-list--on-change)

(provide 'pyagentd-list-rows)
;;; pyagentd-list-rows.el ends here

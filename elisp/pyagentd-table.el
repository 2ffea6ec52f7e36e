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
;; where it is, and the last line names the keys.  A filter shows only
;; lines with some words; where it makes sense to act on several lines at
;; once they are marked as in Dired.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'tabulated-list)
(require 'pyagentd-core)
(require 'pyagentd-live)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)

(defvar-local pyagentd-table-rows nil
  "The rows of this list, plists as the daemon sent them.")
(defvar-local pyagentd-table-help nil
  "Keys that the last line names, a list of (KEY WORD).")
(defvar-local pyagentd-table-empty "Nothing."
  "What to say where there are no rows.")
(defvar-local pyagentd-table-filter nil
  "Words that a line must have to be shown, or nil.")
(defvar-local pyagentd-table-marks nil
  "Ids of the lines that are marked.")
(defvar-local pyagentd-table--entries nil
  "All entries, as `tabulated-list-entries' has them without a filter.")
(defvar-local pyagentd-table--empty nil
  "What was said last where there are no entries.")
(defvar-local pyagentd-table--note nil
  "What the mode line says, or nil.")
(defvar-local pyagentd-table--follow nil
  "Function that fetches the rows again when sessions change, or nil.")
(defvar-local pyagentd-table--behind nil
  "Non-nil if sessions have changed since the rows were fetched.")
(defvar-local pyagentd-table--took 0
  "How long the daemon took for the rows there are, in seconds.")
(defvar pyagentd-table--quietly nil
  "Non-nil while rows are fetched that nobody has asked for.")
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

(defun pyagentd-table-show-keys ()
  "Name the keys of a list below its lines; no line is made of that."
  (when pyagentd-table-help
    (remove-overlays (point-min) (point-max) 'pyagentd-table-keys t)
    (let ((overlay (make-overlay (point-max) (point-max) nil t t)))
      (overlay-put overlay 'pyagentd-table-keys t)
      (overlay-put overlay 'after-string
                   (concat "\n" (pyagentd-table-keys pyagentd-table-help)
                           "\n")))))

(defun pyagentd-table-print (entries &optional note)
  "Show ENTRIES, as `tabulated-list-entries' has them, and name the keys.
Where there are none say NOTE, by default that there is nothing."
  (setq pyagentd-table--entries entries
        pyagentd-table--empty (or note pyagentd-table-empty)
        pyagentd-table-marks (seq-filter (lambda (id) (assoc id entries))
                                         pyagentd-table-marks))
  (pyagentd-table-print-again))

(defun pyagentd-table-print-again ()
  "Show the entries there are, with the filter and the marks there are."
  (setq tabulated-list-entries (pyagentd-table--filtered)
        tabulated-list-printer #'pyagentd-table--print-entry)
  (tabulated-list-print t)
  (save-excursion
    (goto-char (point-max))
    (let ((inhibit-read-only t))
      (insert (cond (tabulated-list-entries "\n")
                    (pyagentd-table--entries
                     "No matches; / with no words shows all sessions\n\n")
                    (t (concat pyagentd-table--empty "\n\n")))
              (pyagentd-table-keys
               (if (assoc "?" pyagentd-table-help) pyagentd-table-help
                 (append pyagentd-table-help '(("?" "all keys")))))
              "\n"))))

(defun pyagentd-table--print-entry (id columns)
  "Insert the entry ID with COLUMNS and its mark."
  (let ((start (point)))
    (tabulated-list-print-entry id columns)
    (when (member id pyagentd-table-marks)
      (save-excursion
        (goto-char start)
        (pyagentd-table--put-mark t)))))

(defun pyagentd-table-say (note)
  "Show NOTE, or nil, in the mode line."
  (setq pyagentd-table--note note
        mode-line-process
        (when (or note pyagentd-table-filter)
          (string-replace
           "%" "%%"
           (concat (and pyagentd-table-filter
                        (concat " /" pyagentd-table-filter))
                   (and note (concat " " note))))))
  (force-mode-line-update))

;;;; Some of them

(defun pyagentd-table--filtered ()
  "Return the entries that have all words of the filter."
  (let ((words (split-string (downcase (or pyagentd-table-filter "")) nil t)))
    (if (null words) pyagentd-table--entries
      (seq-filter
       (lambda (entry)
         (let ((text (downcase (mapconcat (lambda (column)
                                            (if (consp column) (car column)
                                              (format "%s" column)))
                                          (cadr entry) " "))))
           (seq-every-p (lambda (word) (string-search word text)) words)))
       pyagentd-table--entries))))

(defun pyagentd-table-filter (filter)
  "Show only lines in which all words of FILTER occur; nothing shows all."
  (interactive (list (read-string "Filter (words, empty for all): "
                                  pyagentd-table-filter))
               pyagentd-table-mode)
  (setq pyagentd-table-filter (unless (string-blank-p filter) filter))
  (pyagentd-table-say pyagentd-table--note)
  (pyagentd-table-print-again))

;;;; Marks

(defun pyagentd-table--put-mark (on)
  "Show that the line at point is marked if ON, else that it is not."
  (tabulated-list-put-tag (if on (propertize "*" 'face 'warning) " ")))

(defun pyagentd-table--mark (on)
  "Mark the lines of the region or the one at point if ON, and move on.
Else take their marks away."
  (let ((end (and (use-region-p) (copy-marker (region-end)))))
    (when end
      (goto-char (region-beginning))
      (deactivate-mark))
    (while (progn
             (when-let ((id (tabulated-list-get-id)))
               (setq pyagentd-table-marks
                     (if on (cons id (remove id pyagentd-table-marks))
                       (remove id pyagentd-table-marks)))
               (pyagentd-table--put-mark on))
             (forward-line)
             (and end (< (point) end))))))

(defun pyagentd-table-mark ()
  "Mark the line at point, or those in the region.
What is done next is done to all that are marked."
  (interactive nil pyagentd-table-mode)
  (pyagentd-table--mark t))

(defun pyagentd-table-unmark ()
  "Take the mark from the line at point, or from those in the region."
  (interactive nil pyagentd-table-mode)
  (pyagentd-table--mark nil))

(defun pyagentd-table-unmark-all ()
  "Take all marks away."
  (interactive nil pyagentd-table-mode)
  (setq pyagentd-table-marks nil)
  (pyagentd-table-print-again))

(defun pyagentd-table-define-marks (map)
  "Define keys for marks in MAP and return it."
  (define-key map "m" #'pyagentd-table-mark)
  (define-key map "u" #'pyagentd-table-unmark)
  (define-key map "U" #'pyagentd-table-unmark-all)
  map)

(defun pyagentd-table-marked (&optional key)
  "Return the rows whose lines are marked and shown.
A mark that a filter hides does not count while it does.  KEY is that of
`pyagentd-table-row', or a function from a row to the id of its line."
  (seq-filter (lambda (row)
                (let ((id (if (functionp key) (funcall key row)
                            (plist-get row (or key :id)))))
                  (and (member id pyagentd-table-marks)
                       (assoc id tabulated-list-entries))))
              pyagentd-table-rows))

(defun pyagentd-table-targets (&optional key)
  "Return the rows that are marked, else a list of the one at point.
KEY is that of `pyagentd-table-marked'."
  (or (pyagentd-table-marked key) (list (pyagentd-table-row key))))

(defun pyagentd-table-forget-marks ()
  "Forget the marks that are shown: what they were for is done."
  (setq pyagentd-table-marks
        (seq-remove (lambda (id) (assoc id tabulated-list-entries))
                    pyagentd-table-marks)))

;;;; Fetching

(defun pyagentd-table-fetch (method plist show)
  "Call METHOD with PLIST and SHOW its answer in this buffer when it comes.
SHOW is a function; it is called here with the answer."
  (let ((buffer (current-buffer))
        (number (setq pyagentd-table--latest (1+ pyagentd-table--latest)))
        (start (float-time)))
    (unless pyagentd-table--quietly (pyagentd-table-say "loading…"))
    (setq pyagentd-table--behind nil)
    (when pyagentd-table--follow (pyagentd-live-watch))
    (pyagentd-rpc-call-async
     method plist
     :timeout pyagentd-call-timeout
     :success (lambda (answer)
                (pyagentd-table--soon
                 buffer number
                 (lambda ()
                   (setq pyagentd-table--took (- (float-time) start))
                   (pyagentd-table-say nil)
                   (funcall show answer))))
     :error (lambda (err)
              (pyagentd-table--soon
               buffer number (lambda () (pyagentd-table--failed err)))))))

(defun pyagentd-table--soon (buffer number function)
  "Call FUNCTION as `pyagentd-table--with-latest' does, but not here.
BUFFER and NUMBER are its arguments.  Here a process is being read."
  (pyagentd-later-in buffer
    (pyagentd-later-soon
     (lambda () (pyagentd-table--with-latest buffer number function)))))

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

;;;; The mode

(defvar pyagentd-table-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map "/" #'pyagentd-table-filter)
    map)
  "Keymap of `pyagentd-table-mode'.")

(define-derived-mode pyagentd-table-mode tabulated-list-mode "Table"
  "Parent of the modes of lists.

\\{pyagentd-table-mode-map}"
  (pyagentd-live-listing))

(provide 'pyagentd-table)
;;; pyagentd-table.el ends here

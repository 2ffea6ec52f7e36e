;;; pyagentd-usage.el --- What all sessions cost -*- lexical-binding: t; -*-

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

;; What all sessions cost together, by day, model, session or preset: a
;; table with bars.  It is counted by the daemon, and again in a moment when
;; a run has ended, as long as the table is shown.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-here)
(require 'pyagentd-numbers)
(require 'pyagentd-table)
(require 'pyagentd-follow)

(defcustom pyagentd-usage-days 30
  "How many days `pyagentd-usage' shows at first, including today.
0 means all."
  :type 'natnum
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defface pyagentd-usage-bar '((t :inherit success))
  "Face of the bars in the table of usage."
  :group 'pyagentd)

(defconst pyagentd-usage--buffer "*pyagentd usage*"
  "Name of the table.")

(defconst pyagentd-usage--bar 16
  "Columns of the longest bar.")

(defvar-local pyagentd-usage--by 'day
  "What a line is: `day', `model', `session' or `preset'.")
(defvar-local pyagentd-usage--days nil
  "How many days are counted, 0 for always.")

;;;; Words

(defun pyagentd-usage--name (line)
  "Return what LINE is of."
  (let ((key (format "%s" (plist-get line :key))))
    (pcase-exhaustive pyagentd-usage--by
      ('day (pyagentd-usage--day key))
      ('session (propertize (string-replace "\n" " " (pyagentd-usage--title line))
                            'face 'pyagentd-session-title))
      ((or 'model 'preset) key))))

(defun pyagentd-usage--day (key)
  "Return the day KEY, in ISO 8601, with its name."
  (if-let ((time (ignore-errors (date-to-time (concat key " 12:00:00")))))
      (concat key (propertize (format-time-string " %a" time) 'face 'shadow))
    key))

(defun pyagentd-usage--title (line)
  "Return what to call the session of LINE."
  (cond ((plist-get line :session-id) (pyagentd-title line))
        (t (file-name-nondirectory (format "%s" (plist-get line :key))))))

(defun pyagentd-usage--cost (line)
  "Return what LINE cost."
  (pyagentd-numbers-cost (or (plist-get line :known-usd) 0)
                         (plist-get line :unpriced)))

(defun pyagentd-usage--counts (line)
  "Return the columns between the name and the bar of LINE."
  (let* ((tokens (plist-get line :tokens))
         (each (lambda (&rest keys)
                 (pyagentd-numbers-short
                  (apply #'+ (mapcar (lambda (key) (or (plist-get tokens key) 0))
                                     keys))))))
    (list (pyagentd-numbers-long (or (plist-get line :requests) 0))
          (funcall each :input :cache-read :cache-write)
          (funcall each :cache-read)
          (funcall each :output :reasoning)
          (pyagentd-usage--cost line))))

(defun pyagentd-usage--measure (lines)
  "Return the key by which bars of LINES are drawn.
That is what they cost, or their tokens where nothing is known to cost."
  (if (seq-some (lambda (line) (> (or (plist-get line :known-usd) 0) 0)) lines)
      :known-usd
    :total))

(defun pyagentd-usage--entry (line measure most)
  "Return LINE as an entry with a bar for MEASURE, of which MOST is longest."
  (list (plist-get line :key)
        (vconcat (list (pyagentd-usage--name line))
                 (pyagentd-usage--counts line)
                 (list (propertize
                        (pyagentd-numbers-bar (or (plist-get line measure) 0)
                                              most pyagentd-usage--bar)
                        'face 'pyagentd-usage-bar)))))

(defun pyagentd-usage--sum (line name)
  "Return LINE, a sum of others, as an entry called NAME."
  (list (intern name)
        (vconcat (list (propertize name 'face 'pyagentd-heading))
                 (pyagentd-usage--counts line) '(""))))

(defun pyagentd-usage--entries (answer)
  "Return the lines of ANSWER as `tabulated-list-entries' has them."
  (let* ((lines (plist-get answer :lines))
         (rest (plist-get answer :rest))
         (measure (pyagentd-usage--measure lines))
         (most (apply #'max 0 (mapcar (lambda (line)
                                        (or (plist-get line measure) 0))
                                      lines))))
    (when lines
      (append (mapcar (lambda (line)
                        (pyagentd-usage--entry line measure most))
                      lines)
              (when rest
                (list (pyagentd-usage--sum
                       rest (format "%d others" (plist-get rest :number)))))
              (list (pyagentd-usage--sum (plist-get answer :together)
                                         "Together"))))))

;;;; Fetching

(defun pyagentd-usage--period ()
  "Return in words how long is counted."
  (if (zerop pyagentd-usage--days) "always"
    (concat "last " (pyagentd-count pyagentd-usage--days "day"))))

(defun pyagentd-usage--show (answer)
  "Show ANSWER."
  (setq pyagentd-table-rows (plist-get answer :lines)
        pyagentd-table-empty (if (zerop pyagentd-usage--days)
                                 "Nothing was spent yet."
                               (format "Nothing was spent in the %s."
                                       (pyagentd-usage--period))))
  (pyagentd-table-print (pyagentd-usage--entries answer))
  (pyagentd-table-say (concat (format "by %s, %s" pyagentd-usage--by
                                      (pyagentd-usage--period))
                              (and (plist-get answer :indexing)
                                   ", still reading sessions")))
  (when-let ((problem (plist-get answer :problem)))
    (message "%s" problem)))

(defun pyagentd-usage--fetch ()
  "Have it counted; it is shown when it comes."
  (setf (car (aref tabulated-list-format 0))
        (capitalize (symbol-name pyagentd-usage--by)))
  (tabulated-list-init-header)
  ;; Years of thousands of sessions take their time.
  (let ((pyagentd-call-timeout (* 6 pyagentd-call-timeout)))
    (pyagentd-table-fetch 'usage-report
                          (list :by (symbol-name pyagentd-usage--by)
                                :days pyagentd-usage--days)
                          #'pyagentd-usage--show)))

(defun pyagentd-usage--revert (&rest _)
  "Have it counted again."
  (pyagentd-table-ask #'pyagentd-usage--fetch))

;;;; Commands

(defun pyagentd-usage-by (what)
  "Show a line for each WHAT: `day', `model', `session' or `preset'."
  (interactive
   (list (intern (completing-read "By: " '("day" "model" "session" "preset")
                                  nil t)))
   pyagentd-usage-mode)
  (setq pyagentd-usage--by what)
  (goto-char (point-min))
  (revert-buffer))

(defun pyagentd-usage-by-day ()
  "Show a line for each day."
  (interactive nil pyagentd-usage-mode)
  (pyagentd-usage-by 'day))

(defun pyagentd-usage-by-model ()
  "Show a line for each model."
  (interactive nil pyagentd-usage-mode)
  (pyagentd-usage-by 'model))

(defun pyagentd-usage-by-session ()
  "Show a line for each session, its agents with it."
  (interactive nil pyagentd-usage-mode)
  (pyagentd-usage-by 'session))

(defun pyagentd-usage-by-preset ()
  "Show a line for each preset."
  (interactive nil pyagentd-usage-mode)
  (pyagentd-usage-by 'preset))

(defun pyagentd-usage-set-days (days)
  "Count the last DAYS days, today with them; 0 is always."
  (interactive
   (list (read-number "Days (0 is always): " pyagentd-usage--days))
   pyagentd-usage-mode)
  (unless (natnump days) (user-error "A number of days, or 0 for always"))
  (setq pyagentd-usage--days days)
  (revert-buffer))

(defun pyagentd-usage-visit ()
  "Visit the session at point, else show the sessions of what is counted."
  (interactive nil pyagentd-usage-mode)
  (let* ((row (pyagentd-table-row :key))
         (file (plist-get row :file)))
    (cond (file (pyagentd-here-visit (list :file file)))
          ((eq pyagentd-usage--by 'session)
           (user-error "%s is gone" (plist-get row :key)))
          (t (pyagentd-usage-by 'session)))))

;;;; The mode

(defvar pyagentd-usage-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-usage-visit)
    (define-key map "d" #'pyagentd-usage-by-day)
    (define-key map "m" #'pyagentd-usage-by-model)
    (define-key map "s" #'pyagentd-usage-by-session)
    (define-key map "p" #'pyagentd-usage-by-preset)
    (define-key map "t" #'pyagentd-usage-set-days)
    map)
  "Keymap of `pyagentd-usage-mode'.")

(define-derived-mode pyagentd-usage-mode pyagentd-table-mode "Usage"
  "Major mode for the table of what all sessions cost.
\"In\" is all that models read, \"Cached\" the part of it that came from
the provider's cache, \"Out\" what they said and thought.

\\{pyagentd-usage-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format
        (vector (list "Day" 26 nil)
                (list "Requests" 8 nil :right-align t)
                (list "In" 6 nil :right-align t)
                (list "Cached" 6 nil :right-align t)
                (list "Out" 6 nil :right-align t)
                (list "Cost" 9 nil :right-align t)
                (list "" 0 nil))
        pyagentd-table-help '(("d" "by day") ("m" "model") ("s" "session")
                              ("p" "preset") ("t" "how long") ("RET" "open")
                              ("q" "close"))
        pyagentd-usage--days pyagentd-usage-days)
  (setq-local revert-buffer-function #'pyagentd-usage--revert)
  (pyagentd-follow #'pyagentd-usage--fetch)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-usage ()
  "Show what all sessions cost, by day, model, session or preset.
The table follows what happens."
  (interactive)
  (let ((buffer (get-buffer-create pyagentd-usage--buffer)))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-usage-mode)
        (pyagentd-usage-mode))
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-usage)
;;; pyagentd-usage.el ends here

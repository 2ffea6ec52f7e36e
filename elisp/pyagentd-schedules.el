;;; pyagentd-schedules.el --- Lists of schedules -*- lexical-binding: t; -*-

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

;;; Commentary:

;; What sessions are sent later, or again and again: listed with when it
;; comes next, added, sent now and cancelled.  The daemon keeps the
;; schedules and reads the times; see docs/triggers.md.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-later)
(require 'pyagentd-env)
(require 'pyagentd-here)
(require 'pyagentd-table)
(require 'pyagentd-follow)

(defvar-local pyagentd-schedules--branch nil
  "The branch whose schedules are listed, nil for all.")

(defconst pyagentd-schedules--kinds
  '(("at a time (14:30 or 2026-03-04T14:30)" . :at)
    ("after a while (10m, 2h)" . :delay)
    ("again and again (1h, 1d)" . :every)
    ("by a cron expression (0 9 * * 1-5)" . :cron))
  "What can be said about time, with the daemon's keyword for it.")

;;;; Words

(defun pyagentd-schedules--message (row)
  "Return on a line what ROW sends, or why it could not."
  (let ((problem (plist-get row :last-error)))
    (if problem
        (propertize (concat "! " (string-replace "\n" " " problem))
                    'face 'error)
      (string-replace "\n" " " (or (plist-get row :text) "")))))

(defun pyagentd-schedules--entry (row)
  "Return the line of ROW."
  (list (plist-get row :id)
        (vector (pyagentd-time (plist-get row :next-at))
                (format "%s" (plist-get row :when))
                (format "%s" (plist-get row :session))
                (propertize (if (equal (plist-get row :source) "self-schedule")
                                "the agent" "you")
                            'face 'shadow)
                (pyagentd-schedules--message row))))

;;;; Fetching

(defun pyagentd-schedules--show (answer)
  "List the schedules in ANSWER."
  (setq pyagentd-table-rows (plist-get answer :schedules))
  (pyagentd-table-print (mapcar #'pyagentd-schedules--entry
                                pyagentd-table-rows)))

(defun pyagentd-schedules--revert (&rest _)
  "Fetch the schedules again."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'schedules
                           (and pyagentd-schedules--branch
                                (list :branch pyagentd-schedules--branch))
                           #'pyagentd-schedules--show))))

(defun pyagentd-schedules--call (method plist)
  "Call METHOD with PLIST, then fetch the schedules of this buffer again.
Elsewhere say when the one that METHOD is about comes."
  (pyagentd-later-here method plist
                       (lambda (schedule)
                         (if (derived-mode-p 'pyagentd-schedules-mode)
                             (revert-buffer)
                           (message "Scheduled: %s"
                                    (plist-get schedule :when))))))

;;;; Commands

(defun pyagentd-schedules-cancel ()
  "Cancel the marked schedules, else the one at point."
  (interactive nil pyagentd-schedules-mode)
  (let* ((rows (pyagentd-table-targets)) (row (car rows)))
    (when (y-or-n-p (if (cdr rows)
                        (format "Cancel %s? "
                                (pyagentd-count (length rows) "schedule"))
                      (format "Cancel \"%s\", %s? "
                              (truncate-string-to-width
                               (pyagentd-schedules--message row)
                               40 nil nil "…")
                              (plist-get row :when))))
      (pyagentd-table-forget-marks)
      (dolist (row rows)
        (pyagentd-schedules--call 'schedule-cancel
                                  (list :id (plist-get row :id)))))))

(defun pyagentd-schedules-run ()
  "Send the message of the schedule at point now."
  (interactive nil pyagentd-schedules-mode)
  (pyagentd-schedules--call 'schedule-run
                            (list :id (plist-get (pyagentd-table-row) :id))))

(defun pyagentd-schedules-visit ()
  "Visit the session of the schedule at point."
  (interactive nil pyagentd-schedules-mode)
  (find-file (expand-file-name
              "session.md" (plist-get (pyagentd-table-row) :branch))))

;;;###autoload
(defun pyagentd-schedule (kind time text)
  "Schedule TEXT to be sent to the session here at TIME.
KIND is what TIME says: `:at', `:delay', `:every' or `:cron'.  Nobody is
asked in the run: what would be asked is denied."
  (interactive
   (let* ((kind (completing-read "When: " pyagentd-schedules--kinds nil t))
          (time (read-string (format "Time, %s: " kind))))
     (list (cdr (assoc kind pyagentd-schedules--kinds)) time
           (read-string "Message: "))))
  (let ((branch (or pyagentd-schedules--branch
                    (plist-get (pyagentd-here) :branch))))
    (pyagentd-schedules--call 'schedule-add
                              (list :branch branch :text text kind time
                                    :env (pyagentd-env-variables)))))

;;;; The mode

(defvar pyagentd-schedules-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-schedules-visit)
    (define-key map "+" #'pyagentd-schedule)
    (define-key map "k" #'pyagentd-schedules-cancel)
    (define-key map "d" #'pyagentd-schedules-cancel)
    (define-key map "x" #'pyagentd-schedules-run)
    (pyagentd-table-define-marks map))
  "Keymap of `pyagentd-schedules-mode'.")

(define-derived-mode pyagentd-schedules-mode pyagentd-table-mode "Schedules"
  "Major mode for the list of schedules.

\\{pyagentd-schedules-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Next" 17 t) ("When" 30 t) ("Session" 30 t)
                               ("By" 10 t) ("Message" 0 nil)]
        pyagentd-table-help '(("+" "add") ("k" "cancel") ("x" "send now")
                              ("RET" "session") ("g" "refresh")
                              ("q" "close"))
        pyagentd-table-empty "No schedules.")
  (setq-local revert-buffer-function #'pyagentd-schedules--revert)
  (pyagentd-follow #'pyagentd-schedules--revert)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-schedules (&optional all)
  "List the schedules of the session here; add or cancel them.
Where there is no session, or with a prefix argument (ALL from Lisp), list
the schedules of all sessions."
  (interactive "P")
  (let ((branch (unless all (plist-get (ignore-errors (pyagentd-here))
                                       :branch)))
        (buffer (get-buffer-create "*pyagentd schedules*")))
    (with-current-buffer buffer
      (pyagentd-schedules-mode)
      (setq pyagentd-schedules--branch branch)
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-schedules)
;;; pyagentd-schedules.el ends here

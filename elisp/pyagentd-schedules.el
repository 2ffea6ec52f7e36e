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

;; Messages that sessions are sent later or repeatedly.  The daemon keeps the
;; schedules and reads the times; see docs/triggers.md.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-list)

(defconst pyagentd-schedules--kinds
  '(("at a time (14:30 or 2026-03-04T14:30)" . :at)
    ("after a while (10m, 2h)" . :delay)
    ("again and again (1h, 1d)" . :every)
    ("by a cron expression (0 9 * * 1-5)" . :cron))
  "What can be said about time, with the daemon's keyword for it.")

(defun pyagentd-schedule (kind time text)
  "Schedule TEXT to be sent to the session here at TIME.
KIND is what TIME says: `:at', `:delay', `:every' or `:cron'.  Nobody is
asked in the run: what would be asked is denied."
  (interactive
   (let* ((kind (completing-read "When: " pyagentd-schedules--kinds nil t))
          (time (read-string (format "Time, %s: " kind))))
     (list (cdr (assoc kind pyagentd-schedules--kinds)) time
           (read-string "Message: "))))
  (pyagentd-later-here
   'schedule-add (list :branch (or (plist-get pyagentd-list-arguments :branch)
                                   (plist-get (pyagentd-here) :branch))
                       :text text kind time :env (pyagentd-env-variables))
   (lambda (schedule)
     (pyagentd-list-changed "sessions")
     (message "Scheduled: %s" (plist-get schedule :when)))))

(pyagentd-list-define schedules
  "List the schedules of the session here; add or cancel them.
Where there is no session, or with a prefix argument (ALL from Lisp), list
the schedules of all sessions."
  :session optional
  :keys (("+" pyagentd-schedule "add")))

(provide 'pyagentd-schedules)
;;; pyagentd-schedules.el ends here

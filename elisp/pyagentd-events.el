;;; pyagentd-events.el --- Queue of events from the daemon -*- lexical-binding: t; -*-

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

;; Events arrive faster than they may be shown.  They wait here in the
;; order of their arrival and a timer applies them, a few milliseconds at
;; a time, so that redisplay and keys come in between.  What is done with
;; an event is in a table by its kind.

;;; Code:

(require 'pyagentd-core)

(defconst pyagentd-events--budget 0.015
  "Seconds one drain by the timer may take before Emacs redisplays.")

(defvar pyagentd-events--handlers (make-hash-table :test #'eq)
  "Function for each kind of event.")

(defvar pyagentd-events--arrived nil
  "Functions that return events, newest first.")

(defvar pyagentd-events--next nil
  "What is applied next, oldest first: events or functions that return some.")

(defvar pyagentd-events--timer nil
  "Timer that drains the queue, nil when the queue is empty.")

(defvar pyagentd-events--draining nil
  "Non-nil while an event is being applied.")

(defun pyagentd-events-register (kind function)
  "Call FUNCTION for each event of KIND, a symbol.
FUNCTION gets (BRANCH SEQ ARGS): the branch's directory, the number of
the event (0 for what is only true now) and the list of its arguments.
It must not prompt, and should not block.  One function per kind."
  (puthash kind function pyagentd-events--handlers))

(defun pyagentd-events-enqueue (producer)
  "Queue PRODUCER, a function called in its turn that return events.
An event is a list (KIND BRANCH SEQ . ARGS)."
  (push producer pyagentd-events--arrived)
  (unless pyagentd-events--timer
    (setq pyagentd-events--timer
          (run-at-time 0 nil #'pyagentd-events--on-timer))))

(defun pyagentd-events--pending-p ()
  "Return non-nil if something is queued."
  (or pyagentd-events--next
      (setq pyagentd-events--next
            (nreverse (prog1 pyagentd-events--arrived
                        (setq pyagentd-events--arrived nil))))))

(defun pyagentd-events--on-timer ()
  "Drain the queue for a few milliseconds."
  (setq pyagentd-events--timer nil)
  (pyagentd-events-drain (+ (float-time) pyagentd-events--budget))
  (when (and (pyagentd-events--pending-p) (not pyagentd-events--timer))
    ;; Not 0: a pause lets Emacs read processes and keys.
    (setq pyagentd-events--timer
          (run-at-time 0.001 nil #'pyagentd-events--on-timer))))

(defun pyagentd-events-drain (&optional deadline)
  "Apply what is queued, all of it or until DEADLINE (a `float-time').
Do nothing when called while an event is being applied."
  (unless pyagentd-events--draining
    (let ((pyagentd-events--draining t)
          (inhibit-quit t))
      (while (and (pyagentd-events--pending-p)
                  (or (null deadline) (< (float-time) deadline)))
        (let ((item (pop pyagentd-events--next)))
          (if (functionp item)
              (pyagentd-guarded "Event"
                (setq pyagentd-events--next
                      (append (funcall item) pyagentd-events--next)))
            (pyagentd-events--apply item)))))))

(defun pyagentd-events--apply (event)
  "Call the handler of EVENT, a list (KIND BRANCH SEQ . ARGS)."
  (pyagentd-guarded (format "Event %s" (car-safe event))
    (pcase-let ((`(,kind ,branch ,seq . ,args) event))
      (if-let ((handler (gethash (pyagentd-symbol kind)
                                 pyagentd-events--handlers)))
          (funcall handler branch seq args)
        (pyagentd-log 'debug "No handler for event %s" kind)))))

;;;; The session log

(defun pyagentd-events--on-log (_branch _seq args)
  "Log the record in ARGS, which the daemon made for something we asked for."
  (pcase-let ((`(,record) args))
    (pyagentd-log-record (pyagentd-symbol (plist-get record :level))
                         (plist-get record :text)
                         (plist-get record :session-dir)
                         (plist-get record :written))))

(pyagentd-events-register 'log #'pyagentd-events--on-log)

(provide 'pyagentd-events)
;;; pyagentd-events.el ends here

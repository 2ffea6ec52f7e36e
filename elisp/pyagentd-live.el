;;; pyagentd-live.el --- Lists that follow all sessions -*- lexical-binding: t; -*-

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

;; Who lists sessions asks the daemon once, with :watch, and is told from then
;; on what changes in any of them.  Here the rows of a list are brought up to
;; date with what is told, and its buffer is printed again in a moment: not
;; while something is typed, and the less often the longer it takes.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-rpc)

(defvar pyagentd-live-functions nil
  "Functions that are told which sessions changed.
They get ROWS, plists with :branch and those keys of a session that are
another by now, and GONE, the names of branches that are no more.")

(defvar pyagentd-live-pause 0.3
  "How long a list waits for more to change before it is printed, in seconds.")

(defvar pyagentd-live--watching nil
  "Non-nil if the daemon that is connected was asked to tell what changes.")

(defvar-local pyagentd-live--timer nil
  "Timer that prints this list, or nil.")
(defvar-local pyagentd-live-took 0
  "How long printing took the last time, in seconds.")

(defun pyagentd-live--on-event (_branch _seq args)
  "Tell lists what ARGS say has changed."
  (let ((told (car args)))
    (run-hook-with-args 'pyagentd-live-functions
                        (plist-get told :rows) (plist-get told :gone))))

(pyagentd-events-register 'sessions #'pyagentd-live--on-event)

(defun pyagentd-live-watch ()
  "Have the daemon that is connected tell what changes, unless it does."
  (unless pyagentd-live--watching
    (setq pyagentd-live--watching t)
    (pyagentd-rpc-call-async 'running '(:watch t)
                             :error #'pyagentd-live--forget)))

(defun pyagentd-live-watched ()
  "Note that the daemon that is connected tells what changes."
  (setq pyagentd-live--watching t))

(defun pyagentd-live--forget (&rest _)
  "Note that nobody tells what changes."
  (setq pyagentd-live--watching nil))

(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-live--forget)

;;;; No list any more

(defvar-local pyagentd-live--listing nil
  "Non-nil in a buffer that may have asked to be told what changes.")

(defun pyagentd-live-listing ()
  "Have nobody told what changes when this list is the last one killed."
  (setq pyagentd-live--listing t)
  (add-hook 'kill-buffer-hook #'pyagentd-live--on-kill nil t))

(defun pyagentd-live--on-kill ()
  "See in a moment whether a list is left."
  (run-at-time 0 nil #'pyagentd-live--unwatch))

(defun pyagentd-live--unwatch ()
  "Have the daemon tell nothing more of all sessions, if no list is left."
  (when (and (pyagentd-rpc-connected-p)
             (not (seq-some (lambda (buffer)
                              (buffer-local-value 'pyagentd-live--listing
                                                  buffer))
                            (buffer-list))))
    (setq pyagentd-live--watching nil)
    (pyagentd-rpc-call-async 'unwatch nil :error #'ignore)))

;;;; Rows

(defun pyagentd-live-change (rows changed)
  "Put what has CHANGED into ROWS, sessions as the daemon lists them.
This makes nothing new of the list, which may be long.  Return the rows
that are others by now; nil if any of CHANGED is not among ROWS."
  (let ((left (copy-sequence changed)) (cell rows) found)
    (while (and left cell)
      (when-let ((new (pyagentd-live-of (plist-get (car cell) :branch) left)))
        (setq left (delq new left))
        (push (setcar cell (pyagentd-live--changed (car cell) new)) found))
      (setq cell (cdr cell)))
    (unless left found)))

(defun pyagentd-live-merge (rows changed gone)
  "Return ROWS, sessions as the daemon lists them, with what has CHANGED.
GONE are the names of branches that are no more, nor what is below them.
A new agent stands behind the branch it belongs to, a new branch before
the others of its session, a new session before all."
  (let ((left (copy-sequence changed)) found)
    (dolist (row rows)
      (let ((branch (plist-get row :branch)))
        (unless (pyagentd-live--gone-p branch gone)
          (if-let ((new (pyagentd-live-of branch left)))
              (progn (setq left (delq new left))
                     (push (pyagentd-live--changed row new) found))
            (push row found)))))
    (setq found (nreverse found))
    (dolist (new left found)
      (when (and (plist-get new :session-id)
                 (not (pyagentd-live--gone-p (plist-get new :branch) gone)))
        (setq found (pyagentd-live--put new found))))))

(defun pyagentd-live--gone-p (branch gone)
  "Return non-nil if BRANCH is one of GONE or below one of them."
  (and gone
       (seq-some (lambda (place)
                   (or (equal branch place)
                       (string-prefix-p (file-name-as-directory place) branch)))
                 gone)))

(defun pyagentd-live-of (branch rows)
  "Return the row of BRANCH in ROWS, or nil."
  ;; A loop that makes no garbage: there may be tens of thousands.
  (while (and rows (not (equal branch (plist-get (car rows) :branch))))
    (setq rows (cdr rows)))
  (car rows))

(defun pyagentd-live--changed (row new)
  "Return a copy of ROW with the keys that NEW has."
  (let ((row (copy-sequence row)))
    (while new
      (setq row (plist-put row (car new) (cadr new))
            new (cddr new)))
    row))

(defun pyagentd-live--put (new rows)
  "Put NEW, which is not among ROWS, where it belongs, and return them all."
  (let* ((above (and (plist-get new :agent) (plist-get new :parent)))
         (place (seq-position
                 rows (or above (plist-get new :session-dir))
                 (lambda (row wanted)
                   (equal wanted (plist-get row (if above :branch
                                                  :session-dir)))))))
    (cond ((null place) (cons new rows))
          (above (append (seq-take rows (1+ place)) (list new)
                         (seq-drop rows (1+ place))))
          (t (append (seq-take rows place) (list new)
                     (seq-drop rows place))))))

;;;; Without a daemon

(defvar pyagentd-connect-wanted-functions)

(defconst pyagentd-live-no-daemon "no daemon"
  "What a list says in the mode line when nobody tells it what changes.")

(defvar-local pyagentd-live nil
  "Non-nil in a list that follows what happens.")

(defun pyagentd-live--wanted-p ()
  "Return non-nil if a list that follows what happens is shown."
  (seq-some (lambda (buffer)
              (and (buffer-local-value 'pyagentd-live buffer)
                   (pyagentd-live-shown-p buffer)))
            (buffer-list)))

(add-hook 'pyagentd-connect-wanted-functions #'pyagentd-live--wanted-p)

;;;; Printing

(defun pyagentd-live-print-soon (print)
  "Call PRINT in this buffer in a moment, once for much that changes at once."
  (unless pyagentd-live--timer
    (setq pyagentd-live--timer
          (run-at-time (max pyagentd-live-pause (* 10 pyagentd-live-took)) nil
                       #'pyagentd-live--on-timer (current-buffer) print))))

(defun pyagentd-live--on-timer (buffer print)
  "Call PRINT in BUFFER, unless something is being typed."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (setq pyagentd-live--timer nil)
      (if (input-pending-p)
          (pyagentd-live-print-soon print)
        (let ((start (float-time)))
          (pyagentd-guarded "List" (funcall print))
          (setq pyagentd-live-took (- (float-time) start)))))))

(defun pyagentd-live-shown-p (buffer)
  "Return non-nil if BUFFER is in a window of a frame that can be seen."
  (get-buffer-window buffer 'visible))

(provide 'pyagentd-live)
;;; pyagentd-live.el ends here

;;; pyagentd-gc.el --- Garbage is collected when nobody waits -*- lexical-binding: t; -*-

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

;; With a long conversation in a buffer a garbage collection takes 20 to
;; 60 ms, and by default there is one for every 800 kB of garbage: with
;; twenty agents that is a fifth of all time, and most of what a key has
;; to wait for.  So while answers stream Emacs may leave more garbage
;; lying about; it is collected when they pause.

;;; Code:

(require 'pyagentd-core)

(defcustom pyagentd-gc-threshold (* 32 1024 1024)
  "Least value of `gc-cons-threshold' while answers stream, in bytes.
nil means leave it alone."
  :type '(choice natnum (const :tag "Leave it alone" nil))
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defconst pyagentd-gc--pause 1.0
  "Seconds without a call of `pyagentd-gc-postpone' that end its effect.")

(defvar pyagentd-gc--usual nil
  "Value of `gc-cons-threshold' to restore, nil if it was not changed.")
(defvar pyagentd-gc--latest 0.0
  "Time (`float-time') of the latest call of `pyagentd-gc-postpone'.")

(defun pyagentd-gc-postpone ()
  "Collect less garbage until nobody has asked for it for a second."
  (setq pyagentd-gc--latest (float-time))
  (when (and pyagentd-gc-threshold (not pyagentd-gc--usual)
             (< gc-cons-threshold pyagentd-gc-threshold))
    (setq pyagentd-gc--usual gc-cons-threshold
          gc-cons-threshold pyagentd-gc-threshold)
    (run-at-time pyagentd-gc--pause nil #'pyagentd-gc--on-timer)))

(defvar pyagentd-gc--announced '(0 . 0)
  "How many collections there were, and the bytes announced since the last.")

(defun pyagentd-gc-make-room (bytes)
  "Collect garbage now, if else it might be done while BYTES more are made.
For work in steps between which somebody may type."
  (unless (eql (car pyagentd-gc--announced) gcs-done)
    (setq pyagentd-gc--announced (cons gcs-done 0)))
  (when (> (+ bytes (cdr pyagentd-gc--announced)) (/ gc-cons-threshold 2))
    (garbage-collect)
    (setq pyagentd-gc--announced (cons gcs-done 0)))
  (setcdr pyagentd-gc--announced (+ bytes (cdr pyagentd-gc--announced))))

(defun pyagentd-gc--on-timer ()
  "Restore the threshold and collect, or wait longer, for a key also."
  (let ((left (- (+ pyagentd-gc--latest pyagentd-gc--pause) (float-time))))
    (cond ((> left 0.01)
           (run-at-time left nil #'pyagentd-gc--on-timer))
          ((input-pending-p)
           (run-at-time 0.05 nil #'pyagentd-gc--on-timer))
          (t
           ;; Whoever changed it meanwhile knows better.
           (when (eql gc-cons-threshold pyagentd-gc-threshold)
             (setq gc-cons-threshold pyagentd-gc--usual))
           (setq pyagentd-gc--usual nil)))))

(provide 'pyagentd-gc)
;;; pyagentd-gc.el ends here

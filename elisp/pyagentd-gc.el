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
;; lying about; it is collected when they pause.  Who types meanwhile pauses
;; between two keys: the garbage of some seconds is collected right after
;; a key is on the screen, before Emacs has to do it while one waits.

;;; Code:

(require 'pyagentd-core)

(defcustom pyagentd-gc-threshold (* 32 1024 1024)
  "Minimum of `gc-cons-threshold' while answers stream, in bytes.
nil means do not change it."
  :type '(choice natnum (const :tag "Leave it alone" nil))
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defconst pyagentd-gc--pause 1.0
  "Seconds without a call of `pyagentd-gc-postpone' that end its effect.")

(defvar pyagentd-gc--usual nil
  "Value of `gc-cons-threshold' to restore, nil if it was not changed.")
(defvar pyagentd-gc--latest 0.0
  "Time (`float-time') of the latest call of `pyagentd-gc-postpone'.")

;;;; How much there is

(defvar pyagentd-gc--base nil
  "Value of function `pyagentd-gc--made' at the latest collection.
Nil before the first call of `pyagentd-gc-postpone'.")

(defun pyagentd-gc--made ()
  "Return how many bytes of Lisp data were made since Emacs began."
  (pcase-let ((`(,conses ,floats ,cells ,symbols ,chars ,intervals ,strings)
               (memory-use-counts)))
    (+ (* 16 conses) (* 8 floats) (* 8 cells) (* 48 symbols)
       chars (* 56 intervals) (* 32 strings))))

(defun pyagentd-gc--garbage ()
  "Return how many bytes were made since the latest collection."
  (- (pyagentd-gc--made) (or pyagentd-gc--base 0)))

(defun pyagentd-gc--collected ()
  "Note that garbage was collected."
  (setq pyagentd-gc--base (pyagentd-gc--made)))

;;;; Later

(defvar pyagentd-gc--timers nil
  "Idle timers that collect between two keys while `pyagentd-gc--usual' is set.")

(defun pyagentd-gc-postpone ()
  "Collect less garbage until nobody has asked for it for a second."
  (setq pyagentd-gc--latest (float-time))
  (unless pyagentd-gc--base
    (add-hook 'post-gc-hook #'pyagentd-gc--collected)
    (pyagentd-gc--collected))
  (when (and pyagentd-gc-threshold (not pyagentd-gc--usual)
             (< gc-cons-threshold pyagentd-gc-threshold))
    (setq pyagentd-gc--usual gc-cons-threshold
          gc-cons-threshold pyagentd-gc-threshold)
    (pyagentd-gc--watch)
    (run-at-time pyagentd-gc--pause nil #'pyagentd-gc--on-timer)))

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
           (mapc #'cancel-timer pyagentd-gc--timers)
           (setq pyagentd-gc--usual nil)))))

;;;; Between two keys

(defun pyagentd-gc--watch ()
  "Look after each key whether there is much garbage."
  (setq pyagentd-gc--timers
        ;; The longer the pause, the less likely a key comes just now.
        (list (run-with-idle-timer 0.01 t #'pyagentd-gc--between-keys 0.01 0.5)
              (run-with-idle-timer 0.3 t #'pyagentd-gc--between-keys 0.3 0.25))))

(defun pyagentd-gc--between-keys (delay part)
  "Collect if there is garbage for PART of the threshold and no key waits.
DELAY is how many seconds after the key this should be; when something
else took most of the pause, the next one is awaited."
  (when (and (> (pyagentd-gc--garbage) (* part gc-cons-threshold))
             (< (float-time (or (current-idle-time) 0)) (+ delay 0.03))
             (not (input-pending-p)))
    (garbage-collect)))

(defun pyagentd-gc-make-room (bytes)
  "Collect garbage now, if else it might be done while BYTES more are made.
For work in steps between which somebody may type."
  (when (> (+ bytes (pyagentd-gc--garbage)) (* 0.8 gc-cons-threshold))
    (garbage-collect)))

(provide 'pyagentd-gc)
;;; pyagentd-gc.el ends here

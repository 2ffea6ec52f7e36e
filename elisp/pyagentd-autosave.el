;;; pyagentd-autosave.el --- When a session buffer is saved by itself -*- lexical-binding: t; -*-

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

;; A session buffer is saved after a pause in its changes, so that nobody
;; needs to.  Typed text is saved soon, and while typing goes on a pause
;; between two keys is looked for; text that the daemon has recorded waits
;; longer.  What the disk refuses is tried again, ever less often.
;;
;; How it is saved is the matter of `pyagentd-session'.

;;; Code:

(require 'pyagentd-core)

(defvar pyagentd-session-viewing)
(defvar pyagentd-session-trouble)
(declare-function pyagentd-session-save "pyagentd-session" (&optional politely))

;;;; State

(defconst pyagentd-autosave--longest-delay 5.0
  "Seconds after the first unsaved change at which a buffer is saved anyway.")
(defconst pyagentd-autosave--longest-recorded-delay 60.0
  "The same for text that the daemon has recorded, which nobody can lose.")
(defconst pyagentd-autosave--patience 1.0
  "Seconds before that for which a pause between two keys is looked for.")
(defconst pyagentd-autosave--longest-pause 30.0
  "Most seconds between two attempts to save what the disk refused.")

(defvar-local pyagentd-autosave-enabled nil
  "Non-nil means this buffer is saved after a pause.
See `pyagentd-autosave-idle-time'.")
(defvar-local pyagentd-autosave--timer nil
  "Timer of the next automatic save.")
(defvar-local pyagentd-autosave--deadline nil
  "Time (`float-time') by which a change shall be saved, nil if none is due.")
(defvar-local pyagentd-autosave--last-change nil
  "Time (`float-time') of the latest change.")
(defvar-local pyagentd-autosave--pause nil
  "Seconds to the next attempt to save, nil unless there is trouble.")

(pyagentd-permanent-local 'pyagentd-autosave-enabled 'pyagentd-autosave--timer
                          'pyagentd-autosave--deadline
                          'pyagentd-autosave--last-change
                          'pyagentd-autosave--pause)

;;;; When

(defun pyagentd-autosave-settle ()
  "Forget that the text was changed."
  (when pyagentd-autosave--timer
    (cancel-timer pyagentd-autosave--timer))
  (setq pyagentd-autosave--timer nil
        pyagentd-autosave--pause nil
        pyagentd-autosave--deadline nil))

(defun pyagentd-autosave-touch (&optional recorded)
  "Note that the text changed now: save it after a pause.
While changes go on it is saved after five seconds, or after a minute if
they are all RECORDED by the daemon already."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (when (and pyagentd-autosave-enabled (> pyagentd-autosave-idle-time 0))
      (let* ((now (float-time))
             (latest (+ now (if recorded
                                pyagentd-autosave--longest-recorded-delay
                              pyagentd-autosave--longest-delay))))
        (setq pyagentd-autosave--last-change now
              pyagentd-autosave--deadline
              (min latest (or pyagentd-autosave--deadline latest))))
      (cond ((null pyagentd-autosave--timer)
             (pyagentd-autosave--arm pyagentd-autosave-idle-time))
            ((and (not recorded) (pyagentd-autosave--soon-p))
             ;; The pause after this key is as long as any will be.
             (cancel-timer pyagentd-autosave--timer)
             (pyagentd-autosave--arm 0.005))))))

(defun pyagentd-autosave--soon-p ()
  "Return non-nil if by now a pause between two keys is looked for."
  (and (null pyagentd-autosave--pause)
       (> pyagentd-autosave--last-change
          (- pyagentd-autosave--deadline pyagentd-autosave--patience))))

(defun pyagentd-autosave--arm (delay)
  "Look after DELAY seconds whether it is time to save."
  (setq pyagentd-autosave--timer
        (run-at-time delay nil #'pyagentd-autosave--on-timer (current-buffer))))

(defun pyagentd-autosave--due (now)
  "Return how many seconds after NOW the buffer shall be saved."
  (- (min (+ pyagentd-autosave--last-change pyagentd-autosave-idle-time)
          (- pyagentd-autosave--deadline pyagentd-autosave--patience))
     now))

(defun pyagentd-autosave--on-timer (buffer)
  "Save BUFFER, or wait longer after another change."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (setq pyagentd-autosave--timer nil)
      (when (and pyagentd-autosave--deadline pyagentd-autosave-enabled)
        (let* ((now (float-time))
               (due (pyagentd-autosave--due now)))
          (if (> due 0.001)
              (pyagentd-autosave--arm due)
            ;; Timers come before the display of the key just typed.
            (redisplay)
            (pyagentd-guarded "Autosave"
              (pyagentd-session-save (< now pyagentd-autosave--deadline)))
            (pyagentd-autosave--after-attempt)))))))

(defun pyagentd-autosave--after-attempt ()
  "Arrange for another attempt if the text is not saved yet."
  (cond ((or (not (buffer-modified-p)) pyagentd-session-viewing)
         (pyagentd-autosave-settle))
        (pyagentd-session-trouble
         (setq pyagentd-autosave--pause
               (min (* 2 (or pyagentd-autosave--pause 0.5))
                    pyagentd-autosave--longest-pause))
         (pyagentd-autosave--arm pyagentd-autosave--pause))
        ;; It gave way to a key; if that changes the text it is tried then.
        (t (pyagentd-autosave--arm 0.1))))

(provide 'pyagentd-autosave)
;;; pyagentd-autosave.el ends here

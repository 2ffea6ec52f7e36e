;;; pyagentd-outbox.el --- What is sent to the daemon -*- lexical-binding: t; -*-

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

;; Emacs waits when it writes to a socket that is full, and nothing of
;; Emacs moves then.  It is full soon when the daemon does not read: after
;; two hundred small calls on GNU/Linux, after forty elsewhere.  So only
;; a little is written that the daemon is not known to have read, and the
;; rest is held back here, in its order.  The daemon reads calls in their
;; order: when it answers one it has read all before.  Where much is held
;; back behind calls that take long, one is made that is answered at once.

;;; Code:

(require 'seq)

(defconst pyagentd-outbox--most 6000
  "How many bytes may be written that the daemon is not known to have read.
A socket of macOS takes 8192.")

(defconst pyagentd-outbox--overhead 64
  "How many bytes a frame takes beside its text.")

(defvar pyagentd-outbox--held nil
  "Frames held back, pairs (UID . FRAME), first one first.")

(defvar pyagentd-outbox--written nil
  "What the daemon may not have read, pairs (UID . BYTES), latest first.")

(defvar pyagentd-outbox--fence nil
  "UID of the call that only finds out what was read, nil if there is none.")

(defvar pyagentd-outbox--open nil
  "Non-nil if frames may be written: the daemon has answered hello.")

(defvar pyagentd-outbox-send-function #'ignore
  "Function that writes a frame, a unibyte string, to the daemon.")

(defvar pyagentd-outbox-fence-function #'ignore
  "Function that returns the (UID . FRAME) of a call that is answered at once.")

(defun pyagentd-outbox-reset ()
  "Forget all frames: there is a connection that waits for hello, or none."
  (setq pyagentd-outbox--held nil
        pyagentd-outbox--written nil
        pyagentd-outbox--fence nil
        pyagentd-outbox--open nil))

(defun pyagentd-outbox-open ()
  "Write what waited for hello."
  (setq pyagentd-outbox--open t)
  (pyagentd-outbox--flush))

(defun pyagentd-outbox-put (uid frame)
  "Write FRAME, the call UID, or hold it back."
  (setq pyagentd-outbox--held
        (nconc pyagentd-outbox--held (list (cons uid frame))))
  (pyagentd-outbox--flush))

(defun pyagentd-outbox-drop (uid)
  "Do not write the call UID, if that is held back."
  (setq pyagentd-outbox--held (assq-delete-all uid pyagentd-outbox--held)))

(defun pyagentd-outbox-answered (uid)
  "Note that the call UID was answered, so that it and all before were read."
  (when-let ((entry (assq uid pyagentd-outbox--written)))
    (setq pyagentd-outbox--written
          (seq-take-while (lambda (other) (not (eq other entry)))
                          pyagentd-outbox--written)))
  (when (eql uid pyagentd-outbox--fence)
    (setq pyagentd-outbox--fence nil))
  (pyagentd-outbox--flush))

(defun pyagentd-outbox--bytes ()
  "Return how many bytes the daemon may not have read."
  (apply #'+ (mapcar #'cdr pyagentd-outbox--written)))

(defun pyagentd-outbox--write (entry)
  "Write the frame in ENTRY, a pair (UID . FRAME)."
  (pcase-let ((`(,uid . ,frame) entry))
    (push (cons uid (+ pyagentd-outbox--overhead (length frame)))
          pyagentd-outbox--written)
    (funcall pyagentd-outbox-send-function frame)))

(defun pyagentd-outbox--fits-p (frame)
  "Return non-nil if FRAME can be written without waiting.
A frame that never fits is written where all before it was read."
  (let ((bytes (pyagentd-outbox--bytes)))
    (or (= bytes 0)
        (<= (+ bytes pyagentd-outbox--overhead (length frame))
            pyagentd-outbox--most))))

(defun pyagentd-outbox--flush ()
  "Write what can be written of the frames held back.
Where Emacs waits for the socket, timers and filters run, which put more
or reset all: what is true is looked up again after each frame."
  (while (and pyagentd-outbox--open pyagentd-outbox--held
              (pyagentd-outbox--fits-p (cdar pyagentd-outbox--held)))
    (pyagentd-outbox--write (pop pyagentd-outbox--held)))
  (when (and pyagentd-outbox--open pyagentd-outbox--held
             (null pyagentd-outbox--fence))
    (let ((fence (funcall pyagentd-outbox-fence-function)))
      (setq pyagentd-outbox--fence (car fence))
      (pyagentd-outbox--write fence)
      ;; It may have been answered already.
      (pyagentd-outbox--flush))))

(provide 'pyagentd-outbox)
;;; pyagentd-outbox.el ends here

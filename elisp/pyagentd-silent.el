;;; pyagentd-silent.el --- A prompt that the daemon is silent about -*- lexical-binding: t; -*-

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

;; The daemon says within moments that it has a prompt.  If it does not, as
;; when it is stopped or the machine is busy, the header line says so, and
;; what is typed goes below a heading of its own: the next prompt.  The
;; answer brings such a heading, so ours goes when the daemon takes the
;; prompt, and also when it does not and nothing was written there.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-later)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-status)
(require 'pyagentd-queued)

(defconst pyagentd-silent--after 0.7
  "Seconds after which the daemon is asked whether it is there.
So long it may take to say so, too.")

(defvar-local pyagentd-silent--timer nil
  "Timer that finds the daemon silent, nil while nothing is awaited.")
(defvar-local pyagentd-silent--asked nil
  "What says which question of ours counts, nil if none.")
(defvar-local pyagentd-silent--end nil
  "Marker at the end of the prompt that has a heading of ours below, or nil.")

(pyagentd-permanent-local 'pyagentd-silent--timer 'pyagentd-silent--asked
                          'pyagentd-silent--end)

(defun pyagentd-silent-watch (&optional end)
  "Show in this session buffer if the daemon is silent for a while.
END is the end of the prompt that was sent; nil if it is not sent yet."
  (pyagentd-silent-over)
  (setq pyagentd-silent--timer
        (run-at-time pyagentd-silent--after nil
                     (pyagentd-later-back #'pyagentd-silent--ask)
                     (and end (copy-marker end)))))

(defun pyagentd-silent--ask (end)
  "Find out whether the daemon is silent about the prompt that ends at END.
It may be there and have reasons to take its time, a hook for one."
  (let ((asked (list end)))
    (setq pyagentd-silent--timer nil
          pyagentd-silent--asked asked)
    (pyagentd-rpc-call-async
     'status nil :timeout pyagentd-silent--after :success #'ignore
     :error (pyagentd-later-back
             (lambda (err)
               (when (and (eq (car err) 'pyagentd-timeout)
                          (eq asked pyagentd-silent--asked))
                 (pyagentd-silent--found end)))))))

(defun pyagentd-silent-over ()
  "Note that the daemon is not silent, or that nothing is awaited any more."
  (when pyagentd-silent--timer
    (cancel-timer pyagentd-silent--timer))
  (setq pyagentd-silent--timer nil
        pyagentd-silent--asked nil)
  (when pyagentd-status-silent
    (setq pyagentd-status-silent nil)
    (pyagentd-status-refresh)))

(defun pyagentd-silent--found (end)
  "Show that the daemon is silent about the prompt that ends at END, or nil."
  (when (eq (plist-get pyagentd-status :state) 'sending)
    (setq pyagentd-status-silent t)
    (pyagentd-status-refresh)
    (when (and end (not pyagentd-session-viewing) (not buffer-read-only))
      (pyagentd-silent--separate end))))

(defun pyagentd-silent--separate (end)
  "Put a heading behind END, before what was typed there."
  (save-restriction
    (widen)
    (let ((heading (concat "\n\n" pyagentd-prompt-prefix))
          (followers (pyagentd-insert--followers end)))
      (save-excursion
        (goto-char end)
        (unless (looking-at-p "[ \t]*\n")
          (insert heading)
          (setq pyagentd-silent--end end)))
      (mapc #'pyagentd-insert--follow followers))))

(defun pyagentd-silent-taken ()
  "Remove our heading, since the answer brings one."
  (when pyagentd-silent--end
    (setq pyagentd-silent--end nil)
    (pyagentd-queued--join (pyagentd-insert-position))))

(defun pyagentd-silent-refused ()
  "Remove our heading if nothing was written below it."
  (when pyagentd-silent--end
    (save-excursion
      (save-restriction
        (widen)
        (goto-char pyagentd-silent--end)
        (setq pyagentd-silent--end nil)
        (when (looking-at (concat "\n\n" (regexp-quote pyagentd-prompt-prefix)
                                  "[ \t\n]*\\'"))
          (delete-region (point) (point-max)))))))

(provide 'pyagentd-silent)
;;; pyagentd-silent.el ends here

;;; pyagentd-later.el --- Commands that do not wait -*- lexical-binding: t; -*-

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

;; A command asks the daemon and returns; what it does with the answer it
;; does later, as a timer would.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-start)

(defun pyagentd-later (method plist &optional success timeout)
  "Call METHOD of the daemon with PLIST; start the daemon if there is none.
SUCCESS is called with the answer, in whatever buffer is shown then.
TIMEOUT is in seconds and by default `pyagentd-call-timeout'.  A refusal
is told in the echo area."
  (pyagentd-start
   (lambda ()
     (pyagentd-rpc-call-async
      method plist
      :timeout (or timeout pyagentd-call-timeout)
      :success
      (lambda (answer)
        (when success
          ;; Not here, where the answer was read: who waits for the
          ;; process would wait for what visits files and asks.
          (run-at-time 0 nil #'pyagentd-later--give success answer)))
      :error (lambda (err) (message "%s" (pyagentd-error-text err)))))))

(defun pyagentd-later--give (function answer)
  "Call FUNCTION with ANSWER where the user is."
  (with-current-buffer (window-buffer)
    (pyagentd-guarded "Answer" (funcall function answer))))

(defmacro pyagentd-later-in (buffer &rest body)
  "Evaluate BODY in BUFFER if that is still alive."
  (declare (indent 1) (debug t))
  (let ((live (make-symbol "buffer")))
    `(let ((,live ,buffer))
       (when (buffer-live-p ,live)
         (with-current-buffer ,live ,@body)))))

(defun pyagentd-later-ask (prompt)
  "Ask the yes-or-no question PROMPT, unless something is asked already.
For what is done with an answer: its command has returned long ago."
  (if (active-minibuffer-window)
      (progn (message "%sFinish what is asked, then try again" prompt) nil)
    ;; No key or click has led here, which would ask in a dialog.
    (let ((last-nonmenu-event t))
      (yes-or-no-p prompt))))

(provide 'pyagentd-later)
;;; pyagentd-later.el ends here

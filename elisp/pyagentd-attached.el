;;; pyagentd-attached.el --- What waits until a session is attached -*- lexical-binding: t; -*-

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

;; A prompt can be sent as soon as the daemon knows the text of its
;; session.  Until then what is to be done with the session waits here, and
;; Emacs goes on: the buffer is attached (`pyagentd-attach'), where there
;; is no daemon after it was started.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-start)
(require 'pyagentd-later)
(require 'pyagentd-session)
(require 'pyagentd-viewing)
(require 'pyagentd-attach)

(defvar-local pyagentd-attached--timer nil
  "Timer that gives up waiting, or nil.")

(pyagentd-permanent-local 'pyagentd-attached--timer)

(defun pyagentd-attached-p ()
  "Return non-nil if buffer and daemon agree on the text of this session."
  (and (eq pyagentd-attach-state t) (pyagentd-rpc-connected-p)))

(defun pyagentd-attached-then (then &optional failed)
  "Call THEN without arguments in this session buffer once it is attached.
At once if it is.  Otherwise return, attach it, and start a daemon if
there is none.  If that fails FAILED is called here with the error, a
list (SYMBOL . DATA); by default it is told in the echo area."
  (if (pyagentd-attached-p)
      (funcall then)
    (let ((entry (cons then (or failed #'pyagentd-later-tell))))
      (setq pyagentd-attach-awaited (append pyagentd-attach-awaited
                                            (list entry)))
      (condition-case err
          (pyagentd-start (pyagentd-later-back #'pyagentd-attached--begin)
                          (pyagentd-later-back #'pyagentd-attached--fail))
        ;; The user may quit when asked whether to install the server.
        ((error quit)
         (setq pyagentd-attach-awaited (delq entry pyagentd-attach-awaited))
         (signal (car err) (cdr err)))))
    nil))

(defun pyagentd-attached--begin ()
  "Attach this buffer, and give up after a while."
  (unless pyagentd-attached--timer
    (setq pyagentd-attached--timer
          (run-at-time pyagentd-call-timeout nil
                       (pyagentd-later-back #'pyagentd-attached--give-up))))
  (unless (pyagentd-attached-p)
    ;; Also where an answer is awaited: it may be about an older text.
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)))

(defun pyagentd-attached--give-up ()
  "Let nothing wait any longer."
  (let ((silent (eq pyagentd-attach-state 'pending)))
    (unless (eq pyagentd-attach-state t)
      (setq pyagentd-attach-state nil))
    (pyagentd-attached--fail
     (cond (silent (list 'pyagentd-timeout 'attach))
           ((not (pyagentd-rpc-connected-p))
            (list 'pyagentd-disconnected "try again"))
           (t (list 'user-error
                    (substitute-command-keys
                     "Buffer and file differ, or the file keeps changing; \
\\[revert-buffer] reads it, then send again")))))))

(defun pyagentd-attached-cancel ()
  "Let nothing wait any longer, since the user does not want it."
  (pyagentd-attached--fail (list 'user-error "You stopped it")))

(defun pyagentd-attached--take ()
  "Return what waits here, pairs (THEN . FAILED), which waits no longer."
  (when pyagentd-attached--timer
    (cancel-timer pyagentd-attached--timer))
  (prog1 pyagentd-attach-awaited
    (setq pyagentd-attached--timer nil
          pyagentd-attach-awaited nil)))

(defun pyagentd-attached--fail (err)
  "Tell what waits here that ERR, (SYMBOL . DATA), kept it from going on."
  (pcase-dolist (`(,_ . ,failed) (pyagentd-attached--take))
    (pyagentd-guarded "Attach" (funcall failed err))))

(defun pyagentd-attached--go ()
  "Go on with what waited, if the buffer is still attached."
  (when (pyagentd-attached-p)
    (pcase-dolist (`(,then . ,_) (pyagentd-attached--take))
      (pyagentd-later-soon then))))

(defun pyagentd-attached--soon ()
  "Go on soon with what waited: not where the answer was read."
  (when pyagentd-attach-awaited
    (pyagentd-later-soon #'pyagentd-attached--go)))

(add-hook 'pyagentd-attached-hook #'pyagentd-attached--soon)
(add-hook 'pyagentd-attach-failed-functions #'pyagentd-attached--fail)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-attached--take)

(provide 'pyagentd-attached)
;;; pyagentd-attached.el ends here

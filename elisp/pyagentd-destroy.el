;;; pyagentd-destroy.el --- Destroying a named agent -*- lexical-binding: t; -*-

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

;; What would be lost is shown before anything is done.  The conversation
;; is saved first; files go to the trash, or stay for an agent of the same
;; name to take up.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-here)
(require 'pyagentd-named)

(defun pyagentd-destroy--insert (name lines keep)
  "Insert what is lost with the agent NAME: LINES; KEEP says files stay."
  (insert (propertize (format "The agent %s\n" name) 'face 'pyagentd-heading)
          (if lines
              (mapconcat (lambda (line) (format "  - %s\n" line)) lines "")
            "  Nothing would be lost.\n"))
  (when keep
    (insert (propertize "  Its files stay; an agent of the same name will \
use them.\n"
                        'face 'shadow))))

(defun pyagentd-destroy--buffer (name lines keep)
  "Return a buffer that says what is lost with NAME: LINES; KEEP: files stay."
  (with-current-buffer (get-buffer-create "*pyagentd losses*")
    (special-mode)
    (setq-local truncate-lines nil
                word-wrap t)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (pyagentd-destroy--insert name lines keep))
    (goto-char (point-min))
    (current-buffer)))

(defun pyagentd-destroy--confirm (name losses keep)
  "Ask whether to destroy NAME, with which LOSSES go; KEEP: files stay."
  (save-window-excursion
    (let ((shown (pyagentd-destroy--buffer name (plist-get losses :lines)
                                           keep)))
      (display-buffer shown '(display-buffer-at-bottom
                              (window-height . fit-window-to-buffer)))
      (unwind-protect
          (pyagentd-later-ask
           (format "Destroy the agent %s%s? " name
                   (if keep ", but not its files" "")))
        (kill-buffer shown)))))

(defun pyagentd-destroy (name keep &optional then)
  "Destroy the agent NAME when its user has seen what is lost.
KEEP says that its files stay.  THEN is called when it is done, or when
the user does not want it."
  (pyagentd-later
   'agent-losses (list :name name :keep-files keep)
   (lambda (losses)
     (dolist (buffer (pyagentd-here-buffers (plist-get losses :dir)))
       (with-current-buffer buffer (pyagentd-session-save)))
     (if (not (pyagentd-destroy--confirm name losses keep))
         (when then (funcall then))
       (message "Destroying %s..." name)
       (pyagentd-later
        'agent-destroy (list :name name :keep-files keep :confirmed t)
        (lambda (done)
          (message "%s" (plist-get done :text))
          (run-hooks 'pyagentd-changed-hook)
          (when then (funcall then)))
        60)))))

(defun pyagentd-agent-destroy (name &optional keep)
  "Destroy the agent NAME and stop all it does.
What would be lost is named first.  Its conversation is saved and its files
go to the trash; with a prefix argument, or KEEP from Lisp, they stay, and
`pyagentd-agent-init' with the same name uses them again."
  (interactive (list (pyagentd-named-read (if current-prefix-arg
                                              "Destroy agent, not its files"
                                            "Destroy agent"))
                     (and current-prefix-arg t)))
  (pyagentd-destroy name keep))

(provide 'pyagentd-destroy)
;;; pyagentd-destroy.el ends here

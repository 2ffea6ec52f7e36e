;;; pyagentd-ask-here.el --- Which question commands in a buffer answer -*- lexical-binding: t; -*-

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

;; Commands answer the ask of the notice, the one at point in a list, or
;; the one that a buffer is about: its arguments, its diff, all of it.  Such
;; a buffer stays when the ask is answered elsewhere, and says so.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-ask)
(require 'pyagentd-ask-notice)

(defvar-local pyagentd-ask-function nil
  "Function that returns the ask which commands in this buffer answer.
It returns nil if there is none; nil here means the one of the notice.")

(defvar-local pyagentd-ask-here-about nil
  "The ask that this buffer is about and stays about, nil for none.
A list (ID OPEN ANSWERED PASSING), the header lines while it is open and
after; PASSING says that the buffer is left once we have answered.")

(pyagentd-permanent-local 'pyagentd-ask-here-about)

(defun pyagentd-ask-here-set (ask open answered &optional passing)
  "Let commands in this buffer answer ASK, and no other.
OPEN and ANSWERED are header lines, the latter for when it is settled.
PASSING says that there is nothing to see any more once we have answered."
  (let ((id (pyagentd-ask-id ask)))
    (setq pyagentd-ask-function (lambda () (pyagentd-ask-find id))
          pyagentd-ask-here-about (list id open answered passing)
          header-line-format open)))

(defun pyagentd-ask-here--on-change ()
  "Say in the buffers about one ask whether it is answered."
  (dolist (buffer (buffer-list))
    (when-let ((about (buffer-local-value 'pyagentd-ask-here-about buffer)))
      (with-current-buffer buffer
        (cond ((pyagentd-ask-find (car about))
               (setq header-line-format (nth 1 about)))
              ((pyagentd-rpc-connected-p) ; else we only cannot know
               (setq header-line-format (nth 2 about))))
        (force-mode-line-update)))))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-ask-here--on-change)

(defun pyagentd-ask-here-display (selected)
  "Show this buffer, in a window that is SELECTED or not.
Its keys are letters, so whoever asked for it is there."
  (if selected (pop-to-buffer (current-buffer))
    (display-buffer (current-buffer))))

(defun pyagentd-ask-here-leave (id)
  "Leave the windows that were there only to decide about the ask ID."
  (dolist (buffer (buffer-list))
    (pcase (buffer-local-value 'pyagentd-ask-here-about buffer)
      (`(,(pred (equal id)) ,_ ,_ t)
       (dolist (window (get-buffer-window-list buffer nil t))
         (quit-window nil window))))))

(defun pyagentd-ask-here ()
  "Return the ask that commands in this buffer answer, or nil."
  (if pyagentd-ask-function
      (funcall pyagentd-ask-function)
    (pyagentd-ask-notice-current)))

(provide 'pyagentd-ask-here)
;;; pyagentd-ask-here.el ends here

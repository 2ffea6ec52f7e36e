;;; pyagentd-buffer-name.el --- What session buffers are called -*- lexical-binding: t; -*-

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

;; Every conversation is in a file called session.md.  Its buffer is called
;; what the session is called: from the beginning after the name that is
;; in its id, and after its title as soon as that is known.  An agent's has
;; the name of its preset before that, a branch follows in parentheses.
;;
;; Another buffer never changes its name because of that, and one that the
;; user has renamed keeps its name.

;;; Code:

(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-session)
(require 'pyagentd-status)

(defvar-local pyagentd-buffer-name--given nil
  "The name that this buffer was given here, nil if it was given none.")

(defconst pyagentd-buffer-name--longest 60
  "Columns that the name of a session takes in that of its buffer.")

(pyagentd-permanent-local 'pyagentd-buffer-name--given)

(defun pyagentd-buffer-name--agent ()
  "Return the name of the agent whose conversation is here, nil of others."
  (when-let* ((file buffer-file-name)
              (place (expand-file-name "../.." (file-name-directory file))))
    (when (file-exists-p (expand-file-name "agent.json" place))
      (file-name-nondirectory place))))

(defun pyagentd-buffer-name--wanted (title)
  "Return what the buffer of a session with TITLE, or nil, is to be called."
  (let ((name (if-let ((agent (pyagentd-buffer-name--agent)))
                  (format "agent %s" agent)
                (truncate-string-to-width
                 (pyagentd-place-words
                  pyagentd--session-id (pyagentd-place-agent-p) title)
                 pyagentd-buffer-name--longest nil nil "…"))))
    (if (equal pyagentd--branch-name "main") name
      (format "%s (%s)" name
              (string-trim-left pyagentd--branch-name "[0-9]\\{14\\}-")))))

(defun pyagentd-buffer-name--free (name)
  "Return NAME, or NAME<2> and so on if another buffer is called that."
  (let ((free name) (number 1))
    (while (not (memq (get-buffer free) (list nil (current-buffer))))
      (setq free (format "%s<%d>" name (setq number (1+ number)))))
    free))

(defun pyagentd-name-buffer (&optional title)
  "Name the current session buffer after its TITLE, or else after its id.
It keeps a name that the user gave it.  For `pyagentd-title-functions'."
  (when (and pyagentd-mode
             (equal (buffer-name) pyagentd-buffer-name--given))
    (let ((name (pyagentd-buffer-name--free
                 (pyagentd-buffer-name--wanted title))))
      ;; Not with a second argument: then `uniquify' names others anew.
      (unless (equal name (buffer-name))
        (rename-buffer name))
      (setq pyagentd-buffer-name--given name))))

(defun pyagentd-buffer-name--begin ()
  "Name the buffer of a session that was visited just now."
  (unless pyagentd-buffer-name--given
    (setq pyagentd-buffer-name--given (buffer-name)))
  (pyagentd-name-buffer pyagentd-status-title))

(add-hook 'pyagentd-mode-on-hook #'pyagentd-buffer-name--begin)
(add-hook 'pyagentd-title-functions #'pyagentd-name-buffer)

(provide 'pyagentd-buffer-name)
;;; pyagentd-buffer-name.el ends here

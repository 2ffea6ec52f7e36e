;;; pyagentd-viewing.el --- Who may not write here, and why -*- lexical-binding: t; -*-

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

;; A session that another client writes is read-only here, and so is one
;; that the disk lets nobody write.  Neither is ever written, whatever the
;; user or a timer asks for.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-status)

(defvar-local pyagentd-viewing-refusal nil
  "Why nobody can write this session, a line; nil if somebody can.")
(defvar-local pyagentd-viewing-diverged nil
  "Non-nil if the file was changed elsewhere and the text here never saved.")
(defvar-local pyagentd-viewing--locked nil
  "Non-nil if we made the buffer read-only.")

(pyagentd-permanent-local 'pyagentd-viewing-refusal 'pyagentd-viewing-diverged
                          'pyagentd-viewing--locked)

(defconst pyagentd-viewing-diverged-text
  "The file was changed elsewhere; what you wrote here is not saved, \
M-x pyagentd-take-over helps"
  "What to say of a text that cannot be saved.")

(defun pyagentd-viewing-set (viewing)
  "Make the buffer read-only if VIEWING, that is if another client writes."
  (setq pyagentd-session-viewing viewing)
  (cond ((and viewing (or pyagentd-viewing-refusal (not buffer-read-only)))
         (setq buffer-read-only t
               pyagentd-viewing--locked t))
        ((and pyagentd-viewing--locked (not viewing))
         (setq buffer-read-only nil
               pyagentd-viewing--locked nil)))
  (setq pyagentd-status-hindrance
        (cond (pyagentd-viewing-diverged "not saved")
              (pyagentd-viewing-refusal
               (concat "read only: " pyagentd-viewing-refusal))
              (viewing "read only")))
  (pyagentd-status-refresh))

(defun pyagentd-viewing--before-write ()
  "Refuse to write the file of a session that another client writes."
  (when pyagentd-session-viewing
    (user-error "%s" (cond (pyagentd-viewing-refusal)
                           (pyagentd-viewing-diverged
                            pyagentd-viewing-diverged-text)
                           (t "Another client writes this session; \
M-x pyagentd-take-over")))))

(defun pyagentd-viewing-check (&optional otherwise)
  "Signal a `user-error' that helps if nothing can be written in this buffer.
OTHERWISE says what else can be done, besides taking over."
  (when buffer-read-only
    (user-error
     "%s cannot be written: %s"
     (or pyagentd-status-title pyagentd--session-id (buffer-name))
     (cond (pyagentd-viewing-refusal)
           (pyagentd-session-viewing
            (concat "another client writes it; M-x pyagentd-take-over there \
writes here" (if otherwise (concat ", " otherwise) "")))
           (t (substitute-command-keys
               "its buffer is read-only; \\[read-only-mode] there changes \
that"))))))

(defun pyagentd-viewing--command-error (show data context caller)
  "Say why a session is read-only, and what to do; other errors as SHOW does.
DATA, CONTEXT and CALLER are those of `command-error-function'."
  (funcall show
           (if (and (eq (car-safe data) 'buffer-read-only)
                    pyagentd-session-viewing pyagentd-viewing--locked)
               (list 'user-error
                     (or pyagentd-viewing-refusal
                         "Another client writes this session; \
M-x pyagentd-take-over writes here"))
             data)
           context caller))

(add-function :around command-error-function #'pyagentd-viewing--command-error)

(add-hook 'pyagentd-session-before-write-hook
          #'pyagentd-viewing--before-write)

(provide 'pyagentd-viewing)
;;; pyagentd-viewing.el ends here

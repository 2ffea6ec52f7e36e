;;; pyagentd-list.el --- List sessions -*- lexical-binding: t; -*-

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

;; The sessions and agents the daemon knows, newest first.

;;; Code:

(require 'parse-time)
(require 'tabulated-list)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-rpc)

(defvar pyagentd-list-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-list-visit)
    (define-key map (kbd "o") #'pyagentd-list-visit-other-window)
    (define-key map (kbd "k") #'pyagentd-list-abort)
    map)
  "Keymap of `pyagentd-list-mode'.")

(define-derived-mode pyagentd-list-mode tabulated-list-mode "Sessions"
  "Major mode for the list of sessions.

\\{pyagentd-list-mode-map}"
  (setq tabulated-list-format [("Created" 17 t) ("State" 9 t) ("Preset" 14 t)
                               ("Branch" 12 t) ("Session" 0 t)]
        tabulated-list-sort-key '("Created" . t))
  (add-hook 'tabulated-list-revert-hook #'pyagentd-list--refresh nil t)
  (tabulated-list-init-header))

(defun pyagentd-list--time (value)
  "Return VALUE, a time in ISO 8601 or nil, in local time for a column."
  (if-let ((time (and value (ignore-errors (parse-iso8601-time-string value)))))
      (format-time-string "%F %R" time)
    ""))

(defun pyagentd-list--entry (session)
  "Return SESSION, a plist, as an entry of the list."
  (let ((text (lambda (key) (format "%s" (or (plist-get session key) "")))))
    (list (plist-get session :branch-dir)
          (vector (pyagentd-list--time (plist-get session :created))
                  (funcall text :state)
                  (funcall text :preset)
                  (funcall text :branch-name)
                  (concat (and (plist-get session :agent) "  ")
                          (funcall text :session-id)
                          (when-let ((title (plist-get session :title)))
                            (concat "  " (propertize (format "%s" title)
                                                     'face 'shadow))))))))

(defun pyagentd-list--refresh ()
  "Ask the daemon for the sessions."
  (setq tabulated-list-entries
        (mapcar #'pyagentd-list--entry
                (plist-get (pyagentd-rpc-call 'sessions) :sessions))))

(defun pyagentd-list--file ()
  "Return the conversation of the session at point."
  (pyagentd-place-conversation
   (or (tabulated-list-get-id) (user-error "No session here"))))

(defun pyagentd-list-visit ()
  "Visit the session at point."
  (interactive)
  (find-file (pyagentd-list--file)))

(defun pyagentd-list-visit-other-window ()
  "Visit the session at point in another window."
  (interactive)
  (find-file-other-window (pyagentd-list--file)))

(defun pyagentd-list-abort ()
  "Abort the run of the session at point."
  (interactive)
  (pyagentd-rpc-call 'abort (list :branch (or (tabulated-list-get-id)
                                              (user-error "No session here"))))
  (revert-buffer))

;;;###autoload
(defun pyagentd-list-sessions ()
  "List the sessions and their agents."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd sessions*")))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-list-mode)
        (pyagentd-list-mode))
      (pyagentd-list--refresh)
      (tabulated-list-print t))
    (pop-to-buffer-same-window buffer)))

(provide 'pyagentd-list)
;;; pyagentd-list.el ends here

;;; pyagentd-spawned.el --- Buffers of agents that were spawned -*- lexical-binding: t; -*-

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

;; An agent that a session in Emacs spawns gets a buffer, so that it can be
;; looked at while it works.  Two hundred agents must not cost Emacs two
;; hundred buffers: a few get one, it is attached when it is displayed, and
;; it goes with its agent if nobody has looked at it.  Everything else is
;; opened by visiting the file.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-display)
(require 'pyagentd-sync)

(defconst pyagentd-spawned--most 10
  "How many agents have a buffer that nobody asked for.")

(defvar pyagentd-spawned--hidden nil
  "Alist of the buffers that were not displayed yet: buffer and (PARENT . ID).
PARENT is the buffer of the session that waits for the agent ID.")

(defun pyagentd-spawned--begun (agent)
  "Make a buffer for AGENT, a plist, which the current buffer's session spawned."
  (let ((file (pyagentd-place-conversation (plist-get agent :branch-dir))))
    (when (and (< (length pyagentd-spawned--hidden) pyagentd-spawned--most)
               (file-exists-p file)
               (not (find-buffer-visiting file)))
      (push (cons (pyagentd-spawned--open file)
                  (cons (current-buffer) (plist-get agent :id)))
            pyagentd-spawned--hidden))))

(defun pyagentd-spawned--open (file)
  "Return a new buffer that views FILE once it is displayed."
  (let ((buffer (find-file-noselect file t)))
    (with-current-buffer buffer
      (setq pyagentd-attach-viewer 'hidden)
      ;; Else visiting it asks whether to read the file again.
      (clear-visited-file-modtime)
      (pyagentd-viewing-set t)
      (add-hook 'window-buffer-change-functions #'pyagentd-spawned--displayed
                nil t)
      (add-hook 'kill-buffer-hook #'pyagentd-spawned--forget nil t))
    buffer))

(defun pyagentd-spawned--displayed (window)
  "Follow the agent in the buffer of WINDOW from now on."
  (with-current-buffer (window-buffer window)
    (when (eq pyagentd-attach-viewer 'hidden)
      (setq pyagentd-attach-viewer t)
      (remove-hook 'window-buffer-change-functions #'pyagentd-spawned--displayed
                   t)
      (pyagentd-spawned--forget)
      (pyagentd-connect--later (current-buffer)))))

(defun pyagentd-spawned--forget ()
  "Let the user have the current buffer for good."
  (setq pyagentd-spawned--hidden
        (assq-delete-all (current-buffer) pyagentd-spawned--hidden)))

(defun pyagentd-spawned--tidy ()
  "Kill the buffers of agents that have ended and that nobody looked at."
  (pcase-dolist (`(,buffer . (,parent . ,id)) pyagentd-spawned--hidden)
    (unless (and (buffer-live-p parent)
                 (with-current-buffer parent
                   (or (assoc id pyagentd-overlay--table)
                       (assoc id pyagentd-overlay--background))))
      (setq pyagentd-spawned--hidden
            (assq-delete-all buffer pyagentd-spawned--hidden))
      (when (buffer-live-p buffer)
        (kill-buffer buffer)))))

(add-hook 'pyagentd-overlay-begun-functions #'pyagentd-spawned--begun)
(add-hook 'pyagentd-overlay-changed-hook #'pyagentd-spawned--tidy)

(provide 'pyagentd-spawned)
;;; pyagentd-spawned.el ends here

;;; pyagentd-pending.el --- A session that is being made -*- lexical-binding: t; -*-

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

;; Who makes a session can type at once.  The first prompt is typed into a
;; buffer without a file, and that same buffer visits the conversation when
;; the daemon has made it: no window changes under the user's fingers, and
;; point, undo and text stay.  What was sent meanwhile is sent then.  If no
;; session can be made the header line says why, and sending tries again.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-later)
(require 'pyagentd-visit)
(require 'pyagentd-session)
(require 'pyagentd-buffer-name)
(require 'pyagentd-status)
(require 'pyagentd-silent)
(require 'pyagentd-chat)

(defvar-local pyagentd-pending--request nil
  "Arguments of `create-session', of the session that is being made.")
(defvar-local pyagentd-pending--then nil
  "Function to be called in this buffer once there is a session, or nil.")
(defvar-local pyagentd-pending--end nil
  "Marker at the end of what is to be sent once there is a session, or nil.")
(defvar-local pyagentd-pending--trouble nil
  "Why there is no session, a sentence; nil while it is being made.")

(defvar pyagentd-pending-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c RET") #'pyagentd-pending-send)
    (define-key map (kbd "C-c C-k") #'pyagentd-pending-abort)
    map)
  "Keymap of buffers whose session is being made.")

(define-minor-mode pyagentd-pending-mode
  "Minor mode of buffers whose session is being made.
What is typed is its first prompt.

\\{pyagentd-pending-mode-map}"
  :lighter " Agent…"
  :interactive nil
  (when pyagentd-pending-mode
    (setq-local header-line-format '(:eval (pyagentd-pending--line))
                buffer-offer-save t
                word-wrap t)))

(dolist (variable '(pyagentd-pending-mode pyagentd-pending--request
                    pyagentd-pending--then pyagentd-pending--end
                    pyagentd-pending--trouble))
  (pyagentd-permanent-local variable))

(defun pyagentd-pending--line ()
  "Return the header line."
  (string-replace
   "%" "%%"
   (concat " " (plist-get pyagentd-pending--request :name) "  "
           (cond (pyagentd-pending--trouble
                  (propertize (substitute-command-keys
                               (format "Session not created: %s  \
\\<pyagentd-pending-mode-map>\\[pyagentd-pending-send] tries again"
                                       pyagentd-pending--trouble))
                              'face 'error))
                 (pyagentd-pending--end
                  (propertize "Waiting..." 'face 'warning))
                 (t (propertize "Creating session…" 'face 'warning))))))

;;;; Making it

(defun pyagentd-pending-make (request &optional then)
  "Have a session made as REQUEST says, and show its conversation at once.
THEN is called in its buffer once there is a session.  One that is being
made just now, as an equal REQUEST said, is shown, not made twice.
Return the buffer."
  (let* ((known (pyagentd-pending--find request))
         (buffer (or known (pyagentd-pending--new request))))
    (pop-to-buffer-same-window buffer)
    (when then
      (setq pyagentd-pending--then then))
    (when (or (not known) pyagentd-pending--trouble)
      (pyagentd-pending--ask))
    buffer))

(defun pyagentd-pending--find (request)
  "Return the buffer of the session that is made as REQUEST says, or nil."
  (seq-find (lambda (buffer)
              (and (buffer-local-value 'pyagentd-pending-mode buffer)
                   (equal request
                          (buffer-local-value 'pyagentd-pending--request
                                              buffer))))
            (buffer-list)))

(defun pyagentd-pending--new (request)
  "Return a new buffer for the session that is to be made as REQUEST says."
  (let* ((name (plist-get request :name))
         (buffer (get-buffer-create
                  (pyagentd-buffer-name--free
                   (if (string-blank-p name) "session" name)))))
    (with-current-buffer buffer
      (let ((buffer-file-name
             (expand-file-name "new/branches/main/session.md"
                               pyagentd-sessions-directory)))
        (pyagentd-visit-major-mode))
      (setq pyagentd-pending--request request)
      (pyagentd-pending-mode)
      (insert pyagentd-prompt-prefix)
      (set-buffer-modified-p nil)
      (setq buffer-undo-list nil))
    buffer))

(defun pyagentd-pending--ask ()
  "Ask the daemon for the session of this buffer."
  (setq pyagentd-pending--trouble nil)
  (force-mode-line-update)
  (let* ((buffer (current-buffer))
         (made (lambda (answer) (pyagentd-pending--made buffer answer))))
    (condition-case err
        (pyagentd-later 'create-session pyagentd-pending--request made nil
                        (pyagentd-later-back #'pyagentd-pending--failed)
                        ;; Also when it took long: now there is one.
                        made)
      ((error quit) (pyagentd-pending--failed err)))))

(defun pyagentd-pending--failed (err)
  "Show that ERR, a list (SYMBOL . DATA), kept the session from being made."
  (when pyagentd-pending-mode
    (setq pyagentd-pending--trouble
          (string-trim (pyagentd-error-text err)))
    (force-mode-line-update)
    (message "Session not created: %s" pyagentd-pending--trouble)))

(defun pyagentd-pending--made (buffer session)
  "Let BUFFER visit the conversation of SESSION, an answer of the daemon."
  (if (and (buffer-live-p buffer)
           (buffer-local-value 'pyagentd-pending-mode buffer))
      (with-current-buffer buffer
        (pyagentd-pending--visit session)
        (when pyagentd-pending--then
          (funcall pyagentd-pending--then))
        (when pyagentd-pending--end
          (let ((end (marker-position pyagentd-pending--end)))
            (setq pyagentd-silent--end pyagentd-pending--end
                  pyagentd-pending--end nil)
            (pyagentd-chat--send-attached end))))
    (message "The session is in %s"
             (abbreviate-file-name (plist-get session :file)))))

(defun pyagentd-pending--visit (session)
  "Let this buffer visit the conversation of SESSION, and keep its text."
  (let ((typed (buffer-modified-p))
        (undo buffer-undo-list)
        (change-major-mode-with-file-name nil))
    (pyagentd-pending-mode -1)
    (kill-local-variable 'buffer-offer-save)
    (setq pyagentd-status-title (plist-get session :title))
    (set-visited-file-name (plist-get session :file) t t)
    (set-visited-file-modtime)
    ;; The file is empty.
    (unless typed
      (with-silent-modifications (erase-buffer)))
    (run-hooks 'find-file-hook)
    (if (not typed) (goto-char (point-max))
      (setq buffer-undo-list undo)
      (set-buffer-modified-p t)
      (pyagentd-autosave-touch))))

;;;; Sending

(defun pyagentd-pending-send ()
  "Send the prompt as soon as the session is created."
  (interactive nil pyagentd-pending-mode)
  (unless pyagentd-pending--end
    (goto-char (point-max))
    (skip-chars-backward " \t\n")
    (when (<= (point) (length pyagentd-prompt-prefix))
      (goto-char (point-max))
      (user-error "Nothing to send"))
    (delete-region (point) (point-max))
    (setq pyagentd-pending--end (point-marker))
    (insert "\n\n" pyagentd-prompt-prefix))
  (if pyagentd-pending--trouble
      (pyagentd-pending--ask)
    (force-mode-line-update)
    (message "Will be sent once the session is created")))

(defun pyagentd-pending-abort ()
  "Do not send the prompt once the session is created."
  (interactive nil pyagentd-pending-mode)
  (unless pyagentd-pending--end
    (user-error "Nothing is waiting to be sent"))
  (setq pyagentd-pending--end nil)
  (force-mode-line-update))

(provide 'pyagentd-pending)
;;; pyagentd-pending.el ends here

;;; pyagentd-return.el --- Come back to a session -*- lexical-binding: t; -*-

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

;; Bookmarks of sessions, and sessions and lists in a desktop that is saved
;; (`desktop-save-mode').  A bookmark finds its session also after the
;; directory has moved, by its id, and its place by the prompt it is in.

;;; Code:

(require 'bookmark)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-rpc)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-turns)

(defvar desktop-save-buffer)

;;;; Bookmarks

(defun pyagentd-return--prompt ()
  "Return the prompt at point or before it, nil if there is none."
  (when-let ((prompt (car (last (seq-take-while
                                 (lambda (prompt) (<= (car prompt) (point)))
                                 (pyagentd-turns-prompts))))))
    (buffer-substring-no-properties
     (car prompt) (min (cdr prompt) (+ (car prompt) 200)))))

(defun pyagentd-return-record ()
  "Return a bookmark of this place; for `bookmark-make-record-function'."
  (let ((prompt (pyagentd-return--prompt)))
    `(,(concat (or pyagentd-status-title pyagentd--session-id)
               (if prompt
                   (concat ": " (car (split-string prompt "\n")))
                 ""))
      ,@(bookmark-make-record-default)
      (session-id . ,pyagentd--session-id)
      (branch-name . ,pyagentd--branch-name)
      (prompt . ,prompt)
      (handler . pyagentd-return-jump))))

(defun pyagentd-return--file (bookmark)
  "Return the file of the session of BOOKMARK, wherever it is now."
  (let ((file (bookmark-get-filename bookmark)))
    (if (file-exists-p file) file
      (or (seq-find #'file-exists-p
                    (list (expand-file-name
                           (format "%s/branches/%s/session.md"
                                   (bookmark-prop-get bookmark 'session-id)
                                   (bookmark-prop-get bookmark 'branch-name))
                           pyagentd-sessions-directory)))
          (user-error "%s is gone"
                      (bookmark-prop-get bookmark 'session-id))))))

;;;###autoload
(defun pyagentd-return-jump (bookmark)
  "Go to the place in a session that BOOKMARK is about."
  (let ((prompt (bookmark-prop-get bookmark 'prompt)))
    (bookmark-default-handler
     `("" (filename . ,(pyagentd-return--file bookmark))
       ,@(seq-filter (lambda (pair)
                       (memq (car-safe pair) '(front-context-string
                                               rear-context-string position)))
                     (bookmark-get-bookmark-record bookmark))))
    (when (and prompt (not (equal prompt (pyagentd-return--prompt))))
      (goto-char (point-min))
      (when (search-forward prompt nil t)
        (goto-char (match-beginning 0))))))

(add-to-list 'pyagentd-session-settings
             '(bookmark-make-record-function . pyagentd-return-record))

;;;; Desktop

(defvar desktop-buffer-major-mode)

;;;###autoload
(defun pyagentd-return-list (_file name _misc)
  "Make the list that was in the buffer NAME; for a desktop that is restored.
It is filled if a daemon runs, else when it is fetched again."
  (when (autoloadp (symbol-function desktop-buffer-major-mode))
    (autoload-do-load (symbol-function desktop-buffer-major-mode)))
  (with-current-buffer (get-buffer-create name)
    (funcall desktop-buffer-major-mode)
    (when (pyagentd-rpc-connect)
      (revert-buffer))
    (current-buffer)))

(autoload 'pyagentd-sessions-mode "pyagentd-sessions" nil t)
(autoload 'pyagentd-asks-mode "pyagentd-asks" nil t)

(defun pyagentd-return--saved-p ()
  "Let a desktop save this list, though it visits no file."
  (when (memq major-mode '(pyagentd-sessions-mode pyagentd-asks-mode))
    (setq-local desktop-save-buffer t)))

(defun pyagentd-return--writable ()
  "Let sessions be written to again that were only looked at in the last Emacs.
Whoever else writes now, the daemon says."
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (when (and buffer-read-only (not pyagentd-session-viewing)
                 (file-writable-p buffer-file-name))
        (setq buffer-read-only nil)))))

(add-hook 'after-change-major-mode-hook #'pyagentd-return--saved-p)
(add-hook 'desktop-after-read-hook #'pyagentd-return--writable)

;; Visiting the file has turned these on where they are due.
(add-to-list 'desktop-minor-mode-handlers '(pyagentd-mode . ignore))
(add-to-list 'desktop-minor-mode-handlers '(pyagentd-chips-mode . ignore))

;;;###autoload
(progn
  (add-to-list 'desktop-buffer-mode-handlers
               '(pyagentd-sessions-mode . pyagentd-return-list))
  (add-to-list 'desktop-buffer-mode-handlers
               '(pyagentd-asks-mode . pyagentd-return-list)))

(provide 'pyagentd-return)
;;; pyagentd-return.el ends here

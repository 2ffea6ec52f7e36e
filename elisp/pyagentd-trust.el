;;; pyagentd-trust.el --- Trust the presets of a project -*- lexical-binding: t; -*-

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

;; A preset says what an agent may do.  One that comes with a project, or
;; with a session in a checkout, does not count before its user has read it
;; and said so; that holds for the text that was shown, and is asked again
;; for another one.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-here)
(require 'pyagentd-session)

(declare-function pyagentd--project-root "pyagentd")

(defun pyagentd-trust-with-root (function)
  "Call FUNCTION with the directory of the project here.
That is the project of the session, if in one, which the daemon is asked;
FUNCTION is called in this buffer then."
  (if-let ((here (ignore-errors (pyagentd-here))))
      (pyagentd-later-here
       'grants (list :branch (plist-get here :branch))
       (lambda (answer)
         (funcall function (or (plist-get answer :root)
                               (pyagentd--project-root)))))
    (funcall function (pyagentd--project-root))))

(defun pyagentd-trust--untrusted (answer)
  "Return the presets in ANSWER that await trust, plists with :text.
Their other keys are :name, :source, :hash and, of a broken one, :error."
  (mapcar #'pyagentd-trust--read (plist-get answer :untrusted)))

(defun pyagentd-trust--read (preset)
  "Return PRESET, a plist, with its :text.
Signal an error unless it is the text that its :hash is of."
  (let ((name (plist-get preset :name))
        (file (plist-get preset :source)))
    (with-temp-buffer
      (set-buffer-multibyte nil)
      (insert-file-contents-literally file)
      (unless (equal (plist-get preset :hash)
                     (secure-hash 'sha256 (concat (encode-coding-string name 'utf-8)
                                                  "\0" (buffer-string))))
        (user-error "%s has changed just now; look again" file))
      (append preset (list :text (decode-coding-string (buffer-string)
                                                       'utf-8 t))))))

(defun pyagentd-trust--insert (preset)
  "Insert the text of PRESET, a plist, under its name."
  (insert (propertize (plist-get preset :name) 'face 'pyagentd-heading)
          (propertize (format "  %s\n" (abbreviate-file-name
                                        (plist-get preset :source)))
                      'face 'shadow))
  (when-let ((error (plist-get preset :error)))
    (insert (propertize (format "Cannot be used: %s\n" error) 'face 'error)))
  (insert (plist-get preset :text) "\n" pyagentd-rule "\n"))

(defun pyagentd-trust--buffer (root presets)
  "Return a buffer with the texts of PRESETS of the project ROOT."
  (with-current-buffer (get-buffer-create "*pyagentd presets*")
    (special-mode)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert (format "Presets of %s that you have not trusted yet.\n\
They say which tools an agent has, and what it may read, write and run.\n\n"
                      (abbreviate-file-name root)))
      (mapc #'pyagentd-trust--insert presets))
    (goto-char (point-min))
    (current-buffer)))

(defun pyagentd-trust-presets ()
  "Show the presets of this project, and ask whether to trust them.
Only the texts that were shown are trusted."
  (interactive)
  (pyagentd-trust-with-root
   (lambda (root)
     (pyagentd-later-asking
      'presets (list :root root)
      (lambda (answer)
        (pyagentd-trust--ask
         root
         (or (pyagentd-trust--untrusted answer)
             (user-error "No preset of %s needs to be trusted"
                         (abbreviate-file-name root)))))))))

(defun pyagentd-trust--ask (root presets)
  "Show PRESETS of the project ROOT, and ask whether to use them."
  (let* ((usable (seq-remove (lambda (preset) (plist-get preset :error))
                             presets))
         (names (mapconcat (lambda (preset) (plist-get preset :name))
                           usable ", ")))
    (save-window-excursion
      (pop-to-buffer (pyagentd-trust--buffer root presets))
      (cond ((null usable)
             (read-char "None of them can be used; press any key"))
            ((yes-or-no-p (format "Allow agents to be made from %s? " names))
             (pyagentd-later
              'trust-presets
              (list :root root
                    :hashes (mapcar (lambda (preset) (plist-get preset :hash))
                                    usable))
              (lambda (_) (message "Trusted: %s" names))))))))

;;;; Sessions

(defun pyagentd-trust--session-root (directory)
  "Return the branch at the root of the tree that DIRECTORY belongs to."
  (if (string-match "\\`\\(.*/branches/[^/]+\\)/agents/" directory)
      (match-string 1 directory)
    directory))

(defun pyagentd-trust-session ()
  "Show the preset.md of this session, and ask whether to trust it.
That is for a session that came from elsewhere, as with a checkout.
Only the text that was shown is trusted."
  (interactive)
  (let* ((branch (pyagentd-trust--session-root
                  (plist-get (pyagentd-here) :branch-dir)))
         (file (pyagentd-place-preset branch))
         sha256)
    (save-window-excursion
      (with-current-buffer (get-buffer-create "*pyagentd preset*")
        (special-mode)
        (let ((inhibit-read-only t))
          (erase-buffer)
          (insert (with-temp-buffer
                    (set-buffer-multibyte nil)
                    (insert-file-contents-literally file)
                    (setq sha256 (secure-hash 'sha256 (current-buffer)))
                    (decode-coding-string (buffer-string) 'utf-8 t))))
        (goto-char (point-min))
        (pop-to-buffer (current-buffer)))
      (when (y-or-n-p "You have read it; may this session do what it says? ")
        (pyagentd-later
         'trust-session (list :branch branch :sha256 sha256)
         (lambda (_) (message "Trusted: %s" (abbreviate-file-name file))))))))

(provide 'pyagentd-trust)
;;; pyagentd-trust.el ends here

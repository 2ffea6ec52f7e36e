;;; pyagentd-visited.el --- Buffers of files that agents change -*- lexical-binding: t; -*-

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

;; When an agent has changed a file that a buffer visits, the buffer is
;; brought up to date: quietly, with point and modes as they were, and
;; only where the user has changed nothing.

;;; Code:

(require 'pulse)
(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-events)

(defcustom pyagentd-revert-visited t
  "Non-nil means revert buffers of files that an agent has changed.
A buffer with unsaved changes is not reverted, and a message says so.
Buffers in `auto-revert-mode' are left to it."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-pulse-edits t
  "Non-nil means flash visible text that an agent has changed."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defface pyagentd-pulse '((t :inherit pulse-highlight-start-face))
  "Face of text that flashes because an agent changed it."
  :group 'pyagentd)

(defvar-local pyagentd-visited--span nil
  "Where the text has changed while it was read again, (BEG . END) or nil.")

(defvar pyagentd-visited--changed nil
  "Names of files that an agent has changed and no buffer was asked about.")

(defvar pyagentd-visited--timer nil
  "Timer that looks at `pyagentd-visited--changed', or nil.")

(defun pyagentd-visited--on-files (_branch _seq args)
  "Note the files in ARGS, which an agent has changed."
  (when pyagentd-revert-visited
    (pcase-let ((`(,told) args))
      (dolist (path (plist-get told :paths))
        (unless (member path pyagentd-visited--changed)
          (push path pyagentd-visited--changed))))
    (unless pyagentd-visited--timer
      (setq pyagentd-visited--timer
            (run-with-idle-timer
             ;; Within the time that Emacs has been idle already.
             (if-let ((idle (current-idle-time))) (time-add idle 0.1) 0.1)
             nil #'pyagentd-visited-update)))))

(defun pyagentd-visited-update ()
  "Bring the buffers of files that agents have changed up to date."
  (when pyagentd-visited--timer
    (cancel-timer pyagentd-visited--timer))
  (let ((paths (nreverse pyagentd-visited--changed)))
    (setq pyagentd-visited--changed nil
          pyagentd-visited--timer nil)
    (dolist (path paths)
      (when-let ((buffer (pyagentd-visited--buffer path)))
        (with-current-buffer buffer
          (pyagentd-guarded (format "Revert %s" path)
            (pyagentd-visited--update)))))))

(defun pyagentd-visited--buffer (path)
  "Return the buffer that visits PATH, or nil; makes no names true."
  (seq-find (lambda (buffer)
              (with-current-buffer buffer
                (and buffer-file-name
                     (or (equal buffer-file-name path)
                         (equal (expand-file-name (or buffer-file-truename ""))
                                path)))))
            (buffer-list)))

(defun pyagentd-visited--update ()
  "Revert this buffer unless the user has changed it."
  (cond ((or (verify-visited-file-modtime (current-buffer))
             (not (file-exists-p buffer-file-name))
             (bound-and-true-p auto-revert-mode)
             (bound-and-true-p global-auto-revert-mode)))
        ((buffer-modified-p)
         (message "%s: an agent changed the file; your changes are not saved"
                  (buffer-name)))
        (t
         (pyagentd-visited--revert))))

(defun pyagentd-visited--revert ()
  "Read the file of this buffer again, and flash what is another now."
  (let ((inhibit-message t) (message-log-max nil))
    (setq pyagentd-visited--span nil)
    (add-hook 'after-change-functions #'pyagentd-visited--note nil t)
    (unwind-protect (revert-buffer t t t)
      (remove-hook 'after-change-functions #'pyagentd-visited--note t)))
  (when pyagentd-visited--span
    (pyagentd-pulse (car pyagentd-visited--span)
                    (cdr pyagentd-visited--span))))

(defun pyagentd-visited--note (beg end length)
  "Note that the text between BEG and END, LENGTH before, is another now."
  (let ((grown (- end beg length)))
    (setq pyagentd-visited--span
          (pcase pyagentd-visited--span
            ('nil (cons beg end))
            (`(,first . ,last)
             (cons (min first beg)
                   (max end (if (> last beg) (+ last grown) last))))))))

(defun pyagentd-pulse (beg end)
  "Flash the lines from BEG to END, which an agent changed, if they are seen."
  (when (and pyagentd-pulse-edits (get-buffer-window nil 'visible))
    (save-excursion
      (save-restriction
        (widen)
        (let ((first (progn (goto-char (min beg (point-max)))
                            (line-beginning-position)))
              (last (progn (goto-char (min end (point-max)))
                           (if (and (bolp) (> end beg)) (point)
                             (min (point-max) (1+ (line-end-position)))))))
          (pulse-momentary-highlight-region first last 'pyagentd-pulse))))))

(add-hook 'pyagentd-buffers-changed-functions #'pyagentd-pulse)
(pyagentd-events-register 'files #'pyagentd-visited--on-files)

(provide 'pyagentd-visited)
;;; pyagentd-visited.el ends here

;;; pyagentd-ask-diff.el --- Look at a change that is asked for -*- lexical-binding: t; -*-

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

;; The notice shows the beginning of a diff; here it is whole, in a buffer
;; of `diff-mode', or in Ediff with the file before and after.

;;; Code:

(require 'diff-mode)
(require 'ediff)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-ask)
(require 'pyagentd-ask-here)
(require 'pyagentd-ask-keys)
(require 'pyagentd-answer)

(defvar pyagentd-ask-diff-mode-map
  (let ((map (pyagentd-ask-keys-define (make-sparse-keymap))))
    (define-key map "=" nil)
    map)
  "Keymap of `pyagentd-ask-diff-mode'.")

(define-derived-mode pyagentd-ask-diff-mode diff-mode "Asked"
  "Major mode for a change that is asked for.

\\{pyagentd-ask-diff-mode-map}"
  ;; The file is before the change, so its colours are those of the hunk.
  (setq-local diff-font-lock-syntax 'hunk-only)
  (setq buffer-read-only t)
  ;; `diff-mode' gives letters to hunks where the text is read-only.
  (push (cons 'buffer-read-only pyagentd-ask-diff-mode-map)
        minor-mode-overriding-map-alist))

;;;###autoload
(defun pyagentd-ask-diff (&optional ask)
  "Show the change that ASK, or the question here, proposes as a diff.
With ASK, from Lisp, its window is not selected."
  (interactive)
  (let* ((selected (null ask))
         (ask (or ask (pyagentd-answer-current)))
         (preview (plist-get ask :preview)))
    (unless (and preview (pyagentd-ask-diff-p preview))
      (user-error "This changes no file"))
    (with-current-buffer (get-buffer-create "*pyagentd diff*")
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert preview "\n"))
      (pyagentd-ask-diff-mode)
      (pyagentd-ask-here-set
       ask (pyagentd-ask-keys-header ask '(pyagentd-ask-diff))
       " (answered)   q close" t)
      (goto-char (point-min))
      (set-buffer-modified-p nil)
      (pyagentd-ask-here-display selected))))

;;;; Ediff

(defun pyagentd-ask-diff--before (path)
  "Return the text of the file PATH, nil if there is none.
Where it is open that is the text of its buffer, which is what is changed."
  (if-let ((buffer (find-buffer-visiting path)))
      (with-current-buffer buffer
        (save-restriction
          (widen)
          (buffer-substring-no-properties (point-min) (point-max))))
    (when (file-exists-p path)
      (with-temp-buffer
        (insert-file-contents path)
        (buffer-string)))))

(defun pyagentd-ask-diff--after (ask before)
  "Return the text that a file with the text BEFORE has after ASK, or nil."
  (let* ((arguments (pyagentd-ask-arguments ask))
         (old (and arguments (gethash "old_string" arguments)))
         (new (and arguments (gethash "new_string" arguments))))
    (cond ((null arguments) nil)
          ((stringp (gethash "content" arguments))
           (gethash "content" arguments))
          ((not (and before (stringp old) (stringp new)
                     (not (string-empty-p old))
                     (string-search old before)))
           nil)
          ((eq t (gethash "replace_all" arguments))
           (string-replace old new before))
          (t (let ((place (string-search old before)))
               (concat (substring before 0 place) new
                       (substring before (+ place (length old)))))))))

(defun pyagentd-ask-diff--buffer (name path text)
  "Return a buffer called NAME with TEXT, in the mode of the file PATH."
  (with-current-buffer (generate-new-buffer name)
    (insert text)
    (delay-mode-hooks
      (let ((buffer-file-name path) (enable-local-variables nil))
        (set-auto-mode)))
    (set-buffer-modified-p nil)
    (setq buffer-read-only t)
    (current-buffer)))

;;;###autoload
(defun pyagentd-ask-ediff ()
  "Compare the file with the proposed change in Ediff.
Quitting changes nothing; the question is still to be answered."
  (interactive)
  (let* ((ask (pyagentd-answer-current))
         (path (or (plist-get ask :path)
                   (user-error "This changes no file")))
         (before (pyagentd-ask-diff--before path))
         (after (or (pyagentd-ask-diff--after ask before)
                    (user-error "Cannot say what %s will be; see the diff"
                                path)))
         (name (file-name-nondirectory path))
         (windows (current-window-configuration))
         (buffers (list (pyagentd-ask-diff--buffer (format "*%s now*" name)
                                                   path (or before ""))
                        (pyagentd-ask-diff--buffer (format "*%s then*" name)
                                                   path after))))
    (apply #'ediff-buffers
           (append buffers
                   (list (list (lambda ()
                                 (add-hook 'ediff-quit-hook
                                           (pyagentd-ask-diff--leave
                                            buffers windows)
                                           t t))))))))

(defun pyagentd-ask-diff--leave (buffers windows)
  "Return a function that kills BUFFERS and puts the WINDOWS back."
  (lambda ()
    (mapc #'kill-buffer buffers)
    (set-window-configuration windows)))

(provide 'pyagentd-ask-diff)
;;; pyagentd-ask-diff.el ends here

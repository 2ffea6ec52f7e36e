;;; pyagentd-write.el --- The text gets into the file, or the user learns why not -*- lexical-binding: t; -*-

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

;; A save writes the text and its block beside the file and moves that over
;; it, as the daemon does: the file is either its old or its new self,
;; whatever the disk refuses.
;;
;; For five megabytes that takes some 40 ms.  Nobody shall feel that while
;; typing, so the work is in steps, and a save that nobody has asked for
;; gives way to a key between two of them.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-gc)
(require 'pyagentd-block)

(defconst pyagentd-write-coding 'utf-8-unix
  "Coding system of session files.")

(defvar pyagentd-write-gives-way nil
  "Non-nil means that a write stops when there is input.
It throws nil to `pyagentd-write-gives-way' then.")

(defvar-local pyagentd-write--image nil
  "What was computed before a write gave way: (TICK . BYTES).
TICK is the `buffer-chars-modified-tick' of the text it is of.")
(defvar-local pyagentd-write--hash nil
  "The hash computed last: (TICK . SHA256), TICK as above.")

(pyagentd-permanent-local 'pyagentd-write--image 'pyagentd-write--hash)

;;;; Bytes

(defun pyagentd-write--step ()
  "Give way to input if that is asked for."
  (when (and pyagentd-write-gives-way (input-pending-p))
    (throw 'pyagentd-write-gives-way nil)))

(defun pyagentd-write--bytes ()
  "Return the whole text of the buffer in UTF-8.
Emacs holds text so already: to copy that takes a third of the time of
encoding it, and gives the same, raw bytes included."
  (let ((text (save-restriction
                (widen)
                (buffer-substring-no-properties (point-min) (point-max)))))
    (with-suppressed-warnings ((obsolete string-as-unibyte))
      (if (fboundp 'string-as-unibyte)  ; obsolete since Emacs 26, without a match
          (string-as-unibyte text)
        (encode-coding-string text 'utf-8-emacs-unix)))))

(defun pyagentd-write--current-bytes ()
  "Return the bytes of the text, computed once for a text."
  (let ((tick (buffer-chars-modified-tick)))
    (unless (eql tick (car pyagentd-write--image))
      (setq pyagentd-write--image (cons tick (pyagentd-write--bytes))))
    (cdr pyagentd-write--image)))

(defun pyagentd-write--sha256 (bytes)
  "Return the SHA-256 of BYTES, those of the text, computed once for a text."
  (let ((tick (buffer-chars-modified-tick)))
    (unless (eql tick (car pyagentd-write--hash))
      (setq pyagentd-write--hash (cons tick (secure-hash 'sha256 bytes))))
    (cdr pyagentd-write--hash)))

(defun pyagentd-write-sha256 ()
  "Return the SHA-256 of the text of the buffer, as the daemon computes it."
  (if (eql (buffer-chars-modified-tick) (car pyagentd-write--hash))
      (cdr pyagentd-write--hash)
    (pyagentd-gc-postpone)
    (pyagentd-write--sha256 (pyagentd-write--bytes))))

;;;; Disk

(defun pyagentd-write (file)
  "Write text and block of the current buffer to FILE.
Return the SHA-256 of the text.  Signal a `file-error' if the disk
refuses; FILE is untouched then.  A symbolic link in its place is
replaced."
  (pyagentd-gc-postpone)                ; it makes megabytes of garbage
  (pyagentd-write--step)
  (when pyagentd-write-gives-way
    (pyagentd-gc-make-room (* 2 (position-bytes (point-max))))
    (pyagentd-write--step))
  (let* ((bytes (pyagentd-write--current-bytes))
         (sha256 (progn (pyagentd-write--step) (pyagentd-write--sha256 bytes)))
         (block (progn (pyagentd-write--step) (pyagentd-block-text))))
    (pyagentd-write--step)
    (condition-case err
        (pyagentd-write--replace file bytes block)
      (file-error (pyagentd-write--refused file (pyagentd-write--cause err))))
    (setq pyagentd-write--image nil)
    sha256))

(defun pyagentd-write--replace (file bytes block)
  "Let FILE hold BYTES, and BLOCK after an empty line unless it is empty."
  (let ((mode (pyagentd-write--mode file))
        (temporary (pyagentd-write--beside file)))
    (unwind-protect
        (progn
          (when mode (set-file-modes temporary mode))
          (pyagentd-write--append bytes temporary)
          (unless (string-empty-p block)
            (pyagentd-write--append
             (encode-coding-string (concat "\n\n" block)
                                   pyagentd-write-coding)
             temporary))
          (rename-file temporary file t)
          (setq temporary nil))
      (when temporary (ignore-errors (delete-file temporary))))))

(defun pyagentd-write--mode (file)
  "Return the permissions of FILE, nil if there is none.
One that may not be written is not replaced either."
  (when-let ((mode (file-modes file)))
    (unless (or (file-writable-p file)
                ;; Then the directory says why, and better.
                (not (file-writable-p (file-name-directory file))))
      (signal 'file-error (list "Writing" "Permission denied" file)))
    mode))

(defun pyagentd-write--beside (file)
  "Make an empty file beside FILE, hidden and for its owner alone."
  (make-temp-file (expand-file-name
                   (concat "." (file-name-nondirectory file) ".")
                   (file-name-directory file))
                  nil ".tmp"))

(defun pyagentd-write--append (bytes file)
  "Add BYTES to FILE."
  (let ((coding-system-for-write 'no-conversion)
        (write-region-inhibit-fsync t)
        (write-region-annotate-functions nil)
        (write-region-post-annotation-function nil))
    (write-region bytes nil file t 'quiet)))

;;;; What went wrong

(defun pyagentd-write--cause (err)
  "Return what the operating system said in ERR, a `file-error'."
  (let ((texts (seq-filter #'stringp (cdr err))))
    (or (nth 1 texts) (car texts) (error-message-string err))))

(defun pyagentd-write--refused (file cause)
  "Signal that FILE cannot be written because of CAUSE, a string."
  (signal 'file-error (list "Not saved" cause file)))

(defun pyagentd-write-trouble (err)
  "Return ERR, a `file-error' from `pyagentd-write', as one line for people."
  (pcase err
    (`(,_ ,(and what (pred stringp)) ,(and cause (pred stringp))
          ,(and file (pred stringp)))
     (format "%s: %s, %s" what cause (abbreviate-file-name file)))
    (_ (error-message-string err))))

(provide 'pyagentd-write)
;;; pyagentd-write.el ends here

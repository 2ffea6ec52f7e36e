;;; pyagentd-tools-file.el --- Files and places for the tools of Emacs -*- lexical-binding: t; -*-

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

;; A tool looks at a file where it is open.  One that is not is visited for
;; the moment, without its local variables, without hooks, and nobody is
;; asked anything.  It is one of this machine, regular, and not large.

;;; Code:

(require 'seq)
(require 'subr-x)

(defvar tramp-mode)

(defconst pyagentd-tools-file-most 60
  "How many places a tool tells.")

(defconst pyagentd-tools-file-largest (* 5 1024 1024)
  "Bytes of the largest file that is visited for a tool.")

(defconst pyagentd-tools-file--modes
  '(doc-view-mode doc-view-mode-maybe pdf-view-mode archive-mode tar-mode
    image-mode)
  "Major modes that have programs or libraries decode a file; not for tools.")

;;;; Files

(defun pyagentd-tools-file-in (file function)
  "Return the value of FUNCTION, called in a buffer with FILE.
Buffers that were not there before are gone afterwards."
  (let ((before (buffer-list))
        (inhibit-interaction t)
        (find-file-hook nil))
    (unwind-protect
        (condition-case nil
            (with-current-buffer (pyagentd-tools-file--buffer file)
              (let ((tramp-mode (and (bound-and-true-p tramp-mode)
                                     (file-remote-p default-directory))))
                (save-excursion
                  (save-restriction
                    (widen)
                    (funcall function)))))
          (inhibited-interaction
           (error "Emacs would have to ask the user something for this, such \
as for a TAGS file; use Grep")))
      (dolist (buffer (buffer-list))
        (unless (or (memq buffer before) (not (buffer-file-name buffer))
                    (buffer-modified-p buffer))
          (kill-buffer buffer))))))

(defun pyagentd-tools-file--buffer (file)
  "Return the buffer that has FILE open, or one that visits it.
A file of another machine is not visited, nor one that may block Emacs."
  (or (let ((file-name-handler-alist nil))
        (find-buffer-visiting file))
      (and (file-remote-p file)
           (error "%s is on another machine and not open; ask the user to \
open it" file))
      (let ((file-name-handler-alist nil))
        (cond ((not (file-exists-p file)) (error "There is no file %s" file))
              ((not (file-regular-p file)) (error "%s is not a file" file))
              ((not (file-readable-p file)) (error "%s is unreadable" file))
              ((> (file-attribute-size (file-attributes file))
                  pyagentd-tools-file-largest)
               (error "%s is larger than %s; use Grep" file
                      (file-size-human-readable
                       pyagentd-tools-file-largest))))
        (pyagentd-tools-file--visit file))))

(defun pyagentd-tools-file--visit (file)
  "Return a new buffer that visits FILE; nothing the user has set up runs."
  ;; Where the variables below are not local, all buffers have their values.
  (with-temp-buffer
    (let ((delay-mode-hooks t)
          (find-file-hook nil)
          (enable-local-variables nil)
          (enable-dir-local-variables nil)
          (inhibit-message t)
          (magic-mode-alist nil)
          (magic-fallback-mode-alist nil)
          (auto-mode-alist
           (seq-remove (pcase-lambda (`(,_ . ,mode))
                         (memq (if (consp mode) (car mode) mode)
                               pyagentd-tools-file--modes))
                       auto-mode-alist)))
      (find-file-noselect file t))))

(defun pyagentd-tools-file-line (position)
  "Return the place at POSITION of this buffer, with the text of its line."
  (save-excursion
    (goto-char position)
    (list :file buffer-file-name
          :line (line-number-at-pos nil t)
          :text (string-trim (buffer-substring-no-properties
                              (line-beginning-position) (line-end-position))))))

(defun pyagentd-tools-file-places (places none)
  "Return PLACES as the result of a tool, or the text NONE."
  (if (null places) none
    (list :places (vconcat (seq-take places pyagentd-tools-file-most))
          :text (if (> (length places) pyagentd-tools-file-most)
                    (format "%d places, of these the first %d:"
                            (length places) pyagentd-tools-file-most)
                  ""))))

(provide 'pyagentd-tools-file)
;;; pyagentd-tools-file.el ends here

;;; pyagentd-buffers.el --- Files that are open, for agents -*- lexical-binding: t; -*-

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

;; An agent that reads a file which is open with unsaved changes sees the
;; buffer, and what it writes goes through the buffer: one step of undo,
;; point and markers kept, hooks run, encoding kept, saved.  The daemon has
;; decided that it may before anything is asked here.
;;
;; Buffers that are not the text of their file (pictures, archives, what is
;; decrypted or uncompressed when it is visited) count as not open.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-offer)

(defvar pyagentd--session-dir)

(defvar pyagentd-buffers-changed-functions nil
  "Functions called after an agent changed a passage of the current buffer.
They get its beginning and end, before the buffer is saved.")

(defconst pyagentd-buffers--largest 1000000
  "How many characters a buffer may have that agents see.
To tell more would take longer than Emacs may stand still.")

;;;; Which buffer

(defun pyagentd-buffers--visiting (path)
  "Return the buffer that visits the file PATH, a true name, or nil."
  (seq-find (lambda (buffer)
              (with-current-buffer buffer
                (and buffer-file-name
                     (equal path (pyagentd-buffers--true-name)))))
            (buffer-list)))

(defun pyagentd-buffers--true-name ()
  "Return the true name of the file in this buffer, without a look at it."
  (if (file-remote-p buffer-file-name)
      (or buffer-file-truename buffer-file-name)
    (expand-file-name (or buffer-file-truename buffer-file-name))))

(defun pyagentd-buffers--odd ()
  "Return why this buffer is not the text of its file, or nil."
  (cond ((bound-and-true-p pyagentd--session-dir)
         "it is a conversation of pyagentd")
        ((and (not (file-remote-p buffer-file-name))
              (find-file-name-handler buffer-file-name 'write-region))
         "its file is encrypted or compressed")
        ((or write-contents-functions buffer-file-format
             (derived-mode-p 'image-mode 'archive-mode 'tar-mode 'hexl-mode
                             'doc-view-mode)
             (not enable-multibyte-characters))
         "the buffer is not the text of its file")
        ((> (buffer-size) pyagentd-buffers--largest)
         "the buffer is too large")
        ((save-excursion
           (save-restriction
             (widen)
             (goto-char (point-min))
             (re-search-forward "[\x3fff80-\x3fffff]" nil t)))
         "it has bytes that are no text")))

(defun pyagentd-buffers--stale ()
  "Return why the text of this buffer may not be written, or nil."
  (cond (buffer-read-only "the buffer is read-only")
        ((and (not (file-remote-p buffer-file-name))
              (not (verify-visited-file-modtime (current-buffer))))
         "the file was changed on disk as well")))

;;;; Look

(defun pyagentd-buffers--on-look (facts _id reply)
  "Tell what is shown of the file in FACTS by calling REPLY."
  (let ((buffer (pyagentd-buffers--visiting (plist-get facts :path))))
    (funcall reply
             (and buffer
                  (with-current-buffer buffer
                    (let ((whole (eq t (plist-get facts :whole))))
                      (and (or whole (buffer-modified-p)
                               (file-remote-p buffer-file-name))
                           (pyagentd-buffers--told whole))))))))

(defun pyagentd-buffers--told (whole)
  "Return what the daemon is told of this buffer; with its text if WHOLE.
That is nil if the file on disk is as good."
  (let* ((odd (pyagentd-buffers--odd))
         (trouble (or odd (pyagentd-buffers--stale)))
         (modified (buffer-modified-p)))
    (when (or modified (not trouble) (file-remote-p buffer-file-name))
      (append
       (list :buffer (buffer-name)
             :version (number-to-string (buffer-chars-modified-tick))
             :modified (if modified t :json-false)
             :crlf (if (eql 1 (coding-system-eol-type
                               buffer-file-coding-system))
                       t :json-false))
       (and trouble (list :trouble trouble))
       (and (or whole modified) (not odd)
            (list :text (save-restriction
                          (widen)
                          (buffer-substring-no-properties
                           (point-min) (point-max)))))))))

;;;; Change

(defun pyagentd-buffers--on-change (facts _id reply)
  "Make the change in FACTS and tell REPLY what became of it."
  (let ((buffer (pyagentd-buffers--visiting (plist-get facts :path))))
    (funcall reply
             (if (and buffer
                      (equal (plist-get facts :version)
                             (number-to-string
                              (buffer-chars-modified-tick buffer))))
                 (with-current-buffer buffer
                   (pyagentd-buffers--changed (plist-get facts :path)
                                              (plist-get facts :edits)))
               (list :outcome "outdated")))))

(defun pyagentd-buffers--changed (path edits)
  "Make EDITS in this buffer, which visits PATH, and save it.
Return what became of it; after an error nothing is changed."
  (when-let ((trouble (or (pyagentd-buffers--odd) (pyagentd-buffers--stale))))
    (error "%s" trouble))
  (let ((inhibit-interaction t)
        (group (prepare-change-group))
        (done nil))
    (undo-boundary)
    (activate-change-group group)
    (unwind-protect
        (progn
          (save-excursion
            (save-restriction
              (widen)
              (mapc #'pyagentd-buffers--replace (reverse edits))))
          (prog1 (pyagentd-buffers--saved path)
            (setq done t)))
      (if done (accept-change-group group) (cancel-change-group group))
      (undo-boundary))))

(defun pyagentd-buffers--replace (edit)
  "Make EDIT, a vector of beginning and end, from 0, and text."
  (let ((start (1+ (aref edit 0))))
    (goto-char start)
    (delete-region start (1+ (aref edit 1)))
    (insert (aref edit 2))
    (pyagentd-buffers--check-encoding start (point))
    (run-hook-with-args 'pyagentd-buffers-changed-functions start (point))))

(defun pyagentd-buffers--check-encoding (start end)
  "Signal an error if the file cannot hold the text from START to END."
  (let ((coding buffer-file-coding-system))
    (when-let ((bad (and coding
                         (not (memq (coding-system-base coding)
                                    '(undecided prefer-utf-8 raw-text)))
                         (unencodable-char-position start end coding))))
      (error "The file is %s and cannot hold %S" (coding-system-base coding)
             (char-to-string (char-after bad))))))

(defun pyagentd-buffers--saved (path)
  "Save this buffer, which visits PATH; return the outcome as a plist."
  (let ((remote (file-remote-p buffer-file-name)))
    (cond
     ((and remote (not (file-remote-p buffer-file-name nil t)))
      (list :outcome "done" :saved :json-false
            :reason (format "there is no connection to %s" remote)))
     ;; A link may have been put in the place of the file since.
     ((and (not remote) (not (equal (file-truename buffer-file-name) path)))
      (error "%s is another file by now" buffer-file-name))
     (t
      (let ((save-silently t) (inhibit-message t) (message-log-max nil))
        (save-buffer))
      (if (buffer-modified-p)
          (list :outcome "done" :saved :json-false
                :reason "something in Emacs kept it from being saved")
        (list :outcome "done" :saved t))))))

(pyagentd-offer-register "look" #'pyagentd-buffers--on-look)
(pyagentd-offer-register "change" #'pyagentd-buffers--on-change)

(provide 'pyagentd-buffers)
;;; pyagentd-buffers.el ends here

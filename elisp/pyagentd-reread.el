;;; pyagentd-reread.el --- Take the text of a file that another one wrote -*- lexical-binding: t; -*-

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

;; What another Emacs wrote into the file of a buffer is taken over without
;; anybody noticing but by the new text: only what differs is replaced, and
;; point, mark and windows stay where they are, or at the end if they were
;; there.  The file is read into a buffer of its own first, since the daemon
;; has to agree to its text before it is shown.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-block)
(require 'pyagentd-session)

(defconst pyagentd-reread--step 65536
  "How many characters are compared at once from the end.")

(defvar-local pyagentd-reread-sha256 nil
  "In a buffer made by `pyagentd-reread-load', the SHA-256 of its text.")
(defvar-local pyagentd-reread--modtime nil
  "In such a buffer, the modification time of the file it was read from.")

;;;; Reading

(defun pyagentd-reread-load (file)
  "Return a new buffer with the conversation in FILE, nil if it cannot be read."
  (let ((agent (pyagentd-place-agent-p))
        (buffer (generate-new-buffer (format " *%s on disk*" (buffer-name)) t)))
    (condition-case err
        (with-current-buffer buffer
          (setq pyagentd-reread--modtime
                (file-attribute-modification-time (file-attributes file)))
          (let ((coding-system-for-read 'utf-8))
            (insert-file-contents file))
          (pyagentd-block-strip)
          (setq pyagentd-reread-sha256 (pyagentd-session-body-sha256))
          (when (and (= (buffer-size) 0) (not agent))
            (insert pyagentd-prompt-prefix))
          buffer)
      (file-error
       (kill-buffer buffer)
       (pyagentd-log 'warn "%s" (error-message-string err))))))

;;;; Comparing

(defun pyagentd-reread--head (other)
  "Return with how many equal characters this buffer and OTHER begin."
  (let* ((case-fold-search nil)
         (order (compare-buffer-substrings nil nil nil other nil nil)))
    (if (= order 0) (buffer-size) (1- (abs order)))))

(defun pyagentd-reread--tail (other most)
  "Return with how many equal characters this buffer and OTHER end, at most MOST."
  (let ((case-fold-search nil)
        (step pyagentd-reread--step)
        (end (point-max))
        (other-end (with-current-buffer other (point-max)))
        (length 0))
    (while (> step 0)
      (while (and (<= (+ length step) most)
                  (= 0 (compare-buffer-substrings
                        nil (- end length step) (- end length)
                        other (- other-end length step) (- other-end length))))
        (setq length (+ length step)))
      (setq step (/ step 2)))
    length))

(defun pyagentd-reread-difference (other)
  "Return where this buffer and OTHER differ: (BEG END OTHER-END).
What is between BEG and END here is between BEG and OTHER-END there.
Both are compared whole."
  (save-restriction
    (widen)
    (let* ((other-size (buffer-size other))
           (head (pyagentd-reread--head other))
           (tail (pyagentd-reread--tail
                  other (- (min (buffer-size) other-size) head))))
      (list (1+ head) (- (1+ (buffer-size)) tail)
            (- (1+ other-size) tail)))))

;;;; Replacing

(defun pyagentd-reread--places (beg end)
  "Return functions that put point and windows back after a replacement.
It replaces the text between BEG and END.  Who was at the end of the
text stays there, and who was within keeps its distance to BEG."
  (let* ((size (1+ (buffer-size)))
         (back (lambda (pos go)
                 (cond ((= pos size)
                        (lambda (_) (funcall go (1+ (buffer-size)))))
                       ((< beg pos end)
                        (lambda (new-end) (funcall go (min pos new-end))))))))
    (delq nil
          (cons (funcall back (point) #'goto-char)
                (mapcar (lambda (window)
                          (funcall back (window-point window)
                                   (lambda (pos)
                                     (set-window-point window pos))))
                        (get-buffer-window-list nil nil t))))))

(defun pyagentd-reread-apply (other)
  "Make text and roles of this buffer those of OTHER, and kill OTHER.
OTHER was made by `pyagentd-reread-load'.  The buffer is unmodified then."
  (pcase-let* ((`(,beg ,end ,other-end) (pyagentd-reread-difference other))
               (text (with-current-buffer other
                       (buffer-substring-no-properties beg other-end))))
    (unless (and (= beg end) (string-empty-p text))
      (let ((places (pyagentd-reread--places beg end))
            (inhibit-read-only t)
            (buffer-undo-list t)
            (buffer-file-name nil))     ; else Emacs asks: the file changed
        (save-restriction
          (widen)
          (save-excursion
            (goto-char end)
            ;; First the new text, so that what stood at the end of the old
            ;; one is behind both.
            (insert-before-markers text)
            (delete-region beg end)))
        (mapc (lambda (place) (funcall place other-end)) places))
      (unless (eq buffer-undo-list t)
        (setq buffer-undo-list nil)))
    (pyagentd-block-copy other)
    (setq pyagentd-session-sha256
          (buffer-local-value 'pyagentd-reread-sha256 other))
    (set-visited-file-modtime
     (buffer-local-value 'pyagentd-reread--modtime other))
    (set-buffer-modified-p nil)
    (kill-buffer other)))

(provide 'pyagentd-reread)
;;; pyagentd-reread.el ends here

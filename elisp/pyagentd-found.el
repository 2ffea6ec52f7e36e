;;; pyagentd-found.el --- Show a message that was found -*- lexical-binding: t; -*-

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

;; From what a search found to the place in the conversation: the daemon
;; says where the message stands in the saved document.  If that has moved
;; on since, the text of the preview is looked for.
;;
;; A hit is a plist as the daemon's search returns it; used here are
;; :branch, :file, :message-id and :part-id (nil for text that only the
;; document has), :preview, and :matches, a list of (BEG END) that counts
;; from 0 within the preview.  :query is what was searched for.

;;; Code:

(require 'seq)
(require 'pulse)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-here)

;;;; Where

(defconst pyagentd-found--patience 1
  "Seconds the daemon has to say where a message is.
After that only its text is looked for.")

(defun pyagentd-found--regexp (text)
  "Return a regular expression for TEXT in which all whitespace is equal."
  (mapconcat #'regexp-quote (split-string text "[ \t\n]+" t) "[ \t\n]+"))

(defun pyagentd-found--fragment (hit)
  "Return (TEXT . MATCH) of HIT: what to look for and what matched in it.
TEXT is the part of the preview between two ellipses where the first match
is; MATCH is nil if nothing is marked."
  (let* ((preview (plist-get hit :preview))
         (span (car (plist-get hit :matches)))
         (at (or (car span) 0))
         (start (let ((before (seq-position (reverse (substring preview 0 at))
                                            ?…)))
                  (if before (- at before) 0)))
         (end (or (string-search "…" preview at) (length preview))))
    (cons (substring preview start end)
          (and span (substring preview at (min (cadr span) (length preview)))))))

(defun pyagentd-found--search (hit beg end)
  "Return (BEG . END) of what HIT matched between BEG and END, or nil."
  (pcase-let ((`(,text . ,match) (pyagentd-found--fragment hit))
              (case-fold-search t))
    (goto-char beg)
    (cond ((and (not (string-blank-p text))
                (re-search-forward (pyagentd-found--regexp text) end t))
           (let ((whole (cons (match-beginning 0) (match-end 0))))
             (goto-char (car whole))
             (if (and match (search-forward match (cdr whole) t))
                 (cons (match-beginning 0) (match-end 0))
               whole)))
          ((and match (search-forward match end t))
           (cons (match-beginning 0) (match-end 0))))))

(defun pyagentd-found--question (hit)
  "Return what to tell the daemon to learn where the message of HIT is."
  (append (list :branch (plist-get hit :branch))
          (if-let ((message (plist-get hit :message-id)))
              (list :message message :part (plist-get hit :part-id))
            (list :query (plist-get hit :query)))))

(defun pyagentd-found--locate (hit then)
  "Call THEN with (BEG END) of the message of HIT in its saved document.
That is nil if it is not there, or if the daemon does not say so soon.
THEN is called later, in this buffer."
  (if (not (pyagentd-rpc-connect))
      (pyagentd-later-soon (lambda () (funcall then nil)))
    (pyagentd-later-here
     'locate (pyagentd-found--question hit)
     (lambda (place)
       (let ((position (plist-get place :position)))
         (funcall then (and position
                            (list position
                                  (or (plist-get place :end) position))))))
     pyagentd-found--patience
     (lambda (_) (funcall then nil)))))

(defun pyagentd-found--place (hit range)
  "Return (BEG . END) of what HIT matched in the current buffer, or nil.
RANGE is (BEG END) of its message in the saved document, or nil."
  (save-excursion
    (pcase-let ((`(,beg ,end) range))
      (or (and beg (<= beg (point-max))
               (pyagentd-found--search hit beg (min end (point-max))))
          (pyagentd-found--search hit (point-min) (point-max))
          (and beg (let ((start (min beg (point-max))))
                     (cons start (save-excursion (goto-char start)
                                                 (line-end-position)))))))))

;;;; Showing

(defun pyagentd-found--show (place)
  "Move to PLACE, a cons (BEG . END), in the selected window."
  (goto-char (car place))
  (recenter (/ (window-height) 3)))

(defun pyagentd-found-goto (hit buffer)
  "Move to the message of HIT in BUFFER, which the selected window shows.
That is done when the daemon has said where it is, unless the user has
moved in the meantime.  Return BUFFER."
  (with-current-buffer buffer
    (widen)
    (let ((window (selected-window))
          (start (copy-marker (point)))
          (keys num-input-keys))
      (pyagentd-found--locate
       hit
       (lambda (range)
         (when (and (eq (window-buffer window) (current-buffer))
                    (or (= keys num-input-keys)
                        (= start (window-point window))))
           (with-selected-window window
             (pyagentd-found--arrive (pyagentd-found--place hit range))))))))
  buffer)

(defun pyagentd-found--arrive (place)
  "Move to PLACE, a cons (BEG . END) or nil, and show what is there."
  (if (not place)
      (message "The message is no longer in the text")
    (push-mark nil t)
    (pyagentd-found--show place)
    (unless noninteractive
      (pulse-momentary-highlight-region (car place) (cdr place)))))

(defconst pyagentd-found--glance 50000
  "Characters of text up to which a preview is shown as Markdown.
A mode for Markdown takes seconds to be turned on in a long text.")

(defvar-local pyagentd-found--previewed nil
  "The file shown in this buffer and its modification time.")

(defun pyagentd-found--preview-buffer (file)
  "Return a buffer with the text of FILE that is no session buffer."
  (let ((stamp (list file (file-attribute-modification-time
                           (or (file-attributes file)
                               (user-error "%s is gone" file))))))
    (with-current-buffer (get-buffer-create "*pyagentd preview*")
      (unless (equal stamp pyagentd-found--previewed)
        (let ((inhibit-read-only t) (coding-system-for-read 'utf-8-unix))
          (erase-buffer)
          (insert-file-contents file)
          (pyagentd-block-strip)
          (delay-mode-hooks
            (funcall (or (and (< (buffer-size) pyagentd-found--glance)
                              (assoc-default "a.md" auto-mode-alist
                                             #'string-match))
                         #'text-mode)))
          (font-lock-mode)
          (visual-line-mode))
        (setq buffer-read-only t
              pyagentd-found--previewed stamp))
      (current-buffer))))

(defvar pyagentd-found--overlay nil
  "Overlay on what matched in the message shown last.")

(defun pyagentd-found--highlight (place)
  "Highlight PLACE, a cons (BEG . END), in the current buffer until the next."
  (unless pyagentd-found--overlay
    (setq pyagentd-found--overlay (make-overlay 1 1))
    (overlay-put pyagentd-found--overlay 'face 'next-error))
  (move-overlay pyagentd-found--overlay (car place) (cdr place)
                (current-buffer)))

(defvar pyagentd-found--wanted nil
  "The hit that was to be shown last.")

(defun pyagentd-found-preview (hit)
  "Show the message of HIT in another window without opening its session.
If the session is open, its buffer is shown.  That is done when the daemon
has said where the message is, unless the user has moved on by then."
  (let ((window (selected-window)))
    (setq pyagentd-found--wanted hit)
    (with-current-buffer
        (or (find-buffer-visiting (plist-get hit :file))
            (pyagentd-found--preview-buffer (plist-get hit :file)))
      (pyagentd-found--locate
       hit
       (lambda (range)
         (when (and (eq hit pyagentd-found--wanted)
                    (eq window (selected-window)))
           (pyagentd-found--display
            (save-restriction (widen) (pyagentd-found--place hit range)))))))))

(defun pyagentd-found--display (place)
  "Show PLACE, a cons (BEG . END) or nil, of this buffer in another window."
  (let ((window (display-buffer (current-buffer)
                                '(nil (inhibit-same-window . t)))))
    (if (not place)
        (message "The message is no longer in the text")
      (with-selected-window window
        (unless (<= (point-min) (car place) (cdr place) (point-max)) (widen))
        (pyagentd-found--highlight place)
        (pyagentd-found--show place)))))

(defun pyagentd-found-forget ()
  "Highlight nothing any more."
  (when pyagentd-found--overlay
    (delete-overlay pyagentd-found--overlay)))

(provide 'pyagentd-found)
;;; pyagentd-found.el ends here

;;; pyagentd-queued.el --- Messages that wait, in the text -*- lexical-binding: t; -*-

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

;; Which messages of a session wait for their turn is what the daemon says.
;; Text that was typed and queued here stays where it is, under an overlay
;; that shows it; when its turn comes the run's marker moves behind it.

;;; Code:

(require 'cl-lib)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-write)

(defface pyagentd-queued '((t :inherit shadow :slant italic :extend t))
  "Face of queued messages."
  :group 'pyagentd)

(defvar-local pyagentd-queued-items nil
  "The messages that wait here, the next one first, plists from the daemon.
Their keys are :id, :text, :queued-at, :steer and :origin.")
(defvar-local pyagentd-queued--overlays nil
  "Where text that was sent from here stands: an alist (ID . OVERLAY).")

(pyagentd-permanent-local 'pyagentd-queued-items 'pyagentd-queued--overlays)

(defvar pyagentd-queued-hook nil
  "Hook run in a session buffer when what waits there has changed.")

(defun pyagentd-queued-new-id ()
  "Return an id for a message."
  (format "msg_%s%08x" (format-time-string "%s%3N") (random (ash 1 32))))

;;;; Where the text is

(defun pyagentd-queued--answered ()
  "Return the end of the last text that is not the user's."
  (save-restriction
    (widen)
    (let ((pos (point-max)))
      (while (and (> pos (point-min)) (not (get-text-property (1- pos) 'gptel)))
        (setq pos (previous-single-property-change pos 'gptel nil (point-min))))
      pos)))

(defun pyagentd-queued-start (end)
  "Return where the user's new text that ends at END begins.
That is below the last answer and everything that is queued already."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-queued--answered))
      (when (and pyagentd-insert--marker (<= (point) pyagentd-insert--marker end))
        (goto-char pyagentd-insert--marker))
      (pcase-dolist (`(,_ . ,overlay) pyagentd-queued--overlays)
        (when-let ((last (overlay-end overlay)))
          (when (and (overlay-get overlay 'face) (<= (point) last end))
            (goto-char last))))
      (while (progn (skip-chars-forward " \t\n" end)
                    (and (<= (+ (point) (length pyagentd-prompt-prefix)) end)
                         (looking-at-p (regexp-quote pyagentd-prompt-prefix))))
        (forward-char (length pyagentd-prompt-prefix)))
      (min (point) end))))

(defun pyagentd-queued-note (id beg end)
  "Note that the text between BEG and END was sent as the message ID."
  (let ((overlay (make-overlay beg end nil t nil)))
    (push (cons id overlay) pyagentd-queued--overlays)
    overlay))

(defun pyagentd-queued-forget (id)
  "Forget where the message ID stands, and return where it ended, or nil."
  (when-let ((overlay (alist-get id pyagentd-queued--overlays nil nil #'equal)))
    (prog1 (overlay-end overlay)
      (delete-overlay overlay)
      (setf (alist-get id pyagentd-queued--overlays nil t #'equal) nil))))

(defun pyagentd-queued-overlay (id)
  "Return the overlay over the text of the message ID, or nil."
  (when-let ((overlay (alist-get id pyagentd-queued--overlays nil nil #'equal)))
    (and (overlay-buffer overlay) overlay)))

(defun pyagentd-queued--show (id)
  "Show that the text of the message ID waits."
  (when-let ((overlay (pyagentd-queued-overlay id)))
    (overlay-put overlay 'face 'pyagentd-queued)
    (overlay-put overlay 'help-echo "Queued; C-c C-q lists messages that wait")
    (overlay-put overlay 'evaporate t)
    (overlay-put overlay 'modification-hooks '(pyagentd-queued--on-change))
    (overlay-put overlay 'after-string
                 (propertize "  [queued]" 'face 'pyagentd-queued 'cursor t))
    (pyagentd-queued--part overlay)))

(defun pyagentd-queued--part (overlay)
  "Show the text of OVERLAY on a line of its own, below what is being said.
What is said grows directly before it, until the next prompt is there."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (overlay-start overlay))
      (overlay-put overlay 'before-string
                   (unless (or (bolp)
                               (looking-back (concat "^" (regexp-quote
                                                          pyagentd-prompt-prefix))
                                             (line-beginning-position)))
                     (concat "\n\n" (propertize pyagentd-prompt-prefix
                                                'face 'pyagentd-queued)))))))

(defun pyagentd-queued--part-all ()
  "Show each text that waits on a line of its own."
  (pcase-dolist (`(,_ . ,overlay) pyagentd-queued--overlays)
    (when (and (overlay-buffer overlay) (overlay-get overlay 'face))
      (pyagentd-queued--part overlay))))

(add-hook 'pyagentd-insert-hook #'pyagentd-queued--part-all)

(defun pyagentd-queued--find (item)
  "Make an overlay over the text of ITEM, if it stands in the text."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-queued--answered))
      (when (search-forward (plist-get item :text) nil t)
        (pyagentd-queued-note (plist-get item :id) (match-beginning 0)
                              (match-end 0))))))

(defvar pyagentd-queued-edited-function #'ignore
  "Function called when the text of a queued message was changed.
It gets the id of the message and what it says now.")

(defun pyagentd-queued--on-change (overlay after &rest _)
  "Note a change of the text under OVERLAY, which is over if AFTER is non-nil."
  (when after
    (when-let ((id (car (rassq overlay pyagentd-queued--overlays))))
      (funcall pyagentd-queued-edited-function id
               (if (overlay-start overlay)
                   (buffer-substring-no-properties (overlay-start overlay)
                                                   (overlay-end overlay))
                 "")))))

;;;; What the daemon says

(defun pyagentd-queued-receive (items)
  "Note that ITEMS wait, and show those that stand in the text."
  (setq pyagentd-queued-items items)
  (dolist (item items)
    (let ((id (plist-get item :id)))
      (when (equal (plist-get item :origin) "document")
        (unless (pyagentd-queued-overlay id)
          (pyagentd-queued--find item))
        (pyagentd-queued--show id))))
  (pcase-dolist (`(,id . ,overlay) (copy-sequence pyagentd-queued--overlays))
    (when (and (overlay-get overlay 'face)
               (not (cl-find id items :test #'equal
                             :key (lambda (item) (plist-get item :id)))))
      (pyagentd-queued-forget id)))
  (run-hooks 'pyagentd-queued-hook))

(defun pyagentd-queued-fired (fired)
  "Let the run go on behind the text of the message in FIRED, a plist.
Return nil if that text is not found."
  (let* ((overlay (pyagentd-queued-overlay (plist-get fired :id)))
         (waited (and overlay (overlay-get overlay 'face)))
         (end (or (pyagentd-queued-forget (plist-get fired :id))
                  (and (equal (plist-get fired :sha256) (pyagentd-write-sha256))
                       (plist-get fired :position)))))
    (when end
      (pyagentd-insert-start end)
      (when (and waited (not pyagentd-session-viewing))
        (pyagentd-queued--join end))
      t)))

(defun pyagentd-queued--join (end)
  "Remove the prompt prefix behind END: the answer brings one of its own."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char end)
      (when (looking-at (concat "\n\n" (regexp-quote pyagentd-prompt-prefix)))
        (delete-region end (match-end 0))))))

(defun pyagentd-queued-place (place)
  "Return where a message of another client goes that is to be at PLACE.
That is a plist with :position and :sha256, or nil for the end."
  (save-restriction
    (widen)
    (cond ((null place) (point-max))
          ((equal (plist-get place :sha256) (pyagentd-write-sha256))
           (plist-get place :position))
          ((and pyagentd-insert--marker
                (<= (pyagentd-queued--answered) pyagentd-insert--marker))
           (marker-position pyagentd-insert--marker))
          (t (point-max)))))

(provide 'pyagentd-queued)
;;; pyagentd-queued.el ends here

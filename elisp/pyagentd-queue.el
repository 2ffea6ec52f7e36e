;;; pyagentd-queue.el --- Messages that wait, as a list -*- lexical-binding: t; -*-

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

;; What was sent while a run was in progress waits; here it is listed, taken
;; back and changed.  A message can also be said to the run in progress.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-list)
(require 'pyagentd-insert)
(require 'pyagentd-chat)

(defvar-local pyagentd-queue--buffer nil
  "The session buffer whose queue is listed here.")

(defun pyagentd-queue--base ()
  "Return the session buffer that commands here are about."
  (or pyagentd-queue--buffer
      (let ((base (or (buffer-base-buffer) (current-buffer))))
        (unless (buffer-local-value 'pyagentd-mode base)
          (user-error "Not a session"))
        base)))

(defun pyagentd-queue--call (method plist &optional success)
  "Call METHOD with PLIST for the session, then SUCCESS with its answer."
  (let ((buffer (pyagentd-queue--base)))
    (with-current-buffer buffer
      (pyagentd-rpc-call-async
       method (append (list :branch pyagentd--branch-dir) plist)
       :timeout pyagentd-call-timeout
       :success (lambda (answer)
                  (when (and success (buffer-live-p buffer))
                    (with-current-buffer buffer (funcall success answer))))
       :error (lambda (err) (message "%s" (pyagentd-error-text err)))))))

;;;; Steering

(defun pyagentd-steer (text)
  "Send TEXT to the run in progress; the model reads it at its next step.
Interactively it is the region or what stands below the answer, which
moves to where the model reads it; without any it is asked for."
  (interactive
   (list (or (pyagentd-queue--draft) (read-string "Message to this run: "))))
  (when (string-blank-p text)
    (user-error "The message is empty"))
  (let ((draft (with-current-buffer (pyagentd-queue--base)
                 (pyagentd-queue--bounds))))
    (with-current-buffer (pyagentd-queue--base)
      (when (and draft (equal text (pyagentd-queue--text draft)))
        (delete-region (car draft) (cdr draft)))
      (pyagentd-chat-submit text #'pyagentd-queue--return :steer t))))

(defun pyagentd-queue--bounds ()
  "Return the bounds of the region, or of the text below all that waits."
  (if (use-region-p) (cons (region-beginning) (region-end))
    (let* ((end (save-restriction
                  (widen)
                  (save-excursion (goto-char (point-max))
                                  (skip-chars-backward " \t\n")
                                  (point))))
           (start (pyagentd-queued-start end)))
      (when (< start end) (cons start end)))))

(defun pyagentd-queue--text (bounds)
  "Return the text within BOUNDS."
  (save-restriction
    (widen)
    (buffer-substring-no-properties (car bounds) (cdr bounds))))

(defun pyagentd-queue--draft ()
  "Return what the user has written and not sent, or nil."
  (with-current-buffer (pyagentd-queue--base)
    (when-let ((bounds (pyagentd-queue--bounds)))
      (pyagentd-queue--text bounds))))

;;;; The list

(defun pyagentd-queue--entry (item)
  "Return the line of ITEM for `tabulated-list-entries'."
  (list (plist-get item :id)
        (vector (format-time-string "%R" (/ (plist-get item :queued-at) 1000))
                (cond ((plist-get item :steer) "steers")
                      ((plist-get item :trigger) "trigger")
                      (t (or (plist-get item :origin) "")))
                (truncate-string-to-width
                 (replace-regexp-in-string "[ \t\n]+" " "
                                           (plist-get item :text))
                 200 nil nil "…"))))

(defun pyagentd-queue--print ()
  "Show what waits."
  (setq pyagentd-table-rows
        (and (buffer-live-p pyagentd-queue--buffer)
             (buffer-local-value 'pyagentd-queued-items pyagentd-queue--buffer)))
  (pyagentd-table-print (mapcar #'pyagentd-queue--entry pyagentd-table-rows)))

(defun pyagentd-queue--on-change ()
  "Show what has changed in the list of this session, if it is shown."
  (let ((session (current-buffer)))
    (when-let ((buffer (get-buffer "*pyagentd queue*")))
      (with-current-buffer buffer
        (when (eq pyagentd-queue--buffer session)
          (pyagentd-queue--print))))))

(defun pyagentd-queue-cancel ()
  "Remove the message at point from the queue; its text is a draft again."
  (interactive nil pyagentd-queue-mode)
  (let* ((item (pyagentd-table-row))
         (id (plist-get item :id)))
    (pyagentd-queue--call
     'queue-cancel (list :id id)
     (lambda (answer)
       (message "Removed from the queue; %s"
                (if (equal (plist-get item :origin) "document")
                    "its text is a draft"
                  (pyagentd-queue--return (plist-get answer :text))))))))

(defun pyagentd-queue--return (text)
  "Put TEXT, which was never in the buffer, at its end as a draft.
Where this buffer only shows what another client writes, put it into the
kill ring.  Return words that say where it is."
  (cond ((not pyagentd-session-viewing)
         (pyagentd-queue--append text)
         "its text is a draft")
        (t (kill-new text)
           (substitute-command-keys
            "the text is in the kill ring, \\[yank] inserts it"))))

(defun pyagentd-queue--append (text)
  "Put TEXT at the end of this buffer as a draft."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (point-max))
      (let ((prefix pyagentd-prompt-prefix))
        (insert (if (string-suffix-p
                     prefix (buffer-substring-no-properties
                             (max (point-min) (- (point) (length prefix)))
                             (point)))
                    text
                  (concat "\n\n" prefix text)))))))

(defun pyagentd-queue-edit ()
  "Edit the queued message at point; it keeps its place."
  (interactive nil pyagentd-queue-mode)
  (let* ((item (pyagentd-table-row))
         (id (plist-get item :id))
         (overlay (with-current-buffer (pyagentd-queue--base)
                    (pyagentd-queued-overlay id))))
    (if overlay
        (progn (pop-to-buffer (overlay-buffer overlay))
               (goto-char (overlay-end overlay)))
      (pyagentd-queue--call
       'queue-edit
       (list :id id
             :text (read-string "Message: " (plist-get item :text)))))))

(defun pyagentd-queue-resume ()
  "Resume a queue that an error or stopping the run has paused."
  (interactive)
  (with-current-buffer (pyagentd-queue--base)
    (pyagentd-queue--call
     'queue-resume (list :env (pyagentd-env-variables) :key (pyagentd-env-key))
     (lambda (answer)
       (unless (plist-get answer :waiting) (message "The queue is empty"))))))

(defun pyagentd-retry-now ()
  "Retry the failed request now."
  (interactive)
  (pyagentd-queue--call
   'retry-now nil
   (lambda (answer)
     (unless (plist-get answer :retried) (message "No request is waiting to be retried")))))

(defun pyagentd-queue--revert (&rest _)
  "Ask the daemon what waits."
  (let ((list-buffer (current-buffer)))
    (pyagentd-queue--call
     'queue nil
     (lambda (answer)
       (pyagentd-queued-receive (plist-get answer :items))
       (when (buffer-live-p list-buffer)
         (with-current-buffer list-buffer (pyagentd-queue--print)))))))

(defvar pyagentd-queue-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map "k" #'pyagentd-queue-cancel)
    (define-key map "e" #'pyagentd-queue-edit)
    (define-key map "!" #'pyagentd-queue-resume)
    (define-key map "r" #'pyagentd-retry-now)
    map)
  "Keymap of `pyagentd-queue-mode'.")

(define-derived-mode pyagentd-queue-mode pyagentd-table-mode "Queue"
  "Major mode for the list of queued messages.

\\{pyagentd-queue-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Sent" 6 nil) ("From" 9 nil) ("Text" 0 nil)]
        pyagentd-table-help '(("k" "remove") ("e" "edit")
                              ("!" "resume") ("r" "retry now")
                              ("g" "refresh") ("q" "close"))
        pyagentd-table-empty "No queued messages.")
  (setq-local revert-buffer-function #'pyagentd-queue--revert)
  (add-hook 'pyagentd-queued-hook #'pyagentd-queue--on-change)
  (tabulated-list-init-header))

(defun pyagentd-queue ()
  "List the queued messages of this session."
  (interactive)
  (let ((session (pyagentd-queue--base))
        (buffer (get-buffer-create "*pyagentd queue*")))
    (with-current-buffer buffer
      (pyagentd-queue-mode)
      (setq pyagentd-queue--buffer session)
      (pyagentd-queue--print)
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-queue)
;;; pyagentd-queue.el ends here

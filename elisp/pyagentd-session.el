;;; pyagentd-session.el --- Session buffers: recognise, read, save -*- lexical-binding: t; -*-

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

;; What makes a buffer a session: the five buffer-local variables, set
;; from the file's name alone (no daemon needed), and `pyagentd-mode',
;; which keeps the Local Variables block out of the buffer, writes it back
;; with each save, and saves by itself.
;;
;; Everything the mode sets survives a change of the major mode: were it
;; lost, the next save would write the text without its roles.
;;
;; What the disk refuses is said once for each cause, the text stays in the
;; buffer, and saving is tried again until it works.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-gc)
(require 'pyagentd-events)
(require 'pyagentd-block)
(require 'pyagentd-place)
(require 'pyagentd-visit)
(require 'pyagentd-write)
(require 'pyagentd-syntax)
(require 'pyagentd-autosave)

(defvar pyagentd-mode)

(defconst pyagentd-prompt-prefix "### "
  "What precedes a prompt in a conversation.")

;;;; Buffer-local state

(defvar-local pyagentd-session-viewing nil
  "Non-nil if another client, or the daemon, writes the file of this buffer.")
(defvar-local pyagentd-session-sha256 nil
  "SHA-256 of the text of the file, without block, as last read or written.")
(defvar-local pyagentd-session-trouble nil
  "Why the text could not be saved, a line with the file's name; nil if it was.")

(defvar pyagentd-session-read-hook nil
  "Hook run in a session buffer after its file was read or read anew.")
(defvar pyagentd-session-before-write-hook nil
  "Hook run in a session buffer before it is written.
A function may signal an error; then nothing is written.")
(defvar pyagentd-session-saved-hook nil
  "Hook run in a session buffer after it was saved.")
(defvar pyagentd-session-trouble-hook nil
  "Hook run in a session buffer when `pyagentd-session-trouble' has changed.")
(defvar pyagentd-session-leave-hook nil
  "Hook run in a session buffer when it ceases to be one.")
(defvar pyagentd-session-change-functions nil
  "Functions called with BEG and END after a change of a session buffer.
Not called for text that the daemon inserts.")

(pyagentd-permanent-local 'pyagentd-session-viewing 'pyagentd-session-sha256
                          'pyagentd-session-trouble)

;;;; Reading

(defun pyagentd-session-body-sha256 ()
  "Return the SHA-256 of the text of the buffer, as the daemon computes it."
  (pyagentd-write-sha256))

(defun pyagentd-session--after-read ()
  "Turn the file's text, just read, into a conversation."
  (let ((inhibit-read-only t)
        (blocks (pyagentd-block-strip)))
    (setq pyagentd-session-sha256 (pyagentd-session-body-sha256))
    (setq-local buffer-file-coding-system pyagentd-write-coding)
    (pyagentd-autosave-settle)
    (pyagentd-session--set-trouble nil)
    (pyagentd-session--set-guard)
    (when (and (= (buffer-size) 0) (not (pyagentd-place-agent-p)))
      (with-silent-modifications (insert pyagentd-prompt-prefix)))
    (unless (eq buffer-undo-list t)
      (setq buffer-undo-list nil))
    (when (> blocks 1)
      (pyagentd-log 'warn "%s: %d Local Variables blocks, kept one"
                    (buffer-name) blocks)
      (set-buffer-modified-p t)
      (pyagentd-autosave-touch)))
  (run-hooks 'pyagentd-session-read-hook))

(defun pyagentd-session--after-revert ()
  "Do what is due after the file was read anew."
  (when pyagentd-mode
    (pyagentd-session--ensure-text-mode)
    (pyagentd-session--after-read)))

(defun pyagentd-session--ensure-text-mode ()
  "Turn on `text-mode' where no major mode for Markdown is known."
  (when (eq major-mode 'fundamental-mode)
    (pyagentd-visit-major-mode)))

;;;; Roles of typed text

(defun pyagentd-session--after-change (beg end _length)
  "Note the change of the text between BEG and END.
Text within one answer is part of it, however it came there."
  (when (and (< beg end) (not undo-in-progress) (> beg (point-min))
             (< end (point-max)))
    (let ((role (get-text-property (1- beg) 'gptel)))
      (when (and role (equal role (get-text-property end 'gptel)))
        (with-silent-modifications
          (put-text-property beg end 'gptel role)))))
  (pyagentd-syntax-forget beg end)
  (pyagentd-gc-postpone)
  (pyagentd-autosave-touch)
  (run-hook-with-args 'pyagentd-session-change-functions beg end))

;;;; Recorded text

(defvar-local pyagentd-session--guard nil
  "Overlay on the whole text that keeps recorded text from being changed.")
(defvar-local pyagentd-session-unlocked nil
  "Non-nil if recorded text may be changed here.
\\[pyagentd-edit-recorded] changes it.")

(defvar-local pyagentd-session--saving nil
  "Non-nil from the beginning of a save to its end, or to the next command.
Save hooks that clean up white space may change recorded text: a save
that they made fail would lose what was typed.")

(pyagentd-permanent-local 'pyagentd-session--guard 'pyagentd-session-unlocked)

(defun pyagentd-session--save-begins ()
  "Let save hooks change recorded text."
  (setq pyagentd-session--saving t)
  (add-hook 'pre-command-hook #'pyagentd-session--save-ends nil t))

(defun pyagentd-session--save-ends ()
  "Protect recorded text again."
  (setq pyagentd-session--saving nil)
  (remove-hook 'pre-command-hook #'pyagentd-session--save-ends t))

(defun pyagentd-session--recorded-p (pos)
  "Return non-nil if the character at POS is a tool's, a thought or hidden."
  (let ((role (and (<= (point-min) pos) (< pos (point-max))
                   (get-text-property pos 'gptel))))
    (or (consp role) (eq role 'ignore))))

(defun pyagentd-session--recorded-in-p (beg end)
  "Return non-nil if any of the text between BEG and END is recorded."
  (let (found)
    (while (and (< beg end)
                (not (setq found (pyagentd-session--recorded-p beg))))
      (setq beg (next-single-property-change beg 'gptel nil end)))
    found))

(defun pyagentd-session--tears-p (beg end)
  "Return non-nil if recorded text suffers from a change of BEG to END.
That is a change of it, and one that leaves a fence of it within a line."
  (let ((inserts (= beg end)))
    (or (if inserts
            (and (pyagentd-session--recorded-p (1- beg))
                 (pyagentd-session--recorded-p beg))
          (pyagentd-session--recorded-in-p beg end))
        (and (pyagentd-session--recorded-p end)
             (equal "```" (buffer-substring-no-properties
                           end (min (point-max) (+ end 3))))
             (or inserts (not (memq (char-before beg) '(nil ?\n)))))
        (and (pyagentd-session--recorded-p (1- beg))
             (equal "\n```" (buffer-substring-no-properties
                             (max (point-min) (- beg 4)) beg))
             (not (memq (char-after end) (if inserts '(nil) '(nil ?\n))))))))

(defun pyagentd-session--protect (_guard after beg end &rest _)
  "Signal that BEG to END is recorded and not to be changed by accident.
What undo, the daemon and whoever binds `inhibit-read-only' do is none.
AFTER is non-nil after the change.  For hooks of overlays."
  (unless (or after undo-in-progress inhibit-read-only
              pyagentd-session-unlocked pyagentd-session--saving
              (bound-and-true-p revert-buffer-in-progress-p))
    (save-restriction
      (widen)
      (when (pyagentd-session--tears-p beg end)
        (signal 'text-read-only
                (list "recorded; M-x pyagentd-edit-recorded permits changes"))))))

(defun pyagentd-session--set-guard ()
  "Protect recorded text in this buffer."
  (unless (overlayp pyagentd-session--guard)
    (setq pyagentd-session--guard (make-overlay 1 1 nil nil t))
    (dolist (hook '(modification-hooks insert-in-front-hooks
                                       insert-behind-hooks))
      (overlay-put pyagentd-session--guard hook
                   '(pyagentd-session--protect))))
  (move-overlay pyagentd-session--guard 1 (1+ (buffer-size))))

(defun pyagentd-edit-recorded ()
  "Allow changes of recorded text in this session, or protect it again.
That is what tools were asked and answered, what the model thought, and
turns that were taken back.  Changes are saved, and the model is shown
them."
  (interactive)
  (unless pyagentd-mode (user-error "Not a session"))
  (setq pyagentd-session-unlocked (not pyagentd-session-unlocked))
  (force-mode-line-update)
  (message (if pyagentd-session-unlocked
               "Recorded text can be changed; the same command protects it"
             "Recorded text is protected")))

;;;; Saving

(defun pyagentd-session--annotate (start end)
  "Return the block as an annotation if START and END are the whole buffer.
For `write-region-annotate-functions'; nil for START means the whole."
  (let ((last (1+ (buffer-size))))
    (when (and pyagentd-mode
               (or (null start) (and (eql start 1) (eql end last))))
      (let ((block (pyagentd-block-text)))
        (unless (string-empty-p block)
          (list (cons last (concat "\n\n" block))))))))

(defun pyagentd-session--before-save ()
  "Apply the events that have arrived: a frame is saved whole or not at all.
The first function of its hook, so that gptel's does not run at all."
  (when pyagentd-mode
    (pyagentd-events-drain)
    (pyagentd-session--save-begins)
    (pyagentd-session--drop-gptel-hook)))

(defun pyagentd-session--write ()
  "Write the file of the branch in this buffer; return t if that is done.
For `write-contents-functions', so that every save goes through it."
  (when pyagentd-mode
    (run-hooks 'pyagentd-session-before-write-hook)
    ;; In case that another hook called what writes gptel's block.
    (pyagentd-block-heal t)
    (condition-case err
        (setq pyagentd-session-sha256
              (pyagentd-write (pyagentd-place-conversation
                               pyagentd--branch-dir)))
      (file-error (pyagentd-session--set-trouble (pyagentd-write-trouble err))
                  (signal (car err) (cdr err))))
    (setq last-coding-system-used pyagentd-write-coding)
    (set-visited-file-modtime)
    (set-buffer-modified-p nil)
    (unless save-silently
      (message "Wrote %s" buffer-file-name))
    t))

(defun pyagentd-session--after-save ()
  "Note that the text is saved."
  (when pyagentd-mode
    (pyagentd-session--save-ends)
    (pyagentd-autosave-settle)
    (when pyagentd-session-trouble
      (pyagentd-session--set-trouble nil)
      (message "%s is saved again" (buffer-name)))
    (run-hooks 'pyagentd-session-saved-hook)))

(defun pyagentd-session--set-trouble (trouble)
  "Note and say that the text cannot be saved because of TROUBLE, nil if it can."
  (unless (equal trouble pyagentd-session-trouble)
    (setq pyagentd-session-trouble trouble)
    ;; Who wants to leave Emacs all the same must be able to say so.
    (setq-local buffer-save-without-query (null trouble))
    (when trouble
      (pyagentd-log 'error "%s" trouble))
    (run-hooks 'pyagentd-session-trouble-hook)))

(defun pyagentd-session--drop-gptel-hook ()
  "Remove gptel's own save hook from this buffer.
It would write a second block, with the system message in it."
  (when (and pyagentd-mode (local-variable-p 'before-save-hook))
    (let ((count (seq-count (lambda (function) (eq function 'gptel--save-state))
                            before-save-hook)))
      (when (> count 1)
        (pyagentd-log 'warn "%s: %d duplicate save hooks" (buffer-name) count))
      ;; In place: this may be called by the very hook.
      (when (> count 0)
        (setq before-save-hook (delq 'gptel--save-state before-save-hook))))))

(defun pyagentd-session-save (&optional politely)
  "Save the session in this buffer if it needs it, without a question.
Return non-nil if file and buffer agree.  A file that was changed on
disk meanwhile is left alone.  POLITELY means give way to input; then
the buffer may stay modified although there is no trouble."
  (cond ((or pyagentd-session-viewing (null buffer-file-name)) nil)
        ((not (buffer-modified-p)) (file-exists-p buffer-file-name))
        ((and (file-exists-p buffer-file-name)
              (not (verify-visited-file-modtime)))
         (pyagentd-session--set-trouble
          (format "Not saved: changed on disk, %s; \
M-x revert-buffer reads it, C-x C-s overwrites it"
                  (abbreviate-file-name buffer-file-name)))
         nil)
        (t (let ((save-silently t)
                 (pyagentd-write-gives-way politely)
                 ;; A cleanup meant for files edited by hand would move
                 ;; text under the user's fingers.
                 (before-save-hook nil))
             (pyagentd-session--before-save)
             (catch 'pyagentd-write-gives-way
               (condition-case nil
                   (progn (save-buffer 0) t)
                 (file-error nil)))))))


;;;; Leaving

(defun pyagentd-session--before-kill ()
  "Save the buffer, so that killing it needs no question.
Who only views a session has nothing to save; if there is text all the
same, Emacs asks."
  (when (and pyagentd-mode pyagentd-autosave-enabled
             (not (buffer-base-buffer)))
    (pyagentd-guarded "Save"
      (pyagentd-session-save)))
  t)

(defun pyagentd-session--leave ()
  "Let go of the branch in this buffer."
  (when (and pyagentd-mode (not (buffer-base-buffer)))
    (pyagentd-autosave-settle)
    (pyagentd-guarded "Leave" (run-hooks 'pyagentd-session-leave-hook))
    (pyagentd-place-unregister)))

(defun pyagentd-session--after-rename ()
  "Turn the mode off if the buffer now visits a file elsewhere."
  (when (and pyagentd-mode
             (not (and buffer-file-name
                       (equal pyagentd--branch-dir
                              (plist-get (pyagentd-place-of
                                          buffer-file-name)
                                         :branch-dir)))))
    (pyagentd-mode -1)))

;;;; The mode

(defvar pyagentd-mode-map (make-sparse-keymap)
  "Keymap of `pyagentd-mode'.")

(defvar pyagentd-session-hooks
  '((after-change-functions . pyagentd-session--after-change)
    (write-region-annotate-functions . pyagentd-session--annotate)
    (write-contents-functions . pyagentd-session--write)
    (before-save-hook . pyagentd-session--before-save)
    (after-save-hook . pyagentd-session--after-save)
    (after-revert-hook . pyagentd-session--after-revert)
    (after-set-visited-file-name-hook . pyagentd-session--after-rename)
    (kill-buffer-query-functions . pyagentd-session--before-kill)
    (kill-buffer-hook . pyagentd-session--leave)
    (gptel-mode-hook . pyagentd-session--drop-gptel-hook))
  "Buffer-local hooks of a session buffer.")

(defvar pyagentd-session-settings
  '((require-final-newline . nil)
    (mode-require-final-newline . nil)
    (backup-inhibited . t)
    (create-lockfiles . nil)
    (word-wrap . t)                     ; prose, not code
    (buffer-save-without-query . t)
    (buffer-auto-save-file-name . nil))
  "Buffer-local settings of a session buffer.")

(dolist (pair pyagentd-session-hooks)
  (put (cdr pair) 'permanent-local-hook t))

(pyagentd-permanent-local 'pyagentd-mode)

(defvar pyagentd-completing-functions nil
  "Functions that return non-nil where TAB completes in a session buffer.
Elsewhere it does what it does in the major mode.")

(defun pyagentd-session-completing (command)
  "Return COMMAND where `pyagentd-completing-functions' say so, else nil."
  (and (run-hook-with-args-until-success 'pyagentd-completing-functions)
       command))

;;;###autoload
(define-minor-mode pyagentd-mode
  "Minor mode of buffers that show the conversation of a session.
The text is the conversation; send it with \\[pyagentd-send].  It is
saved by itself after a pause.

\\{pyagentd-mode-map}"
  :lighter (:eval (if pyagentd-session-unlocked " Agent[unlocked]" " Agent"))
  (if pyagentd-mode
      (pyagentd-session--set-up)
    (setq pyagentd-mode t)              ; leaving needs it
    (pyagentd-session--tear-down)
    (setq pyagentd-mode nil)))

(defun pyagentd-session--set-up ()
  "Make the current buffer a session buffer."
  (let ((place (and buffer-file-name
                    (pyagentd-place-of buffer-file-name))))
    (unless place
      (setq pyagentd-mode nil)
      (user-error "Not a session: %s" (or buffer-file-name (buffer-name))))
    ;; `current' may soon name another branch.
    (unless (string-match-p pyagentd-visit-regexp buffer-file-name)
      (setq buffer-file-name (file-truename buffer-file-name)
            default-directory (file-name-directory buffer-file-name)))
    (setq pyagentd--session-id (plist-get place :session-id)
          pyagentd--session-dir (plist-get place :session-dir)
          pyagentd--branch-name (plist-get place :branch-name)
          pyagentd--branch-dir (plist-get place :branch-dir)
          pyagentd-autosave-enabled t)
    (pyagentd-session--apply-settings)
    (setq-local yank-excluded-properties
                (if (listp yank-excluded-properties)
                    (append '(gptel fontified pyagentd-syntax) yank-excluded-properties)
                  yank-excluded-properties))
    (pyagentd-place-register pyagentd--session-dir (current-buffer)
                               pyagentd--session-id pyagentd--branch-name
                               pyagentd--branch-dir)
    (pyagentd-session--drop-gptel-hook)
    (pyagentd-session--after-read)))

(defun pyagentd-session--apply-settings ()
  "Install the buffer-local hooks and settings of a session buffer."
  (pcase-dolist (`(,hook . ,function) pyagentd-session-hooks)
    (add-hook hook function (if (eq hook 'before-save-hook) -100 0) t))
  (pcase-dolist (`(,variable . ,value) pyagentd-session-settings)
    (set (make-local-variable variable) value))
  ;; Its file names tools of the daemon's, of which gptel may have none.
  (setq-local warning-suppress-log-types
              (cons '(gptel org tools)
                    (and (default-boundp 'warning-suppress-log-types)
                         (default-value 'warning-suppress-log-types))))
  (pyagentd-syntax-install))

(defun pyagentd-session--after-major-mode ()
  "Install again what a change of the major mode has undone."
  (when (bound-and-true-p pyagentd-mode)
    (pyagentd-session--apply-settings)))

(add-hook 'after-change-major-mode-hook #'pyagentd-session--after-major-mode)

(defun pyagentd-session--tear-down ()
  "Make the current buffer an ordinary one with the text of the whole file."
  (pyagentd-session--leave)
  (pcase-dolist (`(,hook . ,function) pyagentd-session-hooks)
    (remove-hook hook function t))
  (pcase-dolist (`(,variable . ,_) pyagentd-session-settings)
    (kill-local-variable variable))
  (kill-local-variable 'yank-excluded-properties)
  (when pyagentd-session--guard
    (delete-overlay pyagentd-session--guard))
  (pyagentd-syntax-remove)
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (point-max))
      (with-silent-modifications
        (let ((block (pyagentd-block-text)))
          (unless (string-empty-p block)
            (insert "\n\n" block))))))
  (mapc #'kill-local-variable
        '(pyagentd--session-id pyagentd--session-dir pyagentd--branch-name
          pyagentd--branch-dir pyagentd-autosave-enabled
          pyagentd-session-viewing pyagentd-session-sha256
          pyagentd-session--guard pyagentd-session-unlocked)))

(defun pyagentd-session-maybe-initialize ()
  "Turn on `pyagentd-mode' if this buffer's file has the place of a session.
Do nothing if it is on already, or if this is no ordinary visit."
  (unless (or (bound-and-true-p pyagentd-mode)
              find-file-literally
              (buffer-base-buffer)
              (not (file-directory-p default-directory)))
    (pyagentd-guarded "Open session"
      (when (pyagentd-place-of buffer-file-name)
        (pyagentd-session--ensure-text-mode)
        (pyagentd-mode)))))

(provide 'pyagentd-session)
;;; pyagentd-session.el ends here

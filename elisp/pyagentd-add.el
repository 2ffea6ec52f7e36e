;;; pyagentd-add.el --- Put things into a prompt -*- lexical-binding: t; -*-

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

;; Commands for any buffer that put what is there into the prompt of a
;; session: the region, the buffer, what Flymake found, files.  Nothing is
;; sent until you send it, except by `pyagentd-ask-about'.
;;
;; The session is the one used last in the same project, else the one used
;; last; a prefix argument asks.

;;; Code:

(require 'project)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-start)
(require 'pyagentd-place)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-viewing)
(require 'pyagentd-attach)
(require 'pyagentd-chat)
(require 'pyagentd-turns)
(require 'pyagentd-diagnostics)
(require 'pyagentd-passage)

(declare-function dired-get-marked-files "dired")
(declare-function pyagentd-media-link "pyagentd-media")
(declare-function pyagentd-menu "pyagentd-menu" nil t)
(declare-function pyagentd-session "pyagentd")
(autoload 'pyagentd-sessions "pyagentd-sessions" nil t)
(autoload 'pyagentd-search "pyagentd-search" nil t)
(autoload 'pyagentd-asks "pyagentd-asks" nil t)

(defvar pyagentd-question-history nil
  "Questions that were asked about a region or a buffer.")

(defconst pyagentd-add--large 100000
  "Characters of a text from which on it is asked whether it is meant.")

;;;; Which session

(defun pyagentd-add--sessions ()
  "Return the buffers of sessions that can be written to, latest first."
  (seq-filter (lambda (buffer)
                (with-current-buffer buffer
                  (and (bound-and-true-p pyagentd-mode)
                       (not (buffer-base-buffer))
                       (not pyagentd-attach-viewer))))
              (buffer-list)))

(defun pyagentd-add--near-p (buffer directory)
  "Return non-nil if the session in BUFFER is about DIRECTORY."
  (let ((root (buffer-local-value 'pyagentd-attach-root buffer)))
    (and root (file-in-directory-p directory root))))

(defun pyagentd-add--writable-p (buffer)
  "Return non-nil if BUFFER can be written."
  (not (buffer-local-value 'buffer-read-only buffer)))

(defun pyagentd-add--label (buffer)
  "Return what to call the session in BUFFER."
  (with-current-buffer buffer
    (concat (or pyagentd-status-title pyagentd--session-id)
            (unless (equal pyagentd--branch-name "main")
              (concat "/" pyagentd--branch-name)))))

(defun pyagentd-add--session (&optional ask)
  "Return the buffer of the session that something is added to.
ASK the user which, if it is non-nil.  Signal a `user-error' if nothing
can be written there."
  (let ((session (pyagentd-add--choose ask)))
    (with-current-buffer session
      (pyagentd-viewing-check "with C-u you choose another session"))
    session))

(defun pyagentd-add--choose (ask)
  "Return the buffer of the session that is meant; ASK which if non-nil.
One that can be written here goes before others."
  (let* ((buffers (or (pyagentd-add--sessions)
                      (user-error
                       "No open session; make one with M-x pyagentd-session")))
         (near (seq-filter (lambda (buffer)
                             (pyagentd-add--near-p buffer default-directory))
                           buffers)))
    (if (not ask)
        (let ((meant (or near buffers)))
          (or (seq-find #'pyagentd-add--writable-p meant) (car meant)))
      (let ((names (mapcar (lambda (buffer)
                             (cons (pyagentd-add--label buffer) buffer))
                           buffers)))
        (cdr (assoc (completing-read "Session: " names nil t) names))))))

(defun pyagentd-add--check-size (beg end)
  "Ask whether the text between BEG and END is meant if it is large."
  (when (and (> (- end beg) pyagentd-add--large)
             (not (y-or-n-p (format "Add %d kB to the prompt? "
                                    (/ (- end beg) 1000)))))
    (user-error "Nothing was added")))

;;;; Adding

(defun pyagentd-add-text (text &optional buffer)
  "Put TEXT at the end of the prompt that is written in BUFFER, a session.
It is the current one by default; point there is moved behind it."
  (with-current-buffer (or buffer (current-buffer))
    (pyagentd-viewing-check)
    (save-restriction
      (widen)
      (let ((windows (get-buffer-window-list nil nil t)))
        (goto-char (point-max))
        (skip-chars-backward " \t\n")
        (delete-region (point) (point-max))
        (insert (pyagentd-add--between) text "\n\n")
        (dolist (window windows)
          (set-window-point window (point)))))
    (run-hooks 'pyagentd-added-hook)))

(defvar pyagentd-added-hook nil
  "Hook run in a session buffer after something was put into its prompt.")

(defun pyagentd-add--between ()
  "Return what comes between the text before point and what is added."
  (cond ((bobp) (if (pyagentd-place-agent-p) "" pyagentd-prompt-prefix))
        ((get-text-property (1- (point)) 'gptel)
         (concat "\n\n" (if (pyagentd-place-agent-p) ""
                          pyagentd-prompt-prefix)))
        ((save-excursion (forward-line 0)
                         (looking-at-p
                          (concat (regexp-quote
                                   (string-trim-right pyagentd-prompt-prefix))
                                  "$")))
         " ")
        (t "\n\n")))

(defun pyagentd-add--done (what session)
  "Say that WHAT was added to the prompt in the buffer SESSION."
  (message "Added %s to %s" what (pyagentd-add--label session)))

(defun pyagentd-add--root (session)
  "Return the root of the project of the buffer SESSION, nil if unknown."
  (buffer-local-value 'pyagentd-attach-root session))

;;;###autoload
(defun pyagentd-add-region (beg end &optional ask)
  "Add the region, from BEG to END, to the prompt of a session.
It says where the text is from.  With a prefix argument, or ASK from
Lisp, ask which session."
  (interactive (list (region-beginning) (region-end) current-prefix-arg))
  (when (= beg end) (user-error "The region is empty; nothing was added"))
  (pyagentd-add--check-size beg end)
  (let ((session (pyagentd-add--session ask)))
    (pyagentd-add-text (pyagentd-passage beg end (pyagentd-add--root session))
                       session)
    (deactivate-mark)
    (pyagentd-add--done (pyagentd-count (count-lines beg end) "line") session)))

;;;###autoload
(defun pyagentd-add-buffer (&optional ask)
  "Add this buffer to the prompt of a session.
Of a file that the session's project has, only the name is put there: the
agent reads it.  Of any other buffer it is the text.  With a prefix
argument, or ASK from Lisp, ask which session."
  (interactive "P")
  (let* ((session (pyagentd-add--session ask))
         (root (pyagentd-add--root session)))
    (if (and buffer-file-name root (file-in-directory-p buffer-file-name root))
        (pyagentd-add--files (list buffer-file-name) session)
      (pyagentd-add--check-size (point-min) (point-max))
      (pyagentd-add-text (pyagentd-passage (point-min) (point-max) root)
                         session)
      (pyagentd-add--done (buffer-name) session))))

(defun pyagentd-add--files (files session)
  "Put the names of FILES into the prompt in the buffer SESSION."
  (pyagentd-add-text
   (mapconcat (lambda (file) (pyagentd-add--file file session)) files "\n")
   session)
  (pyagentd-add--done (if (cdr files) (format "%d files" (length files))
                        (file-name-nondirectory
                         (directory-file-name (car files))))
                      session))

(defun pyagentd-add--file (file session)
  "Return how a prompt in the buffer SESSION has FILE.
One of the project is named; a picture, or one from elsewhere, which the
agent may not read there, is copied into the session."
  (let ((root (pyagentd-add--root session)))
    (if (or (file-directory-p file)
            (and root (file-in-directory-p file root)
                 (not (string-match-p (image-file-name-regexp) file))))
        (concat "@" (pyagentd-passage-name file root))
      (with-current-buffer session
        (pyagentd-media-link file)))))

(defun pyagentd-add-read-file (prompt)
  "Read the name of a file with PROMPT; from a session, one of its project."
  (let ((root (bound-and-true-p pyagentd-attach-root)))
    (expand-file-name
     (read-file-name prompt (and root (file-name-as-directory root)) nil t))))

;;;###autoload
(defun pyagentd-add-files (files &optional ask)
  "Add FILES to the prompt of a session: names, and pictures as pictures.
In Dired these are the marked files, elsewhere one that is asked for.
With a prefix argument, or ASK from Lisp, ask which session."
  (interactive
   (list (if (derived-mode-p 'dired-mode) (dired-get-marked-files)
           (list (pyagentd-add-read-file "File: ")))
         current-prefix-arg))
  (pyagentd-add--files files (pyagentd-add--session ask)))

;;;; Diagnostics

(defun pyagentd-add--diagnostic (found)
  "Return FOUND, see `pyagentd-diagnostics', as a line of a prompt."
  (format "- line %d: %s (%s)" (plist-get found :line) (plist-get found :text)
          (plist-get found :level)))

;;;###autoload
(defun pyagentd-add-diagnostics (beg end &optional ask)
  "Add the diagnostics of Flymake or Flycheck to the prompt of a session.
That is in the region, from BEG to END, if it is active, else in the whole
buffer.  With a prefix argument, or ASK from Lisp, ask which session."
  (interactive (list (if (use-region-p) (region-beginning) (point-min))
                     (if (use-region-p) (region-end) (point-max))
                     current-prefix-arg))
  (let ((found (pyagentd-diagnostics beg end))
        (session (pyagentd-add--session ask)))
    (unless found
      (user-error (if (pyagentd-diagnostics-on-p) "No diagnostics here"
                    "Neither Flymake nor Flycheck is enabled here")))
    (pyagentd-add-text
     (format "Diagnostics of %s:\n\n%s"
             (pyagentd-passage-origin (pyagentd-add--root session))
             (mapconcat #'pyagentd-add--diagnostic found "\n"))
     session)
    (pyagentd-add--done (pyagentd-count (length found) "diagnostic") session)))

;;;###autoload
(defun pyagentd-add (&optional ask)
  "Add the region, file or buffer to the prompt of a session.
That is the region if it is active, the marked files in Dired, else the
buffer.  With a prefix argument, or ASK from Lisp, ask which session."
  (interactive "P")
  (cond ((use-region-p)
         (pyagentd-add-region (region-beginning) (region-end) ask))
        ((derived-mode-p 'dired-mode)
         (pyagentd-add-files (dired-get-marked-files) ask))
        (t (pyagentd-add-buffer ask))))

;;;; Asking at once

;;;###autoload
(defun pyagentd-ask-about (question &optional ask)
  "Send QUESTION about the region, or about this buffer, to a session.
The answer comes there; what you are writing there stays.  With a prefix
argument, or ASK from Lisp, ask which session."
  (interactive (list (read-string "Question: " nil 'pyagentd-question-history)
                     current-prefix-arg))
  (when (string-blank-p question) (user-error "The question is empty"))
  (let* ((session (pyagentd-add--session ask))
         (root (pyagentd-add--root session))
         (about (cond ((use-region-p)
                       (pyagentd-add--check-size (region-beginning)
                                                 (region-end))
                       (pyagentd-passage (region-beginning) (region-end) root))
                      (buffer-file-name
                       (concat "@" (pyagentd-passage-name buffer-file-name
                                                          root)))
                      (t (pyagentd-add--check-size (point-min) (point-max))
                         (pyagentd-passage (point-min) (point-max) root)))))
    (deactivate-mark)
    (display-buffer session)
    (pyagentd-start
     (lambda ()
       (when (buffer-live-p session)
         (with-current-buffer session
           (save-restriction
             (widen)
             (pyagentd-add--above (concat question "\n\n" about))
             (pyagentd-send))))))))

(defun pyagentd-add--above (text)
  "Put TEXT as a prompt above what is being written; leave point behind it."
  (pyagentd-viewing-check)
  (deactivate-mark)
  (if-let ((draft (pyagentd-turns-draft))
           (answered (pyagentd-turns-answered)))
      (progn
        (delete-region answered (car draft))
        (goto-char answered)
        (insert (if (bobp) "" "\n\n")
                (if (pyagentd-place-agent-p) "" pyagentd-prompt-prefix)
                text)
        (save-excursion (insert "\n\n")))
    (pyagentd-add-text text)
    (skip-chars-backward "\n")
    (delete-region (point) (point-max))))

;;;; A keymap of your own

;;;###autoload (autoload 'pyagentd-command-map "pyagentd-add" nil nil 'keymap)
(defvar pyagentd-command-map
  (let ((map (make-sparse-keymap)))
    (define-key map "a" #'pyagentd-add)
    (define-key map "r" #'pyagentd-add-region)
    (define-key map "b" #'pyagentd-add-buffer)
    (define-key map "f" #'pyagentd-add-files)
    (define-key map "d" #'pyagentd-add-diagnostics)
    (define-key map "?" #'pyagentd-ask-about)
    (define-key map "s" #'pyagentd-session)
    (define-key map "l" #'pyagentd-sessions)
    (define-key map "/" #'pyagentd-search)
    (define-key map "q" #'pyagentd-asks)
    (define-key map "m" #'pyagentd-menu)
    map)
  "Commands for any buffer, to be bound to a prefix key of yours.
For instance (global-set-key (kbd \"C-c a\") \\='pyagentd-command-map).")

(fset 'pyagentd-command-map pyagentd-command-map)

(provide 'pyagentd-add)
;;; pyagentd-add.el ends here

;;; pyagentd-mission-trace.el --- Missions, turn by turn -*- lexical-binding: t; -*-

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

;; An outline that grows while a mission runs: turns, programs, the tools
;; that they called, what came of it, tokens and time, and the value.  It is
;; looked at again when the status of the session has changed.  Looking at a
;; trace never runs anything again.

;;; Code:

(require 'cl-lib)
(require 'outline)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-session)
(require 'pyagentd-here)
(require 'pyagentd-status)
(require 'pyagentd-mission-text)
(require 'pyagentd-mission-fold)

(declare-function pyagentd-asks "pyagentd-asks")

(defvar-local pyagentd-mission-trace--branch nil
  "The branch whose missions are shown, as on the wire.")
(defvar-local pyagentd-mission-trace--shown nil
  "The JSON that is shown, nil before any has come.")
(defvar-local pyagentd-mission-trace--report nil
  "What that JSON says, as alists and lists.")
(defvar-local pyagentd-mission-trace--timer nil
  "Timer that looks again, or nil.")
(defvar-local pyagentd-mission-trace--asking nil
  "Non-nil while an answer of the daemon is awaited.")
(defvar-local pyagentd-mission-trace--stale nil
  "Non-nil if more has happened than was asked for.")

(defvar pyagentd-mission-trace--buffers nil
  "The buffers that show missions.")

(defvar pyagentd-mission-trace--pause 0.3
  "Seconds to wait for more to happen before a mission is looked at again.")

;;;; The daemon

(defun pyagentd-mission-trace--look ()
  "Ask the daemon what there is to show in this buffer."
  (unless pyagentd-mission-trace--asking
    (setq pyagentd-mission-trace--asking t
          pyagentd-mission-trace--stale nil)
    (pyagentd-later-here
     'mission-trace (list :branch pyagentd-mission-trace--branch)
     (lambda (answer)
       (setq pyagentd-mission-trace--asking nil)
       (pyagentd-mission-trace--show (pyagentd-json-text answer))
       (pyagentd-mission-trace--follow)
       (pyagentd-mission-trace--soon))
     nil
     (lambda (err)
       (setq pyagentd-mission-trace--asking nil)
       (pyagentd-later-tell err)))))

(defun pyagentd-mission-trace--running-p ()
  "Return non-nil if the last mission shown here goes on."
  (equal "running" (alist-get 'state (pyagentd-mission-trace--last))))

(defun pyagentd-mission-trace--last ()
  "Return the last mission shown here, an alist, or nil."
  (car (last (alist-get 'missions pyagentd-mission-trace--report))))

;;;; What happens

(defun pyagentd-mission-trace--follow ()
  "Have the session whose mission runs here open: what happens is told there."
  (let ((file (pyagentd-place-conversation pyagentd-mission-trace--branch)))
    (when (and (or (pyagentd-mission-trace--running-p)
                   (null (alist-get 'missions pyagentd-mission-trace--report)))
               (not (pyagentd-place-buffer pyagentd-mission-trace--branch))
               (file-exists-p file))
      (find-file-noselect file))))

(defun pyagentd-mission-trace--on-status ()
  "Look again in a moment where missions of this session are shown."
  (dolist (buffer pyagentd-mission-trace--buffers)
    (when (and (buffer-live-p buffer)
               (equal pyagentd--branch-dir
                      (buffer-local-value 'pyagentd-mission-trace--branch
                                          buffer)))
      (with-current-buffer buffer
        (setq pyagentd-mission-trace--stale t)
        (pyagentd-mission-trace--soon)))))

(defun pyagentd-mission-trace--soon (&rest _)
  "Look again in a moment if more has happened and somebody sees it."
  (when (and pyagentd-mission-trace--stale
             (null pyagentd-mission-trace--timer)
             (get-buffer-window nil t))
    (setq pyagentd-mission-trace--timer
          (run-at-time pyagentd-mission-trace--pause nil
                       #'pyagentd-mission-trace--on-timer (current-buffer)))))

(defun pyagentd-mission-trace--on-timer (buffer)
  "Look again in BUFFER."
  (pyagentd-later-in buffer
    (setq pyagentd-mission-trace--timer nil)
    (when (pyagentd-rpc-connected-p)
      (pyagentd-mission-trace--look))))

(defun pyagentd-mission-trace--on-window (window)
  "Look again in WINDOW if it shows missions that went on unseen."
  (with-current-buffer (window-buffer window)
    (pyagentd-mission-trace--soon)))

(add-hook 'pyagentd-status-changed-hook #'pyagentd-mission-trace--on-status)

;;;; The outline

(defun pyagentd-mission-trace--show (text)
  "Show the report in TEXT, JSON; point and what is folded stay."
  (unless (equal text pyagentd-mission-trace--shown)
    (let ((folded (pyagentd-mission-fold-state))
          (place (pyagentd-mission-fold-place))
          (inhibit-read-only t))
      (setq pyagentd-mission-trace--shown text
            pyagentd-mission-trace--report (pyagentd-json-parse text))
      (erase-buffer)
      (pyagentd-mission-text-insert pyagentd-mission-trace--report)
      (pyagentd-mission-fold folded)
      (pyagentd-mission-fold-go-to place)
      (set-buffer-modified-p nil)))
  (force-mode-line-update))

;;;; Commands

(defun pyagentd-mission-visit ()
  "Go to what is at point: an agent's trace, else the conversation.
Nothing is run again."
  (interactive nil pyagentd-mission-mode)
  (if-let ((branch (get-text-property (point) 'pyagentd-mission-branch)))
      (pyagentd-mission-trace-open branch (file-name-nondirectory branch))
    (find-file-other-window
     (or (alist-get 'file (alist-get 'session pyagentd-mission-trace--report))
         (user-error "Nothing is known of this session yet")))))

(defun pyagentd-mission-copy ()
  "Copy the value of the last mission, as JSON."
  (interactive nil pyagentd-mission-mode)
  (kill-new (or (alist-get 'text (pyagentd-mission-trace--last))
                (user-error "There is no value")))
  (message "Copied"))

(defun pyagentd-mission-stop ()
  "Stop the mission that runs here; what it did is kept."
  (interactive nil pyagentd-mission-mode)
  (unless (pyagentd-mission-trace--running-p)
    (user-error "No mission runs here"))
  (pyagentd-later-here 'abort (list :branch pyagentd-mission-trace--branch)
                       #'pyagentd-mission-trace--look-anew))

(defun pyagentd-mission-resume ()
  "Go on with a mission that was stopped, behind its last program."
  (interactive nil pyagentd-mission-mode)
  (pyagentd-later-here 'mission-resume
                       (append (list :branch pyagentd-mission-trace--branch)
                               (pyagentd-mission-trace-caller))
                       #'pyagentd-mission-trace--look-anew))

(defun pyagentd-mission-trace--look-anew (&rest _)
  "Look again, whether or not an answer is awaited."
  (setq pyagentd-mission-trace--asking nil)
  (pyagentd-mission-trace--look))

;;;; The mode

(defvar pyagentd-mission-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-mission-visit)
    (define-key map (kbd "TAB") #'outline-cycle)
    (define-key map (kbd "<backtab>") #'outline-cycle-buffer)
    (define-key map "n" #'outline-next-visible-heading)
    (define-key map "p" #'outline-previous-visible-heading)
    (define-key map "a" #'pyagentd-asks)
    (define-key map "c" #'pyagentd-mission-resume)
    (define-key map "k" #'pyagentd-mission-stop)
    (define-key map "w" #'pyagentd-mission-copy)
    map)
  "Keymap of `pyagentd-mission-mode'.")

(define-derived-mode pyagentd-mission-mode special-mode "Mission"
  "Major mode for the trace of missions.

\\{pyagentd-mission-mode-map}"
  (setq-local outline-regexp "\\*+ ")
  (setq-local mode-line-process
              '(:eval (and (pyagentd-mission-trace--running-p) " running")))
  (outline-minor-mode)
  (cl-pushnew (current-buffer) pyagentd-mission-trace--buffers)
  (add-hook 'kill-buffer-hook #'pyagentd-mission-trace--forget nil t)
  (add-hook 'window-buffer-change-functions #'pyagentd-mission-trace--on-window
            nil t)
  (setq-local revert-buffer-function #'pyagentd-mission-trace--look-anew))

(defun pyagentd-mission-trace--forget ()
  "Look no more."
  (setq pyagentd-mission-trace--buffers
        (delq (current-buffer) pyagentd-mission-trace--buffers))
  (when (timerp pyagentd-mission-trace--timer)
    (cancel-timer pyagentd-mission-trace--timer)))

(defun pyagentd-mission-trace-open (branch name)
  "Show the missions of BRANCH, a session called NAME; return the buffer."
  (let ((buffer (get-buffer-create (format "*pyagentd mission %s*" name))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-mission-mode)
        (pyagentd-mission-mode))
      (setq pyagentd-mission-trace--branch branch)
      (revert-buffer))
    (pop-to-buffer buffer)
    buffer))

(defun pyagentd-mission-trace-caller ()
  "Return the plist with the environment and the key of whoever asks."
  (list :env (pyagentd-env-variables) :key (pyagentd-env-key)))

(defun pyagentd-mission-trace ()
  "Show the missions of the session here, turn by turn."
  (interactive)
  (let ((here (pyagentd-here)))
    (pyagentd-mission-trace-open (plist-get here :branch)
                            (plist-get here :session-id))))

(provide 'pyagentd-mission-trace)
;;; pyagentd-mission-trace.el ends here

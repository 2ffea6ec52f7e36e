;;; pyagentd-asks.el --- Pending approvals and questions -*- lexical-binding: t; -*-

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

;; Everything that the daemon asks, of all sessions, in a list from which
;; each can be answered; and one of it whole, in a buffer of its own.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-here)
(require 'pyagentd-ask)
(require 'pyagentd-list)

(defconst pyagentd-asks--also '(("v" "conversation"))
  "Keys where asks are listed that decide nothing, with their words.")

(defun pyagentd-asks-visit ()
  "Visit the conversation that asks what is at point."
  (interactive)
  (let ((ask (pyagentd-answer-current)))
    (find-file-other-window
     (pyagentd-place-conversation (plist-get ask :branch)))))

;;;; One ask

(defvar pyagentd-ask-show-mode-map
  (let ((map (pyagentd-ask-keys-define (make-sparse-keymap))))
    (define-key map "o" nil)
    (define-key map "n" #'pyagentd-deny)
    (define-key map "v" #'pyagentd-asks-visit)
    map)
  "Keymap of `pyagentd-ask-show-mode'.")

(define-derived-mode pyagentd-ask-show-mode special-mode "Asked"
  "Major mode for something that is asked, shown whole.

\\{pyagentd-ask-show-mode-map}"
  (visual-line-mode))

(defun pyagentd-asks--insert (ask)
  "Insert all that there is to see about ASK."
  (pyagentd-ask-text-unbounded
    (insert (pyagentd-ask-text-head ask 0 1)
            (propertize (format "%s\n\n" (abbreviate-file-name
                                          (or (plist-get ask :branch) "")))
                        'face 'shadow)
            (pyagentd-ask-text ask)
            (pyagentd-ask-text-details ask)))
  (when-let ((input (plist-get ask :input)))
    (insert "\n" (propertize "Arguments\n" 'face 'pyagentd-heading)
            (pyagentd-ask-text-json input) "\n"))
  (insert "\n" (pyagentd-table-keys
                (append (pyagentd-ask-keys-words ask '(pyagentd-ask-show))
                        pyagentd-asks--also)) "\n"))

(defun pyagentd-ask-show (&optional ask)
  "Show the details of ASK, by default the question here.
With ASK, from Lisp, its window is not selected."
  (interactive)
  (let ((selected (null ask))
        (ask (or ask (pyagentd-answer-current))))
    (with-current-buffer (get-buffer-create "*pyagentd ask*")
      (pyagentd-ask-show-mode)
      (pyagentd-ask-here-set ask nil " (answered)   q close" t)
      (let ((inhibit-read-only t))
        (erase-buffer)
        (pyagentd-asks--insert ask))
      (goto-char (point-min))
      (pyagentd-ask-here-display selected))))

;;;; The list

(defun pyagentd-asks--session (ask)
  "Return what to call the session whose tree asks ASK."
  (let* ((root (pyagentd-ask-root (or (plist-get ask :branch) "/")))
         (buffer (pyagentd-place-buffer root)))
    (or (and buffer (buffer-local-value 'pyagentd-status-title buffer))
        (plist-get (pyagentd-place-of (pyagentd-place-conversation root))
                   :session-id)
        "")))

(defun pyagentd-asks--when (ask)
  "Return when ASK was asked, which stays true however long it is shown."
  (if-let ((time (pyagentd-here-time (plist-get ask :created-at))))
      (format-time-string "%m-%d %R" time)
    ""))

(defun pyagentd-asks--entry (ask)
  "Return the line of ASK for `tabulated-list-entries'."
  (list (pyagentd-ask-id ask)
        (vector (pyagentd-asks--when ask)
                (propertize (or (pyagentd-ask-who ask) "") 'face 'bold)
                (propertize (truncate-string-to-width
                             (pyagentd-ask-what ask) 200 nil nil "…")
                            'face (if (pyagentd-ask-answered-p ask) 'shadow
                                    'pyagentd-heading))
                (propertize (pyagentd-asks--session ask) 'face 'shadow))))

(defun pyagentd-asks--print ()
  "Show what is asked and leave point where it was."
  (setq pyagentd-table-rows (pyagentd-ask-open))
  (pyagentd-table-print (mapcar #'pyagentd-asks--entry pyagentd-table-rows)))

(defun pyagentd-asks--fetch ()
  "Ask the daemon what is asked; it is shown when it comes."
  (pyagentd-table-fetch 'asks nil
                        (lambda (answer)
                          (pyagentd-ask-receive-all (plist-get answer :asks))
                          (pyagentd-asks--print))))

(defun pyagentd-asks--revert (&rest _)
  "Fetch what is asked again."
  (pyagentd-table-ask #'pyagentd-asks--fetch))

(defun pyagentd-asks--on-change ()
  "Show what has changed."
  (when-let ((buffer (get-buffer "*pyagentd asks*")))
    (with-current-buffer buffer
      (pyagentd-asks--print))))

(defun pyagentd-asks--at-point ()
  "Return the ask at point, or nil."
  (pyagentd-ask-find (tabulated-list-get-id)))

;;;; Several at once

(defconst pyagentd-asks--named 3
  "How many asks a question about several names.")

(defun pyagentd-asks--names (asks)
  "Return in words which ASKS are answered together."
  (let ((more (- (length asks) pyagentd-asks--named)))
    (concat (mapconcat (lambda (ask)
                         (truncate-string-to-width (pyagentd-ask-title ask) 40
                                                   nil nil "…"))
                       (seq-take asks pyagentd-asks--named) "; ")
            (if (> more 0) (format "; and %d more" more) ""))))

(defun pyagentd-asks--each (asks decision question)
  "Answer all ASKS with DECISION if the user says yes to QUESTION.
How many they are, and which, goes in there."
  (let ((asks (or (seq-remove #'pyagentd-ask-answered-p asks)
                  (user-error
                   "Already answered; the daemon has yet to say so"))))
    (when (y-or-n-p (format question (pyagentd-count (length asks) "action")
                            (pyagentd-asks--names asks)))
      (pyagentd-table-forget-marks)
      (dolist (ask asks)
        (pyagentd-answer-with ask decision)))))

(defun pyagentd-asks-allow ()
  "Allow once what is marked, else what is asked for at point.
Questions of the model's are answered one by one, in a form."
  (interactive nil pyagentd-asks-mode)
  (if-let ((marked (pyagentd-table-marked #'pyagentd-ask-id)))
      (pyagentd-asks--each
       (or (seq-remove #'pyagentd-ask-question-p marked)
           (user-error "Questions are marked, which are answered one by one; \
U takes the marks away"))
       'allow "Allow %s once (%s)? ")
    (call-interactively #'pyagentd-allow-once)))

(defun pyagentd-asks-deny ()
  "Deny what is marked, else what is asked for at point, after a question."
  (interactive nil pyagentd-asks-mode)
  (pyagentd-asks--each (or (pyagentd-table-marked #'pyagentd-ask-id)
                           (list (pyagentd-answer-current)))
                       'deny "Deny %s (%s)? "))

;;;; The mode

(defvar pyagentd-asks-mode-map
  (let ((map (pyagentd-ask-keys-define (make-sparse-keymap))))
    (define-key map (kbd "RET") #'pyagentd-ask-show)
    (define-key map "v" #'pyagentd-asks-visit)
    (define-key map "y" #'pyagentd-asks-allow)
    (define-key map "d" #'pyagentd-asks-deny)
    (pyagentd-table-define-marks map))
  "Keymap of `pyagentd-asks-mode'.")

(define-derived-mode pyagentd-asks-mode pyagentd-table-mode "Asks"
  "Major mode for the list of pending approvals and questions.

\\{pyagentd-asks-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Asked" 11 nil) ("Agent" 24 t) ("What" 60 t)
                               ("Session" 0 t)]
        pyagentd-table-help `(,@(pyagentd-ask-keys-words)
                              ,@pyagentd-asks--also ("m" "mark"))
        pyagentd-table-empty "No pending approvals."
        pyagentd-ask-function #'pyagentd-asks--at-point)
  (setq-local revert-buffer-function #'pyagentd-asks--revert)
  (pyagentd-list-follow #'pyagentd-asks--fetch)
  (add-hook 'pyagentd-ask-changed-hook #'pyagentd-asks--on-change)
  (tabulated-list-init-header))

(defun pyagentd-asks ()
  "List pending approvals and questions of all sessions."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd asks*")))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-asks-mode)
        (pyagentd-asks-mode))
      (pyagentd-asks--print)
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-asks)
;;; pyagentd-asks.el ends here

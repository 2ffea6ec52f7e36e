;;; pyagentd-notify.el --- Tell what waits, and what is done -*- lexical-binding: t; -*-

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

;; Whoever does not see the notice of a question is told in the echo area
;; that something is asked; whoever does not look at Emacs, on the desktop.
;; There also, if wanted, that a run has finished.  What comes within a
;; moment is told at once.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-rpc)
(require 'pyagentd-status)
(require 'pyagentd-ask)
(require 'pyagentd-ask-words)
(require 'pyagentd-ask-notice)
(require 'pyagentd-desktop)
(require 'pyagentd-lighter)

(defvar pyagentd-run-finished-functions)

(defcustom pyagentd-notify-desktop 'background
  "When to show desktop notifications of approvals and finished runs.
nil means never, `background' when no frame of Emacs has the focus, and t
always.  This needs D-Bus; for other desktops see
`pyagentd-notify-functions'."
  :type '(choice (const :tag "Never" nil)
                 (const :tag "When Emacs is in the background" background)
                 (const :tag "Always" t))
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-notify-finished nil
  "Whether to show a desktop notification when a run finishes or fails.
`pyagentd-notify-desktop' says when.  Only runs of open conversations are
notified of, not those of their agents."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defvar pyagentd-notify-functions nil
  "Functions called with a title and a text when the desktop is told.
They are for desktops that Emacs cannot tell, such as that of a Mac, and
are called without one, too.")

(defconst pyagentd-notify--pause 0.5
  "Seconds in which what happens is told at once.")

(defvar pyagentd-notify--asked nil
  "Asks that came since the desktop was told.")
(defvar pyagentd-notify--finished nil
  "Runs that finished since, newest first: a list of (BUFFER . PLIST).")
(defvar pyagentd-notify--timer nil
  "Timer that tells it, or nil.")

;;;; Who looks at Emacs

(defun pyagentd-notify--focused-p ()
  "Return non-nil unless Emacs knows that none of its frames has the focus."
  (seq-some (lambda (frame)
              (and (not (equal "initial_terminal"
                               (terminal-name (frame-terminal frame))))
                   (frame-focus-state frame)))
            (frame-list)))

(defun pyagentd-notify--wanted-p ()
  "Return non-nil if the desktop is to be told now."
  (or (eq pyagentd-notify-desktop t)
      (and pyagentd-notify-desktop (not (pyagentd-notify--focused-p)))))

;;;; On the desktop

(defun pyagentd-notify--soon ()
  "Tell the desktop in a moment what came."
  (unless pyagentd-notify--timer
    (setq pyagentd-notify--timer
          (run-at-time pyagentd-notify--pause nil #'pyagentd-notify--tell))))

(defun pyagentd-notify--tell ()
  "Tell the desktop what came, unless somebody looks at Emacs by now."
  (let ((asked pyagentd-notify--asked) (finished pyagentd-notify--finished))
    (setq pyagentd-notify--timer nil
          pyagentd-notify--asked nil
          pyagentd-notify--finished nil)
    (when (pyagentd-notify--wanted-p)
      (when (seq-some (lambda (ask) (pyagentd-ask-find (pyagentd-ask-id ask)))
                      asked)
        (pyagentd-notify--tell-asks
         (seq-remove #'pyagentd-ask-answered-p (pyagentd-ask-open))))
      (when-let ((finished (seq-filter (lambda (run) (buffer-live-p (car run)))
                                       finished)))
        (pyagentd-notify--tell-finished finished)))))

(defun pyagentd-notify--show (name title lines visit)
  "Show the notification NAME with TITLE and LINES; a click does VISIT."
  (let ((text (string-join (append (seq-take lines 4)
                                   (and (nthcdr 4 lines) '("…")))
                           "\n")))
    (pyagentd-desktop-show
     name title text
     (lambda ()
       (select-frame-set-input-focus (selected-frame))
       (funcall visit)))
    (run-hook-with-args 'pyagentd-notify-functions title text)))

(defun pyagentd-notify--tell-asks (asks)
  "Tell the desktop that ASKS wait."
  (when asks
    (pyagentd-notify--show
     'asks
     (if (cdr asks) (format "%d questions wait" (length asks))
       (format "%s asks" (or (pyagentd-ask-who (car asks)) "The agent")))
     (mapcar (lambda (ask)
               (truncate-string-to-width
                (if (cdr asks) (pyagentd-ask-title ask) (pyagentd-ask-what ask))
                200 nil nil "…"))
             asks)
     (if (cdr asks) (lambda () (call-interactively 'pyagentd-asks))
       (lambda () (pyagentd-notify--visit (car asks)))))))

(defun pyagentd-notify--visit (ask)
  "Show the conversation in which ASK is asked, else the list of asks."
  (if-let ((buffer (car (last (pyagentd-ask-buffers ask)))))
      (pop-to-buffer buffer)
    (call-interactively 'pyagentd-asks)))

(defun pyagentd-notify--tell-finished (runs)
  "Tell the desktop that RUNS, a list of (BUFFER . PLIST), have finished."
  (pyagentd-notify--show
   'finished
   (cond ((cdr runs) (format "%d runs have finished" (length runs)))
         ((pyagentd-notify--failed-p (cdar runs)) "The run has failed")
         (t "The run has finished"))
   (mapcar #'pyagentd-notify--run-words runs)
   (let ((buffer (caar runs)))
     (lambda () (when (buffer-live-p buffer) (pop-to-buffer buffer))))))

(defun pyagentd-notify--failed-p (run)
  "Return non-nil if RUN, a plist, has failed."
  (eq 'error (pyagentd-symbol (plist-get run :reason))))

(defun pyagentd-notify--run-words (entry)
  "Return a line about ENTRY, a buffer and the plist of its run."
  (pcase-let ((`(,buffer . ,run) entry))
    (concat (with-current-buffer buffer
              (or pyagentd-status-title pyagentd--session-id (buffer-name)))
            (and (pyagentd-notify--failed-p run)
                 (format ": %s" (or (plist-get run :message) "error"))))))

;;;; What happens

(defun pyagentd-notify (ask)
  "Tell a person who does not see it that ASK waits for an answer."
  (unless (seq-some #'pyagentd-ask-notice-visible-p (pyagentd-ask-buffers ask))
    (message "Allow %s?  (%s answers)" (pyagentd-ask-title ask)
             (substitute-command-keys "\\[pyagentd-answer]")))
  (push ask pyagentd-notify--asked)
  (pyagentd-notify--soon))

(defun pyagentd-notify-run (run)
  "Tell a person who is elsewhere that RUN, a plist, of this buffer is over."
  (when (and pyagentd-notify-finished
             (not (pyagentd-place-agent-p))
             (not (eq 'aborted (pyagentd-symbol (plist-get run :reason)))))
    (push (cons (current-buffer) run) pyagentd-notify--finished)
    (pyagentd-notify--soon)))

(defun pyagentd-notify-settled (ask answer)
  "Say how somebody else has answered ASK; ANSWER has :decision and :by."
  (let ((by (plist-get answer :by)))
    (unless (member by '(nil ""))
      (message "%s by %s: %s"
               (pcase (pyagentd-symbol (plist-get answer :decision))
                 ('deny "Denied") ('abort "Stopped") (_ "Allowed"))
               by (pyagentd-ask-title ask)))))

(defun pyagentd-notify--withdraw ()
  "Close the notification about questions when none waits any more."
  (unless (pyagentd-ask-open)
    (pyagentd-desktop-hide 'asks)))

(defun pyagentd-notify--on-focus ()
  "Close what is shown on the desktop when somebody looks at Emacs."
  (when (eq t (pyagentd-notify--focused-p))
    (pyagentd-desktop-hide 'asks)
    (pyagentd-desktop-hide 'finished)))

(defun pyagentd-notify--watch ()
  "Have the daemon tell of all questions, in whatever conversation."
  (pyagentd-rpc-call-async
   'asks '(:watch t)
   :success (lambda (answer)
              (pyagentd-ask-receive-all (plist-get answer :asks)))
   :error #'ignore))

(add-hook 'pyagentd-ask-new-functions #'pyagentd-notify)
(add-hook 'pyagentd-ask-settled-functions #'pyagentd-notify-settled)
(add-hook 'pyagentd-ask-changed-hook #'pyagentd-notify--withdraw)
(add-hook 'pyagentd-run-finished-functions #'pyagentd-notify-run)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-notify--watch)
(add-function :after after-focus-change-function #'pyagentd-notify--on-focus)

(provide 'pyagentd-notify)
;;; pyagentd-notify.el ends here

;;; pyagentd-notify.el --- Say that something is asked while nobody looks -*- lexical-binding: t; -*-

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

;; Whoever does not look at the conversation is told in the echo area that
;; something is asked; whoever does not look at Emacs, on the desktop if
;; `pyagentd-notify-desktop' says so.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-ask)
(require 'pyagentd-ask-words)
(require 'pyagentd-ask-notice)

(declare-function notifications-notify "notifications")

(defcustom pyagentd-notify-desktop nil
  "When to tell on the desktop that an agent asks for something.
nil means never, `background' when no frame of Emacs has the focus, and t
always.  It needs a desktop with D-Bus notifications."
  :type '(choice (const :tag "Never" nil)
                 (const :tag "When Emacs is in the background" background)
                 (const :tag "Always" t))
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defconst pyagentd-notify--patience 1
  "Seconds to wait for the desktop.")

(defvar pyagentd-notify--shown nil
  "Alist of ids of asks and the notifications about them.")

(defun pyagentd-notify--in-background-p ()
  "Return non-nil if Emacs knows that none of its frames has the focus."
  (not (seq-some #'frame-focus-state (frame-list))))

(defun pyagentd-notify--visit (ask)
  "Show the conversation in which ASK is asked, else the list of asks."
  (select-frame-set-input-focus (selected-frame))
  (if-let ((buffer (car (last (pyagentd-ask-buffers ask)))))
      (pop-to-buffer buffer)
    (call-interactively 'pyagentd-asks)))

(defun pyagentd-notify--desktop (ask)
  "Tell about ASK on the desktop."
  (when (and (pyagentd-ask-find (pyagentd-ask-id ask))
             (require 'notifications nil t))
    ;; A desktop that does not answer must not hold up Emacs.
    (with-timeout (pyagentd-notify--patience)
      (when-let ((id (ignore-errors
                       (notifications-notify
                        :app-name "Emacs"
                        :title (format "%s asks" (or (pyagentd-ask-who ask)
                                                     "The agent"))
                        :body (pyagentd-notify--escape (pyagentd-ask-what ask))
                        :actions '("default" "Show")
                        :on-action (lambda (&rest _)
                                     (pyagentd-notify--visit ask))))))
        (push (cons (pyagentd-ask-id ask) id) pyagentd-notify--shown)))))

(defun pyagentd-notify--escape (text)
  "Return TEXT as the body of a notification, which may have markup."
  (string-replace "<" "&lt;"
                  (string-replace "&" "&amp;"
                                  (truncate-string-to-width text 200 nil nil
                                                            "…"))))

(defun pyagentd-notify (ask)
  "Tell a person who does not see it that ASK waits for an answer."
  (unless (seq-some #'pyagentd-ask-notice-visible-p (pyagentd-ask-buffers ask))
    (message "May it? %s  (%s answers)" (pyagentd-ask-title ask)
             (substitute-command-keys "\\[pyagentd-answer]")))
  (when (or (eq pyagentd-notify-desktop t)
            (and pyagentd-notify-desktop (pyagentd-notify--in-background-p)))
    ;; Not here, where events are applied.
    (run-at-time 0 nil #'pyagentd-notify--desktop ask)))

(defun pyagentd-notify-settled (ask answer)
  "Say how somebody else has answered ASK; ANSWER has :decision and :by."
  (let ((by (plist-get answer :by)))
    (unless (member by '(nil ""))
      (message "%s by %s: %s"
               (pcase (pyagentd-symbol (plist-get answer :decision))
                 ('deny "Denied") ('abort "Stopped") (_ "Allowed"))
               by (pyagentd-ask-title ask)))))

(defun pyagentd-notify--withdraw ()
  "Close the notifications about asks that are settled."
  (dolist (entry pyagentd-notify--shown)
    (unless (pyagentd-ask-find (car entry))
      (setq pyagentd-notify--shown (delq entry pyagentd-notify--shown))
      (run-at-time 0 nil #'pyagentd-notify--close (cdr entry)))))

(declare-function notifications-close-notification "notifications")

(defun pyagentd-notify--close (id)
  "Close the notification ID."
  (with-timeout (pyagentd-notify--patience)
    (ignore-errors (notifications-close-notification id))))

(add-hook 'pyagentd-ask-new-functions #'pyagentd-notify)
(add-hook 'pyagentd-ask-settled-functions #'pyagentd-notify-settled)
(add-hook 'pyagentd-ask-changed-hook #'pyagentd-notify--withdraw)

(provide 'pyagentd-notify)
;;; pyagentd-notify.el ends here

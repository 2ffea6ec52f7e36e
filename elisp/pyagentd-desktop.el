;;; pyagentd-desktop.el --- Notifications of the desktop -*- lexical-binding: t; -*-

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

;; A notification has a name here: showing one again changes what it says.
;; Nothing waits for the desktop, which may be slow, or not be there; then
;; nothing is shown, and nothing is said about it.  Specification:
;; <https://specifications.freedesktop.org/notification-spec/latest/>.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)

(declare-function dbus-call-method-asynchronously "dbus")
(declare-function dbus-register-signal "dbus")

(defconst pyagentd-desktop--service "org.freedesktop.Notifications"
  "Name of the service, and of its interface.")

(defconst pyagentd-desktop--path "/org/freedesktop/Notifications"
  "Path of the object that shows notifications.")

(defvar pyagentd-desktop--shown nil
  "What is shown, or about to be: an alist of names and plists.
Their keys are :id, a number, nil as long as the desktop did not tell it;
:then, a function; and :hidden, non-nil if it is to go once it has an id.")

(defvar pyagentd-desktop--listening nil
  "What listens to clicks on notifications, nil for nothing.")

(defun pyagentd-desktop-p ()
  "Return non-nil if there is a desktop that may show notifications."
  (and (featurep 'dbusbind)
       (or (getenv "DBUS_SESSION_BUS_ADDRESS")
           (when-let ((directory (getenv "XDG_RUNTIME_DIR")))
             (file-exists-p (expand-file-name "bus" directory))))
       (require 'dbus nil t)))

(defun pyagentd-desktop--call (method handler &rest arguments)
  "Have the desktop do METHOD with ARGUMENTS; HANDLER gets its answer, or nil."
  (apply #'dbus-call-method-asynchronously :session pyagentd-desktop--service
         pyagentd-desktop--path pyagentd-desktop--service method handler
         arguments))

(defun pyagentd-desktop--text (text)
  "Return TEXT as the body of a notification, which may have markup."
  (thread-last (truncate-string-to-width text 400 nil nil "…")
    (string-replace "&" "&amp;")
    (string-replace "<" "&lt;")))

;;;; Clicks

(defun pyagentd-desktop--clicked (id &rest _)
  "Do what is to be done when the notification ID is clicked."
  (pyagentd-guarded "Notification"
    (when-let ((shown (seq-find (lambda (entry)
                                  (eql id (plist-get (cdr entry) :id)))
                                pyagentd-desktop--shown)))
      (setq pyagentd-desktop--shown (delq shown pyagentd-desktop--shown))
      (funcall (plist-get (cdr shown) :then)))))

(defun pyagentd-desktop--listen ()
  "Hear of clicks from now on."
  (unless pyagentd-desktop--listening
    ;; Only this waits, for the bus itself.
    (with-timeout (0.1)
      (setq pyagentd-desktop--listening
            (dbus-register-signal :session nil pyagentd-desktop--path
                                  pyagentd-desktop--service "ActionInvoked"
                                  #'pyagentd-desktop--clicked)))))

;;;; Showing and hiding

(defun pyagentd-desktop--told (name)
  "Return a function that notes the id of the notification NAME."
  (lambda (id)
    (when-let ((shown (alist-get name pyagentd-desktop--shown)))
      (setf (alist-get name pyagentd-desktop--shown)
            (plist-put shown :id id))
      (when (plist-get shown :hidden)
        (pyagentd-desktop-hide name)))))

(defun pyagentd-desktop-show (name title text then)
  "Show the notification NAME, a symbol, with TITLE and TEXT.
THEN is called when it is clicked.  Without a desktop do nothing."
  (when (pyagentd-desktop-p)
    (pyagentd-guarded "Notification"
      (pyagentd-desktop--listen)
      (let ((id (plist-get (alist-get name pyagentd-desktop--shown) :id)))
        (setf (alist-get name pyagentd-desktop--shown)
              (list :id id :then then))
        (pyagentd-desktop--call
         "Notify" (pyagentd-desktop--told name)
         :string "Emacs" :uint32 (or id 0) :string "emacs"
         :string title :string (pyagentd-desktop--text text)
         '(:array "default" "Show") '(:array :signature "{sv}")
         :int32 -1)))))

(defun pyagentd-desktop-hide (name)
  "Close the notification NAME if it is shown."
  (when-let ((shown (alist-get name pyagentd-desktop--shown)))
    (if-let ((id (plist-get shown :id)))
        (progn
          (setf (alist-get name pyagentd-desktop--shown nil t) nil)
          (pyagentd-guarded "Notification"
            (pyagentd-desktop--call "CloseNotification" nil :uint32 id)))
      (setf (alist-get name pyagentd-desktop--shown)
            (plist-put shown :hidden t)))))

(provide 'pyagentd-desktop)
;;; pyagentd-desktop.el ends here

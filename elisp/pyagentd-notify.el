;;; pyagentd-notify.el --- Notifications of asks and finished runs -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Shows pending asks in mode lines, the echo area and desktop notifications.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-ask)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-status)

;;;; Desktop notifications

;; A notification has a name: showing one with the same name replaces it.
;; All calls are asynchronous, since the desktop may be slow; without one,
;; notifications are dropped silently.  Specification:
;; <https://specifications.freedesktop.org/notification-spec/latest/>.

(declare-function dbus-call-method-asynchronously "dbus")
(declare-function dbus-register-signal "dbus")

(defconst pyagentd-desktop--service "org.freedesktop.Notifications"
  "Name of the service, and of its interface.")

(defconst pyagentd-desktop--path "/org/freedesktop/Notifications"
  "Path of the object that shows notifications.")

(defvar pyagentd-desktop--shown nil
  "The shown notifications: lists (NAME ID FUNCTION).
ID is a number, nil until the desktop has returned it.")

(defvar pyagentd-desktop--listening nil
  "D-Bus registration for clicks on notifications, or nil.")

(defun pyagentd-desktop-p ()
  "Return non-nil if there is a desktop that may show notifications."
  (and (featurep 'dbusbind)
       (or (getenv "DBUS_SESSION_BUS_ADDRESS")
           (when-let ((directory (getenv "XDG_RUNTIME_DIR")))
             (file-exists-p (expand-file-name "bus" directory))))
       (require 'dbus nil t)))

(defun pyagentd-desktop--call (method handler &rest arguments)
  "Call METHOD of the desktop with ARGUMENTS; HANDLER, if any, gets the reply."
  (apply #'dbus-call-method-asynchronously :session pyagentd-desktop--service
         pyagentd-desktop--path pyagentd-desktop--service method handler
         arguments))

(defun pyagentd-desktop--text (text)
  "Return TEXT, truncated and escaped, as the body of a notification."
  (thread-last (truncate-string-to-width text 400 nil nil "…")
               (string-replace "&" "&amp;")
               (string-replace "<" "&lt;")))

(defun pyagentd-desktop--clicked (id &rest _)
  "Call the function of the notification ID, which was clicked."
  (pyagentd-guarded "Notification"
    (pcase (seq-find (lambda (shown) (eql id (nth 1 shown)))
                     pyagentd-desktop--shown)
      ((and shown `(,_ ,_ ,then))
       (setq pyagentd-desktop--shown (delq shown pyagentd-desktop--shown))
       (funcall then)))))

(defun pyagentd-desktop-show (name title text then)
  "Show the notification NAME, a symbol, with TITLE and TEXT.
THEN is called when it is clicked.  Without a desktop do nothing."
  (when (pyagentd-desktop-p)
    (pyagentd-guarded "Notification"
      (unless pyagentd-desktop--listening
        ;; The only synchronous call, to the bus itself.
        (with-timeout (0.1)
          (setq pyagentd-desktop--listening
                (dbus-register-signal :session nil pyagentd-desktop--path
                                      pyagentd-desktop--service "ActionInvoked"
                                      #'pyagentd-desktop--clicked))))
      (let* ((before (assq name pyagentd-desktop--shown))
             (shown (list name (nth 1 before) then)))
        (setq pyagentd-desktop--shown
              (cons shown (delq before pyagentd-desktop--shown)))
        (pyagentd-desktop--call
         "Notify" (lambda (id)
                    (setf (nth 1 shown) id)
                    (unless (memq shown pyagentd-desktop--shown) ; hidden since
                      (pyagentd-desktop--close shown)))
         :string "Emacs" :uint32 (or (nth 1 shown) 0) :string "emacs"
         :string title :string (pyagentd-desktop--text text)
         '(:array "default" "Show") '(:array :signature "{sv}")
         :int32 -1)))))

(defun pyagentd-desktop-hide (name)
  "Close the notification NAME if it is shown."
  (when-let ((shown (assq name pyagentd-desktop--shown)))
    (setq pyagentd-desktop--shown (delq shown pyagentd-desktop--shown))
    (pyagentd-desktop--close shown)))

(defun pyagentd-desktop--close (shown)
  "Close SHOWN, once it has an id."
  (when-let ((id (nth 1 shown)))
    (pyagentd-guarded "Notification"
      (pyagentd-desktop--call "CloseNotification" nil :uint32 id))))

;;;; Pending asks in mode lines

(defcustom pyagentd-lighter t
  "Whether mode lines show the number of pending approvals."
  :type 'boolean
  :group 'pyagentd)

(defvar pyagentd-lighter--text ""
  "Text for mode lines about pending asks.")
(put 'pyagentd-lighter--text 'risky-local-variable t) ; it has a keymap

(defun pyagentd-lighter--refresh ()
  "Show the pending asks in mode lines."
  (let ((asks (and pyagentd-lighter
                   (seq-remove #'pyagentd-ask-answered-p
                               (pyagentd-ask-open)))))
    (setq pyagentd-lighter--text
          (if (null asks) ""
            (concat
             (propertize
              (pyagentd-count (length asks) "ask")
              'face 'warning 'mouse-face 'mode-line-highlight
              'local-map (pyagentd-keymap [mode-line mouse-1] 'pyagentd-asks)
              'help-echo
              (concat (mapconcat (lambda (ask)
                                   (truncate-string-to-width
                                    (pyagentd-ask-title ask) 80 nil nil "…"))
                                 (seq-take asks 8) "\n")
                      "\nmouse-1: M-x pyagentd-asks"))
             " ")))
    (when asks                          ; put it into mode lines
      (unless (consp global-mode-string)
        ;; A list that begins with a symbol would be a condition.
        (setq global-mode-string (list (or global-mode-string ""))))
      (add-to-list 'global-mode-string 'pyagentd-lighter--text t))
    (force-mode-line-update t)))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-lighter--refresh)

;;;; Notify of asks and finished runs

;; If no window shows the notice of an ask, the echo area does; if Emacs
;; does not have the focus, a desktop notification does.  Finished runs are
;; optional there.  Events within half a second share a notification.

(defvar pyagentd-run-finished-functions)

(defcustom pyagentd-notify-desktop 'background
  "When to show desktop notifications of approvals and finished runs.
nil means never, `background' when no frame of Emacs has the focus, and t
always.  This needs D-Bus; for other desktops see
`pyagentd-notify-functions'."
  :type '(choice (const :tag "Never" nil)
                 (const :tag "In the background" background)
                 (const :tag "Always" t))
  :group 'pyagentd)

(defcustom pyagentd-notify-finished nil
  "Whether to show a desktop notification when a run finishes or fails.
`pyagentd-notify-desktop' says when.  This covers the runs of open
conversations, but not those of their agents."
  :type 'boolean
  :group 'pyagentd)

(defvar pyagentd-notify-functions nil
  "Functions called with title and text of each desktop notification.
They are for desktops without D-Bus, such as that of macOS, and are called
there, too.")

(defconst pyagentd-notify--pause 0.5
  "Seconds during which events are collected into one notification.")

(defvar pyagentd-notify--asked nil
  "Asks that arrived since the last desktop notification.")
(defvar pyagentd-notify--finished nil
  "Runs finished since then, newest first: a list of (BUFFER . PLIST).")
(defvar pyagentd-notify--timer nil
  "Timer that shows the desktop notification, or nil.")
(defvar pyagentd-notify--said nil
  "Pair of the last ask's id and its message in the echo area, or nil.")

(defun pyagentd-notify--focused-p ()
  "Return non-nil unless Emacs knows that none of its frames has the focus."
  (seq-some (lambda (frame)
              (and (not (equal "initial_terminal"
                               (terminal-name (frame-terminal frame))))
                   (frame-focus-state frame)))
            (frame-list)))

;;;; On the desktop

(defun pyagentd-notify--soon ()
  "Schedule a desktop notification."
  (unless pyagentd-notify--timer
    (setq pyagentd-notify--timer
          (run-at-time pyagentd-notify--pause nil #'pyagentd-notify--tell))))

(defun pyagentd-notify--tell ()
  "Show desktop notifications of the collected events, if they are wanted now."
  (let ((asked pyagentd-notify--asked) (finished pyagentd-notify--finished))
    (setq pyagentd-notify--timer nil
          pyagentd-notify--asked nil
          pyagentd-notify--finished nil)
    (when (or (eq pyagentd-notify-desktop t)
              (and pyagentd-notify-desktop (not (pyagentd-notify--focused-p))))
      (when (seq-some (lambda (ask) (pyagentd-ask-find (pyagentd-ask-id ask)))
                      asked)
        (pyagentd-notify--tell-asks
         (seq-remove #'pyagentd-ask-answered-p (pyagentd-ask-open))))
      (when-let ((finished (seq-filter (lambda (run) (buffer-live-p (car run)))
                                       finished)))
        (pyagentd-notify--tell-finished finished)))))

(defun pyagentd-notify--show (name title lines visit)
  "Show the notification NAME with TITLE and LINES; a click calls VISIT."
  (let ((text (string-join (append (seq-take lines 4)
                                   (and (nthcdr 4 lines) '("…")))
                           "\n")))
    (pyagentd-desktop-show
     name title text
     (lambda ()
       (select-frame-set-input-focus (selected-frame))
       (funcall visit)))
    (pyagentd-run-functions 'pyagentd-notify-functions title text)))

(defun pyagentd-notify--tell-asks (asks)
  "Show a desktop notification of ASKS."
  (when asks
    (pyagentd-notify--show
     'asks
     (if (cdr asks) (format "%d questions wait" (length asks))
       (format "%s asks" (or (pyagentd-ask-who (car asks)) "The agent")))
     (mapcar (lambda (ask)
               (truncate-string-to-width
                (if (cdr asks) (pyagentd-ask-title ask) (or (plist-get ask :what) ""))
                200 nil nil "…"))
             asks)
     (lambda ()                         ; its conversation, or the list
       (if-let ((buffer (and (null (cdr asks))
                             (car (last (pyagentd-ask-buffers (car asks)))))))
           (pop-to-buffer buffer)
         (call-interactively 'pyagentd-asks))))))

(defun pyagentd-notify--tell-finished (runs)
  "Show a desktop notification that RUNS, (BUFFER . PLIST), have finished."
  (pyagentd-notify--show
   'finished
   (cond ((cdr runs) (format "%d runs have finished" (length runs)))
         ((pyagentd-notify--failed-p (cdar runs)) "The run has failed")
         (t "The run has finished"))
   (mapcar (pcase-lambda (`(,buffer . ,run))
             (concat (with-current-buffer buffer
                       (or pyagentd-status-title pyagentd--session-id
                           (buffer-name)))
                     (and (pyagentd-notify--failed-p run)
                          (format ": %s" (or (plist-get run :message)
                                             "error")))))
           runs)
   (let ((buffer (caar runs)))
     (lambda () (when (buffer-live-p buffer) (pop-to-buffer buffer))))))

(defun pyagentd-notify--failed-p (run)
  "Return non-nil if RUN, a plist, has failed."
  (eq 'error (pyagentd-symbol (plist-get run :reason))))

;;;; Events that are notified of

(defun pyagentd-notify (ask)
  "Notify the user of ASK: on the desktop, and in the echo area if it is hidden."
  (unless (seq-some #'pyagentd-ask-notice-visible-p (pyagentd-ask-buffers ask))
    (setq pyagentd-notify--said
          (cons (pyagentd-ask-id ask)
                (message "Allow %s?  (%s answers)" (pyagentd-ask-title ask)
                         (substitute-command-keys "\\[pyagentd-answer]")))))
  (push ask pyagentd-notify--asked)
  (pyagentd-notify--soon))

(defun pyagentd-notify-run (run)
  "Notify the user on the desktop that RUN, a plist, of this buffer is over."
  (when (and pyagentd-notify-finished
             (not (pyagentd-place-agent-p))
             (not (eq 'aborted (pyagentd-symbol (plist-get run :reason)))))
    (push (cons (current-buffer) run) pyagentd-notify--finished)
    (pyagentd-notify--soon)))

(defun pyagentd-notify-settled (ask answer)
  "Report how another client has answered ASK; ANSWER has :decision and :by."
  (let ((by (plist-get answer :by)))
    (unless (member by '(nil ""))
      (message "%s by %s: %s"
               (pcase (pyagentd-symbol (plist-get answer :decision))
                 ('deny "Denied") ('abort "Stopped") (_ "Allowed"))
               by (pyagentd-ask-title ask)))))

(defun pyagentd-notify--withdraw ()
  "Withdraw the notifications of asks that are no longer pending."
  (when (and pyagentd-notify--said
             (not (pyagentd-ask-find (car pyagentd-notify--said))))
    (when (equal (current-message) (cdr pyagentd-notify--said))
      (message nil))
    (setq pyagentd-notify--said nil))
  (unless (pyagentd-ask-open)
    (pyagentd-desktop-hide 'asks)))

(defun pyagentd-notify--on-focus ()
  "Close the desktop notifications when Emacs gets the focus."
  (when (eq t (pyagentd-notify--focused-p))
    (pyagentd-desktop-hide 'asks)
    (pyagentd-desktop-hide 'finished)))

(defun pyagentd-notify--watch ()
  "Subscribe to the asks of all sessions."
  (pyagentd-rpc-call-async
   'asks '(:watch t)
   :success (pyagentd-events-in-turn
             (lambda (answer)
               (pyagentd-ask-receive-all (plist-get answer :asks))))
   :error #'ignore))

(add-hook 'pyagentd-ask-new-functions #'pyagentd-notify)
(add-hook 'pyagentd-ask-changed-hook #'pyagentd-notify--withdraw)
(add-hook 'pyagentd-run-finished-functions #'pyagentd-notify-run)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-notify--watch)
(add-function :after after-focus-change-function #'pyagentd-notify--on-focus)

(provide 'pyagentd-notify)
;;; pyagentd-notify.el ends here

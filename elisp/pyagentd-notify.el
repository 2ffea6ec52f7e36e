;;; pyagentd-notify.el --- Notices of what waits for the user -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The mode line, notifications of the desktop, and the list of all that waits.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-ask)
(require 'pyagentd-session)
(require 'pyagentd-rpc)
(require 'pyagentd-status)

;;;; Notifications of the desktop

;; A notification has a name here: showing one again changes what it says.
;; Nothing waits for the desktop, which may be slow, or not be there; then
;; nothing is shown, and nothing is said about it.  Specification:
;; <https://specifications.freedesktop.org/notification-spec/latest/>.

(declare-function dbus-call-method-asynchronously "dbus")
(declare-function dbus-register-signal "dbus")

(defconst pyagentd-desktop--service "org.freedesktop.Notifications"
  "Name of the service, and of its interface.")

(defconst pyagentd-desktop--path "/org/freedesktop/Notifications"
  "Path of the object that shows notifications.")

(defvar pyagentd-desktop--shown nil
  "What is shown: lists (NAME ID FUNCTION).
ID is a number, nil as long as the desktop did not tell it.")

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

(defun pyagentd-desktop--clicked (id &rest _)
  "Do what is to be done when the notification ID is clicked."
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
        ;; Only this waits, for the bus itself.
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

;;;; In every mode line that something is asked

(defcustom pyagentd-lighter t
  "Whether mode lines show the number of pending approvals."
  :type 'boolean
  :group 'pyagentd)

(defvar pyagentd-lighter--text ""
  "What mode lines say of questions that wait.")
(put 'pyagentd-lighter--text 'risky-local-variable t) ; it has a keymap

(defun pyagentd-lighter--refresh ()
  "Say in mode lines what waits now."
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
    (when asks                          ; it has a place from now on
      (unless (consp global-mode-string)
        ;; A list that begins with a symbol would be a condition.
        (setq global-mode-string (list (or global-mode-string ""))))
      (add-to-list 'global-mode-string 'pyagentd-lighter--text t))
    (force-mode-line-update t)))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-lighter--refresh)

;;;; Tell what waits, and what is done

;; Whoever does not see the notice of a question is told in the echo area
;; that something is asked; whoever does not look at Emacs, on the desktop.
;; There also, if wanted, that a run has finished.  What comes within a
;; moment is told at once.

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
`pyagentd-notify-desktop' says when.  Only runs of open conversations are
notified of, not those of their agents."
  :type 'boolean
  :group 'pyagentd)

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
(defvar pyagentd-notify--said nil
  "Id of the ask that the echo area told of last, and what it said, or nil.")

(defun pyagentd-notify--focused-p ()
  "Return non-nil unless Emacs knows that none of its frames has the focus."
  (seq-some (lambda (frame)
              (and (not (equal "initial_terminal"
                               (terminal-name (frame-terminal frame))))
                   (frame-focus-state frame)))
            (frame-list)))

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
  "Show the notification NAME with TITLE and LINES; a click does VISIT."
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
  "Tell the desktop that ASKS wait."
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
  "Tell the desktop that RUNS, a list of (BUFFER . PLIST), have finished."
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

;;;; What happens

(defun pyagentd-notify (ask)
  "Tell a person who does not see it that ASK waits for an answer."
  (unless (seq-some #'pyagentd-ask-notice-visible-p (pyagentd-ask-buffers ask))
    (setq pyagentd-notify--said
          (cons (pyagentd-ask-id ask)
                (message "Allow %s?  (%s answers)" (pyagentd-ask-title ask)
                         (substitute-command-keys "\\[pyagentd-answer]")))))
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
  "Tell no longer of questions that do not wait any more."
  (when (and pyagentd-notify--said
             (not (pyagentd-ask-find (car pyagentd-notify--said))))
    (when (equal (current-message) (cdr pyagentd-notify--said))
      (message nil))
    (setq pyagentd-notify--said nil))
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

;;; pyagentd-connect.el --- When session buffers attach and leave -*- lexical-binding: t; -*-

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

;; A buffer attaches soon after its file was read, tells what it saved, and
;; leaves with its buffer.  When the connection ends all of them wait for a
;; daemon, and attach to it.

;;; Code:

(require 'filenotify)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-rpc)
(require 'pyagentd-start)
(require 'pyagentd-session)
(require 'pyagentd-insert)
(require 'pyagentd-overlay)
(require 'pyagentd-ask)
(require 'pyagentd-status)
(require 'pyagentd-viewing)
(require 'pyagentd-attach)

(defcustom pyagentd-start-when-visiting t
  "Non-nil means start the daemon when you visit a session.
It starts in the background; you can read and edit the text meanwhile,
and settings are read from the session's files.  In batch mode, or where
no server is installed, no daemon is started."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

;;;; Buffers

(defun pyagentd-connect--after-read ()
  "Attach the current buffer soon; its file was read just now."
  (pyagentd-attach-forget-fresh)
  (setq pyagentd-attach-state nil
        pyagentd-viewing-diverged nil
        pyagentd-attach-seq nil)
  (pyagentd-status-set nil)
  (pyagentd-status-refresh)
  (run-at-time 0 nil #'pyagentd-connect--visited (current-buffer)))

(defun pyagentd-connect--later (buffer)
  "Attach BUFFER unless that was done meanwhile."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (unless (or pyagentd-attach-state pyagentd-viewing-diverged
                  (eq pyagentd-attach-viewer 'hidden))
        (pyagentd-guarded "Attach" (pyagentd-attach))))))

(defun pyagentd-connect--visited (buffer)
  "Attach BUFFER, whose file was read just now, and start a daemon for it.
`pyagentd-start-when-visiting' says whether."
  (pyagentd-connect--later buffer)
  (when (and pyagentd-start-when-visiting (not noninteractive)
             (buffer-live-p buffer)
             (not (eq (buffer-local-value 'pyagentd-attach-viewer buffer)
                      'hidden))
             (not (pyagentd-rpc-connected-p))
             (pyagentd-server-found))
    ;; All sessions attach when there is a connection.
    (pyagentd-guarded "Starting the daemon" (pyagentd-start #'ignore))))

(defun pyagentd-connect--saved ()
  "Tell the daemon what was saved."
  (when (and pyagentd-viewing-diverged (not pyagentd-session-viewing))
    ;; The user has overwritten what another program wrote.
    (setq pyagentd-viewing-diverged nil)
    (pyagentd-viewing-set nil)
    (pyagentd-connect--later (current-buffer)))
  (when (and (eq pyagentd-attach-state t) (not pyagentd-session-viewing)
             ;; No number says what a partial text has; the next save will.
             (not pyagentd-attach-partial))
    (pyagentd-rpc-call-async
     'saved (list :branch pyagentd--branch-dir
                  :sha256 pyagentd-session-sha256
                  :seq pyagentd-attach-seq
                  ;; Where no run is known to end is no place for another.
                  :marker (and pyagentd-insert--marker
                               (pyagentd-insert-position))))))

(defun pyagentd-connect--leave ()
  "Detach the current buffer.
The daemon may hold it for the one that writes although they do not
agree on its text just now."
  (when (and (> pyagentd-attach--latest 0) (pyagentd-rpc-connected-p))
    (pyagentd-rpc-call-async 'detach (list :branch pyagentd--branch-dir)
                             :error #'ignore))
  (pyagentd-attach-forget-fresh)
  (setq pyagentd-attach-state nil
        pyagentd-viewing-diverged nil
        pyagentd-viewing-refusal nil)
  (pyagentd-viewing-set nil)
  (pyagentd-insert-flush)
  (pyagentd-overlay-forget))

;;;; Connection

;;;###autoload
(defun pyagentd-connect ()
  "Connect this session to the daemon, starting it if necessary."
  (interactive)
  (unless (bound-and-true-p pyagentd-mode) (user-error "Not a session"))
  (let ((buffer (or (buffer-base-buffer) (current-buffer))))
    (pyagentd-start (lambda () (pyagentd-connect--later buffer)))))

(defvar pyagentd-connect--retry nil
  "Timer that looks for a daemon after the connection ended.")

(defvar pyagentd-connect-wanted-functions nil
  "Functions that return non-nil where a daemon is to be looked for.
They are called without arguments after a connection has ended, where no
session is in any buffer.")

(defun pyagentd-connect--wanted-p ()
  "Return non-nil if there is something here that a daemon is needed for."
  (or (pyagentd-place-buffers)
      (run-hook-with-args-until-success 'pyagentd-connect-wanted-functions)))

(defun pyagentd-connect--all ()
  "Attach all session buffers that are not."
  (dolist (buffer (pyagentd-place-buffers))
    (pyagentd-connect--later buffer)))

(defun pyagentd-connect--disconnected ()
  "Show in all session buffers that there is no daemon, and look for one."
  (pyagentd-ask-clear)
  (dolist (buffer (pyagentd-place-buffers))
    (with-current-buffer buffer
      (setq pyagentd-attach-state nil)
      (pyagentd-attach-forget-fresh)
      (pyagentd-overlay-forget)
      (pyagentd-insert-flush)
      (pyagentd-status-set nil)))
  (when (pyagentd-connect--wanted-p)
    (pyagentd-connect--watch))
  (pyagentd-connect--retry 1))

(defvar pyagentd-connect--watch nil
  "What watches for the next daemon after the connection ended, or nil.")

(defun pyagentd-connect--watch ()
  "Connect as soon as a daemon listens, where a directory can be watched.
Whoever wrote a session is to come back before those that only followed
it ask whether they may write (`pyagentd-lease--modesty')."
  (pyagentd-connect--unwatch)
  (setq pyagentd-connect--watch
        (ignore-errors
          (file-notify-add-watch
           (file-name-directory (pyagentd-rpc-runtime-file))
           '(change) #'pyagentd-connect--on-file))))

(defun pyagentd-connect--unwatch ()
  "Watch for a daemon no more."
  (when pyagentd-connect--watch
    (ignore-errors (file-notify-rm-watch pyagentd-connect--watch))
    (setq pyagentd-connect--watch nil)))

(defun pyagentd-connect--on-file (event)
  "Look for a daemon if EVENT is about the file that says where it listens."
  (when (and (not (memq (nth 1 event) '(deleted stopped)))
             (member (pyagentd-rpc-runtime-file) (nthcdr 2 event)))
    (pyagentd-connect--retry 0.01)))

(defun pyagentd-connect--retry (delay)
  "Look for a daemon after DELAY seconds, and ever less often after that."
  (when pyagentd-connect--retry (cancel-timer pyagentd-connect--retry))
  (setq pyagentd-connect--retry
        (run-at-time
         delay nil
         (lambda ()
           (setq pyagentd-connect--retry nil)
           (pyagentd-guarded "Reconnect"
             (unless (or (not (pyagentd-connect--wanted-p))
                         (pyagentd-rpc-connect))
               (pyagentd-connect--retry (min 60 (* 2 delay)))))))))

(add-hook 'pyagentd-session-read-hook #'pyagentd-connect--after-read)
(add-hook 'pyagentd-session-saved-hook #'pyagentd-connect--saved)
(add-hook 'pyagentd-session-leave-hook #'pyagentd-connect--leave)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-connect--all)
(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-connect--unwatch)
(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-connect--disconnected)

(provide 'pyagentd-connect)
;;; pyagentd-connect.el ends here

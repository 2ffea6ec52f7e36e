;;; pyagentd-core.el --- Options, faces, errors and log of pyagentd -*- lexical-binding: t; -*-

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

;; What every other file of the package needs: the customization group,
;; the tree of errors and the log.  The tree of errors:
;;
;;   pyagentd-error
;;   ├── pyagentd-remote-error        the daemon refused a call; data (CODE MESSAGE . PLIST)
;;   └── pyagentd-connection-error    nothing can be said to the daemon
;;       ├── pyagentd-disconnected    the connection ended before the answer came
;;       ├── pyagentd-timeout         no answer in time; the call may still take effect
;;       └── pyagentd-protocol-error  the daemon speaks another protocol

;;; Code:

(require 'subr-x)

(defgroup pyagentd nil
  "Agents that outlive Emacs."
  :group 'tools
  :prefix "pyagentd-")

;;;; Options

(defcustom pyagentd-sessions-directory
  (or (getenv "PYAGENTD_SESSIONS_DIR") "~/.gptel/sessions")
  "Directory that holds one directory per session."
  :type 'directory
  :package-version '(pyagentd . "0.1.0"))

(defconst pyagentd-version "0.1.0"
  "Version of this package; the server of the same version fits it.")

(defcustom pyagentd-command nil
  "Program and first arguments of the server; nil means search for it.
It is searched for on the path, then in `pyagentd-server-directory',
where \\[pyagentd-install-server] installs it.  To start the daemon
the words \"serve\" and \"--detach\" are appended."
  :type '(choice (const :tag "Search for it" nil) (repeat string))
  :risky t
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-runtime-directory nil
  "Directory of the daemon's runtime file and socket.
nil means the daemon's own default: $PYAGENTD_RUNTIME_DIR, else
pyagentd/ in $XDG_RUNTIME_DIR, else pyagentd/run/ in $XDG_STATE_HOME
or ~/.local/state."
  :type '(choice (const :tag "As the daemon decides" nil) directory)
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-human 'auto
  "Whether a human can answer approvals and questions.
`auto' means yes unless Emacs runs in batch mode; t means yes and nil
no.  Without a human, every action that needs approval is denied."
  :type '(choice (const :tag "Unless in batch mode" auto)
                 (const :tag "Yes" t)
                 (const :tag "No" nil))
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-call-timeout 10
  "Seconds to wait for an answer of the daemon."
  :type 'number
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-start-timeout 15
  "Seconds until the start of the daemon counts as failed."
  :type 'number
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-autosave-idle-time 0.5
  "Seconds without a change after which a session buffer is saved.
0 means never; \\[save-buffer] still saves."
  :type 'number
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-log-level 'debug
  "Minimum severity of messages that are logged to *Messages*.
One of `debug', `info', `warn' and `error'; only the latter two also
show in the echo area."
  :type '(choice (const debug) (const info) (const warn) (const error))
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-log-to-file nil
  "Non-nil means also log messages about a session to its session.log."
  :type 'boolean
  :package-version '(pyagentd . "0.1.0"))

;;;; Faces

(defface pyagentd-heading '((t :inherit font-lock-keyword-face))
  "Face of the subject of a notice.")

(defface pyagentd-detail '((t :inherit font-lock-doc-face))
  "Face of details in a notice.")

(defface pyagentd-rule '((t :inherit shadow :underline t :extend t))
  "Face of horizontal rules around a notice.")

(defface pyagentd-key '((t :inherit help-key-binding))
  "Face of keys named in a notice.")

(defface pyagentd-added '((t :inherit success))
  "Face of added lines in a preview.")

(defface pyagentd-removed '((t :inherit error))
  "Face of removed lines in a preview.")

(defconst pyagentd-rule (propertize "\n" 'face 'pyagentd-rule)
  "A horizontal rule as wide as the window.")

;;;; Errors

(define-error 'pyagentd-error "Error of pyagentd" 'user-error)
(define-error 'pyagentd-remote-error "The daemon refused" 'pyagentd-error)
(define-error 'pyagentd-connection-error "No connection to the daemon"
  'pyagentd-error)
(define-error 'pyagentd-disconnected "The connection to the daemon ended"
  'pyagentd-connection-error)
(define-error 'pyagentd-timeout "The daemon did not answer in time"
  'pyagentd-connection-error)
(define-error 'pyagentd-protocol-error "The daemon speaks another protocol"
  'pyagentd-connection-error)

(defun pyagentd-error-text (err)
  "Return ERR, a list (SYMBOL . DATA), as a sentence for a person."
  (pcase err
    (`(pyagentd-remote-error ,_code ,message . ,plist)
     (if-let ((hint (plist-get plist :hint)))
         (format "%s (%s)" message hint)
       (format "%s" message)))
    ;; What was called is a name of the protocol's; a text says more.
    (`(pyagentd-timeout . ,data)
     (concat (get 'pyagentd-timeout 'error-message)
             (if (stringp (car data)) (concat ": " (car data)) "")
             "; wait and try again, or see M-x pyagentd-doctor"))
    ((and `(,symbol . ,(and data (pred consp)))
          (guard (memq 'pyagentd-error (get symbol 'error-conditions))))
     (format "%s: %s" (get symbol 'error-message)
             (mapconcat (lambda (value) (format "%s" value)) data ", ")))
    (_ (error-message-string err))))

(defun pyagentd-core--command-error (show data context caller)
  "Say an error of ours in a sentence; other errors as SHOW does.
DATA, CONTEXT and CALLER are those of `command-error-function'.  The
*Messages* buffer names this package, not the function, of what a command
of ours tells the user."
  (let ((ours (memq 'pyagentd-error (get (car-safe data) 'error-conditions))))
    (funcall show
             (if ours (list 'user-error (pyagentd-error-text data)) data)
             context
             (if (or ours (and (eq (car-safe data) 'user-error)
                               (pyagentd-core--command-p this-command)))
                 'pyagentd
               caller))))

(defun pyagentd-core--command-p (command)
  "Return non-nil if COMMAND is one of this package."
  (and (symbolp command)
       (string-prefix-p "pyagentd-" (symbol-name command))))

(add-function :around command-error-function #'pyagentd-core--command-error)

;;;; Log

;; Lines in *Messages* begin with the package's name, those in the file
;; with [GPTEL-LEVEL].

(defconst pyagentd-core--levels '(debug info warn error)
  "Log levels, least severe first.")

(defconst pyagentd-core--level-words '((warn . "warning"))
  "What a level is called where a user reads it, if not by its name.")

(defconst pyagentd-core--log-file-name "session.log"
  "Name of the log in a session's directory.")

(defun pyagentd-log (level format-string &rest args)
  "Log FORMAT-STRING with ARGS at LEVEL, see `pyagentd-log-level'.
In a buffer of a session it also goes to the session's own log if
`pyagentd-log-to-file' is non-nil."
  (pyagentd-log-record level (apply #'format format-string args)
                       (bound-and-true-p pyagentd--session-dir)))

(defun pyagentd-log-record (level text session-dir &optional written)
  "Log TEXT at LEVEL about the session in SESSION-DIR, nil for no session.
WRITTEN means that the session's own log has it already."
  (when (memq level (memq pyagentd-log-level pyagentd-core--levels))
    (let ((line (format "pyagentd %s: %s"
                        (alist-get level pyagentd-core--level-words level)
                        text)))
      (if (memq level '(debug info))
          (pyagentd-core--message-quietly line)
        (message "%s" line)))
    (when (and pyagentd-log-to-file session-dir (not written))
      (pyagentd-core--append
       (format "[GPTEL-%s] %s" (upcase (symbol-name level)) text)
       session-dir)))
  nil)

(defun pyagentd-core--message-quietly (line)
  "Log LINE to the *Messages* buffer; what the echo area shows stays there.
Emacs clears it for a message that is inhibited, and with it what a
command asks just now."
  (let ((shown (current-message)))
    (let ((inhibit-message t))
      (message "%s" line))
    (when shown
      (let ((message-log-max nil))
        (message "%s" shown)))))

(defun pyagentd-core--append (line session-dir)
  "Add LINE, with the time before it, to the log in SESSION-DIR.
A session that is gone, or that cannot be written, has no log."
  (let ((coding-system-for-write 'utf-8-unix))
    (ignore-errors
      (write-region (concat (format-time-string "[%F %T] ") line "\n") nil
                    (expand-file-name pyagentd-core--log-file-name session-dir)
                    'append 'quiet))))

(defmacro pyagentd-guarded (what &rest body)
  "Run BODY; an error in it is logged as a failure of WHAT, not signaled.
For the edges only: hooks, timers, filters and event handlers."
  (declare (indent 1) (debug t))
  (let ((err (make-symbol "err")))
    `(condition-case-unless-debug ,err
         (progn ,@body)
       (error (pyagentd-log 'error "%s: %s" ,what (pyagentd-error-text ,err))))))

;;;; Variables

(defun pyagentd-permanent-local (&rest variables)
  "Let buffer-local values of VARIABLES, symbols, outlive a new major mode."
  (dolist (variable variables)
    (put variable 'permanent-local t)))

;;;; Values from the wire

(defun pyagentd-symbol (value)
  "Return VALUE, a symbol or a string, as a symbol; nil stays nil."
  (if (stringp value) (intern value) value))

(provide 'pyagentd-core)
;;; pyagentd-core.el ends here

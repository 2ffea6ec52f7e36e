;;; pyagentd-server.el --- Where the server is -*- lexical-binding: t; -*-

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

;;; Commentary:

;; The server is a Python program, looked for in this order: the option
;; `pyagentd-command'; the program "pyagentd" on the path; a virtual
;; environment below `pyagentd-server-directory'.  The latter are made by
;; `pyagentd-install-server' (see `pyagentd-install'), one for each
;; version, and each has a file that says it is complete.  That of this
;; package's version is taken, else the last that was good: another
;; version is told, never taken in silence.

;;; Code:

(require 'seq)
(require 'pyagentd-core)

(defcustom pyagentd-server-directory
  (locate-user-emacs-file "pyagentd/server/")
  "Directory of the virtual environments of servers, one for each version."
  :type 'directory
  :risky t
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(define-error 'pyagentd-no-server "The server is not installed"
  'pyagentd-connection-error)

(defconst pyagentd-server-complete "complete.eld"
  "File in an environment that is complete: a plist with :version.")

;;;; Environments

(defun pyagentd-server--environment (directory)
  "Return the environment in DIRECTORY, nil unless it is complete.
That is a plist with :directory, :version, :time (a `float-time') and
:program."
  (let ((file (expand-file-name pyagentd-server-complete directory))
        (program (pyagentd-server-program directory)))
    (when (and (file-readable-p file) (file-executable-p program))
      (when-let* ((facts (ignore-errors
                           (with-temp-buffer
                             (insert-file-contents file)
                             (read (current-buffer)))))
                  (version (plist-get facts :version)))
        (list :directory directory :version version :program program
              :time (float-time
                     (file-attribute-modification-time
                      (file-attributes file))))))))

(defun pyagentd-server-program (directory)
  "Return the name of the server's program in the environment DIRECTORY."
  (expand-file-name (if (eq system-type 'windows-nt) "Scripts/pyagentd.exe"
                      "bin/pyagentd")
                    directory))

(defun pyagentd-server-environments ()
  "Return the complete environments, the best one first.
Those of this package's version come first, then the newest."
  (when (file-directory-p pyagentd-server-directory)
    (seq-sort (lambda (a b)
                (let ((fits (pyagentd-server--fits-p a)))
                  (if (eq fits (pyagentd-server--fits-p b))
                      (> (plist-get a :time) (plist-get b :time))
                    fits)))
              (delq nil (mapcar #'pyagentd-server--environment
                                (directory-files pyagentd-server-directory
                                                 t "\\`[0-9]"))))))

(defun pyagentd-server--fits-p (environment)
  "Return t if ENVIRONMENT has the version of this package."
  (and (equal (plist-get environment :version) pyagentd-version) t))

;;;; The one that is taken

(defun pyagentd-server-found ()
  "Return where the server is, a plist, or nil if there is none.
The plist has :command, a list of strings, and :source, one of the
symbols `option', `path' and `environment'.  Of the latter it has
:version, too."
  (let ((environment (car (pyagentd-server-environments))))
    (cond (pyagentd-command
           (list :command pyagentd-command :source 'option))
          ((executable-find "pyagentd")
           (list :command '("pyagentd") :source 'path))
          (environment
           (list :command (list (plist-get environment :program))
                 :source 'environment
                 :version (plist-get environment :version))))))

(defun pyagentd-server-command ()
  "Return the program of the server and its first arguments.
Signal an error that says what to do if there is none."
  (let ((command (plist-get (pyagentd-server-found) :command)))
    (unless command
      (signal 'pyagentd-no-server
              '("M-x pyagentd-install-server installs it")))
    (unless (executable-find (car command))
      (user-error
       "Cannot find %s; change `pyagentd-command', or M-x pyagentd-doctor"
       (car command)))
    command))

(defun pyagentd-server-check-version (version)
  "Say it if VERSION, that of the running daemon, is not this package's.
They speak the same protocol, so they can work together."
  (unless (equal version pyagentd-version)
    (display-warning
     'pyagentd
     (format "The daemon is version %s, this package %s.  \
M-x pyagentd-doctor says what to do" version pyagentd-version))))

(provide 'pyagentd-server)
;;; pyagentd-server.el ends here

;;; pyagentd-doctor-mend.el --- What mends an installation -*- lexical-binding: t; -*-

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

;; What the buttons of `pyagentd-doctor' do.  Each mend is a function
;; without arguments.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-server)
(require 'pyagentd-start)
(require 'pyagentd-install)

(defvar pyagentd-doctor-mended-hook nil
  "Hook run after something was mended, so that it is looked at again.")

(defun pyagentd-doctor-mend--done ()
  "Have it looked at again."
  (run-hooks 'pyagentd-doctor-mended-hook))

(defun pyagentd-doctor-mend-say-where ()
  "Let the user say where the server is."
  (customize-option 'pyagentd-command))

(defun pyagentd-doctor-mend-forget-command ()
  "Let the server be looked for."
  (customize-save-variable 'pyagentd-command nil))

(defun pyagentd-doctor-mend-get-package (name)
  "Install the Emacs package NAME."
  (require 'package)
  (unless (assq (intern name) package-archive-contents)
    (package-refresh-contents))
  (package-install (intern name)))

(defun pyagentd-doctor-mend-install ()
  "Install the server and look again."
  (pyagentd-install-server #'pyagentd-doctor-mend--done))

(defun pyagentd-doctor-mend-install-and-use ()
  "Install the server of this version, and take it whatever the path has."
  (pyagentd-install-server
   (lambda ()
     (when-let ((best (car (pyagentd-server-environments))))
       (customize-save-variable 'pyagentd-command
                                (list (plist-get best :program))))
     (pyagentd-doctor-mend--done))))

(defun pyagentd-doctor-mend-restart ()
  "Stop the daemon and start the one that is found now."
  (let ((output (generate-new-buffer " *pyagentd-stop*")))
    (make-process
     :name "pyagentd-stop" :buffer output :noquery t :connection-type 'pipe
     :command (append (pyagentd-server-command) '("stop"))
     :sentinel
     (lambda (process _change)
       (unless (process-live-p process)
         (pyagentd-guarded "Stopping the daemon"
           (message "pyagentd: %s" (with-current-buffer output
                                     (string-trim (buffer-string))))
           (kill-buffer output)
           (pyagentd-start #'pyagentd-doctor-mend--done)))))))

(defun pyagentd-doctor-mend-log ()
  "Show the log of the daemon."
  (view-file-other-window
   (expand-file-name "daemon.log" (file-name-directory
                                   (pyagentd-rpc-runtime-file)))))

(defun pyagentd-doctor-mend-type-key ()
  "Read the key of the model's provider; it holds for this Emacs only."
  (setenv "ANTHROPIC_API_KEY"
          (read-passwd "API key (kept in memory of this Emacs only): "))
  (pyagentd-doctor-mend--done))

(defun pyagentd-doctor-mend-authinfo ()
  "Visit the file where auth-source finds the key, with a line for it."
  (let ((line (format "machine %s login apikey password "
                      (or (bound-and-true-p pyagentd-api-key-host)
                          "api.anthropic.com"))))
    (find-file-other-window "~/.authinfo.gpg")
    (goto-char (point-max))
    (unless (bolp) (insert "\n"))
    (insert line)))

(defun pyagentd-doctor-mend-offline ()
  "Have the offline stand-in answer, for as long as this Emacs runs."
  (setenv "PYAGENTD_BACKEND" "offline")
  (pyagentd-doctor-mend--done))

(provide 'pyagentd-doctor-mend)
;;; pyagentd-doctor-mend.el ends here

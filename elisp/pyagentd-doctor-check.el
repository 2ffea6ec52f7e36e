;;; pyagentd-doctor-check.el --- What is wrong with an installation -*- lexical-binding: t; -*-

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

;; What Emacs, the package, the server and the daemon are like, as
;; findings.  What Emacs knows is there at once; the rest is read from what
;; `pyagentd doctor' prints.

;;; Code:

(require 'json)
(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-server)
(require 'pyagentd-install)
(require 'pyagentd-installer)
(require 'pyagentd-cause)
(require 'pyagentd-doctor-mend)

(defun pyagentd-doctor-check-finding (name level detail &rest buttons)
  "Return a finding about NAME: LEVEL, DETAIL and BUTTONS.
LEVEL is `ok', `warning', `missing' or `asked', DETAIL a text.  BUTTONS are
conses of a label and a function without arguments."
  (list :name name :level level :detail detail :buttons buttons))

;;;; Buttons

(defconst pyagentd-doctor-check--say-where
  '("Set pyagentd-command" . pyagentd-doctor-mend-say-where)
  "The button that changes `pyagentd-command'.")

(defconst pyagentd-doctor-check--restart-button
  '("Restart the daemon" . pyagentd-doctor-mend-restart)
  "The button that restarts the daemon.")

(defun pyagentd-doctor-check--install-button ()
  "Return the button that installs the server of the right version."
  (cons (format "Install version %s" pyagentd-version)
        #'pyagentd-doctor-mend-install))

;;;; What Emacs knows

(defun pyagentd-doctor-check-examine (installer)
  "Return what Emacs knows, a list of findings.
INSTALLER is what can install the server, see `pyagentd-installer-find',
or the symbol `asked' while that is looked for."
  (append (list (pyagentd-doctor-check--emacs)
                (pyagentd-doctor-check-finding
                 "package" 'ok (format "%s (%s)" pyagentd-version
                                       (abbreviate-file-name
                                        pyagentd-install--here))))
          (list (pyagentd-doctor-check--library "markdown-mode" 'warning)
                (pyagentd-doctor-check--found installer))
          (pyagentd-doctor-check--environments)
          (delq nil (list (pyagentd-doctor-check--running)))))

(defun pyagentd-doctor-check--emacs ()
  "Return the finding about Emacs itself."
  (pyagentd-doctor-check-finding
   "emacs" (if (version< emacs-version "28.1") 'missing 'ok)
   (format "%s, %s%s" emacs-version
           (if (display-graphic-p) "graphical" "in a terminal")
           (if (version< emacs-version "28.1") "; 28.1 is needed" ""))))

(defun pyagentd-doctor-check--library (name otherwise)
  "Return the finding about the library NAME, OTHERWISE if it is absent."
  (if-let ((file (locate-library name)))
      (pyagentd-doctor-check-finding name 'ok (abbreviate-file-name file))
    (pyagentd-doctor-check-finding
     name otherwise "not installed"
     (cons "Install it" (lambda () (pyagentd-doctor-mend-get-package name))))))

(defun pyagentd-doctor-check--found (installer)
  "Return the finding about where the server is.
INSTALLER is that of `pyagentd-doctor-check-examine'."
  (let* ((found (pyagentd-server-found))
         (program (car (plist-get found :command)))
         (path (and program (executable-find program))))
    (cond (path
           (pyagentd-doctor-check-finding
            "server" 'ok
            (format "%s (%s)" (abbreviate-file-name path)
                    (pcase-exhaustive (plist-get found :source)
                      ('option "pyagentd-command")
                      ('path "on the path")
                      ('environment "installed for Emacs")))))
          (found
           (pyagentd-doctor-check-finding
            "server" 'missing
            (format "`pyagentd-command' names %s, which is not there" program)
            (cons "Search for it" #'pyagentd-doctor-mend-forget-command)
            pyagentd-doctor-check--say-where))
          (t (pyagentd-doctor-check--absent installer)))))

(defun pyagentd-doctor-check--absent (installer)
  "Return the finding that there is no server, but INSTALLER."
  (pcase installer
    ('asked
     (pyagentd-doctor-check-finding
      "server" 'missing "not found; looking for an installer…"
      pyagentd-doctor-check--say-where))
    (`(,program . ,_)
     (pyagentd-doctor-check-finding
      "server" 'missing (format "not found; %s can install it" program)
      (cons "Install it" #'pyagentd-doctor-mend-install)
      pyagentd-doctor-check--say-where))
    (_ (pyagentd-doctor-check-finding
        "server" 'missing
        (format "not found; to install it, Python %s or newer with venv, or \
uv, is needed" pyagentd-installer-python)
        pyagentd-doctor-check--say-where))))

(defun pyagentd-doctor-check--environments ()
  "Return the finding about installed servers, a list, empty without any."
  (when-let ((environments (pyagentd-server-environments)))
    (let ((best (car environments)))
      (list
       (apply #'pyagentd-doctor-check-finding
              "installed" (if (pyagentd-server--fits-p best) 'ok 'warning)
              (mapconcat (lambda (environment)
                           (file-name-nondirectory
                            (plist-get environment :directory)))
                         environments ", ")
              (unless (pyagentd-server--fits-p best)
                (list (pyagentd-doctor-check--install-button))))))))

(defun pyagentd-doctor-check--running ()
  "Return the finding about the daemon that runs, nil without any."
  (when-let ((runtime (pyagentd-rpc-runtime)))
    (let ((proto (plist-get runtime :proto))
          (version (plist-get runtime :version)))
      (cond ((not (eql proto pyagentd-rpc-protocol))
             (pyagentd-doctor-check-finding
              "protocol" 'missing
              (format "the daemon (version %s) speaks protocol %s, this package %s"
                      version proto pyagentd-rpc-protocol)
              pyagentd-doctor-check--restart-button))
            ((not (member version (list nil pyagentd-version)))
             (pyagentd-doctor-check-finding
              "version" 'warning
              (format "the daemon is version %s, this package %s" version
                      pyagentd-version)
              pyagentd-doctor-check--restart-button))
            ((pyagentd-rpc-connected-p)
             (pyagentd-doctor-check-finding
              "connection" 'ok (format "pid %s" (plist-get runtime :pid))))))))

;;;; What the server says

(defun pyagentd-doctor-check-agree (own server)
  "Return OWN, what Emacs knows, without what SERVER, findings, denies.
SERVER is the symbol `asked' while they are awaited.  A daemon that we are
connected with need not answer: the server has asked it."
  (let ((daemon (and (listp server)
                     (seq-find (lambda (finding)
                                 (equal (plist-get finding :name) "daemon"))
                               server))))
    (seq-mapcat
     (lambda (finding)
       (cond ((not (equal (plist-get finding :name) "connection"))
              (list finding))
             ((eq server 'asked)
              (list (pyagentd-doctor-check-finding
                     "connection" 'asked
                     (concat (plist-get finding :detail)
                             "; checking the connection…"))))
             ((memq (plist-get daemon :level) '(nil ok)) (list finding))))
     own)))

(defun pyagentd-doctor-check-read (text)
  "Return the findings in TEXT, what the server printed."
  (let ((answer (ignore-errors
                  (json-parse-string (string-trim text)
                                     :object-type 'plist :array-type 'list))))
    (if (null (plist-get answer :checks)) ; an error, or what is no JSON
        (list (pyagentd-doctor-check-finding
               "server" 'missing
               (format "its check failed: %s"
                       (truncate-string-to-width
                        (string-trim text) 300 nil nil t))
               (pyagentd-doctor-check--install-button)))
      (append (pyagentd-doctor-check--versions answer)
              (mapcar #'pyagentd-doctor-check--from-server
                      (plist-get answer :checks))))))

(defun pyagentd-doctor-check--versions (answer)
  "Return what is to be said of the versions in ANSWER, a list."
  (let ((version (plist-get answer :version))
        (protocol (plist-get answer :protocol)))
    (unless (and (equal version pyagentd-version)
                 (eql protocol pyagentd-rpc-protocol))
      (list (pyagentd-doctor-check-finding
             "server version"
             (if (eql protocol pyagentd-rpc-protocol) 'warning 'missing)
             (format "%s, protocol %s; this package is %s, protocol %s"
                     version protocol pyagentd-version pyagentd-rpc-protocol)
             (cons (format "Install version %s and use it" pyagentd-version)
                   #'pyagentd-doctor-mend-install-and-use)
             pyagentd-doctor-check--say-where)))))

(defun pyagentd-doctor-check--from-server (check)
  "Return the finding that CHECK, a plist of the server, is."
  (let ((name (plist-get check :name))
        (level (intern (plist-get check :level)))
        (detail (plist-get check :detail))
        (hint (plist-get check :hint)))
    (apply #'pyagentd-doctor-check-finding name level
           (if (or (eq level 'ok) (string-empty-p hint)) detail
             (concat detail "\n" hint))
           (unless (eq level 'ok)
             (pyagentd-doctor-check--remedies name detail hint)))))

(defun pyagentd-doctor-check--remedies (name detail hint)
  "Return the buttons for what is wrong with NAME, by DETAIL and MEND."
  (pcase name
    ("daemon" (list pyagentd-doctor-check--restart-button
                    (cons "Show its log" #'pyagentd-doctor-mend-log)))
    ((or "key" "backend")
     (list '("Enter the API key" . pyagentd-doctor-mend-type-key)
           '("Save it in ~/.authinfo.gpg" . pyagentd-doctor-mend-authinfo)
           '("Use the offline stand-in" . pyagentd-doctor-mend-offline)))
    ("packages" (list (pyagentd-doctor-check--install-button)))
    (_ (or (pyagentd-doctor-check--file-button (concat detail "\n" hint))
           (pyagentd-doctor-check--run-button hint)))))

(defun pyagentd-doctor-check--file-button (text)
  "Return a list with the button that opens the file TEXT names, or nil."
  (when-let ((cause (pyagentd-cause text)))
    (list (cons (format "Open %s" (file-name-nondirectory (car cause)))
                (lambda () (pyagentd-cause-visit cause))))))

(defun pyagentd-doctor-check--run-button (line)
  "Return a list with the button that runs LINE, if it is a command, or nil."
  (when (and (string-match "\\`\\([a-z][^ ;]*\\)" line)
             (executable-find (match-string 1 line)))
    (list (cons "Run it"
                (lambda ()
                  (when (y-or-n-p (format "Run `%s'? " line))
                    (async-shell-command line "*pyagentd-run*")))))))

(provide 'pyagentd-doctor-check)
;;; pyagentd-doctor-check.el ends here

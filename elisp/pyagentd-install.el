;;; pyagentd-install.el --- Installing the Python package -*- lexical-binding: t; -*-

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

;; Finds an installer and runs it, with a progress buffer.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-rpc)


;;;; What can install the server

;; The server is installed by uv, else by a Python that is new enough.
;; Which of them is good is tried in processes that nobody waits for; they
;; are isolated, and not where the user works: nothing of a project is
;; loaded before the user wants an installation.

(defconst pyagentd-installer-python "3.11"
  "Oldest version of Python the server runs on.")

(defconst pyagentd-installer--pythons
  '("python3" "python3.14" "python3.13" "python3.12" "python3.11" "python")
  "Programs that may be such a Python, the best first.")

(defun pyagentd-installer-uv-p ()
  "Return non-nil if there is uv."
  (let ((default-directory "/")) (executable-find "uv")))

(defun pyagentd-installer-find (then)
  "Call THEN with what can install the server, nil if nothing can.
That is a pair (PROGRAM . KIND).  KIND is `uv', `pip' (a Python with a pip
that installs for another Python) or `venv' (one without)."
  (if (pyagentd-installer-uv-p)
      (funcall then '("uv" . uv))
    (pyagentd-installer--among pyagentd-installer--pythons then)))

(defun pyagentd-installer--among (pythons then)
  "Call THEN with the first of PYTHONS that can install the server, or nil."
  (pcase pythons
    ('nil (funcall then nil))
    (`(,python . ,others)
     (pyagentd-installer--try
      python "import sys, venv, ensurepip; \
sys.exit(sys.version_info < (3, 11))"
      (lambda (good)
        (if good (pyagentd-installer--kind python then)
          (pyagentd-installer--among others then)))))))

(defun pyagentd-installer--kind (python then)
  "Call THEN with PYTHON and what it is, see `pyagentd-installer-find'."
  (pyagentd-installer--try
   python "import pip, sys; \
sys.exit(tuple(map(int, pip.__version__.split('.')[:2])) < (22, 3))"
   (lambda (good) (funcall then (cons python (if good 'pip 'venv))))))

(defun pyagentd-installer--try (python code then)
  "Call THEN with whether the program PYTHON runs CODE to a good end."
  (let ((default-directory "/"))
    (if (not (executable-find python)) (funcall then nil)
      (make-process
       :name "pyagentd-installer" :command (list python "-I" "-c" code)
       :connection-type 'pipe :noquery t :filter #'ignore
       :sentinel (lambda (process _change)
                   (unless (process-live-p process)
                     (pyagentd-guarded "Looking for an installer"
                       (funcall then
                                (eql 0 (process-exit-status process))))))))))

;;;; Installing the server

;; Makes a virtual environment with the server of this package's version
;; below `pyagentd-server-directory': with uv where it is installed, else
;; with Python's own venv and pip.  Each step is a process; Emacs goes on
;; meanwhile and the echo area says how far it is.  The environment counts
;; once its program said the right version; what was there before stays
;; until then, and one that was good stays after that, too.

(defcustom pyagentd-server-requirement nil
  "What to install as the server; nil means the one of this package.
That is the wheel beside the package's files, or the checkout they are in.
A string is a requirement for pip: a file, or a package with its version."
  :type '(choice (const :tag "What came with the package" nil) string)
  :risky t
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defconst pyagentd-install--here
  (file-name-directory (or load-file-name buffer-file-name default-directory))
  "Directory of the files of this package.")

(defconst pyagentd-install-buffer "*pyagentd-install*"
  "Name of the buffer with what the installation printed.")

(defvar pyagentd-install--running nil
  "Plist of the installation that runs, or nil.
:directory is where to, :steps is what is still to be done, :waiting are
pairs (THEN . FAILED) of functions, one of which is called after it, the
latest first, :begun and :timer are about progress.")

(defvar pyagentd-install--declined nil
  "Non-nil after the user did not want the server to be installed.")

;;;; What and with what

(defun pyagentd-install-requirement ()
  "Return what to install, a string, or signal an error without any.
What came with this package is installed with its optional parts."
  (let ((checkout (expand-file-name ".." pyagentd-install--here)))
    (or pyagentd-server-requirement
        (when-let ((came (or (car (last (file-expand-wildcards
                                         (expand-file-name
                                          (format "pyagentd-%s-*.whl"
                                                  pyagentd-version)
                                          pyagentd-install--here))))
                             (and (file-exists-p
                                   (expand-file-name "pyproject.toml" checkout))
                                  (file-exists-p
                                   (expand-file-name "pyagentd/daemon.py"
                                                     checkout))
                                  checkout))))
          (concat came "[full]"))
        (user-error "No server came with this package; \
set `pyagentd-server-requirement' or `pyagentd-command'"))))

(defun pyagentd-install--steps (how directory requirement)
  "Return the steps that install REQUIREMENT into DIRECTORY with HOW.
Each is (WHAT PROGRAM ARGUMENT...).  HOW is a pair (PROGRAM . KIND), see
`pyagentd-installer-find'."
  (pcase-let* ((`(,program . ,kind) how)
               (python (pyagentd-install--python-of directory))
               (venv (list "environment" program "-I" "-m" "venv"))
               (arguments `("install" "--no-input" "--disable-pip-version-check"
                            "--progress-bar=off" "--no-compile"
                            ,requirement)))
    (append
     (pcase-exhaustive kind
       ('uv `(("environment" ,program "venv" "--no-project" "--python"
               ,(concat ">=" pyagentd-installer-python) ,directory)
              ("packages" ,program "pip" "install" "--python" ,python
               ,requirement)))
       ;; A pip of its own takes as long as half of all the rest.
       ('pip `((,@venv "--without-pip" ,directory)
               ("packages" ,program "-I" "-m" "pip" "--python" ,python
                ,@arguments)))
       ('venv `((,@venv ,directory)
                ("packages" ,python "-I" "-m" "pip" ,@arguments))))
     `(("trial" ,(pyagentd-server-program directory) "--version")))))

(defun pyagentd-install--python-of (directory)
  "Return the name of the Python in the environment DIRECTORY."
  (expand-file-name (if (eq system-type 'windows-nt) "Scripts/python.exe"
                      "bin/python")
                    directory))

(defun pyagentd-install--compile (directory)
  "Have byte code made of all in DIRECTORY, while Emacs is used.
Python makes what it loads by itself; each first time takes longer.
The daemon is just being started: this gives way to it."
  (let ((default-directory (file-name-as-directory directory)))
    (make-process :name "pyagentd-compile" :noquery t
                  :command (list (pyagentd-install--python-of directory)
                                 "-I" "-c" "import compileall, os
getattr(os, 'nice', int)(19)
for name in {'lib', 'Lib'} & {*os.listdir()}:
    compileall.compile_dir(name, quiet=2)")
                  :connection-type 'pipe
                  :filter #'ignore :sentinel #'ignore)))

(defun pyagentd-install--new-directory ()
  "Return the name of a directory for an environment that is not there yet."
  (let* ((base (expand-file-name pyagentd-version pyagentd-server-directory))
         (name base)
         (number 1))
    (while (file-exists-p name)
      (setq number (1+ number)
            name (format "%s-%d" base number)))
    name))

;;;; Doing it

(defun pyagentd-install-server (&optional then failed)
  "Install the server of this package's version for this Emacs.
It goes into a directory of its own below `pyagentd-server-directory'.
Emacs stays usable meanwhile.  THEN, a function, is called afterwards
if that worked; else FAILED is, with an error, a list (SYMBOL . DATA)."
  (interactive)
  (if pyagentd-install--running
      (push (cons then failed) (plist-get pyagentd-install--running :waiting))
    (let ((requirement (pyagentd-install-requirement))
          (directory (pyagentd-install--new-directory)))
      (make-directory pyagentd-server-directory t)
      (with-current-buffer (get-buffer-create pyagentd-install-buffer)
        (let ((inhibit-read-only t)) (erase-buffer))
        (special-mode))
      (setq pyagentd-install--declined nil
            pyagentd-install--running
            (list :directory directory
                  :steps '(("search"))
                  :waiting (list (cons then failed))
                  :begun (float-time)
                  :timer (run-at-time 1 1 #'pyagentd-install--say)))
      (pyagentd-installer-find
       (lambda (how) (pyagentd-install--with how directory requirement))))))

(defun pyagentd-install--with (how directory requirement)
  "Install REQUIREMENT into DIRECTORY with HOW, nil if nothing can do it.
Otherwise HOW is as `pyagentd-installer-find' tells it."
  (if (null how)
      (pyagentd-install--fail
       (format "Python %s or newer, with venv, is missing; install it, or uv"
               pyagentd-installer-python))
    (setf (plist-get pyagentd-install--running :steps)
          (pyagentd-install--steps how directory requirement))
    (pyagentd-install--step)))

(defun pyagentd-install--step ()
  "Begin the next step, or finish without any."
  (let ((step (car (plist-get pyagentd-install--running :steps)))
        (default-directory (file-name-as-directory
                            (expand-file-name pyagentd-server-directory)))
        (process-environment (append '("PYTHONUNBUFFERED=1" "NO_COLOR=1")
                                     process-environment)))
    (if (null step) (pyagentd-install--finish)
      (pyagentd-install--print (format "$ %s\n" (string-join (cdr step) " ")))
      (pyagentd-install--say)
      (condition-case err
          (make-process :name "pyagentd-install" :command (cdr step)
                        :connection-type 'pipe :noquery t
                        :filter (lambda (_process text)
                                  (pyagentd-install--print text))
                        :sentinel #'pyagentd-install--ended)
        (error (pyagentd-install--fail (error-message-string err)))))))

(defun pyagentd-install--ended (process _change)
  "Go on after the step of PROCESS, if it has ended."
  (unless (process-live-p process)
    (pyagentd-guarded "Installing"
      (cond ((not (eql (process-exit-status process) 0))
             (pyagentd-install--fail
              (format "%s failed"
                      (string-join
                       (seq-take (process-command process) 3) " "))))
            (t (cl-callf cdr (plist-get pyagentd-install--running :steps))
               (pyagentd-install--step))))))

(defun pyagentd-install--print (text)
  "Add TEXT to the buffer of the installation."
  (with-current-buffer (get-buffer-create pyagentd-install-buffer)
    (let ((inhibit-read-only t)
          (tail (= (point) (point-max))))
      (save-excursion
        (goto-char (point-max))
        (insert (replace-regexp-in-string "\r+\n?" "\n" text)))
      (when tail (goto-char (point-max))))))

(defun pyagentd-install--last-line ()
  "Return the last line that was printed."
  (with-current-buffer (get-buffer-create pyagentd-install-buffer)
    (save-excursion
      (goto-char (point-max))
      (skip-chars-backward " \t\n")
      (string-trim (buffer-substring (line-beginning-position) (point))))))

(defun pyagentd-install--say ()
  "Say in the echo area how far the installation is."
  (when pyagentd-install--running
    (unless (minibufferp (window-buffer (selected-window)))
      (let ((message-log-max nil))
        (message
         "%s"
         (truncate-string-to-width
          (format "pyagentd: installing the server (%s, %d s): %s"
                  (or (caar (plist-get pyagentd-install--running :steps)) "end")
                  (- (float-time) (plist-get pyagentd-install--running :begun))
                  (pyagentd-install--last-line))
          (1- (frame-width)) nil nil "…"))))))

(defun pyagentd-install--finish ()
  "Note that the environment is complete, and go on with what waits for it."
  (let ((directory (plist-get pyagentd-install--running :directory))
        (waiting (reverse (plist-get pyagentd-install--running :waiting)))
        (seconds (- (float-time) (plist-get pyagentd-install--running :begun)))
        (version (and (string-match "[0-9]+\\.[0-9][^ \n]*"
                                    (pyagentd-install--last-line))
                      (match-string 0 (pyagentd-install--last-line)))))
    (if (not (equal version pyagentd-version))
        (pyagentd-install--fail
         (format "The installed server is version %s, this package is %s"
                 version pyagentd-version))
      (with-temp-file (expand-file-name pyagentd-server-complete directory)
        (prin1 (list :version version) (current-buffer)))
      (pyagentd-install--end)
      (pyagentd-install--prune directory)
      (pyagentd-install--compile directory)
      (message "pyagentd: server %s is installed (%d s)" version seconds)
      (pcase-dolist (`(,then . ,_) waiting)
        (when then
          (pyagentd-guarded "After installing" (funcall then)))))))

(defun pyagentd-install--fail (reason)
  "Give up for REASON, a sentence; what was installed before stays."
  (let ((directory (plist-get pyagentd-install--running :directory))
        (waiting (reverse (plist-get pyagentd-install--running :waiting))))
    (pyagentd-install--end)
    (pyagentd-install--print (concat "\n" reason ".\n"))
    (when directory
      (ignore-errors (delete-directory directory t)))
    (display-buffer pyagentd-install-buffer)
    (let ((text (pyagentd-install--failure reason)))
      (message "pyagentd: %s" text)
      (pcase-dolist (`(,_ . ,failed) waiting)
        (when failed
          (pyagentd-guarded "After installing"
            (funcall failed (list 'user-error text))))))))

(defun pyagentd-install--failure (reason)
  "Return what to tell a user about an installation that failed for REASON."
  (let ((left (car (pyagentd-server-environments))))
    (format "%s.  %sSee %s; M-x pyagentd-doctor" reason
            (if left (format "Version %s is still used.  " (plist-get left :version))
              "")
            pyagentd-install-buffer)))

(defun pyagentd-install--end ()
  "Forget the installation that ran."
  (when-let ((timer (plist-get pyagentd-install--running :timer)))
    (cancel-timer timer))
  (setq pyagentd-install--running nil))

(defun pyagentd-install--prune (new)
  "Delete all environments but NEW and the one that was good before it."
  (let* ((others (seq-remove (lambda (environment)
                               (file-equal-p
                                (plist-get environment :directory) new))
                             (pyagentd-server-environments)))
         (before (car (seq-sort-by (lambda (environment)
                                     (plist-get environment :time))
                                   #'> others))))
    (dolist (directory (directory-files pyagentd-server-directory
                                        t "\\`[0-9]"))
      (unless (or (file-equal-p directory new)
                  (and before
                       (file-equal-p directory
                                     (plist-get before :directory))))
        (ignore-errors (delete-directory directory t))))))

;;;; Asking

(defun pyagentd-install-offer (then &optional failed)
  "Ask once whether to install the server, and call THEN after it is.
FAILED is called with the error, a list (SYMBOL . DATA), if that fails.
Without leave, now or earlier, signal an error that says what to do."
  (cond (pyagentd-install--running (pyagentd-install-server then failed))
        ((and (not pyagentd-install--declined) (not noninteractive)
              (y-or-n-p (pyagentd-install--question)))
         (pyagentd-install-server then failed))
        (t (setq pyagentd-install--declined t)
           (user-error "The server is not installed; use \
M-x pyagentd-install-server, or set `pyagentd-command'"))))

(defun pyagentd-install--question ()
  "Return the question whether to install the server."
  (format "Install the server into %s?  It fetches Python packages with %s. "
          (abbreviate-file-name (pyagentd-install--new-directory))
          (if (pyagentd-installer-uv-p) "uv" "pip")))

(provide 'pyagentd-install)
;;; pyagentd-install.el ends here

;;; pyagentd-install.el --- Installing the Python package, and checking the installation -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Install the server; check the installation, with buttons that fix problems.

;;; Code:

(require 'json)
(require 'pyagentd-list)

(declare-function pyagentd-host-install "pyagentd-host")
(declare-function pyagentd-host-known "pyagentd-host")
(declare-function pyagentd-host-probe "pyagentd-host")

(defvar package-archive-contents)

;;;; The installer

;; The server is installed with uv, else with a Python that is new enough:
;; with its pip if that can install into another environment, or without.
;; Nothing is loaded from the project in which the user works: Python runs
;; isolated, and in another directory.  `pyagentd-host' runs the same script
;; on other machines.

(defconst pyagentd-install-script "\
cd /
run() {
  echo \"$ $*\"
  \"$@\" || { echo \"$1 $2 $3 failed\"; exit 1; }
}
by=uv kind=uv
command -v uv >/dev/null 2>&1 ||
  for by in python3 python3.14 python3.13 python3.12 python3.11 python none; do
    kind=$(\"$by\" -I -c '
import sys, venv, ensurepip
if sys.version_info < (3, 11):
    sys.exit(1)
try:
    import pip
    new = tuple(map(int, pip.__version__.split(\".\")[:2])) >= (22, 3)
except ImportError:
    new = False
print(\"pip\" if new else \"venv\")' 2>/dev/null) && break
  done
if [ $by = none ]; then
  echo 'Python 3.11 or newer, with venv, is missing; install it, or uv'
  exit 1
fi
[ -n \"$new\" ] || { echo $by; exit; }
python=$new/bin/python
options='--no-input --disable-pip-version-check --progress-bar=off --no-compile'
case $kind in
uv)
  run uv venv --no-project --python '>=3.11' \"$new\"
  run uv pip install --python \"$python\" \"$what\" ;;
pip) # a pip of its own takes as long as half of all the rest
  run $by -I -m venv --without-pip \"$new\"
  run $by -I -m pip --python \"$python\" install $options \"$what\" ;;
venv)
  run $by -I -m venv \"$new\"
  run \"$python\" -I -m pip install $options \"$what\" ;;
esac
run \"$new/bin/pyagentd\" --version
# Python compiles what it loads by itself, but each first time takes longer.
nice -n 19 \"$python\" -I -m compileall -qq \"$new/lib\" </dev/null >/dev/null 2>&1 &
"
  "Shell script that installs the requirement $what into the directory $new.
If $new is empty it prints the name of the installer instead.  The last line
that it prints is the installed version, or why it failed.")

(defun pyagentd-install--command (new what)
  "Return the command that runs `pyagentd-install-script' here.
NEW and WHAT are the script's variables, strings."
  (let ((default-directory "/"))
    (list "/usr/bin/env" (concat "PATH=" (mapconcat #'expand-file-name
                                                    (delq nil exec-path) ":"))
          "PYTHONUNBUFFERED=1" "NO_COLOR=1"
          "/bin/sh" "-c" (concat "new=$1 what=$2\n" pyagentd-install-script)
          "sh" new what)))

(defun pyagentd-installer-find (then)
  "Call THEN with the name of a program that can install the server, or nil."
  (let ((default-directory "/"))
    (pyagentd-run "pyagentd-installer" (pyagentd-install--command "" "")
                  (lambda (status text)
                    (funcall then (and (eql 0 status) (string-trim text)))))))

;;;; Installing the server

;; The server of this package's version is installed into a new virtual
;; environment below `pyagentd-server-directory', in the background; the echo
;; area shows the progress.  The environment is used once its program has
;; printed the right version.  The previous one stays until then, and after
;; that, too, if it was complete.

(defcustom pyagentd-server-requirement nil
  "What to install as the server; nil means the version of this package.
Nil installs the wheel beside the package's files or the checkout that they
are in; without either, this version or a later patch from Python's package
index.  A string is a requirement for pip: a file, or a package with its
version."
  :type '(choice (const :tag "The server of this package" nil) string)
  :risky t
  :group 'pyagentd)

(defconst pyagentd-install--here
  (file-name-directory (or load-file-name buffer-file-name default-directory))
  "Directory of the files of this package.")

(defconst pyagentd-install-buffer "*pyagentd-install*"
  "Name of the buffer with the output of the installation.")

(defvar pyagentd-install--running nil
  "Plist of the installation in progress, or nil.
:directory is the target.  :waiting is a list of pairs (THEN . FAILED), the
latest first, of functions to call after success or failure.  :begun and
:timer are for the progress message.")

(defvar pyagentd-install--declined nil
  "Non-nil after the user has declined to install the server.")

(defun pyagentd-install-requirement ()
  "Return the requirement to install, a string.
It includes the extras of the previous server; see `pyagentd-install-extra'."
  (let ((checkout (expand-file-name ".." pyagentd-install--here))
        (extras (mapconcat
                 #'identity
                 (cons "daemon" (plist-get (car (pyagentd-server-environments))
                                           :extras))
                 ",")))
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
          (format "%s[%s]" came extras))
        ;; The package came without a wheel, as from MELPA.
        (format "pyagentd[%s]~=%s" extras pyagentd-version))))

(defun pyagentd-install-run (command then)
  "Run COMMAND, a list; add its output to the buffer of the installation.
Call THEN with its exit status."
  (make-process :name "pyagentd-install" :command command
                :connection-type 'pipe :noquery t
                :filter #'pyagentd-install--print
                :sentinel (lambda (process _change)
                            (unless (process-live-p process)
                              (pyagentd-guarded "Installing"
                                (funcall then (process-exit-status process)))))))

(defun pyagentd-install-clear ()
  "Empty the buffer of the installation."
  (with-current-buffer (get-buffer-create pyagentd-install-buffer)
    (let ((inhibit-read-only t)) (erase-buffer))
    (special-mode)))

(defun pyagentd-install-server (&optional then failed)
  "Install the server of this package's version for this Emacs.
Install into a new directory below `pyagentd-server-directory'; as a command
with `pyagentd-host' set, install on that machine, after asking.  Emacs stays
usable meanwhile.  Afterwards call THEN, a function, or if the installation
failed FAILED with an error, a list (SYMBOL . DATA)."
  (interactive)
  (cond
   ((and pyagentd-host (called-interactively-p 'any))
    (require 'pyagentd-host)
    (pyagentd-host-install (pyagentd-install-requirement)))
   (pyagentd-install--running
    (push (cons then failed) (plist-get pyagentd-install--running :waiting)))
   (t
    (let ((requirement (pyagentd-install-requirement))
          (directory (progn
                       (make-directory pyagentd-server-directory t)
                       (make-temp-file
                        (expand-file-name (concat pyagentd-version "-")
                                          pyagentd-server-directory)
                        t))))
      (pyagentd-install-clear)
      (setq pyagentd-install--declined nil
            pyagentd-install--running
            (list :directory directory
                  :waiting (list (cons then failed))
                  :begun (float-time)
                  :timer (run-at-time 1 1 #'pyagentd-install--say)))
      (let ((default-directory "/"))
        (pyagentd-install-run
         (pyagentd-install--command directory requirement)
         (lambda (status)
           (if (eql 0 status) (pyagentd-install--finish)
             (pyagentd-install--fail (pyagentd-install--last-line))))))))))

(defun pyagentd-install-extra (name)
  "Install the Python packages of the feature NAME for the server.
The installation leaves out rarely needed ones, such as mcp (tool servers)."
  (interactive
   (list (completing-read "Install packages for: "
                          '("acp" "bedrock" "dask" "epc" "mcp" "otel"
                            "vertex" "watch")
                          nil t)))
  (when pyagentd-host
    (user-error "The daemon in use is that of %s; run `pyagentd install %s' there"
                pyagentd-host name))
  (let ((default-directory (expand-file-name "~/")))
    (pyagentd-install-clear)
    (message "pyagentd: installing %s..." name)
    (pyagentd-install-run
     (append (pyagentd-server-command) (list "install" name))
     (lambda (status)
       (if (eql 0 status)
           (message "pyagentd: %s" (pyagentd-install--last-line))
         (display-buffer pyagentd-install-buffer)
         (message "pyagentd: %s could not be installed" name))))))

(defun pyagentd-install--print (_process text)
  "Add TEXT to the buffer of the installation."
  (with-current-buffer (get-buffer-create pyagentd-install-buffer)
    (let ((inhibit-read-only t)
          (tail (= (point) (point-max))))
      (save-excursion
        (goto-char (point-max))
        (insert (replace-regexp-in-string "\r+\n?" "\n" text)))
      (when tail (goto-char (point-max))))))

(defun pyagentd-install--last-line ()
  "Return the last line of the installation's output."
  (with-current-buffer (get-buffer-create pyagentd-install-buffer)
    (save-excursion
      (goto-char (point-max))
      (skip-chars-backward " \t\n")
      (string-trim (buffer-substring (line-beginning-position) (point))))))

(defun pyagentd-install--say ()
  "Show the installation's progress in the echo area."
  (when pyagentd-install--running
    (unless (minibufferp (window-buffer (selected-window)))
      (let ((message-log-max nil))
        (message
         "%s"
         (truncate-string-to-width
          (format "pyagentd: installing the server (%d s): %s"
                  (- (float-time) (plist-get pyagentd-install--running :begun))
                  (pyagentd-install--last-line))
          (1- (frame-width)) nil nil "…"))))))

(defun pyagentd-install--finish ()
  "Mark the environment as complete, and call the functions that wait for it.
Fail if the installed server's version does not fit this package."
  (let ((directory (plist-get pyagentd-install--running :directory))
        (extras (plist-get (car (pyagentd-server-environments)) :extras))
        (seconds (- (float-time) (plist-get pyagentd-install--running :begun)))
        (version (and (string-match "[0-9]+\\.[0-9][^ \n]*"
                                    (pyagentd-install--last-line))
                      (match-string 0 (pyagentd-install--last-line)))))
    (if (not (and version (pyagentd-server-same-minor-p version)))
        (pyagentd-install--fail
         (format "The installed server is version %s, this package is %s"
                 version pyagentd-version))
      (with-temp-file (expand-file-name pyagentd-server-complete directory)
        (prin1 `(:version ,version ,@(and extras `(:extras ,extras)))
               (current-buffer)))
      (pyagentd-install--prune directory)
      (message "pyagentd: server %s is installed (%d s)" version seconds)
      (pyagentd-install--end))))

(defun pyagentd-install--fail (reason)
  "End the installation with REASON, a sentence; the previous server stays."
  (when-let ((directory (plist-get pyagentd-install--running :directory)))
    (ignore-errors (delete-directory directory t)))
  (display-buffer pyagentd-install-buffer)
  (let* ((left (car (pyagentd-server-environments)))
         (text (format "%s.  %sSee %s; M-x pyagentd-doctor" reason
                       (if left (format "Version %s is still used.  "
                                        (plist-get left :version))
                         "")
                       pyagentd-install-buffer)))
    (message "pyagentd: %s" text)
    (pyagentd-install--end (list 'user-error text))))

(defun pyagentd-install--end (&optional err)
  "Forget the installation, and call the functions that wait for it.
Those for failure get ERR; those for success are called if that is nil."
  (let ((waiting (reverse (plist-get pyagentd-install--running :waiting))))
    (when-let ((timer (plist-get pyagentd-install--running :timer)))
      (cancel-timer timer))
    (setq pyagentd-install--running nil)
    (pcase-dolist (`(,then . ,failed) waiting)
      (pyagentd-guarded "After installing"
        (cond ((and err failed) (funcall failed err))
              ((and then (not err)) (funcall then)))))))

(defun pyagentd-install--prune (new)
  "Delete all environments but NEW and the last complete one before it."
  (let* ((others (remove new (directory-files pyagentd-server-directory
                                              t "\\`[0-9]")))
         (before (seq-find (lambda (directory) (member directory others))
                           (mapcar (lambda (environment)
                                     (plist-get environment :directory))
                                   (pyagentd-server-environments)))))
    (dolist (directory others)
      (unless (or (equal directory before)
                  ;; Another Emacs may be installing it.
                  (and (null (pyagentd-server--environment directory))
                       (time-less-p
                        (time-subtract nil (* 24 60 60))
                        (file-attribute-modification-time
                         (file-attributes directory)))))
        (ignore-errors (delete-directory directory t))))))

(defun pyagentd-install-offer (then &optional failed)
  "Ask once whether to install the server; if so, install it and call THEN.
If installing fails, call FAILED with the error, a list (SYMBOL . DATA).  If
the user declines, or did so before, signal a `user-error' with alternatives."
  (cond (pyagentd-install--running (pyagentd-install-server then failed))
        ((and (not pyagentd-install--declined) (not noninteractive)
              (let ((question "Install the server into %s?  It fetches Python \
packages with %s. "))
                (y-or-n-p (format question
                                  (abbreviate-file-name
                                   pyagentd-server-directory)
                                  (let ((default-directory "/"))
                                    (if (executable-find "uv") "uv" "pip"))))))
         (pyagentd-install-server then failed))
        (t (setq pyagentd-install--declined t)
           (user-error "The server is not installed; use \
M-x pyagentd-install-server, or set `pyagentd-command'"))))

;;;; Checking the installation

;; One buffer shows the state of Emacs, the package, the server and other
;; machines, with buttons to fix each problem.  Emacs' own checks are shown at
;; once; the others are read from the output of `pyagentd doctor'.

(defun pyagentd-doctor-mend-install ()
  "Install the server and repeat the checks."
  (pyagentd-install-server #'pyagentd-doctor--again))

(defun pyagentd-doctor-mend--here ()
  "Signal a `user-error' if the daemon in use is on another machine."
  (when pyagentd-host
    (user-error "The daemon in use is that of %s; \
M-x pyagentd-install-server installs the server there, then run \
`pyagentd stop' there" pyagentd-host)))

(defun pyagentd-upgrade ()
  "Install the server that fits this package, and restart the daemon with it.
Runs in progress are stopped, and continue when you continue their session;
all data stays.  The previous server is kept until the next upgrade."
  (interactive)
  (pyagentd-doctor-mend--here)
  (when (or noninteractive
            (y-or-n-p (format "Install server %s and restart the daemon? "
                              pyagentd-version)))
    (pyagentd-doctor-mend-install-and-use t)))

(defun pyagentd-doctor-mend-install-and-use (&optional restart)
  "Install the server of this package's version, and prefer it to others.
Then restart the daemon if RESTART is non-nil."
  (pyagentd-install-server
   (lambda ()
     (when-let (((or pyagentd-command (executable-find "pyagentd")))
                (best (car (pyagentd-server-environments))))
       (customize-save-variable 'pyagentd-command
                                (list (plist-get best :program))))
     (if restart (pyagentd-doctor-mend-restart)
       (pyagentd-doctor--again)))))

(defun pyagentd-doctor-mend-restart ()
  "Stop the daemon, and start the server that is now installed."
  (pyagentd-doctor-mend--here)
  (pyagentd-run "pyagentd-stop" (append (pyagentd-server-command) '("stop"))
                (lambda (_status text)
                  (message "pyagentd: %s" (string-trim text))
                  (pyagentd-start #'pyagentd-doctor--again))))

;;;; Checks

;; A finding, the result of a check, is a list (NAME LEVEL DETAIL . BUTTONS).
;; LEVEL is `ok', `warning', `missing' or `asked' (in progress), DETAIL a
;; string; a button is a pair of a label and a function.

(defconst pyagentd-doctor-check--say-where
  (cons "Set pyagentd-command"
        (lambda () (customize-option 'pyagentd-command)))
  "Button that customizes `pyagentd-command'.")

(defconst pyagentd-doctor-check--install
  (cons (format "Install version %s" pyagentd-version)
        #'pyagentd-doctor-mend-install)
  "Button that installs the server of this package's version.")

(defun pyagentd-doctor-check-examine (installer)
  "Return the findings of the checks that need no server.
INSTALLER is the program that can install the server, see
`pyagentd-installer-find', or the symbol `asked' while it is searched for."
  (let ((markdown (locate-library "markdown-mode")))
    (list
     (list "emacs" 'ok (format "%s, %s" emacs-version
                               (if (display-graphic-p) "graphical"
                                 "in a terminal")))
     (list "package" 'ok (format "%s (%s)" pyagentd-version
                                 (abbreviate-file-name pyagentd-install--here)))
     (if markdown (list "markdown-mode" 'ok (abbreviate-file-name markdown))
       (list "markdown-mode" 'warning "not installed"
             (cons "Install it"
                   (lambda ()
                     (require 'package)
                     (unless (assq 'markdown-mode package-archive-contents)
                       (package-refresh-contents))
                     (package-install 'markdown-mode)))))
     (pyagentd-doctor-check--found installer))))

(defun pyagentd-doctor-check--found (installer)
  "Return the finding about the server's location; INSTALLER can install it."
  (let* ((found (pyagentd-server-found))
         (program (car (plist-get found :command)))
         (path (and program (executable-find program))))
    (cond (path
           (list "server" 'ok
                 (format "%s (%s)" (abbreviate-file-name path)
                         (pcase-exhaustive (plist-get found :source)
                           ('option "pyagentd-command")
                           ('path "on the path")
                           ('environment "installed for Emacs")))))
          (found
           (list "server" 'missing
                 (format "`pyagentd-command' names %s, which does not exist" program)
                 (cons "Search for it"
                       (lambda ()
                         (customize-save-variable 'pyagentd-command nil)))
                 pyagentd-doctor-check--say-where))
          (t `("server" missing
               ,(pcase installer
                  ('asked "not found; looking for an installer…")
                  ('nil "not found; to install it, Python 3.11 or newer \
with venv, or uv, is needed")
                  (_ (format "not found; %s can install it" installer)))
               ,@(when (stringp installer)
                   '(("Install it" . pyagentd-doctor-mend-install)))
               ,pyagentd-doctor-check--say-where)))))

(defun pyagentd-doctor-check-host (host version reason)
  "Return the finding about HOST, whose server has VERSION.
VERSION is nil if it did not answer, for REASON.  That is a failure only for
the host in use."
  (let ((good (and version (pyagentd-server-same-minor-p version)))
        (used (equal host pyagentd-host)))
    `(,host ,(cond (good 'ok) (used 'missing) (t 'warning))
            ,(cond (good (format "answers, version %s" version))
                   (version (format "the server is version %s, this package %s"
                                    version pyagentd-version))
                   (t reason))
            ,@(when (and used (not good))
                (list (cons "Use this machine"
                            (lambda ()
                              (pyagentd-use-host nil)
                              (pyagentd-doctor--again))))))))

(defun pyagentd-doctor-check-read (text)
  "Return the findings in TEXT, the output of `pyagentd doctor'."
  (let* ((answer (ignore-errors
                   (json-parse-string (string-trim text)
                                      :object-type 'plist :array-type 'list)))
         (version (plist-get answer :version))
         (protocol (plist-get answer :protocol))
         (speaks (eql protocol pyagentd-rpc-protocol)))
    (if (null (plist-get answer :checks)) ; an error, or not JSON
        (list (list "server" 'missing
                    (format "its check failed: %s"
                            (truncate-string-to-width
                             (string-trim text) 300 nil nil t))
                    pyagentd-doctor-check--install))
      (append
       (unless (and speaks (pyagentd-server-same-minor-p version))
         (list (list "server version" (if speaks 'warning 'missing)
                     (format "%s, protocol %s; this package is %s, protocol %s"
                             version protocol pyagentd-version
                             pyagentd-rpc-protocol)
                     (cons (format "Install version %s and use it"
                                   pyagentd-version)
                           #'pyagentd-doctor-mend-install-and-use)
                     pyagentd-doctor-check--say-where)))
       (mapcar
        (lambda (check)
          (let* ((name (plist-get check :name))
                 (level (intern (plist-get check :level)))
                 (detail (plist-get check :detail))
                 (hint (plist-get check :hint)))
            (if (eq level 'ok) (list name level detail)
              `(,name ,level
                      ,(if (string-empty-p hint) detail
                         (concat detail "\n" hint))
                      ,@(pyagentd-doctor-check--remedies name detail hint)))))
        (plist-get answer :checks))))))

(defun pyagentd-doctor-check--remedies (name detail hint)
  "Return the buttons that fix the failed check NAME with DETAIL and HINT."
  (pcase name
    ("daemon" (list '("Restart the daemon" . pyagentd-doctor-mend-restart)
                    (cons "Show its log"
                          (lambda ()
                            (view-file-other-window
                             (expand-file-name
                              "daemon.log" (file-name-directory
                                            (pyagentd-rpc-runtime-file))))))))
    ((or "key" "backend")               ; first and last: for this Emacs only
     (list (cons "Enter the API key"
                 (lambda ()
                   (setenv "ANTHROPIC_API_KEY"
                           (read-passwd "API key (kept in memory of this \
Emacs only): "))
                   (pyagentd-doctor--again)))
           (cons "Save it in ~/.authinfo.gpg"
                 (lambda ()
                   (find-file-other-window "~/.authinfo.gpg")
                   (goto-char (point-max))
                   (insert (if (bolp) "" "\n")
                           (format "machine %s login apikey password "
                                   (or pyagentd-api-key-host
                                       "api.anthropic.com")))))
           (cons "Use the offline stand-in"
                 (lambda ()
                   (setenv "PYAGENTD_BACKEND" "offline")
                   (pyagentd-doctor--again)))))
    ("packages" (list pyagentd-doctor-check--install))
    (_ (if-let ((cause (pyagentd-cause (concat detail "\n" hint))))
           (list (cons (format "Open %s" (file-name-nondirectory (car cause)))
                       (lambda () (pyagentd-cause-visit cause))))
         (when (and (string-match "\\`\\([a-z][^ ;]*\\)" hint)
                    (executable-find (match-string 1 hint)))
           (list (cons "Run it"
                       (lambda ()
                         (when (y-or-n-p (format "Run `%s'? " hint))
                           (async-shell-command hint "*pyagentd-run*"))))))))))

;;;; The buffer

(defconst pyagentd-doctor--timeout 60
  "Seconds that `pyagentd doctor' may take.")

(defvar-local pyagentd-doctor--findings nil
  "Alist of subjects and their findings, in order.
The subjects are `emacs', the names of other machines, and `server'.")

(defvar pyagentd-doctor--host-timeout 15
  "Seconds that another machine may take to answer.")

(defun pyagentd-doctor--awaiting (what &rest asked)
  "Return a function that shows the findings about WHAT, its arguments.
Until it is called show the findings ASKED.  It does nothing if all checks
were restarted meanwhile."
  (let ((entry (cons what asked)))
    (setq pyagentd-doctor--findings
          (append pyagentd-doctor--findings (list entry)))
    (pyagentd-later-back
     (lambda (&rest findings)
       (when (memq entry pyagentd-doctor--findings)
         (setcdr entry findings)
         (pyagentd-doctor--show))))))

(defun pyagentd-doctor--ask ()
  "Run `pyagentd doctor' in the background, and show its findings."
  (when-let* ((command (plist-get (pyagentd-server-found) :command))
              ((executable-find (car command))))
    (let ((answered (pyagentd-doctor--awaiting
                     'server '("checks" asked "asking the server…"))))
      (pyagentd-run
       "pyagentd-doctor" (append command '("doctor" "--json" "--no-emacs"))
       (lambda (_status text)
         (apply answered (pyagentd-doctor-check-read text)))
       nil pyagentd-doctor--timeout))))

(defun pyagentd-doctor--ask-hosts ()
  "Check the other machines whose daemon is or was used."
  (require 'pyagentd-host)
  (dolist (host (pyagentd-host-known))
    (let* ((found (pyagentd-doctor--awaiting
                   host (list host 'asked "asking over SSH…")))
           (answered (lambda (version reason)
                       (funcall found (pyagentd-doctor-check-host
                                       host version reason)))))
      (condition-case error
          (pyagentd-host-probe host pyagentd-doctor--host-timeout answered)
        (error                          ; ssh is not installed
         (funcall answered nil (error-message-string error)))))))

(defun pyagentd-doctor--lines (finding)
  "Return FINDING as lines of a report, the last one with its buttons."
  (pcase-let* ((`(,name ,level ,detail . ,buttons) finding)
               (`(,mark ,face)
                (pcase-exhaustive level
                  ('ok '("✓" "good")) ('warning '("!" "warn"))
                  ('missing '("✗" "bad")) ('asked '("…" "dim"))))
               (`(,first . ,more) (split-string detail "\n"))
               (space (make-string 23 ?\s)))
    (append
     (list (list :parts
                 (list (list :text (format "%2s" mark) :face face)
                       (format " %-19s %s" name first))))
     (mapcar (lambda (line) (list :parts (list space line))) more)
     (when buttons
       (list (list :parts
                   (cons space
                         (mapcan
                          (pcase-lambda (`(,label . ,function))
                            (list (list :text (format "[%s]" label)
                                        :visit (list :kind "call"
                                                     :function function))
                                  " "))
                          buttons))))))))

(defun pyagentd-doctor--verdict (findings)
  "Return a sentence that summarises FINDINGS."
  (let* ((levels (mapcar #'cadr findings))
         (missing (seq-count (lambda (level) (eq level 'missing)) levels))
         (warnings (seq-count (lambda (level) (eq level 'warning)) levels)))
    (cond ((memq 'asked levels) "Checking…")
          ((= 0 missing warnings) "All checks passed.")
          (t (format "%s failed, %s."
                     (if (= missing 0) "No check"
                       (pyagentd-count missing "check"))
                     (if (= warnings 0) "no warnings"
                       (pyagentd-count warnings "warning")))))))

(defun pyagentd-doctor--show ()
  "Show the findings."
  (let ((all (seq-mapcat #'cdr pyagentd-doctor--findings)))
    (pyagentd-report-print
     (list :title "Doctor"
           :lines
           (append `((:parts ((:text ,(pyagentd-doctor--verdict all)
                                     :face "strong")))
                     (:parts ("")))
                   (seq-mapcat #'pyagentd-doctor--lines all)
                   `((:parts (""))
                     (:parts (,(substitute-command-keys
                                "\\<pyagentd-doctor-mode-map>\\[revert-buffer] refresh  \
\\[forward-button] next button  \\[quit-window] close")))))))))

(defvar pyagentd-doctor-mode-map
  (pyagentd-keymap
   "TAB" #'forward-button
   "<backtab>" #'backward-button
   "n" #'forward-button
   "p" #'backward-button)
  "Keymap of `pyagentd-doctor-mode'.")

(define-derived-mode pyagentd-doctor-mode pyagentd-report-mode "Doctor"
  "Major mode of the buffer of `pyagentd-doctor'."
  :interactive nil
  (setq-local wrap-prefix (make-string 23 ?\s)
              revert-buffer-function
              (lambda (&rest _) (pyagentd-doctor--refresh))))

(defun pyagentd-doctor--refresh ()
  "Run all checks again."
  (setq pyagentd-doctor--findings nil)
  (let ((examined (apply #'pyagentd-doctor--awaiting 'emacs
                         (pyagentd-doctor-check-examine 'asked))))
    (pyagentd-doctor--ask-hosts)
    (pyagentd-doctor--ask)
    (pyagentd-doctor--show)
    (unless (pyagentd-server-found)
      (pyagentd-installer-find
       (lambda (installer)
         (apply examined (pyagentd-doctor-check-examine installer)))))))

(defun pyagentd-doctor--again ()
  "Run all checks again if the doctor's buffer still exists."
  (when-let ((buffer (get-buffer "*pyagentd-doctor*")))
    (with-current-buffer buffer (pyagentd-doctor--refresh))))

;;;###autoload
(defun pyagentd-doctor ()
  "Check the installation, and show buttons that fix problems."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd-doctor*")))
    (with-current-buffer buffer
      (pyagentd-doctor-mode)
      (pyagentd-doctor--refresh))
    (pop-to-buffer buffer)))

(provide 'pyagentd-install)
;;; pyagentd-install.el ends here

;;; pyagentd-install.el --- Installing the Python package, and checking the installation -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Finds an installer and runs it; says what is wrong, with buttons that put
;; it right.

;;; Code:

(require 'json)
(require 'pyagentd-list)

(declare-function pyagentd-host-install "pyagentd-host")
(declare-function pyagentd-host-known "pyagentd-host")
(declare-function pyagentd-host-probe "pyagentd-host")

(defvar package-archive-contents)

;;;; What installs the server

;; The server is installed by uv, else by a Python that is new enough, with
;; a pip that installs for another Python or without one.  Nothing of the
;; project in which the user works is loaded: Python is isolated, and the
;; script works elsewhere.  `pyagentd-host' runs it on other machines.

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
  "What installs the requirement $what into the directory $new.
Without that it prints what would do so.  The last line that it prints is
the version that was installed, or why none was.")

(defun pyagentd-install--command (new what)
  "Return what runs `pyagentd-install-script' here for NEW and WHAT, texts."
  (let ((default-directory "/"))
    (list "/usr/bin/env" (concat "PATH=" (mapconcat #'expand-file-name
                                                    (delq nil exec-path) ":"))
          "PYTHONUNBUFFERED=1" "NO_COLOR=1"
          "/bin/sh" "-c" (concat "new=$1 what=$2\n" pyagentd-install-script)
          "sh" new what)))

(defun pyagentd-installer-find (then)
  "Call THEN with the program that can install the server, nil if none can."
  (let ((default-directory "/"))
    (pyagentd-run "pyagentd-installer" (pyagentd-install--command "" "")
                  (lambda (status text)
                    (funcall then (and (eql 0 status) (string-trim text)))))))

;;;; Installing the server

;; Makes a virtual environment with the server of this package's version
;; below `pyagentd-server-directory'.  Emacs goes on meanwhile and the echo
;; area says how far it is.  The environment counts once its program said
;; the right version; what was there before stays until then, and one that
;; was good stays after that, too.

(defcustom pyagentd-server-requirement nil
  "What to install as the server; nil means the one of this package.
That is the wheel beside the package's files, or the checkout they are in;
without either, this version or a later patch from Python's package index.
A string is a requirement for pip: a file, or a package with its version."
  :type '(choice (const :tag "What came with the package" nil) string)
  :risky t
  :group 'pyagentd)

(defconst pyagentd-install--here
  (file-name-directory (or load-file-name buffer-file-name default-directory))
  "Directory of the files of this package.")

(defconst pyagentd-install-buffer "*pyagentd-install*"
  "Name of the buffer with what the installation printed.")

(defvar pyagentd-install--running nil
  "Plist of the installation that runs, or nil.
:directory is where to, :waiting are pairs (THEN . FAILED) of
functions, one of which is called after it, the latest first, :begun and
:timer are about progress.")

(defvar pyagentd-install--declined nil
  "Non-nil after the user did not want the server to be installed.")

(defun pyagentd-install-requirement ()
  "Return what to install, a string.
It has what was added to the server before, see `pyagentd-install-extra'."
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
        ;; Built without it, as MELPA does.
        (format "pyagentd[%s]~=%s" extras pyagentd-version))))

(defun pyagentd-install-run (command then)
  "Run COMMAND, a list, and show what it prints; THEN gets its exit status."
  (make-process :name "pyagentd-install" :command command
                :connection-type 'pipe :noquery t
                :filter #'pyagentd-install--print
                :sentinel (lambda (process _change)
                            (unless (process-live-p process)
                              (pyagentd-guarded "Installing"
                                (funcall then (process-exit-status process)))))))

(defun pyagentd-install-clear ()
  "Begin the buffer of the installation anew."
  (with-current-buffer (get-buffer-create pyagentd-install-buffer)
    (let ((inhibit-read-only t)) (erase-buffer))
    (special-mode)))

(defun pyagentd-install-server (&optional then failed)
  "Install the server of this package's version for this Emacs.
It goes into a directory of its own below `pyagentd-server-directory',
or, as a command with `pyagentd-host', onto that machine, after asking.
Emacs stays usable meanwhile.  THEN, a function, is called afterwards
if that worked; else FAILED is, with an error, a list (SYMBOL . DATA)."
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
The installation leaves out what few need, such as servers of tools (mcp)."
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
          (format "pyagentd: installing the server (%d s): %s"
                  (- (float-time) (plist-get pyagentd-install--running :begun))
                  (pyagentd-install--last-line))
          (1- (frame-width)) nil nil "…"))))))

(defun pyagentd-install--finish ()
  "Note that the environment is complete, and go on with what waits for it."
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
  "Give up for REASON, a sentence; what was installed before stays."
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
  "Forget the installation that ran; tell what waits for it of ERR, or go on."
  (let ((waiting (reverse (plist-get pyagentd-install--running :waiting))))
    (when-let ((timer (plist-get pyagentd-install--running :timer)))
      (cancel-timer timer))
    (setq pyagentd-install--running nil)
    (pcase-dolist (`(,then . ,failed) waiting)
      (pyagentd-guarded "After installing"
        (cond ((and err failed) (funcall failed err))
              ((and then (not err)) (funcall then)))))))

(defun pyagentd-install--prune (new)
  "Delete all environments but NEW and the one that was good before it."
  (let* ((others (remove new (directory-files pyagentd-server-directory
                                              t "\\`[0-9]")))
         (before (seq-find (lambda (directory) (member directory others))
                           (mapcar (lambda (environment)
                                     (plist-get environment :directory))
                                   (pyagentd-server-environments)))))
    (dolist (directory others)
      (unless (or (equal directory before)
                  ;; Another Emacs may be making it.
                  (and (null (pyagentd-server--environment directory))
                       (time-less-p
                        (time-subtract nil (* 24 60 60))
                        (file-attribute-modification-time
                         (file-attributes directory)))))
        (ignore-errors (delete-directory directory t))))))

(defun pyagentd-install-offer (then &optional failed)
  "Ask once whether to install the server, and call THEN after it is.
FAILED is called with the error, a list (SYMBOL . DATA), if that fails.
Without leave, now or earlier, signal an error that says what to do."
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

;; One buffer says what Emacs, the package, the server and other machines are
;; like.  Each thing that is wrong has buttons that put it right.  What Emacs
;; knows is there at once; the rest is read from what `pyagentd doctor' prints.

(defun pyagentd-doctor-mend-install ()
  "Install the server and look again."
  (pyagentd-install-server #'pyagentd-doctor--again))

(defun pyagentd-doctor-mend--here ()
  "Signal what to do where the daemon in use is that of another machine."
  (when pyagentd-host
    (user-error "The daemon in use is that of %s; \
M-x pyagentd-install-server installs the server there, then run \
`pyagentd stop' there" pyagentd-host)))

(defun pyagentd-upgrade ()
  "Install the server that fits this package, and restart the daemon with it.
Work that runs is stopped and goes on when its session is continued; all
data stays.  The server before is kept until the next upgrade."
  (interactive)
  (pyagentd-doctor-mend--here)
  (when (or noninteractive
            (y-or-n-p (format "Install server %s and restart the daemon? "
                              pyagentd-version)))
    (pyagentd-doctor-mend-install-and-use t)))

(defun pyagentd-doctor-mend-install-and-use (&optional restart)
  "Install the server of this version, and take it whatever the path has.
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
  "Stop the daemon and start the one that is found now."
  (pyagentd-doctor-mend--here)
  (pyagentd-run "pyagentd-stop" (append (pyagentd-server-command) '("stop"))
                (lambda (_status text)
                  (message "pyagentd: %s" (string-trim text))
                  (pyagentd-start #'pyagentd-doctor--again))))

;;;; What is wrong with an installation

;; A finding is a list (NAME LEVEL DETAIL . BUTTONS).  LEVEL is `ok',
;; `warning', `missing' or `asked', DETAIL a text; a button is a pair of a
;; label and a function.

(defconst pyagentd-doctor-check--say-where
  (cons "Set pyagentd-command"
        (lambda () (customize-option 'pyagentd-command)))
  "The button that changes `pyagentd-command'.")

(defconst pyagentd-doctor-check--install
  (cons (format "Install version %s" pyagentd-version)
        #'pyagentd-doctor-mend-install)
  "The button that installs the server of the right version.")

(defun pyagentd-doctor-check-examine (installer)
  "Return what Emacs knows, a list of findings.
INSTALLER is what can install the server, see `pyagentd-installer-find',
or the symbol `asked' while that is looked for."
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
  "Return the finding about where the server is; INSTALLER can install it."
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
                 (format "`pyagentd-command' names %s, which is not there" program)
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
  "Return the finding about HOST: its server's VERSION, or nil and REASON.
Only the host that is in use counts as a failure."
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
  "Return the findings in TEXT, what the server printed."
  (let* ((answer (ignore-errors
                   (json-parse-string (string-trim text)
                                      :object-type 'plist :array-type 'list)))
         (version (plist-get answer :version))
         (protocol (plist-get answer :protocol))
         (speaks (eql protocol pyagentd-rpc-protocol)))
    (if (null (plist-get answer :checks)) ; an error, or what is no JSON
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
  "Return the buttons for what is wrong with NAME, by DETAIL and HINT."
  (pcase name
    ("daemon" (list '("Restart the daemon" . pyagentd-doctor-mend-restart)
                    (cons "Show its log"
                          (lambda ()
                            (view-file-other-window
                             (expand-file-name
                              "daemon.log" (file-name-directory
                                            (pyagentd-rpc-runtime-file))))))))
    ((or "key" "backend")               ; the first and the last for this Emacs
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
  "Seconds that the server's own examination may take.")

(defvar-local pyagentd-doctor--findings nil
  "Alist of what is examined and the findings about it, in their order.
What is examined is `emacs', the names of other machines, and `server'.")

(defvar pyagentd-doctor--host-timeout 15
  "Seconds that another machine may take to answer.")

(defun pyagentd-doctor--awaiting (what &rest asked)
  "Return a function that shows findings about WHAT; until then ASKED are shown.
It does nothing once everything is examined anew."
  (let ((entry (cons what asked)))
    (setq pyagentd-doctor--findings
          (append pyagentd-doctor--findings (list entry)))
    (pyagentd-later-back
     (lambda (&rest findings)
       (when (memq entry pyagentd-doctor--findings)
         (setcdr entry findings)
         (pyagentd-doctor--show))))))

(defun pyagentd-doctor--ask ()
  "Have the server examine itself; show what it says when it did."
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
  "Ask the other machines whose daemon is used or was used."
  (require 'pyagentd-host)
  (dolist (host (pyagentd-host-known))
    (let* ((found (pyagentd-doctor--awaiting
                   host (list host 'asked "asking over SSH…")))
           (answered (lambda (version reason)
                       (funcall found (pyagentd-doctor-check-host
                                       host version reason)))))
      (condition-case error
          (pyagentd-host-probe host pyagentd-doctor--host-timeout answered)
        (error                          ; there is no ssh
         (funcall answered nil (error-message-string error)))))))

(defun pyagentd-doctor--lines (finding)
  "Return FINDING as lines of a page, the last one with its buttons."
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
  "Return a sentence about FINDINGS as a whole."
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
  "Examine everything anew."
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
  "Look again, if the buffer is still there."
  (when-let ((buffer (get-buffer "*pyagentd-doctor*")))
    (with-current-buffer buffer (pyagentd-doctor--refresh))))

;;;###autoload
(defun pyagentd-doctor ()
  "Check the installation; buttons repair what is wrong."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd-doctor*")))
    (with-current-buffer buffer
      (pyagentd-doctor-mode)
      (pyagentd-doctor--refresh))
    (pop-to-buffer buffer)))

(provide 'pyagentd-install)
;;; pyagentd-install.el ends here

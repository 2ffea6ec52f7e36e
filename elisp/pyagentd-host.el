;;; pyagentd-host.el --- The daemon of another machine, over SSH -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; With `pyagentd-host' this Emacs uses the daemon of another machine:
;; sessions, files, tools and keys are those of that machine.
;;
;; The link is one ssh process.  On the host it starts the daemon if none
;; runs, prints its version, and then forwards frames to its socket and back;
;; no port is opened.  (OpenSSH refuses to forward the socket itself for root,
;; and administrators often for all users.)  A lost link is made again.
;;
;; A buffer visits a local copy of the conversation's file, so that Emacs'
;; file operations never wait for the network.  The name of a copy is the name
;; of the host's file below a local directory.  Names are translated only
;; where calls, answers and events pass the connection.  The text is written
;; to the copy after the host's file has it.

;;; Code:

(require 'url-util)
(require 'pyagentd-sync)

(declare-function pyagentd-install-clear "pyagentd-install")
(declare-function pyagentd-install-run "pyagentd-install")
(defvar pyagentd-install-buffer)
(defvar pyagentd-install-script)

(defcustom pyagentd-host-ssh '("ssh")
  "Program that connects to `pyagentd-host', and its first arguments.
It must not prompt: use keys from an SSH agent, or a connection that is
already open (ControlMaster)."
  :type '(repeat string)
  :risky t
  :group 'pyagentd)

(defcustom pyagentd-host-command nil
  "Program of the server on `pyagentd-host', as a shell word there.
nil means the server that \\[pyagentd-install-server] installed there, else
pyagentd on the path, else ~/.local/bin/pyagentd."
  :type '(choice (const :tag "Search for it" nil) string)
  :risky t
  :group 'pyagentd)

(defvar pyagentd-host--silence 5
  "Seconds between two heartbeats of the link.
After three times as many without an answer the link counts as lost.")

(defvar pyagentd-host--link nil
  "The process of the link.
Its property `asked' is the time of an unanswered heartbeat.")

(defvar pyagentd-host--wanted nil
  "The host to reconnect to when the link is lost, or nil.")

(defvar pyagentd-host--alone nil
  "Non-nil after a link timed out; the next one opens its own SSH connection.")

(defvar pyagentd-host--timer nil
  "Timer of the link's heartbeat, or nil.")

;;;; Directories of this machine

(defun pyagentd-host--state ()
  "Return the private directory of the copies; create it if need be."
  (let ((directory (expand-file-name
                    "pyagentd/hosts" (or (getenv "XDG_STATE_HOME")
                                         "~/.local/state"))))
    (unless (file-directory-p directory)
      (with-file-modes #o700 (make-directory directory t)))
    (file-truename directory)))

(defvar pyagentd-host--copies-cache nil
  "Pair of a host and the local directory of its copies.")

(defun pyagentd-host--copies ()
  "Return the local directory of the copies of the host's files."
  (unless (equal (car pyagentd-host--copies-cache) pyagentd-host)
    (setq pyagentd-host--copies-cache
          (cons pyagentd-host
                (expand-file-name (url-hexify-string pyagentd-host)
                                  (pyagentd-host--state)))))
  (cdr pyagentd-host--copies-cache))

(defun pyagentd-host-of (file)
  "Return the host of the conversation in FILE, or nil for this machine."
  (let ((hosts (file-name-as-directory (pyagentd-host--state))))
    (when (string-prefix-p hosts file)
      (url-unhex-string
       (car (split-string (substring file (length hosts)) "/"))))))

;;;; The link

(defun pyagentd-host--ssh (command)
  "Return the ssh command that runs COMMAND, a shell command, on the host."
  (append pyagentd-host-ssh
          '("-T" "-o" "BatchMode=yes" "-o" "ConnectTimeout=10"
            "-o" "ServerAliveInterval=5" "-o" "ServerAliveCountMax=3")
          (and pyagentd-host--alone '("-o" "ControlPath=none"))
          (list "--" pyagentd-host command)))

(defun pyagentd-host--command (words)
  "Return the shell command that runs the server on the host.
WORDS is a string of its arguments."
  (let ((places (if pyagentd-host-command (list pyagentd-host-command)
                  '("\"$HOME/.local/share/pyagentd/server/bin/pyagentd\""
                    "pyagentd" "\"$HOME/.local/bin/pyagentd\""))))
    (concat "exec sh -c "
            (shell-quote-argument
             (format "for p in %s; do command -v \"$p\" >/dev/null 2>&1 && \
exec \"$p\" %s; done; echo pyagentd-absent >&2; exit 127"
                     (string-join places " ") words)))))

(defun pyagentd-host-serve (&optional how)
  "Return the process of the link to `pyagentd-host'; start it if need be.
It starts the daemon there if none runs, unless HOW is \"find\"."
  (unless (and (process-live-p pyagentd-host--link)
               (equal (process-get pyagentd-host--link 'host) pyagentd-host)
               (or (process-get pyagentd-host--link 'runtime)
                   (equal (process-get pyagentd-host--link 'how) how)))
    (pyagentd-host-cut)
    (let* ((default-directory (expand-file-name "~/"))
           (buffer (generate-new-buffer " *pyagentd-link*"))
           (errors (generate-new-buffer " *pyagentd-link-errors*"))
           (pipe (make-pipe-process :name "pyagentd-link-errors" :noquery t
                                    :buffer errors :sentinel #'ignore))
           process)
      (with-current-buffer buffer
        (set-buffer-multibyte nil)
        (buffer-disable-undo))
      (setq process (make-process
                     :name "pyagentd-link" :noquery t :connection-type 'pipe
                     :coding 'binary :buffer buffer :stderr pipe
                     :command (pyagentd-host--ssh
                               (pyagentd-host--command
                                (concat "serve --link " (or how "start"))))
                     :filter #'pyagentd-host--greeting
                     :sentinel #'pyagentd-host--ended))
      (process-put process 'host pyagentd-host)
      (process-put process 'how how)
      (process-put process 'errors errors)
      (setq pyagentd-host--link process)))
  pyagentd-host--link)

(defun pyagentd-host--greeting (process text)
  "Read the greeting of the daemon in TEXT, printed by PROCESS, the link.
Ignore output of the login before it."
  (when (buffer-live-p (process-buffer process))
    (with-current-buffer (process-buffer process)
      (goto-char (point-max))
      (insert text)
      (goto-char (point-min))
      (when (re-search-forward "^pyagentd-link \\((.*)\\)\n" nil t)
        (process-put process 'runtime
                     (append (list :process process)
                             (ignore-errors (pyagentd-rpc--read
                                             (match-string 1)))))
        (delete-region (point-min) (point))
        (setq pyagentd-host--wanted pyagentd-host)
        ;; `pyagentd-start--look' waits for a daemon that is being started.
        (unless (eq process pyagentd-start--process)
          (run-at-time 0 nil
                       (lambda ()
                         (condition-case err (pyagentd-rpc-connect)
                           (error       ; such as another protocol version
                            (pyagentd-log 'error "%s" (pyagentd-error-text err))
                            (pyagentd-host-cut))))))))))

(defun pyagentd-host-filter (process chunk)
  "Handle CHUNK from PROCESS, the link in use, and record that it is alive."
  (process-put process 'asked nil)
  (pyagentd-rpc--filter process chunk))

(defun pyagentd-host--watch ()
  "Start the heartbeat of the link."
  (when (and pyagentd-host (null pyagentd-host--timer))
    (setq pyagentd-host--timer
          (run-at-time pyagentd-host--silence pyagentd-host--silence
                       #'pyagentd-host--beat))))

(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-host--watch)

(defun pyagentd-host--beat ()
  "Send a heartbeat on the link, or end the link if it has timed out."
  (let* ((link pyagentd-host--link)
         (asked (and (process-live-p link) (process-get link 'asked))))
    (cond ((not (and (process-live-p link) (pyagentd-rpc-connected-p)))
           (cancel-timer pyagentd-host--timer)
           (setq pyagentd-host--timer nil))
          ((null asked)
           (process-put link 'asked (float-time))
           (pyagentd-rpc-call-async 'status nil :error #'ignore))
          ((> (- (float-time) asked) (* 3 pyagentd-host--silence))
           (setq pyagentd-host--alone t)
           (delete-process link)))
    (dolist (buffer (pyagentd-place-buffers))
      (with-current-buffer buffer (pyagentd-status-refresh)))))

(defun pyagentd-host--segment ()
  "Return the header line's part about the host, or nil in other sessions."
  (when (and pyagentd-host
             (equal pyagentd-host (pyagentd-host-of (or buffer-file-name ""))))
    (let* ((link pyagentd-host--link)
           (asked (and (process-live-p link) (process-get link 'asked)))
           (silent (if asked (- (float-time) asked) 0)))
      (cond ((not (pyagentd-rpc-connected-p))
             (propertize (format "link to %s lost, connecting" pyagentd-host)
                         'face 'warning))
            ((>= silent (1- pyagentd-host--silence))
             (propertize (format "%s silent for %d s" pyagentd-host silent)
                         'face 'warning))
            (t (propertize pyagentd-host 'face 'shadow))))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-host--segment)

(defun pyagentd-host--errors (process)
  "Return and delete the error output of PROCESS, the link."
  (let ((errors (process-get process 'errors)))
    (if (not (buffer-live-p errors)) ""
      (prog1 (with-current-buffer errors (string-trim (buffer-string)))
        (when-let ((pipe (get-buffer-process errors)))
          (delete-process pipe))
        (kill-buffer errors)))))

(defun pyagentd-host--ended (process _change)
  "Clean up after PROCESS, a link that ended before it was in use."
  (unless (process-live-p process)
    (when (buffer-live-p (process-buffer process))
      (kill-buffer (process-buffer process)))
    (if (not (eq process pyagentd-start--process))
        (pyagentd-log 'info "No link to %s: %s" (process-get process 'host)
                      (pyagentd-host--errors process))
      (setq pyagentd-start--process nil)
      (pyagentd-start--go-on process (pyagentd-host--errors process)))))

(defun pyagentd-host-cut ()
  "End the link, and do not reconnect automatically."
  (setq pyagentd-host--wanted nil)
  (when (process-live-p pyagentd-host--link)
    (delete-process pyagentd-host--link))
  (setq pyagentd-host--link nil))

(defun pyagentd-host-runtime ()
  "Return a plist like the runtime file of the host's daemon, or nil.
If the link was lost, reconnect and return nil."
  (cond ((and (process-live-p pyagentd-host--link)
              (equal (process-get pyagentd-host--link 'host) pyagentd-host))
         (process-get pyagentd-host--link 'runtime))
        ((and (equal pyagentd-host--wanted pyagentd-host)
              (not (process-live-p pyagentd-start--process)))
         (pyagentd-host-serve "find")
         nil)))

(defun pyagentd-host-reason (output)
  "Return why connecting to the host failed, a list of lines.
OUTPUT is the error output of ssh."
  (if (string-match-p "pyagentd-absent" output)
      (list (format "The server is not installed on %s" pyagentd-host)
            "M-x pyagentd-install-server installs it there")
    (list (if (string-empty-p output)
              (format "No link to %s" pyagentd-host)
            (format "%s: %s" pyagentd-host output))
          (format "`ssh %s true' must work without a question"
                  pyagentd-host))))

;;;; Probing hosts

(defun pyagentd-host-known ()
  "Return the hosts whose daemon is or was used, `pyagentd-host' first."
  (delete-dups
   (append (and pyagentd-host (list pyagentd-host))
           (mapcar #'url-unhex-string
                   (seq-filter (lambda (name)
                                 (file-directory-p
                                  (expand-file-name name
                                                    (pyagentd-host--state))))
                               (directory-files
                                (pyagentd-host--state) nil
                                directory-files-no-dot-files-regexp))))))

(defun pyagentd-host-probe (host timeout callback)
  "Ask HOST for the version of its server, without starting a daemon there.
CALLBACK is called later with the version and nil, or with nil and a string
that says why it failed.  It also fails after TIMEOUT seconds."
  (let ((pyagentd-host host)
        (default-directory (expand-file-name "~/")))
    (pyagentd-run
     "pyagentd-probe"
     (pyagentd-host--ssh (pyagentd-host--command "--version"))
     (lambda (status text)
       (let* ((output (string-trim text))
              (version (and (eql 0 status)
                            (string-match "[0-9]+\\.[0-9.]+" output)
                            (match-string 0 output))))
         (funcall callback version
                  (cond (version nil)
                        ((null status) output)
                        (t (let ((pyagentd-host host))
                             (string-join (pyagentd-host-reason output)
                                          "\n")))))))
     nil timeout)))

;;;; File names

(defun pyagentd-host--root ()
  "Return the sessions directory on the host, with a final slash, or nil."
  (when-let ((runtime (and (process-live-p pyagentd-host--link)
                           (process-get pyagentd-host--link 'runtime))))
    (file-name-as-directory (plist-get runtime :sessions-dir))))

(defun pyagentd-host-name (file)
  "Return the local name of FILE, a name on the host.
That is the copy of a conversation, or for other files a TRAMP name."
  (let ((root (pyagentd-host--root)))
    (cond ((not (string-prefix-p "/" file)) file)
          ((and root (string-prefix-p root (concat file "/"))
                ;; It could create and write files anywhere on this machine.
                (not (string-search "/../" (concat file "/"))))
           (pyagentd-host--hold (concat (pyagentd-host--copies) file)))
          (t (concat "/ssh:" pyagentd-host ":" file)))))

(defvar pyagentd-host--held (make-hash-table :test #'equal)
  "Directories of existing copies.")

(defun pyagentd-host--hold (file)
  "Create the copy FILE, or that of the conversation in the directory FILE.
It is empty until it is first attached.  Return FILE."
  (let* ((directory (if (equal (file-name-nondirectory file) "session.md")
                        (directory-file-name (file-name-directory file))
                      file))
         (parent (file-name-nondirectory
                  (directory-file-name (file-name-directory directory)))))
    (when (and (member parent '("branches" "agents"))
               (not (gethash directory pyagentd-host--held)))
      (with-file-modes #o700 (make-directory directory t))
      (let ((copy (expand-file-name "session.md" directory)))
        (unless (file-exists-p copy)
          (with-file-modes #o600 (write-region "" nil copy nil 'quiet))))
      (puthash directory t pyagentd-host--held))
    file))

(defun pyagentd-host-local-name (name)
  "Return the host's name of the local file NAME, or nil if it is not there."
  (let ((copies (pyagentd-host--copies)))
    (cond ((string-prefix-p (concat copies "/") name)
           (substring name (length copies)))
          ((and (string-match "\\`/[-a-z]+:\\([^:|]+\\):\\(.*\\)\\'" name)
                (equal (match-string 1 name) pyagentd-host))
           (let ((local (match-string 2 name)))
             (if (string-match-p "\\`[~/]" local) local
               (concat "~/" local)))))))

(defun pyagentd-host--out (value)
  "Return VALUE, an argument of a call, with the host's file names."
  (cond ((stringp value)
         (or (and (string-prefix-p "/" value) (not (string-search "\n" value))
                  (pyagentd-host-local-name value))
             value))
        ((consp value) (mapcar #'pyagentd-host--out value))
        (t value)))

(defconst pyagentd-host--texts
  '(:text :edits :roles :inserts :content :message :detail :preview :output
          :title :notes)
  "Keys of answers and events whose values are text, not file names.")

(defun pyagentd-host--in (value &optional key)
  "Return VALUE, under KEY in an answer, with local file names."
  (cond ((stringp value)
         (let ((root (pyagentd-host--root)))
           (cond ((or (null root) (string-search "\n" value)) value)
                 ((string-prefix-p root (concat value "/"))
                  (pyagentd-host-name value))
                 ((and (memq key '(:file :path :paths)) (string-prefix-p "/" value))
                  (pyagentd-host-name value))
                 (t value))))
        ((not (consp value)) value)
        ((keywordp (car value))
         (cl-loop for (name each) on value by #'cddr
                  collect name
                  collect (if (memq name pyagentd-host--texts) each
                            (pyagentd-host--in each name))))
        ((proper-list-p value)
         (mapcar (lambda (each) (pyagentd-host--in each key)) value))
        (t value)))

;;;; Translating calls, answers and events

(defun pyagentd-host-call (plist)
  "Return PLIST, the arguments of a call, translated for the host."
  (let ((root (plist-get plist :root)))
    (cl-loop for (key value)
             on (if (and root (not (pyagentd-host-local-name root))
                         (not (string-match-p "\\`~" root)))
                    ;; A project of this machine: the host uses its home.
                    (plist-put (copy-sequence plist) :root nil)
                  plist)
             by #'cddr
             append (list key (if (memq key '(:hunks :text)) value
                                (pyagentd-host--out value))))))

(defun pyagentd-host--without-time (plist)
  "Return PLIST without the host's file time, which is not that of the copy."
  (if (plist-member plist :mtime)
      (plist-put (copy-sequence plist) :mtime nil)
    plist))

(defun pyagentd-host-answer (success)
  "Return a function that calls SUCCESS with its argument, an answer.
File names in the answer are translated to local ones."
  (lambda (answer)
    (funcall success (pyagentd-host--without-time (pyagentd-host--in answer)))))

(defun pyagentd-host-event (event)
  "Return EVENT, (KIND BRANCH SEQ . ARGS), with file names translated."
  (pcase-let ((`(,kind ,branch ,seq . ,args) event))
    (cl-list* kind (pyagentd-host--in branch) seq
              (cond ((memq kind '(insert edit roles prompt notice)) args)
                    ((eq kind 'persisted)
                     (list (pyagentd-host--without-time (car args))))
                    (t (pyagentd-host--in args))))))

;;;; Saving

(defun pyagentd-host--before-write ()
  "Refuse to save a session of a host while the link to it is down.
The copy must equal the host's file; auto-save keeps unsaved text meanwhile."
  (when-let ((host (pyagentd-host-of buffer-file-name)))
    (unless (and (eq pyagentd-attach-state t) (equal host pyagentd-host)
                 (pyagentd-rpc-connected-p))
      (pyagentd-session-keep)
      (let ((trouble (format "Not saved: no link to %s; saved when it is back"
                             host)))
        (pyagentd-session--set-trouble trouble)
        (signal 'file-error (list trouble))))))

(defun pyagentd-host--saved (&rest _)
  "Write the text to this session's copy, after the host's file has it."
  (when (and (pyagentd-host-of (or buffer-file-name ""))
             (eq pyagentd-attach-state t) (not (buffer-modified-p)))
    (pyagentd-guarded "Copy"
      (pyagentd-write (pyagentd-place-conversation pyagentd--branch-dir)))
    (clear-visited-file-modtime)
    (pyagentd-session--drop-kept)))

(defun pyagentd-host--attached ()
  "Save at once text that was typed while the link was down."
  (when (and pyagentd-session-trouble (buffer-modified-p)
             (pyagentd-host-of buffer-file-name))
    (pyagentd-autosave-touch)
    (pyagentd-later-soon #'pyagentd-session-save)))

(add-hook 'pyagentd-session-before-write-hook #'pyagentd-host--before-write)
(add-hook 'pyagentd-session-saved-hook #'pyagentd-host--saved)
(add-hook 'pyagentd-run-finished-functions #'pyagentd-host--saved)
(add-hook 'pyagentd-attached-hook #'pyagentd-host--saved)
(add-hook 'pyagentd-attached-hook #'pyagentd-host--attached)

;;;; Choosing a host

(defun pyagentd-use-host (host)
  "Use the daemon of HOST from now on; nil or \"\" means this machine.
HOST is a name for ssh.  Buffers of sessions of the previous machine stay,
unconnected."
  (interactive (list (read-string "Host (empty: this machine): ")))
  (let ((host (and host (not (string-empty-p host)) host)))
    (unless (equal host pyagentd-host)
      (setq pyagentd-host--alone nil)
      (pyagentd-host-cut)
      (pyagentd-rpc-disconnect)
      (setq pyagentd-host host))
    (pyagentd-start (lambda ()
                      (message "pyagentd: using the daemon of %s"
                               (or host "this machine"))))))

(defun pyagentd-host-follow (directory)
  "Use the daemon of DIRECTORY's host, if DIRECTORY is remote (TRAMP).
Ask before disconnecting from another daemon."
  (when-let* ((method (file-remote-p directory 'method))
              (name (file-remote-p directory 'host))
              (user (or (file-remote-p directory 'user) t))
              (host (if (stringp user) (concat user "@" name) name)))
    (unless (or (equal host pyagentd-host)
                (not (member method '("ssh" "sshx" "scp" "scpx" "rsync"))))
      (unless (or (not (pyagentd-rpc-connected-p))
                  (y-or-n-p (format "Leave the daemon of %s for that of %s? "
                                    (or pyagentd-host "this machine") host)))
        (user-error "A session for %s needs the daemon there" host))
      (pyagentd-use-host host))))

;;;; Installing the server there

(defun pyagentd-host--install-script ()
  "Return the script that installs the server on a host.
See `pyagentd-host-install'."
  (concat "set -e
base=$HOME/.local/share/pyagentd
mkdir -p \"$base\"
new=$base/server-$3-$$
tmp=$(mktemp -d)
trap 'status=$?; rm -rf \"$tmp\"; [ $status = 0 ] || rm -rf \"$new\"' EXIT
case $1 in
wheel) cat >\"$tmp/$2\"; what=$tmp/$2$4 ;;
tree) tar xzf - -C \"$tmp\"; what=$tmp$4 ;;
*) what=$2 ;;
esac
" pyagentd-install-script "ln -sfn \"$new\" \"$base/server\"\n"))

(defun pyagentd-host-install (requirement)
  "Install the server on `pyagentd-host', after asking.
REQUIREMENT is like the value of `pyagentd-install-requirement'; a local
file or directory is copied there.  Emacs stays usable meanwhile."
  (require 'pyagentd-install)
  (unless (or noninteractive
              (y-or-n-p (format "Install the server, version %s, into \
~/.local/share/pyagentd on %s (fetches Python packages there)? "
                                pyagentd-version pyagentd-host)))
    (user-error "Not installed"))
  (let* ((file (replace-regexp-in-string "\\[[^]]*\\]\\'" "" requirement))
         (kind (cond ((file-directory-p file) "tree")
                     ((file-exists-p file) "wheel")
                     (t "index")))
         (remote (concat "exec sh -c "
                         (shell-quote-argument
                          (pyagentd-host--install-script))
                         " sh "
                         (mapconcat #'shell-quote-argument
                                    (list kind
                                          (if (equal kind "index") requirement
                                            (file-name-nondirectory file))
                                          pyagentd-version
                                          (substring requirement
                                                     (length file)))
                                    " ")))
         (send (pcase kind
                 ("tree" (format "tar czf - -C %s --exclude='./.*' \
--exclude=./tests --exclude=./build --exclude=./dist --exclude=__pycache__ . |"
                                 (shell-quote-argument file)))
                 ("wheel" (format "cat %s |" (shell-quote-argument file)))
                 (_ "")))
         (default-directory (expand-file-name "~/")))
    (pyagentd-install-clear)
    (display-buffer pyagentd-install-buffer)
    (pyagentd-install-run
     (list "/bin/sh" "-c"
           (concat send " "
                   (mapconcat #'shell-quote-argument
                              (pyagentd-host--ssh remote) " ")))
     (lambda (status)
       (if (not (eql 0 status))
           (message "pyagentd: not installed on %s; see %s" pyagentd-host
                    pyagentd-install-buffer)
         (message "pyagentd: server %s is installed on %s" pyagentd-version
                  pyagentd-host)
         (pyagentd-start #'ignore))))))

(provide 'pyagentd-host)
;;; pyagentd-host.el ends here

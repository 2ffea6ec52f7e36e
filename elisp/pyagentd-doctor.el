;;; pyagentd-doctor.el --- Checking the installation -*- lexical-binding: t; -*-

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

;; Says what is wrong, with buttons that put it right.

;;; Code:

(require 'json)
(require 'seq)
(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-install)
(require 'pyagentd-status)


;;;; What mends an installation

;; What the buttons of `pyagentd-doctor' do.  Each mend is a function
;; without arguments.

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

;;;; What is wrong with an installation

;; What Emacs, the package, the server and the daemon are like, as
;; findings.  What Emacs knows is there at once; the rest is read from what
;; `pyagentd doctor' prints.

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
  "Return the buttons for what is wrong with NAME, by DETAIL and HINT."
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

;;;; What can be wrong, and what to do

;; One buffer says what Emacs, the package, the server and the daemon are
;; like, and what is wrong with them.  Each thing that is wrong has buttons
;; that put it right.

(defconst pyagentd-doctor--timeout 60
  "Seconds that the server's own examination may take.")

(defvar-local pyagentd-doctor--own nil
  "Findings of Emacs, see `pyagentd-doctor-check-finding'.")
(defvar-local pyagentd-doctor--server nil
  "Findings of the server; the symbol `asked' while they are awaited.")
(defvar-local pyagentd-doctor--process nil
  "The process that examines the server, or nil.")

;;;; What the server says

(defun pyagentd-doctor--ask ()
  "Have the server examine itself; show what it says when it did."
  (when-let* ((found (pyagentd-server-found))
              (command (plist-get found :command))
              ((executable-find (car command))))
    (let ((buffer (current-buffer))
          (output (generate-new-buffer " *pyagentd-doctor*")))
      (setq pyagentd-doctor--server 'asked
            pyagentd-doctor--process
            (make-process
             :name "pyagentd-doctor" :buffer output :noquery t
             :command (append command '("doctor" "--json" "--no-emacs"))
             :connection-type 'pipe :stderr nil
             :sentinel (lambda (process _change)
                         (unless (process-live-p process)
                           (pyagentd-guarded "Doctor"
                             (pyagentd-doctor--answered process buffer))))))
      (run-at-time pyagentd-doctor--timeout nil #'pyagentd-doctor--give-up
                   pyagentd-doctor--process))))

(defun pyagentd-doctor--give-up (process)
  "End PROCESS, if it still runs."
  (when (process-live-p process) (delete-process process)))

(defun pyagentd-doctor--answered (process buffer)
  "Show in BUFFER what PROCESS, the server's examination, said."
  (let ((text (with-current-buffer (process-buffer process) (buffer-string))))
    (kill-buffer (process-buffer process))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer
        (when (eq process pyagentd-doctor--process)
          (setq pyagentd-doctor--process nil
                pyagentd-doctor--server (pyagentd-doctor-check-read text))
          (pyagentd-doctor--show))))))

;;;; The buffer

(defconst pyagentd-doctor--marks
  '((ok "✓" "ok" success) (warning "!" "!" warning) (missing "✗" "NO" error)
    (asked "…" ".." shadow))
  "For each level its mark, what to show where that cannot be, its face.")

(defun pyagentd-doctor--mark (level)
  "Return the mark of LEVEL as this frame can show it."
  (pcase-let ((`(,mark ,plain ,face) (alist-get level pyagentd-doctor--marks)))
    (propertize (if (char-displayable-p (aref mark 0)) mark plain)
                'face face)))

(defun pyagentd-doctor--insert (finding)
  "Insert FINDING with its buttons."
  (insert (format "%2s %-19s "
                  (pyagentd-doctor--mark (plist-get finding :level))
                  (plist-get finding :name))
          (replace-regexp-in-string
           "\n" (concat "\n" (make-string 23 ?\s))
           (plist-get finding :detail) t t)
          "\n")
  (when-let ((buttons (plist-get finding :buttons)))
    (insert (make-string 23 ?\s))
    (pcase-dolist (`(,label . ,function) buttons)
      (insert-text-button (format "[%s]" label)
                          'follow-link t
                          'action (lambda (_button) (funcall function)))
      (insert " "))
    (insert "\n")))

(defun pyagentd-doctor--verdict (findings)
  "Return a sentence about FINDINGS as a whole."
  (let ((missing (seq-count (lambda (finding)
                              (eq (plist-get finding :level) 'missing))
                            findings)))
    (cond ((eq pyagentd-doctor--server 'asked) "Checking the server…")
          ((zerop missing) "All checks passed.")
          ((= missing 1) "1 check failed.")
          (t (format "%d checks failed." missing)))))

(defun pyagentd-doctor--show ()
  "Show the findings."
  (let* ((inhibit-read-only t)
         (server (and (listp pyagentd-doctor--server) pyagentd-doctor--server))
         (all (append (pyagentd-doctor-check-agree
                       pyagentd-doctor--own pyagentd-doctor--server)
                      server))
         (line (line-number-at-pos)))
    (erase-buffer)
    (insert (propertize (pyagentd-doctor--verdict all) 'face 'bold) "\n\n")
    (mapc #'pyagentd-doctor--insert all)
    (insert "\n" (substitute-command-keys
                  "\\<pyagentd-doctor-mode-map>\\[revert-buffer] refresh  \
\\[forward-button] next button  \\[quit-window] close\n"))
    (set-buffer-modified-p nil)
    (goto-char (point-min))
    (forward-line (1- line))))

(defvar pyagentd-doctor-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'forward-button)
    (define-key map (kbd "<backtab>") #'backward-button)
    (define-key map "n" #'forward-button)
    (define-key map "p" #'backward-button)
    map)
  "Keymap of `pyagentd-doctor-mode'.")

(define-derived-mode pyagentd-doctor-mode special-mode "Doctor"
  "Major mode of the buffer of `pyagentd-doctor'."
  (setq-local truncate-lines nil
              word-wrap t
              wrap-prefix (make-string 23 ?\s)
              revert-buffer-function
              (lambda (&rest _) (pyagentd-doctor--refresh))))

(defun pyagentd-doctor--refresh ()
  "Examine everything anew."
  (setq pyagentd-doctor--own (pyagentd-doctor-check-examine 'asked)
        pyagentd-doctor--server nil
        pyagentd-doctor--process nil)
  (pyagentd-doctor--ask)
  (pyagentd-doctor--show)
  (unless (pyagentd-server-found)
    (pyagentd-installer-find
     (pyagentd-later-back
      (lambda (installer)
        (setq pyagentd-doctor--own (pyagentd-doctor-check-examine installer))
        (pyagentd-doctor--show))))))

(defun pyagentd-doctor--again ()
  "Look again, if the buffer is still there."
  (when-let ((buffer (get-buffer "*pyagentd-doctor*")))
    (with-current-buffer buffer (pyagentd-doctor--refresh))))

(add-hook 'pyagentd-doctor-mended-hook #'pyagentd-doctor--again)

;;;###autoload
(defun pyagentd-doctor ()
  "Check the installation; buttons repair what is wrong."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd-doctor*")))
    (with-current-buffer buffer
      (pyagentd-doctor-mode)
      (pyagentd-doctor--refresh))
    (pop-to-buffer buffer)))

(provide 'pyagentd-doctor)
;;; pyagentd-doctor.el ends here

;;; pyagentd-doctor.el --- What can be wrong, and its mend -*- lexical-binding: t; -*-

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

;; One buffer says what Emacs, the package, the server and the daemon are
;; like, and what is wrong with them.  What Emacs knows is there at once;
;; the rest is what `pyagentd doctor' answers.  Each thing that is wrong
;; has buttons that mend it.

;;; Code:

(require 'json)
(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-server)
(require 'pyagentd-start)
(require 'pyagentd-install)

(defconst pyagentd-doctor--timeout 60
  "Seconds that the server's own examination may take.")

(defvar-local pyagentd-doctor--own nil
  "Findings of Emacs, see `pyagentd-doctor--finding'.")
(defvar-local pyagentd-doctor--server nil
  "Findings of the server; the symbol `asked' while they are awaited.")
(defvar-local pyagentd-doctor--process nil
  "The process that examines the server, or nil.")

(defun pyagentd-doctor--finding (name level detail &rest buttons)
  "Return a finding about NAME: LEVEL, DETAIL and BUTTONS.
LEVEL is `ok', `warning' or `missing', DETAIL a text.  BUTTONS are
conses of a label and a function without arguments."
  (list :name name :level level :detail detail :buttons buttons))

;;;; Buttons

(defconst pyagentd-doctor--say-where
  '("Say where it is" . pyagentd-doctor--customize-command)
  "The button that changes `pyagentd-command'.")

(defconst pyagentd-doctor--restart-button
  '("Restart the daemon" . pyagentd-doctor--restart)
  "The button that restarts the daemon.")

(defun pyagentd-doctor--customize-command ()
  "Let the user say where the server is."
  (customize-option 'pyagentd-command))

(defun pyagentd-doctor--install-button ()
  "Return the button that installs the server of the right version."
  (cons (format "Install version %s" pyagentd-version)
        #'pyagentd-doctor--install))

;;;; What Emacs knows

(defun pyagentd-doctor--examine ()
  "Return what Emacs knows, a list of findings."
  (append (list (pyagentd-doctor--emacs)
                (pyagentd-doctor--finding
                 "package" 'ok (format "%s (%s)" pyagentd-version
                                       (abbreviate-file-name
                                        pyagentd-install--here))))
          (mapcar (lambda (library)
                    (pyagentd-doctor--library library 'missing))
                  '("epc" "deferred"))
          (list (pyagentd-doctor--library "markdown-mode" 'warning)
                (pyagentd-doctor--found))
          (pyagentd-doctor--environments)
          (delq nil (list (pyagentd-doctor--running)))))

(defun pyagentd-doctor--emacs ()
  "Return the finding about Emacs itself."
  (pyagentd-doctor--finding
   "emacs" (if (version< emacs-version "28.1") 'missing 'ok)
   (format "%s, %s%s" emacs-version
           (if (display-graphic-p) "graphical" "in a terminal")
           (if (version< emacs-version "28.1") "; 28.1 is needed" ""))))

(defun pyagentd-doctor--library (name otherwise)
  "Return the finding about the library NAME, OTHERWISE if it is absent."
  (if-let ((file (locate-library name)))
      (pyagentd-doctor--finding name 'ok (abbreviate-file-name file))
    (pyagentd-doctor--finding
     name otherwise "not installed"
     (cons "Install it" (lambda () (pyagentd-doctor--get name))))))

(defun pyagentd-doctor--get (name)
  "Install the Emacs package NAME."
  (require 'package)
  (unless (assq (intern name) package-archive-contents)
    (package-refresh-contents))
  (package-install (intern name)))

(defun pyagentd-doctor--found ()
  "Return the finding about where the server is."
  (let* ((found (pyagentd-server-found))
         (program (car (plist-get found :command)))
         (path (and program (executable-find program))))
    (cond (path
           (pyagentd-doctor--finding
            "server" 'ok
            (format "%s (%s)" (abbreviate-file-name path)
                    (pcase-exhaustive (plist-get found :source)
                      ('option "pyagentd-command")
                      ('path "on the path")
                      ('environment "installed for Emacs")))))
          (found
           (pyagentd-doctor--finding
            "server" 'missing
            (format "`pyagentd-command' names %s, which is not there" program)
            (cons "Look for it" #'pyagentd-doctor--forget-command)
            pyagentd-doctor--say-where))
          (t (pyagentd-doctor--absent)))))

(defun pyagentd-doctor--forget-command ()
  "Let the server be looked for."
  (customize-save-variable 'pyagentd-command nil))

(defun pyagentd-doctor--absent ()
  "Return the finding that there is no server."
  (let ((how (pyagentd-install-how)))
    (if how
        (pyagentd-doctor--finding
         "server" 'missing
         (format "not found; %s can install it" (if (eq how 'uv) "uv" how))
         (cons "Install it" #'pyagentd-doctor--install)
         pyagentd-doctor--say-where)
      (pyagentd-doctor--finding
       "server" 'missing
       (format "not found; to install it, Python %s or newer with venv, or \
uv, is needed" pyagentd-install--python-minimum)
       pyagentd-doctor--say-where))))

(defun pyagentd-doctor--environments ()
  "Return the finding about installed servers, a list, empty without any."
  (when-let ((environments (pyagentd-server-environments)))
    (let ((best (car environments)))
      (list
       (apply #'pyagentd-doctor--finding
              "installed" (if (pyagentd-server--fits-p best) 'ok 'warning)
              (mapconcat (lambda (environment)
                           (file-name-nondirectory
                            (plist-get environment :directory)))
                         environments ", ")
              (unless (pyagentd-server--fits-p best)
                (list (pyagentd-doctor--install-button))))))))

(defun pyagentd-doctor--install ()
  "Install the server and look again."
  (pyagentd-install-server #'pyagentd-doctor--again))

(defun pyagentd-doctor--running ()
  "Return the finding about the daemon that runs, nil without any."
  (when-let ((runtime (pyagentd-rpc-runtime)))
    (let ((proto (plist-get runtime :proto))
          (version (plist-get runtime :version)))
      (cond ((not (eql proto pyagentd-rpc-protocol))
             (pyagentd-doctor--finding
              "protocol" 'missing
              (format "the daemon (version %s) speaks %s, this package %s"
                      version proto pyagentd-rpc-protocol)
              pyagentd-doctor--restart-button))
            ((not (member version (list nil pyagentd-version)))
             (pyagentd-doctor--finding
              "version" 'warning
              (format "the daemon is %s, this package %s" version
                      pyagentd-version)
              pyagentd-doctor--restart-button))
            ((pyagentd-rpc-connected-p)
             (pyagentd-doctor--finding
              "connection" 'ok (format "pid %s" (plist-get runtime :pid))))))))

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
                pyagentd-doctor--server (pyagentd-doctor--read text))
          (pyagentd-doctor--show))))))

(defun pyagentd-doctor--read (text)
  "Return the findings in TEXT, what the server printed."
  (let ((answer (ignore-errors
                  (json-parse-string (string-trim text)
                                     :object-type 'plist :array-type 'list))))
    (if (null (plist-get answer :checks)) ; an error, or what is no JSON
        (list (pyagentd-doctor--finding
               "server" 'missing
               (format "it cannot examine itself: %s"
                       (truncate-string-to-width
                        (string-trim text) 300 nil nil t))
               (pyagentd-doctor--install-button)))
      (append (pyagentd-doctor--versions answer)
              (mapcar #'pyagentd-doctor--from-server
                      (plist-get answer :checks))))))

(defun pyagentd-doctor--versions (answer)
  "Return what is to be said of the versions in ANSWER, a list."
  (let ((version (plist-get answer :version))
        (protocol (plist-get answer :protocol)))
    (unless (and (equal version pyagentd-version)
                 (eql protocol pyagentd-rpc-protocol))
      (list (pyagentd-doctor--finding
             "server version"
             (if (eql protocol pyagentd-rpc-protocol) 'warning 'missing)
             (format "%s, protocol %s; this package is %s, protocol %s"
                     version protocol pyagentd-version pyagentd-rpc-protocol)
             (cons (format "Install version %s and use it" pyagentd-version)
                   #'pyagentd-doctor--install-and-use)
             pyagentd-doctor--say-where)))))

(defun pyagentd-doctor--install-and-use ()
  "Install the server of this version, and take it whatever the path has."
  (pyagentd-install-server
   (lambda ()
     (when-let ((best (car (pyagentd-server-environments))))
       (customize-save-variable 'pyagentd-command
                                (list (plist-get best :program))))
     (pyagentd-doctor--again))))

(defun pyagentd-doctor--from-server (check)
  "Return the finding that CHECK, a plist of the server, is."
  (let ((name (plist-get check :name))
        (level (intern (plist-get check :level)))
        (detail (plist-get check :detail))
        (mend (plist-get check :mend)))
    (apply #'pyagentd-doctor--finding name level
           (if (or (eq level 'ok) (string-empty-p mend)) detail
             (concat detail "\n" mend))
           (unless (eq level 'ok)
             (pyagentd-doctor--remedies name detail mend)))))

(defun pyagentd-doctor--remedies (name detail mend)
  "Return the buttons for what is wrong with NAME, by DETAIL and MEND."
  (pcase name
    ("daemon" (list pyagentd-doctor--restart-button
                    (cons "Show its log" #'pyagentd-doctor--log)))
    ((or "key" "backend")
     (list '("Type the key" . pyagentd-doctor--type-key)
           '("Keep it in ~/.authinfo.gpg" . pyagentd-doctor--authinfo)
           '("Answer without a model" . pyagentd-doctor--offline)))
    ("packages" (list (pyagentd-doctor--install-button)))
    (_ (or (pyagentd-doctor--file-button (concat detail "\n" mend))
           (pyagentd-doctor--run-button mend)))))

(defun pyagentd-doctor--file-button (text)
  "Return a list with the button that opens the file TEXT names, or nil."
  (when (string-match "\\(/[^ \n:]+\\.\\(?:toml\\|md\\|json\\)\\)\\(?::\\([0-9]+\\)\\)?"
                      text)
    (let ((file (match-string 1 text))
          (line (match-string 2 text)))
      (when (file-exists-p file)
        (list (cons (format "Open %s" (file-name-nondirectory file))
                    (lambda ()
                      (find-file-other-window file)
                      (when line
                        (goto-char (point-min))
                        (forward-line (1- (string-to-number line)))))))))))

(defun pyagentd-doctor--run-button (line)
  "Return a list with the button that runs LINE, if it is a command, or nil."
  (when (and (string-match "\\`\\([a-z][^ ;]*\\)" line)
             (executable-find (match-string 1 line)))
    (list (cons "Run it"
                (lambda ()
                  (when (y-or-n-p (format "Run `%s'? " line))
                    (async-shell-command line "*pyagentd-run*")))))))

;;;; Mends

(defun pyagentd-doctor--restart ()
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
           (pyagentd-start #'pyagentd-doctor--again)))))))

(defun pyagentd-doctor--log ()
  "Show the log of the daemon."
  (view-file-other-window
   (expand-file-name "daemon.log" (file-name-directory
                                   (pyagentd-rpc-runtime-file)))))

(defun pyagentd-doctor--type-key ()
  "Read the key of the model's provider; it holds for this Emacs only."
  (setenv "ANTHROPIC_API_KEY"
          (read-passwd "Key (not stored, holds for this Emacs): "))
  (pyagentd-doctor--again))

(defun pyagentd-doctor--authinfo ()
  "Visit the file where auth-source finds the key, with a line for it."
  (let ((line (format "machine %s login apikey password "
                      (or (bound-and-true-p pyagentd-api-key-host)
                          "api.anthropic.com"))))
    (find-file-other-window "~/.authinfo.gpg")
    (goto-char (point-max))
    (unless (bolp) (insert "\n"))
    (insert line)))

(defun pyagentd-doctor--offline ()
  "Have the offline stand-in answer, for as long as this Emacs runs."
  (setenv "PYAGENTD_BACKEND" "offline")
  (pyagentd-doctor--again))

;;;; The buffer

(defconst pyagentd-doctor--marks
  '((ok "✓" "ok" success) (warning "!" "!" warning) (missing "✗" "NO" error))
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
    (cond ((eq pyagentd-doctor--server 'asked) "The server is being asked…")
          ((zerop missing) "Everything that is needed is there.")
          ((= missing 1) "One thing is missing.")
          (t (format "%d things are missing." missing)))))

(defun pyagentd-doctor--show ()
  "Show the findings."
  (let* ((inhibit-read-only t)
         (server (and (listp pyagentd-doctor--server) pyagentd-doctor--server))
         (all (append pyagentd-doctor--own server))
         (line (line-number-at-pos)))
    (erase-buffer)
    (insert (propertize (pyagentd-doctor--verdict all) 'face 'bold) "\n\n")
    (mapc #'pyagentd-doctor--insert all)
    (insert "\n" (substitute-command-keys
                  "\\<pyagentd-doctor-mode-map>\\[revert-buffer] look again  \
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
  "Mode of the buffer that says what is wrong with the installation."
  (setq-local truncate-lines nil
              word-wrap t
              wrap-prefix (make-string 23 ?\s)
              revert-buffer-function
              (lambda (&rest _) (pyagentd-doctor--refresh))))

(defun pyagentd-doctor--refresh ()
  "Examine everything anew."
  (setq pyagentd-doctor--own (pyagentd-doctor--examine)
        pyagentd-doctor--server nil
        pyagentd-doctor--process nil)
  (pyagentd-doctor--ask)
  (pyagentd-doctor--show))

(defun pyagentd-doctor--again ()
  "Look again, if the buffer is still there."
  (when-let ((buffer (get-buffer "*pyagentd-doctor*")))
    (with-current-buffer buffer (pyagentd-doctor--refresh))))

;;;###autoload
(defun pyagentd-doctor ()
  "Say what is wrong with the installation, with buttons that mend it."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd-doctor*")))
    (with-current-buffer buffer
      (pyagentd-doctor-mode)
      (pyagentd-doctor--refresh))
    (pop-to-buffer buffer)))

(provide 'pyagentd-doctor)
;;; pyagentd-doctor.el ends here

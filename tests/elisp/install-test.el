;;; install-test.el --- Finding, installing and examining the server -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A program called uv, on a path of its own, stands for the real one: it
;; makes directories and a server that only knows its version.

;;; Code:

(require 'test-helper)
(require 'pyagentd-install)

(defmacro install-test--with-tools (version &rest body)
  "Evaluate BODY where the only installer makes servers of VERSION.
The variable `root' is bound to a temporary directory."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-place
     (let* ((tools (expand-file-name "tools/" root))
            (exec-path (list tools "/usr/bin" "/bin"))
            (process-environment
             (append (list (concat "PATH=" tools ":/usr/bin:/bin"))
                     process-environment))
            (pyagentd-command nil)
            (pyagentd-install--declined nil)
            (pyagentd-server-directory (expand-file-name "server/" root)))
       (make-directory tools)
       (install-test--uv tools ,version)
       (unwind-protect (progn ,@body)
         (when (get-buffer pyagentd-install-buffer)
           (kill-buffer pyagentd-install-buffer))))))

(defun install-test--program (file &rest lines)
  "Write LINES into FILE, a shell script."
  (write-region (string-join (cons "#!/bin/sh" lines) "\n") nil file nil 'quiet)
  (set-file-modes file #o755))

(defun install-test--uv (tools version)
  "Write a uv into TOOLS whose servers say VERSION; nil means it fails."
  (install-test--program
   (expand-file-name "uv" tools)
   (if version "" "[ $1 = pip ] && { echo no network >&2; exit 2; }")
   "for last; do :; done"
   "case $1 in venv) mkdir -p $last/bin; ln -s /bin/true $last/bin/python;;"
   "pip) d=${4%/bin/python}; printf '#!/bin/sh\\n"
   (format "echo pyagentd %s\\n' > $d/bin/pyagentd; chmod +x $d/bin/pyagentd;; esac"
           version)))

(defun install-test--install ()
  "Install a server and wait until that has ended; return whether it worked."
  (let (done)
    (pyagentd-install-server (lambda () (setq done t)))
    (pyagentd-test-await (not pyagentd-install--running))
    done))

(ert-deftest pyagentd-server-is-looked-for-in-the-order-option-path-environment ()
  (install-test--with-tools pyagentd-version
    (should-not (pyagentd-server-found))
    (should (install-test--install))
    (let ((found (pyagentd-server-found)))
      (should (eq (plist-get found :source) 'environment))
      (should (equal (plist-get found :version) pyagentd-version)))
    (install-test--program (expand-file-name "tools/pyagentd" root))
    (should (eq (plist-get (pyagentd-server-found) :source) 'path))
    (let ((pyagentd-command '("elsewhere")))
      (should (equal (pyagentd-server-found)
                     '(:command ("elsewhere") :source option))))))

(ert-deftest pyagentd-server-that-is-nowhere-is-an-error-with-a-hint ()
  (install-test--with-tools pyagentd-version
    (let ((err (should-error (pyagentd-rpc-call 'status)
                             :type 'pyagentd-no-server)))
      (should (string-match-p "pyagentd-install-server"
                              (pyagentd-error-text err))))))

(ert-deftest pyagentd-install-that-fails-keeps-the-last-good-one ()
  (install-test--with-tools pyagentd-version
    (should (install-test--install))
    (let ((good (pyagentd-server-command)))
      (install-test--uv tools nil)
      (should-not (install-test--install))
      (should (equal (pyagentd-server-command) good))
      (should (string-match-p "no network"
                              (with-current-buffer pyagentd-install-buffer
                                (buffer-string))))
      (should (= 1 (length (directory-files pyagentd-server-directory
                                            nil "\\`[0-9]")))))))

(ert-deftest pyagentd-install-of-another-version-does-not-count ()
  (install-test--with-tools "0.0.1"
    (should-not (install-test--install))
    (should-not (pyagentd-server-found))))

(ert-deftest pyagentd-install-keeps-the-new-one-and-the-one-before ()
  (install-test--with-tools pyagentd-version
    (let ((made (cl-loop repeat 3 do (should (install-test--install))
                         collect (plist-get (car (pyagentd-server-environments))
                                            :directory))))
      (should (equal (sort (cdr made) #'string<)
                     (directory-files pyagentd-server-directory t "\\`[0-9]"))))
    (let ((other (expand-file-name "0-of-another-Emacs"
                                   pyagentd-server-directory)))
      (make-directory other)
      (should (install-test--install))
      (should (file-directory-p other))
      (set-file-times other (time-subtract nil (* 25 60 60)))
      (should (install-test--install))
      (should-not (file-directory-p other)))))

(ert-deftest pyagentd-install-of-two-at-once-goes-to-two-directories ()
  (install-test--with-tools pyagentd-version
    (cl-letf (((symbol-function 'pyagentd-install-run) #'ignore)) ; for long
      (let ((directories
             (cl-loop repeat 2 collect
                      (let ((pyagentd-install--running nil)) ; two Emacsen
                        (pyagentd-install-server)
                        (prog1 (plist-get pyagentd-install--running :directory)
                          (pyagentd-install--end))))))
        (should-not (equal (car directories) (cadr directories)))))))

(ert-deftest pyagentd-install-asks-once ()
  (install-test--with-tools pyagentd-version
    (let ((noninteractive nil) (asked 0))
      (cl-letf (((symbol-function 'y-or-n-p)
                 (lambda (_) (setq asked (1+ asked)) nil)))
        (dotimes (_ 2)
          (should-error (pyagentd-install-offer #'ignore) :type 'user-error))
        (should (= asked 1))))))

(ert-deftest pyagentd-start-goes-on-when-the-daemon-is-there ()
  (pyagentd-test-with-place
    (let ((pyagentd-command
           (list "python3" (expand-file-name "fake-daemon.py"
                                             pyagentd-test-directory)))
          (called 0))
      (dotimes (_ 2)
        (pyagentd-start (lambda () (setq called (1+ called)))))
      (should (= called 0))
      (pyagentd-test-await (= called 2))
      (should (pyagentd-rpc-connected-p)))))

(ert-deftest pyagentd-install-that-fails-is-told-to-who-waits-for-it ()
  (install-test--with-tools nil
    (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
      (goto-char (point-max))
      (let ((noninteractive nil) said failed)
        (cl-letf (((symbol-function 'y-or-n-p) #'always)
                  ((symbol-function 'message)
                   (lambda (format &rest args)
                     (when format
                       (push (apply #'format format args) said)))))
          (pyagentd-send)
          (should (eq (plist-get pyagentd-status :state) 'sending))
          (pyagentd-start #'ignore (lambda (err) (setq failed err)))
          (pyagentd-test-await (not pyagentd-install--running)))
        (should (seq-find (lambda (line)
                            (string-match-p "\\`Not sent: .*uv pip.* failed"
                                            line))
                          said))
        (should (string-match-p "failed.*M-x pyagentd-doctor"
                                (pyagentd-error-text failed)))
        (should-not (plist-get pyagentd-status :state))
        (should-not pyagentd-attach-awaited)))))

(ert-deftest pyagentd-install-that-is-quit-leaves-nothing-to-be-sent ()
  (install-test--with-tools pyagentd-version
    (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
      (goto-char (point-max))
      (let ((noninteractive nil) quit)
        (cl-letf (((symbol-function 'y-or-n-p)
                   (lambda (_) (signal 'quit nil))))
          (condition-case nil (pyagentd-send)
            (quit (setq quit t))))
        (should quit)
        (should-not (plist-get pyagentd-status :state))
        (should-not pyagentd-attach-awaited)))))

;; The sentinel of a process is called a while after it has ended.
(ert-deftest pyagentd-start-again-forgets-nobody-who-waits ()
  (pyagentd-test-with-place
    (let* ((called 0) (then (lambda () (setq called (1+ called)))))
      (let ((pyagentd-command '("false")))
        (pyagentd-start then))
      (let ((deadline (+ (float-time) 60)))
        (while (and (process-live-p pyagentd-start--process)
                    (< (float-time) deadline))))
      (let ((pyagentd-command
             (list "python3" (expand-file-name "fake-daemon.py"
                                               pyagentd-test-directory))))
        (pyagentd-start then)
        (pyagentd-test-await (= called 2)))
      (pyagentd-rpc-call 'status)       ; it has said hello
      (should-not pyagentd-start--waiting))))

;; It greets as soon as it listens, and may end before it is ready.
(ert-deftest pyagentd-start-again-while-one-that-greeted-ends-is-told ()
  (pyagentd-test-with-place
    (let ((pyagentd-command '("sh" "-c" "read line; echo No room >&2; exit 1"))
          (failed nil) (said ""))
      (cl-letf (((symbol-function 'pyagentd-log)
                 (lambda (_level format &rest args)
                   (setq said (concat said (apply #'format format args))))))
        (pyagentd-start #'ignore)
        (process-put pyagentd-start--process 'pyagentd-greeted t)
        (setq pyagentd-start--waiting nil)
        (pyagentd-start #'ignore (lambda (err) (setq failed err)))
        (process-send-eof pyagentd-start--process)
        (pyagentd-test-await failed))
      (should (string-match-p "No room" (pyagentd-error-text failed)))
      (should (string-match-p "No room" said)))))

(ert-deftest pyagentd-start-that-fails-says-why-and-calls-nothing ()
  (pyagentd-test-with-place
    (let ((pyagentd-command '("sh" "-c" "echo No room >&2; exit 1"))
          (called nil) (said ""))
      (cl-letf (((symbol-function 'pyagentd-log)
                 (lambda (_level format &rest args)
                   (setq said (concat said (apply #'format format args))))))
        (pyagentd-start (lambda () (setq called t)))
        ;; What the daemon of another test leaves behind is said, too.
        (pyagentd-test-await (string-match-p "No room" said)))
      (should-not called))))

(ert-deftest pyagentd-session-of-a-daemon-that-is-silent-does-not-block ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-silent "" 'create-session)
    (pyagentd-test-tell 'fake-silent "" 'presets)
    ;; One that waits for the answer would signal that none came.
    (should (bufferp (pyagentd-session "slow")))
    (should-not (pyagentd-session "asked" t))
    (should (equal (plist-get (car (pyagentd-test-calls 'create-session)) :name)
                   "slow"))))

(ert-deftest pyagentd-server-works-within-one-minor-version ()
  (let ((pyagentd-version "0.3.2"))
    (dolist (good '("0.3.2" "0.3.0" "0.3.17" nil ""))
      (should (pyagentd-server-same-minor-p good)))
    (dolist (other '("0.2.2" "0.30.0" "1.3.2"))
      (should-not (pyagentd-server-same-minor-p other)))))

(ert-deftest pyagentd-daemon-of-another-minor-version-is-refused-in-words ()
  (pyagentd-test-with-place
    (pcase-dolist (`(,version ,advice)
                   '(("0.0.9" "M-x pyagentd-upgrade installs and starts")
                     ("99.0.0" "update this package")))
      (write-region (format "(:proto 1 :version %S :socket \"/nonexistent\")"
                            version)
                    nil (pyagentd-rpc-runtime-file) nil 'quiet)
      (let ((text (pyagentd-error-text
                   (should-error (pyagentd-rpc-connect)
                                 :type 'pyagentd-protocol-error))))
        (should (string-match-p (regexp-quote version) text))
        (should (string-match-p advice text))))))

(ert-deftest pyagentd-install-without-a-wheel-takes-the-index ()
  (let ((pyagentd-install--here "/nonexistent/elisp/"))
    (should (equal (pyagentd-install-requirement)
                   (format "pyagentd[daemon]~=%s" pyagentd-version)))))

(ert-deftest pyagentd-install-has-what-was-added-to-the-server-before ()
  (let ((pyagentd-install--here "/nonexistent/elisp/"))
    (cl-letf (((symbol-function 'pyagentd-server-environments)
               (lambda () '((:version "0.1.0" :extras ("mcp" "acp"))))))
      (should (equal (pyagentd-install-requirement)
                     (format "pyagentd[daemon,mcp,acp]~=%s"
                             pyagentd-version))))))

(ert-deftest pyagentd-doctor-leaves-no-buffer-where-there-is-no-ssh ()
  (require 'pyagentd-host)
  (let ((pyagentd-host-ssh '("pyagentd-no-such-program"))
        (before (buffer-list)))
    (should-error (pyagentd-host-probe "box" 1 #'ignore) :type 'file-missing)
    (should-not (seq-difference (buffer-list) before))))

(ert-deftest pyagentd-upgrade-installs-and-restarts ()
  (install-test--with-tools pyagentd-version
    (let (restarted)
      (cl-letf (((symbol-function 'pyagentd-doctor-mend-restart)
                 (lambda () (setq restarted (pyagentd-server-command)))))
        (pyagentd-upgrade)
        (pyagentd-test-await restarted)
        (should (string-prefix-p pyagentd-server-directory
                                 (car restarted)))))))

(ert-deftest pyagentd-install-loads-nothing-of-the-project-before-leave ()
  (skip-unless (executable-find "python3"))
  (pyagentd-test-with-place
    (let* ((ran (expand-file-name "ran" root))
           (default-directory (file-name-as-directory root))
           (process-environment (cons "PYTHONPATH=." process-environment)))
      (dolist (module '("venv.py" "ensurepip.py" "pip.py" "uv"))
        (install-test--program (expand-file-name module root)
                               (format "open(%S, 'w')" ran)))
      ;; Without uv; no such module counts as one of Python's.
      (let ((exec-path '("." "/usr/bin" "/bin")) tried)
        (pyagentd-installer-find (lambda (_) (setq tried t)))
        (pyagentd-test-await tried))
      (should-not (file-exists-p ran))
      (with-temp-buffer
        (insert pyagentd-install-script)
        (goto-char (point-min))
        (while (re-search-forward " -m " nil t)
          (should (looking-back " -I -m " (line-beginning-position))))))))

(ert-deftest pyagentd-install-where-nothing-can-says-what-is-missing ()
  (install-test--with-tools pyagentd-version
    (delete-file (expand-file-name "uv" tools))
    (let ((exec-path (list tools)))
      (should-not (install-test--install)))
    (should (string-match-p "Python 3.11 or newer, with venv, is missing"
                            (with-current-buffer pyagentd-install-buffer
                              (buffer-string))))
    (should-not (directory-files pyagentd-server-directory nil
                                 "\\`[0-9]"))))

;;;; Doctor

(defun install-test--doctor ()
  "Return the text of the doctor's buffer once the server has answered."
  (save-window-excursion
    (pyagentd-doctor)
    (pyagentd-test-await (not (string-search "asking the server" (buffer-string))))
    (buffer-string)))

(ert-deftest pyagentd-doctor-offers-to-install-what-is-missing ()
  (install-test--with-tools pyagentd-version
    (install-test--doctor)
    (with-current-buffer "*pyagentd-doctor*"
      (pyagentd-test-await
       (string-match-p "server +not found; uv can install it" (buffer-string)))
      (goto-char (point-min))
      (search-forward "uv can install it")  ; markdown-mode may be missing
      (search-forward "[Install it]")
      (push-button (match-beginning 0))
      (pyagentd-test-await (not pyagentd-install--running))
      (should (string-match-p "installed for Emacs" (buffer-string)))
      (kill-buffer))))

(ert-deftest pyagentd-doctor-says-what-can-install-once-that-is-known ()
  (install-test--with-tools pyagentd-version
    (let (tell)
      (cl-letf (((symbol-function 'pyagentd-installer-find)
                 (lambda (then) (setq tell then))))
        (should (string-match-p "not found; looking for"
                                (install-test--doctor))))
      (with-current-buffer "*pyagentd-doctor*"
        (funcall tell "python3.12")
        (should (string-match-p "not found; python3.12 can install it"
                                (buffer-string)))
        (funcall tell nil)
        (should (string-match-p "venv, or uv, is needed" (buffer-string)))
        (kill-buffer)))))

(ert-deftest pyagentd-doctor-shows-what-the-server-says-with-buttons ()
  (install-test--with-tools pyagentd-version
    (install-test--program
     (expand-file-name "tools/pyagentd" root)
     "cat <<'END'"
     (json-serialize
      '(:ok :false :version "0.0.9" :protocol 1
        :checks [(:name "key" :level "warning" :detail "not set"
                  :hint "export KEY=…")
                 (:name "runtime directory" :level "missing"
                  :detail "open to others" :hint "chmod 700 run")]))
     "END")
    (let ((text (install-test--doctor)))
      (dolist (part '("0\\.0\\.9, protocol 1; this package"
                      "\\[Use the offline stand-in\\]" "\\[Run it\\]"
                      "1 check failed, [23] warnings"))
        (should (string-match-p part text)))
      (kill-buffer "*pyagentd-doctor*"))))

(ert-deftest pyagentd-doctor-with-a-warning-alone-does-not-say-that-all-is-well ()
  (install-test--with-tools pyagentd-version
    (install-test--program
     (expand-file-name "tools/pyagentd" root)
     (format "echo '%s'"
             (json-serialize
              `(:ok t :version ,pyagentd-version :protocol ,pyagentd-rpc-protocol
                :checks [(:name "key" :level "warning" :detail "not set")]))))
    (should (string-match-p "\\`No check failed, [1-9] warning"
                            (install-test--doctor)))
    (kill-buffer "*pyagentd-doctor*")))

(ert-deftest pyagentd-doctor-of-a-daemon-that-is-silent-offers-to-restart-it ()
  (install-test--with-tools pyagentd-version
    (install-test--program
     (expand-file-name "tools/pyagentd" root)
     (format "echo '%s'"
             (json-serialize
              `(:ok :false :version ,pyagentd-version
                :protocol ,pyagentd-rpc-protocol
                :checks [(:name "daemon" :level "missing" :detail "No answer"
                          :hint "pyagentd stop")]))))
    (let ((text (install-test--doctor)))
      (should (string-match-p "daemon +No answer" text))
      (should (string-search "[Restart the daemon]" text)))
    (kill-buffer "*pyagentd-doctor*")))

(ert-deftest pyagentd-doctor-stops-no-daemon-here-for-that-of-another-machine ()
  (let ((pyagentd-host "far") ran)
    (cl-letf (((symbol-function 'y-or-n-p) #'always)
              ((symbol-function 'make-process)
               (lambda (&rest _) (setq ran t) (error "Ran"))))
      (dolist (function (list #'pyagentd-doctor-mend-restart #'pyagentd-upgrade
                              (lambda () (pyagentd-install-extra "mcp"))))
        (should (string-match-p "daemon in use is that of far"
                                (cadr (should-error (funcall function)
                                                    :type 'user-error))))))
    (should-not ran)))

(ert-deftest pyagentd-doctor-says-which-machines-answer ()
  (require 'pyagentd-host)
  (let* ((root (make-temp-file "hosts" t))
         (ssh (expand-file-name "ssh" root))
         (process-environment (cons (concat "XDG_STATE_HOME=" root)
                                    process-environment))
         (pyagentd-host "absent")
         (pyagentd-host-ssh (list ssh))
         (pyagentd-doctor--host-timeout 1))
    (unwind-protect
        (progn
          (with-temp-file ssh
            (insert "#!/bin/sh
while [ \"$1\" != -- ]; do shift; done
case $2 in
good) echo 'pyagentd, version " pyagentd-version "' ;;
old) echo 'pyagentd, version 0.0.9' ;;
absent) echo pyagentd-absent >&2; exit 127 ;;
silent) exec sleep 60 ;;
*) echo \"ssh: connect to host $2: No route to host\" >&2; exit 255 ;;
esac
"))
          (set-file-modes ssh #o700)
          (dolist (host '("good" "old" "silent" "gone"))
            (make-directory (expand-file-name
                             (concat "pyagentd/hosts/" host) root) t))
          (with-temp-buffer
            (pyagentd-doctor-mode)
            (cl-letf (((symbol-function 'pyagentd-doctor--ask) #'ignore))
              (pyagentd-doctor--refresh))
            (should (string-match-p "asking over SSH" (buffer-string)))
            (pyagentd-test-await
             (not (string-search "asking over SSH" (buffer-string))))
            (pcase-dolist
                (`(,host ,level ,detail)
                 `(("absent" missing "not installed on absent")
                   ("good" ok ,(concat "answers, version " pyagentd-version))
                   ("old" warning "the server is version 0.0.9")
                   ("silent" warning "no answer within 1 s")
                   ("gone" warning "No route to host")))
              (let ((finding (car (alist-get host pyagentd-doctor--findings
                                             nil nil #'equal))))
                (should (eq (nth 1 finding) level))
                (should (string-match-p (regexp-quote detail)
                                        (nth 2 finding)))
                (should (string-match-p (regexp-quote detail)
                                        (buffer-string)))))))
      (delete-directory root t))))

(ert-deftest pyagentd-doctor-of-a-server-that-cannot-says-so ()
  (install-test--with-tools pyagentd-version
    (install-test--program (expand-file-name "tools/pyagentd" root)
                           "echo broken >&2; exit 1")
    (should (string-match-p "its check failed: broken"
                            (install-test--doctor)))
    (install-test--program (expand-file-name "tools/pyagentd" root)
                           "exec sleep 60")
    (let ((pyagentd-doctor--timeout 0.2))
      (should (string-match-p "its check failed: no answer within 0.2 s"
                              (install-test--doctor))))
    (kill-buffer "*pyagentd-doctor*")))

(provide 'install-test)
;;; install-test.el ends here

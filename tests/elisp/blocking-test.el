;;; blocking-test.el --- No command waits for the daemon -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Every command of the package is given, with whatever it asks the user
;; answered, while the daemon does not answer, while there is none that
;; could be started, and while all it answers is nil.  None may reach a
;; function that waits.

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'asks)

(pyagentd-test-load-all)

(defconst blocking-test--waiting
  '(accept-process-output sit-for sleep-for call-process call-process-region
    call-process-shell-command process-file shell-command
    shell-command-to-string url-retrieve-synchronously)
  "Functions that wait.")

(defvar blocking-test--asked 0
  "How often the daemon was asked something.")

(defvar blocking-test--waits nil
  "Who has waited and how, a list of (COMMAND FUNCTION ARGUMENT).")

(defvar blocking-test--choices 0
  "How often the command that is given has let the user choose.")

(defvar blocking-test--command nil
  "The command that is given just now.")

;;;; Which commands there are

(defun blocking-test--p (symbol)
  "Return non-nil if SYMBOL is a command of this package."
  (and (commandp symbol)
       (string-match-p "\\`\\(?:pyagentd-\\|jf/\\)" (symbol-name symbol))))

(defun blocking-test--in-map (map)
  "Return the commands of this package in MAP."
  (let (commands)
    (map-keymap (lambda (_ binding)
                  (cond ((keymapp binding)
                         (setq commands (append (blocking-test--in-map binding)
                                                commands)))
                        ((and (symbolp binding) (blocking-test--p binding))
                         (push binding commands))))
                map)
    commands))

(defun blocking-test--commands ()
  "Return all commands with where they are given: pairs (COMMAND . MODE).
MODE is a major mode; nil means a session."
  (let* ((modes (let (found)
                  (mapatoms (lambda (symbol)
                              (when (and (blocking-test--p symbol)
                                         (get symbol 'derived-mode-parent))
                                (push symbol found))))
                  found))
         (pairs (mapcan
                 (lambda (mode)
                   (let ((map (intern-soft (format "%s-map" mode))))
                     (mapcar (lambda (command) (cons command mode))
                             (blocking-test--in-map
                              (keymap-canonicalize
                               (let ((own (copy-keymap (symbol-value map))))
                                 (set-keymap-parent own nil)
                                 own))))))
                 modes)))
    (mapatoms (lambda (symbol)
                (unless (or (not (blocking-test--p symbol))
                            (memq symbol modes)
                            (and (assq symbol pairs)
                                 (command-modes symbol)))
                  (push (cons symbol nil) pairs))))
    (sort (delete-dups pairs)
          (lambda (a b) (string< (format "%s" a) (format "%s" b))))))

;;;; Giving them

(defun blocking-test--row (branch)
  "Return a row as it may stand in any list, of the session BRANCH."
  (list :id "q1" :name "x" :title "Title" :branch branch :branch-dir branch
        :session-dir branch :session-id "x-20260205143052" :status "idle"
        :file (expand-file-name "session.md" branch) :text "text"
        :branch-name "main" :state "running" :kind "tool" :tool "Bash"
        :detail "ls" :action "tool:Bash:ls"
        :choices '(allow session always deny)
        :command "ls" :root branch :pattern "x" :description "x" :model "m"))

(defun blocking-test--first (collection)
  "Return a text of COLLECTION, a completion table, or any."
  (or (car (ignore-errors (all-completions "" collection))) "x"))

(defmacro blocking-test--with-answers (branch &rest body)
  "Evaluate BODY with a user who answers everything; BRANCH is at point."
  (declare (indent 1) (debug t))
  `(cl-letf* ((row (blocking-test--row ,branch))
              ((symbol-function 'read-string) (lambda (&rest _) "x"))
              ((symbol-function 'read-from-minibuffer) (lambda (&rest _) "x"))
              ((symbol-function 'read-number) (lambda (&rest _) 1))
              ((symbol-function 'read-passwd) (lambda (&rest _) "x"))
              ((symbol-function 'completing-read)
               (lambda (_ collection &rest _)
                 ;; Some ask until nothing is chosen.
                 (if (> (cl-incf blocking-test--choices) 20) ""
                   (blocking-test--first collection))))
              ((symbol-function 'completing-read-multiple)
               (lambda (_ collection &rest _)
                 (list (blocking-test--first collection))))
              ((symbol-function 'read-file-name)
               (lambda (&rest _) (expand-file-name "some.md" ,branch)))
              ((symbol-function 'read-directory-name)
               (lambda (&rest _) ,branch))
              ((symbol-function 'read-buffer)
               (lambda (&rest _) (buffer-name)))
              ((symbol-function 'read-multiple-choice)
               (lambda (_ choices &rest _) (car choices)))
              ((symbol-function 'read-char-choice)
               (lambda (_ choices &rest _) (car choices)))
              ((symbol-function 'read-key) (lambda (&rest _) ?y))
              ((symbol-function 'read-event) (lambda (&rest _) ?y))
              ((symbol-function 'read-char) (lambda (&rest _) ?y))
              ((symbol-function 'yes-or-no-p) #'always)
              ((symbol-function 'y-or-n-p) #'always)
              ((symbol-function 'transient-setup) #'ignore)
              ((symbol-function 'browse-url) #'ignore)
              ((symbol-function 'recursive-edit) #'ignore)
              ((symbol-function 'tabulated-list-get-id) (lambda (&rest _) "q1"))
              ((symbol-function 'pyagentd-table-row) (lambda (&rest _) row))
              (here (symbol-function 'pyagentd-here))
              ((symbol-function 'pyagentd-here)
               (lambda () (if pyagentd-mode (funcall here) row)))
              (vc-handled-backends nil)
              (debug-on-error nil))
     ,@body))

(defun blocking-test--trap (name original)
  "Return what notes that the function NAME was called, and gives up.
Such calls of this file itself go to ORIGINAL, and the listing of a local
directory by Dired as well."
  (lambda (&rest args)
    (if (or (null blocking-test--command)
            (member (car args) (list insert-directory-program
                                     ;; Emacs 30 looks which tar it has.
                                     "tar" "gtar" shell-file-name)))
        (apply original args)
      (push (list blocking-test--command name (car args))
            blocking-test--waits)
      (signal 'quit nil))))

(defmacro blocking-test--trapping (&rest body)
  "Evaluate BODY, in which whoever waits is noted."
  (declare (indent 0) (debug t))
  `(let ((originals (mapcar (lambda (name)
                              (cons name (symbol-function name)))
                            blocking-test--waiting))
         (ask (lambda (&rest _)
                (when blocking-test--command
                  (cl-incf blocking-test--asked)))))
     (advice-add 'pyagentd-rpc--submit :before ask)
     (pcase-dolist (`(,name . ,original) originals)
       (fset name (blocking-test--trap name original)))
     (unwind-protect (progn ,@body)
       (advice-remove 'pyagentd-rpc--submit ask)
       (pcase-dolist (`(,name . ,original) originals)
         (fset name original)))))

(defun blocking-test--ready ()
  "Make this session one that can be written, and in which something is asked."
  (unless (pyagentd-rpc-connected-p)
    (ignore-errors (pyagentd-rpc-connect)))
  (unless pyagentd-mode (pyagentd-mode))
  (setq pyagentd-attach-state t
        buffer-read-only nil
        pyagentd-ask-function nil)
  (pyagentd-viewing-set nil)
  (pyagentd-status-set '(:state idle))
  (pyagentd-ask-clear)
  (pyagentd-test-events
   `(ask 2 ,(append '(:input "{\"command\":\"ls\"}" :remember ("tool:Bash:ls"))
                    (blocking-test--row pyagentd--branch-dir))))
  (goto-char (point-max)))

(defun blocking-test--place (mode file)
  "Return a buffer in MODE, or the session in FILE."
  (if (null mode)
      (let ((buffer (find-file-noselect file)))
        (with-current-buffer buffer
          (blocking-test--ready))
        buffer)
    (with-current-buffer (find-file-noselect file)
      (blocking-test--ready))
    (with-current-buffer (get-buffer-create (format "*blocking %s*" mode))
      (unless (eq major-mode mode)
        (funcall mode))
      (setq-local pyagentd-ask-function (lambda () (pyagentd-ask-find "q1"))
                  pyagentd-list-arguments
                  (list :branch (directory-file-name (file-name-directory file))))
      (setq pyagentd-table-rows
            (list (blocking-test--row (file-name-directory file))))
      (current-buffer))))

(defun blocking-test--give (command mode file)
  "Give COMMAND in a buffer in MODE, or in the session in FILE."
  (let* ((place (blocking-test--place mode file))
         (buffers (buffer-list))
         (processes (process-list)))
    (save-window-excursion
      (switch-to-buffer place)
      (let ((blocking-test--command command))
        (setq blocking-test--choices 0)
        ;; Most say that something is missing here.
        (ignore-errors
          (condition-case nil (call-interactively command) (quit nil)))))
    (dolist (process (seq-difference (process-list) processes))
      (unless (memq process (list pyagentd-rpc--process
                                  pyagentd-start--process))
        (set-process-sentinel process #'ignore)
        (delete-process process)))
    (pyagentd-install--end '(quit))     ; one whose process was just ended
    (dolist (buffer (seq-difference (buffer-list) buffers))
      (when (buffer-live-p buffer)
        (with-current-buffer buffer (set-buffer-modified-p nil))
        (let ((kill-buffer-query-functions nil))
          (kill-buffer buffer))))))

;;;; Tests

(defconst blocking-test--accept (symbol-function 'accept-process-output)
  "The function that waits, as it is where nothing is trapped.")

(defun blocking-test--settle (command)
  "Let COMMAND get its answers, and go on with them."
  (let ((blocking-test--command command)
        (deadline (+ (float-time) 10)))
    (while (not (or (pyagentd-test-settled-p) (> (float-time) deadline)))
      (funcall blocking-test--accept nil 0.002))))

(defun blocking-test--options ()
  "Return the options of the package, which commands of its menus set."
  (let (found)
    (mapatoms (lambda (symbol)
                (when (and (custom-variable-p symbol)
                           (string-prefix-p "pyagentd-" (symbol-name symbol)))
                  (push symbol found))))
    found))

(defun blocking-test--all (file after)
  "Give all commands, those of sessions in FILE; call AFTER after each."
  (setq blocking-test--waits nil
        blocking-test--asked 0)
  (let ((commands (blocking-test--commands))
        (gc-cons-threshold (* 200 1024 1024)) ; a third of the time otherwise
        (reached 0))
    (should (< 100 (length commands)))
    (cl-progv (blocking-test--options)
        (mapcar #'symbol-value (blocking-test--options))
      (blocking-test--trapping
        (blocking-test--with-answers (directory-file-name
                                      (file-name-directory file))
          (pcase-dolist (`(,command . ,mode) commands)
            (let ((before blocking-test--asked)
                  (pyagentd-host nil))  ; a command changes it
              (blocking-test--give command mode file)
              (funcall after command)
              (when (< before blocking-test--asked)
                (cl-incf reached)))))))
    (pyagentd-test-report "%d commands, %d ask the daemon"
                          (length commands) reached)
    (should-not (delete-dups blocking-test--waits))
    reached))

(defmacro blocking-test--with-session (file &rest body)
  "Evaluate BODY with FILE, that of a session that a daemon knows.
The variable `daemon' is bound to its process."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-tell 'fake-answer "(:seq 0 :revision 10)" 'attach)
     (let ((,file (pyagentd-test-file root "### Hi"))
           (pyagentd-server-directory root)
           (default-directory (file-name-as-directory root)))
       (with-current-buffer (find-file-noselect ,file)
         (pyagentd-test-await (pyagentd-attached-p)))
       ,@body)))

(ert-deftest pyagentd-blocking-no-command-waits-for-a-daemon-that-is-silent ()
  (blocking-test--with-session file
    (signal-process daemon 'SIGSTOP)
    (unwind-protect
        (should (< 50 (blocking-test--all file #'ignore)))
      (signal-process daemon 'SIGCONT))))

(ert-deftest pyagentd-blocking-no-command-waits-where-no-daemon-starts ()
  (pyagentd-test-with-place
    (let ((file (pyagentd-test-file root "### Hi"))
          (pyagentd-command '("sleep" "600"))
          (pyagentd-server-directory root)
          (default-directory (file-name-as-directory root)))
      (unwind-protect
          (blocking-test--all file #'ignore)
        (when (process-live-p pyagentd-start--process)
          (set-process-sentinel pyagentd-start--process #'ignore)
          (delete-process pyagentd-start--process))
        (setq pyagentd-start--process nil
              pyagentd-start--waiting nil)))))

(ert-deftest pyagentd-blocking-who-waits-is-found ()
  (defalias 'pyagentd-blocking-test (lambda () (interactive)
                                      (pyagentd-rpc-call 'status)))
  (unwind-protect
      (blocking-test--with-session file
        (setq blocking-test--waits nil)
        (blocking-test--trapping
          (blocking-test--give 'pyagentd-blocking-test nil file))
        (should (equal '(pyagentd-blocking-test accept-process-output)
                       (seq-take (car blocking-test--waits) 2))))
    (fmakunbound 'pyagentd-blocking-test)))

(ert-deftest pyagentd-blocking-nothing-waits-with-an-answer ()
  (blocking-test--with-session file
    (should (< 50 (blocking-test--all file #'blocking-test--settle)))))

(defconst blocking-test--waiters
  '(("pyagentd-rpc-call" "pyagentd-rpc.el" "pyagentd-jf.el")
    ("pyagentd-start-and-wait" "pyagentd-daemon.el" "pyagentd-rpc.el"
     "pyagentd-jf.el")
    ("accept-process-output" "pyagentd-rpc.el" "pyagentd-daemon.el"
     "pyagentd-jf.el")
    ("sit-for") ("sleep-for") ("call-process") ("call-process-region")
    ("process-file") ("shell-command-to-string"))
  "Functions that wait, each with the files that may call it.")

(ert-deftest pyagentd-blocking-only-calls-that-return-values-wait ()
  (let (found)
    (dolist (file (directory-files
                   (expand-file-name "../../elisp" pyagentd-test-directory)
                   t "\\`pyagentd.*\\.el\\'"))
      (with-temp-buffer
        (insert-file-contents file)
        (pcase-dolist (`(,name . ,allowed) blocking-test--waiters)
          (goto-char (point-min))
          (while (re-search-forward
                  (format "[('`]%s\\_>" (regexp-quote name)) nil t)
            (unless (or (member (file-name-nondirectory file) allowed)
                        (nth 8 (syntax-ppss)))
              (push (cons (file-name-nondirectory file) name) found))))))
    (should-not found)))

(provide 'blocking-test)
;;; blocking-test.el ends here

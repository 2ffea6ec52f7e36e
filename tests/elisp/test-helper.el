;;; test-helper.el --- What the tests share -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Temporary sessions, a daemon that answers as told, and waiting for
;; conditions with a deadline.

;;; Code:

(require 'ert)
(require 'cl-lib)

(defconst pyagentd-test-directory
  (file-name-directory (or load-file-name buffer-file-name))
  "Directory of the tests.")

(add-to-list 'load-path pyagentd-test-directory)
(add-to-list 'load-path (expand-file-name "../../elisp" pyagentd-test-directory))

(require 'pyagentd)
(require 'pyagentd-sessions)
(require 'pyagentd-jf)
(require 'pyagentd-daemon)

(defun pyagentd-test-wait (what condition)
  "Wait until the function CONDITION returns non-nil and return that.
Fail after some seconds, saying WHAT did not happen."
  (let ((deadline (+ (float-time) 60)) value)
    (while (not (or (setq value (funcall condition))
                    (> (float-time) deadline)))
      (accept-process-output nil 0.005))
    (or value (ert-fail (format "Did not happen: %s" what)))))

(defmacro pyagentd-test-await (condition)
  "Wait until the form CONDITION is non-nil and return its value."
  `(pyagentd-test-wait ',condition (lambda () ,condition)))

;; A command that still waits for its answer holds keys back for half a
;; second, which are not those of the next test.
(advice-add 'ert-run-test :before
            (lambda (&rest _) (setq overriding-terminal-local-map nil)))

;;;; Measurements

(defun pyagentd-test-report (format-string &rest args)
  "Print FORMAT-STRING with ARGS, a measurement."
  (let ((inhibit-message nil))
    (message "   measured  %s" (apply #'format format-string args))))

;;;; Sessions

(defmacro pyagentd-test-with-place (&rest body)
  "Evaluate BODY with an empty sessions directory and no daemon.
The variable `root' is bound to the temporary directory."
  (declare (indent 0) (debug t))
  `(let* ((root (file-truename (make-temp-file "pyagentd-" t)))
          (process-environment
           (cons (concat "PYAGENTD_RUNTIME_DIR=" root) process-environment))
          (pyagentd-runtime-directory root)
          (pyagentd-sessions-directory (expand-file-name "sessions" root))
          (inhibit-message t))
     (unwind-protect (progn ,@body)
       ;; One that is still starting a daemon here would be waited for by
       ;; the next test, which has another place, or connect once more.
       (pyagentd-test-stop-starting)
       (pyagentd-rpc-disconnect)
       (dolist (buffer (buffer-list))
         (when (and (buffer-file-name buffer)
                    (string-prefix-p root (buffer-file-name buffer)))
           (with-current-buffer buffer (set-buffer-modified-p nil))
           (kill-buffer buffer)))
       (pyagentd-events-drain)
       (when pyagentd-connect--retry (cancel-timer pyagentd-connect--retry))
       ;; A process that ends may write there still.
       (pyagentd-test-await
        (progn (ignore-errors (delete-directory root t))
               (not (file-directory-p root)))))))

(defun pyagentd-test-stop-starting ()
  "End the process that starts a daemon, and forget who waits for it."
  (when pyagentd-start--process
    (set-process-sentinel pyagentd-start--process #'ignore)
    (delete-process pyagentd-start--process))
  (setq pyagentd-start--process nil
        pyagentd-start--waiting nil))

(defun pyagentd-test-file (root &optional text relative)
  "Make a session file with TEXT under ROOT and return its name.
RELATIVE is its place, by default that of a branch \"main\"."
  (let ((file (expand-file-name
               (or relative "sessions/demo-20260205143052/branches/main/session.md")
               root))
        (coding-system-for-write 'utf-8-unix))
    (make-directory (file-name-directory file) t)
    (write-region (or text "") nil file nil 'quiet)
    file))

(defmacro pyagentd-test-with-session (text &rest body)
  "Evaluate BODY in the buffer of a session with TEXT, without a daemon.
The variable `file' is bound to its name."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-place
     (let ((file (pyagentd-test-file root ,text)))
       (with-current-buffer (find-file-noselect file)
         ,@body))))

(defun pyagentd-test-content (file)
  "Return the text of FILE."
  (with-temp-buffer
    (let ((coding-system-for-read 'utf-8-unix))
      (insert-file-contents file))
    (buffer-string)))

;;;; Overlays

(defun pyagentd-test-overlays (&optional beg end)
  "Return the overlays between BEG and END, by default all, that show something.
The one that protects recorded text does not."
  (remq pyagentd-session--guard
        (overlays-in (or beg (point-min)) (or end (1+ (buffer-size))))))

;;;; Events

(defun pyagentd-test-attach (&rest answer)
  "Behave as if the daemon had let this buffer edit, with ANSWER."
  (pyagentd-attach--apply (append answer '(:seq 0 :revision 10 :saved t))))

(defun pyagentd-test-events (&rest events)
  "Apply EVENTS, lists (KIND SEQ . ARGS), to the branch of this buffer."
  (let ((branch pyagentd--branch-dir))
    (pyagentd-events-enqueue
     (lambda ()
       (mapcar (pcase-lambda (`(,kind . ,rest)) `(,kind ,branch . ,rest))
               events)))
    (pyagentd-events-drain)))

(defun pyagentd-test-stream (&rest texts)
  "Insert TEXTS as parts of an answer in this buffer."
  (dolist (text texts)
    (pyagentd-test-events `(insert 1 ,text response))))

;;;; Daemon

(defun pyagentd-test-attach-now ()
  "Attach this buffer and wait until that is done; signal what hinders it."
  (let (done err)
    (pyagentd-attached-then (lambda () (setq done t))
                            (lambda (why) (setq err why)))
    (pyagentd-test-await (or done err))
    (when err (signal (car err) (cdr err)))))

(defmacro pyagentd-test-with-daemon (&rest body)
  "Evaluate BODY with a daemon that answers as told by `pyagentd-test-tell'."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-place
     (let ((daemon (make-process
                    :name "fake-daemon" :buffer nil :noquery t
                    :connection-type 'pipe
                    :command (list "python3" (expand-file-name
                                              "fake-daemon.py"
                                              pyagentd-test-directory)))))
       (unwind-protect
           (progn
             (pyagentd-test-await (file-exists-p (pyagentd-rpc-runtime-file)))
             ,@body)
         (delete-process daemon)))))

(defun pyagentd-test-tell (what text &optional method)
  "Tell the daemon to do WHAT, a symbol, with TEXT for METHOD."
  (pyagentd-rpc-call
   what (list :method method
              :text (base64-encode-string (encode-coding-string text 'utf-8) t))))

(defun pyagentd-test-push (&rest events)
  "Let the daemon send EVENTS, lists (KIND BRANCH SEQ . ARGS), in one frame."
  (pyagentd-test-tell 'fake-raw (format "(call 0 events (%S))" events)))

(defun pyagentd-test-calls (method)
  "Return the plists with which METHOD of the daemon was called."
  (cl-loop for (name . arguments) in (pyagentd-rpc-call 'fake-calls)
           when (eq name method) collect (car arguments)))

(defun pyagentd-test-sent-p (text)
  "Return non-nil if an edit that was sent to the daemon ends with TEXT."
  (seq-some (lambda (call)
              (seq-some (lambda (hunk) (string-suffix-p text (nth 2 hunk)))
                        (plist-get call :hunks)))
            (pyagentd-test-calls 'edit-document)))

(defun pyagentd-test-load-all ()
  "Load all files of the package."
  (dolist (file (directory-files
                 (expand-file-name "../../elisp" pyagentd-test-directory)
                 nil "\\`pyagentd.*\\.el\\'"))
    (unless (string-match-p "-\\(?:autoloads\\|pkg\\)\\.el\\'" file)
      (require (intern (file-name-sans-extension file))))))

(provide 'test-helper)
;;; test-helper.el ends here

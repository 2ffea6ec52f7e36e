;;; pyagentd-rpc.el --- Calls to the daemon and its events -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The connection to the daemon: an EPC client that never blocks, a queue of
;; frames to write, and a queue of received events.

;;; Code:

(require 'pyagentd-core)

;;;; Queue of frames to the daemon

;; Writing to a full socket blocks Emacs completely.  A socket fills up
;; quickly if the daemon does not read: after two hundred small calls on
;; GNU/Linux, after forty elsewhere.  So Emacs limits the bytes that the
;; daemon may not have read yet, and queues the other frames here in order.
;; The daemon reads calls in order: a reply to one shows that it has read
;; all earlier ones.  If frames are held back behind calls that take long,
;; Emacs sends a fence, a call that the daemon answers at once.

(defconst pyagentd-outbox--most 6000
  "Maximum number of bytes written that the daemon may not have read yet.
A socket of macOS buffers 8192.")

(defconst pyagentd-outbox--overhead 64
  "Number of bytes that a frame takes besides its text.")

(defvar pyagentd-outbox--held nil
  "Frames held back, pairs (UID . FRAME), in order.")

(defvar pyagentd-outbox--written nil
  "Frames that the daemon may not have read, pairs (UID . BYTES), latest first.")

(defvar pyagentd-outbox--fence nil
  "UID of the pending fence, a call that shows what the daemon has read, or nil.")

(defun pyagentd-outbox-reset ()
  "Drop all frames, when a connection begins or ends."
  (setq pyagentd-outbox--held nil
        pyagentd-outbox--written nil
        pyagentd-outbox--fence nil))

(defun pyagentd-outbox-put (uid frame)
  "Write FRAME, of the call UID, or hold it back."
  (setq pyagentd-outbox--held
        (nconc pyagentd-outbox--held (list (cons uid frame))))
  (pyagentd-outbox--flush))

(defun pyagentd-outbox-answered (uid)
  "Record a reply to the call UID: the daemon has read it and all before."
  (when-let ((entry (assq uid pyagentd-outbox--written)))
    (setq pyagentd-outbox--written
          (seq-take-while (lambda (other) (not (eq other entry)))
                          pyagentd-outbox--written)))
  (when (eql uid pyagentd-outbox--fence)
    (setq pyagentd-outbox--fence nil))
  (pyagentd-outbox--flush))

(defun pyagentd-outbox--write (entry)
  "Write the frame in ENTRY, a pair (UID . FRAME)."
  (pcase-let ((`(,uid . ,frame) entry))
    (push (cons uid (+ pyagentd-outbox--overhead (length frame)))
          pyagentd-outbox--written)
    (pyagentd-rpc--write frame)))

(defun pyagentd-outbox--flush ()
  "Write as many of the frames held back as the limit permits.
While Emacs waits for the socket, timers and filters may run that add
frames or reset the queue, so the state is read again after each frame."
  (while (and pyagentd-outbox--held
              (let ((bytes (apply #'+ (mapcar #'cdr pyagentd-outbox--written))))
                ;; One that never fits is written once all before it were read.
                (or (= bytes 0)
                    (<= (+ bytes pyagentd-outbox--overhead
                           (length (cdar pyagentd-outbox--held)))
                        pyagentd-outbox--most))))
    (pyagentd-outbox--write (pop pyagentd-outbox--held)))
  (when (and pyagentd-outbox--held (null pyagentd-outbox--fence))
    (let ((fence (pyagentd-rpc--fence)))
      (setq pyagentd-outbox--fence (car fence))
      (pyagentd-outbox--write fence)
      ;; It may have been answered already.
      (pyagentd-outbox--flush))))

;;;; Finding the server

;; The server is a Python program, searched for in this order: the option
;; `pyagentd-command'; the program "pyagentd" on the path; a virtual
;; environment below `pyagentd-server-directory'.  These are made by
;; `pyagentd-install-server' (see `pyagentd-install'), one for each
;; version, and each has a file that marks it as complete.  The environment
;; that fits this package is preferred, then the latest one; the user is
;; told if its version does not fit.

(defcustom pyagentd-server-directory
  (locate-user-emacs-file "pyagentd/server/")
  "Directory of the virtual environments of servers, one for each version."
  :type 'directory
  :risky t
  :group 'pyagentd)

(define-error 'pyagentd-no-server "The server is not installed"
  'pyagentd-connection-error)

(defconst pyagentd-server-complete "complete.eld"
  "Name of the file that marks a complete environment: a plist with :version.")

(defun pyagentd-server--environment (directory)
  "Return the environment in DIRECTORY as a plist, nil unless it is complete."
  (let ((file (expand-file-name pyagentd-server-complete directory))
        (program (expand-file-name "bin/pyagentd" directory)))
    (when (and (file-readable-p file) (file-executable-p program))
      (when-let* ((facts (ignore-errors
                           (with-temp-buffer
                             (insert-file-contents file)
                             (read (current-buffer)))))
                  (version (plist-get facts :version)))
        (list :directory directory :version version :program program
              :extras (plist-get facts :extras)
              :time (float-time
                     (file-attribute-modification-time
                      (file-attributes file))))))))

(defun pyagentd-server-environments ()
  "Return the complete environments, the best one first.
Those that work with this package come first, then the newest."
  (when (file-directory-p pyagentd-server-directory)
    (seq-sort (lambda (a b)
                (let ((fits (pyagentd-server-same-minor-p
                             (plist-get a :version))))
                  (if (eq fits (pyagentd-server-same-minor-p
                                (plist-get b :version)))
                      (> (plist-get a :time) (plist-get b :time))
                    fits)))
              (delq nil (mapcar #'pyagentd-server--environment
                                (directory-files pyagentd-server-directory
                                                 t "\\`[0-9]"))))))

(defun pyagentd-server-same-minor-p (version)
  "Return t if VERSION has the same major and minor version as this package.
Also return t if VERSION is no version number."
  (let ((minor (lambda (version)
                 (and (stringp version)
                      (string-match "\\`[0-9]+\\.[0-9]+" version)
                      (match-string 0 version)))))
    (equal (or (funcall minor version) (funcall minor pyagentd-version))
           (funcall minor pyagentd-version))))

(defun pyagentd-server-found ()
  "Return a plist that describes the installed server, or nil.
It has :command, a list of strings, and :source, one of the symbols
`option', `path' and `environment'; with the last it also has :version."
  (let ((environment (car (pyagentd-server-environments))))
    (cond (pyagentd-command
           (list :command pyagentd-command :source 'option))
          ((executable-find "pyagentd")
           (list :command '("pyagentd") :source 'path))
          (environment
           (list :command (list (plist-get environment :program))
                 :source 'environment
                 :version (plist-get environment :version))))))

(defun pyagentd-server-command ()
  "Return the program of the server and its first arguments.
If there is none, signal an error with advice."
  (let ((command (plist-get (pyagentd-server-found) :command)))
    (unless command
      (signal 'pyagentd-no-server
              '("M-x pyagentd-install-server installs it")))
    (unless (executable-find (car command))
      (user-error
       "Cannot find %s; change `pyagentd-command', or M-x pyagentd-doctor"
       (car command)))
    command))

;;;; Queue of events from the daemon

;; Events arrive faster than Emacs can show them.  They are queued in order
;; of arrival, and a timer applies them for a few milliseconds at a time, so
;; that Emacs can redisplay and read keys in between.

(defvar pyagentd-events--handlers (make-hash-table :test #'eq)
  "Hash table from kinds of events to their handlers.")

(defvar pyagentd-events--arrived nil
  "Functions that return events, newest first.")

(defvar pyagentd-events--next nil
  "Queued items, oldest first: events, or functions that return a list of them.")

(defvar pyagentd-events--timer nil
  "Timer that drains the queue, nil when the queue is empty.")

(defvar pyagentd-events--draining nil
  "Non-nil while an event is being applied.")

(defun pyagentd-events-register (kind function)
  "Call FUNCTION for each event of KIND, a symbol.
FUNCTION gets (BRANCH SEQ ARGS): the branch's directory, the number of
the event (0 for a transient one) and the list of its arguments.
It must not prompt, and should not block.  One function per kind."
  (puthash kind function pyagentd-events--handlers))

(defun pyagentd-events-enqueue (producer)
  "Queue PRODUCER, a function called in turn that returns a list of events.
An event is a list (KIND BRANCH SEQ . ARGS)."
  (push producer pyagentd-events--arrived)
  (unless pyagentd-events--timer
    (setq pyagentd-events--timer
          (run-at-time 0 nil #'pyagentd-events--on-timer))))

(defun pyagentd-events-in-turn (function)
  "Return a function that queues a call of FUNCTION with a reply.
The call comes after the events that arrived before the reply."
  (lambda (answer)
    (pyagentd-events-enqueue (lambda () (funcall function answer) nil))))

(defun pyagentd-events--pending-p ()
  "Return non-nil if something is queued."
  (or pyagentd-events--next
      (setq pyagentd-events--next
            (nreverse (prog1 pyagentd-events--arrived
                        (setq pyagentd-events--arrived nil))))))

(defun pyagentd-events--on-timer ()
  "Drain the queue for a few milliseconds."
  (setq pyagentd-events--timer nil)
  (pyagentd-events-drain (+ (float-time) 0.015))
  (when (and (pyagentd-events--pending-p) (not pyagentd-events--timer))
    ;; Not 0: a pause lets Emacs read processes and keys.
    (setq pyagentd-events--timer
          (run-at-time 0.001 nil #'pyagentd-events--on-timer))))

(defun pyagentd-events-drain (&optional deadline)
  "Apply the queued events, all or until DEADLINE (a `float-time').
Do nothing while an event is being applied."
  (unless pyagentd-events--draining
    (let ((pyagentd-events--draining t)
          (inhibit-quit t))
      (while (and (pyagentd-events--pending-p)
                  (or (null deadline) (< (float-time) deadline)))
        (let ((item (pop pyagentd-events--next)))
          (if (functionp item)
              (pyagentd-guarded "Event"
                (setq pyagentd-events--next
                      (append (funcall item) pyagentd-events--next)))
            (pyagentd-guarded (format "Event %s" (car-safe item))
              (pcase-let ((`(,kind ,branch ,seq . ,args) item))
                (if-let ((handler (gethash (pyagentd-symbol kind)
                                           pyagentd-events--handlers)))
                    (funcall handler branch seq args)
                  (pyagentd-log 'debug "No handler for event %s" kind))))))))))

;;;; The session log

(pyagentd-events-register
 'log (lambda (_branch _seq args)       ; from the daemon, about our calls
        (pcase-let ((`(,record) args))
          (pyagentd-log-record (pyagentd-symbol (plist-get record :level))
                               (plist-get record :text)
                               (plist-get record :session-dir)))))

;;;; Connection to the pyagentd daemon

;; Only this file implements EPC, the protocol of epc.el: six hexadecimal
;; digits and an s-expression.  It does not use epc.el, which stock Emacs
;; does not have, and which does its work in the process filter.  The filter
;; here only splits the input into frames.  Replies go to their callers at
;; once; events are queued undecoded (`pyagentd-events').
;;
;; Hooks, timers and, by way of `pyagentd-later', commands use
;; `pyagentd-rpc-call-async', which neither waits nor starts a daemon.
;; `pyagentd-rpc-call' does both: it is for functions that must return the
;; daemon's reply (`pyagentd-jf').  Both fail when the connection ends.

(declare-function pyagentd-start-and-wait "pyagentd-daemon")
(declare-function pyagentd-host-runtime "pyagentd-host")
(declare-function pyagentd-host-filter "pyagentd-host")
(declare-function pyagentd-host-call "pyagentd-host")
(declare-function pyagentd-host-answer "pyagentd-host")
(declare-function pyagentd-host-event "pyagentd-host")

(defconst pyagentd-rpc-protocol 1
  "Version of the wire protocol this client speaks.")

(defvar pyagentd-rpc-connected-hook nil
  "Hook run when the daemon has accepted the connection.")

(defvar pyagentd-rpc-disconnected-hook nil
  "Hook run after the connection ended and all its events were applied.")

(defvar pyagentd-rpc--process nil
  "The process of the connection, nil when there is none.")

(defvar pyagentd-rpc--pending nil
  "Alist of the calls that wait for an answer: (UID SUCCESS . FAILURE).")

(defvar pyagentd-rpc--uid 0
  "Number of the latest call.")

;;;; Frames

(defun pyagentd-rpc--read (frame)
  "Return the s-expression in FRAME, a unibyte string."
  (car (read-from-string (decode-coding-string frame 'utf-8-unix t))))

(defun pyagentd-rpc--plain (value)
  "Return VALUE without text properties and raw bytes, for the wire."
  (pcase value
    ((pred stringp)
     (let ((text (substring-no-properties value)))
       (if (multibyte-string-p text) text (decode-coding-string text 'utf-8))))
    ((or (pred symbolp) (pred numberp)) value)
    ((pred proper-list-p) (mapcar #'pyagentd-rpc--plain value))
    (_ (signal 'wrong-type-argument (list 'pyagentd-rpc-value value)))))

(defun pyagentd-rpc--frame (message)
  "Return MESSAGE, an s-expression, as a frame."
  (let* ((print-length nil) (print-level nil) (print-circle nil)
         (print-escape-newlines nil) (print-escape-nonascii nil)
         (print-quoted nil) (float-output-format nil)
         (payload (encode-coding-string
                   (concat (prin1-to-string (pyagentd-rpc--plain message)) "\n")
                   'utf-8-unix)))
    (when (> (length payload) #xffffff) ; six digits
      (signal 'pyagentd-connection-error '("The message is too large")))
    (concat (format "%06x" (length payload)) payload)))

(defun pyagentd-rpc--filter (process chunk)
  "Split CHUNK, read from PROCESS, into frames and dispatch them."
  (let ((buffer (process-buffer process)) frames)
    (cond ((not (buffer-live-p buffer)))
          ;; Most answers come as one chunk that is one frame.
          ((and (= (buffer-size buffer) 0) (> (length chunk) 6)
                (= (length chunk)
                   (+ 6 (string-to-number (substring chunk 0 6) 16))))
           (setq frames (list (substring chunk 6))))
          (t
           (with-current-buffer buffer
             (goto-char (point-max))
             (insert chunk)
             (let ((start 1) (end (point-max)) length)
               (while (and (<= (+ start 6) end)
                           (setq length (string-to-number
                                         (buffer-substring start (+ start 6))
                                         16))
                           (<= (+ start 6 length) end))
                 (push (buffer-substring (+ start 6) (+ start 6 length)) frames)
                 (setq start (+ start 6 length)))
               (delete-region 1 start)))))
    (dolist (frame (nreverse frames))
      (if (string-prefix-p "(call " frame)
          (pyagentd-events-enqueue (lambda () (pyagentd-rpc--called frame)))
        (pyagentd-guarded "Answer"
          (pcase-let ((`(,kind ,uid ,value) (pyagentd-rpc--read frame)))
            (pyagentd-outbox-answered uid)
            (when-let ((waiting (pyagentd-rpc--forget uid)))
              (if (eq kind 'return) (funcall (car waiting) value)
                (funcall (cdr waiting) (cons 'pyagentd-remote-error value))))))))))

(defun pyagentd-rpc--called (frame)
  "Return the events in FRAME; the daemon calls nothing else."
  (pcase (pyagentd-rpc--read frame)
    (`(call 0 events (,events))
     (if pyagentd-host (mapcar #'pyagentd-host-event events) events))))

(defun pyagentd-rpc--forget (uid)
  "Remove the pending call UID; return (SUCCESS . FAILURE) or nil."
  (when-let ((pair (assq uid pyagentd-rpc--pending)))
    (setq pyagentd-rpc--pending (delq pair pyagentd-rpc--pending))
    (cdr pair)))

;;;; Connection

(defun pyagentd-rpc-connected-p ()
  "Return non-nil if there is a connection to the daemon."
  (and pyagentd-rpc--process (process-live-p pyagentd-rpc--process)
       (equal (process-get pyagentd-rpc--process 'pyagentd-host)
              pyagentd-host)))

(defun pyagentd-rpc-runtime-file ()
  "Return the name of the file with the address of the daemon."
  (expand-file-name
   "daemon.eld"
   (or pyagentd-runtime-directory
       (getenv "PYAGENTD_RUNTIME_DIR")
       (if-let ((dir (getenv "XDG_RUNTIME_DIR")))
           (expand-file-name "pyagentd" dir)
         (expand-file-name "pyagentd/run" (or (getenv "XDG_STATE_HOME")
                                              "~/.local/state"))))))

(defun pyagentd-rpc-runtime ()
  "Return the plist in the daemon's runtime file, or nil.
Another daemon may remove it at any time."
  (if pyagentd-host
      (progn (require 'pyagentd-host) (pyagentd-host-runtime))
    (with-temp-buffer
      (let ((runtime (ignore-errors
                       (insert-file-contents (pyagentd-rpc-runtime-file))
                       (read (current-buffer)))))
        (and (listp runtime) runtime)))))

(defun pyagentd-rpc--check-peer (proto version)
  "Signal an error unless PROTO and VERSION of the daemon fit this package."
  (unless (eql proto pyagentd-rpc-protocol)
    (signal 'pyagentd-protocol-error
            (list (format "it speaks %s, this package %d; update the older one, then run `pyagentd stop' (M-x pyagentd-doctor does)"
                          proto pyagentd-rpc-protocol))))
  (unless (pyagentd-server-same-minor-p version)
    (signal 'pyagentd-protocol-error
            (list (format "it is version %s, this package %s; %s"
                          version pyagentd-version
                          (if (and pyagentd-host
                                   (version< version pyagentd-version))
                              (format "M-x pyagentd-install-server installs the one that fits on %s, then run `pyagentd stop' there"
                                      pyagentd-host)
                            (if (version< version pyagentd-version)
                                "M-x pyagentd-upgrade installs and starts the one that fits"
                              "update this package, or M-x pyagentd-upgrade goes back to the server that fits it")))))))

(defun pyagentd-rpc--make-process (runtime)
  "Return a process connected to the socket in RUNTIME, or nil on failure."
  (let ((buffer (generate-new-buffer " *pyagentd*")))
    (with-current-buffer buffer
      (set-buffer-multibyte nil)
      (buffer-disable-undo))
    (condition-case nil
        (make-network-process
         :name "pyagentd" :coding 'binary :noquery t :buffer buffer
         :family 'local :service (plist-get runtime :socket))
      (error (kill-buffer buffer) nil))))

(defun pyagentd-rpc--open (runtime)
  "Connect to the socket in RUNTIME and send hello; return the process or nil."
  (when-let ((process (and runtime
                           (progn (pyagentd-rpc--check-peer
                                   (plist-get runtime :proto)
                                   (plist-get runtime :version))
                                  ;; The link to a host is there already.
                                  (or (plist-get runtime :process)
                                      (pyagentd-rpc--make-process runtime))))))
    (when-let ((old pyagentd-rpc--process)) ; that of another machine
      (delete-process old))
    (process-put process 'pyagentd-host pyagentd-host)
    (set-process-filter process (if pyagentd-host #'pyagentd-host-filter
                                  #'pyagentd-rpc--filter))
    (set-process-sentinel process #'pyagentd-rpc--sentinel)
    (pyagentd-outbox-reset)
    (setq pyagentd-rpc--process process
          pyagentd-rpc--pending nil)
    (pyagentd-rpc--hello process)
    process))

(defun pyagentd-rpc--hello (process)
  "Send hello on PROCESS.
Other calls need not wait for the reply: only this user can listen on a
socket in their own directory, and the daemon of a host has greeted."
  (pyagentd-rpc--submit
   'hello
   (list :proto pyagentd-rpc-protocol
         :version pyagentd-version
         :human (if (eq pyagentd-human 'auto) (not noninteractive)
                  (and pyagentd-human t))
         :logs t
         :client (format "emacs %s" emacs-version))
   ;; The daemon refuses a peer whose version does not fit.
   (lambda (_)
     (pyagentd-rpc--announce 'pyagentd-rpc-connected-hook process))
   (lambda (err)
     (pyagentd-log 'error "%s" (pyagentd-error-text err))
     (delete-process process))))

(defun pyagentd-rpc--announce (hook &optional process)
  "Queue a run of HOOK after the events that arrived before.
Do nothing if PROCESS is non-nil and no longer the connection."
  (pyagentd-events-enqueue
   (lambda ()
     (when (or (null process) (eq process pyagentd-rpc--process))
       (run-hooks hook))
     nil)))

(defun pyagentd-rpc--sentinel (process _change)
  "Fail every pending call if PROCESS, the connection, has ended."
  (unless (process-live-p process)
    (when (buffer-live-p (process-buffer process))
      (kill-buffer (process-buffer process)))
    (when (eq process pyagentd-rpc--process)
      (let ((pending pyagentd-rpc--pending))
        (setq pyagentd-rpc--process nil
              pyagentd-rpc--pending nil)
        (pyagentd-outbox-reset)
        (dolist (call (reverse pending))
          (pyagentd-guarded "Disconnect"
            (funcall (cddr call) '(pyagentd-disconnected "try again"))))
        (pyagentd-rpc--announce 'pyagentd-rpc-disconnected-hook)))))

(defun pyagentd-rpc-disconnect ()
  "Close the connection, not the daemon."
  (when-let ((process pyagentd-rpc--process))
    (delete-process process)))

(defun pyagentd-rpc-connect ()
  "Return the process of the connection; connect if there is a daemon.
If there is none, return nil; `pyagentd-start' starts one."
  (if (pyagentd-rpc-connected-p) pyagentd-rpc--process
    (pyagentd-rpc--open (pyagentd-rpc-runtime))))

;;;; Calls

(defun pyagentd-rpc--submit (method plist success failure)
  "Send a call of METHOD with PLIST; return its uid.
SUCCESS is called with the answer, FAILURE with an error (SYMBOL . DATA)."
  (let* ((uid (cl-incf pyagentd-rpc--uid))
         (sent (if pyagentd-host (pyagentd-host-call plist) plist))
         (frame (pyagentd-rpc--frame (list 'call uid method (list sent)))))
    (when pyagentd-host
      (setq success (pyagentd-host-answer success)))
    (push (cons uid (cons success failure)) pyagentd-rpc--pending)
    (pyagentd-outbox-put uid frame)
    uid))

(defun pyagentd-rpc--write (frame)
  "Write FRAME to the daemon, if there is a connection."
  (when-let ((process pyagentd-rpc--process))
    (process-send-string process frame)))

(defun pyagentd-rpc--fence ()
  "Return a call that the daemon answers at once: a pair (UID . FRAME)."
  (let ((uid (cl-incf pyagentd-rpc--uid)))
    (cons uid (pyagentd-rpc--frame (list 'call uid 'status '(nil))))))

(defun pyagentd-rpc-wait (condition seconds)
  "Wait until the function CONDITION returns non-nil, at most SECONDS.
Stop when the connection ends.  Emacs is blocked meanwhile: only for exit
and for Lisp that needs a value."
  (let ((deadline (+ (float-time) seconds)))
    (while (not (or (funcall condition) (not (pyagentd-rpc-connected-p))
                    (> (float-time) deadline)))
      (accept-process-output nil 0.02))))

(cl-defun pyagentd-rpc-call-async (method plist
                                          &key success error timeout late)
  "Call METHOD of the daemon with PLIST; return the number of the call at once.
SUCCESS is called with the reply.  ERROR is called with an error
\(SYMBOL . DATA) if the daemon refuses, the connection ends, there is
none, or TIMEOUT seconds pass (nil means no limit); by default it is
logged.  Only one of them is called, once.  A reply after TIMEOUT goes to
the function LATE; if that is nil, it is dropped, and the call is not sent
if it is still held back.  This never starts a daemon."
  (let* ((timer nil) (over nil)
         (call (lambda (function value)
                 (when function
                   (pyagentd-guarded (format "Answer to %s" method)
                     (funcall function value)))))
         (done (lambda (function value)
                 (when timer (cancel-timer timer))
                 (unless over (funcall call function value))))
         (failure (or error
                      (lambda (err)
                        (pyagentd-log 'warn "%s: %s" method
                                      (pyagentd-error-text err)))))
         (uid (condition-case err
                  (if (pyagentd-rpc-connect)
                      (pyagentd-rpc--submit
                       method plist
                       (lambda (value)
                         (if over (funcall call late value)
                           (funcall done success value)))
                       (lambda (err) (funcall done failure err)))
                    (signal 'pyagentd-disconnected '("no daemon is running")))
                (error (funcall done failure err) nil))))
    (when (and uid timeout)
      (setq timer
            (run-at-time timeout nil
                         (lambda ()
                           (unless late (pyagentd-rpc--give-up uid))
                           (funcall done failure
                                    (list 'pyagentd-timeout method))
                           (setq over t)))))
    uid))

(defun pyagentd-rpc--give-up (uid)
  "Drop the call UID, and do not send it if it is still held back."
  (pyagentd-rpc--forget uid)
  (setq pyagentd-outbox--held (assq-delete-all uid pyagentd-outbox--held)))

(defun pyagentd-rpc-call (method &optional plist timeout)
  "Call METHOD of the daemon with PLIST and return the reply.
Start the daemon if necessary.  Signal `pyagentd-remote-error' if it
refuses, `pyagentd-timeout' after TIMEOUT seconds (default
`pyagentd-call-timeout') and `pyagentd-disconnected' if the connection
ends.  The user can quit it.  Emacs is blocked meanwhile: only for functions
that return values; commands use `pyagentd-later'."
  (require 'pyagentd-daemon)
  (pyagentd-start-and-wait)
  (let* ((call (list method))
         (timeout (or timeout pyagentd-call-timeout))
         (uid (pyagentd-rpc-call-async
               method plist :timeout timeout
               :success (lambda (value) (setcdr call (list t value)))
               :error (lambda (err) (setcdr call (list nil err))))))
    (unwind-protect (pyagentd-rpc-outcome call (1+ timeout))
      (unless (cdr call)
        (pyagentd-rpc--give-up uid)))))

(defun pyagentd-rpc-outcome (call seconds)
  "Wait until the cdr of CALL is (t REPLY) or (nil ERROR).
Return that reply, or signal that error; signal `pyagentd-timeout' after
SECONDS."
  (let ((deadline (+ (float-time) seconds)))
    (while (not (or (cdr call) (> (float-time) deadline)))
      (let ((process pyagentd-rpc--process))
        (unless (or (accept-process-output process 0.05 nil t)
                    (null process) (process-live-p process))
          (pyagentd-rpc--sentinel process nil))))
    (pcase (cdr call)
      (`(t ,value) value)
      (`(nil ,err) (signal (car err) (cdr err)))
      (_ (signal 'pyagentd-timeout
                 '("it is still under way; the same call again waits for it"))))))

(provide 'pyagentd-rpc)
;;; pyagentd-rpc.el ends here

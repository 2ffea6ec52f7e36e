;;; pyagentd-rpc.el --- Calls to the daemon and its events -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The connection to the daemon: an EPC client that never blocks, a queue of
;; what is to be written, and the queue of events that arrived.

;;; Code:

(require 'pyagentd-core)

;;;; What is sent to the daemon

;; Emacs waits when it writes to a socket that is full, and nothing of
;; Emacs moves then.  It is full soon when the daemon does not read: after
;; two hundred small calls on GNU/Linux, after forty elsewhere.  So only
;; a little is written that the daemon is not known to have read, and the
;; rest is held back here, in its order.  The daemon reads calls in their
;; order: when it answers one it has read all before.  Where much is held
;; back behind calls that take long, one is made that is answered at once.

(defconst pyagentd-outbox--most 6000
  "How many bytes may be written that the daemon is not known to have read.
A socket of macOS takes 8192.")

(defconst pyagentd-outbox--overhead 64
  "How many bytes a frame takes beside its text.")

(defvar pyagentd-outbox--held nil
  "Frames held back, pairs (UID . FRAME), first one first.")

(defvar pyagentd-outbox--written nil
  "What the daemon may not have read, pairs (UID . BYTES), latest first.")

(defvar pyagentd-outbox--fence nil
  "UID of the call that only finds out what was read, nil if there is none.")

(defvar pyagentd-outbox--open nil
  "Non-nil if frames may be written: the peer is the daemon.")

(defun pyagentd-outbox-reset ()
  "Forget all frames: there is a connection that waits for hello, or none."
  (setq pyagentd-outbox--held nil
        pyagentd-outbox--written nil
        pyagentd-outbox--fence nil
        pyagentd-outbox--open nil))

(defun pyagentd-outbox-open ()
  "Write what was held back until it was known that the peer is the daemon."
  (setq pyagentd-outbox--open t)
  (pyagentd-outbox--flush))

(defun pyagentd-outbox-put (uid frame)
  "Write FRAME, the call UID, or hold it back."
  (setq pyagentd-outbox--held
        (nconc pyagentd-outbox--held (list (cons uid frame))))
  (pyagentd-outbox--flush))

(defun pyagentd-outbox-answered (uid)
  "Note that the call UID was answered, so that it and all before were read."
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
  "Write what can be written of the frames held back.
Where Emacs waits for the socket, timers and filters run, which put more
or reset all: what is true is looked up again after each frame."
  (while (and pyagentd-outbox--open pyagentd-outbox--held
              (let ((bytes (apply #'+ (mapcar #'cdr pyagentd-outbox--written))))
                ;; One that never fits is written where all before was read.
                (or (= bytes 0)
                    (<= (+ bytes pyagentd-outbox--overhead
                           (length (cdar pyagentd-outbox--held)))
                        pyagentd-outbox--most))))
    (pyagentd-outbox--write (pop pyagentd-outbox--held)))
  (when (and pyagentd-outbox--open pyagentd-outbox--held
             (null pyagentd-outbox--fence))
    (let ((fence (pyagentd-rpc--fence)))
      (setq pyagentd-outbox--fence (car fence))
      (pyagentd-outbox--write fence)
      ;; It may have been answered already.
      (pyagentd-outbox--flush))))

;;;; Where the server is

;; The server is a Python program, looked for in this order: the option
;; `pyagentd-command'; the program "pyagentd" on the path; a virtual
;; environment below `pyagentd-server-directory'.  The latter are made by
;; `pyagentd-install-server' (see `pyagentd-install'), one for each
;; version, and each has a file that says it is complete.  That of this
;; package's version is taken, else the last that was good: another
;; version is told, never taken in silence.

(defcustom pyagentd-server-directory
  (locate-user-emacs-file "pyagentd/server/")
  "Directory of the virtual environments of servers, one for each version."
  :type 'directory
  :risky t
  :group 'pyagentd)

(define-error 'pyagentd-no-server "The server is not installed"
  'pyagentd-connection-error)

(defconst pyagentd-server-complete "complete.eld"
  "File in an environment that is complete: a plist with :version.")

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
  "Return t if VERSION works with this package: its minor version is the same.
One that says none may work."
  (let ((minor (lambda (version)
                 (and (stringp version)
                      (string-match "\\`[0-9]+\\.[0-9]+" version)
                      (match-string 0 version)))))
    (equal (or (funcall minor version) (funcall minor pyagentd-version))
           (funcall minor pyagentd-version))))

(defun pyagentd-server-found ()
  "Return where the server is, a plist, or nil if there is none.
The plist has :command, a list of strings, and :source, one of the
symbols `option', `path' and `environment'.  Of the latter it has
:version, too."
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
Signal an error that says what to do if there is none."
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

;; Events arrive faster than they may be shown.  They wait here in the
;; order of their arrival and a timer applies them, a few milliseconds at
;; a time, so that redisplay and keys come in between.

(defvar pyagentd-events--handlers (make-hash-table :test #'eq)
  "Function for each kind of event.")

(defvar pyagentd-events--arrived nil
  "Functions that return events, newest first.")

(defvar pyagentd-events--next nil
  "What is applied next, oldest first: events or functions that return some.")

(defvar pyagentd-events--timer nil
  "Timer that drains the queue, nil when the queue is empty.")

(defvar pyagentd-events--draining nil
  "Non-nil while an event is being applied.")

(defun pyagentd-events-register (kind function)
  "Call FUNCTION for each event of KIND, a symbol.
FUNCTION gets (BRANCH SEQ ARGS): the branch's directory, the number of
the event (0 for what is only true now) and the list of its arguments.
It must not prompt, and should not block.  One function per kind."
  (puthash kind function pyagentd-events--handlers))

(defun pyagentd-events-enqueue (producer)
  "Queue PRODUCER, a function called in its turn that return events.
An event is a list (KIND BRANCH SEQ . ARGS)."
  (push producer pyagentd-events--arrived)
  (unless pyagentd-events--timer
    (setq pyagentd-events--timer
          (run-at-time 0 nil #'pyagentd-events--on-timer))))

(defun pyagentd-events-in-turn (function)
  "Return a function that has FUNCTION called with an answer in its turn.
That is behind the events that came before it: they are older news."
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
  "Apply what is queued, all of it or until DEADLINE (a `float-time').
Do nothing when called while an event is being applied."
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
 'log (lambda (_branch _seq args)       ; which it made for something we asked
        (pcase-let ((`(,record) args))
          (pyagentd-log-record (pyagentd-symbol (plist-get record :level))
                               (plist-get record :text)
                               (plist-get record :session-dir)))))

;;;; Connection to the pyagentd daemon

;; The only file that knows EPC, the protocol of epc.el: six hexadecimal
;; digits and an s-expression.  That package is not needed, since stock
;; Emacs does not have it and it does its work in the process filter.  The
;; filter here only cuts frames.  Answers are given to their callers at
;; once, events are queued undecoded (`pyagentd-events').
;;
;; Hooks, timers and, by way of `pyagentd-later', commands use
;; `pyagentd-rpc-call-async', which neither waits nor starts a daemon.
;; `pyagentd-rpc-call' does both: it is for functions that must return what
;; the daemon answers (`pyagentd-jf').  Both fail when the connection ends.

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
  "Return VALUE as the wire can carry it: no text properties, no raw bytes."
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
  "Cut CHUNK, read from PROCESS, into frames and pass them on."
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
                (funcall (cdr waiting)
                         (cons 'pyagentd-remote-error
                               (cond ((eq kind 'epc-error)
                                      (list 'epc-error value))
                                     ((consp value) value)
                                     (t (list 'internal value)))))))))))))

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
  "Signal an error unless PROTO and VERSION of the daemon are fit for us."
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
  "Return a process connected to the address in RUNTIME, nil if nobody listens."
  (let ((socket (plist-get runtime :socket))
        (common (list :name "pyagentd" :coding 'binary :noquery t
                      :buffer (generate-new-buffer " *pyagentd*"))))
    (with-current-buffer (plist-get common :buffer)
      (set-buffer-multibyte nil)
      (buffer-disable-undo))
    (condition-case nil
        (apply #'make-network-process
               (append (if socket (list :family 'local :service socket)
                         (list :host (plist-get runtime :host)
                               :service (plist-get runtime :port)))
                       common))
      (error (kill-buffer (plist-get common :buffer)) nil))))

(defun pyagentd-rpc--open (runtime)
  "Connect to the address in RUNTIME and say hello; return the process or nil."
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
    (pyagentd-rpc--hello process (plist-get runtime :token))
    ;; Only we can listen at a socket in our directory: what is asked
    ;; need not wait for the answer to hello.
    (when (eq (process-contact process :family) 'local)
      (pyagentd-outbox-open))
    process))

(defun pyagentd-rpc--hello (process token)
  "Introduce ourselves on PROCESS with TOKEN.
Other frames wait for the answer, but on a socket of this machine."
  (let ((failed (lambda (err)
                  (pyagentd-log 'error "%s" (pyagentd-error-text err))
                  (delete-process process))))
    (pyagentd-rpc--submit
     'hello
     (list :proto pyagentd-rpc-protocol
           :version pyagentd-version
           :human (if (eq pyagentd-human 'auto) (not noninteractive)
                    (and pyagentd-human t))
           :logs t
           :token token
           :client (format "emacs %s" emacs-version))
     (lambda (answer)
       (condition-case err
           (progn (pyagentd-rpc--check-peer (plist-get answer :proto)
                                            (plist-get answer :version))
                  (pyagentd-outbox-open)
                  (pyagentd-rpc--announce 'pyagentd-rpc-connected-hook
                                          process))
         (pyagentd-protocol-error (funcall failed err))))
     failed)))

(defun pyagentd-rpc--announce (hook &optional process)
  "Run HOOK behind the events that came before, if PROCESS is nil or still in use."
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
    (if (eq method 'hello)
        (pyagentd-rpc--write frame)
      (pyagentd-outbox-put uid frame))
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
Not longer than the connection lasts.  For the end of Emacs and for Lisp
that wants a value: Emacs does nothing else meanwhile."
  (let ((deadline (+ (float-time) seconds)))
    (while (not (or (funcall condition) (not (pyagentd-rpc-connected-p))
                    (> (float-time) deadline)))
      (accept-process-output nil 0.02))))

(cl-defun pyagentd-rpc-call-async (method plist
                                          &key success error timeout late)
  "Call METHOD of the daemon with PLIST; return the number of the call at once.
SUCCESS is called with the answer.  ERROR is called with an error
\(SYMBOL . DATA) if the daemon refuses, the connection ends, there is
none, or TIMEOUT seconds pass (nil means no limit); by default it is
logged.  Neither is called twice.  An answer that comes after TIMEOUT is
given to LATE, a function; nil means that it is dropped, and that what
was held back is not sent any more.  Never starts a daemon."
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
  "Forget the call UID, and do not send it where it is held back still."
  (pyagentd-rpc--forget uid)
  (setq pyagentd-outbox--held (assq-delete-all uid pyagentd-outbox--held)))

(defun pyagentd-rpc-call (method &optional plist timeout)
  "Call METHOD of the daemon with PLIST and return its answer.
Start the daemon if necessary.  Signal `pyagentd-remote-error' if it
refuses, `pyagentd-timeout' after TIMEOUT seconds (default
`pyagentd-call-timeout') and `pyagentd-disconnected' if the connection
ends.  Can be quit.  Emacs waits: for functions that return values, not
for commands, see `pyagentd-later'."
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
  "Wait until CALL has an outcome in its cdr, (t ANSWER) or (nil ERROR).
Return that answer, or signal that error; signal `pyagentd-timeout' if
there is none after SECONDS."
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

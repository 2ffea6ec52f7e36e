;;; bench.el --- What a benchmark observes in Emacs -*- lexical-binding: t; -*-

;; Loaded, byte-compiled, into the Emacs that is measured.  Everything here
;; notes a time and nothing more; what it means is computed elsewhere.

;;; Code:

(require 'cl-lib)
(require 'pyagentd)

;;;; Stalls of the main loop

(defconst bench-period 0.005
  "Seconds between two ticks.")
(defvar bench-stall 0.0
  "Longest time, in seconds, by which a tick came too late.")
(defvar bench--timer nil)
(defvar bench--tick nil)
(defvar bench--gc nil)

(defun bench--tick ()
  "Note how late this tick is."
  (let ((now (float-time)))
    (setq bench-stall (max bench-stall (- now bench--tick bench-period))
          bench--tick now)))

(defun bench-watch ()
  "Begin to watch the main loop."
  (bench-unwatch)
  (garbage-collect)
  (setq bench-stall 0.0
        bench--gc gc-elapsed
        bench--tick (float-time)
        bench--timer (run-at-time bench-period bench-period #'bench--tick)))

;; What keeps a key waiting.

(defun bench-block (function)
  "Call FUNCTION as a command, and redisplay.
Return how many seconds that took, and how many of them Emacs computed."
  (garbage-collect)
  (let ((start (float-time))
        (computed (float-time (get-internal-run-time))))
    (funcall function)
    (redisplay t)
    (list (- (float-time) start)
          (- (float-time (get-internal-run-time)) computed))))

(defvar bench-saves nil
  "Times at which the buffer was saved, newest first.")

(defun bench--saved ()
  "Note a save."
  (push (float-time) bench-saves))

(defun bench-note-saves ()
  "Note from now on when the current buffer is saved."
  (setq bench-saves nil)
  (add-hook 'after-save-hook #'bench--saved nil t))

(defun bench-unwatch ()
  "End watching; return the longest stall and the time in garbage collection, in ms."
  (when bench--timer
    (bench--tick)
    (cancel-timer bench--timer)
    (setq bench--timer nil)
    (list (* 1000 bench-stall) (* 1000 (- gc-elapsed bench--gc)))))

;;;; Runs

(defvar bench-inserted nil
  "Lists (TIME BUFFER-NAME TEXT) of what was inserted, newest first.")
(defvar bench-visible nil
  "Time at which the first text of an answer was on the screen; t to ask for it.")
(defvar bench-finished nil
  "Lists (TIME REASON), one for each run that finished, newest first.")
(defvar bench-frames 0
  "How many frames of events have come.")
(defvar bench-sent nil
  "Times (BEFORE AFTER) of the last `pyagentd-send'.")
(defvar bench-keys nil
  "Times at which typed characters were inserted, newest first.")
(defvar bench-shown nil
  "Times at which they were on the screen, newest first.")

(defun bench--inserted (text role)
  "Note TEXT of ROLE."
  (push (list (float-time) (buffer-name) text) bench-inserted)
  (when (and (eq bench-visible t) (eq role 'response))
    (redisplay t)
    (setq bench-visible (float-time))))

(defun bench--called (&rest _)
  "Count a frame."
  (cl-incf bench-frames))

(defun bench--finished (run)
  "Note that RUN has finished."
  (push (list (float-time) (plist-get run :reason)) bench-finished))

(defun bench--send (send &rest arguments)
  "Note when SEND, called with ARGUMENTS, begins and ends."
  (let ((before (float-time)))
    (apply send arguments)
    (setq bench-sent (list before (float-time)))))

(defun bench--typed ()
  "Note that a character was typed."
  (push (float-time) bench-keys)
  (add-hook 'post-command-hook #'bench--show 90))

(defun bench--show ()
  "Redisplay and note when that was done; the command loop would do it next."
  (remove-hook 'post-command-hook #'bench--show)
  (unless (input-pending-p)
    (redisplay))
  (push (float-time) bench-shown))

(defun bench-reset ()
  "Forget what was noted."
  (setq bench-inserted nil bench-visible nil bench-finished nil bench-frames 0
        bench-sent nil bench-keys nil bench-shown nil))

(advice-add 'pyagentd-rpc--called :before #'bench--called)
(advice-add 'pyagentd-send :around #'bench--send)
(add-hook 'pyagentd-run-finished-functions #'bench--finished)
(add-hook 'post-self-insert-hook #'bench--typed)

(defun bench-note-inserts (flag)
  "Note what is inserted if FLAG, else stop noting it."
  (if flag (advice-add 'pyagentd-insert :after #'bench--inserted)
    (advice-remove 'pyagentd-insert #'bench--inserted)))

(defun bench-prompt (text)
  "Send TEXT from the end of the current buffer."
  (goto-char (point-max))
  (insert text)
  (pyagentd-send)
  t)

(defun bench-text ()
  "Write the text of the buffer to a file and return its name."
  (let ((file (make-temp-file "bench")) (coding-system-for-write 'utf-8-unix))
    (save-restriction
      (widen)
      (write-region (substring-no-properties (buffer-string)) nil file nil 'quiet))
    file))

(defun bench-dump (value)
  "Write VALUE to a file and return its name."
  (let ((file (make-temp-file "bench")) (coding-system-for-write 'utf-8-unix)
        (print-length nil) (print-level nil))
    (write-region (prin1-to-string value) nil file nil 'quiet)
    file))

;;;; From key to painted screen

(defvar bench-painted nil
  "Times at which keys were painted, newest first; one for each key.")
(defvar bench--unpainted 0
  "How many keys were read that were not painted yet.")

(defun bench--paint ()
  "Redisplay as the command loop would do next, and note when that is painted.
With more keys waiting it would go on with those, and so do we."
  (cl-incf bench--unpainted)
  (unless (input-pending-p)
    (redisplay)
    ;; The display answers in order: when it answers this, all is drawn.
    (when (display-graphic-p) (mouse-absolute-pixel-position))
    (let ((now (float-time)))
      (while (> bench--unpainted 0)
        (cl-decf bench--unpainted)
        (push now bench-painted)))))

(defun bench-note-paints (flag)
  "Note from now on when the keys of each command are painted if FLAG."
  (setq bench-painted nil bench--unpainted 0)
  (cond (flag (add-hook 'post-command-hook #'bench--paint 90)
              (remove-hook 'post-self-insert-hook #'bench--typed)) ; it redisplays
        (t (remove-hook 'post-command-hook #'bench--paint)
           (add-hook 'post-self-insert-hook #'bench--typed)))
  t)

(defun bench-windows (left right below)
  "Show buffer LEFT, and beside it RIGHT and BELOW; select the first."
  (delete-other-windows)
  (switch-to-buffer left)
  (with-selected-window (split-window-right)
    (switch-to-buffer right)
    (goto-char (point-max))
    (with-selected-window (split-window-below)
      (switch-to-buffer below)
      (goto-char (point-max))))
  (goto-char (point-max))
  t)

;;;; Calls and events

(defun bench-calls (count)
  "Make COUNT synchronous calls; return how long each took, in seconds."
  (let (times)
    (dotimes (_ count)
      (let ((start (float-time)))
        (pyagentd-rpc-call 'asks)
        (push (- (float-time) start) times)))
    times))

(defun bench-echo (socket count)
  "Send a line to SOCKET and wait until it is back, COUNT times.
Return how long each took, in seconds."
  (let* ((back nil) (times nil)
         (process (make-network-process
                   :name "echo" :family 'local :service socket :coding 'binary :noquery t
                   :filter (lambda (_process chunk) (setq back chunk)))))
    (dotimes (_ count)
      (let ((start (float-time)))
        (setq back nil)
        (process-send-string process "(call 1 asks (nil))\n")
        (while (not back) (accept-process-output process 1))
        (push (- (float-time) start) times)))
    (delete-process process)
    times))

(defvar bench-events 0
  "How many events of a flood were applied.")

(pyagentd-events-register 'bench (lambda (_branch _seq _args) (cl-incf bench-events)))

(defun bench-flood (socket filter expected)
  "Read what the server at SOCKET floods us with by FILTER, ours if nil.
Return the seconds from the first byte until `bench-events' is EXPECTED."
  (setq bench-events 0)
  (let* ((start nil)
         (own (or filter #'pyagentd-rpc--filter))
         (buffer (generate-new-buffer " *flood*"))
         (process (make-network-process
                   :name "flood" :family 'local :service socket :coding 'binary
                   :noquery t :buffer buffer)))
    (with-current-buffer buffer
      (set-buffer-multibyte nil)
      (buffer-disable-undo))
    (set-process-filter process (lambda (process chunk)
                                  (unless start (setq start (float-time)))
                                  (funcall own process chunk)))
    (process-send-string process "go\n")
    (while (< bench-events expected)
      (when (and start (> (- (float-time) start) 30))
        (error "Only %d of %d events came" bench-events expected))
      (accept-process-output nil 0.01))
    (prog1 (- (float-time) start)
      (delete-process process)
      (kill-buffer buffer))))

(defun bench-count-lines (_process chunk)
  "Count the lines of CHUNK as events, and do nothing else with it."
  (cl-incf bench-events (cl-count ?\n chunk)))

(defun bench-bare-insert (socket buffer)
  "Insert whatever SOCKET says at the end of BUFFER, as it comes."
  (make-network-process
   :name "bare" :family 'local :service socket :coding 'utf-8 :noquery t
   :filter (lambda (_process chunk)
             (with-current-buffer buffer
               (save-excursion (goto-char (point-max)) (insert chunk))))))

;;;; Start

(defun bench-connect ()
  "Start a daemon; return the seconds until it has answered hello and a call."
  (let* ((start (float-time)) end
         (greeted (lambda () (setq end (float-time)))))
    (add-hook 'pyagentd-rpc-connected-hook greeted -100)
    (pyagentd-start-and-wait)
    (while (not end)
      (accept-process-output nil 0.001))
    (remove-hook 'pyagentd-rpc-connected-hook greeted)
    (- end start)))

(defun bench-rest ()
  "Let what follows begin after 50 ms in which nothing was done.
A machine that has just rested answers later; so must ours and its
reference."
  (let ((rested (+ (float-time) 0.05)))
    (driver-wait (lambda () (> (float-time) rested)))))

(defun bench-raw-connect (socket)
  "Connect to the echo at SOCKET and wait for two lines; return the seconds."
  (bench-rest)
  (let ((start (float-time)))
    (bench-echo socket 2)
    (- (float-time) start)))

(defun bench-attach (count)
  "Connect to the running daemon and attach the current buffer, COUNT times.
Return how long each took, in seconds."
  (let (times)
    (dotimes (_ count)
      ;; What the end of a connection takes, here and in the daemon, is not measured.
      (cl-letf (((symbol-function 'pyagentd-connect--retry) #'ignore))
        (pyagentd-rpc-disconnect)
        (bench-rest))
      (pyagentd-events-drain)
      (setq pyagentd-attach-state nil)
      (let ((start (float-time)) end)
        (pyagentd-attached-then (lambda () (setq end (float-time))))
        ;; Like the command loop; `accept-process-output' lets new timers wait.
        (with-timeout (30 (error "Not attached within half a minute"))
          (while (not end) (sit-for 0.01)))
        (push (- end start) times)))
    times))

(provide 'bench)
;;; bench.el ends here

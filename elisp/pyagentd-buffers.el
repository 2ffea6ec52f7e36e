;;; pyagentd-buffers.el --- Open files for agents -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Answer the daemon's questions: let agents read and change visited files in
;; their buffers.  Revert buffers whose files an agent has changed.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)

(declare-function pyagentd-host-name "pyagentd-host")
(declare-function pyagentd-tools--definitions "pyagentd-tools")
(defvar pyagentd-hook-functions)

;;;; What this Emacs offers to the daemon

;; After connecting, Emacs tells the daemon what it offers: its buffers, tools
;; and hooks.  The daemon sends questions about them as events, and never
;; waits long.  Functions that answer are registered here, and called from a
;; timer, one at a time.

(defcustom pyagentd-share-buffers t
  "Non-nil means agents read and change open files in their buffers.
They read the unsaved text of files they may read.  Their changes to an open
file are made in its buffer, which is then saved.  Nil means they use the
files on disk only."
  :type 'boolean
  :set (lambda (symbol value)
         (set-default symbol value)
         (when (fboundp 'pyagentd-offer) (pyagentd-offer)))
  :group 'pyagentd)

(defvar pyagentd-offer--answerers nil
  "Alist of subjects of questions and the functions that answer them.")

(defvar pyagentd-offer--timer nil
  "Timer that calls `pyagentd-offer--tell', or nil.")

(defun pyagentd-offer ()
  "Tell the daemon soon what Emacs offers, if connected."
  (unless pyagentd-offer--timer
    (setq pyagentd-offer--timer
          (run-at-time 0 nil #'pyagentd-offer--tell))))

(defun pyagentd-offer--tell ()
  "Tell the daemon what Emacs offers, and log the tools that it refuses."
  (setq pyagentd-offer--timer nil)
  (when (pyagentd-rpc-connected-p)
    (pyagentd-guarded "Offer"
      (pyagentd-rpc-call-async
       'emacs-offer
       (list :buffers (and pyagentd-share-buffers t)
             :tools (pyagentd-tools--definitions)
             :hooks (mapcar (lambda (entry) (symbol-name (car entry)))
                            (seq-filter #'cdr pyagentd-hook-functions)))
       :success
       (lambda (answer)
         (dolist (refused (plist-get answer :refused))
           (pyagentd-log 'warn "A tool cannot be used: %s"
                         (plist-get refused :why))))))))

(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-offer)

(defun pyagentd-offer-register (what function)
  "Make FUNCTION answer questions about WHAT, a string.
It is called with the question's facts, a plist, the question's id, and a
function REPLY.  It calls REPLY, now or later, with the answer, a plist for
`pyagentd-json-of' or a JSON object; only the first answer counts.  If
FUNCTION signals an error, the answer has :error and :text."
  (setf (alist-get what pyagentd-offer--answerers nil nil #'equal) function))

(defun pyagentd-offer--answer (asked)
  "Answer ASKED, a plist with :id, :what and :facts."
  (let* ((id (plist-get asked :id))
         (function (cdr (assoc (plist-get asked :what)
                               pyagentd-offer--answerers)))
         (answered nil)
         (reply (lambda (answer)
                  (unless answered
                    (setq answered t)
                    (pyagentd-offer--send id answer)))))
    (condition-case-unless-debug err
        (let ((inhibit-quit nil))       ; C-g must end a save that hangs
          (if function
              (funcall function (pyagentd-json-plist (plist-get asked :facts))
                       id reply)
            (funcall reply nil)))
      ((error quit) (funcall reply (pyagentd-offer--failed err))))))

(defun pyagentd-offer--failed (err)
  "Return the answer for a question that failed with ERR."
  (let ((text (error-message-string err)))
    (list :error t :text text :outcome "refused" :reason text)))

(defun pyagentd-offer--send (id answer)
  "Send ANSWER, a plist or a JSON object, to the question ID."
  (condition-case err
      (pyagentd-rpc-call-async
       'emacs-answer
       (list :id id :answer (if (stringp answer) answer
                              (pyagentd-json-of answer)))
       :error #'ignore)
    (error                              ; not JSON, or too long for a frame
     (pyagentd-rpc-call-async
      'emacs-answer
      (list :id id :answer (pyagentd-json-of (pyagentd-offer--failed err)))
      :error #'ignore))))

(pyagentd-events-register
 'emacs (lambda (_branch _seq args)     ; soon
          (run-at-time 0 nil #'pyagentd-offer--answer (car args))))

;;;; Agents' access to open files

;; An agent that reads an open file with unsaved changes gets the buffer's
;; text.  Its changes are made in the buffer, as one step of undo; point,
;; markers and encoding are kept, hooks run, and the buffer is saved.  The
;; daemon has checked the agent's permissions before it asks here.
;;
;; Buffers that do not have the text of their file (pictures, archives,
;; decrypted or uncompressed files) count as not open.

(defvar pyagentd--session-dir)

(defvar pyagentd-buffers-changed-functions nil
  "Functions called after an agent changed text in the current buffer.
They get its beginning and end, and run before the buffer is saved.")

(defconst pyagentd-buffers--largest 1000000
  "Maximal size in characters of a buffer that agents use; more is too slow.")

(defun pyagentd-buffers--visiting (path)
  "Return the buffer that visits the daemon's file PATH, a true name, or nil."
  (pyagentd-visited--buffer (if pyagentd-host (pyagentd-host-name path) path)))

(defun pyagentd-buffers--odd ()
  "Return why agents cannot use this buffer's text for its file, or nil."
  (cond ((bound-and-true-p pyagentd--session-dir)
         "it is a conversation of pyagentd")
        ((and (not (file-remote-p buffer-file-name))
              (find-file-name-handler buffer-file-name 'write-region))
         "its file is encrypted or compressed")
        ((or write-contents-functions buffer-file-format
             (derived-mode-p 'image-mode 'archive-mode 'tar-mode 'hexl-mode
                             'doc-view-mode)
             (not enable-multibyte-characters))
         "the buffer is not the text of its file")
        ((> (buffer-size) pyagentd-buffers--largest)
         "the buffer is too large")
        ((save-excursion
           (save-restriction
             (widen)
             (goto-char (point-min))
             (re-search-forward "[\x3fff80-\x3fffff]" nil t)))
         "it has bytes that are no text")))

(defun pyagentd-buffers--stale ()
  "Return why this buffer must not be changed and saved, or nil."
  (cond (buffer-read-only "the buffer is read-only")
        ((and (not (file-remote-p buffer-file-name))
              (not (verify-visited-file-modtime (current-buffer))))
         "the file was changed on disk as well")))

(defun pyagentd-buffers--on-look (facts _id reply)
  "Call REPLY with the buffer's text and state for the file in FACTS.
Call it with nil if the file on disk serves as well."
  (funcall
   reply
   (pyagentd-with-live-buffer (pyagentd-buffers--visiting (plist-get facts :path))
     (let* ((whole (eq t (plist-get facts :whole)))
            (modified (buffer-modified-p))
            (newer (or modified (file-remote-p buffer-file-name)))
            (odd (and (or whole newer) (pyagentd-buffers--odd)))
            (trouble (or odd (pyagentd-buffers--stale))))
       (when (or newer (and whole (not trouble)))
         (append
          (list :buffer (buffer-name)
                :version (number-to-string (buffer-chars-modified-tick))
                :modified (if modified t :json-false)
                :crlf (if (eql 1 (coding-system-eol-type
                                  buffer-file-coding-system))
                          t :json-false))
          (and trouble (list :trouble trouble))
          (and (or whole modified) (not odd)
               (list :text (save-restriction
                             (widen)
                             (buffer-substring-no-properties
                              (point-min) (point-max)))))))))))

(defun pyagentd-buffers--on-change (facts _id reply)
  "Make the change in FACTS, and call REPLY with the outcome."
  (let ((path (plist-get facts :path)))
    (funcall reply
             (or (pyagentd-with-live-buffer (pyagentd-buffers--visiting path)
                   (when (equal (plist-get facts :version)
                                (number-to-string (buffer-chars-modified-tick)))
                     (pyagentd-buffers--changed path (plist-get facts :edits))))
                 (list :outcome "outdated")))))

(defun pyagentd-buffers--changed (path edits)
  "Make EDITS in this buffer, which visits PATH, and save it.
If that fails, leave the buffer unchanged and signal an error."
  (when-let ((trouble (or (pyagentd-buffers--odd) (pyagentd-buffers--stale))))
    (error "%s" trouble))
  (let ((inhibit-interaction t)
        (group (prepare-change-group))
        (done nil))
    (undo-boundary)
    (activate-change-group group)
    (unwind-protect
        (progn
          (save-excursion
            (save-restriction
              (widen)
              (mapc #'pyagentd-buffers--replace (reverse edits))))
          (prog1 (pyagentd-buffers--saved path)
            (setq done t)))
      (if done (accept-change-group group) (cancel-change-group group))
      (undo-boundary))))

(defun pyagentd-buffers--replace (edit)
  "Make EDIT, a vector of beginning and end, counted from 0, and new text."
  (let ((start (1+ (aref edit 0))))
    (goto-char start)
    (delete-region start (1+ (aref edit 1)))
    (insert (aref edit 2))
    (let ((coding buffer-file-coding-system))
      (when-let ((bad (and coding
                           (not (memq (coding-system-base coding)
                                      '(undecided prefer-utf-8 raw-text)))
                           (unencodable-char-position start (point) coding))))
        (error "The file is %s and cannot hold %S" (coding-system-base coding)
               (char-to-string (char-after bad)))))
    (pyagentd-run-functions 'pyagentd-buffers-changed-functions
                            start (point))))

(defun pyagentd-buffers--saved (path)
  "Save this buffer, which visits PATH; return the outcome as a plist."
  (let ((remote (file-remote-p buffer-file-name)))
    (cond
     ((and remote (not (file-remote-p buffer-file-name nil t)))
      (list :outcome "done" :saved :json-false
            :reason (format "there is no connection to %s" remote)))
     ;; A link may have replaced the file meanwhile.
     ((and (not remote) (not (equal (file-truename buffer-file-name) path)))
      (error "%s is another file by now" buffer-file-name))
     (t
      (let ((save-silently t) (inhibit-message t) (message-log-max nil))
        (save-buffer))
      (if (buffer-modified-p)
          (list :outcome "done" :saved :json-false
                :reason "something in Emacs kept it from being saved")
        (list :outcome "done" :saved t))))))

(pyagentd-offer-register "look" #'pyagentd-buffers--on-look)
(pyagentd-offer-register "change" #'pyagentd-buffers--on-change)

;;;; Buffers of files that agents change

(defcustom pyagentd-revert-visited t
  "Non-nil means revert buffers of files that an agent has changed.
A buffer with unsaved changes is not reverted, and a message says so.
Buffers in `auto-revert-mode' are left to it."
  :type 'boolean
  :group 'pyagentd)

(defcustom pyagentd-pulse-edits t
  "Non-nil means flash visible text that an agent has changed."
  :type 'boolean
  :group 'pyagentd)

(defface pyagentd-pulse '((t :inherit pulse-highlight-start-face))
  "Face of text that flashes because an agent changed it."
  :group 'pyagentd)

(defun pyagentd-visited-update (paths)
  "Revert the buffers of the files PATHS, which an agent has changed.
Do not revert buffers with unsaved changes, but show a message."
  (dolist (path paths)
    (pyagentd-with-live-buffer (pyagentd-visited--buffer path)
      (pyagentd-guarded (format "Revert %s" path)
        (cond ((or (verify-visited-file-modtime (current-buffer))
                   (not (file-exists-p buffer-file-name))
                   (bound-and-true-p auto-revert-mode)
                   (bound-and-true-p global-auto-revert-mode)))
              ((buffer-modified-p)
               (message "%s: an agent changed the file; your changes are not saved"
                        (buffer-name)))
              (t (pyagentd-visited--revert)))))))

(defun pyagentd-visited--buffer (path)
  "Return the buffer that visits PATH, or nil, without calling `file-truename'."
  (seq-find (lambda (buffer)
              (with-current-buffer buffer
                (when-let ((name (and buffer-file-name
                                      (or buffer-file-truename
                                          buffer-file-name))))
                  (member path (list buffer-file-name
                                     (if (file-remote-p buffer-file-name) name
                                       (expand-file-name name)))))))
            (buffer-list)))

(defun pyagentd-visited--revert ()
  "Revert this buffer, and flash the text that has changed."
  (let* ((inhibit-message t) (message-log-max nil)
         (first nil) (last 0)
         (note (lambda (beg end length)
                 (setq first (min beg (or first beg))
                       last (max end (+ last (- end beg length)))))))
    (add-hook 'after-change-functions note nil t)
    (unwind-protect (revert-buffer t t t)
      (remove-hook 'after-change-functions note t))
    (when first
      (pyagentd-pulse first last))))

(defun pyagentd-pulse (beg end)
  "Flash the lines from BEG to END, which an agent changed, if visible."
  (when (and pyagentd-pulse-edits (get-buffer-window nil 'visible))
    (save-excursion
      (save-restriction
        (widen)
        (let ((first (progn (goto-char (min beg (point-max)))
                            (line-beginning-position)))
              (last (progn (goto-char (min end (point-max)))
                           (if (and (bolp) (> end beg)) (point)
                             (min (point-max) (1+ (line-end-position)))))))
          (pulse-momentary-highlight-region first last 'pyagentd-pulse))))))

(add-hook 'pyagentd-buffers-changed-functions #'pyagentd-pulse)
(pyagentd-events-register
 'files (lambda (_branch _seq args)
          (when pyagentd-revert-visited
            (run-with-idle-timer
             ;; Idle timers count from when Emacs became idle.
             (if-let ((idle (current-idle-time))) (time-add idle 0.1) 0.1)
             nil #'pyagentd-visited-update (plist-get (car args) :paths)))))

(provide 'pyagentd-buffers)
;;; pyagentd-buffers.el ends here

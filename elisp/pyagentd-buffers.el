;;; pyagentd-buffers.el --- Buffers for the daemon -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What the daemon sees of files that are visited here, and the tools on offer.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)

(declare-function pyagentd-host-name "pyagentd-host")
(declare-function pyagentd-tools--definitions "pyagentd-tools")
(defvar pyagentd-hook-functions)

;;;; What this Emacs shows and can do

;; After each connection the daemon is told what Emacs has for it: its
;; buffers, tools and hooks.  It asks about them by events, and never waits
;; long.  Whoever knows an answer registers here; questions are answered
;; from a timer, one at a time.

(defcustom pyagentd-share-buffers t
  "Non-nil means agents read and change open files in their buffers.
They read unsaved text of files they may read.  What they write to an
open file is changed in its buffer and saved.  Nil means they work on
the files on disk only."
  :type 'boolean
  :set (lambda (symbol value)
         (set-default symbol value)
         (when (fboundp 'pyagentd-offer) (pyagentd-offer)))
  :group 'pyagentd)

(defvar pyagentd-offer--answerers nil
  "Alist of what can be asked and the functions that answer.")

(defvar pyagentd-offer--timer nil
  "Timer that tells the daemon what there is, or nil.")

(defun pyagentd-offer ()
  "Tell the daemon soon, if there is one, what Emacs has for it."
  (unless pyagentd-offer--timer
    (setq pyagentd-offer--timer
          (run-at-time 0 nil #'pyagentd-offer--tell))))

(defun pyagentd-offer--tell ()
  "Tell the daemon what Emacs has for it, and say what it refuses of that."
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
  "Have FUNCTION answer questions about WHAT, a string.
It is called with the facts, a plist, the number of the question, and a
function REPLY that takes the answer, a plist as in `pyagentd-json-of' or
a JSON object.
It may call REPLY later; only the first answer counts.  An error in
FUNCTION is an answer with :error and :text."
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
        (let ((inhibit-quit nil))       ; a save may hang
          (if function
              (funcall function (pyagentd-json-plist (plist-get asked :facts))
                       id reply)
            (funcall reply nil)))
      ((error quit) (funcall reply (pyagentd-offer--failed err))))))

(defun pyagentd-offer--failed (err)
  "Return the answer that says that ERR kept it from being another."
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
    (error                              ; no JSON, or too long for a frame
     (pyagentd-rpc-call-async
      'emacs-answer
      (list :id id :answer (pyagentd-json-of (pyagentd-offer--failed err)))
      :error #'ignore))))

(pyagentd-events-register
 'emacs (lambda (_branch _seq args)     ; soon
          (run-at-time 0 nil #'pyagentd-offer--answer (car args))))

;;;; Files that are open, for agents

;; An agent that reads a file which is open with unsaved changes sees the
;; buffer, and what it writes goes through the buffer: one step of undo,
;; point and markers kept, hooks run, encoding kept, saved.  The daemon has
;; decided that it may before anything is asked here.
;;
;; Buffers that are not the text of their file (pictures, archives, what is
;; decrypted or uncompressed when it is visited) count as not open.

(defvar pyagentd--session-dir)

(defvar pyagentd-buffers-changed-functions nil
  "Functions called after an agent changed a passage of the current buffer.
They get its beginning and end, before the buffer is saved.")

(defconst pyagentd-buffers--largest 1000000
  "How many characters a buffer may have for agents; more would take too long.")

(defun pyagentd-buffers--visiting (path)
  "Return the buffer that visits the file PATH, a true name, or nil."
  (pyagentd-visited--buffer (if pyagentd-host (pyagentd-host-name path) path)))

(defun pyagentd-buffers--odd ()
  "Return why this buffer is not the text of its file, or nil."
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
  "Return why the text of this buffer may not be written, or nil."
  (cond (buffer-read-only "the buffer is read-only")
        ((and (not (file-remote-p buffer-file-name))
              (not (verify-visited-file-modtime (current-buffer))))
         "the file was changed on disk as well")))

(defun pyagentd-buffers--on-look (facts _id reply)
  "Give REPLY the text of the file in FACTS, nil if that on disk is as good."
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
  "Make the change in FACTS and tell REPLY what became of it."
  (let ((path (plist-get facts :path)))
    (funcall reply
             (or (pyagentd-with-live-buffer (pyagentd-buffers--visiting path)
                   (when (equal (plist-get facts :version)
                                (number-to-string (buffer-chars-modified-tick)))
                     (pyagentd-buffers--changed path (plist-get facts :edits))))
                 (list :outcome "outdated")))))

(defun pyagentd-buffers--changed (path edits)
  "Make EDITS in this buffer, which visits PATH, and save it, or change nothing."
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
  "Make EDIT, a vector of beginning and end, from 0, and text."
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
     ;; A link may have been put in the place of the file since.
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
  "Bring the buffers of the files PATHS, which an agent has changed, up to date.
One that the user has changed is not reverted."
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
  "Return the buffer that visits PATH, or nil; makes no names true."
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
  "Read the file of this buffer again, and flash what is another now."
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
  "Flash the lines from BEG to END, which an agent changed, if they are seen."
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
             ;; Within the time that Emacs has been idle already.
             (if-let ((idle (current-idle-time))) (time-add idle 0.1) 0.1)
             nil #'pyagentd-visited-update (plist-get (car args) :paths)))))

(provide 'pyagentd-buffers)
;;; pyagentd-buffers.el ends here

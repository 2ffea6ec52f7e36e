;;; pyagentd-add.el --- Adding to a prompt -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Commands that add regions, files, diagnostics, pictures and earlier prompts
;; to a prompt, that ask about a region, and that have a model rewrite it.

;;; Code:

(require 'project)
(require 'dnd)
(require 'image)
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-sync)
(require 'pyagentd-chat)

;;;; Quoted text and its origin

(defun pyagentd-passage-name (file root)
  "Return the name of FILE for a prompt, relative to the project ROOT if below."
  (if (and root (file-in-directory-p file root))
      (file-relative-name file root)
    (abbreviate-file-name file)))

(defun pyagentd-passage--fenced (text language)
  "Return TEXT as a fenced code block in LANGUAGE, \"\" for none."
  (let ((fence "```"))
    (while (string-search fence text)
      (setq fence (concat fence "`")))
    (concat fence (if (string-empty-p language) "" (concat " " language)) "\n"
            (string-trim-right text "\n+") "\n" fence)))

(defun pyagentd-passage-origin (root)
  "Return a name of this buffer for a prompt; ROOT is that of the project."
  (if buffer-file-name
      (format "`%s`" (pyagentd-passage-name buffer-file-name root))
    (format "the buffer `%s`" (buffer-name))))

;;;; Diagnostics of a buffer

(declare-function flymake-diagnostics "flymake")
(declare-function flymake-diagnostic-beg "flymake" t t)
(declare-function flymake-diagnostic-text "flymake" t t)
(declare-function flymake-diagnostic-type "flymake" t t)
(declare-function flycheck-error-line "ext:flycheck")
(declare-function flycheck-error-level "ext:flycheck")
(declare-function flycheck-error-message "ext:flycheck")

(defvar flycheck-current-errors)

(defun pyagentd-diagnostics-on-p ()
  "Return non-nil if Flymake or Flycheck is enabled in this buffer."
  (or (bound-and-true-p flymake-mode) (bound-and-true-p flycheck-mode)))

(defun pyagentd-diagnostics (&optional beg end)
  "Return the diagnostics between BEG and END, sorted by line.
The default is the whole buffer.  Each is a plist (:line :level :text)."
  (let ((first (line-number-at-pos (or beg (point-min)) t))
        (last (line-number-at-pos (or end (point-max)) t)))
    (sort
     (append
      (when (bound-and-true-p flymake-mode)
        (mapcar (lambda (found)
                  (list :line (line-number-at-pos (flymake-diagnostic-beg found) t)
                        :level (string-remove-prefix
                                ":" (format "%s" (flymake-diagnostic-type found)))
                        :text (flymake-diagnostic-text found)))
                (flymake-diagnostics beg end)))
      (when (bound-and-true-p flycheck-mode)
        (cl-loop for found in flycheck-current-errors
                 for line = (or (flycheck-error-line found) 1)
                 when (<= first line last)
                 collect (list :line line
                               :level (format "%s" (flycheck-error-level found))
                               :text (flycheck-error-message found)))))
     (lambda (a b) (< (plist-get a :line) (plist-get b :line))))))

;;;; Add to a prompt

;; The default session is the last one used in the same project, else the
;; last one used; with a prefix argument, the commands ask.

(declare-function dired-get-marked-files "dired")
(declare-function pyagentd-menu "pyagentd-menu" nil t)
(declare-function pyagentd-session "pyagentd")

(defvar pyagentd-question-history nil
  "History of questions about a region or a buffer.")

(defconst pyagentd-add--large 100000
  "Number of characters above which adding a text asks for confirmation.")

(defun pyagentd-add--label (buffer)
  "Return the name to show for the session in BUFFER."
  (with-current-buffer buffer
    (concat (or pyagentd-status-title pyagentd--session-id)
            (unless (equal pyagentd--branch-name "main")
              (concat "/" pyagentd--branch-name)))))

(defun pyagentd-add--session (&optional ask)
  "Return the buffer of the session to add to; if ASK is non-nil, ask which.
Otherwise prefer a session of this project, and among those a writable one."
  (let* ((buffers (or (seq-filter (lambda (buffer)
                                    (with-current-buffer buffer
                                      (and (bound-and-true-p pyagentd-mode)
                                           (not (buffer-base-buffer))
                                           (not pyagentd-attach-viewer))))
                                  (buffer-list))
                      (user-error
                       "No open session; make one with M-x pyagentd-session")))
         (near (seq-filter (lambda (buffer)
                             (when-let ((root (pyagentd-add--root buffer)))
                               (file-in-directory-p default-directory root)))
                           buffers))
         (meant (or near buffers))
         (session
          (if ask
              (pyagentd-choose "Session: "
                               (mapcar (lambda (buffer)
                                         (cons (pyagentd-add--label buffer)
                                               buffer))
                                       buffers))
            (or (seq-find (lambda (buffer)
                            (not (buffer-local-value 'buffer-read-only buffer)))
                          meant)
                (car meant)))))
    (with-current-buffer session
      (pyagentd-viewing-check "with C-u you choose another session"))
    session))

(defun pyagentd-add--passage (beg end root)
  "Return the text between BEG and END with its origin, relative to ROOT."
  (when (and (> (- end beg) pyagentd-add--large)
             (not (y-or-n-p (format "Add %d kB to the prompt? "
                                    (/ (- end beg) 1000)))))
    (user-error "Nothing was added"))
  (let ((first (line-number-at-pos beg t))
        (last (line-number-at-pos (max beg (1- end)) t))
        (mode (replace-regexp-in-string
               "\\(?:-ts\\)?-mode\\'" "" (symbol-name major-mode))))
    (format "From %s, %s:\n\n%s"
            (pyagentd-passage-origin root)
            (if (= first last) (format "line %d" first)
              (format "lines %d–%d" first last))
            (pyagentd-passage--fenced
             (buffer-substring-no-properties beg end)
             (pcase mode                ; the language, as a fence names it
               ((or "fundamental" "text" "special") "")
               ((or "c++" "c-or-c++") "cpp")
               ((or "js" "js2" "javascript") "javascript")
               (_ mode))))))

;;;; Adding

(defun pyagentd-add-text (text &optional buffer)
  "Add TEXT to the end of the prompt being written in BUFFER, a session.
The default is the current buffer.  Move point there behind TEXT."
  (with-current-buffer (or buffer (current-buffer))
    (pyagentd-viewing-check)
    (save-restriction
      (widen)
      (let ((windows (get-buffer-window-list nil nil t)))
        (goto-char (point-max))
        (skip-chars-backward " \t\n")
        (delete-region (point) (point-max))
        (insert (pyagentd-add--between) text "\n\n")
        (dolist (window windows)
          (set-window-point window (point)))))))

(defun pyagentd-add--between ()
  "Return the separator between the text before point and the added text."
  (cond ((bobp) (if (pyagentd-place-agent-p) "" pyagentd-prompt-prefix))
        ((get-text-property (1- (point)) 'gptel)
         (concat "\n\n" (if (pyagentd-place-agent-p) ""
                          pyagentd-prompt-prefix)))
        ((save-excursion (forward-line 0)
                         (looking-at-p
                          (concat (regexp-quote
                                   (string-trim-right pyagentd-prompt-prefix))
                                  "$")))
         " ")
        (t "\n\n")))

(defun pyagentd-add--done (what session)
  "Say that WHAT was added to the prompt in the buffer SESSION."
  (message "Added %s to %s" what (pyagentd-add--label session)))

(defun pyagentd-add--root (session)
  "Return the root of the project of the buffer SESSION, nil if unknown."
  (buffer-local-value 'pyagentd-attach-root session))

(defun pyagentd-add--region (beg end &optional ask)
  "Add the region, from BEG to END, to the prompt of a session.
If ASK is non-nil, ask which session."
  (interactive (list (region-beginning) (region-end) current-prefix-arg))
  (when (= beg end) (user-error "The region is empty; nothing was added"))
  (let ((session (pyagentd-add--session ask)))
    (pyagentd-add-text
     (pyagentd-add--passage beg end (pyagentd-add--root session)) session)
    (deactivate-mark)
    (pyagentd-add--done (pyagentd-count (count-lines beg end) "line") session)))

(defun pyagentd-add--buffer (&optional ask)
  "Add this buffer to the prompt of a session.
If it visits a file of the session's project, add only the file's name: the
agent reads it.  If ASK is non-nil, ask which session."
  (interactive "P")
  (let* ((session (pyagentd-add--session ask))
         (root (pyagentd-add--root session)))
    (if (and buffer-file-name root (file-in-directory-p buffer-file-name root))
        (pyagentd-add--put-files (list buffer-file-name) session)
      (pyagentd-add-text (pyagentd-add--passage (point-min) (point-max) root)
                         session)
      (pyagentd-add--done (buffer-name) session))))

(defun pyagentd-add--put-files (files session)
  "Add FILES to the prompt in the buffer SESSION."
  (pyagentd-add-text
   (mapconcat (lambda (file) (pyagentd-add--file file session)) files "\n")
   session)
  (pyagentd-add--done (if (cdr files) (format "%d files" (length files))
                        (file-name-nondirectory
                         (directory-file-name (car files))))
                      session))

(defun pyagentd-add--file (file session)
  "Return a reference to FILE for a prompt in the buffer SESSION.
It links to a copy of a picture, PDF or file outside the project, else it is
`@' and the file's name."
  (let ((root (pyagentd-add--root session)))
    (if (or (file-directory-p file)
            (and root (file-in-directory-p file root)
                 (not (string-match-p (image-file-name-regexp) file))
                 (not (string-suffix-p ".pdf" file t))))
        (concat "@" (pyagentd-passage-name file root))
      (with-current-buffer session
        (pyagentd-media-link file)))))

(defun pyagentd-add-read-file (prompt)
  "Read a file name with PROMPT, starting in the session's project if any."
  (let ((root (bound-and-true-p pyagentd-attach-root)))
    (expand-file-name
     (read-file-name prompt (and root (file-name-as-directory root)) nil t))))

(defun pyagentd-add--files (files &optional ask)
  "Add FILES, in Dired the marked ones, to the prompt of a session.
If ASK is non-nil, ask which session."
  (interactive
   (list (if (derived-mode-p 'dired-mode) (dired-get-marked-files)
           (list (pyagentd-add-read-file "File or directory: ")))
         current-prefix-arg))
  (pyagentd-add--put-files files (pyagentd-add--session ask)))

;;;; Diagnostics

(defun pyagentd-add--diagnostics (beg end &optional ask)
  "Add diagnostics of Flymake or Flycheck to the prompt of a session.
Add those between BEG and END: the region, or the whole buffer.  If ASK is
non-nil, ask which session."
  (interactive (list (if (use-region-p) (region-beginning) (point-min))
                     (if (use-region-p) (region-end) (point-max))
                     current-prefix-arg))
  (let ((found (pyagentd-diagnostics beg end))
        (session (pyagentd-add--session ask)))
    (unless found
      (user-error (if (pyagentd-diagnostics-on-p) "No diagnostics here"
                    "Neither Flymake nor Flycheck is enabled here")))
    (pyagentd-add-text
     (format "Diagnostics of %s:\n\n%s"
             (pyagentd-passage-origin (pyagentd-add--root session))
             (mapconcat (lambda (each)
                          (format "- line %d: %s (%s)" (plist-get each :line)
                                  (plist-get each :text)
                                  (plist-get each :level)))
                        found "\n"))
     session)
    (pyagentd-add--done (pyagentd-count (length found) "diagnostic") session)))

;;;###autoload
(defun pyagentd-add (&optional ask what)
  "Add something to the prompt of a session.
Add the region if it is active, or the marked files in Dired; otherwise ask
what to add: this buffer, a file, diagnostics…  With a prefix argument, or
ASK from Lisp, ask which session.  WHAT is the command that adds it, or nil
for this buffer."
  (interactive
   (list current-prefix-arg
         (unless (or (use-region-p) (derived-mode-p 'dired-mode))
           (let ((things
                  (if (bound-and-true-p pyagentd-mode)
                      '(("file or directory" . pyagentd-add--files)
                        ("copy of a file" . pyagentd-add--attach-file)
                        ("picture in the clipboard" . pyagentd-add--picture)
                        ("earlier prompt" . pyagentd-recall-prompt))
                    '(("this buffer" . pyagentd-add--buffer)
                      ("file or directory" . pyagentd-add--files)
                      ("diagnostics" . pyagentd-add--diagnostics)))))
             (pyagentd-choose (format-prompt "Add" (caar things)) things
                              :default (caar things))))))
  (cond (what (call-interactively what))
        ((use-region-p)
         (pyagentd-add--region (region-beginning) (region-end) ask))
        ((derived-mode-p 'dired-mode)
         (pyagentd-add--files (dired-get-marked-files) ask))
        (t (pyagentd-add--buffer ask))))

;;;###autoload
(defun pyagentd-ask (question &optional ask)
  "Send QUESTION about the region, or about this buffer, to a session.
The answer appears there, and your draft there is kept.  With a prefix
argument, or ASK from Lisp, ask which session."
  (interactive (list (read-string "Question: " nil 'pyagentd-question-history)
                     current-prefix-arg))
  (when (string-blank-p question) (user-error "The question is empty"))
  (let* ((session (pyagentd-add--session ask))
         (root (pyagentd-add--root session))
         (about (if (and buffer-file-name (not (use-region-p)))
                    (concat "@" (pyagentd-passage-name buffer-file-name root))
                  (pyagentd-add--passage
                   (if (use-region-p) (region-beginning) (point-min))
                   (if (use-region-p) (region-end) (point-max)) root))))
    (deactivate-mark)
    (display-buffer session)
    (pyagentd-start
     (lambda ()
       (pyagentd-with-live-buffer session
         (save-restriction
           (widen)
           (pyagentd-add-above (concat question "\n\n" about))
           (pyagentd-send)))))))

;;;; Rewriting a region

(defvar pyagentd-rewrite-history nil
  "History of instructions for `pyagentd-rewrite'.")

(defvar-local pyagentd-rewrite--change nil
  "Plist (:overlay :old :new :instruction) of the change in this buffer.
The overlay is on the region; it is deleted with this buffer.")

(defvar pyagentd-rewrite-mode-map
  (pyagentd-keymap
   "y" #'pyagentd-rewrite--accept
   "n" #'pyagentd-rewrite--discard
   "r" #'pyagentd-rewrite--again
   "C-c C-c" #'pyagentd-rewrite--accept
   "C-c C-k" #'pyagentd-rewrite--discard)
  "Keymap of `pyagentd-rewrite-mode'.")

(define-minor-mode pyagentd-rewrite-mode
  "Minor mode of buffers that show a model's rewrite of a region.

\\{pyagentd-rewrite-mode-map}"
  :lighter " Rewrite"
  :interactive nil
  (when pyagentd-rewrite-mode
    ;; `diff-mode' binds letters in read-only buffers.
    (push (cons 'pyagentd-rewrite-mode pyagentd-rewrite-mode-map)
          minor-mode-overriding-map-alist)
    (setq header-line-format
          (substitute-command-keys "\\<pyagentd-rewrite-mode-map>\
 \\[pyagentd-rewrite--accept] accept   \\[pyagentd-rewrite--discard] discard   \
\\[pyagentd-rewrite--again] with another instruction"))))

(defun pyagentd-rewrite (beg end instruction)
  "Have a model rewrite the region, from BEG to END, following INSTRUCTION.
Show the result as a diff, to accept or discard.  Emacs stays usable
meanwhile.  The model is the default of new sessions."
  (interactive
   (progn
     (barf-if-buffer-read-only)
     (unless (use-region-p) (user-error "Select the region to rewrite"))
     (list (region-beginning) (region-end)
           (read-string "Rewrite: " nil 'pyagentd-rewrite-history))))
  (when (string-blank-p instruction) (user-error "The instruction is empty"))
  (let ((overlay (make-overlay beg end nil t nil)))
    (overlay-put overlay 'face 'secondary-selection)
    (overlay-put overlay 'help-echo "A model rewrites this")
    (deactivate-mark)
    (pyagentd-rewrite--ask overlay instruction)))

(defun pyagentd-rewrite--ask (overlay instruction)
  "Ask a model to rewrite the text of OVERLAY, here, following INSTRUCTION."
  (let* ((beg (overlay-start overlay))
         (end (overlay-end overlay))
         (text (buffer-substring-no-properties beg end))
         (failed (lambda (err)
                   (delete-overlay overlay)
                   (pyagentd-later-tell err)))
         (arguments
          (append
           (list :text text :instruction instruction
                 :name (if buffer-file-name
                           (file-name-nondirectory buffer-file-name)
                         (buffer-name))
                 :before (buffer-substring-no-properties
                          (max (point-min) (- beg 2000)) beg)
                 :after (buffer-substring-no-properties
                         end (min (point-max) (+ end 2000))))
           (pyagentd-env))))
    (message "A model rewrites %s…"
             (pyagentd-count (count-lines beg end) "line"))
    (condition-case err
        (pyagentd-start
         (lambda ()
           (pyagentd-rpc-call-async
            'rewrite arguments :timeout 600 :error failed
            :success (lambda (answer)
                       (run-at-time 0 nil #'pyagentd-rewrite--show
                                    overlay text instruction answer))))
         failed)
      ;; The server is not installed, and the user declined to install it.
      ((error quit) (funcall failed err)))))

(defun pyagentd-rewrite--show (overlay old instruction answer)
  "Show ANSWER, the rewrite of OLD, the text of OVERLAY, by INSTRUCTION."
  (cond
   ((not (overlay-buffer overlay))
    (message "The region to rewrite is gone"))
   ((string-empty-p (or (plist-get answer :diff) ""))
    (delete-overlay overlay)
    (message "%s proposes no change" (plist-get answer :model)))
   (t
    (let ((buffer (generate-new-buffer
                   (format "*rewrite: %s*"
                           (buffer-name (overlay-buffer overlay))))))
      (with-current-buffer
          (pyagentd-show-diff buffer (plist-get answer :diff)
                              (lambda (shown)
                                (display-buffer
                                 shown '((display-buffer-reuse-window
                                          display-buffer-pop-up-window)))))
        (setq pyagentd-rewrite--change
              (list :overlay overlay :old old :new (plist-get answer :text)
                    :instruction instruction))
        (pyagentd-rewrite-mode)
        (add-hook 'kill-buffer-hook
                  (lambda ()
                    (when-let ((overlay (plist-get pyagentd-rewrite--change
                                                   :overlay)))
                      (delete-overlay overlay)))
                  nil t))
      (if (eq (window-buffer) (overlay-buffer overlay))
          (select-window (get-buffer-window buffer))
        (message "Rewritten: see %s" (buffer-name buffer)))))))

(defun pyagentd-rewrite--buffer ()
  "Return the buffer with the region of this buffer's change."
  (or (overlay-buffer (plist-get pyagentd-rewrite--change :overlay))
      (user-error "The region to rewrite is gone")))

(defun pyagentd-rewrite--accept ()
  "Replace the region by the model's rewrite."
  (interactive nil pyagentd-rewrite-mode)
  (let* ((change pyagentd-rewrite--change)
         (overlay (plist-get change :overlay)))
    (with-current-buffer (pyagentd-rewrite--buffer)
      (barf-if-buffer-read-only)
      (save-restriction
        (widen)
        (let ((beg (overlay-start overlay)) (end (overlay-end overlay)))
          (unless (equal (buffer-substring-no-properties beg end)
                         (plist-get change :old))
            (user-error
             "The region has changed since; r rewrites it as it is now"))
          (atomic-change-group
            (save-excursion
              (goto-char beg)
              (delete-region beg end)
              (insert (plist-get change :new)))))))
    (quit-window t)))

(defun pyagentd-rewrite--discard ()
  "Discard the rewrite and leave the region unchanged."
  (interactive nil pyagentd-rewrite-mode)
  (quit-window t))

(defun pyagentd-rewrite--again (instruction)
  "Rewrite the region, as it is now, again with INSTRUCTION."
  (interactive
   (list (read-string "Rewrite: " (plist-get pyagentd-rewrite--change
                                             :instruction)
                      'pyagentd-rewrite-history))
   pyagentd-rewrite-mode)
  (let ((buffer (pyagentd-rewrite--buffer))
        (overlay (plist-get pyagentd-rewrite--change :overlay)))
    (setq pyagentd-rewrite--change nil) ; the overlay stays
    (quit-window t)
    (with-current-buffer buffer
      (save-restriction
        (widen)
        (pyagentd-rewrite--ask overlay instruction)))))

(defun pyagentd-add-above (text &optional behind)
  "Insert TEXT as a prompt above the draft, or BEHIND it if that is non-nil.
Move point behind TEXT."
  (pyagentd-viewing-check)
  (deactivate-mark)
  (if-let ((draft (unless behind
                    (save-restriction
                      (widen)
                      (pyagentd-turns--trim (pyagentd-answered-end) (point-max)))))
           (answered (pyagentd-answered-end)))
      (progn
        (delete-region answered (car draft))
        (goto-char answered)
        (insert (if (bobp) "" "\n\n")
                (if (pyagentd-place-agent-p) "" pyagentd-prompt-prefix)
                text)
        (save-excursion (insert "\n\n")))
    (pyagentd-add-text text)
    (skip-chars-backward "\n")
    (delete-region (point) (point-max))))

;;;; Pictures and files

(declare-function yank-media-handler "ext:yank-media")

(defcustom pyagentd-media-show t
  "Non-nil means show pictures of prompts in the buffer."
  :type 'boolean
  :group 'pyagentd)

(defcustom pyagentd-media-height 240
  "Maximum height of pictures in a conversation, in pixels."
  :type 'natnum
  :group 'pyagentd)

(defconst pyagentd-media--largest (* 20 1024 1024)
  "Maximal size in bytes of a file copied into a session.")

(defconst pyagentd-media--largest-sent 12000000
  "Maximal size in bytes of a file sent in a request to another machine.")

(defconst pyagentd-media--types
  '((image/png . "png") (image/jpeg . "jpg") (image/gif . "gif")
    (image/webp . "webp"))
  "Types of pictures that models can see, with their file name extensions.")

(defun pyagentd-media--keep (base extension content)
  "Save CONTENT, bytes, as a file of the session here; return the file's name.
The name is made from BASE, EXTENSION and a hash of CONTENT."
  (let* ((slug (string-trim (replace-regexp-in-string "[^[:alnum:]._-]+" "-" base)
                            "[-.]+" "-+"))
         (name (concat (if (string-empty-p slug) "file"
                         (substring slug 0 (min 60 (length slug))))
                       "-" (substring (secure-hash 'sha1 content) 0 8)
                       (and extension (not (string-empty-p extension))
                            (concat "." extension))))
         (directory (expand-file-name "files" pyagentd--branch-dir))
         (file (expand-file-name name directory))
         (coding-system-for-write 'binary))
    (unless (file-exists-p file)
      (make-directory directory t)
      (with-file-modes #o600
        (write-region content nil file nil 'quiet nil 'excl)))
    (when pyagentd-host                 ; the local file is a copy
      (pyagentd-later 'attach-file
                      (list :branch pyagentd--branch-dir :name name
                            :content (base64-encode-string content t))))
    name))

(defconst pyagentd-media--largest-shown 3750000
  "Maximal size in bytes of a picture or PDF shown to a model.")

(defun pyagentd-media--bytes (file)
  "Return the bytes of FILE; signal a `user-error' if it is too large."
  (let ((size (file-attribute-size (file-attributes (file-truename file)))))
    (when (> size (cond ((or (pyagentd-media--picture-p file)
                             (string-suffix-p ".pdf" file t))
                         pyagentd-media--largest-shown)
                        (pyagentd-host pyagentd-media--largest-sent)
                        (t pyagentd-media--largest)))
      (user-error "%s is too large for a conversation%s: %s"
                  (file-name-nondirectory file)
                  (if pyagentd-host " on another machine" "")
                  (file-size-human-readable size))))
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert-file-contents-literally file)
    (buffer-string)))

(defun pyagentd-media--picture-p (name)
  "Return non-nil if NAME has the extension of a picture that models can see."
  (let ((case-fold-search t))
    (string-match-p "\\.\\(?:png\\|jpe?g\\|gif\\|webp\\)\\'" name)))

(defun pyagentd-media--markdown (label name)
  "Return a Markdown link with LABEL to the file NAME of the session."
  (format "%s[%s](files/%s)" (if (pyagentd-media--picture-p name) "!" "")
          (replace-regexp-in-string "[][\n]" " " label)
          (url-hexify-string name)))

(defun pyagentd-media-link (file)
  "Copy FILE into the session here and return a link to it."
  (unless (file-regular-p file) (user-error "%s is not a file" file))
  (let ((label (file-name-nondirectory file)))
    (pyagentd-media--markdown
     label (pyagentd-media--keep (file-name-base file)
                                 (file-name-extension file)
                                 (pyagentd-media--bytes file)))))

(defun pyagentd-media--here ()
  "Signal a `user-error' unless this buffer is a writable session."
  (unless (bound-and-true-p pyagentd-mode) (user-error "Not a session"))
  (pyagentd-viewing-check))

(defun pyagentd-media--insert (link)
  "Insert LINK at point if that is the user's text, or else into the prompt."
  (if (or (get-text-property (point) 'gptel)
          (and (> (point) (point-min))
               (get-text-property (1- (point)) 'gptel)))
      (pyagentd-add-text link)
    ;; Separate it from a word, or from another dropped link, before it.
    (insert (if (or (bobp) (memq (char-before) '(?\s ?\t ?\n))) "" " ") link)))

(defun pyagentd-add--attach-file (file)
  "Copy FILE into the session here and insert a link to it into the prompt."
  (interactive (list (pyagentd-add-read-file "Attach file: "))
               pyagentd-mode)
  (pyagentd-media--here)
  (pyagentd-media--insert (pyagentd-media-link (expand-file-name file))))

(defun pyagentd-media-drop (uri _action)
  "Insert the file with URI, which was dropped here, into the prompt."
  (let ((file (dnd-get-local-file-name uri t)))
    (if (not (and file (bound-and-true-p pyagentd-mode)))
        (dnd-open-local-file uri 'private)
      (pyagentd-media--here)
      (pyagentd-media--insert (pyagentd-add--file file (current-buffer)))
      'private)))

(defun pyagentd-media--receive (type content)
  "Insert CONTENT, a picture of TYPE, a symbol, into the prompt."
  (pyagentd-media--here)
  (let ((extension (alist-get type pyagentd-media--types)))
    (unless extension (user-error "Models cannot see %s" type))
    (pyagentd-media--insert
     (pyagentd-media--markdown
      "picture" (pyagentd-media--keep "picture" extension content)))))

(defconst pyagentd-media--readers
  '(("wl-paste" "--no-newline" "--type" "image/png")
    ("xclip" "-selection" "clipboard" "-target" "image/png" "-out")
    ("pngpaste" "-"))
  "Commands that print the picture in the clipboard, for terminals.")

(defun pyagentd-add--picture ()
  "Insert the picture in the clipboard into the prompt."
  (interactive nil pyagentd-mode)
  (pyagentd-media--here)
  (if-let ((found
            (and (display-graphic-p)
                 (seq-some
                  (pcase-lambda (`(,type . ,_))
                    (let ((content (ignore-errors
                                     (gui-get-selection 'CLIPBOARD type))))
                      (and (stringp content) (> (length content) 0)
                           (cons type (if (multibyte-string-p content)
                                          (encode-coding-string content 'raw-text)
                                        content)))))
                  pyagentd-media--types))))
      (pyagentd-media--receive (car found) (cdr found))
    (let ((buffer (current-buffer)))
      (pyagentd-run
       "pyagentd-clipboard"
       (or (seq-find (lambda (command) (executable-find (car command)))
                     pyagentd-media--readers)
           (user-error "No picture in the clipboard"))
       (lambda (_status content)
         (if (not (string-prefix-p "\211PNG" content))
             (message "No picture in the clipboard")
           (pyagentd-with-live-buffer buffer
             (pyagentd-media--receive 'image/png content))))
       'binary))))

;;;; Showing pictures

(defconst pyagentd-media--link
  "!\\[[^]\n]*\\](\\(?:\\./\\)?\\(files/[^)\n ]+\\))"
  "Regexp for a link to a picture of the session.")

(defun pyagentd-media--show (beg end &rest _)
  "Show the pictures whose links are between BEG and END."
  (when (and pyagentd-media-show (display-images-p))
    (save-excursion
      (save-match-data
        (goto-char beg)
        (forward-line 0)
        (while (re-search-forward pyagentd-media--link end t)
          (pyagentd-media--draw (match-beginning 0) (match-end 0)
                                (match-string-no-properties 1)))))))

(defun pyagentd-media--draw (beg end link)
  "Show the picture of LINK, which is between BEG and END.
Only links in the user's text count: those in answers are untrusted."
  (when-let (((not (text-property-not-all beg end 'gptel nil)))
             (file (ignore-errors (pyagentd-media--file link)))
             ((not (seq-some (lambda (overlay)
                               (equal file
                                      (overlay-get overlay 'pyagentd-media)))
                             (overlays-in beg end))))
             (image (ignore-errors
                      (let* ((file-name-handler-alist nil)
                             (content (pyagentd-media--bytes file))
                             (type (image-type-from-data content)))
                        (and (assq (intern (format "image/%s" type))
                                   pyagentd-media--types)
                             (create-image content type t
                                           :max-height pyagentd-media-height))))))
    (pyagentd-draw beg end 'pyagentd-media file
                   'modification-hooks
                   (list (lambda (overlay after &rest _)
                           (when after (delete-overlay overlay))))
                   'after-string
                   (concat "\n" (propertize " " 'display image)))))

(defun pyagentd-media--file (link)
  "Return the true name of the session's file that LINK names, or nil.
It must be a regular file below files/ after following symbolic links.  File
name handlers are off, lest a name make Emacs connect to another machine."
  (let* ((file-name-handler-alist nil)
         (branch (file-name-as-directory (file-truename pyagentd--branch-dir)))
         (file (file-truename
                (expand-file-name
                 (decode-coding-string (url-unhex-string link) 'utf-8)
                 branch))))
    (and (string-prefix-p (concat branch "files/") file)
         (file-regular-p file)
         file)))

(pyagentd-display-add #'pyagentd-media--show
                      (lambda ()
                        (dolist (overlay (overlays-in (point-min) (point-max)))
                          (when (overlay-get overlay 'pyagentd-media)
                            (delete-overlay overlay)))))
(add-hook 'pyagentd-session-look-hook
          (lambda ()
            (when (and (bound-and-true-p pyagentd-mode)
                       (fboundp 'yank-media-handler))
              (yank-media-handler "image/.*" #'pyagentd-media--receive))))
(add-to-list 'pyagentd-session-settings
             (cons 'dnd-protocol-alist
                   (cons '("^file:" . pyagentd-media-drop)
                         dnd-protocol-alist)))

;;;; Earlier prompts

(defvar savehist-additional-variables)

(defvar pyagentd-prompt-history nil
  "Sent prompts, latest first, at most `history-length' of them.")

(defconst pyagentd-recall--longest 2000
  "Maximal number of characters of a remembered prompt.")

(defun pyagentd-recall-note (text)
  "Add TEXT, a sent prompt, to `pyagentd-prompt-history'."
  (let ((text (string-trim text)))
    (unless (or (string-empty-p text)
                (> (length text) pyagentd-recall--longest))
      (let ((history-delete-duplicates t))
        (add-to-history 'pyagentd-prompt-history text)))))

(add-hook 'savehist-save-hook
          (lambda ()
            (add-to-list 'savehist-additional-variables
                         'pyagentd-prompt-history)))

(defun pyagentd-recall-prompt ()
  "Insert an earlier prompt, from this or any other session.
Those of this buffer come first, without the draft."
  (interactive nil pyagentd-mode)
  (pyagentd-media--here)
  (let ((prompts
         (save-restriction
           (widen)
           (let* ((here (pyagentd-turns-prompts))
                  (last (car (last here)))
                  (draft (and last (null (next-single-property-change
                                          (car last) 'gptel)))))
             (delete-dups
              (append (nreverse (mapcar (lambda (prompt)
                                          (buffer-substring-no-properties
                                           (car prompt) (cdr prompt)))
                                        (butlast here (if draft 1 0))))
                      (copy-sequence pyagentd-prompt-history)))))))
    (unless prompts (user-error "No earlier prompts"))
    (pyagentd-add-text
     (pyagentd-choose "Earlier prompt: "
                      (mapcar (lambda (prompt)
                                (cons (replace-regexp-in-string
                                       "[ \t]*\n[ \t\n]*" " ⏎ " prompt)
                                      prompt))
                              prompts)
                      :category 'pyagentd-prompt))
    (skip-chars-backward "\n")))

(provide 'pyagentd-add)
;;; pyagentd-add.el ends here

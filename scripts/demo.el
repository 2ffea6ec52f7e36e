;;; demo.el --- The main job, by hand or in batch  -*- lexical-binding: t; -*-

;; Loaded by scripts/demo.sh with the environment that says where sessions live.  `demo-open' is for a person;
;; `demo-first' and `demo-second' do in two batch Emacsen, one after the other, what the person would do.

;;; Code:

(require 'package)
(require 'seq)

(defconst demo-root (expand-file-name ".." (file-name-directory (or load-file-name buffer-file-name))))

(package-initialize)
(add-to-list 'load-path (expand-file-name "elisp" demo-root))
(require 'pyagentd)

(defconst demo-prompt
  "What presets are there in presets/*.md? Read two of them yourself, and have an explorer agent find out which of \
the presets may run commands."
  "What the demo asks.")

(defconst demo-follow-up "Thank you. And how long is README.md?"
  "What the second Emacs asks.")

(defvar demo-seen nil
  "Texts of the agent overlay so far, newest first.")

(defun demo-open ()
  "Open a new session with the prompt typed in."
  (let ((default-directory (file-name-as-directory demo-root)))
    (pyagentd-session
     "Demo" nil nil
     (lambda ()
       (insert demo-prompt)
       (message "%s" (substitute-command-keys "Send it with \\<pyagentd-mode-map>\\[pyagentd-send]; \
C-c C-c goes to what it asks, y allows it, n denies it"))))))

(defun demo-say (format &rest args)
  "Print FORMAT with ARGS on a line of standard output."
  (princ (concat (apply #'format format args) "\n")))

(defun demo-title (title)
  "Print TITLE as the head of a section."
  (demo-say "\n── %s %s" title (make-string (max 0 (- 90 (length title))) ?─)))

(defun demo-watch ()
  "Note every text that an agent's overlay shows."
  (dolist (overlay (overlays-in (point-min) (point-max)))
    (when (overlay-get overlay 'pyagentd-agent)
      (let* ((text (substring-no-properties (or (overlay-get overlay 'after-string) "")))
             (lines (seq-filter (lambda (line) (string-match-p "Task:\\|Waiting\\|Calling" line))
                                (split-string text "\n" t)))
             (shown (string-join (mapcar #'string-trim lines) "  ")))
        (unless (member shown demo-seen)
          (push shown demo-seen)
          (demo-say "overlay: %s" shown))))))

(defun demo-run ()
  "Send the buffer's last prompt, allow what it asks for, and wait until the run has finished."
  (let* ((finished nil)
         (note (lambda (run) (setq finished run)))
         (deadline (+ (float-time) 300)))
    (add-hook 'pyagentd-run-finished-functions note)
    (goto-char (point-max))
    (pyagentd-send)
    (while (and (not finished) (< (float-time) deadline))
      (accept-process-output nil 0.02)
      (demo-watch)
      (when-let ((ask (pyagentd-ask-here))
                 ((not (pyagentd-ask-answered-p ask))))
        (demo-say "asked: %s — allowed" (plist-get ask :action))
        (pyagentd-allow-once)))
    (remove-hook 'pyagentd-run-finished-functions note)
    (unless finished (error "The run did not finish"))
    (unless (equal (format "%s" (plist-get finished :reason)) "done")
      (error "The run ended with %S" finished))))

(defun demo-first ()
  "Make a session, converse, and close Emacs."
  (setq pyagentd-human t)
  (demo-title "Emacs, the first: M-x pyagentd-session, a prompt, C-c RET")
  (let ((default-directory (file-name-as-directory demo-root))
        (opened nil))
    (pyagentd-session "Demo" nil nil (lambda () (setq opened (current-buffer))))
    (while (not opened) (accept-process-output nil 0.02))
    (set-buffer opened))
  (insert demo-prompt)
  (demo-run)
  (save-buffer)
  (demo-title "On disk")
  (let* ((file buffer-file-name)
         (directory (file-name-directory file)))
    (dolist (file (directory-files-recursively directory "\\.\\(md\\|yml\\|jsonl\\)\\'"))
      (demo-say "%7d  %s" (file-attribute-size (file-attributes file)) (file-relative-name file demo-root)))
    (with-temp-file (getenv "DEMO_STATE")
      (prin1 file (current-buffer)))))

(defun demo-second ()
  "Open the file that the first Emacs left, and go on with the conversation."
  (setq pyagentd-human t)
  (demo-title "Emacs, the second: find-file, another prompt")
  (find-file (with-temp-buffer
               (insert-file-contents (getenv "DEMO_STATE"))
               (read (current-buffer))))
  (goto-char (point-max))
  (insert demo-follow-up)
  (demo-run)
  (save-buffer)
  (demo-title "The conversation")
  (princ (buffer-substring-no-properties (point-min) (point-max)))
  (dolist (file (directory-files-recursively (file-name-directory buffer-file-name) "\\`session\\.md\\'"))
    (unless (file-equal-p file buffer-file-name)
      (demo-title (format "The agent's own: %s" (file-relative-name file (file-name-directory buffer-file-name))))
      (princ (with-temp-buffer (insert-file-contents file) (buffer-string)))))
  (demo-say ""))

;;; demo.el ends here

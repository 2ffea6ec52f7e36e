;;; screenshot.el --- A picture of a session  -*- lexical-binding: t; -*-

;; Loaded by scripts/screenshot.sh into a graphical Emacs whose `default-directory' is a project with presets in it.
;; Converses, allows the agent, and writes the frame as PNG to $SCREENSHOT when the overlay shows what the agent calls.

;;; Code:

(require 'package)
(require 'seq)

(package-initialize)
(add-to-list 'load-path (expand-file-name "../elisp" (file-name-directory load-file-name)))
(require 'pyagentd)

(defvar screenshot-prompts
  '("Which presets are there in presets/*.md?"
    "Have an explorer agent find out which presets in presets/*.md may run commands.")
  "Prompts that are still to be sent.")

(defconst screenshot-deadline (+ (float-time) 100)
  "When to give up, a `float-time'.")

(defun screenshot-frame ()
  "Make the frame one of a picture."
  (tool-bar-mode -1)
  (menu-bar-mode -1)
  (scroll-bar-mode -1)
  (blink-cursor-mode -1)
  (load-theme 'modus-operandi t)
  (setq inhibit-message t
        use-dialog-box nil)
  (set-frame-font "DejaVu Sans Mono-11" nil t)
  (modify-frame-parameters nil '((internal-border-width . 8) (left . 0) (top . 0)))
  (set-frame-size nil 1084 744 t))

(defun screenshot-due-p ()
  "Return non-nil if the overlay shows that the agent has called several tools."
  (seq-some (lambda (overlay)
              (and (overlay-get overlay 'pyagentd-agent)
                   (string-match-p "Calling Tools.*(\\+[2-9]" (or (overlay-get overlay 'after-string) ""))))
            (overlays-in (point-min) (point-max))))

(defun screenshot-send ()
  "Send the next prompt."
  (goto-char (point-max))
  (insert (pop screenshot-prompts))
  (pyagentd-send))

(defun screenshot-write ()
  "Write the frame and end Emacs."
  (recenter -2)
  (redisplay t)
  (let ((coding-system-for-write 'binary))
    (write-region (x-export-frames nil 'png) nil (getenv "SCREENSHOT")))
  (save-buffer)
  (kill-emacs 0))

(defun screenshot-give-up ()
  "Say what happened so far and end Emacs."
  (princ (with-current-buffer "*Messages*" (buffer-string)) #'external-debugging-output)
  (kill-emacs 1))

(defun screenshot-step ()
  "Do what is due."
  (with-current-buffer (window-buffer)
    (cond ((> (float-time) screenshot-deadline) (screenshot-give-up))
          ((pyagentd-ask-here) (pyagentd-allow-once))
          ((screenshot-due-p) (screenshot-write))
          ((and screenshot-prompts (not (pyagentd-status-busy-p))) (screenshot-send)))))

(defun screenshot-take ()
  "Converse until there is something to see."
  (screenshot-frame)
  (pyagentd-session "Presets")
  (visual-line-mode)
  (run-at-time 0.05 0.05 #'screenshot-step))

;;; screenshot.el ends here

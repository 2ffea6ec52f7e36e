;;; screenshots.el --- A picture of every screen  -*- lexical-binding: t; -*-

;; Loaded by scripts/screenshots.sh into an Emacs whose `default-directory' is a project.  Goes through a
;; list of steps and writes pictures into $SCREENSHOT_PLACE: of the frame where Emacs is graphical, else of the terminal,
;; as text that a graphical Emacs draws afterwards (`screenshots-draw-terminal').

;;; Code:

(require 'package)
(require 'seq)

(package-initialize)
;; A graphical Emacs beside the installed one would compile with that.
(setq native-comp-deferred-compilation nil
      comp-enable-subr-trampolines nil)
(add-to-list 'load-path (expand-file-name "../elisp" (file-name-directory load-file-name)))
(require 'pyagentd)

(defconst screenshots-theme (getenv "SCREENSHOT_THEME") "What the pictures look like: light, dark or terminal.")

(defconst screenshots-deadline (+ (float-time) 400) "When to give up, a `float-time'.")

(defvar screenshots-seen nil "What `screenshots-once' has done.")

;; A step is (FUNCTION . ARGUMENTS); it is called again and again until it returns non-nil.
(defconst screenshots-steps
  '((screenshots-session "Discounts")
    (screenshots-send "`make test` fails. What is wrong?")
    (screenshots-idle)
    (screenshots-send "Have an explorer check the callers.")
    (screenshots-asked)
    (screenshots-shot "agent-asked")
    (screenshots-show pyagentd-asks)
    (screenshots-shot "asks")
    (screenshots-back)
    (screenshots-show "running")
    (screenshots-has "wait")
    (screenshots-shot "running")
    (screenshots-back)
    (screenshots-allow)
    (screenshots-agent-works)
    (screenshots-shot "session")
    (screenshots-idle)
    (screenshots-send "Mend both, and run the tests again.")
    (screenshots-asked)
    (screenshots-shot "approval")
    (screenshots-do pyagentd-ask--diff)
    (screenshots-shot "diff")
    (screenshots-back)
    (screenshots-allow)
    (screenshots-idle)
    (screenshots-do pyagentd-menu)
    (screenshots-shot "menu")
    (screenshots-do transient-quit-all)
    (screenshots-show pyagentd-agents)
    (screenshots-shot "agents")
    (screenshots-back)
    (screenshots-show pyagentd-inspect)
    (screenshots-shot "inspector")
    (screenshots-back)
    (screenshots-show pyagentd-changes)
    (screenshots-shot "changes")
    (screenshots-back)
    (screenshots-show "audit")
    (screenshots-shot "audit")
    (screenshots-back)
    (screenshots-show pyagentd-sessions)
    (screenshots-has "explorer")
    (screenshots-shot "sessions")
    (screenshots-do pyagentd-search "discounted")
    (screenshots-has "explorer")
    (screenshots-shot "search")
    (screenshots-back)
    (screenshots-show "usage")
    (screenshots-has "[0-9]k")
    (screenshots-shot "usage")
    (screenshots-back)
    (screenshots-show pyagentd-report--usage-charts)
    (screenshots-has "by session")
    (screenshots-shot "charts")
    (screenshots-back)
    (screenshots-show pyagentd-doctor)
    (screenshots-has "confinement")
    (screenshots-shot "doctor")
    (screenshots-back)
    (screenshots-end))
  "What is done, one after the other.")

(defconst screenshots-terminal '("session" "approval" "sessions" "menu")
  "Screens of which there is a picture in a terminal.")

(defvar screenshots-todo screenshots-steps "The steps that are left.")
(defvar screenshots-buffer nil "The session's buffer.")
(defvar screenshots-since nil "When this step began, a `float-time'.")

(defun screenshots-frame ()
  "Make the frame one of a picture."
  (menu-bar-mode -1)
  (blink-cursor-mode -1)
  (setq inhibit-message t inhibit-startup-screen t use-dialog-box nil ring-bell-function #'ignore
        native-comp-async-report-warnings-errors nil)
  (when (display-graphic-p)
    (tool-bar-mode -1)
    (scroll-bar-mode -1)
    (set-frame-font (concat "DejaVu Sans Mono-" (or (getenv "SCREENSHOT_POINTS") "11")) nil t)
    (modify-frame-parameters nil '((internal-border-width . 8) (left . 0) (top . 0)))
    (set-frame-size nil 1084 744 t)
    (when-let ((columns (getenv "SCREENSHOT_COLUMNS")))
      (set-frame-width nil (string-to-number columns))))
  (pcase screenshots-theme
    ("light" (load-theme 'modus-operandi t))
    ("dark" (load-theme 'modus-vivendi t))))

;;;; Steps

(defun screenshots-session (name)
  "Make a session called NAME; return non-nil once it is there."
  (unless screenshots-buffer
    (setq screenshots-buffer 'asked)
    (pyagentd-session name nil nil (lambda ()
                                     (visual-line-mode)
                                     (setq screenshots-buffer (current-buffer)))))
  (bufferp screenshots-buffer))

(defun screenshots-idle ()
  "Return non-nil once nothing is under way; agree to what is asked."
  (with-current-buffer screenshots-buffer
    (if (pyagentd-ask-here) (ignore (ignore-errors (pyagentd-allow-once)))
      (and (not (pyagentd-status-busy-p)) (> (- (float-time) screenshots-since) 1)))))

(defun screenshots-send (text)
  "Send TEXT."
  (with-selected-window (get-buffer-window screenshots-buffer)
    (goto-char (point-max))
    (insert text)
    (pyagentd-send)
    (goto-char (point-max))
    t))

(defun screenshots-asked ()
  "Return non-nil once something is asked, and shown for a moment."
  (with-current-buffer screenshots-buffer
    (and (pyagentd-ask-here) (> (- (float-time) screenshots-since) 1.5))))

(defun screenshots-allow ()
  "Agree to what is asked."
  (with-current-buffer screenshots-buffer (pyagentd-allow-once) t))

(defun screenshots-agent-works ()
  "Return non-nil once the overlay shows that an agent has called several tools."
  (with-current-buffer screenshots-buffer
    (or (not (or (pyagentd-status-busy-p) (< (- (float-time) screenshots-since) 3)))
        (seq-some (lambda (overlay)
                    (and (overlay-get overlay 'pyagentd-agent)
                         (string-match-p "Calling Tools.*(\\+[2-9]" (or (overlay-get overlay 'after-string) ""))))
                  (overlays-in (point-min) (point-max))))))

(defun screenshots-do (command &rest arguments)
  "Call COMMAND in the session's buffer, with ARGUMENTS if there are any."
  (with-current-buffer screenshots-buffer
    (if arguments (apply command arguments) (call-interactively command))
    t))

(defun screenshots-show (command)
  "Call COMMAND from the session's buffer, and fill the frame with what it shows.
A string names a list."
  (switch-to-buffer screenshots-buffer)
  (if (stringp command) (pyagentd-list command) (call-interactively command))
  (delete-other-windows)
  t)

(defun screenshots-has (regexp)
  "Return non-nil once the buffer that is shown has text that matches REGEXP."
  (with-current-buffer (window-buffer)
    (save-excursion
      (goto-char (point-min))
      (re-search-forward regexp nil t))))

(defun screenshots-back ()
  "Show the session again."
  (switch-to-buffer screenshots-buffer)
  (delete-other-windows)
  (goto-char (point-max))
  t)

(defun screenshots-shot (name)
  "Write the picture NAME once the screen had a second to become what it is."
  (when (> (- (float-time) screenshots-since) 1.2)
    (when-let ((window (get-buffer-window screenshots-buffer)))
      (with-selected-window window
        (goto-char (point-max))
        (ignore-errors (recenter -2))))
    (let ((inhibit-message nil)) (message nil))
    (redisplay t)
    (cond ((display-graphic-p) (screenshots-write (format "%s-%s.png" name screenshots-theme)))
          ((member name screenshots-terminal) (screenshots-capture name)))
    t))

(defun screenshots-write (file)
  "Write the frame as FILE."
  (let ((coding-system-for-write 'binary))
    (write-region (x-export-frames nil 'png) nil (expand-file-name file (getenv "SCREENSHOT_PLACE")) nil 'quiet)))

(defun screenshots-capture (name)
  "Write what the terminal shows as text called NAME."
  (send-string-to-terminal "")
  (call-process "tmux" nil (list :file (format "%s.%s.ansi" (getenv "SCREENSHOT_TEXT") name)) nil
                "-S" (getenv "SCREENSHOT_TMUX") "capture-pane" "-N" "-e" "-p" "-t" "e"))

(defun screenshots-end ()
  "End Emacs."
  (unless (display-graphic-p)
    (write-region "" nil (concat (getenv "SCREENSHOT_TEXT") ".done") nil 'quiet))
  (set-buffer-modified-p nil)
  (let ((kill-emacs-query-functions nil) (confirm-kill-processes nil))
    (kill-emacs 0)))

;;;; Going through them

(defun screenshots-give-up (what)
  "Say WHAT was not reached and what happened so far, and end Emacs."
  (princ (format "not reached: %S\n%s" what (with-current-buffer "*Messages*" (buffer-string)))
         #'external-debugging-output)
  (kill-emacs 1))

(defun screenshots-step ()
  "Try the next step."
  (unless screenshots-since (setq screenshots-since (float-time)))
  (pcase-let ((`(,function . ,arguments) (car screenshots-todo)))
    (cond ((> (float-time) screenshots-deadline) (screenshots-give-up (car screenshots-todo)))
          ((condition-case err (apply function arguments)
             (error (screenshots-give-up (list (car screenshots-todo) err))))
           (setq screenshots-since nil)
           (when (getenv "SCREENSHOT_VERBOSE")
             (princ (format "%S\n" (car screenshots-todo)) #'external-debugging-output))
           (pop screenshots-todo)))))

(defun screenshots-take ()
  "Go through all steps."
  (screenshots-frame)
  (run-at-time 0.2 0.05 #'screenshots-step))

;;;; A terminal's picture

(defun screenshots-colour (number)
  "Return the name of the colour NUMBER of a terminal with 256."
  (cond ((< number 16)
         (nth number '("#000000" "#cd3131" "#0dbc79" "#e5e510" "#4a8fe7" "#bc3fbc" "#11a8cd" "#d0d0d0"
                       "#767676" "#f14c4c" "#23d18b" "#f5f543" "#6fb3ff" "#d670d6" "#29b8db" "#ffffff")))
        ((< number 232)
         (let ((cube (- number 16)) (level [0 95 135 175 215 255]))
           (format "#%02x%02x%02x" (aref level (/ cube 36)) (aref level (% (/ cube 6) 6)) (aref level (% cube 6)))))
        (t (let ((grey (+ 8 (* 10 (- number 232))))) (format "#%02x%02x%02x" grey grey grey)))))

(defun screenshots-face (face codes)
  "Return FACE, a plist, after the numbers CODES of an escape sequence."
  (while codes
    (pcase (pop codes)
      (0 (setq face nil))
      (1 (setq face (plist-put face :weight 'bold)))
      (3 (setq face (plist-put face :slant 'italic)))
      (4 (setq face (plist-put face :underline t)))
      (7 (setq face (plist-put face :inverse-video t)))
      (22 (setq face (plist-put face :weight 'normal)))
      (23 (setq face (plist-put face :slant 'normal)))
      (24 (setq face (plist-put face :underline nil)))
      (27 (setq face (plist-put face :inverse-video nil)))
      ((and which (or 38 48))
       (pop codes)
       (setq face (plist-put face (if (= which 38) :foreground :background) (screenshots-colour (pop codes)))))
      (39 (setq face (plist-put face :foreground "#ffffff")))
      (49 (setq face (plist-put face :background "#000000")))
      ((and n (guard (<= 30 n 37))) (setq face (plist-put face :foreground (screenshots-colour (- n 30)))))
      ((and n (guard (<= 40 n 47))) (setq face (plist-put face :background (screenshots-colour (- n 40)))))
      ((and n (guard (<= 90 n 97))) (setq face (plist-put face :foreground (screenshots-colour (- n 82)))))
      ((and n (guard (<= 100 n 107))) (setq face (plist-put face :background (screenshots-colour (- n 92)))))))
  face)

(defun screenshots-colour-buffer ()
  "Turn the escape sequences of the current buffer into faces."
  (goto-char (point-min))
  (let ((start (point)) face)
    (while (re-search-forward "\e\\[\\([0-9;]*\\)m\\|[\C-n\C-o]" nil t)
      (let ((codes (match-string 1)))
        (replace-match "")
        (put-text-property start (point) 'face (copy-sequence face))
        (save-excursion
          (while (search-backward "\n" start t) ; it has no colour on a terminal
            (put-text-property (point) (1+ (point)) 'face nil)))
        (setq start (point))
        (when codes
          (setq face (screenshots-face (copy-sequence face)
                                       (mapcar #'string-to-number (split-string codes ";")))))))))

(defun screenshots-draw-terminal ()
  "Draw the terminal's text in $SCREENSHOT_TEXT."
  (screenshots-frame)
  (load-theme 'modus-vivendi t)
  (let ((file (getenv "SCREENSHOT_TEXT")))
    (string-match "\\.\\([a-z-]+\\)\\.ansi\\'" file)
    (let ((name (match-string 1 file)))
      (switch-to-buffer "terminal")
      (insert-file-contents file)
      (screenshots-colour-buffer)
      (goto-char (point-min))
      (setq mode-line-format nil cursor-type nil truncate-lines t)
      (set-frame-size nil (1+ (string-to-number (getenv "SCREENSHOT_COLUMNS"))) 37)
      (run-at-time 1 nil (lambda ()
                           (message nil)
                           (redisplay t)
                           (screenshots-write (format "%s-terminal.png" name))
                           (kill-emacs 0))))))

;;; screenshots.el ends here

;;; pyagentd-mission.el --- Tasks whose answer has a type -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;; This program is free software; you can redistribute it and/or modify
;; it under the terms of the GNU General Public License as published by
;; the Free Software Foundation, either version 3 of the License, or
;; (at your option) any later version.

;; This program is distributed in the hope that it will be useful,
;; but WITHOUT ANY WARRANTY; without even the implied warranty of
;; MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
;; GNU General Public License for more details.

;; You should have received a copy of the GNU General Public License
;; along with this program.  If not, see <https://www.gnu.org/licenses/>.

;;; Commentary:

;; Starts missions, and shows their traces turn by turn while they grow.

;;; Code:

(require 'outline)
(require 'seq)
(require 'subr-x)
(require 'cl-lib)
(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-daemon)
(require 'pyagentd-session)
(require 'pyagentd-here)
(require 'pyagentd-status)


;;;; Point and folds of a trace that grows

;; A trace of missions is written anew when more has happened.  This file
;; knows which headings were folded and where point was, by the names that
;; the headings have.

(defun pyagentd-mission-fold--headings (function)
  "Call FUNCTION with the name of each heading, point at its beginning."
  (save-excursion
    (goto-char (point-min))
    (while (not (eobp))
      (when-let ((name (get-text-property (point) 'pyagentd-mission-name)))
        (save-excursion (funcall function name)))
      (goto-char (or (next-single-property-change
                      (point) 'pyagentd-mission-name)
                     (point-max))))))

(defun pyagentd-mission-fold-state ()
  "Return the headings by name, each with whether it is folded."
  (let (found)
    (pyagentd-mission-fold--headings
     (lambda (name)
       (push (cons name (and (save-excursion
                               (end-of-line)
                               (not (eobp)) (invisible-p (point)))
                             t))
             found)))
    found))

(defun pyagentd-mission-fold (known)
  "Fold the headings that KNOWN says are folded, and new ones that are long."
  (pyagentd-mission-fold--headings
   (lambda (name)
     (let ((before (assoc name known)))
       (when (if before (cdr before)
               (get-text-property (point) 'pyagentd-mission-long))
         (outline-hide-subtree))))))

(defun pyagentd-mission-fold-place ()
  "Return where point is: (NAME LINES COLUMN), or nil at the end.
The end of a buffer that is shown moves on with what comes."
  (unless (and (eobp) (not (bobp)))
    (save-excursion
      (let ((line (line-number-at-pos)) (column (current-column)) name)
        (beginning-of-line)
        (while (not (or (setq name (get-text-property
                                    (point) 'pyagentd-mission-name))
                        (bobp)))
          (forward-line -1))
        (list name (- line (line-number-at-pos)) column)))))

(defun pyagentd-mission-fold-go-to (place)
  "Go to PLACE, see `pyagentd-mission-fold-place'."
  (goto-char (if place (point-min) (point-max)))
  (pcase place
    (`(,(and name (guard name)) ,lines ,column)
     (pyagentd-mission-fold--headings
      (lambda (other)
        (when (equal name other)
          (setq place (point)))))
     (when (integerp place)
       (goto-char place)
       (forward-line lines)
       (move-to-column column))))
  (dolist (window (get-buffer-window-list nil nil t))
    (set-window-point window (point))))

;;;; The trace of missions as text

;; What the daemon reports of missions, put into the current buffer as an
;; outline.  A heading has the text property `pyagentd-mission-name', which
;; is the same whenever the report is shown, `pyagentd-mission-long' where
;; it is folded at first, and `pyagentd-mission-branch' on a call that
;; started an agent.

(declare-function clojure-mode "ext:clojure-mode")

(defface pyagentd-mission-said '((t :inherit font-lock-comment-face))
  "Face of the model's text around its programs."
  :group 'pyagentd)

(defun pyagentd-mission-text--heading (level name text &rest properties)
  "Insert a heading of LEVEL called NAME with TEXT; PROPERTIES are of its line."
  (let ((start (point)))
    (insert (make-string level ?*) " " text "\n")
    (add-text-properties
     start (point) (append (list 'pyagentd-mission-name name) properties))
    (add-face-text-property start (point)
                            (intern (format "outline-%d" level)) t)))

(defun pyagentd-mission-text--block (text &optional face)
  "Insert TEXT indented, in FACE if that is non-nil.
No line of it is taken for a heading."
  (let ((start (point)))
    (insert (replace-regexp-in-string "^" "    " (string-trim-right text))
            "\n")
    (when face
      (add-face-text-property start (point) face t))))

;;;; Words

(defun pyagentd-mission-text--line (text width)
  "Return TEXT on one line of at most WIDTH columns."
  (truncate-string-to-width
   (string-trim (replace-regexp-in-string "[ \t\n]+" " " text))
   width nil nil "…"))

(defun pyagentd-mission-text--took (ms)
  "Return MS, milliseconds or nil, in words, after a space."
  (cond ((not (numberp ms)) "")
        ((< ms 1000) (format "  %d ms" ms))
        (t (format "  %.1f s" (/ ms 1000.0)))))

(defun pyagentd-mission-text--tokens (usage)
  "Return the tokens in USAGE, an alist or nil, in words."
  (if (null usage) ""
    (format "  %s in, %s out"
            (+ (or (alist-get 'input usage) 0)
               (or (alist-get 'cache_read usage) 0)
               (or (alist-get 'cache_write usage) 0))
            (+ (or (alist-get 'output usage) 0)
               (or (alist-get 'reasoning usage) 0)))))

(defun pyagentd-mission-text--state (state)
  "Return STATE, a string, with its face."
  (propertize state 'face (pcase state
                            ("done" 'success)
                            ((or "running" "restart") 'warning)
                            (_ 'error))))

;;;; Programs

(defun pyagentd-mission-text-program (text)
  "Return TEXT, a program, with the faces of a Lisp."
  (with-temp-buffer
    (insert text)
    (delay-mode-hooks
      (if (fboundp 'clojure-mode)
          (clojure-mode)
        (lisp-data-mode)))
    (font-lock-add-keywords
     nil
     '((":[[:alpha:]][-[:alnum:]_?!*+/.]*" . font-lock-constant-face)
       ("\\_<\\(?:ctx\\|memory\\)/[^][ \t\n(){},]+"
        . font-lock-variable-name-face)
       ("(\\([[:alpha:]][-[:alnum:]/?!*]*\\|->>?\\)"
        1 font-lock-keyword-face)))
    (font-lock-ensure)
    (buffer-string)))

;;;; Parts

(defun pyagentd-mission-text--call (call name)
  "Insert CALL of a tool, an alist, under the name NAME."
  (let ((branch (alist-get 'branch call))
        (failed (equal "failed" (alist-get 'state call))))
    (pyagentd-mission-text--heading
     3 name
     (concat "→ " (propertize (alist-get 'name call) 'face 'bold) " "
             (pyagentd-mission-text--line
              (mapconcat (lambda (pair) (format "%s" (cdr pair)))
                         (alist-get 'input call) " ")
              50)
             (cond (failed (propertize "  failed" 'face 'error))
                   ((equal "running" (alist-get 'state call))
                    (propertize "  running" 'face 'warning))
                   (t ""))
             (pyagentd-mission-text--took (alist-get 'duration_ms call)))
     'pyagentd-mission-long t
     'pyagentd-mission-branch branch
     'help-echo (if branch "RET: what it did" "TAB: its result"))
    (pcase-dolist (`(,key . ,value) (alist-get 'input call))
      (pyagentd-mission-text--block (format "%s: %s" key value) 'shadow))
    (when-let ((result (alist-get 'result call)))
      (pyagentd-mission-text--block result (and failed 'error)))))

(defun pyagentd-mission-text--turn (turn name)
  "Insert TURN, an alist, under the name NAME."
  (let ((number (alist-get 'number turn))
        (failed (equal "failed" (alist-get 'state turn))))
    (pyagentd-mission-text--heading
     2 name
     (concat (format "Turn %s" number)
             (pyagentd-mission-text--tokens (alist-get 'usage turn))
             (pyagentd-mission-text--took (alist-get 'duration_ms turn))
             (if failed (propertize "  failed" 'face 'error) "")))
    (when-let ((said (alist-get 'said turn)))
      (unless (string-empty-p said)
        (pyagentd-mission-text--block said 'pyagentd-mission-said)))
    (if-let ((program (alist-get 'program turn)))
        (pyagentd-mission-text--block (pyagentd-mission-text-program program))
      (pyagentd-mission-text--block "(no program)" 'shadow))
    (seq-do-indexed
     (lambda (call index)
       (pyagentd-mission-text--call call (format "%s/%d" name index)))
     (alist-get 'calls turn))
    (when-let ((result (alist-get 'result turn)))
      (pyagentd-mission-text--heading
       3 (concat name "/=")
       (concat "= " (pyagentd-mission-text--line result 60))
       'pyagentd-mission-long t)
      (pyagentd-mission-text--block result (and failed 'error)))))

(defun pyagentd-mission-text--mission (mission)
  "Insert MISSION, an alist."
  (let ((name (alist-get 'run mission))
        (state (alist-get 'state mission))
        (fail (alist-get 'fail mission))
        (prompt (or (alist-get 'prompt mission) "")))
    (pyagentd-mission-text--heading
     1 name (concat (pyagentd-mission-text--state state) "  "
                    (pyagentd-mission-text--line prompt 66)))
    (unless (equal prompt (pyagentd-mission-text--line prompt 66))
      (pyagentd-mission-text--block prompt))
    (pyagentd-mission-text--block
     (concat (or (alist-get 'signature mission) "")
             (if-let ((tools (alist-get 'tools mission)))
                 (concat "\ntools: " (string-join tools ", ")) "")
             (if-let ((inputs (alist-get 'inputs mission)))
                 (concat "\nctx: " (string-join inputs ", ")) ""))
     'shadow)
    (dolist (turn (alist-get 'turns mission))
      (pyagentd-mission-text--turn
       turn (format "%s/%s" name (alist-get 'number turn))))
    (when (alist-get 'ok mission)
      (pyagentd-mission-text--heading 2 (concat name "/value") "Value")
      (pyagentd-mission-text--block (or (alist-get 'text mission) "null")))
    (when fail
      (pyagentd-mission-text--heading 2 (concat name "/fail") "Failed")
      (pyagentd-mission-text--block
       (concat (if-let ((reason (alist-get 'reason fail)))
                   (concat reason ": ") "")
               (or (alist-get 'message fail) ""))
       'error))
    (when (alist-get 'can_resume mission)
      (pyagentd-mission-text--block "c goes on with it" 'shadow))))

(defun pyagentd-mission-text--ask (ask)
  "Insert ASK, an alist, a question that waits for the user."
  (pyagentd-mission-text--heading
   2 (alist-get 'id ask)
   (concat (propertize "Waiting for your approval: " 'face 'warning)
           (alist-get 'tool ask) " "
           (pyagentd-mission-text--line (or (alist-get 'detail ask) "") 60)))
  (when-let ((reason (alist-get 'reason ask)))
    (pyagentd-mission-text--block reason 'shadow))
  (pyagentd-mission-text--block "a answers" 'shadow))

(defun pyagentd-mission-text-insert (report)
  "Insert what REPORT, an alist, says of all missions of a session."
  (let ((missions (alist-get 'missions report)))
    (if missions
        (mapc #'pyagentd-mission-text--mission missions)
      (insert (propertize "No missions yet.\n" 'face 'shadow)))
    (mapc #'pyagentd-mission-text--ask (alist-get 'asks report))))

;;;; Missions, turn by turn

;; An outline that grows while a mission runs: turns, programs, the tools
;; that they called, what came of it, tokens and time, and the value.  It is
;; looked at again when the status of the session has changed.  Looking at a
;; trace never runs anything again.

(declare-function pyagentd-asks "pyagentd-views")

(defvar-local pyagentd-mission-trace--branch nil
  "The branch whose missions are shown, as on the wire.")
(defvar-local pyagentd-mission-trace--shown nil
  "The JSON that is shown, nil before any has come.")
(defvar-local pyagentd-mission-trace--report nil
  "What that JSON says, as alists and lists.")
(defvar-local pyagentd-mission-trace--timer nil
  "Timer that looks again, or nil.")
(defvar-local pyagentd-mission-trace--asking nil
  "Non-nil while an answer of the daemon is awaited.")
(defvar-local pyagentd-mission-trace--stale nil
  "Non-nil if more has happened than was asked for.")

(defvar pyagentd-mission-trace--buffers nil
  "The buffers that show missions.")

(defvar pyagentd-mission-trace--pause 0.3
  "Seconds to wait for more to happen before a mission is looked at again.")

;;;; The daemon

(defun pyagentd-mission-trace--look ()
  "Ask the daemon what there is to show in this buffer."
  (unless pyagentd-mission-trace--asking
    (setq pyagentd-mission-trace--asking t
          pyagentd-mission-trace--stale nil)
    (pyagentd-later-here
     'mission-trace (list :branch pyagentd-mission-trace--branch)
     (lambda (answer)
       (setq pyagentd-mission-trace--asking nil)
       (pyagentd-mission-trace--show (pyagentd-json-text answer))
       (pyagentd-mission-trace--follow)
       (pyagentd-mission-trace--soon))
     nil
     (lambda (err)
       (setq pyagentd-mission-trace--asking nil)
       (pyagentd-later-tell err)))))

(defun pyagentd-mission-trace--running-p ()
  "Return non-nil if the last mission shown here goes on."
  (equal "running" (alist-get 'state (pyagentd-mission-trace--last))))

(defun pyagentd-mission-trace--last ()
  "Return the last mission shown here, an alist, or nil."
  (car (last (alist-get 'missions pyagentd-mission-trace--report))))

;;;; What happens

(defun pyagentd-mission-trace--follow ()
  "Have the session whose mission runs here open: what happens is told there."
  (let ((file (pyagentd-place-conversation pyagentd-mission-trace--branch)))
    (when (and (or (pyagentd-mission-trace--running-p)
                   (null (alist-get 'missions pyagentd-mission-trace--report)))
               (not (pyagentd-place-buffer pyagentd-mission-trace--branch))
               (file-exists-p file))
      (find-file-noselect file))))

(defun pyagentd-mission-trace--on-status ()
  "Look again in a moment where missions of this session are shown."
  (dolist (buffer pyagentd-mission-trace--buffers)
    (when (and (buffer-live-p buffer)
               (equal pyagentd--branch-dir
                      (buffer-local-value 'pyagentd-mission-trace--branch
                                          buffer)))
      (with-current-buffer buffer
        (setq pyagentd-mission-trace--stale t)
        (pyagentd-mission-trace--soon)))))

(defun pyagentd-mission-trace--soon (&rest _)
  "Look again in a moment if more has happened and somebody sees it."
  (when (and pyagentd-mission-trace--stale
             (null pyagentd-mission-trace--timer)
             (get-buffer-window nil t))
    (setq pyagentd-mission-trace--timer
          (run-at-time pyagentd-mission-trace--pause nil
                       #'pyagentd-mission-trace--on-timer (current-buffer)))))

(defun pyagentd-mission-trace--on-timer (buffer)
  "Look again in BUFFER."
  (pyagentd-later-in buffer
    (setq pyagentd-mission-trace--timer nil)
    (when (pyagentd-rpc-connected-p)
      (pyagentd-mission-trace--look))))

(defun pyagentd-mission-trace--on-window (window)
  "Look again in WINDOW if it shows missions that went on unseen."
  (with-current-buffer (window-buffer window)
    (pyagentd-mission-trace--soon)))

(add-hook 'pyagentd-status-changed-hook #'pyagentd-mission-trace--on-status)

;;;; The outline

(defun pyagentd-mission-trace--show (text)
  "Show the report in TEXT, JSON; point and what is folded stay."
  (unless (equal text pyagentd-mission-trace--shown)
    (let ((folded (pyagentd-mission-fold-state))
          (place (pyagentd-mission-fold-place))
          (inhibit-read-only t))
      (setq pyagentd-mission-trace--shown text
            pyagentd-mission-trace--report (pyagentd-json-parse text))
      (erase-buffer)
      (pyagentd-mission-text-insert pyagentd-mission-trace--report)
      (pyagentd-mission-fold folded)
      (pyagentd-mission-fold-go-to place)
      (set-buffer-modified-p nil)))
  (force-mode-line-update))

;;;; Commands

(defun pyagentd-mission-visit ()
  "Go to what is at point: an agent's trace, else the conversation.
Nothing is run again."
  (interactive nil pyagentd-mission-mode)
  (if-let ((branch (get-text-property (point) 'pyagentd-mission-branch)))
      (pyagentd-mission-trace-open branch (file-name-nondirectory branch))
    (find-file-other-window
     (or (alist-get 'file (alist-get 'session pyagentd-mission-trace--report))
         (user-error "Nothing is known of this session yet")))))

(defun pyagentd-mission-copy ()
  "Copy the value of the last mission, as JSON."
  (interactive nil pyagentd-mission-mode)
  (kill-new (or (alist-get 'text (pyagentd-mission-trace--last))
                (user-error "There is no value")))
  (message "Copied"))

(defun pyagentd-mission-stop ()
  "Stop the mission that runs here; what it did is kept."
  (interactive nil pyagentd-mission-mode)
  (unless (pyagentd-mission-trace--running-p)
    (user-error "No mission runs here"))
  (pyagentd-later-here 'abort (list :branch pyagentd-mission-trace--branch)
                       #'pyagentd-mission-trace--look-anew))

(defun pyagentd-mission-resume ()
  "Go on with a mission that was stopped, behind its last program."
  (interactive nil pyagentd-mission-mode)
  (pyagentd-later-here 'mission-resume
                       (append (list :branch pyagentd-mission-trace--branch)
                               (pyagentd-mission-trace-caller))
                       #'pyagentd-mission-trace--look-anew))

(defun pyagentd-mission-trace--look-anew (&rest _)
  "Look again, whether or not an answer is awaited."
  (setq pyagentd-mission-trace--asking nil)
  (pyagentd-mission-trace--look))

;;;; The mode

(defvar pyagentd-mission-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-mission-visit)
    (define-key map (kbd "TAB") #'outline-cycle)
    (define-key map (kbd "<backtab>") #'outline-cycle-buffer)
    (define-key map "n" #'outline-next-visible-heading)
    (define-key map "p" #'outline-previous-visible-heading)
    (define-key map "a" #'pyagentd-asks)
    (define-key map "c" #'pyagentd-mission-resume)
    (define-key map "k" #'pyagentd-mission-stop)
    (define-key map "w" #'pyagentd-mission-copy)
    map)
  "Keymap of `pyagentd-mission-mode'.")

(define-derived-mode pyagentd-mission-mode special-mode "Mission"
  "Major mode for the trace of missions.

\\{pyagentd-mission-mode-map}"
  (setq-local outline-regexp "\\*+ ")
  (setq-local mode-line-process
              '(:eval (and (pyagentd-mission-trace--running-p) " running")))
  (outline-minor-mode)
  (cl-pushnew (current-buffer) pyagentd-mission-trace--buffers)
  (add-hook 'kill-buffer-hook #'pyagentd-mission-trace--forget nil t)
  (add-hook 'window-buffer-change-functions #'pyagentd-mission-trace--on-window
            nil t)
  (setq-local revert-buffer-function #'pyagentd-mission-trace--look-anew))

(defun pyagentd-mission-trace--forget ()
  "Look no more."
  (setq pyagentd-mission-trace--buffers
        (delq (current-buffer) pyagentd-mission-trace--buffers))
  (when (timerp pyagentd-mission-trace--timer)
    (cancel-timer pyagentd-mission-trace--timer)))

(defun pyagentd-mission-trace-open (branch name)
  "Show the missions of BRANCH, a session called NAME; return the buffer."
  (let ((buffer (get-buffer-create (format "*pyagentd mission %s*" name))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-mission-mode)
        (pyagentd-mission-mode))
      (setq pyagentd-mission-trace--branch branch)
      (revert-buffer))
    (pop-to-buffer buffer)
    buffer))

(defun pyagentd-mission-trace-caller ()
  "Return the plist with the environment and the key of whoever asks."
  (list :env (pyagentd-env-variables) :key (pyagentd-env-key)))

(defun pyagentd-mission-trace ()
  "Show the missions of the session here, turn by turn."
  (interactive)
  (let ((here (pyagentd-here)))
    (pyagentd-mission-trace-open (plist-get here :branch)
                            (plist-get here :session-id))))

;;;; Tasks whose answer has a type

;; A mission is a task whose answer has a type; a model fulfils it with
;; small programs.  `pyagentd-mission' starts one and shows its trace
;; (`pyagentd-mission-trace').

(declare-function pyagentd--project-root "pyagentd")

(defvar pyagentd-mission-history nil
  "Tasks that were given.")
(defvar pyagentd-mission-signature-history nil
  "Signatures that were given.")

(defun pyagentd-mission--read-signature (then &optional prompt initial)
  "Ask for a signature until it is one; call THEN with it, or nil for none.
PROMPT and INITIAL are what is asked, and what stands there already."
  (let ((given (string-trim
                (read-string
                 (or prompt "Returns (signature, empty for anything): ")
                 initial 'pyagentd-mission-signature-history)))
        (again (pyagentd-later-back #'pyagentd-mission--read-signature))
        (keys num-input-keys))
    (if (string-empty-p given) (funcall then nil)
      (pyagentd-later-here
       'mission-check (list :signature given)
       (lambda (_) (funcall then given))
       nil
       (lambda (err)
         (pyagentd-later-when-free
          again keys then
          (format "%s\nReturns (signature): " (pyagentd-error-text err))
          given))))))

(defun pyagentd-mission--read-tools (then)
  "Ask for tools; call THEN with their names, or nil for the preset's."
  (pyagentd-later-asking
   'mission-tools nil
   (lambda (answer)
     (funcall then (completing-read-multiple
                    "Tools (comma between them, empty for the usual ones): "
                    (plist-get answer :tools) nil t)))))

(defun pyagentd-mission--read (tools)
  "Ask for a mission, also for its tools if TOOLS is non-nil, and begin it."
  (let ((prompt (read-string "Mission (the task): " nil 'pyagentd-mission-history)))
    (when (string-blank-p prompt)
      (user-error "The task is empty"))
    (pyagentd-mission--read-signature
     (lambda (signature)
       (if (not tools) (pyagentd-mission prompt signature)
         (pyagentd-mission--read-tools
          (lambda (tools) (pyagentd-mission prompt signature tools))))))))

;;;###autoload
(defun pyagentd-mission (&optional prompt signature tools)
  "Have a model carry out PROMPT with programs, and show its trace.
SIGNATURE, a string, is what comes back, such as \"{count :int}\"; nil
stands for anything.  TOOLS are the names of the tools that its programs
may call, nil for the usual ones.  Without a PROMPT it is asked for with
its signature, and with a prefix argument its tools.  The mission is a
session of the project here."
  (interactive)
  (require 'pyagentd)
  (cond ((null prompt) (pyagentd-mission--read current-prefix-arg))
        ((string-blank-p prompt) (user-error "The task is empty"))
        (t (let* ((keys num-input-keys)
                  (begun (lambda (begun)
                           (pyagentd-later-when-free #'pyagentd-mission--begun
                                                     keys begun))))
             (pyagentd-later
              'mission
              (append (list :prompt prompt :signature signature :tools tools
                            :root (pyagentd--project-root))
                      (pyagentd-mission-trace-caller))
              ;; It costs money however late it begins.
              begun nil nil begun)))))

(defun pyagentd-mission--begun (begun)
  "Show the mission that BEGUN, an answer of the daemon, tells of."
  ;; Its buffer is where questions of the mission show.
  (find-file-noselect (plist-get begun :file))
  (pyagentd-mission-trace-open (plist-get begun :branch)
                          (plist-get begun :session-id)))

(provide 'pyagentd-mission)
;;; pyagentd-mission.el ends here

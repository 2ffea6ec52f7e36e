;;; pyagentd-mission.el --- Typed missions and their trace -*- lexical-binding: t; -*-

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

;; A mission is a task whose answer has a type; a model fulfils it with
;; small programs.  `pyagentd-mission' starts one and shows its trace, an
;; outline that grows while the mission runs: turns, programs, the tools
;; that they called, what came of it, tokens and time, and the value.
;; Looking at a trace never runs anything again.

;;; Code:

(require 'outline)
(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-env)
(require 'pyagentd-rpc)
(require 'pyagentd-here)
(require 'pyagentd-json)
(require 'pyagentd-mission-text)

(declare-function pyagentd--project-root "pyagentd")
(declare-function pyagentd-asks "pyagentd-asks")

(defvar-local pyagentd-mission--branch nil
  "The branch whose missions are shown, as on the wire.")
(defvar-local pyagentd-mission--shown nil
  "The JSON that is shown, nil before any has come.")
(defvar-local pyagentd-mission--report nil
  "What that JSON says, as alists and lists.")
(defvar-local pyagentd-mission--timer nil
  "Timer that looks again while a mission runs, else nil.")
(defvar-local pyagentd-mission--asking nil
  "Non-nil while an answer of the daemon is awaited.")

(defconst pyagentd-mission--pause 0.5
  "Seconds after which a mission that runs is looked at again.")

(defvar pyagentd-mission-history nil
  "Tasks that were given.")
(defvar pyagentd-mission-signature-history nil
  "Signatures that were given.")

;;;; The daemon

(defmacro pyagentd-mission--in (buffer &rest body)
  "Evaluate BODY in BUFFER if that still lives."
  (declare (indent 1) (debug t))
  `(when (buffer-live-p ,buffer)
     (with-current-buffer ,buffer ,@body)))

(defun pyagentd-mission--look ()
  "Ask the daemon what there is to show in this buffer."
  (unless pyagentd-mission--asking
    (setq pyagentd-mission--asking t)
    (let ((buffer (current-buffer)))
      (pyagentd-rpc-call-async
       'mission-trace (list :branch pyagentd-mission--branch)
       :timeout pyagentd-call-timeout
       :success (lambda (answer)
                  (pyagentd-mission--in buffer
                    (setq pyagentd-mission--asking nil)
                    (pyagentd-mission--show (pyagentd-json-text answer))))
       :error (lambda (err)
                (pyagentd-mission--in buffer
                  (setq pyagentd-mission--asking nil))
                (message "%s" (pyagentd-error-text err)))))))

(defun pyagentd-mission--running-p ()
  "Return non-nil if the last mission shown here goes on."
  (equal "running" (alist-get 'state (pyagentd-mission--last))))

(defun pyagentd-mission--last ()
  "Return the last mission shown here, an alist, or nil."
  (car (last (alist-get 'missions pyagentd-mission--report))))

(defun pyagentd-mission--again ()
  "Look again in a moment if there is more to come."
  (when (timerp pyagentd-mission--timer)
    (cancel-timer pyagentd-mission--timer))
  (setq pyagentd-mission--timer
        (when (or (pyagentd-mission--running-p)
                  (null (alist-get 'missions pyagentd-mission--report)))
          (run-at-time pyagentd-mission--pause nil
                       #'pyagentd-mission--on-timer (current-buffer)))))

(defun pyagentd-mission--on-timer (buffer)
  "Look again in BUFFER, or later when nobody sees it."
  (pyagentd-mission--in buffer
    (setq pyagentd-mission--timer nil)
    (cond ((not (pyagentd-rpc-connected-p)))
          ((get-buffer-window buffer t) (pyagentd-mission--look))
          (t (pyagentd-mission--again)))))

;;;; The outline

(defun pyagentd-mission--show (text)
  "Show the report in TEXT, JSON; point and what is folded stay."
  (unless (equal text pyagentd-mission--shown)
    (let ((folded (pyagentd-mission--folded))
          (place (pyagentd-mission--place))
          (inhibit-read-only t))
      (setq pyagentd-mission--shown text
            pyagentd-mission--report (pyagentd-json-parse text))
      (erase-buffer)
      (pyagentd-mission-text-insert pyagentd-mission--report)
      (pyagentd-mission--fold folded)
      (pyagentd-mission--go-to place)
      (set-buffer-modified-p nil)))
  (force-mode-line-update)
  (pyagentd-mission--again))

(defun pyagentd-mission--headings (function)
  "Call FUNCTION with the name of each heading, point at its beginning."
  (save-excursion
    (goto-char (point-min))
    (while (not (eobp))
      (when-let ((name (get-text-property (point) 'pyagentd-mission-name)))
        (save-excursion (funcall function name)))
      (goto-char (or (next-single-property-change
                      (point) 'pyagentd-mission-name)
                     (point-max))))))

(defun pyagentd-mission--folded ()
  "Return the headings by name, each with whether it is folded."
  (let (found)
    (pyagentd-mission--headings
     (lambda (name)
       (push (cons name (and (save-excursion
                               (end-of-line)
                               (not (eobp)) (invisible-p (point)))
                             t))
             found)))
    found))

(defun pyagentd-mission--fold (known)
  "Fold the headings that KNOWN says are folded, and new ones that are long."
  (pyagentd-mission--headings
   (lambda (name)
     (let ((before (assoc name known)))
       (when (if before (cdr before)
               (get-text-property (point) 'pyagentd-mission-long))
         (outline-hide-subtree))))))

(defun pyagentd-mission--place ()
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

(defun pyagentd-mission--go-to (place)
  "Go to PLACE, see `pyagentd-mission--place'."
  (goto-char (if place (point-min) (point-max)))
  (pcase place
    (`(,(and name (guard name)) ,lines ,column)
     (pyagentd-mission--headings
      (lambda (other)
        (when (equal name other)
          (setq place (point)))))
     (when (integerp place)
       (goto-char place)
       (forward-line lines)
       (move-to-column column))))
  (dolist (window (get-buffer-window-list nil nil t))
    (set-window-point window (point))))

;;;; Commands

(defun pyagentd-mission-visit ()
  "Go to what is at point: an agent's trace, else the conversation.
Nothing is run again."
  (interactive nil pyagentd-mission-mode)
  (if-let ((branch (get-text-property (point) 'pyagentd-mission-branch)))
      (pyagentd-mission--open branch (file-name-nondirectory branch))
    (find-file-other-window
     (or (alist-get 'file (alist-get 'session pyagentd-mission--report))
         (user-error "Nothing is known of this session yet")))))

(defun pyagentd-mission-copy ()
  "Copy the value of the last mission, as JSON."
  (interactive nil pyagentd-mission-mode)
  (kill-new (or (alist-get 'text (pyagentd-mission--last))
                (user-error "There is no value")))
  (message "Copied"))

(defun pyagentd-mission-stop ()
  "Stop the mission that runs here; what it did is kept."
  (interactive nil pyagentd-mission-mode)
  (unless (pyagentd-mission--running-p)
    (user-error "No mission runs here"))
  (pyagentd-rpc-call 'abort (list :branch pyagentd-mission--branch))
  (pyagentd-mission--look))

(defun pyagentd-mission-resume ()
  "Go on with a mission that was stopped, behind its last program."
  (interactive nil pyagentd-mission-mode)
  (pyagentd-rpc-call 'mission-resume
                     (append (list :branch pyagentd-mission--branch)
                             (pyagentd-mission--caller)))
  (pyagentd-mission--look))

(defun pyagentd-mission--revert (&rest _)
  "Look again."
  (pyagentd-rpc-connect t)
  (setq pyagentd-mission--asking nil)
  (pyagentd-mission--look))

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
              '(:eval (and (pyagentd-mission--running-p) " running")))
  (outline-minor-mode)
  (add-hook 'kill-buffer-hook #'pyagentd-mission--forget nil t)
  (setq-local revert-buffer-function #'pyagentd-mission--revert))

(defun pyagentd-mission--forget ()
  "Look no more."
  (when (timerp pyagentd-mission--timer)
    (cancel-timer pyagentd-mission--timer)))

(defun pyagentd-mission--open (branch name)
  "Show the missions of BRANCH, a session called NAME; return the buffer."
  (let ((buffer (get-buffer-create (format "*pyagentd mission %s*" name))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-mission-mode)
        (pyagentd-mission-mode))
      (setq pyagentd-mission--branch branch)
      (revert-buffer))
    (pop-to-buffer buffer)
    buffer))

;;;; Starting one

(defun pyagentd-mission--caller ()
  "Return the plist with the environment and the key of whoever asks."
  (list :env (pyagentd-env-variables) :key (pyagentd-env-key)))

(defun pyagentd-mission--read-signature ()
  "Ask for a signature until it is one; return it, or nil for none."
  (let ((prompt "Returns (signature, empty for anything): ") (given nil) done)
    (while (not done)
      (setq given (string-trim
                   (read-string prompt given
                                'pyagentd-mission-signature-history)))
      (if (string-empty-p given)
          (setq done t given nil)
        (condition-case err
            (setq done (pyagentd-rpc-call 'mission-check
                                          (list :signature given)))
          (pyagentd-error
           (setq prompt (format "%s\nReturns (signature): "
                                (pyagentd-error-text err)))))))
    given))

(defun pyagentd-mission--read-tools ()
  "Ask for tools; return their names, or nil for the preset's."
  (completing-read-multiple
   "Tools (comma between them, empty for the usual ones): "
   (plist-get (pyagentd-rpc-call 'mission-tools) :tools) nil t))

;;;###autoload
(defun pyagentd-mission (prompt &optional signature tools)
  "Have a model fulfil PROMPT with programs, and show how it does that.
SIGNATURE, a string, is what comes back, such as \"{count :int}\"; nil
stands for anything.  TOOLS are the names of the tools that its programs
may call, nil for the usual ones; they are asked for with a prefix
argument.  The mission is a session of the project here."
  (interactive
   (progn
     (pyagentd-rpc-connect t)
     (list (read-string "Mission: " nil 'pyagentd-mission-history)
           (pyagentd-mission--read-signature)
           (and current-prefix-arg (pyagentd-mission--read-tools)))))
  (when (string-blank-p prompt)
    (user-error "There is no task"))
  (pyagentd-rpc-connect t)
  (require 'pyagentd)
  (let* ((begun (pyagentd-rpc-call
                 'mission
                 (append (list :prompt prompt :signature signature :tools tools
                               :root (pyagentd--project-root))
                         (pyagentd-mission--caller))))
         (file (plist-get begun :file)))
    ;; Its buffer is where questions of the mission show.
    (find-file-noselect file)
    (pyagentd-mission--open (plist-get begun :branch)
                            (plist-get begun :session-id))))

;;;###autoload
(defun pyagentd-mission-trace ()
  "Show the missions of the session here, turn by turn."
  (interactive)
  (let ((here (pyagentd-here)))
    (pyagentd-mission--open (plist-get here :branch)
                            (plist-get here :session-id))))

(provide 'pyagentd-mission)
;;; pyagentd-mission.el ends here

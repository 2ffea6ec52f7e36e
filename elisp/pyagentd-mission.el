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
(require 'pyagentd-later)
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

(defun pyagentd-mission--look ()
  "Ask the daemon what there is to show in this buffer."
  (unless pyagentd-mission--asking
    (setq pyagentd-mission--asking t)
    (pyagentd-later-here
     'mission-trace (list :branch pyagentd-mission--branch)
     (lambda (answer)
       (setq pyagentd-mission--asking nil)
       (pyagentd-mission--show (pyagentd-json-text answer)))
     nil
     (lambda (err)
       (setq pyagentd-mission--asking nil)
       (pyagentd-later-tell err)))))

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
  (pyagentd-later-in buffer
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
  (pyagentd-later-here 'abort (list :branch pyagentd-mission--branch)
                       #'pyagentd-mission--look-anew))

(defun pyagentd-mission-resume ()
  "Go on with a mission that was stopped, behind its last program."
  (interactive nil pyagentd-mission-mode)
  (pyagentd-later-here 'mission-resume
                       (append (list :branch pyagentd-mission--branch)
                               (pyagentd-mission--caller))
                       #'pyagentd-mission--look-anew))

(defun pyagentd-mission--look-anew (&rest _)
  "Look again, whether or not an answer is awaited."
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
  (setq-local revert-buffer-function #'pyagentd-mission--look-anew))

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
  (let ((prompt (read-string "Mission: " nil 'pyagentd-mission-history)))
    (when (string-blank-p prompt)
      (user-error "There is no task"))
    (pyagentd-mission--read-signature
     (lambda (signature)
       (if (not tools) (pyagentd-mission prompt signature)
         (pyagentd-mission--read-tools
          (lambda (tools) (pyagentd-mission prompt signature tools))))))))

;;;###autoload
(defun pyagentd-mission (&optional prompt signature tools)
  "Have a model fulfil PROMPT with programs, and show how it does that.
SIGNATURE, a string, is what comes back, such as \"{count :int}\"; nil
stands for anything.  TOOLS are the names of the tools that its programs
may call, nil for the usual ones.  Without a PROMPT it is asked for with
its signature, and with a prefix argument its tools.  The mission is a
session of the project here."
  (interactive)
  (require 'pyagentd)
  (cond ((null prompt) (pyagentd-mission--read current-prefix-arg))
        ((string-blank-p prompt) (user-error "There is no task"))
        (t (let ((keys num-input-keys))
             (pyagentd-later
              'mission
              (append (list :prompt prompt :signature signature :tools tools
                            :root (pyagentd--project-root))
                      (pyagentd-mission--caller))
              (lambda (begun)
                (pyagentd-later-when-free #'pyagentd-mission--begun
                                          keys begun)))))))

(defun pyagentd-mission--begun (begun)
  "Show the mission that BEGUN, an answer of the daemon, tells of."
  ;; Its buffer is where questions of the mission show.
  (find-file-noselect (plist-get begun :file))
  (pyagentd-mission--open (plist-get begun :branch)
                          (plist-get begun :session-id)))

;;;###autoload
(defun pyagentd-mission-trace ()
  "Show the missions of the session here, turn by turn."
  (interactive)
  (let ((here (pyagentd-here)))
    (pyagentd-mission--open (plist-get here :branch)
                            (plist-get here :session-id))))

(provide 'pyagentd-mission)
;;; pyagentd-mission.el ends here

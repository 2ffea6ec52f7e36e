;;; pyagentd-overlay.el --- Progress of agents in their parent -*- lexical-binding: t; -*-

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

;; While an agent works, its parent's buffer shows at the run's marker
;; what it is doing.  The overlay changes no text.  It goes away on every
;; way an agent can end, and when the connection does.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-events)
(require 'pyagentd-status)
(require 'pyagentd-insert)

(defconst pyagentd-overlay--max-calls 8
  "How many calls of a batch are listed.")

(defconst pyagentd-overlay-wait-delay 1.5
  "Seconds after its last call until an agent is shown as waiting.")

(defvar pyagentd-overlay-handlers
  '((WAIT pyagentd-overlay-indicate-wait pyagentd-overlay--keep)
    (TOOL pyagentd-overlay-indicate-tool-call pyagentd-overlay--keep)
    (DONE ignore pyagentd-overlay-delete))
  "What happens in each state of an agent, as (STATE UI-HANDLER CORE-HANDLER).
Both are called with the overlay and the event's plist, in this order.
The states have the names of gptel's state machine.")

(defvar pyagentd-overlay-begun-functions nil
  "Functions called in a parent's buffer when an agent has begun.
They get the plist of the agent, see `pyagentd-overlay-update'.")

(defconst pyagentd-overlay--states
  '((wait . WAIT) (tool . TOOL) (finished . DONE))
  "The states of an agent on the wire and in `pyagentd-overlay-handlers'.")

(defvar pyagentd-overlay-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-overlay-visit)
    (define-key map [mouse-1] #'pyagentd-overlay-visit)
    (define-key map [mouse-2] #'pyagentd-overlay-visit)
    map)
  "Keymap of the progress of an agent.")

(defvar-local pyagentd-overlay--table nil
  "Alist of the running agents of this buffer: id and overlay.")

(defvar-local pyagentd-overlay--background nil
  "Alist of the agents that nobody waits for: id and plist.")

(pyagentd-permanent-local 'pyagentd-overlay--table
                          'pyagentd-overlay--background)

(defvar pyagentd-overlay-changed-hook nil
  "Hook run when an agent has begun, moved or ended.")

;;;; Text

(defun pyagentd-overlay--header (preset description)
  "Return the first lines about an agent with PRESET doing DESCRIPTION."
  (concat "\n" pyagentd-rule
          (propertize (concat (capitalize (or preset "agent")) " Task: ")
                      'face 'pyagentd-heading)
          (propertize (or description "") 'face 'pyagentd-detail)
          "\n"))

(defun pyagentd-overlay--call (call)
  "Return one line for CALL, a string or a plist with :name and :detail."
  (let ((text (if (stringp call) call
                (format "%s %s" (or (plist-get call :name) "")
                        (or (plist-get call :detail) "")))))
    (concat "\n  " (truncate-string-to-width
                    (replace-regexp-in-string "[\n\t ]+" " " text)
                    70 nil nil "…"))))

(defun pyagentd-overlay--calls (batch)
  "Return a few lines about BATCH, a list of strings or plists."
  (let ((more (- (length batch) pyagentd-overlay--max-calls)))
    (propertize
     (concat (mapconcat #'pyagentd-overlay--call
                        (seq-take batch pyagentd-overlay--max-calls) "")
             (and (> more 0) (format "\n  … %d more" more)))
     'face 'pyagentd-detail)))

(defun pyagentd-overlay--show (overlay status)
  "Show STATUS below the header of OVERLAY, if its buffer still lives."
  (when (overlay-buffer overlay)
    (overlay-put overlay 'after-string
                 (propertize (concat (overlay-get overlay 'msg) status "\n"
                                     pyagentd-rule)
                             'keymap pyagentd-overlay-map
                             'mouse-face 'highlight
                             'help-echo "RET, mouse-1: visit the agent"))))

;;;; States

(defun pyagentd-overlay--wait-text ()
  "Return the text of an agent that waits for the model."
  (propertize "Waiting..." 'face 'warning))

(defun pyagentd-overlay-indicate-wait (overlay _agent)
  "Let OVERLAY say that the agent waits, in a moment if it called tools."
  (let ((count (overlay-get overlay 'count)))
    (if (= count 0)
        (pyagentd-overlay--show overlay (pyagentd-overlay--wait-text))
      (run-at-time pyagentd-overlay-wait-delay nil
                   #'pyagentd-overlay--settle overlay
                   (overlay-get overlay 'version)))))

(defun pyagentd-overlay--settle (overlay version)
  "Let OVERLAY say that the agent waits, if it is at VERSION still."
  (when (and (overlay-buffer overlay)
             (eql version (overlay-get overlay 'version)))
    (pyagentd-overlay--show overlay (pyagentd-overlay--wait-text))))

(defun pyagentd-overlay-indicate-tool-call (overlay agent)
  "Let OVERLAY list what AGENT does and count what it did so far."
  (overlay-put overlay 'count (or (plist-get agent :count) 0))
  (pyagentd-overlay--show
   overlay
   (concat (propertize "Calling Tools..." 'face 'mode-line-emphasis)
           (format " (+%d)" (overlay-get overlay 'count))
           (pyagentd-overlay--calls (plist-get agent :calls)))))

(defun pyagentd-overlay--keep (overlay agent)
  "Keep OVERLAY at the marker of the run and note the state of AGENT."
  (when-let ((buffer (overlay-buffer overlay)))
    (with-current-buffer buffer
      (overlay-put overlay 'pyagentd-agent-dir (plist-get agent :branch-dir))
      (pyagentd-overlay--place overlay))))

(defun pyagentd-overlay-delete (overlay &optional _agent)
  "Remove OVERLAY for good."
  (when-let ((buffer (overlay-buffer overlay)))
    (with-current-buffer buffer
      (setq pyagentd-overlay--table
            (rassq-delete-all overlay pyagentd-overlay--table))))
  (delete-overlay overlay))

(defun pyagentd-overlay-finish (buffer id)
  "Remove the overlay of the agent ID from BUFFER, its parent's, if any."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when-let ((overlay (alist-get id pyagentd-overlay--table
                                     nil nil #'equal)))
        (pyagentd-overlay-delete overlay)))))

;;;; Overlays

(defun pyagentd-overlay--place (overlay)
  "Move OVERLAY to the line of the run's marker."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-insert-position))
      (move-overlay overlay (line-beginning-position) (point)))))

(defun pyagentd-overlay--make (agent)
  "Return a new overlay for AGENT, a plist, in the current buffer."
  (let ((overlay (make-overlay 1 1)))
    (overlay-put overlay 'pyagentd-agent t)
    (overlay-put overlay 'gptel-persistent-agent t)
    (overlay-put overlay 'count 0)
    (overlay-put overlay 'version 0)
    (overlay-put overlay 'keymap pyagentd-overlay-map)
    (overlay-put overlay 'msg (pyagentd-overlay--header
                               (plist-get agent :preset)
                               (plist-get agent :description)))
    (pyagentd-overlay--place overlay)
    (pyagentd-overlay--show overlay (pyagentd-overlay--wait-text))
    (push (cons (plist-get agent :id) overlay) pyagentd-overlay--table)
    overlay))

(defun pyagentd-overlay-update (agent)
  "Show the state of AGENT in the current buffer, its parent's.
AGENT is a plist with :id, :branch-dir, :preset, :description, :state
\(`wait', `tool' or `finished'), :count of all calls so far, and :calls of
this batch."
  (let* ((state (pyagentd-symbol (plist-get agent :state)))
         (handlers (alist-get (alist-get state pyagentd-overlay--states)
                              pyagentd-overlay-handlers))
         (known (alist-get (plist-get agent :id) pyagentd-overlay--table
                           nil nil #'equal))
         (overlay (or known
                      (unless (eq state 'finished)
                        (pyagentd-overlay--make agent)))))
    (when overlay
      (overlay-put overlay 'version (1+ (overlay-get overlay 'version)))
      (dolist (handler handlers)
        (funcall handler overlay agent)))))

(defun pyagentd-overlay-clear ()
  "Remove all overlays from the current buffer.
What is known of agents in the background stays."
  (mapc (lambda (pair) (delete-overlay (cdr pair))) pyagentd-overlay--table)
  (setq pyagentd-overlay--table nil))

(defun pyagentd-overlay-forget ()
  "Remove all progress from the current buffer."
  (pyagentd-overlay-clear)
  (setq pyagentd-overlay--background nil))

(defun pyagentd-overlay-rebuild (agents)
  "Show AGENTS, a list of plists, in the current buffer, and no others."
  (pyagentd-overlay-forget)
  (mapc #'pyagentd-overlay-note agents))

;;;; In the background

(defun pyagentd-overlay-note (agent)
  "Show the state of AGENT, a plist, in the current buffer, its parent's.
One in the background is named in the header line and has no overlay."
  (let ((here (length pyagentd-overlay--table)))
    (if (not (plist-get agent :background))
        (pyagentd-overlay-update agent)
      (setf (alist-get (plist-get agent :id) pyagentd-overlay--background
                       nil t #'equal)
            (unless (eq 'finished (pyagentd-symbol (plist-get agent :state)))
              agent)))
    (unless (and (not (plist-get agent :background))
                 (= here (length pyagentd-overlay--table)))
      (pyagentd-status-refresh))))

(defun pyagentd-overlay--background-words ()
  "Return which agents work in the background, in words."
  (concat "background: "
          (mapconcat
           (pcase-lambda (`(,_ . ,agent))
             (let ((count (or (plist-get agent :count) 0)))
               (concat (or (plist-get agent :preset) "agent")
                       (and (> count 0) (format " (+%d)" count)))))
           (reverse (seq-take pyagentd-overlay--background 3)) ", ")
          (when-let ((more (nthcdr 3 pyagentd-overlay--background)))
            (format " and %d more" (length more)))))

(defun pyagentd-overlay--segment ()
  "Return which agents work here, or nil."
  (let ((here (length pyagentd-overlay--table)))
    (when (or (> here 0) pyagentd-overlay--background)
      (pyagentd-status-button
       (propertize
        (string-join
         (delq nil (list (and (> here 0)
                              (if (= here 1) "1 agent"
                                (format "%d agents" here)))
                         (and pyagentd-overlay--background
                              (pyagentd-overlay--background-words))))
         ", ")
        'face 'font-lock-type-face)
       'pyagentd-agents "Running agents"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-overlay--segment)

(defun pyagentd-overlay-visit (&optional event)
  "Visit the conversation of the agent at point, or at mouse EVENT."
  (interactive (list last-nonmenu-event))
  (let* ((position (and (consp event) (event-start event)))
         (buffer (if position (window-buffer (posn-window position))
                   (current-buffer)))
         (pos (or (and position (posn-point position)) (point)))
         (dir (with-current-buffer buffer
                (seq-some (lambda (overlay)
                            (overlay-get overlay 'pyagentd-agent-dir))
                          (append (overlays-in pos pos)
                                  (overlays-in (max 1 (1- pos)) (1+ pos)))))))
    (unless dir (user-error "No agent here"))
    (find-file-other-window (pyagentd-place-conversation dir))))

(defun pyagentd-overlay--count ()
  "Return how many agents of this buffer work."
  (+ (length pyagentd-overlay--table) (length pyagentd-overlay--background)))

(defun pyagentd-overlay--on-event (branch _seq args)
  "Show the event ARGS, about an agent of BRANCH."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (let ((known (pyagentd-overlay--count)))
        (pyagentd-overlay-note (car args))
        (when (> (pyagentd-overlay--count) known)
          (run-hook-with-args 'pyagentd-overlay-begun-functions
                              (car args))))))
  (run-hooks 'pyagentd-overlay-changed-hook))

(pyagentd-events-register 'agent #'pyagentd-overlay--on-event)

(provide 'pyagentd-overlay)
;;; pyagentd-overlay.el ends here

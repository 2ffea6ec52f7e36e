;;; pyagentd-status.el --- What a session is doing -*- lexical-binding: t; -*-

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

;; The header line of a session buffer: what it is called, what its run is
;; doing, preset and model.  A click on a part does what its tooltip says.

;;; Code:

(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-session)
(require 'pyagentd-status-button)
(require 'pyagentd-status-words)

(defvar-local pyagentd-status nil
  "What the daemon said last about this branch, a plist with :state.
The state is one of the symbols `idle', `busy', `retrying', `waiting' and
`error', and here also `sending'; nil without a daemon.  The :phase of a
busy one is that of gptel's machine: WAIT, TYPE or TOOL, with :tools.")
(defvar-local pyagentd-status-preset nil
  "Name of the preset of this branch.")
(defvar-local pyagentd-status-unconfined nil
  "Why commands of this session are not confined; nil or \"\" if they are.")
(defvar-local pyagentd-status-model nil
  "Name of the model of this branch.")
(defvar-local pyagentd-status-hindrance nil
  "Why nothing can be written here, a few words; nil if it can.")
(defvar-local pyagentd-status-refusal nil
  "Why the daemon does not take part in this session, a line, or nil.")
(defvar-local pyagentd-status-silent nil
  "Non-nil while the daemon does not say that it has a prompt.")
(defvar-local pyagentd-status-title nil
  "Title of the session in this buffer, nil if it has none.")
(defvar-local pyagentd-status--line nil
  "The header line, computed when something changes.")

(defvar-local pyagentd-status--narrow nil
  "Header lines for windows with less room, an alist (WIDTH . LINE).")

(defvar pyagentd-title-functions nil
  "Functions called in a session buffer when its title becomes known or changes.
They get the title, a string, or nil if it has none any more.
`pyagentd-name-buffer' is among them: session buffers are named after
their titles.")

(defvar pyagentd-status-agent-function #'ignore
  "Function that returns who answers where that is not the preset.
It returns a string or nil, and is called in the session buffer.")

(defvar pyagentd-status-segment-functions nil
  "Functions that return more to say in the header line, a string or nil.
They are called in the session buffer.")

(pyagentd-permanent-local 'pyagentd-status 'pyagentd-status-title
                          'pyagentd-status-preset 'pyagentd-status-model
                          'pyagentd-status-unconfined
                          'pyagentd-status-hindrance 'pyagentd-status-refusal
                          'pyagentd-status-silent
                          'pyagentd-status--line
                          'pyagentd-status--narrow)

;;;; What a run does

(defvar pyagentd-status--countdown nil
  "Timer that counts down to the next attempt, in all session buffers.")

(defun pyagentd-status--count-down ()
  "Show how long it is to the next attempt where one is awaited."
  (let ((waiting nil))
    (dolist (buffer (buffer-list))
      (when (eq (plist-get (buffer-local-value 'pyagentd-status buffer) :state)
                'retrying)
        (setq waiting t)
        (with-current-buffer buffer (pyagentd-status-refresh))))
    (unless waiting
      (cancel-timer pyagentd-status--countdown)
      (setq pyagentd-status--countdown nil))))

(defun pyagentd-status--queued ()
  "Return how many messages wait, in words, or nil."
  (let ((number (or (plist-get pyagentd-status :queued) 0)))
    (when (> number 0)
      (pyagentd-status-button
       (if (plist-get pyagentd-status :paused)
           (propertize (format "%d queued, paused" number) 'face 'warning)
         (propertize (format "%d queued" number) 'face 'shadow))
       'pyagentd-queue "Messages that wait for their turn"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-status--queued)

(defun pyagentd-status--text (status)
  "Return STATUS, see variable `pyagentd-status', in words."
  (pcase (plist-get status :state)
    ((and 'nil (guard pyagentd-status-refusal))
     (propertize (concat "Not connected: "
                         (pyagentd-status-words-reason pyagentd-status-refusal))
                 'face 'error))
    ('nil (propertize "Not connected" 'face 'shadow))
    ('idle (propertize "Ready" 'face 'success))
    ((and 'sending (guard pyagentd-status-silent))
     (propertize "The daemon does not answer" 'face 'error))
    ('sending (propertize "Waiting..." 'face 'warning))
    ('busy (pyagentd-status-words-busy status))
    ('waiting (propertize "Waiting for your answer" 'face 'warning))
    ('retrying
     (propertize (pyagentd-status-words-retrying status) 'face 'warning))
    ('error (propertize (concat "Error: " (pyagentd-status-words-reason
                                           (plist-get status :message)))
                        'face 'error))
    (state (format "%s" state))))

(defun pyagentd-status-busy-p ()
  "Return non-nil if a run is going on in this buffer."
  (memq (plist-get pyagentd-status :state)
        '(sending busy retrying waiting)))

(defvar pyagentd-status-changed-hook nil
  "Hook run in a session buffer whose status is another one.")

(defun pyagentd-status-set (status)
  "Show STATUS, a plist as the daemon sends it, in the header line."
  (setq status (plist-put (copy-sequence status) :state
                          (pyagentd-symbol (plist-get status :state))))
  (unless (equal status pyagentd-status)
    (setq pyagentd-status status)
    (when (and (eq (plist-get status :state) 'retrying)
               (null pyagentd-status--countdown))
      (setq pyagentd-status--countdown
            (run-at-time 1 1 #'pyagentd-status--count-down)))
    (pyagentd-status-refresh)
    (run-hooks 'pyagentd-status-changed-hook)))

(defun pyagentd-status-set-title (title)
  "Show TITLE, a string or nil, in the header line."
  (setq title (and title (not (equal title "")) title))
  (unless (equal title pyagentd-status-title)
    (setq pyagentd-status-title title)
    (pyagentd-status-refresh)
    (run-hook-with-args 'pyagentd-title-functions title)))

(defvar-local pyagentd-status--agent nil
  "Whether a named agent is in this buffer, as (DIRECTORY . VALUE), or nil.")

(defun pyagentd-status--agent-p ()
  "Return non-nil if a named agent is in this buffer, not one that it made."
  (unless (equal (car pyagentd-status--agent) pyagentd--branch-dir)
    (setq pyagentd-status--agent
          (cons pyagentd--branch-dir
                (and pyagentd--session-dir
                     (file-exists-p (expand-file-name
                                     "agent.json" pyagentd--session-dir))))))
  (cdr pyagentd-status--agent))

(defconst pyagentd-status--rooms
  '((:name 1000 :state 1000 :preset 1000 :segments 1000)
    (:name 40 :state 100 :preset 1000 :segments 1000)
    (:name 24 :state 60 :preset 1000 :segments 1000)
    (:name 24 :state 40 :preset 14 :segments 1000)
    (:name 16 :state 30 :preset 14 :segments 1000)
    (:name 16 :state 30 :segments 1000)
    (:name 12 :state 16 :segments 24))
  "How many columns parts of the header line have at most, widest first.
A part without any is left out; the model is always whole.")

(defun pyagentd-status--cut (text width)
  "Return TEXT in at most WIDTH columns."
  (truncate-string-to-width text width nil nil "…"))

(defun pyagentd-status--words (room)
  "Return what the session is called: the name of an agent and the title.
ROOM is one of `pyagentd-status--rooms'."
  (pcase-let ((`(,id ,title)
               (mapcar (lambda (text)
                         (pyagentd-status--cut (or text "")
                                               (plist-get room :name)))
                       (list pyagentd--session-id pyagentd-status-title))))
    (cond ((not (pyagentd-status--agent-p))
           (if (string-empty-p title) id title))
          ((member title (list "" id)) (propertize id 'face 'bold))
          (t (concat (propertize id 'face 'bold) ": " title)))))

(defun pyagentd-status--name (room)
  "Return what the session is called, and its branch unless it is the first.
ROOM is one of `pyagentd-status--rooms'."
  (concat (pyagentd-status-button
           (pyagentd-status--words room)
           (if (pyagentd-status--agent-p) 'pyagentd-agent-config
             'pyagentd-rename)
           (format "%s\n%s" (or pyagentd--session-id "")
                   (abbreviate-file-name (or pyagentd--branch-dir ""))))
          (unless (member pyagentd--branch-name '(nil "main"))
            (concat "  "
                    (pyagentd-status-button
                     (propertize pyagentd--branch-name 'face 'shadow)
                     'pyagentd-branches "Branch")))))

(defun pyagentd-status--state (room)
  "Return what the run does; a click shows more of it.
ROOM is one of `pyagentd-status--rooms'."
  (let* ((state (plist-get pyagentd-status :state))
         (width (plist-get room :state))
         (text (pyagentd-status--cut
                (if (and (eq state 'waiting) (< width 60))
                    (propertize "Asks you" 'face 'warning)
                  (pyagentd-status--text pyagentd-status))
                width)))
    (pcase state
      ((and 'nil (guard pyagentd-status-refusal))
       (pyagentd-status-button text 'pyagentd-visit-cause
                               pyagentd-status-refusal))
      ('nil (pyagentd-status-button
             text 'pyagentd-connect
             "No daemon is running; your text is kept"))
      ((and 'sending (guard pyagentd-status-silent))
       (pyagentd-status-button text 'pyagentd-doctor
                               "Your message waits for the daemon"))
      ('waiting (pyagentd-status-button text 'pyagentd-answer
                                        "An approval or question is pending"))
      ('error (pyagentd-status-button text 'pyagentd-inspect
                                      (or (plist-get pyagentd-status :message)
                                          "The run failed")))
      (_ (pyagentd-status-button text 'pyagentd-inspect
                                 "Inspect the requests of this run")))))

(defun pyagentd-status--right (room)
  "Return what stands at the right: who writes, preset and model.
ROOM is one of `pyagentd-status--rooms'."
  (string-join
   (delq nil
         (list (and pyagentd-status-hindrance
                    (pyagentd-status-button pyagentd-status-hindrance
                                            'pyagentd-take-over
                                            "Another client writes this file"))
               (unless (member pyagentd-status-unconfined '(nil ""))
                 (pyagentd-status-button (propertize "not confined"
                                                     'face 'warning)
                                         'pyagentd-doctor
                                         pyagentd-status-unconfined))
               (and (plist-get room :preset)
                    (or (funcall pyagentd-status-agent-function)
                        pyagentd-status-preset)
                    (pyagentd-status-button
                     (pyagentd-status--cut
                      (or (funcall pyagentd-status-agent-function)
                          pyagentd-status-preset)
                      (plist-get room :preset))
                     'pyagentd-choose-agent
                     "Agent: instructions, tools and permissions"))
               (and pyagentd-status-model
                    (pyagentd-status-button pyagentd-status-model
                                            'pyagentd-choose-model
                                            "Model"))))
   "  "))

(defun pyagentd-status--segments ()
  "Return what `pyagentd-status-segment-functions' say here."
  (mapconcat (lambda (function)
               (if-let ((segment (funcall function))) (concat segment "  ") ""))
             pyagentd-status-segment-functions ""))

(defun pyagentd-status--trouble ()
  "Return why the text could not be saved, or the empty string."
  (if pyagentd-session-trouble
      (pyagentd-status-button (propertize pyagentd-session-trouble
                                          'face 'error)
                              'save-buffer "Not saved: your text is only in this buffer")
    ""))

(defun pyagentd-status--dimmed (text)
  "Return TEXT in the face of what matters less."
  (add-face-text-property 0 (length text) 'shadow t text)
  text)

(defface pyagentd-header '((((type tty)) :inherit default :underline t)
                           (t nil))
  "Base face of the header line of a session.
Terminals draw header lines in inverse colours, in which other faces
could not be read."
  :group 'pyagentd)

(defun pyagentd-status--make (room)
  "Return the header line; ROOM is one of `pyagentd-status--rooms'."
  (let ((line (pyagentd-status--parts room)))
    (add-face-text-property 0 (length line) 'pyagentd-header t line)
    line))

(defun pyagentd-status--parts (room)
  "Return what the header line consists of.
ROOM is one of `pyagentd-status--rooms'."
  (let ((right (pyagentd-status--right room)))
    ;; What it says is no format of a mode line.
    (replace-regexp-in-string
     "%" (lambda (sign) (concat sign sign))
     (concat " " (pyagentd-status--name room) "  "
             (pyagentd-status--state room)
             "  "
             (pyagentd-status--cut (pyagentd-status--segments)
                                   (plist-get room :segments))
             (pyagentd-status--trouble)
             (propertize " " 'display
                         `(space :align-to
                                 (- right ,(1+ (string-width right)))))
             (pyagentd-status--dimmed right))
     t t)))

(defun pyagentd-status-refresh ()
  "Compute the header line again."
  (setq pyagentd-status--line (pyagentd-status--make
                               (car pyagentd-status--rooms))
        pyagentd-status--narrow nil)
  (force-mode-line-update))

(defun pyagentd-status--shown ()
  "Return the header line as far as there is room for it in this window."
  (let ((width (window-width)))
    (if (<= (string-width (or pyagentd-status--line "")) width)
        pyagentd-status--line
      (or (alist-get width pyagentd-status--narrow)
          (setf (alist-get width pyagentd-status--narrow)
                (pyagentd-status--fitting width))))))

(defun pyagentd-status--fitting (width)
  "Return the header line with as much as WIDTH columns have room for."
  (let ((rooms (cdr pyagentd-status--rooms)) line)
    (while (and rooms
                (> (string-width (setq line (pyagentd-status--make
                                             (pop rooms))))
                   width)))
    line))

(add-hook 'pyagentd-session-trouble-hook #'pyagentd-status-refresh)

(defconst pyagentd-status--format '(:eval (pyagentd-status--shown))
  "The `header-line-format' of session buffers.")

(add-to-list 'pyagentd-session-settings
             (cons 'header-line-format pyagentd-status--format))

(provide 'pyagentd-status)
;;; pyagentd-status.el ends here

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

(defvar-local pyagentd-status nil
  "What the daemon said last about this branch, a plist with :state.
The state is one of the symbols `idle', `busy', `retrying', `waiting' and
`error', and here also `sending'; nil without a daemon.  The :phase of a
busy one is that of gptel's machine: WAIT, TYPE or TOOL, with :tools.")
(defvar-local pyagentd-status-preset nil
  "Name of the preset of this branch.")
(defvar-local pyagentd-status-model nil
  "Name of the model of this branch.")
(defvar-local pyagentd-status-hindrance nil
  "Why nothing can be written here, a few words; nil if it can.")
(defvar-local pyagentd-status-title nil
  "Title of the session in this buffer, nil if it has none.")
(defvar-local pyagentd-status--line nil
  "The header line, computed when something changes.")

(defvar-local pyagentd-status--narrow nil
  "The header line for windows in which there is little room, or nil.")

(defvar pyagentd-title-functions nil
  "Functions called in a session buffer when its title becomes known or changes.
They get the title, a string, or nil if it has none any more.  Add
`pyagentd-name-buffer' to have session buffers named after their titles.")

(defvar pyagentd-status-segment-functions nil
  "Functions that return more to say in the header line, a string or nil.
They are called in the session buffer.")

(pyagentd-permanent-local 'pyagentd-status 'pyagentd-status-title
                          'pyagentd-status-preset 'pyagentd-status-model
                          'pyagentd-status-hindrance 'pyagentd-status--line
                          'pyagentd-status--narrow)

;;;; What a run does

(defun pyagentd-status--busy (status)
  "Return what a run with STATUS does, in gptel's words."
  (let ((tools (mapcar (lambda (call) (truncate-string-to-width call 40 nil nil "…"))
                       (plist-get status :tools))))
    (pcase (pyagentd-symbol (plist-get status :phase))
      ('TYPE (propertize "Typing..." 'face 'success))
      ('COMPACT (propertize "Compacting..." 'face 'warning))
      ((guard (null tools)) (propertize "Waiting..." 'face 'warning))
      (_ (propertize (format (if (cdr tools) "Calling tools (%s)" "Calling tool (%s)")
                             (string-join tools ", "))
                     'face 'warning)))))

(defun pyagentd-status--retrying (status)
  "Return which attempt of a request failed, as STATUS says, and what follows."
  (concat "Retrying"
          (when-let ((attempt (plist-get status :attempt)))
            (format " (%s%s failed)" attempt
                    (if-let ((most (plist-get status :max-attempts)))
                        (format " of %s" most)
                      "")))
          (if-let ((time (plist-get status :retry-at)))
              (format " in %d s" (max 0 (ceiling (- (/ time 1000.0)
                                                    (float-time)))))
            "…")
          (when-let ((message (plist-get status :message)))
            (concat ": " message))))

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
       (propertize (format "%d queued" number) 'face 'shadow)
       'pyagentd-queue "Messages that wait for their turn"))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-status--queued)

(defun pyagentd-status--text (status)
  "Return STATUS, see variable `pyagentd-status', in words."
  (pcase (plist-get status :state)
    ('nil (propertize "Not connected" 'face 'shadow))
    ('idle (propertize "Ready" 'face 'success))
    ('sending (propertize "Waiting..." 'face 'warning))
    ('busy (pyagentd-status--busy status))
    ('waiting (propertize "Waiting for your answer" 'face 'warning))
    ('retrying
     (propertize (pyagentd-status--retrying status) 'face 'warning))
    ('error (propertize (format "Error: %s" (or (plist-get status :message) ""))
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

(defun pyagentd-status--words (narrow)
  "Return what the session is called: the name of an agent and the title.
NARROW means that there is little room."
  (pcase-let ((`(,id ,title)
               (mapcar (lambda (text)
                         (truncate-string-to-width
                          (or text "") (if narrow 24 1000) nil nil "…"))
                       (list pyagentd--session-id pyagentd-status-title))))
    (cond ((not (pyagentd-status--agent-p))
           (if (string-empty-p title) id title))
          ((member title (list "" id)) (propertize id 'face 'bold))
          (t (concat (propertize id 'face 'bold) ": " title)))))

(defun pyagentd-status--name (narrow)
  "Return what the session is called, and its branch unless it is the first.
NARROW means that there is little room."
  (concat (pyagentd-status-button
           (pyagentd-status--words narrow)
           (if (pyagentd-status--agent-p) 'pyagentd-agent-config
             'pyagentd-rename)
           (format "%s\n%s" (or pyagentd--session-id "")
                   (abbreviate-file-name (or pyagentd--branch-dir ""))))
          (unless (member pyagentd--branch-name '(nil "main"))
            (concat "  "
                    (pyagentd-status-button
                     (propertize pyagentd--branch-name 'face 'shadow)
                     'pyagentd-branches "The branch")))))

(defun pyagentd-status--state ()
  "Return what the run does; a click shows more of it."
  (let ((text (pyagentd-status--text pyagentd-status)))
    (pcase (plist-get pyagentd-status :state)
      ('nil (pyagentd-status-button
             text 'pyagentd-connect
             "There is no daemon; what you write is kept"))
      ('waiting (pyagentd-status-button text 'pyagentd-answer
                                        "Something is asked"))
      (_ (pyagentd-status-button text 'pyagentd-inspect
                                 "What it does, request by request")))))

(defun pyagentd-status--right (narrow)
  "Return what stands at the right: who writes, preset and model.
NARROW means that there is little room: then the preset is left out."
  (string-join
   (delq nil
         (list (and pyagentd-status-hindrance
                    (pyagentd-status-button pyagentd-status-hindrance
                                            'pyagentd-take-over
                                            "Another one writes the file"))
               (and pyagentd-status-preset (not narrow)
                    (pyagentd-status-button pyagentd-status-preset
                                            'pyagentd-choose-agent
                                            "Instructions, tools and rights"))
               (and pyagentd-status-model
                    (pyagentd-status-button pyagentd-status-model
                                            'pyagentd-choose-model
                                            "The model"))))
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
                              'save-buffer "Your text is in this buffer only")
    ""))

(defun pyagentd-status--dimmed (text)
  "Return TEXT in the face of what matters less."
  (add-face-text-property 0 (length text) 'shadow t text)
  text)

(defface pyagentd-header '((((type tty)) :inherit default :underline t)
                           (t nil))
  "Face below all others in the header line of a session.
A terminal draws header lines dark on light where its text is light on
dark, and the colours that are made for its text cannot be read there."
  :group 'pyagentd)

(defun pyagentd-status--make (narrow)
  "Return the header line; NARROW means that there is little room."
  (let ((line (pyagentd-status--parts narrow)))
    (add-face-text-property 0 (length line) 'pyagentd-header t line)
    line))

(defun pyagentd-status--parts (narrow)
  "Return what the header line consists of.
NARROW means that there is little room."
  (let ((right (pyagentd-status--right narrow)))
    ;; What it says is no format of a mode line.
    (replace-regexp-in-string
     "%" (lambda (sign) (concat sign sign))
     (concat " " (pyagentd-status--name narrow) "  "
             (pyagentd-status--state)
             "  "
             (pyagentd-status--segments)
             (pyagentd-status--trouble)
             (propertize " " 'display
                         `(space :align-to
                                 (- right ,(1+ (string-width right)))))
             (pyagentd-status--dimmed right))
     t t)))

(defun pyagentd-status-refresh ()
  "Compute the header line again."
  (setq pyagentd-status--line (pyagentd-status--make nil)
        pyagentd-status--narrow nil)
  (force-mode-line-update))

(defun pyagentd-status--shown ()
  "Return the header line as far as there is room for it in this window."
  (if (<= (string-width (or pyagentd-status--line "")) (window-width))
      pyagentd-status--line
    (or pyagentd-status--narrow
        (setq pyagentd-status--narrow (pyagentd-status--make t)))))

(add-hook 'pyagentd-session-trouble-hook #'pyagentd-status-refresh)

(defconst pyagentd-status--format '(:eval (pyagentd-status--shown))
  "The `header-line-format' of session buffers.")

(add-to-list 'pyagentd-session-settings
             (cons 'header-line-format pyagentd-status--format))

(provide 'pyagentd-status)
;;; pyagentd-status.el ends here

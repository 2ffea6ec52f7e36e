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

;; A mission is a task whose answer has a type; a model fulfils it with
;; small programs.  `pyagentd-mission' starts one and shows its trace
;; (`pyagentd-mission-trace').

;;; Code:

(require 'subr-x)
(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-mission-trace)

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

;;; pyagentd-defaults.el --- Defaults of named agents -*- lexical-binding: t; -*-

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

;; What holds for named agents where nobody says otherwise: the model and
;; the permissions of new ones, and when a conversation is put away.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-model)
(require 'pyagentd-list)
(require 'pyagentd-named)

(defconst pyagentd-defaults--keys
  '(("default_model" :default-model "model of new agents")
    ("default_permissions" :default-permissions "permissions of new agents")
    ("idle_timeout" :idle-timeout "when a conversation is saved and cleared"))
  "What can be set: key, keyword on the wire, what it is.")

(defun pyagentd-defaults--span (seconds)
  "Return SECONDS as people write them, in a form that can be set."
  (cond ((not (numberp seconds)) (format "%s" seconds))
        ((zerop seconds) "never")
        ((zerop (mod seconds 3600)) (format "%dh" (/ seconds 3600)))
        ((zerop (mod seconds 60)) (format "%dmin" (/ seconds 60)))
        (t (format "%ds" seconds))))

(defun pyagentd-defaults--text (key value)
  "Return VALUE of KEY, a keyword, as text; nil if it has none."
  (cond ((null value) nil)
        ((eq key :idle-timeout) (pyagentd-defaults--span value))
        (t (pyagentd-named-json value))))

(defun pyagentd-defaults--entry (row)
  "Return the line of ROW."
  (let ((own (not (equal (plist-get row :value) (plist-get row :default)))))
    (list (plist-get row :id)
          (vector (propertize (plist-get row :id) 'face 'bold)
                  (propertize (or (plist-get row :text) "the preset's")
                              'face (if own 'default 'shadow))
                  (propertize (plist-get row :about) 'face 'shadow)))))

(defun pyagentd-defaults--show (answer)
  "Show the settings in ANSWER."
  (setq pyagentd-table-rows
        (mapcar (pcase-lambda (`(,id ,key ,about))
                  (let ((value (plist-get (plist-get answer :settings) key)))
                    (list :id id :about about :value value
                          :text (pyagentd-defaults--text key value)
                          :default (plist-get (plist-get answer :defaults)
                                              key))))
                pyagentd-defaults--keys))
  (pyagentd-table-print (mapcar #'pyagentd-defaults--entry
                                pyagentd-table-rows)))

(defun pyagentd-defaults--revert (&rest _)
  "Fetch the settings again."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'settings nil #'pyagentd-defaults--show))))

(defun pyagentd-defaults--set (plist)
  "Tell the daemon PLIST, which sets something, and show what holds then."
  (let ((buffer (current-buffer)))
    (pyagentd-later 'settings plist
                    (lambda (answer)
                      (pyagentd-later-in buffer
                        (pyagentd-defaults--show answer))))))

(defun pyagentd-defaults-edit ()
  "Change the value at point."
  (interactive nil pyagentd-defaults-mode)
  (let* ((row (pyagentd-table-row))
         (id (plist-get row :id))
         (prompt (format-prompt id (plist-get row :text)))
         (value (pcase id
                  ("default_permissions"
                   (completing-read prompt pyagentd-named-profiles
                                    nil nil nil nil (plist-get row :text)))
                  ("idle_timeout"
                   (completing-read prompt '("10min" "30min" "2h" "never")
                                    nil nil nil nil (plist-get row :text)))
                  (_ (pyagentd-model-read prompt)))))
    (unless (member value '(nil ""))
      (pyagentd-defaults--set (list :key id :value value)))))

(defun pyagentd-defaults-reset ()
  "Reset the value at point to its default."
  (interactive nil pyagentd-defaults-mode)
  (pyagentd-defaults--set (list :key (plist-get (pyagentd-table-row) :id)
                                :reset t)))

(defvar pyagentd-defaults-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-defaults-edit)
    (define-key map "e" #'pyagentd-defaults-edit)
    (define-key map "D" #'pyagentd-defaults-reset)
    map)
  "Keymap of `pyagentd-defaults-mode'.")

(define-derived-mode pyagentd-defaults-mode pyagentd-table-mode
  "Settings of agents"
  "Major mode for the defaults of named agents.

\\{pyagentd-defaults-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Setting" 20 nil) ("Value" 30 nil)
                               ("What it is" 0 nil)]
        pyagentd-table-help '(("RET" "change") ("D" "default")
                              ("g" "refresh") ("q" "close")))
  (setq-local revert-buffer-function #'pyagentd-defaults--revert)
  (tabulated-list-init-header))

(defun pyagentd-settings ()
  "Edit the defaults of named agents."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd settings*")))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-defaults-mode)
        (pyagentd-defaults-mode))
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-defaults)
;;; pyagentd-defaults.el ends here

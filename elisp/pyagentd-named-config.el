;;; pyagentd-named-config.el --- What an agent is -*- lexical-binding: t; -*-

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

;; The keys of an agent with their values, each of which can be changed.
;; What is changed counts from the agent's next request on.

;;; Code:

(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-list)
(require 'pyagentd-model)
(require 'pyagentd-named)
(require 'pyagentd-named-list)

(declare-function markdown-mode "ext:markdown-mode" ())

(defvar-local pyagentd-named-config--name nil
  "Name of the agent whose configuration is in this buffer.")

(defconst pyagentd-named-config--keys
  '(("name" :name "its name and that of its directory")
    ("system_prompt" :system-prompt "its system prompt")
    ("model" :model "its model")
    ("permissions" :permissions "which actions need no approval"))
  "What can be set: key, keyword on the wire, what it is.")

(defconst pyagentd-named-config--custom "custom (written as JSON)"
  "The choice of permissions of one's own.")

;;;; Words

(defun pyagentd-named-config--value (key value)
  "Return VALUE of KEY, a keyword, on one line."
  (cond ((null value) (propertize "(default)" 'face 'shadow))
        ((eq key :permissions) (pyagentd-named-json value))
        (t (string-replace "\n" " " (string-trim (format "%s" value))))))

(defun pyagentd-named-config--show (answer)
  "Show the configuration in ANSWER."
  (let ((config (plist-get answer :config)))
    (setq pyagentd-named-config--name (plist-get answer :name)
          mode-name (list "Agent " pyagentd-named-config--name)
          default-directory (file-name-as-directory (plist-get answer :dir))
          pyagentd-table-rows
          (mapcar (pcase-lambda (`(,id ,key ,about))
                    (list :id id :key key :about about
                          :value (plist-get config key)))
                  pyagentd-named-config--keys))
    (pyagentd-table-print
     (mapcar (lambda (row)
               (list (plist-get row :id)
                     (vector (propertize (plist-get row :id) 'face 'bold)
                             (pyagentd-named-config--value
                              (plist-get row :key) (plist-get row :value))
                             (propertize (plist-get row :about)
                                         'face 'shadow))))
             pyagentd-table-rows))))

(defun pyagentd-named-config--revert (&rest _)
  "Fetch the configuration again."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'agent-config (list :name pyagentd-named-config--name)
                           #'pyagentd-named-config--show))))

;;;; Changing

(defun pyagentd-named-config--set (name key value &optional then)
  "Set KEY of the agent NAME to VALUE, nil for its default; then call THEN."
  (let ((buffer (current-buffer)))
    (pyagentd-later
     'agent-config (if value (append (list :name name :key key :value value)
                                     (pyagentd-named-config--means key))
                     (list :name name :key key :reset t))
     (lambda (answer)
       (when then (funcall then))
       (pyagentd-later-in buffer
         (when (derived-mode-p 'pyagentd-named-config-mode)
           (pyagentd-named-config--show answer)))
       (run-hooks 'pyagentd-changed-hook)
       (message "%s of %s: %s" key name
                (or (plist-get answer :note)
                    (if value "set" "the default again"))))
     60)))

(defun pyagentd-named-config--means (key)
  "Return what the daemon needs to check a value of KEY: for models, ours."
  (when (equal key "model")
    (list :env (pyagentd-env-variables) :api-key (pyagentd-env-key))))

(defun pyagentd-named-config--edit (name key text mode)
  "Edit TEXT, which KEY of the agent NAME is, in a buffer in MODE."
  (let ((buffer (current-buffer)))
    (pyagentd-edit (format "%s of %s" key name) text mode
                   (lambda (new close)
                     (pyagentd-later-in buffer
                       (pyagentd-named-config--set name key new close))))))

(defun pyagentd-named-config--permissions (name value)
  "Read other permissions for the agent NAME, which has VALUE."
  (let* ((now (if (stringp value) value pyagentd-named-config--custom))
         (chosen (completing-read
                  (format-prompt "Permissions of %s" now name)
                  (append pyagentd-named-profiles
                          (list pyagentd-named-config--custom))
                  nil nil nil nil now)))
    (if (equal chosen pyagentd-named-config--custom)
        (pyagentd-named-config--edit
         name "permissions"
         (if (stringp value) "{\"allow\": [], \"ask\": [\"tool:.*\"]}\n"
           (concat (pyagentd-named-json value) "\n"))
         #'js-mode)
      (pyagentd-named-config--set name "permissions" chosen))))

(defun pyagentd-named-config--text-mode ()
  "Turn on a mode for a system prompt."
  (if (fboundp 'markdown-mode) (markdown-mode) (text-mode)))

(defun pyagentd-named-config-edit ()
  "Change the value at point."
  (interactive nil pyagentd-named-config-mode)
  (let* ((row (pyagentd-table-row))
         (name pyagentd-named-config--name)
         (value (plist-get row :value)))
    (pcase-exhaustive (plist-get row :key)
      (:name (pyagentd-agent-rename
              name (string-trim (read-string (format "New name of %s: " name)
                                             name))))
      (:system-prompt (pyagentd-named-config--edit
                       name "system_prompt" (or value "")
                       #'pyagentd-named-config--text-mode))
      (:model (pyagentd-named-config--set
               name "model"
               (let ((model (pyagentd-model-read
                             (format-prompt "Model of %s" value name))))
                 (if (equal model "") value model))))
      (:permissions (pyagentd-named-config--permissions name value)))))

(defun pyagentd-named-config-reset ()
  "Reset the value at point to its default."
  (interactive nil pyagentd-named-config-mode)
  (let ((row (pyagentd-table-row)))
    (unless (memq (plist-get row :key) '(:model :permissions))
      (user-error "`%s' has no default" (plist-get row :id)))
    (pyagentd-named-config--set pyagentd-named-config--name
                                (plist-get row :id) nil)))

(defun pyagentd-named-config-documents ()
  "Visit the documents of this agent, which are in its prompt."
  (interactive nil pyagentd-named-config-mode)
  (dired-other-window (expand-file-name "docs")))

;;;; The mode

(defvar pyagentd-named-config-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-named-config-edit)
    (define-key map "e" #'pyagentd-named-config-edit)
    (define-key map "D" #'pyagentd-named-config-reset)
    (define-key map "W" #'pyagentd-named-config-documents)
    map)
  "Keymap of `pyagentd-named-config-mode'.")

(define-derived-mode pyagentd-named-config-mode pyagentd-table-mode
  "Agent"
  "Major mode for the configuration of a named agent.

\\{pyagentd-named-config-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Key" 14 nil) ("Value" 44 nil)
                               ("What it is" 0 nil)]
        pyagentd-table-help '(("RET" "change") ("D" "default")
                              ("W" "its documents") ("g" "refresh")
                              ("q" "close")))
  (setq-local revert-buffer-function #'pyagentd-named-config--revert)
  (tabulated-list-init-header))

(defun pyagentd-agent-config (name)
  "Show and edit the configuration of the agent NAME."
  (interactive (list (or (pyagentd-named-here)
                         (pyagentd-named-read "Configure agent"))))
  (let ((buffer (get-buffer-create (format "*pyagentd agent %s*" name))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-named-config-mode)
        (pyagentd-named-config-mode))
      (setq pyagentd-named-config--name name)
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-named-config)
;;; pyagentd-named-config.el ends here

;;; pyagentd-settings.el --- Model, tools and temperature of one session -*- lexical-binding: t; -*-

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

;; What runs with which settings is written in preset.md.  The Local
;; Variables of a conversation say the same in gptel's words; who changes
;; one of them, with gptel's menu for example, and saves, overrides the
;; preset for that session.  The header line shows that with a star.

;;; Code:

(require 'map)
(require 'pyagentd-core)
(require 'pyagentd-later)
(require 'pyagentd-block)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-place)
(require 'pyagentd-yaml)

(defvar-local pyagentd-settings--own nil
  "Alist of `pyagentd-block-settings' and what preset.md says about them.")
(defvar-local pyagentd-settings--saved nil
  "The same with the values the file has as far as we know.")

(defvar-local pyagentd-settings-thinking nil
  "How much the model thinks here, a string; nil for not at all.")
(defvar-local pyagentd-settings-next nil
  "Plist of settings for the next message only, as on the wire.
Keys are :model, :temperature, :max-tokens, :thinking, :system and
:tools, one string of names.")

(defvar-local pyagentd-settings-next-only nil
  "Non-nil if settings are being chosen for the next message only.")

(pyagentd-permanent-local 'pyagentd-settings--own 'pyagentd-settings--saved
                          'pyagentd-settings-thinking 'pyagentd-settings-next
                          'pyagentd-settings-next-only)

(defconst pyagentd-settings--keys
  '((gptel-model . :model) (gptel--backend-name . :backend)
    (gptel--tool-names . :tools) (gptel-temperature . :temperature)
    (gptel-max-tokens . :max-tokens))
  "What each variable is called on the wire.")

(defun pyagentd-settings--alist (settings)
  "Return SETTINGS, a plist from the daemon, as an alist of variables."
  (mapcar (pcase-lambda (`(,variable . ,key))
            (let ((value (plist-get settings key)))
              (cons variable
                    (if (and value (eq variable 'gptel-model))
                        (intern (format "%s" value))
                      value))))
          pyagentd-settings--keys))

(defun pyagentd-settings--current ()
  "Return an alist of the variables and their values here."
  (mapcar (lambda (variable)
            (cons variable (pyagentd-block-get variable)))
          pyagentd-block-settings))

(defun pyagentd-settings-overridden ()
  "Return the variables that have a value other than preset.md says."
  (seq-filter (lambda (variable)
                (let ((value (pyagentd-block-get variable)))
                  (and value
                       (not (equal value
                                   (alist-get variable
                                              pyagentd-settings--own))))))
              pyagentd-block-settings))

(defun pyagentd-settings--changed-p (variable)
  "Return non-nil if VARIABLE was changed since the file was written."
  (not (equal (alist-get variable pyagentd-settings--saved)
              (pyagentd-block-get variable))))

(defun pyagentd-settings-unsaved-p ()
  "Return non-nil if a setting was changed since the file was written."
  (and pyagentd-settings--saved
       (seq-some #'pyagentd-settings--changed-p pyagentd-block-settings)))

(defun pyagentd-settings-receive (answer)
  "Take the settings in ANSWER of the daemon over.
What the user has changed here and not saved yet stays."
  (let* ((settings (plist-get answer :settings))
         (unsaved (seq-filter #'pyagentd-settings--changed-p
                              (and pyagentd-settings--saved
                                   pyagentd-block-settings)))
         (before pyagentd-settings--saved))
    (pcase-dolist (`(,variable . ,value) (pyagentd-settings--alist settings))
      (when (and (not (memq variable unsaved))
                 (or value (and (eq variable 'gptel--tool-names)
                                (plist-member settings :tools))))
        (pyagentd-block-set variable value)))
    (setq pyagentd-settings--own
          (pyagentd-settings--alist (or (plist-get answer :own-settings)
                                        settings)))
    (when (plist-member answer :gptel-tools)
      (setq pyagentd-block-tools
            (cons (alist-get 'gptel--tool-names pyagentd-settings--own)
                  (plist-get answer :gptel-tools))))
    (setq pyagentd-settings--saved (pyagentd-settings--current))
    (dolist (variable unsaved)
      (setf (alist-get variable pyagentd-settings--saved)
            (alist-get variable before))))
  (setq pyagentd-settings-thinking (plist-get answer :thinking))
  (pyagentd-settings-show (plist-get answer :model)))

(defun pyagentd-settings--read ()
  "Show the settings that the files have; the daemon has not answered yet.
They are those in the Local Variables, and of what these do not say those
in preset.md."
  (unless pyagentd-settings--own
    (condition-case err
        (pyagentd-settings--from-files)
      ((pyagentd-yaml-unknown file-error)
       (pyagentd-log 'debug "%s: the daemon will read its settings: %s"
                     (buffer-name) (error-message-string err))))
    (pyagentd-settings-show)))

(defun pyagentd-settings--from-files ()
  "Take over the name of the preset, and the settings that the block lacks."
  (when-let ((text (pyagentd-yaml-text
                    (pyagentd-place-scope-plan pyagentd--branch-dir))))
    (setq pyagentd-status-preset
          (plist-get (pyagentd-yaml-read text t) :preset)))
  (when-let ((text (and (not (file-exists-p     ; which owns a named agent's
                              (expand-file-name "agent.json"
                                                pyagentd--session-dir)))
                        (pyagentd-yaml-text
                         (pyagentd-place-preset pyagentd--branch-dir)))))
    (setq pyagentd-settings--own
          (pyagentd-settings--alist (pyagentd-yaml-preset text)))
    (unless (assq 'gptel--tool-names pyagentd-block--settings)
      (setq pyagentd-block-tools
            (list (alist-get 'gptel--tool-names pyagentd-settings--own))))
    (pcase-dolist (`(,variable . ,value) pyagentd-settings--own)
      (unless (assq variable pyagentd-block--settings)
        (pyagentd-block-set variable value)))
    (setq pyagentd-settings--saved (pyagentd-settings--current))))

(add-hook 'pyagentd-session-read-hook #'pyagentd-settings--read)

;; All of them are set, those without a value too, so that nothing is
;; inherited from elsewhere.
(defun pyagentd-settings-apply (settings)
  "Let this session use SETTINGS, a plist as on the wire, and nothing else."
  (pcase-dolist (`(,variable . ,value) (pyagentd-settings--alist settings))
    (pyagentd-block-set variable value))
  (pyagentd-settings-show (plist-get settings :model)))

(defun pyagentd-settings--stand-in-p ()
  "Return non-nil if no model answers here, but what stands in for one."
  (string-match-p "\\`offline\\(?:/\\|\\'\\)"
                  (format "%s" (or (getenv "PYAGENTD_BACKEND")
                                   (pyagentd-block-get 'gptel--backend-name)
                                   ""))))

(defun pyagentd-settings-show (&optional model)
  "Show in the header line which MODEL runs here, with a star for an override."
  (setq pyagentd-status-model
        (if (pyagentd-settings--stand-in-p) "offline stand-in"
          (concat (format "%s" (or (pyagentd-block-get 'gptel-model) model ""))
                  (and (pyagentd-settings-overridden) "*"))))
  (pyagentd-status-refresh))

(defun pyagentd-settings--segment ()
  "Return for the header line what is set for the next message only."
  (when pyagentd-settings-next
    (pyagentd-status-button
     (propertize
      (format "[next: %s]"
              (mapconcat (lambda (key) (substring (symbol-name key) 1))
                         (map-keys pyagentd-settings-next) ", "))
      'face 'warning)
     'pyagentd-menu-model "Settings of the next message")))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-settings--segment)

(defun pyagentd-settings--after-save ()
  "Note what the file says now."
  (when pyagentd-settings--own
    (setq pyagentd-settings--saved (pyagentd-settings--current))
    (pyagentd-settings-show)))

(add-hook 'pyagentd-session-saved-hook #'pyagentd-settings--after-save)

;;;; Commands

(defun pyagentd-settings--save ()
  "Save the buffer, so that the daemon knows its settings."
  (unless pyagentd-mode (user-error "Not a session"))
  (when (pyagentd-settings-unsaved-p)
    (set-buffer-modified-p t))
  (pyagentd-session-save))

(defun pyagentd-settings--named (names)
  "Return NAMES of settings as a phrase."
  (mapconcat (lambda (name) (format "%s" name)) names ", "))

;;;###autoload
(defun pyagentd-keep-settings ()
  "Write the settings that were changed in this session to its preset.md."
  (interactive)
  (pyagentd-settings--save)
  (pyagentd-later-here 'keep-settings (list :branch pyagentd--branch-dir)
                       #'pyagentd-settings--kept))

(defun pyagentd-settings--kept (answer)
  "Take over and say what was written to preset.md, as ANSWER tells."
  (pyagentd-settings-receive answer)
  (message (if (plist-get answer :kept) "Saved to preset.md: %s"
             "No settings differ from preset.md")
           (pyagentd-settings--named (plist-get answer :kept))))

;;;###autoload
(defun pyagentd-drop-settings ()
  "Go back to the settings in the preset.md of this session."
  (interactive)
  (pyagentd-settings--save)
  (pyagentd-later-here 'drop-settings (list :branch pyagentd--branch-dir)
                       #'pyagentd-settings--dropped))

(defun pyagentd-settings--dropped (answer)
  "Go back to the settings of preset.md, which ANSWER tells."
  (setq pyagentd-settings--saved nil)
  (dolist (variable pyagentd-block-settings)
    (pyagentd-block-set variable nil))
  (pyagentd-settings-receive answer)
  (unless pyagentd-session-viewing
    (set-buffer-modified-p t)
    (pyagentd-session-save))
  (message (if (plist-get answer :dropped) "Reset to preset.md: %s"
             "No settings differ from preset.md")
           (pyagentd-settings--named (plist-get answer :dropped))))

(provide 'pyagentd-settings)
;;; pyagentd-settings.el ends here

;;; pyagentd-model.el --- Choose the model -*- lexical-binding: t; -*-

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

;; Which model answers in a session.  It is chosen in the buffer, as with
;; gptel, and holds for this session; the daemon says which there are.
;; Nobody waits for that: who is quicker types a name.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-block)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-settings)

(defvar pyagentd-model-history nil
  "Names of models that were chosen.")

(defvar pyagentd-model--known nil
  "Names of the models that the daemon said there are.")

(defun pyagentd-model--names (answer)
  "Return the names of the models in ANSWER, one of the daemon.
Those of a provider without a key cannot be had."
  (delete-dups
   (seq-mapcat (lambda (provider)
                 (and (plist-get provider :valid)
                      (copy-sequence (plist-get provider :models))))
               (plist-get answer :providers))))

(defun pyagentd-model--fetch ()
  "Ask the daemon which models there are; it may take its time."
  (pyagentd-rpc-call-async
   'models nil
   :timeout (* 3 pyagentd-call-timeout)
   :success (lambda (answer)
              (setq pyagentd-model--known (pyagentd-model--names answer)))
   :error #'ignore))

(defun pyagentd-model--table (string predicate action)
  "Complete STRING, a name of a model; PREDICATE and ACTION as usual.
What the daemon says meanwhile is offered too."
  (if (eq action 'metadata)
      '(metadata (category . pyagentd-model))
    (complete-with-action
     action (delete-dups (append (copy-sequence pyagentd-model--known)
                                 (copy-sequence pyagentd-model-history)))
     string predicate)))

(defun pyagentd-model-read (prompt)
  "Read the name of a model with PROMPT; it may be empty."
  (pyagentd-model--fetch)
  (completing-read prompt #'pyagentd-model--table nil nil nil
                   'pyagentd-model-history))

(defun pyagentd-model--read ()
  "Read the name of a model for this session."
  (unless (bound-and-true-p pyagentd-mode) (user-error "Not a session"))
  (pyagentd-model-read
   (format-prompt "Model of this session, empty for that of preset.md"
                  (pyagentd-block-get 'gptel-model))))

;;;###autoload
(defun pyagentd-choose-model (name)
  "Let the model NAME answer in this session from the next message on.
The empty string stands for the model of the session's preset.md.
\\[pyagentd-keep-settings] writes the choice to preset.md."
  (interactive (list (pyagentd-model--read)))
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (let ((model (if (string-empty-p name)
                     (alist-get 'gptel-model pyagentd-settings--own)
                   (intern name))))
      (pyagentd-block-set 'gptel-model model)
      (pyagentd-settings-show)
      (unless pyagentd-session-viewing
        (set-buffer-modified-p t)
        (pyagentd-session-save))
      (message "%s answers from the next message on" (or model "The preset's")))))

(provide 'pyagentd-model)
;;; pyagentd-model.el ends here

;;; pyagentd-env.el --- Environment and key of a run -*- lexical-binding: t; -*-

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

;; A run uses the environment and the key of whoever started it, not those
;; of the daemon.  They go over the socket with the request and are held
;; in memory only.

;;; Code:

(require 'auth-source)
(require 'pyagentd-core)

(defcustom pyagentd-environment
  '("PYAGENTD_BACKEND" "ANTHROPIC_BASE_URL" "ANTHROPIC_API_KEY" "OPENAI_API_KEY"
    "DEEPSEEK_API_KEY" "OPENROUTER_API_KEY" "GROQ_API_KEY" "MISTRAL_API_KEY"
    "XAI_API_KEY" "PATH")
  "Environment variables to pass to runs that you start in this buffer.
A key is sent only to the provider whose variable it is in."
  :type '(repeat string)
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-api-key-host "api.anthropic.com"
  "Host under which auth-source finds Anthropic's API key, with user \"apikey\".
nil means do not look there."
  :type '(choice string (const :tag "Do not look" nil))
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defun pyagentd-env-variables ()
  "Return the plist of environment variables to send."
  (let (plist)
    (dolist (name pyagentd-environment plist)
      (when-let ((value (getenv name)))
        (setq plist (plist-put plist (intern (concat ":" name)) value))))))

(defun pyagentd-env-key ()
  "Return the API key from auth-source, or nil if there is or needs none."
  (unless (or (null pyagentd-api-key-host)
              (equal (getenv "PYAGENTD_BACKEND") "offline")
              (getenv "ANTHROPIC_API_KEY"))
    (when-let* ((entry (car (auth-source-search :host pyagentd-api-key-host
                                                :user "apikey" :max 1)))
                (secret (plist-get entry :secret)))
      (if (functionp secret) (funcall secret) secret))))

(provide 'pyagentd-env)
;;; pyagentd-env.el ends here

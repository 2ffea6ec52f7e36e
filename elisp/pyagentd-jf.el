;;; pyagentd-jf.el --- Names of the specifications -*- lexical-binding: t; -*-

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

;; The specifications call things jf/gptel-….  Code written to them runs
;; after (require 'pyagentd-jf).  Names of what happens in the daemon now,
;; such as the reading of presets, have no equivalent here.

;;; Code:

(require 'pyagentd)
(require 'pyagentd-overlay)

;;;; Variables

(defvaralias 'jf/gptel-sessions-directory 'pyagentd-sessions-directory)
(defvaralias 'jf/gptel-log-level 'pyagentd-log-level)
(defvaralias 'jf/gptel-autosave-idle-time 'pyagentd-autosave-idle-time)
(defvaralias 'jf/gptel-autosave-enabled 'pyagentd-autosave-enabled)
(defvaralias 'jf/gptel--session-id 'pyagentd--session-id)
(defvaralias 'jf/gptel--session-dir 'pyagentd--session-dir)
(defvaralias 'jf/gptel--branch-name 'pyagentd--branch-name)
(defvaralias 'jf/gptel--branch-dir 'pyagentd--branch-dir)
(defvaralias 'jf/gptel-persistent-agent--fsm-handlers 'pyagentd-overlay-handlers)

;;;; Functions

(defalias 'jf/gptel-persistent-session #'pyagentd-session)
(defalias 'jf/gptel-session-create-persistent #'pyagentd-session)
(defalias 'jf/gptel--maybe-initialize-session-buffer #'pyagentd-maybe-enable)
(defalias 'jf/gptel--auto-save-session-buffer #'pyagentd-jf-auto-save)
(defalias 'jf/gptel--register-session #'pyagentd-place-register)
(defalias 'jf/gptel--branches-dir-path #'pyagentd-place-branches)
(defalias 'jf/gptel--branch-dir-path #'pyagentd-place-branch)
(defalias 'jf/gptel--agents-dir-path #'pyagentd-place-agents)
(defalias 'jf/gptel--context-file-path #'pyagentd-place-conversation)
(defalias 'jf/gptel--scope-plan-file-path #'pyagentd-place-scope-plan)
(defalias 'jf/gptel--preset-file-path #'pyagentd-place-preset)
(defalias 'jf/gptel--list-session-directories #'pyagentd-place-sessions)
(defalias 'jf/gptel--list-branches #'pyagentd-place-list-branches)
(defalias 'jf/gptel--find-all-branches-with-agents
  #'pyagentd-place-all-branches)
(defalias 'jf/gptel--log #'pyagentd-log)
(defalias 'jf/gptel-persistent-agent--indicate-wait
  #'pyagentd-overlay-indicate-wait)
(defalias 'jf/gptel-persistent-agent--indicate-tool-call
  #'pyagentd-overlay-indicate-tool-call)

(defun pyagentd-jf-auto-save (&rest _)
  "Save the session in this buffer, if it is one."
  (when (and pyagentd--session-dir buffer-file-name)
    (pyagentd-session-save)))

(provide 'pyagentd-jf)
;;; pyagentd-jf.el ends here

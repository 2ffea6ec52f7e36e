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
;; after (require 'pyagentd-jf): variables are aliases, functions take and
;; return what is specified.  What needs the daemon starts it and waits two
;; seconds at most; `keyboard-quit' ends the wait.

;;; Code:

(require 'pyagentd)
(declare-function pyagentd-branch "pyagentd-branch")
(require 'pyagentd-overlay)

;;;; Variables

(defvaralias 'jf/gptel-sessions-directory 'pyagentd-sessions-directory)
(defvaralias 'jf/gptel-log-level 'pyagentd-log-level)
(defvaralias 'jf/gptel-log-to-file 'pyagentd-log-to-file)
(defvaralias 'jf/gptel-autosave-idle-time 'pyagentd-autosave-idle-time)
(defvaralias 'jf/gptel-autosave-enabled 'pyagentd-autosave-enabled)
(defvaralias 'jf/gptel--session-id 'pyagentd--session-id)
(defvaralias 'jf/gptel--session-dir 'pyagentd--session-dir)
(defvaralias 'jf/gptel--branch-name 'pyagentd--branch-name)
(defvaralias 'jf/gptel--branch-dir 'pyagentd--branch-dir)
(defvaralias 'jf/gptel-persistent-agent--fsm-handlers 'pyagentd-overlay-handlers)

;;;; Functions that only look at files and buffers

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

;;;; Functions that need the daemon

(defconst pyagentd-jf--timeout 2
  "Seconds after which a call of the daemon is given up.")

(defmacro pyagentd-jf--in-time (&rest body)
  "Evaluate BODY, in which no wait for the daemon is long."
  (declare (indent 0) (debug t))
  `(let ((pyagentd-start-timeout pyagentd-jf--timeout)
         (pyagentd-call-timeout pyagentd-jf--timeout))
     ,@body))

(defun pyagentd-jf--call (method plist)
  "Return the answer of the daemon to METHOD with PLIST, in time."
  (let ((deadline (+ (float-time) pyagentd-jf--timeout)))
    (pyagentd-jf--in-time
      (pyagentd-rpc-connect t)
      (pyagentd-rpc-call method plist (max 0.1 (- deadline (float-time)))))))

(defun jf/gptel-persistent-session (name &optional preset)
  "Make a session called NAME and open its conversation; return the buffer.
PRESET is the name of its preset."
  (interactive "sSession name: ")
  (pyagentd-jf--in-time (pyagentd-session name preset)))

(defun jf/gptel-session-create-persistent (session-id session-dir
                                           &optional preset projects
                                           activity-org-file)
  "Make a session in SESSION-DIR, known as SESSION-ID, and open it.
See `pyagentd-session-create' for PRESET, PROJECTS and
ACTIVITY-ORG-FILE.  Return the buffer."
  (pyagentd-jf--in-time
    (pyagentd-session-create session-id session-dir preset projects
                             activity-org-file)))

(defun jf/gptel-branch-session (&optional name)
  "Begin a branch at a prompt of this session, called NAME if given."
  (interactive)
  (pyagentd-jf--in-time (pyagentd-branch name)))

(defun jf/gptel--read-session-metadata (branch-dir)
  "Return what scope-plan.yml in BRANCH-DIR says, or nil.
That is a plist with :session-id, :created, :updated, :preset and, of an
agent, :type and :parent-session-id."
  (pyagentd-jf--metadata 'session-metadata branch-dir))

(defun jf/gptel--read-preset-metadata (branch-dir)
  "Return the front matter of preset.md in BRANCH-DIR, or nil.
That is a plist with :backend, :model and what else it has."
  (pyagentd-jf--metadata 'preset-metadata branch-dir))

(defun jf/gptel--read-branch-metadata (branch-dir)
  "Return what branch-metadata.yml in BRANCH-DIR says, or nil.
That is a plist with :parent-branch, :created and maybe
:branch-point-position."
  (pyagentd-jf--metadata 'branch-metadata branch-dir))

(defun jf/gptel--is-agent-session-p (branch-dir)
  "Return t if the session in BRANCH-DIR is an agent, by its metadata."
  (equal (plist-get (jf/gptel--read-session-metadata branch-dir) :type)
         "agent"))

(defun pyagentd-jf--metadata (method branch-dir)
  "Return the answer to METHOD for BRANCH-DIR."
  (pyagentd-jf--call method (list :directory (expand-file-name branch-dir))))

(provide 'pyagentd-jf)
;;; pyagentd-jf.el ends here

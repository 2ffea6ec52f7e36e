;;; pyagentd-gptel.el --- PersistentAgent as a tool of gptel -*- lexical-binding: t; -*-

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

;;; Commentary:

;; For people who converse with gptel itself in a session's buffer: its
;; models may spawn our agents.
;;
;;   (with-eval-after-load 'gptel (pyagentd-gptel-register))

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-jf)

(declare-function gptel-make-tool "ext:gptel-request")

(defconst pyagentd-gptel--description
  "Delegate a self-contained task to a sub-agent.  It works in its own \
session with its own preset, tools and scope, sees nothing of this \
conversation, and its answer comes back as the result.  Presets:\n"
  "What the model is told of the tool, before the presets.")

(defun pyagentd-gptel--presets ()
  "Return the presets an agent may have, as the daemon describes them."
  (seq-filter (lambda (preset)
                (member (plist-get preset :mode) '("subagent" "all")))
              (plist-get (pyagentd-jf-call 'presets nil) :presets)))

(defun pyagentd-gptel--args (names)
  "Return the arguments of the tool, with NAMES of presets."
  `((:name "preset" :type string :enum [,@names]
     :description "Which kind of agent")
    (:name "description" :type string
     :description "The task in three to five words")
    (:name "prompt" :type string
     :description "The whole task, for a reader who knows nothing else")
    (:name "allowed_paths" :type array :items (:type string) :optional t
     :description "Absolute glob patterns it may read; default: yours")
    (:name "denied_paths" :type array :items (:type string) :optional t
     :description "Absolute glob patterns it may never touch")))

;;;###autoload
(defun pyagentd-gptel-register ()
  "Register PersistentAgent as a tool of gptel, with the presets there are.
It works in buffers of sessions, and asks before it spawns an agent."
  (interactive)
  (unless (fboundp 'gptel-make-tool)
    (user-error "Install gptel first; this is about its tools"))
  (let ((presets (pyagentd-gptel--presets)))
    (gptel-make-tool
     :name "PersistentAgent"
     :description (concat pyagentd-gptel--description
                          (mapconcat (lambda (preset)
                                       (format "- %s: %s"
                                               (plist-get preset :name)
                                               (plist-get preset :description)))
                                     presets "\n"))
     :function #'jf/gptel-persistent-agent--task
     :args (pyagentd-gptel--args (mapcar (lambda (preset)
                                           (plist-get preset :name))
                                         presets))
     :category "gptel-persistent"
     :async t :confirm t :include t)))

(provide 'pyagentd-gptel)
;;; pyagentd-gptel.el ends here

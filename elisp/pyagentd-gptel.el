;;; pyagentd-gptel.el --- Use with gptel: tools, chats and backends -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; For users of gptel.
;;
;; - A model that gptel itself calls, in a session buffer, can spawn our
;;   agents: (with-eval-after-load 'gptel (pyagentd-gptel-register))
;; - Our agents can call tools made with `gptel-make-tool':
;;   `pyagentd-gptel-offer-tools'.
;; - `pyagentd-import-gptel' makes a session from a chat of gptel.
;; - `pyagentd-gptel--import-backends' copies gptel's backends to the
;;   daemon's configuration.
;;
;; Nothing here loads gptel.

;;; Code:

(require 'pyagentd-jf)
(require 'pyagentd-sessions)

(declare-function gptel-make-tool "ext:gptel-request")
(declare-function gptel-tool-name "ext:gptel-request")
(declare-function gptel-tool-function "ext:gptel-request")
(declare-function gptel-tool-description "ext:gptel-request")
(declare-function gptel-tool-args "ext:gptel-request")
(declare-function gptel-tool-async "ext:gptel-request")
(declare-function gptel-tool-category "ext:gptel-request")
(declare-function gptel-tool-confirm "ext:gptel-request")
(declare-function gptel-tool-include "ext:gptel-request")
(declare-function gptel-backend-name "ext:gptel-request")
(declare-function gptel-backend-protocol "ext:gptel-request")
(declare-function gptel-backend-host "ext:gptel-request")
(declare-function gptel-backend-endpoint "ext:gptel-request")
(declare-function gptel-backend-models "ext:gptel-request")
(declare-function gptel-backend-key "ext:gptel-request")
(defvar gptel--known-backends)
(defvar gptel--known-tools)
(defvar gptel-backend)
(defvar gptel-model)
(defvar gptel-tools)
(defvar gptel-temperature)

;;;; PersistentAgent as a tool of gptel

(defun pyagentd-gptel--make (presets)
  "Register the tool with gptel, with PRESETS, plists from the daemon."
  (gptel-make-tool
   :name "PersistentAgent"
   :description
   (concat "Delegate a self-contained task to a sub-agent.  It works in its own \
session with its own preset, tools and scope, sees nothing of this \
conversation, and its answer comes back as the result."
           (and presets "  Presets:\n")
           (mapconcat (lambda (preset)
                        (format "- %s: %s" (plist-get preset :name)
                                (plist-get preset :description)))
                      presets "\n"))
   :function #'jf/gptel-persistent-agent--task
   :args
   `((:name "preset" :type string
            ,@(and presets
                   `(:enum [,@(mapcar (lambda (preset) (plist-get preset :name))
                                      presets)]))
            :description "Which kind of agent")
     (:name "description" :type string
            :description "The task in three to five words")
     (:name "prompt" :type string
            :description "The whole task, for a reader who knows nothing else")
     (:name "allowed_paths" :type array :items (:type string) :optional t
            :description "Absolute glob patterns it may read; default: yours")
     (:name "denied_paths" :type array :items (:type string) :optional t
            :description "Absolute glob patterns it may never touch"))
   :category "gptel-persistent"
   :async t :confirm t :include t))

(defun pyagentd-gptel--refresh ()
  "Register the tool again, with the daemon's current presets."
  (pyagentd-rpc-call-async
   'presets nil
   :success
   (lambda (answer)
     (pyagentd-gptel--make
      (seq-filter (lambda (preset)
                    (member (plist-get preset :mode) '("subagent" "all")))
                  (plist-get answer :presets))))))

(defun pyagentd-gptel-register ()
  "Register PersistentAgent as a tool of gptel, in \"gptel-persistent\".
It works in buffers of sessions, and asks before it spawns an agent.
Its description lists the presets once there is a daemon."
  (unless (fboundp 'gptel-make-tool)
    (user-error "Package gptel is not installed"))
  (pyagentd-gptel--make nil)
  (add-hook 'pyagentd-rpc-connected-hook #'pyagentd-gptel--refresh)
  (when (pyagentd-rpc-connected-p)
    (pyagentd-gptel--refresh)))

;;;; Tools of gptel as tools of our agents

(defun pyagentd-gptel-offer-tools (&optional names)
  "Offer our agents the tools made with `gptel-make-tool'.
NAMES selects some of them, by default all.  A preset determines which of
them its agents have: see `pyagentd-make-tool'.  Return their names."
  (interactive)
  (unless (boundp 'gptel--known-tools)
    (user-error "Load gptel and define tools first"))
  (let (offered)
    (pcase-dolist (`(,name . ,tool) (seq-mapcat #'cdr gptel--known-tools))
      (unless (or (equal name "PersistentAgent")
                  (and names (not (member name names))))
        (pyagentd-make-tool
         :name (gptel-tool-name tool)
         :function (gptel-tool-function tool)
         :description (gptel-tool-description tool)
         :args (gptel-tool-args tool)
         :async (gptel-tool-async tool)
         :category (gptel-tool-category tool)
         :confirm (gptel-tool-confirm tool)
         :include (gptel-tool-include tool))
        (push name offered)))
    (when (called-interactively-p 'any)
      (message "%d tools of gptel are offered to agents" (length offered)))
    (nreverse offered)))

;;;; Chats

(defun pyagentd-gptel--chat ()
  "Return the chat in this buffer as gptel would save it in Markdown."
  (let* ((source (current-buffer))
         (settings
          `((gptel-model . ,gptel-model)
            (gptel--backend-name
             . ,(and gptel-backend (gptel-backend-name gptel-backend)))
            (gptel--tool-names . ,(mapcar #'gptel-tool-name gptel-tools))
            (gptel-temperature . ,gptel-temperature)))
         (system (seq-find #'stringp
                           (ensure-list
                            (or (bound-and-true-p gptel-system-prompt)
                                (bound-and-true-p gptel--system-message))))))
    (with-temp-buffer
      (insert (with-current-buffer source
                (save-restriction (widen) (buffer-string))))
      ;; The block was saved earlier; the text properties are current.
      (when-let ((block (pyagentd-locals-find)))
        (delete-region (plist-get block :start) (plist-get block :end)))
      (pcase-dolist (`(,variable . ,value) settings)
        (when value (pyagentd-block-set variable value)))
      (setq pyagentd-block--foreign
            (and system
                 (list (let ((print-escape-newlines t))
                         (format "gptel-system-prompt: %S" system)))))
      (concat (string-trim-right (buffer-substring-no-properties
                                  (point-min) (point-max))
                                 "\n+")
              "\n\n" (pyagentd-block-text)))))

(defun pyagentd-import-gptel (buffer name)
  "Create a session called NAME from the chat in BUFFER, and visit it.
BUFFER need not be saved, and does not change: roles, model, tools and
system prompt are the current ones of gptel there.  For a chat in a file
that is not open use `pyagentd-import'."
  (interactive
   (let ((buffer (current-buffer)))
     (unless (bound-and-true-p gptel-mode)
       (let ((chats (mapcar #'buffer-name
                            (seq-filter
                             (lambda (buffer)
                               (and (boundp 'gptel-mode)
                                    (buffer-local-value 'gptel-mode buffer)))
                             (buffer-list)))))
         (unless chats (user-error "No chat of gptel is open"))
         (setq buffer (get-buffer (pyagentd-choose "Chat: " chats
                                                   :default (car chats))))))
     (list buffer (read-string "Session name: "
                               (string-trim (buffer-name buffer) "\\*"
                                            "\\*")))))
  (with-current-buffer buffer
    (when (derived-mode-p 'org-mode)
      (user-error "Save this Org chat, and import it with M-x pyagentd-import"))
    (let ((chat (pyagentd-gptel--chat))
          (root (pyagentd--project-root)))
      (pyagentd-start
       (lambda ()
         (let* ((coding-system-for-write 'utf-8-unix)
                (file (make-temp-file "pyagentd-chat-" nil ".md" chat))
                (with (lambda (function)
                        (lambda (value)
                          (delete-file file)
                          (funcall function value)))))
           (pyagentd-later
            'import (list :file file :name name :root root)
            (funcall with #'pyagentd-exchange--imported)
            pyagentd-later-patience
            (funcall with #'pyagentd-later-tell)
            #'pyagentd-manage-late)))))))

;;;; Backends

(defun pyagentd-gptel--import-backends ()
  "Write gptel's backends to the configuration of pyagentd.
The text is shown first, for editing, saving or discarding.  API keys are
not written: `pyagentd-keys' lists the hosts whose keys come from gptel or
auth-source."
  (interactive)
  (unless (bound-and-true-p gptel--known-backends)
    (user-error "Load gptel and make its backends first"))
  (let ((backends
         (mapcar (pcase-lambda (`(,_ . ,backend))
                   (list :name (gptel-backend-name backend)
                         :type (symbol-name (type-of backend))
                         :protocol (gptel-backend-protocol backend)
                         :host (gptel-backend-host backend)
                         :endpoint (gptel-backend-endpoint backend)
                         :models (mapcar
                                  (lambda (model)
                                    (cl-loop for key in '(:context-window
                                                          :input-cost :output-cost)
                                             for value = (get model key)
                                             when value
                                             append (list key value) into known
                                             finally return
                                             (cl-list* :name (symbol-name model)
                                                       known)))
                                  (gptel-backend-models backend))
                         :key (and (gptel-backend-key backend) t)))
                 (reverse gptel--known-backends)))
        (current (and (bound-and-true-p gptel-backend)
                      (gptel-backend-name gptel-backend))))
    (pyagentd-later
     'gptel-backends (list :backends backends :current (or current ""))
     #'pyagentd-gptel--show)))

(defun pyagentd-gptel--show (answer)
  "Show the configuration in ANSWER, from the daemon; write it on saving."
  (let ((notes (plist-get answer :notes))
        (keys (plist-get answer :keys)))
    (if (string-empty-p (plist-get answer :text))
        (progn
          (pyagentd-gptel--keep-keys keys)
          (message "%s" (string-join
                         (cons "There is nothing to write" notes) "\n")))
      (pyagentd-edit
       "backends of gptel, for config.toml"
       (concat (mapconcat (lambda (note) (format "# Left out: %s\n" note))
                          notes "")
               (and notes "\n")
               (mapconcat (lambda (key)
                            (format "# Asked of gptel or auth-source: the key \
for %s\n" (cadr key)))
                          keys "")
               (and keys "\n")
               (plist-get answer :text))
       (if (fboundp 'conf-toml-mode) #'conf-toml-mode #'text-mode)
       (lambda (text close)
         (pyagentd-later
          'add-configuration (list :text text)
          (lambda (file)
            (funcall close)
            (pyagentd-gptel--keep-keys keys)
            (message "Written to %s; the daemon reads it when it \
starts (`pyagentd stop' ends this one)"
                     file))))))))

(defun pyagentd-gptel--keep-keys (keys)
  "Add KEYS, lists (VARIABLE HOST), to `pyagentd-keys', and save that."
  (pcase-dolist (`(,variable ,host) keys)
    (setf (alist-get variable pyagentd-keys nil nil #'equal) host))
  (when keys
    (condition-case nil
        (customize-save-variable 'pyagentd-keys pyagentd-keys)
      ;; Emacs without an init file cannot save options.
      (error (message "`pyagentd-keys' is set in this Emacs only")))))

(provide 'pyagentd-gptel)
;;; pyagentd-gptel.el ends here

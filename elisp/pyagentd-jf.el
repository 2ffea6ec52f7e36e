;;; pyagentd-jf.el --- The functions called jf/gptel-... -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; For code that uses functions and variables called jf/gptel-…: the variables
;; are aliases, and the manual describes each function.  Functions that read
;; metadata and presets read the files themselves; they ask the daemon only
;; for YAML beyond the plain kind that it writes.
;;
;; The others start the daemon and wait for its answer, for at most the larger
;; of `pyagentd-start-timeout' and `pyagentd-call-timeout'; `keyboard-quit'
;; ends the wait.  Called interactively, the commands do not wait: they call
;; `pyagentd-session' and `pyagentd-branch'.

;;; Code:

(require 'pyagentd)

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

;;;; Functions that need only files and buffers

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
  "Save this buffer if it is a session."
  (when (and pyagentd--session-dir buffer-file-name)
    (pyagentd-session-save)))

;; pyagentd saves the conversation without this hook; it runs the hook for
;; code that adds its own functions to it.

(defvar gptel-post-response-functions)

(put 'jf/gptel--auto-save-session-buffer 'permanent-local-hook t)

(defun pyagentd-jf--add-hook ()
  "Add saving this session to `gptel-post-response-functions'."
  (add-hook 'gptel-post-response-functions
            #'jf/gptel--auto-save-session-buffer nil t))

(defun pyagentd-jf--responded (_run)
  "Run `gptel-post-response-functions' after a response."
  (let ((end (pyagentd-insert-position)))
    (pyagentd-run-functions 'gptel-post-response-functions
                            (min end (or (car pyagentd-insert--cell) end)) end)))

(add-hook 'pyagentd-session-read-hook #'pyagentd-jf--add-hook)
(add-hook 'pyagentd-run-finished-functions #'pyagentd-jf--responded)

;;;; Functions that need the daemon

(defun pyagentd-jf-call (method plist)
  "Return the daemon's answer to METHOD with arguments PLIST, waiting for it.
Only the functions in this file wait."
  (pyagentd-rpc-call method plist (pyagentd-jf--timeout)))

(defun pyagentd-jf--timeout ()
  "Return the seconds to wait; a daemon slow to start is slow to answer, too."
  (max pyagentd-call-timeout pyagentd-start-timeout))

(defvar pyagentd-jf--made nil
  "Calls of `pyagentd-jf--make' that were not answered yet, (CALL . OUTCOME).
CALL is a list (METHOD PLIST).  OUTCOME is a list (t ANSWER) or (nil ERROR),
or nil while there is none.")

(defun pyagentd-jf--make (method plist)
  "Return the answer to METHOD with PLIST, which creates something.
After a timeout or a quit it is created nevertheless; then an equal call
returns that answer, and nothing is created twice."
  (pyagentd-start-and-wait)
  (let* ((call (list method plist))
         (entry (assoc call pyagentd-jf--made)))
    (unless entry
      (setq entry (list call))
      (push entry pyagentd-jf--made)
      (pyagentd-rpc-call-async
       method plist
       :success (lambda (answer) (setcdr entry (list t answer)))
       :error (lambda (err) (setcdr entry (list nil err))))
      ;; Forget a call that was given up and not repeated.
      (run-at-time (max 60 (* 4 (pyagentd-jf--timeout))) nil
                   (lambda ()
                     (setq pyagentd-jf--made (delq entry pyagentd-jf--made)))))
    (unwind-protect (pyagentd-rpc-outcome entry (pyagentd-jf--timeout))
      (when (cdr entry)
        (setq pyagentd-jf--made (delq entry pyagentd-jf--made))))))

(defun jf/gptel-persistent-session (name &optional preset person)
  "Create a session called NAME and open its conversation; return the buffer.
PRESET is the name of its preset.  Needs the daemon.  If PERSON is non-nil,
as interactively, do not wait for it."
  (interactive (list (read-string "Session name: ") nil t))
  (if person (pyagentd-session name preset)
    (pyagentd-here-visit
     (pyagentd-jf--make 'create-session
                        (pyagentd-session-request name preset nil nil)))))

(defun jf/gptel-session-create-persistent (session-id session-dir
                                                      &optional preset projects
                                                      activity-org-file)
  "Create a session in SESSION-DIR with the id SESSION-ID, and open it.
See `pyagentd-session-create' for PRESET, PROJECTS and
ACTIVITY-ORG-FILE.  Return the buffer.  Needs the daemon."
  (pyagentd-here-visit
   (pyagentd-jf--make 'create-session
                      (pyagentd-session-create-request
                       session-id session-dir preset projects
                       activity-org-file))))

;; Edits are sent one after the other: other clients may write in between.
(defun pyagentd-jf--save ()
  "Wait until the daemon has all of this session's text, or save the file."
  (if (pyagentd-sync-attached-p)
      (progn
        (pyagentd-rpc-wait (lambda ()
                             (pyagentd-sync-flush)
                             (not (pyagentd-edit-pending-p)))
                           pyagentd-call-timeout)
        (when (pyagentd-edit-pending-p)
          (user-error "The daemon does not have the text yet; try again")))
    (pyagentd-session-save)
    (when (and (buffer-modified-p) (not buffer-read-only))
      (user-error "Save the session before branching"))))

(defun jf/gptel-branch-session (&optional name prompt side person)
  "Create a branch called NAME at a prompt of this session; return its buffer.
NAME is \"branch\" by default.  PROMPT is the number of the prompt, from 1; by
default it is the prompt at point.  SIDE is `include', which is the default,
or `exclude': then the branch ends before that prompt.  Needs the daemon.  If
PERSON is non-nil, as interactively, ask for all three and do not wait."
  (interactive (list nil nil nil t))
  (if person (pyagentd-branch name side prompt)
    (pcase-let ((`(,branch ,position) (pyagentd-branch-here)))
      (with-current-buffer branch
        (pyagentd-jf--save)
        (pyagentd-branch-visit
         (pyagentd-jf--make
          'branch
          (pyagentd-branch-request
           (pyagentd-branch-point
            (plist-get (pyagentd-jf-call 'branch-points
                                         (list :branch pyagentd--branch-dir))
                       :points)
            prompt position)
           (or side 'include)
           (or name pyagentd-branch-default-name)))
         side)))))

;;;; Metadata

(defun jf/gptel--read-session-metadata (branch-dir)
  "Return the metadata in scope-plan.yml in BRANCH-DIR, or nil.
The value is a plist with :session-id, :created, :updated, :preset and, for
an agent, :type and :parent-session-id."
  (pyagentd-jf--read
   'session-metadata branch-dir (pyagentd-place-scope-plan branch-dir)
   (lambda (text)
     (let ((read (pyagentd-yaml-read text t)))
       (if (or (plist-member read :preset) (not (plist-member read :agent-type)))
           read
         (append read (list :preset (plist-get read :agent-type))))))))

(defun jf/gptel--read-preset-metadata (branch-dir)
  "Return the front matter of preset.md in BRANCH-DIR, or nil.
The value is a plist with :backend, :model and all its other keys."
  (pyagentd-jf--read
   'preset-metadata branch-dir (pyagentd-place-preset branch-dir)
   #'pyagentd-yaml-preset))

(defun jf/gptel--read-branch-metadata (branch-dir)
  "Return the metadata in branch-metadata.yml in BRANCH-DIR, or nil.
The value is a plist with :parent-branch, :created and maybe
:branch-point-position, a number."
  (pyagentd-jf--read
   'branch-metadata branch-dir
   (expand-file-name "branch-metadata.yml" branch-dir)
   (lambda (text)
     (let* ((told (pyagentd-yaml-read text t))
            (position (plist-get told :branch-point-position)))
       (if (and position (string-match-p "\\`[0-9]+\\'" position))
           (plist-put told :branch-point-position
                      (string-to-number position))
         told)))))

(defun jf/gptel--is-agent-session-p (branch-dir)
  "Return t if the session in BRANCH-DIR is an agent, by its metadata."
  (equal (plist-get (jf/gptel--read-session-metadata branch-dir) :type)
         "agent"))

(defun pyagentd-jf--read (method directory file function)
  "Call FUNCTION with the text of FILE in DIRECTORY and return its value.
Return nil if FILE does not exist.  If FUNCTION cannot parse the YAML, return
the daemon's answer to METHOD."
  (condition-case nil
      (if-let ((text (pyagentd-yaml-text file)))
          (funcall function text)
        (pyagentd-log (if (eq method 'branch-metadata) 'debug 'warn)
                      "No %s in %s" (file-name-nondirectory file)
                      (directory-file-name (expand-file-name directory)))
        nil)
    (pyagentd-yaml-unknown
     (pyagentd-jf-call method (list :directory (expand-file-name directory))))))

;;;; Directories and presets of agents

(defun jf/gptel--create-agent-directory (parent-branch-dir preset description)
  "Create a directory for an agent below PARENT-BRANCH-DIR; return its name.
The name is made of PRESET, the time and DESCRIPTION.  The directory is
empty.  Needs the daemon."
  (pyagentd-jf-call
   'create-agent-directory
   (list :directory (expand-file-name parent-branch-dir)
         :preset preset :description description)))

(defun jf/gptel--copy-preset-template (preset directory)
  "Copy the template PRESET to preset.md in DIRECTORY; return the file's name.
Needs the daemon."
  (pyagentd-jf-call
   'copy-preset-template
   (list :preset preset :directory (expand-file-name directory))))

(defun jf/gptel--load-preset-from-file (directory)
  "Return the preset in preset.md in DIRECTORY, or nil if missing or invalid.
The value is a plist with :backend, :model, :temperature, :tools (a list of
names), :system (the text below the front matter) and all its other keys."
  (pyagentd-jf--read
   'load-preset directory (pyagentd-place-preset directory)
   (lambda (text)
     (append (pyagentd-yaml-preset text)
             (list :system (string-trim (cdr (pyagentd-yaml-front text))))))))

(defun jf/gptel--apply-session-preset (&optional preset)
  "Apply the settings of PRESET to the session in this buffer.
PRESET is a plist as returned by `jf/gptel--load-preset-from-file', by
default that of this session.  Only set gptel's variables in this buffer; the
permissions of a session are in its preset.md alone."
  (unless pyagentd--branch-dir
    (user-error "Not a session"))
  (let ((settings (or preset
                      (jf/gptel--load-preset-from-file pyagentd--branch-dir))))
    (unless settings
      (error "Failed to load preset from %s" pyagentd--branch-dir))
    ;; Set variables without a value, too: they inherit no global value.
    (pcase-dolist (`(,variable . ,value) (pyagentd-settings--alist settings))
      (pyagentd-block-set variable value))
    (pyagentd-settings-show (plist-get settings :model))))

(defun jf/gptel-scope--parse-preset-config (file)
  "Return the scope in the preset FILE.
The value is a plist with :paths (a plist of :read, :write and :deny, lists of
patterns), :shell-commands and :org-roam-patterns, without absent keys.  FILE
may be the directory of a preset.md."
  (let* ((file (if (file-directory-p file) (pyagentd-place-preset file)
                 (expand-file-name file)))
         (front (or (pyagentd-jf--read 'preset-metadata
                                       (file-name-directory file) file
                                       #'pyagentd-yaml-preset)
                    (error "There is no preset in %s" file))))
    (cl-loop for key in '(:paths :org-roam-patterns :shell-commands)
             when (plist-member front key)
             append (list key (plist-get front key)))))

(defun jf/gptel-scope--update-preset-paths (file allowed &optional denied)
  "Set the paths in the preset FILE, and leave everything else unchanged.
ALLOWED, a list or vector of patterns, is the new read scope.  The write
scope stays, or is \"/tmp/**\" if FILE has none.  DENIED and the four standard
patterns are added to the denied ones.  Needs the daemon."
  (pyagentd-jf-call
   'update-preset-paths
   (list :file (expand-file-name file)
         :allowed (pyagentd-jf--patterns "allowed" allowed)
         :denied (pyagentd-jf--patterns "denied" denied))))

;;;; Agents

(defun pyagentd-jf--patterns (argument patterns)
  "Return PATTERNS, the list or vector given as ARGUMENT, as a list."
  (unless (and (or (proper-list-p patterns) (vectorp patterns))
               (seq-every-p #'stringp patterns))
    (user-error "%s must be a list or vector of patterns, not %S"
                argument patterns))
  (append patterns nil))

(defun jf/gptel-persistent-agent--task (main-cb preset description prompt
                                                &optional allowed-paths denied-paths)
  "Spawn an agent of the session in this buffer for the task PROMPT.
PRESET is the name of its preset, DESCRIPTION the task in a few words.
ALLOWED-PATHS, a list or vector of patterns, is its read scope: nil means that
of this session, an empty vector everything.  DENIED-PATHS are patterns that
it may never access.

Needs the daemon.  Return the agent's directory when it has started.  MAIN-CB
is called once, with its answer or a string that begins with \"Error: \"."
  (unless pyagentd--session-dir
    (user-error "PersistentAgent requires parent persistent session"))
  (let ((agent (pyagentd-jf-call
                'spawn
                (list :branch pyagentd--branch-dir
                      :preset preset :description description :prompt prompt
                      :allowed-paths (pyagentd-jf--patterns
                                      "allowed_paths" allowed-paths)
                      :unrestricted (equal allowed-paths [])
                      :denied-paths (pyagentd-jf--patterns
                                     "denied_paths" denied-paths)
                      :env (pyagentd-env-variables)))))
    (let* ((buffer (current-buffer))
           (done (lambda (text)
                   (pyagentd-with-live-buffer buffer
                     (pyagentd-overlay-update
                      (list :id (plist-get agent :session-id)
                            :state 'finished)))
                   (funcall main-cb text))))
      (pyagentd-rpc-call-async
       'agent-result (list :branch (plist-get agent :branch))
       :success (lambda (answer) (funcall done (plist-get answer :text)))
       :error (lambda (err)
                (funcall done (format "Error: Network failure\n%S"
                                      (list :error err))))))
    (plist-get agent :branch)))

(provide 'pyagentd-jf)
;;; pyagentd-jf.el ends here

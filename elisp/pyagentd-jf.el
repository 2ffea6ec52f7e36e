;;; pyagentd-jf.el --- The functions called jf/gptel-... -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; For code that calls jf/gptel-… functions and uses variables of that
;; name: variables are aliases, and the manual says what each function
;; takes and returns.  Those that read metadata and presets read the
;; files, and need no daemon; only for YAML that is not of the plain kind
;; that the daemon writes is it asked.
;;
;; What needs the daemon starts it and waits for its answer as long as
;; `pyagentd-start-timeout' and `pyagentd-call-timeout' say;
;; `keyboard-quit' ends the wait.  Commands that are given by a person do
;; not wait: they are those of `pyagentd-session' and `pyagentd-branch'.

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

;; The conversation is saved without this hook; it is run for code that
;; has added its own functions to it.

(defvar gptel-post-response-functions)

(put 'jf/gptel--auto-save-session-buffer 'permanent-local-hook t)

(defun pyagentd-jf--add-hook ()
  "Have this session saved after every response."
  (add-hook 'gptel-post-response-functions
            #'jf/gptel--auto-save-session-buffer nil t))

(defun pyagentd-jf--responded (_run)
  "Run gptel's hook for a response that is complete."
  (let ((end (pyagentd-insert-position)))
    (pyagentd-run-functions 'gptel-post-response-functions
                            (min end (or (car pyagentd-insert--cell) end)) end)))

(add-hook 'pyagentd-session-read-hook #'pyagentd-jf--add-hook)
(add-hook 'pyagentd-run-finished-functions #'pyagentd-jf--responded)

;;;; Functions that need the daemon

(defun pyagentd-jf-call (method plist)
  "Return the answer of the daemon to METHOD with PLIST.
Whoever calls these functions waits for their value; nothing else does."
  (pyagentd-rpc-call method plist (pyagentd-jf--timeout)))

(defun pyagentd-jf--timeout ()
  "Return how many seconds to wait; who was slow to start is slow to answer."
  (max pyagentd-call-timeout pyagentd-start-timeout))

(defvar pyagentd-jf--made nil
  "What is being made: pairs (CALL . OUTCOME).
CALL is a list (METHOD PLIST).  OUTCOME is a list (t ANSWER), (nil ERROR),
or empty as long as there is none.")

(defun pyagentd-jf--make (method plist)
  "Return the answer to METHOD with PLIST, which makes something.
When the wait for it was too long, or quit, it is made all the same:
then an equal call gets it, and nothing is made twice."
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
      ;; What nobody asks for any more was given up, not repeated.
      (run-at-time (max 60 (* 4 (pyagentd-jf--timeout))) nil
                   (lambda ()
                     (setq pyagentd-jf--made (delq entry pyagentd-jf--made)))))
    (unwind-protect (pyagentd-rpc-outcome entry (pyagentd-jf--timeout))
      (when (cdr entry)
        (setq pyagentd-jf--made (delq entry pyagentd-jf--made))))))

(defun jf/gptel-persistent-session (name &optional preset person)
  "Create a session called NAME and open its conversation; return the buffer.
PRESET is the name of its preset.  Needs the daemon.  For a PERSON who
gives the command it is made without a wait."
  (interactive (list (read-string "Session name: ") nil t))
  (if person (pyagentd-session name preset)
    (pyagentd-open-session
     (pyagentd-jf--make 'create-session
                        (pyagentd-session-request name preset nil nil)))))

(defun jf/gptel-session-create-persistent (session-id session-dir
                                                      &optional preset projects
                                                      activity-org-file)
  "Make a session in SESSION-DIR, known as SESSION-ID, and open it.
See `pyagentd-session-create' for PRESET, PROJECTS and
ACTIVITY-ORG-FILE.  Return the buffer.  Needs the daemon."
  (pyagentd-open-session
   (pyagentd-jf--make 'create-session
                      (pyagentd-session-create-request
                       session-id session-dir preset projects
                       activity-org-file))))

;; One edit after the other: others may write in between.
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
  "Make a branch called NAME at a prompt of this session; return its buffer.
It is \"branch\" without NAME.  PROMPT counts the prompts from 1; without
it the branch begins at the one at point.  SIDE is `include', which is
the default, or `exclude': then the branch ends before that prompt.
Needs the daemon.  For a PERSON who gives the command all three are
asked for, and nothing waits."
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
  "Return what scope-plan.yml in BRANCH-DIR says, or nil.
That is a plist with :session-id, :created, :updated, :preset and, of an
agent, :type and :parent-session-id."
  (pyagentd-jf--read
   'session-metadata branch-dir (pyagentd-place-scope-plan branch-dir)
   (lambda (text)
     (let ((read (pyagentd-yaml-read text t)))
       (if (or (plist-member read :preset) (not (plist-member read :agent-type)))
           read
         (append read (list :preset (plist-get read :agent-type))))))))

(defun jf/gptel--read-preset-metadata (branch-dir)
  "Return the front matter of preset.md in BRANCH-DIR, or nil.
That is a plist with :backend, :model and what else it has."
  (pyagentd-jf--read
   'preset-metadata branch-dir (pyagentd-place-preset branch-dir)
   #'pyagentd-yaml-preset))

(defun jf/gptel--read-branch-metadata (branch-dir)
  "Return what branch-metadata.yml in BRANCH-DIR says, or nil.
That is a plist with :parent-branch, :created and maybe
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
  "Return what FUNCTION makes of the text of FILE in DIRECTORY.
nil if there is no such file.  Where only the daemon understands it, its
answer to METHOD."
  (condition-case nil
      (if-let ((text (pyagentd-yaml-text file)))
          (funcall function text)
        (pyagentd-log (if (eq method 'branch-metadata) 'debug 'warn)
                      "No %s in %s" (file-name-nondirectory file)
                      (directory-file-name (expand-file-name directory)))
        nil)
    (pyagentd-yaml-unknown
     (pyagentd-jf-call method (list :directory (expand-file-name directory))))))

;;;; The pieces of an agent

(defun jf/gptel--create-agent-directory (parent-branch-dir preset description)
  "Make a directory for an agent below PARENT-BRANCH-DIR and return its name.
It is called after PRESET, the time and DESCRIPTION, and is empty.  Needs
the daemon."
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
  "Return what preset.md in DIRECTORY says, nil if it is missing or no preset.
That is a plist with :backend, :model, :temperature, :tools (a list of
names), :system (the text below the front matter) and what else it has."
  (pyagentd-jf--read
   'load-preset directory (pyagentd-place-preset directory)
   (lambda (text)
     (append (pyagentd-yaml-preset text)
             (list :system (string-trim (cdr (pyagentd-yaml-front text))))))))

(defun jf/gptel--apply-session-preset (&optional preset)
  "Let the session in this buffer show and use the settings of PRESET.
PRESET is a plist as `jf/gptel--load-preset-from-file' returns it, by
default that of this session.  It sets gptel's variables in this buffer
and no others; what a session may do is in its preset.md alone."
  (unless pyagentd--branch-dir
    (user-error "Not a session"))
  (let ((settings (or preset
                      (jf/gptel--load-preset-from-file pyagentd--branch-dir))))
    (unless settings
      (error "Failed to load preset from %s" pyagentd--branch-dir))
    ;; All of them, those without a value too: nothing is inherited.
    (pcase-dolist (`(,variable . ,value) (pyagentd-settings--alist settings))
      (pyagentd-block-set variable value))
    (pyagentd-settings-show (plist-get settings :model))))

(defun jf/gptel-scope--parse-preset-config (file)
  "Return what the preset in FILE says about scope.
That is a plist with :paths (a plist of :read, :write and :deny, lists of
patterns), :shell-commands and :org-roam-patterns, as far as it has them.
FILE may be the directory of a preset.md."
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
  "Set the paths in the preset FILE, and leave everything else in it alone.
ALLOWED, a list or vector of patterns, is what may be read.  What may be
written stays as it is, \"/tmp/**\" where FILE does not say.  What is
denied stays denied, and so are DENIED and the standard four.  Needs the
daemon."
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
  "Have an agent under the session in this buffer do the task PROMPT.
PRESET is the name of its preset, DESCRIPTION the task in a few words.
ALLOWED-PATHS, a list or vector of patterns, is what it may read: nil
means what this session may read, an empty vector everything.
DENIED-PATHS is what it may never touch.

Needs the daemon.  Return when the agent has begun.  MAIN-CB is called
once, with its answer, or with a text that begins with \"Error: \"."
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

;;; pyagentd.el --- Agents that outlive the editor -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1") (transient "0"))
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

;; The Emacs client of pyagentd, a daemon that runs LLM agents.  Each
;; conversation is a Markdown file, session.md, in its own directory.  Read
;; and edit it like any file, send it with `C-c RET', and close Emacs whenever
;; you like: the agent continues, and the answer is there when you come back.
;;
;;   M-x pyagentd-session         create a session
;;   M-x pyagentd-sessions        list the sessions
;;   C-c RET                      send, in a session
;;   C-c C-c                      go to the open question, to allow or deny it
;;   M-x pyagentd-asks            list all pending approvals and questions
;;   M-x pyagentd-list            other lists: running, agents, grants...
;;   C-c C-k                      stop the run
;;   C-c M-b, C-c C-v             create a branch, list the branches
;;   C-c M-s                      search all sessions
;;   C-c C-t                      menu of all commands
;;
;; Visiting a session.md in a session's directory turns on `pyagentd-mode';
;; other files are not affected.

;;; Code:

(require 'project)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-daemon)
(require 'pyagentd-status)
(require 'pyagentd-chat)
(require 'pyagentd-history)
(require 'pyagentd-display)
(require 'pyagentd-complete)
(require 'pyagentd-add)
(require 'pyagentd-keys)
(require 'pyagentd-sync)
(require 'pyagentd-buffers)
(require 'pyagentd-tools)
(require 'pyagentd-here)

(declare-function pyagentd-host-follow "pyagentd-host")
(declare-function pyagentd-host-local-name "pyagentd-host")

;; Autoloads: files with their commands.
(pcase-dolist
    (`(,file . ,commands)
     '(("pyagentd-agents" pyagentd-agent pyagentd-agent-config)
       ("pyagentd-form" pyagentd-ask--edit pyagentd-ask--diff
        pyagentd-ask--ediff)
       ("pyagentd-gptel" pyagentd-import-gptel
        pyagentd-gptel--import-backends pyagentd-gptel-offer-tools)
       ("pyagentd-host" pyagentd-use-host)
       ("pyagentd-install" pyagentd-install-server pyagentd-upgrade
        pyagentd-install-extra pyagentd-doctor)
       ("pyagentd-list" pyagentd-agents pyagentd-list pyagentd-inspect
        pyagentd-report--usage-charts)
       ("pyagentd-menu" pyagentd-menu pyagentd-menu--in-model
        pyagentd-choose-model pyagentd-model--choose-thinking
        pyagentd-model--choose-tools pyagentd-edit-system-prompt)
       ("pyagentd-sessions" pyagentd-search pyagentd-export pyagentd-import
        pyagentd-sessions)
       ("pyagentd-views" pyagentd-branches pyagentd-asks pyagentd-mission
        pyagentd-mission--trace pyagentd-context-save
        pyagentd-context--history pyagentd-changes pyagentd-ask--show
        pyagentd-queue pyagentd-steer)))
  (dolist (command commands)
    (autoload command file nil t)))
(autoload 'pyagentd-question-open "pyagentd-form")
(autoload 'pyagentd-list-mode "pyagentd-list")
(autoload 'pyagentd-menu-switch "pyagentd-menu")
(autoload 'pyagentd-model--choose-number "pyagentd-menu")
(autoload 'pyagentd-reindex "pyagentd-sessions")
(autoload 'pyagentd-gptel-register "pyagentd-gptel")

;;;; Global keymap

;;;###autoload (autoload 'pyagentd-command-map "pyagentd" nil nil 'keymap)
(defvar pyagentd-command-map
  (pyagentd-keymap
   "a" #'pyagentd-add
   "r" #'pyagentd-add--region
   "b" #'pyagentd-add--buffer
   "f" #'pyagentd-add--files
   "d" #'pyagentd-add--diagnostics
   "?" #'pyagentd-ask
   "w" #'pyagentd-rewrite
   "s" #'pyagentd-session
   "l" 'pyagentd-sessions
   "/" 'pyagentd-search
   "q" 'pyagentd-asks
   "m" 'pyagentd-menu)
  "Keymap of commands for any buffer, to bind to a prefix key.
For instance (global-set-key (kbd \"C-c a\") \\='pyagentd-command-map).")

(fset 'pyagentd-command-map pyagentd-command-map)

(defcustom pyagentd-default-preset nil
  "Name of the preset of new sessions; nil means the daemon's default."
  :type '(choice (const :tag "The daemon's default" nil) string)
  :group 'pyagentd)

(defun pyagentd--project-root ()
  "Return the root of the project here, or else `default-directory'.
In buffers of a session return the directory of its branch, which the daemon
replaces by the session's project."
  (directory-file-name
   (expand-file-name
    (or (bound-and-true-p pyagentd--branch-dir)
        (and (not (file-remote-p default-directory))
             (locate-dominating-file default-directory "scope-plan.yml"))
        (when-let ((project (and (not (file-remote-p default-directory))
                                 (project-current))))
          (project-root project))
        default-directory))))

(defun pyagentd--read-preset (answer)
  "Read the name of one of the presets in ANSWER, the daemon's answer."
  (let* ((presets (plist-get answer :presets))
         (names (mapconcat (lambda (preset) (plist-get preset :name))
                           (plist-get answer :untrusted) ", "))
         (chosen (pyagentd-choose
                  (if (string-empty-p names) "Preset: "
                    (format "Preset (%s of the project: \
M-x pyagentd-list, presets): " names))
                  (mapcar (lambda (preset)
                            (cons (plist-get preset :name) preset))
                          presets)
                  :default pyagentd-default-preset :loose (null presets)
                  :annotate (lambda (preset)
                              (format "  %s" (or (plist-get preset :error)
                                                 (plist-get preset :description)
                                                 ""))))))
    (if (stringp chosen) chosen (plist-get chosen :name))))

;;;###autoload
(defun pyagentd-session (name &optional preset directory then)
  "Create a session called NAME and open its conversation.
If NAME is empty the session gets a title after the first answer.  Its agent
may read and write the project around `default-directory'.  With a prefix
argument ask for the preset.  Start the daemon if none runs, and offer to
install the server if it is missing.

From Lisp, PRESET is the name of the preset, or t to ask for it.  DIRECTORY
is the session's directory, by default a new one in
`pyagentd-sessions-directory'.  Return the buffer of the conversation at once,
or nil if PRESET is t; call THEN there without arguments when the session is
created."
  (interactive (list (read-string
                      "Session name (empty: titled after the first answer): ")
                     (and current-prefix-arg t)))
  (when (file-remote-p default-directory)
    (require 'pyagentd-host)
    (pyagentd-host-follow default-directory))
  (let* ((root (pyagentd--project-root))
         (make (lambda (preset)
                 (pyagentd-pending-make
                  (pyagentd-session-request name preset root directory)
                  then))))
    (if (eq preset t)
        (pyagentd-later-asking
         'presets (list :root root)
         (lambda (answer) (funcall make (pyagentd--read-preset answer))))
      (funcall make preset))))

(defun pyagentd-session-request (name preset root directory)
  "Return the arguments of `create-session' for a session called NAME.
If PRESET, ROOT or DIRECTORY is nil, use the default preset, the project here,
or a new directory in `pyagentd-sessions-directory'."
  (list :name (if (string-blank-p name) "session" name)
        :titled (not (string-blank-p name))
        :preset (or preset pyagentd-default-preset)
        :root (or root (pyagentd--project-root))
        :session-dir (and directory (expand-file-name directory))))

(defun pyagentd-session-create (session-id session-dir
                                           &optional preset projects activity-org-file
                                           then)
  "Create a session in SESSION-DIR with the id SESSION-ID, and open it.
For packages that keep sessions in their own directories.  SESSION-DIR must
be absent or empty.  PRESET is the name of its preset.  PROJECTS is a list of
directories that its agent may read, nil for none.  ACTIVITY-ORG-FILE is
recorded in its metadata.  Return its buffer at once; call THEN there without
arguments when the session is created."
  (pyagentd-pending-make
   (pyagentd-session-create-request session-id session-dir preset projects
                                    activity-org-file)
   then))

(defun pyagentd-session-create-request (session-id session-dir preset projects
                                                   activity-org-file)
  "Return the arguments of `create-session' for `pyagentd-session-create'.
SESSION-ID, SESSION-DIR, PRESET, PROJECTS and ACTIVITY-ORG-FILE are as there."
  (list :name session-id :session-id session-id
        :session-dir (expand-file-name session-dir)
        :preset (or preset pyagentd-default-preset)
        :projects (mapcar #'expand-file-name projects)
        :activity-org-file (and activity-org-file
                                (expand-file-name activity-org-file))))

(defun pyagentd-visit-preset ()
  "Visit preset.md, the configuration of the session in this buffer."
  (interactive nil pyagentd-mode)
  (unless pyagentd--branch-dir (user-error "Not a session"))
  (find-file-other-window
   (let ((file (pyagentd-place-preset pyagentd--branch-dir)))
     (if pyagentd-host
         (concat "/ssh:" pyagentd-host ":" (pyagentd-host-local-name file))
       file))))

(provide 'pyagentd)
;;; pyagentd.el ends here

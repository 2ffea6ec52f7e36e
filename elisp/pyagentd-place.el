;;; pyagentd-place.el --- Where sessions are and which buffer has them -*- lexical-binding: t; -*-

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

;; The name of a session.md says which session and branch it belongs to;
;; no file is read to know it.  A branch is named by its directory on the
;; wire, and by "SESSION-ID/BRANCH" for people.

;;; Code:

(require 'seq)
(require 'pyagentd-core)

;;;; The current buffer

(defvar-local pyagentd--session-id nil
  "Unique identifier of the session this buffer belongs to.")
(defvar-local pyagentd--session-dir nil
  "Absolute directory of the session.")
(defvar-local pyagentd--branch-name nil
  "Name of the branch in this buffer; \"main\" for agents.")
(defvar-local pyagentd--branch-dir nil
  "Absolute directory of the branch; of the agent itself for agents.
It is the name of the branch on the wire.")

(pyagentd-permanent-local 'pyagentd--session-id 'pyagentd--session-dir
                          'pyagentd--branch-name 'pyagentd--branch-dir)

(defun pyagentd-place-of (file)
  "Return the session to which FILE, a session.md, belongs by its name.
That is a plist with :session-id, :session-dir, :branch-name,
:branch-dir and :agent (t or nil), or nil if FILE has no such place:
SESSION/branches/BRANCH/session.md or BRANCH/agents/AGENT/session.md."
  (let* ((branch-dir (directory-file-name
                      (file-name-directory (file-truename file))))
         (parent (directory-file-name (file-name-directory branch-dir)))
         (name (file-name-nondirectory branch-dir))
         (session-dir (directory-file-name (file-name-directory parent))))
    (pcase (file-name-nondirectory parent)
      ("branches" (list :session-id (file-name-nondirectory session-dir)
                        :session-dir session-dir
                        :branch-name name :branch-dir branch-dir :agent nil))
      ("agents" (list :session-id name :session-dir branch-dir
                      :branch-name "main" :branch-dir branch-dir :agent t)))))

(defun pyagentd-place-words (id agent title)
  "Return what a session with the id ID is called.
AGENT says that it is one that a session has started, TITLE what it is
about, nil if that is not known."
  (cond ((not agent)
         (or title
             (replace-regexp-in-string "-[0-9]\\{14\\}\\(?:-[0-9]+\\)?\\'" "" id)))
        ((string-match "\\`\\(.+?\\)-[0-9]\\{14\\}-\\(.+\\)\\'" id)
         (format "%s: %s" (match-string 1 id) (or title (match-string 2 id))))
        (t (or title id))))

(defun pyagentd-place-agent-p ()
  "Return non-nil if the session of this buffer is an agent."
  (and pyagentd--branch-dir (equal pyagentd--branch-dir pyagentd--session-dir)))

;;;; Names

(defconst pyagentd-place-file-name "session.md"
  "Name of the file that holds a conversation.")

(defun pyagentd-place-branches (session-dir)
  "Return the directory of the branches of SESSION-DIR."
  (expand-file-name "branches" session-dir))

(defun pyagentd-place-branch (session-dir branch-name)
  "Return the directory of the branch BRANCH-NAME of SESSION-DIR."
  (expand-file-name branch-name (pyagentd-place-branches session-dir)))

(defun pyagentd-place-agents (branch-dir)
  "Return the directory of the agents of BRANCH-DIR."
  (expand-file-name "agents" branch-dir))

(defun pyagentd-place-conversation (branch-dir)
  "Return the file of the conversation in BRANCH-DIR."
  (expand-file-name pyagentd-place-file-name branch-dir))

(defun pyagentd-place-scope-plan (branch-dir)
  "Return the file of the metadata in BRANCH-DIR."
  (expand-file-name "scope-plan.yml" branch-dir))

(defun pyagentd-place-preset (branch-dir)
  "Return the file of the configuration in BRANCH-DIR."
  (expand-file-name "preset.md" branch-dir))

;;;; What is on disk

(defun pyagentd-place--directories (parent)
  "Return the absolute names of the visible directories in PARENT, sorted."
  (when (file-directory-p parent)
    (seq-filter #'file-directory-p
                (directory-files parent t "\\`[^.]"))))

(defun pyagentd-place-session-p (directory)
  "Return non-nil if DIRECTORY has the structure of a session."
  (file-directory-p (pyagentd-place-branches directory)))

(defun pyagentd-place-sessions ()
  "Return the directories of all sessions in `pyagentd-sessions-directory'."
  (seq-filter #'pyagentd-place-session-p
              (pyagentd-place--directories
               (expand-file-name pyagentd-sessions-directory))))

(defun pyagentd-place-list-branches (session-dir)
  "Return the names of the branches of SESSION-DIR."
  (mapcar #'file-name-nondirectory
          (pyagentd-place--conversations
           (pyagentd-place-branches session-dir))))

(defun pyagentd-place--conversations (parent)
  "Return those directories in PARENT that have a conversation."
  (seq-filter (lambda (directory)
                (file-exists-p (pyagentd-place-conversation directory)))
              (pyagentd-place--directories parent)))

(defun pyagentd-place-all-branches ()
  "Return a plist for every branch on disk.
The keys are :session-dir, :session-id, :branch-dir, :branch-name and
:agent-dirs."
  (seq-mapcat
   (lambda (session-dir)
     (mapcar (lambda (name)
               (let ((branch-dir (pyagentd-place-branch session-dir name)))
                 (list :session-dir session-dir
                       :session-id (file-name-nondirectory session-dir)
                       :branch-dir branch-dir :branch-name name
                       :agent-dirs (pyagentd-place--conversations
                                    (pyagentd-place-agents branch-dir)))))
             (pyagentd-place-list-branches session-dir)))
   (pyagentd-place-sessions)))

;;;; Open buffers

(defvar pyagentd-place--registry (make-hash-table :test #'equal)
  "What is open: a plist for each \"SESSION-ID/BRANCH\".
Its keys are :session-id, :session-dir, :branch-name, :branch-dir and
:buffer.  Nothing else is kept here; the files own the rest.")

(defvar pyagentd-place--buffers (make-hash-table :test #'equal)
  "Buffer for each branch directory that is open.")

(defun pyagentd-place-register (session-dir buffer session-id
                                              branch-name branch-dir)
  "Note that the branch BRANCH-NAME of a session is in BUFFER.
SESSION-ID, SESSION-DIR and BRANCH-DIR are those of the branch."
  (puthash branch-dir buffer pyagentd-place--buffers)
  (puthash (concat session-id "/" branch-name)
           (list :session-id session-id :session-dir session-dir
                 :branch-name branch-name :branch-dir branch-dir
                 :buffer buffer)
           pyagentd-place--registry)
  (pyagentd-log 'info "Registered %s/%s" session-id branch-name))

(defun pyagentd-place-refresh ()
  "Note every branch and agent on disk, and forget those that are gone.
What is open keeps its buffer, the others have none.  Return how many
there are."
  (let ((known (make-hash-table :test #'equal)))
    (dolist (branch (pyagentd-place-all-branches))
      (pyagentd-place--note known (plist-get branch :session-dir)
                            (plist-get branch :session-id)
                            (plist-get branch :branch-name)
                            (plist-get branch :branch-dir))
      (pyagentd-place--note-agents known (plist-get branch :branch-dir)))
    (maphash (lambda (name entry)
               (when (buffer-live-p (plist-get entry :buffer))
                 (puthash name entry known)))
             pyagentd-place--registry)
    (setq pyagentd-place--registry known)
    (pyagentd-log 'info "Initialized registry with %d branches"
                  (hash-table-count known))
    (hash-table-count known)))

(defun pyagentd-place--note (table session-dir session-id branch-name branch-dir)
  "Put a branch that may not be open into TABLE.
SESSION-DIR, SESSION-ID, BRANCH-NAME and BRANCH-DIR are its names."
  (when (file-exists-p (pyagentd-place-conversation branch-dir))
    (puthash (concat session-id "/" branch-name)
             (list :session-id session-id :session-dir session-dir
                   :branch-name branch-name :branch-dir branch-dir :buffer nil)
             table)))

(defun pyagentd-place--note-agents (table parent)
  "Put the agents below PARENT, the directory of a branch, into TABLE."
  (dolist (directory (pyagentd-place--directories (pyagentd-place-agents parent)))
    (pyagentd-place--note table directory (file-name-nondirectory directory)
                          "main" directory)
    (pyagentd-place--note-agents table directory)))

(defun pyagentd-place-unregister ()
  "Forget that the branch of the current buffer is in it."
  (when (eq (pyagentd-place-buffer pyagentd--branch-dir) (current-buffer))
    (remhash pyagentd--branch-dir pyagentd-place--buffers)
    (remhash (concat pyagentd--session-id "/" pyagentd--branch-name)
             pyagentd-place--registry)))

(defun pyagentd-place-set-id (session-id)
  "Note that the session in the current buffer is SESSION-ID.
Its metadata says so where the directory has another name."
  (unless (equal session-id pyagentd--session-id)
    (pyagentd-place-unregister)
    (setq pyagentd--session-id session-id)
    (pyagentd-place-register pyagentd--session-dir (current-buffer) session-id
                             pyagentd--branch-name pyagentd--branch-dir)))

(defun pyagentd-place-lookup (session-id &optional branch-name)
  "Return the plist of the open branch BRANCH-NAME of SESSION-ID, or nil."
  (gethash (concat session-id "/" (or branch-name "main"))
           pyagentd-place--registry))

(defun pyagentd-place-buffer (branch-dir)
  "Return the live buffer with the branch BRANCH-DIR, or nil."
  (when-let ((buffer (gethash branch-dir pyagentd-place--buffers)))
    (and (buffer-live-p buffer) buffer)))

(defun pyagentd-place-buffers ()
  "Return all live session buffers."
  (seq-filter #'buffer-live-p (hash-table-values pyagentd-place--buffers)))

(provide 'pyagentd-place)
;;; pyagentd-place.el ends here

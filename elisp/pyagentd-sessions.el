;;; pyagentd-sessions.el --- List, export and import sessions -*- lexical-binding: t; -*-

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

;; What Emacs adds to the list of sessions, and exchange with other programs.

;;; Code:

(require 'browse-url)
(require 'seq)
(require 'subr-x)
(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-here)
(require 'pyagentd-daemon)
(require 'pyagentd-list)
(require 'pyagentd-session)
(autoload 'pyagentd-branches "pyagentd-views" nil t)
(autoload 'pyagentd-search "pyagentd-search" nil t)
(declare-function pyagentd--project-root "pyagentd")

;;;; The list

(defun pyagentd-sessions--marked ()
  "Return the sessions, branches and agents that are marked.
What belongs to another one of them is left out."
  (let (directories)
    (seq-filter
     (lambda (session)
       (let ((directory (plist-get session
                                   (if (plist-get session :what) :branch-dir
                                     :session-dir))))
         (unless (seq-some (lambda (above)
                             (string-prefix-p (file-name-as-directory above)
                                              (file-name-as-directory
                                               directory)))
                           directories)
           (push directory directories))))
     (mapcar #'pyagentd-list-session (pyagentd-table-marked)))))

(defun pyagentd-sessions--words (sessions)
  "Return in words how many sessions, branches and agents SESSIONS are."
  (string-join
   (delq nil (mapcar (lambda (what)
                       (let ((number (seq-count
                                      (lambda (session)
                                        (eq what (or (plist-get session :what)
                                                     'session)))
                                      sessions)))
                         (when (> number 0)
                           (pyagentd-count number (symbol-name what)))))
                     '(session branch agent)))
   ", "))

(defun pyagentd-sessions-delete ()
  "Move what is marked to the trash, else what is at point, after a question."
  (interactive nil pyagentd-list-mode)
  (let ((sessions (pyagentd-sessions--marked)))
    (cond ((null sessions) (call-interactively #'pyagentd-delete))
          ((yes-or-no-p (format "Move %s to the trash? "
                                (pyagentd-sessions--words sessions)))
           (pyagentd-sessions--delete sessions)))))

(defun pyagentd-sessions--delete (sessions)
  "Move SESSIONS to the trash, one after the other.
After one that fails, nothing more is done; the others stay marked."
  (if (null sessions) (run-hooks 'pyagentd-changed-hook)
    (let ((next (pyagentd-later-back #'pyagentd-sessions--delete)))
      (pyagentd-manage-trash
       (car sessions) (or (plist-get (car sessions) :what) 'session)
       (lambda (_) (funcall next (cdr sessions)))
       (lambda (err)
         (run-hooks 'pyagentd-changed-hook)
         (pyagentd-later-tell err))))))

(pyagentd-list-add-keys "sessions"
  '("d" pyagentd-sessions-delete "delete" t)
  '("r" pyagentd-rename "rename")
  '("D" pyagentd-duplicate "duplicate")
  '("e" pyagentd-export "export")
  '("b" pyagentd-branches "branches")
  '("s" pyagentd-search "search"))

;;;###autoload
(defun pyagentd-sessions ()
  "List the sessions with their branches and agents."
  (interactive)
  (let ((display-buffer-overriding-action '(display-buffer-same-window)))
    (pyagentd-list-show "sessions")))

(setf (alist-get "sessions" pyagentd-list-functions nil nil #'equal)
      #'pyagentd-sessions)

;;;; Export and import

;; A conversation can leave as a file, and a saved gptel chat can come in.

(defconst pyagentd-exchange--formats
  '(("md" . "Markdown, as in the buffer")
    ("html" . "a page for the browser, in one file")
    ("json" . "all messages with their parts")
    ("jsonl" . "the same, one row a line")
    ("acp" . "lines of the Agent Client Protocol"))
  "Formats of export with their descriptions.")

(defvar pyagentd-exchange--export-directory "~/"
  "Directory of the latest export.")

(defun pyagentd-exchange--read-format ()
  "Read the format of an export."
  (let ((completion-extra-properties
         (list :annotation-function
               (lambda (name)
                 (concat "  " (cdr (assoc name pyagentd-exchange--formats)))))))
    (completing-read (format-prompt "Format" "md")
                     (mapcar #'car pyagentd-exchange--formats)
                     nil t nil nil "md")))

(defun pyagentd-exchange--export-name (session format)
  "Return the name proposed for the export of SESSION in FORMAT."
  (let ((branch (plist-get session :branch-name)))
    (concat (plist-get session :session-id)
            (unless (member branch '(nil "main")) (concat "-" branch))
            "." format)))

(defun pyagentd-exchange--read-export ()
  "Read the arguments of an export of the session here."
  (let* ((here (pyagentd-here))
         (format (pyagentd-exchange--read-format))
         (name (pyagentd-exchange--export-name here format))
         (file (read-file-name "Export to: " pyagentd-exchange--export-directory
                               nil nil name)))
    (when (file-directory-p file)
      (setq file (expand-file-name name file)))
    (when (and (file-exists-p file)
               (not (y-or-n-p (format "%s exists; overwrite? " file))))
      (user-error "Not exported"))
    (list format file)))

(defun pyagentd-export (format file)
  "Write the conversation here to FILE in FORMAT and return the file's name.
FORMAT is \"md\", \"html\", \"json\", \"jsonl\" or \"acp\".  It is written
when this has returned; a page is shown in the browser then if you wish."
  (interactive (pyagentd-exchange--read-export))
  (when (file-remote-p file)
    (user-error "Only local files can be written"))
  (let ((here (pyagentd-here))
        (file (expand-file-name file))
        (show (and (called-interactively-p 'any) (equal format "html"))))
    (pyagentd-here-save here)
    (pyagentd-later-asking
     'export (list :branch (plist-get here :branch) :format format :file file)
     (lambda (answer)
       (pyagentd-exchange--exported file (plist-get answer :notes) show))
     (* 3 pyagentd-call-timeout))
    file))

(defun pyagentd-exchange--exported (file notes show)
  "Say that FILE is written, with NOTES; ask whether to show it if SHOW."
  (setq pyagentd-exchange--export-directory (file-name-directory file))
  (if (and show
           (y-or-n-p (format "Wrote %s; open it in the browser? " file)))
      (browse-url-of-file file)
    (message "%s" (pyagentd-exchange--told (concat "Wrote " file) notes))))

(defun pyagentd-exchange--told (what notes)
  "Return the sentence WHAT with NOTES, strings, on lines of their own."
  (string-join (cons what notes) "\n"))

(defun pyagentd-exchange--read-import ()
  "Read the arguments of an import."
  (let* ((file (read-file-name (format-prompt "Import chat" buffer-file-name)
                               nil buffer-file-name t nil))
         (buffer (find-buffer-visiting file)))
    (when (file-directory-p file)
      (user-error "%s is a directory" file))
    (when (and buffer (buffer-modified-p buffer)
               (y-or-n-p (format "Save %s first? " file)))
      (with-current-buffer buffer (save-buffer)))
    (list file (read-string "Session name: " (file-name-base file)))))

;;;###autoload
(defun pyagentd-import (file &optional name)
  "Create a session called NAME from FILE, a saved chat; visit it.
That is a chat of gptel, a session of Claude Code or opencode, or a
transcript of agent-shell.  FILE itself is not changed.  What could not
be imported is reported.  The agent of the session may read and write the
project around `default-directory', as with `pyagentd-session'."
  (interactive (pyagentd-exchange--read-import))
  (when (file-remote-p file)
    (user-error "Only local files can be imported"))
  (pyagentd-later-asking
   'import (list :file (expand-file-name file) :name name
                 :root (pyagentd--project-root))
   #'pyagentd-exchange--imported (* 3 pyagentd-call-timeout) nil
   #'pyagentd-manage-late))

(defun pyagentd-exchange--imported (session)
  "Visit SESSION, which was made of a chat, and say what it lacks."
  (pyagentd-manage-visit session)
  (goto-char (point-max))
  (message "%s" (pyagentd-exchange--told
                 (concat "Imported as " (plist-get session :session-id))
                 (plist-get session :notes))))

(provide 'pyagentd-sessions)
;;; pyagentd-sessions.el ends here

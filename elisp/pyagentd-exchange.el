;;; pyagentd-exchange.el --- Export conversations and import gptel's -*- lexical-binding: t; -*-

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

;; A conversation can leave as a file, and a saved gptel chat can come in.

;;; Code:

(require 'browse-url)
(require 'pyagentd)
(require 'pyagentd-core)
(require 'pyagentd-daemon)
(require 'pyagentd-here)
(require 'pyagentd-manage)

(declare-function pyagentd--project-root "pyagentd")

(defconst pyagentd-exchange--formats
  '(("md" . "Markdown, as in the buffer")
    ("html" . "a page for the browser, in one file")
    ("json" . "all messages with their parts")
    ("jsonl" . "the same, one row a line"))
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
FORMAT is \"md\", \"html\", \"json\" or \"jsonl\".  It is written
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
  "Create a session called NAME from FILE, a saved gptel chat; visit it.
FILE itself is not changed.  What could not be imported is reported.  The
agent of the session may read and write the project around
`default-directory', as with `pyagentd-session'."
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

(provide 'pyagentd-exchange)
;;; pyagentd-exchange.el ends here

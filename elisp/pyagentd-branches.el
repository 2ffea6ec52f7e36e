;;; pyagentd-branches.el --- The tree of a session's branches -*- lexical-binding: t; -*-

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

;; The branches of one session, each below the one it comes from.

;;; Code:

(require 'cl-lib)
(require 'diff)
(require 'diff-mode)
(require 'tabulated-list)
(require 'pyagentd-core)
(require 'pyagentd-block)
(require 'pyagentd-later)
(require 'pyagentd-here)
(require 'pyagentd-table)
(require 'pyagentd-tree)
(require 'pyagentd-branch)

(autoload 'pyagentd-export "pyagentd-exchange" nil t)

(defvar-local pyagentd-branches--session nil
  "The session whose branches this buffer shows, as of `pyagentd-here'.")

(defvar pyagentd-branches-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-branches-visit)
    (define-key map (kbd "o") #'pyagentd-branches-visit-other-window)
    (define-key map (kbd "s") #'pyagentd-branches-switch)
    (define-key map (kbd "b") #'pyagentd-branches-branch)
    (define-key map (kbd "d") #'pyagentd-delete)
    (define-key map (kbd "=") #'pyagentd-branches-diff)
    (define-key map (kbd "e") #'pyagentd-export)
    (define-key map (kbd "S") #'undefined) ; the tree has its order
    map)
  "Keymap of `pyagentd-branches-mode'.")

(define-derived-mode pyagentd-branches-mode tabulated-list-mode "Branches"
  "Major mode for the tree of a session's branches.
Each branch stands below the one it comes from, the current one is marked
with a star.

\\{pyagentd-branches-mode-map}"
  (setq tabulated-list-format [("Branch" 44 nil) ("Created" 17 nil)
                               ("Agents" 7 nil :right-align t)
                               ("Comes from" 0 nil)]
        tabulated-list-padding 1
        tabulated-list-sort-key nil
        pyagentd-table-help '(("RET" "open") ("s" "make it current")
                              ("b" "branch") ("=" "compare") ("e" "export")
                              ("d" "delete") ("?" "all keys"))
        pyagentd-here-function #'pyagentd-branches--here)
  (setq-local revert-buffer-function #'pyagentd-branches--revert)
  (add-hook 'pyagentd-changed-hook #'pyagentd-branches--on-change)
  (tabulated-list-init-header))

(defun pyagentd-branches--stems (branches)
  "Return what the tree draws before each of BRANCHES, which are in its order."
  (let ((stems (make-vector (1+ (length branches)) "")))
    (mapcar (lambda (branch)
              (let ((depth (or (plist-get branch :depth) 0)))
                (when (> depth 0)
                  (aset stems depth (pyagentd-tree-stem
                                     (aref stems (1- depth))
                                     (plist-get branch :last))))
                (aref stems depth)))
            branches)))

(defun pyagentd-branches--name (branch stem)
  "Return the name of BRANCH with STEM and, if it is current, a star before it."
  (concat (propertize (if (plist-get branch :current) "* " "  ")
                      'face 'success)
          (propertize stem 'face 'shadow)
          (pyagentd-branch-label (plist-get branch :name)
                                 (plist-get branch :current))))

(defun pyagentd-branches--entry (branch stem)
  "Return BRANCH, a plist, with STEM before it as an entry of the tree."
  (let ((agents (or (plist-get branch :agents) 0)))
    (list (plist-get branch :branch)
          (vector (pyagentd-branches--name branch stem)
                  (propertize (pyagentd-time (plist-get branch :created))
                              'face 'shadow)
                  (if (> agents 0) (number-to-string agents) "")
                  (propertize (pyagentd-branch-lineage branch)
                              'face 'shadow)))))

(defun pyagentd-branches--show (answer)
  "Show the branches in ANSWER; point stays with its line."
  (setq pyagentd-table-rows (plist-get answer :branches)
        tabulated-list-entries
        (cl-mapcar #'pyagentd-branches--entry pyagentd-table-rows
                   (pyagentd-branches--stems pyagentd-table-rows)))
  (tabulated-list-print t)
  (pyagentd-table-show-keys))

(defun pyagentd-branches--fetch (&optional branch)
  "Fetch the branches; they are shown when they come, with point at BRANCH."
  (pyagentd-table-fetch
   'branches
   ;; Not of its branch, which may be gone.
   (list :branch (plist-get pyagentd-branches--session :session-dir))
   (lambda (answer)
     (pyagentd-branches--show answer)
     (when branch (pyagentd-branches--goto branch)))))

(defun pyagentd-branches--revert (&rest _)
  "Fetch the branches again."
  (pyagentd-table-ask #'pyagentd-branches--fetch))

(defun pyagentd-branches--on-change ()
  "Show what the branches are now, in all their buffers that are shown."
  (dolist (buffer (buffer-list))
    (when (and (eq (buffer-local-value 'major-mode buffer)
                   'pyagentd-branches-mode)
               (get-buffer-window buffer t))
      (with-current-buffer buffer
        (pyagentd-branches--fetch)))))

(defun pyagentd-branches--at-point ()
  "Return the branch at point as a plist, or signal a `user-error'."
  (pyagentd-table-row :branch))

(defun pyagentd-branches--here ()
  "Return the branch at point as `pyagentd-here' documents."
  (let ((branch (pyagentd-branches--at-point)))
    (append (list :branch-name (plist-get branch :name)
                  :session-id (plist-get pyagentd-branches--session :session-id)
                  :session-dir (plist-get pyagentd-branches--session
                                          :session-dir)
                  :title (plist-get pyagentd-branches--session :title))
            branch)))

(defun pyagentd-branches-visit ()
  "Visit the branch at point."
  (interactive)
  (pyagentd-here-visit (pyagentd-branches--at-point)))

(defun pyagentd-branches-visit-other-window ()
  "Visit the branch at point in another window."
  (interactive)
  (pyagentd-here-visit (pyagentd-branches--at-point) t))

(defun pyagentd-branches-switch ()
  "Make the branch at point the current one."
  (interactive)
  (let ((branch (pyagentd-branches--at-point)))
    (pyagentd-later-here
     'switch (list :branch (plist-get branch :branch))
     (lambda (_)
       (run-hooks 'pyagentd-changed-hook)
       (revert-buffer)
       (message "Current branch: %s" (plist-get branch :name))))))

(defun pyagentd-branches-branch ()
  "Make a branch of the branch at point."
  (interactive)
  (with-current-buffer (find-file-noselect
                        (plist-get (pyagentd-branches--at-point) :file))
    (goto-char (point-max))
    (pyagentd-branch)))

(defun pyagentd-branches--text (branch)
  "Return the name of a new file with the text of BRANCH, without its block."
  (let ((file (make-temp-file "branch-")))
    (with-temp-buffer
      (let ((coding-system-for-read 'utf-8-unix)
            (coding-system-for-write 'utf-8-unix))
        (insert-file-contents (plist-get branch :file))
        (pyagentd-block-strip)
        (write-region nil nil file nil 'quiet)))
    file))

(defun pyagentd-branches--diff (old new)
  "Show in the current buffer how the branch NEW differs from OLD."
  (let ((inhibit-read-only t)
        (files (list (pyagentd-branches--text old)
                     (pyagentd-branches--text new))))
    (erase-buffer)
    (make-process
     :name "pyagentd-branches-diff" :buffer (current-buffer) :noquery t
     :connection-type 'pipe :filter #'pyagentd-branches--insert
     :command (append (list diff-command "-u"
                            "--label" (plist-get old :name)
                            "--label" (plist-get new :name))
                      files)
     :sentinel (lambda (process _)
                 (mapc #'delete-file files)
                 (when (zerop (process-exit-status process))
                   (pyagentd-branches--insert
                    process (format "%s and %s are identical\n"
                                    (plist-get old :name)
                                    (plist-get new :name))))))))

(defun pyagentd-branches--insert (process text)
  "Insert TEXT, which PROCESS has printed, at the end of its buffer."
  (pyagentd-later-in (process-buffer process)
    (let ((inhibit-read-only t))
      (save-excursion
        (goto-char (point-max))
        (insert text)))))

(defun pyagentd-branches-diff (&optional other)
  "Show how the branch at point differs from the one it comes from.
With a prefix argument ask for the OTHER branch, a plist."
  (interactive
   (list (when current-prefix-arg
           (pyagentd-branch--read-branch "Compare with"
                                         pyagentd-table-rows nil))))
  (let* ((branch (pyagentd-branches--at-point))
         (other (or other
                    (seq-find (lambda (candidate)
                                (equal (plist-get candidate :name)
                                       (plist-get branch :parent)))
                              pyagentd-table-rows)
                    (user-error "%s was not branched from another; \
C-u = chooses one" (plist-get branch :name)))))
    (with-current-buffer (get-buffer-create "*Branch diff*")
      (diff-mode)
      (pyagentd-branches--diff other branch)
      (setq buffer-read-only t)
      (setq-local revert-buffer-function
                  (lambda (&rest _) (pyagentd-branches--diff other branch)))
      (display-buffer (current-buffer)))))

;;;###autoload
(defun pyagentd-branches ()
  "Show the branches of the session here as a tree."
  (interactive)
  (let ((here (pyagentd-here)))
    (when (plist-get here :agent)
      (user-error "An agent has no branches"))
    (pop-to-buffer-same-window
     (get-buffer-create (format "*Branches: %s*" (pyagentd-title here))))
    (unless (derived-mode-p 'pyagentd-branches-mode)
      (pyagentd-branches-mode))
    (setq pyagentd-branches--session here)
    (pyagentd-table-ask
     (lambda () (pyagentd-branches--fetch (plist-get here :branch))))))

(defun pyagentd-branches--goto (branch)
  "Move point to the line of BRANCH, by its name on the wire."
  (goto-char (point-min))
  (while (not (or (eobp) (equal (tabulated-list-get-id) branch)))
    (forward-line))
  (when (eobp) (goto-char (point-min))))

(provide 'pyagentd-branches)
;;; pyagentd-branches.el ends here

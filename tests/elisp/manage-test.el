;;; manage-test.el --- Tests of commands on a session as a whole -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-here)
(require 'pyagentd-sessions)
(require 'pyagentd-menu)

(defmacro manage-test-with-session (&rest body)
  "Evaluate BODY in the buffer of a session, with a daemon.
The variables `file' and `branch' are bound to its names."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let* ((file (pyagentd-test-file root "### Hi\n\nHello.\n\n### "))
            (branch (directory-file-name (file-name-directory file))))
       (pyagentd-test-answer 'attach '(:seq 0))
       (with-current-buffer (find-file-noselect file)
         ,@body))))

(defun manage-test--deletions (&rest whats)
  "Tell the daemon that WHATS, strings, may be deleted."
  (pyagentd-test-answer
   'deletions (list :deletions
                    (mapcar (lambda (what)
                              (list :what what :words (format "%s “x” of two" what)))
                            whats))))

;;;; Which session

(ert-deftest pyagentd-here-is-the-session-of-the-buffer ()
  (manage-test-with-session
    (let ((here (pyagentd-here)))
      (should (equal (plist-get here :branch) branch))
      (should (equal (plist-get here :file) file))
      (should (equal (pyagentd-title here) "demo-20260205143052")))
    (let ((indirect (make-indirect-buffer (current-buffer) "indirect")))
      (unwind-protect
          (with-current-buffer indirect
            (should (equal (plist-get (pyagentd-here) :branch) branch)))
        (kill-buffer indirect))))
  (with-temp-buffer
    (should-error (pyagentd-here) :type 'user-error)))

;;;; Title, archive, copy

(ert-deftest pyagentd-rename-by-keys ()
  (manage-test-with-session
    (pyagentd-test-type "M-x pyagentd-rename RET SPC Two SPC cups SPC RET")
    (should (equal (pyagentd-test-calls 'rename)
                   `((:branch ,branch :title "Two cups"))))))

(ert-deftest pyagentd-archive-and-back ()
  (manage-test-with-session
    (pyagentd-archive)
    (pyagentd-test-type "C-u M-x pyagentd-archive RET")
    (should (equal (pyagentd-test-calls 'archive)
                   `((:branch ,branch :undo nil) (:branch ,branch :undo t))))))

(ert-deftest pyagentd-duplicate-visits-the-copy ()
  (manage-test-with-session
    (let ((copy (pyagentd-test-row root "copy-20260301000000/branches/main")))
      (pyagentd-test-answer 'duplicate copy)
      (goto-char (point-max))
      (insert "typed")
      (pyagentd-test-type "M-x pyagentd-duplicate RET C-a C-k copy RET")
      (should (equal (pyagentd-test-calls 'duplicate)
                     `((:branch ,branch :name "copy"))))
      (should (equal buffer-file-name (plist-get copy :file)))
      (should (pyagentd-test-sent-p "typed")))))

(ert-deftest pyagentd-title-is-shown-when-it-becomes-known ()
  (manage-test-with-session
    (pyagentd-test-attach :title "Making 100% tea")
    (should (string-prefix-p " Making 100%% tea  " pyagentd-status--line))
    (pyagentd-test-events '(session 0 (:title "Two cups" :archived-at nil)))
    (should (string-prefix-p " Two cups  " pyagentd-status--line))
    (should (equal (pyagentd-title (pyagentd-here)) "Two cups"))
    (should (equal (buffer-name) "Two cups"))
    (let ((agent (expand-file-name "../../agent.json")))
      (write-region "{}" nil agent nil 'silent)
      (pyagentd-mode)
      (pyagentd-name-buffer "Two cups")
      (should (equal (buffer-name)
                     (concat "agent " (file-name-nondirectory
                                       (directory-file-name
                                        (file-name-directory agent))))))
      (delete-file agent))
    (pyagentd-test-events '(session 0 (:title "" :archived-at nil)))
    (should (string-prefix-p " demo-20260205143052  " pyagentd-status--line))))

;;;; Deletion

(defun manage-test--asked (what)
  "Return what is asked when WHAT of the session here is to be deleted."
  (let (asked)
    (cl-letf (((symbol-function 'yes-or-no-p)
               (lambda (prompt) (setq asked prompt) nil)))
      (pyagentd-delete what)
      (pyagentd-test-settle))
    asked))

(ert-deftest pyagentd-delete-says-exactly-what-goes ()
  (manage-test-with-session
    (manage-test--deletions "session")
    (should (equal (manage-test--asked nil)
                   "Move session “x” of two to the trash? "))
    (manage-test--deletions "branch")
    (should (equal (manage-test--asked 'branch)
                   "Move branch “x” of two to the trash? "))
    (should (equal (pyagentd-test-calls 'deletions)
                   `((:branch ,branch) (:branch ,branch :what "branch"))))
    (should-not (pyagentd-test-calls 'delete))))

(ert-deftest pyagentd-delete-asks-which-where-both-may-be-meant ()
  (manage-test-with-session
    (manage-test--deletions "branch" "session")
    (pyagentd-test-answer 'delete '(:trashed ("/trash/main")))
    (pyagentd-test-type "M-x pyagentd-delete RET s yes RET")
    (should (equal (pyagentd-test-calls 'delete)
                   `((:branch ,branch :what "session"))))))

(ert-deftest pyagentd-delete-leaves-the-typed-text-in-a-buffer ()
  (manage-test-with-session
    (manage-test--deletions "session")
    (pyagentd-test-answer 'delete '(:trashed ("/trash/demo")))
    (goto-char (point-max))
    (insert "typed")
    (cl-letf (((symbol-function 'yes-or-no-p) #'always))
      (pyagentd-delete)
      (pyagentd-test-settle))
    (should-not pyagentd-mode)
    (should-not buffer-file-name)
    (should-not (buffer-modified-p))
    (should (string-prefix-p "*Deleted: demo-20260205143052*" (buffer-name)))
    (should (string-search "typed" (buffer-string)))
    (should-not (pyagentd-place-buffer branch))
    (kill-buffer)))

(ert-deftest pyagentd-deleted-elsewhere-loses-no-text ()
  (manage-test-with-session
    (goto-char (point-max))
    (insert "typed")
    (delete-directory branch t)
    (pyagentd-test-events '(deleted 0))
    (should-not pyagentd-mode)
    (should-not buffer-file-name)
    (should-not (buffer-modified-p))
    (should (string-search "typed" (buffer-string)))
    (should-not (file-exists-p branch))
    (pyagentd-test-events '(deleted 0)) ; nothing to do any more
    (kill-buffer)))

;;;; Export and import

(ert-deftest pyagentd-export-proposes-a-name-and-asks-before-it-overwrites ()
  (manage-test-with-session
    (let* ((pyagentd-exchange--export-directory (file-name-as-directory root))
           (out (expand-file-name "demo-20260205143052.jsonl" root))
           (seen nil))
      (pyagentd-test-with-options seen
        (pyagentd-test-type "M-x pyagentd-export RET jsonl RET RET"))
      (should (equal (pyagentd-test-calls 'export)
                     `((:branch ,branch :format "jsonl" :file ,out))))
      (write-region "x" nil out nil 'quiet)
      (cl-letf (((symbol-function 'completing-read) (lambda (&rest _) "jsonl"))
                ((symbol-function 'read-file-name) (lambda (&rest _) out))
                ((symbol-function 'y-or-n-p) #'ignore))
        (should-error (call-interactively #'pyagentd-export) :type 'user-error))
      (should (= 1 (length (pyagentd-test-calls 'export)))))))

(ert-deftest pyagentd-export-refuses-remote-files ()
  (manage-test-with-session
    (should-error (pyagentd-export "md" "/ssh:host:/tmp/x.md") :type 'user-error)))

(ert-deftest pyagentd-import-visits-the-session-and-tells-its-notes ()
  (pyagentd-test-with-daemon
    (let ((made (pyagentd-test-row root "chat-20260301000000/branches/main"))
          (chat (expand-file-name "chat.md" root))
          said)
      (write-region "Hello" nil chat nil 'quiet)
      (pyagentd-test-answer 'import (append '(:notes ("2 spans were out of range"))
                                            made))
      (with-current-buffer (find-file-noselect chat)
        (insert "x")
        (cl-letf (((symbol-function 'message)
                   (lambda (format &rest args)
                     (setq said (apply #'format (or format "") args)))))
          (pyagentd-test-type "M-x pyagentd-import RET RET y RET")))
      (should (equal (pyagentd-test-calls 'import)
                     `((:file ,chat :name "chat" :root ,root))))
      (should (equal (string-trim (pyagentd-test-content chat)) "xHello"))
      (should (equal said "Imported as chat-20260301000000\n2 spans were out of range"))
      (should (equal (buffer-file-name (window-buffer)) (plist-get made :file))))))

;;;; Menu and keys

(ert-deftest pyagentd-menu-has-a-command-for-every-key ()
  (let ((count 0))
    (named-let walk ((tree (get 'pyagentd-menu 'transient--layout)))
      (cond ((and (consp tree) (plist-get (ignore-errors (nth 2 tree)) :command))
             (setq count (1+ count))
             (should (commandp (plist-get (nth 2 tree) :command))))
            ((vectorp tree) (mapc #'walk tree))
            ((consp tree) (mapc #'walk tree))))
    (should (> count 20))))

(ert-deftest pyagentd-keys-of-session-buffers ()
  (manage-test-with-session
    (pcase-dolist (`(,keys ,command)
                   '(("C-c C-t" pyagentd-menu) ("C-c M-b" pyagentd-branch)
                     ("C-c C-v" pyagentd-branches) ("C-c M-s" pyagentd-search)))
      (should (eq (key-binding (kbd keys)) command)))))

;;; manage-test.el ends here

;;; add-test.el --- Tests of adding to a prompt -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)
(require 'pyagentd-add)

(defmacro add-test--with (text &rest body)
  "Evaluate BODY beside a session of TEXT, in the buffer of a file of its project.
The variables `session' and `project' are bound."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-session ,text
     (let ((session (current-buffer))
           (project (expand-file-name "project" root)))
       (make-directory project)
       (pyagentd-test-attach :root project :title "Tea")
       (with-temp-buffer
         (emacs-lisp-mode)
         (insert "one\ntwo\nthree\n")
         (setq default-directory (file-name-as-directory project)
               buffer-file-name (expand-file-name "a.el" project))
         (set-buffer-modified-p nil)
         ,@body
         (setq buffer-file-name nil)))))

(defun add-test--said (session)
  "Return the text of SESSION."
  (with-current-buffer session (buffer-string)))

(ert-deftest pyagentd-add-a-region-says-where-it-is-from ()
  (add-test--with "### Hi"
    (pyagentd-add--region 5 (point-max))
    (should (equal (add-test--said session)
                   "### Hi\n\nFrom `a.el`, lines 2–3:\n
``` emacs-lisp\ntwo\nthree\n```\n\n"))))

(ert-deftest pyagentd-add-of-nothing-adds-nothing-and-says-so ()
  (add-test--with "### Hi"
    (should-error (pyagentd-add--region 5 5) :type 'user-error)
    (should (equal (add-test--said session) "### Hi"))
    (cl-letf (((symbol-function 'message)
               (lambda (words &rest rest)
                 (should (string-prefix-p "Added 1 line to "
                                          (apply #'format words rest))))))
      (pyagentd-add--region 5 8))))

(ert-deftest pyagentd-add-text-goes-behind-what-is-being-written ()
  (blocks-with
    (pyagentd-add-text "more")
    (should (string-suffix-p "Yes.\n\n### more\n\n" (buffer-string)))
    (pyagentd-add-text "again")
    (should (string-suffix-p "### more\n\nagain\n\n" (buffer-string)))
    (delete-region (blocks-find "\n\n### more") (point-max))
    (pyagentd-add-text "below an answer")
    (should (string-suffix-p "Yes.\n\n### below an answer\n\n"
                             (buffer-string)))))

(ert-deftest pyagentd-add-a-fence-is-longer-than-those-in-the-text ()
  (should (equal (pyagentd-passage--fenced "a\n````\nb\n" "md")
                 "````` md\na\n````\nb\n`````")))

(ert-deftest pyagentd-add-a-file-of-the-project-is-named ()
  (add-test--with "### "
    (pyagentd-add--buffer)
    (should (equal (add-test--said session) "### @a.el\n\n"))
    (setq buffer-file-name nil)
    (pyagentd-add--buffer)
    (should (string-search (format "From the buffer `%s`, lines 1–3:"
                                   (buffer-name))
                           (add-test--said session)))))

(ert-deftest pyagentd-add-asks-what-unless-a-region-is-active ()
  (add-test--with "### "
    (let (offered (chosen "this buffer"))
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (_ things &rest _)
                   (setq offered (all-completions "" things))
                   chosen)))
        (call-interactively #'pyagentd-add)
        (should (equal (add-test--said session) "### @a.el\n\n"))
        (should (member "diagnostics" offered))
        (setq chosen "diagnostics")
        (should-error (call-interactively #'pyagentd-add) :type 'user-error)
        (with-current-buffer session
          (setq chosen "copy of a file")
          (cl-letf (((symbol-function 'read-file-name)
                     (lambda (&rest _)
                       (let ((file (expand-file-name "b.txt" root)))
                         (write-region "b" nil file nil 'quiet)
                         file))))
            (call-interactively #'pyagentd-add)))
        (should (string-match-p "\\[b.txt\\](files/b-.*\\.txt)"
                                (add-test--said session)))
        (setq offered nil)
        (set-mark 5)
        (goto-char (point-max))
        (let ((transient-mark-mode t))
          (activate-mark)
          (call-interactively #'pyagentd-add))
        (should-not offered)
        (should (string-search "From `a.el`, lines 2–3:"
                               (add-test--said session)))))))

(ert-deftest pyagentd-add-what-flymake-found ()
  (add-test--with "### "
    (should-error (pyagentd-add--diagnostics 1 (point-max)) :type 'user-error)
    (cl-letf* ((one (list 5 "No such tea" :error))
               ((symbol-function 'flymake-diagnostics) (lambda (&rest _)
                                                         (list one)))
               ((symbol-function 'flymake-diagnostic-beg) #'car)
               ((symbol-function 'flymake-diagnostic-text) #'cadr)
               ((symbol-function 'flymake-diagnostic-type) #'caddr))
      (setq-local flymake-mode t)
      (pyagentd-add--diagnostics 1 (point-max)))
    (should (equal (add-test--said session)
                   "### Diagnostics of `a.el`:\n
- line 2: No such tea (error)\n\n"))))

(ert-deftest pyagentd-add-says-what-to-do-where-nothing-can-be-written ()
  (add-test--with "### Hi"
    (with-current-buffer session (pyagentd-test-attach :title "Tea" :read-only "the disk is full"))
    (dolist (command (list #'pyagentd-add--buffer
                           (lambda () (pyagentd-add--region 1 5))
                           (lambda () (pyagentd-ask "Why?"))))
      (should (equal (cadr (should-error (funcall command) :type 'user-error))
                     "Tea cannot be written: the disk is full; with C-u you choose another session")))
    (should (equal (add-test--said session) "### Hi"))
    (let ((other (pyagentd-test-file
                  root "### Ho"
                  "sessions/other-20260205143053/branches/main/session.md"))
          (project project))
      (with-current-buffer (find-file-noselect other)
        (pyagentd-test-attach :root project :title "Cake"))
      (pyagentd-add--region 1 4)
      (should (string-search "one" (add-test--said (get-file-buffer other)))))))

(defun add-test--asked ()
  "Ask about this buffer; return what is sent and what stands below."
  (let (sent)
    (cl-letf (((symbol-function 'pyagentd-start) #'funcall)
              ((symbol-function 'pyagentd-send)
               (lambda ()
                 (setq sent (list (buffer-substring-no-properties 1 (point))
                                  (buffer-substring-no-properties
                                   (point) (point-max)))))))
      (pyagentd-ask "What is it?"))
    sent))

(ert-deftest pyagentd-add-a-question-is-sent-at-once ()
  (add-test--with "### "
    (should (equal (add-test--asked)
                   '("### What is it?\n\n@a.el" ""))))
  (add-test--with "### A draft"
    (should (equal (add-test--asked)
                   '("### What is it?\n\n@a.el" "\n\nA draft"))))
  (add-test--with "### Hi"
    (with-current-buffer session
      (goto-char (point-max))
      (insert "\n\n" (propertize "Hello" 'gptel 'response) "\n\n### A draft"))
    (should (equal (add-test--asked)
                   '("### Hi\n\nHello\n\n### What is it?\n\n@a.el"
                     "\n\nA draft")))))

(ert-deftest pyagentd-media-a-picture-is-copied-and-linked ()
  (add-test--with "### Look:"
    (let ((picture (expand-file-name "my cup.png" root))
          (coding-system-for-write 'binary))
      (write-region "\211PNG\r\n" nil picture nil 'quiet)
      (with-current-buffer session
        (goto-char (point-max))
        (insert " ")
        (pyagentd-media-drop (concat "file://" (url-hexify-string
                                                picture
                                                url-path-allowed-chars))
                             'private)
        (should (string-match "!\\[my cup.png\\](\\(files/my-cup-[0-9a-f]+.png\\))\\'"
                              (buffer-string)))
        (should (equal (with-temp-buffer
                         (set-buffer-multibyte nil)
                         (insert-file-contents-literally
                          (expand-file-name
                           (match-string 1 (add-test--said session))
                           (buffer-local-value 'pyagentd--branch-dir session)))
                         (buffer-string))
                       "\211PNG\r\n"))))))

;; One call to its daemon, which has the file in base64, is 16 MB at most.
(ert-deftest pyagentd-media-what-is-too-large-for-another-machine-is-not-linked ()
  (add-test--with "### Look:"
    (let ((big (expand-file-name "big.bin" root)))
      (write-region "" nil big nil 'quiet)
      (call-process "truncate" nil nil nil "-s" "13000000" big)
      (with-current-buffer session
        (let ((pyagentd-host "far"))
          (should (string-search "on another machine"
                                 (cadr (should-error (pyagentd-media-link big)
                                                     :type 'user-error)))))
        (should-not (file-exists-p (expand-file-name
                                    "files" pyagentd--branch-dir)))))))

(ert-deftest pyagentd-media-a-link-to-a-file-is-as-large-as-that ()
  (add-test--with "### Look:"
    (let ((big (expand-file-name "big.bin" root))
          (link (expand-file-name "link.bin" root)))
      (write-region "" nil big nil 'quiet)
      (call-process "truncate" nil nil nil "-s" "30000000" big)
      (make-symbolic-link big link)
      (with-current-buffer session
        (should-error (pyagentd-media-link link) :type 'user-error)))))

(ert-deftest pyagentd-media-a-file-of-the-project-that-is-dropped-is-named ()
  (add-test--with "### Read"
    (let ((file (expand-file-name "b.txt" project)))
      (write-region "b" nil file nil 'quiet)
      (with-current-buffer session
        (goto-char (point-max))
        (insert " ")
        (funcall (alist-get "^file:" dnd-protocol-alist nil nil #'equal)
                 (concat "file://" file) 'copy)
        (should (equal (buffer-string) "### Read @b.txt"))
        ;; What is dropped behind it is apart.
        (funcall (alist-get "^file:" dnd-protocol-alist nil nil #'equal)
                 (concat "file://" file) 'copy)
        (should (equal (buffer-string) "### Read @b.txt @b.txt"))))))

(defun add-test--drawn (&rest links)
  "Return the names of the files of the pictures that are shown for LINKS."
  (let ((start (point-max)) drawn)
    (goto-char start)
    (dolist (link links)
      (insert "\n![x](" link ")"))
    (cl-letf (((symbol-function 'display-images-p) #'always)
              ((symbol-function 'create-image)
               (lambda (&rest _) '(image :type png))))
      (pyagentd-media--show (point-min) (point-max)))
    (dolist (overlay (pyagentd-test-overlays start))
      (push (file-name-nondirectory (overlay-get overlay 'pyagentd-media))
            drawn))
    (sort drawn #'string<)))

(ert-deftest pyagentd-media-shows-only-pictures-of-the-session-that-a-user-links ()
  (pyagentd-test-with-session "### Look:"
    (let* ((files (expand-file-name "files" pyagentd--branch-dir))
           (coding-system-for-write 'binary)
           (reached nil)
           (file-name-handler-alist
            (cons (cons "\\`/ssh:" (lambda (&rest call)
                                     (push call reached) nil))
                  file-name-handler-alist)))
      (make-directory files t)
      (dolist (name '("files/a.png" "files/\u00e9.png" "out.png"))
        (write-region "\211PNG\r\n\032\n" nil
                      (expand-file-name name pyagentd--branch-dir) nil 'quiet))
      (write-region "no picture" nil (expand-file-name "b.png" files) nil
                    'quiet)
      (call-process "mkfifo" nil nil nil (expand-file-name "p.png" files))
      (make-symbolic-link "../out.png" (expand-file-name "l.png" files))
      (should (equal (add-test--drawn
                      "files/a.png" "./files/%C3%A9.png" "files/b.png"
                      "files/p.png" "files/l.png" "files/none.png" "files/"
                      "files/../out.png" "files/%2e%2e/out.png"
                      "files/../files/a.png" "files/a%00.png"
                      (concat "files/" (apply #'concat (make-list 20 "../"))
                              "ssh:nowhere:/a.png"))
                     '("a.png" "a.png" "\u00e9.png")))
      (should-not reached)
      (erase-buffer)
      (insert (propertize "![x](files/a.png)" 'gptel 'response))
      (should-not (add-test--drawn)))))

;;;; Rewriting

(defmacro add-test-rewriting (&rest body)
  "Evaluate BODY in a buffer with the text of a function, which is rewritten."
  (declare (indent 0))
  `(pyagentd-test-with-daemon
     (with-temp-buffer
       (rename-buffer "some-code" t)
       (insert "before\n  (foo)\nafter\n")
       (pyagentd-test-answer
        'rewrite '(:text "  (bar)" :model "m"
                   :diff "--- x\n+++ x rewritten\n@@ -1 +1 @@\n-  (foo)\n+  (bar)"))
       (save-window-excursion
         (switch-to-buffer (current-buffer))
         (pyagentd-rewrite 8 15 "call bar")
         (pyagentd-test-await (get-buffer "*rewrite: some-code*"))
         ,@body)
       (dolist (buffer (buffer-list))
         (when (string-prefix-p "*rewrite:" (buffer-name buffer))
           (kill-buffer buffer))))))

(ert-deftest pyagentd-rewrite-shows-a-diff-and-y-makes-the-change ()
  (add-test-rewriting
    (let ((code (get-buffer "some-code"))
          (call (car (pyagentd-test-calls 'rewrite))))
      (should (equal (plist-get call :text) "  (foo)"))
      (should (equal (plist-get call :before) "before\n"))
      (should (equal (plist-get call :after) "\nafter\n"))
      (should (string-search "before\n  (foo)\nafter" (with-current-buffer code
                                                       (buffer-string))))
      (with-current-buffer "*rewrite: some-code*"
        (should (string-search "+  (bar)" (buffer-string)))
        (should (equal (mapcar #'key-binding '("y" "n" "r"))
                       '(pyagentd-rewrite--accept pyagentd-rewrite--discard
                         pyagentd-rewrite--again)))
        (with-current-buffer code
          (narrow-to-region 1 3))       ; to something else
        (pyagentd-rewrite--accept))
      (with-current-buffer code
        (widen)
        (should (equal (buffer-string) "before\n  (bar)\nafter\n"))
        (should-not (overlays-in (point-min) (point-max)))))))

(ert-deftest pyagentd-rewrite-leaves-no-mark-where-no-server-is-wanted ()
  (pyagentd-test-with-place
    (with-temp-buffer
      (insert "before\n  (foo)\nafter\n")
      (cl-letf (((symbol-function 'pyagentd-server-found) #'ignore))
        (ignore-errors (pyagentd-rewrite 8 15 "call bar")))
      (should-not (overlays-in (point-min) (point-max))))))

(ert-deftest pyagentd-rewrite-changes-nothing-when-discarded-or-the-text-is-another ()
  (add-test-rewriting
    (let ((code (get-buffer "some-code")))
      (with-current-buffer code
        (goto-char 11)
        (insert "x"))
      (with-current-buffer "*rewrite: some-code*"
        (should-error (pyagentd-rewrite--accept) :type 'user-error)
        (pyagentd-rewrite--again "call baz"))
      (pyagentd-test-await (get-buffer "*rewrite: some-code*"))
      (should (equal (plist-get (car (last (pyagentd-test-calls 'rewrite))) :text)
                     "  (xfoo)"))
      (with-current-buffer "*rewrite: some-code*"
        (pyagentd-rewrite--discard))
      (with-current-buffer code
        (should (equal (buffer-string) "before\n  (xfoo)\nafter\n"))
        (should-not (overlays-in (point-min) (point-max)))))))

(provide 'add-test)
;;; add-test.el ends here

;;; session-test.el --- Tests of session buffers -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defconst session-test--text
  "### Hi\n\nHello 👋 e\u0301\n\n### \n\n<!-- Local Variables: -->
<!-- gptel-model: claude-opus-5 -->
<!-- gptel--bounds: ((response (9 19))) -->
<!-- End: -->\n"
  "File of a short conversation.")

(ert-deftest pyagentd-session-opens-with-all-variables-set ()
  "SPEC 001 Opening existing session via find-file."
  (pyagentd-test-with-session session-test--text
    (should pyagentd-mode)
    (should (equal pyagentd--session-id "demo-20260205143052"))
    (should (equal pyagentd--session-dir
                   (expand-file-name "sessions/demo-20260205143052" root)))
    (should (equal pyagentd--branch-name "main"))
    (should (equal pyagentd--branch-dir
                   (directory-file-name (file-name-directory file))))
    (should (eq pyagentd-autosave-enabled t))
    (should (eq (pyagentd-place-buffer pyagentd--branch-dir) (current-buffer)))
    (should (equal (plist-get (gethash pyagentd--branch-dir
                                       pyagentd-place--registry)
                              :session-id)
                   "demo-20260205143052"))))

(ert-deftest pyagentd-session-opens-agents ()
  "SPEC 000 Session resumable via find-file."
  (pyagentd-test-with-place
    (let ((file (pyagentd-test-file
                 root "Find it\n\n"
                 "sessions/s-20260101000000/branches/main/agents/explorer-20260101000001-find/session.md")))
      (with-current-buffer (find-file-noselect file)
        (should pyagentd-mode)
        (should (equal pyagentd--session-id "explorer-20260101000001-find"))
        (should (equal pyagentd--branch-name "main"))
        (should (equal pyagentd--branch-dir pyagentd--session-dir))
        (should (equal (buffer-string) "Find it\n\n"))))))

(ert-deftest pyagentd-session-opens-through-the-current-link ()
  (pyagentd-test-with-place
    (let* ((file (pyagentd-test-file root "### Hi"))
           (link (expand-file-name "../../current" (file-name-directory file))))
      (make-symbolic-link "branches/main" link)
      (with-current-buffer (find-file-noselect (expand-file-name "session.md" link))
        (should (equal pyagentd--branch-name "main"))
        (should (equal pyagentd--session-id "demo-20260205143052"))))))

(ert-deftest pyagentd-session-leaves-other-files-alone ()
  "SPEC 001 Fast guard for non-session files."
  (pyagentd-test-with-place
    (dolist (relative '("a.md" "session.md" "branches.d/main/session.md"
                        "branches/main/other.md" "branches/main/xsession.md"))
      (with-current-buffer (find-file-noselect
                            (pyagentd-test-file root "x" relative))
        (should-not (bound-and-true-p pyagentd-mode))
        (should-not pyagentd--session-id)))))

(ert-deftest pyagentd-session-guard-is-cheap ()
  (with-temp-buffer
    (setq buffer-file-name "/tmp/some/ordinary/file.md")
    (let ((time (car (benchmark-run 1000 (pyagentd-maybe-enable)))))
      (setq buffer-file-name nil)
      (should (< time 0.1)))))

(ert-deftest pyagentd-session-second-guard-changes-nothing ()
  "SPEC 001 Buffer-local variables mark session initialization."
  (pyagentd-test-with-session session-test--text
    (let ((body (buffer-string)))
      (pyagentd-maybe-enable)
      (should (equal-including-properties body (buffer-string)))
      (should-not (buffer-modified-p)))))

(ert-deftest pyagentd-session-shows-the-body-unmodified ()
  (pyagentd-test-with-session session-test--text
    (should (equal (buffer-string) "### Hi\n\nHello 👋 e\u0301\n\n### "))
    (should (= (point) 1))
    (should (eq (get-text-property 9 'gptel) 'response))
    (should-not (get-text-property 19 'gptel))
    (should-not (buffer-modified-p))
    (should-not buffer-undo-list)
    (should (equal (secure-hash 'sha256 (pyagentd-write--bytes))
                   (secure-hash 'sha256 (encode-coding-string (buffer-string)
                                                              'utf-8))))))

(ert-deftest pyagentd-session-saves-the-same-bytes ()
  (pyagentd-test-with-session session-test--text
    (set-buffer-modified-p t)
    (save-buffer)
    (should (equal (pyagentd-test-content file) session-test--text))))

(ert-deftest pyagentd-session-save-follows-the-text ()
  "SPEC 001 Manual save via C-x C-s."
  (pyagentd-test-with-session session-test--text
    (goto-char (point-min))
    (forward-line)
    (insert "👩‍👩‍👧")                     ; five code points
    (save-buffer)
    (should (string-suffix-p
             "\n\n### \n\n<!-- Local Variables: -->
<!-- gptel-model: claude-opus-5 -->
<!-- gptel--bounds: ((response (14 24))) -->
<!-- End: -->\n"
             (pyagentd-test-content file)))
    (should-not (file-exists-p (concat file "~")))))

(ert-deftest pyagentd-session-save-writes-nothing-but-the-conversation ()
  "SPEC 001 Manual save via C-x C-s, System message isolation."
  (pyagentd-test-with-session session-test--text
    (let ((plan (pyagentd-test-file
                 root "session_id: x\n"
                 "sessions/demo-20260205143052/branches/main/scope-plan.yml")))
      (set-file-times plan '(0 1000))
      ;; What stock gptel may have left in the buffer.
      (setq-local gptel-system-prompt (make-string 5000 ?s)
                  gptel--system-message gptel-system-prompt
                  gptel-model 'other)
      (goto-char (point-max))
      (insert "x")
      (call-interactively #'save-buffer)
      (should (equal (pyagentd-test-content file)
                     (replace-regexp-in-string
                      "### \n" "### x\n"
                      (string-replace "claude-opus-5" "other" session-test--text))))
      (should (equal (file-attribute-modification-time (file-attributes plan))
                     '(0 1000 0 0))))))

(ert-deftest pyagentd-session-save-keeps-permissions-and-leaves-no-other-file ()
  (pyagentd-test-with-session session-test--text
    (set-file-modes file #o640)
    (goto-char (point-max))
    (insert "x")
    (save-buffer)
    (should (= (file-modes file) #o640))
    (should (equal (directory-files (file-name-directory file) nil "[^.]")
                   '("session.md")))
    (should-not (buffer-modified-p))
    (should (verify-visited-file-modtime))))

(ert-deftest pyagentd-session-save-of-a-new-file-is-for-its-owner-alone ()
  (pyagentd-test-with-session ""
    (delete-file file)
    (goto-char (point-max))
    (insert "x")
    (save-buffer)
    (should (= (file-modes file) #o600))))

(ert-deftest pyagentd-session-autosave-does-not-wait-for-a-pause-for-ever ()
  (pyagentd-test-with-session session-test--text
    (let ((pyagentd-autosave-idle-time 60)
          (pyagentd-autosave--longest-delay 0.1))
      (goto-char (point-max))
      (insert "x")
      (should (buffer-modified-p))
      (pyagentd-test-await (not (buffer-modified-p))))
    (should (string-match-p "### x\n" (pyagentd-test-content file)))))

(ert-deftest pyagentd-session-made-read-only-is-saved-all-the-same ()
  (pyagentd-test-with-session session-test--text
    (let ((pyagentd-autosave-idle-time 0.05))
      (goto-char (point-max))
      (insert "x")
      (read-only-mode)
      (pyagentd-test-await (not (buffer-modified-p))))
    (should (string-match-p "### x\n" (pyagentd-test-content file)))))

(ert-deftest pyagentd-session-trouble-is-told-to-whoever-shows-it ()
  (pyagentd-test-with-session session-test--text
    (let (told)
      (add-hook 'pyagentd-session-trouble-hook
                (lambda () (push pyagentd-session-trouble told)) nil t)
      (goto-char (point-max))
      (insert "x")
      (rename-file (file-name-directory file) (expand-file-name "away" root))
      (should-not (pyagentd-session-save))
      (should-not (pyagentd-session-save))
      ;; Emacs asks then, so that one can leave it.
      (should-not buffer-save-without-query)
      (make-directory (file-name-directory file))
      (should (pyagentd-session-save))
      (should buffer-save-without-query)
      (should (equal (car told) nil))
      (should (string-prefix-p "Not saved: No such file or directory, " (cadr told)))
      (should (= (length told) 2)))))

(ert-deftest pyagentd-session-save-while-narrowed-writes-everything ()
  (pyagentd-test-with-session session-test--text
    (goto-char (point-max))
    (insert "x")
    (narrow-to-region 3 6)
    (save-buffer)
    (should (equal (pyagentd-test-content file)
                   (replace-regexp-in-string "### \n\n<" "### x\n\n<"
                                             session-test--text)))))

(ert-deftest pyagentd-session-empty-file-shows-a-prompt-and-stays-empty ()
  (pyagentd-test-with-session ""
    (should (equal (buffer-string) "### "))
    (should-not (buffer-modified-p))
    (goto-char (point-max))
    (insert "Hello")
    (save-buffer)
    (should (equal (pyagentd-test-content file) "### Hello"))))

(ert-deftest pyagentd-session-revert-reads-roles-anew ()
  (pyagentd-test-with-session session-test--text
    (dolist (preserve '(nil t))
      (write-region (concat "### Hey\n\nYo\n\n<!-- Local Variables: -->\n"
                            "<!-- gptel--bounds: ((response (10 12))) -->\n"
                            "<!-- End: -->\n")
                    nil file nil 'quiet)
      (revert-buffer t t preserve)
      (should pyagentd-mode)
      (should (equal (buffer-string) "### Hey\n\nYo"))
      (should (equal (pyagentd-block-bounds) '((response (10 12)))))
      (should-not (buffer-modified-p)))))

(ert-deftest pyagentd-session-survives-a-change-of-major-mode ()
  (pyagentd-test-with-session session-test--text
    (text-mode)
    (fundamental-mode)
    (should pyagentd-mode)
    (set-buffer-modified-p t)
    (save-buffer)
    (should (equal (pyagentd-test-content file) session-test--text))))

(ert-deftest pyagentd-session-mode-off-shows-the-whole-file ()
  (pyagentd-test-with-session session-test--text
    (pyagentd-mode -1)
    (should (equal (buffer-string) session-test--text))
    (should-not (buffer-modified-p))
    (should-not pyagentd--session-id)
    (set-buffer-modified-p t)
    (save-buffer)
    (should (equal (pyagentd-test-content file) session-test--text))))

(ert-deftest pyagentd-session-written-elsewhere-is-no-session ()
  (pyagentd-test-with-session session-test--text
    (write-file (expand-file-name "copy.md" root))
    (should-not pyagentd-mode)
    (should (equal (pyagentd-test-content (expand-file-name "copy.md" root))
                   session-test--text))))

(ert-deftest pyagentd-session-autosaves-after-a-pause ()
  "SPEC 001 Auto-save after idle time."
  (pyagentd-test-with-session session-test--text
    (let ((pyagentd-autosave-idle-time 0.05))
      (goto-char (point-max))
      (insert "draft")
      (should (buffer-modified-p))
      (pyagentd-test-await (not (buffer-modified-p)))
      (should (string-match-p "### draft\n\n<!-- Local"
                              (pyagentd-test-content file))))))

(ert-deftest pyagentd-session-autosave-waits-for-quiet ()
  (pyagentd-test-with-session session-test--text
    (goto-char (point-max))
    (insert "one")
    (let ((first (timer--time pyagentd-autosave--timer))
          (until (+ (float-time) 0.01)))
      (while (< (float-time) until))    ; without timers
      (insert "two")
      (should (time-less-p first (timer--time pyagentd-autosave--timer))))
    (should (buffer-modified-p))))

(ert-deftest pyagentd-session-autosave-can-be-off ()
  "SPEC 001 Disabling auto-save, Auto-save buffer-local control."
  (pyagentd-test-with-session session-test--text
    (goto-char (point-max))
    (let ((pyagentd-autosave-idle-time 0))
      (insert "a")
      (should-not pyagentd-autosave--timer))
    (setq pyagentd-autosave-enabled nil)
    (insert "b")
    (should-not pyagentd-autosave--timer)))

(ert-deftest pyagentd-session-autosave-leaves-a-changed-file-alone ()
  (pyagentd-test-with-session session-test--text
    (insert "x")
    (write-region "other" nil file nil 'quiet)
    (set-file-times file (time-add nil 10))
    (should-not (pyagentd-session-save))
    (should (equal (pyagentd-test-content file) "other"))))

(ert-deftest pyagentd-session-kill-saves-without-a-question ()
  (pyagentd-test-with-session session-test--text
    (goto-char (point-max))
    (insert "last words")
    (cl-letf (((symbol-function 'yes-or-no-p)
               (lambda (&rest _) (ert-fail "Asked"))))
      (kill-buffer))
    (should (string-match-p "last words" (pyagentd-test-content file)))))

(ert-deftest pyagentd-session-keeps-its-directory-clean ()
  (pyagentd-test-with-session session-test--text
    (insert "x")
    (do-auto-save t)
    (save-buffer)
    (should (equal (directory-files (file-name-directory file) nil "[^.]")
                   '("session.md")))))

(ert-deftest pyagentd-session-says-only-of-what-was-written-that-it-is-kept ()
  (skip-unless (file-exists-p "/dev/full"))
  (pyagentd-test-with-session session-test--text
    (insert "x")
    (setq buffer-auto-save-file-name "/dev/full")
    (should-not (pyagentd-session-keep))
    (setq buffer-auto-save-file-name (expand-file-name "kept" root))
    (should (string-prefix-p (buffer-string)
                             (pyagentd-test-content (pyagentd-session-keep))))))

(ert-deftest pyagentd-session-text-typed-in-an-answer-belongs-to-it ()
  (pyagentd-test-with-session session-test--text
    (goto-char 12)
    (insert "XX")
    (should (equal (pyagentd-block-bounds) '((response (9 21)))))
    (goto-char 9)
    (insert "mine\n")
    (should (equal (pyagentd-block-bounds) '((response (14 26)))))))

(ert-deftest pyagentd-session-a-replaced-first-or-last-word-is-still-the-answers ()
  (pyagentd-test-with-session session-test--text
    (let ((words (split-string (buffer-substring-no-properties 9 19))))
      (dolist (word (list (car words) (car (last words))))
        (goto-char 9)
        (search-forward word)
        (replace-match "replaced" t t)))
    (pcase-let ((`((response (,beg ,end))) (pyagentd-block-bounds)))
      (should (= beg 9))
      (should (string-match-p "\\`replaced.*replaced\\'"
                              (buffer-substring-no-properties beg end))))
    (goto-char 5)
    (search-forward "Hi")
    (replace-match "Yo")
    (should-not (text-property-not-all 1 9 'gptel nil))))

(ert-deftest pyagentd-session-a-word-that-is-typed-anew-is-still-the-answers ()
  (dolist (last '(nil t))
    (pyagentd-test-with-session session-test--text
      (goto-char (if last 19 9))
      (if last (backward-kill-word 1) (kill-word 1))
      (dolist (letter (string-to-list "Typed")) (insert letter))
      (pcase-let ((`((response (,beg ,end))) (pyagentd-block-bounds)))
        (should (= beg 9))
        (should (string-match-p (if last " Typed\\'" "\\`Typed ")
                                (buffer-substring-no-properties beg end)))))))

(ert-deftest pyagentd-session-text-typed-for-an-answer-that-is-gone-is-the-users ()
  (pyagentd-test-with-session session-test--text
    (delete-region 9 19)
    (insert "mine")
    (should-not (pyagentd-block-bounds)))
  (pyagentd-test-with-session session-test--text
    (goto-char 9)
    (kill-word 1)
    (goto-char 5)
    (insert "Oh, ")
    (goto-char 13)
    (insert "mine")
    (should (= 17 (caadr (assq 'response (pyagentd-block-bounds)))))))

(ert-deftest pyagentd-session-yanked-answer-is-text-of-the-user ()
  (pyagentd-test-with-session session-test--text
    (kill-ring-save 9 14)
    (goto-char (point-max))
    (yank)
    (should (string-suffix-p "### Hello" (buffer-string)))
    (should (equal (pyagentd-block-bounds) '((response (9 19)))))))

(ert-deftest pyagentd-session-undone-deletion-has-its-role ()
  (pyagentd-test-with-session session-test--text
    (undo-boundary)
    (delete-region 9 19)
    (undo-boundary)
    (undo)
    (should (equal (pyagentd-block-bounds) '((response (9 19)))))))

(ert-deftest pyagentd-session-removes-gptels-save-hook ()
  "SPEC 001 Duplicate save hook detection."
  (pyagentd-test-with-session session-test--text
    (setq before-save-hook (append '(gptel--save-state gptel--save-state)
                                   before-save-hook))
    (let (logged)
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args) (push (apply #'format args) logged))))
        (run-hooks 'gptel-mode-hook))
      (should (member "pyagentd warning: demo: 2 duplicate save hooks"
                      logged)))
    ;; One hook saves the state of the session: ours.
    (should-not (memq 'gptel--save-state before-save-hook))
    (should (equal (remq t write-contents-functions) '(pyagentd-session--write)))))

(ert-deftest pyagentd-session-asks-nothing-about-its-variables ()
  (dolist (pair '((gptel-model . m) (gptel--backend-name . "C")
                  (gptel--tool-names . ("Bash")) (gptel-temperature . 0.5)
                  (gptel--bounds . ((response (1 2))))))
    (should (safe-local-variable-p (car pair) (cdr pair)))))

(ert-deftest pyagentd-session-discovery ()
  "SPEC 001 Comprehensive branch discovery with agents."
  (pyagentd-test-with-place
    (pyagentd-test-file root)
    (pyagentd-test-file
     root "" "sessions/demo-20260205143052/branches/main/agents/a/session.md")
    (make-directory (expand-file-name "sessions/.hidden/branches" root) t)
    (make-directory (expand-file-name "sessions/invalid" root) t)
    (should (equal (mapcar #'file-name-nondirectory
                           (jf/gptel--list-session-directories))
                   '("demo-20260205143052")))
    (let ((branch (car (jf/gptel--find-all-branches-with-agents))))
      (should (equal (plist-get branch :branch-name) "main"))
      (should (equal (mapcar #'file-name-nondirectory
                             (plist-get branch :agent-dirs))
                     '("a"))))))

(ert-deftest pyagentd-session-paths ()
  "SPEC 001 Computing branch directory path, Computing context file path."
  (should (equal (jf/gptel--branch-dir-path "/s/my-session" "main")
                 "/s/my-session/branches/main"))
  (should (equal (jf/gptel--context-file-path "/s/my-session/branches/main")
                 "/s/my-session/branches/main/session.md")))

(ert-deftest pyagentd-session-log-levels ()
  "SPEC 001 Logging level filtering."
  (let ((pyagentd-log-level 'info) logged (inhibit-message t))
    (cl-letf (((symbol-function 'message)
               (lambda (&rest args) (push (apply #'format args) logged))))
      (pyagentd-log 'debug "a")
      (pyagentd-log 'info "b")
      (pyagentd-log 'error "c"))
    (should (equal logged '("pyagentd error: c" "pyagentd info: b")))))

(ert-deftest pyagentd-session-its-own-log-has-the-prefix ()
  (pyagentd-test-with-session session-test--text
    (let ((pyagentd-log-to-file t))
      (pyagentd-log 'warn "Too %s" "much")
      (should (string-match-p
               (concat "\\`\\[[-0-9]+ [0-9:]+\\] "
                       (regexp-quote "[GPTEL-WARN] Too much") "\n\\'")
               (pyagentd-test-content
                (expand-file-name "session.log" pyagentd--session-dir)))))))

(ert-deftest pyagentd-session-errors-of-its-commands-name-the-package ()
  (let* (callers
         (show (lambda (data _context caller)
                 (push (cons caller (error-message-string data)) callers))))
    (let ((this-command 'pyagentd-send))
      (pyagentd-core--command-error show '(user-error "It waits") "" 'progn)
      (pyagentd-core--command-error show '(error "A fault") "" 'progn))
    (let ((this-command 'yank))
      (pyagentd-core--command-error show '(user-error "Not ours") "" 'progn)
      (pyagentd-core--command-error show '(pyagentd-timeout fork) "" 'signal))
    (should (equal (nreverse callers)
                   '((pyagentd . "It waits") (progn . "A fault")
                     (progn . "Not ours")
                     (pyagentd . "The daemon did not answer in time; \
wait and try again, or see M-x pyagentd-doctor"))))))

(ert-deftest pyagentd-session-made-in-a-session-names-that-as-its-project ()
  (pyagentd-test-with-session "### Hi"
    (let* ((branch (directory-file-name (file-name-directory file)))
           (root-of (lambda ()
                      (plist-get (pyagentd-session-request "x" nil nil nil)
                                 :root))))
      (make-directory (expand-file-name ".git" root))
      (should (equal (funcall root-of) branch))
      (write-region "" nil (pyagentd-place-scope-plan branch) nil 'silent)
      (with-temp-buffer                 ; a file of the session's
        (setq default-directory (file-name-as-directory branch))
        (should (equal (funcall root-of) branch))
        (setq default-directory (file-name-as-directory root))
        (should (equal (funcall root-of) root))))))

;;;; Names of buffers

(defun session-test--visit (place)
  "Visit the session at PLACE, below that of sessions, and return its buffer."
  (find-file-noselect
   (pyagentd-test-file (file-name-directory pyagentd-sessions-directory)
                       "### Hi" (format "sessions/%s/session.md" place))))

(ert-deftest pyagentd-buffers-are-called-what-their-sessions-are ()
  (pyagentd-test-with-place
    (let* ((tea (session-test--visit "making-tea-20260205143052/branches/main"))
           (other (session-test--visit
                   "making-tea-20260205143053/branches/main"))
           (branch (session-test--visit
                    "making-tea-20260205143052/branches/20260301000000-milk"))
           (agent (session-test--visit
                   (concat "making-tea-20260205143052/branches/main/agents/"
                           "explorer-20260205143054-look-at-readme-md")))
           (names (lambda ()
                    (mapcar #'buffer-name (list tea other branch agent)))))
      (should (equal (funcall names)
                     '("making-tea" "making-tea<2>" "making-tea (milk)"
                       "explorer: look-at-readme-md")))
      (with-current-buffer other (pyagentd-test-attach :title "Two cups"))
      (with-current-buffer agent
        (pyagentd-test-attach :title "look at README.md"))
      (should (equal (funcall names)
                     '("making-tea" "Two cups" "making-tea (milk)"
                       "explorer: look at README.md")))
      (kill-buffer tea)
      (should (equal (mapcar #'buffer-name (list other branch agent))
                     '("Two cups" "making-tea (milk)"
                       "explorer: look at README.md"))))))

(ert-deftest pyagentd-buffer-keeps-the-name-that-the-user-gave-it ()
  (pyagentd-test-with-session "### Hi"
    (rename-buffer "mine")
    (pyagentd-test-attach :title "Two cups")
    (should (equal (buffer-name) "mine"))
    (should (equal pyagentd-status-title "Two cups"))))

;;;; Keys at a prompt

(ert-deftest pyagentd-prompt-is-typed-and-not-folded ()
  (pyagentd-test-with-session "### Hi\n\n"
    (goto-char (point-max))
    (insert (propertize "Hello.\n\n## Two\n\n" 'gptel 'response) "### ")
    (should (eq (key-binding (kbd "TAB")) #'pyagentd-chat--prompt-nothing))
    (insert "/he")
    (should (eq (key-binding (kbd "TAB")) #'completion-at-point))
    (search-backward "## Two")
    (should-not (memq (key-binding (kbd "TAB"))
                      '(pyagentd-chat--prompt-nothing completion-at-point)))
    (goto-char (point-min))             ; a prompt of before
    (should-not (eq (key-binding (kbd "TAB")) #'pyagentd-chat--prompt-nothing))))

(ert-deftest pyagentd-prompt-begins-after-its-sign ()
  (pyagentd-test-with-session "### Hi there"
    (switch-to-buffer (current-buffer))
    (dolist (visual '(t nil))
      (visual-line-mode (if visual 1 -1))
      (goto-char (point-max))
      (execute-kbd-macro (kbd "C-a"))
      (should (= (point) 5))
      (execute-kbd-macro (kbd "C-a"))
      (should (= (point) 1))
      (execute-kbd-macro (kbd "C-a"))
      (should (= (point) 1)))
    (goto-char (point-max))
    (execute-kbd-macro (kbd "C-a C-k"))
    (should (equal (buffer-string) "### "))
    (insert "One\ntwo")
    (execute-kbd-macro (kbd "C-a"))
    (should (looking-at-p "two"))))

;;; session-test.el ends here

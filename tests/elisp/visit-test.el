;;; visit-test.el --- Tests of which files are sessions, and how they are visited -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'autoload)
(require 'test-helper)

;;;; Names

(ert-deftest pyagentd-visit-names ()
  (dolist (name '("/home/u/.gptel/sessions/s-1/branches/main/session.md"
                  "~/.gptel/sessions/s-1/branches/2026-x/session.md"
                  "~u/s/branches/main/session.md"
                  "c:/Users/u/s/branches/main/session.md"
                  "/s/branches/main/agents/a-1/session.md"
                  "/s/branches/b/agents/a-1/agents/b-2/session.md"))
    (should (string-match-p pyagentd-visit-regexp name)))
  (dolist (name '("/home/u/session.md" "/home/u/branches/session.md"
                  "/home/u/branches/main/x/session.md"
                  "/home/u/branches/main/session.md.bak"
                  "/home/u/branches/main/my-session.md"
                  "/ssh:host:/home/u/s/branches/main/session.md"
                  "/sudo:root@localhost:/s/branches/main/session.md"
                  "/:/home/u/s/branches/main/session.md"
                  "branches/main/session.md"))
    (should-not (string-match-p pyagentd-visit-regexp name))))

(ert-deftest pyagentd-visit-guard-costs-microseconds ()
  "SPEC 001 Fast guard for non-session files."
  (dolist (name '("/tmp/some/ordinary/file.el" "/home/u/docs/session.md"
                  "/ssh:host:/home/u/s/branches/main/session.md"))
    (with-temp-buffer
      (setq buffer-file-name name buffer-file-truename name)
      (let ((time (car (benchmark-run 10000 (pyagentd-maybe-enable)))))
        (setq buffer-file-name nil)
        (pyagentd-test-report "guard for %s: %.2f µs" name (* 100 time))
        (should (< time 1))
        (should-not pyagentd--session-id)))))

(ert-deftest pyagentd-visit-names-of-a-host-are-below-the-directory-of-copies ()
  (pyagentd-test-with-place
    (require 'pyagentd-host)
    (let* ((process-environment
            (cons (concat "XDG_STATE_HOME=" root) process-environment))
           (pyagentd-host "far")
           (pyagentd-host--copies-cache nil)
           (copies (expand-file-name "pyagentd/hosts/far" root)))
      (cl-letf (((symbol-function 'pyagentd-host--root)
                 (lambda () "/srv/sessions/")))
        (should (equal (pyagentd-host-name "/srv/sessions/s/branches/main")
                       (concat copies "/srv/sessions/s/branches/main")))
        (should (file-exists-p
                 (concat copies "/srv/sessions/s/branches/main/session.md")))
        (let ((away (concat "/srv/sessions" (apply #'concat (make-list 20 "/.."))
                            root "/away/branches/main/session.md")))
          (should (equal (pyagentd-host-name away) (concat "/ssh:far:" away)))
          (should-not (file-exists-p (expand-file-name "away" root))))))))

;;;; An Emacs of its own, with nothing of ours but the autoloads

(defconst visit-test--prelude
  '(progn
     (require 'cl-lib)
     (defvar asked nil)
     (defvar evaluated nil)
     ;; In batch Emacs would not ask; whether it wants to is the question.
     (dolist (function '(hack-local-variables-confirm yes-or-no-p y-or-n-p
                         read-char-choice read-from-minibuffer))
       (advice-add function :override
                   (lambda (&rest arguments)
                     (push (cons function arguments) asked) nil)))
     (setq vc-handled-backends nil))
  "What a new Emacs evaluates first.")

(defun visit-test--install (root)
  "Copy the package to a directory in ROOT and make its autoloads.
Return the directory; the autoloads are in all.el."
  (let* ((directory (expand-file-name "elisp" root))
         (generated-autoload-file (expand-file-name "all.el" directory))
         (inhibit-message t) (save-silently t))
    (unless (file-directory-p directory)
      (make-directory directory)
      (dolist (file (directory-files (file-name-directory
                                      (locate-library "pyagentd-large"))
                                     t "\\.el\\'"))
        (copy-file file (file-name-as-directory directory)))
      (update-directory-autoloads directory)
      (kill-buffer (get-file-buffer generated-autoload-file)))
    directory))

(defun visit-test--run (root &rest forms)
  "Evaluate FORMS in a new Emacs, files being below ROOT; return the last value."
  (let ((default-directory (expand-file-name default-directory)) ; "~" changes
        (process-environment
         (append (list (concat "PYAGENTD_RUNTIME_DIR=" root "/run")
                       (concat "PYAGENTD_SESSIONS_DIR=" root "/sessions")
                       (concat "HOME=" root))
                 process-environment))
        (arguments (let ((directory (visit-test--install root)))
                     (append (seq-mapcat (lambda (place) (list "-L" place))
                                         (cons directory load-path))
                             (list "-l" (expand-file-name "all" directory))))))
    (with-temp-buffer
      (apply #'call-process
             (expand-file-name invocation-name invocation-directory) nil t nil
             "-Q" "--batch"
             (append arguments
                     (list "--eval" (prin1-to-string visit-test--prelude)
                           "--eval"
                           (prin1-to-string
                            `(princ (format "\n\C-a%S" (progn ,@forms)))))))
      (goto-char (point-min))
      (unless (search-forward "\n\C-a" nil t)
        (ert-fail (buffer-string)))
      (read (current-buffer)))))

(ert-deftest pyagentd-autoload-shows-the-twelve-commands ()
  "What `M-x pyagentd- TAB' shows in an Emacs that has just been started."
  (pyagentd-test-with-place
    (should (equal (visit-test--run
                    root
                    '(let (found)
                       (mapatoms (lambda (symbol)
                                   (and (commandp symbol)
                                        (string-prefix-p "pyagentd" (symbol-name symbol))
                                        (push symbol found))))
                       (sort found #'string<)))
                   '(pyagentd-add pyagentd-agent pyagentd-ask pyagentd-doctor
                     pyagentd-import pyagentd-inspect pyagentd-list pyagentd-menu
                     pyagentd-mission pyagentd-search pyagentd-session
                     pyagentd-sessions)))))

(ert-deftest pyagentd-autoload-of-each-command-works ()
  "Each file that is loaded first brings the whole package."
  (pyagentd-test-with-place
    (dolist (command '(pyagentd-doctor pyagentd-import pyagentd-inspect
                       pyagentd-list pyagentd-menu pyagentd-mission
                       pyagentd-search pyagentd-sessions pyagentd-add
                       pyagentd-agent))
      (should (equal (cons command
                           (visit-test--run
                            root
                            `(list (progn (autoload-do-load
                                           (symbol-function ',command) ',command)
                                          (commandp ',command))
                                   (autoloadp (symbol-function ',command)))))
                     (list command t nil))))))

(ert-deftest pyagentd-visit-of-another-file-loads-nothing ()
  "SPEC 001 Fast guard for non-session files."
  (pyagentd-test-with-place
    (let* ((names '("a.txt" "session.md" "branches.d/main/session.md"
                    "branches/main/other.md"))
           (files (mapcar (lambda (name) (pyagentd-test-file root "x" name)) names)))
      (should (equal (visit-test--run
                      root
                      `(mapc #'find-file-noselect ',files)
                      '(list (seq-filter (lambda (feature)
                                           (string-prefix-p "pyagentd"
                                                            (symbol-name feature)))
                                         features)
                             (process-list) asked))
                     '(nil nil nil)))
      (should-not (file-exists-p (expand-file-name "run" root))))))

(ert-deftest pyagentd-visit-of-a-session-starts-no-daemon ()
  "SPEC 001 Opening existing session via find-file."
  (pyagentd-test-with-place
    (let ((file (pyagentd-test-file root "### Hi")))
      (should (equal (visit-test--run
                      root
                      `(find-file ,file)
                      '(sit-for 0.2)
                      '(list pyagentd-mode pyagentd--branch-name
                             (process-list) asked))
                     '(t "main" nil nil)))
      (should-not (file-exists-p (expand-file-name "run" root))))))

;;;; Local variables

(defconst visit-test--block
  (concat "### -*- mode: emacs-lisp; eval: (setq evaluated 'line) -*-\n\n"
          "Hello\n\n"
          "<!-- Local " "Variables: -->\n"
          "<!-- gptel-model: m -->\n"
          "<!-- mode: emacs-lisp -->\n"
          "<!-- eval: (setq evaluated 'block) -->\n"
          "<!-- unknown-variable: 1 -->\n"
          "<!-- coding: latin-1 -->\n"
          "<!-- gptel--preset: terse -->\n"
          "<!-- gptel-system-prompt: \"Be\\nterse.\" -->\n"
          "<!-- gptel-max-tokens: 99 -->\n"
          "<!-- gptel--bounds: ((response (60 65))) -->\n"
          "<!-- End: -->\n")
  "A session whose text and block ask for all kinds of things.")

(defconst visit-test--dir-locals
  "((nil . ((another-variable . 2) (fill-column . 33) (eval . (setq evaluated 'dir)))))"
  "Variables of a directory, of which only one is safe.")

(defun visit-test--open (root files values &rest forms)
  "Visit FILES below ROOT in a new Emacs after FORMS; say what has come of it.
VALUES are those of `enable-local-variables' for each."
  (apply #'visit-test--run root
         (append
          forms
          `((setq enable-local-eval t)
            (cl-mapcar
             (lambda (file value)
               (setq enable-local-variables value)
               (find-file file)
               (set-buffer-modified-p t)
               (save-buffer)
               (list asked evaluated major-mode pyagentd-mode
                     (boundp 'unknown-variable) buffer-file-coding-system))
             ',files ',values)))))

(defconst visit-test--quiet '(nil nil text-mode t nil utf-8-unix)
  "What comes of it if nobody is asked and nothing evaluated.")

(defconst visit-test--gptel
  '(progn
     (defvar gptel-model nil)
     (defvar gptel--preset nil)
     (put 'gptel--preset 'safe-local-variable #'symbolp)
     (put 'gptel-model 'safe-local-variable #'always)
     (put 'gptel--bounds 'safe-local-variable #'always)
     (provide 'gptel))
  "What loading gptel means for local variables.")

(ert-deftest pyagentd-visit-never-asks-about-local-variables ()
  "SPEC 001 Opening session with Local Variables."
  (pyagentd-test-with-place
    (pyagentd-test-file root visit-test--dir-locals "sessions/.dir-locals.el")
    (dolist (gptel (list nil visit-test--gptel))
      (let* ((values '(t nil :safe query))
             (files (mapcar (lambda (value)
                              (pyagentd-test-file
                               root visit-test--block
                               (format "sessions/s-%s/branches/main/session.md"
                                       value)))
                            values)))
        (should (equal (visit-test--open root files values gptel)
                       (make-list 4 visit-test--quiet)))
        (dolist (file files)
          (let ((saved (pyagentd-test-content file)))
            (should (string-match-p "^<!-- eval: (setq" saved))
            (should (string-match-p "^<!-- unknown-variable: 1 -->" saved))
            (should-not (string-match-p "gptel-system-prompt" saved))))))))

(ert-deftest pyagentd-visit-evaluates-nothing-of-a-session-even-if-all-is-allowed ()
  (pyagentd-test-with-place
    (let* ((file (pyagentd-test-file root visit-test--block))
           (link (expand-file-name "../../current" (file-name-directory file))))
      (make-symbolic-link "branches/main" link)
      (should (equal (visit-test--open
                      root (list (expand-file-name "session.md" link) file)
                      '(:all :all))
                     (make-list 2 visit-test--quiet))))))

(ert-deftest pyagentd-visit-takes-safe-variables-of-the-directory ()
  (pyagentd-test-with-place
    (pyagentd-test-file root visit-test--dir-locals "sessions/.dir-locals.el")
    (let ((file (pyagentd-test-file root "### Hi")))
      (should (equal (visit-test--run root `(find-file ,file)
                                      '(list asked evaluated fill-column))
                     '(nil nil 33))))))

(ert-deftest pyagentd-visit-reads-utf-8-whatever-the-text-looks-like ()
  (pyagentd-test-with-place
    (let ((file (pyagentd-test-file root "")) (bytes "### caf\303\251 \377\376 x"))
      (let ((coding-system-for-write 'no-conversion))
        (write-region bytes nil file nil 'quiet))
      (with-current-buffer (find-file-noselect file)
        (should (string-match-p "café" (buffer-string)))
        (set-buffer-modified-p t)
        (save-buffer))
      (with-temp-buffer
        (set-buffer-multibyte nil)
        (insert-file-contents-literally file)
        (should (equal (buffer-string) bytes))))))

;;;; Modes

(ert-deftest pyagentd-visit-shows-a-mode-nothing-of-a-long-text ()
  (pyagentd-test-with-place
    (let ((file (pyagentd-test-file root (make-string 60000 ?x))) seen)
      (cl-letf (((symbol-function 'visit-test-mode)
                 (lambda ()
                   (kill-all-local-variables)
                   (setq major-mode 'visit-test-mode)
                   (push (- (point-max) (point-min)) seen)
                   (run-mode-hooks 'visit-test-mode-hook))))
        (defvar visit-test-mode-hook)
        (let ((auto-mode-alist '(("\\.md\\'" . visit-test-mode)))
              (visit-test-mode-hook
               (list (lambda () (push (- (point-max) (point-min)) seen)))))
          (with-current-buffer (find-file-noselect file)
            (should pyagentd-mode)
            ;; The user's hook comes later and sees it.
            (should (equal seen '(60000 0)))
            (should (= (buffer-size) 60000))))))))

(ert-deftest pyagentd-visit-again-after-normal-mode ()
  (pyagentd-test-with-session "### Hi"
    (let ((mode major-mode))
      (normal-mode)
      (should pyagentd-mode)
      (should (eq major-mode mode)))
    (should (equal (buffer-string) "### Hi"))))

;;;; No ordinary visits

(ert-deftest pyagentd-visit-literally-is-no-session ()
  (pyagentd-test-with-place
    (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi")
                                             nil t)
      (should-not (bound-and-true-p pyagentd-mode)))))

(ert-deftest pyagentd-visit-in-a-directory-that-is-not-there-is-no-session ()
  (pyagentd-test-with-place
    (with-current-buffer (find-file-noselect
                          (expand-file-name "no/branches/main/session.md" root))
      (should-not (bound-and-true-p pyagentd-mode)))))

(ert-deftest pyagentd-visit-of-an-indirect-buffer-is-that-of-its-base ()
  (pyagentd-test-with-session "### Hi"
    (let ((indirect (make-indirect-buffer (current-buffer) "indirect" t))
          (base (current-buffer)))
      (unwind-protect
          (with-current-buffer indirect
            (pyagentd-maybe-enable)
            (goto-char (point-max))
            (insert "!")
            (save-buffer)
            (should (eq (pyagentd-place-buffer pyagentd--branch-dir) base))
            (should (equal (pyagentd-test-content file) "### Hi!")))
        (kill-buffer indirect)))
    (should pyagentd-mode)
    (should (eq (pyagentd-place-buffer pyagentd--branch-dir) (current-buffer)))))

(ert-deftest pyagentd-visit-of-an-archive-member-is-no-session ()
  (skip-unless (executable-find "tar"))
  (pyagentd-test-with-place
    (let ((file (pyagentd-test-file root visit-test--block "s/branches/main/session.md"))
          (archive (expand-file-name "a.tar" root)))
      (should (file-exists-p file))
      (call-process "tar" nil nil nil "-C" root "-cf" archive "s")
      (with-current-buffer (find-file-noselect archive)
        (goto-char (point-min))
        (search-forward "session.md")
        (cl-letf (((symbol-function 'hack-local-variables-confirm)
                   (lambda (&rest _) (ert-fail "Asked"))))
          (let ((member (save-window-excursion (tar-extract) (current-buffer))))
            (unwind-protect
                (with-current-buffer member
                  (should-not (bound-and-true-p pyagentd-mode))
                  (should (string-match-p "Local Variables" (buffer-string))))
              (kill-buffer member))))))))

(ert-deftest pyagentd-visit-of-current-is-that-of-the-branch ()
  "SPEC 001 Current branch symlink."
  (pyagentd-test-with-place
    (let* ((file (pyagentd-test-file root "### Hi"))
           (link (expand-file-name "../../current" (file-name-directory file))))
      (make-symbolic-link "branches/main" link)
      (with-current-buffer (find-file-noselect (expand-file-name "session.md" link))
        (should (equal buffer-file-name file))
        ;; Somebody switches; what is typed here is still of this branch.
        (let ((other (pyagentd-test-file
                      root "### Other"
                      "sessions/demo-20260205143052/branches/other/session.md")))
          (delete-file link)
          (make-symbolic-link "branches/other" link)
          (goto-char (point-max))
          (insert "!")
          (save-buffer)
          (should (equal (pyagentd-test-content file) "### Hi!"))
          (should (equal (pyagentd-test-content other) "### Other")))))))

;;;; Where no daemon runs

(defmacro visit-test--with-files (text &rest body)
  "Evaluate BODY where a session with TEXT, a preset and metadata is.
`file' is the session's; `pyagentd-command' counts in `began' how often a
daemon is started."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-place
     (let* ((file (pyagentd-test-file root ,text))
            (here (file-name-directory file))
            (began (expand-file-name "began" root))
            (pyagentd-autosave-idle-time 0)
            (pyagentd-command
             (list "sh" "-c" (format "echo x >>%s; exec python3 %s serve --detach"
                                     began (expand-file-name
                                            "fake-daemon.py"
                                            pyagentd-test-directory)))))
       (write-region "---\nbackend: Claude\nmodel: claude-opus-4-5\ntools: [Read, weather]\n---\nBe kind."
                     nil (expand-file-name "preset.md" here) nil 'quiet)
       (write-region "session_id: \"demo\"\npreset: \"explorer\"\n" nil
                     (expand-file-name "scope-plan.yml" here) nil 'quiet)
       ,@body)))

(defun visit-test--settings ()
  "Return model, backend, tools and preset as they are here."
  (list gptel-model gptel--backend-name gptel--tool-names
        pyagentd-status-preset))

(ert-deftest pyagentd-visit-without-a-daemon-the-settings-are-those-in-the-files ()
  (visit-test--with-files "### Hi\n\nHello.\n\n### \n
<!-- Local Variables: -->\n<!-- gptel-model: some-model -->
<!-- gptel--backend-name: \"Local\" -->\n<!-- gptel--tool-names: (\"weather\") -->
<!-- gptel--bounds: ((response (9 15))) -->\n<!-- End: -->\n"
    (let ((before (pyagentd-test-content file)))
      (with-current-buffer (find-file-noselect file)
        (should (equal (visit-test--settings)
                       '(some-model "Local" ("weather") "explorer")))
        (should (string-match-p "explorer.*some-model\\*" pyagentd-status--line))
        (goto-char (point-max))
        (insert "x")
        (save-buffer)
        (should (equal (pyagentd-test-content file)
                       (string-replace "### \n" "### x\n" before)))))))

(ert-deftest pyagentd-visit-a-session-without-block-is-as-its-preset-says ()
  (visit-test--with-files ""
    (with-current-buffer (find-file-noselect file)
      (should (equal (visit-test--settings)
                     '(claude-opus-4-5 "Claude" ("Read" "weather") "explorer")))
      (should-not (buffer-modified-p))
      (insert "Hi")
      (save-buffer)
      ;; Of the tools the daemon says which ones gptel can have.
      (should (equal (pyagentd-test-content file)
                     "### Hi\n\n<!-- Local Variables: -->\n\
<!-- gptel-model: claude-opus-4-5 -->\n\
<!-- gptel--backend-name: \"Claude\" -->\n<!-- End: -->\n"))
      (pyagentd-test-attach :settings '(:model "claude-opus-4-5" :backend "Claude"
                                        :tools ("Read" "weather"))
                            :gptel-tools '("weather"))
      (should (equal gptel--tool-names '("Read" "weather")))
      (should (string-match-p "tool-names: (\"weather\") " (pyagentd-block-text)))
      ;; What somebody chose for this session is written as it is.
      (pyagentd-block-set 'gptel--tool-names '("Read"))
      (should (string-match-p "tool-names: (\"Read\") " (pyagentd-block-text))))
    (should-not (file-exists-p began))))

(ert-deftest pyagentd-visit-settings-that-cannot-be-read-are-none ()
  (visit-test--with-files "### Hi"
    (write-region "---\nmodel: &a {b: *c}\n---\n" nil
                  (expand-file-name "preset.md" here) nil 'quiet)
    (with-current-buffer (find-file-noselect file)
      (should pyagentd-mode)
      (should-not (pyagentd-block-get 'gptel-model)))))

(ert-deftest pyagentd-visit-a-session-starts-the-daemon-in-the-background ()
  (visit-test--with-files "### Hi"
    (let ((other (expand-file-name "some.md" root)))
      (write-region "Hi" nil other nil 'quiet)
      (dolist (case '((t t nil) (nil nil nil) (nil t t)))
        (pcase-let ((`(,batch ,wanted ,starts) case))
          (let ((noninteractive batch)
                (pyagentd-start-when-visiting wanted))
            (find-file-noselect other)
            (accept-process-output nil 0.01)
            (should-not pyagentd-start--process)
            (with-current-buffer (find-file-noselect file)
              (should-not (pyagentd-rpc-connected-p))
              (accept-process-output nil 0.01)
              (should (eq starts (and pyagentd-start--process t)))
              (pyagentd-connect)
              (unless starts
                (set-process-sentinel pyagentd-start--process #'ignore)
                (delete-process pyagentd-start--process)
                (ignore-errors (delete-file began))
                (setq pyagentd-start--process nil
                      pyagentd-start--waiting nil)
                (kill-buffer)))))))
    (with-current-buffer (find-buffer-visiting file)
      (pyagentd-test-await (eq pyagentd-attach-state t))
      (should (equal (pyagentd-test-content began) "x\n")))))

;;; visit-test.el ends here

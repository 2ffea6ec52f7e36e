;;; fold-test.el --- Tests of folding blocks -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)

(defun fold-test--shown ()
  "Return what of the buffer is seen."
  (let ((pos (point-min)) (shown "") last)
    (while (< pos (point-max))
      (let* ((next (next-char-property-change pos (point-max)))
             (display (get-char-property pos 'display)))
        (setq shown (concat shown
                            (cond ((or (invisible-p pos)
                                       (and display (eq display last)))
                                   "")
                                  ((stringp display) display)
                                  (t (buffer-substring-no-properties pos
                                                                     next))))
              last display
              pos next)))
    (substring-no-properties shown)))

(ert-deftest pyagentd-fold-blocks-are-lines ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (should (equal (substring (fold-test--shown) 0 (length (concat "\
### First thing\n\n▸ thought · 3 lines\n\nLooking.\n\n``` python\nprint(1)\n```\
\n\n▸ Read :file_path \"a.py\"\n## Found")))
                   "\
### First thing\n\n▸ thought · 3 lines\n\nLooking.\n\n``` python\nprint(1)\n```\
\n\n▸ Read :file_path \"a.py\"\n## Found"))
    (should-not (buffer-modified-p))))

(ert-deftest pyagentd-fold-tab-and-a-key-unfold-and-fold ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (blocks-find "``` tool")
    (pyagentd-test-type "TAB")
    (should (string-search "\none\ntwo\n```\n" (fold-test--shown)))
    (should (string-search "▸ thought" (fold-test--shown)))
    (blocks-find "two")
    (pyagentd-test-type "C-c M-f")
    (should-not (string-search "two" (fold-test--shown)))
    (should (looking-at-p "``` tool"))
    (pyagentd-test-type "C-u C-c M-f")
    (should (equal (fold-test--shown) (buffer-string)))
    (pyagentd-test-type "C-u C-c M-f")
    (should-not (string-search "two" (fold-test--shown)))
    (blocks-find "Looking")
    (should-error (pyagentd-fold-toggle) :type 'user-error)))

(ert-deftest pyagentd-fold-unfolds-by-a-click-in-another-window ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (blocks-find "``` tool")
    (let ((session (current-buffer)) (position (point)))
      (save-window-excursion
        (delete-other-windows)
        (let ((window (split-window)))
          (set-window-buffer window session)
          (with-temp-buffer
            (switch-to-buffer (current-buffer))
            (pyagentd-fold-toggle
             `(mouse-2 (,window ,position (0 . 0) 0 nil ,position (0 . 0) nil
                                (0 . 0) (1 . 1))))
            (should (eq (selected-window) window))))))
    (should (string-search "\none\ntwo\n```\n" (fold-test--shown)))))

(ert-deftest pyagentd-fold-lasts-when-the-mode-is-set-anew-or-the-file-read-again ()
  (blocks-with
    (set-buffer-modified-p t)
    (save-buffer)
    (pyagentd-fold--find (point-min) (point-max))
    (dolist (again (list #'normal-mode (lambda () (revert-buffer t t))))
      (funcall again)
      (pyagentd-fold--find (point-min) (point-max))
      (should (string-search "▸ Read :file_path" (fold-test--shown)))
      (should-not (string-search "two" (fold-test--shown))))))

(ert-deftest pyagentd-fold-where-markup-is-hidden-lines-stay-apart ()
  (skip-unless (fboundp 'markdown-toggle-markup-hiding))
  (blocks-with
    (markdown-toggle-markup-hiding 1)
    (font-lock-ensure)
    (pyagentd-display--draw (point-min) (point-max))
    (should-not (string-search "### First" (fold-test--shown)))
    (should (string-search "▸ Read :file_path \"a.py\"\n" (fold-test--shown)))
    (should (string-suffix-p "\n\n### " (fold-test--shown)))))

(ert-deftest pyagentd-fold-which-is-an-option ()
  (let ((pyagentd-fold '(reasoning)))
    (blocks-with
      (pyagentd-fold--find (point-min) (point-max))
      (should (string-search "▸ thought" (fold-test--shown)))
      (should (string-search "two" (fold-test--shown))))))

(ert-deftest pyagentd-fold-a-block-folds-when-it-is-complete ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     '(insert 1 "\n\n" nil)
     '(insert 1 "``` reasoning\n" ignore) '(insert 1 "Hm.\nSo." ignore))
    (should (string-search "So." (fold-test--shown)))
    (pyagentd-test-events '(insert 1 "\n```" ignore))
    (should (string-suffix-p "▸ thought · 2 lines" (fold-test--shown)))
    (pyagentd-test-events
     '(insert 1 "\n\n" nil) '(insert 1 "``` tool (Bash :command \"ls\")" ignore)
     '(insert 1 "\n(:name \"Bash\" :args (:command \"ls\"))\n\na" (tool "id_2"))
     '(insert 1 "\n```\n" ignore))
    (should (string-suffix-p "▸ Bash :command \"ls\"\n"
                             (fold-test--shown)))))

(ert-deftest pyagentd-fold-blocks-that-come-together-fold-each ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     '(insert 1 "\n\n" nil) '(insert 1 "``` tool (Bash :command \"a\")" ignore)
     '(insert 1 "\n(:name \"Bash\" :args (:command \"a\"))\n\na" (tool "id_1"))
     '(insert 1 "\n```\n``` tool (Bash :command \"b\")" ignore)
     '(insert 1 "\n(:name \"Bash\" :args (:command \"b\"))\n\nb" (tool "id_2"))
     '(insert 1 "\n```\n``` tool (Bash :command \"c\")" ignore)
     '(insert 1 "\n(:name \"Bash\" :args (:command \"c\"))\n\nc" (tool "id_3"))
     '(insert 1 "\n```\n" ignore))
    (should (string-suffix-p
             (mapconcat (lambda (name)
                          (format "▸ Bash :command \"%s\"\n" name))
                        '("a" "b" "c") "")
             (fold-test--shown)))))

;; A call that is about to come, one that was there, and what a command says.
(ert-deftest pyagentd-fold-a-line-says-that-a-call-has-failed ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (should-not (string-search "→" (fold-test--shown)))
    (pyagentd-failed-receive '("id_1") nil)
    (should (string-search "▸ Read :file_path \"a.py\" → failed\n"
                           (fold-test--shown)))
    (pyagentd-failed-receive nil nil)
    (should (string-search "→ failed" (fold-test--shown))))
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     '(tool 0 (:id "id_2" :state "failed"))
     '(insert 1 "\n\n" nil) '(insert 1 "``` tool (Edit :path \"a\")" ignore)
     '(insert 1 "\n(:name \"Edit\" :args (:path \"a\"))\n\nDenied." (tool "id_2"))
     '(insert 1 "\n```\n" ignore))
    (should (string-suffix-p "▸ Edit :path \"a\" → failed\n"
                             (fold-test--shown)))
    (pyagentd-test-events
     '(insert 2 "``` tool (Bash :command \"ls\")" ignore)
     '(insert 2 "\n(:name \"Bash\" :args (:command \"ls\"))\n\nno\n[exit code 2]"
              (tool "id_3"))
     '(insert 2 "\n```\n" ignore))
    (should (string-suffix-p "▸ Bash :command \"ls\" → exit 2\n"
                             (fold-test--shown)))
    (pyagentd-test-events
     '(tool 2 (:id "id_4" :state "failed"))
     '(insert 3 "``` tool (Write :content \"y = 2 \")" ignore)
     '(insert 3 "\n(:name \"Write\" :args (:content \"y = (2\n# \\\"\n\"))\n\nDenied."
              (tool "id_4"))
     '(insert 3 "\n```\n" ignore))
    (should (string-suffix-p "▸ Write :content \"y = 2 \" → failed\n"
                             (fold-test--shown)))))

(ert-deftest pyagentd-fold-few-of-many-blocks-have-overlays ()
  (blocks-with
    (let ((pyagentd-fold--most 10)
          (block (buffer-substring (blocks-find "``` tool")
                                   (progn (search-forward "two\n```\n") (point)))))
      (with-silent-modifications
        (goto-char (point-max))
        (dotimes (_ 30) (insert block)))
      (pyagentd-fold--find (point-min) (point-max))
      (should (<= (length pyagentd-fold--lines) 10))
      (let ((gone (text-property-any (point-min) (point-max) 'fontified nil)))
        (should gone)
        (pyagentd-fold--find gone (+ gone 100))
        (should (string-search "▸ Read" (fold-test--shown)))))))

(ert-deftest pyagentd-fold-a-line-says-what-the-daemon-says-of-a-call ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (pyagentd-failed-receive nil '(("id_1" "Read a.py · 2 lines of 9")))
    (should (string-search "▸ Read a.py · 2 lines of 9\n## Found"
                           (fold-test--shown)))
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     '(tool 0 (:id "id_2" :name "Edit" :summary "Edit main.py +1 −1"))
     '(insert 1 "\n\n" nil) '(insert 1 "``` tool (Edit :file_path ...)" ignore)
     '(insert 1 "\n(:name \"Edit\" :args (:file_path \"main.py\"))\n\nDone"
              (tool "id_2"))
     '(insert 1 "\n```\n" ignore))
    (should (string-suffix-p "▸ Edit main.py +1 −1\n" (fold-test--shown)))))

(ert-deftest pyagentd-fold-return-on-a-folded-line-unfolds-and-changes-nothing ()
  (dolist (key '("RET" "TAB" "<return>"))
    (dolist (place '(0 5 :end))
      (blocks-with
        (set-buffer-modified-p nil)
        (pyagentd-fold--find (point-min) (point-max))
        (let ((text (buffer-string)))
          (blocks-find "``` tool")
          (if (eq place :end)
              (progn (search-forward "two\n```"))
            (forward-char place))
          (pyagentd-test-type key)
          (should (string-search "\none\ntwo\n```\n" (fold-test--shown)))
          (should (equal text (buffer-string)))
          (should-not (buffer-modified-p)))))))

(ert-deftest pyagentd-fold-return-on-an-agents-line-visits-it ()
  (pyagentd-test-with-daemon
    (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
      (pyagentd-test-tell 'fake-answer "(:seq 0 :revision 10)" 'attach)
      (pyagentd-test-attach-now)
      (let ((agent (pyagentd-test-file
                    root "Look." (expand-file-name
                                  "agents/explorer-20260205143052-look/session.md"
                                  pyagentd--branch-dir))))
        (pyagentd-test-answer
         'agents `(:agents ((:id "y" :call-id "id_9"
                             :branch-dir ,(file-name-directory agent)))))
        (pyagentd-insert-start (point-max))
        (pyagentd-test-events
         '(insert 1 "\n\n" nil)
         '(insert 1 "``` tool (PersistentAgent :preset \"explorer\")" ignore)
         '(insert 1 "\n(:name \"PersistentAgent\" :args (:preset \"explorer\"))\n\nSeen."
                  (tool "id_9"))
         '(insert 1 "\n```\n" ignore))
        (blocks-find "``` tool")
        (save-window-excursion
          (switch-to-buffer (current-buffer))
          (goto-char (point-max))
          (search-backward "``` tool")
          (should (pyagentd-fenced-agents-call (point)))
          (pyagentd-test-type "RET")
          (pyagentd-test-await (equal agent (buffer-file-name
                                             (window-buffer)))))))))

;;;; Recorded text

(defmacro fold-test--refused (&rest body)
  "Evaluate BODY, which must leave the text alone and say why."
  (declare (indent 0) (debug t))
  `(let ((text (buffer-string)))
     (should-error (progn ,@body) :type 'text-read-only)
     (should (equal text (buffer-string)))))

(ert-deftest pyagentd-recorded-text-is-not-changed-by-accident ()
  (blocks-with
    (pyagentd-session--set-guard)
    (dolist (place '("``` tool" "``` reasoning" "(:name" "two" "I had"))
      (blocks-find place)
      (fold-test--refused (insert "x")))
    (blocks-find "two\n```")
    (fold-test--refused (goto-char (match-end 0)) (insert "\n"))
    (fold-test--refused (blocks-find "``` tool") (delete-char -2))
    (fold-test--refused (blocks-find "one") (kill-line))
    (fold-test--refused (kill-region (point-min) (point-max)))
    (should (string-search "two" (current-kill 0)))
    ;; What is said and what is typed stays as it was: to be changed.
    (blocks-find "Looking") (insert "Still l")
    (blocks-find "## Found") (insert "Then\n")
    (blocks-find "Second") (insert "A ") (delete-char 2)
    (goto-char (point-max)) (insert "more")
    (kill-new "and again")
    (yank)
    (should (string-suffix-p "### moreand again" (buffer-string)))))

(ert-deftest pyagentd-recorded-text-can-be-changed-on-purpose-and-by-the-daemon ()
  (blocks-with
    (buffer-enable-undo)
    (pyagentd-session--set-guard)
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     '(insert 1 "\n\n" nil) '(insert 1 "``` tool (Bash)" ignore)
     '(insert 1 "\n(:name \"Bash\")\n\nthree" (tool "id_7"))
     '(insert 1 "\n```\n" ignore))
    (should (string-suffix-p "three\n```\n" (buffer-string)))
    (let ((inhibit-read-only t))
      (blocks-find "two") (insert "1 "))
    (pyagentd-edit-recorded)
    (blocks-find "three") (insert "2 ")
    (undo-boundary)
    (pyagentd-edit-recorded)
    (fold-test--refused (insert "x"))
    (setq last-command nil)
    (undo)                              ; of the change in recorded text
    (should-not (string-search "2 three" (buffer-string)))))

(ert-deftest pyagentd-recorded-text-may-be-cleaned-up-by-save-hooks ()
  (blocks-with
    (pyagentd-session--set-guard)
    (let ((inhibit-read-only t))
      (blocks-find "two") (insert "  \n"))
    (let ((before-save-hook (list #'pyagentd-session--before-save
                                  #'delete-trailing-whitespace)))
      (run-hooks 'before-save-hook))
    (should-not (string-search "  \n" (buffer-string)))
    (pyagentd-session--after-save)
    (fold-test--refused (blocks-find "two") (insert "x"))))

(ert-deftest pyagentd-prompts-stand-apart-but-for-the-one-that-is-typed ()
  (blocks-with
    (goto-char (point-max))
    (let ((inhibit-read-only t)
          (start (1+ (point))))
      (insert "\n" (propertize "### a heading of an answer\n" 'gptel 'response)
              "### sent\n\nmore of it\n\n### typed")
      (dotimes (_ 2)                    ; again, when it is displayed again
        (pyagentd-prompt--find start (point-max)))
      (should (equal '("### sent\n")
                     (mapcar (lambda (overlay)
                               (buffer-substring-no-properties
                                (overlay-start overlay) (overlay-end overlay)))
                             (seq-filter (lambda (overlay)
                                           (overlay-get overlay
                                                        'pyagentd-prompt))
                                         (overlays-in start (point-max)))))))))

(provide 'fold-test)
;;; fold-test.el ends here

;;; return-test.el --- Tests of coming back -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)
(require 'desktop)

(ert-deftest pyagentd-return-a-bookmark-finds-a-session-that-moved ()
  (blocks-with
    (pyagentd-test-attach :title "Tea")
    (blocks-find "Yes.")
    (let* ((record (pyagentd-return-record))
           (bookmark (cons "Tea: Second" (cdr record)))
           (new (expand-file-name "elsewhere" root)))
      (should (equal (car record) "Tea: Second"))
      (rename-file (expand-file-name "sessions" root) new)
      (set-buffer-modified-p nil)
      (kill-buffer)
      (let ((pyagentd-sessions-directory new)
            (coding-system-for-write 'utf-8))
        (write-region "### More\n\n### Second\nthing\n" nil
                      (expand-file-name
                       "demo-20260205143052/branches/main/session.md" new)
                      nil 'quiet)
        (bookmark-jump bookmark)
        (should (looking-at-p "Second\nthing"))
        (should pyagentd-mode)))))

(ert-deftest pyagentd-return-a-narrowed-session-has-its-prompts ()
  (blocks-with
    (blocks-find "Yes.")
    (narrow-to-region (point) (point-max))
    (should (string-suffix-p ": Second" (car (pyagentd-return-record))))
    (goto-char (point-max))
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_ table &rest _) (car (all-completions "" table)))))
      (pyagentd-recall-prompt))
    (should (looking-back "Second\nthing" nil))))

(ert-deftest pyagentd-return-a-desktop-brings-sessions-and-lists-back ()
  (pyagentd-test-with-session "### Hi\n"
    (let ((desktop-save-mode nil)
          (desktop-restore-eager t)
          (desktop-restore-frames nil)
          (desktop-load-locked-desktop t)
          (buffers (list (current-buffer)
                         (get-buffer-create "*pyagentd sessions*")))
          (inhibit-message t))
      (with-current-buffer "*pyagentd sessions*" (pyagentd-list-mode))
      (cl-letf (((symbol-function 'revert-buffer) #'ignore))
        (save-window-excursion ; nobody says of what session it is
          (push (pyagentd-list-show "grants" '(:branch "/b")) buffers)))
      (setq buffer-read-only t)         ; another one writes it
      (cl-letf (((symbol-function 'buffer-list) (lambda (&rest _)
                   (append buffers (list (current-buffer))))))
        (desktop-save root t))
      (set-buffer-modified-p nil)
      (mapc #'kill-buffer buffers)
      (let ((noninteractive nil))
        (desktop-read root))
      (desktop-release-lock root)
      (should (eq (buffer-local-value 'major-mode
                                      (get-buffer "*pyagentd sessions*"))
                  'pyagentd-list-mode))
      (should-not (get-buffer "*pyagentd grants*"))
      (should (equal (buffer-local-value 'pyagentd-list-name
                                         (get-buffer "*pyagentd sessions*"))
                     "sessions"))
      (with-current-buffer (get-file-buffer file)
        (should pyagentd-mode)
        (should-not buffer-read-only)
        (should (equal (buffer-string) "### Hi\n")))
      (kill-buffer "*pyagentd sessions*"))))

(provide 'return-test)
;;; return-test.el ends here

;;; compact-test.el --- Tests of compactions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'pyagentd-chat)

(defconst compact-test--block
  "``` compaction (automatic: 4 messages, ~31k tokens)\n## Goal\nCount.\n```"
  "A block of 4 lines.")

(defconst compact-test--head "### Hi\n\nYo\n\n" "What stands above it.")

(defmacro compact-test--with (&rest body)
  "Evaluate BODY in a session with a compaction that was just displayed."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-session
       (concat compact-test--head compact-test--block "\n\n### Draft")
     (let ((beg (1+ (length compact-test--head))))
       (with-silent-modifications
         (put-text-property beg (+ beg (length compact-test--block))
                            'gptel 'ignore))
       (set-buffer-modified-p nil)
       (setq buffer-undo-list nil)
       (pyagentd-fold--find (point-min) (point-max))
       ,@body)))

(defun compact-test--shown (pos)
  "Return what is displayed instead of the line at POS."
  (get-char-property pos 'display))

(ert-deftest pyagentd-compact-draws-a-divider-that-unfolds ()
  "A compaction is a divider that shows its summary."
  (compact-test--with
    (goto-char beg)
    (should (string-match-p "▸ ─+ compacted, automatic: 4 messages, ~31k tokens ─+"
                            (compact-test--shown beg)))
    (should (invisible-p (+ beg 60)))
    (should-not (invisible-p (- (point-max) 2)))
    (call-interactively (lookup-key (get-char-property beg 'keymap)
                                    (kbd "TAB")))
    (should-not (invisible-p (+ beg 60)))
    (should (string-prefix-p "▾" (compact-test--shown beg)))
    (goto-char (+ beg 60))
    (pyagentd-fold-toggle)
    (should (invisible-p (+ beg 60)))))

(ert-deftest pyagentd-compact-dividers-are-neither-saved-nor-undone ()
  (compact-test--with
    (pyagentd-fold--find (point-min) (point-max))
    (should (= 3 (length (pyagentd-test-overlays
                          beg (+ beg 2 (length compact-test--block))))))
    (should-not (buffer-modified-p))
    (should-not buffer-undo-list)
    (let ((inhibit-read-only t))
      (delete-region beg (+ beg (length compact-test--block))))
    (should-not (pyagentd-test-overlays))))

(ert-deftest pyagentd-compact-takes-no-other-text-for-a-block ()
  (pyagentd-test-with-session (concat compact-test--head compact-test--block)
    (pyagentd-fold--find (point-min) (point-max))
    (should-not (pyagentd-test-overlays))
    (should-error (pyagentd-fold-toggle) :type 'user-error)))

(ert-deftest pyagentd-compact-puts-its-block-where-the-daemon-says ()
  (pyagentd-test-with-session "### Hi\n\nYes\n\n### "
    (pyagentd-test-attach)
    (goto-char 5)
    (insert "oh ")
    (pyagentd-test-events '(compacting 0 (:position 12 :behind "Yes"))
                          '(insert 1 "\n\nBlock" ignore))
    (should (equal (buffer-string) "### oh Hi\n\nYes\n\nBlock\n\n### "))))

(provide 'compact-test)
;;; compact-test.el ends here

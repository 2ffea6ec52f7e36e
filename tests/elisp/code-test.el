;;; code-test.el --- Tests of copying code -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)
(require 'pyagentd-display)

(defun code-test--copied (where keys)
  "Return what is copied when KEYS are typed at the text WHERE."
  (blocks-find where)
  (pyagentd-test-type keys)
  (current-kill 0))

(ert-deftest pyagentd-code-at-point-or-above-is-copied ()
  (blocks-with
    (should (equal (code-test--copied "print" "C-c M-w") "print(1)"))
    (should (equal (code-test--copied "``` python" "C-c M-w") "print(1)"))
    (should (equal (code-test--copied "two" "C-c M-w") "print(1)"))
    (should (equal (code-test--copied "That is" "C-c M-w")
                   "x = 1\n```\ny = 2"))
    (should (equal (code-test--copied "Second" "C-c M-w")
                   "x = 1\n```\ny = 2"))
    (goto-char (point-min))
    (should-error (pyagentd-copy-code) :type 'user-error)))

(ert-deftest pyagentd-code-above-what-the-buffer-is-narrowed-to-is-copied ()
  (blocks-with
    (goto-char (point-max))
    (narrow-to-region (line-beginning-position) (point-max))
    (pyagentd-copy-code)
    (should (equal (current-kill 0) "x = 1\n```\ny = 2"))))

(ert-deftest pyagentd-code-an-answer-is-copied-without-its-blocks ()
  (blocks-with
    (should (equal (code-test--copied "That is" "C-u C-c M-w")
                   "Looking.\n\n``` python\nprint(1)\n```\n\n## Found\n
~~~~\nx = 1\n```\ny = 2\n~~~~\n\nThat is all."))
    (goto-char (point-max))
    (pyagentd-display--copy-answer)
    (should (equal (current-kill 0) "Yes."))))

(defun code-test--buttons ()
  "Return the lines of this buffer that have a button, in order."
  (sort (mapcar (lambda (overlay)
                  (buffer-substring-no-properties (overlay-start overlay)
                                                  (overlay-end overlay)))
                (seq-filter (lambda (overlay)
                              (overlay-get overlay 'pyagentd-code-button))
                            (overlays-in (point-min) (point-max))))
        #'string-greaterp))

(ert-deftest pyagentd-code-complete-blocks-of-answers-have-a-button ()
  (blocks-with
    (pyagentd-code-button--find (point-min) (point-max))
    (pyagentd-code-button--find (point-min) (point-max))
    (should (equal (code-test--buttons) '("~~~~" "``` python")))
    (blocks-find "``` python")
    (switch-to-buffer (current-buffer))
    (goto-char (point-max))
    (let ((text (overlay-get (car (seq-filter
                                   (lambda (overlay)
                                     (overlay-get overlay 'after-string))
                                   (overlays-at (blocks-find "``` python"))))
                             'after-string)))
      (goto-char (point-max))
      (funcall (lookup-key (get-text-property (string-search "copy" text)
                                              'keymap text)
                           [mouse-1])
               (list 'mouse-1 (list (selected-window)
                                    (save-excursion
                                      (blocks-find "``` python")
                                      (line-end-position)))))
      (should (eobp))
      (should (equal (current-kill 0) "print(1)")))))

(ert-deftest pyagentd-code-has-its-button-once-it-is-complete ()
  (pyagentd-test-with-session "### Hi\n\n"
    (let ((shown (lambda (beg)
                   (pyagentd-code-button--find beg (point-max)))))
      (goto-char (point-max))
      (insert (propertize "``` c\nint" 'gptel 'response))
      (funcall shown (line-beginning-position 0))
      (should-not (code-test--buttons))
      (insert (propertize " x;\n```" 'gptel 'response))
      (funcall shown (line-beginning-position))
      (should (equal (code-test--buttons) '("``` c"))))))

(ert-deftest pyagentd-code-few-buttons-of-many-are-kept ()
  (let ((pyagentd-code-button--most 5))
    (blocks-with
      (goto-char (point-max))
      (dotimes (_ 20)
        (insert (propertize (format "``` c\n%s\n```\n" (make-string 3000 ?x))
                            'gptel 'response)))
      (switch-to-buffer (current-buffer))
      (set-window-start nil (point-min))
      (pyagentd-code-button--find (point-min) (point-max))
      (should (< 0 (length pyagentd-code-button--all) 12)))))

(provide 'code-test)
;;; code-test.el ends here

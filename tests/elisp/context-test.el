;;; context-test.el --- Tests of pyagentd-context -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'pyagentd-status)

(defconst context-test--context
  '(:used 68000 :window 200000 :usable 180000 :known-usd 0.42
    :short "68k $0.42" :words ("Context: a lot" "Cost: $0.42"))
  "What a daemon says.")

(defun context-test--with (&rest changes)
  "Return the segment for the context with CHANGES, a plist."
  (with-temp-buffer
    (setq pyagentd-context (copy-sequence context-test--context))
    (while changes
      (setq pyagentd-context
            (plist-put pyagentd-context (pop changes) (pop changes))))
    (pyagentd-context--segment)))

(ert-deftest pyagentd-context-meter-says-how-full-and-how-dear ()
  (cl-letf (((symbol-function 'char-displayable-p) (lambda (_char) t)))
    (should (equal (substring-no-properties (context-test--with))
                   "[██▁▁▁ 34% 68k $0.42]")))
  (cl-letf (((symbol-function 'char-displayable-p) #'ignore))
    (should (equal (substring-no-properties (context-test--with))
                   "[##... 34% 68k $0.42]"))))

(ert-deftest pyagentd-plain-characters-stand-for-those-a-terminal-lacks ()
  (cl-letf (((symbol-function 'char-displayable-p) #'ignore))
    (pyagentd-test-with-session "### Hi"
      (should (equal (mapconcat (lambda (char)
                                  (string (aref (aref buffer-display-table char) 0)))
                                "█▌▁▸…" "")
                     "#|.>.")))))

(ert-deftest pyagentd-context-meter-is-coloured-by-what-is-usable ()
  (pcase-dolist (`(,used . ,face) '((68000 . success) (120000 . warning)
                                    (162000 . error) (500000 . error)))
    (should (eq (get-text-property 1 'face (context-test--with :used used))
                face))))

(ert-deftest pyagentd-context-meter-marks-an-estimate ()
  (should (string-search " ~34% " (context-test--with :estimated t))))

(ert-deftest pyagentd-context-meter-is-silent-before-the-first-answer ()
  (should-not (context-test--with :used 0 :known-usd 0))
  (with-temp-buffer (should-not (pyagentd-context--segment))))

(ert-deftest pyagentd-context-tooltip-has-what-the-daemon-says ()
  (should (string-prefix-p "Context: a lot\nCost: $0.42\n"
                           (get-text-property 0 'help-echo (context-test--with)))))

;;; context-test.el ends here

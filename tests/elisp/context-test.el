;;; context-test.el --- Tests of pyagentd-context -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'pyagentd-status)

(defconst context-test--context
  '(:used 68000 :window 200000 :usable 180000 :window-known t :model "m"
    :tokens (:input 12 :output 3456 :reasoning nil :cache-read 1234567
             :cache-write 8)
    :last (:input 1 :output 2 :reasoning 3 :cache-read 4 :cache-write 5)
    :cost-usd 0.42 :known-usd 0.42 :agents 2 :agents-total 1000
    :compactions 1)
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

(ert-deftest pyagentd-context-meter-is-coloured-by-what-is-usable ()
  (pcase-dolist (`(,used . ,face) '((68000 . success) (120000 . warning)
                                    (162000 . error) (500000 . error)))
    (should (eq (get-text-property 1 'face (context-test--with :used used))
                face))))

(ert-deftest pyagentd-context-meter-never-shows-an-unknown-price-as-zero ()
  (should (string-suffix-p " $?]" (context-test--with :cost-usd nil
                                                      :known-usd 0)))
  (should (string-suffix-p " $0.10+?]" (context-test--with :cost-usd nil
                                                           :known-usd 0.1)))
  (should (string-suffix-p " $0.0042]" (context-test--with :cost-usd 0.0042))))

(ert-deftest pyagentd-context-meter-marks-an-estimate ()
  (should (string-search " ~34% " (context-test--with :estimated t))))

(ert-deftest pyagentd-context-meter-is-silent-before-the-first-answer ()
  (should-not (context-test--with :used 0 :known-usd 0))
  (with-temp-buffer (should-not (pyagentd-context--segment))))

(ert-deftest pyagentd-context-tooltip-has-the-five-buckets ()
  (let ((text (get-text-property 0 'help-echo (context-test--with))))
    (dolist (line '("Context: 68,000 of 200,000 tokens of m"
                    "Session: input 12, output 3,456, reasoning 0, cache read 1,234,567, cache write 8"
                    "Its 2 agents: 1,000 tokens" "Cost: $0.42"))
      (should (string-search line text)))
    (should (string-search "estimated: " (get-text-property
                                      0 'help-echo
                                      (context-test--with :window-known nil))))))

(ert-deftest pyagentd-context-numbers-are-short ()
  (pcase-dolist (`(,tokens . ,text) '((999 . "999") (1500 . "1.5k")
                                      (9949 . "9.9k") (9950 . "10k")
                                      (200000 . "200k") (1000000 . "1.0M")))
    (should (equal (pyagentd-numbers-short tokens) text))))

;;; context-test.el ends here

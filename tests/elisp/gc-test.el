;;; gc-test.el --- Tests of pyagentd-gc -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defun gc-test--settle ()
  "Wait until what other tests did has no effect any more."
  (pyagentd-test-await (not pyagentd-gc--usual)))

(ert-deftest pyagentd-gc-is-postponed-and-becomes-usual-again ()
  (gc-test--settle)
  (let ((gc-cons-threshold 800000) (pyagentd-gc--pause 0.02))
    (pyagentd-gc-postpone)
    (should (= gc-cons-threshold pyagentd-gc-threshold))
    (gc-test--settle)
    (should (= gc-cons-threshold 800000))))

(ert-deftest pyagentd-gc-leaves-a-greater-threshold-alone ()
  (gc-test--settle)
  (let ((gc-cons-threshold (* 2 pyagentd-gc-threshold)))
    (pyagentd-gc-postpone)
    (should-not pyagentd-gc--usual)
    (should (= gc-cons-threshold (* 2 pyagentd-gc-threshold)))))

(ert-deftest pyagentd-gc-keeps-what-the-user-sets-meanwhile ()
  (gc-test--settle)
  (let ((gc-cons-threshold 800000) (pyagentd-gc--pause 0.02))
    (pyagentd-gc-postpone)
    (setq gc-cons-threshold 123456789)
    (gc-test--settle)
    (should (= gc-cons-threshold 123456789))))

(ert-deftest pyagentd-gc-collects-between-two-keys ()
  (gc-test--settle)
  (let ((gc-cons-threshold 800000) (pyagentd-gc-threshold 10000000)
        (pyagentd-gc--pause 0.02))
    (pyagentd-gc-postpone)
    (garbage-collect)
    (let ((before gcs-done))
      (make-string 4000000 ?x)
      (pyagentd-gc--between-keys 0.01 0.5)
      (should (= gcs-done before))
      (make-string 2000000 ?x)
      (cl-letf (((symbol-function 'input-pending-p) #'always))
        (pyagentd-gc--between-keys 0.01 0.5))
      (cl-letf (((symbol-function 'current-idle-time) (lambda () 0.05)))
        (pyagentd-gc--between-keys 0.01 0.5))
      (should (= gcs-done before))
      (pyagentd-gc--between-keys 0.01 0.5)
      (should (= gcs-done (1+ before))))
    (gc-test--settle)))

(ert-deftest pyagentd-gc-looks-at-keys-only-while-it-is-postponed ()
  (gc-test--settle)
  (cl-flet ((watching () (seq-count
                          (lambda (timer)
                            (eq (timer--function timer)
                                #'pyagentd-gc--between-keys))
                          timer-idle-list)))
    (let ((gc-cons-threshold 800000) (pyagentd-gc--pause 0.02))
      (pyagentd-gc-postpone)
      (pyagentd-gc-postpone)
      (should (= (watching) 2))
      (gc-test--settle)
      (should (= (watching) 0)))))

(ert-deftest pyagentd-gc-can-be-left-alone ()
  (gc-test--settle)
  (let ((gc-cons-threshold 800000) (pyagentd-gc-threshold nil))
    (pyagentd-gc-postpone)
    (should (= gc-cons-threshold 800000))))

(provide 'gc-test)
;;; gc-test.el ends here

;;; changes.el --- Random changes of a text -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Ways in which users and packages change a buffer, also without a word
;; to its change hooks.

;;; Code:

(require 'cl-lib)

(defun changes--go ()
  "Go somewhere."
  (goto-char (+ (point-min) (random (1+ (- (point-max) (point-min)))))))

(defun changes--region ()
  "Return two positions in order, at most 12 apart."
  (let ((beg (changes--go)))
    (list beg (min (point-max) (+ beg (random 12))))))

(defun changes--once (mark)
  "Insert MARK, delete a little, or replace a character by another."
  (changes--go)
  (pcase (random 3)
    (0 (insert mark))
    (1 (apply #'delete-region (changes--region)))
    (_ (unless (eobp) (delete-char 1) (insert "=")))))

(defun changes--mirror ()
  "Insert text somewhere, or replace a character.
Emacs' own change functions fail where others shorten the text before."
  (save-excursion
    (changes--go)
    (when (and (= 0 (random 2)) (not (eobp)))
      (delete-char 1))
    (insert "mirror ")))

(defun changes--hooked (hook depth)
  "Insert text while a function of HOOK at DEPTH changes other places."
  (let ((mirror (lambda (&rest _) (changes--mirror))))
    (add-hook hook mirror depth t)
    (unwind-protect (changes--once "typed ")
      (remove-hook hook mirror t))))

(defun changes--nested ()
  "Insert text while a change function changes other places, hooks enabled."
  (let* (within
         (mirror (lambda (&rest _)
                   (unless within
                     (setq within t)
                     (let ((inhibit-modification-hooks nil))
                       (changes--mirror))
                     (setq within nil)))))
    (add-hook 'after-change-functions mirror nil t)
    (unwind-protect (changes--once "typed ")
      (remove-hook 'after-change-functions mirror t))))

(defun changes--indirect (clone)
  "Change the text in an indirect buffer, CLONE or not."
  (let ((buffer (make-indirect-buffer (current-buffer)
                                      (generate-new-buffer-name "other") clone)))
    (with-current-buffer buffer (changes--once "indirect "))
    (kill-buffer buffer)))

(defun changes--silent ()
  "Change the text at two places with the hooks inhibited."
  (with-silent-modifications
    (changes--once "silent ")
    (changes--once "silent ")))

(defun changes--combined ()
  "Change the text in one combined change."
  (combine-change-calls (point-min) (point-max)
    (changes--once "combined ")
    (changes--once "combined ")))

(defconst changes--ways
  (list (lambda () (changes--once "plain "))
        (lambda () (apply #'upcase-region (changes--region)))
        (lambda () (subst-char-in-region (point-min) (point-max) ?e ?a t))
        (lambda () (let ((last-command nil)) (ignore-errors (undo 1))))
        (lambda () (changes--hooked 'after-change-functions nil))
        (lambda () (changes--hooked 'before-change-functions nil))
        (lambda () (changes--hooked 'before-change-functions 90))
        #'changes--nested #'changes--silent #'changes--combined
        (lambda () (changes--indirect nil))
        (lambda () (changes--indirect t))))

(defun changes-make ()
  "Change the text of this buffer once, in a random way."
  (let ((inhibit-read-only t))
    (save-excursion
      (funcall (nth (random (length changes--ways)) changes--ways)))))

(provide 'changes)
;;; changes.el ends here

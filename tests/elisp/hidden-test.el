;;; hidden-test.el --- Tests of hidden turns -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'pyagentd-history)

(defconst hidden-test--text "### Hi\n\nYo\n\n### More\n\nWell\n\n### "
  "A conversation of two turns; the second begins at 13.")

(ert-deftest pyagentd-hidden-folds-and-unfolds ()
  (pyagentd-test-with-session hidden-test--text
    (pyagentd-hidden--set '((11 27 1 "rewind")) nil)
    (should (invisible-p 15))
    (should-not (invisible-p 8))
    (should (string-match-p
             "1 turn rewound"
             (overlay-get (car (pyagentd-test-overlays 11 27)) 'before-string)))
    (pyagentd-history--show-hidden)
    (should-not (invisible-p 15))
    (should (eq (get-char-property 15 'face) 'pyagentd-hidden))
    (pyagentd-history--show-hidden)
    (should (invisible-p 15))))

(ert-deftest pyagentd-hidden-folds-away-the-lines-of-folded-blocks ()
  (blocks-with
    (pyagentd-fold--find (point-min) (point-max))
    (blocks-find "``` tool")
    (should-not (invisible-p (point)))
    (pyagentd-hidden--set (list (list 14 (point-max) 1 "variant")) nil)
    (should (invisible-p (point)))
    (pyagentd-history--show-hidden)
    (should-not (invisible-p (point)))))

(ert-deftest pyagentd-hidden-is-neither-saved-nor-undone ()
  (pyagentd-test-with-session hidden-test--text
    (setq buffer-undo-list nil)
    (pyagentd-hidden--set '((11 27 1 edit)) '((9 11 "msg_1" 1 2)))
    (should-not (buffer-modified-p))
    (should-not buffer-undo-list)
    (pyagentd-hidden--clear)
    (should-not (pyagentd-test-overlays))))

(ert-deftest pyagentd-hidden-text-of-another-state-is-not-marked ()
  (pyagentd-test-with-session hidden-test--text
    (pyagentd-hidden--receive '(:revision 7
                                :hidden ((11 27 1 rewind)) :variants nil))
    (should-not pyagentd-hidden--overlays)
    (should pyagentd-hidden--due)))

(ert-deftest pyagentd-hidden-roles-event-gives-roles-and-a-place ()
  (pyagentd-test-with-session hidden-test--text
    (pyagentd-test-attach)
    (pyagentd-test-events
     '(roles 0 (:revision 11 :spans ((9 11 response) (11 33 ignore)) :marker 33)))
    (should (equal (pyagentd-block-bounds)
                   '((ignore (11 33)) (response (9 11)))))
    (should (= (pyagentd-insert-position) 33))
    (pyagentd-test-events
     '(roles 0 (:revision 12 :spans nil)))
    (should-not (pyagentd-block-bounds))))

(provide 'hidden-test)
(ert-deftest pyagentd-hidden-variant-of-a-prompt-is-told-above-its-line ()
  (pyagentd-test-with-session "### Tea\n\nYes.\n"
    (pyagentd-hidden--set nil '((5 8 "msg_a" 2 2) (10 14 "msg_b" 1 2)))
    (let ((told (seq-filter (lambda (overlay)
                              (overlay-get overlay 'before-string))
                            pyagentd-hidden--overlays)))
      (should (equal (sort (mapcar (lambda (overlay)
                                     (cons (overlay-start overlay)
                                           (substring-no-properties
                                            (overlay-get overlay
                                                         'before-string))))
                                   told)
                           (lambda (a b) (< (car a) (car b))))
                     '((1 . "variant 2/2\n") (10 . "variant 1/2\n")))))))

;;; hidden-test.el ends here

;;; reply-options-test.el --- Tests of options and steps -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-chat)

(defconst reply-options-test--options
  '(:options ((:label "Postgres" :text "Postgres")
              (:label "SQLite…" :text "SQLite in memory"))
    :several nil)
  "Two options.")

(defmacro reply-options-test--with (draft &rest body)
  "Evaluate BODY where an answer offers options and DRAFT stands below it.
Nothing is sent; `sent' is the text that would be."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-session "### Hi"
     (pyagentd-test-attach)
     (pyagentd-insert-start (point-max))
     (pyagentd-test-events '(insert 1 "\n\n" nil))
     (pyagentd-test-stream "Which one?")
     (pyagentd-test-events '(insert 1 "\n\n### " nil))
     (goto-char (point-max))
     (insert ,draft)
     (pyagentd-test-events (list 'reply-options 0 reply-options-test--options))
     (let (sent)
       (cl-letf (((symbol-function 'pyagentd-send)
                  (lambda (&rest _) (setq sent (buffer-substring-no-properties
                                                (point-min) (point))))))
         ,@body))))

(defun reply-options-test--shown ()
  "Return the buttons of this buffer, nil if there are none."
  (and pyagentd-reply-options--overlay
       (substring-no-properties
        (overlay-get pyagentd-reply-options--overlay 'before-string))))

(ert-deftest pyagentd-reply-options-stand-below-the-answer-and-are-no-text ()
  (reply-options-test--with ""
    (should (string-search "1 Postgres   2 SQLite…" (reply-options-test--shown)))
    (should (equal (buffer-substring-no-properties
                    (point-min) (overlay-start pyagentd-reply-options--overlay))
                   "### Hi\n\nWhich one?"))
    (should (equal (buffer-string) "### Hi\n\nWhich one?\n\n### "))
    (should (eq (key-binding (kbd "C-c 2")) #'pyagentd-reply-options--pick))
    (pyagentd-test-stream "More.")      ; another answer begins
    (should-not (reply-options-test--shown))
    (should-not (key-binding (kbd "C-c 2")))))

(ert-deftest pyagentd-reply-options-a-pick-is-said ()
  "Options in an answer's prose can be picked."
  (reply-options-test--with ""
    (pyagentd-test-type "C-c 2")
    (should (equal sent "### Hi\n\nWhich one?\n\n### SQLite in memory"))
    (should-not (reply-options-test--shown))))

(ert-deftest pyagentd-reply-options-what-is-typed-already-follows-the-pick ()
  (reply-options-test--with "but quickly"
    (pyagentd-reply-options--pick 1)
    (should (equal sent
                   "### Hi\n\nWhich one?\n\n### Postgres\n\nbut quickly"))))

(ert-deftest pyagentd-reply-options-with-a-prefix-it-is-only-put-there ()
  (reply-options-test--with ""
    (pyagentd-test-type "C-u C-c 1")
    (should-not sent)
    (should (string-suffix-p "### Postgres" (buffer-string)))
    (should (eobp))))

(ert-deftest pyagentd-reply-options-of-which-several-may-be-picked ()
  (reply-options-test--with ""
    (pyagentd-test-events
     (list 'reply-options 0 (plist-put (copy-sequence reply-options-test--options) :several t)))
    (pyagentd-reply-options--pick 1)
    (pyagentd-reply-options--pick 2)
    (should-not sent)
    (should (string-suffix-p "### Postgres\n\nSQLite in memory"
                             (buffer-string)))))

(ert-deftest pyagentd-reply-options-are-picked-by-the-key-for-answers ()
  (reply-options-test--with ""
    (pyagentd-test-type "C-c C-r SQL TAB RET")
    (should (string-suffix-p "SQLite in memory" sent))
    (should-error (pyagentd-reply-options--pick 7) :type 'user-error)))

(ert-deftest pyagentd-reply-options-are-there-when-a-session-is-opened ()
  (pyagentd-test-with-session "### Hi\n\nWhich?\n\n### "
    (with-silent-modifications (put-text-property 9 15 'gptel 'response))
    (pyagentd-test-attach :reply-options reply-options-test--options)
    (should (equal 15 (overlay-start pyagentd-reply-options--overlay)))
    (pyagentd-mode -1)
    (should-not (reply-options-test--shown))))

;;;; Steps

(defun reply-options-test--step (content status)
  "Return a step CONTENT with STATUS."
  (list :content content :status status :active-form (concat "Doing " content)))

(defun reply-options-test--list ()
  "Return the list of steps shown in this buffer, nil for none."
  (and pyagentd-todo--overlay
       (substring-no-properties
        (overlay-get pyagentd-todo--overlay 'before-string))))

(ert-deftest pyagentd-todo-is-live-and-folds ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :todo (list (reply-options-test--step "a" "pending")))
    (should (equal (pyagentd-todo-line) "todo 0/1"))
    (pyagentd-insert-start (point-max))
    (pyagentd-test-events
     (list 'todo 0 (list :items (list (reply-options-test--step "a" "completed")
                                      (reply-options-test--step "b" "in_progress")
                                      (reply-options-test--step "c" "pending")))))
    (should (equal (pyagentd-todo-line) "todo 1/3: Doing b"))
    (should (string-search "todo 1/3: Doing b" pyagentd-status--line))
    (should (equal (reply-options-test--list)
                   "\n▾ todo 1/3: Doing b\n  [x] a\n  [>] Doing b\n  [ ] c\n"))
    (pyagentd-test-stream "Text")
    (should (= (overlay-start pyagentd-todo--overlay) (point-max)))
    (pyagentd-todo)
    (should (equal (reply-options-test--list) "\n▸ todo 1/3: Doing b\n"))
    (pyagentd-test-events
     (list 'todo 0 (list :items (list (reply-options-test--step "a" "completed")))))
    (should-not (reply-options-test--list))     ; nothing is left to do
    (should (equal (pyagentd-todo-line) "todo 1/1"))
    (should (equal (buffer-string) "### HiText"))
    (pyagentd-mode -1)
    (should-error (pyagentd-todo) :type 'user-error)))

(ert-deftest pyagentd-todo-of-a-session-at-rest-stands-above-the-next-prompt ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :todo (list (reply-options-test--step "a" "pending")))
    (pyagentd-insert-start (point-max))
    (pyagentd-test-stream "\n\nDone.")
    (pyagentd-test-events '(insert 1 "\n\n### " nil))
    (goto-char (point-max))
    (insert "typed")
    (should (string-suffix-p "Done." (buffer-substring
                                      1 (overlay-start
                                         pyagentd-todo--overlay))))))

(ert-deftest pyagentd-reply-options-can-be-picked-where-the-buffer-is-narrowed ()
  (pyagentd-test-with-session "### Hi\n\nHello\n\n### And"
    (put-text-property 9 14 'gptel 'response)
    (pyagentd-reply-options-receive
     '(:options ((:label "a" :text "Yes")) :several nil))
    (narrow-to-region 1 5)
    (cl-letf (((symbol-function 'pyagentd-send) #'ignore))
      (pyagentd-reply-options--pick 1))
    (widen)
    (should (equal (buffer-string)
                   "### Hi\n\nHello\n\n### Yes\n\nAnd"))))

(provide 'reply-options-test)
;;; reply-options-test.el ends here

;;; question-test.el --- Tests of forms with questions -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-form)

(defconst question-test--ask
  '(:id "q7" :tool "question" :kind question :agent nil
    :what "Which database? (and 1 more)" :keys nil
    :lines ((:parts ((:text "Question " :face "warn") "Which database? (and 1 more)"))
            (:parts ("    ( ) Postgres" (:text "  100% a server" :face "detail")))
            (:parts ("    [ ] Types")))
    :detail "Which database? (and 1 more)" :choices (answer deny)
    :questions ((:question "Which database?" :header "Database"
                 :options ((:label "Postgres" :description "100% a server")
                           (:label "SQLite" :description ""))
                 :multi-select nil)
                (:question "What shall be checked?" :header ""
                 :options ((:label "Types" :description "")
                           (:label "Style" :description ""))
                 :multi-select t)))
  "An ask with two questions.")

(defmacro question-test--with (&rest body)
  "Evaluate BODY in a session in which a model asks two questions."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-ask
     (pyagentd-test-events (list 'answered 2 '(:id "q1"))
                           (list 'ask 3 question-test--ask))
     ,@body))

(defun question-test--form ()
  "Answer the questions here with the key, and go to the form."
  (pyagentd-test-type "C-c C-r")
  (set-buffer (window-buffer (selected-window)))
  (should (derived-mode-p 'pyagentd-question-mode)))

(defun question-test--toggle (label)
  "Press the button of LABEL in the form."
  (goto-char (point-min))
  (search-forward label)
  (goto-char (match-beginning 0))
  (widget-backward 1)
  (widget-button-press (point)))

(defun question-test--words (number words)
  "Write WORDS into the line of question NUMBER, from 0."
  (widget-value-set (cdr (nth number pyagentd-question--parts)) words))

(defun question-test--sent ()
  "Wait until the daemon has an answer, and return what was sent."
  (pyagentd-test-await (pyagentd-test-calls 'answer))
  (car (last (pyagentd-test-calls 'answer))))

(ert-deftest pyagentd-question-notice-shows-questions-and-options ()
  (question-test--with
    (let ((notice (pyagentd-test-notice)))
      (dolist (text '("Question Which database?" "( ) Postgres  100% a server"
                      "[ ] Types" "C-c C-c in a form"))
        (should (string-search text notice)))
      (should-not (string-search "once" notice)))))

(ert-deftest pyagentd-question-form-sends-what-was-picked ()
  "The form of the question tool: how a model has the user pick."
  (question-test--with
    (question-test--form)
    (should (string-search "Database: Which database?" (buffer-string)))
    (question-test--toggle "SQLite")
    (question-test--toggle "Types")
    (question-test--toggle "Style")
    (question-test--words 1 "and the docs")
    (let ((form (current-buffer)))
      (pyagentd-question--send)
      (let ((sent (question-test--sent)))
        (should (eq (plist-get sent :decision) 'answer))
        (should (equal (json-parse-string (plist-get sent :answers)
                                          :array-type 'list)
                       '(("SQLite") ("Types" "Style" "and the docs")))))
      (pyagentd-test-await (null (pyagentd-ask-find "q7")))
      (should-not (get-buffer-window form)))))

(ert-deftest pyagentd-question-form-may-leave-one-open-but-not-all ()
  (question-test--with
    (question-test--form)
    (should-error (pyagentd-question--send) :type 'user-error)
    (question-test--words 0 "ask me later ü")
    (pyagentd-question--next-or-send)    ; the second has no answer yet
    (should-not (pyagentd-test-calls 'answer))
    (pyagentd-question--send)
    (should (equal (json-parse-string (plist-get (question-test--sent) :answers)
                                      :array-type 'list)
                   '(("ask me later ü") nil)))))

(ert-deftest pyagentd-question-declined-with-a-reason ()
  (question-test--with
    (question-test--form)
    (pyagentd-question--decline "You choose")
    (let ((sent (question-test--sent)))
      (should (eq (plist-get sent :decision) 'deny))
      (should (equal (plist-get sent :reason) "You choose")))))

(ert-deftest pyagentd-question-allowing-it-opens-the-form ()
  (question-test--with
    (save-window-excursion
      (pyagentd-allow-once)
      (should-not (pyagentd-test-calls 'answer))
      (should (get-buffer "*question: Which database? (and 1 more)*")))))

(ert-deftest pyagentd-question-form-says-when-somebody-else-answered ()
  (question-test--with
    (let ((session (current-buffer)))
      (question-test--form)
      (question-test--words 0 "mine")
      (let ((form (current-buffer)))
        (with-current-buffer session
          (pyagentd-test-events (list 'answered 4 '(:id "q7"))))
        (should (string-search "(answered)" header-line-format))
        (should-error (pyagentd-question--send) :type 'user-error)
        ;; A daemon that was started anew asks again, under the same id.
        (with-current-buffer session
          (pyagentd-test-events (list 'ask 5 question-test--ask)))
        (should-not (string-search "(answered)" header-line-format))
        (should (eq form (pyagentd-question-buffer question-test--ask)))
        (should (equal (car (pyagentd-question-answers)) '("mine")))
        (kill-buffer form)))))

(provide 'question-test)
;;; question-test.el ends here

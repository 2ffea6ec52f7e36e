;;; asks.el --- What tests of asks share -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A session in which something is asked, and a daemon that takes answers.

;;; Code:

(require 'test-helper)
(require 'keys)

(defun pyagentd-test-asked (ask)
  "Return ASK, a plist, with what the daemon says of how it looks.
What is in it already stays."
  (let ((diff (string-prefix-p "--- " (or (plist-get ask :preview) "")))
        (choices (or (plist-get ask :choices) '(allow deny)))
        (what (or (plist-get ask :what)
                  (format "%s %s" (plist-get ask :tool) (plist-get ask :detail))))
        (lines (split-string (or (plist-get ask :preview) "") "\n")))
    (append
     ask
     (list
      :what what
      :lines `((:parts (,@(and (plist-get ask :who)
                               (list (concat (plist-get ask :who) " › ")))
                        (:text "Allow " :face "warn") (:text ,what :face "heading")
                        "?"))
               ,@(and (plist-get ask :preview)
                      `((:parts ((:text ,(string-join (seq-take lines 24) "\n")
                                  :face ,(if diff "diff" "preview")
                                  :more ,(max 0 (- (length lines) 24))))))))
      :keys (unless (eq 'question (plist-get ask :kind))
              `((:title "Allow"
                 :keys ((:key "y" :label "once")
                        ,@(and (memq 'session choices)
                               '((:key "s" :label "this session")))
                        ,@(and (memq 'always choices)
                               '((:key "p" :label "this project")))
                        ,@(and (plist-get ask :input)
                               '((:key "e" :label "with changes")))))
                (:title "Deny" :keys ((:key "n" :label "")
                                      (:key "r" :label "with a reason")
                                      (:key "k" :label "abort the run")))
                (:title "Look"
                 :keys (,@(and diff '((:key "d" :label "diff")
                                      (:key "E" :label "Ediff")))
                        (:key "o" :label "details")))))))))

(defconst pyagentd-test-ask
  (pyagentd-test-asked
   '(:id "q1" :tool "Bash" :detail "rm -rf\nbuild" :reason "not in scope"
     :action "tool:Bash:rm" :what "Bash rm -rf build" :preview "-old\n+new"))
  "An ask.")

(defmacro pyagentd-test-with-ask (&rest body)
  "Evaluate BODY in a session in which `pyagentd-test-ask' is open."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
       (pyagentd-test-tell 'fake-answer "(:seq 0 :revision 10)" 'attach)
       (pyagentd-test-tell 'fake-answer "(:accepted t)" 'answer)
       (pyagentd-test-attach-now)
       (unwind-protect
           (progn (pyagentd-test-events (list 'ask 1 pyagentd-test-ask))
                  ,@body)
         (pyagentd-ask-clear)))))

(defun pyagentd-test-notice ()
  "Return what the notice in this buffer says."
  (substring-no-properties
   (overlay-get pyagentd-ask-notice--overlay 'before-string)))

(provide 'asks)
;;; asks.el ends here

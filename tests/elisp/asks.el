;;; asks.el --- What tests of asks share -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A session in which something is asked, and a daemon that takes answers.

;;; Code:

(require 'test-helper)
(require 'keys)

(defconst pyagentd-test-ask
  '(:id "q1" :tool "Bash" :detail "rm -rf\nbuild" :reason "not in scope"
    :action "tool:Bash:rm" :preview "-old\n+new")
  "An ask.")

(defmacro pyagentd-test-with-ask (&rest body)
  "Evaluate BODY in a session in which `pyagentd-test-ask' is open."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
       (pyagentd-test-tell 'fake-answer "(:seq 0 :editor t)" 'attach)
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

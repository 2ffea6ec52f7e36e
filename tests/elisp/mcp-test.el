;;; mcp-test.el --- Tests of the list of MCP servers -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'keys)
(require 'pyagentd-views)

(defconst mcp-test--view
  (pyagentd-test-view
   '("Server" "State")
   '(("user files" nil (:kind "report" :name "server" :env t
                              :arguments (:name "files" :root "/x"))
      "files" "running")
     ("project theirs" nil (:kind "report" :name "servers"
                                  :arguments (:root "/x"))
      "theirs" "not trusted")))
  "The list of servers as the daemon tells it.")

(defmacro mcp-test--with (&rest body)
  "Evaluate BODY in the list of servers."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-ask
     (let ((branch pyagentd--branch-dir) buffer)
       (pyagentd-test-answer 'view mcp-test--view)
       (setq buffer (save-window-excursion (pyagentd-mcp) (window-buffer)))
       (with-current-buffer buffer
         (unwind-protect
             (progn (pyagentd-test-await pyagentd-table-rows)
                    (should (equal (plist-get (plist-get (car (pyagentd-test-calls 'view))
                                                         :arguments)
                                              :branch)
                                   branch))
                    (goto-char (point-min))
                    ,@body)
           (kill-buffer buffer))))))

(ert-deftest pyagentd-mcp-server-is-started-and-looked-at ()
  (mcp-test--with
    (pyagentd-test-answer
     'report '(:title "MCP server" :lines ((:level 1 :parts ("Files 1")))))
    (save-window-excursion
      (call-interactively (key-binding (kbd "RET")))
      (pyagentd-test-settle))
    (let ((call (car (pyagentd-test-calls 'report))))
      (should (equal (plist-get call :name) "server"))
      (should (equal (seq-take (plist-get call :arguments) 4)
                     '(:name "files" :root "/x"))))
    (with-current-buffer "*pyagentd server*"
      (should (equal (buffer-string) "* Files 1\n"))
      (kill-buffer))))

(ert-deftest pyagentd-mcp-server-of-a-project-is-read-before-it-is-trusted ()
  (mcp-test--with
    (search-forward "theirs")
    (pyagentd-test-answer
     'report '(:title "MCP servers" :lines ((:level 1 :parts ("/x/serve")))))
    (save-window-excursion
      (call-interactively (key-binding (kbd "RET")))
      (pyagentd-test-settle))
    (let ((call (car (pyagentd-test-calls 'report))))
      (should (equal (plist-get call :name) "servers"))
      (should (equal (plist-get call :arguments) '(:root "/x"))))
    (kill-buffer "*pyagentd servers*")))

(provide 'mcp-test)
;;; mcp-test.el ends here

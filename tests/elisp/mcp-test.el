;;; mcp-test.el --- Tests of the list of MCP servers -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'keys)
(require 'pyagentd-views)

(defconst mcp-test--answer
  '(:root "/x" :hash "abc"
    :servers ((:name "files" :command ("npx" "server-files") :origin "user"
               :trusted t :enabled t :state "running" :tools 14)
              (:name "tracker" :url "https://t.example/mcp" :origin "user"
               :trusted t :enabled t :state "failed" :problem "401 Unauthorized")
              (:name "theirs" :command ("./serve") :origin "project"
               :enabled t :state "stopped"))
    :files ((:path "/x/.mcp.json" :text "{\"mcpServers\": {}}"))
    :scripts ((:path "/x/serve" :text "#!/bin/sh")))
  "What the daemon says of three servers.")

(defconst mcp-test--view
  (pyagentd-test-view
   '("Server" "State")
   '(("user files" (:name "files" :root "/x" :trusted t) nil "files" "running")
     ("project theirs" (:name "theirs" :root "/x") nil "theirs" "not trusted")))
  "The list of servers as the daemon tells it.")

(defmacro mcp-test--with (&rest body)
  "Evaluate BODY in the list of servers."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-ask
     (let ((branch pyagentd--branch-dir) buffer)
       (pyagentd-test-answer 'mcp mcp-test--answer)
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

(ert-deftest pyagentd-mcp-server-of-a-project-waits-for-trust ()
  (mcp-test--with
    (search-forward "theirs")
    (should (string-search
             "Review and trust"
             (cadr (should-error (call-interactively
                                  (key-binding (kbd "RET")))))))
    (let (question seen)
      (cl-letf (((symbol-function 'yes-or-no-p)
                 (lambda (prompt)
                   (setq question prompt
                         seen (with-current-buffer "*pyagentd MCP project*"
                                (buffer-string)))
                   t)))
        (pyagentd-test-answer 'trust-mcp '(:trusted ("theirs")))
        (call-interactively (key-binding "T"))
        (pyagentd-test-settle))
      (should (string-search "Allow theirs to run with your rights" question))
      (should (string-search "/x/serve\n#!/bin/sh" seen)))
    (pyagentd-test-await (pyagentd-test-calls 'trust-mcp))
    (should (equal (pyagentd-test-calls 'trust-mcp)
                   '((:root "/x" :hash "abc"))))))

(provide 'mcp-test)
;;; mcp-test.el ends here

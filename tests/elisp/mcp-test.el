;;; mcp-test.el --- Tests of the list of MCP servers -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'asks)
(require 'pyagentd-mcp)

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

(defmacro mcp-test--with (&rest body)
  "Evaluate BODY in the list of servers."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-ask
     (let ((branch pyagentd--branch-dir) buffer)
       (pyagentd-test-answer 'mcp mcp-test--answer)
       (setq buffer (save-window-excursion (pyagentd-mcp) (window-buffer)))
       (with-current-buffer buffer
         (unwind-protect
             (progn (pyagentd-test-await pyagentd-table-rows)
                    (should (equal (plist-get (car (pyagentd-test-calls 'mcp))
                                              :branch)
                                   branch))
                    (goto-char (point-min))
                    ,@body)
           (kill-buffer buffer))))))

(ert-deftest pyagentd-mcp-servers-are-listed-as-they-stand ()
  (mcp-test--with
    (should (equal (seq-take (pyagentd-test-lines) 3)
                   '(" files              running      14     you          npx server-files"
                     " tracker            failed              you          ! 401 Unauthorized"
                     " theirs             not trusted         the project  ./serve")))))

(ert-deftest pyagentd-mcp-server-is-started-and-looked-at ()
  (mcp-test--with
    (pyagentd-test-answer
     'mcp-test
     '(:name "files" :ok t :title "Files 1" :protocol "2026-07-28" :duration-ms 3
       :tools ((:name "read" :rule "mcp:files:read" :description "Read it" :looks t))
       :resources ((:uri "file:///a" :name "a"))
       :prompts ((:name "sum" :arguments ((:name "of" :required t) (:name "to"))))))
    (save-window-excursion
      (call-interactively (key-binding (kbd "RET")))
      (pyagentd-test-await (get-buffer "*pyagentd MCP server*")))
    (should (equal (seq-take (car (pyagentd-test-calls 'mcp-test)) 4)
                   '(:name "files" :root "/x")))
    (with-current-buffer "*pyagentd MCP server*"
      (should (equal (pyagentd-test-lines)
                     '("Files 1" "protocol 2026-07-28, 3 ms"
                       "mcp:files:read  says that it only looks" "Read it"
                       "@files:file:///a  a" "/files:sum <of> [to]")))
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
        (call-interactively (key-binding "T")))
      (should (string-search "Allow theirs to run with your rights" question))
      (should (string-search "/x/serve\n#!/bin/sh" seen)))
    (pyagentd-test-await (pyagentd-test-calls 'trust-mcp))
    (should (equal (pyagentd-test-calls 'trust-mcp)
                   '((:root "/x" :hash "abc"))))))

(provide 'mcp-test)
;;; mcp-test.el ends here

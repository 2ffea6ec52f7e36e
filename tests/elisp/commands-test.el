;;; commands-test.el --- Tests of the completion of slash commands -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-complete)

(defconst commands-test--known
  '((:name "agent config" :summary "Show or set"
     :arguments ((:name "name" :takes "word" :values "agents")
                 (:name "key" :takes "word" :values "keys" :choices ("model" "name"))))
    (:name "agent destroy" :summary "End an agent"
     :arguments ((:name "name" :takes "word" :values "agents")
                 (:name "keep_files" :takes "flag" :summary "leave its files")
                 (:name "yes" :takes "flag")))
    (:name "status" :summary "How it stands"))
  "Commands as the daemon tells them.")

(defun commands-test--offered (text)
  "Return what completes TEXT, typed at the prompt: a list, what is completed first."
  (erase-buffer)
  (insert "### Before\n\n" (propertize "said" 'gptel 'response) "\n\n### " text)
  (when-let ((found (pyagentd-commands-at-point)))
    (pcase-let ((`(,start ,end ,table . ,_) found))
      (cons (buffer-substring-no-properties start end)
            (all-completions (buffer-substring-no-properties start end) table)))))

(defmacro commands-test--with (&rest body)
  "Evaluate BODY in a session whose commands are known, with a daemon."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-answer 'attach '(:seq 0))
     (pyagentd-test-answer 'commands (list :commands commands-test--known))
     (with-current-buffer (find-file-noselect (pyagentd-test-file root "### "))
       (pyagentd-test-attach-now)
       (pyagentd-test-await (pyagentd-commands))
       ,@body)))

(ert-deftest pyagentd-commands-complete-their-names-and-arguments ()
  (commands-test--with
    (pyagentd-test-answer 'agent-list '(:agents ((:name "web" :status "idle")
                                                 (:name "api" :status "active"))))
    (pyagentd-complete--refresh "agents" pyagentd--branch-dir)
    (pyagentd-test-await
     (pyagentd-complete--get "agents" pyagentd--branch-dir))
    (pcase-dolist
        (`(,text . ,offered)
         '(("/" "/" "/agent config" "/agent destroy" "/status")
           ("/agent d" "/agent d" "/agent destroy")
           ("/agent config " "" "web" "api")
           ("/agent config we" "we" "web")
           ("/agent config web " "" "model" "name")
           ("/agent destroy web --" "--" "--keep-files" "--yes")
           ("/agent destroy --yes w" "w" "web")
           ("/agent config \"web\" n" "n" "name")
           ("/agent config web name ")
           ("/etc/pass" "/etc/pass")
           ("say /stat")
           ("")))
      (should (equal (list text offered)
                     (list text (commands-test--offered text)))))))

(ert-deftest pyagentd-commands-complete-by-a-key-at-a-prompt-alone ()
  (commands-test--with
    (commands-test--offered "/agent c")
    (should (eq #'completion-at-point (key-binding (kbd "TAB"))))
    (completion-at-point)
    (should (string-suffix-p "### /agent config " (buffer-string)))
    (completion-in-region-mode -1)      ; which has a key of its own
    (commands-test--offered "say ")
    (should-not (eq #'completion-at-point (key-binding (kbd "TAB"))))))

;;; commands-test.el ends here

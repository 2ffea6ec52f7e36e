;;; gptel-test.el --- Tests of what we have to do with gptel -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; With a stub of gptel's public functions; GPTEL_DIR names the real one.

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'gptel-stub)
(require 'pyagentd-gptel)

(ert-deftest pyagentd-gptel-has-the-tool-in-its-category ()
  (pyagentd-test-with-place
    (unwind-protect
        (progn
          (pyagentd-gptel-register)
          (let ((tool (gptel-get-tool '("gptel-persistent"
                                        "PersistentAgent"))))
            (should (gptel-tool-async tool))
            (should (eq (gptel-tool-confirm tool) t))
            (should (eq (gptel-tool-include tool) t))
            (should (= (length (gptel-tool-args tool)) 5))))
      (remove-hook 'pyagentd-rpc-connected-hook #'pyagentd-gptel--refresh))))

(ert-deftest pyagentd-gptel-tools-are-offered-to-agents ()
  (let ((pyagentd-tools nil) (gptel--known-tools nil))
    (cl-letf (((symbol-function 'pyagentd-offer) #'ignore))
      (gptel-make-tool :name "one" :function #'identity :description "One"
                       :args '((:name "x" :type string :description "x"))
                       :category "mine" :confirm t)
      (gptel-make-tool :name "two" :function #'ignore :description "Two"
                       :async t :args nil)
      (should (equal (sort (pyagentd-gptel-offer-tools) #'string<)
                     '("one" "two")))
      (should (pyagentd-tool-async (cdr (assoc "two" pyagentd-tools))))
      (let ((one (cdr (assoc "one" pyagentd-tools))))
        (should (equal (pyagentd-tool-category one) "mine"))
        (should (pyagentd-tool-confirm one))
        (should (equal (pyagentd-tool-args one)
                       (gptel-tool-args (gptel-get-tool '("mine" "one")))))))))

(ert-deftest pyagentd-gptel-mode-in-a-session-keeps-roles-and-file ()
  (pyagentd-test-with-session "### Hi\n\nHello.\n\n### \n
<!-- Local Variables: -->
<!-- gptel-model: m -->
<!-- gptel--tool-names: (\"Read\" \"Glob\") -->
<!-- gptel--bounds: ((response (9 15))) -->
<!-- End: -->\n"
    (let ((before (pyagentd-test-content file))
          (header header-line-format)
          (debug-on-error nil)
          (gptel--system-message "Secret system prompt"))
      (gptel-mode 1)
      (should-not (get-buffer "*Warnings*"))
      (should (eq (get-text-property 9 'gptel) 'response))
      (should-not (get-text-property 3 'gptel))
      (goto-char (point-max))
      (insert "More.\n\n")
      (insert (propertize "An answer by gptel." 'gptel 'response))
      (save-buffer)
      (let ((after (pyagentd-test-content file)))
        (should-not (string-match-p "Secret" after))
        (should (= 1 (cl-count-if (lambda (line)
                                    (string-match-p "gptel--bounds" line))
                                  (split-string after "\n"))))
        (should (string-match-p "((response (9 15) (28 47)))" after))
        (should (string-match-p (regexp-quote (substring before 0 20)) after)))
      (gptel-mode -1)
      (should (equal header header-line-format)))))

;; What is called by its name never runs; what calls it from elsewhere has
;; its block taken out again.
(ert-deftest pyagentd-gptel-save-hooks-that-stand-before-ours-write-nothing ()
  (dolist (hook (list #'gptel--save-state (lambda () (gptel--save-state))))
    (pyagentd-test-with-session "### Hi\n\nHello.\n\n### \n
<!-- Local Variables: -->
<!-- gptel-model: m -->
<!-- gptel--bounds: ((response (9 15))) -->
<!-- End: -->\n"
      (let ((before (pyagentd-test-content file))
            (gptel-backend (and (fboundp 'gptel-make-openai)
                                (gptel-make-openai "Some" :models '(m))))
            (gptel-system-prompt "Secret system prompt")
            (gptel--system-message "Secret system prompt"))
        (dotimes (_ 2)
          (add-hook 'before-save-hook hook nil t)
          (goto-char (point-max))
          (insert "x")
          (save-buffer))
        (should (equal (pyagentd-test-content file)
                       (string-replace "### \n" "### xx\n" before)))
        (should (equal (buffer-string) "### Hi\n\nHello.\n\n### xx"))))))

(ert-deftest pyagentd-gptel-chats-are-told-as-they-are-now ()
  (with-temp-buffer
    (insert "### Hi\n\n" (propertize "Hello é." 'gptel 'response) "\n\n### \n\n"
            "<!-- Local Variables: -->\n<!-- gptel--bounds: nil -->\n"
            "<!-- End: -->\n")
    (setq-local gptel-model 'some-model)
    (setq-local gptel--system-message "Be \"terse\".\nAlways.")
    (setq-local gptel-temperature 0.5)
    (let ((chat (pyagentd-gptel--chat)))
      (should (string-prefix-p "### Hi\n\nHello é.\n\n### \n\n<!-- Local" chat))
      (dolist (line '("<!-- gptel-model: some-model -->"
                      "<!-- gptel-temperature: 0.5 -->"
                      "<!-- gptel-system-prompt: \"Be \\\"terse\\\".\\nAlways.\" -->"
                      "<!-- gptel--bounds: ((response (9 17))) -->"))
        (should (string-match-p (regexp-quote line) chat)))
      (should (= 1 (how-many "Local Variables" (point-min)))))))

(ert-deftest pyagentd-gptel-chats-are-chosen-and-leave-no-file-behind ()
  (pyagentd-test-with-daemon
    (let* ((temporary-file-directory (file-name-as-directory root))
           (left (lambda () (directory-files root nil "pyagentd-chat-")))
           (gptel-mode nil)
           (file (pyagentd-test-file root "### Hi\n"))
           (chat (generate-new-buffer "a chat")))
      (pyagentd-test-refuse 'import "No such preset")
      (with-temp-buffer
        (should (equal "No chat of gptel is open"
                       (cadr (should-error
                              (call-interactively #'pyagentd-import-gptel)
                              :type 'user-error))))
        (with-current-buffer chat
          (setq-local gptel-mode t)
          (insert "Hi"))
        (should (equal "No such preset"
                       (pyagentd-test-said
                         (pyagentd-test-type
                          "M-x pyagentd-import-gptel RET RET RET"))))
        (should-not (funcall left))
        (pyagentd-test-answer
         'import (list :session-id "chat-1" :file file :notes '("No tool x")))
        (should (equal "Imported as chat-1\nNo tool x"
                       (pyagentd-test-said
                         (pyagentd-import-gptel chat "a chat")))))
      (should-not (funcall left))
      (should (equal "a chat" (plist-get (car (pyagentd-test-calls 'import))
                                         :name)))
      (let ((pyagentd-command '("/nowhere")))
        (delete-process daemon)
        (pyagentd-test-await (not (pyagentd-rpc-connected-p)))
        (delete-file (pyagentd-rpc-runtime-file))
        (should-error (pyagentd-import-gptel chat "a chat") :type 'user-error)
        (should-not (funcall left)))
      (kill-buffer chat))))

(defvar gptel-test--key "sk-of-a-variable")

(ert-deftest pyagentd-gptel-backends-are-shown-changed-and-written ()
  (pyagentd-test-with-daemon
    (unless (fboundp 'make-gptel-openai)
      (require 'gptel-openai)
      (defalias 'make-gptel-openai #'gptel--make-openai))
    (put 'gptel-test-m :context-window 40)
    (put 'gptel-test-m :capabilities '(tool-use))
    (let* ((backend (make-gptel-openai
                     :name "Mine" :host "llm.example.org" :protocol "https"
                     :endpoint "/v1/chat/completions" :key 'gptel-test--key
                     :models '(gptel-test-m)))
           (gptel--known-backends (list (cons "Mine" backend)))
           (gptel-backend backend)
           (pyagentd-keys nil)
           (buffer "*edit: backends of gptel, for config.toml*"))
      (pyagentd-test-answer
       'gptel-backends
       '(:text "[backend.Mine]\nkind = \"openai\"\n" :file "/c.toml"
         :keys (("PYAGENTD_KEY_MINE" "llm.example.org")) :notes ("Other: no")))
      (pyagentd-test-answer 'add-configuration "/c.toml")
      (pyagentd-gptel--import-backends)
      (pyagentd-test-await (get-buffer buffer))
      (let ((told (car (plist-get (car (pyagentd-test-calls 'gptel-backends))
                                  :backends))))
        (should (equal (plist-get told :host) "llm.example.org"))
        (should (equal (plist-get told :type) "gptel-openai"))
        (should (equal (plist-get told :models)
                       '((:name "gptel-test-m" :context-window 40))))
        (should (eq (plist-get told :key) t))
        (should-not (string-search gptel-test--key (format "%S" told))))
      (cl-letf (((symbol-function 'customize-save-variable) #'set))
        (with-current-buffer buffer
          (should (string-match-p "^# Left out: Other: no" (buffer-string)))
          (goto-char (point-max))
          (insert "model = \"m\"\n")
          (pyagentd-edit--finish))
        (pyagentd-test-await (not (get-buffer buffer))))
      (should (string-search
               "[backend.Mine]\nkind = \"openai\"\nmodel = \"m\""
               (plist-get (car (pyagentd-test-calls 'add-configuration)) :text)))
      (should (equal pyagentd-keys
                     '(("PYAGENTD_KEY_MINE" . "llm.example.org"))))
      (should (equal (plist-get (pyagentd-env-variables) :PYAGENTD_KEY_MINE)
                     "sk-of-a-variable")))))

(ert-deftest pyagentd-gptel-a-key-is-asked-of-auth-source-without-gptel ()
  (let ((gptel--known-backends nil)
        (pyagentd-keys '(("SOME_KEY" . "llm.example.org") ("NO_KEY" . "x")))
        (pyagentd-api-key-host "llm.example.org")
        (process-environment
         (append '("ANTHROPIC_API_KEY" "PYAGENTD_BACKEND") process-environment))
        (asked nil))
    (cl-letf (((symbol-function 'auth-source-search)
               (lambda (&rest spec)
                 (push (plist-get spec :host) asked)
                 (and (equal (plist-get spec :host) "llm.example.org")
                      (list (list :secret (lambda () "s3cret")))))))
      (let ((env (pyagentd-env-variables)))
        (should (equal (plist-get env :SOME_KEY) "s3cret"))
        (should-not (plist-member env :NO_KEY))
        (should (equal (plist-get env :ANTHROPIC_API_KEY) "s3cret"))
        (should (equal asked '("llm.example.org" "x" "llm.example.org")))
        (let ((pyagentd-api-key-host nil))
          (should-not (plist-member (pyagentd-env-variables)
                                    :ANTHROPIC_API_KEY)))))))

(provide 'gptel-test)
;;; gptel-test.el ends here

;;; model-test.el --- Tests of choosing the model -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-menu)

(ert-deftest pyagentd-model-is-chosen-for-the-session-and-saved ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :settings '(:model "opus"))
    (pyagentd-choose-model "haiku")
    (should (string-match-p "haiku\\*" pyagentd-status--line))
    (should (string-search "gptel-model: haiku" (pyagentd-test-content file)))
    (pyagentd-choose-model "")
    (should (string-match-p "opus\\'" (string-trim pyagentd-status--line)))))

(ert-deftest pyagentd-model-what-the-daemon-has-is-offered ()
  (pyagentd-test-with-daemon
    (let ((pyagentd-model--known nil) (pyagentd-model-history nil))
      (pyagentd-test-answer
       'models '(:offered ((:text "opus" :backend "a" :name "opus"
                            :words "a  200k context, $5 in")
                           (:text "c/haiku" :backend "c" :name "haiku" :words "c"))))
      (pyagentd-model--fetch)
      (pyagentd-test-await pyagentd-model--known)
      (should (equal (mapcar #'car (pyagentd-model--rows))
                     '("opus" "c/haiku")))
      (should (string-match-p "a  200k context, \\$5 in"
                              (cdr (assoc "opus" (pyagentd-model--rows))))))))

(ert-deftest pyagentd-model-of-another-backend-brings-the-backend ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :settings '(:model "opus" :backend "Claude"))
    (let ((pyagentd-model--backend "anthropic")
          (pyagentd-model--known
           '((:text "haiku" :backend "anthropic" :name "haiku")
             (:text "ollama/qwen3:8b" :backend "ollama" :name "qwen3:8b"))))
      (pyagentd-choose-model "ollama/qwen3:8b")
      (let ((content (pyagentd-test-content file)))
        (should (string-search "gptel-model: qwen3:8b" content))
        (should (string-search "gptel--backend-name: \"ollama\"" content)))
      (pyagentd-choose-model "haiku")
      (let ((content (pyagentd-test-content file)))
        (should (string-search "gptel-model: haiku" content))
        (should (string-search "gptel--backend-name: \"Claude\"" content)))
      (pyagentd-choose-model "ollama/qwen3:8b")
      (pyagentd-choose-model "")
      (let ((content (pyagentd-test-content file)))
        (should (string-search "gptel-model: opus" content))
        (should (string-search "gptel--backend-name: \"Claude\"" content)))
      (setq pyagentd-settings-next-only t)
      (pyagentd-choose-model "ollama/qwen3:8b")
      (should (equal (plist-get pyagentd-settings-next :model)
                     "ollama/qwen3:8b")))))

(ert-deftest pyagentd-model-numbers-are-saved-with-the-session ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :settings '(:model "opus" :temperature 0.5))
    (pyagentd-model--set :temperature 0.2)
    (pyagentd-model--set :max-tokens 900)
    (let ((content (pyagentd-test-content file)))
      (should (string-search "gptel-temperature: 0.2" content))
      (should (string-search "gptel-max-tokens: 900" content)))
    (pyagentd-model--set :temperature nil)
    (pyagentd-model--set :max-tokens nil)
    (let ((content (pyagentd-test-content file)))
      (should (string-search "gptel-temperature: 0.5" content))
      (should-not (string-search "gptel-max-tokens" content)))
    (dolist (typed '("3" "-1" "warm"))
      (cl-letf (((symbol-function 'read-string) (lambda (&rest _) typed)))
        (should-error (call-interactively 'pyagentd-menu---t) :type 'user-error)))
    (cl-letf (((symbol-function 'read-string) (lambda (&rest _) "0.5")))
      (should-error (call-interactively 'pyagentd-menu---c) :type 'user-error))))

(ert-deftest pyagentd-model-settings-of-one-message-go-with-it-and-are-forgotten ()
  (pyagentd-test-with-daemon
    (pyagentd-test-answer
     'attach '(:seq 0 :revision 10 :model "m" :status (:state "idle")))
    (pyagentd-test-answer 'send '(:command (:name "help" :text "")))
    (with-current-buffer (find-file-noselect
                          (pyagentd-test-file root "### /help"))
      (pyagentd-test-await (eq pyagentd-attach-state t))
      (goto-char (point-max))
      (pyagentd-model--switch-scope)
      (pyagentd-model--set :temperature 0.2)
      (pyagentd-model--choose-thinking "high")
      (pyagentd-send)
      (pyagentd-test-await (not (eq (plist-get pyagentd-status :state) 'sending)))
      (should pyagentd-settings-next)   ; a command is no message
      (pyagentd-test-answer 'send '(:run "r1" :seq 1))
      (pyagentd-send)
      (pyagentd-test-await (null pyagentd-settings-next))
      (should (equal (plist-get (car (last (pyagentd-test-calls 'send)))
                                :settings)
                     '(:thinking "high" :temperature 0.2)))
      (should-not pyagentd-settings-next-only))))

(ert-deftest pyagentd-model-tools-are-switched-one-by-one ()
  (pyagentd-test-with-daemon
    (pyagentd-test-answer
     'attach '(:seq 0 :revision 10 :model "m" :status (:state "idle")))
    (pyagentd-test-answer
     'tools-available '(:tools ("Bash" "Grep" "Read") :on ("Bash" "Read")))
    (pyagentd-test-answer
     'configure '(:own-settings (:tools ("Read" "Grep"))
                  :settings (:tools ("Read" "Grep"))))
    (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
      (pyagentd-test-await (eq pyagentd-attach-state t))
      (let ((typed '("Bash" "Grep" "")))
        (cl-letf (((symbol-function 'completing-read)
                   (lambda (&rest _) (pop typed))))
          (pyagentd-model--choose-tools)
          (pyagentd-test-await (pyagentd-test-calls 'configure))))
      (should (equal (plist-get (car (pyagentd-test-calls 'configure)) :tools)
                     "Read Grep"))
      (pyagentd-test-await (equal (pyagentd-block-get 'gptel--tool-names)
                                  '("Read" "Grep"))))))

(ert-deftest pyagentd-model-prompt-begun-is-finished-where-its-session-is-now ()
  (pyagentd-test-with-daemon
    (pyagentd-test-answer 'attach '(:seq 0 :revision 10 :model "m"))
    (pyagentd-test-answer 'system-prompt "Be kind.")
    (pyagentd-test-answer 'configure '(:own-settings nil :settings nil))
    (save-window-excursion
      (let* ((file (pyagentd-test-file root "### Hi"))
             (begin (lambda ()
                      (with-current-buffer (find-file-noselect file)
                        (pyagentd-test-await (eq pyagentd-attach-state t))
                        (pyagentd-edit-system-prompt)
                        (pyagentd-test-settle)
                        (prog1 (get-buffer (format "*edit: system prompt of %s*"
                                                   (buffer-name)))
                          (set-buffer-modified-p nil)))))
             (edit (funcall begin)))
        (with-current-buffer edit
          (goto-char (point-max))
          (insert " And brief.")
          (kill-buffer (get-file-buffer file))
          (should-error (pyagentd-edit--finish) :type 'user-error))
        (should (eq edit (funcall begin)))
        (with-current-buffer edit
          (should (equal (buffer-string) "Be kind. And brief."))
          (pyagentd-edit--finish))
        (pyagentd-test-await (not (buffer-live-p edit)))
        (should (equal (plist-get (car (pyagentd-test-calls 'configure)) :system)
                       "Be kind. And brief."))))))

(provide 'model-test)
;;; model-test.el ends here

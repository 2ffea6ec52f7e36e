;;; keys-test.el --- Tests of cheat sheet and menu -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)
(require 'pyagentd-menu)
(require 'pyagentd-list)
(require 'pyagentd-report)
(require 'pyagentd-search)
(require 'pyagentd-views)
(require 'pyagentd-mission)

(ert-deftest pyagentd-keys-every-list-has-a-sheet ()
  (dolist (mode '(pyagentd-asks-mode pyagentd-list-mode
                  pyagentd-search-mode
                  pyagentd-report-mode pyagentd-mission-mode))
    (with-temp-buffer
      (funcall mode)
      (should (eq (key-binding "?") #'pyagentd-keys))
      (should (> (length (pyagentd-keys-here)) 3))
      (pcase-dolist (`(,key . ,words) (pyagentd-keys-here))
        (should (commandp (key-binding (kbd key))))
        (should-not (string-empty-p words))))))

(defun keys-test--last-line ()
  "Return what this list says of its keys below its lines."
  (let* ((overlays (overlays-in (point-min) (point-max)))
         (keys (seq-find (lambda (overlay)
                           (overlay-get overlay 'pyagentd-table-keys))
                         overlays)))
    (concat (buffer-string) (and keys (overlay-get keys 'after-string)))))

(ert-deftest pyagentd-keys-every-list-names-some-below-its-lines ()
  (pcase-dolist (`(,mode . ,print)
                 '((pyagentd-search-mode . pyagentd-search--print)))
    (with-temp-buffer
      (funcall mode)
      (funcall print)
      (funcall print)
      (should (string-match-p "RET open  [^z]*\\? all keys\n\\'"
                              (keys-test--last-line)))))
  (mapatoms
   (lambda (mode)
     (when (and (string-match-p "\\`pyagentd-.*-mode\\'" (symbol-name mode))
                (commandp mode) (not (eq mode 'pyagentd-table-mode)))
       (with-temp-buffer
         (funcall mode)
         (when (derived-mode-p 'tabulated-list-mode)
           (should pyagentd-table-help)
           (pcase-dolist (`(,key ,_) pyagentd-table-help)
             (should (commandp (key-binding (kbd key)))))))))))

(ert-deftest pyagentd-keys-the-list-says-it-in-fewer-words ()
  (with-temp-buffer
    (pyagentd-list-mode)
    (pyagentd-list--print '(:columns ((:title "Who" :width 0))
                            :actions ((:key "k" :label "stop"))))
    (should (equal (cdr (assoc "k" (pyagentd-keys-here))) "stop"))
    (should (equal (pyagentd-keys--text '(("a" . "one") ("RET" . "two")) 100)
                   (concat "a    one" (make-string 42 ?\s) "RET  two")))))

(defun keys-test--too-long (keys)
  "Return what of KEYS, a list of (KEY . WORDS), a sheet has no room for."
  (seq-filter (lambda (pair)
                (> (string-width (cdr pair)) pyagentd-key-words-width))
              keys))

(ert-deftest pyagentd-keys-are-never-cut-and-say-different-things ()
  (pcase-dolist (`(,command . ,_) pyagentd-key-words)
    (should (or (fboundp command) (eq command 'outline-cycle))))
  (mapatoms
   (lambda (mode)
     (when (and (string-match-p "\\`pyagentd-.*-mode\\'" (symbol-name mode))
                (commandp mode))
       (with-temp-buffer
         (funcall mode)
         (when (derived-mode-p 'special-mode 'tabulated-list-mode)
           (should-not (keys-test--too-long (pyagentd-keys-here))))))))
  (with-temp-buffer
    (setq-local pyagentd-mode t
                pyagentd-ask-mode t)
    (should-not (keys-test--too-long (pyagentd-keys-here)))))

(ert-deftest pyagentd-keys-a-session-has-one-too ()
  (blocks-with
    (should (eq (key-binding (kbd "C-c ?")) #'pyagentd-keys))
    (let ((keys (pyagentd-keys-here)))
      (should (equal (cdr (assoc "C-c RET" keys)) "send the prompt"))
      (should-not (assoc "?" keys)))))

(ert-deftest pyagentd-menu-shows-what-holds ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :title "Tea" :preset "programmer"
                          :settings '(:model "opus")
                          :status '(:state idle :queued 2)
                          :context '(:used 500 :window 1000 :cost-usd 0.5))
    (should (equal (mapcar (lambda (function)
                             (substring-no-properties (funcall function)))
                           '(pyagentd-menu--title pyagentd-menu--queue
                             pyagentd-menu--agent pyagentd-menu--model
                             pyagentd-menu--context pyagentd-menu--steps))
                   '("Tea  Ready" "Queue 2" "Agent programmer" "Model opus"
                     "Context 50% $0.50" "Steps")))))

(ert-deftest pyagentd-menu-q-quits-each-of-them ()
  (dolist (menu '(pyagentd-menu pyagentd-menu-model pyagentd-menu--in-sessions
                  pyagentd-menu--in-agents pyagentd-menu--in-rights
                  pyagentd-menu--in-settings))
    (should (eq (plist-get (nth 2 (transient-get-suffix menu "q")) :command)
                'transient-quit-one))))

(ert-deftest pyagentd-menu-shows-the-settings-and-those-of-the-next-message ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :settings '(:model "opus" :temperature 0.5
                                      :tools ("Read" "Bash"))
                          :thinking "low")
    (let ((shown (lambda ()
                   (mapcar (lambda (function)
                             (substring-no-properties (funcall function)))
                           '(pyagentd-menu--scope
                             pyagentd-menu--model pyagentd-menu--temperature
                             pyagentd-menu--max-tokens pyagentd-menu--thinking
                             pyagentd-menu--tools pyagentd-menu--system)))))
      (should (equal (funcall shown)
                     '("Set for this session" "Model opus" "Temperature 0.5"
                       "Maximum tokens default" "Thinking low" "Tools 2"
                       "System prompt preset.md")))
      (pyagentd-model-switch-scope)
      (pyagentd-choose-model "haiku")
      (pyagentd-choose-temperature 0)
      (pyagentd-choose-thinking "high")
      (should (equal (seq-take (funcall shown) 5)
                     '("Set for next message only"
                       "Model haiku (next message)"
                       "Temperature 0 (next message)"
                       "Maximum tokens default"
                       "Thinking high (next message)")))
      (should (string-search "opus" pyagentd-status--line))
      (should (string-search "[next: " pyagentd-status--line))
      (pyagentd-choose-temperature nil)
      (should (equal (nth 2 (funcall shown)) "Temperature 0.5"))
      (pyagentd-model-forget-next)
      (should-not (string-search "[next: " pyagentd-status--line)))))

(ert-deftest pyagentd-menu-an-option-has-its-next-value ()
  (let ((pyagentd-fold '(reasoning tool)))
    (call-interactively #'pyagentd-menu--in-fold)
    (should (equal pyagentd-fold '(tool)))
    (call-interactively #'pyagentd-menu--in-fold)
    (call-interactively #'pyagentd-menu--in-fold)
    (should (equal pyagentd-fold nil))
    (call-interactively #'pyagentd-menu--in-fold)
    (should (equal pyagentd-fold '(reasoning tool)))))

(ert-deftest pyagentd-menu-all-of-them-have-commands ()
  (dolist (menu '(pyagentd-menu--in-sessions pyagentd-menu--in-agents
                  pyagentd-menu--in-rights pyagentd-menu--in-settings))
    (named-let walk ((tree (get menu 'transient--layout)))
      (cond ((and (consp tree) (plist-get (ignore-errors (nth 2 tree)) :command))
             (should (commandp (plist-get (nth 2 tree) :command))))
            ((vectorp tree) (mapc #'walk tree))
            ((consp tree) (mapc #'walk tree))))))

(ert-deftest pyagentd-menubar-all-of-it-are-commands ()
  (blocks-with
    (let ((count 0))
      (map-keymap (lambda (_ item)
                    (pcase item
                      (`(menu-item ,_ ,(and command (pred symbolp)) . ,_)
                       (when command
                         (setq count (1+ count))
                         (should (commandp command))))))
                  (lookup-key pyagentd-mode-map [menu-bar Agent]))
      (should (> count 20)))))

(ert-deftest pyagentd-keys-have-words-for-which-key-and-work-as-before ()
  (pyagentd-which-key-set-up)
  (pyagentd-which-key-set-up)
  (let ((binding (assq ?\C-k (lookup-key pyagentd-mode-map (kbd "C-c")))))
    (should (equal (cddr binding) 'pyagentd-abort))
    (should (stringp (cadr binding))))
  (should (eq (lookup-key pyagentd-mode-map (kbd "C-c C-k")) 'pyagentd-abort))
  (should (equal (key-description (where-is-internal 'pyagentd-abort
                                                     pyagentd-mode-map t))
                 "C-c C-k"))
  (with-temp-buffer
    (use-local-map pyagentd-mode-map)
    (setq-local pyagentd-mode t)
    (should (assoc "C-c C-k" (pyagentd-keys-here)))))

(ert-deftest pyagentd-keys-of-a-question-are-shown-where-something-is-asked ()
  (with-temp-buffer
    (setq-local pyagentd-mode t)
    (should-not (rassoc "go to the question" (pyagentd-keys-here)))
    (setq-local pyagentd-ask-mode t)
    (should (rassoc "go to the question" (pyagentd-keys-here)))))

;;;; What they shadow

(defun keys-test--bound (map &optional prefix)
  "Return the keys of MAP with their commands, (KEY . COMMAND).
What is there only where it applies, and what stands for another command
whatever its key, is none."
  (let (found)
    (map-keymap-internal
     (lambda (event binding)
       (let ((key (vconcat prefix (vector event)))
             (command (pyagentd-keys--command binding)))
         (cond ((memq event '(remap menu-bar)))
               ((and (eq 'menu-item (car-safe binding))
                    (memq :filter binding)))
               ((keymapp command)
                (setq found (append (keys-test--bound command key) found)))
               (command (push (cons key command) found)))))
     map)
    found))

(defun keys-test--meaning (key)
  "Return what KEY does in Markdown, in text, or anywhere; nil for nothing."
  (seq-some (lambda (map)
              (let ((found (lookup-key map key)))
                (and found (not (integerp found)) found)))
            (list markdown-mode-map text-mode-map (current-global-map))))

(ert-deftest pyagentd-keys-in-a-session-mean-what-they-do-in-markdown ()
  (skip-unless (require 'markdown-mode nil t))
  (dolist (map (list pyagentd-mode-map pyagentd-ask-mode-map
                     pyagentd-reply-options-mode-map))
    (pcase-dolist (`(,key . ,command) (keys-test--bound map))
      (unless (member (key-description key)
                      '("C-c RET" "C-c C-k" "C-c C-c" "C-c C-t"))
        (should-not (and (keys-test--meaning key)
                         (list (key-description key) command)))))))

(ert-deftest pyagentd-keys-of-the-text-decide-nothing ()
  (dolist (map (list pyagentd-mode-map pyagentd-ask-mode-map))
    (pcase-dolist (`(,_ . ,command) (keys-test--bound map))
      (should-not (memq command
                        '(pyagentd-allow-once pyagentd-allow-session
                          pyagentd-allow-always pyagentd-deny
                          pyagentd-deny-with-reason pyagentd-ask-edit-finish
                          pyagentd-ask-abort))))))

(ert-deftest pyagentd-menubar-a-right-click-offers-what-is-there ()
  (blocks-with
    (should (equal (mapcar #'car (pyagentd-menubar--items (blocks-find "two")))
                   '("Fold or Unfold")))
    (should (equal (mapcar #'car (pyagentd-menubar--items
                                  (blocks-find "print")))
                   '("Copy Code" "Copy Answer" "Regenerate")))
    (should (equal (caar (pyagentd-menubar--items (blocks-find "First")))
                   "Rewind to This Prompt"))
    (let ((menu (make-sparse-keymap))
          (click (list 'mouse-3 (list (selected-window) (blocks-find "print")))))
      (should (memq 'pyagentd-menubar-context context-menu-functions))
      (pyagentd-menubar-context menu click)
      (call-interactively (lookup-key menu [pyagentd-copy-code]))
      (should (equal (current-kill 0) "print(1)")))))

(ert-deftest pyagentd-recall-a-prompt-is-said-again ()
  (let ((pyagentd-prompt-history nil))
    (blocks-with
      (run-hook-with-args 'pyagentd-chat-sent-functions " Of another\nsession ")
      (let (seen)
        (pyagentd-test-with-options seen
          (pyagentd-test-type "C-c M-r Of TAB RET"))
        (should (equal (mapcar #'car seen)
                       '("Second ⏎ thing" "First thing" "Of another ⏎ session"))))
      (should (string-suffix-p "### Of another\nsession\n\n" (buffer-string)))
      (should (equal pyagentd-prompt-history '("Of another\nsession"))))))

(provide 'keys-test)
;;; keys-test.el ends here

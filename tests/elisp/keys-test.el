;;; keys-test.el --- Tests of cheat sheet and menu -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'blocks)
(require 'keys)
(require 'pyagentd-menu)
(require 'pyagentd-list)
(require 'pyagentd-sessions)
(require 'pyagentd-views)
(require 'pyagentd-views)

(defun keys-test--entries ()
  "Return all entries of the menus."
  (seq-filter #'consp (seq-mapcat #'cddr (pyagentd-menus-groups))))

(ert-deftest pyagentd-keys-are-those-that-the-menus-name ()
  (let ((named (delq nil (mapcar (lambda (entry)
                                   (when-let ((key (plist-get (nthcdr 3 entry)
                                                              :key)))
                                     (cons key (nth 2 entry))))
                                 (keys-test--entries)))))
    (should (> (length named) 20))
    (pcase-dolist (`(,key . ,command) named)
      (should (commandp command))
      (should (eq command (lookup-key pyagentd-mode-map (kbd key))))
      (should (equal (key-description
                      (where-is-internal command pyagentd-mode-map t))
                     key)))
    (pcase-dolist (`(,key . ,command) (keys-test--bound pyagentd-mode-map))
      (let ((key (key-description key)))
        (when (string-prefix-p "C-c" key)
          (should (or (equal key "C-c C-t") (equal (cdr (assoc key named))
                                                   command))))))))

;; A terminal without a character has another one of the same width for it.
(ert-deftest pyagentd-keys-and-lists-have-characters-that-the-terminal-has ()
  (let ((coding (terminal-coding-system)))
    (unwind-protect
        (dolist (case '((us-ascii ?- ?>) (utf-8 nil nil)))
          (set-terminal-coding-system (car case))
          (with-temp-buffer
            (pyagentd-list-mode)
            (should (equal (mapcar (lambda (char)
                                     (and buffer-display-table
                                          (aref buffer-display-table char)))
                                   '(?· ?→))
                           (mapcar (lambda (plain) (and plain (vector plain)))
                                   (cdr case))))))
      (set-terminal-coding-system coding))))

(ert-deftest pyagentd-commands-are-few ()
  "All that have a public name, in whichever file, two of them the specification's."
  (pyagentd-test-load-all)
  (let (commands)
    (mapatoms
     (lambda (symbol)
       (let ((name (symbol-name symbol)))
         (when (and (commandp symbol)
                    (string-match-p "\\`\\(?:pyagentd-\\|jf/\\)" name)
                    (not (string-match-p "--\\|\\`pyagentd-test" name)))
           (push name commands)))))
    (ert-info ((format "%d commands: %s" (length commands)
                       (string-join (sort (copy-sequence commands) #'string<)
                                    " ")))
      (should (<= (length commands) 63)))))

(ert-deftest pyagentd-keys-in-which-key-have-words ()
  (let (words)
    (map-keymap-internal (lambda (_ binding)
                           (when (stringp (car-safe binding))
                             (push (car binding) words)))
                         (lookup-key pyagentd-mode-map (kbd "C-c")))
    (should (member "Next answer" words))))

(ert-deftest pyagentd-keys-letters-of-menus-are-different ()
  (dolist (menu pyagentd-menus)
    (let ((letters (mapcar (lambda (command)
                             (plist-get (nth 2 (transient-get-suffix
                                                (car menu) command))
                                        :command))
                           (mapcar #'car
                                   (seq-filter
                                    #'consp
                                    (seq-mapcat
                                     (lambda (group)
                                       (and (consp group) (cdr group)))
                                     (seq-mapcat #'cdr (cddr menu))))))))
      (should (equal letters (delete-dups (copy-sequence letters)))))))

(ert-deftest pyagentd-menubar-has-what-the-menus-have ()
  (let ((menu (lookup-key pyagentd-mode-map [menu-bar Agent])))
    (should (keymapp menu))
    (let (titles)
      (map-keymap (lambda (_ binding) (push (format "%s" (nth 1 binding)) titles))
                  menu)
      (dolist (title '("Send" "Turns" "Approvals" "Sessions" "Trust"))
        (should (member title titles))))))

(defun keys-test--described (words)
  "Return what the entry of the menu that is called WORDS says now."
  (let ((entry (seq-find (lambda (entry) (equal words (nth 1 (ensure-list entry))))
                         (keys-test--entries))))
    (substring-no-properties
     (eval `(pyagentd-menu--value ,words ,(plist-get (nthcdr 3 entry) :value)) t))))

(ert-deftest pyagentd-menu-shows-what-holds ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :title "Tea" :preset "programmer"
                          :settings '(:model "opus")
                          :status '(:state idle :queued 2)
                          :context '(:used 500 :window 1000 :short "500 $0.50"))
    (should (equal (substring-no-properties (pyagentd-menu--title)) "Tea  Ready"))
    (should (equal (mapcar #'keys-test--described
                           '("Queue" "Agent" "Model" "Context" "Steps"))
                   '("Queue 2" "Agent programmer" "Model opus"
                     "Context 50% $0.50" "Steps")))))

(ert-deftest pyagentd-menus-fit-into-80-columns ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach
     :title (make-string 60 ?t) :preset "a-programmer"
     :settings '(:model "claude-opus-with-a-very-long-name-20251101"
                 :temperature 0.25)
     :thinking "medium" :status '(:state idle :queued 12)
     :context '(:used 500 :window 1000 :short "500 $10.55"))
    (pyagentd-model--switch-scope)
    (pyagentd-choose-model "claude-haiku-with-a-very-long-name-20251101")
    (dolist (menu (mapcar #'car pyagentd-menus))
      (unwind-protect
          (progn
            (transient-setup menu)
            (with-current-buffer " *transient*"
              (dolist (line (split-string (buffer-string) "\n"))
                (should (< (string-width line) 78)))))
        ;; In batch nothing else takes its keys away.
        (transient--emergency-exit)))))

(ert-deftest pyagentd-menu-q-quits-each-of-them ()
  (dolist (menu '(pyagentd-menu pyagentd-menu--in-model pyagentd-menu--in-sessions
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
                   (mapcar #'keys-test--described
                           '("Set for" "Model" "Temperature" "Maximum tokens"
                             "Thinking" "Tools" "System prompt")))))
      (should (equal (funcall shown)
                     '("Set for this session" "Model opus" "Temperature 0.5"
                       "Maximum tokens default" "Thinking low" "Tools 2"
                       "System prompt preset.md")))
      (pyagentd-model--switch-scope)
      (pyagentd-choose-model "haiku")
      (pyagentd-model--set :temperature 0)
      (pyagentd-model--choose-thinking "high")
      (should (equal (seq-take (funcall shown) 5)
                     '("Set for next message"
                       "Model haiku (next)"
                       "Temperature 0 (next)"
                       "Maximum tokens default"
                       "Thinking high (next)")))
      (should (string-search "opus" pyagentd-status--line))
      (should (string-search "[next: " pyagentd-status--line))
      (pyagentd-model--set :temperature nil)
      (should (equal (nth 2 (funcall shown)) "Temperature 0.5"))
      (pyagentd-model--forget-next)
      (should-not (string-search "[next: " pyagentd-status--line)))))

(ert-deftest pyagentd-menu-an-option-has-its-next-value ()
  (let ((pyagentd-fold '(reasoning tool)) (inhibit-message t))
    (should (equal (pyagentd-menu--option 'pyagentd-fold) "thoughts and tools"))
    (pyagentd-menu-switch 'pyagentd-fold)
    (should (equal pyagentd-fold '(tool)))
    (pyagentd-menu-switch 'pyagentd-fold)
    (pyagentd-menu-switch 'pyagentd-fold)
    (should (equal pyagentd-fold nil))
    (pyagentd-menu-switch 'pyagentd-fold)
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
  (let ((count 0))
    (dolist (entry (keys-test--entries))
      (pcase (pyagentd-menubar--item entry)
        (`[,(pred stringp) ,(and command (pred symbolp))]
         (setq count (1+ count))
         (should (commandp command)))
        (`[,(pred stringp) (,(and function (pred symbolp)) . ,_)]
         (should (fboundp function)))))
    (should (> count 50))))

;;;; What they shadow

(defun keys-test--bound (map &optional prefix)
  "Return the keys of MAP with their commands, (KEY . COMMAND).
What is there only where it applies, and what stands for another command
whatever its key, is none."
  (let (found)
    (map-keymap-internal
     (lambda (event binding)
       (let ((key (vconcat prefix (vector event)))
             (command (if (stringp (car-safe binding)) (cdr binding)
                        binding)))
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
  (pcase-dolist (`(,key . ,command) (keys-test--bound pyagentd-mode-map))
    (unless (member (key-description key)
                    '("C-c RET" "C-c C-k" "C-c C-c" "C-c C-t"))
      (should-not (and (keys-test--meaning key)
                       (list (key-description key) command))))))

(ert-deftest pyagentd-keys-of-the-text-decide-nothing ()
  (pcase-dolist (`(,_ . ,command) (keys-test--bound pyagentd-mode-map))
    (should-not (memq command
                      '(pyagentd-allow-once pyagentd-allow-session
                        pyagentd-allow-always pyagentd-deny
                        pyagentd-deny-with-reason pyagentd-edit--finish
                        pyagentd-ask--abort)))))

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
      (pyagentd-recall-note " Of another\nsession ")
      (let (seen)
        (pyagentd-test-with-options seen
          (pyagentd-test-type "C-c M-r Of TAB RET"))
        (should (equal (mapcar #'car seen)
                       '("Second ⏎ thing" "First thing" "Of another ⏎ session"))))
      (should (string-suffix-p "### Of another\nsession\n\n" (buffer-string)))
      (should (equal pyagentd-prompt-history '("Of another\nsession"))))))

(provide 'keys-test)
;;; keys-test.el ends here

;;; header-test.el --- Tests of the header line -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defun header-test--commands ()
  "Return the parts of the header line with what a click runs, in order."
  (let ((line pyagentd-status--line) (pos 0) found)
    (while (< pos (length line))
      (let ((command (get-text-property pos 'pyagentd-command line))
            (next (or (next-single-property-change pos 'pyagentd-command line)
                      (length line))))
        (when command
          (push (list (substring-no-properties line pos next) command) found))
        (setq pos next)))
    (nreverse found)))

(ert-deftest pyagentd-header-every-part-can-be-clicked ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach
     :title "Tea" :preset "programmer" :settings '(:model "opus")
     :status '(:state busy :phase TYPE :queued 2)
     :context '(:used 500 :window 1000 :usable 900 :known-usd 0.5
                :estimated nil :short "500 $0.50")
     :agents '((:id "a1" :preset "explorer" :state wait)
               (:id "a2" :preset "coder" :state wait :background t))
     :todo '((:content "Boil" :status "pending" :active-form "Boiling"))
     :asks (list (list :id "q1" :branch pyagentd--branch-dir :kind 'tool
                       :tool "Bash")))
    (should (equal (sort (header-test--commands)
                         (lambda (a b) (string< (car a) (car b))))
                   '(("1 agent, background: coder" pyagentd-agents)
                     ("1 ask: Bash" pyagentd-asks)
                     ("2 queued" pyagentd-queue)
                     ("Tea" pyagentd-rename)
                     ("Typing..." pyagentd-inspect)
                     ("[███▁▁ 50%% 500 $0.50]" pyagentd-context)
                     ("opus" pyagentd-choose-model)
                     ("programmer" pyagentd-choose-agent)
                     ("todo 0/1" pyagentd-todo))))
    (pcase-dolist (`(,_ ,command) (header-test--commands))
      (should (commandp command)))
    (pyagentd-ask-clear)))

(ert-deftest pyagentd-header-begins-with-the-name-of-an-agent ()
  (pyagentd-test-with-place
    (let ((file (pyagentd-test-file
                 root "### Hi" "agents/helper/branches/main/session.md")))
      (pyagentd-test-file root "{}" "agents/helper/agent.json")
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-attach)
        (should (member '("helper" pyagentd-agent-config)
                        (header-test--commands)))
        (pyagentd-status-set-title "Tea")
        (should (member '("helper: Tea" pyagentd-agent-config)
                        (header-test--commands)))))))

(ert-deftest pyagentd-header-a-click-runs-the-command-in-its-window ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :title "Tea")
    (let* ((window (selected-window))
           (string (pyagentd-status-button "Tea" 'header-test--note "A title"))
           (place (list window 'header-line '(0 . 0) 0 (cons string 1))))
      (cl-letf* ((noted nil)
                 ((symbol-function 'header-test--note)
                  (lambda () (interactive) (setq noted (selected-window)))))
        (pyagentd-status--click (list 'mouse-1 place))
        (should (eq noted window))
        (should (eq (lookup-key (get-text-property 0 'keymap string)
                                [header-line mouse-1])
                    'pyagentd-status--click))))))

(ert-deftest pyagentd-header-says-less-where-there-is-little-room ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :title (make-string 60 ?t) :preset "programmer"
                          :settings '(:model "opus"))
    (cl-letf (((symbol-function 'window-width) (lambda (&rest _) 200)))
      (should (string-search "programmer" (pyagentd-status--shown))))
    (cl-letf (((symbol-function 'window-width) (lambda (&rest _) 34)))
      (let ((line (pyagentd-status--shown)))
        (should (<= (string-width line) 34))
        (should (string-search "opus" line))
        (should-not (string-search "programmer" line))))))

(ert-deftest pyagentd-header-names-no-model-where-none-answers ()
  (pyagentd-test-with-session "### Hi"
    (dolist (case '((nil "anthropic" "opus") (nil "offline" "offline stand-in")
                    ("anthropic" "offline" "opus")
                    ("offline" "anthropic" "offline stand-in")))
      (let ((process-environment (copy-sequence process-environment)))
        (setenv "PYAGENTD_BACKEND" (car case))
        (pyagentd-test-attach :settings (list :model "opus"
                                              :backend (nth 1 case)))
        (should (equal (format "%s" pyagentd-status-model) (nth 2 case)))))))

(defun header-test--shown (width)
  "Return the header line as a window of WIDTH shows it; it has room."
  (cl-letf (((symbol-function 'window-width) (lambda (&rest _) width)))
    (let ((line (substring-no-properties (pyagentd-status--shown))))
      (should (<= (string-width line) width))
      line)))

(ert-deftest pyagentd-header-what-is-asked-leaves-room-for-preset-and-model ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach
     :title "Making tea for all of us, and cake" :preset "programming-assistant"
     :settings '(:model "claude-opus-4-5") :status '(:state waiting)
     :context '(:used 500 :window 1000 :usable 900 :known-usd 0.5
                :estimated nil :short "500 $0.50")
     :asks (list (list :id "q1" :branch pyagentd--branch-dir :kind 'tool
                       :tool "Bash")))
    (let ((line (header-test--shown 116)))
      (should (string-search "Asks you" line))
      (should (string-search "programming-" line))
      (should (string-search "claude-opus-4-5" line)))
    (should (string-search "claude-opus-4-5" (header-test--shown 80)))
    (should (string-search "Waiting for your answer"
                           (header-test--shown 200)))
    (pyagentd-ask-clear)))

(ert-deftest pyagentd-header-an-error-begins-with-the-reason ()
  (pcase-dolist
      (`(,message ,short)
       '(("/tmp/a/session.md changed since it was saved (Save the buffer)"
          "session.md changed since it was saved (Save the buffer)")
         ("Failed to load preset from /h/x/main: /h/x/main/preset.md:3: Bad: x"
          "preset.md:3: Bad: x")
         ("It said 1/2 and https://a.b/c/d in ~/src/tea/Cup.py\nonce"
          "It said 1/2 and https://a.b/c/d in Cup.py once")
         (nil "")))
    (should (equal (pyagentd-status-words-reason message) short))))

(ert-deftest pyagentd-header-an-error-says-all-of-it-on-hovering ()
  (pyagentd-test-with-session "### Hi"
    (let ((text "/tmp/a/session.md changed since it was saved"))
      (pyagentd-test-attach :status (list :state 'error :message text))
      (let* ((line pyagentd-status--line)
             (pos (string-search "Error: session.md changed" line)))
        (should (string-prefix-p text (get-text-property pos 'help-echo
                                                         line)))))))

(ert-deftest pyagentd-header-a-session-that-is-refused-says-why ()
  (pyagentd-test-with-daemon
    (let* ((file (pyagentd-test-file root "### Hi"))
           (preset (expand-file-name "preset.md" (file-name-directory file)))
           said)
      (write-region "---\nfoo: [\n---\n" nil preset nil 'quiet)
      (pyagentd-test-tell
       'fake-error (prin1-to-string
                    (list 'preset (format "Failed to load preset from \
%s: %s:2: Malformed" (file-name-directory preset) preset)))
       'attach)
      (with-current-buffer (find-file-noselect file)
        (goto-char (point-max))
        (cl-letf (((symbol-function 'message)
                   (lambda (format &rest args)
                     (push (apply #'format (or format "") args) said))))
          (pyagentd-send)
          (pyagentd-test-await
           (seq-some (lambda (text)
                       (string-match-p
                        "\\`Not sent: .*; M-x pyagentd-visit-cause" text))
                     said)))
        (should (member '("Not connected: preset.md:2: Malformed"
                          pyagentd-visit-cause)
                        (header-test--commands)))
        (save-window-excursion
          (pyagentd-visit-cause)
          (should (equal buffer-file-name preset))
          (should (looking-at-p "foo"))
          (kill-buffer))
        (pyagentd-test-attach)
        (should-not (string-search "Not connected" pyagentd-status--line))
        (should-error (pyagentd-visit-cause) :type 'user-error)))))

(ert-deftest pyagentd-header-says-that-commands-are-not-confined ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :preset "programmer" :unconfined "")
    (should-not (string-search "not confined" pyagentd-status--line))
    (pyagentd-test-attach :preset "programmer"
                          :unconfined "Commands are not confined.")
    (should (string-search "not confined" pyagentd-status--line))))

(ert-deftest pyagentd-header-names-who-answers-once ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach :preset "programmer"
                          :status '(:state idle :agent "build"))
    (should (string-search "[build]" pyagentd-status--line))
    (should-not (string-search "programmer" pyagentd-status--line))))

(provide 'header-test)
;;; header-test.el ends here

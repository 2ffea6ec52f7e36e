;;; lease-test.el --- Tests of several Emacsen on one session -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)

(defconst lease-test--answer
  "(:seq 0 :editor %s :free nil :status (:state \"idle\") %s)"
  "Answer to attach.")

(defconst lease-test--settings
  ":model \"main\" :settings (:model \"main\" :backend \"Claude\" :tools (\"Read\") :temperature 0.5) :own-settings (:model \"main\" :backend \"Claude\" :tools (\"Read\") :temperature 0.5)"
  "What the daemon says about settings.")

(defun lease-test--answer (editor &optional more)
  "Let attach answer that we are the EDITOR or not, t or nil, and MORE."
  (pyagentd-test-tell 'fake-answer
                      (format lease-test--answer editor (or more ""))
                      'attach))

(defmacro lease-test--with-session (text editor &rest body)
  "Evaluate BODY in a session with TEXT that we edit if EDITOR, t or nil."
  (declare (indent 2) (debug t))
  `(pyagentd-test-with-daemon
     (lease-test--answer ,editor)
     (let ((file (pyagentd-test-file root ,text)))
       (with-current-buffer (find-file-noselect file)
         (pyagentd-test-await (eq pyagentd-attach-state t))
         (goto-char (point-max))
         ,@body))))

(defun lease-test--write (file text)
  "Write TEXT into FILE as another program does, at another time."
  (let ((coding-system-for-write 'utf-8-unix))
    (write-region text nil file nil 'quiet))
  (set-file-times file (time-add nil 5)))

(defun lease-test--changed (text)
  "Tell that another client has saved TEXT."
  (pyagentd-test-events
   `(changed 0 (:sha256 ,(secure-hash 'sha256 (encode-coding-string text 'utf-8))
                :mtime 1.0))))

(defun lease-test--modes ()
  "Return the modes with which this buffer has attached."
  (mapcar (lambda (call) (plist-get call :mode)) (pyagentd-test-calls 'attach)))

;;;; The text of the file

(defun lease-test--reread (old new)
  "Let a buffer with OLD take over a file with NEW; return the buffer's text."
  (pyagentd-test-with-session old
    (lease-test--write file new)
    (pyagentd-reread-apply (pyagentd-reread-load file))
    (should-not (buffer-modified-p))
    (should (verify-visited-file-modtime))
    (should (equal pyagentd-session-sha256
                   (secure-hash 'sha256 (encode-coding-string new 'utf-8))))
    (buffer-string)))

(ert-deftest pyagentd-reread-takes-any-text-over ()
  (pcase-dolist (`(,old ,new)
                 `(("abc" "abc") ("abc" "") ("x" "abc") ("abc" "aXc")
                   ("aaaa" "aa") ("aa" "aaaa") ("a👋b" "a👍👋b") ("Abc" "abc")
                   (,(make-string 200000 ?x)
                    ,(concat (make-string 99999 ?x) "y"
                             (make-string 100001 ?x)))))
    (should (equal (substring-no-properties (lease-test--reread old new))
                   (if (equal new "") "### " new)))))

(ert-deftest pyagentd-reread-takes-roles-and-variables-over ()
  (pyagentd-test-with-session "### Hi\n\nYes"
    (lease-test--write file "### Hi\n\nYes

<!-- Local Variables: -->
<!-- gptel-model: other -->
<!-- gptel--bounds: ((response (9 12))) -->
<!-- End: -->\n")
    (pyagentd-reread-apply (pyagentd-reread-load file))
    (should (eq (get-text-property 9 'gptel) 'response))
    (should-not (get-text-property 8 'gptel))
    (should (eq gptel-model 'other))))

(ert-deftest pyagentd-reread-leaves-point-mark-and-windows ()
  (pyagentd-test-with-session "one two three four"
    (save-window-excursion
      (switch-to-buffer (current-buffer))
      (goto-char 15)                    ; before \"four\"
      (push-mark 5 t)
      (let ((other (split-window)))
        (set-window-point other (point-max))
        (lease-test--write file "one 2 three four")
        (pyagentd-reread-apply (pyagentd-reread-load file))
        (should (looking-at "four"))
        (should (= (mark t) 5))
        (should (= (window-point other) (point-max)))))))

;;;; Following

(ert-deftest pyagentd-lease-follower-shows-what-another-one-saved ()
  (lease-test--with-session "### Hi" nil
    (should buffer-read-only)
    (lease-test--write file "### Hello")
    (lease-test--changed "### Hello")
    (pyagentd-test-await (equal (buffer-string) "### Hello"))
    (should-not (buffer-modified-p))
    (should (verify-visited-file-modtime))
    (should (equal (lease-test--modes) '(edit view)))))

(ert-deftest pyagentd-lease-what-is-shown-already-only-gets-its-time ()
  (lease-test--with-session "### Hi" nil
    (lease-test--write file "### Hi")
    (should-not (verify-visited-file-modtime))
    (lease-test--changed "### Hi")
    (should (verify-visited-file-modtime))
    (should (= 1 (length (pyagentd-test-calls 'attach))))))

(ert-deftest pyagentd-lease-unsaved-text-goes-into-what-another-program-saved ()
  (lease-test--with-session "### Hi" t
    (let ((pyagentd-autosave-enabled nil))
      (insert " there")
      (lease-test--write file "### Hello")
      (lease-test--changed "### Hello")
      (pyagentd-test-await (equal (buffer-string) "### Hello there"))
      (should (= (point) (point-max)))
      (should (buffer-modified-p))
      (should (verify-visited-file-modtime))
      (should (equal (pyagentd-test-content file) "### Hello"))
      (save-buffer)                     ; without a question
      (should (equal (pyagentd-test-content file) "### Hello there")))))

(ert-deftest pyagentd-lease-save-takes-over-what-another-program-saved ()
  (lease-test--with-session "### Hi" t
    (insert " there")
    (lease-test--write file "### Hello")
    (should-not (pyagentd-session-save))
    (should-not pyagentd-session-trouble)
    (pyagentd-test-await (equal (pyagentd-test-content file)
                                "### Hello there"))
    (should (equal (buffer-string) "### Hello there"))))

(ert-deftest pyagentd-lease-a-key-in-a-file-that-was-changed-asks-nothing ()
  (lease-test--with-session "### Hi" t
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (lease-test--write file "### Hello")
    (cl-letf (((symbol-function 'ask-user-about-supersession-threat)
               (lambda (&rest _) (ert-fail "It asks")))
              ((symbol-function 'yes-or-no-p)
               (lambda (&rest _) (ert-fail "It asks"))))
      (run-hooks 'pre-command-hook)
      (insert " there")
      ;; Until the daemon has answered nothing is overwritten.
      (should-error (save-buffer) :type 'user-error))
    (should-not (pyagentd-session-save))
    (should (equal (pyagentd-test-content file) "### Hello"))
    (lease-test--answer t)
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)
    (pyagentd-test-await (equal (pyagentd-test-content file)
                                "### Hello there"))))

(ert-deftest pyagentd-lease-a-changed-file-is-not-overwritten-without-a-daemon ()
  (lease-test--with-session "### Hi" t
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (lease-test--write file "### Hello")
    (run-hooks 'pre-command-hook)
    (insert " there")
    (pyagentd-rpc-disconnect)
    (pyagentd-test-await (not (verify-visited-file-modtime)))
    (should-not (pyagentd-session-save))
    (should (string-match-p "changed on disk" pyagentd-session-trouble))
    (should (equal (pyagentd-test-content file) "### Hello"))))

(ert-deftest pyagentd-lease-settings-outlive-a-file-that-was-changed ()
  (pyagentd-test-with-daemon
    (lease-test--answer t lease-test--settings)
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (setq-local gptel-model 'other)
        (lease-test--write file "### Hello")
        (lease-test--changed "### Hello")
        (pyagentd-test-await (equal (buffer-string) "### Hello"))
        (should (eq gptel-model 'other))
        (save-buffer)
        (should (string-match-p "gptel-model: other"
                                (pyagentd-test-content file)))))))

;;;; Giving way

(ert-deftest pyagentd-lease-editor-that-is-asked-saves-and-gives-way ()
  (lease-test--with-session "### Hi" t
    (insert " there")
    (pyagentd-test-events '(lease 0 (:state "wanted" :by "emacs 30")))
    (pyagentd-test-await (pyagentd-test-calls 'release))
    (should (equal (pyagentd-test-content file) "### Hi there"))
    (should (pyagentd-test-calls 'saved))
    (should buffer-read-only)
    (should (string-match-p "read only" pyagentd-status--line))))

(ert-deftest pyagentd-lease-editor-gives-way-when-the-text-is-whole ()
  (lease-test--with-session "### Hi" t
    (pyagentd-test-events '(insert 0 "Ye" response)
                          '(lease 0 (:state "wanted" :by "emacs 30")))
    (should-not (pyagentd-test-calls 'release))
    (pyagentd-test-events '(insert 5 "s" response))
    (pyagentd-test-await (pyagentd-test-calls 'release))
    (should (eql 5 (plist-get (car (pyagentd-test-calls 'saved)) :seq)))))

(defun lease-test--kept ()
  "Return the buffer with text that is not saved, or nil."
  (seq-find (lambda (buffer)
              (string-match-p "not saved" (buffer-name buffer)))
            (buffer-list)))

(ert-deftest pyagentd-lease-lost-while-asleep-writes-nothing ()
  (lease-test--with-session "### Hi" t
    (insert " there")
    (lease-test--write file "### Hi")
    (lease-test--answer nil)
    (pyagentd-test-events '(lease 0 (:state "wanted" :by "emacs 30"))
                          '(lease 0 (:state "lost" :by "emacs 30")))
    (pyagentd-test-await (equal (buffer-string) "### Hi"))
    (should-not (pyagentd-test-calls 'release))
    (should buffer-read-only)
    (should-not (pyagentd-session-save))
    (set-buffer-modified-p t)
    (should-error (save-buffer) :type 'user-error)
    (set-buffer-modified-p nil)
    (should (equal (pyagentd-test-content file) "### Hi"))
    (with-current-buffer (lease-test--kept)
      (should (equal (buffer-string) "### Hi there"))
      (should (and (buffer-modified-p) buffer-offer-save))
      (set-buffer-modified-p nil)
      (kill-buffer))))

;;;; Taking

(ert-deftest pyagentd-lease-follower-edits-when-nobody-else-does ()
  (lease-test--with-session "### Hi" nil
    (lease-test--answer t)
    (pyagentd-test-events '(lease 0 (:state "free")))
    (pyagentd-test-await (not buffer-read-only))
    (should-not pyagentd-session-viewing)
    (should (equal (lease-test--modes) '(edit edit)))))

(ert-deftest pyagentd-lease-take-over-reads-what-the-other-one-left ()
  (lease-test--with-session "### Hi" nil
    (lease-test--write file "### Hi you")
    (pyagentd-test-tell 'fake-answer "(:editor t)" 'lease)
    (lease-test--answer t)
    (pyagentd-take-over)
    (pyagentd-test-settle)
    (should (equal (buffer-string) "### Hi you"))
    (should-not buffer-read-only)
    (should (equal (pyagentd-test-calls 'lease)
                   `((:branch ,pyagentd--branch-dir :take t))))
    (should-not (pyagentd-test-calls 'release))))

(ert-deftest pyagentd-lease-take-over-without-an-answer-is-given-up ()
  (lease-test--with-session "### Hi" nil
    (pyagentd-test-tell 'fake-silent "" 'lease)
    (let ((pyagentd-lease--longest 0.05))
      (should-not (pyagentd-take-over)))
    (pyagentd-test-await (pyagentd-test-calls 'release))
    (should buffer-read-only)))

(ert-deftest pyagentd-lease-of-a-buffer-that-is-killed-is-given-back ()
  (lease-test--with-session "### Hi" nil
    (pyagentd-test-tell 'fake-answer "(:editor t)" 'lease)
    (let ((place `(:branch ,pyagentd--branch-dir)))
      (pyagentd-take-over)
      (kill-buffer)
      (pyagentd-test-await (pyagentd-test-calls 'release))
      (should (equal (pyagentd-test-calls 'release) (list place))))))

(ert-deftest pyagentd-lease-unsaved-text-comes-back-with-the-right-to-write ()
  (lease-test--with-session "### Hi" t
    (insert " from me")
    (lease-test--write file "### Hi\n\nYes\n\n### ")
    (lease-test--answer nil)
    (pyagentd-test-events '(lease 0 (:state "lost" :by "emacs 30")))
    (pyagentd-test-await (lease-test--kept))
    (should (equal (buffer-string) "### Hi\n\nYes\n\n### "))
    (should buffer-read-only)
    (pyagentd-test-tell 'fake-answer "(:editor t)" 'lease)
    (lease-test--answer t)
    (pyagentd-take-over)
    (pyagentd-test-settle)
    (should (equal (buffer-string) "### Hi\n\nYes\n\n###  from me"))
    (should-not buffer-read-only)
    (should-not (lease-test--kept))))

;;;; What attach says

(ert-deftest pyagentd-attach-recovered-roles-are-put-on-the-text-and-saved ()
  (pyagentd-test-with-daemon
    (lease-test--answer
     t "(:roles)")
    (pyagentd-test-tell
     'fake-answer "(:seq 0 :editor t :roles ((9 12 response) (13 16 (tool \"t1\"))) :notes (\"The roles were recovered\"))"
     'attach)
    (let ((file (pyagentd-test-file root "### Hi\n\nYes\nX\nY"))
          (pyagentd-autosave-idle-time 0.05))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (should (eq (get-text-property 9 'gptel) 'response))
        (should (equal (get-text-property 13 'gptel) '(tool . "t1")))
        (should (member "The roles were recovered" pyagentd-attach--said))
        (should (with-current-buffer "*Messages*"
                  (save-excursion
                    (goto-char (point-max))
                    (search-backward "The roles were recovered" nil t))))
        (pyagentd-test-await (not (buffer-modified-p)))
        (should (string-match-p "gptel--bounds: ((tool (13 16 \"t1\")) (response (9 12)))"
                                (pyagentd-test-content file)))))))

(ert-deftest pyagentd-attach-notes-are-shown-once ()
  (lease-test--with-session "### Hi" t
    (let ((shown 0))
      (cl-letf (((symbol-function 'message)
                 (lambda (&rest args)
                   (when (string-match-p "torn" (apply #'format args))
                     (cl-incf shown)))))
        (pyagentd-attach--say '("torn"))
        (pyagentd-attach--say '("torn"))
        (should (= shown 1))))))

(ert-deftest pyagentd-viewing-refusal-says-why-and-is-tried-again-by-send ()
  (pyagentd-test-with-daemon
    (lease-test--answer nil ":read-only \"/m/messages.jsonl: Read-only file system\"")
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (goto-char (point-max))
        (should buffer-read-only)
        (should (string-match-p "Read-only file system" pyagentd-status--line))
        (should (string-match-p "Read-only file system"
                                (pyagentd-test-said (pyagentd-send))))
        (should-not (pyagentd-test-calls 'send))
        (lease-test--answer t)
        (pyagentd-send)
        (should-not buffer-read-only)
        (pyagentd-test-await (pyagentd-test-calls 'send))))))

(ert-deftest pyagentd-attached-once-the-daemon-agrees ()
  (lease-test--with-session "### Hi" t
    (pyagentd-test-tell 'fake-answer "(:reread t)" 'attach)
    (setq pyagentd-attach-state nil)
    (run-at-time 0.3 nil (lambda () (lease-test--answer t)))
    (pyagentd-test-attach-now)
    (should (eq pyagentd-attach-state t))
    (should (< 2 (length (pyagentd-test-calls 'attach)) 12))))

(ert-deftest pyagentd-lease-recovery-is-shown-as-a-diff ()
  (lease-test--with-session "### Hi" t
    (should (string-match-p "No roles"
                            (pyagentd-test-said (pyagentd-show-recovery))))
    (pyagentd-test-tell 'fake-answer "(:diff \"--- roles\\n+model (1-3): Yes\")"
                        'recovery)
    (save-window-excursion
      (pyagentd-show-recovery)
      (pyagentd-test-await (get-buffer-window "*recovery: demo-20260205143052*"))
      (set-buffer (window-buffer))
      (should (derived-mode-p 'diff-mode))
      (should (string-match-p "^\\+model (1-3): Yes$" (buffer-string)))
      (kill-buffer))))

;;;; Settings

(ert-deftest pyagentd-settings-an-override-is-saved-sent-and-starred ()
  (pyagentd-test-with-daemon
    (lease-test--answer t lease-test--settings)
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (should (string-match-p "main\\'" (string-trim pyagentd-status--line)))
        (save-buffer)
        (setq-local gptel-model 'other)
        (should (pyagentd-settings-unsaved-p))
        (setq pyagentd-attach-state nil) ; a reconnect leaves it alone
        (pyagentd-test-attach-now)
        (should (eq gptel-model 'other))
        (goto-char (point-max))
        (pyagentd-send)
        (should (string-match-p "gptel-model: other" (pyagentd-test-content file)))
        (should (string-match-p "other\\*" pyagentd-status--line))))))

(ert-deftest pyagentd-settings-can-be-kept-and-dropped ()
  (pyagentd-test-with-daemon
    (lease-test--answer t lease-test--settings)
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (setq-local gptel-model 'other)
        (pyagentd-test-tell
         'fake-answer "(:kept (model) :settings (:model \"other\") :own-settings (:model \"other\" :backend \"Claude\" :tools (\"Read\") :temperature 0.5))"
         'keep-settings)
        (pyagentd-keep-settings)
        (pyagentd-test-settle)
        (should (string-match-p "gptel-model: other" (pyagentd-test-content file)))
        (should-not (string-match-p "\\*" pyagentd-status--line))
        (setq-local gptel-temperature 0.9)
        (pyagentd-test-tell 'fake-answer
                            (format "(:dropped (temperature) %s)" lease-test--settings)
                            'drop-settings)
        (pyagentd-drop-settings)
        (pyagentd-test-settle)
        (should (equal gptel-temperature 0.5))
        (should (string-match-p "gptel-temperature: 0.5" (pyagentd-test-content file)))))))

;;; lease-test.el ends here

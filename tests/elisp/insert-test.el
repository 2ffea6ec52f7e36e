;;; insert-test.el --- Tests of streaming -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defmacro insert-test--with-answer (prompt &rest body)
  "Evaluate BODY in a session with PROMPT whose answer begins at its end."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-session ,prompt
     (pyagentd-test-attach)
     (pyagentd-insert-start (point-max))
     (goto-char (point-min))
     ,@body))

(ert-deftest pyagentd-insert-streams-text-with-its-roles ()
  "SPEC 000 String responses dual-duty behavior."
  (insert-test--with-answer "### Hi"
    (pyagentd-test-events
     '(insert 1 "\n\n" nil) '(insert 2 "Hel" response) '(insert 3 "lo" response)
     '(insert 3 "\n\n" nil)
     '(insert 4 "``` tool (Bash)" ignore) '(insert 4 "\n(:name \"Bash\")" (tool "t1"))
     '(insert 4 "\n\n7" (tool "t1")) '(insert 4 "\n```\n" ignore)
     '(insert 5 "\n\n### " nil))
    (should (equal (buffer-string)
                   "### Hi\n\nHello\n\n``` tool (Bash)\n(:name \"Bash\")\n\n7\n```\n\n\n### "))
    (should (equal (pyagentd-block-bounds)
                   '((tool (31 49 "t1")) (ignore (16 31) (49 54))
                     (response (9 14)))))))

(ert-deftest pyagentd-insert-saves-what-streamed ()
  "SPEC 000 Auto-save triggers after each response."
  (insert-test--with-answer "### Hi"
    (let ((pyagentd-autosave-idle-time 0.02))
      (pyagentd-test-events '(insert 1 "\n\n" nil) '(insert 2 "Yo 👋" response))
      (should-not (buffer-modified-p))  ; the daemon writes it
      (set-buffer-modified-p t)
      (pyagentd-session-save)           ; there is none
      (should (equal (pyagentd-test-content file)
                     (concat "### Hi\n\nYo 👋\n\n<!-- Local Variables: -->\n"
                             "<!-- gptel--bounds: ((response (9 13))) -->\n"
                             "<!-- End: -->\n"))))))

(ert-deftest pyagentd-insert-text-typed-at-the-marker-stays-below ()
  (insert-test--with-answer "### Hi"
    (pyagentd-test-stream "one")
    (goto-char (point-max))
    (let ((last-command-event ?x)) (self-insert-command 3))
    (pyagentd-test-stream "two")
    (should (equal (buffer-string) "### Hionetwoxxx"))
    (should (equal (pyagentd-block-bounds) '((response (7 13)))))))

;;;; Typed ahead

(defun insert-test--type (keys)
  "Type KEYS in this buffer, as a person does."
  (save-window-excursion
    (set-window-buffer (selected-window) (current-buffer))
    (execute-kbd-macro (kbd keys))))

(defmacro insert-test--while-answering (answer &rest body)
  "Evaluate BODY at the end of a session in which ANSWER has arrived so far."
  (declare (indent 1) (debug t))
  `(insert-test--with-answer "### Hi"
     (buffer-enable-undo)
     (pyagentd-status-set '(:state busy))
     (pyagentd-test-stream (concat "\n\n" ,answer))
     (goto-char (point-max))
     ,@body))

(defun insert-test--end-run ()
  "End the run of this buffer."
  (pyagentd-test-events '(insert 9 "\n\n### " nil)
                        '(run 9 (:phase finished :reason done))))

(ert-deftest pyagentd-insert-what-is-typed-ahead-has-a-line-of-its-own ()
  (insert-test--while-answering "one"
    (insert-test--type "a SPC x")
    (should (equal (buffer-string) "### Hi\n\none\n\n\n### a x"))
    (should (equal (pyagentd-edit-base) "### Hi\n\none"))
    (pyagentd-test-stream " two")
    (insert-test--type "TAB SPC y")
    (should (equal (buffer-string) "### Hi\n\none two\n\n\n### a x y"))
    (should (equal (pyagentd-block-bounds) '((response (7 16)))))
    (insert-test--end-run)
    (should (equal (buffer-string) "### Hi\n\none two\n\n### a x y"))))

(ert-deftest pyagentd-insert-keys-on-lines-leave-the-answer-alone ()
  (insert-test--while-answering "one"
    (insert-test--type "z z C-a C-k")
    (should (equal (buffer-string) "### Hi\n\none\n\n\n### "))
    (insert-test--type "w TAB M-q")
    (should (equal (buffer-string) "### Hi\n\none\n\n\n### w"))
    (insert-test--end-run)
    (should (equal (buffer-string) "### Hi\n\none\n\n### w"))))

(ert-deftest pyagentd-insert-keys-on-lines-where-nothing-is-typed-leave-the-answer-alone ()
  (insert-test--while-answering "one"
    (insert-test--type "TAB C-a")
    (should (eobp))
    (should (equal (buffer-string) "### Hi\n\none"))
    (pyagentd-status-set '(:state idle))
    (insert-test--type "C-a")
    (should (looking-at-p "one"))))

(ert-deftest pyagentd-insert-filling-leaves-the-answer-alone ()
  (insert-test--while-answering (concat (make-string 60 ?m) " nnnnnnn")
    (setq-local fill-column 70)
    (auto-fill-mode)
    (insert-test--type "SPC typed SPC ahead SPC text")
    (pyagentd-test-stream " and on")
    (insert-test--type "SPC here M-q")
    (insert-test--end-run)
    (should (equal (buffer-string)
                   (concat "### Hi\n\n" (make-string 60 ?m) " nnnnnnn and on"
                           "\n\n###  typed ahead text here")))))

(ert-deftest pyagentd-insert-what-is-typed-ahead-is-undone-with-its-line ()
  (insert-test--while-answering "one"
    (insert-test--type "a")
    (pyagentd-test-stream " two")
    (undo-boundary)
    (let ((last-command nil))
      (undo)
      (should (equal (buffer-string) "### Hi\n\none two"))
      (undo-boundary)
      (setq last-command nil)
      (undo)
      (should (equal (buffer-string) "### Hi\n\none two\n\n\n### a")))
    (insert-test--end-run)
    (should (equal (buffer-string) "### Hi\n\none two\n\n### a"))))

(ert-deftest pyagentd-insert-draft-of-several-steps-is-undone-without-its-line ()
  (insert-test--while-answering "one"
    (insert-test--type "a b")
    (undo-boundary)
    (pyagentd-test-stream " two")
    (insert-test--type "C-a c DEL")
    (undo-boundary)
    (insert-test--type "C-e SPC x")
    (undo-boundary)
    (insert-test--end-run)
    (should (equal (buffer-string) "### Hi\n\none two\n\n### ab x"))
    (let ((last-command nil) (text nil))
      (dotimes (_ 4)
        (undo-boundary)
        (undo)
        (setq last-command 'undo)
        (push (substring-no-properties (buffer-string) 15) text))
      (should (equal (nreverse text)
                     '("\n\n### ab" "\n\n### cab" "\n\n### ab" "\n\n### ")))
      (undo-boundary)
      (setq last-command nil)
      (undo 4)
      (should (equal (buffer-string) "### Hi\n\none two\n\n### ab x")))))

(ert-deftest pyagentd-insert-a-draft-is-parted-from-the-prompt-of-another ()
  (insert-test--with-answer "### "
    (save-excursion (goto-char (point-max)) (insert "draft"))
    (pyagentd-test-events '(prompt 1 "Yo" (:position 5 :insert "Yo"))
                          '(run 1 (:phase started)))
    (pyagentd-test-stream "\n\none")
    (should (equal (buffer-string) "### Yo\n\none\n\n\n### draft"))
    (insert-test--end-run)
    (should (equal (buffer-string) "### Yo\n\none\n\n### draft"))))

(ert-deftest pyagentd-insert-point-follows-only-at-the-end ()
  (insert-test--with-answer "### Hi"
    (goto-char 3)
    (pyagentd-test-stream "one")
    (should (= (point) 3))
    (goto-char (point-max))
    (pyagentd-test-stream "two")
    (should (eobp))
    (save-excursion (insert "draft"))
    (pyagentd-test-stream "three")
    (should (looking-at-p "threedraft"))))

(ert-deftest pyagentd-insert-windows-follow-only-at-the-end ()
  (insert-test--with-answer "### Hi"
    (delete-other-windows)
    (let ((reading (selected-window))
          (following (split-window)))
      (dolist (window (list reading following))
        (set-window-buffer window (current-buffer)))
      (set-window-point reading 2)
      (set-window-point following (point-max))
      (pyagentd-test-stream "one" "two")
      (should (= (window-point reading) 2))
      (should (= (window-point following) (point-max)))
      (delete-other-windows))))

(ert-deftest pyagentd-insert-a-window-that-comes-back-is-at-the-end ()
  (insert-test--with-answer "### Hi"
    (let ((buffer (current-buffer)))
      (delete-other-windows)
      (switch-to-buffer buffer)
      (goto-char (point-max))
      (switch-to-buffer (get-buffer-create " *elsewhere*"))
      (with-current-buffer buffer
        (pyagentd-test-stream "one" "two"))
      (switch-to-buffer buffer)
      (should (eobp)))))

(ert-deftest pyagentd-insert-goes-on-while-narrowed ()
  (insert-test--with-answer "### Hi there"
    (pyagentd-insert-start (point-max))
    (narrow-to-region 5 7)
    (pyagentd-test-stream "one" "two")
    (should (equal (buffer-string) "Hi"))
    (widen)
    (should (equal (buffer-string) "### Hi thereonetwo"))))

(ert-deftest pyagentd-insert-shows-in-indirect-buffers ()
  (insert-test--with-answer "### Hi"
    (let ((clone (clone-indirect-buffer "clone" nil)) (base (current-buffer)))
      (unwind-protect
          (progn
            (with-current-buffer clone (goto-char (point-max)))
            (pyagentd-test-stream "one" "two")
            (with-current-buffer clone
              (should (equal (buffer-string) "### Hionetwo"))
              (should (eobp))))
        (kill-buffer clone))
      (should (eq (pyagentd-place-buffer pyagentd--branch-dir) base))
      (pyagentd-test-stream "three")
      (should (string-suffix-p "three" (buffer-string))))))

(ert-deftest pyagentd-insert-edits-in-an-indirect-buffer-are-saved ()
  (insert-test--with-answer "### Hi"
    (let ((clone (clone-indirect-buffer "clone" nil))
          (pyagentd-autosave-idle-time 0.02))
      (unwind-protect
          (progn (with-current-buffer clone
                   (goto-char (point-max))
                   (insert "!"))
                 (pyagentd-test-await (not (buffer-modified-p)))
                 (should (equal (pyagentd-test-content file) "### Hi!")))
        (kill-buffer clone)))))

(ert-deftest pyagentd-insert-answer-is-one-step-of-undo ()
  (insert-test--with-answer "### Hi"
    (buffer-enable-undo)
    (apply #'pyagentd-test-stream (make-list 100 "word "))
    (should (< (length buffer-undo-list) 5))
    (undo-boundary)
    (setq last-command nil)
    (undo)
    (should (equal (buffer-string) "### Hi"))))

(ert-deftest pyagentd-insert-answer-in-progress-is-not-undone ()
  (insert-test--with-answer "### Hi"
    (buffer-enable-undo)
    (pyagentd-status-set '(:state busy))
    (pyagentd-test-stream "\n\none" " two")
    (goto-char (point-max))
    (insert " draft")
    (undo-boundary)
    (let ((last-command nil))
      (undo)
      (should (equal (buffer-string) "### Hi\n\none two"))
      (undo-boundary)
      (setq last-command 'undo)
      (should-error (undo) :type 'user-error)
      (should (eobp))
      (pyagentd-test-stream " three")
      (should (equal (buffer-string) "### Hi\n\none two three"))
      (pyagentd-status-set '(:state idle))
      (undo-boundary)
      (setq last-command nil)
      (undo)                            ; the undoing of the draft
      (undo-boundary)
      (setq last-command 'undo)
      (undo 2)
      (should (equal (buffer-string) "### Hi")))))

(ert-deftest pyagentd-insert-undo-takes-the-draft-first ()
  (insert-test--with-answer "### Hi"
    (pyagentd-test-stream "one")
    (undo-boundary)
    (goto-char (point-max))
    (insert "draft")
    (undo-boundary)
    (goto-char 5)
    (insert "Oh ")
    (undo-boundary)
    (pyagentd-test-stream "two" "three")
    (goto-char (point-max))
    (delete-char -2)
    (undo-boundary)
    (pyagentd-test-stream "four")
    (should (equal (buffer-string) "### Oh Hionetwothreefourdra"))
    (let ((last-command nil) (text nil))
      (dotimes (_ 4)
        (undo)
        (setq last-command 'undo)
        (undo-boundary)
        (push (substring-no-properties (buffer-string)) text))
      (should (equal (nreverse text)
                     '("### Oh Hionetwothreefourdraft"
                       "### Hionetwothreefourdraft"
                       "### Hionetwothreefour"
                       "### Hi"))))))

(ert-deftest pyagentd-insert-never-asks-about-a-changed-file ()
  (insert-test--with-answer "### Hi"
    (write-region "other" nil file nil 'quiet)
    (set-file-times file (time-add nil 10))
    (cl-letf (((symbol-function 'userlock--ask-user-about-supersession-threat)
               (lambda (&rest _) (ert-fail "Asked"))))
      (pyagentd-test-stream "one"))
    (should (equal (buffer-string) "### Hione"))))

(ert-deftest pyagentd-insert-runs-no-change-hooks ()
  (insert-test--with-answer "### Hi"
    (let ((calls 0))
      (add-hook 'after-change-functions (lambda (&rest _) (cl-incf calls)) nil t)
      (add-hook 'before-change-functions (lambda (&rest _) (cl-incf calls)) nil t)
      (pyagentd-test-stream "one" "two")
      (should (= calls 0))
      (should (text-property-any 7 (point-max) 'fontified t)))))

(ert-deftest pyagentd-insert-fontifies-when-the-stream-pauses ()
  (insert-test--with-answer "### Hi"
    (let (flushed)
      (cl-letf (((symbol-function 'font-lock-flush)
                 (lambda (beg end) (push (list beg end) flushed))))
        (pyagentd-test-stream "one" "two")
        (should-not flushed)
        (pyagentd-test-await flushed)
        (should (equal flushed '((7 13))))
        (should-not pyagentd-insert--dirty)))))

(ert-deftest pyagentd-insert-lets-a-long-answer-be-fontified-where-it-is-shown ()
  (insert-test--with-answer "### Hi"
    (let ((flushed nil))
      (cl-letf (((symbol-function 'font-lock-flush)
                 (lambda (beg end) (push (cons beg end) flushed))))
        (pyagentd-test-stream (make-string 20000 ?x) (make-string 20000 ?y))
        (should-not flushed)
        (pyagentd-test-await (not pyagentd-insert--dirty))
        (should (equal flushed '((7 . 40007))))))))

(ert-deftest pyagentd-insert-keeps-a-buffer-as-modified-as-it-was ()
  (insert-test--with-answer "### Hi"
    (set-buffer-modified-p nil)
    (pyagentd-test-stream "one")
    (should (equal (buffer-string) "### Hione"))
    (should-not (buffer-modified-p))
    (should-not pyagentd-autosave--timer)))

(defconst insert-test--whole
  '(font-lock-flush font-lock-ensure font-lock-fontify-region jit-lock-fontify-now
    syntax-propertize syntax-ppss syntax-ppss-flush-cache pyagentd-syntax-forget
    buffer-string write-region pyagentd-block-bounds garbage-collect)
  "What takes the longer the longer a conversation is.")

(ert-deftest pyagentd-insert-into-a-large-conversation-is-quick ()
  (insert-test--with-answer (concat "### Hi\n\n" (make-string 1000000 ?x))
    (pyagentd-insert-start (point-max))
    (buffer-enable-undo)
    (setq buffer-undo-list nil)
    (let* ((called nil)
           ;; Not what is done beside it with a small buffer, as a log is.
           (note (lambda (function)
                   (lambda (&rest _)
                     (when (> (buffer-size) 500000)
                       (push function called)))))
           (timers (length timer-list))
           (overlays (length (overlays-in (point-min) (point-max)))))
      (unwind-protect
          (progn
            (dolist (function insert-test--whole)
              (advice-add function :before (funcall note function)
                          '((name . insert-test))))
            ;; Where that takes long there is a pause, in which it flushes
            ;; and the buffer is saved.
            (cl-letf (((symbol-function 'pyagentd-insert--paused) #'ignore)
                      ((symbol-function 'pyagentd-autosave--on-timer)
                       #'ignore))
              (pyagentd-test-report
               "insertion in 1 MB: %.3f ms"
               (car (benchmark-run 1 (apply #'pyagentd-test-stream
                                            (make-list 1000 "word ")))))))
        (dolist (function insert-test--whole)
          (advice-remove function 'insert-test)))
      (should (= (buffer-size) 1005008))
      (should-not called)
      (should (= 1 (seq-count #'consp buffer-undo-list)))
      (should (<= (- (length timer-list) timers) 3))
      (should (= overlays
                 (length (overlays-in (point-min) (point-max))))))))

;;; insert-test.el ends here

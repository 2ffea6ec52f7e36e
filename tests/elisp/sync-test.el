;;; sync-test.el --- Tests of a text that several edit -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'ert-x)
(require 'test-helper)
(require 'keys)
(require 'changes)
(require 'pyagentd-history)

(defconst sync-test--answer
  "(:seq 0 :revision 10 :saved t :status (:state \"idle\") %s)"
  "Answer to attach.")

(defconst sync-test--settings
  ":model \"main\" :settings (:model \"main\" :backend \"Claude\" :tools (\"Read\") :temperature 0.5) :own-settings (:model \"main\" :backend \"Claude\" :tools (\"Read\") :temperature 0.5)"
  "What the daemon says about settings.")

(defun sync-test--answer (&optional more)
  "Let attach answer that this text is revision 10, and MORE."
  (pyagentd-test-tell 'fake-answer (format sync-test--answer (or more ""))
                      'attach))

(defmacro sync-test--with-session (text &rest body)
  "Evaluate BODY in a session with TEXT that is attached."
  (declare (indent 1) (debug t))
  `(pyagentd-test-with-daemon
     (sync-test--answer)
     (pyagentd-test-tell 'fake-answer "(:revision 11)" 'edit-document)
     (let ((file (pyagentd-test-file root ,text)))
       (with-current-buffer (find-file-noselect file)
         (pyagentd-test-await (eq pyagentd-attach-state t))
         (goto-char (point-max))
         ,@body))))

(defun sync-test--acknowledge (revision)
  "Tell that what was sent has its place, which led to REVISION."
  (pyagentd-test-events
   `(edit 0 (:revision ,revision :id ,(car pyagentd-edit--sent) :own t))))

(defun sync-test--sent ()
  "Return the hunks that were sent, the first edit first."
  (mapcar (lambda (call) (plist-get call :hunks))
          (pyagentd-test-calls 'edit-document)))

(defun sync-test--write (file text)
  "Write TEXT into FILE as another program does, at another time."
  (let ((coding-system-for-write 'utf-8-unix))
    (write-region text nil file nil 'quiet))
  (set-file-times file (time-add nil 5)))

;;;; What is typed is sent

(ert-deftest pyagentd-sync-a-change-that-was-taken-back-does-not-stay-unsaved ()
  (let ((pyagentd-autosave-idle-time 0.05))
    (sync-test--with-session "### Hi"
      (pyagentd-test-tell 'fake-answer "(:revision 10 :mtime 5)" 'checkpoint)
      (insert "x") (delete-char -1)
      (should (buffer-modified-p))
      (pyagentd-test-await (not (buffer-modified-p)))
      (should-not (sync-test--sent)))))

(ert-deftest pyagentd-sync-what-is-typed-is-sent-after-a-pause-as-one-edit ()
  (let ((pyagentd-autosave-idle-time 0.05))
    (sync-test--with-session "### Hi"
      (insert " th") (insert "ere")
      (goto-char 5) (delete-char 2) (insert "Hello")
      (should (buffer-modified-p))
      (pyagentd-test-await (pyagentd-test-calls 'edit-document))
      (should (equal (sync-test--sent) '(((5 7 "Hello there" nil)))))
      (should (eql 10 (plist-get (car (pyagentd-test-calls 'edit-document))
                                 :revision)))
      (should (equal (pyagentd-test-content file) "### Hi")))))

(ert-deftest pyagentd-sync-one-edit-is-on-its-way-at-a-time ()
  (sync-test--with-session "### Hi"
    (insert " there")
    (pyagentd-session-save)
    (insert ", you")
    (pyagentd-session-save)
    (should (= 1 (length (sync-test--sent))))
    (sync-test--acknowledge 11)
    (pyagentd-session-save)
    (should (equal (cadr (sync-test--sent)) '((13 13 ", you" nil))))
    (sync-test--acknowledge 12)
    (should (buffer-modified-p))
    (pyagentd-test-events '(persisted 0 (:revision 11 :mtime 1000)))
    (should (buffer-modified-p))
    (pyagentd-test-events '(persisted 0 (:revision 12 :mtime 2000)))
    (should-not (buffer-modified-p))
    (should (verify-visited-file-modtime))))

(ert-deftest pyagentd-sync-what-is-typed-is-sent-though-noting-it-was-quit ()
  (sync-test--with-session "### Hi"
    (insert " there")
    (let ((quit (lambda (&rest _) (setq quit-flag t)))) ; C-g comes just then
      (advice-add 'pyagentd-edit-compose :before quit)
      (condition-case nil (pyagentd-session-save) (quit))
      (advice-remove 'pyagentd-edit-compose quit))
    (pyagentd-session-save)
    (should (equal (sync-test--sent) '(((7 7 " there" nil)))))))

(ert-deftest pyagentd-sync-roles-of-what-is-typed-go-with-it ()
  (sync-test--with-session "### Hi\n\nYes, I do\n\n### "
    (with-silent-modifications (put-text-property 9 18 'gptel 'response))
    (goto-char 12)
    (insert "!!")
    (pyagentd-session-save)
    (should (equal (sync-test--sent) '(((12 12 "!!" ((1 3 response)))))))))

(ert-deftest pyagentd-sync-a-save-is-over-when-the-daemon-says-so ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-answer "(:revision 11 :mtime 5)" 'checkpoint)
    (insert " there")
    (save-buffer)
    (should (buffer-modified-p))
    (sync-test--acknowledge 11)
    (pyagentd-test-await (not (buffer-modified-p)))
    (should (pyagentd-test-calls 'checkpoint))
    (should (equal (pyagentd-test-content file) "### Hi"))))

;; A call to the daemon has a limit; what is longer goes in parts.
(ert-deftest pyagentd-sync-a-long-edit-is-sent-in-parts-before-it-is-saved ()
  (let ((pyagentd-edit--longest 4))
    (sync-test--with-session "### Hi, old"
      (pyagentd-test-tell 'fake-answer "(:revision 13 :mtime 5)" 'checkpoint)
      (goto-char 5)
      (delete-char 2)
      (insert "Hello you") (forward-char 2) (delete-char 3) (insert "new")
      (save-buffer)
      (should (equal (sync-test--sent) '(((5 7 "Hell" nil)))))
      (sync-test--acknowledge 11)
      (pyagentd-test-await (= 2 (length (sync-test--sent))))
      (should (equal (cadr (sync-test--sent)) '((9 9 "o yo" nil))))
      (should-not (pyagentd-test-calls 'checkpoint))
      (sync-test--acknowledge 12)
      (pyagentd-test-await (= 3 (length (sync-test--sent))))
      (should (equal (caddr (sync-test--sent))
                     '((13 13 "u" nil) (15 18 "new" nil))))
      (should-not (pyagentd-test-calls 'checkpoint))
      (sync-test--acknowledge 13)
      (pyagentd-test-await (not (buffer-modified-p)))
      (should (pyagentd-test-calls 'checkpoint)))))

(ert-deftest pyagentd-sync-a-branch-begins-when-the-daemon-has-the-text ()
  (sync-test--with-session "### Hi"
    (insert " there")
    (pyagentd-session-save)             ; this edit is on its way
    (insert ", you")
    (pyagentd-branch "x" 'include 1)
    (should (= 1 (length (sync-test--sent))))
    (should-not (pyagentd-test-calls 'branch-points))
    (sync-test--acknowledge 11)
    (pyagentd-test-await (= 2 (length (sync-test--sent))))
    (should (equal (cadr (sync-test--sent)) '((13 13 ", you" nil))))
    (sync-test--acknowledge 12)
    (pyagentd-test-await (pyagentd-test-calls 'branch-points))))

(ert-deftest pyagentd-sync-a-save-of-what-was-refused-is-no-save ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-answer "(:revision 10 :mtime 5)" 'checkpoint)
    (pyagentd-test-tell 'fake-error "(stale \"Too much changed\")" 'edit-document)
    (insert " there")
    (ert-with-message-capture said
      (let ((save-silently nil))
        (save-buffer)
        (pyagentd-test-await (cdr (pyagentd-test-calls 'edit-document)))
        (pyagentd-test-await (cdr (pyagentd-test-calls 'checkpoint)))
        (should-not (string-search "Wrote" said))
        (pyagentd-test-tell 'fake-answer "(:revision 11)" 'edit-document)
        (pyagentd-test-await (string-search "Wrote" said))))
    (sync-test--acknowledge 11)))

(ert-deftest pyagentd-sync-without-a-daemon-emacs-writes ()
  (let ((pyagentd-autosave-idle-time 0.05))
    (sync-test--with-session "### Hi"
      (insert " there")
      (pyagentd-rpc-disconnect)
      (pyagentd-test-await (equal (pyagentd-test-content file) "### Hi there"))
      (should-not (buffer-modified-p))
      (should-not (pyagentd-edit-pending-p)))))

(ert-deftest pyagentd-sync-a-changed-file-is-not-overwritten-without-a-daemon ()
  (sync-test--with-session "### Hi"
    (insert " there")
    (pyagentd-rpc-disconnect)
    (pyagentd-test-await (null pyagentd-attach-state))
    (sync-test--write file "### Hello")
    (set-visited-file-modtime '(0 1))
    (should-not (pyagentd-session-save))
    (should (string-match-p "changed on disk" pyagentd-session-trouble))
    (should (equal (pyagentd-test-content file) "### Hello"))))

(ert-deftest pyagentd-sync-a-key-in-a-file-that-was-changed-asks-nothing ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-events '(persisted 0 (:revision 10 :mtime 1000)))
    (sync-test--write file "### Hello")
    (cl-letf (((symbol-function 'ask-user-about-supersession-threat)
               (lambda (&rest _) (ert-fail "It asks")))
              ((symbol-function 'yes-or-no-p)
               (lambda (&rest _) (ert-fail "It asks"))))
      (run-hooks 'pre-command-hook)
      (run-hooks 'pre-command-hook)
      (insert " there"))
    (pyagentd-test-await (pyagentd-test-calls 'checkpoint))
    (should (= 1 (length (pyagentd-test-calls 'checkpoint))))))

;;;; What others do

(ert-deftest pyagentd-sync-edits-of-others-go-around-what-is-typed ()
  (sync-test--with-session "### Hi"
    (insert " there")
    (pyagentd-session-save)
    (insert ", you")
    (pyagentd-test-events
     '(edit 0 (:revision 11 :hunks ((5 7 "Hello" nil) (7 7 "!" ((1 2 ignore)))))))
    (should (equal (substring-no-properties (buffer-string))
                   "### Hello! there, you"))
    (should (eq (get-text-property 10 'gptel) 'ignore))
    (should (= (point) (point-max)))
    (sync-test--acknowledge 12)
    (pyagentd-session-save)
    (should (equal (cadr (sync-test--sent)) '((17 17 ", you" nil))))
    (should (eql 12 (plist-get (cadr (pyagentd-test-calls 'edit-document))
                               :revision)))))

(ert-deftest pyagentd-sync-what-a-run-says-stays-above-what-is-typed-at-it ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-events '(fired 0 (:id "x" :position 7))
                          '(insert 1 "\n\nYes" response))
    (goto-char (point-max))
    (insert "draft")
    (pyagentd-session-save)
    (pyagentd-test-events '(insert 2 ", I do" response))
    (should (equal (substring-no-properties (buffer-string))
                   "### Hi\n\nYes, I dodraft"))
    (should (equal (sync-test--sent) '(((12 12 "draft" nil)))))
    (should (= pyagentd-edit-revision (+ 10 5 6)))
    (sync-test--acknowledge 30)
    (pyagentd-test-events '(insert 3 "." response))
    (should (equal (substring-no-properties (buffer-string))
                   "### Hi\n\nYes, I do.draft"))))

(ert-deftest pyagentd-sync-an-edit-of-another-can-be-undone-around ()
  (sync-test--with-session "### Hi"
    (buffer-enable-undo)
    (insert " there")
    (undo-boundary)
    (pyagentd-test-events '(edit 0 (:revision 11 :hunks ((1 1 "Above\n" nil)))))
    (should (equal (buffer-string) "Above\n### Hi there"))
    (should-not (eq buffer-undo-list t))))

(defun sync-test--undo-all ()
  "Undo all that undo knows of."
  (let ((list buffer-undo-list))
    (while list (setq list (primitive-undo 1 list)))))

(ert-deftest pyagentd-sync-undo-takes-back-what-was-typed-here ()
  (sync-test--with-session "### Hi"
    (buffer-enable-undo)
    (insert " there")
    (undo-boundary)
    (pyagentd-test-events '(edit 0 (:revision 11 :hunks ((1 1 "Above\n" nil)
                                                         (5 7 "Yo" nil)))))
    (should (equal (buffer-string) "Above\n### Yo there"))
    (let ((last-command 'other)) (undo))
    (should (equal (buffer-string) "Above\n### Yo"))
    (undo-boundary)
    (let ((last-command 'other)) (undo)) ; redo
    (should (equal (buffer-string) "Above\n### Yo there"))))

(ert-deftest pyagentd-sync-undo-of-all-leaves-what-others-wrote ()
  (random "undo")
  (dotimes (_ 300)
    (with-temp-buffer
      ;; Each character that is not typed here is there once.
      (let ((theirs (number-sequence #x4e00 #x4e10)) (new #x5000))
        (apply #'insert theirs)
        (buffer-enable-undo)
        (dotimes (_ 12)
          (let* ((beg (1+ (random (1+ (buffer-size)))))
                 (end (min (point-max) (+ beg (random 4)))))
            (goto-char beg)
            (if (= 0 (random 2))
                (progn (delete-region beg end)
                       (insert (substring "abcdefgh" 0 (random 8)))
                       (undo-boundary))
              (when (pyagentd-edit--earlier beg end 1)
                (let ((gone (string-to-list (buffer-substring beg end))))
                  (setq new (1+ new)
                        theirs (cons new (seq-difference theirs gone)))
                  (pyagentd-edit--unrecorded beg end 1
                    (lambda () (goto-char end) (insert new)
                      (delete-region beg end))))))))
        (sync-test--undo-all)
        (should (equal (sort (string-to-list (buffer-string)) #'<)
                       (sort theirs #'<)))))))

(ert-deftest pyagentd-sync-words-that-met-others-are-kept ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-answer "(:revision 12 :met (\"Ho\"))" 'edit-document)
    (goto-char 5) (delete-char 2) (insert "Ho")
    (pyagentd-session-save)
    (let ((kept (pyagentd-test-await
                 (seq-find (lambda (buffer)
                             (string-match-p "written at once" (buffer-name buffer)))
                           (buffer-list)))))
      (with-current-buffer kept
        (should (equal (buffer-string) "Ho"))
        (set-buffer-modified-p nil)
        (kill-buffer)))))

;;;; A daemon that does not know the text

(ert-deftest pyagentd-sync-a-text-that-is-not-known-is-sent-and-merged ()
  (sync-test--with-session "### Hi"
    (insert " there")
    (pyagentd-session-save)             ; nobody knows whether it came there
    (insert ", you")
    (pyagentd-test-tell 'fake-answer "(:unknown t)" 'attach)
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)
    (pyagentd-test-await (seq-find (lambda (call) (plist-get call :text))
                                   (pyagentd-test-calls 'attach)))
    (should (equal (plist-get (seq-find (lambda (call) (plist-get call :text))
                                        (pyagentd-test-calls 'attach))
                              :text)
                   "### Hi"))
    ;; It is asked again until it knows.  What both have is there once.
    (sync-test--answer ":edits ((nil ((1 1 \"New\\n\" nil) (7 7 \" there\" nil))))")
    (pyagentd-test-await (eq pyagentd-attach-state t))
    (should (equal (buffer-string) "New\n### Hi there, you"))
    (pyagentd-session-save)
    (should (equal (car (last (sync-test--sent))) '((17 17 ", you" nil))))))

(ert-deftest pyagentd-sync-an-edit-that-came-before-the-connection-broke-is-not-sent-again ()
  (sync-test--with-session "### Hi"
    (insert " there")
    (pyagentd-session-save)
    (let ((id (car pyagentd-edit--sent)))
      (sync-test--answer
       (format ":edits ((%S ((7 7 \" there\" nil))) (nil ((1 1 \"X\" nil))))" id)))
    (setq pyagentd-attach-state nil)
    (pyagentd-attach)
    (pyagentd-test-await (eq pyagentd-attach-state t))
    (should (equal (buffer-string) "X### Hi there"))
    (should-not pyagentd-edit--sent)
    (should-not (pyagentd-edit-pending-p))))

(ert-deftest pyagentd-sync-what-no-file-holds-is-sent-as-one-character-each ()
  (sync-test--with-session "### Hi"
    (insert #xd800 "x" (string-to-multibyte "\377\303\244") "y")
    (pyagentd-sync-flush)
    (should (equal (sync-test--sent)
                   `(((7 7 ,(concat "\ufffdx" (make-string 3 #xfffd) "y") nil)))))))

;;;; What edits are to each other

(defun sync-test--random-edit (text mark)
  "Return an edit of TEXT that writes MARK."
  (let ((pos 1) (size (length text)) edit)
    (dotimes (_ (random 4))
      (let* ((beg (+ pos (random 5))) (end (+ beg (random 4))))
        (when (<= end (1+ size))
          (push (list beg end (make-string (random 3) mark)
                      (substring text (1- beg) (1- end)))
                edit)
          (setq pos (1+ end)))))
    (pyagentd-edit--normal (nreverse edit))))

(ert-deftest pyagentd-edit-both-orders-lead-to-the-same-text ()
  (random "edits")
  (dotimes (_ 3000)
    (let* ((text "abcdefghijklmnopqrst")
           (one (sync-test--random-edit text ?X))
           (other (sync-test--random-edit text ?Y))
           (after (pyagentd-edit--apply-to-string text one))
           (then (sync-test--random-edit after ?Z))
           (both (pyagentd-edit-compose one then))
           (end (pyagentd-edit--apply-to-string after then)))
      (should (equal (pyagentd-edit--apply-to-string
                      after (pyagentd-edit-transform other one))
                     (pyagentd-edit--apply-to-string
                      (pyagentd-edit--apply-to-string text other)
                      (pyagentd-edit-transform one other t))))
      (should (equal end (pyagentd-edit--apply-to-string text both)))
      (should (equal text (pyagentd-edit--apply-to-string
                           end (pyagentd-edit-inverse both)))))))

(ert-deftest pyagentd-edit-whatever-is-typed-is-recorded ()
  (random "typing")
  (dotimes (_ 60)
    (pyagentd-test-with-session "### One two three four five six seven"
      (let ((before (buffer-string)))
        (dotimes (_ (random 12))
          (goto-char (1+ (random (buffer-size))))
          (pcase (random 4)
            (0 (insert "abc"))
            (1 (delete-region (point) (min (point-max) (+ 4 (point)))))
            (2 (upcase-word 1))
            (3 (transpose-regions 1 3 (max 4 (/ (buffer-size) 2)) (buffer-size)))))
        (pyagentd-edit--settle)
        (should (string= (pyagentd-edit--apply-to-string
                          before pyagentd-edit--pending)
                         (buffer-string)))))))

(ert-deftest pyagentd-edit-what-no-hook-is-told-of-is-recorded ()
  (random "unannounced")
  (dotimes (_ 30)
    (pyagentd-test-with-session "### One two three\n\nfour\n\n### five six seven"
      (setq pyagentd-autosave-enabled nil)
      (buffer-enable-undo)
      (pyagentd-test-attach :marker 24)
      (let ((document (buffer-string)))
        (dotimes (_ 12)
          (changes-make)
          (pcase (random 4)
            (0 (let ((place pyagentd-edit--place))
                 (setq document (pyagentd-edit--apply-to-string
                                 document `((,place ,place "said "))))
                 (pyagentd-test-stream "said ")))
            (1 (let ((hunks '((3 5 "other " nil) (9 9 "other " nil))))
                 (setq document (pyagentd-edit--apply-to-string document hunks))
                 (pyagentd-test-events `(edit 0 (:revision 99 :hunks ,hunks)))))))
        (pyagentd-edit--settle)
        (should (string= (pyagentd-edit--apply-to-string
                          document pyagentd-edit--pending)
                         (buffer-string)))))))

(ert-deftest pyagentd-edit-a-change-that-others-shorten-is-recorded ()
  (pyagentd-test-with-session "### One two three\n\nfour\n\n### five"
    (let ((before (buffer-string))
          (shorten (lambda (&rest _) (delete-region 5 9))))
      (font-lock-ensure)
      (add-hook 'after-change-functions shorten nil t)
      (delete-region (- (point-max) 4) (point-max))
      (remove-hook 'after-change-functions shorten t)
      (should (memq 'pyagentd-session--after-change after-change-functions))
      (pyagentd-edit--settle)
      (should (string= (pyagentd-edit--apply-to-string
                        before pyagentd-edit--pending)
                       (buffer-string))))))

(ert-deftest pyagentd-edit-what-two-fields-mirror-is-two-hunks ()
  (pyagentd-test-with-session "### One two\n\nfour\n\n### "
    (let ((mirror (lambda (&rest _)
                    (save-excursion (goto-char 5) (insert "X")))))
      (add-hook 'after-change-functions mirror nil t)
      (goto-char (point-max))
      (insert "X")
      (should (pyagentd-edit-pending-p))
      (should (equal (mapcar (lambda (hunk)
                               (list (car hunk)
                                     (substring-no-properties (nth 2 hunk))))
                             pyagentd-edit--pending)
                     '((5 "X") (24 "X")))))))

(ert-deftest pyagentd-edit-what-no-hook-is-told-of-is-sent-after-the-command ()
  (pyagentd-test-with-daemon
    (sync-test--answer)
    (let ((file (pyagentd-test-file root "### Hi"))
          (pyagentd-autosave-idle-time 0.01))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-attach-now)
        (with-silent-modifications
          (goto-char (point-max))
          (insert " there"))
        (run-hooks 'post-command-hook)
        (pyagentd-test-await (pyagentd-test-sent-p " there"))))))

(ert-deftest pyagentd-edit-many-changes-become-one-hunk ()
  (pyagentd-test-with-session (apply #'concat (make-list 300 "ab "))
    (let ((before (buffer-string)))
      (goto-char (point-min))
      (while (search-forward "a" nil t) (replace-match "xx"))
      (pyagentd-edit--settle)
      (should (length< pyagentd-edit--pending 202))
      (should (string= (pyagentd-edit--apply-to-string
                        before pyagentd-edit--pending)
                       (buffer-string))))))

;;;; What attach says

(ert-deftest pyagentd-attach-recovered-roles-are-put-on-the-text ()
  (pyagentd-test-with-daemon
    (sync-test--answer ":roles ((9 12 response) (13 16 (tool \"t1\"))) :notes (\"The roles were recovered\")")
    (let ((file (pyagentd-test-file root "### Hi\n\nYes\nX\nY")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (should (eq (get-text-property 9 'gptel) 'response))
        (should (equal (get-text-property 13 'gptel) '(tool . "t1")))
        (should (member "The roles were recovered" pyagentd-attach--said))
        (should-not (buffer-modified-p))))))

(ert-deftest pyagentd-attach-notes-are-shown-once ()
  (sync-test--with-session "### Hi"
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
    (sync-test--answer ":read-only \"/m/messages.jsonl: Read-only file system\"")
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (goto-char (point-max))
        (should buffer-read-only)
        (should (string-match-p "Read-only file system" pyagentd-status--line))
        (should (string-match-p "Read-only file system"
                                (pyagentd-test-said (pyagentd-send))))
        (should-not (pyagentd-test-calls 'send))
        (sync-test--answer)
        (pyagentd-send)
        (should-not buffer-read-only)
        (pyagentd-test-await (pyagentd-test-calls 'send))))))

(ert-deftest pyagentd-viewing-refusal-ends-once-the-disk-works-again ()
  (pyagentd-test-with-daemon
    (sync-test--answer ":read-only \"/m/messages.jsonl: No space left on device\"")
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await buffer-read-only)
        (sync-test--answer)
        (pyagentd-test-await (not buffer-read-only))
        (should-not pyagentd-viewing-refusal)))))

(ert-deftest pyagentd-sync-recovery-is-shown-as-a-diff ()
  (sync-test--with-session "### Hi"
    (should (string-match-p "No roles"
                            (pyagentd-test-said (pyagentd-sync--show-recovery))))
    (pyagentd-test-tell 'fake-answer "\"--- roles\\n+model (1-3): Yes\""
                        'recovery)
    (save-window-excursion
      (pyagentd-sync--show-recovery)
      (pyagentd-test-await (get-buffer-window "*recovery: demo-20260205143052*"))
      (set-buffer (window-buffer))
      (should (derived-mode-p 'diff-mode))
      (should (string-match-p "^\\+model (1-3): Yes$" (buffer-string)))
      (kill-buffer))))

;;;; Settings

(ert-deftest pyagentd-settings-an-override-is-sent-and-starred ()
  (pyagentd-test-with-daemon
    (sync-test--answer sync-test--settings)
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (should (string-match-p "main\\'" (string-trim pyagentd-status--line)))
        (setq-local gptel-model 'other)
        (should (pyagentd-settings-unsaved-p))
        (setq pyagentd-attach-state nil) ; a reconnect leaves it alone
        (pyagentd-test-attach-now)
        (should (eq gptel-model 'other))
        (should (equal (plist-get (plist-get (car (pyagentd-test-calls 'edit-document))
                                             :settings)
                                  :model)
                       "other"))
        (should-not (pyagentd-settings-unsaved-p))
        (should (string-match-p "other\\*" pyagentd-status--line))))))

(ert-deftest pyagentd-settings-can-be-kept-and-dropped ()
  (pyagentd-test-with-daemon
    (sync-test--answer sync-test--settings)
    (let ((file (pyagentd-test-file root "### Hi")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-await (eq pyagentd-attach-state t))
        (setq-local gptel-model 'other)
        (pyagentd-test-tell
         'fake-answer "(:kept (model) :settings (:model \"other\") :own-settings (:model \"other\" :backend \"Claude\" :tools (\"Read\") :temperature 0.5))"
         'keep-settings)
        (pyagentd-sync--keep-settings)
        (pyagentd-test-settle)
        (should-not (string-match-p "\\*" pyagentd-status--line))
        (setq-local gptel-temperature 0.9)
        (pyagentd-test-tell 'fake-answer
                            (format "(:dropped (temperature) %s)" sync-test--settings)
                            'drop-settings)
        (pyagentd-sync--drop-settings)
        (pyagentd-test-settle)
        (should (equal gptel-temperature 0.5))))))

;;;; A daemon that answers late

(ert-deftest pyagentd-sync-a-late-reply-is-not-about-a-text-that-emacs-wrote-since ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell 'fake-silent "" 'attach)
    (with-current-buffer (find-file-noselect (pyagentd-test-file root "### Hi"))
      (pyagentd-test-await (pyagentd-test-calls 'attach))
      (pyagentd-attached--give-up)
      (goto-char (point-max))
      (insert " there")
      (should (pyagentd-session-save))
      (sync-test--answer)
      (pyagentd-test-tell 'fake-raw (format "(return %d %s)" (caar pyagentd-rpc--pending)
                                            (format sync-test--answer "")))
      (pyagentd-test-await (eq pyagentd-attach-state t))
      (should (= 2 (length (pyagentd-test-calls 'attach)))))))

;;;; A buffer that is killed, and the end of Emacs

(defun sync-test--kept (file)
  "Return the name of what is kept beside FILE, if it is there."
  (car (directory-files (file-name-directory file) t "\\`#session\\.md#\\'")))

(ert-deftest pyagentd-sync-what-a-killed-buffer-sent-is-kept-until-it-is-written ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-silent "" 'checkpoint)
    (insert " there")
    (pyagentd-session-save)             ; this edit is on its way ...
    (insert ", you")
    (kill-buffer)
    (pyagentd-test-await (pyagentd-test-calls 'checkpoint))
    (should (= 2 (length (sync-test--sent)))) ; ... and this one after it
    (should (equal (pyagentd-test-content (sync-test--kept file))
                   "### Hi there, you"))))

(ert-deftest pyagentd-sync-what-is-on-its-way-from-a-killed-buffer-is-kept ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-silent "" 'checkpoint)
    (insert " there")
    (pyagentd-session-save)
    (kill-buffer)
    (pyagentd-test-await (pyagentd-test-calls 'checkpoint))
    (should (= 1 (length (sync-test--sent))))
    (should (equal (pyagentd-test-content (sync-test--kept file))
                   "### Hi there"))))

(ert-deftest pyagentd-sync-the-parts-of-a-killed-buffer-are-kept-until-they-are-written ()
  (let ((pyagentd-edit--longest 4))
    (sync-test--with-session "### Hi"
      (pyagentd-test-tell 'fake-silent "" 'checkpoint)
      (insert " there, you")
      (cl-letf (((symbol-function 'pyagentd-rpc-wait)
                 (lambda (&rest _) (error "Emacs waits"))))
        (kill-buffer))
      (pyagentd-test-await (pyagentd-test-calls 'checkpoint))
      (should (equal (sync-test--sent)
                     '(((7 7 " the" nil)) ((11 11 "re, you" nil)))))
      (should (equal (pyagentd-test-content (sync-test--kept file))
                     "### Hi there, you")))))

(ert-deftest pyagentd-sync-a-buffer-is-left-whole-whatever-a-function-does ()
  (sync-test--with-session "### Hi"
    (let ((copy pyagentd-edit--copy) (debug-on-error nil))
      (add-hook 'pyagentd-session-leave-hook (lambda () (error "Oh")) nil t)
      (kill-buffer)
      (should-not (buffer-live-p copy)))
    (pyagentd-test-await (pyagentd-test-calls 'detach))))

(ert-deftest pyagentd-sync-nothing-is-kept-of-what-was-written ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-answer "(:revision 11 :mtime 1000)" 'checkpoint)
    (insert " there")
    (kill-buffer)
    (pyagentd-test-await (pyagentd-test-calls 'checkpoint))
    (pyagentd-test-await (not (sync-test--kept file)))
    (should (equal (sync-test--sent) '(((7 7 " there" nil)))))))

(ert-deftest pyagentd-sync-what-the-daemon-refused-of-a-killed-buffer-is-kept ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-answer "(:revision 11 :mtime 1000)" 'checkpoint)
    (pyagentd-test-tell 'fake-error "(stale \"Too much changed\")" 'edit-document)
    (insert " there")
    (ert-with-message-capture said
      (kill-buffer)
      (pyagentd-test-await (string-search "did not take it" said)))
    (should (equal (pyagentd-test-content (sync-test--kept file))
                   "### Hi there"))))

(ert-deftest pyagentd-sync-what-the-daemon-refused-after-a-revert-is-in-a-buffer ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-error "(stale \"Too much changed\")" 'edit-document)
    (insert " there")
    (revert-buffer)
    (should (equal (buffer-string) "### Hi"))
    (let ((kept (pyagentd-test-await
                 (seq-find (lambda (buffer)
                             (string-match-p ": not taken\\*" (buffer-name buffer)))
                           (buffer-list)))))
      (should (equal " there" (with-current-buffer kept (buffer-string))))
      (kill-buffer kept))))

(defmacro sync-test--with-text-typed-while-attaching (&rest body)
  "Evaluate BODY where \" there\" was typed behind \"### Hi\" before an answer."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (pyagentd-test-tell 'fake-silent "" 'attach)
     (let ((file (pyagentd-test-file root "### Hi")))
       (with-current-buffer (find-file-noselect file)
         (pyagentd-test-await (eq pyagentd-attach-state 'pending))
         (goto-char (point-max))
         (insert " there")
         ,@body))))

(ert-deftest pyagentd-sync-settings-that-are-refused-are-not-saved ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell
     'fake-answer "(:seq 0 :revision 10 :saved t :settings (:model \"m1\"))" 'attach)
    (with-current-buffer (find-file-noselect (pyagentd-test-file root "### hello"))
      (pyagentd-test-attach-now)
      (pyagentd-test-tell 'fake-error "refused" 'edit-document)
      (pyagentd-block-set 'gptel-model 'm2)
      (should (pyagentd-settings-unsaved-p))
      (pyagentd-sync-flush)
      (pyagentd-test-await (and (pyagentd-test-calls 'edit-document)
                                (pyagentd-settings-unsaved-p)))
      (set-buffer-modified-p nil))))

(ert-deftest pyagentd-sync-a-buffer-that-is-killed-while-it-attaches-is-saved ()
  (sync-test--with-text-typed-while-attaching
    (kill-buffer)
    (should (string-prefix-p "### Hi there" (pyagentd-test-content file)))))

(ert-deftest pyagentd-sync-the-daemon-alone-writes-once-it-was-asked ()
  (sync-test--with-text-typed-while-attaching
    (pyagentd-attached-then #'ignore)
    (pyagentd-test-await (= 2 (length (pyagentd-test-calls 'attach))))
    (should (equal (pyagentd-test-content file) "### Hi"))))

(ert-deftest pyagentd-sync-at-its-end-emacs-keeps-what-is-not-written ()
  (sync-test--with-session "### Hi"
    (pyagentd-test-tell 'fake-answer "(:revision 11 :mtime 1000)" 'checkpoint)
    (insert " there")
    (pyagentd-connect--before-exit)
    (should (= 1 (length (sync-test--sent))))
    (should-not (sync-test--kept file))
    (pyagentd-test-tell 'fake-silent "" 'checkpoint)
    (insert ", you")
    (pyagentd-connect--before-exit)
    (should (equal (pyagentd-test-content (sync-test--kept file))
                   "### Hi there, you"))))

(ert-deftest pyagentd-sync-many-changes-leave-the-answer-its-place ()
  (pyagentd-test-with-session
      (concat "### p " (mapconcat #'identity (make-list 198 "ab") " ") "\n\n")
    (setq pyagentd-autosave-enabled nil)
    (let ((place (point-max)))
      (pyagentd-test-attach :marker place)
      (pyagentd-status-set '(:state busy))
      (pyagentd-test-stream "One two ")
      (goto-char (point-max))
      (insert "my ab draft, ab ab")
      (pyagentd-edit-acknowledged (plist-get (pyagentd-edit-take) :id) 20)
      (goto-char (point-min))
      (while (re-search-forward "\\_<ab\\_>" nil t)
        (replace-match "xyz" t t))
      (should (pyagentd-edit-pending-p))
      (pyagentd-test-events '(insert 2 "THREE " response))
      (goto-char (point-min))
      (should (search-forward "One two THREE " nil t))
      (should (search-forward "my xyz draft, xyz xyz" nil t))
      (should (eobp)))
    (set-buffer-modified-p nil)))

(ert-deftest pyagentd-sync-a-buffer-that-is-killed-while-it-attaches-is-kept ()
  (pyagentd-test-with-daemon
    (pyagentd-test-tell
     'fake-answer "(:seq 0 :revision 10 :saved t :mtime 1700000000000000000)" 'attach)
    (let ((file (pyagentd-test-file root "### hello")))
      (with-current-buffer (find-file-noselect file)
        (pyagentd-test-attach-now)
        (pyagentd-test-await (pyagentd-attached-p))
        (pyagentd-test-tell 'fake-silent "" 'attach)
        (pyagentd-test-events '(resync 0))
        (goto-char (point-max))
        (insert " PRECIOUS")
        (let ((pyagentd-autosave-enabled t))
          (pyagentd-session--before-kill))
        (set-buffer-modified-p nil)
        (kill-buffer))
      (should (seq-some
               (lambda (each) (string-search "PRECIOUS" (pyagentd-test-content each)))
               (directory-files (file-name-directory file) t "session"))))))

(provide 'sync-test)
;;; sync-test.el ends here

;;; ask-test.el --- Tests of asks -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Which asks are open, where each is shown, and what the notice says.

;;; Code:

(require 'asks)
(require 'pyagentd-form)

(defun ask-test--plist (id &rest more)
  "Return an ask with ID for a command, with MORE keys first."
  (pyagentd-test-asked
   (append more (list :id id :tool "Bash" :kind 'tool :detail "ls" :reason "confirm"
                      :choices '(allow session always deny)
                      :remember '("tool:Bash:ls") :commands '("ls")
                      :input "{\"command\":\"ls\"}"))))

(ert-deftest pyagentd-ask-shows-what-is-asked-and-the-keys ()
  (pyagentd-test-with-ask
    (let ((text (pyagentd-test-notice)))
      (dolist (part '("Allow Bash rm -rf build?" "-old" "+new" "C-c C-c"
                      "y once" "d" "k abort the run"))
        (should (string-search part text)))
      (should-not (string-search "not in scope" text)))
    (should (= (overlay-start pyagentd-ask-notice--overlay) (point-max)))
    (should-not (buffer-modified-p))))

;; Jansson, which reads JSON for Emacs before 30, refuses the first three.
(ert-deftest pyagentd-ask-shows-arguments-whatever-json-they-are ()
  (dolist (input '("{\"command\":\"a\\u0000b\"}"
                   "{\"a\\u0000b\":1,\"command\":\"ls\"}"
                   "{\"command\":\"ls\",\"n\":123456789012345678901234567890}"
                   "{\"command\":\"ls\",\"\":{\"a\":[null,false,{},[],1e308]}}"
                   "{\":command\":1,\"t\":true,\"nil\":0,\"command\":\"ä\"}"))
    (let* ((ask (list :id "q" :input input))
           (arguments (pyagentd-ask-arguments ask)))
      (should (stringp (cdr (assoc "command" arguments))))
      (should (equal arguments
                     (pyagentd-ask-json
                      #'json-read-from-string
                      (pyagentd-ask-json #'json-encode arguments)))))))

(ert-deftest pyagentd-ask-answered-elsewhere-disappears ()
  (pyagentd-test-with-ask
    (pyagentd-test-events '(answered 2 (:id "q1" :decision "allow")))
    (should-not pyagentd-ask-notice--overlay)
    (should-error (pyagentd-allow-once) :type 'user-error)))

(ert-deftest pyagentd-ask-of-an-agent-shows-in-the-uppermost-open-buffer ()
  (pyagentd-test-with-ask
    (dolist (branch (list (expand-file-name "agents/x/agents/y"
                                            pyagentd--branch-dir)
                          "/elsewhere/branches/main"))
      (pyagentd-ask-add (ask-test--plist branch :branch branch)))
    (pcase-let ((`(,_ ,ours ,other) (pyagentd-ask-open)))
      (should (equal (pyagentd-ask-buffers ours) (list (current-buffer))))
      (should-not (pyagentd-ask-buffers other)))))

(ert-deftest pyagentd-ask-of-an-agent-shows-in-its-own-buffer-too ()
  (pyagentd-test-with-ask
    (let* ((agent "explorer-20260205143052-look-around")
           (dir (expand-file-name (concat "agents/" agent) pyagentd--branch-dir))
           (root (current-buffer))
           (own (find-file-noselect
                 (pyagentd-test-file
                  root "### Look" (expand-file-name "session.md" dir)))))
      (pyagentd-test-events
       (list 'ask 2 (ask-test--plist "q2" :branch dir :agent agent
                                     :who "explorer (look-around)")))
      (should (string-search "1 of 2" (pyagentd-test-notice)))
      (should (string-search "also  explorer (look-around): Bash ls"
                             (pyagentd-test-notice)))
      (with-current-buffer own
        (should (string-search "explorer (look-around) › Allow Bash ls?"
                               (pyagentd-test-notice)))
        (should-not (string-search "rm -rf" (pyagentd-test-notice)))
        (should (string-search "k abort the run" (pyagentd-test-notice))))
      (should (string-search "2 asks: Bash, explorer" pyagentd-status--line)))))

(ert-deftest pyagentd-ask-twice-is-shown-once ()
  (pyagentd-test-with-ask
    (pyagentd-test-events (list 'ask 1 pyagentd-test-ask))
    (should (= 1 (length (pyagentd-ask-open))))
    (should (= 1 (length (pyagentd-test-overlays))))))

(ert-deftest pyagentd-ask-daemon-tells-which-are-open ()
  (pyagentd-test-with-ask
    (pyagentd-ask-receive-all (list (ask-test--plist "q2")))
    (should (equal '("q2") (mapcar #'pyagentd-ask-id (pyagentd-ask-open))))
    (pyagentd-ask-receive-all nil)
    (should-not (pyagentd-ask-open))
    (should-not pyagentd-ask-notice--overlay)))

(ert-deftest pyagentd-ask-open-before-its-buffer-is-shown-when-it-attaches ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-ask-add (ask-test--plist "q9") pyagentd--branch-dir)
    (unwind-protect
        (progn (pyagentd-test-attach)
               (should (string-search "Bash ls" (pyagentd-test-notice))))
      (pyagentd-ask-clear))))

;; A click on a key runs its command where the notice is.
(ert-deftest pyagentd-ask-keys-can-be-clicked ()
  (pyagentd-test-with-ask
    (let* ((text (overlay-get pyagentd-ask-notice--overlay 'before-string))
           (place (+ 7 (string-search "Deny   n" text))))
      (should (eq (get-text-property place 'pyagentd-command text)
                  'pyagentd-deny))
      (should (eq (lookup-key (get-text-property place 'keymap text) [mouse-1])
                  'pyagentd-status--click)))))

(ert-deftest pyagentd-ask-notice-fits-a-window-that-became-smaller ()
  (pyagentd-test-with-ask
    (pyagentd-test-events
     (list 'ask 2 (ask-test--plist
                   "q2" :preview (mapconcat #'number-to-string
                                            (number-sequence 1 20) "\n"))))
    (pyagentd-ask--next)
    (should (string-search "\n  20\n" (pyagentd-test-notice)))
    (save-window-excursion
      (delete-other-windows)
      (switch-to-buffer (current-buffer))
      (split-window nil 12)
      (pyagentd-ask-notice--resized (selected-window))
      (pyagentd-test-await
       (string-search "more lines" (pyagentd-test-notice))))))

(defun ask-test--text (diff path)
  "Return the text of DIFF, a change of the file PATH, as a notice has it."
  (pyagentd-ask-text (list :path path
                           :lines `((:parts ((:text ,diff :face "diff" :more 0)))))))

(defun ask-test--faces (text part)
  "Return the faces of PART in TEXT, a list."
  (ensure-list (get-text-property (string-search part text) 'face text)))

(ert-deftest pyagentd-ask-diff-has-the-colours-of-the-mode-of-its-file ()
  (let* ((diff "--- /p/a.el\n+++ /p/a.el\n@@ -1,3 +1,3 @@\n ;; kept\n
-(defvar old (f \"text\"))\n+(defvar new 1)\n\\ No newline at end of file")
         (text (ask-test--text diff "/p/a.el")))
    (should (equal (substring-no-properties text) (concat diff "\n")))
    (pcase-dolist (`(,part . ,faces)
                   '(("kept" font-lock-comment-face diff-context)
                     ("defvar old" font-lock-keyword-face diff-removed)
                     ("\"text\"" font-lock-string-face diff-removed)
                     ("+(defvar" diff-indicator-added)
                     ("new" font-lock-variable-name-face diff-added)
                     ("@@" diff-hunk-header)))
      (should (equal (ask-test--faces text part) faces)))))

(ert-deftest pyagentd-ask-last-line-before-more-is-coloured-to-the-edge ()
  (let ((text (pyagentd-ask-text-part
               '(:text "--- a\n+++ a\n@@ @@\n+one\n+two" :face "diff" :more 3))))
    (should (string-search "+two\n  … 3 more lines" text))
    (should (equal (ask-test--faces text "\n  …") '(diff-added)))))

(ert-deftest pyagentd-ask-diff-of-an-unknown-file-has-those-of-a-diff ()
  (dolist (path '(nil "/p/a.unknown"))
    (let ((text (ask-test--text "--- a\n+++ a\n@@ @@\n+(defun x ())" path)))
      (should (equal (ask-test--faces text "defun") '(diff-added))))))

(ert-deftest pyagentd-ask-diff-has-the-faces-of-a-diff ()
  (let ((text (ask-test--text
               "--- /dev/null\n+++ /x\n@@ -0,0 +1 @@\n+new\n-old\n same" nil)))
    (pcase-dolist (`(,line ,face) '(("/dev/null" diff-file-header)
                                    ("/x" diff-file-header)
                                    ("@@" diff-hunk-header)
                                    ("new" diff-added)
                                    ("old" diff-removed)
                                    (" same" diff-context)))
      (should (memq face (ask-test--faces text line))))))

(ert-deftest pyagentd-ask-notice-stays-at-the-marker ()
  (pyagentd-test-with-ask
    (pyagentd-test-stream "More text.")
    (should (= (overlay-start pyagentd-ask-notice--overlay)
               (pyagentd-insert-position)))
    (goto-char (point-max))
    (insert "a draft")
    (should (< (overlay-start pyagentd-ask-notice--overlay) (point-max)))))

(ert-deftest pyagentd-ask-leaves-nothing-when-the-connection-ends ()
  (pyagentd-test-with-ask
    (pyagentd-connect--disconnected)
    (should-not (pyagentd-ask-open))
    (should-not pyagentd-ask-notice--overlay)
    (should-not (pyagentd-test-overlays))))

(ert-deftest pyagentd-ask-leaves-nothing-when-the-mode-goes ()
  (pyagentd-test-with-ask
    (pyagentd-mode -1)
    (should-not (pyagentd-test-overlays))))

(ert-deftest pyagentd-ask-notice-survives-a-change-of-the-major-mode ()
  (pyagentd-test-with-ask
    (text-mode)
    (should (overlay-buffer pyagentd-ask-notice--overlay))
    (pyagentd-test-stream "More.")
    (should (= (overlay-start pyagentd-ask-notice--overlay)
               (pyagentd-insert-position)))))

(ert-deftest pyagentd-ask-notice-is-as-short-as-its-window ()
  (pyagentd-test-with-ask
    (goto-char (point-max))
    (switch-to-buffer (current-buffer))
    (let ((diff (concat "--- /x\n+++ /x\n"
                        (mapconcat #'number-to-string (number-sequence 1 90) "\n")))
          (height (lambda () (pyagentd-ask-notice--rows (pyagentd-test-notice) 80))))
      (cl-letf (((symbol-function 'window-body-height) (lambda (&rest _) 20))
                ((symbol-function 'window-body-width) (lambda (&rest _) 80)))
        (pyagentd-test-events
         (list 'ask 2 (ask-test--plist "q2" :preview diff)))
        (pyagentd-ask--next)
        (should (<= (funcall height) 18))
        (should (string-search "y once" (pyagentd-test-notice))))
      (cl-letf (((symbol-function 'window-body-height) (lambda (&rest _) 80))
                ((symbol-function 'window-body-width) (lambda (&rest _) 80)))
        (pyagentd-ask-notice-refresh)
        (should (> (funcall height) 30))))))

(ert-deftest pyagentd-ask-notice-with-little-room-has-what-changes ()
  (pyagentd-test-with-ask
    (goto-char (point-max))
    (switch-to-buffer (current-buffer))
    (let ((diff (concat "--- /x\n+++ /x\n@@ -1,7 +1,7 @@\n one\n two\n three\n"
                        "-four\n+quattro\n five\n six\n seven\n")))
      (cl-letf (((symbol-function 'window-body-height) (lambda (&rest _) 12))
                ((symbol-function 'window-body-width) (lambda (&rest _) 80)))
        (pyagentd-test-events
         (list 'ask 2 (ask-test--plist "q2" :preview diff :path "/x")))
        (pyagentd-ask--next)
        (let ((text (pyagentd-test-notice)))
          (should (string-search "\n-four\n+quattro\n" text))
          (should-not (string-search "--- /x" text)))))))

(ert-deftest pyagentd-ask-notice-has-no-line-that-is-continued ()
  "Emacs draws the cursor of a point below in a line that is."
  (pyagentd-test-with-ask
    (goto-char (point-max))
    (switch-to-buffer (current-buffer))
    (cl-letf (((symbol-function 'window-body-height) (lambda (&rest _) 60))
              ((symbol-function 'window-body-width) (lambda (&rest _) 40)))
      (pyagentd-test-events
       (list 'ask 2 (ask-test--plist
                     "q2" :preview (concat (make-string 90 ?Z) "\nand "
                                           (make-string 37 ?y) " here"))))
      (pyagentd-ask--next)
      (let ((text (pyagentd-test-notice)))
        (dolist (line (split-string text "\n"))
          (should (<= (string-width line) 39)))
        (should (string-search "y once  s this session  p this \nproject" text))
        (should (string-search (concat "\n  and \n" (make-string 37 ?y)) text))
        (should (= 90 (seq-count (lambda (char) (= char ?Z)) text)))))))

(ert-deftest pyagentd-ask-of-a-session-at-rest-stands-above-the-next-prompt ()
  (pyagentd-test-with-ask
    (pyagentd-insert-start (point-max))
    (pyagentd-test-stream "\n\nDone.")
    (pyagentd-test-events '(insert 1 "\n\n### " nil))
    (goto-char (point-max))
    (insert "next")
    (pyagentd-ask-notice-refresh)
    (should (string-suffix-p
             "Done." (buffer-substring 1 (overlay-start
                                          pyagentd-ask-notice--overlay))))))

(ert-deftest pyagentd-ask-notice-counts-rows ()
  (should (= 4 (pyagentd-ask-notice--rows "ab\n\nabcdef\n" 4))))

;;; ask-test.el ends here

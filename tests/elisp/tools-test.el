;;; tools-test.el --- Tests of buffers and tools for agents -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What the daemon asks, as it asks it, and what it is told.

;;; Code:

(require 'test-helper)
(require 'pyagentd-buffers)
(require 'pyagentd-tools)
(require 'tramp)
(require 'tramp-cmds)
(require 'xref)

(defvar tools-test-answer nil
  "The last answer.")

(defvar tools-test-root nil
  "Workspace of calls, or nil.")

(defun tools-test-ask (what &rest facts)
  "Ask about WHAT with FACTS and return what is sent, as a plist."
  (setq tools-test-answer nil)
  (cl-letf (((symbol-function 'pyagentd-rpc-call-async)
             (lambda (_method plist &rest _)
               (setq tools-test-answer plist))))
    (let ((debug-on-error nil))
      (pyagentd-offer--answer (list :id "q1" :what what
                                    :facts (pyagentd-json-of facts)))
      (pyagentd-test-await tools-test-answer)))
  (pyagentd-json-plist (plist-get tools-test-answer :answer)))

(defun tools-test-call (tool &rest args)
  "Return what the daemon is told of a call of TOOL with ARGS."
  (tools-test-ask "call" :tool tool :args args :branch "/none"
                  :root (or tools-test-root "/tmp") :timeout 5))

(defmacro tools-test-with-file (text &rest body)
  "Evaluate BODY in a buffer that visits a file with TEXT.
The variable `file' is bound to its true name."
  (declare (indent 1) (debug t))
  `(let* ((file (file-truename (make-temp-file "pyagentd-" nil ".txt" ,text)))
          (make-backup-files nil) (create-lockfiles nil)
          (buffer (find-file-noselect file)))
     (unwind-protect
         (with-current-buffer buffer
           (buffer-enable-undo)
           ,@body)
       (with-current-buffer buffer (set-buffer-modified-p nil))
       (kill-buffer buffer)
       (delete-file file))))

(defmacro tools-test-with-tools (&rest body)
  "Evaluate BODY where tools are defined for it alone."
  (declare (indent 0) (debug t))
  `(let ((pyagentd-tools nil))
     (cl-letf (((symbol-function 'pyagentd-offer) #'ignore))
       ,@body)))

;;;; Buffers

(ert-deftest pyagentd-buffers-tell-unsaved-text-and-whole-text-when-asked ()
  (tools-test-with-file "one\n"
    (should-not (plist-get (tools-test-ask "look" :path file :whole :json-false)
                           :text))
    (should (equal (plist-get (tools-test-ask "look" :path file :whole t) :text)
                   "one\n"))
    (goto-char (point-max))
    (insert (propertize "zwei é\n" 'face 'bold))
    (narrow-to-region 1 2)
    (let ((told (tools-test-ask "look" :path file :whole :json-false)))
      (should (equal (plist-get told :text) "one\nzwei é\n"))
      (should (eq (plist-get told :modified) t)))
    (should-not (tools-test-ask "look" :path "/none" :whole t))))

(ert-deftest pyagentd-buffers-that-are-not-their-file-are-not-open ()
  (tools-test-with-file "one\n"
    (setq buffer-file-name (concat file ".gpg"))
    (setq-local buffer-file-truename buffer-file-name)
    (should-not (tools-test-ask "look" :path (concat file ".gpg") :whole t))
    (insert "x")
    (let ((told (tools-test-ask "look" :path (concat file ".gpg") :whole t)))
      (should (string-match-p "encrypted" (plist-get told :trouble)))
      (should-not (plist-get told :text)))))

(defun tools-test-change (path &rest edits)
  "Ask for EDITS, lists, of the file PATH as it is shown now."
  (tools-test-ask "change" :path path
                  :version (number-to-string (buffer-chars-modified-tick))
                  :edits (vconcat (mapcar #'vconcat edits))))

(ert-deftest pyagentd-buffers-change-keep-point-and-undo-in-one-step ()
  (tools-test-with-file "one two three\n"
    (let (hook)
      (add-hook 'before-save-hook (lambda () (setq hook t)) nil t)
      (search-forward "two ")
      (should (equal (plist-get (tools-test-change file '(0 3 "1") '(8 13 "3"))
                                :saved)
                     t))
      (should (equal (buffer-string) "1 two 3\n"))
      (should (looking-back "two " nil))
      (should hook)
      (should (equal (pyagentd-test-content file) "1 two 3\n"))
      (setq last-command nil)
      (undo)
      (should (equal (buffer-string) "one two three\n")))))

(ert-deftest pyagentd-buffers-change-whatever-a-function-of-the-users-does ()
  (tools-test-with-file "one\n"
    (let* ((changed nil)
           (pyagentd-buffers-changed-functions
            (list (lambda (&rest region)
                    (setq changed region)
                    (error "Broken")))))
      (should (eq t (plist-get (tools-test-change file '(0 3 "1")) :saved)))
      (should (equal changed '(1 2)))
      (should (equal (pyagentd-test-content file) "1\n")))))

(ert-deftest pyagentd-buffers-changes-of-another-text-are-outdated ()
  (tools-test-with-file "one\n"
    (should (equal (tools-test-ask "change" :path file :version "0" :edits [])
                   '(:outcome "outdated")))
    (should (equal (tools-test-ask "change" :path "/none" :version "0"
                                   :edits [])
                   '(:outcome "outdated")))))

(ert-deftest pyagentd-buffers-are-as-before-when-they-cannot-be-saved ()
  (dolist (case (list (cons "asks"
                            (lambda ()
                              (add-hook 'write-file-functions
                                        (lambda () (read-from-minibuffer "? "))
                                        nil t)))
                      (cons "cannot hold"
                            (lambda ()
                              (setq buffer-file-coding-system 'latin-1-unix)))
                      (cons "read-only" (lambda () (setq buffer-read-only t)))
                      (cons "on disk as well"
                            (lambda ()
                              (set-visited-file-modtime '(0 1))))))
    (tools-test-with-file "one\n"
      (funcall (cdr case))
      (let ((told (tools-test-change file '(0 3 "€"))))
        (should (equal (cons (car case) (plist-get told :outcome))
                       (cons (car case) "refused")))
        (unless (equal (car case) "asks")
          (should (string-match-p (car case) (plist-get told :reason)))))
      (should (equal (buffer-string) "one\n"))
      (should (equal (pyagentd-test-content file) "one\n")))))

(ert-deftest pyagentd-buffers-do-not-follow-a-link-put-in-their-files-place ()
  (tools-test-with-file "one\n"
    (let ((other (make-temp-file "pyagentd-")))
      (unwind-protect
          (progn
            (delete-file file)
            (make-symbolic-link other file)
            (set-visited-file-modtime)
            (should (string-match-p "another file"
                                    (plist-get (tools-test-change file '(0 3 "x"))
                                               :reason)))
            (should (equal (pyagentd-test-content other) "")))
        (delete-file other)))))

(ert-deftest pyagentd-buffers-reach-files-of-other-machines ()
  (let* ((tramp-methods
          (cons '("mock" (tramp-login-program "sh") (tramp-login-args (("-i")))
                  (tramp-remote-shell "/bin/sh")
                  (tramp-remote-shell-args ("-c"))
                  (tramp-connection-timeout 10))
                tramp-methods))
         (tramp-verbose 0) (tramp-persistency-file-name nil)
         (make-backup-files nil) (create-lockfiles nil)
         (file (file-truename (make-temp-file "pyagentd-" nil nil "far\n")))
         (remote (concat "/mock:localhost:" file))
         (buffer (find-file-noselect remote)))
    (unwind-protect
        (with-current-buffer buffer
          (should (equal (plist-get (tools-test-ask "look" :path remote :whole t)
                                    :text)
                         "far\n"))
          (should (equal (plist-get (tools-test-change remote '(0 0 "very "))
                                    :saved)
                         t))
          (should (equal (pyagentd-test-content file) "very far\n")))
      (kill-buffer buffer)
      (tramp-cleanup-all-connections)
      (delete-file file))))

;;;; Definitions as they are written for gptel

(defun tools-test-define ()
  "Define ten tools with the keywords of `gptel-make-tool', and no others."
  (dolist (slots
           `((:name "get_time" :function ,(lambda () "12:00") :args nil
              :description "The time" :category "time")
             (:name "read_buffer" :function ,#'identity
              :description "Contents of a buffer"
              :args ((:name "buffer" :type string :description "Its name"))
              :category "emacs")
             (:name "convert" :function ,(lambda (n unit)
                                           (format "%s %s" n unit))
              :description "Convert a temperature"
              :args ((:name "n" :type number :description "Degrees")
                     (:name "unit" :type string :enum ["celsius" "farenheit"]
                      :description "The unit")))
             (:name "list_files" :function ,(lambda (dir &optional all)
                                              (format "%s %S" dir all))
              :description "List a directory" :category "filesystem"
              :args (list (:name "dir" :type "string" :description "Where")
                          (:name "all" :type boolean :optional t
                           :description "Hidden ones too")))
             (:name "fetch" :async t :include t :category "web"
              :function ,(lambda (callback url)
                           (run-at-time 0 nil callback (concat "page " url)))
              :description "Fetch a page"
              :args ((:name "url" :type string :description "Its address")))
             (:name "echo_message" :confirm t :include 'call
              :function ,(lambda (text) (format "Message: %s" text))
              :description "Show a message"
              :args ((:name "text" :type string :description "The message")))
             (:name "make_file" :category "filesystem"
              :confirm ,(lambda (path _content)
                          (not (string-prefix-p "/tmp/" path)))
              :function ,(lambda (path content)
                           (format "%s %d" path (length content)))
              :description "Make a file"
              :args ((:name "path" :type string :description "Where")
                     (:name "content" :type string :description "What")))
             (:name "edit_many" :function ,(lambda (edits)
                                             (mapconcat
                                              (lambda (edit)
                                                (format "%s" (plist-get
                                                              edit :line)))
                                              edits ","))
              :description "Edit lines"
              :args ((:name "edits" :type array :description "The edits"
                      :items (:type object
                              :properties (:line (:type integer
                                                  :description "Which")
                                           :text (:type string
                                                  :description "What"))
                              :required ["line" "text"]))))
             (:name "create_event" :function ,(lambda (event)
                                                (format "%S" event))
              :description "Make an appointment"
              :args ((:name "event" :type object :description "It"
                      :properties (:title (:type string)
                                   :at (:type object
                                        :properties (:day (:type string))
                                        :required ["day"]))
                      :required ["title"])))
             (:name "broken" :function ,(lambda (_x) (error "It broke"))
              :description "Fails" :confirm nil :async nil
              :args ((:name "x" :type null :optional t
                      :description "Nothing")))))
    ;; As in a configuration: quoted lists, evaluated once.
    (when (eq (car-safe (plist-get slots :args)) 'list)
      (setq slots (plist-put slots :args (cdr (plist-get slots :args)))))
    (apply #'pyagentd-make-tool slots)))

(ert-deftest pyagentd-tools-written-for-gptel-work-unchanged ()
  (tools-test-with-tools
    (tools-test-define)
    (pcase-dolist
        (`(,tool ,args ,text)
         '(("get_time" () "12:00")
           ("read_buffer" (:buffer "x") "x")
           ("convert" (:unit "celsius" :n 20.5) "20.5 celsius")
           ("list_files" (:dir "/tmp") "/tmp nil")
           ("list_files" (:dir "/tmp" :all :json-false) "/tmp :json-false")
           ("fetch" (:url "http://x") "page http://x")
           ("echo_message" (:text "hi") "Message: hi")
           ("make_file" (:path "/a" :content "xyz") "/a 3")
           ("edit_many" (:edits [(:line 3 :text "a") (:line 7 :text "b")]) "3,7")
           ("create_event" (:event (:title "T" :at (:day "mon")))
            "(:title \"T\" :at (:day \"mon\"))")))
      (should (equal (apply #'tools-test-call tool args) (list :text text))))
    (should (equal (tools-test-call "broken") '(:error t :text "It broke")))
    (should (plist-get (tools-test-call "none") :error))
    (should (equal (tools-test-ask "confirm" :tool "make_file" :branch "/none"
                                   :root "/" :args '(:path "/tmp/x"))
                   '(:confirm :json-false)))))

(ert-deftest pyagentd-tools-are-told-as-json ()
  (tools-test-with-tools
    (tools-test-define)
    (let ((told (append (pyagentd-json-plist (pyagentd-tools--definitions)) nil)))
      (should (= (length told) 10))
      (should (equal (mapcar (lambda (tool) (plist-get tool :confirm)) told)
                     '(:json-false :json-false :json-false :json-false
                       :json-false t "function" :json-false :json-false
                       :json-false)))
      (should (equal (plist-get (nth 2 told) :args)
                     [(:name "n" :type "number" :description "Degrees")
                      (:name "unit" :type "string"
                       :enum ["celsius" "farenheit"] :description "The unit")]))
      (should (equal (plist-get (aref (plist-get (nth 7 told) :args) 0) :items)
                     '(:type "object"
                       :properties (:line (:type "integer" :description "Which")
                                    :text (:type "string" :description "What"))
                       :required ["line" "text"])))
      (should (equal (plist-get (nth 0 told) :args) [])))))

(ert-deftest pyagentd-tools-that-nobody-waits-for-are-stopped ()
  (tools-test-with-tools
    (let (stopped)
      (pyagentd-make-tool :name "long" :async t :description "x" :args nil
                          :function (lambda (_callback)
                                      (lambda () (setq stopped t))))
      (pyagentd-offer--answer
       (list :id "q9" :what "call"
             :facts (pyagentd-json-of '(:tool "long" :branch "/n" :root "/"))))
      (pyagentd-offer--answer '(:id "q9" :what "stop" :facts "{}"))
      (should stopped)
      (should-not pyagentd-tools--running)
      (pyagentd-make-tool :name "quick" :async t :description "x" :args nil
                          :function (lambda (callback)
                                      (funcall callback "known")
                                      (lambda () nil)))
      (should (equal "known" (plist-get (tools-test-call "quick") :text)))
      (should-not pyagentd-tools--running))))

;;;; What is there

(ert-deftest pyagentd-tools-know-symbols-definitions-outlines-and-values ()
  (let* ((tools-test-root (file-truename (make-temp-file "pyagentd-" t)))
         (file (expand-file-name "some.el" tools-test-root)))
    (write-region "\
\(defun tools-test-some-function ()\n  \"It.\"\n  (car-safe nil))\n
\(defvar tools-test-some-variable 1)\n" nil file nil 'quiet)
    (unwind-protect
        (progn
          (should (string-prefix-p
                   "Function (car-safe"
                   (plist-get (tools-test-call "emacs_describe" :name "car-safe")
                              :text)))
          (let ((places (plist-get (tools-test-call "emacs_outline" :file file)
                                   :places)))
            (should (equal (mapcar (lambda (place) (plist-get place :line))
                                   places)
                           '(1 5))))
          (let ((places (plist-get (tools-test-call
                                    "emacs_definitions" :file file
                                    :identifier "string-trim")
                                   :places)))
            (should (string-match-p "subr" (plist-get (aref places 0) :file))))
          (should-not (find-buffer-visiting file))
          (let ((places (plist-get (tools-test-call
                                    "emacs_references" :file file
                                    :identifier "car-safe")
                                   :places)))
            (should (member (list :file file :line 3 :text "(car-safe nil))")
                            (append places nil))))
          (should (equal (tools-test-call "emacs_eval"
                                          :expression "(progn (princ 1) (+ 1 2))")
                         '(:text "Printed:\n1\nValue: 3")))
          (should (plist-get (tools-test-call "emacs_eval" :expression "1 2")
                             :error))
          (should (string-match-p
                   "nothing is known"
                   (plist-get (tools-test-call "emacs_diagnostics") :text))))
      (delete-directory tools-test-root t))))

;; A language server is asked about the place, not about the name.
(cl-defmethod xref-backend-definitions ((_backend (eql tools-test)) _identifier)
  (list (xref-make "here" (xref-make-file-location
                           buffer-file-name (line-number-at-pos) 0))))

(ert-deftest pyagentd-tools-look-for-a-name-where-it-stands-alone ()
  (tools-test-with-file "resend SEND\nsend-it\n  send(x)\n  send! @send\n\n@send"
    (let ((xref-backend-functions (list (lambda () 'tools-test))))
      (pcase-dolist (`(,name . ,line) '(("send" . 3) ("send!" . 4) ("@send" . 4)))
        (should (equal line (plist-get (aref (plist-get
                                              (tools-test-call "emacs_definitions"
                                                               :identifier name
                                                               :file file)
                                              :places)
                                             0)
                                       :line)))))))

(ert-deftest pyagentd-tools-outline-has-entries-with-a-function-of-their-own ()
  (tools-test-with-file "one\ntwo\n"
    (setq imenu--index-alist nil
          imenu-create-index-function
          (lambda () '(("Parts" ("one" 1 ignore "more") ("two" . 5)))))
    (should (equal (seq-map (lambda (place) (plist-get place :text))
                            (plist-get (tools-test-call "emacs_outline" :file file)
                                       :places))
                   '("Parts / one" "Parts / two")))))

(ert-deftest pyagentd-tools-compile-and-tell-how-it-ended ()
  (let ((told (tools-test-call "emacs_compile" :command "echo out; exit 3")))
    (should (eq (plist-get told :error) t))
    (should (string-match-p "out" (plist-get told :text)))
    (should (string-match-p "exited abnormally with code 3"
                            (plist-get told :text)))))

(ert-deftest pyagentd-tools-compile-with-bash-here-in-a-buffer-of-the-session ()
  (let* ((reached nil)
         (file-name-handler-alist
          (cons (cons "\\`/ssh:" (lambda (&rest call) (push call reached) nil))
                file-name-handler-alist)))
    (should (eq t (plist-get (tools-test-call "emacs_compile"
                                              :command "cd /ssh:no:/; ls")
                             :error)))
    (should-not reached))
  (let ((shell-file-name "/bin/false"))
    (should (string-match-p
             "is bash" (plist-get (tools-test-call
                                   "emacs_compile"
                                   :command "[[ $BASH_VERSION ]] && echo is bash")
                                  :text))))
  (let* ((started (lambda (branch)
                    (let ((pyagentd-tools-branch branch))
                      (pyagentd-tools-build--compile #'ignore "sleep 60"))))
         (stops (mapcar started '("/s/a/branches/main" "/s/b/branches/main"
                                  "/s/b/branches/main")))
         (running (lambda ()
                    (seq-filter (lambda (process)
                                  (string-match-p " [ab]/main"
                                                  (buffer-name
                                                   (process-buffer process))))
                                (process-list)))))
    (should (= 3 (length (funcall running))))
    (mapc #'funcall stops)
    (pyagentd-test-await (not (funcall running)))))

(ert-deftest pyagentd-tools-visit-only-what-can-be-visited-at-once ()
  (let* ((root (file-truename (make-temp-file "pyagentd-" t)))
         (tools-test-root root)
         (named (lambda (name)
                  (if (file-name-absolute-p name) name
                    (expand-file-name name root))))
         (outline (lambda (name)
                    (tools-test-call "emacs_outline"
                                     :file (funcall named name))))
         (ran nil) (reached nil)
         (note (lambda () (setq ran t)))
         (find-file-hook (cons note find-file-hook))
         (prog-mode-hook (list note)) (emacs-lisp-mode-hook (list note))
         (after-change-major-mode-hook
          (cons note after-change-major-mode-hook))
         (file-name-handler-alist
          (cons (cons "\\`/ssh:"
                      (lambda (operation &rest _)
                        (unless (eq operation 'file-remote-p)
                          (push operation reached))
                        (and (eq operation 'file-remote-p) "/ssh:nowhere:")))
                file-name-handler-alist)))
    (call-process "mkfifo" nil nil nil (funcall named "p.el"))
    (write-region "(defun a ())\n" nil (funcall named "a.el") nil 'quiet)
    (write-region (make-string (1+ pyagentd-tools-file-largest) ?\;)
                  nil (funcall named "large.el") nil 'quiet)
    (unwind-protect
        (progn
          (should (equal (plist-get (aref (plist-get (funcall outline "a.el")
                                                     :places)
                                          0)
                                    :line)
                         1))
          (pcase-dolist (`(,name . ,says)
                         '(("p.el" . "is not a file") ("large.el" . "larger than")
                           ("none.el" . "no file")
                           ("/ssh:nowhere:/a.el" . "another machine")))
            (let ((told (funcall outline name)))
              (should (eq t (plist-get told :error)))
              (should (string-match-p says (plist-get told :text)))))
          (should-not ran)
          (should-not reached))
      (delete-directory root t))))

(ert-deftest pyagentd-offer-answers-can-be-quit-and-are-told-then ()
  (let ((pyagentd-offer--answerers nil) (inhibit-quit t) (debug-on-quit nil)
        inhibited)
    (pyagentd-offer-register "change" (lambda (&rest _)
                                        (setq inhibited inhibit-quit)
                                        (signal 'quit nil)))
    (let ((told (tools-test-ask "change" :path "/x")))
      (should-not inhibited)
      (should (equal (plist-get told :outcome) "refused")))))

(provide 'tools-test)
;;; tools-test.el ends here

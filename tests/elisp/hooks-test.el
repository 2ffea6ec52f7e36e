;;; hooks-test.el --- Tests of pyagentd-hooks and pyagentd-visited -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'pyagentd-tools)
(require 'pyagentd-buffers)

(defmacro hooks-test-with (functions &rest body)
  "Evaluate BODY with FUNCTIONS as hooks for `tool.before'."
  (declare (indent 1) (debug t))
  `(let ((pyagentd-hook-functions nil))
     (dolist (function ,functions)
       (pyagentd-add-hook 'tool.before function))
     ,@body))

(defun hooks-test-asked (facts)
  "Return what the daemon is told when it asks about FACTS, a plist."
  (let (answer)
    (cl-letf (((symbol-function 'pyagentd-rpc-call-async)
               (lambda (_method plist &rest _)
                 (setq answer (pyagentd-json-plist (plist-get plist :answer))))))
      (pyagentd-offer--answer
       (list :id "1" :what "hook"
             :facts (json-encode `(:event "tool.before" ,@facts)))))
    answer))

(ert-deftest pyagentd-hooks-see-facts-and-what-others-changed ()
  (hooks-test-with
      (list (lambda (facts)
              (list :input (list :n (1+ (plist-get (plist-get facts :input) :n)))))
            (lambda (facts)
              (list :append (format "%s" (plist-get (plist-get facts :input) :n)))))
    (should (equal (json-encode (hooks-test-asked '(:input (:n 1))))
                   "{\"input\":{\"n\":2},\"append\":\"2\"}"))))

(ert-deftest pyagentd-hooks-stop-at-the-first-that-forbids ()
  (let (asked)
    (hooks-test-with (list (lambda (_) (list :block "no"))
                           (lambda (_) (setq asked t) nil))
      (should (equal (hooks-test-asked nil) '(:block "no")))
      (should-not asked))))

(ert-deftest pyagentd-hooks-that-fail-say-so ()
  (let ((debug-on-error nil))
    (hooks-test-with (list (lambda (_) (error "Broken")))
      (should (equal (plist-get (hooks-test-asked nil) :text) "Broken")))
    (hooks-test-with (list (lambda (_) (list :block (current-buffer))))
      (should (plist-get (hooks-test-asked nil) :error)))))

(ert-deftest pyagentd-hooks-are-for-events-that-are-there ()
  (should-error (pyagentd-add-hook 'tool.during #'ignore) :type 'user-error))

(ert-deftest pyagentd-hooks-can-be-removed ()
  (hooks-test-with (list #'ignore)
    (pyagentd-remove-hook 'tool.before #'ignore)
    (should-not (alist-get 'tool.before pyagentd-hook-functions))))

(ert-deftest pyagentd-visited-leaves-what-did-not-change ()
  (let ((file (make-temp-file "pyagentd-")))
    (unwind-protect
        (with-current-buffer (find-file-noselect file)
          (let (reverted)
            (add-hook 'before-revert-hook (lambda () (setq reverted t)) nil t)
            (pyagentd-visited-update (list file))
            (should-not reverted)
            (write-region "new" nil file nil 'quiet)
            (set-file-times file (time-add nil 10))
            (pyagentd-visited-update (list file))
            (should reverted)
            (should (equal (buffer-string) "new")))
          (kill-buffer))
      (delete-file file))))

(ert-deftest pyagentd-visited-asks-no-other-machine ()
  (with-temp-buffer
    (setq buffer-file-name "/ssh:far:/home/u/a"
          buffer-file-truename "/ssh:far:~/a")
    (let ((file-name-handler-alist
           `(("\\`/ssh:" . ,(lambda (operation &rest arguments)
                              (if (memq operation '(file-remote-p))
                                  "/ssh:far:"
                                (error "Asked: %S" (cons operation arguments))))))))
      (unwind-protect
          (should-not (pyagentd-visited--buffer "/home/u/other"))
        (setq buffer-file-name nil)))))

(ert-deftest pyagentd-visited-flashes-the-lines-that-are-others-now ()
  (let ((file (make-temp-file "pyagentd-")) flashed)
    (unwind-protect
        (cl-letf (((symbol-function 'pulse-momentary-highlight-region)
                   (lambda (beg end &rest _)
                     (setq flashed (buffer-substring-no-properties beg end)))))
          (write-region "one\ntwo\nthree\nfour\n" nil file nil 'quiet)
          (switch-to-buffer (find-file-noselect file))
          (goto-char (point-max))
          (write-region "one\ntwo!\nthird\nfour\n" nil file nil 'quiet)
          (pyagentd-visited--revert)
          (should (equal flashed "two!\nthird\n"))
          (should (eobp))
          (setq flashed nil)
          (let ((pyagentd-pulse-edits nil))
            (pyagentd-pulse 1 2)
            (should-not flashed))
          (kill-buffer))
      (delete-file file))))

(provide 'hooks-test)
;;; hooks-test.el ends here

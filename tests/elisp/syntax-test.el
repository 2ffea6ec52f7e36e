;;; syntax-test.el --- Tests of the syntax of long conversations -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'markdown-mode nil t)

(declare-function markdown-mode "markdown-mode" nil t)
(declare-function markdown-syntax-propertize-extend-region "markdown-mode")
(defvar jit-lock-start)
(defvar jit-lock-end)

(defconst syntax-test--answer
  "# Why\n\nSome *text* and `code`.\n\n```python\ndef f():\n    # Not a heading\n    return 1\n```\n\n1. one\n   - two\n\n> quoted <!-- hidden -->\n\nTitle\n=====\n\nEnd."
  "An answer with all kinds of Markdown.")

(defun syntax-test--tool (result)
  "Return a tool's block with RESULT and its roles."
  (concat (propertize "``` tool (Read)" 'gptel 'ignore)
          (propertize (concat "\n(:name \"Read\" :args nil)\n\n" result)
                      'gptel '(tool . "t1"))
          (propertize "\n```\n" 'gptel 'ignore)))

(defun syntax-test--conversation (turns)
  "Return so many TURNS with answers and tools, with their roles."
  (mapconcat (lambda (turn)
               (concat (format "### Prompt %d\n\n" turn)
                       (syntax-test--tool "# result\n\n- item\n")
                       (propertize syntax-test--answer 'gptel 'response)
                       "\n\n"))
             (number-sequence 1 turns) ""))

(defmacro syntax-test--with (text &rest body)
  "Evaluate BODY in the buffer of a session with TEXT, which has roles."
  (declare (indent 1) (debug t))
  `(progn
     (skip-unless (fboundp 'markdown-mode))
     (let ((auto-mode-alist '(("\\.md\\'" . markdown-mode))))
       (pyagentd-test-with-session ""
         (with-silent-modifications
           (erase-buffer)
           (insert ,text))
         (font-lock-set-defaults)
         (pyagentd-syntax-install)
         ,@body))))

(defun syntax-test--fontify (beg end)
  "Fontify the text between BEG and END as redisplay would."
  (with-silent-modifications
    (funcall font-lock-fontify-region-function beg (min end (point-max)))))

(defun syntax-test--faces (beg end)
  "Return the faces of the characters between BEG and END."
  (cl-loop for pos from beg below end collect (get-text-property pos 'face)))

(defun syntax-test--usual-faces (text)
  "Return the faces that `markdown-mode' itself gives TEXT."
  (with-temp-buffer
    (insert (substring-no-properties text))
    (markdown-mode)
    (font-lock-ensure)
    (syntax-test--faces (point-min) (point-max))))

(ert-deftest pyagentd-syntax-faces-are-those-of-the-whole-text ()
  (let ((text (syntax-test--conversation 4)))
    (syntax-test--with text
      (should pyagentd-syntax--function)
      ;; As somebody would look: at the end, at the top, in between.
      (let ((third (/ (point-max) 3)))
        (syntax-test--fontify (* 2 third) (point-max))
        (syntax-test--fontify 1 third)
        (syntax-test--fontify third (* 2 third)))
      (should (equal (syntax-test--faces (point-min) (point-max))
                     (syntax-test--usual-faces text))))))

(defun syntax-test--faces-after (text)
  "Return the faces of the character before the end of the first TEXT."
  (save-excursion
    (goto-char (point-min))
    (search-forward text)
    (ensure-list (get-text-property (1- (point)) 'face))))

(ert-deftest pyagentd-syntax-of-an-answer-ends-with-it ()
  (syntax-test--with (concat "### One\n\n"
                             (propertize "Look:\n\n```\nnever closed" 'gptel 'response)
                             "\n\n### Two **bold**\n\n"
                             (propertize "```\nclosed\n```\n" 'gptel 'response))
    (syntax-test--fontify (point-min) (point-max))
    (should (memq 'markdown-bold-face (syntax-test--faces-after "bold")))
    (should (memq 'markdown-pre-face (syntax-test--faces-after "```\nclosed")))))

(ert-deftest pyagentd-syntax-dashes-that-begin-an-answer-are-no-metadata ()
  (syntax-test--with (concat "### One\n\n"
                             (propertize "---\n\nname: x\n\n---\n" 'gptel 'response))
    (syntax-test--fontify (point-min) (point-max))
    (goto-char (point-min))
    (search-forward "name")
    (should-not (get-text-property (1- (point)) 'face))))

(ert-deftest pyagentd-syntax-a-colon-in-the-first-line-makes-no-metadata ()
  (syntax-test--with (concat "### Hi\n\n"
                             (propertize "What I found: two\nand: more\n"
                                         'gptel 'response))
    (syntax-test--fontify (point-min) (point-max))
    (should-not (memq 'markdown-metadata-key-face
                      (syntax-test--faces-after "What")))))

(ert-deftest pyagentd-syntax-far-down-is-found-without-what-is-above ()
  (syntax-test--with (syntax-test--conversation 2000)
    (let ((time (car (benchmark-run 1
                       (syntax-test--fontify (- (point-max) 2000) (point-max))))))
      (pyagentd-test-report "the end of %.1f MB of Markdown: %.0f ms"
                            (/ (buffer-size) 1e6) (* 1000 time)))
    (should-not (text-property-any (point-min) (- (point-max) 60000)
                                   'pyagentd-syntax t))
    (should-not (text-property-not-all (- (point-max) 2000) (point-max)
                                       'pyagentd-syntax t))))

(ert-deftest pyagentd-syntax-of-one-very-long-answer-begins-not-far-above ()
  (syntax-test--with (concat "### One\n\n"
                             (propertize (mapconcat #'identity
                                                    (make-list 3000 syntax-test--answer)
                                                    "\n\n")
                                         'gptel 'response))
    (syntax-test--fontify (- (point-max) 1000) (point-max))
    (should-not (text-property-any (point-min) (- (point-max) 50000)
                                   'pyagentd-syntax t))))

(ert-deftest pyagentd-syntax-ends-where-text-of-many-lines-follows ()
  "A heading behind a part, which font-lock knows as one of many lines."
  (syntax-test--with (concat "### One\n\n"
                             (propertize "Answer." 'gptel 'response)
                             "\n\n### \nA draft\n")
    (goto-char (point-min))
    (search-forward "### \n")
    (with-silent-modifications
      (put-text-property (match-beginning 0) (match-end 0)
                         'font-lock-multiline t))
    (with-timeout (20 (ert-fail "Fontifying does not end"))
      (syntax-test--fontify (point-min) (point-max)))
    (should (text-property-any (point-min) (point-max) 'pyagentd-syntax t))))

(ert-deftest pyagentd-syntax-follows-a-change ()
  (syntax-test--with (concat "### One\n\n"
                             (propertize "Look:\n\n# Heading\n\n```\nEnd." 'gptel 'response))
    (syntax-test--fontify (point-min) (point-max))
    (should (memq 'markdown-header-face-1 (syntax-test--faces-after "# Head")))
    (goto-char (point-min))
    (search-forward "Look:\n\n")
    (insert "```\n")
    (should-not (get-text-property (point) 'pyagentd-syntax))
    (syntax-test--fontify (point-min) (point-max))
    (should (memq 'markdown-pre-face (syntax-test--faces-after "# Head")))))

(ert-deftest pyagentd-syntax-below-a-change-is-that-of-where-the-text-is-now ()
  (let ((text (syntax-test--conversation 3)))
    (syntax-test--with text
      (syntax-test--fontify (point-min) (point-max))
      (goto-char (point-min))
      (dolist (change (list (lambda () (insert "Some words.\n"))
                            (lambda () (delete-char 7))))
        (funcall change)
        (syntax-test--fontify (point-min) (point-max))
        (should (equal (syntax-test--faces (point-min) (point-max))
                       (syntax-test--usual-faces (buffer-string))))))))

(ert-deftest pyagentd-syntax-follows-what-the-daemon-inserts ()
  (syntax-test--with "### One"
    (pyagentd-test-attach)
    (pyagentd-insert-start (point-max))
    (pyagentd-test-stream "\n\n```\n# code\n```\n")
    (pyagentd-insert-flush)
    (should-not (text-property-any 8 (point-max) 'pyagentd-syntax t))
    (syntax-test--fontify (point-min) (point-max))
    (should (memq 'markdown-pre-face (syntax-test--faces-after "# co")))))

(defun syntax-test--block-of-the-mode (beg end)
  "Return how far `markdown-mode' extends BEG to END within the part."
  (let ((jit-lock-start beg) (jit-lock-end end))
    (pyagentd-syntax--in-part (if (< beg (point-max)) beg (1- beg))
      (when (<= end (point-max))
        (let ((extended (markdown-syntax-propertize-extend-region beg end)))
          (cons (min beg (or (car extended) beg))
                (max end (or (cdr extended) end))))))))

(ert-deftest pyagentd-syntax-a-change-reaches-as-far-as-in-the-mode-itself ()
  (syntax-test--with (syntax-test--conversation 2)
    (syntax-test--fontify (point-min) (point-max))
    (cl-loop
     for beg from (point-min) to (point-max)
     do (let* ((end (min (point-max) (1+ beg)))
               (usual (syntax-test--block-of-the-mode beg end))
               (jit-lock-start beg) (jit-lock-end end))
          (when usual
            (pyagentd-syntax--extend beg end 0)
            (should (equal (list beg (cons jit-lock-start jit-lock-end))
                           (list beg usual))))))))

(ert-deftest pyagentd-syntax-parentheses-match-within-an-answer ()
  (syntax-test--with (concat "### One (\n\n"
                             (propertize "A) and (b)" 'gptel 'response))
    (let ((show-paren-when-point-inside-paren nil))
      (goto-char (point-max))
      (should (equal (seq-take (funcall show-paren-data-function) 5)
                     (list (1- (point)) (point) (- (point) 3) (- (point) 2)
                           nil)))
      (search-backward "A)")
      (forward-char 2)
      (should-not (nth 2 (funcall show-paren-data-function))))))

(ert-deftest pyagentd-syntax-is-the-modes-own-again-without-ours ()
  (syntax-test--with (syntax-test--conversation 2)
    (pyagentd-mode -1)
    (should syntax-propertize-function)
    (should (memq 'markdown-font-lock-extend-region-function
                  jit-lock-after-change-extend-region-functions))
    (should (eq font-lock-fontify-region-function
                #'font-lock-default-fontify-region))
    (should (eq show-paren-data-function #'show-paren--default))
    (should-not (text-property-any (point-min) (point-max) 'pyagentd-syntax t))))

(ert-deftest pyagentd-syntax-of-plain-text-is-left-alone ()
  (let ((auto-mode-alist nil))
    (pyagentd-test-with-session "### Hi"
      (should (eq major-mode 'text-mode))
      (should-not pyagentd-syntax--function))))

(ert-deftest pyagentd-syntax-of-plain-text-shows-prompts ()
  (let ((auto-mode-alist nil))
    (pyagentd-test-with-session "### Hi\n\nHello"
      (font-lock-mode)
      (font-lock-ensure)
      (should (eq (get-text-property 5 'face) 'bold))
      (should-not (get-text-property 12 'face)))))

;;; syntax-test.el ends here

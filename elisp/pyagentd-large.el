;;; pyagentd-large.el --- What keeps megabytes fast -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Garbage collection, visiting and fontifying large conversations.

;;; Code:

(require 'paren)
(require 'pyagentd-core)

;;;; Garbage is collected when nobody waits

;; With a long conversation in a buffer a garbage collection takes 20 to
;; 60 ms, and by default there is one for every 800 kB of garbage: with
;; twenty agents that is a fifth of all time, and most of what a key has
;; to wait for.  So while answers stream Emacs may leave more garbage
;; lying about; it is collected when they pause.  Who types meanwhile pauses
;; between two keys: the garbage of some seconds is collected right after
;; a key is on the screen, before Emacs has to do it while one waits.

(defcustom pyagentd-gc-threshold (* 32 1024 1024)
  "Minimum of `gc-cons-threshold' while answers stream, in bytes.
nil means do not change it."
  :type '(choice natnum (const :tag "Leave it alone" nil))
  :group 'pyagentd)

(defconst pyagentd-gc--pause 1.0
  "Seconds without a call of `pyagentd-gc-postpone' that end its effect.")

(defvar pyagentd-gc--usual nil
  "Value of `gc-cons-threshold' to restore, nil if it was not changed.")
(defvar pyagentd-gc--latest 0.0
  "Time (`float-time') of the latest call of `pyagentd-gc-postpone'.")

(defvar pyagentd-gc--base nil
  "Value of function `pyagentd-gc--made' at the latest collection.
Nil before the first call of `pyagentd-gc-postpone'.")

(defun pyagentd-gc--made ()
  "Return how many bytes of Lisp data were made since Emacs began."
  (pcase-let ((`(,conses ,floats ,cells ,symbols ,chars ,intervals ,strings)
               (memory-use-counts)))
    (+ (* 16 conses) (* 8 floats) (* 8 cells) (* 48 symbols)
       chars (* 56 intervals) (* 32 strings))))

(defun pyagentd-gc--collected ()
  "Note that garbage was collected."
  (setq pyagentd-gc--base (pyagentd-gc--made)))

(defvar pyagentd-gc--timers nil
  "Idle timers that collect between two keys while `pyagentd-gc--usual' is set.")

(defun pyagentd-gc-postpone ()
  "Collect less garbage until nobody has asked for it for a second."
  (setq pyagentd-gc--latest (float-time))
  (unless pyagentd-gc--base
    (add-hook 'post-gc-hook #'pyagentd-gc--collected)
    (pyagentd-gc--collected))
  (when (and pyagentd-gc-threshold (not pyagentd-gc--usual)
             (< gc-cons-threshold pyagentd-gc-threshold))
    (setq pyagentd-gc--usual gc-cons-threshold
          gc-cons-threshold pyagentd-gc-threshold)
    (setq pyagentd-gc--timers
          ;; The longer the pause, the less likely a key comes just now.
          (list (run-with-idle-timer 0.01 t #'pyagentd-gc--between-keys 0.01 0.5)
                (run-with-idle-timer 0.3 t #'pyagentd-gc--between-keys 0.3 0.25)))
    (run-at-time pyagentd-gc--pause nil #'pyagentd-gc--on-timer)))

(defun pyagentd-gc--on-timer ()
  "Restore the threshold and collect, or wait longer, for a key also."
  (let ((left (- (+ pyagentd-gc--latest pyagentd-gc--pause) (float-time))))
    (cond ((> left 0.01)
           (run-at-time left nil #'pyagentd-gc--on-timer))
          ((input-pending-p)
           (run-at-time 0.05 nil #'pyagentd-gc--on-timer))
          (t
           ;; Whoever changed it meanwhile knows better.
           (when (eql gc-cons-threshold pyagentd-gc-threshold)
             (setq gc-cons-threshold pyagentd-gc--usual))
           (mapc #'cancel-timer pyagentd-gc--timers)
           (setq pyagentd-gc--usual nil)))))

(defun pyagentd-gc--between-keys (delay part)
  "Collect if there is garbage for PART of the threshold and no key waits.
DELAY is how many seconds after the key this should be; when something
else took most of the pause, the next one is awaited."
  (when (and (> (- (pyagentd-gc--made) (or pyagentd-gc--base 0))
                (* part gc-cons-threshold))
             (< (float-time (or (current-idle-time) 0)) (+ delay 0.03))
             (not (input-pending-p)))
    (garbage-collect)))

;;;; Syntax of long conversations, where somebody looks

;; A mode with `syntax-propertize-function', such as `markdown-mode', wants
;; to have seen all text before point: two microseconds a character, so ten
;; seconds when point goes to the end of five megabytes, and again whenever
;; something far above was changed.
;;
;; But the parts of a conversation are independent of each other: a fence
;; that an answer did not close is not open in the next prompt.  So each
;; part is narrowed to when it is fontified, and its syntax found then.  A
;; part is what is between two changes of the role at the beginning of a
;; line; within a long one we start at a line not far above.
;;
;; Text whose syntax was found has the property `pyagentd-syntax'.  What
;; `markdown-mode' notes in the text are positions, which are wrong once
;; something above has become longer or shorter: `pyagentd-syntax-at' is
;; where the text stood then.

(defvar font-lock-beg)
(defvar font-lock-end)
(defvar jit-lock-start)
(defvar jit-lock-end)
(defvar jit-lock-antiblink-grace)
(defvar font-lock-dont-widen)
(defvar markdown-make-gfm-checkboxes-buttons)
(declare-function markdown-make-gfm-checkboxes-buttons "ext:markdown-mode")
(declare-function markdown-code-block-at-pos "ext:markdown-mode" (pos))

(defconst pyagentd-syntax--reach 20000
  "How far from where somebody looks a part may begin or end.
The syntax of so many characters of Markdown is found in 40 ms.")

(defvar-local pyagentd-syntax--function nil
  "The `syntax-propertize-function' of the major mode while ours are in use.")
(defvar-local pyagentd-syntax--extend nil
  "The functions that said how far a change has effects, called by ours.")

;;;; Parts

(defun pyagentd-syntax--boundary (pos)
  "Return where the part begins that is marked by the change of role at POS.
That is POS, a line further down, or nil if POS marks none."
  (let ((before (and (> pos (point-min)) (get-text-property (1- pos) 'gptel)))
        (role (get-text-property pos 'gptel)))
    (cond ((= pos (point-min)) pos)
          ((or (consp before) (equal before role)) nil) ; within a tool's fence
          ((eq (char-before pos) ?\n) pos)
          ((null role)                  ; the empty line before a prompt
           (save-excursion
             (goto-char pos)
             (and (> (skip-chars-forward "\n" (min (point-max) (+ pos 3))) 0)
                  (null (get-text-property (1- (point)) 'gptel))
                  (point)))))))

(defun pyagentd-syntax--start (pos)
  "Return where the part with POS begins."
  (let ((limit (max (point-min) (- pos pyagentd-syntax--reach)))
        (here pos) start)
    (while (null start)
      (let ((boundary (pyagentd-syntax--boundary here)))
        (cond ((and boundary (<= boundary pos)) (setq start boundary))
              ((<= here limit)          ; a line not far above it
               (setq start (save-excursion
                             (goto-char limit)
                             (if (search-backward
                                  "\n" (max (point-min) (- limit 2000)) t)
                                 (1+ (point))
                               limit))))
              (t (setq here (previous-single-property-change
                             here 'gptel nil limit))))))
    start))

(defun pyagentd-syntax--end (pos)
  "Return where the part with POS ends, which is behind POS."
  (let ((limit (min (point-max) (+ pos pyagentd-syntax--reach)))
        (here pos) end)
    (while (null end)
      (setq here (next-single-property-change here 'gptel nil limit))
      (let ((boundary (and (< here (point-max))
                           (pyagentd-syntax--boundary here))))
        (cond ((and boundary (> boundary pos)) (setq end boundary))
              ((>= here limit) (setq end limit)))))
    end))

(defmacro pyagentd-syntax--in-part (pos &rest body)
  "Evaluate BODY with the buffer narrowed to the part with POS."
  (declare (indent 1) (debug t))
  (let ((start (make-symbol "start")) (end (make-symbol "end")))
    `(save-restriction
       (widen)
       (let ((,start (pyagentd-syntax--start ,pos))
             (,end (pyagentd-syntax--end ,pos)))
         (narrow-to-region ,start ,end)
         ,@body))))

;;;; Finding the syntax

(defun pyagentd-syntax--unknown (end)
  "Return from where up to END the syntax is to be found, nil if it is known."
  (let ((pos (point-min)) unknown)
    (while (and (null unknown) (< pos end))
      (if (and (get-text-property pos 'pyagentd-syntax)
               (eql (get-text-property pos 'pyagentd-syntax-at)
                    (save-restriction
                      (widen)
                      (previous-single-property-change
                       (1+ pos) 'pyagentd-syntax-at nil (point-min)))))
          (setq pos (next-single-property-change pos 'pyagentd-syntax-at
                                                 nil end))
        (setq unknown pos)))
    unknown))

(defun pyagentd-syntax--find (end)
  "Find the syntax of the accessible text up to END where it is not known."
  (when-let ((start (pyagentd-syntax--unknown end)))
    (with-silent-modifications
      (let ((done (save-restriction
                    ;; With the newline before: Markdown takes a line of
                    ;; dashes at the beginning for that of metadata.
                    (let ((start (max 1 (1- (point-min)))) (end (point-max)))
                      (widen)
                      (narrow-to-region start end))
                    (let ((syntax-propertize-function pyagentd-syntax--function)
                          (syntax-propertize--done start))
                      (syntax-propertize end)
                      (min syntax-propertize--done (point-max))))))
        (add-text-properties start (max end done)
                             (list 'pyagentd-syntax t
                                   'pyagentd-syntax-at start))
        (when (bound-and-true-p markdown-make-gfm-checkboxes-buttons)
          (save-excursion
            (save-match-data
              (markdown-make-gfm-checkboxes-buttons start (max end done)))))))))

(defun pyagentd-syntax-forget (beg end)
  "Note that the text between BEG and END has changed."
  (when pyagentd-syntax--function
    (save-restriction
      (widen)
      (with-silent-modifications
        (remove-text-properties
         (max (point-min) (1- (min beg (point-max)))) ; others may have shortened it
         (if (< end (point-max)) (pyagentd-syntax--end end) (point-max))
         '(pyagentd-syntax nil pyagentd-syntax-at nil))))))

;;;; Where it is used

(defun pyagentd-syntax--extending (function)
  "Return FUNCTION, one of `font-lock-extend-region-functions', for a part.
Font-lock calls such a function again as long as it says that it has
extended the region.  At the end of a part one may say so for ever,
since it looks at the text behind."
  (lambda ()
    (let ((beg font-lock-beg) (end font-lock-end))
      (funcall function)
      (not (and (= beg font-lock-beg) (= end font-lock-end))))))

(defun pyagentd-syntax--fontify (fontify beg end &optional loudly)
  "Call FONTIFY for each part between BEG and END.
LOUDLY is passed on.  The value is for `jit-lock-functions'."
  (let ((pos beg) (font-lock-dont-widen t) first last
        (font-lock-extend-region-functions
         (mapcar #'pyagentd-syntax--extending
                 font-lock-extend-region-functions)))
    (while (< pos end)
      (pyagentd-syntax--in-part pos
        (let ((stop (min end (point-max))))
          (pyagentd-syntax--find stop)
          (pcase (cl-letf (((symbol-function 'markdown-match-generic-metadata)
                            ;; A part that begins with a line such as "Look:"
                            ;; has none.
                            (lambda (_regexp last) (goto-char last) nil)))
                   (funcall fontify pos stop loudly))
            (`(jit-lock-bounds ,from . ,to)
             (setq first (min from (or first from))
                   last (max to (or last to)))))
          (setq pos stop))))
    (and first `(jit-lock-bounds ,(min first beg) . ,(max last end)))))

(defun pyagentd-syntax--extend (beg end length)
  "Find out how far a change has effects, within the part.
BEG, END and LENGTH are as in `after-change-functions'."
  (setq beg (min beg (point-max))       ; others may have shortened the text
        end (min end (point-max)))
  (dolist (function pyagentd-syntax--extend)
    (if (eq function 'markdown-font-lock-extend-region-function)
        (pyagentd-syntax--extend-block beg end)
      (pyagentd-syntax--in-part (if (< beg (point-max)) beg
                                  (max (point-min) (1- beg)))
        (when (<= end (point-max))      ; of the part
          (funcall function beg end length))))))

(defun pyagentd-syntax--extend-block (beg end)
  "Let the block of Markdown be fontified in which BEG to END has changed.
What `markdown-mode' does about it looks at more than the part, and to
narrow to the part makes Emacs 29 look at the whole buffer for long
lines before it shows the key."
  (save-match-data
    (save-excursion
      (save-restriction
        (widen)
        (let* ((inside (if (< beg (point-max)) beg (max (point-min) (1- beg))))
               (first (pyagentd-syntax--start inside))
               (last (max end (pyagentd-syntax--end inside))))
          (setq jit-lock-start
                (min jit-lock-start
                     (pyagentd-syntax--block-start beg first))
                jit-lock-end
                (max jit-lock-end (pyagentd-syntax--block-end end last))))))))

(defun pyagentd-syntax--block-start (pos first)
  "Return where the block with POS begins, FIRST or behind it."
  (goto-char pos)
  (skip-chars-forward "\n")
  (let ((start (if (search-backward "\n\n" first t) (min pos (match-end 0))
                 first)))
    (max first (min start (pyagentd-syntax--code #'car start)))))

(defun pyagentd-syntax--block-end (pos last)
  "Return where the block with POS ends, LAST or before it."
  (goto-char pos)
  (skip-chars-backward "\n")
  (let ((end (if (search-forward "\n\n" last t) (max pos (match-beginning 0))
               last)))
    (min last (if (< pos (point-max))
                  (max end (pyagentd-syntax--code #'cadr pos))
                end))))

(defun pyagentd-syntax--code (bound pos)
  "Return BOUND, a function, of the block of code with POS, or POS if in none."
  (or (and (fboundp 'markdown-code-block-at-pos)
           (funcall bound (markdown-code-block-at-pos pos)))
      pos))

(defun pyagentd-syntax--parens (find)
  "Call FIND, the function that finds parentheses, within the part.
It would parse all text before point."
  (pyagentd-syntax--in-part (point)
    (funcall find)))

(defun pyagentd-syntax-install ()
  "Let the syntax of this buffer be found part by part, if the mode has any."
  (when (and syntax-propertize-function (not pyagentd-syntax--function))
    (setq pyagentd-syntax--function syntax-propertize-function)
    (syntax-ppss-flush-cache 1)
    (pyagentd-syntax-forget 1 (1+ (buffer-size)))
    (setq-local syntax-propertize-function nil
                parse-sexp-lookup-properties t
                ;; It parses all text before point, at every key.
                jit-lock-antiblink-grace nil)
    (add-function :around (local 'font-lock-fontify-region-function)
                  #'pyagentd-syntax--fontify)
    (add-function :around (local 'show-paren-data-function)
                  #'pyagentd-syntax--parens)
    (setq pyagentd-syntax--extend
          ;; That of font-lock looks at lines.
          (seq-difference jit-lock-after-change-extend-region-functions
                          '(t font-lock-extend-jit-lock-region-after-change)
                          #'eq))
    (dolist (function pyagentd-syntax--extend)
      (remove-hook 'jit-lock-after-change-extend-region-functions function t))
    (add-hook 'jit-lock-after-change-extend-region-functions
              #'pyagentd-syntax--extend nil t)))

(defun pyagentd-syntax-remove ()
  "Undo `pyagentd-syntax-install'."
  (when pyagentd-syntax--function
    (remove-hook 'jit-lock-after-change-extend-region-functions
                 #'pyagentd-syntax--extend t)
    (dolist (function pyagentd-syntax--extend)
      (add-hook 'jit-lock-after-change-extend-region-functions function t t))
    (remove-function (local 'font-lock-fontify-region-function)
                     #'pyagentd-syntax--fontify)
    (remove-function (local 'show-paren-data-function)
                     #'pyagentd-syntax--parens)
    (setq-local syntax-propertize-function pyagentd-syntax--function)
    (kill-local-variable 'jit-lock-antiblink-grace)
    (syntax-ppss-flush-cache 1)
    (pyagentd-syntax-forget 1 (1+ (buffer-size)))
    (setq pyagentd-syntax--function nil
          pyagentd-syntax--extend nil)))

(provide 'pyagentd-large)
;;; pyagentd-large.el ends here

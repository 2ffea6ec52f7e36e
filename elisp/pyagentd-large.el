;;; pyagentd-large.el --- Speed of large conversations -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Keep garbage collection and fontification of large conversations fast.

;;; Code:

(require 'paren)
(require 'pyagentd-core)

;;;; Garbage collection in pauses

;; With a long conversation in a buffer a garbage collection takes 20 to
;; 60 ms, and by default one happens for every 800 kB of garbage: with twenty
;; agents that is a fifth of all time, and most of the latency of a key.  So
;; while answers stream the threshold is raised, and garbage is collected
;; when they pause.  If the user types meanwhile, garbage is collected
;; between two keys, right after a key is displayed, rather than while a key
;; waits.

(defcustom pyagentd-gc-threshold (* 32 1024 1024)
  "Minimum of `gc-cons-threshold' while answers stream, in bytes.
nil means do not change it."
  :type '(choice natnum (const :tag "Leave it alone" nil))
  :group 'pyagentd)

(defconst pyagentd-gc--pause 1.0
  "Seconds that the effect of `pyagentd-gc-postpone' lasts after its last call.")

(defvar pyagentd-gc--usual nil
  "Value of `gc-cons-threshold' to restore, nil if it was not changed.")
(defvar pyagentd-gc--latest 0.0
  "Time (`float-time') of the latest call of `pyagentd-gc-postpone'.")

(defvar pyagentd-gc--base nil
  "Value of function `pyagentd-gc--made' at the latest collection.
Nil before the first call of `pyagentd-gc-postpone'.")

(defun pyagentd-gc--made ()
  "Return the number of bytes of Lisp data allocated since Emacs started."
  (pcase-let ((`(,conses ,floats ,cells ,symbols ,chars ,intervals ,strings)
               (memory-use-counts)))
    (+ (* 16 conses) (* 8 floats) (* 8 cells) (* 48 symbols)
       chars (* 56 intervals) (* 32 strings))))

(defun pyagentd-gc--collected ()
  "Record that garbage was collected."
  (setq pyagentd-gc--base (pyagentd-gc--made)))

(defvar pyagentd-gc--timers nil
  "Idle timers that collect between two keys while `pyagentd-gc--usual' is set.")

(defun pyagentd-gc-postpone ()
  "Raise the GC threshold until one second after the last call."
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
  "Restore the GC threshold, or wait longer: for the pause, or pending input."
  (let ((left (- (+ pyagentd-gc--latest pyagentd-gc--pause) (float-time))))
    (cond ((> left 0.01)
           (run-at-time left nil #'pyagentd-gc--on-timer))
          ((input-pending-p)
           (run-at-time 0.05 nil #'pyagentd-gc--on-timer))
          (t
           ;; Keep a value that others have set meanwhile.
           (when (eql gc-cons-threshold pyagentd-gc-threshold)
             (setq gc-cons-threshold pyagentd-gc--usual))
           (mapc #'cancel-timer pyagentd-gc--timers)
           (setq pyagentd-gc--usual nil)))))

(defun pyagentd-gc--between-keys (delay part)
  "Collect garbage above PART of the threshold, unless input is pending.
DELAY is the idle timer's delay in seconds.  Do nothing if Emacs has been idle
for much longer: a key may come now, and the next pause is better."
  (when (and (> (- (pyagentd-gc--made) (or pyagentd-gc--base 0))
                (* part gc-cons-threshold))
             (< (float-time (or (current-idle-time) 0)) (+ delay 0.03))
             (not (input-pending-p)))
    (garbage-collect)))

;;;; Syntax of visible parts of long conversations

;; A mode with `syntax-propertize-function', such as `markdown-mode', scans
;; all text before point: two microseconds a character, so ten seconds when
;; point goes to the end of five megabytes, and again whenever text far above
;; was changed.
;;
;; But the parts of a conversation are independent of each other: a fence
;; that an answer did not close is not open in the next prompt.  So the buffer
;; is narrowed to each part when that is fontified, and its syntax scanned
;; then.  A part is the text between two changes of the role at the beginning
;; of a line; in a long part the scan starts at a line not far above.
;;
;; Scanned text has the property `pyagentd-syntax'.  `markdown-mode' stores
;; positions in text properties, which become wrong when text above becomes
;; longer or shorter: `pyagentd-syntax-at' is the position of the text when it
;; was scanned.

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
  "Maximal distance of a part's beginning or end from the fontified position.
Scanning so many characters of Markdown takes 40 ms.")

(defvar-local pyagentd-syntax--function nil
  "The major mode's `syntax-propertize-function' while it is replaced.")
(defvar-local pyagentd-syntax--extend nil
  "The replaced functions that extend the region to fontify after a change.")

;;;; Parts

(defun pyagentd-syntax--boundary (pos)
  "Return the beginning of the part that the change of role at POS starts.
That is POS, or a line further down, or nil if POS starts none."
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
  "Return the beginning of the part that contains POS."
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
  "Return the end of the part that contains POS; it is greater than POS."
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
  "Evaluate BODY with the buffer narrowed to the part that contains POS."
  (declare (indent 1) (debug t))
  (let ((start (make-symbol "start")) (end (make-symbol "end")))
    `(save-restriction
       (widen)
       (let ((,start (pyagentd-syntax--start ,pos))
             (,end (pyagentd-syntax--end ,pos)))
         (narrow-to-region ,start ,end)
         ,@body))))

;;;; Scanning

(defun pyagentd-syntax--unknown (end)
  "Return the first position before END that is not scanned, or nil."
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
  "Scan the accessible text up to END where that is not done yet."
  (when-let ((start (pyagentd-syntax--unknown end)))
    (with-silent-modifications
      (let ((done (save-restriction
                    ;; With the newline before: at the beginning of the text
                    ;; Markdown takes a line of dashes for metadata.
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
  "Mark the text between BEG and END, which has changed, as not scanned."
  (when pyagentd-syntax--function
    (save-restriction
      (widen)
      (with-silent-modifications
        (remove-text-properties
         (max (point-min) (1- (min beg (point-max)))) ; others may have shortened it
         (if (< end (point-max)) (pyagentd-syntax--end end) (point-max))
         '(pyagentd-syntax nil pyagentd-syntax-at nil))))))

;;;; Fontification

(defun pyagentd-syntax--extending (function)
  "Return FUNCTION, one of `font-lock-extend-region-functions', for a part.
The result returns non-nil only if FUNCTION has changed the region: Font Lock
repeats the call then.  Some functions always return non-nil at the end of a
part, since they look at the text behind it: that would be an endless loop."
  (lambda ()
    (let ((beg font-lock-beg) (end font-lock-end))
      (funcall function)
      (not (and (= beg font-lock-beg) (= end font-lock-end))))))

(defun pyagentd-syntax--fontify (fontify beg end &optional loudly)
  "Call FONTIFY for each part between BEG and END.
LOUDLY is passed on.  Return a value for `jit-lock-functions'."
  (let ((pos beg) (font-lock-dont-widen t) first last
        (font-lock-extend-region-functions
         (mapcar #'pyagentd-syntax--extending
                 font-lock-extend-region-functions)))
    (while (< pos end)
      (pyagentd-syntax--in-part pos
        (let ((stop (min end (point-max))))
          (pyagentd-syntax--find stop)
          (pcase (cl-letf (((symbol-function 'markdown-match-generic-metadata)
                            ;; A first line such as "Look:" is no metadata.
                            (lambda (_regexp last) (goto-char last) nil)))
                   (funcall fontify pos stop loudly))
            (`(jit-lock-bounds ,from . ,to)
             (setq first (min from (or first from))
                   last (max to (or last to)))))
          (setq pos stop))))
    (and first `(jit-lock-bounds ,(min first beg) . ,(max last end)))))

(defun pyagentd-syntax--extend (beg end length)
  "Extend the region to fontify after a change, within the part.
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
  "Extend the region to fontify to the Markdown block around BEG to END.
The function of `markdown-mode' for that looks beyond the part, and narrowing
to the part makes Emacs 29 search the whole buffer for long lines before it
displays the key."
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
  "Return the beginning of the block that contains POS, FIRST at least."
  (goto-char pos)
  (skip-chars-forward "\n")
  (let ((start (if (search-backward "\n\n" first t) (min pos (match-end 0))
                 first)))
    (max first (min start (pyagentd-syntax--code #'car start)))))

(defun pyagentd-syntax--block-end (pos last)
  "Return the end of the block that contains POS, LAST at most."
  (goto-char pos)
  (skip-chars-backward "\n")
  (let ((end (if (search-forward "\n\n" last t) (max pos (match-beginning 0))
               last)))
    (min last (if (< pos (point-max))
                  (max end (pyagentd-syntax--code #'cadr pos))
                end))))

(defun pyagentd-syntax--code (bound pos)
  "Apply BOUND to the code block that contains POS; return POS without one."
  (or (and (fboundp 'markdown-code-block-at-pos)
           (funcall bound (markdown-code-block-at-pos pos)))
      pos))

(defun pyagentd-syntax--parens (find)
  "Call FIND, which finds matching parentheses, within the part.
Otherwise it would parse all text before point."
  (pyagentd-syntax--in-part (point)
    (funcall find)))

(defun pyagentd-syntax-install ()
  "Scan the syntax of this buffer part by part, if the mode needs scanning."
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
          ;; Font Lock's own extends to whole lines: keep it.
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

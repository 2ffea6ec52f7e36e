;;; keys.el --- What tests of commands share -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Typing into Emacs, and rows as the daemon tells them.

;;; Code:

(require 'test-helper)

(defun pyagentd-test-settled-p ()
  "Return non-nil if no answer is awaited and none has still to be used."
  (and (null pyagentd-rpc--pending)
       (not (process-live-p pyagentd-start--process))
       (not pyagentd-events--timer)
       (not (seq-some (lambda (timer)
                        (eq (timer--function timer) #'pyagentd-later--give))
                      timer-list))))

(defun pyagentd-test-settle ()
  "Wait until all that was asked of the daemon is done with its answer."
  (unless (minibufferp)
    (pyagentd-test-await (pyagentd-test-settled-p))))

(defmacro pyagentd-test-said (&rest body)
  "Evaluate BODY, wait for the daemon, and return what was said last."
  (declare (indent 0) (debug t))
  `(let (said)
     (cl-letf (((symbol-function 'message)
                (lambda (format &rest args)
                  (when format (setq said (apply #'format format args))))))
       ,@body
       (pyagentd-test-settle))
     said))

(defun pyagentd-test-type (keys)
  "Type KEYS, in the notation of `kbd', into the current buffer.
Minibuffers read them as a person's, who waits for the daemon after each
command."
  (let ((position (point)))
    (switch-to-buffer (current-buffer))
    (goto-char position))
  (let ((current-prefix-arg nil))       ; else a prefix typed here stays
    (add-hook 'post-command-hook #'pyagentd-test-settle -90)
    (unwind-protect (execute-kbd-macro (kbd keys))
      (remove-hook 'post-command-hook #'pyagentd-test-settle))))

(defmacro pyagentd-test-with-options (seen &rest body)
  "Evaluate BODY; what `completing-read' offers meanwhile is put into SEEN.
That is a list (LABEL ANNOTATION) for each candidate, in the order shown."
  (declare (indent 1) (debug t))
  `(let ((minibuffer-setup-hook
          (cons (lambda ()
                  (unless (or (null minibuffer-completion-table)
                              (string-search "M-x " (minibuffer-prompt)))
                    (setq ,seen (pyagentd-test--options))))
                minibuffer-setup-hook)))
     ,@body))

(defun pyagentd-test--options ()
  "Return what the minibuffer that reads now offers."
  (let* ((table minibuffer-completion-table)
         (metadata (completion-metadata "" table nil))
         (sort (completion-metadata-get metadata 'display-sort-function))
         (annotate (or (completion-metadata-get metadata 'annotation-function)
                       (plist-get completion-extra-properties
                                  :annotation-function)
                       #'ignore)))
    (mapcar (lambda (label) (list label (funcall annotate label)))
            (funcall (or sort #'identity) (all-completions "" table nil)))))

(defun pyagentd-test-answer (method value)
  "Tell the daemon to answer METHOD with VALUE."
  (pyagentd-test-tell 'fake-answer (prin1-to-string value) method))

(defun pyagentd-test-refuse (method message &optional hint)
  "Tell the daemon to refuse METHOD with MESSAGE and MEND."
  (pyagentd-test-tell 'fake-error (format "(busy %S :hint %S)" message hint)
                      method))

(defun pyagentd-test-row (root path &rest more)
  "Make the session.md of PATH under ROOT and return its row, with MORE keys.
PATH is ID/branches/NAME or one with /agents/NAME after it."
  (let* ((dir (expand-file-name (concat "sessions/" path) root))
         (file (pyagentd-test-file root "### Hi\n"
                                   (concat "sessions/" path "/session.md")))
         (place (pyagentd-place-of file)))
    (append more
            (list :branch dir :branch-dir dir :file file
                  :session-id (plist-get place :session-id)
                  :session-dir (plist-get place :session-dir)
                  :branch-name (plist-get place :branch-name)
                  :agent (plist-get place :agent)
                  :preset "programmer" :state 'idle))))

(defun pyagentd-test-view (columns rows &optional actions &rest more)
  "Return a list as the daemon tells it, with MORE keys.
COLUMNS are strings; ROWS lists (ID FACTS VISIT CELL...), a cell being a
string or a plist, the label of a row being its ID; ACTIONS are plists."
  (append
   more
   (list :title "Things" :empty "Nothing." :actions actions
         :columns (mapcar (lambda (title) (list :title title :width 12 :sorts t))
                          columns)
         :rows (mapcar
                (pcase-lambda (`(,id ,facts ,visit . ,cells))
                  (list :id id :label id :facts facts :visit visit
                        :cells (mapcar (lambda (cell)
                                         (if (stringp cell) (list :text cell)
                                           cell))
                                       cells)))
                rows))))

(defun pyagentd-test-lines ()
  "Return the lines of the current buffer without what is right of them."
  (mapcar #'string-trim-right (split-string (buffer-substring-no-properties
                                             (point-min) (point-max))
                                            "\n" t)))

(provide 'keys)
;;; keys.el ends here

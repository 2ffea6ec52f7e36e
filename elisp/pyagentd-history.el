;;; pyagentd-history.el --- Take turns back, ask again -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;; This program is free software; you can redistribute it and/or modify
;; it under the terms of the GNU General Public License as published by
;; the Free Software Foundation, either version 3 of the License, or
;; (at your option) any later version.

;; This program is distributed in the hope that it will be useful,
;; but WITHOUT ANY WARRANTY; without even the implied warranty of
;; MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
;; GNU General Public License for more details.

;; You should have received a copy of the GNU General Public License
;; along with this program.  If not, see <https://www.gnu.org/licenses/>.

;;; Commentary:

;; `pyagentd-rewind' takes everything after a prompt back; nothing is
;; deleted, and `pyagentd-unrewind' reverses it.  `pyagentd-edit-prompt'
;; sends a prompt in other words, `pyagentd-regenerate' the same again;
;; what was said before is a variant of what is said then, and
;; `pyagentd-next-variant' shows the others, each with the turns that came
;; after it.

;;; Code:

(require 'cl-lib)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-env)
(require 'pyagentd-place)
(require 'pyagentd-later)
(require 'pyagentd-session)
(require 'pyagentd-attached)
(require 'pyagentd-chat)
(require 'pyagentd-here)
(require 'pyagentd-manage)
(require 'pyagentd-branch)
(require 'pyagentd-hidden)

(defconst pyagentd-history--patience 60
  "Seconds to wait for an operation: a long text is compared with its log.")

;;;; Asking the daemon

(defun pyagentd-history--prepare (then)
  "Save and attach this buffer, whose text the daemon is to change; call THEN."
  (pyagentd-chat-when-ready then t))

(defun pyagentd-history--call (operation arguments then &optional late failure)
  "Have the daemon do OPERATION with ARGUMENTS, a plist, on this branch.
THEN is called with its answer, in this buffer, and may ask something;
LATE, if it comes too late; FAILURE with an error, which else is said."
  (pyagentd-later-asking operation
                         (append (list :branch pyagentd--branch-dir) arguments)
                         then pyagentd-history--patience failure late))

(defun pyagentd-history--run (operation arguments &optional then failure)
  "Have the daemon do OPERATION, which starts a run, with ARGUMENTS, a plist.
THEN is called when it has begun, FAILURE with an error, which else is
said."
  (pyagentd-history--call
   operation
   (append arguments (list :env (pyagentd-env-variables) :key (pyagentd-env-key)
                           :allow nil))
   (lambda (_) (when then (funcall then)))
   nil failure))

(defun pyagentd-history--call-in-base (function)
  "Call FUNCTION with the position of point in the session buffer.
That is a marker: while FUNCTION asks, point may follow an answer."
  (let ((position (point)))
    (with-current-buffer (or (buffer-base-buffer) (current-buffer))
      (funcall function (copy-marker position)))))

(defmacro pyagentd-history--in-base (position &rest body)
  "Evaluate BODY in the session buffer, with point there as POSITION."
  (declare (indent 1) (debug (symbolp body)))
  `(pyagentd-history--call-in-base (lambda (,position) ,@body)))

;;;; Prompts

(defun pyagentd-history--with-points (then)
  "Call THEN with the prompts in the text that were sent, first one first.
See `pyagentd-branch-with-points'."
  (pyagentd-branch-with-points
   (lambda (points)
     (funcall then (seq-filter (lambda (point) (plist-get point :message-id))
                               points)))))

(defun pyagentd-history--at (points position)
  "Return the one of POINTS, prompts, that POSITION is in, or nil."
  (seq-find (lambda (point)
              (<= (plist-get point :start) position (plist-get point :end)))
            points))

(defun pyagentd-history--read (prompts prompt)
  "Read one of PROMPTS, as the daemon tells them, with PROMPT; return its id."
  (let* ((all (reverse prompts))
         (number (length all))
         (labels (mapcar
                  (lambda (each)
                    (cons (format "%d  %s" (1+ (cl-decf number))
                                  (truncate-string-to-width
                                   (replace-regexp-in-string
                                    "[ \t\n]+" " "
                                    (string-trim (plist-get each :text)))
                                   70 nil nil "…"))
                          (plist-get each :message-id)))
                  all)))
    (unless labels (user-error "No prompt was sent yet"))
    (cdr (assoc (completing-read
                 (format-prompt prompt (caar labels))
                 (pyagentd-branch--table (mapcar #'car labels)
                                         'pyagentd-prompt #'ignore)
                 nil t nil nil (caar labels))
                labels))))

(defun pyagentd-history--choose (prompt then)
  "Read one of the prompts of this conversation with PROMPT.
THEN is called with its id."
  (pyagentd-history--call
   'history nil
   (lambda (answer)
     (funcall then (pyagentd-history--read (plist-get answer :prompts)
                                          prompt)))))

;;;; Rewinding

;;;###autoload
(defun pyagentd-rewind (&optional arg)
  "Rewind to the prompt at point, or to one that you choose.
What follows it stays in the text, folded; the model no longer sees it.
With a prefix argument ARG undo the last rewind; with two, also restore
the files that those turns changed."
  (interactive "P")
  (if (and arg (not (equal arg '(16))))
      (pyagentd-unrewind)
    (pyagentd-history--in-base position
      (pyagentd-history--prepare
       (lambda ()
         (pyagentd-history--with-points
          (lambda (points)
            (let ((rewind (lambda (message)
                            (pyagentd-history--rewind message (and arg t)))))
              (if-let ((here (pyagentd-history--at points position)))
                  (funcall rewind (plist-get here :message-id))
                (pyagentd-history--choose "Rewind to prompt" rewind))))))))))

(defun pyagentd-history--rewind (message files)
  "Take back everything after the prompt MESSAGE; with FILES restore those."
  (pyagentd-history--call 'rewind (list :message message :files files)
                          #'pyagentd-history--rewound))

(defun pyagentd-history--rewound (answer)
  "Say what ANSWER tells about a rewind."
  (let ((restored (plist-get (plist-get answer :files) :restored)))
    (message "%s; %s"
             (if (plist-get answer :hidden)
                 (format "%s hidden%s"
                         (pyagentd-count (length (plist-get answer :hidden))
                                         "message")
                         (if restored
                             (format ", %s restored"
                                     (pyagentd-count (length restored) "file"))
                           ""))
               "Nothing to rewind after this prompt")
             (substitute-command-keys
              "\\<pyagentd-mode-map>C-u \\[pyagentd-rewind] undoes it"))))

;;;###autoload
(defun pyagentd-unrewind ()
  "Undo the last rewind, unless a prompt was sent since."
  (interactive)
  (pyagentd-history--in-base _
    (pyagentd-history--prepare
     (lambda ()
       (pyagentd-history--call
        'unrewind nil
        (lambda (answer)
          (message "%s back" (pyagentd-count (length (plist-get answer :shown))
                                             "message"))))))))

;;;; Asking again

;;;###autoload
(defun pyagentd-regenerate (&optional choose)
  "Regenerate the last answer; the one so far is kept as a variant.
With a prefix argument, or CHOOSE from Lisp, choose the prompt; what
followed it belongs to that variant.  See `pyagentd-next-variant'."
  (interactive "P")
  (pyagentd-history--in-base _
    (pyagentd-history--prepare
     (lambda ()
       (let ((answer (lambda (message)
                       (pyagentd-history--run 'regenerate
                                              (list :message message)))))
         (if choose (pyagentd-history--choose "Answer again" answer)
           (funcall answer nil)))))))

(defun pyagentd-history--turn (step)
  "Show the variant STEP further on of the message at or before point.
Where none is known here the daemon says which there are."
  (pyagentd-history--in-base position
    (if-let ((variant (save-excursion (goto-char position)
                                      (pyagentd-hidden-variant))))
        (pyagentd-history--choose-variant variant step)
      (pyagentd-history--call
       'history nil
       (lambda (answer)
         (if-let ((last (car (last (plist-get answer :variants)))))
             (pyagentd-history--choose-variant (nthcdr 2 last) step)
           (user-error "There are no variants; %s makes one"
                       (substitute-command-keys
                        "\\<pyagentd-mode-map>\\[pyagentd-regenerate]"))))))))

(defun pyagentd-history--choose-variant (variant step)
  "Show the variant STEP further on than VARIANT, (MESSAGE NUMBER OF)."
  (pcase-let* ((`(,message ,number ,of) variant)
               (next (1+ (mod (+ number step -1) of))))
    (pyagentd-history--prepare
     (lambda ()
       (pyagentd-history--call
        'choose-variant (list :message message :n next)
        (lambda (_) (message "Variant %d/%d" next of)))))))

;;;###autoload
(defun pyagentd-next-variant ()
  "Show the next variant of the message at or before point.
After the last comes the first.  The turns that came after a variant
come and go with it."
  (interactive)
  (pyagentd-history--turn 1))

;;;###autoload
(defun pyagentd-previous-variant ()
  "Show the variant before this one of the message at or before point."
  (interactive)
  (pyagentd-history--turn -1))

;;;; Editing a prompt

(defvar-local pyagentd-history--session nil
  "Buffer of the session whose prompt is edited here.")
(defvar-local pyagentd-history--message nil
  "Id of the prompt that is edited here.")

(defvar pyagentd-edit-prompt-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'pyagentd-edit-prompt-finish)
    (define-key map (kbd "C-c C-k") #'pyagentd-edit-prompt-cancel)
    map)
  "Keymap of `pyagentd-edit-prompt-mode'.")

(define-minor-mode pyagentd-edit-prompt-mode
  "Minor mode of buffers with a prompt that is edited to be sent again.

\\{pyagentd-edit-prompt-mode-map}"
  :lighter " Prompt"
  :interactive nil
  (setq header-line-format
        (and pyagentd-edit-prompt-mode
             (substitute-command-keys
              " Prompt   \\<pyagentd-edit-prompt-mode-map>\
\\[pyagentd-edit-prompt-finish] send it instead   \
\\[pyagentd-edit-prompt-cancel] cancel"))))

(defun pyagentd-history--text (point)
  "Return the text of the prompt POINT, a plist, as it stands here."
  (save-restriction
    (widen)
    (string-trim
     (string-remove-prefix
      pyagentd-prompt-prefix
      (buffer-substring-no-properties (plist-get point :start)
                                      (plist-get point :end))))))

(defun pyagentd-history--replace (start end old new)
  "Replace OLD, the text between START and END or a part of it, by NEW.
Return the bounds of NEW, markers, or nil if OLD is not there."
  (save-restriction
    (widen)
    (save-excursion
      (goto-char start)
      (when (search-forward old end t)
        (let ((place (match-beginning 0)))
          (replace-match new t t)
          (cons (copy-marker place t) (copy-marker (point))))))))

(defun pyagentd-history--send-edited (point text recorded)
  "Send TEXT, which the prompt POINT has become, instead of it, RECORDED.
Until the daemon has taken it the prompt is what it was."
  (let* ((place (pyagentd-history--replace (plist-get point :start)
                                           (plist-get point :end)
                                           text recorded))
         (failure (lambda (err)
                    (pyagentd-history--not-sent err place text recorded))))
    (condition-case err
        (progn
          (pyagentd-chat--save)
          (pyagentd-history--run
           'edit (list :message (plist-get point :message-id) :text text)
           nil failure))
      (error (funcall failure err)))))

(defun pyagentd-history--not-sent (err place text recorded)
  "Say that ERR kept TEXT from being sent, and let it not be lost.
It stands again where it was written, the bounds PLACE, in which RECORDED
is now; if the daemon may still take it, it is in the kill ring."
  (if (and place
           (not (memq (car err) '(pyagentd-timeout pyagentd-disconnected)))
           (pyagentd-history--replace (car place) (cdr place) recorded text))
      (message "Not sent: %s" (pyagentd-error-text err))
    (kill-new text)
    (message "%s; what you wrote is in the kill ring, %s inserts it"
             (pyagentd-error-text err)
             (substitute-command-keys "\\[yank]"))))

;;;###autoload
(defun pyagentd-edit-prompt ()
  "Edit the prompt at or before point and send it again.
A prompt that was edited in place is sent as it stands now; else it is
shown to be edited.  It and all that came after it are kept as a
variant: see `pyagentd-next-variant'."
  (interactive)
  (pyagentd-history--in-base position
    (pyagentd-history--prepare
     (lambda ()
       (pyagentd-history--with-points
        (lambda (points)
          (unless points (user-error "No prompt was sent yet"))
          (pyagentd-history--edit-point
           (or (pyagentd-history--at points position)
               (pyagentd-branch--nearest points position)))))))))

(defun pyagentd-history--edit-point (point)
  "Send the prompt POINT, a plist, as it stands now, or show it to be edited."
  (let ((message (plist-get point :message-id))
        (text (pyagentd-history--text point)))
    (pyagentd-history--call
     'prompt-text (list :message message)
     (lambda (answer)
       (let ((recorded (plist-get answer :text)))
         (if (equal text (string-trim recorded))
             (pyagentd-history--edit message text)
           (pyagentd-history--send-edited point text recorded)))))))

(defun pyagentd-history--edit (message text)
  "Show TEXT, the prompt MESSAGE, to be edited.
What was written in its place before and not sent is shown as it is."
  (let* ((session (current-buffer))
         (name (format "*prompt of %s*" pyagentd--session-id))
         (old (get-buffer name))
         (begun (and old (buffer-modified-p old))))
    (if (and begun (equal message (buffer-local-value
                                   'pyagentd-history--message old)))
        (pop-to-buffer old)
      (pop-to-buffer (if begun (generate-new-buffer name)
                       (get-buffer-create name)))
      (erase-buffer)
      (insert text)
      (goto-char (point-min))
      (text-mode)
      (setq pyagentd-history--session session
            pyagentd-history--message message)
      (set-buffer-modified-p nil)
      (pyagentd-edit-prompt-mode))))

(defun pyagentd-edit-prompt-finish ()
  "Send the prompt in this buffer in place of the old one."
  (interactive nil pyagentd-edit-prompt-mode)
  (let ((text (string-trim (buffer-string)))
        (message pyagentd-history--message)
        (buffer (current-buffer))
        (tick (buffer-chars-modified-tick)))
    (when (string-empty-p text)
      (user-error "The prompt is empty"))
    (unless (buffer-live-p pyagentd-history--session)
      (user-error "The session's buffer was killed"))
    (with-current-buffer pyagentd-history--session
      (pyagentd-history--prepare
       (lambda ()
         (pyagentd-history--run
          'edit (list :message message :text text)
          (lambda () (pyagentd-history--leave-sent buffer tick))))))))

(defun pyagentd-edit-prompt-cancel ()
  "Discard the edit of the prompt."
  (interactive nil pyagentd-edit-prompt-mode)
  (pyagentd-history--leave (current-buffer)))

(defun pyagentd-history--leave-sent (buffer tick)
  "Close BUFFER, whose text was sent, unless it was changed since TICK."
  (pyagentd-later-in buffer
    (if (= tick (buffer-chars-modified-tick))
        (pyagentd-history--leave buffer)
      (message "Sent without what you wrote since, which is still in %s"
               (buffer-name)))))

(defun pyagentd-history--leave (buffer)
  "Close BUFFER, in which a prompt was edited, unless that is done."
  (pyagentd-later-in buffer
    (set-buffer-modified-p nil)
    (if-let ((window (get-buffer-window buffer)))
        (quit-window t window)
      (kill-buffer buffer))))

;;;; Forks

;;;###autoload
(defun pyagentd-fork (&optional choose)
  "Create a session from this one up to the prompt at point, and visit it.
Elsewhere than in a prompt it is all of it; with a prefix argument, or
CHOOSE from Lisp, choose the prompt."
  (interactive "P")
  (pyagentd-history--in-base position
    (pyagentd-attached-then
     (lambda ()
       (pyagentd-session-save)
       (if choose
           (pyagentd-history--choose "Fork at prompt" #'pyagentd-history--fork)
         (pyagentd-history--with-points
          (lambda (points)
            (pyagentd-history--fork
             (plist-get (pyagentd-history--at points position)
                        :message-id)))))))))

(defun pyagentd-history--fork (message)
  "Make a session of this one up to MESSAGE, nil for all of it, and visit it."
  (pyagentd-history--call 'fork (list :message message)
                          #'pyagentd-manage-visit #'pyagentd-manage-late))

(provide 'pyagentd-history)
;;; pyagentd-history.el ends here

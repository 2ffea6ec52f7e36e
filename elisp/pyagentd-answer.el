;;; pyagentd-answer.el --- Answer what the daemon asks -*- lexical-binding: t; -*-

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

;; Commands that answer an ask: the one the notice in a conversation
;; shows, or the one at point where asks are listed.  Nothing here prompts
;; by itself, and no answer waits for the daemon.

;;; Code:

(require 'cl-lib)
(require 'pyagentd-core)
(require 'pyagentd-env)
(require 'pyagentd-later)
(require 'pyagentd-session)
(require 'pyagentd-ask)
(require 'pyagentd-ask-text)
(require 'pyagentd-ask-keys)
(require 'pyagentd-ask-lasting)
(require 'pyagentd-ask-notice)
(require 'pyagentd-ask-here)
(require 'pyagentd-chips)

(autoload 'pyagentd-ask-edit "pyagentd-ask-edit" nil t)
(autoload 'pyagentd-ask-diff "pyagentd-ask-diff" nil t)
(autoload 'pyagentd-ask-ediff "pyagentd-ask-diff" nil t)
(declare-function pyagentd-abort "pyagentd-chat")
(autoload 'pyagentd-ask-show "pyagentd-asks" nil t)
(autoload 'pyagentd-question-open "pyagentd-question")

(defun pyagentd-answer-current ()
  "Return the ask that commands here answer; signal if there is none."
  (let ((ask (or (pyagentd-ask-here)
                 (user-error (if pyagentd-ask-here-about
                                 "Already answered"
                               "No question is open here; \
M-x pyagentd-asks lists those of all sessions")))))
    (when (pyagentd-ask-answered-p ask)
      (user-error "Already answered; the daemon has yet to say so"))
    ask))

;;;; Sending

(defun pyagentd-answer--plist (ask decision reason input answers)
  "Return what to send to answer ASK: DECISION, REASON, INPUT and ANSWERS.
Who answers also says with which environment and key the run may go on: a
daemon that was started anew has none."
  (append (list :ask (pyagentd-ask-id ask) :decision decision
                :reason (or reason ""))
          (and input (list :input input))
          (and answers (list :answers answers))
          (unless (eq decision 'abort)
            (list :env (pyagentd-env-variables) :key (pyagentd-env-key)))))

(cl-defun pyagentd-answer-with (ask decision &key reason input answers then)
  "Answer ASK with DECISION, a symbol, and return at once.
REASON is told to the model.  INPUT, JSON, replaces the arguments;
ANSWERS, JSON, are to its questions.  THEN is called once the daemon has
the answer."
  (pyagentd-ask-note-answered ask t)
  (pyagentd-rpc-call-async
   'answer (pyagentd-answer--plist ask decision reason input answers)
   :timeout pyagentd-call-timeout
   :success (lambda (answer)
              (pyagentd-ask-note-answered ask nil)
              (pyagentd-ask-remove (pyagentd-ask-id ask))
              (pyagentd-ask-here-leave (pyagentd-ask-id ask))
              (unless (plist-get answer :accepted)
                (message "Somebody else answered first"))
              (when then (funcall then)))
   :error (lambda (err)
            (pyagentd-ask-note-answered ask nil)
            (pyagentd-answer--failed ask err))))

(defun pyagentd-answer--failed (ask err)
  "Say that ERR kept an answer to ASK from the daemon."
  (when (eq 'not-found (pyagentd-symbol (car-safe (cdr-safe err))))
    (pyagentd-ask-remove (pyagentd-ask-id ask)))
  (message "%s" (pyagentd-error-text err)))

;;;; Commands

(defun pyagentd-allow-once ()
  "Allow what is asked for here, this one time.
Questions of the model's are answered in a form."
  (interactive)
  (let ((ask (pyagentd-answer-current)))
    (if (pyagentd-ask-question-p ask)
        (pyagentd-question-open ask)
      (pyagentd-answer-with ask 'allow))))

(defun pyagentd-answer--lasting (ask decision)
  "Allow ASK with DECISION, which outlives this once, after confirmation.
The question names what is granted and where; only the letter y grants it."
  (unless (memq decision (pyagentd-ask-choices ask))
    (user-error "This can be allowed once or denied"))
  (when (eq ?y (read-char-choice (pyagentd-ask-lasting-question ask decision)
                                 '(?y ?n)))
    (pyagentd-answer-with ask decision)))

(defun pyagentd-allow-session ()
  "Allow what is asked for here as long as the session lives.
That is the session with all its agents.  What is granted is named and
has to be confirmed; \\[pyagentd-grants] shows and revokes it."
  (interactive)
  (pyagentd-answer--lasting (pyagentd-answer-current) 'session))

(defun pyagentd-allow-always ()
  "Allow what is asked for here always, in all sessions of the project.
What is granted is named and has to be confirmed; \\[pyagentd-grants]
shows and revokes it.  Where more rights are asked for, they are added to
the scope in preset.md."
  (interactive)
  (pyagentd-answer--lasting (pyagentd-answer-current) 'always))

(defconst pyagentd-answer--why "Reason for denying (sent to the model): "
  "How to ask for a reason.")

(defvar pyagentd-deny-reasons nil
  "Reasons for which something was denied, latest first.")

(defun pyagentd-answer--read-reason (prompt)
  "Read with PROMPT why something is denied; earlier reasons are its history."
  (read-string prompt nil 'pyagentd-deny-reasons))

(defun pyagentd-deny (reason)
  "Deny what is asked for here, not the run as a whole.
With a prefix argument read a REASON, which the model is told."
  (interactive
   (progn (pyagentd-answer-current)
          (list (and current-prefix-arg
                     (pyagentd-answer--read-reason pyagentd-answer--why)))))
  (pyagentd-answer-with (pyagentd-answer-current) 'deny :reason reason))

(defun pyagentd-deny-with-reason (reason)
  "Deny what is asked for here because of REASON, which the model is told."
  (interactive
   (progn (pyagentd-answer-current)
          (list (pyagentd-answer--read-reason
                 pyagentd-answer--why))))
  (pyagentd-deny reason))

(defun pyagentd-ask-abort ()
  "Abort the run that asks here."
  (interactive)
  (pyagentd-answer-with (pyagentd-answer-current) 'abort))

(defun pyagentd-ask-next (&optional count)
  "Let the keys answer the next of several asks, or COUNT further on."
  (interactive "p")
  (let* ((current (or (pyagentd-ask-notice-current)
                      (user-error "No question is open here")))
         (asks (with-current-buffer (or (buffer-base-buffer) (current-buffer))
                 (pyagentd-ask-in (current-buffer))))
         (place (mod (+ (seq-position asks current) (or count 1))
                     (length asks))))
    (pyagentd-ask-notice-select (nth place asks))
    (when (cdr asks)
      (message "%d of %d: %s" (1+ place) (length asks)
               (pyagentd-ask-title (nth place asks))))))

(defun pyagentd-ask-previous (&optional count)
  "Let the keys answer the previous of several asks, or COUNT further back."
  (interactive "p")
  (pyagentd-ask-next (- (or count 1))))

;;;; Any ask

(defun pyagentd-answer--read ()
  "Let the user choose among the open asks."
  (let* ((asks (or (pyagentd-ask-open) (user-error "No pending approvals")))
         (table (seq-map-indexed
                 (lambda (ask place)
                   (cons (format "%d %s" (1+ place) (pyagentd-ask-title ask))
                         ask))
                 asks)))
    (if (cdr table)
        (cdr (assoc (completing-read "Answer: " table nil t) table))
      (car asks))))

(defconst pyagentd-answer--choices
  '((pyagentd-allow-once allow "allow once")
    (pyagentd-allow-session session "for this session")
    (pyagentd-allow-always always "always in this project")
    (pyagentd-deny deny "deny") (pyagentd-deny-with-reason why "deny, why")
    (pyagentd-ask-diff diff "diff") (pyagentd-ask-show show "details")
    (pyagentd-ask-abort abort "abort the run"))
  "Commands whose keys decide, with what is decided and words.")

(defun pyagentd-answer--offered (ask)
  "Return how ASK may be answered, a list of (LETTER WORDS DECISION)."
  (let ((offered (pyagentd-ask-keys-offered ask)))
    (cl-loop for (letter command when _) in pyagentd-ask-keys
             for (_ decision words) = (assq command pyagentd-answer--choices)
             when (and decision (memq when offered))
             collect (list letter words decision))))

(defun pyagentd-answer--read-decision (ask)
  "Read how to answer ASK; return a symbol of `pyagentd-answer--choices'."
  (let ((offered (pyagentd-answer--offered ask))
        (title (truncate-string-to-width (pyagentd-ask-title ask) 200)))
    (cl-loop for key = (car (read-multiple-choice
                             title (mapcar #'butlast offered)))
             for decision = (nth 2 (assq key offered))
             while (memq decision '(show diff))
             do (if (eq decision 'show) (pyagentd-ask-show ask)
                  (pyagentd-ask-diff ask))
             finally return decision)))

(defun pyagentd-answer--choose ()
  "Answer one of the open asks as the user wants it.
That is the one here if it is a question, else one to choose."
  (let* ((here (pyagentd-ask-here))
         (ask (if (pyagentd-ask-question-p here) here (pyagentd-answer--read))))
    (if (pyagentd-ask-question-p ask)
        (pyagentd-question-open ask)
      (let ((decision (pyagentd-answer--read-decision ask)))
        (if (eq decision 'why)
            (pyagentd-answer--decide
             ask 'deny (pyagentd-answer--read-reason
                        pyagentd-answer--why)
             t)
          (pyagentd-answer--decide ask decision nil t))))))

(defun pyagentd-answer (&optional ask decision reason)
  "Answer the open questions here in a form, or choose any pending one.
The ask and how to answer it are chosen; if none is known here, the
daemon is asked for those elsewhere.  Where nothing is asked and the
last answer offers options, pick one of them.

From Lisp, answer ASK with DECISION, a symbol as `pyagentd-answer-with'
takes it, and REASON."
  (interactive)
  (cond (decision (pyagentd-answer--decide ask decision reason nil))
        ((pyagentd-ask-open) (pyagentd-answer--choose))
        (pyagentd-chips (call-interactively #'pyagentd-chips-pick))
        (t (pyagentd-later-asking
            'asks nil
            (lambda (answer)
              (pyagentd-ask-receive-all (plist-get answer :asks))
              (pyagentd-answer--choose))))))

(defun pyagentd-answer--decide (ask decision reason interactively)
  "Answer ASK with DECISION and REASON, as INTERACTIVELY chosen or not."
  (if (and interactively (memq decision '(session always)))
      (let ((pyagentd-ask-function (lambda () ask)))
        (if (eq decision 'session) (pyagentd-allow-session)
          (pyagentd-allow-always)))
    (pyagentd-answer-with ask decision :reason reason)))

;;;; Keys

(define-key pyagentd-mode-map (kbd "C-c C-r") #'pyagentd-answer)

(provide 'pyagentd-answer)
;;; pyagentd-answer.el ends here

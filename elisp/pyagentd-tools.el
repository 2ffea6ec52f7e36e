;;; pyagentd-tools.el --- Functions of Emacs as tools of agents -*- lexical-binding: t; -*-

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

;; `pyagentd-make-tool' takes what `gptel-make-tool' takes, so definitions
;; written for gptel work as they are.  A preset lists them among its tools:
;; "emacs" for all, "emacs:NAME" for one or for a category.
;;
;; A call is checked against the definition, decided, asked about and
;; audited by the daemon before the function is called here.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'json)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-offer)

(cl-defstruct (pyagentd-tool
               (:constructor nil)
               (:constructor pyagentd-tool--make
                             (&key function name description args async
                                   (category "misc") confirm (include t)
                                   timeout &allow-other-keys))
               (:copier nil))
  "A function that agents may call; see `pyagentd-make-tool'."
  function name description args async category confirm include timeout)

(defvar pyagentd-tools nil
  "Alist of the names of tools and the tools, the latest first.")

(defvar pyagentd-tools--running nil
  "Alist of questions and what stops the function that answers each.
That is a process, a timer or a function.")

(defvar pyagentd-tools-branch nil
  "Directory of the branch whose tool runs, while its function is called.")

;;;; Definitions

;;;###autoload
(defun pyagentd-make-tool (&rest slots)
  "Offer a function to the agents of sessions that this Emacs shows.
SLOTS are those of `gptel-make-tool':

:name         what the model calls it, in snake_case
:function     the function; a nested or sequence argument comes as a plist
              or vector, false as `:json-false', what is left out as nil
:description  what it does and returns, for the model
:args         a list of plists, one for each argument in their order, with
              :name, :type (a symbol of JSON Schema) and :description, and
              maybe :optional, :enum (a vector), :items, :properties,
              :required and what else JSON Schema knows
:async        non-nil means that the function gets another argument before
              the others, a function to be called with the result.  What
              it returns, if that is a process, a timer or a function, is
              ended, canceled or called when nobody waits any more
:category     a name for several tools, \"misc\" by default
:confirm      non-nil asks a human each time unless a rule allows the call;
              a function is called with the arguments and says whether; the
              symbol `always' asks whatever rules say
:include      accepted; results are always part of the conversation

Further keys are ours: :timeout is a number of seconds.  An argument with
:path, \"read\" or \"write\", is the name of a file; whether the agent may
touch it is decided before the function is called, with its true name.
One with :command is a command line, and decided about like those of
Bash, but it is not confined.

A tool of the same name is replaced.  Return the tool."
  (let* ((tool (apply #'pyagentd-tool--make slots))
         (name (pyagentd-tool-name tool)))
    (unless (and (stringp name) (functionp (pyagentd-tool-function tool)))
      (error "A tool needs a :name and a :function"))
    (setq pyagentd-tools (cons (cons name tool)
                               (assoc-delete-all name pyagentd-tools)))
    (pyagentd-offer)
    tool))

(defun pyagentd-remove-tool (name)
  "Offer the tool called NAME no longer."
  (setq pyagentd-tools (assoc-delete-all name pyagentd-tools))
  (pyagentd-offer))

(defun pyagentd-tools--definitions ()
  "Return all tools for the daemon, as JSON."
  (let ((json-false :json-false))
    (json-encode (vconcat (mapcar (lambda (entry)
                                    (pyagentd-tools--definition (cdr entry)))
                                  (reverse pyagentd-tools))))))

(defun pyagentd-tools--definition (tool)
  "Return TOOL as `json-encode' takes it."
  (let ((confirm (pyagentd-tool-confirm tool)))
    `((name . ,(pyagentd-tool-name tool))
      (description . ,(pyagentd-tool-description tool))
      (category . ,(format "%s" (or (pyagentd-tool-category tool) "misc")))
      (args . ,(vconcat (mapcar #'pyagentd-tools--json
                                (pyagentd-tool-args tool))))
      (confirm . ,(cond ((eq confirm 'always) "always")
                        ((eq confirm t) t)
                        ((functionp confirm) "function")
                        (confirm t)
                        (t :json-false)))
      ,@(when-let ((timeout (pyagentd-tool-timeout tool)))
          `((timeout . ,timeout))))))

(defun pyagentd-tools--json (value &optional key)
  "Return VALUE, part of a definition at KEY, as `json-encode' takes it."
  (cond ((and (null value) (eq key :properties)) (make-hash-table))
        ((and (null value) (memq key '(:required :enum))) [])
        ((null value) :json-false)
        ((memq value '(t :json-false :json-null :null)) value)
        ((symbolp value) (symbol-name value))
        ((vectorp value) (vconcat (mapcar #'pyagentd-tools--json value)))
        ((and (consp value) (keywordp (car value)))
         (cl-loop for (name item) on value by #'cddr
                  collect (cons (substring (symbol-name name) 1)
                                (pyagentd-tools--json item name))))
        ((consp value) (vconcat (mapcar #'pyagentd-tools--json value)))
        (t value)))

(setq pyagentd-offer-tools-function #'pyagentd-tools--definitions)

;;;; Calls

(defun pyagentd-tools--get (name)
  "Return the tool called NAME."
  (or (cdr (assoc name pyagentd-tools))
      (error "There is no tool %s here any more" name)))

(defun pyagentd-tools--values (tool args)
  "Return the values of ARGS, a plist, in the order TOOL wants."
  (mapcar (lambda (arg)
            (plist-get args (intern (concat ":" (plist-get arg :name)))))
          (pyagentd-tool-args tool)))

(defun pyagentd-tools--where (branch root function)
  "Call FUNCTION in the buffer of BRANCH, if any, with ROOT as directory."
  (let ((buffer (pyagentd-place-buffer branch)))
    (with-temp-buffer
      (with-current-buffer (or buffer (current-buffer))
        (let ((default-directory (file-name-as-directory root))
              (pyagentd-tools-branch branch))
          (funcall function))))))

(defun pyagentd-tools--on-confirm (facts _id reply)
  "Tell REPLY whether a human is asked about the call in FACTS."
  (let* ((tool (pyagentd-tools--get (plist-get facts :tool)))
         (values (pyagentd-tools--values tool (plist-get facts :args))))
    (pyagentd-tools--where
     (plist-get facts :branch) (plist-get facts :root)
     (lambda ()
       (funcall reply
                (list :confirm (if (apply (pyagentd-tool-confirm tool) values)
                                   t :json-false)))))))

(defun pyagentd-tools--on-call (facts id reply)
  "Make the call in FACTS, question ID, and give the result to REPLY."
  (let* ((tool (pyagentd-tools--get (plist-get facts :tool)))
         (values (pyagentd-tools--values tool (plist-get facts :args)))
         (function (pyagentd-tool-function tool))
         (reply (lambda (value)
                  (setf (alist-get id pyagentd-tools--running
                                   nil t #'equal)
                        nil)
                  (funcall reply (pyagentd-tools--result value)))))
    (pyagentd-tools--where
     (plist-get facts :branch) (plist-get facts :root)
     (lambda ()
       (pyagentd-tools--quittable
        reply
        (lambda ()
          (if (pyagentd-tool-async tool)
              (pyagentd-tools--note id (apply function reply values))
            (funcall reply (apply function values)))))))))

(defun pyagentd-tools--quittable (reply function)
  "Call FUNCTION; tell REPLY of a quit, or of an error."
  (condition-case-unless-debug err
      (let ((inhibit-quit nil))
        (funcall function))
    (quit (funcall reply '(:error t :text "The user quit it.")))
    (error (funcall reply (list :error t :text (error-message-string err))))))

(defun pyagentd-tools--note (id handle)
  "Remember HANDLE as what stops the answer to the question ID."
  (when (or (processp handle) (timerp handle)
            (and (functionp handle) (not (symbolp handle))))
    (push (cons id handle) pyagentd-tools--running)))

(defun pyagentd-tools--result (value)
  "Return VALUE, the result of a tool, as an answer."
  (cond ((and (consp value) (memq (car value) '(:text :places :error))) value)
        ((stringp value)
         (list :text (replace-regexp-in-string
                      "[\x3fff80-\x3fffff]" "�"
                      (substring-no-properties value))))
        (t (list :text (prin1-to-string value)))))

(defun pyagentd-tools--on-stop (_facts id _reply)
  "Stop what answers the question ID; nobody waits for it."
  (when-let ((handle (cdr (assoc id pyagentd-tools--running))))
    (setf (alist-get id pyagentd-tools--running nil t #'equal) nil)
    (cond ((processp handle) (delete-process handle))
          ((timerp handle) (cancel-timer handle))
          (t (funcall handle)))))

(pyagentd-offer-register "call" #'pyagentd-tools--on-call)
(pyagentd-offer-register "confirm" #'pyagentd-tools--on-confirm)
(pyagentd-offer-register "stop" #'pyagentd-tools--on-stop)

(provide 'pyagentd-tools)
;;; pyagentd-tools.el ends here

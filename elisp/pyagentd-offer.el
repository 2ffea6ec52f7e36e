;;; pyagentd-offer.el --- What this Emacs shows and can do -*- lexical-binding: t; -*-

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

;; After each connection the daemon is told what Emacs has for it: its
;; buffers and its tools.  It asks about them by events, and never waits
;; long.  Whoever knows an answer registers here; questions are answered
;; from a timer, one at a time.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-json)
(require 'pyagentd-rpc)
(require 'pyagentd-events)

(defcustom pyagentd-share-buffers t
  "Non-nil means agents read and change open files in their buffers.
They read unsaved text of files they may read.  What they write to an
open file is changed in its buffer and saved.  Nil means they work on
the files on disk only."
  :type 'boolean
  :set (lambda (symbol value)
         (set-default symbol value)
         (when (fboundp 'pyagentd-offer) (pyagentd-offer)))
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defvar pyagentd-offer-tools-function nil
  "Function that returns the definitions of the tools, as JSON; or nil.")

(defconst pyagentd-offer--inline 200000
  "Characters that an answer may have before it goes by a file.")

(defvar pyagentd-offer--answerers nil
  "Alist of what can be asked and the functions that answer.")

(defvar pyagentd-offer--spill nil
  "Directory for answers that are too long for a frame.")

(defvar pyagentd-offer--timer nil
  "Timer that tells the daemon what there is, or nil.")

;;;; Offers

(defun pyagentd-offer ()
  "Tell the daemon soon, if there is one, what Emacs has for it."
  (unless pyagentd-offer--timer
    (setq pyagentd-offer--timer
          (run-at-time 0 nil #'pyagentd-offer--tell))))

(defun pyagentd-offer--tell ()
  "Tell the daemon what Emacs has for it."
  (setq pyagentd-offer--timer nil)
  (when (pyagentd-rpc-connected-p)
    (pyagentd-guarded "Offer"
      (pyagentd-rpc-call-async
       'emacs-offer
       (list :buffers (and pyagentd-share-buffers t)
             :tools (if pyagentd-offer-tools-function
                        (funcall pyagentd-offer-tools-function)
                      "[]"))
       :success #'pyagentd-offer--taken))))

(defun pyagentd-offer--taken (answer)
  "Note where long answers go, and say what the daemon refused in ANSWER."
  (setq pyagentd-offer--spill (plist-get answer :spill))
  (dolist (refused (plist-get answer :refused))
    (pyagentd-log 'warn "A tool cannot be used: %s" (plist-get refused :why))))

(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-offer)

;;;; Questions

(defun pyagentd-offer-register (what function)
  "Have FUNCTION answer questions about WHAT, a string.
It is called with the facts, a plist, the number of the question, and a
function REPLY that takes the answer, a plist as in `pyagentd-json-of'.
It may call REPLY later; only the first answer counts.  An error in
FUNCTION is an answer with :error and :text."
  (setf (alist-get what pyagentd-offer--answerers nil nil #'equal) function))

(defun pyagentd-offer--on-emacs (_branch _seq args)
  "Answer the question in ARGS soon."
  (run-at-time 0 nil #'pyagentd-offer--answer (car args)))

(defun pyagentd-offer--answer (asked)
  "Answer ASKED, a plist with :id, :what and :facts or :path."
  (let* ((id (plist-get asked :id))
         (function (cdr (assoc (plist-get asked :what)
                               pyagentd-offer--answerers)))
         (answered nil)
         (reply (lambda (answer)
                  (unless answered
                    (setq answered t)
                    (pyagentd-offer--send id answer)))))
    (condition-case-unless-debug err
        (let ((inhibit-quit nil))       ; a save may hang
          (if function
              (funcall function
                       (pyagentd-json-plist (pyagentd-offer--text asked))
                       id reply)
            (funcall reply nil)))
      ((error quit)
       (funcall reply (list :error t :text (error-message-string err)
                            :outcome "refused"
                            :reason (error-message-string err)))))))

(defun pyagentd-offer--text (asked)
  "Return the JSON in ASKED, or in the file it names, which is deleted."
  (prog1 (pyagentd-json-text (list :json (plist-get asked :facts)
                                   :path (plist-get asked :path)))
    (when-let ((path (plist-get asked :path)))
      (delete-file path))))

(defun pyagentd-offer--send (id answer)
  "Send ANSWER, a plist, to the question ID."
  (let ((text (condition-case err (pyagentd-json-of answer)
                (error (pyagentd-json-of
                        (list :error t :outcome "refused"
                              :text (error-message-string err)
                              :reason (error-message-string err)))))))
    (pyagentd-rpc-call-async
     'emacs-answer
     (if (and pyagentd-offer--spill
              (> (string-bytes text) pyagentd-offer--inline))
         (list :id id :path (pyagentd-offer--put text))
       (list :id id :answer text))
     :error #'ignore)))

(defun pyagentd-offer--put (text)
  "Put TEXT into a private file for the daemon and return its name."
  (let ((temporary-file-directory
         (file-name-as-directory pyagentd-offer--spill))
        (coding-system-for-write (if (multibyte-string-p text) 'utf-8-unix
                                   'no-conversion)))
    (make-temp-file "emacs-" nil ".json" text)))

(pyagentd-events-register 'emacs #'pyagentd-offer--on-emacs)

(provide 'pyagentd-offer)
;;; pyagentd-offer.el ends here

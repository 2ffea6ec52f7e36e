;;; pyagentd-ask-keys.el --- One letter for each decision -*- lexical-binding: t; -*-

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

;; Each decision about an ask, and each look at it, has one letter wherever
;; asks are answered: on the question itself, in lists, beside a diff and in
;; menus.  In a conversation they are keys of the question alone, not of the
;; text: `C-c C-c' goes to the question first.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-ask)
(require 'pyagentd-ask-text)

(defconst pyagentd-ask-keys
  '((?y pyagentd-allow-once allow "once")
    (?s pyagentd-allow-session session "session")
    (?a pyagentd-allow-always always "project")
    (?d pyagentd-deny deny "deny")
    (?r pyagentd-deny-with-reason deny "deny, why")
    (?e pyagentd-ask-edit edit "edit")
    (?= pyagentd-ask-diff diff "diff")
    (?E pyagentd-ask-ediff diff "Ediff")
    (?o pyagentd-ask-show t "details")
    (?k pyagentd-ask-abort t "abort"))
  "Letters with their commands, when each is offered, and a word.
When is a symbol of `pyagentd-ask-keys-offered'.")

(defun pyagentd-ask-keys-offered (ask)
  "Return what holds of ASK: t, its choices, `edit' and `diff'."
  (append (list t)
          (pyagentd-ask-choices ask)
          (and (plist-get ask :input) (not (pyagentd-ask-scope-p ask)) '(edit))
          (and (pyagentd-ask-diff-p (or (plist-get ask :preview) "")) '(diff))))

(defun pyagentd-ask-keys-define (map)
  "Let letters run their commands in MAP, and return it."
  (pcase-dolist (`(,letter ,command . ,_) pyagentd-ask-keys map)
    (define-key map (vector letter) command)))

(defun pyagentd-ask-keys-words (&optional ask without)
  "Return letters with their words, a list of (KEY WORD).
With ASK those that it offers; none are those of the commands WITHOUT."
  (let ((offered (and ask (pyagentd-ask-keys-offered ask))))
    (delq nil
          (mapcar (pcase-lambda (`(,letter ,command ,when ,word))
                    (unless (or (memq command without)
                                (and ask (not (memq when offered))))
                      (list (string letter) word)))
                  pyagentd-ask-keys))))

(defun pyagentd-ask-keys-header (ask without)
  "Return a header line with the keys for ASK but those of commands WITHOUT."
  (mapconcat (pcase-lambda (`(,key ,word))
               (concat " " (propertize key 'face 'pyagentd-key) " " word))
             (append (pyagentd-ask-keys-words ask without) '(("q" "close")))
             " "))

(provide 'pyagentd-ask-keys)
;;; pyagentd-ask-keys.el ends here

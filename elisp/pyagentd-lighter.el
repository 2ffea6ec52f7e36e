;;; pyagentd-lighter.el --- In every mode line that something is asked -*- lexical-binding: t; -*-

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

;; Wherever in Emacs one looks the mode line says how many questions wait,
;; in whatever conversation; a click lists them.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-ask)
(require 'pyagentd-ask-words)

(defcustom pyagentd-lighter t
  "Whether mode lines show the number of pending approvals."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defvar pyagentd-lighter--text ""
  "What mode lines say of questions that wait.")
(put 'pyagentd-lighter--text 'risky-local-variable t) ; it has a keymap

(defvar pyagentd-lighter-map
  (let ((map (make-sparse-keymap)))
    (define-key map [mode-line mouse-1] 'pyagentd-asks)
    map)
  "Keymap of what mode lines say of questions.")

(defun pyagentd-lighter--words (asks)
  "Return what a mode line says of ASKS, which wait."
  (concat
   (propertize (format "%d %s" (length asks) (if (cdr asks) "asks" "ask"))
               'face 'warning 'mouse-face 'mode-line-highlight
               'local-map pyagentd-lighter-map
               'help-echo
               (concat (mapconcat (lambda (ask)
                                    (truncate-string-to-width
                                     (pyagentd-ask-title ask) 80 nil nil "…"))
                                  (seq-take asks 8) "\n")
                       "\nmouse-1: M-x pyagentd-asks"))
   " "))

(defun pyagentd-lighter--refresh ()
  "Say in mode lines what waits now."
  (let ((asks (and pyagentd-lighter
                   (seq-remove #'pyagentd-ask-answered-p
                               (pyagentd-ask-open)))))
    (setq pyagentd-lighter--text
          (if asks (pyagentd-lighter--words asks) ""))
    (when asks
      (pyagentd-lighter--install))
    (force-mode-line-update t)))

(defun pyagentd-lighter--install ()
  "Give what is said a place in mode lines, for as long as Emacs lives."
  (unless (consp global-mode-string)
    ;; A list that begins with a symbol would be a condition.
    (setq global-mode-string (list (or global-mode-string ""))))
  (add-to-list 'global-mode-string 'pyagentd-lighter--text t))

(add-hook 'pyagentd-ask-changed-hook #'pyagentd-lighter--refresh)

(provide 'pyagentd-lighter)
;;; pyagentd-lighter.el ends here

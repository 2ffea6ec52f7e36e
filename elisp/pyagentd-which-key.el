;;; pyagentd-which-key.el --- Words for keys in which-key -*- lexical-binding: t; -*-

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

;; Which-key shows what may be typed after a prefix key: here the commands
;; of this package in words, "allow once", without its name before each.
;; A binding (WORDS . COMMAND) is as good as COMMAND to all else.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-ask)
(require 'pyagentd-add)
(require 'pyagentd-keys)

(defun pyagentd-which-key--words (command)
  "Return the name of COMMAND, a symbol, as words."
  (string-replace "-" " " (string-remove-prefix "pyagentd-"
                                                (symbol-name command))))

(defun pyagentd-which-key--name (map)
  "Give the keys of MAP, and not of its parents, words."
  (pcase-dolist (`(,key . ,command) (pyagentd-keys--of map))
    (when (string-prefix-p "pyagentd-" (symbol-name command))
      (define-key map (kbd key)
        (cons (pyagentd-which-key--words command) command)))))

(defun pyagentd-which-key-set-up ()
  "Give the keys of sessions, and those for any buffer, words."
  (mapc #'pyagentd-which-key--name
        (list pyagentd-mode-map pyagentd-ask-mode-map pyagentd-command-map)))

(provide 'pyagentd-which-key)
;;; pyagentd-which-key.el ends here

;;; pyagentd-menu.el --- Menu of session commands -*- lexical-binding: t; -*-

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

;; One transient with the commands of the package.

;;; Code:

(require 'transient)
(require 'pyagentd-chat)
(require 'pyagentd-list)

(declare-function pyagentd-session "pyagentd")
(declare-function pyagentd-visit-preset "pyagentd")

;;;###autoload (autoload 'pyagentd-menu "pyagentd-menu" nil t)
(transient-define-prefix pyagentd-menu ()
  "Commands of pyagentd."
  [["Conversation"
    ("RET" "Send" pyagentd-send)
    ("k" "Abort" pyagentd-abort)
    ("t" "Take over" pyagentd-take-over)
    ("p" "Preset" pyagentd-visit-preset)]
   ["Approval"
    ("y" "Allow once" pyagentd-allow-once)
    ("n" "Deny" pyagentd-deny)
    ("a" "Answer any" pyagentd-answer)]
   ["Sessions"
    ("s" "New session" pyagentd-session)
    ("l" "List" pyagentd-list-sessions)
    ("d" "Disconnect" pyagentd-rpc-disconnect)]])

(define-key pyagentd-mode-map (kbd "C-c C-t") #'pyagentd-menu)

(provide 'pyagentd-menu)
;;; pyagentd-menu.el ends here

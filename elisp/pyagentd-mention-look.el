;;; pyagentd-mention-look.el --- Show mentions -*- lexical-binding: t; -*-

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

;; A file or an agent that a prompt mentions, and that is there, is shown
;; as a link.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-attach)
(require 'pyagentd-mention)

(defface pyagentd-mention '((t :inherit link))
  "Face of existing files and agents that a prompt mentions."
  :group 'pyagentd)

(defconst pyagentd-mention-look--regexp
  (concat "\\(?:^\\|[ \t([{\"']\\)"
          "\\(@\\([^][ \t\n@\"'(){}]*[^][ \t\n@\"'(){}.,;:!?]\\)\\)")
  "A mention; without the punctuation behind it.")

(defun pyagentd-mention-look--match (limit)
  "Find a mention of something that is there before LIMIT; for Font Lock."
  (let (found)
    (while (and pyagentd-attach-root (not found)
                (re-search-forward
                 pyagentd-mention-look--regexp limit t))
      (setq found (and (null (get-text-property (match-beginning 1) 'gptel))
                       (save-match-data
                         (pyagentd-mention-there-p
                          (match-string-no-properties 2))))))
    found))

(defun pyagentd-mention-look--show ()
  "Have mentions shown in this buffer, or no longer without the mode."
  (let ((keywords '((pyagentd-mention-look--match 1 'pyagentd-mention prepend))))
    (font-lock-remove-keywords nil keywords)
    (when (bound-and-true-p pyagentd-mode)
      (font-lock-add-keywords nil keywords t))))

(defun pyagentd-mention-look--after-major-mode ()
  "Show mentions in a session whose major mode has changed."
  (when (bound-and-true-p pyagentd-mode)
    (pyagentd-mention-look--show)))

(add-hook 'pyagentd-mode-hook #'pyagentd-mention-look--show)
(add-hook 'after-change-major-mode-hook #'pyagentd-mention-look--after-major-mode)

(provide 'pyagentd-mention-look)
;;; pyagentd-mention-look.el ends here

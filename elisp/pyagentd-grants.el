;;; pyagentd-grants.el --- Review and revoke what is allowed for longer -*- lexical-binding: t; -*-

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

;; What answers "for this session" and "always in this project" have left:
;; each grant with the exact expression that actions must match, to be
;; looked through and revoked.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-here)
(require 'pyagentd-later)
(require 'pyagentd-table)
(require 'pyagentd-follow)

(defvar-local pyagentd-grants--branch nil
  "The branch whose grants are listed, as on the wire.")
(defvar-local pyagentd-grants--root nil
  "The directory of the project, nil if unknown.")

(defun pyagentd-grants--where (grant)
  "Return how long GRANT holds, a word."
  (if (eq 'project (pyagentd-symbol (plist-get grant :kind)))
      "project" "session"))

(defun pyagentd-grants--key (grant)
  "Return what names GRANT."
  (list (pyagentd-grants--where grant) (plist-get grant :action)))

(defun pyagentd-grants--entry (grant)
  "Return the line of GRANT."
  (list (pyagentd-grants--key grant)
        (vector (pyagentd-grants--where grant)
                (propertize (string-replace "\n" "\\n" (plist-get grant :action))
                            'face 'font-lock-string-face)
                (pyagentd-time (plist-get grant :at))
                (propertize (or (plist-get grant :by) "") 'face 'shadow))))

(defun pyagentd-grants--show (answer)
  "List the grants in ANSWER."
  (setq pyagentd-table-rows (plist-get answer :grants)
        pyagentd-grants--root (plist-get answer :root))
  (pyagentd-table-print (mapcar #'pyagentd-grants--entry pyagentd-table-rows)))

(defun pyagentd-grants--revert (&rest _)
  "Fetch the grants again."
  (pyagentd-table-ask
   (lambda ()
     (pyagentd-table-fetch 'grants (list :branch pyagentd-grants--branch)
                           #'pyagentd-grants--show))))

(defun pyagentd-grants--at-point ()
  "Return the grant at point."
  (let ((id (tabulated-list-get-id)))
    (or (seq-find (lambda (grant) (equal id (pyagentd-grants--key grant)))
                  pyagentd-table-rows)
        (user-error "No grant at point"))))

(defun pyagentd-grants-revoke ()
  "Revoke the grants that are marked, else the one at point.
Actions that match one need approval again."
  (interactive nil pyagentd-grants-mode)
  (let ((grants (pyagentd-grants--targets)))
    (when (y-or-n-p (if (cdr grants)
                        (format "Revoke %s? "
                                (pyagentd-count (length grants) "action"))
                      (pyagentd-grants--question (car grants))))
      (pyagentd-table-forget-marks)
      (mapc #'pyagentd-grants--revoke grants))))

(defun pyagentd-grants--targets ()
  "Return the grants that are marked, else a list of the one at point."
  (or (pyagentd-table-marked #'pyagentd-grants--key)
      (list (pyagentd-grants--at-point))))

(defun pyagentd-grants--question (grant)
  "Return the question whether GRANT is to be revoked."
  (format "Revoke %s%s? "
          (plist-get grant :action)
          (if (equal "project" (pyagentd-grants--where grant))
              (format " in all sessions of %s"
                      (abbreviate-file-name (or pyagentd-grants--root
                                                "the project")))
            " in this session")))

(defun pyagentd-grants--revoke (grant)
  "Revoke GRANT."
  (pyagentd-later-here 'revoke (list :branch pyagentd-grants--branch
                                     :action (plist-get grant :action)
                                     :kind (pyagentd-grants--where grant))
                       (lambda (_) (revert-buffer))))

(defvar pyagentd-grants-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map "r" #'pyagentd-grants-revoke)
    (define-key map "d" #'pyagentd-grants-revoke)
    (pyagentd-table-define-marks map))
  "Keymap of `pyagentd-grants-mode'.")

(define-derived-mode pyagentd-grants-mode pyagentd-table-mode "Grants"
  "Major mode for the list of grants.

\\{pyagentd-grants-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("For" 8 t) ("Actions that match" 60 t)
                               ("Given" 17 t) ("By" 0 t)]
        pyagentd-table-help '(("r" "revoke") ("m" "mark") ("g" "refresh") ("q" "close"))
        pyagentd-table-empty "No grants.")
  (setq-local revert-buffer-function #'pyagentd-grants--revert)
  (pyagentd-follow #'pyagentd-grants--revert)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-grants ()
  "List the grants of the session here; they can be revoked.
These are the answers \"for this session\" and \"always in this project\"."
  (interactive)
  (let* ((here (pyagentd-here))
         (buffer (get-buffer-create "*pyagentd grants*")))
    (with-current-buffer buffer
      (pyagentd-grants-mode)
      (setq pyagentd-grants--branch (plist-get here :branch))
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-grants)
;;; pyagentd-grants.el ends here

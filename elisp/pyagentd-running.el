;;; pyagentd-running.el --- What runs now -*- lexical-binding: t; -*-

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

;; The turns and agents of all sessions that run now or wait for a human,
;; with what each does, since when, and what it took so far.  The list
;; follows what the daemon tells; each can be visited and stopped, or all
;; that are marked.

;;; Code:

(require 'cl-lib)
(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-rpc)
(require 'pyagentd-here)
(require 'pyagentd-later)
(require 'pyagentd-live)
(require 'pyagentd-numbers)
(require 'pyagentd-place)
(require 'pyagentd-table)

(defconst pyagentd-running--buffer "*pyagentd running*"
  "Name of the list.")

;;;; Words

(defun pyagentd-running--p (row)
  "Return non-nil if ROW, a session as the daemon lists it, runs or waits."
  (member (format "%s" (plist-get row :state)) '("busy" "retrying" "waiting")))

(defun pyagentd-running--who (row)
  "Return who answers in ROW."
  (let ((preset (format "%s" (or (plist-get row :preset) ""))))
    (if (plist-get row :agent)
        (propertize (concat "└ " (if (string-empty-p preset) "agent" preset))
                    'face 'font-lock-type-face)
      (propertize preset 'face 'bold))))

(defun pyagentd-running--state (row)
  "Return the state of ROW with its face."
  (let ((state (format "%s" (plist-get row :state))))
    (propertize state 'face (if (equal state "busy") 'success 'warning))))

(defun pyagentd-running--doing (row)
  "Return in a line what the run of ROW does."
  (let ((tools (plist-get row :tools)))
    (string-replace
     "\n" " "
     (cond ((equal (format "%s" (plist-get row :state)) "retrying")
            (format "try %s of %s: %s" (plist-get row :attempt)
                    (plist-get row :max-attempts) (plist-get row :message)))
           (tools (string-join tools ", "))
           (t (pcase (pyagentd-symbol (plist-get row :phase))
                ('WAIT "waits for the model")
                ('TYPE "answers")
                (_ "")))))))

(defun pyagentd-running--entry (row)
  "Return the line of ROW."
  (list (plist-get row :branch)
        (vector (pyagentd-running--who row)
                (pyagentd-running--state row)
                (if-let ((time (pyagentd-here-time (plist-get row :started-at))))
                    (format-time-string "%T" time) "")
                (pyagentd-numbers-short (or (plist-get row :tokens) 0))
                (propertize (pyagentd-title-listed row)
                            'face 'pyagentd-session-title)
                (propertize (pyagentd-running--doing row)
                            'face 'pyagentd-detail))))

;;;; Rows

(defun pyagentd-running--sorted (rows)
  "Return ROWS, the first that began first, each before the agents below it."
  (let ((began (lambda (row) (or (plist-get row :started-at) 0))))
    (cl-labels
        ((below (parent)
           (mapcan (lambda (row)
                     (cons row (below (plist-get row :branch))))
                   (seq-sort-by began #'<
                                (seq-filter (lambda (row)
                                              (equal parent (above row)))
                                            rows))))
         (above (row)
           (let ((parent (and (plist-get row :agent) (plist-get row :parent))))
             (and (seq-some (lambda (other)
                              (equal parent (plist-get other :branch)))
                            rows)
                  parent))))
      (below nil))))

(defun pyagentd-running--print ()
  "Show the rows there are."
  (pyagentd-table-print (mapcar #'pyagentd-running--entry pyagentd-table-rows))
  (pyagentd-table-say (pyagentd-running--count pyagentd-table-rows)))

(defun pyagentd-running--count (rows)
  "Return how many of ROWS run and how many wait, or nil for none."
  (when rows
    (let ((waiting (seq-count (lambda (row)
                                (equal (format "%s" (plist-get row :state))
                                       "waiting"))
                              rows)))
      (concat (format "%d running" (- (length rows) waiting))
              (and (> waiting 0) (format ", %d waiting" waiting))))))

(defun pyagentd-running--on-change (rows gone)
  "Take what ROWS and GONE say of branches into the list."
  (when-let ((buffer (get-buffer pyagentd-running--buffer)))
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-running-mode)
        (setq pyagentd-table-rows
              (pyagentd-running--sorted
               (seq-filter #'pyagentd-running--p
                           (pyagentd-live-merge pyagentd-table-rows rows gone))))
        (pyagentd-live-print-soon #'pyagentd-running--print)))))

(add-hook 'pyagentd-live-functions #'pyagentd-running--on-change)

(defun pyagentd-running--fetch ()
  "Fetch what runs, and be told from now on."
  (pyagentd-table-fetch 'running '(:watch t)
                        (lambda (answer)
                          (setq pyagentd-table-rows
                                (pyagentd-running--sorted
                                 (plist-get answer :running)))
                          (pyagentd-running--print))))

(defun pyagentd-running--revert (&rest _)
  "Fetch what runs again."
  (pyagentd-table-ask #'pyagentd-running--fetch))

(defun pyagentd-running--on-connected ()
  "Fetch what runs from a new daemon, if the list is there."
  (when-let ((buffer (get-buffer pyagentd-running--buffer)))
    (with-current-buffer buffer
      (when (derived-mode-p 'pyagentd-running-mode)
        (pyagentd-running--fetch)))))

(add-hook 'pyagentd-rpc-connected-hook #'pyagentd-running--on-connected)

(defun pyagentd-running--on-disconnected ()
  "Show that nobody runs anything."
  (when-let ((buffer (get-buffer pyagentd-running--buffer)))
    (with-current-buffer buffer
      (setq pyagentd-table-rows nil)
      (pyagentd-running--print)
      (pyagentd-table-say pyagentd-live-no-daemon))))

(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-running--on-disconnected)

;;;; Commands

(defun pyagentd-running-visit ()
  "Visit the conversation at point."
  (interactive nil pyagentd-running-mode)
  (pyagentd-here-visit (pyagentd-table-row :branch)))

(defun pyagentd-running-visit-other-window ()
  "Visit the conversation at point in another window."
  (interactive nil pyagentd-running-mode)
  (pyagentd-here-visit (pyagentd-table-row :branch) t))

(defun pyagentd-running-stop ()
  "Stop the marked runs, else the one at point, with the agents below.
The parent of an agent is told and continues."
  (interactive nil pyagentd-running-mode)
  (let ((rows (pyagentd-table-targets :branch)))
    (when (or (null (cdr rows))
              (y-or-n-p (format "Stop %s? "
                                (pyagentd-count (length rows) "run"))))
      (pyagentd-table-forget-marks)
      (dolist (row rows)
        (pyagentd-later-here
         'abort (list :branch (plist-get row :branch))
         (lambda (answer)
           (message (if (plist-get answer :aborted) "Stopped %s"
                      "Not running: %s")
                    (pyagentd-title row))))))))

;;;; The mode

(defvar pyagentd-running-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-running-visit)
    (define-key map "o" #'pyagentd-running-visit-other-window)
    (define-key map "k" #'pyagentd-running-stop)
    (pyagentd-table-define-marks map))
  "Keymap of `pyagentd-running-mode'.")

(define-derived-mode pyagentd-running-mode pyagentd-table-mode "Running"
  "Major mode for the list of running turns in all sessions.

\\{pyagentd-running-mode-map}"
  (setq tabulated-list-padding 1
        tabulated-list-format [("Who" 22 t) ("State" 8 t) ("Since" 8 t)
                               ("Tokens" 6 nil :right-align t)
                               ("Session" 26 t) ("Does" 0 nil)]
        pyagentd-table-help '(("RET" "open") ("k" "stop") ("m" "mark")
                              ("/" "filter") ("q" "close"))
        pyagentd-table-empty "Nothing is running."
        pyagentd-live t)
  (setq-local revert-buffer-function #'pyagentd-running--revert)
  (tabulated-list-init-header))

;;;###autoload
(defun pyagentd-running ()
  "List the running or waiting turns and agents of all sessions.
The list is kept up to date."
  (interactive)
  (let ((buffer (get-buffer-create pyagentd-running--buffer)))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pyagentd-running-mode)
        (pyagentd-running-mode))
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-running)
;;; pyagentd-running.el ends here

;;; pyagentd-inspect.el --- What happened in a session, and why -*- lexical-binding: t; -*-

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

;; The trace of a session as an outline: its runs, every request to the
;; model with its tokens, cost and time, the tools it used, who allowed
;; them, the system prompt and the tools it was told of.  RET on a request
;; shows it exactly as it was sent.  TAB folds; `g' looks again.

;;; Code:

(require 'json)
(require 'outline)
(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-later)
(require 'pyagentd-here)
(require 'pyagentd-json)

(defvar-local pyagentd-inspect--branch nil
  "The branch that is inspected, as on the wire.")
(defvar-local pyagentd-inspect--latest 0
  "How many times the daemon was asked; only the latest answer counts.")

(defun pyagentd-inspect--get (alist &rest keys)
  "Return what ALIST has at the path KEYS."
  (dolist (key keys alist)
    (setq alist (alist-get key alist))))

;;;; Words

(defun pyagentd-inspect--heading (level text &rest properties)
  "Insert a heading of LEVEL with TEXT; PROPERTIES are of its line."
  (let ((start (point)))
    (insert (make-string level ?*) " " text "\n")
    (add-text-properties
     start (point)
     (append (list 'face (intern (format "outline-%d" level))) properties))))

(defun pyagentd-inspect--line (format &rest arguments)
  "Insert a line, FORMAT with ARGUMENTS."
  (insert "  " (apply #'format format arguments) "\n"))

(defun pyagentd-inspect--tokens (usage)
  "Return the five buckets of USAGE in words."
  (mapconcat (pcase-lambda (`(,key . ,word))
               (format "%s %s" (or (alist-get key usage) 0) word))
             '((input . "in") (cache_read . "cached") (cache_write . "to cache")
               (reasoning . "thought") (output . "out"))
             ", "))

(defun pyagentd-inspect--dollars (cost)
  "Return COST, US dollars or nil, in words."
  (if (numberp cost) (format "$%.4f" cost) "price unknown"))

(defun pyagentd-inspect--clock (ms)
  "Return MS, milliseconds since the epoch, as a time of the day."
  (if (numberp ms) (format-time-string "%T" (/ ms 1000.0)) ""))

;;;; Parts

(defun pyagentd-inspect--session (report)
  "Insert what REPORT says of the session as a whole."
  (let* ((session (alist-get 'session report))
         (own (pyagentd-inspect--get report 'usage 'own)))
    (pyagentd-inspect--heading
     1 (format "%s/%s  %s" (alist-get 'session_id session)
               (alist-get 'branch_name session)
               (or (alist-get 'title session) "")))
    (pyagentd-inspect--line
     "model %s, backend %s, temperature %s"
     (or (alist-get 'model session) "(the backend's)")
     (alist-get 'backend session)
     (or (alist-get 'temperature session) "(the model's)"))
    (pyagentd-inspect--line "workspace %s" (alist-get 'workspace_root session))
    (when own
      (pyagentd-inspect--line
       "spent %s; %s" (pyagentd-inspect--tokens (alist-get 'tokens own))
       (pyagentd-inspect--dollars (alist-get 'cost_usd own))))))

(defun pyagentd-inspect--permissions (permissions)
  "Insert PERMISSIONS."
  (pyagentd-inspect--heading 2 "Permissions")
  (let ((profile (alist-get 'profile permissions)))
    (pyagentd-inspect--line
     "profile %s%s" (or (if (listp profile) (alist-get 'name profile) profile)
                        "(none)")
     (if (alist-get 'read_only permissions) ", changes nothing" "")))
  (pcase-dolist (`(,section ,key ,word)
                 '((paths read "reads") (paths write "writes")
                   (paths deny "denied") (shell_commands allow "commands")
                   (shell_commands deny "denied commands")))
    (when-let ((list (pyagentd-inspect--get permissions section key)))
      (pyagentd-inspect--line "%s: %s" word (string-join list "  "))))
  (when-let ((above (alist-get 'denied_above permissions)))
    (pyagentd-inspect--line "denied above: %s" (string-join above "  ")))
  (dolist (grant (alist-get 'grants permissions))
    (pyagentd-inspect--line "granted (%s): %s" (alist-get 'kind grant)
                            (alist-get 'action grant))))

(defun pyagentd-inspect--catalogue (report)
  "Insert the system prompt and the tools of REPORT."
  (pyagentd-inspect--heading 2 "System prompt")
  ;; A line that begins with a star would be a heading.
  (insert (replace-regexp-in-string "^" "  " (or (alist-get 'system report) ""))
          "\n")
  (pyagentd-inspect--heading 2 (format "Tools (%d)"
                                       (length (alist-get 'tools report))))
  (dolist (tool (alist-get 'tools report))
    (pyagentd-inspect--heading 3 (alist-get 'name tool))
    (insert (replace-regexp-in-string
             "^" "  " (or (alist-get 'description tool) ""))
            "\n")))

(defun pyagentd-inspect--step (run step)
  "Insert STEP of RUN."
  (let ((usage (alist-get 'usage step)))
    (pyagentd-inspect--heading
     2 (format "#%s%s  %s  %s  %s"
               (alist-get 'number step)
               (if (equal (alist-get 'purpose step) "step") ""
                 (format " %s" (alist-get 'purpose step)))
               (pyagentd-inspect--clock (alist-get 'at step))
               (alist-get 'model step)
               (or (pyagentd-inspect--get step 'error 'message)
                   (alist-get 'stop_reason step) "no answer"))
     'pyagentd-inspect-step
     (list :run (alist-get 'id run) :step (alist-get 'step step)
           :purpose (alist-get 'purpose step))
     'help-echo "RET: the request as it was sent")
    (pyagentd-inspect--line
     "%s, %s new; %s ms, the first word after %s ms"
     (if-let ((messages (alist-get 'messages step)))
         (pyagentd-count messages "message")
       "? messages")
     (or (alist-get 'new_messages step) "?")
     (or (alist-get 'duration_ms step) "?")
     (or (alist-get 'first_token_ms step) "?"))
    (when usage
      (pyagentd-inspect--line
       "%s; %s" (pyagentd-inspect--tokens usage)
       (pyagentd-inspect--dollars (alist-get 'cost_usd step))))
    (pcase-dolist (`(,name . ,value) (alist-get 'parameters step))
      (pyagentd-inspect--line "%s: %s" name (json-encode value)))
    (dolist (retry (alist-get 'retries step))
      (pyagentd-inspect--line "attempt %s failed: %s"
                              (alist-get 'attempt retry)
                              (alist-get 'message retry)))
    (dolist (call (alist-get 'calls step))
      (pyagentd-inspect--line
       "• %s: %s%s" (alist-get 'name call)
       (or (alist-get 'error call) (alist-get 'state call) "no result")
       (if-let ((took (alist-get 'duration_ms call)))
           (format ", %s ms" took) "")))))

(defun pyagentd-inspect--run (run)
  "Insert RUN with its steps and decisions."
  (pyagentd-inspect--heading
   1 (format "%s%s  %s"
             (or (alist-get 'reason run) "…")
             (if-let ((trigger (alist-get 'trigger run)))
                 (format " (%s)" (alist-get 'source trigger)) "")
             (string-replace "\n" " " (or (alist-get 'prompt run)
                                          "(beside the conversation)"))))
  (pyagentd-inspect--line "%s" (alist-get 'id run))
  (when-let ((message (pyagentd-inspect--get run 'error 'message)))
    (pyagentd-inspect--line "! %s" (propertize message 'face 'error)))
  (dolist (step (alist-get 'steps run))
    (pyagentd-inspect--step run step))
  (when-let ((decisions (alist-get 'decisions run)))
    (pyagentd-inspect--heading 2 (format "Decisions (%d)" (length decisions)))
    (dolist (decision decisions)
      (pyagentd-inspect--line
       "%s: %s (%s%s)" (alist-get 'decision decision)
       (alist-get 'action decision) (alist-get 'rule decision)
       (if-let ((by (alist-get 'by decision))) (concat " by " by) "")))))

(defun pyagentd-inspect--print (text)
  "Show the report in TEXT, JSON, in this buffer; point stays on its line."
  (let ((inhibit-read-only t)
        (report (pyagentd-json-parse text))
        (line (line-number-at-pos)))
    (erase-buffer)
    (pyagentd-inspect--session report)
    (pyagentd-inspect--permissions (alist-get 'permissions report))
    (pyagentd-inspect--catalogue report)
    (mapc #'pyagentd-inspect--run (alist-get 'runs report))
    (goto-char (point-min))
    (pyagentd-inspect--fold)
    (goto-char (point-min))
    (forward-line (1- line))))

(defun pyagentd-inspect--fold ()
  "Fold what is long: the system prompt and the tools."
  (save-excursion
    (goto-char (point-min))
    (while (re-search-forward "^\\*\\* \\(?:System prompt\\|Tools \\)" nil t)
      (outline-hide-subtree))))

;;;; Commands

(defun pyagentd-inspect--ask (method plist show)
  "Call METHOD with PLIST and SHOW the JSON of its answer in this buffer."
  (let ((number (setq pyagentd-inspect--latest
                      (1+ pyagentd-inspect--latest))))
    (pyagentd-later-here
     method plist
     (lambda (answer)
       (when (= number pyagentd-inspect--latest)
         (funcall show (pyagentd-json-text answer)))))))

(defun pyagentd-inspect--revert (&rest _)
  "Look again."
  (pyagentd-inspect--ask 'trace (list :branch pyagentd-inspect--branch)
                         #'pyagentd-inspect--print))

(defun pyagentd-inspect-request ()
  "Show the request at point exactly as it was sent, but for pictures."
  (interactive nil pyagentd-inspect-mode)
  (let* ((end (line-end-position))
         (step (or (get-text-property (line-beginning-position)
                                      'pyagentd-inspect-step)
                   (save-excursion
                     (goto-char end)
                     (and (ignore-errors (outline-back-to-heading t))
                          (get-text-property (point)
                                             'pyagentd-inspect-step)))
                   (user-error "No request at point"))))
    (pyagentd-inspect--ask
     'traced-request (append (list :branch pyagentd-inspect--branch :pretty t) step)
     #'pyagentd-inspect--show-request)))

(defun pyagentd-inspect--show-request (text)
  "Show TEXT, the JSON of a request."
  (with-current-buffer (get-buffer-create "*pyagentd request*")
    (special-mode)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert text "\n")
      (pyagentd-inspect--shorten))
    (goto-char (point-min))
    (display-buffer (current-buffer))))

(defun pyagentd-inspect--shorten ()
  "Let pictures, lines of megabytes, be named in this buffer only."
  (goto-char (point-min))
  (while (re-search-forward "\"data\": \"\\([A-Za-z0-9+/=]+\\)\"" nil t)
    (let ((length (- (match-end 1) (match-beginning 1))))
      (when (> length 200)
        (replace-match (format "… %d characters of base64 …" length)
                       t t nil 1)))))

;;;; The mode

(defvar pyagentd-inspect-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'pyagentd-inspect-request)
    (define-key map (kbd "TAB") #'outline-cycle)
    (define-key map (kbd "<backtab>") #'outline-cycle-buffer)
    (define-key map "n" #'outline-next-visible-heading)
    (define-key map "p" #'outline-previous-visible-heading)
    map)
  "Keymap of `pyagentd-inspect-mode'.")

(define-derived-mode pyagentd-inspect-mode special-mode "Inspect"
  "Major mode for the trace of a session.

\\{pyagentd-inspect-mode-map}"
  (setq-local outline-regexp "\\*+ ")
  (outline-minor-mode)
  (setq-local revert-buffer-function #'pyagentd-inspect--revert))

;;;###autoload
(defun pyagentd-inspect ()
  "Show what happened in the session here: requests, tokens, tools, decisions.
RET on a request shows it exactly as it was sent."
  (interactive)
  (let* ((here (pyagentd-here))
         (buffer (get-buffer-create
                  (format "*pyagentd inspect %s*" (plist-get here :session-id)))))
    (with-current-buffer buffer
      (pyagentd-inspect-mode)
      (setq pyagentd-inspect--branch (plist-get here :branch))
      (revert-buffer))
    (pop-to-buffer buffer)))

(provide 'pyagentd-inspect)
;;; pyagentd-inspect.el ends here

;;; pyagentd-mission-text.el --- The trace of missions as text -*- lexical-binding: t; -*-

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

;; What the daemon reports of missions, put into the current buffer as an
;; outline.  A heading has the text property `pyagentd-mission-name', which
;; is the same whenever the report is shown, `pyagentd-mission-long' where
;; it is folded at first, and `pyagentd-mission-branch' on a call that
;; started an agent.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)

(declare-function clojure-mode "ext:clojure-mode")

(defface pyagentd-mission-said '((t :inherit font-lock-comment-face))
  "Face of the model's text around its programs."
  :group 'pyagentd)

(defun pyagentd-mission-text--heading (level name text &rest properties)
  "Insert a heading of LEVEL called NAME with TEXT; PROPERTIES are of its line."
  (let ((start (point)))
    (insert (make-string level ?*) " " text "\n")
    (add-text-properties
     start (point) (append (list 'pyagentd-mission-name name) properties))
    (add-face-text-property start (point)
                            (intern (format "outline-%d" level)) t)))

(defun pyagentd-mission-text--block (text &optional face)
  "Insert TEXT indented, in FACE if that is non-nil.
No line of it is taken for a heading."
  (let ((start (point)))
    (insert (replace-regexp-in-string "^" "    " (string-trim-right text))
            "\n")
    (when face
      (add-face-text-property start (point) face t))))

;;;; Words

(defun pyagentd-mission-text--line (text width)
  "Return TEXT on one line of at most WIDTH columns."
  (truncate-string-to-width
   (string-trim (replace-regexp-in-string "[ \t\n]+" " " text))
   width nil nil "…"))

(defun pyagentd-mission-text--took (ms)
  "Return MS, milliseconds or nil, in words, after a space."
  (cond ((not (numberp ms)) "")
        ((< ms 1000) (format "  %d ms" ms))
        (t (format "  %.1f s" (/ ms 1000.0)))))

(defun pyagentd-mission-text--tokens (usage)
  "Return the tokens in USAGE, an alist or nil, in words."
  (if (null usage) ""
    (format "  %s in, %s out"
            (+ (or (alist-get 'input usage) 0)
               (or (alist-get 'cache_read usage) 0)
               (or (alist-get 'cache_write usage) 0))
            (+ (or (alist-get 'output usage) 0)
               (or (alist-get 'reasoning usage) 0)))))

(defun pyagentd-mission-text--state (state)
  "Return STATE, a string, with its face."
  (propertize state 'face (pcase state
                            ("done" 'success)
                            ((or "running" "restart") 'warning)
                            (_ 'error))))

;;;; Programs

(defun pyagentd-mission-text-program (text)
  "Return TEXT, a program, with the faces of a Lisp."
  (with-temp-buffer
    (insert text)
    (delay-mode-hooks
      (if (fboundp 'clojure-mode)
          (clojure-mode)
        (lisp-data-mode)))
    (font-lock-add-keywords
     nil
     '((":[[:alpha:]][-[:alnum:]_?!*+/.]*" . font-lock-constant-face)
       ("\\_<\\(?:ctx\\|memory\\)/[^][ \t\n(){},]+"
        . font-lock-variable-name-face)
       ("(\\([[:alpha:]][-[:alnum:]/?!*]*\\|->>?\\)"
        1 font-lock-keyword-face)))
    (font-lock-ensure)
    (buffer-string)))

;;;; Parts

(defun pyagentd-mission-text--call (call name)
  "Insert CALL of a tool, an alist, under the name NAME."
  (let ((branch (alist-get 'branch call))
        (failed (equal "failed" (alist-get 'state call))))
    (pyagentd-mission-text--heading
     3 name
     (concat "→ " (propertize (alist-get 'name call) 'face 'bold) " "
             (pyagentd-mission-text--line
              (mapconcat (lambda (pair) (format "%s" (cdr pair)))
                         (alist-get 'input call) " ")
              50)
             (cond (failed (propertize "  failed" 'face 'error))
                   ((equal "running" (alist-get 'state call))
                    (propertize "  running" 'face 'warning))
                   (t ""))
             (pyagentd-mission-text--took (alist-get 'duration_ms call)))
     'pyagentd-mission-long t
     'pyagentd-mission-branch branch
     'help-echo (if branch "RET: what it did" "TAB: its result"))
    (pcase-dolist (`(,key . ,value) (alist-get 'input call))
      (pyagentd-mission-text--block (format "%s: %s" key value) 'shadow))
    (when-let ((result (alist-get 'result call)))
      (pyagentd-mission-text--block result (and failed 'error)))))

(defun pyagentd-mission-text--turn (turn name)
  "Insert TURN, an alist, under the name NAME."
  (let ((number (alist-get 'number turn))
        (failed (equal "failed" (alist-get 'state turn))))
    (pyagentd-mission-text--heading
     2 name
     (concat (format "Turn %s" number)
             (pyagentd-mission-text--tokens (alist-get 'usage turn))
             (pyagentd-mission-text--took (alist-get 'duration_ms turn))
             (if failed (propertize "  failed" 'face 'error) "")))
    (when-let ((said (alist-get 'said turn)))
      (unless (string-empty-p said)
        (pyagentd-mission-text--block said 'pyagentd-mission-said)))
    (if-let ((program (alist-get 'program turn)))
        (pyagentd-mission-text--block (pyagentd-mission-text-program program))
      (pyagentd-mission-text--block "(no program)" 'shadow))
    (seq-do-indexed
     (lambda (call index)
       (pyagentd-mission-text--call call (format "%s/%d" name index)))
     (alist-get 'calls turn))
    (when-let ((result (alist-get 'result turn)))
      (pyagentd-mission-text--heading
       3 (concat name "/=")
       (concat "= " (pyagentd-mission-text--line result 60))
       'pyagentd-mission-long t)
      (pyagentd-mission-text--block result (and failed 'error)))))

(defun pyagentd-mission-text--mission (mission)
  "Insert MISSION, an alist."
  (let ((name (alist-get 'run mission))
        (state (alist-get 'state mission))
        (fail (alist-get 'fail mission))
        (prompt (or (alist-get 'prompt mission) "")))
    (pyagentd-mission-text--heading
     1 name (concat (pyagentd-mission-text--state state) "  "
                    (pyagentd-mission-text--line prompt 66)))
    (unless (equal prompt (pyagentd-mission-text--line prompt 66))
      (pyagentd-mission-text--block prompt))
    (pyagentd-mission-text--block
     (concat (or (alist-get 'signature mission) "")
             (if-let ((tools (alist-get 'tools mission)))
                 (concat "\ntools: " (string-join tools ", ")) "")
             (if-let ((inputs (alist-get 'inputs mission)))
                 (concat "\nctx: " (string-join inputs ", ")) ""))
     'shadow)
    (dolist (turn (alist-get 'turns mission))
      (pyagentd-mission-text--turn
       turn (format "%s/%s" name (alist-get 'number turn))))
    (when (alist-get 'ok mission)
      (pyagentd-mission-text--heading 2 (concat name "/value") "Value")
      (pyagentd-mission-text--block (or (alist-get 'text mission) "null")))
    (when fail
      (pyagentd-mission-text--heading 2 (concat name "/fail") "Failed")
      (pyagentd-mission-text--block
       (concat (if-let ((reason (alist-get 'reason fail)))
                   (concat reason ": ") "")
               (or (alist-get 'message fail) ""))
       'error))
    (when (alist-get 'can_resume mission)
      (pyagentd-mission-text--block "c goes on with it" 'shadow))))

(defun pyagentd-mission-text--ask (ask)
  "Insert ASK, an alist, a question that waits for the user."
  (pyagentd-mission-text--heading
   2 (alist-get 'id ask)
   (concat (propertize "Waiting for your approval: " 'face 'warning)
           (alist-get 'tool ask) " "
           (pyagentd-mission-text--line (or (alist-get 'detail ask) "") 60)))
  (when-let ((reason (alist-get 'reason ask)))
    (pyagentd-mission-text--block reason 'shadow))
  (pyagentd-mission-text--block "a answers" 'shadow))

(defun pyagentd-mission-text-insert (report)
  "Insert what REPORT, an alist, says of all missions of a session."
  (let ((missions (alist-get 'missions report)))
    (if missions
        (mapc #'pyagentd-mission-text--mission missions)
      (insert (propertize "No missions yet.\n" 'face 'shadow)))
    (mapc #'pyagentd-mission-text--ask (alist-get 'asks report))))

(provide 'pyagentd-mission-text)
;;; pyagentd-mission-text.el ends here

;;; pyagentd-json.el --- Reports of the daemon, JSON -*- lexical-binding: t; -*-

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

;; The daemon tells long reports as JSON: in its answer, or in a file that
;; the answer names when the text is too long for one.  Here such a report
;; is found and read.

;;; Code:

(require 'json)
(require 'subr-x)

(defun pyagentd-json-text (answer)
  "Return the JSON in ANSWER, a plist of the daemon.
It is the text at :json, or what stands in the file at :path."
  (if-let ((path (plist-get answer :path)))
      (with-temp-buffer
        (let ((coding-system-for-read 'utf-8-unix))
          (insert-file-contents path))
        (buffer-string))
    (plist-get answer :json)))

(defun pyagentd-json-parse (text)
  "Return what the JSON in TEXT says, as alists and lists.
Both null and false are nil."
  (if (fboundp 'json-parse-string)
      (json-parse-string text :object-type 'alist :array-type 'list
                         :null-object nil :false-object nil)
    (let ((json-array-type 'list) (json-false nil))
      (json-read-from-string text))))

(defun pyagentd-json-plist (text)
  "Return what the JSON in TEXT says, as plists with keywords and vectors.
False is `:json-false', null is nil; so functions of tools expect it."
  (if (fboundp 'json-parse-string)
      (json-parse-string text :object-type 'plist :array-type 'array
                         :null-object nil :false-object :json-false)
    (let ((json-object-type 'plist) (json-array-type 'vector)
          (json-key-type 'keyword) (json-false :json-false) (json-null nil))
      (json-read-from-string text))))

(defun pyagentd-json-table (text)
  "Return what the JSON in TEXT says, as hash tables and vectors.
Null is `:null' and false `:false'.  What the parser in C refuses and JSON
allows, such as a NUL in a string, is read by the one in Lisp."
  (condition-case err
      (json-parse-string text :null-object :null :false-object :false)
    (json-error
     (let ((json-object-type 'hash-table) (json-array-type 'vector)
           (json-key-type 'string) (json-null :null) (json-false :false))
       (with-temp-buffer
         (insert text)
         (goto-char (point-min))
         (condition-case nil
             (prog1 (json-read)
               (skip-chars-forward " \t\r\n")
               (unless (eobp) (error "More than one value")))
           (error (signal (car err) (cdr err)))))))))

(defun pyagentd-json-of-table (value)
  "Return VALUE, as `pyagentd-json-table' reads it, as JSON."
  (condition-case nil
      ;; Emacs 30 has only its bytes.
      (let ((json (json-serialize value :null-object :null :false-object :false)))
        (if (multibyte-string-p json) json (decode-coding-string json 'utf-8)))
    (error
     (let ((json-null :null) (json-false :false))
       (json-encode value)))))

(defun pyagentd-json-of (plist)
  "Return PLIST as a JSON object.
Its values are strings, numbers, t, nil (null), `:json-false', plists and
vectors of these."
  (cond ((null plist) "{}")
        ((fboundp 'json-serialize)
         (json-serialize plist :null-object nil :false-object :json-false))
        (t (let ((json-false :json-false)) (json-encode plist)))))

(provide 'pyagentd-json)
;;; pyagentd-json.el ends here

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

(provide 'pyagentd-json)
;;; pyagentd-json.el ends here

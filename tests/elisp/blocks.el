;;; blocks.el --- A conversation with blocks -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What tests of the text of a conversation share: one with two turns,
;; thoughts, a call of a tool, code and a heading.

;;; Code:

(require 'test-helper)

(defconst blocks-said
  '(("### First thing" nil)
    ("\n\n" nil)
    ("``` reasoning\nI had\n```\nlook first.\n```" ignore)
    ("\n\n" nil)
    ("Looking.\n\n``` python\nprint(1)\n```" response)
    ("\n\n" nil)
    ("``` tool (Read :file_path \"a.py\")" ignore)
    ("\n(:name \"Read\" :args (:file_path \"a.py\"))\n\none\ntwo"
     (tool . "id_1"))
    ("\n```\n" ignore)
    ("## Found\n\n~~~~\nx = 1\n```\ny = 2\n~~~~\n\nThat is all." response)
    ("\n\n### " nil)
    ("Second\nthing" nil)
    ("\n\n" nil)
    ("Yes." response)
    ("\n\n### " nil))
  "A conversation: (TEXT ROLE) in order.")

(defmacro blocks-with (&rest body)
  "Evaluate BODY in the buffer of a session that says `blocks-said'."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-session ""
     (with-silent-modifications
       (erase-buffer)
       (pcase-dolist (`(,text ,role) blocks-said)
         (insert (if role (propertize text 'gptel role) text))))
     (goto-char (point-min))
     ,@body))

(defun blocks-find (text)
  "Go to the beginning of TEXT and return point."
  (goto-char (point-min))
  (search-forward text)
  (goto-char (match-beginning 0)))

(provide 'blocks)
;;; blocks.el ends here

;;; edit-test.el --- Tests of edits that the file does not have -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defun edit-test--write (file text)
  "Write TEXT into FILE as another program does, at another time."
  (let ((coding-system-for-write 'utf-8-unix))
    (write-region text nil file nil 'quiet))
  (set-file-times file (time-add nil 5)))

(defun edit-test--kept ()
  "Return the texts of buffers with text that is not saved, and kill them."
  (mapcar (lambda (buffer)
            (with-current-buffer buffer
              (should buffer-offer-save)
              (should (buffer-modified-p))
              (prog1 (buffer-string)
                (set-buffer-modified-p nil)
                (kill-buffer))))
          (seq-filter (lambda (buffer)
                        (string-match-p "not saved" (buffer-name buffer)))
                      (buffer-list))))

(defun edit-test--merge (file text)
  "Show FILE, which holds TEXT now, with the edits of this buffer."
  (edit-test--write file text)
  (pyagentd-edit-set-aside nil)
  (pyagentd-reread-apply (pyagentd-reread-load file))
  (pyagentd-edit-put-back pyagentd-insert--marker)
  (substring-no-properties (buffer-string)))

(defun edit-test--replace (old new)
  "Replace OLD by NEW as a user does."
  (save-excursion
    (goto-char (point-min))
    (search-forward old)
    (delete-region (match-beginning 0) (match-end 0))
    (insert new)))

(ert-deftest pyagentd-edit-is-made-again-in-the-text-of-another-program ()
  (pcase-dolist (`(,base ,old ,new ,file-text ,merged)
                 '(("one two three" "two" "2" "ONE two three" "ONE 2 three")
                   ("one two three" "two" "2" "one two three four"
                    "one 2 three four")
                   ("one two three" "two " "" "zero one two three"
                    "zero one three")
                   ("### Hi" "Hi" "Hi there" "### Hi there" "### Hi there")
                   ("### Hi" "Hi" "Hi there" "### Hi" "### Hi there")
                   ("### é👋" "👋" "👋 x" "yy\n\n### é👋"
                    "yy\n\n### é👋 x")))
    (pyagentd-test-with-session base
      (edit-test--replace old new)
      (should (equal (edit-test--merge file file-text) merged))
      (should-not (edit-test--kept)))))

(ert-deftest pyagentd-edit-between-two-changes-is-no-conflict ()
  (pyagentd-test-with-session "### One\n\nA\n\n### Two\n\nB\n\n### "
    (edit-test--replace "Two" "Too")
    (should (equal (edit-test--merge
                    file "### Uno\n\nA\n\n### Two\n\nB, B\n\n### Three")
                   "### Uno\n\nA\n\n### Too\n\nB, B\n\n### Three"))
    (should-not (edit-test--kept))))

(ert-deftest pyagentd-edit-of-what-another-program-changed-is-a-conflict ()
  (pyagentd-test-with-session "one two three"
    (edit-test--replace "two" "2")
    (should (equal (edit-test--merge file "one TWO three") "one TWO2 three"))
    (should (equal (edit-test--kept) '("one 2 three")))))

(ert-deftest pyagentd-edit-that-was-changed-back-or-saved-is-none ()
  (pyagentd-test-with-session "### Hi"
    (edit-test--replace "Hi" "Ho")
    (edit-test--replace "Ho" "Hi")
    (should (equal (edit-test--merge file "### Hello") "### Hello"))
    (should-not (buffer-modified-p))
    (edit-test--replace "Hello" "Hullo")
    (pyagentd-session-save)
    (should (equal (edit-test--merge file "### Bye") "### Bye"))))

(ert-deftest pyagentd-edit-is-not-what-the-daemon-inserts ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-insert-start 7)
    (pyagentd-insert "\n\nYes" 'response)
    (goto-char (point-max))
    (insert "draft")
    (pyagentd-insert ", I" 'response)
    (edit-test--replace "Hi" "Ho")
    (pyagentd-insert " do" 'response)
    (should (equal (buffer-string) "### Ho\n\nYes, I dodraft"))
    (should (equal (edit-test--merge file "### Hi\n\nYes, I do not.\n\n### ")
                   "### Ho\n\nYes, I do not.\n\n### draft"))
    (should (= (point) (point-max)))
    (should-not (edit-test--kept))))

(ert-deftest pyagentd-edit-around-the-place-of-the-run-does-not-hold-its-text ()
  (pyagentd-test-with-session "### Hi, you"
    (pyagentd-insert-start 7)
    ;; One edit, in the middle of which the run goes on.
    (goto-char 5)
    (delete-char 7)
    (insert "Ho")
    (pyagentd-insert-move 6)
    (pyagentd-insert " (yes) " 'response)
    (should (equal (buffer-string) "### H (yes) o"))
    (should (equal (edit-test--merge file "More\n\n### Hi, you (yes) ")
                   "More\n\n### H (yes) o"))))

;;;; Whatever two programs do

(defun edit-test--random-edits (count name)
  "Make COUNT edits in this buffer: new lines called NAME, and removed lines.
Return (NEW . REMOVED), lists of lines."
  (let (new removed)
    (dotimes (number count)
      (goto-char (1+ (random (buffer-size))))
      (forward-line 0)
      (if (and (= 0 (random 3)) (looking-at "base[0-9]+\n"))
          (progn (push (match-string-no-properties 0) removed)
                 (delete-region (match-beginning 0) (match-end 0)))
        (push (format "%s%d\n" name number) new)
        (insert (car new))))
    (cons new removed)))

(defun edit-test--count (line text)
  "Return how often LINE stands in TEXT."
  (let ((start 0) (count 0))
    (while (setq start (string-search line text start))
      (cl-incf count)
      (cl-incf start (length line)))
    count))

(ert-deftest pyagentd-edit-nothing-is-lost-and-nothing-doubled ()
  (random "edits")
  (let ((base (mapconcat (lambda (number) (format "base%03d\n" number))
                         (number-sequence 1 20) "")))
    (dotimes (_ 150)
      (pyagentd-test-with-session base
        (let* ((ours (edit-test--random-edits (random 6) "ours"))
               (theirs nil)
               (file-text (with-temp-buffer
                            (insert base)
                            (setq theirs (edit-test--random-edits
                                          (random 6) "theirs"))
                            (buffer-string)))
               (merged (edit-test--merge file file-text))
               (kept (edit-test--kept)))
          (dolist (line (append (car ours) (car theirs)))
            (should (= 1 (edit-test--count line merged))))
          (dolist (line (split-string base "\n" t))
            (let ((line (concat line "\n")))
              (should (<= (edit-test--count line merged) 1))
              (cond ((member line (cdr theirs))
                     (should (= 0 (edit-test--count line merged))))
                    ((not (member line (cdr ours)))
                     (should (= 1 (edit-test--count line merged))))
                    ((not kept)
                     (should (= 0 (edit-test--count line merged))))))))))))

(defun edit-test--random-words (count name)
  "Put up to COUNT words called NAME anywhere in this buffer, and remove text.
Return the words.  No word is parted or removed."
  (let (words)
    (dotimes (number count)
      (goto-char (1+ (random (buffer-size))))
      (when (save-excursion (re-search-backward "<\\|\\(>\\)" nil t)
                            (and (looking-at-p "<") t))
        (search-forward ">"))
      (if (= 0 (random 2))
          (delete-region (point) (save-excursion
                                   (skip-chars-forward "^<" (+ (point) (random 20)))
                                   (point)))
        (push (format "<%s%d>" name number) words)
        (insert (car words))))
    words))

(ert-deftest pyagentd-edit-no-word-is-lost-parted-or-doubled ()
  (random "words")
  (let ((base (mapconcat (lambda (number) (format "base%03d\n" (/ number 3)))
                         (number-sequence 1 12) "")))
    (dotimes (_ 150)
      (pyagentd-test-with-session base
        (let* ((ours (edit-test--random-words (random 8) "ours"))
               (theirs nil)
               (file-text (with-temp-buffer
                            (insert base)
                            (setq theirs (edit-test--random-words
                                          (random 8) "theirs"))
                            (buffer-string)))
               (before (substring-no-properties (buffer-string)))
               (merged (edit-test--merge file file-text))
               (kept (edit-test--kept)))
          (dolist (word (append ours theirs))
            (should (= 1 (edit-test--count word merged))))
          (when kept
            (should (equal kept (list before)))))))))

(provide 'edit-test)
;;; edit-test.el ends here

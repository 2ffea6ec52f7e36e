;;; search-test.el --- Tests of search -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-search)

(defconst search-test--text
  (concat "### How do I make tea?\n\nBoil\nwater.\n\n### And coffee?\n\n"
          "Grind the beans, boil water.\n\n### ")
  "A conversation.")

(defun search-test--hit (row id role preview matches &rest more)
  "Return a hit in ROW: message ID of ROLE with PREVIEW and MATCHES, and MORE."
  (append more
          (list :message-id id :part-id nil :role role :kind "text"
                :created-at 1767261600000 :preview preview :matches matches
                :copies 0)
          row))

(defmacro search-test-with-hits (&rest body)
  "Evaluate BODY in the list of three hits in two sessions.
The variables `tea' and `file' are bound to a row and its file."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let* ((tea (pyagentd-test-row root "tea-20260101000000/branches/main"
                                    :title "Making tea"))
            (cup (pyagentd-test-row root "cup-20260101000000/branches/20260201000000-x"))
            (file (plist-get tea :file))
            (pyagentd-search-follow nil)
            (inhibit-message t))
       (write-region search-test--text nil file nil 'quiet)
       (pyagentd-test-answer
        'search
        (list :hits
              (list (search-test--hit tea "m4" "assistant" "…the beans, boil water."
                                      '((12 16) (17 22)))
                    (search-test--hit cup "m1" "user" "a boiling\ncup" '((2 6))
                                      :copies 2)
                    (search-test--hit tea "m2" "assistant" "Boil water." '((0 4))))
              :more nil))
       (unwind-protect
           (progn (pyagentd-search "boil water")
                  (pyagentd-test-settle)
                  (with-current-buffer "*pyagentd search*" ,@body))
         (dolist (name '("*pyagentd search*" "*pyagentd preview*"))
           (when (get-buffer name) (kill-buffer name)))))))

(ert-deftest pyagentd-search-groups-by-session-with-previews ()
  (search-test-with-hits
    (should (equal (mapcar (lambda (line)
                             (replace-regexp-in-string
                              "[0-9-]\\{10\\} [0-9:]\\{5\\}" "TIME" line))
                           (pyagentd-test-lines))
                   '("Making tea  TIME"
                     "  Model      …the beans, boil water."
                     "  Model      Boil water."
                     "cup-20260101000000  20260201000000-x  TIME"
                     "  You        a boiling cup  (also in 2 branches)")))
    (should (string-match-p "boil water.*3 messages" header-line-format))))

(ert-deftest pyagentd-search-highlights-what-matched ()
  (search-test-with-hits
    (goto-char (point-min))
    (let (marked)
      (while (< (point) (point-max))
        (let ((next (next-single-property-change (point) 'face nil (point-max))))
          (when (eq (get-text-property (point) 'face) 'pyagentd-match)
            (push (buffer-substring-no-properties (point) next) marked))
          (goto-char next)))
      (should (equal (nreverse marked) '("boil" "water" "Boil" "boil"))))))

(ert-deftest pyagentd-search-asks-for-what-was-typed-and-remembers-it ()
  (search-test-with-hits
    (let ((pyagentd-search-history nil))
      (pyagentd-test-type "s green SPC tea RET")
      (should (equal pyagentd-search-history '("green tea")))
      (should (equal (mapcar (lambda (call) (plist-get call :query))
                             (pyagentd-test-calls 'search))
                     '("boil water" "green tea"))))
    (should-error (pyagentd-search "  ") :type 'user-error)))

(ert-deftest pyagentd-search-visits-where-the-daemon-says ()
  (search-test-with-hits
    (pyagentd-test-answer 'locate '(:position 54 :end 84))
    (pyagentd-test-type "RET")
    (should (equal buffer-file-name file))
    (should pyagentd-mode)
    (should (looking-at "boil water"))
    (should (= (point) 72))
    (should (equal (pyagentd-test-calls 'locate)
                   `((:branch ,(plist-get tea :branch) :message "m4" :part nil))))))

(ert-deftest pyagentd-search-finds-the-text-where-the-daemon-does-not ()
  (search-test-with-hits
    (pyagentd-test-answer 'locate '(:position nil :end nil))
    (pyagentd-search--step 1)
    (pyagentd-test-type "o")
    (should (equal buffer-file-name file))
    (should (looking-at "Boil\nwater"))))

(ert-deftest pyagentd-search-finds-the-text-where-it-has-moved ()
  (search-test-with-hits
    (with-current-buffer (find-file-noselect file)
      (goto-char (point-min))
      (insert (make-string 200 ?x) "\n"))
    (pyagentd-test-answer 'locate '(:position 54 :end 84))
    (pyagentd-test-type "RET")
    (should (looking-at "boil water"))))

(ert-deftest pyagentd-search-locates-unrecorded-text-by-the-query ()
  (search-test-with-hits
    (setf (plist-get (car pyagentd-search--hits) :message-id) nil)
    (pyagentd-search--print)
    (pyagentd-search--step 1)
    (pyagentd-test-answer 'locate '(:position 54 :end 84))
    (pyagentd-test-type "RET")
    (should (equal (pyagentd-test-calls 'locate)
                   `((:branch ,(plist-get tea :branch) :query "boil water"))))))

(ert-deftest pyagentd-search-previews-without-opening ()
  (search-test-with-hits
    (setq-local pyagentd-search-follow t)
    (pyagentd-test-answer 'locate '(:position 25 :end 36))
    (pyagentd-test-type "n")
    (should (derived-mode-p 'pyagentd-search-mode))
    (should-not (find-buffer-visiting file))
    (should-not (pyagentd-test-calls 'attach))
    (let ((window (get-buffer-window "*pyagentd preview*")))
      (should window)
      (with-selected-window window
        (should (looking-at "Boil"))
        (should buffer-read-only)))
    (should-error (pyagentd-search-next 9) :type 'user-error)))

(ert-deftest pyagentd-search-finds-the-text-without-the-daemon ()
  (search-test-with-hits
    (pyagentd-test-tell 'fake-silent "" 'locate)
    (let ((pyagentd-found--patience 0.05))
      (pyagentd-test-type "RET"))
    (should (looking-at "boil water"))
    (delete-process daemon)
    (pyagentd-test-await (not (pyagentd-rpc-connected-p)))
    (with-current-buffer "*pyagentd search*"
      (forward-line)
      (pyagentd-test-type "RET"))
    (should (looking-at "Boil\nwater"))))

(ert-deftest pyagentd-search-leaves-who-moved-where-they-are ()
  (search-test-with-hits
    (pyagentd-test-answer 'locate '(:position 54 :end 84))
    (switch-to-buffer (current-buffer))
    (pyagentd-search-visit)
    (goto-char 5)
    (let ((num-input-keys (1+ num-input-keys)))
      (pyagentd-test-settle))
    (should (= (point) 5))))

(ert-deftest pyagentd-search-next-error-goes-through-all ()
  (search-test-with-hits
    (pyagentd-test-answer 'locate '(:position nil))
    (goto-char (point-min))
    (setq next-error-last-buffer (current-buffer))
    (let (places)
      (dotimes (_ 3)
        (save-window-excursion
          (next-error)
          (push (file-name-nondirectory
                 (directory-file-name
                  (buffer-local-value 'pyagentd--branch-dir
                                      (window-buffer))))
                places)))
      (should (equal places '("20260201000000-x" "main" "main"))))
    (should-error (next-error) :type 'user-error)))

(ert-deftest pyagentd-search-shows-more-and-archived-on-request ()
  (search-test-with-hits
    (should-error (pyagentd-search-more) :type 'user-error)
    (pyagentd-test-answer
     'search (list :hits pyagentd-search--hits :more t :indexing t))
    (pyagentd-test-type "a")
    (should (string-match-p "indexing is not finished" header-line-format))
    (pyagentd-test-type "+")
    (goto-char (point-max))
    (backward-button 1)
    (push-button)
    (should (equal (mapcar (lambda (call)
                             (list (plist-get call :limit)
                                   (plist-get call :archived)))
                           (pyagentd-test-calls 'search))
                   '((50 nil) (50 t) (100 t) (150 t))))))

(ert-deftest pyagentd-search-says-that-nothing-was-found ()
  (search-test-with-hits
    (pyagentd-test-answer 'search '(:hits nil))
    (pyagentd-test-type "g")
    (should (string-match-p "No matches" (buffer-string)))
    (should-error (pyagentd-search-visit) :type 'user-error)))

(ert-deftest pyagentd-search-says-why-it-failed ()
  (search-test-with-hits
    (pyagentd-test-refuse 'search "The index is gone")
    (should (equal "The index is gone" (pyagentd-test-said (revert-buffer))))
    (should (string-match-p "boil water +failed" header-line-format))
    (should (= 5 (length (pyagentd-test-lines))))
    (pyagentd-search "tea")
    (pyagentd-test-settle)
    (should (equal (pyagentd-test-lines) '("The index is gone")))))

(ert-deftest pyagentd-search-has-the-session-at-point-for-commands ()
  (search-test-with-hits
    (goto-char (point-min))
    (should (equal (plist-get (pyagentd-here) :branch) (plist-get tea :branch)))))

(ert-deftest pyagentd-reindex-tells-how-far-it-is ()
  (pyagentd-test-with-daemon
    (pyagentd-rpc-connect)
    (pyagentd-test-tell 'fake-silent "" 'reindex)
    (let ((done 0) said)
      (cl-letf (((symbol-function 'message)
                 (lambda (format &rest args)
                   (push (apply #'format format args) said))))
        (pyagentd-reindex)
        (let ((uid (caar pyagentd-rpc--pending)))
          ;; Emacs shows progress some times a second only.
          (pyagentd-test-await
           (progn (setq done (min 400 (1+ done)))
                  (pyagentd-test-push
                   `(progress "" 0 (:id "reindex" :done ,done :total 400)))
                  (seq-some (lambda (text)
                              (string-match-p "\\`Indexing sessions\\.\\.\\.[1-9][0-9]*%" text))
                            said)))
          (pyagentd-test-tell 'fake-raw
                              (format "(return %d (:branches 2 :messages 1 :seconds 0.5))"
                                      uid)))
        (pyagentd-test-await (member "Indexed 1 message in 2 branches, 0.5 s" said))))
    (should-not pyagentd-index--reporter)))

;;; search-test.el ends here

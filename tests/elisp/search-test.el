;;; search-test.el --- Tests of search -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'keys)
(require 'pyagentd-sessions)

(defconst search-test--text
  (concat "### How do I make tea?\n\nBoil\nwater.\n\n### And coffee?\n\n"
          "Grind the beans, boil water.\n\n### ")
  "A conversation.")

(defun search-test--row (level text place)
  "Return a row of the list with TEXT at LEVEL, for PLACE, a plist."
  (list :id text :level level :label text
        :visit (append '(:kind "message" :query "boil water") place)
        :cells (list '(:text "Model") (list :text text :matches
                                            (plist-get place :matches)))))

(defun search-test--view (&rest more)
  "Return the list of `rows' as the daemon tells it, with MORE keys."
  (append more '(:title "Search" :empty "No matches."
                 :columns ((:title "From" :width 10) (:title "Message" :width 0))
                 :actions ((:key "s" :label "search"
                            :reads (:argument "query" :prompt "Search: "))
                           (:key "A" :label "archived" :arguments (:archived t))))))

(defmacro search-test-with-hits (&rest body)
  "Evaluate BODY in the list of three messages in two sessions.
The variables `tea' and `file' are bound to a row and its file."
  (declare (indent 0) (debug t))
  `(pyagentd-test-with-daemon
     (let* ((tea (pyagentd-test-row root "tea-20260101000000/branches/main"
                                    :title "Making tea"))
            (cup (pyagentd-test-row root "cup-20260101000000/branches/20260201000000-x"))
            (file (plist-get tea :file))
            (first (append '(:message-id "m4" :part-id nil
                             :preview "…the beans, boil water."
                             :matches ((12 16) (17 22)))
                           tea))
            (second (append '(:message-id "m2" :preview "Boil water."
                              :matches ((0 4)))
                            tea))
            (third (append '(:message-id "m1" :preview "a boiling\ncup"
                             :matches ((2 6)))
                           cup))
            (inhibit-message t))
       (write-region search-test--text nil file nil 'quiet)
       (pyagentd-test-answer
        'view (search-test--view
               :more t :current "…the beans, boil water."
               :rows (list (search-test--row 0 "Making tea" first)
                           (search-test--row 1 "…the beans, boil water." first)
                           (search-test--row 1 "Boil water." second)
                           (search-test--row 0 "cup" third)
                           (search-test--row 1 "a boiling cup" third))))
       (unwind-protect
           (progn (pyagentd-search "boil water")
                  (pyagentd-test-settle)
                  (with-current-buffer "*pyagentd search*" ,@body))
         (dolist (name '("*pyagentd search*" "*pyagentd preview*"))
           (when (get-buffer name) (kill-buffer name)))))))

(ert-deftest pyagentd-search-highlights-what-matched ()
  (search-test-with-hits
    (goto-char (point-min))
    (let (marked)
      (while (< (point) (point-max))
        (let ((next (next-single-property-change (point) 'face nil (point-max))))
          (when (eq (get-text-property (point) 'face) 'pyagentd-match)
            (push (buffer-substring-no-properties (point) next) marked))
          (goto-char next)))
      (should (equal (seq-take (last marked 3) 3) '("Boil" "water" "boil"))))))

(ert-deftest pyagentd-search-asks-for-what-was-typed-and-shows-more ()
  (search-test-with-hits
    (pyagentd-test-type "s C-a C-k green SPC tea RET")
    (pyagentd-test-type "A +")
    (pyagentd-test-settle)
    (should (equal (mapcar (lambda (call)
                             (let ((given (plist-get call :arguments)))
                               (list (plist-get given :query)
                                     (plist-get given :archived)
                                     (plist-get call :limit))))
                           (pyagentd-test-calls 'view))
                   '(("boil water" nil 50) ("green tea" nil 50)
                     ("green tea" t 50) ("green tea" t 10))))
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
    (setf (plist-get (plist-get (cadr pyagentd-table-rows) :visit) :message-id)
          nil)
    (pyagentd-test-answer 'locate '(:position 54 :end 84))
    (pyagentd-test-type "RET")
    (should (equal (pyagentd-test-calls 'locate)
                   `((:branch ,(plist-get tea :branch) :query "boil water"))))))

(ert-deftest pyagentd-search-previews-without-opening ()
  (search-test-with-hits
    (pyagentd-test-answer 'locate '(:position 25 :end 36))
    (pyagentd-test-type "n")
    (should (derived-mode-p 'pyagentd-list-mode))
    (should-not (find-buffer-visiting file))
    (should-not (pyagentd-test-calls 'attach))
    (let ((window (get-buffer-window "*pyagentd preview*")))
      (should window)
      (with-selected-window window
        (should (looking-at "Boil"))
        (should buffer-read-only)))
    (should-error (pyagentd-search--next 9) :type 'user-error)))

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
    (pyagentd-list--visit)
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

(ert-deftest pyagentd-search-has-the-session-at-point-for-commands ()
  (search-test-with-hits
    (goto-char (point-min))
    (should (equal (plist-get (pyagentd-here) :branch) (plist-get tea :branch)))))

(ert-deftest pyagentd-reindex-tells-how-far-it-is ()
  (pyagentd-test-with-daemon
    (pyagentd-rpc-connect)
    (pyagentd-test-answer 'reindex '(:branches 2 :messages 1 :seconds 0.5))
    (let (said)
      (cl-letf (((symbol-function 'message)
                 (lambda (format &rest args)
                   (push (and format (apply #'format format args)) said))))
        (pyagentd-test-push
         '(progress "" 0 (:id "reindex" :done 100 :total 400)))
        (pyagentd-test-await (member "Indexing sessions...25%" said))
        (pyagentd-reindex)
        (pyagentd-test-await (member "Indexed 1 message in 2 branches, 0.5 s" said))))))

;;; search-test.el ends here

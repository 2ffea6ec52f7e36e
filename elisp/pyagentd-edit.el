;;; pyagentd-edit.el --- Edits here and by other clients -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Keeps track of the edits that were not sent to the daemon yet, and of
;; those that the daemon has but its file does not.  Edits by other clients
;; are merged with them by the rules of the daemon
;; (store/document/files.py): operational transformation.
;;
;; An edit is a list of hunks (BEG END TEXT OLD) in order: TEXT replaces
;; OLD, the text from BEG to END.  All positions refer to the text before
;; the edit.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-large)

(declare-function pyagentd-status-busy-p "pyagentd-status")

;;;; Transforming and composing edits

(defun pyagentd-edit-moved (pos edit &optional before)
  "Return the position POS after EDIT.
That is behind text that EDIT inserts at POS, or BEFORE it."
  (let ((shift 0))
    (cl-loop for (beg end text) in edit
             until (or (> beg pos) (and before (= beg pos)))
             do (cl-incf shift (- (length text) (- (min end pos) beg))))
    (+ pos shift)))

(defun pyagentd-edit--normal (hunks)
  "Return HUNKS with adjacent hunks joined and empty ones removed."
  (let (found)
    (dolist (hunk hunks)
      (pcase-let ((`(,beg ,end ,text ,old) hunk)
                  (`(,first ,last ,before ,gone) (car found)))
        (cond ((and (= beg end) (string-empty-p text)))
              ((and found (= last beg))
               (setcar found (list first end (concat before text)
                                   (concat gone old))))
              (t (push hunk found)))))
    (nreverse found)))

(defun pyagentd-edit-transform (ours theirs &optional first)
  "Return the edit OURS transformed to apply after THEIRS.
Both are edits of the same text.  Where both insert at one position, our text
comes behind theirs, or before it if FIRST is non-nil."
  (if (or (null ours) (null theirs)) ours
    (let (found)
      (pcase-dolist (`(,beg ,end ,text ,old) ours)
        (let* ((place (pyagentd-edit-moved beg theirs first))
               (start beg)
               (delete
                (lambda (stop)
                  (let ((at (pyagentd-edit-moved start theirs)))
                    (push (list at (+ at (- stop start)) ""
                                (substring old (- start beg) (- stop beg)))
                          found)))))
          (push (list place place text "") found)
          (cl-loop for (from to) in theirs
                   until (>= from end)
                   unless (or (< to start) (and (= to start) (< from start)))
                   do (when (> from start) (funcall delete from))
                   (setq start (max start to)))
          (when (< start end) (funcall delete end))))
      (pyagentd-edit--normal (nreverse found)))))

(defun pyagentd-edit-inverse (edit)
  "Return the edit that reverts EDIT."
  (let ((shift 0))
    (cl-loop for (beg end text old) in edit
             collect (list (+ beg shift) (+ beg shift (length text)) old text)
             do (cl-incf shift (- (length text) (- end beg))))))

(defun pyagentd-edit--add (edit hunk)
  "Return EDIT composed with HUNK, which refers to the text after EDIT."
  (pcase-let* ((`(,beg ,end ,text ,old) hunk)
               (start beg) (pos beg) (shift 0) (before nil) (after nil) (gone nil))
    (pcase-dolist ((and each `(,from ,to ,new ,was)) edit)
      (let* ((at (+ from shift))
             (stop (+ at (length new)))
             (more (- (length new) (- to from))))
        (cond ((> at end) (push each after))
              ((< stop beg)
               (push each before)
               (cl-decf start more))
              (t
               (when (< at beg)
                 (setq text (concat (substring new 0 (- beg at)) text)
                       start from))
               (when (> stop end)
                 (setq text (concat text (substring new (- end at)))))
               (push (substring old (- pos beg) (- (max pos at) beg)) gone)
               (push was gone)
               (setq pos (max pos (min stop end)))))
        (cl-incf shift more)))
    (setq gone (apply #'concat (nreverse (cons (substring old (- pos beg)) gone))))
    (pyagentd-edit--normal
     (append (nreverse before)
             (list (list start (+ start (length gone)) text gone))
             (nreverse after)))))

(defun pyagentd-edit-compose (one other)
  "Return one edit with the effect of ONE followed by OTHER."
  (dolist (hunk (reverse other) one)
    (setq one (pyagentd-edit--add one hunk))))

(defun pyagentd-edit--apply-to-string (text edit)
  "Return the string TEXT with EDIT applied."
  (let ((pos 0) pieces)
    (pcase-dolist (`(,beg ,end ,new) edit)
      (push (substring text pos (1- beg)) pieces)
      (push new pieces)
      (setq pos (1- end)))
    (push (substring text pos) pieces)
    (apply #'concat (nreverse pieces))))

(defun pyagentd-edit--shared (ours theirs)
  "Return (OURS THEIRS) without the changes that both make.
The results apply after the shared changes.  Both are edits of the same text.
If both replace the same range and one new text begins with the other, they
share that beginning: it was written once."
  (let* ((twin (lambda (hunk edit)
                 (cl-find-if (lambda (each) (equal (seq-take each 2)
                                                   (seq-take hunk 2)))
                             edit)))
         (shared
          (cl-loop for (beg end text old) in ours
                   for other = (nth 2 (funcall twin (list beg end) theirs))
                   for most = (min (length text) (length other))
                   when (and other (eq t (compare-strings text 0 most
                                                          other 0 most)))
                   collect (list beg end (substring text 0 most) old)))
         (rest
          (lambda (edit)
            (pyagentd-edit--normal
             (cl-loop for (beg end text old) in edit
                      for both = (nth 2 (funcall twin (list beg end) shared))
                      for at = (+ (pyagentd-edit-moved beg shared both)
                                  (length both))
                      collect (if both
                                  (list at at (substring text (length both)) "")
                                (list at (+ at (- end beg)) text old)))))))
    (list (funcall rest ours) (funcall rest theirs))))

;;;; Recording what is typed

(defconst pyagentd-edit--most 200
  "Maximal number of hunks in the pending edit; more of them are joined.")

(pyagentd-deflocal pyagentd-edit--pending nil
  "The edit that was not sent to the daemon yet.")
(pyagentd-deflocal pyagentd-edit--copy nil
  "Hidden buffer with the text as of the last recorded change.")
(pyagentd-deflocal pyagentd-edit--open nil
  "Where the text may differ from the copy.
Nil for nowhere, (BEG . END) in the copy, or t for anywhere.")
(pyagentd-deflocal pyagentd-edit--tick nil
  "The `buffer-chars-modified-tick' for which `pyagentd-edit--open' is valid.")
(pyagentd-deflocal pyagentd-edit--sent nil
  "The edit that was sent and is not acknowledged yet, (ID . EDIT), or nil.")
(pyagentd-deflocal pyagentd-edit--back nil
  "The edit from the text without pending edits to the text of the file.")
(pyagentd-deflocal pyagentd-edit-revision nil
  "The document's revision that the sent and pending edits are based on.
Nil while they are based on the text of the file.")
(pyagentd-deflocal pyagentd-edit--told nil
  "The revision made by the last edit from here, or nil if the file has it.")
(pyagentd-deflocal pyagentd-edit--place nil
  "Where the run's next text goes in the document, or nil.
The position refers to `pyagentd-edit-revision'.")
(defvar pyagentd-edit--applying nil
  "Non-nil while a change by the daemon or another client is applied.
After each change it is the text's `buffer-chars-modified-tick'.")

;; Change hooks do not run for every change: not for those that other
;; packages make in their own change functions, nor for those in an indirect
;; buffer or while `inhibit-modification-hooks' is bound.  The tick reveals
;; such changes.  Then the text is compared with the copy, when it is needed.

(defun pyagentd-edit--begin-copy ()
  "Copy the current text; changes are recorded relative to it."
  (unless (buffer-live-p pyagentd-edit--copy)
    (setq pyagentd-edit--copy (generate-new-buffer " *pyagentd copy*" t))
    (with-current-buffer pyagentd-edit--copy
      (setq buffer-undo-list t)))
  (let ((text (current-buffer))
        (inhibit-modification-hooks t))
    (save-restriction
      (widen)
      (with-current-buffer pyagentd-edit--copy
        (erase-buffer)
        (insert-buffer-substring-no-properties text))))
  (setq pyagentd-edit--open nil
        pyagentd-edit--tick (buffer-chars-modified-tick)))

(defun pyagentd-edit--update-copy (beg end text tick)
  "Replace BEG to END in the copy by TEXT, as was done in the text at TICK."
  (with-current-buffer pyagentd-edit--copy
    (let ((inhibit-modification-hooks t))
      (delete-region beg end)
      (goto-char beg)
      (insert (substring-no-properties text))))
  (setq pyagentd-edit--tick tick))

(defun pyagentd-edit--up-to-date-p ()
  "Return non-nil unless the text was changed without running the hooks."
  (eql pyagentd-edit--tick (buffer-chars-modified-tick)))

(defun pyagentd-edit--before-change (beg end)
  "Record that the text between BEG and END is about to be changed."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (unless (buffer-live-p pyagentd-edit--copy)
      (pyagentd-edit--begin-copy))
    (unless (pyagentd-edit--up-to-date-p)
      (setq pyagentd-edit--open t))
    (unless (or pyagentd-edit--applying (eq pyagentd-edit--open t))
      (pyagentd-edit--settle)
      (setq pyagentd-edit--open (cons beg end)))))

(defun pyagentd-edit--after-change (beg end length)
  "Record that the text from BEG to END replaced LENGTH characters."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (let ((tick (buffer-chars-modified-tick)))
      (if pyagentd-edit--applying
          (setq pyagentd-edit--applying tick)
        (pcase pyagentd-edit--open
          ((and `(,from . ,to)
                (guard (and (<= from beg) (<= (+ beg length) to)
                            (= (- end beg length)
                               (- (buffer-size)
                                  (buffer-size pyagentd-edit--copy))))))
           (setq pyagentd-edit--tick tick)))))))

(defun pyagentd-edit--settle ()
  "Add the changes of the text since the last call to the pending edit."
  (unless (or pyagentd-edit--applying (not (buffer-live-p pyagentd-edit--copy)))
    (unless (pyagentd-edit--up-to-date-p)
      (setq pyagentd-edit--open t))
    (when pyagentd-edit--open
      (save-restriction
        (widen)
        (let* ((inhibit-quit t)         ; the copy and the pending edit must agree
               (edit (if (consp pyagentd-edit--open)
                         (pyagentd-edit--announced (car pyagentd-edit--open)
                                                   (cdr pyagentd-edit--open))
                       (pyagentd-edit--compare-with-copy))))
          (setq pyagentd-edit--open nil
                pyagentd-edit--tick (buffer-chars-modified-tick)
                pyagentd-edit--pending
                (pyagentd-edit-compose pyagentd-edit--pending edit))
          (when (length> pyagentd-edit--pending pyagentd-edit--most)
            (pyagentd-edit--join)))))))

(defun pyagentd-edit--announced (beg end)
  "Return the edit between BEG and END of the copy, and apply it there."
  (let* ((more (- (buffer-size) (buffer-size pyagentd-edit--copy)))
         (text (buffer-substring beg (+ end more)))
         (old (with-current-buffer pyagentd-edit--copy
                (buffer-substring beg end))))
    (unless (string= text old)
      (pyagentd-edit--update-copy beg end text pyagentd-edit--tick)
      (list (list beg end text old)))))

(defun pyagentd-edit--shared-end (most)
  "Return the length of the common end of text and copy, MOST at most."
  (let* ((text (current-buffer))
         (end (point-max))
         (copy-end (1+ (buffer-size pyagentd-edit--copy)))
         (same 0) (step (min most 1024)) (grows t))
    (while (> step 0)
      (let ((last (+ same step)))
        (if (zerop (compare-buffer-substrings
                    text (- end last) (- end same) pyagentd-edit--copy
                    (- copy-end last) (- copy-end same)))
            (setq same last)
          (setq grows nil)))
      (setq step (min (if grows (* 2 step) (/ step 2)) (- most same))))
    same))

(defun pyagentd-edit--compare-with-copy ()
  "Return the edit from the copy to this text, and apply it to the copy.
It changes as little as possible, since other clients may change the text
between its hunks meanwhile."
  (let* ((case-fold-search nil)
         (text (current-buffer))
         (start (abs (compare-buffer-substrings
                      text nil nil pyagentd-edit--copy nil nil)))
         (shift 0) changes edit)
    (unless (= start 0)
      (let ((same (pyagentd-edit--shared-end
                   (- (1+ (min (buffer-size) (buffer-size pyagentd-edit--copy)))
                      start))))
        (narrow-to-region start (- (point-max) same))
        (with-current-buffer pyagentd-edit--copy
          (save-restriction
            (narrow-to-region start (- (point-max) same))
            (setq buffer-undo-list nil)
            (let ((inhibit-modification-hooks t)
                  (undo-outer-limit nil))
              (replace-buffer-contents text 0.5)
              (setq changes buffer-undo-list
                    buffer-undo-list t)
              (set-text-properties (point-min) (point-max) nil)))))
      (widen)
      ;; The changes were made from the end backwards: their positions refer
      ;; to the text before all of them.
      (dolist (change changes)
        (pcase change
          (`(,(and beg (pred integerp)) . ,(and end (pred integerp)))
           (push (list beg beg (buffer-substring (+ beg shift) (+ end shift)) "")
                 edit)
           (cl-incf shift (- end beg)))
          (`(,(and old (pred stringp)) . ,(app abs beg))
           (push (list beg (+ beg (length old)) "" old) edit)
           (cl-decf shift (length old)))))
      (restore-buffer-modified-p t)
      (pyagentd-autosave-touch)
      (pyagentd-edit--normal (nreverse edit)))))

(defvar pyagentd-insert--marker)

(defun pyagentd-edit--join ()
  "Join the pending hunks above the run's marker into one, and those below it."
  (let ((marker (if pyagentd-insert--marker
                    (marker-position pyagentd-insert--marker)
                  0))
        (moved 0) (above nil) joined)
    (save-restriction
      (widen)
      (pcase-dolist (`(,beg ,end ,text ,old) pyagentd-edit--pending)
        (let ((at (+ beg moved)) (was-above above))
          (setq above (<= (+ at (length text)) marker)
                moved (+ moved (length text) (- beg end)))
          (unless (and joined (eq above was-above))
            (push (list beg beg nil nil) joined))
          (pcase-let* ((`(,first ,last ,new ,gone) (car joined))
                       (between (buffer-substring (- at (- beg last)) at)))
            (setcar joined (list first end (cl-list* text between new)
                                 (cl-list* old between gone)))))))
    (setq pyagentd-edit--pending
          (mapcar (pcase-lambda (`(,beg ,end ,new ,gone))
                    (list beg end (apply #'concat (nreverse new))
                          (apply #'concat (nreverse gone))))
                  (nreverse joined)))))

(defun pyagentd-edit--send-unannounced ()
  "Schedule sending of changes for which the change hooks did not run."
  (with-current-buffer (or (buffer-base-buffer) (current-buffer))
    (unless (pyagentd-edit--up-to-date-p)
      (pyagentd-autosave-touch))))

;; The first runs last and the second first, so that other functions of these
;; hooks make their changes before or after both.
(put 'pyagentd-edit--before-change 'pyagentd-session-depth 100)
(put 'pyagentd-edit--after-change 'pyagentd-session-depth -100)
(dolist (hook '((before-change-functions . pyagentd-edit--before-change)
                (after-change-functions . pyagentd-edit--after-change)
                (post-command-hook . pyagentd-edit--send-unannounced)))
  (add-to-list 'pyagentd-session-hooks hook))
(add-hook 'pyagentd-session-leave-hook
          (lambda ()
            (when (buffer-live-p pyagentd-edit--copy)
              (kill-buffer pyagentd-edit--copy)))
          90)

(defun pyagentd-edit--reset (pending)
  "Treat the text as that of the file with the edit PENDING."
  (setq pyagentd-edit--pending pending
        pyagentd-edit--sent nil
        pyagentd-edit--back nil
        pyagentd-edit--told nil
        pyagentd-edit-revision nil))

(defun pyagentd-edit-forget ()
  "Forget the edits: the text is that of the file."
  (pyagentd-edit--begin-copy)
  (pyagentd-edit--reset nil))

(add-hook 'pyagentd-session-written-hook #'pyagentd-edit-forget)
(add-hook 'pyagentd-session-read-hook #'pyagentd-edit-forget)

(defun pyagentd-edit-began (text)
  "Record that this buffer began with TEXT, and that the user typed the rest."
  (save-restriction
    (widen)
    (pyagentd-edit--begin-copy)
    (setq pyagentd-edit--pending
          (list (list 1 (1+ (length text)) (buffer-string) text)))))

(defun pyagentd-edit-pending-p ()
  "Return non-nil if there are edits that were not sent to the daemon."
  (pyagentd-edit--settle)
  pyagentd-edit--pending)

(defun pyagentd-edit-saved-p ()
  "Return non-nil if the file holds all edits from here."
  (not (or (pyagentd-edit-pending-p) pyagentd-edit--sent pyagentd-edit--told)))

;;;; On the wire

(defun pyagentd-edit-position (pos &optional before)
  "Return the position in this text of POS in the document.
That is behind text typed there, or BEFORE it."
  (pyagentd-edit--settle)
  (pyagentd-edit-moved
   (pyagentd-edit-moved pos (cdr pyagentd-edit--sent) before)
   pyagentd-edit--pending before))

(defun pyagentd-edit--to-wire (edit)
  "Return EDIT in wire form: (BEG END TEXT ROLES) for each hunk.
ROLES is a list of (BEG END ROLE), with positions in TEXT from 1."
  (cl-loop
   for (beg end text) in edit
   collect
   (list beg end (pyagentd-write-text (substring-no-properties text))
         (cl-loop for pos = 0 then next while (< pos (length text))
                  for next = (next-single-property-change
                              pos 'gptel text (length text))
                  for role = (get-text-property pos 'gptel text)
                  when role
                  collect (list (1+ pos) (1+ next)
                                (if (consp role) (list 'tool (cdr role))
                                  role))))))

(defun pyagentd-edit--from-wire (hunks)
  "Return the edit with the wire form HUNKS."
  (cl-loop for (beg end text roles) in hunks
           collect (let ((text (copy-sequence (or text ""))))
                     (pcase-dolist (`(,from ,to ,role) roles)
                       (put-text-property (1- from) (1- to) 'gptel
                                          (pyagentd-edit-role role) text))
                     (list beg end text (make-string (- end beg) ?\s)))))

(defun pyagentd-edit-role (role)
  "Convert ROLE from its wire form to a value of the text property `gptel'."
  (pcase role
    (`(,_ ,id) (cons 'tool id))
    (_ (pyagentd-symbol role))))

(defconst pyagentd-edit--longest 1000000
  "Maximal number of characters one edit inserts: requests are limited.")

(defun pyagentd-edit--part (edit)
  "Split EDIT into (PART . REST).
PART inserts at most `pyagentd-edit--longest' characters."
  (let ((left pyagentd-edit--longest) (shift 0) part rest)
    (pcase-dolist (`(,beg ,end ,text ,old) edit)
      (if (= left 0)
          (push (list (+ beg shift) (+ end shift) text old) rest)
        (let ((now (min left (length text))))
          (push (list beg end (substring text 0 now) old) part)
          (cl-decf left now)
          (cl-incf shift (- now (- end beg)))
          (when (< now (length text))
            (let ((at (+ end shift)))
              (push (list at at (substring text now) "") rest))))))
    (cons (nreverse part) (nreverse rest))))

(defun pyagentd-edit-new-id (kind)
  "Return a new id with the prefix KIND, such as `edt' or `msg'."
  (format "%s_%s%08x" kind (format-time-string "%s%3N") (random (ash 1 32))))

(defun pyagentd-edit-take (&optional whole)
  "Return the edit to send next, a plist of :id and :hunks, or nil.
Mark it as sent.  Return nil while another edit is not acknowledged yet.
Return only the first part of a long edit, unless WHOLE is non-nil."
  (pyagentd-edit--settle)
  (when (and pyagentd-edit--pending (null pyagentd-edit--sent))
    (pcase-let ((`(,edit . ,rest) (if whole (list pyagentd-edit--pending)
                                    (pyagentd-edit--part pyagentd-edit--pending)))
                (id (pyagentd-edit-new-id "edt")))
      (setq pyagentd-edit--sent (cons id edit)
            pyagentd-edit--pending rest
            pyagentd-edit--back (pyagentd-edit-compose
                                 (pyagentd-edit-inverse edit)
                                 pyagentd-edit--back))
      (list :id id :hunks (pyagentd-edit--to-wire edit)))))

(defun pyagentd-edit-refused ()
  "Make the sent edit pending again: the daemon refused it."
  (when pyagentd-edit--sent
    (pyagentd-edit--settle)
    (setq pyagentd-edit--pending
          (pyagentd-edit-compose (cdr pyagentd-edit--sent)
                                 pyagentd-edit--pending)
          pyagentd-edit--sent nil)))

(defun pyagentd-edit-acknowledged (id revision)
  "Record that the edit ID from here led to REVISION of the document.
Return non-nil if it was the sent edit."
  (when (equal id (car pyagentd-edit--sent))
    (when pyagentd-edit--place
      (setq pyagentd-edit--place
            (pyagentd-edit-moved pyagentd-edit--place
                                 (cdr pyagentd-edit--sent) t)))
    (setq pyagentd-edit--sent nil
          pyagentd-edit--told revision
          pyagentd-edit-revision revision)
    t))

(defun pyagentd-edit-persisted (revision)
  "Record that the file holds the document at REVISION."
  (when (and (null pyagentd-edit--sent)
             (or (null pyagentd-edit--told) (<= pyagentd-edit--told revision)))
    (setq pyagentd-edit--told nil
          pyagentd-edit--back nil)))

(defun pyagentd-edit-around (edit)
  "Return EDIT, received for the document, as an edit of this text.
Transform the sent and the pending edit to apply after it."
  (pyagentd-edit--settle)
  (if (not (or pyagentd-edit--sent pyagentd-edit--pending pyagentd-edit--back))
      edit
    (let* ((sent (cdr pyagentd-edit--sent))
           (behind (pyagentd-edit-transform edit sent t)))
      (when sent
        (setcdr pyagentd-edit--sent (pyagentd-edit-transform sent edit)))
      (setq pyagentd-edit--back
            (pyagentd-edit-transform pyagentd-edit--back behind))
      (prog1 (pyagentd-edit-transform behind pyagentd-edit--pending t)
        (setq pyagentd-edit--pending
              (pyagentd-edit-transform pyagentd-edit--pending behind))))))

(defun pyagentd-edit-receive (hunks revision)
  "Apply HUNKS, another client's edit that led to REVISION, to the text."
  (let ((edit (pyagentd-edit--from-wire hunks)))
    (when pyagentd-edit--place
      (setq pyagentd-edit--place
            (pyagentd-edit-moved pyagentd-edit--place edit t)))
    (setq pyagentd-edit-revision revision)
    (pyagentd-edit--show (pyagentd-edit-around edit))))

(defun pyagentd-edit--earlier (beg end length &optional before-p)
  "Return a function that rewrites the undo list for an earlier change.
The change replaces BEG to END by LENGTH characters; after the rewriting the
undo entries read as if it had come before all of them.  With BEFORE-P, it
comes right after the entry for which that function returns non-nil; it is
called with an entry and the range (BEG . END) as of then.  The returned
function returns the tail of `buffer-undo-list' that begins with that entry.
Return nil if an undo entry does not allow it, or none satisfies BEFORE-P."
  (let ((tail (and (listp buffer-undo-list) buffer-undo-list))
        (possible t) steps)
    (while (and tail possible
                (not (and before-p
                          (funcall before-p (car tail) (cons beg end)))))
      (let* ((here tail) (entry (car here)) (from beg) (to end)
             (more (- length (- end beg)))
             (moved (lambda (pos)       ; where POS is after the change
                      (cond ((>= pos to) (+ pos more))
                            ((> pos from) from)
                            (t pos)))))
        (pcase entry
          ((or 'nil `(t . ,_) `(,(pred markerp) . ,_)))
          ((pred integerp)
           (push (lambda () (setcar here (funcall moved entry))) steps))
          (`(,(and first (pred integerp)) . ,(and last (pred integerp)))
           ;; The change splits the inserted text into a piece before it and one
           ;; behind it.
           (let ((pieces
                  (seq-remove (lambda (piece) (>= (car piece) (cdr piece)))
                              (list (cons (+ more (max first to)) (+ more last))
                                    (cons first (min last from)))))
                 (past (lambda (pos) (- pos (max 0 (- (min pos last) first))))))
             (push (lambda ()
                     (let ((piece (or (car pieces) (cons from from))))
                       (setcar entry (car piece))
                       (setcdr entry (cdr piece)))
                     (when (cdr pieces)
                       (setcdr here (cons (cadr pieces) (cdr here)))))
                   steps)
             (setq beg (funcall past from)
                   end (funcall past to))))
          (`(,(and text (pred stringp)) . ,(and at (pred integerp)))
           (let ((place (abs at)))
             (cond ((<= to place)
                    (push (lambda ()
                            (setcdr entry (if (< at 0) (- at more) (+ at more))))
                          steps))
                   ((<= place from)
                    (setq beg (+ from (length text))
                          end (+ to (length text))))
                   (t (setq possible nil)))))
          (`(nil ,_ ,_ ,first . ,last)
           (push (lambda ()
                   (let ((range (nthcdr 3 entry)))
                     (setcar range (funcall moved first))
                     (setcdr range (funcall moved last))))
                 steps))
          (_ (setq possible nil)))
        (setq tail (cdr here))))
    (and possible (or tail (null before-p))
         (lambda () (mapc #'funcall steps) tail))))

(defun pyagentd-edit--unrecorded (beg end length function)
  "Call FUNCTION, which replaces BEG to END by LENGTH characters.
Do not record it for undo if the undo entries can be adapted."
  (declare (indent 3))
  (let ((adapt (pyagentd-edit--earlier beg end length)))
    (if (null adapt) (funcall function)
      (let ((buffer-undo-list t))
        (funcall function))
      (funcall adapt))))

(defun pyagentd-edit--show (edit)
  "Apply EDIT to this buffer.
Undo skips it, and reverts only the user's own changes, wherever possible."
  (when edit
    (let ((pyagentd-edit--applying t)
          (inhibit-read-only t)
          (deactivate-mark nil)
          (followers (pyagentd-insert--followers
                      (save-restriction (widen) (point-max))))
          (modified (buffer-modified-p)))
      (undo-boundary)
      (save-excursion
        (save-restriction
          (widen)
          (pcase-dolist (`(,beg ,end ,text) (reverse edit))
            (goto-char end)
            (pyagentd-edit--unrecorded beg end (length text)
              (lambda ()
                (unless (string-empty-p text)
                  (insert text)
                  (pyagentd-edit--update-copy end end text pyagentd-edit--applying))
                (unless (= beg end)
                  (delete-region beg end)
                  (pyagentd-edit--update-copy beg end "" pyagentd-edit--applying)))))))
      (undo-boundary)
      (mapc #'pyagentd-insert--follow followers)
      (restore-buffer-modified-p modified))))

;;;; Merging with the daemon's text

(defun pyagentd-edit-base ()
  "Return the text of the file, and make all edits since then pending."
  (pyagentd-gc-postpone)
  (pyagentd-edit--settle)
  (pyagentd-edit--reset
   (pyagentd-edit-compose (pyagentd-edit-inverse pyagentd-edit--back)
                          pyagentd-edit--pending))
  (save-restriction
    (widen)
    (pyagentd-write-text
     (pyagentd-edit--apply-to-string
      (buffer-substring-no-properties (point-min) (point-max))
      (pyagentd-edit-inverse pyagentd-edit--pending)))))

(defun pyagentd-edit-merge (hunks revision)
  "Make the text that of the document at REVISION with the pending edit.
HUNKS lead there from the text that `pyagentd-edit-base' returned.  Changes
that both make are made once."
  (pyagentd-edit--settle)
  (let* ((edit (pyagentd-edit--from-wire hunks))
         (rest (pyagentd-edit--shared pyagentd-edit--pending edit)))
    (setq pyagentd-edit--pending (nth 0 rest)
          pyagentd-edit-revision revision)
    (pyagentd-edit--show (pyagentd-edit-around (nth 1 rest)))))

(defun pyagentd-edit-keep (texts &optional refused)
  "Keep TEXTS, typed here in conflict with another client's edit, in a buffer.
REFUSED, if non-nil, says why the daemon refused them."
  (let ((buffer (generate-new-buffer
                 (format "*%s: %s*" pyagentd--session-id
                         (if refused "not taken" "written at once")))))
    (with-current-buffer buffer
      (insert (mapconcat #'identity texts "\n\n"))
      (goto-char (point-min))
      (setq-local buffer-offer-save t))
    (pyagentd-log 'warn "%s: %s in %s" (buffer-name)
                  (if refused (concat refused "; what you typed is")
                    "changed here and elsewhere at once; \
the buffer has both texts, and yours is also")
                  (buffer-name buffer))))

;;;; Show an answer while it streams

;; A run has one marker, right after the prompt it answers.  The daemon's
;; text is inserted there; text that the user types there goes behind it.
;;
;; Insertion runs no change hooks: those of markdown-mode take 3 to 20 ms
;; a time in a large buffer, too much for twenty streaming agents.  The text
;; is marked as fontified, and really fontified when the stream pauses or
;; ends.
;;
;; An answer is one step of undo, however many pieces it came in.

(pyagentd-deflocal pyagentd-insert--marker nil
  "Where the next text of the run goes; stays before text typed there.")
(pyagentd-deflocal pyagentd-insert--cell nil
  "Entry (BEG . END) of `buffer-undo-list' that covers the run's text.")
(pyagentd-deflocal pyagentd-insert--dirty nil
  "Markers (BEG . END) around text that is not fontified yet.")
(pyagentd-deflocal pyagentd-insert--timer nil
  "Timer that fontifies when the stream pauses, or nil.")

(defvar pyagentd-insert-functions nil
  "Functions called after text of a run was inserted, with its bounds; be quick.")

(defun pyagentd-insert-position ()
  "Return the position where the next text of the run is inserted."
  (if pyagentd-insert--marker
      (marker-position pyagentd-insert--marker)
    (1+ (buffer-size))))

(defconst pyagentd-insert-sign (concat "\n\n\n" pyagentd-prompt-prefix)
  "Separator between an arriving answer and the draft below it.
It keeps commands on lines and paragraphs from changing the answer.  The
heading at the end of a run has one empty line less, by which the daemon
tells them apart.")

(defconst pyagentd-insert--heading
  (concat "\n\\(?:[ \t]*\n\\)*" (regexp-quote pyagentd-prompt-prefix))
  "Regexp for a prompt heading below a run's text, by the user or the daemon.")

(defun pyagentd-insert--after-change (beg end length)
  "Make text typed at the run's marker the user's, not part of the answer.
The text is between BEG and END and replaced LENGTH characters; only pure
insertions count.  While an answer arrives, also insert the separator, in one
edit with the typed text."
  (when (and (= length 0) (< beg end)
             (not (or undo-in-progress pyagentd-edit--applying))
             pyagentd-insert--marker (= beg pyagentd-insert--marker))
    (with-silent-modifications
      (remove-text-properties beg end '(gptel nil)))
    (when (pyagentd-status-busy-p)
      (save-excursion
        (goto-char beg)
        (unless (looking-at-p pyagentd-insert--heading)
          (let ((seen (pyagentd-edit--up-to-date-p)))
            (insert pyagentd-insert-sign)
            (when seen
              (setq pyagentd-edit--tick (buffer-chars-modified-tick)))))))))

(add-to-list 'pyagentd-session-hooks
             '(after-change-functions . pyagentd-insert--after-change))

(defun pyagentd-insert-end ()
  "Return where the text of the run ends.
Between two runs that is above the next prompt's heading, not behind it."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-insert-position))
      (when (pyagentd-prompt-empty-p)
        (forward-line 0)
        (skip-chars-backward "\n"))
      (point))))

(defun pyagentd-insert-arriving-p ()
  "Return non-nil if point is right behind an arriving answer."
  (and (pyagentd-status-busy-p) pyagentd-insert--marker
       (= (point) pyagentd-insert--marker)))

(defmacro pyagentd-insert--at-draft (&rest body)
  "Evaluate BODY with point behind the run's text if only a draft is below it."
  (declare (indent 0) (debug t))
  `(save-excursion
     (save-restriction
       (widen)
       (goto-char (pyagentd-insert-position))
       (unless (or buffer-read-only
                   (text-property-not-all (point) (point-max) 'gptel nil))
         ,@body))))

(defun pyagentd-insert-part ()
  "Separate the draft from the text of the run above it, if it is not yet."
  (pyagentd-insert--at-draft
    (unless (or (looking-at-p "[ \t]*\\(?:\n\\|\\'\\)")
                (pyagentd-prompt-empty-p))
      (insert pyagentd-insert-sign))))

(defun pyagentd-insert-begun ()
  "Insert `pyagentd-insert-sign' between the prompt of a run and a draft below.
Remove a heading with nothing below it: the run adds one when it ends."
  (pyagentd-insert--at-draft
    (when (looking-at pyagentd-insert--heading)
      (cond ((string-blank-p (buffer-substring (match-end 0) (point-max)))
             (delete-region (point) (match-end 0)))
            ((looking-at-p "\n\n#")
             (insert "\n")))))
  (pyagentd-insert-part))

(defun pyagentd-insert-join ()
  "Remove `pyagentd-insert-sign' below a run that has ended with a heading."
  (pyagentd-insert--at-draft
    (when (and (pyagentd-prompt-empty-p)
               (looking-at (format "\\(?:%s\\)+" pyagentd-insert--heading)))
      (let* ((beg (point)) (end (match-end 0))
             (adapt (pyagentd-edit--earlier beg end 0 #'equal)))
        (if (null adapt) (delete-region beg end)
          ;; As if it had never been there: its undo entry goes, too.
          (let ((tail (funcall adapt)))
            (setcar tail (caar tail))   ; where point was
            (let ((buffer-undo-list t))
              (delete-region beg end))))))))

(defun pyagentd-insert-start (position)
  "Set the position where the next answer begins to POSITION."
  (setq pyagentd-insert--cell nil)
  (pyagentd-insert-move position))

(defun pyagentd-insert-move (position)
  "Set the position where the answer continues to POSITION."
  (if pyagentd-insert--marker
      (set-marker pyagentd-insert--marker position)
    (save-restriction
      (widen)
      (setq pyagentd-insert--marker (copy-marker position)))))

;;;; Undo

(defun pyagentd-insert--record (pos length)
  "Record for undo that LENGTH characters were inserted at POS.
Extend the run's undo entry, and adapt the user's later entries as if the
characters had come before them.  If that is not possible, add a new entry."
  (unless (or (eq buffer-undo-list t) (= length 0))
    (let ((cell pyagentd-insert--cell))
      (if-let ((adapt (and cell
                           (pyagentd-edit--earlier
                            pos pos length
                            (lambda (entry place)
                              (and (eq entry cell)
                                   (= (car place) (cdr cell))))))))
          (progn (funcall adapt)
                 (cl-incf (cdr cell) length))
        (undo-boundary)
        (setq pyagentd-insert--cell (cons pos (+ pos length)))
        (push pyagentd-insert--cell buffer-undo-list)
        (undo-boundary)))))

(defun pyagentd-insert--keep (beg end)
  "Signal a `user-error' if undo would remove an arriving answer, BEG to END.
Its rest would be joined to the prompt, and redo would not find its place."
  (when (and (pyagentd-status-busy-p) pyagentd-insert--marker
             (equal (cons beg end) pyagentd-insert--cell)
             (= end pyagentd-insert--marker))
    (goto-char end)                     ; undo has gone to BEG
    (user-error "%s" (substitute-command-keys "The answer is still arriving; \
\\<pyagentd-mode-map>\\[pyagentd-abort] stops it, then it can be undone"))))

;;;; Point

(defun pyagentd-insert--followers (pos)
  "Return the buffers and windows whose point is at their end, POS.
Only these follow the stream; point elsewhere stays where it is."
  (cl-loop with base = (current-buffer)
           for buffer in (buffer-list)
           when (and (memq base (list buffer (buffer-base-buffer buffer)))
                     (= pos (with-current-buffer buffer (point-max))))
           nconc (cl-loop for window in (get-buffer-window-list buffer nil t)
                          when (= pos (window-point window)) collect window)
           and when (= pos (with-current-buffer buffer (point)))
           collect buffer))

;; For a window that shows another buffer meanwhile and then this one again.
(add-to-list 'pyagentd-session-settings '(window-point-insertion-type . t))

(defun pyagentd-insert--follow (follower)
  "Move point of FOLLOWER, a buffer or window, to the end."
  (if (windowp follower)
      (set-window-point follower (with-current-buffer (window-buffer follower)
                                   (point-max)))
    (with-current-buffer follower
      (goto-char (point-max)))))

;;;; Insertion

(defun pyagentd-insert (text role)
  "Insert TEXT at the marker of the run, with the text property `gptel' ROLE.
ROLE is nil, `response', `ignore' or (tool . ID)."
  (pyagentd-edit--settle)
  (let* ((pos (pyagentd-insert-position))
         (followers (pyagentd-insert--followers pos))
         (modified (buffer-modified-p)))
    (unless pyagentd-insert--marker
      (pyagentd-insert-move pos))
    (save-excursion
      (save-restriction
        (widen)
        (goto-char pos)
        (let ((inhibit-modification-hooks t)
              (inhibit-read-only t)
              (buffer-undo-list t))
          (insert (apply #'propertize text 'fontified t
                         (and role (list 'gptel role)))))
        (pyagentd-edit--update-copy pos pos text (buffer-chars-modified-tick))
        (set-marker pyagentd-insert--marker (point))))
    (restore-buffer-modified-p modified)
    (pyagentd-insert--record pos (length text))
    (mapc #'pyagentd-insert--follow followers)
    (run-hook-with-args 'pyagentd-insert-functions pos (+ pos (length text)))
    (pyagentd-insert--soil pos (+ pos (length text)))))

(defun pyagentd-insert--soil (beg end)
  "Schedule fontification of the text between BEG and END."
  (pyagentd-gc-postpone)
  (save-restriction
    (widen)
    (if pyagentd-insert--dirty
        (pcase-let ((`(,first . ,last) pyagentd-insert--dirty))
          (when (< beg first) (set-marker first beg))
          (when (> end last) (set-marker last end)))
      (setq pyagentd-insert--dirty (cons (copy-marker beg) (copy-marker end)))))
  (when pyagentd-insert--timer
    (cancel-timer pyagentd-insert--timer))
  (setq pyagentd-insert--timer
        (run-at-time 0.5 nil #'pyagentd-insert--paused (current-buffer))))

(defun pyagentd-insert--paused (buffer)
  "Have Font Lock fontify the new text in BUFFER."
  (pyagentd-with-live-buffer buffer
    (pyagentd-guarded "Fontify" (pyagentd-insert-flush))))

(defun pyagentd-insert-flush ()
  "Mark the text inserted since the last call for fontification."
  (pcase-let ((`(,first . ,last) pyagentd-insert--dirty))
    (when first
      (save-restriction
        (widen)
        (syntax-ppss-flush-cache (marker-position first))
        (pyagentd-syntax-forget (marker-position first) (marker-position last))
        (font-lock-flush (marker-position first) (marker-position last)))
      (setq pyagentd-insert--dirty nil)
      (set-marker first nil)
      (set-marker last nil))))

;;;; Queued messages in the text

;; The daemon reports which messages of a session are queued.  Text that was
;; typed and queued here stays where it is, highlighted by an overlay; when
;; its turn comes the run's marker moves behind it.

(defface pyagentd-queued '((t :inherit shadow :slant italic :extend t))
  "Face of queued messages."
  :group 'pyagentd)

(pyagentd-deflocal pyagentd-queued-items nil
  "The queued messages of this session, the next one first, as plists.
Their keys are :id, :text, :queued-at, :steer and :origin.")
(pyagentd-deflocal pyagentd-queued--overlays nil
  "Overlays over the messages sent from here, an alist (ID . OVERLAY).")

(defvar pyagentd-queued-hook nil
  "Hook run in a session buffer when its queued messages have changed.")

(defun pyagentd-answered-end (&optional before)
  "Return the end of the last text that is not the user's.
Search before the position BEFORE, by default the end of the buffer."
  (save-restriction
    (widen)
    (let ((pos (or before (point-max))))
      (while (and (> pos (point-min)) (not (get-text-property (1- pos) 'gptel)))
        (setq pos (previous-single-property-change pos 'gptel nil (point-min))))
      pos)))

(defun pyagentd-queued-start (end)
  "Return where the user's new text that ends at END begins.
That is below the last answer and all queued messages above it."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-answered-end end))
      (when (and pyagentd-insert--marker (<= (point) pyagentd-insert--marker end))
        (goto-char pyagentd-insert--marker))
      (pcase-dolist (`(,_ . ,overlay) pyagentd-queued--overlays)
        (when-let ((last (overlay-end overlay)))
          (when (and (overlay-get overlay 'face) (<= (point) last end))
            (goto-char last))))
      (while (progn (skip-chars-forward " \t\n" end)
                    (and (<= (+ (point) (length pyagentd-prompt-prefix)) end)
                         (looking-at-p (regexp-quote pyagentd-prompt-prefix))))
        (forward-char (length pyagentd-prompt-prefix)))
      (min (point) end))))

(defun pyagentd-queued-note (id beg end)
  "Record that the text between BEG and END was sent as the message ID."
  (let ((overlay (make-overlay beg end nil t nil)))
    (push (cons id overlay) pyagentd-queued--overlays)
    overlay))

(defun pyagentd-queued-forget (id)
  "Forget the position of the message ID, and return its end, or nil."
  (when-let ((overlay (alist-get id pyagentd-queued--overlays nil nil #'equal)))
    (prog1 (overlay-end overlay)
      (delete-overlay overlay)
      (setf (alist-get id pyagentd-queued--overlays nil t #'equal) nil))))

(defun pyagentd-queued-overlay (id)
  "Return the overlay over the text of the message ID, or nil."
  (when-let ((overlay (alist-get id pyagentd-queued--overlays nil nil #'equal)))
    (and (overlay-buffer overlay) overlay)))

(defun pyagentd-queued-receive (items)
  "Record ITEMS as the queued messages, and mark those that are in the text."
  (setq pyagentd-queued-items items)
  (dolist (item items)
    (let ((id (plist-get item :id)))
      (when (equal (plist-get item :origin) "document")
        (unless (pyagentd-queued-overlay id)
          (save-excursion
            (save-restriction
              (widen)
              (goto-char (pyagentd-answered-end))
              (when (search-forward (plist-get item :text) nil t)
                (pyagentd-queued-note id (match-beginning 0) (match-end 0))))))
        (when-let ((overlay (pyagentd-queued-overlay id)))
          (overlay-put overlay 'face 'pyagentd-queued)
          (overlay-put overlay 'help-echo "Queued; C-c C-q lists messages that wait")
          (overlay-put overlay 'evaporate t)
          (overlay-put overlay 'modification-hooks '(pyagentd-chat--on-change))
          (overlay-put overlay 'after-string
                       (propertize "  [queued]" 'face 'pyagentd-queued
                                   'cursor t))))))
  (pcase-dolist (`(,id . ,overlay) (copy-sequence pyagentd-queued--overlays))
    (when (and (overlay-get overlay 'face)
               (not (cl-find id items :test #'equal
                             :key (lambda (item) (plist-get item :id)))))
      (pyagentd-queued-forget id)))
  (run-hooks 'pyagentd-queued-hook))

(provide 'pyagentd-edit)
;;; pyagentd-edit.el ends here

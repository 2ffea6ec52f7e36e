;;; pyagentd-insert.el --- Inserting what the daemon sends -*- lexical-binding: t; -*-

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

;; Inserts answers and messages that wait above what the user types.

;;; Code:

(require 'cl-lib)
(require 'pyagentd-core)
(require 'pyagentd-large)
(require 'pyagentd-session)
(require 'pyagentd-edit)


;;;; Show an answer while it streams

;; A run has one marker, right after the prompt it answers.  Everything
;; the daemon inserts goes there; what the user types at it goes behind.
;;
;; Insertion is silent: the change hooks of markdown-mode cost 3 to 20 ms
;; a time in a large buffer, which twenty streaming agents cannot afford.
;; The text is marked as fontified and is fontified in earnest when the
;; stream pauses or ends.
;;
;; An answer is one step of undo, however many pieces it came in.

(defvar-local pyagentd-insert--marker nil
  "Where the next text of the run goes; stays before text typed there.")
(defvar-local pyagentd-insert--cell nil
  "Entry (BEG . END) of `buffer-undo-list' that covers the run's text.")
(defvar-local pyagentd-insert--dirty nil
  "Markers (BEG . END) around text that was not fontified yet.")
(defvar-local pyagentd-insert--timer nil
  "Timer that fontifies when the stream pauses.")
(defvar-local pyagentd-insert--time nil
  "Time (`float-time') of the last insertion.")

(pyagentd-permanent-local 'pyagentd-insert--marker 'pyagentd-insert--cell
                          'pyagentd-insert--dirty 'pyagentd-insert--timer
                          'pyagentd-insert--time)

(defvar pyagentd-insert-hook nil
  "Hook run after text of a run was inserted; be quick.")

;;;; The marker

(defun pyagentd-insert-position ()
  "Return the position of the next text of the run."
  (if pyagentd-insert--marker
      (marker-position pyagentd-insert--marker)
    (1+ (buffer-size))))

(defun pyagentd-insert--after-change (beg end length)
  "Text of LENGTH 0 before, typed between BEG and END at the marker, is the user's.
It would be part of the answer before it, as text typed anywhere else is."
  (when (and (= length 0) (< beg end) (not undo-in-progress)
             pyagentd-insert--marker (= beg pyagentd-insert--marker))
    (with-silent-modifications
      (remove-text-properties beg end '(gptel nil)))))

(add-to-list 'pyagentd-session-hooks
             '(after-change-functions . pyagentd-insert--after-change))
(put 'pyagentd-insert--after-change 'permanent-local-hook t)

(defun pyagentd-insert-end ()
  "Return where the text of the run ends.
Between two runs that is above the prompt typed next, not behind its sign."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-insert-position))
      (let ((sign (- (point) (length pyagentd-prompt-prefix))))
        (when (and (>= sign (point-min))
                   (not (get-text-property sign 'gptel))
                   (progn (goto-char sign) (bolp))
                   (looking-at-p (regexp-quote pyagentd-prompt-prefix)))
          (skip-chars-backward "\n")
          (setq sign nil))
        (if sign (pyagentd-insert-position) (point))))))

(defun pyagentd-insert-start (position)
  "Let the next answer begin at POSITION."
  (setq pyagentd-insert--cell nil)
  (pyagentd-insert-move position))

(defun pyagentd-insert-move (position)
  "Let the answer go on at POSITION."
  (if pyagentd-insert--marker
      (set-marker pyagentd-insert--marker position)
    (save-restriction
      (widen)
      (setq pyagentd-insert--marker (copy-marker position)))))

;;;; Undo

(defun pyagentd-insert--shift (tail pos length)
  "Find out how inserting before the change in TAIL would have changed it.
TAIL is a tail of `buffer-undo-list'; LENGTH characters were inserted at
POS after the change in its car.  Return (POS . FUNCTION): where they
were inserted had they come first, and what adapts the entry, or nil if
that cannot be said."
  (let ((entry (car tail)))
    (pcase entry
      ('nil (list pos))
      ((pred integerp)
       (cons pos (when (>= entry pos)
                   (lambda () (setcar tail (+ entry length))))))
      (`(t . ,_) (list pos))
      (`(,(pred markerp) . ,_) (list pos))
      (`(,(and beg (pred integerp)) . ,(and end (pred integerp)))
       (cond ((<= pos beg)
              (cons pos (lambda ()
                          (setcar entry (+ beg length))
                          (setcdr entry (+ end length)))))
             ((>= pos end) (list (- pos (- end beg))))))
      (`(,(and text (pred stringp)) . ,(and at (pred integerp)))
       (if (<= pos (abs at))
           (cons pos (lambda ()
                       (setcdr entry (if (< at 0) (- at length)
                                       (+ at length)))))
         (list (+ pos (length text)))))
      (`(nil ,_ ,_ ,beg . ,end)
       (cond ((<= pos beg)
              (cons pos (lambda ()
                          (let ((range (nthcdr 3 entry)))
                            (setcar range (+ beg length))
                            (setcdr range (+ end length))))))
             ((>= pos end) (list pos)))))))

(defun pyagentd-insert--extend (pos length)
  "Extend the run's undo entry by LENGTH characters inserted at POS.
Later entries, the user's, are adapted as if ours had come before them.
Return nil, with nothing changed, if that is not possible."
  (let ((tail buffer-undo-list)
        (steps nil)
        (possible pyagentd-insert--cell))
    (while (and possible tail (not (eq (car tail) pyagentd-insert--cell)))
      (let ((shift (pyagentd-insert--shift tail pos length)))
        (if (null shift)
            (setq possible nil)
          (setq pos (car shift)
                tail (cdr tail))
          (when (cdr shift) (push (cdr shift) steps)))))
    (when (and possible tail (= pos (cdr pyagentd-insert--cell)))
      (mapc #'funcall steps)
      (cl-incf (cdr pyagentd-insert--cell) length))))

(defun pyagentd-insert--record (pos length)
  "Record for undo that LENGTH characters were inserted at POS."
  (unless (or (eq buffer-undo-list t) (= length 0)
              (pyagentd-insert--extend pos length))
    (undo-boundary)
    (setq pyagentd-insert--cell (cons pos (+ pos length)))
    (push pyagentd-insert--cell buffer-undo-list)
    (undo-boundary)))

;;;; Point

(defun pyagentd-insert--family ()
  "Return the current buffer and its indirect buffers."
  (let ((base (current-buffer)))
    (cons base (cl-loop for buffer in (buffer-list)
                        when (eq (buffer-base-buffer buffer) base)
                        collect buffer))))

(defun pyagentd-insert--followers (pos)
  "Return the buffers and windows whose point is at their end, POS.
Only these follow the stream; point elsewhere stays where it is."
  (cl-loop for buffer in (pyagentd-insert--family)
           when (= pos (with-current-buffer buffer (point-max)))
           nconc (cl-loop for window in (get-buffer-window-list buffer nil t)
                          when (= pos (window-point window)) collect window)
           and when (= pos (with-current-buffer buffer (point)))
           collect buffer))

;; A window that shows another buffer meanwhile, and comes back.
(add-to-list 'pyagentd-session-settings '(window-point-insertion-type . t))

(defun pyagentd-insert--follow (follower)
  "Put point of FOLLOWER, a buffer or window, at the end."
  (if (windowp follower)
      (set-window-point follower (with-current-buffer (window-buffer follower)
                                   (point-max)))
    (with-current-buffer follower
      (goto-char (point-max)))))

;;;; Insertion

(defun pyagentd-insert (text role)
  "Insert TEXT, whose gptel property is ROLE, at the marker of the run.
ROLE is nil, `response', `ignore' or (tool . ID)."
  (let* ((pos (pyagentd-insert-position))
         (followers (pyagentd-insert--followers pos))
         (modified (or (not pyagentd-session-viewing) (buffer-modified-p))))
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
        (set-marker pyagentd-insert--marker (point))))
    (restore-buffer-modified-p modified)
    (pyagentd-edit-except pos (+ pos (length text)))
    (pyagentd-insert--record pos (length text))
    (mapc #'pyagentd-insert--follow followers)
    (run-hooks 'pyagentd-insert-hook)
    (pyagentd-insert--soil pos (+ pos (length text)))
    (unless pyagentd-session-viewing
      (pyagentd-autosave-touch t))))

;;;; Fontification

(defun pyagentd-insert--soil (beg end)
  "Note that the text between BEG and END is to be fontified."
  (setq pyagentd-insert--time (float-time))
  (pyagentd-gc-postpone)
  (save-restriction
    (widen)
    (if pyagentd-insert--dirty
        (pcase-let ((`(,first . ,last) pyagentd-insert--dirty))
          (when (< beg first) (set-marker first beg))
          (when (> end last) (set-marker last end)))
      (setq pyagentd-insert--dirty (cons (copy-marker beg) (copy-marker end)))))
  (pyagentd-insert--arm 0.5))

(defun pyagentd-insert--arm (delay)
  "Look after DELAY seconds whether the stream pauses."
  (unless pyagentd-insert--timer
    (setq pyagentd-insert--timer
          (run-at-time delay nil #'pyagentd-insert--on-timer (current-buffer)))))

(defun pyagentd-insert--on-timer (buffer)
  "Let what is new in BUFFER be fontified, unless more arrives just now."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (setq pyagentd-insert--timer nil)
      (if (and pyagentd-insert--time
               (< (- (float-time) pyagentd-insert--time) 0.45))
          (pyagentd-insert--arm 0.5)
        (pyagentd-guarded "Fontify" (pyagentd-insert-flush))))))

(defun pyagentd-insert-flush ()
  "Let what was inserted since the last time be fontified when it is shown."
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

;;;; Messages that wait, in the text

;; Which messages of a session wait for their turn is what the daemon says.
;; Text that was typed and queued here stays where it is, under an overlay
;; that shows it; when its turn comes the run's marker moves behind it.

(defface pyagentd-queued '((t :inherit shadow :slant italic :extend t))
  "Face of queued messages."
  :group 'pyagentd)

(defvar-local pyagentd-queued-items nil
  "The messages that wait here, the next one first, plists from the daemon.
Their keys are :id, :text, :queued-at, :steer and :origin.")
(defvar-local pyagentd-queued--overlays nil
  "Where text that was sent from here stands: an alist (ID . OVERLAY).")

(pyagentd-permanent-local 'pyagentd-queued-items 'pyagentd-queued--overlays)

(defvar pyagentd-queued-hook nil
  "Hook run in a session buffer when what waits there has changed.")

(defun pyagentd-queued-new-id ()
  "Return an id for a message."
  (format "msg_%s%08x" (format-time-string "%s%3N") (random (ash 1 32))))

;;;; Where the text is

(defun pyagentd-queued--answered ()
  "Return the end of the last text that is not the user's."
  (save-restriction
    (widen)
    (let ((pos (point-max)))
      (while (and (> pos (point-min)) (not (get-text-property (1- pos) 'gptel)))
        (setq pos (previous-single-property-change pos 'gptel nil (point-min))))
      pos)))

(defun pyagentd-queued-start (end)
  "Return where the user's new text that ends at END begins.
That is below the last answer and everything that is queued already."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-queued--answered))
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
  "Note that the text between BEG and END was sent as the message ID."
  (let ((overlay (make-overlay beg end nil t nil)))
    (push (cons id overlay) pyagentd-queued--overlays)
    overlay))

(defun pyagentd-queued-forget (id)
  "Forget where the message ID stands, and return where it ended, or nil."
  (when-let ((overlay (alist-get id pyagentd-queued--overlays nil nil #'equal)))
    (prog1 (overlay-end overlay)
      (delete-overlay overlay)
      (setf (alist-get id pyagentd-queued--overlays nil t #'equal) nil))))

(defun pyagentd-queued-overlay (id)
  "Return the overlay over the text of the message ID, or nil."
  (when-let ((overlay (alist-get id pyagentd-queued--overlays nil nil #'equal)))
    (and (overlay-buffer overlay) overlay)))

(defun pyagentd-queued--show (id)
  "Show that the text of the message ID waits."
  (when-let ((overlay (pyagentd-queued-overlay id)))
    (overlay-put overlay 'face 'pyagentd-queued)
    (overlay-put overlay 'help-echo "Queued; C-c C-q lists messages that wait")
    (overlay-put overlay 'evaporate t)
    (overlay-put overlay 'modification-hooks '(pyagentd-queued--on-change))
    (overlay-put overlay 'after-string
                 (propertize "  [queued]" 'face 'pyagentd-queued 'cursor t))
    (pyagentd-queued--part overlay)))

(defun pyagentd-queued--part (overlay)
  "Show the text of OVERLAY on a line of its own, below what is being said.
What is said grows directly before it, until the next prompt is there."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (overlay-start overlay))
      (overlay-put overlay 'before-string
                   (unless (or (bolp)
                               (looking-back (concat "^" (regexp-quote
                                                          pyagentd-prompt-prefix))
                                             (line-beginning-position)))
                     (concat "\n\n" (propertize pyagentd-prompt-prefix
                                                'face 'pyagentd-queued)))))))

(defun pyagentd-queued--part-all ()
  "Show each text that waits on a line of its own."
  (pcase-dolist (`(,_ . ,overlay) pyagentd-queued--overlays)
    (when (and (overlay-buffer overlay) (overlay-get overlay 'face))
      (pyagentd-queued--part overlay))))

(add-hook 'pyagentd-insert-hook #'pyagentd-queued--part-all)

(defun pyagentd-queued--find (item)
  "Make an overlay over the text of ITEM, if it stands in the text."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (pyagentd-queued--answered))
      (when (search-forward (plist-get item :text) nil t)
        (pyagentd-queued-note (plist-get item :id) (match-beginning 0)
                              (match-end 0))))))

(defvar pyagentd-queued-edited-function #'ignore
  "Function called when the text of a queued message was changed.
It gets the id of the message and what it says now.")

(defun pyagentd-queued--on-change (overlay after &rest _)
  "Note a change of the text under OVERLAY, which is over if AFTER is non-nil."
  (when after
    (when-let ((id (car (rassq overlay pyagentd-queued--overlays))))
      (funcall pyagentd-queued-edited-function id
               (if (overlay-start overlay)
                   (buffer-substring-no-properties (overlay-start overlay)
                                                   (overlay-end overlay))
                 "")))))

;;;; What the daemon says

(defun pyagentd-queued-receive (items)
  "Note that ITEMS wait, and show those that stand in the text."
  (setq pyagentd-queued-items items)
  (dolist (item items)
    (let ((id (plist-get item :id)))
      (when (equal (plist-get item :origin) "document")
        (unless (pyagentd-queued-overlay id)
          (pyagentd-queued--find item))
        (pyagentd-queued--show id))))
  (pcase-dolist (`(,id . ,overlay) (copy-sequence pyagentd-queued--overlays))
    (when (and (overlay-get overlay 'face)
               (not (cl-find id items :test #'equal
                             :key (lambda (item) (plist-get item :id)))))
      (pyagentd-queued-forget id)))
  (run-hooks 'pyagentd-queued-hook))

(defun pyagentd-queued-fired (fired)
  "Let the run go on behind the text of the message in FIRED, a plist.
Return nil if that text is not found."
  (let* ((overlay (pyagentd-queued-overlay (plist-get fired :id)))
         (waited (and overlay (overlay-get overlay 'face)))
         (end (or (pyagentd-queued-forget (plist-get fired :id))
                  (and (equal (plist-get fired :sha256) (pyagentd-write-sha256))
                       (plist-get fired :position)))))
    (when end
      (pyagentd-insert-start end)
      (when (and waited (not pyagentd-session-viewing))
        (pyagentd-queued--join end))
      t)))

(defun pyagentd-queued--join (end)
  "Remove the prompt prefix behind END: the answer brings one of its own."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char end)
      (when (looking-at (concat "\n\n" (regexp-quote pyagentd-prompt-prefix)))
        (delete-region end (match-end 0))))))

(defun pyagentd-queued-place (place)
  "Return where a message of another client goes that is to be at PLACE.
That is a plist with :position and :sha256, or nil for the end."
  (save-restriction
    (widen)
    (cond ((null place) (point-max))
          ((equal (plist-get place :sha256) (pyagentd-write-sha256))
           (plist-get place :position))
          ((and pyagentd-insert--marker
                (<= (pyagentd-queued--answered) pyagentd-insert--marker))
           (marker-position pyagentd-insert--marker))
          (t (point-max)))))

(provide 'pyagentd-insert)
;;; pyagentd-insert.el ends here

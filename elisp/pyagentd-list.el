;;; pyagentd-list.el --- Lists and pages from the daemon -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors

;; Author: The pyagentd authors
;; Keywords: tools, convenience
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; One mode for all lists: the daemon provides columns, rows and actions.
;; Another mode shows pages of text in the same way.

;;; Code:

(require 'outline)
(require 'tabulated-list)
(require 'pyagentd)

(declare-function pyagentd-search-visit "pyagentd-sessions")

;;;; Live lists

;; A list is requested with :watch; the daemon then sends an event when it
;; changes.  The list is fetched again after a pause: not while the user
;; types, and the less often the longer a fetch takes.

(defvar pyagentd-live-pause 0.5
  "Seconds to wait for further changes before a list is fetched again.")

(defvar-local pyagentd-list--follows nil
  "The subjects that this list follows, strings from the daemon.")
(defvar-local pyagentd-live--timer nil
  "Timer that fetches this list, or nil.")

(pyagentd-events-register
 'sessions
 (lambda (&rest _)
   (if (seq-some (lambda (buffer)
                   (buffer-local-value 'pyagentd-table--fetch buffer))
                 (buffer-list))
       (pyagentd-list-changed "sessions")
     ;; The last list was killed.
     (pyagentd-rpc-call-async 'unwatch nil :error #'ignore))))

(defun pyagentd-live--wanted-p ()
  "Return non-nil if a window shows a live list."
  (seq-some (lambda (buffer)
              (and (buffer-local-value 'pyagentd-list--follows buffer)
                   (get-buffer-window buffer 'visible)))
            (buffer-list)))

(add-hook 'pyagentd-connect-wanted-functions #'pyagentd-live--wanted-p)

(defvar-local pyagentd-table--took 0
  "Seconds that the last fetch took, display included.")

(defun pyagentd-live--soon ()
  "Schedule a fetch of this list, one for many changes."
  (unless pyagentd-live--timer
    (setq pyagentd-live--timer
          (run-at-time (if (zerop pyagentd-live-pause) 0
                         (max pyagentd-live-pause (* 5 pyagentd-table--took)))
                       nil
                       (pyagentd-later-back
                        (lambda ()
                          (setq pyagentd-live--timer nil)
                          (if (input-pending-p) (pyagentd-live--soon)
                            (pyagentd-guarded "List"
                              (pyagentd-list--catch-up)))))))))

;;;; Tables: rows, marks and a filter

(defvar-local pyagentd-table-rows nil
  "The rows of this list, plists as the daemon sent them.")
(defconst pyagentd-table--help
  '(("g" "refresh") ("q" "close") ("?" "help"))
  "Keys of every list that its last line names, a list of (KEY WORD).")
(defvar-local pyagentd-table-help pyagentd-table--help
  "All keys that the last line names.")
(defvar-local pyagentd-table--filter nil
  "Words that a line must have to be shown, or nil.")
(defvar-local pyagentd-table-marks nil
  "Ids of the lines that are marked.")
(defvar-local pyagentd-table--note nil
  "Note for the mode line, or nil.")
(defvar-local pyagentd-table--fetch nil
  "Function that fetches what this buffer shows.")
(defvar-local pyagentd-table--behind nil
  "Non-nil if something has changed since the rows were fetched.")
(defvar pyagentd-table--quietly nil
  "Non-nil during a fetch that the user did not ask for.")
(pyagentd-deflocal pyagentd-table--latest 0
  "Number of the latest request; older replies are dropped.")

(defvar-local pyagentd-list-name nil
  "The name of the list in this buffer.")
(defvar-local pyagentd-list-arguments nil
  "The arguments of the list in this buffer, a plist.")
(defvar-local pyagentd-list--limit nil
  "Maximum number of rows to fetch; nil means the daemon's default.")
(defvar-local pyagentd-list--view nil
  "The latest reply of the daemon, a plist.")
(defvar-local pyagentd-list--index nil
  "Hash table from the id of each row to (ROW . TOP).
TOP is the row's ancestor at level 0, or the row itself.")
(defvar-local pyagentd-list--folded nil
  "Ids of the rows whose children are hidden.")

(defun pyagentd-table-keys (keys)
  "Return lines that name KEYS, a list of (KEY WORD), as wide as the window."
  (let* ((window (window-width (get-buffer-window nil t)))
         (width (if (< window 40) 80 window)) ; in batch it has no size
         (column 0))
    (mapconcat
     (pcase-lambda (`(,key ,word))
       (let* ((text (concat (propertize key 'face 'pyagentd-key) " " word))
              (wide (+ column 2 (string-width text)))
              (fits (or (zerop column) (< wide width))))
         (prog1 (concat (cond ((zerop column) "") (fits "  ") (t "\n")) text)
           (setq column (if fits wide (string-width text))))))
     keys "")))

(defun pyagentd-table-keep-place (place go print)
  "Call PRINT, which rewrites this buffer, and keep point and scrolling.
They are kept in each window; one that showed the beginning shows it
again.  The function PLACE describes the position of point, and GO moves
point there."
  (let ((here (funcall place))
        (windows (mapcar
                  (lambda (window)
                    (save-excursion
                      (goto-char (window-point window))
                      (list window (funcall place)
                            (and (> (window-start window) (point-min))
                                 (count-lines (window-start window)
                                              (line-beginning-position))))))
                  (and (> (buffer-size) 0)
                       (get-buffer-window-list nil nil t)))))
    (funcall print)
    (pcase-dolist (`(,window ,place ,above) windows)
      (funcall go place)
      (set-window-point window (point))
      (when above
        (forward-line (- above))
        (set-window-start window (point) t)))
    (funcall go here)))

(defun pyagentd-table--go (place)
  "Go to PLACE, (ID LINE COLUMN), or to the row there if that is gone."
  (pcase-let ((`(,id ,line ,column) place))
    (goto-char (point-min))
    (while (not (or (eobp) (equal id (tabulated-list-get-id))))
      (forward-line))
    (when (or (null id) (eobp))
      (goto-char (point-min))
      (forward-line (1- line))
      (while (and id (not (bobp)) (null (tabulated-list-get-id)))
        (forward-line -1)))
    (move-to-column column)))

(defun pyagentd-table-print ()
  "Show the rows with the current filter, marks and folds."
  (let ((gc-cons-threshold (max gc-cons-threshold (* 64 1024 1024))))
    (setq pyagentd-table-marks (seq-filter #'pyagentd-list--row
                                           pyagentd-table-marks)
          tabulated-list-entries (pyagentd-table--filtered)
          tabulated-list-printer
          (lambda (id columns)
            (let ((start (point)))
              (tabulated-list-print-entry id columns)
              (when (member id pyagentd-table-marks)
                (save-excursion
                  (goto-char start)
                  (pyagentd-table--put-mark t))))))
    (pyagentd-table-keep-place
     (lambda ()
       (list (tabulated-list-get-id) (line-number-at-pos) (current-column)))
     #'pyagentd-table--go #'pyagentd-table--print)))

(defun pyagentd-table--print ()
  "Print `tabulated-list-entries', and the keys below them."
  (tabulated-list-print)
  (goto-char (point-max))
  (let ((inhibit-read-only t))
    (insert (cond (tabulated-list-entries "\n")
                  (pyagentd-table-rows
                   "No matches; / with no words shows all\n\n")
                  (t (concat (or (plist-get pyagentd-list--view :empty)
                                 "Nothing.")
                             "\n\n")))
            (pyagentd-table-keys pyagentd-table-help)
            "\n"))
  (set-buffer-modified-p nil))

(defun pyagentd-table-say (note)
  "Show NOTE, or nil, in the mode line."
  (setq pyagentd-table--note note
        mode-line-process
        (when (or note pyagentd-table--filter)
          (string-replace
           "%" "%%"
           (concat (and pyagentd-table--filter
                        (concat " /" pyagentd-table--filter))
                   (and note (concat " " note))))))
  (force-mode-line-update))

(defun pyagentd-table--filtered ()
  "Return the entries of the rows that contain all words of the filter."
  (let ((words (split-string (downcase (or pyagentd-table--filter "")) nil t))
        (entries (mapcar #'pyagentd-list--entry (pyagentd-list--unfolded))))
    (if (or (null words) (plist-get pyagentd-list--view :filters)) entries
      (seq-filter
       (lambda (entry)
         (let ((text (downcase (mapconcat (lambda (column)
                                            (if (consp column) (car column)
                                              (format "%s" column)))
                                          (cadr entry) " "))))
           (seq-every-p (lambda (word) (string-search word text)) words)))
       entries))))

(defun pyagentd-table--filter (filter)
  "Show only lines in which all words of FILTER occur; nothing shows all."
  (interactive (list (read-string "Filter (words, empty for all): "
                                  pyagentd-table--filter))
               pyagentd-list-mode)
  (setq pyagentd-table--filter (unless (string-blank-p filter) filter))
  (pyagentd-table-say pyagentd-table--note)
  (if (not (plist-get pyagentd-list--view :filters)) (pyagentd-table-print)
    (setq pyagentd-list--limit nil)     ; the daemon filters these
    (pyagentd-list-again-with (list :words (or pyagentd-table--filter "")))))

(defun pyagentd-table--rearrange ()
  "Sort by a column or change its width, then print the keys below again."
  (interactive nil pyagentd-list-mode)
  (call-interactively this-original-command)
  (pyagentd-table-print))

;;;; Marks

(defun pyagentd-table--put-mark (on)
  "Show a mark on the line at point if ON is non-nil, else remove it."
  (tabulated-list-put-tag (if on (propertize "*" 'face 'warning) " ")))

(defun pyagentd-table--set-mark (on)
  "Mark the lines of the region or the one at point if ON, else unmark; move on."
  (let ((end (and (use-region-p) (copy-marker (region-end)))))
    (when end
      (goto-char (region-beginning))
      (deactivate-mark))
    (while (progn
             (when-let ((id (tabulated-list-get-id)))
               (if on (cl-pushnew id pyagentd-table-marks :test #'equal)
                 (setq pyagentd-table-marks (delete id pyagentd-table-marks)))
               (pyagentd-table--put-mark on))
             (forward-line)
             (and end (< (point) end))))))

(defun pyagentd-table--mark ()
  "Mark the line at point, or those in the region."
  (interactive nil pyagentd-list-mode)
  (pyagentd-table--set-mark t))

(defun pyagentd-table--unmark ()
  "Unmark the line at point, or those in the region."
  (interactive nil pyagentd-list-mode)
  (pyagentd-table--set-mark nil))

(defun pyagentd-table--unmark-all ()
  "Remove all marks."
  (interactive nil pyagentd-list-mode)
  (setq pyagentd-table-marks nil)
  (pyagentd-table-print))

(defun pyagentd-table-marked ()
  "Return the rows whose lines are marked and shown.
Marked rows that the filter hides do not count."
  (cl-loop for (id) in tabulated-list-entries
           when (member id pyagentd-table-marks)
           collect (pyagentd-list--row id)))

(defun pyagentd-table-targets ()
  "Return the marked rows, or a list of the row at point if there are none."
  (or (pyagentd-table-marked) (list (pyagentd-table-row))))

(defun pyagentd-table-forget-marks ()
  "Unmark the rows that are shown, after a command has acted on them."
  (setq pyagentd-table-marks
        (seq-remove (lambda (id) (assoc id tabulated-list-entries))
                    pyagentd-table-marks)))

(defun pyagentd-table-row ()
  "Return the row at point."
  (or (pyagentd-list--row (tabulated-list-get-id))
      (user-error "Nothing at point")))

(defun pyagentd-table-facts ()
  "Return the facts of the row at point, a plist."
  (plist-get (pyagentd-table-row) :facts))

;;;; Lists: tables from the daemon

(defvar pyagentd-list-after-show-hook nil
  "Hook run in the buffer of a list after its rows were shown.")

(defun pyagentd-list-visit-place (place &optional other-window)
  "Visit PLACE, a plist from the daemon, in another window if OTHER-WINDOW."
  (pcase (plist-get place :kind)
    ("session" (pyagentd-here-visit
                (list :file (pyagentd-place-conversation
                             (plist-get place :branch)))
                other-window))
    ("message" (pyagentd-search-visit place other-window))
    ("file" (let ((file (plist-get place :file)))
              (unless (file-exists-p file)
                (user-error "%s is gone" (abbreviate-file-name file)))
              (if other-window (find-file-other-window file)
                (find-file file))))
    ("view" (pyagentd-list-show (plist-get place :name)
                                (plist-get place :arguments)))
    ("report"
     (display-buffer
      (pyagentd-report-buffer
       (plist-get place :name)
       (append (plist-get place :arguments)
               (and (plist-get place :env)
                    (list :env (pyagentd-env-variables))))
       (unless (equal "" (plist-get place :called))
         (plist-get place :called)))))
    ("call" (funcall (plist-get place :function))) ; made by Emacs
    (_ (user-error "Nothing to visit here"))))

;;;; Fetching

(defun pyagentd-table-fetch (operation more show failed)
  "Call the daemon's OPERATION, which returns the content of this buffer.
MORE are arguments besides the name and arguments of the list.  SHOW is
called with the reply, FAILED with an error; older replies are dropped."
  (let* ((number (setq pyagentd-table--latest (1+ pyagentd-table--latest)))
         (start (float-time))
         ;; Not in the process filter that reads the reply.
         (with-latest
          (lambda (function)
            (pyagentd-later-back
             (lambda (value)
               (pyagentd-later-soon
                (lambda ()
                  (when (= number pyagentd-table--latest)
                    (funcall function value)))))))))
    (unless pyagentd-table--quietly (pyagentd-table-say "loading…"))
    (setq pyagentd-table--behind nil)
    (pyagentd-rpc-call-async
     operation
     (append (list :name pyagentd-list-name)
             (when pyagentd-list-arguments
               (list :arguments pyagentd-list-arguments))
             more '(:watch t))
     ;; The usage of thousands of sessions takes a while.
     :timeout pyagentd-later-patience
     :success (funcall with-latest
                       (lambda (answer)
                         (pyagentd-table-say nil)
                         (funcall show answer)
                         (setq pyagentd-table--took (- (float-time) start))))
     :error (funcall with-latest failed))))

(defun pyagentd-table-set-up (fetch)
  "Make the function FETCH provide the content of this buffer."
  (pyagentd-plain-characters)
  (setq pyagentd-table--fetch fetch)
  (setq-local revert-buffer-function
              (lambda (&rest _)
                (pyagentd-start (pyagentd-later-back pyagentd-table--fetch)
                                (pyagentd-later-back #'pyagentd-list--failed))))
  (add-hook 'window-buffer-change-functions #'pyagentd-list--catch-up nil t))

(defun pyagentd-list--failed (err)
  "Report ERR, which a fetch failed with; the old content stays."
  (pyagentd-table-say "failed")
  (unless (or pyagentd-table-rows (derived-mode-p 'pyagentd-report-mode))
    (setq pyagentd-list--view (list :empty (pyagentd-error-text err)))
    (pyagentd-table-print))
  (pyagentd-later-tell err))

(defun pyagentd-list--receive (view)
  "Show VIEW, a list from the daemon, in this buffer, and bind its keys."
  (let ((first (null tabulated-list-format))
        top)
    (setq pyagentd-table-rows (plist-get view :rows)
          pyagentd-list--view view
          pyagentd-list--follows (plist-get view :follows)
          mode-name (plist-get view :title)
          tabulated-list-format (pyagentd-list--format view)
          pyagentd-list--index (make-hash-table :test #'equal))
    (unless (assoc (car tabulated-list-sort-key)
                   (append tabulated-list-format nil))
      (setq tabulated-list-sort-key nil))
    (tabulated-list-init-header)
    (pyagentd-list--define-keys view)
    (dolist (row pyagentd-table-rows)
      (when (or (null top) (zerop (or (plist-get row :level) 0)))
        (setq top row))
      (puthash (plist-get row :id) (cons row top) pyagentd-list--index))
    (pyagentd-table-print)
    (pyagentd-table-say (plist-get view :note))
    (when-let ((current (and first (plist-get view :current))))
      (pyagentd-table--go (list current 1 0))
      (when-let ((window (get-buffer-window nil t)))
        (set-window-point window (point)))))
  (run-hooks 'pyagentd-list-after-show-hook))

(defun pyagentd-list--format (view)
  "Return the columns of VIEW, without the last if the window is too narrow."
  (let* ((columns (plist-get view :columns))
         (left 0)                       ; width left for the last one
         (free (- (window-width (get-buffer-window nil t)) 2
                  (apply #'+ (mapcar (lambda (column)
                                       (1+ (or (plist-get column :width) 0)))
                                     columns)))))
    (if (< free (or (plist-get (car (last columns)) :least) 0))
        (setq columns (butlast columns)
              free (1+ free))
      (setq left 24))
    (vconcat
     (seq-map-indexed
      (lambda (column number)
        (let ((width (or (plist-get column :width) 0))
              (most (plist-get column :most)))
          (append (list (plist-get column :title)
                        (if most
                            (max width (min most (+ width free)
                                            (max 30 (+ width free (- left)))))
                          width)
                        (and (plist-get column :sorts)
                             (pyagentd-list--sorter number)))
                  (when (plist-get column :right) '(:right-align t)))))
      columns))))

(defun pyagentd-list--sorter (number)
  "Return a predicate that compares entries by their column NUMBER.
Rows of a tree are compared by their ancestor: sorting is stable, so they
stay below it."
  (lambda (a b)
    (let ((a (pyagentd-list--value (pyagentd-list--top a) number))
          (b (pyagentd-list--value (pyagentd-list--top b) number)))
      (cond ((equal a b) nil)
            ((and (numberp a) (numberp b)) (< a b))
            (t (string-collate-lessp (format "%s" a) (format "%s" b)
                                     nil t))))))

(defun pyagentd-list--top (entry)
  "Return the row at level 0 above ENTRY of `tabulated-list-entries'."
  (cdr (gethash (car entry) pyagentd-list--index)))

(defun pyagentd-list--value (row number)
  "Return the sort key of ROW in column NUMBER."
  (let ((cell (nth number (plist-get row :cells))))
    (or (plist-get cell :sort) (plist-get cell :text) "")))

(defun pyagentd-list--row (id)
  "Return the row with ID, or nil."
  (and pyagentd-list--index (car (gethash id pyagentd-list--index))))

;;;; Folds

(defun pyagentd-list--unfolded ()
  "Return the visible rows; :folded is the number of rows hidden below one."
  (let (shown below)
    (dolist (row pyagentd-table-rows (nreverse shown))
      (let ((level (or (plist-get row :level) 0)))
        (if (and below (> level below))
            (setcar shown (plist-put (copy-sequence (car shown)) :folded
                                     (1+ (or (plist-get (car shown) :folded)
                                             0))))
          (setq below (and (member (plist-get row :id) pyagentd-list--folded)
                           level))
          (push row shown))))))

(defun pyagentd-list--fold ()
  "Hide the rows below the row at point in the tree, or show them again."
  (interactive nil pyagentd-list-mode)
  (let ((id (plist-get (pyagentd-table-row) :id)))
    (setq pyagentd-list--folded
          (if (member id pyagentd-list--folded)
              (remove id pyagentd-list--folded)
            (cons id pyagentd-list--folded)))
    (pyagentd-table-print)))

(defun pyagentd-list--entry (row)
  "Return ROW as an entry of `tabulated-list-entries'."
  (let ((cells (mapcar #'pyagentd-text (plist-get row :cells))))
    (when-let ((folded (plist-get row :folded)))
      (setcar cells (concat (car cells) (propertize (format "  +%d" folded)
                                                    'face 'shadow))))
    (list (plist-get row :id)
          (vconcat (seq-take cells (length tabulated-list-format))))))

;;;; Refresh after changes

(defun pyagentd-list-changed (what)
  "Mark the lists that follow WHAT, a string, as outdated.
Those in a window are fetched again soon, the others when displayed.  If
WHAT is nil, this applies to all live lists."
  (dolist (buffer (buffer-list))
    (when-let ((follows (buffer-local-value 'pyagentd-list--follows buffer))
               ((or (null what) (member what follows))))
      (with-current-buffer buffer
        (setq pyagentd-table--behind t)
        (when (get-buffer-window buffer 'visible)
          (pyagentd-live--soon))))))

(defun pyagentd-list--catch-up (&rest _)
  "Fetch this list again if it is outdated."
  (when pyagentd-table--behind
    (let ((pyagentd-table--quietly t))
      (funcall pyagentd-table--fetch))))

(defun pyagentd-list--on-disconnected ()
  "Show in live lists that there is no daemon."
  (dolist (buffer (buffer-list))
    (when (buffer-local-value 'pyagentd-list--follows buffer)
      (with-current-buffer buffer
        (pyagentd-table-say "no daemon")))))

(add-hook 'pyagentd-changed-hook (lambda () (pyagentd-list-changed "sessions")))
(add-hook 'pyagentd-rpc-connected-hook (lambda () (pyagentd-list-changed nil)))
(add-hook 'pyagentd-rpc-disconnected-hook #'pyagentd-list--on-disconnected)

;;;; Actions

(defvar pyagentd-list-mode-map
  (pyagentd-keymap
   "RET" #'pyagentd-list--visit
   "TAB" #'pyagentd-list--fold
   "o" #'pyagentd-list--visit-other-window
   "/" #'pyagentd-table--filter
   [remap tabulated-list-sort] #'pyagentd-table--rearrange
   [remap tabulated-list-col-sort] #'pyagentd-table--rearrange
   [remap tabulated-list-widen-current-column] #'pyagentd-table--rearrange
   [remap tabulated-list-narrow-current-column] #'pyagentd-table--rearrange)
  "Keymap of `pyagentd-list-mode'.")

(defvar pyagentd-list--defined nil
  "Lists with keys bound to Emacs commands: an alist of (NAME . KEYS).
KEYS are lists (KEY COMMAND WORDS SEVERAL); SEVERAL is non-nil if the
command acts on all marked rows.")

(defun pyagentd-list--define-keys (view)
  "Bind the keys of the actions of VIEW, and those that Emacs adds."
  (let* ((map (copy-keymap (default-value 'pyagentd-list-mode-map)))
         (actions (plist-get view :actions))
         (rows (plist-get view :rows))
         (own (cdr (assoc pyagentd-list-name pyagentd-list--defined)))
         (keys (append (mapcar (lambda (action)
                                 (list (plist-get action :key)
                                       (pyagentd-list--command action)
                                       (plist-get action :label)))
                               actions)
                       own))
         (further
          (append
           (when (or (seq-some (lambda (action) (plist-get action :several))
                               actions)
                     (seq-some (lambda (key) (nth 3 key)) own))
             '(("m" pyagentd-table--mark "mark") ("u" pyagentd-table--unmark)
               ("U" pyagentd-table--unmark-all)))
           (when (seq-some (lambda (row) (> (or (plist-get row :level) 0) 0)) rows)
             '(("TAB" pyagentd-list--fold "fold")))
           (when (plist-get view :more)
             '(("+" pyagentd-list--more "more"))))))
    (pcase-dolist (`(,key ,command . ,_) (append further keys))
      (define-key map (kbd key) command))
    (use-local-map map)
    (setq-local pyagentd-list-mode-map map) ; what help shows
    (setq pyagentd-table-help
          (append
           (when (and (seq-some (lambda (row) (plist-get row :visit)) rows)
                      (not (assoc "RET" keys)))
             '(("RET" "open")))
           (cl-loop for (key _ words) in (append keys further)
                    when words collect (list key words))
           '(("/" "filter")) pyagentd-table--help))))

(defvar-local pyagentd-list--actions nil
  "Alist from the commands of this list or page to their actions, plists.")

(defun pyagentd-list--command (action)
  "Return a command that performs ACTION, a plist; help shows its name."
  (let ((command (intern (format "pyagentd-list--%s-%s" pyagentd-list-name
                                 (string-replace
                                  " " "-" (plist-get action :label))))))
    ;; Buffer-local: another page of the same name has another action.
    (setf (alist-get command pyagentd-list--actions) action)
    (put command 'command-modes '(pyagentd-list-mode pyagentd-report-mode))
    (fset command
          (lambda ()
            (interactive)
            (pyagentd-list-act (or (alist-get command pyagentd-list--actions)
                                   (user-error "Nothing to %s here"
                                               (plist-get action :label))))))
    (put command 'function-documentation
         (concat (capitalize (plist-get action :label)) "."))
    command))

(defun pyagentd-list--targets (action)
  "Return the rows that ACTION applies to; (nil) if it needs none."
  (if (not (or (plist-get action :takes) (plist-get action :place)))
      (list nil)
    (let* ((rows (if (plist-get action :several) (pyagentd-table-targets)
                   (list (pyagentd-table-row))))
           (needs (plist-get action :needs)))
      (or (if needs
              (seq-filter (lambda (row) (pyagentd-list-fact row needs)) rows)
            rows)
          (user-error "%s: nothing to %s" (plist-get (car rows) :label)
                      (plist-get action :label))))))

(defun pyagentd-list-fact (row name)
  "Return the fact NAME, a string, of ROW."
  (plist-get (plist-get row :facts) (intern (concat ":" name))))

(defun pyagentd-list-facts ()
  "Return the facts of all rows of this list."
  (mapcar (lambda (row) (plist-get row :facts)) pyagentd-table-rows))

(defun pyagentd-list-act (action)
  "Perform ACTION, a plist of this list or page, on its target rows."
  (let ((rows (pyagentd-list--targets action))
        (question (plist-get action :question)))
    (cond ((plist-get action :copies)
           (kill-new (plist-get action :copies))
           (message "Copied"))
          ((plist-get action :place)
           (pyagentd-list-visit-place
            (pyagentd-list-fact (car rows) (plist-get action :place))))
          ((null (plist-get action :operation))
           (pyagentd-list-again-with
            (append (pyagentd-list--facts action (car rows))
                    (plist-get action :arguments)
                    (pyagentd-list--read (plist-get action :reads)))))
          ((or (null question)
               (and (null (cdr rows)) (equal (plist-get action :asks) "several"))
               (y-or-n-p
                (concat
                 (string-replace
                  "%s" (if (cdr rows)
                           (pyagentd-count (length rows) (plist-get action :noun))
                         (or (plist-get (car rows) :label) ""))
                  question)
                 " ")))
           (pyagentd-table-forget-marks)
           (let* ((left (length rows)) (changed nil)
                  (done (pyagentd-later-back
                         (lambda (success)
                           (when success (setq changed t))
                           (when (and (zerop (cl-decf left)) changed)
                             (run-hooks 'pyagentd-changed-hook)
                             (revert-buffer))))))
             (dolist (row rows)
               (pyagentd-list--call action row done)))))))

(defun pyagentd-list--facts (action row)
  "Return the arguments that ACTION takes from ROW."
  (seq-mapcat (lambda (name)
                (list (intern (concat ":" name))
                      (pyagentd-list-fact row name)))
              (plist-get action :takes)))

(defun pyagentd-list--read (reads)
  "Ask the user for the argument that READS, a plist, describes.
Return a plist with that argument, or nil if READS is nil."
  (when reads
    (let* ((argument (intern (concat ":" (plist-get reads :argument))))
           (value (plist-get pyagentd-list-arguments argument)))
      (list argument
            (if (plist-get reads :number)
                (read-number (plist-get reads :prompt) value)
              (read-string (plist-get reads :prompt) value))))))

(defun pyagentd-list-again-with (arguments)
  "Fetch this list again with its arguments updated by ARGUMENTS, a plist."
  (let ((all (copy-sequence pyagentd-list-arguments)))
    (while arguments
      (setq all (plist-put all (pop arguments) (pop arguments))))
    (setq pyagentd-list-arguments all))
  (revert-buffer))

(defun pyagentd-list--call (action row done)
  "Call the operation of ACTION for ROW, and report the result.
DONE is called afterwards, with non-nil on success."
  (when-let ((branch (and (plist-get action :saves)
                          (or (pyagentd-list-fact row "branch")
                              (plist-get (plist-get action :arguments)
                                         :branch)))))
    (pyagentd-here-save (list :session-dir branch)))
  (let ((arguments (append (pyagentd-list--facts action row)
                           (plist-get action :arguments)
                           (pyagentd-list--read (plist-get action :reads))
                           (when (plist-get action :env)
                             (pyagentd-env)))))
    (dolist (path (plist-get arguments :paths)) ; files that the operation changes
      (when-let* ((buffer (get-file-buffer path))
                  ((buffer-modified-p buffer)))
        (user-error "%s has changes that are not saved" buffer)))
    (pyagentd-later
     (intern (plist-get action :operation)) arguments
     (lambda (answer)
       (let ((note (and (listp answer) (plist-get answer :note)))
             (label (plist-get row :label)))
         (cond (note (message "%s" (if label (format "%s: %s" note label) note)))
               ((plist-get action :done)
                (message "%s" (string-replace "%s" (or label "")
                                              (plist-get action :done))))))
       (funcall done t))
     (plist-get action :patience)
     (lambda (err)
       (pyagentd-later-tell err)
       (funcall done nil)))))

(defun pyagentd-list--visit (&optional other-window)
  "Visit what is at point, in another window if OTHER-WINDOW."
  (interactive nil pyagentd-list-mode)
  (pyagentd-list-visit-place
   (or (plist-get (pyagentd-table-row) :visit)
       (user-error "Nothing to visit here"))
   other-window))

(defun pyagentd-list--visit-other-window ()
  "Visit what is at point in another window."
  (interactive nil pyagentd-list-mode)
  (pyagentd-list--visit t))

(defun pyagentd-list--more ()
  "Fetch twice as many rows."
  (interactive nil pyagentd-list-mode)
  (setq pyagentd-list--limit (* 2 (max 1 (length pyagentd-table-rows))))
  (revert-buffer))

(defun pyagentd-list-session (row)
  "Return the session of ROW of this list, or nil.
It is a plist as for `pyagentd-here'."
  (let* ((place (plist-get row :visit))
         (session (and (plist-get place :branch) place))
         (what (pyagentd-list-fact row "what")))
    (when-let* ((branch (or (plist-get session :branch)
                            (plist-get pyagentd-list-arguments :branch)))
                (file (pyagentd-place-conversation branch)))
      (append (list :branch branch :file file
                    :title (plist-get session :title)
                    :what (and (member what '("branch" "agent"))
                               (intern what)))
              (pyagentd-place-of file)))))

;;;; The mode

(defvar desktop-save-buffer)

(define-derived-mode pyagentd-list-mode tabulated-list-mode "List"
  "Major mode for lists from the daemon.

\\{pyagentd-list-mode-map}"
  :interactive nil
  (pyagentd-table-set-up
   (lambda ()
     (pyagentd-table-fetch
      'view (when pyagentd-list--limit (list :limit pyagentd-list--limit))
      #'pyagentd-list--receive #'pyagentd-list--failed)))
  (setq-local desktop-save-buffer t)    ; though it visits no file
  (setq tabulated-list-padding 1
        pyagentd-here-function ; of the row at point, or of this list
        (lambda ()
          (pyagentd-list-session (pyagentd-list--row (tabulated-list-get-id))))))

(defun pyagentd-list-show (name &optional arguments limit)
  "Show the list NAME, a string, with ARGUMENTS, a plist; return its buffer.
It has at most LIMIT rows at first; nil means the daemon's default."
  (let ((buffer (get-buffer-create (format "*pyagentd %s*" name))))
    (with-current-buffer buffer
      (unless (and (derived-mode-p 'pyagentd-list-mode)
                   (equal arguments pyagentd-list-arguments))
        (pyagentd-list-mode)
        (setq desktop-save-buffer (null arguments)
              pyagentd-list-name name
              pyagentd-list--limit limit
              pyagentd-list-arguments arguments))
      (revert-buffer))
    (pop-to-buffer buffer)
    buffer))

(defun pyagentd-list-of-session (name scope &optional all)
  "Show the list NAME of the session here.
SCOPE is `required' if the list is always of one session; `optional' if
it can be of all sessions, as it is with ALL or if there is no session
here; nil if it is always of all sessions."
  (pyagentd-list-show
   name
   (when-let* ((here (pcase scope
                       ('required (pyagentd-here))
                       ('optional (unless all
                                    (ignore-errors (pyagentd-here)))))))
     (list :branch (plist-get here :branch)))))

(defun pyagentd-list-add-keys (name &rest keys)
  "Set the additional keys of the list NAME to KEYS.
They are lists as in `pyagentd-list--defined'."
  (declare (indent 1))
  (setf (alist-get name pyagentd-list--defined nil nil #'equal) keys))

(defvar pyagentd-list-functions
  '(("charts" . pyagentd-report--usage-charts)
    ("sessions" . pyagentd-sessions) ("search" . pyagentd-search) ("branches" . pyagentd-branches)
    ("contexts" . pyagentd-context--history) ("mcp" . pyagentd-mcp)
    ("mission" . pyagentd-mission--trace))
  "Alist of (NAME . FUNCTION) for the lists that a function of their own shows.")

(defconst pyagentd-list--pages
  '(("hooks" . "the hooks, yours and this project's, to trust those")
    ("presets" . "the presets of this project, to trust them")
    ("trust" . "the preset.md of a session from elsewhere, to trust it")
    ("mission" . "the missions of the session here, turn by turn, while they go on")
    ("charts" . "what all sessions cost, by day, model and session, as charts"))
  "Alist of the pages that `pyagentd-list' offers besides lists: (NAME . SUMMARY).
Content to be read before it is trusted is a page.")

;;;###autoload
(defun pyagentd-list (&optional name all)
  "Choose and show a list, or show NAME: runs, schedules, tasks and others.
A list that can cover one session covers the session here, or with a
prefix argument (ALL from Lisp) all sessions."
  (interactive (list nil current-prefix-arg))
  (require 'pyagentd-sessions)
  (require 'pyagentd-views)             ; both add lists
  (let ((function (cdr (assoc name pyagentd-list-functions))))
    (cond
     ((commandp function) (call-interactively function))
     (function (funcall function))
     ((assoc name pyagentd-list--pages) (pyagentd-report-show name))
     (t
      (pyagentd-later-asking
       'views nil
       (lambda (answer)
         (let* ((views (mapcar (lambda (view)
                                 (cons (plist-get view :name) view))
                               (plist-get answer :views)))
                (names (append (mapcar #'car views)
                               (mapcar #'car pyagentd-list--pages)))
                (chosen (or name
                            (pyagentd-choose
                             "List: " names
                             :annotate
                             (lambda (each)
                               (concat "  "
                                       (or (plist-get (cdr (assoc each views)) :summary)
                                           (cdr (assoc each pyagentd-list--pages))))))
                            (user-error "Name a list"))))
           (if (or (assoc chosen pyagentd-list-functions)
                   (assoc chosen pyagentd-list--pages))
               (pyagentd-list chosen all)
             (pyagentd-list-of-session
              chosen
              (pyagentd-symbol (plist-get (cdr (assoc chosen views)) :session))
              all)))))))))

(defun pyagentd-agents ()
  "List the agents of the session here as a tree."
  (interactive)
  (pyagentd-list-of-session "agents" 'required))

;;;; Pages from the daemon

;; The daemon's operation `report' returns lines with headings, faces and
;; buttons; this code shows, folds and refreshes them.

(defvar-local pyagentd-report--pages-before nil
  "Pages that were shown here before, a list of (NAME . ARGUMENTS).")

(defcustom pyagentd-report-pictures t
  "Whether charts are shown as pictures where Emacs can.
Otherwise, and always on a terminal, they are drawn with characters, which
a screen reader can read."
  :type 'boolean
  :group 'pyagentd)

(defun pyagentd-report--insert (line)
  "Insert LINE, a plist from the daemon."
  (let ((level (or (plist-get line :level) 0)) (start (point)))
    (when (> level 0)
      (insert (make-string level ?*) " "))
    (mapc #'pyagentd-report--insert-part (plist-get line :parts))
    (insert "\n")
    (when (> level 0)
      (add-text-properties start (point)
                           (list 'pyagentd-id (or (plist-get line :id)
                                                  (buffer-substring-no-properties
                                                   start (point)))
                                 'pyagentd-folded (plist-get line :folded)))
      (add-face-text-property start (point)
                              (intern (format "outline-%d" (min level 8)))
                              t))))

(defun pyagentd-report--insert-part (part)
  "Insert PART of a line, a string or a plist."
  (let ((start (point))
        (visit (and (consp part) (plist-get part :visit)))
        (svg (and (consp part) (plist-get part :svg))))
    (insert (pyagentd-ask-text-part part))
    (when (and svg pyagentd-report-pictures
               (display-images-p) (image-type-available-p 'svg))
      (put-text-property start (point) 'display
                         (create-image svg 'svg t)))
    (when visit
      (make-text-button start (point)
                        'action (lambda (_) (pyagentd-list-visit-place visit))
                        'follow-link t
                        'face (get-text-property start 'face)
                        'help-echo "RET: open"))))

(defun pyagentd-report--headings (function)
  "Call FUNCTION at the beginning of each heading, with its id or text."
  (save-excursion
    (goto-char (point-min))
    (while (not (eobp))
      (when-let ((id (get-text-property (point) 'pyagentd-id)))
        (save-excursion (funcall function id)))
      (goto-char (next-single-property-change (point) 'pyagentd-id nil
                                              (point-max))))))

(defun pyagentd-report--place ()
  "Return the position of point, (ID LINES COLUMN); nil at the end of the buffer.
Point at the end stays at the end when the page grows."
  (unless (eobp)
    (let ((column (current-column)) (here (line-beginning-position))
          (id nil) (start (point-min)))
      (pyagentd-report--headings
       (lambda (each)
         (when (<= (point) here)
           (setq id each start (point)))))
      (list id (count-lines start here) column))))

(defun pyagentd-report--go (place)
  "Move point to PLACE, a value of `pyagentd-report--place'."
  (goto-char (if place (point-min) (point-max)))
  (pcase place
    (`(,id ,lines ,column)
     (let ((start (point-min)))
       (pyagentd-report--headings
        (lambda (other) (when (equal id other) (setq start (point)))))
       (goto-char start)
       (forward-line lines)
       (move-to-column column)))))

(defun pyagentd-report-print (report)
  "Show REPORT in this buffer; point stays on its line, folds stay."
  (if (> (buffer-size) 0)
      (pyagentd-table-keep-place #'pyagentd-report--place #'pyagentd-report--go
                                 (lambda () (pyagentd-report--print report)))
    (pyagentd-report--print report)
    (goto-char (if (plist-get report :end) (point-max) (point-min)))
    (dolist (window (get-buffer-window-list nil nil t))
      (set-window-point window (point)))))

(defun pyagentd-report--print (report)
  "Show REPORT in this buffer; folds stay."
  (let ((inhibit-read-only t)
        (known (make-hash-table :test #'equal)))
    (pyagentd-report--headings
     (lambda (id)
       (puthash id (if (invisible-p (line-end-position)) 'folded 'unfolded)
                known)))
    (setq mode-name (plist-get report :title)
          pyagentd-list--follows (plist-get report :follows))
    (erase-buffer)
    (mapc #'pyagentd-report--insert (plist-get report :lines))
    (pyagentd-report--headings
     (lambda (id)
       (when (pcase (gethash id known)
               ('nil (get-text-property (point) 'pyagentd-folded))
               (before (eq before 'folded)))
         (outline-hide-subtree))))
    (unless pyagentd-ask-here-about     ; an ask has its own keys
      (pyagentd-report--define-keys (plist-get report :actions)))
    (set-buffer-modified-p nil)))

(defun pyagentd-report--define-keys (actions)
  "Bind the keys of ACTIONS, and name them in the header line."
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map (symbol-value (derived-mode-map-name major-mode)))
    (dolist (action actions)
      (define-key map (kbd (plist-get action :key))
        (pyagentd-list--command action)))
    (use-local-map map))
  (setq header-line-format
        (and actions
             (mapconcat (lambda (action)
                          (concat " " (propertize (plist-get action :key)
                                                  'face 'pyagentd-key)
                                  " " (string-replace
                                       "%" "%%" (plist-get action :label))))
                        actions " "))))

(defun pyagentd-report--visit ()
  "Push the button at point, of this line or of the heading above."
  (interactive nil pyagentd-report-mode)
  (let ((button
         (or (button-at (point))
             (pyagentd-report--button-of-line)
             (save-excursion
               (end-of-line)
               (and (ignore-errors (outline-back-to-heading t) t)
                    (pyagentd-report--button-of-line))))))
    (if button (push-button button)
      (user-error "Nothing to open here"))))

(defun pyagentd-report--button-of-line ()
  "Return the first button of this line, or nil."
  (save-excursion
    (beginning-of-line)
    (let ((button (or (button-at (point)) (next-button (point)))))
      (and button (<= (button-start button) (line-end-position)) button))))

;;;; The mode

(defvar pyagentd-report-mode-map
  (pyagentd-keymap
   "RET" #'pyagentd-report--visit
   "TAB" #'outline-cycle
   "<backtab>" #'outline-cycle-buffer
   "n" #'outline-next-visible-heading
   "p" #'outline-previous-visible-heading
   "l" #'pyagentd-report--back)
  "Keymap of `pyagentd-report-mode'.")

(define-derived-mode pyagentd-report-mode special-mode "Report"
  "Major mode for pages from the daemon.
The header line names the keys of the page's actions.

\\{pyagentd-report-mode-map}"
  :interactive nil
  (pyagentd-table-set-up
   (lambda ()
     (pyagentd-table-fetch 'report nil #'pyagentd-report-print
                           #'pyagentd-list--failed)))
  (setq buffer-undo-list t)
  (setq-local outline-regexp "\\*+ "
              truncate-lines nil
              word-wrap t
              fringe-indicator-alist (cons '(continuation)
                                           fringe-indicator-alist))
  (outline-minor-mode))

(defun pyagentd-report-buffer (name arguments &optional called)
  "Return a buffer that shows the page NAME with ARGUMENTS, a plist.
CALLED, by default NAME, names the buffer."
  (with-current-buffer (get-buffer-create (format "*pyagentd %s*"
                                                  (or called name)))
    (unless (and (derived-mode-p 'pyagentd-report-mode) ; else it is a list
                 (equal (list name arguments)
                        (list pyagentd-list-name pyagentd-list-arguments)))
      (let ((inhibit-read-only t)
            (back (and (derived-mode-p 'pyagentd-report-mode)
                       (cons (cons pyagentd-list-name pyagentd-list-arguments)
                             pyagentd-report--pages-before))))
        (erase-buffer)
        (pyagentd-report-mode)
        (setq pyagentd-list-name name
              pyagentd-list-arguments arguments
              pyagentd-report--pages-before back)))
    (revert-buffer)
    (current-buffer)))

(defun pyagentd-report--back ()
  "Show the page that was shown here before."
  (interactive nil pyagentd-report-mode)
  (pcase-let ((`((,name . ,arguments) . ,back)
               (or pyagentd-report--pages-before
                   (user-error "No page was shown here before"))))
    (pyagentd-report-buffer name arguments)
    (setq pyagentd-report--pages-before back)))

(defun pyagentd-report-show (name &optional session)
  "Show the page NAME of the session here, or of the project here.
With SESSION there must be a session."
  (let ((here (if session (pyagentd-here) (ignore-errors (pyagentd-here)))))
    (pop-to-buffer
     (pyagentd-report-buffer
      name (if here (list :branch (plist-get here :branch))
             (list :root (pyagentd--project-root)))))))

(defun pyagentd-report--usage-charts ()
  "Show the usage of all sessions by day, model and session, as charts."
  (interactive)
  (pop-to-buffer (pyagentd-report-buffer "usage" nil "charts")))

;;;###autoload
(defun pyagentd-inspect ()
  "Show what happened in the session here: requests, tokens, tools, decisions.
RET on a request shows it as it was sent."
  (interactive)
  (pyagentd-report-show "inspect" t))

(provide 'pyagentd-list)
;;; pyagentd-list.el ends here

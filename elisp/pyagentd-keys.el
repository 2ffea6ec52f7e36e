;;; pyagentd-keys.el --- Keys, their words, menu bar -*- lexical-binding: t; -*-

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

;; What keys do, in a few words: for help, menu bar and which-key.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'easymenu)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-status)
(require 'pyagentd-ask)
(require 'pyagentd-chat)
(require 'pyagentd-display)
(require 'pyagentd-add)


;;;; What keys do, in a few words

;; What the cheat sheet says of commands whose documentation begins with
;; more than a line of it has room for.

(defconst pyagentd-key-words-width 36
  "How many columns the words of a key have at most.")

(defconst pyagentd-key-words
  '((backward-button . "previous button")
    (completion-at-point . "complete at point")
    (forward-button . "next button")
    (outline-cycle . "fold or unfold what stands below")
    (outline-cycle-buffer . "fold or unfold everything")
    (outline-next-visible-heading . "next heading")
    (outline-previous-visible-heading . "previous heading")
    (pyagentd-abort . "stop the run; its text stays")
    (pyagentd-allow-always . "allow always, in the whole project")
    (pyagentd-allow-once . "allow this once")
    (pyagentd-allow-session . "allow as long as the session lives")
    (pyagentd-answer . "answer any open question")
    (pyagentd-approve . "carry out the plan")
    (pyagentd-ask-diff . "show the change as a diff")
    (pyagentd-ask-ediff . "compare with the file, in Ediff")
    (pyagentd-ask-edit . "change the arguments, and allow")
    (pyagentd-ask-go . "go to the question")
    (pyagentd-ask-next . "next of several asks")
    (pyagentd-ask-previous . "previous of several asks")
    (pyagentd-ask-show . "why it is asked, and all of it")
    (pyagentd-asks . "pending approvals and questions")
    (pyagentd-asks-visit . "visit the conversation that asks")
    (pyagentd-attach-file . "copy a file into the prompt")
    (pyagentd-branch . "make a branch at a prompt")
    (pyagentd-branches . "branches of the session as a tree")
    (pyagentd-branches-diff . "compare with where it comes from")
    (pyagentd-choose-agent . "choose the agent")
    (pyagentd-context-clear . "clear without saving")
    (pyagentd-context-save . "save the conversation")
    (pyagentd-copy-code . "copy the block of code")
    (pyagentd-delete . "move to the trash")
    (pyagentd-deny . "deny this; the run goes on")
    (pyagentd-deny-with-reason . "deny, and tell the model why")
    (pyagentd-duplicate . "copy the session")
    (pyagentd-edit-prompt . "edit a prompt and send it again")
    (pyagentd-export . "write the conversation to a file")
    (pyagentd-fold-toggle . "fold or unfold the block")
    (pyagentd-inspect . "inspect the requests")
    (pyagentd-keys . "show the keys")
    (pyagentd-mcp-test . "start it and show what it offers")
    (pyagentd-mission-copy . "copy the last value, as JSON")
    (pyagentd-mission-resume . "resume after the last program")
    (pyagentd-mission-stop . "stop it; what it did is kept")
    (pyagentd-mission-visit . "open what is at point")
    (pyagentd-next-answer . "next answer")
    (pyagentd-next-variant . "next variant of the message")
    (pyagentd-previous-answer . "previous answer")
    (pyagentd-previous-variant . "previous variant of the message")
    (pyagentd-queue . "queued messages")
    (pyagentd-recall-prompt . "insert an earlier prompt")
    (pyagentd-report-visit . "open what is named here")
    (pyagentd-regenerate . "regenerate the last answer")
    (pyagentd-rewind . "rewind to a prompt")
    (pyagentd-list-fold . "fold or unfold what stands below")
    (pyagentd-list-visit-other-window . "open in another window")
    (pyagentd-search . "search all conversations")
    (pyagentd-search-next . "next message, and show it")
    (pyagentd-search-previous . "previous message, and show it")
    (pyagentd-search-toggle-archived . "include archived sessions")
    (pyagentd-search-toggle-follow . "show messages while moving")
    (pyagentd-search-visit . "open at this message")
    (pyagentd-search-visit-other-window . "open in another window")
    (pyagentd-send . "send the prompt")
    (pyagentd-snapshots-diff . "compare with the restored file")
    (pyagentd-steer . "steer this run")
    (pyagentd-table-filter . "filter by words")
    (pyagentd-table-mark . "mark")
    (pyagentd-table-unmark . "take the mark away")
    (pyagentd-yank-picture . "insert the picture in the clipboard"))
  "For commands what they do, in a few words.")

;;;; Keys of a buffer

;; A cheat sheet: `?' in any list of the package, and C-c ? in a session,
;; shows the keys there are in a window below.  The next key works as ever,
;; and closes it.

(defvar pyagentd-table-help)

(defconst pyagentd-keys--buffer "*pyagentd keys*"
  "Name of the buffer with the keys.")

(defconst pyagentd-keys--everywhere
  '(("n" . "next line") ("p" . "previous line") ("g" . "refresh")
    ("/" . "filter by words") ("S" . "sort by this column") ("q" . "close"))
  "What keys do that every list has.")

;;;; Which there are

(defun pyagentd-keys--of (map &optional prefix)
  "Return the keys of MAP, not of its parents, with their commands.
That is a list of (KEY . COMMAND); PREFIX is typed before them."
  (let (found)
    (map-keymap-internal
     (lambda (event binding)
       (let ((key (vconcat prefix (vector event)))
             (command (pyagentd-keys--command binding)))
         (cond ((keymapp command)
                (setq found (append (pyagentd-keys--of command key) found)))
               ((and (symbolp command) (pyagentd-keys--does-p command)
                     (pyagentd-keys--key-p key))
                (push (cons (key-description key) command) found)))))
     map)
    (nreverse found)))

(defun pyagentd-keys--key-p (key)
  "Return non-nil if KEY, a vector, is one that a person types."
  (seq-every-p (lambda (event)
                 (or (integerp event)
                     (not (string-match-p "mouse\\|wheel\\|remap\\|menu-bar"
                                          (format "%s" event)))))
               key))

(defun pyagentd-keys--command (binding)
  "Return the command, or keymap, that BINDING stands for."
  (pcase binding
    (`(menu-item ,_ ,command . ,_) command)
    (`(,(pred stringp) . ,command) command)
    (_ binding)))

(defun pyagentd-keys--words (key command)
  "Return in a few words what KEY, which runs COMMAND, does.
What the list itself says of it goes before the command's documentation."
  (or (cadr (assoc key (bound-and-true-p pyagentd-table-help)))
      (alist-get command pyagentd-key-words)
      (let ((line (car (split-string (pyagentd-keys--documentation command)
                                     "\n"))))
        (if (string-empty-p line) (symbol-name command)
          (pyagentd-keys--begun-small (string-remove-suffix "." line))))))

(defun pyagentd-keys--begun-small (text)
  "Return TEXT beginning with a small letter, as what lists say does."
  (if (string-match-p "\\`[[:upper:]][[:lower:]]" text)
      (concat (downcase (substring text 0 1)) (substring text 1))
    text))

(defun pyagentd-keys--documentation (command)
  "Return the documentation of COMMAND, which is loaded for that."
  (when (autoloadp (symbol-function command))
    (autoload-do-load (symbol-function command) command))
  (or (documentation command) ""))

(defun pyagentd-keys--asking ()
  "Return the keys that there are only where something is asked."
  (and (bound-and-true-p pyagentd-ask-mode)
       (pyagentd-keys--of (symbol-value 'pyagentd-ask-mode-map))))

(defun pyagentd-keys-here ()
  "Return the keys of this buffer, a list of (KEY . WORDS)."
  (let* ((session (bound-and-true-p pyagentd-mode))
         (map (if session pyagentd-mode-map (current-local-map)))
         (own (mapcar (lambda (pair)
                        (cons (car pair)
                              (pyagentd-keys--words (car pair) (cdr pair))))
                      (sort (append (pyagentd-keys--asking)
                                    (pyagentd-keys--of map))
                            (lambda (a b) (string-collate-lessp
                                           (car a) (car b) nil t))))))
    (pyagentd-keys--unique
     (if session own
       (append own
               (seq-filter (lambda (pair)
                             (pyagentd-keys--does-p
                              (key-binding (kbd (car pair)))))
                           pyagentd-keys--everywhere))))))

(defun pyagentd-keys--does-p (binding)
  "Return non-nil if BINDING, of a key, is a command that does something."
  (and (commandp binding) (not (memq binding '(ignore undefined)))))

(defun pyagentd-keys--unique (pairs)
  "Return PAIRS without those whose key came before, and without `?'."
  (let (seen)
    (seq-filter (lambda (pair)
                  (unless (or (equal (car pair) "?") (member (car pair) seen))
                    (push (car pair) seen)))
                pairs)))

;;;; Showing them

(defun pyagentd-keys--line (pair widest width)
  "Return PAIR, (KEY . WORDS), in WIDTH columns; WIDEST is that of keys."
  (let* ((key (propertize (car pair) 'face 'pyagentd-key))
         (gap (make-string (max 1 (- (+ widest 2) (string-width key))) ?\s))
         (words (truncate-string-to-width (cdr pair) (- width widest 3)
                                          nil nil "…")))
    (concat key gap words)))

(defun pyagentd-keys--text (pairs width)
  "Return PAIRS, a list of (KEY . WORDS), in columns for a window of WIDTH."
  (let* ((widest (apply #'max 1 (mapcar (lambda (pair)
                                          (string-width (car pair)))
                                        pairs)))
         (columns (max 1 (/ width 50)))
         (each (/ width columns))
         (rows (ceiling (length pairs) columns))
         (table (seq-partition (mapcar (lambda (pair)
                                         (pyagentd-keys--line pair widest each))
                                       pairs)
                               (max 1 rows))))
    (mapconcat
     (lambda (row)
       (string-trim-right
        (mapconcat (lambda (column)
                     (let ((cell (or (nth row column) "")))
                       (concat cell (make-string
                                     (max 0 (- each (string-width cell)))
                                     ?\s))))
                   table "")))
     (number-sequence 0 (1- rows)) "\n")))

(defun pyagentd-keys--hide ()
  "Close the window with the keys."
  (when-let ((window (get-buffer-window pyagentd-keys--buffer t)))
    (delete-window window)))

(defun pyagentd-keys ()
  "Show the keys of this buffer in a window below.
The next key runs its command and closes the window."
  (interactive)
  (let ((pairs (or (pyagentd-keys-here)
                   (user-error "This buffer has no keys of its own")))
        (name (format-mode-line mode-name)))
    (with-current-buffer (get-buffer-create pyagentd-keys--buffer)
      (special-mode)
      (setq mode-line-format nil
            cursor-type nil
            header-line-format (format " Keys: %s   (any key closes this)"
                                       name))
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert (pyagentd-keys--text pairs (- (frame-width) 2)))
        (goto-char (point-min)))
      (display-buffer-in-side-window
       (current-buffer) '((side . bottom) (slot . 0)
                          (window-height . fit-window-to-buffer)
                          (window-parameters (no-other-window . t)))))
    (set-transient-map (let ((map (make-sparse-keymap)))
                         (define-key map "?" #'ignore)
                         map)
                       nil #'pyagentd-keys--hide)))

;;;; Where they are


(defun pyagentd-keys--name ()
  "Give keys their words if they are shown by which-key."
  (when (bound-and-true-p which-key-mode)
    (pyagentd-which-key-set-up)))

(add-hook 'pyagentd-mode-hook #'pyagentd-keys--name)
(add-hook 'which-key-mode-hook #'pyagentd-keys--name)

(defun pyagentd-keys--install ()
  "Let `?' show the keys in the lists of this package."
  (when (and (string-prefix-p "pyagentd-" (symbol-name major-mode))
             (derived-mode-p 'special-mode 'tabulated-list-mode)
             (current-local-map))
    (define-key (current-local-map) "?" #'pyagentd-keys)))

(add-hook 'after-change-major-mode-hook #'pyagentd-keys--install)
(define-key pyagentd-mode-map (kbd "C-c ?") #'pyagentd-keys)

;;;; Menu bar, right click

;; For those who look for commands with the mouse: the menu "Agent" of
;; session buffers, and what a right click offers there
;; (`context-menu-mode').

(autoload 'pyagentd-code-at "pyagentd-display")

(easy-menu-define pyagentd-menubar pyagentd-mode-map
  "Menu of session buffers."
  '("Agent"
    ["Send" pyagentd-send :active (not pyagentd-session-viewing)]
    ["Steer This Run" pyagentd-steer :active (pyagentd-status-busy-p)]
    ["Stop" pyagentd-abort :active (pyagentd-status-busy-p)]
    ["Allow Once" pyagentd-allow-once :active (pyagentd-ask-here)]
    ["Deny" pyagentd-deny :active (pyagentd-ask-here)]
    "---"
    ["Attach File…" pyagentd-attach-file]
    ["Yank Picture" pyagentd-yank-picture]
    ["Earlier Prompt…" pyagentd-recall-prompt]
    "---"
    ["Rewind to Prompt" pyagentd-rewind]
    ["Undo Rewind" pyagentd-unrewind]
    ["Edit Prompt and Send Again" pyagentd-edit-prompt]
    ["Regenerate" pyagentd-regenerate]
    ["Fork" pyagentd-fork]
    ["Branch Here" pyagentd-branch]
    "---"
    ["Copy Code" pyagentd-copy-code]
    ["Copy Answer" pyagentd-copy-answer]
    ["Fold All" pyagentd-fold-toggle-all]
    "---"
    ["Agent…" pyagentd-choose-agent]
    ["Model…" pyagentd-choose-model]
    ["Approvals" pyagentd-asks]
    ["Agents" pyagentd-agents]
    ["Changed Files" pyagentd-changes]
    ["Context and Cost" pyagentd-context]
    ["Inspect" pyagentd-inspect]
    "---"
    ["Sessions" pyagentd-sessions]
    ["Running Now" (pyagentd-list "running")]
    ["Usage of All Sessions" (pyagentd-list "usage")]
    ["Keys" pyagentd-keys]
    ["More…" pyagentd-menu]))

(defun pyagentd-menubar--there (position command)
  "Return a command that runs COMMAND with point at POSITION."
  (lambda ()
    (interactive)
    (goto-char position)
    (call-interactively command)))

(defun pyagentd-menubar--items (position)
  "Return what can be done with the text at POSITION, a list (WORDS . COMMAND)."
  (let ((role (get-text-property position 'gptel)))
    (append
     (and (pyagentd-fenced-start position)
          '(("Fold or Unfold" . pyagentd-fold-toggle)))
     (and (eq role 'response)
          (append (and (pyagentd-code-at position)
                       '(("Copy Code" . pyagentd-copy-code)))
                  '(("Copy Answer" . pyagentd-copy-answer)
                    ("Regenerate" . pyagentd-regenerate))))
     (and (null role)
          (seq-some (lambda (prompt)
                      (<= (car prompt) position (cdr prompt)))
                    (pyagentd-turns-prompts))
          '(("Rewind to This Prompt" . pyagentd-rewind)
            ("Edit and Send Again" . pyagentd-edit-prompt)
            ("Branch Here" . pyagentd-branch))))))

(defun pyagentd-menubar-context (menu click)
  "Add to MENU what can be done with the text at CLICK.
For `context-menu-functions'."
  (let* ((position (posn-point (event-start click)))
         (items (and position (pyagentd-menubar--items position))))
    (when items
      (define-key-after menu [pyagentd-separator] menu-bar-separator)
      (dolist (item items)
        (define-key-after menu (vector (cdr item))
          (list 'menu-item (car item)
                (pyagentd-menubar--there position (cdr item)))))))
  menu)

(add-to-list 'pyagentd-session-hooks
             '(context-menu-functions . pyagentd-menubar-context))
(put 'pyagentd-menubar-context 'permanent-local-hook t)

;;;; Words for keys in which-key

;; Which-key shows what may be typed after a prefix key: here the commands
;; of this package in words, "allow once", without its name before each.
;; A binding (WORDS . COMMAND) is as good as COMMAND to all else.

(defvar pyagentd-command-map)

(defun pyagentd-which-key--words (command)
  "Return the name of COMMAND, a symbol, as words."
  (string-replace "-" " " (string-remove-prefix "pyagentd-"
                                                (symbol-name command))))

(defun pyagentd-which-key--name (map)
  "Give the keys of MAP, and not of its parents, words."
  (pcase-dolist (`(,key . ,command) (pyagentd-keys--of map))
    (when (string-prefix-p "pyagentd-" (symbol-name command))
      (define-key map (kbd key)
        (cons (pyagentd-which-key--words command) command)))))

(defun pyagentd-which-key-set-up ()
  "Give the keys of sessions, and those for any buffer, words."
  (mapc #'pyagentd-which-key--name
        (list pyagentd-mode-map pyagentd-ask-mode-map pyagentd-command-map)))

(provide 'pyagentd-keys)
;;; pyagentd-keys.el ends here

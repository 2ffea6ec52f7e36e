;;; pyagentd-keys.el --- Keys of a buffer -*- lexical-binding: t; -*-

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

;; A cheat sheet: `?' in any list of the package, and C-c ? in a session,
;; shows the keys there are in a window below.  The next key works as ever,
;; and closes it.

;;; Code:

(require 'seq)
(require 'subr-x)
(require 'pyagentd-core)
(require 'pyagentd-session)
(require 'pyagentd-key-words)

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

(autoload 'pyagentd-which-key-set-up "pyagentd-which-key")

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

(provide 'pyagentd-keys)
;;; pyagentd-keys.el ends here

;;; manual.el --- Chapters of the manual that Emacs knows  -*- lexical-binding: t; -*-

;; Run as: emacs --batch -l scripts/manual.el -f manual-write ORG TEXI INCLUDED...
;; Exports the hand-written chapters in ORG, adds the files INCLUDED (Texinfo) before the reference, adds to that the keys,
;; commands and options of the Emacs package, and writes the whole as TEXI.

;;; Code:

;; What Emacs would compile meanwhile needs programs that may not be here.
(setq comp-enable-subr-trampolines nil
      native-comp-enable-subr-trampolines nil
      native-comp-deferred-compilation nil
      native-comp-jit-compilation nil)
(require 'package)
(require 'seq)
(package-initialize)
(add-to-list 'load-path (expand-file-name "../elisp" (file-name-directory load-file-name)))
(require 'pyagentd)
(require 'ox-texinfo)
(dolist (file (directory-files (expand-file-name "../elisp" (file-name-directory load-file-name)) t "\\.el\\'"))
  (load file nil t))

(defun manual-escape (text)
  "Return TEXT with what Texinfo would read as commands escaped."
  (replace-regexp-in-string "[@{}]" "@\\&" text))

(defun manual-prose (text)
  "Return TEXT, a docstring, as Texinfo."
  (let ((plain (substring-no-properties (substitute-command-keys text))))
    (replace-regexp-in-string "[`‘]\\([^'’\n]+\\)['’]" "@code{\\1}" (manual-escape plain))))

(defun manual-first-line (symbol)
  "Return the first sentence of the documentation of SYMBOL, a command."
  (manual-prose (car (split-string (or (documentation symbol) "") "\n"))))

(defun manual-keys ()
  "Return the keys of a session's buffer, a list of (KEYS . COMMAND), sorted."
  (let (found)
    (mapatoms
     (lambda (symbol)
       (when (and (commandp symbol) (string-prefix-p "pyagentd-" (symbol-name symbol)))
         (when-let ((keys (seq-remove (lambda (key) (memq (aref key 0) '(menu-bar remap)))
                                      (where-is-internal symbol (list pyagentd-mode-map)))))
           (push (cons (mapconcat #'key-description keys ", ") symbol) found)))))
    (seq-sort-by #'car #'string< found)))

(defun manual-insert-keys ()
  "Insert the section on keys."
  (insert "@node Keys\n@section Keys of a session's buffer\n\n"
          "@multitable @columnfractions .25 .75\n@headitem Key @tab What it does\n")
  (pcase-dolist (`(,keys . ,command) (manual-keys))
    (insert (format "@item @kbd{%s} @tab %s\n" (manual-escape keys) (manual-first-line command))))
  (insert "@end multitable\n\nLists name their keys in the last line.\n\n"))

(defun manual-public-p (symbol)
  "Return non-nil if SYMBOL is one of ours for users."
  (let ((name (symbol-name symbol)))
    (and (string-prefix-p "pyagentd-" name) (not (string-match-p "--" name)))))

(defun manual-autoloads ()
  "Return the commands that `M-x' offers once the package is installed, sorted."
  (let (found)
    (dolist (file (directory-files (expand-file-name "../elisp" (file-name-directory (locate-library "pyagentd")))
                                   t "\\.el\\'"))
      (with-temp-buffer
        (insert-file-contents file)
        (while (re-search-forward "^;;;###autoload\n(\\(?:cl-\\)?def[a-z]+ \\([^ ]+\\)\\|^(autoload '\\([^ ]+\\)" nil t)
          (let ((symbol (intern (or (match-string 1) (match-string 2)))))
            (when (and (commandp symbol) (manual-public-p symbol)
                       (not (string-suffix-p "-mode" (symbol-name symbol))))
              (push symbol found))))))
    (seq-sort-by #'symbol-name #'string< (seq-uniq found))))

(defun manual-insert-commands ()
  "Insert the section on commands."
  (insert "@node Emacs commands\n@section Commands of Emacs\n\n@table @code\n")
  (dolist (command (manual-autoloads))
    (insert (format "@item M-x %s\n@findex %s\n%s\n\n" command command (manual-first-line command))))
  (insert "@end table\n\n"))

(defun manual-options ()
  "Return the options of the package, sorted."
  (let (found)
    (mapatoms (lambda (symbol)
                (when (and (custom-variable-p symbol) (manual-public-p symbol)
                           (not (string-suffix-p "-mode-hook" (symbol-name symbol))))
                  (push symbol found))))
    (seq-sort-by #'symbol-name #'string< found)))

(defun manual-default (option)
  "Return the default of OPTION as text."
  (let ((value (default-toplevel-value option)))
    (truncate-string-to-width (format "%S" (if (and (stringp value) (file-name-absolute-p value))
                                               (abbreviate-file-name value)
                                             value))
                              60 nil nil "…")))

(defun manual-insert-options ()
  "Insert the section on options."
  (insert "@node Emacs options\n@section Options of Emacs\n\n"
          "@kbd{M-x customize-group RET pyagentd} shows and changes them.\n\n@table @code\n")
  (dolist (option (manual-options))
    (insert (format "@item %s\n@vindex %s\n%s\n\n(Default: @code{%s}.)\n\n" option option
                    (manual-prose (documentation-property option 'variable-documentation))
                    (manual-escape (manual-default option)))))
  (insert "@end table\n\n"))

(defun manual-export (org)
  "Return the hand-written chapters in ORG as Texinfo, without menus: makeinfo makes those."
  (with-temp-buffer
    (insert-file-contents org)
    (setq buffer-file-name org)
    (let* ((org-export-with-broken-links 'mark)
           (text (org-export-as 'texinfo)))
      (set-buffer-modified-p nil)
      (with-temp-buffer
        (insert text)
        (goto-char (point-min))
        (while (re-search-forward "^@menu$" nil t)
          (delete-region (match-beginning 0) (progn (re-search-forward "^@end menu$") (point))))
        ;; The pages are in this manual, and scripts/info.py knows no conditions.
        (goto-char (point-min))
        (while (re-search-forward "@inlineifset{pages,\\(@ref{[^}]*}\\)}@inlineifclear{pages,[^}]*}" nil t)
          (replace-match "\\1"))
        (buffer-string)))))

(defun manual-write ()
  "Write the manual; see the top of this file."
  (pcase-let ((`(,org ,texi . ,included) command-line-args-left))
    (setq command-line-args-left nil)
    (let ((text (manual-export (expand-file-name org))))
      (with-temp-file texi
        (insert text)
        (goto-char (point-min))
        (re-search-forward "^@node Reference$")
        (beginning-of-line)
        (insert-file-contents (car included))
        (goto-char (point-max))
        (re-search-backward "^@node Emacs reference$")
        (delete-region (point) (progn (forward-line)
                                      (re-search-forward "^@\\(node\\|bye\\)")
                                      (goto-char (line-beginning-position))))
        (manual-insert-keys)
        (manual-insert-commands)
        (manual-insert-options)
        (insert-file-contents (cadr included))))))

;;; manual.el ends here

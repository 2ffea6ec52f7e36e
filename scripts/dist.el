;;; dist.el --- The description of the Emacs package  -*- lexical-binding: t; -*-

;; Run as: emacs --batch -l scripts/dist.el -f dist-describe DIRECTORY
;; DIRECTORY is called NAME-VERSION and holds what the package consists of.  Writes NAME-pkg.el there, from the headers
;; of NAME.el.

;;; Code:

(require 'package)

(defun dist-describe ()
  "Write the description; see the top of this file."
  (let* ((directory (directory-file-name (pop command-line-args-left)))
         (name (replace-regexp-in-string "-[0-9.]+\\'" "" (file-name-nondirectory directory)))
         (file (expand-file-name (concat name "-pkg.el") directory))
         (desc (with-temp-buffer
                 (insert-file-contents (expand-file-name (concat name ".el") directory))
                 (package-buffer-info))))
    (setf (package-desc-kind desc) 'tar)
    (package-generate-description-file desc file)
    ;; Emacs 30 warns whoever installs it where this is not said.
    (with-temp-buffer
      (insert-file-contents file)
      (when (search-forward "no-byte-compile: t -*-" nil t)
        (replace-match "no-byte-compile: t; lexical-binding: t -*-" t t))
      (write-region nil nil file nil 'silent))))

;;; dist.el ends here

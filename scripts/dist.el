;;; dist.el --- The Emacs package as files  -*- lexical-binding: t; -*-

;; Run as: emacs --batch -l scripts/dist.el -f dist-package DIRECTORY ARCHIVE, where DIRECTORY is called NAME-VERSION
;; and holds what the package consists of.  Writes NAME-VERSION.tar beside ARCHIVE, and into ARCHIVE what
;; `package-archives' can name: that file, the packages it needs where they are installed here (their sources), and
;; archive-contents.

;;; Code:

(require 'package)
(require 'lisp-mnt)
(require 'seq)

(defun dist-tar (directory target)
  "Write the files in DIRECTORY as TARGET, the same bytes for the same files."
  (let ((default-directory (file-name-directory (directory-file-name directory))))
    (unless (zerop (call-process "tar" nil t nil "--sort=name" "--owner=0" "--group=0" "--numeric-owner"
                                 "--mtime=@315532800" "--exclude=*.elc" "--exclude=*-autoloads.el" "--dereference"
                                 "-cf" (expand-file-name target) (file-name-nondirectory directory)))
      (error "The files of %s could not be packed: %s" directory (buffer-string)))))

(defun dist-describe (directory name)
  "Write NAME-pkg.el into DIRECTORY from the headers of NAME.el; return its `package-desc'."
  (let ((desc (with-temp-buffer
                (insert-file-contents (expand-file-name (concat name ".el") directory))
                (package-buffer-info))))
    (setf (package-desc-kind desc) 'tar)
    (unless (file-exists-p (expand-file-name (concat name "-pkg.el") directory))
      (package-generate-description-file desc (expand-file-name (concat name "-pkg.el") directory)))
    desc))

(defun dist-sources (desc)
  "Return the directory with the sources of DESC, an installed package."
  (let ((debian (format "/usr/share/emacs/site-lisp/elpa-src/%s/" (package-desc-full-name desc))))
    (if (file-directory-p debian) debian (file-name-as-directory (package-desc-dir desc)))))

(defun dist-needed (requirements)
  "Return the installed packages that REQUIREMENTS ask for, and those these need."
  (seq-uniq
   (seq-mapcat (lambda (requirement)
                 (when-let ((desc (cadr (assq (car requirement) package-alist))))
                   (cons desc (dist-needed (package-desc-reqs desc)))))
               requirements)))

(defun dist-entry (desc)
  "Return what archive-contents says of DESC."
  (cons (package-desc-name desc)
        (vector (package-desc-version desc) (package-desc-reqs desc) (package-desc-summary desc) 'tar
                (seq-filter (lambda (extra) (memq (car extra) '(:url :keywords))) (package-desc-extras desc)))))

(defun dist-package ()
  "Make the files; see the top of this file."
  (package-initialize)
  (pcase-let* ((`(,directory ,archive) (mapcar #'directory-file-name command-line-args-left))
               (full (file-name-nondirectory directory))
               (name (replace-regexp-in-string "-[0-9.]+\\'" "" full))
               (desc (dist-describe directory name))
               (needed (dist-needed (package-desc-reqs desc)))
               (tar (expand-file-name (concat full ".tar") archive)))
    (setq command-line-args-left nil)
    (dist-tar directory tar)
    (copy-file tar (expand-file-name (concat "../" full ".tar") archive) t)
    (dolist (other needed)
      (let ((copy (expand-file-name (package-desc-full-name other) (make-temp-file "dist" t))))
        (copy-directory (dist-sources other) copy nil nil t)
        (dist-tar copy (expand-file-name (concat (package-desc-full-name other) ".tar") archive))
        (delete-directory (file-name-directory copy) t)))
    (with-temp-file (expand-file-name (concat name "-readme.txt") archive)
      (insert (with-temp-buffer
                (insert-file-contents (expand-file-name (concat name ".el") directory))
                (replace-regexp-in-string "^;+ ?" "" (or (lm-commentary) "")))))
    (with-temp-file (expand-file-name "archive-contents" archive)
      (prin1 (cons 1 (mapcar #'dist-entry (cons desc needed))) (current-buffer))
      (insert "\n"))))

;;; dist.el ends here

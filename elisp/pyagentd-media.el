;;; pyagentd-media.el --- Pictures and files -*- lexical-binding: t; -*-

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

;; Pictures and files become part of a conversation: they are copied into
;; the directory files/ beside it, and the prompt has a link to them.  The
;; daemon sends a picture that is linked from a prompt to the model.
;;
;; They are dropped onto the buffer, yanked, or asked for.  Where Emacs can
;; show pictures, they are shown below their link.

;;; Code:

(require 'dnd)
(require 'image)
(require 'seq)
(require 'subr-x)
(require 'url-util)
(require 'pyagentd-core)
(require 'pyagentd-place)
(require 'pyagentd-session)
(require 'pyagentd-add)

(declare-function yank-media-handler "ext:yank-media")

(defcustom pyagentd-media-show t
  "Non-nil means show pictures of prompts in the buffer."
  :type 'boolean
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defcustom pyagentd-media-height 240
  "Maximum height of pictures in a conversation, in pixels."
  :type 'natnum
  :group 'pyagentd
  :package-version '(pyagentd . "0.1.0"))

(defconst pyagentd-media--largest (* 20 1024 1024)
  "Bytes of the largest file that is copied into a session.")

(defconst pyagentd-media--types
  '((image/png . "png") (image/jpeg . "jpg") (image/gif . "gif")
    (image/webp . "webp"))
  "Kinds of pictures that models see, and the extensions of their files.")

;;;; Files

(defun pyagentd-media--directory ()
  "Return the directory of the files of the session here."
  (expand-file-name "files" pyagentd--branch-dir))

(defun pyagentd-media--name (base extension content)
  "Return the name of a file with CONTENT that was called BASE with EXTENSION.
The same content has the same name."
  (concat (let ((slug (string-trim (replace-regexp-in-string
                                    "[^[:alnum:]._-]+" "-" base)
                                   "[-.]+" "-+")))
            (if (string-empty-p slug) "file"
              (substring slug 0 (min 60 (length slug)))))
          "-" (substring (secure-hash 'sha1 content) 0 8)
          (and extension (not (string-empty-p extension))
               (concat "." extension))))

(defun pyagentd-media--keep (base extension content)
  "Keep CONTENT, bytes, in the session here; return the name of the file.
It was called BASE with EXTENSION."
  (let* ((name (pyagentd-media--name base extension content))
         (directory (pyagentd-media--directory))
         (file (expand-file-name name directory))
         (coding-system-for-write 'binary))
    (unless (file-exists-p file)
      (make-directory directory t)
      (with-file-modes #o600
        (write-region content nil file nil 'quiet nil 'excl)))
    name))

(defun pyagentd-media--bytes (file)
  "Return what FILE holds."
  (let ((size (file-attribute-size (file-attributes file))))
    (when (> size pyagentd-media--largest)
      (user-error "%s is too large for a conversation: %s"
                  (file-name-nondirectory file)
                  (file-size-human-readable size))))
  (with-temp-buffer
    (set-buffer-multibyte nil)
    (insert-file-contents-literally file)
    (buffer-string)))

(defun pyagentd-media--picture-p (name)
  "Return non-nil if NAME is that of a picture which models see."
  (let ((case-fold-search t))
    (string-match-p "\\.\\(?:png\\|jpe?g\\|gif\\|webp\\)\\'" name)))

(defun pyagentd-media--markdown (label name)
  "Return the link with LABEL to the file NAME of the session."
  (format "%s[%s](files/%s)" (if (pyagentd-media--picture-p name) "!" "")
          (replace-regexp-in-string "[][\n]" " " label)
          (url-hexify-string name)))

(defun pyagentd-media-link (file)
  "Copy FILE into the session here and return a link to it."
  (unless (file-regular-p file) (user-error "%s is not a file" file))
  (let ((label (file-name-nondirectory file)))
    (pyagentd-media--markdown
     label (pyagentd-media--keep (file-name-base file)
                                 (file-name-extension file)
                                 (pyagentd-media--bytes file)))))

;;;; Putting them into the prompt

(defun pyagentd-media--here ()
  "Signal a `user-error' unless a session is written here."
  (unless (bound-and-true-p pyagentd-mode) (user-error "Not a session"))
  (pyagentd-viewing-check))

(defun pyagentd-media--insert (link)
  "Insert LINK where a person writes: at point, or else into the prompt."
  (if (or (get-text-property (point) 'gptel)
          (and (> (point) (point-min))
               (get-text-property (1- (point)) 'gptel)))
      (pyagentd-add-text link)
    (insert link)
    (run-hooks 'pyagentd-added-hook)))

;;;###autoload
(defun pyagentd-attach-file (file)
  "Copy FILE into the session here and put a link to it into the prompt.
The model sees a picture, and may read any other file."
  (interactive (list (pyagentd-add-read-file "Attach file: ")))
  (pyagentd-media--here)
  (pyagentd-media--insert (pyagentd-media-link (expand-file-name file))))

(defun pyagentd-media-drop (uri _action)
  "Put the file with URI, which was dropped here, into the prompt.
For `dnd-protocol-alist'; files of the project are only named."
  (let ((file (dnd-get-local-file-name uri t)))
    (if (not (and file (bound-and-true-p pyagentd-mode)))
        (dnd-open-local-file uri 'private)
      (pyagentd-media--here)
      (pyagentd-media--insert (pyagentd-add--file file (current-buffer)))
      'private)))

(defun pyagentd-media--receive (type content)
  "Put CONTENT, a picture of TYPE, a symbol, into the prompt."
  (pyagentd-media--here)
  (let ((extension (alist-get type pyagentd-media--types)))
    (unless extension (user-error "Models cannot see %s" type))
    (pyagentd-media--insert
     (pyagentd-media--markdown
      "picture" (pyagentd-media--keep "picture" extension content)))))

(defconst pyagentd-media--readers
  '(("wl-paste" "--no-newline" "--type" "image/png")
    ("xclip" "-selection" "clipboard" "-target" "image/png" "-out")
    ("pngpaste" "-"))
  "Programs that print a picture of the clipboard, for use on a terminal.")

(defun pyagentd-media--clipboard ()
  "Return the picture in the clipboard, (TYPE . BYTES), or nil.
Only what the window system itself says."
  (when (display-graphic-p)
    (seq-some (pcase-lambda (`(,type . ,_))
                (when-let ((content (ignore-errors
                                      (gui-get-selection 'CLIPBOARD type))))
                  (and (stringp content) (> (length content) 0)
                       (cons type (if (multibyte-string-p content)
                                      (encode-coding-string content 'raw-text)
                                    content)))))
              pyagentd-media--types)))

;;;###autoload
(defun pyagentd-yank-picture ()
  "Insert the picture in the clipboard into the prompt."
  (interactive)
  (pyagentd-media--here)
  (if-let ((found (pyagentd-media--clipboard)))
      (pyagentd-media--receive (car found) (cdr found))
    (pyagentd-media--ask-program)))

(defun pyagentd-media--ask-program ()
  "Have a program print the picture in the clipboard; put it into the prompt."
  (let ((command (seq-find (lambda (command) (executable-find (car command)))
                           pyagentd-media--readers))
        (buffer (current-buffer)))
    (unless command
      (user-error "No picture in the clipboard"))
    (let ((output (generate-new-buffer " *pyagentd clipboard*")))
      (with-current-buffer output (set-buffer-multibyte nil))
      (make-process
       :name "pyagentd-clipboard" :buffer output :command command
       :coding 'binary :noquery t :connection-type 'pipe
       :stderr (make-pipe-process :name "pyagentd-clipboard-errors" :noquery t
                                  :buffer nil :filter #'ignore
                                  :sentinel #'ignore)
       :sentinel (lambda (process _)
                   (unless (process-live-p process)
                     (pyagentd-guarded "Yank"
                       (pyagentd-media--printed process buffer))))))))

(defun pyagentd-media--printed (process buffer)
  "Put what PROCESS, which has ended, printed into the prompt in BUFFER."
  (let ((content (with-current-buffer (process-buffer process)
                   (buffer-string))))
    (kill-buffer (process-buffer process))
    (if (not (string-prefix-p "\211PNG" content))
        (message "No picture in the clipboard")
      (when (buffer-live-p buffer)
        (with-current-buffer buffer
          (pyagentd-media--receive 'image/png content))))))

;;;; Showing them

(defconst pyagentd-media--link
  "!\\[[^]\n]*\\](\\(?:\\./\\)?\\(files/[^)\n ]+\\))"
  "A link to a picture of the session.")

(defun pyagentd-media--show (beg end &rest _)
  "Show the pictures with links between BEG and END."
  (when (and pyagentd-media-show (display-images-p))
    (save-excursion
      (save-match-data
        (goto-char beg)
        (forward-line 0)
        (while (re-search-forward pyagentd-media--link end t)
          (pyagentd-media--draw (match-beginning 0) (match-end 0)
                                (match-string-no-properties 1)))))))

(defun pyagentd-media--draw (beg end link)
  "Show the picture of LINK, which stands between BEG and END.
Only what the user wrote shows one: an answer may link what it likes."
  (when-let (((not (text-property-not-all beg end 'gptel nil)))
             (file (ignore-errors (pyagentd-media--file link)))
             ((not (seq-some (lambda (overlay)
                               (equal file
                                      (overlay-get overlay 'pyagentd-media)))
                             (overlays-in beg end))))
             (image (ignore-errors (pyagentd-media--image file))))
    (let ((overlay (make-overlay beg end nil t nil)))
      (overlay-put overlay 'evaporate t)
      (overlay-put overlay 'pyagentd-media file)
      (overlay-put overlay 'modification-hooks
                   (list (lambda (overlay after &rest _)
                           (when after (delete-overlay overlay)))))
      (overlay-put overlay 'after-string
                   (concat "\n" (propertize " " 'display image))))))

(defun pyagentd-media--file (link)
  "Return the true name of the file of the session that LINK names, or nil.
It is a regular file below files/, symbolic links followed, and not too
large.  No handler of file names is used, or a name could have Emacs
reach another machine."
  (let* ((file-name-handler-alist nil)
         (case-fold-search t)
         (name (decode-coding-string (url-unhex-string link) 'utf-8))
         (files (concat (file-name-as-directory
                         (file-truename pyagentd--branch-dir))
                        "files/"))
         (file (and (not (string-match-p "%2[ef]\\|%00" link))
                    (not (member ".." (split-string name "/")))
                    (file-truename
                     (expand-file-name name pyagentd--branch-dir)))))
    (and file
         (string-prefix-p files file)
         (file-regular-p file)
         (<= (file-attribute-size (file-attributes file))
             pyagentd-media--largest)
         file)))

(defun pyagentd-media--image (file)
  "Return the picture in FILE, or nil if it is none that models see."
  (let* ((file-name-handler-alist nil)
         (content (pyagentd-media--bytes file))
         (type (image-type-from-data content)))
    (and (assq (intern (format "image/%s" type)) pyagentd-media--types)
         (create-image content type t :max-height pyagentd-media-height))))

;;;; Where it is used

(defun pyagentd-media--set-up ()
  "Have pictures shown and yanked in this buffer, or not with the mode."
  (if (not (bound-and-true-p pyagentd-mode))
      (progn
        (jit-lock-unregister #'pyagentd-media--show)
        (save-restriction
          (widen)
          (dolist (overlay (overlays-in (point-min) (point-max)))
            (when (overlay-get overlay 'pyagentd-media)
              (delete-overlay overlay)))))
    (jit-lock-register #'pyagentd-media--show)
    (when (fboundp 'yank-media-handler)
      (yank-media-handler "image/.*" #'pyagentd-media--receive))))

(defun pyagentd-media--after-major-mode ()
  "Set up again what a change of the major mode has undone."
  (when (bound-and-true-p pyagentd-mode)
    (pyagentd-media--set-up)))

(add-hook 'pyagentd-mode-hook #'pyagentd-media--set-up)
(add-hook 'after-change-major-mode-hook #'pyagentd-media--after-major-mode)
(add-to-list 'pyagentd-session-settings
             (cons 'dnd-protocol-alist
                   (cons '("^file:" . pyagentd-media-drop)
                         dnd-protocol-alist)))

(define-key pyagentd-mode-map (kbd "C-c M-y") #'pyagentd-yank-picture)
(define-key pyagentd-mode-map (kbd "C-c M-a") #'pyagentd-attach-file)

(provide 'pyagentd-media)
;;; pyagentd-media.el ends here

;;; pyagentd-doctor.el --- What can be wrong, and what to do -*- lexical-binding: t; -*-

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

;;; Commentary:

;; One buffer says what Emacs, the package, the server and the daemon are
;; like, and what is wrong with them.  Each thing that is wrong has buttons
;; that put it right.

;;; Code:

(require 'seq)
(require 'pyagentd-core)
(require 'pyagentd-server)
(require 'pyagentd-installer)
(require 'pyagentd-later)
(require 'pyagentd-doctor-check)

(defconst pyagentd-doctor--timeout 60
  "Seconds that the server's own examination may take.")

(defvar-local pyagentd-doctor--own nil
  "Findings of Emacs, see `pyagentd-doctor-check-finding'.")
(defvar-local pyagentd-doctor--server nil
  "Findings of the server; the symbol `asked' while they are awaited.")
(defvar-local pyagentd-doctor--process nil
  "The process that examines the server, or nil.")

;;;; What the server says

(defun pyagentd-doctor--ask ()
  "Have the server examine itself; show what it says when it did."
  (when-let* ((found (pyagentd-server-found))
              (command (plist-get found :command))
              ((executable-find (car command))))
    (let ((buffer (current-buffer))
          (output (generate-new-buffer " *pyagentd-doctor*")))
      (setq pyagentd-doctor--server 'asked
            pyagentd-doctor--process
            (make-process
             :name "pyagentd-doctor" :buffer output :noquery t
             :command (append command '("doctor" "--json" "--no-emacs"))
             :connection-type 'pipe :stderr nil
             :sentinel (lambda (process _change)
                         (unless (process-live-p process)
                           (pyagentd-guarded "Doctor"
                             (pyagentd-doctor--answered process buffer))))))
      (run-at-time pyagentd-doctor--timeout nil #'pyagentd-doctor--give-up
                   pyagentd-doctor--process))))

(defun pyagentd-doctor--give-up (process)
  "End PROCESS, if it still runs."
  (when (process-live-p process) (delete-process process)))

(defun pyagentd-doctor--answered (process buffer)
  "Show in BUFFER what PROCESS, the server's examination, said."
  (let ((text (with-current-buffer (process-buffer process) (buffer-string))))
    (kill-buffer (process-buffer process))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer
        (when (eq process pyagentd-doctor--process)
          (setq pyagentd-doctor--process nil
                pyagentd-doctor--server (pyagentd-doctor-check-read text))
          (pyagentd-doctor--show))))))

;;;; The buffer

(defconst pyagentd-doctor--marks
  '((ok "✓" "ok" success) (warning "!" "!" warning) (missing "✗" "NO" error)
    (asked "…" ".." shadow))
  "For each level its mark, what to show where that cannot be, its face.")

(defun pyagentd-doctor--mark (level)
  "Return the mark of LEVEL as this frame can show it."
  (pcase-let ((`(,mark ,plain ,face) (alist-get level pyagentd-doctor--marks)))
    (propertize (if (char-displayable-p (aref mark 0)) mark plain)
                'face face)))

(defun pyagentd-doctor--insert (finding)
  "Insert FINDING with its buttons."
  (insert (format "%2s %-19s "
                  (pyagentd-doctor--mark (plist-get finding :level))
                  (plist-get finding :name))
          (replace-regexp-in-string
           "\n" (concat "\n" (make-string 23 ?\s))
           (plist-get finding :detail) t t)
          "\n")
  (when-let ((buttons (plist-get finding :buttons)))
    (insert (make-string 23 ?\s))
    (pcase-dolist (`(,label . ,function) buttons)
      (insert-text-button (format "[%s]" label)
                          'follow-link t
                          'action (lambda (_button) (funcall function)))
      (insert " "))
    (insert "\n")))

(defun pyagentd-doctor--verdict (findings)
  "Return a sentence about FINDINGS as a whole."
  (let ((missing (seq-count (lambda (finding)
                              (eq (plist-get finding :level) 'missing))
                            findings)))
    (cond ((eq pyagentd-doctor--server 'asked) "Checking the server…")
          ((zerop missing) "All checks passed.")
          ((= missing 1) "1 check failed.")
          (t (format "%d checks failed." missing)))))

(defun pyagentd-doctor--show ()
  "Show the findings."
  (let* ((inhibit-read-only t)
         (server (and (listp pyagentd-doctor--server) pyagentd-doctor--server))
         (all (append (pyagentd-doctor-check-agree
                       pyagentd-doctor--own pyagentd-doctor--server)
                      server))
         (line (line-number-at-pos)))
    (erase-buffer)
    (insert (propertize (pyagentd-doctor--verdict all) 'face 'bold) "\n\n")
    (mapc #'pyagentd-doctor--insert all)
    (insert "\n" (substitute-command-keys
                  "\\<pyagentd-doctor-mode-map>\\[revert-buffer] refresh  \
\\[forward-button] next button  \\[quit-window] close\n"))
    (set-buffer-modified-p nil)
    (goto-char (point-min))
    (forward-line (1- line))))

(defvar pyagentd-doctor-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'forward-button)
    (define-key map (kbd "<backtab>") #'backward-button)
    (define-key map "n" #'forward-button)
    (define-key map "p" #'backward-button)
    map)
  "Keymap of `pyagentd-doctor-mode'.")

(define-derived-mode pyagentd-doctor-mode special-mode "Doctor"
  "Major mode of the buffer of `pyagentd-doctor'."
  (setq-local truncate-lines nil
              word-wrap t
              wrap-prefix (make-string 23 ?\s)
              revert-buffer-function
              (lambda (&rest _) (pyagentd-doctor--refresh))))

(defun pyagentd-doctor--refresh ()
  "Examine everything anew."
  (setq pyagentd-doctor--own (pyagentd-doctor-check-examine 'asked)
        pyagentd-doctor--server nil
        pyagentd-doctor--process nil)
  (pyagentd-doctor--ask)
  (pyagentd-doctor--show)
  (unless (pyagentd-server-found)
    (pyagentd-installer-find
     (pyagentd-later-back
      (lambda (installer)
        (setq pyagentd-doctor--own (pyagentd-doctor-check-examine installer))
        (pyagentd-doctor--show))))))

(defun pyagentd-doctor--again ()
  "Look again, if the buffer is still there."
  (when-let ((buffer (get-buffer "*pyagentd-doctor*")))
    (with-current-buffer buffer (pyagentd-doctor--refresh))))

(add-hook 'pyagentd-doctor-mended-hook #'pyagentd-doctor--again)

;;;###autoload
(defun pyagentd-doctor ()
  "Check the installation; buttons repair what is wrong."
  (interactive)
  (let ((buffer (get-buffer-create "*pyagentd-doctor*")))
    (with-current-buffer buffer
      (pyagentd-doctor-mode)
      (pyagentd-doctor--refresh))
    (pop-to-buffer buffer)))

(provide 'pyagentd-doctor)
;;; pyagentd-doctor.el ends here

;;; pyagentd-installer.el --- What can install the server -*- lexical-binding: t; -*-

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

;; The server is installed by uv, else by a Python that is new enough.
;; Which of them is good is tried in processes that nobody waits for; they
;; are isolated, and not where the user works: nothing of a project is
;; loaded before the user wants an installation.

;;; Code:

(require 'pyagentd-core)

(defconst pyagentd-installer-python "3.11"
  "Oldest version of Python the server runs on.")

(defconst pyagentd-installer--pythons
  '("python3" "python3.14" "python3.13" "python3.12" "python3.11" "python")
  "Programs that may be such a Python, the best first.")

(defun pyagentd-installer-uv-p ()
  "Return non-nil if there is uv."
  (let ((default-directory "/")) (executable-find "uv")))

(defun pyagentd-installer-find (then)
  "Call THEN with what can install the server, nil if nothing can.
That is a pair (PROGRAM . KIND).  KIND is `uv', `pip' (a Python with a pip
that installs for another Python) or `venv' (one without)."
  (if (pyagentd-installer-uv-p)
      (funcall then '("uv" . uv))
    (pyagentd-installer--among pyagentd-installer--pythons then)))

(defun pyagentd-installer--among (pythons then)
  "Call THEN with the first of PYTHONS that can install the server, or nil."
  (pcase pythons
    ('nil (funcall then nil))
    (`(,python . ,others)
     (pyagentd-installer--try
      python "import sys, venv, ensurepip; \
sys.exit(sys.version_info < (3, 11))"
      (lambda (good)
        (if good (pyagentd-installer--kind python then)
          (pyagentd-installer--among others then)))))))

(defun pyagentd-installer--kind (python then)
  "Call THEN with PYTHON and what it is, see `pyagentd-installer-find'."
  (pyagentd-installer--try
   python "import pip, sys; \
sys.exit(tuple(map(int, pip.__version__.split('.')[:2])) < (22, 3))"
   (lambda (good) (funcall then (cons python (if good 'pip 'venv))))))

(defun pyagentd-installer--try (python code then)
  "Call THEN with whether the program PYTHON runs CODE to a good end."
  (let ((default-directory "/"))
    (if (not (executable-find python)) (funcall then nil)
      (make-process
       :name "pyagentd-installer" :command (list python "-I" "-c" code)
       :connection-type 'pipe :noquery t :filter #'ignore
       :sentinel (lambda (process _change)
                   (unless (process-live-p process)
                     (pyagentd-guarded "Looking for an installer"
                       (funcall then
                                (eql 0 (process-exit-status process))))))))))

(provide 'pyagentd-installer)
;;; pyagentd-installer.el ends here

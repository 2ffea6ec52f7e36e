;;; pyagentd-context.el --- How full the window is and what it cost -*- lexical-binding: t; -*-

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

;; Events arrive faster than they may be shown.  They wait here in the
;;; Commentary:

;; A meter in the header line of session buffers: how much of the model's
;; window the next request takes and what the session cost so far, its
;; agents included.  The daemon counts; this only shows what it says.

;;; Code:

(require 'pyagentd-core)
(require 'pyagentd-numbers)
(require 'pyagentd-events)
(require 'pyagentd-place)
(require 'pyagentd-status)

(defvar-local pyagentd-context nil
  "What the daemon said last about the context of this branch, or nil.
A plist: :used of :window tokens, :usable of them before it is
compacted, :estimated and :window-known; :model; :tokens of the session
and :last of the last request, plists by bucket; :cost-usd with the
agents, nil if a price is unknown, then :known-usd; :own-usd; :agents,
how many there are, and :agents-total, their tokens; :compactions.")

(pyagentd-permanent-local 'pyagentd-context)

(defconst pyagentd-context--cells 5
  "How many characters the bar has.")

(defconst pyagentd-context--buckets
  '((:input . "input") (:output . "output") (:reasoning . "reasoning")
    (:cache-read . "cache read") (:cache-write . "cache write"))
  "The kinds of tokens, and their names.")

(defun pyagentd-context--cost (context)
  "Return what CONTEXT cost, in which an unknown price is a question mark."
  (if-let ((cost (plist-get context :cost-usd)))
      (pyagentd-numbers-dollars cost)
    (pyagentd-numbers-cost (or (plist-get context :known-usd) 0) t)))

(defun pyagentd-context--face (context)
  "Return the face for how full the usable window of CONTEXT is."
  (let ((used (plist-get context :used))
        (usable (max 1 (or (plist-get context :usable) 0))))
    (cond ((>= used (* 0.9 usable)) 'error)
          ((>= used (* 0.66 usable)) 'warning)
          (t 'success))))

(defun pyagentd-context--bar (share)
  "Return a bar for SHARE, a number from 0 to 1."
  (let ((full (min pyagentd-context--cells
                   (ceiling (* share pyagentd-context--cells))))
        (blocks (and (char-displayable-p ?█) (char-displayable-p ?▁))))
    (concat (make-string full (if blocks ?█ ?#))
            (make-string (- pyagentd-context--cells full)
                         (if blocks ?▁ ?.)))))

(defun pyagentd-context--counts (counts)
  "Return COUNTS, tokens by bucket, in words."
  (mapconcat (pcase-lambda (`(,key . ,name))
               (format "%s %s" name
                       (pyagentd-numbers-long (or (plist-get counts key) 0))))
             pyagentd-context--buckets ", "))

(defun pyagentd-context--details (context)
  "Return what CONTEXT says, some lines of text."
  (string-join
   (delq nil
         (list
          (format "Context: %s%s of %s tokens%s%s"
                  (if (plist-get context :estimated) "about " "")
                  (pyagentd-numbers-long (plist-get context :used))
                  (pyagentd-numbers-long (plist-get context :window))
                  (if (plist-get context :window-known) ""
                    " (estimated: the window of this model is not configured)")
                  (if-let ((model (plist-get context :model)))
                      (concat " of " model) ""))
          (format "Compacted from %s on"
                  (pyagentd-numbers-long (or (plist-get context :usable) 0)))
          (concat "Last request: "
                  (pyagentd-context--counts (plist-get context :last)))
          (concat "Session: "
                  (pyagentd-context--counts (plist-get context :tokens)))
          (when (> (or (plist-get context :agents) 0) 0)
            (format "Its %d agents: %s tokens" (plist-get context :agents)
                    (pyagentd-numbers-long
                     (or (plist-get context :agents-total) 0))))
          (if (plist-get context :cost-usd)
              (concat "Cost: " (pyagentd-context--cost context))
            (format "Cost: %sunknown (no price of a model in config.toml)"
                    (let ((known (or (plist-get context :known-usd) 0)))
                      (if (> known 0)
                          (concat (pyagentd-numbers-dollars known) " and ")
                        ""))))
          (when (> (or (plist-get context :compactions) 0) 0)
            (format "Compactions: %d" (plist-get context :compactions)))))
   "\n"))

(defun pyagentd-context--segment ()
  "Return the meter of this buffer, nil before there is anything to say."
  (when-let* ((context pyagentd-context)
              (used (plist-get context :used))
              ((or (> used 0) (> (or (plist-get context :known-usd) 0) 0))))
    (let ((share (/ (float used) (max 1 (plist-get context :window)))))
      (pyagentd-status-button
       (format "[%s %s%d%% %s %s]"
               (propertize (pyagentd-context--bar share)
                           'face (pyagentd-context--face context))
               (if (plist-get context :estimated) "~" "")
               (round (* 100 share))
               (pyagentd-numbers-short used)
               (pyagentd-context--cost context))
       'pyagentd-context (pyagentd-context--details context)))))

(add-hook 'pyagentd-status-segment-functions #'pyagentd-context--segment 90)

(defun pyagentd-context-set (context)
  "Show CONTEXT, a plist as the daemon sends it, in the header line."
  (when (and context (not (equal context pyagentd-context)))
    (setq pyagentd-context context)
    (pyagentd-status-refresh)))

(defun pyagentd-context--on-event (branch _seq args)
  "Show the context in ARGS in the buffer of BRANCH."
  (when-let ((buffer (pyagentd-place-buffer branch)))
    (with-current-buffer buffer
      (pyagentd-context-set (car args)))))

(pyagentd-events-register 'context #'pyagentd-context--on-event)

;;;###autoload
(defun pyagentd-context ()
  "Show how full the context window is and what the session cost."
  (interactive)
  (if pyagentd-context
      (message "%s" (pyagentd-context--details pyagentd-context))
    (user-error "No context usage known yet")))

(provide 'pyagentd-context)
;;; pyagentd-context.el ends here

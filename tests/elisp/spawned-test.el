;;; spawned-test.el --- Tests of the buffers of agents -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)
(require 'pyagentd-sync)

(defun spawned-test--agent (number &optional state)
  "Return an event about agent NUMBER in STATE, whose files are there."
  (let* ((id (format "explorer-2026010100000%d-find" number))
         (dir (expand-file-name (concat "agents/" id) pyagentd--branch-dir)))
    (unless (file-exists-p dir)
      (pyagentd-test-file pyagentd--branch-dir ""
                          (concat "agents/" id "/session.md")))
    `(agent 0 (:id ,id :branch-dir ,dir :preset "explorer" :description "find"
               :state ,(or state "wait") :count 0))))

(defun spawned-test--buffer (event)
  "Return the buffer of the agent of EVENT, or nil."
  (pyagentd-place-buffer (plist-get (nth 2 event) :branch-dir)))

(ert-deftest pyagentd-spawned-agents-have-a-buffer ()
  "SPEC 000 Empty session.md created, Session registered in global registry."
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (let ((event (spawned-test--agent 1)))
      (pyagentd-test-events event)
      (with-current-buffer (spawned-test--buffer event)
        (should (equal buffer-file-name
                       (expand-file-name "session.md" pyagentd--branch-dir)))
        (should (= (buffer-size) 0))
        (should-not pyagentd-attach-state)
        (let ((id (plist-get (nth 2 event) :id)))
          (should (equal (gethash pyagentd--branch-dir pyagentd-place--registry)
                         (list :session-id id
                               :session-dir pyagentd--branch-dir
                               :branch-name "main"
                               :branch-dir pyagentd--branch-dir
                               :buffer (current-buffer))))))
      (pyagentd-test-events (spawned-test--agent 1 "finished"))
      (should-not (spawned-test--buffer event)))))

(ert-deftest pyagentd-spawned-buffers-stay-once-displayed ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (let ((event (spawned-test--agent 1)))
      (pyagentd-test-events event)
      (with-current-buffer (spawned-test--buffer event)
        (save-window-excursion
          (set-window-buffer (selected-window) (current-buffer))
          (dolist (function window-buffer-change-functions)
            (when (functionp function)
              ;; As Emacs does it: any buffer may be current.
              (with-temp-buffer (funcall function (selected-window))))))
        (should-not pyagentd-attach-viewer)
        (should-not (memq #'pyagentd-spawned--displayed
                          window-buffer-change-functions)))
      (pyagentd-test-events (spawned-test--agent 1 "finished"))
      (should (spawned-test--buffer event))
      (should-not pyagentd-spawned--hidden))))

(ert-deftest pyagentd-spawned-buffers-are-few-and-not-attached-unseen ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (let ((pyagentd-spawned--most 2)
          (events (mapcar #'spawned-test--agent '(1 2 3))))
      (apply #'pyagentd-test-events events)
      (should (= (length (delq nil (mapcar #'spawned-test--buffer events))) 2))
      (let ((buffer (spawned-test--buffer (car events))))
        (pyagentd-connect--later buffer)
        (should-not (buffer-local-value 'pyagentd-attach-state buffer))
        (kill-buffer buffer)
        (should (= (length pyagentd-spawned--hidden) 1)))
      (pyagentd-overlay-clear)
      (pyagentd-spawned--tidy)
      (should-not pyagentd-spawned--hidden))))

;;; spawned-test.el ends here

;;; overlay-test.el --- Tests of the progress of agents -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defun overlay-test--agent (state &rest more)
  "Return an event about an agent in STATE with MORE keys."
  `(agent 0 (:id "a1" :branch-dir "/s/agents/a1" :preset "explorer"
             :description "analyze patterns" :state ,state ,@more)))

(defun overlay-test--text ()
  "Return what the overlay of the only agent shows, or nil."
  (when-let ((overlay (cdar pyagentd-overlay--table)))
    (substring-no-properties (overlay-get overlay 'after-string))))

(ert-deftest pyagentd-overlay-shows-description-and-waiting ()
  "SPEC 000 Overlay displays task description."
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-test-events (overlay-test--agent "wait" :count 0))
    (should (equal (overlay-test--text)
                   "\n\nExplorer Task: analyze patterns\nWaiting...\n\n"))
    (let ((overlay (cdar pyagentd-overlay--table)))
      (should (eq (overlay-get overlay 'pyagentd-agent) t))
      (should (= (overlay-end overlay) (point-max))))
    (should-not (buffer-modified-p))))

(ert-deftest pyagentd-overlay-counts-calls ()
  "SPEC 000 TOOL state updates overlay with count."
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-test-events
     (overlay-test--agent 'wait :count 0)
     (overlay-test--agent 'tool :count 2
                          :calls '("Read file.py" "Bash ls\n-l")))
    (should (equal (overlay-test--text)
                   (concat "\n\nExplorer Task: analyze patterns\n"
                           "Calling Tools... (+2)\n  Read file.py\n  Bash ls -l\n\n")))))

(ert-deftest pyagentd-overlay-waits-again-after-a-moment ()
  "SPEC 000 WAIT state updates overlay."
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-test-events (overlay-test--agent 'tool :count 1 :calls '("Read a"))
                          (overlay-test--agent 'wait :count 1))
    (should (string-match-p "Calling Tools" (overlay-test--text)))
    (let ((overlay (cdar pyagentd-overlay--table)))
      (pyagentd-overlay--settle overlay 1)
      (should (string-match-p "Calling Tools" (overlay-test--text)))
      (pyagentd-overlay--settle overlay (overlay-get overlay 'version))
      (should (string-match-p "Waiting\\.\\.\\." (overlay-test--text))))))

(ert-deftest pyagentd-overlay-goes-on-every-end ()
  "SPEC 000 Overlay deleted on all completion paths."
  (pyagentd-test-with-session "### Hi"
    (dolist (end (list (lambda () (pyagentd-test-events
                                   (overlay-test--agent "finished")))
                       (lambda () (pyagentd-test-events
                                   '(run 3 (:id "r" :phase "finished" :reason "aborted"))))
                       #'pyagentd-connect--disconnected
                       (lambda () (pyagentd-test-attach))))
      (pyagentd-test-attach)
      (pyagentd-test-events (overlay-test--agent 'wait :count 0))
      (should (= 1 (length (pyagentd-test-overlays))))
      (funcall end)
      (should-not (pyagentd-test-overlays))
      (should-not pyagentd-overlay--table))))

(ert-deftest pyagentd-overlay-survives-the-death-of-its-buffer ()
  "SPEC 000 Overlay validity checked before updates."
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-test-events (overlay-test--agent 'tool :count 1))
    (let ((overlay (cdar pyagentd-overlay--table)) (branch pyagentd--branch-dir))
      (kill-buffer)
      (pyagentd-overlay-indicate-tool-call overlay '(:count 2))
      (pyagentd-overlay--settle overlay 1)
      (pyagentd-overlay-delete overlay)
      (pyagentd-event--agent branch 0 '((:id "a1" :state wait)))
      (should-not (overlay-buffer overlay)))))

(ert-deftest pyagentd-overlay-is-rebuilt-on-attach ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach
     :agents '((:id "a1" :preset "executor" :description "x" :state "wait" :count 0)
               (:id "a2" :preset "executor" :description "y" :state "tool" :count 3)))
    (should (= 2 (length pyagentd-overlay--table)))))

(ert-deftest pyagentd-overlay-visits-the-agent ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (let* ((dir (expand-file-name "agents/a1" pyagentd--branch-dir)) visited)
      (pyagentd-test-events `(agent 0 (:id "a1" :branch-dir ,dir :state wait)))
      (goto-char 3)
      (cl-letf (((symbol-function 'find-file-other-window)
                 (lambda (name) (setq visited name))))
        (call-interactively (lookup-key pyagentd-overlay-map (kbd "RET"))))
      (should (equal visited (expand-file-name "session.md" dir))))))

(ert-deftest pyagentd-overlay-handlers-are-triples ()
  "SPEC 000 Custom FSM handlers registered."
  (dolist (entry jf/gptel-persistent-agent--fsm-handlers)
    (pcase-let ((`(,state ,ui ,core) entry))
      (should (memq state '(WAIT TOOL DONE)))
      (should (functionp ui))
      (should (functionp core)))))

(ert-deftest pyagentd-overlay-background-agents-are-in-the-header ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-test-events (overlay-test--agent "wait" :count 0 :background t)
                          (overlay-test--agent "tool" :count 3 :background t))
    (should-not (pyagentd-test-overlays))
    (should (string-search "background: explorer (+3)" pyagentd-status--line))
    (pyagentd-test-events '(run 3 (:id "r" :phase "finished" :reason "done")))
    (should (string-search "background: explorer" pyagentd-status--line))
    (pyagentd-test-events (overlay-test--agent "finished" :background t))
    (should-not (string-search "background" pyagentd-status--line))))

(ert-deftest pyagentd-overlay-background-agents-come-and-go-with-the-daemon ()
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach
     :agents '((:id "a1" :preset "executor" :state "wait" :count 0 :background t)
               (:id "a2" :preset "planner" :state "wait" :count 0)))
    (should (string-search "background: executor" pyagentd-status--line))
    (should (= 1 (length pyagentd-overlay--table)))
    (pyagentd-connect--disconnected)
    (should-not (string-search "background" pyagentd-status--line))))

;;; overlay-test.el ends here

;;; progress-test.el --- Tests of what Emacs shows of an agent -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The pyagentd authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Code:

(require 'test-helper)

(defun progress-test--agent (state &rest more)
  "Return an event about an agent in STATE with MORE keys."
  `(agent 0 (:id "a1" :branch-dir "/s/agents/a1" :preset "researcher"
             :description "analyze patterns" :state ,state ,@more)))

(defun progress-test--overlay ()
  "Return the overlay of the only agent, or nil."
  (cdar pyagentd-overlay--table))

(defun progress-test--text ()
  "Return what the overlay of the only agent shows."
  (substring-no-properties
   (overlay-get (progress-test--overlay) 'after-string)))

(ert-deftest pyagentd-progress-is-at-the-marker-of-the-run ()
  "SPEC 000 Overlay created at marker position."
  (pyagentd-test-with-session "### Hi\n\nanswer\n\n### a draft"
    (pyagentd-test-attach)
    (pyagentd-insert-start 15)          ; behind the answer
    (pyagentd-test-events (progress-test--agent "wait" :count 0))
    (let ((overlay (progress-test--overlay)))
      (should (= (overlay-start overlay) 9))
      (should (= (overlay-end overlay) 15))
      (should (eq (overlay-get overlay 'gptel-persistent-agent) t))
      (should (eql (overlay-get overlay 'count) 0))
      (should (equal (substring-no-properties (overlay-get overlay 'msg))
                     "\n\nResearcher Task: analyze patterns\n")))
    (should (equal (buffer-string) "### Hi\n\nanswer\n\n### a draft"))
    (pyagentd-test-stream "more")
    (pyagentd-test-events (progress-test--agent "tool" :count 1))
    (should (= (overlay-end (progress-test--overlay)) 19))))

(ert-deftest pyagentd-progress-says-who-does-what-between-two-rules ()
  "SPEC 000 Overlay displays task description."
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-test-events (progress-test--agent "wait" :count 0))
    (should (equal (progress-test--text)
                   "\n\nResearcher Task: analyze patterns\nWaiting...\n\n"))
    (let ((shown (overlay-get (progress-test--overlay) 'after-string)))
      (should (eq (get-text-property 1 'face shown) 'pyagentd-rule))
      (should (eq (get-text-property (1- (length shown)) 'face shown)
                  'pyagentd-rule))
      (should (eq (get-text-property (string-match "Researcher" shown) 'face shown)
                  'pyagentd-heading))
      (should (eq (get-text-property (string-match "analyze" shown) 'face shown)
                  'pyagentd-detail)))))

(ert-deftest pyagentd-progress-follows-the-states ()
  "SPEC 000 Overlay synchronized with FSM states."
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-test-events (progress-test--agent "wait" :count 0))
    (should (string-match-p "^Waiting\\.\\.\\.$" (progress-test--text)))
    (pyagentd-test-events
     (progress-test--agent "tool" :count 2 :calls '("Read a" "Read b")))
    (should (string-match-p
             "^Calling Tools\\.\\.\\. (\\+2)\n  Read a\n  Read b$"
             (progress-test--text)))
    (pyagentd-test-events
     (progress-test--agent "tool" :count 5 :calls '("Read c")))
    (should (string-match-p "^Calling Tools\\.\\.\\. (\\+5)\n  Read c$"
                            (progress-test--text)))
    (should-not (string-match-p "Waiting" (progress-test--text)))
    (should (eql (overlay-get (progress-test--overlay) 'count) 5))))

(ert-deftest pyagentd-progress-handlers-run-the-shown-one-first ()
  "SPEC 000 FSM handlers chained with core handlers, Custom FSM handlers registered."
  (should (equal (mapcar #'car jf/gptel-persistent-agent--fsm-handlers)
                 '(WAIT TOOL DONE)))
  (should (eq (indirect-function
               (car (alist-get 'WAIT jf/gptel-persistent-agent--fsm-handlers)))
              (indirect-function #'jf/gptel-persistent-agent--indicate-wait)))
  (should (eq (indirect-function
               (car (alist-get 'TOOL jf/gptel-persistent-agent--fsm-handlers)))
              (indirect-function
               #'jf/gptel-persistent-agent--indicate-tool-call)))
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (let* ((called nil)
           (note (lambda (name)
                   (lambda (overlay agent)
                     (push (list name (overlayp overlay)
                                 (plist-get agent :count))
                           called))))
           (jf/gptel-persistent-agent--fsm-handlers
            `((WAIT ,(funcall note 'ui) ,(funcall note 'core))
              (TOOL ,(funcall note 'ui) ,(funcall note 'core)))))
      (pyagentd-test-events (progress-test--agent "wait" :count 0)
                            (progress-test--agent "tool" :count 3))
      (should (equal (reverse called)
                     '((ui t 0) (core t 0) (ui t 3) (core t 3)))))))

(ert-deftest pyagentd-progress-waits-are-shown-after-a-second-and-a-half ()
  "SPEC 000 WAIT state updates overlay."
  (should (= pyagentd-overlay-wait-delay 1.5))
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (let ((pyagentd-overlay-wait-delay 0.01))
      (pyagentd-test-events (progress-test--agent "tool" :count 1 :calls '("Read a"))
                            (progress-test--agent "wait" :count 1))
      (should (string-match-p "Calling Tools" (progress-test--text)))
      (pyagentd-test-await
       (string-match-p "Waiting\\.\\.\\." (progress-test--text))))))

(ert-deftest pyagentd-progress-is-gone-after-every-end ()
  "SPEC 000 Overlay deleted on all completion paths, Overlay cleaned up on all paths."
  (pyagentd-test-with-session "### Hi"
    (pcase-dolist
        (`(,_ . ,end)
         `((finished . ,(lambda ()
                          (pyagentd-test-events (progress-test--agent "finished"))))
           (run-ended . ,(lambda ()
                           (pyagentd-test-events
                            '(run 3 (:id "r" :phase "finished" :reason "error")))))
           (daemon-gone . ,#'pyagentd-connect--disconnected)
           (attached-anew . ,(lambda () (pyagentd-test-attach)))))
      (pyagentd-test-attach)
      (pyagentd-test-events (progress-test--agent "wait" :count 0))
      (let ((overlay (progress-test--overlay)))
        (should (overlay-buffer overlay))
        (funcall end)
        (should-not (overlay-buffer overlay))
        (should-not pyagentd-overlay--table)))))

(ert-deftest pyagentd-progress-of-a-killed-buffer-harms-nobody ()
  "SPEC 000 Overlay validity checked before updates."
  (pyagentd-test-with-session "### Hi"
    (pyagentd-test-attach)
    (pyagentd-test-events (progress-test--agent "tool" :count 1))
    (let* ((overlay (progress-test--overlay))
           (shown (overlay-get overlay 'after-string)))
      (kill-buffer)
      (jf/gptel-persistent-agent--indicate-wait overlay '(:count 1))
      (jf/gptel-persistent-agent--indicate-tool-call overlay '(:count 2))
      (pyagentd-overlay--settle overlay (overlay-get overlay 'version))
      (should (eq (overlay-get overlay 'after-string) shown))
      (should-not (overlay-buffer overlay)))))

;;; progress-test.el ends here

;;; pyagentd-key-words.el --- What keys do, in a few words -*- lexical-binding: t; -*-

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

;; What the cheat sheet says of commands whose documentation begins with
;; more than a line of it has room for.

;;; Code:

(defconst pyagentd-key-words-width 36
  "How many columns the words of a key have at most.")

(defconst pyagentd-key-words
  '((backward-button . "previous button")
    (completion-at-point . "complete at point")
    (forward-button . "next button")
    (outline-cycle . "fold or unfold what stands below")
    (outline-cycle-buffer . "fold or unfold everything")
    (outline-next-visible-heading . "next heading")
    (outline-previous-visible-heading . "previous heading")
    (pyagentd-abort . "stop the run; its text stays")
    (pyagentd-allow-always . "allow always, in the whole project")
    (pyagentd-allow-once . "allow this once")
    (pyagentd-allow-session . "allow as long as the session lives")
    (pyagentd-answer . "answer any open question")
    (pyagentd-approve . "carry out the plan")
    (pyagentd-ask-diff . "show the change as a diff")
    (pyagentd-ask-ediff . "compare with the file, in Ediff")
    (pyagentd-ask-edit . "change the arguments, and allow")
    (pyagentd-ask-go . "go to the question")
    (pyagentd-ask-next . "next of several asks")
    (pyagentd-ask-previous . "previous of several asks")
    (pyagentd-ask-show . "why it is asked, and all of it")
    (pyagentd-asks . "pending approvals and questions")
    (pyagentd-asks-visit . "visit the conversation that asks")
    (pyagentd-attach-file . "copy a file into the prompt")
    (pyagentd-branch . "make a branch at a prompt")
    (pyagentd-branches . "branches of the session as a tree")
    (pyagentd-branches-diff . "compare with where it comes from")
    (pyagentd-choose-agent . "choose the agent")
    (pyagentd-context-clear . "clear without saving")
    (pyagentd-context-save . "save the conversation")
    (pyagentd-copy-code . "copy the block of code")
    (pyagentd-delete . "move to the trash")
    (pyagentd-deny . "deny this; the run goes on")
    (pyagentd-deny-with-reason . "deny, and tell the model why")
    (pyagentd-duplicate . "copy the session")
    (pyagentd-edit-prompt . "edit a prompt and send it again")
    (pyagentd-export . "write the conversation to a file")
    (pyagentd-fold-toggle . "fold or unfold the block")
    (pyagentd-inspect . "inspect the requests")
    (pyagentd-keys . "show the keys")
    (pyagentd-sessions-flag-archive . "flag for archiving")
    (pyagentd-sessions-flag-deletion . "flag for deletion")
    (pyagentd-sessions-mark . "mark")
    (pyagentd-sessions-toggle-archived . "include archived sessions")
    (pyagentd-sessions-toggle-fold . "fold or unfold what stands below")
    (pyagentd-sessions-unmark . "take the mark or flag away")
    (pyagentd-sessions-unmark-backward . "take the mark above away")
    (pyagentd-sessions-visit-other-window . "open in another window")
    (pyagentd-mcp-test . "start it and show what it offers")
    (pyagentd-mission-copy . "copy the last value, as JSON")
    (pyagentd-mission-resume . "resume after the last program")
    (pyagentd-mission-stop . "stop it; what it did is kept")
    (pyagentd-mission-visit . "open what is at point")
    (pyagentd-named-list-documents . "open the documents in its prompt")
    (pyagentd-named-list-flag . "flag to be destroyed with its files")
    (pyagentd-named-list-flag-keep . "flag to be destroyed; files stay")
    (pyagentd-named-list-toggle-destroyed . "include destroyed agents")
    (pyagentd-named-list-unflag . "take the flag away")
    (pyagentd-named-list-visit-other-window . "open in another window")
    (pyagentd-named-list-workspace . "open its workspace")
    (pyagentd-next-answer . "next answer")
    (pyagentd-next-variant . "next variant of the message")
    (pyagentd-previous-answer . "previous answer")
    (pyagentd-previous-variant . "previous variant of the message")
    (pyagentd-queue . "queued messages")
    (pyagentd-recall-prompt . "insert an earlier prompt")
    (pyagentd-report-visit . "open what is named here")
    (pyagentd-regenerate . "regenerate the last answer")
    (pyagentd-rewind . "rewind to a prompt")
    (pyagentd-list-visit-other-window . "open in another window")
    (pyagentd-search . "search all conversations")
    (pyagentd-search-next . "next message, and show it")
    (pyagentd-search-previous . "previous message, and show it")
    (pyagentd-search-toggle-archived . "include archived sessions")
    (pyagentd-search-toggle-follow . "show messages while moving")
    (pyagentd-search-visit . "open at this message")
    (pyagentd-search-visit-other-window . "open in another window")
    (pyagentd-send . "send the prompt")
    (pyagentd-snapshots-diff . "compare with the restored file")
    (pyagentd-steer . "steer this run")
    (pyagentd-table-filter . "filter by words")
    (pyagentd-table-mark . "mark")
    (pyagentd-table-unmark . "take the mark away")
    (pyagentd-yank-picture . "insert the picture in the clipboard"))
  "For commands what they do, in a few words.")

(provide 'pyagentd-key-words)
;;; pyagentd-key-words.el ends here

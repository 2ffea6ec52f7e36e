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
    (completion-at-point . "complete the text here")
    (forward-button . "next button")
    (outline-cycle . "fold or unfold what stands below")
    (outline-cycle-buffer . "fold or unfold everything")
    (outline-next-visible-heading . "next heading")
    (outline-previous-visible-heading . "previous heading")
    (pyagentd-abort . "stop the run; what it said stays")
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
    (pyagentd-branch . "begin a branch at a prompt")
    (pyagentd-branches . "branches of the session as a tree")
    (pyagentd-branches-diff . "compare with where it comes from")
    (pyagentd-branches-switch . "make it the current branch")
    (pyagentd-branches-visit-other-window . "open in another window")
    (pyagentd-choose-agent . "who answers, and with which model")
    (pyagentd-context-clear . "begin anew, without saving")
    (pyagentd-context-save . "save the conversation, which goes on")
    (pyagentd-contexts-restore . "take up this conversation again")
    (pyagentd-copy-code . "copy the block of code")
    (pyagentd-delete . "move to the trash")
    (pyagentd-deny . "deny this; the run goes on")
    (pyagentd-deny-with-reason . "deny, and tell the model why")
    (pyagentd-duplicate . "copy the session")
    (pyagentd-edit-prompt . "send a prompt again in other words")
    (pyagentd-export . "write the conversation to a file")
    (pyagentd-fold-toggle . "fold or unfold the block")
    (pyagentd-grants-revoke . "revoke the marked, or this one")
    (pyagentd-inspect . "what happened, request by request")
    (pyagentd-inspect-request . "the request as it was sent")
    (pyagentd-keys . "show the keys")
    (pyagentd-list-flag-archive . "flag for the archive")
    (pyagentd-list-flag-deletion . "flag for deletion")
    (pyagentd-list-mark . "mark")
    (pyagentd-list-toggle-archived . "archived sessions too, or not")
    (pyagentd-list-toggle-fold . "fold or unfold what stands below")
    (pyagentd-list-unmark . "take the mark or flag away")
    (pyagentd-list-unmark-backward . "take the mark above away")
    (pyagentd-list-visit-other-window . "open in another window")
    (pyagentd-mcp-test . "start it and show what it offers")
    (pyagentd-mission-copy . "copy the last value, as JSON")
    (pyagentd-mission-resume . "go on behind the last program")
    (pyagentd-mission-stop . "stop it; what it did is kept")
    (pyagentd-mission-visit . "open what is at point")
    (pyagentd-named-list-documents . "open the documents in its prompt")
    (pyagentd-named-list-flag . "flag to be destroyed with its files")
    (pyagentd-named-list-flag-keep . "flag to be destroyed; files stay")
    (pyagentd-named-list-toggle-destroyed . "destroyed agents too, or not")
    (pyagentd-named-list-unflag . "take the flag away")
    (pyagentd-named-list-visit-other-window . "open in another window")
    (pyagentd-named-list-workspace . "open its workspace")
    (pyagentd-next-answer . "next answer")
    (pyagentd-next-variant . "next variant of the message")
    (pyagentd-previous-answer . "previous answer")
    (pyagentd-previous-variant . "previous variant of the message")
    (pyagentd-queue . "messages that wait")
    (pyagentd-recall-prompt . "say again what was said before")
    (pyagentd-regenerate . "answer the last prompt again")
    (pyagentd-rewind . "take back what follows a prompt")
    (pyagentd-running-visit-other-window . "open in another window")
    (pyagentd-schedules-cancel . "forget the marked, or this one")
    (pyagentd-search . "search all conversations")
    (pyagentd-search-next . "next message, and show it")
    (pyagentd-search-previous . "previous message, and show it")
    (pyagentd-search-toggle-archived . "archived sessions too, or not")
    (pyagentd-search-toggle-follow . "show messages in passing, or not")
    (pyagentd-search-visit . "open at this message")
    (pyagentd-search-visit-other-window . "open in another window")
    (pyagentd-send . "send the prompt")
    (pyagentd-snapshots-diff . "compare with how it would be")
    (pyagentd-steer . "tell the run something")
    (pyagentd-table-filter . "filter by words")
    (pyagentd-table-mark . "mark")
    (pyagentd-table-unmark . "take the mark away")
    (pyagentd-yank-picture . "put the picture in the clipboard in"))
  "For commands what they do, in a few words.")

(provide 'pyagentd-key-words)
;;; pyagentd-key-words.el ends here

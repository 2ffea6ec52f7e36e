"""Compacting a conversation: from Emacs and from the command line, with what the user sees of it."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import converse, open_session
from tests.e2e.test_history import IDLE, asked, prompts, shows
from tests.server import ModelServer

SUMMARY = "## Goal\nAsk questions.\n\n## Progress\nOne was answered.\n\n## Decisions\nNone.\n\n## Next Steps\nMore."


@pytest.mark.spec("002", "Can a user rewind past a compaction back to a turn the compaction summarized?")
@pytest.mark.spec(
    "002", "How is a compaction stored in the DB, and how does it support UIs that show a divider or the summary?"
)
def test_a_compaction_is_a_divider_that_unfolds_and_the_model_sees_its_summary(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    session, main = system.new("talk")
    emacs = system.emacs(terminal=True)
    open_session(emacs, main)
    model_server.say("First answer.", SUMMARY)
    converse(emacs, "First question?")
    emacs.eval('(progn (goto-char (point-max)) (insert "A draft") t)')
    emacs.eval("(progn (pyagentd-compact) t)")
    shows(emacs, "▸ ──", "compacted, 2 messages", "A draft", without=("Ask questions.",))
    emacs.eval('(progn (goto-char (point-min)) (search-forward "compaction (") (goto-char (match-beginning 0)) t)')
    emacs.keys("Tab")
    shows(emacs, "▾ ──", "Ask questions.")
    emacs.eval("(progn (save-buffer) t)")
    text = f"First answer.\n\n``` compaction (2 messages, ~8 tokens)\n{SUMMARY}\n```\n\n### A draft"
    wait_for(lambda: text in (main / "session.md").read_text(), "the summary in the file")  # the daemon writes it

    model_server.say("Second answer.")
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-send) t)")
    emacs.wait(f'(and {IDLE} (string-match-p "Second answer" (buffer-string)))')
    assert asked(model_server) == [f"<conversation_summary>\n{SUMMARY}\n</conversation_summary>", "A draft"]

    # From elsewhere, while the text here has a draft that is not saved.
    emacs.eval('(progn (goto-char (point-max)) (insert "Not saved") t)')
    model_server.say(SUMMARY.replace("One", "Two"))
    made = system.json("compact", session)
    assert (made["reason"], made["auto"], made["tail_start_id"]) == ("done", False, None)
    assert "<earlier_summary>" in asked(model_server)[0]
    emacs.wait('(string-match-p "Two was answered[^`]*\n```\n\n### Not saved\\\\\'" (buffer-string))')

    emacs.eval("(progn (save-buffer) (kill-buffer) t)")
    open_session(emacs, main)
    emacs.eval("(progn (goto-char (point-max)) t)")
    shows(emacs, "▸ ──", "Not saved", without=("Two was answered",))

    # Back to the prompt that was summarised: the model sees it as it was.
    model_server.say("Another answer.")
    system.ok("rewind", session, "--to", prompts(system, session)[0])
    assert hidden_markers(system, session) == [True, True]
    system.ok("send", session, "Again?")
    assert asked(model_server)[0] == "First question?" and "conversation_summary" not in str(asked(model_server))


def hidden_markers(system: System, session: str) -> list[bool]:
    shown = [each for each in system.json("show", session)["messages"] if each["parts"]]
    found = [each["message"] for each in shown if each["parts"][0]["type"] == "data-compaction"]
    return [bool(message["metadata_json"].get("hidden_at")) for message in found]

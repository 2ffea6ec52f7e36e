"""What a compaction makes of the model's view: by the document and the log together, whatever the user does to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyagentd.messages import Message, Text, ToolCall, ToolResult
from pyagentd.store.conversation import (
    COMPACTION,
    Conversation,
    compaction_block,
    compaction_data,
    summary_in,
    summary_message,
)
from pyagentd.store.document.files import apply
from pyagentd.store.document.heal import expected_text
from pyagentd.store.document.hidden import rebuild
from pyagentd.store.document.pieces import recorded_pieces
from pyagentd.store.document.reconcile import Alignment, align, locate
from pyagentd.store.document.render import RUN_CLOSE
from pyagentd.store.document.text import Document, format_file, parse
from pyagentd.store.export.export import Source, export_text
from pyagentd.store.journal import Row
from tests.store.talk import Call, Step, Talk, Turn, assert_valid, expected_view

SUMMARY = "## Goal\nCount files.\n\n## Next Steps\nNone."
LONG = Turn(
    prompt="Count.",
    steps=(
        Step(calls=(Call(input={"command": "ls"}, result="a\nb"),)),
        Step(texts=("Now the others.",), calls=(Call(input={"command": "ls x"}, result="c"),)),
        Step(texts=("Three.",)),
    ),
)


def say(prompt: str, answer: str) -> Turn:
    return Turn(prompt=prompt, steps=(Step(texts=(answer,)),))


class Compacted(Talk):
    """A talk that is compacted: by the user between two turns, or within a run."""

    def mark(self, *, tail: str | None = None, summary: str = SUMMARY, auto: bool = False, **facts: Any) -> str:
        metadata: dict[str, Any] = {"origin": "compaction", "synthetic": True}
        if after := facts.pop("after", None):
            metadata["after"] = after
        id = self.message("assistant")
        row = self.rows[-1]
        self.rows[-1] = row._replace(data={**row.data, "metadata_json": metadata})
        data = compaction_data(
            summary=summary,
            tail_start_id=tail,
            auto=auto,
            summary_tokens=9,
            metadata={"messages": 4, "tokens": 1000, **facts},
        )
        self.part(id, 0, COMPACTION, data)
        return id

    def compact(self, **marker: Any) -> str:
        """Compact as the user asks for it: behind the last answer, before the prompt that follows."""
        end = len(self.document.body)
        self.marker = end - len(RUN_CLOSE) if self.document.body.endswith(RUN_CLOSE) else end
        run = {"id": f"run_{next(self._ids)}", "message_id": "", "interactive": True, "kind": "compaction"}
        self.record("run", **run, state="started")
        id = self.mark(**marker)
        self.record("run", **run, state="finished", reason="done", error=None)
        self.marker = len(self.document.body)
        return id

    def hide(self, *ids: str) -> None:
        for id in ids:
            row = dict(self.conversation.messages[id].row)
            self.record("message", **{**row, "metadata_json": {**row["metadata_json"], "hidden_at": 1}})

    def seen(self, prompt: str = "") -> Alignment:
        self.type(prompt)
        aligned = align(parse(format_file(self.document)), self.conversation)
        assert_valid(aligned.view)
        return aligned

    def id_of(self, prompt: str) -> str:
        return next(m.id for m in self.conversation.messages.values() if m.role == "user" and m.text == prompt)


def texts(view: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(m.role, p.text) for m in view for p in m.parts if isinstance(p, Text)]


@pytest.mark.spec(
    "002", "How is a compaction stored in the DB, and how does it support UIs that show a divider or the summary?"
)
def test_without_a_tail_only_the_summary_is_seen_at_the_head_of_the_next_prompt() -> None:
    talk = Compacted([say("One?", "1"), say("Two?", "2")])
    talk.compact()
    assert talk.document.body.endswith("2\n\n" + compaction_block(_last(talk)) + "\n\n### ")
    aligned = talk.seen("Three?")
    assert aligned.view == (Message(role="user", parts=(Text(text=summary_message(SUMMARY)), Text(text="Three?"))),)
    assert (aligned.new_prompt, aligned.edits, aligned.notes) == ("Three?", (), ())


def test_the_tail_is_verbatim() -> None:
    talk = Compacted([say("One?", "1"), LONG, say("Two?", "2")])
    talk.compact(tail=talk.id_of("Count."))
    full = expected_view(talk.rows)
    aligned = talk.seen()
    first, *rest = aligned.view
    assert first.parts == (Text(text=summary_message(SUMMARY)), Text(text="Count."))
    assert tuple(rest) == full[3:]
    assert [(n, m.id) for n, m in enumerate(aligned.view) if m.id] == [
        (0, talk.id_of("Count.")),
        (len(aligned.view) - 2, talk.id_of("Two?")),
    ]


def test_the_latest_marker_wins_and_older_ones_are_dropped_with_the_head() -> None:
    talk = Compacted([say("One?", "1")])
    talk.compact(summary="first")
    talk.play(say("Two?", "2"))
    talk.compact(summary="second", tail=talk.id_of("Two?"))
    talk.play(say("Three?", "3"))
    assert texts(talk.seen().view) == [
        ("user", summary_message("second")), ("user", "Two?"), ("assistant", "2"),
        ("user", "Three?"), ("assistant", "3"),
    ]  # fmt: skip


@pytest.mark.spec("002", "Can a user rewind past a compaction back to a turn the compaction summarized?")
def test_hiding_the_marker_gives_the_whole_history_back() -> None:
    talk = Compacted([say("One?", "1"), say("Two?", "2")])
    before = talk.seen().view
    marker = talk.compact()
    talk.hide(marker)
    aligned = talk.seen()
    assert (aligned.view, aligned.edits) == (before, ())


def test_a_marker_removed_from_the_document_is_hidden_and_comes_back_with_its_text() -> None:
    talk = Compacted([say("One?", "1"), say("Two?", "2")])
    before = talk.seen().view
    talk.compact()
    doc, block = talk.document, compaction_block(_last(talk))
    start = doc.body.index(block)
    without = Document(
        body=doc.body[:start] + doc.body[start + len(block) :],
        spans=tuple(span for span in doc.spans if span.end <= start),
    )
    aligned = align(without, talk.conversation)
    part = next(part for part in talk.conversation.parts.values() if part.type == COMPACTION)
    assert aligned.view == before
    assert aligned.edits == ({"part_id": part.id, "hidden": True},)
    conversation = _folded(talk, aligned)
    again = align(doc, conversation)
    assert texts(again.view) == [("user", summary_message(SUMMARY))]
    assert again.edits == ({"part_id": part.id},)


def test_the_user_may_edit_the_summary() -> None:
    talk = Compacted([say("One?", "1")])
    talk.compact()
    talk.type("Go on")
    doc = talk.document
    start = doc.body.index("Count files.")
    shift = len("Count all of them.") - len("Count files.")
    edited = replace(
        doc,
        body=doc.body.replace("Count files.", "Count all of them."),
        spans=tuple(
            span._replace(start=span.start if span.start <= start else span.start + shift, end=span.end + shift)
            if span.end > start
            else span
            for span in doc.spans
        ),
    )
    aligned = align(edited, talk.conversation)
    assert texts(aligned.view)[0] == ("user", summary_message(SUMMARY.replace("Count files.", "Count all of them.")))
    again = align(edited, _folded(talk, aligned))
    assert (again.view, again.edits) == (aligned.view, ())


def test_a_tail_may_begin_within_an_answer() -> None:
    talk = Compacted()
    talk.type("### Count.")
    talk.user("Count.")
    run = talk.start(talk.id_of("Count."))
    talk.answer(LONG.steps[:2])
    answer = list(talk.conversation.messages.values())[-1]
    start = answer.parts[2]
    assert start.type == "step-start"
    talk.mark(tail=answer.id, tail_start_part_id=start.id, after=answer.parts[-1].id, auto=True)
    data = {"type": "step-start"}
    talk.part(answer.id, 5, "step-start", data)
    talk.part(answer.id, 6, "text", {"type": "text", "text": "Three.", "state": "done"})
    talk.finish(run)
    aligned = talk.seen()
    assert aligned.edits == () and aligned.notes == ()
    assert [(m.role, *map(type, m.parts)) for m in aligned.view] == [
        ("user", Text), ("assistant", Text, ToolCall), ("user", ToolResult), ("assistant", Text),
    ]  # fmt: skip
    assert texts(aligned.view)[0] == ("user", summary_message(SUMMARY))


def test_a_marker_within_an_answer_has_its_place_in_what_the_record_shows() -> None:
    talk = Compacted()
    talk.type("### Count.")
    talk.user("Count.")
    run = talk.start(talk.id_of("Count."))
    talk.answer(LONG.steps[:2])
    answer = list(talk.conversation.messages.values())[-1]
    talk.mark(after=answer.parts[-1].id, auto=True)
    talk.part(answer.id, 5, "step-start", {"type": "step-start"})
    talk.part(answer.id, 6, "text", {"type": "text", "text": "Three.", "state": "done"})
    talk.finish(run)
    conversation = talk.conversation
    assert expected_text(conversation, recorded_pieces(conversation)).body == talk.document.body
    assert rebuild(conversation, is_agent=False).body == talk.document.body
    lost = align(Document(body=talk.document.body), conversation)  # no roles at all
    assert lost.view == align(talk.document, conversation).view


def test_a_marker_that_somebody_asked_for_stands_below_what_the_turn_before_failed_of() -> None:
    talk = Compacted([Turn(prompt="Count.", steps=(Step(texts=("One.",)),), error="The connection was cut")])
    talk.compact()
    conversation = talk.conversation
    assert expected_text(conversation, recorded_pieces(conversation)).body == talk.document.body


def test_pruned_outputs_are_stubs_in_the_view_and_stay_in_the_document() -> None:
    talk = Compacted([LONG])
    part = next(part for part in talk.conversation.parts.values() if part.is_tool)
    talk.compact(summary="", tail=talk.id_of("Count."), pruned=[part.id], tokens=1)
    results = [p.text for m in talk.seen().view for p in m.parts if isinstance(p, ToolResult)]
    assert results == ["<output pruned, ~1 tokens>", "c"]
    assert "a\nb" in talk.document.body
    assert "1 tool output pruned, ~1 tokens" in talk.document.body


def test_a_block_says_what_was_summarised_and_gives_its_summary_back() -> None:
    facts = {"messages": 42, "tokens": 31_400}
    data = compaction_data(summary=SUMMARY, tail_start_id=None, auto=True, summary_tokens=3, metadata=facts)
    block = compaction_block(data)
    assert block.splitlines()[0] == "``` compaction (automatic: 42 messages, ~31k tokens)"
    assert summary_in(block) == SUMMARY


def _last(talk: Talk) -> dict[str, Any]:
    data: dict[str, Any] = next(row.data["data_json"] for row in reversed(talk.rows) if row.type == "part")
    return data


def _folded(talk: Talk, aligned: Alignment) -> Conversation:
    rows = [Row(len(talk.rows) + n, "edit", edit) for n, edit in enumerate(aligned.edits, 1)]
    return Conversation([*talk.rows, *rows])


def test_an_exported_page_shows_a_divider_that_opens() -> None:
    talk = Compacted([say("One?", "1")])
    talk.compact()
    page = export_text(Source(session_id="s", document=talk.document, conversation=talk.conversation), "html").text
    assert '<details class="compaction">\n<summary><b>Compacted</b> 4 messages, ~1.0k tokens</summary>' in page
    assert "Count files." in page and "Not shown to the model" not in page


@pytest.mark.parametrize("below", ["\n\n### ", "\n\n### A prompt that was typed meanwhile"])
def test_a_marker_that_is_put_where_an_editor_vanished_is_parted_from_what_stands_below(below: str) -> None:
    talk = Compacted([say("One", "1")])
    before, known = talk.document, len(talk.inserts)
    talk.compact()
    anchor = len(before.body) - len(RUN_CLOSE)
    body = before.body.removesuffix(RUN_CLOSE) + below
    place, missing = locate(body, before.spans, anchor, talk.inserts[known:])
    assert place == anchor and list(missing) == talk.inserts[known:]
    doc, _ = apply(replace(before, body=body), place, *missing)
    assert doc.body.endswith(f"\n\n{compaction_block(_last(talk))}{below}")
    assert locate(doc.body, doc.spans, anchor, talk.inserts[known:])[1] == ()

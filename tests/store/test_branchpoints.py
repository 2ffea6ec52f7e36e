"""Where a branch can begin, and what of document and log is before that point."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyagentd.store.branching import LogBefore, Outline, cut, outline
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.reconcile import align
from pyagentd.store.document.text import Document, Span, format_file, parse
from pyagentd.store.journal import Row
from tests.store.edits import edits, in_emacs
from tests.store.talk import Call, Step, Talk, Turn, assert_valid, talks

YES = (Step(texts=("Yes.",)),)


def branched(plan: Outline, number: int, *, include: bool) -> tuple[Document, list[Row]]:
    """The document and the log of a branch, as they would be read from its files."""
    point = plan.points[number]
    document = cut(plan.document, point.cut(include=include))
    facts = LogBefore(plan, point, include=include).facts()
    rows = [Row(seq, type, dict(data)) for seq, (type, data) in enumerate(facts, 1)]
    return parse(format_file(document)), rows


def read(talk: Talk) -> Outline:
    return outline(parse(format_file(talk.document)), talk.rows)


def bounds(**kinds: list[tuple[int, int]]) -> tuple[Span, ...]:
    """Spans from Emacs positions."""
    spans = [Span(start - 1, end - 1, kind) for kind, pairs in kinds.items() for start, end in pairs]  # type: ignore[arg-type]
    return tuple(sorted(spans))


class TestPoints:
    def test_only_prompts_of_the_user_are_branch_points(self) -> None:
        talk = Talk(
            [Turn(prompt="One?", steps=(Step(texts=("A",), calls=(Call(),)),)), Turn(prompt="Two?", steps=YES)]
        )
        plan = read(talk)
        assert [(point.number, point.text) for point in plan.points] == [(1, "One?"), (2, "Two?")]
        assert [point.message_id for point in plan.points] == [
            message.id for message in talk.conversation.messages.values() if message.role == "user"
        ]

    def test_a_prompt_begins_with_its_heading_and_ends_with_its_text(self) -> None:
        plan = read(Talk([Turn(prompt="One?", steps=YES), Turn(prompt="Two?", steps=YES)]))
        body, (first, second) = plan.document.body, plan.points
        assert body[first.start : first.end] == "### One?" and first.start == 0
        assert body[second.start : second.end] == "### Two?"
        assert body[: second.start].endswith("Yes.\n\n")

    def test_a_draft_is_a_branch_point_without_a_message(self) -> None:
        talk = Talk([Turn(prompt="One?", steps=YES)])
        talk.type("and a draft  \n")
        point = read(talk).points[-1]
        assert (point.message_id, point.text) == (None, "and a draft")

    def test_prompts_in_one_region_are_several_only_if_they_were_sent_as_several(self) -> None:
        talk = Talk(
            [Turn(prompt="One?"), Turn(prompt="Two?\n\n### with a heading"), Turn(prompt="Three?", steps=YES)]
        )
        assert [point.text for point in read(talk).points] == ["One?", "Two?\n\n### with a heading", "Three?"]
        typed = outline(Document(body="### One?\n\n### Two?"), [])
        assert [point.text for point in typed.points] == ["One?\n\n### Two?"]

    def test_an_edited_prompt_is_still_the_message_it_was(self) -> None:
        talk = Talk([Turn(prompt="One or two?", steps=YES), Turn(prompt="Sure?", steps=YES)])
        talk.document = replace(talk.document, body=talk.document.body.replace("One or two?", "Two or one?"))
        assert read(talk).points[0].message_id == "msg_1"

    def test_without_a_log_the_document_alone_has_branch_points(self) -> None:
        plan = outline(parse(format_file(Talk([Turn(prompt="One?", steps=YES)]).document)), [])
        assert [(point.text, point.message_id) for point in plan.points] == [("One?", None)]

    @pytest.mark.parametrize("body", ["", "\n\n", "###", "### \n", "###\n"])
    def test_where_nothing_was_asked_there_is_no_branch_point(self, body: str) -> None:
        assert outline(Document(body=body), []).points == ()

    def test_prompts_are_found_when_the_roles_were_lost(self) -> None:
        talk = Talk([Turn(prompt="One?", steps=(Step(texts=("A long answer that nobody types by chance.",)),))])
        talk.play(Turn(prompt="Two?", steps=(Step(texts=("Another answer, as long as the first one was.",)),)))
        plan = outline(replace(talk.document, spans=()), talk.rows)
        assert [point.text for point in plan.points] == ["One?", "Two?"]
        assert plan.document.spans == talk.document.spans


class TestCut:
    def test_the_worked_example(self) -> None:
        document = Document(
            body="x" * 8000,
            spans=bounds(response=[(1000, 2000), (3000, 4000), (6000, 7000)], tool=[(2500, 2800)]),
        )
        kept = cut(document, 5420 - 1)
        assert len(kept.body) == 5419
        assert kept.spans == bounds(response=[(1000, 2000), (3000, 4000)], tool=[(2500, 2800)])

    def test_a_span_that_begins_at_the_point_is_dropped(self) -> None:
        document = Document(body="x" * 30, spans=bounds(response=[(5, 10), (11, 20)]))
        assert cut(document, 10).spans == bounds(response=[(5, 10)])

    def test_a_span_across_the_point_is_kept_and_ends_there(self) -> None:
        kept = cut(Document(body="x" * 30, spans=bounds(response=[(5, 20)])), 9)
        assert kept.spans == bounds(response=[(5, 10)])
        assert parse(format_file(kept)) == kept and not kept.stale

    def test_a_kind_without_spans_disappears_from_the_file(self) -> None:
        document = Document(body="x" * 30, spans=bounds(response=[(5, 10)], tool=[(20, 25)]))
        text = format_file(cut(document, 15))
        assert "(response (5 10))" in text and "tool" not in text

    def test_all_spans_dropped_leave_no_bounds(self) -> None:
        assert "bounds" not in format_file(cut(Document(body="x" * 30, spans=bounds(response=[(20, 25)])), 10))

    def test_nothing_kept_is_an_empty_file(self) -> None:
        document = Document(body="### Hi", settings=(("gptel-model", "m"),))  # type: ignore[arg-type]
        assert format_file(cut(document, 0)) == ""

    @given(talks, st.data())
    def test_the_text_before_the_point_is_kept_to_the_character(self, turns: list[Turn], data: st.DataObject) -> None:
        document = Talk(turns).document
        offset = data.draw(st.integers(1, len(document.body)))
        kept = cut(document, offset)
        assert kept.body == document.body[:offset]
        assert parse(format_file(kept)) == kept


class TestLog:
    @given(talks, st.booleans(), st.integers(0, 5), st.data())
    def test_a_branch_means_what_its_parent_means_up_to_there(
        self, turns: list[Turn], include: bool, chunk: int, data: st.DataObject
    ) -> None:
        talk = Talk(turns, chunk=chunk)
        plan = read(talk)
        number = data.draw(st.integers(0, len(plan.points) - 1))
        document, rows = branched(plan, number, include=include)
        aligned = align(document, Conversation(rows))
        end = plan.points[number].cut(include=include)
        assert aligned.view == align(talk.document, talk.conversation, end).view
        assert (aligned.edits, aligned.notes, aligned.spans, aligned.new_prompt) == ((), (), None, "")
        assert_valid(aligned.view)

    @given(talks, st.booleans(), st.data())
    def test_so_it_does_after_edits_that_nobody_recorded(
        self, turns: list[Turn], include: bool, data: st.DataObject
    ) -> None:
        talk = Talk(turns)
        talk.document = in_emacs(talk.document, data.draw(edits(talk.document)))
        plan = read(talk)
        assume(plan.points)
        number = data.draw(st.integers(0, len(plan.points) - 1))
        document, rows = branched(plan, number, include=include)
        end = plan.points[number].cut(include=include)
        assert document.body == plan.document.body[:end]
        assert align(document, Conversation(rows)).view == align(plan.document, talk.conversation, end).view
        assert all(run.is_kept for run in Conversation(rows).runs.values())

    @given(talks, st.booleans(), st.data())
    def test_a_branch_has_nothing_to_put_into_its_document(
        self, turns: list[Turn], include: bool, data: st.DataObject
    ) -> None:
        plan = read(Talk(turns))
        number = data.draw(st.integers(0, len(plan.points) - 1))
        _, rows = branched(plan, number, include=include)
        conversation = Conversation(rows)
        assert all(run.is_kept for run in conversation.runs.values())
        assert all(run.data["message_id"] in conversation.messages for run in conversation.runs.values())
        assert all(part.row["message_id"] in conversation.messages for part in conversation.parts.values())

    @given(talks, st.data())
    def test_sending_at_the_end_asks_the_included_prompt_again(self, turns: list[Turn], data: st.DataObject) -> None:
        turns = [replace(turn, steps=(*turn.steps, Step(texts=("So it is.",)))) for turn in turns]
        talk = Talk(turns)
        plan = read(talk)
        number = data.draw(st.integers(0, len(plan.points) - 1))
        document, rows = branched(plan, number, include=True)
        assert align(document, Conversation(rows)).last_prompt == turns[number].prompt

    def test_the_run_of_the_included_prompt_is_not_copied(self) -> None:
        talk = Talk([Turn(prompt="One?", steps=YES), Turn(prompt="Two?", steps=YES)])
        _, rows = branched(read(talk), 1, include=True)
        conversation = Conversation(rows)
        assert [message.text for message in conversation.messages.values()] == ["One?", "Yes.", "Two?"]
        assert len(conversation.runs) == 1

    def test_excluding_the_first_prompt_leaves_nothing_but_the_session(self) -> None:
        talk = Talk()
        talk.record("session", id="s", title="T", metadata_json={})
        talk.play(Turn(prompt="One?", steps=YES))
        document, rows = branched(read(talk), 0, include=False)
        assert document == Document() and [row.type for row in rows] == ["session"]

    def test_what_the_user_removed_before_the_point_stays_in_the_log(self) -> None:
        talk = Talk([Turn(prompt="One?", steps=YES), Turn(prompt="Two?", steps=(Step(texts=("No.",)),))])
        talk.play(Turn(prompt="Three?", steps=YES))
        body = talk.document.body
        start, end = body.index("### Two?"), body.index("### Three?")
        shorter = [
            s if s.end <= start else s._replace(start=s.start - (end - start), end=s.end - (end - start))
            for s in talk.document.spans
            if not start <= s.start < end
        ]
        talk.document = Document(body=body[:start] + body[end:], spans=tuple(shorter))
        plan = read(talk)
        assert [point.text for point in plan.points] == ["One?", "Three?"]
        _, rows = branched(plan, 1, include=True)
        texts = [message.text for message in Conversation(rows).messages.values()]
        assert texts == ["One?", "Yes.", "Two?", "No.", "Three?"]
        _, rows = branched(plan, 0, include=True)
        assert [message.text for message in Conversation(rows).messages.values()] == ["One?"]

    def test_asks_and_edits_go_with_their_run_and_part(self) -> None:
        talk = Talk()
        for prompt in ("One?", "Two?"):
            talk.play(Turn(prompt=prompt, steps=YES))
            run = talk.rows[-1].data["id"]
            talk.record("ask", id=f"ask_{prompt}", run_id=run, decision="allow")
        first, second = (p.id for p in talk.conversation.parts.values() if p.text == "Yes.")
        talk.record("edit", part_id=first, text="Yes.")
        talk.record("edit", part_id=second, text="Yes.")
        _, rows = branched(read(talk), 1, include=True)
        assert [row.data["id"] for row in rows if row.type == "ask"] == ["ask_One?"]
        assert [row.data["part_id"] for row in rows if row.type == "edit"] == [first]

    def test_a_title_given_later_is_the_branchs_too(self) -> None:
        talk = Talk([Turn(prompt="One?", steps=YES)])
        talk.record("session", id="s", title="Late", metadata_json={})
        _, rows = branched(read(talk), 0, include=False)
        assert Conversation(rows).session["title"] == "Late"

    def test_a_prompt_sent_from_the_middle_takes_no_later_text_with_it(self) -> None:
        talk = Talk([Turn(prompt="One?", steps=YES)])
        end = len(talk.document.body)
        talk.play(Turn(prompt="Two?", steps=(Step(texts=("Two.",)),)))
        tail = talk.document.body[end:]
        spans = tuple(span for span in talk.document.spans if span.start < end)
        moved = tuple(
            span._replace(start=span.start - end, end=span.end - end) for span in talk.document.spans[len(spans) :]
        )
        talk.document, talk.marker = Document(body=talk.document.body[:end], spans=spans), end
        talk.play(Turn(prompt="Middle?", steps=(Step(texts=("Mid.",)),)))
        length = len(talk.document.body)
        talk.document = Document(
            body=talk.document.body + tail,
            spans=(*talk.document.spans, *(s._replace(start=s.start + length, end=s.end + length) for s in moved)),
        )
        plan = read(talk)
        assert [point.text for point in plan.points] == ["One?", "Middle?", "Two?"]
        _, rows = branched(plan, 1, include=True)
        assert [m.text for m in Conversation(rows).messages.values()] == ["One?", "Yes.", "Middle?"]
        _, rows = branched(plan, 2, include=False)
        assert [m.text for m in Conversation(rows).messages.values()] == ["One?", "Yes.", "Middle?", "Mid."]

    def test_an_answer_the_user_cut_in_two_is_cut_in_the_branch_too(self) -> None:
        talk = Talk(
            [
                Turn(
                    prompt="One?",
                    steps=(
                        Step(
                            texts=("First.", "Second."),
                        ),
                    ),
                )
            ]
        )
        talk.record("run", id="r", message_id="msg_1", state="kept")
        at = talk.document.body.index("Second.")
        typed = "My own words.\n\n"
        talk.document = Document(
            body=talk.document.body[:at] + typed + talk.document.body[at:],
            spans=tuple(
                s if s.start < at else s._replace(start=s.start + len(typed), end=s.end + len(typed))
                for s in talk.document.spans
            ),
        )
        plan = read(talk)
        assert [point.text for point in plan.points] == ["One?", "My own words."]
        document, rows = branched(plan, 1, include=True)
        aligned = align(document, Conversation(rows))
        assert aligned.new_prompt == "My own words." and aligned.edits == () and aligned.notes == ()

    def test_a_run_that_goes_on_before_the_point_is_told(self) -> None:
        talk = Talk([Turn(prompt="One?", steps=YES)])
        talk.type("Two?")
        run = talk.start(talk.user("Two?"))
        talk.answer(YES)
        plan = read(talk)
        assert LogBefore(plan, plan.points[1], include=True).open_run() is None
        talk.type("\n\n### Later")
        plan = read(talk)
        open_run = LogBefore(plan, plan.points[-1], include=True).open_run()
        assert open_run is not None and open_run.data["id"] == run["id"]

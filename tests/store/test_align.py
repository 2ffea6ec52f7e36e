from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.reconcile import Alignment, align
from pyagentd.store.document.text import Document, Span, format_file, gptel_messages, parse
from pyagentd.store.journal import Row
from tests.store.talk import Call, Step, Talk, Turn, assert_valid, expected_view, prompts, talks

PARALLEL = Turn(
    prompt="How many files?",
    steps=(
        Step(
            reasoning="Count them.",
            texts=("Checking.",),
            calls=(Call(input={"command": "ls"}, result="7\n"), Call(input={"command": "pwd"}, result="/tmp")),
            order=1,
        ),
        Step(texts=("Seven.",)),
    ),
)
NEXT = Turn(prompt="Sure?", steps=(Step(reasoning="Hm.", texts=("Yes.",)),))


def edited(doc: Document, old: str, new: str) -> Document:
    """Replace a text as Emacs does: inside a role the role grows, and what is behind shifts."""
    start = doc.body.index(old)
    end, shift = start + len(old), len(new) - len(old)

    def moved(position: int) -> int:
        return position if position <= start else max(start, position + shift) if position >= end else start

    spans = [Span(moved(s.start), moved(s.end), s.kind, s.id) for s in doc.spans]
    return replace(
        doc, body=doc.body[:start] + new + doc.body[end:], spans=tuple(s for s in spans if s.start < s.end)
    )


def recorded(talk: Talk, aligned: Alignment) -> Conversation:
    """The conversation after the edits were recorded."""
    rows = [Row(len(talk.rows) + n, "edit", edit) for n, edit in enumerate(aligned.edits, 1)]
    return Conversation([*talk.rows, *rows])


def all_texts(view: tuple[Message, ...]) -> list[str]:
    return [part.text for message in view for part in message.parts if isinstance(part, Text | ToolResult)]


def parts(view: tuple[Message, ...]) -> list[Part]:
    return [part for message in view for part in message.parts]


class TestUntouched:
    @given(talks, st.integers(0, 5))
    def test_the_view_is_exactly_what_was_recorded(self, turns: list[Turn], chunk: int) -> None:
        talk = Talk(turns, chunk=chunk)
        aligned = align(parse(format_file(talk.document)), talk.conversation)
        assert aligned.view == expected_view(talk.rows)
        assert (aligned.new_prompt, aligned.edits, aligned.notes, aligned.spans) == ("", (), (), None)
        assert_valid(aligned.view)

    @given(talks, prompts)
    def test_what_is_typed_at_the_end_is_the_new_prompt(self, turns: list[Turn], prompt: str) -> None:
        talk = Talk(turns)
        talk.type(prompt)
        aligned = align(talk.document, talk.conversation)
        assert aligned.new_prompt == prompt
        assert aligned.edits == ()
        talk.user(prompt)
        assert aligned.view == expected_view(talk.rows)

    @given(talks)
    def test_stock_gptel_reads_the_same_texts(self, turns: list[Turn]) -> None:
        talk = Talk(turns)
        view = align(talk.document, talk.conversation).view
        sent: list[str] = []
        for message in gptel_messages(format_file(talk.document)):
            content = message["content"]
            for item in [content] if isinstance(content, str) else content:
                sent += [item] if isinstance(item, str) else [item["content"]] if "content" in item else []
        seen = [text for text in all_texts(view) if text != "aborted" or text in sent]
        # gptel trims, and reads prompts that nothing was answered to as one, with the prefix between them.
        assert re.sub(r"\s|###", "", "".join(seen)) == re.sub(r"\s|###", "", "".join(sent))

    def test_parallel_calls_stay_in_one_message_with_their_results_in_order(self) -> None:
        talk = Talk([PARALLEL])
        view = align(talk.document, talk.conversation).view
        kinds = [(message.role, [type(part).__name__ for part in message.parts]) for message in view]
        assert kinds == [
            ("user", ["Text"]),
            ("assistant", ["Reasoning", "Text", "ToolCall", "ToolCall"]),
            ("user", ["ToolResult", "ToolResult"]),
            ("assistant", ["Text"]),
        ]
        assert [part.text for part in view[2].parts if isinstance(part, ToolResult)] == ["7\n", "/tmp"]

    def test_a_repeated_answer_stays_where_it_was(self) -> None:
        turns = [Turn(prompt=f"Question {n}", steps=(Step(texts=("OK",)),)) for n in range(4)]
        talk = Talk(turns)
        doc = edited(talk.document, "### Question 1\n\nOK\n\n", "")
        aligned = align(doc, talk.conversation)
        lost = list(talk.conversation.messages.values())[2:4]
        assert aligned.edits == (
            {"message_id": lost[0].id, "hidden": True},
            {"part_id": lost[1].parts[1].id, "hidden": True},
        )

    def test_a_part_that_was_cut_off_is_seen_as_far_as_it_came(self) -> None:
        talk = Talk()
        talk.type("### x")
        run = talk.start(talk.user("x"))
        message = talk.message("assistant")
        part = talk.part(message, 0, "text", {"type": "text", "text": "", "state": "streaming"})
        talk.record("delta", part_id=part, text="half")
        talk.finish(run)
        assert parts(align(talk.document, talk.conversation).view) == [Text(text="x"), Text(text="half")]

    def test_a_call_that_was_never_answered_counts_as_aborted(self) -> None:
        talk = Talk([Turn(prompt="x", steps=(Step(texts=("Hm",), calls=(Call(result=None), Call())),))])
        view = align(talk.document, talk.conversation).view
        assert_valid(view)
        assert [(p.text, p.is_error) for p in parts(view) if isinstance(p, ToolResult)] == [
            ("aborted", True),
            ("done", False),
        ]

    def test_an_empty_document_and_an_empty_record_are_nothing(self) -> None:
        assert align(Document(), Conversation()) == Alignment(view=(), new_prompt="", last_prompt="", edits=())

    def test_asking_again_without_a_new_prompt_asks_the_last_one(self) -> None:
        talk = Talk([Turn(prompt="x", error="overloaded")])
        aligned = align(talk.document, talk.conversation)
        assert (aligned.new_prompt, aligned.last_prompt) == ("", "x")


class TestEdited:
    @given(talks, st.data())
    def test_an_edit_of_one_text_leaves_all_others_exact(self, turns: list[Turn], data: st.DataObject) -> None:
        talk = Talk(turns)
        doc = talk.document
        answers = [span for span in doc.spans if span.kind == "response" and doc.body[span.start : span.end].strip()]
        if not answers:
            return
        span = data.draw(st.sampled_from(answers))
        at = data.draw(st.integers(span.start + 1, span.end))
        body = doc.body[:at] + "EDIT" + doc.body[at:]
        shifted = [
            Span(
                s.start + 4 * (s.start >= at),
                s.end + 4 * ((s.end >= at and s.start < at) or s.start >= at),
                s.kind,
                s.id,
            )
            for s in doc.spans
        ]
        aligned = align(Document(body=body, spans=tuple(shifted)), talk.conversation)
        assert_valid(aligned.view)
        new = body[span.start : span.end + 4]
        assert [edit["text"] for edit in aligned.edits] == [new]
        before = expected_view(talk.rows)
        old = body[span.start : at] + body[at + 4 : span.end + 4]
        assert sorted(all_texts(aligned.view)) == sorted([*_without(all_texts(before), old), new])
        assert [p for p in parts(aligned.view) if isinstance(p, ToolCall | ToolResult)] == [
            p for p in parts(before) if isinstance(p, ToolCall | ToolResult)
        ]
        lost = [p for p in parts(before) if isinstance(p, Reasoning) and p not in parts(aligned.view)]
        assert len(lost) <= 1
        again = align(Document(body=body, spans=tuple(shifted)), recorded(talk, aligned))
        assert (again.view, again.edits) == (aligned.view, ())

    def test_an_edited_answer_loses_the_reasoning_of_its_step_only(self) -> None:
        talk = Talk([PARALLEL, NEXT])
        aligned = align(edited(talk.document, "Checking.", "Counting."), talk.conversation)
        assert [p.text for p in parts(aligned.view) if isinstance(p, Reasoning)] == ["Hm."]
        assert [type(p).__name__ for p in aligned.view[1].parts] == ["Text", "ToolCall", "ToolCall"]
        assert_valid(aligned.view)

    def test_taking_an_edit_back_restores_the_recorded_step(self) -> None:
        talk = Talk([PARALLEL, NEXT])
        aligned = align(edited(talk.document, "Yes.", "No."), talk.conversation)
        conversation = recorded(talk, aligned)
        back = align(talk.document, conversation)
        assert back.edits == ({"part_id": aligned.edits[0]["part_id"]},)
        restored = recorded(talk, aligned)
        restored.apply(Row(999, "edit", back.edits[0]))
        assert align(talk.document, restored).view == expected_view(talk.rows)

    def test_an_edited_prompt_is_recorded_for_its_message(self) -> None:
        talk = Talk([PARALLEL, NEXT])
        aligned = align(edited(talk.document, "many files", "many lines"), talk.conversation)
        first = next(iter(talk.conversation.messages))
        assert aligned.edits == ({"message_id": first, "text": "How many lines?"},)
        assert aligned.view[0].parts == (Text(text="How many lines?"),)
        assert aligned.view[1:] == expected_view(talk.rows)[1:]

    def test_an_edited_result_is_read_from_the_document(self) -> None:
        talk = Talk([PARALLEL])
        aligned = align(edited(talk.document, "7\n", "8 \n"), talk.conversation)
        assert [p.text for p in parts(aligned.view) if isinstance(p, ToolResult)] == ["8 \n", "/tmp"]
        assert not any(isinstance(p, Reasoning) for p in parts(aligned.view))
        assert_valid(aligned.view)
        again = align(edited(talk.document, "7\n", "8 \n"), recorded(talk, aligned))
        assert (again.view, again.edits) == (aligned.view, ())

    def test_edited_arguments_are_read_from_the_document(self) -> None:
        talk = Talk([PARALLEL])
        doc = edited(talk.document, '(:name "Bash" :args (:command "ls"', '(:name "Bash" :args (:command "ls -a"')
        calls = [p.input for p in parts(align(doc, talk.conversation).view) if isinstance(p, ToolCall)]
        assert calls == [{"command": "ls -a"}, {"command": "pwd"}]

    def test_an_unreadable_call_is_left_out_and_said(self) -> None:
        talk = Talk([PARALLEL])
        aligned = align(edited(talk.document, '(:name "Bash" :args (:command "ls"', "(:name"), talk.conversation)
        assert [p.text for p in parts(aligned.view) if isinstance(p, ToolResult)] == ["/tmp"]
        assert "left out" in aligned.notes[0]
        assert_valid(aligned.view)

    def test_a_heading_added_to_an_old_prompt_is_part_of_it(self) -> None:
        talk = Talk([Turn(prompt="Do\n\n### One\nthis", steps=(Step(texts=("Done.",)),)), NEXT])
        aligned = align(edited(talk.document, "### One", "### Two"), talk.conversation)
        assert aligned.view[0].parts == (Text(text="Do\n\n### Two\nthis"),)
        assert [edit["text"] for edit in aligned.edits] == ["Do\n\n### Two\nthis"]


class TestRemoved:
    @given(talks, st.data())
    def test_whatever_is_removed_the_view_is_valid_and_the_next_one_equal(
        self, turns: list[Turn], data: st.DataObject
    ) -> None:
        talk = Talk(turns)
        size = len(talk.document.body)
        start = data.draw(st.integers(0, size))
        end = data.draw(st.integers(start, min(size, start + 60)))
        doc = _cut(talk.document, start, end)
        aligned = align(doc, talk.conversation)
        assert_valid(aligned.view)
        again = align(doc, recorded(talk, aligned))
        assert_valid(again.view)
        assert all_texts(again.view) == all_texts(aligned.view)

    def test_a_removed_answer_is_hidden(self) -> None:
        talk = Talk([PARALLEL, NEXT])
        aligned = align(edited(talk.document, "``` reasoning\nHm.\n```\n\nYes.", ""), talk.conversation)
        assert [edit.get("hidden") for edit in aligned.edits] == [True, True]
        assert aligned.view[:4] == expected_view(talk.rows)[:4]
        again = align(talk.document, recorded(talk, aligned))
        assert again.view == expected_view(talk.rows)  # the user took the removal back
        assert all("hidden" not in edit for edit in again.edits)

    def test_a_removed_result_takes_its_call_with_it(self) -> None:
        talk = Talk([PARALLEL])
        span = next(span for span in talk.document.spans if span.kind == "tool")
        doc = edited(talk.document, talk.document.body[span.start : span.end], "")
        view = align(doc, talk.conversation).view
        assert_valid(view)
        assert [p.input["command"] for p in parts(view) if isinstance(p, ToolCall)] == ["pwd"]

    def test_a_view_never_begins_with_an_answer(self) -> None:
        talk = Talk([PARALLEL])
        view = align(edited(talk.document, "### How many files?", ""), talk.conversation).view
        assert_valid(view)
        assert len(view) == 4

    def test_two_prompts_without_an_answer_between_are_one_message(self) -> None:
        talk = Talk([Turn(prompt="One"), Turn(prompt="Two", steps=(Step(texts=("OK",)),))])
        assert align(talk.document, talk.conversation).view[0].parts == (Text(text="One"), Text(text="Two"))


class TestFromTheMiddle:
    def test_what_stands_below_the_end_is_not_seen_and_not_hidden(self) -> None:
        talk = Talk([PARALLEL, NEXT])
        doc = edited(talk.document, "Sure?", "Really?")
        aligned = align(doc, talk.conversation, doc.body.index("Really?") + len("Really?"))
        assert aligned.new_prompt == "Really?"
        assert aligned.view[-1].parts == (Text(text="Really?"),)
        sure = [m for m in talk.conversation.messages.values() if m.role == "user"][1]
        assert aligned.edits == ({"message_id": sure.id, "hidden": True},)

    def test_a_draft_below_the_end_is_no_prompt(self) -> None:
        talk = Talk([PARALLEL])
        talk.type("ask this, not that")
        aligned = align(talk.document, talk.conversation, talk.document.body.index(", not"))
        assert aligned.new_prompt == "ask this"

    def test_an_answer_from_the_middle_is_exact_in_the_next_view(self) -> None:
        talk = Talk([PARALLEL, NEXT])
        end = talk.document.body.index("Sure?") + len("Sure?")
        talk.document = edited(talk.document, "Sure?", "Sure now?")
        talk.marker = end + 4
        hidden = [m.id for m in talk.conversation.messages.values() if m.role == "user"][1]
        talk.record("edit", message_id=hidden, hidden=True)
        run = talk.start(talk.user("Sure now?"))
        talk.answer((Step(reasoning="Again.", texts=("Certainly.",)),))
        talk.finish(run)
        aligned = align(talk.document, talk.conversation)
        assert aligned.edits == ()
        assert [p.text for p in parts(aligned.view) if isinstance(p, Text)] == [
            "How many files?",
            "Checking.",
            "Seven.",
            "Sure now?",
            "Certainly.",
            "Yes.",
        ]
        assert [p.text for p in parts(aligned.view) if isinstance(p, Reasoning)] == ["Count them.", "Again.", "Hm."]


class TestWithoutRecord:
    @given(talks)
    def test_the_document_alone_gives_what_gptel_sends_but_merged(self, turns: list[Turn]) -> None:
        text = format_file(Talk(turns).document)
        aligned = align(parse(text), Conversation())
        assert_valid(aligned.view)
        shown = [_plain(part) for part in parts(aligned.view)]
        expected: list[Any] = []
        for message in gptel_messages(text):
            content = message["content"]
            expected += [content] if isinstance(content, str) else content
        # Without a record whitespace around an answer cannot be told from layout: we keep it, gptel trims it.
        # Of a prefix with nothing behind it gptel leaves the mark in the prompt before, when there is no answer.
        assert list(filter(None, map(_bare, shown))) == list(filter(None, map(_bare, expected)))

    def test_a_copied_tool_block_gets_an_id_of_its_own(self) -> None:
        talk = Talk([PARALLEL])
        doc = talk.document
        body = doc.body + doc.body
        spans = doc.spans + tuple(
            s._replace(start=s.start + len(doc.body), end=s.end + len(doc.body)) for s in doc.spans
        )
        view = align(Document(body=body, spans=spans), talk.conversation).view
        assert_valid(view)
        assert len([p for p in parts(view) if isinstance(p, ToolCall)]) == 4

    def test_text_that_was_never_recorded_is_seen_in_its_place(self) -> None:
        talk = Talk([PARALLEL, NEXT])
        doc = talk.document
        at = doc.body.index("### Sure?")
        insertion = "### Pasted\n\nanswer\n\n"
        spans = tuple(s._replace(start=s.start + 20, end=s.end + 20) if s.start >= at else s for s in doc.spans)
        pasted = Span(at + 12, at + 18, "response")
        doc = Document(body=doc.body[:at] + insertion + doc.body[at:], spans=tuple(sorted([*spans, pasted])))
        aligned = align(doc, talk.conversation)
        assert aligned.edits == ()
        assert [m.parts for m in aligned.view[4:6]] == [(Text(text="Pasted"),), (Text(text="answer"),)]


class TestLostRoles:
    @given(st.lists(st.sampled_from([PARALLEL, NEXT]), min_size=1, max_size=4))
    def test_a_document_without_bounds_gets_them_back(self, turns: list[Turn]) -> None:
        talk = Talk(turns)
        doc = replace(talk.document, spans=())
        aligned = align(doc, talk.conversation)
        assert aligned.view == expected_view(talk.rows)
        assert aligned.spans == talk.document.spans
        assert aligned.edits == ()
        assert "recovered" in aligned.notes[-1]

    @given(talks, st.booleans(), st.integers(-30, 30))
    def test_whatever_happened_to_the_bounds_the_view_is_valid(
        self, turns: list[Turn], dropped: bool, shift: int
    ) -> None:
        doc = Talk(turns).document
        spans = () if dropped else (s._replace(start=s.start + shift, end=s.end + shift) for s in doc.spans)
        damaged = parse(format_file(replace(doc, spans=tuple(s for s in spans if s.start >= 0))))
        assert_valid(align(damaged, Talk(turns).conversation).view)

    @pytest.mark.parametrize("shift", [-4, 1, 7, 40])
    def test_shifted_bounds_are_put_right(self, shift: int) -> None:
        talk = Talk([PARALLEL, NEXT, PARALLEL])
        body = "x" * shift + talk.document.body if shift > 0 else talk.document.body[-shift:]
        aligned = align(replace(talk.document, body=body), talk.conversation)
        moved = tuple(s._replace(start=s.start + shift, end=s.end + shift) for s in talk.document.spans)
        assert aligned.spans == moved
        assert aligned.view[1:] == expected_view(talk.rows)[1:]

    def test_an_edit_made_where_the_bounds_were_lost_is_still_an_answer(self) -> None:
        talk = Talk([PARALLEL, NEXT, PARALLEL])
        body = talk.document.body.replace("Yes.", "Certainly not.")
        aligned = align(Document(body=body), talk.conversation)
        assert [edit["text"] for edit in aligned.edits] == ["Certainly not."]
        assert [m.role for m in aligned.view] == [m.role for m in expected_view(talk.rows)]

    def test_a_new_prompt_in_a_document_without_bounds_is_found(self) -> None:
        talk = Talk([PARALLEL, NEXT])
        talk.type("And now?")
        aligned = align(replace(talk.document, spans=()), talk.conversation)
        assert aligned.new_prompt == "And now?"

    def test_an_answer_quoted_in_a_prompt_is_not_taken_for_the_answer(self) -> None:
        talk = Talk([Turn(prompt="x", steps=(Step(texts=("A long enough answer to be sure.",)),))])
        doc = edited(talk.document, "A long enough answer to be sure.", "")
        doc = replace(doc, spans=(), body=doc.body + "Mend this:\n\nA long enough answer to be sure.")
        sound = replace(doc, spans=(Span(0, 1, "ignore"),))  # bounds are there and fit
        assert "A long enough" in align(sound, talk.conversation).new_prompt


def _without(items: list[str], one: str) -> list[str]:
    rest = list(items)
    rest.remove(one)
    return rest


def _cut(doc: Document, start: int, end: int) -> Document:
    size = end - start

    def moved(position: int) -> int:
        return position if position <= start else max(start, position - size)

    spans = [Span(moved(s.start), moved(s.end), s.kind, s.id) for s in doc.spans]
    joined = tuple(s for s in spans if s.start < s.end)
    return parse(format_file(replace(doc, body=doc.body[:start] + doc.body[end:], spans=joined)))


def _bare(item: Any) -> Any:
    return re.sub(r"\A[\s#]+|[\s#]+\Z", "", item) if isinstance(item, str) else item


def _plain(part: Part) -> Any:
    match part:
        case Text(text=text):
            return text
        case ToolCall(id=id, name=name, input=input):
            return {"type": "tool_use", "id": id, "name": name, "input": input}
        case ToolResult(id=id, text=text):
            return {"type": "tool_result", "tool_use_id": id, "content": text}
        case Reasoning():
            raise AssertionError("reasoning without a record")

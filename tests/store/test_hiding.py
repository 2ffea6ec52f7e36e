"""Turns taken back and brought back: whatever is done, the model sees what the log says, and no text is lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.messages import Message, Part, Role
from pyagentd.store.document import hidden
from pyagentd.store.document.hidden import answer_place, change_roles, fold_hidden, hidden_ranges, rebuild
from pyagentd.store.document.reconcile import align, locate
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import Document, Span, format_file, gptel_messages, parse
from pyagentd.store.journal import Row
from tests.examples import examples
from tests.store.talk import Call, Step, Talk, Turn, assert_valid, expected_units, talks


class History:
    """A talk of which turns are taken back and brought back."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.talk = Talk(turns, chunk=0)
        self.document = self.talk.document
        self.conversation = self.talk.conversation

    def apply(self, rows: Iterable[dict[str, object]]) -> None:
        before = self.conversation
        self.talk.rows += [Row(len(self.talk.rows) + number, "message", row) for number, row in enumerate(rows, 1)]
        self.conversation = self.talk.conversation
        self.document = change_roles(self.document, before, self.conversation)

    def hide(self, after: str, by: hidden.By = "rewind") -> None:
        shown = hidden.continuation(self.conversation, after)
        self.apply(hidden.hide(shown, by=by, after=after, now_ms=7))

    def show(self, group: hidden.Group) -> None:
        self.apply(hidden.show(group.messages, now_ms=8))

    def view(self) -> tuple[Message, ...]:
        """What the model is to see, told from the rows alone."""
        shown = {message.id for message in hidden.visible(self.conversation)}
        messages: list[tuple[Role, list[Part]]] = []
        units = expected_units(self.talk.rows)
        for key, unit in units.items():
            part = self.conversation.parts.get(key)
            if (part.row["message_id"] if part else key) not in shown:
                continue
            for role, said in unit:
                if messages and messages[-1][0] == role:
                    messages[-1][1].append(said)
                else:
                    messages.append((role, [said]))
        return tuple(Message(role=role, parts=tuple(parts)) for role, parts in messages)

    def check(self) -> None:
        document = parse(format_file(self.document))
        assert document.body == self.talk.document.body, "the text stays"
        aligned = align(document, self.conversation)
        assert_valid(aligned.view)
        assert (aligned.view, aligned.edits, aligned.spans) == (self.view(), (), None)


@settings(max_examples=examples(200), deadline=None, derandomize=True, database=None)
@given(talks, st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=4))
def test_rewinding_and_back_leaves_the_view_that_the_log_tells(
    turns: list[Turn], steps: list[tuple[bool, int]]
) -> None:
    history = History(turns)
    for back, number in steps:
        chosen = hidden.prompts(history.conversation)
        group = hidden.last_rewind(history.conversation)
        if back and group is not None:
            history.show(group)
        elif chosen:
            history.hide(chosen[number % len(chosen)].id)
        history.check()
    while (group := hidden.last_rewind(history.conversation)) is not None:
        history.show(group)
    history.check()
    assert history.document.spans == history.talk.document.spans


FIRST = Turn(prompt="first question", steps=(Step(texts=("the first answer, of some length",)),))
SECOND = Turn(
    prompt="second question",
    steps=(Step(reasoning="let me think about that", texts=("the second answer, of some length",)),),
)
THIRD = Turn(prompt="third question", steps=(Step(texts=("the third answer, of some length",)),))


def rewound(*turns: Turn, keep: int) -> History:
    """A talk rewound to its prompt number ``keep``, from 0."""
    history = History(turns)
    history.hide(hidden.prompts(history.conversation)[keep].id)
    return history


def said(view: Sequence[Message]) -> list[str]:
    return [getattr(part, "text", "") for message in view for part in message.parts]


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("stale", [False, True])
def test_lost_roles_do_not_bring_hidden_turns_back(keep: int, stale: bool) -> None:
    history = rewound(FIRST, SECOND, THIRD, keep=keep)
    lost = replace(history.document, spans=(), stale=stale)
    aligned = align(lost, history.conversation)
    assert aligned.view == history.view()
    assert aligned.edits == ()
    assert aligned.spans is not None
    healed = replace(lost, spans=aligned.spans, stale=False)
    again = align(healed, history.conversation)
    assert (again.view, again.edits, again.spans) == (history.view(), (), None)


def test_roles_that_nobody_changed_yet_do_not_bring_hidden_turns_back_and_are_no_loss() -> None:
    history = rewound(FIRST, SECOND, THIRD, keep=0)
    aligned = align(history.talk.document, history.conversation)
    assert aligned.view == history.view()
    assert aligned.spans is not None
    assert aligned.notes == ()


def test_answers_of_the_same_length_do_not_take_the_role_of_a_fence_into_the_users_text() -> None:
    called = Turn(
        prompt="second question",
        steps=(Step(calls=(Call(result="7\n"),)), Step(texts=("another answer, as long as it",))),
    )
    history = rewound(replace(FIRST, steps=(Step(texts=("the first answer, of the size",)),)), called, keep=0)
    aligned = align(history.talk.document, history.conversation)
    assert (aligned.view, aligned.edits) == (history.view(), ())


def test_text_above_that_another_editor_changed_does_not_bring_hidden_turns_back() -> None:
    history = rewound(FIRST, SECOND, THIRD, keep=1)
    shifted = replace(history.document, body="A line above.\n\n" + history.document.body)
    assert said(align(shifted, history.conversation).view)[-3:] == said(history.view())


def test_the_same_words_asked_again_are_a_new_message() -> None:
    history = rewound(FIRST, SECOND, keep=0)
    asked = replace(history.document, body=history.document.body + "second question")
    aligned = align(asked, history.conversation)
    assert (aligned.new_prompt, aligned.last_message) == ("second question", "")
    assert said(aligned.view) == ["first question", "second question"]


def test_a_hidden_answer_that_was_quoted_in_a_prompt_is_sent() -> None:
    history = rewound(FIRST, SECOND, keep=0)
    quoting = replace(history.document, body=history.document.body + "> the second answer, of some length\n\nWhy?")
    assert said(align(quoting, history.conversation).view)[1] == "> the second answer, of some length\n\nWhy?"


def test_text_that_the_user_removed_stays_removed_when_a_rewind_is_reversed() -> None:
    history = rewound(FIRST, SECOND, THIRD, keep=0)
    start = history.document.body.index("\n\n### third question")
    end = history.document.body.index("the third answer, of some length") + len("the third answer, of some length")
    body = history.document.body[:start] + history.document.body[end:]
    spans = tuple(span._replace(end=min(span.end, start)) for span in history.document.spans)
    history.document = Document(body=body, spans=spans)
    group = hidden.last_rewind(history.conversation)
    assert group is not None
    history.show(group)
    aligned = align(history.document, history.conversation)
    assert "second question" in said(aligned.view) and "third question" not in said(aligned.view)
    assert [edit["hidden"] for edit in aligned.edits] == [True, True]


def test_stock_gptel_skips_hidden_turns() -> None:
    history = rewound(FIRST, SECOND, THIRD, keep=1)
    contents = [message["content"] for message in gptel_messages(format_file(history.document))]
    assert contents == ["first question", "the first answer, of some length", "second question"]


def test_hidden_regions_are_found_with_their_turns() -> None:
    history = rewound(FIRST, SECOND, THIRD, keep=0)
    ((start, end, ids),) = hidden_ranges(history.document, history.conversation)
    assert len(ids) == 5
    text = history.document.body[start:end]
    assert text.startswith("\n\nthe first answer") and text.endswith("the third answer, of some length")


def test_a_document_made_anew_has_hidden_turns_as_hidden_ones() -> None:
    history = rewound(FIRST, SECOND, THIRD, keep=1)
    made = rebuild(history.conversation, is_agent=False)
    aligned = align(made, history.conversation)
    assert (aligned.view, aligned.edits, aligned.spans) == (history.view(), (), None)
    group = hidden.last_rewind(history.conversation)
    assert group is not None and "third question" in made.body
    history.document = made
    history.show(group)
    assert align(history.document, history.conversation).view == history.view()


def test_people_read_a_hidden_region_as_one_line() -> None:
    history = rewound(FIRST, SECOND, THIRD, keep=1)
    assert fold_hidden(history.document) == (
        "### first question\n\nthe first answer, of some length\n\n### second question\n\n"
        "… turns that were taken back\n\n### "
    )


def test_another_answer_goes_behind_the_hidden_one_and_brings_its_own_heading() -> None:
    history = History([FIRST, SECOND])
    prompt = hidden.prompts(history.conversation)[1].id
    history.hide(prompt, by="variant")
    document, marker = answer_place(history.document, history.conversation, prompt)
    assert document.body[:marker].endswith("the second answer, of some length\n\n### ")
    assert marker == len(document.body)
    aligned = align(document, history.conversation, marker)
    assert (aligned.last_message, aligned.new_prompt) == (prompt, "")


def test_variants_stand_behind_the_same_message() -> None:
    history = History([FIRST, SECOND])
    first = hidden.prompts(history.conversation)[0].id
    history.hide(first, by="variant")
    history.talk.answer([Step(texts=("another first answer",))])
    history.conversation = history.talk.conversation
    found = hidden.variants(history.conversation, first)
    assert [(len(variant.messages), variant.group is None) for variant in found] == [(3, False), (1, True)]
    assert hidden.before(history.conversation, found[1].first.id) == first


@pytest.mark.parametrize("ids", [("hid_1", "hid_2"), ("hid_2", "hid_1")], ids=["on", "back"])
def test_what_one_rewind_hid_is_told_from_what_another_did_wherever_the_clock_goes(
    monkeypatch: pytest.MonkeyPatch, ids: tuple[str, str]
) -> None:
    made = iter(ids)
    monkeypatch.setattr(hidden, "new_id", lambda prefix: next(made))
    history = History([FIRST, SECOND, THIRD])
    chosen = hidden.prompts(history.conversation)
    history.hide(chosen[1].id)
    history.hide(chosen[0].id)
    sizes = [len(group.messages) for group in hidden.groups(history.conversation)]
    assert sizes == [3, 2]
    for _ in range(2):
        group = hidden.last_rewind(history.conversation)
        assert group is not None
        history.show(group)
        history.check()
    assert hidden.last_rewind(history.conversation) is None


def test_a_failure_that_was_asked_again_stays_unsent_whatever_is_brought_back() -> None:
    history = History([FIRST, Turn(prompt="second question", error="The server refused")])
    talk = history.talk
    prompt = hidden.prompts(history.conversation)[1].id
    talk.marker = talk.document.body.index("\n\n### ", talk.document.body.index("The server refused"))
    run = talk.start(prompt)
    talk.answer([Step(texts=("the second answer, of some length",))])
    talk.finish(run)
    history.document, history.conversation = talk.document, talk.conversation
    history.check()
    history.hide(hidden.prompts(history.conversation)[0].id)
    history.check()
    group = hidden.last_rewind(history.conversation)
    assert group is not None
    history.show(group)
    history.check()
    lost = replace(history.document, spans=(), stale=True)
    assert align(lost, history.conversation).view == history.view()


def test_a_run_below_a_hidden_answer_is_not_mistaken_for_a_failure_above() -> None:
    failed = "``` error\naborted by host restart\n```"
    above = f"### one\n\n{failed}\n\n### two"
    gone = "\n\nThe first answer.\n\n### "
    spans = (Span(9, 9 + len(failed), "ignore"), Span(len(above), len(above + gone), "ignore"))
    inserts = [
        Insert("\n\n", None, "", 1),
        Insert("Another answer", "response", "prt_1", 2),
        Insert("\n\n", None, "", 3),
        Insert(failed, "ignore", "", 3),
    ]
    place, missing = locate(above + gone, spans, len(above + gone), inserts)
    assert place == len(above + gone) and list(missing) == inserts


@pytest.mark.parametrize("thought", ["Let me see.", "Let me see.\n```\n\n### I thought of a heading"])
def test_a_block_that_hidden_turns_follow_ends_where_it_did(thought: str) -> None:
    history = History([FIRST, Turn(prompt="second question", steps=(Step(reasoning=thought),)), THIRD])
    history.hide(hidden.visible(history.conversation)[-3].id)
    history.check()
    assert not any(part.hidden for part in history.conversation.parts.values())


def test_a_failure_of_a_run_that_was_steered_stands_below_what_was_said_to_it() -> None:
    history = History([FIRST])
    talk = history.talk
    talk.type("ask")
    prompt = talk.user("ask")
    run = talk.start(prompt)
    talk.steer("rather this", run)
    talk.answer([Step(texts=("half an",))])
    talk.finish(run, error={"code": "x", "message": "The connection was cut"})
    history.document, history.conversation = talk.document, talk.conversation
    history.check()
    history.hide(prompt, by="variant")
    history.check()
    group = hidden.variants(history.conversation, prompt)[0].group
    assert group is not None
    history.show(group)
    history.check()
    lost = replace(history.document, spans=(), stale=True)
    assert align(lost, history.conversation).view == history.view()

"""Aligning turn after turn costs what is new, and says what aligning the whole says."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.store.conversation import Conversation
from pyagentd.store.document.reconcile import IncrementalAligner, align
from tests.examples import examples
from tests.store.talk import Call, Step, Talk, Turn, talks

TURN = Turn(
    prompt="How many?",
    steps=(
        Step(
            reasoning="Count.", texts=("I look.",), calls=(Call(result="7\n"), Call(name="Read", result="x")), order=1
        ),
        Step(texts=("Seven.",)),
    ),
)


def begun(turns: int) -> tuple[Talk, Conversation, IncrementalAligner]:
    talk, aligner = Talk(), IncrementalAligner()
    conversation = Conversation()
    for _ in range(turns):
        turn(talk, conversation, aligner)
    return talk, conversation, aligner


def turn(talk: Talk, conversation: Conversation, aligner: IncrementalAligner, played: Turn = TURN) -> None:
    """Type a prompt, look, and let it be answered."""
    shown = talk.document
    typed = replace(shown, body=shown.body + ("" if shown.body else "### ") + played.prompt)
    assert aligner.align(typed, conversation.snapshot()) == align(typed, conversation)
    talk.play(played)
    caught_up(talk, conversation)


def caught_up(talk: Talk, conversation: Conversation) -> None:
    for row in talk.rows[conversation.last_seq :]:
        conversation.apply(row)


def test_two_hundred_turns_are_aligned_as_a_whole_once() -> None:
    """What a turn costs must not grow with the conversation: of turn 200 as much is aligned as of turn 20."""
    _, conversation, aligner = begun(200)
    assert len(conversation.messages) == 400
    assert (aligner.whole, aligner.continued) == (2, 198)  # the first answer makes the first beginning


def test_the_messages_of_the_beginning_are_the_very_same_so_that_their_json_is_kept() -> None:
    talk, conversation, aligner = begun(3)
    before = aligner.align(talk.document, conversation.snapshot()).view
    turn(talk, conversation, aligner)
    after = aligner.align(talk.document, conversation.snapshot()).view
    assert all(old is new for old, new in zip(before[:-4], after, strict=False))


def test_a_changed_beginning_is_seen() -> None:
    talk, conversation, aligner = begun(3)
    body = talk.document.body.replace("How many?", "How much?", 1)
    changed = replace(talk.document, body=body)
    aligned = aligner.align(changed, conversation.snapshot())
    assert aligned == align(changed, conversation) and aligned.edits


def test_lost_roles_are_seen() -> None:
    talk, conversation, aligner = begun(3)
    bare = replace(talk.document, spans=())
    assert aligner.align(bare, conversation.snapshot()) == align(bare, conversation)


def test_the_middle_of_a_document_is_aligned_for_itself() -> None:
    talk, conversation, aligner = begun(3)
    end = talk.document.body.index("Seven.")
    assert aligner.align(talk.document, conversation.snapshot(), end) == align(talk.document, conversation, end)


def test_a_turn_that_is_taken_back_is_seen() -> None:
    talk, conversation, aligner = begun(3)
    message = next(iter(conversation.messages.values()))
    talk.record("message", **{**message.row, "metadata_json": {"hidden_at": 1, "hidden_by": "rewind"}})
    caught_up(talk, conversation)
    whole = aligner.whole
    assert aligner.align(talk.document, conversation.snapshot()) == align(talk.document, conversation)
    assert aligner.whole == whole + 1


@settings(max_examples=examples(60), deadline=None)
@given(talks, st.data())
def test_it_says_what_aligning_the_whole_says_whatever_is_cut(turns: list[Turn], data: st.DataObject) -> None:
    talk, conversation, aligner = Talk(), Conversation(), IncrementalAligner()
    for played in turns:
        talk.play(played)
        caught_up(talk, conversation)
        document = talk.document
        if data.draw(st.booleans(), label="cut"):
            size = data.draw(st.integers(0, len(document.body)), label="size")
            spans = tuple(span for span in document.spans if span.end <= size)
            document = replace(document, body=document.body[:size], spans=spans)
        assert aligner.align(document, conversation.snapshot()) == align(document, conversation)

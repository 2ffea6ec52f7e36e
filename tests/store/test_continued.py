"""Aligning turn after turn costs what is new, and says what aligning the whole says."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.store.conversation import Conversation
from pyagentd.store.document.reconcile import Alignment, ModelView, align, align_turn
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


class Talking:
    """A conversation whose turns are aligned one after the other; ``continued`` counts those that were not whole."""

    def __init__(self, turns: int = 0) -> None:
        self.talk, self.conversation = Talk(), Conversation()
        self.seen: ModelView | None = None
        self.continued = self.laid = 0
        for _ in range(turns):
            self.turn()

    def turn(self, played: Turn = TURN) -> None:
        """Type a prompt, look, and let it be answered."""
        self.looked("" if self.talk.document.body else "### ", played.prompt)
        self.play(played)

    def play(self, played: Turn) -> None:
        self.talk.play(played)
        self.laid = self.talk.marker
        for row in self.talk.rows[self.conversation.last_seq :]:
            self.conversation.apply(row)

    def looked(self, *typed: str) -> Alignment:
        """Return the alignment of the document with what was typed below it."""
        document = replace(self.talk.document, body="".join((self.talk.document.body, *typed)))
        whole = align(document, self.conversation)
        end = len(document.body)
        found = self.seen and align_turn(self.seen, document, self.conversation, end, self.laid)
        if found is not None:
            self.continued += 1
            assert found == whole
        aligned = found or whole
        self.seen = aligned.seen
        return aligned


def test_two_hundred_turns_are_aligned_as_a_whole_once() -> None:
    """What a turn costs must not grow with the conversation: of turn 200 as much is aligned as of turn 20."""
    talking = Talking(200)
    assert len(talking.conversation.messages) == 400
    assert talking.continued == 199


def test_the_messages_of_the_beginning_are_the_very_same_so_that_their_json_is_kept() -> None:
    talking = Talking(3)
    before = talking.looked("And now?").view
    talking.turn()
    after = talking.looked("And then?").view
    assert len(after) == len(before) + 4
    assert all(old is new for old, new in zip(before[:-1], after, strict=False))


def test_a_turn_that_is_taken_back_is_seen() -> None:
    talking = Talking(3)
    talk, message = talking.talk, next(iter(talking.conversation.messages.values()))
    talk.record("message", **{**message.row, "metadata_json": {"hidden_at": 1, "hidden_by": "rewind"}})
    talking.conversation.apply(talk.rows[-1])
    continued = talking.continued
    talking.looked("Again.")
    assert talking.continued == continued


def test_text_above_the_last_answer_and_roles_below_it_are_recognised() -> None:
    talking = Talking(3)
    talking.looked()
    talk, end = talking.talk, len(talking.talk.document.body)
    assert talking.seen is not None
    assert align_turn(talking.seen, talk.document, talking.conversation, end - 1, talking.laid) is None
    quoted = replace(talk.document, body=talk.document.body + "Seven.")
    quoted = replace(quoted, spans=(*quoted.spans, quoted.spans[-1]._replace(start=end, end=end + 6)))
    assert align_turn(talking.seen, quoted, talking.conversation, end + 6, talking.laid) is None


@settings(max_examples=examples(60), deadline=None)
@given(talks, st.lists(st.sampled_from(["Why?", "###", "### A\n\nB", "\n\n### B", "  ", "", "x\n\n### \n\ny "])))
def test_it_says_what_aligning_the_whole_says(turns: list[Turn], typed: list[str]) -> None:
    talking = Talking()
    for number, played in enumerate(turns):
        talking.play(played)
        talking.looked(*typed[number : number + 1])

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.store.document.files import apply
from pyagentd.store.document.reconcile import locate
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import Document
from tests.store.edits import Edit, Splice, in_emacs
from tests.store.talk import Call, Step, Talk, Turn, prompts, turns

BEFORE = Turn(prompt="Hello", steps=(Step(texts=("Hello to you, how can I help?",)),))
TURN = Turn(
    prompt="How many files are there?",
    steps=(
        Step(
            reasoning="I should count the files.",
            texts=("Let me check that for you.",),
            calls=(Call(input={"command": "ls | wc -l"}, result="7\n"),),
        ),
        Step(texts=("There are seven files here.",)),
    ),
)


def played(*before: Turn, turn: Turn) -> tuple[Document, int, list[Insert], Document]:
    """Return the document before a run, its anchor, the run's inserts, and the document after it."""
    talk = Talk(before)
    talk.type("" if talk.document.body else "### ")
    talk.type(turn.prompt)
    start, anchor, known = talk.document, talk.marker, len(talk.inserts)
    run = talk.start(talk.user(turn.prompt))
    talk.answer(turn.steps)
    talk.finish(run)
    return start, anchor, talk.inserts[known:], talk.document


def part_way(doc: Document, anchor: int, inserts: list[Insert], characters: int) -> tuple[Document, int]:
    """Put the first ``characters`` of a run into the document."""
    position = anchor
    for insert in inserts:
        text = insert.text[:characters]
        if text:
            doc, position = apply(doc, position, insert._replace(text=text))
        characters -= len(text)
    return doc, position


def finished(doc: Document, position: int, remaining: tuple[Insert, ...]) -> Document:
    for insert in remaining:
        doc, position = apply(doc, position, insert)
    return doc


@given(st.lists(turns, max_size=2), turns, st.data())
def test_a_run_goes_on_exactly_where_it_was(before: list[Turn], turn: Turn, data: st.DataObject) -> None:
    doc, anchor, inserts, after = played(*before, turn=turn)
    size = sum(len(insert.text) for insert in inserts)
    doc, _ = part_way(doc, anchor, inserts, data.draw(st.integers(0, size)))
    assert finished(doc, *locate(doc.body, doc.spans, anchor, inserts)) == after


@given(prompts, st.data())
def test_a_draft_below_stays_below(draft: str, data: st.DataObject) -> None:
    start, anchor, inserts, after = played(BEFORE, turn=TURN)
    size = sum(len(insert.text) for insert in inserts)
    doc, position = part_way(start, anchor, inserts, data.draw(st.integers(0, size)))
    doc = replace(doc, body=doc.body[:position] + "\n\n" + draft)
    done = finished(doc, *locate(doc.body, doc.spans, anchor, inserts))
    assert done.body.removesuffix(draft).rstrip("\n") == after.body.rstrip("\n")


@pytest.mark.parametrize("shift", [-7, 3, 400])
@pytest.mark.parametrize("characters", [40, 90, 200])
def test_an_anchor_that_shifted_is_found_again(shift: int, characters: int) -> None:
    start, anchor, inserts, after = played(BEFORE, turn=TURN)
    doc, _ = part_way(start, anchor, inserts, characters)
    assert finished(doc, *locate(doc.body, doc.spans, anchor + shift, inserts)) == after


@pytest.mark.parametrize("characters", [60, 100, 240, 290])
def test_without_roles_the_text_alone_tells(characters: int) -> None:
    start, anchor, inserts, after = played(BEFORE, turn=TURN)
    doc, _ = part_way(start, anchor, inserts, characters)
    done = finished(replace(doc, spans=()), *locate(doc.body, (), anchor, inserts))
    assert done.body == after.body


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Let me check that for you.", "Let me see."),
        ("Let me check that for you.", ""),
        ("I should count the files.", "I must count."),
        ("Let me check", "OK, let me check"),
    ],
)
@pytest.mark.parametrize("characters", [150, 250, 285, 300, 400])
def test_an_edit_inside_the_run_does_not_repeat_its_text(old: str, new: str, characters: int) -> None:
    start, anchor, inserts, after = played(BEFORE, turn=TURN)
    doc, _ = part_way(start, anchor, inserts, characters)
    if old not in doc.body:
        return
    doc = _replaced(doc, old, new)
    done = finished(doc, *locate(doc.body, doc.spans, anchor, inserts))
    assert done.body == after.body.replace(old, new)


def test_an_edit_of_the_text_that_is_growing_does_not_repeat_it() -> None:
    turn = Turn(prompt="Go", steps=(Step(texts=("one two three four five six seven eight nine",)),))
    start, anchor, inserts, _ = played(turn=turn)
    doc, _ = part_way(start, anchor, inserts, len("\n\none two three four five six"))
    doc = _replaced(doc, "two", "2")
    done = finished(doc, *locate(doc.body, doc.spans, anchor, inserts))
    assert done.body == "### Go\n\none 2 three four five six seven eight nine\n\n### "


def test_the_same_answer_to_an_earlier_prompt_is_not_taken_for_this_one() -> None:
    start, anchor, inserts, after = played(TURN, BEFORE, turn=BEFORE)
    assert finished(start, *locate(start.body, start.spans, anchor, inserts)) == after


def test_a_run_of_which_nothing_is_there_goes_on_at_the_anchor() -> None:
    start, anchor, inserts, _ = played(BEFORE, turn=TURN)
    assert locate(start.body, start.spans, anchor, inserts) == (anchor, tuple(inserts))


def test_an_anchor_behind_the_end_is_the_end() -> None:
    assert locate("### x", (), 99, ()) == (5, ())


@given(st.data(), st.booleans(), st.booleans())
def test_nothing_of_a_run_is_lost_and_nothing_removed_comes_back(
    data: st.DataObject, lost: bool, reported: bool
) -> None:
    """An edit in the part of the run that the file holds, at any moment, with the roles or without."""
    start, anchor, inserts, _ = played(BEFORE, turn=TURN)
    run = "".join(insert.text for insert in inserts)
    size = data.draw(st.integers(0, len(run)))
    doc, position = part_way(start, anchor, inserts, size)
    begin = data.draw(st.integers(anchor, position))
    edit = Splice(begin, data.draw(st.integers(begin, position)), data.draw(st.sampled_from(["", "x", "Hm. ", "\n"])))
    edited = in_emacs(doc, Edit(name="edit", splices=(edit,)))
    held = max((seq for seq in {insert.seq for insert in inserts} if _until(inserts, seq) <= size), default=0)
    spans = () if lost else edited.spans
    place, rest = locate(edited.body, spans, anchor, inserts, written=held if reported else 0)
    done = finished(replace(edited, spans=spans), place, rest)
    assert run[size:] in done.body
    if reported:
        assert "".join(insert.text for insert in rest) in run[_until(inserts, held) :]


def _until(inserts: list[Insert], seq: int) -> int:
    """How many characters the rows up to this one inserted."""
    return sum(len(insert.text) for insert in inserts if insert.seq <= seq)


def _replaced(doc: Document, old: str, new: str) -> Document:
    start = doc.body.index(old)
    end, shift = start + len(old), len(new) - len(old)

    def moved(position: int) -> int:
        return position if position <= start else position + shift if position >= end else start

    spans = [span._replace(start=moved(span.start), end=moved(span.end)) for span in doc.spans]
    kept = tuple(span for span in spans if span.start < span.end)
    return replace(doc, body=doc.body[:start] + new + doc.body[end:], spans=kept)


def test_a_heading_below_a_prompt_that_waited_is_not_taken_for_the_beginning_of_its_answer() -> None:
    start, anchor, inserts, _ = played(BEFORE, turn=TURN)
    for below in ("\n\n### ", "\n\n### A draft", "\n\n\n### A draft"):
        body = start.body + below
        place, missing = locate(body, start.spans, anchor, inserts)
        assert place == anchor and list(missing) == inserts
        doc, _ = apply(replace(start, body=body), place, *missing)
        assert "### ###" not in doc.body and doc.body.endswith(below)


@pytest.mark.parametrize("typed", ["\n\n### And how many directories?", "\n\n\n### And how many directories?"])
def test_blank_lines_before_a_heading_of_the_users_are_not_the_runs(typed: str) -> None:
    start, anchor, inserts, _ = played(turn=TURN)
    said = 0
    for insert in inserts[:-1]:
        said += len(insert.text)
        doc, _ = part_way(start, anchor, inserts, said)
        doc = replace(doc, body=doc.body + typed)
        body = finished(doc, *locate(doc.body, doc.spans, anchor, inserts)).body
        assert body.endswith(typed) and "### ###" not in body

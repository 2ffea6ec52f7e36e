"""Documents that something outside damaged: golden files say what is read of them.

``golden/healing`` has for each case the file and, in a ``.txt`` beside it, what is said about it, what the model sees
and what is recorded. After a change that is meant, ``PYAGENTD_GOLDEN=write`` writes the latter anew, to be read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.reconcile import Alignment, align
from pyagentd.store.document.text import Document, format_file, parse, regions
from pyagentd.store.journal import Row
from tests.store.healing_cases import AGAIN, CASES, COUNT, file_of, talk
from tests.store.talk import Call, Step, Talk, Turn, assert_valid, expected_view

GOLDEN = Path(__file__).parent / "golden"
HEALING = GOLDEN / "healing"
WRITE = os.environ.get("PYAGENTD_GOLDEN") == "write"

every_case = pytest.mark.parametrize("damage", CASES, ids=lambda case: case.__name__)


def read_case(damage: Callable[[str], str]) -> Document:
    return parse((HEALING / f"{damage.__name__}.md").read_bytes().decode())


def told(aligned: Alignment, doc: Document) -> str:
    healed = doc if aligned.spans is None else replace(doc, spans=aligned.spans)
    lines = ["notes:", *aligned.notes, "", "roles recovered:" if aligned.spans is not None else "roles:"]
    for region in regions(healed):
        text = doc.body[region.start : region.end]
        if region.kind or text.strip(" \n#"):
            lines.append(f"{region.kind or 'user':8} {region.id:8} {text!r}")
    lines += ["", "view:", *(line for message in aligned.view for line in _said(message))]
    return "\n".join([*lines, "", "new prompt:", aligned.new_prompt, "", "edits:", *map(str, aligned.edits)]) + "\n"


def _said(message: Message) -> Iterator[str]:
    for part in message.parts:
        yield f"{message.role:9} {_content(part)}"


def _content(part: Part) -> str:
    match part:
        case Text(text=text):
            return f"text {text!r}"
        case Reasoning(text=text, signature=signature):
            return f"reasoning {text!r} {signature}"
        case ToolCall(id=id, name=name, input=input):
            return f"call {id} {name} {input}"
        case ToolResult(id=id, text=text):
            return f"result {id} {text!r}"


@every_case
def test_what_is_read_of_a_damaged_file(damage: Callable[[str], str]) -> None:
    file, answer = HEALING / f"{damage.__name__}.md", HEALING / f"{damage.__name__}.txt"
    if WRITE:
        file.write_bytes(damage(file_of(talk())).encode())
    assert file.read_bytes().decode() == damage(file_of(talk()))
    doc = read_case(damage)
    aligned = align(doc, talk().conversation)
    if WRITE:
        answer.write_text(told(aligned, doc))
    assert_valid(aligned.view)
    assert told(aligned, doc) == answer.read_text()


@every_case
def test_what_was_recovered_is_written_and_found_again(damage: Callable[[str], str]) -> None:
    doc, conversation = read_case(damage), talk().conversation
    aligned = align(doc, conversation)
    mended = replace(doc, spans=aligned.spans if aligned.spans is not None else doc.spans)
    for edit in aligned.edits:
        conversation.apply(Row(conversation.last_seq + 1, "edit", edit))
    text = format_file(mended)
    again = align(parse(text), conversation)
    assert (again.view, again.edits, again.spans, again.notes) == (aligned.view, (), None, ())
    assert parse(text).body == doc.body  # nothing of the text is lost
    assert format_file(parse(text)) == text


@every_case
def test_going_back_to_the_file_before_brings_everything_back(damage: Callable[[str], str]) -> None:
    made = talk()
    conversation = made.conversation
    for edit in align(read_case(damage), conversation).edits:
        conversation.apply(Row(conversation.last_seq + 1, "edit", edit))
    back = align(parse(file_of(made)), conversation)
    assert (back.view, back.notes) == (expected_view(made.rows), ())


@every_case
def test_without_the_log_a_damaged_file_is_still_read(damage: Callable[[str], str]) -> None:
    doc = read_case(damage)
    aligned = align(doc, Conversation())
    assert_valid(aligned.view)
    assert aligned.edits == ()


def test_a_log_that_lost_its_end_leaves_the_rest_of_the_document_as_it_stands() -> None:
    aligned = align(parse(file_of(talk())), talk(COUNT).conversation)
    assert_valid(aligned.view)
    known = expected_view(talk(COUNT).rows)
    assert aligned.view[: len(known)] == known
    rest = [text.strip() for text in _texts(expected_view(talk().rows))]
    assert [text.strip() for text in _texts(aligned.view)] == rest


def test_a_log_from_another_branch_leaves_the_roles_of_the_document() -> None:
    aligned = align(parse(file_of(talk(COUNT))), talk(AGAIN).conversation)
    assert_valid(aligned.view)
    assert aligned.spans is None
    assert _texts(aligned.view)[:2] == _texts(expected_view(talk(COUNT).rows))[:2]


def test_a_thousand_equal_calls_that_moved_are_found_in_seconds() -> None:
    alike = Call(name="Read", input={"file_path": "a.py"}, result="the same\n" * 20)
    steps = (Step(calls=(alike,)), Step(texts=("Done.",)))
    talked = Talk([Turn(prompt=f"q{n}", steps=steps) for n in range(1000)], chunk=0)
    turned = "\n### ".join(talked.document.body.split("\n### ")[::-1])
    before = time.process_time()
    aligned = align(Document(body=turned), talked.conversation)
    assert time.process_time() - before < 15, "no call is compared with all that was found"
    assert sum(span.kind == "tool" for span in aligned.spans or ()) >= 999


def test_every_golden_file_of_a_case_is_claimed() -> None:
    claimed = {f"{case.__name__}{suffix}" for case in CASES for suffix in (".md", ".txt")}
    assert {path.name for path in HEALING.iterdir()} == claimed


def _texts(view: tuple[Message, ...]) -> list[str]:
    return [part.text for message in view for part in message.parts if isinstance(part, Text | ToolResult)]

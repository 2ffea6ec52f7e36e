"""Random edits of a document: whatever one of them does, the rest of the conversation stays exact.

What counts as touched by an edit is defined in ``edits.touched``. ``PYAGENTD_EDITS`` sets how many other edits are
tried, in Emacs and elsewhere each; ``PYAGENTD_MOVES`` how many where most texts are alike and whole paragraphs move,
which is harder: of many thousands of those a few still fail.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.messages import Message, Part, Role, ToolResult
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.pieces import found_pieces, recorded_pieces
from pyagentd.store.document.reconcile import Alignment, align
from pyagentd.store.document.text import Document, format_file, known_roles, parse
from pyagentd.store.journal import Row
from tests.store.edits import Edit, Splice, edits, elsewhere, in_emacs, moves, touched, touched_units
from tests.store.talk import Call, Step, Talk, Turn, alike_talks, assert_valid, expected_units, expected_view, talks

EDITS = int(os.environ.get("PYAGENTD_EDITS", "400"))
MOVES = int(os.environ.get("PYAGENTD_MOVES", "400"))
EACH = 10  # edits tried of one conversation

# The same edits each time, unless more are asked for; then different ones.
many = settings(max_examples=max(1, EDITS // EACH), derandomize="PYAGENTD_EDITS" not in os.environ, database=None)
many_moves = settings(many, max_examples=max(1, MOVES // EACH), derandomize="PYAGENTD_MOVES" not in os.environ)


class Case:
    """One conversation, and what of it an edit leaves alone."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.talk = Talk(turns, chunk=0)
        self.document = parse(format_file(self.talk.document))
        self.found = found_pieces(self.document)
        self.recorded = recorded_pieces(self.talk.conversation)
        self.units = expected_units(self.talk.rows)
        self.view = expected_view(self.talk.rows)
        self.applied: list[dict[str, object]] = []

    def folded(self, *alignments: Alignment) -> Conversation:
        """The record after the edits that alignments found."""
        conversation = self.talk.conversation
        for aligned in alignments:
            for edit in aligned.edits:
                conversation.apply(Row(conversation.last_seq + 1, "edit", edit))
        return conversation

    def check(self, document: Document, edit: Edit, *, known: bool = False) -> None:
        """The rest of the conversation is exact, and what is recorded of the edit is all there is to record.

        ``known`` means that roles tell where the edit was, also where the text alone does not.
        """
        body = self.document.body
        gone = touched_units(touched(edit, self.found, len(body), None if known else body), self.recorded)
        kept = [unit for key, unit in self.units.items() if key not in gone]
        aligned = align(document, self.talk.conversation)
        self.check_view(aligned, kept)
        mended = document if aligned.spans is None else replace(document, spans=aligned.spans, stale=False)
        conversation = self.folded(aligned)
        again = align(mended, conversation)
        assert (again.view, again.edits) == (aligned.view, ())
        unwritten = align(document, conversation)  # nobody wrote the recovered roles
        assert (unwritten.view, unwritten.edits, unwritten.spans) == (aligned.view, (), aligned.spans)
        assert list(conversation.messages) == list(self.talk.conversation.messages)
        back = align(self.document, conversation)
        assert back.view == self.view
        assert align(self.document, self.folded(aligned, back)).edits == ()

    def check_view(self, aligned: Alignment, kept: Sequence[list[tuple[Role, Part]]]) -> None:
        assert_valid(aligned.view)
        assert_holds(aligned.view, kept)
        assert all("\n" not in note for note in aligned.notes)


def assert_holds(view: Sequence[Message], units: Sequence[list[tuple[Role, Part]]]) -> None:
    """Every unit is in the view as it was, in its order."""
    flat = [(message.role, part) for message in view for part in message.parts]
    position = 0
    for unit in units:
        size = len(unit)
        at = next((i for i in range(position, len(flat) - size + 1) if flat[i : i + size] == unit), None)
        assert at is not None, f"{unit}\nis not in\n{flat[position:]}"
        position = at + size


@many
@given(talks, st.booleans(), st.data())
def test_an_edit_in_emacs_leaves_the_rest_exact(turns: list[Turn], sticky: bool, data: st.DataObject) -> None:
    case = Case(turns)
    for _ in range(EACH):
        edit = data.draw(edits(case.document))
        case.check(in_emacs(case.document, edit, sticky=sticky), edit, known=True)


@many
@given(talks, st.data())
def test_an_edit_in_another_editor_leaves_the_rest_exact(turns: list[Turn], data: st.DataObject) -> None:
    case = Case(turns)
    for _ in range(EACH):
        edit = data.draw(edits(case.document))
        case.check(parse(format_file(elsewhere(case.document, edit))), edit)


@many_moves
@given(alike_talks, st.booleans(), st.data())
def test_what_is_moved_among_texts_that_are_alike_leaves_the_rest_exact(
    turns: list[Turn], by_emacs: bool, data: st.DataObject
) -> None:
    case = Case(turns)
    for _ in range(EACH):
        edit = data.draw(moves(case.document))
        edited = in_emacs(case.document, edit) if by_emacs else parse(format_file(elsewhere(case.document, edit)))
        case.check(edited, edit, known=by_emacs)


TWO = "x\n\n### y"  # a prompt with a heading looks like two
THOUGHT = Step(reasoning="0")
LINES = "far " * 20 + "\nnear"
QUIET = Call(name="Bash", input={}, result="")
CODE = Call(name="Bash", input={"a": 1}, result="```\ncode\n```")

FOUND: list[tuple[str, list[Turn], list[Splice]]] = [
    # an answer that the roles hold together, with parts of a call, is not the end of the prompt above it
    (
        "emacs",
        [
            Turn(
                prompt="0",
                steps=(
                    Step(texts=("0\n\n0",), calls=(Call(name="Bash", input={}, result="0"),)),
                    Step(texts=("0\n0",)),
                ),
            )
        ],
        [Splice(10, 10, "0\n```\n0\n0\n\n"), Splice(55, 65, "")],
    ),
    # a character that is a space, though no ASCII one, is left of the only prompt
    ("emacs", [Turn(prompt="0", steps=())], [Splice(0, 5, "\x1f")]),
    ("shell", [Turn(prompt="0", steps=())], [Splice(0, 5, "\xa0")]),
    # the fence of hidden reasoning is doubled where the roles say that all of it is hidden
    (
        "emacs",
        [Turn(prompt="0", steps=(Step(reasoning="\n"),))],
        [Splice(22, 22, "\n``` reasoning\n")],
    ),
    # the line that was moved stands once in both texts, as does the heading that was not
    (
        "shell",
        [
            Turn(
                prompt="0",
                steps=(Step(calls=(QUIET,)), Step(calls=(QUIET,)), Step(calls=(replace(QUIET, result="0"),))),
            )
        ],
        [Splice(0, 0, "0\n```\n\n"), Splice(144, 150, "")],
    ),
    # what is left of the note on the failed run begins as one, and has the length of one in the bounds
    ("shell", [Turn(prompt="a", error="no\nmore"), Turn(prompt="a"), Turn(prompt="ab")], [Splice(16, 32, "")]),
    (
        "emacs",
        [Turn(prompt=TWO), Turn(prompt=TWO), Turn(prompt="a")],
        [Splice(7, 13, ""), Splice(23, 23, "### y\n\n")],
    ),
    (
        "emacs",
        [Turn(prompt=TWO, error="no\nmore"), Turn(prompt="a")],
        [Splice(7, 13, ""), Splice(37, 37, "### y\n\n")],
    ),
    # shifted by three, the bounds of the answer are those of the same word in the prompt
    ("shell", [Turn(prompt="a"), Turn(prompt="a", steps=(Step(texts=("a",)),))], [Splice(0, 0, "000")]),
    (
        "shell",
        [Turn(prompt=TWO), Turn(prompt="a"), Turn(prompt=TWO)],
        [Splice(0, 6, ""), Splice(25, 25, "### x\n\n")],
    ),
    ("emacs", [Turn(prompt="a"), Turn(prompt=TWO), Turn(prompt=TWO)], [Splice(5, 9, "")]),
    # of three equal thoughts the last is of the step with the call
    ("emacs", [Turn(prompt="a", steps=(THOUGHT, THOUGHT, replace(THOUGHT, calls=(Call(),))))], [Splice(8, 27, "")]),
    ("shell", [Turn(prompt="a", steps=(THOUGHT, replace(THOUGHT, calls=(Call(),))))], [Splice(5, 9, "")]),
    (
        "shell",
        [
            Turn(prompt="ab", steps=(replace(THOUGHT, texts=(TWO,)),)),
            Turn(prompt="a"),
            Turn(prompt="ab", steps=(replace(THOUGHT, calls=(Call(),)),)),
        ],
        [Splice(0, 52, "")],
    ),
    # what is longer than two prompts was moved above them: they are not text of that call's result
    (
        "shell",
        [Turn(prompt="0"), Turn(prompt="0", steps=(Step(texts=("0",), calls=(replace(QUIET, name="mcp__x"),)),))],
        [Splice(0, 0, '``` tool (mcp__x)\n(:name "mcp__x" :args nil)\n\n'), Splice(19, 64, "")],
    ),
    # two texts of an answer became one, and the bounds of the second are those of blank lines
    ("shell", [Turn(prompt="0", steps=(Step(texts=("0", "\n0")),))], [Splice(8, 10, "")]),
    # no bound is where it should be: they are not to be believed, though one prompt would stay exact with them
    (
        "shell",
        [Turn(prompt="0", steps=(Step(calls=(replace(QUIET, result="00000"),)),), error="no\nmore")],
        [Splice(8, 8, "00000\n```\n\n"), Splice(50, 60, "")],
    ),
    # a text that was moved into a thought is not all that stands up to where it was
    (
        "shell",
        [
            Turn(
                prompt="one two",
                steps=(
                    Step(reasoning="a b\n\nc", texts=("0\n\n0",)),
                    Step(texts=("OK",)),
                    Step(texts=("0\n\n00", "0\nHello there, all of you.")),
                ),
                error="no\nmore",
            )
        ],
        [Splice(33, 33, "0\nHello there, all of you.\n\n"), Splice(57, 84, "")],
    ),
    # the rest of an answer has the length of one that is gone
    (
        "shell",
        [
            Turn(
                prompt="ab",
                steps=(
                    Step(texts=("### z", "a b\n\nc")),
                    Step(texts=("ab",), calls=(replace(QUIET, result="\n0"),)),
                ),
            ),
            Turn(
                prompt="0",
                steps=(
                    Step(texts=("a", "one two")),
                    Step(reasoning="0\n\n0Hello there, all of you.", texts=("### z", "one two")),
                ),
            ),
        ],
        [Splice(20, 20, "a\n\n"), Splice(85, 87, "")],
    ),
    # a piece of a prompt that was moved away, and the rest of it, are not two places of one message
    (
        "emacs",
        [Turn(prompt=TWO, steps=(Step(reasoning="", texts=("### z", "0\nOK")),))],
        [Splice(7, 7, "### z\n\n"), Splice(14, 20, "")],
    ),
    (
        "shell",
        [Turn(prompt=TWO, steps=(Step(reasoning="", texts=("### z", "0\nOK")),))],
        [Splice(7, 7, "### z\n\n"), Splice(14, 20, "")],
    ),
    # of a message of the user's several pieces are alike, and one of them was moved
    (
        "shell",
        [Turn(prompt="x\n\n### y\n\n### y"), Turn(prompt="a", steps=(Step(reasoning="", texts=("OK\n\nOK",)),))],
        [Splice(0, 6, "OK\n"), Splice(30, 33, "### x\n")],
    ),
    (
        "emacs",
        [Turn(prompt="x\n\n### y\n\n### y", steps=(Step(texts=("\n\n### ",)),)), Turn(prompt=TWO, error="no\nmore")],
        [Splice(7, 13, "### x\n"), Splice(29, 35, "### y\n")],
    ),
    (
        "shell",
        [
            Turn(prompt="x\n\n### y\n\n### y", steps=(Step(texts=("### z\n\nmore",)),)),
            Turn(prompt="x\n\n### y\n\n### y"),
        ],
        [Splice(14, 20, ""), Splice(41, 41, "### y\n\n")],
    ),
    (
        "shell",
        [
            Turn(
                prompt="x\n\n### y\n\n### y",
                steps=(
                    Step(reasoning="0", texts=("0\n\n00",)),
                    Step(reasoning="a b\n\nc", texts=("0\n\n00a",)),
                ),
                error="no\nmore",
            )
        ],
        [Splice(0, 6, "00\n"), Splice(46, 49, "### x\n")],
    ),
    (
        "shell",
        [
            Turn(
                prompt="x\n\n### y\n\n### y",
                steps=(
                    Step(reasoning="0", texts=("0\n\n00",)),
                    Step(reasoning="a b\n\nc", texts=("0\n\n00a",)),
                ),
                error="no\nmore",
            )
        ],
        [Splice(0, 6, "c\n```\n"), Splice(69, 75, "### x\n")],
    ),
    (
        "emacs",
        [
            Turn(
                prompt="x\n\n### y\n\n### y",
                steps=(
                    Step(
                        reasoning="A thought.",
                        texts=("a",),
                        calls=(Call(name="mcp__x", input={"a b": "long enough command"}, result="### z"),),
                    ),
                ),
                error="no\nmore",
            )
        ],
        [Splice(0, 6, "a\n"), Splice(52, 54, "### x\n")],
    ),
    (
        "shell",
        [
            Turn(prompt="x\n\n### y\n\n### y", steps=(Step(reasoning="A thought."),)),
            Turn(prompt="x\n\n### y\n\n### y", steps=(Step(texts=("0\n\n00",)),)),
        ],
        [Splice(7, 7, "### y\n\n"), Splice(66, 72, "")],
    ),
    (
        "emacs",
        [
            Turn(prompt="x\n\n### y\n\n### y", error="no\nmore"),
            Turn(prompt="x\n\n### y\n\n### y", steps=(Step(reasoning="A thought.", texts=("OK\n\nOK",)),)),
            Turn(prompt="0"),
        ],
        [Splice(0, 6, "### 0\n"), Splice(104, 110, "### x\n")],
    ),
    (
        "shell",
        [
            Turn(
                prompt="x\n\n### y\n\n### y",
                steps=(Step(reasoning="A thought.", texts=("b\n\n### c\n\nd", "OK\n\nOK")),),
            ),
            Turn(prompt="one two", steps=(Step(reasoning="a b\n\nc"),), error="no\nmore"),
        ],
        [Splice(0, 6, "OK\n"), Splice(69, 72, "### x\n")],
    ),
    (
        "shell",
        [
            Turn(
                prompt=TWO,
                steps=(
                    Step(
                        reasoning="A thought.",
                        texts=("``` reasoning\nfake\n```a",),
                        calls=(Call(name="mcp__x", input={"command": "ls"}, result="OK"),),
                    ),
                    Step(reasoning="0", texts=("### z\n\nmore",)),
                ),
            ),
            Turn(prompt="x\n\n### y\n\n### y", steps=(Step(),)),
            Turn(
                prompt="x\n\n### y\n\n### y",
                steps=(Step(texts=("0", "\n\n### "), calls=(Call(name="mcp__x", result="OK", is_error=True),)),),
            ),
        ],
        [Splice(198, 198, "0\n\n"), Splice(228, 229, "")],
    ),
    # what tells that the bounds are shifted is not shown any more
    (
        "shell",
        [Turn(prompt="OK"), Turn(prompt=TWO, steps=(Step(reasoning="a b\n\nc"),))],
        [Splice(0, 0, "c\n```\n\n"), Splice(44, 50, "")],
    ),
    # a block was moved above another one, or a heading to where answers follow
    (
        "shell",
        [
            Turn(
                prompt="b\n\n### c\n\nd",
                steps=(
                    Step(reasoning="", texts=("One\n\nTwo", "Hello there, all of you.")),
                    Step(
                        reasoning="a b\n\nc",
                        texts=("Look: ``` tool (X)\n", "a"),
                        calls=(
                            Call(
                                name="mcp__x", input={"a b": "long enough command"}, result="0\n\n00", is_error=True
                            ),
                            Call(name="Bash", input={"command": "ls"}, result="### z"),
                        ),
                    ),
                ),
            )
        ],
        [Splice(14, 14, "### \n\n"), Splice(293, 297, "")],
    ),
    # an answer was moved, and a piece of a prompt that stands behind its like is not text of it
    (
        "shell",
        [
            Turn(prompt="x\n\n### y\n\n### y"),
            Turn(
                prompt="x\n\n### y\n\n### y",
                steps=(
                    Step(reasoning="a b\n\nc", texts=(TWO, "")),
                    Step(
                        reasoning="a b\n\nc",
                        texts=(TWO,),
                        calls=(
                            Call(name="Bash", result="0\n\n00"),
                            Call(name="Read", result=LINES),
                        ),
                    ),
                ),
            ),
        ],
        [Splice(30, 36, "x\n"), Splice(107, 109, "### y\n"), Splice(185, 185, "## ")],
    ),
    # what is left of a tool's block, whose result was moved, is no text of the prompt above it
    (
        "shell",
        [
            Turn(prompt="a", steps=(Step(texts=("### z\n\nmore",)),)),
            Turn(prompt="a", steps=(Step(calls=(Call(name="Read", result=LINES),)),)),
        ],
        [
            Splice(
                14,
                14,
                f'{LINES}\n```\n``` tool (Bash)\n(:name "Bash" :args nil)\n\n0\n```\n\n``` reasoning\n0\n```\n',
            ),
            Splice(70, 161, ""),
        ],
    ),
    (
        "shell",
        [
            Turn(prompt="a", steps=(Step(calls=(Call(result="0"),)),)),
            Turn(prompt="0", steps=(Step(calls=(Call(result=LINES),)),)),
        ],
        [
            Splice(8, 49, f"{LINES}\n```\n"),
            Splice(108, 198, '``` tool (Bash :command "ls")\n(:name "Bash" :args (:command "ls"))\n'),
        ],
    ),
    # an answer that was moved into a prompt stands between the prompt and what answers it
    (
        "shell",
        [
            Turn(prompt="x\n\n### y\n\n### y", steps=(Step(texts=("0",), calls=(Call(result="0"),)),)),
            Turn(prompt="a", steps=(Step(texts=("\n0",)),)),
        ],
        [Splice(14, 14, "0\n\n"), Splice(82, 84, "")],
    ),
    # so many words, of which none occurs once, are compared by lines
    (
        "shell",
        [
            Turn(
                prompt="0",
                steps=(
                    Step(texts=("``` reasoning\nfake\n```",), calls=(Call(result="0"),)),
                    Step(
                        reasoning="a b\n\nc",
                        texts=("0", "``` reasoning\nfake\n```"),
                        calls=(
                            Call(result="OK"),
                            Call(input={"command": "ls"}, result="0\n\n00"),
                        ),
                    ),
                    Step(reasoning="a b\n\nc"),
                ),
            ),
            Turn(
                prompt="0",
                steps=(
                    Step(
                        texts=("``` reasoning\nfake\n```",),
                        calls=(
                            Call(result="OK"),
                            Call(input={"command": "ls"}, result="0\n\n00"),
                        ),
                    ),
                    Step(reasoning="a b\n\nc", texts=("0",)),
                ),
            ),
        ],
        [Splice(0, 6, "0\n"), Splice(472, 474, "### 0\n")],
    ),
    # of an answer whose paragraphs changed places, and which begins twice alike, nothing is of the prompt above
    (
        "shell",
        [
            Turn(prompt="0", error="no\nmore"),
            Turn(prompt="0", steps=(Step(texts=("0\n\n0001\n\n0",), calls=(QUIET,)),)),
        ],
        [Splice(40, 45, ""), Splice(49, 49, "0001\n\n")],
    ),
    # an answer that is nothing but a heading, below a prompt that became a part of the one above
    ("shell", [Turn(prompt="a"), Turn(prompt="0", steps=(Step(texts=("", "\n\n### ")),))], [Splice(9, 13, "## ")]),
    # of two like answers of one run the second was edited
    (
        "emacs",
        [Turn(prompt="0", steps=(Step(calls=(QUIET,)), *(Step(texts=("\n\n### ",)),) * 2))],
        [Splice(0, 6, ""), Splice(65, 65, "### 0\n\n")],
    ),
    # of two like answers of one run the second was edited, and the call above the first, too
    (
        "emacs",
        [
            Turn(
                prompt="k",
                steps=(
                    Step(calls=(Call(name="Read", result="abc"),)),
                    Step(reasoning="", texts=("", "\n\n### ")),
                    Step(texts=("", "\n\n### "), calls=(CODE, QUIET)),
                ),
            )
        ],
        [Splice(18, 24, ""), Splice(67, 67, "### \n\n")],
    ),
    # the fence that begins a result is not the one that closes the block of a like call above it
    (
        "shell",
        [Turn(prompt="0", steps=(Step(calls=(QUIET, CODE)),))],
        [Splice(51, 51, '```\n``` tool (Bash :a 1)\n(:name "Bash" :args (:a 1))\n')],
    ),
]


def test_of_two_like_notes_on_failed_runs_one_in_its_place_says_nothing_of_the_other() -> None:
    turns = [Turn(prompt="0", steps=(Step(calls=(Call(name="Bash"),)),), error="no\nmore"), Turn(prompt="0")]
    case = Case([*turns, Turn(prompt="0", error="no\nmore")])
    start = case.document.body.index("\n``` error")
    edit = Edit(name="duplicate", splices=(Splice(start, start, "\n``` error\nno\nmore\n```\n"),))
    case.check(parse(format_file(elsewhere(case.document, edit))), edit)


def test_of_like_answers_the_one_that_was_moved_into_a_call_is_not_of_the_step_below_it() -> None:
    answers = ("alpha one two", "beta three four")
    call = Call(name="Bash", result="the first paragraph\n\n### the last")
    steps = (Step(texts=("before",), calls=(call,)), Step(reasoning="", texts=answers), Step(texts=answers))
    case = Case([Turn(prompt="0", steps=steps), Turn(prompt="1")])
    body = case.document.body
    into, last = body.index("the first"), body.rindex(answers[1])
    splices = (Splice(into, into, f"{answers[1]}\n\n"), Splice(last, last + len(answers[1]) + 1, ""))
    edit = Edit(name="move", splices=splices)
    case.check(parse(format_file(elsewhere(case.document, edit))), edit)


def test_text_that_has_the_length_of_a_note_on_a_failed_run_is_not_taken_for_it() -> None:
    step = Step(reasoning="0", texts=("00000000000000\n\n### ",), calls=(Call(name="Bash"),))
    case = Case([Turn(prompt="0", steps=(step,), error="no\nmore")])
    body = case.document.body
    text = body.index("00000000000000")
    end = body.index("``` error")
    splices = (Splice(text, text + 15, ""), Splice(end - 1, end - 1, "00000000000000\n\n"))
    edit = Edit(name="move", splices=splices)
    case.check(parse(format_file(elsewhere(case.document, edit))), edit)


@pytest.mark.parametrize(("editor", "turns", "splices"), FOUND)
def test_like_prompts_without_answers_are_told_apart(editor: str, turns: list[Turn], splices: list[Splice]) -> None:
    case, edit = Case(turns), Edit(name="edit", splices=tuple(splices))
    edited = parse(format_file(elsewhere(case.document, edit)))
    case.check(in_emacs(case.document, edit) if editor == "emacs" else edited, edit, known=editor == "emacs")


def test_a_text_that_was_removed_does_not_take_the_place_of_its_like() -> None:
    text, call = "The same text twice.", Call(input={"command": "a long enough command"}, result="OK")
    case = Case(
        [Turn(prompt="Go", steps=(Step(texts=(text,)), Step(texts=(text,), calls=(call,))), error="no\nmore")]
    )
    body = case.document.body
    second, head, result = body.rindex(text), body.index("``` tool"), body.index("\nOK\n")
    edit = Edit(name="move", splices=(Splice(second, second, body[head:result]), Splice(head, result, "")))
    case.check(parse(format_file(elsewhere(case.document, edit))), edit)


def test_what_stands_between_a_text_and_where_it_was_moved_to_keeps_its_roles() -> None:
    line = "far " * 40 + "\n"
    calls = (Call(result=f"{line}near"), Call(name="Read", result="other"))
    case = Case([Turn(prompt="First"), Turn(prompt="Second", steps=(Step(calls=calls),))])
    start = case.document.body.index(line)
    edit = Edit(name="move", splices=(Splice(0, 0, line), Splice(start, start + len(line), "")))
    case.check(parse(format_file(elsewhere(case.document, edit))), edit)


@pytest.mark.parametrize("thought", [None, ""])
def test_an_answer_below_a_heading_that_was_moved_above_it_stays_an_answer(thought: str | None) -> None:
    steps = (Step(reasoning=thought, texts=("One.", "Two")), Step(reasoning=thought, texts=("Two",)))
    case = Case([Turn(prompt="Go", steps=steps, error="no\nmore")])
    body = case.document.body
    answer, heading = body.index("One."), body.rindex("### ")
    splices = (Splice(answer, answer, "### \n"), Splice(heading, heading + len("### "), ""))
    edit = Edit(name="move", splices=splices)
    case.check(parse(format_file(elsewhere(case.document, edit))), edit)


def test_a_text_that_was_joined_to_the_one_above_takes_nothing_of_its_like_below() -> None:
    steps = (
        Step(texts=("Look: ``` too", "``` reasoning\nSo")),
        Step(reasoning="A thought.", calls=(Call(name="Read"),)),
    )
    case = Case([Turn(prompt="Go", steps=steps)])
    start = case.document.body.index("\n``` reasoning\nSo") - 1
    edit = Edit(name="replace", splices=(Splice(start, start + 9, "``` tool (X)\n"),))
    case.check(parse(format_file(elsewhere(case.document, edit))), edit)


def test_a_block_that_was_moved_far_and_edited_is_still_of_its_tool() -> None:
    call = Call(input={"command": "ls"}, result="one\ntwo\nthree")
    turns = [Turn(prompt="First", steps=(Step(calls=(call,)), Step(texts=("One",)))), Turn(prompt="Second")]
    turns += [Turn(prompt=f"Prompt {number}", steps=(Step(texts=(f"Answer {number}",)),)) for number in range(3)]
    case = Case(turns)
    body = case.document.body
    start, end = body.index("``` tool"), body.index("One")
    block = body[start:end].replace("two", "2")
    at = body.rindex("\n\n### ")
    edit = Edit(name="move", splices=(Splice(start, end, ""), Splice(at, at, "\n\n" + block.rstrip())))
    edited = parse(format_file(elsewhere(case.document, edit)))
    case.check(edited, edit)
    shown = [part for message in align(edited, case.talk.conversation).view for part in message.parts]
    results = [part.text for part in shown if isinstance(part, ToolResult)]
    assert results == ["one\n2\nthree"]


def test_a_call_that_cannot_be_read_any_more_is_said_in_one_line() -> None:
    case = Case([Turn(prompt="First", steps=(Step(calls=(Call(input={"a": {"b\nc": 1}}, result=""),)),))])
    value = "(:b\\\nc 1)"
    start = case.document.body.rindex(value)
    edit = Edit(name="replace", splices=(Splice(start, start + len(value), "b\\\nc"),))
    edited = in_emacs(case.document, edit)
    assert any("left out" in note for note in align(edited, case.talk.conversation).notes)
    case.check(edited, edit)


def test_roles_that_the_text_alone_does_not_tell_later_are_recorded_with_the_edit() -> None:
    case = Case([Turn(prompt="0", steps=(Step(calls=(replace(QUIET, result="0"), CODE)),))])
    at = case.document.body.index("```\ncode")
    again = '``` tool (Bash :a 1)\n(:name "Bash" :args (:a 1))\n\n'
    edit = Edit(name="duplicate", splices=(Splice(at, at, again),))
    edited = parse(format_file(elsewhere(case.document, edit)))
    case.check(edited, edit)
    aligned = align(edited, case.talk.conversation)
    assert "roles" in aligned.edits[0]
    conversation = case.folded(aligned)
    assert align(edited, conversation).view == aligned.view
    assert align(case.document, conversation).view == case.view


@pytest.mark.parametrize("roles", ["all", [1, 2], ["one"], {"read": "x"}, None])
def test_recorded_roles_that_are_none_are_ignored(roles: object) -> None:
    case = Case([Turn(prompt="0", steps=(Step(texts=("One",)),))])
    conversation = case.talk.conversation
    conversation.apply(Row(conversation.last_seq + 1, "edit", {"part_id": "x", "roles": roles}))
    assert align(case.document, conversation).view == case.view


def test_recorded_roles_that_a_document_has_already_change_nothing() -> None:
    case = Case([Turn(prompt="0", steps=(Step(texts=("One",)),))])
    roles = list(known_roles(case.document, case.document.spans))
    conversation = case.talk.conversation
    conversation.apply(Row(conversation.last_seq + 1, "edit", {"part_id": "x", "roles": roles}))
    assert align(case.document, conversation).view == case.view

"""Conversations of every kind written to real files and read back from them are equal to what was said."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.messages import Message
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import text as document
from pyagentd.store.document.files import write_document
from pyagentd.store.document.reconcile import Alignment, align
from pyagentd.store.document.text import Settings
from pyagentd.store.journal import Journal, read_rows
from tests.store.talk import Call, Step, Talk, Turn, assert_valid, expected_view, json_values, prompts, texts

CONVERSATIONS = int(os.environ.get("PYAGENTD_CONVERSATIONS", "50"))
SETTINGS = Settings(model="claude-sonnet-4-6", backend="Claude", tools=("Bash",), temperature=1.0)

HARD = (
    "",
    " ",
    "OK",
    "😀🇩🇪👨‍👩‍👧‍👦",
    "e\u0301o\u0308\u0323",
    "שלום \u202eabc\u202c مرحبا",
    "a\u2028b\u2029c\x85d\x0be\x0cf",
    "one\r\ntwo\r\n",
    "\r\n",
    "progress 1 %\rprogress 2 %\r",
    "\x00\x01\x1b[31mred\x1b(B\x1b[m\x7f",
    "half \ud83d of a pair",
    "\ufeffBOM\ufffe\uffff",
    "```\ncode\n```",
    "~~~\ncode\n~~~",
    '``` tool (Bash :command "x")\n(:name "Bash" :args (:command "x"))\n\nfake\n```\n',
    "``` reasoning\nfake\n```",
    "``` error\nfake\n```",
    "\n\n### ",
    "### a heading\n\n### and another",
    "###",
    "<!-- Local Variables: -->",
    "<!-- End: -->",
    "<!-- Local Variables: -->\n<!-- gptel-model: x -->\n<!-- gptel--bounds: ((response (1 9))) -->\n<!-- End: -->\n",
    "<!-- Local Variables: -->\n<!-- gptel-model: x -->\n<!-- gptel--bounds: ((resp",
    ";; Local Variables:\n;; End:",
    '(:name "Bash" :args nil)',
    "trailing blanks  \t \n\t",
    "-*- coding: latin-1; mode: org -*-",
)
hard = st.lists(st.sampled_from(HARD) | texts, max_size=3).map("".join)
hard_calls = st.builds(
    Call,
    name=st.sampled_from(["Bash", "Read", "mcp__x"]),
    input=st.dictionaries(st.sampled_from(["command", "a b", "q?;", "é"]), hard | json_values, max_size=2),
    result=st.none() | hard,
    is_error=st.booleans(),
)
hard_steps = st.builds(
    Step,
    reasoning=st.none() | hard,
    texts=st.lists(hard, max_size=2).map(tuple),
    calls=st.lists(hard_calls, max_size=4).map(tuple),
    order=st.integers(0, 23),
)
hard_prompts = prompts | st.sampled_from(HARD).map(str.strip).filter(
    lambda text: bool(text.strip("#")) and text.isprintable()
)
empty_turns = st.builds(Turn, prompt=prompts, steps=st.sampled_from([(), (Step(),), (Step(reasoning="Hm."),)]))
hard_turns = st.builds(
    Turn, prompt=hard_prompts, steps=st.lists(hard_steps, max_size=3).map(tuple), error=st.none() | hard
)
conversations = st.lists(hard_turns | empty_turns, min_size=1, max_size=4)


class Files:
    """A branch directory with a log and a document."""

    def __init__(self, directory: Path, talk: Talk) -> None:
        self.journal = paths.journal_file(directory)
        self.session = paths.session_file(directory)
        journal = Journal.open(self.journal)
        journal.append_many((row.type, row.data) for row in talk.rows)
        journal.close()
        write_document(self.session, replace(talk.document, settings=SETTINGS))

    def read(self) -> Alignment:
        """Everything as it is on disk."""
        return align(document.read(self.session), Conversation(read_rows(self.journal)))

    def expected(self) -> tuple[Message, ...]:
        """What the rows on disk say."""
        return expected_view(read_rows(self.journal))


def check(turns: list[Turn], chunk: int = 7, *, crlf: bool = False) -> None:
    """Write, read back, compare; then write what was read and compare the bytes."""
    talk = Talk(turns, chunk=chunk)
    with tempfile.TemporaryDirectory() as directory:
        files = Files(Path(directory), talk)
        before = files.session.read_bytes()
        if crlf:
            files.session.write_bytes(before.replace(b"\n", b"\r\n"))
        aligned = files.read()
        assert_valid(aligned.view)
        assert aligned.view == expected_view(talk.rows) == files.expected()
        assert (aligned.edits, aligned.spans, aligned.new_prompt) == ((), None, "")
        assert bool(aligned.notes) == crlf
        files.session.unlink()
        write_document(files.session, document.parse(before.decode("utf-8", "surrogateescape")))
        assert files.session.read_bytes() == before


@settings(max_examples=CONVERSATIONS)
@given(conversations, st.integers(0, 40), st.booleans())
def test_a_conversation_is_read_back_as_it_was_said(turns: list[Turn], chunk: int, crlf: bool) -> None:
    check(turns, chunk, crlf=crlf)


@settings(max_examples=max(1, CONVERSATIONS // 20))
@given(st.lists(hard_calls, min_size=1, max_size=12), st.sampled_from([1, 3, 50, 300]))
def test_three_hundred_tool_calls_are_read_back(pool: list[Call], at_once: int) -> None:
    """In one answer, some or all of them at once, many alike; the block is far longer than what Emacs reads of it."""
    calls = [pool[number % len(pool)] for number in range(300)]
    groups = [tuple(calls[start : start + at_once]) for start in range(0, len(calls), at_once)]
    check([Turn(prompt="Do a lot", steps=(*(Step(calls=group) for group in groups), Step(texts=("Done.",))))])


@settings(max_examples=CONVERSATIONS)
@given(conversations, hard)
def test_what_is_typed_below_is_the_next_prompt_whatever_it_looks_like(turns: list[Turn], typed: str) -> None:
    talk = Talk(turns)
    typed = typed.encode("utf-8", "replace").decode()
    talk.type(typed)
    with tempfile.TemporaryDirectory() as directory:
        aligned = Files(Path(directory), talk).read()
    assert_valid(aligned.view)
    assert aligned.edits == ()
    assert _words(aligned.new_prompt) == _words(typed)


def _words(text: str) -> str:
    return "".join(text.replace("#", "").split())

"""What others say, on the way to a terminal and into a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from pyagentd.cli import sessions
from pyagentd.cli.follow import TextView
from pyagentd.cli.output import note, print_table
from pyagentd.events import Event
from pyagentd.words import printable

EVIL = "a\x1b]0;owned\x07b\x9b2Jc\u202etxt\u2066d\re"
SEEN = "a\\x1b]0;owned\\x07b\\x9b2Jc\\u202etxt\\u2066d\\x0de"


class Stream(io.StringIO):
    """A stdout, on a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def onto(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Stream]:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")

    def start() -> Stream:
        monkeypatch.setattr(sys, "stdout", stream := Stream(terminal=request.param))
        return stream

    return start


def test_what_a_terminal_would_obey_is_made_visible() -> None:
    assert printable(EVIL) == SEEN


@pytest.mark.parametrize("text", ["a\tb\nc\r\n", "Grüße\xa0!", "世界 \U0001f469\u200d\U0001f4bb\ufe0f", "ส\u0e31"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_a_row_of_a_table_in_a_pipe_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stdout := Stream(terminal=False))
    print_table(("command", "from"), [("  sh -c 'a\n\tb'", "x\r\ny")])
    assert stdout.getvalue() == "command\tfrom\n  sh -c 'a  b'\tx y\n"


def test_a_table_obeys_nothing_in_its_cells(onto: Callable[[], Stream]) -> None:
    stdout = onto()
    print_table(("preset", "description"), [("x", EVIL)])
    assert SEEN in stdout.getvalue()


def test_an_answer_is_exact_in_a_pipe_and_printable_on_a_terminal(onto: Callable[[], Stream]) -> None:
    stdout = onto()
    view = TextView()
    view.show(Event("insert", "b", 1, (EVIL, "response")))
    view.show(Event("insert", "b", 2, ('\n``` tool (Bash :command "\x1b[2J")', "ignore")))
    view.pause()
    said = stdout.getvalue()
    assert (SEEN in said and "\x1b" not in said) if stdout.isatty() else EVIL in said


def test_a_hit_obeys_nothing(onto: Callable[[], Stream]) -> None:
    onto()
    hit = {"session_id": "s", "agent": False, "branch_name": "main", "created_at": 0, "kind": "text", "role": "user"}
    said = sessions._hit_lines({**hit, "copies": 0, "preview": EVIL, "matches": [[0, 3]]})
    assert SEEN in said


def test_a_conversation_is_exact_in_a_pipe_and_printable_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "session.md").write_text(EVIL, newline="")
    monkeypatch.setattr(sessions, "daemon", MagicMock())
    monkeypatch.setattr(sessions, "branch_of", lambda link, session: tmp_path)
    for terminal, expected in ((False, EVIL), (True, SEEN)):
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream, terminal=terminal: terminal)
        assert CliRunner().invoke(sessions.show, ["s"]).stdout_bytes.decode() == f"{expected}\n"


def test_a_remark_obeys_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    note(EVIL)
    assert capsys.readouterr().err == f"pyagentd: {SEEN}\n"


def test_a_notice_begins_a_new_line(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Stream(terminal=False)
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    view = TextView()
    view.show(Event("insert", "b", 1, ("half a line", "response")))
    view.show(Event("notice", "b", 0, ({"text": "by the way"},)))
    view.show(Event("insert", "b", 2, ("the rest", "response")))
    view.pause()
    assert both.getvalue() == "half a line\npyagentd: by the way\nthe rest\n"


def test_the_line_of_a_tool_begins_a_line_where_both_streams_are_one_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "both").open("ab", buffering=0) as both:
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(both), line_buffering=name == "stderr"))
        view = TextView()
        view.show(Event("insert", "b", 1, ("I will look", "response")))
        view.show(Event("tool", "b", 0, ({"id": "call_1", "name": "Read", "summary": "Read a.txt"},)))
        view.pause()
        sys.stdout.flush()
        said = (tmp_path / "both").read_text()
        monkeypatch.undo()
    assert said.startswith("I will look\n") and "Read a.txt" in said.splitlines()[1]

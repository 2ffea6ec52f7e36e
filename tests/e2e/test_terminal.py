"""What a person sees: a real Emacs on a terminal, driven by keys, its screen read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd.store.document.text import read
from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.valve import Valve
from tests.server import ModelServer, answer, refusal, text, tool_use

UNDERLINED = re.compile(r"\x1b\[(?:[\d;]*;)?4(?:;[\d;]*)?m")


@pytest.fixture
def emacs(system: System, model_server: ModelServer) -> Iterator[Emacs]:
    """Emacs on a terminal, in a project whose model is the server."""
    system.use_server(model_server.url)
    (system.project / "a.txt").write_text("alpha\n")
    yield system.emacs(terminal=True)


def shows(emacs: Emacs, *parts: str, timeout_s: float = 60.0) -> str:
    """Wait until the screen shows all of ``parts``, and return it."""

    def screen() -> str:
        seen = emacs.screen()
        return seen if all(part in seen for part in parts) else ""

    try:
        return str(wait_for(screen, f"the screen to show {parts}", timeout_s))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{emacs.screen()}") from None


def header(emacs: Emacs, state: str, timeout_s: float = 60.0) -> None:
    """Wait until the header line says ``state``."""
    wait_for(lambda: state in emacs.screen().splitlines()[1], f"{state} in {emacs.screen()}", timeout_s)


def type_text(emacs: Emacs, said: str) -> None:
    emacs.keys("-l", said)


def make_session(emacs: Emacs, prompt: str) -> None:
    """``M-x pyagentd-session``, and ``prompt`` typed into it."""
    emacs.keys("M-x")
    shows(emacs, "M-x")
    type_text(emacs, "pyagentd-session")
    emacs.keys("Enter")
    shows(emacs, "Session name")
    type_text(emacs, "tea time")
    emacs.keys("Enter")
    shows(emacs, "tea time", "###")
    header(emacs, "Ready")
    type_text(emacs, prompt)
    shows(emacs, f"### {prompt}")


def below(screen: str, line: str) -> list[str]:
    """Return the lines of ``screen`` from ``line`` on."""
    lines = screen.splitlines()
    return lines[next(number for number, one in enumerate(lines) if one.startswith(line)) :]


def rules_around(emacs: Emacs, start: str) -> bool:
    """Tell whether the notice that begins with ``start`` stands between two lines that are drawn as rules."""
    lines = emacs.screen(colour=True).splitlines()
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in lines]
    first = next(number for number, line in enumerate(plain) if line.startswith(start))
    drawn = [number for number, line in enumerate(lines) if not plain[number] and UNDERLINED.search(line)]
    return first - 1 in drawn and any(number > first for number in drawn)


def test_a_session_by_keys_from_the_name_to_the_answer(emacs: Emacs, model_server: ModelServer) -> None:
    agent, parent = Valve(answer(text("It says alpha.", chunks=2))), Valve(answer(text("Alpha it is.", chunks=2)))
    spawn = tool_use("PersistentAgent", preset="explorer", description="look around", prompt="Read a.txt")
    model_server.say(answer("I delegate.", spawn), answer(tool_use("Read", file_path="a.txt")), agent, parent)
    make_session(emacs, "Delegate it.")

    emacs.keys("C-c", "Enter")
    asked = shows(emacs, "I delegate.", "Allow PersistentAgent explorer", "Read a.txt", "abort the run")
    assert "Allow  y once  s this session  p this project  e with changes" in asked
    assert "Deny   n  r with a reason  k abort the run" in asked
    header(emacs, "Asks you")
    assert rules_around(emacs, "Allow")

    emacs.keys("C-c", "C-c", "y")
    called = shows(emacs, "Explorer Task: look around", "Calling Tools... (+1)")
    assert [line.rstrip() for line in below(called, "Explorer Task")[:3]] == [
        "Explorer Task: look around", "Calling Tools... (+1)", "  Read a.txt",
    ]  # fmt: skip
    assert "Allow" not in called
    header(emacs, "Calling tool (PersistentAgent")
    assert rules_around(emacs, "Explorer Task")
    waiting = shows(emacs, "Explorer Task: look around", "Waiting...")
    assert "Calling Tools..." not in waiting

    agent.open()
    parent.let(1)
    header(emacs, "Typing...")
    typing = shows(emacs, "▸ explorer: look around · done, 1 tool", "Alpha")
    assert "Explorer Task" not in typing and "Alpha it is." not in typing

    parent.open()
    header(emacs, "Ready")
    done = shows(emacs, "Alpha it is.")
    assert [line.rstrip() for line in below(done, "Alpha it is.")[:3]] == ["Alpha it is.", "", "###"]


def test_leaving_emacs_right_after_a_key_asks_nothing_and_keeps_it(emacs: Emacs, system: System) -> None:
    make_session(emacs, "draft")
    emacs.keys("s", "C-x", "C-c")

    def gone() -> bool:
        try:
            emacs.screen()
        except subprocess.CalledProcessError:  # with Emacs its terminal ends
            return True
        return False

    wait_for(gone, "Emacs to end without a question")
    (document,) = system.sessions.glob("*/branches/main/session.md")
    assert document.read_text().startswith("### drafts")


def test_a_denied_tool_never_runs_and_the_notice_goes(
    emacs: Emacs, model_server: ModelServer, system: System
) -> None:
    write = tool_use("Write", file_path="new.txt", content="one\ntwo\n")
    model_server.say(answer("I write.", write), "Then not.")
    make_session(emacs, "Write it.")
    emacs.keys("C-c", "Enter")
    shows(emacs, "Allow Write", "+one", "+two")
    emacs.keys("C-c", "C-c", "n")
    done = shows(emacs, "Then not.")
    header(emacs, "Ready")
    assert "Allow" not in done
    assert not (system.project / "new.txt").exists()


def test_abort_ends_a_streaming_run_without_waiting_for_the_model(emacs: Emacs, model_server: ModelServer) -> None:
    valve = Valve(answer(text("".join(f"word{number} " for number in range(50)), chunks=50)))
    model_server.say(valve)
    make_session(emacs, "Count.")
    emacs.keys("C-c", "Enter")
    valve.let(10)
    shows(emacs, "word0 ", "word8 ")
    header(emacs, "Typing...")
    emacs.keys("C-c", "C-k")
    header(emacs, "Ready")
    valve.open()
    model_server.wait_until(lambda: model_server.hangups == 1)
    shown = shows(emacs, "word8 ")
    assert "word12" not in shown
    assert "Stopped" in shows(emacs, "Stopped")


def test_typing_below_a_stream_is_echoed_at_once_and_stays_below(emacs: Emacs, model_server: ModelServer) -> None:
    words = "".join(f"word{number}{' ' if number % 12 else chr(10)}" for number in range(400))
    valve = Valve(answer(text(words, chunks=400)))
    model_server.say(valve)
    make_session(emacs, "Count.")
    emacs.keys("C-c", "Enter")
    valve.let(20)
    shows(emacs, "word5 ")
    delays = []
    for number in range(8):
        valve.let(40)
        before = time.monotonic()
        type_text(emacs, f"<{number}>")
        shows(emacs, f"<{number}>")
        delays.append(time.monotonic() - before)
    assert "Typing..." in emacs.screen(), "the stream ended before the typing did"
    print(f"a key was shown after {', '.join(f'{delay:.2f}' for delay in delays)} s")
    valve.open()
    header(emacs, "Ready")
    body = emacs.eval("(buffer-substring-no-properties (point-min) (point-max))")
    assert body.endswith(f"{words}\n\n### <0><1><2><3><4><5><6><7>")


def test_what_is_typed_ahead_is_kept_from_the_answer_and_sent_by_itself(
    emacs: Emacs, model_server: ModelServer
) -> None:
    first = Valve(answer(text("".join(f"word{number} " for number in range(30)), chunks=30)))
    model_server.say(first, "Second.")
    make_session(emacs, "Count.")
    emacs.eval("(progn (setq fill-column 40) (auto-fill-mode 1) t)")
    emacs.keys("C-c", "Enter")
    first.let(10)
    shows(emacs, "word8 ")
    emacs.keys(" ", "n", "o", "Tab", "C-a", "C-k")
    type_text(emacs, "typed ahead at some length, so that it is filled")
    first.let(10)
    shows(emacs, "word18 ", "typed ahead")
    type_text(emacs, " and sent")
    wait_for(lambda: "word18 word19" in same_on_disk(emacs), "what is so far")
    emacs.keys("C-c", "Enter")
    shows(emacs, "[queued]")
    first.open()
    shows(emacs, "Second.")
    header(emacs, "Ready")
    words = "".join(f"word{number} " for number in range(30))
    sent = "typed ahead at some length, so that\n    it is filled and sent"
    assert same_on_disk(emacs) == f"### Count.\n\n{words}\n\n### {sent}\n\nSecond.\n\n### "
    assert model_server.last.messages[-1]["content"][-1]["text"] == sent


def same_on_disk(emacs: Emacs) -> str:
    """Wait until the file has the text of the buffer, and return it."""

    def both() -> tuple[str, str]:
        shown = emacs.eval("(buffer-substring-no-properties (point-min) (point-max))")
        return read(Path(emacs.eval("buffer-file-name"))).body, shown

    wait_for(lambda: len({*both()}) == 1, "the file to have the text of the buffer")
    return both()[1]


def test_the_key_of_a_question_brings_it_back_after_the_daemon_was_killed(
    emacs: Emacs, model_server: ModelServer, system: System
) -> None:
    model_server.say(answer("I write.", tool_use("Write", file_path="new.txt", content="one\n")))
    make_session(emacs, "Write it.")
    emacs.keys("C-c", "Enter")
    shows(emacs, "Allow Write")
    os.kill(system.daemon_pid(), signal.SIGKILL)
    wait_for(lambda: "Allow Write" not in emacs.screen(), "the question to go with the daemon")
    emacs.keys("C-c", "C-c")
    back = shows(emacs, "Allow Write")
    assert "Approve the plan" not in back and "no plan" not in back
    emacs.keys("C-c", "C-c", "n")
    wait_for(lambda: "Allow Write" not in emacs.screen(), "the question to be answered")


def test_an_error_of_the_model_is_in_the_header_line_and_in_the_text(emacs: Emacs, model_server: ModelServer) -> None:
    model_server.say(refusal(400, "invalid_request_error", "the model is out for tea"))
    make_session(emacs, "Hello?")
    emacs.keys("C-c", "Enter")
    header(emacs, "Error: ")
    said = shows(emacs, "``` error")
    assert "out for tea" in "".join(below(said, "``` error")[1:4])
    assert said.count("###") == 2


def test_the_agent_opens_with_a_key_on_its_overlay(emacs: Emacs, model_server: ModelServer) -> None:
    agent = Valve(answer(text("It says alpha.", chunks=2)))
    spawn = tool_use("PersistentAgent", preset="explorer", description="look around", prompt="Read a.txt")
    model_server.say(answer("I delegate.", spawn), agent, "Alpha it is.")
    make_session(emacs, "Delegate it.")
    emacs.keys("C-c", "Enter")
    shows(emacs, "Allow")
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "Explorer Task: look around", "Waiting...")
    emacs.keys("M-x")
    shows(emacs, "M-x")
    type_text(emacs, "pyagentd-overlay--visit")
    emacs.keys("Enter")
    shows(emacs, " explorer-", "claude-sonnet")
    agent.let(1)
    both = shows(emacs, "Explorer Task", "It says")
    assert both.count("Read a.txt") >= 1
    agent.open()
    shows(emacs, "It says alpha.", "Alpha it is.")

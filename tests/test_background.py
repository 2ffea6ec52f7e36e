"""Going into the background, in a real process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.emacs import wait_for

STARTER = """
import sys, os
from pathlib import Path
from pyagentd.installation import in_background
from pyagentd.errors import UserError

starter = os.getpid()

def daemon(ready):
    {body}

try:
    print("code", in_background(daemon, errors=Path(sys.argv[1])))
except UserError as error:
    print("failed:", error)
"""


def start(body: str, log: Path) -> str:
    script = STARTER.format(body=body.replace("\n", "\n    "))
    done = subprocess.run([sys.executable, "-c", script, str(log)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_returns_when_the_daemon_is_ready(tmp_path: Path) -> None:
    assert start("ready()", tmp_path / "log") == "code 0"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise UserError('The port is taken', hint='Name another')", "failed: The port is taken. Name another"),
        ("1 / 0", "failed: ZeroDivisionError: division by zero"),
        ("return", "failed: The daemon ended before it was ready"),
    ],
)
def test_a_failure_before_that_is_told_to_whoever_started_it(tmp_path: Path, body: str, said: str) -> None:
    assert start(body, tmp_path / "log") == said


def test_a_failure_after_that_is_in_the_log_and_in_no_file_opened_meanwhile(tmp_path: Path) -> None:
    other = tmp_path / "other"
    body = f"ready()\nother = os.open({str(other)!r}, os.O_CREAT | os.O_WRONLY)\nraise UserError('The disk is full')"
    assert start(body, tmp_path / "log") == "code 0"
    wait_for(lambda: "The disk is full" in (tmp_path / "log").read_text(), "the log")
    assert other.read_bytes() == b""


def test_what_the_daemon_prints_once_ready_goes_to_its_log(tmp_path: Path) -> None:
    assert start("ready()\nprint('a warning', file=sys.stderr)", tmp_path / "log") == "code 0"
    wait_for(lambda: "a warning" in (tmp_path / "log").read_text(), "the log")


def test_it_goes_on_when_whoever_started_it_has_not_waited(tmp_path: Path) -> None:
    log = tmp_path / "log"
    body = (
        "os.kill(starter, 9)\nwhile ' Z ' not in Path(f'/proc/{starter}/stat').read_text(): pass\n"
        "ready()\nprint('still here', file=sys.stderr)"
    )
    script = STARTER.format(body=body.replace("\n", "\n    "))
    # Its output is read to the end, which the daemon holds open: until then it stays a zombie.
    done = subprocess.run([sys.executable, "-c", script, str(log)], capture_output=True, timeout=20)
    assert done.returncode == -9
    wait_for(lambda: log.exists() and "still here" in log.read_text(), "the log")
    assert "BrokenPipe" not in log.read_text()

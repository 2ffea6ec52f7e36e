"""What other programs have the daemon do is seen in the lists of an Emacs that shows none of it, and asks nobody."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_sessions_screen import show_list, talk
from tests.e2e.test_terminal import shows
from tests.server import ModelServer, silent

__all__ = ["talk"]  # a fixture


def test_lists_follow_what_others_do(system: System, talk: tuple[str, Path], model_server: ModelServer) -> None:
    session, _ = talk
    emacs = system.emacs(terminal=True)
    show_list(emacs, "running")
    shows(emacs, "Nothing is running.")
    model_server.say(silent())
    system.ok("send", session, "--no-wait", "Are you there?")
    shows(emacs, "programming-assistant", "busy", "Making tea", "1 running")
    emacs.keys("k")
    shows(emacs, "Stopped Making tea")
    shows(emacs, "Nothing is running.")

    show_list(emacs, "usage")
    shows(emacs, "by day, last 30 days", "Together")
    emacs.keys("s")
    before = next(line for line in shows(emacs, "by session").splitlines() if "Making tea" in line)
    model_server.say("Milk first.")
    system.ok("send", session, "And milk?")
    wait_for(lambda: before not in emacs.screen() and "Making tea" in emacs.screen(), "it to be counted again")
    assert before.split()[2] != next(x for x in emacs.screen().splitlines() if "Making tea" in x).split()[2]


def test_what_is_typed_at_once_is_read_by_the_command_that_it_follows(system: System, talk: tuple[str, Path]) -> None:
    emacs = system.emacs(terminal=True)
    show_list(emacs, "sessions")
    shows(emacs, "Making tea")
    for_lists = (("M-x", "pyagentd-list", "Enter", name, "Enter") for name in ("sessions", "usage"))
    emacs.keys(*itertools.chain(*for_lists))
    shows(emacs, "by day, last 30 days", "Together")

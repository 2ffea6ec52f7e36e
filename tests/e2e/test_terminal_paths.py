"""However an agent ends, Emacs shows no progress of it any more and its parent has exactly one result.

The part of ``tests/runtime/test_terminal_paths.py`` that needs real processes: a daemon to kill, an Emacs to kill, a
buffer with a real overlay.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.test_conversation import FINISHED, open_session, send
from tests.server import ModelServer, Request, answer, refusal, text, tool_use

OVERLAYS = "(apply #'+ (mapcar (lambda (b) (with-current-buffer b (save-restriction (widen) (length (seq-filter"
OVERLAYS += " (lambda (o) (overlay-get o 'gptel-persistent-agent)) (overlays-in (point-min) (1+ (point-max))))))))"
OVERLAYS += " (buffer-list)))"

HANGS = answer(text("Hello there", chunks=2), hang_after=4)
LOOK = answer("I look.", tool_use("Read", file_path="a.txt"))

Act = Callable[[System, Emacs, Path], None]


def wait(system: System, emacs: Emacs, agent: Path) -> None:
    """Nobody does anything."""


def abort_agent(system: System, emacs: Emacs, agent: Path) -> None:
    system.ok("abort", agent.name)


def abort_parent(system: System, emacs: Emacs, agent: Path) -> None:
    emacs.eval("(progn (pyagentd-abort) t)")


def stop_daemon(system: System, emacs: Emacs, agent: Path) -> None:
    system.ok("stop")


def kill_daemon(system: System, emacs: Emacs, agent: Path) -> None:
    os.kill(system.daemon_pid(), signal.SIGKILL)


def kill_buffer(system: System, emacs: Emacs, agent: Path) -> None:
    emacs.eval("(progn (kill-buffer) t)")
    system.ok("abort", agent.name)


def kill_emacs(system: System, emacs: Emacs, agent: Path) -> None:
    emacs.kill()
    system.ok("abort", agent.name)


def kill_both(system: System, emacs: Emacs, agent: Path) -> None:
    kill_daemon(system, emacs, agent)
    emacs.kill()


@dataclass(frozen=True, slots=True)
class Ending:
    """A way an agent ends: what the parent is told (a regular expression), what the model says, what is done."""

    name: str
    result: str
    says: Sequence[Any] = (HANGS,)
    act: Act = wait
    emacs_lives: bool = True


ENDINGS = [
    Ending("success", r"found\Z", (LOOK, answer("found"))),
    Ending("empty answer", r"finished without saying anything", (answer(),)),
    Ending("provider error", r"Error: API failure\n.*no such model", (refusal(400, "x", "no such model"),)),
    Ending("cut in the middle", r"Error: Network failure", (answer(text("found", chunks=3), cut_after=5),) * 12),
    Ending("agent stopped", r"Error: User aborted agent", act=abort_agent),
    Ending("parent stopped", r"abort", act=abort_parent),
    Ending("daemon stopped", r"The daemon ended", act=stop_daemon),
    Ending("daemon killed", r"The daemon ended", act=kill_daemon),
    Ending("parent's buffer killed", r"Error: User aborted agent", act=kill_buffer),
    Ending("Emacs killed", r"Error: User aborted agent", act=kill_emacs, emacs_lives=False),
    Ending("daemon and Emacs killed", r"The daemon ended", act=kill_both, emacs_lives=False),
]


@pytest.mark.cold
@pytest.mark.spec("000", "Overlay cleaned up on all paths")
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_every_end_is_one_result_and_no_overlay_in_emacs(
    system: System, model_server: ModelServer, ending: Ending
) -> None:
    system.use_server(model_server.url)
    (system.project / "a.txt").write_text("alpha\n")
    _, branch = system.new()
    approve(branch)
    script(model_server, ending.says)
    emacs = system.emacs()
    open_session(emacs, branch)
    emacs.eval("(setq most 0)")
    emacs.eval(f"(advice-add 'pyagentd-overlay-update :after (lambda (&rest _) (setq most (max most {OVERLAYS}))))")
    send(emacs, "Delegate.")
    if ending.act is not wait:
        agent = wait_for(lambda: next(iter((branch / "agents").glob("[!.]*")), None), "the agent to begin")
        wait_for(lambda: "Hello" in log(agent), "the agent to speak")
        emacs.wait(f"(= 1 {OVERLAYS})")
        ending.act(system, emacs, agent)
    if not ending.emacs_lives:
        emacs = system.emacs()
    if ending.act in (kill_both, kill_daemon, stop_daemon):
        system.ok("serve", "--detach")
    if ending.act in (kill_buffer, kill_emacs, kill_both):
        open_session(emacs, branch)
    emacs.wait(f"(and (eq pyagentd-attach-state t) {FINISHED})")
    assert emacs.eval(OVERLAYS) == 0
    if ending.emacs_lives:
        assert emacs.eval("most") == 1, "it was shown"
    given = results(branch)
    assert len(given) == 1 and re.search(ending.result, given[0], re.DOTALL), given
    assert system.json("status")["runs"] == 0


def approve(branch: Path) -> None:
    """Let the session's preset allow whatever its scope does."""
    file = branch / "preset.md"
    file.write_text(file.read_text().replace("---\n", "---\nprofile: open\n", 1))


def script(server: ModelServer, says: Sequence[Any]) -> None:
    """The parent delegates and ends, the agent says what it is to say."""
    said = iter(says)
    call = tool_use("PersistentAgent", preset="explorer", description="look", prompt="Look.", allowed_paths=["/**"])

    def reply(request: Request) -> Any:
        if "Look." in json.dumps(request.messages[0]):
            return next(said, answer("found"))
        return answer("Done") if len(request.messages) > 1 else answer("I delegate.", call)

    server.rule = reply


def log(branch: Path) -> str:
    file = branch / "messages.jsonl"
    return file.read_text() if file.exists() else ""


def results(branch: Path) -> list[str]:
    """What the log says the call of the agent came to, each time it says so."""
    rows = [json.loads(line) for line in log(branch).splitlines()]
    parts = [row["data"]["data_json"] for row in rows if row["type"] == "part"]
    return [
        str(part.get("output") or part.get("errorText"))
        for part in parts
        if part["type"] == "tool-PersistentAgent" and part["state"].startswith("output-")
    ]

"""What waits for a human outlives the daemon and Emacs: killed or stopped, both."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.family import family
from tests.runtime.test_resume import agents_of, calls_of, documents, whole_tree
from tests.runtime.world import assert_closed
from tests.server import ModelServer

PRESET = """\
---
description: helper
mode: all
backend: anthropic
model: model-main
tools: [Read, Bash, PersistentAgent]
profile:
  allow: ["tool:PersistentAgent:.*", "tool:Bash:sleep .*"]
  ask: ["tool:Bash:.*"]
paths:
  read: ["HOME/**"]
shell_commands:
  allow: ["*"]
---
You are a helper.
"""
SLEEP = f"sleep {86400 + os.getpid()}"  # like no other command
WAIT_S = 30.0


@pytest.fixture
def home(system: System, model_server: ModelServer) -> System:
    system.use_server(model_server.url)
    presets = system.home / "presets"
    presets.mkdir()
    (presets / "helper.md").write_text(PRESET.replace("HOME", str(system.home)))  # where nobody else makes files
    system.env["PYAGENTD_PRESETS_DIR"] = str(presets)
    model_server.rule = family(preset="helper")
    return system


def opened(system: System, branch: Path) -> Emacs:
    emacs = system.emacs()
    emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
    return emacs


def begin(system: System, name: str) -> tuple[Emacs, BranchRef]:
    """Start the family from Emacs."""
    _, branch = system.new(name, preset="helper")
    emacs = opened(system, branch)
    emacs.eval('(progn (goto-char (point-max)) (insert "Root") (pyagentd-send) t)')
    return emacs, paths.ref_of(branch)


def asks(system: System, ref: BranchRef, number: int) -> list[dict[str, Any]]:
    """Return the questions of the session once there are so many, by detail."""

    def found() -> list[dict[str, Any]] | None:
        rows = [row for row in system.json("asks") if row["branch"].startswith(str(ref.branch_dir))]
        return sorted(rows, key=lambda row: str(row["detail"])) if len(rows) == number else None

    return list(wait_for(lambda: found() or number == 0, f"{number} questions", WAIT_S) or [])


def pending(emacs: Emacs) -> set[str]:
    return set(emacs.eval("(mapcar (lambda (ask) (plist-get ask :id)) pyagentd-ask--pending)") or ())


def overlays(emacs: Emacs) -> int:
    return int(emacs.eval("(length pyagentd-overlay--table)"))


def end_daemon(system: System, how: str) -> str:
    """End the daemon, and return what was said."""
    if how == "stop":
        return system.ok("stop")
    pid = system.daemon_pid()
    if how == "terminate":
        os.kill(pid, signal.SIGTERM)
    else:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{pid}/cmdline").exists() or _is_zombie(pid), "the daemon to end", WAIT_S)
    return ""


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def allow(system: System, ask: dict[str, Any]) -> None:
    assert system.json("answer", ask["id"], "allow") == {"accepted": True}


def finished(ref: BranchRef) -> None:
    """Wait for the end of the run at the root, and of what is written of it."""
    journal = ref.branch_dir / "messages.jsonl"
    wait_for(lambda: '"state":"kept"' in journal.read_text(), "the run's end", WAIT_S)


def sleeping() -> list[int]:
    wanted = SLEEP.replace(" ", "\0").encode()
    found = []
    for place in (entry for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if wanted in command and not _is_zombie(int(place.name)):
            found.append(int(place.name))
    return found


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_two_questions_at_depth_2_and_3_are_answered_out_of_order_across_a_restart(home: System, how: str) -> None:
    emacs, undisturbed = begin(home, "undisturbed")
    for ask in asks(home, undisturbed, 2)[::-1]:
        allow(home, ask)
    finished(undisturbed)
    emacs.close()

    emacs, ref = begin(home, "disturbed")
    three, two = asks(home, ref, 2)
    assert [three["detail"], two["detail"]] == ["echo three", "echo two"]
    depths = [len(Path(ask["branch"]).relative_to(ref.branch_dir).parts) // 2 + 1 for ask in (two, three)]
    assert depths == [2, 3]
    wait_for(lambda: pending(emacs) == {two["id"], three["id"]}, "both in Emacs", WAIT_S)
    wait_for(lambda: overlays(emacs) == 2, "both agents in the text", WAIT_S)
    allow(home, three)
    wait_for(lambda: calls_of(ref)["call_middle"]["state"] == "output-available", "the first result", WAIT_S)

    emacs.kill()
    said = end_daemon(home, how)
    assert ("1 question stays open" in said) == (how == "stop")
    (again,) = asks(home, ref, 1)  # the command starts a daemon
    emacs = opened(home, ref.branch_dir)
    wait_for(lambda: pending(emacs) == {two["id"]}, "the other in a new Emacs", WAIT_S)
    wait_for(lambda: overlays(emacs) == 1, "the other agent in the text", WAIT_S)
    assert again["id"] == two["id"] and again["run_id"] == two["run_id"]
    allow(home, again)
    finished(ref)

    assert documents(ref) == documents(undisturbed)
    calls = [call for each in whole_tree(ref) for call in calls_of(each).values()]
    assert len(calls) == 5 and all(call["state"] == "output-available" for call in calls)
    assert all(assert_closed(each)["reason"] == "done" for each in whole_tree(ref))
    emacs.wait("(and (null pyagentd-overlay--table) (null pyagentd-ask--pending))")
    assert home.json("asks") == []
    late = home.run("answer", two["id"], "deny")
    assert late.returncode == 1 and "answered already" in late.stderr


def test_both_questions_come_back_and_emacs_that_stayed_goes_on(home: System) -> None:
    emacs, ref = begin(home, "test")
    three, two = asks(home, ref, 2)
    end_daemon(home, "terminate")
    assert {ask["id"] for ask in asks(home, ref, 2)} == {two["id"], three["id"]}
    emacs.wait("(= 2 (length pyagentd-ask--pending))")
    allow(home, two)
    allow(home, three)
    finished(ref)
    assert assert_closed(ref)["reason"] == "done"
    emacs.wait("(null pyagentd-overlay--table)")
    emacs.wait('(string-suffix-p "\n\n### " (buffer-substring-no-properties (point-min) (point-max)))')
    emacs.eval("(progn (save-buffer) t)")
    # Once as the call's result, and once in what the root says of it.
    assert documents(ref)[0].count("Third: three") == 2 and documents(ref)[0].count("Second: two") == 2


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a restart"])
def test_abort_at_the_root_ends_everything(home: System, model_server: ModelServer, restarted: bool) -> None:
    model_server.rule = family(preset="helper", second="echo two" if restarted else SLEEP)
    emacs, ref = begin(home, "test")
    (third, *_) = asks(home, ref, 2 if restarted else 1)
    if restarted:
        end_daemon(home, "kill")
        asks(home, ref, 2)
        emacs.wait("(= 2 (length pyagentd-ask--pending))")
    else:
        wait_for(sleeping, "the command", WAIT_S)
    began = time.monotonic()
    home.ok("abort", ref.session_id)
    assert home.json("asks") == [] and not sleeping()
    emacs.wait("(and (null pyagentd-overlay--table) (null pyagentd-ask--pending))")
    print(f"everything had ended {time.monotonic() - began:.2f} s later")
    assert home.json("status")["runs"] == 0
    assert all(assert_closed(each)["reason"] == "aborted" for each in whole_tree(ref))
    late = home.run("answer", third["id"], "allow")
    assert late.returncode == 1 and "was stopped" in late.stderr


def test_what_waits_is_found_without_the_database(home: System) -> None:
    emacs, ref = begin(home, "test")
    asks(home, ref, 2)
    emacs.kill()
    end_daemon(home, "kill")
    for file in home.sessions.glob("state.db*"):
        file.unlink()
    assert len(asks(home, ref, 2)) == 2  # nobody opened the session: all were looked at


def test_a_daemon_killed_while_it_resumes_loses_nothing(home: System) -> None:
    emacs, ref = begin(home, "test")
    before = {ask["id"] for ask in asks(home, ref, 2)}
    emacs.kill()
    for pause_s in (0.0, 0.05, 0.2):
        end_daemon(home, "kill")
        home.ok("status", "--json") if home.run("status").returncode == 0 else home.run("sessions")
        time.sleep(pause_s)
    assert {ask["id"] for ask in asks(home, ref, 2)} == before
    for ask in asks(home, ref, 2):
        allow(home, ask)
    finished(ref)
    assert assert_closed(ref)["reason"] == "done"
    assert len(agents_of(ref)) == 2
    log = [json.loads(line) for line in (ref.branch_dir / "messages.jsonl").read_text().splitlines()]
    done = [row["data"]["tool_call_id"] for row in log if row["data"].get("tool_state") == "output-available"]
    assert sorted(done) == ["call_middle", "call_second"]

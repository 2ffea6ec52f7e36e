"""Following a session from the command line, and what happens in it with nobody there: a real daemon and server."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.server import ModelServer, answer, text, tool_use

LAPTOP = "If the user closes their laptop mid-turn and reconnects later, can the turn resume without a new message?"


def joined(lines: list[dict[str, Any]]) -> list[Any]:
    """What is replayed of events, neighbouring text of one role together."""
    found: list[Any] = []
    for line in lines:
        if not line["seq"]:
            continue
        if line["kind"] == "insert" and found and found[-1][:2] == ["insert", line["role"]]:
            found[-1][2] += line["text"]
        elif line["kind"] == "insert":
            found.append(["insert", line["role"], line["text"]])
        else:
            found.append([line["kind"], {key: value for key, value in line.items() if key != "seq"}])
    return found


def follow(system: System, session: str, *options: str) -> subprocess.Popen[str]:
    command = system.command("attach", session, "--json", *options)
    return subprocess.Popen(command, env=system.env, stdout=subprocess.PIPE, text=True)


def until(process: subprocess.Popen[str], lines: list[dict[str, Any]], kind: str, **facts: Any) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1]["kind"] == kind and facts.items() <= lines[-1].items():
            return
    raise AssertionError(f"no {kind} {facts} in {lines}")


@pytest.mark.spec("002", LAPTOP)
def test_a_session_is_followed_by_several_left_mid_answer_and_gone_on_with(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    session, _ = system.new()
    (system.project / "a.txt").write_text("alpha\n" * 300)
    model_server.say(
        answer("I look.", tool_use("Read", id="toolu_1", file_path=str(system.project / "a.txt"))),
        answer(text("word " * 300, chunks=150), pause_s=0.005),
    )
    first, second = follow(system, session), follow(system, session)
    live: list[dict[str, Any]] = []
    other: list[dict[str, Any]] = []
    until(first, live, "status", state="idle")
    until(second, other, "status", state="idle")
    system.ok("send", session, "Go.", "--no-wait")
    until(second, other, "insert", role="response")
    second.send_signal(signal.SIGKILL)  # the laptop is closed
    second.wait()
    seen = max(line["seq"] for line in other)
    until(first, live, "run", phase="finished")
    first.send_signal(signal.SIGINT)
    assert first.wait(10) == 130
    whole = [json.loads(line) for line in system.ok("attach", session, "--json", "--until-idle").splitlines()]
    assert joined(whole) == joined(live)
    options = ("--json", "--from", str(seen), "--until-idle")
    rest = [json.loads(line) for line in system.ok("attach", session, *options).splitlines()]
    known = [line for line in other if line["seq"] <= seen]
    assert joined([*known, *rest]) == joined(live)


def test_what_begins_by_itself_is_traced_audited_and_delivered_once(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    session, _ = system.new()
    made = system.json("schedule", "add", session, "Look again.", "--every", "1h")
    assert [each["id"] for each in system.json("schedule", "list")] == [made["id"]]
    added = system.run("schedule", "add", session, "And again.", "--every", "1h")
    assert "until" in added.stdout and "ends after 7 days" in added.stderr
    shown = system.run("schedule", "list")
    assert "until" in (shown.stdout + shown.stderr) and "And again." in shown.stdout
    system.ok("schedule", "cancel", added.stdout.split()[0])
    system.ok("schedule", "run", made["id"])
    system.ok("attach", session, "--until-idle")
    first = system.json("trigger", session, "Built.", "--delivery-id", "7", "--source", "webhook")
    again = system.json("trigger", session, "Built.", "--delivery-id", "7", "--source", "webhook")
    assert (first["duplicate"], again["duplicate"], again["message"]) == (False, True, first["message"])
    system.ok("attach", session, "--until-idle")
    system.ok("schedule", "cancel", made["id"])
    trace = system.json("show", session, "--trace")
    assert "* done (by schedule)  Look again." in system.ok("show", session, "--trace")
    assert [run["trigger"]["source"] for run in trace["runs"]] == ["schedule", "webhook"]
    for number, request in enumerate(model_server.requests, 1):
        shown = system.json("show", session, "--step", str(number), "--request")
        assert shown == request.body
    assert "trigger:webhook:7" in system.ok("audit", session)
    assert system.run("show", session, "--step", "99").returncode == 1

"""``pyagentd agents``: the tree for people and for scripts, and stopping one agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.test_run import server, system, whole_system
from tests.e2e.conftest import System
from tests.server import ModelServer, Request, answer, tool_use

__all__ = ["server", "system", "whole_system"]  # fixtures

pytestmark = pytest.mark.e2e
PRESET = """\
---
description: Has others work.
mode: all
backend: anthropic
model: m
tools: [PersistentAgent]
---
You delegate.
"""
GRANT = ("--allow", "tool:PersistentAgent:.*")


def spawn(preset: str, prompt: str) -> Any:
    return tool_use("PersistentAgent", preset=preset, description=f"{prompt} it", prompt=prompt)


@pytest.fixture
def session(system: System, server: ModelServer) -> str:
    """A session whose agent has an agent; both have answered."""

    def reply(request: Request) -> Any:
        said, turns = json.dumps(request.messages[0]), len(request.messages)
        if "Delegate" in said:
            return answer("Done") if turns > 1 else answer(spawn("delegate", "Build"))
        if "Build" in said:
            return answer("built") if turns > 1 else answer(spawn("explorer", "Look"))
        return answer("seen")

    server.rule = reply
    (system.project / ".pyagentd" / "presets").mkdir(parents=True, exist_ok=True)
    (system.project / ".pyagentd" / "presets" / "delegate.md").write_text(PRESET)
    system.ok("presets", "--trust", "--root", str(system.project))
    id, _ = system.new("tree", preset="delegate")
    system.ok("send", id, "Delegate.", *GRANT)
    return id


def test_scripts_get_a_tree(system: System, session: str) -> None:
    (build,) = system.json("agents", session)
    (look,) = build["agents"]
    assert (build["preset"], build["state"], build["result"]) == ("delegate", "finished", "built")
    assert (look["preset"], look["description"], look["result"]) == ("explorer", "Look it", "seen")
    assert look["background"] is False and look["agents"] == [] and build["tokens"] > 0


def test_people_get_a_line_for_each(system: System, session: str) -> None:
    _, build, look = (line.split("\t") for line in system.ok("agents", session).splitlines())
    assert build[0] == "└ delegate  Build it" and build[1] == "finished" and build[4] == "built"
    assert look[0] == "  └ explorer  Look it" and look[3].startswith("explorer-") and look[4] == "seen"


def test_a_finished_agent_is_prompted_again_and_its_parent_hears_nothing(system: System, session: str) -> None:
    (build,) = system.json("agents", session)
    before = system.ok("show", session)
    assert "built" in system.ok("send", build["id"], "And?")
    assert system.ok("show", session) == before
    assert "has no run to abort" in system.run("agents", session, "--abort", build["id"]).stderr


def test_one_that_is_not_there_is_said(system: System, session: str) -> None:
    done = system.run("agents", session, "--abort", "nobody", "--json")
    assert done.returncode == 2 or json.loads(done.stdout or done.stderr)
    assert "nobody" in done.stdout + done.stderr

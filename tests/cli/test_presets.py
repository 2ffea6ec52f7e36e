"""``pyagentd presets``: what it lists, and how what a project has comes to be trusted."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import System
from tests.e2e.conftest import system as whole_system

__all__ = ["whole_system"]  # a fixture

pytestmark = pytest.mark.e2e

PRESET = "---\ndescription: {0}.\nbackend: offline\nmodel: m\ntools: [Read]\n---\nHi\n"


@pytest.fixture
def system(whole_system: System) -> System:
    # The directory of the configuration is protected from tools, so it must not hold the project.
    (whole_system.home / "config").mkdir()
    whole_system.env["PYAGENTD_CONFIG"] = str(whole_system.home / "config" / "config.toml")
    return whole_system


def put(system: System, where: str, name: str, text: str) -> None:
    directory = (system.home / "config" if where == "user" else system.project / ".pyagentd") / "presets"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.md").write_text(text)


def test_a_projects_presets_wait_for_trust_which_outlives_the_daemon(system: System) -> None:
    put(system, "project", "reviewer", PRESET.format("Finds faults"))
    rows = {row["name"]: row for row in system.json("presets")}
    assert rows["reviewer"]["trusted"] is False and rows["explorer"]["trusted"] is True
    listed = system.run("presets")
    assert "NOT TRUSTED: Finds faults." in listed.stdout and "presets --trust" in listed.stderr
    refused = system.run("new", "x", "--preset", "reviewer")
    assert refused.returncode != 0 and "presets --trust" in refused.stderr

    trusted = system.run("presets", "--trust")
    assert trusted.returncode == 0 and f"{system.project}/.pyagentd/presets/reviewer.md" in trusted.stderr
    assert "Finds faults" in trusted.stderr and trusted.stderr.endswith("pyagentd: trusted\n")
    system.ok("stop")
    rows = {row["name"]: row for row in system.json("presets")}
    assert rows["reviewer"]["trusted"] is True
    system.ok("new", "x", "--preset", "reviewer")

    put(system, "project", "reviewer", PRESET.format("Changed"))
    assert {row["name"]: row for row in system.json("presets")}["reviewer"]["trusted"] is False


def test_a_broken_preset_is_told_with_its_line_and_hides_no_other(system: System) -> None:
    put(system, "user", "mine", PRESET.format("Mine"))
    put(system, "user", "wrong", PRESET.format("Wrong").replace("tools: [Read]", "temperature: hot"))
    put(system, "project", "theirs", PRESET.format("Theirs").replace("tools: [Read]", "profile: lockd"))
    listed = system.ok("presets")
    assert f"{system.home}/config/presets/wrong.md:5: `temperature` is 'hot'" in listed
    assert f"{system.project}/.pyagentd/presets/theirs.md:5: `profile` is 'lockd'" in listed
    assert "Mine." in listed and "explorer" in listed
    refused = system.run("presets", "--trust")
    assert "Cannot be used" in refused.stderr and "theirs.md:5" in refused.stderr
    assert "nothing here waits for your trust" in refused.stderr
    assert "wait" not in system.run("presets").stderr


def test_a_preset_without_a_model_is_answered_by_the_stand_in_and_else_named_with_its_file(system: System) -> None:
    put(system, "user", "nomodel", "---\nbackend: Claude\n---\nhi")
    assert "stand-in" in system.ok("ask", "--preset", "nomodel", "hello")
    system.ok("stop")
    system.env |= {"PYAGENTD_BACKEND": "anthropic", "ANTHROPIC_API_KEY": "test-key"}
    refused = system.run("ask", "--preset", "nomodel", "hello")
    assert refused.returncode == 1 and "The preset nomodel names no model" in refused.stderr
    assert f"Write `model: NAME` into {system.home}/config/presets/nomodel.md" in refused.stderr


def test_trusting_servers_that_cannot_be_read_fails_and_says_why(system: System) -> None:
    (system.project / ".mcp.json").write_text("{")
    said = system.run("mcp", "trust", "--root", str(system.project))
    assert said.returncode == 1 and ".mcp.json" in said.stderr
    told = system.run("mcp", "trust", "--json", "--root", str(system.project))
    assert told.returncode == 1 and ".mcp.json" in json.loads(told.stdout)["error"]

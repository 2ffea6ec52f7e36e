"""A named agent from the command line alone, as scripts use it: made, talked with, saved, destroyed, made again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for


def test_an_agent_lives_and_ends_twice_without_emacs(system: System) -> None:
    made = system.json("agent", "init", "bob", "--system-prompt", "You look after things.", "--permissions", "open")
    place = Path(made["dir"])
    assert made == {"name": "bob", "dir": str(system.home / "sessions-agents/bob"), "session_id": "bob"}
    assert {"agent.json", "docs", "sessions", "workspace"} <= {entry.name for entry in place.iterdir()}
    system.ok("send", "bob", "Remember the sheep")
    (listed,) = system.json("agent", "list")["agents"]
    assert (listed["name"], listed["status"], listed["permissions"]) == ("bob", "active", "open")
    saved = system.json("context", "save", "bob", "about sheep")
    assert (saved["trigger"], saved["message_count"]) == ("manual_save", 2)
    system.ok("context", "clear", "bob")
    assert [row["id"] for row in system.json("context", "history", "bob")] == [saved["id"]]
    unknown = system.run("context", "history", "nosuch").stderr
    assert "No session, branch or agent is called 'nosuch'" in unknown and "pyagentd sessions" in unknown
    system.ok("context", "restore", "bob", saved["id"][:8])
    (place / "workspace/work.txt").write_text("work")

    refused = system.run("agent", "destroy", "bob", "--json")
    assert refused.returncode == 2 and "--yes" in refused.stderr and place.is_dir()
    kept = system.json("agent", "destroy", "bob", "--keep-files", "--yes")
    assert (kept["files"], len(kept["saved"])) == ("kept", 1)
    os.kill(system.daemon_pid(), signal.SIGKILL)
    assert system.json("agent", "list")["agents"] == []
    assert system.run("send", "bob", "Hello").returncode == 1
    assert [row["id"] for row in system.json("context", "history", "bob")] == [*kept["saved"], saved["id"]]

    assert system.json("agent", "init", "bob", "--permissions", "standard") == made
    (listed,) = system.json("agent", "list")["agents"]
    assert listed["status"] == "idle" and "Session: none" in system.ok("status", "bob")
    config = system.json("agent", "config", "bob")["config"]
    assert (config["system_prompt"], config["permissions"]) == ("You look after things.", "standard")
    assert system.ok("agent", "config", "bob", "name", "bert") == "bert\n"
    assert system.json("agent", "config", "bert", "name", "bob")["config"]["name"] == "bob"
    assert (place / "workspace/work.txt").read_text() == "work"
    system.ok("context", "restore", "bob", kept["saved"][0])
    assert "2 messages" in system.ok("status", "bob")

    trashed = system.json("agent", "destroy", "bob", "--yes")
    assert (trashed["files"], place.exists()) == ("trashed", False)
    trash = system.home / ".local/share/Trash/files/bob"
    assert (trash / "workspace/work.txt").is_file() and len(list((trash / "sessions").iterdir())) == 3
    assert system.json("agent", "init", "bob") == made
    assert not (place / "workspace/work.txt").exists() and system.json("tasks", "bob") == []
    assert [entry["action"] for entry in system.json("audit")].count("agent:destroy") == 2
    subprocess.run(["git", "-C", place / "workspace", "rev-parse", "HEAD"], check=True, capture_output=True)


def test_the_welcome_is_in_the_conversation_and_the_model_is_told_with_its_source(system: System) -> None:
    system.ok("agent", "init", "bob", "--system-prompt", "You count sheep.")
    assert "You count sheep." in system.ok("show", "bob")
    (listed,) = system.json("agent", "list")["agents"]
    effective = listed["effective_model"]
    assert listed["status"] == "idle" and listed["model"] is None
    assert system.ok("agent", "config", "bob", "model") == f"{effective} (from preset.md)\n"
    told = system.json("agent", "config", "bob")
    assert (told["effective_model"], told["model_source"]) == (effective, "preset.md")
    assert f"{effective} of " in system.ok("send", "bob", "/model")


def test_the_idle_timer_saves_and_clears(system: System) -> None:
    system.ok("agent", "init", "bob", "--permissions", "open")
    system.ok("settings", "idle_timeout", "1")
    system.ok("send", "bob", "Remember the sheep")
    wait_for(lambda: system.json("context", "history", "bob"), "the conversation to be saved")
    (saved,) = system.json("context", "history", "bob")
    assert (saved["trigger"], saved["message_count"]) == ("idle_timeout", 2)
    wait_for(lambda: system.json("agent", "list")["agents"][0]["status"] == "idle", "the agent to be idle")
    assert "Session: none" in system.ok("status", "bob")
    system.ok("settings", "idle_timeout", "never")
    system.ok("context", "restore", "bob", saved["id"])
    assert "2 messages" in system.ok("status", "bob")


def test_the_end_of_the_daemon_saves_and_the_next_one_begins_idle(system: System) -> None:
    system.ok("agent", "init", "bob", "--permissions", "open")
    system.ok("send", "bob", "Remember the sheep")
    system.ok("stop")
    (listed,) = system.json("agent", "list")["agents"]  # starts the next one
    wait_for(lambda: system.json("agent", "list")["agents"][0]["status"] == "idle", "the agent to be idle")
    assert listed["name"] == "bob"
    (saved,) = system.json("context", "history", "bob")
    assert (saved["trigger"], saved["message_count"]) == ("shutdown", 2)
    assert "Session: none" in system.ok("status", "bob")
    system.ok("context", "restore", "bob", saved["id"])
    assert "2 messages" in system.ok("status", "bob")


def test_destroying_ends_what_runs_and_keeps_the_records(system: System) -> None:
    system.ok("agent", "init", "bob", "--permissions", "open")
    system.ok("send", "bob", "Remember the sheep")
    done = system.json("agent", "destroy", "bob", "--yes")
    assert (done["files"], len(done["saved"])) == ("trashed", 1) and not Path(done["dir"]).exists()
    (gone,) = system.json("agent", "list", "--all")["agents"]
    assert gone["status"] == "destroyed" and system.json("agent", "list")["agents"] == []
    (saved,) = system.json("context", "history", "bob")
    assert (saved["trigger"], saved["id"]) == ("destroy", done["saved"][0])
    refused = system.run("send", "bob", "Hello")
    assert refused.returncode == 1 and "destroyed" in refused.stderr
    assert "agent:destroy" in [entry["action"] for entry in system.json("audit")]

"""A named agent from the command line alone, as scripts use it: made, talked with, saved, destroyed, made again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.e2e.conftest import System


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

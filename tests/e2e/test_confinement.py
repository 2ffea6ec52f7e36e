"""A command of an agent through the real daemon: its scope holds, and nothing of pyagentd's own is in its reach."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.server import ModelServer, answer, tool_use
from tests.tools.confined import MECHANISMS

pytestmark = pytest.mark.cold

ATTACK = """
import ctypes, json, os, re, signal, socket, subprocess, sys
branch, sessions, runtime, daemon = sys.argv[1:5]

def attempt(name, deed):
    if sys.argv[6:] and name not in sys.argv[6:]:
        return
    try:
        print(name, "did", deed())
    except BaseException as error:
        print(name, "failed", type(error).__name__)

def connect():
    socket.socket(socket.AF_UNIX).connect(runtime + "/daemon.sock")
    return "connect"

def greet():
    told = open(runtime + "/daemon.eld").read()
    port, token = re.search(r":port (\\d+)", told)[1], re.search(r':token "(\\w+)"', told)[1]
    connection = socket.create_connection(("127.0.0.1", int(port)))
    hello = '(call 1 hello ((:proto 1 :human t :client "x" :token "%s")))' % token
    connection.sendall(("%06x" % len(hello) + hello).encode())
    return "greeted" if connection.recv(10) else 1 / 0

attempt("preset", lambda: open(branch + "/preset.md", "a").write("x"))
attempt("log", lambda: open(branch + "/messages.jsonl", "a").write("x"))
attempt("plan", lambda: os.replace("evil", branch + "/scope-plan.yml"))
attempt("link", lambda: os.link(branch + "/preset.md", "preset-link") or open("preset-link", "a").write("x"))
attempt("move", lambda: os.rename(sessions, sessions + ".old"))
attempt("state", lambda: open(sessions + "/state.db", "r+b").write(b"x"))
attempt("config", lambda: open(os.path.dirname(sessions) + "/config.toml", "w").write("x"))
attempt("socket", connect)
attempt("runtime", lambda: open(runtime + "/daemon.eld").read())
attempt("environment", lambda: open("/proc/%s/environ" % daemon, "rb").read())
attempt("root", lambda: open("/proc/%s/root%s/preset.md" % (daemon, branch), "a").write("x"))
attempt("signal", lambda: os.kill(int(daemon), signal.SIGCONT) or "sent")
attempt("approve", lambda: subprocess.run(
    [sys.executable, "-m", "pyagentd", "asks"], check=True, capture_output=True, env={**os.environ,
    "PYAGENTD_RUNTIME_DIR": runtime, "PYAGENTD_SESSIONS_DIR": sessions, "PYTHONPATH": sys.argv[5]}).stdout)
attempt("tcp", greet)
attempt("work", lambda: open("made", "w").write("x"))
"""

Attack = Callable[..., dict[str, str]]

HARMFUL = {
    *("preset", "log", "plan", "link", "move", "state", "config"),
    *("socket", "runtime", "environment", "root", "signal", "approve", "tcp"),
}


@pytest.fixture
def attack(system: System, model_server: ModelServer) -> Attack:
    """Have an agent run the attack; return what each attempt came to, and the result the model got as "text"."""

    def attack(confinement: str, *only: str) -> dict[str, str]:
        system.env["PYAGENTD_CONFINEMENT"] = confinement
        system.use_server(model_server.url)
        system.ok("serve", "--detach", "--tcp", "0")
        session, branch = system.new()
        (system.project / "attack.py").write_text(ATTACK)
        (system.project / "evil").write_text("evil")
        package = Path(__file__).parents[2]
        words = [
            str(branch),
            str(system.sessions),
            str(system.runtime),
            str(system.daemon_pid()),
            str(package),
            *only,
        ]
        model_server.say(answer(tool_use("Bash", command=f"python3 attack.py {' '.join(words)}")), "done")
        preset = branch / "preset.md"
        preset.write_text(
            re.sub(r"allow:\s*(\[\"\*\"\]|- [\"']\*[\"'])", "allow: ['*', python3]", preset.read_text())
        )
        before = preset.read_bytes()
        sent = system.run("send", session, "go", "--allow", "tool:Bash:.*")
        assert sent.returncode == 0, sent
        said = _result(model_server)
        words_of = [line.split() for line in said.splitlines()]
        found = {words[0]: words[1] for words in words_of if words[1:2] in (["did"], ["failed"])}
        config = system.sessions.parent / "config.toml"
        if not (config.exists() and config.read_text() == "x"):
            found["config"] = "failed"  # what a command wrote was a file of its own, that nobody else sees
        kept = str(preset.read_bytes() == before)
        return {**found, "text": said, "shown": sent.stderr, "kept": kept, "file": str(preset)}

    return attack


def _result(server: ModelServer) -> str:
    content: Any = server.last.messages[-1]["content"]
    (block,) = [block for block in content if block["type"] == "tool_result"]
    text = block["content"]
    return text if isinstance(text, str) else "".join(part["text"] for part in text)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_confined_command_reaches_nothing_of_the_daemon(system: System, attack: Attack, mechanism: str) -> None:
    found = attack(mechanism)
    assert {name for name in HARMFUL if found[name] == "did"} == set()
    assert found["kept"] == "True"
    assert "pyagentd, which no tool" not in found["text"]
    assert system.json("status")["confinement"] == mechanism


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_agent_cannot_change_its_own_or_its_parents_records(
    system: System, model_server: ModelServer, mechanism: str
) -> None:
    system.env["PYAGENTD_CONFINEMENT"] = mechanism
    system.use_server(model_server.url)
    session, branch = system.new()
    (system.project / "spoil.sh").write_text(
        f"cd {branch} && for f in $(find . -name '*.md' -o -name '*.yml' -o -name '*.jsonl'); do\n"
        "  echo $f; echo spoiled >>$f; rm -f $f; mv $f $f.old; ln $f $f.hard\ndone\n"
        "mv agents agents.old; mkdir -p agents/mine; chmod 777 . ; touch new\n"
    )
    spawn = tool_use("PersistentAgent", preset="executor", description="Spoil", prompt="Run it")
    model_server.say(answer(spawn), answer(tool_use("Bash", command="bash spoil.sh")), "tried", "done")
    system.ok("send", session, "go", "--allow", "tool:.*")
    assert len(model_server.requests) == 4
    tried = str(model_server.requests[2].messages[-1]["content"])
    assert "Read-only file system" in tried or "Permission denied" in tried or "No such file" in tried, tried
    assert "spoil.sh: line" in tried  # it was run
    on_disk = [path for path in branch.rglob("*") if path.is_file()]
    assert {path.name for path in on_disk if path.parent.parent.name == "agents"} >= {"preset.md", "messages.jsonl"}
    assert not [path for path in branch.rglob("*") if path.name.endswith((".old", ".hard")) or path.name == "new"]
    assert not [path for path in on_disk if "spoiled\n" in path.read_text() and path.suffix in (".md", ".yml")]


def test_without_confinement_a_change_of_records_is_told(system: System, attack: Attack) -> None:
    """The attack does have its effects then, so the test above can fail."""
    gentle = ("preset", "socket", "runtime", "signal", "work")  # the others would end the session
    found = attack("off", *gentle, "approve", "tcp")
    assert {found[name] for name in gentle} == {"did"}
    assert found["approve"] == found["tcp"] == "failed"  # who the daemon started is not a client of it
    assert found["kept"] == "False"
    assert f"While this command ran, {found['file']}" in found["text"]
    assert found["file"] in found["shown"]
    assert found["file"] in (system.runtime / "daemon.log").read_text()
    assert system.json("status")["confinement"] is None

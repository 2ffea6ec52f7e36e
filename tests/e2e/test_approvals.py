"""Approvals from the command line: asked in one place, answered in another, remembered, revoked, audited."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.server import ModelServer, answer, tool_use


@pytest.fixture
def scripted(system: System, model_server: ModelServer) -> System:
    system.use_server(model_server.url)
    return system


class Terminal:
    """``pyagentd send`` where a human sits."""

    def __init__(self, system: System, *arguments: str, **env: str) -> None:
        self._own, other = pty.openpty()
        self.process = subprocess.Popen(
            system.command(*arguments),
            env={**system.env, "TERM": "dumb", **env},
            cwd=system.project,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        os.set_blocking(self._own, False)
        self.seen = ""

    def shows(self, *parts: str) -> str:
        """Wait until everything was shown."""

        def screen() -> bool:
            try:
                while data := os.read(self._own, 65536):
                    self.seen += data.decode(errors="replace").replace("\r\n", "\n")
            except OSError:  # nothing yet, or the end
                pass
            return all(part in self.seen for part in parts)

        try:
            wait_for(screen, f"{parts}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.seen}") from None
        return self.seen

    def type(self, line: str) -> None:
        self.seen = ""
        os.write(self._own, f"{line}\n".encode())

    def end(self) -> int:
        """Wait for the end of the command."""

        def ended() -> bool:
            self.shows()
            return self.process.poll() is not None

        wait_for(ended, f"the command to end:\n{self.seen}")
        return int(self.process.returncode)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._own)


def until(found: Callable[[], Any]) -> Any:
    return wait_for(found, "it to happen")


def one_ask(system: System) -> dict[str, Any]:
    (ask,) = until(lambda: system.json("asks"))
    return dict(ask)


def bash(command: str) -> Any:
    return answer(tool_use("Bash", command=command))


@pytest.fixture
def terminal(scripted: System) -> Any:
    made: list[Terminal] = []

    def start(*arguments: str, **env: str) -> Terminal:
        made.append(Terminal(scripted, *arguments, **env))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_question_is_answered_from_another_terminal(
    scripted: System, model_server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    session, _ = scripted.new()
    model_server.say(bash("echo one | head -1"), "Fine.")
    asking = terminal("send", session, "Do it.")
    asking.shows("Allow Bash echo one | head -1?", "runs  echo one", "head -1")
    asking.shows("y allow once, s in this session, p in this project, n deny", "e edit the arguments")
    ask = one_ask(scripted)
    assert (ask["session"], ask["tool"], ask["kind"]) == (session, "Bash", "tool")
    assert ask["commands"] == ["echo one", "head -1"] and ask["choices"] == [
        "allow",
        "session",
        "always",
        "deny",
        "abort",
    ]
    assert all(pattern in asking.seen for pattern in ask["remember"])
    assert scripted.ok("asks", session).splitlines()[1].startswith(f"{ask['id']}\t{session}\tBash\t")
    assert scripted.json("answer", ask["id"], "allow") == {"accepted": True}
    asking.shows("answered elsewhere", "Fine.")
    assert asking.end() == 0
    late = scripted.run("answer", ask["id"], "deny")
    assert late.returncode == 1 and "answered already" in late.stderr
    assert scripted.json("asks") == []
    (row,) = scripted.json("audit", session)
    assert (row["decision"], row["action"]) == ("ask_approved", "tool:Bash:echo one | head -1") and row["by"]


def test_always_is_remembered_listed_used_by_a_headless_run_and_revoked(
    scripted: System, model_server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    session, _ = scripted.new()
    model_server.say(bash("git log -1"), "Asked.")
    asking = terminal("send", session, "Do it.")
    asking.shows("s and p would allow from now on:", "tool:Bash:git log", "Bash `git log` with any arguments")
    asking.type("p")
    asking.shows("From now on, in every session of", "Bash `git log` with any arguments", "y allow that")
    asking.type("y")
    assert asking.end() == 0
    (grant,) = scripted.json("grants", session)["grants"]
    assert grant["kind"] == "project" and grant["action"].startswith("tool:Bash:git log")
    other, _ = scripted.new("other")
    assert scripted.json("grants", other)["root"] == str(scripted.project)

    model_server.say(bash("git log --stat"), bash("git log; rm -f x"), "Denied.")
    scripted.ok("send", other, "And now?")
    assert [row["decision"] for row in scripted.json("audit", other)] == ["allow", "deny"]
    scripted.ok("stop")
    checked = {text: scripted.json("scope", "check", other, "command", text) for text in ("git log", "git log; rm x")}
    assert checked["git log"]["decision"] == "allow" and set(checked["git log"]) == {"decision", "reason"}
    assert checked["git log; rm x"]["decision"] == "ask"

    assert "git log" in scripted.ok("grants", other)
    assert scripted.json("grants", other, "--revoke", grant["action"])["revoked"] == 1
    assert scripted.json("scope", "check", other, "command", "git log")["decision"] == "ask"
    again = scripted.run("grants", other, "--revoke", grant["action"])
    assert again.returncode == 1 and "There is no grant" in again.stderr


def test_arguments_are_edited_in_the_users_editor(
    scripted: System, model_server: ModelServer, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/one/two/' \"$1\"\n")
    editor.chmod(0o755)
    session, _ = scripted.new()
    model_server.say(answer(tool_use("Write", file_path="said.txt", content="one")), "Done.")
    asking = terminal("send", session, "Do it.", EDITOR=str(editor), VISUAL=str(editor))
    asking.shows("e edit the arguments")
    asking.type("e")
    asking.shows("Done.")
    assert asking.end() == 0
    assert (scripted.project / "said.txt").read_text() == "two"
    assert "changed the arguments" in json.dumps(model_server.last.messages[-1])


def test_arguments_are_edited_from_a_script_and_checked(
    scripted: System, model_server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    session, _ = scripted.new()
    model_server.say(answer(tool_use("Write", file_path="a.txt", content="one")), "Done.")
    asking = terminal("send", session, "Do it.")
    ask = one_ask(scripted)
    wrong = scripted.run("answer", ask["id"], "allow", "--input", '{"file_path": "/etc/x", "content": ""}')
    assert wrong.returncode == 1 and "outside `paths.write`" in wrong.stderr
    wrong = scripted.run("answer", ask["id"], "always", "--input", "{}")
    assert wrong.returncode == 2
    scripted.ok("answer", ask["id"], "allow", "--input", "-", input='{"file_path": "b.txt", "content": "two"}')
    assert asking.end() == 0
    assert (scripted.project / "b.txt").read_text() == "two" and not (scripted.project / "a.txt").exists()


def test_more_scope_is_asked_for_and_added(
    scripted: System, model_server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    docs = scripted.home / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("alpha")
    session, branch = scripted.new()
    read = tool_use("Read", file_path=str(docs / "a.md"))
    ask = tool_use(
        "request_scope_expansion",
        tool_name="Read",
        patterns=[f"{docs}/", "/usr/share/doc/"],
        justification="Context.",
    )
    model_server.say(answer(read), answer(ask), answer(read), "Alpha.")
    asking = terminal("send", session, "Read it.")
    asking.shows("Allow more scope:", "why  Context.", f"- {docs}/**", "- /usr/share/doc/**", "p add it to the scope")
    (shown,) = scripted.json("asks")
    assert shown["kind"] == "scope" and shown["patterns"] == [f"{docs}/**", "/usr/share/doc/**"]
    wrong = scripted.run("answer", shown["id"], "session")
    assert wrong.returncode == 1 and "One of allow, always, deny" in wrong.stderr
    asking.type("p")
    asking.shows("From now on this session may, as its preset.md will say: Read")
    asking.type("y")
    asking.shows("Alpha.")
    assert asking.end() == 0
    assert f'- "{docs}/**"' in (branch / "preset.md").read_text()
    assert scripted.json("scope", "check", session, "read", str(docs / "b.md"))["decision"] == "allow"
    assert [row["decision"] for row in scripted.json("audit", session)] == ["deny", "allow", "ask_approved", "allow"]


def test_a_denial_reaches_the_model_with_its_reason(
    scripted: System, model_server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    session, _ = scripted.new()
    model_server.say(bash("make"), "Then not.")
    asking = terminal("send", session, "Do it.")
    scripted.ok("answer", one_ask(scripted)["id"], "deny", "--reason", "make is broken")
    assert asking.end() == 0
    assert "The user denied Bash: make is broken." in json.dumps(model_server.last.messages[-1])


def test_the_audit_is_kept_over_a_restart_and_a_deletion(scripted: System, model_server: ModelServer) -> None:
    session, _ = scripted.new()
    (scripted.project / "a.txt").write_text("x")
    model_server.say(answer(tool_use("Read", file_path="a.txt")), bash("make"), "Done.")
    scripted.ok("send", session, "Go.")
    scripted.ok("stop")
    rows = scripted.json("audit", session)
    assert [(row["tool"], row["decision"], row["rule"]) for row in rows] == [
        ("Read", "allow", "scope"), ("Bash", "deny", "headless"),
    ]  # fmt: skip
    assert scripted.json("audit", "--limit", "1") == rows[1:]
    when = rows[0]["at"] / 1000
    assert abs(when - time.time()) < 600
    scripted.ok("delete", session, "--yes")
    assert scripted.json("audit", session) == rows
    assert scripted.ok("audit").count("\n") == 3


def test_questions_and_grants_are_completed(
    scripted: System, model_server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    def completions(*words: str) -> list[str]:
        scripted.env |= {"_PYAGENTD_COMPLETE": "bash_complete", "COMP_CWORD": str(len(words))}
        scripted.env["COMP_WORDS"] = " ".join(["pyagentd", *words])
        try:
            return [line.split(",", 1)[1] for line in scripted.run().stdout.split()]
        finally:
            for name in ("_PYAGENTD_COMPLETE", "COMP_CWORD", "COMP_WORDS"):
                del scripted.env[name]

    assert completions("answer", "ask") == [], "nothing is started for it"
    assert not (scripted.runtime / "daemon").exists()
    session, _ = scripted.new()
    model_server.say(bash("make"), "Done.")
    asking = terminal("send", session, "Do it.")
    ask = one_ask(scripted)
    assert completions("answer", "ask_") == [ask["id"]]
    assert completions("answer", ask["id"], "a") == ["allow", "always", "answer", "abort"]
    scripted.ok("answer", ask["id"], "session")
    assert asking.end() == 0
    assert completions("grants", session, "--revoke", "tool:") == ["tool:Bash:make"]


def test_errors_say_what_to_do(system: System) -> None:
    session, _ = system.new()
    for arguments, said in {
        ("answer", "ask_x", "allow"): "No question ask_x is open",
        ("answer", "ask_x", "perhaps"): "See pyagentd answer --help",
        ("scope", "check", session, "eat", "x"): "See pyagentd scope check --help",
        ("scope", "check", "nobody", "read", "x"): "nobody",
        ("grants", session, "--revoke", "x"): "`pyagentd grants SESSION` lists them",
    }.items():
        done = system.run(*arguments)
        assert done.returncode in (1, 2) and said in done.stderr, done.stderr
        told = system.run(*arguments, "--json")
        assert json.loads(told.stderr)["error"]["message"]

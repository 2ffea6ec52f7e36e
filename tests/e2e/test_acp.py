"""Another editor, as the official SDK's client plays it, a real daemon, and the real `pyagentd acp` between them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema
from acp.client import ClientSideConnection

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_approvals import one_ask, scripted
from tests.mcp.servers import plain
from tests.server import ModelServer, answer, silent, text, thinking, tool_use

__all__ = ["scripted"]  # a fixture

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)


class Editor(acp.Client):
    """Keeps what it is told, and chooses what it was told to choose."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.asked: list[tuple[Any, list[Any]]] = []
        self.choices: list[str | None] = []
        self.unsaved: dict[str, str] = {}
        self.news = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.told.append(update)
        self.news.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **kwargs: Any) -> Any:
        self.asked.append((tool_call, options))
        self.news.set()
        if not self.choices:
            await asyncio.Event().wait()
        choice = self.choices.pop(0)
        outcome = (
            schema.DeniedOutcome(outcome="cancelled")
            if choice is None
            else schema.AllowedOutcome(outcome="selected", option_id=choice)
        )
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, path: str, session_id: str, **kwargs: Any) -> Any:
        if path not in self.unsaved:
            raise acp.RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=self.unsaved[path])

    async def write_text_file(self, content: str, path: str, session_id: str, **kwargs: Any) -> Any:
        self.unsaved[path] = content
        await asyncio.to_thread(Path(path).write_text, content)
        return schema.WriteTextFileResponse()

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.told if update.session_update == kind]

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.of(kind))

    async def until(self, found: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while not found():
                self.news.clear()
                await self.news.wait()


@contextlib.asynccontextmanager
async def editor(system: System) -> AsyncIterator[tuple[Editor, ClientSideConnection]]:
    """Start an editor with its agent; both end with the block, the agent by the end of its input."""
    mine, command = Editor(), system.command("acp")
    async with acp.spawn_agent_process(mine, *command, env=system.env, use_unstable_protocol=True) as (agent, _):
        fs = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        made = await agent.initialize(acp.PROTOCOL_VERSION, schema.ClientCapabilities(fs=fs))
        assert made.protocol_version == acp.PROTOCOL_VERSION and made.agent_capabilities.load_session
        yield mine, agent


async def test_another_editor_works_with_the_same_sessions(scripted: System, model_server: ModelServer) -> None:
    root = str(scripted.project)
    (scripted.project / "a.txt").write_text("one\n")
    steps = [{"content": "Look", "status": "in_progress", "activeForm": "Looking"}]
    model_server.say(
        answer(
            thinking("Hm."), text("I look."), tool_use("Read", file_path="a.txt"), tool_use("TodoWrite", todos=steps)
        ),
        answer(tool_use("Bash", command="echo hi")),
        answer(tool_use("Edit", file_path=f"{root}/a.txt", old_string="one", new_string="two")),
        "Done.",
    )
    async with editor(scripted) as (mine, agent):
        session = await agent.new_session(cwd=root, mcp_servers=[])
        assert session.modes.current_mode_id == "programming-assistant"
        assert {"plan", "build"} <= {mode.id for mode in session.modes.available_modes}
        await mine.until(lambda: mine.of("available_commands_update"))
        (commands,) = mine.of("available_commands_update")
        assert {"status", "help", "agent"} <= {command.name for command in commands.available_commands}
        mine.choices = ["allow", "allow", "allow"]
        picture = base64.b64encode(PNG).decode()
        ended = await agent.prompt(
            prompt=[
                acp.text_block("Change "),
                acp.resource_link_block("a.txt", f"file://{root}/a.txt"),
                acp.image_block(picture, "image/png"),
            ],
            session_id=session.session_id,
        )
        assert ended.stop_reason == "end_turn"
        assert (mine.said(), mine.said("agent_thought_chunk")) == ("I look.Done.", "Hm.")
        assert mine.said("user_message_chunk") == ""  # it shows its own
        (plan,) = mine.of("plan")[-1:]
        assert [(step.content, step.status) for step in plan.entries] == [("Look", "in_progress")]
        read, bash, edit = mine.of("tool_call")
        assert (read.kind, read.title, read.locations[0].path) == ("read", "Read a.txt", f"{root}/a.txt")
        ends = {update.tool_call_id: update for update in mine.of("tool_call_update")}
        assert [ends[call.tool_call_id].status for call in (read, bash, edit)] == ["completed"] * 3
        (diff,) = ends[edit.tool_call_id].content
        assert (diff.type, diff.path, diff.old_text, diff.new_text) == ("diff", f"{root}/a.txt", "one", "two")
        (asked, options), *_ = mine.asked
        assert asked.tool_call_id == bash.tool_call_id and "echo hi" in asked.title
        kinds = ["allow_once", "allow_always", "allow_always", "reject_once", "reject_once"]
        assert [(each.option_id, each.kind) for each in options] == list(
            zip(["allow", "session", "always", "deny", "abort"], kinds, strict=True)
        )
        assert mine.of("usage_update")[-1].used > 0
        (sent,) = model_server.requests[0].messages[:1]
        assert "@a.txt" in str(sent["content"]) and "image/png" in str(sent["content"])
        listed = await agent.list_sessions(cwd=root)
        assert [(each.session_id, each.cwd) for each in listed.sessions] == [(session.session_id, root)]
        with pytest.raises(acp.RequestError, match="nowhere"):
            await agent.load_session(cwd=root, session_id="nowhere", mcp_servers=[])


def test_without_pipes_it_ends_at_the_end_of_input_or_says_who_runs_it(system: System) -> None:
    lines, output = system.home / "lines", system.home / "output"
    lines.write_text("{}\n")

    def run(stdin: Path, stdout: Path) -> tuple[int, str]:
        with stdin.open() as given, stdout.open("w") as taken:
            done = subprocess.run(
                system.command("acp"), env=system.env, stdin=given, stdout=taken, stderr=subprocess.PIPE, timeout=60
            )
        return done.returncode, done.stderr.decode()

    null = Path(os.devnull)
    assert run(null, null) == run(null, output) == (0, "")
    code, said = run(lines, null)
    assert code == 2 and said.startswith("pyagentd: An editor runs `pyagentd acp`") and said.count("\n") == 1
    with output.open("w") as taken:
        refused = subprocess.run(system.command("acp"), env=system.env, input=b"", stdout=taken, timeout=60)
    assert refused.returncode == 2


def test_when_the_editor_closes_both_pipes_it_ends_without_a_word(system: System) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(system.command("acp"), env=system.env, **pipes) as program:
        assert program.stdin and program.stdout and program.stderr
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        program.stdin.write(json.dumps(asked).encode() + b"\n")
        program.stdin.flush()
        assert b"agentCapabilities" in program.stdout.readline()
        program.stdout.close()
        program.stdin.close()
        assert (program.wait(60), program.stderr.read()) == (0, b"")


async def test_an_editor_that_goes_away_leaves_the_run_going_and_another_takes_it_up(
    scripted: System, model_server: ModelServer
) -> None:
    root = str(scripted.project)
    model_server.say(
        answer(text("First."), tool_use("Bash", command="echo hi")), "Second.", answer(tool_use("Bash", command="ls"))
    )
    async with editor(scripted) as (mine, agent):
        session = (await agent.new_session(cwd=root, mcp_servers=[])).session_id
        await agent.set_session_mode(session_id=session, mode_id="build")
        turn = asyncio.create_task(agent.prompt(prompt=[acp.text_block("Go.")], session_id=session))
        await mine.until(lambda: mine.asked)
    with pytest.raises(ConnectionError):
        await turn
    ask = one_ask(scripted)
    async with editor(scripted) as (mine, agent):
        loaded = await agent.load_session(cwd=root, session_id=session, mcp_servers=[])
        assert loaded.modes.current_mode_id == "build"
        assert (mine.said("user_message_chunk"), mine.said()) == ("Go.", "First.")
        await mine.until(lambda: mine.asked)
        scripted.ok("answer", ask["id"], "allow")  # elsewhere; the first answer wins
        await mine.until(lambda: "Second." in mine.said())
        turn = asyncio.create_task(agent.prompt(prompt=[acp.text_block("More.")], session_id=session))
        await mine.until(lambda: len(mine.asked) == 2)
        await agent.cancel(session_id=session)
        assert (await turn).stop_reason == "cancelled"
        assert scripted.json("asks") == []
        os.kill(scripted.daemon_pid(), signal.SIGKILL)  # the next prompt starts another
        told = await agent.prompt(prompt=[acp.text_block("/status")], session_id=session)
        assert told.stop_reason == "end_turn" and session in mine.said()


async def test_an_editor_has_its_own_servers_and_unsaved_files_and_sees_what_agents_do(
    scripted: System, model_server: ModelServer
) -> None:
    root = str(scripted.project)
    (scripted.project / "a.txt").write_text("one\n")
    server = schema.McpServerStdio(
        name="my tools", command=plain()[0], args=plain()[1:], env=[schema.EnvVariable(name="MINE", value="yes")]
    )
    wanted = {"preset": "explorer", "description": "Look", "prompt": "Look.", "allowed_paths": [f"{root}/**"]}
    model_server.say(
        answer(tool_use("my-tools_env"), tool_use("Read", file_path="a.txt")),
        answer(tool_use("Edit", file_path="a.txt", old_string="two", new_string="three")),
        answer(tool_use("PersistentAgent", **wanted)),
        answer(tool_use("Glob", pattern="*")),
        "Nothing there.",
        "Done.",
    )
    async with editor(scripted) as (mine, agent):
        session = (await agent.new_session(cwd=root, mcp_servers=[server])).session_id
        mine.choices = ["allow", "allow", "allow"]
        mine.unsaved = {f"{root}/a.txt": "one\ntwo\n"}
        ended = await agent.prompt(prompt=[acp.text_block("Go.")], session_id=session)
        assert ended.stop_reason == "end_turn" and mine.said().endswith(
            "Done."
        )  # a busy machine waits for the server
        env, read, edit, spawning = mine.of("tool_call")
        ends = {update.tool_call_id: update for update in mine.of("tool_call_update")}
        assert '"MINE": "yes"' in ends[env.tool_call_id].content[0].content.text
        assert "two" in ends[read.tool_call_id].content[0].content.text
        assert ends[edit.tool_call_id].status == "completed"
        assert mine.unsaved[f"{root}/a.txt"] == "one\nthree\n" == (scripted.project / "a.txt").read_text()
        told = [each for each in mine.of("tool_call_update") if each.tool_call_id == spawning.tool_call_id]
        assert any("explorer" in (text := each.content[0].content.text) and "Glob" in text for each in told[:-1])
        assert (told[-1].status, "Nothing there." in told[-1].content[0].content.text) == ("completed", True)
        sse = schema.SseMcpServer(type="sse", name="old", url="http://localhost:1/", headers=[])
        with pytest.raises(acp.RequestError, match="type sse"):
            await agent.load_session(cwd=root, session_id=session, mcp_servers=[sse])


async def test_no_prompt_waits_for_ever_and_a_cancel_stops_what_runs_and_what_waits(
    scripted: System, model_server: ModelServer
) -> None:
    model_server.rule = lambda request: silent()
    async with editor(scripted) as (_, agent):
        session = (await agent.new_session(cwd=str(scripted.project), mcp_servers=[])).session_id

        def prompt() -> asyncio.Task[Any]:
            return asyncio.create_task(agent.prompt(prompt=[acp.text_block("Go.")], session_id=session))

        first = prompt()
        await asyncio.to_thread(wait_for, lambda: model_server.requests, "the first")
        second = prompt()
        await asyncio.to_thread(wait_for, lambda: scripted.json("queue", session), "the second")
        await agent.cancel(session_id=session)
        async with asyncio.timeout(30):
            assert [(await turn).stop_reason for turn in (first, second)] == ["cancelled", "cancelled"]
        for leave in (
            lambda: agent.load_session(cwd=str(scripted.project), session_id=session, mcp_servers=[]),
            lambda: agent.close_session(session_id=session),
        ):
            turn = prompt()
            known = len(model_server.requests)
            await asyncio.to_thread(wait_for, lambda known=known: len(model_server.requests) > known, "it")
            await leave()
            async with asyncio.timeout(30):
                with pytest.raises(acp.RequestError, match="What runs goes on"):
                    await turn
            scripted.ok("abort", session)


async def test_a_session_that_is_open_under_two_names_is_told_of_until_both_are_closed(
    scripted: System, model_server: ModelServer
) -> None:
    model_server.say("Hello.")
    root = str(scripted.project)
    async with editor(scripted) as (mine, agent):
        session = (await agent.new_session(cwd=root, mcp_servers=[])).session_id
        await agent.load_session(cwd=root, session_id=f"{session}/main", mcp_servers=[])
        await agent.close_session(session_id=f"{session}/main")
        async with asyncio.timeout(30):
            ended = await agent.prompt(prompt=[acp.text_block("Hi.")], session_id=session)
        assert ended.stop_reason == "end_turn" and mine.said() == "Hello."


async def test_what_an_editor_says_wrongly_is_told_and_leaves_nothing_behind(
    scripted: System, model_server: ModelServer
) -> None:
    model_server.say(answer(tool_use("Bash", command="echo hi")), "Done.")
    async with editor(scripted) as (mine, agent):
        session = (await agent.new_session(cwd=str(scripted.project), mcp_servers=[])).session_id
        mine.choices = ["nonsense"]
        turn = asyncio.create_task(agent.prompt(prompt=[acp.text_block("Go.")], session_id=session))
        await mine.until(lambda: "It waits for an answer" in mine.said())
        scripted.ok("answer", one_ask(scripted)["id"], "allow")
        async with asyncio.timeout(30):
            assert (await turn).stop_reason == "end_turn"
        known = scripted.json("sessions")
        wrong = schema.HttpMcpServer(type="http", name="x", url="http://[", headers=[])
        right = schema.HttpMcpServer(type="http", name="x", url="http://localhost:1/", headers=[])
        for servers, why in (([wrong], "`url` is"), ([right, right], "have one name")):
            with pytest.raises(acp.RequestError, match=why):
                await agent.new_session(cwd=str(scripted.project), mcp_servers=servers)
        assert scripted.json("sessions") == known, "no session is made for what cannot be used"
        for cwd in ("", "here"):
            with pytest.raises(acp.RequestError, match="not an absolute path"):
                await agent.new_session(cwd=cwd, mcp_servers=[])

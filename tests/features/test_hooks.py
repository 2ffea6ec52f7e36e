"""Programs and functions that are asked: what they may change, what they may forbid, and what they cannot do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pyagentd.config import load_config
from pyagentd.errors import BadRequest, Blocked, ConfigError
from pyagentd.features.hooks import Hooks
from pyagentd.runtime.approvals import Answer as Decided
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.grants import project_hooks
from pyagentd.runtime.queue import Submission
from tests.runtime.delegation import agents_of, spawn
from tests.runtime.world import Watcher, World, attached, body, rows
from tests.server import Answer, answer, tool_use

TOOLS = "Read, Write, Edit, Bash, PersistentAgent"


def script(home: Path, name: str, code: str) -> Path:
    """A real program."""
    path = home / name
    path.write_text(f"#!/usr/bin/env python3\nimport json, os, sys\nfacts = json.load(sys.stdin)\n{code}\n")
    path.chmod(0o755)
    return path


def configure(world: World, event: str, *commands: str | Path, **fields: Any) -> None:
    """Have the user's configuration name a program, and the daemon started anew."""
    more = "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())
    with (world.home / "config.toml").open("a") as file:
        for command in commands:
            file.write(f"[[hooks.{event}]]\ncommand = [{json.dumps(str(command))}]\n{more}")
    world.start()


def project(world: World, event: str, command: str) -> None:
    place = world.project / ".pyagentd"
    place.mkdir(exist_ok=True)
    (place / "hooks.toml").write_text(f"[[{event}]]\ncommand = [{json.dumps(command)}]\n")


class Talk:
    def __init__(self, world: World, branch: LiveBranch) -> None:
        self.world, self.branch, self.watcher = world, branch, Watcher()
        self.notices: list[str] = []
        push = self.watcher.push

        def noting(event: Any) -> None:
            if event.kind == "notice":
                self.notices.append(event.args[0]["text"])
            push(event)

        self.watcher.push = noting  # type: ignore[method-assign]

    async def turn(self, *said: Any, text: str = "Go.") -> str:
        """Have the model say ``said`` to a message, and return the last result it got, or all of the last message."""
        self.world.server.say(*said)
        await self.world.kernel.prompt(self.branch, text=text, options=self.world.granted("tool:.*"))
        await self.watcher.finished(self.branch)
        content = self.world.server.last.messages[-1]["content"]
        return content if isinstance(content, str) else json.dumps(content)


@asynccontextmanager
async def talking(world: World) -> AsyncIterator[Talk]:
    world.preset("main", tools=TOOLS)
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        talk = Talk(world, branch)
        branch.record_session(workspace_root=world.project)
        await attached(branch, talk.watcher)
        yield talk


def write(content: str) -> Answer:
    return answer(tool_use("Write", file_path="a.txt", content=content))


DENIES = 'print("not on a Sunday", file=sys.stderr); sys.exit(2)'


@pytest.mark.spec("B.10", "watchdog reachable (tool.before)")
async def test_a_hook_before_a_tool_forbids_it_and_says_why(world: World) -> None:
    configure(world, "tool.before", script(world.home, "deny", DENIES))
    async with talking(world) as talk:
        assert "not on a Sunday" in await talk.turn(write("x"), "Well.")
        assert not (world.project / "a.txt").exists()
        found = (await world.service().audit(talk.watcher, session=talk.branch.key))["decisions"]
        assert [(row["decision"], row["rule"].split("/")[-1]) for row in found] == [("deny", "deny")]


@pytest.mark.parametrize("apart", [False, True], ids=["in its group", "in a session of its own"])
async def test_a_hook_forbids_though_what_it_left_in_the_background_holds_its_output(
    world: World, apart: bool
) -> None:
    left = f"import subprocess; subprocess.Popen(['sleep', '15'], start_new_session={apart}); {DENIES}"
    configure(world, "tool.before", script(world.home, "deny", left))
    async with talking(world) as talk, asyncio.timeout(30):
        assert "not on a Sunday" in await talk.turn(write("x"), "Well.")
        assert not (world.project / "a.txt").exists()


@pytest.mark.parametrize("said", [{"deny": ""}, {"deny": True}, {"block": "no", "input": 5}])
async def test_a_hook_denies_by_its_answer_whatever_that_says(world: World, said: dict[str, Any]) -> None:
    configure(world, "tool.before", script(world.home, "deny", f"print(json.dumps({said}))"))
    async with talking(world) as talk:
        assert "A hook of the user denied this" in await talk.turn(write("x"), "Well.")
        assert not (world.project / "a.txt").exists()


async def test_a_hook_is_told_the_action_as_those_before_it_have_changed_it(world: World) -> None:
    change = script(world.home, "change", 'print(json.dumps({"input": {"file_path": "b.txt", "content": "x"}}))')
    guard = script(world.home, "guard", 'if facts["action"].endswith("/b.txt"): sys.exit(2)')
    configure(world, "tool.before", change, guard)
    async with talking(world) as talk:
        assert "A hook of the user denied this" in await talk.turn(write("x"), "Well.")
        assert not (world.project / "b.txt").exists()


async def test_a_hook_is_told_what_is_about_to_happen(world: World) -> None:
    code = 'open(os.path.dirname(sys.argv[0]) + "/told", "w").write(json.dumps([facts, dict(os.environ)]))'
    configure(world, "tool.before", script(world.home, "look", code), tools="Write")
    async with talking(world) as talk:
        await talk.turn(write("x"), "Done.")
        facts, env = json.loads((world.home / "told").read_text())
        assert (facts["event"], facts["tool"], facts["version"]) == ("tool.before", "Write", 1)
        assert facts["input"] == {"file_path": "a.txt", "content": "x"} and facts["root"] == str(world.project)
        assert facts["action"].startswith("tool:Write:")
        assert env["PYAGENTD_HOOK"] == "tool.before" and not [name for name in env if "KEY" in name]
        (world.home / "told").unlink()
        await talk.turn(answer(tool_use("Read", file_path="a.txt")), "Done.")
        assert not (world.home / "told").exists(), "it is about Write"


async def test_what_a_hook_changes_is_done_and_told(world: World) -> None:
    code = 'print(json.dumps({"input": {**facts["input"], "content": "changed"}}))'
    configure(world, "tool.before", script(world.home, "change", code))
    async with talking(world) as talk:
        assert "A hook changed the arguments" in await talk.turn(write("x"), "Done.")
        assert (world.project / "a.txt").read_text() == "changed"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [('{"file_path": "/etc/passwd", "content": ""}', "outside"), ('{"content": 3}', "file_path")],
)
async def test_what_a_hook_changes_is_validated_and_decided_anew(world: World, wanted: str, said: str) -> None:
    configure(world, "tool.before", script(world.home, "change", f"print(json.dumps({{'input': {wanted}}}))"))
    async with talking(world) as talk:
        assert said in await talk.turn(write("x"), "Done.")
        assert not (world.project / "a.txt").exists()


async def test_a_human_is_asked_about_what_a_hook_made_of_a_call(world: World) -> None:
    code = 'print(json.dumps({"input": {**facts["input"], "content": "changed"}}))'
    configure(world, "tool.before", script(world.home, "change", code))
    async with talking(world) as talk:
        world.server.say(write("x"), "Done.")
        await world.kernel.prompt(talk.branch, text="Go.", options=world.options)
        await talk.watcher.until(lambda: talk.watcher.of("ask"))
        ask = talk.watcher.of("ask")[0].args[0]
        assert "changed" in ask["preview"] and json.loads(ask["input"])["content"] == "changed"
        mine = json.dumps({"file_path": "a.txt", "content": "mine"})
        await world.service().answer(talk.watcher, ask=ask["id"], decision="allow", input=mine)
        # What the human wrote passes the hook too, and what it makes of that is asked about again.
        await talk.watcher.until(lambda: len(talk.watcher.of("ask")) > 1)
        again = talk.watcher.of("ask")[1].args[0]
        await world.service().answer(talk.watcher, ask=again["id"], decision="allow")
        await talk.watcher.finished(talk.branch)
        assert (world.project / "a.txt").read_text() == "changed"


async def test_a_hook_after_a_tool_adds_to_the_result(world: World) -> None:
    code = "print(json.dumps({\"append\": f\"{facts['tool']} {facts['ok']}: run the linter\"}))"
    configure(world, "tool.after", script(world.home, "after", code))
    async with talking(world) as talk:
        assert "[hook] Write True: run the linter" in await talk.turn(write("x"), "Done.")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit(1)", "ended with 1"),
        ("print('hello')", "no JSON object"),
        ("import time; time.sleep(60)", "did not answer within 0.3 s"),
        ("os.kill(os.getpid(), 9)", "ended with -9"),
        ("print(json.dumps({'input': 5}))", "its `input` is 5, where an object is wanted"),
    ],
)
async def test_a_hook_that_fails_is_said_and_forbids_nothing(world: World, code: str, said: str) -> None:
    configure(world, "tool.before", script(world.home, "fails", code), timeout=0.3 if "sleep" in code else 10)
    async with talking(world) as talk:
        await talk.turn(write("x"), "Done.")
        assert (world.project / "a.txt").read_text() == "x"
        assert any(said in notice for notice in talk.notices), talk.notices


async def test_an_abort_ends_a_hook_and_all_it_started(world: World) -> None:
    mark = world.home / "pid"
    code = f"import subprocess; p = subprocess.Popen(['sleep', '100']); open({str(mark)!r}, 'w').write(str(p.pid))"
    configure(world, "tool.before", script(world.home, "slow", f"{code}; p.wait()"), timeout=100)
    async with talking(world) as talk:
        world.server.say(write("x"), "Done.")
        await world.kernel.prompt(talk.branch, text="Go.", options=world.granted("tool:.*"))
        async with asyncio.timeout(30):
            while not (mark.exists() and mark.read_text()):  # noqa: ASYNC110 - a process of another program
                await asyncio.sleep(0.02)
        await world.kernel.abort(talk.branch)
        pid = int(mark.read_text())
        assert not _is_alive(pid)
        assert not (world.project / "a.txt").exists()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in "ZX"
    except OSError:
        return False


async def test_a_hook_may_block_a_message(world: World) -> None:
    configure(world, "message.user", script(world.home, "deny", DENIES))
    async with talking(world) as talk:
        with pytest.raises(Blocked, match="not on a Sunday"):
            await world.kernel.prompt(talk.branch, text="Go.", options=world.options)
        assert not [row for row in rows(talk.branch.ref) if row.type == "message"]
        assert world.server.requests == []


async def test_an_agent_whose_prompt_a_hook_blocks_leaves_no_directory(world: World) -> None:
    code = f'if facts["text"] == "Find it.":\n    exec({DENIES!r})'
    configure(world, "message.user", script(world.home, "deny", code))
    world.preset("helper", tools="Read")
    async with talking(world) as talk:
        assert "not on a Sunday" in await talk.turn(answer(spawn()), "It was blocked")
        assert agents_of(talk.branch.ref) == []


async def test_a_hook_changes_what_the_model_sees_and_the_document_stays(world: World) -> None:
    code = 'print(json.dumps({"text": facts["text"] + " (house rules)", "model": "model-other"}))'
    configure(world, "message.user", script(world.home, "change", code))
    async with talking(world) as talk:
        assert "Go. (house rules)" in await talk.turn("Hello", text="Go.")
        assert "house rules" not in body(talk.branch.ref)
        first = world.server.last.body["messages"]
        await talk.turn("Again", text="More.")
        again = json.dumps(world.server.last.body["messages"])
        assert "Go. (house rules)" in again and "More. (house rules)" in again
        assert json.loads(again)[0]["role"] == first[0]["role"]


async def test_what_is_queued_and_what_steers_is_seen_by_hooks_too(world: World) -> None:
    code = """
if "secret" in facts["text"]:
    print("no secrets", file=sys.stderr); sys.exit(2)
print(json.dumps({"text": facts["text"].upper()}))"""
    configure(world, "message.user", script(world.home, "look", code))
    async with talking(world) as talk:
        world.server.say(answer(tool_use("Bash", command="true")), "Done.", "Then.")
        await world.kernel.prompt(talk.branch, text="go", options=world.options)
        await talk.watcher.until(lambda: talk.watcher.of("ask"))
        for said, steer in (("left", True), ("a secret", True), ("also secret", False), ("after", False)):
            given = Submission(text=said, options=world.options, steer=steer)
            assert (await world.kernel.submit(talk.branch, given)).queued
        world.kernel.asks.answer(str(world.kernel.asks.all()[0]["id"]), Decided(decision="allow"))
        await talk.watcher.until(lambda: len(world.server.requests) == 3 and talk.branch.run is None)
        sent = json.dumps(world.server.last.messages)
        assert all(word in sent for word in ("GO", "LEFT", "AFTER")) and "secret" not in sent.lower()
        assert sum("no secrets" in notice for notice in talk.notices) == 2
        assert not talk.branch.queue.waiting
        talk.watcher.events.clear()


async def test_what_steers_is_seen_as_it_is_when_it_is_edited_meanwhile(world: World) -> None:
    go = world.home / "go"
    code = f"import time\nwhile facts['text'] == 'left' and not os.path.exists({str(go)!r}): time.sleep(0.02)"
    configure(world, "message.user", script(world.home, "look", f"open({str(world.home / 'asked')!r}, 'a')\n{code}"))
    async with talking(world) as talk:
        world.server.say(answer(tool_use("Bash", command="true")), answer(tool_use("Bash", command="true")), "Done.")
        await world.kernel.prompt(talk.branch, text="go", options=world.options)
        await talk.watcher.until(lambda: talk.watcher.of("ask"))
        (world.home / "asked").unlink()
        steer = Submission(text="left", options=world.options, steer=True)
        message = (await world.kernel.submit(talk.branch, steer)).message_id
        await world.service().answer(talk.watcher, ask=talk.watcher.of("ask")[0].args[0]["id"], decision="allow")
        async with asyncio.timeout(30):
            while not (world.home / "asked").exists():  # noqa: ASYNC110 - a program of another process
                await asyncio.sleep(0.02)
        await world.kernel.queue.edit(talk.branch, message, "right")
        go.touch()
        await talk.watcher.until(lambda: len(talk.watcher.of("ask")) > 1)
        await world.service().answer(talk.watcher, ask=talk.watcher.of("ask")[1].args[0]["id"], decision="allow")
        await talk.watcher.finished(talk.branch)
        assert "right" in (sent := json.dumps(world.server.last.messages)) and "left" not in sent
        assert "model_text" not in talk.branch.conversation.messages[message].metadata


async def test_a_hook_resolves_the_model(world: World) -> None:
    code = 'print(json.dumps({"model": "cheap-" + facts["model"]}))'
    configure(world, "model.resolve", script(world.home, "model", code))
    async with talking(world) as talk:
        await talk.turn("Hello")
        assert world.server.last.body["model"] == "cheap-model-main"


async def test_a_hook_is_told_that_a_run_has_finished(world: World) -> None:
    mark = world.home / "finished"
    configure(world, "run.finished", script(world.home, "end", f"open({str(mark)!r}, 'w').write(json.dumps(facts))"))
    async with talking(world) as talk:
        await talk.turn("Hello")
        await world.kernel.shutdown()
        facts = json.loads(mark.read_text())
        assert (facts["reason"], facts["text"]) == ("done", "Hello")


# -- of a project ------------------------------------------------------------------------------------------------


async def test_a_projects_hooks_run_once_they_are_trusted_as_they_are(world: World) -> None:
    guard = script(world.project, "guard.py", DENIES)
    project(world, "tool.before", "./guard.py")
    async with talking(world) as talk:
        await talk.turn(write("x"), "Done.")
        assert (world.project / "a.txt").read_text() == "x"
        assert any("hooks --trust" in notice for notice in talk.notices)

        service = world.service()
        listed = await service.hooks(talk.watcher, root=str(world.project))
        (told,) = [row for row in listed["hooks"] if row["origin"] == "project"]
        assert not told["trusted"] and told["command"] == ["./guard.py"]
        assert [row["path"] for row in listed["scripts"]] == [str(guard)] and "Sunday" in listed["scripts"][0]["text"]
        await service.trust_hooks(talk.watcher, root=str(world.project), hash=listed["hash"])
        assert "not on a Sunday" in await talk.turn(write("y"), "Well.")

        guard.write_text(guard.read_text().replace("Sunday", "Monday"))
        await talk.turn(write("z"), "Done.")
        assert (world.project / "a.txt").read_text() == "z", "what changed is not what was trusted"
        with pytest.raises(BadRequest, match="changed"):
            await service.trust_hooks(talk.watcher, root=str(world.project), hash=listed["hash"])


async def test_a_hook_whose_program_cannot_be_run_is_named_before_it_is_trusted(world: World) -> None:
    (world.project / "guard.py").touch(0o600)
    for command, problem in (
        ("./guard.py", "guard.py is not executable: chmod +x "),
        ("./nosuch", f"there is no program {world.project}/nosuch"),
        ("nosuch", "there is no program nosuch: give its whole path"),
        ("~no-such-user/guard", f"there is no program {world.project}/~no-such-user/guard"),
    ):
        project(world, "tool.before", command)
        (row,) = (await world.service().hooks(Watcher(), root=str(world.project)))["hooks"]
        page = await world.service().report(Watcher(), name="hooks", arguments={"root": str(world.project)})
        assert problem in row["problem"] and row["problem"] in str(page["lines"])


async def test_a_projects_hook_that_changes_while_another_runs_does_not_run(world: World) -> None:
    guard = script(world.project, "guard.py", "")
    bad = f"open({str(world.home / 'ran')!r}, 'w')"
    script(world.project, "first.py", f"open({str(guard)!r}, 'a').write({bad!r})")
    place = world.project / ".pyagentd"
    place.mkdir()
    (place / "hooks.toml").write_text(
        "".join(f'[[tool.before]]\ncommand = ["./{each}.py"]\n' for each in ("first", "guard"))
    )
    async with talking(world) as talk:
        service = world.service()
        listed = await service.hooks(talk.watcher, root=str(world.project))
        await service.trust_hooks(talk.watcher, root=str(world.project), hash=listed["hash"])
        await talk.turn(write("x"), "Done.")
        assert not (world.home / "ran").exists()
        assert any("changed since" in notice for notice in talk.notices), talk.notices


async def test_an_agent_cannot_put_a_projects_guard_to_sleep(world: World) -> None:
    place = world.project / ".pyagentd" / "hooks"
    place.mkdir(parents=True)
    script(place, "guard.py", "")
    project(world, "tool.before", ".pyagentd/hooks/guard.py")
    async with talking(world) as talk:
        for name in ("hooks.toml", "hooks/guard.py"):
            said = await talk.turn(answer(tool_use("Write", file_path=f".pyagentd/{name}", content="")), "Well.")
            assert "may not change" in said


@pytest.mark.parametrize("words", ["'sh', '-c', './check \"$1\"'", "'node', '--require=./check', '-e', '1'"])
def test_a_script_within_a_word_of_the_command_counts_too(tmp_path: Path, words: str) -> None:
    (tmp_path / ".pyagentd").mkdir()
    (tmp_path / "check").write_text("")
    (tmp_path / ".pyagentd/hooks.toml").write_text(f"[[tool.before]]\ncommand = [{words}]\n")
    found = project_hooks(tmp_path)
    assert found is not None and [path.name for path, _ in found.scripts] == ["check"]


def test_the_hash_is_of_the_file_its_scripts_and_its_place(tmp_path: Path) -> None:
    hashes = set()
    for number, change in enumerate(("", "script", "file", "place")):
        root = tmp_path / ("other" if change == "place" else "one")
        (root / ".pyagentd").mkdir(parents=True, exist_ok=True)
        (root / "check").write_text("1" if change == "script" else "")
        more = "\n# more" if change == "file" else ""
        (root / ".pyagentd/hooks.toml").write_text(f'[[tool.before]]\ncommand = ["python3", "check"]{more}\n')
        found = project_hooks(root)
        assert found is not None and not found.error, found
        hashes.add(found.hash)
        assert len(hashes) == number + 1


@pytest.mark.parametrize("word", ["./round", "echo " + "x" * 300])
def test_a_hook_may_hold_a_whole_program_and_name_a_link_that_goes_round(tmp_path: Path, word: str) -> None:
    (tmp_path / ".pyagentd").mkdir()
    (tmp_path / "round").symlink_to("round")
    (tmp_path / ".pyagentd/hooks.toml").write_text(f'[[tool.before]]\ncommand = ["bash", "-c", "{word}"]\n')
    found = project_hooks(tmp_path)
    assert found is not None and found.hooks and not found.error and not found.scripts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[hooks.tool.during]]\ncommand=['x']", "no event 'tool.during'"),
        ("[[hooks.tool.before]]\ncommand='x'", "`hooks.tool.before\\[1\\].command` is 'x'. It should be a program"),
        ("[[hooks.tool.before]]\ncommand=['x']\ntimeout=0", "timeout` is 0"),
        ("[[hooks.tool.before]]\ncommand=['x']\ntools='('", "not a regular expression"),
        ("[[hooks.tool.before]]\ncommand=['x']\nwhen=1", "unknown key `when`"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.toml:[123].*" + said):
        load_config({"PYAGENTD_CONFIG": str(tmp_path / "config.toml")})


# -- functions of an Emacs ---------------------------------------------------------------------------------------


class Emacs(Watcher):
    """A client with functions."""

    name = "emacs"

    def __init__(self, world: World, functions: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]]) -> None:
        super().__init__()
        self.world, self.functions = world, functions

    def push(self, event: Any) -> None:
        super().push(event)
        if event.kind == "emacs" and event.args[0]["what"] == "hook":
            asked = event.args[0]
            facts = json.loads(asked["facts"])
            said = self.functions[facts["event"]](facts)
            if said is not None:
                answer = self.world.service().emacs_answer(self, id=asked["id"], answer=json.dumps(said))
                self.task = asyncio.ensure_future(answer)


async def test_functions_of_an_attached_emacs_are_hooks(world: World) -> None:
    async with talking(world) as talk:
        emacs = Emacs(world, {"tool.before": lambda facts: {"block": f"no {facts['tool']}"}})
        await world.service().emacs_offer(emacs, hooks=["tool.before"])
        await talk.turn(write("x"), "Done.")
        assert (world.project / "a.txt").exists(), "it does not watch"
        await attached(talk.branch, emacs)
        assert "no Write" in await talk.turn(write("x"), "Well.")


async def test_no_call_is_too_long_for_a_function_that_forbids_it(world: World) -> None:
    async with talking(world) as talk:
        emacs = Emacs(world, {"tool.before": lambda facts: {"block": f"no {facts['tool']}"}})
        await world.service().emacs_offer(emacs, hooks=["tool.before"])
        await attached(talk.branch, emacs)
        assert "no Write" in await talk.turn(write("x" * 600_000), "Well.")
        assert not (world.project / "a.txt").exists()
        word = await world.kernel.feature(Hooks).ask(emacs, {"event": "tool.before", "input": "😀" * 1_200_000})
        assert word.blocks is not None and "too long for Emacs" in word.blocks


async def test_an_emacs_that_dies_or_sleeps_does_not_stop_a_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyagentd.features.hooks.TIMEOUT_S", 0.05)
    async with talking(world) as talk:
        emacs = Emacs(world, {"tool.before": lambda facts: None})
        await world.service().emacs_offer(emacs, hooks=["tool.before"])
        await attached(talk.branch, emacs)
        await talk.turn(write("x"), "Done.")
        assert (world.project / "a.txt").read_text() == "x" and any("did not answer" in n for n in talk.notices)
        monkeypatch.setattr("pyagentd.features.hooks.TIMEOUT_S", 60)
        emacs.functions["tool.before"] = lambda facts: (
            asyncio.get_running_loop().call_soon(world.kernel.forget, emacs) and None
        )  # type: ignore[func-returns-value]
        await talk.turn(write("y"), "Done.")
        assert (world.project / "a.txt").read_text() == "y"


async def test_events_that_are_not_there_are_refused(world: World) -> None:
    with pytest.raises(BadRequest, match=r"tool\.during"):
        await world.service().emacs_offer(Watcher(), hooks=["tool.during"])


def test_nothing_of_ours_is_in_a_hooks_environment(tmp_path: Path) -> None:
    from pyagentd.features.hooks import _environment

    (tmp_path / "link").symlink_to("/w")  # another name of the workspace
    path = f"/w/bin:{tmp_path}/link/bin:/opt/../w/bin:/opt/x:relative"
    env = _environment("tool.before", Path("/w"), {"PATH": path, "MY_TOKEN": "t", "LANG": "C"})
    assert env["PATH"] == "/opt/x" and "MY_TOKEN" not in env and env["LANG"] == "C"
    assert "ANTHROPIC_API_KEY" not in env and os.environ.get("HOME") == env.get("HOME")

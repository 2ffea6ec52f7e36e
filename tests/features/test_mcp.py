"""Tools of MCP servers in a session: offered, asked about, called, remembered, audited; and what can go wrong."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import ToolError
from pyagentd.events import Event
from pyagentd.features.mcp import Servers
from pyagentd.installation import extra
from pyagentd.tools.mcp.connection import BACKOFF_S
from tests.mcp.servers import plain, table
from tests.runtime.test_approvals import Talk, results, talking
from tests.runtime.world import World
from tests.server import answer, tool_use


@asynccontextmanager
async def having(world: World, *tables: str, **preset: str) -> AsyncIterator[Talk]:
    """A session of somebody who configured servers."""
    (world.home / "config.toml").write_text("\n".join(tables))
    world.preset("main", **({"tools": "Read"} | preset))
    world.start()
    async with talking(world, world.service()) as talk:
        push, talk.notices = talk.watcher.push, []  # type: ignore[attr-defined]

        def noting(event: Event) -> None:
            if event.kind == "notice":
                talk.notices.append(event.args[0]["text"])  # type: ignore[attr-defined]
            push(event)

        talk.watcher.push = noting  # type: ignore[method-assign]
        yield talk


def notices(talk: Talk) -> str:
    return "\n".join(talk.notices)  # type: ignore[attr-defined]


def offered(world: World, number: int = -1) -> list[str]:
    return [tool["name"] for tool in world.server.requests[number].body["tools"]]


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.suffix == ".png"


def call(name: str, **args: Any) -> Any:
    return answer(tool_use(name, **args))


async def test_a_tool_of_a_server_is_offered_asked_about_called_and_audited(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say(call("notes_echo", text="alpha"), "Done.")
        ask = await talk.ask()
        assert (ask["tool"], ask["action"], ask["detail"]) == ("notes_echo", "mcp:notes:echo", '{"text": "alpha"}')
        assert ask["remember"] == ["mcp:notes:echo"] and json.loads(ask["preview"]) == {"text": "alpha"}
        await talk.answer("allow")
        assert await talk.end() == "alpha"
        assert offered(world)[:2] == ["Read", "notes_echo"]
        assert await talk.decisions() == [("ask_approved", "human: allow", "a test")]


async def test_a_grant_holds_for_the_tool_and_whatever_it_is_given(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say(call("notes_echo", text="a"), call("notes_echo", text="b"), call("notes_count"), "Done.")
        await talk.answer("session")
        await talk.asks(2)
        assert [each["action"] for each in await talk.asks(2)] == ["mcp:notes:echo", "mcp:notes:count"]
        await talk.service.answer(talk.watcher, ask=(await talk.asks(2))[1]["id"], decision="deny")
        await talk.end()
        assert [rule for _, rule, _ in await talk.decisions()] == [
            "human: session", "grant mcp:notes:echo", "human: deny",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "seen"),
    [
        ("{allow: ['mcp:notes:echo']}", ["Read", "notes_echo"]),
        ("{allow: ['tool:.*']}", None),
        ("locked", []),
    ],
)
async def test_profiles_speak_of_server_and_tool(world: World, profile: str, seen: list[str] | None) -> None:
    async with having(world, table("notes", plain()), tools=f"Read]\nprofile: {profile}\nmore: [x") as talk:
        wanted = seen is None or "notes_echo" in seen
        await talk.say(*([call("notes_echo", text="a")] if wanted else []), "Done.", interactive=False)
        await talk.watcher.finished(talk.branch)
        names = [name for name in offered(world) if name != "Read"]
        assert "notes_count" in names if seen is None else names == [name for name in seen if name != "Read"]
        if wanted:
            assert results(world.server.last) == ["a"]


async def test_the_profile_standard_asks(world: World) -> None:
    async with having(world, table("notes", plain()), tools="Read]\nprofile: standard\nmore: [x") as talk:
        await talk.say(call("notes_echo", text="a"), "Done.")
        assert "'standard' asks" in (await talk.ask())["reason"]
        await talk.answer("deny", reason="no")
        assert await talk.end() == "The user denied notes_echo: no."


async def test_nobody_to_ask_is_a_denial_that_names_the_grant(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say(call("notes_echo", text="a"), "Done.", interactive=False)
        assert "--allow mcp:notes:echo" in await talk.end()
        await talk.say(
            call("notes_echo", text="a"), "Done.", interactive=False, grants=world.granted("mcp:.*").grants
        )
        assert await talk.end() == "a"


async def test_what_a_trusted_server_says_only_looks_is_not_asked_about(world: World) -> None:
    async with having(world, table("notes", plain(), trusted=True)) as talk:
        await talk.say(call("notes_echo", text="a"), call("notes_count"), "Done.", interactive=False)
        assert "needs a human's approval" in await talk.end()
        assert results(world.server.requests[1]) == ["a"]


async def test_an_agent_that_only_looks_has_no_tools_of_servers(world: World) -> None:
    async with having(world, table("notes", plain(), trusted=True), tools="Read]\nread-only: true\nmore: [x") as talk:
        await talk.say(call("notes_echo", text="a"), "Done.")
        assert "There is no tool 'notes_echo'" in await talk.end() and offered(world) == ["Read"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("none", []),
        ("[notes]", ["notes_echo", "notes_count"]),
        ("{other: {tools: ['c*']}}", ["other_count"]),
        ("{own: {command: [COMMAND], tools: [env]}}", ["own_env"]),
    ],
)
async def test_a_preset_names_its_servers(world: World, wanted: str, names: list[str]) -> None:
    command = json.dumps(plain())[1:-1]
    tables = (table("notes", plain(), tools=["echo", "count"]), table("other", plain()))
    preset = f"Read]\nmcp: {wanted.replace('COMMAND', command)}\nmore: [x"
    async with having(world, *tables, tools=preset) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert offered(world) == ["Read", *names]


async def test_a_preset_that_names_a_server_nobody_configured_is_told_so(world: World) -> None:
    async with having(world, tools="Read]\nmcp: [nosuch]\nmore: [x") as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert "There is no MCP server 'nosuch'" in notices(talk)


async def test_a_server_gets_its_own_variables_and_no_keys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "EDITOR", "MINE"):
        monkeypatch.setenv(name, f"value-of-{name}")
    given = table("notes", plain(), env={"WANTED": "${MINE}", "ELSE": "${NOT_SET:-other}"})
    async with having(world, given) as talk:
        await talk.say(call("notes_env"), "Done.", grants=world.granted("mcp:.*").grants)
        env = json.loads(await talk.end())
        assert env["WANTED"] == "value-of-MINE" and env["ELSE"] == "other" and env["PATH"]
        assert not env.keys() & {"ANTHROPIC_API_KEY", "GITHUB_TOKEN", "EDITOR", "MINE"}


@pytest.mark.parametrize("wants", ["ANTHROPIC_API_KEY", "LOCAL_KEY", "NOT_SET"])
async def test_no_server_gets_the_key_of_a_provider(
    world: World, wants: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", "value")
    backend = '[backend.local]\nkind = "anthropic"\nkey_env = "LOCAL_KEY"\n'
    async with having(world, backend, table("notes", plain(), env={"KEY": f"${{{wants}}}"})) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert offered(world) == ["Read"]
        assert wants in notices(talk) and "config.toml:5" in notices(talk)


STARTS_S = {"silent": 0.3, "tools/list": 2}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (plain("dies"), "it ended before it answered (it ended with 7: no database)"),
        (plain("silent"), "it did not answer within 0.3 s"),
        (plain("tools/list"), "did not answer within 2 s"),
        (["/no/such/program"], "there is no program /no/such/program"),
    ],
)
async def test_a_run_goes_on_without_a_server_that_does_not_start(
    world: World, command: list[str], said: str
) -> None:
    async with having(world, table("notes", command, start_timeout=STARTS_S.get(command[-1], 20))) as talk:
        for _ in range(2):  # the second time it keeps nobody waiting, and is not told again
            await talk.say("Done.")
            await talk.watcher.finished(talk.branch)
            assert offered(world) == ["Read"] and notices(talk).count(said) == 1


async def test_a_run_goes_on_without_the_package_that_servers_need(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        with extra("mcp", "It"):
            raise ModuleNotFoundError(name="anyio")

    monkeypatch.setattr("pyagentd.tools.mcp.connection._load_link_module", load)
    async with having(world, table("notes", plain())) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert "M-x pyagentd-install-extra in Emacs. Answers go without it" in notices(talk)


async def test_a_server_that_greets_its_user_is_understood(world: World) -> None:
    async with having(world, table("notes", plain("noisy"))) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert "notes_echo" in offered(world)


async def test_a_server_that_dies_is_told_and_started_again(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        (server,) = world.kernel.feature(Servers).pool.all()[:1] or [None]
        assert server is None, "nothing is started before a run wants it"
        await talk.say(
            call("notes_count"),
            call("notes_die"),
            call("notes_count"),
            "Done.",
            grants=world.granted("mcp:.*").grants,
        )
        assert await talk.end() == "1", "it is another process"
        died = results(world.server.requests[2])[0]
        assert "unavailable" in died and "it ended with 3: I cannot go on" in died and "look before" in died


async def test_a_server_that_keeps_dying_is_left_alone_for_longer_and_longer(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say("Hello.")
        await talk.watcher.finished(talk.branch)
        (server,) = world.kernel.feature(Servers).pool.all()
        time, waits = 0.0, []
        server.now = lambda: time
        for _ in BACKOFF_S + BACKOFF_S[-1:]:
            with pytest.raises(ToolError, match="ended with 3"):
                await server.call("die", {})
            waits.append(server.not_before - time)
            time = server.not_before
        assert tuple(waits) == (*BACKOFF_S, BACKOFF_S[-1])
        time -= 30
        with pytest.raises(ToolError, match=r"notes is unavailable: .* tried again in 30 s"):
            await server.call("count", {})
        time += 30
        assert (await server.call("count", {})).pieces[0].text == "1"
        time += 61
        with pytest.raises(ToolError):
            await server.call("die", {})
        assert server.not_before - time == BACKOFF_S[0], "it had been well"


async def test_a_call_that_takes_too_long_is_stopped_and_the_server_told(world: World, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    given = table("notes", plain(), timeout=0.3, env={"SEEN": str(seen)})
    async with having(world, given) as talk:
        await talk.say(
            call("notes_hang"), call("notes_echo", text="x"), "Done.", grants=world.granted("mcp:.*").grants
        )
        assert await talk.end() == "x"
        assert "did not finish within 0.3 s" in results(world.server.requests[1])[0]
        assert '"notifications/cancelled"' in seen.read_text()


async def test_an_abort_is_told_to_the_server(world: World, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    async with having(world, table("notes", plain(), env={"SEEN": str(seen)})) as talk:
        await talk.say(call("notes_hang"), "Done.", grants=world.granted("mcp:.*").grants)
        async with asyncio.timeout(30):
            while not (seen.exists() and '"hang"' in seen.read_text()):  # noqa: ASYNC110 - a file of another program
                await asyncio.sleep(0.02)
        await world.kernel.abort(talk.branch)
        await talk.watcher.finished(talk.branch)
        (server,) = world.kernel.feature(Servers).pool.all()
        assert (await server.call("echo", {"text": "still there"})).pieces[0].text == "still there"
        assert '"notifications/cancelled"' in seen.read_text()


async def test_a_message_without_end_ends_the_server_and_not_the_daemon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyagentd.tools.mcp import link

    monkeypatch.setattr(link, "MOST_BYTES", 300_000)
    async with having(world, table("notes", plain())) as talk:
        await talk.say(call("notes_line", bytes=1_000_000), "Done.", grants=world.granted("mcp:.*").grants)
        assert "it sent a message of more than" in await talk.end()


async def test_a_long_result_is_kept_in_a_file_and_so_is_a_picture(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say(
            call("notes_long", bytes=400_000), call("notes_picture"), "Done.", grants=world.granted("mcp:.*").grants
        )
        said = await talk.end()
        picture = Path(said.rpartition(" ")[2].rstrip("]"))
        assert said.startswith("[image/png, 8 bytes, kept in /") and is_png(picture)
        long = results(world.server.requests[1])[0]
        assert "The whole output is in" in long and len(long) < 210_000


async def test_a_result_is_what_it_is_whatever_its_server_promised(world: World) -> None:
    promised = json.dumps({"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a|a)*$"}}})
    said = "a" * 21 + "b"  # each letter more takes the expression twice as long
    async with having(world, table("notes", plain(), env={"PROMISED": promised})) as talk:
        await talk.say(call("notes_echo", text=said), "Done.", grants=world.granted("mcp:.*").grants)
        assert await talk.end() == said


async def test_a_failure_is_an_error_to_the_model(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say(call("notes_fail"), call("notes_echo"), "Done.", grants=world.granted("mcp:.*").grants)
        assert '"text" is required' in await talk.end()
        (block,) = world.server.requests[1].messages[-1]["content"]
        assert block["is_error"] and "fail of" in str(block["content"])


async def test_tools_that_come_later_are_offered_in_the_next_turn_and_told(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say(call("notes_grow"), "Done.", grants=world.granted("mcp:.*").grants)
        await talk.end()
        await talk.watcher.until(lambda: "new: grown" in notices(talk))
        assert "notes_grown" not in offered(world), "a run's list only grows by what it searched for"
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert "notes_grown" in offered(world)


async def test_a_session_is_told_once_a_minute_that_a_server_changed(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        servers, clock = world.kernel.feature(Servers), [0.0]
        servers._now = lambda: clock[0]
        (connection,) = servers.pool.all()
        for at in (0.0, 1.0, 59.0, 60.0, 61.0):
            clock[0] = at
            servers._on_tools_changed(connection, tuple(f"t{at:g}_{number}" for number in range(50)), ())
        told = notices(talk).splitlines()
        assert len(told) == 2 and all("_9 and 40 more" in each for each in told)


async def test_of_many_tools_those_are_offered_that_were_searched_for(world: World) -> None:
    async with having(world, table("notes", plain(), env={"MANY": "400"})) as talk:
        await talk.say(
            answer(tool_use("tool_search", query="more_117")), call("notes_more_117"), "Done.",
            grants=world.granted("mcp:.*").grants,
        )  # fmt: skip
        assert (await talk.end()).startswith("more_117 of")
        assert offered(world, 0) == ["Read", "tool_search"] and "notes_more_117" in offered(world, 1)


async def test_two_sessions_share_a_server_and_it_ends_with_the_daemon(world: World) -> None:
    async with having(world, table("notes", plain())) as talk, talking(world, talk.service) as other:
        for each in (talk, other):
            await each.say(call("notes_more"), "Done.", grants=world.granted("mcp:.*").grants)
        pids = set()
        for each in (talk, other):
            await each.watcher.finished(each.branch)
        (server,) = world.kernel.feature(Servers).pool.all()
        pid = int((await server.call("who", {})).pieces[0].text.split()[-1])
        pids.add(pid)
        await world.kernel.feature(Servers).close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_question_that_waits_outlives_the_daemon(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say(call("notes_echo", text="late"), "Done.")
        ask, ref = await talk.ask(), talk.branch.ref
    await world.kernel.shutdown()
    world.start()
    async with talking(world, world.service(), ref) as talk:
        await talk.service.answer(talk.watcher, ask=ask["id"], decision="allow", env=world.options.env)
        assert await talk.end() == "late"


async def test_what_a_server_here_changes_in_the_workspace_is_kept(world: World) -> None:
    file = world.project / "a.txt"
    file.write_text("before")
    async with having(world, table("notes", plain())) as talk:
        talk.branch.record_session(workspace_root=world.project)
        await talk.say(call("notes_write", path=str(file)), "Done.", grants=world.granted("mcp:.*").grants)
        await talk.watcher.until(lambda: talk.watcher.of("files"))
        assert talk.watcher.of("files")[0].args[0]["paths"] == [str(file)]
        await talk.end()
        assert file.read_text() == "after"


@pytest.mark.parametrize(("mcp", "has"), [("", False), ("\nmcp: [notes]", True)])
async def test_an_agent_has_the_servers_that_its_preset_names(world: World, mcp: str, has: bool) -> None:
    world.preset("helper", tools=f"Read]{mcp}\nmore: [x")
    async with having(world, table("notes", plain()), tools="Read, PersistentAgent") as talk:
        agent = tool_use("PersistentAgent", preset="helper", description="look", prompt="See @notes:memo://notes/1")
        await talk.say(answer(agent), call("notes_echo", text="a") if has else "Nothing.", "Found.", "Done.")
        assert ("MCP servers: notes" in (await talk.ask())["preview"]) == has
        await talk.answer("allow")
        if has:  # what an agent wants of a server is asked about like what its session wants
            await talk.watcher.until(lambda: any(e.args[0]["tool"] == "notes_echo" for e in talk.watcher.of("ask")))
            asked = next(e.args[0] for e in talk.watcher.of("ask") if e.args[0]["tool"] == "notes_echo")
            await talk.service.answer(talk.watcher, ask=asked["id"], decision="allow")
        await talk.watcher.until(lambda: len(world.server.requests) == (4 if has else 3))
        request = world.server.requests[1]
        assert ("notes_echo" in [tool["name"] for tool in request.body["tools"]]) == has
        assert "Says memo" not in str(request.body), "a model mentions nothing"
        await world.kernel.abort(talk.branch)

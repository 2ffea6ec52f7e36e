"""Servers of a project: nothing is started before its user trusts it, and what counts is the content."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api.mcp import McpOperations
from pyagentd.cli import main
from pyagentd.cli.output import print_page
from pyagentd.config import load_config
from pyagentd.config.tables import ServerSettings, read_server
from pyagentd.errors import BadRequest, ConfigError, NotFound, ToolError
from pyagentd.features.mcp import Servers
from pyagentd.policy.presets import WantedServers
from pyagentd.reader import Source
from pyagentd.runtime.grants import project_servers
from pyagentd.store import paths
from pyagentd.tools.mcp.connection import IDLE_S
from tests.features.test_mcp import having, notices, offered
from tests.mcp.servers import plain, table
from tests.runtime.test_approvals import Talk
from tests.runtime.world import Watcher, World
from tests.server import answer, tool_use

SERVER = {"command": plain()[0], "args": plain()[1:]}


def write(world: World, **servers: Any) -> Path:
    file = world.project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


async def turn(talk: Talk, world: World) -> list[str]:
    await talk.say("Done.")
    await talk.watcher.finished(talk.branch)
    return offered(world)


async def trust(talk: Talk, world: World) -> None:
    told = await talk.service.mcp(talk.watcher, root=str(world.project))
    await talk.service.trust_mcp(talk.watcher, root=str(world.project), hash=told["hash"])


async def test_a_projects_servers_are_started_once_they_are_trusted_as_they_are(world: World) -> None:
    write(world, notes=SERVER)
    async with having(world) as talk:
        assert await turn(talk, world) == ["Read"]
        assert ".mcp.json names MCP servers that you have not said you trust" in notices(talk)
        assert not world.kernel.feature(Servers).pool.all()
        await trust(talk, world)
        assert "notes_echo" in await turn(talk, world)
        write(world, notes={**SERVER, "env": {"A": "1"}})
        assert await turn(talk, world) == ["Read"]
        with pytest.raises(BadRequest, match="have changed since"):
            await talk.service.trust_mcp(talk.watcher, root=str(world.project), hash="0" * 64)


async def test_a_script_of_the_project_that_a_server_runs_counts_too(world: World) -> None:
    for name, word, cwd in (
        ("a", "${workspaceFolder}/tools/a.py", ""),
        ("b", "b.py", "tools"),
        ("c", "tools/c.py", ""),
        ("d", "--require=tools/d.py", ""),
        ("e", "cd tools && exec ./e.py", "tools"),
        ("f", f"cd tools && exec ./f.py {'x' * 300}", "tools"),
    ):
        script = world.project / "tools" / f"{name}.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text("one")
        write(world, notes={"command": "python3", "args": [word], **({"cwd": cwd} if cwd else {})})
        before = project_servers(world.project)
        assert before is not None and [path.name for path, _ in before.scripts] == [script.name]
        script.write_text("two")
        after = project_servers(world.project)
        assert after is not None and after.hash != before.hash


async def test_a_script_that_changed_since_it_was_trusted_is_not_started_again(world: World) -> None:
    script = world.project / "server.py"
    script.write_text(Path(SERVER["args"][-1]).read_text())  # noqa: ASYNC240
    write(world, notes={**SERVER, "args": [*SERVER["args"][:-1], str(script)]})
    async with having(world) as talk:
        await trust(talk, world)
        assert "notes_echo" in await turn(talk, world)
        (connection,) = world.kernel.feature(Servers).pool.all()
        connection.now = lambda: time.monotonic() + 2 * IDLE_S
        await connection.close_when_idle()
        assert connection.state == "stopped"
        text = script.read_text()
        script.write_text("raise SystemExit('taken over')\n" + text)
        with pytest.raises(ToolError, match="its files changed since you said you trust it"):
            await connection.call("echo", {"text": "hi"})
        script.write_text(text)
        assert (await connection.call("echo", {"text": "hi"})).pieces


async def test_a_checkout_lends_the_users_servers_no_modules(world: World) -> None:
    (world.project / "mine.py").write_text("raise SystemExit('taken over')")
    async with having(world, table("notes", [sys.executable, "-m", "mine"]), table("well", plain())) as talk:
        names = await turn(talk, world)
        assert "well_echo" in names and "notes_echo" not in names
        assert "taken over" not in notices(talk) and "No module named mine" in notices(talk)


async def test_the_users_server_of_a_name_is_the_users(world: World) -> None:
    write(world, notes={"command": "/no/such"})
    async with having(world, table("notes", plain())) as talk:
        await trust(talk, world)
        assert "notes_echo" in await turn(talk, world)
        told = (await talk.service.mcp(talk.watcher, root=str(world.project)))["servers"]
        assert [(row["origin"], row["state"], row["problem"]) for row in told] == [
            ("user", "running", ""), ("project", "stopped", "the user's server of that name holds"),
        ]  # fmt: skip


@pytest.mark.parametrize("file", [".mcp.json", ".pyagentd/mcp.toml"])
def test_only_the_user_says_whose_word_counts(tmp_path: Path, file: str) -> None:
    (tmp_path / ".pyagentd").mkdir()
    given = {"mcpServers": {"a": {"command": "x", "trusted": True}}}
    text = json.dumps(given) if file == ".mcp.json" else '[a]\ncommand = "x"\ntrusted = true\n'
    (tmp_path / file).write_text(text)
    found = project_servers(tmp_path)
    assert found is not None and [each.trusted for each in found.servers] == [False]


async def test_a_projects_tool_takes_the_place_of_none_of_the_users_and_of_none_of_ours(world: World) -> None:
    write(world, notes_more={**SERVER, "env": {"MANY": "1"}}, self={**SERVER, "env": {"NAMED": "edit_permissions"}})
    async with having(world, table("notes", plain(), env={"NAMED": "more_echo"})) as talk:
        await trust(talk, world)
        names = [name for name in await turn(talk, world) if name != "tool_search"]
        await talk.say(answer(tool_use("tool_search", query="more_echo")), "Done.")
        await talk.watcher.finished(talk.branch)
        found = [name for name in offered(world) if name.startswith("notes_more_echo")]
        assert len(found) == 2 and "notes_more_echo" not in found and "self_edit_permissions" not in names
        servers = await world.kernel.feature(Servers).of_branch(talk.branch, world.options)
        assert [each.name for each in servers] == ["notes", "notes_more", "self"]


async def test_one_that_cannot_be_reached_is_in_no_others_way(world: World) -> None:
    lost = {"command": "~no-such-user/x"}
    old = {"type": "sse", "url": "https://x.example/sse"}
    write(world, old=old, lost=lost, notes=SERVER, off={**SERVER, "disabled": True})
    async with having(world) as talk:
        await trust(talk, world)
        names = await turn(talk, world)
        assert "notes_echo" in names and "off_echo" not in names
        assert (
            "`mcpServers.old.type` is 'sse'. It should be stdio or http (streamable HTTP): others cannot be reached"
            in notices(talk)
        )
        assert "there is no program ~no-such-user/x" in notices(talk)


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": 3}', "\xff"])
def test_a_file_that_cannot_be_read_starts_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".mcp.json").write_text(text, encoding="latin-1")
    found = project_servers(tmp_path)
    assert found is not None and not found.servers and str(tmp_path) in found.error and not found.hash


@pytest.mark.parametrize("broken", [".mcp.json", ".pyagentd/mcp.toml"])
def test_a_file_that_cannot_be_read_keeps_the_servers_of_the_other(tmp_path: Path, broken: str) -> None:
    (tmp_path / ".pyagentd").mkdir()
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": SERVER}}))
    (tmp_path / ".pyagentd/mcp.toml").write_text(table("notes", plain()).replace("[mcp.", "["))
    (tmp_path / broken).write_text("[")
    found = project_servers(tmp_path)
    assert (
        found is not None
        and [each.name for each in found.servers] == ["notes"]
        and str(tmp_path / broken) in found.error
    )
    (tmp_path / broken).write_text("" if broken.endswith(".toml") else "{}")
    mended = project_servers(tmp_path)
    assert mended is not None and not mended.error and mended.hash != found.hash, "what was not read is not trusted"


def test_a_pipe_in_the_files_place_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".mcp.json")
    assert project_servers(tmp_path) is None or not project_servers(tmp_path).servers  # type: ignore[union-attr]


async def test_our_own_file_names_servers_too(world: World) -> None:
    (world.project / ".pyagentd").mkdir()
    (world.project / ".pyagentd/mcp.toml").write_text(table("notes", plain()).replace("[mcp.", "["))
    async with having(world) as talk:
        await trust(talk, world)
        assert "notes_echo" in await turn(talk, world)


async def test_a_session_from_elsewhere_starts_no_server(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        world.kernel.origins.foreign = lambda ref: True  # type: ignore[method-assign]
        assert await turn(talk, world) == ["Read"] and not world.kernel.feature(Servers).pool.all()


async def test_a_server_is_tried(world: World) -> None:
    async with having(world, table("notes", plain()), table("dies", plain("dies"))) as talk:
        told = await talk.service.mcp_test(talk.watcher, name="notes")
        assert told["ok"] and told["tools"][0] == {
            "name": "echo", "rule": "mcp:notes:echo", "description": "To echo", "looks": True,
        }  # fmt: skip
        assert [each["uri"] for each in told["resources"]] == ["memo://notes/1", "memo://notes/{id}"]
        assert told["prompts"][0]["arguments"] == [{"name": "file", "required": True}]
        for _ in range(3):  # however often it failed: a person wants to know
            told = await talk.service.mcp_test(talk.watcher, name="dies")
            assert not told["ok"] and "no database" in told["error"]
        with pytest.raises(NotFound, match="'nosuch'"):
            await talk.service.mcp_test(talk.watcher, name="nosuch")


@pytest.mark.parametrize("name", ["a\n  mcp:files:read_file", "a\x1b[2J", "a\u202eb", "x" * 201])
async def test_a_tool_whose_name_cannot_be_shown_is_none(world: World, name: str) -> None:
    async with having(world, table("notes", plain(), env={"NAMED": name})) as talk:
        told = await talk.service.mcp_test(talk.watcher, name="notes")
        assert told["tools"][0]["name"] == "echo" and name not in [each["name"] for each in told["tools"]]


async def test_what_a_server_says_of_itself_stays_on_its_line(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "a\n  mcp:files:read_file\x1b[2J"

    async def mcp_test(*_: Any, **__: Any) -> dict[str, Any]:
        return {
            "ok": True, "name": "notes", "title": evil, "protocol": evil, "duration_ms": 1,
            "tools": [{"rule": evil, "description": "Reads", "looks": False}],
            "refused": [{"name": evil, "why": evil}],
            "resources": [{"uri": evil, "name": evil}],
            "prompts": [{"name": evil, "description": "Asks", "arguments": [{"name": evil, "required": True}]}],
        }  # fmt: skip

    monkeypatch.setattr(McpOperations, "mcp_test", mcp_test)
    print_page(await world.service().report(Watcher(), name="server", arguments={"name": "notes"}))
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 11 and "\x1b" not in out
    assert not any(line.strip().startswith("mcp:") for line in out.splitlines())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs either a command or a url"),
        ({"command": ["x"], "url": "https://x"}, "needs either a command or a url"),
        ({"command": [3]}, "`mcp.a.command` is a list. It should be a program"),
        ({"url": "ftp://x"}, "`mcp.a.url` is .ftp://x.. It should be an address"),
        ({"command": ["x"], "env": {"A": 1}}, "`mcp.a.env.A` is 1. It should be a text"),
        ({"command": ["x"], "timeout": 0}, "`mcp.a.timeout` is 0. It should be a number of seconds"),
        ({"command": ["x"], "trusted": "yes"}, "`mcp.a.trusted` is .yes.. It should be true or false"),
        ({"command": ["x"], "more": 1}, "unknown key `more` in `mcp.a`"),
        (3, "`mcp.a` is 3. It should be keys and values"),
    ],
)
def test_what_is_wrong_with_a_server_is_told_with_its_place(given: object, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^here: .*{said}"):
        read_server("a", given, Source.at("here", ConfigError), ("mcp", "a"))


@pytest.mark.parametrize("name", ["a b", "", "-a", "a:b", "x" * 33])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name for an MCP server"):
        read_server(name, {"command": "x"}, Source.at("here", ConfigError))


def test_the_configuration_has_its_servers_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('\n[mcp.a]\ncommand = "x"\nargs = ["y"]\n[mcp.a.env]\nB = "c"\n')
    (server,) = load_config({"PYAGENTD_CONFIG": str(file)}).mcp
    assert server == ServerSettings(name="a", command=("x", "y"), env={"B": "c"}, source=f"{file}:2")


async def test_an_agent_in_a_session_from_elsewhere_has_no_server_of_its_own(world: World) -> None:
    async with having(world) as talk:
        preset = world.kernel.presets.of_branch(talk.branch.ref)
        own = WantedServers(own=(ServerSettings(name="own", command=("x",)),))
        place = talk.branch.ref.branch_dir / "agents" / "helper-20260304050607-look"
        place.mkdir(parents=True)
        (place / "session.md").touch()
        agent = paths.ref_of(place)
        wanted = replace(preset, mcp=own)

        async def names() -> list[str]:
            found = await world.kernel.feature(Servers).of(agent, wanted, world.project, world.options)
            return [server.name for server in found]

        assert agent.is_agent and await names() == ["own"]
        world.kernel.origins.is_own = lambda ref: False  # type: ignore[method-assign]
        assert await names() == [], "who trusted the session has not seen this"


def test_data_that_a_command_names_may_change_and_programs_may_not(tmp_path: Path) -> None:
    def hashed(*command: str) -> str:
        tables = {"mcpServers": {"notes": {"command": command[0], "args": list(command[1:])}}}
        (tmp_path / ".mcp.json").write_text(json.dumps(tables))
        found = project_servers(tmp_path)
        assert found is not None and not found.error
        return found.hash

    def changes(name: str, *command: str) -> bool:
        (tmp_path / name).write_bytes(b"one")
        before = hashed(*command)
        (tmp_path / name).write_bytes(b"two")
        return hashed(*command) != before

    assert not changes("t.db", "npx", "-y", "mcp-sqlite", "--db-path", "./t.db")
    assert not changes("t.db", "python3", "-m", "mcp_sqlite", "./t.db")
    for name, command in (
        ("server.js", ("node", "server.js", "./t.db")),
        ("server", ("./server", "--db", "t.db")),
        ("tool.dat", ("python3", "-u", "tool.dat")),
        ("hook.cjs", ("npx", "thing", "--require", "./hook.cjs")),
        ("run", ("env", "A=1", "./run")),
    ):
        assert changes(name, *command), name
    (tmp_path / "t.db").chmod(0o755)
    assert changes("t.db", "npx", "-y", "thing", "./t.db")


async def test_one_that_cannot_be_used_keeps_no_others_away_wherever_it_is_written(world: World) -> None:
    (world.project / ".pyagentd").mkdir()
    ours = table("notes", plain()).replace("[mcp.", "[") + '\n[odd]\ntype = "telepathy"\nurl = "https://x.example"\n'
    (world.project / ".pyagentd/mcp.toml").write_text(ours)
    wrong = '[mcp.wrong]\ntype = "smoke"\ncommand = "x"\n'
    async with having(world, wrong, table("mine", plain())) as talk:
        await trust(talk, world)
        names = await turn(talk, world)
        assert "notes_echo" in names and "mine_echo" in names
        told = notices(talk)
        assert "`odd.type` is 'telepathy'" in told and "`mcp.wrong.type` is 'smoke'" in told


async def test_a_tool_that_no_client_can_use_is_named_and_the_others_are_offered(world: World) -> None:
    async with having(world, table("notes", plain(), env={"WRONG": "1"})) as talk:
        names = await turn(talk, world)
        assert "notes_echo" in names and not {"notes_no_schema", "notes_odd_schema"} & set(names)
        told = notices(talk)
        assert "The tool no_schema of the MCP server notes is left out" in told
        assert "The tool odd_schema of the MCP server notes is left out: its schema is not a JSON Schema" in told


async def test_a_schema_that_is_too_long_to_be_sent_keeps_nobody_waiting(world: World) -> None:
    async with having(world, table("notes", plain(), env={"WIDE": "1"}, start_timeout=10)) as talk:
        assert "notes_wide" in await turn(talk, world)


async def test_of_a_server_with_thousands_of_tools_that_cannot_be_used_a_few_are_looked_at_and_named(
    world: World,
) -> None:
    async with having(world, table("notes", plain(), env={"WRONG": "5000"})) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        (server,) = world.kernel.feature(Servers).pool.all()
        assert server.catalog is not None
        assert len(server.catalog.refused) <= 1000
        assert notices(talk).count("left out") == 11
        assert "990 more tools of the MCP server notes are left out" in notices(talk)


async def test_that_a_server_is_not_trusted_is_said_whatever_else_is_wrong(world: World) -> None:
    write(world, notes=SERVER, old={"type": "sse", "url": "https://x.example/sse"})
    async with having(world) as talk:
        with pytest.raises(NotFound, match="not trusted in its present form"):
            await talk.service.mcp_test(talk.watcher, name="notes", root=str(world.project))
        with pytest.raises(NotFound, match="cannot be reached"):
            await talk.service.mcp_test(talk.watcher, name="old", root=str(world.project))


def test_servers_are_added_shown_and_removed_with_the_arguments_of_claude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, project, kept = tmp_path / "config.toml", tmp_path / ".mcp.json", tmp_path / "kept.toml"
    kept.write_text('# mine\n[log]\nlevel = "debug"  # loud\n')
    kept.chmod(0o644)
    config.symlink_to(kept)  # as those do who keep all such files in one place
    monkeypatch.setenv("PYAGENTD_CONFIG", str(config))
    monkeypatch.chdir(tmp_path)
    before = config.read_text()
    words = ["mcp", "add", "files", "-e", 'KEY=a "b" = c', "--", "npx", "-y", "some-server", "${root}"]
    assert main(words) == 0 and main(words) == 1
    assert (
        main(["mcp", "add", "--transport", "http", "tracker", "https://x.example/mcp", "-H", "A: Bearer ${T}"]) == 0
    )
    files, tracker = load_config().mcp
    assert files.command == ("npx", "-y", "some-server", "${root}") and files.env == {"KEY": 'a "b" = c'}
    assert tracker.url == "https://x.example/mcp" and tracker.headers == {"A": "Bearer ${T}"}
    assert config.read_text().startswith(before)
    assert main(["mcp", "add-json", "-s", "project", "old", '{"type": "http", "url": "https://y.example"}']) == 0
    assert json.loads(project.read_text()) == {"mcpServers": {"old": {"type": "http", "url": "https://y.example"}}}
    for name in ("files", "tracker", "old"):
        assert main(["mcp", "remove", name]) == 0
    assert config.read_text().rstrip() == before.rstrip() and json.loads(project.read_text()) == {"mcpServers": {}}
    assert config.is_symlink() and kept.stat().st_mode & 0o777 == 0o644, "nothing but the text has changed"
    assert project.stat().st_mode & 0o077, "it is shared with others"
    assert main(["mcp", "remove", "files"]) == 1
    assert main(["mcp", "add", "-t", "sse", "old", "https://x.example/sse"]) == 1
    assert main(["mcp", "add", "--scope", "local", "here", "npx"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


def test_a_projects_broken_file_is_not_in_the_way_of_the_users_own_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYAGENTD_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".mcp.json").write_text("{")
    assert (
        main(["mcp", "add", "files", "--", "npx"]) == 0 and main(["mcp", "add-json", "more", '{"command": "x"}']) == 0
    )
    assert main(["mcp", "remove", "files"]) == 0 and main(["mcp", "remove", "--scope", "user", "more"]) == 0
    assert not load_config().mcp
    for words in (["remove", "files"], ["add", "--scope", "project", "files", "npx"]):
        capsys.readouterr()
        assert main(["mcp", *words]) == 1 and ".mcp.json" in capsys.readouterr().err

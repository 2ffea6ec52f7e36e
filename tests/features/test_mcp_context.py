"""Resources of servers in a message, and prompts of servers as slash commands."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.config.tables import read_server
from pyagentd.errors import BadRequest, UserError
from pyagentd.features import mcp as mentions
from pyagentd.features.hooks import Hooks
from pyagentd.features.mcp import Servers, mentioned_servers
from pyagentd.features.slash_commands import Commands
from pyagentd.policy.presets import read_wanted
from pyagentd.reader import Source
from pyagentd.store import paths
from tests.features.test_mcp import having, notices, offered
from tests.mcp.servers import plain, table
from tests.runtime.test_approvals import talking
from tests.runtime.test_resume import until
from tests.runtime.world import World, body


def seen(world: World, number: int = -1) -> str:
    """What the model saw of the last message of the user."""
    return str(world.server.requests[number].messages[-1]["content"])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to load the SDK."""
    monkeypatch.setattr(mentions, "_WAIT_S", 60.0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Read @notes:memo://notes/1, please", ["memo://notes/1"]),
        ("(@notes:memo://a) and @notes:memo://b. @notes:memo://a!", ["memo://a", "memo://b"]),
        ("a@notes:memo://a, @other:memo://a, @notes: memo://a, @notes:nothing", []),
    ],
)
def test_what_is_a_mention(text: str, found: list[str]) -> None:
    assert [uri for _, uri in mentioned_servers(text, ["notes"])] == found


async def test_the_model_reads_what_a_message_mentions_and_the_document_stays(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        text = "Sum up @notes:memo://notes/1 and @notes:nosuch://x."
        await talk.say("Done.", text=text)
        await talk.watcher.finished(talk.branch)
        said = seen(world)
        assert 'resource server="notes" uri="memo://notes/1">\\nSays memo://notes/1.\\n</resource>' in said
        assert "[@notes:nosuch://x could not be read: The MCP server notes refused" in said
        assert "no resource nosuch://x" in notices(talk)
        assert text in body(talk.branch.ref) and "Says memo" not in body(talk.branch.ref)
        await talk.say("Again.", text="And?")
        await talk.watcher.finished(talk.branch)
        assert world.server.last.messages[0] == world.server.requests[0].messages[0], "the model sees the same again"


async def test_what_no_person_said_mentions_nothing(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        world.server.say("Done.")
        await world.kernel.prompt(
            talk.branch,
            text="See @notes:memo://notes/1",
            options=world.options,
            metadata={"trigger": {"source": "webhook", "fired_at": 1}},
        )
        await talk.watcher.finished(talk.branch)
        assert "Says memo" not in seen(world)


async def test_a_prompt_of_a_server_is_a_command(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        service: Any = talk.service
        assert "notes:review" not in await world.kernel.feature(Commands).of(talk.branch.ref)
        (server,) = world.kernel.feature(Servers).pool.all()
        assert server.state == "stopped", "nothing is started only to be asked"
        await service.mcp_test(talk.watcher, name="notes")
        await server.offers()
        command = (await world.kernel.feature(Commands).of(talk.branch.ref))["notes:review"]
        assert (command.synopsis, command.origin) == ("/notes:review <file>…", "notes")
        world.server.say("Looks good.")
        told = await service.prompt(
            talk.watcher, branch=talk.branch.key, text="/notes:review a b.py", env=world.options.env
        )
        assert told["run"] and told["command"]["name"] == "notes:review"
        ended = {"id": told["run"], "phase": "finished"}
        await talk.watcher.until(lambda: any(ended.items() <= e.args[0].items() for e in talk.watcher.of("run")))
        assert "Review a b.py carefully." in seen(world) and "/notes:review a b.py" in body(talk.branch.ref)


async def test_a_server_is_known_once_it_listed_its_prompts(world: World, tmp_path: Path) -> None:
    seen, ready = tmp_path / "seen", tmp_path / "ready"
    async with having(world, table("notes", plain(), env={"SEEN": str(seen), "READY": str(ready)})) as talk:
        service: Any = talk.service
        first = asyncio.ensure_future(service.mcp_test(talk.watcher, name="notes"))
        await until(lambda: seen.exists() and "prompts/list" in seen.read_text())
        second = asyncio.ensure_future(service.mcp_test(talk.watcher, name="notes"))
        await asyncio.wait([second], timeout=0.2)
        ready.touch()
        for told in await asyncio.gather(first, second):
            assert [each["name"] for each in told["prompts"]] == ["review"]
        assert "notes:review" in await world.kernel.feature(Commands).of(talk.branch.ref)


async def test_a_server_that_does_not_list_its_resources_is_used_without(world: World) -> None:
    async with having(world, table("notes", plain("resources/list"), start_timeout=3)) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert "notes_echo" in offered(world)


async def test_a_prompt_that_a_server_does_not_make_holds_nobody_up(world: World) -> None:
    async with having(world, table("notes", plain("prompts/get"), timeout=0.5)) as talk:
        service: Any = talk.service
        await service.mcp_test(talk.watcher, name="notes")
        (server,) = world.kernel.feature(Servers).pool.all()
        await server.offers()
        text = "/notes:review a"
        told = await service.prompt(talk.watcher, branch=talk.branch.key, text=text, env=world.options.env)
        assert "notes did not answer within" in told["command"]["text"]


async def test_what_a_server_has_a_person_say_mentions_and_links_nothing(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        service: Any = talk.service
        await service.mcp_test(talk.watcher, name="notes")
        file = paths.files_dir(talk.branch.ref.branch_dir) / "own.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"\x89PNG\r\n")
        world.server.say("Done.")
        text = "/notes:review /status @notes:memo://notes/1 and ![x](files/own.png) and ![x](<./files/own.png>)"
        told = await service.prompt(talk.watcher, branch=talk.branch.key, text=text, env=world.options.env)
        ended = {"id": told["run"], "phase": "finished"}
        await talk.watcher.until(lambda: any(ended.items() <= e.args[0].items() for e in talk.watcher.of("run")))
        message = talk.branch.conversation.messages[talk.branch.conversation.runs[told["run"]].data["message_id"]]
        assert message.metadata["origin"] == "server"
        said = seen(world)
        assert "@notes:memo://notes/1" in said and "Says memo" not in said
        assert "![x] (files/own.png)" in said and "image" not in said and "<attachment>" not in said


async def test_what_a_hook_adds_mentions_nothing_and_stays(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:

        async def adding(branch: Any, prompt: Any, options: Any, run_id: str) -> Any:
            return prompt.seen_as(f"{prompt.text} @notes:memo://hook")

        world.kernel.feature(Hooks).before_prompt = adding  # type: ignore[method-assign]
        await talk.say("Done.", text="See @notes:memo://person")
        await talk.watcher.finished(talk.branch)
        said = seen(world)
        assert "Says memo://person" in said and "@notes:memo://hook" in said and "Says memo://hook" not in said


async def test_what_can_be_mentioned_is_listed_for_completion(world: World) -> None:
    async with having(world, table("notes", plain())) as talk, talking(world, talk.service) as other:
        assert await talk.service.mcp_resources(talk.watcher, branch=other.branch.key) == {"resources": []}
        (server,) = world.kernel.feature(Servers).pool.all()
        await server.offers()
        told = (await talk.service.mcp_resources(talk.watcher, branch=other.branch.key))["resources"]
        assert told[0]["mention"] == "@notes:memo://notes/1" and told[1]["template"]


async def test_what_a_server_last_said_is_known_to_the_next_daemon(world: World) -> None:
    async with having(world, table("notes", plain())) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        ref = talk.branch.ref
    await world.kernel.shutdown()
    world.start()
    async with talking(world, world.service(), ref) as talk:
        command = (await world.kernel.feature(Commands).of(ref))["notes:review"]
        assert command.synopsis == "/notes:review <file>…"
        assert [server.state for server in world.kernel.feature(Servers).pool.all()] == ["stopped"]


async def test_what_a_client_lends_is_offered_beside_what_is_configured(world: World) -> None:
    async with having(world, table("notes", plain(), tools=["echo"])) as talk:
        lent = [{"name": "notes", "command": ["other"]}, {"name": "more", "command": plain(), "tools": ["echo"]}]
        key, service = talk.branch.key, talk.service
        await service.lend_mcp(talk.watcher, branch=key, servers=json.dumps(lent))
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert {"notes_echo", "more_echo"} <= {*offered(world)}
        assert "The editor's MCP server notes is not started: one that you configured has its name" in notices(talk)
        with pytest.raises(BadRequest, match="one name"):
            await service.lend_mcp(talk.watcher, branch=key, servers=json.dumps([*lent, *lent]))
        await service.lend_mcp(talk.watcher, branch=key, servers="[]")
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert "more_echo" not in offered(world)


async def lend(talk: Any, *servers: dict[str, Any]) -> None:
    await talk.service.lend_mcp(talk.watcher, branch=talk.branch.key, servers=json.dumps(servers))


async def test_a_preset_that_names_servers_has_only_those_of_the_lent(world: World) -> None:
    async with having(world, table("mine", plain())) as talk:
        await lend(talk, {"name": "other", "command": ["x"]}, {"name": "more", "command": ["x"]})
        ref, servers = talk.branch.ref, world.kernel.feature(Servers)
        preset = world.kernel.presets.of_branch(ref)
        for value, names in [
            (None, ["mine", "other", "more"]),
            ("all", ["mine", "other", "more"]),
            (["more"], ["more"]),
            ([], []),
        ]:
            wanted = None if value is None else read_wanted(value, Source.at("main.md", UserError))
            found = await servers.of(ref, replace(preset, mcp=wanted), world.project, world.options)
            assert [server.name for server in found] == names, value
        assert "server other is not started: the preset main has no such server" in notices(talk)
        assert "There is no MCP server" not in notices(talk)


async def test_what_is_lent_means_what_it_says_and_goes_with_its_branch(world: World) -> None:
    async with having(world) as talk:
        key, servers = talk.branch.key, world.kernel.feature(Servers)
        await lend(talk, {"name": "more", "command": [*plain(), "${NOBODY_HAS_THIS}"]})
        (server,) = await servers.of_branch(talk.branch, world.options)
        assert server.connection.launch.command[-1] == "${NOBODY_HAS_THIS}"
        async with world.kernel.removing(talk.branch.ref.session_dir):
            assert key in servers.lent
        assert key not in servers.lent


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ({"url": "https://a.example/mcp"}, {"url": "https://b.example/mcp"}),
        ({"url": "https://a.example/mcp"}, {"url": "https://a.example/mcp", "headers": {"K": "v"}}),
        ({"command": ["a"], "env": {"A": "1"}}, {"command": ["a"], "env": {"A": "2"}}),
    ],
)
async def test_another_server_under_a_name_of_ours_is_told(
    world: World, own: dict[str, Any], others: dict[str, Any]
) -> None:
    servers, known = world.kernel.feature(Servers), {"x": read_server("x", own, Source.at("config.toml", UserError))}
    servers.lend("key", [read_server("x", others, Source.at("the editor", UserError))])
    assert servers.lent_beside("key", known) == (
        [],
        ["The editor's MCP server x is not started: one that you configured has its name"],
    )
    servers.lend("key", [read_server("x", own, Source.at("the editor", UserError))])
    assert servers.lent_beside("key", known) == ([], []), "it is the same"

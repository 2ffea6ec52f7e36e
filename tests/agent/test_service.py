"""Each operation as a client calls it: what it answers, and which error says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.agent.branches import lease as lease_module
from pyagentd.errors import BadRequest, ConfigError, NotASession, NotFound, PresetError, PyagentdError
from pyagentd.service import Service
from pyagentd.store.document import body_sha256
from tests.agent.world import Watcher, World
from tests.server import answer, tool_use


def env(world: World) -> dict[str, str]:
    return dict(world.options.env)


async def made(world: World) -> str:
    session = await world.service().create_session(Watcher(), name="test", preset="main", root=str(world.project))
    return str(session["branch"])


ERRORS: list[tuple[str, dict[str, Any], type[PyagentdError], str]] = [
    ("create_session", {"name": "x", "preset": "nobody"}, PresetError, "Known: main"),
    ("create_session", {"name": "x", "preset": "main", "root": "/nowhere"}, BadRequest, "no directory"),
    ("create_session", {"name": "x", "preset": "main", "session_dir": "{home}"}, BadRequest, "in use"),
    ("resolve", {"name": "nobody"}, NotFound, "nobody"),
    ("resolve", {"name": "/tmp"}, NotASession, "no session"),
    ("show", {"branch": "nobody"}, NotFound, "nobody"),
    ("attach", {"branch": "/nowhere"}, NotASession, "no session"),
    ("attach", {"branch": "{branch}", "mode": "own"}, BadRequest, "no mode"),
    ("saved", {"branch": "{branch}", "sha256": "", "seq": 1}, NotFound, "not attached"),
    ("lease", {"branch": "{branch}"}, NotFound, "not attached"),
    ("send", {"branch": "{branch}", "sha256": "0", "end": 1}, BadRequest, "changed since it was saved"),
    ("send", {"branch": "{branch}", "sha256": body_sha256(""), "end": 1}, BadRequest, "no prompt"),
    ("prompt", {"branch": "{branch}", "text": ""}, BadRequest, "empty"),
    ("prompt", {"branch": "nobody", "text": "Hi"}, NotFound, "nobody"),
    ("prompt", {"branch": "{branch}", "text": "Hi", "allow": ["("]}, BadRequest, "no regular expression"),
    ("prompt", {"branch": "{branch}", "text": "Hi", "env": [1, 2, 3]}, BadRequest, "no plist"),
    ("prompt", {"branch": "{branch}", "text": "Hi", "env": {"PYAGENTD_BACKEND": "moon"}}, ConfigError, "moon"),
    ("abort", {"branch": "nobody"}, NotFound, "nobody"),
    ("answer", {"ask": "ask_1", "decision": "allow"}, NotFound, "ask_1"),
    ("answer", {"ask": "ask_1", "decision": "perhaps"}, BadRequest, "no decision"),
]


@pytest.mark.parametrize(("name", "arguments", "error", "said"), ERRORS)
async def test_a_wrong_call_says_what_is_wrong_and_leaves_nothing_open(
    world: World, name: str, arguments: dict[str, Any], error: type[PyagentdError], said: str
) -> None:
    branch = await made(world)
    filled = {
        key: value.format(branch=branch, home=world.home) if isinstance(value, str) else value
        for key, value in arguments.items()
    }
    with pytest.raises(error, match=said) as raised:
        await getattr(world.service(), name)(Watcher(), **filled)
    assert str(raised.value)
    assert world.host.opened(branch) is None


def test_every_public_method_is_an_operation_under_its_name_on_the_wire() -> None:
    operations = object.__new__(Service).operations()
    assert {"create-session", "attach", "send", "status"} <= operations.keys()
    assert all(name == name.lower() and "_" not in name for name in operations)


async def test_a_session_is_made_listed_resolved_and_shown(world: World) -> None:
    service, client = world.service(), Watcher()
    session = await service.create_session(client, name="My work", preset="main", root=str(world.project))
    assert session["session_id"].startswith("my-work-")
    (listed,) = (await service.sessions(client))["sessions"]
    assert (listed["branch"], listed["preset"], listed["state"]) == (session["branch"], "main", "idle")
    assert (await service.resolve(client, name="my-work"))["branch"] == session["branch"]
    shown = json.loads((await service.show(client, branch=session["branch"]))["json"])
    assert shown["session"]["workspace_root"] == str(world.project) and shown["messages"] == []


async def test_presets_are_listed_with_what_is_wrong_with_them(world: World) -> None:
    (world.presets / "broken.md").write_text("---\ntools: [\n---\n")
    listed = {each["name"]: each for each in (await world.service().presets(Watcher()))["presets"]}
    assert "broken.md" in listed["broken"]["error"]
    assert listed["main"]["mode"] == "all" and "error" not in listed["main"]


async def test_a_conversation_by_operations(world: World) -> None:
    service, client = world.service(), Watcher()
    branch = await made(world)
    given = await service.attach(client, branch=branch, sha256=body_sha256(""))
    assert given["editor"] and given["preset"] == "main" and given["settings"]["backend"] == "anthropic"
    assert (await service.attach(Watcher(), branch=branch, sha256="0"))["reread"]
    assert not (await service.abort(client, branch=branch))["aborted"]
    world.server.say(answer(tool_use("Bash", command="true")), "Done")
    await service.prompt(client, branch=branch, text="Hi", env=env(world))
    await client.until(lambda: client.of("ask"))
    (ask,) = (await service.asks(client))["asks"]
    assert ask["tool"] == "Bash" and (await service.status(client))["runs"] == 1
    again = await service.attach(client, branch=branch, seq=given["seq"])
    assert [open_ask["id"] for open_ask in again["asks"]] == [ask["id"]]
    assert (await service.answer(client, ask=ask["id"], decision="allow"))["accepted"]
    await client.finished(branch)
    await service.detach(client, branch=branch)
    assert world.host.opened(branch) is None
    session = await service.resolve(client, name=branch)
    shown = json.loads((await service.show(client, branch=session["session_id"]))["json"])
    assert shown["messages"][-1]["parts"][-1]["data_json"]["text"] == "Done"


async def test_the_lease_is_for_those_who_are_attached(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "SILENT_S", 0.01)
    service, editor, viewer = world.service(), Watcher(), Watcher()
    branch = await made(world)
    await service.attach(editor, branch=branch, sha256=body_sha256(""))
    await service.attach(viewer, branch=branch, sha256=body_sha256(""), mode="view")
    assert not (await service.lease(viewer, branch=branch))["editor"]
    with pytest.raises(NotFound):
        await service.lease(Watcher(), branch=branch, take=True)
    assert (await service.lease(viewer, branch=branch, take=True))["editor"]
    world.host.forget(viewer)
    assert (await service.lease(editor, branch=branch))["editor"]


async def test_a_large_conversation_is_shown_by_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyagentd.service.conversations.INLINE_LIMIT", 10)
    branch = await made(world)
    shown = await world.service().show(Watcher(), branch=branch)
    with open(shown["path"]) as file:  # noqa: ASYNC230, PTH123 - a test may block
        assert json.load(file)["messages"] == []


async def test_a_preset_that_cannot_be_read_is_said_on_attach(world: World) -> None:
    branch = await made(world)
    service = world.service()
    ref = (await service.resolve(Watcher(), name=branch))["file"].replace("session.md", "preset.md")
    with open(ref, "w") as file:  # noqa: ASYNC230, PTH123
        file.write("---\ntools: [\n---\n")
    with pytest.raises(PresetError, match=r"preset\.md"):
        await service.attach(Watcher(), branch=branch, sha256=body_sha256(""))
    assert world.host.opened(branch) is None

"""Each operation as a client calls it: what it answers, and which error says what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import BadRequest, ConfigError, NotASession, NotFound, PresetError, PyagentdError, StoreError
from pyagentd.store import sessions
from pyagentd.store.document import text as document
from pyagentd.store.document.text import body_sha256
from pyagentd.store.paths import BranchRef
from pyagentd.tools.sandbox import enclosure
from pyagentd.wire.connection import Client, Outbox, operation
from tests.runtime.world import Watcher, World
from tests.server import answer, tool_use


def env(world: World) -> dict[str, str]:
    return dict(world.options.env)


async def made(world: World) -> str:
    session = await world.service().create_session(Watcher(), name="test", preset="main", root=str(world.project))
    return str(session["branch"])


ERRORS: list[tuple[str, dict[str, Any], type[PyagentdError], str]] = [
    ("create_session", {"name": "x", "preset": "nobody"}, PresetError, "Known: main"),
    ("create_session", {"name": "x", "preset": "main", "root": "/nowhere"}, BadRequest, "not a directory"),
    ("create_session", {"name": "x", "preset": "main", "root": "here"}, BadRequest, "not an absolute path"),
    ("create_session", {"name": "x", "preset": "main", "session_dir": "here"}, BadRequest, "not an absolute path"),
    ("create_session", {"name": "x", "preset": "main", "session_dir": "{home}"}, BadRequest, "in use"),
    ("resolve", {"name": "nobody"}, NotFound, "nobody"),
    ("resolve", {"name": "/tmp"}, NotASession, "not a session"),
    ("show", {"branch": "nobody"}, NotFound, "nobody"),
    ("attach", {"branch": "/nowhere"}, NotASession, "not a session"),
    ("edit_document", {"branch": "{branch}", "revision": 1}, NotFound, "not attached"),
    ("checkpoint", {"branch": "{branch}"}, NotFound, "not attached"),
    ("send", {"branch": "{branch}", "revision": 1, "end": 1}, BadRequest, "changed too much since"),
    ("prompt", {"branch": "{branch}", "text": ""}, BadRequest, "empty"),
    ("prompt", {"branch": "nobody", "text": "Hi"}, NotFound, "nobody"),
    ("prompt", {"branch": "{branch}", "text": "Hi", "id": "x" * 5000}, BadRequest, "^'x{40}' is not an id"),
    ("prompt", {"branch": "{branch}", "text": "Hi", "allow": ["("]}, BadRequest, "not a regular expression"),
    ("prompt", {"branch": "{branch}", "text": "Hi", "env": [1, 2, 3]}, BadRequest, "must be a plist"),
    ("prompt", {"branch": "{branch}", "text": "Hi", "settings": ["temperature", 1]}, BadRequest, "must be a plist"),
    ("prompt", {"branch": "{branch}", "text": "Hi", "env": {"PYAGENTD_BACKEND": "moon"}}, ConfigError, "moon"),
    ("abort", {"branch": "nobody"}, NotFound, "nobody"),
    (
        "configure",
        {"branch": "{branch}", "system": "x" * 1_000_000},
        StoreError,
        "would have more than 1,000,000 bytes",
    ),
    ("attach_file", {"branch": "{branch}", "name": "a.png", "content": "no base64"}, BadRequest, "not base64"),
    ("attach_file", {"branch": "{branch}", "name": "../a.png", "content": "aGk="}, BadRequest, "no name of a file"),
    ("answer", {"ask": "ask_1", "decision": "allow"}, NotFound, "ask_1"),
    ("answer", {"ask": "ask_1", "decision": "perhaps"}, BadRequest, "must be one of"),
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
    run = getattr(world.service(), name)
    with pytest.raises(error, match=said) as raised:
        await run(Watcher(), **operation(name, run).bind_named(filled))
    assert str(raised.value)
    assert world.kernel.opened(branch) is None


def test_every_public_method_is_an_operation_under_its_name_on_the_wire(world: World) -> None:
    operations = world.service().operations()
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


async def test_nothing_waits_for_the_disk_while_a_session_is_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_session(*args: Any, **more: Any) -> BranchRef:
        threads.append(threading.current_thread())
        return create_session(*args, **more)

    threads: list[threading.Thread] = []
    create_session = sessions.create_session
    monkeypatch.setattr(sessions, "create_session", make_session)
    await made(world)
    assert threads and threading.main_thread() not in threads, "the loop serves every other session meanwhile"


async def test_a_directory_with_a_zero_byte_is_none(world: World) -> None:
    for place in ("~\0", "/tmp/\0"):
        with pytest.raises(BadRequest, match="is no path"):
            await world.service().create_session(Watcher(), name="x", preset="main", session_dir=place)


async def test_a_name_that_somebody_typed_is_the_title(world: World) -> None:
    service = world.service()
    typed = await service.create_session(Watcher(), name=" My\n work", preset="main", titled=True)
    other = await service.create_session(Watcher(), name="project", preset="main")
    unnamed = await service.create_session(Watcher(), name="", preset="main", titled=True)
    assert [made["title"] for made in (typed, other, unnamed)] == ["My work", None, None]
    listed = {row["branch"]: row["title"] for row in (await service.sessions(Watcher()))["sessions"]}
    assert listed[typed["branch"]] == "My work" and listed[other["branch"]] is None
    for name in ("x" * 201, "bell\a"):  # as for ``rename``
        with pytest.raises(BadRequest, match="not a title"):
            await service.create_session(Watcher(), name=name, preset="main", titled=True)
    assert len((await service.sessions(Watcher()))["sessions"]) == 3


async def test_a_session_made_in_the_directory_of_another_works_where_that_one_does(world: World) -> None:
    service, first = world.service(), await made(world)
    for root in (first, below(first, "agents"), below(first, "files/deep")):
        found = await service.create_session(Watcher(), name="second", preset="main", root=root)
        shown = json.loads((await service.show(Watcher(), branch=found["branch"]))["json"])
        assert shown["session"]["workspace_root"] == str(world.project)
        assert f"{world.project}/**" in preset_text(found) and first not in preset_text(found)
    rootless = await service.create_session(Watcher(), name="no project", preset="main")
    found = await service.create_session(Watcher(), name="third", preset="main", root=rootless["branch"])
    assert str(Path.home()) not in preset_text(found), "who may write nothing passes on no right to write at home"


def below(directory: str, name: str) -> str:
    (place := Path(directory, name)).mkdir(parents=True)
    return str(place)


def preset_text(made: dict[str, Any]) -> str:
    return (Path(made["branch_dir"]) / "preset.md").read_text()


async def test_presets_are_listed_with_what_is_wrong_with_them(world: World) -> None:
    (world.presets / "broken.md").write_text("---\ntools: [\n---\n")
    listed = {each["name"]: each for each in (await world.service().presets(Watcher()))["presets"]}
    assert "broken.md" in listed["broken"]["error"]
    assert listed["main"]["mode"] == "all" and "error" not in listed["main"]


async def test_a_conversation_by_operations(world: World) -> None:
    service, client = world.service(), Watcher()
    branch = await made(world)
    given = await service.attach(client, branch=branch, sha256=body_sha256(""))
    assert given["revision"] and given["preset"] == "main" and given["settings"]["backend"] == "anthropic"
    assert (await service.attach(Watcher(), branch=branch, sha256="0"))["unknown"]
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
    assert world.kernel.opened(branch) is None
    session = await service.resolve(client, name=branch)
    shown = json.loads((await service.show(client, branch=session["session_id"]))["json"])
    assert shown["messages"][-1]["parts"][-1]["data_json"]["text"] == "Done"


async def test_an_attach_that_a_later_one_overtakes_drops_no_events_of_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, branch = world.service(), await made(world)
    frames: list[bytes] = []
    outbox = Outbox(frames.append, lambda *_, **__: None)
    client = Client(name="editor", human=True, logs=False, outbox=outbox)
    slow, is_tried = threading.Event(), iter([False])

    def warning(scope: object) -> str:
        if threading.current_thread() is not threading.main_thread():
            slow.wait(60)
        return ""

    monkeypatch.setattr(enclosure, "is_tried", lambda: next(is_tried, True))
    monkeypatch.setattr(enclosure, "confinement_warning", warning)
    opened, sent = (asyncio.create_task(service.attach(client, branch=branch, sha256=body_sha256(""))) for _ in "ab")
    at = {"branch": branch, "revision": (await sent)["revision"]}
    await service.edit_document(client, **at, id="e1", hunks=[[5, 5, "Hi", None]])
    assert not opened.done()
    slow.set()
    await opened
    outbox.flush()
    assert b'"e1"' in b"".join(frames)


async def test_edits_by_operations(world: World) -> None:
    service, client, other = world.service(), Watcher(), Watcher()
    branch = await made(world)
    given = await service.attach(client, branch=branch, sha256=body_sha256(""))
    await service.attach(other, branch=branch, sha256=body_sha256(""))
    at = {"branch": branch, "revision": given["revision"]}
    with pytest.raises(BadRequest, match="No hunk"):
        await service.edit_document(client, **at, hunks=[[5, 4, "x", None]])
    with pytest.raises(BadRequest, match="No role"):
        await service.edit_document(client, **at, hunks=[[5, 5, "x", [[1, 9, "response"]]]])
    await service.edit_document(client, **at, id="e1", hunks=[[5, 5, "Hi", None]], settings={"model": "m"})
    saved = await service.checkpoint(client, branch=branch)
    file = Path(branch) / "session.md"
    assert saved["mtime"] == file.stat().st_mtime_ns and document.read(file).body == "### Hi"
    assert document.read(file).settings.model == "m"
    assert other.of("edit")[-1].args[0]["revision"] == saved["revision"]
    file.write_text(file.read_text().replace("Hi", "Hi there"))
    await service.checkpoint(client, branch=branch)
    assert [hunk[2] for hunk in client.of("edit")[-1].args[0]["hunks"]] == [" there"]


async def test_a_large_conversation_is_shown_by_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyagentd.api.group.INLINE_LIMIT", 10)
    branch = await made(world)
    shown = await world.service().show(Watcher(), branch=branch)
    with open(shown["path"]) as file:  # noqa: ASYNC230, PTH123 - a test may block
        assert json.load(file)["messages"] == []


@pytest.mark.parametrize("kept", [0.0, 600.0])
async def test_the_file_of_a_large_reply_does_not_stay(
    world: World, monkeypatch: pytest.MonkeyPatch, kept: float
) -> None:
    monkeypatch.setattr("pyagentd.api.group.INLINE_LIMIT", 10)
    monkeypatch.setattr("pyagentd.api.group.KEPT_S", kept)
    branch = await made(world)
    shown = await world.service().show(Watcher(), branch=branch)
    if kept:  # as after the daemon was killed
        world.service()
    async with asyncio.timeout(60):
        while os.path.exists(shown["path"]):  # noqa: PTH110, ASYNC110, ASYNC240 - a test may block
            await asyncio.sleep(0.01)


async def test_a_preset_that_cannot_be_read_is_said_on_attach(world: World) -> None:
    branch = await made(world)
    service = world.service()
    ref = (await service.resolve(Watcher(), name=branch))["file"].replace("session.md", "preset.md")
    with open(ref, "w") as file:  # noqa: ASYNC230, PTH123
        file.write("---\ntools: [\n---\n")
    with pytest.raises(PresetError, match=r"preset\.md"):
        await service.attach(Watcher(), branch=branch, sha256=body_sha256(""))
    assert world.kernel.opened(branch) is None


def repository(root: Path, monitor: str) -> None:
    """Make ``root`` a repository that names a program."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "config", "core.fsmonitor", monitor], check=True)


async def test_the_files_of_a_project_are_what_git_has_with_their_directories(world: World, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    for name in ("README.md", "src/tea.py", "left-out.log", ".gitignore"):
        (root / name).write_text("*.log\n")
    assert await world.service().project_files(Watcher(), root=str(root)) == {"files": []}
    repository(root, f"touch {tmp_path}/ran;:")
    found = (await world.service().project_files(Watcher(), root=str(root)))["files"]
    assert sorted(found) == [".gitignore", "README.md", "src/", "src/tea.py"]
    assert not (tmp_path / "ran").exists()

"""Whatever stands in the place of a file that we read: nothing waits for it, nothing of it leaks, others go on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.errors import PyagentdError
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from tests.runtime.world import Watcher, World

SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"
NESTED = "[" * 50_000
_NESTED = {".md": f"---\nname: x\ntools: {NESTED}\n---\n", ".toml": f"a = {NESTED}\n"}
_WEDGED_S = 60  # beyond what any machine takes; a wait for a FIFO has no end
_BLOCKED_S = 8.0  # the loop may not stand still; nested brackets hold an unbounded reader twice as long


@dataclass
class Stage:
    world: World
    service: Service
    ref: BranchRef
    agent: Path
    secret: Path


KINDS: dict[str, Callable[[Path, Stage], Any]] = {
    "a link to a private key": lambda path, stage: path.symlink_to(stage.secret),
    "a FIFO": lambda path, stage: os.mkfifo(path),
    "a device": lambda path, stage: os.mknod(path, 0o020666, os.makedev(1, 5)),  # zeros without end
    "a link to /dev/zero": lambda path, stage: path.symlink_to("/dev/zero"),
    "a directory": lambda path, stage: path.mkdir(),
    "nested brackets": lambda path, stage: path.write_text(_NESTED.get(path.suffix, NESTED)),
    "a huge file": lambda path, stage: _huge(path),
}


OTHERS_GO_ON = ("a FIFO", "nested brackets")  # what a reader would wait for, or work on


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 10**11)


def _session(name: str) -> Callable[[Stage], Path]:
    return lambda stage: stage.ref.branch_dir / name


def _project(name: str) -> Callable[[Stage], Path]:
    return lambda stage: stage.world.project / name


PLACES: dict[str, Callable[[Stage], Path]] = {
    **{
        name: _session(name)
        for name in (
            "session.md",
            "preset.md",
            "scope-plan.yml",
            "branch-metadata.yml",
            "messages.jsonl",
            "requests.jsonl",
            "tools.org",
            "system-prompts.org",
            "files/picture.png",
        )
    },
    **{
        name: _project(name)
        for name in (
            ".pyagentd/presets/main.md",
            ".pyagentd/hooks.toml",
            ".pyagentd/mcp.toml",
            ".mcp.json",
            ".pyagentd/skills/x/SKILL.md",
            "CLAUDE.md",
            ".git",
        )
    },
    "a template of the user": lambda stage: stage.world.presets / "main.md",
    "agent.json": lambda stage: stage.agent / "agent.json",
    "a saved context": lambda stage: stage.agent / "saved" / "x.json",
}


@contextmanager
def bounded() -> Iterator[None]:
    """Have whatever waits for ever in this thread end."""

    def end(*_: object) -> None:
        raise AssertionError("the event loop stands still")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(_WEDGED_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


async def beat(gaps: list[float]) -> None:
    while True:
        began = time.monotonic()
        try:
            await asyncio.sleep(0.01)
        finally:
            gaps.append(time.monotonic() - began)


async def use(stage: Stage, path: Path) -> None:
    """Do everything that reads files there; any of it may be refused."""
    service, client, branch, root = stage.service, Watcher(), stage.ref.key, str(stage.world.project)
    calls: dict[str, list[Callable[[], Awaitable[Any]]]] = {
        "session": [
            lambda: service.sessions(client),
            lambda: service.show(client, branch=branch),
            lambda: service.history(client, branch=branch),
            lambda: service.trace(client, branch=branch),
            lambda: service.branches(client, branch=branch),
            lambda: service.changes(client, branch=branch),
            lambda: service.session_metadata(client, directory=str(stage.ref.branch_dir)),
            lambda: service.preset_metadata(client, directory=str(stage.ref.branch_dir)),
            lambda: service.branch(client, branch=branch, name="other"),
            lambda: service.duplicate(client, branch=branch),
        ],
        "project": [
            lambda: service.presets(client, root=root),
            lambda: service.hooks(client, root=root),
            lambda: service.mcp(client, root=root),
            lambda: service.skills(client, root=root),
            lambda: service.create_session(client, name="second", preset="main", root=root),
        ],
        "agent": [
            lambda: service.agent_list(client),
            lambda: service.agent_config(client, name="my-agent"),
        ],
    }
    with suppress(PyagentdError):
        await prompt(stage.world, stage.ref)
    homes = {"session": stage.ref.session_dir, "agent": stage.agent}
    group = next((name for name, home in homes.items() if path.is_relative_to(home)), "project")
    for told in await asyncio.gather(*(call() for call in calls[group]), return_exceptions=True):
        if isinstance(told, BaseException) and not isinstance(told, PyagentdError):
            raise told


async def prompt(world: World, ref: BranchRef) -> None:
    async with world.kernel.using(ref) as branch:
        world.server.say("Answer")
        await world.kernel.prompt(branch, text="Go on", options=world.options)
        if branch.task is not None:
            await asyncio.wait([branch.task])


async def staged(world: World) -> Stage:
    world.preset(DEFAULT_PRESET)
    service = world.service()
    made = await service.create_session(Watcher(), name="test", preset="main", root=str(world.project))
    named = await service.agent_init(Watcher(), name="my-agent")
    secret = world.home / "id_ed25519"
    secret.write_text(f"{SECRET}\nabc\n")
    ref = paths.ref_of(Path(made["branch"]))
    await prompt(world, ref)
    return Stage(world, service, ref, Path(named["dir"]), secret)


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def put_in_place(path: Path, kind: str, stage: Stage) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    try:
        KINDS[kind](path, stage)
    except PermissionError:  # only root makes devices
        return False
    return True


def leaked(stage: Stage) -> list[Path]:
    """Return the files that hold the key; but what it was linked from."""
    found = []
    for directory, _, names in os.walk(stage.world.home):
        for path in (Path(directory) / name for name in names):
            if path.is_file() and not path.is_symlink() and path != stage.secret and path.stat().st_size < 10**7:
                with suppress(OSError):
                    if SECRET.encode() in path.read_bytes():
                        found.append(path)
    return found


@pytest.mark.parametrize("place", PLACES)
async def test_nothing_waits_for_what_is_no_file_of_ours_and_nothing_of_it_leaks(world: World, place: str) -> None:
    stage = await staged(world)
    path = PLACES[place](stage)
    before = path.read_bytes() if path.is_file() else None
    for kind in KINDS:
        await world.kernel.shutdown()
        if not put_in_place(path, kind, stage):
            continue
        world.start()
        stage.service = world.service()
        gaps: list[float] = []
        with bounded():
            beating = asyncio.create_task(beat(gaps))
            using = asyncio.create_task(use(stage, path))
            if kind in OTHERS_GO_ON and place != "a template of the user":
                await prompt(world, world.session(f"other {kind}"))  # another client, meanwhile
            try:
                await using
            finally:
                beating.cancel()
        assert max(gaps, default=0.0) < _BLOCKED_S, kind
        if place != "a template of the user":  # the user's own may be a link
            assert not leaked(stage), kind
            assert not any(SECRET in str(request.body) for request in world.server.requests), kind
        _clear(path)
        if before is not None:
            path.write_bytes(before)


async def test_the_users_own_configuration_and_presets_may_be_links(world: World) -> None:
    dotfiles = world.home / "dotfiles"
    dotfiles.mkdir()
    world.preset("linked")
    (world.presets / "linked.md").rename(dotfiles / "linked.md")
    (world.presets / "linked.md").symlink_to(dotfiles / "linked.md")
    (dotfiles / "config.toml").write_text("[compaction]\nauto = false\n")
    (world.home / "config.toml").symlink_to(dotfiles / "config.toml")
    world.start()
    made = await world.service().create_session(Watcher(), name="test", preset="linked", root=str(world.project))
    assert made["branch"]

"""A session gets its title from the model, and nothing ever waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.config import load_config
from pyagentd.features.titles import Titles
from pyagentd.llm.prompts import TITLE_SYSTEM
from pyagentd.store import journal, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.paths import BranchRef
from tests.runtime.world import OVERLOADED, Watcher, World, attached
from tests.server import Request, answer, refusal, text


@pytest.fixture
async def titles(world: World) -> AsyncIterator[Titles]:
    made = named(world)
    yield made
    await made.stop()


def named(world: World, **options: Any) -> Titles:
    """Have the world's kernel name its sessions."""
    return Titles(world.kernel, **options)


def asks_for_title(request: Request) -> bool:
    return any(block["text"] == TITLE_SYSTEM for block in request.body.get("system") or ())


def title_requests(world: World) -> list[Request]:
    return [request for request in world.server.requests if asks_for_title(request)]


def titled(world: World, title: Any) -> None:
    """Have the server answer title requests with ``title`` and everything else with "Hello"."""
    said = answer(text(title)) if isinstance(title, str) else title
    world.server.rule = lambda request: said if asks_for_title(request) else answer("Hello")


async def send(world: World, ref: BranchRef, watcher: Watcher, prompt: str = "Hi") -> None:
    async with world.kernel.using(ref) as branch:
        if watcher not in branch.sinks:
            await attached(branch, watcher)
        await world.kernel.prompt(branch, text=prompt, options=world.options)
        await branch_finished(watcher)


async def branch_finished(watcher: Watcher) -> None:
    await watcher.until(lambda: [e for e in watcher.of("run") if e.args[0]["phase"] == "finished"])
    watcher.events = [e for e in watcher.events if e.kind == "session"]


async def settled(titles: Titles) -> None:
    """Wait until nothing is asked for any more."""
    while titles._tasks:
        await asyncio.wait(titles._tasks)


def recorded_title(branch_dir: Path) -> str:
    session = Conversation(journal.read_rows(paths.journal_file(branch_dir))).session
    return str(session.get("title", ""))


async def test_the_first_finished_turn_gives_the_session_a_title(world: World, titles: Titles) -> None:
    titled(world, '"Title: Greeting **friends**."')
    ref, watcher = world.session(), Watcher()
    await send(world, ref, watcher, "Say hello to <everybody>")
    await watcher.until(lambda: watcher.of("session"))
    assert watcher.of("session")[0].args[0] == {"title": "Greeting friends", "archived_at": None}
    assert recorded_title(ref.branch_dir) == "Greeting friends"
    (asked,) = title_requests(world)
    assert asked.body["model"] == "model-main" and "tools" not in asked.body
    assert "Say hello to <everybody>" in str(asked.messages) and "Hello" in str(asked.messages)


async def test_a_session_is_asked_about_once(world: World, titles: Titles) -> None:
    titled(world, "First")
    ref, watcher = world.session(), Watcher()
    for _ in range(3):
        await send(world, ref, watcher)
        await settled(titles)
    assert len(title_requests(world)) == 1 and recorded_title(ref.branch_dir) == "First"


@pytest.mark.parametrize(
    "trouble",
    [
        refusal(401, "authentication_error", "no"),
        OVERLOADED,
        answer(text("Half a", chunks=2), cut_after=4),
        answer("  "),
        answer(text("I refuse"), stop_reason="refusal"),
    ],
    ids=["refused", "overloaded", "cut", "empty", "refusal"],
)
async def test_a_title_that_does_not_come_is_not_asked_for_again(world: World, titles: Titles, trouble: Any) -> None:
    titled(world, trouble)
    ref, watcher = world.session(), Watcher()
    for _ in range(2):
        await send(world, ref, watcher)
        await settled(titles)
    assert len(title_requests(world)) == 1
    assert recorded_title(ref.branch_dir) == "" and not watcher.of("session")


async def test_a_slow_title_delays_nothing(world: World, titles: Titles) -> None:
    titled(world, answer(hang_after=1))
    ref, watcher = world.session(), Watcher()
    await send(world, ref, watcher)
    await send(world, ref, watcher, "And again")  # while the title is still asked for
    assert len(titles._tasks) == 1
    await titles.stop()
    async with asyncio.timeout(5):
        await world.kernel.shutdown()
        await settled(titles)
    assert recorded_title(ref.branch_dir) == ""


async def test_a_model_that_takes_too_long_is_given_up(world: World) -> None:
    titles = named(world, timeout_s=0.05)
    titled(world, answer(hang_after=1))
    ref, watcher = world.session(), Watcher()
    await send(world, ref, watcher)
    async with asyncio.timeout(5):
        await settled(titles)
    assert recorded_title(ref.branch_dir) == "" and not watcher.of("session")


async def test_a_title_of_the_users_wins(world: World, titles: Titles) -> None:
    renamed = asyncio.Event()
    loop, ref, watcher = asyncio.get_running_loop(), world.session(), Watcher()

    async def rename() -> None:
        async with world.kernel.using(ref) as branch:
            branch.note_session(title="Mine")
        renamed.set()

    def rule(request: Request) -> Any:
        if asks_for_title(request):
            asyncio.run_coroutine_threadsafe(rename(), loop).result(5)
            return answer("Theirs")
        return answer("Hello")

    world.server.rule = rule
    await send(world, ref, watcher)
    await renamed.wait()
    await settled(titles)
    assert recorded_title(ref.branch_dir) == "Mine" and not watcher.of("session")


async def test_a_session_that_has_a_title_is_left_alone(world: World, titles: Titles) -> None:
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        branch.note_session(title="Mine")
    await send(world, ref, watcher)
    await settled(titles)
    assert not title_requests(world)


async def test_all_branches_of_the_session_get_the_title(world: World, titles: Titles) -> None:
    titled(world, "Shared")
    ref, watcher = world.session(), Watcher()
    other = ref.branch_dir.parent / "20260304050607-other"
    other.mkdir()
    (other / "session.md").write_text("### Hi\n\n")
    await send(world, ref, watcher)
    await settled(titles)
    assert [recorded_title(place) for place in (ref.branch_dir, other)] == ["Shared", "Shared"]


async def test_a_turn_that_failed_asks_for_nothing(world: World, titles: Titles) -> None:
    world.server.say(refusal(401, "authentication_error", "no"))
    await send(world, world.session(), Watcher())
    await settled(titles)
    assert not title_requests(world)


async def test_the_model_for_titles_can_be_configured(world: World, titles: Titles) -> None:
    config = world.home / "config.toml"
    config.write_text('[titles]\nmodel = "small"\n')
    configured = load_config({"PYAGENTD_CONFIG": str(config)})
    world.kernel.config = replace(world.kernel.config, titles=configured.titles)
    titled(world, "Short")
    await send(world, world.session(), Watcher())
    await settled(titles)
    (asked,) = title_requests(world)
    assert asked.body["model"] == "small"

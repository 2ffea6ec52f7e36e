"""Named agents with which nobody talks, by a virtual clock; the end of the daemon, and the next one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pyagentd.features.contexts import IDLE_SETTING, Contexts, left_notice
from pyagentd.features.named_agents import create, rename
from pyagentd.features.schedules import Schedules
from pyagentd.features.tasks import Tasks
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.runtime.branch import LiveBranch
from pyagentd.store import paths
from pyagentd.store.db import agents
from pyagentd.store.document import hidden
from pyagentd.store.document.text import body_sha256
from pyagentd.store.paths import BranchRef
from tests.features.lifecycle.test_contexts import saved
from tests.features.test_history import Chat
from tests.features.test_triggers import ManualClock, restarted
from tests.runtime.test_resume import until
from tests.runtime.world import Watcher, World, attached, body
from tests.server import answer, text, tool_use


@pytest.fixture
def clock(world: World) -> ManualClock:
    made = ManualClock()
    world.kernel.clock = made
    return made


async def agent(world: World) -> BranchRef:
    world.preset(DEFAULT_PRESET)
    world.kernel.config.sessions_dir.mkdir(exist_ok=True)
    ref = await create(world.kernel, "bob")
    assert await status(world) == "idle"
    return ref


async def say(world: World, ref: BranchRef, said: str) -> Chat:
    async with world.kernel.using(ref) as branch:
        chat = Chat(world, branch)
        await chat.say(said)
        return chat


async def status(world: World) -> str:
    while world.kernel._errands:
        await asyncio.wait(world.kernel._errands)
    row = agents.find(world.kernel.state, "bob")
    assert row is not None
    return row.status


async def files(world: World, ref: BranchRef) -> list[dict[str, Any]]:
    return [saved(row.file_path) for row in await world.kernel.feature(Contexts).history(ref)]


@pytest.mark.spec("003", "Idle Timer 2: saved")
@pytest.mark.spec("003", "Idle Timer 3: cleared")
async def test_after_half_an_hour_a_conversation_is_saved_and_put_behind(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    assert await status(world) == "active" and world.kernel.feature(Contexts).pending == 1
    clock.forward(minutes=29)
    await world.kernel.feature(Contexts).tick()
    assert await files(world, ref) == []
    clock.forward(minutes=1)
    world.server.say(answer(text("Counted to one.")))
    before, watcher = body(ref), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.feature(Contexts).tick()
        branch.detach(watcher)
        assert hidden.visible(branch.conversation) == []
    (file,) = await files(world, ref)
    assert (file["trigger"], file["description"], file["agent_name"]) == ("idle_timeout", "Counted to one.", "bob")
    assert [row.file_path for row in await world.kernel.feature(Contexts).history(ref)] == [
        str(ref.session_dir / "sessions" / "2026-03-04_counted-to-one.json")
    ]
    assert watcher.of("notice")[-1].args[0]["text"] == (
        "Session saved: Counted to one. Context cleared after 30 minutes of inactivity. "
        f"Use /context restore {file['id'][:8]} to resume. In a shell: pyagentd context restore bob {file['id'][:8]}"
    )
    assert body(ref) == before and await status(world) == "idle" and world.kernel.feature(Contexts).pending == 0
    assert (await say(world, ref, "two")).seen() == ["two"]
    async with world.kernel.using(ref) as branch:
        await world.kernel.feature(Contexts).restore(branch, file["id"])
    assert await status(world) == "active"
    assert (await say(world, ref, "three")).seen() == ["one", "Answer to one", "three"]


@pytest.mark.spec("003", "Idle Timer 1: summary")
@pytest.mark.spec("003", "Idle Timer 4: notice")
async def test_the_notice_says_what_a_model_made_of_the_conversation(world: World, clock: ManualClock) -> None:
    ref, watcher = await agent(world), Watcher()
    await say(world, ref, "one")
    clock.forward(minutes=30)
    world.server.say(answer(text("Counted; two is pending")))
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.feature(Contexts).tick()
        branch.detach(watcher)
    (row,) = await world.kernel.feature(Contexts).history(ref)
    assert "[assistant]\\nAnswer to one" in str(world.server.requests[-1].messages)
    assert watcher.of("notice")[-1].args[0]["text"] == (
        "Session saved: Counted; two is pending. Context cleared after 30 minutes of inactivity. "
        f"Use /context restore {row.id[:8]} to resume. In a shell: pyagentd context restore bob {row.id[:8]}"
    )


@pytest.mark.spec("003", "Idle Timer 4: notice")
async def test_whoever_opens_it_later_is_told_what_became_of_the_conversation(
    world: World, clock: ManualClock
) -> None:
    ref, service = await agent(world), world.service()
    await say(world, ref, "one")
    clock.forward(minutes=30)
    world.server.say(answer(text("Counted")))
    await world.kernel.feature(Contexts).tick()

    async def notes() -> list[str]:
        sha256 = body_sha256(body(ref))
        return list((await service.attach(Watcher(), branch=ref.key, sha256=sha256))["notes"])

    (row,) = await world.kernel.feature(Contexts).history(ref)
    said = "Session saved: Counted. Context cleared after 30 minutes of inactivity. "
    shell = f"In a shell: pyagentd context restore bob {row.id[:8]}"
    assert await notes() == [f"{said}Use /context restore {row.id[:8]} to resume. {shell}"]
    await say(world, ref, "two")
    assert await notes() == []


@pytest.mark.spec("003", "Active Session: none yet")
@pytest.mark.spec("003", "Active Session: continued")
async def test_a_message_begins_a_conversation_or_goes_on_with_it(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    assert await status(world) == "idle"
    assert (await say(world, ref, "one")).seen() == ["one"]
    assert await status(world) == "active"
    assert (await say(world, ref, "two")).seen() == ["one", "Answer to one", "two"]


@pytest.mark.spec("003", "State Diagram: IDLE to ACTIVE by a message")
@pytest.mark.spec("003", "State Diagram: IDLE to ACTIVE by a restore")
async def test_messages_and_restored_conversations_make_an_agent_active(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    assert await status(world) == "active"
    async with world.kernel.using(ref) as branch:
        row = await world.kernel.feature(Contexts).save(branch, "x", options=world.options)
        assert await status(world) == "active", "saving does not end a conversation"
        await world.kernel.feature(Contexts).clear(branch)
        assert await status(world) == "idle"
        await world.kernel.feature(Contexts).restore(branch, row.id)
        assert await status(world) == "active"


@pytest.mark.spec("003", "Idle Timer: reset")
async def test_whatever_is_said_begins_the_timer_anew(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    world.kernel.state.put(IDLE_SETTING, 600)
    for _ in range(3):
        await say(world, ref, "Hi")
        clock.forward(minutes=9)
        await world.kernel.feature(Contexts).tick()
    assert await files(world, ref) == []
    clock.forward(minutes=1)
    await world.kernel.feature(Contexts).tick()
    (file,) = await files(world, ref)
    assert file["message_count"] == 6


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("Bash", {"command": "sleep 600", "run_in_background": True, "wake": True}),
        (
            "request_wakeup",
            {"when": {"kind": "delay_ms", "value": 7_200_000}, "prompt": "Look again.", "reason": "It takes long"},
        ),
    ],
)
async def test_a_conversation_that_is_waited_for_goes_on(
    world: World, clock: ManualClock, tool: str, args: dict[str, Any]
) -> None:
    world.preset(DEFAULT_PRESET, tools="Bash, request_wakeup")
    ref = await create(world.kernel, "bob", permissions="open")
    async with world.kernel.using(ref) as branch:
        world.server.say(answer(tool_use(tool, **args)), "It takes a while.")
        await world.kernel.prompt(branch, text="Build", options=world.granted("tool:.*"))
        await until(lambda: branch.run is None)
    clock.forward(minutes=40)
    await world.kernel.feature(Contexts).tick()
    assert await files(world, ref) == [], "its end, or the wake-up, comes into an empty conversation"
    for task in await world.kernel.feature(Tasks).of("bob"):
        await world.kernel.feature(Tasks).kill(task)
    for schedule in await world.kernel.feature(Schedules).of(ref):
        await world.kernel.feature(Schedules).cancel(schedule.id)
    clock.forward(minutes=40)
    await world.kernel.feature(Contexts).tick()
    assert len(await files(world, ref)) == 1


@pytest.mark.spec("003", "Graceful Shutdown 1: active sessions are saved")
@pytest.mark.spec("003", "Restart: agents are loaded idle")
async def test_the_end_of_the_daemon_saves_and_the_next_one_begins_idle(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    asked = len(world.server.requests)
    await world.kernel.shutdown()
    restarted(world, clock)
    (file,) = await files(world, ref)
    assert (file["trigger"], file["description"]) == ("shutdown", "one")
    assert len(world.server.requests) == asked, "nobody waits for a model then"
    await world.kernel.feature(Contexts).load()
    assert await status(world) == "idle" and len(await files(world, ref)) == 1
    assert (await say(world, ref, "two")).seen() == ["two"]


@pytest.mark.spec("003", "Graceful Shutdown 2: idle timers are cancelled")
async def test_the_end_of_the_daemon_ends_the_timers(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    await world.kernel.feature(Contexts).start()
    await world.kernel.shutdown()
    assert world.kernel.feature(Contexts).pending == 0
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "idling"] == []


@pytest.mark.spec("003", "Graceful Shutdown 3: connections are closed")
async def test_the_end_of_the_daemon_closes_the_database(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    log = world.kernel.state.path.with_name(f"{world.kernel.state.path.name}-wal")
    assert log.exists()
    await world.kernel.shutdown()
    assert not log.exists(), "who closes it last tidies up"


async def test_an_agent_that_waits_for_a_human_goes_on_in_the_next_daemon(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    world.server.say(answer(tool_use("Bash", command="touch x")))
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text="one", options=world.options)
    await until(lambda: world.kernel.asks.all())
    await world.kernel.shutdown()
    restarted(world, clock)
    assert await files(world, ref) == []
    await world.kernel.trees.wake(ref)
    await world.kernel.feature(Contexts).load()
    assert world.kernel.feature(Contexts).pending == 1
    await until(lambda: world.kernel.asks.all())
    clock.forward(hours=1)
    await world.kernel.feature(Contexts).tick()
    async with world.kernel.using(ref) as branch:
        assert hidden.visible(branch.conversation) and await files(world, ref) == []
        await world.kernel.abort(branch)


@pytest.mark.spec("003", "Persistence: Active conversation")
async def test_what_a_killed_daemon_did_not_save_the_next_one_does(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    assert await status(world) == "active"
    world.kernel.feature(Contexts)._last.clear()  # as if it had been killed
    await world.kernel.shutdown()
    restarted(world, clock)
    await world.kernel.feature(Contexts).load()
    (file,) = await files(world, ref)
    assert file["trigger"] == "shutdown" and await status(world) == "idle"


async def test_what_another_branch_saved_is_not_taken_for_a_conversation(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    other = Path((await world.service().branch(Watcher(), branch=ref.key))["branch_dir"])
    for number in range(3):
        await say(world, paths.ref_of(other), f"two {number}")
    async with world.kernel.using(paths.ref_of(other)) as branch:
        await world.kernel.feature(Contexts).save(branch, "Another branch", options=world.options)
    await world.service().switch(Watcher(), branch=ref.key)
    world.kernel.feature(Contexts)._last.clear()  # as if it had been killed
    await world.kernel.shutdown()
    restarted(world, clock)
    await world.kernel.feature(Contexts).load()
    assert {file["description"] for file in await files(world, ref)} == {"one", "Another branch"}
    async with world.kernel.using(ref) as branch:
        assert "Session saved: one." in left_notice(branch.conversation)[0]


@pytest.mark.spec("003", "State Diagram: ACTIVE to IDLE by /context clear")
async def test_clearing_ends_the_timer(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    async with world.kernel.using(ref) as branch:
        await world.kernel.feature(Contexts).clear(branch)
    assert await status(world) == "idle" and world.kernel.feature(Contexts).pending == 0
    clock.forward(hours=1)
    await world.kernel.feature(Contexts).tick()
    assert await files(world, ref) == []


async def test_the_timer_of_an_agent_that_is_renamed_goes_on(world: World, clock: ManualClock) -> None:
    ref = await agent(world)
    await say(world, ref, "one")
    clock.forward(minutes=29)
    other = await rename(world.kernel, "bob", "eve", user="user:me")
    clock.forward(minutes=1)
    await world.kernel.feature(Contexts).tick()
    assert [file["trigger"] for file in await files(world, other)] == ["idle_timeout"]


async def test_an_agent_somebody_talks_to_while_another_one_is_saved_goes_on(
    world: World, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(world, await agent(world), "one")
    eve = await create(world.kernel, "eve")
    await say(world, eve, "one")
    clock.forward(minutes=30)
    contexts = world.kernel.feature(Contexts)
    idle_out = contexts.idle_out

    async def slowly(branch: LiveBranch, *, seconds: float) -> bool:
        if branch.ref != eve:
            await say(world, eve, "two")
            world.server.say(answer(text("Counted")))
        return await idle_out(branch, seconds=seconds)

    monkeypatch.setattr(contexts, "idle_out", slowly)
    await world.kernel.feature(Contexts).tick()
    assert await files(world, eve) == [] and await status(world) == "idle"
    assert (await say(world, eve, "three")).seen() == ["one", "Answer to one", "two", "Answer to two", "three"]


async def test_sessions_without_a_name_are_left_alone(world: World, clock: ManualClock) -> None:
    ref = world.session()
    await say(world, ref, "one")
    clock.forward(days=1)
    await world.kernel.feature(Contexts).tick()
    assert world.kernel.feature(Contexts).pending == 0 and await files(world, ref) == []

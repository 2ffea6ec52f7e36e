"""The agent's list of steps: replaced as a whole, told to clients, kept by the log alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.features import todo
from tests.runtime.test_approvals import Talk, results, talking
from tests.runtime.world import Watcher, World
from tests.server import answer, tool_use


@pytest.fixture
def service(world: World) -> Service:
    world.preset("main", tools="TodoWrite, Read")
    return world.service()


def step(content: str, status: str = "pending") -> dict[str, str]:
    return {"content": content, "status": status, "activeForm": f"Doing: {content}"}


def told(content: str, status: str = "pending") -> dict[str, str]:
    return {"content": content, "status": status, "active_form": f"Doing: {content}"}


def write(*steps: Any) -> Any:
    return answer(tool_use("TodoWrite", todos=list(steps)))


def lists(talk: Talk) -> list[Any]:
    return [event.args[0]["items"] for event in talk.watcher.of("todo", talk.branch.key)]


async def test_each_call_replaces_the_list_and_clients_are_told(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(write(step("a", "in_progress"), step("b")), write(step("a", "completed")), "Done.")
        await talk.watcher.until(lambda: talk.watcher.of("run") and len(lists(talk)) == 2)
        assert lists(talk) == [[told("a", "in_progress"), told("b")], [told("a", "completed")]]
        assert await talk.end() == "The list has 1 step, 0 of them not completed."
        assert todo.current_items(talk.branch.conversation) == [told("a", "completed")]


async def test_it_is_there_after_a_restart_and_when_somebody_attaches(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(write(step("a"), step("b")), "Done.")
        await talk.end()
        ref = talk.branch.ref
    await world.kernel.shutdown()
    world.start()
    attached = await world.service().attach(Watcher(), branch=ref.key, sha256=None, seq=None)
    if attached.get("reread"):
        async with world.kernel.using(ref) as branch:
            assert todo.current_items(branch.conversation) == [told("a"), told("b")]
    else:
        assert attached["todo"] == [told("a"), told("b")]


@pytest.mark.parametrize(
    "steps",
    [
        [step("a", "in_progress"), step("b", "in_progress")],
        [step("a", "done")],
        [{"content": "a", "status": "pending"}],
        [step("")],
    ],
)
async def test_a_list_that_is_none_changes_nothing(world: World, service: Service, steps: Any) -> None:
    async with talking(world, service) as talk:
        await talk.say(write(step("kept")), write(*steps), "Done.")
        await talk.end()
        assert len(results(world.server.last)) == 1
        assert todo.current_items(talk.branch.conversation) == [told("kept")]


async def test_it_is_in_every_profile_and_asks_nobody(world: World, service: Service) -> None:
    (world.presets / "main.md").write_text(
        (world.presets / "main.md").read_text().replace("mode: all", "mode: all\nprofile: locked")
    )
    async with talking(world, service) as talk:
        await talk.say(write(step("a")), "Done.", interactive=False)
        assert await talk.end() == "The list has 1 step, 1 of them not completed."


async def test_it_is_in_what_show_tells_and_a_rewind_brings_back_the_list_of_that_time(
    world: World, service: Service
) -> None:
    async with talking(world, service) as talk:
        await talk.say(write(step("a")), "Done.")
        await talk.end()
        await talk.say(write(step("b")), "Done.", text="More.")
        await talk.end()
        shown = json.loads((await service.show(talk.watcher, branch=talk.branch.key))["json"])
        assert shown["todo"] == [told("b")]
        first = next(m.id for m in talk.branch.conversation.messages.values() if m.role == "user")
        await service.rewind(talk.watcher, branch=talk.branch.key, message=first)
        assert lists(talk)[-1] == todo.current_items(talk.branch.conversation)
        await service.unrewind(talk.watcher, branch=talk.branch.key)
        assert lists(talk)[-1] == [told("b")]

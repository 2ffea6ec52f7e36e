"""Who lists named agents or tasks is told when something about them changes, wherever that is."""

from __future__ import annotations

from pathlib import Path

from pyagentd.events import Event
from pyagentd.features import named_agents
from pyagentd.features.overview import Overview
from pyagentd.store import paths
from tests.features.test_history import Chat
from tests.runtime.world import Watcher, World


async def test_a_client_that_oversees_is_told_of_agents_it_does_not_watch(world: World) -> None:
    world.preset(named_agents.DEFAULT_PRESET)
    world.session()
    service, client, other = world.service(), Watcher(), Watcher()
    await service.agent_list(client, watch=True)
    made = await service.agent_init(other, name="my-agent")
    assert len(client.of("agents")) == 1 and not other.of("agents")
    async with world.kernel.using(paths.ref_of(Path(made["dir"]))) as branch:
        await Chat(world, branch).say("one")
    await client.until(lambda: len(client.of("agents")) >= 4)  # began, is active, has answered
    assert {each.kind for each in client.events} == {"agents"}
    await service.agent_config(other, name="my-agent", key="permissions", value="locked")
    told = len(client.of("agents"))
    world.kernel.forget(client)
    await service.agent_destroy(other, name="my-agent", confirmed=True)
    assert len(client.of("agents")) == told


async def test_who_watches_questions_alone_is_told_of_nothing_else(world: World) -> None:
    world.preset(named_agents.DEFAULT_PRESET)
    world.session()
    service, client = world.service(), Watcher()
    await service.asks(client, watch=True)
    assert not world.kernel.overseers, "nobody has what tasks print read"
    await service.agent_init(Watcher(), name="my-agent")
    assert not client.events
    world.kernel.forget(client)
    assert not world.kernel.humans


async def test_who_closes_its_lists_is_told_of_questions_alone(world: World) -> None:
    world.preset(named_agents.DEFAULT_PRESET)
    world.session()
    service, client = world.service(), Watcher()
    await service.asks(client, watch=True)
    for listed in (service.agent_list, service.tasks, service.sessions, service.running):
        await listed(client, watch=True)
    kernel = world.kernel
    assert kernel.overseers == kernel.feature(Overview).watchers == kernel.humans == {client}
    await service.unwatch(client)
    assert not kernel.overseers and not kernel.feature(Overview).watchers and kernel.humans == {client}
    kernel.publish(Event("task", "/none", 0, ({},)))
    kernel.publish(Event("ask", "/none", 0, ({},)))
    assert [event.kind for event in client.events] == ["ask"]

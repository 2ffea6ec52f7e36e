"""Who lists named agents or tasks is told when something about them changes, wherever that is."""

from __future__ import annotations

from pathlib import Path

from pyagentd.agent.lifecycle import creating
from pyagentd.store import paths
from tests.agent.test_history import Chat
from tests.agent.world import Watcher, World


async def test_a_client_that_oversees_is_told_of_agents_it_does_not_watch(world: World) -> None:
    world.preset(creating.DEFAULT_PRESET)
    world.session()
    service, client, other = world.service(), Watcher(), Watcher()
    await service.agent_list(client, watch=True)
    made = await service.agent_init(other, name="my-agent")
    assert len(client.of("agents")) == 1 and not other.of("agents")
    async with world.host.using(paths.ref_of(Path(made["dir"]))) as branch:
        await Chat(world, branch).say("one")
    await client.until(lambda: len(client.of("agents")) >= 4)  # began, is active, has answered
    assert {each.kind for each in client.events} == {"agents"}
    await service.agent_config(other, name="my-agent", key="permissions", value="locked")
    told = len(client.of("agents"))
    world.host.forget(client)
    await service.agent_destroy(other, name="my-agent", confirmed=True)
    assert len(client.of("agents")) == told

"""The settings of SPEC 003: what agents get where nobody says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.errors import BadRequest, PresetError, PyagentdError
from pyagentd.features import named_agents
from tests.runtime.world import Watcher, World


@pytest.fixture
def service(world: World) -> Service:
    world.preset(named_agents.DEFAULT_PRESET)
    return world.service()


async def settings(service: Service, **given: Any) -> dict[str, Any]:
    held: dict[str, Any] = (await service.settings(Watcher(), **given))["settings"]
    return held


@pytest.mark.spec("003", "Persistence: Server defaults")
async def test_they_hold_for_agents_of_the_next_daemon_too(world: World, service: Service) -> None:
    nothing = {"default_model": None, "default_permissions": "standard", "idle_timeout": 1800}
    assert await settings(service) == nothing
    await settings(service, key="default_model", value="m-1")
    await settings(service, key="default_permissions", value="locked")
    held = await settings(service, key="idle_timeout", value="45min")
    assert held == {"default_model": "m-1", "default_permissions": "locked", "idle_timeout": 2700}
    world.start()
    service = world.service()
    await service.agent_init(Watcher(), name="my-agent")
    config = (await service.agent_config(Watcher(), name="my-agent"))["config"]
    assert (config["model"], config["permissions"]) == ("m-1", "locked")
    for key in held:
        held = await settings(service, key=key, reset=True)
    assert held == nothing


@pytest.mark.parametrize(
    ("value", "seconds"), [("90", 90), (90, 90), ("1.5h", 5400), ("never", 0), (0, 0), ("2 min", 120)]
)
async def test_a_span_is_seconds_or_has_a_unit(service: Service, value: Any, seconds: int) -> None:
    assert (await settings(service, key="idle_timeout", value=value))["idle_timeout"] == seconds


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("idle_timeout", "-1", BadRequest),
        ("idle_timeout", "soon", BadRequest),
        ("idle_timeout", "9999999999", BadRequest),
        ("idle_timeout", "9" * 400, BadRequest),
        ("default_permissions", "nobody", PresetError),
        ("default_permissions", '{"allow": ' + "[" * 100_000, PresetError),
        ("default_permissions", 3, BadRequest),
        ("default_model", "a b", BadRequest),
        ("colour", "red", BadRequest),
        (None, "red", BadRequest),
    ],
)
async def test_what_is_no_good_changes_nothing(
    service: Service, key: str | None, value: Any, error: type[PyagentdError]
) -> None:
    before = await settings(service)
    with pytest.raises(error):
        await settings(service, key=key, value=value)
    assert await settings(service) == before

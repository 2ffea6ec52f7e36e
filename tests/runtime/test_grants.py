"""What is remembered when the disk refuses, now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyagentd.errors import StoreError
from pyagentd.runtime.grants import Origins
from pyagentd.store.db.state import StateError
from tests.runtime.world import World


def refuses_once(get: Callable[..., Any], prefix: str) -> Callable[..., Any]:
    """Return ``get`` as it is where the first look at a key is in vain."""
    left = [1]

    def flaky(key: str, *default: Any) -> Any:
        if key.startswith(prefix) and left[0]:
            left[0] -= 1
            raise StateError("database is locked")
        return get(key, *default)

    return flaky


async def test_grants_that_cannot_be_read_are_not_written_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ref, place = world.session(), world.project
    await world.kernel.grants.remember("project", ref, place, ["tool:Bash:one"], ask="a", by="me")
    world.start()
    state, grants = world.kernel.state, world.kernel.grants
    real = state.get

    def refused(key: str, *default: Any) -> Any:
        raise StateError("database is locked")

    monkeypatch.setattr(state, "get", refused)
    with pytest.raises(StoreError):
        await grants.remember("project", ref, place, ["tool:Bash:two"], ask="b", by="me")
    with pytest.raises(StoreError):
        await grants.revoke(ref, place, "tool:Bash:two")
    monkeypatch.setattr(state, "get", refuses_once(real, "grants:"))
    await grants.remember("project", ref, place, ["tool:Bash:two"], ask="b", by="me")
    assert [each.action for each in grants.active(ref, place)] == ["tool:Bash:one", "tool:Bash:two"]


async def test_what_is_trusted_is_not_forgotten_when_it_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, root = world.kernel.state, world.home / "elsewhere"
    first = world.session()
    Origins(root, state).note_made(first)
    again = Origins(root, state)
    monkeypatch.setattr(state, "get", refuses_once(state.get, ""))
    second = world.session("second")
    again.note_made(second)  # in vain
    again.note_made(second)
    assert again.is_own(first) and again.is_own(second) and Origins(root, state).is_own(first)


async def test_a_grant_that_the_disk_refuses_does_not_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ref, grants = world.session(), world.kernel.grants

    async def refused() -> None:
        raise StoreError("No space left on device")

    async with world.kernel.using(ref) as branch:
        await grants.remember("session", ref, world.project, ["tool:Bash:one"], ask="a", by="me")
        with monkeypatch.context() as full:
            full.setattr(branch.recorder, "commit", refused)
            with pytest.raises(StoreError):
                await grants.remember("session", ref, world.project, ["tool:Bash:two"], ask="b", by="me")
        assert [each.action for each in grants.active(ref, world.project)] == ["tool:Bash:one"]
    world.start()
    await world.kernel.grants.load(ref, world.project)
    assert [each.action for each in world.kernel.grants.active(ref, world.project)] == ["tool:Bash:one"]

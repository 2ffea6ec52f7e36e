"""Who watches all sessions is told what changes in any of them, and nobody else pays for it."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.features.indexer import Indexer
from pyagentd.runtime.feature import BranchChanged, BranchWritten
from pyagentd.store.registry import Registry
from tests.features.test_agents import GRANT, converse, spawn
from tests.features.test_usage import CONFIG, USAGE
from tests.runtime.world import Calls, Watcher, World
from tests.server import answer, silent


@pytest.fixture
async def priced(world: World) -> World:
    (world.home / "config.toml").write_text(CONFIG, encoding="utf-8")
    world.start()
    return world


def told(watcher: Watcher) -> list[dict[str, Any]]:
    """What a watcher was told of all branches."""
    return [row for event in watcher.of("sessions") for row in event.args[0]["rows"]]


def rows(watcher: Watcher, key: str) -> list[dict[str, Any]]:
    """What a watcher was told of one branch."""
    return [row for row in told(watcher) if row["branch"] == key]


def gone(watcher: Watcher) -> list[str]:
    return [key for event in watcher.of("sessions") for key in event.args[0]["gone"]]


async def test_a_run_is_told_while_it_goes_on_and_when_it_has_ended_with_what_it_cost(priced: World) -> None:
    priced.server.say(answer("Hi.", usage=USAGE))
    ref, watcher, service = priced.session(), Watcher(), priced.service()
    await service.sessions(watcher, watch=True)
    await converse(priced, ref)
    await watcher.until(lambda: [row["state"] for row in rows(watcher, ref.key)][-1:] == ["idle"])
    last = rows(watcher, ref.key)[-1]
    assert (last["tokens"], last["usd"], last["unpriced"]) == (16, pytest.approx(11.0), False)
    assert (last["session_id"], last["current"], last["phase"]) == (ref.session_id, True, None)


async def test_what_runs_is_listed_with_its_agents_and_what_they_do(priced: World) -> None:
    priced.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    priced.server.say(answer("I delegate.", spawn(), usage=USAGE), silent())
    ref, service, watcher = priced.session(), priced.service(), Watcher()
    await service.running(watcher, watch=True)
    async with priced.kernel.using(ref) as live:
        await priced.kernel.prompt(live, text="Go.", options=priced.granted(*GRANT))
        await watcher.until(lambda: any(row["agent"] and row["phase"] for row in told(watcher)))
        found = (await service.running(Watcher()))["running"]
        await priced.kernel.abort(live)
    await watcher.until(lambda: {row["branch"]: row["state"] for row in told(watcher)}[ref.key] == "idle")
    own = {row["branch"]: row for row in found}
    assert own[ref.key]["state"] == "busy" and own[ref.key]["tools"]
    (agent,) = (row for row in found if row["agent"])
    assert (agent["parent"], agent["preset"]) == (ref.key, "helper")
    assert agent["started_at"]
    assert (await service.running(watcher))["running"] == []


async def test_sessions_that_come_are_renamed_and_go_are_told(priced: World) -> None:
    service, watcher = priced.service(), Watcher()
    await service.sessions(watcher, watch=True)
    made = await service.create_session(Watcher(), name="Fresh", preset="main")
    key = made["branch"]
    await watcher.until(lambda: rows(watcher, key))
    await service.rename(Watcher(), branch=key, title="Called so")
    await watcher.until(lambda: rows(watcher, key)[-1]["title"] == "Called so")
    assert rows(watcher, key)[-1]["state"] == "idle"
    priced.kernel.forget(watcher)
    heard = len(watcher.events)
    await service.archive(Watcher(), branch=key)
    await service.running(again := Watcher(), watch=True)
    await service.rename(Watcher(), branch=key, title="Later")
    await again.until(lambda: rows(again, key))
    assert len(watcher.events) == heard, "who left is told nothing"
    assert rows(again, key)[-1]["archived_at"]


async def test_the_list_has_what_each_branch_cost_of_its_own(priced: World) -> None:
    priced.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    priced.server.say(answer("I ask.", spawn(), usage=USAGE), *(answer(text, usage=USAGE) for text in ("A.", "B.")))
    ref = priced.session()
    await converse(priced, ref)
    registry = Registry(priced.kernel.config.sessions_dir)
    index = Indexer(priced.kernel.state, registry)
    service = Calls(Service(priced.kernel, registry, index, stop=lambda: None, clients=lambda: 1), registry)
    index.start()
    try:
        assert await index.fresh()
        found = (await service.sessions(Watcher()))["sessions"]
    finally:
        index.close()
    costs = {row["preset"]: (row["tokens"], row["usd"], row["unpriced"]) for row in found}
    assert costs == {"main": (32, pytest.approx(22.0), False), "helper": (16, 0.0, True)}


async def test_a_session_that_is_deleted_is_gone(priced: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(priced.home / "data"))
    service, watcher = priced.service(), Watcher()
    made = await service.create_session(Watcher(), name="Fresh", preset="main")
    await service.sessions(watcher, watch=True)
    await service.delete(Watcher(), branch=made["branch"])
    await watcher.until(lambda: gone(watcher) == [made["branch"]])


async def test_what_is_deleted_right_after_it_did_something_is_gone(priced: World) -> None:
    ref, watcher, service = priced.session(), Watcher(), priced.service()
    await service.sessions(watcher, watch=True)
    async with priced.kernel.using(ref) as live:
        priced.kernel.bus.tell(BranchChanged(live))
        async with priced.kernel.removing(ref.session_dir):
            shutil.rmtree(ref.session_dir)
        priced.kernel.bus.tell(BranchWritten(ref))
    await watcher.until(lambda: gone(watcher))
    assert gone(watcher) == [ref.key] and not any(row == {} for row in told(watcher))


async def test_a_run_whose_files_are_gone_is_not_listed(priced: World) -> None:
    priced.server.say(silent())
    ref, service = priced.session(), priced.service()
    async with priced.kernel.using(ref) as live:
        await priced.kernel.prompt(live, text="Go.", options=priced.options)
        assert [row["branch"] for row in (await service.running(Watcher()))["running"]] == [ref.key]
        kept = ref.session_dir.rename(ref.session_dir.with_name("elsewhere"))
        found = (await service.running(Watcher()))["running"]
        kept.rename(ref.session_dir)
        await priced.kernel.abort(live)
    assert found == []

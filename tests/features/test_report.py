"""What all sessions cost together: local days, prices as they are, agents with the session that has them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pyagentd.api import Service
from pyagentd.features.indexer import Indexer
from pyagentd.features.usage import days_ago, priced_usage, report, session_of
from pyagentd.llm.catalog import ModelFacts, Prices, facts, shipped_models
from pyagentd.messages import Usage
from pyagentd.runtime.usage import Expense
from pyagentd.store.db.projection import LENGTHS, RequestTotals
from pyagentd.store.db.state import State
from pyagentd.store.journal import ProviderModel
from pyagentd.store.registry import Registry
from tests.features.test_agents import converse, spawn
from tests.features.test_usage import CONFIG, USAGE
from tests.runtime.world import Calls, Watcher, World
from tests.server import answer

BERLIN = ZoneInfo("Europe/Berlin")
CHEAP = Prices(input=1.0, output=1.0, cache_read=1.0, cache_write=1.0)


def put(state: State, at: datetime, model: str, tokens: int, number: int = 1) -> None:
    """Write a request without the answer that it belongs to."""
    with state.writing() as db:
        db.execute("PRAGMA defer_foreign_keys = ON")
        db.execute("INSERT OR IGNORE INTO served (provider, model) VALUES ('p', ?)", (model,))
        key = f"s{number}/branches/main"
        row = ("main", "{}", 0, 0, f"Title {number}", f"s{number}", "main", 0, "coder", "", "", "", "", "", 0)
        names = (
            "agent, model_json, created_at, updated_at, title, session_id, branch_name, is_agent, preset,"
            " plan_stamp, journal_stamp, document_stamp, bookmark_json, run_json, reread"
        )
        marks = ", ".join("?" * len(row))
        db.execute(f"INSERT OR IGNORE INTO chat_sessions (id, {names}) VALUES (?, {marks})", (key, *row))
        at_ms = int(at.timestamp() * 1000)
        db.execute("INSERT INTO chat_messages VALUES (?, ?, 'assistant', '{}', 0, 0, 0, '')", (key, f"m{at_ms}"))
        db.execute(
            "INSERT INTO requests SELECT ?1, ?1, 0, ?2, ?3, id, 0, ?4, 0, 0, 0, 0 FROM served WHERE model = ?5",
            (at_ms, key, f"m{at_ms}", tokens, model),
        )


def known(served: ProviderModel) -> ModelFacts:
    return ModelFacts(prices=None if served.model == "free?" else CHEAP)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def test_a_day_is_one_of_the_clock_on_the_wall_also_when_that_is_changed(state: State) -> None:
    put(state, datetime(2026, 3, 28, 23, 30, tzinfo=UTC), "m", 1)  # after midnight in Berlin
    put(state, datetime(2026, 3, 29, 21, 59, tzinfo=UTC), "m", 2)  # an hour shorter: summer time begins
    put(state, datetime(2026, 3, 29, 22, 0, tzinfo=UTC), "m", 4)
    days = {line.key: line.spent.tokens.total for line in report(state, known, "day", zone=BERLIN)}
    assert days == {"2026-03-30": 4, "2026-03-29": 3}
    assert list(days) == ["2026-03-30", "2026-03-29"], "the newest first"
    since = days_ago(1, datetime(2026, 3, 29, 12, 0, tzinfo=UTC), BERLIN)
    assert since == int(datetime(2026, 3, 28, 23, 0, tzinfo=UTC).timestamp() * 1000)
    assert len(report(state, known, "day", since_ms=since + 1, zone=BERLIN)) == 2


def test_lines_are_the_dearest_first_and_a_price_that_is_not_known_stays_so(state: State) -> None:
    at = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
    put(state, at, "free?", 100)
    put(state, at.replace(hour=13), "m", 5, number=2)
    models = report(state, known, "model")
    assert [(line.key, line.requests, line.spent.cost_usd) for line in models] == [("m", 1, 5e-6), ("free?", 1, None)]
    sessions = report(state, known, "session")
    assert [(line.key, line.facts["title"]) for line in sessions] == [("s2", "Title 2"), ("s1", "Title 1")]
    (preset,) = report(state, known, "preset")
    assert (preset.key, preset.spent.known_usd, preset.spent.unpriced) == ("coder", 5e-6, {"free?"})


@pytest.mark.parametrize(
    ("key", "session"),
    [
        ("a-1/branches/main", "a-1"),
        ("a-1/branches/x/agents/b-2/agents/c-3", "a-1"),
        ("/home/me/agents/ann/branches/main", "/home/me/agents/ann"),
        ("/home/me/agents/ann/branches/main/agents/b-2", "/home/me/agents/ann"),
    ],
)
def test_agents_belong_to_the_session_at_the_root(key: str, session: str) -> None:
    assert session_of(key) == session


def test_many_short_prompts_are_no_long_one() -> None:
    each = RequestTotals(served=ProviderModel("p", "m"), longer=0, requests=9, usage=Usage(input=9 * LENGTHS[0]))
    dear = Prices(input=2.0, output=1.0, cache_read=1.0, cache_write=1.0, long_above=LENGTHS[0], long=CHEAP)
    assert priced_usage(each, lambda _: ModelFacts(prices=dear)) == Expense.of(each.usage, 18 * LENGTHS[0] / 1e6)


def test_every_length_from_which_on_a_shipped_model_costs_more_is_told_apart(world: World) -> None:
    prices = [facts(model, world.kernel.config).prices for model in shipped_models()]
    assert {each.long_above for each in prices if each and each.long_above} <= set(LENGTHS)


@pytest.fixture
async def service(world: World) -> Service:
    (world.home / "config.toml").write_text(CONFIG, encoding="utf-8")
    world.start()
    registry = Registry(world.kernel.config.sessions_dir)
    indexer = Indexer(world.kernel.state, registry)
    return Calls(Service(world.kernel, registry, indexer, stop=lambda: None, clients=lambda: 1), registry, indexer)


async def test_the_report_has_what_runs_and_their_agents_have_cost(world: World, service: Service) -> None:
    world.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    world.server.say(
        answer("I ask.", spawn(), usage=USAGE), answer("Alpha.", usage=USAGE), answer("So.", usage=USAGE)
    )
    ref = world.session()
    await converse(world, ref)
    index = service.indexer
    assert index is not None
    index.start()
    try:
        told = {by: await service.usage_report(Watcher(), by=by) for by in ("day", "model", "session", "preset")}
    finally:
        index.close()
    (today,) = told["day"]["lines"]
    assert (today["requests"], today["total"], today["cost_usd"], today["unpriced"]) == (
        3,
        48,
        None,
        ["model-helper"],
    )
    assert today["known_usd"] == pytest.approx(2 * 11.0)
    assert {line["key"]: line["total"] for line in told["model"]["lines"]} == {"model-main": 32, "model-helper": 16}
    (session,) = told["session"]["lines"]
    assert (session["session_id"], session["total"]) == (ref.session_id, 48)
    assert session["file"] == str(ref.branch_dir / "session.md")
    assert {line["key"] for line in told["preset"]["lines"]} == {"main", "helper"}
    assert told["day"]["together"]["total"] == 48 and told["day"]["rest"] is None and not told["day"]["indexing"]

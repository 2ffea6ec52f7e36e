"""What a conversation cost and how full the window is: tokens as the provider counted them, never counted twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.llm.catalog import ModelFacts, Prices
from pyagentd.messages import Usage
from pyagentd.runtime.usage import (
    ContextReply,
    InContext,
    Meter,
    context_used,
    context_words,
    session_usage,
    tokens_used,
)
from pyagentd.runtime.usage import (
    cost as told_cost,
)
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation, compaction_data
from pyagentd.store.document import text as document
from pyagentd.store.journal import ProviderModel, Row
from pyagentd.store.paths import BranchRef
from pyagentd.words import short_tokens
from tests.features.test_agents import converse, spawn
from tests.runtime.world import Watcher, World, attached
from tests.server import answer, tool_use

CONFIG = """
[model."model-main"]
context_window = 100_000
max_output = 10_000
input = 1_000_000
output = 2_000_000
cache_read = 100_000
cache_write = 3_000_000
"""
DOLLAR_EACH = Prices(input=1e6, output=1e6, cache_read=1e6, cache_write=1e6)


def dear(served: ProviderModel) -> ModelFacts:
    return ModelFacts(prices=None if served.model == "free?" else DOLLAR_EACH)


class Log:
    """Rows of a conversation, one after the other."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.seq = 0

    def add(self, kind: str, **data: Any) -> None:
        self.seq += 1
        self.last = Row(self.seq, kind, data)
        self.conversation.apply(self.last)

    def user(self, id: str, **metadata: Any) -> Log:
        self.add("message", id=id, role="user", metadata_json=metadata, created_at=self.seq)
        text = {"type": "text", "text": "x" * 40}
        self.add("part", id=f"p-{id}", message_id=id, index=0, type="text", data_json=text)
        return self

    def answer(self, id: str, *steps: Usage, model: str = "m", **metadata: Any) -> Log:
        total = sum(steps, Usage())
        facts = {"model": model, "usage": counts(total), "last_usage": counts(steps[-1]), **metadata}
        self.add("message", id=id, role="assistant", metadata_json=facts, created_at=self.seq)
        for index, step in enumerate(steps):
            data = {"type": "step-start", "usage": counts(step)}
            self.add("part", id=f"s{index}-{id}", message_id=id, index=index, type="step-start", data_json=data)
        return self

    def compaction(self, id: str, tail: str | None, tokens: int, **metadata: Any) -> Log:
        data = compaction_data(summary="So far.", tail_start_id=tail, auto=True, summary_tokens=tokens, metadata={})
        usage = {"usage": counts(Usage(input=1000)), "origin": "compaction"}
        self.add("message", id=id, role="assistant", metadata_json=usage | metadata, created_at=self.seq)
        self.add("part", id=f"c-{id}", message_id=id, index=0, type="data-compaction", data_json=data)
        return self


def counts(usage: Usage) -> dict[str, int]:
    return {name: getattr(usage, name) for name in ("input", "output", "reasoning", "cache_read", "cache_write")}


def test_the_rollup_after_a_compaction_is_its_tail_and_its_summary() -> None:
    log = Log().user("u1").answer("a1", Usage(input=500, output=100)).user("u2")
    log.answer("a2", Usage(input=30, output=10, reasoning=20, cache_read=5)).compaction("c", "u2", 7)
    assert tokens_used(log.conversation).total == 72
    assert tokens_used(log.conversation).input == 37


def test_the_rollup_after_a_compaction_by_hand_is_the_summary_alone() -> None:
    log = Log().user("u1").answer("a1", Usage(input=500, output=100)).compaction("c", None, 7)
    assert tokens_used(log.conversation) == Usage(input=7)
    log.user("u2").answer("a2", Usage(output=3))
    assert tokens_used(log.conversation).total == 10


def test_the_rollup_leaves_out_what_is_hidden_and_a_hidden_compaction_is_none() -> None:
    log = Log().user("u1").answer("a1", Usage(input=5)).user("u2", hidden_at=1)
    log.answer("a2", Usage(input=50), hidden_at=1).compaction("c", None, 7, hidden_at=1)
    assert tokens_used(log.conversation) == Usage(input=5)


def test_of_two_compactions_the_last_one_counts() -> None:
    log = Log().user("u1").answer("a1", Usage(input=5)).compaction("c1", None, 7).user("u2")
    log.answer("a2", Usage(input=11)).compaction("c2", "u2", 3)
    assert tokens_used(log.conversation) == Usage(input=14)


def test_the_context_holds_what_the_last_request_read_and_said_and_not_the_sum_of_all() -> None:
    log = Log().user("u1").answer("a1", Usage(input=100, output=10), Usage(input=5, cache_read=110, output=20))
    assert context_used(log.conversation) == InContext(135, False)
    log.user("u2").answer("a2", Usage(input=200), hidden_at=1)
    assert context_used(log.conversation) == InContext(135, False)


def test_right_after_a_compaction_the_context_is_an_estimate_and_then_counted_again() -> None:
    log = Log().user("u1").answer("a1", Usage(input=100)).user("u2").answer("a2", Usage(input=200))
    log.compaction("c", "u2", 7)
    assert context_used(log.conversation) == InContext(17, True)
    log.user("u3").answer("a3", Usage(input=40, output=2))
    assert context_used(log.conversation) == InContext(42, False)


def test_what_was_spent_counts_hidden_turns_and_summaries_too() -> None:
    log = Log().user("u1").answer("a1", Usage(input=2), Usage(output=3), hidden_at=1).compaction("c", None, 7)
    spent = session_usage(log.conversation, dear)
    assert spent.tokens == Usage(input=1002, output=3)
    assert spent.cost_usd == 1005


def test_a_price_that_is_not_known_makes_the_sum_unknown_and_never_zero() -> None:
    log = Log().user("u1").answer("a1", Usage(input=2), model="free?").answer("a2", Usage(input=1))
    spent = session_usage(log.conversation, dear)
    assert (spent.cost_usd, spent.known_usd, spent.unpriced) == (None, 1, {"free?"})


def test_an_answer_of_an_older_log_is_one_request() -> None:
    log = Log()
    log.add("message", id="a", role="assistant", metadata_json={"model": "m", "usage": {"input": 4}}, created_at=1)
    assert session_usage(log.conversation, dear).cost_usd == 4


def test_what_is_no_number_counts_nothing() -> None:
    log = Log()
    broken = {"input": "9", "output": None, "reasoning": -1, "cache_read": True, "cache_write": float("nan")}
    log.add("message", id="a", role="assistant", metadata_json={"model": "m", "usage": broken}, created_at=1)
    assert session_usage(log.conversation, dear).tokens == Usage()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),  # the answer
            st.integers(0, 3),  # the step of it
            st.integers(0, 9),  # what it cost; one that is recorded again costs something else
            st.sampled_from(["m", "m", "m", "free?"]),
        ),
        max_size=30,
    )
)
def test_the_meter_knows_after_every_row_what_counting_everything_says(rows: list[tuple[int, int, int, str]]) -> None:
    log, steps = Log(), dict[tuple[int, int], int]()
    meter = Meter(log.conversation, dear, served=lambda: ProviderModel("", ""), changed=lambda: None)
    assert meter.own.cost_usd == 0
    for number, index, cost, model in rows:
        id, data = f"a{number}", {"type": "step-start", "usage": counts(Usage(input=cost))}
        steps[number, index] = cost
        total = sum(cost for (of, _), cost in steps.items() if of == number)
        facts = {"model": model, "usage": counts(Usage(input=total))}
        if id not in log.conversation.messages:
            log.add("message", id=id, role="assistant", metadata_json=facts, created_at=1)
            meter.take(log.last)
        log.add("part", id=f"s{index}-{id}", message_id=id, index=index, type="step-start", data_json=data)
        meter.take(log.last)
        log.add("message", id=id, role="assistant", metadata_json=facts, created_at=1)
        meter.take(log.last)
        whole = session_usage(log.conversation, dear)
        assert (meter.own.tokens, meter.own.known_usd, meter.own.unpriced) == (
            whole.tokens,
            whole.known_usd,
            whole.unpriced,
        )


# -- a real run ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def priced(world: World) -> World:
    (world.home / "config.toml").write_text(CONFIG, encoding="utf-8")
    world.start()
    return world


USAGE = {"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 1}


def contexts(watcher: Watcher, ref: BranchRef) -> list[dict[str, Any]]:
    return [event.args[0] for event in watcher.of("context", ref.key)]


async def attach(world: World, ref: BranchRef) -> dict[str, Any]:
    """What Emacs is told when it visits the file."""
    file = paths.session_file(ref.branch_dir)
    sha256 = document.body_sha256(document.read(file).body)
    return await world.service().attach(Watcher(), branch=str(ref.branch_dir), sha256=sha256)


@pytest.mark.spec("B.10", "token breakdown")
async def test_every_step_is_told_and_counted_in_five_buckets(priced: World) -> None:
    look = answer("I look.", tool_use("Glob", pattern="*"), usage=USAGE)
    priced.server.say(look, answer("Done.", usage={**USAGE, "input_tokens": 4, "cache_read_input_tokens": 20}))
    ref = priced.session()
    watcher = Watcher()
    async with priced.kernel.using(ref) as live:
        await attached(live, watcher)
        await priced.kernel.prompt(live, text="Look.", options=priced.options)
        await watcher.until(lambda: len(watcher.of("run", ref.key)) > 1 and len(contexts(watcher, ref)) > 1)
        first, second = contexts(watcher, ref)
        assert (first["used"], second["used"]) == (16, 27)
        assert (first["window"], first["window_known"], first["usable"]) == (100_000, True, 90_000)
        assert first["cost_usd"] == pytest.approx(3 * 1 + 2 * 2 + 10 * 0.1 + 1 * 3)
        assert second["cost_usd"] == pytest.approx(first["cost_usd"] + 4 * 1 + 2 * 2 + 20 * 0.1 + 1 * 3)
        assert second["tokens"] == {"input": 7, "output": 4, "reasoning": 0, "cache_read": 30, "cache_write": 2}
        assert second["last"]["cache_read"] == 20
        told = await priced.service().usage(Watcher(), branch=ref.key)
        assert told["context"] == second
        (message,) = told["messages"]
        assert (message["steps"], message["total"], message["model"]) == (2, 43, "model-main")
        shown = json.loads((await priced.service().show(Watcher(), branch=ref.key))["json"])
    assert shown["usage"]["own"]["total"] == 43
    recorded = shown["messages"][-1]
    assert recorded["message"]["metadata_json"]["usage"]["cache_read"] == 30
    assert recorded["message"]["metadata_json"]["model"] == {"provider_id": "anthropic", "model_id": "model-main"}
    steps = [part["data_json"]["usage"] for part in recorded["parts"] if part["type"] == "step-start"]
    assert [step["cache_read"] for step in steps] == [10, 20]


async def test_agents_below_are_counted_apart_and_together_live_and_after_a_restart(priced: World) -> None:
    priced.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    priced.server.say(
        answer("I delegate.", spawn(), usage=USAGE), answer("It is alpha.", usage=USAGE), answer("So.", usage=USAGE)
    )
    ref = priced.session()
    watcher = Watcher()
    async with priced.kernel.using(ref) as live:
        await attached(live, watcher)  # and stays: the meter is told a beat after the run has ended
        await converse(priced, ref)

        def is_told() -> bool:
            told = contexts(watcher, ref)
            return bool(told) and told[-1]["agents"] == 1 and told[-1]["tokens"]["input"] == 6  # both steps

        await watcher.until(is_told)
        last = contexts(watcher, ref)[-1]
        assert (last["agents"], last["agents_total"]) == (1, 16)
        assert last["cost_usd"] is None and last["own_usd"] == last["known_usd"] == pytest.approx(22)
        told = await priced.service().usage(Watcher(), branch=ref.key)
        assert live.meter is not None
        assert live.meter.to_wire() == told["context"]
    priced.start()
    again = await priced.service().usage(Watcher(), branch=str(ref.branch_dir))
    assert again == told
    assert (told["own"]["total"], told["agents_total"]["total"], told["together"]["total"]) == (32, 16, 48)
    assert told["together"]["unpriced"] == ["model-helper"]
    priced.start()
    async with priced.kernel.using(ref) as live:
        watcher = Watcher()
        sha256 = document.body_sha256(document.read(paths.session_file(ref.branch_dir)).body)
        await priced.service().attach(watcher, branch=ref.key, sha256=sha256)
        await watcher.until(lambda: contexts(watcher, ref))
        assert contexts(watcher, ref)[-1]["agents_total"] == 16, "what they cost before"
    (agent,) = told["agents"]
    assert (agent["preset"], agent["description"], agent["total"]) == ("helper", "find it", 16)


async def test_a_client_that_attaches_is_told_the_meter_at_once(priced: World) -> None:
    priced.server.say(answer("Hi.", usage=USAGE))
    ref = priced.session()
    await converse(priced, ref)
    priced.start()
    given = await attach(priced, ref)
    assert given["context"]["used"] == 16 and given["context"]["model"] == "model-main"


async def test_before_the_first_answer_the_window_is_that_of_the_presets_model(priced: World) -> None:
    given = await attach(priced, priced.session())
    assert (given["context"]["used"], given["context"]["window"]) == (0, 100_000)
    assert given["context"]["cost_usd"] == 0


_TOLD: ContextReply = {
    "used": 68_000,
    "estimated": False,
    "window": 200_000,
    "window_known": True,
    "usable": 180_000,
    "model": "m",
    "tokens": {"input": 12, "output": 3456, "cache_read": 1_234_567, "cache_write": 8},
    "last": {"input": 1, "output": 2, "reasoning": 3, "cache_read": 4, "cache_write": 5},
    "cost_usd": 0.42,
    "known_usd": 0.42,
    "own_usd": 0.42,
    "agents": 2,
    "agents_total": 1000,
    "compactions": 1,
    "short": "",
    "words": [],
}


def test_a_context_is_told_in_words() -> None:
    assert list(context_words(_TOLD)) == [
        "Context: 68,000 of 200,000 tokens of m",
        "Compacted from 180,000 on",
        "Last request: input 1, output 2, reasoning 3, cache read 4, cache write 5",
        "Session: input 12, output 3,456, reasoning 0, cache read 1,234,567, cache write 8",
        "Its 2 agents: 1,000 tokens",
        "Cost: $0.42",
        "Compactions: 1",
    ]
    unknown = ContextReply(**{**_TOLD, "cost_usd": None, "window_known": False, "estimated": True})  # type: ignore[typeddict-item]
    lines = list(context_words(unknown))
    assert lines[0].startswith("Context: about 68,000") and "estimated: the window" in lines[0]
    assert lines[5] == "Cost: $0.42 and unknown (no price of a model in config.toml)"


@pytest.mark.parametrize(
    ("tokens", "text"), [(0, "0"), (999, "999"), (1500, "1.5k"), (9949, "9.9k"), (9950, "10k"), (2_500_000, "2.5M")]
)
def test_tokens_in_a_few_characters(tokens: int, text: str) -> None:
    assert short_tokens(tokens) == text


def test_an_unknown_price_is_never_nothing() -> None:
    assert told_cost(0, unpriced=True) == "$?"
    assert told_cost(0.1, unpriced=True) == "$0.10+?"
    assert (told_cost(0.0042, unpriced=False), told_cost(1.5, unpriced=False)) == ("$0.0042", "$1.50")

"""Replay equals live: what a client was told comes again from the log, whole or from any event on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from pyagentd.events import Event
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.branch import ClientText, LiveBranch, attach_client
from pyagentd.runtime.queue import Submission
from pyagentd.store.paths import BranchRef
from tests.runtime.world import Watcher, World, attached, type_
from tests.server import answer, text, thinking, tool_use

LAPTOP = "If the user closes their laptop mid-turn and reconnects later, can the turn resume without a new message?"


def told(events: Iterable[Event | list[Any]]) -> list[Any]:
    """What events say, text put together wherever it was cut, without what is true only now."""
    found: list[Any] = []
    for event in events:
        kind, seq, *args = (event.kind, event.seq, *event.args) if isinstance(event, Event) else event
        if not seq and kind != "insert":  # of the texts of one row only the last has its number
            continue
        if kind == "insert":
            content, role = args
            role = list(role) if isinstance(role, list | tuple) else role
            if found and found[-1][0] == "insert" and found[-1][2] == role:
                found[-1] = ["insert", found[-1][1] + content, role]
            else:
                found.append(["insert", content, role])
        elif kind == "prompt":
            found.append(["prompt", args[0]])
        else:
            found.append([kind, json.loads(args[0]) if isinstance(args[0], str) else json.loads(json.dumps(args[0]))])
    return found


async def replayed(world: World, ref: BranchRef, after: int = 0) -> list[list[Any]]:
    service, found, done = world.service(), [], False
    while not done:
        page = await service.replay(Watcher(), branch=ref.key, after=after)
        for kind, seq, *args in page["events"]:
            role = args[1][1:] if kind == "insert" and isinstance(args[1], list | tuple) else None
            found.append([kind, seq, *args] if role is None else [kind, seq, args[0], args[1]])
        after, done = page["seq"], page["done"]
    return found


async def joined(branch: LiveBranch, sink: Watcher) -> dict[str, Any]:
    """Attach."""
    state = await attach_client(branch, sink, ClientText())
    assert state is not None
    return state


async def say(world: World, ref: BranchRef, watcher: Watcher, *prompts: str) -> None:
    async with world.kernel.using(ref) as branch:
        for prompt in prompts:
            before = len(watcher.of("run"))
            await world.kernel.prompt(branch, text=prompt, options=world.options)
            while len(watcher.of("run")) < before + 2 or branch.run is not None:
                for ask in world.kernel.asks.all():
                    world.kernel.asks.answer(str(ask["id"]), Answer(decision="allow"))
                await asyncio.sleep(0.01)


async def conversation(world: World, watcher: Watcher) -> BranchRef:
    """A turn with everything that is shown, one that fails, and one after it."""
    (world.project / "a.txt").write_text("alpha\n" * 2000)
    world.server.say(
        answer(
            thinking("Hm. Let me see.", chunks=5),
            text("I look. " * 50, chunks=20),
            tool_use("Read", id="toolu_1", file_path="a.txt"),
            tool_use("Bash", id="toolu_2", command="true"),
        ),
        answer(text("It says alpha.", chunks=4)),
        answer("", stop_reason="refusal"),
        answer(text("Welcome.", chunks=2)),
    )
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await say(world, ref, watcher, "What does it say?", "And that?", "Thanks.")
    return ref


@pytest.mark.spec("002", LAPTOP)
async def test_replay_equals_live(world: World) -> None:
    live = Watcher()
    ref = await conversation(world, live)
    assert told(await replayed(world, ref)) == told(live.events)
    kinds = {event.kind for event in live.events if event.seq}
    assert kinds == {"insert", "prompt", "run", "ask"}


async def test_a_prompt_that_stood_in_the_document_is_told_again_with_its_text(world: World) -> None:
    ref, live = world.session(), Watcher()
    world.server.say("One.", "Two.")
    async with world.kernel.using(ref) as branch:
        await attached(branch, live)
        for words in ("Typed in Emacs.", "And this."):
            at = await type_(branch, words)
            await world.kernel.submit(branch, Submission(text=None, at=at, options=world.options))
            await live.finished(branch)
            live.events.clear()
    again = [args[0] for kind, _, *args in await replayed(world, ref) if kind == "fired"]
    assert [json.loads(fired)["text"] for fired in again] == ["Typed in Emacs.", "And this."]


@pytest.mark.spec("002", LAPTOP)
async def test_whoever_reconnects_after_any_event_loses_and_doubles_nothing(world: World) -> None:
    live = Watcher()
    ref = await conversation(world, live)
    whole = told(live.events)
    events = [event for event in live.events if event.seq]
    last_of_row = [n for n, event in enumerate(events) if n + 1 == len(events) or events[n + 1].seq != event.seq]
    for number in last_of_row[:: max(1, len(last_of_row) // 40)]:
        seen = events[: number + 1]
        rest = await replayed(world, ref, after=seen[-1].seq)
        assert told([*seen, *rest]) == whole, seen[-1]


@pytest.mark.spec("002", LAPTOP)
async def test_a_client_that_comes_mid_answer_hears_all_of_it_and_nothing_twice(world: World) -> None:
    ref, first = world.session(), Watcher()
    world.server.say(answer(text("word " * 200, chunks=100), pause_s=0.002))
    async with world.kernel.using(ref) as branch:
        await attached(branch, first)
        await world.kernel.prompt(branch, text="Talk.", options=world.options)
        heard = []
        for words in (10, 40, 80):
            await first.until(lambda words=words: first.text(ref.key).count("word") >= words)
            late = Watcher()
            state = await joined(branch, late)
            page = await world.service().replay(late, branch=ref.key, after=0, upto=state["seq"])
            assert page["done"]
            heard.append((late, page["events"], state["seq"]))
        await first.until(lambda: branch.run is None)
    for late, before, seq in heard:
        # The end of a run may be recorded before a client attaches, and told after: its number says so.
        after = [event for event in late.events if not 0 < event.seq <= seq]
        assert told([*before, *after]) == told(first.events)


async def test_pages_end_between_rows_and_add_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Watcher()
    ref = await conversation(world, live)
    for size in (1, 500, 5000):  # with the smallest, a page ends before every prompt
        monkeypatch.setattr("pyagentd.api.inspection._PAGE", size)
        assert told(await replayed(world, ref)) == told(live.events)


async def test_without_a_beginning_it_is_the_run_in_flight(world: World) -> None:
    live = Watcher()
    ref = await conversation(world, live)
    page = await world.service().replay(Watcher(), branch=ref.key)
    assert page["events"] == [], "nothing runs"
    live.events.clear()
    world.server.say(answer(text("word " * 50, chunks=50), pause_s=0.01))
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text="Talk.", options=world.options)
        await live.until(lambda: "word" in live.text(ref.key))
        page = await world.service().replay(Watcher(), branch=ref.key)
        assert [event[0] for event in page["events"][:2]] == ["prompt", "insert"]
        assert page["events"][0][2] == "Talk."
        await world.kernel.abort(branch)


async def test_an_earlier_daemons_end_is_told_though_nobody_was_there(world: World) -> None:
    live = Watcher()
    ref = await conversation(world, live)
    log = ref.branch_dir / "messages.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    end = max(n for n, line in enumerate(lines) if '"state":"finished"' in line.replace(" ", ""))
    log.write_text("".join(lines[: end + 1]))  # killed before it could tell
    await world.kernel.shutdown()
    world.start()
    assert told(await replayed(world, ref)) == told(live.events)

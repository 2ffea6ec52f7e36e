"""Turns that no human begins: schedules by a virtual clock, deliveries of programs, what limits them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyagentd.clock import Clock
from pyagentd.errors import BadRequest, NotFound, RateLimited, StoreError
from pyagentd.features.schedules import Schedules, Trigger, Triggers, When, after, cron, every
from pyagentd.store.db import audit
from pyagentd.store.paths import BranchRef
from tests.runtime.world import Watcher, World, assert_closed, attached, rows
from tests.server import answer, refusal, silent, tool_use

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


class ManualClock(Clock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment

    def forward(self, **by: float) -> None:
        self.moment += timedelta(**by)


@pytest.fixture
def clock(world: World) -> ManualClock:
    made = ManualClock()
    world.kernel.clock = made
    return made


def restarted(world: World, clock: ManualClock) -> None:
    world.start().clock = clock


def said(ref: BranchRef) -> list[dict[str, Any]]:
    """What the messages of triggers say of themselves, with their text."""
    log = rows(ref)
    texts = {row.data["message_id"]: row.data["data_json"].get("text") for row in log if row.type == "part"}
    users = {row.data["id"]: row.data for row in log if row.type == "message" and row.data["role"] == "user"}
    return [{**message["metadata_json"].get("trigger", {}), "text": texts[id]} for id, message in users.items()]


async def quiet(world: World) -> None:
    """Return when no run is in flight and nothing is about to begin one."""
    while tasks := [branch.task for branch in world.kernel.runs if branch.task] or list(world.kernel._errands):
        await asyncio.wait(tasks)


async def pass_time(world: World, clock: ManualClock, *, until: Callable[[], bool], **step: float) -> None:
    while not until():
        clock.forward(**step)
        await world.kernel.feature(Schedules).tick()
        await quiet(world)


async def tick(world: World) -> None:
    await world.kernel.feature(Schedules).tick()
    await quiet(world)


def delivery(id: str, text: str = "Look.", **more: Any) -> Trigger:
    return Trigger(source="api", text=text, delivery_id=id, auth_subject="user:me", **more)


async def deliver(world: World, ref: BranchRef, trigger: Trigger) -> Any:
    async with world.kernel.using(ref) as branch:
        given = await world.kernel.feature(Triggers).deliver(branch, replace(trigger, options=world.options))
    await quiet(world)
    return given


# -- schedules -------------------------------------------------------------------------------------------------


@pytest.mark.spec("B.7", "persist as user with trigger; persist auth_subject")
async def test_a_fixed_time_fires_once_and_is_gone(world: World, clock: ManualClock) -> None:
    ref = world.session()
    schedule = await world.kernel.feature(Schedules).add(
        ref,
        after(timedelta(minutes=10), now=START),
        "Is it done?",
        auth_subject="user:me",
        options={"env": dict(world.options.env)},
    )
    await tick(world)
    assert said(ref) == [] and world.kernel.feature(Schedules).pending == 1
    clock.forward(minutes=10)
    await tick(world)
    assert said(ref) == [
        {
            "source": "schedule",
            "fired_at": int(clock.now().timestamp() * 1000),
            "delivery_id": f"{schedule.id}@{schedule.next_at}",
            "auth_subject": "user:me",
            "schedule_id": schedule.id,
            "text": "Is it done?",
        }
    ]
    assert assert_closed(ref)["interactive"] is False
    assert world.kernel.feature(Schedules).pending == 0
    clock.forward(days=1)
    await tick(world)
    assert len(said(ref)) == 1


async def test_an_interval_fires_for_a_week_once_more_at_its_end_and_is_gone(
    world: World, clock: ManualClock
) -> None:
    ref = world.session()
    world.kernel.feature(Triggers)._known[ref.key] = world.options
    await world.kernel.feature(Schedules).add(ref, every(timedelta(days=2)), "Again.", auth_subject="user:me")
    await pass_time(world, clock, until=lambda: world.kernel.feature(Schedules).pending == 0, hours=12)
    assert clock.now() - START == timedelta(days=7)
    assert [bool(each.get("expired")) for each in said(ref)] == [False, False, False, True]


async def test_what_was_missed_while_no_daemon_ran_comes_once(world: World, clock: ManualClock) -> None:
    ref = world.session()
    when = cron("0 * * * *", now=START, zone="UTC")
    await world.kernel.feature(Schedules).add(
        ref, when, "Hourly.", auth_subject="user:me", options={"env": dict(world.options.env)}
    )
    await world.kernel.shutdown()
    clock.forward(hours=5)
    restarted(world, clock)
    await tick(world)
    await tick(world)
    assert [each["missed"] for each in said(ref)] == [4]
    (left,) = await world.kernel.feature(Schedules).of(ref)
    assert datetime.fromtimestamp(left.next_at / 1000, UTC) == datetime(2026, 3, 4, 11, tzinfo=UTC)


async def test_a_delivery_that_was_made_before_the_daemon_was_killed_is_not_made_again(
    world: World, clock: ManualClock
) -> None:
    ref = world.session()
    schedules = world.kernel.feature(Schedules)
    schedule = await schedules.add(
        ref,
        after(timedelta(minutes=1), now=START),
        "Once.",
        auth_subject="user:me",
        options={"env": world.options.env},
    )
    clock.forward(minutes=1)
    update, remove = schedules._update, schedules._remove

    async def killed(schedule: Any) -> None:
        raise asyncio.CancelledError

    schedules._remove = killed  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await schedules.tick()
    schedules._remove, schedules._update = remove, update  # type: ignore[method-assign]
    await quiet(world)
    with world.kernel.state.writing() as db:
        db.execute("DELETE FROM deliveries")  # the log alone knows
    await tick(world)
    assert len(said(ref)) == 1
    with pytest.raises(NotFound):
        await schedules.get(schedule.id)


async def test_a_turn_that_no_one_began_asks_nobody(world: World, clock: ManualClock) -> None:
    world.preset("careful", tools="Bash, Write")
    ref = world.session(preset="careful")
    world.server.say(answer(tool_use("Bash", id="toolu_1", command="rm -rf ./x")), "I could not.")
    await deliver(world, ref, delivery("1"))
    results = [part for part in rows(ref) if part.type == "part" and part.data["type"] == "tool-Bash"]
    assert results[-1].data["data_json"]["state"] == "output-error"
    assert not world.kernel.asks.all()


async def test_what_a_schedule_allows_its_runs_may_do(world: World, clock: ManualClock) -> None:
    world.preset("careful", tools="Bash")
    ref = world.session(preset="careful")
    world.server.say(answer(tool_use("Bash", id="toolu_1", command="echo hi")), "Done.")
    options = {"env": dict(world.options.env), "allow": ["tool:Bash:echo .*"]}
    await world.kernel.feature(Schedules).add(
        ref, after(timedelta(minutes=1), now=START), "Say hi.", auth_subject="user:me", options=options
    )
    clock.forward(minutes=1)
    await tick(world)
    results = [part for part in rows(ref) if part.type == "part" and part.data["type"] == "tool-Bash"]
    assert results[-1].data["data_json"]["state"] == "output-available", results[-1].data


async def test_what_cannot_be_delivered_is_tried_again_and_says_why(
    world: World, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = world.session()
    schedules = world.kernel.feature(Schedules)
    options = {"env": dict(world.options.env)}
    await schedules.add(ref, after(timedelta(minutes=1), now=START), "Go.", auth_subject="user:me", options=options)

    async def refuse(*given: Any) -> Any:
        raise StoreError("The disk is full")

    clock.forward(minutes=1)
    with monkeypatch.context() as patched:
        patched.setattr(world.kernel, "submit", refuse)
        await tick(world)
    (schedule,) = await schedules.of(ref)
    assert schedule.last_error == "The disk is full"
    clock.forward(minutes=5)
    await tick(world)
    assert len(said(ref)) == 1 and not await schedules.of(ref)


async def test_deleting_a_session_deletes_its_schedules(
    world: World, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyagentd.api.sessions.move_to_trash", lambda directory: None)
    ref, other = world.session(), world.session("other")
    for each in (ref, other):
        await world.kernel.feature(Schedules).add(each, every(timedelta(hours=1)), "Go.", auth_subject="user:me")
    await world.service().delete(Watcher(), branch=ref.key)
    assert [
        world.kernel.feature(Schedules).directory(left) for left in await world.kernel.feature(Schedules).of()
    ] == [other.branch_dir]


async def test_a_schedule_runs_now_without_losing_its_turn(world: World, clock: ManualClock) -> None:
    ref = world.session()
    schedules = world.kernel.feature(Schedules)
    made = await schedules.add(
        ref, every(timedelta(hours=1)), "Go.", auth_subject="user:me", options={"env": dict(world.options.env)}
    )
    await schedules.run(made.id)
    await quiet(world)
    assert len(said(ref)) == 1
    assert (await schedules.get(made.id)).next_at == made.next_at


async def test_a_person_lists_and_cancels_over_the_wire(world: World, clock: ManualClock) -> None:
    service, client, ref = world.service(), Watcher(), world.session()
    made = await service.schedule_add(client, branch=ref.key, text="Go.", cron="0 9 * * *", zone="Europe/Berlin")
    assert made["when"] == "cron 0 9 * * * (Europe/Berlin)"
    assert made["auth_subject"].startswith("user")
    assert made["expires_at"] - made["created_at"] == 7 * 24 * 3600 * 1000
    assert [each["id"] for each in (await service.schedules(client))["schedules"]] == [made["id"]]
    forever = await service.schedule_add(client, branch=ref.key, text="Go.", every="1h", lifetime="never")
    assert forever["expires_at"] is None
    for each in (made, forever):
        await service.schedule_cancel(client, id=each["id"])
    assert (await service.schedules(client, branch=ref.key))["schedules"] == []
    for wrong in ({}, {"every": "10s"}, {"at": "14:30", "every": "1h"}, {"every": "1h", "text": " "}):
        with pytest.raises(BadRequest):
            await service.schedule_add(client, branch=ref.key, **{"text": "Go.", **wrong})


async def test_a_zone_that_this_machine_does_not_know_is_said_in_the_row(world: World, clock: ManualClock) -> None:
    service, client, ref = world.service(), Watcher(), world.session()
    for times in ({"at": "23:00"}, {"cron": "0 9 * * *"}):
        await service.schedule_add(client, branch=ref.key, text="Go.", zone="Europe/Berlin", **times)
    with world.kernel.state.writing() as db:  # made on a machine that knows another set of zones
        db.execute("UPDATE schedules SET zone = 'Europe/Nowhere'")
    rows = (await service.schedules(client))["schedules"]
    assert [row["when"].partition(" (")[2] for row in rows] == ["Europe/Nowhere: unknown time zone)"] * 2


async def test_the_watch_wakes_for_what_is_added_and_ends_with_the_host(world: World) -> None:
    ref = world.session()
    await world.kernel.feature(Schedules).start()
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        now = world.kernel.clock.now()
        due = When(kind="at", value=(now - timedelta(seconds=1)).isoformat())
        await world.kernel.feature(Schedules).add(
            ref, due, "Now.", auth_subject="user:me", options={"env": dict(world.options.env)}
        )
        await watcher.finished(branch)
    assert [each["text"] for each in said(ref)] == ["Now."]


# -- deliveries ------------------------------------------------------------------------------------------------


@pytest.mark.spec("B.7", "honour delivery_id")
async def test_the_same_delivery_twice_is_one_message(world: World, clock: ManualClock) -> None:
    ref = world.session()
    first = await deliver(world, ref, delivery("d-1"))
    again = await deliver(world, ref, delivery("d-1"))
    assert again["duplicate"] and again["message"] == first["message"]
    await world.kernel.shutdown()
    restarted(world, clock)
    assert (await deliver(world, ref, delivery("d-1")))["duplicate"]
    assert (await deliver(world, ref, delivery("d-2")))["duplicate"] is False
    assert [each["delivery_id"] for each in said(ref)] == ["d-1", "d-2"]


async def test_a_delivery_that_the_daemons_end_cut_off_says_so_when_it_comes_again(
    world: World, clock: ManualClock
) -> None:
    ref = world.session()
    world.server.say(answer(hang_after=1))
    async with world.kernel.using(ref) as branch:
        await world.kernel.feature(Triggers).deliver(branch, delivery("d-1", options=world.options))
        again = await world.kernel.feature(Triggers).deliver(branch, delivery("d-1"))
        assert again["duplicate"] and again["ended"] is None
        await world.kernel.shutdown()
    restarted(world, clock)
    again = await deliver(world, ref, delivery("d-1"))
    assert again["duplicate"] and again["ended"] == "restart"


@pytest.mark.parametrize(
    "given",
    [
        {"delay": "99999999d"},
        {"delay": "5m", "lifetime": "2d"},
        {"delay": "5m", "zone": "UTC"},
        {"every": "1h", "lifetime": "0s"},
    ],
)
async def test_a_schedule_that_cannot_be_as_it_is_asked_for_is_refused(world: World, given: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        await world.service().schedule_add(Watcher(), branch=world.session().key, text="Hi", **given)


async def test_one_source_and_all_together_bring_no_more_than_is_configured(world: World, clock: ManualClock) -> None:
    (world.home / "config.toml").write_text("[triggers]\nper_minute = 2\nper_day = 3\n")
    restarted(world, clock)
    ref, other = world.session(), world.session("other")
    await deliver(world, ref, delivery("1"))
    await deliver(world, ref, delivery("2"))
    with pytest.raises(RateLimited, match="a minute"):
        await deliver(world, ref, delivery("3"))
    await deliver(world, other, delivery("3"))
    clock.forward(minutes=2)
    with pytest.raises(RateLimited, match="a day"):
        await deliver(world, ref, delivery("3"))
    clock.forward(days=1)
    await deliver(world, ref, delivery("3"))
    assert [each["delivery_id"] for each in said(ref)] == ["1", "2", "3"]


async def test_secrets_among_the_headers_are_not_kept(world: World, clock: ManualClock) -> None:
    ref = world.session()
    headers = {"X-Event": "push", "Authorization": "Bearer s3cret", "X-Hub-Signature": "s3cret", "Cookie": "s3cret"}
    service = world.service()
    env = dict(world.options.env)
    await service.trigger(
        Watcher(), branch=ref.key, text="Go.", delivery_id="1", source="webhook", headers=json.dumps(headers), env=env
    )
    await quiet(world)
    assert said(ref)[0]["headers"] == {"X-Event": "push"}
    assert "s3cret" not in (ref.branch_dir / "messages.jsonl").read_text()
    with pytest.raises(BadRequest):
        await service.trigger(Watcher(), branch=ref.key, text="Go.", delivery_id="2", source="schedule")


@pytest.mark.spec("B.7", "audit")
async def test_every_delivery_is_in_the_audit_the_dropped_ones_too(world: World, clock: ManualClock) -> None:
    ref = world.session()
    await deliver(world, ref, delivery("d-1"))
    await deliver(world, ref, delivery("d-1"))
    await asyncio.to_thread(world.kernel.ledger.flush)
    entries = audit.latest(world.kernel.state, limit=10)
    assert [(entry.action, entry.decision, entry.rule, entry.by) for entry in entries] == [
        ("trigger:api:d-1", "deny", "duplicate", "user:me"),
        ("trigger:api:d-1", "allow", "api", "user:me"),
    ]


async def test_a_key_goes_only_where_the_person_sent_it(world: World, clock: ManualClock) -> None:
    ref = world.session()
    options = replace(world.options, env={"ANTHROPIC_BASE_URL": world.server.url, "ANTHROPIC_API_KEY": "hers"})
    async with world.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi.", options=options)
        await watcher.finished(branch)
    async with world.kernel.using(ref) as branch:
        await world.kernel.feature(Triggers).deliver(branch, delivery("1"))
        await quiet(world)
        assert world.server.last.headers["x-api-key"] == "hers"
        elsewhere = world.kernel.feature(Triggers).options_for(
            ref, replace(options, env={"ANTHROPIC_BASE_URL": "http://elsewhere"})
        )
        assert "ANTHROPIC_API_KEY" not in elsewhere.env


@pytest.mark.spec("B.7", "same queue rule")
async def test_after_an_error_a_trigger_waits_in_the_queue_until_a_person_sends_something(
    world: World, clock: ManualClock
) -> None:
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        world.server.say(refusal(401, "authentication_error", "no"), "Fine.", "Looked.")
        await deliver(world, ref, delivery("1"))
        assert branch.status["state"] == "error"
        assert (await deliver(world, ref, delivery("2")))["queued"]
        await world.kernel.prompt(branch, text="And now?", options=world.options)
        await quiet(world)
    assert assert_closed(ref)["reason"] == "done"
    asked = [request.messages[-1]["content"][-1]["text"] for request in world.server.requests]
    assert asked == ["Look.", "And now?", "Look."]


@pytest.mark.spec("B.7", "same queue rule")
async def test_a_trigger_queues_behind_the_run_in_flight_and_a_schedule_only_once(
    world: World, clock: ManualClock
) -> None:
    ref = world.session()
    world.server.say(silent())
    options = {"env": dict(world.options.env)}
    await world.kernel.feature(Schedules).add(
        ref, every(timedelta(minutes=1)), "Tick.", auth_subject="user:me", options=options
    )
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text="Think.", options=world.options)
        for _ in range(3):
            clock.forward(minutes=1)
            await world.kernel.feature(Schedules).tick()
        first = await world.kernel.feature(Triggers).deliver(branch, delivery("1", options=world.options))
        assert first["queued"]
        await world.kernel.abort(branch)
        await quiet(world)
    assert [each["text"] for each in said(ref)] == ["Think.", "Tick.", "Look."]


# -- what an agent schedules for itself ------------------------------------------------------------------------


def asks_to_be_woken(kind: str, value: Any, id: str = "toolu_1") -> Any:
    when = {"kind": kind, "value": value}
    return answer(tool_use("request_wakeup", id=id, when=when, prompt="Look again.", reason="The build takes long"))


def results(ref: BranchRef, tool: str) -> list[dict[str, Any]]:
    found = {row.data["id"]: row.data["data_json"] for row in rows(ref) if row.type == "part"}
    return [data for data in found.values() if data["type"] == f"tool-{tool}"]


async def woken(world: World, kind: str, value: Any, **options: Any) -> tuple[BranchRef, dict[str, Any]]:
    world.preset("sleeper", tools="request_wakeup, cancel_wakeup")
    ref = world.session(preset="sleeper")
    world.server.say(asks_to_be_woken(kind, value), "I wait.")
    async with world.kernel.using(ref) as branch:
        given = world.granted("tool:request_wakeup:.*") if not options else replace(world.options, **options)
        await world.kernel.prompt(branch, text="Build it.", options=given)
        await quiet(world)
    (result,) = results(ref, "request_wakeup")
    return ref, result


async def test_an_agent_has_itself_woken_and_the_same_conversation_goes_on(world: World, clock: ManualClock) -> None:
    ref, result = await woken(world, "delay_ms", 600_000)
    schedule_id = json.loads(result["output"])["schedule_id"]
    world.server.say("It is done.")
    clock.forward(minutes=10)
    await tick(world)
    told = said(ref)[1]
    assert (told["source"], told["schedule_id"], told["text"]) == ("self-schedule", schedule_id, "Look again.")
    assert told["auth_subject"] == f"agent:{ref.session_id}"
    assert told["reason"] == "The build takes long"
    assert len(world.server.last.messages) == 5, "everything said so far is above it"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("delay_ms", 8 * 24 * 3600 * 1000),
        ("at", "2026-03-20T09:00"),
        ("cron", "0 0 1 1 *"),
        ("delay_ms", "soon"),
        ("delay_ms", "9" * 5000),
        ("at", "0001-01-01T00:00+14:00"),
    ],
)
async def test_an_agent_is_woken_within_a_week_or_not_at_all(
    world: World, clock: ManualClock, kind: str, value: Any
) -> None:
    ref, result = await woken(world, kind, value)
    assert result["state"] == "output-error"
    assert result["errorText"].startswith("Nothing was scheduled"), result
    assert not await world.kernel.feature(Schedules).of(ref)


async def test_a_wake_up_is_confirmed_and_denied_where_nobody_is_there(world: World, clock: ManualClock) -> None:
    ref, result = await woken(world, "delay_ms", 1000, interactive=False)
    assert result["state"] == "output-error"
    assert not await world.kernel.feature(Schedules).of(ref)


async def test_an_agent_cancels_its_own_wake_ups_and_no_other_schedule(world: World, clock: ManualClock) -> None:
    ref, result = await woken(world, "cron", "*/5 * * * *")
    own = json.loads(result["output"])["schedule_id"]
    users = await world.kernel.feature(Schedules).add(ref, every(timedelta(hours=1)), "Go.", auth_subject="user:me")
    calls = [tool_use("cancel_wakeup", id=f"toolu_{id}", schedule_id=id) for id in (own, users.id, "sch_none")]
    world.server.say(answer(*calls), "So it is.")
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text="Stop that.", options=world.options)
        await quiet(world)
    states = [data["state"] for data in results(ref, "cancel_wakeup")]
    assert states == ["output-available", "output-error", "output-error"]
    assert [left.id for left in await world.kernel.feature(Schedules).of(ref)] == [users.id]


async def test_one_that_cannot_be_delivered_keeps_no_other_from_it(world: World, clock: ManualClock) -> None:
    ref, own = world.session(), world.kernel.feature(Schedules)
    options = {"env": dict(world.options.env)}
    bad = await own.add(
        ref, cron("1 * * * *", now=START, zone="Europe/Berlin"), "bad", auth_subject="user:me", options=options
    )
    await own.add(ref, after(timedelta(hours=1), now=START), "good", auth_subject="user:me", options=options)
    with world.kernel.state.writing() as db:  # of a machine that knows another set of zones
        db.execute("UPDATE schedules SET zone = 'Europe/Nowhere' WHERE id = ?", (bad.id,))
    clock.forward(hours=2)
    await tick(world)
    assert [each["text"] for each in said(ref)] == ["good"]
    (left,) = await own.of(ref)
    assert left.id == bad.id and "Europe/Nowhere" in left.last_error and left.next_at > bad.next_at


async def test_what_is_cancelled_while_another_is_delivered_does_not_come(
    world: World, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, own = world.session(), world.kernel.feature(Schedules)
    options = {"env": dict(world.options.env)}
    for minutes, text in ((1, "first"), (2, "second")):
        when = after(timedelta(minutes=minutes), now=START)
        last = await own.add(ref, when, text, auth_subject="user:me", options=options)
    deliver = own._deliver

    async def cancelling(*args: Any) -> Any:
        await own.cancel(last.id)
        return await deliver(*args)

    monkeypatch.setattr(own, "_deliver", cancelling)
    clock.forward(minutes=3)
    await tick(world)
    assert [each["text"] for each in said(ref)] == ["first"]

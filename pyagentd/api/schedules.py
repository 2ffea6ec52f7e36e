"""Operations on schedules, and on triggers that other programs send."""

from collections.abc import Sequence
from typing import TypedDict

from pyagentd.api.group import Client, Env, Group, name_of, send_options
from pyagentd.errors import BadRequest
from pyagentd.features import schedules as occurrences
from pyagentd.features.schedules import (
    LIFETIME,
    OUTSIDE,
    DeliveryOutcome,
    Schedules,
    Trigger,
    Triggers,
    When,
    local_user,
)
from pyagentd.policy.profiles import compile_action
from pyagentd.reader import object_in
from pyagentd.store.db.schedules import Kind, Schedule, Source
from pyagentd.wire.operations import command_line


class ScheduleRow(TypedDict):
    """A schedule; times in epoch ms."""

    id: str
    session: str  # what people call its branch; "" when that is gone
    branch: str
    source: Source
    when: str  # for people
    kind: Kind
    value: str  # of kind at ISO 8601 in UTC, of every seconds, of cron the expression
    zone: str | None  # of a cron expression; nil: the machine's
    text: str
    reason: str | None  # why the model made it
    auth_subject: str  # who made it
    allow: list[str]
    created_at: int
    next_at: int
    expires_at: int | None
    fired: int  # how often
    last_at: int | None
    last_error: str | None  # why the last firing failed


class SchedulesReply(TypedDict):
    """Schedules, the next one first."""

    schedules: list[ScheduleRow]


class Delivered(TypedDict):
    """What became of a message that came by the clock or from another program."""

    message: str
    duplicate: bool  # it had come before
    ended: str | None  # how the run that answered it ended, where that is known: done, error, aborted, restart
    run: str | None
    queued: bool
    seq: int | None


class ScheduleOperations(Group):
    """What comes by the clock, and what other programs bring."""

    @command_line("schedule add")
    async def schedule_add(
        self,
        client: Client,
        *,
        branch: str,
        text: str,
        cron: str | None = None,
        at: str | None = None,
        delay: str | None = None,
        every: str | None = None,
        zone: str = "",
        lifetime: str | None = None,
        env: Env = (),
        allow: Sequence[str] = (),
    ) -> ScheduleRow:
        """Have ``text`` sent to a branch later: at a time, after a delay, at intervals, or by a cron expression.

        What repeats lives for a week; ``lifetime`` is another duration, or "never" for no end.
        """
        for pattern in allow:
            compile_action(pattern)
        if lifetime and (at or delay):
            raise BadRequest("A schedule for one time does not repeat", hint="Leave for out, or give cron or every")
        schedule = await self._kernel.feature(Schedules).add(
            self._ref(branch),
            self._when(cron=cron, at=at, delay=delay, every=every, zone=zone),
            text,
            auth_subject=local_user(),
            options={"env": dict(send_options(client, env, None, ()).env), "allow": list(allow)},
            lifetime=None if lifetime == "never" else occurrences.duration(lifetime) if lifetime else LIFETIME,
        )
        return self._row(schedule)

    @command_line("schedule list")
    async def schedules(self, client: Client, *, branch: str | None = None) -> SchedulesReply:
        """Return the schedules of a branch, or all, the next one first."""
        found = await self._kernel.feature(Schedules).of(self._ref(branch) if branch else None)
        return {"schedules": [self._row(schedule) for schedule in found]}

    @command_line("schedule cancel")
    async def schedule_cancel(self, client: Client, *, id: str) -> ScheduleRow:
        """Cancel a schedule."""
        return self._row(await self._kernel.feature(Schedules).cancel(id))

    @command_line("schedule run")
    async def schedule_run(self, client: Client, *, id: str) -> Delivered:
        """Deliver a schedule's message now; its next time does not change."""
        return _delivered(await self._kernel.feature(Schedules).run(id))

    @command_line("trigger", "watch", "webhook")
    async def trigger(
        self,
        client: Client,
        *,
        branch: str,
        text: str,
        delivery_id: str,
        source: str = "api",
        headers: str | None = None,
        env: Env = (),
        key: str | None = None,
        allow: Sequence[str] = (),
    ) -> Delivered:
        """Deliver a message of another program to a branch; the same delivery twice is one message.

        ``headers`` is a JSON object of texts that are kept with the message.
        """
        if source not in OUTSIDE:
            raise BadRequest(f"{source!r} is not a source", hint=", ".join(OUTSIDE))
        trigger = Trigger(
            source=source,
            text=text,
            delivery_id=delivery_id,
            auth_subject=local_user(),
            options=send_options(client, env, key, allow),
            headers=_headers(headers),
        )
        async with self._kernel.using(self._ref(branch)) as live:
            return _delivered(await self._kernel.feature(Triggers).deliver(live, trigger))

    def _when(self, *, cron: str | None, at: str | None, delay: str | None, every: str | None, zone: str) -> When:
        now = self._kernel.clock.now()
        if zone and (delay or every):
            raise BadRequest("Only cron and at have a time zone", hint="Leave timezone out")
        match [cron, at, delay, every]:
            case [str(), None, None, None]:
                return occurrences.cron(cron or "", now=now, zone=zone)
            case [None, str(), None, None]:
                return occurrences.at(at or "", now=now, zone=zone)
            case [None, None, str(), None]:
                return occurrences.after(occurrences.duration(delay or ""), now=now)
            case [None, None, None, str()]:
                return occurrences.every(occurrences.duration(every or ""))
        raise BadRequest("A schedule needs one time", hint="One of cron, at, in and every")

    def _row(self, schedule: Schedule) -> ScheduleRow:
        directory = self._kernel.feature(Schedules).directory(schedule)
        return {
            "id": schedule.id,
            "session": name_of(directory),
            "branch": str(directory),
            "source": schedule.source,
            "when": occurrences.describe_schedule(When(kind=schedule.kind, value=schedule.value, zone=schedule.zone)),
            "kind": schedule.kind,
            "value": schedule.value,
            "zone": schedule.zone or None,
            "text": schedule.text,
            "reason": schedule.reason or None,
            "auth_subject": schedule.auth_subject,
            "allow": schedule.options.get("allow") or [],
            "created_at": schedule.created_at,
            "next_at": schedule.next_at,
            "expires_at": schedule.expires_at,
            "fired": schedule.fired,
            "last_at": schedule.last_at,
            "last_error": schedule.last_error or None,
        }


def _delivered(delivered: DeliveryOutcome) -> Delivered:
    submitted = delivered.submitted
    return {
        "message": delivered.message_id,
        "duplicate": submitted is None,
        "ended": delivered.ended or None,
        "run": submitted.run_id if submitted else None,
        "queued": bool(submitted and submitted.queued),
        "seq": submitted.seq if submitted else None,
    }


def _headers(given: str | None) -> dict[str, str]:
    """Return headers; they travel as JSON, which leaves their names as they are."""
    return {name: str(value) for name, value in object_in(given, "headers").items() if value is not None}

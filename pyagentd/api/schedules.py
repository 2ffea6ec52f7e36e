"""Operations on schedules, and on triggers that other programs send."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.api.group import Client, Group, name_of, send_options
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
from pyagentd.store.db.schedules import Schedule


class Scheduling(Group):
    """What comes by the clock, and what other programs bring."""

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
        env: Mapping[str, str] | Sequence[Any] = (),
        allow: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Have ``text`` sent to a branch later: at a time, after a delay, at intervals, or by a cron expression.

        What repeats lives for a week; ``lifetime`` is another duration, or "never" for no end.
        """
        for pattern in allow:
            compile_action(pattern)
        if lifetime and (at or delay):
            raise BadRequest("What comes once does not repeat", hint="Leave for out, or give cron or every")
        schedule = await self._kernel.feature(Schedules).add(
            self._ref(branch),
            self._when(cron=cron, at=at, delay=delay, every=every, zone=zone),
            text,
            auth_subject=local_user(),
            options={"env": dict(send_options(client, env, None, ()).env), "allow": list(allow)},
            lifetime=None if lifetime == "never" else occurrences.duration(lifetime) if lifetime else LIFETIME,
        )
        return self._told(schedule)

    async def schedules(self, client: Client, *, branch: str | None = None) -> dict[str, Any]:
        """Return the schedules of a branch, or all, the next one first."""
        found = await self._kernel.feature(Schedules).of(self._ref(branch) if branch else None)
        return {"schedules": [self._told(schedule) for schedule in found]}

    async def schedule_cancel(self, client: Client, *, id: str) -> dict[str, Any]:
        """Forget a schedule."""
        return self._told(await self._kernel.feature(Schedules).cancel(id))

    async def schedule_run(self, client: Client, *, id: str) -> dict[str, Any]:
        """Deliver a schedule's message now; when it fires next does not change."""
        return _delivered(await self._kernel.feature(Schedules).run(id))

    async def trigger(
        self,
        client: Client,
        *,
        branch: str,
        text: str,
        delivery_id: str,
        source: str = "api",
        headers: str | None = None,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Deliver a message of another program to a branch; the same delivery twice is one message.

        ``headers`` is a JSON object of texts that are kept with the message.
        """
        if source not in OUTSIDE:
            raise BadRequest(f"{source!r} is no source", hint=", ".join(OUTSIDE))
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

    def _told(self, schedule: Schedule) -> dict[str, Any]:
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


def _delivered(delivered: DeliveryOutcome) -> dict[str, Any]:
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

"""When a schedule fires: what a person or a model says about time, and the moments that follow from it; pure.

Moments are aware and in UTC. A cron expression is read in a time zone, so a meeting at nine stays at nine when the
clocks change: what falls into the hour that is skipped fires once right after it, what falls into the hour that
comes twice fires once, and what is to fire every hour or oftener fires in both (as Debian's cron does).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from pyagentd.errors import BadRequest
from pyagentd.store.db.schedules import Kind

SHORTEST = timedelta(minutes=1)  # between two firings of one schedule
LONGEST = timedelta(days=366)  # ahead

_MOST_MISSED = 10_000  # occurrences that are counted
# Possessive: a model says it, and blanks that could be shared out in many ways would keep everybody waiting.
_DURATION = re.compile(
    r"\s*+(?:(\d++)\s*+d)?\s*+(?:(\d++)\s*+h)?\s*+(?:(\d++)\s*+m)?\s*+(?:(\d++)\s*+s?)?\s*+", re.IGNORECASE
)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When something is to happen; the fields are those of ``Schedule``."""

    kind: Kind
    value: str
    zone: str = ""

    def first(self, now: datetime) -> datetime:
        """Return the first moment after ``now``; of a fixed time, that time."""
        return next(self.after(now))

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the moments after ``moment``; a fixed time always comes, once.

        An interval counts from ``moment``.
        """
        match self.kind:
            case "at":
                yield datetime.fromisoformat(self.value)
            case "every":
                step = timedelta(seconds=int(self.value))
                while True:
                    moment += step
                    yield moment
            case "cron":
                yield from _cron(self.value, self.zone, moment)


def at(said: str, *, now: datetime, zone: str = "") -> When:
    """Return a fixed time: ISO 8601, with or without an offset, or ``HH:MM`` for the next time the clock shows that.

    Raises:
        BadRequest: It is no time, has passed, or is more than a year ahead.
    """
    place = _zone(zone)
    if clock := _CLOCK.fullmatch(said.strip()):
        local = now.astimezone(place)
        try:
            moment = local.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0, fold=0)
        except ValueError as error:
            raise BadRequest(f"{said!r} is no time: {error}") from None
        if moment.astimezone(UTC) <= now:
            moment += timedelta(days=1)  # by the calendar, so the clock shows the same
    else:
        try:
            moment = datetime.fromisoformat(said.strip())
        except ValueError:
            raise BadRequest(f"{said!r} is no time", mend="It looks like 14:30 or 2026-03-04T14:30") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=place)
    return _fixed(moment.astimezone(UTC), now, zone)


def after(delay: timedelta, *, now: datetime) -> When:
    """Return the moment that comes ``delay`` from ``now``; raises as ``at``."""
    if delay > LONGEST:
        raise BadRequest(f"A delay of {delay} is more than a year")
    return _fixed(now + delay, now)


def every(interval: timedelta) -> When:
    """Return an interval.

    Raises:
        BadRequest: It is too short or too long.
    """
    if not SHORTEST <= interval <= LONGEST:
        raise BadRequest(f"An interval of {interval} is not possible", mend="From one minute to a year")
    return When(kind="every", value=str(int(interval.total_seconds())))


def cron(expression: str, *, now: datetime, zone: str = "") -> When:
    """Return the times of a cron expression of five fields.

    Raises:
        BadRequest: It is none, never comes, or the zone is unknown.
    """
    _zone(zone)
    when = When(kind="cron", value=" ".join(expression.split()), zone=zone)
    if len(when.value.split()) != 5:
        raise BadRequest(
            f"{expression!r} is no cron expression",
            mend="Five fields: minute hour day month weekday, as '0 9 * * 1-5'",
        )
    if next(when.after(now), None) is None:
        raise BadRequest(f"{expression!r} never comes")
    return when


def duration(said: str) -> timedelta:
    """Return a duration as people write it: ``90s``, ``10m``, ``1h30m``, ``7d``.

    Raises:
        BadRequest: It is none.
    """
    found = _DURATION.fullmatch(said)
    if found is None or not any(found.groups()):
        raise BadRequest(f"{said[:40]!r} is no duration", mend="It looks like 90s, 10m, 1h30m or 7d")
    try:
        days, hours, minutes, seconds = (int(text or 0) for text in found.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError):  # the latter of thousands of digits
        raise BadRequest(f"{said[:40]!r} is too long") from None


def following(when: When, due: datetime, now: datetime) -> tuple[datetime | None, int]:
    """Return the next moment after ``now`` of what was due at ``due``, and how many moments in between were missed.

    None when there is none.
    """
    if when.kind == "at":
        return None, 0
    if when.kind == "every":  # without counting: a laptop may sleep for long
        step = timedelta(seconds=int(when.value))
        missed = max(0, (now - due) // step)
        return due + (missed + 1) * step, missed
    missed = 0
    for moment in when.after(due):
        if moment > now:
            return moment, missed
        missed += 1
        if missed >= _MOST_MISSED:
            return next(when.after(now), None), missed
    return None, missed


def described(when: When) -> str:
    """Return a schedule in words."""
    match when.kind:
        case "at":
            moment = datetime.fromisoformat(when.value).astimezone(_zone(when.zone) if when.zone else None)
            return f"at {moment:%Y-%m-%d %H:%M}{f' ({when.zone})' if when.zone else ''}"
        case "every":
            return f"every {timedelta(seconds=int(when.value))}"
        case "cron":
            return f"cron {when.value}{f' ({when.zone})' if when.zone else ''}"


def _fixed(moment: datetime, now: datetime, zone: str = "") -> When:
    if moment <= now:
        raise BadRequest(f"{moment:%Y-%m-%d %H:%M} UTC has passed")
    if moment > now + LONGEST:
        raise BadRequest(f"{moment:%Y-%m-%d} is more than a year ahead")
    return When(kind="at", value=moment.isoformat(), zone=zone)


def _cron(expression: str, zone: str, moment: datetime) -> Iterator[datetime]:
    from cronsim import CronSim, CronSimError  # not at the start of every daemon

    try:
        for found in CronSim(expression, moment.astimezone(_zone(zone))):
            yield found.astimezone(UTC)
    except CronSimError as error:
        raise BadRequest(f"{expression!r} is no cron expression: {error}") from None


def _zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name, "" for the machine's."""
    if not name:
        from tzlocal import reload_localzone

        return reload_localzone()  # a laptop travels
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # one of them is ZoneInfoNotFoundError
        mend = "As in Europe/Berlin; without one it is the machine's"
        raise BadRequest(f"There is no time zone {name!r}", mend=mend) from None

"""Schedules and triggers: stores them, and sends each one's message when it is due.

If a schedule was due while no daemon ran or the machine slept, its message is sent once when a daemon runs again,
however often it was due. A repeating schedule expires after a week unless its creator sets another lifetime, with a
last message then. It does not fire while its previous message waits in the queue.
"""

import asyncio
import contextlib
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

from pyagentd.clock import Clock, epoch_ms, new_id, seconds_of
from pyagentd.config.tables import compile_action
from pyagentd.errors import BadRequest, Busy, NotASession, NotFound, PyagentdError, RateLimited, StoreError, ToolError
from pyagentd.policy.action import Target
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import Feature, RunEnded
from pyagentd.runtime.queue import Submission
from pyagentd.runtime.settings import LastOptions, SendOptions
from pyagentd.store import paths
from pyagentd.store.db import schedules
from pyagentd.store.db.audit import Entry
from pyagentd.store.db.schedules import Delivery, Kind, Schedule
from pyagentd.store.db.schedules import Source as Source_
from pyagentd.store.paths import BranchRef
from pyagentd.tools.process import is_secret
from pyagentd.tools.spec import Args, Output, ToolContext, ToolSpec, object_schema

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

log = logging.getLogger(__name__)


# When a schedule fires: parsing of times, and the occurrences that follow; pure.
#
# Datetimes are aware and in UTC. A cron expression is read in a time zone, so a meeting at nine stays at nine when
# the clocks change: an occurrence in the skipped hour fires once right after it, one in the repeated hour fires once,
# and an hourly or more frequent schedule fires in both (as Debian's cron does).

SHORTEST = timedelta(minutes=1)  # between two firings of one schedule
LONGEST = timedelta(days=366)  # ahead

_MOST_MISSED = 10_000  # occurrences that are counted at most
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When a schedule fires; the fields are those of ``Schedule``."""

    kind: Kind
    value: str
    zone: str = ""

    def first(self, now: datetime) -> datetime:
        """Return the first occurrence after ``now``; for a fixed time, that time."""
        return next(self.after(now))

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the occurrences after ``moment``; a fixed time is always yielded, once.

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
                from cronsim import CronSim, CronSimError  # slow to import

                try:
                    for found in CronSim(self.value, moment.astimezone(_zone(self.zone))):
                        yield found.astimezone(UTC)
                except CronSimError as error:
                    raise BadRequest(f"{self.value!r} is not a cron expression: {error}") from None


def at(text: str, *, now: datetime, zone: str = "") -> When:
    """Parse a fixed time: ISO 8601, with or without an offset, or ``HH:MM`` for the next time of day.

    Raises:
        BadRequest: It is invalid, has passed, or is more than a year ahead.
    """
    place = _zone(zone)
    if clock := _CLOCK.fullmatch(text.strip()):
        local = now.astimezone(place)
        try:
            moment = local.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0, fold=0)
        except ValueError as error:
            raise BadRequest(f"{text!r} is not a time: {error}") from None
        if moment.astimezone(UTC) <= now:
            moment += timedelta(days=1)  # by the calendar, so the clock shows the same
    else:
        try:
            moment = datetime.fromisoformat(text.strip())
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=place)).astimezone(UTC)
        except (ValueError, OverflowError):  # the latter for the years 1 and 9999
            raise BadRequest(f"{text!r} is not a time", hint="It looks like 14:30 or 2026-03-04T14:30") from None
    return _at_moment(moment.astimezone(UTC), now, zone)


def after(delay: timedelta, *, now: datetime) -> When:
    """Return the fixed time ``delay`` after ``now``; raises as ``at``."""
    if delay > LONGEST:
        raise BadRequest(f"A delay of {delay} is more than a year")
    return _at_moment(now + delay, now)


def every(interval: timedelta) -> When:
    """Return a schedule with a fixed interval.

    Raises:
        BadRequest: It is too short or too long.
    """
    if not SHORTEST <= interval <= LONGEST:
        raise BadRequest(f"An interval of {interval} is not possible", hint="From one minute to a year")
    return When(kind="every", value=str(int(interval.total_seconds())))


def cron(expression: str, *, now: datetime, zone: str = "") -> When:
    """Return a schedule for a cron expression of five fields.

    Raises:
        BadRequest: The expression is invalid or never occurs, or the zone is unknown.
    """
    _zone(zone)
    when = When(kind="cron", value=" ".join(expression.split()), zone=zone)
    if len(when.value.split()) != 5:
        raise BadRequest(
            f"{expression!r} is not a cron expression",
            hint="Five fields: minute hour day month weekday, as '0 9 * * 1-5'",
        )
    if next(when.after(now), None) is None:
        raise BadRequest(f"{expression!r} never comes")
    return when


def duration(text: str) -> timedelta:
    """Parse a duration: ``90s``, ``10m``, ``1h30m``, ``7d``.

    Raises:
        BadRequest: It is invalid.
    """
    try:
        return timedelta(seconds=seconds_of(text))
    except (ValueError, OverflowError):  # the latter for too many digits
        raise BadRequest(f"{text[:40]!r} is not a duration", hint="It looks like 90s, 10m, 1h30m or 7d") from None


def next_occurrence(when: When, due: datetime, now: datetime) -> tuple[datetime | None, int]:
    """Return the next occurrence after ``now`` or None, and how many were missed since the one due at ``due``."""
    if when.kind == "at":
        return None, 0
    if when.kind == "every":  # computed, since a laptop may sleep for long
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


def describe_schedule(when: When) -> str:
    """Describe a schedule in a few words."""
    zone, known = None, f" ({when.zone})" if when.zone else ""
    try:
        zone = _zone(when.zone) if when.zone else None
    except BadRequest:  # it was created on a machine with other zones
        known = f" ({when.zone}: unknown time zone)"
    match when.kind:
        case "at":
            return f"at {datetime.fromisoformat(when.value).astimezone(zone):%Y-%m-%d %H:%M}{known}"
        case "every":
            return f"every {timedelta(seconds=int(when.value))}"
        case "cron":
            return f"cron {when.value}{known}"


def _at_moment(moment: datetime, now: datetime, zone: str = "") -> When:
    if moment <= now:
        raise BadRequest(f"{moment:%Y-%m-%d %H:%M} UTC has passed")
    if moment > now + LONGEST:
        raise BadRequest(f"{moment:%Y-%m-%d} is more than a year ahead")
    return When(kind="at", value=moment.isoformat(), zone=zone)


def _zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name, "" for the machine's."""
    if not name:
        from tzlocal import reload_localzone

        return reload_localzone()  # a laptop travels
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # such as ZoneInfoNotFoundError
        hint = "As in Europe/Berlin; without one it is the machine's"
        raise BadRequest(f"There is no time zone {name!r}", hint=hint) from None


# Messages that no human sent: from a schedule, a webhook, another program, or the agent itself.
#
# A delivery becomes a user message with ``metadata.trigger`` and takes the usual way: the same queue, the same rules.
# Its sender is known (``auth_subject``), and every delivery is audited, refused ones too. Duplicates and deliveries
# over the limits are dropped. No human can be asked in its run.

Source = Literal["schedule", "webhook", "files", "api", "self-schedule", "mcp-event"]
OUTSIDE: tuple[Source, ...] = ("api", "webhook", "files", "mcp-event")  # sources outside the daemon

LONGEST_ID = 200  # characters
LONGEST_HEADERS = 4000  # characters

_MINUTE_MS = 60 * 1000
_DAY_MS = 24 * 60 * _MINUTE_MS
_SECRET = re.compile(r"auth|cookie|token|secret|key|signature", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One delivery.

    Attributes:
        source: Where it comes from.
        text: The text of the message.
        delivery_id: The source's id for it: the same id is delivered once.
        auth_subject: Who sent it, or made the schedule.
        options: Options of the run; ``interactive`` is ignored.
        schedule_id: The id of its schedule, or None.
        headers: Facts from the source beside the text; secret-looking ones are dropped.
        facts: Further keys of ``metadata.trigger``.
    """

    source: Source
    text: str
    delivery_id: str
    auth_subject: str
    options: SendOptions = field(default_factory=SendOptions)
    schedule_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise BadRequest("The message of a trigger is empty")
        if not 0 < len(self.delivery_id) <= LONGEST_ID or not self.delivery_id.isprintable():
            raise BadRequest("A delivery needs an id", hint=f"Of 1 to {LONGEST_ID} printable characters")
        if sum(len(name) + len(value) for name, value in self.headers.items()) > LONGEST_HEADERS:
            raise BadRequest(
                f"The headers have more than {LONGEST_HEADERS} characters", hint="Name only what matters"
            )

    def to_wire(self, fired_at: int) -> dict[str, Any]:
        """Return the value of ``metadata.trigger``."""
        headers = {name: value for name, value in self.headers.items() if not _SECRET.search(name)}
        return {
            "source": self.source,
            "fired_at": fired_at,
            "delivery_id": self.delivery_id,
            "auth_subject": self.auth_subject,
            **({"schedule_id": self.schedule_id} if self.schedule_id else {}),
            **({"headers": headers} if headers else {}),
            **self.facts,
        }


class DeliveryReply(TypedDict):
    """The result of a delivery."""

    message: str
    duplicate: bool  # the same delivery came before
    ended: str | None  # how its run ended, if known: done, error, aborted, restart
    run: str | None
    queued: bool
    seq: int | None


class Triggers(Feature):
    """Delivers the messages of schedules and other triggers."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        kernel.bus.on(RunEnded, self._run_ended)
        self._busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by the branch's key
        self._known = LastOptions()  # environments of people's last runs, by the root's key

    async def deliver(self, branch: LiveBranch, trigger: Trigger) -> DeliveryReply:
        """Submit a delivery as a message of ``branch``, unless it is a duplicate.

        Raises:
            RateLimited: It exceeds a limit.
            PyagentdError: The message was refused, as in ``Kernel.submit``.
        """
        async with self._busy.setdefault(branch.key, asyncio.Lock()):
            if (known := _message_of(branch, trigger)) is not None:
                self._audit(branch, trigger, "deny", "duplicate", reason=f"it is {known}")
                runs = [run for run in branch.conversation.runs.values() if run.data.get("message_id") == known]
                ended = runs[-1].data.get("reason") if runs and runs[-1].is_finished else None
                return {
                    "message": known,
                    "duplicate": True,
                    "ended": ended,
                    "run": None,
                    "queued": False,
                    "seq": None,
                }
            await self._check_limits(branch, trigger)
            now_ms = self.kernel.clock.now_ms()
            submission = Submission(
                text=trigger.text,
                options=replace(self.options_for(branch.ref, trigger.options), interactive=False),
                metadata={"trigger": trigger.to_wire(now_ms)},
            )
            submitted = await self.kernel.submit(branch, submission)
            self._audit(branch, trigger, "allow", trigger.source, run_id=submitted.run_id or "")
            delivery = Delivery(
                source=trigger.source,
                delivery_id=trigger.delivery_id,
                branch_dir=self.kernel.projection.key(branch.ref.branch_dir),
                at_ms=now_ms,
                message_id=submitted.message_id,
            )
            await asyncio.to_thread(schedules.note_delivery, self.kernel.state, delivery)
            return {
                "message": submitted.message_id,
                "duplicate": False,
                "ended": None,
                "run": submitted.run_id,
                "queued": submitted.queued,
                "seq": submitted.seq,
            }

    def _run_ended(self, ended: RunEnded) -> None:
        """Remember the environment of a person's run, for later deliveries to the same session."""
        branch, options = ended.branch, ended.options
        if options.interactive and options.env:
            self._known[paths.root_of(branch.ref).key] = SendOptions(env=dict(options.env))

    async def _check_limits(self, branch: LiveBranch, trigger: Trigger) -> None:
        now_ms, count = self.kernel.clock.now_ms(), partial(schedules.deliveries_since, self.kernel.state)
        branch_dir, most, reason = self.kernel.projection.key(branch.ref.branch_dir), self.kernel.config.triggers, ""
        if trigger.source in OUTSIDE:
            minute_ago = now_ms - _MINUTE_MS
            found = await asyncio.to_thread(count, minute_ago, branch_dir=branch_dir, source=trigger.source)
            if found >= most.per_minute:
                reason = f"{most.per_minute} deliveries of one source a minute is the limit"
        if not reason and await asyncio.to_thread(count, now_ms - _DAY_MS) >= most.per_day:
            reason = f"{most.per_day} turns a day without a person is the limit"
        if reason:
            self._audit(branch, trigger, "deny", "rate", reason=reason)
            raise RateLimited(reason, hint="Deliver it later, or send it yourself")

    def remember(self, ref: BranchRef, env: Mapping[str, str]) -> None:
        """Keep an environment with keys for later deliveries to a session, unless one is known already."""
        tree = paths.root_of(ref).key
        if tree not in self._known and any(map(is_secret, env)):
            self._known[tree] = SendOptions(env=dict(env))

    def options_for(self, ref: BranchRef, options: SendOptions) -> SendOptions:
        """Return the options of a delivery, with the environment of a person's last run in the same tree added."""
        known = self._known.get(paths.root_of(ref).key)
        if known is None:
            return options
        keys = {name: value for name, value in known.env.items() if is_secret(name)}
        if _server(options) != _server(known):  # a key must not reach a server that it is not for
            keys.pop("ANTHROPIC_API_KEY", None)
        return replace(options, env={**keys, **options.env} if options.env else known.env)

    def _audit(
        self,
        branch: LiveBranch,
        trigger: Trigger,
        decision: Literal["allow", "deny"],
        rule: str,
        *,
        reason: str = "",
        run_id: str = "",
    ) -> None:
        ref = branch.ref
        self.kernel.ledger.note(
            Entry(
                at_ms=self.kernel.clock.now_ms(),
                session=paths.root_of(ref).session_id,
                branch_dir=self.kernel.projection.key(ref.branch_dir),
                agent=ref.session_id if ref.is_agent else None,
                run_id=run_id,
                tool="trigger",
                action=f"trigger:{trigger.source}:{trigger.delivery_id}",
                decision=decision,
                rule=rule,
                reason=reason,
                by=trigger.auth_subject,
            )
        )


def _message_of(branch: LiveBranch, trigger: Trigger) -> str | None:
    """Return the id of the message that was already made from a delivery, or None."""
    recorded = (branch.conversation.messages, branch.conversation.queued)
    for message in (message for known in recorded for message in reversed(known.values())):
        origin = message.metadata.get("trigger") or {}
        if (origin.get("source"), origin.get("delivery_id")) == (trigger.source, trigger.delivery_id):
            return message.id
    return None


def _server(options: SendOptions) -> tuple[str | None, str | None]:
    return options.env.get("PYAGENTD_BACKEND"), options.env.get("ANTHROPIC_BASE_URL")


REQUEST = "request_wakeup"
CANCEL = "cancel_wakeup"

LIFETIME = timedelta(days=7)  # of a repeating schedule
MOST = 50  # schedules of one branch
CHECK_S = 30.0  # the clock jumps when a machine wakes
AGAIN = timedelta(minutes=5)  # until a failed delivery is tried again
GIVE_UP = timedelta(days=1)


class Schedules(Feature):
    """Stores schedules and fires them."""

    tool_names = (REQUEST, CANCEL)

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._pending = 0
        self._changed = asyncio.Event()
        self._firing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    # -- what clients and tools do -----------------------------------------------------------------------------

    async def add(
        self,
        ref: BranchRef,
        when: When,
        text: str,
        *,
        auth_subject: str,
        source: Source_ = "schedule",
        reason: str = "",
        options: Mapping[str, Any] | None = None,
        lifetime: timedelta | None = LIFETIME,
    ) -> Schedule:
        """Store a schedule for a branch.

        Args:
            ref: The branch that gets the message.
            when: When it fires.
            text: The text of the message.
            auth_subject: Who made the schedule.
            source: ``self-schedule`` for an agent's own.
            reason: Why, for an agent's own.
            options: Options of its runs: {env, allow}.
            lifetime: When a repeating schedule expires; None is never.

        Raises:
            BadRequest: The message is empty, there are too many schedules, or it would expire at once.
        """
        if not text.strip():
            raise BadRequest("The message of a schedule is empty")
        if lifetime is not None and lifetime <= timedelta():
            raise BadRequest("A schedule cannot repeat for no time at all", hint="Say for how long, as 2d, or never")
        now = self.kernel.clock.now()
        mine = await self.of(ref)
        if len(mine) >= MOST:
            raise BadRequest(f"{ref.name} has {MOST} schedules, which is the limit", hint="Cancel one first")
        first = when.first(now)
        expires = None if lifetime is None or when.kind == "at" else now + lifetime
        env: Mapping[str, str] = (options or {}).get("env") or {}
        schedule = Schedule(
            id=new_id("sch"),
            branch_dir=self.kernel.projection.key(ref.branch_dir),
            source=source,
            text=text,
            reason=reason,
            kind=when.kind,
            value=when.value,
            zone=when.zone,
            auth_subject=auth_subject,
            # Keys are in memory only.
            options={**(options or {}), "env": {name: env[name] for name in env if not is_secret(name)}},
            created_at=epoch_ms(now),
            next_at=epoch_ms(min(first, expires or first)),
            expires_at=None if expires is None else epoch_ms(expires),
        )
        self.kernel.feature(Triggers).remember(ref, env)
        await asyncio.to_thread(schedules.put, self.kernel.state, schedule)
        await self._count()
        self._changed.set()
        return schedule

    async def of(self, ref: BranchRef | None = None) -> list[Schedule]:
        """Return the schedules of a branch, or all, the next one first."""
        branch_dir = None if ref is None else self.kernel.projection.key(ref.branch_dir)
        return await asyncio.to_thread(schedules.find, self.kernel.state, branch_dir=branch_dir)

    async def get(self, id: str, ref: BranchRef | None = None) -> Schedule:
        """Return the schedule with this id.

        Raises:
            NotFound: There is none, or it belongs to another branch than ``ref``.
        """
        found = await asyncio.to_thread(schedules.get, self.kernel.state, id)
        if found is None or (ref is not None and found.branch_dir != self.kernel.projection.key(ref.branch_dir)):
            raise NotFound(f"There is no schedule {id}", hint="`pyagentd schedule list` shows those there are")
        return found

    async def cancel(self, id: str, ref: BranchRef | None = None) -> Schedule:
        """Delete a schedule; raises as ``get``."""
        schedule = await self.get(id, ref)
        await self._remove(schedule)
        return schedule

    async def forget(self, directory: Path) -> None:
        """Delete the schedules of a deleted directory: of a session, a branch or an agent, with all below it."""
        await asyncio.to_thread(schedules.remove_within, self.kernel.state, self.kernel.projection.key(directory))
        await self._count()

    async def run(self, id: str) -> DeliveryReply:
        """Deliver a schedule's message now; its next time does not change.

        Raises:
            NotFound: There is none.
            PyagentdError: It cannot be delivered.
        """
        schedule = await self.get(id)
        now = self.kernel.clock.now()
        async with self.kernel.using(paths.ref_of(self.directory(schedule))) as branch:
            delivered = await self._deliver(branch, schedule, f"now-{epoch_ms(now)}", {})
        await self._update(replace(schedule, fired=schedule.fired + 1, last_at=epoch_ms(now), last_error=""))
        return delivered

    def directory(self, schedule: Schedule) -> Path:
        """Return the directory of a schedule's branch."""
        return self.kernel.projection.directory(schedule.branch_dir)

    @property
    def pending(self) -> int:
        """The number of schedules; the daemon stays up while there are any."""
        return self._pending

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return the tools by which an agent schedules its own wake-up."""
        return wakeup_tools(self, run.branch.ref, run.options.env, self.kernel.clock)

    # -- time --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the timer; what was due while no daemon ran is delivered."""
        self._task = asyncio.create_task(self._watch(), name="schedules")

    async def stop(self) -> None:
        """Stop the timer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def tick(self) -> None:
        """Deliver the messages of all schedules that are due."""
        async with self._firing:
            now = self.kernel.clock.now()
            for due in await asyncio.to_thread(schedules.find, self.kernel.state, due_ms=epoch_ms(now)):
                schedule = await asyncio.to_thread(schedules.get, self.kernel.state, due.id)
                if schedule is None or schedule.next_at != due.next_at:  # cancelled while others were delivered
                    continue
                try:
                    await self._fire(schedule, now)
                except Busy:  # the daemon is stopping: the next one delivers it
                    log.info("schedule %s: not run yet", schedule.id)
                except StoreError:
                    raise
                except Exception as error:  # such as an unknown zone: the others are delivered
                    log.exception("schedule %s", schedule.id)
                    reason = str(error) if isinstance(error, PyagentdError) else f"{type(error).__name__}: {error}"
                    await self._update(replace(schedule, last_error=reason, next_at=epoch_ms(now + AGAIN)))
            await self._count()

    async def _watch(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self.tick()
                next_s = min([each.next_at for each in await self.of()], default=math.inf) / 1000
                wait_s = min(CHECK_S, max(0.05, next_s - self.kernel.clock.now().timestamp()))
            except PyagentdError as error:  # a database error: tried again
                log.warning("schedules: %s", error)
                wait_s = CHECK_S
            except Exception:  # outermost handler of this task
                log.exception("schedules")
                wait_s = CHECK_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def _fire(self, schedule: Schedule, now: datetime) -> None:
        when = When(kind=schedule.kind, value=schedule.value, zone=schedule.zone)
        due = datetime.fromtimestamp(schedule.next_at / 1000, UTC)
        expires = None if schedule.expires_at is None else datetime.fromtimestamp(schedule.expires_at / 1000, UTC)
        last = expires is not None and now >= expires
        after, missed = next_occurrence(when, due, now)
        facts = {**({"missed": missed} if missed else {}), **({"expired": True} if last else {})}
        gone = when.kind == "at" or last or after is None
        try:
            async with self.kernel.using(paths.ref_of(self.directory(schedule))) as branch:
                if not _still_queued(branch, schedule.id):
                    await self._deliver(branch, schedule, str(schedule.next_at), facts)
                    schedule = replace(schedule, fired=schedule.fired + 1, last_at=epoch_ms(now), last_error="")
        except (NotASession, NotFound):
            log.info("schedule %s: its session is gone", schedule.id)
            gone = True
        except Busy:
            if self.kernel.closing:
                raise
            after, gone = now + timedelta(seconds=CHECK_S), False
        except PyagentdError as error:
            log.warning("schedule %s: %s", schedule.id, error)
            schedule = replace(schedule, last_error=str(error))
            if gone and not isinstance(error, RateLimited) and now < due + GIVE_UP:
                after, gone = now + AGAIN, False
        if gone or after is None:
            await self._remove(schedule)
        else:
            next_at = after if expires is None or now >= expires else min(after, expires)
            await self._update(replace(schedule, next_at=epoch_ms(next_at)))

    async def _deliver(
        self, branch: LiveBranch, schedule: Schedule, firing: str, facts: Mapping[str, Any]
    ) -> DeliveryReply:
        options = schedule.options
        trigger = Trigger(
            source=schedule.source,
            text=schedule.text,
            delivery_id=f"{schedule.id}@{firing}",
            auth_subject=schedule.auth_subject,
            schedule_id=schedule.id,
            options=SendOptions(
                env=dict(options.get("env") or {}), grants=tuple(map(compile_action, options.get("allow") or ()))
            ),
            facts={**facts, **({"reason": schedule.reason} if schedule.reason else {})},
        )
        return await self.kernel.feature(Triggers).deliver(branch, trigger)

    async def _update(self, schedule: Schedule) -> None:
        """Store a schedule's new state, unless it was cancelled meanwhile."""
        await asyncio.to_thread(schedules.update, self.kernel.state, schedule)

    async def _remove(self, schedule: Schedule) -> None:
        await asyncio.to_thread(schedules.remove, self.kernel.state, [schedule.id])
        await self._count()

    async def _count(self) -> None:
        self._pending = len(await self.of())


def _still_queued(branch: LiveBranch, schedule_id: str) -> bool:
    """Return whether a message of a schedule is still queued."""
    return any(
        "queued_at" in message.metadata and (message.metadata.get("trigger") or {}).get("schedule_id") == schedule_id
        for message in branch.conversation.queued.values()
    )


# The tools request_wakeup and cancel_wakeup: an agent schedules a message to itself.
#
# Like a person's schedule, a wake-up becomes a message of the session, and no human can be asked in its run. A person
# approves the call unless a profile or a grant allows it; it fires within a week, and a repeating one expires after a
# week.

_REQUEST_DESCRIPTION = """\
Have yourself woken later in this conversation: `prompt` comes as a message, with everything said so far above it, \
and no human may be there. Use it to look again at something that takes time. `when` is {"kind": "delay_ms", \
"value": 600000}, {"kind": "at", "value": "2026-03-04T09:00"} or {"kind": "cron", "value": "0 9 * * 1-5"} (five \
fields, local time); at most 7 days ahead, and what repeats ends after 7 days."""

_CANCEL_DESCRIPTION = "Cancel a wake-up that request_wakeup returned the schedule_id of."

_REQUEST_SCHEMA = object_schema(
    {
        "when": object_schema(
            {
                "kind": {"type": "string", "enum": ["delay_ms", "at", "cron"]},
                "value": {"type": ["string", "integer"], "description": "Milliseconds, a time or a cron expression"},
            }
        ),
        "prompt": {"type": "string", "minLength": 1, "description": "What the message says to you then"},
        "reason": {"type": "string", "minLength": 1, "description": "For the user: what it is for"},
    }
)

_CANCEL_SCHEMA = object_schema({"schedule_id": {"type": "string", "minLength": 1}})


def wakeup_tools(own: Schedules, ref: BranchRef, env: Mapping[str, str], clock: Clock) -> tuple[ToolSpec, ToolSpec]:
    """Return both tools for a run of a branch or agent; the wake-ups run with the same environment."""

    async def request(args: Args, ctx: ToolContext) -> Output:
        try:
            schedule = await own.add(
                ref,
                _when(args, clock.now()),
                args["prompt"],
                auth_subject=f"agent:{ref.session_id}",
                source="self-schedule",
                reason=args["reason"],
                options={"env": dict(env)},
            )
        except PyagentdError as error:
            raise ToolError(f"Nothing was scheduled: {error}") from error
        return Output(text=json.dumps({"schedule_id": schedule.id}))

    async def cancel(args: Args, ctx: ToolContext) -> Output:
        try:
            schedule = await own.get(args["schedule_id"], ref)
            if schedule.source != "self-schedule":
                raise ToolError("That schedule is the user's, who alone can cancel it.")
            await own.cancel(schedule.id, ref)
        except PyagentdError as error:
            raise ToolError(f"Nothing was cancelled: {error}") from error
        return Output(text=json.dumps({"cancelled": schedule.id}))

    return (
        ToolSpec(
            name=REQUEST,
            description=_REQUEST_DESCRIPTION,
            input_schema=_REQUEST_SCHEMA,
            kind="meta",
            run=request,
            describe=lambda args, ctx: Target(detail=f"{args['when']['kind']} {args['when']['value']}"),
            preview=lambda args, ctx: _preview(args, clock.now()),
            confirm=True,
        ),
        ToolSpec(
            name=CANCEL,
            description=_CANCEL_DESCRIPTION,
            input_schema=_CANCEL_SCHEMA,
            kind="meta",
            run=cancel,
            describe=lambda args, ctx: Target(detail=args["schedule_id"]),
        ),
    )


def _when(args: Args, now: datetime) -> When:
    """Return the schedule of a wake-up.

    Raises:
        PyagentdError: The time is invalid or too far ahead.
    """
    kind, value = args["when"]["kind"], args["when"]["value"]
    if kind == "delay_ms":
        if not re.fullmatch(r"\s*\d{1,15}\s*", str(value)):
            raise ToolError(f"{value!r} is not a number of milliseconds.")
        when = after(timedelta(milliseconds=int(value)), now=now)
    elif kind == "at":
        when = at(str(value), now=now)
    else:
        when = cron(str(value), now=now)
    if when.first(now) > now + LIFETIME:
        raise ToolError(f"That is more than {LIFETIME.days} days ahead; ask the user to schedule it.")
    return when


def _preview(args: Args, now: datetime) -> str:
    try:
        when = _when(args, now)
    except PyagentdError as error:
        return str(error)
    first = when.first(now).astimezone()
    return f"{describe_schedule(when)}, first {first:%a %Y-%m-%d %H:%M}\n{args['reason']}\n\n{args['prompt']}"

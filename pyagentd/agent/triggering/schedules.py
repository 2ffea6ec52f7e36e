"""The clock of the daemon: keeps schedules, and has each one's message delivered when its time has come.

What was due while no daemon ran, or the machine slept, comes once, as soon as one runs again, however often it was
due. A schedule that repeats lives for a week unless its maker says otherwise: at the end of that time it fires once
more and is gone. It never fires while its last message still waits in the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.triggering.occurrences import When, following
from pyagentd.agent.triggering.triggers import Delivered, Trigger
from pyagentd.clock import epoch_ms, new_id
from pyagentd.errors import BadRequest, Busy, NotASession, NotFound, PyagentdError, RateLimited
from pyagentd.policy.profiles import compile_action
from pyagentd.store import paths
from pyagentd.store.db import schedules as table
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.schedules import Schedule, Source
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:  # the host has them
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

LIFETIME = timedelta(days=7)  # of what repeats
MOST = 50  # schedules of one branch
CHECK_S = 30.0  # a machine that slept has a clock that jumped
AGAIN = timedelta(minutes=5)  # until what could not be delivered is tried again
GIVE_UP = timedelta(days=1)


class Schedules:
    """All schedules of one host.

    Attributes:
        pending: How many there are; the daemon stays up while there are any.
    """

    def __init__(self, host: Host) -> None:
        self.pending = 0
        self._host = host
        self._names = Projection(host.state, host.config.sessions_dir)
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
        source: Source = "schedule",
        reason: str = "",
        options: Mapping[str, Any] | None = None,
        lifetime: timedelta | None = LIFETIME,
    ) -> Schedule:
        """Keep a schedule for a branch.

        Args:
            ref: Whose turns.
            when: When it fires.
            text: What the message says.
            auth_subject: Who wants it.
            source: Who made it.
            reason: Why, of an agent's own.
            options: Of its runs: {env, allow}.
            lifetime: Of one that repeats; None is for ever.

        Raises:
            BadRequest: There is no message, or there are too many schedules.
        """
        if not text.strip():
            raise BadRequest("The message of a schedule is empty")
        now = self._host.clock.now()
        mine = await self.of(ref)
        if len(mine) >= MOST:
            raise BadRequest(f"{ref.name} has {MOST} schedules, which is the most", mend="Cancel one first")
        first = when.first(now)
        expires = None if lifetime is None or when.kind == "at" else now + lifetime
        schedule = Schedule(
            id=new_id("sch"),
            branch_dir=self._names.key(ref.branch_dir),
            source=source,
            text=text,
            reason=reason,
            kind=when.kind,
            value=when.value,
            zone=when.zone,
            auth_subject=auth_subject,
            options=dict(options or {}),
            created_at=epoch_ms(now),
            next_at=epoch_ms(min(first, expires or first)),
            expires_at=None if expires is None else epoch_ms(expires),
        )
        await asyncio.to_thread(table.put, self._host.state, schedule)
        await self._count()
        self._changed.set()
        return schedule

    async def of(self, ref: BranchRef | None = None) -> list[Schedule]:
        """Return the schedules of a branch, or all, the next one first."""
        branch_dir = None if ref is None else self._names.key(ref.branch_dir)
        return await asyncio.to_thread(table.find, self._host.state, branch_dir=branch_dir)

    async def get(self, id: str, ref: BranchRef | None = None) -> Schedule:
        """Return the schedule with this id.

        Raises:
            NotFound: There is none, or it is of another branch than ``ref``.
        """
        found = await asyncio.to_thread(table.get, self._host.state, id)
        if found is None or (ref is not None and found.branch_dir != self._names.key(ref.branch_dir)):
            raise NotFound(f"There is no schedule {id}", mend="`pyagentd schedule list` shows those there are")
        return found

    async def cancel(self, id: str, ref: BranchRef | None = None) -> Schedule:
        """Forget a schedule; raises as ``get``."""
        schedule = await self.get(id, ref)
        await self._remove(schedule)
        return schedule

    async def forget(self, directory: Path) -> None:
        """Forget the schedules of what is deleted: a session, a branch or an agent with all below it."""
        await asyncio.to_thread(table.remove_within, self._host.state, self._names.key(directory))
        await self._count()

    async def run(self, id: str) -> Delivered:
        """Deliver a schedule's message now; when it fires next does not change.

        Raises:
            NotFound: There is none.
            PyagentdError: It cannot be delivered.
        """
        schedule = await self.get(id)
        now = self._host.clock.now()
        async with self._host.using(self._ref(schedule)) as branch:
            delivered = await self._deliver(branch, schedule, f"now-{epoch_ms(now)}", {})
        await self._update(replace(schedule, fired=schedule.fired + 1, last_at=epoch_ms(now), last_error=""))
        return delivered

    def directory(self, schedule: Schedule) -> Path:
        """Return where the branch of a schedule is."""
        return self._names.directory(schedule.branch_dir)

    # -- time --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look at the clock; what was due meanwhile is delivered."""
        self._task = asyncio.create_task(self._watch(), name="schedules")

    async def close(self) -> None:
        """Stop looking at the clock."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def tick(self) -> None:
        """Deliver what is due."""
        async with self._firing:
            now = self._host.clock.now()
            for schedule in await asyncio.to_thread(table.find, self._host.state, due_ms=epoch_ms(now)):
                try:
                    await self._fire(schedule, now)
                except Busy:  # the daemon stops: the next one delivers it
                    log.info("schedule %s waits", schedule.id)
            await self._count()

    async def _watch(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self.tick()
                wait_s = await self._until_next()
            except PyagentdError as error:  # the database: it is tried again
                log.warning("schedules: %s", error)
                wait_s = CHECK_S
            except Exception:  # the edge of this task: one schedule must not end all
                log.exception("schedules")
                wait_s = CHECK_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)

    async def _until_next(self) -> float:
        schedules = await self.of()
        if not schedules:
            return CHECK_S
        return min(CHECK_S, max(0.05, schedules[0].next_at / 1000 - self._host.clock.now().timestamp()))

    async def _fire(self, schedule: Schedule, now: datetime) -> None:
        when = When(kind=schedule.kind, value=schedule.value, zone=schedule.zone)
        due, expires = _moment(schedule.next_at), _moment(schedule.expires_at)
        last = expires is not None and now >= expires
        after, missed = following(when, due, now)
        facts = {**({"missed": missed} if missed else {}), **({"expired": True} if last else {})}
        gone = when.kind == "at" or last or after is None
        try:
            async with self._host.using(self._ref(schedule)) as branch:
                if not _still_queued(branch, schedule.id):
                    await self._deliver(branch, schedule, str(schedule.next_at), facts)
                    schedule = replace(schedule, fired=schedule.fired + 1, last_at=epoch_ms(now), last_error="")
        except (NotASession, NotFound):
            log.info("schedule %s: its session is gone", schedule.id)
            gone = True
        except Busy:
            if self._host.closing:
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
    ) -> Delivered:
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
        return await self._host.triggers.deliver(branch, trigger)

    def _ref(self, schedule: Schedule) -> BranchRef:
        return paths.ref_of(self.directory(schedule))

    async def _update(self, schedule: Schedule) -> None:
        """Keep what firing changed, of a schedule that was not cancelled meanwhile."""
        await asyncio.to_thread(table.update, self._host.state, schedule)

    async def _remove(self, schedule: Schedule) -> None:
        await asyncio.to_thread(table.remove, self._host.state, [schedule.id])
        await self._count()

    async def _count(self) -> None:
        self.pending = len(await self.of())


def _moment(at_ms: int | None) -> Any:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)


def _still_queued(branch: LiveBranch, schedule_id: str) -> bool:
    """Return whether a message of a schedule waits for its turn."""
    return any(
        "queued_at" in message.metadata and (message.metadata.get("trigger") or {}).get("schedule_id") == schedule_id
        for message in branch.conversation.queued.values()
    )

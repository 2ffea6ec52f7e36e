"""Turns that no human began: from a schedule, a webhook, a program, the agent itself (neighbours B.7).

A delivery becomes a message of the user's with ``metadata.trigger`` and goes the way of all messages: the same
queue, the same rules. Whoever hands it in is known (``auth_subject``) and every delivery is audited, the refused ones
too. A delivery that came before is dropped, and so is what exceeds the limits. Nobody can be asked in the run.
"""

from __future__ import annotations

import asyncio
import getpass
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.running.outcome import Outcome
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.turns.queue import Submission, Submitted
from pyagentd.clock import epoch_ms
from pyagentd.errors import BadRequest, RateLimited
from pyagentd.store import paths
from pyagentd.store.db import schedules as table
from pyagentd.store.db.audit import Entry
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.schedules import Delivery
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:  # the host has them
    from pyagentd.agent.host import Host

Source = Literal["schedule", "webhook", "api", "self-schedule", "mcp-event"]
OUTSIDE: tuple[Source, ...] = ("api", "webhook", "mcp-event")  # who may call from outside

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
        text: What the message says.
        delivery_id: The source's name for it: the same one is delivered once.
        auth_subject: Who handed it in, or made the schedule.
        options: Of the run; ``interactive`` counts for nothing.
        schedule_id: Which schedule, if one.
        headers: What the source said beside the text, without what may be secret.
        facts: More of ``metadata.trigger``.
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
            raise BadRequest("A delivery needs an id", mend=f"Of 1 to {LONGEST_ID} printable characters")
        if sum(len(name) + len(value) for name, value in self.headers.items()) > LONGEST_HEADERS:
            raise BadRequest(
                f"The headers have more than {LONGEST_HEADERS} characters", mend="Name only what matters"
            )

    def told(self, fired_at: int) -> dict[str, Any]:
        """Return ``metadata.trigger`` (neighbours B.7)."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What became of a delivery: ``submitted`` is None when it came before, as ``message_id``.

    ``ended`` is how the run then ended that answered it, as the log says it: "done", "error", "aborted" or "restart"
    (the daemon's end cut it off: no answer will come); "" while it has not, and where that is not known.
    """

    message_id: str
    submitted: Submitted | None
    ended: str = ""


class Triggers:
    """All deliveries to the sessions of one host; a listener of the host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._names = Projection(host.state, host.config.sessions_dir)
        self._busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by the branch's key
        self._known: dict[str, SendOptions] = {}  # what people's last runs had, by the root's key

    async def deliver(self, branch: LiveBranch, trigger: Trigger) -> Delivered:
        """Make a delivery a message of ``branch``, unless it is one.

        Raises:
            RateLimited: It is one too many.
            PyagentdError: The message cannot be taken, as in ``Host.submit``.
        """
        lock = self._busy.setdefault(branch.key, asyncio.Lock())
        async with lock:
            if (known := await self._before(branch, trigger)) is not None:
                self._audit(branch, trigger, "deny", "duplicate", reason=f"it is {known}")
                runs = [run for run in branch.conversation.runs.values() if run.data.get("message_id") == known]
                ended = str(runs[-1].data.get("reason") or "") if runs and runs[-1].is_finished else ""
                return Delivered(message_id=known, submitted=None, ended=ended)
            await self._check_limits(branch, trigger)
            now_ms = epoch_ms(self._host.clock.now())
            given = Submission(
                text=trigger.text,
                options=replace(self._completed(branch.ref, trigger.options), interactive=False),
                metadata={"trigger": trigger.told(now_ms)},
            )
            submitted = await self._host.submit(branch, given)
            self._audit(branch, trigger, "allow", trigger.source, run_id=submitted.run_id or "")
            delivery = Delivery(
                source=trigger.source,
                delivery_id=trigger.delivery_id,
                branch_dir=self._names.key(branch.ref.branch_dir),
                at_ms=now_ms,
                message_id=submitted.message_id,
            )
            await asyncio.to_thread(table.note_delivery, self._host.state, delivery)
            return Delivered(message_id=submitted.message_id, submitted=submitted)

    def run_ended(self, branch: LiveBranch, outcome: Outcome, options: SendOptions) -> None:
        """Remember environment and key of a person's run, for turns of the same session that no person begins."""
        if options.interactive and (options.env or options.api_key):
            self._known[paths.root_of(branch.ref).key] = SendOptions(env=dict(options.env), api_key=options.api_key)

    def branch_written(self, ref: BranchRef) -> None:
        """Do nothing."""

    def options_for(self, ref: BranchRef) -> SendOptions:
        """Return environment and key of the last person who talked there, for what no person begins."""
        return self._completed(ref, SendOptions())

    async def _before(self, branch: LiveBranch, trigger: Trigger) -> str | None:
        """Return the id of the message that a delivery is already; the log knows, whatever became of the database."""
        recorded = (branch.conversation.messages, branch.conversation.queued)
        for message in (message for known in recorded for message in reversed(known.values())):
            told = message.metadata.get("trigger") or {}
            if (told.get("source"), told.get("delivery_id")) == (trigger.source, trigger.delivery_id):
                return message.id
        return await asyncio.to_thread(
            table.delivered,
            self._host.state,
            branch_dir=self._names.key(branch.ref.branch_dir),
            source=trigger.source,
            delivery_id=trigger.delivery_id,
        )

    async def _check_limits(self, branch: LiveBranch, trigger: Trigger) -> None:
        now_ms = epoch_ms(self._host.clock.now())
        state, branch_dir = self._host.state, self._names.key(branch.ref.branch_dir)

        def count() -> tuple[int, int]:
            within = table.deliveries_since(state, now_ms - _MINUTE_MS, branch_dir=branch_dir, source=trigger.source)
            return within, table.deliveries_since(state, now_ms - _DAY_MS)

        minute, day = await asyncio.to_thread(count)
        most = self._host.config.triggers
        if trigger.source in OUTSIDE and minute >= most.per_minute:
            raise self._refused(branch, trigger, f"{most.per_minute} deliveries of one source a minute are the most")
        if day >= most.per_day:
            raise self._refused(branch, trigger, f"{most.per_day} turns a day that nobody began are the most")

    def _refused(self, branch: LiveBranch, trigger: Trigger, reason: str) -> RateLimited:
        self._audit(branch, trigger, "deny", "rate", reason=reason)
        return RateLimited(reason, mend="Deliver it later, or send it yourself")

    def _completed(self, ref: BranchRef, options: SendOptions) -> SendOptions:
        """Return ``options`` with what a person's last run in the same tree had and these lack."""
        known = self._known.get(paths.root_of(ref).key)
        if known is None:
            return options
        if not options.env:
            options = replace(options, env=known.env)
        # A key must not reach a server it was not meant for.
        return replace(options, api_key=known.api_key) if _server(options) == _server(known) else options

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
        self._host.ledger.note(
            Entry(
                at_ms=epoch_ms(self._host.clock.now()),
                session=paths.root_of(ref).session_id,
                branch_dir=self._names.key(ref.branch_dir),
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


def local_user() -> str:
    """Return the user whose daemon this is, as an ``auth_subject``: nobody else's connections are taken."""
    try:
        return f"user:{getpass.getuser()}"
    except (OSError, KeyError):  # a container may have no name for it
        return "user"


def _server(options: SendOptions) -> tuple[str | None, str | None]:
    return options.env.get("PYAGENTD_BACKEND"), options.env.get("ANTHROPIC_BASE_URL")

"""The tools request_wakeup and cancel_wakeup: an agent has itself woken later (neighbours B.7 self-schedule).

Like what a person schedules, a wake-up becomes a message of the session, and nobody can be asked in its run. A person
confirms it unless a profile or a grant allows it; it comes within a week, and one that repeats is gone after a week.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from pyagentd.agent.triggering import occurrences
from pyagentd.agent.triggering.occurrences import When
from pyagentd.agent.triggering.schedules import LIFETIME
from pyagentd.errors import PyagentdError, ToolError
from pyagentd.store.db.schedules import Schedule, Source
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec

REQUEST = "request_wakeup"
CANCEL = "cancel_wakeup"

_REQUEST_DESCRIPTION = """\
Have yourself woken later in this conversation: `prompt` comes as a message, with everything said so far above it, \
and no human may be there. Use it to look again at something that takes time. `when` is {"kind": "delay_ms", \
"value": 600000}, {"kind": "at", "value": "2026-03-04T09:00"} or {"kind": "cron", "value": "0 9 * * 1-5"} (five \
fields, local time); at most 7 days ahead, and what repeats ends after 7 days."""

_CANCEL_DESCRIPTION = "Cancel a wake-up that request_wakeup returned the schedule_id of."

_REQUEST_SCHEMA = {
    "type": "object",
    "properties": {
        "when": {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "enum": ["delay_ms", "at", "cron"]},
                "value": {"type": ["string", "integer"], "description": "Milliseconds, a time or a cron expression"},
            },
            "required": ["kind", "value"],
            "additionalProperties": False,
        },
        "prompt": {"type": "string", "minLength": 1, "description": "What the message says to you then"},
        "reason": {"type": "string", "minLength": 1, "description": "For the user: what it is for"},
    },
    "required": ["when", "prompt", "reason"],
    "additionalProperties": False,
}

_CANCEL_SCHEMA = {
    "type": "object",
    "properties": {"schedule_id": {"type": "string", "minLength": 1}},
    "required": ["schedule_id"],
    "additionalProperties": False,
}


class Calendar(Protocol):
    """What the tools need of the host's schedules."""

    async def add(
        self,
        ref: BranchRef,
        when: When,
        text: str,
        *,
        auth_subject: str,
        source: Source,
        reason: str,
        options: Mapping[str, Any] | None,
    ) -> Schedule:
        """Keep a schedule."""
        ...

    async def get(self, id: str, ref: BranchRef | None = None) -> Schedule:
        """Return a schedule."""
        ...

    async def cancel(self, id: str, ref: BranchRef | None = None) -> Schedule:
        """Forget a schedule."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeper:
    """Whose wake-ups they are.

    Attributes:
        ref: The branch or agent.
        calendar: Where they are kept.
        env: Of the run that asks: its wake-ups run with the same backend.
        now: Returns the time.
    """

    ref: BranchRef
    calendar: Calendar
    env: Mapping[str, str]
    now: Any


def wakeup_tools(sleeper: Sleeper) -> dict[str, ToolSpec]:
    """Return both tools by name, for one run."""

    async def request(args: Args, ctx: ToolContext) -> Output:
        try:
            schedule = await sleeper.calendar.add(
                sleeper.ref,
                _when(args, sleeper.now()),
                args["prompt"],
                auth_subject=f"agent:{sleeper.ref.session_id}",
                source="self-schedule",
                reason=args["reason"],
                options={"env": dict(sleeper.env)},
            )
        except PyagentdError as error:
            raise ToolError(f"Nothing was scheduled: {error}") from error
        return Output(text=json.dumps({"schedule_id": schedule.id}))

    async def cancel(args: Args, ctx: ToolContext) -> Output:
        try:
            schedule = await sleeper.calendar.get(args["schedule_id"], sleeper.ref)
            if schedule.source != "self-schedule":
                raise ToolError("That schedule is the user's, who alone can cancel it.")
            await sleeper.calendar.cancel(schedule.id, sleeper.ref)
        except PyagentdError as error:
            raise ToolError(f"Nothing was cancelled: {error}") from error
        return Output(text=json.dumps({"cancelled": schedule.id}))

    return {
        REQUEST: ToolSpec(
            name=REQUEST,
            description=_REQUEST_DESCRIPTION,
            input_schema=_REQUEST_SCHEMA,
            kind="meta",
            run=request,
            describe=lambda args, ctx: Target(detail=f"{args['when']['kind']} {args['when']['value']}"),
            preview=lambda args, ctx: _preview(args, sleeper.now()),
            confirm=True,
        ),
        CANCEL: ToolSpec(
            name=CANCEL,
            description=_CANCEL_DESCRIPTION,
            input_schema=_CANCEL_SCHEMA,
            kind="meta",
            run=cancel,
            describe=lambda args, ctx: Target(detail=args["schedule_id"]),
        ),
    }


def _when(args: Args, now: datetime) -> When:
    """Return when a wake-up comes.

    Raises:
        PyagentdError: It is no time, or too far ahead.
    """
    kind, value = args["when"]["kind"], args["when"]["value"]
    if kind == "delay_ms":
        if not str(value).strip().isdecimal():
            raise ToolError(f"{value!r} is no number of milliseconds.")
        when = occurrences.after(timedelta(milliseconds=min(int(value), 10**12)), now=now)
    elif kind == "at":
        when = occurrences.at(str(value), now=now)
    else:
        when = occurrences.cron(str(value), now=now)
    if when.first(now) > now + LIFETIME:
        raise ToolError(f"That is more than {LIFETIME.days} days ahead; ask the user to schedule it.")
    return when


def _preview(args: Args, now: datetime) -> str:
    try:
        when = _when(args, now)
    except PyagentdError as error:
        return str(error)
    first = when.first(now).astimezone()
    return f"{occurrences.described(when)}, first {first:%a %Y-%m-%d %H:%M}\n{args['reason']}\n\n{args['prompt']}"

"""The tool calls of one answer: which of them run together, and how each comes to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyagentd import jsontext
from pyagentd.agent.approving.authority import Authority
from pyagentd.agent.running.resuming import decided_before
from pyagentd.llm.anthropic import MAX_ARGUMENTS
from pyagentd.messages import ToolCall, ToolResult
from pyagentd.policy.action import Action
from pyagentd.tools import spool
from pyagentd.tools.invoke import Edited, Envelope, invoke
from pyagentd.tools.spec import Hooking, ToolContext, ToolSpec

_SHOWN = 500  # characters of arguments that cannot be read


class Calling:
    """Makes the calls of one run.

    Args:
        tools: What the run may use, by name.
        context: Where calls happen.
        authority: Who decides about them.
        began: Records that a call begins to act, unless it only looks.
        record: Records the outcome of a call and returns it as the model sees it.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, ToolSpec],
        context: ToolContext,
        authority: Authority,
        began: Callable[[ToolCall], None],
        record: Callable[[ToolCall, Envelope], ToolResult],
    ) -> None:
        self._tools = tools
        self._context = context
        self._authority = authority
        self._began = began
        self._record = record

    async def complete(
        self,
        calls: tuple[ToolCall, ...],
        results: Mapping[str, ToolResult],
        stand_ins: Mapping[str, ToolSpec],
    ) -> tuple[ToolResult, ...]:
        """Make the calls that have no result yet, and return the results of all of them, in their order.

        Args:
            calls: What the model wants.
            results: What is there already, by call id.
            stand_ins: Tools in the place of those the model named, by call id; what they do was decided before.

        Raises:
            StoreError: A result could not be recorded.
        """
        known = dict(results)
        for group in self._groups(calls):
            waiting = [call for call in group if call.id not in known]
            try:
                async with asyncio.TaskGroup() as tasks:
                    made = [tasks.create_task(self._make(call, stand_ins.get(call.id))) for call in waiting]
            except ExceptionGroup as failures:  # tools never raise; recording their results may
                raise failures.exceptions[0] from None
            known.update((result.id, result) for result in (task.result() for task in made))
        return tuple(known[call.id] for call in calls)

    def _groups(self, calls: tuple[ToolCall, ...]) -> list[list[ToolCall]]:
        """Split the calls so that those that only look run together and those that change something run alone."""
        groups: list[list[ToolCall]] = []
        joinable = False
        for call in calls:
            spec = self._tools.get(call.name)
            parallel = spec is None or spec.parallel_safe
            if parallel and joinable:
                groups[-1].append(call)
            else:
                groups.append([call])
            joinable = parallel
        return groups

    async def _make(self, call: ToolCall, stand_in: ToolSpec | None) -> ToolResult:
        return self._record(call, await self._invoked(call, stand_in))

    async def _invoked(self, call: ToolCall, stand_in: ToolSpec | None) -> Envelope:
        if stand_in is not None:
            return await invoke(stand_in, {}, self._context, decided_before)
        spec = self._tools.get(call.name)
        if spec is None:
            known = ", ".join(sorted(self._tools)) or "none"
            return Envelope(ok=False, text=f"There is no tool {call.name!r}. Available: {known}.", duration_ms=0)
        if call.unreadable:
            return Envelope(ok=False, text=_unreadable(call), duration_ms=0)
        hooks = None if self._context.hooks is None else _CallHooks(self._context.hooks, call)
        context = replace(self._context, call_id=call.id, hooks=hooks)

        async def authorise(action: Action) -> Edited | None:
            asked = call if hooks is None else hooks.call
            wanted = spec
            if spec.confirming is not None:
                wanted = replace(spec, confirm=await spec.confirming(dict(asked.input), context))
            return await self._authority.for_call(wanted, asked, context)(action)

        def began() -> None:
            if spec.kind != "read" and not spec.repeatable:
                self._began(call)

        return await invoke(spec, dict(call.input), context, authorise, began)


@dataclass(slots=True)
class _CallHooks:
    """Asks the hooks about one call, and has it as they want it for the human who is asked next."""

    hooks: Hooking
    call: ToolCall

    async def before(
        self, tool: str, args: Mapping[str, Any], action: Action, call_id: str
    ) -> Mapping[str, Any] | None:
        changed = await self.hooks.before(tool, args, action, call_id)
        if changed is not None:
            self.call = replace(self.call, input=dict(changed))
        return changed

    async def after(
        self, tool: str, args: Mapping[str, Any], text: str, ok: bool, duration_ms: int, call_id: str
    ) -> str:
        return await self.hooks.after(tool, args, text, ok, duration_ms, call_id)


def describe(call: ToolCall) -> str:
    """Return a call as one short line for people: ``Read presets/plan.md``."""
    values = [str(value) for value in call.input.values() if isinstance(value, str | int | float)]
    line = " ".join([call.name, *values[:2]]).replace("\n", " ")
    return line if len(line) <= 80 else line[:79] + "…"


def bounded(call: ToolCall, spool_dir: Path) -> ToolCall:
    """Return a call; of one whose arguments are too long only their head, the whole of which is in a file."""
    if len(call.unreadable) <= MAX_ARGUMENTS:
        return call
    try:
        kept = str(spool.save(spool_dir, call.name if call.name.isidentifier() else "call", call.unreadable))
    except OSError as error:
        kept = f"not kept: {error.strerror}"
    size = len(call.unreadable)
    return replace(call, unreadable=f"{call.unreadable[:_SHOWN]}… ({size} characters)", spooled=kept)


def _unreadable(call: ToolCall) -> str:
    """Return what the model is told whose arguments cannot be read."""
    if call.spooled:
        return (
            f"{call.name} was not run: its arguments have more than {MAX_ARGUMENTS} characters. "
            f"What came is in a file ({call.spooled}). They began: {call.unreadable}\n"
            "Call it again with less, in several calls if need be."
        )
    try:
        jsontext.parse(call.unreadable)
        why = "it is another value"
    except ValueError as error:
        why = str(error)
    shown = call.unreadable if len(call.unreadable) <= _SHOWN else f"{call.unreadable[:_SHOWN]}…"
    return (
        f"{call.name} was not run: its arguments are not a JSON object ({why}). They were: {shown}\n"
        "Call it again with one complete JSON object that fits the tool's schema."
    )

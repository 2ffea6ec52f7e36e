"""The one way to run a tool: validate, authorise, run with a timeout, and always an envelope.

Whatever a tool does, its caller gets an ``Envelope``; only cancellation passes through. The model reads the text of
a failure and decides what to do about it (the tool bucket of DESIGN §6).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd.errors import ToolError
from pyagentd.policy.guard import Action
from pyagentd.tools import spool
from pyagentd.tools.schema import checked
from pyagentd.tools.spec import Output, ToolContext, ToolSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """What a human allowed in place of what the model asked for."""

    args: dict[str, Any]  # checked
    action: Action  # of these arguments
    note: str  # tells the model


Authorise = Callable[[Action], Awaitable[Edited | None]]
"""Returns when the action may happen, as it is or edited; raises ``ToolError`` with the reason when it may not.

It may wait for a human.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The result of one call."""

    ok: bool
    text: str
    duration_ms: int  # of the tool itself; waiting for an approval does not count
    truncated: bool = False
    output_path: Path | None = None  # the whole output, when ``text`` is only its head


async def invoke(spec: ToolSpec, args: object, ctx: ToolContext, authorise: Authorise) -> Envelope:
    """Run one call of ``spec``.

    Args:
        spec: The tool.
        args: What the model gave, unchecked.
        ctx: Where the call happens.
        authorise: Asked once, after validation and before any effect.

    Raises:
        asyncio.CancelledError: The run was aborted; the tool has been stopped.
    """
    started: float | None = None
    edited: Edited | None = None
    try:
        given = checked(spec.name, spec.input_schema, args)
        action = spec.action(given, ctx)
        edited = await authorise(action)
        if edited is not None:
            given, action = edited.args, edited.action
        started = time.monotonic()
        output = await _run(spec, given, ctx.bound_to(action))
        if _is_long(output):
            output = await asyncio.to_thread(_bounded, output, spec.name, ctx.spool_dir)
    except Exception as error:  # the boundary: whatever a tool raises is for the model
        output = Output(text=_explain(spec.name, error), ok=False)
    return Envelope(
        ok=output.ok,
        text=output.text if edited is None else f"{edited.note}\n{output.text}",
        duration_ms=0 if started is None else round((time.monotonic() - started) * 1000),
        truncated=output.truncated,
        output_path=output.output_path,
    )


async def _run(spec: ToolSpec, args: dict[str, object], ctx: ToolContext) -> Output:
    try:
        async with asyncio.timeout(spec.timeout_s) as limit:
            output = await spec.run(args, ctx)
    except TimeoutError as error:
        if not limit.expired():
            raise  # the tool's own, for instance of a network
        raise ToolError(f"{spec.name} did not finish within {spec.timeout_s:g} s and was stopped") from error
    return Output(text=output) if isinstance(output, str) else output


def _is_long(output: Output) -> bool:
    """Return whether something may have to be written; what is surely short is not worth a thread."""
    return output.full is not None or len(output.text) > spool.SHOWN_BYTES // 4


def _bounded(output: Output, tool: str, spool_dir: Path) -> Output:
    """Return ``output`` with at most the head shown, and the whole of it kept in a file."""
    whole = output.text if output.full is None else output.full
    shown = spool.head(output.text)
    if output.output_path is not None or shown == whole:
        return output
    try:
        path = spool.save(spool_dir, tool, whole)
    except OSError as error:
        # The tool has done its work; a full disk must not make it look undone.
        text = f"{shown}\n[Only the beginning is shown; the rest could not be kept: {error.strerror}.]"
        return Output(text=text, ok=output.ok, truncated=True)
    return Output(text=shown + spool.notice(shown, path), ok=output.ok, truncated=True, output_path=path)


def _explain(tool: str, error: Exception) -> str:
    match error:
        case ToolError():
            return str(error)
        case OSError(filename=str() as name):
            return f"{error.strerror}: {name}"
        case _:
            log.exception("tool %s failed", tool)
            return f"{tool} failed: {type(error).__name__}: {error}"

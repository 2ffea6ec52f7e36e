"""The request_scope_expansion tool: a model asks for more scope, a human decides (neighbours A.8).

What would be added is worked out and checked before anybody is asked, shown exactly, and added as a whole: for one
action of this run ("allow") or to ``preset.md`` ("always"). The list it goes to follows from the kind of the tool it
is wanted for. What is denied or protected cannot be added, and where no human can be asked the answer is no.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from pyagentd.agent.approving.askedscope import asked_lines, widening_for
from pyagentd.agent.approving.authority import Authority
from pyagentd.clock import Clock
from pyagentd.errors import PyagentdError, ToolError
from pyagentd.policy.action import Action, ResolvedPath, canonical_tool
from pyagentd.policy.guard import Deny
from pyagentd.policy.presets import Preset
from pyagentd.policy.widening import Widening
from pyagentd.store import metadata, paths, presetfile
from pyagentd.store.paths import BranchRef
from pyagentd.tools.invoke import Denied
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec

NAME = "request_scope_expansion"

# The question waits for a human without limit (DD-19).
_FOREVER_S = 10 * 365 * 24 * 3600.0

_DESCRIPTION = """\
Ask the user for more scope when a tool was denied because a path or command is outside it. Name the tool that was \
denied and everything you need for the task at once, as narrowly as you can. The user may allow it once (the next \
matching call), add it to the scope for good, or deny it. What `deny` lists or pyagentd protects cannot be added."""

_SCHEMA = {
    "type": "object",
    "properties": {
        "tool_name": {
            "type": "string",
            "minLength": 1,
            "description": "The tool that was denied, such as Read or Bash",
        },
        "patterns": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": 20,
            "description": (
                "For tools on files: absolute paths or glob patterns, a directory with / at its end. "
                "For commands: the commands. For notes: subdirectory:GLOB or tags:A,B"
            ),
        },
        "justification": {"type": "string", "minLength": 1, "description": "For the user: what you need it for"},
    },
    "required": ["tool_name", "patterns", "justification"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where scope is added to."""

    ref: BranchRef
    preset: Callable[[], Preset]  # read anew
    tools: Mapping[str, ToolSpec]  # by name, all that there are
    clock: Clock
    keeping: Callable[[], AbstractContextManager[None]] = nullcontext  # around a change of ``preset.md``


def scope_expansion(place: Place, authority: Authority) -> ToolSpec:
    """Return the tool for one run."""

    async def run(args: Args, ctx: ToolContext) -> Output:
        return await _request(place, authority, args, ctx)

    return ToolSpec(
        name=NAME,
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        kind="meta",
        repeatable=True,
        run=run,
        describe=lambda args, ctx: Target(detail=f"{canonical_tool(args['tool_name'])} {_listed(args['patterns'])}"),
        timeout_s=_FOREVER_S,
    )


async def _request(place: Place, authority: Authority, args: Args, ctx: ToolContext) -> Output:
    tool = canonical_tool(args["tool_name"])
    widening = await asyncio.to_thread(widening_for, place.tools, tool, args["patterns"], ctx.root)
    if not authority.interactive:
        authority.unasked("request_scope_expansion", f"tool:{tool}:{_listed(widening.patterns)}")
        raise Denied(
            "The scope cannot be expanded: no human can be asked in this run. Do without it, and say in your answer "
            "what was missing.",
            "nobody",
        )
    _refuse_hopeless(authority, widening, _samples(place.tools, tool, widening, ctx))
    if widening.preset(place.preset()) == place.preset():
        return _told_model(
            success=True,
            patterns_added=[],
            message=f"Nothing was asked: the scope for {tool} has {_listed(widening.patterns)} already.",
        )
    asked = f"tool:{NAME}:{tool} {_told(widening)}"
    answer = await authority.ask_for_scope(NAME, asked, _fields(place, tool, widening, args, ctx))
    match answer.decision:
        case "deny":
            why = {"reason": answer.reason} if answer.reason else {}
            told = _told_model(success=False, user_denied=True, message="User denied scope expansion request.", **why)
            raise Denied(told.text, "user")
        case "always":
            added = await asyncio.to_thread(_add, place, widening)
            message = f"Scope expanded. Added {len(added)} pattern(s) to {tool}"
            return _told_model(success=True, patterns_added=added, message=message)
        case _:
            authority.lend(widening)
            note = {"note": "The user is still asked about the command itself."} if widening.commands else {}
            return _told_model(
                success=True, allowed_once=True, message="Permission granted for this turn only.", **note
            )


def _told_model(*, success: bool, **facts: Any) -> Output:
    """Return the tool's result: a JSON object."""
    return Output(text=json.dumps({"success": success, **facts}, ensure_ascii=False), ok=success)


def _fields(place: Place, tool: str, widening: Widening, args: Args, ctx: ToolContext) -> dict[str, Any]:
    """Return what the ``ask`` row says: exactly what "always" would write, and where."""
    file = paths.preset_file(place.ref.branch_dir)
    lines = [f"Adds to {file}:"]
    for (section, key), values in widening.lists().items():
        lines += [f"{section}: {key}:", *(f"  - {value}" for value in values)]
    if widening.commands:
        lines += [*asked_lines(widening.commands), "Allowed once, a command is still asked about before it runs."]
    return {
        "tool_call_id": ctx.call_id,
        "detail": f"{tool}: {_listed(widening.commands or widening.patterns)}",
        "reason": args["justification"],
        "preview": "\n".join(lines),
        "choices": ["allow", "always", "deny", "abort"],
        "patterns": list(widening.patterns),
        "for_tool": tool,
        "input": json.dumps(dict(args), ensure_ascii=False),
    }


def _add(place: Place, widening: Widening) -> list[str]:
    """Write the additions to ``preset.md``; return those that are new. Blocks."""
    file = paths.preset_file(place.ref.branch_dir)
    try:
        with place.keeping():
            added = [
                each
                for (section, key), values in widening.lists().items()
                for each in presetfile.extend(file, section, key, values)
            ]
        metadata.touch_scope_plan(place.ref.branch_dir, place.clock.now())
    except PyagentdError as error:
        raise ToolError(f"The user allowed it, but it could not be written: {error}") from error
    return added


def _refuse_hopeless(authority: Authority, widening: Widening, samples: Iterable[Action]) -> None:
    """Raise ``ToolError`` when some of it would be denied even inside the scope: nobody is asked for nothing."""
    for action in samples:
        decision = authority.would_be(action, widening)
        if isinstance(decision, Deny) and decision.rule in ("protected", "deny", "read-only", "command"):
            raise ToolError(f"The scope cannot be expanded by this: {decision.reason}")


def _samples(tools: Mapping[str, ToolSpec], tool: str, widening: Widening, ctx: ToolContext) -> Iterator[Action]:
    """Yield an action for each addition: about the path itself, or about one that its pattern matches."""
    if widening.right == "command":
        for text in widening.commands:
            yield tools[tool].action({"command": text}, ctx)
    if widening.right not in ("read", "write"):
        return
    for pattern in widening.patterns:
        path = re.sub(r"\\(.)", r"\1", re.sub(r"(?<!\\)(\*+|\?|\[[^\]]*\])", "x", pattern))
        path = path if path.startswith("/") else f"/{path}"
        sample = ResolvedPath(lexical=path, resolved=path)
        yield Action(tool=tool, detail=path, kind=widening.right, paths=(sample,))


def _told(widening: Widening) -> str:
    """Return which lists would get what, and for which command lines, for the audit."""
    added = "; ".join(f"{section}.{key}: {_listed(values)}" for (section, key), values in widening.lists().items())
    return f"{added} (for {_listed(widening.commands)})" if widening.commands else added


def _listed(patterns: Sequence[str]) -> str:
    return ", ".join(patterns)

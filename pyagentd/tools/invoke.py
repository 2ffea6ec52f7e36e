"""Calls a tool: checks its arguments, asks hooks and authority, sets a timeout, keeps long output in a file."""

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pyagentd.errors import NotInstalled, ToolError, did_you_mean
from pyagentd.events import truncate
from pyagentd.policy.action import Action
from pyagentd.tools.spec import KeptFiles, Output, ToolContext, ToolSpec

log = logging.getLogger(__name__)

# Output too long for the model: its head is shown, the whole is kept in a file the model may read.

SHOWN_BYTES = 200_000  # of UTF-8

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(directory: Path, tool: str) -> tuple[int, Path]:
    """Create a private file for the output of ``tool``, and return its descriptor and path."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{tool}-{secrets.token_hex(6)}.txt"
    return os.open(path, _CREATE, 0o600), path


def save(directory: Path, tool: str, text: str) -> Path:
    """Write ``text`` to a file, and return its path."""
    descriptor, path = create(directory, tool)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode(errors="replace"))
    return path


def head(text: str, limit: int = SHOWN_BYTES) -> str:
    """Return the whole lines of ``text`` that fit into ``limit`` bytes, or a part of the first line."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return text
    data = data[: data.rfind(b"\n", 0, limit) + 1] or data[:limit]
    return data.decode(errors="ignore")  # it may end within a character


def truncation_notice(shown: str, path: Path) -> str:
    """Return the sentence that tells the model where the rest is and how to read it."""
    line = shown.count("\n") + 1
    gap = "" if shown.endswith("\n") else "\n"
    return (
        f"{gap}[Only the beginning is shown. The whole output is in {path}: "
        f'read on with Read(file_path="{path}", offset={line}) or search it with Grep.]'
    )


# Checks arguments against the part of JSON Schema that tool schemas use.
#
# Known keywords: type (one or a list), properties, required, enum, items, additionalProperties (assumed false for
# objects with properties), minimum, maximum, minLength, minItems, maxItems. Others describe and do not restrict. The
# first problems are reported at once, in words a model can act on.

Schema = Mapping[str, Any]

_SHOWN = 60  # characters of an offending value that are shown
_MOST_PROBLEMS = 20
_LONGEST_PROBLEM = 500  # characters

_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def validate_arguments(tool: str, schema: Schema, args: object) -> dict[str, Any]:
    """Return ``args`` as the tool gets them.

    Optional arguments given as null count as absent unless the schema names null for them, and 3.0 is an integer.

    Raises:
        ToolError: The arguments do not fit; the message names each of them and says what was expected.
    """
    if not isinstance(args, Mapping):
        raise ToolError(f"{tool}: the arguments must be an object, got {_excerpt(args)}")
    required, properties = schema.get("required", ()), schema.get("properties", {})
    given = {
        name: value
        for name, value in args.items()
        if value is not None or name in required or _allows_null(properties.get(name, {}))
    }
    problems = list(islice(_object_problems("", schema, given), _MOST_PROBLEMS + 1))
    if problems:
        named = [truncate(each, _LONGEST_PROBLEM) for each in problems[:_MOST_PROBLEMS]]
        more = ["there is more"] if len(problems) > _MOST_PROBLEMS else []
        takes = ", ".join(name if name in required else f"{name}?" for name in properties) or "no arguments"
        raise ToolError(f"{tool}: " + "; ".join([*named, *more]), hint=f"It takes {takes}")
    return {name: _coerce(properties.get(name, {}), value) for name, value in given.items()}


def _problems(where: str, schema: Schema, value: object) -> Iterator[str]:
    types = _types(schema)
    if types and not any(_is_of_type(value, name) for name in types):
        yield f'"{where}" must be {" or ".join(_NAMES.get(name, name) for name in types)}, got {_excerpt(value)}'
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f'"{where}" must be one of {", ".join(json.dumps(v) for v in schema["enum"])}, got {_excerpt(value)}'
    elif isinstance(value, str):
        yield from _bounds(where, len(value), schema.get("minLength"), schema.get("maxLength"), " characters")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _bounds(where, value, schema.get("minimum"), schema.get("maximum"), "")
    elif isinstance(value, Mapping):
        yield from _object_problems(where, schema, value)
    elif isinstance(value, Sequence):
        yield from _bounds(where, len(value), schema.get("minItems"), schema.get("maxItems"), " items")
        for index, item in enumerate(value):
            yield from _problems(f"{where}[{index}]", schema.get("items", {}), item)


def _object_problems(where: str, schema: Schema, value: Mapping[str, Any]) -> Iterator[str]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f'"{_join(where, name)}" is required and missing'
    closed = schema.get("additionalProperties", not properties) is False and "patternProperties" not in schema
    for name, item in value.items():
        if name in properties:
            yield from _problems(_join(where, name), properties[name], item)
        elif closed:
            meant = did_you_mean(str(name), properties, inside=True)
            yield f'"{_join(where, name)}" is not known' + (f", {meant}" if meant else "")


def _bounds(where: str, size: float, low: float | None, high: float | None, unit: str) -> Iterator[str]:
    if size == 0 and low == 1 and unit:
        yield f'"{where}" must not be empty'
    elif low is not None and size < low:
        yield f'"{where}" must be at least {low}{unit}, got {size}'
    if high is not None and size > high:
        yield f'"{where}" must be at most {high}{unit}, got {size}'


def _types(schema: Schema) -> tuple[str, ...]:
    kind = schema.get("type", ())
    return (kind,) if isinstance(kind, str) else tuple(kind)


def _allows_null(schema: Schema) -> bool:
    choices = schema.get("anyOf") or schema.get("oneOf") or ()
    return ("null" in _types(schema) and None in schema.get("enum", (None,))) or any(
        isinstance(each, Mapping) and _allows_null(each) for each in choices
    )


def _is_of_type(value: object, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            # True is an int in Python, and 3.0 is an integer in JSON.
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list | tuple)
        case "object":
            return isinstance(value, Mapping)
        case "null":
            return value is None
    return True


def _coerce(schema: Schema, value: Any) -> Any:
    if isinstance(value, float) and "integer" in _types(schema) and "number" not in _types(schema):
        return int(value)
    return value


def _join(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _excerpt(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


# The one way to run a tool: validate, ask hooks, authorise, run with a timeout, and always an envelope.
#
# What a hook or a human changes is validated anew, and what a hook changed is authorised anew. Whatever a tool does,
# its caller gets an ``Envelope``; only cancellation passes through. The model reads the text of a failure and
# decides what to do about it.

_ROUNDS = 4  # of a human and hooks who change each other's arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedCall:
    """The arguments that a human allowed instead of the model's."""

    args: dict[str, Any]  # checked
    action: Action  # of these arguments
    note: str  # tells the model


Denier = Literal["rule", "user", "nobody"]


class Denied(ToolError):
    """The call was denied.

    Attributes:
        by: Who denied it: a rule, the user, or "nobody" if no human could be asked.
    """

    def __init__(self, reason: str, by: Denier = "rule") -> None:
        super().__init__(reason)
        self.by: Denier = by


Authorise = Callable[[Action], Awaitable[EditedCall | None]]
"""Returns when the action is allowed, unchanged or edited; raises ``ToolError`` with the reason if it is denied.

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
    brief: str = ""  # see ``Output``
    denied: Denier | Literal[""] = ""  # who did not let it happen
    snapshot: Mapping[str, str] | None = None  # the files it touched: ids of trees ``before`` and ``after``


async def invoke(
    spec: ToolSpec, args: object, ctx: ToolContext, authorise: Authorise, began: Callable[[], None] = lambda: None
) -> Envelope:
    """Run one call of ``spec`` with the model's arguments, which are not validated yet.

    ``authorise`` is called once, after validation and before any effect; ``began`` is called right before the tool
    runs, and prevents that by raising.

    Raises:
        asyncio.CancelledError: The run was aborted; the tool has been stopped.
    """
    started, kept, notes = 0.0, KeptFiles(), list[str]()
    duration_ms = 0
    denied: Denier | Literal[""] = ""
    try:
        given, action = await _authorised_call(
            spec, validate_arguments(spec.name, spec.input_schema, args), ctx, authorise, notes
        )
        async with ctx.keeping.around(action, ctx.call_id) if ctx.keeping else nullcontext(kept) as kept:
            began()
            started = time.monotonic()
            try:
                output = await _run(spec, given, ctx.bound_to(action))
            except Exception as error:  # the boundary: whatever a tool raises is for the model
                output, denied = _refusal(spec.name, error)
            duration_ms = round((time.monotonic() - started) * 1000)
        if ctx.hooks is not None:
            note = await ctx.hooks.after(spec.name, given, output.text, output.ok, duration_ms, ctx.call_id)
            if note:
                full = None if output.full is None else f"{output.full}\n{note}"
                output = replace(output, text=f"{output.text}\n{note}", full=full)
    except Exception as error:  # the boundary, before and after the tool
        output, denied = _refusal(spec.name, error)
    # A short output is not worth a thread.
    if output.full is not None or len(output.text) > SHOWN_BYTES // 4:
        output = await asyncio.to_thread(_truncate, output, spec.name, ctx.spool_dir)
    return Envelope(
        ok=output.ok,
        text="\n".join((*notes, output.text)),
        duration_ms=duration_ms,
        truncated=output.truncated,
        output_path=output.output_path,
        brief=output.brief,
        denied=denied,
        snapshot={"before": kept.before, "after": kept.after} if kept.after else None,
    )


async def _authorised_call(
    spec: ToolSpec, given: dict[str, Any], ctx: ToolContext, authorise: Authorise, notes: list[str]
) -> tuple[dict[str, Any], Action]:
    """Return the arguments after hooks and authorisation, and the action; adds to ``notes``.

    Raises:
        ToolError: One of them denied the call, or they kept changing the arguments.
    """

    def action_of(args: Mapping[str, Any]) -> Action:
        return spec.action(validate_arguments(spec.name, spec.input_schema, args), ctx)

    action = spec.action(given, ctx)
    for _ in range(_ROUNDS):
        changed = None if ctx.hooks is None else await ctx.hooks.before(spec.name, given, action_of, ctx.call_id)
        if changed is not None and changed != given:
            given = validate_arguments(spec.name, spec.input_schema, changed)
            action = spec.action(given, ctx)
            notes.append(f"[A hook changed the arguments before this ran: {json.dumps(given, ensure_ascii=False)}]")
        elif notes:  # what a human wrote has passed the hooks too
            return given, action
        edited = await authorise(action)
        if edited is None:
            return given, action
        given, action = edited.args, edited.action
        notes.append(edited.note)
        if ctx.hooks is None:
            return given, action
    raise ToolError(f"{spec.name} was not run: the user and a hook kept changing each other's arguments")


async def _run(spec: ToolSpec, args: dict[str, object], ctx: ToolContext) -> Output:
    try:
        async with asyncio.timeout(spec.timeout_s) as limit:
            output = await spec.run(args, ctx)
    except TimeoutError as error:
        if not limit.expired():
            raise  # the tool's own, for instance of a network
        raise ToolError(f"{spec.name} did not finish within {spec.timeout_s:g} s and was stopped") from error
    return Output(text=output) if isinstance(output, str) else output


def _truncate(output: Output, tool: str, spool_dir: Path) -> Output:
    """Return ``output``, if it is long only its beginning, with all of it in a file."""
    whole = output.text if output.full is None else output.full
    shown = head(output.text)
    if output.output_path is not None or shown == whole:
        return output
    try:
        path = save(spool_dir, tool, whole)
    except OSError as error:
        # The tool has done its work; a full disk must not make the call look failed.
        text = f"{shown}\n[Only the beginning is shown; the rest could not be kept: {error.strerror}.]"
        return replace(output, text=text, full=None, truncated=True)
    text = shown + truncation_notice(shown, path)
    return replace(output, text=text, full=None, truncated=True, output_path=path)


def _refusal(tool: str, error: Exception) -> tuple[Output, Denier | Literal[""]]:
    match error:
        case ToolError() | NotInstalled():
            text = str(error)
        case OSError(filename=str() as name):
            text = f"{error.strerror}: {name}"
        case _:
            log.exception("tool %s failed", tool)
            text = f"{tool} failed: {type(error).__name__}: {error}"
    return Output(text=text, ok=False), error.by if isinstance(error, Denied) else ""

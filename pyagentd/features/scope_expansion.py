"""The ``request_scope_expansion`` tool: the model asks for more scope, a human decides.

The exact patterns are computed and checked before the human is asked, then shown, and added as a whole: for one
action of this run ("allow") or to ``preset.md`` ("always"). The kind of the tool decides which list they are added
to. Denied and protected paths cannot be added, and if no human can be asked the request is refused.
"""

import asyncio
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.errors import PyagentdError, ToolError, UserError
from pyagentd.policy import shell
from pyagentd.policy.action import (
    META_TOOLS,
    Action,
    ResolvedPath,
    Target,
    canonical_tool,
    exactly,
    normalise,
    validate_pattern,
)
from pyagentd.policy.guard import Deny, Right, Widening
from pyagentd.runtime.approvals import Authority
from pyagentd.runtime.feature import Feature
from pyagentd.store import metadata, paths, presetfile
from pyagentd.store.paths import BranchRef
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.invoke import Denied
from pyagentd.tools.spec import FOREVER_S, Args, Output, ToolContext, ToolSpec, object_schema

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

# A model's request to widen the scope, parsed: from a tool's name and patterns to a ``Widening``.
#
# Looks at the disk: links are followed, so that a pattern matches the files that would really be opened.

_WILD = re.compile(r"[*?\[]")


def widening_for(tools: Mapping[str, ToolSpec], tool: str, patterns: Sequence[str], root: Path) -> Widening:
    """Return what ``patterns`` for ``tool`` (pyagentd's name) would add to the scope; looks at the disk.

    Raises:
        ToolError: The tool is unknown or has no scope, or a pattern is malformed.
    """
    right = _right_of(tools, tool)
    try:
        match right:
            case "read" | "write":
                return Widening(right=right, patterns=_unique(_path_pattern(each, root) for each in patterns))
            case "command":
                programs = [program for each in patterns for program in _programs(each)]
                return Widening(right=right, patterns=_unique(programs), commands=_unique(patterns))
    except UserError as error:
        raise ToolError(str(error)) from error


def asked_lines(commands: Sequence[str]) -> Iterator[str]:
    """Yield lines that show the requested command lines in full, and the commands that each of them runs."""
    for number, text in enumerate(commands, 1):
        yield f"Command {number}, as asked for:"
        yield from (f"  {line}" for line in text.splitlines())
        reading = shell.read(text)
        if reading.unreadable is not None:
            yield f"  Nobody can tell beforehand what it does: {reading.unreadable}"
        elif len(reading.commands) > 1:
            yield "  It runs:"
            yield from (f"    {each.text}" for each in reading.commands)


def _right_of(tools: Mapping[str, ToolSpec], tool: str) -> Right:
    if tool in META_TOOLS:
        raise ToolError(f"{tool} has no scope that could be expanded")
    spec = tools.get(tool)
    match None if spec is None else spec.kind:
        case None | "meta" | "net" | "mcp" | "self":
            raise ToolError(f"There is no tool {tool!r} with a scope. Known: {', '.join(tools)}")
        case right:
            return right


def _path_pattern(text: str, root: Path) -> str:
    """Return ``text`` as an absolute pattern for the files that would really be opened, links followed."""
    if "\0" in text or "\n" in text:
        raise ToolError(f"{text!r} is not a pattern: it has a control character")
    pattern = normalise(text.strip())
    if not pattern.startswith(("/", "**/")):
        pattern = f"{exactly(str(root))}/{pattern.removeprefix('./')}"
    wild = _WILD.search(pattern)
    if wild is None:  # a path: for a directory, everything in it is meant
        path = os.path.realpath(os.path.normpath(pattern))
        return exactly(path) + ("/**" if os.path.isdir(path) else "")  # noqa: PTH112 - text, as everywhere here
    validate_pattern(pattern)
    if pattern.startswith("**/"):
        return pattern
    directory, slash, rest = pattern[: wild.start()].rpartition("/")
    tail = slash + rest + pattern[wild.start() :]
    if "\\" in directory:
        return pattern
    return exactly(os.path.realpath(directory or "/")).rstrip("/") + tail


def _programs(command: str) -> list[str]:
    """Return the ``shell_commands.allow`` entries for a command: its programs, or its first word if unreadable."""
    reading = shell.read(command)
    if reading.unreadable is not None or not reading.commands:
        return [_first_word(command)]
    return [each.words[0] for each in reading.commands]


def _first_word(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ToolError(f"{command!r} cannot be read as a command: {error}") from None
    word = words[0] if words else ""
    if not re.fullmatch(r"[\w.+/@-]+", word) or word.startswith("-"):
        raise ToolError(
            f"{command!r} does not begin with the name of a command. Name plain commands, such as `make`."
        )
    return word


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


NAME = "request_scope_expansion"

_BUILTIN = builtin_tools()

_DESCRIPTION = """\
Ask the user for more scope when a tool was denied because a path or command is outside it. Name the tool that was \
denied and everything you need for the task at once, as narrowly as you can. The user may allow it once (the next \
matching call), add it to the scope for good, or deny it. What `deny` lists or pyagentd protects cannot be added."""

_SCHEMA = object_schema(
    {
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
                "For commands: the commands"
            ),
        },
        "justification": {"type": "string", "minLength": 1, "description": "For the user: what you need it for"},
    }
)


class ScopeExpansion(Feature):
    """Offers the tool that requests more scope."""

    tool_names = (NAME,)

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return the tool, which can extend the preset of the run's branch."""
        spec = ToolSpec(
            name=NAME,
            description=_DESCRIPTION,
            input_schema=_SCHEMA,
            kind="meta",
            repeatable=True,
            run=partial(_request, self.kernel, run.branch.ref, run.authority),
            describe=lambda args, ctx: Target(
                detail=f"{canonical_tool(args['tool_name'])} {', '.join(args['patterns'])}"
            ),
            timeout_s=FOREVER_S,
        )
        return (spec,)


async def _request(kernel: "Kernel", ref: BranchRef, authority: Authority, args: Args, ctx: ToolContext) -> Output:
    tool = canonical_tool(args["tool_name"])
    widening = await asyncio.to_thread(widening_for, _BUILTIN, tool, args["patterns"], ctx.root)
    if not authority.interactive:
        authority.unasked("request_scope_expansion", f"tool:{tool}:{', '.join(widening.patterns)}")
        raise Denied(
            "The scope cannot be expanded: no human can be asked in this run. Do without it, and say in your answer "
            "what was missing.",
            "nobody",
        )
    for sample in _samples(tool, widening, ctx):
        decision = authority.would_be(sample, widening)
        if isinstance(decision, Deny) and decision.rule in ("protected", "deny", "read-only", "command"):
            raise ToolError(f"The scope cannot be expanded by this: {decision.reason}")  # no human is asked in vain
    preset = kernel.presets.of_branch(ref)
    if widening.preset(preset) == preset:
        return _told_model(
            success=True,
            patterns_added=[],
            message=f"Nothing was asked: the scope for {tool} has {', '.join(widening.patterns)} already.",
        )
    action = f"tool:{NAME}:{tool} {_audit_text(widening)}"
    answer = await authority.ask_for_scope(NAME, action, _fields(ref, tool, widening, args, ctx))
    match answer.decision:
        case "deny":
            why = {"reason": answer.reason} if answer.reason else {}
            reply = _told_model(
                success=False, user_denied=True, message="User denied scope expansion request.", **why
            )
            raise Denied(reply.text, "user")
        case "always":
            added = await asyncio.to_thread(_add, kernel, ref, widening)
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


def _fields(ref: BranchRef, tool: str, widening: Widening, args: Args, ctx: ToolContext) -> dict[str, Any]:
    """Return the fields of the ``ask`` row: exactly what "always" would write, and where."""
    file, listed = paths.preset_file(ref.branch_dir), widening.commands or widening.patterns
    lasting = f"{tool} {', '.join(widening.patterns)}{', with any arguments' if widening.commands else ''}"
    lines = [f"Adds to {file}:", f"{': '.join(widening.place)}:", *(f"  - {each}" for each in widening.patterns)]
    if widening.commands:
        lines += [*asked_lines(widening.commands), "Allowed once, a command is still asked about before it runs."]
    if widening.right == "write" and not all(_WILD.search(re.sub(r"\\.", "", each)) for each in widening.patterns):
        lines.append(
            "Allowed once, the next change of a file that is named in full here is not shown before it is made."
        )
    return {
        "tool_call_id": ctx.call_id,
        "detail": f"{tool}: {', '.join(listed)}",
        "reason": args["justification"],
        "preview": "\n".join(lines),
        "choices": ["allow", "always", "deny", "abort"],
        "allows": {"always": f"From now on this session may, as its preset.md will say: {lasting}."},
        "patterns": list(widening.patterns),
        "for_tool": tool,
        "input": json.dumps(dict(args), ensure_ascii=False),
    }


def _add(kernel: "Kernel", ref: BranchRef, widening: Widening) -> tuple[str, ...]:
    """Write the additions to ``preset.md``; return those that are new. Blocks."""
    file = paths.preset_file(ref.branch_dir)
    try:
        with kernel.origins.keep_trust(ref):
            added = presetfile.extend(file, *widening.place, widening.patterns)
        metadata.touch_scope_plan(ref.branch_dir, kernel.clock.now())
    except PyagentdError as error:
        raise ToolError(f"The user allowed it, but it could not be written: {error}") from error
    return added


def _samples(tool: str, widening: Widening, ctx: ToolContext) -> Iterator[Action]:
    """Yield a sample action for each addition: on the path itself, or on one that its pattern matches."""
    if widening.right == "command":
        for text in widening.commands:
            yield _BUILTIN[tool].action({"command": text}, ctx)
    if widening.right not in ("read", "write"):
        return
    for pattern in widening.patterns:
        path = re.sub(r"\\(.)", r"\1", re.sub(r"(?<!\\)(\*+|\?|\[[^\[\]]*\])", "x", pattern))
        path = path if path.startswith("/") else f"/{path}"
        sample = ResolvedPath(lexical=path, resolved=path)
        yield Action(tool=tool, detail=path, kind=widening.right, paths=(sample,))


def _audit_text(widening: Widening) -> str:
    """Return the additions for the audit: the list, the patterns, and the command lines."""
    added = f"{'.'.join(widening.place)}: {', '.join(widening.patterns)}"
    return f"{added} (for {', '.join(widening.commands)})" if widening.commands else added

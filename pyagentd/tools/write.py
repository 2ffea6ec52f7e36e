"""The tools that change files: Write and Edit.

A change is one atomic replacement of the file that was authorised; mode, owner, encoding and line endings stay.
A call that cannot work fails in its preview already, so nobody is asked to approve it. A file that the user has open
is changed there (``buffered``): what is planned is planned on the text that the user sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from pyagentd.errors import ToolError
from pyagentd.policy.action import ResolvedPath
from pyagentd.tools.beneath import read_bytes, replace_bytes
from pyagentd.tools.buffered import changed_in_buffer, shown_in_buffer
from pyagentd.tools.buffers import is_remote, only_open
from pyagentd.tools.diff import changed_lines, unified
from pyagentd.tools.passage import Span, line_number, loose_line, occurrences, replaced
from pyagentd.tools.read import read_existing
from pyagentd.tools.resolve import describe_file, file_of
from pyagentd.tools.spec import Args, Output, ToolContext, ToolSpec
from pyagentd.tools.text import TextFile, decode

# Two runs may edit the same file: read and replace must not interleave. Few locks serve all paths.
_LOCKS = tuple(Lock() for _ in range(64))

_COUNTED = 10  # occurrences that a message names

_PATH = {"type": "string", "minLength": 1, "description": "Absolute, or relative to the workspace root"}

_WRITE_SCHEMA = {
    "type": "object",
    "properties": {
        "file_path": _PATH,
        "content": {"type": "string", "description": "The whole new content"},
    },
    "required": ["file_path", "content"],
    "additionalProperties": False,
}

_EDIT_SCHEMA = {
    "type": "object",
    "properties": {
        "file_path": _PATH,
        "old_string": {
            "type": "string",
            "minLength": 1,
            "description": "The passage to replace, exactly as in the file, without the line numbers Read shows",
        },
        "new_string": {"type": "string", "description": "What to put there"},
        "replace_all": {"type": "boolean", "description": "Replace every occurrence (default false)"},
    },
    "required": ["file_path", "old_string", "new_string"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class _Change:
    before: TextFile | None  # None: the file is new
    after: str
    data: bytes
    summary: str

    @property
    def brief(self) -> str:
        """How many lines came and went, as ``Output.brief``."""
        added, removed = changed_lines(self.before.text if self.before else "", self.after)
        return f"+{added} −{removed}"


def _write_change(path: ResolvedPath, args: Args, ctx: ToolContext, shown: TextFile | None) -> _Change:
    content: str = args["content"]
    try:
        old = shown or decode(read_bytes(path.resolved), path.lexical)
    except FileNotFoundError:
        return _Change(None, content, TextFile("").with_text(content), f"Created {path.lexical} ({_count(content)})")
    if old.crlf and "\r" not in content:
        content = content.replace("\n", "\r\n")
    try:
        data = old.with_text(content)
    except ToolError:
        data = TextFile("").with_text(content)
    summary = f"Replaced the content of {path.lexical} ({_count(old.text)} before, {_count(content)} now)"
    return _Change(old, content, data, summary)


def _edit_change(path: ResolvedPath, args: Args, ctx: ToolContext, shown: TextFile | None) -> _Change:
    old = shown or decode(read_existing(path, ctx), path.lexical)
    wanted, new = (args[key].replace("\r\n", "\n") for key in ("old_string", "new_string"))
    if wanted == new:
        raise ToolError("old_string and new_string are the same: nothing to change")
    found = list(islice(occurrences(wanted, old.text), _COUNTED + 1))
    lines = _line_numbers(old.text, found)
    if not found:
        raise ToolError(f"old_string does not occur in {path.lexical}", mend=_near_miss(wanted, old.text))
    if len(found) > 1 and not args.get("replace_all"):
        times = f"{len(found)} times" if len(found) <= _COUNTED else f"more than {_COUNTED} times"
        raise ToolError(
            f"old_string occurs {times} in {path.lexical} (line {lines})",
            mend="Nothing was changed: give more of the text around it, or set replace_all",
        )
    after, count = replaced(wanted, new.replace("\n", "\r\n") if old.crlf else new, old.text)
    times = f"{count} occurrences" if count > 1 else "1 occurrence"
    return _Change(old, after, old.with_text(after), f"Replaced {times} in {path.lexical} (line {lines})")


def _line_numbers(text: str, found: list[Span]) -> str:
    shown = ", ".join(str(line_number(text, start)) for start, _ in found[:_COUNTED])
    return shown if len(found) <= _COUNTED else f"{shown}, …"


def _near_miss(wanted: str, text: str) -> str:
    line = loose_line(wanted, text)
    if line is None:
        return "Nothing was changed: read the file again, it may have changed"
    return f"Nothing was changed: at line {line} the same words stand with other white space"


def _count(text: str) -> str:
    lines = text.count("\n") + (not text.endswith("\n") and text != "")
    return f"{lines} line{'' if lines == 1 else 's'}"


_Planner = Callable[[ResolvedPath, Args, ToolContext, TextFile | None], _Change]
"""Plans a change of a text that is shown somewhere, or of the file as it is on disk."""


def _preview(plan: _Planner) -> Callable[[Args, ToolContext], str]:
    def preview(args: Args, ctx: ToolContext) -> str:
        path = file_of(args, ctx)
        shown = shown_in_buffer(path, ctx)
        if shown is None and is_remote(path.resolved):
            raise only_open(path.lexical)
        change = plan(path, args, ctx, shown)
        before = None if change.before is None else change.before.text
        return unified(before, change.after, path.lexical)

    return preview


def _run(plan: _Planner) -> Callable[[Args, ToolContext], Awaitable[Output]]:
    def change_file(args: Args, ctx: ToolContext) -> Output:
        path = file_of(args, ctx)
        with _LOCKS[hash(path.resolved) % len(_LOCKS)]:
            change = plan(path, args, ctx, None)
            replace_bytes(path.resolved, change.data)
        return Output(text=change.summary, brief=change.brief)

    async def run(args: Args, ctx: ToolContext) -> Output:
        path = file_of(args, ctx)
        brief = ""

        def planned(shown: TextFile) -> tuple[str, str]:
            nonlocal brief
            change = plan(path, args, ctx, shown)
            brief = change.brief
            return change.after, change.summary

        said = await changed_in_buffer(path, ctx, planned)
        if said is not None:
            return Output(text=said, brief=brief)
        if is_remote(path.resolved):
            raise only_open(path.lexical)
        return await asyncio.to_thread(change_file, args, ctx)

    return run


WRITE = ToolSpec(
    name="Write",
    description=(
        "Write a whole text file; it is created, with its directories, or its content is replaced. "
        "To change a part of a file use Edit."
    ),
    input_schema=_WRITE_SCHEMA,
    kind="write",
    run=_run(_write_change),
    describe=describe_file,
    preview=_preview(_write_change),
    confirm=True,
    timeout_s=30,
)

EDIT = ToolSpec(
    name="Edit",
    description=(
        "Replace a passage of a text file. `old_string` must occur exactly once, with the same white space "
        "(or set `replace_all`); otherwise nothing is changed. Line endings and encoding of the file are kept."
    ),
    input_schema=_EDIT_SCHEMA,
    kind="write",
    run=_run(_edit_change),
    describe=describe_file,
    preview=_preview(_edit_change),
    confirm=True,
    timeout_s=30,
)

"""The tools that change files: Write and Edit.

A change is one atomic replacement of the file that was authorised; mode, owner, encoding and line endings stay.
A call that cannot work fails in its preview already, so nobody is asked to approve it. A file that the user has open
is changed in that buffer, and the change is planned on the text that the user sees.
"""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from pyagentd.errors import ToolError
from pyagentd.policy.action import ResolvedPath
from pyagentd.tools.files import TextFile, decode, read_bytes, replace_bytes
from pyagentd.tools.read import read_existing
from pyagentd.tools.spec import (
    Args,
    Buffers,
    EditorView,
    Output,
    ToolContext,
    ToolSpec,
    changed_lines,
    describe_file,
    file_of,
    is_remote,
    not_open_error,
    object_schema,
    replacements,
)
from pyagentd.words import quantity

# Changes of a file that the user has open: planned on the text of the buffer, made there, saved by the editor.
#
# The plan is valid for one version of the text; if the user types meanwhile it is made again. A change is requested
# once: if the editor does not report its outcome, the file is checked, and if that is inconclusive the model is told.

_ATTEMPTS = 4  # while the user types

Planned = Callable[[TextFile], tuple[str, str]]
"""Returns the new text of a file, and the message for the model; raises ``ToolError``; blocks."""


def text_in_buffer(path: ResolvedPath, ctx: ToolContext) -> TextFile | None:
    """Return the text of a file in the editor that has it open, or None; blocks, so it must not run in the loop.

    Raises:
        ToolError: It cannot be changed where it is open.
    """
    if ctx.buffers is None:
        return None
    seen = ctx.buffers.look_now(path.resolved, whole=True)
    return _text(path, seen) if seen.is_open else None


async def change_in_buffer(path: ResolvedPath, ctx: ToolContext, plan_change: Planned) -> str | None:
    """Change a file in the editor that has it open, and return the message for the model; None if it is not open.

    Raises:
        ToolError: It cannot be changed there, or the outcome of the change is unknown.
    """
    if ctx.buffers is None:
        return None
    for _ in range(_ATTEMPTS):
        seen = await ctx.buffers.look(path.resolved, whole=True)
        if not seen.is_open:
            return None
        before = _text(path, seen)
        after, summary = await asyncio.to_thread(plan_change, before)
        if seen.crlf:
            after = after.replace("\r\n", "\n")
        if (outcome := await _try_change(path, ctx.buffers, seen, before.text, after)) is not None:
            return f"{summary} {outcome}"
    raise ToolError(
        f"{path.lexical} is being edited by the user just now, and was not changed", hint="Read it again, then retry"
    )


def _text(path: ResolvedPath, seen: EditorView) -> TextFile:
    if seen.trouble or seen.text is None:
        why = seen.trouble or "its text cannot be had"
        raise ToolError(
            f"{path.lexical} is open in the user's Emacs (buffer {seen.buffer}) and was not changed: {why}",
            hint="Ask the user to save or revert it",
        )
    return TextFile(seen.text)


async def _try_change(path: ResolvedPath, buffers: Buffers, seen: EditorView, before: str, after: str) -> str | None:
    """Make one attempt; return its outcome, None if the text has changed."""
    edits = await asyncio.to_thread(replacements, before, after)
    made = await buffers.change(path.resolved, seen, edits)
    match made.outcome:
        case "outdated":
            return None
        case "refused":
            raise ToolError(f"{path.lexical} was not changed in the user's Emacs: {made.reason}")
        case "unknown" if not await asyncio.to_thread(_is_on_disk, path, after):
            raise ToolError(
                f"Nobody can say whether {path.lexical} was changed: {made.reason}",
                hint="Read it before you go on, and do not repeat the change unseen",
            )
    also = ", together with changes of the user's that were not saved" if seen.modified else ""
    if not made.saved:
        return f"(In the buffer {seen.buffer} of the user's Emacs; not saved yet: {made.reason}.)"
    return f"(In the buffer {seen.buffer} of the user's Emacs, and saved{also}.)"


def _is_on_disk(path: ResolvedPath, text: str) -> bool:
    try:
        found = decode(read_bytes(path.resolved), path.lexical)
    except (OSError, ToolError):
        return False
    return found.text.replace("\r\n", "\n") == text.replace("\r\n", "\n")


# A unified diff for a human who approves a change: small, and cheap for any input.

_CONTEXT = 3
_COMPARED_LINES = 600
_SHOWN_LINES = 400
_LINE_CHARS = 500  # one giant line stalls a display


def unified_diff(before: str | None, after: str, path: str, *, rest: str = "") -> str:
    """Return the diff between two texts, "" when they are equal; ``before`` is None for a new file.

    A shortened diff ends with the number of lines left out and ``rest``, which says where all of it is.
    """
    old, new = _lines(before or ""), _lines(after)
    body = list(_hunks(old, new))
    if not body:
        return ""
    shown = [_short(line, rest) for line in islice(body, _SHOWN_LINES)]
    if len(body) > _SHOWN_LINES:
        shown.append(f"… {len(body) - _SHOWN_LINES} more lines{rest}")
    return "\n".join([f"--- {'/dev/null' if before is None else path}", f"+++ {path}", *shown])


def _short(line: str, rest: str) -> str:
    more = len(line) - _LINE_CHARS
    return line if more <= 0 else f"{line[:_LINE_CHARS]}… {quantity(more, 'more character')}{rest}"


def _lines(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    """Yield the lines of all hunks; changes with little between them are in one."""
    hunks: list[list[tuple[int, int, int, int]]] = []
    for change in changed_lines(old, new, _COMPARED_LINES):
        if hunks and change[0] - hunks[-1][-1][1] <= 2 * _CONTEXT:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    for changes in hunks:
        (at, _, there, _), (_, end, _, there_end) = changes[0], changes[-1]
        before, after = min(_CONTEXT, at), min(_CONTEXT, len(old) - end)
        yield f"@@ -{_range(at - before, end + after)} +{_range(there - before, there_end + after)} @@"
        at -= before
        for i1, i2, j1, j2 in changes:
            yield from (f" {line}" for line in old[at:i1])
            yield from (f"-{line}" for line in old[i1:i2])
            yield from (f"+{line}" for line in new[j1:j2])
            at = i2
        yield from (f" {line}" for line in old[at : end + after])


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + (1 if length else 0)},{length}" if length != 1 else f"{start + 1}"


# Finds a passage in a text whatever its line endings are, in time proportional to the text.
#
# No regular expressions: with the wrong passage and file they could block the whole daemon.

Span = tuple[int, int]  # start and end in the text, end exclusive

_LOOSE_CHARS = 1_000_000
_WORD = re.compile(r"\S+")


def occurrences(wanted: str, text: str, *, overlapping: bool = True) -> Iterator[Span]:
    """Yield the positions of ``wanted``, whose lines end with LF, in ``text`` with any line endings.

    Overlapping occurrences count by default: they make a passage ambiguous, too.
    """
    plain = text.replace("\r\n", "\n")
    # Where LF in ``plain`` is CR LF in ``text``; each such place before a position moves it by one.
    pairs = [match.start() - number for number, match in enumerate(re.finditer("\r\n", text))]
    position = plain.find(wanted)
    while position >= 0:
        end = position + len(wanted)
        yield position + bisect_left(pairs, position), end + bisect_left(pairs, end)
        position = plain.find(wanted, position + 1 if overlapping else end)


def replace_all(wanted: str, new: str, text: str) -> tuple[str, int]:
    """Return ``text`` with every occurrence of ``wanted`` replaced, and how many there were."""
    pieces, kept = [], 0
    for start, end in occurrences(wanted, text, overlapping=False):
        pieces += [text[kept:start], new]
        kept = end
    return "".join([*pieces, text[kept:]]), len(pieces) // 2


def line_number(text: str, position: int) -> int:
    """Return the line, counted from 1, of a position in ``text``."""
    return text.count("\n", 0, position) + 1


def loose_line(wanted: str, text: str) -> int | None:
    """Return the line where the words of ``wanted`` occur with other white space between them, or None."""
    words = " ".join(wanted.split())
    if not words or len(text) > _LOOSE_CHARS:
        return None
    loose = " ".join(text.split())
    found = loose.find(words)
    if found < 0:
        return None
    word = next(islice(_WORD.finditer(text), loose.count(" ", 0, found), None))
    return line_number(text, word.start())


# Two runs may edit the same file: read and replace must not interleave. Few locks serve all paths.
_LOCKS = tuple(Lock() for _ in range(64))

_COUNTED = 10  # occurrences that a message names

_PATH = {"type": "string", "minLength": 1, "description": "Absolute, or relative to the workspace root"}

_WRITE_SCHEMA = object_schema(
    {
        "file_path": _PATH,
        "content": {"type": "string", "description": "The whole new content"},
    }
)

_EDIT_SCHEMA = object_schema(
    {
        "file_path": _PATH,
        "old_string": {
            "type": "string",
            "minLength": 1,
            "description": "The passage to replace, exactly as in the file, without the line numbers Read shows",
        },
        "new_string": {"type": "string", "description": "What to put there"},
    },
    {
        "replace_all": {"type": "boolean", "description": "Replace every occurrence (default false)"},
    },
)


@dataclass(frozen=True, slots=True)
class _Change:
    before: TextFile | None  # None: the file is new
    after: str
    data: bytes
    summary: str

    @property
    def brief(self) -> str:
        """The numbers of added and removed lines, as ``Output.brief``."""
        old, new = _lines(self.before.text if self.before else ""), _lines(self.after)
        changed = changed_lines(old, new, _COMPARED_LINES)
        return f"+{sum(j2 - j1 for _, _, j1, j2 in changed)} −{sum(i2 - i1 for i1, i2, _, _ in changed)}"


def _write_change(path: ResolvedPath, args: Args, ctx: ToolContext, shown: TextFile | None) -> _Change:
    content: str = args["content"]
    try:
        old = shown or decode(read_bytes(path.resolved), path.lexical)
    except FileNotFoundError:
        return _Change(None, content, TextFile("").with_text(content), f"Created {path.lexical} ({_count(content)})")
    if old.mark:
        content = content.removeprefix("\ufeff")
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
    numbers = ", ".join(str(line_number(old.text, start)) for start, _ in found[:_COUNTED])
    lines = numbers if len(found) <= _COUNTED else f"{numbers}, …"
    if not found:
        line = loose_line(wanted, old.text)
        place = f"at line {line} the same words stand with other white space"
        hint = f"Nothing was changed: {'read the file again, it may have changed' if line is None else place}"
        raise ToolError(f"old_string does not occur in {path.lexical}", hint=hint)
    if len(found) > 1 and not args.get("replace_all"):
        times = f"{len(found)} times" if len(found) <= _COUNTED else f"more than {_COUNTED} times"
        raise ToolError(
            f"old_string occurs {times} in {path.lexical} (line {lines})",
            hint="Nothing was changed: give more of the text around it, or set replace_all",
        )
    after, count = replace_all(wanted, new.replace("\n", "\r\n") if old.crlf else new, old.text)
    times = f"{count} occurrences" if count > 1 else "1 occurrence"
    return _Change(old, after, old.with_text(after), f"Replaced {times} in {path.lexical} (line {lines})")


def _count(text: str) -> str:
    lines = text.count("\n") + (not text.endswith("\n") and text != "")
    return quantity(lines, "line")


_Planner = Callable[[ResolvedPath, Args, ToolContext, TextFile | None], _Change]
"""Plans a change of the text in an editor, or of the file on disk."""


def _preview(plan: _Planner) -> Callable[[Args, ToolContext], str]:
    def preview(args: Args, ctx: ToolContext) -> str:
        path = file_of(args, ctx)
        shown = text_in_buffer(path, ctx)
        if shown is None and is_remote(path.resolved):
            raise not_open_error(path.lexical)
        change = plan(path, args, ctx, shown)
        before = None if change.before is None else change.before.text
        return unified_diff(before, change.after, path.lexical, rest="; all is in the arguments")

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

        def plan_change(shown: TextFile) -> tuple[str, str]:
            nonlocal brief
            change = plan(path, args, ctx, shown)
            brief = change.brief
            return change.after, change.summary

        summary = await change_in_buffer(path, ctx, plan_change)
        if summary is not None:
            return Output(text=summary, brief=brief)
        if is_remote(path.resolved):
            raise not_open_error(path.lexical)
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

"""The Read tool: numbered lines of a text file, with the text of an Emacs buffer where one visits it."""

import asyncio
import codecs
import difflib
import io
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TextIO

from pyagentd.errors import ToolError
from pyagentd.policy.action import ResolvedPath
from pyagentd.tools.files import IsDirectory, detect_encoding, is_binary, open_directory, open_file, read_all
from pyagentd.tools.invoke import SHOWN_BYTES
from pyagentd.tools.spec import (
    Args,
    EditorView,
    Output,
    ToolContext,
    ToolSpec,
    describe_file,
    file_of,
    is_remote,
    not_open_error,
    object_schema,
    resolve,
)
from pyagentd.words import quantity

_LINE_CHARS = 10_000  # a longer line is cut; minified files would fill the answer with one line
_SNIFFED = 65_536
_NAMES_COMPARED = 5_000
_SMALL = 32_768  # bytes of a file that is not worth a thread, where the kernel has it in memory

_DESCRIPTION = """\
Read a text file. Returns its lines, each with its number and a tab in front (not part of the file).
A long file is cut after 200 KB: call again with `offset` to read on. Directories: use Glob.
Of a file that the user has open with unsaved changes the text in the editor is shown."""

_SCHEMA = object_schema(
    {"file_path": {"type": "string", "minLength": 1, "description": "Absolute, or relative to the workspace root"}},
    {
        "offset": {"type": "integer", "minimum": 1, "description": "First line to read, counted from 1"},
        "limit": {"type": "integer", "minimum": 1, "description": "How many lines at most"},
    },
)


async def _run(args: Args, ctx: ToolContext) -> Output:
    path, seen = file_of(args, ctx), EditorView()
    if ctx.buffers is not None:
        seen = await ctx.buffers.look(path.resolved, whole=is_remote(path.resolved))
    if seen.text is None and is_remote(path.resolved):
        raise not_open_error(path.lexical)
    offset, limit = args.get("offset", 1), args.get("limit")
    if seen.text is None and (lines := _read_small(path)) is not None:
        return _show_lines(path, lines, offset, limit, seen)
    stopped = Event()
    try:
        return await asyncio.to_thread(_read, path, offset, limit, ctx, seen, stopped)
    finally:
        stopped.set()  # a thread ends by itself only, and one file may take it hours


def _read_small(path: ResolvedPath) -> list[str] | None:
    """Return the lines of a small regular file if the kernel has it in memory, without blocking; else None."""
    try:
        file = open_file(path.resolved)
        try:
            data = bytearray(_SMALL)
            size = os.preadv(file, [data], 0, os.RWF_NOWAIT)
            if size == _SMALL or size != os.fstat(file).st_size:
                return None
        finally:
            os.close(file)
        text = data[:size].decode()
    except (OSError, ToolError, UnicodeDecodeError, AttributeError):  # the system has no RWF_NOWAIT
        return None
    if "\0" in text or text.startswith("\ufeff"):
        return None
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    return lines if max(map(len, lines), default=0) < _LINE_CHARS and "\r" not in text[-1:] else None


def _read(
    path: ResolvedPath, offset: int, limit: int | None, ctx: ToolContext, seen: EditorView, stopped: Event
) -> Output:
    with _open_text(path, ctx) if seen.text is None else io.StringIO(seen.text, newline="\n") as file:
        return _show_lines(path, _lines(file, stopped), offset, limit, seen)


def _show_lines(path: ResolvedPath, lines: Iterable[str], offset: int, limit: int | None, seen: EditorView) -> Output:
    shown: list[str] = []
    room, number, more = SHOWN_BYTES, 0, False
    for number, line in enumerate(lines, 1):
        if number < offset:
            continue
        entry = f"{number:6}\t{line}"
        room -= (len(entry) if entry.isascii() else len(entry.encode(errors="replace"))) + 1
        more = room < 0 or len(shown) == limit
        if more:
            break
        shown.append(entry)
    if not shown:
        size = f"has only {quantity(number, 'line')}" if number else "is empty"
        return Output(text=f"[{path.lexical} {size}.]")
    if more:
        shown.append(f"[There is more: read on with offset={offset + len(shown)}.]")
    return Output(text="\n".join([*_buffer_notes(seen), *shown]), truncated=room < 0)


def _buffer_notes(seen: EditorView) -> list[str]:
    """Return the note about a text that is not the file's, or may not be what the user sees."""
    if seen.text is not None and seen.modified:
        also = f" It cannot be changed there: {seen.trouble}." if seen.trouble else ""
        return [f"[Unsaved text of the buffer {seen.buffer} in the user's Emacs; the file on disk differs.{also}]"]
    if seen.modified:
        return [
            f"[The user has unsaved changes in the buffer {seen.buffer}: {seen.trouble}. This is the file on disk.]"
        ]
    if seen.silent:
        return ["[Emacs did not answer; this is the file on disk, without unsaved changes the user may have.]"]
    return []


def _lines(file: TextIO, stopped: Event) -> Iterator[str]:
    while not stopped.is_set() and (line := file.readline(_LINE_CHARS)):
        if len(line) == _LINE_CHARS and not line.endswith("\n"):
            more = 0
            while not stopped.is_set() and (piece := file.readline(_LINE_CHARS)):
                more += len(piece.rstrip("\r\n"))
                if piece.endswith("\n"):
                    break
            line += f"… [{more} more characters in this line]" if more else ""
        yield line.removesuffix("\n").removesuffix("\r")


def _open_text(path: ResolvedPath, ctx: ToolContext) -> io.TextIOWrapper:
    file = os.fdopen(open_existing(path, ctx), "rb")
    start = file.read(_SNIFFED)
    mark, encoding = detect_encoding(start)
    if not mark and is_binary(start):
        size = os.fstat(file.fileno()).st_size
        file.close()
        raise ToolError(f"{path.lexical} is a binary file of {size} bytes")
    file.seek(len(mark))
    try:
        codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError:
        encoding = "latin-1"
    return io.TextIOWrapper(file, encoding, "replace", newline="\n")


def open_existing(path: ResolvedPath, ctx: ToolContext) -> int:
    """Return a descriptor of the file; the error for a missing file or a directory has a hint."""
    try:
        return open_file(path.resolved)
    except FileNotFoundError as error:
        near = _near_names(path, ctx)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Find it with Glob"
        raise ToolError(f"{path.lexical} does not exist", hint=hint) from error
    except IsDirectory as error:
        raise ToolError(error.message, hint=f'List it with Glob(pattern="*", path="{path.lexical}")') from error


def read_existing(path: ResolvedPath, ctx: ToolContext) -> bytes:
    """Return the whole content of the file, with the same hints."""
    return read_all(open_existing(path, ctx), path.lexical)


def _near_names(path: ResolvedPath, ctx: ToolContext) -> list[str]:
    """Return readable files beside the missing one with a similar name, the nearest first."""
    directory, name = os.path.split(path.resolved)
    try:
        descriptor = open_directory(directory)
    except (OSError, ToolError):
        return []
    try:
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in islice(entries, _NAMES_COMPARED)]
    finally:
        os.close(descriptor)
    similar = difflib.get_close_matches(name, names, 3)
    found = (resolve(str(Path(path.lexical).parent / one), ctx.root) for one in similar)
    return [one.lexical for one in found if ctx.readable(one)]


READ = ToolSpec(
    name="Read",
    description=_DESCRIPTION,
    input_schema=_SCHEMA,
    kind="read",
    run=_run,
    describe=describe_file,
    parallel_safe=True,
    timeout_s=30,
)

"""Searches files in a process of its own: ``python -m pyagentd.tools.search_worker``.

A regular expression can take for ever and cannot be interrupted, but a process can be killed. The request is one JSON
object on stdin, each row of the answer one JSON array on a line of stdout. The worker knows nothing of scope: the
daemon drops rows the agent may not see, and stops reading when it has enough.

=======  =====================================================================
what     row
=======  =====================================================================
glob     [path, mtime in ns, is a link]
content  [path, line number, text, matches]; matches is false for context
count    [path, number of matching lines]
files    [path]
=======  =====================================================================

A file too large to search is ["", path]; a request that cannot be done is {"error": text}.
"""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pyagentd.errors import ToolError
from pyagentd.store.gitignore import Rules, ignores, rules_file, with_rules
from pyagentd.tools.files import LIST_FLAGS, READ_FLAGS, SNIFFED, is_binary, open_directory, open_file, read_bytes

# The files under a directory that a search of a project should see.
#
# Left out are ``.git``, files ignored by ``.gitignore`` files (also by those above, up to the repository), and hidden
# names unless asked for. Links to directories are not followed. Everything is opened relative to its directory's
# descriptor, so a link swapped in while walking leads nowhere.

_DEPTH = 100


class File(NamedTuple):
    """A file that was found; valid until the iterator advances."""

    path: str  # absolute
    directory: int  # descriptor of its directory
    name: str
    is_link: bool


def walk(base: str, *, hidden: bool) -> Iterator[File]:
    """Yield the files under the resolved directory ``base``: those of a directory by name, then its directories'."""
    return _walk(open_directory(base), _with_slash(base), _rules_above(base), hidden, 0)


def _walk(descriptor: int, path: str, rules: Rules | None, hidden: bool, depth: int) -> Iterator[File]:
    try:
        rules = with_rules(path, rules_file(".gitignore", descriptor), rules)
        directories = []
        with os.scandir(descriptor) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            name = entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if name == ".git" or (name.startswith(".") and not hidden) or ignores(rules, path + name, is_directory):
                continue
            if is_directory:
                directories.append(name)
            elif entry.is_symlink() or entry.is_file():
                yield File(path + name, descriptor, name, entry.is_symlink())
        for name in directories if depth < _DEPTH else ():
            with suppress(OSError):  # not readable, or gone
                below = os.open(name, LIST_FLAGS, dir_fd=descriptor)
                yield from _walk(below, f"{path}{name}/", rules, hidden, depth + 1)
    finally:
        os.close(descriptor)


def _rules_above(base: str) -> Rules | None:
    """Return the ignore rules of the directories above ``base``, up to its repository; none outside of one.

    Inside an ignored directory, which was named explicitly, the rules from above do not count.
    """
    above: list[str] = []
    directory = base
    while not os.path.lexists(os.path.join(directory, ".git")):  # noqa: PTH118 - strings all the way
        if directory == "/":
            return None
        directory = os.path.dirname(directory)  # noqa: PTH120
        above.append(directory)
    rules: Rules | None = None
    for directory in reversed(above):
        with suppress(OSError, ToolError):
            rules = with_rules(_with_slash(directory), read_bytes(_with_slash(directory) + ".gitignore"), rules)
    return None if ignores(rules, base, True) else rules


def _with_slash(directory: str) -> str:
    return directory if directory.endswith("/") else directory + "/"


What = Literal["glob", "content", "count", "files"]
Row = list[Any]

_MAX_BYTES = 50_000_000
_LINE_CHARS = 500
_BEFORE_CHARS = 100  # of a long line, shown before its match
_META = frozenset(r"\.^$*+?{}[]|()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A search request; sent as JSON."""

    what: What
    base: str  # resolved: a directory, or for grep also a file
    include: tuple[str, ...] = ()  # regular expressions on the path below ``base``; none means all
    hidden: bool = False
    pattern: str = ""
    ignore_case: bool = False
    context: int = 0
    seconds: int = 60  # the worker ends itself after this, should the daemon be gone


def search(request: Request) -> Iterator[Row]:
    """Yield the rows of the answer.

    Raises:
        ToolError: The pattern is not a regular expression.
    """
    included = [re.compile(one) for one in request.include]
    start = len(request.base.rstrip("/")) + 1
    needle = None if request.what == "glob" else _Needle(request)
    if needle and not os.path.isdir(request.base):  # noqa: PTH112 - strings all the way
        yield from needle.rows(request.base, open_file(request.base))
        return
    for file in walk(request.base, hidden=request.hidden):
        if included and not any(one.fullmatch(file.path[start:]) for one in included):
            continue
        with suppress(OSError):  # gone, or not readable
            if needle is None:
                yield [file.path, os.lstat(file.name, dir_fd=file.directory).st_mtime_ns, file.is_link]
            elif not file.is_link:
                yield from needle.rows(file.path, os.open(file.name, READ_FLAGS, dir_fd=file.directory))


class _Needle:
    """Finds the matching lines of one file after the other."""

    def __init__(self, request: Request) -> None:
        try:
            self._search = re.compile(request.pattern, re.IGNORECASE if request.ignore_case else 0).search
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(f"the pattern is not a regular expression: {error}") from error
        # Most patterns are plain words: files without them need not be split into lines.
        plain = not request.ignore_case and _META.isdisjoint(request.pattern)
        self._literal = request.pattern.encode(errors="replace") if plain else b""
        self._what = request.what
        self._context = request.context

    def rows(self, path: str, descriptor: int) -> Iterator[Row]:
        with os.fdopen(descriptor, "rb") as file:
            start = file.read(SNIFFED)
            if is_binary(start):
                return
            data = start + file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            yield ["", path]
            return
        if self._literal not in data:
            return
        lines = data.decode(errors="replace").split("\n")
        if not lines[-1]:
            lines.pop()
        found = {number: match for number, line in enumerate(lines) if (match := self._search(line.rstrip("\r")))}
        if not found:
            return
        match self._what:
            case "count":
                yield [path, len(found)]
            case "content":
                for number in _with_context(found, self._context, len(lines)):
                    yield [path, number + 1, _excerpt(lines[number].rstrip("\r"), found.get(number)), number in found]
            case _:
                yield [path]


def _with_context(found: dict[int, re.Match[str]], context: int, end: int) -> Iterator[int]:
    position = 0
    for number in found:
        yield from range(max(position, number - context), min(number + context + 1, end))
        position = max(position, number + context + 1)


def _excerpt(line: str, match: re.Match[str] | None) -> str:
    if len(line) <= _LINE_CHARS:
        return line
    start = max(0, match.start() - _BEFORE_CHARS) if match and match.end() > _LINE_CHARS else 0
    end = start + _LINE_CHARS
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def main() -> None:
    """Answer the request on stdin."""
    request = Request(**json.load(sys.stdin))
    signal.alarm(request.seconds)  # the default action ends the process, also inside a match
    try:
        for row in search(request):
            sys.stdout.write(json.dumps(row) + "\n")
            if request.what != "glob":
                sys.stdout.flush()  # a later file may take for ever; what was found should be seen
    except (ToolError, OSError) as error:
        message = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
        with suppress(OSError):
            print(json.dumps({"error": message}))


if __name__ == "__main__":
    main()

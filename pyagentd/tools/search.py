"""The Glob and Grep tools: start the search worker, and filter its results by scope.

A worker process, which can be killed, searches. Every file in its results is checked against the read scope here;
files outside are left out silently.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from wcmatch import glob

from pyagentd.errors import ToolError
from pyagentd.policy.action import ResolvedPath, Target
from pyagentd.tools.process import worker
from pyagentd.tools.search_worker import Request, Row, What
from pyagentd.tools.spec import Args, Output, ToolContext, ToolSpec, brief_count, object_schema, resolve

SECONDS = 20.0

PATH_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "description": "The directory to search, absolute or relative to the workspace root (default: the root)",
}

_CHUNK = 65_536
_MODULE = "pyagentd.tools.search_worker"
_GLOB_FLAGS = glob.GLOBSTAR | glob.DOTGLOB | glob.BRACE | glob.CASE | glob.FORCEUNIX


class Scope:
    """The visible files of the searched directory, and their names for the model."""

    def __init__(self, base: ResolvedPath, ctx: ToolContext) -> None:
        self.base = base.lexical.rstrip("/") or "/"
        self._lexical, self._resolved = base.lexical.rstrip("/"), base.resolved.rstrip("/")
        self._ctx = ctx

    def name(self, path: str, is_link: bool = False) -> str | None:
        """Return the model's name for a file that the worker found, or None if it is outside the scope."""
        name = self._lexical + path[len(self._resolved) :]
        found = resolve(name, self._ctx.root) if is_link else ResolvedPath(lexical=name, resolved=path)
        if (is_link and not os.path.isfile(found.resolved)) or not self._ctx.readable(found):  # noqa: PTH113
            return None
        # A name that is not UTF-8 cannot be given to a model as it is.
        return name.encode(errors="surrogateescape").decode(errors="replace")


def directory(path: ResolvedPath) -> ResolvedPath:
    """Return a directory with a slash at its end: the scope ``/dir/**`` includes searching ``/dir/``."""
    if not os.path.isdir(path.resolved):  # noqa: PTH112
        return path
    return ResolvedPath(lexical=path.lexical.rstrip("/") + "/", resolved=path.resolved.rstrip("/") + "/")


def is_directory(path: ResolvedPath) -> bool:
    """Return whether ``directory`` recognised ``path`` as a directory."""
    return path.resolved.endswith("/")


def without_slash(path: ResolvedPath) -> str:
    """Return the resolved path without the slash that ``directory`` put there."""
    return path.resolved.rstrip("/") or "/"


def regexes(pattern: str) -> tuple[str, ...]:
    """Return a file pattern as regular expressions, one for each alternative in braces; raises ``ToolError``."""
    try:
        return tuple(glob.translate(pattern, flags=_GLOB_FLAGS)[0])
    except Exception as error:  # of a class that wcmatch keeps to itself
        raise ToolError("The file pattern has more alternatives in braces than the 1,000 that are taken") from error


def names_hidden(pattern: str) -> bool:
    """Whether a file pattern asks for hidden names itself."""
    return any(segment.startswith(".") for segment in pattern.split("/"))


def output(lines: list[str], shown: int | None, nothing: str, notes: list[str], brief: str) -> Output:
    """Return the notes and the first ``shown`` of ``lines``, with all of them in a file; or ``nothing``."""
    if not lines and notes:  # nothing found by a search that did not end is not an answer
        return Output(text="\n".join([*notes, nothing]), ok=False)
    if not lines:
        return Output(text=nothing, brief=brief)
    if shown is None or len(lines) <= shown:
        return Output(text="\n".join([*notes, *lines]), brief=brief)
    head = [*notes, *lines[:shown]]
    return Output(text="".join(f"{line}\n" for line in head), full="\n".join([*notes, *lines]), brief=brief)


async def search(request: Request, take: Callable[[list[Row]], bool], seconds: float) -> bool:
    """Pass the rows of the answer to ``take``, in a thread, until it returns True.

    Returns:
        Whether the search ended, or had enough rows, in time.
    """
    try:
        async with asyncio.timeout(seconds), worker(_MODULE, json.dumps(asdict(request)).encode()) as group:
            assert group.process.stdout is not None
            rest = b""
            while chunk := await group.process.stdout.read(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                if await asyncio.to_thread(_pass_rows, take, lines):
                    return True
            if code := await group.process.wait():
                raise ToolError(f"the search ended with code {code}")
    except TimeoutError:
        return False
    return True


def _pass_rows(take: Callable[[list[Row]], bool], lines: list[bytes]) -> bool:
    rows = [json.loads(line) for line in lines]
    for row in rows:
        if isinstance(row, dict):
            raise ToolError(row["error"])
    return take(rows)


# The Glob tool: files whose names match a pattern, the newest first.

_GLOB_SHOWN = 1_000
_GLOB_KEPT = 50_000  # how many are kept in the file beside the shown ones
_MAGIC = re.compile(r"[*?\[{\\]")

_GLOB_DESCRIPTION = """\
Find files by name, the newest first: `**/*.py` at any depth, `src/*.{ts,tsx}` directly in `src`.
Files that `.gitignore` names are left out, hidden ones too unless the pattern has a dot (`**/.*`, `.github/**`)."""

_GLOB_SCHEMA = object_schema(
    {"pattern": {"type": "string", "minLength": 1, "description": "For instance `**/*.py`"}},
    {
        "path": PATH_SCHEMA,
    },
)


def _describe(path: ResolvedPath) -> Target:
    return Target(detail=path.lexical, paths=(directory(path),))


def _start_of_walk(args: Args, ctx: ToolContext) -> tuple[ResolvedPath, str]:
    """Return the directory to walk and the pattern below it: ``src/*.py`` walks ``src`` only."""
    segments = args["pattern"].split("/")
    fixed = next((index for index, segment in enumerate(segments) if _MAGIC.search(segment)), len(segments) - 1)
    start, pattern = segments[:fixed], "/".join(segments[fixed:])
    if ".." in segments[fixed:]:
        raise ToolError("a file pattern cannot have .. after its first wildcard")
    path = resolve(args.get("path", "."), ctx.root)
    if start:
        path = resolve("/".join(start) or "/", Path(path.lexical))
    return path, pattern


async def _glob(args: Args, ctx: ToolContext) -> Output:
    base, (_, pattern) = ctx.paths[0], _start_of_walk(args, ctx)
    if not is_directory(base):
        raise ToolError(f"{base.lexical} is not a directory")
    scope = Scope(base, ctx)
    found: list[tuple[int, str]] = []

    def take(rows: list[Row]) -> bool:
        for path, changed_ns, is_link in rows:
            if (name := scope.name(path, is_link)) is not None:
                found.append((-changed_ns, name))
        return len(found) >= _GLOB_KEPT

    request = Request(what="glob", base=without_slash(base), include=regexes(pattern), hidden=names_hidden(pattern))
    notes = []
    if not await search(request, take, SECONDS):
        notes.append(f"[Stopped after {SECONDS:g} s: there may be more files. Name a directory to search.]")
    if len(found) >= _GLOB_KEPT:
        notes.append(f"[These are {_GLOB_KEPT} of more files: narrow the pattern.]")
    nothing = f"[No file matches {args['pattern']} in {scope.base}]"
    brief = brief_count(len(found), "file", "files", more=len(found) >= _GLOB_KEPT)
    return output([name for _, name in sorted(found)], _GLOB_SHOWN, nothing, notes, brief)


GLOB = ToolSpec(
    name="Glob",
    description=_GLOB_DESCRIPTION,
    input_schema=_GLOB_SCHEMA,
    kind="read",
    run=_glob,
    describe=lambda args, ctx: _describe(_start_of_walk(args, ctx)[0]),
    parallel_safe=True,
    timeout_s=SECONDS + 10,
)


# The Grep tool: lines that match a regular expression.

_GREP_SHOWN = 200
_GREP_KEPT = 5_000  # how many matches are kept in the file beside the shown ones

_OUTPUT_MODES: dict[str, What] = {"content": "content", "files_with_matches": "files", "count": "count"}

_GREP_DESCRIPTION = """\
Search the lines of text files with a regular expression (syntax of Python's `re`, one line at a time).
Shows matching lines as `number:text` under the name of their file; lines of `context` as `number-text`.
Files that are hidden or named by `.gitignore` are left out unless `path` or `glob` names them."""

_GREP_SCHEMA = object_schema(
    {"pattern": {"type": "string", "minLength": 1, "description": "The regular expression"}},
    {
        "path": PATH_SCHEMA | {"description": "The directory or file to search (default: the workspace root)"},
        "glob": {"type": "string", "minLength": 1, "description": "Only these files: `*.py`, `src/**/*.{ts,tsx}`"},
        "output_mode": {
            "type": "string",
            "enum": list(_OUTPUT_MODES),
            "description": "Lines (default), only names of files, or the number of matching lines in each file",
        },
        "ignore_case": {"type": "boolean", "description": "Upper and lower case are the same (default false)"},
        "context": {
            "type": "integer",
            "minimum": 0,
            "maximum": 50,
            "description": "Lines shown before and after each match (default 0)",
        },
    },
)


@dataclass(slots=True)
class _Matches:
    """Formats the rows of the answer as lines of text."""

    scope: Scope
    context: int
    lines: list[str] = field(default_factory=list)
    shown: int | None = None  # how many of the lines, once there are more matches than are shown
    count: int = 0
    too_large: list[str] = field(default_factory=list)
    _file: tuple[str, str | None] = ("", None)  # the file of the last row: its path, and its name if it may be seen
    _number: int = 0  # the line of the last row in that file

    def take(self, rows: list[Row]) -> bool:
        """Add rows; return whether they are enough."""
        for row in rows:
            match row:
                case ["", large]:
                    self.too_large += filter(None, [self.scope.name(large)])
                case [path, number, text, matches]:
                    self._take_line(path, number, text, matches)
                case [path, *count]:
                    if name := self.scope.name(path):
                        self._count_match()
                        self.lines.append(":".join([name, *map(str, count)]))
        return self.count >= _GREP_KEPT

    def _take_line(self, path: str, number: int, text: str, matches: bool) -> None:
        if path != self._file[0]:
            self._file, self._number = (path, self.scope.name(path)), 0
        name = self._file[1]
        if name is None:
            return
        if matches:
            self._count_match()
        if self._number == 0:
            self.lines += [name] if not self.lines else ["", name]
        elif number > self._number + 1 and self.context:
            self.lines.append("--")
        self.lines.append(f"{number}{':' if matches else '-'}{text}")
        self._number = number

    def _count_match(self) -> None:
        self.count += 1
        if self.count == _GREP_SHOWN + 1:
            self.shown = len(self.lines)


def _grep_request(args: Args, base: ResolvedPath, seconds: float) -> Request:
    files: str = args.get("glob", "").removeprefix(f"{base.lexical.rstrip('/')}/").removeprefix("./")
    below = files.lstrip("/") if "/" in files else f"**/{files}"
    return Request(
        what=_OUTPUT_MODES[args.get("output_mode", "content")],
        base=without_slash(base),
        include=regexes(below) if files else (),
        hidden=names_hidden(files),
        pattern=args["pattern"],
        ignore_case=args.get("ignore_case", False),
        context=args.get("context", 0),
        seconds=round(seconds) + 10,
    )


def grep_tool(seconds: float = SECONDS) -> ToolSpec:
    """Return the tool; a search that takes longer than ``seconds`` is stopped."""

    async def run(args: Args, ctx: ToolContext) -> Output:
        base = ctx.paths[0]
        scope = Scope(base, ctx)
        found = _Matches(scope, args.get("context", 0))
        notes = []
        if not await search(_grep_request(args, base, seconds), found.take, seconds):
            notes.append(
                f"[Stopped after {seconds:g} s: there may be more. Search fewer files, or write the expression so "
                "that it does not try the same text in many ways.]"
            )
        if found.count >= _GREP_KEPT:
            notes.append(f"[These are {_GREP_KEPT} of more matches: narrow the search.]")
        notes += [f"[Not searched, too large: {name}]" for name in found.too_large]
        nothing = f"[Nothing matches {args['pattern']} in {scope.base}]"
        brief = brief_count(found.count, "match", "matches", more=found.count >= _GREP_KEPT)
        return output(found.lines, found.shown, nothing, notes, brief)

    return ToolSpec(
        name="Grep",
        description=_GREP_DESCRIPTION,
        input_schema=_GREP_SCHEMA,
        kind="read",
        run=run,
        describe=lambda args, ctx: _describe(resolve(args.get("path", "."), ctx.root)),
        parallel_safe=True,
        timeout_s=seconds + 10,
    )


GREP = grep_tool()

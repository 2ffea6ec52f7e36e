"""The Grep tool: lines that match a regular expression."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyagentd.policy.action import ResolvedPath
from pyagentd.tools.resolve import resolve
from pyagentd.tools.search import (
    PATH_SCHEMA,
    SECONDS,
    Scope,
    directory,
    names_hidden,
    output,
    regexes,
    search,
    undirected,
)
from pyagentd.tools.search_worker import Request, Row, What
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec
from pyagentd.tools.summary import counted

_SHOWN = 200
_KEPT = 5_000  # how many matches are kept in the file beside the shown ones

_WHAT: dict[str, What] = {"content": "content", "files_with_matches": "files", "count": "count"}

_DESCRIPTION = """\
Search the lines of text files with a regular expression (syntax of Python's `re`, one line at a time).
Shows matching lines as `number:text` under the name of their file; lines of `context` as `number-text`.
Files that are hidden or named by `.gitignore` are left out unless `path` or `glob` names them."""

_SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "minLength": 1, "description": "The regular expression"},
        "path": PATH_SCHEMA | {"description": "The directory or file to search (default: the workspace root)"},
        "glob": {"type": "string", "minLength": 1, "description": "Only these files: `*.py`, `src/**/*.{ts,tsx}`"},
        "output_mode": {
            "type": "string",
            "enum": list(_WHAT),
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
    "required": ["pattern"],
    "additionalProperties": False,
}


@dataclass(slots=True)
class _Matches:
    """The rows of the answer as lines of text."""

    scope: Scope
    context: int
    lines: list[str] = field(default_factory=list)
    shown: int | None = None  # how many of the lines, once there are more matches than are shown
    count: int = 0
    too_large: list[str] = field(default_factory=list)
    _file: tuple[str, str | None] = ("", None)  # the file of the last row: its path, and its name if it may be seen
    _number: int = 0  # the line of the last row in that file

    def take(self, rows: list[Row]) -> bool:
        """Take rows; return whether they are enough."""
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
        return self.count >= _KEPT

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
        if self.count == _SHOWN + 1:
            self.shown = len(self.lines)


def _describe(args: Args, ctx: ToolContext) -> Target:
    path = resolve(args.get("path", "."), ctx.root)
    return Target(detail=path.lexical, paths=(directory(path),))


def _request(args: Args, base: ResolvedPath, seconds: float) -> Request:
    files: str = args.get("glob", "")
    below = files.lstrip("/") if "/" in files else f"**/{files}"
    return Request(
        what=_WHAT[args.get("output_mode", "content")],
        base=undirected(base),
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
        if not await search(_request(args, base, seconds), found.take, seconds):
            notes.append(
                f"[Stopped after {seconds:g} s: there may be more. Search fewer files, or write the expression so "
                "that it does not try the same text in many ways.]"
            )
        if found.count >= _KEPT:
            notes.append(f"[These are {_KEPT} of more matches: narrow the search.]")
        notes += [f"[Not searched, too large: {name}]" for name in found.too_large]
        nothing = f"[Nothing matches {args['pattern']} in {scope.base}]"
        some = output(found.lines, found.shown, nothing, notes)
        count = counted(found.count, "match", "matches", more=found.count >= _KEPT)
        return replace(some, brief=count) if some.ok else some

    return ToolSpec(
        name="Grep",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        kind="read",
        run=run,
        describe=_describe,
        parallel_safe=True,
        timeout_s=seconds + 10,
    )


GREP = grep_tool()

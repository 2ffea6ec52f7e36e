"""The Glob tool: files whose names match a pattern, the newest first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from pyagentd.errors import ToolError
from pyagentd.policy.action import ResolvedPath
from pyagentd.tools.resolve import resolve
from pyagentd.tools.search import (
    PATH_SCHEMA,
    SECONDS,
    Scope,
    directory,
    is_directory,
    names_hidden,
    output,
    regexes,
    search,
    undirected,
)
from pyagentd.tools.search_worker import Request, Row
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec
from pyagentd.tools.summary import counted

_SHOWN = 1_000
_KEPT = 50_000  # how many are kept in the file beside the shown ones
_MAGIC = re.compile(r"[*?\[{\\]")

_DESCRIPTION = """\
Find files by name, the newest first: `**/*.py` at any depth, `src/*.{ts,tsx}` directly in `src`.
Files that `.gitignore` names are left out, hidden ones too unless the pattern has a dot (`**/.*`, `.github/**`)."""

_SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "minLength": 1, "description": "For instance `**/*.py`"},
        "path": PATH_SCHEMA,
    },
    "required": ["pattern"],
    "additionalProperties": False,
}


def _split(args: Args, ctx: ToolContext) -> tuple[ResolvedPath, str]:
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


def _describe(args: Args, ctx: ToolContext) -> Target:
    path, _ = _split(args, ctx)
    return Target(detail=path.lexical, paths=(directory(path),))


async def _run(args: Args, ctx: ToolContext) -> Output:
    base, (_, pattern) = ctx.paths[0], _split(args, ctx)
    if not is_directory(base):
        raise ToolError(f"{base.lexical} is not a directory")
    scope = Scope(base, ctx)
    found: list[tuple[int, str]] = []

    def take(rows: list[Row]) -> bool:
        for path, changed_ns, is_link in rows:
            if (name := scope.name(path, is_link)) is not None:
                found.append((-changed_ns, name))
        return len(found) >= _KEPT

    request = Request(what="glob", base=undirected(base), include=regexes(pattern), hidden=names_hidden(pattern))
    notes = []
    if not await search(request, take, SECONDS):
        notes.append(f"[Stopped after {SECONDS:g} s: there may be more files. Name a directory to search.]")
    if len(found) >= _KEPT:
        notes.append(f"[These are {_KEPT} of more files: narrow the pattern.]")
    nothing = f"[No file matches {args['pattern']} in {scope.base}]"
    some = output([name for _, name in sorted(found)], _SHOWN, nothing, notes)
    return replace(some, brief=counted(len(found), "file", "files", more=len(found) >= _KEPT)) if some.ok else some


GLOB = ToolSpec(
    name="Glob",
    description=_DESCRIPTION,
    input_schema=_SCHEMA,
    kind="read",
    run=_run,
    describe=_describe,
    parallel_safe=True,
    timeout_s=SECONDS + 10,
)

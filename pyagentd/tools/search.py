"""What Glob and Grep share: the worker process, and which of the files it finds may be seen.

Searching happens in a worker that can be killed. Every file it finds is checked against the read scope here, and what
is outside is left out without a word.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from wcmatch import glob

from pyagentd.errors import ToolError
from pyagentd.policy.action import ResolvedPath
from pyagentd.tools.environment import child_environment
from pyagentd.tools.process import Group
from pyagentd.tools.resolve import resolve
from pyagentd.tools.search_worker import Request, Row
from pyagentd.tools.spec import Output, ToolContext

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
    """What of the searched place may be seen, and under which name."""

    def __init__(self, base: ResolvedPath, ctx: ToolContext) -> None:
        self.base = base.lexical.rstrip("/") or "/"
        self._lexical, self._resolved = base.lexical.rstrip("/"), base.resolved.rstrip("/")
        self._ctx = ctx

    def name(self, path: str, is_link: bool = False) -> str | None:
        """Return the name of a file that the worker found, or None when it may not be seen."""
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
    """Whether ``directory`` found ``path`` to be one."""
    return path.resolved.endswith("/")


def undirected(path: ResolvedPath) -> str:
    """Return the resolved path without the slash that ``directory`` put there."""
    return path.resolved.rstrip("/") or "/"


def regexes(pattern: str) -> tuple[str, ...]:
    """Return a file pattern as regular expressions, one for each alternative in braces."""
    return tuple(glob.translate(pattern, flags=_GLOB_FLAGS)[0])


def names_hidden(pattern: str) -> bool:
    """Whether a file pattern asks for hidden names itself."""
    return any(segment.startswith(".") for segment in pattern.split("/"))


def output(lines: list[str], shown: int | None, nothing: str, notes: list[str]) -> Output:
    """Return the notes and the first ``shown`` of ``lines``, all of them kept beside, or ``nothing``."""
    if not lines:
        # Nothing found by a search that did not end is no answer.
        return Output(text="\n".join([*notes, nothing]), ok=not notes)
    if shown is None or len(lines) <= shown:
        return Output(text="\n".join([*notes, *lines]))
    head = [*notes, *lines[:shown]]
    return Output(text="".join(f"{line}\n" for line in head), full="\n".join([*notes, *lines]))


async def search(request: Request, take: Callable[[list[Row]], bool], seconds: float) -> bool:
    """Give the rows of the answer to ``take``, in a thread, until it returns True.

    Returns:
        Whether the search came to its end, or had enough, in time.
    """
    try:
        async with asyncio.timeout(seconds), _worker(request) as group:
            assert group.process.stdout is not None
            rest = b""
            while chunk := await group.process.stdout.read(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                if await asyncio.to_thread(_take, take, lines):
                    return True
            if code := await group.process.wait():
                raise ToolError(f"the search ended with code {code}")
    except TimeoutError:
        return False
    return True


def _take(take: Callable[[list[Row]], bool], lines: list[bytes]) -> bool:
    rows = [json.loads(line) for line in lines]
    for row in rows:
        if isinstance(row, dict):
            raise ToolError(row["error"])
    return take(rows)


@asynccontextmanager
async def _worker(request: Request) -> AsyncIterator[Group]:
    env = child_environment({})
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    pipe = asyncio.subprocess.PIPE
    group = await Group.start(sys.executable, "-P", "-m", _MODULE, cwd=Path("/"), env=env, stdin=pipe, stdout=pipe)
    try:
        assert group.process.stdin is not None
        group.process.stdin.write(json.dumps(asdict(request)).encode())
        group.process.stdin.close()
        yield group
    finally:
        group.kill()
        await group.process.wait()

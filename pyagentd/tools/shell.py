"""The Bash tool: one command in its own session, confined to the scope of its agent, ended with all it started.

The command gets no terminal and no input. What it prints goes through a pipe of ours, so the call ends with the
command even when something still holds the pipe.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyagentd.errors import ToolError
from pyagentd.policy import shell
from pyagentd.tools import spool
from pyagentd.tools.confine import caution, enclosure
from pyagentd.tools.confine.scope import ShellScope
from pyagentd.tools.confine.watch import Watch
from pyagentd.tools.environment import child_environment
from pyagentd.tools.process import Group
from pyagentd.tools.resolve import as_the_system_does
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec

log = logging.getLogger(__name__)

_DEFAULT_MS = 120_000
_MAX_MS = 600_000
_MAX_BYTES = 50_000_000  # a command that prints more is stopped: it would fill the disk
_CHUNK = 65_536
_REST_S = 0.1
_NOT_PREPARED = "[exit code 1]"  # among others: what bubblewrap ends with before it runs anything
_RECORDS = "records and settings of pyagentd, which no tool and no command may write"
_GIT = "what decides which programs git runs, for whoever uses it next"
_ATTEMPTS = 3  # to confine a command while others make and remove files in its scope
_SHOWN_BYTES = spool.SHOWN_BYTES - 1_000  # leaves room for how the command ended

_DESCRIPTION = """\
Run a command with bash in the workspace root and return its output (stdout and stderr together).
Each call is a new shell: `cd` and variables do not last. There is no terminal and no input. A command that ends with
a code other than 0 is reported as an error together with its output. What a command leaves in the background ends
with it: start a server and what uses it in one call. A command sees and changes only what you may: other files look
absent or read-only, and there may be no network. For files prefer Read, Edit, Glob and Grep."""

_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "description": "The command"},
        "description": {"type": "string", "description": "What it does, in a few words for the user"},
        "timeout_ms": {
            "type": "integer",
            "minimum": 1,
            "maximum": _MAX_MS,
            "description": "Stop the command after this many milliseconds (default 120000)",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}


class _Printed:
    """What a command printed: the beginning in memory, everything in a file once it is too long to show."""

    def __init__(self, spool_dir: Path) -> None:
        self._spool_dir = spool_dir
        self._file: int | None = None
        self._head = bytearray()
        self._size = 0
        self.path: Path | None = None

    def add(self, data: bytes) -> None:
        """Take the next piece; raises ``ToolError`` when it is too much, and ``OSError``."""
        self._size += len(data)
        if self._file is None:
            self._head += data
            if self._size > _SHOWN_BYTES:
                self._open()
        else:
            _write(self._file, data)
        if self._size > _MAX_BYTES:
            raise ToolError(f"it printed more than {_MAX_BYTES // 1_000_000} MB")

    def shown(self) -> str:
        """Return what the model sees of it."""
        whole = bytes(self._head).decode(errors="replace")
        shown = spool.head(whole, _SHOWN_BYTES)
        if shown != whole and self.path is None:
            self._open()  # bytes that are no UTF-8 need more room when shown
        return shown if self.path is None else shown + spool.notice(shown, self.path)

    def close(self) -> None:
        """Close the file; no more is added."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._file, self.path = spool.create(self._spool_dir, "Bash")
        _write(self._file, self._head)


def _write(descriptor: int, data: bytes | bytearray) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class _Pipe:
    """Brings what comes out of a pipe to ``printed`` as it comes."""

    def __init__(self, printed: _Printed) -> None:
        self._printed = printed
        self._loop = asyncio.get_running_loop()
        self._read, self.write = os.pipe()
        self._eof = asyncio.Event()
        self.refused: asyncio.Future[str] = self._loop.create_future()  # why no more is taken
        os.set_blocking(self._read, False)
        self._loop.add_reader(self._read, self._step)

    def close_write(self) -> None:
        """Close our copy of the writing end, once the command has its own."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    async def rest(self) -> None:
        """Take what a command that has ended still left in the pipe; others may hold it open for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_S):
                await self._eof.wait()

    def close(self) -> None:
        """Read no more."""
        self.close_write()
        self._loop.remove_reader(self._read)
        os.close(self._read)
        self._printed.close()

    def _step(self) -> None:
        try:
            data = os.read(self._read, _CHUNK)
            if data:
                self._printed.add(data)
                return
        except BlockingIOError:
            return
        except (OSError, ToolError) as error:
            self.refused.set_result(str(error))
        self._loop.remove_reader(self._read)
        self._eof.set()


async def _run(args: Args, ctx: ToolContext) -> Output:
    seconds = args.get("timeout_ms", _DEFAULT_MS) / 1000
    scope = ctx.scope()
    for _ in range(_ATTEMPTS):
        started = await asyncio.to_thread(_prepare, args["command"], scope, ctx)
        try:
            output = await _attempt(started, scope, ctx, seconds)
            if _NOT_PREPARED not in output.text or started.was_run():
                return output
        finally:
            started.close()
    # What was to be kept from it came and went under our hands.
    raise ToolError(f"The command was not run, because it could not be confined: {output.text}", mend="Try again")


def _prepare(command: str, scope: ShellScope, ctx: ToolContext) -> enclosure.Enclosure:
    env = child_environment(ctx.env)
    return enclosure.enclose(command, scope, root=ctx.root, spool_dir=ctx.spool_dir, env=env)


async def _attempt(started: enclosure.Enclosure, scope: ShellScope, ctx: ToolContext, seconds: float) -> Output:
    records = scope.records if caution.is_watched(started, scope) else ()
    watch = await asyncio.to_thread(Watch, records, started.git)
    printed = _Printed(ctx.spool_dir)
    pipe = _Pipe(printed)
    try:
        status = await _finish(started, ctx, pipe, seconds)
        text = printed.shown()
    finally:
        pipe.close()
        changed = await _changed(watch, ctx)
    if status:
        text = f"{text}\n[{status}]" if text and not text.endswith("\n") else f"{text}[{status}]"
    return Output(
        text="\n".join(filter(None, (text, changed))) or "[no output]",
        ok=not status and not changed,
        truncated=printed.path is not None,
        output_path=printed.path,
    )


async def _changed(watch: Watch, ctx: ToolContext) -> str:
    """Tell user and log what changed while the command ran and should not, and return what the model is told."""
    changed = await asyncio.shield(asyncio.to_thread(watch.changed))
    told = []
    if changed.records:
        told.append(_told(changed.records, _RECORDS, ctx))
    if changed.git:
        told.append(_told(changed.git, _GIT, ctx))
    return "\n".join(told)


def _told(paths: list[str], what: str, ctx: ToolContext) -> str:
    names = ", ".join(paths)
    log.warning("changed while a command of %s ran: %s", ctx.branch_dir.name, names)
    ctx.notify(f"While a command of {ctx.branch_dir.name} ran, {names} changed: {what}")
    return f"[While this command ran, {names} changed: {what}. The user has been told. Do not change it.]"


async def _finish(started: enclosure.Enclosure, ctx: ToolContext, pipe: _Pipe, seconds: float) -> str:
    """Run the command to its end, or stop it; return what went wrong, or ""."""
    try:
        group = await Group.start(
            *started.argv,
            cwd=ctx.root,
            env=started.env,
            stdout=pipe.write,
            stderr=pipe.write,
            leader=started.leader,
            files=started.files,
        )
    finally:
        started.opened()
    pipe.close_write()
    exited = asyncio.ensure_future(group.process.wait())
    try:
        ends: set[asyncio.Future[Any]] = {exited, pipe.refused}
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if exited.done():
            await pipe.rest()
            return _status(exited.result())
        reason = pipe.refused.result() if pipe.refused.done() else f"it did not end within {seconds:g} s"
        return f"the command was stopped: {reason}"
    finally:
        if not exited.done():
            await group.stop()


def _status(code: int) -> str:
    if code < 0:
        return f"ended by signal {-code}"
    return f"exit code {code}" if code else ""


def _describe(args: Args, ctx: ToolContext) -> Target:
    command: str = args["command"]
    if "\0" in command:
        raise ToolError("a command must not contain a NUL character")
    reading = shell.read(command)
    return Target(
        detail=command,
        command=command,
        shell=reading,
        paths=tuple(as_the_system_does(path, ctx.root) for path in reading.reads),
        writes=tuple(as_the_system_does(path, ctx.root) for path in reading.writes),
    )


BASH = ToolSpec(
    name="Bash",
    description=_DESCRIPTION,
    input_schema=_SCHEMA,
    kind="command",
    run=_run,
    describe=_describe,
    caution=lambda ctx: caution.unconfined(ctx.scope()),
    confirm=True,
    timeout_s=_MAX_MS / 1000 + 30,  # the command's own limit comes first
)

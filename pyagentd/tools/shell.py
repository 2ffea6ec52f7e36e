"""The Bash tool: one command in its own session, stopped as a whole group.

The command gets no terminal and no input. What it prints goes through a pipe of ours, so the call ends with the
command even when something it left in the background still holds the pipe.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyagentd.errors import ToolError
from pyagentd.tools import spool
from pyagentd.tools.environment import child_environment
from pyagentd.tools.process import Group
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec

_DEFAULT_MS = 120_000
_MAX_MS = 600_000
_MAX_BYTES = 50_000_000  # a command that prints more is stopped: it would fill the disk
_CHUNK = 65_536
_REST_S = 0.1
_SHOWN_BYTES = spool.SHOWN_BYTES - 1_000  # leaves room for how the command ended

_DESCRIPTION = """\
Run a command with bash in the workspace root and return its output (stdout and stderr together).
Each call is a new shell: `cd` and variables do not last. There is no terminal and no input. A command that ends with
a code other than 0 is reported as an error together with its output. To leave something running, redirect its output:
`server >/tmp/server.log 2>&1 &`. For files prefer Read, Edit, Glob and Grep."""

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
    printed = _Printed(ctx.spool_dir)
    pipe = _Pipe(printed)
    try:
        status = await _finish(args["command"], ctx, pipe, seconds)
        text = printed.shown()
    finally:
        pipe.close()
    if status:
        text = f"{text}\n[{status}]" if text and not text.endswith("\n") else f"{text}[{status}]"
    return Output(
        text=text or "[no output]", ok=not status, truncated=printed.path is not None, output_path=printed.path
    )


async def _finish(command: str, ctx: ToolContext, pipe: _Pipe, seconds: float) -> str:
    """Run ``command`` to its end, or stop it; return what went wrong, or ""."""
    env = child_environment(ctx.env)
    group = await Group.start("/bin/bash", "-c", command, cwd=ctx.root, env=env, stdout=pipe.write, stderr=pipe.write)
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
    return Target(detail=command, command=command)


BASH = ToolSpec(
    name="Bash",
    description=_DESCRIPTION,
    input_schema=_SCHEMA,
    kind="command",
    run=_run,
    describe=_describe,
    confirm=True,
    timeout_s=_MAX_MS / 1000 + 30,  # the command's own limit comes first
)

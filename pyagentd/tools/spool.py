"""Output too long for the model: its head is shown, the whole is kept in a file the model may read.

Sizes are bytes of UTF-8, 200 KB as the defaults of the agent guide have it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from pathlib import Path

from pyagentd.errors import ToolError

SHOWN_BYTES = 200_000

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(directory: Path, tool: str) -> tuple[int, Path]:
    """Create a file for output of ``tool``, readable by its owner only, and return its descriptor and path."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{tool}-{secrets.token_hex(6)}.txt"
    return os.open(path, _CREATE, 0o600), path


def save(directory: Path, tool: str, text: str) -> Path:
    """Keep the whole ``text`` and return where."""
    descriptor, path = create(directory, tool)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode(errors="replace"))
    return path


def head(text: str, limit: int = SHOWN_BYTES) -> str:
    """Return the whole lines of ``text`` that fit into ``limit`` bytes, or a part of the first line."""
    data = text.encode(errors="replace")
    return text if len(data) <= limit else head_of_bytes(data, limit)


def head_of_bytes(data: bytes, limit: int = SHOWN_BYTES) -> str:
    """Return the same for output that is bytes; what is not UTF-8 shows as U+FFFD."""
    if len(data) > limit:
        data = data[: data.rfind(b"\n", 0, limit) + 1] or _whole_characters(data[:limit])
    return data.decode(errors="replace")


def _whole_characters(data: bytes) -> bytes:
    start = len(data) - 1
    while start > len(data) - 4 and data[start] & 0xC0 == 0x80:
        start -= 1
    return data[:start] if data[start] >= 0xC0 else data


def notice(shown: str, path: Path) -> str:
    """Return the sentence that tells the model where the rest is and how to read it."""
    line = shown.count("\n") + 1
    gap = "" if shown.endswith("\n") else "\n"
    return (
        f"{gap}[Only the beginning is shown. The whole output is in {path}: "
        f'read on with Read(file_path="{path}", offset={line}) or search it with Grep.]'
    )


# What a command prints, as it comes: bounded, its beginning in memory, all of it in a file once that is long.

_MAX_BYTES = 50_000_000  # a command that prints more is stopped: it would fill the disk
_CHUNK = 65_536
_REST_S = 0.1
_SHOWN_BYTES = SHOWN_BYTES - 1_000  # leaves room for how the command ended


class Printed:
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
        shown = head(whole, _SHOWN_BYTES)
        if shown != whole and self.path is None:
            self._open()  # bytes that are no UTF-8 need more room when shown
        return shown if self.path is None else shown + notice(shown, self.path)

    def close(self) -> None:
        """Close the file; no more is added."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._file, self.path = create(self._spool_dir, "Bash")
        _write(self._file, self._head)


def _write(descriptor: int, data: bytes | bytearray) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class Pipe:
    """Brings what comes out of a pipe to ``printed`` as it comes."""

    def __init__(self, printed: Printed) -> None:
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

"""A disk that fails when it is told to: stands between the store and the operating system.

``FaultyDisk`` counts every call that the store makes and can have the n-th one fail with an error, write only a part
of what it was given, or be the last one of a process that dies there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from pyagentd.store import atomic

ERRORS = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO)
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

How = Literal["refuse", "short", "late", "die", "kill"]


KILLED = 77  # the exit code of a process that was killed


class Died(BaseException):
    """The process ended here; nothing that comes after it happens."""


class FaultyDisk(atomic.System):
    """Lets every call through but the ones it is told to spoil.

    Args:
        at: Which call to spoil, from 1; 0 none.
        error: With what.
        how: ``refuse`` fails without an effect, ``late`` fails after it, ``short`` writes a half and fails when the
            rest is written, ``die`` ends the process before the call.
        lasting: Whether all later calls fail, too.
        reads: Whether reading counts, too.

    Attributes:
        calls: What was called so far, as ``name path``.
        hit: Whether a call was spoilt.
    """

    def __init__(
        self, *, at: int = 0, error: int = errno.EIO, how: How = "refuse", lasting: bool = False, reads: bool = False
    ) -> None:
        self.calls: list[str] = []
        self.hit = False
        self._at, self._error, self._how, self._lasting, self._reads = at, error, how, lasting, reads
        self._rest_fails: int | None = None
        self._paths: dict[int, str] = {}
        for name in (
            "open",
            "pread",
            "write",
            "fsync",
            "fstat",
            "close",
            "ftruncate",
            "replace",
            "unlink",
            "mkdir",
            "symlink",
        ):
            setattr(self, name, self._spoilable(name, getattr(os, name)))

    def lift(self) -> None:
        """Let everything through from now on."""
        self._at, self._lasting, self._rest_fails = 0, False, None

    def _spoilable(self, name: str, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if not self._counts(name, args):
                return real(*args, **options)
            self.calls.append(f"{name} {self._path(name, args)}")
            number = len(self.calls)
            if self._rest_fails is not None and name == "write" and args[0] == self._rest_fails:
                self._rest_fails = None
                raise self._refusal()
            if not self._at or not (number == self._at or (number > self._at and (self._lasting or self._dead))):
                return self._noted(name, args, real(*args, **options))
            self.hit = True
            if self._how == "kill":
                os._exit(KILLED)
            if self._dead:
                raise Died
            return self._spoil(name, real, args, options)

        return call

    @property
    def _dead(self) -> bool:
        return self._how == "die"

    def _spoil(self, name: str, real: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self._how == "short" and name == "write" and len(args[1]) > 1:
            self._rest_fails = args[0]
            return real(args[0], bytes(args[1])[: len(args[1]) // 2])
        if (self._how == "late" and name != "mkdir") or name == "close":  # a close that fails has closed nevertheless
            done = self._noted(name, args, real(*args, **options))
            if name == "open":  # the file is made, but nobody has a descriptor of it
                os.close(done)
        raise self._refusal()

    def _refusal(self) -> OSError:
        return OSError(self._error, os.strerror(self._error))

    def _counts(self, name: str, args: tuple[Any, ...]) -> bool:
        if name == "pread" or (name == "open" and not args[1] & _CHANGING):
            return self._reads
        return True

    def _noted(self, name: str, args: tuple[Any, ...], result: Any) -> Any:
        if name == "open":
            self._paths[result] = os.fsdecode(args[0])
        return result

    def _path(self, name: str, args: tuple[Any, ...]) -> str:
        if name in ("pread", "write", "fsync", "fstat", "close", "ftruncate"):
            return self._paths.get(args[0], "?")
        return os.fsdecode(args[-1] if name in ("replace", "symlink") else args[0])


@contextmanager
def spoilt(**how: Any) -> Iterator[FaultyDisk]:
    """Have the store use a faulty disk for the time of the block; see ``FaultyDisk``."""
    real, disk = atomic.system, FaultyDisk(**how)
    atomic.system = disk
    try:
        yield disk
    finally:
        atomic.system = real

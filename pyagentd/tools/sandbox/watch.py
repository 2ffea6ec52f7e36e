"""Notices that a command changed the records of sessions, or what git runs, where nothing could keep it from that.

Configuration is compared whole. The log only grows, and others may write it meanwhile: what was there must still be.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pyagentd.errors import StoreError, ToolError
from pyagentd.store import atomic, paths
from pyagentd.tools.sandbox import plan
from pyagentd.tools.sandbox.enclosure import Enclosure, chosen, told
from pyagentd.tools.sandbox.scope import ShellScope

log = logging.getLogger(__name__)

_WHOLE = (paths.PRESET_FILE, paths.SCOPE_PLAN_FILE, paths.BRANCH_METADATA_FILE)
_CHUNK = 1 << 20


class _State(NamedTuple):
    digest: str | None  # None: there is no such file
    size: int  # how many bytes it is of


class Changes(NamedTuple):
    """What is not as it was, absolute paths."""

    records: list[str]
    git: list[str]


class Watch:
    """The records in ``directories`` and the files and directories ``decisive`` for git, as they are now."""

    def __init__(self, directories: Iterable[str], decisive: Iterable[str] = ()) -> None:
        decisive = set(decisive)
        self._records = {path: _state(path, None) for path in _records(directories)}
        self._redirections = {path for path in plan.redirections(decisive) if not os.path.lexists(path)}
        self._git = {path: _state_of_all(path) for path in decisive}

    def changed(self) -> Changes:
        """Return what changed since; what leads git elsewhere is removed."""
        added = [path for path in self._redirections if os.path.lexists(path)]
        for path in added:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108
        return Changes(
            [path for path, state in self._records.items() if _state(path, _until(path, state)) != state],
            sorted([*added, *(path for path, state in self._git.items() if _state_of_all(path) != state)]),
        )


def has_second_names(directories: Iterable[str]) -> bool:
    """Return whether a record can also be reached by a name elsewhere, where no rule may stand in the way."""
    return any(_links(path) > 1 for path in _records(directories))


def separate(directories: Iterable[str]) -> None:
    """Make every setting that has a second name a file of its own: who writes by the other name changes it no more.

    The log stays what it is, others have it open. What cannot be replaced is watched.
    """
    for path in (f"{directory}/{name}" for directory in directories for name in _WHOLE):
        if _links(path) > 1:
            with suppress(OSError, StoreError):
                found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
                atomic.write_bytes(Path(path), Path(path).read_bytes(), mode=stat.S_IMODE(found.st_mode))
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
                log.warning("%s had a second name (a hard link), which leads to a copy now", path)


def _records(directories: Iterable[str]) -> Iterator[str]:
    for directory in directories:
        for name in (*_WHOLE, paths.JOURNAL_FILE):
            yield f"{directory}/{name}"


def _until(path: str, state: _State) -> int | None:
    return state.size if path.endswith(f"/{paths.JOURNAL_FILE}") else None


def _state(path: str, size: int | None) -> _State:
    """Return the state of the first ``size`` bytes of ``path``, or of all."""
    digest, done = hashlib.sha256(), 0
    try:
        with Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK if size is None else min(_CHUNK, size - done)):
                digest.update(chunk)
                done += len(chunk)
    except OSError:
        return _State(None, 0)
    return _State(digest.hexdigest(), done)


def _state_of_all(path: str) -> tuple[_State, ...]:
    """Return the state of the file ``path``, or of the files right in it."""
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208
    except OSError:
        return (_state(path, None),)
    return tuple(_state(f"{path}/{name}", None)._replace(size=hash(name)) for name in names)


def _links(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_nlink  # noqa: PTH116
    except OSError:
        return 0


# What is said, and looked at, where a command is not kept inside its scope.


def unconfined(scope: ShellScope) -> str:
    """Return what a human should know before a command of ``scope`` runs; "" when it is confined."""
    try:
        mechanism = chosen(scope)
    except ToolError as error:  # it will not run
        return str(error)
    if mechanism is not None:
        return ""
    why = "by its preset" if not scope.confine else "by configuration" if scope.wanted == "off" else "on this machine"
    return f"{told(None)} (Confinement is off {why}.)" if why != "on this machine" else f"{told(None)}"


def is_watched(started: Enclosure, scope: ShellScope) -> bool:
    """Return whether the records could be changed by a command, so that they are compared afterwards."""
    return started.mechanism is None or has_second_names(scope.records)

"""Notices that a command changed the records of sessions, where nothing could keep it from that.

Configuration is compared whole. The log only grows, and others may write it meanwhile: what was there must still be.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pyagentd.store import paths

_WHOLE = (paths.PRESET_FILE, paths.SCOPE_PLAN_FILE, paths.BRANCH_METADATA_FILE)
_CHUNK = 1 << 20


class _State(NamedTuple):
    digest: str | None  # None: there is no such file
    size: int  # how many bytes it is of


class Watch:
    """The records in ``directories`` as they are now."""

    def __init__(self, directories: Iterable[str]) -> None:
        self._before = {path: _state(path, None) for path in _records(directories)}

    def changed(self) -> list[str]:
        """Return the files that are not as they were, absolute."""
        return [path for path, state in self._before.items() if _state(path, _until(path, state)) != state]


def has_second_names(directories: Iterable[str]) -> bool:
    """Return whether a record can also be reached by a name elsewhere, where no rule may stand in the way."""
    return any(_links(path) > 1 for path in _records(directories))


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


def _links(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_nlink  # noqa: PTH116
    except OSError:
        return 0

"""Finds below a directory what rules are about; bounded, and remembered for as long as directories do not change.

A directory is listed again only when its change time is another one. That time cannot be set by a program, as the
time of modification can, and it is not trusted while it is so recent that a change right after would not show.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator
from threading import Lock
from typing import NamedTuple

from pyagentd.errors import ToolError
from pyagentd.tools.confine.names import Effect, Rules

MOST_ENTRIES = 300_000
_RECENT_NS = 2_000_000_000
_REMEMBERED = 8  # sets of rules


class Found(NamedTuple):
    """An entry that a rule is about."""

    path: str
    effect: Effect
    is_directory: bool


class _Listing(NamedTuple):
    signature: tuple[int, int, int]
    size: int  # how many entries it has
    directories: tuple[str, ...]  # names of those to look into
    found: tuple[Found, ...]


_remembered: dict[tuple[tuple[str, Effect], ...], dict[str, _Listing]] = {}
_lock = Lock()  # commands are prepared in threads


class TooMany(ToolError):
    """There is more below a directory than can be looked at before each command."""


def find(
    tree: str, rules: Rules, without: Collection[str] = (), levels: int | None = None, most: int | None = None
) -> Iterator[Found]:
    """Yield what ``rules`` are about below ``tree``; what is found is not looked into.

    Args:
        tree: Absolute directory, resolved.
        rules: What to look for; sockets are found too, as to be hidden.
        without: Directories that are left out.
        levels: How deep to look: 1 is what is right in ``tree``; None is everything.
        most: How many entries to look at; None is ``MOST_ENTRIES``.

    Raises:
        TooMany: It has more entries than that.
    """
    most = MOST_ENTRIES if most is None else most
    known = _memory(rules)
    pending = [(tree, 1)]
    count = 0
    while pending:
        directory, level = pending.pop()
        listing = _listing(directory, rules, known)
        if listing is None:
            continue
        count += listing.size
        if count > most:
            raise TooMany(
                f"{tree} has more than {most:,} files, too many to look through for what a command must not "
                f"see. Ask the user to name smaller directories in `paths` of preset.md, or to say there "
                f"`shell_commands: {{confine: false}}`"
            )
        yield from listing.found
        slashed = directory if directory.endswith("/") else directory + "/"
        if levels is None or level < levels:
            below = (slashed + name for name in listing.directories)
            pending += ((path, level + 1) for path in below if path not in without)


def _memory(rules: Rules) -> dict[str, _Listing]:
    with _lock:
        known = _remembered.pop(rules.rules, None)
        while len(_remembered) >= _REMEMBERED:
            del _remembered[next(iter(_remembered))]
        if known is None or len(known) > MOST_ENTRIES:
            known = {}
        _remembered[rules.rules] = known
        return known


def _listing(directory: str, rules: Rules, known: dict[str, _Listing]) -> _Listing | None:
    """Return what is in ``directory``; None when we may not list it, so that a command of ours cannot either."""
    try:
        found = os.stat(directory, follow_symlinks=False)  # noqa: PTH116 - text all the way
        signature = (found.st_dev, found.st_ino, found.st_ctime_ns)
        remembered = known.get(directory)
        if remembered is not None and remembered.signature == signature:
            return remembered
        listing = _list(directory, rules, signature)
    except OSError:
        known.pop(directory, None)
        return None
    if abs(time.time_ns() - found.st_ctime_ns) > _RECENT_NS:
        known[directory] = listing
    else:
        known.pop(directory, None)
    return listing


def _list(directory: str, rules: Rules, signature: tuple[int, int, int]) -> _Listing:
    slashed = directory if directory.endswith("/") else directory + "/"
    directories: list[str] = []
    found: list[Found] = []
    size = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            size += 1
            name = entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if not is_directory and entry.is_symlink():  # leads to a name of its own, or out of what is seen
                continue
            effect = rules.effect(slashed, name, is_directory)
            if effect is not None:
                if effect != "leave":
                    found.append(Found(slashed + name, effect, is_directory))
            elif is_directory:
                directories.append(name)
            elif not entry.is_file(follow_symlinks=False) and _is_socket(slashed + name):
                found.append(Found(slashed + name, "hide", False))
    return _Listing(signature, size, tuple(directories), tuple(found))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False

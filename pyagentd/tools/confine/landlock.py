"""A plan as rules of Landlock, which only allow: what is closed inside a tree is allowed around, entry by entry.

What it cannot do, and bubblewrap can: in a directory that holds something closed no new file can be made right there,
names in it can be listed, ``.git/config`` and hooks stay writable with the rest, other processes are seen (not
touched), and what is outside is refused instead of absent.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from pyagentd.errors import ToolError
from pyagentd.tools.confine import places
from pyagentd.tools.confine.plan import Plan

Rights = Literal["list", "read", "write", "device"]

MOST_RULES = 20_000

_CREATE_RULESET = 444
_VERSION = 1
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")


@lru_cache(maxsize=1)
def abi() -> int:
    """Return the version of Landlock that the kernel offers, 0 where it offers none."""
    try:
        return max(0, int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION)))
    except (OSError, AttributeError):
        return 0


def rules(plan: Plan, temporary: str | None) -> list[tuple[str, Rights]]:
    """Return what a command of ``plan`` may do where; ``temporary`` is a directory of its own.

    Raises:
        ToolError: It takes too many rules to allow everything but what is closed.
    """
    found: list[tuple[str, Rights]] = [("/proc", "read"), *((f"/dev/{name}", "device") for name in _DEVICES)]
    found += [(path, "write") for path in (temporary,) if path is not None]
    found += [(path, "read") for path in (places.resolver(),) if path is not None and plan.network]
    for rule in _Descent(plan).rules():
        found.append(rule)
        if len(found) > MOST_RULES:
            raise ToolError(
                f"More than {MOST_RULES:,} files have to be allowed one by one around what the command must not see. "
                f"Ask the user to install bubblewrap, or to name smaller directories in `paths` of preset.md"
            )
    return found


class _Descent:
    """Walks down from each tree towards what is closed in it."""

    def __init__(self, plan: Plan) -> None:
        self._trees: dict[str, bool] = dict.fromkeys(places.system_trees(), False) | dict(plan.trees)
        if plan.temporary:
            self._trees = {path: write for path, write in self._trees.items() if path != "/tmp"}
        self._hidden = {path for path, _ in plan.hidden} | set(places.NEVER)
        self._readonly = set(plan.readonly) - plan.git
        closed = self._hidden | self._readonly | set(self._trees)
        self._on_the_way = {above for path in closed for above in _above(path)}

    def rules(self) -> Iterator[tuple[str, Rights]]:
        for path, writable in self._trees.items():
            yield from self._rules(path, writable)

    def _rules(self, path: str, writable: bool) -> Iterator[tuple[str, Rights]]:
        if path in self._hidden:
            return
        if path in self._readonly:
            writable = False
        if path not in self._on_the_way:
            yield path, "write" if writable else "read"
            return
        yield path, "list"
        try:
            with os.scandir(path) as entries:
                below = [entry.path for entry in entries if not entry.is_symlink()]
        except OSError:
            return
        for child in below:
            if child not in self._trees:  # that one is walked by itself
                yield from self._rules(child, writable)


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path

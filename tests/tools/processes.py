"""What tests need to know about processes they caused."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path


def running(pid: int) -> bool:
    """Whether the process is there and not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


_others: set[int] = set()  # children of whoever ran before this test in the same process


def begin() -> None:
    """Take note of the children that are not the test's."""
    _others.clear()
    _others.update(children())


def children() -> set[int]:
    """Return the running child processes that this test started."""
    found = set()
    # A glob fails when a process ends meanwhile.
    for name in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            state, parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(int(name))
    return found - _others


async def until(condition: Callable[[], object]) -> None:
    """Wait until ``condition`` holds; another process makes it so."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - there is no event for what another process does
            await asyncio.sleep(0.01)


async def pids_in(file: Path, count: int) -> list[int]:
    """Wait until ``count`` pids stand in the file, one a line, and return them."""

    def pids() -> list[int]:
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    await until(lambda: len(pids()) >= count)
    return pids()

"""Operations on the daemon itself."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path
from typing import Any

from pyagentd import __version__
from pyagentd.api.group import Client, Group
from pyagentd.features.tasks import Tasks
from pyagentd.tools.sandbox.enclosure import confinement


class Daemon(Group):
    """The process."""

    async def status(self, client: Client) -> dict[str, Any]:
        """Return what the daemon is doing: times in seconds, memory in bytes."""
        tasks = self._kernel.find(Tasks)
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime": round(time.monotonic() - self._process.started, 3),
            "clients": self._process.clients(),
            "runs": len(self._kernel.runs),
            "tasks": 0 if tasks is None else tasks.pending,
            "memory": _memory(),
            "sessions_dir": str(self._kernel.config.sessions_dir),
            "confinement": await asyncio.to_thread(confinement, self._kernel.config.confinement),
        }

    async def stop(self, client: Client) -> dict[str, Any]:
        """Stop the daemon; what waits for a human goes on with the next, other runs are aborted.

        ``asks`` is how many questions stay open.
        """
        await self._kernel.trees.awake()
        self._process.stop()
        return {"asks": len(self._kernel.asks.all())}


def _memory() -> int:
    """Return the resident memory of this process in bytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")

"""A child process and everything it starts, as one group that can be stopped for certain."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_GRACE_S = 2.0  # between asking a group to end and ending it
_POLL_S = 0.02

_DEVNULL = asyncio.subprocess.DEVNULL


class Group:
    """A process in a session of its own: no terminal, and its process group is its pid.

    What leaves the group on purpose (``setsid``) is not followed.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(
        cls,
        *argv: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = _DEVNULL,
        stdout: int = _DEVNULL,
        stderr: int = _DEVNULL,
    ) -> Group:
        """Start ``argv``; the streams are what ``subprocess`` takes."""
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=dict(env), stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        return cls(process)

    async def stop(self, grace_s: float = _GRACE_S) -> None:
        """Ask the whole group to end, wait ``grace_s`` at most, then kill what is left of it.

        A second cancellation while waiting skips the rest of the grace.
        """
        try:
            if self._signal(signal.SIGTERM):
                async with asyncio.timeout(grace_s):
                    while self._signal(0):  # noqa: ASYNC110 - nothing tells when a group is empty
                        await asyncio.sleep(_POLL_S)
        except TimeoutError:
            pass
        finally:
            self.kill()
        await self.process.wait()

    def kill(self) -> None:
        """Kill the group at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; 0 only looks. Return whether anything of it is there."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
            return True
        return False

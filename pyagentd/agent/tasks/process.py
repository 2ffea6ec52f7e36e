"""Whether a task still runs, and how it ended: by process id, start time and the file its runner leaves.

A process id alone says nothing after a while: the kernel gives it away again. Together with the time the process
began, and with the path that only this runner was started with, it is one process.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyagentd import regularfile
from pyagentd.store.db.tasks import Status

_STARTED = 19  # fields of /proc/<pid>/stat behind the name: its state is the first, when it began this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended."""

    exit_code: int | None  # None: nobody can tell
    reason: str = ""  # "killed", "timeout", or why it could not be run
    ended_at: float | None = None  # seconds since the epoch

    @property
    def status(self) -> Status:
        """What becomes of its task (SPEC 003 Task Tracking)."""
        if self.exit_code is None:
            return "lost"
        if self.reason == "killed":
            return "killed"
        return "completed" if self.exit_code == 0 and not self.reason else "failed"


def ending_file(output: Path) -> Path:
    """Return where the runner of the task that prints to ``output`` says how it ended."""
    return output.with_suffix(".exit")


def started_of(pid: int) -> int:
    """Return when a process began, in ticks since boot; 0 when it is gone, has ended, or the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[_STARTED])
    except (OSError, ValueError, IndexError):
        return 0


def is_runner(pid: int, pid_started: int, output: Path) -> bool:
    """Return whether ``pid`` is still the runner that was started then for this output."""
    if not Path("/proc/self/stat").exists():  # systems that tell less
        return not ending_file(output).exists() and _lives(pid)
    if not pid_started or started_of(pid) != pid_started:
        return False
    with suppress(OSError):
        return os.fsencode(ending_file(output)) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def ending_of(output: Path) -> Ending:
    """Return how the command of the task that prints to ``output`` ended, as far as its runner told."""
    try:
        told = json.loads(regularfile.read_text(ending_file(output)))
        return Ending(exit_code=int(told["exit_code"]), reason=str(told["reason"]), ended_at=float(told["ended_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Ending(exit_code=None)


def tell(pid: int, pid_started: int, output: Path, number: signal.Signals) -> bool:
    """Send a signal to a runner and to nobody else; return whether it was there."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        descriptor = -1
    try:
        if not is_runner(pid, pid_started, output):
            return False
        with suppress(ProcessLookupError):
            if descriptor >= 0:
                signal.pidfd_send_signal(descriptor, number)
            else:
                os.kill(pid, number)
            return True
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _lives(pid: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 0)
        return True
    return False

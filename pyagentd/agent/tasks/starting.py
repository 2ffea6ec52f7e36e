"""Starts the runner of a task: first the process, then, once it is recorded, the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyagentd.agent.tasks.process import ending_file, started_of
from pyagentd.tools import spool
from pyagentd.tools.sandbox.enclosure import Enclosure

LONGEST_S = 24 * 3600.0  # a task runs
MOST_BYTES = 10_000_000  # of what it prints are kept
GRACE_S = 3.0  # between asking a command to end and ending it

_RUNNER = str(Path(__file__).with_name("runner.py"))


@dataclass(slots=True, kw_only=True)
class Started:
    """A runner that waits for the word to begin; without one it ends."""

    process: subprocess.Popen[bytes]
    pid_started: int
    output: Path

    def begin(self) -> None:
        """Have it run the command."""
        assert self.process.stdin is not None
        with self.process.stdin as word:
            word.write(b"g")

    def cancel(self) -> None:
        """Have it end without running anything."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.output.unlink(missing_ok=True)


def start(enclosure: Enclosure, *, cwd: Path, directory: Path, timeout_s: float | None) -> Started:
    """Start the runner of a command; it takes over what ``enclosure`` has, which is closed here. Blocks.

    Args:
        enclosure: The command, and how it is confined.
        cwd: Where it runs.
        directory: For the file with what it prints.
        timeout_s: How long it may run; None is ``LONGEST_S``.

    Raises:
        OSError: It cannot be started.
    """
    descriptor, output = spool.create(directory, "task")
    os.close(descriptor)
    spec = -1
    try:
        told = {
            "argv": list(enclosure.argv),
            "leader": enclosure.leader,
            "files": list(enclosure.files),
            "output": str(output),
            "most": MOST_BYTES,
            "timeout_s": min(timeout_s or LONGEST_S, LONGEST_S),
            "grace_s": GRACE_S,
            "temporary": enclosure.temporary,
        }
        spec = _nameless(json.dumps(told).encode("utf-8", "surrogateescape"))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _RUNNER, str(spec), str(ending_file(output))],
            cwd=cwd,
            env=dict(enclosure.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(spec, *enclosure.files),
        )
    except BaseException:
        output.unlink(missing_ok=True)
        raise
    finally:
        if spec >= 0:
            os.close(spec)
        enclosure.opened()
    enclosure.temporary = None  # the runner removes it
    return Started(process=process, pid_started=started_of(process.pid), output=output)


def _nameless(content: bytes) -> int:
    """Return a descriptor of a file without a name that holds ``content``, at its beginning."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        descriptor = os.dup(file.fileno())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor

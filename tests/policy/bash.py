"""A real bash that runs a command line with harmless stand-ins for programs, and tells what it ran.

No program is on the path: bash hands every name that it does not find to a function, which records the words.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyagentd.policy.shell import names

BASH = "/bin/bash"

# Builtins that do nothing of the kind, except with certain options.
HARMLESS = names(
    """
    : [ bg break builtin caller cd command continue disown echo exit false fg help kill printf pwd return shift test
    times true type ulimit umask wait
    """
)

_RECORD = """() { printf '%s\\0' "$#" "$@" >> "$RECORD"; return "$STATUS"; }"""
_STAND_IN = """#!/bin/bash
printf '%s\\0' "$(($# + 1))" "${0##*/}" "$@" >> "$RECORD"
exit "$STATUS"
"""


@dataclass(frozen=True)
class Ran:
    """What happened: the words of every command, in no certain order, and the files that were made."""

    commands: list[tuple[str, ...]]
    made: set[str]  # relative to where it ran
    home: str


def run(text: str, *, status: int = 0, programs: Mapping[str, str | None] | None = None) -> Ran:
    """Run ``text`` in an empty directory; every program ends with ``status``.

    Args:
        text: The command line.
        status: What stand-ins exit with.
        programs: Names on the path: of a real program, or None for a stand-in.
    """
    with tempfile.TemporaryDirectory(prefix="shell-", ignore_cleanup_errors=True) as scratch:
        base = Path(scratch)
        record, where, home, path = base / "record", base / "a" / "b" / "here", base / "home", base / "bin"
        for directory in (where, home, path):
            directory.mkdir(parents=True)
        record.touch()
        for name, real in (programs or {}).items():
            if real is None:
                (path / name).write_text(_STAND_IN)
                (path / name).chmod(0o755)
            else:
                (path / name).symlink_to(real)
        env = {"PATH": str(path), "HOME": str(home), "RECORD": str(record), "STATUS": str(status)}
        if not programs:
            env["BASH_FUNC_command_not_found_handle%%"] = _RECORD
        # Waiting for the pipe waits for what runs in the background too.
        subprocess.run(
            [BASH, "-c", text],
            cwd=where,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        made = {str(file.relative_to(where)) for file in where.rglob("*")}
        return Ran(_records(record.read_bytes()), made, str(home))


def _records(data: bytes) -> list[tuple[str, ...]]:
    fields = iter(data.decode(errors="surrogateescape").split("\0")[:-1])
    return [tuple(next(fields) for _ in range(int(count))) for count in fields]

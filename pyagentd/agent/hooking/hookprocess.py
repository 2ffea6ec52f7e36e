"""One program that is asked about an event: JSON in, an exit code and perhaps JSON out.

It runs as the user, in the workspace, with an environment that has no key in it, in a process group of its own that
ends with it, with its time, and with the run that asked.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyagentd import installation, jsontext
from pyagentd.config.tables import HookSettings
from pyagentd.tools.process import Group, child_environment

BLOCKS = 2  # the exit code

_MOST_BYTES = 1_000_000  # of what it prints
_SHOWN = 2000  # characters of a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a hook said."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    blocks: str | None = None  # why not
    problem: str = ""  # it said nothing that could be used
    duration_ms: int = 0


async def ask_program(
    hook: HookSettings, facts: Mapping[str, Any], *, base: Path, root: Path, env: Mapping[str, str]
) -> Word:
    """Run ``hook`` and return its word; raises nothing but a cancellation.

    Args:
        hook: The program.
        facts: What it is told, as JSON.
        base: Where a relative name of a program begins.
        root: The workspace, in which it runs.
        env: The client's environment.
    """
    started = time.monotonic()
    try:
        word = await _asked(hook, facts, base, root, _environment(hook.event, root, env))
    except OSError as error:
        word = Word(problem=f"it could not be run: {error.strerror or error}")
    return Word(
        changes=word.changes,
        blocks=word.blocks,
        problem=word.problem,
        duration_ms=round((time.monotonic() - started) * 1000),
    )


async def _asked(
    hook: HookSettings, facts: Mapping[str, Any], base: Path, root: Path, env: Mapping[str, str]
) -> Word:
    program = _program(hook.command[0], base)
    if program is None:
        return Word(problem=f"there is no program {hook.command[0]}: give its whole path")
    pipe = asyncio.subprocess.PIPE
    group = await Group.start(program, *hook.command[1:], cwd=root, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(hook.timeout_s):
            out, err, _ = await asyncio.gather(
                _read(group.process.stdout), _read(group.process.stderr), _write(group.process.stdin, facts)
            )
            code = await group.process.wait()
    except TimeoutError:
        return Word(problem=f"it did not answer within {hook.timeout_s:g} s and was stopped")
    finally:
        await group.stop(grace_s=0.2)
    return understood(code, out, err)


def understood(code: int, out: bytes, err: bytes) -> Word:
    """Return what an exit code and what was printed mean."""
    said = err.decode(errors="replace").strip()[:_SHOWN]
    if code == BLOCKS:
        return Word(blocks=said or "no reason was given")
    if code != 0:
        return Word(problem=f"it ended with {code}: {said}" if said else f"it ended with {code}")
    text = out.decode(errors="replace").strip()
    if not text:
        return Word()
    try:
        changes = jsontext.parse(text)
    except ValueError:
        changes = None
    if not isinstance(changes, dict):
        return Word(problem=f"it printed no JSON object: {text[:80]!r}")
    return Word(changes=changes)


def _program(name: str, base: Path) -> str | None:
    """Return where a program is; one without a path only from where the machine has its own."""
    if "/" not in name and not name.startswith("~"):
        return installation.program(name)
    return str(base / Path(name).expanduser())


def _environment(event: str, root: Path, client: Mapping[str, str]) -> dict[str, str]:
    """Return the environment: no keys, and no directory on ``PATH`` in which an agent could put a program."""
    env = child_environment(client)
    inside = str(root.resolve())
    kept = [
        each
        for each in env.get("PATH", installation.PATH).split(":")
        if each.startswith("/") and not (each + "/").startswith(inside + "/")
    ]
    return {**env, "PATH": ":".join(kept) or installation.PATH, "PYAGENTD_HOOK": event}


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """Return what a stream has, as far as it is kept; the rest is read and dropped, so that nobody waits."""
    assert stream is not None
    kept = b""
    while data := await stream.read(65_536):
        kept += data[: _MOST_BYTES - len(kept)]
    return kept


async def _write(stream: asyncio.StreamWriter | None, facts: Mapping[str, Any]) -> None:
    assert stream is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it need not read
        stream.write(json.dumps(facts, ensure_ascii=True, default=str).encode())
        await stream.drain()
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.close()
        await stream.wait_closed()

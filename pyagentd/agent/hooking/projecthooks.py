"""The hooks of a project: ``.pyagentd/hooks.toml``, which counts once the user has agreed to exactly what would run.

What is agreed to is the file, the programs and scripts of the project that its commands name, all by content, and
where the project is. When any of that changes, nothing of it runs until the user agrees anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pyagentd import regularfile
from pyagentd.config.file import read_toml
from pyagentd.config.tables import HookSettings, read_hooks
from pyagentd.errors import ConfigError
from pyagentd.tools.sandbox.scope import ShellScope

FILE = ".pyagentd/hooks.toml"
DIRECTORY = ".pyagentd/hooks"  # for scripts: no tool writes there

_MOST_BYTES = 1_000_000  # of each file


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectHooks:
    """What a project would have run, as it was read."""

    root: Path
    file: Path
    hash: str  # of all of it
    text: str = ""  # of the file
    hooks: tuple[HookSettings, ...] = ()
    scripts: tuple[tuple[Path, str], ...] = ()  # the project's own programs, with their text
    error: str = ""  # why none of it can be used


def project_hooks(root: Path) -> ProjectHooks | None:
    """Return what the project ``root`` would have run; None when it has no hooks. Reads files."""
    file = root / FILE
    if not os.path.lexists(file):
        return None
    try:
        data = content(file)
        hooks = read_hooks(read_toml(data), lambda name: f"{file} ({name})")
        words = (word for hook in hooks for word in hook.command)
        scripts = [(path, content(path)) for path in scripts_of(root, words)]
    except (OSError, ValueError, ConfigError) as error:
        return ProjectHooks(root=root, file=file, hash="", error=str(error))
    hashed = hashlib.sha256(b"hooks\0" + os.fsencode(root.resolve()) + b"\0" + hashlib.sha256(data).digest())
    for path, code in scripts:
        hashed.update(os.fsencode(path) + b"\0" + hashlib.sha256(code).digest())
    shown = tuple((path, code.decode(errors="replace")) for path, code in scripts)
    text = data.decode(errors="replace")
    return ProjectHooks(root=root, file=file, hash=hashed.hexdigest(), text=text, hooks=hooks, scripts=shown)


def guarded(scope: Callable[[], ShellScope], root: Path) -> Callable[[], ShellScope]:
    """Return ``scope`` with the project's hooks where there are any: a command must not put a guard to sleep."""
    own = [path for name in (FILE, DIRECTORY) if os.path.lexists(path := str(root.resolve() / name))]
    return scope if not own else lambda: replace(known := scope(), protected=(*known.protected, *own))


def scripts_of(root: Path, words: Iterable[str]) -> Iterator[Path]:
    """Yield the files of a project that the words of commands name."""
    resolved, seen = root.resolve(), set[Path]()
    for word in words:
        path = (root / Path(word).expanduser()).resolve()
        if path not in seen and path.is_relative_to(resolved) and path.is_file():
            seen.add(path)
            yield path


def content(path: Path) -> bytes:
    """Return what a file of a project holds; raises ``OSError``, or ``ValueError`` when it is too large."""
    try:
        return regularfile.read_bytes(path, limit=_MOST_BYTES)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error

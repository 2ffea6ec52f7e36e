"""From a command and the rules for it to what is really started."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyagentd.errors import ToolError
from pyagentd.tools.confine import bubblewrap, git, landlock
from pyagentd.tools.confine.available import bubblewrap as bwrap
from pyagentd.tools.confine.available import confinement
from pyagentd.tools.confine.limits import limited
from pyagentd.tools.confine.plan import Plan, plan
from pyagentd.tools.confine.scope import Mechanism, ShellScope
from pyagentd.tools.confine.trees import Trees
from pyagentd.tools.process import Leader

_STATUS_BYTES = 10_000
_LAUNCHER = str(Path(__file__).with_name("launcher.py"))


@dataclass(slots=True, kw_only=True)
class Enclosure:
    """What to start; ``close`` it when the command has ended."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    leader: Leader
    mechanism: Mechanism | None
    files: tuple[int, ...] = ()  # descriptors that the program inherits
    temporary: str | None = None
    git: frozenset[str] = frozenset()  # what decides which programs git runs; no command changes it
    status: int | None = None  # a descriptor of what bubblewrap tells about itself

    def was_run(self) -> bool:
        """Return whether the command itself ended, and not what prepares its surroundings."""
        return self.status is None or b"exit-code" in os.pread(self.status, _STATUS_BYTES, 0)

    def opened(self) -> None:
        """Close our side of ``files`` once the program has its own."""
        given, self.files = self.files, ()
        for descriptor in given:
            if descriptor != self.status:
                os.close(descriptor)

    def close(self) -> None:
        """Remove what was made for this command alone."""
        self.opened()
        if self.status is not None:
            os.close(self.status)
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


def enclose(command: str, scope: ShellScope, *, root: Path, spool_dir: Path, env: Mapping[str, str]) -> Enclosure:
    """Return how ``command`` is started under ``scope``; looks at the disk, so call it in a thread.

    Raises:
        ToolError: The machine should confine it and cannot, or there is too much to keep from it.
    """
    if not root.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(root))
    mechanism = chosen(scope)
    if mechanism is None:
        return _unconfined(limited(command), env)
    view = plan(scope, root=root, spool_dir=spool_dir, env=env)
    if mechanism == "bubblewrap":
        return _with_bubblewrap(limited(command), view, env)
    return _with_landlock(limited(command), view, env)


def chosen(scope: ShellScope) -> Mechanism | None:
    """Return what a command of ``scope`` is confined with.

    Raises:
        ToolError: A mechanism is named in the configuration and does not work here.
    """
    if not scope.confine or scope.wanted == "off":
        return None
    found = confinement(scope.wanted)
    if found is None and scope.wanted != "auto":
        raise ToolError(
            f"The command was not run: the configuration wants it confined with {scope.wanted}, which does not work "
            f"on this machine. Ask the user to run `pyagentd doctor`"
        )
    return found


def _with_bubblewrap(argv: Sequence[str], view: Plan, env: Mapping[str, str]) -> Enclosure:
    program = bwrap()
    assert program is not None, "it answered before"
    settings = _file(git.configuration(env).encode())
    options = "\0".join([*program[1:], *bubblewrap.arguments(view, settings), ""])
    descriptor, status = _file(os.fsencode(options)), _file(b"")
    return Enclosure(
        argv=(program[0], "--args", str(descriptor), "--json-status-fd", str(status), "--", *argv),
        env=_adapted(env, view, "/tmp", bubblewrap.GIT_CONFIGURATION),
        leader="monitor",
        mechanism="bubblewrap",
        files=(descriptor, settings, status),
        status=status,
        git=view.git,
    )


def _with_landlock(argv: Sequence[str], view: Plan, env: Mapping[str, str]) -> Enclosure:
    temporary = tempfile.mkdtemp(prefix="pyagentd-")
    try:
        settings = Path(temporary, "gitconfig")
        settings.write_text(git.configuration(env), "utf-8")
        spec = {"abi": landlock.abi(), "rules": landlock.rules(view, temporary), "network": view.network}
        adapted = _adapted(env, view, temporary if view.temporary else "/tmp", str(settings))
        return replace(_launched(argv, spec, adapted, "landlock", temporary), git=view.git)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _unconfined(argv: Sequence[str], env: Mapping[str, str]) -> Enclosure:
    env = {**env, **git.ONLY_REAL_REPOSITORIES}
    if not sys.platform.startswith("linux"):
        return Enclosure(argv=tuple(argv), env=env, leader="command", mechanism=None)
    return _launched(argv, {"abi": 0, "rules": [], "network": True}, env, None, None)


def _launched(
    argv: Sequence[str],
    spec: Mapping[str, Any],
    env: Mapping[str, str],
    mechanism: Mechanism | None,
    temporary: str | None,
) -> Enclosure:
    descriptor = _file(
        json.dumps({**spec, "argv": list(argv), "parent": os.getpid()}).encode("utf-8", "surrogateescape")
    )
    return Enclosure(
        argv=(sys.executable, "-I", "-S", _LAUNCHER, str(descriptor)),
        env=env,
        leader="launcher",
        mechanism=mechanism,
        files=(descriptor,),
        temporary=temporary,
    )


def _file(content: bytes) -> int:
    """Return a descriptor of a nameless file with ``content``, at its beginning."""
    descriptor = os.memfd_create("pyagentd", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _adapted(env: Mapping[str, str], view: Plan, temporary: str, git_settings: str) -> dict[str, str]:
    """Return ``env`` with a directory for temporary files that the command can write, and settings git can read."""
    seen = Trees(dict(view.trees))
    named = env.get("TMPDIR", "")
    changes = {} if named and seen.writable(named) else {"TMPDIR": temporary}
    if seen.of(f"{view.home}/.gitconfig") is None:
        changes["GIT_CONFIG_GLOBAL"] = git_settings
    return {**env, **changes}

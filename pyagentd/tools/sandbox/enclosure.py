"""Confines a command: by bubblewrap, by Landlock, or, where neither works, by checking afterwards what it changed."""

import ctypes
import hashlib
import json
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from pyagentd import installation, regularfile
from pyagentd.config import Confinement
from pyagentd.errors import StoreError, ToolError
from pyagentd.store import atomic, paths
from pyagentd.tools.process import Leader
from pyagentd.tools.sandbox import plan
from pyagentd.tools.sandbox.plan import (
    KERNEL_SETTINGS,
    NEVER,
    Mechanism,
    Plan,
    ShellScope,
    inside,
    is_system,
    parts,
    resolver,
    system_links,
    system_trees,
    with_limits,
)

log = logging.getLogger(__name__)

# A plan as the arguments of ``bwrap``: namespaces of its own for processes, mounts, network and messages.
#
# What is hidden or read-only is a mount of its own, and so is every directory between it and its tree: a directory
# with a mount on it cannot be renamed or removed, so nothing can be put in the place of what is protected.

# Root keeps what installing into its own scope takes, and nothing that reaches the machine.
_ROOT_KEEPS = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SETGID", "CAP_SETUID", "CAP_KILL")

_TREE, _PIN, _READONLY, _HIDDEN = range(4)  # in this order where they meet

GIT_CONFIGURATION = "/run/gitconfig"
MOST_WORDS = 8_900  # bubblewrap takes 9,000, with those of the command


def arguments(plan: Plan, git_configuration: int | None = None) -> list[str]:
    """Return the options of ``bwrap`` for ``plan``; ``git_configuration`` is a descriptor of that file's content."""
    home, lacks_home = plan.home, plan.seen.of(plan.home) is None and not is_system(plan.home)
    hidden = [(path, is_directory) for path, is_directory in plan.hidden if os.path.lexists(path)]  # it may be gone
    capabilities = ["--cap-drop", "ALL", *(word for name in _ROOT_KEEPS for word in ("--cap-add", name))]
    return [
        *("--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if plan.network else ("--unshare-net",)),
        *(capabilities if os.geteuid() == 0 else ()),
        *_base_options(plan),
        *(("--ro-bind-data", str(git_configuration), GIT_CONFIGURATION) if git_configuration is not None else ()),
        # A home for programs that want to write there, where the scope has none; it is gone afterwards.
        *(("--tmpfs", home) if lacks_home and home.startswith("/") and home != "/" else ()),
        *(word for _, _, words in sorted(_mount_options(plan, hidden)) for word in words),
        *("--dir", plan.root),
        *(word for path, is_directory in hidden if is_directory for word in ("--remount-ro", path)),
        *(() if _sees_everything(plan) else ("--remount-ro", "/")),
        *("--chdir", plan.root, "--"),
    ]


def _sees_everything(plan: Plan) -> bool:
    return any(path == "/" for path, _ in plan.trees)


def _base_options(plan: Plan) -> Iterator[str]:
    """Yield what is there for every command."""
    for path, writable in plan.trees:
        if path == "/":
            yield from ("--bind" if writable else "--ro-bind", "/", "/")
    if not _sees_everything(plan):
        for path in system_trees():
            yield from ("--ro-bind", path, path)
        for path, target in system_links():
            yield from ("--symlink", target, path)
    else:
        yield from ("--ro-bind-try", "/sys", "/sys")
    yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run")
    # Settings of the whole machine that root may write without any capability.
    for path in KERNEL_SETTINGS:
        yield from ("--ro-bind-try", path, path)
    if plan.temporary:
        yield from ("--perms", "1777", "--tmpfs", "/tmp")
    if not plan.seen.writable("/var/tmp"):
        yield from ("--perms", "1777", "--tmpfs", "/var/tmp")
    if plan.network and (servers := resolver()) is not None:
        yield from ("--ro-bind", servers, servers)


def _mount_options(plan: Plan, hidden: Sequence[tuple[str, bool]]) -> Iterator[tuple[list[str], int, list[str]]]:
    """Yield everything inside the base with what sorts it: by path, parents first."""
    closed = {path for path, is_directory in hidden if is_directory}
    for path, writable in plan.trees:
        if path != "/" and not (writable and (path in closed or any(inside(path, kept) for kept in plan.readonly))):
            yield parts(path), _TREE, ["--bind-try" if writable else "--ro-bind-try", path, path]
    for path in plan.pinned:
        yield parts(path), _PIN, ["--bind-try", path, path]
    for path in plan.readonly:
        there = os.path.lexists(path)  # else nothing can be put where it would be
        yield (
            parts(path),
            _READONLY,
            ["--ro-bind-try", path, path] if there else ["--tmpfs", path, "--remount-ro", path],
        )
    # A device on a mount without devices: opening it is refused, which says more than an empty file.
    # A directory is made read-only when all is in place, since trees may be inside it.
    for path, is_directory in hidden:
        yield parts(path), _HIDDEN, ["--tmpfs", path] if is_directory else ["--ro-bind", "/dev/null", path]


# A plan as rules of Landlock, which only allow: what is closed inside a tree is allowed around, entry by entry.
#
# What it cannot do, and bubblewrap can: in a directory that holds something closed no new file can be made right
# there, names in it can be listed, ``.git/config`` and hooks stay writable with the rest, other processes are seen
# (not touched), no terminal or shared memory can be made, since those of all programs are in one directory, and what
# is outside is refused instead of absent. Modes, owners and times of files it does not guard at all.

Rights = Literal["list", "read", "write", "device"]

MOST_RULES = 20_000

_CREATE_RULESET = 444
_VERSION = 1
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


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
    found += [(path, "read") for path in (resolver(),) if path is not None and plan.network]
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
        self._trees: dict[str, bool] = dict.fromkeys(system_trees(), False) | dict(plan.trees)
        if plan.temporary:
            self._trees = {path: write for path, write in self._trees.items() if path != "/tmp"}
        self._hidden = {path for path, _ in plan.hidden} | set(NEVER)
        self._readonly = set(plan.readonly) - plan.git
        closed = self._hidden | self._readonly | set(self._trees)
        self._on_the_way = {str(above) for path in closed for above in PurePosixPath(path).parents}

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


# What this machine can confine commands with; tried for real, once.

_TRIAL_S = 10.0
_TRIAL = (
    *("--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--", "/bin/bash", "-c", ":"),
)
# Root in a container may make namespaces only as the owner of a new one for users.
_EXTRA: tuple[tuple[str, ...], ...] = ((), ("--unshare-user",))


def confinement(wanted: Confinement = "auto") -> Mechanism | None:
    """Return what commands are confined with; None: nothing, because nothing answers or the user wants it so."""
    if wanted in ("auto", "bubblewrap") and bubblewrap() is not None:
        return "bubblewrap"
    if wanted in ("auto", "landlock") and abi():
        return "landlock"
    return None


def is_tried() -> bool:
    """Return whether bubblewrap was tried already, so that asking what works here takes no time."""
    return _bubblewrap.cache_info().currsize > 0


def bubblewrap() -> tuple[str, ...] | None:
    """Return how ``bwrap`` is called here, with the options this machine needs; None when it does not work."""
    found = _bubblewrap()
    if found is not None and not os.access(found[0], os.X_OK):  # it was removed meanwhile, or is elsewhere now
        _bubblewrap.cache_clear()
        found = _bubblewrap()
    return found


@lru_cache(maxsize=1)
def _bubblewrap() -> tuple[str, ...] | None:
    program = installation.program("bwrap")
    return next(((program, *extra) for extra in _EXTRA if _does_work(program, extra)), None) if program else None


def _does_work(program: str, extra: tuple[str, ...]) -> bool:
    try:
        done = subprocess.run(
            [program, *extra, *_TRIAL], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def describe_mechanism(mechanism: Mechanism | None) -> str:
    """Return what a person should know about ``mechanism``, a sentence."""
    match mechanism:
        case "bubblewrap":
            return "Commands see only the scope of their agent (bubblewrap)."
        case "landlock":
            version = abi()
            network = "" if version >= 4 else " The kernel does not limit connections itself; a filter does."
            signals = "" if version >= 6 else " The kernel (before 6.12) lets them end other programs of yours."
            return (
                f"Commands may touch only the scope of their agent (Landlock {version}), a little less exactly than "
                f"with bubblewrap.{network}{signals}"
            )
        case None:
            return "Commands are not confined: their arguments are not limited to the scope of their agent."


# From a command and its scope to what is really started.

_STATUS_BYTES = 10_000
_LAUNCHER = str(Path(__file__).with_name("launcher.py"))


@dataclass(slots=True, kw_only=True)
class Enclosure:
    """What to start; ``close`` it when the command has ended."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    leader: Leader
    mechanism: Mechanism | None = None
    files: tuple[int, ...] = ()  # descriptors that the program inherits
    temporary: str | None = None  # a directory of the command's own
    git: frozenset[str] = frozenset()  # what decides which programs git runs; no command changes it
    status: int | None = None  # a descriptor of what bubblewrap tells about itself

    def was_run(self) -> bool:
        """Return whether the command itself ended, and not what prepares its surroundings."""
        return self.status is None or b"exit-code" in os.pread(self.status, _STATUS_BYTES, 0)

    def close_inherited(self) -> None:
        """Close our side of ``files`` once the program has its own."""
        given, self.files = self.files, ()
        for descriptor in given:
            if descriptor != self.status:
                os.close(descriptor)

    def close(self) -> None:
        """Remove what was made for this command alone."""
        self.close_inherited()
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
    mechanism = mechanism_for(scope)
    if mechanism is None:
        return _unconfined(with_limits(command), env)
    view = plan.plan(scope, root=root, spool_dir=spool_dir, env=env)
    if mechanism == "bubblewrap":
        return _with_bubblewrap(with_limits(command), view, env)
    return _with_landlock(with_limits(command), view, env)


def mechanism_for(scope: ShellScope) -> Mechanism | None:
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
    program = bubblewrap()
    assert program is not None, "it answered before"
    settings = _memory_file(plan.configuration(env).encode())
    options = [*program[1:], *arguments(view, settings)]
    if len(options) > MOST_WORDS:
        os.close(settings)
        raise ToolError(
            f"The patterns in `paths` of preset.md match {len(view.trees):,} files and directories, more than "
            f"bubblewrap can show one by one. Ask the user to name directories there (`/d/**` in place of `/d/*`)"
        )
    descriptor, status = _memory_file(os.fsencode("\0".join([*options, ""]))), _memory_file(b"")
    return Enclosure(
        argv=(program[0], "--args", str(descriptor), "--json-status-fd", str(status), "--", *argv),
        env=_adapt_environment(env, view, "/tmp", GIT_CONFIGURATION),
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
        settings.write_text(plan.configuration(env), "utf-8")
        spec = {"abi": abi(), "rules": rules(view, temporary), "network": view.network}
        adapted = _adapt_environment(env, view, temporary if view.temporary else "/tmp", str(settings))
        return replace(_with_launcher(argv, spec, adapted), mechanism="landlock", temporary=temporary, git=view.git)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _unconfined(argv: Sequence[str], env: Mapping[str, str]) -> Enclosure:
    env = {**env, **plan.ONLY_REAL_REPOSITORIES}
    if not sys.platform.startswith("linux"):
        return Enclosure(argv=tuple(argv), env=env, leader="command")
    return _with_launcher(argv, {"abi": 0, "rules": [], "network": True}, env)


def _with_launcher(argv: Sequence[str], spec: Mapping[str, Any], env: Mapping[str, str]) -> Enclosure:
    """Return what starts ``argv`` by the launcher, which confines it as ``spec`` says."""
    settings = {**spec, "argv": list(argv), "parent": os.getpid()}
    descriptor = _memory_file(json.dumps(settings).encode("utf-8", "surrogateescape"))
    return Enclosure(
        argv=(sys.executable, "-I", "-S", _LAUNCHER, str(descriptor)),
        env=env,
        leader="launcher",
        files=(descriptor,),
    )


def _memory_file(content: bytes) -> int:
    """Return a descriptor of a nameless file with ``content``, at its beginning."""
    descriptor = os.memfd_create("pyagentd", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _adapt_environment(env: Mapping[str, str], view: Plan, temporary: str, git_settings: str) -> dict[str, str]:
    """Return ``env`` with a directory for temporary files that the command can write, and settings git can read."""
    named = env.get("TMPDIR", "")
    changes = {} if named and view.seen.writable(named) else {"TMPDIR": temporary}
    if view.seen.of(f"{view.home}/.gitconfig") is None:
        changes["GIT_CONFIG_GLOBAL"] = git_settings
    return {**env, **changes}


# Notices that a command changed the records of sessions, or what git runs, where nothing could keep it from that.
#
# Configuration is compared whole. The log only grows, and others may write it meanwhile: what was there must still
# be.

_WHOLE = (paths.PRESET_FILE, paths.SCOPE_PLAN_FILE, paths.BRANCH_METADATA_FILE)
_CHUNK = 1 << 20


class _State(NamedTuple):
    digest: str | None  # None: there is no such regular file
    size: int  # how many bytes it is of


class Changes(NamedTuple):
    """What is not as it was, absolute paths."""

    records: list[str]
    git: list[str]


class Watch:
    """The records in ``directories`` and the files and directories ``decisive`` for git, as they are now."""

    def __init__(self, directories: Iterable[str], decisive: Iterable[str] = ()) -> None:
        decisive = set(decisive)
        self._records = {path: _state(path, None) for path in _record_files(directories)}
        others = {f"{os.path.dirname(path)}/{plan.COMMON}" for path in decisive}  # noqa: PTH120
        self._redirections = {path for path in others if not os.path.lexists(path)}
        self._git = {path: _state_of_all(path) for path in decisive}

    def find_changes(self) -> Changes:
        """Return what changed since; what leads git elsewhere is removed."""
        added = [path for path in self._redirections if os.path.lexists(path)]
        for path in added:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108
        whole = {path: None if Path(path).name in _WHOLE else state.size for path, state in self._records.items()}
        return Changes(
            [path for path, state in self._records.items() if _state(path, whole[path]) != state],
            sorted([*added, *(path for path, state in self._git.items() if _state_of_all(path) != state)]),
        )


def separate(directories: Iterable[str]) -> None:
    """Replace every setting that has a second name (a hard link) by a copy, which the other name does not reach.

    The log is left as it is, since others have it open. What cannot be replaced is watched.
    """
    for path in (f"{directory}/{name}" for directory in directories for name in _WHOLE):
        if _link_count(path) > 1:
            with suppress(OSError, StoreError):
                found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
                atomic.write_bytes(Path(path), regularfile.read_bytes(path), mode=stat.S_IMODE(found.st_mode))
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
                log.warning("%s had a second name (a hard link), which is a separate copy now", path)


def _record_files(directories: Iterable[str]) -> Iterator[str]:
    for directory in directories:
        for name in (*_WHOLE, paths.JOURNAL_FILE):
            yield f"{directory}/{name}"


def _state(path: str, size: int | None) -> _State:
    """Return the state of the first ``size`` bytes of ``path``, or of all."""
    digest, done = hashlib.sha256(), 0
    try:
        with os.fdopen(regularfile.open_file(path, limit=regularfile.LOG, links=True), "rb") as file:
            while chunk := file.read(_CHUNK if size is None else min(_CHUNK, size - done)):
                digest.update(chunk)
                done += len(chunk)
    except OSError:
        return _State(None, 0)
    return _State(digest.hexdigest(), done)


def _state_of_all(path: str) -> tuple[_State, ...]:
    """Return the state of the file ``path``, or of the files right in it."""
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208
    except OSError:
        return (_state(path, None),)
    return tuple(_state(f"{path}/{name}", None)._replace(size=hash(name)) for name in names)


def _link_count(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_nlink  # noqa: PTH116
    except OSError:
        return 0


# What a human is told, and what is watched, where a command is not confined.


def confinement_warning(scope: ShellScope) -> str:
    """Return what a human should know before a command of ``scope`` runs; "" when it is confined."""
    try:
        mechanism = mechanism_for(scope)
    except ToolError as error:  # it will not run
        return str(error)
    if mechanism is not None:
        return ""
    if not scope.confine:
        return f"{describe_mechanism(None)} (Confinement is off by its preset.)"
    if scope.wanted == "off":
        return f"{describe_mechanism(None)} (Confinement is off by configuration.)"
    return describe_mechanism(None)


def is_watched(started: Enclosure, scope: ShellScope) -> bool:
    """Return whether the records could be changed by a command, so that they are compared afterwards."""
    # A record with a hard link elsewhere may be where no rule keeps a command from it.
    return started.mechanism is None or any(_link_count(path) > 1 for path in _record_files(scope.records))

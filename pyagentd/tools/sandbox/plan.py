"""Plans a confinement: which directory trees a command sees, and what in them is hidden or read-only.

A plan knows nothing of the mechanism. It errs to the strict side: what is protected or denied wins over any scope,
wherever it is, and a pattern that cannot be turned into something that exists gives nothing.

Rules:
    The system's directories and those of the programs on ``PATH`` are readable. ``/d/**`` of a scope is the directory
    ``/d``; other patterns are the entries that exist. A directory the pattern reaches through a link is none: what
    counts is the file that would be opened. What is writable is readable too; no mechanism here can tell them apart.
"""

import os
import re
import stat
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple

from wcmatch import fnmatch

from pyagentd import installation, regularfile
from pyagentd.config import Confinement
from pyagentd.errors import ToolError
from pyagentd.policy.action import matches, normalise
from pyagentd.policy.guard import CREDENTIALS
from pyagentd.policy.shell import ANY

# The scope of a command as values: paths, network, limits.

Mechanism = Literal["bubblewrap", "landlock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScope:
    """The rules for one command, read anew for each. Patterns are those of ``policy.action``."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()  # the agent's own and those of every session above it
    protected: tuple[str, ...] = ()  # absolute paths that are read at most: sessions root, configuration
    hidden: tuple[str, ...] = ()  # absolute paths of directories nobody may see: that of the daemon's socket
    closed: tuple[str, ...] = ()  # absolute paths of directories seen only where the scope names what is inside them
    own: tuple[str, ...] = ()  # absolute paths inside ``closed`` that are seen where the scope is around them
    records: tuple[str, ...] = ()  # directories whose metadata is watched: the agent's and those above it
    commands: tuple[str, ...] = ()  # ``shell_commands.allow``
    network: bool = False
    confine: bool = True  # the preset's word
    wanted: Confinement = "auto"  # the machine's


UNCONFINED = ShellScope(confine=False)


# Which entries of a directory the rules are about, told by their names alone.
#
# A pattern ``P/**`` is about everything below ``P``, so it comes to the directory ``P`` itself.

# What becomes of an entry.
Effect = Literal[
    "hide",  # it is not seen
    "fixed",  # it is not seen because of its place, so the directories above it cannot be moved
    "git",  # it is a git directory: what decides which programs git runs is read-only
    "leave",  # it is seen and not looked into
    "found",  # it is what is sought
]

_WILD = re.compile(r"[*?\[\\]")
_BELOW = "/**"


def base_of(pattern: str) -> tuple[str, bool]:
    """Return the pattern of the entry that ``pattern`` comes to, and whether it means what is below that."""
    pattern = normalise(pattern)
    below = pattern.endswith(_BELOW)
    while pattern.endswith(_BELOW):
        pattern = pattern[: -len(_BELOW)]
    return pattern, below


def is_at_any_depth(pattern: str) -> bool:
    """Return whether ``pattern`` is about a name at any depth, so that it holds wherever the entry is moved."""
    base, _ = base_of(pattern)
    return base.startswith("**/") and base.count("/") == 1


def literal(pattern: str) -> str | None:
    """Return the path that is all ``pattern`` matches; None when it has a wildcard."""
    plain = re.sub(r"\\(.)", "", pattern)
    return None if re.search(r"[*?\[]", plain) else re.sub(r"\\(.)", r"\1", pattern)


def literal_prefix(pattern: str) -> str:
    """Return the deepest directory under which all matches of ``pattern`` are, without a slash at its end."""
    fixed = []
    for segment in pattern.split("/"):
        if (text := literal(segment)) is None:
            break
        fixed.append(text)
    else:
        fixed.pop()
    return "/".join(fixed)


class Rules:
    """Patterns and their effects, asked about one entry at a time; of several, the first rule counts."""

    def __init__(self, rules: Iterable[tuple[str, Effect]]) -> None:
        self.rules = tuple(dict.fromkeys(rules))
        self._literal: dict[str, list[tuple[int, str, Effect, bool]]] = {}
        self._wild: list[tuple[int, str, Effect, bool]] = []
        wild: list[str] = []
        for index, (pattern, effect) in enumerate(self.rules):
            base, below = base_of(pattern)
            last = base.rpartition("/")[2]
            if (name := literal(last)) is not None:
                self._literal.setdefault(name, []).append((index, base, effect, below))
            else:
                self._wild.append((index, base, effect, below))
                wild.append(_name_matcher(last))
        self._any_wild = re.compile("|".join(wild) or "(?!)")

    def effect(self, directory: str, name: str, is_directory: bool) -> Effect | None:
        """Return what becomes of ``name`` in ``directory``, a path with a slash at its end."""
        near = self._literal.get(name, [])
        if self._any_wild.match(name):
            near = [*near, *self._wild]
        if not near:
            return None
        path = directory + name
        for _, base, effect, below in sorted(near):
            if (is_directory or not below) and matches(base, path):
                return effect
        return None


def _name_matcher(segment: str) -> str:
    """Return a regular expression of one segment; ``**`` is any name."""
    return str(fnmatch.translate("*" if segment == "**" else segment, flags=fnmatch.DOTMATCH | fnmatch.CASE)[0][0])


# Places of the machine that programs need in order to run, and those that no scope can name.
#
# Rules that float (``**/NAME``) are about people's files, so they do not hold in the system's directories: a
# ``**/runtime/**`` must not hide the library of a language.

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix", "/gnu")
INSTALLED = ("/opt",)  # programs as a rule, but also a place where people work
SYSTEM_DETAIL = ("/sys/devices/system/cpu",)  # how many processors there are
# Not files of anybody: kernel interfaces, and /run, where sockets of other programs wait for commands.
NEVER = ("/proc", "/sys", "/dev", "/run", "/var/run", "/var/lock")
KERNEL_SETTINGS = (
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
    "/proc/scsi",
    "/proc/acpi",
)
TEMPORARY = ("/tmp", "/var/tmp")

# Secrets in the system's directories; those that the user may not read either need not be hidden.
_SECRETS = (
    *(f"/etc/{name}{end}" for name in ("shadow", "gshadow") for end in ("", "-")),
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
)

_LANGUAGES = ("python3", "python", "node", "ruby", "java", "go")
_SHARED_PREFIXES = ("", "/", "/usr", "/usr/local")


def is_system(path: str) -> bool:
    """Return whether ``path`` is one of the system's directories or below one."""
    return any(inside(path, directory) for directory in (*SYSTEM, *NEVER))


def parts(path: str) -> list[str]:
    """Return what sorts paths so that what is below a directory comes right after it."""
    return path.rstrip("/").split("/")


def is_kernel_path(path: str) -> bool:
    """Return whether ``path`` is one of the kernel's or of running programs, which no scope can name."""
    return any(inside(path, place) for place in NEVER)


def homes(own: str) -> list[str]:
    """Return the homes on this machine, ``own`` too."""
    others = [entry.path for entry in os.scandir("/home")] if os.path.isdir("/home") else []  # noqa: PTH112
    found = (path for path in (own, "/root", *others) if path.startswith("/") and path != "/")
    return [path for path in dict.fromkeys(found) if os.path.isdir(path) and os.path.realpath(path) == path]  # noqa: PTH112


def inside(path: str, directory: str) -> bool:
    """Return whether ``path`` is ``directory`` or below it."""
    return path == directory or path.startswith(directory if directory.endswith("/") else directory + "/")


def system_trees() -> Iterator[str]:
    """Yield the system's directories that are there and no links."""
    for directory in (*SYSTEM, *SYSTEM_DETAIL):
        if os.path.isdir(directory) and not os.path.islink(directory):  # noqa: PTH112, PTH114 - text all the way
            yield directory


def system_links() -> Iterator[tuple[str, str]]:
    """Yield the system's directories that are links (``/bin``), and where they lead."""
    for directory in SYSTEM:
        if os.path.islink(directory):  # noqa: PTH114
            yield directory, os.readlink(directory)  # noqa: PTH115


def program_trees(env: Mapping[str, str], root: str, writable: Collection[str]) -> Iterator[str]:
    """Yield where programs are installed: those on ``PATH``, and the interpreters that these and the workspace use.

    It is ``PREFIX`` of ``PREFIX/bin``, else the directory itself. A prefix that is somebody's home, or ``~/.local``,
    holds more than programs. Where a command can write it can put a link: from there only a true Python is followed.
    """
    yield from (path for path in INSTALLED if os.path.isdir(path))  # noqa: PTH112
    home = env.get("HOME", "")
    for entry in (entry for entry in env.get("PATH", "").split(":") if entry.startswith("/")):
        if not os.path.isdir(entry):  # noqa: PTH112
            continue
        if _leads_through(entry, writable):
            yield from _pythons(entry)
            continue
        languages = (os.path.realpath(f"{entry}/{name}") for name in _LANGUAGES)
        used = {os.path.dirname(path) for path in languages if os.path.isfile(path)}  # noqa: PTH113, PTH120
        for directory in (os.path.realpath(entry), *sorted(used)):
            yield from _installation(directory, home)
    for name in (".venv", "venv"):
        yield from _pythons(f"{root}/{name}/bin")


def _leads_through(path: str, writable: Collection[str]) -> bool:
    """Return whether ``path``, or a link on the way, lies where a command can write."""
    while path not in ("", "/"):
        real = os.path.realpath(path)
        if any(inside(path, tree) or inside(real, tree) for tree in writable):
            return True
        path = path.rpartition("/")[0]
    return False


def _pythons(directory: str) -> Iterator[str]:
    """Yield the installation of Python that ``directory`` of a virtual environment leads to."""
    prefix, _, program = os.path.realpath(f"{directory}/python3").rpartition("/bin/")
    is_python = "/" not in program and os.path.isfile(f"{prefix}/lib/{program}/os.py")  # noqa: PTH113
    if is_python and prefix.count("/") > 1 and not is_system(prefix):
        yield prefix


def _installation(directory: str, home: str) -> Iterator[str]:
    prefix, _, last = directory.rpartition("/")
    whole = last in ("bin", "sbin", "condabin") and prefix not in (*_SHARED_PREFIXES, home, f"{home}/.local")
    chosen = prefix if whole and prefix.count("/") > 1 else directory
    if is_system(chosen) or chosen in ("/", home):
        return
    yield chosen
    if chosen.endswith("/.cargo") and os.path.isdir(rustup := chosen.removesuffix("cargo") + "rustup"):  # noqa: PTH112
        yield rustup


def resolver() -> str | None:
    """Return the file with the name servers, where ``/etc/resolv.conf`` is a link out of ``/etc``."""
    path = os.path.realpath("/etc/resolv.conf")
    return path if inside(path, "/run") and os.path.isfile(path) else None  # noqa: PTH113


# What one command may use up; room for any ordinary build, an end for what runs away.
#
# A limit of the daemon's own that is lower stays.

_PROCESSES = 4_096  # and threads: of the user where nothing confines, else of the command
_FILES_SOFT, _FILES_HARD = 16_384, 65_536  # that are open
_FILE_KIB = 16 * 1024 * 1024  # of one file
_CPU_S = 600  # of one process, for each core
_ADDRESS_KIB = 256 * 1024 * 1024  # soft: a sanitizer that reserves more lifts it with ``ulimit -v unlimited``

_RAISED = f"""
ulimit -c 0; ulimit -u {_PROCESSES}; ulimit -f {_FILE_KIB}; ulimit -t {_CPU_S * (os.cpu_count() or 1)}
ulimit -Hn {_FILES_HARD}; ulimit -Sn {_FILES_SOFT}; ulimit -Sv {_ADDRESS_KIB}"""

# ``exec`` keeps the pid; what the shell cannot set (macOS knows fewer) is left as it is.
_SCRIPT = "{ " + "; ".join(_RAISED.strip().split("\n")) + '; } 2>/dev/null; exec /bin/bash -c "$1"'


def with_limits(command: str) -> tuple[str, ...]:
    """Return the argv that runs ``command`` with bash under the limits."""
    return "/bin/bash", "--noprofile", "--norc", "-c", _SCRIPT, "bash", command


# Finds below a directory what rules are about; bounded, and remembered for as long as directories do not change.
#
# A directory is listed again only when its change time is another one. That time cannot be set by a program, as the
# time of modification can, and it is not trusted while it is so recent that a change right after would not show.

MOST_ENTRIES = 300_000
_RECENT_NS = 2_000_000_000
_REMEMBERED = 8  # sets of rules


class FoundEntry(NamedTuple):
    """An entry that a rule is about."""

    path: str
    effect: Effect
    is_directory: bool


class _Listing(NamedTuple):
    signature: tuple[int, int, int]
    size: int  # how many entries it has
    directories: tuple[str, ...]  # names of those to look into
    found: tuple[FoundEntry, ...]


_remembered: dict[tuple[tuple[str, Effect], ...], dict[str, _Listing]] = {}
_lock = Lock()  # commands are prepared in threads


class TooMany(ToolError):
    """There is more below a directory than can be looked at before each command."""


def find(
    tree: str, rules: Rules, without: Collection[str] = (), levels: int | None = None, most: int | None = None
) -> Iterator[FoundEntry]:
    """Yield what ``rules`` are about below ``tree``; what is found is not looked into.

    Args:
        tree: Absolute directory, resolved.
        rules: What to look for; sockets are found too, as to be hidden.
        without: Directories that are left out.
        levels: How deep to look: 1 is what is right in ``tree``; None is everything.
        most: How many entries to look at; None is ``MOST_ENTRIES``.

    Raises:
        TooMany: It has more entries than that.
    """
    most = MOST_ENTRIES if most is None else most
    known = _remembered_listings(rules)
    pending = [(tree, 1)]
    count = 0
    while pending:
        directory, level = pending.pop()
        listing = _listing(directory, rules, known)
        if listing is None:
            continue
        count += listing.size
        if count > most:
            raise TooMany(
                f"{tree} has more than {most:,} files, too many to look through for what a command must not "
                f"see. Ask the user to name smaller directories in `paths` of preset.md, or to say there "
                f"`shell_commands: {{confine: false}}`"
            )
        yield from listing.found
        slashed = directory if directory.endswith("/") else directory + "/"
        if levels is None or level < levels:
            below = (slashed + name for name in listing.directories)
            pending += ((path, level + 1) for path in below if path not in without)


def _remembered_listings(rules: Rules) -> dict[str, _Listing]:
    with _lock:
        known = _remembered.pop(rules.rules, None)
        while len(_remembered) >= _REMEMBERED:
            del _remembered[next(iter(_remembered))]
        if known is None or len(known) > MOST_ENTRIES:
            known = {}
        _remembered[rules.rules] = known
        return known


def _listing(directory: str, rules: Rules, known: dict[str, _Listing]) -> _Listing | None:
    """Return what is in ``directory``; None when we may not list it, so that a command of ours cannot either."""
    try:
        found = os.stat(directory, follow_symlinks=False)  # noqa: PTH116 - text all the way
        signature = (found.st_dev, found.st_ino, found.st_ctime_ns)
        remembered = known.get(directory)
        if remembered is not None and remembered.signature == signature:
            return remembered
        listing = _list(directory, rules, signature)
    except OSError:
        known.pop(directory, None)
        return None
    if abs(time.time_ns() - found.st_ctime_ns) > _RECENT_NS:
        known[directory] = listing
    else:
        known.pop(directory, None)
    return listing


def _list(directory: str, rules: Rules, signature: tuple[int, int, int]) -> _Listing:
    slashed = directory if directory.endswith("/") else directory + "/"
    directories: list[str] = []
    found: list[FoundEntry] = []
    size = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            size += 1
            name = entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if not is_directory and entry.is_symlink():  # leads to a name of its own, or out of what is seen
                continue
            effect = rules.effect(slashed, name, is_directory)
            if effect is not None:
                if effect != "leave":
                    found.append(FoundEntry(slashed + name, effect, is_directory))
            elif is_directory:
                directories.append(name)
            elif not entry.is_file(follow_symlinks=False) and _is_socket(slashed + name):
                found.append(FoundEntry(slashed + name, "hide", False))
    return _Listing(signature, size, tuple(directories), tuple(found))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


# The directories and files of a scope: what its patterns come to on this disk, and what that says about a path.


class Trees:
    """Directories, and whether each is writable; the nearest one above a path says what holds for it."""

    def __init__(self, trees: Mapping[str, bool]) -> None:
        self._trees = trees

    def of(self, path: str) -> str | None:
        """Return the nearest tree that ``path`` is in."""
        while path not in self._trees:
            if path in ("", "/"):
                return None
            path = path.rpartition("/")[0] or "/"
        return path

    def writable(self, path: str) -> bool:
        """Return whether ``path`` is in a writable tree."""
        tree = self.of(path)
        return tree is not None and self._trees[tree]

    def shows(self, path: str, place: str) -> bool:
        """Return whether ``path``, in the hidden directory ``place``, is seen: it is in a tree that begins there."""
        tree = self.of(path)
        return tree is not None and tree != place and inside(tree, place)

    def above(self, path: str) -> Iterator[str]:
        """Yield the directories between a writable tree and ``path`` in it."""
        if self.writable(path):
            tree = self.of(path)
            while (path := path.rpartition("/")[0]) and path != tree and path not in self._trees:
                yield path


def visible_trees(trees: Mapping[str, bool], scope: ShellScope) -> dict[str, bool]:
    """Return ``trees`` without what nobody sees; what is protected is read at most, whoever named it.

    Of what is closed nobody opens the whole, nor a file right in it or what begins with a dot: a database, snapshots.
    """
    return {
        path: write and not any(inside(path, place) for place in scope.protected)
        for path, write in trees.items()
        if not any(inside(path, place) for place in scope.hidden) and (write or path not in TEMPORARY)
        if all(_may_be_tree(path, place) for place in scope.closed)
    }


def _may_be_tree(path: str, closed: str) -> bool:
    """Return whether ``path`` may be a tree although ``closed`` is not seen."""
    if not inside(path, closed):
        return True
    name = path.removeprefix(closed).lstrip("/").partition("/")[0]
    return name != "" and not name.startswith(".") and os.path.isdir(f"{closed}/{name}")  # noqa: PTH112


def minimal_trees(trees: Mapping[str, bool], closed: Collection[str] = ()) -> Iterator[tuple[str, bool]]:
    """Yield the trees that say something, parents first: not those whose nearest tree above says as much.

    A readable tree inside a writable one stays writable: rights add up. What is around a ``closed`` directory says
    nothing about what is inside.
    """
    nearest: list[tuple[str, bool]] = []
    for path in sorted(trees, key=parts):
        while nearest and not inside(path, nearest[-1][0]):
            nearest.pop()
        above = nearest[-1][1] if nearest else (False if is_system(path) else None)
        around = nearest[-1][0] if nearest else "/"
        if any(inside(path, place) and not inside(around, place) for place in closed):
            above = None
        if above is None or trees[path] > above:
            nearest.append((path, trees[path]))
            yield path, trees[path]


def expand_patterns(patterns: Iterable[str], rules: Rules, root: Path) -> Iterator[str]:
    """Yield what ``patterns`` come to on this disk, without what is denied, the kernel's, or reached by a link."""
    for pattern in patterns:
        for path in _existing_entries(pattern, root):
            if not is_kernel_path(path) and os.path.realpath(path) == path and not is_denied(path, rules):
                yield path


def _existing_entries(pattern: str, root: Path) -> Iterator[str]:
    """Yield the entries that ``pattern`` comes to."""
    base, below = base_of(pattern)
    if not base:
        yield "/"
        return
    if (path := literal(base)) is not None:
        if os.path.isdir(path) if below else os.path.isfile(path):  # noqa: PTH112, PTH113
            yield path
        return
    # What floats is sought in the workspace: looking everywhere before each command would take minutes.
    start = literal_prefix(base) or str(root)
    found = (entry for entry in find(start, Rules([(base, "found")])) if entry.effect == "found")
    yield from (entry.path for entry in found if entry.is_directory == below)


def is_denied(path: str, rules: Rules) -> bool:
    """Return whether ``path`` or a directory above is denied: a tree may not begin inside what is hidden."""
    while path != "/":
        parent, name = split(path)
        if rules.effect(parent, name, True) in ("hide", "fixed"):
            return True
        path = parent.rstrip("/") or "/"
    return False


def split(path: str) -> tuple[str, str]:
    """Return the directory of ``path``, with a slash at its end, and its name."""
    directory, _, name = path.rpartition("/")
    return directory + "/", name


# What inside the directories of a scope is kept from a command: found by name, where such names are sought.
#
# Below ``/`` not everything is looked at: names that float are sought in the workspace, in homes down to a few
# levels, and near the root; sockets that somebody listens on are known to the kernel wherever they are.

_HOME_LEVELS = 3
_ROOT_LEVELS = 2
_MOST_TEMPORARY = 30_000  # entries of one directory in /tmp; more of it is not seen at all
_MOST_EACH, _MOST_IN_ALL = 20, 200  # places kept one by one in such a directory, and in all of them
_BOUND = "/proc/net/unix"


def search_depths(scope: Collection[str], writable: Collection[str], root: Path, home: str) -> dict[str, int | None]:
    """Return the outermost directories of the scope in which rules that float hold, and how deep; None: all below."""
    chosen = [tree for tree in scope if not is_system(tree) or tree in writable or tree == str(root)]
    levels: dict[str, int | None] = dict.fromkeys(tree for tree in chosen if os.path.isdir(tree))  # noqa: PTH112
    if "/" in levels:
        levels |= {"/": _ROOT_LEVELS} | dict.fromkeys(homes(home), _HOME_LEVELS)
        levels |= dict.fromkeys(path for path in (str(root), "/tmp") if path == str(root) or "/tmp" in writable)
    whole = [tree for tree, depth in levels.items() if depth is None]
    return {tree: depth for tree, depth in levels.items() if not any(tree != w and inside(tree, w) for w in whole)}


def find_closed(
    rules: Rules, trees: Mapping[str, int | None], scope: ShellScope, kept: Collection[str]
) -> Iterator[FoundEntry]:
    """Yield what the rules are about in ``trees``, each so deep, and, where a rule names a place, elsewhere.

    Protected places of ``scope`` are left apart. A shared directory for temporary files stays visible for what is
    ``kept``: the workspace, trees of the scope.
    """
    apart = {*scope.protected, *scope.hidden, *SYSTEM, *NEVER}
    for tree, levels in trees.items():
        if tree != "/" and (effect := rules.effect(*split(tree), True)) is not None:
            yield FoundEntry(tree, effect, True)
        elif tree in TEMPORARY:
            yield from _find_in_temporary(tree, rules, apart, [path for path in kept if not inside(tree, path)])
        else:
            yield from find(tree, rules, apart - {tree}, levels)
    whole = [tree for tree, levels in trees.items() if levels is None]
    for pattern, effect in rules.rules:
        base, _ = base_of(pattern)
        start = literal_prefix(base)
        sought = start and not is_kernel_path(start)
        if not sought or (not is_system(start) and any(inside(start, tree) for tree in whole)):
            continue
        if (path := literal(base)) is not None:
            if os.path.lexists(path):
                yield FoundEntry(path, effect, os.path.isdir(path))  # noqa: PTH112
        elif os.path.isdir(start):  # noqa: PTH112
            yield from (each for each in find(start, Rules([(pattern, effect)])) if each.effect == effect)
    yield from (FoundEntry(path, "hide", False) for path in _bound_sockets())


def _find_in_temporary(tree: str, rules: Rules, apart: set[str], kept: Collection[str]) -> Iterator[FoundEntry]:
    """Yield what the rules are about in a directory that all programs share: where there is much of it, the whole.

    What others leave there must neither cost time nor keep a command from running.
    """
    yield from find(tree, rules, apart, levels=1)
    total = 0
    with os.scandir(tree) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    for name in names:
        path = f"{tree}/{name}"
        if path in apart or rules.effect(f"{tree}/", name, True) is not None:
            continue
        if any(inside(path, each) for each in kept):
            yield from find(path, rules, apart)
            continue
        if any(inside(each, path) for each in kept):
            yield from _find_in_temporary(path, rules, apart, kept)
            continue
        try:
            here = list(find(path, rules, apart, most=_MOST_TEMPORARY))
            whole = len(here) > _MOST_EACH or (total > _MOST_IN_ALL and len(here) > 1)
        except TooMany:
            here, whole = [], True
        total += 1 if whole else len(here)
        yield from [FoundEntry(path, "hide", True)] if whole else here


def _bound_sockets() -> Iterator[str]:
    """Yield the sockets that somebody has bound to a path."""
    try:
        lines = Path(_BOUND).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for path in {line[line.index(" /") + 1 :] for line in lines if " /" in line}:
        if _is_socket(path) and os.path.realpath(path) == path:
            yield path


def outermost(hidden: Iterable[tuple[str, bool]], trees: Trees) -> Iterator[tuple[str, bool]]:
    """Yield what no other hidden directory hides, parents first: what is below one only where a tree shows it."""
    around: list[str] = []
    for path, is_directory in sorted(hidden, key=lambda entry: parts(entry[0])):
        while around and not inside(path, around[-1]):
            around.pop()
        if not around or trees.shows(path, around[-1]):
            yield path, is_directory
            around += [path] if is_directory else []


# What git needs inside, and what of a git directory a command may not change.
#
# Git runs programs that ``config`` and ``hooks`` name, for whoever uses the repository next. Of the user's own
# configuration a command gets who commits, not the rest, which may hold keys.

ONLY_REAL_REPOSITORIES = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
"""Variables with which git takes no directory for a repository that only has the files of one, which any tool can
write: its ``config`` would name programs that git runs. For where nothing confines a command."""

_PASSED_ON = r"^(user\.(name|email)|init\.defaultbranch|safe\.directory)$"
_ASKING_S = 5.0
_PARTS = ("config", "config.worktree")
_HOOKS = "hooks"
COMMON = "commondir"
"""A file that would lead git to another ``config`` and other hooks; a main repository has none."""
_MOST_MODULES = 200


def git_read_only(directory: str) -> Iterator[str]:
    """Yield the paths below the git directory ``directory`` that are read-only, those of its submodules too."""
    yield from _decisive_files(directory)
    modules = Path(directory, "modules")
    if modules.is_dir():
        for found, _ in zip(modules.rglob("HEAD"), range(_MOST_MODULES), strict=False):
            yield from _decisive_files(str(found.parent))


def _decisive_files(directory: str) -> Iterator[str]:
    for part in _PARTS:
        path = f"{directory}/{part}"
        if os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114
            yield path
    yield f"{directory}/{_HOOKS}"  # also where there is none: it could be made


def git_dir_of_worktree(root: Path) -> str | None:
    """Return the git directory that the linked work tree ``root`` belongs to.

    The repository must name this work tree too: a file that a command wrote must not open a directory to it.
    """
    try:
        text = regularfile.read_text(root / ".git")
        if not text.startswith("gitdir: "):
            return None
        entry = Path(os.path.realpath(root / text[len("gitdir: ") :].strip()))
        back = regularfile.read_text(entry / "gitdir").strip()
    except (OSError, UnicodeDecodeError):
        return None
    common = entry.parent.parent
    is_worktree = entry.parent.name == "worktrees" and os.path.realpath(back) == os.path.realpath(root / ".git")
    return str(common) if is_worktree and common.name == ".git" and (common / "HEAD").is_file() else None


def configuration(env: Mapping[str, str]) -> str:
    """Return the text of a configuration with who the user is, as git reads it."""
    home = env.get("HOME", "")
    own = env.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return _read_configuration(home, own, tuple(map(_mtime, (f"{home}/.gitconfig", f"{own}/git/config"))))


def _mtime(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


@lru_cache(maxsize=8)
def _read_configuration(home: str, own: str, stamps: tuple[int | None, ...]) -> str:
    program = installation.program("git")
    if stamps == (None, None) or program is None:
        return ""
    asking = [program, "config", "--global", "--includes", "-z", "--get-regexp", _PASSED_ON]
    try:
        listing = subprocess.run(
            asking,
            cwd="/",
            env={"HOME": home, "XDG_CONFIG_HOME": own, "PATH": installation.PATH},
            capture_output=True,
            timeout=_ASKING_S,
            check=True,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    pairs = (entry.split("\n", 1) for entry in listing.split("\0") if "\n" in entry)
    lines = []
    for key, value in pairs:
        section, _, name = key.partition(".")
        escaped = re.sub(r'(["\\])', r"\\\1", value).replace("\n", "\\n")
        lines.append(f'[{section}]\n\t{name} = "{escaped}"\n')
    return "".join(lines)


MOST_PLACES = 2_000  # that are hidden or made read-only one by one
_GIT = "/.git/"

# Denied by every agent's preset so that file tools leave them alone; the programs that keep them need them.
_USED_BY: Mapping[str, tuple[Effect, frozenset[str]]] = {
    "**/.git/**": ("git", frozenset({"git"})),
    "**/node_modules/**": ("leave", frozenset({"node", "npm", "npx", "pnpm", "yarn"})),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a command sees. Paths are absolute and resolved, parents first; inside what is hidden are only trees."""

    root: str  # where it starts, seen or not
    home: str
    trees: tuple[tuple[str, bool], ...]  # directories or files of the scope, and whether they are writable
    readonly: tuple[str, ...]  # inside the trees
    hidden: tuple[tuple[str, bool], ...]  # inside the trees and the system, and whether it is a directory
    git: frozenset[str]  # of those that are read-only: what decides which programs git runs
    pinned: tuple[str, ...]  # writable directories that stay where they are, so that what they hold does
    temporary: bool  # it has a /tmp of its own
    network: bool

    @property
    def seen(self) -> Trees:
        """Its trees, to ask about a path."""
        return Trees(dict(self.trees))


def plan(scope: ShellScope, *, root: Path, spool_dir: Path, env: Mapping[str, str]) -> Plan:
    """Return what a command of ``scope`` sees; looks at the disk.

    Raises:
        ToolError: There is too much to hide one by one.
    """
    rules = _rules(scope)
    writable = set(expand_patterns(scope.write, rules, root))
    readable = set(expand_patterns(scope.read, rules, root))
    programs = {path for path in program_trees(env, str(root), writable) if not is_denied(path, rules)}
    common = git_dir_of_worktree(root)  # where git is used and nothing denies it
    if common is not None and rules.effect(*split(common), True) == "git":
        (writable if any(inside(str(root), tree) for tree in writable) else readable).add(common)
    own = [path for path in scope.own if any(inside(path, tree) for tree in (*readable, *writable))]
    own += [str(spool_dir)]
    seen = dict.fromkeys((*readable, *programs, *filter(os.path.isdir, own)), False)
    trees = dict(minimal_trees(visible_trees(seen | dict.fromkeys(writable, True), scope), scope.closed))
    sought = search_depths({*readable, *writable}, writable, root, env.get("HOME", ""))
    found = list(find_closed(rules, sought, scope, {str(root), str(spool_dir), *readable, *writable}))
    git_found = {path for entry in found if entry.effect == "git" for path in git_read_only(entry.path)}
    hidden = {entry.path: entry.is_directory for entry in found if entry.effect in ("hide", "fixed")}
    hidden |= {path: True for path in (*scope.hidden, *scope.closed) if os.path.isdir(path)}  # noqa: PTH112
    secrets = [path for path in _SECRETS if os.access(path, os.R_OK) and os.path.realpath(path) == path]
    hidden |= {path: os.path.isdir(path) for path in secrets}  # noqa: PTH112
    registry = [f"{tree}/{name}" for tree in programs for name in ("credentials", "credentials.toml")]
    hidden |= {path: False for path in registry if os.path.isfile(path)}  # noqa: PTH113
    fixed = {*scope.protected, *scope.hidden, *(entry.path for entry in found if entry.effect == "fixed")}
    # Of each list only what no other makes needless.
    near = Trees(trees)
    # What is protected and not there yet is made, empty: a command must not be the one who makes it.
    for path in (Path(each) for each in scope.protected if near.writable(each)):
        with suppress(OSError):  # where we may not, a command of ours may not either
            is_file = path.suffix != "" and not path.is_dir()
            (path.parent if is_file else path).mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_file:
                path.touch(mode=0o600)
    within = ((p, d) for p, d in hidden.items() if near.of(p) is not None or is_system(p))
    gone = list(outermost(within, near))

    def unseen(path: str) -> bool:
        return any(
            inside(path, place) and not near.shows(path, place) for place, is_directory in gone if is_directory
        )

    kept = [path for path in scope.protected if near.of(path) is not None]
    decisive = [path for path in git_found if near.writable(path) and not any(inside(path, place) for place in kept)]
    readonly = sorted((p for p in {*kept, *decisive} if not unseen(p)), key=parts)
    pinned = {above for path in fixed for above in near.above(path)}
    pinned |= {above for path in decisive for above in near.above(path) if _GIT in f"{above}/"}
    if len(gone) + len(readonly) + len(pinned) > MOST_PLACES:
        raise ToolError(
            f"More than {MOST_PLACES:,} files have to be kept from the command one by one. Ask the user to deny "
            f"directories in `paths.deny` of preset.md, not what is in them"
        )
    return Plan(
        root=str(root),
        home=env.get("HOME", ""),
        trees=tuple(trees.items()),
        readonly=tuple(readonly),
        hidden=tuple(gone),
        git=frozenset(decisive),
        pinned=tuple(p for p in sorted(pinned, key=parts) if not unseen(p) and not any(inside(p, k) for k in kept)),
        temporary=not any(trees.get(path, False) for path in ("/tmp", "/")),
        network=scope.network,
    )


def _rules(scope: ShellScope) -> Rules:
    """Return what is done with entries inside the scope."""
    hidden = list(CREDENTIALS)
    programs = {command.split()[0] for command in scope.commands if command.split()}
    used: list[tuple[str, Effect]] = [("**/.git/**", "git")]
    for pattern in scope.deny:
        effect, users = _USED_BY.get(pattern, ("hide", frozenset()))
        if effect != "hide" and (ANY in scope.commands or users & programs):
            used.append((pattern, effect))
        else:
            hidden.append(pattern)
    return Rules([*((pattern, "hide" if is_at_any_depth(pattern) else "fixed") for pattern in hidden), *used])

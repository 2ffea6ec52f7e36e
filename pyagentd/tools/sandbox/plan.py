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
from typing import NamedTuple

from pyagentd import installation, regularfile
from pyagentd.errors import ToolError
from pyagentd.policy.guard import CREDENTIALS
from pyagentd.tools.sandbox import scope as places
from pyagentd.tools.sandbox.scope import (
    Effect,
    Rules,
    ShellScope,
    base_of,
    floats,
    inside,
    literal,
    literal_prefix,
    parts,
)

# Finds below a directory what rules are about; bounded, and remembered for as long as directories do not change.
#
# A directory is listed again only when its change time is another one. That time cannot be set by a program, as the
# time of modification can, and it is not trusted while it is so recent that a change right after would not show.

MOST_ENTRIES = 300_000
_RECENT_NS = 2_000_000_000
_REMEMBERED = 8  # sets of rules


class Found(NamedTuple):
    """An entry that a rule is about."""

    path: str
    effect: Effect
    is_directory: bool


class _Listing(NamedTuple):
    signature: tuple[int, int, int]
    size: int  # how many entries it has
    directories: tuple[str, ...]  # names of those to look into
    found: tuple[Found, ...]


_remembered: dict[tuple[tuple[str, Effect], ...], dict[str, _Listing]] = {}
_lock = Lock()  # commands are prepared in threads


class TooMany(ToolError):
    """There is more below a directory than can be looked at before each command."""


def find(
    tree: str, rules: Rules, without: Collection[str] = (), levels: int | None = None, most: int | None = None
) -> Iterator[Found]:
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
    known = _memory(rules)
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


def _memory(rules: Rules) -> dict[str, _Listing]:
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
    found: list[Found] = []
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
                    found.append(Found(slashed + name, effect, is_directory))
            elif is_directory:
                directories.append(name)
            elif not entry.is_file(follow_symlinks=False) and _is_socket(slashed + name):
                found.append(Found(slashed + name, "hide", False))
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
        if not any(inside(path, place) for place in scope.hidden) and (write or path not in places.TEMPORARY)
        if all(_opens(path, place) for place in scope.closed)
    }


def _opens(path: str, closed: str) -> bool:
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
        above = nearest[-1][1] if nearest else (False if places.is_system(path) else None)
        around = nearest[-1][0] if nearest else "/"
        if any(inside(path, place) and not inside(around, place) for place in closed):
            above = None
        if above is None or trees[path] > above:
            nearest.append((path, trees[path]))
            yield path, trees[path]


def expand_patterns(patterns: Iterable[str], rules: Rules, root: Path) -> Iterator[str]:
    """Yield what ``patterns`` come to on this disk, without what is denied, the kernel's, or reached by a link."""
    for pattern in patterns:
        for path in _existing(pattern, root):
            if not places.is_kernels(path) and os.path.realpath(path) == path and not is_denied(path, rules):
                yield path


def _existing(pattern: str, root: Path) -> Iterator[str]:
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


def looked_into(scope: Collection[str], writable: Collection[str], root: Path, home: str) -> dict[str, int | None]:
    """Return the outermost directories of the scope in which rules that float hold, and how deep; None: all below."""
    chosen = [tree for tree in scope if not places.is_system(tree) or tree in writable or tree == str(root)]
    levels: dict[str, int | None] = dict.fromkeys(tree for tree in chosen if os.path.isdir(tree))  # noqa: PTH112
    if "/" in levels:
        levels |= {"/": _ROOT_LEVELS} | dict.fromkeys(places.homes(home), _HOME_LEVELS)
        levels |= dict.fromkeys(path for path in (str(root), "/tmp") if path == str(root) or "/tmp" in writable)
    whole = [tree for tree, depth in levels.items() if depth is None]
    return {tree: depth for tree, depth in levels.items() if not any(tree != w and inside(tree, w) for w in whole)}


def closed_found(
    rules: Rules, trees: Mapping[str, int | None], scope: ShellScope, kept: Collection[str]
) -> Iterator[Found]:
    """Yield what the rules are about in ``trees`` and, where a rule names a place, elsewhere.

    Args:
        rules: What is looked for.
        trees: Where, and how deep.
        scope: Whose protected places are left apart.
        kept: What a shared directory for temporary files is kept visible for: the workspace, trees of the scope.
    """
    apart = {*scope.protected, *scope.hidden, *places.SYSTEM, *places.NEVER}
    for tree, levels in trees.items():
        if tree != "/" and (effect := rules.effect(*split(tree), True)) is not None:
            yield Found(tree, effect, True)
        elif tree in places.TEMPORARY:
            yield from _in_temporary(tree, rules, apart, [path for path in kept if not inside(tree, path)])
        else:
            yield from find(tree, rules, apart - {tree}, levels)
    whole = [tree for tree, levels in trees.items() if levels is None]
    for pattern, effect in rules.rules:
        base, _ = base_of(pattern)
        start = literal_prefix(base)
        sought = start and not places.is_kernels(start)
        if not sought or (not places.is_system(start) and any(inside(start, tree) for tree in whole)):
            continue
        if (path := literal(base)) is not None:
            if os.path.lexists(path):
                yield Found(path, effect, os.path.isdir(path))  # noqa: PTH112
        elif os.path.isdir(start):  # noqa: PTH112
            yield from (each for each in find(start, Rules([(pattern, effect)])) if each.effect == effect)
    yield from (Found(path, "hide", False) for path in _listening())


def _in_temporary(tree: str, rules: Rules, apart: set[str], kept: Collection[str]) -> Iterator[Found]:
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
            yield from _in_temporary(path, rules, apart, kept)
            continue
        try:
            here = list(find(path, rules, apart, most=_MOST_TEMPORARY))
            whole = len(here) > _MOST_EACH or (total > _MOST_IN_ALL and len(here) > 1)
        except TooMany:
            here, whole = [], True
        total += 1 if whole else len(here)
        yield from [Found(path, "hide", True)] if whole else here


def _listening() -> Iterator[str]:
    """Yield the sockets that somebody has bound to a path."""
    try:
        lines = Path(_BOUND).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for path in {line[line.index(" /") + 1 :] for line in lines if " /" in line}:
        try:
            if stat.S_ISSOCK(os.lstat(path).st_mode) and os.path.realpath(path) == path:
                yield path
        except OSError:
            continue


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
_COMMON = "commondir"
_MOST_MODULES = 200


def git_read_only(directory: str) -> Iterator[str]:
    """Yield the paths below the git directory ``directory`` that are read-only, those of its submodules too."""
    yield from _decisive(directory)
    modules = Path(directory, "modules")
    if modules.is_dir():
        for found, _ in zip(modules.rglob("HEAD"), range(_MOST_MODULES), strict=False):
            yield from _decisive(str(found.parent))


def _decisive(directory: str) -> Iterator[str]:
    for part in _PARTS:
        path = f"{directory}/{part}"
        if os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114
            yield path
    yield f"{directory}/{_HOOKS}"  # also where there is none: it could be made


def redirections(decisive: Iterable[str]) -> set[str]:
    """Return the files that would lead git to another ``config`` and other hooks; a main repository has none."""
    return {f"{path.rpartition('/')[0]}/{_COMMON}" for path in decisive}


def of_worktree(root: Path) -> str | None:
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
    said = entry.parent.name == "worktrees" and os.path.realpath(back) == os.path.realpath(root / ".git")
    return str(common) if said and common.name == ".git" and (common / "HEAD").is_file() else None


def configuration(env: Mapping[str, str]) -> str:
    """Return the text of a configuration with who the user is, as git reads it."""
    home = env.get("HOME", "")
    files = (f"{home}/.gitconfig", f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config")
    return _configuration(home, tuple(map(_stamp, files)))


def _stamp(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


@lru_cache(maxsize=8)
def _configuration(home: str, stamps: tuple[int | None, ...]) -> str:
    program = installation.program("git")
    if stamps == (None, None) or program is None:
        return ""
    asking = [program, "config", "--global", "--includes", "-z", "--get-regexp", _PASSED_ON]
    try:
        said = subprocess.run(
            asking,
            cwd="/",
            env={"HOME": home, "PATH": installation.PATH},
            capture_output=True,
            timeout=_ASKING_S,
            check=True,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    pairs = (entry.split("\n", 1) for entry in said.split("\0") if "\n" in entry)
    return "".join(_line(key, value) for key, value in pairs)


def _line(key: str, value: str) -> str:
    section, _, name = key.partition(".")
    escaped = re.sub(r'(["\\])', r"\\\1", value).replace("\n", "\\n")
    return f'[{section}]\n\t{name} = "{escaped}"\n'


MOST_PLACES = 2_000  # that are hidden or made read-only one by one
_ANY = "*"
_GIT = "/.git/"

# Denied by every agent's preset so that file tools leave them alone; the programs that keep them need them.
_USED_BY: Mapping[str, tuple[Effect, frozenset[str]]] = {
    "**/.git/**": ("git", frozenset({"git"})),
    "**/node_modules/**": ("leave", frozenset({"node", "npm", "npx", "pnpm", "yarn"})),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a command sees. Paths are absolute and resolved, parents first, below what is hidden are only trees."""

    root: str  # where it starts, seen or not
    home: str
    trees: tuple[tuple[str, bool], ...]  # directories or files of the scope, and whether they are writable
    readonly: tuple[str, ...]  # inside the trees
    hidden: tuple[tuple[str, bool], ...]  # inside the trees and the system, and whether it is a directory
    git: frozenset[str]  # of those that are read-only: what decides which programs git runs
    pinned: tuple[str, ...]  # writable directories that stay where they are, so that what they hold does
    temporary: bool  # it has a /tmp of its own
    network: bool


def plan(scope: ShellScope, *, root: Path, spool_dir: Path, env: Mapping[str, str]) -> Plan:
    """Return what a command of ``scope`` sees; looks at the disk.

    Raises:
        ToolError: There is too much to hide one by one.
    """
    rules = _rules(scope)
    writable = set(expand_patterns(scope.write, rules, root))
    readable = set(expand_patterns(scope.read, rules, root))
    programs = {path for path in places.program_trees(env, str(root), writable) if not is_denied(path, rules)}
    if (common := _repository(root, rules)) is not None:
        (writable if any(inside(str(root), tree) for tree in writable) else readable).add(common)
    own = [path for path in scope.own if any(inside(path, tree) for tree in (*readable, *writable))]
    own += [str(spool_dir)]
    seen = dict.fromkeys((*readable, *programs, *filter(os.path.isdir, own)), False)
    trees = dict(minimal_trees(visible_trees(seen | dict.fromkeys(writable, True), scope), scope.closed))
    sought = looked_into({*readable, *writable}, writable, root, env.get("HOME", ""))
    found = list(closed_found(rules, sought, scope, {str(root), str(spool_dir), *readable, *writable}))
    git_found = {path for entry in found if entry.effect == "git" for path in git_read_only(entry.path)}
    hidden = {entry.path: entry.is_directory for entry in found if entry.effect in ("hide", "fixed")}
    hidden |= {path: True for path in (*scope.hidden, *scope.closed) if os.path.isdir(path)}  # noqa: PTH112
    hidden |= {path: os.path.isdir(path) for path in places.system_secrets()}  # noqa: PTH112
    hidden |= {path: False for tree in programs for path in places.program_secrets(tree)}
    fixed = {*scope.protected, *scope.hidden, *(entry.path for entry in found if entry.effect == "fixed")}
    return _made(scope, trees, hidden, git_found, fixed, root, env.get("HOME", ""))


def _made(
    scope: ShellScope,
    trees: Mapping[str, bool],
    hidden: Mapping[str, bool],
    git_found: Collection[str],
    fixed: Collection[str],
    root: Path,
    home: str,
) -> Plan:
    """Return the plan of all that, each list without what another makes needless.

    Raises:
        ToolError: There is too much of it.
    """
    near = Trees(trees)
    _make_missing(path for path in scope.protected if near.writable(path))
    within = ((p, d) for p, d in hidden.items() if near.of(p) is not None or places.is_system(p))
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
        home=home,
        trees=tuple(trees.items()),
        readonly=tuple(readonly),
        hidden=tuple(gone),
        git=frozenset(decisive),
        pinned=tuple(p for p in sorted(pinned, key=parts) if not unseen(p) and not any(inside(p, k) for k in kept)),
        temporary=not any(trees.get(path, False) for path in ("/tmp", "/")),
        network=scope.network,
    )


def _make_missing(protected: Iterable[str]) -> None:
    """Make what is protected and not there yet, empty: a command must not be the one who makes it."""
    for path in map(Path, protected):
        with suppress(OSError):  # where we may not, a command of ours may not either
            is_file = path.suffix != "" and not path.is_dir()
            (path.parent if is_file else path).mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_file:
                path.touch(mode=0o600)


def _rules(scope: ShellScope) -> Rules:
    """Return what is done with entries inside the scope."""
    hidden = list(CREDENTIALS)
    used: list[tuple[str, Effect]] = [("**/.git/**", "git")]
    for pattern in scope.deny:
        effect, users = _USED_BY.get(pattern, ("hide", frozenset()))
        if effect != "hide" and (_ANY in scope.commands or users & _programs(scope.commands)):
            used.append((pattern, effect))
        else:
            hidden.append(pattern)
    return Rules([*((pattern, "hide" if floats(pattern) else "fixed") for pattern in hidden), *used])


def _programs(commands: Iterable[str]) -> set[str]:
    return {command.split()[0] for command in commands if command.split()}


def _repository(root: Path, rules: Rules) -> str | None:
    """Return the git directory of a linked work tree, where git is used and nothing denies it."""
    common = of_worktree(root)
    return common if common is not None and rules.effect(*split(common), True) == "git" else None

"""The scope of a command as values: paths, network, limits."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from wcmatch import fnmatch

from pyagentd.config import Confinement
from pyagentd.policy.action import matches, normalise

Mechanism = Literal["bubblewrap", "landlock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScope:
    """The rules for one command, read anew for each. Patterns are those of ``policy.patterns``."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()  # the agent's own and those of every session above it
    protected: tuple[str, ...] = ()  # absolute paths that are read at most: sessions root, configuration
    hidden: tuple[str, ...] = ()  # absolute paths of directories nobody may see: that of the daemon's socket
    closed: tuple[
        str, ...
    ] = ()  # absolute paths of directories seen only where the scope names something inside them
    own: tuple[str, ...] = ()  # absolute paths inside ``closed`` that are seen where the scope is around them
    records: tuple[str, ...] = ()  # directories whose metadata is watched: the agent's and those above it
    commands: tuple[str, ...] = ()  # ``shell_commands.allow``
    network: bool = False
    confine: bool = True  # the preset's word
    wanted: Confinement = "auto"  # the machine's


UNCONFINED = ShellScope(confine=False)


# Which entries of a directory the rules are about, told from their names without looking at anything else.
#
# A pattern ``P/**`` is about everything below ``P``, so it comes to the directory ``P`` itself.

Effect = Literal["hide", "fixed", "git", "leave", "found"]
"""What becomes of an entry: not seen, not seen because of where it is, a git directory, not looked into, sought."""

_WILD = re.compile(r"[*?\[\\]")
_BELOW = "/**"


def base_of(pattern: str) -> tuple[str, bool]:
    """Return the pattern of the entry that ``pattern`` comes to, and whether it means what is below that."""
    pattern = normalise(pattern)
    below = pattern.endswith(_BELOW)
    while pattern.endswith(_BELOW):
        pattern = pattern[: -len(_BELOW)]
    return pattern, below


def floats(pattern: str) -> bool:
    """Return whether ``pattern`` is about a name wherever it stands, so that moving it changes nothing."""
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


# Places of the machine that programs need in order to run, and those that nobody's scope means.
#
# Rules that float (``**/NAME``) are about what people keep, so they do not hold in the system's directories: a
# ``**/runtime/**`` must not take away the library of a language.

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

# Secrets among what the system's programs read; who may not read them anyway loses nothing.
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


def is_kernels(path: str) -> bool:
    """Return whether ``path`` is nobody's file, so that no scope means it."""
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


def system_secrets() -> Iterator[str]:
    """Yield what of the system's directories is not shown."""
    for path in _SECRETS:
        if os.access(path, os.R_OK) and os.path.realpath(path) == path:
            yield path


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


def program_secrets(tree: str) -> Iterator[str]:
    """Yield what of an installation of programs is not shown: the keys of its registry."""
    for name in ("credentials", "credentials.toml"):
        if os.path.isfile(path := f"{tree}/{name}"):  # noqa: PTH113
            yield path


def resolver() -> str | None:
    """Return the file with the name servers, where ``/etc/resolv.conf`` is a link out of ``/etc``."""
    path = os.path.realpath("/etc/resolv.conf")
    return path if inside(path, "/run") and os.path.isfile(path) else None  # noqa: PTH113


# What one command may use up; room for any ordinary build, an end for what runs away.
#
# ==================== ====================== ======================================================= processes,
# threads 4,096 of the user where nothing confines, else of the command open files 65,536 (16,384 soft) size of a
# file 16 GiB processor time 10 min for each core of one process; a command has 10 min at most address space 256 GiB,
# soft a sanitizer that reserves more lifts it: ``ulimit -v unlimited`` core dumps none ====================
# ====================== =======================================================
#
# A limit of the daemon's own that is lower stays.

_PROCESSES = 4_096
_FILES_SOFT, _FILES_HARD = 16_384, 65_536
_FILE_KIB = 16 * 1024 * 1024
_CPU_S = 600
_ADDRESS_KIB = 256 * 1024 * 1024

_RAISED = f"""
ulimit -c 0; ulimit -u {_PROCESSES}; ulimit -f {_FILE_KIB}; ulimit -t {_CPU_S * (os.cpu_count() or 1)}
ulimit -Hn {_FILES_HARD}; ulimit -Sn {_FILES_SOFT}; ulimit -Sv {_ADDRESS_KIB}"""

# ``exec`` keeps the pid; what the shell cannot set (macOS knows fewer) is left as it is.
_SCRIPT = "{ " + "; ".join(_RAISED.strip().split("\n")) + '; } 2>/dev/null; exec /bin/bash -c "$1"'


def with_limits(command: str) -> tuple[str, ...]:
    """Return the argv that runs ``command`` with bash under the limits."""
    return "/bin/bash", "--noprofile", "--norc", "-c", _SCRIPT, "bash", command

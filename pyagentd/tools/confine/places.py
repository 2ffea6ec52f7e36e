"""Places of the machine that programs need in order to run, and those that nobody's scope means.

Rules that float (``**/NAME``) are about what people keep, so they do not hold in the system's directories: a
``**/runtime/**`` must not take away the library of a language.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

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

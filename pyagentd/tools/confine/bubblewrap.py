"""A plan as the arguments of ``bwrap``: namespaces of its own for processes, mounts, network and messages.

What is hidden or read-only is a mount of its own, and so is every directory between it and its tree: a directory
with a mount on it cannot be renamed or removed, so nothing can be put in the place of what is protected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pyagentd.tools.confine import places
from pyagentd.tools.confine.places import inside, parts
from pyagentd.tools.confine.plan import Plan
from pyagentd.tools.confine.trees import Trees

# Root keeps what installing into its own scope takes, and nothing that reaches the machine.
_ROOT_KEEPS = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SETGID", "CAP_SETUID", "CAP_KILL")

_TREE, _PIN, _READONLY, _HIDDEN = range(4)  # in this order where they meet


GIT_CONFIGURATION = "/run/gitconfig"


def arguments(plan: Plan, git_configuration: int | None = None) -> list[str]:
    """Return the options of ``bwrap`` for ``plan``; ``git_configuration`` is a descriptor of that file's content."""
    return [
        *("--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if plan.network else ("--unshare-net",)),
        *_capabilities(),
        *_base(plan),
        *(("--ro-bind-data", str(git_configuration), GIT_CONFIGURATION) if git_configuration is not None else ()),
        *_home(plan),
        *(word for _, _, words in sorted(_mounts(plan)) for word in words),
        *("--dir", plan.root),
        *(word for path, is_directory in plan.hidden if is_directory for word in ("--remount-ro", path)),
        *(() if _whole(plan) else ("--remount-ro", "/")),
        *("--chdir", plan.root, "--"),
    ]


def _capabilities() -> Iterator[str]:
    if os.geteuid() == 0:
        yield from ("--cap-drop", "ALL")
        for name in _ROOT_KEEPS:
            yield from ("--cap-add", name)


def _whole(plan: Plan) -> bool:
    return any(path == "/" for path, _ in plan.trees)


def _base(plan: Plan) -> Iterator[str]:
    """Yield what is there for every command."""
    for path, writable in plan.trees:
        if path == "/":
            yield from ("--bind" if writable else "--ro-bind", "/", "/")
    if not _whole(plan):
        for path in places.system_trees():
            yield from ("--ro-bind", path, path)
        for path, target in places.system_links():
            yield from ("--symlink", target, path)
    else:
        yield from ("--ro-bind-try", "/sys", "/sys")
    yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run")
    # Settings of the whole machine that root may write without any capability.
    for path in places.KERNEL_SETTINGS:
        yield from ("--ro-bind-try", path, path)
    if plan.temporary:
        yield from ("--perms", "1777", "--tmpfs", "/tmp")
    if not Trees(dict(plan.trees)).writable("/var/tmp"):
        yield from ("--perms", "1777", "--tmpfs", "/var/tmp")
    if plan.network and (resolver := places.resolver()) is not None:
        yield from ("--ro-bind", resolver, resolver)


def _mounts(plan: Plan) -> Iterator[tuple[list[str], int, list[str]]]:
    """Yield everything inside the base with what sorts it: by path, parents first."""
    hidden = {path for path, is_directory in plan.hidden if is_directory}
    for path, writable in plan.trees:
        if path != "/" and not (writable and (path in hidden or any(inside(path, kept) for kept in plan.readonly))):
            yield parts(path), _TREE, ["--bind-try" if writable else "--ro-bind-try", path, path]
    for path in plan.pinned:
        yield parts(path), _PIN, ["--bind-try", path, path]
    for path in plan.readonly:
        yield parts(path), _READONLY, _read_only(path)
    for path, is_directory in plan.hidden:
        yield parts(path), _HIDDEN, _hide(path, is_directory)


def _read_only(path: str) -> list[str]:
    if os.path.lexists(path):
        return ["--ro-bind-try", path, path]
    return ["--tmpfs", path, "--remount-ro", path]  # nothing can be put where it would be


def _hide(path: str, is_directory: bool) -> list[str]:
    # A device on a mount without devices: opening it is refused, which says more than an empty file.
    # A directory is made read-only when all is in place, since trees may be inside it.
    return ["--tmpfs", path] if is_directory else ["--ro-bind", "/dev/null", path]


def _home(plan: Plan) -> list[str]:
    """Return a home for programs that want to write there, where the scope has none; it is gone afterwards."""
    home, trees = plan.home, Trees(dict(plan.trees))
    if not home.startswith("/") or trees.of(home) is not None or places.is_system(home) or home == "/":
        return []
    return ["--tmpfs", home]

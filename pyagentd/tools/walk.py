"""The files under a directory, as somebody searching a project wants them.

Left out: ``.git``, what ``.gitignore`` files say (also those above, up to the repository), hidden names unless asked
for. Links to directories are not followed. Everything is opened relative to its directory's descriptor, so a link
swapped in while walking leads nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from pyagentd.errors import ToolError
from pyagentd.store.gitignore import Rules, ignores, rules_file, with_rules
from pyagentd.tools.beneath import open_directory, read_bytes

_DEPTH = 100
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class File(NamedTuple):
    """A file that was found; valid until the next one is asked for."""

    path: str  # absolute
    directory: int  # descriptor of its directory
    name: str
    is_link: bool


def walk(base: str, *, hidden: bool) -> Iterator[File]:
    """Yield the files under the resolved directory ``base``: those of a directory by name, then its directories'."""
    return _walk(open_directory(base), _slashed(base), _rules_above(base), hidden, 0)


def _walk(descriptor: int, path: str, rules: Rules | None, hidden: bool, depth: int) -> Iterator[File]:
    try:
        rules = with_rules(path, rules_file(".gitignore", descriptor), rules)
        directories = []
        with os.scandir(descriptor) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            name = entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if name == ".git" or (name.startswith(".") and not hidden) or ignores(rules, path + name, is_directory):
                continue
            if is_directory:
                directories.append(name)
            elif entry.is_symlink() or entry.is_file():
                yield File(path + name, descriptor, name, entry.is_symlink())
        for name in directories if depth < _DEPTH else ():
            with suppress(OSError):  # not readable, or gone
                below = os.open(name, _LIST, dir_fd=descriptor)
                yield from _walk(below, f"{path}{name}/", rules, hidden, depth + 1)
    finally:
        os.close(descriptor)


def _rules_above(base: str) -> Rules | None:
    """Return the rules of the directories above ``base``, up to its repository; none outside of one.

    Who searches in an ignored directory by name wants to see it, so its rules from above do not count.
    """
    above: list[str] = []
    directory = base
    while not os.path.lexists(os.path.join(directory, ".git")):  # noqa: PTH118 - strings all the way
        if directory == "/":
            return None
        directory = os.path.dirname(directory)  # noqa: PTH120
        above.append(directory)
    rules: Rules | None = None
    for directory in reversed(above):
        with suppress(OSError, ToolError):
            rules = with_rules(_slashed(directory), read_bytes(_slashed(directory) + ".gitignore"), rules)
    return None if ignores(rules, base, True) else rules


def _slashed(directory: str) -> str:
    return directory if directory.endswith("/") else directory + "/"

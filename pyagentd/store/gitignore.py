"""``.gitignore`` rules: whether a path is ignored; the nearest file that has a rule for it decides."""

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MOST_BYTES = 1_000_000  # read of one file


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """One ``.gitignore``, and those of the directories above."""

    directory: str  # ends with "/"
    spec: "GitIgnoreSpec"
    above: "Rules | None"


def ignores(rules: Rules | None, path: str, is_directory: bool) -> bool:
    """Return whether the absolute ``path`` is ignored."""
    while rules is not None:
        relative = path[len(rules.directory) :] + ("/" if is_directory else "")
        ignored = rules.spec.check_file(relative).include
        if ignored is not None:
            return ignored
        rules = rules.above
    return False


def with_rules(directory: str, text: bytes, above: Rules | None) -> Rules | None:
    """Return ``above`` extended by ``text``, the ``.gitignore`` of ``directory``."""
    if not text:
        return above
    from pathspec import GitIgnoreSpec  # not at the start of every daemon

    try:
        spec = GitIgnoreSpec.from_lines(text.decode(errors="replace").splitlines())
    except ValueError:  # a malformed file ignores nothing
        return above
    return Rules(directory, spec, above)


def rules_file(path: str, directory: int | None = None) -> bytes:
    """Return the text of a ``.gitignore``, "" if it is missing or no regular file; links are not followed.

    Args:
        path: The file, relative to ``directory`` if given.
        directory: A descriptor.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _MOST_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)

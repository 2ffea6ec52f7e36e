"""One file put back as it was: what would become of it, and how that is done in one step.

Files are reached by walking directory descriptors: a link that an agent left in place of a directory leads nowhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pyagentd.store.snapshots.objects import Entry
from pyagentd.tools.files import draft_name, parent, sweep

Becomes = Literal["restore", "delete", "create", "conflict", "unkept"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What restoring would do to one path.

    ``conflict`` is a file that somebody else changed too: it is kept, and both versions are there to choose from.
    """

    path: str
    becomes: Becomes
    target: Entry | None
    now: Entry | None
    reason: str = ""


def put(path: str, entry: Entry, content: bytes) -> None:
    """Make a file or link of ``path`` in one step, in the place of what is there."""
    with parent(path, create=True) as (directory, name):
        temporary = draft_name()
        try:
            if entry.is_link:
                os.symlink(content, temporary, dir_fd=directory)
            else:
                descriptor = os.open(temporary, _NEW, 0o600, dir_fd=directory)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fchmod(descriptor, stat.S_IMODE(entry.mode))
                    os.fsync(descriptor)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def sweep_beside(files: Iterable[str]) -> None:
    """Remove what a daemon that was killed while it wrote ``files`` left beside them."""
    for each in {path.rpartition("/")[0]: path for path in files}.values():
        sweep(each)


def remove(proposal: Proposal) -> None:
    """Remove what is there now: a file, a link, or a directory that is empty."""
    with parent(proposal.path) as (directory, name):
        if proposal.now is not None and proposal.now.is_dir:
            os.rmdir(name, dir_fd=directory)
        else:
            os.unlink(name, dir_fd=directory)


def removals(wanted: Iterable[Proposal]) -> list[Proposal]:
    """Return what has to go first: what is to be nothing, or of another kind; the innermost first."""

    def goes(each: Proposal) -> bool:
        if each.now is None:
            return False
        return each.target is None or each.now.is_dir != each.target.is_dir

    return sorted(filter(goes, wanted), key=lambda each: each.path, reverse=True)


def creations(wanted: Iterable[Proposal]) -> list[Proposal]:
    """Return what is to be there, the outermost first."""
    return sorted((each for each in wanted if each.target is not None), key=lambda each: each.path)

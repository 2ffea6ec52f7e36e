"""Which agents under a branch were left in the middle, by a killed process or a disk that refused.

Looks at the end of each log only: the last word about a run is that all its text is in the document. What is to be
done about the others is decided where they are opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyagentd.errors import StoreError
from pyagentd.store import atomic, paths
from pyagentd.store.lines import row_of
from pyagentd.store.paths import BranchRef

_TAIL: Final = 4096  # bytes; the last rows of a run that ended well are short


def unfinished_agents(branch_dir: Path) -> list[BranchRef]:
    """Return the agents below ``branch_dir``, at any depth, whose last run may lack its end or some of its text.

    Drafts that a killed process left beside their files are removed.
    """
    return list(_unfinished(branch_dir))


def _unfinished(branch_dir: Path) -> Iterator[BranchRef]:
    home = paths.agents_dir(branch_dir)
    try:
        places = sorted(home.iterdir())
    except OSError:  # none, or none that can be seen
        return
    for place in places:
        if paths.session_file(place).is_file():
            atomic.sweep(place)
            if not is_finished(paths.journal_file(place)):
                yield paths.agent_ref(place)
            yield from _unfinished(place)


def is_finished(log: Path) -> bool:
    """Return whether the log at ``log`` ends with the word that all text of its last run is in the document."""
    try:
        fd = atomic.open_read(log)
    except (FileNotFoundError, StoreError):
        return True
    try:
        end = os.fstat(fd).st_size
        tail = atomic.read_fd(fd, _TAIL, max(0, end - _TAIL), log)
    except StoreError:
        return True
    finally:
        atomic.close_fd(fd)
    for line in reversed(tail.split(b"\n")):
        row = row_of(line)
        if row is not None and row.type == "run":
            return row.data.get("state") == "kept"
        if row is not None and row.type in ("message", "part", "delta"):
            return False
    return not tail

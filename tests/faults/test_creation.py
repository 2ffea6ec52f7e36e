"""The disk fails while something is made: it is there completely or not at all, and nothing else was touched."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyagentd.errors import StoreError
from pyagentd.store import paths, sessions
from pyagentd.store.branching import create_branch
from pyagentd.store.paths import BranchRef
from tests.faults.disk import FaultyDisk, spoilt
from tests.store.places import StandingClock, tree
from tests.store.test_branching import told

PRESET = "---\ndescription: d\nbackend: b\nmodel: m\n---\nBody.\n"


def make_session(root: Path) -> BranchRef:
    return sessions.create_session(root, "new", preset_name="p", preset_text=PRESET, clock=StandingClock())


def make_agent(root: Path) -> BranchRef:
    parent = paths.ref_of(next(root.glob("*/branches/main")))
    return sessions.create_agent(
        parent, preset_name="p", preset_text=PRESET, description="look", read=["/**"], clock=StandingClock()
    )


def make_branch(root: Path) -> BranchRef:
    return create_branch(paths.ref_of(next(root.glob("*/branches/main"))), name="other", clock=StandingClock())


@pytest.mark.parametrize("make", [make_session, make_agent, make_branch])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("lasting", [False, True])
def test_what_cannot_be_made_leaves_nothing(
    tmp_path: Path, make: Callable[[Path], BranchRef], error: int, lasting: bool
) -> None:
    number, refused = 0, 0
    while True:
        number += 1
        root = tmp_path / str(number)
        told(root)
        before = tree(root)
        with spoilt(at=number, error=error, lasting=lasting) as disk:
            try:
                made = make(root)
            except StoreError as failure:
                refused += 1
                assert str(root) in str(failure) and os.strerror(error) in str(failure)
                left = tree(root) - before
                # The empty home of agents says nothing, and a draft that cannot be removed now is later.
                harmless = ("/agents", ".tmp") if lasting else ("/agents",)
                assert all(name.endswith(harmless) for name in left) and before <= tree(root), disk.calls[number - 1]
                assert make_after(disk, make, root).branch_dir.is_dir()
            else:
                assert paths.ref_of(made.branch_dir) == made
        if not disk.hit:
            break
        shutil.rmtree(root)
    assert refused > 10


def make_after(disk: FaultyDisk, make: Callable[[Path], BranchRef], root: Path) -> BranchRef:
    """Make it when the disk works again."""
    disk.lift()
    return make(root)

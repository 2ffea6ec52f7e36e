"""The disk fails while something is made: it is there completely or not at all, and nothing else was touched."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyagentd.errors import BadRequest, StoreError
from pyagentd.store import atomic, metadata, paths, sessions
from pyagentd.store.branching import create_branch, duplicate_session, fork_session
from pyagentd.store.conversation import Conversation
from pyagentd.store.export.importing import adopt_chat, fill, read_chat
from pyagentd.store.journal import read_rows
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from tests.faults.disk import KILLED, FaultyDisk, spoilt
from tests.store.places import StandingClock, tree
from tests.store.test_branching import told

PRESET = "---\ndescription: d\nbackend: b\nmodel: m\n---\nBody.\n"
FACTS = {"workspace_root": "/project", "agent": "p"}


def make_session(root: Path) -> BranchRef:
    return sessions.create_session(
        root, "new", preset_name="p", preset_text=PRESET, clock=StandingClock(), facts=FACTS
    )


def make_agent(root: Path) -> BranchRef:
    parent = paths.ref_of(next(root.glob("*/branches/main")))
    return sessions.create_agent(
        parent,
        preset_name="p",
        preset_text=PRESET,
        description="look",
        read=["/**"],
        clock=StandingClock(),
        facts=FACTS,
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


def make_duplicate(root: Path) -> BranchRef:
    return duplicate_session(paths.ref_of(next(root.glob("*/branches/main"))), root=root, clock=StandingClock())


def make_fork(root: Path) -> BranchRef:
    source = paths.ref_of(next(root.glob("*/branches/main")))
    conversation = Conversation(read_rows(paths.journal_file(source.branch_dir)))
    messages = list(conversation.messages.values())
    return fork_session(source, conversation, messages, root=root, title=None, clock=StandingClock())


def make_import(root: Path) -> BranchRef:
    (root.parent / "chat.md").write_text("### Hi\n\nHello\n")
    chat = read_chat(root.parent / "chat.md")
    return sessions.create_session(
        root,
        "imported",
        preset_name="p",
        preset_text=PRESET,
        clock=StandingClock(),
        fill=lambda id, place: fill(place, adopt_chat(chat, session_id=id, now_ms=1)),
        facts=FACTS,
    )


def listed(root: Path) -> dict[str, set[str]]:
    """Everything that commands list, each with the files in it."""
    found: dict[str, set[str]] = {}
    for ref in Registry(root).branches():
        for each in metadata.with_agents(ref):
            found[each.key] = {entry.name for entry in each.branch_dir.iterdir() if entry.name != "agents"}
    return found


@pytest.mark.parametrize("make", [make_session, make_agent, make_branch, make_duplicate, make_fork, make_import])
def test_a_daemon_killed_at_any_write_leaves_all_or_nothing_and_the_next_one_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], BranchRef]
) -> None:
    whole: dict[str, set[str]] = {}
    killed, number = 0, 0
    told(tmp_path / "told")
    while True:
        number += 1
        root = tmp_path / str(number) / "sessions"
        shutil.copytree(tmp_path / "told", root, symlinks=True)
        before, known = tree(root), listed(root)
        if (child := os.fork()) == 0:
            try:
                with spoilt(at=number, how="kill"):
                    make(root)
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, KILLED)
        found = listed(root)
        new = found.keys() - known.keys()
        if code == 0:
            whole = {key: found[key] for key in new}
            break
        killed += 1
        for key in new:  # it is whole, if it is there at all
            assert {"session.md", "preset.md", "scope-plan.yml"} <= found[key], number
            if make in (make_session, make_agent, make_import):
                assert Conversation(read_rows(paths.journal_file(Path(key)))).session.items() >= FACTS.items(), number
        assert all(found[key] == known[key] for key in known)
        with monkeypatch.context() as later:
            later.setattr(atomic, "_STARTED_S", time.time() + 3600)  # the next daemon
            sessions.sweep_drafts(root)
        assert not [name for name in tree(root) if "/.new-" in name], number
        if not new:
            assert {
                name for name in tree(root) - before if not name.endswith((".tmp", "/agents", "session.log"))
            } == set()
        assert make(root).branch_dir.is_dir()
        shutil.rmtree(root.parent)
    assert whole and killed > 10


def test_a_session_that_a_killed_daemon_was_making_elsewhere_is_made_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(**more: object) -> BranchRef:
        place = tmp_path / "activity" / "session"
        given = {"preset_name": "p", "preset_text": PRESET, "clock": StandingClock(), "session_id": "x"}
        return sessions.create_session(tmp_path / "sessions", "x", session_dir=place, **given, **more)  # type: ignore[arg-type]

    if (child := os.fork()) == 0:
        make(fill=lambda id, place: os._exit(KILLED))
    os.waitpid(child, 0)
    with pytest.raises(BadRequest, match="in use"):  # by a daemon that is alive, as far as is known
        make()
    monkeypatch.setattr(atomic, "_STARTED_S", time.time() + 3600)  # the next daemon
    assert make().branch_dir.is_dir()
    assert [entry.name for entry in (tmp_path / "activity").iterdir()] == ["session"]

"""Where something waits is remembered for the next daemon."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from pyagentd.clock import SystemClock
from pyagentd.runtime.opening import PendingHints
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.paths import BranchRef
from pyagentd.store.sessions import create_session
from tests.runtime.world import FixedClock


class Errands:
    """Runs what is to be done, and waits for it."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, errand: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(errand))

    async def done(self) -> None:
        await asyncio.gather(*self.tasks)


def session(root: Path, name: str) -> BranchRef:
    return create_session(root, name, preset_name="x", preset_text="---\n---\n", clock=FixedClock())


@pytest.fixture
def state(tmp_path: Path) -> Any:
    state = State(tmp_path)
    yield state
    state.close()


def hints(state: State, errands: Errands) -> PendingHints:
    return PendingHints(state, Projection(state, state.path.parent), SystemClock(), errands.spawn)


async def test_what_waits_is_found_by_the_next_and_what_was_settled_is_not(state: State, tmp_path: Path) -> None:
    errands, ref = Errands(), session(tmp_path, "a")
    first = hints(state, errands)
    for number in range(3):
        first.note(ref, "ask", f"ask_{number}")
    first.note(ref, "ask", "ask_1", waits=False)
    first.note(ref, "background", "agent")
    await errands.done()
    found = hints(state, errands).found()
    assert sorted((each.kind, each.id) for each in found) == [
        ("ask", "ask_0"),
        ("ask", "ask_2"),
        ("background", "agent"),
    ]
    assert {each.ref.key for each in found} == {ref.key}
    assert len(errands.tasks) == 1, "changes are gathered while the last ones are written"


async def test_hints_of_sessions_that_are_gone_are_forgotten(state: State, tmp_path: Path) -> None:
    errands, ref = Errands(), session(tmp_path, "a")
    hints(state, errands).note(ref, "ask", "ask_1")
    await errands.done()
    shutil.rmtree(ref.session_dir)
    assert hints(state, errands).found() == []
    with state.reading() as db:
        assert db.execute("SELECT count(*) FROM pending").fetchone() == (0,)


async def test_a_database_that_cannot_be_used_is_no_reason_not_to_start(tmp_path: Path) -> None:
    state, errands = State(tmp_path / "nowhere"), Errands()
    made = hints(state, errands)
    made.note(session(tmp_path, "a"), "ask", "ask_1")
    await errands.done()
    assert made.found() == []

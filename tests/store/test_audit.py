"""The audit's table, and its way there."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd.runtime.grants import Ledger
from pyagentd.store.db import audit
from pyagentd.store.db.audit import Entry
from pyagentd.store.db.state import State


def entry(number: int, branch: str = "s/branches/main", session: str = "s") -> Entry:
    return Entry(
        at_ms=number,
        session=session,
        branch_dir=branch,
        agent=None,
        run_id="run_1",
        tool="Read",
        action=f"tool:Read:/{number}",
        decision="allow",
        rule="scope",
    )


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(tmp_path)
    yield made
    made.close()


def test_the_latest_come_first_and_the_older_ones_by_pages(state: State) -> None:
    audit.append(state, [entry(number) for number in range(5)])
    first = audit.latest(state, limit=2)
    assert [each.at_ms for each in first] == [4, 3] and first[0] == entry(4)
    assert [each.at_ms for each in audit.latest(state, limit=9, before=first[-1].id)] == [2, 1, 0]


def test_a_place_means_itself_and_what_is_below(state: State) -> None:
    places = ["s/branches/main", "s/branches/main/agents/a", "s/branches/main2", "s_/branches/main", "s%/x"]
    audit.append(state, [entry(number, place) for number, place in enumerate(places)])
    within = {place: {each.at_ms for each in audit.latest(state, within=place, limit=9)} for place in places}
    assert within["s/branches/main"] == {0, 1}
    assert {each.at_ms for each in audit.latest(state, within="s", limit=9)} == {0, 1, 2}
    assert within["s_/branches/main"] == {3} and within["s%/x"] == {4}


def test_what_was_noted_is_there_after_a_flush(state: State) -> None:
    ledger = Ledger(state)
    for number in range(300):
        ledger.note(entry(number))
    assert ledger.flush() == ""
    assert [each.at_ms for each in audit.latest(state, limit=999)] == [*reversed(range(300))]
    ledger.note(entry(300))
    assert ledger.flush() == "" and len(audit.latest(state, limit=999)) == 301
    ledger.flush()


def test_what_waits_is_written_without_anybody_asking(state: State) -> None:
    ledger = Ledger(state)
    for number in range(10):
        ledger.note(entry(number))
    deadline = time.monotonic() + 30
    while len(audit.latest(state, limit=99)) < 10:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert Ledger(state).flush() == ""  # one that was never used


def test_what_the_disk_refuses_is_written_when_it_does_not(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    append, refused = audit.append, []

    def refusing(where: State, entries: list[Entry]) -> None:
        if not refused:
            refused.append(len(entries))
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            with where.writing():
                raise error
        append(where, entries)

    monkeypatch.setattr(audit, "append", refusing)
    ledger = Ledger(state)
    ledger.note(entry(1))
    assert "full" in ledger.flush()
    ledger.note(entry(2))
    assert ledger.flush() == ""
    assert [each.at_ms for each in audit.latest(state, limit=9)] == [2, 1]
    ledger.flush()


def test_a_damaged_database_gets_the_entries_that_wait(state: State) -> None:
    audit.append(state, [entry(1)])
    state.close()
    state.path.write_bytes(b"no database at all, but long enough to be read as one" * 200)
    ledger = Ledger(state)
    ledger.note(entry(2))
    assert ledger.flush() == ""
    assert [each.at_ms for each in audit.latest(state, limit=9)] == [2]
    ledger.flush()

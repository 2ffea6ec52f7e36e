"""The database: private, rebuilt when it is beyond use, and never the only place of anything but settings."""

import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from pyagentd.errors import StoreError
from pyagentd.store.db.state import APPLICATION_ID, MIGRATIONS, OWNED, Damaged, LaterVersion, State, StateError
from tests.store.places import STAMP, StandingClock


@pytest.fixture
def state(tmp_path):
    made = State(tmp_path, StandingClock())
    yield made
    made.close()


def pragma(state, name):
    with state.reading() as db:
        return db.execute(f"PRAGMA {name}").fetchone()[0]


def kept(root):
    return sorted(path.name for path in root.glob("state-*"))


def test_what_is_kept_is_read_again_after_its_memory_was_given_back(state):
    state.put("elsewhere", ["/é"])
    state.shrink()
    assert state.get("elsewhere") == ["/é"]
    state.close()
    state.shrink()
    assert state.get("elsewhere") == ["/é"]


def test_settings_are_kept_and_private(state, tmp_path):
    assert state.get("elsewhere", []) == []
    state.put("elsewhere", ["/é", {"a": None}])
    state.put("elsewhere", ["/é"])
    state.close()
    assert State(tmp_path).get("elsewhere") == ["/é"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("state.db*")} == {0o600}


def test_it_is_opened_as_the_schema_wants(state):
    wanted = {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "busy_timeout": 5000}
    wanted |= {"user_version": len(MIGRATIONS), "application_id": APPLICATION_ID}
    assert {name: pragma(state, name) for name in wanted} == wanted


def garbage(path):
    path.write_bytes(b"\x01garbage" * 1000)


def foreign(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE settings (mine TEXT)")
    db.close()


def newer(path):
    State(path.parent).get("x")
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()


def directory(path):
    path.mkdir()


def link(path):
    (path.parent / "target").write_text("not ours to write")
    path.symlink_to(path.parent / "target")


@pytest.mark.parametrize("spoil", [garbage, foreign, directory, link])
def test_what_cannot_be_used_is_moved_aside_and_kept(tmp_path, caplog, spoil):
    spoil(tmp_path / "state.db")
    state = State(tmp_path, StandingClock())
    state.put("a", 1)
    assert state.get("a") == 1
    assert f"state-{STAMP}.db" in kept(tmp_path) and "cannot be used" in caplog.text
    if spoil is link:
        assert (tmp_path / "target").read_text() == "not ours to write"
    state.close()


def test_what_a_later_version_wrote_is_refused_and_left_as_it_is(tmp_path):
    newer(tmp_path / "state.db")
    before = (tmp_path / "state.db").read_bytes()
    state = State(tmp_path, StandingClock())
    for use in (state.refuse_later, lambda: state.put("a", 1)):
        with pytest.raises(LaterVersion, match="later version of pyagentd"):
            use()
    state.close()
    assert kept(tmp_path) == [] and (tmp_path / "state.db").read_bytes() == before


def test_nothing_that_was_moved_aside_is_overwritten(tmp_path):
    for _ in range(3):
        garbage(tmp_path / "state.db")
        state = State(tmp_path, StandingClock())
        state.get("a")
        state.close()
    assert kept(tmp_path) == [f"state-{STAMP}-2.db", f"state-{STAMP}-3.db", f"state-{STAMP}.db"]


def filled(state):
    with state.writing() as db:
        db.executemany(
            "INSERT INTO settings VALUES (?, ?)", [(f"k{n:03}", '"' + "1" * 500 + '"') for n in range(500)]
        )
    state.close()


def test_damage_found_while_working_is_told_and_mended(state, tmp_path):
    filled(state)
    assert state.get("absent") is None  # open, and little of it read
    file = tmp_path / "state.db"
    size = file.stat().st_size
    with file.open("r+b") as pages:
        pages.seek(size // 2)
        pages.write(b"\xff" * (size - size // 2))
    with pytest.raises(Damaged, match="built anew"), state.reading() as db:
        db.execute("SELECT sum(length(value)) FROM settings").fetchone()
    assert state.get("k001") == "1" * 500 and state.get("k250") is None  # what can be read is taken over
    state.put("a", 1)
    assert kept(tmp_path) == [f"state-{STAMP}.db"]


def _owned(state):
    state.put("grants", ["Bash:ls"])
    with state.writing() as db:
        db.execute(
            "INSERT INTO audit (at_ms, session, branch_dir, run_id, tool, action, decision, rule, reason)"
            " VALUES (1, 's', 'b', 'r', 'Bash', 'a', 'allow', 'scope', '')"
        )
        db.execute(
            "INSERT INTO agents (name, dir, session_id, permissions, created_at, status, changed_at)"
            " VALUES ('mia', '/x', 'mia', 'open', '2026', 'idle', 1)"
        )
        db.execute(
            "INSERT INTO schedules (id, branch_dir, source, text, reason, kind, value, zone, auth_subject,"
            " options_json, created_at, next_at)"
            " VALUES ('1', 'b', 'schedule', 't', '', 'every', '60', '', 'me', '{}', 1, 2)"
        )
    state.close()


def _counts(state):
    with state.reading() as db:
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in OWNED}


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("DROP TABLE chat_parts", ""),
        ("DROP TABLE texts_index", ""),
        ("DROP INDEX audit_branch", ""),
        ("DROP TABLE audit", "audit"),
        ("DROP TABLE settings", "settings"),
        ("DROP TABLE schedules", "schedules"),
        ("ALTER TABLE agents ADD COLUMN more TEXT", ""),
        ("ALTER TABLE chat_sessions DROP COLUMN spent_json", ""),
        ("ALTER TABLE audit RENAME COLUMN at_ms TO at", "audit"),
        (
            "DROP TABLE settings; CREATE TABLE settings (key, value, more); INSERT INTO settings VALUES (NULL, 1, 2)",
            "settings",
        ),
        *((f"PRAGMA user_version = {number}", "") for number in (0, 1, 3, len(MIGRATIONS) - 1)),
    ],
)
def test_tables_that_are_not_ours_are_made_anew_and_what_only_the_file_had_is_taken_over(
    state, tmp_path, caplog, change, lost
):
    _owned(state)
    db = sqlite3.connect(tmp_path / "state.db")
    db.executescript(change)
    db.close()
    again = State(tmp_path, StandingClock())
    counts = _counts(again)
    again.put("a", 1)
    again.close()
    assert {name for name in ("settings", "audit", "agents", "schedules") if not counts[name]} == {lost} - {""}
    assert kept(tmp_path) == [f"state-{STAMP}.db"]
    assert ("Not all rows of" in caplog.text) == bool(lost) and (not lost or f"{lost} (" in caplog.text)


def test_a_file_that_is_deleted_while_it_is_open_is_written_again(state, tmp_path, caplog):
    _owned(state)
    before = _counts(state)
    for file in tmp_path.glob("state.db*"):
        file.unlink()
    assert _counts(state) == before
    state.put("b", 2)
    assert "is written again" in caplog.text
    state.close()
    assert State(tmp_path).get("grants") == ["Bash:ls"]
    assert (tmp_path / "state.db").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_replaced_while_it_is_open_counts(state, tmp_path):
    state.put("a", "old")
    (tmp_path / "elsewhere").mkdir()
    other = State(tmp_path / "elsewhere")
    other.put("a", "new")
    other.close()
    (tmp_path / "elsewhere" / "state.db").rename(tmp_path / "state.db")
    assert state.get("a") == "new"


def test_the_log_of_a_deleted_file_is_not_replayed(state, tmp_path):
    state.put("a", 1)
    (tmp_path / "state.db").unlink()  # as a user would, its companions left behind
    other = State(tmp_path)
    other.put("b", 2)
    assert (other.get("a"), other.get("b")) == (None, 2)
    other.close()


def test_an_exception_undoes_the_transaction(state):
    with pytest.raises(RuntimeError), state.writing() as db:
        db.execute("INSERT INTO settings VALUES ('a', '1')")
        raise RuntimeError
    assert state.get("a") is None


def test_a_reader_does_not_wait_for_a_writer(state):
    state.put("a", 1)
    seen = []
    with state.writing() as db:
        db.execute("UPDATE settings SET value = '2'")
        reader = threading.Thread(target=lambda: seen.append(state.get("a")))
        reader.start()
        reader.join(10)
    assert seen == [1]
    assert state.get("a") == 2


def test_a_killed_writer_leaves_what_was_committed(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from pyagentd.store.db.state import State\n"
        "state = State(Path(sys.argv[1])); state.put('a', 1)\n"
        "with state.writing() as db:\n"
        "    db.execute(\"INSERT INTO settings VALUES ('b', '2')\"); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    state = State(tmp_path)
    assert (state.get("a"), state.get("b")) == (1, None)
    assert not kept(tmp_path)
    state.close()


def test_a_refusal_names_the_file_and_what_to_see_to_and_nothing_of_the_index(tmp_path):
    state = State(tmp_path / "missing")
    with pytest.raises(StateError, match=r"missing/state\.db.*See that the disk has room") as refused:
        state.get("a")
    assert "search" not in str(refused.value), "settings and agents are in it, too"
    with pytest.raises(StoreError):
        state.put("a", 1)


def test_another_program_that_holds_the_file_is_waited_for_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr("pyagentd.store.db.state.BUSY_TIMEOUT_S", 0.05)
    state = State(tmp_path)
    state.put("a", 1)
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateError, match="locked"):
        state.put("a", 2)
    assert state.get("a") == 1
    other.close()
    state.put("a", 3)
    state.close()


def test_a_file_cut_short_is_rebuilt(state, tmp_path):
    filled(state)
    os.truncate(tmp_path / "state.db", 10_000)
    assert state.get("k499") is None
    assert kept(tmp_path) == [f"state-{STAMP}.db"]

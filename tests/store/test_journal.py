from __future__ import annotations

import json
import os
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.errors import StoreError
from pyagentd.store import atomic
from pyagentd.store.journal import Journal, Row, read_rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "messages.jsonl"


def part(id: str, text: str, state: str) -> dict[str, Any]:
    return {
        "id": id,
        "message_id": "m",
        "index": 0,
        "type": "text",
        "data_json": {"type": "text", "text": text, "state": state},
    }


def test_rows_are_numbered_from_one_and_read_back(path: Path) -> None:
    journal = Journal.open(path)
    assert journal.append("note", {"id": "a"}) == Row(1, "note", {"id": "a"})
    assert journal.append_many([("note", {"id": "b"}), ("note", {"id": "c"})])[1].seq == 3
    assert journal.last_seq == 3
    assert [row.data["id"] for row in journal.rows()] == ["a", "b", "c"]
    assert Journal.open(path).append("note", {"id": "d"}).seq == 4


def test_a_row_is_one_compact_line(path: Path) -> None:
    Journal.open(path).append("note", {"id": "é", "text": "a\nb"})
    assert path.read_text("utf-8") == '{"seq":1,"type":"note","data":{"id":"é","text":"a\\nb"}}\n'


def test_several_rows_are_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(path)
    writes: list[bytes] = []
    monkeypatch.setattr(atomic.system, "write", lambda fd, data: (writes.append(data), os.write(fd, data))[1])
    journal.append_many([("delta", {"part_id": "p", "text": "x"})] * 3)
    assert [data.count(b"\n") for data in writes] == [3]


@given(st.lists(st.text(), min_size=1), st.data())
def test_whatever_was_cut_off_every_complete_line_stays(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "messages.jsonl"
    journal = Journal.open(path)
    for text in texts:
        journal.append("note", {"id": text})
    journal.close()
    content = path.read_bytes()
    kept = content[: data.draw(st.integers(0, len(content)))]
    path.write_bytes(kept)

    journal = Journal.open(path)
    # A line that lacks only its newline is complete.
    complete = kept.count(b"\n") + (not kept.endswith(b"\n") and content[len(kept) : len(kept) + 1] == b"\n")
    assert [row.data["id"] for row in journal.rows()] == texts[:complete]
    assert path.read_bytes() == kept  # opening alone changes nothing
    journal.append("note", {"id": "next"})
    assert [json.loads(line)["seq"] for line in path.read_bytes().splitlines()] == list(range(1, complete + 2))
    assert [row.data["id"] for row in read_rows(path)] == [*texts[:complete], "next"]
    journal.close()


def test_a_damaged_line_in_the_middle_is_skipped_and_said(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b'{"seq":1,"type":"note","data":{"id":"a"}}\n\0\0\0\n{"seq":3,"type":"x","data":{"id":"b"}}\n')
    journal = Journal.open(path)
    assert [row.seq for row in journal.rows()] == [1, 3]
    assert journal.last_seq == 3
    assert "damaged" in caplog.text


def test_finished_deltas_are_replayed_but_not_kept(path: Path) -> None:
    journal = Journal.open(path)
    journal.append("part", part("p", "", "streaming"))
    journal.append_many([("delta", {"part_id": "p", "text": "He"}), ("delta", {"part_id": "p", "text": "y"})])
    journal.append("part", part("p", "Hey", "done"))
    journal.append("part", part("q", "", "streaming"))
    journal.append("delta", {"part_id": "q", "text": "open"})
    assert [row.seq for row in journal.rows()] == [1, 2, 3, 4, 5, 6]
    assert [row.seq for row in journal.current()] == [1, 4, 5, 6]


@given(st.lists(st.integers(0, 60_000), max_size=8), st.data())
def test_replay_begins_right_after_any_row(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "messages.jsonl"
    journal = Journal.open(path)
    for size in sizes:
        journal.append("note", {"id": "x" * size})
    after = data.draw(st.integers(0, len(sizes) + 1))
    expected = list(range(after + 1, len(sizes) + 1))
    assert [row.seq for row in journal.rows(after=after)] == expected
    with closing(Journal.open(path)) as other:
        assert [row.seq for row in other.rows(after=after)] == expected
    journal.close()


def test_what_takes_a_few_rows_does_not_read_the_rest_of_a_long_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.open(path)
    for _ in range(80):
        journal.append("note", {"id": "x" * 100_000})
    read: list[int] = []
    monkeypatch.setattr(atomic.system, "pread", lambda fd, size, at: (read.append(size), os.pread(fd, size, at))[1])
    assert [row.seq for row in islice(journal.rows_after(1), 3)] == [2, 3, 4]
    assert 0 < sum(read) < 5_000_000


def test_half_a_surrogate_pair_is_recorded_exactly(path: Path) -> None:
    journal = Journal.open(path)
    journal.append("note", {"id": "\ud83d"})
    assert journal.rows()[0].data == {"id": "\ud83d"}


def test_a_refusing_disk_is_a_store_error_and_adds_nothing(path: Path) -> None:
    journal = Journal.open(path)
    journal.append("note", {"id": "a"})
    journal.close()
    with pytest.raises(StoreError):
        journal.append("note", {"id": "b"})
    assert journal.last_seq == 1
    assert len(read_rows(path)) == 1


def test_no_log_is_an_empty_log(path: Path) -> None:
    assert read_rows(path) == []
    assert not path.exists()

"""A log that something happened to: every row that can be read is used, once, in order, and new ones come after."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.errors import StoreError
from pyagentd.store import atomic
from pyagentd.store.journal import Journal, read_rows


def line(seq: int, id: str, kind: str = "note", **data: Any) -> bytes:
    return json.dumps({"seq": seq, "type": kind, "data": {"id": id, **data}}, separators=(",", ":")).encode()


def delta(seq: int, text: str) -> bytes:
    data = {"part_id": "p", "text": text}
    return json.dumps({"seq": seq, "type": "delta", "data": data}, separators=(",", ":")).encode()


PART = {"message_id": "m", "index": 0, "type": "text"}
A, B, C, D = (line(number, name) for number, name in enumerate("abcd", 1))

DAMAGE: dict[str, tuple[bytes, str, int]] = {
    # what the file holds; the ids that are used; how many lines are damaged
    "nothing wrong": (b"\n".join([A, B, C, b""]), "abc", 0),
    "a torn last line": (A + b"\n" + B[:20], "a", 0),
    "no newline at the end": (A + b"\n" + B, "ab", 0),
    "a torn line in the middle": (A + b"\n" + B[:20] + b"\n" + C + b"\n", "ac", 1),
    "a torn line that the next one was written behind": (A + b"\n" + B[:20] + C + b"\n" + D + b"\n", "acd", 1),
    "a line of zeros": (A + b"\n\0\0\0\0\n" + C + b"\n", "ac", 1),
    "zeros before a row": (A + b"\n\0\0\0\0" + C + b"\n", "ac", 1),
    "zeros within a row": (A + b"\n" + B.replace(b'"id"', b'"\0\0"') + b"\n" + C + b"\n", "ac", 1),
    "zeros at the end": (A + b"\n" + b"\0" * 5000, "a", 0),
    "a byte order mark": (b"\xef\xbb\xbf" + A + b"\n" + B + b"\n", "ab", 0),
    "CRLF line ends": (A + b"\r\n" + B + b"\r\n" + C + b"\r\n", "abc", 0),
    "CRLF and no newline at the end": (A + b"\r\n" + B + b"\r", "ab", 0),
    "empty lines": (b"\n\n" + A + b"\n\n\n" + B + b"\n\n", "ab", 0),
    "the same line twice": (A + b"\n" + B + b"\n" + B + b"\n" + C + b"\n", "abc", 0),
    "the same line twice, once with CRLF": (A + b"\n" + B + b"\n" + B + b"\r\n" + C + b"\n", "abc", 0),
    "the whole file twice": (b"\n".join([A, B, C, A, B, C, b""]), "abc", 0),
    "two machines' files one after the other": (
        b"\n".join([A, B, line(3, "x"), line(4, "y"), A, B, line(3, "u"), b""]), "abxyu", 0,
    ),
    "numbers with gaps": (b"\n".join([A, line(7, "g"), line(90, "h"), b""]), "agh", 0),
    "a conflict of git's": (
        b"\n".join([
            A, b"<<<<<<< HEAD", line(2, "x"), line(3, "y"), b"=======", line(2, "u"), b">>>>>>> other", D, b"",
        ]), "axyud", 3,
    ),
    "a conflict that ends the file": (b"\n".join([A, b"=======", B, b">>>>>>> other"]), "ab", 2),
    "no JSON object": (A + b'\n[1]\n"x"\n17\nnull\n' + B + b"\n", "ab", 4),
    "no row": (A + b'\n{"seq":2}\n{"seq":"2","type":"x","data":{}}\n{"seq":3,"type":"x","data":[]}\n', "a", 3),
    "no number": (A + b'\n{"seq":-1,"type":"x","data":{}}\n{"seq":true,"type":"x","data":{}}\n' + B + b"\n", "ab", 2),
    "a number beyond all bounds": (A + b'\n{"seq":%d,"type":"x","data":{}}\n' % 10**40 + B + b"\n", "ab", 1),
    "nested without end": (A + b'\n{"seq":2,"type":"x","data":{"id":' + b"[" * 200_000 + b"\n" + C + b"\n", "ac", 1),
    "rows without what all readers need": (
        b"\n".join([A, line(2, "b", "part"), line(3, "c", "message"), line(4, "d", "run"), line(5, "e", "ask"), b""]),
        "a", 4,
    ),
    "rows whose values are of another kind than readers need": (
        b"\n".join([
            A, line(2, "b", "part", **PART, data_json=3), line(3, "c", "part", **PART, data_json={"text": None}),
            line(4, "d", "message", role="user", metadata_json="x"),
            line(5, "e", "part", **{**PART, "type": "tool-Read"}, data_json={"toolCallId": "t"}), b"",
        ]),
        "a", 4,
    ),
    "two halves that would be one row together": (
        A + b'\n{"seq":2,"type":"x","data":{"id":"q"\n"z":1}}\n' + C + b"\n", "ac", 2,
    ),
    "other spaces and another order": (
        A + b'\n{ "type": "x", "data": {"id": "s"}, "seq": 2 }\n' + C + b"\n", "asc", 0,
    ),
    "an object that looks like a row within a row": (
        A + b"\n" + line(2, "n", input={"seq": 9, "type": "note", "data": {"id": "no"}}) + b"\n" + C + b"\n",
        "anc", 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_every_readable_row_is_used_once_and_in_order(tmp_path: Path, name: str) -> None:
    content, ids, damaged = DAMAGE[name]
    path = tmp_path / "messages.jsonl"
    path.write_bytes(content)
    journal = Journal.open(path)
    assert "".join(row.data["id"] for row in journal.rows()) == ids
    assert "".join(row.data["id"] for row in journal.current()) == ids
    assert journal.damaged == damaged
    numbers = [row.seq for row in journal.rows()]
    assert numbers == sorted(set(numbers))
    assert path.read_bytes() == content, "reading changes nothing"


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_appended_comes_after_all_and_keeps_what_was_there(tmp_path: Path, name: str) -> None:
    content, ids, _ = DAMAGE[name]
    path = tmp_path / "messages.jsonl"
    path.write_bytes(content)
    journal = Journal.open(path)
    highest = max((row.seq for row in journal.rows()), default=0)
    assert journal.append("note", {"id": "+"}).seq > highest
    assert [row.data["id"] for row in journal.rows(after=highest)] == ["+"]
    journal.close()
    assert "".join(row.data["id"] for row in read_rows(path)) == ids + "+"
    kept = content[: content.rfind(b"\n") + 1] if name in ("a torn last line", "zeros at the end") else content
    assert path.read_bytes().startswith(kept)


def test_numbers_are_the_same_whenever_a_merged_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_bytes(b"".join(line(seq, str(seq) * 900) + b"\n" for seq in [*range(1, 200), *range(50, 300)]))
    first = {row.seq: row.data for row in Journal.open(path).rows()}
    journal = Journal.open(path)
    added = journal.append("note", {"id": "new"})
    again = {row.seq: row.data for row in Journal.open(path).rows()}
    assert again == {**first, added.seq: added.data}
    assert journal.rows(after=added.seq - 2) == Journal.open(path).rows(after=added.seq - 2)


def test_streamed_text_of_a_merged_log_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    open_part = line(1, "p", "part", **PART, data_json={"state": "streaming", "text": ""})
    path.write_bytes(b"\n".join([open_part, delta(2, "He"), delta(3, "y"), open_part, delta(2, "He"), b""]))
    assert [row.data.get("text") for row in Journal.open(path).current()] == [None, "He", "y"]


def test_a_full_row_supersedes_only_what_came_before_it(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    full = line(3, "p", "part", **PART, data_json={"state": "done", "text": "Hey"})
    path.write_bytes(b"\n".join([delta(1, "He"), delta(2, "y"), full, delta(4, "!"), b""]))
    assert [row.seq for row in Journal.open(path).current()] == [3, 4]


LINES = st.lists(st.sampled_from([A, B, C, D, delta(5, "x"), b"", b"\0\0", b"garbage", b"<<<<<<< HEAD", B[:9]]))


@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_no_mixture_of_lines_stops_a_log(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], end: bytes, ended: bool
) -> None:
    path = tmp_path_factory.mktemp("journal") / "messages.jsonl"
    path.write_bytes(end.join(lines) + (end if ended else b""))
    whole = {one for one in lines if one.endswith(b"}}")}
    journal = Journal.open(path)
    assert len(journal.rows()) == len(whole)
    row = journal.append("note", {"id": "+"})
    journal.close()
    with closing(Journal.open(path)) as other:
        assert [one.seq for one in other.rows()][-1] == row.seq
    assert len(read_rows(path)) == len(whole) + 1


@given(st.integers(0, 2**32))
def test_no_flipped_byte_costs_more_than_its_line(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.mktemp("journal") / "messages.jsonl"
    pick = random.Random(seed)
    content = bytearray(b"".join(line(number, f"m{number}") + b"\n" for number in range(1, 30)))
    where = pick.randrange(len(content))
    content[where] = pick.randrange(256)
    path.write_bytes(content)
    with closing(Journal.open(path)) as journal:
        ids = {row.data.get("id") for row in journal.rows()}
    # Of a newline in the middle both lines are lost, unless they can be told apart.
    assert len({f"m{number}" for number in range(1, 30)} - ids) <= 1


def test_a_long_log_is_opened_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    with path.open("wb") as file:
        seq = 0
        for number in range(100):
            for _ in range(400):
                seq += 1
                file.write(
                    b'{"seq":%d,"type":"delta","data":{"part_id":"p%d","text":"%b"}}\n'
                    % (seq, number, b"word " * 500)
                )
            seq += 1
            file.write(line(seq, f"p{number}", "part", **PART, data_json={"state": "done", "text": "words"}) + b"\n")
    assert path.stat().st_size > 100_000_000
    program = (
        "import resource, sys; from pathlib import Path; from pyagentd.store.journal import Journal\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "rows = Journal.open(Path(sys.argv[1])).current()\n"
        "print(len(rows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    rows, kilobytes = map(int, done.stdout.split())
    assert rows == 100
    assert kilobytes < 20_000


def test_a_log_where_nothing_can_be_written_is_read_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_bytes(A + b"\n" + B[:20])
    real = atomic.system.open

    def read_only(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & 3:
            raise OSError(30, "Read-only file system")
        return real(path, flags, mode)

    atomic.system.open = read_only  # type: ignore[method-assign]
    try:
        journal = Journal.open(path)
        assert [row.data["id"] for row in journal.current()] == ["a"]
        assert journal.refusal
        with pytest.raises(StoreError, match=r"messages\.jsonl: Read-only file system"):
            journal.append("note", {"id": "x"})
    finally:
        del atomic.system.open
    assert journal.append("note", {"id": "x"}).seq == 2  # the disk lets us again
    assert not journal.refusal
    assert "".join(row.data["id"] for row in read_rows(path)) == "ax"


def test_a_log_that_another_program_replaced_is_not_written_past_it(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    journal = Journal.open(path)
    journal.append("note", {"id": "a"})
    other = tmp_path / "other"
    other.write_bytes(line(1, "theirs") + b"\n")
    other.replace(path)
    with pytest.raises(StoreError, match=r"was replaced by another program.*messages\.replaced\.jsonl"):
        journal.append("note", {"id": "b"})
    assert [row.data["id"] for row in read_rows(path)] == ["theirs"]
    assert [row.data["id"] for row in read_rows(tmp_path / "messages.replaced.jsonl")] == ["a"]


def test_what_was_kept_of_a_log_that_was_replaced_stays_when_it_is_replaced_again(tmp_path: Path) -> None:
    path, other = tmp_path / "messages.jsonl", tmp_path / "other"
    for number, id in enumerate("ab"):
        journal = Journal.open(path)
        journal.append("note", {"id": id})
        other.write_bytes(line(1, f"theirs-{number}") + b"\n")
        other.replace(path)
        for _ in range(2):  # one that is tried again keeps no second copy
            with pytest.raises(StoreError, match="was replaced by another program"):
                journal.append("note", {"id": "c"})
    kept = {file.name: [row.data["id"] for row in read_rows(file)] for file in tmp_path.glob("*.replaced*")}
    assert kept == {"messages.replaced.jsonl": ["a"], "messages.replaced-2.jsonl": ["theirs-0", "b"]}


def test_a_log_that_another_program_removed_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    journal = Journal.open(path)
    journal.append("note", {"id": "a"})
    path.unlink()
    journal.append("note", {"id": "b"})
    journal.sync()
    assert [row.data["id"] for row in read_rows(path)] == ["a", "b"]


def test_a_session_that_was_moved_away_is_said(tmp_path: Path) -> None:
    place = tmp_path / "session"
    place.mkdir()
    journal = Journal.open(place / "messages.jsonl")
    journal.append("note", {"id": "a"})
    place.rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="moved or deleted while it was open"):
        journal.append("note", {"id": "b"})
    assert [row.data["id"] for row in read_rows(tmp_path / "moved" / "messages.jsonl")] == ["a"]


def test_rows_that_another_program_added_are_not_numbered_over(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    journal = Journal.open(path)
    journal.append("note", {"id": "a"})
    with path.open("ab") as file:
        file.write(line(2, "theirs") + b"\n" + line(3, "too") + b"\n")
    assert journal.append("note", {"id": "b"}).seq == 4
    assert "".join(row.data["id"] for row in read_rows(path)) == "atheirstoob"


def test_a_row_is_not_written_behind_what_another_program_left_torn(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    journal = Journal.open(path)
    journal.append("note", {"id": "a"})
    with path.open("ab") as file:
        file.write(line(2, "theirs") + b"\n" + line(3, "torn")[:20])
    journal.append("note", {"id": "b"})
    assert [row.data["id"] for row in journal.rows()] == ["a", "theirs", "b"]
    assert path.stat().st_size == journal.size
    assert "".join(row.data["id"] for row in read_rows(path)) == "atheirsb"


def test_after_a_failed_sync_what_was_recorded_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    journal = Journal.open(path)
    journal.append("note", {"id": "a"})
    journal.sync()
    journal.append("note", {"id": "b"})
    before = path.stat().st_ino

    def refuse(fd: int) -> None:
        raise OSError(5, "Input/output error")

    atomic.system.fsync = refuse  # type: ignore[method-assign]
    try:
        with pytest.raises(StoreError, match=r"messages\.jsonl: Input/output error.*written anew"):
            journal.sync()
    finally:
        del atomic.system.fsync
    # The disk lost what was written since the sync that succeeded, as disks do.
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    with path.open("r+b") as file:
        file.write(content[:first] + b"\0" * (len(content) - first))
    journal.append("note", {"id": "c"})
    journal.sync()
    assert path.stat().st_ino != before
    assert "".join(row.data["id"] for row in read_rows(path)) == "abc"


def test_a_sync_goes_on_failing_until_what_was_recorded_was_written_anew(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "messages.jsonl")
    journal.append("note", {"id": "a"})
    refusals = [OSError(28, "No space left on device")]

    def refuse_once(fd: int) -> None:
        if refusals:
            raise refusals.pop()

    atomic.system.fsync = refuse_once  # type: ignore[method-assign]
    try:
        for _ in range(2):  # the kernel reports such a failure once only
            with pytest.raises(StoreError):
                journal.sync()
        journal.append("note", {"id": "b"})
        journal.sync()
    finally:
        del atomic.system.fsync

"""One file, link or directory at a time: whatever call fails or is the last one, what is on disk is old or new."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pyagentd.errors import StoreError
from pyagentd.store import atomic
from pyagentd.store.journal import Journal, read_rows
from tests.faults.disk import ERRORS, Died, How, spoilt


def calls_of(act: Callable[[], object]) -> int:
    """Return how many calls to the operating system ``act`` makes."""
    with spoilt() as disk:
        act()
    return len(disk.calls)


def replacing(place: Path) -> Callable[[], object]:
    return lambda: atomic.write_text(place / "a.md", "new\n" * 1000)


def linking(place: Path) -> Callable[[], object]:
    return lambda: atomic.replace_link(place / "current", "branches/new")


def old(place: Path) -> None:
    place.mkdir(exist_ok=True)
    (place / "a.md").write_text("old\n")
    (place / "current").unlink(missing_ok=True)
    (place / "current").symlink_to("branches/old")


def content(place: Path) -> tuple[str, str]:
    return (place / "a.md").read_text(), str((place / "current").readlink())


HOW: list[How] = ["refuse", "late", "short"]


@pytest.mark.parametrize("acting", [replacing, linking])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("lasting", [False, True])
def test_a_file_is_old_or_new_whatever_call_fails(
    tmp_path: Path, acting: Callable[[Path], Callable[[], object]], error: int, how: How, lasting: bool
) -> None:
    old(tmp_path)
    old_content = content(tmp_path)
    act = acting(tmp_path)
    count = calls_of(act)
    new_content = content(tmp_path)
    assert count >= 4
    for number in range(1, count + 1):
        old(tmp_path)
        with spoilt(at=number, error=error, how=how, lasting=lasting) as disk:
            try:
                act()
                refused = False
            except StoreError as failure:
                refused = True
                assert str(tmp_path) in str(failure)
                assert os.strerror(error) in str(failure)
        assert disk.hit
        found = content(tmp_path)
        assert found in (old_content, new_content), disk.calls
        assert refused or found == new_content, "what was not refused was done"
        if not lasting:
            assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "current"], disk.calls
        for draft in tmp_path.glob(".*"):
            draft.unlink()


@pytest.mark.parametrize("acting", [replacing, linking])
def test_a_file_is_old_or_new_wherever_the_process_dies(
    tmp_path: Path, acting: Callable[[Path], Callable[[], object]]
) -> None:
    old(tmp_path)
    old_content = content(tmp_path)
    act = acting(tmp_path)
    count = calls_of(act)
    new_content = content(tmp_path)
    for number in range(1, count + 1):
        old(tmp_path)
        with spoilt(at=number, how="die"), pytest.raises(Died):
            act()
        assert content(tmp_path) in (old_content, new_content)
        for path in tmp_path.iterdir():
            os.utime(path, (0, 0), follow_symlinks=False)
        atomic.sweep(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "current"]


def test_only_our_own_old_drafts_are_swept(tmp_path: Path) -> None:
    stay = [".a.md.tmp", "a.md.0123456789abcdef.tmp", ".gitignore", ".a.md.0123456789ABCDEF.tmp", "session.md"]
    for name in [*stay, ".a.md.0123456789abcdef.tmp", ".session.md.Ab3xYz.tmp"]:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    for name in (".b.md.0123456789abcdef.tmp", ".session.md.Cd4uVw.tmp"):  # being written now
        (tmp_path / name).touch()
    (tmp_path / ".c.md.0123456789abcdef.tmp").mkdir()
    os.utime(tmp_path / ".c.md.0123456789abcdef.tmp", (0, 0))
    atomic.sweep(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    being_written = {".b.md.0123456789abcdef.tmp", ".session.md.Cd4uVw.tmp"}
    assert left == {*stay, *being_written, ".c.md.0123456789abcdef.tmp"}
    atomic.sweep(tmp_path / "missing")


@pytest.mark.parametrize("how", [*HOW, "die"])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("again", [False, True], ids=["reopened", "same"])
def test_a_log_has_a_row_or_not_whatever_call_fails(tmp_path: Path, how: How, lasting: bool, again: bool) -> None:
    number = 0
    while True:
        number += 1
        path = tmp_path / f"{how}{number}.jsonl"
        with spoilt(at=number, error=errno.ENOSPC, how=how, lasting=lasting) as disk:
            done: list[str] = []
            try:
                journal = Journal.open(path)
                for name in "abc":
                    journal.append_many([("note", {"id": name}), ("note", {"id": name.upper()})])
                    done += [name, name.upper()]
                    journal.sync()
            except (StoreError, Died) as failure:
                assert how == "die" or f"{path}: No space left" in str(failure) or str(tmp_path) in str(failure)
            disk.lift()
            if how == "die" or not again:
                journal = Journal.open(path)
            journal.append("note", {"id": "+"})
            journal.sync()
        found = [row.data["id"] for row in read_rows(path)]
        assert found[: len(done)] == done, disk.calls
        assert found[-1] == "+"
        assert set(found[len(done) : -1]) <= set("abcABC")  # a row that was written, though it was not heard of
        assert len(found) == len(set(found))
        assert all(line.startswith(b'{"seq":') for line in path.read_bytes().splitlines())
        if not disk.hit:
            break
    assert number > 6


@pytest.mark.parametrize("error", ERRORS)
def test_a_log_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path, error: int) -> None:
    path = tmp_path / "messages.jsonl"
    journal = Journal.open(path)
    journal.append("note", {"id": "a"})
    journal.close()
    with spoilt(reads=True) as disk:
        read_rows(path)
    calls = len(disk.calls)
    read_at_all = 0
    for number in range(1, calls + 1):
        with spoilt(at=number, error=error, reads=True) as disk:
            try:
                read_rows(path)
                read_at_all += 1  # it could not be opened for writing, or not be closed
            except StoreError as failure:
                assert str(failure) == f"{path}: {os.strerror(error)}"
    assert read_at_all == 2
    assert [row.data["id"] for row in read_rows(path)] == ["a"]


def test_directories_are_made_or_refused_by_name(tmp_path: Path) -> None:
    count = calls_of(lambda: atomic.make_dirs(tmp_path / "x" / "y"))
    for number in range(1, count + 1):
        place = tmp_path / str(number) / "y"
        with spoilt(at=number, error=errno.EROFS):
            try:
                atomic.make_dirs(place)
            except StoreError as failure:
                assert str(failure).startswith(f"{place}: Read-only")
        atomic.make_dirs(place)
        assert place.is_dir()


NAMES = [b"with space", b"line\nbreak", b"\xff\xfe not UTF-8", "𝔘nicode é".encode(), b"-rf *", b"n" * 255]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_fine(tmp_path: Path, name: bytes) -> None:
    place = tmp_path / os.fsdecode(name)
    atomic.make_dirs(place / "sub")
    file = place / os.fsdecode(name)
    atomic.write_text(file, "text")
    atomic.write_text(file, "other")
    atomic.replace_link(place / "link", os.fsdecode(name))
    assert (place / "link").read_text() == "other"
    journal = Journal.open(place / "messages.jsonl")
    journal.append("note", {"id": "a"})
    journal.sync()
    assert len(read_rows(place / "messages.jsonl")) == 1
    assert {path.name for path in place.iterdir()} == {"sub", file.name, "link", "messages.jsonl"}


def test_a_directory_that_is_reached_through_a_link_is_written_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    atomic.write_text(tmp_path / "link" / "a.md", "text")
    atomic.make_dirs(tmp_path / "link" / "b")
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == ["a.md", "b"]

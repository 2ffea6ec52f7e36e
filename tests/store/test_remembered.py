"""What was read or written is not read, hashed and printed again, and what is remembered is what the file says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.events import InsertRole
from pyagentd.store.document import files
from pyagentd.store.document import text as document
from pyagentd.store.document.files import (
    CachedDocument,
    DocumentCache,
    DocumentFile,
    apply,
    format_document,
    parse_bytes,
)
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import Document, Kind, Settings, Span, body_sha256, format_file

TEXTS = st.text(st.sampled_from('aé🙂 \n\r"\\\udce9\udcc3'), max_size=9) | st.just("x\n# Local Variables:\n# End:\n")
ROLES: list[InsertRole] = [None, "response", "ignore", ("tool", "toolu_1"), ("tool", "a b"), ("tool", "")]
STEPS = st.lists(st.tuples(TEXTS, st.sampled_from(ROLES), st.integers(0, 40) | st.none()), max_size=8)
LATER = 10**18


def insert(text: str, role: InsertRole = "response") -> Insert:
    return Insert(seq=1, part_id="", text=text, role=role)


def data(doc: Document) -> bytes:
    return format_file(doc).encode("utf-8", "surrogateescape")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.md"


@pytest.fixture
def memory() -> DocumentCache:
    return DocumentCache()


class TestFormatted:
    @given(STEPS, st.sampled_from([Settings(), Settings(model="m", other=(("fill-column", "80"),))]), st.booleans())
    def test_a_document_that_grows_is_formatted_as_from_nothing(
        self, steps: list[tuple[str, InsertRole, int | None]], settings: Settings, is_read: bool
    ) -> None:
        doc = Document(settings=settings)
        known = parse_bytes(data(doc)) if is_read else None
        for text, role, place in steps:
            doc, _ = apply(doc, len(doc.body) if place is None else min(place, len(doc.body)), insert(text, role))
            known = format_document(doc, known)
            assert known.data == data(doc)
            assert known.sha256 == body_sha256(doc.body)
            assert known.data[: known.length] == doc.body.encode("utf-8", "surrogateescape")
            if known.faithful:
                again = parse_bytes(known.data)
                assert (again.document, again.document.damage, again.faithful) == (doc, doc.damage, True)

    def test_a_usual_document_is_faithful(self) -> None:
        doc, _ = apply(Document(settings=Settings(model="m")), 0, insert("### hé\n\n", None), insert("Hello"))
        assert format_document(doc).faithful

    @given(STEPS)
    def test_inserts_together_make_what_they_make_one_by_one(
        self, steps: list[tuple[str, InsertRole, int | None]]
    ) -> None:
        inserts = [insert(text, role) for text, role, _ in steps]
        doc = Document(body="### hi\n\nthere", spans=(Span(4, 6, "ignore"), Span(6, 10, "response")))
        for marker in (0, 5, 6, 8, 10, len(doc.body)):
            one, place = doc, marker
            for each in inserts:
                one, place = apply(one, place, each)
            assert apply(doc, marker, *inserts) == (one, place)

    def test_of_a_long_document_only_the_new_text_is_hashed_and_printed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a turn costs must not grow with the conversation: at turn 200 as much is done as at turn 20."""
        printed: list[int] = []
        one = document._print_bound

        def counted(start: int, end: int, kind: Kind, call_id: str) -> str:
            printed.append(start)
            return one(start, end, kind, call_id)

        monkeypatch.setattr(document, "_print_bound", counted)
        doc, known, work = Document(settings=Settings(model="m")), None, []
        for _ in range(200):
            doc, _ = apply(doc, len(doc.body), insert("### How?\n\n", None), insert("So.\n"), insert("\n\n", None))
            printed.clear()
            fresh = _Counted(known)
            known = format_document(doc, fresh.formatted)
            work.append((len(printed), fresh.hashed))
            known = replace(known, hash=fresh.plain())
        assert work[20] == work[199] == (2, len("### How?\n\nSo.\n\n\n"))


class _Counted:
    """A document before, whose hash counts what it is fed."""

    def __init__(self, known: DocumentFile | None) -> None:
        self.hashed = 0
        known = known or format_document(Document(settings=Settings(model="m")))
        self._state = known.hash.copy()
        self.formatted = replace(known, hash=self)

    def copy(self) -> _Counted:
        return self

    def update(self, data: bytes) -> None:
        self.hashed += len(data)
        self._state.update(data)

    def plain(self) -> object:
        return self._state


class TestMemory:
    def test_a_file_that_did_not_change_is_parsed_once(self, memory: DocumentCache, path: Path) -> None:
        path.write_bytes(data(Document(body="hi", settings=Settings(model="m"))))
        assert memory.read(path) == memory.read(path)
        assert memory.parsed == 1

    def test_a_file_that_was_just_written_is_compared(self, memory: DocumentCache, path: Path) -> None:
        for text in (b"one", b"two", b"two"):
            path.write_bytes(text)
            os.utime(path, ns=(LATER, LATER))  # as if it were written within one tick
            assert memory.read(path).document.body == text.decode()
        assert memory.parsed == 2

    def test_a_file_put_in_the_place_of_ours_is_found(self, memory: DocumentCache, path: Path) -> None:
        path.write_bytes(b"theirs")
        ours = format_document(Document(body="ours..", settings=Settings(model="m")))
        memory.remember(path, CachedDocument(formatted=ours, stamp=None))
        assert memory.read(path).document.body == "theirs"

    def test_what_was_written_is_not_parsed(self, memory: DocumentCache, path: Path) -> None:
        known = format_document(Document(body="ours", settings=Settings(model="m")))
        path.write_bytes(known.data)
        memory.remember(path, CachedDocument(formatted=known, stamp=None))
        parsed_before = memory.parsed
        assert memory.read(path).formatted is known
        assert memory.parsed == parsed_before

    def test_a_document_that_is_not_read_as_it_was_written_is_not_remembered(
        self, memory: DocumentCache, path: Path
    ) -> None:
        known = format_document(Document(body="ours", spans=(Span(0, 4, "tool", "a b"),)))
        path.write_bytes(known.data)
        memory.remember(path, CachedDocument(formatted=known, stamp=None))
        assert memory.read(path).document.spans == (Span(0, 4, "tool", "a_b"),)

    def test_what_is_wrong_with_a_file_is_said_at_every_reading(self, memory: DocumentCache, path: Path) -> None:
        path.write_bytes(b"a\r\nb\r\n")
        assert [bool(memory.read(path).document.damage) for _ in range(2)] == [True, True]

    def test_a_missing_file_is_an_empty_document(self, memory: DocumentCache, path: Path) -> None:
        assert (memory.read(path).document, memory.read(path).stamp) == (Document(), None)

    def test_it_keeps_a_few(self, memory: DocumentCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "KEPT", 2)
        monkeypatch.setattr(files, "KEPT_BYTES", 8)
        for name, text in (("a", "1"), ("b", "2"), ("c", "3"), ("d", "123456789")):
            (tmp_path / name).write_text(text)
        for name in ("a", "b", "c", "c", "b", "a"):
            memory.read(tmp_path / name)
        assert memory.parsed == 4
        memory.read(tmp_path / "d")
        memory.read(tmp_path / "d")
        assert memory.parsed == 6

    def test_a_glance_says_what_the_file_says_and_has_nothing_kept(self, path: Path, memory: DocumentCache) -> None:
        assert memory.glance(path) == (Document(), None)
        path.write_bytes(data(Document(body="one")))
        assert memory.glance(path)[0].body == "one"
        kept = memory.read(path)
        assert (memory.parsed, memory.glance(path)[0] is kept.document) == (1, True)
        path.write_bytes(data(Document(body="three")))
        assert memory.glance(path)[0].body == "three"
        assert memory.parsed == 1

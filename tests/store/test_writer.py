"""Inserts go to the marker, and a document is never written over what was not read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.errors import StoreError
from pyagentd.events import InsertRole
from pyagentd.store.document import text as document
from pyagentd.store.document.files import DocumentChanged, apply, document_cache, write_document
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import Document, Settings, Span, body_sha256

ROLES: list[InsertRole] = [None, "response", "ignore", ("tool", "a"), ("tool", "b")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.md"


def insert(text: str, role: InsertRole = "response", seq: int = 1) -> Insert:
    return Insert(text, role, "p", seq)


def roles(doc: Document) -> list[InsertRole]:
    """The role of every character."""
    result: list[InsertRole] = [None] * len(doc.body)
    for start, end, kind, id in doc.spans:
        role: InsertRole = ("tool", id) if kind == "tool" else kind
        result[start:end] = [role] * (end - start)
    return result


class TestApply:
    @given(st.lists(st.tuples(st.text(min_size=1), st.sampled_from(ROLES), st.integers(0, 99)), max_size=12))
    def test_text_and_role_go_to_the_marker_and_nothing_else_changes(
        self, steps: list[tuple[str, InsertRole, int]]
    ) -> None:
        doc = Document()
        for text, role, place in steps:
            marker = min(place, len(doc.body))
            body, before = doc.body, roles(doc)
            doc, after = apply(doc, marker, insert(text, role))
            assert doc.body == body[:marker] + text + body[marker:]
            assert after == marker + len(text)
            assert roles(doc) == before[:marker] + [role] * len(text) + before[marker:]
            for left, right in zip(doc.spans, doc.spans[1:], strict=False):
                assert left.end <= right.start
                assert left.end < right.start or (left.kind, left.id) != (right.kind, right.id)

    def test_text_typed_at_the_marker_stays_below_and_is_the_users(self) -> None:
        doc = Document(body="### hi\n\ndraft")
        doc, marker = apply(doc, 8, insert("Hello"))
        assert (doc.body, doc.spans, marker) == ("### hi\n\nHellodraft", (Span(8, 13, "response"),), 13)


class TestFile:
    def test_what_was_written_is_read_back(self, path: Path) -> None:
        doc, _ = apply(Document(), 0, insert("### hi\n\n", None), insert("Hello"))
        assert write_document(path, doc).formatted.sha256 == body_sha256("### hi\n\nHello")
        assert document.read(path) == doc

    def test_a_file_that_changed_since_it_was_read_is_not_overwritten(self, path: Path) -> None:
        path.write_text("mine")
        before = document_cache.read(path)
        path.write_text("changed by hand")
        with pytest.raises(DocumentChanged):
            write_document(path, Document(body="ours"), before)
        assert path.read_text() == "changed by hand"

    def test_a_file_that_nobody_read_is_not_overwritten(self, path: Path) -> None:
        path.write_text("mine")
        with pytest.raises(DocumentChanged):
            write_document(path, Document(body="ours"))
        assert path.read_text() == "mine"

    def test_a_refusing_disk_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError):
            write_document(tmp_path / "missing" / "session.md", Document(body="ours"))

    def test_a_file_that_was_written_here_is_not_parsed(self, path: Path) -> None:
        doc, marker = apply(Document(settings=Settings(model="m")), 0, insert("### hi\n\n", None), insert("Hello"))
        write_document(path, doc)
        parsed_before = document_cache.parsed
        read = document_cache.read(path)
        doc, _ = apply(read.document, marker, insert(" there"))
        assert write_document(path, doc, read).formatted.sha256 == body_sha256("### hi\n\nHello there")
        assert document.read(path) == doc
        assert document_cache.parsed == parsed_before

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.errors import StoreError
from pyagentd.events import InsertRole
from pyagentd.store.document import text as document
from pyagentd.store.document.files import DocumentWriter, apply
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
    def test_what_was_inserted_is_on_disk_after_persisting(self, path: Path) -> None:
        writer = DocumentWriter(path)
        writer.insert(insert("### hi\n\n", None))
        writer.insert(insert("Hello"))
        assert writer.unsaved
        sha256 = writer.persist()
        assert not writer.unsaved
        assert document.read(path) == writer.document
        assert sha256 == body_sha256("### hi\n\nHello")

    def test_a_file_that_was_not_read_is_never_overwritten(self, path: Path) -> None:
        path.write_text("mine")
        writer = DocumentWriter.load(path)
        writer.insert(insert("x"))
        path.write_text("changed by hand")
        assert writer.changed_on_disk()
        with pytest.raises(StoreError, match="changed since it was read"):
            writer.persist()
        assert path.read_text() == "changed by hand"

    def test_a_writer_that_read_nothing_overwrites_nothing(self, path: Path) -> None:
        path.write_text("mine")
        writer = DocumentWriter(path)
        writer.insert(insert("x"))
        with pytest.raises(StoreError):
            writer.persist()

    def test_nothing_new_is_not_written(self, path: Path) -> None:
        path.write_text("mine")
        os.utime(path, ns=(1, 1))
        writer = DocumentWriter.load(path)
        assert writer.persist() == body_sha256("mine")
        assert path.stat().st_mtime_ns == 1

    def test_settings_of_others_stay(self, path: Path) -> None:
        path.write_text("hi\n\n<!-- Local Variables: -->\n<!-- fill-column: 80 -->\n<!-- End: -->\n")
        writer = DocumentWriter.load(path)
        writer.set_settings(Settings(model="claude-opus-5"))
        writer.persist()
        assert document.read(path).settings == Settings(model="claude-opus-5", other=(("fill-column", "80"),))

    def test_a_refusing_disk_leaves_it_unsaved(self, tmp_path: Path) -> None:
        writer = DocumentWriter(tmp_path / "missing" / "session.md")
        writer.insert(insert("x"))
        with pytest.raises(StoreError):
            writer.persist()
        assert writer.unsaved

"""Rows that are written together: one write, in order, shown after it; what the disk refuses was not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import StoreError
from pyagentd.runtime.recorder import Recorder
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.render import Insert, Renderer
from pyagentd.store.journal import Journal, Row
from tests.runtime.world import FixedClock


class NoPulse:
    """A beat that never comes."""

    def request(self, phase: str, flush: Any) -> None:
        pass


class Shown:
    """A recorder, and what it showed and wrote."""

    def __init__(self, place: Path) -> None:
        self.rows: list[Row] = []
        self.journal = Journal.open(place / "messages.jsonl")
        self.recorder = Recorder(
            journal=self.journal,
            conversation=Conversation(),
            renderer=Renderer(),
            pulse=NoPulse(),  # type: ignore[arg-type]
            clock=FixedClock(),
            show=self._show,
        )

    def _show(self, row: Row, inserts: list[Insert]) -> None:
        self.rows.append(row)


def message(id: str) -> dict[str, Any]:
    return {"id": id, "role": "assistant", "metadata_json": {}}


def part(id: str, text: str) -> dict[str, Any]:
    return {"id": id, "message_id": "m", "type": "text", "index": 0, "data_json": {"type": "text", "text": text}}


@pytest.fixture
def shown(tmp_path: Path) -> Any:
    made = Shown(tmp_path)
    yield made
    made.journal.close()


def test_rows_of_a_block_are_numbered_in_order_and_shown_at_its_end(shown: Shown) -> None:
    recorder = shown.recorder
    with recorder.together():
        assert recorder.record("message", message("m")) == 1
        assert recorder.record("part", part("p", "")) == 2
        recorder.delta("p", "Hel")
        recorder.delta("p", "lo")
        assert recorder.record("part", part("p", "Hello")) == 4, "after the text that came before it"
        assert shown.rows == [] and shown.journal.rows() == []
    assert [(row.seq, row.type) for row in shown.rows] == [(1, "message"), (2, "part"), (3, "delta"), (4, "part")]
    assert shown.rows == shown.journal.rows()
    assert recorder.conversation.parts["p"].text == "Hello"


def test_text_that_ends_a_block_waits_for_the_beat(shown: Shown) -> None:
    with shown.recorder.together():
        shown.recorder.record("message", message("m"))
        shown.recorder.record("part", part("p", ""))
        shown.recorder.delta("p", "Hello")
    assert len(shown.rows) == 2
    shown.recorder.flush()
    assert shown.rows[-1].data == {"part_id": "p", "text": "Hello"}


def test_what_the_disk_refuses_was_not_shown_and_text_keeps_waiting(shown: Shown, monkeypatch: Any) -> None:
    recorder = shown.recorder
    recorder.record("message", message("m"))
    recorder.record("part", part("p", ""))

    def refuse(facts: Any) -> Any:
        raise StoreError("full")

    with monkeypatch.context() as patch:
        patch.setattr(shown.journal, "append_many", refuse)
        with pytest.raises(StoreError), recorder.together():
            recorder.delta("p", "Hello")
            recorder.record("message", message("n"))
    assert len(shown.rows) == 2
    recorder.flush()
    assert recorder.conversation.parts["p"].text == "Hello"


def test_a_block_that_fails_keeps_what_was_recorded_in_it(shown: Shown) -> None:
    with pytest.raises(ValueError, match="no"), shown.recorder.together():
        shown.recorder.record("message", message("m"))
        raise ValueError("no")
    assert [row.type for row in shown.journal.rows()] == ["message"]

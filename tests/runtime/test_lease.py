"""Who may edit: asking, giving way, staying silent, wanting it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pyagentd.events import Event, Sink
from pyagentd.runtime import document_sync as lease_module
from pyagentd.runtime.document_sync import DocumentSync, DocumentVersion, Lease
from pyagentd.store.document.text import body_sha256, stamp_of
from tests.runtime.world import Watcher


class Room:
    """A document and who wants to edit it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_text("### Hi")
        self.document = DocumentSync(file, persisted=lambda written: None)
        self.watchers: list[Watcher] = []
        self.lease = Lease(self.document, tell=self._tell, tell_others=self._tell_others)

    def watcher(self) -> Watcher:
        self.watchers.append(Watcher())
        return self.watchers[-1]

    def _tell(self, sink: Sink, facts: Any) -> None:
        sink.push(Event("lease", "", 0, (dict(facts),)))

    def _tell_others(self, sink: Sink, facts: Any) -> None:
        for other in self.watchers:
            if other is not sink:
                self._tell(other, facts)


def told(watcher: Watcher) -> list[str]:
    return [event.args[0]["state"] for event in watcher.of("lease")]


async def give_way(room: Room, watcher: Watcher) -> None:
    """What an Emacs does that is asked to."""
    await watcher.until(lambda: "wanted" in told(watcher))
    room.lease.release(watcher)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    made = Room(tmp_path / "session.md")
    yield made
    made.document.close()


async def test_who_takes_over_gets_the_lease_when_the_editor_gives_way(room: Room) -> None:
    editor, other = room.watcher(), room.watcher()
    assert room.lease.offer(editor, None) and not room.lease.offer(other, None)
    taking = asyncio.create_task(room.lease.take(other, "emacs 28.2"))
    await give_way(room, editor)
    assert await taking and room.document.editor is other
    assert editor.of("lease")[0].args[0]["by"] == "emacs 28.2"
    assert told(editor) == ["wanted"] and told(other) == []


async def test_what_the_editor_saved_while_it_gave_way_is_known(room: Room) -> None:
    editor, other = room.watcher(), room.watcher()
    room.lease.offer(editor, None)
    taking = asyncio.create_task(room.lease.take(other, ""))
    await editor.until(lambda: told(editor))
    room.file.write_text("### Hi there")
    room.document.saved(DocumentVersion(sha256=body_sha256("### Hi there"), seq=0, marker=None))
    room.lease.release(editor)
    assert await taking
    version = room.document.version(body_sha256("### Hi there"))
    assert version is not None and room.document.is_latest(version)


async def test_an_editor_that_is_silent_loses_it_and_finds_a_file_that_changed(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "SILENT_S", 0.05)
    editor, other = room.watcher(), room.watcher()
    room.lease.offer(editor, None)
    before = stamp_of(room.file)
    assert await room.lease.take(other, "") and room.document.editor is other
    assert told(editor) == ["wanted", "lost"]
    assert stamp_of(room.file) != before and room.file.read_text() == "### Hi"
    room.lease.release(editor)  # awake at last
    assert room.document.editor is other


async def test_several_that_take_over_take_turns(room: Room) -> None:
    first, second, third = room.watcher(), room.watcher(), room.watcher()
    room.lease.offer(first, None)
    taking = [asyncio.create_task(room.lease.take(watcher, "")) for watcher in (second, third)]
    for watcher in (first, second):
        await give_way(room, watcher)
    assert all([await each for each in taking]) and room.document.editor is third
    assert told(third) == []


async def test_nobody_gets_it_in_front_of_who_is_taking_over(room: Room) -> None:
    editor, taker, latecomer = room.watcher(), room.watcher(), room.watcher()
    room.lease.offer(editor, None)
    taking = asyncio.create_task(room.lease.take(taker, ""))
    await give_way(room, editor)
    assert not room.lease.offer(latecomer, None) and told(latecomer) == []
    assert await taking and room.document.editor is taker


async def test_who_no_longer_wants_it_does_not_get_it_and_the_others_are_told(room: Room) -> None:
    editor, taker, viewer = room.watcher(), room.watcher(), room.watcher()
    room.lease.offer(editor, None)
    taking = asyncio.create_task(room.lease.take(taker, ""))
    await editor.until(lambda: told(editor))
    room.lease.release(taker)
    room.lease.release(editor)
    assert not await taking and room.document.editor is None
    assert told(viewer)[-1] == "free"


async def test_everybody_else_is_told_when_the_editor_leaves(room: Room) -> None:
    editor, viewer = room.watcher(), room.watcher()
    room.lease.offer(editor, None)
    room.lease.release(viewer)
    assert told(viewer) == []
    room.lease.release(editor)
    assert told(viewer) == ["free"] and told(editor) == []


async def test_taking_what_one_has_or_what_is_free_asks_nobody(room: Room) -> None:
    watcher, viewer = room.watcher(), room.watcher()
    assert await room.lease.take(watcher, "")
    assert await room.lease.take(watcher, "")
    assert told(watcher) == told(viewer) == []

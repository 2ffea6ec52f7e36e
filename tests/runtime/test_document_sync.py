"""The live document of a branch: what goes into it, that its file gets it, and that nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import Stale, StoreError
from pyagentd.events import InsertRole, Sink
from pyagentd.runtime import document_sync
from pyagentd.runtime.document_sync import (
    DocumentSync,
    DocumentVersion,
    LiveDocument,
    RunText,
)
from pyagentd.store import atomic
from pyagentd.store.document import text as document
from pyagentd.store.document.files import Edit, Hunk, apply_edit, document_cache, transform
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import Document, Settings, Span, Stamp, stamp_of

PROMPT = "### Tell me.\n"
ANSWER = ("The first sentence of an answer. ", "The second one is here, too. ", "And the third ends it.")


class Desk:
    """A document that ends with a prompt, and a run that answers it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.told: list[tuple[int, Stamp | None]] = []
        self.edits: list[tuple[int, Edit, str]] = []
        self.refused: list[str] = []
        self.document = DocumentSync(file, written=self._wrote, changed=self._changed, refused=self.refused.append)
        self.seq = 2
        self._written = asyncio.Event()

    def begin(self, before: str = "### Tell me.") -> None:
        self.file.write_text(before)
        self.document.begin(prompt="Tell me.", inserted_prompt=False, anchor=len(before))
        self.add("\n\n", None)

    def add(self, text: str, role: InsertRole = "response") -> int:
        self.seq += 1
        self.document.add(Insert(text, role, "prt_1" if role else "", self.seq))
        return self.seq

    def _wrote(self, revision: int, stamp: Stamp | None) -> None:
        self.told.append((revision, stamp))
        self._written.set()

    def _changed(self, revision: int, edit: Edit, sink: Sink | None, id: str) -> None:
        self.edits.append((revision, edit, id))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._written.clear()
                await self._written.wait()

    def body(self) -> str:
        return document.read(self.file).body


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path / "session.md")
    yield made
    made.document.close()


async def test_settings_of_others_stay(desk: Desk) -> None:
    desk.begin("hi\n\n<!-- Local Variables: -->\n<!-- fill-column: 80 -->\n<!-- End: -->\n")
    await desk.document.look()
    desk.document.live.set_settings(Settings(model="claude-opus-5"))
    await desk.document.flush()
    settings = document.read(desk.file).settings
    assert (settings.model, settings.other) == ("claude-opus-5", (("fill-column", "80"),))


async def test_the_daemon_writes_what_a_run_says(desk: Desk) -> None:
    desk.begin()
    for sentence in ANSWER:
        desk.add(sentence)
    assert not desk.document.complete
    await desk.document.flush()
    assert desk.document.complete
    assert desk.body() == "### Tell me.\n\n" + "".join(ANSWER)
    live = desk.document.live
    assert desk.told[-1] == (live.revision, stamp_of(desk.file))
    assert live.marker == len(desk.body())


async def test_the_heading_of_an_empty_file_is_not_written_twice(desk: Desk) -> None:
    """Emacs reads an empty file as a heading, and may save it with a prompt before it knows that it is attached."""
    desk.file.write_text("")
    live = await desk.document.look()
    desk.document.open_prompt()
    assert live.document.body == "### " and desk.file.read_text() == ""
    desk.file.write_text("### Count.")
    await desk.document.look()
    assert live.document.body == "### Count."
    assert live.since(live.at(DocumentVersion(sha256=document.body_sha256("### Count.")))) == []
    assert [edit for _, edit, _ in desk.edits] == [(Hunk(4, 4, "Count."),)]
    desk.file.write_text("")
    await desk.document.look()
    assert live.document.body == ""
    desk.document.open_prompt()
    assert live.document.body == "### "


async def test_an_edit_that_its_editor_also_saved_is_there_once(desk: Desk) -> None:
    """An Emacs that loses its connection saves what it has, also what the daemon was sent and has not written yet."""
    desk.file.write_text("### ")
    live = await desk.document.look()
    desk.document.edit(None, live.revision, (Hunk(4, 4, "Count."),))
    desk.file.write_text("### Count.")
    await desk.document.look()
    assert live.document.body == "### Count."
    await desk.document.flush()
    assert document.read(desk.file).body == "### Count."


async def test_a_heading_that_was_removed_does_not_come_back(desk: Desk) -> None:
    desk.file.write_text("")
    live = await desk.document.look()
    desk.document.open_prompt()
    desk.document.edit(None, live.revision, (Hunk(0, 4, ""),))
    await desk.document.flush()
    desk.file.write_text("Count.")
    await desk.document.look()
    assert live.document.body == "Count."


async def test_a_heading_below_edits_that_the_file_lacks_is_written(desk: Desk) -> None:
    desk.file.write_text("Count.")
    live = await desk.document.look()
    desk.document.edit(None, live.revision, (Hunk(0, 6, ""),))
    desk.document.open_prompt()
    await desk.document.flush()
    assert live.document.body == desk.body() == "### "


async def test_it_writes_by_itself_but_not_more_often_than_it_should(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sync, "PERSIST_EVERY_S", 0.2)
    desk.begin()
    words = "abcdefghij"
    for word in words:
        desk.add(word)
        await asyncio.sleep(0)
    await desk.until(lambda: desk.document.complete)
    assert desk.body().endswith(words)
    assert len(desk.told) <= 2, "at once, and what came meanwhile after a while"


@pytest.mark.parametrize("reached", [0, 10, len(ANSWER[0]), len(ANSWER[0]) + 20])
async def test_in_a_file_that_nobody_knows_the_place_is_found(desk: Desk, reached: int) -> None:
    part = "".join(ANSWER)[:reached]
    doc = Document(
        body="Something above.\n\n### Tell me.\n\n" + part,
        spans=(Span(32, 32 + reached, "response"),) if reached else (),
    )
    desk.file.write_text(document.format_file(doc))
    texts = [("\n\n", None), *((sentence, "response") for sentence in ANSWER)]
    inserts = [Insert(text, role, "prt_1" if role else "", 3 + n) for n, (text, role) in enumerate(texts)]  # type: ignore[arg-type]
    desk.document.recall(
        RunText(prompt="Tell me.", inserted_prompt=False, anchor=len("### Tell me."), inserts=inserts)
    )
    await desk.document.flush()
    assert desk.body() == "Something above.\n\n### Tell me.\n\n" + "".join(ANSWER)


async def test_a_file_that_somebody_else_changes_is_read_again_and_their_text_kept(desk: Desk) -> None:
    desk.begin()
    desk.add(ANSWER[0])
    await desk.document.flush()
    desk.file.write_text("New heading\n\n" + desk.file.read_text())
    desk.add(ANSWER[1])
    await desk.document.flush()
    assert desk.body().startswith("New heading\n\n### Tell me.\n\n")
    assert [desk.body().count(sentence) for sentence in ANSWER[:2]] == [1, 1]


async def test_a_document_is_read_though_the_prompt_of_its_run_was_never_recorded(desk: Desk) -> None:
    desk.file.write_text("### An earlier prompt\n\n### ")
    desk.document.begin(prompt="Tell me.", inserted_prompt=True, anchor=27)  # and then the disk refused the rows
    assert (await desk.document.look()).document.body.endswith("\n\n### ")


@pytest.mark.parametrize("body", ["", "### Tell me.\n\nTell me. is what you said.\n\n### ", "### Other\n\n### "])
async def test_a_prompt_from_a_client_is_put_at_the_end_once(desk: Desk, body: str) -> None:
    desk.file.write_text(body)
    inserted = "Tell me." if body else "### Tell me."
    await desk.document.look()
    desk.document.begin(prompt="Tell me.", inserted_prompt=True, anchor=len(body))
    desk.add(inserted, None)
    desk.add("\n\n", None)
    await desk.document.flush()
    desk.file.write_text("New heading\n\n" + desk.file.read_text())
    desk.add(ANSWER[0])
    await desk.document.flush()
    assert desk.body() == "New heading\n\n" + body + inserted + "\n\n" + ANSWER[0]


@pytest.mark.parametrize("below", ["", "\n\n### What waits\n\n### ", "A draft"])
async def test_a_prompt_that_an_editor_vanished_with_is_put_above_what_stands_below(desk: Desk, below: str) -> None:
    above = "### Other\n\n### "
    desk.file.write_text(above + below)
    inserts = [
        Insert("Tell me.", None, "", 3),
        Insert("\n\n", None, "", 4),
        Insert(ANSWER[0], "response", "prt_1", 5),
    ]
    desk.document.recall(RunText(prompt="Tell me.", inserted_prompt=True, anchor=len(above), inserts=inserts))
    await desk.document.flush()
    assert desk.body() == f"{above}Tell me.\n\n{ANSWER[0]}{below}"


async def test_text_waits_while_the_disk_refuses_and_is_written_once(desk: Desk) -> None:
    desk.begin()
    await desk.document.flush()
    kept = desk.file.read_bytes()
    desk.file.unlink()
    desk.file.mkdir()
    desk.add(ANSWER[0])
    for _ in range(2):
        with pytest.raises(StoreError):
            await desk.document.flush()
    desk.add(ANSWER[1])
    desk.file.rmdir()
    desk.file.write_bytes(kept)
    await desk.document.flush()
    assert desk.body() == "### Tell me.\n\n" + ANSWER[0] + ANSWER[1]


async def test_a_refused_write_is_told_once_and_tried_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.begin()
    await desk.document.flush()
    write, tried = atomic.write_bytes, 0

    def full(path: Path, data: bytes, **options: Any) -> Any:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise StoreError(f"{path}: it is full") from OSError(errno.ENOSPC, "No space left on device")
        return write(path, data, **options)

    monkeypatch.setattr(atomic, "write_bytes", full)
    monkeypatch.setattr(document_sync, "PERSIST_EVERY_S", 0.01)
    desk.add(ANSWER[0])
    await desk.until(lambda: desk.document.complete)
    assert (tried, desk.refused, desk.document.trouble) == (3, ["No space left on device"], "")
    assert desk.body() == "### Tell me.\n\n" + ANSWER[0]


async def test_a_write_that_failed_when_the_file_was_in_its_place_is_not_taken_for_another_programs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin()
    await desk.document.flush()
    with monkeypatch.context() as patched:

        def refuse(directory: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patched.setattr(atomic, "_sync_directory", refuse)
        desk.add(ANSWER[0])
        with pytest.raises(StoreError):
            await desk.document.flush()
    assert ANSWER[0] in desk.body()
    desk.add(ANSWER[1])
    await desk.document.flush()
    assert desk.body() == "### Tell me.\n\n" + ANSWER[0] + ANSWER[1] and desk.edits == []


async def test_what_a_failed_write_was_to_write_is_another_programs_text_after_one_that_succeeded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin()
    await desk.document.flush()
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> None:
            raise StoreError("it is full")

        patched.setattr(atomic, "write_bytes", refuse)
        desk.add(ANSWER[0])
        with pytest.raises(StoreError):
            await desk.document.flush()
    desk.add(ANSWER[1])
    await desk.document.flush()
    await asyncio.sleep(0.1)
    desk.file.write_text("### Tell me.\n\n" + ANSWER[0])  # what the first one was to write
    live = await desk.document.look()
    assert live.document.body == "### Tell me.\n\n" + ANSWER[0]


@pytest.mark.parametrize("calls", [1, 2])
async def test_what_is_written_while_the_daemon_syncs_its_file_is_kept(
    desk: Desk, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the file takes its place, and when it has and its directory is synced."""
    desk.begin()
    await desk.document.flush()
    sync = atomic.system.fsync

    def slow(fd: int) -> None:
        nonlocal calls
        calls -= 1
        if not calls:
            desk.file.write_text(desk.file.read_text().replace("Tell me.", "Tell us."))
        sync(fd)

    desk.add(ANSWER[0])
    monkeypatch.setattr(atomic.system, "fsync", slow)
    await desk.document.flush()
    desk.add(ANSWER[1])
    await desk.document.flush()
    assert desk.body() == "### Tell us.\n\n" + ANSWER[0] + ANSWER[1]


@pytest.mark.parametrize("half", ["", "### Tell", None])
async def test_a_file_that_is_being_written_is_left_to_its_writer(desk: Desk, half: str | None) -> None:
    desk.begin()
    desk.add(ANSWER[0])
    await desk.document.flush()
    whole = desk.file.read_text()
    live, told = desk.document.live, len(desk.edits)
    desk.file.write_text(half) if half is not None else desk.file.unlink()
    desk.document.edit(None, live.revision, (Hunk(4, 4, "Please. "),))
    looking = asyncio.create_task(desk.document.look())
    await asyncio.sleep(0)
    desk.file.write_text(whole.replace("Tell me.", "Tell me, please."))
    await looking
    await desk.document.flush()
    assert desk.body() == "### Please. Tell me, please.\n\n" + ANSWER[0]
    assert len(desk.edits) == told + 2


@pytest.mark.parametrize("half", [0.1, 0.5, 0.8, 0.95])
async def test_a_file_that_is_written_in_pieces_is_taken_in_whole(desk: Desk, half: float) -> None:
    """Also by a program that pauses, whatever it had got to: the text, its roles, the end of the block."""
    desk.begin()
    desk.add("".join(ANSWER))
    desk.document.set_block(Settings(model="claude-opus-5"), Settings())
    await desk.document.flush()
    whole = desk.file.read_text().replace("Tell me.", "Tell us.")
    place, told = int(half * len(whole)), len(desk.edits)
    desk.file.write_text(whole[:place])
    looking = asyncio.create_task(desk.document.look())
    await asyncio.sleep(0.5)
    with desk.file.open("a") as opened:
        opened.write(whole[place:])
    assert document.format_file((await looking).document) == whole
    assert len(desk.edits) == told + 1


@pytest.mark.parametrize("half", ["", "### Tell me.", "### Tell me, please."])
async def test_a_file_that_stays_without_its_end_is_taken_in(desk: Desk, half: str) -> None:
    desk.begin()
    desk.add(ANSWER[0])
    await desk.document.flush()
    desk.file.write_text(half)
    async with asyncio.timeout(10):
        assert (await desk.document.look()).document.body == half


async def test_a_cancelled_wait_does_not_stop_the_write(desk: Desk) -> None:
    desk.begin()
    for sentence in ANSWER:
        desk.add(sentence)
        waiting = asyncio.create_task(desk.document.flush())
        await asyncio.sleep(0)
        waiting.cancel()
    await desk.document.flush()
    assert desk.body() == "### Tell me.\n\n" + "".join(ANSWER)


async def test_an_edit_of_a_client_that_is_behind_goes_around_what_came_since(desk: Desk) -> None:
    desk.begin()
    live = await desk.document.look()
    base = live.revision
    desk.add(ANSWER[0])
    end = len("### Tell me.\n\n")
    assert desk.document.edit(None, base, (Hunk(end, end, "A draft"),), id="e1") == []
    assert live.document.body == "### Tell me.\n\n" + ANSWER[0] + "A draft"
    desk.add(ANSWER[1])
    await desk.document.flush()
    assert desk.body() == "### Tell me.\n\n" + ANSWER[0] + ANSWER[1] + "A draft"
    assert desk.edits[-1][2] == "e1"
    with pytest.raises(Stale):
        desk.document.edit(None, 1, (Hunk(0, 0, "x"),))


async def test_of_two_that_replace_the_same_words_the_later_is_told_and_both_stay(desk: Desk) -> None:
    desk.file.write_text("one two three")
    base = (await desk.document.look()).revision
    assert desk.document.edit(None, base, (Hunk(4, 7, "TWO"),)) == []
    assert desk.document.edit(None, base, (Hunk(4, 7, "2"),)) == ["2"]
    assert desk.document.live.document.body == "one TWO2 three"


async def test_a_place_behind_an_edit_that_was_sent_before_it_is_found(desk: Desk) -> None:
    desk.file.write_text("### Hi")
    live = await desk.document.look()
    base = live.revision
    desk.document.edit(None, base, (Hunk(0, 0, "Above. "),))
    desk.document.edit(None, base, (Hunk(6, 6, " there"),), id="mine")
    desk.document.edit(None, live.revision, (Hunk(0, 0, "More. "),))
    place = live.place(DocumentVersion(revision=base, after="mine", marker=len("### Hi there")))
    assert live.document.body[:place] == "More. Above. ### Hi there"
    with pytest.raises(Stale):
        live.place(DocumentVersion(revision=base, after="never came", marker=0))


async def test_what_another_program_wrote_goes_around_what_the_file_lacked(desk: Desk) -> None:
    desk.begin()
    await desk.document.flush()
    live = desk.document.live
    desk.file.write_text("New heading\n\n" + desk.file.read_text())
    desk.add(ANSWER[0])
    desk.document.edit(None, live.revision, (Hunk(4, 8, "Say to"),))
    await desk.document.flush()
    assert desk.body() == "New heading\n\n### Say to me.\n\n" + ANSWER[0]
    assert [edit for _, edit, _ in desk.edits][-1] == (Hunk(0, 0, "New heading\n\n"),)


async def test_roles_of_an_older_text_are_those_of_the_same_words_now(desk: Desk) -> None:
    desk.file.write_text("Hello\n\n### ")
    live = await desk.document.look()
    version = DocumentVersion(revision=live.revision)
    desk.document.edit(None, live.revision, (Hunk(0, 0, "Oh. "),))
    assert desk.document.set_roles(version, (Span(0, 5, "response"),))
    await desk.document.flush()
    doc = document.read(desk.file)
    assert [doc.body[span.start : span.end] for span in doc.spans] == ["Hello"]
    assert not desk.document.set_roles(version, (Span(0, 5, "response"),))


async def test_what_the_file_lacks_is_known_where_it_cannot_be_written(desk: Desk) -> None:
    desk.begin()
    await desk.document.flush()
    desk.document.refusal = "the disk is read-only"
    desk.add(ANSWER[0])
    await desk.document.flush()
    assert ANSWER[0] in desk.document.live.document.body and ANSWER[0] not in desk.body()


# Clients that edit at once, each behind by its own time, while a run writes and other programs do.


class Hand:
    """A client as Emacs is one: one edit at a time on its way, all that others do goes around what it typed."""

    def __init__(self, desk: Desk, name: str, dice: random.Random) -> None:
        self.desk, self.name, self.dice = desk, name, dice
        live = desk.document.live
        self.shown, self.revision = live.document, live.revision
        self.sent: Edit = ()
        self.pending: Edit = ()
        self.typed: list[str] = []
        self.mail: list[tuple[int, Edit, str]] = []

    def type(self) -> None:
        if self.pending:
            return
        size = len(self.shown.body)
        word = chr(0xE000 + 0x400 * "xyz".index(self.name) + len(self.typed))  # one character, which nothing parts
        begin = self.dice.randint(0, size)
        end = min(size, begin + self.dice.choice((0, 0, 3)))
        if not self.shown.body[begin:end].isascii():
            end = begin
        self.typed.append(word)
        self.pending = (Hunk(begin, end, word),)
        self.shown = apply_edit(self.shown, self.pending)

    def send(self) -> None:
        if self.pending and not self.sent:
            self.sent, self.pending = self.pending, ()
            self.desk.document.edit(None, self.revision, self.sent, id=self.name)

    def read(self) -> None:
        """Take one event."""
        if not self.mail:
            return
        self.revision, edit, id = self.mail.pop(0)
        if id == self.name:
            self.sent = ()
            return
        behind = transform(edit, self.sent, first=True)
        self.sent = transform(self.sent, edit, first=False)
        self.shown = apply_edit(self.shown, transform(behind, self.pending, first=True))
        self.pending = transform(self.pending, behind, first=False)


@pytest.mark.parametrize("seed", range(25))
async def test_whoever_edits_and_however_late_all_have_the_same_text_and_roles(desk: Desk, seed: int) -> None:
    dice = random.Random(seed)
    desk.begin("### A question of some length.\n\nTell me.")
    live = await desk.document.look()
    hands = [Hand(desk, name, dice) for name in "xyz"]

    def deliver(revision: int, edit: Edit, id: str) -> None:
        for hand in hands:
            hand.mail.append((revision, edit, id))

    said: list[str] = []
    known = 0
    for _ in range(150):
        before, marker = live.revision, live.marker or 0
        match dice.randint(0, 9):
            case 0 | 1:
                said.append(chr(0xF000 + len(said)))
                desk.add(said[-1], dice.choice(("response", "ignore")))
                (edit,) = live.since(before)
                assert edit[0].begin == marker
                deliver(live.revision, edit, "")
            case 2:
                await desk.document.flush()
            case number:
                hand = dice.choice(hands)
                (hand.type, hand.send, hand.read)[number % 3]()
        for revision, edit, id in desk.edits[known:]:
            deliver(revision, edit, id)
        known = len(desk.edits)
    for _ in range(4):
        for hand in hands:
            hand.send()
        for revision, edit, id in desk.edits[known:]:
            deliver(revision, edit, id)
        known = len(desk.edits)
        for hand in hands:
            while hand.mail:
                hand.read()
    await desk.document.flush()
    body = live.document.body
    assert desk.body() == body and document.read(desk.file).spans == live.document.spans
    for hand in hands:
        assert hand.shown.body == body and hand.shown.spans == live.document.spans
        assert all(body.count(word) == 1 for word in hand.typed)
    assert all(body.count(word) == 1 for word in said)
    assert [body.index(word) for word in said] == sorted(body.index(word) for word in said)


def test_no_revision_of_an_earlier_copy_of_the_document_is_one_of_this(tmp_path: Path) -> None:
    path = tmp_path / "session.md"
    path.write_text("### Say much.\n\n")
    found = document_cache.read(path)
    earlier = LiveDocument(found.document, len(found.document.body), found)
    earlier.insert(Insert("word " * 1_000_000, "response", "prt_1", 1))
    again = LiveDocument(found.document, len(found.document.body), found)
    again.insert(Insert("word " * 2_000_000, "response", "prt_1", 1))
    with pytest.raises(Stale):
        again.at(DocumentVersion(revision=earlier.revision))


async def test_a_write_that_a_run_overtakes_leaves_the_run_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sync, "_KEPT", -1)  # as in a crowd: what nobody watches is not kept in memory
    desk = Desk(tmp_path / "session.md")
    desk.begin()
    desk.add("First.")
    desk.add("\n\n### ", None)
    await desk.document.flush()
    live = await desk.document.look()
    end = len(live.document.body)
    live.edit((Hunk(end, end, "Two\n"),))
    entered, go = threading.Event(), threading.Event()
    write = document_sync.write_document

    def slow(*args: Any) -> Any:
        entered.set()
        assert go.wait(30)
        return write(*args)

    monkeypatch.setattr(document_sync, "write_document", slow)
    writing = asyncio.create_task(desk.document.flush())
    assert await asyncio.to_thread(entered.wait, 30)
    desk.document.begin(prompt="Two", inserted_prompt=False, anchor=len(live.document.body))
    go.set()
    await writing
    desk.add("\n")
    desk.add("Second.")
    await desk.document.flush()
    body = desk.file.read_text()
    assert body.index("Two") < body.index("Second.")


@pytest.mark.parametrize("others", ["", "New heading\n\n"])
@pytest.mark.parametrize("prompt", ["", "Tell me."])
async def test_of_a_crowd_neither_documents_nor_texts_are_kept(
    tmp_path: Path, others: str, prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sync, "_KEPT", -1)
    file = tmp_path / "session.md"
    above = "### " if prompt else "### Tell me."
    file.write_text(above)
    log: list[Insert] = []
    document = DocumentSync(file, written=lambda *_: None, replay=lambda: list(log))
    settings = Settings(model="claude-opus-5")
    document.set_block(settings, settings)
    document.begin(prompt="Tell me.", inserted_prompt=bool(prompt), anchor=len(above))
    texts = [prompt, "\n\n", *ANSWER]
    for seq, text in enumerate(texts):
        if text:
            insert = Insert(text, "response" if seq > 1 else None, "", seq + 1)
            log += [insert] if seq else []  # the prompt of a run is before it in the log
            document.add(insert)
            await document.flush()
            assert [each.text for each in document.inserts] == ([prompt] if prompt else [])
            with pytest.raises(Stale):
                _ = document.live
            assert file.read_text().count("".join(texts[: seq + 1])) == 1
            if seq == 2:
                file.write_text(others + file.read_text())
    live = await document.look()
    assert [each.text for each in document.inserts] == [text for text in texts if text]
    assert live.document.body == others + above + "".join(texts)
    assert live.marker == len(live.document.body)
    document.close()

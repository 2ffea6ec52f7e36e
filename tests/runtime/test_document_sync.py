"""Who writes ``session.md``, from which version on, and that no text is there twice or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pyagentd.errors import Busy, StoreError
from pyagentd.events import InsertRole
from pyagentd.runtime import document_sync as document_sync
from pyagentd.runtime.document_sync import DocumentSync, DocumentVersion, WriteOutcome
from pyagentd.store.document import text as document
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import stamp_of
from tests.runtime.world import Watcher

PROMPT = "### Tell me.\n"
ANSWER = ("The first sentence of an answer. ", "The second one is here, too. ", "And the third ends it.")


class Desk:
    """A keeper with a document that ends with a prompt, and a run that answers it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.told: list[WriteOutcome] = []
        self.document = DocumentSync(file, persisted=self._persisted)
        self.seq = 2
        self._written = asyncio.Event()

    def begin(self, before: str = "### Tell me.") -> None:
        self.file.write_text(before)
        version = DocumentVersion(sha256=document.body_sha256(before), seq=self.seq, marker=len(before))
        self.document.begin(prompt="Tell me.", inserted_prompt=False, anchor=len(before), version=version)
        self.add("\n\n", None)

    def add(self, text: str, role: InsertRole = "response") -> int:
        self.seq += 1
        self.document.add(Insert(text, role, "prt_1" if role else "", self.seq))
        return self.seq

    def _persisted(self, written: WriteOutcome) -> None:
        self.told.append(written)
        self._written.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self._written.clear()
                await self._written.wait()

    def body(self) -> str:
        return document.read(self.file).body

    def save(self, text: str, seq: int, marker: int | None) -> DocumentVersion:
        """What an editor does."""
        self.file.write_text(text)
        version = DocumentVersion(sha256=document.body_sha256(text), seq=seq, marker=marker)
        self.document.saved(version)
        return version


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path / "session.md")
    yield made
    made.document.close()


async def test_the_daemon_writes_while_there_is_no_editor(desk: Desk) -> None:
    desk.begin()
    for sentence in ANSWER:
        desk.add(sentence)
    assert not desk.document.complete
    await desk.document.flush()
    assert desk.document.complete
    assert desk.body() == "### Tell me.\n\n" + "".join(ANSWER)
    written = desk.told[-1]
    assert written.version == DocumentVersion(
        sha256=document.body_sha256(desk.body()), seq=desk.seq, marker=len(desk.body())
    )
    assert written.writer.stamp == stamp_of(desk.file)


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


async def test_it_leaves_the_file_alone_while_there_is_an_editor(desk: Desk) -> None:
    desk.begin()
    await desk.document.flush()
    editor = Watcher()
    assert desk.document.lease(editor, None)
    desk.add(ANSWER[0])
    before = desk.file.read_bytes()
    await desk.document.flush()
    assert desk.file.read_bytes() == before and not desk.document.complete


async def test_a_write_that_was_due_is_not_begun_once_there_is_an_editor(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sync, "PERSIST_EVERY_S", 0.05)
    desk.begin()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    desk.add(ANSWER[0])
    await asyncio.sleep(0)  # it is to be written in a while
    assert desk.document.lease(Watcher(), None)
    before = desk.file.read_bytes()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert desk.file.read_bytes() == before


async def test_only_one_client_is_the_editor(desk: Desk) -> None:
    first, second = Watcher(), Watcher()
    assert desk.document.lease(first, None)
    assert desk.document.lease(first, None)
    assert not desk.document.lease(second, None)
    desk.document.release(second)  # who is no editor releases nothing
    assert desk.document.editor is first
    desk.document.release(first)
    assert desk.document.lease(second, None)


async def test_a_saved_version_says_what_a_client_with_it_misses(desk: Desk) -> None:
    desk.begin()
    desk.document.lease(Watcher(), None)
    seqs = [desk.add(sentence) for sentence in ANSWER]
    text = "### Tell me.\n\n" + ANSWER[0]
    saved = desk.save(text, seqs[0], len(text))
    assert desk.document.version(saved.sha256) == saved
    assert [insert.text for insert in desk.document.missing(saved)] == list(ANSWER[1:])
    assert desk.document.version("0" * 64) is None


@pytest.mark.parametrize("saved", range(len(ANSWER) + 1))
async def test_take_over_goes_on_from_what_the_editor_saved(desk: Desk, saved: int) -> None:
    desk.begin()
    editor = Watcher()
    desk.document.lease(editor, None)
    seqs = [desk.seq, *(desk.add(sentence) for sentence in ANSWER)]
    shown = "### Tell me.\n\n" + "".join(ANSWER[:saved])
    desk.save(shown + "A draft below.", seqs[saved], len(shown))
    desk.document.release(editor)
    await desk.document.flush()
    assert desk.body() == "### Tell me.\n\n" + "".join(ANSWER) + "A draft below."


@pytest.mark.parametrize("reached", [0, 10, len(ANSWER[0]), len(ANSWER[0]) + 20])
async def test_take_over_from_a_version_nobody_reported_finds_the_place(desk: Desk, reached: int) -> None:
    desk.begin()
    editor = Watcher()
    desk.document.lease(editor, None)
    for sentence in ANSWER:
        desk.add(sentence)
    part = "".join(ANSWER)[:reached]
    doc = document.Document(
        body="Something above.\n\n### Tell me.\n\n" + part,
        spans=(document.Span(32, 32 + reached, "response"),) if reached else (),
    )
    desk.file.write_text(document.format_file(doc))
    desk.document.release(editor)
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


@pytest.mark.parametrize("body", ["", "### Tell me.\n\nTell me. is what you said.\n\n### ", "### Other\n\n### "])
async def test_a_prompt_from_a_client_is_put_at_the_end_once(desk: Desk, body: str) -> None:
    desk.file.write_text(body)
    inserted = "Tell me." if body else "### Tell me."
    version = DocumentVersion(sha256=document.body_sha256(body), seq=0, marker=len(body))
    desk.document.begin(prompt="Tell me.", inserted_prompt=True, anchor=len(body), version=version)
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
    desk.document.recall(prompt="Tell me.", inserted_prompt=True, anchor=len(above), inserts=inserts)
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


async def test_a_cancelled_wait_does_not_stop_the_write(desk: Desk) -> None:
    desk.begin()
    for sentence in ANSWER:
        desk.add(sentence)
        waiting = asyncio.create_task(desk.document.flush())
        await asyncio.sleep(0)
        waiting.cancel()
    await desk.document.flush()
    assert desk.body() == "### Tell me.\n\n" + "".join(ANSWER)


async def test_who_becomes_the_editor_while_the_daemon_writes_is_given_what_it_misses(desk: Desk) -> None:
    desk.begin()
    desk.add(ANSWER[0])
    writing = asyncio.create_task(desk.document.flush())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    editor = Watcher()
    before = DocumentVersion(sha256=document.body_sha256("### Tell me."), seq=2, marker=12)
    desk.document.lease(editor, before)
    await writing
    desk.add(ANSWER[1])
    desk.document.release(editor)
    await desk.document.flush()
    assert desk.body() == "### Tell me.\n\n" + ANSWER[0] + ANSWER[1]


async def test_a_run_waits_until_the_editor_has_saved_the_one_before(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin()
    desk.document.lease(Watcher(), None)
    seq = desk.add(ANSWER[0])
    settling = asyncio.create_task(desk.document.settle())
    await asyncio.sleep(0)
    assert not settling.done()
    desk.save("### Tell me.\n\n" + ANSWER[0], seq, None)
    await settling
    desk.add(ANSWER[1])
    monkeypatch.setattr(document_sync, "SAVED_WITHIN_S", 0.01)
    with pytest.raises(Busy, match="has not saved"):
        await desk.document.settle()


async def test_who_edited_makes_older_texts_unfit_to_go_on_from(desk: Desk) -> None:
    desk.begin()
    await desk.document.flush()
    before = desk.document.version(document.body_sha256(desk.body()))
    assert before is not None and desk.document.is_latest(before)
    desk.add(ANSWER[0])
    await desk.document.flush()
    assert desk.document.is_latest(before), "the daemon's own text can be added"
    editor = Watcher()
    desk.document.lease(editor, None)
    desk.save(desk.body() + "typed", desk.seq, None)
    assert not desk.document.is_latest(before)
    desk.document.release(editor)
    known = desk.document.version(document.body_sha256(desk.body()))
    assert known is not None and desk.document.is_latest(known)


async def test_what_somebody_else_wrote_makes_older_texts_unfit_as_well(desk: Desk) -> None:
    desk.begin()
    await desk.document.flush()
    before = desk.document.version(document.body_sha256(desk.body()))
    desk.file.write_text("New heading\n\n" + desk.file.read_text())
    desk.add(ANSWER[0])
    await desk.document.flush()
    assert before is not None and not desk.document.is_latest(before)


async def test_recovered_roles_are_written_while_the_file_holds_their_text(desk: Desk) -> None:
    spans = (document.Span(0, 5, "response"),)
    desk.file.write_text("Hello\n\n### ")
    desk.document.heal(document.body_sha256("Hello\n\n### "), spans)
    await desk.document.flush()
    assert document.read(desk.file).spans == spans
    desk.file.write_text("Other text")
    desk.document.heal(document.body_sha256("Hello\n\n### "), spans)
    await desk.document.flush()
    assert desk.file.read_text() == "Other text"


GREETED = "Hello\n\n### "
ROLES = (document.Span(0, 3, "response"), document.Span(3, 5, "response"))


def _greeted(spans: tuple[document.Span, ...]) -> str:
    return document.format_file(document.Document(body=GREETED, spans=spans))


async def test_who_reads_the_file_waits_until_its_editor_has_saved_the_roles_it_was_told(desk: Desk) -> None:
    desk.file.write_text(GREETED)
    desk.document.lease(Watcher(), None)
    desk.document.heal(document.body_sha256(GREETED), ROLES)
    version = DocumentVersion(sha256=document.body_sha256(GREETED), seq=0, marker=None)
    settling = asyncio.create_task(desk.document.settle_roles())
    desk.document.saved(version)  # what it wrote before it was told
    done, _ = await asyncio.wait([settling], timeout=0.05)
    assert not done
    desk.file.write_text(_greeted((document.Span(0, 5, "response"),)))
    desk.document.saved(version)
    async with asyncio.timeout(5):
        await settling


async def test_an_editor_that_does_not_know_roles_is_waited_for_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sync, "SAVED_WITHIN_S", 0.05)
    desk.file.write_text(GREETED)
    desk.document.lease(Watcher(), None)
    desk.document.heal(document.body_sha256(GREETED), ROLES)
    await desk.document.settle_roles()
    monkeypatch.setattr(document_sync, "SAVED_WITHIN_S", 3600)
    async with asyncio.timeout(5):
        await desk.document.settle_roles()


async def test_roles_are_written_when_the_editor_that_was_told_them_is_gone(desk: Desk) -> None:
    desk.file.write_text(GREETED)
    editor = Watcher()
    desk.document.lease(editor, None)
    desk.document.heal(document.body_sha256(GREETED), ROLES)
    desk.document.release(editor)
    await desk.document.flush()
    assert document.read(desk.file).spans == (document.Span(0, 5, "response"),)


async def test_what_the_file_lacks_can_be_told_where_it_cannot_be_written(desk: Desk) -> None:
    desk.begin()
    await desk.document.flush()
    desk.document.refusal = "the disk is read-only"
    desk.add(ANSWER[0])
    await desk.document.flush()
    lacking = await desk.document.survey()
    assert "".join(insert.text for insert in lacking.inserts) == ANSWER[0]
    assert lacking.marker == len("### Tell me.\n\n") and ANSWER[0] not in desk.body()

"""What an attaching client is told of the document: recovered roles, what is wrong, and why it cannot be written."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyagentd.cli.serve import SWITCH_INTERVAL_S
from pyagentd.errors import Conflict, PyagentdError, StoreError
from pyagentd.events import Event
from pyagentd.runtime import document_sync
from pyagentd.runtime.branch import ClientText, LiveBranch, attach_client
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.opening import RESTARTED
from pyagentd.runtime.queue import Submission
from pyagentd.runtime.run_setup import shell_scope
from pyagentd.store import metadata, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import reconcile
from pyagentd.store.document import text as document
from pyagentd.store.document.hidden import visible
from pyagentd.store.document.text import body_sha256
from pyagentd.store.journal import Journal, rows_of_message
from pyagentd.store.paths import BranchRef
from pyagentd.tools.sandbox import enclosure
from tests.runtime.test_resume import until
from tests.runtime.world import Watcher, World, attached, body, rows, type_
from tests.server import answer, tool_use


async def attach(branch: LiveBranch, sink: Watcher | None = None) -> dict[str, Any]:
    """Attach with the text on disk."""
    given = await attach_client(branch, sink or Watcher(), ClientText(sha256=body_sha256(body(branch.ref))))
    assert given is not None
    return given


def shown(text: str, given: dict[str, Any]) -> str:
    """Return the text that a client has after the edits that it was told when it attached."""
    for _, hunks in given["edits"]:
        for begin, end, new, _ in reversed(hunks):
            text = text[: begin - 1] + new + text[end - 1 :]
    return text


def file_of(ref: BranchRef) -> Path:
    return ref.branch_dir / "session.md"


async def talk(world: World, ref: BranchRef, *said: str) -> None:
    """Send prompts and wait for their answers."""
    async with world.kernel.using(ref) as branch:
        for text in said:
            watcher = Watcher()
            await attached(branch, watcher)
            await world.kernel.prompt(branch, text=text, options=world.options)
            await watcher.finished(branch)
            branch.detach(watcher)


async def conversation(world: World) -> BranchRef:
    world.server.say(
        answer("I shall look.", tool_use("Read", id="toolu_1", file_path="a.txt")), "It says alpha.", "Welcome."
    )
    (world.project / "a.txt").write_text("alpha\n")
    ref = world.session()
    await talk(world, ref, "What does it say?", "Thanks.")
    return ref


def without_block(ref: BranchRef) -> None:
    """What stock gptel or a careless hand does."""
    file_of(ref).write_text(body(ref))


# -- roles -----------------------------------------------------------------------------------------------------


async def test_lost_roles_are_given_to_whoever_attaches_and_written(world: World) -> None:
    ref = await conversation(world)
    whole = file_of(ref).read_bytes()
    without_block(ref)
    async with world.kernel.using(ref) as branch:
        given = await attach(branch)
        spans = [
            (beg - 1, end - 1, str(role[1] if isinstance(role, tuple) else role)) for beg, end, role in given["roles"]
        ]
        known = document.parse(whole.decode()).spans
        assert spans == [(span.start, span.end, span.id or span.kind) for span in known]
        assert any("recovered from the log" in note for note in given["notes"])
        await branch.document.flush()
        assert document.read(file_of(ref)).spans == known
        assert (await attach(branch))["roles"] is None


async def test_roles_shifted_by_a_formatter_are_recovered_and_can_be_compared(world: World) -> None:
    ref = await conversation(world)
    text = file_of(ref).read_text()
    file_of(ref).write_text(text.replace("### What", "\n\n\n### What", 1))
    service = world.service()
    client = Watcher()
    given = await service.attach(client, branch=ref.key, sha256=body_sha256(body(ref)))
    assert given["roles"]
    diff = await service.recovery(client, branch=ref.key)
    assert "+model" in diff and "It says alpha." in diff
    assert await service.recovery(client, branch=world.session("other").key) == ""


async def test_roles_lost_between_two_prompts_of_a_terminal_are_written(world: World) -> None:
    ref = await conversation(world)
    without_block(ref)
    world.server.say("Yes.")
    await talk(world, ref, "Really?")
    doc = document.read(file_of(ref))
    said = [doc.body[span.start : span.end] for span in doc.spans if span.kind == "response"]
    assert said == ["I shall look.", "It says alpha.", "Welcome.", "Yes."]
    sent = str(world.server.last.messages)
    assert "toolu_1" in sent and sent.count("It says alpha.") == 1


async def test_a_document_as_we_wrote_it_is_not_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = await conversation(world)
    compared: list[object] = []

    def recognise(doc: document.Document, record: Conversation) -> Any:
        compared.append(doc)
        return reconcile.recognise(doc, record)

    monkeypatch.setattr(document_sync, "recognise", recognise)
    world.kernel.forget_resting(0.0)
    async with world.kernel.using(ref) as branch:
        watcher = Watcher()
        await attach(branch, watcher)
        assert len(compared) == 1, "once after it was opened"
        await attach(branch)
        os.utime(file_of(ref))
        await attach(branch)
        assert len(compared) == 1


READ: list[str] | None = None
"""Files that were opened for reading, while somebody wants to know."""


def note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and READ is not None and isinstance(arguments[0], str | Path):
        READ.append(Path(arguments[0]).name)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    sys.addaudithook(note_opened)  # for good: a hook cannot be removed
    monkeypatch.setattr(f"{__name__}.READ", found)
    return found


async def test_for_a_client_that_comes_back_no_conversation_is_read(world: World, read: list[str]) -> None:
    ref = await conversation(world)
    service, first, again = world.service(), Watcher(), Watcher()
    given = await service.attach(first, branch=ref.key, sha256=body_sha256(body(ref)))
    await service.detach(first, branch=ref.key)
    assert world.kernel.opened(ref.key) is None
    read.clear()
    assert await service.attach(again, branch=ref.key, revision=given["revision"]) == given
    assert "session.md" not in read
    world.server.say("Yes.")
    await talk(world, ref, "Really?")
    assert "Yes." in body(ref)


@pytest.mark.parametrize("name", ["session.md", "messages.jsonl"])
async def test_what_was_written_into_a_closed_branch_is_read(world: World, name: str) -> None:
    ref = await conversation(world)
    service, client = world.service(), Watcher()
    given = await service.attach(client, branch=ref.key, sha256=body_sha256(body(ref)))
    await service.detach(client, branch=ref.key)
    file = ref.branch_dir / name
    if name == "session.md":
        file.write_text(file.read_text().replace("It says alpha.", "It says beta.", 1))
        again = await service.attach(client, branch=ref.key, sha256=body_sha256(body(ref)))
        assert again["revision"] != given["revision"]
        async with world.kernel.using(ref) as branch:
            assert "beta" in branch.document.live.document.body
    else:
        journal = Journal.open(file)
        session = next(row for row in journal.current() if row.type == "session")
        journal.append("session", {**session.data, "title": "Another title"})
        journal.close()
        again = await service.attach(client, branch=ref.key, sha256=body_sha256(body(ref)))
        assert again["title"] == "Another title"


async def test_a_closed_branch_that_was_deleted_is_gone(world: World) -> None:
    ref = await conversation(world)
    service, client = world.service(), Watcher()
    await service.attach(client, branch=ref.key, sha256=body_sha256(body(ref)))
    await service.detach(client, branch=ref.key)
    await service.delete(client, branch=ref.key)
    with pytest.raises(PyagentdError):
        await service.attach(client, branch=ref.key)


def write_long(ref: BranchRef, turns: int, length: int) -> None:
    """Write the log of a long conversation, and its document without roles."""
    journal, texts = Journal.open(ref.branch_dir / "messages.jsonl"), []
    for number in range(turns):
        said = (f"Question {number}?", (f"Answer {number}. " * length)[:length].strip())
        for role, text in zip(("user", "assistant"), said, strict=True):
            data = {"type": "text", "text": text, "state": "done"}
            journal.append_many(rows_of_message([data], role=role, session_id=ref.session_id, metadata={}, now_ms=0))
        texts.append(f"### {said[0]}\n\n{said[1]}\n\n")
    journal.close()
    file_of(ref).write_text("".join(texts) + "### ")


async def test_a_large_document_is_compared_without_holding_up_the_loop(world: World) -> None:
    ref = world.session()
    write_long(ref, 1000, 5000)
    text = body(ref)
    assert len(text) > 5_000_000
    sha256, longest, going = body_sha256(text), 0.0, True

    async def tick() -> None:
        nonlocal longest
        while going:
            before = time.process_time()  # what other processes take does not count
            await asyncio.sleep(0.001)
            longest = max(longest, time.process_time() - before)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    ticking = asyncio.create_task(tick())
    began = time.monotonic()
    async with world.kernel.using(ref) as branch:
        given = await attach_client(branch, Watcher(), ClientText(sha256=sha256))
        await branch.document.flush()
    took = time.monotonic() - began
    going = False
    await ticking
    sys.setswitchinterval(usual)
    assert given is not None and len(given["roles"]) == 1000
    print(f"   measured  attach to {len(text):,} characters without roles: {took:.2f} s, stall {longest:.3f} s")


# -- the log ---------------------------------------------------------------------------------------------------


async def test_messages_that_only_the_document_has_are_recorded(world: World) -> None:
    ref = await conversation(world)
    (ref.branch_dir / "messages.jsonl").unlink()
    async with world.start().using(ref) as branch:
        given = await attach(branch)
        assert any("lacked" in note and "recorded now" in note for note in given["notes"])
        texts = [message.text for message in branch.conversation.messages.values()]
        assert texts[0] == "What does it say?" and "It says alpha." in " ".join(texts)
        assert not any("lacked" in note for note in (await attach(branch))["notes"])
    seen = len(rows(ref))
    async with world.start().using(ref) as branch:
        await attach(branch)
    assert len([row for row in rows(ref)[seen:] if row.type in ("message", "part")]) == 0, "once"
    world.server.say("Yes.")
    await talk(world, ref, "Really?")
    sent = str(world.server.last.messages)
    assert "'id': 'toolu_1'" in sent and sent.count("It says alpha.") == 1 and sent.count("Really?") == 1


async def test_the_log_of_another_branch_is_hidden_and_kept(world: World) -> None:
    ref = await conversation(world)
    other = world.session("other")
    world.server.say("Something else entirely, at some length.")
    await talk(world, other, "Another question altogether.")
    log = other.branch_dir / "messages.jsonl"
    (ref.branch_dir / "messages.jsonl").write_bytes(log.read_bytes())
    kernel = world.start()
    async with kernel.using(ref) as branch:
        given = await attach(branch)
        assert any("lacked" in note for note in given["notes"])
    assert any("Something else entirely" in str(row.data) for row in rows(ref)), "nothing is removed"
    world.server.say("Yes.")
    await talk(world, ref, "Really?")
    sent = str(world.server.last.messages)
    assert "It says alpha." in sent and "Something else" not in sent


async def test_damage_is_said_once(world: World) -> None:
    ref = await conversation(world)
    log = ref.branch_dir / "messages.jsonl"
    lines = log.read_bytes().split(b"\n")
    log.write_bytes(b"\n".join([lines[0], b"{garbage", *lines[1:]]))
    for expected in (True, False):
        async with world.start().using(ref) as branch:
            client = Watcher()
            given = await world.service().attach(client, branch=ref.key, sha256=body_sha256(body(ref)))
            assert any("1 damaged line is skipped" in note for note in given["notes"]) == expected
            branch.detach(client)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda ref: file_of(ref).write_bytes(file_of(ref).read_bytes().replace(b"\n", b"\r\n")), "CR LF"),
        (lambda ref: file_of(ref).write_bytes(b"\xef\xbb\xbf" + file_of(ref).read_bytes()), "byte order mark"),
        (lambda ref: _append(ref, b"<!-- Local Variables: -->\n<!-- gptel-model: x -->\n<!-- End: -->\n"), "several"),
        (lambda ref: _append(ref.branch_dir / "messages.jsonl", b'{"seq":999,"ty'), "not written to its end"),
    ],
)
async def test_what_is_wrong_with_the_files_is_said(world: World, change: Any, said: str) -> None:
    ref = await conversation(world)
    change(ref)
    async with world.start().using(ref) as branch:
        given = await attach(branch)
    assert any(said in note for note in given["notes"]), given["notes"]
    assert all("\n" not in note for note in given["notes"])


def _append(place: BranchRef | Path, data: bytes) -> None:
    file = place if isinstance(place, Path) else file_of(place)
    file.write_bytes(file.read_bytes() + data)


async def test_a_renamed_session_and_a_workspace_that_is_not_here_are_said(world: World) -> None:
    world.server.say("Hello")
    service = world.service()
    made = await service.create_session(Watcher(), name="test", preset="main", root=str(world.project))
    old = Path(made["session_dir"])
    new = old.with_name("renamed-20260101000000")
    os.rename(old, new)  # noqa: PTH104
    gone = world.home / "gone"
    os.rename(world.project, gone)  # noqa: PTH104
    client = Watcher()
    given = await world.service().attach(client, branch=str(new / "branches/main"), sha256=body_sha256(""))
    os.rename(gone, world.project)  # noqa: PTH104
    assert any(f"was called {old.name}" in note and new.name in note for note in given["notes"])
    assert any(str(world.project) in note and "does not exist" in note for note in given["notes"])
    assert given["session_id"] == new.name
    assert (metadata.read_session_metadata(new / "branches/main") or {})["session_id"] == old.name


# -- what cannot be written ------------------------------------------------------------------------------------


@contextmanager
def read_only(ref: BranchRef) -> Iterator[None]:
    """Mount the branch's directory read-only, which stops root, too."""
    place = str(ref.branch_dir)
    if os.geteuid() != 0 or subprocess.run(["mount", "--bind", place, place], check=False).returncode != 0:
        pytest.skip("only root mounts")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


async def test_a_branch_that_cannot_be_written_can_be_read(world: World) -> None:
    ref = await conversation(world)
    with read_only(ref):
        async with world.start().using(ref) as branch:
            given = await attach(branch)
            assert given["read_only"] and "Read-only file system" in given["read_only"]
            assert str(ref.branch_dir) in given["read_only"] and "\n" not in given["read_only"]
            with pytest.raises(StoreError, match="Read-only file system"):
                await world.kernel.prompt(branch, text="Hi", options=world.options)
        shown = await world.service().show(Watcher(), branch=ref.key)
        assert "It says alpha." in str(shown)


async def test_a_session_without_a_log_on_a_medium_that_cannot_be_written_can_be_read(world: World) -> None:
    ref = await conversation(world)
    (ref.branch_dir / "messages.jsonl").unlink()
    with read_only(ref):
        async with world.start().using(ref) as branch:
            given = await attach(branch)
            assert given["read_only"]


async def test_when_the_disk_works_again_the_next_who_comes_writes(world: World) -> None:
    ref = await conversation(world)
    kernel, watcher = world.start(), Watcher()
    with read_only(ref):
        async with kernel.using(ref) as branch:
            assert (await attach(branch, watcher))["read_only"]
        async with kernel.using(ref) as branch:
            assert not watcher.of("resync"), "nothing changed"
    async with kernel.using(ref) as branch:
        assert watcher.of("resync"), "whoever watches attaches anew"
        given = await attach(branch, watcher)
        assert given["read_only"] is None
        branch.detach(watcher)
    world.server.say("Yes.")
    await talk(world, ref, "Really?")
    assert body(ref).endswith("Yes.\n\n### ")


async def test_what_the_document_lacks_is_shown_where_it_cannot_be_written(world: World) -> None:
    ref = await conversation(world)
    whole = body(ref)
    log = (ref.branch_dir / "messages.jsonl").read_text().splitlines(keepends=True)
    (ref.branch_dir / "messages.jsonl").write_text("".join(line for line in log if '"kept"' not in line))
    file_of(ref).write_text(whole[: whole.index("Welcome.")])
    with read_only(ref):
        async with world.start().using(ref) as branch:
            given = await attach(branch)
            assert shown(body(ref), given) == whole
    async with world.start().using(ref):
        pass
    assert body(ref) == whole, "written when it can be"


async def test_a_document_that_cannot_be_completed_is_shown_and_completed_later(world: World) -> None:
    ref = await conversation(world)
    whole = body(ref)
    log = (ref.branch_dir / "messages.jsonl").read_text().splitlines(keepends=True)
    (ref.branch_dir / "messages.jsonl").write_text("".join(line for line in log if '"kept"' not in line))
    file_of(ref).write_text(whole[: whole.index("Welcome.")])
    kernel = world.start()
    with no_more_than(file_of(ref).stat().st_size):
        async with kernel.using(ref) as branch:
            watcher = Watcher()
            given = await attach(branch, watcher)
            assert given["edits"] and given["read_only"] is None
            assert any("session.md" in note for note in given["notes"])
            branch.detach(watcher)
    assert body(ref) != whole
    async with kernel.using(ref) as branch:
        await attach(branch)
    assert body(ref) == whole


@contextmanager
def no_more_than(size: int) -> Iterator[None]:
    """Let no file grow beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_what_another_program_writes_comes_in_and_loses_nothing_that_the_file_lacked(world: World) -> None:
    ref = await conversation(world)
    world.server.say("Not written yet.")
    async with world.kernel.using(ref) as branch:
        reader = Watcher()
        await attach(branch, reader)
        await world.kernel.prompt(branch, text="Hello?", options=world.options)
        await reader.finished(branch)
        await branch.document.flush()
        before = body(ref)
        await type_(branch, "A draft")
        file_of(ref).write_text(file_of(ref).read_text().replace("It says alpha.", "Edited elsewhere."))
        await branch.document.settle()
        assert body(ref) == before.replace("It says alpha.", "Edited elsewhere.") + "A draft"
        edits = [event.args[0]["hunks"] for event in reader.of("edit")]
        assert next(hunk[2] for hunks in edits for hunk in hunks) == "A draft"
        assert any("Edited" in hunk[2] for hunk in edits[-1])
        branch.detach(reader)


# -- prompts ---------------------------------------------------------------------------------------------------


async def test_edits_by_other_programs_are_recorded_with_the_next_message_from_anywhere(world: World) -> None:
    ref = await conversation(world)
    text = file_of(ref).read_text()
    file_of(ref).write_text(text.replace("It says alpha.", "It says ALPHA."))
    world.server.say("Yes.")
    await talk(world, ref, "Really?")
    assert "It says ALPHA." in str(world.server.last.messages)
    assert [row.data.get("text") for row in rows(ref) if row.type == "edit"] == ["It says ALPHA."]


async def send(world: World, branch: LiveBranch, end: int | None = None) -> None:
    watcher = Watcher()
    await attached(branch, watcher)
    text = body(branch.ref)
    at = DocumentVersion(sha256=body_sha256(text), marker=len(text) if end is None else end)
    await world.kernel.submit(branch, Submission(text=None, at=at, options=world.options))
    await watcher.finished(branch)
    branch.detach(watcher)


def prompts(ref: BranchRef) -> list[str]:
    return [row.data["id"] for row in rows(ref) if row.type == "message" and row.data["role"] == "user"]


async def test_the_same_prompt_again_is_the_same_message(world: World) -> None:
    world.server.say("One.", "Two.")
    ref = world.session()
    file_of(ref).write_text("### Say a number.")
    async with world.kernel.using(ref) as branch:
        await send(world, branch)
        await send(world, branch, end=len("### Say a number."))
    assert body(ref) == "### Say a number.\n\nTwo.\n\n### \n\nOne.\n\n### "
    assert len(prompts(ref)) == 1
    assert [row.data["message_id"] for row in rows(ref) if row.type == "run" and row.data["state"] == "started"] == (
        prompts(ref) * 2
    )
    assert not [row for row in rows(ref) if row.type == "edit" and row.data.get("message_id")]


async def test_a_prompt_that_was_edited_is_another_message(world: World) -> None:
    world.server.say("One.", "Two.")
    ref = world.session()
    file_of(ref).write_text("### Say a number.")
    async with world.kernel.using(ref) as branch:
        await send(world, branch)
        file_of(ref).write_text("### Say another number.")
        await send(world, branch)
    assert len(prompts(ref)) == 2
    assert "Say a number" not in str(world.server.last.messages)


async def test_roles_that_another_program_loses_while_the_document_is_open_are_written_again(world: World) -> None:
    ref = await conversation(world)
    known = document.read(file_of(ref)).spans
    async with world.kernel.using(ref) as branch:
        await attach(branch)
        without_block(ref)
        file_of(ref).write_text(body(ref) + "Really?")
        world.server.say("Yes.")
        await branch.document.look()
        text = body(ref)
        at = DocumentVersion(sha256=body_sha256(text), marker=len(text))
        await world.kernel.submit(branch, Submission(text=None, at=at, options=world.options))
        assert branch.task is not None
        await branch.task
    assert document.read(file_of(ref)).spans[: len(known)] == known
    assert "toolu_1" in str(world.server.last.messages)


async def test_a_lost_log_is_made_anew_before_a_message_from_a_terminal_is_answered(world: World) -> None:
    ref = await conversation(world)
    (ref.branch_dir / "messages.jsonl").unlink()
    world.server.say("Yes.")
    async with world.start().using(ref) as branch:
        watcher = Watcher()
        branch.sinks[watcher] = 0
        await world.kernel.prompt(branch, text="Really?", options=world.options)
        await watcher.finished(branch)
        branch.detach(watcher)
    texts = [row.data["data_json"].get("text") for row in rows(ref) if row.type == "part"]
    assert texts.index("It says alpha.") < texts.index("Really?")
    assert body(ref).count("It says alpha.") == 1 and body(ref).endswith("Really?\n\nYes.\n\n### ")


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
async def test_an_emptied_document_is_made_anew_and_not_taken_for_a_deletion(world: World, content: str) -> None:
    ref = await conversation(world)
    before = body(ref)
    assert before.strip()
    await world.kernel.shutdown()
    file_of(ref).write_text(content)
    async with world.start().using(ref) as branch:
        answered = await attach(branch, Watcher())
        assert "session.md was empty; it was made anew" in str(answered)
        assert "/context clear" in str(answered)
    assert body(ref).strip() == before.strip()
    assert not [row for row in rows(ref) if row.type == "edit"]


async def test_a_document_that_was_never_written_is_written_whole_without_a_question(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = await world.service().create_session(Watcher(), name="test", preset="main", root=str(world.project))
    ref, killed = paths.ref_of(Path(given["branch"])), world.kernel
    write, may_write = document_sync.write_document, threading.Event()

    def waiting(*args: Any) -> Any:
        assert may_write.wait(60)
        return write(*args)

    monkeypatch.setattr(document_sync, "write_document", waiting)
    world.server.rule = lambda request: answer("Welcome.", hang_after=2)
    async with killed.using(ref) as branch:
        sent = asyncio.create_task(killed.prompt(branch, text="Hello.", options=world.options))
        await until(lambda: any(row.type == "run" for row in rows(ref)))
        copy = ref.session_dir.with_name("copy-20260304050607")  # has what a killed daemon leaves
        await asyncio.to_thread(shutil.copytree, ref.session_dir, copy, symlinks=True)
        may_write.set()
        await sent
    await killed.shutdown()

    world.server.rule = lambda request: answer("Welcome.")
    world.start()
    other = paths.ref_of(copy / "branches" / "main")
    assert file_of(other).read_bytes() == b""
    editor = Watcher()
    answered = await world.service().attach(editor, branch=other.key, sha256=body_sha256(""))
    if answered.get("unknown"):
        answered = await world.service().attach(editor, branch=other.key, sha256=body_sha256(body(other)))
    assert answered["asks"] == [] and "empty" not in str(answered["notes"])
    await world.kernel.shutdown()
    written = document.read(file_of(other))
    assert written.body == f"### Hello.\n\n``` error\n{RESTARTED}\n```\n\n### "
    assert written.settings.model == "model-main"
    assert file_of(other).read_text().count("Local Variables:") == 1
    world.start()
    await talk(world, other, "More.")
    assert body(other) == f"{written.body}More.\n\nWelcome.\n\n### "
    assert [message["role"] for message in world.server.last.messages] == ["user"]
    assert "Hello." in str(world.server.last.messages)


@pytest.mark.parametrize("chosen", ["Restore", "Remove", None])
async def test_whoever_edits_an_emptied_document_is_asked_whether_the_conversation_was_to_be_removed(
    world: World, chosen: str | None
) -> None:
    ref = await conversation(world)
    before = body(ref)
    await world.kernel.shutdown()
    file_of(ref).write_text("")
    world.start()
    service, editor = world.service(), Watcher()
    assert (await service.attach(editor, branch=ref.key, sha256=body_sha256("")))["unknown"]
    for _ in range(2):  # a client that attaches again is not asked again
        given = await service.attach(editor, branch=ref.key, sha256=body_sha256(body(ref)))
    (asked,) = given["asks"]
    assert "session.md was empty" in asked["questions"][0]["question"]
    assert [option["label"] for option in asked["questions"][0]["options"]] == ["Restore", "Remove"]
    branch = world.kernel.opened(ref.key)
    assert branch is not None and visible(branch.conversation), "nothing is removed while nobody has answered"
    if chosen:
        await service.answer(editor, ask=asked["id"], decision="answer", answers=f'[["{chosen}"]]')
    else:
        await service.answer(editor, ask=asked["id"], decision="deny")
    if chosen == "Remove":
        await editor.until(lambda: not visible(branch.conversation))
    await world.kernel.shutdown()
    assert bool(visible(Conversation(rows(ref)))) == (chosen != "Remove")
    assert before.strip() in body(ref), "the text stays, folded where the model is not shown it"


async def test_a_conversation_that_went_on_is_not_removed_by_a_late_answer(world: World) -> None:
    ref = await conversation(world)
    await world.kernel.shutdown()
    file_of(ref).write_text("")
    world.start()
    service, editor = world.service(), Watcher()
    await service.attach(editor, branch=ref.key, sha256=body_sha256(""))
    (asked,) = (await service.attach(editor, branch=ref.key, sha256=body_sha256(body(ref))))["asks"]
    world.server.say("More.")
    branch = world.kernel.opened(ref.key)
    assert branch is not None
    await world.kernel.prompt(branch, text="Go on", options=world.options)
    await editor.until(lambda: editor.of("run") and editor.of("run")[-1].args[0]["phase"] == "finished")
    await service.answer(editor, ask=asked["id"], decision="answer", answers='[["Remove"]]')
    await editor.until(lambda: any("went on" in str(event.args) for event in editor.of("notice")))
    assert any("More." in message.text for message in visible(branch.conversation))


async def test_a_document_that_is_emptied_while_it_is_open_refuses_a_prompt(world: World) -> None:
    ref = await conversation(world)
    async with world.kernel.using(ref) as branch:
        file_of(ref).write_text("")
        with pytest.raises(Conflict, match="is empty, but its log has a conversation"):
            await world.kernel.prompt(branch, text="Go on", options=world.options)
        assert not [row for row in rows(ref) if row.type == "edit"]


async def test_a_prompt_that_the_disk_refuses_is_sent_once_the_disk_works(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, service, editor = await conversation(world), world.service(), Watcher()
    given = await service.attach(editor, branch=ref.key, sha256=body_sha256(body(ref)))
    at = {"branch": ref.key, "revision": given["revision"]}
    known, end = rows(ref), len(body(ref)) + 1
    write, full = document_sync.write_document, True

    def may_fail(path: Path, *arguments: Any) -> Any:
        if full:
            raise StoreError(f"{path}: No space left on device")
        return write(path, *arguments)

    monkeypatch.setattr(document_sync, "write_document", may_fail)
    await service.edit_document(editor, **at, id="typed", hunks=[[end, end, "And more", None]])
    sending = {**at, "end": end + len("And more"), "after": "typed", "env": world.options.env}
    with pytest.raises(StoreError, match="No space left on device"):
        await service.send(editor, **sending)
    assert rows(ref) == known, "nothing of it was recorded"
    full = False
    world.server.say("More it is.")
    await service.send(editor, **sending)
    assert (await editor.finished(ref.key))["reason"] == "done"
    await world.kernel.shutdown()
    assert body(ref).count("And more\n\nMore it is.") == 1


async def test_no_event_overtakes_the_answer_that_attaches(world: World) -> None:
    """A client takes what comes before the answer for a part of it, so it would never be shown."""

    class Early(Watcher):
        def reset(self, branch: str, seq: int) -> None:
            asyncio.get_running_loop().call_soon(lambda: self.push(Event("insert", branch, seq + 1, ("late", None))))

    ref, early = await conversation(world), Early()
    for known in ({"sha256": body_sha256(body(ref))}, {}):
        given = await world.service().attach(early, branch=ref.key, **known)
        assert given["seq"] and not early.of("insert")
        await early.until(lambda: early.of("insert"))
        early.events.clear()


async def test_a_session_whose_commands_cannot_be_confined_says_so_for_its_header(world: World) -> None:
    service = world.service()
    file = world.presets / "main.md"

    async def told(ref: BranchRef) -> str:
        given = await service.attach(Watcher(), branch=ref.key, sha256=body_sha256(body(ref)))
        return str(given["unconfined"])

    # By default it is what a question before a command says: nothing where there is bubblewrap or Landlock.
    ref = world.session("usual")
    assert await told(ref) == enclosure.confinement_warning(
        shell_scope(world.kernel.presets, ref, (), world.kernel.config, world.project)()
    )
    file.write_text(file.read_text().replace('allow: ["*"]', 'allow: ["*"]\n  confine: false'))
    said = await told(world.session("loose"))
    assert "not confined" in said and "by its preset" in said
    file.write_text(file.read_text().replace("Bash, ", ""))
    assert await told(world.session("without")) == "", "there are no commands"

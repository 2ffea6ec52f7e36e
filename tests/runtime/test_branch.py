"""An open branch and its clients: who is told what, and that nothing comes back which the user removed."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from typing import Any

import pytest

from pyagentd.errors import BadRequest, NotFound
from pyagentd.runtime.branch import ClientText, LiveBranch, attach_client
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.queue import Submission
from pyagentd.store import paths
from pyagentd.store.document import text as document
from pyagentd.store.document.files import Hunk
from pyagentd.store.document.text import body_sha256
from pyagentd.store.paths import BranchRef
from tests.runtime.world import Watcher, World, assert_closed, attached, body, rows, type_
from tests.server import answer, text, tool_use


async def attach(branch: LiveBranch, sink: Watcher, sha256: str, seq: int | None = None) -> dict[str, Any] | None:
    return await attach_client(branch, sink, ClientText(sha256=sha256, seq=seq))


def after(text: str, given: dict[str, Any]) -> str:
    """Return the text that a client has after the edits that it was told when it attached."""
    for _, hunks in given["edits"]:
        for begin, end, new, _ in reversed(hunks):
            text = text[: begin - 1] + new + text[end - 1 :]
    return text


async def prompt(world: World, branch: LiveBranch, said: str = "Hi") -> None:
    """Run a prompt to its end."""
    watcher = Watcher()
    await attached(branch, watcher)
    await world.kernel.prompt(branch, text=said, options=world.options)
    await watcher.finished(branch)
    branch.detach(watcher)


async def test_a_new_session_begins_with_the_heading_of_a_prompt_for_all_who_attach(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        first = await attach(branch, Watcher(), body_sha256(""))
        second = await attach(branch, Watcher(), body_sha256("### "))
        assert first is not None and second is not None
        assert (after("", first), after("### ", second)) == ("### ", "### ")
        assert first["marker"] is None and first["status"] == {"state": "idle", "queued": 0}
        await branch.document.flush()
        assert not branch.file.exists() or body(branch.ref) == "", "nobody wrote anything"


async def test_a_text_nobody_knows_is_to_be_sent_and_what_differs_is_told(world: World) -> None:
    ref = world.session()
    (ref.branch_dir / "session.md").write_text("### Hi there")
    async with world.kernel.using(ref) as branch:
        stranger = Watcher()
        assert await attach(branch, stranger, body_sha256("something else")) is None
        assert stranger not in branch.sinks
        given = await attach_client(branch, stranger, ClientText(text="### Hi you"))
        assert given is not None and after("### Hi you", given) == "### Hi there" and stranger in branch.sinks


async def test_who_attaches_while_the_model_speaks_gets_the_rest_live(world: World) -> None:
    world.server.say(answer(text("Hello world", chunks=11), hang_after=8))
    ref, watcher, late = world.session(), Watcher(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.until(lambda: "He" in watcher.text(branch.key))
        mine = body(ref)
        given = await attach(branch, late, body_sha256(mine))
        assert given is not None and given["status"]["state"] == "busy"
        mine, marker = after(mine, given), given["marker"] - 1
        await world.kernel.abort(branch)
        mine = mine[:marker] + late.text(branch.key) + mine[marker:]
        for client in (late, watcher):
            branch.detach(client)
        await branch.document.flush()
    assert mine == body(ref) == "### Hi\n\n" + watcher.text(ref.key).removeprefix("Hi\n\n")


async def test_who_was_told_to_resync_gets_what_came_after_the_last_event_it_saw(world: World) -> None:
    world.server.say("Hello")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        first = await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.until(lambda: watcher.text(branch.key).endswith("### "))
        seen = next(event for event in watcher.of("insert") if event.args[0] == "\n\n")
        given = await attach_client(branch, watcher, ClientText(seq=seen.seq))
        assert given is not None
        assert "".join(inserted for _, inserted, _ in given["inserts"]) == "Hello\n\n### "
        given = await attach_client(branch, watcher, ClientText(revision=first["revision"]))
        assert given is not None and after("### ", given) == "### Hi\n\nHello\n\n### "
        await watcher.until(lambda: branch.run is None)


async def test_an_edit_goes_to_everybody_else_and_into_the_file(world: World) -> None:
    ref, one, other = world.session(), Watcher(), Watcher()
    async with world.kernel.using(ref) as branch:
        given = await attached(branch, one)
        await attached(branch, other)
        branch.document.edit(one, given["revision"], (Hunk(4, 4, "Hi"),), id="e1")
        (mine,), (theirs,) = one.of("edit"), other.of("edit")
        assert mine.args[0]["own"] and mine.args[0]["id"] == "e1"
        assert theirs.args[0]["hunks"] == [(5, 5, "Hi", [])]
        await branch.document.flush()
        assert body(ref) == "### Hi"
        assert other.of("persisted")[-1].args[0]["revision"] == theirs.args[0]["revision"]
        branch.document.edit(other, given["revision"], (Hunk(4, 4, "Ho"),))  # it has not seen the other's yet
        assert branch.document.live.document.body == "### HiHo"
        met = branch.document.edit(one, theirs.args[0]["revision"], (Hunk(4, 6, "Hu"),))
        assert branch.document.live.document.body == "### HuHo" and met == []


async def test_a_client_that_lost_its_connection_finds_its_own_edit_by_its_id(world: World) -> None:
    ref, one = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        given = await attached(branch, one)
        branch.document.edit(one, given["revision"], (Hunk(4, 4, "Hi"),), id="e1")
        again = await attach_client(branch, one, ClientText(revision=given["revision"]))
        assert again is not None and [id for id, _ in again["edits"]] == ["e1"]


async def test_who_leaves_while_attaching_watches_nothing_and_holds_nothing(world: World) -> None:
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        world.server.say("Hello")
        await prompt(world, branch)
        os.utime(branch.file)  # so that it is read
        leaving = Watcher()
        attaching = asyncio.create_task(attach(branch, leaving, body_sha256(body(ref))))
        await asyncio.sleep(0)
        world.kernel.forget(leaving)
        with pytest.raises(NotFound):
            await attaching
        assert leaving not in branch.sinks
    assert world.kernel.opened(ref.key) is None


# -- the document and the log ----------------------------------------------------------------------------------


async def restarted(world: World, ref: BranchRef) -> str:
    """Open the branch as a new daemon does, and return the document then."""
    async with world.start().using(ref):
        return body(ref)


async def test_an_answer_that_the_user_deleted_stays_deleted_after_a_restart(world: World) -> None:
    world.server.say("Hello")
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        await prompt(world, branch)
    (ref.branch_dir / "session.md").write_text("### Hi\n\n### ")
    assert await restarted(world, ref) == "### Hi\n\n### "
    world.server.say("Again")
    async with world.kernel.using(ref) as branch:
        await prompt(world, branch, "More")
    assert body(ref) == "### Hi\n\n### More\n\nAgain\n\n### "
    assert "Hello" not in str(world.server.last.messages)


@pytest.mark.parametrize("lost", ["the end", "half the answer"])
async def test_a_log_that_lost_the_end_of_a_run_adds_nothing_to_a_document_that_shows_it(
    world: World, lost: str
) -> None:
    world.server.say("Hello, this is quite a long answer.")
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        await prompt(world, branch)
    log = ref.branch_dir / "messages.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    ended = next(i for i, line in enumerate(lines) if b'"state":"finished"' in line)
    if lost == "half the answer":
        ended = next(i for i, line in enumerate(lines) if b'"type":"delta"' in line)
    log.write_bytes(b"".join(lines[:ended]) + lines[ended][:-20])
    before = body(ref)
    assert await restarted(world, ref) == before
    assert_closed(ref)
    world.server.say("Again")
    async with world.kernel.using(ref) as branch:
        await prompt(world, branch, "More")
    assert body(ref) == f"{before}More\n\nAgain\n\n### "
    assert "quite a long answer" in str(world.server.last.messages)


async def test_a_document_that_is_gone_is_made_anew_from_the_log(world: World) -> None:
    world.server.say(answer("Let me see.", tool_use("Glob", pattern="*")), "Nothing there.", "Again")
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        await prompt(world, branch, "What is there?")
        await prompt(world, branch, "And now?")
    before = document.read(ref.branch_dir / "session.md")
    (ref.branch_dir / "session.md").unlink()
    assert paths.ref_of(ref.session_dir) == ref
    async with world.start().using(ref) as branch:
        assert any("session.md was missing" in note for note in branch.notes)
        assert body(ref) == before.body
        made = document.read(ref.branch_dir / "session.md")
        assert (made.spans, made.settings) == (before.spans, before.settings)
    world.server.say("Fine")
    async with world.kernel.using(ref) as branch:
        await prompt(world, branch, "More")
    assert body(ref) == f"{before.body}More\n\nFine\n\n### "


async def test_text_of_a_run_whose_roles_were_shifted_before_a_restart_is_there_once(world: World) -> None:
    world.server.say("Hello", answer("I use Bash for this.", tool_use("Bash", command="sleep 100")))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await prompt(world, branch, "The first question")
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Sleep", options=world.granted("tool:Bash:.*"))
        await watcher.phase(branch, "TOOL")
        await branch.document.flush()
        file = ref.branch_dir / "session.md"
        shifted = file.read_text().replace("The first question", "The very first question")
        copy = ref.branch_dir.parent / "copy"  # what is on disk is what a killed daemon leaves
        await asyncio.to_thread(shutil.copytree, ref.branch_dir, copy)
        await world.kernel.abort(branch)
    left = replace(ref, branch_name="copy", branch_dir=copy)
    (copy / "session.md").write_text(shifted)
    text = await restarted(world, left)
    assert text.count("I use Bash for this.") == 1
    assert text.startswith("### The very first question\n\nHello\n\n### Sleep\n\nI use Bash for this.\n\n``` tool ")
    assert text.count("### ") == 3


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
async def test_what_the_file_lacked_is_put_there_when_the_branch_is_opened_again(world: World, saved: bool) -> None:
    world.server.say("Hello")
    ref, editor = world.session(), Watcher()
    shown = "### Hi\n\nHello\n\n### "
    file = ref.branch_dir / "session.md"
    async with world.kernel.using(ref) as branch:
        await attached(branch, editor)
        await world.kernel.submit(branch, Submission(text=None, at=await type_(branch, "Hi"), options=world.options))
        await editor.until(lambda: branch.run is None)
        await branch.document.flush()
        assert body(ref) == shown
        branch.abandon()  # the daemon is killed
        world.kernel._branches.clear()
    if not saved:
        file.write_text("### Hi\n\nHe")
        log = (ref.branch_dir / "messages.jsonl").read_text().splitlines(keepends=True)
        (ref.branch_dir / "messages.jsonl").write_text("".join(line for line in log if '"kept"' not in line))
    else:
        file.write_text("### Hi\n\nHello, edited\n\n### ")
    assert await restarted(world, ref) == (shown if not saved else "### Hi\n\nHello, edited\n\n### ")
    assert_closed(ref)


async def test_a_prompt_sent_from_a_document_must_be_in_the_file(world: World) -> None:
    ref = world.session()
    file = ref.branch_dir / "session.md"
    async with world.kernel.using(ref) as branch:
        with pytest.raises(BadRequest, match="changed too much since"):
            await world.kernel.submit(
                branch,
                Submission(
                    text=None, at=DocumentVersion(sha256=body_sha256("### Hi"), marker=6), options=world.options
                ),
            )
        file.write_text("### ")
        with pytest.raises(BadRequest, match="no prompt"):
            await world.kernel.submit(
                branch,
                Submission(
                    text=None, at=DocumentVersion(sha256=body_sha256("### "), marker=4), options=world.options
                ),
            )
    assert [row for row in rows(ref) if row.type == "run"] == []


async def test_text_below_the_prompt_is_a_draft_and_stays_below(world: World) -> None:
    world.server.say("Hello")
    ref, watcher = world.session(), Watcher()
    file = ref.branch_dir / "session.md"
    file.write_text("### Hi\n\na draft")
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        sha256 = body_sha256(document.read(file).body)
        await world.kernel.submit(
            branch, Submission(text=None, at=DocumentVersion(sha256=sha256, marker=6), options=world.options)
        )
        await watcher.finished(branch)
    assert body(ref) == "### Hi\n\nHello\n\n### \n\na draft"
    assert "draft" not in str(world.server.last.messages)


async def test_a_session_that_was_made_without_us_can_be_prompted(world: World) -> None:
    world.server.say("Hello")
    ref = world.session()
    assert not (ref.branch_dir / "messages.jsonl").exists()
    async with world.kernel.using(ref) as branch:
        await prompt(world, branch)
    assert body(ref) == "### Hi\n\nHello\n\n### "

"""Rewinding, editing, asking again, variants and forks: log, document, model view, other clients."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pyagentd.errors import BadRequest, Busy, NotFound, PyagentdError, StoreError
from pyagentd.features.history import History, fork_of, forks_of, history
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.queue import Submission
from pyagentd.runtime.settings import SendOptions
from pyagentd.store import branching, paths
from pyagentd.store.document import hidden
from pyagentd.store.document import text as document
from pyagentd.store.document.text import format_file, gptel_messages
from pyagentd.store.paths import BranchRef
from tests.runtime.world import Watcher, World, attached, body, last_of, rows
from tests.server import answer, refusal, text, thinking, tool_use


class Chat:
    """One branch that somebody talks to and changes."""

    def __init__(self, world: World, branch: LiveBranch) -> None:
        self.world, self.branch = world, branch
        self.history = History(world.kernel)
        self.options = world.options

    async def say(self, said: str, reply: str = "") -> str:
        """Send a prompt, wait for its answer, and return the message's id."""
        self.world.server.say(answer(thinking("hm"), text(reply or f"Answer to {said}")))
        watcher = Watcher()
        await attached(self.branch, watcher)
        await self.world.kernel.prompt(self.branch, text=said, options=self.options)
        await watcher.finished(self.branch)
        self.branch.detach(watcher)
        return hidden.prompts(self.branch.conversation)[-1].id

    async def regenerate(self, reply: str, message: str | None = None) -> None:
        self.world.server.say(answer(text(reply)))
        watcher = Watcher()
        await attached(self.branch, watcher)
        await self.history.regenerate(self.branch, message, self.world.options)
        await watcher.finished(self.branch)
        self.branch.detach(watcher)

    async def edit(self, message: str, said: str, reply: str) -> None:
        self.world.server.say(answer(text(reply)))
        watcher = Watcher()
        await attached(self.branch, watcher)
        await self.history.edit(self.branch, message, said, self.world.options)
        await watcher.finished(self.branch)
        self.branch.detach(watcher)

    def seen(self) -> list[str]:
        """What the model was sent last, as texts."""
        return [
            block["text"]
            for message in self.world.server.requests[-1].messages
            for block in _blocks(message)
            if block["type"] == "text"
        ]

    def shown(self) -> list[str]:
        """What stock gptel would send of the document."""
        doc = document.read(self.branch.file)
        return [str(message["content"]) for message in gptel_messages(format_file(doc))]

    def metadata(self, message: str) -> dict[str, Any]:
        found: dict[str, Any] = last_of(rows(self.branch.ref), "message")[message]["metadata_json"]
        return found


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@pytest.mark.spec("B.10", "rewind+edit+resend keeps history")
async def test_a_rewind_hides_what_came_after_and_keeps_all_text(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        second = await chat.say("two")
        before = body(branch.ref)
        changed = await chat.history.rewind(branch, first)
        assert len(changed["hidden"]) == 3 and second in changed["hidden"]
        assert body(branch.ref) == before, "the text stays"
        assert chat.shown() == ["one"]
        told = chat.metadata(second)
        assert told["hidden_by"] == "rewind" and isinstance(told["hidden_at"], int)
        assert "hidden_at" not in chat.metadata(first)
        await chat.say("three")
        assert chat.seen() == ["one", "three"]
        assert chat.shown() == ["one", "three", "Answer to three"]


async def test_a_rewind_is_reversed_also_after_a_restart_of_the_daemon(world: World) -> None:
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        await chat.say("two")
        spans = document.read(branch.file).spans
        await chat.history.rewind(branch, first)
    await world.kernel.shutdown()
    world.start()
    async with world.kernel.using(ref) as branch:
        chat = Chat(world, branch)
        changed = await chat.history.unrewind(branch)
        assert len(changed["shown"]) == 3
        assert document.read(branch.file).spans == spans
        await chat.say("three")
        assert chat.seen() == ["one", "Answer to one", "two", "Answer to two", "three"]
        with pytest.raises(BadRequest, match="no rewind to reverse"):
            await chat.history.unrewind(branch)


async def test_a_rewind_is_not_reversed_over_what_was_sent_since(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        await chat.say("two")
        await chat.history.rewind(branch, first)
        third = await chat.say("three")
        with pytest.raises(BadRequest, match="sent since"):
            await chat.history.unrewind(branch)
        found = hidden.variants(branch.conversation, first)
        assert [variant.group is None for variant in found] == [False, True]
        await chat.history.choose(branch, third, 1)  # what the error advises
        assert chat.shown() == ["one", "Answer to one", "two", "Answer to two"]


async def test_files_that_hidden_turns_changed_are_restored_on_request(world: World) -> None:
    file = world.project / "notes.txt"
    file.write_text("before")
    async with world.kernel.using(world.session()) as branch:
        branch.record_session(workspace_root=world.project)
        chat = Chat(world, branch)
        world.server.say(answer(tool_use("Write", file_path=str(file), content="after")))
        chat.options = world.granted("tool:Write:.*")
        first = await chat.say("change it")
        assert file.read_text() == "after"
        changed = await chat.history.rewind(branch, first, files=True)
        assert changed["files"] is not None and changed["files"]["restored"] == [str(file)]
        assert file.read_text() == "before"
        changed = await chat.history.unrewind(branch)
        assert changed["files"] is not None and file.read_text() == "after"


def _remove(branch: LiveBranch, text: str) -> None:
    """Delete an answer in the file, as with an editor."""
    doc = document.read(branch.file)
    spans = tuple(s for s in doc.spans if doc.body[s.start : s.end] != text)
    branch.file.write_text(format_file(document.Document(body=doc.body.replace(text, ""), spans=spans)))


async def test_what_the_user_removed_does_not_come_back_with_a_rewind(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        await chat.say("two")
        _remove(branch, "Answer to two")
        await chat.history.rewind(branch, first)
        await chat.history.unrewind(branch)
        await chat.say("three")
        assert "Answer to two" not in chat.seen()
        assert "Answer to one" in chat.seen() and "two" in chat.seen()


async def test_nothing_is_taken_back_while_a_run_is_in_flight(world: World) -> None:
    world.server.say(answer(text("Hello world", chunks=11), hang_after=8))
    async with world.kernel.using(world.session()) as branch:
        watcher, chat = Watcher(), Chat(world, branch)
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.until(lambda: "He" in watcher.text(branch.key))
        prompt = hidden.prompts(branch.conversation)[0].id
        for wanted in (
            chat.history.rewind(branch, prompt),
            chat.history.unrewind(branch),
            chat.history.choose(branch, prompt, 1),
            chat.history.regenerate(branch, None, world.options),
            chat.history.edit(branch, prompt, "Ho", world.options),
            fork_of(world.kernel, branch, prompt),
        ):
            with pytest.raises(Busy):
                await wanted
        await world.kernel.abort(branch)


async def test_a_message_that_is_no_prompt_is_told_with_those_there_are(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        reply = hidden.continuation(branch.conversation, first)[0].id
        with pytest.raises(NotFound) as error:
            await chat.history.rewind(branch, reply)
        assert first in str(error.value) and "one" in str(error.value)


async def test_asking_again_makes_variants_that_can_be_cycled(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one", "red")
        await chat.regenerate("blue")
        assert chat.seen() == ["one"]
        assert chat.shown() == ["one", "blue"]
        text_of = body(branch.ref)
        assert text_of.index("red") < text_of.index("blue") and text_of.endswith("blue\n\n### ")
        assert len(hidden.prompts(branch.conversation)) == 1, "no second message is made of the prompt"
        found = hidden.variants(branch.conversation, first)
        assert [variant.first.text for variant in found] == ["red", "blue"]
        assert chat.metadata(found[0].first.id)["hidden_by"] == "variant"
        await chat.history.choose(branch, found[1].first.id, 1)
        assert chat.shown() == ["one", "red"]
        await chat.history.choose(branch, found[0].first.id, 2)
        assert chat.shown() == ["one", "blue"]
        assert body(branch.ref) == text_of
        await chat.say("two")
        assert chat.seen() == ["one", "blue", "two"]


async def test_a_variant_is_hidden_with_what_is_said_of_its_end_and_leaves_no_heading(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        await chat.say("one", "red")
        world.server.say(answer(text("blue and more", chunks=3), hang_after=4))
        watcher = Watcher()
        await attached(branch, watcher)
        await chat.history.regenerate(branch, None, world.options)
        await watcher.phase(branch, "TYPE")
        await world.kernel.abort(branch)
        branch.detach(watcher)
        await chat.regenerate("green")
        assert "Stopped" in body(branch.ref) and shown_text(branch) == "### one\n\ngreen\n\n### "
        group = hidden.variants(branch.conversation, hidden.prompts(branch.conversation)[0].id)
        await chat.history.choose(branch, group[2].first.id, 1)
        assert shown_text(branch).endswith("```\n\nred\n\n### ") and shown_text(branch).count("###") == 2


def shown_text(branch: LiveBranch) -> str:
    """Return the document as people see it, without what is folded."""
    shown = body(branch.ref)
    for start, end, *_ in reversed(history(branch.document.live.document, 1, branch.conversation)["hidden"]):
        shown = shown[: start - 1] + shown[end - 1 :]
    return shown


async def test_a_draft_stays_below_the_answer_that_was_asked_for_again(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        await chat.say("one", "red")
        doc = document.read(branch.file)
        branch.file.write_text(format_file(replace(doc, body=doc.body + "A draft")))
        await chat.regenerate("blue")
        assert body(branch.ref).endswith("red\n\n### \n\nblue\n\n### A draft")
        assert chat.seen() == ["one"] and chat.shown() == ["one", "blue", "A draft"]


async def test_later_turns_follow_the_variant_they_were_made_with(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one", "red")
        await chat.say("two", "more red")
        await chat.regenerate("blue", first)
        assert chat.shown() == ["one", "blue"]
        await chat.say("three", "more blue")
        red, blue = hidden.variants(branch.conversation, first)
        await chat.history.choose(branch, blue.first.id, 1)
        assert chat.shown() == ["one", "red", "two", "more red"]
        await chat.history.choose(branch, red.first.id, 2)
        assert chat.shown() == ["one", "blue", "three", "more blue"]
        with pytest.raises(NotFound, match="no variant 3"):
            await chat.history.choose(branch, blue.first.id, 3)


@pytest.mark.spec("B.10", "rewind+edit+resend keeps history")
async def test_an_edited_prompt_is_sent_instead_and_the_first_one_is_kept(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        await chat.say("one")
        second = await chat.say("two")
        await chat.say("three")
        await chat.edit(second, "two, but better", "Well")
        assert chat.seen() == ["one", "Answer to one", "two, but better"]
        assert chat.shown() == ["one", "Answer to one", "two, but better", "Well"]
        assert chat.metadata(second)["hidden_by"] == "edit"
        assert "Answer to three" in body(branch.ref)
        new = hidden.prompts(branch.conversation)[-1].id
        await chat.history.choose(branch, new, 1)
        assert chat.shown() == ["one", "Answer to one", "two", "Answer to two", "three", "Answer to three"]


async def test_a_prompt_that_was_edited_in_place_is_put_back_unless_no_run_can_start(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        doc = document.read(branch.file)
        _reword_one(branch)
        typed = body(branch.ref)
        with pytest.raises(PyagentdError):
            await chat.history.edit(branch, first, "uno", SendOptions(env={"PYAGENTD_BACKEND": "nowhere"}))
        await branch.document.flush()
        assert body(branch.ref) == typed
        await chat.edit(first, "uno", "Sí")
        assert chat.shown() == ["uno", "Sí"]
        await chat.history.choose(branch, hidden.prompts(branch.conversation)[-1].id, 1)
        assert chat.shown() == ["one", "Answer to one"] and body(branch.ref).startswith(doc.body.rstrip("# \n"))


def _reword_one(branch: LiveBranch) -> None:
    doc = document.read(branch.file)
    branch.file.write_text(format_file(replace(doc, body=doc.body.replace("one", "uno", 1))))


async def test_the_first_prompt_can_be_edited(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        await chat.edit(first, "uno", "Sí")
        assert chat.seen() == ["uno"] and chat.shown() == ["uno", "Sí"]
        await chat.say("dos")
        assert chat.seen() == ["uno", "Sí", "dos"]


async def test_what_cannot_be_asked_again_leaves_everything_as_it_was(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        spans = document.read(branch.file).spans
        nobody = SendOptions(env={"PYAGENTD_BACKEND": "nowhere"})
        for wanted in (
            chat.history.regenerate(branch, None, nobody),
            chat.history.edit(branch, first, "uno", nobody),
        ):
            with pytest.raises(PyagentdError):
                await wanted
            assert len(hidden.visible(branch.conversation)) == 2
            assert document.read(branch.file).spans == spans


async def test_nothing_is_asked_again_before_what_waits_is_answered(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        branch.paused = True
        await world.kernel.queue.add(branch, Submission(text="two", options=world.options))
        branch.paused = False  # it is about to fire
        spans = document.read(branch.file).spans
        for wanted in (
            chat.history.regenerate(branch, None, world.options),
            chat.history.edit(branch, first, "uno", world.options),
        ):
            with pytest.raises(Busy):
                await wanted
        assert [message.text for message in branch.queue.waiting] == ["two"]
        assert document.read(branch.file).spans == spans and len(hidden.visible(branch.conversation)) == 2
        branch.queue.cancel(branch.queue.waiting[0].id)


async def test_an_answer_comes_back_when_the_one_instead_of_it_failed(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one", "red")
        watcher = Watcher()
        await attached(branch, watcher)
        world.server.say(refusal(400, "invalid_request_error", "No"))
        await chat.history.regenerate(branch, None, world.options)
        assert (await watcher.finished(branch))["reason"] == "error"
        branch.detach(watcher)
        assert chat.shown() == ["one"]
        red = hidden.variants(branch.conversation, first)[0].first.id
        assert history(branch.document.live.document, 1, branch.conversation)["variants"] == [(5, 8, red, 0, 1)]
        await chat.history.unrewind(branch)
        assert chat.shown() == ["one", "red"]


async def test_an_editor_gets_roles_and_the_place_of_the_next_answer(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat, editor = Chat(world, branch), Watcher()
        await chat.say("one", "red")
        await attached(branch, editor)
        world.server.say(answer(text("blue")))
        await chat.history.regenerate(branch, None, world.options)
        await editor.until(lambda: any(e.args[0]["phase"] == "finished" for e in editor.of("run")))
        placed = [event.args[0] for event in editor.of("roles") if "marker" in event.args[0]]
        assert placed
        await branch.document.flush()
        assert body(branch.ref).endswith("red\n\n### \n\nblue\n\n### ")
        branch.detach(editor)


async def test_a_fork_has_the_messages_and_not_what_was_done(world: World) -> None:
    (world.project / "a.txt").write_text("hello")
    async with world.kernel.using(world.session()) as branch:
        branch.record_session(workspace_root=world.project, agent="main")
        branch.note_session(title="A talk", permissions_json=[{"pattern": "tool:.*"}])
        chat = Chat(world, branch)
        world.server.say(answer(tool_use("Read", file_path=str(world.project / "a.txt"))))
        first = await chat.say("one")
        second = await chat.say("two")
        await chat.say("three")
        await chat.history.rewind(branch, second)
        reply = hidden.continuation(branch.conversation, first)[0].id
        made = await fork_of(world.kernel, branch, reply)
        parent_rows = last_of(rows(branch.ref), "message")
    session = next(row.data for row in rows(made) if row.type == "session")
    assert (session["parent_id"], session["parent_message_id"]) == (branch.ref.session_id, reply)
    assert (session["title"], session["permissions_json"]) == ("A talk (copy)", [])
    assert session["workspace_root"] == str(world.project)
    copied = last_of(rows(made), "message")
    assert not copied.keys() & parent_rows.keys() and len(copied) == 2
    assert {row.type for row in rows(made)} == {"session", "message", "part"}
    assert (made.branch_dir / "preset.md").read_bytes() == paths.preset_file(branch.ref.branch_dir).read_bytes()
    assert [each["session_id"] for each in forks_of(branch.ref, [branch.ref, made])] == [made.session_id]
    async with world.kernel.using(made) as fork:
        there = Chat(world, fork)
        before = [json.dumps(m["content"]) for m in world.server.requests[-1].messages[:3]]
        await there.say("four")
        seen = [json.dumps(m["content"]) for m in world.server.requests[-1].messages]
        assert _plain(seen[:3]) == _plain(before), "the model is sent the same parts"
        assert there.seen()[-1] == "four" and "two" not in there.seen()


async def test_a_fork_shows_no_text_that_was_removed(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        await chat.say("one")
        _remove(branch, "Answer to one")
        await chat.say("two")
        made = await fork_of(world.kernel, branch, None)
    assert "Answer to two" in body(made) and "Answer to one" not in body(made)
    async with world.kernel.using(made) as fork:
        there = Chat(world, fork)
        await there.say("three")
        assert "Answer to one" not in there.seen() and "Answer to two" in there.seen()


def _plain(sent: list[str]) -> list[str]:
    return [each.replace(', "cache_control": {"type": "ephemeral"}', "") for each in sent]


async def test_a_session_whose_run_failed_can_be_forked(world: World) -> None:
    world.server.say(refusal(400, "invalid_request_error", "Too long"))
    async with world.kernel.using(world.session()) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        assert (await watcher.finished(branch))["reason"] == "error"
        branch.detach(watcher)
        made = await fork_of(world.kernel, branch, None, title="Another try")
    assert body(made) == "### Hi"
    assert next(row.data for row in rows(made))["title"] == "Another try"


async def test_hidden_messages_cannot_be_forked_at(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        second = await chat.say("two")
        await chat.history.rewind(branch, first)
        with pytest.raises(NotFound, match="only what is shown"):
            await fork_of(world.kernel, branch, second)


@pytest.mark.spec("B.10", "fork queryable from the parent")
async def test_forks_are_found_from_their_parent(world: World) -> None:
    ref: BranchRef = world.session()
    service = world.service()
    client = Watcher()
    async with world.kernel.using(ref) as branch:
        message = await Chat(world, branch).say("one")
    made = await service.fork(client, branch=ref.key, message=message)
    found = await service.forks(client, branch=ref.key)
    assert [(each["session_id"], each["message"]) for each in found["forks"]] == [(made["session_id"], message)]


async def test_a_branch_gets_hidden_turns_as_hidden_ones(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one", "red")
        await chat.regenerate("blue")
        second = await chat.say("two")
        made = branching.create_branch(branch.ref, message_id=second, clock=world.kernel.clock)
    assert "red" in body(made)
    async with world.kernel.using(made) as copy:
        there = Chat(world, copy)
        assert there.shown() == ["one", "blue", "two"]
        assert [len(group.messages) for group in hidden.groups(copy.conversation)] == [1]
        await there.history.choose(copy, hidden.variants(copy.conversation, first)[1].first.id, 1)
        assert there.shown() == ["one", "red"]


async def test_an_answer_that_was_asked_for_again_goes_on_where_it_was_when_the_daemon_dies(world: World) -> None:
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        chat, watcher = Chat(world, branch), Watcher()
        await chat.say("one", "The first answer, which is not short.")
        await attached(branch, watcher)
        world.server.say(answer(text("The second answer, which is not short either.", chunks=45), hang_after=30))
        await chat.history.regenerate(branch, None, world.options)
        await watcher.until(lambda: "second answer" in watcher.text(branch.key))
        branch.recorder.flush()
        log, doc = paths.journal_file(ref.branch_dir).read_bytes(), branch.file.read_bytes()
        await world.kernel.abort(branch)
        branch.detach(watcher)
    await world.kernel.shutdown()
    paths.journal_file(ref.branch_dir).write_bytes(log)
    branch.file.write_bytes(doc)
    world.start()
    async with world.kernel.using(ref) as branch:
        whole = body(ref)
        assert whole.index("The first answer") < whole.index("The second answer")
        assert Chat(world, branch).shown()[0] == "one" and "first" not in "".join(Chat(world, branch).shown())


async def test_what_cannot_be_written_cannot_be_taken_back(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        first = await chat.say("one")
        branch.refusal = "the file system is read-only"
        with pytest.raises(StoreError, match="read-only"):
            await chat.history.rewind(branch, first)
        branch.refusal = ""

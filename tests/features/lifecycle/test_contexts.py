"""Contexts: saved, cleared, restored, listed, with a real log, document and model's server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import BadRequest, Busy, NotFound
from pyagentd.features.contexts import Contexts
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.store import metadata, paths
from pyagentd.store.contexts import contexts_dir
from pyagentd.store.db import tasks
from pyagentd.store.document import hidden
from pyagentd.store.document import text as document
from pyagentd.store.document.text import format_file, gptel_messages
from tests.features.lifecycle.test_destroying import task
from tests.features.test_history import Chat
from tests.runtime.world import Watcher, World, attached, body, rows
from tests.server import answer, refusal, text, tool_use


async def talked(world: World, branch: Any) -> Chat:
    """A conversation of two turns, the first with a call of a tool."""
    branch.record_session(workspace_root=world.project)
    (world.project / "a.txt").write_text("alpha\n")
    chat = Chat(world, branch)
    world.server.say(answer(text("I look."), tool_use("Read", file_path=str(world.project / "a.txt"))))
    await chat.say("What is in a.txt?", "It says alpha.")
    await chat.say("Thanks", "Not at all")
    return chat


def saved(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def remove(path: str) -> None:
    Path(path).unlink()


def copy(path: str, directory: Path) -> None:
    directory.mkdir(parents=True)
    shutil.copy(path, directory)


def bring(path: str, **changed: str) -> None:
    """Put a copy of a file that says something else beside it, and a file that is none."""
    directory = Path(path).parent
    (directory / "brought.json").write_text(json.dumps({**saved(path), **changed}))
    (directory / "other.json").write_text("{}")


@pytest.mark.spec("003", "Manual Save: with a description")
@pytest.mark.spec("003", "Manual Save: the context is not cleared")
async def test_a_saved_conversation_is_whole_and_goes_on(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = await talked(world, branch)
        asked = len(world.server.requests)
        row = await world.kernel.feature(Contexts).save(branch, "Looked at a file", options=world.options)
        assert len(world.server.requests) == asked, "nobody is asked for a description that is given"
        file = saved(row.file_path)
        assert (file["description"], file["trigger"]) == ("Looked at a file", "manual_save")
        assert file["agent_name"] == branch.ref.session_id and file["message_count"] == row.message_count == 6
        assert [message["role"] for message in file["messages"]] == [
            *("user", "assistant", "tool_result", "assistant"),
            *("user", "assistant"),
        ]
        assert file["messages"][1]["tool_calls"][0]["name"] == "Read"
        assert "alpha" in file["messages"][2]["content"]
        await chat.say("More?")
        assert chat.seen()[0] == "What is in a.txt?"


@pytest.mark.spec("003", "Manual Save: summary without a description")
async def test_without_a_description_a_model_is_asked(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        await chat.say("one")
        world.server.say(answer(text("Counted to **one**;\nmore is pending.")))
        row = await world.kernel.feature(Contexts).save(branch, options=world.options)
        assert row.description == "Counted to **one**; more is pending."
        assert Path(row.file_path).name == "2026-03-04_counted-to-one-more-is-pending.json"
        assert "[user]\\none" in str(world.server.requests[-1].messages)
        world.server.say(*[refusal(400, "invalid_request_error", "no")] * 3)
        assert (await world.kernel.feature(Contexts).save(branch, options=world.options)).description == "one"


async def test_what_the_user_changed_in_the_document_is_saved_as_it_is_now(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        await Chat(world, branch).say("one", "two three")
        doc = document.read(branch.file)
        changed = doc.body.replace("two three", "two 3333!")
        branch.file.write_text(format_file(document.Document(body=changed, spans=doc.spans)))
        row = await world.kernel.feature(Contexts).save(branch, "x", options=world.options)
        assert saved(row.file_path)["messages"][1]["content"] == "two 3333!"


@pytest.mark.spec("003", "Manual Clear")
async def test_clearing_begins_anew_and_deletes_nothing(world: World) -> None:
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        chat = await talked(world, branch)
        before = body(ref)
        with pytest.raises(NotFound):
            await world.kernel.feature(Contexts).restore(branch, "")
        watcher = Watcher()
        await attached(branch, watcher)
        cleared = await world.kernel.feature(Contexts).clear(branch)
        branch.detach(watcher)
        assert cleared == 4 and body(ref) == before
        assert "stays in the document" in watcher.of("notice")[-1].args[0]["text"]
        assert chat.metadata(next(iter(branch.conversation.messages)))["hidden_by"] == "context"
        for wanted in (
            world.kernel.feature(Contexts).clear(branch),
            world.kernel.feature(Contexts).save(branch, "x", options=world.options),
            chat.history.unrewind(branch),
        ):
            with pytest.raises(BadRequest):
                await wanted
        assert (
            world.kernel.feature(Contexts)
            and (await world.service().history(watcher, branch=ref.key))["variants"] == []
        )
        await chat.say("Anew")
        assert chat.seen() == ["Anew"]
        assert [len(hidden.variants(branch.conversation, ""))] == [1]
    await world.kernel.shutdown()
    world.start()
    async with world.kernel.using(ref) as branch:
        chat = Chat(world, branch)
        await chat.say("Still?")
        assert chat.seen() == ["Anew", "Answer to Anew", "Still?"]


@pytest.mark.spec("003", "Context Restore 2: history loaded from the file")
@pytest.mark.spec("003", "Context Restore 3: the context is replaced")
async def test_a_restored_conversation_is_what_the_model_sees(world: World) -> None:
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        chat = await talked(world, branch)
        row = await world.kernel.feature(Contexts).save(branch, "Looked", options=world.options)
        await world.kernel.feature(Contexts).clear(branch)
        await chat.say("Something else")
        given = await world.kernel.feature(Contexts).restore(branch, row.id[:8])
        assert given == row
        shown = chat.shown()
        assert shown[0] == "What is in a.txt?" and shown[-1] == "Not at all" and "Something else" not in shown
        await chat.say("Go on")
        assert chat.seen() == [
            *("What is in a.txt?", "I look.", "It says alpha.", "Thanks", "Not at all"),
            "Go on",
        ]
        assert "alpha" in str(world.server.requests[-1].messages[2])
        again = await world.kernel.feature(Contexts).save(branch, "Again", options=world.options)
        assert saved(again.file_path)["messages"][:6] == saved(row.file_path)["messages"]
        await chat.regenerate("Other", None)
        assert chat.seen()[-1] == "Go on"
    runs = [row.data for row in rows(ref) if row.type == "run"]
    assert {run["id"] for run in runs if run["state"] == "started"} == {
        run["id"] for run in runs if run["state"] == "finished"
    }
    await world.kernel.shutdown()
    world.start()
    async with world.kernel.using(ref) as branch:
        chat = Chat(world, branch)
        await chat.say("And now?")
        assert chat.seen()[0] == "What is in a.txt?" and len(chat.seen()) == 8
        assert gptel_messages(format_file(document.read(branch.file)))


async def test_turns_of_a_restored_conversation_are_turns(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        await chat.say("one")
        await chat.say("two")
        row = await world.kernel.feature(Contexts).save(branch, "x", options=world.options)
        await world.kernel.feature(Contexts).restore(branch, row.id)
        first, second = [message.id for message in hidden.prompts(branch.conversation)]
        await chat.regenerate("Other")
        assert chat.seen() == ["one", "Answer to one", "two"]
        assert chat.shown()[-1] == "Other"
        await chat.history.rewind(branch, first)
        assert chat.shown() == ["one"]
        assert second != first


@pytest.mark.spec("003", "Context Restore 4: notice")
async def test_who_watches_sees_the_restored_text_and_is_told(world: World) -> None:
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        await Chat(world, branch).say("one")
        row = await world.kernel.feature(Contexts).save(branch, "Counting", options=world.options)
        await world.kernel.feature(Contexts).clear(branch)
        watcher, before = Watcher(), body(ref)
        await attached(branch, watcher)
        await world.kernel.feature(Contexts).restore(branch, row.id)
        branch.detach(watcher)
        assert before + watcher.text(ref.key) == body(ref)
        assert watcher.of("notice")[-1].args[0]["text"] == "Context restored: Counting (2 messages)"


@pytest.mark.spec("003", "Context Restore 1: looked up by id")
async def test_only_own_contexts_are_restored(world: World) -> None:
    async with world.kernel.using(world.session("a")) as branch:
        await Chat(world, branch).say("one")
        row = await world.kernel.feature(Contexts).save(branch, "x", options=world.options)
        other = await world.kernel.feature(Contexts).save(branch, "x", options=world.options)
        assert Path(other.file_path).name == "2026-03-04_x-2.json"
        remove(other.file_path)
        with pytest.raises(NotFound, match="not there any more"):
            await world.kernel.feature(Contexts).restore(branch, other.id)
    async with world.kernel.using(world.session("b")) as branch:
        with pytest.raises(NotFound, match=row.id):
            await world.kernel.feature(Contexts).restore(branch, row.id)


@pytest.mark.spec("003", "Context History")
async def test_history_lists_the_last_first_and_files_that_nobody_knew(world: World) -> None:
    ref, service, client = world.session(), world.service(), Watcher()
    async with world.kernel.using(ref) as branch:
        await Chat(world, branch).say("one")
    made = await service.context_save(client, branch=ref.key, description="First")
    bring(made["file"], id="elsewhere", saved_at="2027-01-01T00:00:00Z")
    listed = (await service.context_history(client, branch=ref.key))["contexts"]
    assert [(row["id"], row["message_count"]) for row in listed] == [("elsewhere", 2), (made["id"], 2)]
    assert (await service.context_history(client, agent=ref.session_id))["contexts"] == listed
    assert (await service.context_clear(client, branch=ref.key))["messages"] == 2
    assert (await service.context_restore(client, branch=ref.key, id="else"))["id"] == "elsewhere"


async def test_a_file_that_was_copied_is_another_conversation_of_whom_it_was_copied_to(world: World) -> None:
    ref, other, service, client = world.session("a"), world.session("b"), world.service(), Watcher()
    async with world.kernel.using(ref) as branch:
        await Chat(world, branch).say("one")
    made = await service.context_save(client, branch=ref.key, description="First")
    copy(made["file"], contexts_dir(other))
    (copied,) = (await service.context_history(client, branch=other.key))["contexts"]
    assert copied["id"] != made["id"]
    assert [row["id"] for row in (await service.context_history(client, agent=ref.session_id))["contexts"]] == [
        made["id"]
    ]
    assert (await service.context_history(client, branch=other.key))["contexts"] == [copied]
    assert (await service.context_restore(client, branch=other.key, id=copied["id"]))["description"] == "First"


async def test_a_session_from_elsewhere_has_nothing_of_the_agent_that_it_says_it_is(
    world: World, tmp_path: Path
) -> None:
    world.preset(DEFAULT_PRESET)
    service, client = world.service(), Watcher()
    agent = paths.ref_of(Path((await service.agent_init(client, name="bob"))["dir"]))
    async with world.kernel.using(agent) as branch:
        await Chat(world, branch).say("A secret")
    made = await service.context_save(client, branch=agent.key, description="Secret")
    kept = tasks.put(world.kernel.state, task("bob", branch_dir=agent.key), most=9)
    shutil.copytree(world.session().session_dir, place := tmp_path / "elsewhere", symlinks=True)
    metadata.set_scope_plan_values(place / "branches/main", {"session_id": "bob"})
    ref = paths.ref_of(place)
    assert ref.session_id == "bob"
    assert (await service.context_history(client, branch=ref.key))["contexts"] == []
    assert (await service.agent_status(client, branch=ref.key))["saved"] is None
    with pytest.raises(NotFound, match="no saved context"):
        await service.context_restore(client, branch=ref.key, id=made["id"])
    assert (await service.tasks(client, branch=ref.key))["tasks"] == []
    with pytest.raises(NotFound, match="bob has no task"):
        await service.task_output(client, branch=ref.key, id=kept.id)
    async with world.kernel.using(ref) as branch:
        await Chat(world, branch).say("Mine")
    own = await service.context_save(client, branch=ref.key, description="Own")
    for asked, id in (
        ({"branch": ref.key}, own["id"]),
        ({"branch": agent.key}, made["id"]),
        ({"agent": "bob"}, made["id"]),
    ):
        assert [row["id"] for row in (await service.context_history(client, **asked))["contexts"]] == [id]


async def test_nothing_is_cleared_or_restored_while_a_run_is_in_flight(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        chat = Chat(world, branch)
        await chat.say("one")
        row = await world.kernel.feature(Contexts).save(branch, "x", options=world.options)
        world.server.say(answer(text("Hello world", chunks=11), hang_after=8))
        watcher = Watcher()
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.until(lambda: "He" in watcher.text(branch.key))
        for wanted in (
            world.kernel.feature(Contexts).clear(branch),
            world.kernel.feature(Contexts).restore(branch, row.id),
        ):
            with pytest.raises(Busy):
                await wanted
        meanwhile = await world.kernel.feature(Contexts).save(branch, options=world.options)
        assert meanwhile.description == "one" and meanwhile.message_count >= 3
        await world.kernel.abort(branch)

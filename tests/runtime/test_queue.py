"""Messages sent while a run is in flight: they wait in the log and fire one by one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pyagentd.errors import BadRequest, Conflict, NotFound
from pyagentd.messages import Text, ToolResult
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.queue import Receipt, Submission
from pyagentd.runtime.turns import DocumentNow, above_drafts
from pyagentd.store.document import text as document
from pyagentd.store.document.reconcile import align
from pyagentd.store.paths import BranchRef
from tests.runtime.prefix import assert_prefix
from tests.runtime.world import Watcher, World, assert_closed, attached, body, last_of, rows, type_
from tests.server import answer, refusal, text, tool_use
from tests.store.talk import Step, Talk, Turn

LOOK = answer(text("Looking."), tool_use("Bash", command="true"))
ERRORS = (
    "How should errors be designed — what auto-retries, what hard-fails, and is a hard-failed session dead forever?"
)
LAPTOP = "If the user closes their laptop mid-turn and reconnects later, can the turn resume without a new message?"
APPROVING = 'When a user clicks "approve and auto mode" on a plan, does that fire a trigger or a user message?'


def message(said: str | None, world: World, **fields: Any) -> Submission:
    return Submission(text=said, options=fields.pop("options", world.options), **fields)


def metadata_of(ref: BranchRef, message_id: str) -> dict[str, Any]:
    found: dict[str, Any] = last_of(rows(ref), "message")[message_id]["metadata_json"]
    return found


def prompts(world: World) -> list[str]:
    """The user's last words in every request so far."""
    return [str(request.messages[-1]["content"][-1].get("text")) for request in world.server.requests]


def ends(watcher: Watcher) -> list[str]:
    return [event.args[0]["reason"] for event in watcher.of("run") if event.args[0]["phase"] == "finished"]


async def asking(world: World, branch: LiveBranch, watcher: Watcher) -> Receipt:
    """Start a run that waits for a human."""
    sent = await world.kernel.submit(branch, message("One", world))
    await watcher.until(lambda: world.kernel.asks.all())
    return sent


def allow(world: World) -> None:
    world.kernel.asks.answer(str(world.kernel.asks.all()[0]["id"]), Answer(decision="allow"))


async def test_queued_messages_fire_one_after_the_other_each_a_turn_of_its_own(world: World) -> None:
    world.server.say(LOOK, "First.", "Second.", "Third.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        assert not (await asking(world, branch, watcher)).queued
        for nothing in ("", " \n", "\u00a0"):
            with pytest.raises(BadRequest, match="prompt is empty"):
                await world.kernel.submit(branch, message(nothing, world))
        two = await world.kernel.submit(branch, message("Two", world))
        three = await world.kernel.submit(branch, message("Three", world))
        assert two.queued and two.run_id is None and "queued_at" in metadata_of(ref, two.message_id)
        assert [item["text"] for item in branch.queue.to_wire()] == ["Two", "Three"]
        assert branch.status["state"] == "waiting" and branch.status["queued"] == 2
        allow(world)
        await watcher.until(lambda: ends(watcher) == ["done"] * 3)
        assert branch.queue.to_wire() == [] and branch.status == {"state": "idle", "queued": 0}
    assert_closed(ref)
    assert prompts(world)[2:] == ["Two", "Three"]
    assert body(ref).count("### ") == 4 and body(ref).endswith("### Two\n\nSecond.\n\n### Three\n\nThird.\n\n### ")
    for sent in (two, three):
        fired = metadata_of(ref, sent.message_id)
        assert "queued_at" not in fired and fired["queue_enqueued_at"] and "interactive" not in fired
    order = [each["message"]["role"] for each in canonical(world, ref)]
    assert order == ["user", "assistant"] * 3


def canonical(world: World, ref: BranchRef) -> list[dict[str, Any]]:
    from pyagentd.store.conversation import Conversation

    found: list[dict[str, Any]] = Conversation(rows(ref)).canonical()["messages"]
    return found


async def test_a_message_taken_back_does_not_fire_and_leaves_a_hidden_tombstone(world: World) -> None:
    world.server.say(LOOK, "First.", "Third.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await asking(world, branch, watcher)
        two = await world.kernel.submit(branch, message("Two", world))
        three = await world.kernel.submit(branch, message("Three", world))
        assert await world.kernel.queue.cancel(branch, two.message_id) == "Two"
        await world.kernel.queue.edit(branch, three.message_id, "Three, edited")
        with pytest.raises(NotFound, match="taken back"):
            await world.kernel.queue.cancel(branch, two.message_id)
        allow(world)
        await watcher.until(lambda: ends(watcher) == ["done"] * 2)
        with pytest.raises(NotFound, match="sent already"):
            await world.kernel.queue.edit(branch, three.message_id, "Too late")
    left = metadata_of(ref, two.message_id)
    assert left["queue_canceled_at"] and left["hidden_at"] and "queued_at" not in left
    assert prompts(world)[-1] == "Three, edited" and "Two" not in body(ref)
    gone = [event.args[0]["gone"] for event in watcher.of("queue") if "gone" in event.args[0]]
    assert [(each["id"], each["why"]) for each in gone] == [(two.message_id, "canceled"), (three.message_id, "fired")]


async def test_a_message_with_an_id_of_its_clients_is_one_message_however_often_it_is_sent(world: World) -> None:
    world.server.say(LOOK, "First.", "Second.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        first = await world.kernel.submit(branch, message("One", world, id="msg_one"))
        assert first == replace(await world.kernel.submit(branch, message("One", world, id="msg_one")), seq=first.seq)
        two, three = message("Two", world, id="msg_two"), message("Three", world, id="msg_three")
        await world.kernel.submit(branch, two)
        await world.kernel.submit(branch, three)
        assert (await world.kernel.submit(branch, two)).queued
        for other in (message("Another", world, id="msg_two"), message("Two", world, id="msg_one")):
            with pytest.raises(Conflict, match="another message"):
                await world.kernel.submit(branch, other)
        with pytest.raises(BadRequest, match="not an id"):
            await world.kernel.submit(branch, message("Two", world, id="../two"))
        await world.kernel.queue.cancel(branch, "msg_three")
        taken_back = await world.kernel.submit(branch, three)
        assert not taken_back.queued and taken_back.ended == "canceled" and len(branch.queue.to_wire()) == 1
        await watcher.until(lambda: world.kernel.asks.all())
        allow(world)
        await watcher.until(lambda: ends(watcher) == ["done"] * 2)
        again = await world.kernel.submit(branch, two)
        assert again.run_id and not again.queued and not branch.queue.to_wire()
        assert first.ended == "" and again.ended == "done"
    assert body(ref).count("Two") == 1


async def test_stopping_a_run_ends_its_turn_and_not_the_queue(world: World) -> None:
    world.server.say(answer(text("Hello", chunks=2), hang_after=4), "Second.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.submit(branch, message("One", world))
        await world.kernel.submit(branch, message("Two", world))
        await watcher.phase(branch, "TYPE")
        await world.kernel.abort(branch)
        await watcher.until(lambda: ends(watcher) == ["aborted", "done"])
    assert body(ref).endswith("### Two\n\nSecond.\n\n### ")


async def test_a_user_who_stops_a_run_can_leave_the_queue_paused_and_the_text_says_stopped(world: World) -> None:
    world.server.say(answer(text("Hello", chunks=2), hang_after=4), "Second.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.submit(branch, message("One", world))
        await world.kernel.submit(branch, message("Two", world))
        await watcher.until(lambda: "Hel" in watcher.text(branch.key))
        world.kernel.queue.pause(branch)
        await world.kernel.abort(branch)
        assert branch.status["paused"] and branch.status["queued"] == 1 and branch.run is None
        assert branch.conversation.last_run is not None
        assert branch.conversation.last_run.data["paused"], "the next daemon knows it too"
        assert await world.kernel.queue.resume(branch, world.options)
        await watcher.until(lambda: ends(watcher) == ["aborted", "done"])
        assert "paused" not in branch.status
    stopped, _, after = body(ref).partition("``` error\nStopped\n```\n\n### Two")
    assert stopped.startswith("### One\n\nHel") and after == "\n\nSecond.\n\n### "


@pytest.mark.spec("002", ERRORS)
@pytest.mark.parametrize("how", ["a new message", "resuming"])
async def test_an_error_pauses_the_queue_until_somebody_goes_on(world: World, how: str) -> None:
    world.server.say(refusal(400, "invalid_request_error", "No."), "New.", "Second.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await asyncio.gather(*(world.kernel.submit(branch, message(said, world)) for said in ("One", "Two")))
        await watcher.until(lambda: branch.status["state"] == "error")
        assert branch.status["code"] == "provider-error" and branch.status["message"] and branch.status["queued"] == 1
        trigger = {"trigger": {"source": "api"}}
        kept = await world.kernel.submit(branch, message("Not yet", world, metadata=trigger))
        assert kept.queued and branch.run is None, "only a person goes on after an error"
        await world.kernel.queue.cancel(branch, kept.message_id)
        if how == "resuming":
            assert await world.kernel.queue.resume(branch, world.options)
            await watcher.until(lambda: ends(watcher) == ["error", "done"])
            assert prompts(world)[1:] == ["Two"]
            return
        assert not (await world.kernel.submit(branch, message("New", world))).queued
        await watcher.until(lambda: ends(watcher) == ["error", "done", "done"])
    assert prompts(world)[1:] == ["New", "Two"]
    assert "paused" not in branch.status and branch.status["state"] == "idle"


@pytest.mark.spec("002", ERRORS)
@pytest.mark.parametrize("where", ["another client", "the document"])
async def test_what_is_sent_after_an_error_leaves_text_that_waits_where_it_is(world: World, where: str) -> None:
    world.server.say(LOOK, refusal(400, "invalid_request_error", "No."), "An answer.", "Another.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await asking(world, branch, watcher)
        await branch.document.flush()
        await type_and_queue(world, branch, "Two")
        allow(world)
        await watcher.until(lambda: branch.status["state"] == "error")
        await branch.document.flush()
        if where == "the document":
            await type_and_queue(world, branch, "Three")  # below it: it goes on with what waits, in that order
        else:
            assert not (await world.kernel.submit(branch, message("New", world))).queued
        await watcher.until(lambda: ends(watcher) == ["error", "done", "done"])
    first, second = ("Two", "Three") if where == "the document" else ("New", "Two")
    assert prompts(world)[2:] == [first, second]
    assert body(ref).index(f"### {first}\n\nAn answer.") < body(ref).index(f"### {second}\n\nAnother.")
    assert second not in str(world.server.requests[-2].body["messages"])
    assert body(ref).count("Two") == 1
    assert_closed(ref)


async def test_a_mistake_of_ours_before_a_queued_message_is_answered_stops_the_queue_and_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> Any:
        raise RuntimeError("a mistake of ours")

    world.server.say(LOOK, "First.", "Second.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await asking(world, branch, watcher)
        await world.kernel.submit(branch, message("Two", world))
        with monkeypatch.context() as patch:
            patch.setattr(world.kernel.features_with("before_prompt")[0], "before_prompt", fails, raising=False)
            allow(world)
            await watcher.until(lambda: branch.status["state"] == "error")
        assert branch.status["code"] == "internal" and branch.status["paused"] and branch.status["queued"] == 1
        assert await world.kernel.queue.resume(branch, world.options)
        await watcher.until(lambda: ends(watcher) == ["done", "done"])
    assert_closed(ref)


@pytest.mark.spec("002", LAPTOP)
async def test_the_queue_survives_a_restart_and_drains_when_the_branch_is_opened(world: World) -> None:
    world.server.say(answer(text("Hello", chunks=2), hang_after=4), "Second.", "Third.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        for said in ("One", "Two", "Three"):
            await world.kernel.submit(branch, message(said, world))
        await watcher.phase(branch, "TYPE")
        await world.kernel.shutdown()
    watcher.events.clear()
    assert [each["message"]["metadata_json"].get("queued_at") is None for each in canonical(world, ref)][-2:] == [
        False,
        False,
    ]
    world.start()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await watcher.until(lambda: branch.status["state"] == "error")  # nobody gave this daemon a key
        assert branch.status["code"] == "no-key" and branch.status["queued"] == 2
        assert await world.kernel.queue.resume(branch, world.options)
        await watcher.until(lambda: ends(watcher) == ["done", "done"])
    assert prompts(world)[1:] == ["Two", "Three"]
    assert_closed(ref)


async def test_text_queued_in_the_document_stays_where_it_was_typed(world: World) -> None:
    world.server.say(LOOK, "First.", "Second.", "Third.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await asking(world, branch, watcher)
        await branch.document.flush()
        for said in ("Two", "Three"):
            await type_and_queue(world, branch, said)
        client = await world.kernel.submit(branch, message("From afar", world))
        file = ref.branch_dir / "session.md"
        doc = document.read(file)
        file.write_text(document.format_file(replace(doc, body=doc.body + "A draft")))
        assert [item["text"] for item in branch.queue.to_wire()] == ["Two", "Three", "From afar"]
        assert client.queued
        allow(world)
        world.server.say("From the client.")
        await watcher.until(lambda: ends(watcher) == ["done"] * 4)
    assert prompts(world)[2:] == ["Two", "Three", "From afar"]
    turns = ("### Two\n\nSecond.", "### Three\n\nThird.\n\n### From afar\n\nFrom the client.\n\n### ")
    assert body(ref).count("Two") == 1 and all(turn in body(ref) for turn in turns)
    assert body(ref).rstrip().endswith("A draft")
    assert_closed(ref)


def test_a_message_of_another_client_goes_above_drafts_also_behind_a_run_that_said_nothing() -> None:
    talk = Talk([Turn(prompt="One", steps=(Step(texts=("First.",)),))])
    talk.type("Two")
    talk.finish(talk.start(talk.user("Two")))
    ended = len(talk.document.body)
    talk.type("A draft")
    assert talk.document.body.endswith("### Two\n\n\n\n### A draft")
    assert above_drafts(DocumentNow(document=talk.document), talk.conversation) == ended


async def type_and_queue(world: World, branch: LiveBranch, said: str) -> None:
    """Type a message below everything, as Emacs does, and queue it."""
    at = await type_(branch, said)
    await type_(branch, "\n\n### ")
    sent = await world.kernel.submit(branch, message(None, world, at=at))
    assert sent.queued and branch.queue.get(sent.message_id).text == said


async def test_what_is_queued_before_the_first_word_of_an_answer_is_only_what_was_typed_since(world: World) -> None:
    busy = refusal(529, "overloaded_error", "Overloaded", headers={"retry-after": "100"})
    world.server.say(busy, "First.", "Second.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.submit(branch, message(None, world, at=await type_(branch, "One")))
        await watcher.until(lambda: branch.status["state"] == "retrying")
        sent = await world.kernel.submit(branch, message(None, world, at=await type_(branch, "\nTwo, typed below")))
        assert sent.queued and branch.queue.get(sent.message_id).text == "Two, typed below"
        branch.detach(watcher)
        await attached(branch, watcher)
        assert branch.run is not None
        branch.run.retry_now()
        await watcher.until(lambda: ends(watcher) == ["done", "done"])
    assert prompts(world)[-2:] == ["One", "Two, typed below"]
    assert body(ref).count("One") == body(ref).count("Two") == 1
    assert_closed(ref)


async def test_a_message_steers_the_run_in_flight_at_its_next_step(world: World) -> None:
    world.server.say(LOOK, answer(text("As you say."), tool_use("Bash", command="true")), "Done.", "Later.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        sent = await asking(world, branch, watcher)
        later = await world.kernel.submit(branch, message("Later", world))
        steer = await world.kernel.submit(branch, message("Left, please", world, steer=True))
        assert steer.queued
        allow(world)
        await watcher.until(lambda: len(world.kernel.asks.all()) == 1 and "As you say." in watcher.text(branch.key))
        assert metadata_of(ref, steer.message_id)["steered"] == sent.run_id
        allow(world)
        await watcher.until(lambda: ends(watcher) == ["done"] * 2)
        await branch.document.flush()
        said = [message for message in world.server.requests[1].messages if message["role"] == "user"][-1]["content"]
        assert [part["type"] for part in said] == ["tool_result", "text"] and said[-1]["text"] == "Left, please"
        view = align(document.read(ref.branch_dir / "session.md"), branch.conversation).view
    assert_prefix(world.server.requests)
    results, steering = view[2].parts
    assert isinstance(results, ToolResult) and steering == Text(text="Left, please")
    sent_last = world.server.requests[-1].messages
    assert len(view) == len(sent_last) + 1 and later.queued
    assert [part.__class__.__name__ for part in view[3].parts] == ["Text", "ToolCall"]
    roles = [each["message"]["role"] for each in canonical(world, ref)]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert_closed(ref)


async def test_a_steering_message_that_comes_too_late_is_the_next_of_the_queue(world: World) -> None:
    world.server.say(LOOK, "Second.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await asking(world, branch, watcher)
        await world.kernel.submit(branch, message("Left", world, steer=True))
        await world.kernel.abort(branch)
        await watcher.until(lambda: ends(watcher) == ["aborted", "done"])
    assert prompts(world)[-1] == "Left"


async def test_every_move_is_an_event_and_retries_tell_attempt_and_time(world: World) -> None:
    overloaded = refusal(529, "overloaded_error", "Overloaded", headers={"retry-after": "100"})
    world.server.say(overloaded, LOOK, "Done.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        sent = await world.kernel.submit(branch, message("One", world))
        await watcher.until(lambda: branch.status["state"] == "retrying")
        status = branch.status
        assert (status["attempt"], status["max_attempts"], status["run"]) == (1, 5, sent.run_id)
        assert status["retry_at"] - status["started_at"] == 100_000 and "Overloaded" in status["message"]
        assert status["message_id"] == sent.message_id
        assert branch.run is not None
        branch.run.retry_now()
        await watcher.until(lambda: world.kernel.asks.all())
        allow(world)
        await watcher.until(lambda: ends(watcher) == ["done"])
    told = [event.args[0]["state"] for event in watcher.of("status")]
    assert [state for state, before in zip(told, ["", *told], strict=False) if state != before] == [
        "busy",
        "retrying",
        "busy",
        "waiting",
        "busy",
        "idle",
    ]


async def test_a_wait_before_another_try_ends_with_an_abort(world: World) -> None:
    world.server.say(refusal(429, "rate_limit_error", "Slow down", headers={"retry-after": "100"}))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.submit(branch, message("One", world))
        await watcher.until(lambda: branch.status["state"] == "retrying")
        assert await world.kernel.abort(branch)
        assert branch.status["state"] == "idle"
    assert assert_closed(ref)["reason"] == "aborted"


@pytest.mark.spec("002", ERRORS)
async def test_arguments_that_are_no_json_are_an_error_for_the_model_and_the_run_goes_on(world: World) -> None:
    world.server.say(answer(tool_use("Read", json_text='{"file_path": "a')), "I see.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.submit(branch, message("One", world))
        await watcher.until(lambda: ends(watcher) == ["done"])
    (result,) = world.server.last.messages[-1]["content"]
    told = str(result["content"])
    assert result["is_error"] and '{"file_path": "a' in told and "Call it again" in told
    assert_closed(ref)


@pytest.mark.spec("002", APPROVING)
async def test_an_approval_waits_like_any_message_and_names_its_agent_when_its_turn_comes(world: World) -> None:
    world.preset("build", model="model-build")
    world.server.say(LOOK, "First.", "Building.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await asking(world, branch, watcher)
        approval = message("Approved, continue.", world, metadata={"agent": "build"})
        sent = await world.kernel.submit(branch, approval)
        with pytest.raises(BadRequest):
            await world.kernel.submit(branch, message("Hm", world, metadata={"agent": "nobody"}))
        assert sent.queued and branch.queue.to_wire()[0]["agent"] == "build"
        allow(world)
        await watcher.until(lambda: ends(watcher) == ["done"] * 2)
    fired = metadata_of(ref, sent.message_id)
    assert fired["agent"] == "build" and "trigger" not in fired and "queued_at" not in fired
    assert world.server.last.body["model"] == "model-build"


@pytest.mark.spec("002", LAPTOP)
async def test_a_client_that_leaves_and_comes_back_misses_nothing_and_stops_nothing(world: World) -> None:
    world.server.say(LOOK, "First.", "Second.")
    ref, watcher, later = world.session(), Watcher(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await asking(world, branch, watcher)
        await world.kernel.submit(branch, message("Two", world))
        branch.detach(watcher)
        allow(world)
        async with asyncio.timeout(60):
            while branch.run is not None or branch.queue.waiting:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        await attached(branch, later)
    assert body(ref).endswith("First.\n\n### Two\n\nSecond.\n\n### ")
    assert [run["reason"] for run in last_of(rows(ref), "run").values()] == ["done", "done"]

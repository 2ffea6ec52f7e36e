"""The provider's prompt cache is hit: whatever happens between two requests, the second begins with the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.queue import Submission
from pyagentd.store import paths
from pyagentd.store.document import text as document
from pyagentd.store.paths import BranchRef
from tests.features.test_agents import converse, spawn
from tests.runtime.prefix import assert_prefix, blocks
from tests.runtime.test_resume import awake, begin, restart, say, until
from tests.runtime.world import OVERLOADED, World, body
from tests.server import (
    Request,
    answer,
    error_event,
    malformed,
    redacted_thinking,
    refusal,
    text,
    thinking,
    tool_use,
)


async def turn(world: World, ref: BranchRef, prompt: str = "Go on.", reason: str = "done") -> None:
    """Send a prompt and wait for the end of its run."""
    watcher = await converse(world, ref, prompt, grants=(".*",))
    (end,) = [event for event in watcher.of("run", ref.key) if event.args[0]["phase"] == "finished"]
    assert end.args[0]["reason"] == reason, end


async def from_document(world: World, ref: BranchRef, typed: str) -> None:
    """Type below the conversation and send the document, as Emacs does."""
    file = paths.session_file(ref.branch_dir)
    async with world.kernel.using(ref) as branch:
        await branch.document.flush()
    whole = file.read_text(encoding="utf-8")
    old = document.read(file).body
    file.write_text(whole.replace(old, old + typed, 1), encoding="utf-8")
    now = document.read(file).body
    async with world.kernel.using(ref) as branch:
        given = document.body_sha256(now)
        await world.kernel.submit(
            branch,
            Submission(text=None, at=DocumentVersion(sha256=given, marker=len(now)), options=world.granted(".*")),
        )
        assert branch.task is not None
        await branch.task


@asynccontextmanager
async def running(world: World, ref: BranchRef, prompt: str = "Go on.") -> AsyncIterator[LiveBranch]:
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text=prompt, options=world.granted(".*"))
        yield branch
        if branch.task is not None:
            await branch.task


def look(world: World, **more: Any) -> Any:
    return tool_use("Glob", pattern="*", **more)


async def test_across_steps_with_parallel_tools_turns_and_a_restart_of_the_daemon(world: World) -> None:
    (world.project / "a").write_text("alpha\n")
    read = tool_use("Read", file_path=str(world.project / "a"))
    world.server.say(
        answer(thinking("Both.", signature="sig-1"), "I look. ", look(world), read),
        answer(redacted_thinking("data"), look(world), text("And again."), look(world), look(world)),
        answer("  Done.\n\n"),
        answer("Yes."),
        answer(thinking("Hm.", signature="sig-2"), look(world)),
        "After the restart.",
    )
    ref = world.session()
    await turn(world, ref, "  Look \n\n at it.\n")
    await turn(world, ref, "And?\n\n\n- this\n- that  \n")
    await world.kernel.shutdown()
    world.start()
    await turn(world, ref)
    assert len(world.server.requests) == 6
    assert_prefix(world.server.requests)


async def test_across_prompts_typed_in_the_document_and_edits_of_what_is_not_sent_yet(world: World) -> None:
    world.server.say(answer(thinking("Hm.", signature="s"), "One.", look(world)), "Two.  \n", "Three.", "Four.")
    ref = world.session()
    await from_document(world, ref, "Look at it.   \n\n")
    await from_document(world, ref, "  And?\n")
    world.start()
    await from_document(world, ref, "\n\n\nSo\n\n\n\n")
    assert_prefix(world.server.requests)
    assert len(world.server.requests) == 4


async def test_whichever_client_sends(world: World) -> None:
    world.server.say("One.", "Two.", "Three.", "Four.")
    ref = world.session()
    await turn(world, ref, " from a client ")
    await from_document(world, ref, " from Emacs ")
    await turn(world, ref, "```sh\nls\n```")
    await from_document(world, ref, "``` tool\nnot one\n```\n")
    assert_prefix(world.server.requests)


EMPTY = {
    "nothing": answer(),
    "blank": answer("   \n"),
    "reasoning only": answer(thinking("Hm.")),
    "unsigned": answer(thinking("Only.", signature="")),
    "blank blocks": answer("", text(" ")),
}


@pytest.mark.parametrize("said", EMPTY.values(), ids=EMPTY)
async def test_after_an_empty_answer(world: World, said: Any) -> None:
    world.server.say("Hello.", said, "Here.", "Bye.")
    ref = world.session()
    for prompt in ("Hi", "Say nothing", "Still there?", "Bye"):
        await turn(world, ref, prompt)
    assert_prefix(world.server.requests)


TROUBLE = {
    "refused": refusal(400, "invalid_request_error", "no"),
    "broken off": answer("Half", insert={4: error_event("invalid_request_error", "gone")}),
    "malformed": malformed(),
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
async def test_after_an_error(world: World, trouble: Any) -> None:
    ref = world.session()
    world.server.say(answer("One.", look(world)), "Two.")
    await turn(world, ref)
    world.server.say(trouble)
    await turn(world, ref, "Fail.", "error")
    world.server.say("Three.", "Four.")
    await turn(world, ref, "Again.")
    await turn(world, ref, "And on.")
    assert_prefix(distinct(world.server.requests))


def distinct(requests: list[Request]) -> list[Request]:
    """Without those that were sent again as they were."""
    found: list[Request] = []
    for request in requests:
        if not found or found[-1].body != request.body:
            found.append(request)
    return found


async def test_a_request_that_is_sent_again_is_the_same(world: World) -> None:
    world.server.say(OVERLOADED, OVERLOADED, answer(look(world)), OVERLOADED, "Done.")
    await turn(world, world.session())
    assert len(distinct(world.server.requests)) == 2 and len(world.server.requests) == 5
    assert_prefix(world.server.requests)


ODD = (
    "a\r\nb\rc",
    "### not a heading\n\n### ",
    "``` tool\n(x)\n```",
    "\u2028 \u00a0",
    "tab\t\n\n\n\nend\n",
)


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
async def test_with_odd_text_on_both_sides(world: World, odd: str) -> None:
    world.server.say(answer(thinking(odd), odd, look(world)), odd, odd, "Done.")
    ref = world.session()
    await turn(world, ref, f"y{odd}")
    await turn(world, ref, f"x{odd}")
    world.start()
    await turn(world, ref)
    assert len(world.server.requests) == 4
    assert_prefix(world.server.requests)


async def test_after_an_abort_between_calls(world: World) -> None:
    ref = world.session()
    calls = [tool_use("Bash", command="echo one"), tool_use("Bash", command="sleep 60"), look(world)]
    world.server.say(answer(thinking("Hm.", signature="s"), "I begin.", *calls), "Second.", "Third.")
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text="Go.", options=world.granted(".*"))
        await until(lambda: branch.status.get("phase") == "TOOL")
        await world.kernel.abort(branch)
    await turn(world, ref)
    world.start()
    await turn(world, ref)
    assert_prefix(world.server.requests)


async def test_after_steering(world: World) -> None:
    ref = world.session()
    world.server.say(answer("I look.", tool_use("Bash", command="sleep 0.5"), look(world)), "Steered.", "And on.")
    async with running(world, ref) as branch:
        await until(lambda: branch.status.get("phase") == "TOOL")
        options = world.granted(".*")
        await world.kernel.submit(branch, Submission(text="  Rather this.\n", options=options, steer=True))
    await turn(world, ref)
    world.start()
    world.server.say("Later.")
    await turn(world, ref)
    assert_prefix(world.server.requests)
    assert any(
        block == ("user", {"type": "text", "text": "Rather this."}) for block in blocks(world.server.last.body)
    )


async def test_with_messages_that_were_queued(world: World) -> None:
    ref = world.session()
    world.server.say(answer("I look.", tool_use("Bash", command="sleep 0.3")), "First.", "Second.", "Third.")
    async with running(world, ref) as branch:
        await until(lambda: branch.status.get("phase") == "TOOL")
        for words in ("Two", "Three"):
            await world.kernel.submit(branch, Submission(text=words, options=world.granted(".*")))
        while branch.task is not None:
            await asyncio.wait([branch.task])
            await asyncio.sleep(0)
    await until(lambda: len(world.server.requests) == 4)
    assert_prefix(world.server.requests)


async def test_of_an_agent_and_of_its_parent(world: World) -> None:
    world.preset("helper", model="model-helper", tools="Glob")
    ref = world.session()
    world.server.say(
        answer("I delegate.", spawn(prompt="  Find it. \n")),
        answer(thinking("Hm.", signature="s"), look(world)),
        "It is alpha.",
        "So it is.",
        "More.",
    )
    await turn(world, ref, "Delegate.")
    (agent,) = [paths.ref_of(place) for place in paths.agents_dir(ref.branch_dir).iterdir()]
    await turn(world, agent, "Are you sure?")
    world.server.say("Then on.")
    await turn(world, ref)
    by_model = {
        name: [r for r in world.server.requests if r.body["model"] == name] for name in ("model-main", "model-helper")
    }
    assert [len(requests) for requests in by_model.values()] == [3, 3]
    for requests in by_model.values():
        assert_prefix(requests)


async def test_of_a_parent_whose_agents_work_in_the_background(world: World) -> None:
    world.preset("helper", model="model-helper", tools="Glob")
    ref = world.session()

    def rule(request: Request) -> Any:
        if request.body["model"] == "model-helper":
            return answer("It is alpha.")
        if len(request.messages) == 1:
            return answer("I delegate.", spawn(background=True), spawn(background=True, description="again"))
        return answer("So.")

    world.server.rule = rule
    await turn(world, ref, "Delegate.")
    # Each of the two ends wakes the parent, or one for both.
    await until(lambda: str(requests_of(world, "model-main")[-1].messages).count("It is alpha.") == 2)
    await until(lambda: not world.kernel.runs)
    await turn(world, ref)
    await world.kernel.shutdown()
    world.start()
    await turn(world, ref)
    assert_prefix(requests_of(world, "model-main"))


def requests_of(world: World, model: str) -> list[Request]:
    return [request for request in world.server.requests if request.body["model"] == model]


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_of_a_run_that_waited_while_the_daemon_was_gone(world: World, how: str) -> None:
    ref = world.session()
    ask = tool_use("Bash", command="echo asked")
    world.server.say(answer(thinking("Hm.", signature="s"), "I begin.", look(world), ask, look(world)))
    await begin(world, ref, "  Begin.\n", asks=1)
    ref = await restart(world, ref, how)
    world.server.say("Allowed.", "And on.")
    (open_ask,) = await awake(world, ref, 1)
    await say(world, open_ask, "allow")
    async with world.kernel.using(ref) as branch:
        await until(lambda: branch.task is None)
    await turn(world, ref)
    assert_prefix(world.server.requests)


async def test_the_environment_of_the_first_run_stays(world: World) -> None:
    ref = world.session()
    world.server.say("One.", "Two.")
    await turn(world, ref)
    (world.project / ".git").mkdir()
    world.start()
    await turn(world, ref)
    assert_prefix(world.server.requests)


async def test_saving_the_document_as_it_is_changes_nothing(world: World) -> None:
    ref = world.session()
    world.server.say(answer(thinking("Hm.", signature="s"), "One.", look(world)), "Two.", "Three.")
    await turn(world, ref)
    file = paths.session_file(ref.branch_dir)
    file.write_bytes(file.read_bytes())
    world.start()
    async with world.kernel.using(ref) as branch:
        await branch.look_once()
        await branch.compare()
    await turn(world, ref)
    assert_prefix(world.server.requests)
    assert "One." in body(ref)

"""The loop, with a real log, a real document and a real server: every way a run ends, and what it leaves."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import re
import resource
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.config import load_config
from pyagentd.errors import BadRequest, Busy, ConfigError
from pyagentd.policy.action import Target
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.opening import RESTARTED
from pyagentd.runtime.settings import SendOptions, key_of
from pyagentd.runtime.system_prompt import workplace_of
from pyagentd.store import paths
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.document.render import replay
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from pyagentd.tools.spec import ToolSpec
from pyagentd.wire import sexp
from tests.runtime.world import OVERLOADED, Watcher, World, assert_closed, attached, body, last_of, rows
from tests.server import Block, Request, answer, error_event, malformed, refusal, text, thinking, tool_use
from tests.store.shelf import update


async def run(world: World, prompt: str = "Hi", **options: Any) -> tuple[BranchRef, dict[str, Any]]:
    """Send a prompt to a new session, wait for the end, and return what was told about it."""
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text=prompt, options=replace(world.options, **options))
        end = await watcher.finished(branch)
        assert branch.run is None and branch.task is None
        branch.detach(watcher)
    return ref, end


def read_call(world: World, name: str = "a.txt", **options: Any) -> Any:
    return tool_use("Read", file_path=str(world.project / name), **options)


ENDS: dict[str, tuple[Callable[[World], list[Any]], str, str]] = {
    "success": (lambda w: ["Hello"], "done", "Hello"),
    "empty answer": (lambda w: [answer()], "done", ""),
    "thinking only": (lambda w: [answer(thinking("hm"))], "done", ""),
    "tool": (lambda w: [answer(read_call(w)), "It says alpha"], "done", "It says alpha"),
    "tool error": (lambda w: [answer(read_call(w, "missing")), "It is missing"], "done", "It is missing"),
    "unknown tool": (lambda w: [answer(tool_use("Fly")), "I cannot"], "done", "I cannot"),
    "arguments no JSON": (lambda w: [answer(tool_use("Read", json_text="{")), "I see"], "done", "I see"),
    "refused 401": (lambda w: [refusal(401, "authentication_error", "bad key")], "error", ""),
    "overloaded for ever": (lambda w: [OVERLOADED] * 5, "error", ""),
    "overloaded once": (lambda w: [OVERLOADED, "Hello"], "done", "Hello"),
    "cut": (lambda w: [answer(text("Hello world", chunks=4), cut_after=5)], "error", "Hello"),
    "malformed event": (lambda w: [malformed()], "error", ""),
    "error event": (
        lambda w: [answer(text("Hello world", chunks=4), insert={5: error_event("api_error", "broken")})],
        "error",
        "Hello",
    ),
    "max tokens": (lambda w: [answer("Hello", stop_reason="max_tokens")], "done", "Hello"),
    "refusal": (lambda w: [answer("I must not", stop_reason="refusal")], "done", "I must not"),
    "refusal with a call": (lambda w: [answer(read_call(w), stop_reason="refusal")], "done", ""),
    "pause": (lambda w: [answer("Let me", stop_reason="pause_turn"), " see"], "done", "Let me"),
    "pause without a word": (lambda w: [answer(stop_reason="pause_turn")], "done", ""),
}


@pytest.mark.parametrize("case", ENDS)
async def test_every_run_ends_once_and_leaves_nothing_open(world: World, case: str) -> None:
    script, reason, shown = ENDS[case]
    (world.project / "a.txt").write_text("alpha\n")
    world.server.say(*script(world))
    ref, told = await run(world)
    end = assert_closed(ref)
    assert (told["reason"], end["reason"]) == (reason, reason)
    assert shown in body(ref)
    assert body(ref).startswith("### Hi\n\n") and body(ref).endswith("\n\n### ")
    assert ("``` error\n" in body(ref)) == (reason == "error")
    assert not world.kernel.runs and world.kernel.opened(ref.key) is None


async def test_a_closed_session_that_failed_is_not_kept_in_memory(world: World) -> None:
    world.server.say("Hello", refusal(401, "authentication_error", "bad key"))
    await run(world)  # what is loaded with the first conversation stays
    ref, watcher = world.session("second"), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        told = await watcher.finished(branch)
        branch.detach(watcher)
        conversation = weakref.ref(branch.conversation)
    del branch
    async with asyncio.timeout(60):
        while conversation() is not None:  # a thread that wrote for it may have just ended
            gc.collect()
            await asyncio.sleep(0)
    assert world.kernel.state_of(ref.key) == "error"
    async with world.kernel.using(ref) as branch:
        assert branch.status["state"] == "error" and branch.status["message"] == told["message"]


@pytest.mark.parametrize(
    ("stop", "said"), [("max_tokens", "The answer reached the limit"), ("refusal", "The model refused")]
)
async def test_an_end_that_is_none_says_why(world: World, stop: str, said: str) -> None:
    world.server.say(answer("Hel", stop_reason=stop))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.until(lambda: watcher.of("notice"))
        (notice,) = watcher.of("notice")
        end = await watcher.finished(branch)
        branch.detach(watcher)
    assert end["reason"] == "done" and end["message"].startswith(said)
    assert notice.args[0]["text"] == end["message"]


async def test_arguments_of_ten_megabytes_are_kept_in_a_file_and_the_model_is_told(world: World) -> None:
    content = json.dumps({"file_path": str(world.project / "big"), "content": "0123456789" * 1_000_000})
    world.server.say(answer(tool_use("Write", id="call_big", json_text=content)), "I see")
    ref, told = await run(world)
    assert told["reason"] == "done" and not (world.project / "big").exists()
    (result,) = [block for block in world.server.last.messages[-1]["content"] if block["type"] == "tool_result"]
    said = json.dumps(result)
    assert result["is_error"] and "more than 1000000 characters" in said and "in several calls" in said
    kept = Path(re.search(r"in a file \(([^)]*)\)", said)[1])  # type: ignore[index]
    assert kept.read_text() == content  # noqa: ASYNC240
    assert paths.journal_file(ref.branch_dir).stat().st_size < 50_000
    assert "more than 1000000 characters" in body(ref)
    assert len(json.dumps(world.server.last.body)) < 50_000


async def test_an_answer_with_more_calls_than_are_made_ends_the_run_and_makes_none(world: World) -> None:
    calls = [tool_use("Write", file_path=str(world.project / f"{n}"), content="x") for n in range(129)]
    world.server.say(answer(*calls))
    ref, told = await run(world)
    assert told["reason"] == "error" and "128 calls of tools" in told["message"]
    assert not list(world.project.iterdir()) and "128 calls of tools" in assert_closed(ref)["error"]["message"]


async def test_a_paused_answer_goes_on_in_the_next_request(world: World) -> None:
    world.server.say(answer("Let me", stop_reason="pause_turn"), "see")
    await run(world)
    last = world.server.last.messages[-1]
    assert last["role"] == "assistant" and last["content"][0]["text"] == "Let me"


# -- abort -----------------------------------------------------------------------------------------------------


async def in_wait(world: World, branch: LiveBranch, watcher: Watcher) -> None:
    await watcher.phase(branch, "WAIT")


async def in_type(world: World, branch: LiveBranch, watcher: Watcher) -> None:
    await watcher.until(lambda: "Hel" in watcher.text(branch.key))


async def in_tool(world: World, branch: LiveBranch, watcher: Watcher) -> None:
    await watcher.phase(branch, "TOOL")


async def in_ask(world: World, branch: LiveBranch, watcher: Watcher) -> None:
    await watcher.until(lambda: watcher.of("ask"))


Moment = Callable[[World, LiveBranch, Watcher], Awaitable[None]]
MOMENTS: dict[str, tuple[Callable[[World], Any], tuple[str, ...], Moment | None]] = {
    "before it begins": (lambda w: "Hello", (), None),
    "WAIT": (lambda w: answer(hang_after=1), (), in_wait),
    "TYPE": (lambda w: answer(text("Hello", chunks=2), hang_after=4), (), in_type),
    "TOOL": (lambda w: answer(tool_use("Bash", command="sleep 100")), ("tool:Bash:.*",), in_tool),
    "while an ask waits": (lambda w: answer(tool_use("Bash", command="true")), (), in_ask),
    "while two asks wait": (
        lambda w: answer(*[tool_use("PersistentAgent", preset="main", description=d, prompt=d) for d in "ab"]),
        (),
        in_ask,
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_abort_ends_the_run_wherever_it_is(world: World, moment: str) -> None:
    said, grants, reached = MOMENTS[moment]
    world.server.say(said(world))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.granted(*grants))
        if reached is not None:
            await reached(world, branch, watcher)
        assert await world.kernel.abort(branch)
        assert branch.status["state"] == "idle"
        assert not await world.kernel.abort(branch), "there is nothing left to abort"
        told = await watcher.finished(branch)
    assert told["reason"] == assert_closed(ref)["reason"] == "aborted"
    assert not world.kernel.asks.all()
    assert body(ref).endswith("\n\n### ")


async def test_aborts_at_once_are_one_and_the_end_is_told_once(world: World) -> None:
    world.server.say(answer(text("Hello", chunks=2), hang_after=4))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await in_type(world, branch, watcher)
        await asyncio.gather(*[world.kernel.abort(branch) for _ in range(5)])
        await watcher.finished(branch)
    assert assert_closed(ref)["reason"] == "aborted"


async def test_an_abort_that_comes_while_the_end_is_recorded_changes_nothing(world: World) -> None:
    world.server.say("Hello")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.until(lambda: watcher.text(branch.key).endswith("\n\n### "))  # recorded, not yet told
        await world.kernel.abort(branch)
        told = await watcher.finished(branch)
    assert told["reason"] == assert_closed(ref)["reason"] == "done"


async def test_answering_a_question_by_aborting_ends_the_run(world: World) -> None:
    world.server.say(answer(tool_use("Bash", command="true")))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await in_ask(world, branch, watcher)
        world.kernel.asks.answer(watcher.of("ask")[0].args[0]["id"], Answer(decision="abort"))
        await watcher.finished(branch)
    assert assert_closed(ref)["reason"] == "aborted"
    (ask,) = last_of(rows(ref), "ask").values()
    assert ask["decision"] == "abort"


async def test_two_questions_keep_the_run_waiting_until_both_are_answered(world: World) -> None:
    call = {"preset": "main", "prompt": "p"}
    world.server.say(
        answer(*[tool_use("PersistentAgent", description=str(number), **call) for number in range(2)]), "Well"
    )
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.until(lambda: len(watcher.of("ask")) == 2)
        first, second = (event.args[0]["id"] for event in watcher.of("ask"))
        states = [event.args[0]["state"] for event in watcher.of("status")]
        world.kernel.asks.answer(first, Answer(decision="deny"))
        await watcher.until(lambda: len(watcher.of("answered")) == 1)
        assert branch.status["state"] == states[-1] == "waiting"
        world.kernel.asks.answer(second, Answer(decision="deny", reason="not now"))
        await watcher.until(lambda: watcher.of("status")[-1].args[0]["state"] != "waiting")
        await watcher.finished(branch)
    assert "not now" in json.dumps(world.server.last.messages)


async def test_shutdown_ends_runs_in_flight_and_starts_no_other(world: World) -> None:
    world.server.say(answer(hang_after=1))
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await world.kernel.shutdown()
        with pytest.raises(Busy):
            await world.kernel.prompt(branch, text="Hi", options=world.options)
    assert assert_closed(ref)["reason"] == "restart"
    assert body(ref) == f"### Hi\n\n``` error\n{RESTARTED}\n```\n\n### "


# -- failures of our own ---------------------------------------------------------------------------------------


def broken_tool() -> ToolSpec:
    async def fail(args: object, context: object) -> str:
        raise RuntimeError("a bug")

    return ToolSpec(
        name="Broken",
        description="",
        input_schema={"type": "object", "properties": {}},
        kind="meta",
        run=fail,
        describe=lambda args, context: Target(detail=""),
    )


async def test_an_exception_in_a_tool_is_a_result_for_the_model(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.preset("main", tools="Broken")
    monkeypatch.setattr("pyagentd.runtime.run_setup.builtin_tools", lambda: {"Broken": broken_tool()})
    world.server.say(answer(tool_use("Broken")), "It broke")
    ref, _ = await run(world)
    assert assert_closed(ref)["reason"] == "done"
    assert "a bug" in json.dumps(world.server.last.messages)


@contextmanager
def full_disk(ref: BranchRef, room: int = 0) -> Iterator[None]:
    """Let no file grow beyond what the log has now, plus ``room`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = ref.branch_dir / "messages.jsonl"
    resource.setrlimit(resource.RLIMIT_FSIZE, ((log.stat().st_size if log.exists() else 0) + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("noticed", ["by the end", "by the next word"])
async def test_a_full_disk_ends_the_run_and_the_log_is_mended_when_there_is_room_again(
    world: World, noticed: str, caplog: pytest.LogCaptureFixture
) -> None:
    stop = {"hang_after": 8} if noticed == "by the end" else {"pause_s": 0.02}
    world.server.say(answer(text("Hello world" * 10, chunks=110), **stop))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.until(lambda: "He" in watcher.text(branch.key))
        with full_disk(ref):
            if noticed == "by the end":
                assert await world.kernel.abort(branch)
            told = await watcher.finished(branch)
    assert told["reason"] == "error" and "large" in told["message"]
    assert world.kernel.opened(ref.key) is None, "the branch is read anew by the next who needs it"
    (listed,) = (await world.service().sessions(Watcher()))["sessions"]
    assert listed["state"] == "error"
    async with world.kernel.using(ref) as branch:
        assert branch.status["state"] == "error" and branch.status["message"] == told["message"]
    end = assert_closed(ref)
    assert end["reason"] == "error" and end["error"]["message"] == told["message"]
    assert "host restart" not in body(ref) and told["message"] in body(ref)
    complaints = [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    assert len(complaints) == 1 and complaints[0].exc_info is None
    assert body(ref).startswith("### Hi\n\nHe") and body(ref).endswith("\n\n### ")


async def test_a_disk_that_is_full_from_the_start_starts_no_run(world: World) -> None:
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        await workplace_of(world.kernel, branch)  # the session's own row
        with full_disk(ref), pytest.raises(Exception, match="too large"):
            await world.kernel.prompt(branch, text="Hi", options=world.options)
        assert branch.run is None
        world.server.say("Hello")
        watcher = Watcher()
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.finished(branch)
    assert assert_closed(ref)["reason"] == "done"


async def test_a_document_that_cannot_be_written_is_said_and_completed_later(world: World) -> None:
    world.server.say("Hello")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await watcher.phase(branch, "WAIT")
        file = ref.branch_dir / "session.md"
        kept = file.read_bytes()
        file.unlink()
        file.mkdir()  # root writes anywhere, but no file over a directory
        told = await watcher.finished(branch)
        assert told["reason"] == "done" and told["message"]
        assert branch.status["state"] == "error"
        file.rmdir()
        file.write_bytes(kept)
        await branch.document.flush()
    assert assert_closed(ref)["reason"] == "done"
    assert body(ref) == "### Hi\n\nHello\n\n### "


# -- restart ---------------------------------------------------------------------------------------------------


async def test_what_a_dead_daemon_left_is_closed_as_aborted_by_restart(world: World) -> None:
    world.server.say(answer("Let me see.", tool_use("Bash", command="sleep 100")))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.granted("tool:Bash:.*"))
        await in_tool(world, branch, watcher)
        copy = ref.branch_dir.parent / "copy"  # what is on disk is what a killed daemon leaves
        await asyncio.to_thread(lambda: os.system(f"cp -a {ref.branch_dir} {copy}"))
        await world.kernel.abort(branch)
    left = replace(ref, branch_name="copy", branch_dir=copy)
    async with world.start().using(left) as branch:
        assert branch.status["state"] == "idle" and world.kernel.asks.all() == []
    assert assert_closed(left)["reason"] == "restart"
    (call,) = [part for part in last_of(rows(left), "part").values() if part["type"] == "tool-Bash"]
    assert call["data_json"]["errorText"] == RESTARTED
    assert body(left).startswith("### Hi\n\nLet me see.") and RESTARTED in body(left)
    before = body(left)
    async with world.start().using(left):
        pass
    assert body(left) == before and len(rows(left)) == rows(left)[-1].seq


# -- what is started, and what is not --------------------------------------------------------------------------


async def test_of_two_prompts_at_once_one_runs_and_the_other_is_queued(world: World) -> None:
    world.server.say("Hello", "Hello again")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        sends = [world.kernel.prompt(branch, text="Hi", options=world.options) for _ in range(2)]
        results = await asyncio.gather(*sends)
        assert sorted(map(bool, results)) == [False, True]
        await watcher.until(lambda: len([e for e in watcher.of("run") if e.args[0]["phase"] == "finished"]) == 2)
    assert assert_closed(ref)["reason"] == "done"
    assert body(ref) == "### Hi\n\nHello\n\n### Hi\n\nHello again\n\n### "


async def test_a_branch_is_not_closed_while_a_run_is_being_started(world: World) -> None:
    world.server.say("Hello")
    ref, watcher, other = world.session(), Watcher(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, other)
        starting = asyncio.create_task(world.kernel.prompt(branch, text="Hi", options=world.options))
        world.kernel.forget(other)  # the last who watched
        await starting
        await attached(branch, watcher)
        await watcher.finished(branch)
    assert assert_closed(ref)["reason"] == "done"


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"backend": "nobody"}, ConfigError), ({"model": ""}, Exception)],
)
async def test_nothing_is_recorded_of_a_run_that_cannot_start(
    world: World, fields: dict[str, str], error: type[Exception]
) -> None:
    world.preset("main", **fields)
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        with pytest.raises(error):
            await world.kernel.prompt(branch, text="Hi", options=world.options)
    assert [row for row in rows(ref) if row.type in ("run", "message")] == []
    assert body(ref) == "" and world.kernel.opened(ref.key) is None


async def test_an_empty_prompt_is_refused(world: World) -> None:
    async with world.kernel.using(world.session()) as branch:
        with pytest.raises(BadRequest, match="empty"):
            await world.kernel.prompt(branch, text=" \n", options=world.options)


async def test_the_same_prompt_again_is_put_at_the_end_and_not_found_in_an_old_answer(world: World) -> None:
    ref, watcher = world.session(), Watcher()
    world.server.say("Hi to you: Hi", "Hi again", "Hi for good")
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        for prompt in ("Hi", "Hi", "i"):
            await world.kernel.prompt(branch, text=prompt, options=world.options)
            await watcher.finished(branch)
    assert body(ref) == "### Hi\n\nHi to you: Hi\n\n### Hi\n\nHi again\n\n### i\n\nHi for good\n\n### "


# -- tools -----------------------------------------------------------------------------------------------------


def meeting(name: str, parallel_safe: bool, log: list[str], together: asyncio.Barrier | None) -> ToolSpec:
    async def visit(args: Any, context: object) -> str:
        log.append(f"in {args['who']}")
        if together is not None:
            async with asyncio.timeout(5):
                await together.wait()
        await asyncio.sleep(0)
        log.append(f"out {args['who']}")
        return f"{args['who']} was here"

    return ToolSpec(
        name=name,
        description="",
        input_schema={"type": "object", "properties": {"who": {"type": "string"}}},
        kind="meta",
        run=visit,
        describe=lambda args, context: Target(detail=""),
        parallel_safe=parallel_safe,
    )


async def test_calls_that_only_look_overlap_and_those_that_write_run_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    tools = [meeting("Look", True, log, asyncio.Barrier(2)), meeting("Change", False, log, None)]
    monkeypatch.setattr("pyagentd.runtime.run_setup.builtin_tools", lambda: {tool.name: tool for tool in tools})
    world.preset("main", tools="Look, Change")
    order = [("Look", "a"), ("Look", "b"), ("Change", "c"), ("Change", "d"), ("Look", "e"), ("Look", "f")]
    world.server.say(answer(*[tool_use(tool, who=who) for tool, who in order]), "Done")
    await run(world)
    assert set(log[:2]) == {"in a", "in b"} and set(log[2:4]) == {"out a", "out b"}
    assert log[4:8] == ["in c", "out c", "in d", "out d"]
    assert set(log[8:10]) == {"in e", "in f"}
    results = [json.dumps(block["content"]) for block in world.server.last.messages[-1]["content"]]
    assert len(results) == 6
    assert all(f"{who} was here" in result for who, result in zip("abcdef", results, strict=True))


async def test_results_are_shown_in_the_order_of_the_calls_whichever_came_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_done = asyncio.Event()

    async def look(args: Any, context: object) -> str:
        if args["who"] == "first":
            async with asyncio.timeout(5):
                await second_done.wait()
        second_done.set()
        return f"{args['who']} result"

    tool = replace(meeting("Look", True, [], None), run=look)
    monkeypatch.setattr("pyagentd.runtime.run_setup.builtin_tools", lambda: {"Look": tool})
    world.preset("main", tools="Look")
    world.server.say(answer(tool_use("Look", who="first"), tool_use("Look", who="second")), "Done")
    ref, _ = await run(world)
    assert body(ref).index("first result") < body(ref).index("second result")


# -- record before show ----------------------------------------------------------------------------------------


async def test_whatever_is_shown_is_in_the_log_already(world: World) -> None:
    ref = world.session()
    (world.project / "a.txt").write_text("alpha\n")
    world.server.say(answer(text("Let me see", chunks=5), read_call(world)), answer(text("It is alpha", chunks=5)))

    class Auditor(Watcher):
        def push(self, event: Any) -> None:
            if event.seq:
                assert rows(ref)[-1].seq >= event.seq, event
            super().push(event)

    auditor = Auditor()
    async with world.kernel.using(ref) as branch:
        await attached(branch, auditor)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        await auditor.until(lambda: any(e.args[0].get("phase") == "finished" for e in auditor.of("run")))
        assert "### " + auditor.text(branch.key) == body(ref)
        branch.detach(auditor)


async def test_the_model_gets_exactly_what_it_said(world: World) -> None:
    (world.project / "a.txt").write_text("alpha\n")
    world.server.say(
        answer(thinking("hm", signature="c2ln"), "Let me see", read_call(world, id="toolu_x")),
        lambda request: answer(_kinds(request)),
    )
    ref, _ = await run(world)
    assert "thinking text tool_use" in body(ref)


def _kinds(request: Request) -> str:
    return " ".join(block["type"] for block in request.messages[1]["content"])


# -- the readable logs -----------------------------------------------------------------------------------------


async def test_tool_calls_and_system_prompts_are_logged_for_people(world: World) -> None:
    (world.project / "a.txt").write_text("* alpha\n")
    world.server.say(answer(read_call(world)), answer(read_call(world, "missing")), "Done")
    ref, _ = await run(world)
    tools = (ref.branch_dir / "tools.org").read_text()
    assert tools.count("* Tool Call: Read\n") == 2 and tools.count(":STATE: error") == 1
    assert "alpha" in tools and "missing" in tools
    prompts = (ref.branch_dir / "system-prompts.org").read_text()
    assert "You are main." in prompts and "Previous Prompt" not in prompts


async def test_a_system_prompt_is_logged_again_only_when_it_changed(world: World) -> None:
    ref, watcher = world.session(), Watcher()
    preset = ref.branch_dir / "preset.md"
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        for name in ("main", "main", "somebody else"):
            preset.write_text(preset.read_text().replace("You are main.", f"You are {name}."))
            await world.kernel.prompt(branch, text="Hi", options=world.options)
            await watcher.finished(branch)
    prompts = (ref.branch_dir / "system-prompts.org").read_text()
    assert prompts.count("* System Prompt Change: ") == 2
    assert prompts.index("** Previous Prompt") < prompts.index("You are somebody else.")


async def test_readable_logs_that_cannot_be_written_fail_nothing(world: World) -> None:
    world.server.say(answer(read_call(world, "missing")), "Done")
    ref, watcher = world.session(), Watcher()
    for name in ("tools.org", "system-prompts.org"):
        (ref.branch_dir / name).mkdir()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.options)
        told = await watcher.finished(branch)
    assert told["reason"] == "done" and body(ref).endswith("Done\n\n### ")


async def test_a_call_that_was_aborted_is_logged_as_such(world: World) -> None:
    world.server.say(answer(tool_use("Bash", command="sleep 100")))
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hi", options=world.granted("tool:Bash:.*"))
        await in_tool(world, branch, watcher)
        await world.kernel.abort(branch)
    assert "aborted" in (ref.branch_dir / "tools.org").read_text()


def nested(depth: int) -> str:
    return f'{{"file_path": {"[" * depth}{"]" * depth}}}'


# What a model can send as arguments: its text, and whether it is refused as no JSON.
ARGUMENTS: dict[str, tuple[str, bool]] = {
    "NaN": ('{"file_path": "a.txt", "limit": NaN}', True),
    "NaN deep inside": ('{"file_path": {"a": [{"b": NaN}]}}', True),
    "Infinity": ('{"file_path": "a.txt", "limit": Infinity}', True),
    "minus Infinity": ('{"file_path": "a.txt", "limit": -Infinity}', True),
    "a number beyond floats": ('{"file_path": "a.txt", "limit": 1e999}', True),
    "65 bits": (f'{{"file_path": "a.txt", "limit": {2**64}}}', True),
    "5,000 digits": (f'{{"file_path": "a.txt", "limit": {"9" * 5_000}}}', True),
    "63 bits": (f'{{"file_path": "a.txt", "limit": {2**63 - 1}}}', False),
    "the least float": ('{"file_path": "a.txt", "limit": 5e-324}', False),
    "minus zero": ('{"file_path": "a.txt", "limit": -0.0}', False),
    "50 levels": (nested(50), False),
    "200 levels": (nested(200), True),
    "990 levels": (nested(990), True),
    "100,000 levels": (nested(100_000), True),
    "100,000 levels, not closed": ('{"file_path": ' + "[" * 100_000, True),
    "a key twice": ('{"file_path": "b.txt", "file_path": "a.txt"}', False),
    "an empty key": ('{"": 1, "file_path": "a.txt"}', False),
    "a strange key": ('{"a b\\n(\\"\\u0000\\\\": 1, "file_path": "a.txt"}', False),
    "control characters": ('{"file_path": "\\u0000\\u0001\\u001b[2J\\u007f\\u0085\\u2028\\r\\n"}', False),
    "a raw control character": ('{"file_path": "a\x01"}', True),
    "half a surrogate pair": ('{"file_path": "\\ud83d", "\\udc00": "\\udfff\\ud800"}', False),
    "no character": ('{"file_path": "\\uffff\\ufffe\\ufeff"}', False),
    "a list": ("[1, 2]", True),
    "a word": ('"Read"', True),
    "two objects": ('{"file_path": "a.txt"}{"file_path": "b.txt"}', True),
    "comments": ('{"file_path": "a.txt"} // the file', True),
    "single quotes": ("{'file_path': 'a.txt'}", True),
    "only blanks": ("  \n", False),
    "half an object": ('{"file_path": "a', True),
}
NAMES = ["", " ", "Read\nWrite", "Read)(:x", "a\0b", "\ud83d", "é", "x" * 300, "tool_result", '"', "../../etc"]


def strictly(text: str | bytes) -> Any:
    """Read JSON as every other program does."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


async def assert_goes_on(world: World, ref: BranchRef, tmp_path: Path) -> Request:
    """Check that every reader reads the session, and that it goes on after a restart; return the next request."""
    for line in paths.journal_file(ref.branch_dir).read_bytes().splitlines():
        strictly(line)
    assert len(rows(ref)) == len({row.seq for row in rows(ref)})
    with closing(State(tmp_path)) as state:
        projection = Projection(state, world.kernel.config.sessions_dir)
        update(projection, Registry(world.kernel.config.sessions_dir))
        with state.reading() as db:
            assert db.execute("SELECT count(*) FROM chat_parts WHERE NOT json_valid(data_json)").fetchone() == (0,)
            assert db.execute("SELECT count(*) FROM chat_parts WHERE type LIKE 'tool-%'").fetchone()[0] > 0
    await world.kernel.shutdown()
    watcher = Watcher()
    async with world.start().using(ref) as branch:
        answered = await attached(branch, watcher)
        assert sexp.decode(sexp.encode(answered)) is not None
        for insert in replay(rows(ref), 0):
            assert sexp.decode(sexp.encode([insert.text, sexp.to_symbols(insert.role)])) is not None
        branch.detach(watcher)
        await attached(branch, watcher)
        world.server.say("Still here")
        await world.kernel.prompt(branch, text="Go on", options=world.options)
        assert (await watcher.finished(branch))["reason"] == "done"
        branch.detach(watcher)
    assert "Still here" in body(ref)
    request = world.server.requests[-1]
    strictly(json.dumps(request.body))
    return request


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_whatever_a_model_sends_as_arguments_the_session_goes_on(
    world: World, tmp_path: Path, name: str
) -> None:
    given, refused = ARGUMENTS[name]
    (world.project / "a.txt").write_text("alpha\n")
    world.server.say(answer(tool_use("Read", json_text=given)), "I see")
    ref, end = await run(world)
    assert end["reason"] == "done"
    (call,) = [part["data_json"] for part in last_of(rows(ref), "part").values() if part["type"] == "tool-Read"]
    assert (call.get("rawInput") == given) == refused
    if refused:
        assert call["state"] == "output-error" and "not a JSON object" in call["errorText"] and call["input"] == {}
    await assert_goes_on(world, ref, tmp_path)


async def test_arguments_at_the_start_of_a_call_are_read_as_strictly(world: World, tmp_path: Path) -> None:
    block = tool_use("Read", json_text="")
    block.start["input"] = {"file_path": "a.txt", "limit": math.nan}
    world.server.say(answer(block), "I see")
    ref, end = await run(world)
    assert end["reason"] == "done"
    assert "NaN is not a JSON number" in body(ref)
    await assert_goes_on(world, ref, tmp_path)


@pytest.mark.parametrize("id", ["toolu_1", "", "a|b.c", "\0", "\ud83d"])
async def test_whatever_a_model_calls_a_tool_the_next_request_is_one_the_server_takes(
    world: World, tmp_path: Path, id: str
) -> None:
    calls = [replace_id(tool_use(name), f"{id}{number or ''}") for number, name in enumerate(NAMES)]
    world.server.say(answer(*calls), "I see")
    ref, end = await run(world)
    assert end["reason"] == "done"
    request = await assert_goes_on(world, ref, tmp_path)
    contents = [message["content"] for message in request.messages]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    uses = [block for block in blocks if block["type"] == "tool_use"]
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == [use["id"] for use in uses]
    assert len({use["id"] for use in uses}) == len(NAMES)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,128}", use[key]) for use in uses for key in ("id", "name"))


def replace_id(block: Block, id: str) -> Block:
    return replace(block, start={**block.start, "id": id})


@pytest.mark.parametrize("count", [math.nan, math.inf, "12", [1], -5.5])
async def test_a_number_of_tokens_that_is_none_ends_the_run_and_not_the_session(
    world: World, count: Any, tmp_path: Path
) -> None:
    world.server.say(answer(tool_use("Read", file_path="a.txt")), answer("Hello", usage={"input_tokens": count}))
    ref, end = await run(world)
    assert end["reason"] == "error"
    await assert_goes_on(world, ref, tmp_path)


@pytest.mark.parametrize(
    "arguments",
    ['{"command": "ls", "timeout_ms": NaN}', '{"n": [Infinity, -Infinity, 1e999]}', nested(600), nested(980)],
)
async def test_a_session_whose_log_holds_what_is_no_json_opens_again(
    world: World, tmp_path: Path, arguments: str
) -> None:
    world.server.say(answer(read_call(world, id="toolu_marked")), "I see")
    ref, _ = await run(world)
    log = paths.journal_file(ref.branch_dir)
    lines = log.read_text().splitlines(keepends=True)
    recorded = json.dumps({"file_path": str(world.project / "a.txt")}, separators=(",", ":"))
    broken = [line.replace(recorded, arguments) for line in lines]
    assert broken != lines
    log.write_text("".join(broken))
    paths.session_file(ref.branch_dir).unlink()
    await world.kernel.shutdown()
    watcher = Watcher()
    async with world.start().using(ref) as branch:
        await attached(branch, watcher)
        world.server.say("Still here")
        await world.kernel.prompt(branch, text="Go on", options=world.options)
        assert (await watcher.finished(branch))["reason"] == "done"
        branch.detach(watcher)
    strictly(json.dumps(world.server.requests[-1].body))
    assert "Still here" in body(ref)


def test_a_key_is_for_the_backend_that_names_its_variable(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[backend.proxy]\nkind = "anthropic"\nbase_url = "https://proxy.example"\nkey_env = "PROXY_KEY"\n'
    )
    config = load_config({"PYAGENTD_CONFIG": f"{tmp_path}/config.toml"})
    options = SendOptions(env={"ANTHROPIC_API_KEY": "of Anthropic", "PROXY_KEY": "of the proxy"})
    assert key_of(config.backend("proxy"), options) == "of the proxy"
    assert key_of(config.backend("proxy"), replace(options, env={"ANTHROPIC_API_KEY": "of Anthropic"})) is None
    assert key_of(config.backend("Claude"), options) == "of Anthropic"


async def test_the_variable_of_a_key_reaches_no_command_whatever_it_is_called(world: World) -> None:
    (world.home / "config.toml").write_text('[backend.local]\nkind = "anthropic"\nkey_env = "WORK_LLM"\n')
    world.preset("main", tools="Bash")
    world.start()
    env = {**world.options.env, "WORK_LLM": "the key", "PROJECT": "mine"}
    options = replace(world.granted(".*"), env=env)
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        world.server.say(answer(tool_use("Bash", command="cat /proc/self/environ")), "Done.")
        await world.kernel.prompt(branch, text="Go", options=options)
        await watcher.finished(branch)
        branch.detach(watcher)
    told = str(world.server.last.messages[-1])
    assert "PROJECT=mine" in told and "the key" not in told

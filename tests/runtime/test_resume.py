"""Runs that wait go on after the daemon's end, exactly once, where they were left."""

from __future__ import annotations

import asyncio
import gc
import shutil
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import NotFound
from pyagentd.features.agents import AgentSpawner, outcome_of
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.opening import RESTARTED
from pyagentd.runtime.queue import Submission
from pyagentd.runtime.settings import SendOptions
from pyagentd.store import paths
from pyagentd.store.journal import Journal
from pyagentd.store.paths import BranchRef
from tests.family import family
from tests.runtime.prefix import assert_prefix
from tests.runtime.world import Watcher, World, assert_closed, attached, body, last_of, rows
from tests.server import answer, text, tool_use

GRANTS = ("tool:PersistentAgent:.*",)
WAYS = ("killed", "stopped")
BASH = "Read, Bash, PersistentAgent"


@pytest.fixture
def helper(world: World) -> World:
    world.preset("helper", tools=BASH)
    return world


async def begin(world: World, ref: BranchRef, text: str, *grants: str, asks: int) -> None:
    """Start a run, and return when so many questions are open."""
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text=text, options=world.granted(*GRANTS, *grants))
    await until(lambda: len(world.kernel.asks.all()) == asks)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for says nothing when it comes
            await asyncio.sleep(0.01)


async def restart(world: World, ref: BranchRef, how: str) -> BranchRef:
    """End the kernel and start another; return where the session is then."""
    if how == "stopped":
        await world.kernel.shutdown()
        world.start()
        return ref
    # What is on disk is what a killed daemon leaves; the old one goes on with its own files, and is stopped.
    copy = ref.session_dir.with_name("copy-20260304050607")
    await asyncio.to_thread(shutil.copytree, ref.session_dir, copy, symlinks=True)
    async with world.kernel.using(ref) as branch:
        await world.kernel.abort(branch)
    world.start()
    return paths.ref_of(copy / "branches" / "main")


async def awake(world: World, ref: BranchRef, asks: int) -> list[dict[str, Any]]:
    """Have the new kernel look at the session; return the questions that are open, by detail."""
    await world.kernel.trees.wake(ref)
    await world.kernel.trees.awake()
    found = sorted(map(dict, world.kernel.asks.all()), key=lambda row: row["detail"])
    assert len(found) == asks
    return found


async def say(world: World, ask: dict[str, Any], decision: Any = "allow", **more: Any) -> None:
    assert await world.kernel.questions.answer(ask["id"], Answer(decision=decision, **more), world.options)


async def ended(world: World) -> None:
    await until(lambda: not world.kernel.runs)


def agents_of(ref: BranchRef) -> list[BranchRef]:
    home = paths.agents_dir(ref.branch_dir)
    return [paths.ref_of(place) for place in sorted(home.iterdir())] if home.is_dir() else []


def whole_tree(ref: BranchRef) -> list[BranchRef]:
    return [ref, *(below for agent in agents_of(ref) for below in whole_tree(agent))]


def calls_of(ref: BranchRef) -> dict[str, dict[str, Any]]:
    parts = last_of(rows(ref), "part").values()
    return {part["data_json"]["toolCallId"]: part["data_json"] for part in parts if part["type"].startswith("tool-")}


def documents(ref: BranchRef) -> list[str]:
    """Return the root's document and those below it, agents in the order of their texts.

    In that of their names they would stand by the second in which they were spawned.
    """
    below = sorted(documents(agent) for agent in agents_of(ref))
    return [body(ref), *(document for agent in below for document in agent)]


@pytest.mark.parametrize("how", WAYS)
async def test_a_question_is_asked_again_and_its_answer_lets_the_same_run_go_on(world: World, how: str) -> None:
    world.server.say(answer("Let me see.", tool_use("Bash", command="echo hi")), "It says hi.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    (before,) = world.kernel.asks.all()
    ref = await restart(world, ref, how)
    (ask,) = await awake(world, ref, 1)
    assert ask == {**before, "branch": ref.key}
    assert world.kernel.opened(ref.key) is not None
    await say(world, ask)
    await ended(world)
    assert assert_closed(ref)["id"] == before["run_id"] and assert_closed(ref)["reason"] == "done"
    assert body(ref).startswith("### Hi\n\nLet me see.\n\n``` tool (Bash") and body(ref).endswith(
        "It says hi.\n\n### "
    )
    assert world.server.last.messages[1]["content"][0]["text"] == "Let me see."
    (row,) = last_of(rows(ref), "ask").values()
    assert row["decision"] == "allow" and row["id"] == before["id"]


@pytest.mark.parametrize("was_written", [True, False])
async def test_a_run_goes_on_in_a_document_that_had_to_be_made_anew(world: World, was_written: bool) -> None:
    world.server.say(answer("I shall look.", tool_use("Bash", command="echo hi")), "Done.")
    ref = world.session()
    if was_written:  # which the log says of a session that it knows
        async with world.kernel.using(ref) as branch:
            branch.record_session(workspace_root=world.project)
    await begin(world, ref, "Look", asks=1)
    ref = await restart(world, ref, "killed")
    file = paths.session_file(ref.branch_dir)
    file.write_text("")
    (ask,) = await awake(world, ref, 1)
    await say(world, ask)
    await ended(world)
    await world.kernel.shutdown()
    for said in ("### Look\n", "I shall look.", "hi\n\n```", "Done."):
        assert body(ref).count(said) == 1, body(ref)
    assert file.read_text().count("Local Variables:") == 1
    assert_closed(ref)


@pytest.mark.parametrize("how", WAYS)
async def test_three_levels_go_on_and_their_results_arrive_once(helper: World, how: str) -> None:
    helper.server.say(*[family(preset="helper")] * 20)
    undisturbed = helper.session("undisturbed")
    await begin(helper, undisturbed, "Root", "tool:Bash:.*", asks=0)
    await ended(helper)
    expected = documents(undisturbed)

    ref = helper.session()
    await begin(helper, ref, "Root", asks=2)
    ref = await restart(helper, ref, how)
    three, two = await awake(helper, ref, 2)
    assert [three["detail"], two["detail"]] == ["echo three", "echo two"]
    watcher = Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
    assert [ask["id"] for ask in helper.kernel.asks.open_for(ref.key)] == [
        ask["id"] for ask in helper.kernel.asks.all()
    ]
    assert {child["description"] for child in helper.kernel.feature(AgentSpawner).running(ref.key)} == {
        "second",
        "middle",
    }
    await say(helper, three)
    await until(lambda: len(helper.kernel.runs) == 2)
    ref = await restart(helper, ref, "stopped")
    (two,) = await awake(helper, ref, 1)
    await say(helper, two)
    await ended(helper)
    assert documents(ref) == expected
    for each in whole_tree(ref):
        assert assert_closed(each)["reason"] == "done"
    log = [row for row in rows(ref) if row.type == "part" and row.data.get("tool_state") == "output-available"]
    assert len({row.data["tool_call_id"] for row in log}) == len(log) == 2
    assert not helper.kernel.asks.all() and not helper.kernel.feature(AgentSpawner).running(ref.key)


@pytest.mark.parametrize("how", WAYS)
async def test_what_ran_is_closed_and_what_waited_beside_it_goes_on(helper: World, how: str) -> None:
    helper.server.say(*[family(preset="helper", second="sleep 1000")] * 20)
    ref = helper.session()
    await begin(helper, ref, "Root", "tool:Bash:sleep 1000", asks=1)
    running = agents_of(ref)[1]
    assert "second" in running.session_id
    await until(lambda: "call_two" in calls_of(running))
    ref = await restart(helper, ref, how)
    (three,) = await awake(helper, ref, 1)
    await say(helper, three, "deny", reason="too risky")
    await ended(helper)
    calls = calls_of(ref)
    assert RESTARTED in calls["call_second"]["errorText"]
    assert "too risky" in calls["call_middle"]["output"]
    assert all(assert_closed(each) for each in whole_tree(ref))


@pytest.mark.parametrize("how", WAYS)
async def test_what_had_not_begun_is_run_after_the_answer(world: World, how: str) -> None:
    (world.project / "a.txt").write_text("alpha\n")
    read = tool_use("Read", id="call_read", file_path=str(world.project / "a.txt"))
    after = tool_use("Bash", id="call_after", command=f"cat {world.project}/a.txt")
    asked = tool_use("Bash", id="call_asked", command="echo hi")
    world.server.say(answer(read, asked, after), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", "tool:Bash:cat.*", asks=1)
    ref = await restart(world, ref, how)
    (ask,) = await awake(world, ref, 1)
    await say(world, ask)
    await ended(world)
    calls = calls_of(ref)
    assert [calls[name]["state"] for name in ("call_read", "call_asked", "call_after")] == ["output-available"] * 3
    assert "alpha" in calls["call_after"]["output"]


@pytest.mark.parametrize("how", WAYS)
async def test_abort_at_the_root_ends_everything(helper: World, how: str) -> None:
    helper.server.say(*[family(preset="helper")] * 20)
    ref = helper.session()
    await begin(helper, ref, "Root", asks=2)
    ref = await restart(helper, ref, how)
    two, _ = await awake(helper, ref, 2)
    async with helper.kernel.using(ref) as branch:
        assert await helper.kernel.abort(branch)
    await ended(helper)
    assert not helper.kernel.asks.all() and not helper.kernel.feature(AgentSpawner).running(ref.key)
    assert all(assert_closed(each)["reason"] == "aborted" for each in whole_tree(ref))
    with pytest.raises(NotFound, match="was stopped"):
        await helper.kernel.questions.answer(two["id"], Answer(decision="allow"), helper.options)


async def test_abort_before_the_agents_were_opened_ends_them_too(helper: World) -> None:
    helper.server.say(*[family(preset="helper")] * 20)
    ref = helper.session()
    await begin(helper, ref, "Root", asks=2)
    ref = await restart(helper, ref, "killed")
    async with helper.kernel.using(ref) as branch:  # resumed, and its run has not made a step
        assert await helper.kernel.abort(branch)
    await ended(helper)
    assert not helper.kernel.asks.all()
    assert all(assert_closed(each) for each in whole_tree(ref))


async def test_an_agent_that_is_opened_first_goes_on_and_its_parents_wait_for_it(helper: World) -> None:
    helper.server.say(*[family(preset="helper")] * 20)
    ref = helper.session()
    await begin(helper, ref, "Root", asks=2)
    ref = await restart(helper, ref, "killed")
    third = whole_tree(ref)[2]
    async with helper.kernel.using(third) as agent:
        assert agent.run is not None
    three, two = await awake(helper, ref, 2)
    await say(helper, two)
    await say(helper, three)
    await ended(helper)
    assert assert_closed(ref)["reason"] == "done"


async def test_an_agent_nobody_waits_for_any_more_is_ended(helper: World) -> None:
    helper.server.say(*[family(preset="helper")] * 20)
    ref = helper.session()
    await begin(helper, ref, "Root", asks=2)
    kept = {each: (each.branch_dir / "messages.jsonl").read_bytes() for each in whole_tree(ref)[1:]}
    ref = await restart(helper, ref, "killed")
    shutil.rmtree(ref.session_dir)
    original = helper.kernel.config.sessions_dir / "test-20260304050607" / "branches" / "main"
    ref = paths.ref_of(original)
    for each, log in kept.items():  # the daemon was killed after the root's end was recorded
        (each.branch_dir / "messages.jsonl").write_bytes(log)
    await awake(helper, ref, 0)
    async with helper.kernel.using(ref):
        await until(lambda: not helper.kernel._errands)
    assert all(assert_closed(each) for each in whole_tree(ref))


async def test_an_answer_that_was_given_before_the_end_counts(world: World) -> None:
    world.server.say(answer(tool_use("Bash", command="sleep 1000")), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    (ask,) = world.kernel.asks.all()
    await say(world, dict(ask))
    ref = await restart(world, ref, "killed")
    async with world.kernel.using(ref):
        await awake(world, ref, 0)
        with pytest.raises(NotFound, match="answered already"):
            await world.kernel.questions.answer(ask["id"], Answer(decision="deny"), world.options)
    assert last_of(rows(ref), "ask")[ask["id"]]["decision"] == "allow"


@pytest.mark.parametrize("how", WAYS)
async def test_only_a_call_that_had_begun_is_closed_when_its_approval_was_accepted(world: World, how: str) -> None:
    marker, file = world.project / "begun", world.project / "a.txt"
    file.write_text("alpha\n")
    begun = tool_use("Bash", id="call_begun", command=f"touch {marker}; sleep 1000")
    asked = tool_use("Bash", id="call_asked", command="echo hi")
    read = tool_use("Read", id="call_read", file_path=str(file))
    world.server.say(answer(begun, asked, read), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    await say(world, dict(world.kernel.asks.all()[0]))
    await until(marker.exists)
    ref = await restart(world, ref, how)
    await world.kernel.trees.wake(ref)
    await until(world.kernel.asks.all)
    (ask,) = map(dict, world.kernel.asks.all())
    assert ask["detail"] == "echo hi"
    await say(world, ask)
    await ended(world)
    calls = calls_of(ref)
    assert RESTARTED in calls["call_begun"]["errorText"]
    assert "hi" in calls["call_asked"]["output"] and "alpha" in calls["call_read"]["output"]
    assert assert_closed(ref)["reason"] == "done"


@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_an_answer_that_was_recorded_counts_for_a_call_that_had_not_begun(world: World, decision: str) -> None:
    asked = tool_use("Bash", id="call_asked", command=f"echo hi > {world.project}/made")
    world.server.say(answer(asked), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    (ask,) = map(dict, world.kernel.asks.all())
    ref = await restart(world, ref, "killed")
    log = Journal.open(paths.journal_file(ref.branch_dir))
    log.append("ask", {**ask, "decision": decision, "decided_reason": "not now"})
    log.close()
    world.kernel.trees.late[ref.key].env.update(world.options.env)
    await awake(world, ref, 0)
    async with world.kernel.using(ref):
        await ended(world)
    assert (world.project / "made").exists() == (decision == "allow")
    assert ("not now" in str(calls_of(ref)["call_asked"])) == (decision == "deny")
    assert len(last_of(rows(ref), "ask")) == 1, "nobody is asked again"
    assert assert_closed(ref)["reason"] == "done"


async def test_a_change_that_was_allowed_before_the_end_is_made_only_as_it_was_shown(world: World) -> None:
    file = world.project / "a.txt"
    file.write_text("one\n")
    world.server.say(answer(tool_use("Write", id="call_asked", file_path=str(file), content="two\n")), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    (ask,) = map(dict, world.kernel.asks.all())
    ref = await restart(world, ref, "killed")
    log = Journal.open(paths.journal_file(ref.branch_dir))
    log.append("ask", {**ask, "decision": "allow"})
    log.close()
    file.write_text("written by the user meanwhile\n")
    world.kernel.trees.late[ref.key].env.update(world.options.env)
    await awake(world, ref, 0)
    async with world.kernel.using(ref):
        await ended(world)
    assert file.read_text() == "written by the user meanwhile\n"
    assert "no longer what they were shown" in calls_of(ref)["call_asked"]["errorText"]


async def test_a_copy_of_a_session_whose_approved_call_runs_does_not_go_on_with_it(world: World) -> None:
    marker = world.project / "begun"
    first = tool_use("Bash", command=f"touch {marker}; sleep 1000")
    world.server.say(answer(first, tool_use("Bash", command=f"rm {marker}")), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    await say(world, dict(world.kernel.asks.all()[0]))
    await until(marker.exists)
    copy = ref.session_dir.with_name("copy-20260304050607")
    await asyncio.to_thread(shutil.copytree, ref.session_dir, copy, symlinks=True)
    copied = paths.ref_of(Path(copy) / "branches" / "main")
    async with world.kernel.using(copied) as branch:
        assert branch.run is None
    assert assert_closed(copied)["reason"] == "restart" and not world.kernel.asks.all()
    async with world.kernel.using(ref) as branch:
        await world.kernel.abort(branch)


async def test_without_a_key_the_run_ends_with_that_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    world.server.say(answer(tool_use("Bash", command="echo hi")), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    ref = await restart(world, ref, "stopped")
    (ask,) = await awake(world, ref, 1)
    assert await world.kernel.questions.answer(ask["id"], Answer(decision="allow"), SendOptions(interactive=True))
    await ended(world)
    end = assert_closed(ref)
    assert end["reason"] == "error" and end["error"]["code"] == "no-key"


async def test_a_preset_that_is_gone_ends_the_run_with_that_error(world: World) -> None:
    world.server.say(answer(tool_use("Bash", command="echo hi")), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    ref = await restart(world, ref, "stopped")
    (ref.branch_dir / "preset.md").unlink()
    await awake(world, ref, 0)
    assert "preset" in assert_closed(ref)["error"]["message"]


async def test_a_question_that_the_rules_of_now_do_not_need_is_closed(world: World) -> None:
    world.server.say(answer(tool_use("Bash", command="echo hi")), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    ref = await restart(world, ref, "stopped")
    preset = ref.branch_dir / "preset.md"
    preset.write_text(preset.read_text().replace("mode: all", "mode: all\nprofile: open"))
    world.options = replace(world.options)
    monkey = {"ANTHROPIC_BASE_URL": world.server.url, "ANTHROPIC_API_KEY": "test-key"}
    world.kernel.trees.late[ref.key].env.update(monkey)
    await awake(world, ref, 0)
    await ended(world)
    (row,) = last_of(rows(ref), "ask").values()
    assert row["decision"] == "allow" and row["decided_by"] is None
    assert assert_closed(ref)["reason"] == "done"


async def test_a_session_that_was_copied_does_not_ask_the_same_twice(world: World) -> None:
    world.server.say(answer(tool_use("Bash", command="echo hi")), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    copy = ref.session_dir.with_name("copy-20260304050607")
    await asyncio.to_thread(shutil.copytree, ref.session_dir, copy, symlinks=True)
    copied = paths.ref_of(Path(copy) / "branches" / "main")
    async with world.kernel.using(copied) as branch:
        assert branch.run is None
    assert assert_closed(copied)["reason"] == "restart"
    assert len(world.kernel.asks.all()) == 1


async def test_a_request_for_more_scope_is_asked_again_too(world: World) -> None:
    world.preset("main", tools="Read, request_scope_expansion")
    wanted = {"tool_name": "Read", "patterns": ["/var/log/**"], "justification": "to see"}
    world.server.say(answer(tool_use("request_scope_expansion", id="call_scope", **wanted)), "Done.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    (before,) = world.kernel.asks.all()
    ref = await restart(world, ref, "stopped")
    (ask,) = await awake(world, ref, 1)
    assert (ask["id"], ask["kind"], ask["patterns"]) == (before["id"], "scope", ["/var/log/**"])
    await say(world, ask, "always")
    await ended(world)
    assert calls_of(ref)["call_scope"]["state"] == "output-available"
    assert "/var/log/**" in (ref.branch_dir / "preset.md").read_text()


async def test_what_a_run_was_told_meanwhile_is_still_there_when_it_goes_on(world: World) -> None:
    look = answer(tool_use("Bash", command="true"))
    world.server.say(answer(text("One."), tool_use("Bash", command="true")), look, "Done.")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        sent = await world.kernel.submit(branch, Submission(text="Go", options=world.options))
        await until(lambda: world.kernel.asks.all())
        await world.kernel.submit(branch, Submission(text="Left", options=world.options, steer=True))
        await say(world, dict(world.kernel.asks.all()[0]))
        await until(lambda: len(world.server.requests) == 2 and world.kernel.asks.all())
    await restart(world, ref, "stopped")
    (ask,) = await awake(world, ref, asks=1)
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await say(world, ask)
        await watcher.finished(branch)
        assert branch.conversation.last_run is not None and branch.conversation.last_run.data["id"] == sent.run_id
        outcome = outcome_of(branch.conversation, branch.conversation.last_run, "all")
        assert outcome is not None and outcome.text == "One.\n\nDone."
    assert_prefix(world.server.requests)
    assert [part["type"] for part in world.server.last.messages[2]["content"]] == ["tool_result", "text"]
    assert_closed(ref)


class _Asker:
    """Who asks for something, as the context of a task holds it."""


async def test_a_tree_that_was_looked_at_keeps_nothing_of_who_asked(world: World) -> None:
    current: ContextVar[_Asker] = ContextVar("asker")

    async def ask(asker: _Asker) -> None:
        current.set(asker)
        await world.kernel.trees.wake(world.session())

    asker = _Asker()
    gone = weakref.ref(asker)
    asking = asyncio.create_task(ask(asker))
    await asking
    del asker, asking

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    await until(is_gone)

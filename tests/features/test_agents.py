"""Agents: sessions of their own under the parent's branch (SPEC 000), run by the real kernel."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from pyagentd.clock import stamp
from pyagentd.features.agents import MAX_DEPTH, AgentSpawner, outcome_of, result_of
from pyagentd.runtime.approvals import Answer
from pyagentd.store import metadata, paths, presetfile
from pyagentd.store.conversation import Conversation
from pyagentd.store.paths import BranchRef
from tests.runtime.world import FixedClock, Watcher, World, assert_closed, attached, body, last_of, rows
from tests.server import Request, answer, refusal, text, tool_use

GRANT = ("tool:PersistentAgent:.*",)
STAMP = stamp(FixedClock().now())


def spawn(preset: str = "helper", description: str = "find it", prompt: str = "Find it.", **more: Any) -> Any:
    return tool_use("PersistentAgent", preset=preset, description=description, prompt=prompt, **more)


def agents_of(ref: BranchRef) -> list[BranchRef]:
    home = paths.agents_dir(ref.branch_dir)
    return [paths.ref_of(place) for place in sorted(home.glob("[!.]*"))] if home.is_dir() else []


@pytest.fixture
def helper(world: World) -> World:
    world.preset("helper", model="model-helper", temperature="0.25", tools="Read, PersistentAgent")
    return world


async def converse(
    world: World, ref: BranchRef, prompt: str = "Delegate.", grants: tuple[str, ...] = GRANT, interactive: bool = True
) -> Watcher:
    """Run a prompt to its end; return what the parent's client saw."""
    watcher, options = Watcher(), replace(world.granted(*grants), interactive=interactive)
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text=prompt, options=options)
        await watcher.until(lambda: any(e.args[0]["phase"] == "finished" for e in watcher.of("run", ref.key)))
        branch.detach(watcher)
    return watcher


def results(request: Request) -> list[str]:
    """The tool results at the end of a request."""
    return [json.dumps(block["content"]) for block in request.messages[-1]["content"]]


@pytest.mark.spec("000", "Agent directory created under parent branch")
@pytest.mark.spec("000", "No current symlink for agents")
async def test_an_agent_is_a_directory_under_the_branch(helper: World) -> None:
    helper.server.say(answer(spawn(description="Analyze code!")), "found", "Done")
    ref = helper.session()
    await converse(helper, ref)
    (agent,) = agents_of(ref)
    assert agent.branch_dir == ref.branch_dir / "agents" / f"helper-{STAMP}-analyze-code"
    assert {entry.name for entry in agent.branch_dir.iterdir()} == {
        "session.md",
        "preset.md",
        "scope-plan.yml",
        "messages.jsonl",
        "system-prompts.org",
        "requests.jsonl",
    }
    facts = metadata.read_session_metadata(agent.branch_dir)
    assert facts is not None
    assert facts["type"] == "agent" and facts["preset"] == "helper" and facts["version"] == "3.0"
    assert facts["parent_session_id"] == ref.session_id and facts["session_id"] == agent.session_id
    assert "paths" not in facts


@pytest.mark.spec("000", "Conversation history fully preserved")
@pytest.mark.spec("000", "Final result accumulated from responses")
async def test_its_answer_is_in_its_document_and_is_the_tools_result(helper: World) -> None:
    (helper.project / "a.txt").write_text("alpha\n")
    read = tool_use("Read", file_path=str(helper.project / "a.txt"))
    allowed = [f"{helper.project}/**"]
    helper.server.say(answer(spawn(allowed_paths=allowed)), answer("I look.", read), "It is alpha.", "Done")
    ref = helper.session()
    await converse(helper, ref)
    (agent,) = agents_of(ref)
    shown = body(agent)
    assert shown.startswith("Find it.\n\nI look.\n\n``` tool (Read") and shown.endswith("It is alpha.\n\n### ")
    (result,) = results(helper.server.last)
    assert "I look.\\n\\nIt is alpha." in result and "alpha\\n" not in result.replace("It is alpha", "")
    assert_closed(agent)
    session = last_of(rows(agent), "session")[agent.session_id]
    assert session["parent_id"] == ref.session_id and session["agent"] == "helper"


async def test_it_records_which_call_of_which_run_spawned_it(helper: World) -> None:
    helper.server.say(answer(spawn(id="call-7")), "found", "Done")
    ref = helper.session()
    await converse(helper, ref)
    (agent,) = agents_of(ref)
    session = last_of(rows(agent), "session")[agent.session_id]
    (run,) = last_of(rows(ref), "run").values()
    assert session["parent_call_id"] == "call-7" and session["parent_run_id"] == run["id"]
    assert session["parent_message_id"] == run["message_id"]
    assert session["background"] is False and session["description"] == "find it"


@pytest.mark.spec("000", "Parent configuration never leaked")
@pytest.mark.spec("000", "Tools captured from agent buffer context")
async def test_its_configuration_comes_from_its_own_preset_only(helper: World) -> None:
    helper.server.say(answer(spawn()), "found", "Done")
    await converse(helper, helper.session())
    parent, child, _ = helper.server.requests
    assert (parent.body["model"], child.body["model"]) == ("model-main", "model-helper")
    assert (parent.body["temperature"], child.body["temperature"]) == (0.5, 0.25)
    assert "You are helper." in json.dumps(child.body["system"])
    assert "You are main." not in json.dumps(child.body["system"])
    assert {tool["name"] for tool in child.body["tools"]} == {"Read", "PersistentAgent"}
    assert "Delegate." not in json.dumps(child.messages)


@pytest.mark.spec("000", "Inherited paths from parent")
@pytest.mark.spec("000", "Optional path inheritance from parent")
@pytest.mark.parametrize(
    ("given", "read"),
    [(None, "{project}/**"), ([], "/**"), (["/somewhere/**", "/a.md"], "/somewhere/** /a.md")],
    ids=["nil", "empty", "list"],
)
async def test_allowed_paths_nil_inherits_empty_is_everything_and_a_list_is_exact(
    helper: World, given: list[str] | None, read: str
) -> None:
    more = {} if given is None else {"allowed_paths": given}
    helper.server.say(answer(spawn(denied_paths=["/secret/**"], **more)), "found", "Done")
    ref = helper.session()
    await converse(helper, ref)
    (agent,) = agents_of(ref)
    found = presetfile.read(agent.branch_dir / "preset.md").front["paths"]
    assert list(found["read"]) == read.format(project=helper.project).split()
    assert list(found["write"]) == [f"{helper.project}/**"], "the preset's own"
    assert {"/secret/**", "**/.git/**", "**/runtime/**", "**/.env", "**/node_modules/**"} <= set(found["deny"])


async def test_a_headless_run_may_not_spawn_an_agent_that_reads_everything(helper: World) -> None:
    helper.server.say(answer(spawn(allowed_paths=[])), "Done")
    ref = helper.session()
    await converse(helper, ref, interactive=False)
    assert agents_of(ref) == []
    assert "needs a human" in results(helper.server.last)[0]


async def test_a_headless_run_without_a_grant_spawns_nothing(helper: World) -> None:
    helper.server.say(answer(spawn()), "Done")
    ref = helper.session()
    await converse(helper, ref, grants=(), interactive=False)
    assert agents_of(ref) == []
    assert "--allow" in results(helper.server.last)[0]


@pytest.mark.spec("000", "Agent tools validated against agent scope")
async def test_a_deny_added_to_the_parent_counts_for_its_agents_at_once(helper: World) -> None:
    secret = helper.project / "secret.txt"
    secret.write_text("hidden\n")
    ref = helper.session()
    read = tool_use("Read", file_path=str(secret))

    def deny(request: Request) -> Any:
        preset = ref.branch_dir / "preset.md"
        preset.write_text(preset.read_text().replace("  write:", '  deny: ["**/secret.txt"]\n  write:'))
        return answer(read)

    helper.server.say(answer(spawn()), answer(read), deny, "I may not.", "Done")
    await converse(helper, ref)
    first, second = results(helper.server.requests[2])[0], results(helper.server.requests[3])[0]
    assert "hidden" in first
    assert "hidden" not in second and "a session above this agent denies" in second


async def test_two_agents_of_one_second_have_two_directories(helper: World) -> None:
    helper.server.say(answer(spawn(), spawn()))
    helper.server.rule = lambda request: answer("found" if request.body["model"] == "model-helper" else "Done")
    ref = helper.session()
    await converse(helper, ref)
    wanted = f"helper-{STAMP}-find-it"
    assert [agent.session_id for agent in agents_of(ref)] == [wanted, f"{wanted}-2"]
    for agent in agents_of(ref):
        assert_closed(agent)


async def test_agents_spawn_agents_but_only_so_deep(helper: World) -> None:
    def reply(request: Request) -> Any:
        if len(request.messages) > 1:
            return answer(f"Well: {results(request)[0][:200]}")
        return answer(spawn("helper"))

    helper.server.rule = reply
    ref = helper.session()
    await converse(helper, ref)
    depth, deepest = 0, ref
    while found := agents_of(deepest):
        (deepest,) = found
        depth += 1
    assert depth == MAX_DEPTH
    assert f"nested {MAX_DEPTH} deep" in body(deepest)


@pytest.mark.spec("000", "WAIT state updates overlay")
@pytest.mark.spec("000", "TOOL state updates overlay with count")
@pytest.mark.parametrize("end", ["success", "error"])
async def test_the_parent_is_told_how_the_agent_moves_and_once_that_it_ended(helper: World, end: str) -> None:
    one, two, three = (tool_use("Read", file_path=str(helper.project / name)) for name in "abc")
    last = "found" if end == "success" else refusal(400, "invalid_request_error", "no such model")
    helper.server.say(answer(spawn()), answer(one, two), answer(three), last, "Done")
    ref = helper.session()
    watcher = await converse(helper, ref)
    told = [(event.args[0]["state"], event.args[0]["count"]) for event in watcher.of("agent", ref.key)]
    assert list(dict.fromkeys(told)) == [
        ("wait", 0),
        ("tool", 2),
        ("wait", 2),
        ("tool", 3),
        ("wait", 3),
        ("finished", 3),
    ]
    assert [state for state, _ in told].count("finished") == 1
    assert helper.kernel.feature(AgentSpawner).running(ref.key) == []


@pytest.mark.spec("000", "Network/API error cleanup")
async def test_an_agent_whose_model_refuses_is_an_error_for_the_parent(helper: World) -> None:
    helper.server.say(answer(spawn()), refusal(401, "authentication_error", "bad key"), "It failed")
    ref = helper.session()
    await converse(helper, ref)
    (result,) = results(helper.server.last)
    assert "Error: API failure" in result and "(:error (:code" in result and "bad key" in result
    (agent,) = agents_of(ref)
    assert assert_closed(agent)["reason"] == "error"
    assert assert_closed(ref)["reason"] == "done"


@pytest.mark.spec("000", "User abort handled gracefully")
async def test_an_agent_that_the_user_stops_is_an_error_and_the_parent_goes_on(helper: World) -> None:
    helper.server.say(answer(spawn()), answer(text("Hello", chunks=2), hang_after=4), "It was stopped")
    ref, watcher = helper.session(), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.granted(*GRANT))
        await watcher.until(lambda: watcher.of("agent"))
        await asyncio.to_thread(helper.server.wait_until, lambda: len(helper.server.requests) == 2)
        agent = helper.kernel.opened(watcher.of("agent")[0].args[0]["branch_dir"])
        assert agent is not None
        assert await helper.kernel.abort(agent)
        await watcher.finished(branch)
    assert "Error: User aborted agent" in results(helper.server.last)[0]
    assert assert_closed(ref)["reason"] == "done"


@pytest.mark.spec("000", "Overlay always cleaned up")
@pytest.mark.parametrize("where", ["created", "streaming", "asking"])
async def test_stopping_the_parent_stops_its_agents_and_all_below(helper: World, where: str) -> None:
    helper.preset("helper", tools="Bash")
    said = {
        "created": answer(hang_after=1),
        "streaming": answer(text("Hello", chunks=2), hang_after=4),
        "asking": answer(tool_use("Bash", command="true")),
    }[where]
    helper.server.say(answer(spawn(), spawn()), said, said)
    ref, watcher = helper.session(), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.granted(*GRANT))
        await watcher.until(lambda: len({e.args[0]["id"] for e in watcher.of("agent")}) == 2)
        if where == "asking":
            await watcher.until(lambda: len(watcher.of("ask", ref.key)) == 2)
            assert len(helper.kernel.asks.open_for(ref.key)) == 2, "shown at the root of the tree"
        elif where == "streaming":
            await asyncio.to_thread(helper.server.wait_until, lambda: len(helper.server.requests) == 3)
        assert await helper.kernel.abort(branch)
        ended = [event.args[0]["id"] for event in watcher.of("agent") if event.args[0]["state"] == "finished"]
        assert len(ended) == len(set(ended)) == 2
        await watcher.finished(branch)
    for each in [ref, *agents_of(ref)]:
        if [row for row in rows(each) if row.type == "run"]:
            assert assert_closed(each)["reason"] == "aborted"
    texts = [row["data_json"]["errorText"] for row in last_of(rows(ref), "part").values() if "tool_call_id" in row]
    assert texts == ["aborted by parent"] * 2
    for conversation in (Conversation(rows(each)) for each in agents_of(ref)):
        outcome = outcome_of(conversation, conversation.last_run, "all")
        assert outcome is None or result_of(outcome).text == "Error: aborted by parent"
    assert not helper.kernel.asks.all() and not helper.kernel.runs


async def test_a_question_of_an_agent_is_answered_at_the_root(helper: World) -> None:
    helper.preset("helper", tools="Bash")
    helper.server.say(answer(spawn()), answer(tool_use("Bash", command="echo hi")), "It says hi", "Done")
    ref, watcher = helper.session(), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.granted(*GRANT))
        await watcher.until(lambda: watcher.of("ask", ref.key))
        ask = watcher.of("ask", ref.key)[0].args[0]
        assert ask["agent"].startswith("helper-")
        helper.kernel.asks.answer(ask["id"], Answer(decision="allow"))
        await watcher.finished(branch)
    assert "hi" in results(helper.server.requests[2])[0]
    (recorded,) = last_of(rows(agents_of(ref)[0]), "ask").values()
    assert recorded["decision"] == "allow"


@pytest.mark.parametrize("fault", ["unknown backend", "parent without preset"])
async def test_what_cannot_start_leaves_no_directory(helper: World, fault: str) -> None:
    ref = helper.session()

    def break_it(request: Request) -> Any:
        if fault == "unknown backend":
            helper.preset("helper", backend="nobody")
        else:
            (ref.branch_dir / "preset.md").write_text("---\ntools: [\n---\n")
        return answer(spawn())

    helper.server.say(break_it, "It cannot be done")
    watcher = await converse(helper, ref)
    assert agents_of(ref) == []
    assert watcher.of("agent") == []
    assert "rror" in results(helper.server.last)[0]


@pytest.mark.spec("000", "Session resumable via find-file")
@pytest.mark.spec(
    "002", "Can the main agent re-prompt a finished subagent? Can parent and subagent have a multi-turn conversation?"
)
async def test_a_parent_cannot_reenter_an_agent_every_call_makes_one(helper: World) -> None:
    ref = helper.session()
    helper.server.say(answer(spawn()), "First.", "Done")
    await converse(helper, ref)
    (first,) = agents_of(ref)
    # Whatever the model invents to address the agent it had, is not an argument of the tool.
    for wish in ("session_id", "agent", "resume"):
        helper.server.say(answer(spawn(**{wish: first.session_id})), "Done")
        await converse(helper, ref, "Ask it again.")
        assert agents_of(ref) == [first] and wish in results(helper.server.last)[0]
    helper.server.say(answer(spawn()), "Second.", "Done")
    await converse(helper, ref, "Ask anew.")
    assert len(agents_of(ref)) == 2
    assert "Second." not in body(first) and len(last_of(rows(first), "run")) == 1


async def test_a_finished_agent_can_be_prompted_again(helper: World) -> None:
    helper.server.say(answer(spawn()), "found", "Done", "more")
    ref = helper.session()
    await converse(helper, ref)
    (agent,) = agents_of(ref)
    await converse(helper, agent, prompt="And else?")
    assert body(agent) == "Find it.\n\nfound\n\n### And else?\n\nmore\n\n### "
    assert [message["role"] for message in helper.server.last.messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize("included", [True, False])
async def test_tool_results_are_in_the_document_unless_the_preset_says_no(world: World, included: bool) -> None:
    (world.project / "a.txt").write_text("alpha\n")
    world.preset("main", model=f"m\ninclude-tool-results: {str(included).lower()}")
    look = answer("I look.", tool_use("Read", file_path=str(world.project / "a.txt")))
    world.server.say(look, "It is alpha.", "Yes.")
    ref = world.session()
    await converse(world, ref, prompt="What is it?")
    assert ("alpha\n" in body(ref)) == included and ("``` tool" in body(ref)) == included
    assert "alpha" in json.dumps([row.data for row in rows(ref) if row.type == "part"])
    assert_closed(ref)
    await converse(world, ref, prompt="Sure?")
    said = json.dumps(world.server.last.messages)
    assert ("tool_result" in said) == included and "I look." in said and "It is alpha." in said


@pytest.mark.parametrize("caller", ["agent", "user"])
async def test_an_agent_knows_that_an_agent_called_it_only_if_its_preset_says_so(world: World, caller: str) -> None:
    world.preset("helper", model=f"model-helper\ncaller: {caller}")
    world.server.say(answer(spawn()), "found", "Done")
    await converse(world, world.session())
    parent, child, _ = world.server.requests
    line = "Your caller is another agent; return structured output."
    assert (line in json.dumps(child.body["system"])) == (caller == "agent")
    assert line not in json.dumps(parent.body["system"])

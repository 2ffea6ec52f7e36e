"""What an agent is made from, what it does, and what it leaves: SPEC 000 seen from the daemon."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import BadRequest, PresetError
from pyagentd.features.agents import AgentSpawner
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.run import AnswerRecorder as Recorded
from pyagentd.store import paths, sessions
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from tests.runtime.delegation import (
    agent_of,
    agents_of,
    converse,
    delegate,
    ends,
    results,
    spawn,
    system_of,
    tools_of,
)
from tests.runtime.world import Watcher, World, assert_closed, attached, body, last_of, rows
from tests.server import Request, answer, text, tool_use

CONVERSATION = {"preset.md", "scope-plan.yml", "session.md", "messages.jsonl"}


@pytest.fixture
def helper(world: World) -> World:
    world.preset("helper", model="model-helper", temperature="0.25", tools="Read, PersistentAgent")
    return world


# -- invocation ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("000", "Async and confirm flags respected")
@pytest.mark.spec("000", "gptel-request executes async")
async def test_an_agent_is_confirmed_first_and_nobody_waits_for_it_but_its_parent(helper: World) -> None:
    helper.preset("helper", tools="Bash")
    helper.server.say(answer(spawn()), answer(tool_use("Bash", command="true")))
    ref, other, watcher = helper.session(), helper.session("other"), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.options)
        await watcher.until(lambda: watcher.of("ask", ref.key))
        (asked,) = watcher.of("ask", ref.key)
        assert asked.args[0]["tool"] == "PersistentAgent"
        assert agents_of(ref) == []
        helper.kernel.asks.answer(asked.args[0]["id"], Answer(decision="allow"))
        await watcher.until(lambda: len(watcher.of("ask", ref.key)) == 2)  # now the agent asks: it waits
        helper.server.say("Meanwhile")
        await converse(helper, other, "And you?")
        assert body(other).count("Meanwhile") == 1 and branch.run is not None
        helper.server.say("found", "Done")
        helper.kernel.asks.answer(watcher.of("ask", ref.key)[1].args[0]["id"], Answer(decision="deny"))
        await watcher.finished(branch)
    assert "found" in body(ref)


@pytest.mark.spec("000", "Tool registered via gptel-make-tool")
@pytest.mark.spec("000", "Tool parameters validated")
async def test_the_model_is_offered_the_tool_with_its_five_arguments(helper: World) -> None:
    delegate(helper, "found")
    await converse(helper, helper.session())
    (offered,) = [tool for tool in helper.server.requests[0].body["tools"] if tool["name"] == "PersistentAgent"]
    schema = offered["input_schema"]
    assert schema["required"] == ["preset", "description", "prompt"]
    assert {"allowed_paths", "denied_paths"} <= set(schema["properties"])
    assert schema["properties"]["preset"]["enum"] == ["helper", "main"]
    assert "helper" in offered["description"]


# -- creation ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("000", "Preset template copied to agent directory")
async def test_the_template_is_copied_whole_but_for_its_paths(helper: World) -> None:
    delegate(helper, "found")
    ref = helper.session()
    await converse(helper, ref)
    template = (helper.presets / "helper.md").read_text()
    copied = (agent_of(ref).branch_dir / "preset.md").read_text()
    assert copied.startswith(template[: template.index("paths:")])
    assert copied.endswith(template[template.index("shell_commands:") :])


@pytest.mark.spec("000", "Agent directory under parent branch")
async def test_agents_live_under_the_branch_that_spawned_them(helper: World) -> None:
    delegate(helper, answer(spawn(description="look deeper")), "deep", "found")
    main = helper.session()
    await converse(helper, main)
    (first,) = agents_of(main)
    assert first.branch_dir.parent == main.branch_dir / "agents"
    assert [below.branch_dir.parent for below in agents_of(first)] == [first.branch_dir / "agents"]
    assert not (main.session_dir / "agents").exists()


@pytest.mark.spec("000", "Agent directory created under parent branch")
async def test_the_agent_of_another_branch_is_in_that_branch(helper: World) -> None:
    helper.server.say("Hello")
    main = helper.session()
    await converse(helper, main, "Hi")
    made = await helper.service().branch(Watcher(), branch=main.key, name="aside")
    aside = paths.ref_of(Path(made["file"]))
    delegate(helper, "found")
    await converse(helper, aside)
    assert agents_of(main) == []
    assert agent_of(aside).branch_dir.parent == aside.branch_dir / "agents"


@pytest.mark.spec("000", "Agents do not branch")
async def test_an_agent_has_no_branches_and_gets_none(helper: World) -> None:
    delegate(helper, "found")
    ref = helper.session()
    await converse(helper, ref)
    agent = agent_of(ref)
    with pytest.raises(BadRequest, match="agent"):
        await helper.service().branch(Watcher(), branch=agent.key, name="aside")
    assert {entry.name for entry in agent.branch_dir.iterdir()} & {"branches", "current"} == set()
    assert {entry.name for entry in agent.branch_dir.iterdir()} >= CONVERSATION


@pytest.mark.spec("000", "Session registered in global registry")
async def test_an_agent_is_found_by_its_id(helper: World) -> None:
    delegate(helper, "found")
    ref = helper.session()
    await converse(helper, ref)
    agent = agent_of(ref)
    found = Registry(helper.kernel.config.sessions_dir).resolve(agent.session_id)
    assert found == agent
    assert (found.branch_name, found.branch_dir, found.session_dir) == ("main", agent.branch_dir, agent.branch_dir)


@pytest.mark.spec("000", "Filesystem errors logged and reported")
async def test_a_disk_that_refuses_an_agent_is_logged_and_told_to_the_parent(
    helper: World, caplog: pytest.LogCaptureFixture
) -> None:
    ref = helper.session()
    paths.agents_dir(ref.branch_dir).write_text("no directory")
    helper.server.say(answer(spawn()), "It failed")
    await converse(helper, ref)
    (result,) = results(helper.server.last)
    assert result.startswith("Error: ") and str(ref.branch_dir) in result
    assert any(
        record.levelname == "ERROR" and str(ref.branch_dir) in record.getMessage() for record in caplog.records
    )


# -- configuration -------------------------------------------------------------------------------------------------


async def test_one_whose_parent_is_stopped_while_it_is_made_is_gone(
    helper: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, made, create_agent = threading.Event(), threading.Event(), sessions.create_agent

    def slow(*args: Any, **options: Any) -> Any:
        making.set()
        time.sleep(0.2)  # until the parent was stopped
        ref = create_agent(*args, **options)
        made.set()
        return ref

    monkeypatch.setattr(sessions, "create_agent", slow)
    ref, watcher = helper.session(), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        helper.server.say(answer(spawn()), "Done.")
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.granted("tool:.*"))
        assert await asyncio.to_thread(making.wait, 30)
        await helper.kernel.abort(branch)
        assert await asyncio.to_thread(made.wait, 30)
        assert agents_of(ref) == []


@pytest.mark.spec("000", "Preset loaded from file, not memory")
async def test_an_agent_is_what_its_own_file_says_now(helper: World) -> None:
    delegate(helper, "found", call=spawn())
    ref = helper.session()
    await converse(helper, ref)
    agent = agent_of(ref)
    file = paths.preset_file(agent.branch_dir)
    file.write_text(file.read_text().replace("model-helper", "model-edited").replace("You are helper", "You are new"))
    (helper.presets / "helper.md").unlink()
    helper.server.say("again")
    await converse(helper, agent, "Again.")
    assert helper.server.last.body["model"] == "model-edited"
    assert "You are new." in system_of(helper.server.last)


@pytest.mark.spec("000", "Backend, model, system message from preset YAML")
async def test_the_settings_in_the_front_matter_are_the_ones_used(helper: World) -> None:
    helper.preset("helper", model="claude-3-7-sonnet-20250219", temperature="0.3", tools="Read")
    delegate(helper, "found")
    await converse(helper, helper.session())
    child = helper.server.requests[1]
    assert (child.body["model"], child.body["temperature"]) == ("claude-3-7-sonnet-20250219", 0.3)
    assert "You are helper." in system_of(child) and tools_of(child) == {"Read"}


@pytest.mark.spec("000", "Zero configuration inheritance")
@pytest.mark.parametrize("key", ["temperature", "max-tokens", "model", "tools", "body"])
async def test_what_the_agents_preset_leaves_out_is_not_taken_from_the_parent(helper: World, key: str) -> None:
    helper.preset("main", temperature="0.5\nmax-tokens: 777")
    (helper.presets / "helper.md").write_text("---\ndescription: h\nbackend: anthropic\nmodel: model-helper\n---\n")
    delegate(helper, "found")
    await converse(helper, helper.session())
    parent, child, _ = helper.server.requests
    leaked = {
        "temperature": "temperature" in child.body,
        "max-tokens": child.body["max_tokens"] == parent.body["max_tokens"],
        "model": child.body["model"] != "model-helper",
        "tools": bool(tools_of(child)),
        "body": "You are main" in system_of(child),
    }
    assert parent.body["max_tokens"] == 777 and not leaked[key]


@pytest.mark.spec("000", "gptel-with-preset isolation")
async def test_what_overrides_the_parents_preset_does_not_reach_the_agent(helper: World) -> None:
    ref = helper.session()
    file = paths.session_file(ref.branch_dir)
    file.write_text("### \n\n<!-- Local Variables: -->\n<!-- gptel-model: model-mine -->\n<!-- End: -->\n")
    delegate(helper, "found")
    await converse(helper, ref)
    before, child, after = helper.server.requests
    assert (before.body["model"], after.body["model"]) == ("model-mine", "model-mine")
    assert child.body["model"] == "model-helper"
    assert before.body["tools"] == after.body["tools"]


@pytest.mark.spec("000", "gptel-with-preset creates clean scope")
async def test_two_agents_at_once_keep_to_their_own_presets(helper: World) -> None:
    helper.preset("other", model="model-other", temperature="0.75", tools="Glob")
    helper.server.say(answer(spawn(), spawn("other", "look")))
    helper.server.rule = lambda request: answer("Done" if request.body["model"] == "model-main" else "found")
    await converse(helper, helper.session())
    used = {
        (request.body["model"], request.body["temperature"], frozenset(tools_of(request)))
        for request in helper.server.requests[1:3]
    }
    assert used == {
        ("model-helper", 0.25, frozenset({"Read", "PersistentAgent"})),
        ("model-other", 0.75, frozenset({"Glob"})),
    }


@pytest.mark.spec("000", "Tools captured in agent buffer context")
async def test_tools_that_the_parent_gets_meanwhile_are_not_the_agents(helper: World) -> None:
    ref = helper.session()

    def change(request: Request) -> Any:
        file = paths.preset_file(ref.branch_dir)
        file.write_text(file.read_text().replace("tools: [Read,", "tools: [Edit, Read,"))
        return answer(tool_use("Read", file_path=str(helper.project / "a")))

    delegate(helper, change, "found")
    await converse(helper, ref)
    assert [tools_of(request) for request in helper.server.requests[1:3]] == [{"Read", "PersistentAgent"}] * 2
    helper.server.say("Now")
    await converse(helper, ref, "And you?")
    assert "Edit" in tools_of(helper.server.last)


@pytest.mark.spec("000", "Missing preset.md reports clear error")
@pytest.mark.parametrize("fault", ["missing", "malformed"])
async def test_an_agent_without_a_preset_does_not_fall_back_to_another(helper: World, fault: str) -> None:
    delegate(helper, "found")
    ref = helper.session()
    await converse(helper, ref)
    agent = agent_of(ref)
    file = paths.preset_file(agent.branch_dir)
    file.unlink() if fault == "missing" else file.write_text("---\ntools: [\n---\n")
    async with helper.kernel.using(agent) as branch:
        with pytest.raises(PresetError, match=f"Failed to load preset from {agent.branch_dir}"):
            await helper.kernel.prompt(branch, text="Again.", options=helper.options)
    assert len(helper.server.requests) == 3


# -- execution -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("000", "Prompt inserted to buffer before request")
@pytest.mark.spec("000", "Prompt inserted to buffer, request reads from buffer")
async def test_the_prompt_is_in_the_document_before_the_model_sees_it(helper: World) -> None:
    ref = helper.session()
    found: list[str] = []

    def look(request: Request) -> Any:
        found.append(body(agent_of(ref)))
        return answer("found")

    delegate(helper, look)
    await converse(helper, ref)
    assert found[0].rstrip("\n") == "Find it."
    assert body(agent_of(ref)).startswith("Find it.\n\nfound")
    (message,) = helper.server.requests[1].messages
    assert message["role"] == "user" and "Find it." in str(message["content"])


@pytest.mark.spec("000", "gptel-request initiated with context")
async def test_the_answer_goes_to_the_end_of_its_document_and_its_progress_to_the_parent(helper: World) -> None:
    delegate(helper, "found")
    ref = helper.session()
    watcher = await converse(helper, ref)
    agent = agent_of(ref)
    assert body(agent) == "Find it.\n\nfound\n\n### "
    assert "found" not in body(ref).partition("``` tool")[0]
    told = [event.args[0] for event in watcher.of("agent", ref.key)]
    assert {(each["id"], each["branch_dir"]) for each in told} == {(agent.session_id, agent.key)}
    assert {(each["preset"], each["description"]) for each in told} == {("helper", "find it")}


@pytest.mark.spec("000", "String responses dual-duty behavior")
async def test_every_piece_of_text_is_shown_and_given_back(helper: World) -> None:
    delegate(helper, answer(text("one two three four", chunks=6)))
    ref = helper.session()
    await converse(helper, ref)
    agent = agent_of(ref)
    assert "one two three four" in body(agent)
    assert results(helper.server.last) == ["one two three four"]
    texts = [part["data_json"]["text"] for part in last_of(rows(agent), "part").values() if part["type"] == "text"]
    assert texts == ["Find it.", "one two three four"]


@pytest.mark.spec("000", "Completion deletes overlay and invokes callback")
@pytest.mark.parametrize(("wanted", "given"), [("all", "I look.\n\nIt is so."), ("last", "It is so.")])
async def test_the_overlay_goes_before_the_parent_has_the_result_which_a_preset_may_shorten(
    helper: World, wanted: str, given: str
) -> None:
    helper.preset("helper", temperature=f"0.1\nresult: {wanted}", tools="Read")
    shown: list[list[dict[str, Any]]] = []
    ref = helper.session()

    def look(request: Request) -> Any:
        shown.append(helper.kernel.feature(AgentSpawner).running(ref.key))
        return answer("Done")

    read = tool_use("Read", file_path=str(helper.project / "a"))
    helper.server.say(answer(spawn()), answer("I look.", read), "It is so.", look)
    watcher = await converse(helper, ref)
    assert results(helper.server.last) == [given]
    assert shown == [[]]
    assert [event.args[0]["state"] for event in watcher.of("agent", ref.key)].count("finished") == 1


@pytest.mark.spec("000", "Auto-save triggers after each response")
@pytest.mark.spec("000", "Auto-save triggers on response")
async def test_what_an_agent_said_is_on_disk_while_it_goes_on(helper: World) -> None:
    read = tool_use("Read", file_path=str(helper.project / "a"))
    helper.server.say(answer(spawn()), answer("I look.", read), answer(text("more", chunks=2), hang_after=3))
    ref = helper.session()
    async with stopped_in_the_middle(helper, ref) as agent:
        assert "I look." in body(agent)
        assert any(row.type == "part" and "I look." in str(row.data["data_json"]) for row in rows(agent))


@pytest.mark.spec("000", "Every API response triggers buffer save")
@pytest.mark.spec("000", "gptel-post-response-functions hook used")
async def test_a_call_and_its_result_are_on_disk_while_the_agent_goes_on(helper: World) -> None:
    (helper.project / "a").write_text("alpha\n")
    read = tool_use("Read", file_path=str(helper.project / "a"))
    helper.server.say(answer(spawn()), answer("I look.", read), answer(text("more", chunks=2), hang_after=3))
    ref = helper.session()
    async with stopped_in_the_middle(helper, ref) as agent:
        assert "``` tool (Read" in body(agent) and "alpha" in body(agent)


class stopped_in_the_middle:
    """An agent whose model is silent in its second answer, when its document has the first."""

    def __init__(self, world: World, ref: BranchRef) -> None:
        self.world, self.ref = world, ref

    async def __aenter__(self) -> BranchRef:
        self.watcher = watcher = Watcher()
        self.using = self.world.kernel.using(self.ref)
        self.branch = await self.using.__aenter__()
        await attached(self.branch, watcher)
        options = self.world.granted("tool:PersistentAgent:.*")
        await self.world.kernel.prompt(self.branch, text="Delegate.", options=options)
        await watcher.until(lambda: watcher.of("agent"))
        agent = self.world.kernel.opened(watcher.of("agent")[0].args[0]["branch_dir"])
        assert agent is not None
        await attached(agent, watcher)
        await watcher.until(lambda: "I look." in body(agent.ref))
        return agent.ref

    async def __aexit__(self, *exc: object) -> None:
        await self.world.kernel.abort(self.branch)
        await self.using.__aexit__(None, None, None)


@pytest.mark.spec("000", "scope-plan.yml updated timestamp is NOT managed by auto-save")
async def test_nothing_an_agent_says_changes_its_metadata(helper: World) -> None:
    delegate(helper, "found")
    ref = helper.session()
    await converse(helper, ref)
    agent = agent_of(ref)
    file = paths.scope_plan_file(agent.branch_dir)
    file.write_text(file.read_text().replace('updated: "2026', 'updated: "2025'))
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    helper.server.say("again")
    await converse(helper, agent, "Again.")
    assert "again" in body(agent)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


@pytest.mark.spec("000", "Tool results included in conversation")
@pytest.mark.spec("000", "Tool results included")
async def test_calls_and_results_are_in_the_document_whatever_the_preset_says(helper: World) -> None:
    (helper.project / "a").write_text("alpha\n")
    helper.preset("helper", temperature="0.1\ninclude-tool-results: false", tools="Read")
    delegate(helper, answer(tool_use("Read", file_path=str(helper.project / "a"))), "It is so.")
    ref = helper.session()
    await converse(helper, ref)
    shown = body(agent_of(ref))
    assert '(:name "Read"' in shown and "alpha" in shown
    assert_closed(agent_of(ref))


@pytest.mark.spec("000", "gptel-include-tool-results preserves tools")
async def test_an_agent_that_is_prompted_after_a_restart_knows_its_calls_and_results(helper: World) -> None:
    (helper.project / "a").write_text("alpha\n")
    delegate(helper, answer(tool_use("Read", id="toolu_kept", file_path=str(helper.project / "a"))), "It is so.")
    ref = helper.session()
    await converse(helper, ref)
    await helper.kernel.shutdown()
    helper.start()
    helper.server.say("again")
    await converse(helper, agent_of(ref), "Again.")
    told = helper.server.last.messages
    assert [message["role"] for message in told] == ["user", "assistant", "user", "assistant", "user"]
    assert told[1]["content"][-1]["id"] == told[2]["content"][0]["tool_use_id"] == "toolu_kept"
    assert "alpha" in str(told[2]["content"])


@pytest.mark.spec("000", "Exception handling in callback")
async def test_an_exception_where_answers_are_recorded_is_logged_and_told_to_the_parent(
    helper: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Recorded.take

    def broken(self: Recorded, item: Any) -> None:
        if "model-helper" in str(self.model):
            raise RuntimeError("no such luck")
        whole(self, item)

    monkeypatch.setattr(Recorded, "take", broken)
    delegate(helper, "found")
    ref = helper.session()
    with caplog.at_level(logging.ERROR):
        watcher = await converse(helper, ref)
    assert results(helper.server.last) == [
        'Error: Agent failed\n(:error (:code "internal" :message "RuntimeError: no such luck"))'
    ]
    assert [event.args[0]["state"] for event in watcher.of("agent", ref.key)].count("finished") == 1
    assert any(record.exc_info for record in caplog.records)
    assert ends(watcher, ref)[0]["reason"] == "done"

"""Plan and build: who answers a turn, what that changes, and that nothing leads out of plan mode but the user."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api.conversations import APPROVED
from pyagentd.errors import BadRequest, PresetError
from pyagentd.features.agents import AgentSpawner
from pyagentd.policy.presets import Commands, Paths, Preset
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.presets import names_for_turn, next_turn, preset_of_turn, turn_presets
from pyagentd.runtime.queue import Submission
from pyagentd.store import paths, sessions
from pyagentd.store.paths import BranchRef
from tests.runtime.test_resume import awake, ended
from tests.runtime.test_resume import say as answered
from tests.runtime.world import FixedClock, Watcher, World, attached, last_of, rows
from tests.server import answer, tool_use

PLAN_MODE = pytest.mark.spec("002", 'How do I design a "plan mode"?')
APPROVING = pytest.mark.spec(
    "002", 'When a user clicks "approve and auto mode" on a plan, does that fire a trigger or a user message?'
)
BUILD = "tools: [Read, Write, Bash, PersistentAgent, request_scope_expansion]\nprofile: open"


PROFILE = "profile: {allow: ['tool:view:.*'], ask: ['tool:.*']}"


@pytest.fixture
def planning(world: World) -> World:
    """A world with the agents plan and build, and one that does everything without being asked."""
    write(
        world,
        "plan",
        "tools: [Read, Write, Bash, PersistentAgent, request_scope_expansion]\nprofile: open",
        "planner",
    )
    write(world, "build", BUILD, "builder")
    write(world, "worker", BUILD, "worker", mode="all")
    write(world, "below", BUILD, "below", mode="subagent")
    return world


def write(world: World, name: str, more: str, model: str, mode: str = "primary") -> None:
    """Write a template that may read and write everywhere."""
    front = f"backend: anthropic\nmodel: model-{model}\nmode: {mode}\n{more}\npaths:\n  write: ['/**']"
    (world.presets / f"{name}.md").write_text(f"---\n{front}\n---\nYou {name}.\n")


async def say(world: World, ref: BranchRef, text: str, agent: str = "", **options: Any) -> None:
    """Send one message and wait for the end of its run."""
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        sent = {"agent": agent} if agent else {}
        wishes = replace(world.options, **options)
        await world.kernel.submit(branch, Submission(text=text, options=wishes, metadata=sent))
        told = await watcher.finished(branch)
        branch.detach(watcher)
    assert told["reason"] == "done", told


def call(name: str, /, **args: Any) -> Any:
    return answer(tool_use(name, **args))


def model(request: Any) -> str:
    return str(request.body["model"])


def assistants(ref: BranchRef) -> list[dict[str, Any]]:
    return [row["metadata_json"] for row in last_of(rows(ref), "message").values() if row["role"] == "assistant"]


def results(world: World) -> str:
    return str(world.server.last.messages[-1]["content"])


@PLAN_MODE
async def test_a_message_names_who_answers_it_and_what_follows(planning: World) -> None:
    planning.server.say("one", "two", "three", "four")
    ref = planning.session()
    await say(planning, ref, "Plan.", "plan")
    assert model(planning.server.last) == "model-planner"
    assert "You plan." in str(planning.server.last.body["system"])
    await say(planning, ref, "Go on.")
    assert model(planning.server.last) == "model-planner", "carried forward"
    await say(planning, ref, "Do it.", "build")
    assert model(planning.server.last) == "model-builder"
    planning.start()
    await say(planning, ref, "And on.")
    assert model(planning.server.last) == "model-builder", "after a restart too"
    assert [each.get("agent") for each in assistants(ref)] == ["plan", "plan", "build", "build"]
    assert len({each["system_prompt_digest"] for each in assistants(ref)}) == 2


async def test_the_session_keeps_the_agent_it_was_opened_with(planning: World) -> None:
    planning.server.say("one", "two", "three")
    service, client = planning.service(), Watcher()
    made = await service.create_session(client, name="x", preset="build", root=str(planning.project))
    ref = paths.ref_of(Path(made["branch_dir"]))
    await say(planning, ref, "Plan.", "plan")
    async with planning.kernel.using(ref) as branch:
        assert next_turn(planning.kernel.presets, ref, branch.conversation) == {
            "agent": "plan",
            "opened_with": "build",
            "plan": True,
        }
        assert branch.status["agent"] == "plan"
        assert branch.conversation.session["agent"] == "build"
    await say(planning, ref, "Do it.", "build")
    await say(planning, ref, "More.")
    assert [each.get("agent") for each in assistants(ref)] == ["plan", None, None]


async def test_an_agent_that_is_not_there_is_an_error_that_names_those_there_are(planning: World) -> None:
    ref = planning.session()
    async with planning.kernel.using(ref) as branch:
        for name in ("nobody", "below"):
            with pytest.raises(BadRequest) as error:
                given = Submission(text="x", options=planning.options, metadata={"agent": name})
                await planning.kernel.submit(branch, given)
            assert "build, main, plan, worker" in str(error.value)
        assert not branch.conversation.messages and not branch.conversation.runs


async def test_a_rewound_message_names_nobody_any_more(planning: World) -> None:
    planning.server.say("one", "two")
    ref = planning.session()
    await say(planning, ref, "Hello.")
    await say(planning, ref, "Plan.", "plan")
    async with planning.kernel.using(ref) as branch:
        plan = next(each for each in branch.conversation.messages.values() if each.row["metadata_json"].get("agent"))
        assert names_for_turn(branch.conversation).agent == "plan"
        now = branch.recorder.now_ms()
        hidden = {**plan.row["metadata_json"], "hidden_at": now, "hidden_by": "rewind"}
        branch.recorder.record("message", {**plan.row, "metadata_json": hidden})
        assert names_for_turn(branch.conversation).agent == ""


async def test_a_model_is_carried_forward_until_another_model_or_agent_is_named(planning: World) -> None:
    planning.server.say("one", "two", "three")
    ref = planning.session()
    async with planning.kernel.using(ref):
        pass
    watcher = Watcher()
    for metadata, expected in (
        ({"model": {"provider_id": None, "model_id": "model-x"}}, "model-x"),
        ({}, "model-x"),
        ({"agent": "plan"}, "model-planner"),
    ):
        async with planning.kernel.using(ref) as branch:
            await attached(branch, watcher)
            await planning.kernel.submit(branch, Submission(text="x", options=planning.options, metadata=metadata))
            await watcher.finished(branch)
            branch.detach(watcher)
        assert model(planning.server.last) == expected


# -- nothing changes in plan mode ---------------------------------------------------------------------------------


CHANGES = [
    ("Write", {"file_path": "{root}/made", "content": "x"}),
    ("Edit", {"file_path": "{root}/there", "old_string": "a", "new_string": "b"}),
    ("Bash", {"command": "touch {root}/made"}),
    ("Bash", {"command": "ls"}),
]


@PLAN_MODE
@pytest.mark.parametrize(("tool", "args"), CHANGES, ids=str)
async def test_plan_mode_changes_nothing_whatever_is_allowed(
    planning: World, tool: str, args: dict[str, str]
) -> None:
    (planning.project / "there").write_text("a")
    given = {key: value.replace("{root}", str(planning.project)) for key, value in args.items()}
    planning.server.say(call(tool, **given), "no")
    ref = planning.session()
    await say(planning, ref, "Plan.", "plan", grants=planning.granted(".*").grants)
    offered = {each["name"] for each in planning.server.last.body["tools"]}
    assert offered == {"Read", "PersistentAgent", "request_scope_expansion"}
    assert "is_error': True" in results(planning)
    assert sorted(each.name for each in planning.project.iterdir()) == ["there"]
    assert (planning.project / "there").read_text() == "a"


@PLAN_MODE
@pytest.mark.parametrize("background", [False, True])
async def test_the_agents_of_a_plan_change_nothing_either(planning: World, background: bool) -> None:
    made = planning.project / "made"
    spawn = call("PersistentAgent", preset="worker", description="d", prompt="p", background=background)
    deeper = call("PersistentAgent", preset="worker", description="d", prompt="q")
    write_it = call("Write", file_path=str(made), content="x")
    shown: list[str] = []

    def rule(request: Any) -> Any:
        last = str(request.messages[-1]["content"])
        if model(request) == "model-planner":
            return answer("Noted.") if "tool_result" in last or "Background agent" in last else spawn
        shown.append(last)
        if "tool_result" in last:
            return answer("Done.")
        return deeper if "'p'" in last or last == "p" else write_it

    planning.server.rule = rule
    ref = planning.session()
    watcher = Watcher()
    async with planning.kernel.using(ref) as branch:
        await attached(branch, watcher)
        options = planning.granted(".*")
        await planning.kernel.submit(branch, Submission(text="Plan.", options=options, metadata={"agent": "plan"}))
        await watcher.until(lambda: any(e.args[0]["phase"] == "finished" for e in watcher.of("run", ref.key)))
        await watcher.until(
            lambda: not planning.kernel.feature(AgentSpawner).background.has(branch) and branch.run is None
        )
        branch.detach(watcher)
    assert not made.exists()
    assert any("a session above this agent is in plan mode" in each or "no tool" in each for each in shown), shown


@PLAN_MODE
async def test_a_session_opened_to_plan_stays_so_without_the_word_in_its_preset(planning: World) -> None:
    made = planning.project / "made"
    service, client = planning.service(), Watcher()
    session = await service.create_session(client, name="x", preset="plan", root=str(planning.project))
    ref = paths.ref_of(Path(session["branch_dir"]))
    assert "read-only" not in (ref.branch_dir / "preset.md").read_text()
    planning.server.say(call("Write", file_path=str(made), content="x"), "no")
    await say(planning, ref, "Plan.", grants=planning.granted(".*").grants)
    assert not made.exists()
    planning.server.say(call("Write", file_path=str(made), content="x"), "yes")
    await say(planning, ref, "Do it.", "build", grants=planning.granted(".*").grants)
    assert made.read_text() == "x"


# -- approving ----------------------------------------------------------------------------------------------------


@APPROVING
async def test_approving_a_plan_is_a_message_of_the_users_that_build_answers(planning: World) -> None:
    planning.server.say("The plan.", "Done.")
    ref = planning.session()
    service, client = planning.service(), Watcher()
    with pytest.raises(BadRequest, match="not in plan mode"):
        await service.approve(client, branch=ref.key)
    await say(planning, ref, "Plan.", "plan")
    async with planning.kernel.using(ref) as branch:
        await attached(branch, client)
        sent = await service.approve(client, branch=ref.key, env=planning.options.env)
        await client.finished(branch)
        branch.detach(client)
    message = last_of(rows(ref), "message")[sent["message"]]
    assert message["role"] == "user" and message["metadata_json"]["agent"] == "build"
    assert "trigger" not in message["metadata_json"]
    assert planning.server.last.messages[-1]["content"][-1]["text"] == APPROVED
    assert model(planning.server.last) == "model-builder"
    with pytest.raises(BadRequest, match="not in plan mode"):
        await service.approve(client, branch=ref.key)


async def test_who_may_answer_next_is_told(planning: World) -> None:
    ref = planning.session()
    told = await planning.service().agents_available(Watcher(), branch=ref.key)
    assert [(each["name"], each["read_only"]) for each in told["agents"]] == [
        ("build", False),
        ("main", False),
        ("plan", True),
        ("worker", False),
    ]
    assert told["plan"] is False


# -- what is laid over what ---------------------------------------------------------------------------------------

OWN = Preset(
    name="own",
    backend="b",
    model="m",
    paths=Paths(read=("/r",), write=("/w",), deny=("/d",)),
    shell=Commands(allow=("git",), deny=("rm",), network=True, confine=False),
)
AGENT = Preset(
    name="agent",
    backend="b",
    model="n",
    tools=("Read",),
    body="You.",
    temperature=0.2,
    max_turns=3,
    profile="locked",
    paths=Paths(read=("/**",), write=("/**",), deny=("/e",)),
    shell=Commands(allow=("*",), deny=("sudo",), network=True, confine=True),
)


def test_an_agent_says_what_and_the_session_where() -> None:
    held = preset_of_turn(OWN, AGENT)
    assert held.paths == Paths(read=("/r",), write=("/w",), deny=("/d", "/e"))
    assert held.shell == Commands(allow=("git",), deny=("rm", "sudo"), network=True, confine=True)
    assert (held.model, held.tools, held.body, held.temperature, held.max_turns, held.profile) == (
        "n",
        ("Read",),
        "You.",
        0.2,
        3,
        "locked",
    )


def test_a_session_that_was_opened_to_look_gets_the_commands_of_who_works() -> None:
    looking = replace(OWN, read_only=True, shell=Commands())
    held = preset_of_turn(looking, AGENT)
    assert held.shell == Commands(allow=("*",), deny=("sudo",), network=False, confine=True)
    assert not held.read_only


def test_a_shipped_preset_does_not_take_a_session_away_from_its_backend() -> None:
    local = replace(OWN, backend="local", model="qwen")
    assert preset_of_turn(local, AGENT, shipped=True).model == "qwen"
    assert preset_of_turn(local, AGENT).model == "n"
    assert preset_of_turn(OWN, AGENT, shipped=True).model == "n"


async def test_an_agent_that_is_gone_is_no_way_out_of_plan_mode(planning: World) -> None:
    planning.server.say("one")
    ref = planning.session()
    await say(planning, ref, "Plan.", "plan")
    (planning.presets / "plan.md").unlink()
    async with planning.kernel.using(ref) as branch:
        with pytest.raises((BadRequest, PresetError), match="no agent 'plan'"):
            await planning.kernel.submit(branch, Submission(text="x", options=planning.options))


@APPROVING
async def test_an_agent_of_a_message_that_waits_answers_when_it_fires(planning: World) -> None:
    wait = answer("Looking.", tool_use("Bash", command="true"))
    planning.server.say(wait, "First.", "The plan.", "Done.")
    ref, watcher = planning.session(), Watcher()
    service = planning.service()
    async with planning.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await planning.kernel.submit(branch, Submission(text="One", options=planning.options))
        await watcher.until(lambda: planning.kernel.asks.all())
        plan = Submission(text="Plan.", options=planning.options, metadata={"agent": "plan"})
        assert (await planning.kernel.submit(branch, plan)).queued
        unknown = Submission(text="x", options=planning.options, metadata={"agent": "nobody"})
        with pytest.raises(BadRequest, match="no agent 'nobody'"):
            await planning.kernel.submit(branch, unknown)
        assert names_for_turn(branch.conversation).agent == "", "what waits names nobody yet"
        planning.kernel.asks.answer(str(planning.kernel.asks.all()[0]["id"]), Answer(decision="allow"))
        await watcher.until(lambda: len([e for e in watcher.of("run") if e.args[0]["phase"] == "finished"]) == 2)
        await service.approve(watcher, branch=ref.key, env=planning.options.env)
        await watcher.until(lambda: len([e for e in watcher.of("run") if e.args[0]["phase"] == "finished"]) == 3)
        branch.detach(watcher)
    models = [model(request) for request in planning.server.requests]
    assert models == ["model-main", "model-main", "model-planner", "model-builder"]


@PLAN_MODE
async def test_a_run_that_goes_on_after_a_restart_is_still_in_plan_mode(planning: World) -> None:
    made, watcher = planning.project / "made", Watcher()
    write(planning, "plan", f"{PROFILE}\ntools: [Read, Write, PersistentAgent]", "planner")
    planning.server.say(
        answer(tool_use("PersistentAgent", preset="worker", description="d", prompt="p")),
        answer(tool_use("Write", file_path=str(made), content="x")),
        "Done.",
    )
    ref = planning.session()
    async with planning.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await planning.kernel.submit(
            branch, Submission(text="Plan.", options=planning.options, metadata={"agent": "plan"})
        )
        await watcher.until(lambda: planning.kernel.asks.all())
        branch.detach(watcher)
    await planning.kernel.shutdown()
    kernel = planning.start()
    (asked,) = await awake(planning, ref, 1)
    async with kernel.using(ref) as branch:
        assert branch.status["agent"] == "plan"
    await answered(planning, asked)
    await ended(planning)
    (agent,) = [paths.agent_ref(each) for each in (ref.branch_dir / "agents").iterdir()]
    assert "output-error" in (agent.branch_dir / "messages.jsonl").read_text()
    assert not made.exists()


async def test_a_log_from_elsewhere_that_names_an_agent_spares_no_question(planning: World) -> None:
    planning.kernel.config.sessions_dir.mkdir(exist_ok=True)
    place, text = planning.project / "evil", (planning.presets / "main.md").read_text()
    made = sessions.create_session(
        place.parent, "evil", preset_name="main", preset_text=text, clock=FixedClock(), session_dir=place
    )
    async with planning.kernel.using(made) as branch:
        assert planning.kernel.origins.foreign(made)
        held = turn_presets(planning.kernel.presets, made, (), branch.conversation, "build").of_branch(made)
        assert held.profile is None and held.shell.confine and not held.shell.network
        plan = turn_presets(planning.kernel.presets, made, (), branch.conversation, "plan").of_branch(made)
        assert plan.read_only
    own = planning.session()
    async with planning.kernel.using(own) as branch:
        held = turn_presets(planning.kernel.presets, own, (), branch.conversation, "build").of_branch(own)
        assert held.profile is not None


async def test_asked_what_is_allowed_plan_mode_says_what_it_refuses(planning: World) -> None:
    planning.server.say("one")
    ref, service, client = planning.session(), planning.service(), Watcher()
    wanted = {"branch": ref.key, "kind": "write", "resource": str(planning.project / "a")}
    assert (await service.scope_check(client, **wanted))["decision"] == "ask"
    await say(planning, ref, "Plan.", "plan")
    assert "in plan mode" in (await service.scope_check(client, **wanted))["reason"]

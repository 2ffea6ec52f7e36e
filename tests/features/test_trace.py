"""The trace: the request of every step can be had again, exactly as the model's server received it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.errors import NotFound
from pyagentd.store import trace as traced
from pyagentd.store.paths import BranchRef
from tests.runtime.world import OVERLOADED, Watcher, World, attached, rows
from tests.server import answer, refusal, tool_use
from tests.server.answers import Scripted
from tests.server.http import Request


async def talk(world: World, ref: BranchRef, *said: str) -> None:
    async with world.kernel.using(ref) as branch:
        for text in said:
            watcher = Watcher()
            await attached(branch, watcher)
            await world.kernel.prompt(branch, text=text, options=world.options)
            await watcher.finished(branch)
            branch.detach(watcher)


def dumps(value: object) -> str:
    """The order of keys counts: prompt caches go by bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sent(world: World) -> list[str]:
    return [dumps(request.body) for request in world.server.requests]


def kept(*refs: BranchRef) -> list[str]:
    return [traced.as_json(step.body) for ref in refs for step in traced.read_trace(ref.branch_dir)]


async def test_every_step_is_kept_as_it_was_sent(world: World) -> None:
    (world.project / "a.txt").write_text("alpha\n")
    world.server.say(
        answer("I look.", tool_use("Read", id="toolu_1", file_path="a.txt")), "Alpha.", "Welcome.", "Bye."
    )
    ref = world.session()
    await talk(world, ref, "What does it say?", "Thanks.")
    await talk(world, ref, "Bye.")  # opened anew
    assert kept(ref) == sent(world)
    steps = traced.read_trace(ref.branch_dir)
    assert [step.same for step in steps] == [0, 1, 3, 5], "a step keeps only what is new in it"
    assert [step.step for step in steps] == [1, 2, 1, 1]
    assert all(step.answer["stop_reason"] in ("end_turn", "tool_use") for step in steps)
    assert all(step.answer["usage"]["output"] for step in steps)


async def test_retries_and_what_a_model_refuses_are_told_and_the_last_form_is_kept(world: World) -> None:
    no_temperature = refusal(400, "invalid_request_error", "temperature is deprecated for this model")
    world.server.say(OVERLOADED, no_temperature, "Hello.")
    ref = world.session()
    await talk(world, ref, "Hi.")
    (step,) = traced.read_trace(ref.branch_dir)
    assert kept(ref) == sent(world)[-1:]
    assert "temperature" not in step.body
    assert step.answer["attempts"] == 3
    assert [retry["attempt"] for retry in step.answer["retries"]] == [1]


async def test_a_refusal_is_told_and_no_key_ever_gets_there(world: World) -> None:
    world.server.say(refusal(401, "authentication_error", "invalid x-api-key: test-key"))
    ref = world.session()
    await talk(world, ref, "Hi.")
    (step,) = traced.read_trace(ref.branch_dir)
    assert step.answer["error"]["code"] == "provider-error"
    content = (ref.branch_dir / "requests.jsonl").read_text()
    assert "test-key" not in content and "authorization" not in content.lower()


async def test_the_requests_of_agents_are_kept_with_them(world: World) -> None:
    world.preset("helper", tools="Read")

    def rule(request: Request) -> Scripted:
        if "You are helper" in dumps(request.body["system"]):
            return answer("Found it.")
        if len(request.messages) > 1:
            return answer("Done.")
        return answer(
            tool_use("PersistentAgent", id="toolu_1", preset="helper", description="find", prompt="Find it.")
        )

    world.server.rule = rule
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Go.", options=world.granted("tool:PersistentAgent:.*"))
        await watcher.finished(branch)
    (agent,) = (ref.branch_dir / "agents").iterdir()
    steps = [*traced.read_trace(ref.branch_dir), *traced.read_trace(agent)]
    steps.sort(key=lambda step: step.body["system"][0]["text"].startswith("You are helper"))
    got = [traced.as_json(step.body) for step in steps]
    assert sorted(got) == sorted(sent(world))


async def test_a_torn_line_costs_one_request_and_what_follows_is_whole(world: World) -> None:
    world.server.say("One.", "Two.", "Three.")
    ref = world.session()
    await talk(world, ref, "1")
    file = ref.branch_dir / "requests.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])  # the daemon was killed while it wrote how the answer ended
    with file.open("a") as written:  # and somebody else wrote there
        written.write('\n{"type":"request"}\n{"type":"answer"}\n')
    await talk(world, ref, "2", "3")
    assert kept(ref) == sent(world)
    assert [step.same for step in traced.read_trace(ref.branch_dir)] == [0, 0, 3]
    assert traced.read_trace(ref.branch_dir)[0].answer == {}


async def test_an_edited_beginning_is_kept_as_it_was_sent_then(world: World) -> None:
    world.server.say("One.", "Two.")
    ref = world.session()
    await talk(world, ref, "first")
    file = ref.branch_dir / "session.md"
    file.write_text(file.read_text().replace("first", "other"))
    await talk(world, ref, "second")
    assert kept(ref) == sent(world)
    assert "other" in kept(ref)[1] and "first" in kept(ref)[0]


async def test_the_trace_stays_bounded_and_goes_on_with_a_whole_request(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr("pyagentd.store.trace.LARGEST", 500)
    world.server.say("One.", "Two.", "Three.")
    ref = world.session()
    await talk(world, ref, "1", "2", "3")
    assert kept(ref) == sent(world)[1:], "two files are kept"
    assert all(step.same == 0 for step in traced.read_trace(ref.branch_dir))


async def test_compaction_and_rewind_change_nothing_about_that(world: World) -> None:
    ref = world.session()
    world.server.say("One.", "Two.", "## Goal\n\nTo be short.", "Three.", "Four.")
    await talk(world, ref, "1", "2")
    service, client = world.service(), Watcher()
    await service.compact(client, branch=ref.key, wait=True, env=dict(world.options.env))
    await talk(world, ref, "3")
    first = next(row.data["id"] for row in rows(ref) if row.type == "message" and row.data["role"] == "user")
    await service.rewind(client, branch=ref.key, message=first)
    await talk(world, ref, "4")
    assert kept(ref) == sent(world)
    steps = traced.read_trace(ref.branch_dir)
    assert [step.purpose for step in steps] == ["step", "step", "compaction", "step", "step"]
    report = await inspected(world, ref)
    assert [len(run["steps"]) for run in report["runs"]] == [1, 1, 1, 1, 1]
    assert report["runs"][-3]["hidden"] or any(run.get("hidden") for run in report["runs"])


# -- the inspector ---------------------------------------------------------------------------------------------


async def inspected(world: World, ref: BranchRef) -> dict[str, Any]:
    answer = await world.service().trace(Watcher(), branch=ref.key)
    report: dict[str, Any] = json.loads(answer["json"])
    return report


@pytest.mark.spec("B.10", "inspector: timeline, tokens, cost, system prompt, model, tool catalog, permission state")
async def test_the_inspector_tells_what_happened_and_why(world: World) -> None:
    (world.project / "a.txt").write_text("alpha\n")
    world.server.say(
        OVERLOADED,
        answer(
            "I look.",
            tool_use("Read", id="toolu_1", file_path=str(world.project / "a.txt")),
            tool_use("Read", id="toolu_2"),
        ),
        "Alpha.",
    )
    ref = world.session()
    await talk(world, ref, "What does it say?")
    report = await inspected(world, ref)
    (run,) = report["runs"]
    assert run["prompt"] == "What does it say?" and run["reason"] == "done"
    first, second = run["steps"]
    assert [step["number"] for step in run["steps"]] == [1, 2]
    assert first["model"] == "model-main" and first["parameters"]["temperature"] == 0.5
    assert len(first["retries"]) == 1 and first["attempts"] == 2
    assert [(call["name"], call["state"]) for call in first["calls"]] == [
        ("Read", "output-available"),
        ("Read", "output-error"),
    ]
    assert set(first["usage"]) == {"input", "output", "reasoning", "cache_read", "cache_write"}
    assert first["cost_usd"] is None, "nobody knows the price of this model"
    assert (second["messages"], second["new_messages"]) == (3, 2)
    assert {(d["tool"], d["decision"]) for d in run["decisions"]} >= {("Read", "allow")}
    assert "You are main." in report["system"]
    assert "Read" in [tool["name"] for tool in report["tools"]]
    assert report["permissions"]["paths"]["read"] == [f"{world.project}/**"]
    assert report["session"]["model"] == "model-main"


async def test_the_inspector_gives_the_exact_request_of_a_step(world: World) -> None:
    ref = world.session()
    await talk(world, ref, "Hi.")
    (run,) = (await inspected(world, ref))["runs"]
    service = world.service()
    given = await service.traced_request(Watcher(), branch=ref.key, run=run["id"], step=1)
    assert given["json"] == sent(world)[0]
    with pytest.raises(NotFound):
        await service.traced_request(Watcher(), branch=ref.key, run=run["id"], step=2)

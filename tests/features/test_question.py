"""The ``question`` tool: asked at the root of the tree, answered by people only, still open after a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.errors import BadRequest, NotFound
from pyagentd.features.questions import UNAVAILABLE, checked_answers
from pyagentd.runtime.approvals import Answer
from tests.runtime.prefix import assert_prefix
from tests.runtime.test_approvals import prompt_of, results, talking
from tests.runtime.test_resume import WAYS, awake, begin, ended, restart, until
from tests.runtime.world import World, assert_closed, last_of, rows
from tests.server import answer, tool_use

TOOLS = "Read, question, PersistentAgent"
PICKS = (
    "When the agent asks me to pick from options (and I may add free-text follow-up), how does the pick come back?"
)

DATABASE = {
    "question": "Which database shall I use?",
    "header": "Database",
    "options": [{"label": "Postgres", "description": "A server"}, {"label": "SQLite"}],
}
CHECKS = {
    "question": "What shall be checked?",
    "options": [{"label": "Types"}, {"label": "Style"}],
    "multi_select": True,
}


def ask(*questions: Any) -> Any:
    return tool_use("question", questions=list(questions))


@pytest.fixture
def service(world: World) -> Service:
    world.preset("main", tools=TOOLS)
    world.preset("helper", tools="question")
    return world.service()


@pytest.mark.spec("002", PICKS)
async def test_a_pick_and_free_text_are_the_tools_result_and_the_turn_goes_on(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer("Hm.", ask(DATABASE, CHECKS)), "Fine.")
        shown = await talk.ask()
        assert shown["kind"] == "question" and shown["choices"] == ["answer", "deny", "abort"]
        assert shown["detail"] == "Which database shall I use? (and 1 more)"
        assert shown["questions"][0]["options"][1] == {"label": "SQLite", "description": ""}
        assert [each["multi_select"] for each in shown["questions"]] == [False, True]
        assert talk.branch.status["state"] == "waiting"
        await talk.answer("answer", answers='[["Postgres"], ["Types", "and the docs"]]')
        assert json.loads(await talk.end()) == {"answers": [["Postgres"], ["Types", "and the docs"]]}
        assert len(world.server.requests) == 2
        assert_prefix(world.server.requests)
        (row,) = last_of(rows(talk.branch.ref), "ask").values()
        assert row["decision"] == "answer" and row["answers"] == [["Postgres"], ["Types", "and the docs"]]
        assert row["decided_by"] == "a test"


async def test_who_declines_may_say_why(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(ask(DATABASE)), "Fine.")
        await talk.ask()
        await talk.answer("deny", reason="You choose.")
        assert await talk.end() == (
            "The user declined to answer. They say: You choose. Go on without, or stop and say what you lack."
        )


@pytest.mark.spec("002", PICKS)
async def test_where_nobody_can_be_asked_the_answer_is_one_fixed_error(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(ask(DATABASE)), "Then Postgres.", interactive=False)
        assert await talk.end() == UNAVAILABLE
        assert not last_of(rows(talk.branch.ref), "ask")


async def test_the_first_answer_wins_and_what_is_no_answer_leaves_it_open(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(ask(DATABASE)), "Fine.")
        shown = await talk.ask()
        for wrong in (
            {"decision": "allow"},
            {"decision": "answer"},
            {"decision": "answer", "answers": "[[]]"},
            {"decision": "answer", "answers": '[["a"],["b"]]'},
            {"decision": "deny", "answers": '[["a"]]'},
            {"decision": "session"},
        ):
            with pytest.raises(BadRequest):
                await service.answer(talk.watcher, ask=shown["id"], **wrong)
        assert world.kernel.asks.has(shown["id"])
        await talk.answer("answer", answers='["SQLite"]')
        with pytest.raises(NotFound, match="answered already by a test: answer"):
            await service.answer(talk.watcher, ask=shown["id"], decision="answer", answers='[["Postgres"]]')
        assert json.loads(await talk.end()) == {"answers": [["SQLite"]]}


async def test_an_abort_closes_it(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(ask(DATABASE)))
        await talk.ask()
        assert await world.kernel.abort(talk.branch)
        assert not world.kernel.asks.all()
        assert assert_closed(talk.branch.ref)["reason"] == "aborted"


async def test_an_agents_question_is_shown_at_the_root(world: World, service: Service) -> None:
    def model(request: Any) -> Any:
        if "Choose." in prompt_of(request):
            return answer("It is SQLite.") if results(request) else answer(ask(DATABASE))
        if results(request):
            return answer("Done.")
        return answer(tool_use("PersistentAgent", preset="helper", description="choose", prompt="Choose."))

    async with talking(world, service) as talk:
        await talk.say(*[model] * 4, grants=world.granted("tool:PersistentAgent:.*").grants)
        shown = await talk.ask()
        assert shown["agent"].startswith("helper-") and shown["branch"] != talk.branch.key
        await talk.answer("answer", answers='[["SQLite"]]')
        assert await talk.end() == "It is SQLite."


@pytest.mark.parametrize("how", WAYS)
async def test_it_is_still_open_after_a_restart_and_its_answer_lets_the_run_go_on(world: World, how: str) -> None:
    world.preset("main", tools=TOOLS)
    world.server.say(answer("Let me see.", ask(DATABASE, CHECKS)), "Good.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    (before,) = world.kernel.asks.all()
    ref = await restart(world, ref, how)
    (again,) = await awake(world, ref, 1)
    assert again == {**before, "branch": ref.key} and again["questions"][1]["question"] == CHECKS["question"]
    said = Answer(decision="answer", answers=(("Postgres",), ()))
    assert await world.kernel.questions.answer(again["id"], said, world.options)
    await ended(world)
    assert assert_closed(ref)["reason"] == "done"
    assert json.loads(results(world.server.last)[-1]) == {"answers": [["Postgres"], []]}


async def test_an_answer_that_the_old_daemon_recorded_is_not_asked_for_again(world: World) -> None:
    """Killed between the answer and the result: the answer counts."""
    world.preset("main", tools=TOOLS)
    world.server.say(answer(ask(DATABASE), ask(CHECKS)), "Good.")
    ref = world.session()
    await begin(world, ref, "Hi", asks=1)
    (first,) = world.kernel.asks.all()
    await world.kernel.questions.answer(
        first["id"], Answer(decision="answer", answers=(("Postgres",),)), world.options
    )
    await until(lambda: [row["id"] for row in world.kernel.asks.all() if row["id"] != first["id"]])
    ref = await restart(world, ref, "killed")
    (second,) = await awake(world, ref, 1)
    assert second["detail"] == CHECKS["question"]
    said = Answer(decision="answer", answers=(("Types", "Style"),))
    await world.kernel.questions.answer(second["id"], said, world.options)
    await ended(world)
    assert [json.loads(each) for each in results(world.server.last)] == [
        {"answers": [["Postgres"]]},
        {"answers": [["Types", "Style"]]},
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[["Postgres"], ["Types", "Style"]]', (("Postgres",), ("Types", "Style"))),
        ('["Postgres", null]', (("Postgres",), ())),
        ('[[], ["  Style ", "Style", ""]]', ((), ("Style",))),
        ('[["Postgres", "but version 16"], []]', (("Postgres", "but version 16"), ())),
        ('[null, ["only words of my own"]]', ((), ("only words of my own",))),
    ],
)
def test_answers(text: str, found: Any) -> None:
    assert checked_answers([DATABASE, CHECKS], text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no", "not JSON"),
        ('{"a": 1}', "2 answers are needed"),
        ('[["a"]]', "2 answers are needed"),
        ('[["Postgres", "SQLite"], []]', "takes one option"),
        ('[["one", "two"], []]', "takes one option"),
        ("[[1], []]", "not a list of strings"),
        ("[[], []]", "No question was answered"),
    ],
)
def test_what_are_no_answers(text: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        checked_answers([DATABASE, CHECKS], text)


@pytest.mark.parametrize("questions", [[], [{}], [{"question": ""}], [{"question": "x", "option": []}]])
async def test_a_call_without_questions_is_refused(world: World, service: Service, questions: Any) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(tool_use("question", questions=questions)), "Oh.")
        assert "question" in await talk.end()
        assert not last_of(rows(talk.branch.ref), "ask")

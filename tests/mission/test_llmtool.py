"""Missions as tools: one question or several turns, with the caller's model and on the caller's budget."""

import asyncio
from typing import Any

import pytest

from pyagentd.mission import (
    Budget,
    LLMTool,
    MissionFailed,
    Scripted,
    SubAgentError,
    adelegate,
    as_tool,
    delegate,
)
from pyagentd.mission.signature import parse
from pyagentd.mission.tools import judgment_prompt, program_of

URGENT = {"prompt": "Is this urgent? {{subject}}", "signature": "(subject :string) -> {urgent :bool}"}
CALL = '(call "return" (call "t" {:subject "Server down"}))'


def run(llm: Any, tool: Any, **options: Any) -> Any:
    return delegate("Judge", llm=llm, tools={"t": tool}, **options)


@pytest.mark.spec("004", "PtcRunner.SubAgent.LLMTool")
@pytest.mark.parametrize(
    "answer",
    [
        '{"urgent": true}',
        '```json\n{"urgent": true}\n```',
        'Certainly:\n```json\n{"urgent": true}\n```\nHope it helps.',
        "{:urgent true}",
        "```clojure\n{:urgent true}\n```",
        '(call "return" {:urgent true})',
        "```clojure\n(return {:urgent true})\n```",
        '```clojure\n{:urgent (not= ctx/subject "Lunch")}\n```',
    ],
)
def test_a_question_may_be_answered_in_any_notation(answer: str) -> None:
    step = run(Scripted([CALL, answer]), URGENT)
    assert step.value == {"urgent": True}, step.fail


def test_a_plain_string_is_an_answer_where_one_is_asked_for() -> None:
    tool = {"prompt": "Shout {{text}}", "signature": "(text :string) -> :string"}
    step = run(Scripted(['(call "return" (call "t" {:text "hi"}))', 'HI "there"']), tool)
    assert step.value == 'HI "there"'


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ('{"a b": 1, "c-d": [1.5, null]}', '{:c-d [1.5 nil] "a b" 1}'),
        ('"x\\"y"', '"x\\"y"'),
        ("[true]", "[true]"),
        ("3", "3"),
        ("#{1}", "#{1}"),
        (":high", ":high"),
        ("I would say yes", '"I would say yes"'),
        ("{so it is}}", '"{so it is}}"'),
        ("(well, yes", "(well, yes"),
    ],
)
def test_data_becomes_a_program_that_returns_it(text: str, expression: str) -> None:
    program = program_of(text)
    assert program == f'```clojure\n(call "return" (do {expression}\n))\n```'


@pytest.mark.spec("004", "Template Syntax")
@pytest.mark.parametrize(
    ("items", "asked"),
    [
        ('[{:subject "Server down"} {:subject "Lunch"}]', "Classify: Server down; Lunch; for gold"),
        ("[]", "Classify: for gold"),
    ],
)
def test_one_question_may_be_about_a_whole_list(items: str, asked: str) -> None:
    tool = {
        "prompt": "Classify: {{#items}}{{subject}}; {{/items}}for {{customer.tier}}",
        "signature": "(items [{subject :string}], customer {tier :string}) -> [{id :int, urgency :string}]",
    }
    call = f'(call "return" (call "t" {{:items {items} :customer {{:tier "gold"}}}}))'
    llm = Scripted([call, '[{"id": 0, "urgency": "high"}]'])
    step = run(llm, tool)
    assert step.value == [{"id": 0, "urgency": "high"}], step.fail
    assert llm.requests[1]["messages"][0]["content"] == asked


def test_options_of_delegate_are_options_of_a_tool() -> None:
    tool = {**URGENT, "max_turns": 1, "llm_opts": {"temperature": 0}, "context": {"team": "ops"}}
    llm = Scripted([CALL, '{"urgent": "no"}', '(call "return" 1)'])
    step = run(llm, tool)
    assert step.value == 1 and llm.requests[1]["llm_opts"] == {"temperature": 0}, "one turn, then it has failed"
    assert "validation_error" in step.trace[0].error.message


def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    llm = Scripted([CALL, '{"urgent": "very"}', '{"urgent": true}'])
    step = run(llm, URGENT)
    assert step.value == {"urgent": True} and step.usage.llm_requests == 3
    question, answer, refusal = (each["content"] for each in llm.requests[2]["messages"])
    assert question == "Is this urgent? Server down" and answer == '{"urgent": "very"}', "it reads its own words"
    assert "urgent: expected bool, got string" in refusal and "JSON" in refusal


def test_a_judge_reads_nothing_of_programs() -> None:
    llm = Scripted([CALL, "Sure, it is", '{"urgent": 1}', '{"urgent": true}'])
    step = run(llm, URGENT)
    assert step.value == {"urgent": True}
    read = [text for each in llm.requests[1:] for text in (each["system"], *(m["content"] for m in each["messages"]))]
    assert not [text for text in read if "(call" in text or "program" in text or "clojure" in text]
    assert "Sure, it is" in read and any("expected map, got string" in text for text in read)


def test_a_judgment_is_told_its_type_and_no_language() -> None:
    llm = Scripted([CALL, '{"urgent": true}'])
    run(llm, URGENT)
    system = llm.requests[1]["system"]
    assert "{urgent :bool}" in system and '"boolean"' in system and "ctx/" not in system
    assert system == judgment_prompt(parse(URGENT["signature"]))
    assert "Is this urgent? Server down" in llm.requests[1]["messages"][0]["content"]


@pytest.mark.spec("004", "Tool Configuration (Unified Model)")
def test_with_tools_it_is_a_mission_of_several_turns() -> None:
    agent = {
        "prompt": "Research {{topic}}",
        "signature": "(topic :string) -> {summary :string, _refs [:int]}",
        "tools": {"lookup": (lambda word: [1, 2], "(word :string) -> [:int]")},
    }
    llm = Scripted(
        [
            '(call "return" (call "t" {:topic "owls"}))',
            '(memory/put :refs (call "lookup" {:word ctx/topic}))',
            '(call "return" {:summary "about owls" :_refs memory/refs})',
        ]
    )
    step = run(llm, agent)
    assert step.value == {"summary": "about owls", "_refs": [1, 2]}, "the caller's program gets everything"
    assert step.usage.turns == 3
    assert "lookup(word :string) -> [:int]" in llm.requests[1]["system"]


@pytest.mark.spec("004", "Execution Behavior")
def test_a_failed_child_is_an_error_that_the_model_can_answer() -> None:
    tool = as_tool(**URGENT, llm=Scripted(['(fail {:reason :no_idea :message "Who knows"})'] * 2))
    llm = Scripted([CALL, '(call "return" "gave up")'])
    step = run(llm, tool)
    assert step.value == "gave up"
    error = step.trace[0].error
    assert error is not None and error.reason == "tool_error" and "no_idea: Who knows" in error.message
    with pytest.raises(SubAgentError) as caught:
        tool({"subject": "x"})
    assert caught.value.step.fail.reason == "no_idea" and SubAgentError is MissionFailed


@pytest.mark.parametrize("later", [False, True])
def test_a_step_that_a_tool_returns_stands_for_its_value(later: bool) -> None:
    def inner(subject: str) -> Any:
        ends = ":done" if subject == "a" else None
        program = f'(call "return" {ends})' if ends else '(call "fail" {:reason :lost :message "No"})'
        return delegate("Inner", llm=Scripted([program]))

    async def awaited(subject: str) -> Any:
        return inner(subject)

    llm = Scripted(['(call "t" {:subject "b"})', '(call "return" (= :done (call "t" {:subject "a"})))'])
    step = run(llm, awaited if later else inner)
    assert step.value is True, step.fail
    assert step.trace[0].error.reason == "tool_error" and "lost: No" in step.trace[0].error.message


def test_a_tool_is_a_function_too() -> None:
    tool = as_tool(URGENT, llm=Scripted(['{"urgent": false}'], repeat=True))
    assert tool({"subject": "a"}) == tool(subject="a") == {"urgent": False}


@pytest.mark.parametrize(
    ("llm", "models", "asked"),
    [
        ("caller", {}, "caller"),
        ("cheap", {"cheap": "own"}, "own"),
        ("own", {}, "own"),
    ],
)
def test_a_tool_takes_the_model_it_names(llm: str, models: dict[str, Any], asked: str) -> None:
    here = {"caller": Scripted([CALL, '{"urgent": true}']), "own": Scripted(['{"urgent": true}'])}
    given = here["own"] if llm == "own" else llm
    named = {name: here[value] for name, value in models.items()}
    assert run(here["caller"], LLMTool(**URGENT, llm=given), models=named).ok
    assert len(here[asked].requests) == (2 if asked == "caller" else 1)


@pytest.mark.spec("004", "Error reason model_not_found")
def test_a_model_nobody_registered_fails_the_tool_and_not_the_mission() -> None:
    step = run(Scripted([CALL, '(call "return" 1)']), LLMTool(**URGENT, llm="nobody"))
    assert step.value == 1 and "model_not_found" in step.trace[0].error.message
    with pytest.raises(SubAgentError, match="model_not_found"):
        as_tool(**URGENT, llm="nobody")(subject="x")
    with pytest.raises(SubAgentError, match="no mission is calling"):
        as_tool(**URGENT)(subject="x")


@pytest.mark.spec("004", "Total Turn Budget")
def test_children_spend_the_turns_of_their_caller() -> None:
    budget = Budget(turns=2)
    answers = [CALL, "(return {:urgent 1})", "(return {:urgent true})", CALL]
    step = run(Scripted(answers), {**URGENT, "tools": [len]}, budget=budget)
    assert not step.ok and step.fail.reason == "turn_budget_exhausted" and budget.used == 2


def test_a_tool_that_asks_one_question_takes_no_turn_of_the_tree() -> None:
    program = '(return (pmap (fn [n] (:urgent (call "t" {:subject (str n)}))) (range 20)))'
    step = run(Scripted([program]), LLMTool(**URGENT, llm=lambda request: '{"urgent": true}'))
    assert step.value == [True] * 20
    assert step.usage.turns == step.usage.llm_requests == 21


@pytest.mark.spec("004", "Nested Depth")
def test_nesting_ends_at_the_third_level() -> None:
    def nested(levels: int) -> dict[str, Any]:
        tool = {"prompt": "Go on", "signature": "() -> :any"}
        return tool | ({"tools": {"t": nested(levels - 1)}} if levels else {})

    down = '(call "return" (call "t"))'
    deep = run(Scripted([down, down, down, '"at the bottom"']), nested(2))
    assert deep.value == "at the bottom"
    llm = Scripted([down] * 4 + ['(call "return" "too deep")'] * 9)
    step = run(llm, nested(3), max_turns=5)
    assert step.value == "too deep"
    assert any("max_depth_exceeded" in text for text in llm.texts)


def test_what_a_child_hides_its_caller_does_not_read() -> None:
    agent = {"prompt": "Find", "signature": "() -> {count :int, _ids [:int]}", "tools": {"x": lambda: 1}}
    llm = Scripted(
        [
            '(call "t" {})',
            '(call "return" {:count 2 :_ids [7770 7771]})',
            '(call "return" (count ctx/_ids))',
        ]
    )
    step = run(llm, agent)
    assert step.value == 2, step.fail
    assert not [text for text in llm.texts[-2:] if "7771" in text]


def call_t(request: Any) -> str:
    """Call the tool, or judge, or return, as the prompt says."""
    said = request["prompt"]
    return {"Judge": CALL, "Inner": '(call "return" "inner")'}.get(said, '{"urgent": true}')


class OnLoop:
    """An async model that knows which loop it is awaited on."""

    def __init__(self) -> None:
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def __call__(self, request: Any) -> str:
        self.loops.append(asyncio.get_running_loop())
        return call_t(request)


async def test_an_async_model_judges_on_the_loop_of_the_caller() -> None:
    llm = OnLoop()
    step = await adelegate("Judge", llm=llm, tools={"t": URGENT})
    assert step.value == {"urgent": True} and set(llm.loops) == {asyncio.get_running_loop()}


async def test_a_plain_tool_that_delegates_does_so_too() -> None:
    llm = OnLoop()
    step = await adelegate("Judge", llm=llm, tools={"t": lambda subject: delegate("Inner", llm=llm).unwrap()})
    assert step.value == "inner", step.fail
    assert len(llm.loops) == 2 and set(llm.loops) == {asyncio.get_running_loop()}


async def test_an_async_tool_that_blocks_its_loop_with_a_mission_gets_its_answer() -> None:
    llm = OnLoop()

    async def blocking(subject: str) -> Any:
        return delegate("Inner", llm=llm).unwrap()

    step = await adelegate("Judge", llm=llm, tools={"t": blocking}, mission_timeout_ms=10_000)
    assert step.value == "inner", step.fail


async def test_an_async_tool_awaits_a_mission() -> None:
    llm = OnLoop()

    async def awaiting(subject: str) -> Any:
        return (await adelegate("Inner", llm=llm)).unwrap()

    budget = Budget()
    step = await adelegate("Judge", llm=llm, tools={"t": awaiting}, budget=budget)
    assert step.value == "inner" and budget.used == 2 and set(llm.loops) == {asyncio.get_running_loop()}

"""Missions from the first question to the return: what happens in each turn and what the model is told."""

import pytest

from pyagentd.lisp.values import Keyword
from pyagentd.mission.delegation import delegate
from pyagentd.mission.firewall import HIDDEN
from pyagentd.mission.registry import Scripted
from pyagentd.mission.step import Step
from tests.mission.answers import RETURN_1, code, told


@pytest.mark.spec("004", "PtcRunner.SubAgent")
def test_a_mission_comes_back_with_what_its_program_returns():
    llm = Scripted([code('(call "return" {:total (sum-by :amount (call "expenses"))})')])
    step = delegate(
        "How much was spent?",
        llm=llm,
        signature="{total :float}",
        tools={"expenses": lambda: [{"amount": 2.5}, {"amount": 4}]},
    )
    assert step.ok and step.fail is None
    assert step.value == {"total": 6.5}
    assert step.lisp_value == {Keyword("total"): 6.5}
    assert step.signature == "() -> {total :float}"


@pytest.mark.spec("004", "Execution Flow (Step-wise Agentic Loop)")
def test_each_turn_gives_the_next_its_context():
    llm = Scripted(
        [
            code('{:found (call "search" {:q "x"}) :_ids [7 8]}'),
            code("(count ctx/found)"),
            code('(call "return" {:n ctx/last :ids ctx/_ids})'),
        ]
    )
    step = delegate("Go.", llm=llm, tools={"search": (lambda args: [1, 2, 3], "(q :string) -> [:int]")})
    assert step.value == {"n": 3, "ids": [7, 8]}
    assert "Result {found [:int], _ids [:int]}:" in told(llm, 1)
    assert f"{{:found [1 2 3], :_ids {HIDDEN}}}" in told(llm, 1)
    assert "From now on it is in ctx/found, ctx/_ids." in told(llm, 1)
    assert "From now on it is in ctx/last." in told(llm, 2)
    assert [turn.number for turn in step.trace] == [1, 2, 3]


def test_later_results_win_over_what_is_in_the_context():
    llm = Scripted([code("{:a 2 :b 3}"), code('(call "return" [ctx/a ctx/b ctx/c])')])
    assert delegate("Go.", llm=llm, context={"a": 1, "c": 4}).value == [2, 3, 4]


def test_a_function_is_not_kept():
    llm = Scripted([code("(fn [x] x)"), code('(call "return" ctx/last)')])
    assert delegate("Go.", llm=llm).value is None
    assert "Nothing of it is kept." in told(llm)


@pytest.mark.spec("004", "PtcRunner.SubAgent.Loop")
@pytest.mark.spec("004", "Return Value")
def test_it_goes_on_until_a_program_returns():
    llm = Scripted(
        [code("1"), code('"(call \\"return\\" 5)"'), code('(if false (call "return" 1) 2)'), code(RETURN_1)]
    )
    step = delegate("Go.", llm=llm)
    assert isinstance(step, Step)
    assert (step.ok, step.value, len(llm.requests)) == (True, 1, 4)


@pytest.mark.spec("004", "return(data :any)")
@pytest.mark.parametrize(
    ("program", "value"),
    [
        ('(do (call "return" {:a 1}) 99)', {"a": 1}),
        ('(let [x 5] (map (fn [y] (if (= y 2) (call "return" y) y)) [1 2 3]))', 2),
        ('(call "return" nil)', None),
        ("(return 5)", 5),
        ('(call "return" [:a #{1}])', ["a", [1]]),
    ],
)
def test_return_ends_the_mission_wherever_it_stands(program, value):
    step = delegate("Go.", llm=Scripted([code(program)]))
    assert step.ok
    assert step.value == value or step.value == ["a", {1}]


def test_a_function_is_no_result():
    llm = Scripted([code('(call "return" inc)'), code('(call "return" (inc 1))')])
    assert delegate("Go.", llm=llm).value == 2
    assert "Call it and return what it gives." in told(llm)


@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("{:f [inc]}", "A function is not data.\nCall the function and return its result."),
        ("{[inc] 1}", "A function is not data."),
        ('(call "return" #{(fn [x] x)})', "A function is not data."),
        ('(call "fail" {:details inc})', "A function is not data."),
        ('(call "echo" {:x [inc]})', "A function is not data."),
        ("[1 (range)]", "A sequence without an end is not data.\nTake some of it first: (take 10 …)."),
    ],
)
def test_what_is_no_data_leaves_no_program(isolation, program, said):
    llm = Scripted([code(program), code('(call "return" (map inc (take 2 (range))))')])
    step = delegate("Go.", llm=llm, tools={"echo": lambda args: args}, isolation=isolation)
    assert "Error (eval_error" in told(llm) and said in told(llm)
    assert (step.value, step.trace[0].error.reason) == ([1, 2], "eval_error")


def test_what_is_not_promised_is_said_and_mended():
    llm = Scripted([code('(call "return" {:count "five"})'), code('(call "return" {:count 5})')])
    step = delegate("Go.", llm=llm, signature="{count :int}")
    assert step.value == {"count": 5}
    said = told(llm)
    for needed in ("does not fit", "Expected: {count :int}", 'Received: {:count "five"}', "- count: expected int"):
        assert needed in said
    assert step.trace[0].error.reason == "validation_error"


@pytest.mark.spec("004", "fail(params {reason :keyword, message :string, op :string?, details :map?})")
@pytest.mark.spec("004", "Error reason of a mission's own")
def test_fail_ends_the_mission_with_its_own_reason():
    program = '(call "fail" {:reason :not_found :message "No such order" :op "search" :details {:id 7}})'
    step = delegate("Go.", llm=Scripted([code(f"(if true {program} {RETURN_1})")]))
    assert (step.ok, step.value) == (False, None)
    assert (step.fail.reason, step.fail.message, step.fail.op) == ("not_found", "No such order", "search")
    assert step.fail.details == {"id": 7}


@pytest.mark.parametrize(
    ("given", "reason", "message"),
    [
        ('"Cannot"', "failed", "Cannot"),
        ("nil", "failed", "The program gave up"),
        ('{:message "m"}', "failed", "m"),
        ("{:reason :odd}", "odd", "The program gave no message"),
        ('{"reason" "quota" "message" "m"}', "quota", "m"),
        ("{:reason :odd :message [1 {:a nil}]}", "odd", "[1 {:a nil}]"),
        ("{:reason {:a true} :message :m}", "{:a true}", "m"),
        ('["a" true]', "failed", '["a" true]'),
    ],
)
def test_fail_takes_less_than_it_asks_for(given, reason, message):
    fail = delegate("Go.", llm=Scripted([code(f'(call "fail" {given})')])).fail
    assert (fail.reason, fail.message) == (reason, message)


def test_an_answer_without_a_program_is_asked_for_one():
    llm = Scripted(["I think it is 5.", " ", code(RETURN_1)])
    step = delegate("Go.", llm=llm)
    assert step.ok
    assert "There was no program in your answer" in told(llm, 1) and "```clojure" in told(llm, 1)
    assert "Your answer was empty." in told(llm, 2)
    assert llm.requests[2]["messages"][3] == {"role": "assistant", "content": "(nothing)"}
    assert (step.trace[0].program, step.trace[0].reasoning) == (None, "I think it is 5.")
    assert step.trace[0].error.reason == "no_program"


def test_several_blocks_are_one_program():
    llm = Scripted([code("(memory/put :a 1)", '(call "return" (+ 1 memory/a))')])
    assert delegate("Go.", llm=llm).value == 2


@pytest.mark.spec("004", "Memory Operations")
def test_memory_is_there_in_later_turns_and_in_the_step():
    llm = Scripted([code("(memory/put :seen [1 2])"), code('(call "return" [(memory/get :seen) memory/seen])')])
    step = delegate("Go.", llm=llm)
    assert step.value == [[1, 2], [1, 2]]
    assert step.memory == {"seen": [1, 2]}


def test_a_program_that_fails_leaves_memory_alone():
    llm = Scripted([code("(do (memory/put :a 1) (/ 1 0))"), code('(call "return" memory/a)')])
    step = delegate("Go.", llm=llm, memory={"a": 0})
    assert step.value == 0
    assert "is undone" in told(llm)


@pytest.mark.spec("004", "LLM Input Structure")
def test_a_request_has_all_that_a_callback_needs():
    llm = Scripted([code("(+ 1 1)"), code(RETURN_1)])
    delegate(
        "Count {{what}}.", llm=llm, context={"what": "sheep"}, tools={"t": lambda: 1}, llm_opts={"temperature": 0}
    )
    first, second = llm.requests
    assert first["messages"] == [{"role": "user", "content": "Count sheep."}]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    assert second["messages"][1]["content"] == code("(+ 1 1)")
    assert (first["turn"], second["turn"], first["prompt"]) == (1, 2, "Count sheep.")
    assert (first["tool_names"], first["llm_opts"]) == (["t"], {"temperature": 0})
    assert first["system"] == second["system"]


@pytest.mark.spec("004", "Output")
def test_an_answer_is_text_or_a_map_with_what_it_took():
    llm = Scripted(
        [
            code("1"),
            {"content": code("2"), "tokens": {"input": 10, "output": 3}, "cost_usd": 0.01},
            {"content": code(RETURN_1), "tokens": {"input": 20, "output": 4}},
        ]
    )
    step = delegate("Go.", llm=llm)
    assert (step.usage.input_tokens, step.usage.output_tokens, step.usage.total_tokens) == (30, 7, 37)
    assert (step.usage.llm_requests, step.usage.turns, step.usage.cost_usd) == (3, 3, 0.01)
    assert [turn.usage.input_tokens for turn in step.trace] == [0, 10, 20]
    assert [turn.usage.turns for turn in step.trace] == [1, 1, 1]


def test_the_model_is_told_how_many_turns_are_left():
    llm = Scripted([code("1")], repeat=True)
    delegate("Go.", llm=llm, max_turns=3)
    assert "Turn 1 of 3 is done, 2 turns are left." in told(llm, 1)
    assert "FINAL TURN" not in told(llm, 1)
    assert "⚠️ FINAL TURN" in told(llm, 2)


def test_a_large_result_is_cut_for_the_model_only():
    llm = Scripted([code('(call "rows")'), code('(call "return" (count ctx/last))')])
    step = delegate("Go.", llm=llm, tools={"rows": lambda: list(range(500))}, prompt_limit={"list": 2})
    assert step.value == 500
    assert "[0 1 ...]\nNote: the value shows 2 of 500 items; programs see all of it." in told(llm)


@pytest.mark.parametrize(("program", "value"), [("(+ 1 2)", 3), ('(call "return" 4)', 4), ("(map inc [1])", [2])])
def test_with_one_turn_and_no_tools_the_value_is_the_result(program, value):
    step = delegate("Go.", llm=Scripted([code(program)]), max_turns=1)
    assert (step.ok, step.value) == (True, value)


def test_with_one_turn_and_no_tools_a_wrong_value_is_the_failure():
    step = delegate("Go.", llm=Scripted([code('"x"')]), max_turns=1, signature=":int")
    assert (step.ok, step.fail.reason) == (False, "validation_error")


@pytest.mark.spec("004", "Prompt Placeholder Validation")
@pytest.mark.spec("004", "Error reason template_error")
def test_a_placeholder_without_a_value_fails_before_the_model_is_asked():
    llm = Scripted([])
    step = delegate("Hello {{name}} of {{user.town}} and {{here}}", llm=llm, context={"here": 1, "user": {}})
    assert step.fail.reason == "template_error"
    assert "name" in step.fail.message and "user.town" in step.fail.message
    assert llm.requests == []


@pytest.mark.spec("004", "Usability Improvements")
def test_a_signature_may_be_its_result_alone():
    llm = Scripted([code('(call "return" {:count 3})')])
    assert delegate("Go.", llm=llm, signature="{count :int}").signature == "() -> {count :int}"


@pytest.mark.spec("004", "Known LLM Behavior Issues")
@pytest.mark.parametrize(
    ("program", "value"),
    [
        ('(str "n: " 3)', "n: 3"),
        ("(conj [1] 2)", [1, 2]),
        ("(map :t (sort-by :t > [{:t 1} {:t 3}]))", [3, 1]),
        ("(if false 1)", None),
        ("(<= 1 2 3)", True),
        ("(apply max [1 3 2])", 3),
    ],
)
def test_what_models_write_by_habit_works(program, value):
    assert delegate("Go.", llm=Scripted([code(program)]), max_turns=1).value == value


@pytest.mark.spec("004", "Tracing")
def test_the_trace_has_programs_calls_and_what_was_said():
    def boom() -> int:
        raise ValueError("kaput")

    llm = Scripted(
        [
            "Looking.\n" + code('(+ 1 (call "get" {:id "7"}))'),
            code('(call "boom")'),
            code(RETURN_1),
        ]
    )
    times = iter(range(0, 10_000, 1))
    step = delegate(
        "Go.",
        llm=llm,
        tools={"get": (lambda args: 41, "(id :int) -> :int"), "boom": boom},
        epoch=lambda: next(times),
    )
    first, second, last = step.trace
    assert (first.program, first.value, first.reasoning) == ('(+ 1 (call "get" {:id "7"}))', 42, "Looking.")
    (call,) = first.tool_calls
    assert (call.name, call.args, call.result, call.error) == ("get", {"id": 7}, 41, None)
    assert call.started_at > 0 and call.duration_ms > 0
    assert second.tool_calls[0].error == 'The tool "boom" failed: kaput'
    assert first.feedback == llm.requests[1]["messages"][-1]["content"]
    assert (last.value, last.error, last.feedback) == (1, None, "")


# What a mission knows about a mistake is told where the language alone would lead astray.


TOOLS = {"search": (lambda query: [query], "(query :string) -> [:string]"), "get_user": lambda: 1}


def hint_of(*programs: str) -> str:
    llm = Scripted([*map(code, programs), code(RETURN_1)])
    delegate("Go.", llm=llm, tools=TOOLS, tool_catalog={"plan": TOOLS["search"]}, context={"rows": [1, 2]})
    return told(llm)


@pytest.mark.parametrize(
    ("programs", "hint"),
    [
        (['(search {:query "x"})'], 'Call a tool as (call "search" {:query …}).'),
        (['(tool/search "x")'], 'Call a tool as (call "search" {:query …}).'),
        (["(get-user)"], 'Call a tool as (call "get_user" {}).'),
        (["(map search [1])"], 'Call a tool as (call "search" {:query …}).'),
        (["(def xs [1 2])", "(count xs)"], "What def names lasts for one program."),
        (["(defn total [x] x)", "(total 1)"], "keep data with (memory/put :total …) and read memory/total"),
        (["(count xs)"], "Bind it with let, or read ctx/xs"),
        (['(println "a")'], "Note: What is printed is not shown; you read what a program evaluates to"),
        (["(do (println 1) nil)"], "end it with what you want to see."),
        (["(count ctx/row)"], "Note: There is no ctx/row, it is nil; did you mean ctx/rows?"),
    ],
)
def test_the_hint_is_named(programs, hint):
    assert hint in hint_of(*programs)


@pytest.mark.parametrize(
    "program", ["(do (println 1) 2)", "(count ctx/other)", "(count ctx/rows)", '(str "ctx/row")']
)
def test_there_is_no_note_where_nothing_is_wrong(program):
    assert "Note:" not in hint_of(program)


def test_a_return_that_rests_on_a_mistyped_name_is_asked_about_once():
    wrong, right = code('(call "return" (count ctx/row))'), code('(call "return" (count ctx/rows))')
    llm = Scripted([wrong, right])
    assert delegate("Go.", llm=llm, context={"rows": [1, 2]}).value == 2
    assert "The value was not returned yet:\n- There is no ctx/row, it is nil; did you mean ctx/rows?" in told(llm)
    step = delegate("Go.", llm=Scripted([wrong, wrong]), context={"rows": [1, 2]})
    assert (step.value, step.warnings) == (0, ("There is no ctx/row, it is nil; did you mean ctx/rows?",))
    assert delegate("Go.", llm=Scripted([wrong]), context={"rows": [1]}, max_turns=1).value == 0

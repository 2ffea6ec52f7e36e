"""What the specification says of tools, signatures, templates and chaining, seen from a whole mission."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from pyagentd.mission import LLMTool, as_tool, validate
from pyagentd.mission.delegation import delegate
from pyagentd.mission.firewall import HIDDEN
from pyagentd.mission.registry import Scripted
from tests.mission.test_loop import RETURN_1, code, told


def returning(program: str, **options):
    llm = Scripted([code(f'(call "return" {program})')])
    return delegate(**{"prompt": "Go.", "llm": llm, **options}), llm


@pytest.mark.spec("004", "Reserved Tool Names")
@pytest.mark.spec("004", "DD-2: Reserved Tool Names Error at Registration")
@pytest.mark.parametrize("name", ["return", "fail"])
def test_reserved_names_fail_before_the_model_is_asked(name):
    step, llm = returning("1", tools={name: lambda: 1})
    assert (step.fail.reason, llm.requests) == ("reserved_tool_name", [])
    assert name in step.fail.message


@dataclass
class Order:
    id: int
    note: str | None = None


def orders(limit: int, status: str = "open") -> list[Order]:
    """List orders.

    Only the newest.
    """
    return [Order(id=number) for number in range(limit)]


@pytest.mark.spec("004", "Tool Normalization & Schema Extraction")
@pytest.mark.spec("004", "Tool Definition Syntaxes")
def test_tools_are_registered_in_any_of_the_ways():
    child = as_tool(prompt="Shout {{text}}", signature="(text :string) -> {loud :string}", llm=Scripted([]))
    tools = {
        "orders": orders,
        "pair": (lambda args: 1, "(q :string) -> :int"),
        "full": (lambda args: 1, "() -> :int", {"description": "Counts."}),
        "question": LLMTool(prompt="Is {{text}} rude?", signature="(text :string) -> {rude :bool}"),
        "config": {"prompt": "Is {{text}} kind?", "signature": "(text :string) -> {kind :bool}"},
        "child": child,
    }
    step, llm = returning('(:id (last (call "orders" {:limit 3})))', tools=tools)
    assert step.value == 2
    system = llm.requests[0]["system"]
    for line in (
        "; List orders.\norders(limit :int, status :string?) -> [{id :int, note :string?}]",
        "pair(q :string) -> :int",
        "; Counts.\nfull() -> :int",
        "question(text :string) -> {rude :bool}",
        "config(text :string) -> {kind :bool}",
        "child(text :string) -> {loud :string}",
    ):
        assert line in system


@pytest.mark.spec("004", "Execution Behavior")
def test_a_childs_secrets_are_returned_and_not_shown():
    inner = Scripted([code('(call "return" {:count 2 :_email_ids [111111 222222]})')])
    child = as_tool(
        prompt="Find emails matching {{query}}",
        signature="(query :string) -> {count :int, _email_ids [:int]}",
        llm=inner,
        tools={"none": lambda: 1},
    )
    outer = Scripted([code('(call "find" {:query "urgent"})'), code('(call "return" (first ctx/_email_ids))')])
    step = delegate("Go.", llm=outer, tools={"find": child})
    assert step.value == 111111
    assert inner.requests[0]["messages"][0]["content"] == "Find emails matching urgent"
    assert f"{{:count 2, :_email_ids {HIDDEN}}}" in told(outer) and "111111" not in told(outer)


@pytest.mark.spec("004", "PtcRunner.SubAgent.LLMTool")
def test_a_question_uses_the_callers_model():
    llm = Scripted(
        [
            code('(call "return" (call "rude" {:text "Server down!"}))'),
            '{"rude": true, "reason": "shouting"}',
        ]
    )
    question = LLMTool(prompt="Is {{text}} rude?", signature="(text :string) -> {rude :bool, reason :string}")
    step = delegate("Go.", llm=llm, tools={"rude": question})
    assert step.value == {"rude": True, "reason": "shouting"}
    assert llm.requests[1]["messages"][0]["content"] == "Is Server down! rude?"
    assert step.usage.turns == 2


@pytest.mark.spec("004", "Tool Configuration (Unified Model)")
def test_a_map_with_tools_is_an_agent_and_one_without_a_question():
    inner = Scripted([code('(call "look")'), code('(call "return" {:summary "s"})')])
    tools = {
        "classifier": {"prompt": "Is {{text}} good?", "signature": "(text :string) -> {good :bool}"},
        "researcher": {
            "prompt": "Research {{topic}}",
            "signature": "(topic :string) -> {summary :string}",
            "tools": {"look": lambda: 1},
            "llm": inner,
        },
    }
    program = '[(call "researcher" {:topic "owls"}) (call "classifier" {:text "x"})]'
    outer = Scripted([code(f'(call "return" {program})'), '{"good": false}'])
    assert delegate("Go.", llm=outer, tools=tools).value == [{"summary": "s"}, {"good": False}]
    assert len(inner.requests) == 2


@pytest.mark.spec("004", "Nested Data & Expansion")
@pytest.mark.spec("004", "Template Syntax")
def test_a_prompt_reaches_into_its_data():
    prompt = "Profile of {{user.name}} ({{user.id}}):{{#tags}} {{.}}{{/tags}}{{#none}} never{{/none}}"
    context = {"user": {"name": "Ada", "id": 7}, "tags": ["a", "b"], "none": []}
    _, llm = returning("1", prompt=prompt, context=context)
    assert llm.requests[0]["prompt"] == "Profile of Ada (7): a b"


@pytest.mark.spec("004", "Tool Call Format")
@pytest.mark.spec("004", "Implicit Conversion")
def test_arguments_are_a_map_and_are_converted():
    got = []
    tools = {"t": (lambda args: got.append(args), "(n :int, x :float, on :bool?, s :string) -> :any")}
    llm = Scripted([code('(call "t" 1 2)'), code('(call "t" {:n "7" :x "1.5" :on "true" :s :word})'), code(RETURN_1)])
    step = delegate("Go.", llm=llm, tools=tools)
    assert step.trace[0].error.reason == "validation_error"
    assert got == [{"n": 7, "x": 1.5, "on": True, "s": "word"}]


@pytest.mark.spec("004", "Zero-Argument Tool Calls")
@pytest.mark.parametrize("call", ['(call "now")', '(call "now" {})'])
def test_no_arguments_may_be_left_out(call):
    got = []
    step, _ = returning(call, tools={"now": lambda args: got.append(args) or "noon"})
    assert (step.value, got) == ("noon", [{}])


@pytest.mark.spec("004", "LLM Registry")
@pytest.mark.spec("004", "Error reason model_not_found")
def test_a_model_may_be_a_name():
    models = {"haiku": Scripted([code(RETURN_1)])}
    assert delegate("Go.", llm="haiku", models=models).value == 1
    step = delegate("Go.", llm="hiaku", models=models)
    assert step.fail.reason == "model_not_found" and "haiku" in step.fail.message


@pytest.mark.spec("004", "Auto-Chaining with Step Structs")
@pytest.mark.spec("004", "DD-6: Auto-Chaining with Step Detection")
def test_a_step_is_the_context_of_the_next():
    first, _ = returning("{:count 2 :_ids [111111]}", signature="(x :int?) -> {count :int, _ids [:int]}")
    step, llm = returning("[ctx/count ctx/_ids]", context=first)
    assert step.value == [2, [111111]]
    system = llm.requests[0]["system"]
    assert "`ctx/count` :int = 2" in system and f"`ctx/_ids` [:int], 1 item {HIDDEN}" in system
    same, _ = returning("[ctx/count ctx/_ids]", context=first.value, context_signature=first.signature)
    assert same.value == step.value


@pytest.mark.spec("004", "Auto-Chaining with Failed Steps")
@pytest.mark.spec("004", "Error reason chained_failure")
def test_a_failed_step_fails_the_next_at_once():
    first = delegate("Go.", llm=Scripted([code('(call "fail" {:reason :no_mail :message "none"})')]))
    step, llm = returning("1", context=first)
    assert (step.fail.reason, llm.requests) == ("chained_failure", [])
    assert step.fail.details["original_failure"]["reason"] == "no_mail"


@pytest.mark.spec("004", "Malli Data (Advanced)")
@pytest.mark.spec("004", "DD-8: Malli-based Schema System")
def test_a_signature_may_be_malli_data():
    number, status = [":and", ":int", [":>", 0]], [":enum", "open", "closed"]
    signature = [":=>", [":cat"], [":map", [":status", status], [":n", number]]]
    llm = Scripted([code('(call "return" {:status "odd" :n 0})'), code('(call "return" {:status "open" :n 1})')])
    step = delegate("Go.", llm=llm, signature=signature)
    assert step.value == {"status": "open", "n": 1}
    assert "- status:" in told(llm) and "- n:" in told(llm)


@pytest.mark.spec("004", "DD-1: Optional Field Syntax (`?` suffix)")
@pytest.mark.parametrize("value", ["{:id 1}", "{:id 1 :email nil :items nil}", '{:id 1 :email "e" :items ["x"]}'])
def test_an_optional_field_may_be_nil_or_absent(value):
    step, _ = returning(value, signature="{:id :int :email :string? :items [:string]?}")
    assert step.ok


@pytest.mark.spec("004", "Concurrency & Safety")
def test_missions_side_by_side_share_nothing():
    def mission(number: int):
        programs = "(memory/put :n ctx/n)", "(+ memory/n ctx/n)", '(call "return" [memory/n ctx/last])'
        return delegate("Go.", llm=Scripted(map(code, programs)), context={"n": number}).value

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(mission, range(24))) == [[number, 2 * number] for number in range(24)]


@pytest.mark.spec("004", "Dry Run Mode")
def test_a_mission_is_looked_over_without_running_it():
    found = validate("Hi {{name}}", signature="{x :itn}", tools={"fail": lambda: 1}, context={})
    assert [problem.reason for problem in found.problems] == [
        "validation_error",
        "reserved_tool_name",
        "template_error",
    ]
    assert validate("Hi {{name}}", signature="{x :int}", context={"name": "Ada"}).ok


@pytest.mark.spec("004", "Checkpoint/Resume")
def test_a_mission_goes_on_where_it_was_cut_off(tmp_path):
    class Cut(BaseException):
        pass

    llm = Scripted([code("(memory/put :found 41)"), Cut()])
    with pytest.raises(Cut):
        delegate("Go.", llm=llm, checkpoint_dir=tmp_path)
    again = Scripted([code('(call "return" (inc memory/found))')])
    step = delegate("Go.", llm=again, checkpoint_dir=tmp_path, resume_from="checkpoint-1.json")
    assert (step.value, len(step.trace)) == (42, 2)

"""A mission can be looked over, and its programs run again, without a model."""

import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest

import pyagentd.mission as public
from pyagentd.errors import UserError
from pyagentd.lisp.values import Keyword
from pyagentd.mission import Fail, LLMTool, Scripted, Step, compiled, delegate, validate
from pyagentd.mission.checks import ChainedFailure, start_context
from pyagentd.mission.options import KNOWN
from pyagentd.mission.tools import OPTIONS


@pytest.mark.spec("004", "Dry Run Mode")
@pytest.mark.parametrize(
    ("prompt", "options", "reasons"),
    [
        ("Do it", {}, []),
        ("{{x}}", {"context": {"x": 1}}, []),
        ("{{x}}", {}, ["template_error"]),
        ("Do it", {"signature": "{a"}, ["validation_error"]),
        ("Do it", {"tools": {"fail": len}}, ["reserved_tool_name"]),
        ("Do it", {"tools": {"t": 3}}, ["validation_error"]),
        ("Do it", {"signature": "(x :int) -> :any", "context": {"x": "many"}}, ["validation_error"]),
        ("Do it", {"context": {"x": "many"}, "context_signature": "{x :int}"}, ["validation_error"]),
        ("Do it", {"llm": "nobody"}, ["model_not_found"]),
        ("Do it", {"tools": {"t": lambda args: 1}}, []),
        ("Do it", {"tools": {"t": lambda args: 1}, "signature_validation": "strict"}, ["validation_error"]),
        (
            "{{x}}",
            {"signature": "{a", "tools": {"return": len}},
            ["validation_error", "reserved_tool_name", "template_error"],
        ),
    ],
)
def test_what_stands_against_a_mission_is_said_beforehand(prompt: str, options: Any, reasons: list[str]) -> None:
    found = validate(prompt, **options)
    assert [problem.reason for problem in found.problems] == reasons
    assert found.ok == bool(found) == (not reasons)
    assert all(problem.message in str(found) for problem in found.problems)
    step = delegate(prompt, **{"llm": Scripted(['(call "return" 1)']), **options})
    assert (step.fail.reason if step.fail else None) == (reasons[0] if reasons else None)


def test_an_option_that_there_is_not_is_said_beforehand_too() -> None:
    with pytest.raises(TypeError, match='Did you mean "tools"'):
        validate("x", tolls=[])


def test_programs_run_again_on_other_data() -> None:
    llm = Scripted(
        ["(memory/put :n (count ctx/xs))", "(oh dear", '(call "return" {:n memory/n :sum (reduce + 0 ctx/xs)})']
    )
    first = delegate("Add", signature="(xs [:int]) -> {n :int, sum :int}", context={"xs": [1, 2]}, llm=llm)
    again = compiled(first)
    assert first.value == {"n": 2, "sum": 3} and len(again.programs) == 2
    assert again({"xs": [1, 2, 3]}).value == {"n": 3, "sum": 6}
    assert again({"xs": ["a"]}).fail is not None and len(llm.requests) == 3


def test_programs_of_a_failure_are_not_worth_it() -> None:
    with pytest.raises(UserError, match="succeeded"):
        compiled(delegate("Add", llm=Scripted(['(fail {:reason :no :message "No"})'])))


def test_every_public_name_is_there() -> None:
    for name in public.__all__:
        assert getattr(public, name).__class__ is not type(sys), f"{name} is a module's name too"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        public.nothing  # noqa: B018


def test_options_of_tools_are_options_of_delegate() -> None:
    tool = LLMTool(prompt="x", signature=":any", options=dict.fromkeys(OPTIONS - {"context"}))
    assert tool.options
    assert OPTIONS - {"limits", "context"} <= KNOWN


@pytest.mark.parametrize(
    ("code", "without"),
    [
        ("import pyagentd.mission", ["pyagentd.lisp", "pyagentd.config", "asyncio"]),
        (
            "from pyagentd.mission import delegate, Scripted, as_tool, gather",
            ["anthropic", "pydantic", "pyagentd.llm"],
        ),
        ("from pyagentd.mission import Model", ["anthropic", "pydantic"]),
    ],
)
def test_importing_loads_only_what_is_used(code: str, without: list[str]) -> None:
    show = f"import sys; {code}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in without)]


# A step is the context of the next mission, unless it failed.


@dataclass
class Data:
    a: int


class Model:
    def model_dump(self) -> dict[str, Any]:
        return {"a": 1}


@pytest.mark.parametrize("context", [{"a": 1}, OrderedDict(a=1), Data(1), Model(), Step(ok=True, value={"a": 1})])
def test_what_has_names_is_a_context(context: Any) -> None:
    assert start_context(context) == ({"a": 1}, None)


@pytest.mark.spec("004", "Auto-Chaining with Step Structs")
@pytest.mark.spec("004", "DD-6: Auto-Chaining with Step Detection")
def test_a_step_brings_its_value_and_its_signature() -> None:
    step = Step(ok=True, value={"a": "x"}, lisp_value={Keyword("a"): Keyword("x")}, signature="() -> {a :keyword}")
    assert start_context(step) == ({Keyword("a"): Keyword("x")}, "() -> {a :keyword}")
    assert start_context(step, "{a :any}")[1] == "{a :any}"
    assert start_context(Step(ok=True, value=[1, 2], signature="[:int]"))[0] == {"value": [1, 2]}
    assert start_context(None) == ({}, None)


@pytest.mark.spec("004", "Auto-Chaining with Failed Steps")
@pytest.mark.spec("004", "Error reason chained_failure")
def test_a_failure_is_kept_whole() -> None:
    first = Step(ok=False, fail=Fail(reason="llm_error", message="No answer", op="llm", details={"attempts": 3}))
    with pytest.raises(ChainedFailure) as caught:
        start_context(first)
    assert caught.value.fail == Fail(
        reason="chained_failure",
        message="The mission whose result was to be the context failed: llm_error: No answer",
        op="llm",
        details={
            "original_failure": {
                "reason": "llm_error",
                "message": "No answer",
                "op": "llm",
                "details": {"attempts": 3},
            }
        },
    )
    llm = Scripted([])
    step = delegate("Go on", llm=llm, context=delegate("And on", llm=llm, context=first))
    assert step.fail is not None and step.fail.reason == "chained_failure" and not llm.requests
    assert step.fail.details["original_failure"]["details"]["original_failure"]["reason"] == "llm_error"


@pytest.mark.parametrize("context", [3, "text", [1], Data])
def test_what_has_no_names_is_refused(context: Any) -> None:
    with pytest.raises(UserError, match="has no names"):
        start_context(context)


def test_types_go_along() -> None:
    first = delegate(
        "Find", signature="{count :int, _ids [:int]}", llm=Scripted(['(call "return" {:count 2 :_ids [8881 8882]})'])
    )
    llm = Scripted(['(call "return" (+ ctx/count (count ctx/_ids)))'])
    step = delegate("How many are {{count}}?", context=first, llm=llm)
    assert step.value == 4
    assert "How many are 2?" in llm.texts[1] and not any("8881" in text for text in llm.texts)

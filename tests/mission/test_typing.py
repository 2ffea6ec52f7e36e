"""Type checkers infer what a mission returns; the value is an instance of the type that was its signature."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, field_validator

import pyagentd
from pyagentd.errors import UserError
from pyagentd.mission import Limits, Mission, Scripted, ToolsError, delegate
from tests.mission.answers import told

HERE = Path(__file__).parent
ROOT = Path(pyagentd.__file__).parent.parent
MISTAKES = {n for n, line in enumerate((HERE / "mistyped.py").read_text().splitlines(), 1) if "# refused" in line}


def test_the_values_are_what_the_type_checkers_infer() -> None:
    subprocess.run([sys.executable, "-m", "tests.mission.typed"], cwd=ROOT, check=True, timeout=60)


def test_mypy_infers_the_type_of_the_value_and_refuses_mistakes() -> None:
    files = [str(HERE / "typed.py"), str(HERE / "mistyped.py")]
    run = subprocess.run([sys.executable, "-m", "mypy", "--strict", *files], cwd=ROOT, capture_output=True, text=True)
    found = re.findall(r"^(\S+?):(\d+): error", run.stdout, re.MULTILINE)
    assert {(Path(file).name, int(line)) for file, line in found} == {("mistyped.py", line) for line in MISTAKES}


@pytest.mark.skipif(find_spec("pyright") is None, reason="pip install 'pyright[nodejs]'")
def test_pyright_infers_the_same() -> None:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    run = subprocess.run(
        [*command, str(HERE / "typed.py"), str(HERE / "mistyped.py")], cwd=ROOT, capture_output=True, text=True
    )
    found = json.loads(run.stdout)["generalDiagnostics"]
    lines = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found}
    assert lines == {("mistyped.py", line) for line in MISTAKES}


class Colour(Enum):
    RED = "red"


class Place(TypedDict, total=False):
    city: str
    since: date


@dataclass
class Visit:
    where: Place
    colours: set[Colour] = field(default_factory=set)
    when: list[date] = field(default_factory=list)


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("it must be even")
        return n


def answered(program: str, signature: Any, **options: Any) -> Any:
    return delegate("Go.", signature=signature, llm=Scripted([program]), **options).unwrap()


@pytest.mark.parametrize(
    ("program", "signature", "value"),
    [
        (
            '(return {:where {:city "Ulm" :since "2026-01-02"} :colours ["red"] :when ["2026-03-04"]})',
            Visit,
            Visit({"city": "Ulm", "since": date(2026, 1, 2)}, {Colour.RED}, [date(2026, 3, 4)]),
        ),
        ("(return [{:n 2} {:n 4}])", list[Even], [Even(n=2), Even(n=4)]),
        ("(return {:n 2})", Even | Place, Even(n=2)),
        ("(return nil)", Even | None, None),
        ("(return 3)", int, 3),
    ],
)
def test_the_value_is_an_instance_with_instances_inside(program: str, signature: Any, value: Any) -> None:
    assert answered(program, signature) == value


def test_what_a_model_refuses_is_told_to_the_language_model() -> None:
    llm = Scripted(["(return {:n 3})", "(return {:n 4})"])
    step = delegate("Which?", signature=Even, llm=llm)
    assert step.value == Even(n=4) and "n: Value error, it must be even" in told(llm)
    assert step.trace[0].error is not None and step.trace[0].error.reason == "validation_error"


def test_a_step_with_an_instance_is_a_context_with_its_fields() -> None:
    first = delegate("Which?", signature=Even, llm=Scripted(["(return {:n 4})"]))
    assert delegate("And?", context=first, llm=Scripted(["(return (inc ctx/n))"])).value == 5


def test_a_mission_runs_as_often_as_one_likes() -> None:
    llm = Scripted(["(return (* 2 ctx/n))"], repeat=True)
    agent = Mission("Double {{n}}.", signature="(n :int) -> :int", llm=llm)
    assert [agent.run({"n": 1}).value, agent.run({"n": 2}).value] == [2, 4]
    assert [step.value for step in agent.map([1, 2, {"n": 3}])] == [2, 4, 6]
    failed = agent.map([1, 2], llm=Scripted(["(return (* 2 ctx/n))"]))
    assert sorted(step.ok for step in failed) == [False, True]


def test_what_a_mission_cannot_run_on_is_refused() -> None:
    with pytest.raises(UserError, match="parameters a, b"):
        Mission("{{a}} and {{b}}", llm=Scripted([])).map([1])
    with pytest.raises(TypeError, match="no option 'turns'"):
        Mission("Go.", turns=3)  # type: ignore[call-overload]
    assert Mission("Go.").run().fail.reason == "validation_error"  # type: ignore[union-attr]


def test_a_mission_is_a_tool_with_a_name_or_without() -> None:
    judge = Mission("Is {{text}} urgent?", signature=bool)
    outer = '(return (call "urgent" {:text "Fire"}))'
    assert delegate("Ask.", llm=Scripted([outer, "true"]), tools=[judge.as_tool("urgent")]).value is True
    assert delegate("Ask.", llm=Scripted([outer, "true"]), tools={"urgent": judge.as_tool()}).value is True
    step = delegate("Ask.", llm=Scripted([]), tools=[judge.as_tool()])
    assert not step.ok and "Give it a name" in step.fail.message  # type: ignore[union-attr]
    with pytest.raises(ToolsError, match=r"\{\{name\}\}"):
        Mission("Who is {{name}}?", signature="(text :string) -> :bool").as_tool()


def test_the_limits_of_a_mission_are_those_of_its_tree() -> None:
    llm = Scripted(['(return (mapv (fn [n] (call "ask" {:n n})) (range 25)))', *["1"] * 25])
    ask: Sequence[Any] = [Mission("What is {{n}}?", signature=int).as_tool("ask")]
    assert delegate("Go.", llm=llm, tools=ask, limits=Limits(tree_turns=26)).ok
    step = delegate("Go.", llm=Scripted(["1"] * 9), tools=ask, limits=Limits(max_turns=7, tree_turns=4), tree_turns=3)
    assert step.fail is not None and (step.fail.reason, step.usage.turns) == ("turn_budget_exhausted", 3)
    deep = Limits(max_depth=0)
    step = delegate("Go.", llm=Scripted(['(call "ask" {:n 1})'] * 5), tools=ask, limits=deep)
    assert "nested 0 levels deep" in step.trace[0].error.message  # type: ignore[union-attr]

"""The programs in "The same in other libraries" of docs/missions.md run, and are as long as its table says.

So do those of ``make bench-missions``, which have the same results in each way.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from smolagents import ChatMessage
from smolagents import Model as SmolModel

from tests.bench.missions import WORK, Work, measured

GUIDE = Path(__file__).parents[2] / "docs/missions.md"
LIBRARIES = ("pyagentd", "pydantic-ai", "smolagents")
SECTION = GUIDE.read_text().partition("## The same in other libraries")[2].partition("\n## ")[0]
PROGRAMS = re.findall(r"```python\n# (\S+)\n(.*?)```", SECTION, re.DOTALL)
TASKS = [PROGRAMS[at : at + len(LIBRARIES)] for at in range(0, len(PROGRAMS), len(LIBRARIES))]

LETTERS = [f"{'Fire!' if n % 3 else 'Lunch?'} ({n})" for n in range(50)]
GIVEN = {
    "letter": "Fire!",
    "letters": LETTERS,
    "who": "Ada",
    "table": {"Ada": [{"amount": 120.5}, {"amount": 80.0}]},
}
RESULTS = [True, 200.5, ["Fire!" in letter for letter in LETTERS]]


def answer(text: str, spent: str, urgent: Callable[[bool], str]) -> str:
    return spent if "spend" in text else urgent("Fire!" in text)


def of_missions(request: dict[str, Any]) -> str:
    sum_up = '(return (sum-by :amount (call "expenses" {:employee "Ada"})))'
    return answer(request["prompt"], sum_up, lambda yes: f"(return {str(yes).lower()})")


async def of_pydantic_ai(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    text = str(messages[0].parts[-1].content)  # type: ignore[union-attr]
    if "spend" in text and len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("expenses", {"employee": "Ada"})])
    value: Any = "Fire!" in text
    if "spend" in text:
        value = sum(each["amount"] for part in messages[-1].parts for each in part.content)  # type: ignore
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"response": value})])


class OfSmolagents(SmolModel):
    def generate(self, messages: list[ChatMessage], *args: Any, **more: Any) -> ChatMessage:
        text = str(messages[1].content)
        sum_up = "final_answer(sum(each['amount'] for each in expenses('Ada')))"
        code = answer(text, sum_up, lambda yes: f"final_answer({yes})")
        return ChatMessage(role="assistant", content=f"<code>\n{code}\n</code>")


MODELS: dict[str, Any] = {
    "pyagentd": lambda: of_missions,
    "pydantic-ai": lambda: FunctionModel(of_pydantic_ai),
    "smolagents": lambda: OfSmolagents(model_id="scripted"),
}


def lines(program: str) -> int:
    return sum(bool(line.strip()) for line in program.splitlines())


def test_there_are_three_tasks_in_each_library() -> None:
    assert [tuple(library for library, _ in task) for task in TASKS] == [LIBRARIES] * 3


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("task", range(3))
def test_a_program_of_the_comparison_runs(tmp_path: Path, task: int, library: str) -> None:
    names = {**GIVEN, "model": MODELS[library]()}
    path = tmp_path / "program.py"  # smolagents reads the text of tools
    path.write_text(dict(TASKS[task])[library])
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert names["result"] == RESULTS[task]


def test_the_table_has_their_lines_and_ours_are_fewest() -> None:
    rows = re.findall(r"^\| [^|]+ \| (\d+)[^|]*\| (\d+)[^|]*\| (\d+)[^|]*\|$", SECTION, re.MULTILINE)
    counted = [[lines(program) for _, program in task] for task in TASKS]
    assert [[int(each) for each in row] for row in rows] == counted
    assert all(ours == min(ours, *others) for ours, *others in counted)


@pytest.mark.parametrize("work", WORK, ids=[work.name for work in WORK])
def test_the_benchmark_does_the_same_work_in_each_way(work: Work) -> None:
    for way in (work.by_hand, work.ours, work.pydantic_ai):
        measured(way, work.result, delay_s=0, times=1)

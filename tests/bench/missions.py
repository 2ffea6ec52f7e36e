"""Missions with a model that takes its time, beside plain asyncio and pydantic-ai.

``python -m tests.bench.missions``. All three get a model that answers after 0, 200 and 2,000 ms, and the same work:
one agent that takes five turns, a tree of agents (three below the first, three below each of those), fifty items with
ten at a time, and twenty questions to a model at once, asked by one program. Wall time is beside asyncio, CPU time
for a mission beside pydantic-ai.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pyagentd.mission import LLMTool, Mission, Request
from tests.bench.figure import Figure, at_most, heading

TURNS, WIDE, ITEMS, AT_ONCE, QUESTIONS = 5, 3, 50, 10, 20
TREE = 1 + WIDE + WIDE * WIDE
Model = Callable[[], Awaitable[None]]
"""Waits as long as a model takes to answer."""


def step(n: int) -> int:
    """Return the number after ``n``."""
    return n + 1


# -- plain asyncio: what no library can be faster than


async def turns_by_hand(model: Model) -> int:
    n = 0
    for _ in range(TURNS - 1):
        await model()
        n = step(n)
    await model()
    return n


async def tree_by_hand(model: Model, levels: int = 2) -> int:
    await model()
    if not levels:
        return 1
    return 1 + sum(await asyncio.gather(*(tree_by_hand(model, levels - 1) for _ in range(WIDE))))


async def items_by_hand(model: Model) -> int:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(n: int) -> int:
        async with slots:
            await model()
            return n

    return sum(await asyncio.gather(*(one(n) for n in range(ITEMS))))


async def questions_by_hand(model: Model) -> int:
    async def ask(n: int) -> int:
        await model()
        return n

    await model()
    return sum(await asyncio.gather(*(ask(n) for n in range(QUESTIONS))))


# -- missions


async def turns_of_missions(model: Model) -> Any:
    programs = [f'(memory/put :n (call "step" {{:n {n}}}))' for n in range(TURNS - 1)]

    async def llm(request: Request) -> str:
        await model()
        return [*programs, "(return memory/n)"][request["turn"] - 1]

    return (await Mission("Count to four", signature=int, tools=[step], llm=llm).arun()).unwrap()


async def tree_of_missions(model: Model) -> Any:
    async def llm(request: Request) -> str:
        await model()
        return '(return (inc (reduce + (pmap (fn [x] (call "below" {:x x})) (range 3)))))'

    async def leaf(request: Request) -> str:
        await model()
        return "(return 1)"

    agent = Mission("Count {{x}}", signature="(x :int) -> :int", llm=leaf)
    for _ in range(2):
        agent = Mission("Count {{x}}", signature="(x :int) -> :int", llm=llm, tools=[agent.as_tool("below")])
    return (await agent.arun({"x": 0})).unwrap()


async def items_of_missions(model: Model) -> Any:
    async def llm(request: Request) -> str:
        await model()
        return "(return ctx/n)"

    agent = Mission("Say {{n}}", signature="(n :int) -> :int", llm=llm)
    return sum(each.unwrap() for each in await agent.amap(range(ITEMS), max_concurrency=AT_ONCE))


async def questions_of_missions(model: Model) -> Any:
    async def llm(request: Request) -> str:
        await model()
        return f'(return (reduce + (pmap (fn [n] (call "ask" {{:n n}})) (range {QUESTIONS}))))'

    async def answer(request: Request) -> str:
        await model()
        return request["prompt"].split()[-1]

    ask = LLMTool(prompt="Say {{n}}", signature="(n :int) -> :int", llm=answer, name="ask")
    return (await Mission("Ask all", signature=int, tools=[ask], llm=llm, parallel=QUESTIONS).arun()).unwrap()


# -- pydantic-ai: a call of a tool goes back to the model, so a tree and questions take one answer more for each level


def _answers(messages: Sequence[ModelMessage]) -> int:
    return sum(isinstance(each, ModelResponse) for each in messages)


def _result(info: AgentInfo, value: int) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"response": value})])


def _sum_of_results(messages: Sequence[ModelMessage]) -> int:
    return sum(part.content for part in messages[-1].parts if part.part_kind == "tool-return")


async def turns_of_pydantic_ai(model: Model) -> int:
    async def llm(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await model()
        done = _answers(messages)
        if done == TURNS - 1:
            return _result(info, done)
        return ModelResponse(parts=[ToolCallPart("step", {"n": done})])

    return (await Agent(FunctionModel(llm), output_type=int, tools=[step]).run("Count to four")).output


def _leaf(model: Model) -> "Agent[None, int]":
    async def llm(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await model()
        text = str(messages[0].parts[-1].content)  # type: ignore[union-attr]
        return _result(info, int(text.split()[-1]))

    return Agent(FunctionModel(llm), output_type=int)


async def tree_of_pydantic_ai(model: Model) -> int:
    async def llm(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await model()
        if _answers(messages):
            return _result(info, 1 + _sum_of_results(messages))
        return ModelResponse(parts=[ToolCallPart("below", {"x": 1}) for _ in range(WIDE)])

    def above(agent: "Agent[None, int]") -> "Agent[None, int]":
        async def below(x: int) -> int:
            return (await agent.run(f"Count {x}")).output

        return Agent(FunctionModel(llm), output_type=int, tools=[below])

    return (await above(above(_leaf(model))).run("Count 0")).output


async def items_of_pydantic_ai(model: Model) -> int:
    agent, slots = _leaf(model), asyncio.Semaphore(AT_ONCE)

    async def one(n: int) -> int:
        async with slots:
            return (await agent.run(f"Say {n}")).output

    return sum(await asyncio.gather(*(one(n) for n in range(ITEMS))))


async def questions_of_pydantic_ai(model: Model) -> int:
    async def llm(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await model()
        if _answers(messages):
            return _result(info, _sum_of_results(messages))
        return ModelResponse(parts=[ToolCallPart("ask", {"n": n}) for n in range(QUESTIONS)])

    asked = _leaf(model)

    async def ask(n: int) -> int:
        return (await asked.run(f"Say {n}")).output

    return (await Agent(FunctionModel(llm), output_type=int, tools=[ask]).run("Ask all")).output


# -- measuring


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work: how it is done in each way, its result, and how many missions it is."""

    name: str
    result: int
    missions: int
    by_hand: Callable[[Model], Awaitable[int]]
    ours: Callable[[Model], Awaitable[int]]
    pydantic_ai: Callable[[Model], Awaitable[int]]


WORK = (
    Work("one agent, five turns", TURNS - 1, 1, turns_by_hand, turns_of_missions, turns_of_pydantic_ai),
    Work("a tree of 3×3 agents", TREE, TREE, tree_by_hand, tree_of_missions, tree_of_pydantic_ai),
    Work("fifty items, ten at a time", 1225, ITEMS, items_by_hand, items_of_missions, items_of_pydantic_ai),
    Work(
        "twenty questions in one program",
        190,
        1 + QUESTIONS,
        questions_by_hand,
        questions_of_missions,
        questions_of_pydantic_ai,
    ),
)


def measured(work: Callable[[Model], Awaitable[int]], result: int, delay_s: float, times: int) -> tuple[float, float]:
    """Return the shortest wall time and the shortest CPU time of one run, in seconds."""

    async def model() -> None:
        await asyncio.sleep(delay_s)

    async def runs() -> list[tuple[float, float]]:
        found = []
        for _ in range(times):
            wall, cpu = time.perf_counter(), time.process_time()
            assert await work(model) == result
            found.append((time.perf_counter() - wall, time.process_time() - cpu))
        return found

    walls, cpus = zip(*asyncio.run(runs()), strict=True)
    return min(walls), min(cpus)


def import_ms() -> float:
    """Return how long importing the library takes beyond starting Python, in milliseconds; the best of fifteen."""
    code = "import time; a = time.perf_counter(); import pyagentd.mission; print(time.perf_counter() - a)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(15)
    ]
    return min(float(run.stdout) for run in runs) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.missions", description=__doc__)
    parser.add_argument("--delays", type=int, nargs="+", default=[0, 200, 2000], metavar="MS")
    delays = parser.parse_args().delays
    print(heading(), flush=True)
    print(Figure(name="import pyagentd.mission", value=import_ms(), unit="ms", target=at_most(40)).line(), flush=True)
    for work in WORK:
        for delay_ms in delays:
            times = 1 if delay_ms >= 1000 else 3 if delay_ms else 20
            wall, cpu, beside_cpu = 0.0, 0.0, 0.0
            by_hand, _ = measured(work.by_hand, work.result, delay_ms / 1000, times)
            wall, cpu = measured(work.ours, work.result, delay_ms / 1000, times)
            beside_wall, beside_cpu = measured(work.pydantic_ai, work.result, delay_ms / 1000, times)
            name = f"{work.name}, model of {delay_ms:,} ms"
            figures = (
                Figure(
                    name=f"{name}: wall",
                    value=wall * 1000,
                    unit="ms",
                    reference=by_hand * 1000,
                    beside="asyncio",
                    target=at_most(1.15, "ratio") if delay_ms >= 200 else None,
                ),
                Figure(
                    name="  the same",
                    value=wall * 1000,
                    unit="ms",
                    reference=beside_wall * 1000,
                    beside="pydantic-ai",
                ),
                Figure(
                    name="  CPU of a mission",
                    value=cpu * 1000 / work.missions,
                    unit="ms",
                    reference=beside_cpu * 1000 / work.missions,
                    beside="pydantic-ai",
                    target=at_most(1, "ratio"),
                ),
            )
            for figure in figures:
                print(figure.line(), flush=True)


if __name__ == "__main__":
    main()

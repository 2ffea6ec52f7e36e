"""What type checkers infer of missions; ``test_typing`` runs mypy and pyright over it, and the file itself."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, assert_type

from pydantic import BaseModel

from pyagentd.mission import Limits, LLMTool, Mission, Request, Scripted, Step, adelegate, delegate


@dataclass
class Person:
    name: str
    age: int


@dataclass
class Team:
    people: list[Person]


class Size(TypedDict):
    width: int
    height: int


class Receipt(BaseModel):
    total: float
    lines: list[str] = []


def search(query: str) -> list[str]:
    return [query]


async def fetch(page: int) -> list[int]:
    return [page]


def model(request: Request) -> str:
    assert_type(request["turn"], int)
    return '(return {:name "Ada" :age 36})'


async def served(request: Request) -> dict[str, Any]:
    return {"content": '(return {:people [{:name "Ada" :age 36}]})', "cost_usd": 0.0}


step = delegate("Who?", signature=Person, llm=model, tools=[search, fetch], limits=Limits(timeout_s=2.5))
assert_type(step, Step[Person])
assert_type(step.value, Person)
assert step.unwrap().name == "Ada" and step.value == Person("Ada", 36)

size = delegate("How large?", signature=Size, llm=Scripted(["(return {:width 2 :height 3})"]), context=step)
assert_type(size.value["width"], int)
assert size.value == {"width": 2, "height": 3}

receipt = delegate(
    "How much?",
    signature=Receipt,
    llm=Scripted(["(return {:total 2})"]),
    mission_timeout_s=timedelta(minutes=1),
    tools={"search": (search, "(query :string) -> [:string]")},
)
assert_type(receipt.value, Receipt)
assert receipt.value == Receipt(total=2.0)

anything = delegate("What?", signature="-> :int", llm=lambda request: "(return 1)", timeout_ms=1000)
assert_type(anything, Step[Any])

team = asyncio.run(adelegate("Who are they?", signature=Team, llm=served))
assert_type(team.value.people, list[Person])
assert team.value.people[0] == Person("Ada", 36)

agent = Mission("Who is {{name}}?", signature=Person, tools=[search], llm=model)
assert_type(agent, Mission[Person])
assert_type(agent.run({"name": "Ada"}).value, Person)
assert_type(agent.map(["Ada", "Ada"]), list[Step[Person]])
assert [each.value.age for each in agent.map(["Ada", "Ada"])] == [36, 36]


async def run() -> Person:
    (mapped,) = await agent.amap([{"name": "Ada"}])
    assert mapped.ok
    return (await agent.arun({"name": "Ada"})).unwrap()


assert asyncio.run(run()).age == 36
tool = agent.as_tool("who", "Finds people.")
assert_type(tool, LLMTool)
assert tool(name="Ada") == Person("Ada", 36)

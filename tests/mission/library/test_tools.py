"""Whatever is registered as a tool becomes one: a name, a contract, a description and something to call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from pyagentd.lisp.values import Keyword
from pyagentd.mission import LLMTool, Tool, ToolsError, as_tool, normalize, parse_signature

SEARCH = "(query :string, limit :int?) -> [:string]"


def search(query: str, limit: int = 10) -> list[str]:
    """Search the archive."""
    return [query] * limit


def bare(x, y=1):  # type: ignore[no-untyped-def]
    return x


async def later(x: int) -> int:
    return x


@dataclass
class User:
    id: int
    name: str


def greet(user: User) -> str:
    return user.name


def one(given: Any, **options: Any) -> Tool:
    return normalize({"t": given}, **options)["t"]


@pytest.mark.spec("004", "Tool Normalization & Schema Extraction")
@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (search, "t(query :string, limit :int?) -> [:string]"),
        ((search, "(q :string) -> :any"), "t(q :string) -> :any"),
        ((search, "(q :string) -> :any", {"validation": "strict"}), "t(q :string) -> :any"),
        ((search, {"description": "other"}), "t(query :string, limit :int?) -> [:string]"),
        ({"function": search, "signature": "(q :string) -> :any"}, "t(q :string) -> :any"),
        (Tool(name="other", function=search, signature=parse_signature(SEARCH)), f"t{SEARCH}"),
        (LLMTool(prompt="{{a}}", signature="(a :string) -> :bool"), "t(a :string) -> :bool"),
        ({"prompt": "{{a}}", "signature": "(a :string) -> :bool"}, "t(a :string) -> :bool"),
        (as_tool(prompt="{{a}}", signature="(a :string) -> :bool", llm=len), "t(a :string) -> :bool"),
        (lambda args: args, "t(...) -> :any"),
        ((lambda args: args, "(a :int) -> :int"), "t(a :int) -> :int"),
        ((search, "{count :int}"), "t() -> {count :int}"),
        (later, "t(x :int) -> :int"),
        (greet, "t(user {id :int, name :string}) -> :string"),
        (bare, "t(x :any, y :any?) -> :any"),
    ],
)
def test_every_form_has_a_schema(given: Any, schema: str) -> None:
    tool = one(given)
    assert tool.schema() == schema and tool.name == "t"


@pytest.mark.parametrize(
    ("given", "description"),
    [
        (search, "Search the archive."),
        ((search, SEARCH), "Search the archive."),
        ((search, SEARCH, {"description": "Find."}), "Find."),
        (bare, ""),
        (LLMTool(prompt="x", signature=":any", description="Thinks."), "Thinks."),
        ({"prompt": "x", "signature": ":any"}, ""),
    ],
)
def test_a_tool_is_described(given: Any, description: str) -> None:
    assert one(given).description == description


def test_a_sequence_of_functions_brings_its_own_names() -> None:
    assert [*normalize([search, Tool(name="other")])] == ["search", "other"]
    assert normalize(None) == {}


@pytest.mark.spec("004", "Reserved Tool Names")
@pytest.mark.spec("004", "Error reason reserved_tool_name")
@pytest.mark.parametrize("name", ["return", "fail"])
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(ToolsError, match="reserved") as caught:
        normalize({name: search})
    assert caught.value.reason == "reserved_tool_name"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, 'Tool "t": it is neither'),
        ("(a :int) -> :int", "neither"),
        ((search, "(a"), "signature cannot be read"),
        ((search, SEARCH, {"validate": "strict"}), "unknown option 'validate'"),
        ((search, SEARCH, {"validation": "very"}), "not one of enabled, warn_only"),
        ({"signature": ":any"}, "needs a prompt"),
        ({"prompt": "x"}, "needs a signature"),
        ({"prompt": "x", "signature": "(("}, "cannot be read"),
        ({"prompt": "{{#x}}", "signature": "(x :string) -> :any"}, "prompt of a tool cannot be read"),
        ({"prompt": "{{y}}", "signature": "(x :string) -> :any"}, "has {{y}}, and the signature"),
        ({"prompt": "{{u.nome}}", "signature": "(u {name :string}) -> :any"}, "{{u.nome}}"),
        ({"prompt": "x", "signature": ":any", "max_turn": 1}, 'Did you mean "max_turns"'),
    ],
)
def test_what_is_no_tool_is_named(given: Any, said: str) -> None:
    with pytest.raises(ToolsError, match="t") as caught:
        one(given)
    assert said in str(caught.value) and caught.value.reason == "validation_error"


def test_a_tool_needs_a_name() -> None:
    with pytest.raises(ToolsError, match="without a name"):
        normalize([lambda x: x])
    with pytest.raises(ToolsError, match="is a string"):
        normalize({3: search})  # type: ignore[dict-item]


@pytest.mark.spec("004", "Nested Data & Expansion")
def test_a_placeholder_may_reach_into_a_parameter() -> None:
    signature = "(user {name :string, id :int}) -> {summary :string}"
    assert (
        one({"prompt": "Profile of {{user.name}} ({{user.id}})", "signature": signature}).schema() == f"t{signature}"
    )


@pytest.mark.spec("004", "tools vs tool_catalog")
def test_of_a_catalog_a_signature_is_enough() -> None:
    tool = one(SEARCH, catalog=True)
    assert tool.schema() == f"t{SEARCH}"
    with pytest.raises(ToolsError, match="for planning"):
        tool.call({})


@pytest.mark.spec("004", "Implicit Conversion")
@pytest.mark.parametrize(
    ("args", "expected", "warned"),
    [
        ({"query": "a", "limit": 2}, {"query": "a", "limit": 2}, ""),
        ({Keyword("query"): "a", Keyword("limit"): 2}, {"query": "a", "limit": 2}, ""),
        ({"query": "a", "limit": "2"}, {"query": "a", "limit": 2}, "[limit]"),
        ({"query": Keyword("a")}, {"query": "a"}, "[query]"),
        ({"query": "a"}, {"query": "a"}, ""),
        ({"query": "a", "colour": 1}, {"query": "a"}, '"colour" was left out: this tool takes query, limit'),
    ],
)
def test_arguments_are_converted_and_it_is_told(args: Any, expected: dict[str, Any], warned: str) -> None:
    prepared = one((search, SEARCH)).prepare(args)
    assert prepared.args == expected and not prepared.problems
    assert warned in " ".join(prepared.warnings) and bool(warned) == bool(prepared.warnings)


def test_names_may_be_spelled_with_a_dash() -> None:
    assert one((len, "(user_id :int) -> :any")).prepare({Keyword("user-id"): 1}).args == {"user_id": 1}
    assert one((len, "(user-id :int) -> :any")).prepare({"user_id": 1}).args == {"user-id": 1}
    assert one((len, "(_ids [:int]) -> :any")).prepare({"_ids": [1]}).args == {"_ids": [1]}


@pytest.mark.spec("004", "Tool Call Format")
@pytest.mark.parametrize(
    ("args", "path"),
    [({}, "query"), ({"query": "a", "limit": "many"}, "limit"), ({"query": {"a": 1}}, "query"), ([1], ""), ("a", "")],
)
def test_what_does_not_fit_is_named(args: Any, path: str) -> None:
    prepared = one((search, SEARCH)).prepare(args)
    assert [problem.path for problem in prepared.problems] == [path]


@pytest.mark.spec("004", "Zero-Argument Tool Calls")
@pytest.mark.parametrize("args", [None, {}])
def test_no_arguments_are_an_empty_map(args: Any) -> None:
    assert one(lambda args: args).prepare(args).args == {}
    assert one(lambda: 7).call(one(lambda: 7).prepare(args).args) == 7


@pytest.mark.spec("004", "Per-Tool Validation Mode")
@pytest.mark.parametrize(
    ("mode", "problems", "warnings", "args"),
    [
        ("enabled", ["limit"], 1, None),
        ("strict", ["limit", "colour"], 0, None),
        ("warn_only", [], 2, {"query": "a", "limit": "many"}),
        ("disabled", [], 0, {"query": "a", "limit": "many", "colour": 1}),
    ],
)
def test_each_tool_has_a_mode_of_its_own(mode: str, problems: list[str], warnings: int, args: Any) -> None:
    given = {"query": "a", "limit": "many", "colour": 1}
    for mission in ("enabled", "strict", "disabled"):
        prepared = one((search, SEARCH, {"validation": mode})).prepare(given, mission)
        assert [problem.path for problem in prepared.problems] == problems
        assert len(prepared.warnings) == warnings and (args is None or prepared.args == args)
    assert one((search, SEARCH)).mode(mode) == mode, "without one it is the mission's"


@pytest.mark.parametrize(
    ("mode", "value", "fits"),
    [
        ("enabled", ["a"], True),
        ("enabled", [1], False),
        ("warn_only", [1], False),
        ("disabled", [1], True),
        ("strict", ["a"], True),
    ],
)
def test_results_are_checked(mode: str, value: Any, fits: bool) -> None:
    assert bool(one((search, SEARCH)).check(value, mode)) is not fits
    assert one(lambda args: args).check(value, mode) == ()


def test_only_strict_minds_fields_nobody_declared() -> None:
    tool = one((len, "() -> {a :int}"))
    assert not tool.check({"a": 1, "b": 2}) and tool.check({"a": 1, "b": 2}, "strict")


@pytest.mark.parametrize(
    ("given", "specified"),
    [
        (search, True),
        (bare, False),
        ((bare, SEARCH), True),
        (lambda args: args, False),
        ({"prompt": "", "signature": ":any"}, True),
    ],
)
def test_a_contract_is_stated_or_guessed(given: Any, specified: bool) -> None:
    assert one(given).specified is specified


async def test_an_async_function_gives_its_awaitable() -> None:
    assert await one(later).call({"x": 3}) == 3


class Person(BaseModel):
    name: str
    born: date | None = None


def test_a_function_of_models_gets_and_gives_models() -> None:
    def oldest(people: list[Person]) -> Person:
        """Find the oldest."""
        return min(people, key=lambda person: person.born or date.max)

    tool = one(oldest)
    assert tool.schema().startswith("t(people [{name :string, born ")
    args = tool.prepare({"people": [{"name": "Ada", "born": "1815-12-10"}, {"name": Keyword("grace")}]}).args
    assert tool.call(args) == Person(name="Ada", born=date(1815, 12, 10))


def test_a_function_gets_what_its_hints_name() -> None:
    tool = one(greet)
    assert tool.call(tool.prepare({"user": {"id": "1", "name": "Ada"}}).args) == "Ada"

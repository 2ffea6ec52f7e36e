"""Whatever is registered as a tool becomes one: a name, a contract, a description and something to call."""

import enum
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel

from pyagentd.lisp.values import Keyword
from pyagentd.mission import LLMTool, Scripted, Tool, ToolsError, as_tool, delegate, normalize, tools
from pyagentd.mission.signature import parse
from pyagentd.mission.signature.hints import construct

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
        (Tool(name="other", function=search, signature=parse(SEARCH)), f"t{SEARCH}"),
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


# Arguments under string keys reach a Python function as its parameters and hints say.


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Line:
    points: list[Point]
    colour: Colour | None = None


class Dumped:
    """What a pydantic model looks like from outside."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @classmethod
    def model_validate(cls, data: dict[str, Any]) -> "Dumped":
        return cls(data)


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (float, True, True),
        (str, "a", "a"),
        (Any, {"a": 1}, {"a": 1}),
        (Colour, "red", Colour.RED),
        (Colour, "BLUE", Colour.BLUE),
        (Colour | None, "red", Colour.RED),
        (Colour | None, None, None),
        (int | str, "a", "a"),
        (str | Colour, "red", "red"),
        (date, "2026-01-02", date(2026, 1, 2)),
        (datetime, "2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5)),
        (PurePosixPath, "/a/b", PurePosixPath("/a/b")),
        (list[UUID] | None, [str(UUID(int=7))], [UUID(int=7)]),
        (Decimal, 1.1, Decimal("1.1")),
        (Decimal, 3, Decimal(3)),
        (list[Colour], ["red"], [Colour.RED]),
        (Sequence[Colour], ["red"], [Colour.RED]),
        (set[int], [1, 1], {1}),
        (frozenset[int], [1], frozenset({1})),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[Colour, int], ["red", 2], (Colour.RED, 2)),
        (tuple, [1], (1,)),
        (dict[str, Colour], {"a": "red"}, {"a": Colour.RED}),
        (Mapping[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (Literal["a", "b"], "a", "a"),
        (Annotated[Colour, "which"], "red", Colour.RED),
        (Point, {"x": 1, "y": 2}, Point(1, 2.0)),
        (Point, {"x": 1, "unknown": 2}, Point(1)),
        (Line, {"points": [{"x": 1}], "colour": "blue"}, Line([Point(1)], Colour.BLUE)),
        (Point, Point(1), Point(1)),
    ],
)
def test_a_value_becomes_what_the_hint_asks_for(hint: Any, value: Any, expected: Any) -> None:
    made = construct(hint, value)
    assert made == expected and type(made) is type(expected)


def test_a_model_is_known_by_its_model_validate() -> None:
    assert construct(Dumped, {"a": 1}).data == {"a": 1}


@pytest.mark.parametrize(("hint", "value"), [(Colour, "green"), (date, "tomorrow"), (datetime, "x")])
def test_what_cannot_be_one_is_refused(hint: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=r"green|tomorrow|x"):
        construct(hint, value)


def test_a_dataclass_without_a_field_is_refused() -> None:
    with pytest.raises(TypeError, match="'x'"):
        construct(Point, {"y": 1.0})


def plain(query: str, limit: int = 10, *, exact: bool = False) -> tuple[str, int, bool]:
    return query, limit, exact


def positional(a: int, b: int, /) -> int:
    return a - b


def whole(args: dict[str, Any]) -> dict[str, Any]:
    return args


def anything(**named: Any) -> dict[str, Any]:
    return named


def spelled(user_id: int) -> int:
    return user_id


class Shop:
    def find(self, name: str) -> str:
        return f"found {name}"

    def __call__(self, name: str) -> str:
        return f"called {name}"


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (plain, {"query": "a"}, ("a", 10, False)),
        (plain, {"query": "a", "limit": 3, "exact": True}, ("a", 3, True)),
        (plain, {"query": "a", "limit": None}, ("a", 10, False)),
        (positional, {"a": 3, "b": 1}, 2),
        (whole, {"x": 1, "y": 2}, {"x": 1, "y": 2}),
        (whole, {}, {}),
        (lambda args: args["x"], {"x": 1}, 1),
        (anything, {"x": 1}, {"x": 1}),
        (spelled, {"user-id": 7}, 7),
        (Shop().find, {"name": "a"}, "found a"),
        (Shop(), {"name": "a"}, "called a"),
        (functools.partial(plain, limit=2), {"query": "a"}, ("a", 2, False)),
        (Pair, {"a": 1, "b": 2}, Pair(1, 2)),
        (lambda: 5, {}, 5),
        (plain, {"query": "a", "unknown": 1}, ("a", 10, False)),
    ],
)
def test_a_function_gets_its_arguments_by_name(function: Any, args: dict[str, Any], expected: Any) -> None:
    assert tools.call_function(function, args) == expected


def test_what_is_missing_is_said_in_words() -> None:
    with pytest.raises(TypeError, match="the argument query is missing"):
        tools.call_function(plain, {"limit": 1})


def test_a_function_with_hints_gets_what_they_name() -> None:
    def length(line: Line, unit: Colour = Colour.RED) -> tuple[int, Colour]:
        return len(line.points), unit

    assert tools.call_function(length, {"line": {"points": [{"x": 1}]}, "unit": "blue"}) == (1, Colour.BLUE)


@pytest.mark.spec("004", "Tool Definition Syntaxes")
def test_a_function_of_one_other_parameter_gets_the_dict_that_its_signature_states() -> None:
    signature = parse("(id :int) -> :int")
    assert tools.call_function(lambda given: given["id"], {"id": 4}, signature) == 4
    assert tools.call_function(lambda id: id, {"id": 4}, signature) == 4


def test_a_built_in_that_does_not_tell_its_parameters_gets_them_in_order() -> None:
    assert tools.call_function(math.hypot, {"x": 3, "y": 4}, parse("(x :float, y :float) -> :float")) == 5.0


def test_a_hint_that_names_nothing_is_no_obstacle() -> None:
    def late(x: "Unheard") -> Any:  # noqa: F821  (no such name is the case)
        return x

    assert tools.call_function(late, {"x": 1}) == 1


@pytest.mark.parametrize(
    ("function", "expected"),
    [(plain, ""), (Shop(), ""), (lambda: 1, ""), (math.hypot, "hypot(*coordinates) -> value")],
)
def test_without_a_docstring_of_its_own_a_function_is_not_described(function: Any, expected: str) -> None:
    assert tools.docstring_summary(function) == expected


def test_the_first_paragraph_of_a_docstring_describes_it() -> None:
    def documented() -> None:
        """Find the customers
        of a shop.

        Args:
            none.
        """

    assert tools.docstring_summary(documented) == "Find the customers of a shop."


def test_a_tool_with_keyword_arguments_gets_what_it_is_given() -> None:
    def send(to: str, **more: Any) -> list[Any]:
        return [to, more]

    llm = Scripted(['(return (call "send" {:to "Ada" :subject "x" :copies 2}))'])
    step = delegate("Send.", llm=llm, tools=[send])
    assert step.value == ["Ada", {"subject": "x", "copies": 2}]
    assert step.warnings == ()


def test_a_tool_whose_arguments_have_no_names_refuses_named_ones() -> None:
    def total(*numbers: int) -> int:
        return sum(numbers)

    (problem,) = normalize([total])["total"].prepare({"numbers": [1, 2]}).problems
    assert "is not an argument of this tool" in problem.message
    assert normalize([total])["total"].call({}) == 0

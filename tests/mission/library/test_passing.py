"""Arguments under string keys reach a Python function as its parameters and hints say."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal, NamedTuple

import pytest

from pyagentd.mission import parse_signature, tools
from pyagentd.mission.signature.hints import constructed


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
    def model_validate(cls, data: dict[str, Any]) -> Dumped:
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
    made = constructed(hint, value)
    assert made == expected and type(made) is type(expected)


def test_a_model_is_known_by_its_model_validate() -> None:
    assert constructed(Dumped, {"a": 1}).data == {"a": 1}


@pytest.mark.parametrize(("hint", "value"), [(Colour, "green"), (date, "tomorrow"), (datetime, "x")])
def test_what_cannot_be_one_is_refused(hint: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=r"green|tomorrow|x"):
        constructed(hint, value)


def test_a_dataclass_without_a_field_is_refused() -> None:
    with pytest.raises(TypeError, match="'x'"):
        constructed(Point, {"y": 1.0})


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
    signature = parse_signature("(id :int) -> :int")
    assert tools.call_function(lambda given: given["id"], {"id": 4}, signature) == 4
    assert tools.call_function(lambda id: id, {"id": 4}, signature) == 4


def test_a_built_in_that_does_not_tell_its_parameters_gets_them_in_order() -> None:
    assert tools.call_function(math.hypot, {"x": 3, "y": 4}, parse_signature("(x :float, y :float) -> :float")) == 5.0


def test_a_hint_that_names_nothing_is_no_obstacle() -> None:
    def late(x: Unheard) -> Any:  # noqa: F821
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

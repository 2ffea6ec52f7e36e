"""What arguments are turned into, and what is refused."""

from datetime import date, datetime

import pytest

from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature import parse

K = Keyword


def coerce(type, value, strict=False):
    return parse(f"(x {type}) -> :any").coerce_input({"x": value}, strict)


KEPT = [
    (":string", "a"),
    (":int", 42),
    (":float", 0.5),
    (":bool", False),
    (":keyword", K("a")),
    (":any", [1, {"a": None}]),
    (":map", {K("a"): {"b": 1}}),
    (":nil", None),
    (":datetime", "2026-11-22T10:00:00Z"),
    (":int?", None),
    ("[:int]", [1, 2]),
    ("[:int?]", [None]),
    ("{}", {}),
    ("{id :int, email :string?}", {"id": 1}),
    ("{id :int, email :string?}", {"id": 1, "email": None}),
    ("[:map-of :string :int]", {K("a"): 1, "b": 2}),
    ("[:map-of :int :int]", {1: 1}),
    ('[:enum "a" 1]', "a"),
    ("[:enum :a]", K("a")),
    ("[:or :int :string]", "42"),
    ("[:or :string :int]", 42),
    ("[:and :int [:> 0]]", 5),
    ("[:vector {:min 1} :int]", [1]),
    ("[:and {a :int} {b :int}]", {"a": 1, "b": 2}),
    ("[:and :int :float]", 5),
]


@pytest.mark.spec("004", "Implicit Conversion")
@pytest.mark.parametrize(("type", "value"), KEPT)
def test_what_fits_stays(type, value):
    result = coerce(type, value)
    assert (result.value, result.warnings, result.problems) == ({"x": value}, (), ())


CONVERTED = [
    (":int", "42", 42, "coerced string to integer"),
    (":int", "-5", -5, "coerced string to integer"),
    (":int?", "5", 5, "coerced string to integer"),
    (":float", "3.14", 3.14, "coerced string to float"),
    (":float", "42", 42.0, "coerced string to float"),
    (":float", "1e3", 1000.0, "coerced string to float"),
    (":float", " 0.5 ", 0.5, "coerced string to float"),
    (":bool", "true", True, "coerced string to boolean"),
    (":bool", "false", False, "coerced string to boolean"),
    (":bool", K("true"), True, "coerced keyword to boolean"),
    (":string", K("pending"), "pending", "coerced keyword to string"),
    (":string", True, "true", "coerced bool to string"),
    (":string", date(2026, 11, 22), "2026-11-22", "coerced date to string"),
    (":keyword", "pending", K("pending"), "coerced string to keyword"),
    (":datetime", "2026-11-22", "2026-11-22T00:00:00", "coerced string to datetime"),
    (":datetime", date(2026, 11, 22), "2026-11-22T00:00:00", "coerced date to datetime"),
    ('[:enum "a"]', K("a"), "a", "coerced keyword to string"),
    ("[:enum :a]", "a", K("a"), "coerced string to keyword"),
    ("[:or :int :bool]", "true", True, "coerced string to boolean"),
    ("[:or :int :float]", "2.5", 2.5, "coerced string to float"),
    ("[:and :int [:> 0]]", "5", 5, "coerced string to integer"),
    ("[:int {:min 1}]", "5", 5, "coerced string to integer"),
]


@pytest.mark.spec("004", "Implicit Conversion")
@pytest.mark.parametrize(("type", "value", "expected", "warning"), CONVERTED)
def test_what_can_be_converted_is_with_a_warning(type, value, expected, warning):
    result = coerce(type, value)
    assert result.problems == ()
    assert result.value == {"x": expected}
    assert [(one.path, one.message) for one in result.warnings] == [("x", warning)]
    (made,) = result.value.values()
    assert made.__class__ is expected.__class__


@pytest.mark.parametrize(("value", "expected"), [(3, 3.0), (-(2**60), -float(2**60))])
def test_an_int_becomes_a_float_silently(value, expected):
    result = coerce(":float", value)
    assert isinstance(result.value["x"], float)
    assert (result.value["x"], result.warnings) == (expected, ())


def test_a_python_datetime_becomes_text():
    assert coerce(":datetime", datetime(2026, 11, 22, 10)).value == {"x": "2026-11-22T10:00:00"}


REFUSED = [
    (":int", "hello", "x", "cannot coerce string to integer"),
    (":int", "42abc", "x", "cannot coerce string to integer"),
    (":int", " 42", "x", "cannot coerce string to integer"),
    (":int", "٤٢", "x", "cannot coerce string to integer"),
    (":int", "1" * 5000, "x", "cannot coerce string to integer"),
    (":int", 42.0, "x", "cannot coerce float to integer"),
    (":int", True, "x", "cannot coerce bool to integer"),
    (":int", None, "x", "cannot coerce nil to integer"),
    (":float", "3.5x", "x", "cannot coerce string to float"),
    (":float", "nan", "x", "cannot coerce string to float"),
    (":float", "1e999", "x", "cannot coerce string to float"),
    (":float", 10**400, "x", "cannot coerce int to float: it is too large"),
    (":bool", "yes", "x", "cannot coerce string to boolean"),
    (":bool", "TRUE", "x", "cannot coerce string to boolean"),
    (":bool", 1, "x", "cannot coerce int to boolean"),
    (":string", 42, "x", "cannot coerce int to string"),
    (":string", None, "x", "cannot coerce nil to string"),
    (":string", ["a"], "x", "cannot coerce list to string"),
    (":keyword", "two words", "x", "cannot coerce string to keyword"),
    (":keyword", "", "x", "cannot coerce string to keyword"),
    (":keyword", None, "x", "cannot coerce nil to keyword"),
    (":datetime", "soon", "x", "cannot coerce string to datetime"),
    (":map", [], "x", "cannot coerce list to map"),
    (":nil", 1, "x", "cannot coerce int to nil"),
    ("[:int]", "1", "x", "expected list, got string"),
    ("[:int]", [1, "x"], "x[1]", "cannot coerce string to integer"),
    ("{id :int}", [], "x", "expected map, got list"),
    ("{id :int}", {}, "x.id", "missing required field, expected int"),
    ("{id :int}", {"id": "a"}, "x.id", "cannot coerce string to integer"),
    ("[:map {:closed true} [:id :int]]", {"id": "1", "y": 2}, "x.y", "unexpected field"),
    ("[:map-of :int :int]", {"a": 1}, "x.a", "cannot coerce string to integer"),
    ("[:map-of {:max 0} :string :int]", {"a": 1}, "x", "expected map of at most 0 entries"),
    ('[:enum "a" "b"]', "c", "x", 'expected one of "a", "b", got string'),
    ("[:or :int :bool]", "x", "x", "expected int or bool, got string"),
    ("[:and :int [:> 0]]", "-5", "x", "expected number > 0, got int"),
    ("[:int {:min 1}]", "0", "x", "expected int of at least 1"),
    ("[:string {:max 1}]", K("ab"), "x", "expected string of at most 1 character"),
    ("[:vector {:min 2} :int]", ["1"], "x", "expected list of at least 2 items"),
]


@pytest.mark.spec("004", "Implicit Conversion")
@pytest.mark.parametrize(("type", "value", "path", "message"), REFUSED)
def test_what_would_lose_something_is_refused(type, value, path, message):
    result = coerce(type, value)
    assert [(one.path, one.message) for one in result.problems] == [(path, message)]
    assert result.value == {"x": value}


def test_only_declared_fields_are_kept_under_their_own_keys():
    signature = parse("(id :int, user {name :string}, meta :map) -> :any")
    given = {K("id"): "1", "user": {K("name"): "A", "age": 3}, "meta": {"any": 1}, "extra": 1}
    assert signature.coerce_input(given).value == {K("id"): 1, "user": {K("name"): "A"}, "meta": {"any": 1}}


def test_strict_refuses_what_is_not_declared():
    signature = parse("(id :int) -> :any")
    assert [str(one) for one in signature.coerce_input({"id": 1, "x": 2}, strict=True).problems] == [
        "[x]: unexpected field"
    ]


def test_keys_of_a_map_of_are_converted_too():
    result = coerce("[:map-of :int :int]", {"1": "2", K("3"): 4})
    assert result.value == {"x": {1: 2, 3: 4}}
    assert len(result.warnings) == 3


def test_every_problem_and_every_warning_is_told():
    result = parse("(a :int, b :int, c :int) -> :any").coerce_input({"a": "1", "b": "x"})
    assert [one.path for one in result.warnings] == ["a"]
    assert [one.path for one in result.problems] == ["b", "c"]


def test_a_hundred_problems_are_enough():
    result = parse("(a [:int]) -> :any").coerce_input({"a": ["x"] * 100_000})
    assert len(result.problems) == 100


def test_arguments_are_a_map():
    assert [one.message for one in parse("() -> :int").coerce_input([1]).problems] == ["expected map, got list"]
    assert parse("() -> :int").coerce_input({"a": 1}).value == {}

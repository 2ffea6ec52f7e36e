"""Values, their keys, their order, their text, their encoding, and the way from and to Python."""

import copy
import enum
import json
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from pyagentd import lisp
from pyagentd.lisp import Keyword, LispError, LispSet
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.serialization import decode, encode, readable, size, text
from pyagentd.lisp.values import (
    as_key,
    compare,
    equal,
    from_key,
    from_python,
    in_order,
    members,
    pairs,
    to_python,
    type_name,
)

A, B = Keyword("a"), Keyword("b")


def value(program: str) -> Any:
    return lisp.run(program).value


def test_there_is_one_keyword_of_each_name() -> None:
    assert Keyword("a") is A
    assert pickle.loads(pickle.dumps(A)) is A
    assert copy.deepcopy({A: [A]}) == {A: [A]}


@pytest.mark.parametrize(
    "program", ["nil", "true", "false", "1", "1.5", '"a"', ":a", "[1 [true]]", "{:a [1]}", "#{1 [2]}", "(expt 2 100)"]
)
def test_any_value_can_be_a_key(program: str) -> None:
    program = program.replace("(expt 2 100)", "1267650600228229401496703205376")
    given = value(program)
    assert equal(from_key(as_key(given)), given)
    assert lisp.run(f"(get {{{program} :found}} {program})").value is Keyword("found")
    assert lisp.run(f"(contains? #{{{program}}} {program})").value is True


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1", "1.0", True),
        ("1", "true", False),
        ("0", "false", False),
        ("[1]", "[true]", False),
        ("{:a 1}", "{:a 1.0}", True),
        ("{:a 1}", '{"a" 1}', False),
        ("{:a true}", "{:a 1}", False),
        ("#{1 2}", "#{2 1}", True),
        ("#{true}", "#{1}", False),
        ('"a"', ":a", False),
        ("nil", "false", False),
        ("[]", "nil", False),
        ("[1 2]", "[1 2 3]", False),
        ('#"a"', '#"a"', True),
    ],
)
def test_equality(one: str, other: str, same: bool) -> None:
    assert value(f"(= {one} {other})") is same
    assert value(f"(let [a {one} b {other}] (= [a] [b]))") is same
    assert equal(value(other), value(one)) is same


def test_order_within_a_type_and_nil_first() -> None:
    assert [compare(1, 2.5), compare("b", "a"), compare(None, 1), compare([1, 2], [1]), compare(A, B)] == [
        -1,
        1,
        -1,
        1,
        -1,
    ]
    with pytest.raises(LispError) as caught:
        compare(1, "a")
    assert caught.value.message == "cannot compare integer with string"


def test_maps_and_sets_are_gone_through_in_the_order_of_their_keys() -> None:
    assert pairs({B: 1, A: 2}) == [[A, 2], [B, 1]]
    assert members(value('#{3 1 "x" nil :k true [2] [1]}')) == [None, True, 1, 3, Keyword("k"), "x", [1], [2]]
    assert in_order({"b": 1, 2: 1, 1.5: 1}) == [1.5, 2, "b"]


@pytest.mark.parametrize("what", ["(conj b i)", "{:b b :i i}", "(set (conj b (+ 5000 i)))"])
def test_sorting_keys_that_are_collections_looks_at_the_clock(what: str) -> None:
    made = value(f"(let [b (vec (range 500))] (set (map (fn [i] {what}) (range 300))))")
    looks = count(1)
    with pytest.raises(LispError, match="cancelled"):
        members(made, Budget(cancelled=lambda: next(looks) == 20))


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("nil", "nil"),
        ("[true false]", "[true false]"),
        ("{:b 1 :a [2]}", "{:a [2] :b 1}"),
        ("#{2 1}", "#{1 2}"),
        (r'"q\"\n\\"', r'"q\"\n\\"'),
        ("1.0", "1.0"),
        ("1e30", "1e+30"),
        ("[##Inf ##-Inf ##NaN]", "[##Inf ##-Inf ##NaN]"),
        (":a.b/c", ":a.b/c"),
        (r'#"\d"', r'#"\d"'),
        ("[inc #(+ 1 %)]", "[#function #function]"),
        ("{[1] {true #{}}}", "{[1] {true #{}}}"),
    ],
)
def test_printing(program: str, shown: str) -> None:
    assert readable(value(program)) == shown


def test_str_shows_strings_as_they_are_and_nil_as_nothing() -> None:
    assert [text("a"), text(None), text(["a", None])] == ["a", "", '["a" nil]']


@pytest.mark.parametrize(
    ("program", "data"),
    [
        (":a", "~:a"),
        ('"~x"', "~~x"),
        ("[1 1.0 nil true]", [1, 1.0, None, True]),
        ('{:a 1 "b" 2}', {"~:a": 1, "b": 2}),
        ("#{2 1}", {"~#set": [1, 2]}),
        ("{1 2}", {"~#cmap": [1, 2]}),
        ("{[1 2] :x}", {"~#cmap": [[1, 2], "~:x"]}),
        ('#"a"', {"~#re": "a"}),
        ("##Inf", {"~#n": "inf"}),
    ],
)
def test_the_encoding_and_back(program: str, data: Any) -> None:
    given = value(program)
    assert encode(given) == data
    assert equal(decode(data), given)
    assert encode(decode(data)) == data


@pytest.mark.parametrize("data", ["~x", object(), {"a": object()}])
def test_what_is_no_encoding_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        decode(data)


def test_a_function_has_no_encoding() -> None:
    with pytest.raises(LispError) as caught:
        encode(value("[inc]"))
    assert caught.value.reason == "eval_error"


@pytest.mark.parametrize(
    "program", ["nil", "[]", "[1 2]", '{:a "é" "b" #{1}}', '"~\\n"', "{1 2}", "{}", "#{}", "[true 1.5 -7 ##Inf]"]
)
def test_the_size_is_that_of_the_json(program: str) -> None:
    given = value(program)
    written = json.dumps(encode(given), ensure_ascii=False, separators=(",", ":")).encode()
    assert size(given) == len(written)


TOWER = "(loop [i 0 x [1]] (if (< i 60) (recur (inc i) [x x]) x))"


@pytest.mark.parametrize("walk", [readable, encode, size, as_key], ids=lambda walk: walk.__name__)
def test_a_small_value_that_is_huge_as_a_tree_is_refused(walk: Any) -> None:
    budget = lisp.Budget(lisp.Limits(steps=100_000))
    with pytest.raises(LispError):
        walk(value("(loop [i 0 x [1]] (if (< i 40) (recur (inc i) [x x]) [0 x]))"), budget)


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Person:
    name: str
    born: date


PYTHON = [
    ({"a": (1, 2)}, {"a": [1, 2]}),
    (Person("Ada", date(1815, 12, 10)), {"name": "Ada", "born": "1815-12-10"}),
    (Colour.RED, "red"),
    (Point(1, 2), [1, 2]),
    (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    (Decimal("1.5"), 1.5),
    (Path("a/b"), "a/b"),
    (UUID(int=0), "00000000-0000-0000-0000-000000000000"),
    ({1, 2}, LispSet([1, 2])),
    (A, A),
]


@pytest.mark.parametrize(("given", "wanted"), PYTHON, ids=[str(type(given).__name__) for given, _ in PYTHON])
def test_python_data_becomes_values(given: Any, wanted: Any) -> None:
    assert equal(from_python(given), wanted)


def test_an_object_without_a_value_is_named_by_its_path() -> None:
    with pytest.raises(TypeError, match=r"value\.rows\[1\]\.x is a object"):
        from_python({"rows": [1, {"x": object()}]})


def test_data_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contains itself"):
        from_python(loop)


def test_values_become_plain_python() -> None:
    given = value('{:a [:x "y" nil 1.5] "s" #{3 1 10} [1 2] {:k true}}')
    assert to_python(given) == {"a": ["x", "y", None, 1.5], "s": [1, 3, 10], (1, 2): {"k": True}}


def test_every_type_has_a_name() -> None:
    names = [type_name(each) for each in [None, True, 1, 1.5, "a", A, [], {}, LispSet(), len]]
    assert names == ["nil", "boolean", "integer", "float", "string", "keyword", "vector", "map", "set", "function"]

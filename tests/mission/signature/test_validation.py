"""What fits a signature, and how the rest is called."""

from datetime import UTC, date, datetime

import pytest

from pyagentd.lisp.values import Keyword, LispSet
from pyagentd.mission.signature import parse

K = Keyword
ACTIVE = K("active")


def wrong(text, value, strict=False):
    return [(problem.path, problem.message) for problem in parse(text).validate(value, strict=strict)]


FITS = [
    (":string", ["", "a", "größe"]),
    (":int", [0, -1, 2**100]),
    (":float", [0.5, -1.0, 3, 0]),
    (":bool", [True, False]),
    (":keyword", [ACTIVE, "active"]),
    (":map", [{}, {"a": 1}, {K("a"): 1}, {1: 2}]),
    (":any", [None, 1, "x", [], {}, ACTIVE, LispSet.of([1])]),
    (":nil", [None]),
    (":datetime", ["2026-11-22T10:00:00Z", "2026-11-22 10:00", "2026-11-22T10:00:00.5+01:00", datetime.now(UTC)]),
    (":int?", [None, 5]),
    (":any?", [None, 5]),
    ("[:int]", [[], [1, 2], (1, 2)]),
    ("[:int?]", [[1, None]]),
    ("[:int]?", [None, [1]]),
    ("[:any]", [[1, "a", None, {}]]),
    ("{}", [{}, {"a": 1}]),
    ("{id :int}", [{"id": 1}, {K("id"): 1}, {"id": 1, "more": 2}]),
    ("{id :int, email :string?}", [{"id": 1}, {"id": 1, "email": None}, {"id": 1, "email": "a@b"}]),
    ("{email [:? :string]}", [{}, {"email": "a"}]),
    ("{email [:maybe :string]}", [{"email": None}, {"email": "a"}]),
    ("{_ids [:int]}", [{"_ids": [1]}, {K("_ids"): []}]),
    ("[:map {:closed true} [:id :int]]", [{"id": 1}, {K("id"): 1}]),
    ("[:map-of :string :int]", [{}, {"a": 1}, {K("a"): 1}]),
    ("[:map-of :keyword :int]", [{"a": 1}, {K("a"): 1}]),
    ("[:map-of :int :int]", [{1: 1}]),
    ("[:map-of :any :int]", [{1: 1, "a": 2, None: 3}]),
    ('[:enum "a" "b"]', ["a", "b"]),
    ("[:enum :a 1 true]", [K("a"), "a", 1, 1.0, True]),
    ("[:or :int :string]", [1, "a"]),
    ("[:or :string :nil]", [None, "a"]),
    ("[:and :int [:> 0] [:< 100]]", [1, 99]),
    ("[:>= 0.5]", [0.5, 1]),
    ("[:<= 3]", [3, -1.5]),
    ("[:string {:min 1 :max 2}]", ["a", "ab"]),
    ("[:int {:min -1}]", [-1, 5]),
    ("[:float {:max 0.5}]", [0.5, -3]),
    ("[:vector {:min 1 :max 2} :int]", [[1], [1, 2]]),
    ("[:map-of {:min 1} :string :int]", [{"a": 1}]),
]


@pytest.mark.spec("004", "Shorthand Syntax")
@pytest.mark.spec("004", "DD-1: Optional Field Syntax (`?` suffix)")
@pytest.mark.parametrize(("text", "value"), [(text, value) for text, values in FITS for value in values])
def test_fits(text, value):
    assert parse(text).validate(value) == ()


PROBLEMS = [
    (":string", 42, "", "expected string, got int"),
    (":string", ACTIVE, "", "expected string, got keyword"),
    (":string", None, "", "expected string, got nil"),
    (":string", {}, "", "expected string, got map"),
    (":int", 42.0, "", "expected int, got float"),
    (":int", "42", "", "expected int, got string"),
    (":int", True, "", "expected int, got bool"),
    (":float", True, "", "expected float, got bool"),
    (":float", "0.5", "", "expected float, got string"),
    (":bool", 1, "", "expected bool, got int"),
    (":bool", K("true"), "", "expected bool, got keyword"),
    (":keyword", None, "", "expected keyword, got nil"),
    (":keyword", True, "", "expected keyword, got bool"),
    (":map", [], "", "expected map, got list"),
    (":nil", False, "", "expected nil, got bool"),
    (":datetime", "2026-11-22", "", "expected datetime, got string"),
    (":datetime", "2026-13-22T10:00", "", "expected datetime, got string"),
    (":datetime", "soon", "", "expected datetime, got string"),
    (":datetime", date(2026, 11, 22), "", "expected datetime, got date"),
    (":int?", "x", "", "expected int, got string"),
    ("[:int]", None, "", "expected list, got nil"),
    ("[:int]", {"a": 1}, "", "expected list, got map"),
    ("[:int]", LispSet.of([1]), "", "expected list, got set"),
    ("[:int]", len, "", "expected list, got function"),
    ("[:int]", object(), "", "expected list, got object"),
    ("[:int]", [1, "x", 3], "[1]", "expected int, got string"),
    ("[[:int]]", [[1], ["x"]], "[1][0]", "expected int, got string"),
    ("{count :int}", {}, "count", "missing required field, expected int"),
    ("{count :int}", {"count": None}, "count", "expected int, got nil"),
    ("{count :int}", [], "", "expected map, got list"),
    ("[{id :int}]", [{"id": 1}, {K("id"): "x"}], "[1].id", "expected int, got string"),
    ("{items [:string]}", {"items": ["a", 1]}, "items[1]", "expected string, got int"),
    ("{email [:? :string]}", {"email": None}, "email", "expected string, got nil"),
    ("{email [:maybe :string]}", {}, "email", "missing required field, expected string or nil"),
    ('{"a b" {x :int}}', {"a b": {"x": ""}}, '["a b"].x', "expected int, got string"),
    ("[:map {:closed true} [:id :int]]", {"id": 1, "x": 2}, "x", "unexpected field"),
    ("[:map-of :string :int]", {"a": "x"}, "a", "expected int, got string"),
    ("[:map-of :int :int]", {"a": 1}, "a", "key: expected int, got string"),
    ("[:map-of :string :int]", {5: 1}, '["5"]', "key: expected string, got int"),
    ("[:map-of {:max 1} :string :int]", {"a": 1, "b": 2}, "", "expected map of at most 1 entry"),
    ('[:enum "a" "b"]', "c", "", 'expected one of "a", "b", got string'),
    ('[:enum "a"]', K("a"), "", 'expected "a", got keyword'),
    ("[:enum 1]", True, "", "expected 1, got bool"),
    ("[:enum true]", 1, "", "expected true, got int"),
    ("[:or :int :string]", [], "", "expected int or string, got list"),
    ("[:or :int {a :int}]", {"a": "x"}, "a", "expected int, got string"),
    ("[:or :int :bool :nil]", "x", "", "expected int or bool, got string"),
    ("[:and :int [:> 0]]", 0, "", "expected number > 0, got int"),
    ("[:and :int [:> 0]]", "x", "", "expected int, got string"),
    ("[:> 0]", True, "", "expected number > 0, got bool"),
    ("[:> 0]", float("nan"), "", "expected number > 0, got float"),
    ("[:string {:min 1}]", "", "", "expected string of at least 1 character"),
    ("[:string {:min 1 :max 3}]", "abcd", "", "expected string of 1 to 3 characters"),
    ("[:int {:max 5}]", 6, "", "expected int of at most 5"),
    ("[:int {:max 5}]", "6", "", "expected int, got string"),
    ("[:vector {:min 2} :int]", [1], "", "expected list of at least 2 items"),
    ("[:or [:int {:min 0}] :bool]", -1, "", "expected int of at least 0 or bool, got int"),
]


@pytest.mark.spec("004", "Error reason validation_error")
@pytest.mark.parametrize(("text", "value", "path", "message"), PROBLEMS)
def test_says_where_and_what(text, value, path, message):
    assert wrong(text, value) == [(path, message)]


def test_finds_every_problem_with_its_path():
    rows = [{"customer": {"id": "abc"}, "amount": 1.5}, {"customer": {}, "amount": None}]
    assert wrong("{results [{customer {id :int}, amount :float}]}", {"results": rows}) == [
        ("results[0].customer.id", "expected int, got string"),
        ("results[1].customer.id", "missing required field, expected int"),
        ("results[1].amount", "expected float, got nil"),
    ]


def test_a_problem_as_text_has_its_path():
    (inside, whole) = parse("{a :int}").validate({"a": ""})[0], parse(":int").validate("")[0]
    assert (str(inside), str(whole)) == ("[a]: expected int, got string", "expected int, got string")
    assert inside.keys == ("a",)


def test_a_hundred_problems_are_enough():
    assert len(wrong("[:int]", [""] * 100_000)) == 100


def test_long_enumerations_are_cut():
    text = f"[:enum {' '.join(map(str, range(20)))}]"
    assert wrong(text, "x") == [("", f"expected one of {', '.join(map(str, range(12)))}, 8 more, got string")]


@pytest.mark.spec("004", "Signature Validation Strictness")
@pytest.mark.spec("004", "DD-3: Lenient Extra Fields by Default")
@pytest.mark.parametrize("value", [{"count": 5, "extra": "bonus"}, {K("count"): 5, K("extra"): "bonus"}])
def test_fields_that_are_not_declared_fit_unless_strict(value):
    assert wrong("{count :int}", value) == []
    assert wrong("{count :int}", value, strict=True) == [("extra", "unexpected field")]


def test_strict_reaches_every_map_with_fields_and_no_other():
    value = {"rows": [{"id": 1, "x": 1}], "any": {"y": 1}, "map": {"z": 1}}
    assert wrong("{rows [{id :int}], any :any, map :map}", value, strict=True) == [("rows[0].x", "unexpected field")]


@pytest.mark.spec("004", "Signature Validation Strictness")
def test_parameters_are_validated_as_a_map():
    signature = parse("(id :int, name :string, limit :int?) -> :bool")
    assert signature.validate_input({"id": 1, K("name"): "A"}) == ()
    assert [str(one) for one in signature.validate_input({"id": "x"})] == [
        "[id]: expected int, got string",
        "[name]: missing required field, expected string",
    ]
    assert [one.message for one in signature.validate_input({"id": 1, "name": "", "x": 1}, strict=True)] == [
        "unexpected field"
    ]
    assert [one.message for one in signature.validate_input([1])] == ["expected map, got list"]


SECRET = "hunter2"
LEAKS = [
    ("{_key :int}", {"_key": SECRET}),
    ("{_key [:enum 1]}", {"_key": SECRET}),
    ("{_key [:string {:max 2}]}", {"_key": SECRET}),
    ("{_keys [:map-of :string :int]}", {"_keys": {SECRET: "x"}}),
    ("{_keys [:map-of :int :int]}", {"_keys": {K(SECRET): 1}}),
    ("{_keys [{a [:map-of :string :int]}]}", {"_keys": [{"a": {SECRET: "x"}}]}),
    ("{_key {a :int}}", {"_key": {"a": 1, SECRET: 2}}),
    ("{_key :datetime}", {"_key": SECRET}),
]


@pytest.mark.parametrize(("text", "value"), LEAKS)
def test_no_message_and_no_path_contains_what_is_firewalled(text, value):
    signature = parse(f"({text[1:-1]}) -> {text}")
    problems = signature.validate(value, strict=True)
    coerced = signature.coerce_input(value, strict=True)
    assert problems
    assert SECRET not in repr((problems, coerced.problems, coerced.warnings))


def test_a_key_that_is_data_is_named_where_nothing_is_firewalled():
    assert wrong("{keys [:map-of :string :int]}", {"keys": {"a b": "x"}}) == [
        ('keys["a b"]', "expected int, got string")
    ]
    assert wrong("{_keys [:map-of :string :int]}", {"_keys": {"a b": "x"}}) == [
        ("_keys[Hidden]", "expected int, got string")
    ]

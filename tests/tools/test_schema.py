from typing import Any

import pytest

from pyagentd.errors import ToolError
from pyagentd.tools.invoke import validate_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1, "maximum": 10},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "either": {"type": ["string", "integer"]},
        "inner": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        "free": {"type": "object"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, '"name" is required and missing'),
        ({"name": None}, '"name" must be a string, got null'),
        ({"name": ""}, '"name" must not be empty'),
        ({"name": 3}, '"name" must be a string, got 3'),
        ({"name": "x", "count": "3"}, '"count" must be an integer, got "3"'),
        ({"name": "x", "count": True}, '"count" must be an integer, got true'),
        ({"name": "x", "count": 2.5}, '"count" must be an integer, got 2.5'),
        ({"name": "x", "count": 0}, '"count" must be at least 1, got 0'),
        ({"name": "x", "count": 11}, '"count" must be at most 10, got 11'),
        ({"name": "x", "ratio": "1"}, '"ratio" must be a number, got "1"'),
        ({"name": "x", "deep": 1}, '"deep" must be true or false, got 1'),
        ({"name": "x", "mode": "c"}, '"mode" must be one of "a", "b", got "c"'),
        ({"name": "x", "tags": "t"}, '"tags" must be an array, got "t"'),
        ({"name": "x", "tags": ["t", 1]}, '"tags[1]" must be a string, got 1'),
        ({"name": "x", "tags": ["t", "u", "v"]}, '"tags" must be at most 2 items, got 3'),
        ({"name": "x", "either": []}, '"either" must be a string or an integer, got []'),
        ({"name": "x", "inner": {}}, '"inner.id" is required and missing'),
        ({"name": "x", "inner": {"id": "1", "x": 1}}, '"inner.x" is not known'),
        ({"name": "x", "cuont": 1}, '"cuont" is not known, did you mean "count"?'),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError) as raised:
        validate_arguments("Tool", SCHEMA, args)
    assert problem in raised.value.message


def test_all_problems_come_at_once_with_the_usage() -> None:
    with pytest.raises(ToolError) as raised:
        validate_arguments("Tool", SCHEMA, {"count": "3", "other": 1})
    assert raised.value.message.startswith("Tool: ")
    assert raised.value.message.count(";") == 2
    assert raised.value.hint.startswith("It takes name, count?, ratio?")


@pytest.mark.parametrize("args", [[], "text", None, 3])
def test_arguments_that_are_no_object_are_refused(args: object) -> None:
    with pytest.raises(ToolError, match="must be an object"):
        validate_arguments("Tool", SCHEMA, args)


def test_what_models_often_send_is_taken_as_meant() -> None:
    given = validate_arguments(
        "Tool", SCHEMA, {"name": "x", "count": 3.0, "deep": None, "free": {"any": [1]}, "either": 1}
    )
    assert given == {"name": "x", "count": 3, "free": {"any": [1]}, "either": 1}
    assert type(given["count"]) is int


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": ["string", "null"]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"oneOf": [{"$ref": "#/$defs/x"}, {"type": ["integer", "null"]}]}, True),
        ({"type": ["string", "null"], "enum": ["a", None]}, True),
        ({"type": ["string", "null"], "enum": ["a", "b"]}, False),
        ({"type": "string"}, False),
        ({"anyOf": [{"type": "string"}, True]}, False),
        ({}, False),
    ],
)
def test_null_is_a_value_where_the_schema_names_it(schema: dict[str, Any], kept: bool) -> None:
    given = validate_arguments("Tool", {"type": "object", "properties": {"to": schema}}, {"to": None})
    assert given == ({"to": None} if kept else {})


def test_a_long_value_is_shown_shortened() -> None:
    with pytest.raises(ToolError) as raised:
        validate_arguments("Tool", SCHEMA, {"name": ["y" * 10_000]})
    assert len(raised.value.message) < 200

"""Types as JSON Schema."""

import pytest

from pyagentd.mission.signature import parse
from pyagentd.mission.signature.rendering import schema_of

NULL = {"type": "null"}
INT, STRING = {"type": "integer"}, {"type": "string"}

TABLE = [
    (":string", STRING),
    (":int", INT),
    (":float", {"type": "number"}),
    (":bool", {"type": "boolean"}),
    (":keyword", STRING),
    (":map", {"type": "object"}),
    (":any", {}),
    (":nil", NULL),
    (":datetime", {"type": "string", "format": "date-time"}),
    (":int?", {"anyOf": [INT, NULL]}),
    ("[:or :int :string :nil]", {"anyOf": [INT, STRING, NULL]}),
    ("[:or :int :string]", {"anyOf": [INT, STRING]}),
    ("[:int]", {"type": "array", "items": INT}),
    ("[:vector {:min 1, :max 2} :int]", {"type": "array", "items": INT, "minItems": 1, "maxItems": 2}),
    ("[:string {:min 1, :max 2}]", {"type": "string", "minLength": 1, "maxLength": 2}),
    ("[:int {:min 1, :max 2}]", {"type": "integer", "minimum": 1, "maximum": 2}),
    ("{}", {"type": "object", "properties": {}}),
    (
        "{id :int, email :string?}",
        {
            "type": "object",
            "properties": {"id": INT, "email": {"anyOf": [STRING, NULL]}},
            "required": ["id"],
        },
    ),
    (
        "[:map {:closed true} [:id :int]]",
        {"type": "object", "properties": {"id": INT}, "required": ["id"], "additionalProperties": False},
    ),
    ("[:map-of :string :int]", {"type": "object", "additionalProperties": INT}),
    (
        "[:map-of {:min 1} :int :int]",
        {
            "type": "object",
            "propertyNames": {"pattern": "^-?[0-9]+$"},
            "additionalProperties": INT,
            "minProperties": 1,
        },
    ),
    (
        '[:map-of [:enum "a"] :int]',
        {"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": INT},
    ),
    ('[:enum "a" :b 1]', {"enum": ["a", "b", 1]}),
    ("[:and :int [:> 0] [:< 100]]", {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 100}),
    ("[:and [:>= 0] [:<= 1]]", {"type": "number", "minimum": 0, "maximum": 1}),
    ("[:and :any :string]", STRING),
    ("[:and :int :string]", {"allOf": [INT, STRING]}),
]


@pytest.mark.parametrize(("text", "schema"), TABLE, ids=[text for text, _ in TABLE])
def test_every_type_has_a_schema(text, schema):
    signature = parse(text)
    assert schema_of(signature.returns) == signature.output_schema() == schema


@pytest.mark.spec("004", "Tool Normalization & Schema Extraction")
def test_parameters_are_the_properties_of_an_object():
    assert parse("(query :string, limit :int?) -> :any").input_schema() == {
        "type": "object",
        "properties": {"query": STRING, "limit": {"anyOf": [INT, NULL]}},
        "required": ["query"],
    }
    assert parse(":any").input_schema() == {"type": "object", "properties": {}}

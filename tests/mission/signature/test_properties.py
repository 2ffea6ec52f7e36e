"""What holds of every signature and every value."""

import json

import jsonschema
from hypothesis import event, given, settings
from hypothesis import strategies as st

from pyagentd.errors import SignatureError
from pyagentd.mission.signature import Map, Signature, parse
from pyagentd.mission.signature.rendering import schema_of
from pyagentd.mission.signature.validation import fits
from tests.examples import examples
from tests.mission.signature.strategies import (
    JSON,
    SIGNATURES,
    constants,
    fields,
    keyed_by_keywords,
    leaves,
    types,
    with_values,
)

BRACKETS = [*",()[]{}?;|x", ":int", ":string", ":any", ":map", ":x", "->", "id", '"a"', "1", "2.5", "nil"]
WORDS = [":enum", ":or", ":and", ":map-of", ":vector", ":=>", ":cat", ":>", ":?", ":int?"]
PIECES = st.sampled_from([*BRACKETS, *WORDS])
FEW = settings(max_examples=examples(60))

# What JSON and its schema can tell apart: no keywords, no datetimes (formats are not checked), no whole floats.
PLAIN_LEAVES = leaves(names=("string", "int", "bool", "map", "any", "nil"), values=constants(with_floats=False))
PLAIN_NAMES = st.sampled_from(["id", "name", "_secret", "x"])
PLAIN = types(PLAIN_LEAVES, names=PLAIN_NAMES)
ANYTHING = parse(":any").returns


@FEW
@given(SIGNATURES)
def test_what_is_rendered_parses_back_to_the_same(signature):
    text = signature.render()
    assert parse(text) == signature
    assert parse(text).render() == text


@FEW
@given(SIGNATURES)
def test_every_schema_is_a_schema(signature):
    for schema in (signature.input_schema(), signature.output_schema()):
        jsonschema.Draft202012Validator.check_schema(json.loads(json.dumps(schema)))


@FEW
@given(
    st.lists(PIECES, max_size=12).map(" ".join) | st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=20)
)
def test_any_text_is_a_signature_or_an_error_with_a_hint(text):
    try:
        signature = parse(text)
    except SignatureError as error:
        assert error.message
        assert bool(error.caret()) == bool(error.line)
    else:
        assert parse(signature.render()) == signature


@FEW
@given(with_values(PLAIN) | st.tuples(PLAIN, JSON))
def test_validation_agrees_with_an_independent_check_of_the_schema(pair):
    type, value = pair
    value = _without_whole_floats(value)
    expected = jsonschema.Draft202012Validator(schema_of(type)).is_valid(value)
    event(f"fits: {expected}")
    assert fits(type, value) is expected
    assert (not Signature((), type).validate(value)) is expected


@FEW
@given(with_values(fields(PLAIN, PLAIN_NAMES).map(Map)))
def test_input_validation_agrees_with_it_too(pair):
    type, value = pair
    value = _without_whole_floats(value)
    signature = Signature(type.fields, ANYTHING)
    expected = jsonschema.Draft202012Validator(signature.input_schema()).is_valid(value)
    assert (not signature.validate_input(value)) is expected


@FEW
@given(with_values(types()))
def test_keys_may_be_keywords_or_strings(pair):
    type, value = pair
    assert fits(type, keyed_by_keywords(value)) is fits(type, value)


@FEW
@given(with_values(fields(types()).map(Map)))
def test_what_was_coerced_fits_and_stays(pair):
    type, value = pair
    signature = Signature(type.fields, ANYTHING)
    coerced = signature.coerce_input(value)
    event(f"coerced: {not coerced.problems}")
    if coerced.problems:
        assert coerced.value is value
    else:
        assert signature.validate_input(coerced.value) == ()
        again = signature.coerce_input(coerced.value)
        assert (again.value, again.warnings, again.problems) == (coerced.value, (), ())


@FEW
@given(with_values(fields(types()).map(Map)))
def test_what_fits_can_be_coerced(pair):
    type, value = pair
    signature = Signature(type.fields, ANYTHING)
    assert signature.validate_input(value) or not signature.coerce_input(value).problems


@FEW
@given(with_values(types()))
def test_a_strict_check_only_finds_more(pair):
    type, value = pair
    signature = Signature((), type)
    assert not signature.validate(value) or signature.validate(value, strict=True)


def _without_whole_floats(value):
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_without_whole_floats(item) for item in value]
        case dict():
            return {key: _without_whole_floats(item) for key, item in value.items()}
        case _:
            return value

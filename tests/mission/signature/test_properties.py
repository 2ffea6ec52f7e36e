"""What holds of every signature and every value."""

import json

import jsonschema
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyagentd.errors import SignatureError
from pyagentd.mission.signature import Field, Signature, parse
from pyagentd.mission.signature.schema import schema_of
from pyagentd.mission.signature.validation import fits
from tests.mission.signature.strategies import (
    JSON,
    SIGNATURES,
    constants,
    keyed_by_keywords,
    leaves,
    types,
)

BRACKETS = [*",()[]{}?;|x", ":int", ":string", ":any", ":map", ":x", "->", "id", '"a"', "1", "2.5", "nil"]
WORDS = [":enum", ":or", ":and", ":map-of", ":vector", ":=>", ":cat", ":>", ":?", ":int?"]
PIECES = st.sampled_from([*BRACKETS, *WORDS])
FEW = settings(max_examples=50)


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
def test_any_text_is_a_signature_or_an_error_with_a_mend(text):
    try:
        signature = parse(text)
    except SignatureError as error:
        assert error.message
        assert bool(error.caret()) == bool(error.line)
    else:
        assert parse(signature.render()) == signature


# What JSON and its schema can tell apart: no keywords, no datetimes (formats are not checked), no whole floats.
PLAIN = types(
    leaves(names=("string", "int", "float", "bool", "map", "any", "nil"), values=constants(with_floats=False)),
    names=st.sampled_from(["id", "name", "_secret", "x"]),
)


@FEW
@given(PLAIN, JSON)
def test_validation_agrees_with_an_independent_check_of_the_schema(type, value):
    expected = jsonschema.Draft202012Validator(schema_of(type)).is_valid(value)
    assert fits(type, value) is expected
    assert (not Signature((), type).validate(value)) is expected


@FEW
@given(st.lists(st.builds(Field, st.sampled_from(["id", "name", "x"]), PLAIN, st.booleans()), max_size=3), JSON)
def test_input_validation_agrees_with_it_too(params, value):
    assume(len({field.name for field in params}) == len(params))
    signature = Signature(tuple(params), parse(":any").returns)
    expected = jsonschema.Draft202012Validator(signature.input_schema()).is_valid(value)
    assert (not signature.validate_input(value)) is expected


@FEW
@given(types(), JSON)
def test_keys_may_be_keywords_or_strings(type, value):
    assert fits(type, keyed_by_keywords(value)) is fits(type, value)


@FEW
@given(SIGNATURES, JSON)
def test_what_was_coerced_fits(signature, value):
    coerced = signature.coerce_input(value)
    if coerced.problems:
        assert coerced.value is value
    else:
        assert signature.validate_input(coerced.value) == ()


@FEW
@given(SIGNATURES, JSON)
def test_what_is_coerced_once_stays_as_it_is(signature, value):
    once = signature.coerce_input(value)
    assume(not once.problems)
    twice = signature.coerce_input(once.value)
    assert twice.value == once.value
    assert twice.warnings == ()


@FEW
@given(types(), JSON)
def test_a_strict_check_only_finds_more(type, value):
    signature = Signature((), type)
    assert not signature.validate(value) or signature.validate(value, strict=True)

"""What is written reads back as what it was: in Lisp notation, and in the JSON encoding."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pyagentd import lisp
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.serialization import decode, encode, readable
from pyagentd.lisp.values import as_key, equal, from_key
from tests.lisp.properties.strategies import VALUES


def exactly(one: object, other: object) -> bool:
    """Equal, and of the same types: 1 is not 1.0 here."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(exactly, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(exactly(one[key], other[key]) for key in one)
    return one == other


@given(VALUES)
def test_what_is_printed_reads_back(value):
    assert exactly(lisp.compile(readable(value, Budget())).run().value, value)


@given(VALUES)
def test_what_is_encoded_decodes(value):
    assert exactly(decode(json.loads(json.dumps(encode(value, Budget())))), value)


@given(VALUES)
def test_the_encoding_is_one_to_one(value):
    assert exactly(decode(encode(decode(encode(value, Budget())), Budget())), value)


@given(VALUES)
def test_a_key_stands_for_its_value(value):
    back = from_key(as_key(value))
    assert equal(back, value, Budget())
    assert as_key(back) == as_key(value)


@given(VALUES)
def test_a_value_is_the_same_from_context_in_a_program(value):
    assert exactly(lisp.compile("ctx/value").run({"value": value}).value, value)


@given(st.lists(VALUES, max_size=4), VALUES)
def test_equality_is_that_of_keys(values, value):
    for other in values:
        assert equal(value, other, Budget()) == (as_key(value) == as_key(other))

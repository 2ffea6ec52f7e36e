"""Types and values for property tests."""

import string

from hypothesis import strategies as st

from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature import (
    And,
    Constant,
    Constraint,
    Enum,
    Field,
    List,
    Map,
    MapOf,
    Maybe,
    Or,
    Primitive,
    Signature,
)
from pyagentd.mission.signature.types import NAMES, choice, maybe

WORDS = st.text(string.ascii_lowercase + "_-", min_size=1, max_size=6).filter(lambda word: "->" not in word)
NAMES_OF_FIELDS = st.one_of(
    st.sampled_from(
        ["id", "name", "_secret", "active?", "a-b", "true", "größe", "@type", "a b", 'quo"te', "new\nline"]
    ),
    WORDS.filter(lambda word: word[0] != "-"),
    st.text(min_size=1, max_size=5),
)
BOUNDS = st.one_of(st.none(), st.integers(-5, 5))
LENGTHS = st.one_of(st.none(), st.integers(0, 3))
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def bounds(values):
    """Pairs of a least and a most that leave something between them."""
    return st.tuples(values, values).map(
        lambda pair: pair if None in pair else tuple(sorted(pair)),
    )


def limited(name, values):
    return bounds(values).map(lambda pair: Primitive(name, *pair))


def constants(with_floats=True):
    numbers = [st.integers(), FINITE] if with_floats else [st.integers()]
    return st.one_of(
        st.one_of(st.booleans(), st.text(max_size=4), *numbers).map(Constant),
        WORDS.map(lambda word: Constant(word, is_keyword=True)),
    )


def enums(values):
    return st.lists(values, min_size=1, max_size=4).map(lambda found: Enum(tuple(dict.fromkeys(found))))


ALL = tuple(sorted(NAMES))
CONSTRAINTS = st.builds(Constraint, st.sampled_from([">", ">=", "<", "<="]), st.one_of(st.integers(-5, 5), FINITE))


def leaves(names=ALL, values=None):
    return st.one_of(
        st.sampled_from(names).map(Primitive),
        limited("int", BOUNDS),
        limited("float", BOUNDS),
        limited("string", LENGTHS),
        enums(constants() if values is None else values),
        CONSTRAINTS,
    )


def fields(types, names=NAMES_OF_FIELDS):
    one = st.builds(Field, names, types, st.booleans())
    return st.lists(one, max_size=4, unique_by=lambda field: field.name).map(tuple)


def conjunction(parts):
    flat = [inner for part in parts for inner in (part.all_of if isinstance(part, And) else (part,))]
    different = tuple(dict.fromkeys(flat))
    return different[0] if len(different) == 1 else And(different)


def types(leaf=None, names=NAMES_OF_FIELDS):
    """Types as the constructors of ``types`` make them: canonical."""

    def grown(inner):
        return st.one_of(
            inner.map(maybe),
            st.builds(lambda item, pair: List(item, *pair), inner, bounds(LENGTHS)),
            st.builds(Map, fields(inner, names), st.booleans()),
            st.builds(
                lambda value, pair: MapOf(Primitive("string"), value, *pair),
                inner,
                bounds(LENGTHS),
            ),
            st.lists(inner, min_size=1, max_size=3).map(choice),
            st.lists(inner, min_size=1, max_size=3).map(conjunction),
        )

    return st.recursive(leaves() if leaf is None else leaf, grown, max_leaves=6)


SIGNATURES = st.builds(Signature, fields(types()), types())

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9),
    st.floats(-9, 9).filter(lambda number: not number.is_integer()),
    st.sampled_from(["", "a", "b", "abc", "abcd", "42"]),
)
KEYS = st.sampled_from(["id", "name", "_secret", "x", "7"])
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)


def keyed_by_keywords(value):
    """The same value as a program would write it: maps with keywords."""
    match value:
        case list():
            return [keyed_by_keywords(item) for item in value]
        case dict():
            return {Keyword(key): keyed_by_keywords(item) for key, item in value.items()}
        case _:
            return value


SCALAR_OF = {
    "string": st.sampled_from(["", "a", "abc", "abcd"]),
    "int": st.integers(-6, 6),
    "float": st.floats(-6, 6) | st.integers(-6, 6),
    "bool": st.booleans(),
    "keyword": st.sampled_from(["a", "b"]),
    "map": st.just({}),
    "any": SCALARS,
    "datetime": st.just("2026-11-22T10:00:00Z"),
    "nil": st.none(),
}


def near(type):
    """JSON that fits ``type``, or nearly: here and there is something else, is missing or too much."""
    return st.one_of(*[_fitting(type)] * 9, SCALARS)


def _fitting(type):
    match type:
        case Maybe(inner):
            return st.none() | near(inner)
        case Primitive(name):
            return SCALAR_OF[name]
        case List(item):
            return st.lists(near(item), max_size=3)
        case Map(fields):
            required = {field.name: near(field.type) for field in fields if not field.optional}
            other = {"more": SCALARS} | {field.name: near(field.type) for field in fields if field.optional}
            return st.fixed_dictionaries(required, optional={k: v for k, v in other.items() if k not in required})
        case MapOf(_, value):
            return st.dictionaries(KEYS, near(value), max_size=3)
        case Enum(values):
            return st.sampled_from([constant.value for constant in values])
        case Or(choices):
            return st.one_of(*map(near, choices))
        case And(all_of):
            return st.one_of(*map(near, all_of))
        case _:
            return st.integers(-6, 6)


def with_values(types):
    """A type and a value that may fit it."""
    return types.flatmap(lambda type: st.tuples(st.just(type), near(type)))

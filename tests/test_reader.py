"""What outside data becomes, and what an error says of it."""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from pyagentd.config.tables import Tables, read_hooks, read_server
from pyagentd.errors import BadRequest, ConfigError, PresetError
from pyagentd.policy.presets import Preset, parse_message_settings, parse_preset, read_wanted
from pyagentd.reader import (
    Misfit,
    Rule,
    Source,
    at,
    keys_of,
    line_in_front_matter,
    line_in_json,
    line_in_toml,
    read,
    words,
)
from pyagentd.store import named_agents, presetfile


def doubled(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError
    if value > 100:
        raise BadRequest("that is too much", hint="Take less")
    return 2 * value


@dataclass(frozen=True, kw_only=True)
class Place:
    city: str
    zip: Annotated[int, Meta(ge=1)] | None = None


@dataclass(frozen=True, kw_only=True)
class Shape:
    count: Annotated[int, Meta(ge=1)] = 1
    share: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    price: Annotated[float, Meta(ge=0)] = 0
    mode: Literal["fast", "slow"] = "fast"
    on: bool = False
    name: str = ""
    tags: tuple[str, ...] = ()
    place: Place | None = None
    places: tuple[Place, ...] = ()
    others: Mapping[str, Place] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)
    twice: Annotated[int, Rule(parse=doubled, words="a small number", keys=("double-it",))] = 0

    def __post_init__(self) -> None:
        if self.on and self.mode == "slow":
            raise Misfit(("mode",), "what is on is fast", "Write fast")


def place(path: tuple[str | int, ...]) -> str:
    return "f.toml:" + "/".join(map(str, path))


STRICT = Source(place=place, error=ConfigError)
LENIENT = Source(place=place, error=ConfigError, lenient=True)


def test_values_become_the_fields_and_defaults_stand_for_what_is_left_out() -> None:
    found = read(
        {
            "count": 3,
            "share": 0.25,
            "price": 2,
            "tags": ["a", "b"],
            "place": {"city": "X", "zip": None},
            "places": [{"city": "Y", "zip": 7}],
            "others": {"a b": {"city": "Z"}},
            "pairs": {"k": "v"},
            "double-it": 4,
        },
        Shape,
        STRICT,
    )
    assert (found.count, found.share, found.price, found.tags, found.mode) == (3, 0.25, 2.0, ("a", "b"), "fast")
    assert (found.place, found.places) == (Place(city="X"), (Place(city="Y", zip=7),))
    assert (found.others, found.pairs, found.twice) == ({"a b": Place(city="Z")}, {"k": "v"}, 8)
    assert read({}, Shape, STRICT) == Shape()


@pytest.mark.parametrize(
    ("values", "where", "said"),
    [
        ({"count": 0}, "count", "`count` is 0. It should be a whole number from 1"),
        ({"count": True}, "count", "`count` is true. It should be a whole number from 1"),
        ({"count": "x" * 200}, "count", "`count` is '" + "x" * 79 + "…"),
        ({"count": 1.5}, "count", "`count` is 1.5."),
        ({"share": 1}, "share", "`share` is 1. It should be a number above 0 and below 1"),
        ({"price": float("nan")}, "price", "`price` is nan. It should be a number from 0"),
        ({"price": float("inf")}, "price", "`price` is inf. It should be a number from 0"),
        ({"count": -(16**5000)}, "count", "`count` is a number of 20001 bits. It should be"),
        ({"mode": "quick"}, "mode", "`mode` is 'quick'. It should be one of fast, slow"),
        ({"on": 1}, "on", "`on` is 1. It should be true or false"),
        ({"name": ["a"]}, "name", "`name` is a list. It should be a text"),
        ({"name": None}, "name", "`name` is empty. It should be a text"),
        ({"tags": "a"}, "tags", "`tags` is 'a'. It should be a list of texts"),
        ({"tags": ["a", 1]}, "tags/1", "`tags`: entry 2 is 1. It should be a list of texts"),
        ({"place": 3}, "place", "`place` is 3. It should be keys and values"),
        ({"place": {}}, "place", "`place.city` is missing. It should be a text"),
        ({"place": {"city": "X", "zip": 0}}, "place/zip", "`place.zip` is 0. It should be a whole number from 1"),
        ({"places": [{"city": 1}]}, "places/0/city", "`places[1].city` is 1. It should be a text"),
        ({"others": {"a": {"zip": "1"}}}, "others/a", "`others.a.city` is missing"),
        ({"others": {"a": {"citty": "X"}}}, "others/a/citty", "unknown key `citty` in `others.a`. Did you mean `ci"),
        ({"others": {"a": {"city": "X", "zap": 1}}}, "others/a/zap", "unknown key `zap` in `others.a`. Did you mean"),
        ({"pairs": {"k": 1}}, "pairs/k", "`pairs.k` is 1. It should be a text"),
        ({"double-it": "x"}, "double-it", "`double-it` is 'x'. It should be a small number"),
        ({"double-it": 101}, "double-it", "`double-it`: that is too much. Take less"),
        ({"cuont": 1}, "cuont", "unknown key `cuont`. Did you mean `count`? Known: count, share"),
        ({"on": True, "mode": "slow"}, "mode", "`mode`: what is on is fast. Write fast"),
        ([1], "", "This is a list. It should be keys and values"),
    ],
)
def test_an_error_says_where_which_key_what_is_wanted_and_what_was_given(values: Any, where: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(values, Shape, STRICT)
    assert str(caught.value).startswith(f"f.toml:{where}: {said}")


def test_a_lenient_source_takes_either_spelling_and_ignores_what_nobody_reads() -> None:
    found = read({"double_it": 1, "count": None, "mode": " ", "name": "x", "colour": "red"}, Shape, LENIENT)
    assert found == Shape(twice=2, name="x")
    with pytest.raises(ConfigError, match="`double_it` is 'x'"):
        read({"double_it": "x"}, Shape, LENIENT)


def test_types_are_told_in_words() -> None:
    assert words(str | int | None) == "a text or a whole number"
    assert words(tuple[Mapping[str, str], ...]) == "a list"
    assert words(Mapping[str, int]) == "keys and values"
    assert words(Literal["a"]) == "a"


def test_the_line_of_a_value_is_found_in_front_matter_and_in_json() -> None:
    front = presetfile.parse("---\na: 1\nb:\n  c:\n  - x\n  - y\n---\n", Path("p.md")).front
    lines = [line_in_front_matter(front, path) for path in [("a",), ("b", "c"), ("b", "c", 1), ("b", "d"), ("z",)]]
    assert lines == [2, 4, 6, 3, 1]
    text = '{\n "x": 1,\n "s": {\n  "x": 2}}'
    assert [line_in_json(text, path) for path in [("x",), ("s", "x"), ("s",), ("q",)]] == [2, 4, 3, 1]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1),
        (("a", "x"), 2),
        (("a", "list", 1), 5),
        (("a", "dotted", "y"), 7),
        (("a", "inline", "z"), 8),
        (("m", "q.7", "in"), 10),
        (("hooks", "tool", "before", 0, "command"), 12),
        (("hooks", "tool", "before", 1), 13),
        (("hooks", "tool", "before", 1, "timeout"), 15),
        (("hooks", "tool", "before", 1, "nothing"), 13),
        (("b",), None),
    ],
)
def test_the_line_of_a_value_is_found_in_toml(path: tuple[str | int, ...], line: int | None) -> None:
    text = (
        '[a]\nx = 1\nlist = [\n "one",\n "two",\n]\ndotted.y = 1\ninline = {z = 1}\n[m."q.7"]\nin = 1\n'
        '[[hooks.tool.before]]\ncommand = ["x"]\n[[hooks.tool.before]]\ncommand = ["y"]\ntimeout = 1\n'
    )
    assert line_in_toml(text, path, at(tomllib.loads(text), path)) == line


def test_a_wrong_value_in_agent_json_is_told_with_its_line() -> None:
    file = named_agents.parse(b'{\n"name": "x",\n"created_at": null,\n"model": 5}', Path("agent.json"))
    assert (file.name, file.created_at) == ("x", None)
    with pytest.raises(PresetError, match=r"^agent.json:4: `model` is 5. It should be a text"):
        assert file.model


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([16**500, -(16**500), 2**64]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["all", "none", "tool:(", "10m", "/x/**", "https://x", "Claude", "auto", "((a+)+)$"]),
    st.datetimes(),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["allow", "command", "url", "tools", "read", "kind", "a b", "type"]), inner),
    ),
    max_leaves=6,
)


def _of(wanted: type) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from([*keys_of(wanted), "mcp", "read_only"]), _VALUES, max_size=3)


@given(_of(Tables), st.sampled_from(keys_of(Tables)), _VALUES)
def test_whatever_a_configuration_says_is_read_or_is_an_error_with_its_place(
    tables: dict[str, Any], name: str, value: Any
) -> None:
    with suppress(ConfigError):
        read({**tables, name: value}, Tables, STRICT)
    for reads in (read_hooks, lambda *args: read_server("a", *args)):
        with suppress(ConfigError):
            reads(value, STRICT, ("x",))


@given(_of(Preset), _VALUES)
def test_whatever_a_front_matter_says_is_read_or_is_an_error_with_its_place(
    front: dict[str, Any], value: Any
) -> None:
    with suppress(PresetError):
        parse_preset("p", {"backend": "Claude", **front}, "", "p.md", profiles={})
    with suppress(PresetError):
        read_wanted(value, Source.of_front_matter(front, "p.md", PresetError), ("mcp",))
    with suppress(BadRequest):
        parse_message_settings(front)

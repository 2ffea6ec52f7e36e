"""What a model is told of the data, and of what values look like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.lisp.values import Keyword, LispSet
from pyagentd.mission import signature as signatures
from pyagentd.mission.firewall import HIDDEN, Firewall
from pyagentd.mission.options import PromptLimit
from pyagentd.mission.prompt import inventory, type_of
from pyagentd.mission.signature.rendering import example, type_text

K = Keyword


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1, ":int"),
        (1.5, ":float"),
        ("x", ":string"),
        (True, ":bool"),
        (K("x"), ":keyword"),
        ([], "[:any]"),
        ([1, 2], "[:int]"),
        ([1, 2.5], "[:float]"),
        ([1, None], "[:int?]"),
        ([1, "x"], "[[:or :int :string]]"),
        ([[1], []], "[[:int]]"),
        ({}, ":map"),
        ({"a": 1, K("b"): "x"}, "{a :int, b :string}"),
        ([{"a": 1}, {"a": 2, "b": "x"}], "[{a :int, b :string?}]"),
        ([{"a": None}, {"a": 2}], "[{a :int?}]"),
        ({"a": None}, "{a :nil}"),
        ([None], "[:nil]"),
        ([[None], [True]], "[[:bool?]]"),
        ([{"a": None}, {}], "[{a :any?}]"),
        (LispSet([1]), ":any"),
    ],
)
def test_a_type_is_inferred(value, type_):
    assert type_text(type_of(value)) == type_


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@given(_VALUES)
def test_a_value_fits_the_type_that_is_inferred(value):
    text = type_text(type_of(value))
    assert signatures.parse(text).validate(value) == ()


@pytest.mark.parametrize(
    "text",
    [
        ":int",
        "{id :int, tags [:string], note :string?}",
        '[:enum "open" "closed"]',
        "[:enum :open :closed]",
        "[:or :int :string]",
        "[:and :int [:> 0] [:< 100]]",
        "[:map-of :string :int]",
        "{when :datetime, any :any, m :map, f :float, b :bool, k :keyword}",
    ],
)
def test_an_example_reads_like_the_type(text):
    returns = signatures.parse(text).returns
    assert example(returns)


def test_an_entry_has_name_type_and_sample():
    context = {"orders": [{"id": 1}, {"id": 2}], "quarter": "Q3", "_ids": [1, 2, 3], "n": 4}
    assert inventory(context, None, Firewall()).splitlines() == [
        "- `ctx/orders` [{id :int}], 2 items",
        '  [{"id" 1} {"id" 2}]',
        '- `ctx/quarter` :string = "Q3"',
        f"- `ctx/_ids` [:int], 3 items {HIDDEN}",
        "- `ctx/n` :int = 4",
    ]


def test_declared_types_win_over_what_is_seen():
    declared = signatures.parse("(limit :float) -> {status [:enum :open :closed], other :int}")
    text = inventory({"status": K("open"), "limit": 3}, declared, Firewall())
    assert "`ctx/status` [:enum :open :closed] = :open" in text
    assert "`ctx/limit` :float = 3" in text


def test_large_data_is_cut_with_a_note():
    text = inventory({"xs": list(range(9)), "s": "y" * 90}, None, Firewall(PromptLimit(list=2, string=10)))
    assert "  [0 1 ...]\n  Note: `ctx/xs` shows 2 of 9 items; programs see all of it." in text
    assert '"yyyyyyyyyy..."' in text
    assert "`ctx/s` shows the first 10 of 90 bytes" in text


def test_no_data_is_said():
    assert inventory({}, None, Firewall()) == "There is no data in `ctx/`."


def test_the_memory_of_the_start_is_listed():
    text = inventory({}, None, Firewall(), {"seen": [1, 2], "_key": "x"})
    assert text.splitlines()[1:] == [
        "- `memory/seen` [:int], 2 items",
        "  [1 2]",
        f"- `memory/_key` :string {HIDDEN}",
    ]

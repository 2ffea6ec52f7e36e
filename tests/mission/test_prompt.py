"""What a model is told before anything else."""

from __future__ import annotations

import pytest

from pyagentd.mission import signature as signatures
from pyagentd.mission.firewall import Firewall
from pyagentd.mission.options import Options
from pyagentd.mission.prompt import Brief, system_prompt
from pyagentd.mission.tools import normalize

SECTIONS = [
    "# Role",
    "# Rules",
    "# Data Inventory",
    "# Available Tools",
    "# PTC-Lisp",
    "# Expected Output",
    "# Output Format",
    "# Limits",
    "# Mission",
]


def prompt(**given) -> str:
    return system_prompt(Brief(**{"mission": "Count the orders.", **given}), Firewall())


@pytest.mark.spec("004", "The System Prompt")
def test_it_has_its_sections_in_order():
    text = prompt(context={"orders": [1]}, tools=normalize({"now": (lambda: "x", "() -> :string")}))
    places = [text.index(f"{title}\n") for title in SECTIONS]
    assert places == sorted(places)
    for needed in (
        '(call "search"',
        "ctx/orders",
        "memory/put",
        "```clojure",
        "now() -> :string",
        "Count the orders.",
    ):
        assert needed in text


@pytest.mark.spec("004", "tools vs tool_catalog")
def test_the_catalog_is_shown_apart_and_not_to_be_called():
    text = prompt(
        tools=normalize({"search": (lambda args: [], "(query :string) -> [{id :int}]", {"description": "Finds."})}),
        catalog=normalize({"book": "(flight :int) -> {ok :bool}"}, catalog=True),
    )
    own, planning = text.split("## Tools for planning (do not call)")
    assert "; Finds.\nsearch(query :string) -> [{id :int}]" in own
    assert "book(" not in own
    assert "book(flight :int) -> {ok :bool}" in planning


def test_the_expected_output_is_a_type_and_an_example():
    text = prompt(returns=signatures.parse("{count :int, _ids [:int]}"))
    assert "{count :int, _ids [:int]}" in text
    assert '(call "return" {:count 1 :_ids [1]})' in text
    assert "Other keys are refused." not in text
    strict = prompt(returns=signatures.parse("{count :int}"), options=Options(signature_validation="strict"))
    assert "Other keys are refused." in strict


def test_a_single_shot_needs_no_return():
    text = prompt(single_shot=True, options=Options(max_turns=1))
    assert "What the program evaluates to is the result." in text
    assert "# Available Tools" not in text
    assert "This is the only turn." in text


def test_it_can_be_replaced_wrapped_and_changed():
    assert prompt(options=Options(system_prompt="Own.")) == "Own."
    assert prompt(options=Options(system_prompt=str.upper)).startswith("# ROLE")
    wrapped = prompt(options=Options(system_prompt={"prefix": "First.", "suffix": "Last.", "language_spec": "Lisp!"}))
    assert wrapped.startswith("First.\n\n# Role") and wrapped.endswith("\n\nLast.")
    assert "# PTC-Lisp\n\nLisp!\n\n# Expected" in wrapped


def test_it_is_short_enough_for_a_small_model():
    """Without data and tools it is some 1,100 tokens; what is added should be worth its place in every request."""
    assert len(prompt()) < 5_000


def test_a_long_mission_is_not_sent_twice():
    assert "# Mission\n\nIt is the first message to you." in prompt(mission="x" * 3000)

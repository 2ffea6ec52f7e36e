"""The table of builtins is complete: arities, documentation, examples, and cases for every name."""

import re
from pathlib import Path

import pytest

from pyagentd import lisp
from pyagentd.lisp.builtins import BUILTINS, FAMILIES
from pyagentd.lisp.builtins.table import Builtin

from .test_cases import ROWS, assert_same

NAMES = [
    name
    for line in (Path(__file__).parent / "names.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith(";")
    for name in line.split()
]

OWN = [each for each in BUILTINS.values() if not each.alias_of]
TOTAL = frozenset(
    {"hash-set", "empty", "keywordize-keys", "stringify-keys", "parse-boolean", "doall", "boolean", "type", "str"}
    | {"vector?", "map?", "coll?", "fn?", "ifn?", "zero?", "pos-int?", "neg-int?"}
    | {"nat-int?", "pr-str"}
)
"""Builtins that no value can be wrong for; a wrong number of arguments still is."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_programs_use_is_known(name: str) -> None:
    assert name in BUILTINS


def test_no_name_is_defined_twice() -> None:
    names = [name for family in FAMILIES for name in family.builtins]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("builtin", OWN, ids=lambda each: each.name)
def test_a_builtin_is_documented(builtin: Builtin) -> None:
    assert builtin.doc.endswith(".")
    assert builtin.examples


@pytest.mark.parametrize("builtin", OWN, ids=lambda each: each.name)
def test_the_examples_of_a_builtin_are_true(builtin: Builtin) -> None:
    for program, value in builtin.examples:
        assert_same(lisp.run(program).value, lisp.run(value).value)


@pytest.mark.parametrize("builtin", OWN, ids=lambda each: each.name)
def test_a_wrong_number_of_arguments_is_an_error_that_names_the_builtin(builtin: Builtin) -> None:
    programs = []
    if builtin.most is not None:
        programs.append(f"({builtin.name} {'nil ' * (builtin.most + 1)})")
    if builtin.least:
        programs.append(f"({builtin.name} {'nil ' * (builtin.least - 1)})")
    for program in programs:
        with pytest.raises(lisp.LispError, match=re.escape(builtin.name)) as caught:
            lisp.run(program)
        assert caught.value.reason == "eval_error"
        assert caught.value.line == 1


def test_every_builtin_has_three_cases_and_one_of_them_an_error() -> None:
    uses: dict[str, list[str]] = {name: [] for name in BUILTINS}
    for program, mark, _ in ROWS:
        for word in set(re.findall(r'[^\s()\[\]{}#"]+', program)) & BUILTINS.keys():
            uses[word].append(mark)
    plain = [each for each in BUILTINS if "/" not in each[1:]]  # str/join is join under the name Clojure has for it
    assert [name for name in plain if len(uses[name]) < 3] == []
    assert [each.name for each in OWN if "!!" not in uses[each.name] and each.name not in TOTAL] == []

"""The table of builtins is complete: arities, documentation, examples, and cases for every name."""

from __future__ import annotations

import re

import pytest

from pyagentd import lisp
from pyagentd.lisp.builtins import BUILTINS, FAMILIES
from pyagentd.lisp.builtins.table import Builtin

from .test_cases import ROWS, assert_same

# The names a program could always call (SPEC 004, and what programs of its time used).
FROM_THE_START = """
filter remove find map mapv pluck sort sort-by reverse first second last nth take drop take-while drop-while distinct
concat conj into flatten zip interleave count empty? seq reduce sum-by avg-by min-by max-by group-by some every?
not-any? contains? get get-in assoc assoc-in update update-in dissoc merge select-keys keys vals entries update-vals
+ - * / mod inc dec abs max min = not= > < >= <= not identity nil? some? boolean? number? string? keyword? vector? set?
set map? coll? str subs join split trim replace upcase upper-case downcase lower-case starts-with? ends-with? includes?
parse-long parse-double zero? pos? neg? even? odd?
""".split()

# What Clojure has besides and models reach for.
EXPECTED = """
rest next butlast keep keep-indexed map-indexed mapcat partition partition-all partition-by frequencies zipmap juxt comp
partial complement constantly apply range repeat iterate dedupe interpose split-at split-with reductions reduce-kv
merge-with rename-keys update-keys disj union difference intersection subset? superset? max-key min-key compare quot rem
pow round floor ceil sqrt re-find re-matches re-seq re-pattern format name keyword boolean int float double long
not-empty nthrest peek pop vec vector list hash-map hash-set fnil every-pred some-fn all-of any-of none-of not-every?
str/join str/split str/upper-case clojure.string/trim set/union clojure.set/difference Math/sqrt walk/postwalk
""".split()

OWN = [each for each in BUILTINS.values() if not each.alias_of]
TOTAL = {
    *("hash-set empty keywordize-keys stringify-keys parse-boolean doall vector? map? coll? associative? sorted?").split(),
    *("fn? ifn? zero? pos-int? neg-int? nat-int? boolean type str pr-str").split(),
}
"""Builtins that no value can be wrong for; a wrong number of arguments still is."""


@pytest.mark.parametrize("name", FROM_THE_START + EXPECTED)
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

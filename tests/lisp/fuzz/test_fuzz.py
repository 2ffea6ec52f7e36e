"""A glance of what the fuzzer looks at for an hour."""

import random

import pytest

from tests.lisp.fuzz.checks import check
from tests.lisp.fuzz.mutation import SEEDS, forms, mutated


@pytest.mark.parametrize("seed", range(150))
def test_a_changed_program_has_a_value_or_a_documented_error(seed):
    chance = random.Random(seed)
    text = chance.choice(SEEDS)
    for _ in range(3):
        text = mutated(text, chance.choice(SEEDS), chance)
        check(text)


def test_forms_are_found_inside_out():
    text = '(a [b "c)"] :d) ]'
    assert [text[start:end] for start, end in forms(text)] == ["a", "b", '"c)"', '[b "c)"]', ":d", '(a [b "c)"] :d)']

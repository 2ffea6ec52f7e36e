"""The language reference is true: its examples run, its tables are those of the builtins, its forms exist."""

import json
import re
from pathlib import Path

import pytest

from pyagentd import lisp
from pyagentd.lisp.values import from_python

from . import reference
from .test_cases import assert_same

PATH = Path(__file__).parents[3] / "docs" / "lisp.md"
PAGE = PATH.read_text(encoding="utf-8")
CONTEXT = from_python(json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0]))
EXAMPLES: list[tuple[str, str, str]] = [
    (program.strip(), mark, expected.strip())
    for block in re.findall(r"```clojure\n(.*?)```", PAGE, re.DOTALL)
    for program, mark, expected in re.findall(r"(.*?) ;(=>|!!) ([^\n]*)\n", block, re.DOTALL)
]


def test_the_tables_of_builtins_are_up_to_date() -> None:
    assert reference.with_tables(PAGE) == PAGE, "run python -m tests.lisp.builtins.reference docs/lisp.md"


@pytest.mark.parametrize(("program", "mark", "expected"), EXAMPLES, ids=[each[0] for each in EXAMPLES])
def test_an_example_of_the_reference_is_true(program: str, mark: str, expected: str) -> None:
    if mark == "!!":
        with pytest.raises(lisp.LispError) as caught:
            lisp.run(program, CONTEXT)
        assert expected in caught.value.message
    else:
        assert_same(lisp.run(program, CONTEXT).value, lisp.run(expected).value)


def test_the_python_example_runs() -> None:
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], {})


def test_what_the_reference_says_of_the_limits_is_so() -> None:
    limits = lisp.Limits()
    assert (limits.timeout_ms, limits.steps, limits.cells) == (5000, 50_000_000, 5_000_000)
    assert (limits.bytes, limits.bits, limits.depth, limits.memory_bytes) == (50_000_000, 13_000, 200, 1_048_576)


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no marks"):
        reference.with_tables("nothing here")

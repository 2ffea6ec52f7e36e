"""Every special form gives what the tables beside this file say, or the error they say, at that place."""

import re
from pathlib import Path

import pytest

from pyagentd import lisp
from pyagentd.lisp.analysis import FORMS
from tests.lisp.builtins.test_cases import assert_same

CASES = Path(__file__).parent / "cases"
ERROR = re.compile(r"(?P<reason>[a-z_]+) (?P<line>\d+):(?P<column>\d+) (?P<message>.*)")


def rows() -> list[tuple[str, str, str]]:
    """(program, mark, expected); ``=>`` a value, ``!!`` reason, place and a part of the message."""
    found = []
    for path in sorted(CASES.glob("*.lisp")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith(";"):
                mark = " => " if " => " in line else " !! "
                program, _, expected = line.rpartition(mark)
                found.append((program, mark.strip(), expected))
    return found


ROWS = rows()


@pytest.mark.parametrize(("program", "mark", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_a_form_gives_what_its_table_says(program: str, mark: str, expected: str) -> None:
    if mark == "=>":
        assert_same(lisp.run(program).value, lisp.run(expected).value)
        return
    wanted = ERROR.fullmatch(expected)
    assert wanted is not None, expected
    with pytest.raises(lisp.LispError) as caught:
        lisp.run(program)
    error = caught.value
    assert (error.reason, error.line, error.column) == (wanted["reason"], int(wanted["line"]), int(wanted["column"]))
    assert wanted["message"] in error.message
    assert error.caret().splitlines()[-1] == " " * (int(wanted["column"]) - 1) + "^"


@pytest.mark.parametrize("name", sorted(FORMS.keys() - {"call", "return", "fail"}))
def test_every_form_is_in_the_tables_at_least_three_times(name: str) -> None:
    used = re.compile(rf"\({re.escape(name)}[ )\]]")
    assert sum(bool(used.search(program)) for program, _, _ in ROWS) >= 3

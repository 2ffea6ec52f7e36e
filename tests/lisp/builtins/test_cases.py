"""Every builtin gives what the table beside this file says, or the error it says."""

from pathlib import Path

import pytest

from pyagentd import lisp
from pyagentd.lisp.serialization import readable
from pyagentd.lisp.values import equal

CASES = Path(__file__).parent / "cases"


def rows() -> list[tuple[str, str, str]]:
    """(program, mark, expected); ``=>`` a value, ``!!`` a part of the message of an ``eval_error``."""
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
def test_a_builtin_gives_what_its_table_says(program: str, mark: str, expected: str) -> None:
    if mark == "!!":
        with pytest.raises(lisp.LispError) as caught:
            lisp.run(program)
        assert caught.value.reason == "eval_error"
        assert expected in caught.value.message
        return
    assert_same(lisp.run(program).value, lisp.run(expected).value)


def assert_same(value: object, expected: object) -> None:
    """Equal in the language, and of the same type: 5.0 is not 5 here."""
    assert equal(value, expected)
    assert readable(value) == readable(expected)

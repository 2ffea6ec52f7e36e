"""No program, however odd, brings anything about but a value or a documented error."""

import contextlib
import copy

from hypothesis import example, given
from hypothesis import strategies as st

from pyagentd import lisp
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.serialization import readable
from tests.lisp.fuzz.checks import CONTEXT, LIMITS, MEMORY, check, tool
from tests.lisp.properties.strategies import PIECES, PROGRAMS


@given(PROGRAMS)
def test_a_program_has_a_value_or_a_documented_error(text):
    check(text)


@given(PIECES)
@example("\ufeff1")
@example("(str \u200b1)")
@example("\r\n;\r1")
def test_any_text_is_a_program_or_an_error_with_its_place(text):
    check(text)


@given(st.text())
def test_any_characters_are(text):
    check(text)


@given(PROGRAMS)
def test_a_program_changes_nothing_it_was_given(text):
    context, memory = copy.deepcopy(CONTEXT), copy.deepcopy(MEMORY)
    with contextlib.suppress(LispError):
        lisp.compile(text).run(context, memory, tools=tool, limits=LIMITS)
    assert context == CONTEXT
    assert memory == MEMORY


@given(PROGRAMS)
def test_a_program_does_the_same_twice(text):
    try:
        program = lisp.compile(text)
    except LispError:
        return
    assert outcome(program) == outcome(program)


def outcome(program: lisp.Program) -> str:
    try:
        result = program.run(CONTEXT, MEMORY, tools=tool, limits=LIMITS)
        return f"{result.signal} {readable(result.value)} {readable(result.memory)}"
    except LispError as error:
        return f"{error.reason} {error.message} {error.line} {error.column}"

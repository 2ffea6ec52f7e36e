"""What a model reads after a turn (SPEC 004 Turn Merge, Validation, Boundary Reminder).

Whole sentences: what happened, what is there now, what to do next. Values pass the firewall; messages of errors do
too, since an error names the value it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyagentd.lisp.errors import LispError
from pyagentd.mission.firewall import HIDDEN, Firewall
from pyagentd.mission.inventory import type_of
from pyagentd.mission.signature import Problem, Signature
from pyagentd.mission.signature.rendering import type_text

_PROBLEMS = 10
_WARNINGS = 5
_LONGEST = 2_000  # characters of a message


def of_value(value: Any, names: Sequence[str], firewall: Firewall, warnings: Iterable[str] = ()) -> str:
    """Return what is said of a program that came to its end without ending the mission.

    Args:
        value: What it evaluated to.
        names: What programs find it under in ``ctx/``.
        firewall: Shows it.
        warnings: What was converted or left out on the way.
    """
    text, notes = firewall.shown(value)
    type_ = firewall.type_words(f" {type_text(type_of(value))}") if isinstance(value, dict | list) and value else ""
    lines = [f"Result{type_}:", text, *notes, _kept(names, firewall), *_warned(warnings, firewall)]
    return "\n".join(line for line in lines if line)


def of_error(
    error: LispError,
    firewall: Firewall,
    warnings: Iterable[str] = (),
    *,
    called: Sequence[str] = (),
) -> str:
    """Return what is said of a program that failed.

    Args:
        error: What of.
        firewall: Keeps values out of it.
        warnings: What was converted or left out on the way.
        called: The tools it had called before, in order.
    """
    place = f", line {error.line}, column {error.column}" if error.line is not None else ""
    lines = [f"Error ({error.reason}{place}): {_sentence(_told(error))}", error.caret(), _sentence(error.hint)]
    if error.undone:
        lines.append("What the program put into memory is undone.")
    if called:
        lines.append(f"It had called {', '.join(dict.fromkeys(called))} before; that stays done.")
    said = "\n".join(line for line in lines if line)
    return "\n".join([firewall.words(said), *_warned(warnings, firewall)])


def of_return(value: Any, problems: Sequence[Problem], signature: Signature, firewall: Firewall) -> str:
    """Return what is said of a value that is not what the mission promises."""
    text, notes = firewall.shown(value)
    return "\n".join(
        [
            "Error (validation_error): The returned value does not fit the expected output.",
            f"Expected: {type_text(signature.returns)}",
            f"Received: {text}",
            *notes,
            *problem_lines(problems, firewall),
            'Call (call "return" …) again with a value that fits.',
        ]
    )


def of_function(firewall: Firewall, warnings: Iterable[str] = ()) -> str:
    """Return what is said of a program that returned a function."""
    return "\n".join(
        [
            "Error (validation_error): The returned value is a function, which is no data.",
            "Call it and return what it gives.",
            *_warned(warnings, firewall),
        ]
    )


def of_mistyped(mistyped: Sequence[str], firewall: Firewall) -> str:
    """Return what is said of a return that rests on names which are not there."""
    said = "\n".join(f"- {firewall.words(each)}" for each in mistyped)
    return f'The value was not returned yet:\n{said}\nCorrect the program, or call "return" again if nil is meant.'


def problem_lines(problems: Sequence[Problem], firewall: Firewall) -> list[str]:
    """Return a line for each problem, for the first of them."""
    told = (one_line(f"{problem.path or 'value'}: {problem.message}") for problem in problems[:_PROBLEMS])
    lines = [firewall.words(f"- {each}") for each in told]
    if len(problems) > _PROBLEMS:
        lines.append(f"- and {len(problems) - _PROBLEMS} more.")
    return lines


def of_nothing(said: str) -> str:
    """Return the boundary reminder: an answer had no program."""
    cause = "Your answer was empty." if not said.strip() else "There was no program in your answer, so nothing ran."
    return (
        f"{cause} Go on with your next step as one program in a fenced block:\n\n"
        '```clojure\n(call "return" …)\n```\n\n'
        'If the mission is fulfilled, call "return" with the result; if it cannot be, call "fail" and say why.'
    )


def turns_left(turn: int, of: int, budget_left: int) -> str:
    """Return the line about the turns still to come."""
    left = min(of - turn, budget_left)
    if left <= 0:
        return ""
    if left == 1:
        return '⚠️ FINAL TURN: your next program has to end the mission with (call "return" …) or (call "fail" …).'
    return f"Turn {turn} of {turn + left} is done, {left} turns are left."


def _kept(names: Sequence[str], firewall: Firewall) -> str:
    if not names:
        return "Nothing of it is kept."
    shown = ", ".join(f"ctx/{HIDDEN if firewall.hides(name) else firewall.words(name)}" for name in names[:12])
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"From now on it is in {shown}{more}."


def _warned(warnings: Iterable[str], firewall: Firewall) -> list[str]:
    told = list(dict.fromkeys(warnings))
    lines = [f"Note: {firewall.words(_sentence(one_line(warning)))}" for warning in told[:_WARNINGS]]
    return [*lines, f"Note: {len(told) - _WARNINGS} more of that kind."] if len(told) > _WARNINGS else lines


def _told(error: LispError) -> str:
    # Lists of problems have lines of their own; what tools and programs say is foreign words in one sentence.
    return error.message if error.reason == "validation_error" else one_line(error.message)


def one_line(text: str) -> str:
    """Return somebody else's words so that they cannot pass for what the system says in lines of its own."""
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return " ".join(short.split())


def _sentence(text: str) -> str:
    """Return ``text`` beginning as a sentence does, unless it begins with a name, and ending as one."""
    if not text:
        return ""
    first = text.split(maxsplit=1)[0]
    start = text[0].upper() + text[1:] if first.isalpha() and first.islower() else text
    return start if start.endswith((".", "!", "?", "…", ":")) else f"{start}."

"""What came of a program: where its value goes, and what its failure means (DD-27)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyagentd import lisp
from pyagentd.lisp import values
from pyagentd.mission.checks import named
from pyagentd.mission.progress import End
from pyagentd.mission.step import Fail

_NAME = re.compile(r"[A-Za-z0-9_*+!?<>=-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a program.

    Attributes:
        value: What it evaluated to or returned.
        error: Why the turn failed.
        feedback: What the model is told, without the line about turns.
        context: From now on.
        memory: From now on.
        end: That it ended the mission.
    """

    value: Any = None
    error: Fail | None = None
    feedback: str = ""
    context: Mapping[str, Any]
    memory: Mapping[str, Any]
    end: End | None = None


def merged(context: Mapping[str, Any], value: Any) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the context after a program evaluated to ``value``, and the names of that in it (DD-27).

    A map with keys that no program can write after ``ctx/``, as of groups by city or by e-mail, is there as a whole.
    """
    if is_function(value):
        return context, ()
    by_name = named(value) if isinstance(value, dict) else {}
    writable = {name: item for name, item in by_name.items() if _NAME.fullmatch(name)}
    if not writable or len(writable) < len(value):
        return {**context, "last": value, **writable}, ("last", *(name for name in writable if name != "last"))
    return {**context, **writable}, tuple(writable)


def replaced(context: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return a warning for every name of the context that a program's result has taken."""
    taken = [name for name in names if name in context and name != "last"]
    return [f"ctx/{name} is now what this program gave; what it was before is gone" for name in taken]


def is_function(value: Any) -> bool:
    """Return whether a program ended with a function, which nobody outside can use."""
    return callable(value) and not isinstance(value, lisp.Keyword)


def fail_of(value: Any) -> Fail:
    """Return the failure that ``(call "fail" value)`` means; a bare value is its message."""
    plain = values.to_python(value)
    if not isinstance(plain, dict):
        message = plain if isinstance(plain, str) else "The program gave up" if plain is None else str(plain)
        return Fail(reason="failed", message=message)
    reason, said, op = plain.get("reason"), plain.get("message"), plain.get("op")
    rest = {key: item for key, item in plain.items() if key not in ("reason", "message", "op", "details")}
    return Fail(
        reason=str(reason or "failed").removeprefix(":"),
        message=str(said) if said else "The program gave no message",
        op=None if op is None else str(op),
        details={**rest, **_details(plain.get("details"))},
    )


def _details(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    return given if isinstance(given, dict) else {"details": given}

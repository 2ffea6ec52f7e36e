"""What does not fit, and where: in words that contain no value, so that they may go to anybody.

Values of fields that begin with ``_`` must never reach a model (SPEC 004). Messages name types, field names and what
the signature itself says, never what was given; keys that are data and lie below such a field are not named either.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from pyagentd.mission.signature.fields import is_plain

Path: TypeAlias = tuple[str | int, ...]

MOST_PROBLEMS = 100
"""A list of a hundred thousand wrong rows is one mistake."""

_HIDDEN = "[Hidden]"
_LONGEST_KEY = 60


class Trail(NamedTuple):
    """Where a value stands, as a chain to the outermost one.

    Attributes:
        before: Where the collection stands that holds the value; None: outermost.
        step: Key or index of the value in it.
        is_data: Whether the step is a key that the signature does not name.
    """

    before: Trail | None
    step: str | int
    is_data: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not fit.

    Attributes:
        path: Where, as ``results[0].customer.id``; "" is the value itself.
        message: What, as ``expected int, got string``.
        keys: The path as its parts.
    """

    path: str
    message: str
    keys: Path = ()

    def __str__(self) -> str:
        return f"[{self.path}]: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Coerced:
    """Arguments brought into the types of a signature.

    Attributes:
        value: The arguments, declared ones only, each under the key (keyword or string) it came with; they
            themselves where there are problems.
        warnings: Conversions that were made.
        problems: What could be neither taken nor converted; empty means that ``value`` fits.
    """

    value: Any
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class Report:
    """What was found so far on a walk through a value.

    Attributes:
        strict: Whether fields that are not declared are problems.
    """

    strict: bool = False
    problems: list[tuple[Trail | None, str]] = field(default_factory=list)
    warnings: list[tuple[Trail | None, str]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether more problems would tell nothing new."""
        return len(self.problems) >= MOST_PROBLEMS

    def fresh(self) -> Report:
        """Return an empty report for trying something."""
        return Report(self.strict)

    def problem(self, trail: Trail | None, message: str) -> None:
        """Note that the value at ``trail`` does not fit."""
        if not self.full:
            self.problems.append((trail, message))

    def warning(self, trail: Trail | None, message: str) -> None:
        """Note that the value at ``trail`` was converted."""
        if len(self.warnings) < MOST_PROBLEMS:
            self.warnings.append((trail, message))

    def join(self, other: Report) -> None:
        """Take over what ``other`` found."""
        for found in other.problems:
            self.problem(*found)
        for found in other.warnings:
            self.warning(*found)

    def told(self) -> tuple[Problem, ...]:
        """Return the problems."""
        return tuple(_problem(*found) for found in self.problems)

    def warned(self) -> tuple[Problem, ...]:
        """Return the warnings."""
        return tuple(_problem(*found) for found in self.warnings)


def _problem(trail: Trail | None, message: str) -> Problem:
    steps = _shown(trail)
    return Problem(path_text(steps), message, steps)


def _shown(trail: Trail | None) -> Path:
    chain = []
    while trail is not None:
        chain.append(trail)
        trail = trail.before
    steps: list[str | int] = []
    hidden = False
    for _, step, is_data in reversed(chain):
        steps.append(_HIDDEN if hidden and is_data else step)
        hidden |= isinstance(step, str) and step.startswith("_")
    return tuple(steps)


def path_text(steps: Path) -> str:
    """Return a path as text: ``results[0].customer.id``."""
    text = ""
    for step in steps:
        match step:
            case int():
                text += f"[{step}]"
            case str() if step == _HIDDEN:
                text += step
            case str() if is_plain(step) and len(step) <= _LONGEST_KEY:
                text += f".{step}" if text else step
            case _:
                text += f"[{json.dumps(step[:_LONGEST_KEY], ensure_ascii=False)}]"
    return text

"""What does not fit, and where: in words that contain no value, so that they may go to anybody.

Values of fields that begin with ``_`` must never reach a model (SPEC 004). Messages name types, field names and what
the signature itself says, never what was given; keys that are data and lie below such a field are not named either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]


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

"""A signature: what a mission or a tool takes and what it gives (SPEC 004 PtcRunner.SubAgent.Signature)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyagentd.mission.signature.problems import Coerced, Problem
from pyagentd.mission.signature.types import Field, Type


@dataclass(frozen=True, slots=True)
class Signature:
    """Typed parameters and a typed result.

    Attributes:
        params: The parameters, in order; arguments are always a map by their names.
        returns: What comes back.
    """

    params: tuple[Field, ...]
    returns: Type

    def render(self) -> str:
        """Return the canonical text, which parses back to an equal signature."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.render()

    def validate(self, value: Any, strict: bool = False) -> tuple[Problem, ...]:
        """Return why ``value`` is not what the signature promises; empty when it is.

        Args:
            value: A Lisp value or a plain Python value; keys of maps may be keywords or strings.
            strict: Whether fields that are not declared are problems.
        """
        raise NotImplementedError

    def validate_input(self, args: Any, strict: bool = False) -> tuple[Problem, ...]:
        """Return why the map ``args`` does not fit the parameters."""
        raise NotImplementedError

    def coerce_input(self, args: Any) -> Coerced:
        """Bring ``args`` into the types of the parameters where that is possible (SPEC 004 Implicit Conversion)."""
        raise NotImplementedError

    def returns_only(self) -> Signature:
        """Return the signature of the result alone, as ``context_signature`` needs it."""
        return Signature((), self.returns)

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the map of arguments."""
        raise NotImplementedError

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the result."""
        raise NotImplementedError


def parse(source: Any) -> Signature:
    """Read a signature: shorthand or Malli as text, Malli as data, or one that was read before.

    Raises:
        SignatureError: It is none; the error knows the place and what to write instead.
    """
    raise NotImplementedError

"""A signature: what a mission or a tool takes and what it gives (SPEC 004 PtcRunner.SubAgent.Signature)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyagentd.mission.signature import schema
from pyagentd.mission.signature.coercion import coerced
from pyagentd.mission.signature.data import form_of
from pyagentd.mission.signature.forms import read
from pyagentd.mission.signature.hints import is_hint, type_of_hint
from pyagentd.mission.signature.meaning import parts_of
from pyagentd.mission.signature.problems import Coerced, Problem
from pyagentd.mission.signature.rendering import signature_text
from pyagentd.mission.signature.types import Field, Map, Type
from pyagentd.mission.signature.validation import problems_of


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
        return signature_text(self.params, self.returns)

    def __str__(self) -> str:
        return self.render()

    def validate(self, value: Any, strict: bool = False) -> tuple[Problem, ...]:
        """Return why ``value`` is not what the signature promises; empty when it is.

        Args:
            value: A Lisp value or a plain Python value; keys of maps may be keywords or strings.
            strict: Whether fields that are not declared are problems.
        """
        return problems_of(self.returns, value, strict=strict)

    def validate_input(self, args: Any, strict: bool = False) -> tuple[Problem, ...]:
        """Return why the map ``args`` does not fit the parameters."""
        return problems_of(Map(self.params), args, strict=strict)

    def coerce_input(self, args: Any, strict: bool = False) -> Coerced:
        """Bring ``args`` into the types of the parameters where that is possible (SPEC 004 Implicit Conversion).

        Args:
            args: A map by the names of the parameters.
            strict: Whether arguments that are not declared are problems; otherwise they are left out.
        """
        return coerced(Map(self.params), args, strict=strict)

    def returns_only(self) -> Signature:
        """Return the signature of the result alone, as ``context_signature`` needs it."""
        return Signature((), self.returns)

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the map of arguments."""
        return schema.fields_schema(self.params)

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the result."""
        return schema.schema_of(self.returns)


def parse(source: Any) -> Signature:
    """Read a signature.

    Args:
        source: Shorthand or Malli as text; Malli as lists, fields as dicts; a Python class or type hint, which says
            what comes back; or a signature that was read before.

    Raises:
        SignatureError: It is none; the error knows the place and what to write instead.
    """
    match source:
        case Signature():
            return source
        case str():
            return _parsed(source)
        case Type():
            return Signature((), source)
        case _ if is_hint(source):
            return Signature((), type_of_hint(source))
        case _:
            return Signature(*parts_of((form_of(source),)))


@lru_cache(maxsize=256)
def _parsed(text: str) -> Signature:
    return Signature(*parts_of(read(text)))

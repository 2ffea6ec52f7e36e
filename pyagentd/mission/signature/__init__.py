"""Signatures: typed parameters and a typed result of a mission or tool.

``parse`` parses shorthand and Malli into a ``Signature``, which can be rendered, used to validate and coerce values,
and converted to JSON Schema. ``of_callable`` derives one from the hints of a Python function. Values may be
plain Python or values of the mission language.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import Parameter
from typing import Any

from pyagentd.errors import SignatureError
from pyagentd.mission.signature.hints import (
    construct,
    construction_problems,
    is_hint,
    optional_field,
    resolve_hints,
    type_of_hint,
)
from pyagentd.mission.signature.parsing import form_of, parts_of, read
from pyagentd.mission.signature.rendering import fields_schema, schema_of, signature_text, type_text
from pyagentd.mission.signature.types import (
    ANY,
    And,
    Constant,
    Constraint,
    Enum,
    Field,
    List,
    Map,
    MapOf,
    Maybe,
    Or,
    Primitive,
    Type,
)
from pyagentd.mission.signature.validation import Coercion, Problem, coerce, problems_of

__all__ = [
    "ANY",
    "And",
    "Coercion",
    "Constant",
    "Constraint",
    "Enum",
    "Field",
    "List",
    "Map",
    "MapOf",
    "Maybe",
    "Or",
    "Primitive",
    "Problem",
    "Signature",
    "SignatureError",
    "Type",
    "coerce",
    "of_callable",
    "parse",
    "type_text",
]


@dataclass(frozen=True, slots=True)
class Signature:
    """Typed parameters and a typed result."""

    params: tuple[Field, ...]  # in order; arguments are a map by their names
    returns: Type
    python: Any = field(default=None, compare=False, repr=False)  # the Python type that it was made from

    def render(self) -> str:
        """Return the canonical text, which parses to an equal signature."""
        return signature_text(self.params, self.returns)

    def __str__(self) -> str:
        return self.render()

    def validate(self, value: Any, strict: bool = False) -> tuple[Problem, ...]:
        """Return why ``value`` does not fit the result type; empty when it does.

        Args:
            value: A value of the language or of plain Python; keys of maps may be keywords or strings.
            strict: Whether undeclared fields are problems.
        """
        return problems_of(self.returns, value, strict=strict)

    def validate_input(self, args: Any, strict: bool = False) -> tuple[Problem, ...]:
        """Return why the map ``args`` does not fit the parameters."""
        return problems_of(Map(self.params), args, strict=strict)

    def coerce_input(self, args: Any, strict: bool = False) -> Coercion:
        """Convert the map ``args`` to the types of the parameters where nothing is lost; see ``coerce``."""
        return coerce(Map(self.params), args, strict=strict)

    def instance(self, value: Any) -> tuple[Any, tuple[Problem, ...]]:
        """Return plain Python ``value`` as an instance of the Python type, or unchanged with the problems."""
        if self.python is None:
            return value, ()
        try:
            return construct(self.python, value), ()
        except Exception as error:  # a class may check its fields in any way
            return value, tuple(Problem(path, message) for path, message in construction_problems(error))

    def returns_only(self) -> "Signature":
        """Return the signature without parameters, as needed for ``context_signature``."""
        return Signature((), self.returns, self.python)

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the map of arguments."""
        return fields_schema(self.params)

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the result."""
        return schema_of(self.returns)


def parse(source: Any) -> Signature:
    """Parse a signature.

    Args:
        source: Shorthand or Malli as text; Malli as lists, fields as dicts; a Python class or type hint, which is
            the type of the result; or a ``Signature``, which is returned.

    Raises:
        SignatureError: It is not a signature; the error has the line, the column and a suggestion.
    """
    match source:
        case Signature():
            return source
        case str():
            return _parse_text(source)
        case Type():
            return Signature((), source)
        case _ if is_hint(source):
            return Signature((), type_of_hint(source), source)
        case _:
            return Signature(*parts_of((form_of(source),)))


@lru_cache(maxsize=256)
def _parse_text(text: str) -> Signature:
    return Signature(*parts_of(read(text)))


# Signatures of Python functions and classes.


def of_callable(function: Callable[..., Any]) -> Signature:
    """Return the signature of a Python function, from its parameters, type hints and defaults (``?``).

    ``*args`` and ``**kwargs`` are left out; a parameter without a hint is ``:any``. Of an async function the awaited
    result counts.

    Raises:
        SignatureError: It cannot be inspected, or a hint cannot be resolved.
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        found = inspect.signature(function)
    except (ValueError, TypeError) as error:
        hint = "Give a signature as text"
        raise SignatureError(f"the parameters of {name} cannot be inspected", hint=hint) from error
    hints = hints_of(function)
    params = []
    for each in found.parameters.values():
        if each.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        of = type_of_hint(hints.get(each.name, Any))
        params.append(optional_field(each.name, of, required=each.default is Parameter.empty))
    return Signature(tuple(params), type_of_hint(hints.get("return", Any)))


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the type hints of anything that can be called.

    Raises:
        SignatureError: One cannot be resolved.
    """
    plain = inspect.unwrap(function)
    if hasattr(plain, "func") and hasattr(plain, "keywords"):  # functools.partial
        return hints_of(plain.func)
    if not inspect.isroutine(plain) and not isinstance(plain, type):
        plain = type(plain).__call__
    if isinstance(plain, type):
        return {**resolve_hints(vars(plain).get("__init__", plain)), "return": plain}
    return resolve_hints(plain)

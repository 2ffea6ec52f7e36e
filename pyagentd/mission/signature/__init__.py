"""Functional contracts for missions and tools (SPEC 004 Signature Type Syntax).

``parse`` reads shorthand and Malli into a ``Signature`` of ``types``; a signature renders, validates, coerces and
turns into JSON Schema. ``of_callable`` and ``of_model`` derive one from Python type hints. Lisp values and plain
Python values are treated alike.
"""

from pyagentd.errors import SignatureError
from pyagentd.mission.signature.contract import Signature, of_callable, of_model, parse
from pyagentd.mission.signature.rendering import type_text
from pyagentd.mission.signature.types import (
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
from pyagentd.mission.signature.validation import Coerced, Problem, coerced

__all__ = [
    "And",
    "Coerced",
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
    "coerced",
    "of_callable",
    "of_model",
    "parse",
    "type_text",
]

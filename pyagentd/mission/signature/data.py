"""Signatures given as data: Malli in lists and tuples, fields in dicts.

Keywords are ``Keyword`` objects or strings that begin with a colon, so that a schema may come out of JSON. Any other
string is a value inside ``[:enum …]``, a field name in front of a type, and shorthand where a type is wanted.
"""

from __future__ import annotations

from typing import Any

from pyagentd.errors import SignatureError
from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature.forms import MAX_DEPTH, Form
from pyagentd.mission.signature.hints import is_hint, type_of_hint
from pyagentd.mission.signature.types import Type


def form_of(data: Any, depth: int = 0) -> Form:
    """Return the form that ``data`` writes.

    Raises:
        SignatureError: Something in it can be no part of a signature.
    """
    if depth > MAX_DEPTH:
        raise SignatureError(
            f"brackets are nested more than {MAX_DEPTH} deep", mend="Use :map or :any for deep values"
        )
    match data:
        case Keyword():
            return Form(kind="keyword", value=data.name)
        case str() if data.startswith(":") and len(data) > 1:
            return Form(kind="keyword", value=data[1:])
        case str():
            return Form(kind="string", value=data)
        case bool() | None:
            return Form(kind="constant", value=data)
        case int() | float():
            return Form(kind="number", value=data)
        case list() | tuple():
            return Form(kind="vector", value=tuple(form_of(part, depth + 1) for part in data))
        case dict():
            parts = [part for entry in data.items() for part in entry]
            return Form(kind="braces", value=tuple(form_of(part, depth + 1) for part in parts))
        case Type():
            return Form(kind="type", value=data)
        case _ if is_hint(data):
            return Form(kind="type", value=type_of_hint(data))
        case _:
            name = type(data).__name__
            raise SignatureError(f"a value of type {name} can be no part of a signature", mend="Write text or lists")

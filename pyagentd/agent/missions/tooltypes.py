"""The signature of a tool that says with a JSON Schema what it takes (SPEC 004 Tool Normalization)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyagentd.mission.signature import Signature, SignatureError, parse

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_PRIMITIVES = {"string": ":string", "integer": ":int", "number": ":float", "boolean": ":bool", "null": ":any"}


def signature_of(schema: Mapping[str, Any], returns: str = ":string") -> Signature | None:
    """Return what a tool takes, and that it gives ``returns``; None where a signature cannot say it."""
    properties, required = schema.get("properties") or {}, set(schema.get("required") or ())
    if not all(_NAME.fullmatch(name) for name in properties):
        return None
    params = (f"{name} {_field(each, name in required)}" for name, each in _ordered(properties, required))
    try:
        return parse(f"({', '.join(params)}) -> {returns}")
    except SignatureError:  # a schema of somebody else's
        return None


def _ordered(properties: Mapping[str, Any], required: set[str]) -> list[tuple[str, Any]]:
    """Return the properties, those that must be given first."""
    return sorted(properties.items(), key=lambda item: item[0] not in required)


def _field(schema: Any, required: bool) -> str:
    return _type(schema) if required else f"{_type(schema)}?"


def _type(schema: Any) -> str:
    """Return the type that a schema describes, ``:any`` where it says more than a signature can."""
    if not isinstance(schema, Mapping):
        return ":any"
    match schema.get("type"):
        case "array":
            return f"[{_type(schema.get('items'))}]" if schema.get("items") else "[:any]"
        case "object":
            return _map(schema)
        case str() as name:
            return _PRIMITIVES.get(name, ":any")
    return ":any"


def _map(schema: Mapping[str, Any]) -> str:
    properties, required = schema.get("properties") or {}, set(schema.get("required") or ())
    if not properties or not all(_NAME.fullmatch(name) for name in properties):
        return ":map"
    return "{" + ", ".join(f"{name} {_field(each, name in required)}" for name, each in properties.items()) + "}"

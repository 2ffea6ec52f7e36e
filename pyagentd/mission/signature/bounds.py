"""Bounds from ``Annotated`` hints and pydantic fields: objects with ``gt``, ``ge``, ``lt``, ``le`` and lengths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyagentd.mission.signature.types import And, Constraint, List, MapOf, Maybe, Primitive, Type, maybe

_LENGTHS = (("min_length", "least"), ("max_length", "most"))
_INCLUSIVE = (("ge", "least"), ("le", "most"))
_EXCLUSIVE = (("gt", ">"), ("lt", "<"))


def bounded(of: Type, metadata: Iterable[Any]) -> Type:
    """Return ``of`` with the bounds that ``metadata`` says and that it can have; the rest says nothing to us."""
    found = [one for item in metadata for one in (item, *getattr(item, "metadata", ()))]
    if isinstance(of, Maybe):
        return maybe(bounded(of.inner, found))
    for item in found:
        of = _with(of, item)
    return of


def _with(of: Type, item: Any) -> Type:
    if isinstance(of, List | MapOf) or (isinstance(of, Primitive) and of.name == "string"):
        return replace(of, **_bounds(item, _LENGTHS))
    inner = of.all_of[0] if isinstance(of, And) else of
    if not isinstance(inner, Primitive) or inner.name not in ("int", "float"):
        return of
    inner = replace(inner, **_bounds(item, _INCLUSIVE))
    more = [Constraint(sign, bound) for sign, bound in _bounds(item, _EXCLUSIVE).items()]
    if isinstance(of, And):
        return And((inner, *of.all_of[1:], *more))
    return And((inner, *more)) if more else inner


def _bounds(item: object, names: Iterable[tuple[str, str]]) -> dict[Any, Any]:
    found = {ours: getattr(item, name, None) for name, ours in names}
    return {ours: value for ours, value in found.items() if isinstance(value, int | float)}

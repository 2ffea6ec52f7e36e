"""Prompts with placeholders: a subset of Mustache (SPEC 004 Template Syntax), see ``mustache``.

Values become text only through the callback of the caller, with the path by which they were reached, so that what
must not be seen is hidden in one place. A missing name is an error where its value would stand; a section of a
missing name is left out, as for nil, false and the empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyagentd.errors import TemplateError
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.values import Keyword
from pyagentd.mission.mustache import Node, Section, Variable, dotted, parse
from pyagentd.mission.signature.types import Field, List, Map, Maybe, Primitive, Type

__all__ = ["TemplateError", "TextOf", "expand", "placeholders", "unknown"]

TextOf: TypeAlias = Callable[[tuple[str, ...], Any], str]
"""Turns the value found at a path (names only, from the outermost) into text."""

MAX_PARTS = 200_000
"""Pieces of text and values in one expansion; nested lists multiply."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """A value whose fields are names, and the path by which it was reached."""

    value: Any
    path: tuple[str, ...]


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names that ``text`` takes from its context, dotted, each once, in order of appearance.

    Names inside a section may be fields of its items and are left out; ``unknown`` judges them by their types.

    Raises:
        TemplateError: The template is malformed.
    """
    names = [node.name for node in parse(text) if not isinstance(node, str)]
    return tuple(dict.fromkeys(dotted(name) for name in names if name))


def unknown(text: str, params: Iterable[Field]) -> tuple[str, ...]:
    """Return the names in ``text`` that none of ``params`` can have a value for (SPEC 004 placeholder validation).

    Raises:
        TemplateError: The template is malformed.
    """
    return tuple(dict.fromkeys(_unknown(parse(text), [Map(tuple(params))])))


def expand(text: str, context: Mapping[Any, Any], text_of: TextOf) -> str:
    """Return ``text`` with values of ``context`` in place of its placeholders; nil is the empty text.

    Args:
        text: The template.
        context: Values by keyword or string.
        text_of: What turns a value into text.

    Raises:
        TemplateError: The template is malformed, or names have no value: all of them are listed.
    """
    run = _Expansion(text_of)
    run.nodes(parse(text), (_Frame(context, ()),))
    if run.missing:
        names = tuple(run.missing)
        listed = ", ".join(f"{{{{{name}}}}}" for name in names)
        raise TemplateError(f"no value is known for {listed}", missing=names, mend="Add it to the context")
    return "".join(run.pieces)


class _Expansion:
    """One walk through a template with values."""

    def __init__(self, text_of: TextOf) -> None:
        self._text_of = text_of
        self._parts = 0
        self.pieces: list[str] = []
        self.missing: dict[str, None] = {}

    def nodes(self, nodes: Sequence[Node], frames: tuple[_Frame, ...]) -> None:
        for node in nodes:
            self._parts += 1
            if self._parts > MAX_PARTS:
                raise TemplateError(f"the text has more than {MAX_PARTS} parts", mend="Give the prompt shorter lists")
            match node:
                case str():
                    self.pieces.append(node)
                case Variable():
                    self._variable(node, frames)
                case Section():
                    self._section(node, frames)

    def _variable(self, node: Variable, frames: tuple[_Frame, ...]) -> None:
        found = _find(node.name, frames)
        if found is None:
            self.missing[dotted(node.name)] = None
        elif found.value is not None:
            self.pieces.append(self._text_of(found.path, found.value))

    def _section(self, node: Section, frames: tuple[_Frame, ...]) -> None:
        found = _find(node.name, frames) or _Frame(None, ())
        value = found.value
        empty = value is None or value is False or (isinstance(value, list | tuple) and not value)
        if node.inverted:
            if empty:
                self.nodes(node.children, frames)
        elif isinstance(value, list | tuple):
            for item in value:
                self.nodes(node.children, (*frames, _Frame(item, found.path)))
        elif not empty:
            self.nodes(node.children, (*frames, found))


def _find(name: tuple[str, ...], frames: tuple[_Frame, ...]) -> _Frame | None:
    """Return the value of ``name``: its first segment in the innermost frame that has it, the others inside that."""
    if not name:
        return frames[-1]
    for frame in reversed(frames):
        value = _field(frame.value, name[0])
        if value is not MISSING:
            for segment in name[1:]:
                value = _field(value, segment)
            return None if value is MISSING else _Frame(value, (*frame.path, *name))
    return None


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping):
        return MISSING
    return value[name] if name in value else value.get(Keyword(name), MISSING)


def _unknown(nodes: Sequence[Node], frames: list[Type | None]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, str):
            continue
        known, found = _type(node.name, frames)
        if not known:
            yield dotted(node.name)
        if isinstance(node, Section):
            inside = found if known else None
            item = inside.item if isinstance(inside, List) else inside
            yield from _unknown(node.children, frames if node.inverted else [*frames, _plain(item)])


def _type(name: tuple[str, ...], frames: list[Type | None]) -> tuple[bool, Type | None]:
    """Return whether ``name`` may have a value, and its type; None stands for a type that says nothing of fields."""
    if not name:
        return True, frames[-1]
    for frame in reversed(frames):
        known, found = _field_type(frame, name[0])
        if known:
            for segment in name[1:]:
                known, found = _field_type(found, segment)
                if not known:
                    return False, None
            return True, found
    return False, None


def _field_type(of: Type | None, name: str) -> tuple[bool, Type | None]:
    match of:
        case Map(fields):
            found = next((field for field in fields if field.name == name), None)
            return found is not None, _plain(found.type) if found else None
        case None:
            return True, None
        case _:
            return False, None


def _plain(of: Type | None) -> Type | None:
    """Return ``of`` without its ``?``; None where it says nothing of fields, as ``:map`` and ``:any``."""
    match of:
        case Maybe(inner):
            return _plain(inner)
        case Map() | List():
            return of
        case Primitive(name) if name not in ("map", "any"):
            return of
        case _:
            return None

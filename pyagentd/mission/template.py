"""Templates: prompts with placeholders, a subset of Mustache.

Values are turned into text by a callback, which also gets the path of the value, so that the firewall can hide
private ones. A placeholder without a value is an error. A section is left out when its name is missing or its value
is nil, false or an empty list.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from pyagentd.errors import TemplateError
from pyagentd.lisp.errors import MISSING
from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature.types import Field, List, Map, Maybe, Primitive, Type

# Parsing: text, variables and sections, each with its place.
#
# Syntax: ``{{name}}``, ``{{a.b}}``, ``{{.}}``, ``{{#list}}…{{/list}}``, ``{{^list}}…{{/list}}``, ``{{! note}}``;
# ``{{{name}}}`` and ``{{&name}}`` mean ``{{name}}``, since values are not escaped. ``\{{`` is two literal braces. A
# line with only a section's tag or a comment is removed.

MAX_DEPTH = 20
"""The deepest nesting of sections."""

_TAG = re.compile(
    r"(?P<escaped>\\\{\{)|\{\{(?:\{(?P<triple>[^{}]*)\}|(?P<plain>![^}]*(?:\}(?!\})[^}]*)*|[^{}]*))\}\}|\{\{"
)
_NAME = re.compile(r"\.|[^\W\d][\w-]*[?!]?(?:\.[^\W\d][\w-]*[?!]?)*")
_BLANK = re.compile(r"[ \t]*")
_BLANK_AFTER = re.compile(r"[ \t]*(?:\r?\n|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A placeholder. ``name`` has the segments of a dotted name; () is ``{{.}}``."""

    name: tuple[str, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Text that is repeated for each item of a list, or shown if it is true; ``inverted`` (``{{^x}}``): if not."""

    name: tuple[str, ...]
    inverted: bool
    line: int
    column: int
    children: tuple["Node", ...] = ()


Node: TypeAlias = str | Variable | Section


def dotted_name(name: tuple[str, ...]) -> str:
    """Return a name as it is written in a template."""
    return ".".join(name) or "."


@lru_cache(maxsize=64)
def parse(text: str) -> tuple[Node, ...]:
    """Return the nodes of a template.

    Raises:
        TemplateError: A tag is malformed, or the beginning and end of a section do not match.
    """
    return _Parser(text).nodes()


@dataclass(slots=True)
class _Open:
    """A section that has not been closed yet."""

    section: Section | None
    children: list[Node] = field(default_factory=list)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._open = [_Open(None)]

    def nodes(self) -> tuple[Node, ...]:
        at = 0
        for found in _TAG.finditer(self._text):
            if found["escaped"]:
                self._add(self._text[at : found.start()] + "{{")
                at = found.end()
                continue
            begin, end = self._extent(found)
            self._add(self._text[at:begin])
            self._tag(found)
            at = end
        self._add(self._text[at:])
        section = self._open[-1].section
        if section is not None:
            name = dotted_name(section.name)
            message = f"the section `{name}` is never closed"
            raise self._error(message, section.line, section.column, f"Add `{{{{/{name}}}}}`")
        return tuple(self._open[0].children)

    def _extent(self, found: re.Match[str]) -> tuple[int, int]:
        """Return the end of the text before a tag and the start of the text after it."""
        begin, end = found.span()
        if (found["plain"] or "").strip()[:1] not in ("#", "^", "/", "!"):
            return begin, end
        line = self._text.rfind("\n", 0, begin) + 1
        after = _BLANK_AFTER.match(self._text, end)
        if after is None or not _BLANK.fullmatch(self._text, line, begin):
            return begin, end
        return line, after.end()

    def _tag(self, found: re.Match[str]) -> None:
        at = found.start()
        line, column = self._text.count("\n", 0, at) + 1, at - self._text.rfind("\n", 0, at)
        if found["plain"] is None and found["triple"] is None:
            raise self._error("this `{{` is never closed", line, column, r"Add `}}`, or write `\{{` for the braces")
        content = (found["triple"] if found["plain"] is None else found["plain"]).strip()
        sigil, rest = (content[0], content[1:].strip()) if content[:1] and content[0] in "#^/!&>=" else ("", content)
        match sigil:
            case "!":
                return
            case ">" | "=":
                raise self._error(f"`{{{{{sigil}` is not supported", line, column, "Write the text itself")
        name = self._name(rest, line, column)
        match sigil:
            case "#" | "^":
                if len(self._open) > MAX_DEPTH:
                    raise self._error(f"sections are nested more than {MAX_DEPTH} deep", line, column)
                self._open.append(_Open(Section(name=name, inverted=sigil == "^", line=line, column=column)))
            case "/":
                self._end(name, line, column)
            case _:
                self._add(Variable(name=name, line=line, column=column))

    def _end(self, name: tuple[str, ...], line: int, column: int) -> None:
        section = self._open[-1].section
        if section is None:
            hint = f"Take it out, or begin with `{{{{#{dotted_name(name)}}}}}`"
            raise self._error(f"no section `{dotted_name(name)}` is open here", line, column, hint)
        if section.name != name:
            message = (
                f"`{dotted_name(name)}` ends here, but `{dotted_name(section.name)}` of line {section.line} is open"
            )
            raise self._error(message, line, column, f"Write `{{{{/{dotted_name(section.name)}}}}}`")
        self._add(replace(section, children=tuple(self._open.pop().children)))

    def _name(self, text: str, line: int, column: int) -> tuple[str, ...]:
        if not _NAME.fullmatch(text):
            what = f"`{text}` is not a name" if text else "a name is missing"
            hint = r"Write `{{name}}` or `{{a.b}}`; `\{{` is the two braces themselves"
            raise self._error(what, line, column, hint)
        return () if text == "." else tuple(text.split("."))

    def _add(self, node: Node) -> None:
        if node != "":
            self._open[-1].children.append(node)

    def _error(self, message: str, line: int, column: int, hint: str = "") -> TemplateError:
        return TemplateError(f"{message} (line {line}, column {column})", line=line, column=column, hint=hint)


# Expanding, and checking placeholders by types.

TextOf: TypeAlias = Callable[[tuple[str, ...], Any], str]
"""Called with the path of a value (names from the outermost) and the value; returns its text."""

MAX_PARTS = 200_000
"""The largest number of texts and values in one expansion; nested lists multiply."""

MAX_TEXT = 20_000_000
"""The largest number of characters of one expansion."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """A value whose fields can be named, and its path."""

    value: Any
    path: tuple[str, ...]


def placeholders(text: str) -> tuple[str, ...]:
    """Return the dotted names that ``text`` uses, each once, in order of appearance.

    Names inside a section may be fields of its items and are left out; ``unknown_names`` checks them by types.

    Raises:
        TemplateError: The template is malformed.
    """
    names = [node.name for node in parse(text) if not isinstance(node, str)]
    return tuple(dict.fromkeys(dotted_name(name) for name in names if name))


def unknown_names(text: str, params: Iterable[Field]) -> tuple[str, ...]:
    """Return the names in ``text`` that none of ``params`` can provide.

    Raises:
        TemplateError: The template is malformed.
    """
    return tuple(dict.fromkeys(_unknown_names(parse(text), [Map(tuple(params))])))


def expand(text: str, context: Mapping[Any, Any], text_of: TextOf) -> str:
    """Return ``text`` with its placeholders replaced by values of ``context``; nil becomes "".

    Raises:
        TemplateError: The template is malformed, or names have no value; all of them are listed.
    """
    run = _Expansion(text_of)
    run.nodes(parse(text), (_Frame(context, ()),))
    if run.missing:
        names = tuple(run.missing)
        listed = ", ".join(f"{{{{{name}}}}}" for name in names)
        raise TemplateError(f"no value is known for {listed}", missing=names, hint="Add it to the context")
    return "".join(run.pieces)


class _Expansion:
    """One walk through a template with values."""

    def __init__(self, text_of: TextOf) -> None:
        self._text_of = text_of
        self._parts = 0
        self._room = MAX_TEXT
        self.pieces: list[str] = []
        self.missing: dict[str, None] = {}

    def nodes(self, nodes: Sequence[Node], frames: tuple[_Frame, ...]) -> None:
        for node in nodes:
            self._parts += 1
            if self._parts > MAX_PARTS:
                raise TemplateError(f"the text has more than {MAX_PARTS} parts", hint="Give the prompt shorter lists")
            match node:
                case str():
                    self._add(node)
                case Variable():
                    found = _find(node.name, frames)
                    if found is None:
                        self.missing[dotted_name(node.name)] = None
                    elif found.value is not None:
                        self._add(self._text_of(found.path, found.value))
                case Section():
                    self._section(node, frames)

    def _add(self, piece: str) -> None:
        self.pieces.append(piece)
        self._room -= len(piece)
        if self._room < 0:
            raise TemplateError(
                f"the text has more than {MAX_TEXT} characters", hint="Give the prompt shorter values"
            )

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
    """Return the value of ``name``: the first segment in the innermost frame that has it, the others in that."""
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


def _unknown_names(nodes: Sequence[Node], frames: list[Type | None]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, str):
            continue
        known, found = _type(node.name, frames)
        if not known:
            yield dotted_name(node.name)
        if isinstance(node, Section):
            inside = found if known else None
            item = inside.item if isinstance(inside, List) else inside
            yield from _unknown_names(node.children, frames if node.inverted else [*frames, _plain(item)])


def _type(name: tuple[str, ...], frames: list[Type | None]) -> tuple[bool, Type | None]:
    """Return whether ``name`` may have a value, and its type; None is a type without known fields."""
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
    """Return ``of`` without its ``?``; None for a type without known fields, such as ``:map`` and ``:any``."""
    match of:
        case Maybe(inner):
            return _plain(inner)
        case Map() | List():
            return of
        case Primitive(name) if name not in ("map", "any"):
            return of
        case _:
            return None

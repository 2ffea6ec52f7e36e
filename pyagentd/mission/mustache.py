r"""Templates before they meet values: text, variables and sections, each with its place (SPEC 004 Template Syntax).

A subset of Mustache: ``{{name}}``, ``{{a.b}}``, ``{{.}}``, ``{{#list}}…{{/list}}``, ``{{^list}}…{{/list}}``,
``{{! comment}}``; ``{{{name}}}`` and ``{{&name}}`` are ``{{name}}``, for nothing is escaped. ``\{{`` are
the braces themselves. A line that holds only a section's tag or a comment leaves no empty line behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

from pyagentd.errors import TemplateError

MAX_DEPTH = 20
"""Sections inside sections."""

_TAG = re.compile(
    r"(?P<escaped>\\\{\{)|\{\{(?:\{(?P<triple>[^{}]*)\}|(?P<plain>![^}]*(?:\}(?!\})[^}]*)*|[^{}]*))\}\}|\{\{"
)
_NAME = re.compile(r"\.|[^\W\d][\w-]*[?!]?(?:\.[^\W\d][\w-]*[?!]?)*")
_BLANK = re.compile(r"[ \t]*")
_BLANK_AFTER = re.compile(r"[ \t]*(?:\r?\n|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A value's place. ``name`` has the segments of a dotted name; () is ``{{.}}``."""

    name: tuple[str, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What is repeated for, or depends on, a value; ``inverted`` (``{{^x}}``) depends on there being none."""

    name: tuple[str, ...]
    inverted: bool
    line: int
    column: int
    children: tuple[Node, ...] = ()


Node: TypeAlias = str | Variable | Section


def dotted(name: tuple[str, ...]) -> str:
    """Return a name as the template writes it."""
    return ".".join(name) or "."


@lru_cache(maxsize=64)
def parse(text: str) -> tuple[Node, ...]:
    """Return the nodes of a template.

    Raises:
        TemplateError: A tag is malformed, or a section's beginning and end do not pair.
    """
    return _Parser(text).nodes()


@dataclass(slots=True)
class _Open:
    """A section whose end was not seen yet."""

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
            name = dotted(section.name)
            message = f"the section `{name}` is never closed"
            raise self._error(message, section.line, section.column, f"Add `{{{{/{name}}}}}`")
        return tuple(self._open[0].children)

    def _extent(self, found: re.Match[str]) -> tuple[int, int]:
        """Return where the text before the tag ends and where that behind it begins."""
        begin, end = found.span()
        if (found["plain"] or "").strip()[:1] not in ("#", "^", "/", "!"):
            return begin, end
        line = self._text.rfind("\n", 0, begin) + 1
        after = _BLANK_AFTER.match(self._text, end)
        if after is None or not _BLANK.fullmatch(self._text, line, begin):
            return begin, end
        return line, after.end()

    def _tag(self, found: re.Match[str]) -> None:
        line, column = self._place(found.start())
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
                self._begin(Section(name=name, inverted=sigil == "^", line=line, column=column))
            case "/":
                self._end(name, line, column)
            case _:
                self._add(Variable(name=name, line=line, column=column))

    def _begin(self, section: Section) -> None:
        if len(self._open) > MAX_DEPTH:
            message = f"sections are nested more than {MAX_DEPTH} deep"
            raise self._error(message, section.line, section.column)
        self._open.append(_Open(section))

    def _end(self, name: tuple[str, ...], line: int, column: int) -> None:
        section = self._open[-1].section
        if section is None:
            mend = f"Take it out, or begin with `{{{{#{dotted(name)}}}}}`"
            raise self._error(f"no section `{dotted(name)}` is open here", line, column, mend)
        if section.name != name:
            message = f"`{dotted(name)}` ends here, but `{dotted(section.name)}` of line {section.line} is open"
            raise self._error(message, line, column, f"Write `{{{{/{dotted(section.name)}}}}}`")
        children = tuple(self._open.pop().children)
        self._add(replace(section, children=children))

    def _name(self, text: str, line: int, column: int) -> tuple[str, ...]:
        if not _NAME.fullmatch(text):
            what = f"`{text}` is no name" if text else "a name is missing"
            mend = r"Write `{{name}}` or `{{a.b}}`; `\{{` is the two braces themselves"
            raise self._error(what, line, column, mend)
        return () if text == "." else tuple(text.split("."))

    def _add(self, node: Node) -> None:
        if node != "":
            self._open[-1].children.append(node)

    def _place(self, at: int) -> tuple[int, int]:
        return self._text.count("\n", 0, at) + 1, at - self._text.rfind("\n", 0, at)

    def _error(self, message: str, line: int, column: int, mend: str = "") -> TemplateError:
        return TemplateError(f"{message} (line {line}, column {column})", line=line, column=column, mend=mend)

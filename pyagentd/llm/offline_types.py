"""What a mission has to return, read from its prompt, and a program's expression for it; pure.

The stand-in knows a few facts about what it found: a list of files with their lines, a list of rows, a text. Each
field of a type gets the fact that its name and type suggest; it concludes nothing and says so where a sentence is
wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(r"[\[\]{}|?]|:?[A-Za-z_][\w-]*")
_SIZES = re.compile(r"lines|total|sum|size|length")
_NAMES = re.compile(r"path|file|name|title|id|preset")
SENTENCE = "pyagentd's offline stand-in, not a language model: this is what the tools found"


@dataclass(frozen=True, slots=True)
class Map:
    """A map with named fields."""

    fields: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    of: Shape


Shape = Map | Items | str
"""A type: a map, a list, or the name of anything else without its colon."""


def shape_of(text: str) -> Shape:
    """Return the type that a prompt shows, "any" where it is more than is understood here."""
    tokens = [*_TOKEN.finditer(text)]
    try:
        return _read(iter([token[0] for token in tokens]))
    except (StopIteration, RuntimeError):
        return "any"


def expression(shape: Shape, name: str = "") -> str:
    """Return what a program evaluates for a type, where ``found`` is a list of maps {:path :lines :text}."""
    match shape:
        case Map(fields):
            return _map(fields, "")
        case Items(of=Map(fields)):
            return f"(mapv (fn [f] {_map(fields, 'f')}) found)"
        case Items(of="int" | "float"):
            return "(mapv :lines found)"
        case Items():
            return "(mapv :path found)"
        case "int":
            return "(reduce + 0 (map :lines found))" if _SIZES.search(name) else "(count found)"
        case "float":
            return "(* 1.0 (count found))"
        case "bool":
            return "(> (count found) 0)"
        case "string" | "keyword":
            told = f'(str (count found) " found by {SENTENCE}")'
            return f"(if (= 1 (count found)) (:text (first found)) {told})"
        case "map":
            return "{:found found}"
    return "found"


def _map(fields: tuple[tuple[str, Shape], ...], item: str) -> str:
    made = (f":{name} {_of_item(shape, name, item) if item else expression(shape, name)}" for name, shape in fields)
    return "{" + " ".join(made) + "}"


def _of_item(shape: Shape, name: str, item: str) -> str:
    """Return what one thing that was found has for a field."""
    match shape:
        case "int":
            return f"(:lines {item})"
        case "float":
            return f"(* 1.0 (:lines {item}))"
        case "bool":
            return f"(> (:lines {item}) 0)"
        case "string" | "keyword" if _NAMES.search(name):
            return f"(:path {item})"
        case "string" | "keyword":
            return f"(:text {item})"
        case Items(of="string"):
            return f"[(:text {item})]"
        case Items():
            return "[]"
        case Map(fields):
            return _map(fields, item)
    return item


def _read(tokens: Iterator[str]) -> Shape:
    token = next(tokens)
    if token == "[":
        of = _read(tokens)
        while next(tokens) != "]":
            pass
        return Items(of)
    if token != "{":
        return token.lstrip(":")
    fields: list[tuple[str, Shape]] = []
    while (name := next(tokens)) != "}":
        if name not in ("?", "|"):
            fields.append((name.lstrip(":"), _read(tokens)))
    return Map(tuple(fields))

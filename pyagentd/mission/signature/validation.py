"""Validation and coercion of values by a type, with explanations, in one walk over the type.

``problems_of`` validates without converting, as for results. ``coerce`` converts arguments where nothing is lost:

============= =============================================================
type          also accepted
============= =============================================================
``:int``      a string of digits
``:float``    an int, silently; a string that is a number, spaces around it
``:bool``     ``"true"``, ``"false"``, ``:true``, ``:false``
``:string``   a keyword (its name), true and false, a Python datetime
``:keyword``  a string that can be one; also in ``[:enum :a]``
``:datetime`` a date, as its midnight; a Python datetime
``[:enum …]`` a keyword for a string of the same letters
============= =============================================================

Coercion keeps only the named fields of a map, under the keys they came with. nil is never converted.

Messages contain no values, only types, field names and text of the signature, so they reveal no private data: values
of fields that begin with ``_`` must not reach a model. Keys that are data below such a field are hidden too.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from operator import ge, gt, is_, le, lt
from typing import Any, TypeAlias

from pyagentd.lisp.values import Keyword, LispSet, from_key
from pyagentd.mission.signature.parsing import is_keyword, is_plain
from pyagentd.mission.signature.rendering import expected_text
from pyagentd.mission.signature.types import (
    And,
    Constant,
    Constraint,
    Enum,
    List,
    Map,
    MapOf,
    Maybe,
    Name,
    Number,
    Or,
    Primitive,
    Type,
)

Path: TypeAlias = tuple[str | int, ...]

MAX_PROBLEMS = 100
"""The largest number of problems reported; a list of 100,000 invalid rows is one mistake."""

_HIDDEN = "[Hidden]"
_LONGEST_KEY = 60
_FAILED: Any = object()
"""Returned by a walk for a value that does not fit."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a value that does not fit, or a warning about one that was converted.

    Attributes:
        path: The place, such as ``results[0].customer.id``; "" is the value itself.
        message: The problem, such as ``expected int, got string``.
        keys: The path as its parts.
    """

    path: str
    message: str
    keys: Path = ()

    def __str__(self) -> str:
        return f"[{self.path}]: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Coercion:
    """Arguments converted to the types of a signature."""

    value: Any  # declared fields only, under their original keys; the arguments unchanged if there are problems
    warnings: tuple[Problem, ...] = ()  # conversions that were made
    problems: tuple[Problem, ...] = ()  # values that neither fit nor can be converted


def fits(of: Type, value: Any, *, exact: bool = False) -> bool:
    """Return whether ``value`` fits ``of``; with ``exact``, without undeclared fields and values of related types."""
    walk = _Walk(strict=exact, exact=exact, most=1)
    walk.visit(of, value)
    return not walk.problems


def problems_of(of: Type, value: Any, *, strict: bool = False) -> tuple[Problem, ...]:
    """Return why ``value`` does not fit ``of``, at most ``MAX_PROBLEMS`` reasons; empty when it does."""
    walk = _Walk(strict=strict)
    walk.visit(of, value)
    return walk.found(problems=True)


def coerce(of: Type, value: Any, *, strict: bool = False) -> Coercion:
    """Return ``value`` converted to ``of``; fields that are not declared are left out, or problems if ``strict``."""
    walk = _Walk(strict=strict, converts=True)
    made = walk.visit(of, value)
    problems = walk.found(problems=True)
    return Coercion(value=value if problems else made, warnings=walk.found(problems=False), problems=problems)


@dataclass(slots=True)
class _Note:
    """A problem or a warning; ``steps`` is its path from the inside out, each with whether it is data."""

    message: str
    is_problem: bool
    steps: list[tuple[str | int, bool]] = field(default_factory=list)


@dataclass(slots=True)
class _Walk:
    """One walk over a value and its type.

    Two kinds of values fit another type without conversion: an int fits ``:float``, since ``(= 1 1.0)`` is true, and
    a string fits ``:keyword``, since keywords become strings outside the language.
    """

    strict: bool = False  # fields that are not declared are problems
    exact: bool = False  # values of related types do not fit; strict too
    converts: bool = False  # values are converted if possible
    most: int = MAX_PROBLEMS  # the walk ends soon after that many problems
    notes: list[_Note] = field(default_factory=list)  # the problems and warnings so far
    problems: int = 0  # how many of them are problems
    warnings: int = 0

    def visit(self, of: Type, value: Any) -> Any:
        """Record the problems of ``value``; return it, converted if this walk converts, or ``_FAILED``."""
        return _VISITS[type(of)](self, of, value)

    def visit_item(self, of: Type, value: Any, step: str | int, *, is_data: bool = False) -> Any:
        """Visit the item at ``step`` of a collection; ``is_data``: the signature does not name that step."""
        noted = len(self.notes)
        made = _VISITS[type(of)](self, of, value)
        if len(self.notes) > noted:
            for note in self.notes[noted:]:
                note.steps.append((step, is_data))
        return made

    def trial(self, *, converts: bool) -> "_Walk":
        """Return a walk with the same rules and no records, for trying a type."""
        return _Walk(self.strict, self.exact, converts, self.most)

    def join(self, tried: "_Walk") -> None:
        """Add the problems and warnings of ``tried``."""
        for note in tried.notes:
            self._note(note)

    @property
    def full(self) -> bool:
        """Whether no more problems are recorded."""
        return self.problems >= self.most

    def add_problem(self, message: str, *steps: tuple[str | int, bool]) -> Any:
        """Record a problem and return ``_FAILED``."""
        self._note(_Note(message, True, [*steps]))
        return _FAILED

    def add_warning(self, message: str) -> None:
        self._note(_Note(message, False))

    def _note(self, note: _Note) -> None:
        if note.is_problem and self.problems < self.most:
            self.problems += 1
            self.notes.append(note)
        elif not note.is_problem and self.warnings < MAX_PROBLEMS:
            self.warnings += 1
            self.notes.append(note)

    def found(self, *, problems: bool) -> tuple[Problem, ...]:
        """Return the problems, or the warnings."""
        return tuple(_problem(note) for note in self.notes if note.is_problem is problems)

    # One method for each kind of type.

    def visit_maybe(self, of: Maybe, value: Any) -> Any:
        return None if value is None else self.visit(of.inner, value)

    def visit_primitive(self, of: Primitive, value: Any) -> Any:
        kinds = _IS_EXACTLY if self.converts or self.exact else _IS
        if not kinds[of.name](value):
            if not self.converts:
                return self.add_problem(f"expected {of.name}, got {kind_of(value)}")
            value = self.convert(of.name, value)
        if value is _FAILED or (of.least is None and of.most is None):
            return value
        size = len(value) if of.name == "string" else value
        return value if _within(size, of.least, of.most) else self.add_problem(f"expected {expected_text(of)}")

    def convert(self, name: Name, value: Any) -> Any:
        """Return ``value``, which is of another kind, converted to the type ``name``, or ``_FAILED``."""
        if name == "float" and _is_number(value):
            try:
                return float(value)
            except OverflowError:
                return self.add_problem("cannot coerce int to float: it is too large")
        if name == "datetime" and isinstance(value, datetime):
            return value.isoformat()
        made = _convert(name, value)
        what = f"{kind_of(value)} to {_LONG_NAMES.get(name, name)}"
        if made is _FAILED:
            return self.add_problem(f"cannot coerce {what}")
        self.add_warning(f"coerced {what}")
        return made

    def visit_list(self, of: List, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return self.add_problem(f"expected list, got {kind_of(value)}")
        if not self.converts:
            self.check_length(of, value)
        items = []
        for index, part in enumerate(value):
            items.append(self.visit_item(of.item, part, index))
            if self.problems and self.full:
                return _FAILED
        if not self.converts or all(map(is_, items, value)):
            made = value
        elif any(item is _FAILED for item in items):
            return _FAILED
        else:
            made = items
        return self.check_length(of, made) if self.converts else made

    def visit_map(self, of: Map, value: Any) -> Any:
        if not isinstance(value, dict):
            return self.add_problem(f"expected map, got {kind_of(value)}")
        kept: dict[Any, Any] = {}
        for declared in of.fields:
            name = declared.name
            key = name if name in value else Keyword(name)
            if key in value:
                kept[key] = self.visit_item(declared.type, value[key], name)
            elif not declared.optional:
                message = f"missing required field, expected {expected_text(declared.type)}"
                kept[key] = self.add_problem(message, (name, False))
            if self.problems and self.full:
                return _FAILED
        closed = self.strict or of.closed
        if closed or self.converts:
            names = [declared.name for declared in of.fields]
            others = [key for key in value if _key_name(key) not in names]
            for key in others if closed else ():
                self.add_problem("unexpected field", (_step_of(key), True))
            if any(part is _FAILED for part in kept.values()):
                return _FAILED
            if others or not all(part is value[key] for key, part in kept.items()):
                return kept
        return value

    def visit_map_of(self, of: MapOf, value: Any) -> Any:
        if not isinstance(value, dict):
            return self.add_problem(f"expected map, got {kind_of(value)}")
        if not self.converts:
            self.check_length(of, value)
        made: dict[Any, Any] = {}
        changed = False
        for key, part in value.items():
            step, new = _step_of(key), key
            if not self.converts:
                # Keys are keywords in the language and strings elsewhere: both fit, so the walk is not exact.
                keys = _Walk(strict=self.strict)
                keys.visit(of.key, _key_name(key))
                for note in keys.notes:
                    self.add_problem(f"key: {note.message}", (step, True))
            elif not fits(of.key, _key_name(key)):
                new = self.visit_item(of.key, _key_name(key), step, is_data=True)
            made[new] = self.visit_item(of.value, part, step, is_data=True)
            changed |= new is not key or made[new] is not part
            if self.full:
                return _FAILED
        if any(key is _FAILED or part is _FAILED for key, part in made.items()):
            return _FAILED
        if self.converts and self.check_length(of, made) is _FAILED:
            return _FAILED
        return made if changed else value

    def check_length(self, of: List | MapOf, value: Any) -> Any:
        """Return ``value`` if its length is within the bounds, or ``_FAILED``."""
        return value if _within(len(value), of.least, of.most) else self.add_problem(f"expected {expected_text(of)}")

    def visit_enum(self, of: Enum, value: Any) -> Any:
        if any(_is(constant, value, exact=self.exact or self.converts) for constant in of.values):
            return value
        if self.converts and isinstance(value, Keyword | str):
            other = value.name if isinstance(value, Keyword) else Keyword(value)
            if any(_is(constant, other, exact=True) for constant in of.values):
                self.add_warning(f"coerced {kind_of(value)} to {kind_of(other)}")
                return other
        return self.add_problem(f"expected {expected_text(of)}, got {kind_of(value)}")

    def visit_choice(self, of: Or, value: Any) -> Any:
        choices = of.choices
        if self.converts:
            if fits(of, value, exact=True):
                return value
            # A value that fits one choice exactly is not converted: "42" in `[:or :int :string]` is a string.
            choices = tuple(sorted(choices, key=lambda one: not fits(one, value)))
        inside: _Walk | None = None
        for one in choices:
            tried = self.trial(converts=self.converts)
            made = tried.visit(one, value)
            if not tried.problems:
                self.join(tried)
                return made
            # Report the choice whose kind fits: its problem, inside the value, is the most specific.
            if inside is None and all(note.steps for note in tried.notes):
                inside = tried
        if self.converts:
            tried = self.trial(converts=False)
            tried.visit(of, value)
            self.join(tried)
            return _FAILED if tried.problems else value
        if inside is not None:
            self.join(inside)
            return _FAILED
        return self.add_problem(f"expected {expected_text(of)}, got {kind_of(value)}")

    def visit_all_of(self, of: And, value: Any) -> Any:
        tried = self.trial(converts=self.converts)
        made = value
        for part in of.all_of:
            made = tried.visit(part, made)
            # Later parts assume that the earlier ones fit: `[:and :int [:> 0]]`.
            if made is _FAILED or (tried.problems and not self.converts):
                break
        else:
            if self.converts:
                whole = self.trial(converts=False)
                whole.visit(of, made)
                tried.join(whole)
                made = _FAILED if whole.problems else made
        if self.converts and made is _FAILED and fits(of, value):
            return value  # one part would remove or convert something that another part requires
        self.join(tried)
        return made

    def visit_constraint(self, of: Constraint, value: Any) -> Any:
        if _is_number(value) and _COMPARE[of.operator](value, of.bound):
            return value
        return self.add_problem(f"expected {expected_text(of)}, got {kind_of(value)}")


_VISITS: dict[type[Type], Callable[[_Walk, Any, Any], Any]] = {
    Maybe: _Walk.visit_maybe,
    Primitive: _Walk.visit_primitive,
    List: _Walk.visit_list,
    Map: _Walk.visit_map,
    MapOf: _Walk.visit_map_of,
    Enum: _Walk.visit_enum,
    Or: _Walk.visit_choice,
    And: _Walk.visit_all_of,
    Constraint: _Walk.visit_constraint,
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


# Paths.


def _problem(note: _Note) -> Problem:
    keys: list[str | int] = []
    hidden = False
    for step, is_data in reversed(note.steps):
        keys.append(_HIDDEN if hidden and is_data else step)
        hidden |= isinstance(step, str) and step.startswith("_")
    return Problem(path_text(tuple(keys)), note.message, tuple(keys))


def path_text(keys: Path) -> str:
    """Return a path as text: ``results[0].customer.id``."""
    text = ""
    for key in keys:
        match key:
            case int():
                text += f"[{key}]"
            case str() if key == _HIDDEN:
                text += key
            case str() if is_plain(key) and len(key) <= _LONGEST_KEY:
                text += f".{key}" if text else key
            case _:
                text += f"[{json.dumps(key[:_LONGEST_KEY], ensure_ascii=False)}]"
    return text


def _key_name(key: Any) -> Any:
    """Return a map's key as a value, and a keyword as its name, since fields match either."""
    return key.name if isinstance(key, Keyword) else key if isinstance(key, str) else from_key(key)


def _step_of(key: Any) -> str | int:
    """Return a map's key as a step of a path."""
    name = _key_name(key)
    return name if isinstance(name, str) else repr(name) if _is_number(name) else kind_of(name)


# Kinds of values, and converting between them.

# RFC 3339 and common variants; `fromisoformat` alone would accept week dates and bare years too.
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?([Zz]|[+-]\d\d(:?\d\d)?)?")
_INT = re.compile(r"[+-]?[0-9]{1,4000}")
_FLOAT = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*")
_LONG_NAMES = {"int": "integer", "bool": "boolean"}


def kind_of(value: Any) -> str:
    """Return the kind of ``value``: ``int``, ``string``, ``list``…, without any of its content."""
    match value:
        case None:
            return "nil"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "string"
        case Keyword():
            return "keyword"
        case list() | tuple():
            return "list"
        case dict():
            return "map"
        case LispSet() | set() | frozenset():
            return "set"
        case datetime():
            return "datetime"
        case date():
            return "date"
        case _:
            return "function" if callable(value) else "object"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_datetime(value: Any) -> bool:
    """Return whether ``value`` is an ISO 8601 string with date and time."""
    if not isinstance(value, str) or not _DATETIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _within(size: Number, least: Number | None, most: Number | None) -> bool:
    return (least is None or size >= least) and (most is None or size <= most)


def _is(constant: Constant, value: Any, *, exact: bool) -> bool:
    """Return whether ``value`` equals the constant; a string equals a keyword of that name unless ``exact``."""
    match value:
        case Keyword():
            return constant.is_keyword and constant.value == value.name
        case str():
            return constant.value == value and not (exact and constant.is_keyword)
        case bool():
            return constant.value is value
        case int() | float():
            return _is_number(constant.value) and constant.value == value
        case _:
            return False


_IS_EXACTLY: dict[Name, Callable[[Any], bool]] = {
    "any": lambda value: True,
    "nil": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float),
    "string": lambda value: isinstance(value, str),
    "keyword": lambda value: isinstance(value, Keyword),
    "map": lambda value: isinstance(value, dict),
    "datetime": _is_datetime,
}
_IS: dict[Name, Callable[[Any], bool]] = {
    **_IS_EXACTLY,
    "float": _is_number,
    "keyword": lambda value: isinstance(value, Keyword | str),
    "datetime": lambda value: isinstance(value, datetime) or _is_datetime(value),
}


def _convert(name: Name, value: Any) -> Any:
    match name, value:
        case "int", str() if _INT.fullmatch(value):
            return int(value)
        case "float", str() if _FLOAT.fullmatch(value) and math.isfinite(float(value)):
            return float(value)
        case "bool", Keyword(name="true" | "false") | "true" | "false":
            return value in ("true", Keyword("true"))
        case "string", bool():
            return "true" if value else "false"
        case "string", Keyword():
            return value.name
        case "string", date():
            return value.isoformat()
        case "keyword", str() if is_keyword(value):
            return Keyword(value)
        case "datetime", date():
            return f"{value.isoformat()}T00:00:00"
        case "datetime", str() if _is_datetime(f"{value}T00:00:00"):
            return f"{value}T00:00:00"
    return _FAILED

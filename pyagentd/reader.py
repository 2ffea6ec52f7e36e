"""Validates outside data: values become a dataclass, or an error with the place, the key and what is expected.

Files are parsed elsewhere, within limits of size and depth; the parsed mappings, lists, texts and numbers are
validated here. A dataclass declares the keys::

    @dataclass(frozen=True, kw_only=True)
    class Retry:
        times: Annotated[int, Meta(ge=1)] = 3       # msgspec's bounds of numbers, lengths and patterns
        pause: Annotated[float, Rule(parse=seconds, words="seconds")] = 1.0
        mode: Literal["fast", "slow"] = "fast"

    read({"times": 0}, Retry, Source(place=lambda path: "retry.toml:1", error=ConfigError))
    # ConfigError: retry.toml:1: `times` is 0. It should be a whole number from 1

A rule about several fields belongs into ``__post_init__``, which raises a ``Misfit`` with the wrong key.
"""

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeVar, Union, overload

import msgspec

from pyagentd.errors import BadRequest, PyagentdError, UserError, did_you_mean

_T = TypeVar("_T")
_SHOWN = 80  # characters of a value in an error

Path = tuple[str | int, ...]
"""The path to a value: keys of mappings, and indexes of lists from 0."""


INSIDE: Final = {"inside": True}
"""The ``metadata`` of a field that is not read from outside: ``field(default="", metadata=INSIDE)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """For ``Annotated``: how to read a value that its type alone does not describe.

    Attributes:
        parse: Returns the value for what is written. It raises ``ValueError`` for the wrong kind of value, or an
            error of ours that says what is wrong with it.
        words: The expected value, as in "It should be …".
        keys: The keys to look for, if not the field's name; the first that exists counts.
    """

    parse: Callable[[Any], Any] | None = None
    words: str = ""
    keys: tuple[str, ...] = ()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return str(value).strip()


def _full_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return str(value)


_NO_RULE = Rule()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The origin of data, for errors, and how strictly it is read.

    Attributes:
        place: Returns the place of a path, as ``FILE:LINE``.
        error: The class of errors to raise.
        lenient: Keys may have dashes or underscores, unknown keys are ignored, and an empty value counts as missing.
            Otherwise an unknown key is an error, as it always is in a dataclass with the class attribute
            ``CLOSED = True``.
    """

    place: Callable[[Path], str]
    error: type[PyagentdError] = UserError
    lenient: bool = False

    def wrong(self, path: Path, message: str, hint: str = "") -> PyagentdError:
        """Return the error for the value at ``path``."""
        return self.error(f"{self.place(path)}: {message}", hint=hint)

    @classmethod
    def of_front_matter(cls, front: Mapping[str, Any], file: str, error: type[PyagentdError]) -> "Source":
        """Return the source for the front matter of ``file``, with line numbers if ``front`` has them (``lc``)."""
        return cls(place=lambda path: f"{file}:{line_in_front_matter(front, path)}", error=error, lenient=True)

    @classmethod
    def at(cls, place: str, error: type[PyagentdError]) -> "Source":
        """Return a source whose errors all name one place."""
        return cls(place=lambda path: place, error=error)


Text = Annotated[str, Rule(parse=_text, words="a text: put it in quotes")]
"""A text, stripped of surrounding space."""

FullText = Annotated[str, Rule(parse=_full_text, words="a text")]
"""A text that is not blank, unchanged."""

FromOne = Annotated[int, msgspec.Meta(ge=1)]

MOST_TOKENS = 1_000_000_000  # more than any model answers with, and an integer that all JSON can hold
Tokens = Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
"""How long an answer may be."""


class Misfit(Exception):
    """A value is not what is expected.

    Attributes:
        path: The path to it.
        message: What is wrong.
        hint: What to write instead.
    """

    def __init__(self, path: Path, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.hint = hint


@overload
def read(values: object, wanted: type[_T], source: Source, path: Path = ()) -> _T: ...
@overload
def read(values: object, wanted: object, source: Source, path: Path = ()) -> Any: ...
def read(values: object, wanted: Any, source: Source, path: Path = ()) -> Any:
    """Return ``values`` as the type ``wanted``, usually a dataclass.

    Args:
        values: The parsed data.
        wanted: A dataclass, or a type that msgspec knows.
        source: The origin of the data.
        path: The path to ``values`` in it.

    Raises:
        PyagentdError: The source's error: a value does not fit, a key is missing or unknown.
    """
    try:
        return convert(values, wanted, path, lenient=source.lenient)
    except Misfit as misfit:
        raise source.wrong(misfit.path, misfit.message, misfit.hint) from misfit


def convert(value: Any, wanted: Any, path: Path = (), *, lenient: bool = False) -> Any:
    """Return ``value`` as the type ``wanted``; raises ``Misfit``. ``read`` says what the arguments mean."""
    bare, rule = _unwrap(wanted)
    if rule.parse is not None:
        return _parse(value, wanted, rule.parse, path)
    if typing.get_origin(bare) in (Union, types.UnionType):
        if value is None and type(None) in typing.get_args(bare):
            return None
        others = [part for part in typing.get_args(bare) if part is not type(None)]
        if isinstance(value, Mapping):  # it can only be the dataclass among them
            others = [part for part in others if dataclasses.is_dataclass(part)] or others
        if len(others) == 1:
            return convert(value, others[0], path, lenient=lenient)
    if dataclasses.is_dataclass(bare):
        return _convert_dataclass(value, bare, path, lenient)
    origin, parts = typing.get_origin(bare), typing.get_args(bare)
    if parts and isinstance(value, Mapping) and isinstance(origin, type) and issubclass(origin, Mapping):
        return {str(key): convert(each, parts[1], (*path, str(key)), lenient=lenient) for key, each in value.items()}
    if origin is tuple and len(parts) == 2 and isinstance(value, list | tuple):
        return tuple(_convert_entry(each, wanted, (*path, n), lenient) for n, each in enumerate(value))
    if bare is Any:
        return value
    for kind in (str, float, int):  # a parser's own kind of text or number remembers how it was written
        if isinstance(value, kind) and not isinstance(value, bool):
            value = kind(value)
            break
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong_kind(path, value, words(wanted))
    if lenient and origin is Literal and isinstance(value, str):
        value = value.strip()
    try:
        return msgspec.convert(value, wanted)
    except (msgspec.ValidationError, UnicodeEncodeError):  # or it has bytes that are no text
        raise wrong_kind(path, value, words(wanted)) from None


def _unwrap(wanted: Any) -> tuple[Any, Rule]:
    """Return a type without its annotation, and its rule."""
    if typing.get_origin(wanted) is not Annotated:
        return wanted, _NO_RULE
    bare, *notes = typing.get_args(wanted)
    return bare, next((note for note in notes if isinstance(note, Rule)), _NO_RULE)


def _parse(value: object, wanted: Any, parse: Callable[[Any], Any], path: Path) -> Any:
    try:
        return parse(value)
    except PyagentdError as error:
        named = path[:-1] if path and isinstance(path[-1], int) else path  # the message has the entry itself
        raise Misfit(path, f"`{dotted_path(named)}`: {error.message}", error.hint) from error
    except (ValueError, OverflowError):
        raise wrong_kind(path, value, words(wanted)) from None


def _convert_entry(value: object, listed: Any, path: Path, lenient: bool) -> Any:
    """Return an entry of a list; the error for a wrong one says what all entries should be."""
    item = typing.get_args(_unwrap(listed)[0])[0]
    try:
        return convert(value, item, path, lenient=lenient)
    except Misfit as misfit:
        if misfit.path != path or misfit.hint != _SHOULD + words(item):
            raise
        raise Misfit(path, misfit.message, _SHOULD + words(listed)) from misfit


def _convert_dataclass(values: object, wanted: Any, path: Path, lenient: bool) -> Any:
    if not isinstance(values, Mapping):
        raise wrong_kind(path, values, words(wanted))
    if not lenient or getattr(wanted, "CLOSED", False):  # first: a misspelled key is the reason that one is missing
        known = [key for field in _fields(wanted).values() for key in (field.spellings if lenient else field.keys)]
        if unknown := [str(key) for key in values if key not in known]:
            raise unknown_key((*path, unknown[0]), known)
    read: dict[str, Any] = {}
    for name, field in _fields(wanted).items():
        ways = field.spellings if lenient else field.keys
        found = next((key for key in ways if key in values and not (lenient and values[key] is None)), None)
        if found is not None and not (lenient and _is_blank(values[found], field.type)):
            read[name] = convert(values[found], field.type, (*path, found), lenient=lenient)
        elif field.is_required:
            message = f"`{dotted_path((*path, field.keys[0]))}` is missing"
            raise Misfit(path, message, f"It should be {words(field.type)}")
    try:
        return wanted(**read)
    except Misfit as misfit:
        place = (*path, *misfit.path)
        subject = f"`{dotted_path(place)}`: " if place else ""
        raise Misfit(place, f"{subject}{misfit.message}", misfit.hint) from misfit


def _is_blank(value: object, kind: Any) -> bool:
    """Return whether the value is empty where one of some words is expected."""
    choices = (kind, *typing.get_args(kind))
    return (
        isinstance(value, str) and not value.strip() and any(typing.get_origin(each) is Literal for each in choices)
    )


@dataclass(frozen=True, slots=True)
class _Field:
    """How a field of a dataclass is read."""

    type: Any
    keys: tuple[str, ...]
    spellings: tuple[str, ...]  # of the keys, with dashes and with underscores
    is_required: bool


@lru_cache(maxsize=256)
def _fields(wanted: type) -> Mapping[str, _Field]:
    """Return the fields that are read from outside, by name."""
    hints = typing.get_type_hints(wanted, include_extras=True)
    found = {}
    for each in dataclasses.fields(wanted):
        if each.metadata != INSIDE:
            keys = _keys(hints[each.name]) or (each.name,)
            found[each.name] = _Field(
                hints[each.name],
                keys,
                tuple(dict.fromkeys(way for key in keys for way in _spellings(key))),
                each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING,
            )
    return found


def _keys(kind: Any) -> tuple[str, ...]:
    """Return the keys that the type of a field, or the type in an optional one, declares."""
    return next((keys for part in (kind, *typing.get_args(kind)) if (keys := _unwrap(part)[1].keys)), ())


def keys_of(wanted: type) -> tuple[str, ...]:
    """Return the keys that a dataclass accepts."""
    return tuple(key for field in _fields(wanted).values() for key in field.keys)


def keys_by_field(wanted: type) -> Mapping[str, str]:
    """Return the fields of a dataclass that are read from outside, each with its key."""
    return {name: field.keys[0] for name, field in _fields(wanted).items()}


def find_key(values: Mapping[str, Any], *keys: str) -> str | None:
    """Return the first of ``keys`` that has a value, as spelled there with dashes or underscores, or None."""
    return next((way for key in keys for way in _spellings(key) if values.get(way) is not None), None)


def _spellings(key: str) -> tuple[str, ...]:
    return (key, key.replace("-", "_"), key.replace("_", "-"))


# Errors.

_SHOULD = "It should be "


def wrong_kind(path: Path, value: object, wanted: str) -> Misfit:
    """Return the error for a value of the wrong kind; ``wanted`` is the expected kind in words."""
    if path and isinstance(path[-1], int):
        return Misfit(
            path, f"`{dotted_path(path[:-1])}`: entry {path[-1] + 1} is {describe(value)}", _SHOULD + wanted
        )
    subject = f"`{dotted_path(path)}`" if path else "This"
    return Misfit(path, f"{subject} is {describe(value)}", _SHOULD + wanted)


def unknown_key(path: Path, known: Iterable[str]) -> Misfit:
    """Return the error for the unknown key at the end of ``path``."""
    known = list(known)
    key = str(path[-1])
    place = f" in `{dotted_path(path[:-1])}`" if len(path) > 1 else ""
    question = did_you_mean(key, known, shown="`{}`")
    return Misfit(path, f"unknown key `{key[:_SHOWN]}`{place}", f"{question} Known: {', '.join(known)}".strip())


def dotted_path(path: Path) -> str:
    """Return a path as people write it: ``paths.read``, ``hooks.tool.before[1]`` (from 1)."""
    text = "".join(f"[{each + 1}]" if isinstance(each, int) else f".{each}" for each in path)
    return text.removeprefix(".")


def describe(value: object) -> str:
    """Return a value as errors show it."""
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > 256:
            return f"a number of {value.bit_length()} bits"
        case str() | int() | float():
            text = repr(str(value)) if isinstance(value, str) else f"{value}"
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        case Mapping():
            return "keys and values"
        case list() | tuple():
            return "a list"
    return f"a {type(value).__name__}"


WORDS: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "empty",
    Any: "anything",
    Mapping: "keys and values",
}


def words(wanted: Any, names: Mapping[Any, str] = WORDS) -> str:
    """Return a type in words: ``a whole number from 1``, ``a list of texts``.

    Args:
        wanted: The type; of an optional one only the other type is described.
        names: The names of plain types.
    """
    bare, rule = _unwrap(wanted)
    if rule.words:
        return rule.words
    origin, parts = typing.get_origin(bare), typing.get_args(bare)
    if origin in (Union, types.UnionType):
        return " or ".join(words(part, names) for part in parts if part is not type(None))
    if origin is Literal:
        choices = [str(part) for part in parts if part != ""]
        return f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return names[Mapping]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"a list of {plural}" if (plural := _plural(parts[0], names)) else "a list"
    if dataclasses.is_dataclass(bare) or typing.is_typeddict(bare):
        return names[Mapping]
    return names.get(bare, getattr(bare, "__name__", str(bare))) + (_bounds(wanted) if bare is not wanted else "")


def _plural(wanted: Any, names: Mapping[Any, str]) -> str:
    """Return the plural of a plain type's name, "" for other types."""
    text = words(wanted, names)
    return f"{text.split(' ', 1)[1]}s" if re.fullmatch(r"an? (whole )?\w+", text) else ""


def _bounds(wanted: Any) -> str:
    """Return the bounds of a number: `` from 0 to 2``."""
    meta = next((note for note in typing.get_args(wanted)[1:] if isinstance(note, msgspec.Meta)), msgspec.Meta())
    pairs = [("from", meta.ge), ("above", meta.gt), ("to", meta.le), ("and below", meta.lt)]
    limits = ((word, bound if isinstance(bound, int) else f"{bound:g}") for word, bound in pairs if bound is not None)
    return "".join(f" {word} {bound}" for word, bound in limits)


# Lines of files.


def at(values: object, path: Path) -> Any:
    """Return the value at ``path``, or None."""
    for step in path:
        try:
            values = values[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return values


_FRONT_STARTS_ON_LINE = 2  # of a file with front matter: the first line is the delimiter


def line_in_front_matter(front: Mapping[str, Any], path: Path) -> int:
    """Return the line of a key or a list's entry in a front matter, or the nearest line that is known.

    Args:
        front: The front matter; it knows its lines if it has ``lc``, as ruamel.yaml makes it.
        path: The path to the value.
    """
    line, value = 1, front
    for step in path:
        lines = getattr(value, "lc", None)
        try:
            if lines is not None:
                line = (lines.item(step) if isinstance(step, int) else lines.key(step))[0] + _FRONT_STARTS_ON_LINE
            value = value[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            break
    return line


_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]")
_TOML_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def line_in_toml(text: str, path: Path, value: object = None) -> int | None:
    """Return the line of a table, a key or a list's entry in a TOML file, or of its parent; None if unknown.

    Args:
        text: The file.
        path: The path to the value.
        value: The entry, if ``path`` leads to one in a list of texts.
    """
    lines, header = text.splitlines(), ""
    found, counts = dict[str, int](), dict[str, int]()
    for number, line in enumerate(lines, start=1):
        if head := _HEADER.match(line):
            header = re.sub(r"[\"' ]", "", head[1])
            found.setdefault(header, number)
            if line.lstrip().startswith("[["):
                counts[header] = counts.get(header, -1) + 1
                header = f"{header}.{counts[header]}"
                found[header] = number
        elif key := _TOML_KEY.match(line):
            found.setdefault(".".join(filter(None, (header, re.sub(r"[\"' ]", "", key[1])))), number)
    for length in range(len(path), 0, -1):
        name = ".".join(map(str, path[:length])).replace(" ", "")
        start = found.get(name) or next((line for key, line in found.items() if key.startswith(f"{name}.")), None)
        if start is None:
            continue
        if length == len(path):
            return start
        ways = [re.escape(value), re.escape(value.replace("\\", "\\\\"))] if isinstance(value, str) else []
        if isinstance(path[-1], str):  # a key in braces, which may go over several lines
            ways = [rf"(?<![\w-])[\"']?{re.escape(path[-1])}[\"']?\s*="]
        entry = re.compile("|".join(ways) or "(?!)")
        return next((n for n, line in enumerate(lines[start - 1 :], start) if entry.search(line)), start)
    return None


def line_in_json(text: str, path: Path) -> int:
    """Return the line of a key in a JSON text, from 1: of its first occurrence after those of its parents."""
    at = 0
    for step in path:
        if isinstance(step, str):
            found = re.compile(rf'"{re.escape(step)}"\s*:').search(text, at)
            at = found.start() if found else at
    return text.count("\n", 0, at) + 1


# Strict JSON: refuses what JSON does not have (NaN, duplicate keys), and makes values storable.
#
# Python's ``json`` takes and writes ``NaN``, ``Infinity`` and integers of any length, and nests as deep as its stack
# allows. SQLite, Emacs and model servers do not: a value that only Python can read must never be recorded or sent.

MAX_DEPTH: Final = 100  # of arrays and objects within each other, in what a model, a hook or a human gives
_INTEGERS: Final = range(-(2**63), 2**63)  # what Emacs and SQLite read


def parse(text: str | bytes) -> Any:
    """Return the JSON value in ``text``.

    Raises:
        ValueError: It is not JSON, has a number that other programs cannot read, or is nested deeper than
            ``MAX_DEPTH``. The message says which.
    """
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_integer)
        too_deep = is_deeper(value, MAX_DEPTH)
    except RecursionError:
        too_deep = True
    if too_deep:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return value


def object_in(text: str | None, what: str, *, hint: str = "") -> dict[str, Any]:
    """Return the JSON object in ``text``, an empty one if the client gave none.

    Args:
        text: The client's text.
        what: The beginning of the error message.
        hint: The hint of the error.

    Raises:
        BadRequest: It is not a JSON object.
    """
    try:
        given = parse(text or "{}")
    except ValueError as error:
        raise BadRequest(f"{what} is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadRequest(f"{what} is not a JSON object", hint=hint)
    return given


def is_deeper(value: Any, depth: int) -> bool:
    """Return whether arrays and objects in ``value`` are nested deeper than ``depth``; does not recurse."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            item
            for one in level
            if isinstance(one, dict | list | tuple)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def storable(value: Any, depth: int) -> Any:
    """Return ``value`` with text instead of values that other programs cannot read.

    These are infinite numbers and NaN, which become their names, and values nested deeper than ``depth``.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if not isinstance(value, dict | list | tuple):
        return value
    if depth <= 0:
        return "(nested too deeply)"
    if isinstance(value, dict):
        return {key: storable(item, depth - 1) for key, item in value.items()}
    return [storable(item, depth - 1) for item in value]


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with what ``change`` makes of each of its texts; keys stay."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {key: with_texts(each, change) for key, each in value.items()}
        case list() | tuple():
            return [with_texts(each, change) for each in value]
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else None
    if value is None or value not in _INTEGERS:
        raise ValueError(f"the integer {text[:40]} has more than 64 bits")
    return value

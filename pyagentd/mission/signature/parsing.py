"""The parser of signatures: shorthand, and Malli where a vector begins with a Malli operator such as ``:or``.

``[:type]`` is always a list of that type: ``[:map]`` is a list of maps. The empty map is ``{}``.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from pyagentd.errors import SignatureError, did_you_mean
from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature.hints import is_hint, type_of_hint
from pyagentd.mission.signature.types import (
    NAMES,
    OPERATORS,
    And,
    Constant,
    Constraint,
    Enum,
    Field,
    List,
    Map,
    MapOf,
    Name,
    Primitive,
    Type,
    choice,
    maybe,
)

# Reading text into forms: names, keywords, literals and brackets, each with its position.

Kind = Literal["name", "keyword", "string", "number", "vector", "braces", "parens", "arrow", "type", "constant"]

MAX_DEPTH = 64
"""The deepest nesting of brackets; the functions that parse forms are recursive."""

_TOKEN = re.compile(
    r"""
      (?P<space>[\s,]+)
    | (?P<arrow>->)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<keyword>:(?:(?!->)[\w\-.*+!?/<>=%&$\#])+)
    | (?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<name>[^\W\d](?:(?!->)[\w-])*[?!]?)
    | (?P<mark>\?)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r"[^\W\d](?:(?!->)[\w-])*[?!]?")
_KEYWORD = re.compile(r"(?:(?!->)[\w\-.*+!?/<>=%&$#])+")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_BRACKETS: dict[str, Kind] = {"(": "parens", "[": "vector", "{": "braces"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_LONGEST_NUMBER = 300
_STRAY = (
    ('"', "this string is never closed", 'Add a `"`'),
    (":", "no type follows this colon", "Write one, as in `:int`"),
    (";", "`;` separates nothing", "Separate fields by commas or spaces"),
    ("|", "`|` joins nothing", "A choice is written `[:or :int :string]`"),
    ("=→⇒", "`{}` has no meaning here", "A result follows `->`; what may be absent ends in `?`"),
    ("'“”‘’`", "`{}` quotes nothing", 'Strings stand in double quotes: `"a"`'),
    ("0123456789.@$/", "`{}` has no meaning here", "Names begin with a letter or `_`; others are written as strings"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form."""

    kind: Kind  # ``type`` is a ``Type`` in data, ``constant`` true, false and nil in data
    value: Any  # text of a name or keyword (without colon), the literal, or the forms inside brackets
    source: str = ""  # the text it was read from; "" for data
    offset: int = -1  # where in it; -1 for data
    optional: bool = False  # a ``?`` follows it

    def error(self, message: str, hint: str = "") -> SignatureError:
        """Return an error at the position of this form."""
        return _error(message, self.source, self.offset, hint)


def read(text: str) -> tuple[Form, ...]:
    """Return the forms of ``text``.

    Raises:
        SignatureError: Something that cannot be part of a signature, or brackets that do not pair.
    """
    return _Reader(text).forms()


def is_plain(name: str) -> bool:
    """Return whether ``name`` can be written without quotes."""
    return _PLAIN.fullmatch(name) is not None


def is_keyword(name: str) -> bool:
    """Return whether a colon and ``name`` are read as one keyword."""
    return _KEYWORD.fullmatch(name) is not None


def _error(message: str, source: str, offset: int, hint: str = "") -> SignatureError:
    if offset < 0:
        return SignatureError(message, hint=hint)
    before = source[:offset]
    line = before.count("\n") + 1
    return SignatureError(message, source=source, line=line, column=offset - before.rfind("\n"), hint=hint)


class _Reader:
    """Reads one text; stores the forms read so far for each open bracket."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[int] = []
        self._inside: list[list[Form]] = [[]]

    def forms(self) -> tuple[Form, ...]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._stray(at)
            self._read_token(str(found.lastgroup), found[0], at)
            at = found.end()
        if self._open:
            where = self._open[-1]
            bracket = self._text[where]
            raise self._error(f"this `{bracket}` is never closed", where, f"Add a `{_CLOSES[bracket]}`")
        return tuple(self._inside[0])

    def _read_token(self, kind: str, text: str, at: int) -> None:
        match kind:
            case "space":
                pass
            case "open":
                self._read_open(at)
            case "close":
                self._read_close(text, at)
            case "mark":
                self._read_mark(at)
            case "string":
                self._add("string", self._unescape(text, at), at)
            case "number":
                if len(text) > _LONGEST_NUMBER:
                    raise self._error(f"a number of more than {_LONGEST_NUMBER} characters", at)
                self._add("number", float(text) if set(text) & set(".eE") else int(text), at)
            case "keyword":
                self._add("keyword", text[1:], at)
            case _:  # a name, or the arrow
                self._add(cast(Kind, kind), text, at)

    def _add(self, kind: Kind, value: Any, at: int) -> None:
        self._inside[-1].append(Form(kind=kind, value=value, source=self._text, offset=at))

    def _read_open(self, at: int) -> None:
        if len(self._open) == MAX_DEPTH:
            raise self._error(
                f"brackets are nested more than {MAX_DEPTH} deep", at, "Use :map or :any for deep values"
            )
        # A placeholder, replaced when the bracket is closed.
        self._add(_BRACKETS[self._text[at]], (), at)
        self._open.append(at)
        self._inside.append([])

    def _read_close(self, text: str, at: int) -> None:
        if not self._open:
            raise self._error(f"this `{text}` has no opening bracket", at, "Remove it, or add the opening bracket")
        where = self._open.pop()
        bracket = self._text[where]
        if text != _CLOSES[bracket]:
            column = where - self._text.rfind("\n", 0, where)
            message = f"`{text}` closes the `{bracket}` of column {column}"
            raise self._error(message, at, f"Write `{_CLOSES[bracket]}`")
        inside = self._inside.pop()
        self._inside[-1][-1] = replace(self._inside[-1][-1], value=tuple(inside))

    def _read_mark(self, at: int) -> None:
        inside = self._inside[-1]
        touches = at > 0 and not self._text[at - 1].isspace() and self._text[at - 1] not in ",([{"
        if not inside or not touches:
            raise self._error("`?` does not follow a type", at, "Write it directly after a type")
        last = inside[-1]
        if last.optional or (last.kind == "keyword" and last.value.endswith("?")):
            raise self._error("the type is already optional", at, "Remove the second `?`")
        inside[-1] = replace(last, optional=True)

    def _unescape(self, text: str, at: int) -> str:
        def plain(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                place = at + 1 + found.start()
                raise self._error(f"`{found[0]}` is not an escape sequence", place, r"There are \" \\ \n \r \t")
            return _ESCAPES[found[1]]

        return re.sub(r"\\(.)", plain, text[1:-1], flags=re.DOTALL)

    def _stray(self, at: int) -> SignatureError:
        char = self._text[at]
        if char == ":" and self._inside[-1] and self._inside[-1][-1].kind in ("name", "string"):
            name = self._inside[-1][-1].value
            return self._error("this colon is not needed", at, f"Only types have a colon: `{name} :int`")
        for signs, message, hint in _STRAY:
            if char in signs:
                return self._error(message.format(char), at, hint)
        return self._error(f"`{char}` has no meaning here", at)

    def _error(self, message: str, at: int, hint: str = "") -> SignatureError:
        return _error(message, self._text, at, hint)


# Names of types, and suggestions for unknown names.

# Malli's names for the named types.
_SAME: dict[str, Name] = {"boolean": "bool", "double": "float"}

_MEANT = {
    **dict.fromkeys(["integer", "long", "i32", "i64", "number_int"], ":int"),
    **dict.fromkeys(["number", "decimal", "real", "num"], ":float"),
    **dict.fromkeys(["str", "text", "char", "uuid", "url", "email"], ":string"),
    **dict.fromkeys(["list", "array", "seq", "vec"], "[:any], a list of anything"),
    **dict.fromkeys(["set", "tuple"], "[:any], a list of anything"),
    **dict.fromkeys(["object", "dict", "record", "struct", "hash", "json"], ":map"),
    **dict.fromkeys(["null", "none", "undefined", "void"], ":nil"),
    **dict.fromkeys(["atom", "symbol", "kw"], ":keyword"),
    **dict.fromkeys(["date", "time", "timestamp", "inst", "date-time"], ":datetime"),
    **dict.fromkeys(["term", "unknown", "value", "some"], ":any"),
    "enum": '[:enum "a" "b"]',
    "or": "[:or :int :string]",
    "maybe": ":int?",
    "optional": ":int?",
    "vector": "[:any], a list of anything",
    "sequential": "[:any], a list of anything",
    "map-of": "[:map-of :string :int]",
}


def find_type_name(name: str) -> Name | None:
    """Return the type name for ``name`` (without colon), or None."""
    return cast(Name, name) if name in NAMES else _SAME.get(name)


def suggest_type(name: str) -> str:
    """Return a sentence with a suggestion for the unknown type ``name``."""
    plain = name.lower().rstrip("?")
    mark = "?" if name.endswith("?") else ""
    if found := find_type_name(plain):
        return f"Did you mean `:{found}{mark}`?"
    if instead := _MEANT.get(plain):
        code, comma, why = instead.partition(", ")
        return f"Did you mean `{code}`{comma}{why}?"
    if question := did_you_mean(plain, sorted(NAMES), shown=f"`:{{}}{mark}`"):
        return question
    return "Types are " + " ".join(f":{one}" for one in sorted(NAMES))


def suggest(name: str, possible: list[str]) -> str:
    """Return a sentence with the name of ``possible`` that is most similar to ``name``, or with all of them."""
    if question := did_you_mean(name, possible, shown="`:{}`"):
        return question
    return "There are " + " ".join(f":{one}" for one in possible) if possible else "There are none here"


# Names of fields and parameters, and the ``?`` after their types.

What: TypeAlias = Literal["field", "parameter"]
"""The noun for a named thing in errors."""

_EXAMPLE: dict[What, str] = {"field": "`{id :int}`", "parameter": "`(id :int)`"}


def has_mark(form: Form) -> bool:
    """Return whether ``form`` has the ``?`` of optional types."""
    text = form.kind == "keyword" or (form.kind == "string" and not form.source)  # data may hold shorthand as text
    return form.optional or (text and len(form.value) > 1 and form.value.endswith("?"))


def name_of(form: Form, what: What) -> str:
    """Return the name in ``form``: bare, with a colon, or in quotes.

    Raises:
        SignatureError: It is not a name.
    """
    plain = form.kind in ("name", "keyword") and is_plain(form.value)
    if not form.optional and (plain or (form.kind == "string" and form.value)):
        return str(form.value)
    hint = f'Write it in quotes: `"{form.value}"`' if form.kind == "keyword" else f"As in {_EXAMPLE[what]}"
    raise form.error(f"this is not a {what} name", hint)


def check_duplicates(fields: Iterable[Field], forms: Sequence[Form], what: What) -> None:
    """Raise ``SignatureError`` if two of ``fields``, which were parsed from ``forms``, have the same name."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            place = [form for form in forms if form.value == field.name][-1:] or list(forms[:1])
            raise place[0].error(f"there are two {what}s `{field.name}`", "Remove one")
        seen.add(field.name)


# Malli schemas: vectors that begin with an operator, ``[:or …]``, ``[:string {:min 1}]``, ``[:map [:id :int]]``.
#
# The subset of https://github.com/metosin/malli that JSON Schema can express. Properties that only describe
# (``:title``, ``:default``…) are ignored; unknown properties that would restrict values are errors.

Properties: TypeAlias = dict[str, Form]

_DESCRIBING = ("title", "description", "doc", "default", "example", "examples")
_LITERALS = ("true", "false", "nil")
_OPERATIONS = frozenset({"enum", "=", "or", "and", "maybe", "vector", "sequential", "map", "map-of"})
_UNSUPPORTED = {
    "?": "It stands after a name, for a field that may be absent",
    "set": "A list is written `[:vector :int]`",
    "tuple": "A list is written `[:vector :any]`",
    "re": "Use `[:string {:min 1}]` and check the rest yourself",
    "not": "Say what may be instead: `[:or …]`, `[:enum …]`",
    "=>": "A signature with parameters stands outermost only",
    "cat": "Parameters stand in a signature only: `[:=> [:cat …] …]`",
    "catn": "Parameters stand in a signature only: `[:=> [:catn …] …]`",
    "ref": "Deep values are `:map` or `:any`",
    "schema": "Write the schema itself",
    "fn": "Bounds are written `[:and :int [:> 0]]`",
    "multi": "A choice is written `[:or …]`",
}


def is_schema(parts: Sequence[Form]) -> bool:
    """Return whether a vector of ``parts`` is a Malli schema, not a list in shorthand."""
    word = parts[0].value if parts[0].kind == "keyword" and not parts[0].optional else None
    if find_type_name(str(word)) is not None:
        return len(parts) > 1 and (word == "map" or parts[1].kind == "braces")
    return word in _OPERATIONS or word in OPERATORS or word in _UNSUPPORTED


def is_map(parts: Sequence[Form]) -> bool:
    """Return whether a vector of ``parts`` is a Malli map, of entries or empty."""
    return bool(parts) and parts[0].kind == "keyword" and parts[0].value == "map" and len(parts) > 1


def schema_of(form: Form) -> Type:
    """Return the type that the Malli vector ``form`` describes.

    Raises:
        SignatureError: It is malformed, or a schema that cannot be checked here.
    """
    word = form.value[0].value
    if hint := _UNSUPPORTED.get(word):
        raise form.error(f"`[:{word} …]` is not supported here", hint)
    if word in OPERATORS:
        rest = form.value[1:]
        if len(rest) != 1 or rest[0].kind != "number":
            raise form.error("this takes one number", f"As in `[:{word} 0]`")
        return Constraint(word, _finite_number(rest[0]))
    if word != "map" and (name := find_type_name(word)):
        return _bounded_type(form, name)
    match word:
        case "enum":
            return _enum(form)
        case "=":
            if len(form.value) != 2:
                raise form.error("this takes one value", 'As in `[:= "a"]`')
            return _enum(form)
        case "or":
            return choice(map(type_of, _children(form)))
        case "and":
            parts: dict[Type, None] = {}
            for part in map(type_of, _children(form)):
                parts.update(dict.fromkeys(part.all_of if isinstance(part, And) else (part,)))
            return next(iter(parts)) if len(parts) == 1 else And(tuple(parts))
        case "maybe":
            _, (inner,) = _bounds_and(form, 1, [])
            return maybe(type_of(inner))
        case "vector" | "sequential":
            bounds, (item,) = _bounds_and(form, 1, ["min", "max"])
            return List(type_of(item), *_lengths(bounds))
        case "map-of":
            bounds, (key, value) = _bounds_and(form, 2, ["min", "max"])
            return MapOf(type_of(key), type_of(value), *_lengths(bounds))
    return map_of_entries(form)


def properties_of(form: Form, allowed: Sequence[str]) -> Properties:
    """Return the properties in the braces ``form``."""
    found: Properties = {}
    parts: tuple[Form, ...] = form.value
    if len(parts) % 2:
        raise parts[-1].error("this property has no value", "Write one after it, as in `{:min 1}`")
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        if key.kind not in ("keyword", "name", "string"):
            raise key.error("this is not a property", "Properties are keywords with values, as in `{:min 1}`")
        name = str(key.value)
        if name in allowed:
            found[name] = value
        elif name not in _DESCRIBING and "/" not in name:
            raise key.error(f"there is no property `:{name}` here", suggest(name, list(allowed)))
    return found


def constant_of(form: Form) -> Constant | None:
    """Return the constant that ``form`` describes; None for nil."""
    match form.kind, form.value:
        case ("string", str()) | ("number", _):
            if isinstance(form.value, float) and not math.isfinite(form.value):
                raise form.error("this number is too large")
            return Constant(form.value)
        case "keyword", str(name) if is_keyword(name):
            return Constant(name, is_keyword=True)
        case ("constant", value) if value is None or isinstance(value, bool):
            return None if value is None else Constant(value)
        case "name", ("true" | "false" | "nil") as name:
            return {"true": Constant(True), "false": Constant(False), "nil": None}[name]
        case "name", name:
            raise form.error("this is not a value", f'Write `"{name}"`, or `:{name}` for a keyword')
        case _:
            raise form.error("this is not a value", "Values are strings, numbers, keywords, true, false and nil")


def entry_of(form: Form) -> Field:
    """Return the field of an entry ``[:id :int]`` or ``[:id {:optional true} :int]``."""
    if form.kind != "vector" or not 2 <= len(form.value) <= 3:
        raise form.error("this is not a field of a map", "Write a name and a type: `[:id :int]`")
    key, *middle, last = form.value
    if middle and middle[0].kind != "braces":
        raise middle[0].error("properties are expected here", "As in `[:email {:optional true} :string]`")
    properties = properties_of(middle[0], ["optional"]) if middle else {}
    optional = "optional" in properties and _boolean(properties["optional"])
    field = field_of(name_of(key, "field"), last)
    return replace(field, optional=optional or field.optional)


def field_of(name: str, form: Form) -> Field:
    """Return the field ``name`` with the type in ``form``; ``[:? :int]`` may be absent, ``:int?`` also nil."""
    match form:
        case Form(kind="vector", value=(Form(kind="keyword", value="?"), inner), optional=False):
            return Field(name, type_of(inner), optional=True)
        case _:
            return Field(name, type_of(form), optional=has_mark(form))


def map_of_entries(form: Form) -> Map:
    """Return the type of a vector ``[:map …]``."""
    parts = list(form.value[1:])
    properties = properties_of(parts.pop(0), ["closed"]) if parts and parts[0].kind == "braces" else {}
    fields = tuple(map(entry_of, parts))
    check_duplicates(fields, [part.value[0] for part in parts], "field")
    return Map(fields, closed="closed" in properties and _boolean(properties["closed"]))


def _enum(form: Form) -> Type:
    values = [part for part in form.value[1:] if part.kind != "braces"]
    if not values:
        raise form.error("this enumeration has no values", 'Write them after it: `[:enum "a" "b"]`')
    constants = [constant_of(part) for part in values]
    known_ones = tuple(dict.fromkeys(one for one in constants if one is not None))
    inner = Enum(known_ones) if known_ones else Primitive("nil")
    return maybe(inner) if None in constants else inner


def _bounded_type(form: Form, name: Any) -> Type:
    braces, *rest = form.value[1:]
    if rest:
        raise rest[0].error(f"nothing may follow the properties of `:{name}`")
    if name == "string":
        return Primitive("string", *_lengths(properties_of(braces, ["min", "max"])))
    if name not in ("int", "float"):
        properties_of(braces, [])
        return Primitive(name)
    bounds = properties_of(braces, ["min", "max"])
    least, most = (_finite_number(bounds[key]) if key in bounds else None for key in ("min", "max"))
    _in_order(least, most, bounds)
    return Primitive(name, least, most)


def _children(form: Form) -> Sequence[Form]:
    children: Sequence[Form] = form.value[1:]
    # A map in shorthand has types as values, properties have literals.
    literals = (
        part.kind in ("string", "number", "constant") or (part.kind == "name" and part.value in _LITERALS)
        for part in (children[0].value[1::2] if children and children[0].kind == "braces" else ())
    )
    if any(literals):
        properties_of(children[0], [])
        children = children[1:]
    if not children:
        raise form.error("there are no types in it", "Write types after it: `[:or :int :string]`")
    return children


def _bounds_and(form: Form, count: int, allowed: Sequence[str]) -> tuple[Properties, Sequence[Form]]:
    parts = form.value[1:]
    properties: Properties = {}
    if len(parts) == count + 1 and parts[0].kind == "braces":
        properties, parts = properties_of(parts[0], allowed), parts[1:]
    if len(parts) != count:
        word = form.value[0].value
        types = "one type" if count == 1 else f"{count} types"
        example = " ".join([f"[:{word}", ":string", ":int"][: count + 1]) + "]"
        raise form.error(f"`:{word}` takes {types}", f"As in `{example}`")
    return properties, parts


def _lengths(bounds: Properties) -> tuple[int | None, int | None]:
    least, most = (_length(bounds[key]) if key in bounds else None for key in ("min", "max"))
    _in_order(least, most, bounds)
    return least, most


def _in_order(least: int | float | None, most: int | float | None, bounds: Properties) -> None:
    if least is not None and most is not None and least > most:
        raise bounds["max"].error(f"no value is at least {least} and at most {most}", "Swap the two")


def _length(form: Form) -> int:
    if form.kind != "number" or not isinstance(form.value, int) or form.value < 0:
        raise form.error("this is not a length", "Lengths are whole numbers from 0")
    return form.value


def _finite_number(form: Form) -> int | float:
    if form.kind != "number" or not math.isfinite(form.value):
        raise form.error("this is not a number", "Bounds are numbers, as in `{:min 1}`")
    return form.value  # type: ignore[no-any-return]  # the kind says what it is


def _boolean(form: Form) -> bool:
    if form.kind == "constant" and isinstance(form.value, bool):
        return form.value
    if form.value in ("true", "false"):
        return bool(form.value == "true")
    raise form.error("this is neither true nor false")


def parts_of(forms: Sequence[Form]) -> tuple[tuple[Field, ...], Type]:
    """Return the parameters and the result type in the ``forms`` of a whole signature.

    Raises:
        SignatureError: They are not a signature.
    """
    match forms:
        case []:
            raise SignatureError("there is no signature", hint="The shortest one is `:any`")
        case [Form(kind="vector", value=(Form(kind="keyword", value="=>"), *rest)) as whole]:
            if whole.optional:
                raise whole.error("a signature cannot be optional", "Put the `?` after the type of its result")
            return _function(whole, rest)
        case [Form(kind="arrow") as arrow, *rest]:
            return (), _result(arrow, rest)
        case [Form(kind="parens", optional=True) as parens, *_]:
            raise parens.error("the parameter list cannot be optional", "Put the `?` after the type of a parameter")
        case [Form(kind="parens") as parens, Form(kind="arrow") as arrow, *rest]:
            return fields_of(parens.value, "parameter"), _result(arrow, rest)
        case [Form(kind="parens") as parens, *rest]:
            place = rest[0] if rest else parens
            raise place.error("no result follows the parameters", "Write `->` and a type after them")
        case _:
            return (), _only(forms)


def type_of(form: Form) -> Type:
    """Return the type that ``form`` describes; a ``?`` after it makes it optional.

    Raises:
        SignatureError: It is not a type.
    """
    if form.kind == "string" and not form.source and form.value.strip():
        return _only(read(form.value))
    meaning = _type_without_mark(form)
    return maybe(meaning) if has_mark(form) else meaning


def fields_of(forms: Sequence[Form], what: What) -> tuple[Field, ...]:
    """Return the fields in ``forms``, which alternate names and types."""
    found: list[Field] = []
    rest = list(forms)
    while rest:
        key = rest.pop(0)
        name = name_of(key, what)
        # `{a int}` lacks a colon, `{a b :int}` a type.
        if not rest or (rest[0].kind == "name" and not find_type_name(rest[0].value.lower().rstrip("?"))):
            if key.kind == "keyword" and find_type_name(name.rstrip("?")):
                raise key.error(f"this type has no name of a {what}", f"Write one before it: `value :{name}`")
            raise key.error(f"the {what} `{name}` has no type", f"Write one after it, as in `{name} :any`")
        found.append(field_of(name, rest.pop(0)))
    check_duplicates(found, forms, what)
    return tuple(found)


def _result(arrow: Form, rest: Sequence[Form]) -> Type:
    if not rest:
        raise arrow.error("no result follows the arrow", "Write its type after it; `:any` fits anything")
    return _only(rest)


def _only(forms: Sequence[Form]) -> Type:
    first, *others = forms
    found = type_of(first)
    if others:
        raise others[0].error(
            "nothing may follow the result", "Return several values as a map: `{id :int, name :string}`"
        )
    return found


def _function(whole: Form, rest: Sequence[Form]) -> tuple[tuple[Field, ...], Type]:
    if len(rest) != 2:
        raise whole.error("`:=>` takes parameters and a result", "As in `[:=> [:cat :string] :int]`")
    taken, result = rest
    words = taken.value if taken.kind == "vector" else ()
    if not words or words[0].kind != "keyword" or words[0].value not in ("cat", "catn"):
        raise taken.error("these are not parameters", "Write `[:cat]`, `[:cat :string]` or `[:catn [:id :int]]`")
    if words[0].value == "cat":
        return _positional_fields(words[1:]), type_of(result)
    params = tuple(map(entry_of, words[1:]))
    check_duplicates(params, [form.value[0] for form in words[1:]], "parameter")
    return params, type_of(result)


def _positional_fields(forms: Sequence[Form]) -> tuple[Field, ...]:
    """Return the parameters of ``[:cat …]``: the fields of its only map, or else numbered parameters."""
    if len(forms) == 1 and forms[0].kind == "vector" and is_map(forms[0].value) and not forms[0].optional:
        taken = map_of_entries(forms[0])
        if taken.closed:
            raise forms[0].error("parameters cannot be closed", "Strict validation refuses undeclared arguments")
        return taken.fields
    return tuple(field_of(f"arg{number}", form) for number, form in enumerate(forms, start=1))


def _type_without_mark(form: Form) -> Type:
    match form.kind:
        case "type":
            return form.value  # type: ignore[no-any-return]  # the kind says what it is
        case "keyword":
            name = form.value if form.optional else form.value.removesuffix("?")
            if found := find_type_name(name):
                return Primitive(found)
            raise form.error(f"`:{form.value}` is not a type", suggest_type(form.value))
        case "braces":
            return Map(fields_of(form.value, "field"))
        case "vector":
            return _vector(form)
        case "name":
            raise form.error(f"`{form.value}` is not a type", suggest_type(form.value))
        case "string":
            raise form.error("a string is not a type", "Types begin with a colon; for fixed values write `[:enum …]`")
        case "number" | "constant":
            raise form.error("a value is not a type", "For fixed values write `[:enum 1 2]`")
        case "parens":
            raise form.error("parameters are allowed only at the beginning", "A list is `[:int]`, a map `{id :int}`")
        case _:
            raise form.error("`->` is allowed only between parameters and result", "As in `(id :int) -> :string`")


def _vector(form: Form) -> Type:
    parts: tuple[Form, ...] = form.value
    if not parts:
        raise form.error("this list has no type of its items", "Write `[:any]` for a list of anything")
    if is_schema(parts):
        return schema_of(form)
    if len(parts) > 1:
        hint = "A list has one type of items; what may be either is written `[:or :int :string]`"
        raise parts[1].error("there are two types in one list", hint)
    return List(type_of(parts[0]))


# Signatures given as data: Malli in lists and tuples, fields in dicts.
#
# Keywords are ``Keyword`` objects or strings that begin with a colon, so that a schema can be JSON. Any other string
# is a value inside ``[:enum …]``, a field name before a type, and shorthand where a type is expected.


def form_of(data: Any, depth: int = 0) -> Form:
    """Return ``data`` as a form.

    Raises:
        SignatureError: Something in it cannot be part of a signature.
    """
    if depth > MAX_DEPTH:
        raise SignatureError(
            f"brackets are nested more than {MAX_DEPTH} deep", hint="Use :map or :any for deep values"
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
            raise SignatureError(f"a value of type {name} cannot be part of a signature", hint="Write text or lists")

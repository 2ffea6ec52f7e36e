"""What a model reads after a turn.

Whole sentences: what happened, what is there now, what to do next. Values pass the firewall; messages of errors do
too, since an error names the value it is about.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.values import Keyword, LispSet, from_key
from pyagentd.mission.firewall import HIDDEN, Firewall, is_firewalled, name_text
from pyagentd.mission.signature import (
    Field,
    List,
    Map,
    MapOf,
    Maybe,
    Primitive,
    Problem,
    Signature,
    Type,
)
from pyagentd.mission.signature.rendering import type_text
from pyagentd.mission.signature.types import ANY, NIL, choice, maybe

# What data a mission has, as its model is told: name, type and a sample of each.
#
# Types are those of the signature where there is one, and inferred from the value otherwise; an inferred type looks
# at the first items of a list only, so that it costs the same for any amount of data.

_LOOKED_AT = 50
_FIELDS = 30
_DEPTH = 5
_INVENTORY_LONGEST = 60_000  # characters of all entries, about
_NO_FIELDS = Map(())  # an empty map among others


def inventory(
    context: Mapping[Any, Any],
    declared: Signature | None,
    firewall: Firewall,
    memory: Mapping[Any, Any] | None = None,
) -> str:
    """Return one entry a line for everything in ``ctx/`` and ``memory/``, and a sample of what may be shown.

    Args:
        context: As programs see it.
        declared: Types of the context by name: its parameters, or the fields of what it returns.
        firewall: Makes the samples.
        memory: What is in the memory at the start.
    """
    types = declared_types(declared)
    data = [("ctx", key, value, types) for key, value in context.items()]
    none: dict[str, Type] = {}
    kept = [("memory", key, value, none) for key, value in (memory or {}).items()]
    lines = [] if data else ["There is no data in `ctx/`."]
    room = _INVENTORY_LONGEST
    for index, (place, key, value, known) in enumerate([*data, *kept]):
        if room <= 0:
            lines.append(f"- and {len(data) + len(kept) - index} more values that there is no room to show.")
            break
        lines.append(_entry(place, _name(key), value, known, firewall))
        room -= len(lines[-1])
    return "\n".join(lines)


def declared_types(signature: Signature | None) -> dict[str, Type]:
    """Return the types a signature states by name, as parameters or as the fields of its map."""
    if signature is None:
        return {}
    returned = signature.returns.fields if isinstance(signature.returns, Map) else ()
    return {field.name: field.type for field in (*returned, *signature.params)}


def type_of(value: Any, depth: int = 0) -> Type:
    """Return the narrowest type that fits what was looked at of ``value``."""
    match value:
        case None:
            return NIL
        case bool():
            return Primitive("bool")
        case int():
            return Primitive("int")
        case float():
            return Primitive("float")
        case str():
            return Primitive("string")
        case Keyword():
            return Primitive("keyword")
        case dict():
            return _of_map(value, depth) if depth < _DEPTH else Primitive("map")
        case list() | tuple():
            return List(_of_items(value, depth))
    return ANY


def _of_items(items: Iterable[Any], depth: int) -> Type:
    if depth >= _DEPTH:
        return ANY
    return joined([type_of(item, depth + 1) for item in islice(items, _LOOKED_AT)])


def _of_map(value: dict[Any, Any], depth: int) -> Type:
    keys = [from_key(key) for key in value]
    if not keys:
        return Primitive("map")
    if len(keys) <= _FIELDS and all(isinstance(key, str | Keyword) for key in keys):
        named = {_name(key): item for key, item in value.items()}
        return Map(tuple(Field(name, type_of(item, depth + 1)) for name, item in named.items()))
    return MapOf(_of_items(keys, depth), _of_items(value.values(), depth))


def joined(types: list[Type]) -> Type:
    """Return one type for all of them: maps field by field, integers among floats as floats."""
    if not types:
        return ANY
    bare = [each.inner if isinstance(each, Maybe) else each for each in types if each != NIL]
    takes_nil = len(bare) < len(types) or any(isinstance(each, Maybe) for each in types)
    if not bare:
        return NIL
    found = _joined(bare)
    return maybe(found) if takes_nil and found != ANY else found


def _joined(types: list[Type]) -> Type:
    emptied = [_NO_FIELDS if each == Primitive("map") else each for each in types]
    maps = [each for each in emptied if isinstance(each, Map)]
    if len(maps) == len(types) and any(each.fields for each in maps):
        return _joined_maps(maps)
    lists = [each for each in types if isinstance(each, List)]
    if len(lists) == len(types):
        known = [each.item for each in lists if each.item != ANY]
        return List(joined(known))
    kinds = set(types)
    if kinds == {Primitive("int"), Primitive("float")}:
        return Primitive("float")
    return types[0] if len(kinds) == 1 else ANY if ANY in kinds else choice(types)


def _joined_maps(maps: list[Map]) -> Map:
    found: dict[str, list[Field]] = {}
    for each in maps:
        for field in each.fields:
            found.setdefault(field.name, []).append(field)
    return Map(tuple(_shared(name, fields, len(maps)) for name, fields in found.items()))


def _shared(name: str, fields: list[Field], maps: int) -> Field:
    """Return a field of several maps; the shorthand has one mark for what may be nil and what may be absent."""
    type_ = joined([field.type for field in fields])
    everywhere = len(fields) == maps and not any(field.optional for field in fields)
    if everywhere and not type_.is_optional:
        return Field(name, type_, False)
    return Field(name, maybe(ANY if type_ == NIL else type_), True)


def _entry(place: str, name: str, value: Any, types: Mapping[str, Type], firewall: Firewall) -> str:
    # An inferred type has keys of the data in it, so it passes the firewall too.
    type_ = type_text(types[name]) if name in types else firewall.type_words(type_text(type_of(value)))
    head = f"- `{place}/{name_text(name)}` {type_}{_count(value)}"
    if is_firewalled(name):
        return f"{head} {HIDDEN}"
    text, notes = firewall.shown(value, f"{place}/{name_text(name)}")
    lines = [f"{head}", f"  {text}", *(f"  {note}" for note in notes)]
    return "\n".join(lines) if notes or isinstance(value, list | dict) or len(text) > 60 else f"{head} = {text}"


def _count(value: Any) -> str:
    match value:
        case list() | tuple() | LispSet() if len(value) != 1:
            return f", {len(value)} items"
        case list() | tuple() | LispSet():
            return ", 1 item"
    return ""


def _name(key: Any) -> str:
    key = from_key(key)
    return key.name if isinstance(key, Keyword) else str(key)


_PROBLEMS = 10
_WARNINGS = 5
_LONGEST = 2_000  # characters of a message


def of_value(value: Any, names: Sequence[str], firewall: Firewall, warnings: Iterable[str] = ()) -> str:
    """Return what is said of a program that came to its end without ending the mission.

    Args:
        value: What it evaluated to.
        names: What programs find it under in ``ctx/``.
        firewall: Shows it.
        warnings: What was converted or left out on the way.
    """
    text, notes = firewall.shown(value)
    type_ = firewall.type_words(f" {type_text(type_of(value))}") if isinstance(value, dict | list) and value else ""
    lines = [f"Result{type_}:", text, *notes, _kept(names, firewall), *_warned(warnings, firewall)]
    return "\n".join(line for line in lines if line)


def of_error(
    error: LispError,
    firewall: Firewall,
    warnings: Iterable[str] = (),
    *,
    called: Sequence[str] = (),
) -> str:
    """Return what is said of a program that failed.

    Args:
        error: What of.
        firewall: Keeps values out of it.
        warnings: What was converted or left out on the way.
        called: The tools it had called before, in order.
    """
    place = f", line {error.line}, column {error.column}" if error.line is not None else ""
    lines = [f"Error ({error.reason}{place}): {_sentence(_told(error))}", error.caret(), _sentence(error.hint)]
    if error.undone:
        lines.append("What the program put into memory is undone.")
    if called:
        lines.append(f"It had called {', '.join(dict.fromkeys(called))} before; that stays done.")
    said = "\n".join(line for line in lines if line)
    return "\n".join([firewall.words(said), *_warned(warnings, firewall)])


def of_return(value: Any, problems: Sequence[Problem], signature: Signature, firewall: Firewall) -> str:
    """Return what is said of a value that is not what the mission promises."""
    text, notes = firewall.shown(value)
    return "\n".join(
        [
            "Error (validation_error): The returned value does not fit the expected output.",
            f"Expected: {type_text(signature.returns)}",
            f"Received: {text}",
            *notes,
            *problem_lines(problems, firewall),
            'Call (call "return" …) again with a value that fits.',
        ]
    )


def of_function(firewall: Firewall, warnings: Iterable[str] = ()) -> str:
    """Return what is said of a program that returned a function."""
    return "\n".join(
        [
            "Error (validation_error): The returned value is a function, which is no data.",
            "Call it and return what it gives.",
            *_warned(warnings, firewall),
        ]
    )


def of_mistyped(mistyped: Sequence[str], firewall: Firewall) -> str:
    """Return what is said of a return that rests on names which are not there."""
    said = "\n".join(f"- {firewall.words(each)}" for each in mistyped)
    return f'The value was not returned yet:\n{said}\nCorrect the program, or call "return" again if nil is meant.'


def problem_lines(problems: Sequence[Problem], firewall: Firewall) -> list[str]:
    """Return a line for each problem, for the first of them."""
    told = (one_line(f"{problem.path or 'value'}: {problem.message}") for problem in problems[:_PROBLEMS])
    lines = [firewall.words(f"- {each}") for each in told]
    if len(problems) > _PROBLEMS:
        lines.append(f"- and {len(problems) - _PROBLEMS} more.")
    return lines


def of_nothing(said: str) -> str:
    """Return the boundary reminder: an answer had no program."""
    cause = "Your answer was empty." if not said.strip() else "There was no program in your answer, so nothing ran."
    return (
        f"{cause} Go on with your next step as one program in a fenced block:\n\n"
        '```clojure\n(call "return" …)\n```\n\n'
        'If the mission is fulfilled, call "return" with the result; if it cannot be, call "fail" and say why.'
    )


def turns_left(turn: int, of: int, budget_left: int) -> str:
    """Return the line about the turns still to come."""
    left = min(of - turn, budget_left)
    if left <= 0:
        return ""
    if left == 1:
        return '⚠️ FINAL TURN: your next program has to end the mission with (call "return" …) or (call "fail" …).'
    return f"Turn {turn} of {turn + left} is done, {left} turns are left."


def _kept(names: Sequence[str], firewall: Firewall) -> str:
    if not names:
        return "Nothing of it is kept."
    shown = ", ".join(f"ctx/{HIDDEN if firewall.hides(name) else firewall.words(name)}" for name in names[:12])
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"From now on it is in {shown}{more}."


def _warned(warnings: Iterable[str], firewall: Firewall) -> list[str]:
    told = list(dict.fromkeys(warnings))
    lines = [f"Note: {firewall.words(_sentence(one_line(warning)))}" for warning in told[:_WARNINGS]]
    return [*lines, f"Note: {len(told) - _WARNINGS} more of that kind."] if len(told) > _WARNINGS else lines


def _told(error: LispError) -> str:
    # Lists of problems have lines of their own; what tools and programs say is foreign words in one sentence.
    return error.message if error.reason == "validation_error" else one_line(error.message)


def one_line(text: str) -> str:
    """Return somebody else's words so that they cannot pass for what the system says in lines of its own."""
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return " ".join(short.split())


def _sentence(text: str) -> str:
    """Return ``text`` beginning as a sentence does, unless it begins with a name, and ending as one."""
    if not text:
        return ""
    first = text.split(maxsplit=1)[0]
    start = text[0].upper() + text[1:] if first.isalpha() and first.islower() else text
    return start if start.endswith((".", "!", "?", "…", ":")) else f"{start}."

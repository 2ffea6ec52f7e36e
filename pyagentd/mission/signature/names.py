"""Names of types, and what somebody meant who wrote another one."""

from __future__ import annotations

from typing import cast

from pyagentd.mission.signature.types import NAMES, Name
from pyagentd.spelling import did_you_mean

# Malli's own names for types of ours.
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


def known(name: str) -> Name | None:
    """Return the name of the type that ``name`` (without colon) stands for, or None."""
    return cast(Name, name) if name in NAMES else _SAME.get(name)


def meant(name: str) -> str:
    """Return the sentence that says what to write instead of ``name``."""
    plain = name.lower().rstrip("?")
    mark = "?" if name.endswith("?") else ""
    if found := known(plain):
        return f"Did you mean `:{found}{mark}`?"
    if instead := _MEANT.get(plain):
        code, comma, why = instead.partition(", ")
        return f"Did you mean `{code}`{comma}{why}?"
    if question := did_you_mean(plain, sorted(NAMES), shown=f"`:{{}}{mark}`"):
        return question
    return "Types are " + " ".join(f":{one}" for one in sorted(NAMES))


def closest(name: str, possible: list[str]) -> str:
    """Return the sentence that names the one of ``possible`` that looks like ``name``, or all of them."""
    if question := did_you_mean(name, possible, shown="`:{}`"):
        return question
    return "There are " + " ".join(f":{one}" for one in possible) if possible else "There are none here"

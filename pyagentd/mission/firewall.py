"""The one place that turns values into text for a model (SPEC 004 Data Privacy, Large Data).

Whatever a model reads of a value (data inventory, feedback, template values, error texts, what a child returned) is
made here. A key whose name begins with ``_`` is firewalled at any depth: programs use its value, no text shows it.

Names alone would not do: a program that evaluates ``ctx/_token``, or divides by it, brings the value into a result or
an error message under no name at all. So what is secret is also recognised by value; see ``secrets``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyagentd.lisp.values import Keyword, LispSet, from_key
from pyagentd.mission.options import PromptLimit
from pyagentd.mission.secrets import HIDDEN, LINE_ENDS, Secrets, escaped, is_firewalled

__all__ = ["HIDDEN", "Firewall", "is_firewalled", "model_text", "public"]

_ENTRIES = 30
_DEPTH = 12
_NOTES = 4
_MARGIN = 2_000  # characters beyond what is shown of a string in which a secret at its end is looked for
_PLAIN = re.compile(r"""[^\s()\[\]{}"`;,\\]{1,201}""")
_NAME = 200  # characters of a keyword or key in running text
_TYPE = 2_000  # characters of an inferred type
_TOTAL = 12  # times the limit of one string: the most one value takes in all


def model_text(value: Any, limits: PromptLimit | None = None) -> str:
    """Return ``value`` in Clojure syntax, firewalled keys hidden, cut to ``limits`` with a note for every cut."""
    return Firewall(limits).text(value)


def public(value: Any) -> Any:
    """Return ``value`` as JSON has it, with every firewalled field replaced by a mark."""
    match value:
        case dict():
            return {
                _name(from_key(key)): HIDDEN if is_firewalled(key) else public(item) for key, item in value.items()
            }
        case list() | tuple() | LispSet() | set() | frozenset():
            return [public(item) for item in value]
        case Keyword():
            return value.name
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    return _other(value)


class Firewall:
    """What one mission's model may read of values.

    Args:
        limits: How much of a large value it is shown.
    """

    def __init__(self, limits: PromptLimit | None = None) -> None:
        self.limits = limits or PromptLimit()
        self._secrets = Secrets()

    def learn(self, value: Any) -> None:
        """Take note of data from outside: context and results of tools."""
        self._secrets.learn(value)

    def guard(self, value: Any) -> None:
        """Take note of data that a program made."""
        self._secrets.guard(value)

    def adopt(self, below: Firewall) -> None:
        """Take over the secrets of a mission below: what it failed of may quote them."""
        self._secrets.adopt(below._secrets)

    def hides(self, value: Any) -> bool:
        """Return whether ``value`` is one that stands under a firewalled name and under no public one."""
        return self._secrets.is_secret(value)

    def text(self, value: Any) -> str:
        """Return ``value`` in Clojure syntax, one line and then a line for every kind of cut."""
        text, notes = self.shown(value)
        return "\n".join([text, *notes])

    def shown(self, value: Any, name: str = "") -> tuple[str, tuple[str, ...]]:
        """Return the text and the notes of what was cut, in whole sentences that call the value ``name``."""
        writer = _Writer(self.limits, self)
        return writer.write(value, name), writer.notes()

    def template(self, path: str | Iterable[str], value: Any) -> str:
        """Return what stands for ``{{path}}`` in a prompt: strings whole, since the author put them there."""
        parts = path.split(".") if isinstance(path, str) else path
        if any(is_firewalled(part) for part in parts):
            return HIDDEN
        match value:
            case None:
                return ""
            case str():
                return self.words(value)
            case Keyword():
                return self.words(value.name)
        return self.text(value)

    def words(self, text: str) -> str:
        """Return ``text`` with every secret in it blanked: of error messages, and of strings in values."""
        return self._secrets.blanked(well_formed(text))

    def type_words(self, text: str) -> str:
        """Return the text of a type that was inferred from data, whose keys are names in it."""
        return self._secrets.without_names(self.words(text if len(text) <= _TYPE else f"{text[:_TYPE]}…")).translate(
            LINE_ENDS
        )


def well_formed(text: str) -> str:
    """Return ``text`` as it can be sent: JSON that was cut gives halves of characters, which have no encoding."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def name_text(name: str) -> str:
    """Return a name as it stands in running text: an odd one, which may be anybody's words, quoted, on one line."""
    name = well_formed(name if len(name) <= _NAME else f"{name[:_NAME]}…")
    if _PLAIN.fullmatch(name):
        return name
    quoted = escaped(name).replace("`", "'")
    return f'"{quoted}"'


@dataclass(slots=True)
class _Writer:
    """Writes one value; knows how much room is left and what it cut."""

    limits: PromptLimit
    firewall: Firewall
    cuts: dict[str, str] = field(default_factory=dict)
    room: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        self.room = max(self.limits.string, 200) * _TOTAL

    def notes(self) -> tuple[str, ...]:
        told = [f"Note: {what}." for what in list(self.cuts.values())[:_NOTES]]
        if len(self.cuts) > _NOTES:
            told.append(f"Note: {len(self.cuts) - _NOTES} more places are shown in part.")
        return tuple(told)

    def write(self, value: Any, path: str) -> str:
        if self.room <= 0:
            self.cuts.setdefault("", "the value is too large to be shown in full")
            return "..."
        if self.firewall.hides(value):
            return HIDDEN
        match value:
            case str():
                text = self._string(value, path)
            case dict():
                return self._map(value, path)
            case list() | tuple():
                return self._sequence(list(value), path, "[", "]")
            case LispSet() | set() | frozenset():
                return self._sequence(sorted(value, key=str), path, "#{", "}")
            case _:
                text = self.firewall.words(_atom(value))
        self.room -= len(text)
        return text

    def _string(self, value: str, path: str) -> str:
        most = self.limits.string
        shown = self.firewall.words(value[: most + _MARGIN])
        whole = shown.encode("utf-8", "replace")
        if len(value) <= most + _MARGIN and len(whole) <= most:
            return f'"{escaped(shown)}"'
        start = whole[:most].decode("utf-8", "ignore")
        length = len(value.encode("utf-8", "replace")) if len(value) > most + _MARGIN else len(whole)
        self._cut(path, f"shows the first {most} of {length} bytes")
        return f'"{escaped(start)}..."'

    def _sequence(self, items: list[Any], path: str, opening: str, closing: str) -> str:
        if self.depth >= _DEPTH and items:
            return f"{opening}...{closing}"
        shown = items[: self.limits.list]
        self.depth += 1
        self.room -= 2 + len(shown)
        texts = [self.write(item, f"{path}[]") for item in shown]
        self.depth -= 1
        if len(items) > len(shown):
            texts.append("...")
            self._cut(path, f"shows {len(shown)} of {len(items)} items")
        return opening + " ".join(texts) + closing

    def _map(self, value: dict[Any, Any], path: str) -> str:
        if self.depth >= _DEPTH and value:
            return "{...}"
        self.depth += 1
        texts = [self._entry(from_key(key), item, path) for key, item in list(value.items())[:_ENTRIES]]
        self.depth -= 1
        if len(value) > _ENTRIES:
            texts.append("...")
            self._cut(path, f"shows {_ENTRIES} of {len(value)} keys")
        return "{" + ", ".join(texts) + "}"

    def _entry(self, key: Any, item: Any, path: str) -> str:
        name = self.write(key, path)
        own = HIDDEN if self.firewall.hides(key) else name_text(_name(key))
        below = f"{path}.{own}" if path else own
        return f"{name} {HIDDEN if is_firewalled(key) else self.write(item, below)}"

    def _cut(self, path: str, what: str) -> None:
        place = f"`{path[:80]}`" if path else "the value"
        self.cuts.setdefault(path, f"{self.firewall.words(place)} {what}; programs see all of it")


def _atom(value: Any) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if value.bit_length() < 4096 else f"#<integer of {value.bit_length()} bits>"
        case float():
            return _float(value)
        case Keyword():
            quoted = name_text(value.name)
            return f"(keyword {quoted})" if quoted.startswith('"') else f":{quoted}"
    return _other(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return "##NaN"
    if math.isinf(value):
        return "##Inf" if value > 0 else "##-Inf"
    return repr(value)


def _other(value: Any) -> str:
    return "#<function>" if callable(value) else f"#<{type(value).__name__}>"


def _name(key: Any) -> str:
    match key:
        case Keyword():
            return key.name
        case str():
            return key
    return _atom(key) if not isinstance(key, list | dict | LispSet) else "(a key)"

"""The one place that turns values into text for a model (SPEC 004 Data Privacy, Large Data).

Whatever a model reads of a value (data inventory, feedback, template values, error texts, what a child returned) is
made here. A key whose name begins with ``_`` is firewalled at any depth: programs use its value, no text shows it.

Names alone would not do: a program that evaluates ``ctx/_token``, or divides by it, brings the value into a result or
an error message under no name at all. So a ``Firewall`` also remembers what stood under such names and blanks it
wherever it turns up, unless the same value stands under a public name too. Strings and numbers too short to recognise
(under ``SHORTEST`` characters or digits) are hidden by name only, collections by being the same object.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyagentd.lisp.values import Keyword, LispSet, from_key
from pyagentd.mission.options import PromptLimit

HIDDEN = "[Hidden] [Firewalled]"
SHORTEST = 6

_ENTRIES = 30
_DEPTH = 12
_NOTES = 4
_TOTAL = 12  # times the limit of one string: the most one value takes in all
_PREFIX = 24
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def is_firewalled(key: object) -> bool:
    """Return whether a key of that name is for programs only."""
    name = key.name if isinstance(key, Keyword) else key
    return isinstance(name, str) and name.startswith("_")


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
        self._secret: set[str] = set()
        self._public: set[str] = set()
        # Collections by identity; the values keep them alive, so that no other can get their id.
        self._kept: dict[int, Any] = {}
        self._open: dict[int, Any] = {}

    def learn(self, value: Any) -> None:
        """Take note of what is secret and what is public in data from outside: context and results of tools."""
        self._note(value, trusted=True)

    def guard(self, value: Any) -> None:
        """Take note of what is secret in data that a program made, whose public part may be secrets renamed."""
        self._note(value, trusted=False)

    def adopt(self, below: Firewall) -> None:
        """Take over the secrets of a mission below: what it failed of may quote them."""
        self._secret |= below._secret - below._public

    def _note(self, value: Any, *, trusted: bool) -> None:
        # What was secret before does not become public by coming back from a tool that a program gave it to.
        secret, kept = frozenset(self._secret), frozenset(self._kept)
        for each, hidden in _walked(value):
            if not hidden and not trusted:
                continue
            if isinstance(each, list | dict):
                if hidden:
                    self._kept[id(each)] = each
                elif id(each) not in kept:
                    self._open[id(each)] = each
            elif text := _recognisable(each):
                if hidden:
                    self._secret.add(text)
                elif text not in secret:
                    self._public.add(text)

    def hides(self, value: Any) -> bool:
        """Return whether ``value`` is a collection that stands under a firewalled name and under no public one."""
        return id(value) in self._kept and id(value) not in self._open

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
        for secret in sorted(self._secret - self._public, key=len, reverse=True):
            text = _blanked(text, secret)
        return text


def _blanked(text: str, secret: str) -> str:
    """Return ``text`` without ``secret``, as it is or escaped, whole or cut after its beginning."""
    if secret.lstrip("-").replace(".", "", 1).isdigit():
        return re.sub(rf"(?<![\d.]){re.escape(secret)}(?![\d])", HIDDEN, text) if secret in text else text
    for spelled in {secret, secret.translate(_ESCAPES)}:
        start = 0
        while (at := text.find(spelled[:_PREFIX], start)) >= 0:
            end = at + min(len(spelled), _PREFIX)
            while end < len(text) and end - at < len(spelled) and text[end] == spelled[end - at]:
                end += 1
            text = text[:at] + HIDDEN + text[end:]
            start = at + len(HIDDEN)
    return text


def _walked(value: Any) -> Iterator[tuple[Any, bool]]:
    """Yield everything inside ``value`` that is not empty, and whether it stands below a firewalled key."""
    stack = [(value, False)]
    while stack:
        value, hidden = stack.pop()
        match value:
            case dict() if value:
                yield value, hidden
                stack += [(item, hidden or is_firewalled(key)) for key, item in value.items()]
                stack += [(from_key(key), hidden) for key in value if type(key) is not Keyword]
            case list() if value:
                yield value, hidden
                stack += [(item, hidden) for item in value]
            case tuple() | LispSet() | set() | frozenset():
                stack += [(item, hidden) for item in value]
            case str() | int() | float():
                yield value, hidden


def _recognisable(value: str | float) -> str:
    """Return the text by which a value is known again, or "" if it is too common for that."""
    match value:
        case bool():
            return ""
        case str():
            return value if len(value) >= SHORTEST else ""
        case int():
            known = value.bit_length() < 4096 and abs(value) >= 10 ** (SHORTEST - 1)
            return str(value) if known else ""
    return repr(value) if len(repr(value)) > SHORTEST else ""


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
        value = self.firewall.words(value)
        whole = value.encode("utf-8", "replace")
        if len(whole) <= self.limits.string:
            return f'"{value.translate(_ESCAPES)}"'
        start = whole[: self.limits.string].decode("utf-8", "ignore")
        self._cut(path, f"shows the first {self.limits.string} of {len(whole)} bytes")
        return f'"{start.translate(_ESCAPES)}..."'

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
        below = f"{path}.{_name(key)}" if path else _name(key)
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
            return f":{value.name}"
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

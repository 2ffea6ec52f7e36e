"""What of a mission's data is secret, recognised by value (SPEC 004 Data Privacy).

Data under a name that begins with ``_`` is secret, unless the same value stood in the open, then or before. What was
secret first stays so: coming back from a tool that a program gave it to does not make it public. Strings and numbers
under ``SHORTEST`` characters are too common to be known again; collections are known by being the same object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyagentd.lisp.values import Keyword, LispSet, from_key

SHORTEST = 6
HIDDEN = "[Hidden] [Firewalled]"

_PREFIX = 24  # of a longer secret this much is enough: messages cut values
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})
_HOLDS: frozenset[type] = frozenset({dict, list, tuple, set, frozenset, LispSet})


def is_firewalled(key: object) -> bool:
    """Return whether a key of that name is for programs only."""
    name = key.name if isinstance(key, Keyword) else key
    return isinstance(name, str) and name.startswith("_")


def escaped(text: str) -> str:
    """Return ``text`` as it stands inside a string literal."""
    return text.translate(_ESCAPES)


class Secrets:
    """The secrets of one mission."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        # The collections themselves are kept, so that no other can get the id of one.
        self._collections: dict[int, Any] = {}
        self._seen: list[Any] = []
        self._index: dict[str, list[str]] = {}

    def learn(self, value: Any) -> None:
        """Take note of data from outside: what stands in it in the open is public."""
        self._seen.append(value)
        self._take(value)

    def guard(self, value: Any) -> None:
        """Take note of data that a program made: what stands in it in the open may be a secret renamed."""
        self._take(value)

    def adopt(self, below: Secrets) -> None:
        """Take over the secrets of a mission below: what it failed of may quote them."""
        self._add(below._texts - self._texts)

    def is_secret(self, value: Any) -> bool:
        """Return whether ``value`` is a secret collection."""
        return id(value) in self._collections

    def blanked(self, text: str) -> str:
        """Return ``text`` with every secret in it blanked."""
        if not self._index or len(text) < SHORTEST:
            return text
        parts: list[str] = []
        start = at = 0
        while at <= len(text) - SHORTEST:
            possible = self._index.get(text[at : at + SHORTEST])
            end = _longest(text, at, possible) if possible else 0
            if end:
                parts += (text[start:at], HIDDEN)
                start = at = end
            else:
                at += 1
        return "".join((*parts, text[start:])) if parts else text

    def _take(self, value: Any) -> None:
        texts: set[str] = set()
        collections: dict[int, Any] = {}
        for each in _hidden(value):
            if type(each) in (list, dict):
                collections[id(each)] = each
            elif text := _recognisable(each):
                texts.add(text)
        texts -= self._texts
        for known in self._collections.keys() & collections.keys():
            del collections[known]
        if texts or collections:
            for each in self._in_the_open(texts, collections):
                collections.pop(id(each), None)
                texts.discard(_recognisable(each))
            self._collections |= collections
            self._add(texts)

    def _in_the_open(self, texts: set[str], collections: dict[int, Any]) -> list[Any]:
        return [
            each
            for value in self._seen
            for each in _open(value)
            if (id(each) in collections if type(each) in (list, dict) else _recognisable(each) in texts)
        ]

    def _add(self, texts: set[str]) -> None:
        self._texts |= texts
        for text in texts:
            for spelled in {text, escaped(text)}:
                self._index.setdefault(spelled[:SHORTEST], []).append(spelled)


def _longest(text: str, at: int, possible: list[str]) -> int:
    """Return where the longest of the secrets that begin at ``at`` ends, or 0 when none is there."""
    return max(_end(text, at, secret) for secret in possible)


def _end(text: str, at: int, secret: str) -> int:
    if _is_number(secret):
        end = at + len(secret)
        alone = not text[at - 1 : at].isdigit() and not text[end : end + 1].isdigit()
        return end if alone and text.startswith(secret, at) else 0
    if not text.startswith(secret[:_PREFIX], at):
        return 0
    same = min(len(secret), _PREFIX)
    while same < len(secret) and text[at + same : at + same + 1] == secret[same]:
        same += 1
    return at + same


def _is_number(secret: str) -> bool:
    return secret.lstrip("-").replace(".", "", 1).isdigit()


def _hidden(value: Any) -> Iterator[Any]:
    """Yield everything below a firewalled key."""
    stack = [value]
    while stack:
        each = stack.pop()
        if type(each) is dict:
            for key, item in each.items():
                name = key.name if type(key) is Keyword else key  # as is_firewalled, which is too slow for this
                if type(name) is str and name[:1] == "_":
                    yield from _everything(item)
                elif type(item) in _HOLDS:
                    stack.append(item)
            stack += [from_key(key) for key in each if type(key) in (tuple, LispSet)]
        elif type(each) in _HOLDS:
            stack += [item for item in each if type(item) in _HOLDS]


def _open(value: Any) -> Iterator[Any]:
    """Yield everything that is not below a firewalled key."""
    stack = [value]
    while stack:
        each = stack.pop()
        yield each
        if type(each) is dict:
            stack += [item for key, item in each.items() if not is_firewalled(key)]
        elif type(each) in _HOLDS:
            stack += each


def _everything(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        each = stack.pop()
        if type(each) not in (list, dict) or each:
            yield each
        if type(each) is dict:
            stack += each.values()
            stack += [from_key(key) for key in each]
        elif type(each) in _HOLDS:
            stack += each


def _recognisable(value: Any) -> str:
    """Return the text by which a value is known again, or "" if it is too common for that."""
    if type(value) is str:
        return value if len(value) >= SHORTEST else ""
    if type(value) is int:
        return str(value) if value.bit_length() < 4096 and abs(value) >= 10 ** (SHORTEST - 1) else ""
    if type(value) is float:
        return repr(value) if len(repr(value)) > SHORTEST else ""
    return ""

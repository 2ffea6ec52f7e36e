"""What of a mission's data is secret, recognised by value (SPEC 004 Data Privacy).

Data under a name that begins with ``_`` is secret, unless the same value stood in the open, then or before. What was
secret first stays so: coming back from a tool that a program gave it to does not make it public. Strings and numbers
under ``SHORTEST`` characters are too common to be looked for inside of other text: they are known again as a whole
value or name only, and the very shortest not at all. Collections are known by being the same object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from pyagentd.lisp.values import Keyword, LispSet, from_key

SHORTEST: Final = 6
_WHOLE_TEXT: Final = 2  # characters of the shortest string that is known again where it is a value of its own
_WHOLE_NUMBER: Final = 4  # digits, of numbers: counts and sums that a program makes are rarely as large by chance
HIDDEN = "[Hidden] [Firewalled]"

_A_NAME = re.compile(r'"?([^\s{}\[\]:"]+)"?')
_PREFIX = 24  # of a longer secret this much is enough: messages cut values
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})
LINE_ENDS: Final = {code: f"\\u{code:04x}" for code in (0x0B, 0x0C, 0x85, 0x2028, 0x2029)}
"""What ends a line besides the usual, and how it is written in a string."""
_ESCAPES |= LINE_ENDS
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
        self._known = 0  # how many of them are in the two below
        self._open_texts: set[str] = set()
        self._open_collections: set[int] = set()
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
        """Return whether ``value`` is a secret: a collection, or as a whole a string, number or name."""
        if type(value) in (list, dict):
            return id(value) in self._collections
        return bool(self._texts) and _recognisable(value.name if type(value) is Keyword else value) in self._texts

    def without_names(self, text: str) -> str:
        """Return the text of a type without the names in it that are secrets."""
        return _A_NAME.sub(lambda name: HIDDEN if name[1] in self._texts else name[0], text) if self._texts else text

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
            self._look_at_the_open()
            self._collections |= {key: each for key, each in collections.items() if key not in self._open_collections}
            self._add(texts - self._open_texts)

    def _look_at_the_open(self) -> None:
        """Take note of what stands in the open in data that was not looked at yet, each only once."""
        for value in self._seen[self._known :]:
            for each in _open(value):
                if type(each) in (list, dict):
                    self._open_collections.add(id(each))
                elif text := _recognisable(each):
                    self._open_texts.add(text)
        self._known = len(self._seen)

    def _add(self, texts: set[str]) -> None:
        self._texts |= texts
        for text in texts:
            if len(text) < SHORTEST:
                continue
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
            stack += [key.name if type(key) is Keyword else key for key in map(from_key, each)]
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
            # Short names of fields are those of half of the world's data.
            stack += [key for key in map(from_key, each) if len(_recognisable(key)) >= SHORTEST]
        elif type(each) in _HOLDS:
            stack += each


def _recognisable(value: Any) -> str:
    """Return the text by which a value is known again, or "" if it is too common for that."""
    if type(value) is str:
        return value if len(value) >= _WHOLE_TEXT else ""
    if type(value) is int:
        return str(value) if value.bit_length() < 4096 and abs(value) >= 10 ** (_WHOLE_NUMBER - 1) else ""
    if type(value) is float:
        return repr(value) if len(repr(value)) > _WHOLE_NUMBER else ""
    return ""

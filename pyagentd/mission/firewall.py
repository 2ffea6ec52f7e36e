"""The firewall: turns a mission's values into text for its model, without private values.

All text with values passes through it: data inventory, feedback, values in templates, error messages. A key whose
name begins with ``_`` is firewalled at any depth: programs can use its value, no text contains it.

Names are not enough: a program that evaluates ``ctx/_token``, or divides by it, puts the value into a result or an
error message without its name. So secrets are also recognised by value.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyagentd.lisp.serialization import ESCAPES, number, readable
from pyagentd.lisp.values import Keyword, LispSet, from_key
from pyagentd.mission.options import PromptLimit
from pyagentd.mission.signature import Problem

# Secrets: values under a name that begins with ``_``, unless the same value was seen under a public name by then.
#
# A value that is a secret stays one, even if a tool later returns it under a public name. Strings and numbers shorter
# than ``SHORTEST`` characters are too common to be searched for inside other text: they are recognised only as a
# whole value or name, and the shortest not at all. Collections are recognised by identity.

SHORTEST: Final = 6
_WHOLE_TEXT: Final = 2  # characters of the shortest string that is recognised as a whole value
_WHOLE_NUMBER: Final = 4  # digits of numbers: counts and sums that a program makes are rarely as large by chance
HIDDEN = "[Hidden] [Firewalled]"

_A_NAME = re.compile(r'"?([^\s{}\[\]:"]+)"?')
_PREFIX = 24  # characters by which a longer secret is recognised, since messages shorten values
LINE_ENDS: Final = {code: f"\\u{code:04x}" for code in (0x0B, 0x0C, 0x85, 0x2028, 0x2029)}
"""Unusual characters that end a line, and the escape sequence for each."""
_ESCAPES: Final = ESCAPES | LINE_ENDS
_CONTAINERS: frozenset[type] = frozenset({dict, list, tuple, set, frozenset, LispSet})


def is_firewalled(key: object) -> bool:
    """Return whether a key is firewalled: its name begins with ``_``."""
    name = key.name if isinstance(key, Keyword) else key
    return isinstance(name, str) and name.startswith("_")


def escape(text: str) -> str:
    """Return ``text`` escaped for a string literal."""
    return text.translate(_ESCAPES)


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


def _private_parts(value: Any) -> Iterator[Any]:
    """Yield all values and keys below firewalled keys."""
    stack = [value]
    while stack:
        each = stack.pop()
        if type(each) is dict:
            for key, item in each.items():
                name = key.name if type(key) is Keyword else key  # is_firewalled written out, for speed
                if type(name) is str and name[:1] == "_":
                    yield from _all_parts(item)
                elif type(item) in _CONTAINERS:
                    stack.append(item)
            stack += [from_key(key) for key in each if type(key) in (tuple, LispSet)]
        elif type(each) in _CONTAINERS:
            stack += [item for item in each if type(item) in _CONTAINERS]


def _public_parts(value: Any) -> Iterator[Any]:
    """Yield all values and keys that are not below a firewalled key."""
    stack = [value]
    while stack:
        each = stack.pop()
        yield each
        if type(each) is dict:
            stack += [item for key, item in each.items() if not is_firewalled(key)]
            stack += [key.name if type(key) is Keyword else key for key in map(from_key, each)]
        elif type(each) in _CONTAINERS:
            stack += each


def _all_parts(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        each = stack.pop()
        if type(each) not in (list, dict) or each:
            yield each
        if type(each) is dict:
            stack += each.values()
            # Short field names are too common to be secrets.
            stack += [key for key in map(from_key, each) if len(_secret_text(key)) >= SHORTEST]
        elif type(each) in _CONTAINERS:
            stack += each


def _secret_text(value: Any) -> str:
    """Return the text by which a value is recognised as a secret, or "" if it is too common to be one."""
    if type(value) is str:
        return value if len(value) >= _WHOLE_TEXT else ""
    if type(value) is int:
        return str(value) if value.bit_length() < 4096 and abs(value) >= 10 ** (_WHOLE_NUMBER - 1) else ""
    if type(value) is float:
        return repr(value) if len(repr(value)) > _WHOLE_NUMBER else ""
    return ""


_ENTRIES = 30
_DEPTH = 12
_NOTES = 4
_MARGIN = 2_000  # characters after the shown part of a string that are searched too, for a secret cut by its end
_PLAIN = re.compile(r"""[^\s()\[\]{}"`;,\\]{1,201}""")
_NAME = 200  # characters of a keyword or key in running text
_TYPE = 2_000  # characters of an inferred type
_LONGEST = 2_000  # characters of a message
_PROBLEMS = 10
_TOTAL = 12  # times the limit of one string: the limit of a whole value


def public(value: Any) -> Any:
    """Return ``value`` as plain JSON, every firewalled field replaced by ``HIDDEN``."""
    match value:
        case dict():
            return {json_name(key): HIDDEN if is_firewalled(key) else public(item) for key, item in value.items()}
        case list() | tuple() | LispSet() | set() | frozenset():
            return [public(item) for item in value]
        case Keyword():
            return value.name
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    return _other(value)


def json_name(key: Any) -> str:
    """Return the key of a map as a name in JSON; a collection as its text in a program, without private values."""
    value = from_key(key)
    return readable(_hide_private(value)) if isinstance(value, list | dict | LispSet) else _name(value)


def _hide_private(value: Any) -> Any:
    match value:
        case dict():
            return {key: HIDDEN if is_firewalled(key) else _hide_private(item) for key, item in value.items()}
        case list():
            return [_hide_private(item) for item in value]
        case LispSet():
            return LispSet.of(map(_hide_private, value))
    return value


class Firewall:
    """Turns the values of one mission into text for its model."""

    def __init__(self, limits: PromptLimit | None = None) -> None:
        self.limits = limits or PromptLimit()
        self._texts: set[str] = set()
        # The collections are kept, so that their ids are not reused.
        self._collections: dict[int, Any] = {}
        self._seen: list[Any] = []
        self._searched = 0  # how many of ``_seen`` were searched for public values
        self._open_texts: set[str] = set()
        self._open_collections: set[int] = set()
        self._index: dict[str, list[str]] = {}

    def learn(self, value: Any) -> None:
        """Collect the secrets in data from outside; a value with a public name in such data is public."""
        self._seen.append(value)
        self.learn_from_program(value)

    def learn_from_program(self, value: Any) -> None:
        """Collect the secrets in a program's result; its public names are ignored: programs can rename a secret."""
        texts: set[str] = set()
        collections: dict[int, Any] = {}
        for each in _private_parts(value):
            if type(each) in (list, dict):
                collections[id(each)] = each
            elif text := _secret_text(each):
                texts.add(text)
        texts -= self._texts
        for known in self._collections.keys() & collections.keys():
            del collections[known]
        if texts or collections:
            for seen in self._seen[self._searched :]:
                for each in _public_parts(seen):
                    if type(each) in (list, dict):
                        self._open_collections.add(id(each))
                    elif text := _secret_text(each):
                        self._open_texts.add(text)
            self._searched = len(self._seen)
            self._collections |= {key: each for key, each in collections.items() if key not in self._open_collections}
            self._add(texts - self._open_texts)

    def adopt(self, child: "Firewall") -> None:
        """Add the secrets of a child mission, whose error messages may contain them."""
        self._add(child._texts - self._texts)

    def _add(self, texts: set[str]) -> None:
        self._texts |= texts
        for text in texts:
            if len(text) < SHORTEST:
                continue
            for spelled in {text, escape(text)}:
                self._index.setdefault(spelled[:SHORTEST], []).append(spelled)

    def is_secret(self, value: Any) -> bool:
        """Return whether ``value`` as a whole is a secret."""
        if type(value) in (list, dict):
            return id(value) in self._collections
        return bool(self._texts) and _secret_text(value.name if type(value) is Keyword else value) in self._texts

    def text(self, value: Any) -> str:
        """Return ``value`` in Clojure syntax on one line, followed by a line for each note about a cut."""
        text, notes = self.render(value)
        return "\n".join([text, *notes])

    def render(self, value: Any, name: str = "") -> tuple[str, tuple[str, ...]]:
        """Return the text of ``value``, and notes about cuts: sentences that call the value ``name``."""
        writer = _Writer(self)
        return writer.write(value, name), writer.notes()

    def template(self, path: Iterable[str], value: Any) -> str:
        """Return the text for a placeholder in a prompt; strings are not shortened."""
        if any(map(is_firewalled, path)):
            return HIDDEN
        match value:
            case None:
                return ""
            case str():
                return self.redact(value)
            case Keyword():
                return self.redact(value.name)
        return self.text(value)

    def redact(self, text: str) -> str:
        """Return ``text`` with each secret in it replaced by ``HIDDEN``."""
        text = well_formed(text)
        if not self._index or len(text) < SHORTEST:
            return text
        parts: list[str] = []
        start = at = 0
        while at <= len(text) - SHORTEST:
            possible = self._index.get(text[at : at + SHORTEST])
            # The end of the longest secret that begins here.
            if end := max(_end(text, at, secret) for secret in possible) if possible else 0:
                parts += (text[start:at], HIDDEN)
                start = at = end
            else:
                at += 1
        return "".join((*parts, text[start:])) if parts else text

    def problem_lines(self, problems: Sequence[Problem]) -> list[str]:
        """Return a line for each of the first problems."""
        texts = (one_line(f"{problem.path or 'value'}: {problem.message}") for problem in problems[:_PROBLEMS])
        lines = [self.redact(f"- {each}") for each in texts]
        if len(problems) > _PROBLEMS:
            lines.append(f"- and {len(problems) - _PROBLEMS} more.")
        return lines

    def redact_type(self, text: str) -> str:
        """Return the text of an inferred type, whose field names are keys of the data, with secrets hidden."""
        short = self.redact(text if len(text) <= _TYPE else f"{text[:_TYPE]}…")
        if self._texts:
            short = _A_NAME.sub(lambda name: HIDDEN if name[1] in self._texts else name[0], short)
        return short.translate(LINE_ENDS)


def well_formed(text: str) -> str:
    """Return ``text`` without lone surrogates, which cannot be encoded; truncated JSON contains them."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_line(text: str) -> str:
    """Return foreign text on one line, so that it cannot imitate lines of the feedback."""
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return " ".join(short.split())


def name_text(name: str) -> str:
    """Return a name for use inside a sentence; one with unusual characters is quoted and on one line."""
    name = well_formed(name if len(name) <= _NAME else f"{name[:_NAME]}…")
    if _PLAIN.fullmatch(name):
        return name
    quoted = escape(name).replace("`", "'")
    return f'"{quoted}"'


@dataclass(slots=True)
class _Writer:
    """Writes one value within the limits and notes each cut."""

    firewall: Firewall
    cuts: dict[str, str] = field(default_factory=dict)
    room: int = field(init=False)
    depth: int = 0

    def __post_init__(self) -> None:
        self.room = max(self.firewall.limits.string, 200) * _TOTAL

    def notes(self) -> tuple[str, ...]:
        notes = [f"Note: {what}." for what in list(self.cuts.values())[:_NOTES]]
        if len(self.cuts) > _NOTES:
            notes.append(f"Note: {len(self.cuts) - _NOTES} more places are shown in part.")
        return tuple(notes)

    def write(self, value: Any, path: str) -> str:
        if self.room <= 0:
            self.cuts.setdefault("", "the value is too large to be shown in full")
            return "..."
        if self.firewall.is_secret(value):
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
                text = self.firewall.redact(_atom(value))
        self.room -= len(text)
        return text

    def _string(self, value: str, path: str) -> str:
        most = self.firewall.limits.string
        shown = self.firewall.redact(value[: most + _MARGIN])
        whole = shown.encode("utf-8", "replace")
        if len(value) <= most + _MARGIN and len(whole) <= most:
            return f'"{escape(shown)}"'
        start = whole[:most].decode("utf-8", "ignore")
        length = len(value.encode("utf-8", "replace")) if len(value) > most + _MARGIN else len(whole)
        self._note_cut(path, f"shows the first {most} of {length} bytes")
        return f'"{escape(start)}..."'

    def _sequence(self, items: list[Any], path: str, opening: str, closing: str) -> str:
        if self.depth >= _DEPTH and items:
            return f"{opening}...{closing}"
        shown = items[: self.firewall.limits.list]
        self.depth += 1
        self.room -= 2 + len(shown)
        texts = [self.write(item, f"{path}[]") for item in shown]
        self.depth -= 1
        if len(items) > len(shown):
            texts.append("...")
            self._note_cut(path, f"shows {len(shown)} of {len(items)} items")
        return opening + " ".join(texts) + closing

    def _map(self, value: dict[Any, Any], path: str) -> str:
        if self.depth >= _DEPTH and value:
            return "{...}"
        self.depth += 1
        texts = [self._entry(from_key(key), item, path) for key, item in list(value.items())[:_ENTRIES]]
        self.depth -= 1
        if len(value) > _ENTRIES:
            texts.append("...")
            self._note_cut(path, f"shows {_ENTRIES} of {len(value)} keys")
        return "{" + ", ".join(texts) + "}"

    def _entry(self, key: Any, item: Any, path: str) -> str:
        name = self.write(key, path)
        own = HIDDEN if self.firewall.is_secret(key) else name_text(_name(key))
        below = f"{path}.{own}" if path else own
        return f"{name} {HIDDEN if is_firewalled(key) else self.write(item, below)}"

    def _note_cut(self, path: str, what: str) -> None:
        place = f"`{path[:80]}`" if path else "the value"
        self.cuts.setdefault(path, f"{self.firewall.redact(place)} {what}; programs see all of it")


def _atom(value: Any) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if value.bit_length() < 4096 else f"#<integer of {value.bit_length()} bits>"
        case float():
            return number(value)
        case Keyword():
            quoted = name_text(value.name)
            return f"(keyword {quoted})" if quoted.startswith('"') else f":{quoted}"
    return _other(value)


def _other(value: Any) -> str:
    return "#<function>" if callable(value) else f"#<{type(value).__name__}>"


def _name(key: Any) -> str:
    match key:
        case Keyword():
            return key.name
        case str():
            return key
    return _atom(key) if not isinstance(key, list | dict | LispSet) else "(a key)"

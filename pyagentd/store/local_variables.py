"""The Local Variables block at the end of a session document.

Knows how Emacs writes the block (every line between the same prefix and suffix) and which variables in it are ours:
model, backend, tools, temperature and the role bounds, all of which gptel declares safe (DD-2). Any other line is
kept as it was, except the system message, which a session file never carries (SPEC 001 System message isolation).

Emacs itself looks for the block only in the last 3000 characters; we search the whole file, so nothing is lost in
long conversations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyagentd.store.elisp_data import NIL, LispError, Symbol, print_string, print_symbol, read

BOUNDS = "gptel--bounds"
_SYSTEM_MESSAGE = ("gptel-system-prompt", "gptel--system-message")
_OPENING = "Local Variables:"
_TRIES = 8
_ENTRY = re.compile(r"\s*([^\s:][^\s]*?):[ \t]*(.*?)\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the block says beside the bounds; None where it says nothing."""

    model: str | None = None
    backend: str | None = None
    tools: tuple[str, ...] | None = None
    temperature: float | None = None
    other: tuple[tuple[str, str], ...] = field(default=())  # further variables: name, value as printed


@dataclass(frozen=True, slots=True)
class Block:
    """A block found in a file."""

    start: int  # offset of its first line
    settings: Settings
    bounds: str | None  # the printed bounds, None when the line is absent


def find_block(text: str) -> Block | None:
    """Return the block that ends ``text``, or None.

    A file in which an Emacs without sight of the first block added a second one, with empty bounds, is read as
    if it had only the first block, overridden by the settings of the second.
    """
    block = _last_block(text, len(text))
    if block is None or block.bounds != "nil":
        return block
    earlier = _last_block(text, block.start)
    if earlier is None or earlier.bounds in (None, "nil"):
        return block
    return Block(earlier.start, block.settings, earlier.bounds)


def format_block(settings: Settings, bounds: str | None) -> str:
    """Return the block's text with its final newline, or "" when there is nothing to say."""
    lines = [*_entries(settings), *([(BOUNDS, bounds)] if bounds is not None else [])]
    return print_block(lines) if lines else ""


def print_block(entries: Iterable[tuple[str, str]]) -> str:
    """Return a block of exactly these variables, which may be none."""
    lines = [_OPENING, *(f"{name}: {value}" for name, value in entries), "End:"]
    return "".join(f"<!-- {line} -->\n" for line in lines)


def _last_block(text: str, end: int) -> Block | None:
    """Return the block whose ``End:`` line is the last line before ``end`` that is not blank."""
    stop = len(text[:end].rstrip())
    if "End:" not in text[text.rfind("\n", 0, stop) + 1 : stop]:
        return None
    opening = stop
    for _ in range(_TRIES):  # the words may also stand in a value of the block
        opening = text.rfind(_OPENING, 0, opening)
        if opening < 0:
            return None
        start = text.rfind("\n", 0, opening) + 1
        entries = _read_lines(text[start:stop].split("\n"))
        if entries is not None:
            return Block(start, _settings(entries), entries.get(BOUNDS))
    return None


def _read_lines(lines: list[str]) -> dict[str, str] | None:
    """Return the variables of a block with their printed values, None when the lines are no block."""
    prefix, _, suffix = (affix.strip() for affix in lines[0].partition(_OPENING))
    entries: dict[str, str] = {}
    for line in lines[1:-1]:
        entry = _entry(line, prefix, suffix)
        if entry is None:
            return None
        entries[entry[0]] = entry[1]
    return entries if _strip(lines[-1], prefix, suffix) == "End:" else None


def _strip(line: str, prefix: str, suffix: str) -> str | None:
    line = line.strip()
    if len(line) < len(prefix) + len(suffix) or not (line.startswith(prefix) and line.endswith(suffix)):
        return None
    return line[len(prefix) : len(line) - len(suffix)].strip()


def _entry(line: str, prefix: str, suffix: str) -> tuple[str, str] | None:
    content = _strip(line, prefix, suffix)
    match = _ENTRY.match(content) if content else None
    return (match[1], match[2]) if match else None


def _entries(settings: Settings) -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    if settings.model is not None:
        entries.append(("gptel-model", print_symbol(settings.model)))
    if settings.backend is not None:
        entries.append(("gptel--backend-name", _one_line(settings.backend)))
    if settings.tools is not None:
        names = " ".join(map(_one_line, settings.tools))
        entries.append(("gptel--tool-names", f"({names})" if names else "nil"))
    if settings.temperature is not None:
        entries.append(("gptel-temperature", repr(settings.temperature)))
    return [*entries, *settings.other]


def _one_line(text: str) -> str:
    return print_string(text).replace("\n", "\\n")


def _settings(entries: dict[str, str]) -> Settings:
    known: dict[str, Any] = {}
    other: list[tuple[str, str]] = []
    for name, raw in entries.items():
        if name == BOUNDS or name in _SYSTEM_MESSAGE:
            continue
        reader = _READERS.get(name)
        try:
            if reader is None:
                raise LispError(name)
            known[reader[0]] = reader[1](read(raw)[0])
        except LispError:
            other.append((name, raw))
    return Settings(**known, other=tuple(other))


def _name(datum: Any) -> str | None:
    if datum == NIL:
        return None
    if not isinstance(datum, str):
        raise LispError("not a name")
    return str(datum)


def _names(datum: Any) -> tuple[str, ...]:
    if datum == NIL:
        return ()
    if not isinstance(datum, list) or not all(isinstance(item, str) for item in datum):
        raise LispError("not a list of names")
    return tuple(str(item) for item in datum)


def _number(datum: Any) -> float | None:
    if isinstance(datum, Symbol) and datum == NIL:
        return None
    if not isinstance(datum, int | float):
        raise LispError("not a number")
    return datum


_READERS = {
    "gptel-model": ("model", _name),
    "gptel--backend-name": ("backend", _name),
    "gptel--tool-names": ("tools", _names),
    "gptel-temperature": ("temperature", _number),
}

"""The Local Variables block at the end of a session document.

Knows how Emacs writes the block (every line between the same prefix and suffix) and which variables in it are ours:
model, backend, tools, temperature, maximum tokens and the role bounds, all of which gptel declares safe (DD-2). Any
other line is kept as it was, except the system message, which a session file never carries (SPEC 001 System message
isolation).

Emacs itself looks for the block only in the last 3000 characters; we search the whole file, so nothing is lost in
long conversations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyagentd.wire.sexp import NIL, ElispSymbol, LispError, print_string, print_symbol, read

BOUNDS = "gptel--bounds"
_SYSTEM_MESSAGE = ("gptel-system-prompt", "gptel--system-message")
OPENING = "Local Variables:"
_TRIES = 8
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_ENTRY = re.compile(r"\s*([^\s:][^\s]*?):[ \t]*(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the block says beside the bounds; None where it says nothing."""

    model: str | None = None
    backend: str | None = None
    tools: tuple[str, ...] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    other: tuple[tuple[str, str], ...] = field(default=())  # further variables: name, value as printed


@dataclass(frozen=True, slots=True)
class Block:
    """A block found in a text.

    Attributes:
        start: Offset of its first line.
        end: Offset behind its last line, without the newline.
        settings: What it says.
        bounds: The printed bounds; of several blocks in a row those of the last come first. None where a line is
            absent, which means that nothing had a role when the block was written.
        whole: Whether all of it is there and it ends the text, as an editor leaves it.
        torn: Whether it ends the text, but lost some of its lines; one that is neither whole nor torn has text below.
        guarded: Whether an empty block stands before it: what looks like a block above is a quotation.
    """

    start: int
    end: int
    settings: Settings
    bounds: tuple[str | None, ...]
    whole: bool = True
    guarded: bool = False
    torn: bool = False


class Stray(NamedTuple):
    """A whole block of gptel's that stands in the text: its range, and its variables as printed."""

    start: int
    end: int
    entries: Mapping[str, str]


def find_block(text: str) -> Block | None:
    """Return the block of ``text``, or None.

    An Emacs without sight of a block writes another one behind it: blocks in a row are read as one, the later
    settings count. A block that was cut off, or below which somebody wrote, is found too, but it is not ``whole``.
    """
    last = _last_block(text, len(text))
    if last is None:
        return _torn_block(text) or _passed_block(text)
    start, entries = last
    bounds = [entries.get(BOUNDS)]
    while entries and (earlier := _last_block(text, start)) is not None:
        if earlier[1] and not _is_ours(earlier[1]):
            break  # a text that ends like a block
        start, entries = earlier[0], {**earlier[1], **entries} if earlier[1] else {}
        bounds += [earlier[1].get(BOUNDS)] if earlier[1] else []
        last = start, {**earlier[1], **last[1]}
    return Block(start, len(text), _settings(last[1]), tuple(bounds), guarded=not entries)


def find_strays(text: str) -> Iterator[Stray]:
    """Yield the whole blocks of gptel's in ``text``, the first one first, wherever they stand."""
    opening = text.find(OPENING)
    while opening >= 0:
        start = text.rfind("\n", 0, opening) + 1
        end = _block_end(text, start)
        entries = _read_lines(text[start:end].split("\n"))
        found = entries is not None and _is_ours(entries)
        if entries is not None and found:
            yield Stray(start, end, entries)
        opening = text.find(OPENING, end if found else opening + 1)


def is_fenced(text: str, start: int) -> bool:
    """Return whether a code block of Markdown is open at the end of ``text`` from ``start`` on."""
    return len(_FENCE.findall(text, start)) % 2 == 1


def format_block(settings: Settings, bounds: str | None) -> str:
    """Return the block's text with its final newline, or "" when there is nothing to say."""
    lines = [*_entries(settings), *([(BOUNDS, bounds)] if bounds is not None else [])]
    return print_block(lines) if lines else ""


def print_block(entries: Iterable[tuple[str, str]]) -> str:
    """Return a block of exactly these variables, which may be none."""
    lines = [OPENING, *(f"{name}: {value}" for name, value in entries), "End:"]
    return "".join(f"<!-- {line} -->\n" for line in lines)


def _last_block(text: str, end: int) -> tuple[int, dict[str, str]] | None:
    """Return start and variables of the block that ends before ``end``, with nothing but blanks between."""
    stop = _rstripped(text, end)
    if "End:" not in text[text.rfind("\n", 0, stop) + 1 : stop]:
        return None
    for start in _openings(text, stop):
        entries = _read_lines(text[start:stop].split("\n"))
        if entries is not None:
            return start, entries
    return None


def _torn_block(text: str) -> Block | None:
    """Return the block that ends the text but lost some of its lines, or parts of lines."""
    stop = _rstripped(text, len(text))
    for start in _openings(text, stop):
        lines = text[start:stop].split("\n")
        prefix, _, suffix = (affix.strip() for affix in lines[0].partition(OPENING))
        read = [_entry(line, prefix, suffix) or _cut_entry(line, prefix) for line in lines[1:]]
        entries = dict(filter(None, read))
        readable = sum(1 for entry in read if entry is not None)
        if _is_ours(entries) and all(line.startswith(prefix) for line in lines) and 2 * readable >= len(read):
            bounds = entries.get(BOUNDS)
            return Block(start, stop, _settings(entries), (bounds or "nil",), whole=False, torn=True)
    return None


def _passed_block(text: str) -> Block | None:
    """Return the last block, if somebody wrote below it; only one with roles for the text above it is believed."""
    for start in _openings(text, len(text)):
        end = _block_end(text, start)
        entries = _read_lines(text[start:end].split("\n"))
        if entries is not None and entries.get(BOUNDS, "nil") != "nil" and not is_fenced(text[:start], 0):
            return Block(start, end, _settings(entries), (entries[BOUNDS],), whole=False)
    return None


def _block_end(text: str, start: int) -> int:
    """Return where the line ends that ends the block whose first line begins at ``start``, or that is none of its."""
    end = _line_end(text, start)
    prefix, _, suffix = (affix.strip() for affix in text[start:end].partition(OPENING))
    while end < len(text) and _strip(text[end + 1 : _line_end(text, end + 1)], prefix, suffix) not in (None, "End:"):
        end = _line_end(text, end + 1)
    return _line_end(text, end + 1)


def _openings(text: str, stop: int) -> Iterator[int]:
    """Yield the starts of lines that may open a block, the last one first: the words may also stand in a value."""
    opening = stop
    for _ in range(_TRIES):
        opening = text.rfind(OPENING, 0, opening)
        if opening < 0:
            return
        yield text.rfind("\n", 0, opening) + 1


def _rstripped(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", min(position, len(text)))
    return len(text) if end < 0 else end


def _is_ours(entries: Mapping[str, str]) -> bool:
    return any(name.startswith("gptel") for name in entries)


def _cut_entry(line: str, prefix: str) -> tuple[str, str] | None:
    """Return what a line without its end says."""
    match = _ENTRY.match(line.strip().removeprefix(prefix))
    return (match[1], match[2].rstrip()) if match and match[1].startswith("gptel") else None


def _read_lines(lines: list[str]) -> dict[str, str] | None:
    """Return the variables of a block with their printed values, None when the lines are no block."""
    prefix, _, suffix = (affix.strip() for affix in lines[0].partition(OPENING))
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
    return (match[1], match[2].rstrip()) if match else None


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
    if settings.max_tokens is not None:
        entries.append(("gptel-max-tokens", str(settings.max_tokens)))
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
    if isinstance(datum, ElispSymbol) and datum == NIL:
        return None
    if not isinstance(datum, int | float):
        raise LispError("not a number")
    return datum


def _count(datum: Any) -> int | None:
    if isinstance(datum, ElispSymbol) and datum == NIL:
        return None
    if not isinstance(datum, int) or isinstance(datum, bool) or datum < 1:
        raise LispError("not a whole number above 0")
    return datum


_READERS = {
    "gptel-model": ("model", _name),
    "gptel--backend-name": ("backend", _name),
    "gptel--tool-names": ("tools", _names),
    "gptel-temperature": ("temperature", _number),
    "gptel-max-tokens": ("max_tokens", _count),
}

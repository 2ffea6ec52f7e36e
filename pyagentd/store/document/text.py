"""The session document: body text, role spans, settings; and the file that holds them.

This module knows gptel's Markdown format (bounds version 2, and 1 when reading) and nothing about the log. Offsets
are code points from 0, half-open; in the file they are Emacs positions (from 1). The body is everything before the
Local Variables block; hashes and byte identity concern only the body. ``parse(format_file(d)) == d`` for every
document with sound spans.
"""

import hashlib
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.reader import MOST_TOKENS
from pyagentd.store import atomic
from pyagentd.wire.sexp import SexpError, Symbol, print_lisp, read_call
from pyagentd.wire.sexp import read as read_

# The Local Variables block at the end of a session document.
#
# Emacs writes every line of the block between the same prefix and suffix. Our variables are model, backend, tools,
# temperature, maximum tokens and the role bounds, all of which gptel declares safe. Other lines are kept unchanged,
# except the system message, which a session file never contains.
#
# Emacs itself looks for the block only in the last 3000 characters; we search the whole file, so nothing is lost in
# long conversations.

BOUNDS = "gptel--bounds"
_SYSTEM_MESSAGE = ("gptel-system-prompt", "gptel--system-message")
OPENING = "Local Variables:"
_END = ("End", "")  # the last line, read as an entry
_TRIES = 8
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_ENTRY = re.compile(r"\s*([^\s:][^\s]*?):[ \t]*(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a block beside the bounds; None for a missing one."""

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
        start: The offset of its first line.
        end: The offset behind its last line, without the newline.
        settings: Its settings.
        bounds: The printed bounds; of several adjacent blocks those of the last come first. None if the line is
            missing, which means that nothing had a role when the block was written.
        whole: Whether it is complete and ends the text, as an editor leaves it.
        torn: Whether it ends the text, but lost some of its lines; one that is neither whole nor torn has text below.
        guarded: Whether an empty block precedes it: then anything above that looks like a block is a quotation.
    """

    start: int
    end: int
    settings: Settings
    bounds: tuple[str | None, ...]
    whole: bool = True
    guarded: bool = False
    torn: bool = False


class Stray(NamedTuple):
    """A complete block of gptel inside the text: its range, and its variables as printed."""

    start: int
    end: int
    entries: Mapping[str, str]


def find_block(text: str) -> Block | None:
    """Return the block of ``text``, or None.

    An Emacs that does not see a block writes another one behind it: adjacent blocks are read as one, and later
    settings count. A block that was cut off, or that has text below it, is found, too, but is not ``whole``.
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
    """Yield the complete blocks of gptel anywhere in ``text``, in order."""
    opening = text.find(OPENING)
    while opening >= 0:
        start = text.rfind("\n", 0, opening) + 1
        end = _block_end(text, start)
        entries = _read_lines(text[start:end].split("\n"))
        found = entries is not None and _is_ours(entries)
        if entries is not None and found:
            yield Stray(start, end, entries)
        opening = text.find(OPENING, end if found else _line_end(text, opening))


def format_block(settings: Settings, bounds: str | None) -> str:
    """Return the block's text with its final newline, "" if it would be empty."""
    lines = [*_entries(settings), *([(BOUNDS, bounds)] if bounds is not None else [])]
    return print_block(lines) if lines else ""


def print_block(entries: Iterable[tuple[str, str]]) -> str:
    """Return a block of exactly these variables, which may be none."""
    lines = [OPENING, *(f"{name}: {value}" for name, value in entries), "End:"]
    return "".join(f"<!-- {line} -->\n" for line in lines)


def _last_block(text: str, end: int) -> tuple[int, dict[str, str]] | None:
    """Return start and variables of the block that ends before ``end``, with only blanks between."""
    stop = _end_without_blanks(text, end)
    if "End:" not in text[text.rfind("\n", 0, stop) + 1 : stop]:
        return None
    for start in _openings(text, stop):
        entries = _read_lines(text[start:stop].split("\n"))
        if entries is not None:
            return start, entries
    return None


def _torn_block(text: str) -> Block | None:
    """Return the block that ends the text but lost some of its lines, or parts of lines."""
    stop = _end_without_blanks(text, len(text))
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
    """Return the last block if there is text below it; it counts only if it has roles for the text above it."""
    for start in _openings(text, len(text)):
        end = _block_end(text, start)
        entries = _read_lines(text[start:end].split("\n"))
        is_quoted = len(_FENCE.findall(text, 0, start)) % 2 == 1
        if entries is not None and entries.get(BOUNDS, "nil") != "nil" and not is_quoted:
            return Block(start, end, _settings(entries), (entries[BOUNDS],), whole=False)
    return None


def _block_end(text: str, start: int) -> int:
    """Return the end of the last line of the block that begins at ``start``, or of the line that breaks it."""
    end = _line_end(text, start)
    prefix, _, suffix = (affix.strip() for affix in text[start:end].partition(OPENING))
    while end < len(text) and _entry(text[end + 1 : _line_end(text, end + 1)], prefix, suffix) not in (None, _END):
        end = _line_end(text, end + 1)
    return _line_end(text, end + 1)


def _openings(text: str, stop: int) -> Iterator[int]:
    """Yield the starts of lines that may open a block, last first; a value may contain the same words."""
    opening = stop
    for _ in range(_TRIES):
        opening = text.rfind(OPENING, 0, opening)
        if opening < 0:
            return
        yield text.rfind("\n", 0, opening) + 1


def _end_without_blanks(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", min(position, len(text)))
    return len(text) if end < 0 else end


def _is_ours(entries: Mapping[str, str]) -> bool:
    return any(name.startswith("gptel") for name in entries)


def _cut_entry(line: str, prefix: str) -> tuple[str, str] | None:
    """Return the variable and value in a truncated line."""
    match = _ENTRY.match(line.strip().removeprefix(prefix))
    return (match[1], match[2].rstrip()) if match and match[1].startswith("gptel") else None


def _read_lines(lines: list[str]) -> dict[str, str] | None:
    """Return the variables of a block with their printed values, None if the lines are no block."""
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
        entries.append(("gptel-model", print_lisp(Symbol(settings.model))))
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
    return print_lisp(text).replace("\n", "\\n")


def _settings(entries: dict[str, str]) -> Settings:
    known: dict[str, Any] = {}
    other: list[tuple[str, str]] = []
    for name, raw in entries.items():
        if name == BOUNDS or name in _SYSTEM_MESSAGE:
            continue
        try:
            if name not in _READERS:
                raise SexpError(name)
            field, reader = _READERS[name]
            datum = read_(raw)[0]
            known[field] = reader(datum) if datum is not None else () if reader is _names else None
        except SexpError:
            other.append((name, raw))
    return Settings(**known, other=tuple(other))


def _name(datum: Any) -> str:
    if not isinstance(datum, str):
        raise SexpError("not a name")
    return str(datum)


def _names(datum: Any) -> tuple[str, ...]:
    if not isinstance(datum, list):
        raise SexpError("not a list of names")
    return tuple(map(_name, datum))


def _number(datum: Any) -> float:
    if not isinstance(datum, int | float) or isinstance(datum, bool):
        raise SexpError("not a number")
    return datum


def _count(datum: Any) -> int:
    if not isinstance(datum, int) or isinstance(datum, bool) or not 1 <= datum <= MOST_TOKENS:
        raise SexpError("not a number of tokens")
    return datum


_READERS: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    "gptel-model": ("model", _name),
    "gptel--backend-name": ("backend", _name),
    "gptel--tool-names": ("tools", _names),
    "gptel-temperature": ("temperature", _number),
    "gptel-max-tokens": ("max_tokens", _count),
}

PROMPT_PREFIX = "### "
BLANK = " \t\r\n"  # what gptel trims
_BYTE_ORDER_MARK = "\ufeff"  # of an editor of Windows

Kind = Literal["response", "ignore", "tool"]
_KINDS: tuple[Kind, ...] = ("tool", "ignore", "response")

_SECTION = re.compile(r'\((response|ignore|tool)((?: ?\(\d+ \d+(?: (?:nil|"(?:[^"\\]|\\.)*"))?\))+)\)')
_BOUND = re.compile(r'\((\d+) (\d+)(?: (?:nil|"((?:[^"\\]|\\.)*)"))?\)')
_BOUND_V1 = re.compile(r"\((\d+) \. (\d+)\)")


class Span(NamedTuple):
    """A range of the body with a role; ``id`` is the call's id in tool spans, else ""."""

    start: int
    end: int
    kind: Kind
    id: str = ""


class Region(NamedTuple):
    """A maximal range of the body with one role; ``kind`` None is text of the user (or a separator)."""

    start: int
    end: int
    kind: Kind | None
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A session document.

    ``spans`` are sorted, inside the body and disjoint, and no two adjacent ones are equal. ``stale`` means that spans
    were lost: bounds overlapped or were out of range, or the block was damaged. ``block`` is the range of a damaged
    block in the body, if it could not be removed from the text; ``damage`` describes what was wrong with the file.
    """

    body: str = ""
    spans: tuple[Span, ...] = ()
    settings: Settings = field(default_factory=Settings)
    stale: bool = False
    block: tuple[int, int] | None = None
    damage: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Roles in printed form; the last one is separate, because it may grow.

    Attributes:
        spans: All spans but the last.
        sections: These spans, printed, by kind.
        last: The last span, or None.
        exact: Whether reading gives the same spans; some ids are printed differently.
    """

    spans: tuple[Span, ...]
    sections: Mapping[Kind, list[str]]
    last: Span | None
    exact: bool

    def text(self) -> str:
        """Return them as one datum."""
        printed = dict(self.sections)
        if self.last is not None:
            printed[self.last.kind] = [*printed[self.last.kind], _print_bound(*self.last)]
        return "(" + " ".join(f"({kind} {' '.join(bounds)})" for kind, bounds in printed.items() if bounds) + ")"


def parse(file_text: str) -> Document:
    """Return the document in the text of a session file."""
    text = file_text.removeprefix(_BYTE_ORDER_MARK)  # no bounds count the mark: Emacs hides it
    # Emacs decodes a file as CRLF only when every line ends so; a lone CR LF inside a tool's output is text.
    if (crlf := text.count("\r\n")) and crlf == text.count("\n"):
        text = text.replace("\r\n", "\n")
    block = find_block(text)
    if block is None:
        return Document(body=text, damage=tuple(_describe_damage(file_text, text, None, stale=False)))
    body = text
    if block.whole:
        body = text[: block.start]
        body = body[:-2] if body.endswith("\n\n") else body.removesuffix("\n")
    roles, stale = _read_roles(block, min(len(body), block.start))
    if block.torn:
        roles = sorted([*roles, Span(block.start, block.end, "ignore")])
    spans = list(merge_spans(roles))
    found = strays(body, spans, block)
    body, spans = _without_strays(body, spans, found)
    return Document(
        body=body,
        spans=merge_spans(spans),
        settings=block.settings,
        stale=stale or not block.whole,
        block=(block.start, block.end) if block.torn else None,
        damage=tuple(_describe_damage(file_text, text, block, healed=bool(found), stale=stale)),
    )


def strays(body: str, spans: Sequence[Span], block: Block | None) -> list[Stray]:
    """Return the stray blocks in a body, which programs wrote, in order.

    gptel's own save hook, and an Emacs that does not see our block, write another one; merges and other editors leave
    one behind. A block with a role, or in a code block, is a quotation.

    Args:
        body: The text.
        spans: Its roles.
        block: The document's own block, or None. If it is guarded, a person may have typed the text above: then a
            block is removed only if it has the same roles for this text as our own.
    """
    if OPENING not in body:
        return []
    found = []
    fences = [fence.start() for fence in _FENCE.finditer(body)]
    for stray in find_strays(body):
        index = bisect_right(spans, stray.start, key=lambda span: span.start)
        edge = 0
        if index:
            start, end, kind, _ = spans[index - 1]
            if end > stray.start and (kind, start) != ("ignore", stray.start):
                continue
            edge = min(end, stray.start)
        if (bisect_left(fences, stray.start) - bisect_left(fences, edge)) % 2:
            continue
        if block is None or not block.guarded or _is_repetition(stray, spans, block.settings):
            found.append(stray)
    return found


def _is_repetition(stray: Stray, spans: Sequence[Span], settings: Settings) -> bool:
    """Return whether a block has the known roles for the text before it."""
    bounds = {span[:2] for span in _read_bounds(stray.entries.get(BOUNDS, ""))}
    if bounds:
        return bounds <= {span[:2] for span in spans}
    return settings.model is not None and stray.entries.get("gptel-model") == print_lisp(Symbol(settings.model))


def _without_strays(body: str, spans: Sequence[Span], found: Iterable[Stray]) -> tuple[str, list[Span]]:
    """Return body and spans without the lines of these blocks and the newlines around them."""
    cuts: list[tuple[int, int]] = []  # the last one first
    for start, end, _ in reversed(list(found)):
        stop = _newlines_end(body, end)
        while cuts and stop >= cuts[-1][0]:
            stop = _newlines_end(body, cuts.pop()[1])
        if stop == len(body):
            start -= 2 if body.endswith("\n\n", 0, start) else body.endswith("\n", 0, start)
        cuts.append((start, stop))
    cuts.reverse()
    starts, stops = [start for start, _ in cuts], [stop for _, stop in cuts]
    gone = list(accumulate((stop - start for start, stop in cuts), initial=0))

    def moved(position: int) -> int:
        before = bisect_left(starts, position)
        return max(position, stops[before - 1]) - gone[before] if before else position

    kept = (body[stop:start] for stop, start in zip([0, *stops], [*starts, len(body)], strict=True))
    return "".join(kept), [span._replace(start=moved(span.start), end=moved(span.end)) for span in spans]


def _newlines_end(text: str, position: int) -> int:
    while text.startswith("\n", position):
        position += 1
    return position


def format_file(document: Document) -> str:
    """Return the text of the session file for ``document``: body, blank line, block."""
    opens = OPENING in document.body
    return document.body + format_end(document, print_bounds(document.spans), opens=opens)


def format_end(document: Document, bounds: Bounds, *, opens: bool) -> str:
    """Return the text after the body in the file; ``opens``: the body contains the words that open a block."""
    block = format_block(document.settings, bounds.text() if document.spans else None)
    if opens and (find_block(document.body) is not None or strays(document.body, document.spans, None)):
        # Else what stands in the body would be taken for the block, or for an older one.
        block = print_block(()) + ("\n" + block if block else "")
    return f"\n\n{block}" if block else ""


def read(path: Path) -> Document:
    """Return the document in the file at ``path``; a missing file is an empty document.

    Raises:
        StoreError: The file cannot be read.
    """
    return parse(content(path))


def content(path: Path) -> str:
    """Return the whole text of the file at ``path``, "" if it is missing; see ``read``."""
    try:
        return regularfile.read_bytes(path, limit=regularfile.DOCUMENT).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def write(path: Path, document: Document) -> None:
    """Write ``document`` to the file at ``path``; raises ``StoreError``."""
    atomic.write_bytes(path, format_file(document).encode("utf-8", "surrogateescape"))


def body_sha256(body: str) -> str:
    """Return the SHA-256 of the body, in hex."""
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()


class KnownRoles(NamedTuple):
    """The roles that a document had to be given; ``read`` identifies it as it was read, without them."""

    read: str
    bounds: str  # as in a block

    def restored(self, document: Document) -> Document | None:
        """Return the document with these roles; None if they are another document's, or the ones it has."""
        if self.read != _as_read(document):
            return None
        spans, _ = read_bounds(self.bounds, len(document.body))
        restored = replace(document, spans=merge_spans(spans), stale=False, block=None)
        return None if restored == document else restored


def known_roles(document: Document, spans: tuple[Span, ...]) -> KnownRoles:
    """Return the roles that were recovered for a document."""
    return KnownRoles(_as_read(document), print_bounds(spans).text())


def _as_read(document: Document) -> str:
    roles = (print_bounds(document.spans).text(), document.stale, document.block)
    return body_sha256(f"{document.body}\0{roles}")


def regions(document: Document, end: int | None = None, first: int | None = None) -> list[Region]:
    """Return the body up to offset ``end`` as contiguous regions.

    Those before the span with the number ``first`` are left out.
    """
    stop = len(document.body) if end is None else max(0, min(end, len(document.body)))
    result: list[Region] = []
    position = 0 if first is None else document.spans[first].start
    for span in document.spans[first:]:
        if span.start >= stop:
            break
        if span.start > position:
            result.append(Region(position, span.start, None))
        position = min(span.end, stop)
        result.append(Region(span.start, position, span.kind, span.id))
    if position < stop:
        result.append(Region(position, stop, None))
    return result


def gptel_messages(
    file_text: "str | Document", end: int | None = None, prompt_prefix: str = PROMPT_PREFIX, response_prefix: str = ""
) -> list[dict[str, Any]]:
    """Return the messages stock gptel would send for this file, in Anthropic's format.

    Messages are not merged: gptel sends each region separately, and parallel calls one after the other. It removes
    surrounding blanks, one leading prompt prefix and one trailing response prefix.

    ``end`` is the Emacs position (from 1) at which the prompt ends; None is the end of the body.
    """
    document = parse(file_text) if isinstance(file_text, str) else file_text
    messages: list[dict[str, Any]] = []
    for region in regions(document, None if end is None else end - 1):
        text = document.body[region.start : region.end]
        match region.kind:
            case "response" | None:
                trimmed = text.lstrip(BLANK).removeprefix(prompt_prefix).strip(BLANK)
                if content := trimmed.removesuffix(response_prefix).rstrip(BLANK):
                    messages.append({"role": "assistant" if region.kind else "user", "content": content})
            case "tool" if region.id:
                messages += _tool_messages(text, region.id)
    return messages


def _tool_messages(text: str, call_id: str) -> list[dict[str, Any]]:
    try:
        name, arguments, end = read_call(text)
    except SexpError:
        return []
    call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": text[end:].strip(BLANK)}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return sorted ``spans`` with adjacent equal ones joined, and without empty ones."""
    merged: list[Span] = []
    for span in spans:
        if merged and (merged[-1].end, *merged[-1][2:]) == (span.start, *span[2:]):
            merged[-1] = merged[-1]._replace(end=span.end)
        elif span.start < span.end:
            merged.append(span)
    return tuple(merged)


def outside(span: Span, start: int, end: int) -> Iterator[Span]:
    """Yield the parts of a span outside of two offsets."""
    for part in (span._replace(end=min(span.end, start)), span._replace(start=max(span.start, end))):
        if part.start < part.end:
            yield part


def _describe_damage(
    file_text: str, text: str, block: Block | None, *, healed: bool = False, stale: bool
) -> Iterator[str]:
    """Yield the problems of a file, one line each."""
    if file_text.startswith(_BYTE_ORDER_MARK):
        yield "This document begins with a byte order mark; it has none when it is saved"
    if len(text) < len(file_text.removeprefix(_BYTE_ORDER_MARK)):
        yield "All lines of this document end with CR LF; they will end with LF when it is saved"
    if block is None:
        return
    if block.torn:
        yield "The Local Variables of this document are torn; the rest of them stays in the text but is not sent"
    elif not block.whole:
        yield "There was text below the Local Variables; they are at the end again when it is saved"
    elif healed or len(block.bounds) > 1:
        yield "This document had several blocks of Local Variables; they are read as one"
    elif stale and block.bounds != ("nil",):
        yield "Some roles in the Local Variables of this document overlap or lie outside the text"


def _read_roles(block: Block, length: int) -> tuple[list[Span], bool]:
    """Return a block's spans for a text of this length, and whether some must be missing."""
    result: list[Span] = []
    stale = len([bounds for bounds in block.bounds if bounds is not None]) > 1
    for bounds in block.bounds:
        sound, unsound = read_bounds(bounds or "", length)
        stale = stale or unsound or bounds == "nil"
        result = list(_sound_spans(sorted([*result, *sound]), length)) if result else sound
    return result, stale


def read_bounds(printed: str, length: int) -> tuple[list[Span], bool]:
    """Return the spans of printed bounds for a text of ``length`` characters, and whether some are unsound."""
    found = sorted(_read_bounds(printed))
    sound = list(_sound_spans(found, length))
    return sound, len(sound) < len(found)


def _sound_spans(spans: Iterable[Span], length: int) -> Iterator[Span]:
    position = 0
    for span in spans:
        if position <= span.start < span.end <= length:
            yield span
            position = span.end


def _read_bounds(printed: str) -> Iterator[Span]:
    sections = _SECTION.findall(printed)
    if not sections:
        for start, end in _BOUND_V1.findall(printed):
            yield Span(_offset(start), _offset(end), "response")
    for kind, bounds in sections:
        for start, end, raw_id in _BOUND.findall(bounds):
            call_id = re.sub(r"\\(.)", r"\1", raw_id, flags=re.DOTALL) if "\\" in raw_id else raw_id
            yield Span(_offset(start), _offset(end), kind, call_id if kind == "tool" else "")


def _offset(position: str) -> int:
    return int(position[:18]) - 1  # one of more digits is beyond any text as it is


def print_bounds(spans: tuple[Span, ...], before: Bounds | None = None) -> Bounds:
    """Return ``spans`` as printed, with those of ``before`` reused."""
    kept = len(before.spans) if before is not None and spans[: len(before.spans)] == before.spans else 0
    sections = {kind: list(before.sections[kind]) if before and kept else [] for kind in _KINDS}
    for start, end, kind, call_id in spans[kept:-1]:
        sections[kind].append(_print_bound(start, end, kind, call_id))
    exact = all(span.id == _printable_id(span.id) for span in spans[kept:] if span.kind == "tool")
    return Bounds(
        spans=spans[:-1],
        sections=sections,
        last=spans[-1] if spans else None,
        exact=exact and (not kept or before is None or before.exact),
    )


def _print_bound(start: int, end: int, kind: Kind, call_id: str) -> str:
    extra = f" {print_lisp(_printable_id(call_id))}" if kind == "tool" else ""
    return f"({start + 1} {end + 1}{extra})"


def _printable_id(call_id: str) -> str:
    # Every tool span has an id: stock gptel drops a call without one. The block is one line.
    return re.sub(r"\s", "_", call_id) or "unknown"


# The stamp of a file shows without reading whether it changed.


class Stamp(NamedTuple):
    """The facts of a file that change when it is written."""

    mtime_ns: int
    size: int
    inode: int


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of the file at ``path``; None when there is none.

    Raises:
        StoreError: The disk refused.
    """
    try:
        return stamp_in(path.stat())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def stamp_in(status: os.stat_result) -> Stamp:
    """Return the stamp of a file with this status."""
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)

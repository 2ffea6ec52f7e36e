"""The session document: body text, role spans, settings; and the file that holds them.

Knows gptel's Markdown format (bounds version 2, and 1 when reading) and nothing about the log beside it. Offsets are
code points from 0, half-open; in the file they are Emacs positions (from 1). The body is everything before the Local
Variables block; hashes and byte identity are over the body alone (DESIGN §3). ``parse(format_file(d)) == d`` for
every document whose spans are sound.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store.local_variables import (
    BOUNDS,
    OPENING,
    Block,
    Settings,
    Stray,
    find_block,
    find_strays,
    format_block,
    is_fenced,
    print_block,
)
from pyagentd.wire.sexp import LispError, print_string, print_symbol, read_call

PROMPT_PREFIX = "### "
BLANK = " \t\r\n"  # what gptel trims

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

    ``spans`` are sorted, inside the body and disjoint, and no two equal ones touch. ``stale`` says that those read
    from the file cannot be all there were: bounds overlapped or were out of range, or something damaged the block.
    ``block`` is the range of the body in which such a block stands, if it could not be taken out of the text;
    ``damage`` says in words what was wrong with the file.
    """

    body: str = ""
    spans: tuple[Span, ...] = ()
    settings: Settings = field(default_factory=Settings)
    stale: bool = False
    block: tuple[int, int] | None = None
    damage: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Roles as they are printed; the last one is apart, since it may grow.

    Attributes:
        spans: All but the last.
        sections: These, printed, by kind.
        last: The last, None when there is none.
        exact: Whether they are read as they are: an id may be printed as another.
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
    """Return the document that the text of a session file holds."""
    text = _unix_newlines(file_text)
    block = find_block(text)
    if block is None:
        return Document(body=text, damage=tuple(_damage(file_text, text, None, stale=False)))
    body = text
    if block.whole:
        body = text[: block.start]
        body = body[:-2] if body.endswith("\n\n") else body.removesuffix("\n")
    roles, stale = _read_roles(block, min(len(body), block.start))
    if block.torn:
        roles = sorted([*roles, Span(block.start, block.end, "ignore")])
    spans = list(merged(roles))
    found = strays(body, spans, block)
    body, spans = _without(body, spans, found)
    return Document(
        body=body,
        spans=tuple(merged(spans)),
        settings=block.settings,
        stale=stale or not block.whole,
        block=(block.start, block.end) if block.torn else None,
        damage=tuple(_damage(file_text, text, block, healed=bool(found), stale=stale)),
    )


def strays(body: str, spans: Sequence[Span], block: Block | None) -> list[Stray]:
    """Return the blocks in a body that a program wrote there, the first one first; they are no text.

    gptel's own save hook and an Emacs that does not see our block write another one; text that was merged, or added
    by another editor, leaves one behind. What has a role, or stands in a code block, is a quotation.

    Args:
        body: The text.
        spans: Its roles.
        block: The document's own. Where that is guarded, a person may have typed what is above: a block is taken out
            only if it says of this very text what our own says. None for a text that has none yet.
    """
    if OPENING not in body:
        return []
    found = []
    for stray in find_strays(body):
        index = bisect_right(spans, stray.start, key=lambda span: span.start)
        edge = 0
        if index:
            start, end, kind, _ = spans[index - 1]
            if end > stray.start and (kind, start) != ("ignore", stray.start):
                continue
            edge = min(end, stray.start)
        if is_fenced(body[: stray.start], edge):
            continue
        if block is None or not block.guarded or _repeats(stray, spans, block.settings):
            found.append(stray)
    return found


def _repeats(stray: Stray, spans: Sequence[Span], settings: Settings) -> bool:
    """Return whether a block says of the text before it what is known of it."""
    bounds = {span[:2] for span in _read_bounds(stray.entries.get(BOUNDS, ""))}
    if bounds:
        return bounds <= {span[:2] for span in spans}
    return settings.model is not None and stray.entries.get("gptel-model") == print_symbol(settings.model)


def _without(body: str, spans: Sequence[Span], found: Iterable[Stray]) -> tuple[str, list[Span]]:
    """Return body and spans without the lines of these blocks, and the newlines that came with them."""
    kept = list(spans)
    for start, end, _ in reversed(list(found)):
        stop = end + len(body[end:]) - len(body[end:].lstrip("\n"))
        if stop == len(body):
            start -= 2 if body.endswith("\n\n", 0, start) else body.endswith("\n", 0, start)
        body = body[:start] + body[stop:]
        gone = stop - start
        kept = [
            span._replace(
                start=span.start if span.start <= start else max(start, span.start - gone),
                end=span.end if span.end <= start else max(start, span.end - gone),
            )
            for span in kept
        ]
    return body, kept


def format_file(document: Document) -> str:
    """Return the text of the session file for ``document``: body, blank line, block."""
    opens = OPENING in document.body
    return document.body + format_end(document, print_bounds(document.spans), opens=opens)


def format_end(document: Document, bounds: Bounds, *, opens: bool) -> str:
    """Return what follows the body in the file; ``opens``: the words that open a block stand in the body."""
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
    try:
        return parse(regularfile.read_bytes(path, limit=regularfile.DOCUMENT).decode("utf-8", "surrogateescape"))
    except FileNotFoundError:
        return Document()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def body_sha256(body: str) -> str:
    """Return the hash that names this state of the body, in hex."""
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()


def regions(document: Document, end: int | None = None) -> list[Region]:
    """Return the body up to offset ``end`` as regions that follow each other without gaps."""
    stop = len(document.body) if end is None else max(0, min(end, len(document.body)))
    result: list[Region] = []
    position = 0
    for span in document.spans:
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
    file_text: str, end: int | None = None, prompt_prefix: str = PROMPT_PREFIX, response_prefix: str = ""
) -> list[dict[str, Any]]:
    """Return the messages stock gptel would send for this file, in Anthropic's format.

    Messages are not merged: gptel sends each region on its own, and parallel calls one after the other.

    Args:
        file_text: The whole file.
        end: The Emacs position (from 1) at which the prompt ends; None is the end of the body.
        prompt_prefix: gptel's prompt prefix for Markdown.
        response_prefix: gptel's response prefix for Markdown.
    """
    document = parse(file_text)
    messages: list[dict[str, Any]] = []
    for region in regions(document, None if end is None else end - 1):
        text = document.body[region.start : region.end]
        match region.kind:
            case "response" | None:
                if content := trim_prefixes(text, prompt_prefix, response_prefix):
                    messages.append({"role": "assistant" if region.kind else "user", "content": content})
            case "tool" if region.id:
                messages += _tool_messages(text, region.id)
    return messages


def trim_prefixes(text: str, prompt_prefix: str = PROMPT_PREFIX, response_prefix: str = "") -> str:
    """Return ``text`` without surrounding blanks, one leading prompt prefix and one trailing response prefix."""
    trimmed = text.lstrip(BLANK).removeprefix(prompt_prefix).strip(BLANK)
    return trimmed.removesuffix(response_prefix).rstrip(BLANK)


def _tool_messages(text: str, call_id: str) -> list[dict[str, Any]]:
    try:
        name, arguments, end = read_call(text)
    except LispError:
        return []
    call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": text[end:].strip(BLANK)}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield sorted ``spans`` with equal ones that touch joined, and empty ones left out."""
    last: Span | None = None
    for span in spans:
        if span.start == span.end:
            continue
        if last is not None and last.end == span.start and last.kind == span.kind and last.id == span.id:
            last = last._replace(end=span.end)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _unix_newlines(text: str) -> str:
    # Emacs decodes a file as CRLF only when every line ends so; a lone CR LF inside a tool's output is text.
    crlf = text.count("\r\n")
    return text.replace("\r\n", "\n") if crlf and crlf == text.count("\n") else text


def _damage(file_text: str, text: str, block: Block | None, *, healed: bool = False, stale: bool) -> Iterator[str]:
    """Say in one line each what is wrong with a file."""
    if text is not file_text:
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
    """Return the spans in a text of this length that a block has, and whether some must be missing."""
    result: list[Span] = []
    stale = len([bounds for bounds in block.bounds if bounds is not None]) > 1
    for bounds in block.bounds:
        found = sorted(_read_bounds(bounds or ""))
        sound = list(_sound(found, length))
        stale = stale or len(sound) < len(found) or bounds == "nil"
        result = list(_sound(sorted([*result, *sound]), length)) if result else sound
    return result, stale


def _sound(spans: Iterable[Span], length: int) -> Iterator[Span]:
    position = 0
    for span in spans:
        if position <= span.start < span.end <= length:
            yield span
            position = span.end


def _read_bounds(printed: str) -> Iterator[Span]:
    sections = _SECTION.findall(printed)
    if not sections:
        for start, end in _BOUND_V1.findall(printed):
            yield Span(int(start) - 1, int(end) - 1, "response")
    for kind, bounds in sections:
        for start, end, raw_id in _BOUND.findall(bounds):
            call_id = re.sub(r"\\(.)", r"\1", raw_id, flags=re.DOTALL) if "\\" in raw_id else raw_id
            yield Span(int(start) - 1, int(end) - 1, kind, call_id if kind == "tool" else "")


def print_bounds(spans: tuple[Span, ...], before: Bounds | None = None) -> Bounds:
    """Return ``spans`` as printed; those that stand in ``before`` are not printed again."""
    kept = len(before.spans) if before is not None and spans[: len(before.spans)] == before.spans else 0
    sections = {kind: list(before.sections[kind]) if before and kept else [] for kind in _KINDS}
    for start, end, kind, call_id in spans[kept:-1]:
        sections[kind].append(_print_bound(start, end, kind, call_id))
    exact = all(span.id == _printable(span.id) for span in spans[kept:] if span.kind == "tool")
    return Bounds(
        spans=spans[:-1],
        sections=sections,
        last=spans[-1] if spans else None,
        exact=exact and (not kept or before is None or before.exact),
    )


def _print_bound(start: int, end: int, kind: Kind, call_id: str) -> str:
    extra = f" {_print_id(call_id)}" if kind == "tool" else ""
    return f"({start + 1} {end + 1}{extra})"


def _print_id(call_id: str) -> str:
    return print_string(_printable(call_id))


def _printable(call_id: str) -> str:
    # Every tool span has an id: stock gptel drops a call without one (DD-3). The block is one line.
    return re.sub(r"\s", "_", call_id) or "unknown"

"""A long conversation put on disk as the daemon would have left it: the document and the log that matches it.

Running it would take hours, since every step sends all that went before. So the rows are made here, and the text
comes from the renderer that every run uses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd.clock import new_id
from pyagentd.store import atomic, paths
from pyagentd.store.document import text as document
from pyagentd.store.document.files import document_cache, write_document
from pyagentd.store.document.render import Renderer
from pyagentd.store.document.text import Document, Settings, Span, merge_spans
from pyagentd.store.journal import Journal, message_row, part_row
from tests.bench import corpus

Fact = tuple[str, Mapping[str, Any]]

_CALLS = 2  # of tools, in each answer
_NOW_MS = 1_770_000_000_000
_MODEL = {"provider_id": "Claude", "model_id": "bench"}
_SETTINGS = Settings(model="bench", backend="Claude", tools=("Read",), temperature=0.5)


def write(branch: Path, *, messages: int, size: int) -> None:
    """Fill the session in ``branch``, which is new, with so many messages that have about ``size`` bytes of text."""
    turns = messages // 2
    text = Document(body=document.PROMPT_PREFIX, settings=_SETTINGS)
    atomic.write_text(
        paths.session_file(branch), document.format_file(_played(branch, text, range(turns), size // turns))
    )


def go_on(branch: Path, *, number: int, size: int) -> None:
    """Add a turn of about ``size`` bytes, as the daemon would: lines to the log, and the document anew."""
    file = paths.session_file(branch)
    known = document_cache.read(file)
    write_document(file, _played(branch, known.document, range(number, number + 1), size), known)


def _played(branch: Path, doc: Document, numbers: Iterable[int], size: int) -> Document:
    """Append turns to the log; return the document with them."""
    facts = itertools.chain.from_iterable(_turn(branch, number, size) for number in numbers)
    journal = Journal.open(paths.journal_file(branch))
    try:
        rows = journal.append_many(facts)
    finally:
        journal.close()
    texts: list[str] = [doc.body]
    spans: list[Span] = list(doc.spans)
    position = len(doc.body)
    renderer = Renderer()

    def put(text: str, role: Any) -> None:
        nonlocal position
        texts.append(text)
        if role is not None:
            kind, call = role if isinstance(role, tuple) else (role, "")
            spans.append(Span(position, position + len(text), kind, call))
        position += len(text)

    for row in rows:
        if row.type == "part" and row.data["data_json"].get("origin") == "prompt":
            put(row.data["data_json"]["text"], None)
        for insert in renderer.feed(row):
            put(insert.text, insert.role)
    return replace(doc, body="".join(texts), spans=tuple(merge_spans(spans)))


def _turn(branch: Path, number: int, size: int) -> Iterator[Fact]:
    """Yield the rows of a prompt and its answer, calls with results and text; about ``size`` bytes."""
    session = branch.parent.parent.name
    index = itertools.count()

    def part(message: Mapping[str, Any], data: Mapping[str, Any]) -> Fact:
        row = part_row(message_id=message["id"], session_id=session, index=next(index), data=data, now_ms=_NOW_MS)
        return "part", row

    def message(role: str) -> dict[str, Any]:
        return message_row(role=role, session_id=session, metadata={}, now_ms=_NOW_MS)

    asked, answered = message("user"), message("assistant")
    usage = {"input": 1_000, "output": 100, "reasoning": 0, "cache_read": 1_000, "cache_write": 9}
    answered["metadata_json"] = {"model": _MODEL, "usage": usage, "last_usage": usage, "stop_reason": "end_turn"}
    yield "message", asked
    yield part(asked, {"type": "text", "text": f"Where does the time of step {number} go?", "origin": "prompt"})
    run = {"id": new_id("run"), "message_id": asked["id"], "interactive": True, "anchor": 0, "prompt": ""}
    yield "run", {**run, "state": "started"}
    index = itertools.count()
    yield "message", answered
    yield part(answered, {"type": "step-start"})
    for call in range(_CALLS):
        data = {
            "type": "tool-Read",
            "toolCallId": f"toolu_{number:05}{call:019}",
            "input": {"file_path": "notes.md", "offset": number},
            "state": "output-available",
            "output": _piece(number + call, size // 4),
            "metadata": {"duration_ms": 1, "summary": f"Read notes.md:{number}"},
        }
        yield part(answered, data)
    yield part(answered, {"type": "step-start"})
    yield part(answered, {"type": "text", "text": _piece(number, size // 2), "state": "done"})
    for state in ("finished", "kept"):
        yield "run", {**run, "state": state, "reason": "done", "error": None}


def _piece(number: int, size: int) -> str:
    """Return about ``size`` bytes of text, different ones for different numbers."""
    text = corpus.text(2_000)
    start = number * 37 % (len(text) // 2)
    return text[start : start + size * 14 // 15].strip()

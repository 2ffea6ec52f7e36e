"""Attaching a client: the edits that its text lacks, and the state of the branch.

A client identifies its text by the last revision that it got or, if it read the file, by a hash. If the daemon
remembers that version of the document, the client gets the edits since; if not, it sends its text and gets the
difference. If the file has not changed, it is not read.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from pyagentd.errors import Stale, StoreError
from pyagentd.events import Event, Sink
from pyagentd.runtime.approvals import client_fields
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import DocumentVersion, edit_to_wire, roles_to_wire
from pyagentd.store.document.files import Edit, difference, join_edits
from pyagentd.store.document.render import Renderer
from pyagentd.store.journal import Row
from pyagentd.wire.sexp import to_symbols

_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientText:
    """The text that a client has; a client without a text only gets new events.

    Attributes:
        revision: The last revision of the document that it got.
        sha256: The hash of the file that it read.
        text: The whole text, if the daemon knows neither.
        seq: The last event that a client without a text saw.
        number: Counts requests to attach in the order in which clients made them.
    """

    revision: int | None = None
    sha256: str | None = None
    text: str | None = None
    seq: int | None = None
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def is_nothing(self) -> bool:
        """Whether the client has no text."""
        return self.revision is None and self.sha256 is None and self.text is None


async def attach(branch: LiveBranch, sink: Sink, known: ClientText) -> dict[str, Any] | None:
    """Attach ``sink`` to ``branch``; return the reply, or None if the client must send its text.

    Raises:
        NotFound: The client left meanwhile.
        StoreError: The file cannot be read.
    """
    notes, made = await branch.while_attaching(sink, _look(branch, known.text))
    # No await from here on, so that the reply precedes all later events.
    live = branch.document.live
    if known.sha256 is not None and not branch.ref.is_agent:
        branch.document.open_prompt()
    edits: list[tuple[str, Edit]] = []
    base = live.revision if known.is_nothing else _base(branch, known)
    if made is not None:
        edit, at = made
        edits, base = [("", edit), *live.named_since(live.at(DocumentVersion(revision=at)))], 0
    elif base is None:
        return None
    else:
        edits = live.named_since(base)
    # A client without a text gets the inserts of the run that it missed.
    inserts = () if known.seq is None else branch.document.inserts
    missed = [(each.seq, each.text, to_symbols(each.role)) for each in inserts if each.seq > (known.seq or 0)]
    # An editor attaches when it opens a session, and again to send; it only uses the reply to its last request. An
    # earlier request that ends after that must not drop the events since, such as the receipt of an edit.
    if branch.sinks.get(sink, 0) < known.number:
        branch.sinks[sink] = known.number
        sink.reset(branch.key, branch.recorder.last_seq)
    stamp = live.file.stamp
    return {
        "branch": branch.key,
        "seq": branch.recorder.last_seq,
        "revision": live.revision,
        "edits": [(id or None, edit_to_wire(edit)) for id, edit in join_edits(edits)],
        "roles": roles_to_wire(live.document.spans) if base < live.roles_at or made is not None else None,
        "marker": None if live.marker is None else live.marker + 1,
        "saved": not live.unsaved and not live.is_dirty,
        "unsaved": branch.document.cause or None,
        "mtime": None if stamp is None else stamp.mtime_ns,
        "inserts": missed,
        "status": branch.status,
        "notes": list(dict.fromkeys([*branch.notes, *notes, *filter(None, (branch.document.trouble,))])),
        "read_only": branch.refusal or None,
        "title": branch.conversation.session.get("title") or None,
    }


async def _look(branch: LiveBranch, text: str | None) -> tuple[tuple[str, ...], tuple[Edit, int] | None]:
    """Read the document; return notes on it, and the edit from ``text`` to it with its revision, if given."""
    document, run = branch.document, branch.conversation.last_run
    with contextlib.suppress(StoreError):  # an unwritable branch can still be shown
        branch.recorder.flush()
        if document.trouble:
            await document.flush()
    live = await document.look()
    notes: tuple[str, ...] = ()
    if branch.run is None and (run is None or run.is_finished):
        notes = await branch.compare()
    if text is None:
        return notes, None
    doc, revision = live.document, live.revision
    return notes, (await asyncio.to_thread(difference, text, doc), revision)


def _base(branch: LiveBranch, known: ClientText) -> int | None:
    live = branch.document.live
    for version in (DocumentVersion(revision=known.revision or 0), DocumentVersion(sha256=known.sha256 or "")):
        with contextlib.suppress(Stale):
            return live.at(version)
    return None


# Replaying the events of a branch from its log, in the order in which clients got them.
#
# Transient events (``seq`` 0) are left out, except for answers to asks and prompts that were in the document. Text
# may be split into events differently, since text that comes quickly is merged when it is sent live.


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of events, of whole rows; the next page begins after ``seq``."""

    events: list[Event]
    seq: int
    done: bool


async def page(branch: LiveBranch, *, after: int, upto: int, size: int) -> Page:
    """Return the events of rows after ``after``, up to row ``upto`` or until they hold ``size`` characters.

    Raises:
        StoreError: The disk refused.
    """
    runs = branch.conversation.runs.values()
    begin = max((run.first_seq for run in runs if run.first_seq <= after), default=1) - 1
    over = branch.run is None and upto >= branch.recorder.last_seq  # else a client that attached at ``upto`` got it
    rows = takewhile(lambda row: row.seq <= upto, branch.recorder.journal.rows_after(begin))
    return await asyncio.to_thread(_page, events_of_rows(rows, branch.key, over=over), after, upto, size)


def _page(rows: Iterable[tuple[int, list[Event]]], after: int, upto: int, size: int) -> Page:
    found: list[Event] = []
    taken, held = after, 0
    for row, events in rows:
        # A prompt's number is that of the row before.
        new = [event for event in events if row > after and (event.kind != "prompt" or event.seq > after)]
        cost = sum(_size(event) for event in new)
        if found and held + cost > size:
            before = min([taken, *(event.seq - 1 for event in new if event.kind == "prompt")])
            return Page(events=found, seq=before, done=False)
        found += new
        taken, held = max(taken, row), held + cost
    return Page(events=found, seq=max(taken, upto), done=True)


def start_of_run(branch: LiveBranch) -> int:
    """Return the number of the row before the prompt of the run in flight, or of the last row without a run."""
    run = branch.conversation.last_run
    if branch.run is None or run is None:
        return branch.recorder.last_seq
    return max(0, run.first_seq - 2)


def events_of_rows(rows: Iterable[Row], key: str, *, over: bool) -> Iterator[tuple[int, list[Event]]]:
    """Yield the number of each row with its events.

    Args:
        rows: Rows from the first one of the log, or of a run.
        key: The branch's key.
        over: Whether no run is in flight: then the end of the last run is yielded even if it was not published.
    """
    renderer = Renderer()
    texts: dict[str, str] = {}  # of users' messages
    end: tuple[int, Mapping[str, Any]] | None = None  # of a finished run whose end was not yielded yet
    for row in rows:
        events: list[Event] = []
        match row.type, row.data:
            case "part", {"type": "text", "message_id": str(message), "data_json": {"text": str(text)}}:
                texts[message] = text
            case "run", {"state": "started"}:
                if end is not None:
                    events.append(_end_event(key, *end))
                    end = None
                message = str(row.data["message_id"])
                if row.data.get("prompt"):
                    events.append(Event("prompt", key, row.seq - 1, (texts.get(message, ""), None)))
                elif message in texts:
                    events.append(Event("fired", key, 0, ({"id": message, "text": texts[message]},)))
        events += (Event("insert", key, insert.seq, (insert.text, insert.role)) for insert in renderer.feed(row))
        match row.type, row.data:
            case "run", {"state": "started"}:
                details = {"id": row.data["id"], "phase": "started", "message_id": row.data["message_id"]}
                events.append(Event("run", key, row.seq, (details,)))
            case "run", {"state": "finished"}:
                end = (row.seq, row.data)
            case "run", {"state": "told" | "kept", "id": id} if end is not None and end[1]["id"] == id:
                events.append(_end_event(key, row.seq, end[1]))
                end = None
            case "ask", {"decision": None}:
                events.append(Event("ask", key, row.seq, ({**row.data, **client_fields(row.data)},)))
            case "ask", {"id": id, "decision": decision}:
                details = {"id": id, "decision": decision, "by": row.data.get("decided_by") or None}
                events.append(Event("answered", key, 0, (details,)))
        yield row.seq, _number_events(events)
    if over and end is not None:
        yield end[0], [_end_event(key, *end)]


def _number_events(events: list[Event]) -> list[Event]:
    """Return the events of one row, of which only the last has the row's number: then the whole row was shown.

    Inserts before it have none, so a client that resumes after the previous row gets them again.
    """
    last = max((number for number, event in enumerate(events) if event.seq), default=0)
    return [
        event._replace(seq=0 if event.kind == "insert" else min(event.seq, events[last].seq - 1))
        if number < last and event.seq
        else event
        for number, event in enumerate(events)
    ]


def _end_event(key: str, seq: int, run: Mapping[str, Any]) -> Event:
    message = (run.get("error") or {}).get("message") or run.get("message") or ""
    details = {"id": run["id"], "phase": "finished", "reason": run["reason"], "message": message}
    return Event("run", key, seq, (details,))


def _size(event: Event) -> int:
    return 100 + (len(event.args[0]) if event.kind in ("insert", "prompt") else 4000)

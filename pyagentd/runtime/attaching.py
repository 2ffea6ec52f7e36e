"""Attaching a client: which inserts its text lacks, whether it may edit, and the state of the branch.

A client names the text it has by its hash. If that is a known state of the document it is told the inserts that
came since; if not, it reads the file again. Who is to edit must have the document as it is: a text that somebody
edited since is read again as well.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pyagentd.errors import StoreError
from pyagentd.events import Event, Sink
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import DocumentReading, DocumentVersion, MissingInserts, RecoveredRoles
from pyagentd.store.document.render import Insert, Renderer
from pyagentd.store.journal import Row
from pyagentd.wire.sexp import tagged

_ATTEMPTS = 5  # a run that is written once a second leaves time to read in between

Mode = Literal["edit", "view"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Where a client is: what it lacks, and where that goes."""

    marker: int | None
    inserts: tuple[Insert, ...]
    version: DocumentVersion | None = None  # its text, when that is a state of the file
    behind: bool = False  # it is attached already and lost events


async def attach(
    branch: LiveBranch, sink: Sink, *, sha256: str | None, seq: int | None, mode: Mode
) -> dict[str, Any] | None:
    """Let ``sink`` watch ``branch``, or also edit it; see ``Attaching``."""
    return await Attaching(branch, sink, sha256=sha256, seq=seq).perform(mode)


class Attaching:
    """One client on its way into one branch.

    Args:
        branch: What it attaches to.
        sink: Where its events go.
        sha256: Of the text it has; None of a client that has none and only hears what comes from now on.
        seq: The last event that a client which is attached already saw, or None.
    """

    def __init__(self, branch: LiveBranch, sink: Sink, *, sha256: str | None, seq: int | None) -> None:
        self._branch = branch
        self._document = branch.document
        self._sink = sink
        self._sha256 = sha256
        self._seq = seq
        self._trouble = ""

    async def perform(self, mode: Mode) -> dict[str, Any] | None:
        """Let the client watch, or also edit; return what it is told, None when it must read the file again.

        Raises:
            NotFound: The client left meanwhile.
            StoreError: The file cannot be read.
        """
        branch, sink = self._branch, self._sink
        reading, lacking = await branch.while_attaching(sink, self._look())
        without_text = self._sha256 is None and self._seq is None
        standing = self._standing(reading, lacking, reading.sha256 if without_text else self._sha256 or "")
        if standing is None and without_text:
            standing = _Standing(marker=None, inserts=())
        if standing is None:
            return None
        # No await from here on: the answer and the events after it are in one order.
        branch.sinks[sink] = None
        sink.reset(branch.key, branch.recorder.last_seq)
        editor = mode == "edit" and self._may_edit(standing) and branch.lease.offer(sink, standing.version)
        roles = None
        if reading.spans is not None and reading.sha256 == self._sha256:
            roles = RecoveredRoles(sha256=reading.sha256, spans=reading.spans)
            self._document.heal(roles.sha256, roles.spans)
        return {
            "branch": branch.key,
            "seq": branch.recorder.last_seq,
            "editor": editor,
            "free": not branch.refusal and self._document.editor is None,
            "marker": None if standing.marker is None else standing.marker + 1,
            "inserts": [(i.seq, i.text, tagged(i.role)) for i in standing.inserts],
            "status": branch.status,
            "roles": None if roles is None else roles.to_wire(),
            "notes": self._notes(reading),
            "read_only": branch.refusal or None,
            "title": branch.conversation.session.get("title") or None,
            "written": reading.sha256 if self._document.version(reading.sha256) is not None else None,
        }

    async def _look(self) -> tuple[DocumentReading, MissingInserts | None]:
        """Bring the document up to date and read it."""
        branch = self._branch
        try:
            branch.recorder.flush()
            await self._document.flush()
        except StoreError as error:  # what cannot be written can be shown
            self._trouble = str(error)
        run = branch.conversation.last_run
        settled = branch.run is None and (run is None or run.is_kept)
        for _ in range(_ATTEMPTS):
            writes = self._document.writes
            reading = await branch.reader.look(compare=settled)
            if self._document.writes == writes:
                break
            with contextlib.suppress(StoreError):  # whoever edits from now on must find the file as it was read
                await self._document.flush()
        # Its editor may be waiting for us: it cannot save where somebody else changed the file.
        unknown = not self._document.complete and self._document.version(reading.sha256) is None
        return reading, await self._document.survey() if unknown else None

    def _standing(self, reading: DocumentReading, lacking: MissingInserts | None, sha256: str) -> _Standing | None:
        document = self._document
        if self._seq is not None and self._sink in self._branch.sinks and document.knows_since(self._seq):
            # It fell behind; its own marker goes on.
            fallen = DocumentVersion(sha256=sha256, seq=self._seq, marker=None)
            return _Standing(marker=None, inserts=tuple(document.missing(fallen)), behind=True)
        version = document.version(sha256)
        if version is not None and (document.is_latest(version) or sha256 == reading.sha256):
            return self._at(version)
        if sha256 != reading.sha256:
            return None
        if document.complete:
            return self._at(document.on_disk(sha256))
        if lacking is not None and lacking.sha256 == sha256:
            return _Standing(marker=lacking.marker, inserts=lacking.inserts)
        return None

    def _may_edit(self, standing: _Standing) -> bool:
        # Who fell behind knows nothing of what others edited meanwhile.
        return not self._branch.refusal and (not standing.behind or self._document.editor is self._sink)

    def _at(self, version: DocumentVersion) -> _Standing:
        inserts = tuple(self._document.missing(version))
        return _Standing(marker=version.marker, inserts=inserts, version=version)

    def _notes(self, reading: DocumentReading) -> list[str]:
        trouble = (self._trouble,) if self._trouble else ()
        return list(dict.fromkeys([*self._branch.notes, *reading.notes, *trouble]))


# The events of a branch again, from its log: what a client was told while it happened, and in the same order.
#
# What is true only now (``seq`` 0) has no place in it, but for how asks were answered. Text may be cut into events
# differently: live, what comes quickly is put together.


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some of the events, whole rows; the next page is what comes after ``seq``."""

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
    over = branch.run is None and upto >= branch.recorder.last_seq  # else who attached at ``upto`` was told live
    rows = await asyncio.to_thread(branch.recorder.journal.rows, begin)
    found: list[Event] = []
    taken, held = after, 0
    for row, events in replayed((row for row in rows if row.seq <= upto), branch.key, over=over):
        # A prompt is of the row before.
        new = [event for event in events if row > after and (event.kind != "prompt" or event.seq > after)]
        cost = sum(_size(event) for event in new)
        if found and held + cost > size:
            before = min([taken, *(event.seq - 1 for event in new if event.kind == "prompt")])
            return Page(events=found, seq=before, done=False)
        found += new
        taken, held = max(taken, row), held + cost
    return Page(events=found, seq=max(taken, upto), done=True)


def start_of_run(branch: LiveBranch) -> int:
    """Return the row before the prompt of the run in flight; the last row when there is none."""
    run = branch.conversation.last_run
    if branch.run is None or run is None:
        return branch.recorder.last_seq
    return max(0, run.first_seq - 2)


def replayed(rows: Iterable[Row], key: str, *, over: bool) -> Iterator[tuple[int, list[Event]]]:
    """Yield the number of each row with its events.

    Args:
        rows: From the first one of the log, or of a run.
        key: The branch's.
        over: Whether no run is in flight: then one whose end nobody was told of has ended all the same.
    """
    renderer = Renderer()
    texts: dict[str, str] = {}  # of users' messages
    end: tuple[int, Mapping[str, Any]] | None = None  # of a run that has ended, and clients are not told yet
    for row in rows:
        events: list[Event] = []
        match row.type, row.data:
            case "part", {"type": "text", "message_id": str(message), "data_json": {"text": str(text)}}:
                texts[message] = text
            case "run", {"state": "started"}:
                if end is not None:
                    events.append(_ended(key, *end))
                    end = None
                if row.data.get("prompt"):
                    text = texts.get(str(row.data["message_id"]), "")
                    events.append(Event("prompt", key, row.seq - 1, (text, None)))
        events += (Event("insert", key, insert.seq, (insert.text, insert.role)) for insert in renderer.feed(row))
        match row.type, row.data:
            case "run", {"state": "started"}:
                told = {"id": row.data["id"], "phase": "started", "message_id": row.data["message_id"]}
                events.append(Event("run", key, row.seq, (told,)))
            case "run", {"state": "finished"}:
                end = (row.seq, row.data)
            case "run", {"state": "told" | "kept", "id": id} if end is not None and end[1]["id"] == id:
                events.append(_ended(key, row.seq, end[1]))
                end = None
            case "ask", {"decision": None}:
                events.append(Event("ask", key, row.seq, (dict(row.data),)))
            case "ask", {"id": id, "decision": decision}:
                told = {"id": id, "decision": decision, "by": row.data.get("decided_by") or None}
                events.append(Event("answered", key, 0, (told,)))
        yield row.seq, _numbered(events)
    if over and end is not None:
        yield end[0], [_ended(key, *end)]


def _numbered(events: list[Event]) -> list[Event]:
    """Return the events of one row of which only the last has its number: with it all of the row is shown.

    Texts before it have none: whoever goes on after the line before them gets them again, and no other line does.
    """
    last = max((number for number, event in enumerate(events) if event.seq), default=0)
    return [
        event._replace(seq=0 if event.kind == "insert" else min(event.seq, events[last].seq - 1))
        if number < last and event.seq
        else event
        for number, event in enumerate(events)
    ]


def _ended(key: str, seq: int, run: Mapping[str, Any]) -> Event:
    message = (run.get("error") or {}).get("message") or run.get("message") or ""
    told = {"id": run["id"], "phase": "finished", "reason": run["reason"], "message": message}
    return Event("run", key, seq, (told,))


def _size(event: Event) -> int:
    return 100 + (len(event.args[0]) if event.kind in ("insert", "prompt") else 4000)

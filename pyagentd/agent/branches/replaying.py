"""The events of a branch again, from its log: what a client was told while it happened, and in the same order.

What is true only now (``seq`` 0) has no place in it, but for how asks were answered. Text may be cut into events
differently: live, what comes quickly is put together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.events import Event
from pyagentd.store.document.render import Renderer
from pyagentd.store.journal import Row


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

"""Somebody who edits a document as Emacs does: types below everything, saves after a pause, sends what was saved.

It has the text alone while it edits. What the daemon inserts goes to the run's marker, and what was typed stays
below; text that waits in the queue keeps its place until it fires, wherever the text around it went.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.store.document import text as document
from pyagentd.store.document.render import RUN_CLOSE
from pyagentd.store.document.text import PROMPT_PREFIX, Document, Span, body_sha256
from tests.simulation.client import Client

Call = Callable[..., Awaitable[Any]]
"""Calls an operation of the daemon for the branch: its name, then its arguments."""

_BUSY = ("busy", "retrying", "waiting")
_SAVED_WITHIN_S = 5.0  # of a change


class Editor(Client):
    """A client that edits a branch.

    Args:
        file: The document.
        random: Decides when it saves.
        call: Calls the daemon.

    Attributes:
        is_gone: Whether it does nothing any more.
    """

    def __init__(self, file: Path, random: Random, call: Call) -> None:
        super().__init__()
        self.is_gone = False
        self._file = file
        self._random = random
        self._call = call
        self._busy = False
        self._waiting: dict[str, tuple[int, int]] = {}  # where queued text stands, by its message's id
        self._sending = ""  # the id of what was sent and not answered yet
        self._last = 0  # the last row that is in the text
        self._placed = False  # whether it knows where a run is, or was
        self._saving: asyncio.TimerHandle | None = None

    async def open(self) -> bool:
        """Attach as the one who edits; return whether that is granted, and the text was not behind."""
        shown = document.read(self._file)
        answer = await self._call("attach", client=self, sha256=body_sha256(shown.body))
        if answer.get("reread") or not answer["editor"]:
            self.is_gone = True
            return False
        self.watch(shown, answer)
        self._placed |= answer["marker"] is not None
        self._last, self._busy = (
            max(self._last, answer["seq"]),
            answer["status"]["state"] in ("busy", "retrying", "waiting"),
        )
        if self.shown != shown:
            self._touch()
        return True

    async def type(self, text: str, id: str) -> Mapping[str, Any]:
        """Write below everything and send it; return what the daemon answered.

        Raises:
            PyagentdError: It was refused; the text is removed again.
        """
        before = self.shown
        heading = RUN_CLOSE if self.text else PROMPT_PREFIX
        self._type(text if self.text.endswith(PROMPT_PREFIX) else heading + text)
        start = len(self.text) - len(text)
        end, was_busy, marker, placed = len(self.text), self._busy, self.marker, self._placed
        await self.save()
        self._waiting[id], self._sending = (start, end), id
        if not was_busy:
            self.marker, self._placed = end, True
        try:
            sha256 = body_sha256(self.text)
            made: Mapping[str, Any] = await self._call("send", client=self, sha256=sha256, end=end + 1, id=id)
        except PyagentdError:
            self._waiting.pop(id, None)
            self._remove(len(before.body), len(self.text))
            raise
        if made["queued"] and id in self._waiting:
            if not was_busy and self.marker == end:  # else what waited before it has fired meanwhile
                self.marker, self._placed = marker, placed
            if not self.text[self._waiting[id][1] :].strip():
                self._remove(self._waiting[id][1], len(self.text))
                self._type(RUN_CLOSE)
        return made

    async def save(self) -> None:
        """Write the file, and tell."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        sha256, seq, marker = self.write(), self._last, self.marker + 1 if self._placed else None
        await self._call("saved", client=self, sha256=sha256, seq=seq, marker=marker)

    def write(self) -> str:
        """Write the file and return the hash of its text."""
        settings = document.read(self._file).settings
        self._file.write_text(document.format_file(replace(self.shown, settings=settings)), "utf-8")
        return body_sha256(self.text)

    def leave(self) -> None:
        """Do nothing any more; what was not saved is lost unless it is written."""
        self.is_gone = True
        if self._saving is not None:
            self._saving.cancel()

    def push(self, event: Event) -> None:
        """Take one event, unless it is gone."""
        if not self.is_gone:
            super().push(event)

    def _show(self, event: Event) -> None:
        before = self.shown
        self._placed |= event.kind in ("insert", "prompt", "fired", "compacting")
        match event.kind, event.args:
            case "fired", (fired,):
                self._go_on(fired)
            case "queue", (queue,):
                self._receive(queue["items"])
            case "status", (status,):
                self._busy = status["state"] in _BUSY
            case _:
                super()._show(event)
        self._last = max(self._last, event.seq)
        if self.shown is not before:
            self._touch()

    def _go_on(self, fired: Mapping[str, Any]) -> None:
        known = self._waiting.pop(fired["id"], None)
        if known is None:
            assert fired["sha256"] == body_sha256(self.text), "text that fires is known, or the text is as it was"
            self.marker = fired["position"] - 1
            return
        self.marker = known[1]
        if fired["id"] != self._sending and self.text.startswith(RUN_CLOSE, self.marker):
            self._remove(self.marker, self.marker + len(RUN_CLOSE))  # the answer brings one of its own
        self._sending = ""

    def _receive(self, items: Any) -> None:
        answered = max((span.end for span in self.shown.spans), default=0)
        for item in items:
            start = self.text.find(item["text"], answered)
            if item["origin"] == "document" and item["id"] not in self._waiting and start >= 0:
                self._waiting[item["id"]] = start, start + len(item["text"])
        kept = {self._sending, *(item["id"] for item in items)}
        self._waiting = {id: place for id, place in self._waiting.items() if id in kept}

    def _insert(self, text: str, role: Any) -> None:
        at = self.marker
        super()._insert(text, role)
        self._waiting = {
            id: (start + len(text), end + len(text)) if start >= at else (start, end)
            for id, (start, end) in self._waiting.items()
        }

    def _type(self, text: str) -> None:
        self.shown = replace(self.shown, body=self.text + text)
        self._touch()

    def _remove(self, start: int, end: int) -> None:
        """Remove text of the user's."""
        size, body = end - start, self.text[:start] + self.text[end:]
        spans = (
            s._replace(start=s.start - size, end=s.end - size) if s.start >= end else s for s in self.shown.spans
        )
        self.shown = Document(body=body, spans=tuple(spans), settings=self.shown.settings)
        self._waiting = {id: (a - size, b - size) if a >= end else (a, b) for id, (a, b) in self._waiting.items()}
        self.marker = max(start, self.marker - size) if self.marker > start else self.marker
        self._touch()

    def _touch(self) -> None:
        if self._saving is None and not self.is_gone:
            loop = asyncio.get_running_loop()
            self._saving = loop.call_later(self._random.random() * _SAVED_WITHIN_S, self._save_later)

    def _save_later(self) -> None:
        self._saving = None
        if not self.is_gone:
            self._task = asyncio.ensure_future(self.save())


def _shifted(span: Span, by: int) -> Span:
    return span._replace(start=span.start + by, end=span.end + by)

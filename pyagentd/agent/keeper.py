"""Who writes ``session.md``: the editor that holds the lease, or the daemon while nobody does (DESIGN §3).

The keeper remembers what the current or last run inserted and which versions of the file (by hash of the body) hold
how much of it. From that follows what an attaching client misses, and where the daemon goes on when an editor
disappears. Text that was not read is never overwritten: a file that changed on disk is read again and the insertion
point is found anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyagentd.errors import StoreError
from pyagentd.events import Sink
from pyagentd.store import document
from pyagentd.store.local_variables import Settings
from pyagentd.store.locate import locate
from pyagentd.store.render import Insert
from pyagentd.store.writer import DocumentWriter

log = logging.getLogger(__name__)

PERSIST_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One known state of the file's body.

    ``marker`` is the offset (code points from 0) where the run's next insert goes, or None when no run was active.
    """

    sha256: str
    seq: int
    marker: int | None


class Keeper:
    """Keeps one branch's ``session.md``."""

    def __init__(self, path: Path, *, is_agent: bool, persisted: Callable[[Version, float], None]) -> None:
        self._path = path
        self._is_agent = is_agent
        self._persisted = persisted
        self.editor: Sink | None = None
        self.inserts: list[Insert] = []
        self.settings: Settings | None = None  # for the file's Local Variables; None keeps what is there
        self._prompt = ""
        self._anchor: int | None = None
        self._versions: deque[Version] = deque(maxlen=8)
        self._writer: DocumentWriter | None = None
        self._waiting: list[Insert] = []  # inserts the daemon has yet to put into the file
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._last_persist = 0.0

    # -- a run begins and goes on ------------------------------------------------------------------------------

    def begin(self, *, prompt: str, anchor: int | None, version: Version | None) -> None:
        """Start keeping a run whose prompt ends at ``anchor`` of ``version`` (both None when not yet in the file)."""
        self.inserts = []
        self._prompt, self._anchor = prompt, anchor
        self._versions.clear()
        if version is not None:
            self._versions.append(version)
        self._writer = None
        self._waiting = []

    def add(self, insert: Insert) -> None:
        """Keep one insert of the run; the daemon writes it when no editor does."""
        self.inserts.append(insert)
        if self.editor is None:
            self._waiting.append(insert)
            self._schedule()

    @property
    def complete(self) -> bool:
        """Whether some version of the file holds everything the run inserted so far."""
        return not self.inserts or any(v.seq >= self.inserts[-1].seq for v in self._versions)

    # -- clients -----------------------------------------------------------------------------------------------

    def version(self, sha256: str) -> Version | None:
        """Return the known version with this hash; a file that holds the whole run is known by being on disk."""
        for version in reversed(self._versions):
            if version.sha256 == sha256:
                return version
        if self.complete and document.body_sha256(self._read().body) == sha256:
            return Version(sha256=sha256, seq=self.inserts[-1].seq if self.inserts else 0, marker=None)
        return None

    def missing(self, version: Version) -> list[Insert]:
        """Return the inserts that a client at ``version`` does not have."""
        return [insert for insert in self.inserts if insert.seq > version.seq]

    def lease(self, sink: Sink, version: Version | None, *, take: bool = False) -> bool:
        """Make ``sink`` the editor if nobody else is, or by force; from now on the daemon leaves the file alone."""
        if self.editor is None or take:
            self.editor = sink
            self._waiting = []
            self._writer = None
            if version is not None and version not in self._versions:
                self._versions.append(version)
        return self.editor is sink

    def saved(self, version: Version) -> None:
        """Note what the editor wrote."""
        self._versions.append(version)

    def release(self, sink: Sink) -> None:
        """Take the lease back; the daemon writes what the editor had not saved."""
        if self.editor is not sink:
            return
        self.editor = None
        if not self.complete:
            self._waiting = []
            self._writer = None
            self._schedule()

    def recover(self, *, prompt: str, anchor: int | None, inserts: list[Insert]) -> None:
        """Keep a run of an earlier daemon, of which the file may hold any part; writes the rest at once."""
        self.begin(prompt=prompt, anchor=anchor, version=None)
        self.inserts = inserts
        version, _ = self._write([], inserts)
        self._versions.append(version)

    # -- writing -----------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Return when the file holds everything the daemon has to write.

        Raises:
            StoreError: The disk refused.
        """
        async with self._lock:
            if self.editor is None and (self._waiting or not self.complete):
                await self._persist()

    def _schedule(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._persist_later())

    async def _persist_later(self) -> None:
        await asyncio.sleep(max(0.0, self._last_persist + PERSIST_EVERY_S - time.monotonic()))
        try:
            await self.flush()
        except StoreError as error:  # said by the run's own end, which tries again
            log.error("%s", error)

    async def _persist(self) -> None:
        self._last_persist = time.monotonic()
        batch, self._waiting = self._waiting, []
        try:
            version, mtime = await asyncio.to_thread(self._write, batch, list(self.inserts))
        except StoreError:
            self._writer = None  # found again from the file and the inserts
            raise
        self._versions.append(version)
        self._persisted(version, mtime)

    def _write(self, batch: list[Insert], inserts: list[Insert]) -> tuple[Version, float]:
        # Runs in a thread; the lock keeps it the only one that touches the writer.
        if self._writer is None or self._writer.changed_on_disk():
            self._writer, batch = self._reopen(inserts)
            if self.settings is not None:
                self._writer.set_settings(self.settings)
        for insert in batch:
            self._writer.insert(insert)
        sha256 = self._writer.persist()
        seq = inserts[-1].seq if inserts else 0
        return Version(sha256=sha256, seq=seq, marker=self._writer.marker), self._path.stat().st_mtime

    def _reopen(self, inserts: list[Insert]) -> tuple[DocumentWriter, list[Insert]]:
        """Read the file and find out which inserts it lacks and where they go."""
        writer = DocumentWriter.load(self._path)
        sha256 = document.body_sha256(writer.body)
        for version in reversed(self._versions):
            if version.sha256 == sha256 and version.marker is not None:
                writer.marker = version.marker
                return writer, [insert for insert in inserts if insert.seq > version.seq]
        anchor = self._anchor
        if anchor is None:
            found = writer.body.rfind(self._prompt)
            if found < 0:
                writer.append_prompt(self._prompt, is_agent=self._is_agent)
                return writer, inserts
            anchor = found + len(self._prompt)
        writer.marker, remaining = locate(writer.body, writer.spans, anchor, inserts)
        log.info("%s changed outside; %d inserts of the run go on at %d", self._path, len(remaining), writer.marker)
        return writer, list(remaining)

    def _read(self) -> document.Document:
        return document.read(self._path)

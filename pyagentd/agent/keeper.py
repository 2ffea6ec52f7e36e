"""Who writes ``session.md``: the editor that holds the lease, or the daemon while nobody does (DESIGN §3).

The keeper remembers what the current or last run inserted and which versions of the file (by hash of the body) hold
how much of it. From that follows what an attaching client misses, and where the daemon goes on when an editor
disappears. How one write is done is ``persist``'s business; here is who may, when, and that there is one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pyagentd.agent.persist import Version, Writing
from pyagentd.errors import Busy, StoreError
from pyagentd.events import Sink
from pyagentd.store import document
from pyagentd.store.local_variables import Settings
from pyagentd.store.render import Insert
from pyagentd.store.writer import DocumentWriter

log = logging.getLogger(__name__)

PERSIST_EVERY_S = 1.0
SAVED_WITHIN_S = 6.0  # an editor saves by itself at most 5 s after a change (DESIGN §3, rule 7)


class Keeper:
    """Keeps one branch's ``session.md``."""

    def __init__(self, path: Path, *, persisted: Callable[[Version, float], None]) -> None:
        self._path = path
        self._persisted = persisted
        self.editor: Sink | None = None
        self.inserts: list[Insert] = []
        self.settings: Settings | None = None  # for the file's Local Variables; None keeps what is there
        self._known_since = 0  # the last row of the run before; of earlier inserts nothing is kept
        self._prompt = ""
        self._inserted_prompt = False
        self._anchor = 0
        self._versions: deque[Version] = deque(maxlen=8)
        self._writer: DocumentWriter | None = None
        self._epoch = 0  # counts what makes a writer in a thread useless
        self._waiting: list[Insert] = []  # inserts the daemon has yet to put into the file
        self._writing: asyncio.Task[None] | None = None
        self._later: asyncio.Task[None] | None = None
        self._last_persist = 0.0
        self._saved = asyncio.Event()

    # -- a run begins and goes on ------------------------------------------------------------------------------

    def begin(self, *, prompt: str, inserted_prompt: bool, anchor: int, version: Version) -> None:
        """Start keeping a run whose first insert goes to ``anchor`` of the document in its state ``version``.

        ``inserted_prompt`` says that the first insert is the prompt; else the document holds it already.
        """
        self._known_since = self.inserts[-1].seq if self.inserts else 0
        self.inserts = []
        self._prompt, self._inserted_prompt, self._anchor = prompt, inserted_prompt, anchor
        self._versions.clear()
        self._versions.append(version)
        self._forget_writer()

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

    async def settle(self) -> None:
        """Return when the file holds the whole last run, so that the next one can begin.

        Raises:
            Busy: Its editor does not save.
            StoreError: The disk refused.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SAVED_WITHIN_S):
                while self.editor is not None and not self.complete:
                    self._saved.clear()
                    await self._saved.wait()
        await self.flush()
        if not self.complete:
            raise Busy(f"The editor of {self._path} has not saved the last answer", mend="Save it there, then go on")

    # -- clients -----------------------------------------------------------------------------------------------

    def version(self, sha256: str) -> Version | None:
        """Return the known version with this hash; a file that holds the whole run is known by being on disk."""
        for version in reversed(self._versions):
            if version.sha256 == sha256:
                return version
        if self.complete and document.body_sha256(document.read(self._path).body) == sha256:
            return Version(sha256=sha256, seq=self.inserts[-1].seq if self.inserts else 0, marker=None)
        return None

    def knows_since(self, seq: int) -> bool:
        """Return whether ``missing`` can tell everything that came after row ``seq``."""
        return seq >= self._known_since

    def missing(self, version: Version) -> list[Insert]:
        """Return the inserts that a client at ``version`` does not have."""
        return [insert for insert in self.inserts if insert.seq > version.seq]

    def lease(self, sink: Sink, version: Version | None, *, take: bool = False) -> bool:
        """Make ``sink`` the editor if nobody else is, or by force; from now on the daemon leaves the file alone."""
        if self.editor is None or take:
            self.editor = sink
            self._forget_writer()
            if version is not None and version not in self._versions:
                self._versions.append(version)
        return self.editor is sink

    def saved(self, version: Version) -> None:
        """Note what the editor wrote."""
        self._versions.append(version)
        self._saved.set()

    def release(self, sink: Sink) -> None:
        """Take the lease back; the daemon writes what the editor had not saved."""
        if self.editor is not sink:
            return
        self.editor = None
        self._saved.set()
        self._forget_writer()
        self._schedule()

    def recover(self, *, prompt: str, inserted_prompt: bool, anchor: int, inserts: list[Insert]) -> None:
        """Keep a run of an earlier daemon, of which the file may hold any part; writes the rest at once.

        Raises:
            StoreError: The disk refused.
        """
        self.inserts = inserts
        self._prompt, self._inserted_prompt, self._anchor = prompt, inserted_prompt, anchor
        self._waiting = []
        _, version, _ = self._next_writing(()).perform()
        self._versions.append(version)

    # -- writing -----------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Return when the file holds everything the daemon has to write.

        Raises:
            StoreError: The disk refused.
        """
        while self._due:
            await self._write()

    def close(self) -> None:
        """Write nothing any more."""
        if self._later is not None:
            self._later.cancel()

    @property
    def _due(self) -> bool:
        return self.editor is None and (bool(self._waiting) or not self.complete)

    def _schedule(self) -> None:
        if self._due and (self._later is None or self._later.done()):
            self._later = asyncio.create_task(self._write_later())

    async def _write_later(self) -> None:
        while self._due:
            await asyncio.sleep(max(0.0, self._last_persist + PERSIST_EVERY_S - time.monotonic()))
            try:
                await self._write()
            except StoreError as error:  # said by the run's own end, which tries again
                log.error("%s", error)
                return

    async def _write(self) -> None:
        """Write once; there is never more than one write, and whoever waits for it may be cancelled."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._persist())
        await asyncio.shield(self._writing)

    async def _persist(self) -> None:
        self._last_persist = time.monotonic()
        waiting, self._waiting = self._waiting, []
        writing, epoch = self._next_writing(waiting), self._epoch
        self._writer = None  # after a failure it is found again from file and inserts
        writer, version, mtime = await asyncio.to_thread(writing.perform)
        if self._epoch == epoch:
            self._writer = writer
            self._versions.append(version)
        self._persisted(version, mtime)

    def _next_writing(self, waiting: Sequence[Insert]) -> Writing:
        return Writing(
            path=self._path,
            writer=self._writer,
            waiting=waiting,
            inserts=tuple(self.inserts),
            versions=tuple(self._versions),
            prompt=self._prompt,
            inserted_prompt=self._inserted_prompt,
            anchor=self._anchor,
            settings=self.settings,
        )

    def _forget_writer(self) -> None:
        """Read the file before it is written again; which inserts it lacks is found out then."""
        self._epoch += 1
        self._writer = None
        self._waiting = []

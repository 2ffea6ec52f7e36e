"""Who writes ``session.md``: the editor that holds the lease, or the daemon while nobody does (DESIGN §3).

The keeper remembers what the current or last run inserted and which versions of the file (by hash of the body) hold
how much of it. From that follows what an attaching client misses, and where the daemon goes on when an editor
disappears. How one write is done is ``persist``'s business; here is when, and that there is one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

from pyagentd.agent.branches.persist import Lacking, Roles, Version, Writing, Written
from pyagentd.errors import Busy, StoreError
from pyagentd.events import Sink
from pyagentd.store.document.files import DocumentWriter, memory
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import Settings, Span, merged

log = logging.getLogger(__name__)

PERSIST_EVERY_S = 1.0
PERSIST_TOGETHER_S = 0.05  # ... and this for each document that is being written by and by
_WRITERS_KEPT = 20  # of a crowd; each holds its whole document
SAVED_WITHIN_S = 6.0  # an editor saves by itself at most 5 s after a change (DESIGN §3, rule 7)


class Keeper:
    """Keeps one branch's ``session.md``.

    Args:
        path: The file.
        persisted: Told of every write.

    Attributes:
        editor: The client that writes the file, if any; who may become it is the business of ``Lease``.
        inserts: What the current or last run put into the document.
        settings: For the file's Local Variables; None keeps what is there.
        seen: What these said when that was decided; what somebody changed since is kept.
        refusal: Why nothing is to be written, or "".
    """

    def __init__(self, path: Path, *, persisted: Callable[[Written], None]) -> None:
        self._path = path
        self._persisted = persisted
        self.editor: Sink | None = None
        self.inserts: list[Insert] = []
        self.writes = 0  # how many were begun; who looks at the file sees by it whether it stayed as it was
        self.settings: Settings | None = None
        self.seen: Settings | None = None
        self.refusal = ""
        self._roles: Roles | None = None  # to be written
        self._told: Roles | None = None  # to be written by the editor
        self._renew = False
        self._edition = 0
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
        self._versions.append(replace(version, edition=self._edition))
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

    async def settle_roles(self) -> None:
        """Return when the file has the roles that its editor was told, for who reads it and is not that editor.

        Raises:
            StoreError: The file cannot be read.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SAVED_WITHIN_S):
                while self.editor is not None and not await self._has_told_roles():
                    await self._saved.wait()
        self._told = None  # who does not save them in that time does not know them

    async def _has_told_roles(self) -> bool:
        """Return whether the file has the roles that its editor was told, or another text, saved since.

        Raises:
            StoreError: The file cannot be read.
        """
        self._saved.clear()  # what is saved while it is read is looked at again
        if (told := self._told) is None:
            return True
        read = await asyncio.to_thread(memory.read, self._path)
        has = read.sha256 != told.sha256 or [*merged(read.document.spans)] == [*merged(told.spans)]
        if self._told is told and has:
            self._told = None
        return self._told is None

    # -- clients -----------------------------------------------------------------------------------------------

    def version(self, sha256: str) -> Version | None:
        """Return the known version with this hash."""
        return next((version for version in reversed(self._versions) if version.sha256 == sha256), None)

    def is_latest(self, version: Version) -> bool:
        """Return whether ``version`` and what it misses make the document as it is: nobody edited it since."""
        return version.edition == self._edition

    def on_disk(self, sha256: str) -> Version:
        """Return the version of a file with this hash that holds the whole run, whoever wrote it."""
        seq = self.inserts[-1].seq if self.inserts else 0
        return Version(sha256=sha256, seq=seq, marker=None, edition=self._edition)

    def knows_since(self, seq: int) -> bool:
        """Return whether ``missing`` can tell everything that came after row ``seq``."""
        return seq >= self._known_since

    def missing(self, version: Version) -> list[Insert]:
        """Return the inserts that a client at ``version`` does not have."""
        return [insert for insert in self.inserts if insert.seq > version.seq]

    def lease(self, sink: Sink, version: Version | None) -> bool:
        """Make ``sink`` the editor if nobody else is; from now on the daemon leaves the file alone."""
        if self.editor is None:
            self.editor = sink
            self._forget_writer()
            self._told, self._roles = self._roles, None
            if version is not None and version.marker is not None and self.version(version.sha256) is None:
                self._versions.append(version)
        return self.editor is sink

    def saved(self, version: Version) -> None:
        """Note what the editor wrote."""
        if self.version(version.sha256) is None:
            self._edition += 1
        self._versions.append(replace(version, edition=self._edition))
        self._saved.set()

    def release(self, sink: Sink) -> None:
        """Take the lease back; the daemon writes what the editor had not saved."""
        if self.editor is not sink:
            return
        self.editor = None
        self._roles, self._told = self._told, None
        self._saved.set()
        self._forget_writer()
        self._schedule()

    def heal(self, sha256: str, spans: tuple[Span, ...]) -> None:
        """Have roles written into the file while it holds the text with this hash, by its editor if there is one."""
        roles = Roles(sha256=sha256, spans=spans)
        if self.editor is not None:
            self._told = roles
            return
        self._roles = roles
        self._forget_writer()
        self._schedule()

    def renew(self) -> None:
        """Have the file written even if it lacks nothing, so that whoever read it finds that it changed."""
        self._renew = True

    def recall(self, *, prompt: str, inserted_prompt: bool, anchor: int, inserts: list[Insert]) -> None:
        """Keep a run of an earlier daemon, of which the file may hold any part; ``flush`` writes the rest."""
        self.inserts = inserts
        self._prompt, self._inserted_prompt, self._anchor = prompt, inserted_prompt, anchor
        self._waiting = []

    async def survey(self) -> Lacking:
        """Return what the file as it is lacks of the run, without writing it; also what came while it was read.

        Raises:
            StoreError: The disk refused.
        """
        while True:
            run, known = self.inserts, len(self.inserts)
            lacking = await asyncio.to_thread(self._next_writing(()).survey)
            if self.inserts is run:
                return replace(lacking, inserts=(*lacking.inserts, *run[known:]))

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
        if self.editor is not None or self.refusal:
            return False
        return bool(self._waiting) or not self.complete or self._renew or self._roles is not None

    def _schedule(self) -> None:
        if self._due and (self._later is None or self._later.done()):
            self._later = asyncio.create_task(self._write_later())

    async def _write_later(self) -> None:
        _by_and_by.add(self)
        try:
            await self._write_by_and_by()
        finally:
            _by_and_by.discard(self)

    async def _write_by_and_by(self) -> None:
        while self._due:
            every_s = max(PERSIST_EVERY_S, PERSIST_TOGETHER_S * len(_by_and_by))
            await asyncio.sleep(max(0.0, self._last_persist + every_s - time.monotonic()))
            try:
                await self._write()
            except StoreError as error:  # said by the run's own end, which tries again
                log.error("%s", error)
                return

    async def _write(self) -> None:
        """Write once; there is never more than one write, and whoever waits for it may be cancelled."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._persist())
            self._writing.add_done_callback(_retrieve)
        await asyncio.shield(self._writing)

    async def _persist(self) -> None:
        if not self._due:
            return  # somebody became the editor since this was wanted
        self.writes += 1
        self._last_persist = time.monotonic()
        waiting, self._waiting = self._waiting, []
        writing, epoch = self._next_writing(waiting), self._epoch
        self._writer = None  # after a failure it is found again from file and inserts
        written = await asyncio.to_thread(writing.perform)
        if self._roles is writing.roles:
            self._roles = None
        self._renew = False
        if written.foreign:
            self._edition += 1
        version = replace(written.version, edition=self._edition)
        if self.settings is writing.settings:
            self.seen = self.settings
        if self._epoch == epoch:
            self._writer = written.writer if len(_by_and_by) <= _WRITERS_KEPT else None  # then the file is read again
            self._versions.append(version)
        self._persisted(replace(written, version=version))

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
            seen=self.seen,
            roles=self._roles,
            renew=self._renew,
        )

    def _forget_writer(self) -> None:
        """Read the file before it is written again; which inserts it lacks is found out then."""
        self._epoch += 1
        self._writer = None
        self._waiting = []


def _retrieve(writing: asyncio.Task[None]) -> None:
    """Take note of a failure: whoever waited may have been cancelled, and whoever comes next finds out anew."""
    if not writing.cancelled():
        writing.exception()


_by_and_by: WeakSet[Keeper] = WeakSet()  # those that write now and then while their runs go on

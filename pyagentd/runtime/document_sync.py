"""Keeps ``session.md`` in step with the log: by the client that holds the edit lease, else by the daemon.

``DocumentSync`` remembers what the current or last run inserted and which versions of the file (by hash of the body)
hold how much of it. From that follows what an attaching client misses, and where the daemon goes on when an editor
disappears. It decides when to write, and that there is one write at a time.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pyagentd.errors import Busy, StoreError
from pyagentd.events import Sink
from pyagentd.policy.action import canonical_tool, is_ours
from pyagentd.policy.presets import Preset
from pyagentd.runtime.recorder import Recorder
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import adopt
from pyagentd.store.document.files import DocumentWriter, document_cache
from pyagentd.store.document.reconcile import locate, recognise
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import PROMPT_PREFIX, Condition, Document, Settings, Span, Stamp, inspect, stamp_of
from pyagentd.store.document.text import merged as merged_
from pyagentd.store.paths import BranchRef
from pyagentd.wire.sexp import tagged

log = logging.getLogger(__name__)


# The document of a branch as it is on disk, compared with the record: recovered roles, lost messages, notes.
#
# Reading and aligning megabytes blocks, so it runs in a thread; a file that is as it was last time is not read
# again, and a text that we know to have been written with its roles is not aligned.


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentReading:
    """What the file says.

    Attributes:
        stamp: Of which state of the file; None when there is none.
        sha256: Hash of its body.
        settings: Its Local Variables.
        spans: Roles that the file has lost; None when its own are right.
        before: The document that lacked them.
        facts: Rows that the log lacks of what the document shows.
        notes: What is wrong, one line each, for people.
    """

    stamp: Stamp | None
    sha256: str
    settings: Settings
    spans: tuple[Span, ...] | None = None
    before: Document | None = None
    facts: tuple[adopt.Fact, ...] = ()
    notes: tuple[str, ...] = ()


def read(
    file: Path, conversation: Conversation, *, session_id: str, now_ms: int, sound: Callable[[str], bool]
) -> DocumentReading:
    """Read a document and find out what it and the record lack of each other.

    Args:
        file: The document.
        conversation: The record.
        session_id: Whose messages become those that only the document has.
        now_ms: When they do, in epoch milliseconds.
        sound: Tells of the hash of a body whether it was written with its roles, so that nothing can be lacking.

    Raises:
        StoreError: The file cannot be read.
    """
    condition = inspect(file)
    doc = condition.document
    as_found = DocumentReading(
        stamp=condition.stamp, sha256=condition.sha256, settings=doc.settings, notes=condition.notes
    )
    answered = any(message.role == "assistant" for message in conversation.messages.values())
    if not answered and not doc.spans:
        return as_found
    if sound(condition.sha256) and doc.spans and not doc.stale:
        return as_found
    return _compared(as_found, condition, conversation, session_id, now_ms)


def _compared(
    as_found: DocumentReading, condition: Condition, conversation: Conversation, session_id: str, now_ms: int
) -> DocumentReading:
    doc = condition.document
    alignment = recognise(doc, conversation)
    notes = list(condition.notes)
    if alignment.lost is not None:
        notes += [note for note in alignment.aligned().notes if note not in notes]
    if all(piece.message or piece.found.key[0] not in ("response", "tool") for piece in alignment.pieces):
        return replace(as_found, spans=_changed(doc, alignment.document), before=doc, notes=tuple(notes))
    adopted = adopt.adopt(alignment, conversation, session_id=session_id, now_ms=now_ms)
    return replace(
        as_found,
        spans=_changed(doc, adopted.document),
        before=doc,
        facts=adopted.facts,
        notes=(*notes, *adopted.notes),
    )


def _changed(before: Document, after: Document) -> tuple[Span, ...] | None:
    # Of a damaged block Emacs may have read less than we did.
    return None if after.spans == before.spans and not before.stale else after.spans


class DocumentReader:
    """Reads one branch's document when it changed.

    Args:
        ref: The branch.
        recorder: Its record.

    Attributes:
        last: What was read or written last; None before.
        recovery: The document before the last recovery of roles, and the roles after it.
    """

    def __init__(self, ref: BranchRef, recorder: Recorder) -> None:
        self.last: DocumentReading | None = None
        self.recovery: tuple[Document, tuple[Span, ...]] | None = None
        self._ref = ref
        self._file = paths.session_file(ref.branch_dir)
        self._recorder = recorder
        self._sound: deque[str] = deque(maxlen=8)  # hashes of bodies that were written with their roles
        self._compared = False
        self._turn = asyncio.Lock()

    async def look(self, *, compare: bool) -> DocumentReading:
        """Return what the file says; with ``compare`` also what it and the record lack of each other.

        Raises:
            StoreError: The file cannot be read.
        """
        async with self._turn:
            last = self.last
            if last is not None and last.stamp == stamp_of(self._file) and (self._compared or not compare):
                return last
            conversation, seq = self._recorder.conversation.snapshot(), self._recorder.last_seq
            sound = frozenset(self._sound)
            reading = await asyncio.to_thread(
                read,
                self._file,
                conversation,
                session_id=self._ref.session_id,
                now_ms=self._recorder.now_ms(),
                sound=lambda sha256: not compare or sha256 in sound,
            )
            lacked = self._record(reading) if self._recorder.last_seq == seq else ""
            reading = replace(reading, facts=())
            self._keep(reading, compared=compare)
            return replace(reading, notes=(*reading.notes, lacked)) if lacked else reading

    def wrote(self, *, stamp: Stamp | None, sha256: str, settings: Settings) -> None:
        """Note that the daemon wrote the file."""
        self._keep(DocumentReading(stamp=stamp, sha256=sha256, settings=settings), compared=True)

    def trust(self, sha256: str) -> None:
        """Note that an editor, which knows the roles, wrote a body with this hash."""
        self._sound.append(sha256)

    def forget(self) -> None:
        """Compare document and record anew: what their roles should be has changed."""
        self.last = None
        self._sound.clear()

    def _record(self, reading: DocumentReading) -> str:
        """Record what the log lacks, and return how that is said, "" when it lacks no message."""
        messages = sum(kind == "message" for kind, _ in reading.facts)
        try:
            self._recorder.adopt(reading.facts)
        except StoreError:  # a disk that refuses is said where the branch is opened
            return ""
        lacked = "1 message" if messages == 1 else f"{messages} messages"
        return f"{paths.JOURNAL_FILE} lacked {lacked} of this document; recorded now" if messages else ""

    def _keep(self, reading: DocumentReading, *, compared: bool) -> None:
        self.last, self._compared = reading, compared
        if reading.spans is None:
            if compared:
                self._sound.append(reading.sha256)
        elif reading.before is not None:
            self.recovery = (reading.before, reading.spans)


# Local Variables that the user changed: an override of the preset for that branch.
#
# The block at the end of a document says what gptel's user would see: model, backend, tools, temperature, maximum
# tokens. What we wrote there last is recorded; a value that differs from it was put there by somebody else and holds
# for the branch's runs until it is kept (written to ``preset.md``) or dropped. A value that is missing says nothing.

FIELDS = ("model", "backend", "tools", "temperature", "max_tokens")

_GPTELS = re.compile(r"(?!mcp__)[^:*\s]+")  # neither a server's tool nor a name for several

Override = Mapping[str, Any]
"""Values that the user set, by the names in ``FIELDS``."""


def settings_of(preset: Preset) -> Settings:
    """Return what a preset says, in gptel's terms; ``settings_in_document`` is what of it the document has."""
    return Settings(
        model=preset.model or None,
        backend=preset.backend,
        tools=preset.tools,
        temperature=preset.temperature,
        max_tokens=preset.max_tokens,
    )


def settings_in_document(settings: Settings) -> Settings:
    """Return what the document's Local Variables say of a preset's ``settings``: of the tools those gptel can have.

    Stock gptel warns of each that it does not know, and ours it cannot have. None that it can have is no word about
    tools.
    """
    if settings.tools is None:
        return settings
    tools = tuple(name for name in settings.tools if not is_ours(name) and _GPTELS.fullmatch(name))
    return replace(settings, tools=tools or None)


def find_override(block: Settings, written: Settings | None, preset: Preset) -> Override:
    """Return what the user set.

    Args:
        block: What the document says.
        written: What we wrote there last; None when we never did.
        preset: The branch's configuration; what is as it says is no override.
    """
    own = settings_of(preset)
    known = (own, settings_in_document(own) if written is None else written)
    return {
        name: getattr(block, name)
        for name in FIELDS
        if getattr(block, name) is not None
        and not any(_same(getattr(block, name), getattr(settings, name)) for settings in known)
    }


def _same(said: Any, known: Any) -> bool:
    # gptel writes nil where none of its own tools is on.
    return bool(said == known or (said == () and known is None))


def effective_settings(preset: Preset, override: Override) -> Settings:
    """Return what the document's Local Variables say of a branch with this override."""
    holds = settings_of(preset_with_overrides(preset, override))
    return holds if "tools" in override else settings_in_document(holds)


def preset_with_overrides(preset: Preset, override: Override) -> Preset:
    """Return the preset that holds for a run of a branch with this override."""
    values = dict(override)
    if "tools" in values:
        values["tools"] = tuple(canonical_tool(name) for name in values["tools"])
    return replace(preset, **values)


def merged_settings(found: Settings, seen: Settings | None, wanted: Settings) -> Settings:
    """Return ``wanted`` with what was changed in the file since it was ``seen``, where ``found`` is there now."""
    if seen is None:
        return wanted
    changed = {
        name: getattr(found, name)
        for name in FIELDS
        if getattr(found, name) is not None and getattr(found, name) != getattr(seen, name)
    }
    return replace(wanted, **changed)


def to_json(settings: Settings) -> dict[str, Any]:
    """Return the settings as the session's metadata keep them."""
    values = {name: getattr(settings, name) for name in FIELDS}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_json(data: Mapping[str, Any] | None) -> Settings | None:
    """Return what ``to_json`` made, None for None."""
    if data is None:
        return None
    tools = data.get("tools")
    return Settings(
        model=data.get("model"),
        backend=data.get("backend"),
        tools=None if tools is None else tuple(tools),
        temperature=data.get("temperature"),
        max_tokens=data.get("max_tokens"),
    )


# One write of ``session.md`` by the daemon: what is in the file, what it lacks, and where that goes.
#
# Runs in a thread, on values that nobody else changes meanwhile. Text that was not read is never overwritten: a file
# that changed on disk is read again and the insertion point is found anew.


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentVersion:
    """One known state of the file's body.

    ``marker`` is the offset (code points from 0) where the run's next insert goes, or None when no run was active.
    Versions of the same ``edition`` differ by inserts alone: nobody edited in between.
    """

    sha256: str
    seq: int
    marker: int | None
    edition: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredRoles:
    """Recovered roles of the body with hash ``sha256``."""

    sha256: str
    spans: tuple[Span, ...]

    def to_wire(self) -> list[tuple[int, int, object]]:
        """Return them as clients are told: first position (from 1), position behind the last, role."""
        return [
            (start + 1, end + 1, tagged(("tool", call_id) if kind == "tool" else kind))
            for start, end, kind, call_id in self.spans
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """What a write led to."""

    writer: DocumentWriter
    version: DocumentVersion
    foreign: bool  # the file held what nobody had reported


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingInserts:
    """What a file, whose body has hash ``sha256``, lacks of a run: it goes to ``marker``."""

    sha256: str
    marker: int
    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWrite:
    """What is to be written.

    Attributes:
        path: The file.
        writer: Who wrote it last, or None when the file is to be read.
        waiting: The inserts that ``writer`` does not have yet.
        inserts: All inserts of the run.
        versions: States of the file that are known to hold some of them.
        prompt: The prompt's text.
        inserted_prompt: Whether the first insert is the prompt; else the user wrote it into the document.
        anchor: Where the first insert went, in the document as it was when the run began.
        settings: For the Local Variables; None keeps what is there.
        seen: What these said when that was decided.
        roles: Recovered ones, for the file if it still holds the text they are of.
        renew: Write even if the file lacks nothing.
    """

    path: Path
    writer: DocumentWriter | None
    waiting: Sequence[Insert]
    inserts: Sequence[Insert]
    versions: Sequence[DocumentVersion]
    prompt: str
    inserted_prompt: bool
    anchor: int
    settings: Settings | None
    seen: Settings | None = None
    roles: RecoveredRoles | None = None
    renew: bool = False

    def perform(self) -> WriteOutcome:
        """Write what is missing.

        Raises:
            StoreError: The disk refused.
        """
        writer, missing, foreign = self.writer, self.waiting, False
        if writer is None or writer.changed_on_disk():
            writer, missing, foreign = self._reopened()
            if self.settings is not None:
                writer.set_settings(merged_settings(writer.document.settings, self.seen, self.settings))
        writer.insert(*missing)
        if self.renew:
            writer.renew()
        sha256 = writer.persist()
        seq = self.inserts[-1].seq if self.inserts else 0
        return WriteOutcome(
            writer=writer, version=DocumentVersion(sha256=sha256, seq=seq, marker=writer.marker), foreign=foreign
        )

    def survey(self) -> MissingInserts:
        """Return what the file lacks, without writing.

        Raises:
            StoreError: The disk refused.
        """
        writer, missing, _ = self._reopened()
        return MissingInserts(sha256=writer.sha256, marker=writer.marker, inserts=tuple(missing))

    def _reopened(self) -> tuple[DocumentWriter, Sequence[Insert], bool]:
        """Read the file and find out which inserts it lacks, where they go, and whether its text is a surprise."""
        writer = DocumentWriter.load(self.path)
        sha256 = writer.sha256
        if self.roles is not None and self.roles.sha256 == sha256:
            writer.set_spans(self.roles.spans)
        for version in reversed(self.versions):
            if version.sha256 == sha256 and version.marker is not None:
                writer.marker = version.marker
                return writer, [insert for insert in self.inserts if insert.seq > version.seq], False
        writer.marker, missing = self._located(writer)
        foreign = all(version.sha256 != sha256 for version in self.versions)
        if foreign and self.inserts:
            log.info("%s changed outside; %d inserts of the run go on at %d", self.path, len(missing), writer.marker)
        return writer, missing, foreign

    def _located(self, writer: DocumentWriter) -> tuple[int, Sequence[Insert]]:
        body, inserts = writer.body, self.inserts
        inserted = ""
        if self.inserted_prompt:
            first, *inserts = inserts
            inserted = first.text
            if _start_of(inserted, self.prompt, body, self.anchor) is None:  # so nothing of the run is there
                return self._place_of_prompt(writer), self.inserts
        anchor = after_prompt(body, self.prompt, inserted=inserted, anchor=self.anchor)
        found = locate(body, writer.spans, anchor, inserts)
        written = max((version.seq for version in self.versions), default=0)
        if found[1] and (not self.versions or found[1][0].seq <= written):
            # It was, or may have been, there once: either it was removed, or what changed the text shifted the roles.
            by_roles = locate(body, writer.spans, anchor, inserts, written=written)
            by_text = locate(body, (), anchor, inserts, written=written)
            return max(by_roles, by_text, key=lambda place: place[0])
        return found

    def _place_of_prompt(self, writer: DocumentWriter) -> int:
        """Return where a prompt goes that the text lacks: where it went, if that is below the last answer still."""
        answered = max((span.end for span in writer.spans), default=0)
        stands = answered <= self.anchor and writer.body.endswith(PROMPT_PREFIX, 0, self.anchor)
        return self.anchor if stands and self.anchor <= len(writer.body) else len(writer.body)


def after_prompt(body: str, prompt: str, *, inserted: str, anchor: int) -> int:
    """Return where a run's prompt ends in a text that may have been edited since the run began.

    Args:
        body: The text.
        prompt: The prompt as the user wrote it.
        inserted: It as we inserted it, "" when it stood in the document already.
        anchor: Where the run's first insert went, in the document as it was.
    """
    if inserted:
        start = _start_of(inserted, prompt, body, anchor)
        return len(body) if start is None else start + len(inserted)
    if body.endswith(prompt, 0, anchor):
        return anchor
    found = body.rfind(prompt)
    return anchor if found < 0 else found + len(prompt)


def _start_of(inserted: str, prompt: str, body: str, anchor: int) -> int | None:
    """Return where the prompt that we inserted stands in such a text, or None."""
    if body.startswith(inserted, anchor):
        return anchor
    heading = PROMPT_PREFIX + prompt
    found = body.rfind(heading)
    start = found + len(heading) - len(inserted)
    return start if found >= 0 and body.startswith(inserted, start) else None


PERSIST_EVERY_S = 1.0
PERSIST_TOGETHER_S = 0.05  # ... and this for each document that is being written by and by
_WRITERS_KEPT = 20  # of a crowd; each holds its whole document
SAVED_WITHIN_S = 6.0  # an editor saves by itself at most 5 s after a change


class DocumentSync:
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

    def __init__(self, path: Path, *, persisted: Callable[[WriteOutcome], None]) -> None:
        self._path = path
        self._persisted = persisted
        self.editor: Sink | None = None
        self.inserts: list[Insert] = []
        self.writes = 0  # how many were begun; who looks at the file sees by it whether it stayed as it was
        self.settings: Settings | None = None
        self.seen: Settings | None = None
        self.refusal = ""
        self._roles: RecoveredRoles | None = None  # to be written
        self._told: RecoveredRoles | None = None  # to be written by the editor
        self._renew = False
        self._edition = 0
        self._known_since = 0  # the last row of the run before; of earlier inserts nothing is kept
        self._prompt = ""
        self._inserted_prompt = False
        self._anchor = 0
        self._versions: deque[DocumentVersion] = deque(maxlen=8)
        self._writer: DocumentWriter | None = None
        self._epoch = 0  # counts what makes a writer in a thread useless
        self._waiting: list[Insert] = []  # inserts the daemon has yet to put into the file
        self._writing: asyncio.Task[None] | None = None
        self._later: asyncio.Task[None] | None = None
        self._last_persist = 0.0
        self._saved = asyncio.Event()

    # -- a run begins and goes on ------------------------------------------------------------------------------

    def begin(self, *, prompt: str, inserted_prompt: bool, anchor: int, version: DocumentVersion) -> None:
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
            raise Busy(f"The editor of {self._path} has not saved the last answer", hint="Save it there, then go on")

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
        read = await asyncio.to_thread(document_cache.read, self._path)
        has = read.sha256 != told.sha256 or [*merged_(read.document.spans)] == [*merged_(told.spans)]
        if self._told is told and has:
            self._told = None
        return self._told is None

    # -- clients -----------------------------------------------------------------------------------------------

    def version(self, sha256: str) -> DocumentVersion | None:
        """Return the known version with this hash."""
        return next((version for version in reversed(self._versions) if version.sha256 == sha256), None)

    def is_latest(self, version: DocumentVersion) -> bool:
        """Return whether ``version`` and what it misses make the document as it is: nobody edited it since."""
        return version.edition == self._edition

    def on_disk(self, sha256: str) -> DocumentVersion:
        """Return the version of a file with this hash that holds the whole run, whoever wrote it."""
        seq = self.inserts[-1].seq if self.inserts else 0
        return DocumentVersion(sha256=sha256, seq=seq, marker=None, edition=self._edition)

    def knows_since(self, seq: int) -> bool:
        """Return whether ``missing`` can tell everything that came after row ``seq``."""
        return seq >= self._known_since

    def missing(self, version: DocumentVersion) -> list[Insert]:
        """Return the inserts that a client at ``version`` does not have."""
        return [insert for insert in self.inserts if insert.seq > version.seq]

    def lease(self, sink: Sink, version: DocumentVersion | None) -> bool:
        """Make ``sink`` the editor if nobody else is; from now on the daemon leaves the file alone."""
        if self.editor is None:
            self.editor = sink
            self._forget_writer()
            self._told, self._roles = self._roles, None
            if version is not None and version.marker is not None and self.version(version.sha256) is None:
                self._versions.append(version)
        return self.editor is sink

    def saved(self, version: DocumentVersion) -> None:
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
        roles = RecoveredRoles(sha256=sha256, spans=spans)
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

    async def survey(self) -> MissingInserts:
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

    def _next_writing(self, waiting: Sequence[Insert]) -> PendingWrite:
        return PendingWrite(
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


_by_and_by: WeakSet[DocumentSync] = WeakSet()  # those that write now and then while their runs go on


# Who may edit a branch: asking the present editor to leave, and telling everybody when nobody edits.
#
# ``DocumentSync`` knows who is the editor; here is how that changes. Who wants to take over waits for its turn, the
# present editor is asked first and has time to save and let go, and one that stays silent loses the lease. It may
# wake up any time later with text that it never saved: the file is written anew before the next editor reads it, so
# that Emacs finds a file that changed and leaves it alone.

SILENT_S = 10.0  # how long an editor may take to let go


class Lease:
    """Gives the right to edit to one client at a time.

    Args:
        document: Who writes when nobody edits.
        tell: Tells one client what happened to the lease: the argument of event ``lease``.
        tell_others: Tells all clients but one.
    """

    def __init__(
        self,
        document: DocumentSync,
        *,
        tell: Callable[[Sink, Mapping[str, str]], None],
        tell_others: Callable[[Sink, Mapping[str, str]], None],
    ) -> None:
        self._document = document
        self._tell = tell
        self._tell_others = tell_others
        self._turn = asyncio.Lock()  # of several that take over, one after the other
        self._taking: list[Sink] = []
        self._left = asyncio.Event()

    def offer(self, sink: Sink, version: DocumentVersion | None) -> bool:
        """Make ``sink`` the editor if nobody else is, and nobody else is about to be."""
        if self._document.editor is None and self._taking and self._taking[0] is not sink:
            return False
        return self._document.lease(sink, version)

    async def take(self, sink: Sink, by: str) -> bool:
        """Make ``sink``, which people know as ``by``, the editor in place of whoever is; False when it went away.

        The file then holds all that the daemon and the editor before had to write; ``sink`` reads it anew.
        """
        self._taking.append(sink)
        try:
            async with self._turn:
                await self._clear_for(sink, by)
                return sink in self._taking and self._document.lease(sink, None)
        finally:
            if sink in self._taking:
                self._taking.remove(sink)
            self._tell_if_free(sink)

    def release(self, sink: Sink) -> None:
        """Take the lease back from ``sink``, or its wish to have it."""
        if sink in self._taking:
            self._taking.remove(sink)
        if self._document.editor is sink:
            self._document.release(sink)
            self._left.set()
            self._tell_if_free(sink)

    async def _clear_for(self, sink: Sink, by: str) -> None:
        """Return when nobody but ``sink`` edits, and the file is complete."""
        present = self._document.editor
        if present is None or present is sink:
            return
        self._tell(present, {"state": "wanted", "by": by})
        if not await self._let_go(present):
            log.info("an editor was silent for %g s and lost the lease", SILENT_S)
            self._document.release(present)
            self._document.renew()
            self._tell(present, {"state": "lost", "by": by})
        with contextlib.suppress(StoreError):  # it is said where the file is written next
            await self._document.flush()

    async def _let_go(self, present: Sink) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENT_S):
                while self._document.editor is present:
                    self._left.clear()
                    await self._left.wait()
        return self._document.editor is not present

    def _tell_if_free(self, last: Sink) -> None:
        if self._document.editor is None and not self._taking:
            self._tell_others(last, {"state": "free"})

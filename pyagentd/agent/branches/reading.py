"""The document of a branch as it is on disk, compared with the record: recovered roles, lost messages, notes.

Reading and aligning megabytes blocks, so it runs in a thread; a file that is as it was last time is not read again,
and a text that we know to have been written with its roles is not aligned.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyagentd.agent.branches.recorder import Recorder
from pyagentd.errors import StoreError
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import adopt
from pyagentd.store.document.reconcile import Placed, align, placed
from pyagentd.store.document.text import Condition, Document, Settings, Span, Stamp, inspect, stamp_of
from pyagentd.store.paths import BranchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
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
) -> Reading:
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
    as_found = Reading(stamp=condition.stamp, sha256=condition.sha256, settings=doc.settings, notes=condition.notes)
    answered = any(message.role == "assistant" for message in conversation.messages.values())
    if not answered and not doc.spans:
        return as_found
    if sound(condition.sha256) and doc.spans and not doc.stale:
        return as_found
    return _compared(as_found, condition, conversation, session_id, now_ms)


def _compared(
    as_found: Reading, condition: Condition, conversation: Conversation, session_id: str, now_ms: int
) -> Reading:
    doc = condition.document
    healed, pieces = placed(doc, conversation)
    notes = list(condition.notes)
    if healed is not doc:
        notes += [note for note in align(doc, conversation).notes if note not in notes]
    if not _has_unrecorded(pieces):
        return replace(as_found, spans=_changed(doc, healed), before=doc, notes=tuple(notes))
    adopted = adopt.adopted(doc, conversation, session_id=session_id, now_ms=now_ms)
    return replace(
        as_found,
        spans=_changed(doc, adopted.document),
        before=doc,
        facts=adopted.facts,
        notes=(*notes, *adopted.notes),
    )


def _has_unrecorded(pieces: Sequence[Placed]) -> bool:
    return any(piece.message is None and piece.found.key[0] in ("response", "tool") for piece in pieces)


def _changed(before: Document, after: Document) -> tuple[Span, ...] | None:
    # Of a damaged block Emacs may have read less than we did.
    return None if after.spans == before.spans and not before.stale else after.spans


class Reader:
    """Reads one branch's document when it changed.

    Args:
        ref: The branch.
        recorder: Its record.

    Attributes:
        last: What was read or written last; None before.
        recovery: The document before the last recovery of roles, and the roles after it.
    """

    def __init__(self, ref: BranchRef, recorder: Recorder) -> None:
        self.last: Reading | None = None
        self.recovery: tuple[Document, tuple[Span, ...]] | None = None
        self._ref = ref
        self._file = paths.session_file(ref.branch_dir)
        self._recorder = recorder
        self._sound: deque[str] = deque(maxlen=8)  # hashes of bodies that were written with their roles
        self._compared = False
        self._turn = asyncio.Lock()

    async def look(self, *, compare: bool) -> Reading:
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
        self._keep(Reading(stamp=stamp, sha256=sha256, settings=settings), compared=True)

    def trust(self, sha256: str) -> None:
        """Note that an editor, which knows the roles, wrote a body with this hash."""
        self._sound.append(sha256)

    def forget(self) -> None:
        """Compare document and record anew: what their roles should be has changed."""
        self.last = None
        self._sound.clear()

    def _record(self, reading: Reading) -> str:
        """Record what the log lacks, and return how that is said, "" when it lacks no message."""
        messages = sum(kind == "message" for kind, _ in reading.facts)
        try:
            self._recorder.adopt(reading.facts)
        except StoreError:  # a disk that refuses is said where the branch is opened
            return ""
        lacked = "1 message" if messages == 1 else f"{messages} messages"
        return f"{paths.JOURNAL_FILE} lacked {lacked} of this document; recorded now" if messages else ""

    def _keep(self, reading: Reading, *, compared: bool) -> None:
        self.last, self._compared = reading, compared
        if reading.spans is None:
            if compared:
                self._sound.append(reading.sha256)
        elif reading.before is not None:
            self.recovery = (reading.before, reading.spans)

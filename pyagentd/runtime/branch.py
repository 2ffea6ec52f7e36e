"""An open branch: its log, its document, its run and the clients that watch it.

Opened from disk on demand (``opening``) and closed when unused. ``turns`` begins a turn, ``document_sync`` writes the
document and takes edits, ``attach_client`` makes the reply to a client that attaches.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyagentd.clock import Clock, Pulse
from pyagentd.errors import Busy, NotFound, Stale, StoreError
from pyagentd.events import Event, Sink
from pyagentd.policy.presets import Preset
from pyagentd.runtime import document_sync, turns
from pyagentd.runtime.approvals import client_fields
from pyagentd.runtime.document_sync import (
    DocumentReading,
    DocumentSync,
    DocumentVersion,
    Override,
    RunText,
    compare,
    edit_to_wire,
    find_override,
    roles_to_wire,
)
from pyagentd.runtime.opening import OpenedBranch, open_branch, open_ends, refusal_of
from pyagentd.runtime.presets import TurnPresets, names_for_turn, opened_with
from pyagentd.runtime.queue import Waitlist
from pyagentd.runtime.recorder import Recorder
from pyagentd.runtime.run import Run
from pyagentd.runtime.status import Outcome, SessionStatus, tool_event
from pyagentd.runtime.turns import Prompt
from pyagentd.runtime.usage import Meter
from pyagentd.store import paths
from pyagentd.store.document.files import Edit, difference, join_edits
from pyagentd.store.document.reconcile import align
from pyagentd.store.document.render import Insert, Renderer, replay
from pyagentd.store.document.text import Document, Settings, Span, Stamp
from pyagentd.store.journal import Row, session_row
from pyagentd.store.paths import BranchRef
from pyagentd.wire.sexp import to_symbols
from pyagentd.words import quantity

if TYPE_CHECKING:
    from pyagentd.runtime.run_setup import RunPlan


log = logging.getLogger(__name__)

_T = TypeVar("_T")

_AT_A_GLANCE = frozenset({"status", "context", "session"})
"""Kinds of events that change what lists of sessions show of a branch."""

_MOST_ROLES = 4000  # in one event; with more, clients attach again


class LiveBranch:
    """One open branch; use ``LiveBranch.open``.

    Attributes:
        ref: The branch.
        key: Its name on the wire.
        ancestors: The branches above, nearest first.
        top: The branch of a session at the root of its tree.
        recorder: Its log.
        conversation: The recorded messages, kept up to date with every row.
        refusal: Why nothing can be written to it, "" when it can.
        state: Its status; not recorded.
        sinks: The clients that watch it, in order, each with the number of its last request to attach.
        noticed: Called when an event changed what lists of sessions show of it.
        given: The preset's settings that an editor or the daemon last wrote into the document.
        run: The run in flight, until its end is recorded and published.
        task: The task that supervises the run.
        starting: Lock held while a run starts, so that only one starts at a time.
        users: How many operations need the branch to stay open.
        is_compared: Whether document and log were compared since it was opened.
        recovery: The document before the last recovery of roles, and the roles after it.
        queue: The messages that wait for their turn.
        paused: Whether the queue waits until a user continues, after an error or because a user paused it.
        announce: Publishes the turn that is being recorded, called before its run's first text.
        last_run: The run that is resumed, as it was found when the branch was opened.
        meter: Measures its context and cost; None until a feature sets it.
        observers: Called with each row that has a tool result, after it was shown.
        turn: The presets of the run in flight, or of the last one.
        plan: The plan of its last run, reused by the next one.
        notes: What was found when it was opened, one line each, for people.
        emptied: Whether its document was empty when it was opened, and was restored from the log.
        skills_read: Texts of skills that the model has read, by name; they do not change while the branch is open.
        made_from: The name of the preset in ``scope-plan.yml``, with the stamp of that file; None: not read yet.
    """

    def __init__(self, ref: BranchRef, opened: OpenedBranch, *, pulse: Pulse, clock: Clock) -> None:
        self.ref = ref
        self.key = ref.key
        self.ancestors = paths.ancestors_of(ref)
        self.top = (ref, *self.ancestors)[-1]
        self.refusal = opened.refusal
        self.state = SessionStatus(ref.key, self.publish, self._status_extras)
        self.sinks: dict[Sink, int] = {}
        self.noticed: Callable[[], None] = lambda: None
        self._attaching: dict[object, Sink] = {}
        self.given: Settings | None = None
        self._noted: Settings | None = None  # the ``given`` that is recorded
        self._lasting = opened.lasting
        self.run: Run | None = None
        self.task: asyncio.Task[Outcome] | None = None
        self.starting = asyncio.Lock()
        self.turn: TurnPresets | None = None
        self.plan: RunPlan | None = None
        self.meter: Meter | None = None
        self.observers: list[Callable[[Row], None]] = []
        self.users = 0
        self.file = paths.session_file(ref.branch_dir)
        self.notes = (*opened.notes, *opened.lasting)
        self.emptied = opened.emptied
        self.skills_read: dict[str, str] = {}
        self.made_from: tuple[Stamp | None, str | None] | None = None
        self.document = DocumentSync(
            self.file,
            written=self._on_file_written,
            changed=self._on_edit,
            is_watched=lambda: bool(self.sinks),
            refused=lambda cause: self.publish(Event("unsaved", self.key, 0, ({"cause": cause},))),
            replay=self._replay_run,
        )
        self.document.refusal = opened.refusal
        self.conversation = opened.conversation
        self.recorder = Recorder(
            journal=opened.journal,
            conversation=opened.conversation,
            renderer=opened.renderer,
            pulse=pulse,
            clock=clock,
            show=self._show_row,
        )
        self.is_compared = False
        self.recovery: tuple[Document, tuple[Span, ...]] | None = None
        self._notes: tuple[str, ...] = ()  # of the last comparison
        self._comparing = asyncio.Lock()
        self.queue = Waitlist(self.recorder, ref.session_id)
        # After an error, or when a user paused it, the queue waits for a user; a restart is not an error.
        latest = opened.conversation.last_run
        self.paused = latest is not None and (latest.data.get("reason") == "error" or bool(latest.data.get("paused")))
        self.announce: Callable[[], None] | None = None
        self.last_run: RunText | None = None
        if opened.last_run is not None:
            self.document.recall(opened.last_run)

    @classmethod
    async def open(
        cls,
        ref: BranchRef,
        *,
        pulse: Pulse,
        clock: Clock,
        warm: Callable[[], None],
        settings: Callable[[], Settings],
        goes_on: bool = False,
        ended: Outcome | None = None,
    ) -> "LiveBranch":
        """Open a branch, and write recorded text that its document lacks, if the disk allows.

        Args:
            ref: The branch.
            pulse: Runs the work that is due.
            clock: Gives the times of recorded rows.
            warm: Preloads, in a thread, what the caller needs next.
            settings: Returns the Local Variables of a new or restored document.
            goes_on: Leave its last run unfinished, because it is resumed.
            ended: How its last run ended, if this daemon could not record it.

        Raises:
            StoreError: Its log cannot be read.
        """

        def read() -> OpenedBranch:
            warm()
            return open_branch(ref, goes_on=goes_on, ended=ended)

        opening = asyncio.ensure_future(asyncio.to_thread(read))
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:  # the thread goes on: close what it opens
            opening.add_done_callback(_close_unwanted)
            raise
        branch = cls(ref, opened, pulse=pulse, clock=clock)
        branch.last_run = opened.last_run if goes_on else None
        if opened.is_new:
            own = settings()
            branch.write_settings(given=own, effective=own, seen=Settings())
        try:
            await branch.document.flush()
            branch.note_complete()
        except StoreError as error:  # clients see it when they attach, and each attach tries again
            log.warning("%s", error)
        except BaseException:
            branch.abandon()
            raise
        return branch

    @property
    def idle(self) -> bool:
        """Whether the branch has no run, client or operation that needs it open."""
        return self.run is None and not self.sinks and not self.users

    def rest(self) -> bool:
        """Close the log but keep the branch, if memory holds all that reopening would read; return whether it did."""
        if self.notes or self.refusal or self.paused or self.queue.waiting or not self.settled:
            return False
        self.document.close()
        self.recorder.flush()
        self.recorder.journal.rest()
        self.observers.clear()  # set again when it is opened
        self.plan = None
        return True

    def wake(self) -> bool:
        """Reopen the log if the files have not changed; return whether it did."""
        root = self.conversation.session.get("workspace_root")
        is_whole = self.document.is_current and (not root or Path(root).is_dir())
        return is_whole and self.recorder.journal.wake() and not refusal_of(self.ref)

    async def look_once(self) -> None:
        """Compare document and log once after opening, and record what the log lacks.

        Raises:
            StoreError: The document cannot be read.
        """
        if not self.is_compared:
            for note in await self.compare():
                self.say(note)

    async def compare(self) -> tuple[str, ...]:
        """Reconcile document and log; return the problems found, one line each, for people.

        Raises:
            StoreError: The document cannot be read.
        """
        async with self._comparing:
            live = await self.document.look()
            if live.is_compared:
                return self._notes
            doc, revision = live.document, live.revision
            conversation, seq = self.conversation, self.recorder.last_seq
            if doc.spans or conversation.messages:
                now_ms = self.recorder.now_ms()
                reading = await asyncio.to_thread(
                    compare, doc, conversation.snapshot(), session_id=self.ref.session_id, now_ms=now_ms
                )
            else:  # there is nothing to compare
                reading = DocumentReading(notes=doc.damage)
            self.is_compared = live.is_compared = True
            notes = self._notes = reading.notes
            lacked = sum(kind == "message" for kind, _ in reading.facts)
            if self.recorder.last_seq == seq:
                with contextlib.suppress(StoreError):  # a disk that refuses is reported when the branch is opened
                    self.recorder.flush()
                    for row in self.recorder.journal.append_many(reading.facts):
                        conversation.apply(row)  # not shown: the document has it
                    note = f"{paths.JOURNAL_FILE} lacked {quantity(lacked, 'message')} of this document; recorded now"
                    notes = (*notes, note) if lacked else notes
            if reading.spans is not None:
                self.recovery = (doc, reading.spans)
                with contextlib.suppress(Stale):
                    self.tell_roles(DocumentVersion(revision=revision), reading.spans)
            return notes

    async def record_edits(self) -> tuple[DocumentVersion, Document]:
        """Record the user's edits of the document; return the document and its version.

        Raises:
            StoreError: The document cannot be read, or the disk refused.
        """
        live = await self.document.look()
        await self.look_once()
        version, doc = DocumentVersion(revision=live.revision), live.document
        edits = (await asyncio.to_thread(align, doc, self.conversation.snapshot())).edits
        with self.recorder.together():
            for edit in edits:
                self.recorder.record("edit", edit)
        return version, doc

    # -- the row of the session in its log ------------------------------------------------------------------

    def record_session(
        self,
        *,
        workspace_root: Path,
        agent: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the session's row; facts that are recorded already and not given here stay.

        Args:
            workspace_root: Its workspace.
            agent: The preset it was made from.
            metadata: Metadata to add.
        """
        now_ms = self.recorder.now_ms()
        known = self.conversation.session or session_row(id=self.ref.session_id, now_ms=now_ms, agent=agent)
        merged = {**known["metadata_json"], **(metadata or {})}
        self.note_session(**{**known, "workspace_root": str(workspace_root), "metadata_json": merged})

    def note_session(self, **facts: Any) -> None:
        """Record facts of the session, such as ``title`` and ``archived_at``; the others stay as they were."""
        now_ms = self.recorder.now_ms()
        known = self.conversation.session or session_row(id=self.ref.session_id, now_ms=now_ms)
        self.recorder.record("session", {**known, **facts, "updated_at": now_ms})

    def note_metadata(self, **facts: Any) -> None:
        """Add metadata to the session's row, if it has one; a refusing disk is reported elsewhere."""
        known = self.conversation.session.get("metadata_json")
        if known is not None and not self.refusal and any(known.get(name) != value for name, value in facts.items()):
            with contextlib.suppress(StoreError):
                self.note_session(metadata_json={**known, **facts})

    def note_lasting_notices(self) -> None:
        """Record that the notes about lasting conditions were shown, so that they are shown once."""
        if self._lasting:
            noted = self.conversation.session.get("metadata_json", {}).get("noted", [])
            self.note_metadata(noted=[*noted, *self._lasting])
            self._lasting = ()

    @property
    def written(self) -> Settings | None:
        """The Local Variables that the daemon last wrote, None if it never did."""
        return document_sync.from_json(self.conversation.session.get("metadata_json", {}).get("settings"))

    @property
    def has_no_settings(self) -> bool:
        """Whether the Local Variables of a document with runs are not the daemon's, so that they set nothing."""
        metadata = self.conversation.session.get("metadata_json", {})
        return bool(self.conversation.runs) and metadata.get("settings") is None

    def note_given(self) -> None:
        """Record the Local Variables that were written, so that a user's later change can be recognised."""
        if self.given is not None and self.given is not self._noted:
            self.note_metadata(settings=document_sync.to_json(self.given))
            self._noted = self.given if self.written == self.given else None

    # -- settings ----------------------------------------------------------------------------------------------

    def override(self, preset: Preset, block: Settings | None = None) -> Override:
        """Return the preset values that the document's Local Variables override; none in agents.

        Args:
            preset: The branch's preset.
            block: The Local Variables; None for those in the document now.
        """
        if block is None:
            block = self.document.settings_now
        if self.ref.is_agent or self.has_no_settings:
            return {}
        return find_override(block, self.written, preset)

    def write_settings(self, *, given: Settings, effective: Settings, seen: Settings) -> None:
        """Write the effective settings into the document's Local Variables, where they still equal ``seen``.

        Args:
            given: The preset's own settings, recorded as written by the daemon.
            effective: The same with the user's override.
            seen: The Local Variables when the override was computed.
        """
        self.given = given
        self.document.set_block(effective, seen)

    # -- turns -------------------------------------------------------------------------------------------------

    async def secure(self) -> None:
        """Sync the log to disk, and write the document if the daemon is the one that writes it.

        Raises:
            StoreError: The disk refused.
        """
        await asyncio.gather(self.recorder.commit(), self.document.flush())

    def stop(self, why: str = "") -> None:
        """Abort the run, with ``why`` as the reason; its task ends when the run has ended."""
        if self.run is not None:
            self.run.abort(why)

    def finish_run(self, run_id: str, outcome: Outcome) -> None:
        """Record the end of a run.

        Raises:
            StoreError: The disk refused; the run stays open in the log.
        """
        error = outcome.error
        run = self.conversation.runs[run_id].data
        self.recorder.flush()
        for kind, data in list(open_ends(self.conversation, outcome.message or outcome.reason)):
            self.recorder.record(kind, data)  # what the disk refused earlier
        notes: dict[str, Any] = {"message": outcome.message} if outcome.message and error is None else {}
        notes |= {"paused": True} if self.paused and outcome.recorded == "aborted" else {}
        self.recorder.record("run", {**run, "state": "finished", "reason": outcome.recorded, "error": error, **notes})

    def tell_start(self, run_id: str) -> None:
        """Publish the start of a run, which is in the log already."""
        run = self.conversation.runs[run_id]
        started = {"id": run_id, "phase": "started", "message_id": run.data["message_id"]}
        self.publish(Event("run", self.key, run.first_seq, (started,)))

    def tell_end(self, run_id: str) -> int:
        """Record that a run's end was published; return the row's number, by which a client knows it has seen all."""
        run = self.conversation.runs.get(run_id)
        if run is not None and run.is_finished and not run.is_kept:
            with contextlib.suppress(StoreError):
                self.recorder.record("run", {**run.data, "state": "told"})
        return self.recorder.last_seq

    async def record_run(
        self, prompt: Prompt, rows: Iterable[tuple[str, Mapping[str, Any]]], *, run_id: str, interactive: bool
    ) -> None:
        """Record and publish a run whose answer is known; the caller holds ``starting`` and called ``look_once``.

        Args:
            prompt: The prompt it answers.
            rows: Its messages and their parts.
            run_id: The id of the run.
            interactive: Whether a person watches it.

        Raises:
            StoreError: The disk refused.
        """
        # No await before its end is recorded: either the log has all of it or the next daemon ends it.
        turns.record_start(self, prompt, {"id": run_id, "interactive": interactive})
        self.tell_start(run_id)
        with self.recorder.together():
            for kind, data in rows:
                self.recorder.record(kind, data)
        self.finish_run(run_id, Outcome(reason="done", text=""))
        await self.secure()
        self.note_complete()
        finished = {"id": run_id, "phase": "finished", "reason": "done", "message": ""}
        self.publish(Event("run", self.key, self.tell_end(run_id), (finished,)))

    @property
    def has_open_run(self) -> bool:
        """Whether the log has a run without its end."""
        run = self.conversation.last_run
        return run is not None and not run.is_finished

    @property
    def settled(self) -> bool:
        """Whether the last run has its end in the log and all its text in the document."""
        run = self.conversation.last_run
        return run is None or run.is_kept

    def require_idle(self) -> None:
        """Raise ``Busy`` if a run is in flight."""
        if self.run is not None and self.status["state"] == "waiting":
            raise Busy(
                f"{self.ref.session_id} waits for an answer to its question",
                hint="Answer it, `pyagentd asks` shows it, or abort the run first",
            )
        if self.run is not None:
            raise Busy(f"{self.ref.session_id} is answering", hint="Wait for the answer, or abort it first")

    def require_writable(self) -> None:
        """Raise ``StoreError`` if nothing can be written."""
        if self.refusal:
            raise StoreError(self.refusal, hint="It can only be read; see to the disk, then send again")

    # -- clients -----------------------------------------------------------------------------------------------

    async def while_attaching(self, sink: Sink, work: Awaitable[_T]) -> _T:
        """Await ``work`` for a client that is attaching, and return its result.

        Raises:
            NotFound: The client left meanwhile.
        """
        attempt = object()
        self._attaching[attempt] = sink
        try:
            result = await work
        finally:
            left = self._attaching.pop(attempt, None) is None
        if left:
            raise NotFound(f"{self.key} was detached meanwhile", hint="Attach it again")
        return result

    def detach(self, sink: Sink) -> None:
        """Detach a client, also one that is still attaching; a run goes on."""
        self.sinks.pop(sink, None)
        self._attaching = {attempt: other for attempt, other in self._attaching.items() if other is not sink}

    def publish(self, event: Event, *, but: Sink | None = None) -> None:
        """Send an event to all clients except ``but``."""
        for sink in self.sinks:
            if sink is not but:
                sink.push(event)
        if event.kind in _AT_A_GLANCE:
            self.noticed()

    def say(self, text: str) -> None:
        """Show a notice to all clients; it is not recorded."""
        self.publish(Event("notice", self.key, 0, ({"text": text},)))

    @property
    def status(self) -> dict[str, Any]:
        """The status as clients see it; see ``SessionStatus.facts``."""
        return self.state.facts

    def note_complete(self) -> None:
        """Record once that the document has the last run's text, so that it is not written again."""
        run = self.conversation.last_run
        if run and run.is_finished and not run.is_kept and self.document.complete:
            self.recorder.record("run", {**run.data, "state": "kept"})

    # -- the end -----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write the document and close the log.

        Raises:
            StoreError: The disk refused; the log is closed nevertheless.
        """
        try:
            await self.document.flush()
        finally:
            self.close_now()

    def close_now(self) -> None:
        """Close the log; text that the document lacks is written when the branch is reopened."""
        self.document.close()
        self.recorder.close()

    def abandon(self) -> None:
        """Close the log without writing anything; clients must attach again."""
        self.document.close()
        self.recorder.journal.close()
        self.publish(Event("resync", self.key, self.recorder.last_seq))

    # -- inside ------------------------------------------------------------------------------------------------

    def tell_roles(self, version: DocumentVersion, spans: tuple[Span, ...], marker: int | None = None) -> None:
        """Set and publish the roles of a version of the document; ``marker`` is where the next answer goes."""
        live = self.document.live
        if marker is not None:
            marker = live.place(replace(version, marker=marker))
            live.go_to(marker)
        if not self.document.set_roles(version, spans) and marker is None:
            return
        now = live.document.spans
        if len(now) > _MOST_ROLES:
            self.publish(Event("resync", self.key, self.recorder.last_seq))
            return
        facts: dict[str, Any] = {"revision": live.revision, "spans": roles_to_wire(now)}
        facts |= {} if marker is None else {"marker": marker + 1}
        self.publish(Event("roles", self.key, 0, (facts,)))

    def _status_extras(self) -> dict[str, Any]:
        name = names_for_turn(self.conversation).agent or opened_with(self.conversation)
        return ({"agent": name} if name else {}) | ({"paused": True} if self.paused and self.queue.waiting else {})

    def _show_row(self, row: Row, inserts: list[Insert]) -> None:
        if self.meter is not None:
            self.meter.take(row)
        if row.type == "run" and self.announce is not None:
            announce, self.announce = self.announce, None
            announce()
        outcome = tool_event(row.data) if row.type == "part" and row.data["type"] != "text" else None
        if outcome is not None:
            self.publish(Event("tool", self.key, 0, (outcome,)))
        for insert in inserts:
            self.document.add(insert)
            self.publish(Event("insert", self.key, insert.seq, (insert.text, insert.role)))
        if outcome is not None:
            for observe in self.observers:
                observe(row)

    def _replay_run(self) -> list[Insert]:
        """Return the document inserts of the last run's rows; blocks."""
        run = self.conversation.last_run
        return replay(self.recorder.journal.rows(after=run.first_seq - 1), 0) if run is not None else []

    def _on_edit(self, revision: int, edit: Edit, sink: Sink | None, id: str) -> None:
        """Publish an edit; its author only gets its revision."""
        facts = {"revision": revision, "id": id or None}
        if sink is not None and sink in self.sinks:
            sink.push(Event("edit", self.key, 0, ({**facts, "own": True},)))
        self.publish(Event("edit", self.key, 0, ({**facts, "hunks": edit_to_wire(edit)},)), but=sink)

    def _on_file_written(self, revision: int, stamp: Stamp | None) -> None:
        facts = {"revision": revision, "mtime": stamp.mtime_ns if stamp else 0}
        self.publish(Event("persisted", self.key, 0, (facts,)))
        if self.run is None:  # else it is noted when that has ended
            self.note_complete()
        if self.document.settings is not None:
            self.note_given()


def _close_unwanted(opening: asyncio.Future[OpenedBranch]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().journal.close()


# Attaching a client: the edits that its text lacks, and the state of the branch.
#
# A client identifies its text by the last revision that it got or, if it read the file, by a hash. If the daemon
# remembers that version of the document, the client gets the edits since; if not, it sends its text and gets the
# difference. If the file has not changed, it is not read.

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


async def attach_client(branch: LiveBranch, sink: Sink, known: ClientText) -> dict[str, Any] | None:
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


async def events_page(branch: LiveBranch, *, after: int, upto: int, size: int) -> Page:
    """Return the events of rows after ``after``, up to row ``upto`` or until they hold ``size`` characters.

    Raises:
        StoreError: The disk refused.
    """
    runs = branch.conversation.runs.values()
    begin = max((run.first_seq for run in runs if run.first_seq <= after), default=1) - 1
    over = branch.run is None and upto >= branch.recorder.last_seq  # else a client that attached at ``upto`` got it
    rows = takewhile(lambda row: row.seq <= upto, branch.recorder.journal.rows_after(begin))
    return await asyncio.to_thread(_events_page, events_of_rows(rows, branch.key, over=over), after, upto, size)


def _events_page(rows: Iterable[tuple[int, list[Event]]], after: int, upto: int, size: int) -> Page:
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
